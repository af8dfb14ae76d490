"""How many requests per second a server answers at most: a closed loop for a moment."""

from __future__ import annotations

from dataclasses import replace

from benchmarks.load_generator.load_plan import LoadPlan
from benchmarks.load_generator.running_load import run_load
from benchmarks.load_generator.steps import LoadStep

SECONDS = 2.0


def measure_capacity(plan: LoadPlan, seconds: float = SECONDS) -> float:
    """Requests per second with every connection always waiting for one answer; the steps of ``plan`` do not count.

    The first fifth of the time is left out: until then caches are cold and buffers are made. Raises :class:`LoadError`.
    """
    result = run_load(replace(plan, steps=(LoadStep(0.0, seconds),), closed=True))
    rows = [row for row in result.rows if row.t_s >= 0.2 * seconds]
    return sum(row.answered for row in rows) / max(sum(row.seconds for row in rows), 1e-9)
