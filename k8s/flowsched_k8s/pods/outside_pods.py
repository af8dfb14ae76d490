"""Pods on nodes outside of the pool, as relations count them: in the domains of their nodes.

Such a node has no machine row: nothing can be put there. But its zone may have nodes of the pool, which the pods
there keep others out of, or attract them to. So each pod is counted once for each of its domains, on the first node of the
pool that is in it, by a booking that takes no room; what counts by domain is then right wherever it is read.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping

from flowsched.cluster.booked_tasks import BookedTasks
from flowsched.relations.relation import MACHINE, RelationKind

Domain = tuple[str, str]
"""A node label and its value."""
_Roles = tuple[tuple[str, ...], tuple[str, ...]]
"""Relations of one key that a pod holds where that binds later pods, and those that it joins."""


class OutsidePods:
    """See the module. What is booked says what a pod holds and joins, also where it has no row for the node."""

    def __init__(self, booked: BookedTasks, touch: Callable[[str], None], met: Callable[[], None]) -> None:
        """``touch`` hears of nodes of the pool on which something else counts now, ``met`` of changes of :meth:`met`."""
        self._booked = booked
        self._touch = touch
        self._met = met
        self._labels: dict[str, Mapping[str, str]] = {}
        """Of each node outside."""
        self._counted: dict[str, dict[Domain, _Roles]] = {}
        """By uid."""
        self._pods: dict[Domain, dict[str, None]] = {}
        self._host: dict[Domain, str | None] = {}
        """Of each domain with pods: the node of the pool on which they are counted."""
        self._elsewhere: Counter[str] = Counter()
        """By affinity: pods that join it in domains without a node of the pool."""
        # For each key that was asked for, nodes of the pool by its value, and the value of each.
        self._nodes: dict[str, dict[str, set[str]]] = {}
        self._value: dict[str, dict[str, str]] = {}

    # What is there

    def put_node(self, name: str, labels: Mapping[str, str], uids: Iterable[str]) -> bool:
        """A node outside of the pool is there or changed, with these pods; whether another number counts anywhere now."""
        self._labels[name] = labels
        return sum(self.put_pod(uid) for uid in sorted(uids)) > 0

    def remove_node(self, name: str, uids: Iterable[str]) -> bool:
        """It is gone, or is in the pool now; whether another number counts anywhere."""
        self._labels.pop(name, None)
        return sum(self.put_pod(uid) for uid in sorted(uids)) > 0

    def put_pod(self, uid: str) -> bool:
        """A pod is booked, or what it holds and joins changed; whether another number counts anywhere now."""
        now, before = self._roles(uid), dict(self._counted.get(uid, {}))
        if now == before:
            return False
        for domain in before:
            if before[domain] != now.get(domain):
                self._take_out(uid, domain)
        for domain, roles in now.items():
            if roles != before.get(domain):
                self._put_in(uid, domain, roles)
        return True

    def remove_pod(self, uid: str) -> None:
        """A pod is gone; one that is not counted is nothing to do."""
        for domain in tuple(self._counted.get(uid, ())):
            self._take_out(uid, domain)

    def recount(self) -> None:
        """Relations were retired: one of the same name that is declared later does not count what is counted now."""
        for uid in tuple(self._counted):
            self.put_pod(uid)

    def put_pool_node(self, name: str, labels: Mapping[str, str]) -> None:
        """A node of the pool is there, or has other labels; without labels it is gone."""
        for key, nodes in self._nodes.items():
            old, new = self._value[key].pop(name, None), labels.get(key)
            if new is not None:
                self._value[key][name] = new
            if old == new:
                continue
            if old is not None:
                nodes[old].discard(name)
            if new is not None:
                nodes.setdefault(new, set()).add(name)
            for value in (old, new):
                if value is not None:
                    self._move((key, value))
            if old is not None and not nodes[old]:
                del nodes[old]

    # What is asked

    def met(self, affinity: str) -> bool:
        """Whether pods join an affinity in a domain that no node of the pool is in: it is met there and nowhere else."""
        return self._elsewhere[affinity] > 0

    def counted_on(self, node: str) -> list[str]:
        """Bookings on a node of the pool that stand for pods outside; sorted."""
        domains = [(key, value[node]) for key, value in self._value.items() if node in value]
        here = [domain for domain in domains if self._host.get(domain) == node]
        return sorted(_booking(uid, domain) for domain in here for uid in self._pods[domain])

    # Insides

    def _roles(self, uid: str) -> dict[Domain, _Roles]:
        """What a pod is to be counted for, by domain."""
        booked, store = self._booked.booking(uid), self._booked.machines.relation_store
        labels = self._labels.get(booked.machine) if booked is not None else None
        if booked is None or labels is None:
            return {}
        found: dict[Domain, tuple[list[str], list[str]]] = {}
        for role, names in enumerate((booked.holds, booked.joins)):
            for name in names:
                relation = store.relation(name)
                if relation is not None and relation.key != MACHINE and relation.key in labels:
                    found.setdefault((relation.key, labels[relation.key]), ([], []))[role].append(name)
        return {domain: (tuple(holds), tuple(joins)) for domain, (holds, joins) in found.items()}

    def _put_in(self, uid: str, domain: Domain, roles: _Roles) -> None:
        if domain not in self._pods:
            self._pods[domain] = {}
            self._host[domain] = self._first(domain)
        self._pods[domain][uid] = None
        self._counted.setdefault(uid, {})[domain] = roles
        self._count(uid, domain, 1)

    def _take_out(self, uid: str, domain: Domain) -> None:
        self._count(uid, domain, -1)
        del self._counted[uid][domain], self._pods[domain][uid]
        if not self._counted[uid]:
            del self._counted[uid]
        if not self._pods[domain]:
            del self._pods[domain], self._host[domain]

    def _move(self, domain: Domain) -> None:
        """Other nodes of the pool are in a domain."""
        if domain not in self._pods:
            return
        host = self._first(domain)
        if host != self._host[domain]:
            for uid in self._pods[domain]:
                self._count(uid, domain, -1)
            self._host[domain] = host
            for uid in self._pods[domain]:
                self._count(uid, domain, 1)

    def _count(self, uid: str, domain: Domain, sign: int) -> None:
        """A pod counts in a domain from now on, or no longer."""
        host, (holds, joins) = self._host[domain], self._counted[uid][domain]
        if host is None:
            for name in joins:
                self._count_elsewhere(name, sign)
            return
        if sign > 0:
            self._booked.book(_booking(uid, domain), host, {}, holds=holds, joins=joins)
        else:
            self._booked.release(_booking(uid, domain))
        self._touch(host)

    def _count_elsewhere(self, name: str, sign: int) -> None:
        relation = self._booked.machines.relation_store.relation(name)
        if sign > 0 and (relation is None or relation.kind is not RelationKind.TOGETHER):
            return
        before = self._elsewhere[name]
        if before + sign > 0:
            self._elsewhere[name] = before + sign
        else:
            del self._elsewhere[name]
        if self.met(name) != (before > 0):
            self._met()

    def _first(self, domain: Domain) -> str | None:
        """The first node of the pool in a domain, by name: which one it is must not depend on what came when."""
        key, value = domain
        if key not in self._nodes:
            self._nodes[key], self._value[key] = {}, {}
            for row in self._booked.machines.order().tolist():
                name = str(self._booked.machines.names[row])
                there = self._booked.machines.labels(name).get(key)
                if there is not None:
                    self._value[key][name] = there
                    self._nodes[key].setdefault(there, set()).add(name)
        return min(self._nodes[key].get(value, ()), default=None)


def _booking(uid: str, domain: Domain) -> str:
    return f"{uid}@{domain[0]}"
