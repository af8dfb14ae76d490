"""How long the longest run may take beside the neighbours that it may get: an estimate from the models, not a bound."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from weakref import WeakKeyDictionary

from flowsched.assignment import Company, Newcomer
from flowsched.compaction import View
from flowsched.inspector.emptied import emptied
from flowsched.inspector.reopened import Reopened
from flowsched.policies.policy import Prices
from flowsched.resource import covers, without

_FOUND: WeakKeyDictionary[Reopened, float] = WeakKeyDictionary()
"""One for each search: it is the same for all of its tasks."""


def longest_run_s(opened: Reopened) -> float:
    """Seconds: the longest predicted run of what runs, as long as it still takes, and of what starts now or waits.

    Everybody is asked about beside the company that the plan gives it, and beside as many of those who wait as find room
    on the same machine, now and once all that ends has ended. Tasks without an end are left out. Who arrives later is not
    known, so no model says that nothing takes longer.
    """
    found = _FOUND.get(opened)
    if found is None:
        search, world = opened.search, emptied(opened)
        runs = [*_planned(opened), *_crowded(search.view, search.prices), *_crowded(world.view, world.prices)]
        found = _FOUND[opened] = max(runs, default=0.0)
    return found


def _planned(opened: Reopened) -> Iterator[float]:
    view, prices = opened.search.view, opened.search.prices
    for m in range(len(view.machines)):
        for plan in (opened.decided, opened.plan):
            yield from _runs(view, prices, view.group_of[m], plan.company(m)) or ()


def _crowded(view: View, prices: Prices) -> Iterator[float]:
    """Runs on machines that waiting tasks have filled."""
    jobs = view.snapshot.catalogue.jobs

    def most(c: int) -> tuple[float, float]:
        task = view.classes[c].task
        return task.widths_milli[0], -jobs[task.profile].pressure

    def worst(c: int) -> tuple[float, float]:
        width, pressure = most(c)
        return pressure, width

    for g in range(len(view.groups)):
        yield from _runs(view, prices, g, ()) or ()
        for order in (most, worst):
            seen: set[int] = set()
            for c in range(len(view.classes)):
                if c not in seen:
                    for company in (_fill(view, g, c, order), _fill(view, g, c, order, unrelated=True)):
                        runs = _runs(view, prices, g, company) if company else None
                        if runs is not None:
                            seen |= {n.task_class for n in company}
                            yield from runs
                            break


def _fill(
    view: View, group: int, first: int, order: Callable[[int], tuple[float, float]], *, unrelated: bool = False
) -> Company:
    """A class's task and as many others as find room beside it on a group's machine; nobody if it finds none itself.

    ``unrelated``: only others whom no relation concerns.
    """
    here = view.groups[group]
    cpu, memory, free = here.free_milli, here.free_memory_mib, dict(here.free_resources)
    company: list[Newcomer] = []
    others = sorted(range(len(view.classes)), key=lambda c: (order(c), c))
    for c in (first, *others):
        task = view.classes[c].task
        if c != first and unrelated and view.census.concerns(task):
            continue
        if not view.allowed(c, here.members[0]):
            continue
        left = len(view.classes[c].members) - sum(n.task_class == c for n in company)
        for _ in range(1 if not company else left):
            width = task.widths_milli[0]
            if width > cpu or task.memory_mib > memory or not covers(free, task.resources):
                break
            cpu, memory, free = cpu - width, memory - task.memory_mib, without(free, task.resources)
            company.append(Newcomer(c, 0, width))
        if not company:
            return ()
    return tuple(sorted(company))


def _runs(view: View, prices: Prices, group: int, company: Company) -> list[float] | None:
    """How long everybody with an end runs on a machine, from its start or from now; None where that cannot be."""
    prospect = prices.prospect(group, company)
    if prospect is None:
        return None
    runs = [end for r, end in zip(view.groups[group].running, prospect.residents_s, strict=True) if not r.task.endless]
    for n, start, end in zip(company, prospect.starts_s, prospect.newcomers_s, strict=True):
        if not view.classes[n.task_class].task.endless:
            runs.append(end - start)
    return runs
