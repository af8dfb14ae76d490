"""What is predicted for one machine of a group and whoever joins it, learnt company by company and kept as arrays."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from flowsched.assignment import Company, Newcomer
from flowsched.network import IntArray
from flowsched_models.forecaster import Forecaster, Futures
from flowsched_models.runtime import Resident

FloatArray = NDArray[np.float64]

Number = TypeVar("Number", np.int64, np.float64)
_Code = tuple[int, int, int]
"""Kind of job, slot and class of a newcomer."""
_FIRST_ROWS = 256


@dataclass(frozen=True)
class Prospect:
    """The future of one machine; times in seconds from now."""

    residents_s: tuple[float, ...]
    """Completion of each running task."""
    newcomers_s: tuple[float, ...]
    """Completion of each newcomer, in the company's order."""
    starts_s: tuple[float, ...]
    """When each newcomer is bound; 0 for slot 0."""
    peak_p95_us: tuple[float, ...]
    """Highest p95 of each service until the last completion."""
    shared: bool = False
    """Whether light newcomers use the services' cores too."""


class Prospects:
    """The prospects of one group's machine. A company has a row for each way in which its newcomers may be given cores;
    none if it cannot be there.
    """

    def __init__(
        self,
        forecaster: Forecaster,
        resident_of: Callable[[Newcomer, bool], Resident],
        ways_of: Callable[[Company], Sequence[bool]],
        spoiled: Callable[[Company, Prospect], bool] | None = None,
    ) -> None:
        """``resident_of`` a newcomer of any slot, with the services' cores or without; ``ways_of`` a company to have them,
        if any; ``spoiled``: prospects that cannot be, though everybody ends.
        """
        self._forecaster = forecaster
        self._resident_of = resident_of
        self._ways_of = ways_of
        self._spoiled = spoiled
        self._codes: tuple[dict[Newcomer, _Code], dict[Newcomer, _Code]] = ({}, {})
        self._rows: dict[Company, tuple[int, ...]] = {}
        self._companies: list[Company] = []
        self._shared: list[bool] = []
        self._prospects: dict[int, Prospect] = {}
        self.first: IntArray = np.zeros(_FIRST_ROWS + 1, np.int64)
        """Where the newcomers of each row begin."""
        self.newcomers_s: FloatArray = np.empty(4 * _FIRST_ROWS)
        self.starts_s: FloatArray = np.empty(4 * _FIRST_ROWS)
        self.classes: IntArray = np.empty(4 * _FIRST_ROWS, np.int64)
        """Class of each newcomer."""
        self.residents_s: FloatArray = np.empty((0, 0))
        """[rows, running tasks] completions."""
        self.peak_p95_us: FloatArray = np.empty((0, 0))
        """[rows, services]."""

    def rows(self, companies: Sequence[Company]) -> tuple[list[tuple[int, ...]], int]:
        """Rows of each company, and the number of forecasts that had to be made."""
        known = self._rows
        new = [c for c in companies if c not in known]
        made = self._learn(list(dict.fromkeys(new))) if new else 0
        return [known[c] for c in companies], made

    def expect(self, newcomers: Iterable[tuple[Newcomer, bool]]) -> None:
        """Newcomers that will be asked about, with the services' cores or without: fewer changes later."""
        for newcomer, shared in newcomers:
            self._code(newcomer, shared)

    def prospect(self, row: int) -> Prospect:
        """A row as a value."""
        found = self._prospects.get(row)
        if found is None:
            begin, end = int(self.first[row]), int(self.first[row + 1])
            found = self._prospects[row] = Prospect(
                tuple(self.residents_s[row].tolist()),
                tuple(self.newcomers_s[begin:end].tolist()),
                tuple(self.starts_s[begin:end].tolist()),
                tuple(self.peak_p95_us[row].tolist()),
                self._shared[row],
            )
        return found

    def _learn(self, companies: Sequence[Company]) -> int:
        codes: list[_Code] = []
        first = [0]
        asked: list[tuple[Company, bool]] = []
        for company in companies:
            self._rows[company] = ()
            for shared in self._ways_of(company):
                known = self._codes[shared]
                try:
                    codes += [known[newcomer] for newcomer in company]
                except KeyError:
                    codes += [self._code(newcomer, shared) for newcomer in company]
                first.append(len(codes))
                asked.append((company, shared))
        if not asked:
            return 0
        kinds, slots, classes = np.array(codes, np.int64).reshape(len(codes), 3).T.copy()
        futures = self._forecaster.run(kinds, slots, np.array(first, np.int64))
        base = self._store(futures, classes)
        never = np.isinf(futures.joiners_s)
        lost = set(np.searchsorted(futures.first, np.flatnonzero(never), "right").tolist()) if never.any() else set()
        for i, (company, shared) in enumerate(asked):
            self._companies.append(company)
            self._shared.append(shared)
            if i + 1 not in lost and (self._spoiled is None or not self._spoiled(company, self.prospect(base + i))):
                self._rows[company] = (*self._rows[company], base + i)
        return len(asked)

    def _code(self, newcomer: Newcomer, shared: bool) -> _Code:
        kind = self._forecaster.kind(self._resident_of(newcomer, shared))
        found = self._codes[shared][newcomer] = (kind, newcomer.slot, newcomer.task_class)
        return found

    def _store(self, futures: Futures, classes: IntArray) -> int:
        """Append the arrays; the first new row."""
        base, more = len(self._companies), len(futures.first) - 1
        if base == 0:
            self.residents_s = np.empty((_FIRST_ROWS, futures.standing_s.shape[1]))
            self.peak_p95_us = np.empty((_FIRST_ROWS, futures.peak_p95_us.shape[1]))
        rows = base + more
        self.first = _with_room(self.first, rows + 1)
        self.residents_s = _with_room(self.residents_s, rows)
        self.peak_p95_us = _with_room(self.peak_p95_us, rows)
        begin = int(self.first[base])
        end = begin + len(classes)
        self.newcomers_s = _with_room(self.newcomers_s, end)
        self.starts_s = _with_room(self.starts_s, end)
        self.classes = _with_room(self.classes, end)
        self.first[base + 1 : rows + 1] = futures.first[1:] + begin
        self.newcomers_s[begin:end] = futures.joiners_s
        self.starts_s[begin:end] = futures.starts_s
        self.classes[begin:end] = classes
        self.residents_s[base:rows] = futures.standing_s
        self.peak_p95_us[base:rows] = futures.peak_p95_us
        return base


def _with_room(array: NDArray[Number], rows: int) -> NDArray[Number]:
    """An array with at least so many rows, the first ones as they are."""
    if len(array) >= rows:
        return array
    larger = np.empty((max(rows, 2 * len(array)), *array.shape[1:]), array.dtype)
    larger[: len(array)] = array
    return larger
