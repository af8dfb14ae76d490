"""What became of pods that were moved: a workload whose move gained nothing is not moved for that purpose again.

A plan is judged by the round that will place the pods, and still that round may decide otherwise: pods come and go
meanwhile, or the new pod is not like the old one. Then another move would gain nothing either, as long as nothing changes.
A move has gained nothing if the new pod

- is on the node that was to be emptied, or on another one that had no pods (*empty node*),
- is elsewhere than where the forecasts saw the gain (*interference*),

or if a pod still waits for the *room* that was made, and none is held for it any more.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import msgspec

from flowsched_k8s.cache import Cache
from flowsched_k8s.names import EMPTIED
from flowsched_k8s.objects import Pod
from flowsched_k8s.pods.entries import PodEntry
from flowsched_k8s.pods.readings import controller_of
from flowsched_k8s.rebalancing.move_plan import MoveQuestion, PlannedMove, Purpose

_REVISIONS = ("pod-template-hash", "controller-revision-hash")
"""Labels by which controllers tell apart the pods of their templates."""
_PATIENCE_S = 1800.0
"""A pod that comes later than that is not taken for the one in the place of a moved pod."""
_MOST = 1000
"""Workloads that are remembered; those that came back longest ago are forgotten first."""


@dataclass(frozen=True)
class _AwaitedMove:
    """A move of which it is not known yet what it has gained."""

    move: PlannedMove
    purpose: Purpose
    pod: Pod
    workload: str
    """uid of its controller."""
    there: set[str]
    """uids of pods of the workload that are not the new one."""
    good: frozenset[str] | None
    """Nodes where the new pod is as planned; None for all."""
    waiting: frozenset[str]
    """uids of pods that room is made for."""
    until_s: float


@dataclass(frozen=True)
class _Return:
    """How things were when a move had gained nothing."""

    shape: object
    """Of the pods of the workload."""
    nodes: tuple[tuple[str, object], ...]
    """By name, the node that the pod left and the one that the new pod is on, as they were."""


class MoveOutcomes:
    """Moves, until it is known what they have gained, and the workloads for which they have gained nothing."""

    def __init__(self, cache: Cache) -> None:
        """No pod was moved."""
        self._cache = cache
        self._under_way: dict[str, _AwaitedMove] = {}
        """By uid of the pod that leaves."""
        self._returns: dict[tuple[str, Purpose], _Return] = {}
        """By uid of the controller."""

    def begin(self, question: MoveQuestion, moves: Iterable[PlannedMove], now: float) -> None:
        """These pods are asked to leave."""
        pods = self._cache.pods
        there: dict[str, set[str]] = {}
        for m in moves:
            pod = pods[m.uid].pod
            workload = controller_of(pod) or ""
            good = question.in_use
            if question.purpose is Purpose.INTERFERENCE:
                good = frozenset({m.target})
            self._under_way[m.uid] = _AwaitedMove(
                m,
                question.purpose,
                pod,
                workload,
                there.setdefault(workload, set()),
                good,
                frozenset(question.room_for),
                now + _PATIENCE_S,
            )
        for uid, entry in pods.items():
            if entry.place and (of := controller_of(entry.pod)) in there:
                there[of].add(uid)

    def cancel(self, uids: Iterable[str]) -> None:
        """These pods stay, or have gone by themselves."""
        for uid in uids:
            self._under_way.pop(uid, None)

    def arrived(self, entry: PodEntry) -> None:
        """A pod is on a node: it may be the one in the place of one that was moved."""
        workload = controller_of(entry.pod) if self._under_way else None
        for uid, d in self._under_way.items():
            if d.workload == workload and d.purpose is not Purpose.ROOM and entry.key.uid not in d.there:
                d.there.add(entry.key.uid)
                del self._under_way[uid]
                if d.good is not None and entry.node not in d.good:
                    self._keep(d, entry.pod, entry.node)
                return

    def review(self, now: float) -> None:
        """See whether the pods that room was made for have it, and which new pods will not come any more."""
        pods = self._cache.pods
        self._under_way = {uid: d for uid, d in self._under_way.items() if d.until_s > now}
        for uid, d in list(self._under_way.items()):
            waiting = [w for w in d.waiting if w in pods and not pods[w].place]
            if d.purpose is not Purpose.ROOM or uid in pods or not self._cache.nominated.keys().isdisjoint(waiting):
                continue
            del self._under_way[uid]
            if waiting:
                self._keep(d, d.pod, d.move.source)

    @property
    def any(self) -> bool:
        """Whether there is any workload for which a move has gained nothing."""
        return bool(self._returns)

    def gained_nothing(self, entry: PodEntry) -> frozenset[Purpose]:
        """For which purposes a move of this workload has gained nothing, and nothing that matters has changed since."""
        workload = controller_of(entry.pod) or ""
        return frozenset(purpose for purpose in Purpose if self._holds((workload, purpose), entry.pod))

    def _holds(self, key: tuple[str, Purpose], pod: Pod) -> bool:
        found = self._returns.get(key)
        if found is None or found.shape != _shape(pod):
            return False
        if any(self._facts(name) != facts for name, facts in found.nodes):
            del self._returns[key]
            return False
        return True

    def _keep(self, d: _AwaitedMove, pod: Pod, node: str) -> None:
        nodes = tuple((name, self._facts(name)) for name in dict.fromkeys((d.move.source, node)))
        self._returns.pop((d.workload, d.purpose), None)
        self._returns[d.workload, d.purpose] = _Return(_shape(pod), nodes)
        while len(self._returns) > _MOST:
            del self._returns[next(iter(self._returns))]

    def _facts(self, name: str) -> object:
        """What decides of a node whether a pod goes there, but for our own mark and for what is on it; None without it."""
        entry = self._cache.nodes.get(name)
        if entry is None:
            return None
        spec = entry.node.spec
        taints = [(t.key, t.value, t.effect) for t in spec.taints or () if t.key != EMPTIED]
        offered = dict(entry.node.status.allocatable or {})
        return dict(entry.node.metadata.labels or {}), spec.unschedulable, taints, offered


def _shape(pod: Pod) -> object:
    """What the pods of a template have in common: not their volumes, which the pods of a StatefulSet have each."""
    labels = pod.metadata.labels or {}
    spec = msgspec.structs.replace(pod.spec, node_name="", volumes=None, scheduling_gates=None)
    return [labels.get(name) for name in _REVISIONS], spec
