"""The outcome of one simulated run, and the figures that users compare."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from flowsched.cluster.decision import Certificate
from flowsched.cluster.snapshot import MILLI
from flowsched_models.document import InputError, name_help
from flowsched_models.execution import INSTANT_S
from flowsched_models.picked_fields import picked
from flowsched_models.short_repr import Overview, ShortRepr
from flowsched_models.text_table import counted
from flowsched_simulator.gpu_use import GpuUse

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class Stay:
    """Where a job ran before it was preempted or moved. Times in seconds."""

    machine: str
    cores: tuple[int, ...]
    width_milli: int
    threads: int
    start_s: float
    """When its program was to start there: after ``left_s`` where it never did."""
    left_s: float
    moved: bool
    """Whether it went on elsewhere; otherwise it was preempted and waited again."""
    devices: tuple[int, ...] = ()
    """The GPUs that it had there."""


@dataclass(frozen=True)
class JobRun:
    """One task of a job, from submission to end; most jobs have one. Times in seconds; None: it never started or ended."""

    job: str
    profile: str
    machine: str | None
    cores: tuple[int, ...]
    width_milli: int
    threads: int
    submit_s: float
    bound_s: float | None
    start_s: float | None
    end_s: float | None
    alone_s: float
    """Run time alone on the fastest kind of machine of the cluster at the best width, as long as it truly takes, or may
    take."""
    reason: str = ""
    """Why it never ended: why it still waited in the last round, or that simulated time ended before."""
    earlier: tuple[Stay, ...] = ()
    """Where it ran before, in order; the other values are those of its last start."""
    deadline_s: float | None = None
    """Seconds after submission by which its job had to end."""
    task: str = ""
    """Its name, where the job has several tasks or its one task another name."""
    devices: tuple[int, ...] = ()
    """The GPUs that it has of its machine; as the scheduler gave them away, never assigned afterwards."""
    gpu_share_milli: int = 0
    """Of each of these GPUs, in thousandths; 0 for a task without GPUs."""
    walltime_s: float | None = None
    """Seconds that it could run for before it was killed; None: as long as it takes."""
    killed: bool | None = None
    """Whether it ended because it was killed at its walltime; None without one."""

    @property
    def name(self) -> str:
        """The name of the task."""
        return self.task or self.job

    @property
    def missed(self) -> bool | None:
        """Whether it had a deadline and was not done by then; None without one."""
        return _missed(self)

    @property
    def completion_s(self) -> float | None:
        """From submission to end."""
        return None if self.end_s is None else self.end_s - self.submit_s

    @property
    def waiting_s(self) -> float | None:
        """From submission until its program runs for the first time."""
        starts = [stay.start_s for stay in self.earlier if stay.start_s <= stay.left_s][:1]
        starts += [] if self.start_s is None else [self.start_s]
        return starts[0] - self.submit_s if starts else None

    @property
    def slowdown(self) -> float | None:
        """Completion time relative to running alone; None for a job without length too."""
        return _slowdown(self)


@dataclass(frozen=True)
class JobOutcome:
    """A job over its tasks: submitted with the first, ended with the last. Figures of runs are over these."""

    job: str
    tasks: int
    submit_s: float
    end_s: float | None
    """When its last task ended; None if some task never did."""
    waiting_s: float | None
    """From submission until the first of its programs runs."""
    alone_s: float
    """The longest of its tasks' run times alone: no job ends sooner."""
    deadline_s: float | None = None
    """Seconds after submission by which it had to end."""
    killed: bool | None = None
    """Whether some task of it was killed at its walltime; None without one."""

    @property
    def completion_s(self) -> float | None:
        """From submission to its last end."""
        return None if self.end_s is None else self.end_s - self.submit_s

    @property
    def slowdown(self) -> float | None:
        """Completion time relative to all tasks running alone, at once; None for a job without length too."""
        return _slowdown(self)

    @property
    def missed(self) -> bool | None:
        """Whether it had a deadline and was not done by then; None without one."""
        return _missed(self)


def outcomes_of(runs: Iterable[JobRun]) -> tuple[JobOutcome, ...]:
    """Jobs over their tasks, in the order of their first."""
    tasks: dict[str, list[JobRun]] = {}
    for run in runs:
        tasks.setdefault(run.job, []).append(run)
    found = []
    for job, mine in tasks.items():
        ends = [run.end_s for run in mine if run.end_s is not None]
        waits = [run.waiting_s for run in mine if run.waiting_s is not None]
        found.append(
            JobOutcome(
                job,
                len(mine),
                min(run.submit_s for run in mine),
                max(ends) if len(ends) == len(mine) else None,
                min(waits, default=None),
                max(run.alone_s for run in mine),
                mine[0].deadline_s,
                None if mine[0].killed is None else any(run.killed for run in mine),
            )
        )
    return tuple(found)


def _slowdown(job: JobRun | JobOutcome) -> float | None:
    completion = job.completion_s
    return None if completion is None or job.alone_s == 0.0 else completion / job.alone_s


def _missed(job: JobRun | JobOutcome) -> bool | None:
    if job.deadline_s is None:
        return None
    return bool(job.killed) or job.completion_s is None or job.completion_s > job.deadline_s + INSTANT_S


@dataclass(frozen=True)
class LatencyWindow:
    """Time-weighted p95 of a service over ten seconds of the run's clock, or over several such windows where it is equal."""

    service: str
    t_s: float
    end_s: float
    qps: float
    p95_us: float
    slo_us: float
    windows: int = 1
    """How many windows of ten seconds it stands for; the last one of a run may be shorter."""


@dataclass(frozen=True, slots=True)
class RoundSummary:
    """What is kept of a scheduling round."""

    t_s: float
    pending: int
    placed: int
    solve_ms: float
    certificate: Certificate | None
    stopped: int = 0
    """Solves that a time limit stopped: with any, the run depends on the speed of the machine."""
    preempted: int | None = None
    """Tasks that it preempted; None where nothing is ever preempted."""
    moved: int | None = None
    """Tasks that it moved; None where nothing ever moves."""


@dataclass(frozen=True, repr=False)
class Run(ShortRepr):
    """One policy on one scenario."""

    scenario: str
    policy: str
    variant: str
    seed: int
    jobs: tuple[JobRun, ...]
    """A row per task, and so per job where jobs have one task; :attr:`outcomes` has one per job."""
    latency: tuple[LatencyWindow, ...]
    rounds: tuple[RoundSummary, ...]
    records: tuple[dict[str, Any], ...] = field(default=(), repr=False)
    gpu_use: GpuUse | None = field(default=None, repr=False)
    """How its GPUs were used; None where no machine has GPUs, and for a replayed schedule, which names none."""
    variant_seeds: tuple[int, ...] | None = None
    """The seeds by whose runs the variant was chosen; empty where nothing is drawn and it is the best of this very run.
    None: there was nothing to choose."""

    def overview(self) -> Overview:
        """Jobs and makespan; a row per job."""
        variant = f" ({self.variant})" if self.variant else ""
        jobs = self.outcomes
        ended = sum(j.end_s is not None for j in jobs)
        words = f"of {self.policy}{variant} on {self.scenario}: {ended} of {counted(len(jobs), 'job')} ended"
        if jobs and ended == len(jobs):
            words += f", makespan {self.makespan_s:.1f} s"
        rows = ((j.name, j.machine, j.width_milli / MILLI, j.threads, j.start_s, j.end_s) for j in self.jobs)
        return Overview(words, ("job", "machine", "request", "threads", "start_s", "end_s"), rows, len(self.jobs))

    @cached_property
    def outcomes(self) -> tuple[JobOutcome, ...]:
        """One per job, in the order of their first tasks."""
        return outcomes_of(self.jobs)

    @property
    def makespan_s(self) -> float:
        """From the first submission to the last end; infinity when a job never ended."""
        ends = [j.end_s for j in self.jobs]
        if not ends:
            return 0.0
        if any(e is None for e in ends):
            return float("inf")
        return max(e for e in ends if e is not None) - min(j.submit_s for j in self.jobs)

    @property
    def slo_violation_ratio(self) -> float:
        """Share of windows whose p95 exceeds the service's goal; 0 where there is no service."""
        if not self.latency:
            return 0.0
        return sum(w.windows for w in self.latency if w.p95_us > w.slo_us) / sum(w.windows for w in self.latency)

    @property
    def worst_p95_us(self) -> float | None:
        """Highest p95 of a window, or None where there is no service."""
        return max((w.p95_us for w in self.latency), default=None)

    def per_job(self, name: str) -> list[float | None]:
        """A figure of every job, None for those that never ended; the slow-down of those with a length alone."""
        return [getattr(j, name) for j in self.outcomes if name != "slowdown" or j.alone_s > 0.0]

    def _per_job(self, name: str) -> np.ndarray[Any, np.dtype[np.float64]]:
        return np.array([np.inf if v is None else v for v in self.per_job(name)], dtype=np.float64)

    def _mean(self, name: str) -> float | None:
        values = self._per_job(name)
        return _plain(values.mean()) if len(values) else None

    def _percentile(self, name: str, q: float) -> float | None:
        values = self._per_job(name)
        return _plain(np.percentile(values, q, method="higher")) if len(values) else None

    def _count(self, name: str) -> int | None:
        """Sum of a count of the rounds; None where no round has it."""
        values = [value for r in self.rounds if (value := getattr(r, name)) is not None]
        return sum(values) if values else None

    def _missed(self) -> dict[str, int]:
        """Count of missed deadlines, where some job has one."""
        known = [job.missed for job in self.outcomes if job.missed is not None]
        return {"missed": sum(known)} if known else {}

    def _killed(self) -> dict[str, int]:
        """Count of jobs that were killed at their walltime, where some job has one."""
        known = [job.killed for job in self.outcomes if job.killed is not None]
        return {"killed": sum(known)} if known else {}

    def _changes(self) -> dict[str, int]:
        """Counts of preemptions and moves, where the policy was allowed any."""
        counts = {"preemptions": self._count("preempted"), "moves": self._count("moved")}
        return {name: count for name, count in counts.items() if count is not None}

    def _gpu_means(self) -> dict[str, float | None]:
        """Mean allocation and fragmentation of GPUs, where there are GPUs."""
        if self.gpu_use is None:
            return {}
        return {
            "mean_gpu_allocation": self.gpu_use.mean_allocation,
            "mean_gpu_fragmentation": self.gpu_use.mean_fragmentation,
        }

    def _chosen(self) -> dict[str, list[int]]:
        """By which seeds the variant was chosen, where it was."""
        return {} if self.variant_seeds is None else {"variant_seeds": list(self.variant_seeds)}

    def _timings(self) -> dict[str, dict[str, float | None]]:
        """What the clock of this machine measured: the only part of a run that differs between equal runs."""
        if not self.rounds:
            return {"round_ms": {"p50": None, "p99": None}}
        solve = np.array([r.solve_ms for r in self.rounds])
        return {"round_ms": {"p50": float(np.percentile(solve, 50)), "p99": float(np.percentile(solve, 99))}}

    def summary(self) -> dict[str, Any]:
        """One row of the comparison table. Times in seconds unless the key says otherwise."""
        certificates = [r.certificate for r in self.rounds if r.certificate is not None]
        return {
            "policy": self.policy,
            "variant": self.variant,
            "makespan_s": _plain(self.makespan_s),
            "mean_completion_s": self._mean("completion_s"),
            "p95_completion_s": self._percentile("completion_s", 95),
            "mean_waiting_s": self._mean("waiting_s"),
            "mean_slowdown": self._mean("slowdown"),
            "slo_violation_ratio": self.slo_violation_ratio,
            "worst_p95_us": self.worst_p95_us,
            "gap_absolute_max": max((c.gap_absolute for c in certificates), default=None),
            "gap_relative_max": max((c.gap_relative for c in certificates), default=None),
            "certificate": "+".join(sorted({c.method for c in certificates})) or None,
            **self._missed(),
            **self._killed(),
            **self._changes(),
            **self._gpu_means(),
            **self._chosen(),
            "timings": self._timings(),
        }

    def to_frame(self, table: str = "jobs") -> pd.DataFrame:
        """A pandas data frame with a row per job, or of another table: ``windows`` (p95 of services), ``rounds``.

        Times in seconds, ``request`` in cores, ``solve_ms`` in milliseconds; ``earlier`` is JSON text.
        """
        from flowsched_simulator.run_tables import TABLES, run_frame

        if table not in TABLES:
            raise InputError.one("table", "there is no such table", name_help(table, TABLES), key=table)
        return run_frame(self, table)

    def to_parquet(self, folder: str | Path) -> tuple[Path, ...]:
        """Write the tables of :meth:`to_frame` as Parquet files into a folder; their paths.

        Without ``solve_ms``, so that the same run gives the same bytes.
        """
        from flowsched_simulator.run_tables import write_parquet

        return write_parquet(self, Path(folder))

    def to_json(self) -> dict[str, Any]:
        """The run as plain data, as ``--json`` prints it."""
        gaps = [r.certificate.gap_relative for r in self.rounds if r.certificate is not None]
        return {
            **picked(self, "policy", "variant", "seed"),
            **self._chosen(),
            "makespan_s": _plain(self.makespan_s),
            "jobs": [
                {
                    "job": j.job,
                    **({"task": j.task} if j.task else {}),
                    "profile": j.profile,
                    "machine": j.machine,
                    "cores": list(j.cores),
                    "request": j.width_milli / MILLI,
                    **picked(j, "threads", "submit_s", "start_s", "end_s"),
                    "alone_s": _plain(j.alone_s),
                    "slowdown": j.slowdown,
                    **({"devices": list(j.devices), "gpu_share_milli": j.gpu_share_milli} if j.gpu_share_milli else {}),
                    **({} if j.deadline_s is None else {"deadline_s": j.deadline_s, "missed": j.missed}),
                    **({} if j.walltime_s is None else picked(j, "walltime_s", "killed")),
                    **({"earlier": [_plain_stay(stay) for stay in j.earlier]} if j.earlier else {}),
                }
                for j in self.jobs
            ],
            "latency": [picked(w, "service", "t_s", "end_s", "qps", "p95_us", "windows") for w in self.latency],
            "slo_violation_ratio": self.slo_violation_ratio,
            "rounds": len(self.rounds),
            **self._missed(),
            **self._killed(),
            **self._changes(),
            **({} if self.gpu_use is None else {"gpus": {**self._gpu_means(), **self.gpu_use.to_json()}}),
            **({"stopped_rounds": stopped} if (stopped := sum(r.stopped > 0 for r in self.rounds)) else {}),
            "gap": {"max": max(gaps, default=None), "mean": sum(gaps) / len(gaps) if gaps else None},
            "timings": self._timings(),
        }


def bound_words(certificate: str) -> str:
    """What a gap is measured to, in a user's words: the proven optimum of the round, or a lower bound."""
    return certificate.replace("exact", "optimum").replace("lagrangian", "bound")


def figure(row: Mapping[str, Any], key: str) -> Any:
    """A figure of a summary by its key; ``timings.round_ms.p50`` reaches inside. None where there is none."""
    value: Any = row
    for part in key.split("."):
        value = value.get(part) if isinstance(value, Mapping) else None
    return value


def _plain_stay(stay: Stay) -> dict[str, Any]:
    """Where a job ran before, as plain data."""
    return {
        "machine": stay.machine,
        "cores": list(stay.cores),
        "request": stay.width_milli / MILLI,
        **picked(stay, "threads", "start_s", "left_s"),
        **({"devices": list(stay.devices)} if stay.devices else {}),
        "ended": "moved" if stay.moved else "preempted",
    }


def _plain(value: float) -> float | None:
    number = float(value)
    return number if np.isfinite(number) else None
