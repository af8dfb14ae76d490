"""DotProd: the machine whose free CPU and GPU are least aligned with what the task asks for.

Source: the alignment of Grandl et al., "Multi-resource packing for cluster schedulers", SIGCOMM 2014, but the least aligned
first, as in the comparison of Weng et al., "Beware of Fragmentation", USENIX ATC 2023, with the integer scores of its
artifact.
"""

from __future__ import annotations

from flowsched.gpu.device_arrays import DeviceArrays
from flowsched.gpu.shapes import ShapeArrays
from flowsched_simulator.baselines.gpu.best_fit_kernels import LARGEST_CPU_MILLI, LARGEST_GPU_MILLI, gpu_left
from flowsched_simulator.baselines.gpu.compiled import borrowing


@borrowing
def score_dot_prod(m: int, s: int, machines: DeviceArrays, shapes: ShapeArrays, state: int) -> int:  # noqa: ARG001
    """100 less the mean product of what is free and what is asked, both in shares of the largest machine's, truncated."""
    cpu = machines.cpu[m] / LARGEST_CPU_MILLI * (shapes.cpu[s] / LARGEST_CPU_MILLI)
    asked = shapes.count[s] * shapes.share[s]
    gpu = gpu_left(m, machines) / LARGEST_GPU_MILLI * (asked / LARGEST_GPU_MILLI)
    return int(100.0 * (1.0 - (cpu + gpu) / 2.0))
