"""DRMaestro's rounds: jobs whose GPUs may be on other machines, placed phase after phase or by one network.

M. Amaral, PhD thesis, UPC 2019, chapter 5, algorithms 4 and 5; Journal of Cloud Computing 2021, doi
10.1186/s13677-021-00238-6. What runs is never moved or preempted. Tasks without such GPUs are placed in the first phase,
with the GPUs that they ask for.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial

from flowsched.cluster.decision import Decisions, Placement, Postponement
from flowsched.cluster.knowledge import Knowledge
from flowsched.cluster.snapshot import Snapshot, Task
from flowsched.disaggregation.coupled import CoupledJob, coupled_jobs
from flowsched.disaggregation.free_room import FreeRoom
from flowsched.disaggregation.joint_network import batches, solved_jointly
from flowsched.disaggregation.phase_network import SolvedNetwork, Wish, demand, has_one_demand, solved_phase
from flowsched.disaggregation.phases_record import phases_record
from flowsched.disaggregation.prices import GpuSites, Prices
from flowsched.disaggregation.settings import DisaggregationSettings
from flowsched.solvers.limited import take_stopped
from flowsched.solvers.solver import Solver
from flowsched_models.document import InputError
from flowsched_models.runtime import HostFactory

_MISS = 1.0 + 1e-9
"""A run that is predicted to end at its goal is in time."""


class DisaggregationScheduler:
    """One of DRMaestro's policies in every round; what it decides depends on the snapshot alone."""

    told = (Knowledge.RUN_TIMES, Knowledge.INTERFERENCE)

    def __init__(
        self,
        name: str,
        solver: Solver,
        settings: DisaggregationSettings | None = None,
        *,
        network_aware: bool = False,
        joint: bool = False,
        hosts: HostFactory | None = None,
        keep_records: bool = False,
    ) -> None:
        """``network_aware``: prices know the load of networks, and a placement that would miss its goal is postponed.

        ``joint``: one network instead of phases, for jobs with one GPU that may be elsewhere.
        """
        self.name = name
        self._solver = solver
        self._settings = settings or DisaggregationSettings()
        self._network_aware = network_aware
        self._joint = joint
        self._hosts = hosts
        self._keep_records = keep_records
        self._sites: GpuSites | None = None

    def decide(self, snapshot: Snapshot) -> Decisions:
        """One round over all pending tasks."""
        forbid_unknown(self.name, snapshot.pending)
        if self._hosts is None or self._hosts.catalogue is not snapshot.catalogue:
            self._hosts = HostFactory(snapshot.catalogue)
        if self._sites is None or not self._sites.belong_to(snapshot):
            self._sites = GpuSites(snapshot, self._hosts)
        room = FreeRoom(snapshot)
        prices = Prices(snapshot, self._sites, room, self._settings, self._network_aware)
        this = _Round(snapshot, room, prices, self._solver)
        this.place(coupled_jobs(snapshot.pending), self._joint)
        placements = tuple(p for job in this.jobs for p in this.placed.get(job.first.name, ()))
        postponements = tuple(p for job in this.jobs for p in this.postponed(job))
        recipe = None
        if self._keep_records:
            recipe = partial(
                phases_record,
                snapshot,
                self.name,
                self._solver.name,
                self._settings,
                tuple(this.solved),
                placements,
                postponements,
            )
        return Decisions(placements, postponements, recipe=recipe, stopped=take_stopped(self._solver))


def forbid_unknown(policy: str, tasks: Sequence[Task]) -> None:
    """Raise :class:`InputError` for tasks with what these policies do not know."""
    for task in tasks:
        if task.holds or task.joins:
            message = f"{task.name} has relations to other tasks, which this policy does not know"
        elif task.group is not None and task.group != task.job:
            message = f"{task.name} is one of task group {task.group}, which this policy does not know"
        else:
            continue
        raise InputError.one("--policy", message, "flow and the baselines do", key=policy)


class _Round:
    """One round: what is placed so far, and why others wait."""

    def __init__(self, snapshot: Snapshot, room: FreeRoom, prices: Prices, solver: Solver) -> None:
        self.snapshot = snapshot
        self.room = room
        self.prices = prices
        self.solver = solver
        self.jobs: list[CoupledJob] = []
        self.placed: dict[str, tuple[Placement, ...]] = {}
        """By the first sub-task of each job."""
        self.solved: list[SolvedNetwork] = []
        self._why: dict[str, str] = {}
        self._by_choice: set[str] = set()

    def place(self, jobs: list[CoupledJob], joint: bool) -> None:
        """Place as many jobs as get a place."""
        self.jobs = jobs
        taken_in = self._picked()
        if joint:
            for batch in batches(taken_in):
                self._place_jointly(batch)
            taken_in = [job for job in taken_in if len(job.parts) != 1]
        while taken_in:
            left = self._place_in_phases(taken_in)
            if len(left) == len(taken_in):
                return
            taken_in = left

    def postponed(self, job: CoupledJob) -> tuple[Postponement, ...]:
        """Why a job waits; nothing for one that is placed."""
        name = job.first.name
        if name in self.placed:
            return ()
        reason = self._why.get(name) or "waits until the jobs before it, which take all that is free, have started"
        waited_s, by_choice = self.snapshot.age_s(job.first), name in self._by_choice
        found = []
        for task in (job.first, *job.parts[:1]):
            terms = self.prices.waiting_terms(task)
            found.append(Postponement(task.name, reason, waited_s, sum(terms.values()), terms, by_choice=by_choice))
        return (*found, *(replace(found[-1], task=part.name) for part in job.parts[1:]))

    def _picked(self) -> list[CoupledJob]:
        """The oldest jobs that together ask for no more than is free in all (algorithm 4)."""
        milli, mib, devices = self.room.totals()
        found = []
        for job in self.jobs:
            gpus = sum(t.gpus.milli for t in job.tasks if t.gpus is not None)
            cpu = job.first.widths_milli[0]
            if cpu > milli or job.first.memory_mib > mib or gpus > devices:
                continue
            milli, mib, devices = milli - cpu, mib - job.first.memory_mib, devices - gpus
            found.append(job)
        return found

    def _place_in_phases(self, jobs: Sequence[CoupledJob]) -> list[CoupledJob]:
        """CPU and memory, then GPUs with a preference for the same machine; the jobs that may be tried again."""
        prices, room = self.prices, self.room
        firsts = [
            Wish(j.first, j.first.name, (*prices.class_of(j.first), demand(j.first), j.first.machines), waits)
            for j, waits in ((j, prices.waiting(j.first)) for j in jobs)
        ]
        cpu = self._solve(firsts, prices.place)
        again = [] if has_one_demand([j.first for j in jobs]) else [j for j in jobs if j.first.name not in cpu]
        for job in jobs:
            if job.first.name not in cpu:
                self._why[job.first.name] = self._no_machine(job.first)
        devices = {j.first.name: room.take(j.first, cpu[j.first.name]) for j in jobs if j.first.name in cpu}
        parts = [
            Wish(
                part,
                j.first.name,
                (*prices.class_of(part), part.machines),
                prices.waiting(part),
                (cpu[j.first.name], prices.place(part, cpu[j.first.name])),
            )
            for j in jobs
            if j.first.name in cpu
            for part in j.parts
        ]
        gpus = self._solve(parts, lambda t, m: prices.place(t, m, remote=True)) if parts else {}
        for job in jobs:
            name = job.first.name
            if name not in cpu:
                continue
            missing = [part for part in job.parts if part.name not in gpus]
            if missing:
                room.give_back(job.first, cpu[name], devices[name])
                self._why[name] = self._no_gpu(job, missing)
                continue
            self._accept(job, {name: cpu[name], **{p.name: gpus[p.name] for p in job.parts}}, devices[name])
        return again

    def _solve(self, wishes: Sequence[Wish], price: Callable[[Task, str], float]) -> Mapping[str, str]:
        """A phase: machines by sub-task."""
        self.solved.append(solved_phase(wishes, self.room, price, self.solver))
        return self.solved[-1].found

    def _place_jointly(self, jobs: Sequence[CoupledJob]) -> None:
        pairs, solved = solved_jointly(jobs, self.room, self.prices, self.solver)
        self.solved.append(solved)
        for pair in pairs:
            first, (part,) = pair.job.first, pair.job.parts
            devices = self.room.take(first, pair.cpu)
            self._accept(pair.job, {first.name: pair.cpu, part.name: pair.gpu}, devices)
        found = {pair.job.first.name for pair in pairs}
        for job in jobs:
            if job.first.name not in found:
                fits = any(self.room.times(job.first, m.name) for m in self.room.machines)
                self._why[job.first.name] = self._no_gpu(job, job.parts) if fits else self._no_machine(job.first)

    def _accept(self, job: CoupledJob, places: dict[str, str], devices: tuple[int, ...]) -> None:
        """Place a job, whose first sub-task has its room already; or postpone it where it would miss its goal."""
        prices, room = self.prices, self.room
        away = {t.name: any(places[o.name] != places[t.name] for o in job.tasks) for t in job.tasks}
        if prices.network_aware and job.first.postponements < prices.settings.most_postponements:
            late = [
                t for t in job.tasks if prices.expected_s(t, places[t.name], away[t.name]) > _MISS * prices.goal_s(t)
            ]
            if late:
                room.give_back(job.first, places[job.first.name], devices)
                self._by_choice.add(job.first.name)
                self._why[job.first.name] = self._too_late(job, late[0], places, away)
                return
        given = {job.first.name: devices}
        for part in job.parts:
            given[part.name] = room.take(part, places[part.name])
        self.placed[job.first.name] = tuple(
            self._placement(t, places[t.name], given[t.name], t is not job.first and away[t.name]) for t in job.tasks
        )
        for t in job.tasks:
            room.add_load(t, places[t.name], away[t.name])

    def _placement(self, task: Task, machine: str, devices: tuple[int, ...], remote: bool) -> Placement:
        terms = self.prices.place_terms(task, machine, remote)
        return Placement(
            task.name,
            machine,
            task.widths_milli[0],
            self.prices.sites.threads(task, machine),
            self.prices.sites.site[machine].cores,
            sum(terms.values()),
            terms,
            devices,
        )

    def _no_machine(self, task: Task) -> str:
        room = [m.name for m in self.room.machines if self.room.fits(task, m.name)]
        if room:
            return "waits: the machines where it fits are taken by jobs before it"
        what = f"{task.widths_milli[0] / 1000:g} cores and {task.memory_mib} MiB"
        gpus = "" if task.gpus is None else f" and {task.gpus}"
        return f"no machine has {what}{gpus} free"

    def _no_gpu(self, job: CoupledJob, missing: Sequence[Task]) -> str:
        free = any(self.room.fits(part, m.name) for part in missing for m in self.room.machines)
        if not free:
            return f"no machine has {missing[0].gpus} free for {missing[0].name}"
        worth = f"{self.prices.waiting(missing[0]):.3g} after {job.first.rounds_waited} rounds"
        return f"a GPU on another machine costs it more than waiting ({worth})"

    def _too_late(self, job: CoupledJob, late: Task, places: dict[str, str], away: dict[str, bool]) -> str:
        expected_s = self.prices.expected_s(late, places[late.name], away[late.name])
        gpus = sorted({places[p.name] for p in job.parts}) or [places[job.first.name]]
        return (
            f"postponed {job.first.postponements + 1} of at most {self.prices.settings.most_postponements} times: with CPU "
            f"on {places[job.first.name]} and GPU on {', '.join(gpus)} it would run {expected_s:.1f} s; its goal is "
            f"{self.prices.goal_s(late):.1f} s"
        )
