"""Facts about a task that a round of flow leaves waiting: what it waits for, what came closest, and what would help."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from flowsched.cluster.snapshot import MILLI
from flowsched.inspector.comparison import plain_terms
from flowsched.inspector.flow_refusals import Refused, refused
from flowsched.inspector.flow_task import FlowTask
from flowsched.inspector.moves import cheapest, cheapest_open, moves_of
from flowsched.inspector.overtaking import overtaking_facts
from flowsched.inspector.record_view import Part, option_of
from flowsched.inspector.restored_round import RestoredRound
from flowsched.inspector.sharing import shared_services
from flowsched.inspector.wait_cause import WaitCause
from flowsched.inspector.waiting_bound import waiting_bound
from flowsched.pricing.arrival import Arrival, joined
from flowsched.records.snapshot_types import RecordedHeldMachine
from flowsched.round.extract import below_demand


def waiting_facts(task: FlowTask) -> dict[str, Any]:
    """Keys as in :mod:`flowsched.inspector.explanation`."""
    waits, part = task.waits, task.part
    assert waits is not None, "it waits"
    reservation = next((_reserved(task, r) for r in part.reservations if r["task"] == task.name), None)
    found = refused(task)
    cause = _cause(task, reservation is not None, found)
    later = None if waits.planned is None else option_of(waits.planned)
    forecast = None if later is None or task.opened is None else task.opened.planned_s(task.number)
    start_s = None if forecast is None else forecast[0]
    planned = None
    if later is not None:
        planned = {"machine": later[0], "slot": later[1], "width_milli": later[2], "start_s": start_s}
        planned |= {
            "likely": None if task.opened is None or forecast is None else _likely(task.opened, task, *forecast)
        }
    starts_s = start_s if reservation is None else reservation["in_s"]
    closest = _closest(task)
    nearest = closest or (found.shortage or {}).get("emptiest")
    return {
        "fate": "waits",
        "cause": cause,
        "reason": waits.reason,
        "waited_s": waits.waited_s,
        "rounds_waited": task.rounds_waited + 1,
        "cost": waits.cost,
        "terms": plain_terms(waits.terms),
        "planned": planned,
        "closest": closest,
        "better_gpus": _better_gpus(task, closest) if cause == WaitCause.COST else None,
        "core_price": None if nearest is None else _core_price(part, nearest["machine"], task.width_milli),
        "shared": [] if later is None else _shared_later(task, later[0]),
        "needed_waiting": _needed_waiting(task, closest, cause),
        "refusals": found.table,
        "shortage": found.shortage,
        "latency": _latency(task) if cause == WaitCause.SERVICE else [],
        "came_later": overtaking_facts(task, cause, starts_s, closest),
        "reservation": reservation,
        "other_reservations": [_reserved(task, r) for r in part.reservations if r["task"] != task.name],
        "bound": None if task.opened is None else waiting_bound(task.opened, task.name),
        "search_ended_early": task.ended_early,
        "makespan": task.makespan,
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


def _cause(task: FlowTask, reserved: bool, found: Refused) -> WaitCause:
    waits, opened = task.waits, task.opened
    if waits is not None and waits.planned is not None:
        return WaitCause.PLANNED
    if reserved:
        return WaitCause.RESERVED
    if opened is not None and task.number in opened.gangs.barred:
        return WaitCause.GROUP
    if any(r["moved_to"] is None for r in task.part.forecast.get("repairs", ()) if r["task"] == task.name):
        return WaitCause.RELATION
    return found.cause


def _reserved(task: FlowTask, reservation: RecordedHeldMachine) -> dict[str, Any]:
    return dict(reservation) | {
        "in_s": None if reservation["start_s"] is None else reservation["start_s"] - task.recorded.now_s
    }


def _shared_later(task: FlowTask, machine: str) -> list[dict[str, Any]]:
    """Services whose cores the task would have too where it is planned for later."""
    if task.opened is None:
        return []
    model, option = task.opened.model, task.opened.decided.options[task.number]
    assert option is not None, "it is planned"
    cores, _ = model.forecasts.place(model.view.group_of[option.machine], Arrival(task.task_class, *option[1:]))
    return shared_services(task.part, task.opened, machine, cores)


def _closest(task: FlowTask) -> dict[str, Any] | None:
    """The cheapest place that is known to start now; of the moves, or where they offer none, of what is open."""
    waits = task.waits
    assert waits is not None, "it waits"
    best = cheapest(m for m in moves_of(task, now=True) if m.machine is not None) or cheapest_open(task)
    return None if best is None or waits.cost is None else best.plain(waits.cost, waits.terms)


def _core_price(part: Part, machine: str, width_milli: int) -> dict[str, Any] | None:
    """What the certificate says that a machine's cores are worth: ``machine``, ``group``, ``per_core``, ``per_task`` (of a
    task of this width), in units of cost; None where it says nothing.
    """
    group = part.group_of.get(machine)
    certificate = part.certificate
    price = 0.0 if group is None or certificate is None else float(certificate.get("prices", {}).get(group, 0.0))
    if not price:
        return None
    return {"machine": machine, "group": group, "per_core": price * MILLI, "per_task": price * width_milli}


def _better_gpus(task: FlowTask, closest: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """The best free devices of the closest machine, where the task demands better ones."""
    if task.opened is None or closest is None:
        return None
    machine = task.opened.machine_number[closest["machine"]]
    found = below_demand(task.opened.model, task.others_on(machine), task.number, machine)
    return None if found is None else found._asdict() | {"devices": list(found.devices)}


def _needed_waiting(task: FlowTask, closest: Mapping[str, Any] | None, cause: WaitCause) -> dict[str, Any] | None:
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


def _latency(task: FlowTask) -> list[dict[str, Any]]:
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
