"""An explanation's data as sentences for somebody who is tired: short, the most important first.

Every number here is one of the data, rounded; nothing is computed but units.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from flowsched.snapshot import MILLI

Facts = Mapping[str, Any]

TERMS: Mapping[str, str] = {
    "run_time": "its own run time",
    "wait_for_slot": "waiting for its turn",
    "interference_suffered": "what its neighbours cost it",
    "interference_caused": "what it costs its neighbours",
    "slo_headroom": "latency headroom",
    "preference": "preferences",
    "completion_if_postponed": "completing later",
    "waiting": "having waited",
}
"""Terms of costs in plain words; others are named as they are."""
_SHOWN = 3
_SMALL = 5e-5


def sentences(facts: Facts) -> list[str]:
    """The lines of an explanation."""
    match facts["fate"]:
        case "placed":
            lines = _placed(facts)
        case "runs":
            lines = _runs(facts)
        case _:
            lines = _waits(facts)
    if facts.get("models_missing"):
        lines.append(f"More cannot be said: {facts['models_missing']}.")
    return lines


# Placed


def _placed(facts: Facts) -> list[str]:
    title, place = facts["title"], facts["place"]
    lines = [f"{title} starts on {place['machine']}{_shape(place)}: cost {_cost(place['cost'])}."]
    if place["terms"]:
        lines.append(f"Its cost: {_terms(place['terms'])}.")
    lines += _why_now(facts)
    lines += _rivals(facts)
    lines += _neighbours(facts)
    lines += _services(facts)
    lines += _pressure(facts)
    lines += _then(facts)
    lines += _group(facts)
    lines += _class(facts)
    lines += _core_price(facts)
    return lines


def _shape(place: Facts) -> str:
    """Width, threads and cores, as far as they are known."""
    parts = []
    if place.get("width_milli") is not None:
        parts.append(f"width {_cores(place['width_milli'])}")
    if place.get("threads") is not None:
        count = place["threads"]
        cores = place.get("cores")
        on = f" on core{'' if len(cores) == 1 else 's'} {_ranges(cores)}" if cores else ""
        parts.append(f"{count} thread{'' if count == 1 else 's'}{on}")
    return f" ({', '.join(parts)})" if parts else ""


def _why_now(facts: Facts) -> list[str]:
    why = facts.get("why_now")
    lines = []
    for repair in facts["repairs"]:
        if repair["moved_to"] is not None:
            lines.append(
                f"The plan had it on {repair['machine']}; relation {repair['relation']} refused it there beside the others "
                f"who start, so it was moved to {repair['moved_to']}."
            )
    match why:
        case "due":
            waited, due_age = _seconds(facts["waited_s"]), _seconds(facts["due_age_s"])
            lines.append(
                f"It is due (it has waited {waited}, the due age is {due_age}): it had to start wherever it fits, whatever "
                "that costs."
            )
        case "group":
            lines.append("Its task group fits as a whole now, so it had to start with it, whatever that costs.")
        case "idle_machine":
            lines.append(
                "It was planned for later, but nothing will complete on this machine: an idle one starts at once."
            )
        case "nothing_runs":
            lines.append("Nothing runs anywhere and nobody else would have started, so there was nothing to wait for.")
    return lines


def _rivals(facts: Facts) -> list[str]:
    best, waiting = facts["runner_up"], facts["waiting"]
    if best is None:
        if facts.get("open_machines") is None and facts["part"]["kind"] == "wide":
            return []
        return [
            "There was no other place for it"
            + (", and it takes any place rather than wait." if waiting is None else ".")
        ]
    lines = [_rival(best, "Runner-up")]
    if best["kind"] == "place" and waiting is not None:
        lines.append(_rival(waiting, "Waiting"))
    elif best["kind"] == "waiting" and facts["alternatives"]:
        lines.append(_rival(facts["alternatives"][0], "Best other machine"))
    cheaper = [r for r in (best, waiting) if r is not None and r["more"] < -_SMALL]
    if cheaper and facts.get("why_now") is None:
        lines.append(_left(facts))
    further = [a for a in facts["alternatives"] if a["machine"] != best["machine"]][: _SHOWN - 1]
    if best["kind"] == "place" and further:
        listed = ", ".join(f"{_where(a)} {_more(a['more'])}" for a in further)
        lines.append(f"Then: {listed}.")
    if facts.get("open_machines"):
        count, cheap = facts["open_machines"], facts["as_cheap"]
        text = f"{count} other machine{'' if count == 1 else 's'} could take it"
        of_them = "" if cheap == count else f"{cheap} of them "
        lines.append(f"{text}, {of_them}without costing more." if cheap else f"{text}.")
    return lines


def _left(facts: Facts) -> str:
    if facts.get("makespan"):
        return (
            "That is cheaper, but for a makespan plans are judged by who is left without a place, then by the last end."
        )
    if facts.get("search_ended_early"):
        return "That is cheaper: the search had used up its forecasts (setting pricings) before it found that."
    if facts["part"]["kind"] == "wide":
        return "That is cheaper by now: those who were placed after it changed the prices."
    return "That is cheaper, but the search did not find a plan in which it helps."


def _rival(rival: Facts, what: str) -> str:
    name = "waiting" if rival["kind"] == "waiting" else _where(rival)
    head = f"{what}: {name}" if what.lower() != name else what
    if abs(rival["more"]) < _SMALL:
        return f"{head} costs the same, {_cost(rival['cost'])}."
    text = f"{head} costs {_cost(rival['cost'])}, {_more(rival['more'])}"
    if rival["kind"] == "waiting":
        return f"{text}; that is {_terms(rival['terms'])}." if rival["terms"] else f"{text}."
    return f"{text}: {_differences(rival['differences'])}." if rival["differences"] else f"{text}."


def _where(place: Facts) -> str:
    slot, width = place.get("slot"), place.get("width_milli")
    text = str(place["machine"])
    if slot:
        text += f" after {_completions(slot)}"
    if width is not None:
        text += f" at width {width / MILLI:g}"
    return text


def _neighbours(facts: Facts) -> list[str]:
    place, found = facts["place"], facts["neighbours"]
    caused = next((t["cost"] for t in place["terms"] if t["term"] == "interference_caused"), 0.0)
    if facts["part"]["kind"] == "wide":
        lines = (
            [f"It costs its neighbours on {place['machine']} {_cost(caused)} in all."] if abs(caused) >= _SMALL else []
        )
        return lines + (
            [f"Placed there too in this round: {_names(facts, [n['task'] for n in found])}."] if found else []
        )
    if not found:
        return [f"Nobody else runs on {place['machine']}."] if facts["models"] else []
    lines = [f"It costs its neighbours on {place['machine']} {_cost(caused)} in all:"]
    words = {"runs": "runs there", "starts": "starts there too", "planned": "is planned there for later"}
    for n in found:
        who = f"  {_title(facts, n['task'])} {words[n['status']]}"
        if n["later_s"] is None:
            slower = f"{n['slowdown']:.2f} times slower than alone, {n['slowdown_without']:.2f} without it"
            lines.append(f"{who}, without an end: {slower}.")
        elif abs(n["later_s"]) < 0.05:
            lines.append(f"{who} and ends in {_seconds(n['end_s'])}, as it would without it.")
        else:
            change = f"{_seconds(abs(n['later_s']))} {'later' if n['later_s'] > 0 else 'earlier'}"
            lines.append(
                f"{who} and ends in {_seconds(n['end_s'])}, without it in {_seconds(n['end_without_s'])}: {change}."
            )
    return lines


def _services(facts: Facts) -> list[str]:
    return [
        f"Service {s['service']} there: predicted peak p95 {_ms(s['p95_ms'])}, without it {_ms(s['p95_without_ms'])}; its "
        f"goal is {_ms(s['goal_ms'])}, so {s['headroom_percent']:.0f} % headroom is left."
        for s in facts.get("services", ())
    ]


def _pressure(facts: Facts) -> list[str]:
    pressure = facts.get("pressure")
    if pressure is None or pressure["cap"] is None:
        return []
    return [
        f"Its machine has latency services: pressure {_cost(pressure['with_it'])} with it, {_cost(pressure['without_it'])} "
        f"without it; they bear {_cost(pressure['cap'])}. The headroom that it takes costs {_cost(pressure['cost'])}."
    ]


def _then(facts: Facts) -> list[str]:
    then = facts.get("when_placed")
    if then is None:
        return []
    if then["runner_up"] is None:
        return [f"When it was placed it cost {_cost(then['cost'])}."]
    if then["runner_up_cost"] is None:
        return [f"When it was placed it cost {_cost(then['cost'])}, and {then['runner_up']} was next."]
    return [
        f"When it was placed it cost {_cost(then['cost'])}, and {then['runner_up']} was next with "
        f"{_cost(then['runner_up_cost'])}; those placed after it changed that."
        if abs(then["cost"] - facts["place"]["cost"]) > _SMALL
        else f"When it was placed it cost the same, and {then['runner_up']} was next with {_cost(then['runner_up_cost'])}."
    ]


def _class(facts: Facts) -> list[str]:
    found = facts.get("class")
    if found is None or found["tasks"] < 2:
        return []
    tasks = f"{found['tasks']} task{'' if found['tasks'] == 1 else 's'}"
    groups = f"{found['groups']} group{'' if found['groups'] == 1 else 's'} of machines"
    text = f"Its class, {found['class']}, has {tasks}: the first network sent {_count(found['sent'])} to {groups}"
    return [f"{text} and left {_count(found['waiting'])}." if found["waiting"] else f"{text}."]


def _core_price(facts: Facts) -> list[str]:
    price = facts.get("core_price")
    if price is None:
        return []
    return [
        f"Cores are short on {price['machine']} and its like: the first network prices them at "
        f"{_cost(price['per_core'])} each, {_cost(price['per_task'])} for this task."
    ]


# Runs


def _runs(facts: Facts) -> list[str]:
    place = facts["place"]
    shape = _shape(place)
    lines = [f"{facts['title']} runs on {place['machine']}{shape}, bound at {_seconds(place['bound_s'])}"]
    if place.get("since_s") is not None:
        lines[0] += f", {_seconds(place['since_s'])} ago"
    lines[0] += ". This round had nothing to decide on it."
    if place.get("end_s") is not None:
        done = f"{place['progress_percent']:.0f} % done"
        lines.append(f"It is believed to be {done}, and predicted to end in {_seconds(place['end_s'])}.")
    return lines


# Waits


def _waits(facts: Facts) -> list[str]:
    lines = _headline(facts)
    if facts["part"] is None:
        return lines
    lines += _group(facts)
    lines += _repaired_away(facts)
    lines += _costs(facts)
    lines += _refusals(facts)
    lines += _help(facts)
    lines += _latency(facts)
    lines += _reservation(facts)
    lines += _waited(facts)
    lines += _bound(facts)
    lines += _class(facts)
    return lines


def _headline(facts: Facts) -> list[str]:
    title, told = facts["title"], facts["told"]
    own = _own_headline(facts)
    if told is None:
        return [f"{title} {own}"]
    first = f"{title}: {told['message']}"
    return [first] if own is None or facts["cause"] in ("unknown", "fault") else [first, f"It {own}"]


def _own_headline(facts: Facts) -> str:
    closest, cause = facts.get("closest"), facts["cause"]
    now = None if closest is None else f"starting now costs {_cost(closest['cost'])} on {closest['machine']}"
    match cause:
        case "planned":
            planned = facts["planned"]
            what = f"waits for {_completions(planned['slot'])} on {planned['machine']}"
            if planned["start_s"] is not None:
                what += f", in about {_seconds(planned['start_s'])}"
            if now is None:
                return f"{what}: there is no place for it now. Its place there costs {_cost(facts['cost'])}."
            return f"{what}: {now}, waiting for that costs {_cost(facts['cost'])}."
        case "cost" if now is not None:
            limit = facts.get("limit")
            if limit is not None:
                most = "waiting costs" if limit["kind"] == "waiting" else "it may cost at most"
                return f"waits: {now}, {most} {_cost(limit['cost'])}."
            if facts.get("cost") is not None:
                return f"waits: {now}, waiting costs {_cost(facts['cost'])}."
            return f"waits: {now}."
        case "never":
            return "waits: no machine that may take it would have room even if it were empty."
        case "not_allowed":
            return "waits: none of the machines that it may run on is there."
        case "capacity":
            return "waits: no machine that may take it has room now."
        case "relation":
            return "waits: wherever there is room, a relation to other tasks refuses it."
        case "service" if (facts.get("bound") or {}).get("why_not") == "infeasible":
            return (
                "waits, and no machine could take it without breaking the p95 goal of a latency service, even if empty."
            )
        case "service":
            return "waits: wherever there is room, it would break the p95 goal of a latency service."
        case "utility":
            return (
                "waits: wherever there is room, it or another one would be too late to be of the use that it demands."
            )
        case "held":
            return "waits: the machines with room are reserved for tasks that have waited longer."
        case "promised":
            return "waits: the machines with room are planned for others."
        case "reserved":
            return "waits for the machine that is reserved for it."
        case "group":
            return "waits with its task group, which starts whole or not at all."
        case _:
            reason = facts.get("reason")
            return f"waits: {reason}." if reason else "waits."


def _group(facts: Facts) -> list[str]:
    group = facts.get("group")
    if group is None or group["minimum"] is None:
        return []
    name, minimum = group["name"], group["minimum"]
    there = f"{group['running']} run, {group['pending']} are pending"
    if group["missing"]:
        return [f"Task group {name} needs {minimum} together; {there}: {group['missing']} more must come first."]
    if group["starts"]:
        return [
            f"Task group {name} needs {minimum} together; {there}, and it starts: {_names(facts, group['starting'])}."
        ]
    others = [m for m in group["members"] if m != facts["task"]]
    with_whom = f" With it wait: {_names(facts, others)}." if others else ""
    reason = facts.get("reason")
    why = f" {reason[:1].upper()}{reason[1:]}." if reason and facts["cause"] == "group" else ""
    return [f"Task group {name} needs {minimum} together; {there}.{why}{with_whom}"]


def _repaired_away(facts: Facts) -> list[str]:
    lines = []
    for repair in facts["repairs"]:
        if repair["moved_to"] is None:
            why = (
                f"relation {repair['relation']} refused it there beside the others who start"
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
        what = "Its planned place" if cause == "planned" else "Waiting"
        lines.append(f"{what} costs {_made_of(facts['cost'], facts['terms'])}.")
    if closest is None:
        return lines
    alone = ", if its group let it," if cause == "group" else ""
    lines.append(f"Starting now on {_where(closest)}{alone} would cost {_made_of(closest['cost'], closest['terms'])}.")
    more = closest["more"]
    needed = facts.get("needed_waiting")
    if needed is None and more is not None and abs(more) >= _SMALL and cause in ("planned", "cost"):
        than = "its planned place" if cause == "planned" else "waiting"
        rows = f": {_differences(closest['differences'])}" if cause == "planned" and closest["differences"] else ""
        lines.append(f"That is {_more(more)} than {than}{rows}.")
        if more < 0.0:
            lines.append(_left(facts))
    if needed is not None:
        text = f"It would start there if waiting cost {_cost(needed['more'])} more."
        if needed["reached_at_age_s"] is not None:
            text += (
                f" Its age counts for {_cost(needed['w'])} now, and for {_cost(needed['w_needed'])} at an age of "
                f"{_seconds(needed['reached_at_age_s'])}: that would do, if nothing else changed."
            )
        else:
            text += f" Its age alone never makes up for that: it counts for {_cost(needed['w_most'])} at most."
        lines.append(text)
    return lines + _core_price(facts)


def _refusals(facts: Facts) -> list[str]:
    table = facts.get("refusals")
    if table is None or not table["rows"]:
        return []
    told = facts["told"]
    lines = []
    if table["available"]:
        lines.append(f"{table['available']} of {table['machines']} machines could take it now. The others:")
    elif told is None or not told["counts"]:
        lines.append(table["message"])
    alone = len(table["rows"]) == 1 and lines == [table["message"]]
    for row in table["rows"]:
        names = ", ".join(row["names"]) + (f" and {row['more']} more" if row["more"] else "")
        note = ""
        if row["also"]:
            note = f" ({row['also']} of them refused for another reason first)"
        what = "These are" if alone else f"{row['reason']}:"
        lines.append(f"  {what} {names}{note}.")
    return lines


def _help(facts: Facts) -> list[str]:
    short = facts.get("shortage")
    if short is None or facts["cause"] not in (
        "never",
        "capacity",
        "relation",
        "group",
        "reserved",
        "planned",
    ):
        return []
    units = short["units"]
    if short["never"]:
        lacking = [x for x in short["largest"] if not x["suffices"]]
        if not lacking:
            return ["Each machine lacks something of what it asks for, even if it were empty."]
        parts = [
            f"{x['machine']} has the most {x['resource']}, {_amount(x['most'], x['resource'], units)}, and it asks for "
            f"{_amount(x['asks'], x['resource'], units)}"
            for x in lacking
        ]
        return [f"What would help: a larger machine, or a smaller task. {'; '.join(parts)}."]
    emptiest = short["emptiest"]
    if emptiest is None:
        return []
    lacking = [x for x in emptiest["resources"] if x["short"]]
    if not lacking:
        return []
    parts = [
        f"{_amount(x['short'], x['resource'], units)}{'' if x['resource'] == 'cpu' else ' of ' + x['resource']} short (free "
        f"{_amount(x['free'], x['resource'], units)}, asked for {_amount(x['asks'], x['resource'], units)})"
        for x in lacking
    ]
    lines = [f"What would help: room on {emptiest['machine']}, which misses least: {', '.join(parts)}."]
    if short["started_there"]:
        lines.append(f"This round started there: {_names(facts, short['started_there'])}.")
    return lines + (_core_price(facts) if facts.get("closest") is None else [])


def _latency(facts: Facts) -> list[str]:
    found = facts.get("latency") or []
    return [
        f"On {f['machine']} the p95 of {f['service']} would rise to {_ms(f['p95_ms'])}; its goal is {_ms(f['goal_ms'])}."
        for f in found[:_SHOWN]
    ]


def _reservation(facts: Facts) -> list[str]:
    lines = []
    if facts["cause"] == "held":
        lines += [
            f"{r['machine']} is reserved for {_title(facts, r['task'])} ({_cores(r['width_milli'])}), predicted to be free "
            f"at {_seconds(r['start_s'])}."
            for r in facts["other_reservations"]
        ]
    reservation = facts.get("reservation")
    if reservation is not None and reservation["start_s"] is None:
        lines.append(f"{reservation['machine']} drains for it: pods of its priority or lower may not start there.")
    elif reservation is not None:
        lines.append(
            f"{reservation['machine']} is reserved for it ({_cores(reservation['width_milli'])}), predicted to be free at "
            f"{_seconds(reservation['start_s'])}; only tasks that are gone by then may still start there."
        )
    return lines


def _waited(facts: Facts) -> list[str]:
    waited, rounds = facts.get("waited_s"), facts.get("rounds_waited")
    if waited is None:
        return []
    text = f"It has waited {_seconds(waited)}"
    return [f"{text}, through {rounds} round{'' if rounds == 1 else 's'}, this one included." if rounds else f"{text}."]


def _bound(facts: Facts) -> list[str]:
    bound = facts.get("bound")
    if bound is None:
        return []
    due_age = _seconds(bound["due_age_s"])
    due = "It is due" if bound["due"] else f"It is due after {due_age}"
    if bound["bounded"]:
        ahead = len(bound["ahead"])
        who = f"{ahead} task{'' if ahead == 1 else 's'} ({_names(facts, bound['ahead'])})" if ahead else "Nobody"
        verb = "are" if ahead > 1 else "is"
        each = (
            f"({_seconds(bound['longest_run_s'])}, the longest predicted run, + {_seconds(bound['round_s'])}, a round)"
        )
        sum_ = f"{bound['turns']} x {each}"
        most = (
            f"at most {_seconds(bound['left_s'])} from now: {sum_}"
            if bound["due"]
            else f"at most {_seconds(bound['most_s'])} after its submission: {due_age} + {sum_}"
        )
        return [f"{due}. {who} {verb} ahead of it, so it starts {most}; unless tasks of higher priority arrive."]
    match bound["why_not"]:
        case "infeasible":
            return ["There is no bound on its waiting: as the machines are, it never starts."]
        case "relation":
            return ["There is no bound on its waiting while a relation refuses it on every machine that could take it."]
        case "group_incomplete":
            return [f"{due}, but there is no bound on its waiting before its task group is complete."]
        case "group_expired":
            return [
                "There is no bound on its waiting: its task group's deadline has passed, so nothing is reserved for it."
            ]
        case _:
            ahead = len(bound["ahead"])
            verb = "are" if ahead > 1 else "is"
            who = f"{ahead} task{'' if ahead == 1 else 's'} ({_names(facts, bound['ahead'])})" if ahead else "Nobody"
            why = "some tasks run without an end or with none that is known, and what runs is not moved for it"
            return [f"{due}. {who} {verb} ahead of it, but there is no bound on its waiting: {why}."]


# Words and numbers


def _made_of(cost: float, terms: Sequence[Facts]) -> str:
    """A cost and its terms, without repeating the number where there is only one."""
    shown = [t for t in terms if abs(t["cost"]) >= _SMALL]
    if len(shown) == 1:
        return f"{_cost(cost)}, for {_term(shown[0]['term'])}"
    return f"{_cost(cost)}: {_terms(shown)}" if shown else _cost(cost)


def _terms(terms: Sequence[Facts]) -> str:
    shown = [t for t in terms if abs(t["cost"]) >= _SMALL]
    return ", ".join(f"{_cost(t['cost'])} for {_term(t['term'])}" for t in shown) or "nothing"


def _differences(rows: Sequence[Facts]) -> str:
    shown = [r for r in rows if abs(r["more"]) >= _SMALL]
    return ", ".join(f"{_term(r['term'])} {_signed(r['more'])}" for r in shown) or "no term differs much"


def _term(name: str) -> str:
    return TERMS.get(name, name.replace("_", " "))


def _more(more: float) -> str:
    if abs(more) < _SMALL:
        return "as much"
    return f"{_cost(abs(more))} {'more' if more > 0 else 'less'}"


def _signed(more: float) -> str:
    return f"{'+' if more > 0 else '-'}{_cost(abs(more))}"


def _cost(value: float) -> str:
    """Two decimals, or four where two say nothing."""
    if abs(value) < _SMALL:
        return "0"
    if abs(value) >= 0.1:
        return f"{value:.2f}"
    return f"{value:.4f}".rstrip("0")


def _seconds(value: float) -> str:
    return f"{value:.0f} s" if abs(value) >= 100 or value == round(value) else f"{value:.1f} s"


def _ms(value: float) -> str:
    return f"{value:.2f} ms"


def _count(value: float) -> str:
    return f"{value:.0f}" if abs(value - round(value)) < 0.05 else f"{value:.1f}"


def _cores(milli: int) -> str:
    return f"{milli / MILLI:g} core{'' if milli == MILLI else 's'}"


def _amount(value: int, resource: str, units: Mapping[str, str]) -> str:
    match units.get(resource, ""):
        case "milli":
            return _cores(value)
        case "MiB":
            return f"{value} MiB"
        case "bytes" if abs(value) >= 1 << 20:
            return f"{value / (1 << 20):.0f} MiB" if abs(value) < 10 << 30 else f"{value / (1 << 30):.1f} GiB"
        case _:
            return str(value)


def _completions(slot: int) -> str:
    return "the next completion" if slot == 1 else f"{slot} completions"


def _ranges(numbers: Sequence[int]) -> str:
    """For example ``0-3,5``."""
    parts: list[list[int]] = []
    for n in sorted(numbers):
        if parts and parts[-1][-1] == n - 1:
            parts[-1].append(n)
        else:
            parts.append([n])
    return ",".join(str(p[0]) if len(p) == 1 else f"{p[0]}-{p[-1]}" for p in parts)


def _title(facts: Facts, task: str) -> str:
    return str(facts["titles"].get(task, task))


def _names(facts: Facts, tasks: Sequence[str]) -> str:
    """The first few names, and that there are more."""
    shown = ", ".join(_title(facts, t) for t in tasks[:_SHOWN])
    return f"{shown} and others" if len(tasks) > _SHOWN else shown
