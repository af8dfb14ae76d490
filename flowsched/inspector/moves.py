"""What a task of a round of flow could do instead: every other option, and waiting, each with its price."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from flowsched.inspector.flow_task import FlowTask, counts_without
from flowsched.inspector.other_option import STEP, OtherOption, cheapest
from flowsched.inspector.restored_round import RestoredRound, remembered
from flowsched.inspector.round_network import round_network
from flowsched.pricing.arrival import Arrival, Colocation, joined
from flowsched.pricing.flow_prices import FORBIDDEN


def moves_of(task: FlowTask, *, now: bool = False) -> tuple[OtherOption, ...]:
    """All options on its machine that a task could have instead, and the cheapest of every start on other machines, around
    what was decided; none without the models. Waiting is not among them. ``now``: starts now alone.
    """
    if task.opened is None:
        return ()
    # A task that must start has no arcs to later starts, but their prices are of interest.
    must_start = task.number in task.opened.model.must_start
    found = _priced(task) if must_start else _in_network(task)
    wanted = (m for m in found if m.slot == 0) if now else found
    return tuple(m for m in wanted if not _is_here(task, m) and not _starts_at_once(task, m))


def waiting_move(task: FlowTask) -> OtherOption | None:
    """What waiting would cost; None where that is not known."""
    if task.opened is None:
        return None
    terms = task.opened.model.prices.waiting_terms(task.task_class)
    return OtherOption(None, None, None, sum(terms.values()), dict(terms))


def cheapest_open(task: FlowTask) -> OtherOption | None:
    """Where a waiting task itself could start now beside all that starts and is planned, whatever its group does."""
    if task.opened is None:
        return None
    own, c = task.own_machine, task.task_class
    prices = _prices_now(task.opened, c, task.starting)
    if own is not None and prices[own] is not None:
        prices = [*prices]
        prices[own] = _price_now(task.opened, c, own, task.others_on(own))
    best, least = None, FORBIDDEN
    for m, price in enumerate(prices):
        if price is not None and price < FORBIDDEN and (best is None or price < least - STEP):
            best, least = m, price
    arrival = Arrival(c, 0, task.width_milli)
    return None if best is None else _move(task, best, arrival, task.others_on(best), least)


@remembered
def _prices_now(opened: RestoredRound, c: int, starting: int | None) -> list[float | None]:
    """[machines] price of a start now of a task of a class beside all that starts and is planned; None where it may not be.

    ``starting``: a task that relations do not count.
    """
    view, domain_counts = opened.model.view, counts_without(opened, starting)
    own = view.classes[c].task
    return [
        None
        if not view.allowed(c, m) or domain_counts.refusal(own, machine.name) is not None
        else _price_now(opened, c, m, opened.decided.colocation(m))
        for m, machine in enumerate(view.machines)
    ]


def _price_now(opened: RestoredRound, c: int, machine: int, others: Colocation) -> float:
    """Price of a start now at the narrowest width beside others on a machine; ``FORBIDDEN`` where there is none."""
    model = opened.model
    base = model.machine_cost(machine, others)
    if base == FORBIDDEN:
        return FORBIDDEN
    return model.machine_cost(machine, joined(others, Arrival(c, 0, model.view.classes[c].task.widths_milli[0]))) - base


def by_machine(moves: Sequence[OtherOption]) -> list[OtherOption]:
    """The cheapest move to each machine, cheap ones first."""
    machines = dict.fromkeys(m.machine for m in moves if m.machine is not None)
    found = [best for name in machines if (best := cheapest(m for m in moves if m.machine == name)) is not None]
    return sorted(found, key=lambda m: (m.cost, m.machine or ""))


def _is_here(task: FlowTask, move: OtherOption) -> bool:
    """Whether a move leads to what was decided, as those around a plan may that was not followed to the letter."""
    placed = task.placed
    return placed is not None and (move.machine, move.slot, move.width_milli) == (placed.machine, 0, placed.width_milli)


def _starts_at_once(task: FlowTask, move: OtherOption) -> bool:
    """Whether a later start is none: nothing on its machine would complete before."""
    opened = task.opened
    if opened is None or move.machine is None or not move.slot:
        return False
    view, m = opened.model.view, opened.machine_number[move.machine]
    before = (n for n in task.others_on(m) if n.start_after < move.slot)
    ends = any(not view.classes[n.task_class].task.endless for n in before)
    return not ends and not view.groups[view.group_of[m]].completes


def _in_network(task: FlowTask) -> Iterable[OtherOption]:
    """The arcs of a task in the network of the round."""
    graph, number = round_network(task.recorded, task.part).graph, task.restored.machine_number
    node = graph.node("task", task.name)
    own = None if task.own_machine is None else task.restored.model.view.machines[task.own_machine].name
    found: list[OtherOption] = []
    for arc in [] if node is None else graph.leaving(node).tolist():
        slot, width = (int(graph.columns[k][arc]) for k in ("slot", "width_milli"))
        if slot < 0 or graph.flow[arc]:
            continue
        terms, machines = graph.terms_of(arc), graph.machines_of(arc, own)
        found += [OtherOption(m, slot, width, sum(terms.values()), terms) for m in machines if m in number]
    return sorted(found, key=lambda move: number[move.machine or ""])


def _priced(task: FlowTask) -> Iterable[OtherOption]:
    if task.opened is None:
        return
    plan, model = task.opened.decided, replace(task.opened.model, must_start=frozenset())
    current = plan.options[task.number]
    for m in range(len(model.view.machines)):
        for price, option in model.offers(plan, task.number, m):
            if price < FORBIDDEN and option != current:
                yield _move(task, m, Arrival(task.task_class, *option[1:]), task.others_on(m), price)


def _move(task: FlowTask, machine: int, arrival: Arrival, others: Colocation, price: float) -> OtherOption:
    model = task.restored.model
    colocation = joined(others, arrival)
    terms = model.prices.machine_terms(model.view.group_of[machine], colocation, colocation.index(arrival))
    return OtherOption(model.view.machines[machine].name, arrival.start_after, arrival.width_milli, price, terms)
