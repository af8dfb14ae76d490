"""What decides between options of a class that cost it the same.

Prices are sums of the same terms in other orders, so the last bits of equal ones differ. Within a ten-millionth of the
dearest they are one price; then the earlier start counts, the narrower width, machines without GPUs, and how full a machine
is: a task with a known end goes where the least CPU is left, so that machines stay whole for wide tasks, and one without an
end to the emptiest; then memory likewise, and the lower machine number.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from flowsched.cluster.settings import AUTO, PACK, Settings
from flowsched.cluster.snapshot import Task
from flowsched.round.machine_states import MachineStates
from flowsched.round.options import ClassOptions
from flowsched.support.arrays import FloatArray, IntArray

STEP = 1e-7
"""Prices that differ by less than this share of the dearest are equal."""
_CLOSE = 1e-9
"""Cores and MiB that differ by less are equal: what arrives was subtracted."""


def in_steps(price: FloatArray, dearest: float | None = None) -> FloatArray:
    """Prices in whole steps of the dearest one: equal ones are equal to the last bit. Infinity stays; steps of 0 too.

    ``dearest``: the price that the step follows, of these and others.
    """
    if dearest is None:
        finite = price[np.isfinite(price)]
        dearest = float(np.abs(finite).max(initial=0.0))
    step = STEP * dearest
    return np.rint(price / step) * step if step > 0.0 else price


def packs(settings: Settings, task: Task) -> bool:
    """Whether of equal places the fullest is a task's, not the emptiest."""
    return settings.scoring == PACK or (settings.scoring == AUTO and not task.endless)


def places_in_order(states: MachineStates, settings: Settings, tasks: Sequence[Task]) -> IntArray:
    """[tasks, machines] the place of each machine in the order of ties, from 0, with what starts there now in this plan."""
    cores, memory = np.rint(states.free_cores / _CLOSE), np.rint(states.free_memory / _CLOSE)
    number = np.arange(len(cores))
    orders: dict[bool, IntArray] = {}
    for pack in {packs(settings, task) for task in tasks}:
        sign = 1.0 if pack else -1.0
        order = np.lexsort((number, sign * memory, sign * cores, states.has_gpus))
        place = np.empty(len(order), np.int64)
        place[order] = number
        orders[pack] = place
    return np.array([orders[packs(settings, task)] for task in tasks], np.int64).reshape(len(tasks), len(number))


def cheapest(options: ClassOptions, place: IntArray) -> int:
    """The machine of the cheapest option; ``place`` [machines] as :func:`places_in_order` has it."""
    return int(np.lexsort((place, options.variant, options.start_after, in_steps(options.price)))[0])
