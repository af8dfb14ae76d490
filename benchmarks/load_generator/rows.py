"""What the generator reports: windows of 100 ms, steps, and the whole run."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Sequence
from dataclasses import astuple, dataclass, fields
from pathlib import Path
from typing import Any, TypeVar

_Line = TypeVar("_Line", bound="_Numbers")


@dataclass(frozen=True)
class _Numbers:
    @classmethod
    def parse(cls: type[_Line], words: Sequence[str]) -> _Line:
        """A line of the generator without its first word. Negative numbers stand for what has no value."""
        made: list[Any] = []
        for field, word in zip(fields(cls), words, strict=True):
            number = float(word)
            made.append(int(word) if field.type == "int" else None if number < 0.0 else number)
        return cls(*made)


@dataclass(frozen=True)
class LoadRow(_Numbers):
    """All requests that were due in one window of 100 ms. Latencies are microseconds from when a request was due."""

    t_s: float
    """Begin of the window, seconds after the first step began."""
    seconds: float
    """Its length: 0.1, the last one perhaps less."""
    offered: float
    """Requests per second as planned; 0 in a closed loop."""
    due: int
    """Requests as drawn."""
    sent: int
    """Of these: handed to the kernel whole."""
    blocked: int
    """Of these: could not be sent at once, because the server did not read what was sent before."""
    lost: int
    """Of these: their connection was gone."""
    unanswered: int
    """Of these: not answered when the run ended; they count with the time until then."""
    errors: int
    """Of these: answered by an error."""
    answered: int
    mean_us: float | None
    p50_us: float | None
    p95_us: float | None
    p99_us: float | None
    max_us: float | None
    late_p95_us: float | None
    """How late the generator itself got to a request that was due."""
    late_max_us: float | None
    busy_ms: float
    """CPU time of the generator in this window."""
    waited_ms: float
    """How long the generator was ready to run and had no CPU."""


@dataclass(frozen=True)
class StepResult(_Numbers):
    """All requests that were due in one step; columns as of :class:`LoadRow`."""

    start_s: float
    end_s: float
    offered: float
    due: int
    lost: int
    unanswered: int
    errors: int
    answered: int
    mean_us: float | None
    p50_us: float | None
    p95_us: float | None
    p99_us: float | None
    max_us: float | None


@dataclass(frozen=True)
class Totals(_Numbers):
    """The whole run; columns as of :class:`LoadRow`."""

    took_s: float
    due: int
    sent: int
    blocked: int
    lost: int
    unanswered: int
    errors: int
    answered: int
    mean_us: float | None
    p50_us: float | None
    p95_us: float | None
    p99_us: float | None
    max_us: float | None
    late_p95_us: float | None
    late_max_us: float | None
    busy_ms: float
    waited_ms: float


def write_rows(path: Path, rows: Iterable[LoadRow]) -> None:
    """A CSV file with a header; what has no value is empty."""
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow([field.name for field in fields(LoadRow)])
        for row in rows:
            writer.writerow(["" if value is None else f"{value:.10g}" for value in astuple(row)])
