"""Machines that would cost a task of a round of flow exactly what its own does, and what decided between them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import Any

import numpy as np

from flowsched.cluster.snapshot import MILLI
from flowsched.inspector.flow_task import FlowTask
from flowsched.inspector.other_option import OtherOption
from flowsched.inspector.wording import SMALL, Facts
from flowsched.pricing.arrival import Arrival, joined
from flowsched.round.ties import idle_core_s, in_order, in_steps, packs
from flowsched_models.quantity import count_cores


class TiedBy(StrEnum):
    """What tells the chosen machine from the next one in the order of ties."""

    GPUS = "gpus"
    """It has none, the others have."""
    IDLE = "idle"
    """How many core-seconds the task leaves idle there."""
    CPU = "cpu"
    """How much CPU is free beside the task."""
    MEMORY = "memory"
    """The same of memory, as equally much CPU is free."""
    NUMBER = "number"
    """Nothing but its place among the machines."""


def tied_facts(task: FlowTask, elsewhere: Iterable[OtherOption]) -> dict[str, Any] | None:
    """``count`` of the other machines that cost as much, ``fullest`` (whether the fullest of such is taken, or the
    emptiest), ``scoring``, ``by`` (:class:`TiedBy`), ``free_milli`` and ``free_memory_mib`` of its machine without the
    task, and ``idle_core_s``, the core-seconds that a task with a known end leaves idle there; None where there is no tie,
    or where the round as it ended does not show that it decided.
    """
    opened, placed = task.opened, task.placed
    entry = task.part.decided_by.get(task.name)
    if opened is None or placed is None or entry is None or entry["stage"] != "network":
        return None
    option = opened.decided.options[task.number]
    if option is None or option.shared or option != opened.plan.options[task.number]:
        return None
    close = [
        opened.machine_number[o.machine]
        for o in elsewhere
        if o.machine is not None
        and (o.slot, o.width_milli) == (0, option.width_milli)
        and abs(o.cost - placed.cost) < SMALL
    ]
    machines = [option.machine, *dict.fromkeys(close)]
    price = in_steps(np.array([_price(task, m, option.width_milli) for m in machines]))
    tied = [m for m, p in zip(machines, price.tolist(), strict=True) if p == price[0]]
    if len(tied) == 1:
        return None
    own, settings = opened.task(task.name), opened.settings
    with opened.states_without(task.number) as states:
        first, second = in_order(states, task.task_class, np.array(tied, np.int64))[:2].tolist()
        fullest = packs(settings, own)
        idle_s = (
            idle_core_s(states, task.task_class) if fullest and not own.endless else np.zeros(len(states.free_cores))
        )
        cores, memory, gpus = states.free_cores, states.free_memory, states.has_gpus
        if first != option.machine:
            return None
        if gpus[first] != gpus[second]:
            by = TiedBy.GPUS
        elif abs(float(idle_s[first] - idle_s[second])) > SMALL:
            by = TiedBy.IDLE
        elif round(float(cores[first] - cores[second]) * MILLI):
            by = TiedBy.CPU
        else:
            by = TiedBy.MEMORY if round(float(memory[first] - memory[second])) else TiedBy.NUMBER
        return {
            "count": len(tied) - 1,
            "fullest": fullest,
            "scoring": settings.scoring,
            "by": by,
            "free_milli": round(float(cores[first]) * MILLI),
            "free_memory_mib": round(float(memory[first])),
            "idle_core_s": float(idle_s[first]),
        }


def _price(task: FlowTask, machine: int, width_milli: int) -> float:
    """What a start now on a machine costs, at a width that need not be the narrowest."""
    model, others = task.restored.model, task.others_on(machine)
    together = joined(others, Arrival(task.task_class, 0, width_milli))
    return model.machine_cost(machine, together) - model.machine_cost(machine, others)


def tied_sentences(facts: Facts) -> list[str]:
    """How many machines cost the same, and why it is this one."""
    ties: Mapping[str, Any] | None = facts.get("tied")
    if ties is None:
        return []
    count, which = ties["count"], "least" if ties["fullest"] else "most"
    head = f"{count} other machine{' costs' if count == 1 else 's cost'} the same: of these"
    match ties["by"]:
        case TiedBy.GPUS:
            return [f"{head} it takes one without GPUs."]
        case TiedBy.IDLE:
            idle = f"{ties['idle_core_s']:.0f} core-seconds"
            return [
                f"{head} it leaves the least CPU idle here, {idle} beside it and after all others "
                f"(scoring {ties['scoring']})."
            ]
        case TiedBy.CPU:
            free = count_cores(ties["free_milli"])
            return [f"{head} it takes the one with the {which} CPU free, {free} (scoring {ties['scoring']})."]
        case TiedBy.MEMORY:
            free = f"{ties['free_memory_mib']} MiB"
            return [f"{head} it takes the one with the {which} memory free, {free} (scoring {ties['scoring']})."]
        case _:
            return [f"{head}, equally full, it takes the first."]
