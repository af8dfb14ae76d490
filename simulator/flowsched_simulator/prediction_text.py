"""A prediction for a terminal, in digits that its own uncertainty leaves meaningful, and as plain data."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from flowsched_models.picked_fields import picked
from flowsched_models.quantity import format_cores
from flowsched_models.text_table import counted, text_table
from flowsched_simulator.prediction import PredictedJob, PredictedService, Prediction, Range

VERSION = "flowsched/v1"
STEPS = 10
"""An interval is told in at least so many steps; the next power of ten below decides on the digits."""
_LEAST_S = 0.1
_LEAST_MS = 0.01


def digits_of(width: float, least: float) -> int:
    """Digits after the point (less than 0: zeros before it) for values whose interval has this width.

    ``least``: the finest step that is ever told, a power of ten.
    """
    finest = -round(math.log10(least))
    if width <= 0.0:
        return finest
    return min(finest, -math.floor(math.log10(width / STEPS)))


def range_words(values: Range, least: float = _LEAST_S, unit: float = 1.0) -> tuple[str, str]:
    """The median and its interval: ``("140", "[132, 151]")``; no interval where nothing is uncertain."""
    value, low, high = values.median / unit, values.low / unit, values.high / unit
    digits = digits_of(high - low, least)
    if high - low < least / 2.0:
        return f"{round(value, digits):g}", ""
    if value > 0.0 and round(value, digits) == 0.0:
        # A long tail makes the interval wide; that is no reason to tell a value as nothing.
        finer = min(-round(math.log10(least)), -math.floor(math.log10(value)))
        return _shown(value, finer), f"[{_shown(low, digits)}, {_shown(high, digits)}]"
    return _shown(value, digits), f"[{_shown(low, digits)}, {_shown(high, digits)}]"


def nominal_words(value: float, least: float = _LEAST_S) -> str:
    """A value that is told beside an interval as what it would be without any uncertainty: to the finest step."""
    return _shown(value, -round(math.log10(least)))


def lines(prediction: Prediction) -> Iterator[str]:
    """All that is to be said, line by line; names are as users wrote them."""
    level = f"{100.0 * prediction.level:g} %"
    yield f"Schedule {prediction.schedule} on {prediction.scenario}"
    drawn = f"{counted(prediction.draws, 'draw')} of the profiles' own errors (seed {prediction.seed})"
    yield f"Median [low, high]: {level} of {drawn} lie between low and high"
    yield ""
    head = ["job", "machine", "cores", "threads", "start s", "", "end s", "", "duration s", ""]
    yield from text_table([head, *map(_job_cells, prediction.jobs)], left=(0, 1, 2, 5, 7, 9))
    yield ""
    value, interval = range_words(prediction.makespan_s)
    nominal = nominal_words(prediction.makespan_s.nominal)
    yield f"Makespan: {value} s {interval}".rstrip() + f"; {nominal} s if every profile were exact"
    if prediction.services:
        yield ""
        head = ["service", "machine", "cores", "p95 ms", "", "worst ms", "", "goal ms", "risk", "windows above"]
        rows = [_service_cells(service, prediction.draws) for service in prediction.services]
        yield from text_table([head, *rows], left=(0, 1, 2, 4, 6))
        yield "  p95 of a usual and of the worst window of 10 s; risk: of any window above the goal"
    for machine, count in prediction.overcommitted:
        yield f"note: in {count} of {prediction.draws} draws the tasks of {machine} at some moment request more than it has"


def _job_cells(job: PredictedJob) -> list[str]:
    task = job.task
    cells = [task.job, task.machine, format_cores(task.cores), str(task.threads)]
    for values in (job.start_s, job.end_s, job.duration_s):
        cells += range_words(values)
    return cells


def _service_cells(predicted: PredictedService, draws: int) -> list[str]:
    service = predicted.service
    cells = [service.name, service.machine, format_cores(service.cores)]
    for values in (predicted.median_p95_us, predicted.worst_p95_us):
        cells += range_words(values, _LEAST_MS, 1000.0)
    return [
        *cells,
        f"{service.slo_us / 1000.0:g}",
        share_words(predicted.risk, draws),
        share_words(predicted.windows_above, draws),
    ]


def share_words(share: float, draws: int) -> str:
    """A share in per cent. None of n draws says less than 3/n, with 95 % confidence; all of them more than 1 - 3/n."""
    few = 3.0 / draws
    if share == 0.0:
        return f"<{_percent(min(1.0, few))}"
    if share == 1.0:
        return f">{_percent(max(0.0, 1.0 - few))}"
    return _percent(share)


def _percent(share: float) -> str:
    return f"{100.0 * share:.1f} %" if 0.0005 <= share < 0.1 or share > 0.9 else f"{100.0 * share:.2g} %"


def plain(prediction: Prediction) -> dict[str, Any]:
    """The object that ``--json`` prints; ``docs/predictions.md`` lists its keys."""
    return {
        "apiVersion": VERSION,
        "kind": "Prediction",
        **picked(prediction, "scenario", "schedule", "level", "draws", "seed"),
        "makespan_s": asdict(prediction.makespan_s),
        "jobs": [
            {
                "job": job.task.job,
                "machine": job.task.machine,
                "cores": list(job.task.cores),
                "threads": job.task.threads,
                "request": job.request,
                "start_s": asdict(job.start_s),
                "end_s": asdict(job.end_s),
                "duration_s": asdict(job.duration_s),
            }
            for job in prediction.jobs
        ],
        "services": [
            {
                "service": predicted.service.name,
                "machine": predicted.service.machine,
                "cores": list(predicted.service.cores),
                **picked(predicted.service, "threads", "qps", "slo_us"),
                "median_p95_us": asdict(predicted.median_p95_us),
                "worst_p95_us": asdict(predicted.worst_p95_us),
                "risk": predicted.risk,
                "windows_above": predicted.windows_above,
            }
            for predicted in prediction.services
        ],
        "overcommitted": [{"machine": machine, "draws": draws} for machine, draws in prediction.overcommitted],
    }


def _shown(value: float, digits: int) -> str:
    rounded = round(value, digits)
    return f"{rounded:.{max(0, digits)}f}"
