"""The greedy schedulers that flowsched is compared with, each as good as its rule allows."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from flowsched_simulator.baselines.all_at_once import AllAtOnce
from flowsched_simulator.baselines.baseline import Baseline, Granting
from flowsched_simulator.baselines.best_fit import BestFit
from flowsched_simulator.baselines.fcfs import FirstComeFirstServed
from flowsched_simulator.baselines.kube_default import KubeDefault
from flowsched_simulator.baselines.lpt import LongestProcessingTimeFirst
from flowsched_simulator.baselines.most_allocated import MostAllocated
from flowsched_simulator.baselines.random_fit import RandomFit

__all__ = ["BASELINES", "DESCRIPTIONS", "VARIANTS", "Baseline", "Granting", "variants_of"]

_CLASSES: tuple[type[Baseline], ...] = (
    FirstComeFirstServed,
    BestFit,
    LongestProcessingTimeFirst,
    RandomFit,
    AllAtOnce,
    KubeDefault,
    MostAllocated,
)

BASELINES: Mapping[str, type[Baseline]] = MappingProxyType({c.name: c for c in _CLASSES})
"""Called with a granting and a seed, each makes a scheduler."""

DESCRIPTIONS: Mapping[str, str] = MappingProxyType({c.name: c.description for c in _CLASSES})

VARIANTS: tuple[Granting, ...] = (
    Granting("declared", "own"),
    Granting("declared", "shared"),
    Granting(1, "own"),
    Granting(1, "shared"),
    Granting(2, "own"),
    Granting(2, "shared"),
    Granting(4, "own"),
    Granting(4, "shared"),
)
"""What a baseline may grant. It cannot choose for itself: a fair comparison gives it the best of these."""


def variants_of(baseline: str) -> tuple[Granting, ...]:
    """Grantings that make a difference to a baseline; a single one for those that have their own."""
    return VARIANTS if BASELINES[baseline].uses_granting else (Granting("declared", "shared"),)
