"""What tasks ask for where GPUs are shared: one shape, and many of them as arrays."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from flowsched.gpu.devices import WHOLE_MILLI
from flowsched.support.arrays import BoolArray, IntArray

__all__ = ["WHOLE_MILLI", "GpuShape", "ShapeArrays", "shape_arrays"]


@dataclass(frozen=True, order=True)
class GpuShape:
    """What one task asks for.

    ``count`` GPUs and ``share_milli`` of each: a task takes either a share of one GPU or whole ones, as in the trace of Weng
    et al., "Beware of Fragmentation", USENIX ATC 2023. CPU only: both are 0.
    """

    cpu_milli: int
    memory_mib: int
    count: int
    share_milli: int
    models: tuple[str, ...] = ()
    """GPU models that it may run on; empty: any."""

    def __post_init__(self) -> None:
        """Refuse what no task can ask for."""
        if min(self.cpu_milli, self.memory_mib, self.count) < 0:
            raise ValueError("CPU, memory and the number of GPUs must not be negative")
        if self.count == 0 and self.share_milli != 0:
            raise ValueError(f"without a GPU the share must be 0, got {self.share_milli}")
        if self.count > 0 and not 1 <= self.share_milli <= WHOLE_MILLI:
            raise ValueError(f"the share of a GPU must be 1 to {WHOLE_MILLI} milli, got {self.share_milli}")
        if self.count > 1 and self.share_milli != WHOLE_MILLI:
            raise ValueError(f"{self.count} GPUs must be whole ones, got {self.share_milli} milli of each")

    @property
    def gpu_milli(self) -> int:
        """Of all its GPUs together."""
        return self.count * self.share_milli


class ShapeArrays(NamedTuple):
    """S shapes as compiled code takes them; K models of GPUs."""

    cpu: IntArray
    """[S] milli."""
    memory: IntArray
    """[S] MiB."""
    count: IntArray  # type: ignore[assignment]  # it hides the method of tuples, which is not called here
    """[S] GPUs."""
    share: IntArray
    """[S] milli of each of them."""
    allowed: BoolArray
    """[S, K] whether a shape may run on a model. All true for those without a GPU."""


def shape_arrays(shapes: Sequence[GpuShape], models: Sequence[str]) -> ShapeArrays:
    """The shapes in their order; ``models``: names of GPU models, in the order of their indices in ``DeviceArrays``."""

    def column(values: list[int]) -> IntArray:
        return np.array(values, dtype=np.int64)

    allowed = [[not s.count or not s.models or model in s.models for model in models] for s in shapes]
    return ShapeArrays(
        column([s.cpu_milli for s in shapes]),
        column([s.memory_mib for s in shapes]),
        column([s.count for s in shapes]),
        column([s.share_milli for s in shapes]),
        np.array(allowed, dtype=np.bool_).reshape(len(shapes), len(models)),
    )
