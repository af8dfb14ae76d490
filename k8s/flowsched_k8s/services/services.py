"""Latency services on nodes: what each pod bears and causes, what a service's goal leaves its neighbours."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace

from flowsched.cluster.booked_tasks import BookedTasks
from flowsched.cluster.settings import Settings
from flowsched.cluster.snapshot import MILLI
from flowsched.pricing.linear.headroom import Headroom, headroom, job_behaviour, service_pressure
from flowsched_k8s import names
from flowsched_k8s.configuration.configuration import EVERY_NAMESPACE
from flowsched_k8s.instructions import PodKey
from flowsched_k8s.pods.entries import NodeEntry, PodEntry
from flowsched_k8s.pods.readings import core_set
from flowsched_k8s.rounds.round_input import Keeper
from flowsched_k8s.services.grant import CLAIMS, CLIENT, CORES, GOAL, LOAD, PROFILE, Grant
from flowsched_k8s.services.keepers import PrecedenceClaim
from flowsched_k8s.services.latency import GoalReach, ServiceWish, choose_curve, goal_reach
from flowsched_models.catalogue import Catalogue
from flowsched_models.machine import MachineType
from flowsched_models.neutral import NEUTRAL

_BELOW_ALL = -1e6
"""A limit that no pressure keeps, for a goal that is missed without neighbours: events have no infinity."""


@dataclass(eq=False)
class Services:
    """What pods are like, at the loads that are known. Nodes, pods and bookings are those of a cache, which changes them."""

    _nodes: Mapping[str, NodeEntry]
    _pods: Mapping[str, PodEntry]
    _booked: BookedTasks
    _settings: Settings
    _ceilings: Mapping[str, float]
    """By namespace, how many times the load of its goal a service may count with; 1 where none is named."""
    catalogue: Catalogue
    _touch: Callable[[str], None]
    """Told of each node of which something changes."""
    beyond: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """By uid, what services that are bound claim and were not granted."""
    keepers: dict[str, tuple[Keeper, ...]] = field(default_factory=dict)
    """By node, the services there whose goals keep pods off."""
    _loads: Callable[[PodKey], float | None] = lambda _key: None
    """No load is measured before :meth:`read_loads`."""

    def behaviour(self, entry: PodEntry) -> tuple[float, float]:
        """(sensitivity, pressure on its node): a service's, a measured job's or the neutral profile's."""
        cores = entry.request_milli / MILLI
        counted = self.counted(entry)
        if counted is not None:
            return 0.0, service_pressure(self.catalogue.services[counted.profile], cores, counted.qps)
        if entry.intent.service is not None:
            profile = self.catalogue.services[entry.intent.service]
            return 0.0, service_pressure(profile, cores, self.qps(entry) or 0.0)
        return job_behaviour(self.catalogue.jobs[entry.intent.profile or NEUTRAL], cores)

    def qps(self, entry: PodEntry) -> float | None:
        """Load of a service: measured, else annotated, else what its goal was stated for."""
        load, slo = self._load(entry), entry.intent.slo
        return load if load is not None else (slo.qps if slo else None)

    def _load(self, entry: PodEntry) -> float | None:
        """The load that a service has now, as far as that is known."""
        measured = self._loads(entry.key)
        return entry.intent.load_qps if measured is None else measured

    def read_loads(self, source: Callable[[PodKey], float | None]) -> None:
        """Where measured loads come from from now on; places of services are priced anew."""
        self._loads = source
        for name, entry in self._nodes.items():
            if entry.services:
                self.settle(name)

    def wish_of(self, entry: PodEntry) -> ServiceWish | None:
        """The latency service that a pod is, if it says so and its profile was measured: what it asks for while it waits."""
        intent = entry.intent
        if intent.service is None or intent.slo is None:
            return None
        client = self._client(intent.service, intent.client)
        qps = self.qps(entry)
        return ServiceWish(
            intent.service, intent.slo.p95_us, intent.slo.qps if qps is None else qps, client, entry.request_milli
        )

    def _client(self, service: str, named: str | None) -> str:
        """The client of a service that was named, if the service was measured with it."""
        clients = self.catalogue.services[service].clients
        if named is not None and named in clients:
            return named
        # A client that is not named sees the service at its slowest.
        return max(clients, key=lambda c: (clients[c], c))

    def grant(self, entry: PodEntry, node: str, threads: int, cores: tuple[int, ...]) -> Grant | None:
        """What a pod is granted that gets a node, with threads and cores there; None for one that is no service."""
        wish, slo = self.wish_of(entry), entry.intent.slo
        if wish is None or slo is None:
            return None
        return Grant(node, replace(wish, qps=slo.qps), threads, cores)

    def counted(self, entry: PodEntry) -> ServiceWish | None:
        """What a pod on a node counts as: what it was granted, with the load that it has now up to the ceiling. None for a
        pod that was granted nothing.
        """
        grant = entry.grant
        if grant is None or grant.wish.profile not in self.catalogue.services:
            return None
        changed = set(self._claims(entry, grant)) - {LOAD}
        # What is claimed now says nothing of the load of what was granted.
        wish = grant.counted(None if changed else self._load(entry), self._multiple(entry), entry.request_milli)
        return replace(wish, client=self._client(wish.profile, wish.client))

    def _multiple(self, entry: PodEntry) -> float:
        """How many times the load of its goal a service may count with."""
        ceilings = self._ceilings
        return ceilings.get(entry.key.namespace, ceilings.get(EVERY_NAMESPACE, 1.0))

    def _claims(self, entry: PodEntry, grant: Grant) -> tuple[str, ...]:
        """What a service claims and was not granted."""
        intent, wish = entry.intent, grant.wish
        load, slo = self._load(entry), intent.slo
        cores = (entry.pod.metadata.annotations or {}).get(names.CORES)
        same_goal = slo is not None and slo.p95_us == wish.slo_us and (not slo.names_load or slo.qps == wish.qps)
        found = {
            LOAD: load is not None and load > wish.qps * self._multiple(entry),
            GOAL: not same_goal,
            PROFILE: intent.service != wish.profile,
            CLIENT: intent.service == wish.profile and self._client(wish.profile, intent.client) != wish.client,
            # Until the pod is bound there may be those of an earlier attempt.
            CORES: bool(entry.node) and cores is not None and core_set(cores) != grant.cores,
        }
        return tuple(claim for claim in CLAIMS if found[claim])

    def on(self, name: str) -> list[tuple[PodEntry, ServiceWish]]:
        """Latency services on a node, by name, as they count."""
        here = [self._pods[uid] for uid in self._nodes[name].services] if name in self._nodes else []
        services = sorted(here, key=lambda entry: entry.key)
        return [(entry, wish) for entry in services if (wish := self.counted(entry)) is not None]

    def headroom_of(self, wish: ServiceWish, machine: MachineType, threads: tuple[int, ...] = ()) -> Headroom | None:
        """What a service leaves its neighbours on a machine; None where it was not measured for its cores."""
        profile = self.catalogue.services[wish.profile]
        curve = choose_curve(profile, wish, threads)
        if curve is None:
            return None
        return headroom(
            profile,
            curve,
            machine,
            qps=wish.qps,
            client=wish.client,
            slo_us=wish.slo_us,
            weight=self._settings.headroom_weight,
            margin=self._settings.slo_margin,
        )

    def reach_of(self, wish: ServiceWish, machines: Iterable[MachineType], threads: tuple[int, ...] = ()) -> GoalReach:
        """Which p95 a service could have on machines."""
        profile = self.catalogue.services[wish.profile]
        return goal_reach(profile, wish, machines, threads, self._settings.slo_margin)

    def came(self, entry: PodEntry, name: str) -> None:
        """A pod is on a node, or is there and says something else of itself than before."""
        if entry.grant is None:
            self.left(entry, name)
        elif name in self._nodes:
            self._nodes[name].services.add(entry.key.uid)
            self.settle(name)

    def left(self, entry: PodEntry, name: str) -> None:
        """A pod is not on a node any more."""
        node = self._nodes.get(name)
        self.beyond.pop(entry.key.uid, None)
        if node is not None and entry.key.uid in node.services:
            node.services.remove(entry.key.uid)
            self.settle(name)

    def node_gone(self, name: str, pods: Iterable[str]) -> None:
        """A node is gone. ``pods``: uids of those that are there, which keep nothing off until it is back."""
        self.keepers.pop(name, None)
        for uid in pods:
            self.beyond.pop(uid, None)

    def settle(self, name: str) -> None:
        """What the services on a node take, and leave to others, as it is booked."""
        entry = self._nodes.get(name)
        if entry is None:
            return
        self._touch(name)
        cap, slope = float("inf"), 0.0
        keepers = []
        for pod, wish in self.on(name):
            if pod.grant is not None and (claims := self._claims(pod, pod.grant)):
                self.beyond[pod.key.uid] = claims
            else:
                self.beyond.pop(pod.key.uid, None)
            left = self.headroom_of(wish, entry.type, (pod.threads,))
            if left is not None:
                # The limit is one of all pressure on the node, the service's own included, as it is booked: what the
                # load has become since does not count there.
                own = booked.pressure if (booked := self._booked.booking(pod.key.uid)) is not None else 0.0
                bears = max(left.pressure_cap + own, _BELOW_ALL)
                if bears < float("inf"):
                    keepers.append(Keeper(pod.key.uid, str(pod.key), pod.priority, pod.request_milli, bears))
                cap, slope = min(cap, bears), slope + left.slope
        if keepers:
            self.keepers[name] = tuple(keepers)
        else:
            self.keepers.pop(name, None)
        self._booked.machines.set_service(name, cap, slope)

    def claim(self, entry: PodEntry, now: float) -> PrecedenceClaim:
        """What a waiting pod has before services."""
        return PrecedenceClaim(entry.priority, now - entry.waits_since_s > self._settings.due_age_s)

    def free_cores(self, name: str, claim: PrecedenceClaim | None = None) -> tuple[int, ...]:
        """Virtual CPUs of a node that belong to no latency service, ascending; with those of services that leave theirs to
        pods with a claim.
        """
        per_core = self._settings.kept_per_core
        taken = {
            c
            for entry, wish in self.on(name)
            if claim is None or not claim.leaves(wish.core_count, entry.priority, entry.request_milli, per_core)
            for c in entry.cores[: wish.core_count]
        }
        return tuple(c for c in range(self._nodes[name].type.vcpus) if c not in taken)
