"""BestFit: the machine with the least left, over CPU and GPU.

Source: a policy of the comparison in Weng et al., "Beware of Fragmentation", USENIX ATC 2023, with the integer scores of its
artifact.
"""

from __future__ import annotations

from flowsched.gpu.device_arrays import DeviceArrays
from flowsched.gpu.shapes import ShapeArrays
from flowsched_simulator.baselines.gpu.compiled import borrowing

LARGEST_CPU_MILLI = 128_000.0
"""Of any machine of the trace: what CPU is measured by."""
LARGEST_GPU_MILLI = 8_000.0


@borrowing
def gpu_left(m: int, machines: DeviceArrays) -> int:
    """Milli left on all devices of a machine together."""
    total = 0
    for d in range(machines.devices.shape[1]):
        total += max(0, machines.devices[m, d])
    return total


@borrowing
def score_best_fit(m: int, s: int, machines: DeviceArrays, shapes: ShapeArrays, state: int) -> int:  # noqa: ARG001
    """100 less half of the CPU and half of the GPU left afterwards, in % of the largest machine's, truncated.

    The artifact stretches the scores of all machines to 0..100 and truncates again; of whole numbers between 0 and 100 that
    changes neither the order nor the ties, so it is left out.
    """
    cpu = (machines.cpu[m] - shapes.cpu[s]) / LARGEST_CPU_MILLI * 0.5
    gpu = (gpu_left(m, machines) - shapes.count[s] * shapes.share[s]) / LARGEST_GPU_MILLI * 0.5
    return int((1.0 - (cpu + gpu)) * 100.0)
