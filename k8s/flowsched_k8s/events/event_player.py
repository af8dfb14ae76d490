"""A file of events, played: the state of the cluster from events, and each round decided anew on it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import ValidationError

from flowsched.cluster.booked_tasks import BookedTasks
from flowsched.cluster.class_runs import ClassRuns
from flowsched.cluster.decision import Scheduler
from flowsched.cluster.learnt_run_times import LearntRunTimes
from flowsched.cluster.occupied_machines import OccupiedMachines
from flowsched.cluster.played_events import OtherDecision, OtherPolicy, PlayedEvents, SchedulersOf
from flowsched.cluster.snapshot import Snapshot, Task
from flowsched.inspector.consistency import FAULTS
from flowsched.pricing.linear.policy import CostModel
from flowsched.records.record import writer
from flowsched.round.linear import choice
from flowsched.round.linear.network_scheduler import NetworkScheduler
from flowsched.round.scheduler import FlowScheduler
from flowsched.solvers import SOLVERS, make_solver
from flowsched_k8s.configuration.configuration import CostModelChoice
from flowsched_k8s.configuration.cost_model import make_model
from flowsched_k8s.events import live_events as live
from flowsched_k8s.events.event_file import EventReader
from flowsched_k8s.events.event_recorder import ARRAYS, GPUS, SAME, decided_event
from flowsched_k8s.events.live_events import LineError
from flowsched_k8s.gpus import RoundGpus
from flowsched_k8s.names import FLOW
from flowsched_k8s.rounds.measured_pods import MeasuredPods
from flowsched_k8s.rounds.neutral import DAY_SCALE, with_neutral
from flowsched_k8s.rounds.occupied_nodes import machine_of
from flowsched_k8s.rounds.planning import make_engine, plan_any_round
from flowsched_k8s.rounds.round_input import ClassInput, KeptBetween, RoundInput
from flowsched_models.catalogue import Catalogue
from flowsched_models.document import InputError, name_help
from flowsched_models.neutral import NEUTRAL
from flowsched_models.profiles import CatalogueForm
from flowsched_models.quantity import format_cores, format_milli
from flowsched_models.runtime import HostFactory

_MIB = 1 << 20


class PlayedCluster(live.RecordedState):
    """The cluster as the events tell it. A round's input is the one that the live round had."""

    def __init__(self, header: live.EventsHeader) -> None:
        """An empty cluster. Raises :class:`LineError` for profiles or a cost model that cannot be used."""
        super().__init__()
        self.header = header
        self._model = _model(header.cost_model)
        self._catalogue = _catalogue(header.catalogue)
        self._kept = KeptBetween(HostFactory(self._catalogue))
        self._occupied = self._none(0.0)
        self._booked = BookedTasks()
        self._changed: set[str] = set()
        """Machines that have changed since they were looked at."""

    def play(self, event: live.LiveEvent, t: float) -> None:
        """Take note of an event. Raises :class:`LineError` for one that contradicts those before it."""
        booked = self._booked
        machines, store = booked.machines, booked.machines.relation_store
        match event:
            case live.ProfilesChanged(catalogue):
                self._catalogue = _catalogue(catalogue)
                self._kept = KeptBetween(HostFactory(self._catalogue))
                self._occupied = self._none(self._occupied.now_s)
                self._changed |= self.machines.keys()
            case live.MachineAdded(name):
                if event.type not in self._catalogue.machine_types:
                    raise LineError(f"there is no machine type {event.type} among the profiles")
                booked.put_machine(name, event.allocatable, event.labels, bandwidth=event.bandwidth)
                machines.set_service(name, event.pressure_cap, event.headroom_slope)
                self._changed.add(name)
            case live.RelationAdded(_, relation):
                store.declare(relation)
            case live.TaskBound(number, bound):
                if bound.machine not in self.machines:
                    raise LineError(f"there is no machine {bound.machine} at this moment")
                booked.book(self.task(number).uid, **vars(bound))
                if number in self.bound:
                    self._changed.add(self.bound[number].booked.machine)
                self._changed.add(bound.machine)
            case live.MachinesSeen():
                self._look(t)
            case live.ProgressEstimated(name, progress):
                self._look(t)
                self._occupied.resume(name, progress)
            case live.Removed(of, key):
                if key not in self.statements.get(of, ()):
                    raise LineError(f"{of} {key} is not known at this moment")
                match self.remove(of, key):
                    case live.MachineAdded(name):
                        self._changed.discard(name)
                        if name in self._occupied:
                            self._occupied.remove(name)
                        machines.remove_machine(name)
                    case live.RelationAdded(name):
                        store.retire(name)
                    case live.TaskBound(number, bound):
                        booked.release(self.task(number).uid)
                        self._changed.add(bound.machine)
        if isinstance(event, live.Statement):
            self.put(event)

    def round_input(self, event: live.RoundBegun, t: float, everything: bool = False) -> RoundInput:
        """What a round decides on. ``everything``: what runs is there even if no measured task waits."""
        self._booked.machines.settle()
        classes = tuple(self._class(taken) for taken in event.takes)
        cluster = Snapshot(t, self._catalogue, ())
        if everything or any(c.task is not None for c in classes):
            self._look(t)
            seen = self._occupied.look()
            cluster = Snapshot(t, self._catalogue, *seen, plan=event.plan, reservations=event.reservations)
        titled = {s.name for s in cluster.services}
        waited: dict[str, int] = {}
        for taken, c in zip(event.takes, classes, strict=True):
            waited |= zip(c.uids, _spread(taken.waited, len(c.uids), "the tasks"), strict=True)
        same: dict[str, Any] = {name: getattr(event, name) for name in SAME}
        members = Counter(event.group_of.values())
        return RoundInput(
            number=event.round,
            now_s=t,
            booked=self._booked.copy(),
            classes=classes,
            group_members={group.name: members[group.name] for group in event.groups},
            catalogue=self._catalogue,
            cluster=cluster,
            settings=self.header.settings,
            cost_model=self.header.cost_model,
            model=self._model,
            kept=self._kept,
            titles={task.uid: task.name for task in self.tasks.values() if task.uid in waited or task.uid in titled},
            rounds_waited=waited,
            gpus=self._gpus(),
            learnt=self._learnt(),
            keepers={name: machine.keepers for name, machine in self.machines.items() if machine.keepers},
            **same,
        )

    def _gpus(self) -> RoundGpus:
        nodes = {name: machine.gpus for name, machine in self.machines.items() if machine.gpus is not None}
        return RoundGpus(nodes, self.demand[GPUS].demand if GPUS in self.demand else ())

    def _learnt(self) -> LearntRunTimes:
        rows = []
        for of, row in sorted(self.learnt.items()):
            run_class, _, machine_type = of.partition(" ")
            if not (run_class and machine_type and row.runs > 0):
                raise LineError(f"'{of}' is not a class on a machine type with completions")
            rows.append(ClassRuns(run_class, machine_type, row.runs, row.micro_logs, row.nano_squares))
        return LearntRunTimes(tuple(sorted(rows)))

    def task(self, number: int) -> live.TaskSubmitted:
        """A task by its number."""
        if number not in self.tasks:
            raise LineError(f"there is no task {number} at this moment")
        return self.tasks[number]

    def _none(self, now_s: float) -> OccupiedMachines:
        hosts = HostFactory(self._catalogue)
        return OccupiedMachines(self._catalogue, hosts, now_s, estimating=self._model is None)

    def _look(self, now_s: float) -> None:
        """Tell the state how the machines are that have changed."""
        self._occupied.advance(now_s)
        for name in sorted(self._changed & self.machines.keys()):
            machine = self.machines[name]
            node = machine_of(name, machine.type, machine.vcpus, machine.allocatable)
            there = [(self.tasks[n], self.bound[n].running) for n in self.on.get(name, ())]
            running = [
                replace(r, task=replace(r.task, name=task.uid, job=task.name)) for task, r in there if r is not None
            ]
            self._occupied.see(node, machine.services, running)
        self._changed.clear()

    def _class(self, taken: live.Taken) -> ClassInput:
        number = taken.kind
        tasks = [self.task(n) for n in live.numbers_of(taken.tasks, self.task_count)]
        kind = self.kinds.get(number)
        if kind is None:
            raise LineError(f"there is no kind {number}")
        if not tasks:
            raise LineError(f"no task of kind {number} takes part")
        since = tuple(task.since_s for task in tasks if task.since_s is not None)
        if len(since) < len(tasks):
            raise LineError(f"{next(task.name for task in tasks if task.since_s is None)} does not wait")
        name, uids = tasks[0].name, tuple(task.uid for task in tasks)
        said = {what: self._array(number, kind, what, dtype) for what, dtype in ARRAYS.items()}
        like: dict[str, Any] = vars(kind.like)
        if kind.like.task is not None:
            like = {**like, "task": replace(kind.like.task, name=uids[0], job=name, submit_s=since[0])}
        arrays: dict[str, Any] = {what: array for what, (array, _) in said.items()}
        return ClassInput(name, uids, since, reasons=said["verdict"][1], **arrays, **like)

    def _array(self, number: int, kind: live.KindAdded, what: str, dtype: Any) -> tuple[NDArray[Any] | None, list[str]]:
        """A value for each machine, by row; texts as indices of the texts beside them."""
        if what == "slowness" and what not in kind.values:
            return None, []
        found = self.values.get(kind.values.get(what, 0))
        if found is None:
            raise LineError(f"kind {number} has no values for {what}")
        values = _spread(found.runs, len(self.machines), f"values {found.values}")
        texts = ["", *dict.fromkeys(value for value in values if value)]
        array = np.zeros(self._booked.machines.rows, dtype)
        array[self._booked.machines.order()] = [texts.index(value) for value in values] if what == "verdict" else values
        return array, texts


def _spread(runs: Sequence[tuple[Any, int]], wanted: int, what: str) -> list[Any]:
    """Values, each as often as it says."""
    if (found := sum(count for _, count in runs)) != wanted:
        raise LineError(f"{what} are {wanted}, and the file has {found}")
    return [value for value, count in runs for _ in range(count)]


_Round = tuple[int, RoundInput, Mapping[int, str], live.RoundDecided]
"""Line of its begin, input, uids of its tasks by number, and what it decided."""


class _Playing:
    """One file from its first line to its last."""

    def __init__(self, path: Path) -> None:
        self.reader = EventReader(path)
        self.header = self.reader.header
        try:
            self.cluster = PlayedCluster(self.header)
            if self.header.solver not in SOLVERS:
                raise LineError(f"there is no solver '{self.header.solver}'; {name_help(self.header.solver, SOLVERS)}")
        except LineError as error:
            raise self.reader.problem(str(error)) from None
        self.rounds = self.placements = 0
        self._failed = self._open = 0

    def rounds_of(self, everything: bool) -> Iterator[_Round]:
        """Each round that was decided."""
        cluster = self.cluster
        begun: tuple[int, RoundInput, Mapping[int, str]] | None = None
        for t, event in self.reader:
            what = type(event).__name__
            try:
                cluster.play(event, t)
                if isinstance(event, live.RoundBegun):
                    self._open += begun is not None
                    given = cluster.round_input(event, t, everything)
                    numbers = [n for taken in event.takes for n in live.numbers_of(taken.tasks, cluster.task_count)]
                    begun = self.reader.line, given, {n: cluster.task(n).uid for n in numbers}
                elif isinstance(event, live.RoundDecided):
                    if begun is None or begun[1].number != event.round:
                        raise LineError(f"round {event.round} was decided and had not begun")
                    told = [n for left in event.left for n in live.numbers_of(left.tasks, cluster.task_count)]
                    foreign = {*told, *(p.task for p in event.placed)} - begun[2].keys()
                    if foreign:
                        raise LineError(f"round {event.round} has not begun with task {min(foreign)}")
                    self.rounds += 1
                    self.placements += len(event.placed)
                    yield *begun, event
                    begun = None
                elif isinstance(event, live.RoundFailed):
                    self._failed += 1
                    begun = None
            except LineError as error:
                raise self.reader.problem(f"{what}: {error}") from None
            except FAULTS as error:
                raise self.reader.problem(f"{what} contradicts what stands before it: {error}") from error
        self._open += begun is not None

    def outcome(self, **more: Any) -> PlayedEvents:
        """What came of it, with what a reader should know of the file."""
        notes = []
        if self.reader.cut:
            notes.append(f"{self.reader.path}: {self.reader.cut}; what stands before it was played")
        if self._failed:
            notes.append(f"{self._failed} rounds that failed as they were recorded are left out")
        if self._open:
            notes.append("a round that had begun was not decided before the file ends, or another one begins")
        if more.get("rounds_differing") and self.header.writer != writer():
            versions = f"the file was written by {self.header.writer}, this is {writer()}"
            notes.append(f"{versions}: decisions may differ for that alone")
        return PlayedEvents(self.rounds, self.placements, notes=tuple(notes), **more)


def play(path: Path, others: SchedulersOf | None = None) -> PlayedEvents:
    """Decide every round of a file anew, by the scheduler that recorded it, or by others that are compared with it.

    Raises :class:`InputError` for a file that cannot be read, with the line.
    """
    playing = _Playing(path)
    if others is not None:
        return playing.outcome(policies=_compared(playing, others(playing.header.settings)))
    solver = make_solver(playing.header.solver)
    engine: FlowScheduler = make_engine(playing.header.settings, solver)
    differing = []
    for line, given, uid_of, recorded in playing.rounds_of(everything=False):
        number_of = {uid: number for number, uid in uid_of.items()}
        now = _fates(decided_event(plan_any_round(given, solver, engine), number_of), uid_of)
        then = _fates(recorded, uid_of)
        for uid in dict.fromkeys((*then, *now)):
            if then.get(uid) != now.get(uid):
                texts = then.get(uid, "nothing"), now.get(uid, "nothing")
                differing.append(OtherDecision(given.number, line, given.titles.get(uid, uid), *texts))
                break
    return playing.outcome(rounds_differing=len(differing), first=differing[0] if differing else None)


def _fates(decided: live.RoundDecided, uid_of: Mapping[int, str]) -> dict[str, str]:
    """What a round has decided on each task, by uid."""
    found = {uid_of[p.task]: _place(p) for p in decided.placed}
    for left in decided.left:
        found |= {uid_of[n]: f"{left.fate}: {left.why}" for n in live.numbers_of(left.tasks, max(uid_of))}
    for p in decided.plan:
        after = f"planned on {p.machine} after {p.slot} completions at {format_milli(p.width_milli)} cores"
        found[p.task] = f"{found.get(p.task, '')} [{after}]"
    for r in decided.reservations:
        found[r.task] = f"{found.get(r.task, '')} [{r.machine} reserved from {r.start_s!r}]"
    return found


def _place(p: live.Placed) -> str:
    parts = [f"cost {p.cost!r}"]
    parts += [] if p.width_milli is None else [f"{format_milli(p.width_milli)} cores"]
    parts += [] if p.threads is None else [f"{p.threads} threads"]
    parts += [] if p.cores is None else [f"on {format_cores(p.cores)}"]
    return f"{p.machine} ({', '.join(parts)})"


def _compared(playing: _Playing, schedulers: Mapping[str, Scheduler]) -> tuple[OtherPolicy, ...]:
    counts: dict[str, Counter[str]] = {name: Counter() for name in schedulers}
    for _, given, uid_of, recorded in playing.rounds_of(everything=True):
        waiting = [c for c in given.classes if not c.service]
        classes = [c if c.task is not None else replace(c, task=_neutral_task(c)) for c in waiting]
        asked = {uid for c in classes for uid in c.uids}
        if not asked:
            continue
        snapshot = MeasuredPods(given).snapshot(classes)
        counted = snapshot
        if given.gpus.nodes:
            counted = MeasuredPods(replace(given, gpus=RoundGpus())).snapshot(classes)
        then = {uid: p.machine for p in recorded.placed if (uid := uid_of[p.task]) in asked}
        for name, scheduler in schedulers.items():
            known = counted if isinstance(scheduler, NetworkScheduler) else snapshot
            now = {p.task: p.machine for p in scheduler.decide(known).placements}
            both = then.keys() & now.keys()
            same = sum(then[uid] == now[uid] for uid in both)
            counts[name].update(
                rounds=1,
                rounds_differing=then != now,
                recorded=len(then),
                placed=len(now),
                same=same,
                elsewhere=len(both) - same,
                only_recorded=len(then) - len(both),
                only_policy=len(now) - len(both),
            )
    figures = [f.name for f in fields(OtherPolicy)][1:]
    return tuple(OtherPolicy(name, *(count[figure] for figure in figures)) for name, count in counts.items())


def _neutral_task(c: ClassInput) -> Task:
    """A task without a profile, as forecasts see it where it runs."""
    request = max(1, c.needs.get("cpu", 0))
    memory = -(-c.needs.get("memory", 0) // _MIB)
    return Task(c.uids[0], c.name, NEUTRAL, DAY_SCALE, request, (request,), memory, c.since_s[0], endless=True)


def _catalogue(plain: Mapping[str, Any]) -> Catalogue:
    try:
        return with_neutral(CatalogueForm.model_validate(plain).catalogue("the file"))
    except ValidationError as error:
        raise LineError(f"its catalogue is damaged: {live.reason(error)}") from None


def _model(cost_model: CostModelChoice) -> CostModel | None:
    name, known = cost_model.name, (FLOW, *choice.names())
    if name not in known:
        raise LineError(f"there is no cost model '{name}'; {name_help(name, known)}")
    if cost_model.is_flow and cost_model.settings:
        key = next(iter(cost_model.settings))
        raise LineError(f"the cost model {FLOW} has no setting '{key}'; its settings are the engine's")
    try:
        return make_model(cost_model)
    except InputError as error:
        first = error.problems[0]
        why = ": ".join(filter(None, (first.key, first.message)))
        raise LineError(f"its cost model {name} cannot be used: {why}") from None
