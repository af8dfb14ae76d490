"""Forecasts of starts and ends that are kept until they can be compared with what happened.

A task that waits for long is forecast in every round. Of all these forecasts each is as likely to be kept, so that errors
are those of a question at any time; which ones follows from the task's name and the round's number.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Container, Iterable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from flowsched.cluster.start_errors import ErrorClasses, StartErrors, error_classes
from flowsched.support.arrays import FloatArray

_ONE_OF = 4
"""One of so many forecasts is kept at first."""
_MOST_KEPT = 16
"""Of a task; more, and every other one is left out from then on."""
_FREE, _WAITS, _RUNS = 0, 1, 2
_ASKED_S, _START_S, _END_S, _WEIGHT = range(4)
"""When a forecast was made, in how many seconds start and end were expected, and how many forecasts it stands for."""
_START_SPAN, _END_SPAN = slice(4, 7), slice(7, 10)
"""Where an interval was told: the seconds from then to its three moments."""
_COLUMNS = 10


class Held(StrEnum):
    """Where a start or an end was, seen from the interval that was told of it."""

    EARLY = "early"
    HELD = "held"
    LATE = "late"


class StartOutcome(NamedTuple):
    """What came of a forecast whose interval was told."""

    forecast: str
    """``start`` or ``end``"""
    error_s: float
    """So much later than expected."""
    held: Held
    weight: int
    """How many forecasts it stands for."""


class StartForecast(NamedTuple):
    """When a task that waits starts, and ends where it does that by itself; seconds of one clock."""

    task: str
    start_s: float
    end_s: float | None


@dataclass
class _Kept:
    """The forecasts of a task that are kept: rows, and the numbers that say whether they are kept."""

    one_of: int = _ONE_OF
    rows: dict[int, int] = field(default_factory=dict)


class StartSamples:
    """The forecasts of tasks that wait or run."""

    def __init__(self, judge: Callable[[StartOutcome], None] | None = None) -> None:
        """None is kept. ``judge`` is told what came of each forecast that is kept and whose interval was told."""
        self._judge = judge
        self._of: dict[str, _Kept] = {}
        self._numbers: FloatArray = np.zeros((0, _COLUMNS))
        """[rows, columns]"""
        self._phase: NDArray[np.int8] = np.zeros(0, np.int8)
        """[rows] what the task of each does."""
        self._empty: list[int] = []

    def decided(
        self, forecasts: Iterable[StartForecast], now_s: float, round: int, told: StartErrors | None = None
    ) -> None:
        """After a round this is forecast. ``told``: the errors that intervals followed from, where these are judged."""
        rows: list[int] = []
        numbers: list[tuple[float, float, float]] = []
        crowded: list[_Kept] = []
        for planned in forecasts:
            known = self._of.get(planned.task)
            mixed = crc32(f"{planned.task} {round}".encode())
            if mixed % (_ONE_OF if known is None else known.one_of):
                continue
            if known is None:
                known = self._of[planned.task] = _Kept()
            end_s = math.inf if planned.end_s is None else planned.end_s - now_s
            numbers.append((planned.start_s - now_s, end_s, known.one_of // _ONE_OF))
            rows.append(self._row())
            known.rows[rows[-1]] = mixed
            if len(known.rows) > _MOST_KEPT:
                crowded.append(known)
        if not rows:
            return
        self._phase[rows] = _WAITS
        self._numbers[rows] = _table(np.array(numbers), now_s, told)
        for known in crowded:
            self._thin(known)

    def started(self, task: str, start_s: float, errors: StartErrors) -> StartErrors:
        """What is known of errors once a task started."""
        rows = self._rows(task)
        if not rows:
            return errors
        found = self._numbers[rows]
        self._phase[rows] = _RUNS
        self._judge_all("start", found, _START_SPAN, start_s)
        return errors.with_starts(_seen(found[:, _START_S], start_s - found[:, _ASKED_S], found[:, _WEIGHT]))

    def ended(self, task: str, end_s: float, errors: StartErrors) -> StartErrors:
        """What is known of errors once a task ended by itself; its forecasts are forgotten."""
        rows = self._rows(task)
        if not rows:
            return errors
        found = self._numbers[rows]
        self.forget(task)
        self._judge_all("end", found, _END_SPAN, end_s)
        return errors.with_ends(_seen(found[:, _END_S], end_s - found[:, _ASKED_S], found[:, _WEIGHT]))

    def forget(self, task: str) -> None:
        """A task is gone otherwise, or does not go on as it was planned."""
        rows = self._rows(task)
        self._of.pop(task, None)
        self._leave(rows)

    def forget_others(self, tasks: Container[str]) -> None:
        """Only these are there."""
        for task in [task for task in self._of if task not in tasks]:
            self.forget(task)

    def with_open(self, errors: StartErrors, now_s: float) -> StartErrors:
        """The errors with those of forecasts that nothing is known of yet but how late they are already."""
        if not self._of:
            return errors
        there = self._phase != _FREE
        phase, found = self._phase[there], self._numbers[there]
        elapsed, weight, waits = now_s - found[:, _ASKED_S], found[:, _WEIGHT], phase == _WAITS
        return errors.with_open(
            _seen(found[waits, _START_S], elapsed[waits], weight[waits]), _seen(found[:, _END_S], elapsed, weight)
        )

    def _judge_all(self, forecast: str, found: FloatArray, span: slice, came_s: float) -> None:
        if self._judge is None:
            return
        for asked_s, weight, told in zip(found[:, _ASKED_S], found[:, _WEIGHT], found[:, span], strict=True):
            earliest_s, expected_s, latest_s = told.tolist()
            took_s = came_s - float(asked_s)
            if not math.isnan(expected_s):
                held = Held.EARLY if took_s < earliest_s else Held.LATE if took_s > latest_s else Held.HELD
                self._judge(StartOutcome(forecast, took_s - expected_s, held, int(weight)))

    def _rows(self, task: str) -> list[int]:
        known = self._of.get(task)
        return [] if known is None else [*known.rows]

    def _row(self) -> int:
        """One that is free."""
        if not self._empty:
            before = len(self._phase)
            more = max(64, before)
            self._numbers = np.concatenate([self._numbers, np.zeros((more, _COLUMNS))])
            self._phase = np.concatenate([self._phase, np.zeros(more, np.int8)])
            self._empty += range(before + more - 1, before - 1, -1)
        return self._empty.pop()

    def _thin(self, known: _Kept) -> None:
        """Leave out every other forecast of a task, on average; the others stand for twice as many."""
        known.one_of *= 2
        gone = [row for row, mixed in known.rows.items() if mixed % known.one_of]
        for row in gone:
            del known.rows[row]
        self._leave(gone)
        self._numbers[[*known.rows], _WEIGHT] = known.one_of // _ONE_OF

    def _leave(self, rows: list[int]) -> None:
        if rows:
            self._phase[rows] = _FREE
            self._empty += rows


def _table(numbers: FloatArray, now_s: float, told: StartErrors | None) -> FloatArray:
    """[forecasts, columns] from [forecasts, seconds until start and end, weight]."""
    table = np.full((len(numbers), _COLUMNS), math.nan)
    table[:, _ASKED_S] = now_s
    table[:, [_START_S, _END_S, _WEIGHT]] = numbers
    if told is not None:
        table[:, _START_SPAN] = told.starts_in(numbers[:, 0])
        ends = np.isfinite(numbers[:, 1])
        table[ends, _END_SPAN] = told.ends_in(numbers[ends, 1])
    return table


def _seen(forecast_s: FloatArray, actual_s: FloatArray, weight: FloatArray) -> ErrorClasses:
    known = np.isfinite(forecast_s)
    return error_classes(forecast_s[known], actual_s[known], weight[known])
