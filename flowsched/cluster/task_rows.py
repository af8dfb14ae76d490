"""Tasks by row: what each is, whether it waits or runs, and where. Rows of tasks that are gone are given to others."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from flowsched.cluster.machine_arrays import longer
from flowsched.cluster.task_kernels import delist, enlist
from flowsched.errors import EventError
from flowsched.support.arrays import FloatArray, IntArray

FREE, PENDING, RUNNING = 0, 1, 2
_SAID = {FREE: "is not there", PENDING: "waits", RUNNING: "runs already"}
_OWN = ("task_class", "end_s", "sequence")
"""Arrays by task that rows which follow others have of their own."""
_BY_TASK = ("state", "machine", "created_s", "revision", "_pending", "_position", "_scratch", *_OWN)
"""Arrays by task, which grow together."""


class TaskRows:
    """See the module. What a task takes of its machine is written by ``StateRows``, and by ``ClusterRows`` of no state."""

    def __init__(self) -> None:
        """No tasks yet."""
        self.state: NDArray[np.int8] = np.zeros(0, dtype=np.int8)
        self.task_class: IntArray = np.zeros(0, dtype=np.int64)
        """Number of what a task is."""
        self.machine: IntArray = np.zeros(0, dtype=np.int64)
        """Row of the machine that a running task is on, else -1."""
        self.created_s: FloatArray = np.zeros(0)
        self.end_s: FloatArray = np.zeros(0)
        """When a running task is predicted to end; infinite where that is unknown."""
        self.sequence: IntArray = np.zeros(0, dtype=np.int64)
        """Order of arrival."""
        self.revision: IntArray = np.zeros(0, dtype=np.int64)
        """The number of reads, by any reader, before the last change; see :meth:`changed_since`."""
        self._reads = 1
        self._task_names: dict[int, str] = {}
        self._task_row: dict[str, int] = {}
        self._empty_tasks: IntArray = np.zeros(0, dtype=np.int64)
        self._empty_task_count = 0
        self._pending: IntArray = np.zeros(0, dtype=np.int64)
        self._position: IntArray = np.zeros(0, dtype=np.int64)
        self._scratch: IntArray = np.zeros(0, dtype=np.int64)
        self._pending_count = np.zeros(1, dtype=np.int64)
        self._arrivals = 0

    @property
    def count(self) -> int:
        """Tasks that are there."""
        return len(self.state) - self._empty_task_count

    @property
    def gone(self) -> int:
        """Tasks that came and left again."""
        return self._arrivals - self.count

    def __contains__(self, name: str) -> bool:
        return name in self._task_row

    def row(self, name: str) -> int:
        """Row of a task by its name. Raises ``EventError`` while it is not there."""
        try:
            return self._task_row[name]
        except KeyError:
            raise EventError(f"task {name} is not there") from None

    def rows_of(self, names: Iterable[str]) -> IntArray:
        """Rows of some tasks. Raises ``KeyError`` while one is not there."""
        return np.array([self._task_row[name] for name in names], dtype=np.int64)

    def name(self, row: int) -> str:
        """Name of a task; its number of arrival where it has none."""
        return self._task_names.get(row) or f"task-{int(self.sequence[row])}"

    def waiting(self) -> IntArray:
        """Tasks that wait, in the order in which they came."""
        pending = self._pending[: int(self._pending_count[0])]
        return self.in_order(pending)

    def running_on(self, row: int) -> IntArray:
        """Tasks that run on a machine, in the order in which they came."""
        there = np.flatnonzero((self.state == RUNNING) & (self.machine == row))
        return self.in_order(there)

    def in_order(self, tasks: IntArray) -> IntArray:
        """Tasks in the order in which they came: by their time, then by the order in which they were told."""
        found: IntArray = tasks[np.lexsort((self.sequence[tasks], self.created_s[tasks]))]
        return found

    def age_s(self, tasks: IntArray, now_s: float) -> FloatArray:
        """Seconds since each of the tasks came, in whole microseconds, as :meth:`Snapshot.age_s` has them."""
        age_s: FloatArray = np.round(now_s - self.created_s[tasks], 6)
        return age_s

    def copy(self) -> TaskRows:
        """Independent tasks in the same state, without names: rows and ``sequence`` say which is which."""
        twin = copy.copy(self)
        for name, value in vars(self).items():
            if isinstance(value, np.ndarray):
                setattr(twin, name, value.copy())
        twin._task_names, twin._task_row = {}, {}
        return twin

    def changed_since(self, read: int) -> tuple[IntArray, int]:
        """Rows in which a task came, started, stopped or left since an earlier read, ascending, and the number of this one;
        0 was before all.
        """
        self._reads += 1
        return np.flatnonzero(self.revision > read), self._reads - 1

    def follow(self, other: TaskRows) -> None:
        """Have another's tasks, as they are whenever this is called again; classes, ends and order are this one's own."""
        more = len(other.state) - len(self.task_class)
        own = {name: longer(getattr(self, name), more) for name in _OWN}
        vars(self).update(vars(other))
        vars(self).update(own)

    # Events, for what books tasks on machines

    def follow_machines(self, before: IntArray) -> None:
        """Machines are in other rows now. ``before``: by row, the one where its machine was; -1 for rows without one."""
        there = np.flatnonzero(before >= 0)
        now = np.full(int(before.max(initial=-1)) + 1, -1, dtype=np.int64)
        now[before[there]] = there
        running = np.flatnonzero(self.state == RUNNING)
        self.machine[running] = now[self.machine[running]]

    def add(self, classes: IntArray, created_s: FloatArray, names: Sequence[str] | None = None) -> IntArray:
        """Tasks come and wait; their rows. Raises ``EventError`` for a name that is there already."""
        if names is not None:
            if len(set(names)) < len(names):
                raise EventError("task names repeat")
            if not self._task_row.keys().isdisjoint(names):
                raise EventError(f"task {next(n for n in names if n in self._task_row)} is there already")
        count = len(classes)
        if self._empty_task_count < count:
            self._grow_tasks(count - self._empty_task_count)
        self._empty_task_count -= count
        rows = self._empty_tasks[self._empty_task_count : self._empty_task_count + count][::-1].copy()
        self.task_class[rows] = classes
        self.created_s[rows] = created_s
        self.end_s[rows] = np.inf
        self.machine[rows] = -1
        self.sequence[rows] = np.arange(self._arrivals, self._arrivals + count)
        self._arrivals += count
        self.state[rows] = PENDING
        self.revision[rows] = self._reads
        enlist(rows, self._pending, self._position, self._pending_count)
        if names is not None:
            self._task_names.update(zip(rows.tolist(), names, strict=True))
            self._task_row.update(zip(names, rows.tolist(), strict=True))
        return rows

    def start(self, tasks: IntArray, machines: IntArray, end_s: FloatArray | None = None) -> None:
        """Waiting tasks run from now on."""
        delist(tasks, self._pending, self._position, self._pending_count)
        self.state[tasks] = RUNNING
        self.revision[tasks] = self._reads
        self.machine[tasks] = machines
        self.end_s[tasks] = np.inf if end_s is None else end_s

    def stop(self, tasks: IntArray) -> None:
        """Running tasks wait again, as old as they were."""
        self.state[tasks] = PENDING
        self.revision[tasks] = self._reads
        self.machine[tasks] = -1
        self.end_s[tasks] = np.inf
        enlist(tasks, self._pending, self._position, self._pending_count)

    def remove(self, tasks: IntArray) -> None:
        """Tasks are gone."""
        delist(tasks[self.state[tasks] == PENDING], self._pending, self._position, self._pending_count)
        self.state[tasks] = FREE
        self.revision[tasks] = self._reads
        self.machine[tasks] = -1
        self._empty_tasks[self._empty_task_count : self._empty_task_count + len(tasks)] = tasks
        self._empty_task_count += len(tasks)
        if self._task_names:
            for row in tasks.tolist():
                name = self._task_names.pop(row, None)
                if name is not None:
                    del self._task_row[name]

    def check(self, tasks: IntArray, state: int) -> None:
        """Raise ``EventError`` for a task that is in another state, or stands twice."""
        if len(tasks) and not (self.state[tasks] == state).all():
            wrong = int(tasks[self.state[tasks] != state][0])
            raise EventError(f"task {self.name(wrong)} {_SAID[int(self.state[wrong])]}")
        self.check_once(tasks)

    def check_once(self, tasks: IntArray) -> None:
        """Raise ``EventError`` for a task that stands twice."""
        order = np.arange(len(tasks))
        self._scratch[tasks] = order
        twice = np.flatnonzero(self._scratch[tasks] != order)
        if len(twice):
            raise EventError(f"task {self.name(int(tasks[twice[0]]))} stands twice in one event; name each once")

    def _grow_tasks(self, least: int) -> None:
        before = len(self.state)
        more = max(64, before, least)
        for array in _BY_TASK:
            setattr(self, array, longer(getattr(self, array), more))
        self.machine[before:] = -1
        self._empty_tasks = longer(self._empty_tasks, more)
        kept = self._empty_tasks[: self._empty_task_count].copy()
        self._empty_tasks[:more] = np.arange(before + more - 1, before - 1, -1)
        self._empty_tasks[more : more + len(kept)] = kept
        self._empty_task_count += more
