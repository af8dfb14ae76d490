"""The running tasks of a cluster as a table that events change, and what a snapshot shows of it.

A round of a large cluster looks at few of the tasks that run, and needs numbers alone of the others. So the tasks of a
snapshot are made when they are asked for, and their numbers are there as arrays.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np

from flowsched.cluster.change_log import ChangeLog, LogMark
from flowsched.cluster.snapshot import Machine, Running, Snapshot, Task
from flowsched.cluster.still_running import class_run_lengths
from flowsched.gpu.devices import DevicesNow
from flowsched.support.arrays import FloatArray, IntArray
from flowsched.support.late_sequence import LateSequence
from flowsched_models.catalogue import Catalogue
from flowsched_models.estimated_executions import Progress
from flowsched_models.paged_columns import PagedColumns, SeenColumns

_NO_TASK = np.array(None, np.object_)


class RunningColumns(NamedTuple):
    """Numbers of running tasks, [tasks] each."""

    machine: IntArray
    """Position in the snapshot's machines."""
    profile: IntArray
    """Position in the catalogue's jobs."""
    run_class: IntArray
    """Position in :func:`class_names`."""
    progress: FloatArray
    width_milli: FloatArray
    memory_mib: FloatArray
    scale: FloatArray
    goal_s: FloatArray
    """Below 0 where the task has none."""
    weight: FloatArray
    submit_s: FloatArray
    endless: FloatArray
    """1 for a long-running task, else 0."""
    priority: FloatArray
    factor: FloatArray
    """The task's work as it was forecast at its start, relative to its profile's."""


_NO_NUMBERS = np.append(np.zeros(len(RunningColumns._fields)), -1.0)


def columns_of(snapshot: Snapshot) -> RunningColumns:
    """The numbers of all that runs, in the order of :func:`in_columns`."""
    running = snapshot.running
    if isinstance(running, RunningTasks) and running.belong_to(snapshot):
        return running.columns
    machine = {m.name: i for i, m in enumerate(snapshot.machines)}
    profile = {name: i for i, name in enumerate(snapshot.catalogue.jobs)}
    classes = {name: i for i, name in enumerate(class_names(snapshot))}
    rows = [
        (machine[r.machine], profile[r.task.profile], classes[_class_of(r.task)], r.progress, *r.numbers)
        for r in running
    ]
    table = np.array(rows, np.float64).reshape(len(rows), len(RunningColumns._fields))
    return _columns(np.ascontiguousarray(table.T))


def class_names(snapshot: Snapshot) -> Sequence[str]:
    """By position, the classes of tasks that run; the first is that of a task without one, or without an end."""
    running = snapshot.running
    if isinstance(running, RunningTasks) and running.belong_to(snapshot):
        return running.class_names
    return ["", *sorted({r.task.run_class for r in running if r.task.run_class and not r.task.endless})]


def lengths(snapshot: Snapshot, columns: RunningColumns, type_of: IntArray, types: Sequence[str]) -> FloatArray:
    """[tasks] estimated over forecast run time of each, given that it still runs; 1 where it has no end.

    ``type_of`` [tasks]: position of its machine's type in ``types``.
    """
    found = np.ones(len(columns.progress))
    if snapshot.run_time_errors is not None:
        errors = np.array([profile.error for profile in snapshot.catalogue.jobs.values()])
        found = snapshot.run_time_errors.lengths(columns.progress, errors[columns.profile])
    if snapshot.learnt_run_times.in_use:
        _put_learnt_lengths(found, snapshot, columns, type_of, types)
    return np.where(columns.endless > 0.0, 1.0, found)


def _put_learnt_lengths(
    found: FloatArray, snapshot: Snapshot, columns: RunningColumns, type_of: IntArray, types: Sequence[str]
) -> None:
    """Into ``found`` [tasks] those of classes with completions."""
    names = class_names(snapshot)
    kinds, kind_of = np.unique(columns.run_class * len(types) + type_of, return_inverse=True)
    learnt = [snapshot.learnt_run_times.of(names[k // len(types)], types[k % len(types)]) for k in kinds.tolist()]
    rows = np.array([(0.0, 0.0, 0.0) if each is None else each for each in learnt]).reshape(-1, 3)[kind_of]
    known = np.flatnonzero(rows[:, 0])
    factors, spreads, runs = rows[known].T
    forecast = columns.factor[known]
    done = columns.progress[known] * forecast / factors
    lengths_of = np.empty(len(known))
    class_run_lengths(done, spreads, runs, runs * spreads * spreads, lengths_of)
    found[known] = factors * lengths_of / forecast


def in_columns(snapshot: Snapshot) -> Sequence[Running]:
    """All that runs, of any progress, in the order of :func:`columns_of`."""
    running = snapshot.running
    if isinstance(running, RunningTasks) and running.belong_to(snapshot):
        return running.entries
    return running


def running_on(snapshot: Snapshot, machines: Collection[str]) -> tuple[Running, ...]:
    """What runs on some machines, in the snapshot's order."""
    running = snapshot.running
    if isinstance(running, RunningTasks) and running.belong_to(snapshot):
        return running.on(machines)
    return tuple([r for r in running if r.machine in machines])


def entries_of(running: Sequence[Running]) -> Sequence[Running]:
    """What runs, in any order and of any progress: to count what it takes, without making each task anew."""
    return running.entries if isinstance(running, RunningTasks) else running


class _Rows:
    """What runs between two changes, of which snapshots may show different progress."""

    def __init__(
        self,
        entries: SeenColumns[np.object_],
        table: SeenColumns[np.float64],
        there: Mapping[str, tuple[int, ...]],
        count: int,
    ) -> None:
        """As :class:`RunningTable` has them; nothing changes them any more. ``count``: how many tasks there are."""
        self.pages = entries, table
        self.there, self.count = there, count

    def on(self, machines: Collection[str]) -> tuple[list[int], list[Running]]:
        """Rows of the tasks on some machines, those first that came first, and the tasks, of any progress."""
        entries, table = self.pages
        rows = [row for name in machines for row in self.there.get(name, ())]
        if len(machines) > 1:
            rows.sort(key=lambda row: table.row(row)[-1])
        return rows, [entries.row(row) for row in rows]

    @cached_property
    def used(self) -> IntArray:
        """Rows with tasks, ascending."""
        return np.flatnonzero(self.pages[1].all[-1] >= 0.0)

    @cached_property
    def entries(self) -> list[Running]:
        """The tasks, of any progress."""
        found: list[Running] = self.pages[0].all[self.used].tolist()
        return found

    @cached_property
    def came(self) -> FloatArray:
        """[entries] Numbers that grow with the time at which they came."""
        found: FloatArray = self.pages[1].all[-1, self.used]
        return found

    @cached_property
    def columns(self) -> RunningColumns:
        """Their numbers, of any progress."""
        return _columns(self.pages[1].all[:-1, self.used])


@dataclass(eq=False, repr=False)
class RunningTasks(LateSequence[Running]):
    """The tasks that run at one moment, in the order in which they came; each is made when it is asked for."""

    rows: _Rows
    _progress: Progress
    """By row."""
    _machines: tuple[Machine, ...]
    _catalogue: Catalogue
    devices_now: Mapping[str, DevicesNow]
    """By machine, of those with GPUs."""
    class_names: Sequence[str]
    """Names of classes by their position in the columns; more may follow."""
    mark: LogMark[Running]
    """All that came and went until then."""

    def belong_to(self, snapshot: Snapshot) -> bool:
        """Whether the columns are about a snapshot's machines and profiles."""
        return self._machines is snapshot.machines and self._catalogue is snapshot.catalogue

    def beside(
        self,
        machines: tuple[Machine, ...],
        devices_now: Mapping[str, DevicesNow],
        *,
        without: Collection[Running] = (),
        instead: Collection[tuple[Running, Running]] = (),
        more: Collection[Running] = (),
    ) -> RunningTasks:
        """The same on ``machines``, which are the ones of before in their order, however they have changed.

        ``without``: entries that are left out; ``instead``: entries with the ones that take their places, which differ in
        nothing that the columns have; ``more``: tasks that came since, of no progress.
        """
        if not (without or instead or more):
            return replace(self, _machines=machines, devices_now=devices_now)
        table = RunningTable.of(self)
        row = {r.task.name: row for row, r in zip(self.rows.used.tolist(), self.entries, strict=True)}
        for r in without:
            table.drop(row[r.task.name])
        for before, after in instead:
            table.change(row[before.task.name], after)
        position = {m.name: i for i, m in enumerate(machines)} if more else {}
        for r in more:
            table.put(r, position[r.machine])
        return table.at(self._progress, machines, devices_now)

    @cached_property
    def columns(self) -> RunningColumns:
        """Their numbers, in the order of ``entries``."""
        return self.rows.columns._replace(progress=self.progress)

    @cached_property
    def progress(self) -> FloatArray:
        """[tasks] how far they are, in the order of ``entries``."""
        return self._progress.of(self.rows.used)

    @property
    def entries(self) -> Sequence[Running]:
        """The tasks in the order of the columns, of any progress."""
        return self.rows.entries

    def on(self, machines: Collection[str]) -> tuple[Running, ...]:
        """Those on some machines."""
        rows, here = self.rows.on(machines)
        progress = self._progress.of(np.array(rows, np.int64)).tolist()
        return tuple([r.at(done) for r, done in zip(here, progress, strict=True)])

    @cached_property
    def all(self) -> tuple[Running, ...]:
        """All of them."""
        order = np.argsort(self.rows.came, kind="stable")
        entries, progress = self.entries, self.progress[order].tolist()
        return tuple([entries[at].at(done) for at, done in zip(order.tolist(), progress, strict=True)])

    def __len__(self) -> int:
        return self.rows.count


class RunningTable:
    """What runs, by *rows*: small numbers that a task has while it runs, and another one may have later."""

    def __init__(self, catalogue: Catalogue) -> None:
        """Nothing runs."""
        self._catalogue = catalogue
        self._profile = {name: i for i, name in enumerate(catalogue.jobs)}
        self._class = {"": 0}
        self._class_names = [""]
        """The same in their order. Classes are added only, so that snapshots can share it."""
        self._entries = PagedColumns(_NO_TASK)
        """[rows] the tasks; None in rows that are free."""
        self._table = PagedColumns(_NO_NUMBERS)
        """[columns, rows], and in the last one when each task came, counted; -1 in rows that are free."""
        self._on: dict[str, tuple[int, ...]] = {}
        """Rows by machine, of those where tasks run; those first that came first."""
        self._free: list[int] = []
        self._count = 0
        """How many came in all."""
        self._there = 0
        self._shown: _Rows | None = None
        """What snapshots show since the last change."""
        self._log: ChangeLog[Running] = ChangeLog()

    @classmethod
    def of(cls, tasks: RunningTasks) -> RunningTable:
        """A table that goes on from what a snapshot shows, which stays as it is, as the other table does.

        A task that comes has a row that none had before: of it no progress is known.
        """
        table, rows = cls(tasks._catalogue), tasks.rows
        entries, numbers = rows.pages
        table._class_names = list(tasks.class_names)
        table._class = {name: i for i, name in enumerate(table._class_names)}
        table._entries = PagedColumns.of(entries, _NO_TASK)
        table._table = PagedColumns.of(numbers, _NO_NUMBERS)
        table._on = dict(rows.there)
        table._count = int(rows.came.max(initial=-1.0)) + 1
        table._there = rows.count
        return table

    def put(self, running: Running, machine: int) -> int:
        """A task starts to run; ``machine``: its position among the machines of the next snapshot. Its row."""
        self._part()
        if not self._free:
            first = len(self._entries)
            self._entries.widen()
            self._table.widen()
            self._free += range(len(self._entries) - 1, first - 1, -1)
        row = self._free.pop()
        self._fill(row, running, machine, self._count)
        self._on[running.machine] = (*self._on.get(running.machine, ()), row)
        self._count += 1
        self._there += 1
        return row

    def change(self, row: int, running: Running) -> None:
        """The task of a row is another one from now on, on the same machine."""
        self._part()
        self._log.went(self._entries.row(row))
        numbers = self._table.row(row)
        self._fill(row, running, numbers[0], numbers[-1])

    def drop(self, row: int) -> None:
        """The task of a row is gone."""
        self._part()
        self._there -= 1
        running = self._entries.row(row)
        name = running.machine
        self._on[name] = tuple([other for other in self._on[name] if other != row])
        if not self._on[name]:
            del self._on[name]
        self._log.went(running)
        self._entries.put(row, None)
        self._table.put(row, _NO_NUMBERS)
        self._free.append(row)

    def close_gap(self, machine: int) -> None:
        """The machine of a position, on which nothing runs, is gone; those after it move up."""
        self._part()
        self._table.close_gap(0, machine)

    def at(
        self, progress: Progress, machines: tuple[Machine, ...], devices_now: Mapping[str, DevicesNow]
    ) -> RunningTasks:
        """The tasks as they are now, and the devices that they leave."""
        if self._shown is None:
            columns = self._entries.look(), self._table.look()
            self._shown = _Rows(*columns, self._on, self._there)
        return RunningTasks(
            self._shown, progress, machines, self._catalogue, devices_now, self._class_names, self._log.mark()
        )

    def _fill(self, row: int, running: Running, machine: float, came: float) -> None:
        self._entries.put(row, running)
        run_class = _class_of(running.task)
        if run_class not in self._class:
            self._class[run_class] = len(self._class)
            self._class_names.append(run_class)
        kind = self._profile[running.task.profile], self._class[run_class]
        self._table.put(row, (machine, *kind, 0.0, *running.numbers, came))
        self._log.came(running)

    def _part(self) -> None:
        """Leave what snapshots show to them."""
        if self._shown is not None:
            self._on = self._on.copy()
            self._shown = None


def _columns(table: FloatArray) -> RunningColumns:
    machine, profile, run_class, *others = table
    return RunningColumns(*(column.astype(np.int64) for column in (machine, profile, run_class)), *others)


def _class_of(task: Task) -> str:
    """The class by which a running task is forecast."""
    return "" if task.endless else task.run_class
