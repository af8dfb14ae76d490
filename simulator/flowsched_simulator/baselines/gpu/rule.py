"""What a rule for shared GPUs is: it places one task at a time, at once, and never moves one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from flowsched.gpu.device_arrays import DeviceArrays
from flowsched.gpu.shapes import GpuShape, shape_arrays
from flowsched.support.arrays import IntArray
from flowsched_simulator.baselines.gpu.compiled import filled
from flowsched_simulator.baselines.gpu.play_kernels import (
    KeptScores,
    choose_scored,
    nothing_kept,
    placed_scored,
    rescore,
    rescore_all,
)


@dataclass(frozen=True, eq=False)
class GpuOutlook:
    """What a rule may know before the first arrival; S shapes."""

    machines: DeviceArrays
    """Empty, in the order in which ties are broken."""
    models: tuple[str, ...]
    """Names of GPU models by their indices."""
    shapes: tuple[GpuShape, ...]
    """Those that can arrive."""
    frequency: IntArray
    """[S] how many tasks of the list that arrivals are drawn from have each shape."""
    seed: int
    """Of random choices."""
    names: tuple[str, ...] = ()
    """Of the machines; the published rules read none."""

    def groups(self) -> tuple[tuple[GpuShape, ...], IntArray]:
        """Shapes that differ in CPU or GPUs, without memory and models; and [S] the position of each shape among them."""
        bare = [GpuShape(shape.cpu_milli, 0, shape.count, shape.share_milli) for shape in self.shapes]
        different = tuple(sorted(set(bare)))
        position = {shape: g for g, shape in enumerate(different)}
        return different, np.array([position[shape] for shape in bare], dtype=np.int64)


def nothing(outlook: GpuOutlook) -> int:  # noqa: ARG001
    """The state of rules that keep none."""
    return 0


@dataclass(frozen=True)
class GpuRule:
    """A rule. Its kernels have the shapes that ``play_kernels`` says."""

    name: str
    choose: Callable[..., tuple[int, int]]
    """Where a task goes. Of equally good machines the first."""
    placed: Callable[..., None] = nothing_kept
    """Told of every task that was booked."""
    start: Callable[[GpuOutlook], Any] = nothing
    """The rule's own state: a number, or a named tuple of arrays, which the kernels may write to."""


def scored_rule(
    name: str,
    score: Callable[..., int],
    choose: Callable[..., tuple[int, int]] = choose_scored,
    placed: Callable[..., None] = nothing_kept,
    start: Callable[[GpuOutlook], Any] = nothing,
) -> GpuRule:
    """A rule that places by scores of machines, which are kept. ``placed`` and ``start`` are about what else it keeps."""
    of_one = filled(rescore, f"rescore_{name}", score=score)
    of_all = filled(rescore_all, f"rescore_all_{name}", rescore=of_one)

    def begin(outlook: GpuOutlook) -> KeptScores:
        different, group = outlook.groups()
        scores = np.zeros((len(different), len(outlook.machines.cpu)), dtype=np.int16)
        state = KeptScores(group, shape_arrays(different, outlook.models), scores, start(outlook))
        of_all(outlook.machines, state)
        return state

    follow = filled(placed_scored, f"placed_{name}", placed=placed, rescore=of_one)
    return GpuRule(name, choose, follow, begin)
