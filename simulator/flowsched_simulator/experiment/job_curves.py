"""Utilisation and queue length over time, from the times of jobs."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    import pandas as pd

UTILISATION, QUEUE = "utilisation", "queue"


class Span(NamedTuple):
    """A time in which a job counts so much. Seconds since the first submission."""

    begin_s: float
    end_s: float
    amount: float


def last_end_s(jobs: pd.DataFrame) -> float:
    """When the last job of a run ended, in seconds since the first submission."""
    end = jobs["end_s"].max()
    return float(end - jobs["submit_s"].min()) if end == end else 0.0


def curve(jobs: pd.DataFrame, what: str, times: NDArray[np.float64]) -> NDArray[np.float64]:
    """Cores that running jobs request (``utilisation``), or jobs that wait (``queue``), at each of ``times``."""
    first_s = float(jobs["submit_s"].min())
    spans = list(_spans(jobs, what))
    if not spans:
        return np.zeros(len(times))
    begins, ends, amounts = np.array(spans).T
    return _until(begins - first_s, amounts, times) - _until(ends - first_s, amounts, times)


def _until(at: NDArray[np.float64], amounts: NDArray[np.float64], times: NDArray[np.float64]) -> NDArray[np.float64]:
    """Sum of the amounts whose moment has come, at each time."""
    order = np.argsort(at, kind="stable")
    sums = np.concatenate([[0.0], np.cumsum(amounts[order])])
    return sums[np.searchsorted(at[order], times, side="right")]


def _spans(jobs: pd.DataFrame, what: str) -> Iterator[Span]:
    for row in jobs[["submit_s", "start_s", "end_s", "request", "earlier"]].itertuples(index=False):
        stays = json.loads(row.earlier) if isinstance(row.earlier, str) and row.earlier else []
        ran = [(stay["start_s"], max(stay["start_s"], stay["left_s"]), stay["width_milli"] / 1000.0) for stay in stays]
        if row.start_s == row.start_s:
            ran.append((row.start_s, row.end_s if row.end_s == row.end_s else np.inf, row.request))
        if what == UTILISATION:
            yield from (Span(*each) for each in ran)
            continue
        waits_since = row.submit_s
        for begin, end, _ in ran:
            yield Span(waits_since, max(waits_since, begin), 1.0)
            waits_since = max(waits_since, end)
        if not ran:
            yield Span(row.submit_s, np.inf, 1.0)
