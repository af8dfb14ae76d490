"""What places and waiting cost the jobs of a round, and how long a place is predicted to take."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from flowsched.cluster.occupied_machines import service_load
from flowsched.cluster.snapshot import MILLI, Machine, Snapshot, Task, by_machine, cores_beside
from flowsched.disaggregation.free_room import FreeRoom
from flowsched.disaggregation.settings import (
    UNKNOWN_COST,
    DisaggregationSettings,
    place_cost,
    utility,
    waiting_cost,
)
from flowsched.gpu.devices import suits, use_of
from flowsched_models.gpu_profile import NO_GPU_PROFILE
from flowsched_models.runtime import Host, HostFactory

_ANY_KIND = -1
"""Stands for the kind of machine where a task is best."""


class GpuSite(NamedTuple):
    """What a round asks about a machine all the time."""

    kind: int
    """Machines of one kind run a task equally long alone."""
    cores: tuple[int, ...]
    """Virtual CPUs for batch tasks."""


class GpuSites:
    """The machines of a cluster by kind; machines and services seldom change, so they are kept from round to round."""

    def __init__(self, snapshot: Snapshot, hosts: HostFactory) -> None:
        """Of all machines."""
        self._key = snapshot.machines, snapshot.services
        services = by_machine(snapshot.services)
        kinds: dict[object, int] = {}
        self.site: dict[str, GpuSite] = {}
        self._examples: list[tuple[Machine, Host, tuple[int, ...]]] = []
        for m in snapshot.machines:
            loads = [service_load(s) for s in services[m.name]]
            cores = cores_beside(m, services[m.name])
            host = hosts.host(m.type, loads)
            kind = kinds.setdefault((id(host), cores, m.gpus), len(kinds))
            if kind == len(self._examples):
                self._examples.append((m, host, cores))
            self.site[m.name] = GpuSite(kind, cores)
        self._alone: dict[tuple[object, ...], float] = {}

    def belong_to(self, snapshot: Snapshot) -> bool:
        """Whether they are those of a snapshot."""
        return self._key[0] is snapshot.machines and self._key[1] is snapshot.services

    def threads(self, task: Task, machine: str) -> int:
        """Threads that a task starts on a machine: one for each core that it asks for."""
        profile = self._examples[self.site[machine].kind][1].catalogue.jobs[task.profile]
        return task.threads_on(_cores(task), profile)

    def alone_s(self, task: Task, kind: int) -> float:
        """Run time of a task alone on a machine of a kind, with its GPUs there; infinity where it cannot run at all."""
        key = (task.profile, task.gpus, task.threads, task.widths_milli[0], kind)
        found = self._alone.get(key)
        if found is None:
            machine, host, cores = self._examples[kind]
            found = float("inf")
            if cores and (task.gpus is None or suits(machine.gpus, task.gpus)):
                count = min(_cores(task), len(cores))
                profile = host.catalogue.jobs[task.profile]
                found = host.alone_s(task.profile, task.threads_on(count, profile), cores[:count])
                found *= use_of(host.catalogue, task.profile, machine.gpus, task.gpus).slowdown
            self._alone[key] = found
        return found * task.scale

    def shortest_s(self, task: Task) -> float:
        """Run time of a task alone on the machine where it is shortest."""
        return min((self.alone_s(task, kind) for kind in range(len(self._examples))), default=float("inf"))


class Prices:
    """Equations 11 to 13 for the tasks of one round."""

    def __init__(
        self, snapshot: Snapshot, sites: GpuSites, room: FreeRoom, settings: DisaggregationSettings, network_aware: bool
    ) -> None:
        """``network_aware``: add the load of machines' networks, as in section 5.6.5.1 of the thesis."""
        self._jobs = snapshot.catalogue.jobs
        self.sites = sites
        self._room = room
        self.settings = settings
        self.network_aware = network_aware
        self._usefulness: dict[tuple[object, ...], float] = {}

    def class_of(self, task: Task) -> tuple[object, ...]:
        """Tasks of one class cost the same on every machine."""
        goal = None if task.goal_s is None else task.goal_s / task.scale
        gpus = None if task.gpus is None else (task.gpus.count, task.gpus.share_milli, task.gpus.models)
        return (task.profile, gpus, task.threads, task.widths_milli[0], goal)

    def goal_s(self, task: Task) -> float:
        """How long a run may take: the task's own goal, or so many times its run time alone. Time that it waited does not
        count, as in the thesis, whose expected completion time is that of a job with some resources under some load.
        """
        return task.goal_s if task.goal_s is not None else self.settings.slack * self.sites.shortest_s(task)

    def place(self, task: Task, machine: str, remote: bool = False) -> float:
        """Equation 12 and, where rounds know of the network, the load of the machine times what the task suffers by it.

        The thesis has the latter alone. It is added here, since an idle network would otherwise make remote places as good
        as local ones.
        """
        return sum(self.place_terms(task, machine, remote).values())

    def place_terms(self, task: Task, machine: str, remote: bool = False) -> Mapping[str, float]:
        """What :meth:`place` consists of."""
        preference = self.settings.remote_price if remote else 1.0
        terms = {"preference": place_cost(self._useful(task, self.sites.site[machine].kind), preference)}
        if self.network_aware:
            most = self._room.most_loaded()
            load = self._room.load(machine) / most if most > 0.0 else 0.0
            terms["network"] = load * self._jobs[task.profile].gpus.network.sensitivity
        return terms

    def waiting_terms(self, task: Task) -> Mapping[str, float]:
        """What :meth:`waiting` consists of."""
        useful = self._useful(task, _ANY_KIND)
        best = place_cost(useful, 1.0)
        waits = waiting_cost(useful, task.rounds_waited, self.settings.wait_step)
        return {"preference": best, "waiting": waits - best}

    def waiting(self, task: Task) -> float:
        """Equation 13."""
        return waiting_cost(self._useful(task, _ANY_KIND), task.rounds_waited, self.settings.wait_step)

    def slowdown(self, task: Task, machine: str, remote: bool) -> float:
        """How many times longer than alone a task is predicted to run, as machines' networks are loaded now."""
        gpus = self._jobs[task.profile].gpus
        if remote or (gpus.network_when_local and task.gpus is not None):
            away = gpus.remote if remote else 1.0
            return away * (1.0 + gpus.network.sensitivity * self._room.load(machine))
        return 1.0

    def expected_s(self, task: Task, machine: str, remote: bool) -> float:
        """How long a task is predicted to run on a machine."""
        return self.sites.alone_s(task, self.sites.site[machine].kind) * self.slowdown(task, machine, remote)

    def best_cost(self, task: Task) -> float:
        """Equation 12 where its utility is highest, beside what uses its GPUs."""
        return place_cost(self._useful(task, _ANY_KIND), 1.0)

    def _useful(self, task: Task, kind: int) -> float:
        """Utility on machines of a kind."""
        key = (*self.class_of(task), kind)
        found = self._usefulness.get(key)
        if found is None:
            alone_s = self.sites.shortest_s(task) if kind == _ANY_KIND else self.sites.alone_s(task, kind)
            found = 1.0 - UNKNOWN_COST
            if self._jobs[task.profile].gpus is not NO_GPU_PROFILE and alone_s < float("inf"):
                found = utility(alone_s, self.goal_s(task), self.settings.importance)
            self._usefulness[key] = found
        return found


def _cores(task: Task) -> int:
    """Cores that a task asks for, at least one."""
    return max(1, -(-task.widths_milli[0] // MILLI))
