"""What a snapshot's machines and tasks are to a ledger: kinds and classes with the numbers that policies price.

The rules are those of bulk rounds: a task's behaviour is that of its profile at its width, run times on types differ by the
types' speeds, a latency service limits the pressure on its machine and prices what is left of its goal.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass
from math import inf

from flowsched.cluster.snapshot import MILLI, Machine, Service, Snapshot, Task
from flowsched.pricing.headroom import headroom, job_behaviour, service_pressure
from flowsched.scale.policy import NetworkPolicy
from flowsched.scale.task_class import MachineKind, MachineSpec, TaskClass
from flowsched_models.catalogue import Catalogue
from flowsched_models.runtime import HostFactory

PRESSURE, HEADROOM = "pressure", "headroom"
"""Features that machines have readings of their own for, where the policy knows them."""
LISTED = "flowsched/listed-"
"""Prefix of the label of machines that some task names one by one."""
_BELOW_ALL = -1e6
"""A limit below any sum: nothing with an effect may come."""
_LEAST_CORES = 0.1

MachineList = tuple[str, ...]


@dataclass(frozen=True)
class Frame:
    """What all classes and kinds of a round depend on; while it is the same, so are they."""

    catalogue: Catalogue
    types: tuple[str, ...]
    """Types of the machines that are there, sorted: slowness is relative to the fastest."""
    lists: tuple[MachineList, ...]
    """Machines that waiting tasks are bound to, list by list, sorted."""

    @classmethod
    def of(cls, snapshot: Snapshot) -> Frame:
        """That of a snapshot."""
        types = {machine.type for machine in snapshot.machines}
        lists = {tuple(sorted(task.machines)) for task in snapshot.pending if task.machines is not None}
        return cls(snapshot.catalogue, tuple(sorted(types)), tuple(sorted(lists)))


class Intake:
    """Makes classes and machines in one frame, and remembers them."""

    def __init__(
        self, frame: Frame, policy: NetworkPolicy, hosts: HostFactory, headroom_weight: float, slo_margin: float
    ) -> None:
        """``headroom_weight`` and ``slo_margin`` as in the engine's settings."""
        self._frame = frame
        self._known = {feature.name for feature in policy.features}
        self._hosts = hosts
        self._weight = headroom_weight
        self._margin = slo_margin
        self._listed: dict[str, list[tuple[str, str]]] = {}
        for machines in frame.lists:
            for name in machines:
                self._listed.setdefault(name, []).append((list_label(machines), "yes"))
        self._run: dict[tuple[str, int, tuple[int, ...]], float] = {}
        self._slowness: dict[str, tuple[tuple[str, float], ...]] = {}
        self._classes: dict[tuple[object, ...], TaskClass] = {}

    def machine(self, machine: Machine, services: Sequence[Service]) -> MachineSpec:
        """A machine without its tasks: services have their widths, memory and cores for good."""
        kind = self._frame.catalogue.machine_types[machine.type]
        taken = {core for service in services for core in service.cores}
        cpu = machine.cpu_milli - sum(s.width_milli for s in services) if len(taken) < machine.vcpus else 0
        allocatable = {
            **dict(machine.resources),
            "cpu": cpu,
            "memory": machine.memory_mib - sum(s.memory_mib for s in services),
        }
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
        labels = tuple(sorted(self._listed.get(machine.name, ())))
        size = max(_LEAST_CORES, round(max(0, cpu) / MILLI, 1))
        return MachineSpec(
            machine.name,
            MachineKind(machine.type, labels, kind.bandwidth, size),
            allocatable,
            readings,
            limits,
            dict(machine.labels),
        )

    def task_class(self, task: Task, width_milli: int, placed: bool = False) -> TaskClass:
        """The class of a task at a width. ``placed``: it has its machine, so that nobody asks where else it may go."""
        machines = None if placed else task.machines
        key = (
            task.profile, task.scale, task.memory_mib, task.resources, task.priority, task.endless, task.threads,
            machines, width_milli, task.group, task.holds, task.joins,
        )  # fmt: skip
        found = self._classes.get(key)
        if found is None:
            catalogue = self._frame.catalogue
            sensitivity, pressure = job_behaviour(catalogue.jobs[task.profile], width_milli / MILLI)
            needs = [(name, units) for name, units in (("memory", task.memory_mib), *task.resources) if units > 0]
            found = self._classes[key] = TaskClass(
                task.profile,
                width_milli,
                tuple(sorted(needs)),
                sensitivity,
                pressure,
                inf if task.endless else round_up(task.scale * self._run_s(task, width_milli)),
                task.priority,
                () if machines is None else ((list_label(tuple(sorted(machines))), "yes"),),
                self._slow(task.profile),
                group=task.group or "",
                holds=task.holds,
                joins=task.joins,
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


def list_label(machines: MachineList) -> str:
    """The label of machines that tasks name one by one; ``machines`` sorted."""
    return LISTED + hashlib.sha256("\n".join(machines).encode()).hexdigest()[:16]


def round_up(seconds: float) -> float:
    """A run time with two digits, not below the true one: tasks that differ by less are one class."""
    if not 0.0 < seconds < inf:
        return seconds
    step = 10.0 ** (math.floor(math.log10(seconds)) - 1)
    return math.ceil(seconds / step - 1e-9) * step


def class_key(task_class: TaskClass) -> tuple[object, ...]:
    """Sorts classes of one frame by what they are."""
    return (
        task_class.name,
        task_class.width_milli,
        task_class.needs,
        task_class.run_s,
        task_class.priority,
        task_class.selector,
        task_class.group,
        task_class.holds,
        task_class.joins,
    )
