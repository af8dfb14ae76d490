"""How long the runs of an experiment take: by runs that are done, else by a quick run of each policy."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from flowsched_simulator.experiment.finished_run import FinishedRun
from flowsched_simulator.experiment.planned_run import PlannedRun, execute
from flowsched_simulator.experiment.run_store import RunStore
from flowsched_simulator.scenario import Scenario

_Kind = tuple[str, str, tuple[str, ...]]
"""Case, policy and settings."""
_QUICK_SHARE, _LEAST_JOBS = 10, 20
"""A quick run has a tenth of the jobs, and at least so many."""


@dataclass(frozen=True)
class Estimate:
    """Wall seconds of runs on one core."""

    seconds: Mapping[tuple[str, str, int], float]
    """By the key of the run."""
    how: str
    """What it was measured by, as the end of a sentence."""

    def total_s(self, runs: Iterable[PlannedRun]) -> float:
        """Of all these runs."""
        return sum(self.seconds.get(run.key, 0.0) for run in runs)


class TimeLeft:
    """How long the runs that are left take, learnt from those that are done: the estimate may be far off at first.

    Runs of a kind, which is one policy with its settings on one case, take as long as those of the kind that are done. A
    kind of which none is done takes as long as expected, times what runs of the same policy, else all runs, took over what
    was expected of them.
    """

    def __init__(self, runs: Iterable[PlannedRun], expected: Estimate | None, cores: int) -> None:
        """``expected``: seconds to begin with; None where all runs are expected to take equally long."""
        self._cores = cores
        self._kinds: dict[str, _Kind] = {}
        self._left: Counter[_Kind] = Counter()
        self._expected: dict[_Kind, float] = {}
        self._took: dict[_Kind, list[float]] = {}
        for run in runs:
            kind = run.case.name, run.contender.policy, run.contender.settings
            self._kinds[run.digest] = kind
            self._left[kind] += 1
            self._expected.setdefault(kind, 1.0 if expected is None else expected.seconds.get(run.key, 1.0))

    def done(self, digest: str, wall_s: float) -> None:
        """Take note of a run that is done."""
        kind = self._kinds[digest]
        self._left[kind] -= 1
        self._took.setdefault(kind, []).append(wall_s)

    def seconds(self) -> float | None:
        """Until all runs are done; None before any is."""
        if not self._took:
            return None
        left = {kind: count for kind, count in self._left.items() if count}
        whole = sum(count * self._of(kind) for kind, count in left.items())
        return whole / max(1, min(self._cores, sum(left.values())))

    def _of(self, kind: _Kind) -> float:
        took = self._took.get(kind)
        if took:
            return sum(took) / len(took)
        alike = [each for each in self._took if each[1:] == kind[1:]] or list(self._took)
        expected = sum(self._expected[each] for each in alike)
        means = sum(sum(self._took[each]) / len(self._took[each]) for each in alike)
        return self._expected[kind] * means / expected if expected else means / len(alike)


def estimate(pending: Sequence[PlannedRun], every: Sequence[PlannedRun], store: RunStore) -> Estimate:
    """Seconds of each pending run. ``every``: all runs of the experiment, of which some may be done.

    A run takes as long as those of the same case and policy that are done; else as those of the same policy on other cases,
    by the number of jobs; else as a quick run of that policy on the first jobs of the case, by the number of jobs.
    """
    waiting = {run.key for run in pending}
    known: dict[tuple[str, str], float] = {}
    per_job: dict[str, float] = {}
    for run in every:
        place = run.key[:2]
        if run.key in waiting or place in known:
            continue
        known[place] = float(store.read(run.digest).timings["wall_s"])
        per_job.setdefault(run.contender.label, known[place] / max(1, _jobs_of(run.case.scenario)))
    quick = [
        run for label, run in {run.contender.label: run for run in reversed(pending)}.items() if label not in per_job
    ]
    measured = [_quick_run(run) for run in reversed(quick)]
    for run, (seconds_of_run, jobs) in zip(reversed(quick), measured, strict=True):
        per_job[run.contender.label] = seconds_of_run / max(1, jobs)
    seconds = {
        run.key: known.get(run.key[:2], per_job[run.contender.label] * _jobs_of(run.case.scenario)) for run in pending
    }
    seconds |= {trial.key: seconds[run.key] for run in pending for trial in run.trials()}
    sizes = sorted({jobs for _, jobs in measured})
    how = "finished runs"
    if sizes:
        shown = f"{sizes[0]}" if len(sizes) == 1 else f"{sizes[0]} to {sizes[-1]}"
        how = f"a quick run of each policy with {shown} jobs" + (", and finished runs" if known else "")
    return Estimate(seconds, how)


def _quick_run(run: PlannedRun) -> tuple[float, int]:
    """Seconds of a run with the first jobs of a case, and how many those are."""
    jobs = _jobs_of(run.case.scenario)
    count = min(jobs, max(_LEAST_JOBS, jobs // _QUICK_SHARE))
    execute(_with_jobs(run, 2))  # compiles and loads what later runs have
    done = execute(_with_jobs(run, count))
    return (float(done.timings["wall_s"]) if isinstance(done, FinishedRun) else 0.0), count


def _jobs_of(scenario: Scenario) -> int:
    """How many jobs come."""
    drawn = scenario.arrivals.jobs
    return len({task.job for task in scenario.tasks}) if drawn is None else drawn


def _with_jobs(run: PlannedRun, count: int) -> PlannedRun:
    """The first jobs only. Task groups that several jobs share are left out: they might never be complete."""
    scenario = run.case.scenario
    if scenario.arrivals.jobs is not None:
        fewer = replace(scenario, arrivals=replace(scenario.arrivals, jobs=min(count, scenario.arrivals.jobs)))
    else:
        kept = set(list(dict.fromkeys(task.job for task in scenario.tasks))[:count])
        own = scenario.barriers & kept
        fewer = replace(
            scenario,
            tasks=tuple(
                replace(task, group=task.group if task.group in own else None)
                for task in scenario.tasks
                if task.job in kept
            ),
            task_groups=tuple(group for group in scenario.task_groups if group.name in own),
            barriers=own,
        )
    variants = run.contender.variants(run.case.scenario) if run.variant_seeds else ()
    return replace(
        run, case=replace(run.case, scenario=fewer), chosen=variants[0].only_variant if variants else run.chosen
    )
