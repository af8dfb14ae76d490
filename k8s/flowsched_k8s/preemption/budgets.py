"""Disruption budgets: which of them count a pod, and how many more disruptions each allows."""

from __future__ import annotations

from flowsched_k8s.objects import Budget, Pod
from flowsched_k8s.pods.selector import matches


class Budgets:
    """All PodDisruptionBudgets, as the watch tells them."""

    def __init__(self) -> None:
        """None yet."""
        self._known: dict[str, dict[str, Budget]] = {}
        """By namespace and name."""
        self.unreadable = ""
        """Why they cannot be read at the moment; empty if they can."""
        self.version = 0
        """Changes whenever a budget may count other pods."""

    def put(self, budget: Budget) -> None:
        """One is there or changed."""
        here = self._known.setdefault(budget.metadata.namespace, {})
        known = here.get(budget.metadata.name)
        here[budget.metadata.name] = budget
        if known is None or known.spec.selector != budget.spec.selector:
            self.version += 1

    def remove(self, budget: Budget) -> None:
        """One is gone."""
        self._known.get(budget.metadata.namespace, {}).pop(budget.metadata.name, None)
        self.version += 1

    def counting(self, pod: Pod) -> tuple[str, ...]:
        """NAMESPACE/NAME of those that count a pod, sorted."""
        namespace, labels = pod.metadata.namespace, pod.metadata.labels or {}
        found = self._known.get(namespace, {}).items()
        return tuple(sorted(f"{namespace}/{name}" for name, b in found if matches(b.spec.selector, labels)))

    def allowed(self) -> dict[str, int]:
        """By NAMESPACE/NAME, how many more disruptions each allows."""
        return {
            f"{ns}/{name}": b.status.disruptions_allowed for ns, all_ in self._known.items() for name, b in all_.items()
        }
