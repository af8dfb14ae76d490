"""Preemption on the cache: which pods could make room for a pending one, within disruption budgets."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace

import numpy as np

from flowsched.cluster.booked_tasks import BookedTasks
from flowsched.support.arrays import BoolArray
from flowsched_k8s.cache import Cache
from flowsched_k8s.groups.gangs import Gangs
from flowsched_k8s.groups.group_domains import GroupDomains
from flowsched_k8s.groups.pod_groups import GroupRef
from flowsched_k8s.instructions import PodKey
from flowsched_k8s.pods.entries import PodEntry
from flowsched_k8s.preemption.budgets import Budgets
from flowsched_k8s.preemption.preemption import (
    Occupant,
    Occupants,
    PreemptionPlan,
    Preemptor,
    is_movable,
    plan_preemption,
)
from flowsched_k8s.rounds.inputs import InputBuilder
from flowsched_k8s.rounds.round_input import Nominee

MOST_WORK = 40_000
""":attr:`Victims.work` of one round: planning holds up the event loop, and with it the renewal of the lease.

That is 32 plans for 1,000 nodes with 10,000 pods or eight for 5,000 nodes with 50,000, in about 0.2 s each; where ports or
relations are in the way it is fewer plans.
"""
LARGEST_GROUP = 4 * MOST_WORK
"""Pods of a group that are planned for together, times the nodes."""
_LEAST = 1_250
"""Work of a plan, however few nodes there are."""
_ASKED = 5
"""Asking one node by itself is so many times the work of looking at it among all."""
_RELATIONS = 16
"""Relations of a pod that one node is asked about in that time."""
_NEVER = float("inf")


@dataclass(eq=False)
class Victims:
    """Plans who leaves for whom; decides nothing."""

    _cache: Cache
    _inputs: InputBuilder
    _gangs: Gangs
    _budgets: Budgets
    _as_occupant: Callable[[Occupant], Occupant] | None = None
    """Says of pods whether they may leave, where that does not follow from what they are."""
    work: int = 0
    """Of all plans so far, in units of looking at one node among all."""
    _occupants: Occupants = field(default_factory=Occupants)
    _listed: dict[str, tuple[int, frozenset[PodKey]]] = field(default_factory=dict)
    """By node, its revision when its pods were put among the occupants, and these pods."""
    _late_s: dict[str, float] = field(default_factory=dict)
    """By node, when the first of its pods that are being deleted should be gone."""
    _now: float = 0.0
    """Of the last look."""
    _booked: BookedTasks | None = None
    """A copy, in which the room of nominated pods is taken."""
    _nominees: dict[str, Nominee] = field(default_factory=dict)
    """Those that it is taken for, by uid."""

    def __post_init__(self) -> None:
        """No pod is listed with other budgets than these."""
        self._counted = self._budgets.version

    def refresh(self, now: float) -> None:
        """Take note of the cluster as it is, as far as :meth:`would_fit` asks for it."""
        self._now = now
        self._booked = None
        self._nominees.clear()

    def look(self, now: float) -> None:
        """Take note of the cluster as it is; all plans until the next look go by that, and by which victims leave."""
        cache = self._cache
        self.refresh(now)
        if self._counted != self._budgets.version:
            self._counted = self._budgets.version
            self.read_again()
        for name in self._listed.keys() - cache.nodes.keys():
            self._late_s.pop(name, None)
            for pod in self._listed.pop(name)[1]:
                self._occupants.remove(pod)
        for name, node in cache.nodes.items():
            revision, pods = self._listed.get(name, (-1, frozenset()))
            if revision == cache.revisions.of(name) and self._late_s.get(name, _NEVER) > now:
                continue
            entries = [cache.pods[uid] for uid in node.pods]
            self._late_s[name] = min((e.leaves_s for e in entries if not e.is_late(now)), default=_NEVER)
            here = frozenset(e.key for e in entries)
            for pod in pods - here:
                if (entry := cache.pods.get(pod.uid)) is None or entry.place not in cache.nodes:
                    self._occupants.remove(pod)
            for pod in sorted(here):
                self._occupants.put(self._occupant(cache.pods[pod.uid]), name)
            self._listed[name] = cache.revisions.of(name), here

    def leave(self, uids: Iterable[str]) -> None:
        """These pods are victims from now on: their room comes without another victim."""
        for uid in uids:
            victim = self._cache.pods[uid]
            self._occupants.put(replace(self._occupant(victim), leaving=True), victim.place)
            self._listed[victim.place] = -1, self._listed[victim.place][1]

    def would_fit(self, entry: PodEntry, node: str, gone: AbstractSet[str]) -> bool:
        """Whether a node would take a waiting pod, were pods with these uids gone from it.

        Room that is held for other pods of no lower priority is not free.
        """
        self.work += _ASKED
        cache, booked = self._cache, self._copy_for(entry)
        machines = booked.machines
        there, row = cache.nodes.get(node), machines.row(node)
        wants = cache.wants(entry)
        if there is None or row is None or wants.problem is not None or wants.filter.verdict(there.node) is not None:
            return False
        if (full := self._inputs.too_many_volumes(entry)) is not None and full[row]:
            return False
        freed: Counter[str] = Counter()
        for uid in gone:
            freed.update(self._frees(cache.pods[uid]))
        return (
            cache.pod_wants.claim_users(entry) <= gone
            and machines.fits_on(entry.needs, node, freed)
            and booked.permits_on(
                wants.holds, wants.joins, node, self._inputs.verdicts(wants).eligible[: machines.rows], gone
            )
        )

    def plan(self, entry: PodEntry, within: BoolArray | None = None) -> PreemptionPlan | str:
        """Victims for one pod, or why no eviction would help. Nominations of other pods keep their room.

        ``within``: by machine row, the nodes that it may go to.
        """
        if self._budgets.unreadable:
            return f"no pod is evicted while PodDisruptionBudgets cannot be read: {self._budgets.unreadable}"
        cache, booked = self._cache, self._copy_for(entry)
        machines = booked.machines
        wants = cache.wants(entry)
        verdicts = self._inputs.verdicts(wants)
        eligible = verdicts.eligible[: machines.rows]
        passes = verdicts.passes[: machines.rows] & machines.alive
        if (full := self._inputs.too_many_volumes(entry)) is not None:
            passes &= ~full
        if within is not None:
            passes &= within
        users = cache.pod_wants.claim_users(entry)
        if users:
            # The claims are free again only where all that use them go, and a plan is about one node.
            places = {machines.row(cache.pods[uid].place) for uid in users}
            passes &= np.isin(np.arange(machines.rows), [row for row in places if row is not None and len(places) == 1])
        order = machines.order()
        rows = order[passes[order]]
        nodes = [str(machines.names[row]) for row in rows.tolist()]
        free = machines.free[rows]
        closed = np.full(len(rows), bool(users)) | ~machines.permits(wants.holds, wants.joins, eligible)[rows]
        # Every question costs the relations of the pod, of which most have a few.
        often = 1 + (len(wants.holds) + len(wants.joins)) // _RELATIONS
        if len(rows) and self._occupants.may_make_room(entry.priority):
            self.work += often * max(_LEAST, len(rows))

        def fits(node: str, without: AbstractSet[PodKey]) -> bool:
            """Whether ports, affinities, spreads and claims would let the pod in, were these pods gone."""
            self.work += often * _ASKED
            gone = {pod.uid for pod in without}
            return users <= gone and booked.permits_on(wants.holds, wants.joins, node, eligible, gone)

        return plan_preemption(
            Preemptor(machines.decisive(entry.needs), entry.priority, entry.pod.spec.preemption_policy or ""),
            nodes,
            {resource: free[:, i] for i, resource in enumerate(machines.resources)},
            self._occupants,
            self._budgets.allowed(),
            total=len(cache.nodes),
            fits=fits if users or wants.holds or wants.joins else None,
            closed=closed,
        )

    def plan_group(
        self, ref: GroupRef, entries: Sequence[PodEntry], needed: int, going: AbstractSet[str] = frozenset()
    ) -> tuple[dict[str, PreemptionPlan], str]:
        """By uid, what makes room for so many pods of a group together; nothing, and why, if it cannot be made.

        Of a group that is kept in one topology domain: there, in the domain of its first label in which the fewest leave.
        ``going``: uids of victims of other plans.
        """
        if needed * len(self._cache.nodes) > LARGEST_GROUP:
            return {}, f"not for {needed} pods at a time in a cluster of this size"
        topology = self._inputs.topology(ref)
        if topology is None:
            return self.plan_together(entries, needed, going)
        best: tuple[tuple[int, int], str, dict[str, PreemptionPlan]] | None = None
        most, whys = self.work + MOST_WORK, list[str]()
        for key, within in GroupDomains(self._cache.machines).possible(topology):
            if self.work >= most or (best is not None and best[1] != key):
                break
            plans, why = self.plan_together(entries, needed, going, within)
            if plans:
                rank = sum(p.violations for p in plans.values()), sum(len(p.victims) for p in plans.values())
                if best is None or rank < best[0]:
                    best = rank, key, plans
            else:
                whys.append(why)
        if best is not None:
            return best[2], ""
        return {}, f"in no topology domain: {whys[0]}" if whys else "there is no topology domain for the group"

    def is_bound_to_domain(self, ref: GroupRef) -> bool:
        """Whether the pods of a group may be in one topology domain only."""
        return self._inputs.topology(ref) is not None

    def plan_together(
        self,
        entries: Sequence[PodEntry],
        needed: int,
        going: AbstractSet[str] = frozenset(),
        within: BoolArray | None = None,
    ) -> tuple[dict[str, PreemptionPlan], str]:
        """The same for pods of no group, or within some nodes of the pool."""
        plans: dict[str, PreemptionPlan] = {}
        why = ""
        nominated = self._cache.nominated
        for entry in entries:
            if len(plans) == needed:
                break
            plan = self.plan(entry, within)
            if isinstance(plan, PreemptionPlan):
                plans[entry.key.uid] = plan
                # The others are planned for beside it.
                nominated[entry.key.uid] = plan.node
                self.leave(victim.uid for victim in plan.victims)
            else:
                why = why or plan
        for uid in plans:
            del nominated[uid]
        self.look(self._now)
        self.leave(going)
        if len(plans) == needed:
            return plans, ""
        return {}, f"room can be made for {len(plans)} of {needed} pods only: {why}"

    def _copy_for(self, entry: PodEntry) -> BookedTasks:
        """What is booked, with the room taken that other pods of no lower priority wait for: what leaves is theirs first."""
        if self._booked is None:
            self._booked = self._cache.booked.copy()
        wanted = {n.uid: n for n in self._inputs.nominees() if n.priority >= entry.priority and n.uid != entry.key.uid}
        for uid in self._nominees.keys() - wanted.keys():
            self._nominees.pop(uid).leave_room(self._booked)
        for uid, nominee in wanted.items():
            if self._nominees.get(uid) != nominee:
                nominee.take_room(self._booked)
                self._nominees[uid] = nominee
        return self._booked

    def _occupant(self, entry: PodEntry) -> Occupant:
        pod, late = entry.pod, entry.is_late(self._now)
        found = Occupant(
            entry.key,
            entry.priority,
            self._frees(entry),
            entry.started_s,
            self._budgets.counting(pod),
            not late and is_movable(pod) and self._gangs.breaks_apart(entry),
            entry.is_leaving and not late,
        )
        return found if self._as_occupant is None else self._as_occupant(found)

    def _frees(self, entry: PodEntry) -> Mapping[str, int]:
        """What is free on its node once a pod is gone, of resources that some node has had."""
        machines = self._cache.machines
        requests: Mapping[str, int] = self._cache.booked.needs_of(entry.key.uid)
        if any(machines.column(resource) < 0 for resource in requests):
            requests = {resource: n for resource, n in requests.items() if machines.column(resource) >= 0}
        if entry.pod.spec.volumes:
            requests = {**requests, **self._cache.volumes.freed_by(entry.pod)}
        return requests

    def read_again(self, nodes: Collection[str] | None = None) -> None:
        """What the pods of some nodes are has changed, or of all: which budgets count them, which of them go together."""
        for name in self._listed.keys() if nodes is None else self._listed.keys() & nodes:
            self._listed[name] = -1, self._listed[name][1]
