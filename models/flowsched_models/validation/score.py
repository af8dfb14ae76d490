"""One measured value beside the model's, and what many of them come to."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from flowsched_models.uncertainty import INNER, OUTER, inside
from flowsched_models.validation.sharing_kind import ServiceSharing, Sharing


class Quantity(StrEnum):
    """What is scored."""

    DURATION = "duration"
    """Seconds of one execution of a job."""
    MAKESPAN = "makespan"
    """Seconds of a run."""
    P95 = "p95"
    """Microseconds of a service in one window of a run."""


@dataclass(frozen=True)
class Score:
    """One measured value and the model's. What does not apply to its quantity is empty."""

    quantity: Quantity
    group: str
    schedule: str
    run: str
    year: str
    measured: float
    predicted: float
    subject: str = ""
    """The job or the service."""
    node: str = ""
    machine_type: str = ""
    cores: tuple[int, ...] = ()
    """Empty for all."""
    threads: int = 0
    start_s: float = 0.0
    sharing: Sharing | None = None
    service_sharing: ServiceSharing | None = None
    rank: float | None = None
    """Share of the model's own draws below what was measured."""

    @property
    def error(self) -> float:
        """Signed error of the model as a share of what was measured: more than 0 where it is too slow."""
        return self.predicted / self.measured - 1.0


@dataclass(frozen=True)
class Errors:
    """Errors of several scores in per cent of what was measured."""

    count: int
    median: float
    """Of absolute errors, as is ``p90``."""
    p90: float
    bias: float
    """Median of the signed errors."""
    inside_inner: float | None
    """Per cent of the measured values inside the model's own 50 % intervals; None without draws."""
    inside_outer: float | None
    """The same for 90 %."""


def errors(scores: Iterable[Score]) -> Errors | None:
    """What the scores come to; None where there is none."""
    rows = list(scores)
    if not rows:
        return None
    signed = 100.0 * np.array([score.error for score in rows])
    median, p90 = np.percentile(np.abs(signed), (50, 90))
    ranks = [score.rank for score in rows if score.rank is not None]
    return Errors(
        len(rows),
        float(median),
        float(p90),
        float(np.median(signed)),
        _share_inside(ranks, INNER),
        _share_inside(ranks, OUTER),
    )


def _share_inside(ranks: Sequence[float], level: float) -> float | None:
    return 100.0 * sum(inside(rank, level) for rank in ranks) / len(ranks) if ranks else None
