"""A machine that is held for due tasks: who may still join it, and when it will have room."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from flowsched.cluster.compaction import View
from flowsched.cluster.resource import Amounts, covers, without
from flowsched.gpu.devices import MachineGpus, TaskGpus, fullest, suits, taken
from flowsched.pricing.arrival import Colocation
from flowsched.pricing.flow_prices import FORBIDDEN, FlowPrices
from flowsched.round.bounded_waiting import gone_by


@dataclass(frozen=True)
class Hold:
    """A reservation as the model sees it. Times in seconds from now."""

    width_milli: int
    memory_mib: int
    start_s: float
    resources: Mapping[str, int] = field(default_factory=dict)
    gpus: tuple[TaskGpus, ...] = ()
    """What each of the tasks asks for of GPUs, of those that do."""
    above: frozenset[int] = frozenset()
    """Classes of higher levels, which it does not bind: to them the room is free."""

    def admits(self, view: View, prices: FlowPrices, group: int, colocation: Colocation) -> bool:
        """Whether all that it binds have ended, and the room is there, by the reserved start, beside what higher levels
        let join; nothing joins where no end is known.
        """
        bound = [n.task_class not in self.above for n in colocation]
        if not any(bound):
            return True
        later = any(n.start_after > 0 for n, mine in zip(colocation, bound, strict=True) if mine)
        if not 0.0 < self.start_s < FORBIDDEN or later:
            return False
        found = prices.forecast(group, colocation)
        if found is None:
            return False
        if not gone_by(max(end for end, mine in zip(found.arrivals_s, bound, strict=True) if mine), self.start_s):
            return False
        return gone_by(drained_s(view, prices, group, colocation, self), self.start_s)


def _hold_all(gpus: MachineGpus | None, left: Sequence[int], asked: Iterable[TaskGpus]) -> bool:
    """Whether devices with so much left hold all of some tasks, whole ones first and large shares before small ones."""
    rest = tuple(left)
    for wanted in sorted(asked, key=lambda one: (-one.count, -one.share_milli)):
        devices = fullest(rest, wanted)
        if not devices or not suits(gpus, wanted):
            return False
        rest = taken(rest, wanted, devices)
    return True


def drained_s(view: View, prices: FlowPrices, group: int, colocation: Colocation, wanted: Hold) -> float:
    """When a machine of the group will have what is requested, in seconds from now, if this colocation joins; infinity for
    never. Tasks without an end leave nothing behind.
    """
    here = view.groups[group]
    found = prices.forecast(group, colocation)
    if found is None:
        return FORBIDDEN
    cpu = here.free_milli - sum(n.width_milli for n in colocation)
    memory = here.free_memory_mib
    free = dict(here.free_resources)
    devices = list(prices.gpus.left_on(group)) if wanted.gpus and prices.gpus is not None else []
    releases: list[tuple[float, int, int, Amounts, int, tuple[int, ...]]] = []
    for running, end in zip(here.running, found.residents_s, strict=True):
        if not running.task.endless:
            task = running.task
            share = 0 if task.gpus is None else task.gpus.share_milli
            releases.append((end, running.width_milli, task.memory_mib, task.resources, share, running.devices))
    given = prices.gpus.devices(here.machine.name, group, colocation) if devices and prices.gpus is not None else ()
    for i, (arrival, end) in enumerate(zip(colocation, found.arrivals_s, strict=True)):
        task = view.classes[arrival.task_class].task
        share = 0 if task.gpus is None else task.gpus.share_milli
        mine = given[i] if given else ()
        for device in mine:
            devices[device] -= share
        memory -= task.memory_mib
        free = without(free, task.resources)
        if not task.endless:
            releases.append((end, arrival.width_milli, task.memory_mib, task.resources, share, mine))

    def suffices() -> bool:
        enough = cpu >= wanted.width_milli and memory >= wanted.memory_mib
        if not enough or (wanted.resources and not covers(free, wanted.resources.items())):
            return False
        return not wanted.gpus or _hold_all(here.machine.gpus, devices, wanted.gpus)

    at = 0.0
    for end, freed_cpu, freed_memory, freed, share, on in sorted(releases):
        if suffices():
            return at
        at, cpu, memory = end, cpu + freed_cpu, memory + freed_memory
        for name, units in freed:
            free[name] = free.get(name, 0) + units
        for device in on if devices else ():
            devices[device] += share
    return at if suffices() else FORBIDDEN
