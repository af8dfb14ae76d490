"""A search's cluster once everything that ends has ended: what a task group finds there, and how long runs take there."""

from __future__ import annotations

from dataclasses import dataclass, replace
from weakref import WeakKeyDictionary

from flowsched.compaction import View, compact
from flowsched.gang import Gang, fit_now
from flowsched.inspector.reopened import Reopened
from flowsched.outlook import Outlook
from flowsched.policies.flow import FlowPolicy
from flowsched.policies.policy import Prices
from flowsched.reservation import settle_dues
from flowsched.snapshot import Snapshot
from flowsched_models.runtime import HostFactory


@dataclass(frozen=True, eq=False)
class Emptied:
    """Machines that hold only services and tasks without an end, and the tasks that wait."""

    view: View
    outlook: Outlook
    prices: Prices


_EMPTIED: WeakKeyDictionary[Reopened, Emptied] = WeakKeyDictionary()
"""One for each search: it is the same for all of its tasks."""
_ROOM: WeakKeyDictionary[Reopened, dict[str, int]] = WeakKeyDictionary()
_RESERVED: WeakKeyDictionary[Reopened, dict[str, bool]] = WeakKeyDictionary()
"""What is known of a search's task groups, by name: all members ask the same."""


def emptied(opened: Reopened) -> Emptied:
    """The cluster of a search without what ends, at the time of its round."""
    found = _EMPTIED.get(opened)
    if found is None:
        snapshot = opened.search.view.snapshot
        stay = tuple(r for r in snapshot.running if r.task.endless)
        found = _EMPTIED[opened] = _open(opened, replace(_patient(snapshot), running=stay))
    return found


def room_for(opened: Reopened, gang: Gang) -> int:
    """How many of those who have to start together the scheduler could start at once in the emptied cluster."""
    known = _ROOM.setdefault(opened, {})
    if gang.group.name not in known:
        known[gang.group.name] = _room(opened, gang)
    return known[gang.group.name]


def can_be_reserved(opened: Reopened, gang: Gang) -> bool:
    """Whether a task group, if it were due and first, would start now or get a reservation for each who has to start."""
    known = _RESERVED.setdefault(opened, {})
    if gang.group.name not in known:
        known[gang.group.name] = _can_be_reserved(opened, gang)
    return known[gang.group.name]


def _room(opened: Reopened, gang: Gang) -> int:
    world = emptied(opened)
    number = {task.name: t for t, task in enumerate(world.view.tasks)}
    members = tuple(sorted(number[opened.search.view.tasks[t].name] for t in gang.members))

    def fits(count: int) -> bool:
        smaller = Gang(replace(gang.group, minimum=gang.running + count), members, gang.running)
        return bool(fit_now(world.view, world.prices, smaller, {})[0])

    # Whoever finds room for some finds room for fewer, so halving finds the most. To fail takes far longer than to succeed:
    # what cores and memory rule out is not tried.
    tasks = [world.view.tasks[t] for t in members]
    width, memory = max(1, min(t.widths_milli[0] for t in tasks)), max(1, min(t.memory_mib for t in tasks))
    places = sum(
        len(g.members) * min(g.free_milli // width, g.free_memory_mib // memory)
        for g in world.view.groups
        if g.batch_cores
    )
    least, most = 0, min(gang.needed, len(members), max(0, places))
    if most and fits(most):
        return most
    while most - least > 1:
        middle = (least + most) // 2
        least, most = (middle, most) if fits(middle) else (least, middle)
    return least


def _can_be_reserved(opened: Reopened, gang: Gang) -> bool:
    snapshot = _patient(opened.search.view.snapshot)
    names = {opened.search.view.tasks[t].name for t in gang.members}
    first, *others = (t for t in snapshot.pending if t.name in names)
    # One that is due speaks for all: the scheduler asks again for each.
    since_s = min(t.submit_s for t in (first, *others))
    due = replace(first, submit_s=since_s - 1.0)
    world = _open(opened, replace(snapshot, pending=(due, *others)))
    settings = replace(opened.settings, due_age_s=snapshot.now_s - since_s + 0.5)
    dues = settle_dues(world.view, world.prices, settings)
    return bool(dues.must_start or dues.reservations)


def _patient(snapshot: Snapshot) -> Snapshot:
    """Nothing is planned or reserved, and nobody demands to be in time: who is due does not."""
    pending = tuple(replace(t, min_utility=None) for t in snapshot.pending)
    return replace(snapshot, pending=pending, plan=(), reservations=())


def _open(opened: Reopened, snapshot: Snapshot) -> Emptied:
    view = compact(snapshot, HostFactory(snapshot.catalogue))
    outlook = Outlook(view, opened.search.outlook.shares)
    return Emptied(view, outlook, FlowPolicy(opened.settings).price(outlook))
