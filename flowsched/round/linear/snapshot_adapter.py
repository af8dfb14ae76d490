"""What a state's machines and tasks are to cost models: kinds and classes with the numbers that policies price.

The rules are those of bulk rounds: a task's behaviour is that of its profile at its width, run times on types differ by the
types' speeds, a latency service limits the pressure on its machine and prices what is left of its goal.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import inf
from operator import attrgetter

import numpy as np

from flowsched.cluster.machine_arrays import HEADROOM, PRESSURE
from flowsched.cluster.snapshot import MILLI, Machine, Service, Task
from flowsched.cluster.state_rows import StateRows, room_beside
from flowsched.cluster.task_class import MachineKind, MachineSpec, TaskClass
from flowsched.pricing.linear.headroom import headroom, job_behaviour, service_pressure
from flowsched.pricing.linear.policy import CostModel, labels_of
from flowsched.relations.relation import RelationKind
from flowsched.round.linear.places import Places
from flowsched.support.arrays import BoolArray
from flowsched_models.catalogue import Catalogue
from flowsched_models.runtime import HostFactory

_BELOW_ALL = -1e6
"""A limit below any sum: nothing with an effect may come."""
_LEAST_CORES = 0.1

_Names = tuple[str, ...] | None
NamedPlaces = tuple[_Names, _Names, tuple[tuple[str, float], ...]]
"""The machines that a task names: those that it may run on, those that its spreads compare, and what it would pay for
some; None for all machines.
"""
_ANYWHERE: NamedPlaces = (None, None, ())


@dataclass(frozen=True)
class ClassContext:
    """What all classes and kinds of a round depend on; while it is the same, so are they."""

    catalogue: Catalogue
    types: tuple[str, ...]
    """Types of the machines that are there, sorted: slowness is relative to the fastest."""
    lists: frozenset[NamedPlaces]
    """Machines that waiting tasks name."""
    machines: tuple[str | None, ...]
    """All machines by row, None in rows without one, where some task names any."""
    spreads: frozenset[str]
    """Names of the relations that spread tasks."""
    labels: frozenset[tuple[str, str]]
    """Labels of machines, with their values, that waiting tasks have input at."""
    resources: tuple[str, ...]
    """Those of machines and tasks beside CPU and memory, sorted."""

    @classmethod
    def of(cls, state: StateRows, waiting: Iterable[Task]) -> ClassContext:
        """That of a state's rows. ``waiting``: at least the waiting tasks that :meth:`counts`."""
        waiting = tuple(waiting)
        types = {machine.type for machine, _ in state.there.values()}
        spreads = frozenset(r.name for r in state.relations.values() if r.kind is RelationKind.SPREAD)
        lists = frozenset(_named(task, spreads) for task in waiting) - {_ANYWHERE}
        names = tuple(state.machines.names) if lists else ()
        labels = frozenset((label, value) for task in waiting for label, value, _ in task.locality)
        return cls(state.catalogue, tuple(sorted(types)), lists, names, spreads, labels, state.resources)

    def differs(self, other: ClassContext) -> str:
        """What is different, for those of one state; empty if nothing is."""
        if self.types != other.types:
            return "machine_types"
        if (self.lists, self.machines) != (other.lists, other.machines):
            return "machine_lists"
        if self.labels != other.labels:
            return "locality"
        return "resources" if self.resources != other.resources else ""

    def counts(self, task: Task) -> bool:
        """Whether a task says anything, while it waits, that a context has."""
        return bool(task.locality) or _named(task, self.spreads) != _ANYWHERE

    @cached_property
    def places(self) -> tuple[Places, ...]:
        """What waiting tasks name as arrays by machine, in the order of the machines' names: each once, in an order that
        depends on the arrays alone.
        """
        return tuple(sorted({p.key: p for p in self._places.values()}.values(), key=places_order))

    def place_of(self, task: Task) -> int:
        """The number of a waiting task's places, from 1; 0 for a task that names no machine."""
        named = _named(task, self.spreads)
        return 0 if named == _ANYWHERE else self._number[self._places[named].key]

    @cached_property
    def _number(self) -> Mapping[tuple[bytes | None, ...], int]:
        return {places.key: 1 + i for i, places in enumerate(self.places)}

    @cached_property
    def _places(self) -> Mapping[NamedPlaces, Places]:
        row = {name: i for i, name in enumerate(self.machines) if name is not None}

        def mask(names: _Names) -> BoolArray | None:
            if names is None or row.keys() <= set(names):
                return None
            found = np.zeros(len(self.machines), dtype=np.bool_)
            found[[row[name] for name in names if name in row]] = True
            return found

        found = {}
        for named in self.lists:
            machines, compared, wishes = named
            cost = np.zeros(len(self.machines))
            for name, amount in wishes:
                if name in row:
                    cost[row[name]] = amount
            found[named] = Places(mask(machines), mask(compared), None, cost if cost.any() else None)
        return found


def places_order(places: Places) -> tuple[bytes, ...]:
    """Sorts masks and wishes by what they are."""
    return tuple(part or b"" for part in places.key)


def _named(task: Task, spreads: frozenset[str]) -> NamedPlaces:
    compared: _Names = None
    if not spreads.isdisjoint(task.holds):
        compared = task.machines if task.spread_over is None else task.spread_over
    machines = None if task.machines is None else tuple(sorted(task.machines))
    return machines, None if compared is None else tuple(sorted(compared)), task.wishes


class SnapshotAdapter:
    """Makes classes and machines in one frame, and remembers them."""

    def __init__(
        self, frame: ClassContext, policy: CostModel, hosts: HostFactory, headroom_weight: float, slo_margin: float
    ) -> None:
        """``headroom_weight`` and ``slo_margin`` as in the engine's settings."""
        self._frame = frame
        self._known = {feature.name for feature in policy.features}
        self._asked = frozenset(labels_of(policy))
        self._hosts = hosts
        self._weight = headroom_weight
        self._margin = slo_margin
        self._run: dict[tuple[str, int, tuple[int, ...]], float] = {}
        self._slowness: dict[str, tuple[tuple[str, float], ...]] = {}
        self._classes: dict[tuple[object, ...], TaskClass] = {}

    def machine(self, machine: Machine, services: Sequence[Service]) -> MachineSpec:
        """A machine without its tasks: services have their widths, memory and cores for good."""
        kind = self._frame.catalogue.machine_types[machine.type]
        allocatable = room_beside(machine, services)
        readings: dict[str, float] = {}
        limits: dict[str, float] = {}
        if services:
            own, cap, slope = 0.0, inf, 0.0
            for service in services:
                profile = self._frame.catalogue.services[service.profile]
                pressure = service_pressure(profile, service.width_milli / MILLI, service.qps)
                left = headroom(
                    profile,
                    profile.curve_or_estimate(service.threads, len(service.cores)),
                    kind,
                    qps=service.qps,
                    client=service.client,
                    slo_us=service.slo_us,
                    weight=self._weight,
                    margin=self._margin,
                )
                # The reading counts all pressure on the machine, the service's own included.
                own, cap, slope = own + pressure, min(cap, left.pressure_cap + pressure), slope + left.slope
            if PRESSURE in self._known:
                readings[PRESSURE] = own
                if cap < inf:
                    limits[PRESSURE] = max(cap, _BELOW_ALL)
            if HEADROOM in self._known:
                readings[HEADROOM] = slope
        labels = tuple(label for label in machine.labels if label in self._frame.labels or label[0] in self._asked)
        size = max(_LEAST_CORES, round(max(0, allocatable["cpu"]) / MILLI, 1))
        return MachineSpec(
            machine.name,
            MachineKind(machine.type, labels, kind.bandwidth, size),
            allocatable,
            readings,
            limits,
            dict(machine.labels),
        )

    def task_class(
        self, task: Task, width_milli: int, placed: bool = False, behaviour: tuple[float, float] | None = None
    ) -> TaskClass:
        """The class of a task at a width. ``placed``: it has its machine, so where else it may go is not worked out.
        ``behaviour``: sensitivity and pressure of a task that is not as its profile says.
        """
        places = 0 if placed else self._frame.place_of(task)
        key = (
            task.profile, task.scale, task.memory_mib, task.resources, task.priority, task.endless, task.threads,
            places, width_milli, task.group, task.holds, task.joins, task.run_s, task.interference_class,
            task.input_mb, task.locality, behaviour,
        )  # fmt: skip
        found = self._classes.get(key)
        if found is None:
            catalogue = self._frame.catalogue
            sensitivity, pressure = behaviour or job_behaviour(catalogue.jobs[task.profile], width_milli / MILLI)
            if task.run_s is not None:
                run_s = task.run_s
            else:
                run_s = inf if task.endless else task.scale * self._run_s(task, width_milli)
            needs = [(name, units) for name, units in (("memory", task.memory_mib), *task.resources) if units > 0]
            found = self._classes[key] = TaskClass(
                task.profile,
                width_milli,
                tuple(sorted(needs)),
                sensitivity,
                pressure,
                round_up(run_s),
                task.priority,
                slowness=self._slow(task.profile),
                interference_class=task.interference_class,
                group=task.group or "",
                locality=task.locality,
                input_mb=task.input_mb,
                holds=task.holds,
                joins=task.joins,
                places=places,
            )
        return found

    def _run_s(self, task: Task, width_milli: int) -> float:
        """Seconds that work of scale 1 takes on the cores of its width alone, on the fastest type."""
        key = (task.profile, width_milli, task.threads)
        found = self._run.get(key)
        if found is None:
            count = max(1, round(width_milli / MILLI))
            threads = task.threads_on(count, self._frame.catalogue.jobs[task.profile])
            cores = tuple(range(count))
            found = self._run[key] = min(
                (self._hosts.host(kind).alone_s(task.profile, threads, cores) for kind in self._frame.types),
                default=inf,
            )
        return found

    def _slow(self, profile: str) -> tuple[tuple[str, float], ...]:
        found = self._slowness.get(profile)
        if found is None:
            speeds = {kind: self._frame.catalogue.speed(profile, kind) for kind in self._frame.types}
            best = max(speeds.values(), default=1.0)
            slow = ((kind, best / speed - 1.0) for kind, speed in speeds.items())
            found = self._slowness[profile] = tuple(sorted((kind, value) for kind, value in slow if value > 0.0))
        return found


def round_up(seconds: float) -> float:
    """A run time with two digits, not below the true one: tasks that differ by less are one class."""
    if not 0.0 < seconds < inf:
        return seconds
    step = 10.0 ** (math.floor(math.log10(seconds)) - 1)
    return math.ceil(seconds / step - 1e-9) * step


class_key: attrgetter[tuple[object, ...]] = attrgetter(
    *("name", "width_milli", "needs", "run_s", "priority", "places", "group", "holds", "joins"),
    *("interference_class", "input_mb", "locality", "sensitivity", "pressure"),
)
"""Sorts classes of one frame by what they are."""
