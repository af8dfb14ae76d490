"""Kinds of values that records hold, each as a check that says which value is wrong and what it must be."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import numpy as np

from flowsched.errors import ShapeError
from flowsched.support.arrays import IntArray

Check = Callable[[Any, str], None]
"""Looks at a value; the text says where it stands. Raises :class:`ShapeError`."""

_LEAST, _MOST = -(2**63), 2**63 - 1

MOST_ROUNDS, MOST_DOMAINS, MOST_THREADS = 1000, 1 << 24, 1 << 16


def require(good: bool, where: str, must: str, value: Any) -> None:
    """Raise :class:`ShapeError` unless ``good``; ``must`` follows the place in the message."""
    if not good:
        raise ShapeError(f"{where} {must}, not {shown(value)}")


def shown(value: Any) -> str:
    """A value in a message, as JSON would have it, short."""
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, Mapping):
        return "an object"
    if isinstance(value, list | tuple | np.ndarray):
        return "a list"
    text = f"'{value}'" if isinstance(value, str) else str(value)
    return text if len(text) <= 40 else f"{text[:36]} …"


def has_key(value: Mapping[str, Any], key: str, where: str) -> None:
    """An object must have a key."""
    if key not in value:
        raise ShapeError(f"key '{key}' is missing" + (f" in {where}" if where else ""))


def is_text(value: Any, where: str) -> None:
    """A text."""
    require(isinstance(value, str), where, "must be text", value)


def is_flag(value: Any, where: str) -> None:
    """True or false."""
    require(isinstance(value, bool), where, "must be true or false", value)


def is_whole(value: Any, where: str) -> None:
    """A whole number of 64 bits."""
    good = isinstance(value, int) and not isinstance(value, bool) and _LEAST <= value <= _MOST
    require(good, where, "must be a whole number", value)


def is_number(value: Any, where: str) -> None:
    """A finite number."""
    require(is_finite(value), where, "must be a finite number", value)


def is_finite(value: Any) -> bool:
    """Whether a value is a finite number."""
    if isinstance(value, bool) or not isinstance(value, int | float | np.integer | np.floating):
        return False
    try:
        return math.isfinite(value)
    except OverflowError:
        return False


def is_quantity(value: Any, where: str) -> None:
    """A quantity such as ``2`` or ``"500m"``; its reader checks the rest."""
    require(isinstance(value, str | int | float) and not isinstance(value, bool), where, "must be a quantity", value)


def is_count(value: Any, where: str) -> None:
    """A whole number that is not negative."""
    is_whole(value, where)
    require(value >= 0, where, "must not be negative", value)


def at_most(most: int) -> Check:
    """A count that is worked through, or has an array: no more than any real record has."""

    def checked(value: Any, where: str) -> None:
        is_count(value, where)
        require(value <= most, where, f"must be at most {most}", value)

    return checked


def or_null(check: Check) -> Check:
    """The same, or null."""

    def optional(value: Any, where: str) -> None:
        if value is not None:
            check(value, where)

    return optional


def list_of(check: Check) -> Check:
    """A list of such values."""

    def checked(value: Any, where: str) -> None:
        require(isinstance(value, list | tuple | np.ndarray), where, "must be a list", value)
        for i, item in enumerate(value):
            check(item, f"{where}[{i}]")

    return checked


def values_of(check: Check) -> Check:
    """An object whose values are such, whatever its keys."""

    def checked(value: Any, where: str) -> None:
        require(isinstance(value, Mapping), where, "must be an object", value)
        for key, item in value.items():
            check(item, f"{where}.{key}")

    return checked


def object_with(needed: Mapping[str, Check], optional: Mapping[str, Check] | None = None) -> Check:
    """An object with keys, and others that it may have; what else it has does not matter."""
    more = optional or {}

    def checked(value: Any, where: str) -> None:
        require(isinstance(value, Mapping), where, "must be an object", value)
        start = f"{where}." if where else ""
        for key, check in needed.items():
            has_key(value, key, where)
            check(value[key], start + key)
        for key, check in more.items():
            if key in value:
                check(value[key], start + key)

    return checked


def _column(kinds: str, fits: Callable[[Any], bool], must: str) -> Check:
    """Many values at once: an array of some kinds, or a list."""

    def checked(value: Any, where: str) -> None:
        if isinstance(value, np.ndarray):
            if value.ndim != 1 or value.dtype.kind not in kinds:
                raise ShapeError(f"{where} must be a list in which each value {must}")
            value = () if value.dtype.kind in "biU" or np.isfinite(value).all() else value.tolist()
        require(isinstance(value, list | tuple), where, "must be a list", value)
        for i, item in enumerate(value):
            if not fits(item):
                raise ShapeError(f"{where}[{i}] {must}, not {shown(item)}")

    return checked


def _fits_whole(value: Any) -> bool:
    return type(value) is int and _LEAST <= value <= _MOST


def _fits_infinite(value: Any) -> bool:
    return value is None or is_finite(value) or (isinstance(value, float) and not value < 0)


def check_length(values: Any, wanted: int, where: str, of: str) -> None:
    """One value for each of something."""
    if len(values) != wanted:
        raise ShapeError(f"{where}: expected {wanted} values, one for each {of}, got {len(values)}")


def indices(values: Any, where: str, below: int, least: int = 0) -> IntArray:
    """Numbers from ``least`` up to, and without, ``below``."""
    found: IntArray = np.asarray(values, dtype=np.int64)
    wrong = np.flatnonzero((found < least) | (found >= below))
    if len(wrong):
        first = int(wrong[0])
        raise ShapeError(f"{where}[{first}] is {int(found[first])}, which is beyond the {below} that there are")
    return found


def check_once(members: Sequence[Collection[str]], where: str) -> None:
    """No task may be in two classes."""
    if len({task for tasks in members for task in tasks}) != sum(map(len, members)):
        raise ShapeError(f"{where} have a task twice")


TEXTS = _column("U", lambda value: isinstance(value, str), "must be text")

WHOLES = _column("i", _fits_whole, "must be a whole number")

NUMBERS = _column("fi", is_finite, "must be a finite number")

OPEN_NUMBERS = _column("fi", _fits_infinite, "must be a number or null")

FLAGS = _column("b", lambda value: isinstance(value, bool), "must be true or false")

LISTS = lambda value, where: require(isinstance(value, list | np.ndarray), where, "must be a list", value)  # noqa: E731

TERMS = values_of(is_number)

_CERTIFICATE = object_with(
    {
        "method": is_text,
        "primal": is_number,
        "bound": is_number,
        "unconstrained": is_number,
        "gap_absolute": is_number,
        "gap_relative": is_number,
    },
    {"prices": values_of(is_number)},
)

COMMON: Mapping[str, Check] = {"counts": values_of(is_number), "certificate": or_null(_CERTIFICATE)}

COMMON_OPTIONAL: Mapping[str, Check] = {"priority": or_null(is_whole), "timings": values_of(is_number)}

CHANGES: Mapping[str, Check] = {
    "preemptions": list_of(
        object_with(
            {"task": is_text, "machine": is_text, "room_for": is_text, "cost": is_number, "keeps_work": is_flag}
        )
    ),
    "taken_back": list_of(object_with({"task": is_text, "machine": is_text, "room_for": is_text})),
    "moves": list_of(
        object_with(
            {
                "task": is_text,
                "source": is_text,
                "machine": is_text,
                "width_milli": is_whole,
                "threads": at_most(MOST_THREADS),
                "cores": WHOLES,
                "pause_s": is_number,
                "gain": is_number,
                "price": is_number,
                "keeps_work": is_flag,
            }
        )
    ),
}
"""What a round changed of what ran before it."""

LET_IN = list_of(
    object_with(
        {
            "task": is_text,
            "machine": is_text,
            "width_milli": is_whole,
            "threads": at_most(MOST_THREADS),
            "cores": WHOLES,
            "cost": is_number,
            "terms": TERMS,
        }
    )
)
"""Tasks that start in the place of others."""
