"""Further resources beside CPU and memory: devices, licences, whatever is counted in whole units."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

Amounts = Iterable[tuple[str, int]]
"""Units by the name of their resource."""


def covers(free: Mapping[str, int], asked: Amounts) -> bool:
    """Whether what is free suffices; a machine without a resource has none of it."""
    return not asked or all(units <= free.get(name, 0) for name, units in asked if units > 0)


def without(free: Mapping[str, int], *taken: Amounts) -> dict[str, int]:
    """What is left; below zero where more is taken than there is."""
    left = dict(free)
    for amounts in taken:
        for name, units in amounts:
            left[name] = left.get(name, 0) - units
    return left


def amount_text(amounts: Amounts) -> str:
    """For example ``2 nvidia.com/gpu and 1 licence``."""
    return " and ".join(f"{units} {name}" for name, units in amounts if units > 0)


def missing(free: Mapping[str, int], asked: Amounts) -> tuple[tuple[str, int], ...]:
    """The part of what is asked for that is not free."""
    return tuple((name, units) for name, units in asked if units > free.get(name, 0))
