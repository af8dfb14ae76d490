"""Sentences about a task that waits: why, what waiting and the closest place cost, and how long it can last."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from flowsched.cluster.snapshot import MILLI
from flowsched.inspector.overtaking import overtaking_sentences
from flowsched.inspector.shortage_sentences import help_sentences, refusal_sentences
from flowsched.inspector.task_sentences import (
    SHOWN,
    class_sentences,
    core_price_sentences,
    group_sentences,
    names_text,
    place_text,
    shared_cores,
    stage_sentences,
    title_of,
    why_left,
)
from flowsched.inspector.wait_cause import NoBound, WaitCause, waits_with_gang
from flowsched.inspector.wording import (
    SMALL,
    Facts,
    completions_text,
    cost_text,
    differences_text,
    made_of,
    more_text,
    ms_text,
    seconds_text,
)
from flowsched.round.extract import BelowDemand
from flowsched_models.quantity import count_cores

_WAITS: Mapping[str, str] = {
    WaitCause.NEVER: "waits: no machine that may take it would have room even if it were empty.",
    WaitCause.NOT_ALLOWED: "waits: none of the machines that it may run on is there.",
    WaitCause.CAPACITY: "waits: no machine that may take it has room now.",
    WaitCause.RELATION: "waits: wherever there is room, a relation to other tasks refuses it.",
    WaitCause.SERVICE: "waits: wherever there is room, it would break the p95 goal of a latency service.",
    WaitCause.GOAL: "waits: on every machine that it may run on it would miss its own p95 goal or have no cores of its own.",
    WaitCause.UTILITY: "waits: wherever there is room, it or another one would be too late to be of the use that it "
    "demands.",
    WaitCause.HELD: "waits: the machines with room are reserved for tasks that come before it.",
    WaitCause.PROMISED: "waits: the machines with room are planned for others.",
    WaitCause.RESERVED: "waits for the machine that is reserved for it.",
    WaitCause.GROUP: "waits with its task group, which starts whole or not at all.",
}
"""By cause, where nothing more special is to be said."""


def waiting_sentences(facts: Facts) -> list[str]:
    """The lines about a task that waits, the most important first."""
    lines = _headline(facts)
    if facts["part"] is None:
        return lines
    lines += stage_sentences(facts)
    lines += group_sentences(facts)
    lines += _repaired_away(facts)
    lines += _costs(facts)
    lines += shared_cores(facts)
    lines += _goal(facts)
    lines += refusal_sentences(facts)
    lines += help_sentences(facts)
    lines += _latency(facts)
    lines += overtaking_sentences(facts)
    lines += _reservation(facts)
    lines += _waited(facts)
    lines += _bound(facts)
    lines += class_sentences(facts)
    return lines


def _headline(facts: Facts) -> list[str]:
    title, told = facts["title"], facts["told"]
    own = _own_headline(facts)
    if told is None:
        return [f"{title} {own}"]
    first = f"{title}: {told['message']}"
    return [first] if own is None or facts["cause"] in (WaitCause.UNKNOWN, WaitCause.FAULT) else [first, f"It {own}"]


def _likely(likely: Facts | None) -> str:
    """When it starts and ends, as far as that can be told."""
    if likely is None:
        return ""
    spans = [
        f"{verb} between {seconds_text(likely[key][0])} and {seconds_text(likely[key][1])} from now"
        for verb, key in (("starts", "start_s"), ("ends", "end_s"))
        if likely[key] is not None
    ]
    return f" In four of five cases it {' and '.join(spans)}."


def _own_headline(facts: Facts) -> str:
    closest, cause = facts.get("closest"), facts["cause"]
    now = None if closest is None else f"starting now costs {cost_text(closest['cost'])} on {closest['machine']}"
    match cause:
        case WaitCause.PLANNED:
            planned = facts["planned"]
            what = f"waits for {completions_text(planned['slot'])} on {planned['machine']}"
            if planned["start_s"] is not None:
                what += f", in about {seconds_text(planned['start_s'])}"
            likely = _likely(planned.get("likely"))
            if now is None:
                return (f"{what}: there is no place for it now." if facts["models"] else f"{what}.") + likely
            return f"{what}: {now}, waiting for that costs {cost_text(facts['cost'])}.{likely}"
        case WaitCause.COST if facts.get("better_gpus") is not None:
            return f"{BelowDemand(**facts['better_gpus']).text}."
        case WaitCause.COST if now is not None:
            limit = facts.get("limit")
            if limit is not None:
                most = "waiting costs" if limit["kind"] == "waiting" else "it may cost at most"
                return f"waits: {now}, {most} {cost_text(limit['cost'])}."
            if facts.get("cost") is not None:
                return f"waits: {now}, waiting costs {cost_text(facts['cost'])}."
            return f"waits: {now}."
        case WaitCause.NEVER if not facts["shortage"]["too_small"]:
            return "waits: no machine that may take it has room for it beside its services and tasks without an end."
        case WaitCause.SERVICE if (facts.get("bound") or {}).get("why_not") == NoBound.INFEASIBLE:
            return (
                "waits, and no machine could take it without breaking the p95 goal of a latency service, even if empty."
            )
        case WaitCause.RESERVED if waits_with_gang(facts):
            return (
                "waits for the machine that is reserved for it, with its task group, which starts whole or not at all."
            )
        case _ if cause in _WAITS:
            return _WAITS[cause]
        case _:
            reason = facts.get("reason")
            if reason and reason.startswith("waits "):
                return f"{reason}."
            return f"waits: {reason}." if reason else "waits."


def _repaired_away(facts: Facts) -> list[str]:
    lines = []
    for repair in facts["repairs"]:
        if repair["moved_to"] is None:
            why = (
                f"relation {repair['relation']} refused it there beside the others that start"
                if repair["relation"] is not None
                else "its task group became too small to start"
            )
            lines.append(f"The plan had it on {repair['machine']}; {why}.")
    return lines


def _costs(facts: Facts) -> list[str]:
    """Waiting and the place that came closest: what they are made of, and what would have had to change."""
    closest, cause = facts.get("closest"), facts["cause"]
    lines = []
    if facts.get("terms"):
        what = "Its planned place" if cause == WaitCause.PLANNED else "Waiting"
        lines.append(f"{what} costs {made_of(facts['cost'], facts['terms'])}.")
    if closest is None:
        return lines
    together = waits_with_gang(facts)
    alone = ", if its group let it," if together else ""
    lines.append(
        f"Starting now on {place_text(closest)}{alone} would cost {made_of(closest['cost'], closest['terms'])}."
    )
    more = closest["more"]
    needed = facts.get("needed_waiting")
    if needed is None and more is not None and abs(more) >= SMALL and cause in (WaitCause.PLANNED, WaitCause.COST):
        than = "its planned place" if cause == WaitCause.PLANNED else "waiting"
        rows = (
            f": {differences_text(closest['differences'])}"
            if cause == WaitCause.PLANNED and closest["differences"]
            else ""
        )
        lines.append(f"That is {more_text(more)} than {than}{rows}.")
        if more < 0.0:
            lines.append(f"Why that was left: {why_left(facts, closest)}.")
    if needed is not None:
        text = f"It would start there if waiting cost {cost_text(needed['more'])} more."
        if needed["reached_at_age_s"] is not None:
            text += (
                f" Its age counts for {cost_text(needed['w'])} now, and for {cost_text(needed['w_needed'])} at an age of "
                f"{seconds_text(needed['reached_at_age_s'])}: that would do, if nothing else changed."
            )
        else:
            text += f" Its age alone never makes up for that: it counts for {cost_text(needed['w_most'])} at most."
        lines.append(text)
    return lines if together else lines + core_price_sentences(facts)


def _latency(facts: Facts) -> list[str]:
    found = facts.get("latency") or []
    return [
        f"On {f['machine']} the p95 of {f['service']} would rise to {ms_text(f['p95_ms'])}; "
        f"its goal is {ms_text(f['goal_ms'])}."
        for f in found[:SHOWN]
    ]


def _goal(facts: Facts) -> list[str]:
    """The goal of a service that waits, which p95 it could have, and with how many cores."""
    goal = facts.get("goal")
    if goal is None:
        return []
    lines = [f"Its goal is a p95 of {ms_text(goal['goal_us'] / 1000.0)} at {goal['qps']:,.0f} queries a second."]
    cores, enough = count_cores(goal["cores"] * MILLI), goal["enough_cores"]
    if goal["own_us"] is None:
        lines.append(f"It was not measured with {cores}, or no machine here has so many.")
    else:
        lines.append(f"Alone with {cores} it would have {ms_text(goal['own_us'] / 1000.0)} at best.")
    if enough is not None and (goal["own_us"] is None or goal["cores"] < enough):
        lines.append(f"It could be met with {count_cores(enough * MILLI)}.")
    elif enough is not None:
        lines.append("What runs there, or cores that are taken, leave no machine where it would be met.")
    elif goal["lowest_us"] is not None:
        lowest = f"{ms_text(goal['lowest_us'] / 1000.0)}, with {count_cores(goal['lowest_cores'] * MILLI)}"
        lines.append(f"No measured number of cores meets it here: the lowest p95 is {lowest}.")
    return [" ".join(lines)]


def _reservation(facts: Facts) -> list[str]:
    lines = []
    if facts["cause"] == WaitCause.HELD:
        lines += [
            f"{r['machine']} is reserved for {title_of(facts, r['task'])} ({count_cores(r['width_milli'])}), "
            + ("and drains." if r["in_s"] is None else f"predicted to be free {_from_now(r['in_s'])}.")
            for r in facts["other_reservations"]
        ]
    reservation = facts.get("reservation")
    if reservation is not None and reservation["start_s"] is None:
        lines.append(f"{reservation['machine']} drains for it: pods of its priority or lower may not start there.")
    elif reservation is not None:
        which = "only those that are gone by then may" if reservation["in_s"] > 0.0 else "none may"
        lines.append(
            f"{reservation['machine']} is reserved for it ({count_cores(reservation['width_milli'])}), predicted to be free "
            f"{_from_now(reservation['in_s'])}; of the tasks that come after it {which} start there."
        )
    return lines


def _waited(facts: Facts) -> list[str]:
    waited, rounds = facts.get("waited_s"), facts.get("rounds_waited")
    if waited is None:
        return []
    text = f"It has waited {seconds_text(waited)}"
    if rounds is not None and rounds > 1:
        return [f"{text}, through {rounds} rounds, this one included."]
    return [f"{text}."] if waited >= 0.5 else []


def _bound(facts: Facts) -> list[str]:
    bound = facts.get("bound")
    if bound is None:
        return []
    due_age = seconds_text(bound["due_age_s"])
    due = "It is overdue" if bound["due"] else f"It is overdue after {due_age}"
    if bound["bounded"]:
        each = f"({seconds_text(bound['longest_run_s'])} + {seconds_text(bound['round_s'])}, a round)"
        sum_ = f"{bound['turns']} x {each}"
        most = (
            f"{seconds_text(bound['left_s'])} from now: {sum_}"
            if bound["due"]
            else f"{seconds_text(bound['most_s'])} after its submission: {due_age} + {sum_}"
        )
        who = "it starts" if bound["group"] is None else f"task group {bound['group']} starts"
        return [
            f"{due}. {_ahead(facts, bound['ahead'])}.",
            f"By the bound of the due age {who} at most about {most}, if no run takes longer than "
            f"{seconds_text(bound['longest_run_s'])}. That is an estimate from predicted run times, not a promise: "
            "tasks of higher priority, and longer runs that arrive before it is due or before its turn, can make it wait "
            "longer.",
        ]
    match bound["why_not"]:
        case NoBound.NOT_LOOKED_AT:
            return [f"{due}. {_ahead(facts, bound['ahead'])}."]
        case NoBound.INFEASIBLE:
            return ["There is no bound on its waiting: as the machines are, it never starts."]
        case NoBound.RELATION:
            return ["There is no bound on its waiting while a relation refuses it on every machine that could take it."]
        case NoBound.GROUP_INCOMPLETE:
            return [f"{due}, but there is no bound on its waiting before its task group is complete."]
        case NoBound.GROUP_EXPIRED:
            return [
                "There is no bound on its waiting: its task group's deadline has passed, so nothing is reserved for it."
            ]
        case NoBound.GROUP_NEVER:
            needs, room = bound["group_needs"], bound["group_room"]
            places = f"{needs} place{'' if needs == 1 else 's'}"
            return [
                f"There is no bound on its waiting: the group needs {places} and the cluster has {room} when "
                "everything that ends has ended."
            ]
        case NoBound.GROUP_UNRESERVED:
            needs = bound["group_needs"]
            return [
                f"There is no bound on its waiting: the group needs {needs} places, and no machines are found that can be "
                "reserved for all of them."
            ]
        case _:
            why = "some tasks run without an end or with none that is known, and what runs is not moved for it"
            return [f"{due}. {_ahead(facts, bound['ahead'])}, but there is no bound on its waiting: {why}."]


def _ahead(facts: Facts, tasks: Sequence[str]) -> str:
    """Tasks that are served before it, without a full stop."""
    if not tasks:
        return "No task is ahead of it"
    count = len(tasks)
    verb = "is" if count == 1 else "are"
    return f"{count} task{'' if count == 1 else 's'} ({names_text(facts, tasks)}) {verb} ahead of it"


def _from_now(seconds: float) -> str:
    """When something is, or was: a clock's seconds say nothing to people."""
    return f"in {seconds_text(seconds)}" if seconds > 0.0 else f"{seconds_text(-seconds)} ago"
