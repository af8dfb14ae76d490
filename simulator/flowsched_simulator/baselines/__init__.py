"""The greedy schedulers that flowsched is compared with, each as good as its rule allows."""

from __future__ import annotations

from flowsched_simulator.baselines.baseline import Baseline
from flowsched_simulator.baselines.granting import Granting

__all__ = ["Baseline", "Granting"]
