"""Durations as Kubernetes writes them (``15s``, ``1h30m``), in seconds."""

from __future__ import annotations

import re
from decimal import Decimal
from typing import Any

from flowsched_models.quantity import QuantityError, shown

_LONGEST_S = 366 * 86400.0
_SHORTEST_S = 1e-6
_UNITS = {"us": "0.000001", "µs": "0.000001", "μs": "0.000001", "ms": "0.001", "s": "1", "m": "60", "h": "3600"}
_PART = r"([0-9]+(?:\.[0-9]+)?)(us|µs|μs|ms|s|m|h)"


def parse_duration_s(value: Any) -> float:
    """A duration as Kubernetes writes it (``15s``, ``20ms``, ``1h30m``), in seconds. Raises :class:`QuantityError`."""
    help = "write it as 15s, 20ms, 5m or 1h30m"
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        raise QuantityError(f"{value} has no unit", f"give a unit: {value}s, {value}ms or {value}m")
    text = value.strip() if isinstance(value, str) else ""
    if text.startswith("-"):
        raise QuantityError(f"a duration must not be negative, but is {shown(value)}", help)
    if len(text) > 64 or not re.fullmatch(f"(?:{_PART})+", text, re.ASCII):
        raise QuantityError(f"{shown(value)} is not a duration", help)
    seconds = float(sum(Decimal(number) * Decimal(_UNITS[unit]) for number, unit in re.findall(_PART, text)))
    if not _SHORTEST_S <= seconds <= _LONGEST_S:
        raise QuantityError(f"must be from 1us to a year, but is {shown(value)}")
    return seconds


def format_duration_s(seconds: float) -> str:
    """The duration that :func:`parse_duration_s` reads back: ``1h30m``, ``15s``, ``20ms``."""
    exact = Decimal(repr(seconds))
    if exact < 1:
        milli = exact * 1000
        return f"{milli.normalize():f}ms" if milli >= 1 else f"{(milli * 1000).normalize():f}us"
    minutes, rest = divmod(exact, 60)
    hours, minutes = divmod(minutes, 60)
    parts = [f"{hours:f}h" if hours else "", f"{minutes:f}m" if minutes else ""]
    return "".join(parts) + (f"{rest.normalize():f}s" if rest else "")
