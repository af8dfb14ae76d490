"""The greedy schedulers that flowsched is compared with, each as good as its rule allows."""

from __future__ import annotations

from flowsched_simulator.baselines.baseline import Baseline
from flowsched_simulator.baselines.granting import VARIANTS, Granting, variant_label
from flowsched_simulator.baselines.registry import (
    BASELINES,
    COMPARED,
    make_baseline,
    variants_of,
)

__all__ = [
    "BASELINES",
    "COMPARED",
    "VARIANTS",
    "Baseline",
    "Granting",
    "make_baseline",
    "variant_label",
    "variants_of",
]
