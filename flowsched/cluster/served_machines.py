"""Machines with their services, as they are without any task: worked out once for as long as both stay the same."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass

from flowsched.cluster.occupied_machines import service_load
from flowsched.cluster.snapshot import Machine, Service, cores_beside
from flowsched_models.runtime import ServiceLoad

_SPARE = 1024
"""So many machines that are gone, or kinds, may be remembered, and twice as many as there were machines at most."""


@dataclass(frozen=True, eq=False, slots=True)
class ServedMachine:
    """A machine and its services."""

    machine: Machine
    services: tuple[Service, ...]
    loads: tuple[ServiceLoad, ...]
    """The services as the run-time model sees them."""
    batch_cores: tuple[int, ...]
    milli: int
    """CPU beside the services, in thousandths of a core."""
    memory_mib: int
    """Memory beside them."""
    kind: int
    """A number that machines share whose size, type, services and goals are equal."""


class ServedMachines:
    """The machines that were asked about lately, by name."""

    def __init__(self) -> None:
        """None yet."""
        self._known: dict[str, ServedMachine] = {}
        self._most = 0
        """Machines that were asked about at once."""
        self._kinds: dict[Hashable, int] = {}
        self.contents: list[tuple[tuple[object, ...], tuple[object, ...]]] = []
        """By kind what it is before labels, and after them, in the order in which machines are compared."""

    def of(self, machines: Sequence[Machine], services: Mapping[str, Sequence[Service]]) -> list[ServedMachine]:
        """These machines with their ``services``, by name of those that have any. Kinds of earlier answers may be void."""
        most = max(self._most, len(machines))
        # Loads that are measured are never twice the same.
        if max(len(self._known), len(self.contents)) > 2 * most + _SPARE:
            self.__init__()  # type: ignore[misc]
        self._most = most
        known, found = self._known, []
        for machine in machines:
            here = tuple(services.get(machine.name, ()))
            one = known.get(machine.name)
            if one is None or one.machine is not machine or one.services != here:
                one = known[machine.name] = self._made(machine, here)
            found.append(one)
        return found

    def _made(self, machine: Machine, services: tuple[Service, ...]) -> ServedMachine:
        loads = tuple([service_load(s) for s in services])
        size = machine.type, machine.cpu_milli, machine.memory_mib, machine.vcpus
        served = (
            tuple([(x.profile, x.cores, x.threads, x.weight, x.qps, x.client) for x in loads]),
            tuple([(s.slo_us, s.memory_mib) for s in services]),
        )
        kind = self._kinds.setdefault((size, served), len(self.contents))
        if kind == len(self.contents):
            self.contents.append((size, served))
        return ServedMachine(
            machine,
            services,
            loads,
            cores_beside(machine, services),
            machine.cpu_milli - sum(s.width_milli for s in services),
            machine.memory_mib - sum(s.memory_mib for s in services),
            kind,
        )
