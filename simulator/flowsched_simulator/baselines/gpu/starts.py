"""What rules for shared GPUs begin with."""

from __future__ import annotations

import numpy as np

from flowsched.gpu.shapes import WHOLE_MILLI, GpuShape, shape_arrays
from flowsched.support.arrays import FloatArray, IntArray
from flowsched_simulator.baselines.gpu.clustering_kernels import HostedKinds
from flowsched_simulator.baselines.gpu.fgd_kernels import FragmentationTables, rescore_all_fgd
from flowsched_simulator.baselines.gpu.random_kernels import UniformDraws
from flowsched_simulator.baselines.gpu.rule import GpuOutlook

TYPICAL_SHARE = 0.95
"""Of all tasks: so many the typical shapes of FGD cover; Weng et al., USENIX ATC 2023."""
_DRAWS = 1 << 16


def draws(outlook: GpuOutlook) -> UniformDraws:
    """Of Random."""
    return UniformDraws(np.random.default_rng([outlook.seed, 1]).random(_DRAWS), np.zeros(1, dtype=np.int64))


def hosted_kinds(outlook: GpuOutlook) -> HostedKinds:
    """Of GpuClustering: nothing is hosted yet."""
    machines = len(outlook.machines.cpu)
    most = max((shape.count for shape in outlook.shapes), default=0)
    return HostedKinds(np.zeros((machines, most + 1), dtype=np.int64), np.zeros(machines, dtype=np.int64))


def typical_shapes(outlook: GpuOutlook) -> list[tuple[GpuShape, float]]:
    """The most frequent shapes until they cover ``TYPICAL_SHARE`` of the list, and their popularity, together 1.

    Memory does not tell shapes apart, and counts 0 in them. Of equally frequent ones the smaller comes first.
    """
    found: dict[GpuShape, int] = {}
    for shape, times in zip(outlook.shapes, outlook.frequency.tolist(), strict=True):
        without_memory = GpuShape(shape.cpu_milli, 0, shape.count, shape.share_milli, shape.models)
        found[without_memory] = found.get(without_memory, 0) + times
    typical: list[tuple[GpuShape, int]] = []
    covered, total = 0, sum(found.values())
    for shape, times in sorted(found.items(), key=lambda item: (-item[1], item[0])):
        if covered >= TYPICAL_SHARE * total:
            break
        typical.append((shape, times))
        covered += times
    return [(shape, times / covered) for shape, times in typical]


def _column(values: list[int]) -> IntArray:
    return np.array(values, dtype=np.int64)


def fragmentation_tables(outlook: GpuOutlook) -> FragmentationTables:
    """Of FGD: its tables, and the scores of all machines as they are in the outlook."""
    typical = [(shape, p) for shape, p in typical_shapes(outlook) if shape.count]  # the others can use no device
    cpu_steps = np.unique(_column([shape.cpu_milli for shape, _ in typical]))
    shares = np.unique(_column([shape.share_milli for shape, _ in typical if shape.count == 1]))
    devices = outlook.machines.devices.shape[1]
    allowed = shape_arrays([shape for shape, _ in typical], outlook.models).allowed
    single: FloatArray = np.zeros((len(outlook.models), len(cpu_steps) + 1, len(shares) + 1))
    several: FloatArray = np.zeros((len(outlook.models), len(cpu_steps) + 1, devices + 1))
    for t, (shape, p) in enumerate(typical):
        rank = np.searchsorted(cpu_steps, shape.cpu_milli) + 1
        for k in np.flatnonzero(allowed[t]):
            if shape.count == 1:
                single[k, rank:, np.searchsorted(shares, shape.share_milli) + 1 :] += p
            else:
                several[k, rank:, shape.count :] += p
    groups, group = outlook.groups()
    asked, scores = shape_arrays(groups, outlook.models), (len(groups), len(outlook.machines.cpu))
    tables = FragmentationTables(
        cpu_steps=cpu_steps,
        level=np.searchsorted(shares, np.arange(WHOLE_MILLI + 1), side="right").astype(np.int64),
        single=single,
        several=several,
        group=group,
        cpu=asked.cpu,
        count=asked.count,
        share=asked.share,
        score=np.zeros(scores, dtype=np.int16),
        device=np.zeros(scores, dtype=np.int16),
    )
    rescore_all_fgd(outlook.machines, tables)
    return tables
