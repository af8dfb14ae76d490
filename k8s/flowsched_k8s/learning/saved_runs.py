"""What was learnt, as it stands in the ConfigMap: a line for each class and machine type, of some 100 bytes, and how far
forecasts of starts and ends were off, in two lines.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import NamedTuple

import msgspec

from flowsched.cluster.class_runs import ClassRuns
from flowsched.cluster.start_errors import (
    FARTHEST,
    MOST_ERRORS,
    NO_START_ERRORS,
    ErrorClasses,
    StartErrors,
    read_error_classes,
)

KEY, VERSION_KEY, UNTIL_KEY, RECENT_KEY = "classes", "version", "until", "recent"
STARTS_KEY, ENDS_KEY = "errors-of-starts", "errors-of-ends"
VERSION = "1"
MOST_BYTES = 900_000
"""Of the lines: an object of the API may hold 1 MiB in all."""
_LARGEST = 1e9


class SavedRuns(NamedTuple):
    """The completions of a class on a machine type, as far as they have not faded."""

    runs: ClassRuns
    base_s: float
    """Run time that stands for the forecast of pods of the class without any; 0: none of them has ended."""
    seen_s: float
    """When such a pod was last seen, in seconds since 1970."""


class Saved(NamedTuple):
    """All of the ConfigMap."""

    rows: tuple[SavedRuns, ...] = ()
    until_s: float = 0.0
    """The last end that was learnt from, in seconds since 1970."""
    recent: frozenset[str] = frozenset()
    """Short digests of the uids of pods that ended shortly before: their ends are told in no order."""
    errors: StartErrors = NO_START_ERRORS
    """Of forecasts whose starts and ends are known."""


_Row = tuple[str, str, int, float, float, float, int]
_ROW = msgspec.json.Decoder(_Row)


def dump_saved(saved: Saved) -> dict[str, str]:
    """The data of the ConfigMap. Where it would not fit, those that were seen longest ago are left out."""
    lines = []
    size = 0
    for row in sorted(saved.rows, key=lambda row: (-row.seen_s, row.runs[:2])):
        runs = row.runs
        numbers = runs.runs, round(runs.log_sum, 6), round(runs.log_squares, 9)
        line = msgspec.json.encode((*runs[:2], *numbers, round(row.base_s, 3), round(row.seen_s))).decode()
        size += len(line) + 1
        if size > MOST_BYTES:
            break
        lines.append(line)
    return {
        VERSION_KEY: VERSION,
        UNTIL_KEY: repr(round(saved.until_s, 3)),
        RECENT_KEY: " ".join(sorted(saved.recent)),
        KEY: "\n".join(sorted(lines)),
        STARTS_KEY: _dump_errors(saved.errors.starts),
        ENDS_KEY: _dump_errors(saved.errors.ends),
    }


def read_saved(data: Mapping[str, str]) -> tuple[Saved, str]:
    """What a ConfigMap says, and what of it cannot be used, in one sentence; empty if all can."""
    if (version := data.get(VERSION_KEY, "")) != VERSION:
        return Saved(), f"version '{version[:20]}' is not {VERSION}"
    rows: dict[tuple[str, str], SavedRuns] = {}
    bad = 0
    for line in filter(None, data.get(KEY, "").split("\n")):
        row = _read_row(line)
        if row is None:
            bad += 1
        else:
            rows[row.runs[:2]] = row
    try:
        until_s = float(data.get(UNTIL_KEY, ""))
    except ValueError:
        until_s = math.nan
    if not 0.0 <= until_s < math.inf:
        return Saved(), f"'{UNTIL_KEY}' is not a time"
    starts, ends = (_read_errors(data.get(key, "")) for key in (STARTS_KEY, ENDS_KEY))
    bad += (starts is None) + (ends is None)
    errors = StartErrors(starts or (), ends or ())
    saved = Saved(tuple(rows.values()), until_s, frozenset(data.get(RECENT_KEY, "").split()), errors)
    return saved, f"{bad} of its lines cannot be read" if bad else ""


def _dump_errors(errors: ErrorClasses) -> str:
    return " ".join(f"{at}:{count}" for at, count in errors)


def _read_errors(text: str) -> ErrorClasses | None:
    found: dict[int, int] = {}
    for word in text.split():
        at, _, count = word.partition(":")
        try:
            found[int(at)] = int(count)
        except ValueError:
            return None
    if not all(abs(at) <= FARTHEST and 0 < count <= MOST_ERRORS for at, count in found.items()):
        return None
    return read_error_classes(found)


def _read_row(line: str) -> SavedRuns | None:
    try:
        run_class, machine_type, runs, log_sum, log_squares, base_s, seen_s = _ROW.decode(line)
    except (msgspec.DecodeError, ValueError):
        return None
    words = all(word and word.isprintable() and " " not in word for word in (run_class, machine_type))
    numbers = (runs, abs(log_sum), log_squares, base_s)
    if not words or runs < 1 or not all(0.0 <= number <= _LARGEST for number in numbers) or seen_s < 0:
        return None
    return SavedRuns(ClassRuns.of(run_class, machine_type, runs, log_sum, log_squares), base_s, float(seen_s))
