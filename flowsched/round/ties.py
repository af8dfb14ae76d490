"""What decides between options of a class that cost it the same.

Prices are sums of the same terms in other orders, so the last bits of equal ones differ. Within a ten-millionth of the
dearest they are one price; then the earlier start counts, the narrower width, machines without GPUs, and how full a machine
is. A task with a known end goes where it leaves the fewest core-seconds idle: what is left beside it while it runs, and its
own cores for as long as it outlasts all that runs there, since a machine is whole again, for a wide task, when the last one
has ended. A task without an end goes to the emptiest machine. Then the CPU that is free counts, memory likewise, and the
lower machine number.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flowsched.cluster.settings import AUTO, PACK, Settings
from flowsched.cluster.snapshot import MILLI, Task
from flowsched.pricing.forecast_arrays import LONG_RUNNING
from flowsched.round.machine_states import MachineStates
from flowsched.round.options import ClassOptions
from flowsched.round.tie_kernel import rank_in_parts
from flowsched.support.arrays import FloatArray, IntArray

STEP = 1e-7
"""Prices that differ by less than this share of the dearest are equal."""
_CLOSE = 1e-9
"""Cores and MiB that differ by less are equal: what arrives was subtracted."""


def in_steps(price: FloatArray) -> FloatArray:
    """Prices in whole steps of the dearest one: equal ones are equal to the last bit. Infinity stays; steps of 0 too."""
    finite = price[np.isfinite(price)]
    step = STEP * float(np.abs(finite).max(initial=0.0))
    return np.rint(price / step) * step if step > 0.0 else price


def packs(settings: Settings, task: Task) -> bool:
    """Whether of equal places the fullest is a task's, not the emptiest."""
    return settings.scoring == PACK or (settings.scoring == AUTO and not task.endless)


def ranks_of_options(
    states: MachineStates,
    classes: Sequence[int],
    arc_class: IntArray,
    machines: IntArray,
    leading: Sequence[NDArray[Any]],
) -> IntArray:
    """[options] which option of its class each is, from 1, by the ``leading`` keys, then in the order of ties beside what
    starts now in this plan. ``arc_class`` [options]: position of each option's class in ``classes``, ascending; ``machines``
    [options].
    """
    drained_s = _drained_s(states, np.arange(len(states.free_cores)))
    prices = states.prices
    tasks = [prices.forecasts.view.classes[c].task for c in classes]
    pack = [packs(prices.settings, task) for task in tasks]
    sign = np.array([1.0 if each else -1.0 for each in pack])[arc_class]
    shares = np.array([each and not task.endless for each, task in zip(pack, tasks, strict=True)], np.bool_)[arc_class]
    run_s = np.array([prices.goals.left_s(c) for c in classes])[arc_class]
    width = np.array([task.widths_milli[0] / MILLI for task in tasks])[arc_class]
    idle = np.where(shares, _idle_of(states.free_cores[machines], width, run_s, drained_s[machines]), 0.0)
    cores, memory = (np.rint(sign * each[machines] / _CLOSE) for each in (states.free_cores, states.free_memory))
    keys = np.stack([*leading, states.has_gpus[machines], np.rint(idle / _CLOSE), cores, memory, machines], axis=1)
    rank: IntArray = np.empty(len(machines), np.int64)
    rank_in_parts(np.searchsorted(arc_class, np.arange(len(classes) + 1)), keys, rank)
    return rank


def in_order(states: MachineStates, task_class: int, machines: IntArray) -> IntArray:
    """Some machines in the order of ties, beside what starts now in this plan."""
    found: IntArray = machines[np.lexsort(_keys(states, task_class, machines, _drained_s(states, machines)))]
    return found


def cheapest(states: MachineStates, task_class: int, options: ClassOptions) -> int:
    """The machine of a class's cheapest option; of equal ones the first in the order of ties."""
    tied = _least(in_steps(options.price), np.arange(len(options.price)))
    for column in (options.start_after, options.variant):
        if len(tied) > 1:
            tied = tied[_least(column[tied], np.arange(len(tied)))]
    if len(tied) > 1:
        tied = in_order(states, task_class, tied)
    return int(tied[0])


def idle_core_s(states: MachineStates, task_class: int) -> FloatArray:
    """[machines] core-seconds that a class leaves idle: beside it while it runs, and its own cores after all others."""
    number = np.arange(len(states.free_cores))
    return _idle_core_s(states, task_class, number, _drained_s(states, number))


def _least(values: NDArray[Any], numbers: IntArray) -> IntArray:
    found: IntArray = numbers[values == values.min()]
    return found


def _keys(
    states: MachineStates, task_class: int, machines: IntArray, drained_s: FloatArray
) -> tuple[NDArray[Any], ...]:
    """What some machines go by where a class finds them equal, the last key first: [machines] each."""
    prices = states.prices
    task = prices.forecasts.view.classes[task_class].task
    pack = packs(prices.settings, task)
    sign = 1.0 if pack else -1.0
    first = np.zeros(len(machines))
    if pack and not task.endless:
        first = _idle_core_s(states, task_class, machines, drained_s)
    cores, memory = (np.rint(sign * each[machines] / _CLOSE) for each in (states.free_cores, states.free_memory))
    return machines, memory, cores, np.rint(first / _CLOSE), states.has_gpus[machines]


def _idle_core_s(states: MachineStates, task_class: int, machines: IntArray, drained_s: FloatArray) -> FloatArray:
    prices = states.prices
    run_s = prices.goals.left_s(task_class)
    width = prices.forecasts.view.classes[task_class].task.widths_milli[0] / MILLI
    return _idle_of(states.free_cores[machines], width, run_s, drained_s)


def _idle_of(
    free_cores: FloatArray, width: FloatArray | float, run_s: FloatArray | float, drained_s: FloatArray
) -> FloatArray:
    found: FloatArray = (free_cores - width) * run_s + width * np.maximum(0.0, run_s - drained_s)
    return found


def _drained_s(states: MachineStates, machines: IntArray) -> FloatArray:
    """[machines] when the last of all that runs or is planned there has ended, infinity where something has no end."""
    there = np.arange(states.ends.shape[1]) < states.count[machines, None]
    lasting = states.jobs[machines, : states.ends.shape[1], LONG_RUNNING] != 0.0
    stays = (there & lasting).any(axis=1)
    return np.where(stays, np.inf, np.where(there, states.ends[machines], 0.0).max(axis=1, initial=0.0))
