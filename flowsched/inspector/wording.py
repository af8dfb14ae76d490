"""How explanations word costs, terms and amounts: each of them in one way."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from flowsched_models.quantity import count_cores

Facts = Mapping[str, Any]

TERMS: Mapping[str, str] = {
    "run_time": "its own run time",
    "wait_for_slot": "waiting for its turn",
    "interference_suffered": "what its neighbours cost it",
    "interference_caused": "what it costs its neighbours",
    "slo_headroom": "latency headroom",
    "preference": "preferences",
    "spreading": "sharing the machine with tasks that it should not be beside",
    "gpu_value": "the worth that free GPUs there lose",
    "gpu_topology": "how its GPUs are linked and shared",
    "place": "the place itself",
    "crowding": "other tasks of the round on the machine",
    "patience": "a domain's share beyond the even one",
    "completion_if_postponed": "completing later",
    "waiting": "having waited",
}
"""Terms of costs in plain words; others are named as they are."""
SMALL = 5e-5
"""Costs below this are told as none."""


def made_of(cost: float, terms: Sequence[Facts]) -> str:
    """A cost and its terms, without repeating the number where there is only one."""
    shown = [t for t in terms if abs(t["cost"]) >= SMALL]
    if len(shown) == 1:
        return f"{cost_text(cost)}, for {term_text(shown[0]['term'])}"
    return f"{cost_text(cost)}: {terms_text(shown)}" if shown else cost_text(cost)


def terms_text(terms: Sequence[Facts]) -> str:
    """Terms of a cost, those that matter."""
    shown = [t for t in terms if abs(t["cost"]) >= SMALL]
    return ", ".join(f"{cost_text(t['cost'])} for {term_text(t['term'])}" for t in shown) or "nothing"


def differences_text(rows: Sequence[Facts]) -> str:
    """By how much terms differ, those that do."""
    shown = [r for r in rows if abs(r["more"]) >= SMALL]
    return ", ".join(f"{term_text(r['term'])} {signed_text(r['more'])}" for r in shown) or "no term differs much"


def term_text(name: str) -> str:
    """A term by its plain name."""
    return TERMS.get(name, name.replace("_", " "))


def more_text(more: float) -> str:
    """How much more or less something costs."""
    if abs(more) < SMALL:
        return "as much"
    return f"{cost_text(abs(more))} {'more' if more > 0 else 'less'}"


def signed_text(more: float) -> str:
    """A cost with its sign."""
    return f"{'+' if more > 0 else '-'}{cost_text(abs(more))}"


def cost_text(value: float) -> str:
    """Two decimals, or four where two say nothing."""
    if abs(value) < SMALL:
        return "0"
    if abs(value) >= 0.1:
        return f"{value:.2f}"
    return f"{value:.4f}".rstrip("0")


def seconds_text(value: float) -> str:
    """Seconds; tenths below a hundred."""
    return f"{value:.0f} s" if abs(value) >= 100 or value == round(value) else f"{value:.1f} s"


def ms_text(value: float) -> str:
    """Milliseconds."""
    return f"{value:.2f} ms"


def count_text(value: float) -> str:
    """A number of things, which a flow may split."""
    return f"{value:.0f}" if abs(value - round(value)) < 0.05 else f"{value:.1f}"


def amount_text(value: int, resource: str, units: Mapping[str, str]) -> str:
    """An amount of a resource in its unit."""
    match units.get(resource, ""):
        case "milli":
            return count_cores(value)
        case "MiB":
            return f"{value} MiB"
        case "bytes" if abs(value) >= 1 << 20:
            return f"{value / (1 << 20):.0f} MiB" if abs(value) < 10 << 30 else f"{value / (1 << 30):.1f} GiB"
        case _:
            return str(value)


def completions_text(slot: int) -> str:
    """What a later slot waits for."""
    return "the next completion" if slot == 1 else f"{slot} completions"
