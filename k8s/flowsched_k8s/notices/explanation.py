"""The short explanation of a placement that a pod carries: node, cost and its terms, runner-up, round."""

from __future__ import annotations

import msgspec

from flowsched_k8s.groups.gang_start import GangStart
from flowsched_k8s.rounds.round_input import Chosen

LIMIT_BYTES = 1000
"""Annotations are for people: the full record of a round is elsewhere, under its number."""


def placement_note(chosen: Chosen, number: int, start: GangStart | None = None) -> str:
    """Below 1 KiB of JSON; the smallest terms go first when names are long. ``start``: of a pod that starts with others."""
    terms = {name: round(value, 4) for name, value in chosen.terms.items() if abs(value) >= 5e-5}
    while True:
        note: dict[str, object] = {"node": chosen.node, "round": number, "cost": round(chosen.cost, 4), "terms": terms}
        if chosen.runner_up is not None and chosen.runner_up_cost is not None:
            note["runnerUp"] = {"node": chosen.runner_up, "cost": round(chosen.runner_up_cost, 4)}
        if start is not None:
            note["start"] = {"pods": start.pods, "minimum": start.minimum, "with": start.others}
        text = msgspec.json.encode(note)
        if len(text) <= LIMIT_BYTES or not terms:
            return text.decode()
        del terms[min(terms, key=lambda name: (abs(terms[name]), name))]
