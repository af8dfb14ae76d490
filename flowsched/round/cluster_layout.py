"""What a cluster's machines are without what runs there: the part of its arrays that outlives rounds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from zlib import crc32

import numpy as np

from flowsched.cluster.served_machines import ServedMachines
from flowsched.cluster.snapshot import Machine, Snapshot, by_machine
from flowsched.support.arrays import BoolArray, FloatArray, IntArray
from flowsched_models.catalogue import Catalogue
from flowsched_models.pace_table import PaceTable
from flowsched_models.profile import PhaseOrder
from flowsched_models.runtime import Host, HostFactory

_TINY = 1e-12


@dataclass(frozen=True)
class ProfileArrays:
    """What a price without forecasts needs of a profile on each shape of machine: [profiles, shapes] and [profiles]."""

    alone_s: FloatArray
    """Run time at scale 1 with all batch cores; infinity on a machine without any."""
    one_core_s: FloatArray
    serial: FloatArray
    """Part of the work that runs on one core before all else."""
    sensitivity: FloatArray
    pressure: FloatArray
    plain: BoolArray
    """Whether the run time is the same at every place."""

    def rest(self, job: IntArray, shape: IntArray, left: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Seconds at scale 1 that the part of the work that is left takes alone, and those of them on one core, first."""
        alone_s, one_core_s, serial = self.alone_s[job, shape], self.one_core_s[job, shape], self.serial[job]
        parallel_s = np.where(np.isfinite(alone_s), alone_s, 0.0) - serial * one_core_s
        serial_s = np.maximum(0.0, left - (1.0 - serial)) * one_core_s
        # Where all work is on one core, there is no other part.
        return serial_s + np.minimum(1.0, left / np.maximum(1.0 - serial, _TINY)) * parallel_s, serial_s

    def alone(self, job: int, left: float) -> tuple[FloatArray, FloatArray]:
        """[shapes] seconds at scale 1 that a part of the work takes alone, infinity where it cannot run, and the cores that
        it keeps busy.
        """
        shapes = np.arange(self.alone_s.shape[1])
        jobs, lefts = np.full(len(shapes), job), np.full(len(shapes), left)
        alone_s, _ = self.rest(jobs, shapes, lefts)
        demand = self.demand(jobs, shapes, lefts, alone_s)
        alone_s[np.isinf(self.alone_s[job])] = np.inf
        return alone_s, demand

    def demand(self, job: IntArray, shape: IntArray, left: FloatArray, seconds: FloatArray) -> FloatArray:
        """Cores that a part of the work keeps busy that takes so many seconds alone."""
        return left * self.one_core_s[job, shape] / np.maximum(seconds, 1e-9)


@dataclass(frozen=True)
class Place:
    """A shape of machine: its type and the services that run there."""

    host: Host
    cores: tuple[int, ...]
    """Batch cores."""
    slo_us: tuple[float, ...]
    """p95 goal of each service."""


class ClusterLayout:
    """Machines and services in the order of the machines' names, so that the order of a snapshot decides nothing."""

    def __init__(self, snapshot: Snapshot, hosts: HostFactory) -> None:
        """Of a snapshot's machines and services; what runs or waits does not matter."""
        self._of = snapshot.machines, snapshot.services, snapshot.catalogue
        order = sorted(range(len(snapshot.machines)), key=lambda i: snapshot.machines[i].name)
        self.machines: list[Machine] = [snapshot.machines[i] for i in order]
        self.row: IntArray = np.empty(len(order), np.int64)
        """[machines] by position in the snapshot, the position in the order of names."""
        self.row[order] = np.arange(len(order))
        machines = self.machines
        self.names = [m.name for m in machines]
        self.number = {name: i for i, name in enumerate(self.names)}
        self.hash: IntArray = np.array([crc32(name.encode()) for name in self.names], np.uint64)
        served = hosts.attached(ServedMachines).of(machines, by_machine(snapshot.services))
        shapes: dict[object, int] = {}
        self.places: list[Place] = []
        shape = []
        for one in served:
            goals = tuple([s.slo_us for s in one.services])
            key = one.machine.type, one.machine.vcpus, one.loads, goals
            at = shapes.get(key)
            if at is None:
                at = shapes[key] = len(self.places)
                self.places.append(Place(hosts.host(one.machine.type, one.loads), one.batch_cores, goals))
            shape.append(at)
        self.shape: IntArray = np.array(shape, np.int64)
        """[machines] position in ``places``."""
        self.batch_cores: FloatArray = np.array([float(len(p.cores)) for p in self.places])[self.shape]
        """[machines]"""
        self.serves: BoolArray = np.array([bool(p.slo_us) for p in self.places])[self.shape]
        """[machines] whether a latency service runs there."""
        types = snapshot.catalogue.machine_types
        self.bandwidth: FloatArray = np.array([types[p.host.machine_type].bandwidth for p in self.places])[self.shape]
        """[machines] how much pressure does there."""
        self.jobs = {name: i for i, name in enumerate(snapshot.catalogue.jobs)}
        self.profiles = _profiles(snapshot.catalogue, self.places, hosts.attached(PaceTable))
        self.milli: IntArray = np.array([one.milli for one in served], np.int64)
        self.memory_mib: IntArray = np.array([one.memory_mib for one in served], np.int64)
        """[machines] what they have beside services."""

    def is_of(self, snapshot: Snapshot) -> bool:
        """Whether a snapshot has the very machines, services and profiles that this was made from."""
        machines, services, catalogue = self._of
        return machines is snapshot.machines and services is snapshot.services and catalogue is snapshot.catalogue


class LayoutMemory:
    """The layout of the snapshot that was asked about last: one state's snapshots share machines and services."""

    def __init__(self) -> None:
        """None yet."""
        self._last: ClusterLayout | None = None

    def layout(self, snapshot: Snapshot, hosts: HostFactory) -> ClusterLayout:
        """The layout of a snapshot's machines and services."""
        if self._last is None or not self._last.is_of(snapshot):
            self._last = ClusterLayout(snapshot, hosts)
        return self._last


def _profiles(catalogue: Catalogue, places: Sequence[Place], table: PaceTable) -> ProfileArrays:
    names = list(catalogue.jobs)
    shape = (len(names), len(places))
    alone, one = np.full(shape, np.inf), np.zeros(shape)
    for p, place in enumerate(places):
        host, cores = place.host, place.cores
        for j, name in enumerate(names):
            if cores:
                alone[j, p] = table.alone_s(host, cores, name, ())
                one[j, p] = table.alone_s(host, cores[:1], name, ())
    jobs = [catalogue.jobs[name] for name in names]
    return ProfileArrays(
        alone,
        one,
        np.array([p.serial_fraction if p.phase_order is PhaseOrder.SERIAL_FIRST else 0.0 for p in jobs]),
        np.array([p.sensitivity for p in jobs]),
        np.array([p.pressure for p in jobs]),
        np.array([p.is_plain for p in jobs], np.bool_),
    )
