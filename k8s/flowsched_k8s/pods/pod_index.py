"""Pods by what they have in common, waiting ones included: labels, claims and exclusions that they name, their workload."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from flowsched_k8s.objects import Pod
from flowsched_k8s.pods.affinity import PodTest
from flowsched_k8s.pods.exclusions import exclusions
from flowsched_k8s.pods.readings import controller_of, ends_by_itself
from flowsched_k8s.pods.spreading import workload_of
from flowsched_k8s.volumes.volumes import ClaimKey, claim_keys

_Key = tuple[str, object]
_Label = tuple[str, str | None]
_Labels = tuple[str, frozenset[tuple[str, str]]]
"""A namespace and all labels of some of its pods: those of a workload mostly share them."""
_CLAIM, _WORKLOAD, _JOB, _EXCLUSION = "claim", "workload", "job", "exclusion"
_ALL: _Label = ("", None)
"""Stands among labels for what all pods have."""


class PodIndex:
    """uids of pods. What no pods have in common any more is forgotten."""

    def __init__(self) -> None:
        """No pod is known."""
        self._uids: dict[_Key, set[str]] = {}
        self._alike: dict[_Labels, set[str]] = {}
        self._labelled: dict[_Label, dict[str, dict[_Labels, None]]] = {}
        """By label, with its value and without, and by namespace: those who have it."""

    def add(self, pod: Pod) -> None:
        """A pod is there."""
        uid = pod.metadata.uid
        for key in _keys(pod):
            self._uids.setdefault(key, set()).add(uid)
        labels = _labels(pod)
        alike = self._alike.get(labels)
        if alike is None:
            alike = self._alike[labels] = set()
            for label in _each(labels):
                self._labelled.setdefault(label, {}).setdefault(labels[0], {})[labels] = None
        alike.add(uid)

    def remove(self, pod: Pod) -> None:
        """A pod, as it was when it was added, is gone."""
        uid = pod.metadata.uid
        for key in _keys(pod):
            there = self._uids.get(key, set())
            there.discard(uid)
            if not there:
                self._uids.pop(key, None)
        labels = _labels(pod)
        alike = self._alike.get(labels, set())
        alike.discard(uid)
        if alike or self._alike.pop(labels, None) is None:
            return
        for label in _each(labels):
            by_namespace = self._labelled[label]
            del by_namespace[labels[0]][labels]
            if not by_namespace[labels[0]]:
                del by_namespace[labels[0]]
            if not by_namespace:
                del self._labelled[label]

    def in_namespace(self, namespace: str) -> Collection[str]:
        """Pods of a namespace."""
        return [uid for labels in self._labelled.get(_ALL, {}).get(namespace, ()) for uid in self._alike[labels]]

    def naming(self, claim: ClaimKey) -> Collection[str]:
        """Pods that name a claim."""
        return self._uids.get((_CLAIM, claim), ())

    def of_workload(self, workload: str) -> Collection[str]:
        """Pods of the controller of that uid, as far as Kubernetes spreads them by default."""
        return self._uids.get((_WORKLOAD, workload), ())

    def of_job(self, controller: str) -> Collection[str]:
        """Pods that end by themselves, of the controller of that uid."""
        return self._uids.get((_JOB, controller), ())

    def excluded_by(self, relation: str) -> Collection[str]:
        """Pods that join an exclusion."""
        return self._uids.get((_EXCLUSION, relation), ())

    def candidates(self, test: PodTest) -> tuple[bool, list[Collection[str]]]:
        """Sets of pods with all that a test means: those with the label of it that the fewest pods have.

        And whether it names any label that pods must have.
        """
        if test.labels is None:
            return True, []
        options = []
        for expression in test.labels.expressions:
            if expression.operator == "In":
                options.append(self._with([(expression.key, value) for value in expression.values], test))
            elif expression.operator == "Exists":
                options.append(self._with([(expression.key, None)], test))
        if not options:
            return False, self._with([_ALL], test)
        return True, min(options, key=lambda sets: sum(map(len, sets)))

    def _with(self, labels: Collection[_Label], test: PodTest) -> list[Collection[str]]:
        """Pods with one of some labels in the namespaces of a test, or in all where it tells them by their labels."""
        found: list[Collection[str]] = []
        for label in labels:
            by_namespace = self._labelled.get(label, {})
            if test.namespace_labels is None:
                there = [by_namespace[name] for name in test.namespaces if name in by_namespace]
            else:
                there = list(by_namespace.values())
            found += [self._alike[alike] for those in there for alike in those]
        return found


def _keys(pod: Pod) -> Iterator[_Key]:
    for claim in claim_keys(pod):
        yield _CLAIM, claim
    workload = workload_of(pod)
    if workload is not None:
        yield _WORKLOAD, workload
    if ends_by_itself(pod) and (controller := controller_of(pod)) is not None:
        yield _JOB, controller
    for relation in exclusions(pod).joins:
        yield _EXCLUSION, relation


def _labels(pod: Pod) -> _Labels:
    return pod.metadata.namespace, frozenset((pod.metadata.labels or {}).items())


def _each(labels: _Labels) -> Iterator[_Label]:
    yield _ALL
    for key, value in sorted(labels[1]):
        yield key, None
        yield key, value
