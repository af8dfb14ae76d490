"""What the GPUs of its place cost a task of a round of flow: beside what it is worth to the demand, or by their links."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from flowsched.gpu.devices import TaskGpus
from flowsched.gpu.shapes import GpuShape
from flowsched.inspector.flow_task import FlowTask
from flowsched.pricing.arrival import Arrival, joined
from flowsched.pricing.gpu_prices import GpuPrices, GpuWorth
from flowsched.pricing.topology_prices import TopologyPrices

_SAME = 0.02
"""Costs that differ by less, in devices, are the same to a reader."""


def gpu_facts(task: FlowTask) -> dict[str, Any] | None:
    """Of a task that starts with GPUs: what it asks for, its devices, whether it disturbs jobs there, its worth, its cost
    in devices, and the share that a hole would have held which it breaks; where links are priced, these in place of worth
    and cost. None without GPUs, or where the models cannot say.
    """
    placed = task.placed
    if placed is None or task.opened is None:
        return None
    model, own = task.opened.model, task.opened.task(task.name)
    prices = model.prices.gpus
    if own.gpus is None:
        return None
    devices = list(placed.devices)
    known = model.view.snapshot.catalogue.jobs[own.profile].gpus
    disturbs = known.socket.pressure > 0.0 or known.device.pressure > 0.0
    if isinstance(prices, TopologyPrices):
        links = _links(task, prices)
        return {"asks": str(own.gpus), "devices": devices, "disturbs": disturbs, "links": links}
    if not isinstance(prices, GpuPrices):
        return None
    weight = task.opened.settings.gpu_weight
    cost = None if weight <= 0.0 else float(placed.terms.get(prices.term, 0.0)) / weight
    worth = _worth_of(own.gpu_shape, prices.worth)
    dearer = cost is not None and worth is not None and cost > worth + _SAME
    return {
        "asks": str(own.gpus),
        "devices": devices,
        "disturbs": disturbs,
        "worth": worth,
        "cost": cost,
        "breaks": _broken(task, own.gpus, devices) if dearer and own.gpus.is_share and devices else None,
    }


def gpu_sentences(facts: dict[str, Any] | None) -> list[str]:
    """The facts in words."""
    if facts is None:
        return []
    numbers = ", ".join(str(d) for d in facts["devices"])
    lines = f"It asks for {facts['asks']} and gets device{'s' * (len(facts['devices']) > 1)} {numbers}"
    if "links" in facts:
        links = facts["links"]
        return [f"{lines}{link_words(None if links is None else links['class'], links)}"]
    if facts["cost"] is None:
        return [f"{lines}."]
    if facts["worth"] is None:
        return [f"{lines}; that costs {facts['cost']:.2f} of a GPU that the expected demand could have used."]
    words = f"{lines}. To the expected demand such a task is worth {facts['worth']:.2f} of a GPU; here it costs "
    if facts["cost"] <= facts["worth"] + _SAME:
        return [f"{words}no more."]
    broken = "" if facts["breaks"] is None else f", because it breaks a hole that would have held {facts['breaks']}m"
    return [f"{words}{facts['cost']:.2f}{broken}."]


def _links(task: FlowTask, prices: TopologyPrices) -> dict[str, Any] | None:
    """The slowest link between its devices, the terms of their cost, and their utility."""
    opened, placed = task.restored, task.placed
    assert placed is not None, "it is placed"
    machine = opened.machine_number[placed.machine]
    arrival = Arrival(task.task_class, 0, placed.width_milli or task.width_milli)
    colocation = joined(task.others_on(machine), arrival)
    choice = prices.choices(opened.model.view.group_of[machine], colocation).get(colocation.index(arrival))
    if choice is None:
        return None
    return {
        "class": prices.link_class(opened.model.view.group_of[machine], choice.devices),
        **choice.terms._asdict(),
        "utility": choice.terms.utility,
    }


def link_words(link_class: str | None, links: Mapping[str, Any] | None) -> str:
    """What follows the devices of a task in a sentence: the slowest link between them, and the terms of their cost where
    links are priced.
    """
    slowest = "" if link_class is None else f", linked by {link_class} where they are farthest apart"
    if links is None:
        return f"{slowest}."
    return (
        f"{slowest}. That costs {links['communication']:.2f} for their distance, "
        f"{links['interference']:.2f} for interference at their sockets and "
        f"{links['fragmentation']:.2f} for what is left free: a utility of {links['utility']:.2f}."
    )


def _worth_of(shape: GpuShape, worth: GpuWorth) -> float | None:
    """The price of a shape of the demand; of one that is not among them, the mean of those that ask for as many GPUs."""
    priced = [(s, float(p)) for s, p in zip(worth.shapes, worth.prices, strict=True)]
    asks = shape.count, shape.share_milli, shape.models
    alike = [p for s, p in priced if s == shape] or [p for s, p in priced if (s.count, s.share_milli, s.models) == asks]
    return sum(alike) / len(alike) if alike else None


def _broken(task: FlowTask, wanted: TaskGpus, devices: list[int]) -> int | None:
    """The largest share of the demand that the device would have held without the task, and does not with it."""
    opened = task.restored
    prices = opened.model.prices.gpus
    assert task.placed is not None and isinstance(prices, GpuPrices), "it is placed on a device"
    name = task.placed.machine
    left = list(opened.model.view.snapshot.devices_left()[name])
    for other in task.part.placements:
        gpus = opened.task(other.task).gpus
        if other.machine == name and gpus is not None:
            for device in other.devices:
                left[device] -= gpus.share_milli
    after = left[devices[0]]
    before = after + wanted.share_milli
    shares = [s.share_milli for s, p in zip(prices.worth.shapes, prices.worth.prices, strict=True) if p > 0.0]
    return max((share for share in shares if after < share <= before and share != wanted.share_milli), default=None)
