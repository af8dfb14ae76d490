"""What must be true after a step of a scenario, and how what a scheduler did deviates from that."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple


class Deviation(NamedTuple):
    """One thing that is not as expected."""

    text: str
    wrong: bool
    """Whether something was done that must not be; otherwise something was not done, or not said."""


@dataclass(frozen=True)
class Expected:
    """What must be true of pods, by the names that the scenario gives them."""

    bound: Mapping[str, frozenset[str]] = field(default_factory=dict)
    """The nodes on which a pod may be; empty for any."""
    preferred: Mapping[str, frozenset[str]] = field(default_factory=dict)
    """The same where other nodes are allowed and only worse."""
    pending: Mapping[str, str] = field(default_factory=dict)
    """Words in the message of a pod that must have no node."""
    counts: tuple[tuple[frozenset[str], int], ...] = ()
    """So many of these pods are bound, any of them; the others are pending."""
    spread: tuple[tuple[frozenset[str], str, tuple[int, ...]], ...] = ()
    """Pods, the label of a node, and how many of them are in each of its values, most first."""
    evicted: frozenset[str] | int = frozenset()
    """Which pods are, or how many."""

    @property
    def settles(self) -> bool:
        """Whether nothing that the scheduler may still do can change that all is as expected."""
        return not self.pending and not self.evicted and all(len(pods) == count for pods, count in self.counts)

    @property
    def pods(self) -> frozenset[str]:
        """Every pod of which something is said."""
        named = frozenset((*self.bound, *self.preferred, *self.pending))
        return named.union(*(pods for pods, _ in self.counts), *(pods for pods, _, _ in self.spread))

    def deviations(
        self,
        places: Mapping[str, str],
        messages: Mapping[str, str],
        evicted: frozenset[str],
        nodes: Mapping[str, Mapping[str, Any]],
    ) -> Iterator[Deviation]:
        """What is otherwise.

        ``places``: the node of each pod that has one; ``messages``: what others say; ``nodes``: labels by name.
        """
        for wanted, must in ((self.bound, True), (self.preferred, False)):
            for pod, allowed in wanted.items():
                yield from _misplaced(pod, allowed or frozenset(nodes), places, messages, must)
        for pod, words in self.pending.items():
            if pod in places:
                yield Deviation(f"{pod} must stay pending, and is bound to {places[pod]}", True)
            elif words not in messages.get(pod, ""):
                yield Deviation(f"{pod} must say '{words}', and says: {messages.get(pod) or 'nothing'}", False)
            elif not messages.get(pod):
                yield Deviation(f"{pod} says nothing", False)
        for pods, count in self.counts:
            yield from _counted(pods, count, places, messages)
        for pods, label, counts in self.spread:
            yield from _spread(pods, label, counts, places, nodes)
        if isinstance(self.evicted, int):
            if len(evicted) != self.evicted:
                text = f"{self.evicted} pods must be evicted, and there are {len(evicted)}"
                yield Deviation(text, len(evicted) > self.evicted)
        else:
            for pod in sorted(evicted ^ self.evicted):
                must = "must be evicted" if pod in self.evicted else "is evicted and must stay"
                yield Deviation(f"{pod} {must}", pod in evicted)


def _misplaced(
    pod: str, allowed: frozenset[str], places: Mapping[str, str], messages: Mapping[str, str], must: bool
) -> Iterator[Deviation]:
    where = ", ".join(sorted(allowed))
    if pod not in places:
        said = messages.get(pod) or "nothing"
        yield Deviation(f"{pod} must be bound to one of {where}, and is pending: {said}", False)
    elif places[pod] not in allowed:
        yield Deviation(f"{pod} must be bound to one of {where}, and is on {places[pod]}", must)


def _counted(
    pods: frozenset[str], count: int, places: Mapping[str, str], messages: Mapping[str, str]
) -> Iterator[Deviation]:
    bound = pods & places.keys()
    if len(bound) != count:
        said = "; ".join(sorted({messages[pod] for pod in pods - bound if messages.get(pod)}))
        text = f"{count} of {', '.join(sorted(pods))} must be bound, and {len(bound)} are"
        yield Deviation(f"{text}: {said}" if said else text, len(bound) > count)
    for pod in sorted(pods - bound):
        if not messages.get(pod):
            yield Deviation(f"{pod} says nothing", False)


def _spread(
    pods: frozenset[str],
    label: str,
    counts: tuple[int, ...],
    places: Mapping[str, str],
    nodes: Mapping[str, Mapping[str, Any]],
) -> Iterator[Deviation]:
    domains = {name: labels[label] for name, labels in nodes.items() if label in labels}
    found = Counter(dict.fromkeys(domains.values(), 0))
    found.update(domains[places[pod]] for pod in pods if places.get(pod) in domains)
    if tuple(sorted(found.values(), reverse=True)) != counts:
        told = ", ".join(f"{domain} {count}" for domain, count in sorted(found.items()))
        text = f"{', '.join(sorted(pods))} must be {counts} by {label}, and are: {told}"
        yield Deviation(text, sum(found.values()) >= sum(counts))
