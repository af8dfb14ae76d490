"""Numbers as a reader wants them: short, and never a small number shown as zero."""

from __future__ import annotations

import math

from flowsched_models.quantity import format_cores

NOTHING = "–"
"""Stands where there is no value."""


def fixed(value: float | None, decimals: int) -> str:
    """Return ``value`` with ``decimals`` decimals; ``<0.01`` for what would look like zero and is not."""
    if value is None or math.isnan(value):
        return NOTHING
    if math.isinf(value):
        return "∞" if value > 0 else "−∞"
    text = f"{abs(value):,.{decimals}f}".replace(",", "\u2009")
    if value and not float(f"{abs(value):.{decimals}f}"):
        return f"<{10.0**-decimals:.{decimals}f}" if value > 0 else f"{0:.{decimals}f}"
    return f"−{text}" if value < 0 else text


def compact(value: float | None, decimals: int = 2) -> str:
    """Return ``value`` with at most ``decimals`` decimals and no trailing zeros."""
    text = fixed(value, decimals)
    return text.rstrip("0").rstrip(".") if "." in text and not text.startswith("<") else text


def core_list(cores: tuple[int, ...]) -> str:
    """Return core indices as ranges: ``0–2, 5``."""
    return format_cores(cores).replace(",", ", ").replace("-", "–")


def counted(count: int, noun: str) -> str:
    """Return ``1 job``, ``2 jobs``."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"
