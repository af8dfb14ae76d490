"""What a round changed of what ran before it, as its record has it: which task was preempted for which, and which moved."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from flowsched.inspector.comparison import plain_terms
from flowsched.inspector.record_view import Part, RecordView
from flowsched.inspector.task_sentences import title_of
from flowsched.inspector.wording import Facts, cost_text, seconds_text, terms_text
from flowsched.records.level_types import RecordedChanges

STAGE = "preemption"
"""The stage that gives a task the place of others."""


def changes_of(recorded: RecordView) -> RecordedChanges:
    """All that the levels of a record have of each key."""
    levels = [part.plain for part in recorded.parts]
    return {
        "preemptions": [change for each in levels for change in each.get("preemptions", ())],
        "taken_back": [change for each in levels for change in each.get("taken_back", ())],
        "moves": [change for each in levels for change in each.get("moves", ())],
        "let_in": [place for each in levels for place in each.get("let_in", ())],
    }


def changed_running(recorded: RecordView) -> bool:
    """Whether anything was preempted or moved."""
    changes = changes_of(recorded)
    return bool(changes["preemptions"] or changes["taken_back"] or changes["moves"])


def let_in(part: Part) -> frozenset[str]:
    """Tasks of a part that start in the place of others."""
    return frozenset(e["task"] for e in part.forecast.get("decided_by", ()) if e["stage"] == STAGE)


def change_facts(recorded: RecordView, task: str) -> dict[str, Any] | None:
    """Facts about a task that starts in the place of others, makes room, or moves; None for all others."""
    changes = changes_of(recorded)
    for change in changes["preemptions"]:
        if change["task"] == task:
            return {**_plain("preempted"), "change": dict(change)}
    for move in changes["moves"]:
        if move["task"] == task:
            return {**_plain("moved"), "change": dict(move)}
    for taken in changes["taken_back"]:
        if taken["task"] == task:
            return {**_plain("taken_back"), "change": dict(taken)}
    for placed in [*changes["let_in"], *_let_in_places(recorded)]:
        if placed["task"] == task:
            victims = [dict(c) for c in changes["preemptions"] if c["room_for"] == task]
            place = {key: placed[key] for key in ("machine", "width_milli", "threads", "cost")}
            place |= {"cores": list(placed["cores"]), "terms": plain_terms(placed["terms"])}
            late = [str(c["task"]) for c in changes["taken_back"] if c["room_for"] == task]
            return {**_plain("let_in"), "place": place, "victims": victims, "taken_back": late}
    return None


def _plain(fate: str) -> dict[str, Any]:
    return {"fate": fate, "cause": None, "models": False, "models_missing": None, "told": None}


def _let_in_places(recorded: RecordView) -> list[dict[str, Any]]:
    return [
        asdict(placed) for part in recorded.parts if (names := let_in(part)) for placed in part.placements
        if placed.task in names
    ]  # fmt: skip


def change_sentences(facts: Facts) -> list[str]:
    """The lines about such a task."""
    title = facts["title"]
    if facts["fate"] == "let_in":
        return _let_in_sentences(facts)
    change = facts["change"]
    if facts["fate"] == "taken_back":
        return [
            f"{title} waits: {title_of(facts, change['room_for'])} has a higher priority and starts in its place on "
            f"{change['machine']}.",
            "The round had a place for it there until then.",
        ]
    if facts["fate"] == "moved":
        return [
            f"{title} moves from {change['source']} to {change['machine']}, stands still for "
            f"{seconds_text(change['pause_s'])}, and {'goes on' if change['keeps_work'] else 'starts anew'} there.",
            f"The cost of both machines falls by {cost_text(change['gain'])}; the price of the move is "
            f"{cost_text(change['price'])}.",
        ]
    work = "goes on later where it stopped" if change["keeps_work"] else "starts anew later: its work is lost"
    return [
        f"{title} was preempted on {change['machine']}: {title_of(facts, change['room_for'])} has a higher priority, and no "
        f"machine had room for it.",
        f"Its leaving alone costs {cost_text(change['cost'])}, and it {work}.",
    ]


def _let_in_sentences(facts: Facts) -> list[str]:
    place = facts["place"]
    going = [f"{title_of(facts, v['task'])} (cost {cost_text(v['cost'])})" for v in facts["victims"]]
    going += [f"{title_of(facts, name)} (which was about to start)" for name in facts["taken_back"]]
    lines = [f"{facts['title']} starts on {place['machine']}: cost {cost_text(place['cost'])}."]
    if place["terms"]:
        lines.append(f"Its cost: {terms_text(place['terms'])}.")
    if going:
        lines.append(
            f"No machine had room for it, so lower priorities make room there, the lowest first, then those that cost "
            f"least: {', '.join(going)}."
        )
    else:
        lines.append("No machine had room for it until others of this round had made room.")
    return lines
