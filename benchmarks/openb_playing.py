"""A list of arrivals played with a rule: each is placed at once or dropped for good, and nothing ever leaves."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any

import numpy as np

from flowsched.gpu.device_arrays import DeviceArrays
from flowsched.gpu.fit_kernels import take
from flowsched.gpu.shapes import ShapeArrays, shape_arrays
from flowsched.support.arrays import IntArray
from flowsched_simulator.baselines.gpu.compiled import filled
from flowsched_simulator.baselines.gpu.play_kernels import placed
from flowsched_simulator.baselines.gpu.rule import GpuOutlook, GpuRule


@dataclass(frozen=True, eq=False)
class GpuPlacements:
    """Where N arrivals went."""

    machine: IntArray
    """[N] row of the machine where it was placed at first; -1 for what was dropped."""
    device: IntArray
    """[N] device of a share; -1 for whole GPUs, which took the first free ones, and without a GPU."""
    cpu_s: float
    """CPU time of all decisions and of what the rule began with, without compiling."""
    prices_s: float = 0.0
    """CPU time of working out prices, which can be done beside the decisions."""
    price_sets: int = 0
    """How often prices were worked out."""
    moves: IntArray = field(default_factory=lambda: np.zeros((0, 4), dtype=np.int64))
    """[moves, 4] for which arrival, the arrival that was moved aside, its machine and device from then on."""


def random_order(outlook: GpuOutlook) -> IntArray:
    """Machines in a random order, drawn from the seed: how the published experiments break ties."""
    return np.random.default_rng(outlook.seed).permutation(len(outlook.machines.cpu))


def play_arrivals(
    rule: GpuRule, outlook: GpuOutlook, arrivals: IntArray, order: IntArray | None = None
) -> GpuPlacements:
    """Play ``arrivals`` [N], positions in ``outlook.shapes``, on its machines, which stay as they are.

    Ties go to the first machine in ``order``, positions of machines; in a random one if there is none.
    """
    order = random_order(outlook) if order is None else order
    outlook = replace(outlook, machines=outlook.machines.permuted(order))
    _timed(rule, outlook, arrivals[:0])  # compiles, or reads what is kept
    machine, device, cpu_s = _timed(rule, outlook, arrivals)
    return GpuPlacements(np.where(machine >= 0, order[machine], -1), device, cpu_s)


def _timed(rule: GpuRule, outlook: GpuOutlook, arrivals: IntArray) -> tuple[IntArray, IntArray, float]:
    shapes = shape_arrays(outlook.shapes, outlook.models)
    machines: DeviceArrays = outlook.machines.copy()
    machine, device = np.full(len(arrivals), -1, dtype=np.int64), np.full(len(arrivals), -1, dtype=np.int64)
    began = time.process_time()
    _loop(rule)(arrivals, machines, shapes, rule.start(outlook), machine, device)
    return machine, device, time.process_time() - began


def choose(s: int, machines: DeviceArrays, shapes: ShapeArrays, state: Any) -> tuple[int, int]:
    """Machine and device for a task of shape s; (-1, -1) where it fits nowhere. The device counts for a share only."""
    raise NotImplementedError


def play(
    arrivals: IntArray,
    machines: DeviceArrays,
    shapes: ShapeArrays,
    state: Any,
    machine_of: IntArray,
    device_of: IntArray,
) -> None:
    """Place each arrival at once or drop it for good. ``arrivals`` [N]: shapes; the others [N] are filled, -1 for none."""
    for i in range(len(arrivals)):
        s = arrivals[i]
        m, device = choose(s, machines, shapes, state)
        if m >= 0:
            take(m, s, device, machines, shapes)
            placed(m, s, machines, shapes, state)
        machine_of[i] = m
        device_of[i] = device


@cache
def _loop(rule: GpuRule) -> Callable[..., None]:
    """``play`` with a rule compiled into it."""
    return filled(play, f"play_{rule.name}", choose=rule.choose, placed=rule.placed)
