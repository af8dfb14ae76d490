"""The discrete-event engine: one scheduler, or a given schedule, on one scenario."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from flowsched.cluster.cluster_state import ClusterState
from flowsched.cluster.decision import Decisions, Move, Placement, Postponement, Preemption, Scheduler, decider
from flowsched.cluster.events import (
    MachineAdded,
    RoundDecided,
    TaskBound,
    TaskFinished,
    TaskMove,
    TaskPreempted,
    TasksMoved,
    TaskSubmitted,
)
from flowsched.cluster.learning import Learning
from flowsched.cluster.snapshot import Task, cpu_weight
from flowsched.disaggregation.coupled import is_remote
from flowsched.gpu.devices import use_of
from flowsched.records.record import Recipe
from flowsched_models.document import InputError
from flowsched_models.execution import INSTANT_S
from flowsched_models.runtime import HostFactory, Resident
from flowsched_simulator.baselines.guarded_baseline import guard_of
from flowsched_simulator.coupled_tasks import CoupledTasks
from flowsched_simulator.gpu_use import GpuUse
from flowsched_simulator.grant_check import check_time, check_width
from flowsched_simulator.run import JobRun, RoundSummary, Run, Stay
from flowsched_simulator.run_classes import chosen_learning, learnt_at_first, with_classes
from flowsched_simulator.scenario import Scenario
from flowsched_simulator.submissions import Submissions
from flowsched_simulator.truth import Error, true_world
from flowsched_simulator.workload import drawn_workload
from flowsched_simulator.world import ErrorOf, World

IDLE_ROUND_S = 10.0
"""Period of rounds while tasks wait and nothing else is going to happen."""
IDLE_ROUNDS = 200
"""So many idle rounds in a row are followed by none before something happens; where nothing will, they end the run."""
NO_LIMIT_S = float("inf")
"""Simulated time that has no end: a run ends with its last event, since rounds in which nothing happens are counted."""
_NEVER = float("inf")

RecordSink = Callable[[str, int, Recipe], None]
"""Called with the policy, the number of the round and how to make its record, before the simulation goes on."""

Progress = Callable[[float, int, int], None]
"""Called with simulated seconds since the first submission, as the makespan counts, jobs ended and jobs in all."""


@dataclass(frozen=True)
class Options:
    """How to run. ``charge_scheduling_time`` makes a run depend on the speed of this machine: not reproducible."""

    seed: int = 0
    model_error: Error = 0.0
    """How far the true machines are from the models; see :mod:`flowsched_simulator.truth`."""
    error_of: ErrorOf = "job"
    """What draws a factor of its own, where ``model_error`` is a number."""
    learning: Learning | None = None
    """Whether completions teach how long others of their class run; None: as :func:`run_classes.chosen_learning` says."""
    charge_scheduling_time: bool = False
    keep_records: bool = False
    """Whether the run keeps all records, made at once; for short runs. The scheduler must offer them."""
    record_sink: RecordSink | None = field(default=None, repr=False)
    """Where records go instead, one by one."""
    round_interval_s: float = 0.0
    """Seconds from one round to the next at least; 0: a round whenever something changed."""
    max_time_s: float = NO_LIMIT_S
    """Simulated seconds after the first submission at which a run ends, whatever still runs or waits."""
    clock: Callable[[], float] = field(default=time.perf_counter, repr=False)


class Simulation:
    """One run of one scheduler. The events of an instant are taken note of together, then one round decides.

    An instant begins with its first event and takes in what follows within ``INSTANT_S`` of that. Each end has its own time;
    the round has that of the last event, so that nothing starts before it came or before its place was free.
    """

    def __init__(
        self,
        scenario: Scenario,
        scheduler: Scheduler,
        options: Options | None = None,
        *,
        hosts: HostFactory | None = None,
        variant: str = "",
        progress: Progress | None = None,
    ) -> None:
        """``hosts`` may be shared by runs on the same profiles, so that rates are computed once."""
        options = self._options = options or Options()
        scenario = drawn_workload(scenario, options.seed)
        self._scheduler = scheduler
        self._decide = decider(scheduler)
        self._guard = guard_of(scheduler)
        self._variant = variant
        self._progress = progress
        hosts = hosts or HostFactory(scenario.catalogue)
        self._world = true_world(scenario, scenario.tasks, hosts, options.model_error, options.seed, options.error_of)
        learning = options.learning or chosen_learning(scenario, options.model_error)
        scenario = self._scenario = with_classes(scenario, learning)
        self._tasks = {t.name: t for t in scenario.tasks}
        self._submissions = Submissions(scenario.tasks, scenario.job_terms)
        self._coupled = CoupledTasks(scenario.tasks)
        self._state = ClusterState(
            scenario.catalogue,
            scenario.start_delay,
            hosts,
            relations=scenario.relations,
            task_groups=scenario.task_groups,
            share_service_cores=scenario.share_service_cores,
            gpu_demand=scenario.gpu_demand,
            learnt_run_times=learnt_at_first(learning),
            # What records a baseline, or guards one of another package, does not say so.
            estimating=learning != "off" or getattr(scheduler, "reads_progress", True),
        )
        for machine in scenario.machines:
            services = tuple(s for s in scenario.services if s.machine == machine.name)
            self._state.apply(MachineAdded(machine, services), 0.0)
        self._bound: dict[str, TaskBound | TaskMove] = {}
        self._gpus = {m.name: m.gpus for m in scenario.machines}
        self._stays: dict[str, list[Stay]] = {}
        self._done: dict[str, float] = {}
        self._ran_s: dict[str, float] = {}
        """Seconds that a task ran for before its last start, of work that it kept."""
        self._killed: set[str] = set()
        self._again = False
        self._moves = False
        """Whether rounds move running tasks, so that there is one where nothing waits too."""
        self._bound_s: dict[str, float] = {}
        self._ended_s: dict[str, float] = {}
        self._rounds: list[RoundSummary] = []
        self._records: list[dict[str, object]] = []
        self._now_s = 0.0
        self._idle_rounds = 0
        self._look_again_s = _NEVER
        self._postponements: Sequence[Postponement] = ()
        """Those of the last round."""
        self._unseen: set[str] = set()
        """Tasks that were submitted after the last round."""
        self._fresh: set[str] = set()
        """Those of the last round that no round had seen before."""
        self._first_s = self._submissions.next_s() if scenario.tasks else 0.0
        self._next_round_s = self._first_s
        self._time_ended = False

    @property
    def world(self) -> World:
        """The true machines, which no policy sees."""
        return self._world

    def run(self) -> Run:
        """Until every job has ended, or the scheduler refuses to place what is left."""
        wake_s = _NEVER
        undelivered: tuple[float, Decisions] | None = None
        while True:
            arrival_s = self._submissions.next_s()
            delivery_s = undelivered[0] if undelivered else _NEVER
            first_s = min(arrival_s, self._world.next_event_s(), delivery_s, wake_s)
            if first_s == _NEVER:
                break
            if first_s > self._first_s + self._options.max_time_s:
                self._now_s, self._time_ended = max(self._now_s, self._first_s + self._options.max_time_s), True
                break
            until_s = first_s + INSTANT_S
            ends = self._world.advance(until_s)
            ended = [(task, end.at_s) for end in ends for task in self._coupled.ended(end.task)]
            self._killed.update([end.task for end in ends if end.killed])
            for task, end_s in ended:
                self._ended_s[task] = end_s
                self._submissions.ended(self._tasks[task], end_s)
            submitted = self._submissions.take(until_s)
            others_s = [t for t in (delivery_s, wake_s, *[task.submit_s for task in submitted]) if t <= until_s]
            self._now_s = now = max(first_s, self._now_s, self._world.now_s, *others_s)
            for task, _ in ended:
                self._state.apply(TaskFinished(task, task in self._killed), now)
            for come in submitted:
                self._state.apply(TaskSubmitted(come), now)
                self._tasks[come.name] = come
                self._unseen.add(come.name)
            changed = bool(ends or submitted) or wake_s <= until_s
            if undelivered and delivery_s <= until_s:
                self._carry_out(undelivered[1])
                undelivered = None
                changed = True
            if changed and self._progress is not None:
                self._progress(now - self._first_s, self._submissions.jobs_ended, self._submissions.jobs)
            due = changed and now >= self._next_round_s
            if due and (self._state.pending or self._moves) and undelivered is None:
                self._next_round_s = now + self._options.round_interval_s
                decisions, solve_ms = self._round()
                if self._options.charge_scheduling_time and (decisions.placements or decisions.moves):
                    undelivered = (now + solve_ms / 1e3, decisions)
                else:
                    self._carry_out(decisions)
            wake_s = self._wake_s(undelivered is not None)
        return self._outcome()

    def _round(self) -> tuple[Decisions, float]:
        number, waiting = self._state.round, self._state.pending
        self._fresh, self._unseen = self._unseen, set()
        began = self._options.clock()
        decisions = self._decide(self._state, self._now_s)
        self._look_again_s = _NEVER if decisions.look_again_s is None else decisions.look_again_s
        solve_ms = decisions.timings_ms.get("decide", (self._options.clock() - began) * 1e3)
        self._rounds.append(
            RoundSummary(
                self._now_s,
                waiting,
                len(decisions.placements),
                solve_ms,
                decisions.certificate,
                len(decisions.stopped),
                None if decisions.preemptions is None else len(decisions.preemptions),
                None if decisions.moves is None else len(decisions.moves),
            )
        )
        self._postponements = decisions.postponements
        idle = not (decisions.placements or decisions.preemptions or decisions.moves)
        self._idle_rounds = self._idle_rounds + 1 if idle else 0
        if self._options.keep_records and decisions.record is not None:
            self._records.append(dict(decisions.record))
        if self._options.record_sink is not None and decisions.recipe is not None:
            self._options.record_sink(self._scheduler.name, number, decisions.recipe)
        return decisions, solve_ms

    def _carry_out(self, decisions: Decisions) -> None:
        with self._guard(f"decides what cannot be carried out at {self._now_s:g} s"):
            self._change(decisions)

    def _change(self, decisions: Decisions) -> None:
        for preemption in decisions.preemptions or ():
            self._preempt(preemption)
        self._move([move for move in decisions.moves or () if move.task not in self._ended_s])
        places = {p.task: p.machine for p in decisions.placements}
        for placement in decisions.placements:
            self._place(placement, places)
        self._state.apply(RoundDecided(decisions.plan, decisions.reservations, decisions.by_choice), self._now_s)
        self._again = bool(decisions.preemptions)
        self._moves = decisions.moves is not None

    def _place(self, placement: Placement, places: Mapping[str, str]) -> None:
        delay = self._scenario.start_delay
        task = self._tasks[placement.task]
        wait = delay.at_submission_s if task.name in self._fresh else delay.after_waiting_s
        bound = TaskBound(
            placement.task,
            placement.machine,
            placement.width_milli,
            placement.threads,
            placement.cores,
            self._now_s + wait,
            placement.devices,
            is_remote(task, places, self._coupled.others(task.name)),
        )
        self._state.apply(bound, self._now_s)
        self._bound_s[task.name] = self._now_s
        self._start(bound, self._done.pop(task.name, 0.0))

    def _start(self, bound: TaskBound | TaskMove, progress: float) -> None:
        task = self._tasks[bound.task]
        check_width(self._scenario.catalogue, task, bound.width_milli, self._scheduler.name)
        self._bound[task.name] = bound
        resident = Resident(
            task.profile,
            task.scale,
            bound.threads,
            bound.cores,
            cpu_weight(bound.width_milli),
            task.memory_mib,
            progress,
            bound.start_s,
            gpus=use_of(
                self._scenario.catalogue,
                task.profile,
                self._gpus[bound.machine],
                task.gpus,
                bound.devices,
                isinstance(bound, TaskBound) and bound.remote,
            ),
        )
        walltime_s = self._scenario.terms_of(task.job).walltime_s
        limit_s = None if walltime_s is None else walltime_s - self._ran_s.get(task.name, 0.0)
        self._world.start(task.name, bound.machine, resident, self._now_s, limit_s)

    def _stop(self, task: str, moved: bool, keeps_work: bool) -> float:
        """Take a task off its machine, and remember that it was there; the share of its work that is done."""
        if self._coupled.others(task):
            message = (
                f"{task} is a sub-task of a job whose GPUs may be on other machines: those do not leave their place"
            )
            help = "choose a policy, or settings, that neither preempt nor move"
            raise InputError.one("--policy", message, help, key=self._scheduler.name)
        bound = self._bound[task]
        stay = Stay(
            bound.machine,
            bound.cores,
            bound.width_milli,
            bound.threads,
            bound.start_s,
            self._now_s,
            moved,
            bound.devices,
        )
        self._stays.setdefault(task, []).append(stay)
        before_s = self._ran_s.pop(task, 0.0)
        if keeps_work:
            self._ran_s[task] = before_s + max(0.0, self._now_s - bound.start_s)
        return self._world.stop(task, bound.machine, self._now_s)

    def _preempt(self, preemption: Preemption) -> None:
        task = preemption.task
        if task in self._ended_s:
            return  # it ended while the round was being paid for
        self._state.apply(TaskPreempted(task, preemption.keeps_work), self._now_s)
        keeps_work = preemption.keeps_work and not self._tasks[task].endless
        progress = self._stop(task, moved=False, keeps_work=keeps_work)
        if keeps_work:
            self._done[task] = progress
        del self._bound[task], self._bound_s[task]

    def _move(self, moves: Sequence[Move]) -> None:
        found = tuple(
            TaskMove(
                m.task,
                m.machine,
                m.width_milli,
                m.threads,
                m.cores,
                self._now_s + m.pause_s,
                m.keeps_work,
                m.devices,
            )
            for m in moves
        )
        if not found:
            return
        self._state.apply(TasksMoved(found), self._now_s)
        progress = [self._stop(move.task, moved=True, keeps_work=move.keeps_work) for move in found]
        for move, done in zip(found, progress, strict=True):
            self._start(move, done if move.keeps_work else 0.0)

    def _wake_s(self, undelivered: bool) -> float:
        if undelivered or not self._state.pending:
            return _NEVER
        if self._again:
            # What was preempted waits from now on, perhaps beside room that suits it.
            self._again = False
            return self._now_s
        moves = self._world.next_event_s() < _NEVER
        if self._options.round_interval_s > 0.0 and (moves or self._idle_rounds < IDLE_ROUNDS):
            seen = self._idle_rounds >= IDLE_ROUNDS and self._now_s <= self._rounds[-1].t_s
            # Idle rounds beside a job of years are no more than elsewhere: the next waits for something to happen.
            wanted_s = min(self._look_again_s, self._world.next_event_s()) if seen else self._now_s
            return max(self._next_round_s, wanted_s)
        if moves or self._idle_rounds >= IDLE_ROUNDS:
            return self._look_again_s
        return min(self._look_again_s, self._now_s + IDLE_ROUND_S)

    def _outcome(self) -> Run:
        scenario = self._scenario
        self._world.settle(self._now_s)
        batch_cores = scenario.batch_cores()
        jobs = tuple(self._job(task, batch_cores) for task in self._tasks.values())
        # A sub-task of a job that is taken apart holds what it has until the others are through.
        alone = ((t, j) for t, j in zip(self._tasks.values(), jobs, strict=True) if not self._coupled.others(t.name))
        check_time(alone, self._world, self._scheduler.name)
        starts = [j.start_s for j in jobs if j.start_s is not None]
        latency = self._world.latency(min(starts), max(self._ended_s.values(), default=0.0)) if starts else ()
        return Run(
            scenario.name,
            self._scheduler.name,
            self._variant,
            self._options.seed,
            jobs,
            latency,
            tuple(self._rounds),
            tuple(self._records),
            self._gpu_use(jobs),
        )

    def _gpu_use(self, jobs: Sequence[JobRun]) -> GpuUse | None:
        if all(machine.gpus is None for machine in self._scenario.machines):
            return None
        # Only here, since compiled kernels take a while to load.
        from flowsched_simulator.gpu_measure import measure_gpu_use

        return measure_gpu_use(self._scenario, self._tasks.values(), jobs, self._first_s, self._now_s)

    def _job(self, task: Task, batch_cores: dict[str, tuple[int, ...]]) -> JobRun:
        bound = self._bound.get(task.name)
        terms = self._scenario.terms_of(task.job)
        alone_s = self._world.alone_s(task, self._scenario.machines, batch_cores, bound.machine if bound else None)
        return JobRun(
            job=task.job,
            profile=task.profile,
            machine=bound.machine if bound else None,
            cores=bound.cores if bound else (),
            width_milli=bound.width_milli if bound else task.request_milli,
            threads=bound.threads if bound else 0,
            submit_s=task.submit_s,
            bound_s=self._bound_s.get(task.name),
            start_s=bound.start_s if bound else None,
            end_s=self._ended_s.get(task.name),
            alone_s=terms.at_most_s(alone_s),
            reason=self._reason(task.name),
            earlier=tuple(self._stays.get(task.name, ())),
            deadline_s=terms.deadline_s,
            task="" if task.name == task.job else task.name,
            devices=bound.devices if bound else (),
            gpu_share_milli=0 if task.gpus is None else task.gpus.share_milli,
            walltime_s=terms.walltime_s,
            killed=None if terms.walltime_s is None else self._was_killed(task.name),
        )

    def _was_killed(self, task: str) -> bool:
        """Whether a task, or another sub-task of its job, which ends with it, was killed."""
        return task in self._ended_s and not self._killed.isdisjoint((task, *self._coupled.others(task)))

    def _reason(self, task: str) -> str:
        """Why a job never ended, as far as that is known."""
        if self._time_ended and task not in self._ended_s:
            return (
                f"simulated time ended after {self._options.max_time_s:g} s (max_time_s, --max-time), before this job"
            )
        if held := self._submissions.why_held(self._tasks[task]):
            return held
        return "" if task in self._bound else self._reasons.get(task, "")

    @cached_property
    def _reasons(self) -> dict[str, str]:
        """Why tasks waited in the last round, asked for at the end of the run."""
        return {p.task: p.reason for p in self._postponements}
