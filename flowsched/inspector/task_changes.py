"""Where tasks stand in two records, and which of them stand elsewhere."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from flowsched.cluster.snapshot_dump import milli_of
from flowsched.inspector.record_view import RecordView
from flowsched.inspector.running_changes import changes_of
from flowsched_models.quantity import count_cores, format_cores, parse_cores

EVEN = 5e-13
"""Costs that differ by less are told as equal: sums of the same numbers in another order."""


PLACED, RUNNING, WAITING = "placed", "running", "waiting"
"""What a record says of a task: bound in this round, bound before, or left."""


@dataclass(frozen=True)
class Stand:
    """Where a task stands in one record."""

    state: str
    """``placed``, ``running`` or ``waiting``."""
    machine: str | None
    width_milli: int | None
    cost: float | None
    terms: Mapping[str, float] = field(default_factory=dict)
    reason: str | None = None
    """Why it waits."""
    cores: tuple[int, ...] | None = None
    """Virtual CPUs that it is given; None where the record does not say."""

    @property
    def place(self) -> str:
        """``m1, 2 cores``."""
        width = "" if self.width_milli is None else f", {count_cores(self.width_milli)}"
        return f"{self.machine}{width}"


@dataclass(frozen=True)
class TaskChange:
    """A task that stands elsewhere; None where a record does not have it."""

    task: str
    """Its title, or its name."""
    before: Stand | None
    after: Stand | None

    @property
    def cost_delta(self) -> float | None:
        """Cost after minus cost before, where both are known."""
        costs = [None if s is None else s.cost for s in (self.before, self.after)]
        return None if costs[0] is None or costs[1] is None else costs[1] - costs[0]

    def line(self) -> str:
        """One sentence."""
        before, after = self.before, self.after
        if before is None:
            assert after is not None, "a change has a side"
            return f"{self.task}: {_stands(after)}"
        if after is None:
            return f"{self.task}: it {_stood(before)}"
        if before.machine is not None and after.machine is not None:
            ran = " (it ran there)" if before.state == RUNNING else ""
            cores = [f" on {_on_cores(s)}" if _other_cores(before, after) else "" for s in (before, after)]
            return f"{self.task}: {before.place}{cores[0]}{ran} -> {after.place}{cores[1]}{self._price()}"
        if after.machine is not None:
            return f"{self.task}: on {after.place}{self._price()}; it waited: {before.reason}"
        if before.machine is not None:
            return f"{self.task}: {after.reason}{self._price()}; it {_stood(before)}"
        return f"{self.task}: {after.reason}{self._price()}; before: {before.reason}"

    def _price(self) -> str:
        delta = self.cost_delta
        if delta is None or self.before is None or self.after is None:
            cost = None if self.after is None else self.after.cost
            return "" if cost is None else f" (cost {cost:.4g})"
        if abs(delta) <= EVEN:
            return f" (cost {self.after.cost:.4g})"
        return f" (cost {self.before.cost:.4g} -> {self.after.cost:.4g}, {delta:+.4g})"


def key_of_tasks(recorded: RecordView) -> Callable[[str], str]:
    """What a task is matched by: its title, unless there are two of it; else its name."""
    twice = Counter(recorded.titles.values())

    def key(task: str) -> str:
        title = recorded.title(task)
        return title if twice[title] < 2 else task

    return key


def classes_of(recorded: RecordView) -> dict[str, tuple[int, str]]:
    """Part and class of every task that was decided on."""
    key = key_of_tasks(recorded)
    return {
        key(task): (part.index, cls.name) for part in recorded.parts for cls in part.classes for task in cls.members
    }


def without_trades(
    before: Mapping[str, Stand],
    after: Mapping[str, Stand],
    classes_before: Mapping[str, tuple[int, str]],
    classes_after: Mapping[str, tuple[int, str]],
) -> tuple[dict[str, Stand], int]:
    """Who stands where after, tasks of a class put where one of them was before as far as that goes; and how many that is.

    Nothing tells them apart: that this one is here and that one there, and not the other way round, means nothing.
    """
    alike: dict[tuple[object, object], list[str]] = {}
    for task in before:
        if task in classes_before and task in classes_after and _site(before[task]) != _site(after[task]):
            alike.setdefault((classes_before[task], classes_after[task]), []).append(task)
    settled = dict(after)
    traded = 0
    for tasks in alike.values():
        # Those whose place is taken again stay; the others share what is left, in their order.
        places: dict[object, list[Stand]] = {}
        for task in tasks:
            places.setdefault(_site(after[task]), []).append(after[task])
        homeless = []
        for task in tasks:
            here = places.get(_site(before[task]))
            if here:
                settled[task] = here.pop(0)
                traded += 1
            else:
                homeless.append(task)
        left = [stand for stands in places.values() for stand in stands]
        settled.update(zip(homeless, left, strict=True))
    return settled, traded


def _site(stand: Stand) -> tuple[str | None, int | None]:
    return stand.machine, stand.width_milli


def stands_of(recorded: RecordView) -> dict[str, Stand]:
    """Every task by its title; those that were decided on before those that run. With what was preempted and moved."""
    key = key_of_tasks(recorded)
    stands: dict[str, Stand] = {}
    for part in recorded.parts:
        for p in part.placements:
            stands[key(p.task)] = Stand(PLACED, p.machine, p.width_milli, p.cost, p.terms, cores=p.cores)
        for w in part.waiting:
            terms = w.terms or ({} if w.cost is None else {"waiting": w.cost})
            stands[key(w.task)] = Stand(WAITING, None, None, w.cost, terms, w.reason)
    for part in recorded.parts:
        for r in part.running:
            stand = Stand(RUNNING, r["machine"], milli_of(r["width"]), None, cores=parse_cores(r["cores"]))
            stands.setdefault(key(r["task"]["name"]), stand)
    changes = changes_of(recorded)
    for placed in changes["let_in"]:
        where = placed["machine"], placed["width_milli"], placed["cost"], placed["terms"]
        stands[key(placed["task"])] = Stand(PLACED, *where, cores=tuple(placed["cores"]))
    for back in changes["taken_back"]:
        reason = f"{key(back['room_for'])} has a higher priority and starts in its place on {back['machine']}"
        stands[key(back["task"])] = Stand(WAITING, None, None, None, reason=reason)
    for left in changes["preemptions"]:
        reason = f"it was preempted for {key(left['room_for'])}"
        stands[key(left["task"])] = Stand(WAITING, None, None, left["cost"], {"preemption": left["cost"]}, reason)
    for move in changes["moves"]:
        here = Stand(RUNNING, move["machine"], move["width_milli"], None, cores=tuple(move["cores"]))
        stands[key(move["task"])] = here
    return stands


def kind_of_change(change: TaskChange) -> str | None:
    """The kind of a change, as :class:`flowsched.inspector.difference.Difference` names it; None where nothing changed."""
    before, after = change.before, change.after
    if before is None:
        return "came"
    if after is None:
        return "gone"
    if before.machine is None or after.machine is None:
        if before.machine == after.machine:
            return "waits_otherwise" if before.reason != after.reason else "dearer" if _repriced(change) else None
        return "unplaced" if after.machine is None else "placed"
    if (before.machine, before.width_milli) != (after.machine, after.width_milli) or _other_cores(before, after):
        return "moved"
    return "dearer" if _repriced(change) else None


def _other_cores(before: Stand, after: Stand) -> bool:
    """Whether two stands on one machine have other cores there."""
    known = before.cores is not None and after.cores is not None
    return known and before.machine == after.machine and before.cores != after.cores


def _on_cores(stand: Stand) -> str:
    cores = stand.cores or ()
    return f"core{'' if len(cores) == 1 else 's'} {format_cores(cores)}"


def _repriced(change: TaskChange) -> bool:
    return bool(change.cost_delta)


def _stands(stand: Stand) -> str:
    cost = "" if stand.cost is None else f" (cost {stand.cost:.4g})"
    if stand.machine is None:
        return f"waits: {stand.reason}{cost}"
    return f"{'runs on' if stand.state == RUNNING else 'on'} {stand.place}{cost}"


def _stood(stand: Stand) -> str:
    if stand.machine is None:
        return f"waited: {stand.reason}"
    return f"{'ran' if stand.state == RUNNING else 'was'} on {stand.place}"
