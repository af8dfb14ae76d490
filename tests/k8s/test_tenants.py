"""A tenant's pods that ask for much, or say much, keep no other tenant's pods waiting, and hear why they wait."""

from __future__ import annotations

from typing import Any

import objects_builders as b
import pytest
from model_scheduler import ModelScheduler
from model_server import ModelServer
from wordy_pods import ROWS, Field, wordy

from flowsched_k8s import names
from flowsched_k8s.configuration.configuration import Configuration, CostModelChoice, Features
from flowsched_k8s.pods import declared_relations
from flowsched_k8s.pods.affinity import MOST_KEYS, MOST_WISHES
from flowsched_k8s.pods.declared_relations import MOST_COMPARED, MOST_EXCLUSIONS
from flowsched_k8s.pods.pod_length import pod_length
from flowsched_k8s.rounds import participants
from flowsched_k8s.rounds.inputs import MANY_KINDS
from flowsched_k8s.rounds.participants import LONG, MOST_LENGTH, MOST_QUESTIONS

HUGE = ("999999999", "9999999999Gi", "100000000000000000000")


def scheduler(*, configuration: Configuration | None = None, nodes: int = 3, **more: Any) -> ModelScheduler:
    server = ModelServer()
    for i in range(nodes):
        server.put(b.node(f"n{i}", "4", zone=f"z{i % 2}", **more))
    return ModelScheduler(server, configuration)


def said(running: ModelScheduler, name: str) -> str:
    return running.conditions(name)[-1].message


# Requests larger than any node


@pytest.mark.parametrize("cpu", HUGE)
@pytest.mark.parametrize("profile", [None, "canneal"])
@pytest.mark.parametrize("model", ["flow", "trivial"])
def test_a_request_larger_than_any_node_is_insufficient_cpu(cpu: str, profile: str | None, model: str) -> None:
    running = scheduler(configuration=Configuration(cost_model=CostModelChoice(model)))
    notes = {names.PROFILE: profile} if profile else {}
    grouped = {"pod-group.scheduling.sigs.k8s.io/name": "g", "pod-group.scheduling.sigs.k8s.io/min-available": "2"}
    running.create(
        b.pod("huge", cpu=cpu, annotations=notes),
        *(b.pod(f"in-group-{i}", cpu=cpu if i else "1", annotations=notes, labels=grouped) for i in range(2)),
        b.pod("usual", "shop", cpu="1"),
    )
    running.settle(within=5.0)
    assert running.where().keys() == {"usual"}
    assert said(running, "huge") == "0/3 nodes are available: 3 Insufficient cpu."


@pytest.mark.parametrize("model", ["flow", "trivial"])
def test_a_pod_that_is_on_a_node_may_ask_for_more_than_any_has(model: str) -> None:
    running = scheduler(configuration=Configuration(cost_model=CostModelChoice(model)))
    measured = {names.PROFILE: "canneal"}
    running.create(b.pod("huge", node="n1", cpu="9E", annotations=measured))
    running.create(b.pod("usual", "shop", cpu="1", annotations=measured))
    running.settle(within=5.0)
    assert running.where()["usual"] in ("n0", "n2")


# Resources that no node has


def test_made_up_resources_keep_no_other_pod_waiting_and_five_are_named() -> None:
    running = scheduler(configuration=Configuration(features=Features(preemption=True)))
    wanted = [{f"example.com/r{i}x{k}": "1" for k in range(9)} for i in range(16)]
    running.create(
        *(b.pod(f"evil-{i}", containers=[b.container("c", "1m", **w)]) for i, w in enumerate(wanted)),
        b.pod("usual", "shop", cpu="1", priority=5),
    )
    running.settle(within=5.0)
    assert running.where().keys() == {"usual"}
    message = said(running, "evil-0")
    assert message.startswith("0/3 nodes are available: 3 Insufficient example.com/r0x") and len(message) < 1000
    running.put(b.node("n9", "4", resources=wanted[2]))
    running.settle(within=30.0)
    assert running.where().get("evil-2") == "n9"


def test_a_resource_that_comes_to_a_node_later_has_been_used_all_along() -> None:
    running = scheduler(nodes=1)
    bound = b.pod("bound", node="n0", containers=[b.container("c", "1m", **{"example.com__x": "2"})])
    running.create(bound)
    running.put(b.node("n0", "4", resources={"example.com/x": "3"}))
    running.create(b.pod("asks", containers=[b.container("c", "1m", **{"example.com__x": "2"})]))
    running.settle(within=5.0)
    assert "asks" not in running.where()
    machines = running.state.cache.machines
    assert machines.free[0, machines.column("example.com/x")] == 1


def test_a_pod_that_is_overdue_for_what_no_node_has_had_waits_on() -> None:
    running = scheduler()
    running.create(b.pod("asks", containers=[b.container("c", "1m", **{"example.com/x": "1"})]))
    running.settle(within=5.0)
    running.server.now += 1000.0
    running.settle(within=5.0)
    assert said(running, "asks") == "0/3 nodes are available: 3 Insufficient example.com/x."


# What pods say of others


def apart(count: int, **more: Any) -> Any:
    return b.affinity(apart=[b.pod_term(names.HOSTNAME, b.selector(app=f"w{i}", **more)) for i in range(count)])


def test_many_terms_of_anti_affinity_keep_the_same_pods_apart_as_few_do() -> None:
    running = scheduler(nodes=4)
    running.create(*(b.pod(f"w{i}", node=f"n{i}", labels={"app": f"w{i * 50}"}) for i in range(3)))
    running.create(b.pod("evil", affinity=apart(120)))
    running.settle(within=5.0)
    assert running.where()["evil"] == "n3", "w0, w50 and w100 are on the others"
    pinned = {"nodeSelector": {names.HOSTNAME: "n3"}}
    running.create(
        b.pod("kept-out", labels={"app": "w119"}, **pinned), b.pod("let-in", labels={"app": "w120"}, **pinned)
    )
    running.settle(within=5.0)
    assert "let-in" in running.where()
    assert names.EXISTING_ANTI_AFFINITY in said(running, "kept-out")


def test_many_host_ports_keep_out_pods_with_one_of_them_and_no_others() -> None:
    def ported(name: str, *numbers: int) -> Any:
        return b.pod(name, containers=[b.container(ports=[b.host_port(n) for n in numbers])])

    running = scheduler(nodes=1)
    running.create(ported("evil", *range(1, 400)))
    running.settle(within=5.0)
    running.create(ported("same", 399), ported("other", 400))
    running.settle(within=5.0)
    assert running.where().keys() == {"evil", "other"}
    assert said(running, "same") == f"0/1 nodes are available: 1 {names.PORTS}."
    running.create(ported("many", *range(399, 799)))
    running.settle(within=5.0)
    assert said(running, "many") == f"0/1 nodes are available: 1 {names.PORTS}."


@pytest.mark.parametrize(
    ("spec", "field"),
    [
        (
            {"affinity": b.affinity(likes=[(1, b.pod_term(names.ZONE, b.selector(app="x")))] * (MOST_WISHES + 1))},
            "spec.affinity.podAffinity.preferredDuringSchedulingIgnoredDuringExecution",
        ),
        (
            {"affinity": b.affinity(apart=[b.pod_term(f"k{i}", b.selector(app="x")) for i in range(MOST_KEYS + 1)])},
            "spec.affinity.podAntiAffinity: topologyKey",
        ),
        (
            {"topologySpreadConstraints": [b.spread(f"k{i}", b.selector(app="x")) for i in range(MOST_KEYS + 1)]},
            "spec.topologySpreadConstraints: topologyKey",
        ),
        (
            {"containers": [b.container(ports=[b.host_port(1 + i) for i in range(MOST_EXCLUSIONS // 2 + 1)])]},
            "spec.containers: expected at most 4096 host ports, got 4097",
        ),
        (
            {
                "affinity": b.affinity(
                    apart=[
                        b.pod_term(names.ZONE, b.selector(b.requirement("x", "NotIn", f"v{i}")))
                        for i in range(MOST_COMPARED // 1_000)
                    ]
                )
            },
            "spec.affinity.podAntiAffinity: the pods that its terms may mean",
        ),
        (
            {"affinity": b.affinity(nodes=b.node_terms(*([b.requirement("x", "In", f"v{i}")] for i in range(11))))},
            "spec.affinity.nodeAffinity and spec.tolerations",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_pod_that_costs_too_much_waits_alone_and_hears_which_field_it_is(
    spec: Any, field: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(declared_relations, "MOST_ASKED", 30)
    running = scheduler()
    running.create(b.pod("evil", **spec), b.pod("usual", "shop", labels={"app": "x"}))
    running.settle(within=5.0)
    assert running.where().keys() == {"usual"}
    assert field in said(running, "evil") and len(said(running, "evil")) < 1000


def test_a_pod_that_cost_too_much_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(declared_relations, "MOST_COMPARED", 300)
    running = scheduler()
    running.create(*(b.pod(f"web-{i}", labels={"app": "web"}, cpu="1m") for i in range(30)))
    running.settle(within=5.0)
    terms = [b.selector(b.requirement("x", "NotIn", f"v{i}"), app="web") for i in range(20)]
    running.create(b.pod("evil", affinity=b.affinity(apart=[b.pod_term("nowhere", term) for term in terms])))
    running.settle(within=5.0)
    assert "podAntiAffinity" in said(running, "evil")
    for i in range(20):
        running.server.remove(running.server.pods["default", f"web-{i}"])
    running.deliver()
    running.settle(within=400.0)
    assert "evil" in running.where()


def test_pods_that_say_much_have_rounds_of_their_own_between_others() -> None:
    running = scheduler()
    long = {"tolerations": [b.toleration(f"t{i}", "Exists") for i in range(LONG + 1)]}
    running.create(*(b.pod(f"long-{i}", cpu="10m", priority=9, **long) for i in range(2)), b.pod("short", cpu="10m"))
    assert [[bind.pod.name for bind in running.round()] for _ in range(2)] == [["short"], ["long-0", "long-1"]]
    assert not running.begin()


@pytest.mark.parametrize(("field", "row"), [(field, i) for field, rows in ROWS.items() for i in range(len(rows))])
def test_every_list_counts_in_the_length_of_a_pod(field: Field, row: int) -> None:
    few, many = (pod_length(wordy(ROWS[field][row](n))) for n in (100, 300))
    assert many - few >= 200


def on_disks(first: int, count: int) -> Any:
    """A node with one of some disks, or with the one that there is."""
    terms = [[b.requirement("disk", "In", f"v{first + i}")] for i in range(count)]
    return b.affinity(nodes=b.node_terms(*terms, [b.requirement("disk", "In", "there")]))


def test_a_group_that_says_much_is_prepared_in_slices_between_which_others_are_placed() -> None:
    grouped = {"pod-group.scheduling.sigs.k8s.io/name": "g", "pod-group.scheduling.sigs.k8s.io/min-available": "7"}
    running = scheduler(labels={"disk": "there"})
    count = MOST_LENGTH // 5
    long = [b.pod(f"long-{i}", cpu="10m", labels=grouped, affinity=on_disks(i * count, count)) for i in range(6)]
    running.create(*long, b.pod("brief", cpu="10m", labels=grouped))

    def prepared() -> int:
        return sum(e.length > LONG and e.wants is not None for e in running.state.cache.pods.values())

    slices: list[int] = []
    bound: set[str] = set()
    while not bound:
        running.create(b.pod(f"usual-{len(slices)}", "shop", cpu="1m"))
        assert [bind.pod.name for bind in running.round()] == [f"usual-{len(slices)}"]
        before = prepared()
        bound = {bind.pod.name for bind in running.round()}
        slices.append(prepared() - before)
    assert bound == {"brief", *(f"long-{i}" for i in range(6))}
    assert sum(slices) == 6 and 1 <= max(slices) <= 2


def test_terms_about_nodes_are_asked_of_them_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(participants, "MOST_QUESTIONS", MOST_QUESTIONS // 1_000)
    running = scheduler(nodes=9, labels={"disk": "there"})
    running.create(b.pod("long", cpu="10m", affinity=on_disks(0, LONG)))
    rounds = 0
    while not (bound := [bind.pod.name for bind in running.round()]):
        running.create(b.pod(f"usual-{rounds}", "shop", cpu="1m"))
        assert [bind.pod.name for bind in running.round()] == [f"usual-{rounds}"]
        rounds += 1
    assert bound == ["long"] and 5 <= rounds <= 9


def test_pods_that_only_keep_apart_from_themselves_are_one_class_where_they_are_many() -> None:
    def alone(name: str, app: str) -> Any:
        own = [b.pod_term(names.HOSTNAME, b.selector(app=app))]
        return b.pod(name, labels={"app": app}, affinity=b.affinity(apart=own), cpu="10m")

    running = scheduler(nodes=4)
    running.create(b.pod("there", node="n0", labels={"app": "w0"}))
    running.create(*(alone(f"w{i}", f"w{i}") for i in range(MANY_KINDS)), *(alone(f"x{i}", "x") for i in range(4)))
    assert running.begin() and running.given is not None
    assert sorted(len(c.uids) for c in running.given.classes) == [1, 4, MANY_KINDS - 1]
    running.plan()
    running.end()
    running.settle(within=5.0)
    where = running.where()
    assert len(where) == MANY_KINDS + 5 and where["w0"] != "n0"
    assert len({where[f"x{i}"] for i in range(4)}) == 4
