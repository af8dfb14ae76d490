"""Nodes that are kept for overdue gangs: a set on which all that is missing could start together, and for how long."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import permutations, product
from typing import Any

import objects_builders as b
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from model_scheduler import ModelScheduler
from model_server import ModelServer
from naive_checker import Cluster
from small_services import SAID

from flowsched.cluster.settings import Settings
from flowsched_k8s import names
from flowsched_k8s.causes import Wake
from flowsched_k8s.configuration.configuration import Configuration, CostModelChoice
from flowsched_k8s.groups.pod_groups import MINIMUM_LABEL, NAME_LABEL, TIMEOUT_S
from flowsched_k8s.objects import Node, Pod
from flowsched_k8s.rounds import node_holds

DUE_S = 60.0
JOB: dict[str, Any] = {"restartPolicy": "Never"}
DAEMON: dict[str, Any] = {"owner": ("DaemonSet", "ds")}
MEASURED: dict[str, Any] = {"annotations": {names.PROFILE: "blackscholes"}, **JOB}
SERVICE: dict[str, Any] = {"annotations": {**SAID, names.SLO: "p95=5ms@1K"}}
RACK, ZONE = "rack", "zone"


def scheduler(*things: Any, model: str = "flow", **engine: Any) -> ModelScheduler:
    server = ModelServer()
    for thing in things:
        server.put(thing)
    settings_ = Settings(**{"due_age_s": DUE_S, "due_runs": 0.0, **engine})
    return ModelScheduler(server, Configuration(engine=settings_, cost_model=CostModelChoice(model)))


def member(name: str, cpu: str = "4", minimum: int = 2, group: str = "g", **fields: Any) -> Any:
    labels = {NAME_LABEL: group, MINIMUM_LABEL: str(minimum), **fields.pop("labels", {})}
    return b.pod(name, cpu=cpu, labels=labels, **fields)


def there(name: str, node: str, cpu: str = "1", **fields: Any) -> Any:
    return b.pod(name, cpu=cpu, node=node, **{**JOB, **fields})


def full(count: int, racks: int = 1) -> list[Any]:
    """Nodes of 4 CPUs, each full of four jobs."""
    nodes = [b.node(f"n{i}", "4", labels={RACK: f"r{i % racks}"}) for i in range(count)]
    return nodes + [there(f"j{i}-{k}", f"n{i}") for i in range(count) for k in range(4)]


def decide(running: ModelScheduler) -> None:
    """All pods that wait take part in a round."""
    running.state.queue.wake(Wake.ANY, running.now)
    running.round()
    running.answer_all()
    running.deliver()


def overdue(running: ModelScheduler, *pods: Any) -> None:
    """These pods wait until they are overdue."""
    running.create(*pods)
    running.settle(within=1.0)
    running.server.now += DUE_S + 1.0
    decide(running)


def held(running: ModelScheduler) -> dict[str, str]:
    """Nodes that all others leave alone, by the pod that each is kept for."""
    found = running.state.node_holds.held
    return {} if found is None else {running.state.cache.pods[uid].key.name: node for uid, node in found.places}


def finish(running: ModelScheduler, *pods: str) -> None:
    for name in pods:
        running.server.finish(running.server.pods["default", name])
    running.settle(within=30.0)


def message(running: ModelScheduler, name: str) -> str:
    return running.state.cache.pods[running.server.pods["default", name].metadata.uid].message


class Feeder:
    """Small pods that take all room that is not kept, for so long each."""

    def __init__(self, running: ModelScheduler, length_s: float, **fields: Any) -> None:
        self._running, self._length_s, self._fields = running, length_s, fields
        self._ends: dict[str, float] = {}
        self.fed = 0
        here = sorted(running.where())
        for i, name in enumerate(here):
            # They do not end at once.
            self._ends[name] = running.now + length_s * (i % 7 + 1) / 7

    def step(self, seconds: float = 5.0) -> None:
        running, server = self._running, self._running.server
        for name in [name for name, end_s in self._ends.items() if end_s <= running.now]:
            del self._ends[name]
            server.finish(server.pods["default", name])
        while sum(pod.metadata.name.startswith("t") for pod in server.waiting()) < 4:
            self.fed += 1
            server.put(b.pod(f"t{self.fed}", cpu="1", **{**JOB, **self._fields}))
        running.deliver()
        server.now += seconds
        running.state.node_holds.look(running.now)
        running.settle(within=0.5)
        for name in running.where():
            if name.startswith("t"):
                self._ends.setdefault(name, running.now + self._length_s)


GANGS: dict[str, list[Any]] = {
    "plain": [member(f"m{i}", owner=("ReplicaSet", "m")) for i in range(2)],
    "of different sizes": [member("m0", "4", 3), member("m1", "3", 3), member("m2", "1", 3)],
    "larger than its minimum": [member(f"m{i}") for i in range(3)],
    "plain and measured": [member("m0"), member("m1", **MEASURED)],
    "measured and a service": [member("m0", **MEASURED), member("m1", **SERVICE)],
    "apart": [
        member(
            f"m{i}", "2", labels={"a": "m"}, affinity=b.affinity(apart=[b.pod_term(names.HOSTNAME, b.selector(a="m"))])
        )
        for i in range(2)
    ],
    "in one rack": [member(f"m{i}", annotations={names.GROUP_TOPOLOGY: RACK}) for i in range(2)],
    "measured in one rack": [
        member(f"m{i}", annotations={names.GROUP_TOPOLOGY: RACK, names.PROFILE: "blackscholes"}, **JOB)
        for i in range(2)
    ],
}
STREAMS: dict[str, dict[str, Any]] = {"plain": {}, "measured": MEASURED}


@pytest.mark.parametrize("stream", STREAMS)
@pytest.mark.parametrize("gang", GANGS)
def test_a_gang_beside_a_stream_waits_for_a_bounded_time(gang: str, stream: str) -> None:
    """Whatever its members are: the stream's pods last longer than nodes are kept at first."""
    length_s, racks = 2.5 * DUE_S, 2 if "one rack" in gang else 1
    running = scheduler(*full(4 if racks > 1 else 3, racks))
    feeder = Feeder(running, length_s, **STREAMS[stream])
    running.create(*GANGS[gang])
    came_s = running.now
    wanted = {"m0", "m1"} if gang != "of different sizes" else {"m0", "m1", "m2"}
    while len({name for name in running.where() if name.startswith("m")}) < len(wanted):
        feeder.step()
        # Kept at first for the due age, then for twice that, then for four times: more than the stream's pods last.
        assert running.now - came_s < 12.0 * DUE_S + 2.0 * length_s
    assert feeder.fed > 8, "the stream has gone on"
    if racks > 1:
        assert len({int(running.where()[name][1:]) % 2 for name in wanted}) == 1


@pytest.mark.parametrize("model", ["quincy", "coco"])
def test_the_same_holds_with_another_cost_model(model: str) -> None:
    running = scheduler(*full(3), model=model)
    feeder = Feeder(running, 2.5 * DUE_S)
    running.create(*(member(f"m{i}") for i in range(2)))
    came_s = running.now
    while "m0" not in running.where():
        feeder.step()
        assert running.now - came_s < 17.0 * DUE_S


def test_gangs_and_pods_have_their_turns() -> None:
    """None of them starves another one: each starts, whichever came first."""
    running = scheduler(*full(3))
    feeder = Feeder(running, DUE_S / 2)
    running.create(*(member(f"a{i}", group="a") for i in range(2)), b.pod("big", cpu="4"))
    running.create(*(member(f"b{i}", "3", group="b") for i in range(3)))
    came_s, waits = running.now, {"a0", "a1", "big", "b0", "b1"}
    ends: dict[str, float] = {}
    while waits - ends.keys():
        feeder.step()
        for name in running.where().keys() & {*waits, "b2"}:
            ends.setdefault(name, running.now + DUE_S / 2)
            if ends[name] <= running.now and ("default", name) in running.server.pods:
                running.server.finish(running.server.pods["default", name])
        assert running.now - came_s < 20.0 * DUE_S


# The set


def test_all_members_get_nodes_and_are_told() -> None:
    running = scheduler(*full(3))
    overdue(running, *(member(f"m{i}") for i in range(2)))
    assert sorted(held(running)) == ["m0", "m1"]
    assert len(set(held(running).values())) == 2
    for name, node in held(running).items():
        assert f"{node} drains for it since" in message(running, name)
    running.create(b.pod("late", cpu="1"))
    running.settle(within=1.0)
    finish(running, *(f"j{i}-0" for i in range(3)))
    assert running.where()["late"] not in held(running).values()
    finish(running, *(f"j{node[1:]}-{k}" for node in set(held(running).values()) for k in range(1, 4)))
    assert len({running.where()["m0"], running.where()["m1"]}) == 2


def test_no_node_is_kept_where_a_gang_never_fits_together() -> None:
    """Either member fits on n0, and both together fit nowhere."""
    daemons = [b.pod(f"d{i}", cpu="1", node=f"n{i}", **DAEMON) for i in (1, 2)]
    running = scheduler(*full(3)[:3], *daemons, there("j", "n0", "4"))
    overdue(running, *(member(f"m{i}") for i in range(2)))
    assert held(running) == {}
    overdue(running, b.pod("big", cpu="4"))
    assert held(running) == {"big": "n0"}, "another one has its turn"


def test_nodes_are_in_one_rack_where_that_is_asked_for() -> None:
    """n0 misses least and has no other node of its rack that could take a member."""
    nodes = [b.node(f"n{i}", "4", labels={RACK: rack}) for i, rack in enumerate(("a", "b", "b"))]
    jobs = [there("j0", "n0"), there("j1", "n1", "4"), there("j2", "n2", "4")]
    running = scheduler(*nodes, *jobs)
    overdue(running, *(member(f"m{i}", annotations={names.GROUP_TOPOLOGY: RACK}) for i in range(2)))
    assert sorted(held(running).values()) == ["n1", "n2"]
    finish(running, "j1", "j2")
    assert {running.where()["m0"], running.where()["m1"]} == {"n1", "n2"}


def test_a_rack_that_drained_is_used_though_another_seems_to_have_room() -> None:
    """Rack a has 4 CPUs free for two members of 2, on nodes with 1 CPU free each and one with 3."""
    free = {"n0": "3", "n1": "1", "n2": "1"}
    nodes = [b.node(name, "4", labels={RACK: "a"}) for name in free] + [b.node("n3", "4", labels={RACK: "b"})]
    stays = [b.pod(f"d{name}", cpu=str(4 - int(cpu)), node=name, **DAEMON) for name, cpu in free.items()]
    running = scheduler(*nodes, *stays, there("j", "n3", "2"))
    overdue(running, *(member(f"m{i}", "2", annotations={names.GROUP_TOPOLOGY: RACK}) for i in range(2)))
    assert set(held(running).values()) == {"n3"}
    finish(running, "j")
    assert [running.where().get(f"m{i}") for i in range(2)] == ["n3", "n3"]


def test_a_domain_that_drained_is_used_though_one_of_an_earlier_label_seems_to_have_room() -> None:
    """Racks come first: in rack a there is room for both members, which may not share the one node there."""
    sizes = {"a1": ("8", "a"), "b1": ("8", "b")}
    nodes = [b.node(name, cpu, labels={RACK: rack, ZONE: "z"}) for name, (cpu, rack) in sizes.items()]
    apart = {
        "labels": {"app": "m"},
        "affinity": b.affinity(apart=[b.pod_term("kubernetes.io/hostname", {"matchLabels": {"app": "m"}})]),
    }
    running = scheduler(*nodes, there("j", "b1", "6"))
    overdue(
        running, *(member(f"m{i}", annotations={names.GROUP_TOPOLOGY: f"{RACK},{ZONE}"}, **apart) for i in range(2))
    )
    assert set(held(running).values()) == {"a1", "b1"}
    finish(running, "j")
    for _ in range(3):
        running.server.now += 5.0
        decide(running)
    assert {running.where().get(f"m{i}") for i in range(2)} == {"a1", "b1"}


def test_one_that_fits_nowhere_leaves_others_their_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    """No more than one unit is asked for in a round, as among thousands of nodes, and rounds are rare."""
    monkeypatch.setattr(node_holds, "_MOST_ASKED", 2)
    monkeypatch.setattr(node_holds, "_ASKED_AGAIN_S", 0.0)
    running = scheduler(*full(2))
    overdue(running, *(member(f"never{i}", "100") for i in range(2)), b.pod("second", cpu="4"))
    for _ in range(2):
        running.server.now += 1.0
        decide(running)
    assert set(held(running)) == {"second"}


# How long


def test_another_gang_of_a_name_does_not_wait_for_what_became_of_the_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(node_holds, "_ASKED_AGAIN_S", 1e6)
    running = scheduler(*full(2))
    overdue(running, *(member(f"m{i}", "100") for i in range(2)))
    assert held(running) == {}
    for name in ("m0", "m1"):
        running.server.remove(running.server.pods["default", name])
    running.deliver()
    running.state.node_holds.look(running.now)
    overdue(running, *(member(f"again{i}") for i in range(2)))
    assert set(held(running)) == {"again0", "again1"}


def test_nodes_that_nothing_leaves_are_given_up_together() -> None:
    running = scheduler(*full(3))
    overdue(running, *(member(f"m{i}") for i in range(2)))
    first = set(held(running).values())
    running.server.now += DUE_S + 2.0
    running.state.node_holds.look(running.now)
    running.settle(within=0.5)
    assert set(held(running).values()) != first
    assert "drains" not in message(running, "m0") or not first >= set(held(running).values())


def test_a_gang_gives_up_no_earlier_than_its_nodes() -> None:
    """Its time runs out while they drain; then rounds would leave it alone for five minutes."""
    running = scheduler(*full(2), due_age_s=2.0 * TIMEOUT_S)
    running.create(*(member(f"m{i}") for i in range(2)))
    running.settle(within=1.0)
    for _ in range(5):
        # Once overdue, at the latest after it has sat out rounds.
        running.server.now += TIMEOUT_S
        decide(running)
    assert sorted(held(running).values()) == ["n0", "n1"]
    for k in range(4):
        running.server.now += TIMEOUT_S - 1.0
        running.state.node_holds.look(running.now)
        running.settle(within=0.5)
        finish(running, *(f"j{i}-{k}" for i in range(2)))
    assert {running.where().get(f"m{i}") for i in range(2)} == {"n0", "n1"}


def test_nodes_are_free_for_all_once_a_member_goes() -> None:
    running = scheduler(*full(2))
    overdue(running, *(member(f"m{i}") for i in range(2)))
    running.create(b.pod("late", cpu="1"))
    finish(running, "j0-0")
    assert "late" not in running.where()
    running.server.remove(running.server.pods["default", "m1"])
    running.settle(within=5.0)
    assert held(running) == {}
    assert running.where()["late"] == "n0"


def test_all_nodes_are_held_of_a_gang_that_forecasts_price() -> None:
    """Plain pods, which no forecast keeps off, leave all of them alone."""
    nodes = [b.node(f"n{i}", "4") for i in range(2)]
    running = scheduler(*nodes, *(there(f"j{i}", f"n{i}", "3", **MEASURED) for i in range(2)))
    overdue(running, member("m0"), member("m1", **MEASURED))
    assert sorted(held(running).values()) == ["n0", "n1"]
    assert running.state.node_holds.reservations
    running.create(*(b.pod(f"t{i}", cpu="1") for i in range(2)))
    running.settle(within=5.0)
    assert not {"t0", "t1"} & running.where().keys()


# Against a search through everything


@st.composite
def clusters(draw: st.DrawFn) -> tuple[list[Node], list[Pod], list[Pod]]:
    """Nodes, what is there, and the members of a gang that wait."""
    count = draw(st.integers(1, 4))
    nodes = [b.node(f"n{i}", str(draw(st.integers(2, 4))), zone=f"z{i % 2}") for i in range(count)]
    app = st.sampled_from(("a", "b"))
    placed = []
    for i in range(count):
        for k in range(draw(st.integers(0, 2))):
            how = JOB if draw(st.integers(0, 2)) else DAEMON
            placed.append(b.pod(f"p{i}-{k}", cpu="1", node=f"n{i}", labels={"app": draw(app)}, **how))
    size = draw(st.integers(2, 3))
    gang = []
    for i in range(size):
        mine, other = draw(app), draw(app)
        match draw(st.integers(0, 5)):
            case 0:
                related = {"affinity": b.affinity(apart=[b.pod_term(names.HOSTNAME, b.selector(app=other))])}
            case 1:
                related = {"affinity": b.affinity(near=[b.pod_term(names.ZONE, b.selector(app=mine))])}
            case 2:
                related = {"topologySpreadConstraints": [b.spread(names.ZONE, b.selector(app=mine))]}
            case _:
                related = {}
        cpu = str(draw(st.integers(1, 4)))
        gang.append(member(f"m{i}", cpu, size, labels={"app": mine}, **related))
    return nodes, placed, gang


def starts(room: Cluster, related: Cluster, members: Sequence[Pod], places: Sequence[str]) -> bool:
    """Whether members may go to these places one after the other, in some order: as far as room goes in one cluster, and as
    far as relations go in the other.
    """
    for order in permutations(range(len(members))):
        here, near = room, related
        for pod, node in ((members[i], places[i]) for i in order):
            if here.plus(pod, node).overcommitted(node) or near.related(pod, node):
                break
            here, near = here.plus(pod, node), near.plus(pod, node)
        else:
            return True
    return False


@settings(max_examples=120)
@given(clusters())
def test_nodes_are_kept_where_a_gang_could_start_and_nowhere_else(
    found: tuple[list[Node], list[Pod], list[Pod]],
) -> None:
    nodes, placed, gang = found
    running = scheduler(*nodes, *placed)
    overdue(running, *gang)
    by_name = {node.metadata.name: node for node in nodes}
    ends = {pod.metadata.name for pod in placed if pod.spec.restart_policy == "Never"}
    on = [(pod, pod.spec.node_name) for pod in placed]
    now, later = Cluster(by_name, on), Cluster(by_name, [(p, n) for p, n in on if p.metadata.name not in ends])
    everywhere = list(product(by_name, repeat=len(gang)))
    if any(starts(now, now, gang, places) for places in everywhere):
        return  # Rounds start it; other tests ask that.
    # What no member may use is not kept: what is there may be followed by others like it.
    large = {name for name in by_name if any(not Cluster(by_name, [(pod, name)]).overcommitted(name) for pod in gang)}
    drained = Cluster(by_name, [(p, n) for p, n in on if p.metadata.name not in ends or n not in large])
    possible = any(starts(later, drained, gang, places) for places in everywhere)
    kept = held(running)
    assert kept or not possible
    if kept:
        # A pod that leaves may be one that keeps a member out, or one that lets it in.
        places = [kept[pod.metadata.name] for pod in gang]
        assert starts(later, drained if possible else now, gang, places)
        if starts(later, later, gang, places):
            finish(running, *sorted(ends))
            assert {pod.metadata.name for pod in gang} <= running.where().keys()
