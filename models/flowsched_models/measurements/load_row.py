"""One interval of a changing load, as its client reports it."""

from __future__ import annotations

from dataclasses import dataclass

from flowsched_models.measurements.measurements import Where


@dataclass(frozen=True)
class LoadRow:
    """One interval as its client reported it."""

    machine_type: str
    service: str
    t_start_s: float
    t_end_s: float
    qps: float
    p95_us: float
    p50_us: float | None
    p99_us: float | None
    where: Where
