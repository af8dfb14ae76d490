"""GpuClustering: tasks of one kind together, on the fullest such machine.

Source: a policy of the comparison in Weng et al., "Beware of Fragmentation", USENIX ATC 2023, with the integer scores of its
artifact.
"""

from __future__ import annotations

from typing import NamedTuple

from flowsched.gpu.device_arrays import DeviceArrays
from flowsched.gpu.shapes import WHOLE_MILLI, ShapeArrays
from flowsched.support.arrays import IntArray
from flowsched_simulator.baselines.gpu.best_fit_kernels import gpu_left
from flowsched_simulator.baselines.gpu.compiled import borrowing

_LARGEST_GPU_MILLI = 8_000
_FULL = 25
"""What a full machine has more than an empty one."""


class HostedKinds(NamedTuple):
    """What each machine has taken so far. Kinds: 0 shares; n for n whole GPUs."""

    tasks: IntArray
    """[M, kinds] how many."""
    kinds: IntArray
    """[M] different ones."""


@borrowing
def kind_of(s: int, shapes: ShapeArrays) -> int:
    """The kind of a shape with GPUs."""
    return 0 if shapes.share[s] < WHOLE_MILLI else shapes.count[s]


@borrowing
def score_clustering(m: int, s: int, machines: DeviceArrays, shapes: ShapeArrays, state: HostedKinds) -> int:
    """First by what the machine hosts: only this kind, also this kind, nothing, only others; then by how full it is."""
    if shapes.count[s] == 0:
        return 0
    full = _FULL * (_LARGEST_GPU_MILLI - gpu_left(m, machines)) // _LARGEST_GPU_MILLI
    if state.tasks[m, kind_of(s, shapes)] > 0:
        return full + (75 if state.kinds[m] == 1 else 50)
    return full + (25 if state.kinds[m] == 0 else 0)


@borrowing
def count_hosted(m: int, s: int, machines: DeviceArrays, shapes: ShapeArrays, state: HostedKinds) -> None:  # noqa: ARG001
    """A task came to the machine."""
    if shapes.count[s] == 0:
        return
    kind = kind_of(s, shapes)
    if state.tasks[m, kind] == 0:
        state.kinds[m] += 1
    state.tasks[m, kind] += 1
