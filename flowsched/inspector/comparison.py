"""Costs beside each other: the terms of one, and the differences of two, largest first."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

NOTHING = 1e-9
"""Smaller terms and differences are left out."""


def plain_terms(terms: Mapping[str, float]) -> list[dict[str, Any]]:
    """``term`` and ``cost`` of every term that is not 0, the largest first."""
    rows: list[dict[str, Any]] = [
        {"term": name, "cost": float(value)} for name, value in terms.items() if abs(value) > NOTHING
    ]
    return sorted(rows, key=lambda row: (-abs(row["cost"]), row["term"]))


def differences(other: Mapping[str, float], here: Mapping[str, float]) -> list[dict[str, Any]]:
    """``term`` and ``more``: by how much ``other`` exceeds ``here``, the largest difference first.

    They add up to the difference of the costs.
    """
    names = dict.fromkeys((*other, *here))
    rows: list[dict[str, Any]] = [
        {"term": name, "more": float(other.get(name, 0.0) - here.get(name, 0.0))} for name in names
    ]
    return sorted((r for r in rows if abs(r["more"]) > NOTHING), key=lambda row: (-abs(row["more"]), row["term"]))
