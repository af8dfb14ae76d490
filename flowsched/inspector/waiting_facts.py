"""Facts about a task that waits at forecast prices: what it waits for, what came closest, and what would help."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from flowsched.cluster.snapshot import MILLI
from flowsched.inspector.flow_task import FlowTask
from flowsched.inspector.moves import cheapest_open, moves_of
from flowsched.inspector.other_option import OtherOption, cheapest
from flowsched.inspector.record_view import Part, Waits, option_of
from flowsched.inspector.restored_round import RestoredRound
from flowsched.inspector.sharing import shared_services
from flowsched.inspector.wait_cause import WaitCause
from flowsched.pricing.arrival import Arrival, joined
from flowsched.round.extract import below_demand


def planned_facts(task: FlowTask, waits: Waits) -> dict[str, Any] | None:
    """Where and behind how many completions a task is planned, and when it is likely to start and to end."""
    later = None if waits.planned is None else option_of(waits.planned)
    if later is None:
        return None
    forecast = None if task.opened is None else task.opened.planned_s(task.number)
    return {
        "machine": later[0],
        "slot": later[1],
        "width_milli": later[2],
        "start_s": None if forecast is None else forecast[0],
        "likely": None if task.opened is None or forecast is None else _likely(task.opened, task, *forecast),
    }


def _likely(opened: RestoredRound, task: FlowTask, start_s: float, end_s: float) -> dict[str, list[float] | None]:
    """Between which moments start and end of a planned task lie in four of five cases."""
    snapshot = opened.model.view.snapshot
    errors, begins_s = snapshot.start_errors, start_s + snapshot.start_delay.after_waiting_s
    endless = opened.model.view.tasks[task.number].endless
    start, end = errors.start(begins_s, 0.0), None if endless else errors.end(end_s, 0.0)
    return {
        "start_s": [start.earliest_s, start.latest_s],
        "end_s": None if end is None else [end.earliest_s, end.latest_s],
    }


def shared_later(task: FlowTask, machine: str) -> list[dict[str, Any]]:
    """Services whose cores the task would have too where it is planned for later."""
    if task.opened is None:
        return []
    model, option = task.opened.model, task.opened.decided.options[task.number]
    assert option is not None, "it is planned"
    cores, _ = model.forecasts.place(model.view.group_of[option.machine], Arrival(task.task_class, *option[1:]))
    return shared_services(task.part, task.opened, machine, cores)


def closest_place(task: FlowTask) -> OtherOption | None:
    """The cheapest place that is known to start now; of the moves, or where they offer none, of what is open."""
    return cheapest(m for m in moves_of(task, now=True) if m.machine is not None) or cheapest_open(task)


def core_price(part: Part, machine: str, width_milli: int) -> dict[str, Any] | None:
    """What the certificate says that a machine's cores are worth: ``machine``, ``group``, ``per_core``, ``per_task`` (of a
    task of this width), in units of cost; None where it says nothing.
    """
    group = part.group_of.get(machine)
    certificate = part.certificate
    price = 0.0 if group is None or certificate is None else float(certificate.get("prices", {}).get(group, 0.0))
    if not price:
        return None
    return {"machine": machine, "group": group, "per_core": price * MILLI, "per_task": price * width_milli}


def better_gpus(task: FlowTask, closest: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """The best free devices of the closest machine, where the task demands better ones."""
    if task.opened is None or closest is None:
        return None
    machine = task.opened.machine_number[closest["machine"]]
    found = below_demand(task.opened.model, task.others_on(machine), task.number, machine)
    return None if found is None else found._asdict() | {"devices": list(found.devices)}


def needed_waiting(task: FlowTask, closest: Mapping[str, Any] | None, cause: str) -> dict[str, Any] | None:
    """By how much waiting would have to cost more for the task to start; the age at which W alone makes up for it."""
    if closest is None or cause != WaitCause.COST or closest["more"] <= 0.0:
        return None
    settings = task.recorded.settings
    assert task.waits is not None, "it waits"
    own = float(task.waits.terms.get("waiting", 0.0))
    most, due_age = float(settings.get("waiting_weight", 0.0)), float(settings.get("due_age_s", 0.0))
    needed = own + float(closest["more"])
    bounded = bool(settings.get("waiting_bounded", True))
    reaches = due_age > 0.0 and most > 0.0 and needed > 0.0 and (needed <= most or not bounded)
    return {
        "more": closest["more"],
        "w": own,
        "w_needed": needed,
        "w_most": most,
        "reached_at_age_s": needed / most * due_age if reaches else None,
    }


def latency_facts(task: FlowTask) -> list[dict[str, Any]]:
    """On machines that a latency goal closes: what the service's p95 would be; the one that comes nearest first."""
    opened = task.opened
    if opened is None:
        return []
    model, view = opened.model, opened.model.view
    arrival = Arrival(task.task_class, 0, task.width_milli)
    found = []
    for m, machine in enumerate(view.machines):
        if not view.allowed(task.task_class, m):
            continue
        colocation = joined(task.others_on(m), arrival)
        g = view.group_of[m]
        predicted = model.prices.forecast(g, colocation)
        peaks: Sequence[float] = () if predicted is None else predicted.peak_p95_us
        if predicted is None and not model.prices.welcome(g, task.task_class):
            # It would break the goal even alone there.
            peaks = model.forecasts.lone_peak_p95_us(g, arrival)
        for service, p95 in zip(view.groups[g].services, peaks, strict=False):
            if p95 > opened.settings.slo_margin * service.slo_us:
                found.append(
                    {
                        "machine": machine.name,
                        "service": service.name,
                        "p95_ms": p95 / 1e3,
                        "goal_ms": opened.settings.slo_margin * service.slo_us / 1e3,
                    }
                )
    return sorted(found, key=lambda f: (f["p95_ms"] / f["goal_ms"], f["machine"]))
