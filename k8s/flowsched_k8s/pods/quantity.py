"""Kubernetes quantities (``100m``, ``1.5Gi``, ``2e3``) as exact integers: no float ever sees them."""

from __future__ import annotations

import re
from functools import lru_cache

LARGEST = 1 << 60
"""Larger amounts count as this much: more than any machine has, and sums of several still fit 64 bits."""
_LONGEST = 128
_TENS = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_TWOS = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}
_FORM = re.compile(r"([+-]?)([0-9]*)(?:\.([0-9]*))?(?:[eE]([+-]?[0-9]+)|([KMGTPE]i|[numkMGTPE])?)", re.ASCII)


@lru_cache(maxsize=1 << 16)
def cpu_milli(text: str) -> int:
    """CPU in milli-CPU, rounded up. Raises :class:`ValueError`."""
    return _scaled(text, 3)


@lru_cache(maxsize=1 << 16)
def whole(text: str) -> int:
    """An amount in whole base units (bytes, devices), rounded up. Raises :class:`ValueError`."""
    return _scaled(text, 0)


def whole_or(text: str, otherwise: int) -> int:
    """The same, and something else for a text that is no quantity."""
    try:
        return whole(text)
    except ValueError:
        return otherwise


def amount(resource: str, text: str) -> int:
    """An amount of a named resource: ``cpu`` in milli-CPU, others in whole units. Raises :class:`ValueError`."""
    return cpu_milli(text) if resource == "cpu" else whole(text)


def _scaled(text: str, tens: int) -> int:
    """The quantity times a power of ten, rounded away from zero as Kubernetes rounds."""
    if len(text) > _LONGEST:
        raise ValueError(f"'{text[:20]}…' is not a quantity: it has {len(text)} characters")
    match = _FORM.fullmatch(text)
    if match is None or not (match[2] or match[3]):
        raise ValueError(f"'{text}' is not a quantity; write it as 500m, 2, 1.5Gi or 100M")
    sign, before, after, exponent, suffix = match.groups("")
    digits = int(before + after or "0")
    twos = _TWOS.get(suffix, 0)
    tens += int(exponent or 0) + _TENS.get(suffix, 0) - len(after)
    if digits == 0:
        return 0
    # No text is longer than 128 digits, so beyond this the result is decided, whatever the digits are.
    tens = max(-1000, min(1000, tens))
    numerator: int = (digits << twos) * 10 ** max(tens, 0)
    denominator: int = 10 ** max(-tens, 0)
    size = min(LARGEST, -(-numerator // denominator))
    return -size if sign == "-" else size
