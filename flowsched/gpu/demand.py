"""The demand for GPUs that is expected: which shapes of task come, and how often."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from flowsched.gpu.shapes import GpuShape
from flowsched.support.arrays import FloatArray


@dataclass(frozen=True, eq=False)
class GpuDemand:
    """Shapes and the share of all arrivals that each of them is."""

    shapes: tuple[GpuShape, ...]
    shares: FloatArray
    """Of each shape; their sum is 1."""

    @property
    def mean_gpus(self) -> float:
        """GPUs that an arrival asks for on average."""
        return float(self.shares @ gpus_of(self.shapes))

    def sampled(self, arrivals: int, rng: np.random.Generator) -> GpuDemand:
        """The shares of that many future arrivals, drawn from these."""
        return GpuDemand(self.shapes, rng.multinomial(arrivals, self.shares) / arrivals)


class LearntDemand:
    """The demand as it is learnt from the tasks that come."""

    def __init__(self) -> None:
        """Nothing has come."""
        self._come: Counter[GpuShape] = Counter()
        self.known: tuple[tuple[GpuShape, int], ...] = ()
        """Tasks by shape, as of the last time when twice as many had come as before: it settles, and each change of it
        costs rounds a while.
        """

    def add(self, shape: GpuShape) -> None:
        """A task has come."""
        self._come[shape] += 1
        if self._come.total().bit_count() == 1:
            self.known = tuple(sorted(self._come.items()))


def gpus_of(shapes: Iterable[GpuShape]) -> FloatArray:
    """GPUs that a task of each shape asks for: count times share."""
    return np.array([shape.count * shape.share_milli / 1000.0 for shape in shapes])


def demand_of(counts: Mapping[GpuShape, int]) -> GpuDemand:
    """What has come so far, by shape, as an expectation of what will come; shapes in an order of their own.

    Raises ``ValueError`` where nothing has come.
    """
    total = sum(counts.values())
    if total <= 0:
        raise ValueError("a demand is learnt from arrivals, and there are none")
    shapes = tuple(sorted(counts, key=lambda s: (s.count, s.share_milli, s.cpu_milli, s.memory_mib, s.models)))
    return GpuDemand(shapes, np.array([counts[shape] for shape in shapes]) / total)
