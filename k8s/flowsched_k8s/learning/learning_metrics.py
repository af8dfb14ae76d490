"""What is shown of learnt run times as metrics."""

from __future__ import annotations

from collections import Counter

from flowsched_k8s.learning.learner import Learner
from flowsched_k8s.metrics.metrics import Metrics

MOST_SHOWN = 100
"""Classes and machine types with series of their own: those that were seen last."""


class LearningMetrics:
    """Brings the metrics of one process up to date."""

    def __init__(self, metrics: Metrics, learner: Learner, saves: Counter[str]) -> None:
        """``saves``: writes of the ConfigMap by what came of them; emptied as they are counted."""
        self._metrics, self._learner, self._saves = metrics, learner, saves
        self._version = -1

    def update(self) -> None:
        """Everything as it is now."""
        metrics, learner, tallies = self._metrics, self._learner, self._learner.tallies
        for outcome, count in tallies.ends.items():
            metrics.counter("flowsched_pod_ends_total", outcome).inc(count)
        for compared, off in tallies.errors:
            metrics.histogram("flowsched_run_time_error", compared).observe(off)
        for result, count in self._saves.items():
            metrics.counter("flowsched_learnt_saves_total", result).inc(count)
        tallies.ends.clear()
        tallies.errors.clear()
        self._saves.clear()
        if self._version == learner.version:
            return
        self._version = learner.version
        factors: dict[tuple[str, ...], float] = {}
        spreads: dict[tuple[str, ...], float] = {}
        for key in learner.last_seen(MOST_SHOWN):
            learnt = learner.learnt.shown(*key)
            if learnt is not None:
                factors[key], spreads[key] = learnt.factor, learnt.spread
        metrics.replace("flowsched_learnt_factor", factors)
        metrics.replace("flowsched_learnt_spread", spreads)
        metrics.gauge("flowsched_learnt_classes").set(len(learner.learnt.classes))
