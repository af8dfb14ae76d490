"""Gangs: task groups of which several tasks have to start together, or none does."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sized
from dataclasses import dataclass
from typing import Generic, TypeVar

from flowsched.relations.relation import TaskGroup

Members = TypeVar("Members", bound=Sized)


@dataclass(frozen=True, eq=False)
class Gang(Generic[Members]):
    """The waiting part of a task group that does not run yet, or not in full."""

    group: TaskGroup
    running: int
    """How many of the group run already."""
    members: Members
    """Tasks that wait, as a round numbers them."""

    @property
    def needed(self) -> int:
        """How many have to start together, beside those that run."""
        return self.group.minimum - self.running

    @property
    def complete(self) -> bool:
        """Whether enough of them are here."""
        return len(self.members) >= self.needed

    def expired(self, now_s: float) -> bool:
        """Whether it has given up: it is tried again, and nothing is kept free for it."""
        return self.group.deadline_s is not None and now_s > self.group.deadline_s

    def why_all_wait(self, placeable: int, now_s: float, searched: bool = True) -> str:
        """A sentence with the numbers; ``placeable``: how many could start at most, if all assignments were ``searched``."""
        group = self.group
        if self.complete:
            text = f"group {group.name}: {self.running + placeable} of {group.minimum} could be placed"
            if not searched:
                text += " (not all assignments were searched; more may fit)"
        else:
            here = self.running + len(self.members)
            text = f"group {group.name}: {here} of {group.minimum} are here"
        if self.expired(now_s):
            text += (
                f"; its deadline, {group.deadline_s:g} s, has passed: given up for this round, tried again in the next"
            )
        return text


def gang_priority(members: Iterable[int], own: int | None = None) -> int:
    """The priority that all waiting members of a gang are served with, given theirs: its own where it has one, as a PodGroup
    of Kubernetes may; else the highest of theirs.

    None starts without the others, so with any lower one a member would wait behind tasks of lower priority than its own.
    """
    return max(members) if own is None else own


def gangs_of(
    groups: Iterable[TaskGroup], running: Iterable[str | None], waiting: Iterable[str | None]
) -> list[Gang[tuple[int, ...]]]:
    """The gangs among waiting tasks, in the order of ``groups``; members are positions in ``waiting``.

    ``running``, ``waiting``: the name of each task's group, None without one.
    """
    members: dict[str, list[int]] = {}
    for t, group in enumerate(waiting):
        if group is not None:
            members.setdefault(group, []).append(t)
    if not members:
        return []
    there = Counter(running)
    gangs = [Gang(g, there[g.name], tuple(members[g.name])) for g in groups if g.name in members]
    return [gang for gang in gangs if gang.needed > 0]
