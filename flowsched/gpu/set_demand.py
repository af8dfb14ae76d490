"""What sets of linked devices are left for: how many devices tasks ask for, and how much these communicate."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from flowsched.gpu.devices import TaskGpus
from flowsched_models.catalogue import Catalogue

_STEPS = 16
"""Shares and weights are rounded to so many parts: demand that hardly changes leaves prices as they are."""


@dataclass(frozen=True)
class SetDemand:
    """Of tasks that ask for several whole devices, by their number."""

    share: tuple[tuple[int, float], ...]
    """Number of devices, and the share of all tasks with GPUs that ask for so many."""
    communication: tuple[tuple[int, float], ...]
    """Number of devices, and the mean weight of communication of tasks that ask for so many."""

    def weight(self, count: int) -> float:
        """Share times communication of tasks with so many devices."""
        return dict(self.share).get(count, 0.0) * dict(self.communication).get(count, 0.0)


def set_demand(catalogue: Catalogue, tasks: Iterable[tuple[str, TaskGpus | None]]) -> SetDemand:
    """The demand of some tasks, each with its profile."""
    counts: dict[int, int] = {}
    said: dict[int, float] = {}
    total = 0
    for profile, wanted in tasks:
        if wanted is None:
            continue
        total += 1
        if wanted.count > 1:
            counts[wanted.count] = counts.get(wanted.count, 0) + 1
            said[wanted.count] = said.get(wanted.count, 0.0) + catalogue.jobs[profile].gpus.communication
    share = tuple((n, round(_STEPS * counts[n] / total) / _STEPS) for n in sorted(counts))
    mean = tuple((n, round(_STEPS * said[n] / counts[n]) / _STEPS) for n in sorted(counts))
    return SetDemand(share, mean)
