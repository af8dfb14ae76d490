"""How wide a prediction is: errors of jobs and of hosts, from scores of groups that the fit had not seen."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence

import numpy as np

from flowsched_models.calibration.assembly import LogErrors
from flowsched_models.cell import Floats
from flowsched_models.validation.score import Quantity, Score

_PRIOR_COUNT = 10.0
"""A job with few executions borrows from all jobs, as if it had so many more with their error."""
_LEAST = 0.01
_OUTER = 1.645
"""Standard deviations that 90 % of a normal distribution lie within."""


def errors_of(scores: Iterable[Score]) -> LogErrors:
    """Errors of jobs and machine types that make the 90 % intervals of predictions hold for these scores.

    A host's factor is what all jobs of one group on one type of machine have in common; the rest is the jobs' own.
    """
    rows = [s for s in scores if s.quantity is Quantity.DURATION]
    logs = np.log([s.measured / s.predicted for s in rows])
    host = _host_error(rows, logs)
    whole = _deviation(logs)
    jobs = {}
    for job in sorted({s.subject for s in rows}):
        own = logs[[s.subject == job for s in rows]]
        total = (len(own) * _deviation(own) ** 2 + _PRIOR_COUNT * whole**2) / (len(own) + _PRIOR_COUNT)
        jobs[job] = float(np.sqrt(max(_LEAST**2, total - host**2)))
    return LogErrors(jobs, dict.fromkeys(sorted({s.machine_type for s in rows}), host))


def _deviation(logs: Floats) -> float:
    """From the 90th percentile: a few odd runs widen it no more than the intervals need."""
    return float(np.percentile(np.abs(logs), 90)) / _OUTER if len(logs) else 0.0


def _host_error(rows: Sequence[Score], logs: Floats) -> float:
    """Method of moments over hosts with several jobs: spread of their means beyond what the jobs alone explain."""
    hosts: dict[tuple[str, str], dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for score, log in zip(rows, logs.tolist(), strict=True):
        hosts[score.group, score.machine_type][score.subject].append(log)
    between = []
    for jobs in hosts.values():
        means = np.array([np.mean(values) for values in jobs.values()])
        if len(means) > 1:
            inside = float(np.var(means, ddof=1)) / len(means)
            between.append(float(np.mean(means)) ** 2 - inside)
    return float(np.sqrt(max(_LEAST**2, float(np.mean(between))))) if between else _LEAST
