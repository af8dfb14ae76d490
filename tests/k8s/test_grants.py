"""What a latency service keeps off its node is what it was granted when it was bound, whatever its pod says later."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import msgspec
import objects_builders as b
import pytest
from consistency import check_state
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from model_scheduler import ModelScheduler
from model_server import key_of
from small_services import GOAL, SAID, caps, cluster, say, service, six_services

from flowsched_k8s import names
from flowsched_k8s.bindings.bindings import BindOutcome
from flowsched_k8s.configuration.configuration import LoadSettings
from flowsched_k8s.objects import Condition
from flowsched_k8s.services.grant import Grant, read_grant, to_write, written
from flowsched_k8s.services.latency import ServiceWish

K8S = Path(__file__).parents[2] / "k8s"


PICK = st.integers(0, 3)
GOALS = st.sampled_from((GOAL, "p95=900us@20000qps", "p95=2ms", None))
LOADS = st.sampled_from(("10000", "1000000000", None))


def counts(running: ModelScheduler, name: str) -> tuple[Any, ...]:
    """All that a bound service counts with, in linear prices and in forecasts."""
    cache = running.state.cache
    (entry,) = (e for e in cache.pods.values() if e.key.name == name)
    seen = running.state.inputs.occupied.look(running.now)
    (forecast,) = (s for s in seen.services if s.name == entry.key.uid)
    return cache.services.counted(entry), cache.services.free_cores(entry.place), caps(running)[entry.place], forecast


# What a pod says after it was bound


def test_six_small_pods_keep_no_pool_from_others_by_a_load() -> None:
    running = six_services()
    for i in range(6):
        say(running, f"svc{i}", load="1000000000")
    running.create(
        *(b.pod(f"plain{i}", "b", cpu="100m") for i in range(5)),
        b.pod("critical", "b", cpu="100m", priority=2_000_000_000),
        b.pod("job", "b", cpu="2", annotations={names.PROFILE: "blackscholes"}),
    )
    running.settle(within=1.0)
    assert {f"plain{i}" for i in range(5)} | {"critical", "job"} <= running.where().keys()


LATER = {
    "load": {"load": "1000000000"},
    "goal": {"slo": "p95=1us@1qps"},
    "weaker goal": {"slo": "p95=60s@1qps"},
    "no goal": {"slo": None},
    "no service": {"profile": None},
    "job": {"profile": "canneal", "workload_class": "batch"},
    "client": {"client": "mcperf-30k"},
    "cores": {"cores": "0-7"},
    "threads": {"threads": "2"},
    "all": {"load": "1000000000", "slo": "p95=1us@1qps", "client": "mcperf-dynamic", "cores": "0-7"},
}


@pytest.mark.parametrize("later", LATER)
def test_a_bound_service_counts_exactly_as_granted(later: str) -> None:
    running = cluster(1)
    running.create(service("svc", client="mcperf-sweep"))
    running.settle(within=1.0)
    before = counts(running, "svc")
    say(running, "svc", **LATER[later])
    assert counts(running, "svc") == before
    for load in ("1000000000", "5000"):
        say(running, "svc", load=load)
        if later not in ("load", "threads") or load != "5000":
            assert counts(running, "svc") == before, "no more, and no less"


def test_a_load_that_rises_to_that_of_the_goal_keeps_others_off_at_once() -> None:
    running = cluster(1)
    running.create(service("svc"))
    running.settle(within=1.0)
    (granted,) = caps(running).values()
    found = []
    for qps in (3_000, 10_000, 20_000, 29_000, 30_000, 31_000, 1_000_000):
        say(running, "svc", load=str(qps))
        found += caps(running).values()
    assert found[:5] == sorted(set(found), reverse=True), "each step takes more of what neighbours may cause"
    assert found[4:] == pytest.approx([granted] * 3)


def test_the_load_that_a_service_was_placed_with_is_the_ceiling_of_a_goal_without_one() -> None:
    running = cluster(1)
    running.create(service("svc", "p95=1ms", load="20000"))
    running.settle(within=1.0)
    before = counts(running, "svc")
    say(running, "svc", load="30000")
    assert counts(running, "svc") == before
    say(running, "svc", load="10000")
    assert counts(running, "svc")[0].qps == 10_000


@pytest.mark.parametrize(
    ("ceiling", "qps"), [({"a": 2.0, "*": 9.0}, 60_000), ({"*": 3.0}, 90_000), ({"b": 9.0}, 30_000), (2.0, 60_000)]
)
def test_a_namespace_may_have_a_higher_ceiling(ceiling: Any, qps: float) -> None:
    running = cluster(1, load_source=LoadSettings(ceiling=ceiling))
    running.create(service("svc"))
    running.settle(within=1.0)
    assert counts(running, "svc")[0].qps == 30_000
    say(running, "svc", load="1000000")
    assert counts(running, "svc")[0].qps == qps


def test_a_measured_load_counts_up_to_the_ceiling() -> None:
    running = six_services()
    before = caps(running)
    services, qps = running.state.cache.services, [40_000.0]
    services.read_loads(lambda key: qps[0])
    assert caps(running) == pytest.approx(before)
    qps[0] = 10_000.0
    services.read_loads(lambda key: qps[0])
    assert all(cap > before[name] for name, cap in caps(running).items())
    for i in range(6):
        say(running, f"svc{i}", load="5000")
    assert counts(running, "svc0")[0].qps == 10_000, "what is measured counts before what is said"


def test_a_smaller_request_pays_for_fewer_cores() -> None:
    running = cluster(1)
    running.create(service("svc", cpu="2"))
    running.settle(within=1.0)
    assert len(running.state.cache.services.free_cores("n0")) == 6
    pod = running.server.pods["a", "svc"]
    smaller = msgspec.structs.replace(pod.spec, containers=service("svc", cpu="100m").spec.containers)
    running.server.put(msgspec.structs.replace(pod, spec=smaller))
    running.deliver()
    assert len(running.state.cache.services.free_cores("n0")) == 7
    assert len(counts(running, "svc")[3].cores) == 1


# What it is told


BEYOND: dict[str, dict[str, Any]] = {
    "load": {"load": "30001"},
    "goal": {"slo": "p95=1ms@30001qps"},
    "profile": {"profile": None},
    "client": {"client": "mcperf-30k"},
    "cores": {"cores": "0-7"},
}


@pytest.mark.parametrize("claim", BEYOND)
def test_a_service_is_told_once_that_it_counts_as_granted(claim: str) -> None:
    running = cluster(1)
    running.create(service("svc", client="mcperf-sweep"))
    running.settle(within=1.0)
    say(running, "svc", load="20000")
    assert not running.state.cache.services.beyond
    say(running, "svc", **BEYOND[claim])
    for _ in range(400):
        running.tick()
    (told,) = [e for e in running.events("svc") if e.reason == names.COUNTS_AS_GRANTED]
    assert told.type == "Warning" and "memcached, p95=1 ms@30000qps, client mcperf-sweep, cores 0" in told.note
    assert ("its load is above 30000 qps" in told.note) is (claim == "load")
    assert list(running.state.cache.services.beyond.values()) == [(claim,)]
    (pod,) = running.server.pods.values()
    running.server.remove(pod)
    running.tick()
    assert not running.state.cache.services.beyond


def test_a_service_whose_measured_load_is_above_its_goal_s_is_told() -> None:
    running = cluster(1)
    running.create(service("svc"))
    running.settle(within=1.0)
    running.state.cache.services.read_loads(lambda key: 50_000.0)
    running.tick()
    assert [e.reason for e in running.events("svc")][-1] == names.COUNTS_AS_GRANTED
    running.state.cache.services.read_loads(lambda key: 500.0)
    running.tick()
    assert not running.state.cache.services.beyond


def test_nothing_is_kept_off_or_told_of_a_node_that_is_gone() -> None:
    running = cluster(1)
    running.create(service("svc"))
    running.settle(within=1.0)
    say(running, "svc", load="50000")
    node, services = running.server.nodes["n0"], running.state.cache.services
    assert services.keepers.keys() == {"n0"} and len(services.beyond) == 1
    running.server.remove(node)
    running.deliver()
    assert not services.keepers and not services.beyond
    running.put(node)
    assert services.keepers.keys() == {"n0"} and len(services.beyond) == 1


def test_the_next_leader_tells_it_again() -> None:
    running = cluster(1)
    running.create(service("svc"))
    running.settle(within=1.0)
    say(running, "svc", load="50000")
    after = ModelScheduler(running.server)
    after.tick()
    assert [e.reason for e in after.events("svc")] == [names.COUNTS_AS_GRANTED]


# What is granted, and where it stands


def test_a_pod_that_flowsched_did_not_bind_was_granted_nothing() -> None:
    running = cluster(1)
    notes = {**SAID, names.SLO: GOAL, names.LOAD: "1000000000", names.CORES: "0-7", names.PLACEMENT: "{}"}
    running.create(b.pod("svc", "a", cpu="2", node="n0", annotations=notes))
    assert caps(running) == {"n0": float("inf")}
    assert len(running.state.cache.services.free_cores("n0")) == 8
    assert not running.state.inputs.occupied.look(running.now).services


def test_the_next_leader_reads_the_grant_from_the_status() -> None:
    running = cluster(2)
    running.create(service("svc", cpu="2", client="mcperf-30k"))
    running.settle(within=1.0)
    before = counts(running, "svc")
    say(running, "svc", load="1000000000", slo="p95=1us@1qps", cores="0-7", client=None, profile="canneal")
    after = ModelScheduler(running.server)
    assert counts(after, "svc") == before
    assert after.state.cache.services.counted(next(iter(after.state.cache.pods.values()))) is not None


def test_a_grant_is_for_the_node_that_it_was_written_for() -> None:
    running = cluster(2)
    (pod,) = running.create(service("svc"))
    grant = Grant("n1", ServiceWish("memcached", 1.0, 1.0, "mcperf-30k", 8000), 1, tuple(range(8)))
    running.server.put_condition(key_of(pod), Condition(names.GRANTED, "True", "", written(grant)))
    running.server.bind(key_of(pod), "n0", ours=False)
    running.deliver()
    assert set(caps(running).values()) == {float("inf")}


def test_a_grant_of_an_attempt_that_failed_is_taken_back() -> None:
    running = cluster(1)
    (pod,) = running.create(service("svc"))
    running.round()
    (bind,) = running.binds
    assert bind.grant and read_grant(pod) is None
    running.server.put_condition(bind.pod, Condition(names.GRANTED, "True", "", bind.grant))
    running.server.annotate(pod, {names.SLO: None})
    running.deliver()
    running.state.bindings.withdraw(bind.pod.uid, running.state.bindings.unsent(), running.now)
    running.binds.clear()
    running.settle(within=5.0)
    stored = running.server.pods["a", "svc"]
    assert stored.spec.node_name == "n0" and read_grant(stored) is None
    assert caps(running) == {"n0": float("inf")}


class Takeovers(RuleBasedStateMachine):
    """Whatever happens on the way, leaders and those that follow them count the same of services that are bound."""

    @initialize()
    def begin(self) -> None:
        self.running = cluster(2)
        self.server = self.running.server

    @rule(pick=PICK, goal=GOALS, load=LOADS)
    def create(self, pick: int, goal: str | None, load: str | None) -> None:
        if ("a", f"svc{pick}") not in self.server.pods:
            given = service(f"svc{pick}", load="10000")
            notes = {**(given.metadata.annotations or {}), names.SLO: goal, names.LOAD: load}
            said = {name: text for name, text in notes.items() if text is not None}
            self.server.put(b.pod(f"svc{pick}", "a", cpu="1", annotations=said))

    @rule(pick=PICK, goal=GOALS, load=LOADS, profile=st.sampled_from(("memcached", "canneal")))
    def say(self, pick: int, goal: str | None, load: str | None, profile: str) -> None:
        pod = self.server.pods.get(("a", f"svc{pick}"))
        if pod is not None:
            self.server.annotate(pod, {names.SLO: goal, names.LOAD: load, names.PROFILE: profile, names.CORES: "0-7"})

    @rule()
    def decide(self) -> None:
        self.running.server.now += 6.0
        self.running.round()

    @rule(how=st.sampled_from(("answered", "lost", "refused", "never sent", "bound by another")))
    def bind(self, how: str) -> None:
        if not self.running.binds:
            return
        if how in ("refused", "never sent"):
            self.running.fail(BindOutcome.REFUSED if how == "refused" else BindOutcome.RETRY)
            return
        if how == "bound by another":
            self.server.bind(self.running.binds[0].pod, self.running.binds[0].node, ours=False)
        if self.running.send() is not None:
            self.running.reply(lost=how == "lost")

    @rule()
    def hear(self) -> None:
        self.running.deliver()
        while self.running.reads:
            self.running.read()

    @rule()
    def take_over(self) -> None:
        self.running = ModelScheduler(self.server)

    @rule(pick=PICK)
    def delete(self, pick: int) -> None:
        pod = self.server.pods.get(("a", f"svc{pick}"))
        if pod is not None:
            self.server.remove(pod)

    @invariant()
    def leaders_agree(self) -> None:
        if not hasattr(self, "running"):
            return
        check_state(self.running.state)
        cache = self.running.state.cache
        for entry in cache.pods.values():
            pod = self.server.read(entry.key)
            if entry.node and pod is not None:
                assert entry.grant == read_grant(pod)
                assert entry.grant is None or (entry.key.uid, entry.node) in self.server.bound
            assert entry.place or entry.grant is None


TestTakeovers = Takeovers.TestCase
TestTakeovers.settings = settings(max_examples=25, stateful_step_count=30)


def test_pods_that_are_no_services_have_no_grant() -> None:
    running = cluster(1)
    running.create(b.pod("plain", cpu="1"), b.pod("job", cpu="1", annotations={names.PROFILE: "canneal"}))
    running.round()
    assert [bind.grant for bind in running.binds] == [None, None]


CORES = st.sets(st.integers(0, 63), min_size=1).map(lambda cores: tuple(sorted(cores)))


@settings(max_examples=30)
@given(
    st.text(min_size=1), st.floats(1.0, 1e8), st.floats(1e-3, 1e9), st.integers(0, 4096_000), st.integers(1, 99), CORES
)
def test_what_is_written_is_read_again(
    word: str, slo_us: float, qps: float, width_milli: int, threads: int, cores: tuple[int, ...]
) -> None:
    grant = Grant("n1", ServiceWish(word, slo_us, qps, word, width_milli), threads, cores)
    condition = {"type": names.GRANTED, "status": "True", "message": to_write(grant, b.pod())}
    assert read_grant(b.pod(node="n1", status={"phase": "Running", "conditions": [condition]})) == grant


@pytest.mark.parametrize(
    "message", ["", "{", "[]", "{}", "null", '{"node": 1}', '{"node": "n1", "profile": "memcached", "p95Us": -1}']
)
def test_what_cannot_be_read_grants_nothing(message: str) -> None:
    condition = {"type": names.GRANTED, "status": "True", "message": message}
    assert read_grant(b.pod(node="n1", status={"phase": "Running", "conditions": [condition]})) is None


@pytest.mark.parametrize("file", ["manifests/base/role-core.yaml", "chart/templates/roles.yaml"])
def test_the_role_may_write_grants(file: str) -> None:
    text = (K8S / file).read_text(encoding="utf-8")
    assert re.search(r"resources: \[pods/status\],?\s+verbs: \[patch\]", text)
