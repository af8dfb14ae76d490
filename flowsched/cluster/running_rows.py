"""The running tasks of a cluster in rows of arrays that events change, and what a snapshot shows of them.

A round of a large cluster looks at few of the tasks that run, and needs numbers alone of the others: so they are there as
arrays. What a round derives from the tasks of a machine is kept with the machine until one of them comes or goes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import NamedTuple

import numpy as np

from flowsched.cluster.change_log import ChangeLog, LogMark
from flowsched.cluster.snapshot import Running
from flowsched.cluster.tasks_there import NOTHING_THERE, TasksThere
from flowsched.support.arrays import FloatArray, IntArray
from flowsched_models.catalogue import Catalogue
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
    start_s: FloatArray


_NO_NUMBERS = np.append(np.zeros(len(RunningColumns._fields)), -1.0)


class SeenRows:
    """What runs between two changes, of which snapshots may show different progress; nothing changes it any more."""

    def __init__(
        self,
        catalogue: Catalogue,
        pages: tuple[SeenColumns[np.object_], SeenColumns[np.float64]],
        there: Mapping[str, TasksThere],
        count: int,
        class_names: Sequence[str],
        mark: LogMark[Running],
    ) -> None:
        """As :class:`RunningRows` has them. ``count``: how many tasks there are; ``mark``: all that came and went so far."""
        self.catalogue, self.pages, self.there, self.count = catalogue, pages, there, count
        self.class_names, self.mark = class_names, mark

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

    def columns(self, rows: IntArray) -> RunningColumns:
        """The numbers of the tasks in some rows, of any progress."""
        machine, profile, run_class, *others = self.pages[1].all[:-1, rows]
        return RunningColumns(*(column.astype(np.int64) for column in (machine, profile, run_class)), *others)


class RunningRows:
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
        self._on: dict[str, TasksThere] = {}
        """By machine, of those where tasks run."""
        self._free: list[int] = []
        self._count = 0
        """How many came in all."""
        self._there = 0
        self._shown: SeenRows | None = None
        """What snapshots show since the last change."""
        self._log: ChangeLog[Running] = ChangeLog()

    @classmethod
    def of(cls, seen: SeenRows) -> RunningRows:
        """Rows that go on from what a snapshot shows, which stays as it is, as the other rows do.

        A task that comes has a row that none had before: of it no progress is known.
        """
        found = cls(seen.catalogue)
        entries, numbers = seen.pages
        found._class_names = list(seen.class_names)
        found._class = {name: i for i, name in enumerate(found._class_names)}
        found._entries = PagedColumns.of(entries, _NO_TASK)
        found._table = PagedColumns.of(numbers, _NO_NUMBERS)
        found._on = dict(seen.there)
        found._count = int(seen.came.max(initial=-1.0)) + 1
        found._there = seen.count
        return found

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
        self._on[running.machine] = self._on.get(running.machine, NOTHING_THERE).with_task(row, running)
        self._count += 1
        self._there += 1
        return row

    def change(self, row: int, running: Running) -> None:
        """The task of a row is another one from now on, on the same machine."""
        self._part()
        self._log.went(self._entries.row(row))
        self._on[running.machine] = self._on[running.machine].instead(row, running)
        numbers = self._table.row(row)
        self._fill(row, running, numbers[0], numbers[-1])

    def drop(self, row: int) -> None:
        """The task of a row is gone."""
        self._part()
        self._there -= 1
        running = self._entries.row(row)
        name = running.machine
        self._on[name] = self._on[name].without(row)
        if not self._on[name].rows:
            del self._on[name]
        self._log.went(running)
        self._entries.put(row, None)
        self._table.put(row, _NO_NUMBERS)
        self._free.append(row)

    def close_gap(self, machine: int) -> None:
        """The machine of a position, on which nothing runs, is gone; those after it move up."""
        self._part()
        self._table.close_gap(0, machine)

    def mark(self) -> LogMark[Running]:
        """All that came and went until now."""
        return self._log.mark()

    def look(self) -> SeenRows:
        """All as it is now."""
        if self._shown is None:
            pages = self._entries.look(), self._table.look()
            self._shown = SeenRows(self._catalogue, pages, self._on, self._there, self._class_names, self._log.mark())
        return self._shown

    def _fill(self, row: int, running: Running, machine: float, came: float) -> None:
        self._entries.put(row, running)
        run_class = "" if running.task.endless else running.task.run_class
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
