"""One measurement of a job: the plan is run through, every finished run is in its table at once."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import KW_ONLY, dataclass, field

from flowsched_models.measuring.aggressor import AGGRESSORS
from flowsched_models.measuring.clock import MachineClock
from flowsched_models.measuring.measured_row import Subject, replaced, variables
from flowsched_models.measuring.process_runner import ProcessRunner
from flowsched_models.measuring.remaining_time import RemainingTime, in_words
from flowsched_models.measuring.run_plan import PlannedRun, ResultTable, RunPlan, Setup
from flowsched_models.measuring.runner import Disturbance, Outcome, Program
from flowsched_models.measuring.tables import Row, Tables
from flowsched_models.quantity import number_or_nan

NOISE_CPUS = 0.1
"""Busy CPUs of others from which on a run is called disturbed."""
SHORT_S = 5.0
"""Below, start-up and the clock's tick weigh on a run's time."""

ONE_CPU = 1.1
"""A program that uses fewer CPUs than this runs on one thread, whatever it was told."""


@dataclass
class MeasurementSummary:
    """What came of a measurement."""

    planned: int
    done: int = 0
    """Runs with rows in the tables, those of earlier calls included."""
    failures: list[str] = field(default_factory=list)
    """Runs without a row, one sentence each."""
    noisy: int = 0
    """Runs of this call during which others used the machine."""
    advice: list[str] = field(default_factory=list)
    """What the times make suspicious, one sentence each."""
    warmed_up: bool = True
    """Whether the warm-up succeeded; without it nothing was measured."""


@dataclass(eq=False)
class Measurement:
    """Runs a plan. Interrupted, it leaves the rows of all finished runs; run again, it goes on behind them."""

    _plan: RunPlan
    _subject: Subject
    _command: Sequence[str]
    _tables: Tables
    _runner: ProcessRunner
    _clock: MachineClock
    _: KW_ONLY
    rest_s: float
    limit_s: float
    say: Callable[[str], None]
    redo: bool = False
    """Whether runs that others disturbed are made again."""
    _given_up: set[Setup] = field(default_factory=set)

    def __post_init__(self) -> None:
        """Nothing is done yet."""
        self.summary = MeasurementSummary(len(self._plan.runs))

    def open_runs(self) -> list[PlannedRun]:
        """The runs that have no rows yet, or disturbed ones that are to be made again."""
        return [r for r in self._plan.runs if (noise := self._noise(r)) is None or (self.redo and noise >= NOISE_CPUS)]

    def runs_there(self) -> int:
        """How many of the runs have rows."""
        return sum(self._noise(r) is not None for r in self._plan.runs)

    def _noise(self, planned: PlannedRun) -> float | None:
        """CPUs that others used during a run as its rows say; None if there are none."""
        rows = self._tables.rows(planned.setup.table, **self._subject.key(planned))
        return max((_number(r, "other_cpus") for r in rows), default=None)

    def run(self) -> MeasurementSummary:
        """Make all open runs. KeyboardInterrupt passes through; :attr:`summary` then tells what is done."""
        summary = self.summary
        runs = self.open_runs()
        summary.done = self.runs_there()
        if not runs:
            return summary
        time = RemainingTime(self.rest_s)
        outcome, took_s = self._make(self._plan.warm_up)
        if trouble := _trouble(outcome):
            summary.failures.append(f"warm-up ({self._plan.warm_up}): {trouble}")
            summary.warmed_up = False
            return summary
        time.note(self._plan.warm_up, took_s)
        self.say(f"warm-up, {self._plan.warm_up}: {outcome.programs[0].real_s:.2f} s")
        for position, planned in enumerate(runs):
            if planned.setup in self._given_up:
                summary.failures.append(f"{planned}: not tried, because an earlier one took too long")
                continue
            self._clock.sleep(self.rest_s)
            outcome, took_s = self._make(planned.setup)
            time.note(planned.setup, took_s)
            self._keep(planned, outcome)
            left = time.left_s(runs[position + 1 :])
            counter = f"[{position + 1}/{len(runs)}]"
            rest = f"; about {in_words(left)} left" if position + 1 < len(runs) else ""
            self.say(f"{counter} {planned}: {_result(outcome)}{rest}")
        summary.advice += self._advice()
        return summary

    def _make(self, setup: Setup) -> tuple[Outcome, float]:
        programs = [
            Program(replaced(self._command, c.threads, k), c.cores, variables(c.threads, k))
            for k, c in enumerate(setup.copies, 1)
        ]
        core = setup.aggressor_core
        disturbance = None if core is None else Disturbance(AGGRESSORS[setup.interference], core)
        begin_s = self._clock.now()
        outcome = self._runner.run(programs, disturbance, self.limit_s)
        return outcome, self._clock.now() - begin_s

    def _keep(self, planned: PlannedRun, outcome: Outcome) -> None:
        if outcome.too_long:
            self._given_up.add(planned.setup)
        if trouble := _trouble(outcome):
            self.summary.failures.append(f"{planned}: {trouble}")
            return
        others = outcome.other_cpus or 0.0
        self.summary.noisy += others >= NOISE_CPUS
        earlier = self._noise(planned)
        self.summary.done += earlier is None
        if earlier is None or others < earlier:
            self._tables.put(planned.setup.table, self._subject.rows(planned, outcome))

    def _advice(self) -> Iterator[str]:
        """Sentences on times that a profile should not be made from."""
        own = {"job": self._subject.job, "machine_type": self._subject.machine_type}
        shortest, used = SHORT_S, dict[int, float]()
        for row in self._tables.rows(ResultTable.THREADS, **own):
            real_s, cpu_s = _number(row, "real_s"), _number(row, "user_s") + _number(row, "sys_s")
            count = int(min(_number(row, "threads"), _number(row, "cores")))
            if real_s <= 0:
                continue
            shortest = min(shortest, real_s)
            if _number(row, "other_cpus") < NOISE_CPUS:
                used[count] = max(used.get(count, 0.0), cpu_s / real_s)
        if shortest < SHORT_S:
            yield f"the shortest run took {shortest:.2f} s; use an input that takes {SHORT_S:g} s or more on all threads"
        lazy = [count for count, cpus in sorted(used.items()) if count > 1 and cpus < ONE_CPU]
        if lazy:
            counts = ", ".join(map(str, lazy))
            yield (
                f"on {counts} threads the program never used more than one CPU: "
                "does it follow {threads}, OMP_NUM_THREADS or FLOWSCHED_THREADS?"
            )


def _number(row: Row, column: str) -> float:
    """A value of a row; 0 where an earlier one has none: who reads the tables will say so."""
    value = number_or_nan(row.get(column, ""))
    return value if math.isfinite(value) else 0.0


def _trouble(outcome: Outcome) -> str:
    """What is wrong with a run; empty if it is good."""
    if outcome.trouble:
        return outcome.trouble
    for ended in outcome.programs:
        if ended.exit_code != 0:
            how = (
                f"exit code {ended.exit_code}" if ended.exit_code > 0 else f"it was ended by signal {-ended.exit_code}"
            )
            return how + (f" ({ended.said})" if ended.said else "")
    return ""


def _result(outcome: Outcome) -> str:
    if trouble := _trouble(outcome):
        return f"left out: {trouble}"
    return " and ".join(f"{e.real_s:.2f} s" for e in outcome.programs)
