"""Prices of devices by how they are linked: an arc for each machine, at the cost of the best set that it has free.

Sets that are dearer have no arc: a pass lets one task arrive at a machine, and the flow would never take them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from flowsched.cluster.settings import TOPOLOGY_WORTH, Settings
from flowsched.cluster.snapshot import Snapshot
from flowsched.gpu.devices import DevicesNow, MachineGpus, TaskGpus, taken
from flowsched.gpu.set_demand import SetDemand, set_demand
from flowsched.gpu.topology_cost import SetTerms, TopologyCost
from flowsched.pricing.arrival import Arrival, Colocation
from flowsched.pricing.device_prices import DevicePrices
from flowsched.support.arrays import FloatArray, IntArray
from flowsched_models.catalogue import Catalogue

if TYPE_CHECKING:
    from flowsched.cluster.compaction import View

DEAREST = 1.0
"""No set of devices costs so much: three terms of at most a third each."""
_MOST_KEPT = 200_000


class SetChoice(NamedTuple):
    """The best set of devices for a job on a machine as it is."""

    devices: tuple[int, ...]
    terms: SetTerms


class SetMemory:
    """Best sets by state of a machine and job; it outlives a round."""

    def __init__(self) -> None:
        """Nothing yet."""
        self._catalogue: Catalogue | None = None
        self._demand: SetDemand | None = None
        self._costs: dict[MachineGpus, TopologyCost] = {}
        self._best: dict[tuple[DevicesNow, str, TaskGpus], SetChoice | None] = {}

    def begin(self, catalogue: Catalogue, demand: SetDemand | None) -> None:
        """What was known holds for one catalogue and one demand."""
        if catalogue is not self._catalogue or demand != self._demand or len(self._best) > _MOST_KEPT:
            self._catalogue, self._demand = catalogue, demand
            self._costs.clear()
            self._best.clear()

    def best(self, now: DevicesNow, profile: str, wanted: TaskGpus) -> SetChoice | None:
        """The cheapest set for a job on a machine; of equals the first by the numbers of devices. None where it does not
        fit.
        """
        key = (now, profile, wanted)
        if key not in self._best:
            self._best[key] = self._choose(now, profile, wanted)
        return self._best[key]

    def cost(self, gpus: MachineGpus) -> TopologyCost:
        """The costs of sets on machines with such GPUs."""
        assert self._catalogue is not None, "a round has begun"
        found = self._costs.get(gpus)
        if found is None:
            found = self._costs[gpus] = TopologyCost(self._catalogue, gpus, self._demand)
        return found

    def _choose(self, now: DevicesNow, profile: str, wanted: TaskGpus) -> SetChoice | None:
        if wanted.models and now.gpus.model not in wanted.models:
            return None
        cost = self.cost(now.gpus)
        sets = cost.sets(wanted, now.left)
        choices = (SetChoice(devices, cost.terms(profile, devices, now.jobs, now.left)) for devices in sets)
        return min(choices, key=lambda choice: (round(choice.terms.cost, 12), choice.devices), default=None)


class MachineSets:
    """The best sets of many machines."""

    def __init__(self, memory: SetMemory, states: Sequence[DevicesNow | None]) -> None:
        """``states`` of the machines; equal ones are looked at once."""
        self._memory = memory
        numbers = {state: n for n, state in enumerate(dict.fromkeys(states))}
        self._states = tuple(numbers)
        self._of: IntArray = np.array([numbers[state] for state in states], np.int64)

    def costs(self, profile: str, wanted: TaskGpus) -> FloatArray:
        """[machines] of the best set for a job, infinity where it does not fit."""
        best = [None if state is None else self._memory.best(state, profile, wanted) for state in self._states]
        found: FloatArray = np.array([np.inf if choice is None else choice.terms.cost for choice in best])[self._of]
        return found


class TopologyPrices(DevicePrices):
    """Prices by links, interference and what is left of the sockets."""

    term = "gpu_topology"

    def __init__(self, view: View, settings: Settings, memory: SetMemory) -> None:
        """Price every class on every group as it runs now."""
        super().__init__(view)
        snapshot = view.snapshot
        memory.begin(snapshot.catalogue, demand_for(snapshot, settings))
        self._memory = memory
        self._profiles = [c.task.profile for c in view.classes]
        states = snapshot.devices_now()
        self._now = [states.get(group.machine.name) for group in view.groups]
        shape = len(view.classes), len(view.groups)
        found = np.zeros(shape)
        sets = MachineSets(memory, self._now)
        # Classes differ in when they came too, which devices do not.
        costs: dict[tuple[str, TaskGpus], FloatArray] = {}
        for c, wanted in enumerate(self._wanted):
            if wanted is not None:
                key = self._profiles[c], wanted
                if key not in costs:
                    costs[key] = sets.costs(*key)
                found[c] = costs[key]
        self.fits_now = np.isfinite(found)
        self.worst = np.array([DEAREST if self.asks(c) else 0.0 for c in range(shape[0])])
        self.price = np.where(self.fits_now, found, self.worst[:, None])
        self.waiting = self.worst.copy()
        if settings.gpu_postpones:
            least = np.array([c.task.min_utility or 0.0 for c in view.classes])
            self.waiting = self.worst * (1.0 - least)

    def choices(self, group: int, colocation: Colocation) -> dict[int, SetChoice]:
        """By their place in the co-location, the sets of the arrivals that start now with GPUs, as far as they fit."""
        now, found = self._now[group], {}
        for i in self._order(colocation):
            c = colocation[i].task_class
            wanted = self._wanted[c]
            choice = None if now is None or wanted is None else self._memory.best(now, self._profiles[c], wanted)
            if choice is not None and now is not None and wanted is not None:
                found[i] = choice
                now = now.with_task(self._profiles[c], wanted, choice.devices)
        return found

    def link_class(self, group: int, devices: Sequence[int]) -> str | None:
        """The slowest class of link that some devices of a group's machines need to reach one another."""
        now = self._now[group]
        return None if now is None else self._memory.cost(now.gpus).topology.slowest_class(devices)

    def devices(self, machine: str, group: int, colocation: Colocation) -> list[tuple[int, ...]]:  # noqa: ARG002
        """The devices of each arrival that starts now; the devices of a group's machines are in the same state by number."""
        found: list[tuple[int, ...]] = [()] * len(colocation)
        for i, choice in self.choices(group, colocation).items():
            found[i] = choice.devices
        return found

    def left_after(self, group: int, colocation: Colocation) -> tuple[int, ...]:
        """What is left of each GPU of the group's machines once those have come that start now, by number."""
        left = self.left_on(group)
        for i, choice in self.choices(group, colocation).items():
            wanted = self._wanted[colocation[i].task_class]
            left = left if wanted is None else taken(left, wanted, choice.devices)
        return left

    def _loss(self, group: int, now: Sequence[Arrival]) -> float | None:
        choices = self.choices(group, tuple(now))
        if any(self.asks(a.task_class) and i not in choices for i, a in enumerate(now)):
            return None
        return sum(choice.terms.cost for choice in choices.values())


def demand_for(snapshot: Snapshot, settings: Settings) -> SetDemand | None:
    """What sets are left for, where their worth is a part of prices."""
    if settings.gpu_sets != TOPOLOGY_WORTH:
        return None
    tasks = (*(r.task for r in snapshot.running), *snapshot.pending)
    return set_demand(snapshot.catalogue, ((t.profile, t.gpus) for t in tasks))
