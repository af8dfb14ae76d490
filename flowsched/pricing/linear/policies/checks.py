"""Checks of settings that several policies share; a policy says one sentence per value that it cannot take."""

from __future__ import annotations

import math


def number(name: str, value: float, least: float = 0.0, *, endless: bool = False) -> None:
    """Raise ``ValueError`` unless ``value`` is a number from ``least`` up; ``endless``: infinity will do as well."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError(f"{name} is {value!r}; give a {'' if endless else 'finite '}number from {least:g} up")
    if value >= least and (math.isfinite(value) or endless):
        return
    raise ValueError(f"{name} is {value:g}; give a {'' if endless else 'finite '}number from {least:g} up")


def above_zero(name: str, value: float) -> None:
    """Raise ``ValueError`` unless ``value`` is a finite number above 0."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError(f"{name} is {value!r}; give a finite number above 0")
    if not math.isfinite(value) or value <= 0.0:
        raise ValueError(f"{name} is {value:g}; give a finite number above 0")


def whole(name: str, value: int) -> None:
    """Raise ``ValueError`` unless ``value`` is a whole number from 0 up."""
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise ValueError(f"{name} is {value!r}; give a whole number from 0 up")


def yes_or_no(name: str, value: bool) -> None:
    """Raise ``ValueError`` unless ``value`` is true or false."""
    if not isinstance(value, bool):
        raise ValueError(f"{name} is {value!r}; give true or false")


def word(name: str, value: str) -> None:
    """Raise ``ValueError`` unless ``value`` is a text that says something."""
    if not isinstance(value, str) or not value:
        raise ValueError(f"{name} is {value!r}; give a text")
