"""Pods that are evicted for others of higher priority, and the room that they leave."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field

from flowsched_k8s import names
from flowsched_k8s.bindings.bindings import Bindings
from flowsched_k8s.cache import Cache
from flowsched_k8s.causes import Cause, Wake
from flowsched_k8s.groups.gangs import Gangs
from flowsched_k8s.groups.pod_groups import GroupRef
from flowsched_k8s.instructions import Evict, Instruction, PodKey
from flowsched_k8s.metrics.tallies import Tallies
from flowsched_k8s.notices.notices import Notices
from flowsched_k8s.notices.recorder import Recorder
from flowsched_k8s.pods.entries import PodEntry
from flowsched_k8s.preemption.preemption import PreemptionPlan
from flowsched_k8s.preemption.victims import MOST_WORK, Victims
from flowsched_k8s.queue import PodQueue
from flowsched_k8s.rounds.round_input import Fate, Held
from flowsched_k8s.wakeups import Wakeups

NOMINATED = "NominatedPodAdd"
"""What happened, where room that a pod waits for is given to a more important one."""


@dataclass
class Preempted:
    """What came of the preemptions of a round."""

    instructions: list[Instruction] = field(default_factory=list)
    """Evictions, with their events."""
    told: dict[str, tuple[str, str | None]] = field(default_factory=dict)
    """By uid of a preemptor what it is told, once for the whole attempt, and its nomination."""
    coming: set[str] = field(default_factory=set)
    """uids of pods that room is being made for."""
    later: set[str] = field(default_factory=set)
    """uids of pods that no preemption was planned for yet: the next round's."""
    going: set[str] = field(default_factory=set)
    """uids of all victims."""


@dataclass(eq=False)
class Evictions:
    """Says who is evicted for whom, and remembers it until the room is there. Of one scheduler: its parts change with it."""

    _cache: Cache
    _queue: PodQueue
    _planner: Victims
    _recorder: Recorder
    _tallies: Tallies
    _wakeups: Wakeups
    _notices: Notices
    _bindings: Bindings
    _gangs: Gangs
    _victims: dict[str, set[str]] = field(default_factory=dict)
    """uid of a preemptor -> uids of the pods that make room for it."""
    _awaited: set[str] = field(default_factory=set)
    """uids of preemptors that the round under way cannot have placed: a pod was still leaving when it began."""

    def forget(self, uid: str) -> None:
        """A pod is gone."""
        self._victims.pop(uid, None)

    def round_begins(self, now: float) -> None:
        """What is free from now on the round does not see."""
        self._awaited = {uid for uid in self._victims if self._is_leaving_for(uid, now)}

    def leaves(self, pod: PodEntry, now: float) -> None:
        """A pod has begun to leave its node: by when it should be gone, those that wait for its room are tried again."""
        for uid, node in self._cache.nominated.items():
            if node == pod.place:
                self._queue.retry_by(self._cache.pods[uid].key, max(now, pod.leaves_s))

    def late_s(self, uid: str, now: float) -> float:
        """When the first of the pods that a preemptor waits for should be gone; infinite if that is not known."""
        return min((self._cache.pods[u].leaves_s for u in self._coming(uid, now)), default=float("inf"))

    def failed(
        self, victim: PodKey, message: str, now: float, others: AbstractSet[str] | None = None
    ) -> list[Instruction]:
        """A victim stays: no pod waits for its room any more, and those that did hear why.

        ``others``: pods that are not asked to go any more for that; then the room is not held either.
        """
        out: list[Instruction] = []
        stay = {victim.uid, *(others or ())}
        for uid, victims in list(self._victims.items()):
            if stay.isdisjoint(victims):
                continue
            victims -= stay
            entry = self._cache.pods.get(uid)
            if entry is None or entry.place:
                continue
            self._awaited.discard(uid)
            over = others is not None and uid in self._cache.nominated and not self._room_is_coming(uid, now)
            text = f"{entry.message} {victim} could not be evicted: {message}"
            out += self._notices.tell(entry, names.UNSCHEDULABLE, text, now, nominated_node="" if over else None)
        return out

    def make_room(self, plans: Mapping[str, PreemptionPlan], now: float) -> list[Instruction]:
        """Hold the room that pods leave who are moved elsewhere, for those of these uids that still wait."""
        out: list[Instruction] = []
        for uid, plan in plans.items():
            entry = self._cache.pods.get(uid)
            if entry is not None and not entry.place and not entry.is_leaving:
                self._victims[uid] = {victim.uid for victim in plan.victims}
                self._cache.nominated[uid] = plan.node
                text = f"{entry.message} rebalancing: {len(plan.victims)} pod(s) leave {plan.node}."
                out += self._notices.tell(entry, names.UNSCHEDULABLE, text, now, nominated_node=plan.node)
        return out

    def reconsider(self, now: float, event: str, which: Callable[[PodEntry, str], bool]) -> None:
        """Something has changed that may end nominations: these preemptors, with their nodes, are tried again."""
        for uid, node in self._cache.nominated.items():
            entry = self._cache.pods[uid]
            if not entry.place and which(entry, node):
                self._queue.touch(entry.key, now, event)

    def joined_by(self, pod: PodEntry, now: float) -> None:
        """A pod is on a node, or is another one there: it may take room that others were to get, or keep them out."""
        if not self._cache.nominated:
            return
        relations = self._cache.declared.of(pod)
        claims = self._cache.volumes.exclusive(pod.pod)

        def concerns(entry: PodEntry, node: str) -> bool:
            # What we place heeds the room that is held for pods of the same and higher priority.
            if pod.ours and pod.priority < entry.priority:
                return False
            if node == pod.place or not entry.ours or not (relations or claims):
                return node == pod.place
            wants = self._cache.wants(entry)
            return not (relations.isdisjoint((*wants.holds, *wants.joins)) and claims.isdisjoint(wants.claims))

        self.reconsider(now, Wake.POD_PLACED, concerns)

    def give_up(self, uid: str, now: float) -> bool:
        """No node takes a pod, so no room is made for it any more; whether any was."""
        nominated = uid in self._cache.nominated
        self._end(uid, now)
        return nominated

    def node_gone(self, node: str, now: float) -> list[Instruction]:
        """Pods that were nominated to a node need another one: their nomination ends and they are tried again."""
        out: list[Instruction] = []
        for uid in sorted(uid for uid, name in self._cache.nominated.items() if name == node):
            entry = self._cache.pods[uid]
            if entry.ours and not entry.place:
                del self._cache.nominated[uid]
                self.forget(uid)
                self._queue.touch(entry.key, now, Wake.NODE_REMOVED)
                text = f"the nominated node {node} is gone"
                out += self._notices.tell(entry, names.UNSCHEDULABLE, text, now, nominated_node="")
        return out

    def plan(self, held: Sequence[Held], unsent: set[str], now: float) -> Preempted:
        """Who is evicted so that the pods that a round has not placed get room.

        ``unsent``: pods whose place the API server does not know yet, such as those whose volumes are being made. They
        give it back instead of being deleted.
        """
        out = Preempted()
        hopeless: dict[Hashable, str] = {}
        most = self._planner.work + MOST_WORK
        preempts = self._cache.configuration.features.preemption
        held = [h for h in held if h.fate is Fate.UNSCHEDULABLE]
        if held and preempts:
            self._planner.look(now)
        elif held:
            # Rebalancing has room made as well.
            self._planner.refresh(now)
        groups: dict[GroupRef, dict[str, str]] = {}
        for h in held:
            for uid in h.uids:
                ref = self._group(uid)
                if Cause.GROUP in h.causes or (ref is not None and self._planner.is_bound_to_domain(ref)):
                    if ref is not None:
                        groups.setdefault(ref, {})[uid] = h.message
                    continue
                entry = self._cache.pods.get(uid)
                if entry is None or entry.place or entry.is_leaving:
                    continue
                if self._room_is_coming(uid, now):
                    out.coming.add(uid)
                    continue
                if not preempts:
                    if entry.nominated:
                        out.told[uid] = h.message, ""
                    continue
                wants = self._cache.wants(entry)
                kind = wants.class_key, entry.pod.spec.preemption_policy
                if kind not in hopeless:
                    if self._planner.work >= most:
                        out.later.add(uid)
                        continue
                    plan = self._planner.plan(entry)
                    if isinstance(plan, PreemptionPlan):
                        self._carry_out(entry, plan, h.message, unsent, out, now)
                        continue
                    # Neither would another pod of its class find a victim.
                    hopeless[kind] = plan
                self._tallies.victims.append(0)
                # A nomination that came to nothing holds room from others no longer.
                out.told[uid] = f"{h.message} preemption: {hopeless[kind]}".strip(), "" if entry.nominated else None
        for ref, messages in groups.items():
            self._plan_group(ref, messages, unsent, out, most, now)
        return out

    def _group(self, uid: str) -> GroupRef | None:
        entry = self._cache.pods.get(uid)
        return None if entry is None or entry.place or entry.is_leaving else self._gangs.ref(entry)

    def _plan_group(
        self, ref: GroupRef, messages: Mapping[str, str], unsent: set[str], out: Preempted, most: int, now: float
    ) -> None:
        """Room for as many pods of a group as have to start together, or no eviction at all. ``messages`` by uid."""
        if any(self._may_come(uid, now) for uid in messages) and not any(self._is_lost(uid, now) for uid in messages):
            out.coming |= messages.keys()
            return
        for uid in messages:
            self._end(uid, now)
        if not self._cache.configuration.features.preemption:
            out.told |= {uid: (text, "") for uid, text in messages.items() if self._cache.pods[uid].nominated}
            return
        if self._planner.work >= most:
            out.later |= messages.keys()
            return
        needed = max(1, self._gangs.missing(next(iter(messages))))
        entries = [self._cache.pods[uid] for uid in messages]
        plans, why = self._planner.plan_group(ref, entries, needed, out.going)
        for entry in entries:
            uid, message = entry.key.uid, messages[entry.key.uid]
            if uid in plans:
                self._carry_out(entry, plans[uid], message, unsent, out, now, hold=True)
            else:
                told = "room is made for the other pods of the group." if plans else why
                self._tallies.victims.append(0)
                out.told[uid] = f"{message} preemption: {told}".strip(), "" if entry.nominated else None

    def _coming(self, uid: str, now: float) -> set[str]:
        """Uids of the pods that leave the node that a pod is nominated to, and whose room counts for it.

        Those that were asked to go for it count, whatever their priority; of others the less important ones.
        """
        node = self._cache.nominated.get(uid, "")
        if node not in self._cache.nodes:
            return set()
        victims = self._victims.get(uid, set()) & self._cache.pods.keys()
        on_time = {victim for victim in victims if not self._cache.pods[victim].is_late(now)}
        return on_time | self._leaving(node, self._cache.pods[uid].priority, now)

    def _is_leaving_for(self, uid: str, now: float) -> bool:
        """Whether pods are still leaving to make room for one."""
        return bool(self._coming(uid, now))

    def _may_come(self, uid: str, now: float) -> bool:
        """The same, also where the last of them has left during the round."""
        return uid in self._awaited or self._is_leaving_for(uid, now)

    def _is_lost(self, uid: str, now: float) -> bool:
        """Whether a pod will not fit on its nominated node, even when those have left whose room counts for it.

        The node may have been cordoned meanwhile, or filled by others, or a victim should be gone by now and is not.
        """
        node = self._cache.nominated.get(uid)
        return node is not None and not self._planner.would_fit(self._cache.pods[uid], node, self._coming(uid, now))

    def _carry_out(
        self,
        entry: PodEntry,
        plan: PreemptionPlan,
        message: str,
        unsent: set[str],
        out: Preempted,
        now: float,
        hold: bool = False,
    ) -> None:
        """Nominate a pod to the node of its plan and evict the victims, which join those of the round.

        ``hold``: also where there is room already.
        """
        uid = entry.key.uid
        evicted = [victim for victim in plan.victims if victim.uid not in unsent]
        uids = {victim.uid for victim in evicted}
        if plan.victims:
            self._tallies.victims.append(len(plan.victims))
            said = f"{len(plan.victims)} pod(s) on {plan.node} make room."
        else:
            going = out.going & self._cache.nodes[plan.node].pods
            uids = self._leaving(plan.node, entry.priority, now) | going
            if not uids and not hold:
                # Room has come while the round ran, and wakes it.
                return
            said = f"pods that leave {plan.node} make room." if uids else f"{plan.node} has room."
        for victim in plan.victims:
            if victim.uid in unsent:
                self._bindings.withdraw(victim.uid, unsent, now)
        if len(evicted) < len(plan.victims):
            # Pods have left their places at once, perhaps whole groups.
            self._planner.look(now)
            self._planner.leave(out.going)
        out.going |= {victim.uid for victim in evicted}
        self._planner.leave(victim.uid for victim in evicted)
        self._victims[uid] = uids
        for victim in evicted:
            text = f"Preempted by pod {uid} ({entry.key}) on node {plan.node}"
            out.instructions.append(Evict(victim, text))
            event = self._recorder.preempted(victim, text, now)
            out.instructions += [event] if event is not None else []
        out.told[uid] = f"{message} preemption: {said}".strip(), plan.node
        out.coming.add(uid)
        self._cache.nominated[uid] = plan.node
        # Less important preemptors that counted on this room need another node.
        self.reconsider(now, NOMINATED, lambda e, node: node == plan.node and e.priority < entry.priority)

    def _leaving(self, node: str, priority: int, now: float) -> set[str]:
        """Uids of the pods below a priority that are being deleted on a node, and that need not be gone yet."""
        here = (self._cache.pods[uid] for uid in self._cache.nodes[node].pods)
        return {e.key.uid for e in here if e.is_leaving and e.priority < priority and not e.is_late(now)}

    def _room_is_coming(self, uid: str, now: float) -> bool:
        """Whether a preemption is still making room for a pod. Once its victims are gone and it does not fit, it is over."""
        if self._may_come(uid, now) and not self._is_lost(uid, now):
            return True
        self._end(uid, now)
        return False

    def _end(self, uid: str, now: float) -> None:
        """No room is made for a pod any more, and what was held for it is for all."""
        self._awaited.discard(uid)
        self._victims.pop(uid, None)
        nominated = self._cache.nominated.pop(uid, None)
        if nominated is not None:
            self._wakeups.room_on(nominated, now)
