"""The loops that rules share: the best of all machines by kept scores.

Scores are kept by shape and machine, since a placement changes those of one machine only. Memory and GPU model count in no
score of these rules, so that shapes which differ in nothing else share theirs; both are looked at when a machine is chosen.

Some loops name functions that stand here for their shape only; ``filled`` puts those of a rule in their places.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from flowsched.gpu.device_arrays import DeviceArrays
from flowsched.gpu.fit_kernels import fits, fullest_device, model_fits
from flowsched.gpu.shapes import WHOLE_MILLI, ShapeArrays
from flowsched.support.arrays import IntArray
from flowsched_simulator.baselines.gpu.compiled import borrowing

SmallArray = NDArray[np.int16]


class KeptScores(NamedTuple):
    """The state of a rule with scores."""

    group: IntArray
    """[S] of each shape: its row in ``score``."""
    groups: ShapeArrays
    """[G] CPU and GPUs of each group; no memory, and any model."""
    score: SmallArray
    """[G, M] 0 to 100; -1 where CPU or devices do not suffice."""
    own: Any
    """What the rule keeps itself."""


def score(m: int, s: int, machines: DeviceArrays, shapes: ShapeArrays, state: Any) -> int:
    """What placing a task of shape s on machine m, where it fits, is worth: 0 to 100, the highest wins.

    ``shapes`` are groups: memory and model must not count.
    """
    raise NotImplementedError


def placed(m: int, s: int, machines: DeviceArrays, shapes: ShapeArrays, state: Any) -> None:
    """A task of shape s was booked on machine m: what the rule keeps about it follows."""
    raise NotImplementedError


@borrowing
def nothing_kept(m: int, s: int, machines: DeviceArrays, shapes: ShapeArrays, state: Any) -> None:
    """For rules that keep nothing."""


@borrowing
def highest(s: int, scores: SmallArray, machines: DeviceArrays, shapes: ShapeArrays) -> int:
    """The first machine with the highest of the scores [M] among those with enough memory and a right model; -1 for none."""
    found, top = -1, -1
    memory = shapes.memory[s]
    for m in range(len(scores)):
        if scores[m] > top and machines.memory[m] >= memory and model_fits(m, s, machines, shapes):
            found, top = m, scores[m]
    return found


@borrowing
def choose_scored(s: int, machines: DeviceArrays, shapes: ShapeArrays, state: KeptScores) -> tuple[int, int]:
    """A ``choose`` by kept scores; a share goes to the fullest device that takes it."""
    found = highest(s, state.score[state.group[s]], machines, shapes)
    if found >= 0 and 0 < shapes.share[s] < WHOLE_MILLI:
        return found, fullest_device(machines.devices[found], shapes.share[s])
    return found, -1


def rescore(m: int, machines: DeviceArrays, state: KeptScores) -> None:
    """Count the scores of a machine again by ``score``, of all groups."""
    for g in range(len(state.score)):
        state.score[g, m] = score(m, g, machines, state.groups, state.own) if fits(m, g, machines, state.groups) else -1


def rescore_all(machines: DeviceArrays, state: KeptScores) -> None:
    """Count all scores."""
    for m in range(len(machines.cpu)):
        rescore(m, machines, state)


def placed_scored(m: int, s: int, machines: DeviceArrays, shapes: ShapeArrays, state: KeptScores) -> None:
    """A ``placed`` that follows with what the rule keeps itself, then with the scores."""
    placed(m, s, machines, shapes, state.own)
    rescore(m, machines, state)
