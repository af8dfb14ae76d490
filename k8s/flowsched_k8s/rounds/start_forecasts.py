"""When pods that wait start and end, as rounds have planned it, and how good such forecasts were.

A round is about few of the pods that wait. What it plans for each holds until the next round that is about it, and each
round forecasts all of them anew: none starts before those with less work have had what they need.

A pod has started when the watch shows it as running, after its images were pulled: that is what its user waits for. It has
ended when it is gone without having been deleted and without having failed.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from flowsched.cluster.snapshot import MILLI
from flowsched.cluster.start_errors import NO_START_ERRORS, Interval, StartErrors
from flowsched.cluster.start_samples import StartForecast, StartSamples
from flowsched.cluster.work_ahead import seconds_ahead
from flowsched.support.arrays import FloatArray
from flowsched_k8s.cache import Cache
from flowsched_k8s.groups.gangs import Gangs
from flowsched_k8s.metrics.tallies import Tallies
from flowsched_k8s.objects import Pod
from flowsched_k8s.pods.entries import PodEntry
from flowsched_k8s.pods.readings import controller_of
from flowsched_k8s.rounds.round_input import RoundResult

RUNNING = "Running"


@dataclass(frozen=True)
class StartEstimate:
    """When a pod that waits starts, and ends where it does that by itself: seconds since 1970."""

    start: Interval
    end: Interval | None = None

    def text(self, now: float) -> str:
        """In words that follow what a pod is told: numbers apart it is always the same text."""
        spans = [("starts", self.start), ("ends", self.end)]
        return "".join(f"; {verb} {_in(interval, now)}" for verb, interval in spans if interval is not None)


class _Planned(NamedTuple):
    """What a round planned for a pod, in numbers."""

    priority: int
    """That which it is served with."""
    work_s: float
    """Core-seconds; infinite for a pod without an end."""
    came: int
    start_s: float
    run_s: float
    """From the start to the end; infinite without one."""


@dataclass(frozen=True)
class _Forecasts:
    """When pods start and end, as it was forecast at one moment."""

    now_s: float = 0.0
    errors: StartErrors = NO_START_ERRORS
    """What was known of errors by then."""
    of: Mapping[str, StartForecast] = field(default_factory=dict)
    """By uid."""


class StartForecasts:
    """Of the pods that the last round which was about them has planned for later."""

    def __init__(self, cache: Cache, gangs: Gangs, tallies: Tallies) -> None:
        """Nothing is planned, and no error was seen."""
        self._cache = cache
        self._gangs = gangs
        self._planned: dict[str, _Planned] = {}
        """By uid."""
        self._forecasts = _Forecasts()
        """Of these and of others that wait no longer."""
        self._errors = StartErrors()
        self._samples = StartSamples(tallies.start_outcomes.append)
        self._expected: FloatArray | None = None
        """Moments of the starts; None after a change, until they are asked for."""
        self.revision = 0
        """Another number whenever an estimate may be another one."""

    # What happens

    def decided(self, result: RoundResult, now: float) -> None:
        """A round ended: what it said of the pods that it was about holds from now on."""
        for uid in (*(c.uid for c in result.chosen), *(uid for held in result.held for uid in held.uids)):
            self._planned.pop(uid, None)
        planned = {p.task: self._cache.pods[p.task] for p in result.plan if p.task in self._cache.pods}
        served = self._gangs.priorities(planned.values())
        for p in result.plan:
            entry = planned.get(p.task)
            if entry is not None and p.start_s is not None:
                run_s = math.inf if p.end_s is None else p.end_s - p.start_s
                work_s = run_s * p.width_milli / MILLI
                self._planned[p.task] = _Planned(served[p.task], work_s, entry.number, p.start_s, run_s)
        errors = self.errors(now)
        forecasts = self._forecast(now)
        self._forecasts = _Forecasts(now, errors, {f.task: f for f in forecasts})
        self._samples.decided(forecasts, now, result.number, errors)
        self._changed()

    def _forecast(self, now: float) -> list[StartForecast]:
        """When each pod starts that is planned: not before what is to start before it has had what it needs.

        All CPU of the nodes counts as if such pods could have it: that others hold some of it is part of the errors.
        """
        if not self._planned:
            return []
        priority, work_s, came, planned_s, run_s = np.array([*self._planned.values()], np.float64).T.copy()
        machines = self._cache.machines
        cores = float(machines.allocatable[:, machines.column("cpu")].sum()) / MILLI
        starts_s = np.maximum(planned_s, now + seconds_ahead(priority, work_s, came, cores))
        ends_s = [end_s if end_s < math.inf else None for end_s in (starts_s + run_s).tolist()]
        return [*map(StartForecast, self._planned, starts_s.tolist(), ends_s)]

    def seen(self, entry: PodEntry, before: Pod | None, now: float) -> None:
        """The watch has shown a pod that is on a node."""
        uid = entry.key.uid
        self._drop(uid)
        if entry.is_leaving:
            self._samples.forget(uid)
        elif entry.pod.status.phase == RUNNING and (before is None or before.status.phase != RUNNING):
            self._errors = self._samples.started(uid, now, self._errors)

    def waits_no_longer(self, uid: str) -> None:
        """A pod is being deleted: its forecast comes to nothing."""
        self._samples.forget(uid)
        self._drop(uid)

    def gone(self, entry: PodEntry, last: Pod, now: float) -> None:
        """A pod is gone; ``last``: what the watch has shown of it last."""
        uid = entry.key.uid
        ended = bool(entry.node) and entry.pod.status.phase == RUNNING and last.status.phase != "Failed"
        if ended and not entry.is_leaving and last.metadata.deletion_timestamp is None:
            self._errors = self._samples.ended(uid, now, self._errors)
        self.waits_no_longer(uid)

    def resume(self, errors: StartErrors) -> None:
        """Go on from errors that an earlier leader saw, or from none."""
        self._errors = errors

    def tidy(self) -> None:
        """Let go of pods whose end was never told, as where another one of the same name was seen next."""
        self._samples.forget_others(self._cache.pods)
        for uid in self._planned.keys() - self._cache.pods.keys():
            self._drop(uid)

    def _drop(self, uid: str) -> None:
        if self._planned.pop(uid, None) is not None:
            self._changed()

    def _changed(self) -> None:
        self.revision += 1
        self._expected = None

    # What is asked

    @property
    def known_errors(self) -> StartErrors:
        """How far forecasts were off whose starts and ends are known."""
        return self._errors

    def errors(self, now: float) -> StartErrors:
        """How far forecasts were off, with those whose pods still wait or run."""
        return self._samples.with_open(self._errors, now)

    def __iter__(self) -> Iterator[str]:
        """Each pod with an estimate."""
        return iter(self._planned)

    def __len__(self) -> int:
        """How many that are."""
        return len(self._planned)

    def of(self, uid: str) -> StartEstimate | None:
        """When a pod starts and ends, as was forecast after the last round; None where none is planned."""
        known = self._forecasts.of.get(uid) if uid in self._planned else None
        if known is None:
            return None
        errors, now_s = self._forecasts.errors, self._forecasts.now_s
        end = None if known.end_s is None else errors.end(known.end_s, now_s)
        return StartEstimate(errors.start(known.start_s, now_s), end)

    def waits_s(self, now: float) -> FloatArray:
        """[pods] seconds from now until each of them is expected to start."""
        if self._expected is None:
            starts = [e.start.expected_s for uid in self._planned if (e := self.of(uid)) is not None]
            self._expected = np.sort(np.array(starts, np.float64))
        return np.maximum(0.0, self._expected - now)

    def job_end(self, entry: PodEntry) -> Interval | None:
        """When the last of the waiting pods of a pod's controller ends; None if it has no other pod, or if the end of one
        that waits is not known.
        """
        controller = controller_of(entry.pod)
        return None if controller is None else self._job_end(self._cache.of_job(controller))

    def job_ends(self) -> dict[str, Interval]:
        """The same of all controllers whose pods have estimates, by uid."""
        entries = map(self._cache.pods.get, self._planned)
        named = {controller_of(entry.pod): None for entry in entries if entry is not None}
        ends = {c: self._job_end(self._cache.of_job(c)) for c in named if c is not None}
        return {controller: end for controller, end in ends.items() if end is not None}

    def _job_end(self, members: list[PodEntry]) -> Interval | None:
        found = [self.of(e.key.uid) for e in members if not e.place and not e.is_leaving]
        ends = [e.end for e in found if e is not None and e.end is not None]
        if len(members) < 2 or not ends or len(ends) < len(found):
            return None
        return max(ends, key=lambda end: end.expected_s)


def job_text(end: Interval, now: float) -> str:
    """When the job of a pod ends, as :meth:`StartEstimate.text` has it."""
    return f"; its job ends {_in(end, now)}"


def _in(interval: Interval, now: float) -> str:
    earliest_s, expected_s, latest_s = (max(0.0, moment_s - now) for moment_s in interval)
    return f"in {expected_s:.0f} s [{earliest_s:.0f}, {latest_s:.0f}]"
