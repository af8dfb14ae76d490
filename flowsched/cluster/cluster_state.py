"""The state of a cluster, kept from events, and what is believed of its running tasks."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from functools import partial

from flowsched.cluster.events import (
    Event,
    MachineAdded,
    MachineRemoved,
    RoundDecided,
    TaskBound,
    TaskFinished,
    TaskMove,
    TaskPreempted,
    TasksMoved,
    TaskSubmitted,
    TaskWithdrawn,
)
from flowsched.cluster.learnt_run_times import NOTHING_LEARNT, LearntRunTimes
from flowsched.cluster.occupied_machines import OccupiedMachine, OccupiedMachines
from flowsched.cluster.pending_tasks import PendingTable
from flowsched.cluster.resource import amount_text, covers, missing
from flowsched.cluster.run_time_errors import RunTimeErrors
from flowsched.cluster.snapshot import (
    MOST_KEPT,
    Machine,
    PlannedStart,
    RelationCount,
    Reservation,
    Running,
    Service,
    Snapshot,
    StartDelay,
    Task,
    by_machine,
    cores_beside,
)
from flowsched.cluster.snapshot_checks import forbid_contradictions
from flowsched.cluster.start_errors import StartErrors
from flowsched.cluster.start_samples import StartForecast, StartSamples
from flowsched.cluster.state_rows import StateRows
from flowsched.gpu.demand import LearntDemand
from flowsched.gpu.devices import suits, taken
from flowsched.gpu.shapes import GpuShape
from flowsched.relations.relation import Relation, TaskGroup
from flowsched_models.catalogue import Catalogue
from flowsched_models.runtime import HostFactory


class ClusterState:
    """Machines, services, running and pending tasks. Every change is one event; a snapshot is an immutable view."""

    def __init__(
        self,
        catalogue: Catalogue,
        start_delay: StartDelay | None = None,
        hosts: HostFactory | None = None,
        *,
        relations: Iterable[Relation] = (),
        task_groups: Iterable[TaskGroup] = (),
        share_service_cores: bool = False,
        gpu_demand: Iterable[tuple[GpuShape, int]] = (),
        learnt_run_times: LearntRunTimes = NOTHING_LEARNT,
        estimating: bool = True,
    ) -> None:
        """An empty cluster; ``hosts`` may be shared so that rates are computed once.

        ``relations`` and ``task_groups`` are all that tasks may name; ``share_service_cores`` as in :class:`Snapshot`.
        ``gpu_demand`` is what tasks are declared to ask for; empty: learnt from those that come. ``learnt_run_times``: what
        was learnt before. Not ``estimating``: it is not worked out how far running tasks are, and ends teach nothing.
        """
        self._catalogue = catalogue
        self._start_delay = start_delay or StartDelay()
        self._hosts = hosts or HostFactory(catalogue)
        self._pending = PendingTable()
        self._machines = OccupiedMachines(catalogue, self._hosts, estimating=estimating)
        self._rows = StateRows(catalogue, relations, task_groups)
        self._plan: dict[str, PlannedStart] = {}
        self._reservations: tuple[Reservation, ...] = ()
        self._share_service_cores = share_service_cores
        self._gpu_demand = tuple(gpu_demand)
        self._learnt: LearntDemand | None = None if self._gpu_demand else LearntDemand()
        """None where the demand is declared."""
        self._relation_counts: tuple[RelationCount, ...] = ()
        """Of tasks that no event names: those that the state was loaded with."""
        self._start_errors = StartErrors()
        self._start_samples = StartSamples()
        self._errors: RunTimeErrors | None = RunTimeErrors()
        """None while the state is as it was loaded, from a snapshot that knows of none."""
        self._learnt_run_times = learnt_run_times
        self._coupled: set[str] = set()
        """Tasks that end only with others, which use their GPUs or the other way round."""
        self._now_s = 0.0
        self._rounds = 0

    @classmethod
    def of(cls, snapshot: Snapshot, hosts: HostFactory | None = None) -> ClusterState:
        """The state at the moment of a snapshot, from which events go on; the order of the snapshot makes no difference.

        Its own snapshot at that moment equals ``snapshot.in_order()``. ``hosts`` as above. A demand for GPUs that the
        snapshot has is taken as declared. Raises :class:`EventError` for a snapshot that contradicts itself; not for a
        machine that gives more than it has, as what runs there may be older than its size.
        """
        forbid_contradictions(snapshot)
        snapshot = snapshot.in_order()
        state = cls(
            snapshot.catalogue,
            snapshot.start_delay,
            hosts,
            relations=snapshot.relations,
            task_groups=snapshot.task_groups,
            share_service_cores=snapshot.share_service_cores,
            gpu_demand=snapshot.gpu_demand,
            learnt_run_times=snapshot.learnt_run_times,
        )
        state._now_s, state._rounds = snapshot.now_s, snapshot.round
        state._machines.advance(snapshot.now_s)
        services = by_machine(snapshot.services)
        for machine in snapshot.machines:
            state._add(machine, tuple(services[machine.name]))
        state._rows.count(snapshot.relation_counts)
        for running in snapshot.running:
            state._start(running, running.progress)
            state._note_coupled(running.task)
        for task in snapshot.pending:
            state._wait(task)
            state._note_coupled(task)
        state._plan = {p.task: p for p in snapshot.plan}
        state._reservations = snapshot.reservations
        state._relation_counts = snapshot.relation_counts
        state._errors = snapshot.run_time_errors
        state._start_errors = snapshot.start_errors
        return state

    def apply(self, event: Event, now_s: float) -> None:
        """Take note of an event. Events come in the order of time.

        Raises ``ValueError`` for an event that cannot be true (an unknown task, a machine that overcommits).
        """
        if now_s < self._now_s - 1e-9:
            raise ValueError(f"an event of {now_s} s comes after one of {self._now_s} s")
        self._advance(now_s)
        match event:
            case MachineAdded(machine, services):
                if machine.name in self._machines:
                    raise ValueError(f"a machine named {machine.name} is there already")
                self._add(machine, services)
            case MachineRemoved(name):
                if name not in self._machines:
                    raise ValueError(f"{name} was removed but is not in the cluster")
                self._remove(name)
            case TaskSubmitted(task):
                if task.name in self._rows.things:
                    raise ValueError(f"a task named {task.name} is there already")
                self._forbid_unknown_names(task)
                self._wait(task)
                self._note_coupled(task)
                self._learn_demand(task)
            case TaskBound():
                self._bind(event)
            case TaskPreempted(name, keeps_work):
                self._preempt(name, keeps_work)
            case TasksMoved(moves):
                self._move(moves)
            case TaskFinished(name, killed):
                self._finish(name, killed)
            case TaskWithdrawn(name):
                if name not in self._pending:
                    raise ValueError(f"{name} was withdrawn but does not wait")
                self._pending.drop(name)
                self._rows.leave(name)
                self._plan.pop(name, None)
                self._start_samples.forget(name)
            case RoundDecided(plan, reservations, by_choice):
                self._plan = {p.task: p for p in plan}
                forecasts = (StartForecast(p.task, p.start_s, p.end_s) for p in plan if p.start_s is not None)
                self._start_samples.decided(forecasts, now_s, self._rounds)
                self._reservations = reservations
                self._rounds += 1
                self._pending.postponed(sorted(by_choice))

    def snapshot(self, now_s: float) -> Snapshot:
        """The cluster as it is believed to be at ``now_s``."""
        self._advance(now_s)
        machines, services, running = self._machines.look()
        return Snapshot(
            now_s=now_s,
            catalogue=self._catalogue,
            machines=machines,
            services=services,
            running=running,
            pending=self._pending.at(self._rounds),
            plan=tuple(p for t, p in self._plan.items() if t in self._pending),
            reservations=self.reservations,
            start_delay=self._start_delay,
            round=self._rounds,
            relations=tuple(self._rows.relations.values()),
            task_groups=tuple(self._rows.task_groups.values()),
            relation_counts=self._relation_counts,
            share_service_cores=self._share_service_cores,
            gpu_demand=self._gpu_demand,
            run_time_errors=self._errors,
            start_errors=self._start_samples.with_open(self._start_errors, now_s),
            learnt_run_times=self._learnt_run_times,
        )

    def _learn_demand(self, task: Task) -> None:
        """Count a task, where machines have GPUs."""
        if self._learnt is not None and self._machines.have_gpus:
            self._learnt.add(task.gpu_shape)
            self._gpu_demand = self._learnt.known

    # What rounds read that follow the state instead of looking at all of it

    @property
    def rows(self) -> StateRows:
        """Machines and tasks by row, to follow; only to be read."""
        self._pending.mark()  # what came and went long ago is let go of
        self._machines.mark()
        return self._rows

    @property
    def pending(self) -> int:
        """Number of tasks that wait."""
        return len(self._pending)

    @property
    def round(self) -> int:
        """Number of the next round."""
        return self._rounds

    @property
    def catalogue(self) -> Catalogue:
        """All profiles."""
        return self._catalogue

    @property
    def reservations(self) -> tuple[Reservation, ...]:
        """What the last round held, as far as the task still waits and the machine is there."""
        return tuple(r for r in self._reservations if r.task in self._pending and r.machine in self._machines)

    def waiting(self, task: str) -> Task | None:
        """A task with the rounds that it has waited; None where it does not wait."""
        return self._pending.get(task, self._rounds)

    def on(self, machine: str) -> OccupiedMachine:
        """A machine, to read alone. Raises ``KeyError`` for one that is not there."""
        return self._machines.on(machine)

    # How events change it

    def _advance(self, now_s: float) -> None:
        """The present is ``now_s`` from now on, if that is later. Once time has passed a task may turn out to run for longer
        than was forecast, whatever a snapshot knew of that.
        """
        if now_s <= self._now_s:
            return
        if self._errors is None:
            self._errors = RunTimeErrors()
        self._now_s = now_s
        self._machines.advance(now_s)

    def _note_coupled(self, task: Task) -> None:
        if task.gpus_for:
            self._coupled.add(task.gpus_for)

    def _add(self, machine: Machine, services: tuple[Service, ...]) -> None:
        self._machines.add(machine, services)
        self._rows.add(machine, services)

    def _remove(self, name: str) -> None:
        """What runs on a machine that is gone is gone too."""
        for task in self._machines.remove(name):
            self._rows.leave(task)
            self._start_samples.forget(task)
        self._rows.remove(name)
        self._plan = {t: p for t, p in self._plan.items() if p.machine != name}
        self._relation_counts = tuple(c for c in self._relation_counts if c.machine != name)

    def _wait(self, task: Task) -> None:
        self._pending.put(task, self._rounds)
        self._rows.submit(task)

    def _start(self, running: Running, progress: float) -> None:
        self._machines.start(running, progress)
        self._rows.start(running)

    def _bind(self, event: TaskBound) -> None:
        task = self._pending.get(event.task, self._rounds)
        if task is None:
            raise ValueError(f"{event.task} was bound but does not wait")
        if event.machine not in self._machines:
            raise ValueError(f"{event.task} was bound to {event.machine}, which is not in the cluster")
        node = self._machines.on(event.machine)
        self._forbid_overcommit(node, event.width_milli, task, event.devices)
        self._pending.drop(event.task)
        self._plan.pop(event.task, None)
        self._start_errors = self._start_samples.started(event.task, event.start_s, self._start_errors)
        self._start(
            Running(
                task,
                event.machine,
                event.width_milli,
                event.threads,
                event.cores,
                self._now_s,
                event.start_s,
                devices=event.devices,
                remote=event.remote,
                factor=self._factor(task, node),
            ),
            task.done,
        )

    def _stop(self, name: str, what: str) -> tuple[Running, float]:
        """Take a running task off its machine; with the progress that it is estimated to have."""
        if self._machines.machine_of(name) is None:
            raise ValueError(f"{name} {what} but does not run")
        self._rows.leave(name)
        return self._machines.stop(name)

    def _preempt(self, name: str, keeps_work: bool) -> None:
        running, progress = self._stop(name, "was preempted")
        self._start_samples.forget(name)
        done = min(progress, MOST_KEPT) if keeps_work and not running.task.endless else 0.0
        self._wait(replace(running.task, preemptions=running.task.preemptions + 1, done=done))

    def _move(self, moves: tuple[TaskMove, ...]) -> None:
        for move in moves:
            if move.machine not in self._machines:
                raise ValueError(f"{move.task} was moved to {move.machine}, which is not in the cluster")
            if self._machines.machine_of(move.task) in (None, move.machine):
                raise ValueError(f"{move.task} was moved to {move.machine} but does not run elsewhere")
        left = [(move, *self._stop(move.task, "was moved")) for move in moves]
        for move, running, progress in left:
            node = self._machines.on(move.machine)
            self._forbid_overcommit(node, move.width_milli, running.task, move.devices)
            progress = progress if move.keeps_work else 0.0
            done = 0.0 if running.task.endless else min(progress, MOST_KEPT)
            place = move.machine, move.width_milli, move.threads, move.cores
            task = replace(running.task, done=done)
            moved = Running(
                task,
                *place,
                running.bound_s,
                move.start_s,
                moved_s=self._now_s,
                devices=move.devices,
                factor=self._factor(task, node),
            )
            self._start(moved, progress)

    def _finish(self, name: str, killed: bool) -> None:
        running, progress = self._stop(name, "finished")
        if killed:
            self._start_samples.forget(name)
        else:
            self._start_errors = self._start_samples.ended(name, self._now_s, self._start_errors)
        learnt = not (killed or running.task.endless or running.task.gpus_for or name in self._coupled)
        if progress > 0.0 and learnt:
            self._errors = (self._errors or RunTimeErrors()).with_end(running.factor * progress)
            # Work that was kept from another machine, or another time, was done under other conditions.
            if running.task.run_class and running.task.done == 0.0:
                self._learn(running, progress)
        if running.task.group is not None:
            group = self._rows.task_groups[running.task.group]
            self._rows.task_groups[group.name] = replace(group, minimum=max(1, group.minimum - 1))
        for task, plan in self._plan.items():
            if plan.machine == running.machine and plan.slot > 0:
                self._plan[task] = replace(plan, slot=plan.slot - 1)

    def _factor(self, task: Task, node: OccupiedMachine) -> float:
        """How many times its profile's forecast a task is expected to run on a machine."""
        learnt = None if task.endless else self._learnt_run_times.of(task.run_class, node.machine.type)
        return 1.0 if learnt is None else learnt.factor

    def _learn(self, running: Running, progress: float) -> None:
        """A task of a class has ended, with the progress that it is believed to have."""
        task, node = running.task, self._machines.on(running.machine)
        ran = running.factor * node.host.share_of_time(task.profile, running.threads, running.cores, progress)
        self._learnt_run_times = self._learnt_run_times.with_end(task.run_class, node.machine.type, ran)

    def _forbid_unknown_names(self, task: Task) -> None:
        unknown = [f"relation {name}" for name in (*task.holds, *task.joins) if name not in self._rows.relations]
        if task.group is not None and task.group not in self._rows.task_groups:
            unknown.append(f"task group {task.group}")
        if unknown:
            raise ValueError(f"{task.name} names {unknown[0]}, which is not there")

    def _forbid_overcommit(self, node: OccupiedMachine, width_milli: int, task: Task, devices: tuple[int, ...]) -> None:
        """Raise if one more task of this size would make the requests on a machine exceed what it has."""
        machine, free = node.machine, partial(self._rows.free, node.machine.name)
        if width_milli > 0 and not cores_beside(machine, node.services):
            raise ValueError(f"{machine.name} would be overcommitted: its services have all of its cores")
        cpu, memory = width_milli - free("cpu"), task.memory_mib - free("memory")
        if cpu > 0 or memory > 0:
            raise ValueError(
                f"{machine.name} would be overcommitted: {cpu + machine.cpu_milli} of {machine.cpu_milli} milli-CPU and "
                f"{memory + machine.memory_mib} of {machine.memory_mib} MiB would be requested"
            )
        left = {name: free(name) for name, _ in task.resources}
        if not covers(left, task.resources):
            short = amount_text(missing(left, task.resources))
            raise ValueError(f"{machine.name} would be overcommitted: {short} more than are free")
        if task.gpus is not None:
            self._forbid_shared_devices(node, task, devices)

    def _forbid_shared_devices(self, node: OccupiedMachine, task: Task, devices: tuple[int, ...]) -> None:
        """Raise unless the devices are those of a machine that suits the task, and have as much left as it asks for."""
        gpus, wanted = node.machine.gpus, task.gpus
        assert wanted is not None, "the task asks for GPUs"
        if gpus is None or not suits(gpus, wanted):
            raise ValueError(f"{task.name} asks for {wanted}, which {node.machine.name} does not have")
        if len(set(devices)) != wanted.count or not all(0 <= d < gpus.count for d in devices):
            raise ValueError(
                f"{task.name} asks for {wanted} and was given the devices {devices} of {node.machine.name}"
            )
        left = self._machines.devices(node.machine.name).left
        if min(taken(left, wanted, devices)) < 0:
            raise ValueError(
                f"{node.machine.name} would be overcommitted: device {devices} has less left than {wanted}"
            )
