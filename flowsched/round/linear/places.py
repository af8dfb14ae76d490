"""Masks and wishes: what a class may and would pay machine by machine, beside its prices by kind.

A policy prices classes on kinds of machines. What goes by single machines - filters, node affinity, preferences - is a
vector by machine row that classes refer to by number, so that classes with the same vectors share them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any

import numpy as np

from flowsched.cluster.machine_arrays import longer
from flowsched.support.arrays import BoolArray, FloatArray, IntArray, moved

RUN_TIME, PREFERENCE = "run_time", "preference"
"""Terms of a cost in records."""


@dataclass(frozen=True, eq=False)
class Places:
    """Arrays by machine row; None: no difference. Machines that join later are closed until they are named."""

    allowed: BoolArray | None = None
    """Machines that may take the class."""
    eligible: BoolArray | None = None
    """Machines that its spreads compare."""
    slowness: FloatArray | None = None
    """Run time over the fastest machine's, minus 1."""
    preference: FloatArray | None = None
    """Cost of each machine, at least 0; infinite where it may not go."""

    def changed(self, change: Callable[[Any], Any]) -> Places:
        """With its arrays changed: for other machines, or the same in another order."""
        return Places(*(None if values is None else change(values) for values in vars(self).values()))

    def only(self, rows: BoolArray) -> Places:
        """Closed but for some of the rows."""
        return self.changed(lambda values: np.where(rows[: len(values)], values, _CLOSED[values.dtype.kind]))

    @property
    def key(self) -> tuple[bytes | None, ...]:
        """Equal places have equal keys."""
        return tuple(None if values is None else values.tobytes() for values in vars(self).values())

    def extra(self, rows: int) -> FloatArray:
        """What a task pays on each of so many machines, infinite where it must not run."""
        found = np.zeros(rows)
        for values in (self.slowness, self.preference):
            if values is not None:
                found[: len(values)] += values[:rows]
                found[len(values) :] = np.inf
        if self.allowed is not None:
            found[: len(self.allowed)][~self.allowed[:rows]] = np.inf
            found[len(self.allowed) :] = np.inf
        return np.where(np.isfinite(found), found, np.inf)

    def terms(self, machines: IntArray) -> dict[str, FloatArray]:
        """The parts of the extra on some machines, by term."""
        found = {}
        for name, values in ((RUN_TIME, self.slowness), (PREFERENCE, self.preference)):
            if values is not None:
                found[name] = values[machines]
        return found


ANYWHERE = Places()
_CLOSED = {"b": False, "f": np.inf}
"""By kind of array, what closes a machine that places do not reach."""


@dataclass
class PlacesTable:
    """All places that classes refer to; number 0 is none."""

    places: list[Places] = field(default_factory=lambda: [ANYWHERE])
    _number: dict[tuple[bytes | None, ...], int] = field(default_factory=lambda: {ANYWHERE.key: 0})
    _extra: FloatArray | None = None

    def intern(self, places: Places) -> int:
        """The number of these places."""
        key = places.key
        number = self._number.get(key)
        if number is None:
            number = self._number[key] = len(self.places)
            self.places.append(places)
        return number

    def append(self, places: Places) -> None:
        """Give the next number to these places, also if there are equal ones."""
        self._number.setdefault(places.key, len(self.places))
        self.places.append(places)

    def move(self, before: IntArray) -> None:
        """Machines are in other rows now. ``before``: by row, the one where its machine was; -1 for rows without one."""

        def change(values: Any) -> Any:
            return moved(values, np.where(before < len(values), before, -1), _CLOSED[values.dtype.kind])

        self.places = [each.changed(change) for each in self.places]
        self._number = {each.key: number for number, each in reversed([*enumerate(self.places)])}
        self._extra = None

    def resemble(self, row: int, like: int) -> None:
        """The machine in a row is to all places as another one is."""

        def change(values: Any) -> Any:
            found = longer(values, max(0, row + 1 - len(values)), _CLOSED[values.dtype.kind])
            found[row] = values[like]
            return found

        self.places = [each.changed(change) for each in self.places]
        self._number = {each.key: number for number, each in enumerate(self.places)}
        self._extra = None

    def extra(self, rows: int) -> FloatArray:
        """The extra by places and machine, only to be read; without rows where no class refers to any."""
        if len(self.places) == 1:
            return np.zeros((1, 0))
        if self._extra is None or self._extra.shape != (len(self.places), rows):
            self._extra = np.array([places.extra(rows) for places in self.places])
        return self._extra


def read_places(plain: Mapping[str, Any]) -> Places:
    """Masks and wishes of a level."""

    def column(name: str) -> Any:
        if plain[name] is None:
            return None
        flags = name in ("allowed", "eligible")
        return np.array(plain[name], dtype=np.bool_) if flags else read_numbers(plain[name])

    return Places(*(column(f.name) for f in fields(Places)))


def read_numbers(values: Any) -> FloatArray:
    """Numbers of a record, infinite where it has null."""
    return np.array([np.inf if v is None else v for v in np.asarray(values, dtype=object).tolist()], dtype=np.float64)
