"""Did schedulers keep their promises? Judged only from the watches of the API server and from its audit log.

A scheduler cannot know what changes while its binding is on its way. It is therefore held only to those changes by others
(pods that they placed or deleted, nodes) that were older than ``GRACE_S`` when its request came. Changes made while it was
cut off from the API server count from ``RECOVERY_S`` after the end. Bindings of the replicas themselves count at once.
A binding breaks a rule if it does so in every view: with all such changes, with none of them, with the fewest and with the
most pods that there can have been.

The bindings of one round are sent at the same time. Pods that a pod must be near to, or is spread among, may therefore be
bound up to ``GRACE_S`` later, or be deleted at that moment. Neither rule is judged while bindings fail.
"""

from __future__ import annotations

import math
import time
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TypeVar

import msgspec
from audit import Write
from cluster_watch import Change
from naive_checker import Cluster, requests, static

from flowsched_k8s import names
from flowsched_k8s.groups.pod_groups import MINIMUM_LABEL, NAME_LABEL
from flowsched_k8s.objects import Node, Pod

T = TypeVar("T")
GRACE_S = 2.0
RECOVERY_S = 10.0
GANG_S = 10.0
"""How long it may take from the first binding of a gang to that which makes it whole, without disturbances."""
ON_THE_WAY_S = 0.5
"""What was sent right before a lease was lost may arrive so much later."""
KEPT_S = 120.0
"""How long changes and requests are remembered."""
_UNSURE = ("affinity", "affinity: no label", "spread", "spread: no label")


@dataclass
class Disturbance:
    """From when to when replicas could not do their work as usual."""

    began: float
    """In seconds since the epoch."""
    ended: float = math.inf
    blind: bool = True
    """Whether they were cut off from the API server, or did not hear from it."""


@dataclass(frozen=True)
class _Undo:
    """What a change by others replaced; None: nothing."""

    at: float
    uid: str
    pod: tuple[Pod | None, Pod | None] | None = None
    node: tuple[Node | None, Node | None] | None = None


@dataclass
class _Gang:
    minimum: int
    bound: set[str] = field(default_factory=set)
    """All that ever were."""
    first: float = math.inf
    """When the first binding was asked for: on a slow server it is seen seconds later."""
    last: float = -math.inf
    deleted: float = -math.inf
    """When a member that had no node was deleted last."""
    torn: bool = False


class BindingChecker:
    """Is told all changes and requests, and keeps what was violated."""

    def __init__(self, replicas: Iterable[str], schedulers: Iterable[str]) -> None:
        """``replicas``: their users; ``schedulers``: the names of theirs that pods have."""
        self.replicas = frozenset(replicas)
        self.schedulers = frozenset(schedulers)
        self.violations: list[str] = []
        self.counts: Counter[str] = Counter()
        self.disturbances: list[Disturbance] = []
        self._nodes: dict[str, Node] = {}
        self._pods: dict[str, Pod] = {}
        self._first_seen: dict[str, float] = {}
        self._placed: dict[str, tuple[Pod, str]] = {}
        """Those that hold what is a node's, by uid."""
        self._gone: dict[str, tuple[float, Pod]] = {}
        self._undo: deque[_Undo] = deque()
        self._bindings: deque[Write] = deque()
        self._unjudged: deque[Write] = deque()
        self._deleted: set[str] = set()
        """Uids of victims."""
        self._bound: dict[str, str] = {}
        """Where the bindings that succeeded put pods, by uid."""
        self._leases: list[tuple[float, float, str]] = []
        """Arrival and answer of each request that gave the lease to another user, and that one; empty: to none."""
        self._gangs: dict[tuple[str, str], _Gang] = {}

    @contextmanager
    def disturbed(self, blind: bool = True) -> Iterator[None]:
        """Replicas are disturbed meanwhile."""
        self.disturbances.append(Disturbance(time.time(), blind=blind))
        try:
            yield
        finally:
            self.disturbances[-1].ended = time.time()

    def feed(self, changes: Iterable[Change], writes: Iterable[Write], until: float) -> None:
        """What came since the last time: all changes up to a moment, oldest first, and requests, also of later."""
        for one in writes:
            self._hear(one)
        for change in changes:
            self._judge_writes(change.at)
            self._apply(change)
        self._judge_writes(until)
        self._judge_gangs(until)
        self._forget(until - KEPT_S)

    # Writes

    def _hear(self, one: Write) -> None:
        if one.does == "lease":
            if one.done and one.user in self.replicas:
                user = one.user if one.holder else ""
                if not self._leases or self._leases[-1][2] != user:
                    self._leases.append((one.at, one.answered, user))
            return
        if one.does == "bind":
            self._bindings.append(one)
            if one.done:
                if one.uid in self._bound:
                    self._violated(f"{one.what} was bound twice: to {self._bound[one.uid]} and {one.node}")
                self._bound[one.uid] = one.node
        if one.user in self.replicas:
            self._unjudged.append(one)

    def _judge_writes(self, until: float) -> None:
        while self._unjudged and self._unjudged[0].at <= until:
            one = self._unjudged.popleft()
            self.counts["writes"] += 1
            self._judge_lease(one)
            if one.does == "delete" and one.done:
                self._judge_victim(one)

    def _judge_lease(self, one: Write) -> None:
        """A write needs the lease from some moment since its user took it to the moment at which another one did."""
        holder = ""
        for arrived, answered, user in self._leases:
            if arrived <= one.at:
                if user != one.user and one.at <= answered + ON_THE_WAY_S and holder == one.user:
                    return
                holder = user
        if holder != one.user:
            held = f"{holder} had it" if holder else "no replica had it"
            self._violated(f"{one.user} wrote without the lease ({held}): {one.does} {one.what}")

    def _judge_victim(self, one: Write) -> None:
        self.counts["victims"] += 1
        victim = self._pods.get(one.uid) or self._gone.get(one.uid, (0.0, None))[1]
        if victim is None:
            self.counts["victims that were not seen"] += 1
            return
        waiting = [pod for pod in self._pods.values() if self._ours(pod) and not pod.spec.node_name]
        lately = [pod for at, pod in self._gone.values() if at > one.at - GRACE_S and self._ours(pod)]
        settled = [
            self._pods[a.uid] for a in self._bindings if a.at > one.at - GRACE_S and a.done and a.uid in self._pods
        ]
        candidates = [*waiting, *lately, *(pod for pod in settled if self._ours(pod))]
        nominated = [pod for pod in candidates if pod.status.nominated_node_name == victim.spec.node_name]
        highest = max((priority(pod) for pod in nominated or candidates), default=None)
        if highest is None or highest <= priority(victim):
            self._violated(
                f"{one.what} (priority {priority(victim)}) was a victim, and the highest priority that waited for its "
                f"node was {highest}"
            )
        late = self._terminates_since(one.uid) <= one.at - GRACE_S and not self._unsettled(one.at)
        if late and one.uid not in self._deleted:  # else it is the same request again, whose answer was lost
            self._violated(f"{one.what} was a victim although it was being deleted already")
        self._deleted.add(one.uid)

    def _terminates_since(self, uid: str) -> float:
        """When others began to delete a pod."""
        for change in self._undo:
            if change.uid == uid and change.pod is not None and change.pod[1] is not None:
                before, after = change.pod
                if _terminates(after) and not _terminates(before):
                    return change.at
        return math.inf

    def _unsettled(self, at: float) -> bool:
        """Whether replicas may be out of date, or bindings without an outcome, because of a disturbance."""
        return any(one.began <= at <= one.ended + RECOVERY_S for one in self.disturbances)

    # Changes

    def _apply(self, change: Change) -> None:
        thing = change.thing
        if isinstance(thing, Node):
            self._apply_node(change, thing)
            return
        uid, before = thing.metadata.uid, self._pods.get(thing.metadata.uid)
        was = before.spec.node_name if before is not None else ""
        if change.gone:
            self._pods.pop(uid, None)
            self._first_seen.pop(uid, None)
            self._gone[uid] = (change.at, thing)
        else:
            self._pods[uid] = thing
            self._first_seen.setdefault(uid, change.at)
        node = thing.spec.node_name
        if was and node and was != node:
            self._violated(f"{name_of(thing)} went from {was} to {node}")
        binder = self._binder(uid, node) if node and not was and before is not None and not change.gone else None
        if binder is not None and binder.user in self.replicas:
            self._judge_binding(thing, node, binder, change.exact)
        elif node and not was and before is not None and binder is None and not change.gone:
            self.counts["bindings that the audit log has no request of"] += 1
        self._place(change, thing, binder)
        self._count_member(change, thing, change.at if binder is None else binder.at)

    def _place(self, change: Change, pod: Pod, binder: Write | None) -> None:
        uid = pod.metadata.uid
        old = self._placed.get(uid, (None, ""))[0]
        holds = bool(pod.spec.node_name) and not change.gone and pod.status.phase not in ("Succeeded", "Failed")
        new = pod if holds else None
        if new is not None:
            self._placed[uid] = (new, new.spec.node_name)
        else:
            self._placed.pop(uid, None)
        if binder is not None and binder.user in self.replicas:
            return
        if (old is None) != (new is None) or (old and new and _seen_by_others(old) != _seen_by_others(new)):
            self._undo.append(_Undo(change.at, uid, pod=(old, new)))

    def _apply_node(self, change: Change, node: Node) -> None:
        name = node.metadata.name
        before = self._nodes.get(name)
        if change.gone:
            self._nodes.pop(name, None)
        else:
            self._nodes[name] = node
        if before is None or change.gone or _offers(before) != _offers(node):
            self._undo.append(_Undo(change.at, name, node=(before, None if change.gone else node)))

    def _binder(self, uid: str, node: str) -> Write | None:
        """Who has bound a pod: the request that was answered so, or the first one where none was."""
        asked = [one for one in self._bindings if one.uid == uid and one.node == node]
        return next((one for one in asked if one.done), next(iter(asked), None))

    # Bindings

    def _judge_binding(self, pod: Pod, node: str, asked: Write, exact: bool) -> None:
        self.counts["bindings"] += 1
        views = _Views(self._nodes, self._placed, self._uncertain(asked.at), pod)
        what = f"{name_of(pod)} was bound to {node} by {asked.user}"
        versions = views.versions(node)
        if not versions:
            if not views.unsure and self._nodes:
                self._violated(f"{what}, which is not there")
            return
        if refusals := _all_refuse(static(pod, one) for one in versions):
            self._violated(f"{what}: {refusals}")
        clusters = [cluster for cluster in views.clusters() if node in cluster.nodes]
        wanted = {"pods", *(resource for resource, n in requests(pod).items() if n)}
        if refusals := _all_refuse(
            too_little(cluster.plus(pod, node).overcommitted(node, wanted)) for cluster in clusters
        ):
            self._violated(f"{what}: {refusals}")
        if not exact:
            return
        meant = self._meant(asked.at, pod.metadata.uid)
        reasons = [cluster.related(pod, node) for cluster in clusters]
        if all(reason in _UNSURE for reason in reasons):
            # What else was bound in that round.
            reasons += [self._with(cluster, meant).related(pod, node) for cluster in clusters]
        if refusals := _all_refuse(reasons):
            if refusals in _UNSURE and self._unsettled(asked.at):
                self.counts["relations not judged while bindings fail"] += 1
            else:
                self._violated(f"{what}: {refusals}")

    def _meant(self, at: float, but: str) -> list[tuple[Pod, str]]:
        """Pods that replicas sent a binding of at about that time, and where to."""
        found = {}
        for one in self._bindings:
            if abs(one.at - at) <= GRACE_S and one.uid != but and one.user in self.replicas:
                pod = self._pods.get(one.uid) or self._gone.get(one.uid, (0.0, None))[1]
                if pod is not None:
                    found[one.uid] = (pod, one.node)
        return list(found.values())

    @staticmethod
    def _with(cluster: Cluster, more: Sequence[tuple[Pod, str]]) -> Cluster:
        there = {pod.metadata.uid for pod, _ in cluster.placed}
        return replace(cluster, placed=[*cluster.placed, *(p for p in more if p[0].metadata.uid not in there)])

    def _uncertain(self, at: float) -> list[_Undo]:
        """Changes by others that a request of that moment need not know of."""
        return [change for change in self._undo if self._known(change.at) > at]

    def _known(self, at: float) -> float:
        """From when on replicas can be expected to know of a change at a moment."""
        known = at + GRACE_S
        for one in self.disturbances:
            if one.blind and at <= one.ended and known >= one.began:
                known = max(known, one.ended + RECOVERY_S)
        return known

    # Gangs

    def _count_member(self, change: Change, pod: Pod, asked: float) -> None:
        labels = pod.metadata.labels or {}
        if NAME_LABEL not in labels or not self._ours(pod):
            return
        key = (pod.metadata.namespace, labels[NAME_LABEL])
        gang = self._gangs.setdefault(key, _Gang(int(labels[MINIMUM_LABEL])))
        if pod.spec.node_name and pod.metadata.uid not in gang.bound:
            gang.bound.add(pod.metadata.uid)
            gang.first, gang.last = min(gang.first, asked), change.at
        if change.gone and not pod.spec.node_name:
            gang.deleted = change.at

    def _is_too_small(self, gang: _Gang) -> bool:
        """Whether fewer are bound than have to be, although all that was known when they were is still there."""
        return 0 < len(gang.bound) < gang.minimum and self._known(gang.deleted) < gang.first

    def _judge_gangs(self, now: float) -> None:
        for (namespace, name), gang in self._gangs.items():
            if gang.torn or not self._is_too_small(gang):
                continue
            since = max([gang.last, *(one.ended + RECOVERY_S for one in self.disturbances)])
            if now > since + GANG_S:
                gang.torn = True
                self._violated(
                    f"gang {namespace}/{name}: {len(gang.bound)} of at least {gang.minimum} members were bound, "
                    f"and no other for {now - gang.last:.0f} s"
                )

    def torn(self) -> list[str]:
        """Gangs of which fewer are bound than have to be, whatever the time, and which are no violation yet."""
        return [name for (_, name), gang in self._gangs.items() if not gang.torn and self._is_too_small(gang)]

    # Pods that wait

    def fitting(self, seen_by: float) -> list[str]:
        """Pods that wait since a moment or longer although a node would do, beside pods that are nominated.

        Of a gang all that wait must fit together. Measured pods may wait because that costs less, and are left out.
        """
        waiting = [pod for pod in self._pods.values() if self._ours(pod) and not pod.spec.node_name]
        nominated = [(pod, pod.status.nominated_node_name) for pod in waiting if pod.status.nominated_node_name]
        cluster = Cluster(dict(self._nodes), [*self._placed.values(), *nominated])
        found: list[str] = []
        verdicts: dict[bytes, bool] = {}
        gangs: dict[tuple[str, str], list[Pod]] = {}
        for pod in waiting:
            if self._first_seen[pod.metadata.uid] > seen_by or _terminates(pod) or _may_wait(pod):
                continue
            labels = pod.metadata.labels or {}
            if NAME_LABEL in labels:
                gangs.setdefault((pod.metadata.namespace, labels[NAME_LABEL]), []).append(pod)
                continue
            kind = msgspec.json.encode((pod.metadata.namespace, labels, pod.spec, pod.status.nominated_node_name))
            if kind not in verdicts:
                verdicts[kind] = _place_for(cluster.without(pod), pod) is not None
            if verdicts[kind]:
                found.append(name_of(pod))
        for key, members in gangs.items():
            gang = self._gangs[key]
            there = sum(uid in self._pods for uid in gang.bound)
            if there + len(members) >= gang.minimum and _fit_together(cluster, members):
                found += map(name_of, members)
        return found

    def _ours(self, pod: Pod) -> bool:
        return pod.spec.scheduler_name in self.schedulers

    def _violated(self, what: str) -> None:
        if what not in self.violations:
            self.violations.append(what)

    def _forget(self, before: float) -> None:
        """Not what was undecided for as long as a disturbance has lasted."""
        last = self.disturbances[-1] if self.disturbances else None
        if last is not None and last.began - GRACE_S < before < last.ended + RECOVERY_S:
            before = last.began - GRACE_S
        while self._undo and self._undo[0].at < before:
            self._undo.popleft()
        while self._bindings and self._bindings[0].at < before:
            self._bound.pop(self._bindings.popleft().uid, None)
        self._gone = {uid: entry for uid, entry in self._gone.items() if entry[0] >= before}
        self._deleted &= self._gone.keys() | self._pods.keys()
        alive = {(p.metadata.namespace, (p.metadata.labels or {}).get(NAME_LABEL, "")) for p in self._pods.values()}
        self._gangs = {key: gang for key, gang in self._gangs.items() if key in alive or gang.last >= before}


class _Views:
    """What a scheduler may have taken for the cluster: with all changes that are uncertain, with none, and between."""

    def __init__(
        self,
        nodes: Mapping[str, Node],
        placed: Mapping[str, tuple[Pod, str]],
        unsure: Sequence[_Undo],
        but: Pod,
    ) -> None:
        self.unsure = unsure
        self._now = {uid: entry for uid, entry in placed.items() if uid != but.metadata.uid}
        self._nodes = dict(nodes)

    def versions(self, name: str) -> list[Node]:
        """All that a node was."""
        seen = [self._nodes.get(name)]
        for change in self.unsure:
            if change.node is not None and change.uid == name:
                seen += change.node
        return [node for node in seen if node is not None]

    def clusters(self) -> Iterator[Cluster]:
        """The current one first."""
        yield Cluster(self._nodes, list(self._now.values()))
        if not self.unsure:
            return
        before, old_nodes = dict(self._now), dict(self._nodes)
        least, most = dict(self._now), dict(self._now)
        for change in reversed(self.unsure):
            if change.node is not None:
                _put(old_nodes, change.uid, change.node[0])
            if change.pod is not None:
                old = change.pod[0]
                _put(before, change.uid, None if old is None else (old, old.spec.node_name))
                if old is None:
                    least.pop(change.uid, None)
                else:
                    most.setdefault(change.uid, (old, old.spec.node_name))
                if change.pod[1] is None:
                    least.pop(change.uid, None)
        every = {**old_nodes, **self._nodes}
        for placed in (before, least, most):
            for nodes in (every, {**self._nodes, **old_nodes}):
                yield Cluster(nodes, list(placed.values()))


def _put(into: dict[str, T], key: str, value: T | None) -> None:
    if value is None:
        into.pop(key, None)
    else:
        into[key] = value


def _all_refuse(reasons: Iterable[str | None]) -> str | None:
    """The first reason, if there is one everywhere."""
    first = None
    for reason in reasons:
        if reason is None:
            return None
        first = first or reason
    return first


def too_little(resource: str | None) -> str | None:
    """A reason in words."""
    return None if resource is None else f"too little {resource}"


def name_of(pod: Pod) -> str:
    """With its namespace."""
    return f"{pod.metadata.namespace}/{pod.metadata.name}"


def priority(pod: Pod) -> int:
    """0 if it has none."""
    return pod.spec.priority or 0


def _terminates(pod: Pod | None) -> bool:
    return pod is not None and pod.metadata.deletion_timestamp is not None


def _may_wait(pod: Pod) -> bool:
    return names.PROFILE in (pod.metadata.annotations or {}) or bool(pod.spec.scheduling_gates)


def _seen_by_others(pod: Pod) -> object:
    """What counts for other pods."""
    return _terminates(pod), pod.metadata.labels, requests(pod)


def _offers(node: Node) -> object:
    return node.metadata.labels, node.spec, node.status.allocatable


def _place_for(cluster: Cluster, pod: Pod) -> str | None:
    return next((node for node in cluster.nodes if cluster.refuses(pod, node) is None), None)


def _fit_together(cluster: Cluster, pods: Sequence[Pod]) -> bool:
    for pod in pods:
        cluster = cluster.without(pod)
        node = _place_for(cluster, pod)
        if node is None:
            return False
        cluster = cluster.plus(pod, node)
    return True
