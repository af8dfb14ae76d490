"""Preemption on the cache: who could make room for a pod, within disruption budgets."""

from __future__ import annotations

from collections.abc import Set as AbstractSet
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from flowsched_k8s.cache import Cache, PodEntry
from flowsched_k8s.instructions import PodKey
from flowsched_k8s.objects import Budget, Pod
from flowsched_k8s.preemption import Occupant, Occupants, PreemptionPlan, Preemptor, is_movable, plan_preemption
from flowsched_k8s.selector import matches
from flowsched_k8s.verdicts import Verdicts


class Victims:
    """Plans preemptions; decides nothing."""

    def __init__(self, cache: Cache) -> None:
        """No budgets yet."""
        self._cache = cache
        self._budgets: dict[tuple[str, str], Budget] = {}
        self.unreadable = ""
        """Why budgets cannot be read at the moment; empty if they can."""
        self._occupants: Occupants | None = None

    def put_budget(self, budget: Budget) -> None:
        """A PodDisruptionBudget is there or changed."""
        self._budgets[budget.metadata.namespace, budget.metadata.name] = budget

    def remove_budget(self, budget: Budget) -> None:
        """A PodDisruptionBudget is gone."""
        self._budgets.pop((budget.metadata.namespace, budget.metadata.name), None)

    def look(self) -> None:
        """Take note of who is where; all plans until the next look go by that."""
        self._occupants = None

    def plan(self, entry: PodEntry, verdicts: Verdicts, gone: AbstractSet[str] = frozenset()) -> PreemptionPlan | str:
        """Victims for one pod, or why nobody's going would help.

        ``gone``: uids of pods that are victims already, and so leave. Nominations of other pods keep their room.
        """
        if self.unreadable:
            return f"nobody is evicted while PodDisruptionBudgets cannot be read: {self.unreadable}"
        cache, fleet = self._cache, self._cache.fleet
        passes = verdicts.passes[: fleet.rows] & fleet.alive
        rows = [row for row in fleet.order().tolist() if passes[row]]
        nodes = [name for row in rows if (name := fleet.names[row]) is not None]
        free = fleet.free()[rows]
        self._take_nominated(entry, nodes, free)
        by_resource = {resource: free[:, i] for i, resource in enumerate(fleet.resources)}
        occupants = self._everybody()
        for uid in gone:
            victim = cache.pods[uid]
            occupants.put(replace(self._occupant(victim), leaving=True), victim.place)
        preemptor = Preemptor(entry.needs, entry.priority, entry.pod.spec.preemption_policy or "")
        allowed = {f"{ns}/{name}": b.status.disruptions_allowed for (ns, name), b in self._budgets.items()}
        return plan_preemption(
            preemptor,
            nodes,
            by_resource,
            occupants,
            allowed,
            total=len(cache.nodes),
            fits=lambda node, without: self._related(entry, node, without),
        )

    def _everybody(self) -> Occupants:
        if self._occupants is None:
            self._occupants = Occupants()
            for name, node in self._cache.nodes.items():
                for uid in node.pods:
                    self._occupants.put(self._occupant(self._cache.pods[uid]), name)
        return self._occupants

    def _take_nominated(self, entry: PodEntry, nodes: list[str], free: NDArray[np.int64]) -> None:
        """Room that others no less important wait for is not free, and what leaves is theirs first."""
        cache = self._cache
        place = {name: i for i, name in enumerate(nodes)}
        columns = {resource: i for i, resource in enumerate(cache.fleet.resources)}
        for uid, node in cache.nominated.items():
            other = cache.pods[uid]
            if uid == entry.key.uid or other.place or other.priority < entry.priority or node not in place:
                continue
            for resource, amount in other.needs.items():
                if resource in columns:
                    free[place[node], columns[resource]] -= amount

    def _related(self, entry: PodEntry, node: str, without: AbstractSet[PodKey]) -> bool:
        """Whether ports, affinities and spreads would let a pod in, were these pods gone."""
        wants = self._cache.wants(entry)
        if not wants.holds and not wants.joins:
            return True
        gone = [pod.uid for pod in without]
        return self._cache.fleet.permits_on(wants.holds, wants.joins, node, without=gone)

    def _occupant(self, entry: PodEntry) -> Occupant:
        pod = entry.pod
        return Occupant(
            entry.key,
            entry.priority,
            entry.needs,
            entry.started_s,
            self._counted_by(pod),
            is_movable(pod),
            pod.metadata.deletion_timestamp is not None,
        )

    def _counted_by(self, pod: Pod) -> tuple[str, ...]:
        labels = pod.metadata.labels or {}
        return tuple(
            f"{namespace}/{name}"
            for (namespace, name), budget in sorted(self._budgets.items())
            if namespace == pod.metadata.namespace and matches(budget.spec.selector, labels)
        )
