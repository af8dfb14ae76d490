"""A run that is done, as it is kept in a file of its own: its tables, and apart from them what clocks measured."""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from flowsched.cluster.snapshot import MILLI
from flowsched_models.picked_fields import picked
from flowsched_simulator.experiment.offered_load import offered_load
from flowsched_simulator.run import Run
from flowsched_simulator.run_tables import TABLES, Columns, round_times_ms, run_columns
from flowsched_simulator.scenario import Scenario

FORMAT = "flowsched/run/v1"
_LEAST_LIMIT = 256 << 20
_PACKED_AT_MOST = 50
"""Runs are mostly three to ten times as large as their files."""
_QUANTILES = (("median", 50.0), ("p95", 95.0))
_NOT_FIGURES = ("policy", "variant", "variant_seeds", "timings")
_OF_JOBS = ("completion_s", "waiting_s", "slowdown")


@dataclass(frozen=True)
class FinishedRun:
    """What is kept of a run."""

    digest: str
    """Of its whole configuration; see :class:`PlannedRun`."""
    variant: str
    """Of a baseline, the one that ran or was best."""
    figures: Mapping[str, Any]
    """One value each, by name: the columns of the table of runs."""
    tables: Mapping[str, Columns]
    """Jobs, windows and rounds."""
    timings: Mapping[str, Any]
    """Wall and CPU seconds, host and versions."""
    round_ms: tuple[float, ...]

    def to_bytes(self) -> bytes:
        """As a file."""
        content = {
            "format": FORMAT,
            **picked(self, "digest", "variant", "figures", "tables", "timings", "round_ms"),
        }
        return gzip.compress(json.dumps(content, allow_nan=False).encode(), compresslevel=3, mtime=0)


@dataclass(frozen=True)
class RunFailure:
    """A run that could not be done."""

    key: tuple[str, str, int]
    """Case, label of the contender, seed."""
    message: str


def read_finished(content: bytes) -> FinishedRun:
    """A run from its file. Raises ``ValueError`` for a file that is none, or is damaged."""
    try:
        data = json.loads(_unpacked(content))
    except (OSError, EOFError, zlib.error, ValueError, RecursionError) as error:
        raise ValueError(f"is damaged: {error}") from None
    if not isinstance(data, dict) or data.get("format") != FORMAT:
        raise ValueError(f"is not a finished run of this version ({FORMAT})")
    parts: list[Any] = [data.get(name) for name in ("digest", "variant", "figures", "tables", "timings", "round_ms")]
    for part, kind in zip(parts, (str, str, dict, dict, dict, list), strict=True):
        if not isinstance(part, kind):
            raise ValueError("is damaged: a part of it is missing")
    digest, variant, figures, tables, timings, round_ms = parts
    return FinishedRun(digest, variant, figures, tables, timings, tuple(round_ms))


def _unpacked(content: bytes) -> bytes:
    """The text of a file. Raises ``ValueError`` where it is larger than any run of its size."""
    limit = max(_LEAST_LIMIT, _PACKED_AT_MOST * len(content))
    unpacking = zlib.decompressobj(wbits=zlib.MAX_WBITS | 16)
    text = unpacking.decompress(content, limit)
    if unpacking.unconsumed_tail:
        raise ValueError(f"it unpacks to more than {limit >> 20:,} MiB")
    if not unpacking.eof:
        raise EOFError("the file ends too soon")
    return text


def finished_run(digest: str, scenario: Scenario, run: Run, timings: Mapping[str, Any]) -> FinishedRun:
    """What is kept of a run on a scenario."""
    tables = {table: run_columns(run, table) for table in TABLES}
    return FinishedRun(
        digest,
        run.variant,
        run_figures(scenario, run),
        tables,
        timings,
        tuple(round_times_ms(run)),
    )


def run_figures(scenario: Scenario, run: Run) -> dict[str, Any]:
    """One value of each kind: the summary of the run without timings, quantiles over its jobs, and sizes.

    Quantiles and means over jobs are None where a job never ended. ``utilisation``: core-seconds that running jobs
    request over those of all batch cores until the makespan.
    """
    cores = sum(len(each) for each in scenario.batch_cores().values())
    told = {key: value for key, value in run.summary().items() if key not in _NOT_FIGURES}
    figures = {
        "objective": scenario.objective.value,
        "machines": len(scenario.machines),
        "batch_cores": cores,
        "load": offered_load(scenario),
        "jobs": len(run.outcomes),
        "unfinished": sum(job.end_s is None for job in run.outcomes),
        **told,
        "rounds": len(run.rounds),
        "utilisation": _utilisation(run, cores),
    }
    for name in _OF_JOBS:
        for word, q in _QUANTILES:
            figures.setdefault(f"{word}_{name}", _quantile(run.per_job(name), q))
    return figures


def _quantile(values: list[float | None], q: float) -> float | None:
    known = [value for value in values if value is not None]
    return float(np.percentile(known, q)) if known and len(known) == len(values) else None


def _utilisation(run: Run, cores: int) -> float | None:
    if not cores or not 0.0 < run.makespan_s < float("inf"):
        return None
    busy = 0.0
    for job in run.jobs:
        if job.start_s is not None and job.end_s is not None:
            busy += (job.end_s - job.start_s) * job.width_milli / MILLI
        busy += sum(max(0.0, stay.left_s - stay.start_s) * stay.width_milli / MILLI for stay in job.earlier)
    return busy / (cores * run.makespan_s)
