"""Machines in the order of what they are, names last, and which of them are equal to a round."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from flowsched.cluster.running_tasks import in_rows
from flowsched.cluster.served_machines import ServedMachine, ServedMachines
from flowsched.cluster.snapshot import Machine, Snapshot, Task, by_machine
from flowsched.cluster.tasks_there import NOTHING_THERE, TasksThere, order_of
from flowsched.gpu.devices import MachineGpus
from flowsched.support.arrays import IntArray

Labels = tuple[tuple[str, str], ...]
LARGE_GROUP = 32
"""Groups with more members than this, and than there are tasks to place, are searched by as many members as there are
tasks: no plan uses more of them. Smaller ones are searched whole."""
_NO_GPUS = MachineGpus("", 0)
"""Stands for none where machines are compared, beside what says that there is none."""


class MachineOrder:
    """What tells the machines of a round apart.

    A machine's key is what it has and serves, then what runs there, then all else. Mostly the beginning tells: up to the
    first numbers of the task that comes first. So whole keys are made of machines alone that are alike up to there.
    """

    def __init__(
        self,
        snapshot: Snapshot,
        machines: Sequence[Machine],
        known: ServedMachines,
        pending: Sequence[Task],
    ) -> None:
        """``machines``: those of the snapshot, what runs in rows, that the round looks at; ``known``: those of earlier
        rounds. ``pending``: tasks whose lists of machines, and wishes, tell machines apart.
        """
        self._now_s = snapshot.now_s
        self._running = running = in_rows(snapshot)
        self._machines = machines
        self.served: list[ServedMachine] = known.of(machines, by_machine(snapshot.services))
        """[machines]"""
        self._contents = known.contents
        self.there: list[TasksThere] = [running.there.get(m.name, NOTHING_THERE) for m in machines]
        """[machines] what runs there, in any order."""
        self._profile_rank: IntArray = np.argsort(np.argsort(list(snapshot.catalogue.jobs)))
        self._linked = {m.name for m in machines if m.gpus is not None and m.gpus.topology}
        self.devices_left: dict[str, tuple[int, ...]] = {}
        """What is left of each GPU, by machine."""
        for m in machines if running.devices_now else ():
            if m.name in running.devices_now:
                left = running.devices_now[m.name].left
                # Where links tell devices apart it matters which of them are left, and who has which.
                self.devices_left[m.name] = left if m.name in self._linked else tuple(sorted(left))
        lists = {names for t in pending for names in (t.machines, t.spread_over) if names is not None}
        self._lists = [frozenset(names) for names in sorted(lists)]
        self._wishes = [dict(w) for w in sorted({t.wishes for t in pending if t.wishes})]
        self._counted: dict[str, list[tuple[str, int, int]]] = {}
        for count in snapshot.relation_counts:
            self._counted.setdefault(count.machine, []).append((count.relation, count.members, count.holders))
        # A label that no relation uses, such as a host's name, would leave a large cluster without machines alike.
        self._keep_labels = len(machines) <= LARGE_GROUP
        self._label_keys = {r.key for r in snapshot.relations}

    def groups(self) -> list[list[int]]:
        """Equal machines, by position, in order of name; the groups in order of their keys."""
        order, begins = self._by_beginning()
        found: list[list[int]] = []
        for first, last in pairwise([*begins, len(order)]):
            for some in self._apart(order[first:last], self._lead):
                found += self._apart(some, self._rest)
        return found

    def _apart(self, some: list[int], key_of: Callable[[int], tuple[Any, ...]]) -> list[list[int]]:
        """Machines that are equal by a key, in order of name; in order of the keys."""
        if len(some) == 1:
            return [some]
        keyed = sorted([(key_of(i), self._machines[i].name, i) for i in some])
        # Equal ones are neighbours now: to compare them is cheaper than to hash all that runs there.
        found: list[list[int]] = []
        for at, (key, _, i) in enumerate(keyed):
            if at and key == keyed[at - 1][0]:
                found[-1].append(i)
            else:
                found.append([i])
        return found

    def in_order(self, at: int) -> TasksThere:
        """What runs on a machine, in the order of its group's residents."""
        there = self.there[at]
        return there.lasting_order or there.in_order(self._progress(there), self._now_s)

    def _by_beginning(self) -> tuple[list[int], list[int]]:
        """The machines in order of how their keys begin; and where in it each begins that differs from the one before."""
        beginnings = [(one.kind, self._told_labels(one.machine)) for one in self.served]
        number = {beginning: i for i, beginning in enumerate(sorted(set(beginnings), key=self._content))}
        occupied = [i for i, there in enumerate(self.there) if there.rows]
        lead = self._running.columns_at(np.array([self.there[i].lead for i in occupied], np.int64))
        self._lead_progress = dict(zip(occupied, lead.progress.tolist(), strict=True))
        # How the content of a task begins.
        numbers = np.zeros((6, len(beginnings)))
        numbers[5] = [number[beginning] for beginning in beginnings]
        numbers[4, occupied] = 1.0
        numbers[3, occupied] = -lead.priority
        numbers[2, occupied] = np.where(lead.endless > 0.0, 0.0, lead.submit_s)
        numbers[1, occupied] = self._profile_rank[lead.profile]
        numbers[0, occupied] = lead.scale
        order = np.lexsort(numbers)
        numbers = numbers[:, order]
        differs = (numbers[:, 1:] != numbers[:, :-1]).any(axis=0)
        return order.tolist(), [0, *(np.flatnonzero(differs) + 1).tolist()] if len(order) else []

    def _told_labels(self, machine: Machine) -> Labels:
        """The labels that tell a machine from others."""
        if not machine.labels or self._keep_labels:
            return machine.labels
        return tuple([pair for pair in machine.labels if pair[0] in self._label_keys])

    def _content(self, beginning: tuple[int, Labels]) -> tuple[Any, ...]:
        """What a machine has, and its services."""
        kind, labels = beginning
        has, serves = self._contents[kind]
        return has, labels, serves

    def _lead(self, at: int) -> tuple[Any, ...]:
        """Content and progress of the task that comes first on a machine, if any runs there."""
        there = self.there[at]
        if not there.rows:
            return ()
        if there.lasting_order is None:
            there = self.in_order(at)
            return order_of(there.tasks[0], self._progress(there)[0], self._now_s)[:2]
        return there.lead_content, 0.0 if there.lasting_order.tasks[0].task.endless else self._lead_progress[at]

    def _rest(self, at: int) -> tuple[Any, ...]:
        """A machine's key without its beginning."""
        machine, there = self._machines[at], self.in_order(at)
        name = machine.name
        progress = zip(there.tasks, self._progress(there), strict=True)
        return (
            tuple([order_of(r, done, self._now_s) for r, done in progress]),
            tuple([name in names for names in self._lists]),
            tuple([costs.get(name, 0.0) for costs in self._wishes]),
            tuple(sorted(machine.resources)),
            machine.gpus is not None,
            (machine.gpus or _NO_GPUS, self.devices_left.get(name, ())),
            tuple([r.devices for r in there.tasks]) if name in self._linked else (),
            tuple(sorted(self._counted.get(name, ()))),
        )

    def _progress(self, there: TasksThere) -> list[float]:
        found: list[float] = self._running.progress_at(np.array(there.rows, np.int64)).tolist()
        return found
