"""Random: any machine where the task fits, any device there; all alike likely.

Source: a policy of the comparison in Weng et al., "Beware of Fragmentation", USENIX ATC 2023.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from flowsched.gpu.device_arrays import DeviceArrays
from flowsched.gpu.shapes import WHOLE_MILLI, ShapeArrays
from flowsched.support.arrays import BoolArray, FloatArray, IntArray
from flowsched_simulator.baselines.gpu.compiled import borrowing, compiled
from flowsched_simulator.baselines.gpu.play_kernels import KeptScores


class UniformDraws(NamedTuple):
    """Numbers drawn beforehand, from 0 to 1, used in turn; from the start again when they end."""

    uniform: FloatArray
    used: IntArray
    """[1] how many."""


@borrowing
def one_of(marked: BoolArray, state: UniformDraws) -> int:
    """A random position of those marked; -1 where none is."""
    total = 0
    for i in range(len(marked)):
        total += marked[i]
    if total == 0:
        return -1
    drawn = state.uniform[state.used[0] % len(state.uniform)]
    state.used[0] += 1
    skipped = int(drawn * total)
    for i in range(len(marked)):
        if marked[i]:
            if skipped == 0:
                return i
            skipped -= 1
    return -1


@borrowing
def score_alike(m: int, s: int, machines: DeviceArrays, shapes: ShapeArrays, state: UniformDraws) -> int:  # noqa: ARG001
    """All machines where the task fits are alike."""
    return 0


@compiled
def choose_random(s: int, machines: DeviceArrays, shapes: ShapeArrays, state: KeptScores) -> tuple[int, int]:
    """Machine and device."""
    scores = state.score[state.group[s]]
    possible = np.zeros(len(scores), dtype=np.bool_)
    memory, any_model = shapes.memory[s], shapes.count[s] == 0
    for m in range(len(scores)):
        # A machine without GPUs has no score for a shape with some, so that its model is not looked up.
        if scores[m] >= 0 and machines.memory[m] >= memory:
            possible[m] = any_model or shapes.allowed[s, machines.model[m]]
    found = one_of(possible, state.own)
    if found < 0 or not 0 < shapes.share[s] < WHOLE_MILLI:
        return found, -1
    return found, one_of(machines.devices[found] >= shapes.share[s], state.own)
