"""Whatever happens, and in whatever order it becomes known: nothing is lost, bound twice or put where it may not be."""

from __future__ import annotations

from collections import Counter
from typing import Any

import objects_builders as b
from consistency import check_looks, check_state
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from model_scheduler import ModelScheduler
from model_server import KINDS, ModelServer, key_of
from naive_checker import Cluster

from builders import any_of
from flowsched.cluster.settings import Settings
from flowsched_k8s import names
from flowsched_k8s.bindings.bindings import BindOutcome
from flowsched_k8s.configuration.configuration import Configuration, CostModelChoice, Features, RebalancingSettings
from flowsched_k8s.groups.pod_groups import KUEUE_LABEL, KUEUE_TOTAL, MINIMUM_LABEL, NAME_LABEL, PLUGINS_LABEL
from flowsched_k8s.instructions import Bind, PodKey
from flowsched_k8s.rebalancing.move_plan import Purpose

NODES = tuple(f"n{i}" for i in range(5))
PODS = tuple(f"p{i}" for i in range(12))
GROUPS = {"g2": 2, "g3": 3}
PICK = st.integers(0, 11)
Wanted = dict[str, Any]
APPS = st.sampled_from(("a", "b"))
KEYS = st.sampled_from((names.HOSTNAME, names.ZONE))
POLICIES = st.sampled_from(("Honor", "Ignore"))


@st.composite
def relations(draw: st.DrawFn, app: str) -> dict[str, Any]:
    """What a pod demands of others, often of its own kind."""
    mine = b.selector(app=app)
    match draw(st.integers(0, 7)):
        case 0:
            return {"affinity": b.affinity(apart=[b.pod_term(draw(KEYS), mine)])}
        case 1:
            return {"affinity": b.affinity(apart=[b.pod_term(draw(KEYS), b.selector(app=draw(APPS)))])}
        case 2:
            return {"affinity": b.affinity(near=[b.pod_term(draw(KEYS), b.selector(app=draw(APPS)))])}
        case 3:
            return {"topologySpreadConstraints": [b.spread(draw(KEYS), mine, skew=draw(st.integers(1, 2)))]}
        case 4:
            both = [
                b.spread(
                    key,
                    mine,
                    skew=draw(st.integers(1, 2)),
                    nodeAffinityPolicy=draw(POLICIES),
                    nodeTaintsPolicy=draw(POLICIES),
                )
                for key in (names.HOSTNAME, names.ZONE)
            ]
            return {"topologySpreadConstraints": both, "nodeSelector": draw(st.sampled_from(({}, {"disk": "ssd"})))}
        case _:
            return {}


@st.composite
def pods(draw: st.DrawFn) -> Wanted:
    """What to make a pod of ours from."""
    app = draw(APPS)
    labels = {"app": app}
    notes: dict[str, str] = {}
    spec = draw(relations(app))
    if not spec and draw(st.integers(0, 4)) == 0:
        spec["nodeSelector"] = {"disk": "ssd"}
    if draw(st.integers(0, 3)) == 0:
        spec["tolerations"] = [b.toleration("dedicated", "Exists")]
    if draw(st.integers(0, 7)) == 0:
        spec["schedulingGates"] = [{"name": "wait"}]
    spec["priority"] = draw(any_of(0, 0, 0, 10))
    match draw(st.integers(0, 9)):
        case 0:
            group = draw(st.sampled_from(sorted(GROUPS)))
            labels |= {NAME_LABEL: group, MINIMUM_LABEL: str(GROUPS[group])}
        case 1:
            labels |= {PLUGINS_LABEL: "train"}
        case 5:
            labels |= {KUEUE_LABEL: "queued"}
            notes |= {KUEUE_TOTAL: "3"}
        case 2 | 3:
            notes[names.PROFILE] = draw(any_of("canneal", "blackscholes"))
        case 4:
            # Only one of the cost models looks at it.
            notes[names.INTERFERENCE_CLASS] = draw(any_of("devil", "rabbit"))
        case 6 | 7:
            notes[names.RUN_TIME] = draw(any_of("30s", "30s", "10m", "0"))
    ports = None
    if draw(st.integers(0, 6)) == 0:
        ports = [b.host_port(80, draw(any_of(None, "10.0.0.1", "10.0.0.2")))]
    cpu = draw(any_of("100m", "500m", "1", "1500m", "2"))
    memory = draw(any_of("64Mi", "1Gi", "3Gi"))
    if draw(st.integers(0, 2)) < 2:
        spec["owner"] = ("ReplicaSet", app)
    containers = [b.container("main", cpu, memory, ports=ports)]
    return {"labels": labels, "annotations": notes, "containers": containers, **spec}


class Happenings(RuleBasedStateMachine):
    """Everything that can happen to a scheduler, between any two steps of its own."""

    configuration = Configuration()

    @initialize(count=st.sampled_from((3, 4, 2, 1, 0)), wanted=st.lists(pods(), max_size=6))
    def begin(self, count: int, wanted: list[Wanted]) -> None:
        self.set_up(count, wanted)

    def set_up(self, count: int, wanted: list[Wanted]) -> None:
        self.server = ModelServer()
        for name in NODES[:count]:
            self.server.put(b.node(name, "4", "8Gi", zone=f"z{int(name[1]) % 2}"))
        for name, fields in zip(PODS, wanted, strict=False):
            self.server.put(b.pod(name, **fields))
        self.running = ModelScheduler(self.server, self.configuration)
        self.disturbed: set[str] = set()
        """Nodes with a change that the scheduler could not have known in time."""

    # Helpers

    def chosen(self, things: list[Any], pick: int) -> Any:
        return things[pick % len(things)] if things else None

    # The world

    @rule(wanted=st.lists(st.tuples(PICK, pods()), min_size=1, max_size=5, unique_by=lambda pair: pair[0]))
    def create_pods(self, wanted: list[tuple[int, Wanted]]) -> None:
        """Also anew under a name that is taken."""
        for pick, fields in wanted:
            old = self.server.pods.get(("default", PODS[pick]))
            if old is not None:
                self.server.remove(old)
            self.server.put(b.pod(PODS[pick], **fields))

    @rule(pick=PICK, fields=pods(), at_once=st.booleans())
    def replace_pod(self, pick: int, fields: Wanted, at_once: bool) -> None:
        """Another pod of the same name is seen before the first one is seen to be gone."""
        old = self.chosen([p for _, p in sorted(self.server.pods.items())], pick)
        if old is not None:
            self.server.replace(old, b.pod(old.metadata.name, **fields))
            if at_once:
                self.running.deliver("pods")

    @rule(pick=PICK, how=st.sampled_from(("delete", "terminate", "finish", "ungate", "relabel")), app=APPS)
    def change_pod(self, pick: int, how: str, app: str) -> None:
        server, pod = self.server, self.chosen([p for _, p in sorted(self.server.pods.items())], pick)
        if pod is None:
            return
        if how == "delete":
            server.remove(pod)
        elif how == "terminate":
            server.terminate(pod)
        elif how == "finish" and pod.spec.node_name:
            server.finish(pod)
        elif how == "ungate" and pod.spec.scheduling_gates:
            server.ungate(pod)
        elif how == "relabel":
            server.relabel(pod, {**(pod.metadata.labels or {}), "app": app})

    @rule(minimum=st.integers(1, 3), there=st.booleans())
    def pod_group(self, minimum: int, there: bool) -> None:
        old = self.server.objects["groups"].get(("default", "train"))
        if there:
            self.server.put(b.plugins_group("train", minMember=minimum))
        elif old is not None:
            self.server.remove(old)

    @rule(pick=PICK, place=PICK, app=APPS, whole=st.booleans())
    def foreign_scheduler(self, pick: int, place: int, app: str, whole: bool) -> None:
        """Another scheduler takes the room, with a pod of its own or one of ours."""
        node, waiting = self.chosen(sorted(self.server.nodes), place), self.chosen(self.server.waiting(), pick)
        if node is None:
            return
        self.disturbed.add(node)
        if whole and ("default", f"f{pick}") not in self.server.pods:
            pod = b.pod(f"f{pick}", cpu="500m", memory="1Gi", labels={"app": app}, node=node, scheduler="other")
            self.server.put(pod)
        elif waiting is not None:
            self.server.bind(key_of(waiting), node, ours=False)

    @rule(
        pick=st.integers(0, 4),
        cpu=st.sampled_from(("4", "2", "1")),
        zone=st.integers(0, 2),
        ssd=st.booleans(),
        how=st.sampled_from(("put", "put", "put", "uncordon", "cordon", "remove")),
    )
    def change_node(self, pick: int, cpu: str, zone: int, ssd: bool, how: str) -> None:
        """Nodes come, come back, grow, shrink, and get other labels and taints."""
        name = NODES[pick]
        there = name in self.server.nodes
        if how == "put":
            self.disturbed.add(name)
            labels = {"disk": "ssd"} if ssd else {}
            taints = [b.taint("dedicated")] if ssd and zone == 0 else []
            label = f"z{zone}" if zone < 2 else None
            self.server.put(b.node(name, cpu, "4Gi", zone=label, labels=labels, taints=taints))
        elif there and how == "remove":
            self.disturbed.add(name)
            self.server.remove(self.server.nodes[name])
        elif there:
            self.server.cordon(name, how == "cordon")

    # Watches and time

    @rule(kind=st.sampled_from(KINDS), count=st.integers(1, 4), relist=st.integers(0, 4))
    def deliver(self, kind: str, count: int, relist: int) -> None:
        """A watch tells a little, or has lost its position."""
        self.running.observe(self.server.relist(kind) if relist == 4 else self.server.deliver(kind, count))

    @rule()
    def deliver_all(self) -> None:
        self.running.deliver()

    @rule(seconds=st.sampled_from((0.01, 1.0, 12.0, 40.0)))
    def wait(self, seconds: float) -> None:
        self.server.now += seconds
        self.running.overdue()

    # The scheduler

    @precondition(lambda self: self.running.given is None)
    @rule()
    def begin_round(self) -> None:
        self.running.begin()

    @precondition(lambda self: self.running.given is not None and self.running.result is None)
    @rule()
    def plan_round(self) -> None:
        self.running.plan()

    @precondition(lambda self: self.running.result is not None)
    @rule()
    def end_round(self) -> None:
        asked = len(self.running.victims)
        decided = self.running.end()
        self.check_decisions(decided)
        for victim in self.running.victims[asked:]:
            self.check_victim(victim)
            assert victim not in [bind.pod for bind in decided], "who was never bound need not be deleted"

    @precondition(lambda self: self.running.given is None)
    @rule(sends=st.integers(0, 6))
    def hear_and_decide(self, sends: int) -> None:
        """The ordinary course of things."""
        self.running.deliver()
        if self.running.begin():
            self.running.plan()
            self.end_round()
        for _ in range(min(sends, len(self.running.binds))):
            if self.sent() is not None:
                self.running.reply()

    @precondition(lambda self: self.running.binds)
    @rule(pick=PICK, outcome=st.sampled_from((None, None, BindOutcome.RETRY, BindOutcome.REFUSED, BindOutcome.LOST)))
    def send(self, pick: int, outcome: BindOutcome | None) -> None:
        """A binding reaches the server, or fails on its way."""
        index = pick % len(self.running.binds)
        if outcome is None:
            self.sent(index)
        else:
            self.running.fail(outcome, index)

    @precondition(lambda self: self.running.replies)
    @rule(pick=PICK, lost=st.booleans())
    def reply(self, pick: int, lost: bool) -> None:
        self.running.reply(pick % len(self.running.replies), lost)

    @precondition(lambda self: self.running.reads)
    @rule(pick=PICK, given_up=st.booleans())
    def read(self, pick: int, given_up: bool) -> None:
        """The process gives up reading when the API server does not answer for long."""
        index = pick % len(self.running.reads)
        if given_up:
            del self.running.reads[index]
        else:
            self.running.read(index)

    @rule()
    def restart(self) -> None:
        """Killed at any moment; another replica takes over."""
        self.running = ModelScheduler(self.server, self.configuration)

    # What must hold

    def check_decisions(self, decided: list[Bind]) -> None:
        """By what the state machine knew, every decision is right, one after the other."""
        cache = self.running.state.cache
        new = {bind.pod.uid for bind in decided}
        assert len(new) == len(decided)
        known = self.running.known()
        known = Cluster(known.nodes, [(p, node) for p, node in known.placed if p.metadata.uid not in new])
        for bind in decided:
            entry = cache.pods[bind.pod.uid]
            pod = entry.pod
            assert entry.assumed == bind.node and not entry.node
            assert bind.node in known.nodes, "a node that is not there"
            assert not pod.spec.scheduling_gates and pod.metadata.deletion_timestamp is None
            why = known.refuses(pod, bind.node)
            assert why is None, f"{entry.key} on {bind.node}: {why}"
            known = known.plus(pod, bind.node)
        self.check_groups(new)

    def sent(self, index: int = 0) -> BindOutcome | None:
        """Send a binding: none whose pod a kubelet would refuse by what is known by then."""
        bind = self.running.binds[index]
        outcome = self.running.send(index)
        if outcome is not None:
            pod = self.running.state.cache.pods[bind.pod.uid].pod
            why = self.running.known().refused_there(pod, bind.node)
            assert why is None, f"{bind.pod} was sent to {bind.node}: {why}"
        return outcome

    def check_victim(self, victim: PodKey) -> None:
        """Only for a waiting pod of higher priority."""
        cache = self.running.state.cache
        entry = cache.pods[victim.uid]
        waiting = [e.priority for uid, e in cache.pods.items() if uid in cache.nominated and not e.place]
        assert entry.place and entry.priority < max(waiting)

    def check_groups(self, new: set[str]) -> None:
        state = self.running.state
        by_group: Counter[Any] = Counter()
        for uid in new:
            ref = state.cache.wants(state.cache.pods[uid]).group
            if ref is not None:
                by_group[ref] += 1
        for ref, count in by_group.items():
            spec = state.gangs.spec(ref)
            assert not isinstance(spec, str)
            assert len(state.gangs.placed(ref)) >= spec.minimum, f"{count} of {ref} were placed alone"

    @rule()
    def look_at_nodes(self) -> None:
        """As an export of a snapshot does."""
        check_looks(self.running.state, self.running.now)

    @invariant()
    def consistent(self) -> None:
        check_state(self.running.state)

    @invariant()
    def bound_once(self) -> None:
        uids = [uid for uid, _ in self.server.bound]
        assert len(uids) == len(set(uids))

    @invariant()
    def never_overcommitted(self) -> None:
        """By bindings of ours alone, whatever was known late."""
        cluster = self.cluster()
        for node in self.server.nodes.keys() - self.disturbed:
            assert cluster.overcommitted(node) is None

    @invariant()
    def nothing_is_lost(self) -> None:
        state = self.running.state
        taken = set() if self.running.given is None else {u for c in self.running.given.classes for u in c.uids}
        in_flight = 0
        for entry in state.cache.pods.values():
            place = state.queue.place(entry.key)
            in_flight += place == "in-flight"
            if place == "in-flight":
                assert entry.key.uid in taken, f"{entry.key} is in no round"
            elif entry.ours and not entry.place and entry.pod.metadata.deletion_timestamp is None:
                gone = self.server.read(entry.key) is None
                assert place is not None or gone, f"{entry.key} waits nowhere"
        assert in_flight == state.queue.in_flight(), "a pod that is gone stays in flight"

    def cluster(self) -> Cluster:
        return Cluster(self.server.nodes, [(p, node) for node in self.server.nodes for p in self.server.on(node)])

    def finish_round(self) -> None:
        if self.running.given is not None and self.running.result is None:
            self.running.plan()
        if self.running.result is not None:
            self.end_round()

    def teardown(self) -> None:
        """In the end no pod waits that would fit somewhere by itself."""
        if not hasattr(self, "running"):
            return
        running, server = self.running, self.server
        for pod in list(server.pods.values()):
            if pod.metadata.deletion_timestamp is not None:
                server.remove(pod)
            elif pod.spec.scheduling_gates:
                server.ungate(pod)
        self.finish_round()
        server.now += 60.0
        running.overdue()
        running.settle()
        for check in (self.consistent, self.bound_once, self.never_overcommitted, self.nothing_is_lost):
            check()
        state, cluster = running.state, self.cluster()
        spoken_for = {*state.cache.nominated.values(), *(held.nodes if (held := state.node_holds.held) else ())}
        for pod in server.waiting():
            labels = pod.metadata.labels or {}
            if labels.keys() & {NAME_LABEL, PLUGINS_LABEL, KUEUE_LABEL} or pod.spec.scheduler_name != "flowsched":
                continue
            if pod.metadata.uid in state.waiting.postponed:
                continue
            open_ = [n for n in server.nodes if cluster.refuses(pod, n) is None and n not in spoken_for]
            assert not open_, (
                f"{pod.metadata.name} would fit on {open_}; it was told {state.cache.pods[pod.metadata.uid].message}"
            )
            told = running.conditions(pod.metadata.name)
            assert told or pod.status.conditions, f"{pod.metadata.name} waits and was not told why"


class Preemptions(Happenings):
    """The same where pods may have to make room for more important ones."""

    configuration = Configuration(features=Features(preemption=True))

    @precondition(lambda self: self.running.victims)
    @rule(pick=PICK, at_once=st.booleans())
    def evict(self, pick: int, at_once: bool) -> None:
        key = self.running.victims[index := pick % len(self.running.victims)]
        self.running.evict(index)
        pod = self.server.read(key)
        if pod is not None and at_once:
            self.server.remove(pod)

    def teardown(self) -> None:
        """Victims go in the end, as often as others ask them to."""
        for _ in range(20 if hasattr(self, "running") else 0):
            self.finish_round()
            self.running.settle()
            while self.running.victims:
                self.running.evict()
            leaving = [p for p in self.server.pods.values() if p.metadata.deletion_timestamp is not None]
            for pod in leaving:
                self.server.remove(pod)
            if not leaving:
                break
        super().teardown()


class Moves(Happenings):
    """The same where pods that run are moved: every look finds some that might be."""

    configuration = Configuration(
        engine=Settings(due_age_s=1.0, waiting_weight=100.0),
        features=Features(rebalancing=True),
        rebalancing=RebalancingSettings(
            interval_s=1.0, price=0.01, restart_s=1.0, empty_node_gain=1.0, cool_down_s=1e-6, max_moves=4
        ),
    )

    @precondition(lambda self: self.running.given is None)
    @rule(heard=st.booleans())
    def look(self, heard: bool) -> None:
        """At most times once nothing is under way; what is decided must be sound at any other time as well."""
        running = self.running
        if heard:
            self.hear_and_decide(6)
            running.deliver()
            self.server.now += 1.0
        earlier = len(running.moves)
        plan = running.look()
        if running.marks and plan is not None and plan.question.purpose is Purpose.EMPTY_NODE:
            running.marked()
        cache = running.state.cache
        for key in running.moves[earlier:]:
            entry = cache.pods[key.uid]
            assert entry.node and entry.ours and entry.pod.metadata.owner_references
            assert running.state.gangs.ref(entry) is None

    @precondition(lambda self: self.running.moves)
    @rule(pick=PICK, how=st.sampled_from(("goes", "gone", "refused")))
    def move(self, pick: int, how: str) -> None:
        key = self.running.moves[index := pick % len(self.running.moves)]
        self.running.move(index, "it would break a budget" if how == "refused" else "")
        pod = self.server.read(key)
        if how == "gone" and pod is not None and pod.metadata.deletion_timestamp is not None:
            self.server.remove(pod)

    def teardown(self) -> None:
        """All that were asked to go are gone in the end, and pods that waited for their room have been looked at again."""
        while hasattr(self, "running") and self.running.moves:
            self.running.move()
        super().teardown()


class Neighbours(Preemptions):
    """The same with a cost model beside flow, which places all pods."""

    configuration = Configuration(cost_model=CostModelChoice("coco"), features=Features(preemption=True))


class Loads(Happenings):
    """And with one for which every machine with another load is a group of its own."""

    configuration = Configuration(cost_model=CostModelChoice("load-spreading", {"count": "cores"}))


TestHappenings = Happenings.TestCase
TestMoves = Moves.TestCase
TestMoves.settings = settings(max_examples=60, stateful_step_count=50)
TestNeighbours = Neighbours.TestCase
TestLoads = Loads.TestCase
TestNeighbours.settings = settings(max_examples=40, stateful_step_count=50)
TestLoads.settings = settings(max_examples=40, stateful_step_count=50)
TestPreemptions = Preemptions.TestCase
TestPreemptions.settings = settings(max_examples=60, stateful_step_count=50)
TestHappenings.settings = settings(max_examples=120, stateful_step_count=50)
