"""Sentences about a task that starts: where, what decided it, what else it could have had, and its neighbours."""

from __future__ import annotations

from flowsched.inspector.gpu_facts import gpu_sentences
from flowsched.inspector.task_sentences import (
    SHOWN,
    class_sentences,
    core_price_sentences,
    group_sentences,
    names_text,
    place_text,
    rival_sentence,
    shape_text,
    shared_cores,
    stage_sentences,
    title_of,
    why_left,
)
from flowsched.inspector.tied_machines import tied_sentences
from flowsched.inspector.wording import SMALL, Facts, cost_text, more_text, ms_text, seconds_text, terms_text


def placed_sentences(facts: Facts) -> list[str]:
    """The lines about a task that starts, the most important first."""
    title, place = facts["title"], facts["place"]
    lines = [f"{title} starts on {place['machine']}{shape_text(place)}: cost {cost_text(place['cost'])}."]
    if place["terms"]:
        lines.append(f"Its cost: {terms_text(place['terms'])}.")
    lines += gpu_sentences(facts.get("gpus"))
    lines += shared_cores(facts)
    lines += stage_sentences(facts)
    lines += _why_now(facts)
    lines += _rivals(facts)
    lines += tied_sentences(facts)
    lines += _neighbours(facts)
    lines += _services(facts)
    lines += _pressure(facts)
    lines += _then(facts)
    lines += group_sentences(facts)
    lines += class_sentences(facts)
    lines += core_price_sentences(facts)
    return lines


def _why_now(facts: Facts) -> list[str]:
    why = facts.get("why_now")
    lines = []
    for repair in facts["repairs"]:
        if repair["moved_to"] is not None:
            lines.append(
                f"The plan had it on {repair['machine']}; relation {repair['relation']} refused it there beside the others "
                f"that start, so it was moved to {repair['moved_to']}."
            )
    match why:
        case "due":
            waited, due_age = seconds_text(facts["waited_s"]), seconds_text(facts["due_age_s"])
            lines.append(
                f"It is overdue (it has waited {waited}, and is overdue after {due_age}): it had to start wherever it fits, "
                "whatever that costs."
            )
        case "group":
            lines.append("Its task group fits as a whole now, so it had to start with it, whatever that costs.")
        case "idle_machine":
            lines.append(
                "It was planned for later, but nothing that ends runs on this machine, and no other task was to start there "
                "before it: an idle machine starts at once."
            )
        case "nothing_runs":
            lines.append(
                "Nothing that ends runs anywhere, and no other task would have started: there was nothing to wait for."
            )
    return lines


def _rivals(facts: Facts) -> list[str]:
    best, waiting, elsewhere = facts["runner_up"], facts["waiting"], facts["alternatives"]
    if best is None:
        if facts.get("open_machines") is None and (facts["part"]["prices"] != "forecast" or not facts["models"]):
            return []
        return [
            "There was no other place for it"
            + (", and it takes any place rather than wait." if waiting is None else ".")
        ]
    cheaper = best["more"] < -SMALL
    own = facts["place"]["machine"]
    lines = [rival_sentence(best, "Cheaper, but left" if cheaper else "Runner-up", own)]
    if cheaper:
        lines.append(f"Why it was left: {why_left(facts, best)}.")
    if best["machine"] in (None, own) and elsewhere:
        lines.append(rival_sentence(elsewhere[0], "Best other machine"))
    if best["kind"] == "place" and waiting is not None:
        lines.append(rival_sentence(waiting, "Waiting"))
    further = [a for a in elsewhere if a["machine"] != best["machine"]][: SHOWN - 1]
    if best["machine"] not in (None, own) and further:
        listed = ", ".join(f"{place_text(a)} {more_text(a['more'])}" for a in further)
        lines.append(f"Then: {listed}.")
    if facts.get("open_machines"):
        count, cheap = facts["open_machines"], facts["as_cheap"]
        text = f"{count} other machine{'' if count == 1 else 's'} could take it"
        of_them = "" if cheap == count else f"{cheap} of them "
        lines.append(f"{text}, {of_them}without costing more." if cheap else f"{text}.")
    return lines


def _neighbours(facts: Facts) -> list[str]:
    place, found = facts["place"], facts["neighbours"]
    caused = next((t["cost"] for t in place["terms"] if t["term"] == "interference_caused"), 0.0)
    if facts["part"]["prices"] != "forecast":
        lines = (
            [f"It costs its neighbours on {place['machine']} {cost_text(caused)} in all."]
            if abs(caused) >= SMALL
            else []
        )
        return lines + (
            [f"Placed there too in this round: {names_text(facts, [n['task'] for n in found])}."] if found else []
        )
    if not found:
        return [f"Nothing else runs on {place['machine']}."] if facts["models"] else []
    lines = [f"It costs its neighbours on {place['machine']} {cost_text(caused)} in all:"]
    if (facts.get("gpus") or {}).get("disturbs"):
        left_out = "What jobs do to one another at sockets and on devices is left out of the following."
        lines = [left_out, *lines]
    words = {"runs": "runs there", "starts": "starts there too", "planned": "is planned there for later"}
    for n in found:
        who = f"  {title_of(facts, n['task'])} {words[n['status']]}"
        if n["later_s"] is None:
            slower = f"{n['slowdown']:.2f} times slower than alone, {n['slowdown_without']:.2f} without it"
            lines.append(f"{who}, without an end: {slower}.")
        elif abs(n["later_s"]) < 0.05:
            lines.append(f"{who} and ends in {seconds_text(n['end_s'])}, as it would without it.")
        else:
            change = f"{seconds_text(abs(n['later_s']))} {'later' if n['later_s'] > 0 else 'earlier'}"
            lines.append(
                f"{who} and ends in {seconds_text(n['end_s'])}, without it in {seconds_text(n['end_without_s'])}: {change}."
            )
    return lines


def _services(facts: Facts) -> list[str]:
    return [
        f"Service {s['service']} there: predicted peak p95 {ms_text(s['p95_ms'])}, "
        f"without it {ms_text(s['p95_without_ms'])}; "
        f"its goal is {ms_text(s['goal_ms'])}, so {s['headroom_percent']:.0f} % headroom is left."
        for s in facts.get("services", ())
    ]


def _pressure(facts: Facts) -> list[str]:
    pressure = facts.get("pressure")
    if pressure is None or pressure["cap"] is None:
        return []
    return [
        f"Its machine has latency services: pressure {cost_text(pressure['with_it'])} with it, "
        f"{cost_text(pressure['without_it'])} without it; they bear {cost_text(pressure['cap'])}. "
        f"The headroom that it takes costs {cost_text(pressure['cost'])}."
    ]


def _then(facts: Facts) -> list[str]:
    """What it cost when it was placed, if that was different."""
    then = facts.get("when_placed")
    if then is None or abs(then["cost"] - facts["place"]["cost"]) <= SMALL:
        return []
    return [f"When it was placed it cost {cost_text(then['cost'])}; those placed after it changed that."]
