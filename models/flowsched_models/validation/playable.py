"""What of the measured runs the profiles can say anything about, and what not, by name and number."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from flowsched_models.catalogue import Catalogue
from flowsched_models.measurements.measurements import MeasuredExecution, Run

NotScored = Counter[tuple[str, str]]
"""How much could not be scored, by what it is (``executions``, ``runs``, ``windows``) and why."""


def playable(run: Run, catalogue: Catalogue, not_scored: NotScored) -> Run:
    """The machines of a run on which all jobs have a profile; the model cannot play a machine with an unknown job on it.

    Executions are counted by what is missing: those of the job itself, and those beside it.
    """
    kept = set()
    for node in sorted({e.node for e in run.executions} | {s.node for s in run.services}):
        executions = [e for e in run.executions if e.node == node]
        services = [s for s in run.services if s.node == node]
        machine_type = (executions or services)[0].machine_type
        jobs = sorted({e.job for e in executions} - set(catalogue.jobs))
        strangers = sorted({s.profile for s in services} - set(catalogue.services))
        if machine_type not in catalogue.machine_types:
            not_scored["executions", f"machine type '{machine_type}' is not in the profiles"] += len(executions)
        elif strangers:
            not_scored["executions", f"service '{strangers[0]}' on their machine has no profile"] += len(executions)
        elif jobs:
            _count_jobs(executions, jobs, not_scored)
        else:
            kept.add(node)
    if not kept >= {e.node for e in run.executions}:
        not_scored["runs", "some of their executions cannot be played, so the makespan is not known"] += 1
    return replace(
        run,
        executions=tuple(e for e in run.executions if e.node in kept),
        services=tuple(s for s in run.services if s.node in kept),
    )


def _count_jobs(executions: Sequence[MeasuredExecution], unknown: Sequence[str], not_scored: NotScored) -> None:
    for execution in executions:
        if execution.job in unknown:
            not_scored["executions", f"job '{execution.job}' has no profile"] += 1
        else:
            not_scored["executions", f"beside '{unknown[0]}', which has no profile"] += 1
