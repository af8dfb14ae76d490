"""What pending pods want: all that decides where each may go, worked out once and when the pod or its volumes change."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sized

from flowsched_k8s.configuration.configuration import Configuration
from flowsched_k8s.groups.pod_groups import group_ref, unsupported_group
from flowsched_k8s.pods.affinity import NO_RELATIONS, RelationIndex
from flowsched_k8s.pods.declared_relations import DeclaredRelations
from flowsched_k8s.pods.entries import PodEntry, Wants
from flowsched_k8s.pods.exclusions import Exclusions, exclusions
from flowsched_k8s.pods.filters import StaticFilter, static_filter
from flowsched_k8s.pods.images import images_of
from flowsched_k8s.pods.outside_pods import OutsidePods
from flowsched_k8s.pods.pod_index import PodIndex
from flowsched_k8s.pods.requests import pod_requests
from flowsched_k8s.pods.run_times import forecast_run_s
from flowsched_k8s.pods.spreading import workload_of
from flowsched_k8s.services.services import Services
from flowsched_k8s.volumes.volumes import VolumeIndex, claim_keys


class PodWants:
    """Of the pods of a cache; those of a template share them."""

    def __init__(
        self,
        configuration: Configuration,
        pods: Mapping[str, PodEntry],
        nodes: Sized,
        nominated: Mapping[str, str],
        index: PodIndex,
        volumes: VolumeIndex,
        relations: RelationIndex,
        declared: DeclaredRelations,
        outside: OutsidePods,
        services: Services,
    ) -> None:
        """Nothing was worked out. ``nominated``: nodes where room is made, by uid."""
        self._configuration = configuration
        self._pods = pods
        self._nodes = nodes
        self._nominated = nominated
        self._index = index
        self._volumes = volumes
        self._relations = relations
        self._declared = declared
        self._outside = outside
        self._services = services
        self._version = 0

    def of(self, entry: PodEntry) -> Wants:
        """All that decides where a pending pod may go; worked out once and when the pod or its volumes change."""
        pod = entry.pod
        if pod.spec.volumes and entry.attached_version != self._volumes.attached.version:
            entry.attached_version = self._volumes.attached.version
            if entry.wants is not None and entry.wants.shared != self._volumes.shared(pod, self._index.naming):
                entry.wants = None
        if entry.wants is None:
            like = entry.template
            if like is None or pod.spec.volumes or like.intent.service is not None:
                entry.wants = self._wants(entry)
            else:
                if like.wants is None or like.version != self._version:
                    base = like.base or like
                    version, latest = base.latest or (-1, None)
                    if latest is None or latest.costs or version != self._version:
                        like.wants = self._wants(entry)
                    else:
                        like.wants = latest.of_kind(*self._kind(entry, latest))
                    base.latest, like.version = (self._version, like.wants), self._version
                entry.wants = like.wants
        return entry.wants

    def is_prepared(self, entry: PodEntry) -> bool:
        """Whether :meth:`of` need not be worked out, unless volumes of the pod have changed."""
        like = entry.template
        known = like is not None and like.wants is not None and like.version == self._version
        return entry.wants is not None or (known and not entry.pod.spec.volumes)

    def ask_again(self, entry: PodEntry) -> None:
        """A pod was refused for what it costs, which may be less by now."""
        entry.wants = None
        if entry.template is not None:
            entry.template.version = -1

    def _wants(self, entry: PodEntry) -> Wants:
        pod = entry.pod
        shared = self._volumes.shared(pod, self._index.naming)
        if pod.spec.volumes:
            entry.needs = {**pod_requests(pod), **self._volumes.pod_volume_needs(pod, shared)}
        found = static_filter(pod, self._volumes)
        demanded, alone = self._declared.demands(entry), exclusions(pod)
        too_much = self._declared.too_much(found, demanded, alone, len(self._nodes))
        if too_much is not None:
            found, demanded, alone = StaticFilter(too_much), NO_RELATIONS, Exclusions()
        self._declared.declare(demanded, alone)
        holds = (*demanded.holds, *alone.holds)
        # A pod cannot be the first of its kind where another one is already, though where no node of the pool is.
        own = set(demanded.holds)
        found_joins = [n for n in self._relations.joins(pod) if n not in own or not self._outside.met(n)]
        joins = (*found_joins, *alone.joins)
        sources = self._configuration.features.pod_groups
        problem = (
            found.blocked or demanded.unsupported or self._declared.unreadable(pod) or unsupported_group(pod, sources)
        )
        group = group_ref(pod, sources)
        claims = self._volumes.exclusive(pod)
        service = self._services.wish_of(entry)
        known = Wants(
            found,
            holds,
            joins,
            demanded.soft,
            group,
            service,
            problem,
            claims,
            shared,
            workload_of(pod),
            images_of(pod),
            too_much is not None,
        )
        return known.of_kind(*self._kind(entry, known))

    def _kind(self, entry: PodEntry, wants: Wants) -> tuple[Hashable, ...]:
        """All that is the same in a class beside relations, of a pod with what it demands of nodes and of other pods."""
        intent = entry.intent
        return (
            entry.priority,
            wants.filter.key,
            tuple(sorted(entry.needs.items())),
            wants.soft,
            wants.group,
            intent.profile,
            intent.service,
            intent.scale,
            intent.goal_s,
            intent.min_utility,
            intent.widths_milli,
            wants.service,
            forecast_run_s(entry) if self._configuration.cost_model.is_flow else intent.run_s,
            intent.interference_class,
            intent.input_mb,
            intent.locality,
            entry.priced_class,
            # A problem may be that of one claim, and another namespace may have a claim of that name.
            claim_keys(entry.pod) if wants.problem is not None else (),
            tuple(sorted(wants.claims)),
            tuple(sorted(wants.shared)),
        )

    def claim_users(self, entry: PodEntry) -> set[str]:
        """Uids of pods that keep a waiting one from its claims: on nodes, or nominated and before it in line."""
        claims = self.of(entry).claims
        if not claims:
            return set()
        found = self._volumes.users(claims)
        for uid in self._nominated:
            other = self._pods[uid]
            if (-other.priority, other.order) < (-entry.priority, entry.order) and not other.place:
                found |= {uid} if claims & set(claim_keys(other.pod)) else set()
        return found - {entry.key.uid}

    def outdate(self) -> None:
        """What pods of a template want is worked out again."""
        self._version += 1

    def invalidate(self, which: Callable[[PodEntry], bool]) -> None:
        """Pods whose wants have to be worked out again."""
        self.outdate()
        for entry in self._pods.values():
            if entry.wants is not None and which(entry):
                entry.wants = None
