"""How long the longest run may take beside the neighbours that it may get: an estimate from the models, not a bound."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from flowsched.cluster.compaction import View
from flowsched.cluster.resource import covers, without
from flowsched.inspector.drained_cluster import drained_cluster
from flowsched.inspector.restored_round import RestoredRound, remembered
from flowsched.pricing.arrival import Arrival, Colocation
from flowsched.pricing.flow_prices import FlowPrices


@remembered
def longest_run_s(opened: RestoredRound) -> float:
    """Seconds: the longest predicted run of what runs, as long as it still takes, and of what starts now or waits.

    Each task is forecast beside the neighbours that the plan gives it, and beside as many waiting tasks as find room on the
    same machine, now and once all that ends has ended. Tasks without an end are left out. Later arrivals are not known, so
    a longer run remains possible.
    """
    model, world = opened.model, drained_cluster(opened)
    runs = [*_planned(opened), *_crowded(model.view, model.prices), *_crowded(world.view, world.prices)]
    return max(runs, default=0.0)


def _planned(opened: RestoredRound) -> Iterator[float]:
    view, prices = opened.model.view, opened.model.prices
    for m in range(len(view.machines)):
        for plan in (opened.decided, opened.plan):
            yield from _runs(view, prices, view.group_of[m], plan.colocation(m)) or ()


def _crowded(view: View, prices: FlowPrices) -> Iterator[float]:
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
                    for colocation in (_fill(view, g, c, order), _fill(view, g, c, order, unrelated=True)):
                        runs = _runs(view, prices, g, colocation) if colocation else None
                        if runs is not None:
                            seen |= {n.task_class for n in colocation}
                            yield from runs
                            break


def _fill(
    view: View, group: int, first: int, order: Callable[[int], tuple[float, float]], *, unrelated: bool = False
) -> Colocation:
    """A class's task and as many others as find room beside it on a group's machine; none if it finds no room itself.

    ``unrelated``: only others that no relation concerns.
    """
    here = view.groups[group]
    cpu, memory, free = here.free_milli, here.free_memory_mib, dict(here.free_resources)
    arrivals: list[Arrival] = []
    others = sorted(range(len(view.classes)), key=lambda c: (order(c), c))
    for c in (first, *others):
        task = view.classes[c].task
        if c != first and unrelated and view.domain_counts.concerns(task):
            continue
        if not view.allowed(c, here.members[0]):
            continue
        left = len(view.classes[c].members) - sum(n.task_class == c for n in arrivals)
        for _ in range(1 if not arrivals else left):
            width = task.widths_milli[0]
            if width > cpu or task.memory_mib > memory or not covers(free, task.resources):
                break
            cpu, memory, free = cpu - width, memory - task.memory_mib, without(free, task.resources)
            arrivals.append(Arrival(c, 0, width))
        if not arrivals:
            return ()
    return tuple(sorted(arrivals))


def _runs(view: View, prices: FlowPrices, group: int, colocation: Colocation) -> list[float] | None:
    """How long every task with an end runs on a machine, from its start or from now; None where that cannot be."""
    found = prices.forecast(group, colocation)
    if found is None:
        return None
    runs = [end for r, end in zip(view.groups[group].running, found.residents_s, strict=True) if not r.task.endless]
    for n, start, end in zip(colocation, found.starts_s, found.arrivals_s, strict=True):
        if not view.classes[n.task_class].task.endless:
            runs.append(end - start)
    return runs
