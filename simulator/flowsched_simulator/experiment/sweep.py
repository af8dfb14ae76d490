"""Runs what an experiment lacks, and gathers its results when nothing is lacking."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from pathlib import Path
from typing import Any

from flowsched_models.document import InputError
from flowsched_models.text_table import counted
from flowsched_simulator.comparison import best_variant
from flowsched_simulator.drawn import selection_seeds
from flowsched_simulator.experiment.estimate import Estimate, TimeLeft, estimate
from flowsched_simulator.experiment.finished_run import RunFailure
from flowsched_simulator.experiment.gathering import gather
from flowsched_simulator.experiment.paired import PairedDifference, paired_difference
from flowsched_simulator.experiment.plan import Plan
from flowsched_simulator.experiment.planned_run import PlannedRun
from flowsched_simulator.experiment.run_store import RunStore
from flowsched_simulator.experiment.workers import check_backend, check_installed, workers

LEAST_SEEDS = 5
"""By the intervals of fewer it is not decided when to stop."""
USUAL_MOST_SEEDS = 100
"""Default limit of seeds to add."""

SweepReport = Callable[[int, int, float | None], None]
"""Called with runs done, runs in all, and about how many seconds are left (None: not known)."""


@dataclass(eq=False)
class Sweep:
    """The runs of a plan in a folder. Runs that are done there already are not done again."""

    plan: Plan
    folder: Path
    _: KW_ONLY
    jobs: int | None = None
    backend: str = "local"
    address: str | None = None
    share: tuple[int, int] | None = None
    """Do only every n-th run, beginning with the i-th; (0, 10) is the first tenth."""
    report: SweepReport | None = None

    def __post_init__(self) -> None:
        """Refuse what cannot run."""
        check_installed()
        check_backend(self.backend, self.address)
        self.store = RunStore(self.folder)
        self._figures: dict[str, dict[str, Any]] = {}

    def mine(self, seeds: Iterable[int]) -> list[PlannedRun]:
        """The runs of this share, all of one seed before those of the next."""
        every = sorted(self.plan.runs(seeds), key=lambda run: (run.seed, run.key))
        if self.share is None:
            return every
        index, count = self.share
        return every[index::count]

    def pending(self, seeds: Iterable[int]) -> list[PlannedRun]:
        """Those that are not done."""
        done = self.store.digests()
        return [run for run in self.mine(seeds) if run.digest not in done]

    def further_seeds(self) -> list[int]:
        """Seeds after those of the plan with which runs of it are done, as :meth:`run_until` adds them."""
        done, found = self.store.digests(), list[int]()
        while done:
            (seed,) = self._further([*self.plan.seeds, *found], 1)
            if not any(run.digest in done for run in self.plan.runs([seed])):
                break
            found.append(seed)
        return found

    def trials(self, pending: Iterable[PlannedRun]) -> list[PlannedRun]:
        """Runs that are not done, of those by which the variants of pending runs are chosen."""
        done = self.store.digests()
        wanted = {trial.digest: trial for run in pending for trial in run.trials()}
        return [trial for digest, trial in wanted.items() if digest not in done]

    def finished(self, seeds: Iterable[int]) -> int:
        """How many runs with these seeds are done."""
        return len({run.digest for run in self.plan.runs(seeds)} & self.store.digests())

    def foreign(self, seeds: Iterable[int]) -> int:
        """How many finished runs of the folder are none with these seeds, nor chose variants, and are left alone."""
        own = {run.digest for run in (*self.plan.runs(seeds), *self.plan.trials())}
        return len(self.store.digests() - own)

    def lacking(self) -> int:
        """How many runs of all shares are not done."""
        return len({run.digest for run in self.plan.runs(self.plan.seeds)} - self.store.digests())

    def cores(self) -> int:
        """How many runs are done at once."""
        if self.jobs is not None:
            return self.jobs
        with workers(self.backend, self.jobs, self.address) as (count, _):
            return count

    def estimate(self, seeds: Sequence[int]) -> Estimate:
        """How long the pending runs with these seeds take, measured."""
        return estimate(self.pending(seeds), self.mine(seeds), self.store)

    def run(self, expected: Estimate | None = None) -> list[RunFailure]:
        """Do the pending runs, and gather the results if none is lacking; the runs that failed."""
        with self.store.locked("" if self.share is None else f"{self.share[0]}/{self.share[1]}"):
            failures = self._do(self.pending(self.plan.seeds), expected)
            self.gather_if_complete(self.plan.seeds)
        return failures

    def run_until(
        self, width: float, most_seeds: int | None = None, expected: Estimate | None = None
    ) -> list[RunFailure]:
        """Add seeds until every paired difference is known to ``width`` of the reference's mean, half of the interval.

        ``most_seeds``: :data:`USUAL_MOST_SEEDS` unless given; raises :class:`InputError` if it begins with more already.
        Every case has the same seeds. A rule that stops by the width makes intervals a little too narrow where seeds are few
        (Chow and Robbins 1965, Annals of Mathematical Statistics 36); there are therefore :data:`LEAST_SEEDS` at least.
        """
        check_most_seeds(self.plan, width, most_seeds)
        most_seeds = most_seeds or USUAL_MOST_SEEDS
        seeds = self.first_seeds()
        with self.store.locked():
            while True:
                failures = self._do(self.pending(seeds), expected)
                if failures:
                    return failures
                missing = self._seeds_missing(seeds, width)
                count = min(missing, len(seeds), most_seeds - len(seeds))
                if count <= 0:
                    break
                seeds += self._further(seeds, count)
            self.gather_if_complete(seeds)
        return []

    def first_seeds(self) -> list[int]:
        """Those that :meth:`run_until` begins with: of the plan, and so many more that there are :data:`LEAST_SEEDS`."""
        seeds = list(self.plan.seeds)
        return seeds + self._further(seeds, max(0, LEAST_SEEDS - len(seeds)))

    def differences(self, seeds: Sequence[int]) -> list[PairedDifference]:
        """Every case and policy against the reference, by the metric of the plan."""
        values: dict[tuple[str, str], dict[int, float | None]] = {}
        for run in self.plan.runs(seeds):
            # The one run of what is not drawn stands beside those of all seeds.
            stands_for = (run.seed,) if self.plan.is_drawn(run.case, run.contender) else seeds
            values.setdefault(run.key[:2], {}).update(dict.fromkeys(stands_for, self._figure(run)))
        return [
            paired_difference(values[case, label], values[case, self.plan.reference])
            for case, label in values
            if label != self.plan.reference
        ]

    def gather_if_complete(self, seeds: Iterable[int]) -> bool:
        """Write ``results`` and ``timings`` if all runs of all shares are done."""
        runs = self.plan.runs(seeds)
        if not {run.digest for run in runs} <= self.store.digests():
            return False
        try:
            gather(self.plan, runs, self.store, self.folder)
        except OSError as error:
            message = f"results cannot be written: {(error.strerror or str(error)).lower()}"
            help = "all runs are kept: make room, and the same command writes them"
            raise InputError.one(self.folder, message, help) from None
        return True

    def _do(self, pending: Sequence[PlannedRun], expected: Estimate | None) -> list[RunFailure]:
        """Choose variants where that is not done, then do the runs; those of them that failed."""
        if not pending:
            return []
        failures: list[RunFailure] = []
        trials = self.trials(pending)
        with workers(self.backend, self.jobs, self.address) as (cores, do):
            count, every = 0, [*trials, *pending]
            time_left = TimeLeft(every, expected, cores)
            self._tell(0, len(every), None)
            for part in (lambda: trials, lambda: self._with_variants(pending, {each.key for each in failures})):
                for answer in do(part()):
                    count += 1
                    if isinstance(answer, RunFailure):
                        failures.append(answer)
                    else:
                        self.store.write(answer)
                        time_left.done(answer.digest, float(answer.timings["wall_s"]))
                    self._tell(count, len(every), time_left.seconds())
        return sorted(failures, key=lambda failure: failure.key)

    def _with_variants(
        self, runs: Sequence[PlannedRun], failed: Collection[tuple[str, str, int]]
    ) -> Iterator[PlannedRun]:
        """The same, each with the variant that its trials chose; without those of which a trial failed."""
        chosen: dict[tuple[str, str], str | None] = {}
        for run in runs:
            place, trials = run.key[:2], run.trials()
            if any(trial.key in failed for trial in trials):
                continue
            if place not in chosen:
                figures: dict[str, list[Mapping[str, Any]]] = {}
                for trial in trials:
                    figures.setdefault(trial.contender.variant, []).append(self.store.read(trial.digest).figures)
                chosen[place] = best_variant(figures, run.case.scenario.objective) if figures else None
            yield replace(run, chosen=chosen[place])

    def _further(self, seeds: Sequence[int], count: int) -> list[int]:
        """The next seeds after the largest, but for those that choose variants."""
        first, taken = max(seeds, default=0) + 1, selection_seeds(self.plan.seeds)
        return [seed for seed in range(first, first + count + len(taken)) if seed not in taken][:count]

    def _tell(self, done: int, total: int, left_s: float | None) -> None:
        if self.report is not None:
            self.report(done, total, left_s)

    def _figure(self, run: PlannedRun) -> float | None:
        if run.digest not in self._figures:
            self._figures[run.digest] = dict(self.store.read(run.digest).figures)
        value = self._figures[run.digest].get(self.plan.metric)
        return None if value is None else float(value)

    def _seeds_missing(self, seeds: Sequence[int], width: float) -> int:
        """About how many seeds more make all intervals narrow enough; 0 where they are."""
        missing = 0
        for difference in self.differences(seeds):
            half = difference.relative_half_width
            if half is None or half <= width:
                continue
            missing = max(missing, math.ceil(len(seeds) * min(4.0, (half / width) ** 2)) - len(seeds), 1)
        return missing


def check_most_seeds(plan: Plan, until: float | None, most_seeds: int | None) -> None:
    """Raise :class:`InputError` for a limit of seeds that limits nothing, or that the first seeds break already."""
    if most_seeds is None:
        return
    if until is None:
        message, help = "has no meaning without --until", "add --until 2%, or leave it out"
    elif most_seeds < len(plan.seeds):
        message = f"allows {counted(most_seeds, 'seed')}, but the experiment has {len(plan.seeds)}"
        help = f"write --max-seeds {max(LEAST_SEEDS, len(plan.seeds))} or more, or name fewer seeds in the experiment"
    elif most_seeds < LEAST_SEEDS:
        message = (
            f"allows {counted(most_seeds, 'seed')}, but intervals of fewer than {LEAST_SEEDS} do not tell when to stop"
        )
        help = f"write --max-seeds {LEAST_SEEDS} or more, or leave out --until"
    else:
        return
    raise InputError.one("--max-seeds", message, help)
