"""What GPUs make a place cost: the value that a machine loses for the demand that is expected, and what fits on devices."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from flowsched.cluster.snapshot import Machine, Snapshot, Task
from flowsched.gpu.demand import demand_of
from flowsched.gpu.demand_prices import PriceProgram
from flowsched.gpu.device_arrays import NO_DEVICE, NO_MODEL, DeviceArrays, device_arrays
from flowsched.gpu.device_value import for_shapes, value_state, value_tables
from flowsched.gpu.devices import WHOLE_MILLI, MachineGpus
from flowsched.gpu.shapes import GpuShape, shape_arrays
from flowsched.gpu.tie_order import tie_ranks
from flowsched.gpu.value_kernels import ValueTables, place_together, price_everywhere
from flowsched.pricing.arrival import Arrival, Colocation
from flowsched.pricing.device_prices import DevicePrices
from flowsched.support.arrays import FloatArray, IntArray

if TYPE_CHECKING:
    from flowsched.cluster.compaction import View

SEED = 20231
"""Draws the futures over which prices are averaged: the same demand has the same prices."""
TIE = 1e-3
"""Devices: below a step of prices."""
_MOST_SHAPES = 500
"""Of the demand's shapes the most frequent are priced; each is a row of the price program."""


def expected_demand(snapshot: Snapshot) -> Sequence[tuple[GpuShape, int]]:
    """Shapes with the arrivals of each: what the snapshot says of the past, else what runs and waits."""
    return snapshot.gpu_demand or counted_shapes((*(r.task for r in snapshot.running), *snapshot.pending))


def counted_shapes(tasks: Iterable[Task]) -> Sequence[tuple[GpuShape, int]]:
    """The shapes of tasks, with how many have each."""
    counts: dict[GpuShape, int] = {}
    for task in tasks:
        shape = task.gpu_shape
        counts[shape] = counts.get(shape, 0) + 1
    return sorted(counts.items())


@dataclass(frozen=True, eq=False)
class GpuWorth:
    """What GPUs are worth to a demand."""

    tables: ValueTables
    models: tuple[str, ...]
    """Names of GPU models by their indices."""
    shapes: tuple[GpuShape, ...]
    """Of the demand."""
    prices: FloatArray
    """[shapes] mean price of each, in devices."""


class GpuMemory:
    """What GPUs were worth last; it outlives a round."""

    def __init__(self) -> None:
        """Nothing yet."""
        self._key: Hashable = None
        self._idle: tuple[Sequence[Machine], tuple[tuple[MachineGpus, int, int], ...]] = (), ()
        self.last: GpuWorth | None = None
        """What they were worth when it was asked last."""

    def worth(self, snapshot: Snapshot) -> GpuWorth:
        """What the GPUs of a snapshot are worth to its demand."""
        demand = expected_demand(snapshot)
        if snapshot.machines is not self._idle[0]:
            found = ((m.gpus, m.cpu_milli, m.memory_mib) for m in snapshot.machines if m.gpus is not None)
            self._idle = snapshot.machines, tuple(sorted(found, key=repr))
        key = (tuple(demand), self._idle[1])
        if key != self._key or self.last is None:
            self._key, self.last = key, worth_of(demand, self._idle[1])
        return self.last


def worth_of(demand: Sequence[tuple[GpuShape, int]], idle: Sequence[tuple[MachineGpus, int, int]]) -> GpuWorth:
    """What GPUs are worth to a demand where machines have so much when they are idle: GPUs, CPU in milli, memory in MiB."""
    # Of machines without GPUs too, the kernels look up the values of a model.
    models = tuple(sorted({gpus.model for gpus, _, _ in idle})) or ("none",)
    machines = device_arrays(
        [cpu for _, cpu, _ in idle],
        [memory for _, _, memory in idle],
        [gpus.count for gpus, _, _ in idle],
        [models.index(gpus.model) for gpus, _, _ in idle],
    )
    frequent = sorted(demand, key=lambda pair: (-pair[1], pair[0]))[:_MOST_SHAPES]
    shapes = tuple(shape for shape, _ in frequent)
    most = max((gpus.count for gpus, _, _ in idle), default=0)
    if idle and any(shape.count for shape in shapes):
        known = demand_of(dict(frequent))
        shapes = known.shapes
        program = PriceProgram(machines, models, known.shapes)
        prices = program.expected_prices(known, sum(count for _, count in frequent), np.random.default_rng(SEED))
    else:
        prices = np.zeros((1, len(shapes)))
    tables = value_tables(prices, shape_arrays(shapes, models), most)
    return GpuWorth(tables, models, shapes, prices.mean(axis=0))


def in_whole_steps(losses: FloatArray, worth: GpuWorth) -> FloatArray:
    """Losses in devices, rounded: differences within a step say nothing."""
    step = worth.tables.step
    rounded: FloatArray = step * np.floor(losses / step + 0.5)
    return rounded


def ties(losses: FloatArray, devices: IntArray, kinds: Sequence[Hashable], ranks: FloatArray) -> FloatArray:
    """[shapes, machines] what tells machines apart that lose the same to a shape, in devices: at most ``TIE``.

    ``devices`` [machines, devices] what is left; ``ranks`` [machines] their place in one order, 0 to 1. Of those that lose
    least, the first says which kind of machine it is, and of that kind the fullest comes first.
    """
    whole = (devices == WHOLE_MILLI).sum(axis=1) / max(1, devices.shape[1])
    numbers = {kind: n for n, kind in enumerate(dict.fromkeys(kinds))}
    of = np.array([numbers[kind] for kind in kinds], np.int64)
    found: FloatArray = np.tile(0.5 + 0.5 * ranks, (len(losses), 1))
    for mine, lost in zip(found, losses, strict=True):
        least = lost == lost.min(initial=np.inf)
        if np.isfinite(lost[least]).any():
            kind = of[np.flatnonzero(least)[ranks[least].argmin()]]
            same = least & (of == kind)
            mine[same] = 0.49 * whole[same] + 0.01 * ranks[same]
    return TIE * found


class MachineWorth:
    """What tasks cost machines as they are now, in devices."""

    def __init__(self, worth: GpuWorth, machines: DeviceArrays) -> None:
        """``machines`` as they are; nothing is priced yet."""
        self._worth = worth
        self._machines = machines
        self._state = value_state(machines, worth.tables)

    def losses(self, shapes: Sequence[GpuShape]) -> FloatArray:
        """[shapes, machines] what each machine loses to a task of a shape; infinity where it does not fit."""
        arrays = shape_arrays(shapes, self._worth.models)
        found = np.full((len(shapes), len(self._machines.cpu)), np.inf)
        if found.size:
            price_everywhere(self._machines, arrays, for_shapes(self._worth.tables, arrays), self._state, found)
        positive: FloatArray = np.maximum(found, 0.0)
        return positive


def as_devices(
    free_milli: Sequence[int] | IntArray,
    free_memory_mib: Sequence[int] | IntArray,
    gpus: Sequence[MachineGpus | None],
    left: Sequence[Sequence[int]],
    models: Sequence[str],
) -> DeviceArrays:
    """Machines as the kernels take them; ``left``: of each device, empty where there is none."""
    devices = np.full((len(left), max((len(one) for one in left), default=0)), NO_DEVICE, dtype=np.int64)
    for row, one in zip(devices, left, strict=True):
        row[: len(one)] = one
    numbers = {model: i for i, model in enumerate(models)}
    return DeviceArrays(
        np.array(free_milli, dtype=np.int64),
        np.array(free_memory_mib, dtype=np.int64),
        np.array([NO_MODEL if one is None else numbers[one.model] for one in gpus], dtype=np.int64),
        devices,
    )


class GpuPrices(DevicePrices):
    """Prices by what devices are worth to the demand."""

    term = "gpu_value"

    def __init__(self, view: View, weight: float, worth: GpuWorth) -> None:
        """Price every class on every group as it runs now."""
        super().__init__(view)
        self._weight = weight
        self.worth: GpuWorth = worth
        models = worth.models
        self._arrays = shape_arrays(self.shapes, models)
        self._asked: IntArray = self._arrays.count
        self._tables = for_shapes(worth.tables, self._arrays)
        groups = view.groups
        self._state = as_devices(
            [g.free_milli for g in groups],
            [g.free_memory_mib for g in groups],
            [g.machine.gpus for g in groups],
            [g.devices_left for g in groups],
            models,
        )
        found = MachineWorth(worth, self._state).losses(self.shapes)
        self.fits_now = np.isfinite(found)
        ranks = tie_ranks(tuple([m.name for m in view.snapshot.machines]))
        first = np.array([min(ranks[view.machines[m].name] for m in g.members) for g in groups])
        kinds = [(g.machine.gpus, g.machine.cpu_milli, g.machine.memory_mib) for g in groups]
        found = in_whole_steps(found, worth)
        self._tie: FloatArray = ties(found, self._state.devices, kinds, first)
        found = found + self._tie
        worst = np.where(self.fits_now, found, 0.0).max(axis=1, initial=0.0)
        self.price = weight * np.where(self.fits_now, found, worst[:, None])
        self.worst = weight * worst
        # Waiting is above the dearest place, so that no task waits for a better device: by a little, where nothing else
        # makes it so, as for tasks without an end.
        self.waiting = self.worst + weight * TIE * ((worst > 0.0) | (self._asked > 0))

    def left_after(self, group: int, colocation: Colocation) -> tuple[int, ...]:
        """What is left of each GPU of the group's machines once those have come that start now; sorted, as in the group."""
        state = self._scratch(group)
        now = np.array([colocation[i].task_class for i in self._order(colocation)], dtype=np.int64)
        chosen = np.full(len(now), -1, dtype=np.int64)
        place_together(0, now, state, self._arrays, self._tables, value_state(state, self._tables), chosen)
        return tuple(int(left) for left in state.devices[0] if left != NO_DEVICE)

    def devices(self, machine: str, group: int, colocation: Colocation) -> list[tuple[int, ...]]:
        """The devices of each arrival that starts now on a machine, in the order of the co-location; empty for others."""
        found: list[tuple[int, ...]] = [()] * len(colocation)
        gpus = self._view.groups[group].machine.gpus
        linked = None if gpus is None else self._view.snapshot.catalogue.gpu_topologies.get(gpus.topology)
        left = np.array(self._left[machine], dtype=np.int64)
        state = self._scratch(group)
        state.devices[0, : len(left)] = left
        order = self._order(colocation)
        chosen = np.full(len(order), -1, dtype=np.int64)
        values = value_state(state, self._tables)
        for n, i in enumerate(order):
            c = colocation[i].task_class
            wanted = self._wanted[c]
            before = state.devices[0].copy()
            place_together(0, np.array([c]), state, self._arrays, self._tables, values, chosen[n : n + 1])
            if wanted is not None and wanted.is_share:
                found[i] = (int(chosen[n]),)
            elif wanted is not None:
                free = np.flatnonzero(before == WHOLE_MILLI).tolist()
                found[i] = tuple(free[: wanted.count]) if linked is None else linked.closest(free, wanted.count)
                state.devices[0] = before
                state.devices[0, list(found[i])] = 0
        return found

    def _scratch(self, group: int) -> DeviceArrays:
        return self._state.permuted(np.array([group]))

    def _loss(self, group: int, now: Sequence[Arrival]) -> float | None:
        state = self._scratch(group)
        chosen = np.full(len(now), -1, dtype=np.int64)
        classes = np.array([a.task_class for a in now], dtype=np.int64)
        loss = place_together(0, classes, state, self._arrays, self._tables, value_state(state, self._tables), chosen)
        if not np.isfinite(loss):
            return None
        tie = sum(float(self._tie[a.task_class, group]) for a in now)
        return self._weight * (float(in_whole_steps(np.array(loss), self.worth)) + tie)


def concerns_devices(view: View) -> bool:
    """Whether machines or tasks of a view have anything to do with GPUs."""
    return any(g.machine.gpus is not None for g in view.groups) or any(c.task.gpus is not None for c in view.classes)
