"""Why tasks wait: the causes, and the words for each, the same whichever prices have decided.

The subject of each sentence is the task; it has no full stop.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from math import inf, isinf

from flowsched.cluster.domain_counts import demand_text
from flowsched.relations.relation import Relation
from flowsched_models.quantity import count_cores


class WaitCause(StrEnum):
    """What keeps a task waiting."""

    NOT_ALLOWED = "not_allowed"
    """No machine that it may run on is in the cluster."""
    NEVER = "never"
    """No machine that may take it has room, whatever ends."""
    CAPACITY = "capacity"
    """No machine that may take it has room now."""
    RELATION = "relation"
    """Relations refuse it wherever there is room."""
    SERVICE = "service"
    """Wherever there is room it would break a latency goal."""
    GOAL = "goal"
    """It is a service, and would miss its own p95 goal on every machine that it may run on."""
    UTILITY = "utility"
    """Wherever there is room, it or another task would miss its minimum utility."""
    COST = "cost"
    """Every place is dearer than waiting, or than it may be."""
    HELD = "held"
    """The machines with room are reserved for tasks that come before it."""
    PROMISED = "promised"
    """The machines with room are planned for others."""
    RESERVED = "reserved"
    """A machine is reserved for it."""
    PLANNED = "planned"
    """It is planned behind a completion."""
    GROUP = "group"
    """Its task group cannot start whole."""
    FAULT = "fault"
    """The round failed on it."""
    UNKNOWN = "unknown"
    """The record does not say."""


@dataclass(frozen=True)
class Reason:
    """Why a task waits."""

    cause: WaitCause
    text: str


def not_allowed(machines: int) -> Reason:
    """It may run on none of so many machines."""
    text = f"none of the {machines} machines may take it" if machines else "there is no machine in the cluster"
    return Reason(WaitCause.NOT_ALLOWED, text)


def amounts(values: Iterable[tuple[str, float]]) -> str:
    """What a task needs, or a machine has, by resource: ``cpu`` in thousandths of a core, ``memory`` in MiB."""
    return " and ".join(
        count_cores(int(value)) if name == "cpu" else f"{value:.12g} {'MiB' if name == 'memory' else name}"
        for name, value in values
    )


def too_large(needs: str, beside_endless: bool = False, most: str = "") -> Reason:
    """No machine that it may run on is large enough. ``beside_endless``: some are, but for tasks there that have no end;
    ``most``: what machines have at most of what none has enough of, where all were looked at.
    """
    beside = " beside its tasks that have no end" if beside_endless else ""
    numbers = f": the most is {most}" if most else ""
    return Reason(WaitCause.NEVER, f"needs {needs} on one machine; no machine is that large{beside}{numbers}")


def no_room(needs: str, emptiest: str, free: str) -> Reason:
    """No machine has that free: the emptiest of those that are large enough, and what is free there."""
    return Reason(WaitCause.CAPACITY, f"needs {needs} on one machine; the emptiest, {emptiest}, has {free} free")


def closed_by(relations: Iterable[Relation]) -> Reason:
    """Relations refuse it on every machine with room, one or the other."""
    demands = "; ".join(dict.fromkeys(demand_text(relation) for relation in relations))
    return Reason(WaitCause.RELATION, f"every machine with room is closed to it by {demands}")


def breaks_a_goal() -> Reason:
    """Every machine with room has a service that it would harm."""
    return Reason(WaitCause.SERVICE, "every machine with room has a latency service whose p95 goal it would break")


def kept_for_others(machines: Sequence[str]) -> Reason:
    """The machines with room are reserved for a task that has waited longer."""
    who = (
        f"{machines[0]}, the only machine with room for it, is"
        if len(machines) == 1
        else f"all {len(machines)} machines with room for it are"
    )
    return Reason(WaitCause.HELD, f"{who} reserved for a task that has waited longer")


def too_dear(waiting: float, price: float, machine: str, most: float = inf, others_had_it: bool = False) -> Reason:
    """The cheapest place costs more than waiting, or than the ``most`` that it may cost, or did when it was looked at."""
    limit, cost = _costs(min(most, waiting), price)
    what = "it may cost" if most < waiting else "waiting costs"
    text = f"{what} {limit}; starting now would cost {cost} on {machine}, where it costs least"
    return Reason(WaitCause.COST, text + "; others had that when it was looked at" * others_had_it)


def promised(waiting: float) -> Reason:
    """All room is taken by tasks that start now or are planned."""
    text = f"waiting costs {_costs(waiting)[0]}; no machine has room for it beside those that start now or are planned"
    return Reason(WaitCause.PROMISED, text)


def _costs(*costs: float) -> list[str]:
    """With two decimals, or as many more as it takes to tell them from each other and from nothing."""
    told: list[str] = []
    for decimals in range(2, 7):
        told = [f"{cost:.{decimals}f}" for cost in costs]
        if len(set(told)) == len(set(costs)) and all(
            float(text) or not cost for text, cost in zip(told, costs, strict=True)
        ):
            break
    return told


def kept(machine: str, in_s: float) -> str:
    """That a machine is reserved for it, and in how many seconds it is predicted to have room; infinite where it drains."""
    if isinf(in_s):
        return f"{machine} drains for it: no end is known there"
    when = f"in about {in_s:.0f} s" if in_s >= 0.0 else f"{-in_s:.0f} s ago"
    return f"{machine} is reserved for it, predicted to be free {when}"


def reserved(machine: str, in_s: float, overdue: bool = True) -> Reason:
    """It waits for a machine that is reserved for it; see :func:`kept`."""
    return Reason(WaitCause.RESERVED, f"{'is due' if overdue else 'comes next'}, and {kept(machine, in_s)}")


def unbounded(why: str) -> Reason:
    """It is overdue, and no machine can be reserved for it."""
    return Reason(WaitCause.CAPACITY, f"is due, and nothing is reserved for it: {why}")
