"""Sentences about machines that could not take a task, and about what would help."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from flowsched.cluster.snapshot import MILLI
from flowsched.inspector.task_sentences import SHOWN, core_price_sentences, names_text
from flowsched.inspector.wait_cause import WaitCause, waits_with_gang
from flowsched.inspector.wording import Facts, amount_text


def refusal_sentences(facts: Facts) -> list[str]:
    """Which constraint removes how many machines, and which."""
    table = facts.get("refusals")
    if table is None or not table["rows"]:
        return []
    told = facts["told"]
    lines = []
    if table["available"]:
        how = "could take it alone now" if waits_with_gang(facts) else "could take it now"
        lines.append(f"{table['available']} of {table['machines']} machines {how}. The others:")
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


def help_sentences(facts: Facts) -> list[str]:
    """What is short on the machine that misses least, or that no machine is large enough."""
    short = facts.get("shortage")
    if short is None or facts["cause"] not in (
        WaitCause.NEVER,
        WaitCause.CAPACITY,
        WaitCause.RELATION,
        WaitCause.GROUP,
        WaitCause.RESERVED,
        WaitCause.PLANNED,
    ):
        return []
    if short["never"]:
        return [_never(facts, short)]
    emptiest = short["emptiest"]
    # Room for one member on the machine that misses least need not help its gang.
    if emptiest is None or waits_with_gang(facts):
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
        lines.append(f"This round started on {emptiest['machine']}: {names_text(facts, short['started_there'])}.")
    return lines + (core_price_sentences(facts) if facts.get("closest") is None else [])


def _empty(facts: Facts, short: Facts) -> list[str]:
    """A machine from which nothing will leave, and which misses little."""
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
    """What no machine has, even if all left that will."""
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
            for m in lacking[:SHOWN]
        ]
        text += f" Machines have too little of different things: {', '.join(each)}."
    return text


def _too_little(x: Facts, units: Mapping[str, str]) -> str:
    return f"{x['resource']} ({_share(x['free'], x['asks'], x['resource'], units)})"


def _stays(facts: Facts, short: Facts, machine: str) -> str:
    """What stays on a machine whatever ends there; empty if nothing does."""
    found = next((s for s in short["stays"] if s["machine"] == machine), None)
    if found is None:
        return ""
    parts = []
    if found["services"]:
        parts.append(f"{_plural('service', found['services'])} {names_text(facts, found['services'])}")
    if found["tasks"]:
        parts.append(f"{_plural('task', found['tasks'])} {names_text(facts, found['tasks'])}, without an end")
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
