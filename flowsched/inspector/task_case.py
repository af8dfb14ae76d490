"""All facts about one task of a level, at forecast or at linear prices.

A reader of the prices says what the task could have instead and what it finds on each machine; what that amounts to is the
same at both. Keys as in :mod:`flowsched.inspector.explanation`.
"""

from __future__ import annotations

from typing import Any

from flowsched.inspector.class_facts import group_facts
from flowsched.inspector.comparison import plain_terms
from flowsched.inspector.forecast_reader import ForecastReader
from flowsched.inspector.linear_reader import LinearReader
from flowsched.inspector.other_option import cheapest
from flowsched.inspector.record_view import Part, RecordView
from flowsched.inspector.refusals import MachinesFound
from flowsched.inspector.wait_cause import WaitCause

PriceReader = ForecastReader | LinearReader
"""Both say with all other tasks where the round left them."""


def case_facts(recorded: RecordView, part: Part, name: str) -> dict[str, Any]:
    """All about a task of a part; raises ``ValueError`` where the part does not say what became of it."""
    read = ForecastReader if part.by_forecasts else LinearReader
    reader: PriceReader = read(recorded, part, name)
    facts = {
        **reader.known(),
        "repairs": [dict(r) for r in part.forecast.get("repairs", ()) if r["task"] == name],
        "group": group_facts(part, name),
    }
    return facts | (_waits(reader) if reader.placed is None else _placed(reader))


def _placed(reader: PriceReader) -> dict[str, Any]:
    placed = reader.place
    cost, terms = reader.here()
    others, same, waiting = reader.elsewhere(), reader.same_machine(), reader.waiting()
    best = cheapest([*others, *same, *(() if waiting is None else (waiting,))])
    place: dict[str, Any] = {"machine": placed.machine, "width_milli": placed.width_milli}
    if placed.cores is not None:
        place |= {"threads": placed.threads, "cores": list(placed.cores)}
    place |= {"cost": cost, "terms": plain_terms(terms)}
    return {
        "fate": "placed",
        "cause": None,
        "place": place,
        "runner_up": None if best is None else best.plain(cost, terms),
        "waiting": None if waiting is None else waiting.plain(cost, terms),
        "alternatives": [other.plain(cost, terms) for other in others],
        "same_machine": [other.plain(cost, terms) for other in same],
        "neighbours": reader.neighbours(),
        **reader.more_of_place(),
    }


def _waits(reader: PriceReader) -> dict[str, Any]:
    waits, part, now_s = reader.wait, reader.part, reader.recorded.now_s
    held = [dict(r) | {"in_s": None if r["start_s"] is None else r["start_s"] - now_s} for r in part.reservations]
    own = next((r for r in held if r["task"] == waits.task), None)
    found = reader.machines
    facts: dict[str, Any] = {"refusals": None, "shortage": None}
    if found is not None:
        facts = {"refusals": found.table(), "shortage": _shortage(reader, found)}
    if waits.planned is not None:
        cause: str = WaitCause.PLANNED
    else:
        cause = reader.cause(facts) if own is None else WaitCause.RESERVED
    closest = reader.closest()
    nearest = closest or (facts["shortage"] or {}).get("emptiest")
    waited_s, rounds = reader.waited()
    cost, terms = reader.left()
    facts |= {
        "fate": "waits",
        "cause": cause,
        "reason": waits.reason,
        "waited_s": waited_s,
        "rounds_waited": rounds,
        "cost": cost,
        "terms": plain_terms(terms),
        "closest": closest,
        "core_price": None if nearest is None else reader.core_price(nearest["machine"]),
        "reservation": own or (reader.drained() if isinstance(reader, LinearReader) else None),
        "other_reservations": [r for r in held if r["task"] != waits.task],
    }
    return facts | reader.more_of_waiting(facts)


def _shortage(reader: PriceReader, found: MachinesFound) -> dict[str, Any]:
    """What is short, who stays on the machines that are named, and who starts on the one that misses least."""
    short = found.shortage()
    emptiest = None if short["emptiest"] is None else short["emptiest"]["machine"]
    named = {row["machine"] for row in (*short["largest"], *short["lacking"], short["emptiest"], short["empty"]) if row}
    return {
        **short,
        "stays": reader.stays(sorted(named)) if isinstance(reader, ForecastReader) else [],
        "started_there": [p.task for p in reader.part.placements if p.machine == emptiest],
    }
