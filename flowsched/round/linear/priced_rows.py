"""The rows that rounds at linear prices read of a state: its own, with what a cost model knows of each machine and task.

What is priced depends on some of the cluster as a whole (``ClassContext``). Where that changes, all is priced anew.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from math import inf
from operator import attrgetter

import numpy as np

from flowsched.cluster.snapshot import Machine, Running, Service, Task
from flowsched.cluster.state_rows import StateRows
from flowsched.cluster.task_class import TaskClass
from flowsched.cluster.task_rows import FREE
from flowsched.pricing.linear.policy import CostModel
from flowsched.relations.relation import TaskGroup
from flowsched.round.linear import cluster_checks
from flowsched.round.linear.choice import user_name
from flowsched.round.linear.cluster_rows import ClusterRows
from flowsched.round.linear.machine_groups import Upkeep
from flowsched.round.linear.snapshot_adapter import ClassContext, SnapshotAdapter, class_key
from flowsched.support.arrays import IntArray
from flowsched_models.document import InputError
from flowsched_models.runtime import HostFactory

_MOST_UNUSED = 1024
"""So many classes may be without tasks beside as many as have some."""


def _arrival(wait: tuple[Task, int]) -> tuple[float, int, str, str]:
    return wait[0].arrival


def _name(run: tuple[Running, int]) -> str:
    return run[0].task.name


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
        self._state: StateRows | None = None
        self.upkeep = Upkeep()
        """Events that :meth:`catch_up` has applied, and why it priced anew."""

    def catch_up(self, state: StateRows) -> ClusterRows:
        """The rows of a state, which are settled then; another object than before where all is priced anew. Raises
        :class:`EventError` for what cannot be priced.
        """
        self.upkeep.clear()
        state.settle()
        before, self._state = self._state, None  # whatever is raised below
        reason = "first_round" if before is None else "another_state"
        if before is state:
            reason = self._follow(state) or self._crowded()
        if reason:
            self.upkeep.clear()
            self.upkeep.rebuilt[reason] += 1
            self._begin(state)
            self._follow(state)
            self.upkeep.applied.clear()
        self._state = state
        return self.cluster

    def _begin(self, state: StateRows) -> None:
        """Nothing is known of a state but its context."""
        waiting = [task for task in state.things.values() if isinstance(task, Task)]
        self._context = ClassContext.of(state, waiting)
        self._counting = {state.tasks.row(task.name): task for task in waiting if self._context.counts(task)}
        """By row, waiting tasks that say anything of the context."""
        hosts = self._given_hosts or HostFactory(state.catalogue)
        self._adapter = SnapshotAdapter(self._context, self._policy, hosts, self._weight, self._margin)
        self.cluster = ClusterRows.of(self._policy)
        self.cluster.classes.add_resources(self._context.resources)
        for places in self._context.places:
            self.cluster.classes.places.append(places)
        self._machines: dict[str, tuple[Machine, tuple[Service, ...]]] = {}
        """Machines that are priced, the very objects of the state."""
        self._read = 0
        self._gone = 0
        self._last_arrival = (-inf, 0, "", "")
        self._numbered = 0

    def _follow(self, state: StateRows) -> str:
        """Price what is different; why that is not enough, empty if it is."""
        cluster, tasks = self.cluster, self.cluster.tasks
        changed, self._read = state.tasks.changed_since(self._read)
        tasks.follow(state.tasks)
        touched = cluster.machines.follow(state.machines)
        now = tasks.state[changed]
        there = [(state.things[tasks.name(row)], row) for row in changed[now != FREE].tolist()]
        waits = [(task, row) for task, row in there if isinstance(task, Task)]
        runs = [(run, row) for run, row in there if isinstance(run, Running)]
        counted = [row for row in changed.tolist() if self._counting.pop(row, None) is not None]
        counting = {row: task for task, row in waits if self._context.counts(task)}
        self._counting |= counting
        names = [name for row in touched.tolist() if (name := state.machines.names[row]) is not None]
        come = [name for name in names if self._machines.get(name) is not state.there[name]]
        gone = [name for name in self._machines if name not in state.there] if len(touched) else []
        if counted or counting or come or gone or state.resources != self._context.resources:
            context = ClassContext.of(state, self._counting.values())
            if reason := context.differs(self._context):
                return reason
        self._describe(state, come, gone)
        self._wait(state, sorted(waits, key=_arrival))
        self._run(sorted(runs, key=_name))
        if self.upkeep.rebuilt or len(changed):
            self._declare(state.task_groups.values())
        cluster.recount(touched)
        self.upkeep.applied += Counter(
            machines_added=len(come),
            machines_removed=len(gone),
            tasks_submitted=len(waits),
            tasks_started=len(runs),
            tasks_left=tasks.gone - self._gone,
        )
        self._gone = tasks.gone
        return ""

    def _crowded(self) -> str:
        """``classes`` where most are those of tasks that are gone."""
        classes, tasks = len(self.cluster.classes), self.cluster.tasks
        if classes <= _MOST_UNUSED:
            return ""
        used = len(np.unique(tasks.task_class[tasks.state != FREE]))
        return "classes" if classes > 2 * used + _MOST_UNUSED else ""

    def _describe(self, state: StateRows, come: Sequence[str], gone: Sequence[str]) -> None:
        """Machines have a kind and readings of their own."""
        machines, classes = self.cluster.machines, self.cluster.classes
        for name in gone:
            del self._machines[name]
        for row, name in zip(machines.rows_of(come).tolist(), come, strict=True):
            machine, services = self._machines[name] = state.there[name]
            spec = self._adapter.machine(machine, sorted(services, key=attrgetter("name")))
            cluster_checks.check_machine(spec)
            machines.describe(row, spec)
        machines.settle()
        classes.price_on(machines.kinds)

    def _declare(self, groups: Iterable[TaskGroup]) -> None:
        """Members of a group that was not declared are tasks like all others."""
        for group in groups:
            if self.cluster.groups.get(group.name) != group.minimum:
                self.cluster.declare_group(group.name, max(1, group.minimum))

    def _wait(self, state: StateRows, waits: Sequence[tuple[Task, int]]) -> None:
        """Tasks wait from now on, in this order."""
        if not waits:
            return
        classes = [self._class(t, t.widths_milli[0]) for t, _ in waits]
        cluster, tasks = self.cluster, self.cluster.tasks
        for task_class in sorted(set(classes), key=class_key):
            cluster.intern(task_class)
        # A class that ran only so far may have a number after those that waited.
        order = sorted(range(len(cluster.classes)), key=lambda c: class_key(cluster.classes[c]))
        if order != list(range(len(order))):
            cluster.order_classes(order)
        rows = self._put([t for t, _ in waits], [row for _, row in waits], classes)
        if waits[0][0].arrival <= self._last_arrival:
            # They may come before tasks that have waited as long.
            others = np.setdiff1d(tasks.waiting(), rows)
            equal = others[np.isin(tasks.created_s[others], tasks.created_s[rows])].tolist()
            things = [(state.things[tasks.name(row)], row) for row in equal]
            late = [(task, row) for task, row in things if isinstance(task, Task)]
            rows = np.array([row for _, row in sorted([*late, *waits], key=_arrival)], dtype=np.int64)
        self._number(rows)
        self._last_arrival = max(self._last_arrival, waits[-1][0].arrival)

    def _run(self, runs: Sequence[tuple[Running, int]]) -> None:
        """Tasks run from now on, each predicted to end on its width alone; its progress is estimated from the same model."""
        if not runs:
            return
        cluster, running = self.cluster, [run for run, _ in runs]
        classes = [self._class(run.task, run.width_milli, placed=True) for run in running]
        rows = self._put([run.task for run in running], [row for _, row in runs], classes)
        self._number(rows)
        start_s = np.array([run.start_s for run in running], dtype=np.float64)
        left = 1.0 - np.array([run.task.done for run in running], dtype=np.float64)
        tasks, kind = cluster.tasks, cluster.machines.kind
        lasting_s = cluster.classes.lasting_s()[tasks.task_class[rows], kind[tasks.machine[rows]]]
        ends = np.isfinite(lasting_s)
        tasks.end_s[rows] = np.where(ends, start_s + np.where(ends, lasting_s, 0.0) * left, inf)

    def _class(self, task: Task, width_milli: int, placed: bool = False) -> TaskClass:
        return self._adapter.task_class(task, width_milli, placed, self._behaviours.get(task.name))

    def _put(self, tasks: Sequence[Task], rows: Sequence[int], classes: Sequence[TaskClass]) -> IntArray:
        """Tasks are of these classes; their rows."""
        forbid_devices(user_name(self._policy.name), tasks)
        # Thousands of tasks have the same class, and to compare classes takes a while.
        number = {i: self.cluster.intern(c) for i, c in {id(c): c for c in classes}.items()}
        found = np.array(rows, dtype=np.int64)
        self.cluster.tasks.task_class[found] = [number[id(c)] for c in classes]
        return found

    def _number(self, rows: IntArray) -> None:
        """Tasks came after all others, in this order."""
        self.cluster.tasks.sequence[rows] = np.arange(self._numbered, self._numbered + len(rows))
        self._numbered += len(rows)
