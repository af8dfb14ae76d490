"""An explanation's data as sentences: short, the most important first.

Every number here is one of the data, rounded; nothing is computed but units.
"""

from __future__ import annotations

from flowsched.inspector.learnt_facts import learnt_sentences
from flowsched.inspector.placed_sentences import placed_sentences
from flowsched.inspector.running_changes import change_sentences
from flowsched.inspector.task_sentences import shape_text, shared_cores
from flowsched.inspector.waiting_sentences import waiting_sentences
from flowsched.inspector.wording import Facts, seconds_text


def sentences(facts: Facts) -> list[str]:
    """The lines of an explanation."""
    match facts["fate"]:
        case "placed":
            lines = placed_sentences(facts)
        case "runs":
            lines = _runs(facts)
        case "let_in" | "preempted" | "moved" | "taken_back":
            lines = change_sentences(facts)
        case _:
            lines = waiting_sentences(facts)
    lines += learnt_sentences(facts)
    if facts.get("models_missing"):
        lines.append(f"More cannot be said: {facts['models_missing']}.")
    return lines


def _runs(facts: Facts) -> list[str]:
    place = facts["place"]
    shape = shape_text(place)
    since = place.get("since_s")
    bound = "" if since is None else f", bound {seconds_text(since)} ago"
    lines = [f"{facts['title']} runs on {place['machine']}{shape}{bound}. This round had nothing to decide on it."]
    if place.get("end_s") is not None:
        done = f"{place['progress_percent']:.0f} % done"
        lines.append(f"It is estimated to be {done}, and predicted to end in {seconds_text(place['end_s'])}.")
    lines += shared_cores(facts)
    return lines
