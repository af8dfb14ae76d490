"""What a snapshot shows of the rows of running tasks.

The tasks of a snapshot are made when they are asked for, and their numbers are there as arrays. Those of a snapshot that no
state made get rows when a round begins.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from flowsched.cluster.change_log import LogMark
from flowsched.cluster.running_rows import RunningColumns, RunningRows, SeenRows
from flowsched.cluster.snapshot import Machine, Running, Snapshot
from flowsched.cluster.still_running import class_run_lengths
from flowsched.cluster.tasks_there import TasksThere
from flowsched.gpu.devices import DevicesNow
from flowsched.support.arrays import BoolArray, FloatArray, IntArray
from flowsched.support.late_sequence import LateSequence
from flowsched_models.estimated_executions import Progress


@dataclass(eq=False, repr=False)
class RunningTasks(LateSequence[Running]):
    """The tasks that run at one moment, in the order in which they came; each is made when it is asked for."""

    rows: SeenRows
    _progress: Progress
    """By row."""
    _machines: tuple[Machine, ...]
    devices_now: Mapping[str, DevicesNow]
    """By machine, of those with GPUs."""

    @property
    def class_names(self) -> Sequence[str]:
        """Classes by their position in the columns, more may follow; the first is that of a task without one, or without an
        end.
        """
        return self.rows.class_names

    @property
    def mark(self) -> LogMark[Running]:
        """All that came and went until then."""
        return self.rows.mark

    @property
    def there(self) -> Mapping[str, TasksThere]:
        """What runs on each machine where anything does, of any progress."""
        return self.rows.there

    def belong_to(self, snapshot: Snapshot) -> bool:
        """Whether the columns are about a snapshot's machines and profiles."""
        return self._machines is snapshot.machines and self.rows.catalogue is snapshot.catalogue

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
        table = RunningRows.of(self.rows)
        row = {r.task.name: row for row, r in zip(self.rows.used.tolist(), self.entries, strict=True)}
        position = {m.name: i for i, m in enumerate(machines)} if more else {}
        # First of all: rows that others leave have their progress.
        for r in more:
            table.put(r, position[r.machine])
        for r in without:
            table.drop(row[r.task.name])
        for before, after in instead:
            table.change(row[before.task.name], after)
        return RunningTasks(table.look(), self._progress, machines, devices_now)

    @cached_property
    def columns(self) -> RunningColumns:
        """Their numbers, in the order of ``entries``."""
        return self.rows.columns(self.rows.used)._replace(progress=self.progress)

    def columns_at(self, rows: IntArray) -> RunningColumns:
        """The numbers of the tasks in some rows."""
        return self.rows.columns(rows)._replace(progress=self.progress_at(rows))

    def progress_at(self, rows: IntArray) -> FloatArray:
        """[rows] how far the tasks in some rows are."""
        return self._progress.of(rows)

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
        there = [self.there[name] for name in machines if name in self.there]
        rows = np.array([row for here in there for row in here.rows], np.int64)
        tasks, progress = [r for here in there for r in here.tasks], self.progress_at(rows).tolist()
        order = np.argsort(self.rows.pages[1].all[-1, rows], kind="stable").tolist()
        return tuple([tasks[at].at(progress[at]) for at in order])

    @cached_property
    def all(self) -> tuple[Running, ...]:
        """All of them."""
        order = np.argsort(self.rows.came, kind="stable")
        entries, progress = self.entries, self.progress[order].tolist()
        return tuple([entries[at].at(done) for at, done in zip(order.tolist(), progress, strict=True)])

    def __len__(self) -> int:
        return self.rows.count


def in_rows(snapshot: Snapshot) -> RunningTasks:
    """What runs in a snapshot, in rows: those of the state that made it, else new ones."""
    running = snapshot.running
    if isinstance(running, RunningTasks) and running.belong_to(snapshot):
        return running
    rows, position = RunningRows(snapshot.catalogue), {m.name: i for i, m in enumerate(snapshot.machines)}
    progress = {rows.put(r, position[r.machine]): r.progress for r in running}
    return RunningTasks(rows.look(), Progress.given(progress), snapshot.machines, snapshot.devices_now())


def with_rows(snapshot: Snapshot) -> Snapshot:
    """The same snapshot, what runs in rows; itself where it is so already."""
    running = in_rows(snapshot)
    return snapshot if running is snapshot.running else replace(snapshot, running=running)


def running_on(snapshot: Snapshot, machines: Collection[str]) -> tuple[Running, ...]:
    """What runs on some machines, in the snapshot's order."""
    running = snapshot.running
    if isinstance(running, RunningTasks) and running.belong_to(snapshot):
        return running.on(machines)
    return tuple([r for r in running if r.machine in machines])


def entries_of(running: Sequence[Running]) -> Sequence[Running]:
    """What runs, in any order and of any progress: to count what it takes, without making each task anew."""
    return running.entries if isinstance(running, RunningTasks) else running


def lengths(snapshot: Snapshot, columns: RunningColumns, type_of: IntArray, types: Sequence[str]) -> FloatArray:
    """[tasks] estimated over forecast run time of each, given that it still runs; 1 where it has no end.

    ``type_of`` [tasks]: position of its machine's type in ``types``.
    """
    found, others = np.ones(len(columns.progress)), np.ones(len(columns.progress), np.bool_)
    if snapshot.learnt_run_times.in_use:
        others = ~_put_learnt_lengths(found, snapshot, columns, type_of, types)
    if snapshot.run_time_errors is not None and others.any():
        errors = np.array([profile.error for profile in snapshot.catalogue.jobs.values()])[columns.profile[others]]
        found[others] = snapshot.run_time_errors.lengths(columns.progress[others], errors)
    return np.where(columns.endless > 0.0, 1.0, found)


def _put_learnt_lengths(
    found: FloatArray, snapshot: Snapshot, columns: RunningColumns, type_of: IntArray, types: Sequence[str]
) -> BoolArray:
    """Into ``found`` [tasks] those of classes with completions; which ones these are."""
    names = in_rows(snapshot).class_names
    kind_of = columns.run_class * len(types) + type_of
    kinds = np.flatnonzero(np.bincount(kind_of))
    learnt = [snapshot.learnt_run_times.of(names[k // len(types)], types[k % len(types)]) for k in kinds.tolist()]
    numbers = [(0.0, 0.0, 0.0, 0.0) if t is None else (t.factor, t.spread, t.ends, t.squares) for t in learnt]
    rows = np.array(numbers).reshape(-1, 4)[np.searchsorted(kinds, kind_of)]
    known: BoolArray = rows[:, 0] > 0.0
    factors, spreads, ends, squares = rows[known].T.copy()
    forecast = columns.factor[known]
    done = columns.progress[known] * forecast / factors
    lengths_of = np.empty(len(done))
    class_run_lengths(done, spreads, ends, squares, lengths_of)
    found[known] = factors * lengths_of / forecast
    return known
