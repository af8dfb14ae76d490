"""Pods by what they have in common, waiting ones included: their namespace, the claims that they name, their workload."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from flowsched_k8s.objects import Pod
from flowsched_k8s.spreading import workload_of
from flowsched_k8s.volumes import ClaimKey, claim_keys

_Key = tuple[str, object]
_NAMESPACE, _CLAIM, _WORKLOAD = "namespace", "claim", "workload"


class PodIndex:
    """uids of pods. What no pods have in common any more is forgotten."""

    def __init__(self) -> None:
        """No pod is known."""
        self._uids: dict[_Key, set[str]] = {}

    def add(self, pod: Pod) -> None:
        """A pod is there."""
        for key in _keys(pod):
            self._uids.setdefault(key, set()).add(pod.metadata.uid)

    def remove(self, pod: Pod) -> None:
        """A pod, as it was when it was added, is gone."""
        for key in _keys(pod):
            there = self._uids.get(key, set())
            there.discard(pod.metadata.uid)
            if not there:
                self._uids.pop(key, None)

    def in_namespace(self, namespace: str) -> Collection[str]:
        """Pods of a namespace."""
        return self._uids.get((_NAMESPACE, namespace), ())

    def naming(self, claim: ClaimKey) -> Collection[str]:
        """Pods that name a claim."""
        return self._uids.get((_CLAIM, claim), ())

    def of_workload(self, workload: str) -> Collection[str]:
        """Pods of the controller of that uid, as far as Kubernetes spreads them by default."""
        return self._uids.get((_WORKLOAD, workload), ())


def _keys(pod: Pod) -> Iterator[_Key]:
    yield _NAMESPACE, pod.metadata.namespace
    for claim in claim_keys(pod):
        yield _CLAIM, claim
    workload = workload_of(pod)
    if workload is not None:
        yield _WORKLOAD, workload
