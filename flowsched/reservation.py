"""Never for ever: the earliest due task gets a machine that is held for it.

A task is *due* once it has waited longer than the due age. If it fits somewhere it starts in this round. If not, it gets a
hard reservation on the feasible machine that drains soonest, and keeps it: nothing starts there unless it is predicted to
end before the reserved start (EASY backfill: Lifka, The ANL/IBM SP Scheduling System, 1995). The reserved start never moves
later, so once it has passed nothing joins at all, and a task waits at most
``due age + (B + 1)(T + one round)``: B tasks that had arrived earlier and still waited when it arrived, T the longest run.
The bound holds within a priority.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from flowsched.assignment import Company, Newcomer
from flowsched.compaction import View
from flowsched.outlook import Outlook
from flowsched.policies.policy import FORBIDDEN, Prices
from flowsched.settings import Settings
from flowsched.snapshot import Reservation

_TINY = 1e-6


@dataclass(frozen=True)
class Hold:
    """A reservation as the search sees it. Times in seconds from now."""

    width_milli: int
    memory_mib: int
    start_s: float

    def admits(self, outlook: Outlook, group: int, company: Company) -> bool:
        """Whether everybody who joins is gone, and the room is there, by the reserved start."""
        if self.start_s <= 0.0 or any(n.slot > 0 for n in company):
            return False
        prospect = outlook.prospect(group, company)
        if prospect is None or max(prospect.newcomers_s) > self.start_s + _TINY:
            return False
        return drained_s(outlook, group, company, self.width_milli, self.memory_mib) <= self.start_s + _TINY


@dataclass(frozen=True)
class Dues:
    """What due tasks ask of a round."""

    must_start: frozenset[int]
    """Tasks (indices of the view) that start now, whatever it costs."""
    holds: Mapping[int, Hold]
    """Reserved machines."""
    reservations: tuple[Reservation, ...]
    """What to remember for the next round."""


def settle_dues(view: View, outlook: Outlook, prices: Prices, settings: Settings) -> Dues:
    """Find the earliest due task, and start it or reserve for it."""
    snapshot = view.snapshot
    due = [t for t, task in enumerate(view.tasks) if snapshot.now_s - task.submit_s > settings.due_age_s]
    if not due:
        return Dues(frozenset(), {}, ())
    held = {r.task: r for r in snapshot.reservations if _still_suits(view, prices, r)}
    due.sort(key=lambda t: (view.tasks[t].name not in held, -view.tasks[t].priority, view.tasks[t].submit_s, t))
    for first in due:
        c = view.class_of[first]
        task = view.tasks[first]
        width = task.widths_milli[0]
        if any(
            view.allowed(c, group.members[0]) and prices.machine_cost(g, (Newcomer(c, 0, width),)) < FORBIDDEN
            for g, group in enumerate(view.groups)
        ):
            return Dues(frozenset({first}), {}, ())
        reservation = held.get(task.name) or _reserve(view, outlook, prices, first)
        if reservation is not None:
            machine = next(i for i, m in enumerate(view.machines) if m.name == reservation.machine)
            hold = Hold(reservation.width_milli, task.memory_mib, reservation.start_s - snapshot.now_s)
            return Dues(frozenset(), {machine: hold}, (reservation,))
    return Dues(frozenset(), {}, ())


def _still_suits(view: View, prices: Prices, reservation: Reservation) -> bool:
    """Whether the reserved machine would take the task once it has drained: its services may have changed."""
    machine = next((i for i, m in enumerate(view.machines) if m.name == reservation.machine), None)
    task = next((i for i, t in enumerate(view.tasks) if t.name == reservation.task), None)
    return machine is not None and task is not None and prices.welcome(view.group_of[machine], view.class_of[task])


def drained_s(outlook: Outlook, group: int, company: Company, width_milli: int, memory_mib: int) -> float:
    """When a machine of the group will have room, in seconds from now, if this company joins; infinity for never."""
    here = outlook.view.groups[group]
    prospect = outlook.prospect(group, company)
    if prospect is None:
        return FORBIDDEN
    cpu = here.free_milli - sum(n.width_milli for n in company)
    memory = here.free_memory_mib
    releases = []
    for running, end in zip(here.running, prospect.residents_s, strict=True):
        releases.append((end, running.width_milli, running.task.memory_mib))
    for newcomer, end in zip(company, prospect.newcomers_s, strict=True):
        needs = outlook.view.classes[newcomer.task_class].task.memory_mib
        memory -= needs
        releases.append((end, newcomer.width_milli, needs))
    at = 0.0
    for end, freed_cpu, freed_memory in sorted(releases):
        if cpu >= width_milli and memory >= memory_mib:
            return at
        at, cpu, memory = end, cpu + freed_cpu, memory + freed_memory
    return at if cpu >= width_milli and memory >= memory_mib else FORBIDDEN


def _reserve(view: View, outlook: Outlook, prices: Prices, task: int) -> Reservation | None:
    """The machine that drains soonest for a task; None where it can never run."""
    wanted = view.tasks[task]
    width = wanted.widths_milli[0]
    best: tuple[float, int] | None = None
    for m in range(len(view.machines)):
        g, c = view.group_of[m], view.class_of[task]
        if not view.allowed(c, m) or not view.groups[g].batch_cores or not prices.welcome(g, c):
            continue
        at = drained_s(outlook, g, (), width, wanted.memory_mib)
        if at < FORBIDDEN and (best is None or (at, m) < best):
            best = (at, m)
    if best is None:
        return None
    return Reservation(wanted.name, view.machines[best[1]].name, width, view.snapshot.now_s + best[0])
