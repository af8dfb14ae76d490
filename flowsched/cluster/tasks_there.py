"""What runs on one machine, and what follows from that for as long as nothing comes or goes there."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from typing import Any, TypeVar

from flowsched.cluster.snapshot import Running, Task

Order = tuple[Any, Any, Any]
"""All that a task that runs is to a group of machines: its content, its progress, and how it runs."""
Answer = TypeVar("Answer")


@dataclass(frozen=True, eq=False)
class TasksThere:
    """The tasks that run on a machine, of any progress, and their rows. Replaced where one comes or goes."""

    rows: tuple[int, ...] = ()
    tasks: tuple[Running, ...] = ()
    _kept: dict[str, tuple[tuple[object, ...], Any]] = field(init=False, default_factory=dict, repr=False)

    def with_task(self, row: int, task: Running) -> TasksThere:
        """The same after a task has come."""
        return TasksThere((*self.rows, row), (*self.tasks, task))

    def without(self, row: int) -> TasksThere:
        """The same after the task of a row is gone."""
        at = self.rows.index(row)
        return TasksThere(self.rows[:at] + self.rows[at + 1 :], self.tasks[:at] + self.tasks[at + 1 :])

    def instead(self, row: int, task: Running) -> TasksThere:
        """The same where the task of a row is another one."""
        at = self.rows.index(row)
        return TasksThere(self.rows, (*self.tasks[:at], task, *self.tasks[at + 1 :]))

    def kept(self, what: str, of: tuple[object, ...], make: Callable[[], Answer]) -> Answer:
        """What ``make`` answered as long as it is asked ``of`` the very same objects; of each ``what`` the last answer."""
        known = self._kept.get(what)
        if known is None or any(a is not b for a, b in zip(known[0], of, strict=True)):
            known = self._kept[what] = of, make()
        found: Answer = known[1]
        return found

    @cached_property
    def width_milli(self) -> int:
        """CPU that they have together."""
        return sum(r.width_milli for r in self.tasks)

    @cached_property
    def memory_mib(self) -> int:
        """Memory that they have together."""
        return sum(r.task.memory_mib for r in self.tasks)

    @cached_property
    def resources(self) -> tuple[tuple[tuple[str, int], ...], ...]:
        """Further resources of those that have any."""
        return tuple([r.task.resources for r in self.tasks if r.task.resources])

    @cached_property
    def endless(self) -> tuple[Running, ...]:
        """Those that have no end."""
        return tuple([r for r in self.tasks if r.task.endless])

    @cached_property
    def goal_contents(self) -> tuple[tuple[Hashable, str], ...]:
        """What the goal and the importance of each of them depend on but what is learnt of its class, and that class; none
        for one without an end.
        """
        return tuple([(_goal_content(r.task), "" if r.task.endless else r.task.run_class) for r in self.tasks])

    @cached_property
    def run_classes(self) -> tuple[str, ...]:
        """These classes, each once."""
        return tuple(dict.fromkeys([run_class for _, run_class in self.goal_contents if run_class]))

    @cached_property
    def lead(self) -> int:
        """The row of one whose content is the least."""
        return self.rows[self._by_content[0]]

    @cached_property
    def lead_content(self) -> tuple[Any, ...]:
        """That content."""
        return _content(self.tasks[self._by_content[0]].task)

    @cached_property
    def lasting_order(self) -> TasksThere | None:
        """The same in the order of a group's residents, where contents alone decide it; None where progress does too."""
        in_order = [_content(self.tasks[at].task) for at in self._by_content]
        return self._at(self._by_content) if all(a != b for a, b in pairwise(in_order)) else None

    def in_order(self, progress: Sequence[float], now_s: float) -> TasksThere:
        """The same in the order of a group's residents; ``progress`` is that of each of ``tasks``."""
        if self.lasting_order is not None:
            return self.lasting_order
        orders = [order_of(r, done, now_s) for r, done in zip(self.tasks, progress, strict=True)]
        return self._at(sorted(range(len(orders)), key=orders.__getitem__))

    def _at(self, positions: Sequence[int]) -> TasksThere:
        return TasksThere(tuple([self.rows[at] for at in positions]), tuple([self.tasks[at] for at in positions]))

    @cached_property
    def _by_content(self) -> list[int]:
        contents = [_content(r.task) for r in self.tasks]
        return sorted(range(len(contents)), key=contents.__getitem__)


NOTHING_THERE = TasksThere()


def order_of(running: Running, progress: float, now_s: float) -> Order:
    """All that a task that runs, of this progress, is to a group of machines; by it residents are put in order."""
    how = running.width_milli, running.threads, running.cores, running.remote
    if running.task.endless:
        # When it came and how far it is estimated to be tell machines apart that are alike from now on.
        return _content(running.task), 0.0, (max(running.start_s, now_s), *how)
    return _content(running.task), progress, (running.start_s, *how, running.factor)


def _goal_content(task: Task) -> Hashable:
    return task.profile, task.scale, task.threads, task.goal_s, task.weight, task.endless, task.gpus


def _content(task: Task) -> tuple[Any, ...]:
    return (task.timeless if task.endless else task).content
