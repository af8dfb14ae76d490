"""The rows that rounds at linear prices read of a :class:`ClusterState`: each of its events changes those that it concerns.

What is priced depends on some of the cluster as a whole (``ClassContext``). Where that changes, rows are laid out anew.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from math import inf
from operator import attrgetter

import numpy as np

from flowsched.cluster.cluster_state import ClusterState
from flowsched.cluster.running_tasks import entries_of
from flowsched.cluster.snapshot import Machine, Running, Service, Snapshot, Task, by_machine
from flowsched.cluster.state_changes import StateChanges, StateMark
from flowsched.cluster.task_class import MachineSpec, TaskClass
from flowsched.cluster.task_rows import FREE
from flowsched.pricing.linear.policy import CostModel
from flowsched.relations.relation import TaskGroup
from flowsched.round.linear.choice import user_name
from flowsched.round.linear.cluster_rows import ClusterRows
from flowsched.round.linear.machine_groups import Upkeep
from flowsched.round.linear.snapshot_adapter import ClassContext, SnapshotAdapter, class_key
from flowsched.support.arrays import IntArray
from flowsched_models.document import InputError
from flowsched_models.runtime import HostFactory

_MOST_UNUSED = 1024
"""So many classes may be without tasks beside as many as have some."""
_ARRIVAL, _TASK_NAME = attrgetter("arrival"), attrgetter("task.name")


def forbid_devices(policy: str, tasks: Iterable[Task]) -> None:
    """Raise :class:`InputError` where a task asks for GPUs as devices, which no cost model of bulk rounds knows."""
    asking = next((t.name for t in tasks if t.gpus is not None), None)
    if asking is not None:
        message = f"{asking} asks for GPUs as devices, which cost models do not know"
        raise InputError.one("--policy", message, "flow and the baselines do", key=policy)


class PricedRows:
    """The rows of one state at a time."""

    def __init__(
        self,
        policy: CostModel,
        headroom_weight: float,
        slo_margin: float,
        hosts: HostFactory | None = None,
        behaviours: Mapping[str, tuple[float, float]] | None = None,
    ) -> None:
        """``hosts`` may be shared with others that use the same profiles. ``behaviours``: sensitivity and pressure of tasks,
        by name, that are not as their profiles say.
        """
        self._policy = policy
        self._weight = headroom_weight
        self._margin = slo_margin
        self._given_hosts = hosts
        self._behaviours = behaviours or {}
        self._mark: StateMark | None = None
        self._known: dict[str, Task | None] = {}
        """Tasks with a row: each as it came while it waits, None while it runs."""
        self.upkeep = Upkeep()
        """Events that :meth:`catch_up` has applied, and why it laid out rows anew."""

    def catch_up(self, state: ClusterState, now_s: float) -> ClusterRows:
        """The rows of a state; another object than before where they are laid out anew. Raises :class:`EventError` for what
        cannot be priced.
        """
        self.upkeep.clear()
        before, mark = self._mark, state.mark()
        self._mark = None  # whatever is raised below
        changes = None if before is None else mark.since(before)
        reason = "first_round" if before is None else "another_state"
        if changes is not None:
            reason = self._apply(state, changes, now_s) or self._crowded()
        if reason:
            self.upkeep.rebuilt[reason] += 1
            self.lay_out(state.snapshot(now_s))
        self._mark = mark
        return self.cluster

    def lay_out(self, snapshot: Snapshot) -> ClusterRows:
        """New rows, those of a snapshot: machines in the order of their names, classes in that of what they are, and waiting
        tasks as they came.
        """
        self._context = ClassContext.of(snapshot)
        hosts = self._given_hosts or HostFactory(snapshot.catalogue)
        self._adapter = SnapshotAdapter(self._context, self._policy, hosts, self._weight, self._margin)
        self._known = {}
        cluster = self.cluster = ClusterRows.of(self._policy)
        services = by_machine(snapshot.services)
        machines = sorted(snapshot.machines, key=attrgetter("name"))
        cluster.add_machines([self._spec(m, services[m.name]) for m in machines])
        self._machines = {machine.name for machine in machines}
        for relation in sorted(snapshot.relations, key=attrgetter("name")):
            cluster.declare_relation(relation)
        for count in snapshot.relation_counts:
            row = np.array([cluster.row(count.machine)])
            cluster.machines.relation_store.count_all(count.relation, row, count.members, count.holders)
        for places in self._context.places:
            cluster.classes.places.append(places)
        self._declare(snapshot.task_groups)
        self._last_arrival = (-inf, 0, "", "")
        self._submit_waiting(sorted(snapshot.pending, key=_ARRIVAL))
        self._submit_running(entries_of(snapshot.running))
        return cluster

    def _apply(self, state: ClusterState, changes: StateChanges, now_s: float) -> str:
        """Tell the rows what is different; why that is not enough, empty if it is."""
        cluster, known = self.cluster, self._known
        waits = sorted([wait.task for wait, there in changes.waits.values() if there], key=_ARRIVAL)
        runs = [running for running, there in changes.running.values() if there]
        # A task that starts keeps its row; one that changes otherwise leaves it, and comes again.
        starts = [r for r in runs if (was := known.get(r.task.name)) and was is changes.waits[r.task.name][0].task]
        begun = {r.task.name for r in starts}
        leaves = [n for n in dict.fromkeys((*changes.waits, *changes.running)) if n in known and n not in begun]
        gone = sorted(name for name in changes.machines if name in self._machines)
        come = [state.on(name) for name, (_, there) in sorted(changes.machines.items()) if there]
        waited = [task for name in (*begun, *leaves) if (task := known[name]) is not None]
        if changes.machines or any(map(self._context.counts, (*waited, *waits))):
            context = ClassContext.of(state.snapshot(now_s))
            if reason := context.differs(self._context):
                return reason
        cluster.leave(self._rows(leaves))
        for name in leaves:
            del known[name]
        if gone:
            cluster.remove_machines(gone)
            self._machines.difference_update(gone)
        if come:
            cluster.add_machines([self._spec(here.machine, here.services) for here in come])
            self._machines.update(here.machine.name for here in come)
        if any(not there for _, there in changes.running.values()):
            self._declare(state.task_groups.values())
        late = self._comes_between(waits)
        self._submit_waiting(waits)
        self._submit_running([r for r in runs if r.task.name not in begun])
        self._bind(self._rows(r.task.name for r in starts), starts)
        self.upkeep.applied += Counter(
            machines_added=len(come),
            machines_removed=len(gone),
            tasks_submitted=len(waits),
            tasks_started=len(runs),
            tasks_left=sum(name not in known for name in leaves),
        )
        return "arrival_order" if late else ""

    def _crowded(self) -> str:
        """``classes`` where most are those of tasks that are gone."""
        classes, tasks = len(self.cluster.classes), self.cluster.tasks
        if classes <= _MOST_UNUSED:
            return ""
        used = len(np.unique(tasks.task_class[tasks.state != FREE]))
        return "classes" if classes > 2 * used + _MOST_UNUSED else ""

    def _comes_between(self, waits: Sequence[Task]) -> bool:
        """Whether one of the tasks, in the order of their arrival, may come before one that has waited as long: they are
        served in the order in which they were told.
        """
        if not waits or waits[0].arrival > self._last_arrival:
            return False
        tasks = self.cluster.tasks
        return bool(np.isin([task.submit_s for task in waits], tasks.created_s[tasks.waiting()]).any())

    # Machines, groups and tasks that come

    def _spec(self, machine: Machine, services: Iterable[Service]) -> MachineSpec:
        return self._adapter.machine(machine, sorted(services, key=attrgetter("name")))

    def _declare(self, groups: Iterable[TaskGroup]) -> None:
        """Members of a group that was not declared are tasks like all others."""
        for group in groups:
            if self.cluster.groups.get(group.name) != group.minimum:
                self.cluster.declare_group(group.name, max(1, group.minimum))

    def _submit_waiting(self, tasks: Sequence[Task]) -> None:
        """Tasks come that wait, in this order."""
        if not tasks:
            return
        classes = [self._class(t, t.widths_milli[0]) for t in tasks]
        cluster = self.cluster
        for task_class in sorted(set(classes), key=class_key):
            cluster.intern(task_class)
        # A class that ran only so far may have a number after those that waited.
        order = sorted(range(len(cluster.classes)), key=lambda c: class_key(cluster.classes[c]))
        if order != list(range(len(order))):
            cluster.order_classes(order)
        self._submit(tasks, classes)
        self._known.update((task.name, task) for task in tasks)
        self._last_arrival = max(self._last_arrival, tasks[-1].arrival)

    def _submit_running(self, running: Sequence[Running]) -> None:
        """Tasks come that run."""
        running = sorted(running, key=_TASK_NAME)
        classes = [self._class(r.task, r.width_milli, placed=True) for r in running]
        self._bind(self._submit([r.task for r in running], classes), running)

    def _class(self, task: Task, width_milli: int, placed: bool = False) -> TaskClass:
        return self._adapter.task_class(task, width_milli, placed, self._behaviours.get(task.name))

    def _submit(self, tasks: Sequence[Task], classes: Sequence[TaskClass]) -> IntArray:
        forbid_devices(user_name(self._policy.name), tasks)
        # Thousands of tasks have the same class, and to compare classes takes a while.
        number = {i: self.cluster.intern(c) for i, c in {id(c): c for c in classes}.items()}
        numbers = np.array([number[id(c)] for c in classes], dtype=np.int64)
        created_s = np.array([t.submit_s for t in tasks], dtype=np.float64)
        return self.cluster.submit(numbers, created_s, [t.name for t in tasks])

    def _bind(self, rows: IntArray, running: Sequence[Running]) -> None:
        """Tasks start; each is predicted to end on its width alone, its progress is believed from the same model."""
        if not running:
            return
        cluster = self.cluster
        machines = np.array([cluster.row(r.machine) for r in running], dtype=np.int64)
        start_s = np.array([r.start_s for r in running], dtype=np.float64)
        left = 1.0 - np.array([r.task.done for r in running], dtype=np.float64)
        lasting_s = cluster.classes.lasting_s()[cluster.tasks.task_class[rows], cluster.machines.kind[machines]]
        end_s = np.full(len(running), inf)
        ends = np.isfinite(lasting_s)
        end_s[ends] = start_s[ends] + lasting_s[ends] * left[ends]
        cluster.bind(rows, machines, end_s)
        self._known.update(dict.fromkeys((r.task.name for r in running), None))

    def _rows(self, tasks: Iterable[str]) -> IntArray:
        return np.array([self.cluster.tasks.row(name) for name in tasks], dtype=np.int64)
