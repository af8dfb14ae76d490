"""Replay: every part of a record solved again, and whether the decisions are the same, byte for byte."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any, cast

import numpy as np

from flowsched.inspector.re_solve import solve_all_again
from flowsched.inspector.record_view import Part, RecordView, new_part
from flowsched.inspector.terms import read_terms
from flowsched.records.record_file import record_json
from flowsched_models.document import InputError

_KEYS = (
    "placements", "waiting", "plan", "passes", "decided_by", "outside", "reservations", "task_groups", "repairs", "goal_s",
    "machine_costs", "certificate", "classes", "groups", "group_of", "first_network", "dual", "counts",
    "preemptions", "taken_back", "moves", "let_in",
)  # fmt: skip
_OTHER_PARTS = "the record has {} parts, and its round solved again has {}"
_OPTIMUM = "first_network.optimum"
_ABSENT = "nothing"
SHOWN = 5
"""Differences of a part that are told to people; JSON has up to ``KEPT``."""
KEPT = 100


@dataclass(frozen=True)
class Mismatch:
    """A value that came out different."""

    where: str
    """Keys and indices from the part on."""
    recorded: str
    """JSON."""
    now: str

    def plain(self) -> dict[str, Any]:
        """The same as data."""
        return {"where": self.where, "recorded": _value(self.recorded), "now": _value(self.now)}


@dataclass(frozen=True)
class PartReplay:
    """One part, solved again."""

    index: int
    prices: str
    priority: int | None
    placed: int
    """Tasks that the record says were bound."""
    waiting: int
    optimum: int
    """Cost of the first network's flow in the record, in solver units."""
    mismatches: tuple[Mismatch, ...]
    """The first ones."""
    differing: int
    """How many values differ in all."""

    @property
    def same(self) -> bool:
        """Whether everything that was compared is the same."""
        return not self.differing

    @property
    def title(self) -> str:
        """``part 0 (linear prices, priority 5)``."""
        priority = "" if self.priority is None else f", priority {self.priority}"
        return f"part {self.index} ({self.prices} prices{priority})"

    def lines(self) -> Iterator[str]:
        """The verdict as text."""
        if self.same:
            yield (
                f"{self.title}: the same, byte for byte: {_count(self.placed, 'placement')}, {self.waiting} waiting, "
                f"optimum of the first network {self.optimum}"
            )
            return
        yield f"{self.title}: different in {_count(self.differing, 'value')}"
        for m in self.mismatches[:SHOWN]:
            yield f"  {m.where}: recorded {m.recorded}, now {m.now}"
        if self.differing > SHOWN:
            yield f"  and {self.differing - SHOWN} more"


@dataclass(frozen=True)
class Replay:
    """A whole record, solved again."""

    parts: tuple[PartReplay, ...]
    notes: tuple[str, ...]
    """What had to be assumed, and why a difference may mean nothing."""

    @property
    def same(self) -> bool:
        """Whether all parts are the same."""
        return all(part.same for part in self.parts)

    def lines(self) -> list[str]:
        """The verdict as text."""
        told = [line for part in self.parts for line in part.lines()]
        return [*told, *(f"note: {note}" for note in self.notes), "same" if self.same else "different"]

    def plain(self) -> dict[str, Any]:
        """The verdict as data."""
        parts = [
            {"same": part.same, **asdict(part), "mismatches": [m.plain() for m in part.mismatches]}
            for part in self.parts
        ]
        return {"same": self.same, "notes": list(self.notes), "parts": parts}


def replay(recorded: RecordView) -> Replay:
    """Solve every part again and compare: everything but timings.

    Raises :class:`InputError` for a record that does not hold what its round depended on.
    """
    terms = read_terms(recorded)
    parts = []
    again = solve_all_again(recorded, terms)
    if len(again) != len(recorded.parts):
        raise InputError.one(recorded.source, _OTHER_PARTS.format(len(recorded.parts), len(again)), key="parts")
    for part, solved in zip(recorded.parts, again, strict=True):
        now = new_part(part.index, solved)
        found = list(_compare(part, now))
        parts.append(
            PartReplay(
                part.index,
                part.prices,
                part.priority,
                len(part.placements),
                len(part.waiting),
                part.first.optimum,
                tuple(found[:KEPT]),
                len(found),
            )
        )
    same = all(part.same for part in parts)
    return Replay(tuple(parts), terms.notes if same else (*terms.notes, *terms.version))


def _compare(recorded: Part, now: Part) -> Iterator[Mismatch]:
    """What differs, what was decided first."""
    then, again = cast("Mapping[str, Any]", recorded.plain), cast("Mapping[str, Any]", now.plain)
    for key in _KEYS:
        if key == "first_network" and recorded.first.optimum != now.first.optimum:
            yield Mismatch(_OPTIMUM, str(recorded.first.optimum), str(now.first.optimum))
        if (key in then) != (key in again):
            yield Mismatch(key, *(_text(part[key]) if key in part else _ABSENT for part in (then, again)))
        elif key in then:
            yield from differences(then[key], again[key], key)


def differences(recorded: Any, now: Any, where: str = "") -> Iterator[Mismatch]:
    """Leaves of two values that are not the same JSON, in the order of the first one."""
    if _equal_arrays(recorded, now) or _text(recorded) == _text(now):
        return
    recorded, now = _plain(recorded), _plain(now)
    if isinstance(recorded, Mapping) and isinstance(now, Mapping):
        for key in dict.fromkeys((*recorded, *now)):
            there = f"{where}.{key}" if where else str(key)
            if key not in now or key not in recorded:
                values = (_text(side[key]) if key in side else _ABSENT for side in (recorded, now))
                yield Mismatch(there, *values)
            else:
                yield from differences(recorded[key], now[key], there)
    elif isinstance(recorded, list) and isinstance(now, list):
        for i, (a, b) in enumerate(zip(recorded, now, strict=False)):
            yield from differences(a, b, f"{where}[{i}]")
        for i in range(min(len(recorded), len(now)), max(len(recorded), len(now))):
            values = (_text(side[i]) if i < len(side) else _ABSENT for side in (recorded, now))
            yield Mismatch(f"{where}[{i}]", *values)
    else:
        yield Mismatch(where, _text(recorded), _text(now))


def _equal_arrays(a: Any, b: Any) -> bool:
    """Whether both are arrays with the same bytes: the usual case, seen without a look at every value."""
    if not (isinstance(a, np.ndarray) and isinstance(b, np.ndarray)) or (a.dtype, a.shape) != (b.dtype, b.shape):
        return False
    return a.tobytes() == b.tobytes()


def _plain(value: Any) -> Any:
    """Arrays as JSON has them; tuples as lists."""
    if isinstance(value, np.ndarray | np.generic):
        return json.loads(_text(value))
    return list(value) if isinstance(value, tuple) else value


def _text(value: Any) -> str:
    return record_json(value, indent=None)


def _value(text: str) -> Any:
    return None if text == _ABSENT else json.loads(text)


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"
