"""An explanation's data as sentences for somebody who is tired: short, the most important first.

Every number here is one of the data, rounded; nothing is computed but units.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from flowsched.inspector.wording import (
    SMALL,
    Facts,
    amount_text,
    completions_text,
    cost_text,
    count_text,
    differences_text,
    made_of,
    more_text,
    ms_text,
    seconds_text,
    terms_text,
)
from flowsched.snapshot import MILLI
from flowsched_models.quantity import count_cores, format_cores

_SHOWN = 3


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
    lines = [f"{title} starts on {place['machine']}{_shape(place)}: cost {cost_text(place['cost'])}."]
    if place["terms"]:
        lines.append(f"Its cost: {terms_text(place['terms'])}.")
    lines += _shared(facts)
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
        parts.append(f"width {count_cores(place['width_milli'])}")
    if place.get("threads") is not None:
        count = place["threads"]
        cores = place.get("cores")
        on = f" on core{'' if len(cores) == 1 else 's'} {format_cores(cores)}" if cores else ""
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
            waited, due_age = seconds_text(facts["waited_s"]), seconds_text(facts["due_age_s"])
            lines.append(
                f"It is due (it has waited {waited}, the due age is {due_age}): it had to start wherever it fits, whatever "
                "that costs."
            )
        case "group":
            lines.append("Its task group fits as a whole now, so it had to start with it, whatever that costs.")
        case "idle_machine":
            lines.append(
                "It was planned for later, but nothing that ends runs on this machine, and nobody else was to start there "
                "before it: an idle machine starts at once."
            )
        case "nothing_runs":
            lines.append(
                "Nothing that ends runs anywhere, and nobody else would have started: there was nothing to wait for."
            )
    return lines


def _rivals(facts: Facts) -> list[str]:
    best, waiting, elsewhere = facts["runner_up"], facts["waiting"], facts["alternatives"]
    if best is None:
        if facts.get("open_machines") is None and facts["part"]["kind"] != "search":
            return []
        return [
            "There was no other place for it"
            + (", and it takes any place rather than wait." if waiting is None else ".")
        ]
    cheaper = best["more"] < -SMALL
    own = facts["place"]["machine"]
    lines = [_rival(best, "Cheaper, but left" if cheaper else "Runner-up", own)]
    if cheaper:
        lines.append(f"Why it was left: {_left(facts, best)}.")
    if best["machine"] in (None, own) and elsewhere:
        lines.append(_rival(elsewhere[0], "Best other machine"))
    if best["kind"] == "place" and waiting is not None:
        lines.append(_rival(waiting, "Waiting"))
    further = [a for a in elsewhere if a["machine"] != best["machine"]][: _SHOWN - 1]
    if best["machine"] not in (None, own) and further:
        listed = ", ".join(f"{_where(a)} {more_text(a['more'])}" for a in further)
        lines.append(f"Then: {listed}.")
    if facts.get("open_machines"):
        count, cheap = facts["open_machines"], facts["as_cheap"]
        text = f"{count} other machine{'' if count == 1 else 's'} could take it"
        of_them = "" if cheap == count else f"{cheap} of them "
        lines.append(f"{text}, {of_them}without costing more." if cheap else f"{text}.")
    return lines


def _left(facts: Facts, rival: Facts) -> str:
    """Why something cheaper was left."""
    later = rival["kind"] == "waiting" or bool(rival.get("slot"))
    match facts.get("why_now"):
        case "due" if later:
            return "it is due, so it had to start now"
        case "group" if later:
            return "its task group had to start now, whole"
        case "nothing_runs" if later:
            return "nobody else would have started, so there was nothing to wait for"
        case "idle_machine":
            return "it was planned for later and started early; the prices are those after that"
        case "repaired":
            return "a relation refused it where the plan had it, and it was moved to a place that was open"
        case "due" | "group" if not facts.get("search_ended_early"):
            return "those who must start are placed first, and the search did not find a better plan for all of them"
    if facts.get("makespan"):
        return "for a makespan plans are judged by who is left without a place, then by the last end"
    if facts.get("search_ended_early"):
        return "the search had used up its forecasts (setting pricings) before it found that"
    then = facts.get("when_placed")
    if then is not None and then["more"] is not None and then["more"] < -SMALL:
        return "a round of one network places many at once: the best for all of them need not be the best for each"
    if facts["part"]["kind"] != "search":
        return "it was not cheaper when this one was placed; those who were placed after it changed the prices"
    return "the search did not find a plan in which it helps"


def _rival(rival: Facts, what: str, own: str | None = None) -> str:
    """A rival and why it differs; ``own``: the machine that was chosen."""
    name = "waiting" if rival["kind"] == "waiting" else _where(rival, own)
    head = f"{what}: {name}" if what.lower() != name else what
    if abs(rival["more"]) < SMALL:
        return f"{head} costs the same, {cost_text(rival['cost'])}."
    text = f"{head} costs {cost_text(rival['cost'])}, {more_text(rival['more'])}"
    if rival["kind"] == "waiting":
        return f"{text}; that is {terms_text(rival['terms'])}." if rival["terms"] else f"{text}."
    return f"{text}: {differences_text(rival['differences'])}." if rival["differences"] else f"{text}."


def _where(place: Facts, own: str | None = None) -> str:
    slot, width = place.get("slot"), place.get("width_milli")
    text = "the same machine" if place["machine"] == own else str(place["machine"])
    if "slot" in place and slot is None:
        text += " (now or later)"
    if slot:
        text += f" after {completions_text(slot)}"
    if width is not None:
        text += f" at width {width / MILLI:g}"
    return text


def _neighbours(facts: Facts) -> list[str]:
    place, found = facts["place"], facts["neighbours"]
    caused = next((t["cost"] for t in place["terms"] if t["term"] == "interference_caused"), 0.0)
    if facts["part"]["kind"] != "search":
        lines = (
            [f"It costs its neighbours on {place['machine']} {cost_text(caused)} in all."]
            if abs(caused) >= SMALL
            else []
        )
        return lines + (
            [f"Placed there too in this round: {_names(facts, [n['task'] for n in found])}."] if found else []
        )
    if not found:
        return [f"Nobody else runs on {place['machine']}."] if facts["models"] else []
    lines = [f"It costs its neighbours on {place['machine']} {cost_text(caused)} in all:"]
    words = {"runs": "runs there", "starts": "starts there too", "planned": "is planned there for later"}
    for n in found:
        who = f"  {_title(facts, n['task'])} {words[n['status']]}"
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


def _shared(facts: Facts) -> list[str]:
    """The cores of services that it may use too, and what those cost the services."""
    lines = []
    for s in facts.get("shared", ()):
        may = "Where it is planned it may" if facts["fate"] == "waits" else "It may"
        cores = f"core{'' if len(s['cores']) == 1 else 's'} {format_cores(s['cores'])}"
        text = f"{may} use {cores} of service {s['service']} too, with no more than the weight of its width"
        if s["p95_ms"] is not None:
            text += f": predicted peak p95 {s['p95_ms']:.3f} ms of {ms_text(s['goal_ms'])}, {_headroom(s, '')}"
        if s["p95_unshared_ms"] is not None and facts["fate"] != "runs":
            text += f"; with newcomers off {cores} {s['p95_unshared_ms']:.3f} ms, {_headroom(s, '_unshared')}"
        lines.append(f"{text}.")
    return lines


def _headroom(service: Facts, which: str) -> str:
    return f"{service[f'headroom{which}_percent']:.1f} % headroom"


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
    """What it cost when it was placed, and what was next, as far as that was different."""
    then, now = facts.get("when_placed"), facts["runner_up"]
    if then is None:
        return []
    changed = abs(then["cost"] - facts["place"]["cost"]) > SMALL
    if not changed and (then["runner_up"] is None or (now is not None and then["runner_up"] == now["machine"])):
        return []
    parts = [f"it cost {cost_text(then['cost'])}"] if changed else []
    if then["runner_up"] is not None:
        price = "" if then["runner_up_cost"] is None else f" with {cost_text(then['runner_up_cost'])}"
        parts.append(f"{then['runner_up']} was next{price}")
    after = "; those placed after it changed that" if changed else ""
    return [f"When it was placed {' and '.join(parts)}{after}."]


def _class(facts: Facts) -> list[str]:
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


def _core_price(facts: Facts) -> list[str]:
    price = facts.get("core_price")
    if price is None:
        return []
    return [
        f"Cores are short on {price['machine']} and its like: the first network prices them at "
        f"{cost_text(price['per_core'])} each, {cost_text(price['per_task'])} for this task."
    ]


# Runs


def _runs(facts: Facts) -> list[str]:
    place = facts["place"]
    shape = _shape(place)
    since = place.get("since_s")
    bound = "" if since is None else f", bound {seconds_text(since)} ago"
    lines = [f"{facts['title']} runs on {place['machine']}{shape}{bound}. This round had nothing to decide on it."]
    if place.get("end_s") is not None:
        done = f"{place['progress_percent']:.0f} % done"
        lines.append(f"It is believed to be {done}, and predicted to end in {seconds_text(place['end_s'])}.")
    lines += _shared(facts)
    return lines


# Waits


def _waits(facts: Facts) -> list[str]:
    lines = _headline(facts)
    if facts["part"] is None:
        return lines
    lines += _group(facts)
    lines += _repaired_away(facts)
    lines += _costs(facts)
    lines += _shared(facts)
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
    now = None if closest is None else f"starting now costs {cost_text(closest['cost'])} on {closest['machine']}"
    match cause:
        case "planned":
            planned = facts["planned"]
            what = f"waits for {completions_text(planned['slot'])} on {planned['machine']}"
            if planned["start_s"] is not None:
                what += f", in about {seconds_text(planned['start_s'])}"
            if now is None:
                return f"{what}: there is no place for it now." if facts["models"] else f"{what}."
            return f"{what}: {now}, waiting for that costs {cost_text(facts['cost'])}."
        case "cost" if now is not None:
            limit = facts.get("limit")
            if limit is not None:
                most = "waiting costs" if limit["kind"] == "waiting" else "it may cost at most"
                return f"waits: {now}, {most} {cost_text(limit['cost'])}."
            if facts.get("cost") is not None:
                return f"waits: {now}, waiting costs {cost_text(facts['cost'])}."
            return f"waits: {now}."
        case "never" if not facts["shortage"]["too_small"]:
            return "waits: no machine that may take it has room for it beside its services and tasks without an end."
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
        lines.append(f"{what} costs {made_of(facts['cost'], facts['terms'])}.")
    if closest is None:
        return lines
    alone = ", if its group let it," if cause == "group" else ""
    lines.append(f"Starting now on {_where(closest)}{alone} would cost {made_of(closest['cost'], closest['terms'])}.")
    more = closest["more"]
    needed = facts.get("needed_waiting")
    if needed is None and more is not None and abs(more) >= SMALL and cause in ("planned", "cost"):
        than = "its planned place" if cause == "planned" else "waiting"
        rows = f": {differences_text(closest['differences'])}" if cause == "planned" and closest["differences"] else ""
        lines.append(f"That is {more_text(more)} than {than}{rows}.")
        if more < 0.0:
            lines.append(f"Why that was left: {_left(facts, closest)}.")
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
    lines += [
        f"  {'These are' if alone else row['reason'] + ':'} {_listed(row['names'], row['more'])}."
        for row in table["rows"]
        if row["count"]
    ]
    return lines + [
        f"  also {row['reason']}: {_listed(row['also_names'], row['also_more'])}."
        for row in table["rows"]
        if row["also"]
    ]


def _listed(names: Sequence[str], more: int) -> str:
    return ", ".join(names) + (f" and {more} more" if more else "")


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
    if short["never"]:
        return [_never(facts, short)]
    emptiest = short["emptiest"]
    if emptiest is None:
        return []
    units = short["units"]
    lacking = [x for x in emptiest["resources"] if x["short"]]
    if not lacking:
        return []
    parts = [
        f"{amount_text(x['short'], x['resource'], units)}{_of(x['resource'])} short (free "
        f"{amount_text(x['free'], x['resource'], units)}, asked for {amount_text(x['asks'], x['resource'], units)})"
        for x in lacking
    ]
    which = "which misses least of those that are large enough" if short["empty"] else "which misses least"
    lines = [f"What would help: room on {emptiest['machine']}, {which}: {', '.join(parts)}."]
    lines += _empty(facts, short)
    if short["started_there"]:
        lines.append(f"This round started on {emptiest['machine']}: {_names(facts, short['started_there'])}.")
    return lines + (_core_price(facts) if facts.get("closest") is None else [])


def _empty(facts: Facts, short: Facts) -> list[str]:
    """A machine that has nobody who will leave, and misses little."""
    empty, units = short["empty"], short["units"]
    if empty is None:
        return []
    parts = [
        f"{amount_text(x['short'], x['resource'], units)}{_of(x['resource'])} short ("
        f"{_share(x['free'], x['asks'], x['resource'], units)})"
        for x in empty["resources"]
        if x["short"]
    ]
    stays = _stays(facts, short, empty["machine"])
    head = f"{empty['machine']} is empty" + (f" beside {stays}" if stays else "")
    return [f"{head} and still {', '.join(parts)}: a smaller request would fit there."]


def _never(facts: Facts, short: Facts) -> str:
    """What no machine has, even if all left who will."""
    units, lacking = short["units"], short["lacking"]
    if not short["too_small"]:
        near = lacking[0]
        name = near["machine"]
        parts = [
            f"of its {amount_text(x['size'], x['resource'], units)}{_of(x['resource'])} "
            f"{amount_text(x['free'], x['resource'], units)} can become free, and the task asks for "
            f"{amount_text(x['asks'], x['resource'], units)}"
            for x in near["resources"]
            if x["short"]
        ]
        stays = _stays(facts, short, name)
        return (
            f"What would help: a larger machine, a smaller task, or {name} without what stays there ({stays}): "
            f"{'; '.join(parts)}."
        )
    parts = []
    for x in short["largest"]:
        if not x["suffices"]:
            beside = any(entry["size"] != entry["free"] for m in lacking for entry in m["resources"])
            most = amount_text(x["most"], x["resource"], units)
            stays = _stays(facts, short, x["machine"]) if x["size"] != x["most"] else ""
            if stays:
                most += f" of its {amount_text(x['size'], x['resource'], units)} beside {stays}"
            what = f"the most {x['resource']}" + (" beside what stays" if beside else "")
            asks = amount_text(x["asks"], x["resource"], units)
            parts.append(f"{x['machine']} has {what}, {most}, and it asks for {asks}")
    text = "What would help: a larger machine, or a smaller task."
    if parts:
        text += f" {'; '.join(parts)}."
    if len({tuple(x["resource"] for x in m["resources"] if x["short"]) for m in lacking}) > 1:
        each = [
            f"{m['machine']} {' and '.join(_too_little(x, units) for x in m['resources'] if x['short'])}"
            for m in lacking[:_SHOWN]
        ]
        text += f" Machines have too little of different things: {', '.join(each)}."
    return text


def _too_little(x: Facts, units: Mapping[str, str]) -> str:
    return f"{x['resource']} ({_share(x['free'], x['asks'], x['resource'], units)})"


def _stays(facts: Facts, short: Facts, machine: str) -> str:
    """Who stays on a machine whatever ends there; empty if nobody does."""
    found = next((s for s in short["stays"] if s["machine"] == machine), None)
    if found is None:
        return ""
    parts = []
    if found["services"]:
        parts.append(f"{_plural('service', found['services'])} {_names(facts, found['services'])}")
    if found["tasks"]:
        parts.append(f"{_plural('task', found['tasks'])} {_names(facts, found['tasks'])}, without an end")
    return " and ".join(parts)


def _plural(word: str, names: Sequence[str]) -> str:
    return word if len(names) == 1 else f"{word}s"


def _of(resource: str) -> str:
    """What an amount is of; cores say it themselves."""
    return "" if resource == "cpu" else f" of {resource}"


def _share(part: int, whole: int, resource: str, units: Mapping[str, str]) -> str:
    """For example ``3.92 of 4`` cores."""
    if units.get(resource) == "milli":
        return f"{part / MILLI:g} of {whole / MILLI:g}"
    return f"{amount_text(part, resource, units)} of {amount_text(whole, resource, units)}"


def _latency(facts: Facts) -> list[str]:
    found = facts.get("latency") or []
    return [
        f"On {f['machine']} the p95 of {f['service']} would rise to {ms_text(f['p95_ms'])}; "
        f"its goal is {ms_text(f['goal_ms'])}."
        for f in found[:_SHOWN]
    ]


def _reservation(facts: Facts) -> list[str]:
    lines = []
    if facts["cause"] == "held":
        lines += [
            f"{r['machine']} is reserved for {_title(facts, r['task'])} ({count_cores(r['width_milli'])}), "
            f"predicted to be free {_from_now(r['in_s'])}."
            for r in facts["other_reservations"]
        ]
    reservation = facts.get("reservation")
    if reservation is not None and reservation["start_s"] is None:
        lines.append(f"{reservation['machine']} drains for it: pods of its priority or lower may not start there.")
    elif reservation is not None:
        who = "only tasks that are gone by then may still" if reservation["in_s"] > 0.0 else "nobody else may"
        lines.append(
            f"{reservation['machine']} is reserved for it ({count_cores(reservation['width_milli'])}), predicted to be free "
            f"{_from_now(reservation['in_s'])}; {who} start there."
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
    due = "It is due" if bound["due"] else f"It is due after {due_age}"
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
        case "group_never":
            needs, room = bound["group_needs"], bound["group_room"]
            places = f"{needs} place{'' if needs == 1 else 's'}"
            return [
                f"There is no bound on its waiting: the group needs {places} and the cluster has {room} when "
                "everything that ends has ended."
            ]
        case "group_unreserved":
            needs = bound["group_needs"]
            return [
                f"There is no bound on its waiting: the group needs {needs} places, and no machines are found that can be "
                "reserved for all of them."
            ]
        case _:
            why = "some tasks run without an end or with none that is known, and what runs is not moved for it"
            return [f"{due}. {_ahead(facts, bound['ahead'])}, but there is no bound on its waiting: {why}."]


def _ahead(facts: Facts, tasks: Sequence[str]) -> str:
    """Who is served before it, without a full stop."""
    if not tasks:
        return "Nobody is ahead of it"
    count = len(tasks)
    return (
        f"{count} task{'' if count == 1 else 's'} ({_names(facts, tasks)}) {'is' if count == 1 else 'are'} ahead of it"
    )


def _from_now(seconds: float) -> str:
    """When something is, or was: a clock's seconds say nothing to people."""
    return f"in {seconds_text(seconds)}" if seconds > 0.0 else f"{seconds_text(-seconds)} ago"


# Words and numbers


def _title(facts: Facts, task: str) -> str:
    return str(facts["titles"].get(task, task))


def _names(facts: Facts, tasks: Sequence[str]) -> str:
    """The first few names, and that there are more."""
    shown = ", ".join(_title(facts, t) for t in tasks[:_SHOWN])
    return f"{shown} and others" if len(tasks) > _SHOWN else shown
