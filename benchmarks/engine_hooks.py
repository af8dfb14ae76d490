"""The one place that knows how the engine's network is replaced, and what a round reports about who decided."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import click

from flowsched.cluster.decision import Decisions
from flowsched.cluster.settings import Settings

ASSIGN = "assign"
"""The setting that says what assigns tasks in a pass."""
NETWORK, GREEDY, IMPROVEMENT = "flow", "greedy", "none"
"""Its values: the min-cost flow, one task after the other at the same prices, nothing but the improvement afterwards."""
ABLATIONS = {NETWORK: "network", GREEDY: "greedy", IMPROVEMENT: "improvement alone"}
DECIDED = "decided_by_network"
"""The count of placements that stand as a network decided them, in ``Decisions.counts``."""


def assign_by(kind: str) -> dict[str, Any]:
    """The changed setting. Raises :class:`click.ClickException` where the engine has none."""
    if ASSIGN not in {f.name for f in fields(Settings)}:
        raise click.ClickException(
            f"the engine cannot replace its network, which this part needs: flowsched.Settings has no field '{ASSIGN}'"
        )
    return {ASSIGN: kind}


def decided_by_network(decisions: Decisions) -> int | None:
    """Placements of a round that stand as a network decided them; None where the engine does not count them."""
    counts = getattr(decisions, "counts", None)
    return None if not counts or DECIDED not in counts else int(counts[DECIDED])


def contested_networks(decisions: Decisions) -> tuple[int, int]:
    """How many of a round's networks two tasks or more competed in, and how many had two waiting tasks or more."""
    counts = decisions.counts or {}
    return counts.get("contested", 0), counts.get("solves", 0) - counts.get("lone", 0)
