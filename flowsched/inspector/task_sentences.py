"""Sentences that explanations of placed, waiting and running tasks share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from flowsched.cluster.snapshot import MILLI
from flowsched.inspector.wait_cause import WaitCause
from flowsched.inspector.wording import (
    SMALL,
    Facts,
    completions_text,
    cost_text,
    count_text,
    differences_text,
    more_text,
    ms_text,
    terms_text,
)
from flowsched.round.origin import PlanStage
from flowsched_models.quantity import count_cores, format_cores

SHOWN = 3
_STAGE_SENTENCES: Mapping[str, str] = {
    PlanStage.GREEDY: "The greedy rule gave it this place, the cheapest at its turn, not a network.",
    PlanStage.LIST_SCHEDULING: "List scheduling gave it this place, where it was predicted to end soonest, not a network.",
    PlanStage.CARRIED: "The last round planned it there, and this round kept that plan.",
    PlanStage.MOVE: "A move of it alone in the improvement after the passes gave it this place, not a network.",
    PlanStage.SWAP: "A swap with another task in the improvement after the passes gave it this place, not a network.",
    PlanStage.GANG: "Its place was chosen with its task group's, before the first pass.",
    PlanStage.REPAIR: "A relation refused its planned place at last: this was the next best one, no network chose it.",
    PlanStage.NEVER_IDLE: "Nothing runs and no task would have started: this start cost least, no network chose it.",
}
"""What gave a task its place, where that was no network; of preemptions more is said elsewhere."""


def shape_text(place: Facts) -> str:
    """Width, threads and cores, as far as they are known."""
    parts = []
    if place.get("width_milli") is not None:
        parts.append(f"width {count_cores(place['width_milli'])}")
    if place.get("threads") is not None:
        count = place["threads"]
        cores = place.get("cores")
        on = f" on core{'' if len(cores) == 1 else 's'} {format_cores(cores)}" if cores else ""
        parts.append(f"{count} thread{'' if count == 1 else 's'}{on}")
    return f" ({', '.join(parts)})" if parts else ""


def shared_cores(facts: Facts) -> list[str]:
    """The cores of services that it may use too, and what those cost the services."""
    lines = []
    for s in facts.get("shared", ()):
        may = "Where it is planned it may" if facts["fate"] == "waits" else "It may"
        cores = f"core{'' if len(s['cores']) == 1 else 's'} {format_cores(s['cores'])}"
        text = f"{may} use {cores} of service {s['service']} too, with no more than the weight of its width"
        if s["p95_ms"] is not None:
            text += f": predicted peak p95 {s['p95_ms']:.3f} ms of {ms_text(s['goal_ms'])}, {_headroom(s, '')}"
        if s["p95_unshared_ms"] is not None and facts["fate"] != "runs":
            text += f"; with arriving tasks off {cores} {s['p95_unshared_ms']:.3f} ms, {_headroom(s, '_unshared')}"
        lines.append(f"{text}.")
    return lines


def _headroom(service: Facts, which: str) -> str:
    return f"{service[f'headroom{which}_percent']:.1f} % headroom"


def why_left(facts: Facts, rival: Facts) -> str:
    """Why something cheaper was left."""
    later = rival["kind"] == "waiting" or bool(rival.get("slot"))
    match facts.get("why_now"):
        case "due" if later:
            return "it is overdue, so it had to start now"
        case "group" if later:
            return "its task group had to start now, whole"
        case "nothing_runs" if later:
            return "no other task would have started, so there was nothing to wait for"
        case "idle_machine":
            return "it was planned for later and started early; the prices are those after that"
        case "repaired":
            return "a relation refused it where the plan had it, and it was moved to a place that was open"
        case "due" | "group" if not facts.get("search_ended_early"):
            return "tasks that must start are placed first, and no better plan was found for all of them"
    if facts.get("makespan"):
        return "for a makespan, plans are judged by how many tasks are left without a place, then by the last end"
    if facts.get("search_ended_early"):
        return "the round had used up its forecasts (setting pricings) before it found that"
    if facts["part"]["prices"] != "forecast":
        return "one network places many at once: the best for all need not be the best for each, and each changes the prices"
    return "passes and bounded improvement found no plan in which it helps"


def rival_sentence(rival: Facts, what: str, own: str | None = None) -> str:
    """A rival and why it differs; ``own``: the machine that was chosen."""
    name = "waiting" if rival["kind"] == "waiting" else place_text(rival, own)
    head = f"{what}: {name}" if what.lower() != name else what
    if abs(rival["more"]) < SMALL:
        return f"{head} costs the same, {cost_text(rival['cost'])}."
    text = f"{head} costs {cost_text(rival['cost'])}, {more_text(rival['more'])}"
    if rival["kind"] == "waiting":
        return f"{text}; that is {terms_text(rival['terms'])}." if rival["terms"] else f"{text}."
    return f"{text}: {differences_text(rival['differences'])}." if rival["differences"] else f"{text}."


def place_text(place: Facts, own: str | None = None) -> str:
    """A machine, and the start and the width there."""
    slot, width = place.get("slot"), place.get("width_milli")
    text = "the same machine" if place["machine"] == own else str(place["machine"])
    if "slot" in place and slot is None:
        text += " (now or later)"
    if slot:
        text += f" after {completions_text(slot)}"
    if width is not None:
        text += f" at width {width / MILLI:g}"
    return text


def group_sentences(facts: Facts) -> list[str]:
    """What the task group of a task needs, and whether it starts."""
    group = facts.get("group")
    if group is None:
        return []
    name, minimum = group["name"], group["minimum"]
    there = f"{group['running']} run, {group['pending']} are pending"
    if group["missing"]:
        return [f"Task group {name} needs {minimum} together; {there}: {group['missing']} more must come first."]
    if group["starts"]:
        return [
            f"Task group {name} needs {minimum} together; {there}, and it starts: {names_text(facts, group['starting'])}."
        ]
    others = [m for m in group["members"] if m != facts["task"]]
    with_whom = f" With it wait: {names_text(facts, others)}." if others else ""
    reason = facts.get("reason")
    why = f" {reason[:1].upper()}{reason[1:]}." if reason and facts["cause"] == WaitCause.GROUP else ""
    return [f"Task group {name} needs {minimum} together; {there}.{why}{with_whom}"]


def class_sentences(facts: Facts) -> list[str]:
    """What the first network did with its class: a flow, so it may spread a task over several groups."""
    found = facts.get("class")
    if found is None or found["tasks"] < 2:
        return []
    placed = "all" if found["placed"] == found["tasks"] else str(found["placed"])
    text = f"Its class, {found['class']}, has {found['tasks']} tasks, {placed} placed"
    rest = "" if found["waiting"] < 0.05 else f" and left {count_text(found['waiting'])}"
    if rest and found["placed"]:
        verb = "placed" if found["placed"] == found["tasks"] else "decided about"
        rest += f", which later networks and packing {verb}"
    if not found["groups"]:
        return [f"{text}: the first network sent none to machines{rest}."]
    if found["groups"] == 1:
        return [f"{text}: the first network sent {count_text(found['sent'])} to one group of machines{rest}."]
    return [
        f"{text}: the first network spread {count_text(found['sent'])} over {found['groups']} groups of machines{rest}."
    ]


def stage_sentences(facts: Facts) -> list[str]:
    """The stage that gave it the place where it starts or is planned."""
    by = facts.get("decided_by")
    if by is None:
        return []
    early = " It starts before its turn, as nothing will complete there to wait for." if by["early"] else ""
    if by["stage"] != PlanStage.NETWORK:
        return [f"{_STAGE_SENTENCES[by['stage']]}{early}"] if by["stage"] in _STAGE_SENTENCES else []
    if by["runner_up"] is None:
        others = "no other machine was open"
    else:
        others = f"the next machine's {cost_text(by['runner_up'])}"
        # The flow leaves a cheaper arc only where its machine is worth more to another task.
        others += ", which another task took" if by["runner_up"] < by["price"] - SMALL else ""
    batch = "alone" if by["batch"] == 1 else f"with {by['batch'] - 1} other{'' if by['batch'] == 2 else 's'}"
    return [
        f"The network of pass {by['pass']} of {by['passes']} decided it, {batch}: "
        f"its arc cost {cost_text(by['price'])}, {others}.{early}"
    ]


def core_price_sentences(facts: Facts) -> list[str]:
    """What cores are worth where they are short."""
    price = facts.get("core_price")
    if price is None:
        return []
    source = "the certificate's bound" if facts["part"]["prices"] == "forecast" else "the first network"
    return [
        f"Cores are short on {price['machine']} and its like: {source} prices them at "
        f"{cost_text(price['per_core'])} each, {cost_text(price['per_task'])} for this task."
    ]


def title_of(facts: Facts, task: str) -> str:
    """The name by which people know a task."""
    return str(facts["titles"].get(task, task))


def names_text(facts: Facts, tasks: Sequence[str]) -> str:
    """The first few names, and that there are more."""
    shown = ", ".join(title_of(facts, t) for t in tasks[:SHOWN])
    return f"{shown} and others" if len(tasks) > SHOWN else shown
