"""GPUs on Kubernetes: which resources of nodes are devices, who asks for them, what they are worth, nodes that lose some."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import objects_builders as b
import pytest
from consistency import check_cache
from events_recorded import Recorded, differences, played_inputs
from hypothesis import given, settings
from hypothesis import strategies as st
from model_scheduler import SOLVER, ModelScheduler
from model_server import ModelServer
from test_snapshot_decisions import both, job

from flowsched.cluster.settings import Settings
from flowsched.cluster.snapshot import Machine
from flowsched.gpu.devices import MachineGpus, TaskGpus
from flowsched.gpu.shapes import GpuShape
from flowsched.inspector.explanation import explain
from flowsched.inspector.record_view import RecordView
from flowsched.inspector.replay import replay
from flowsched.round.linear import choice
from flowsched.round.linear.network_scheduler import NetworkScheduler
from flowsched_k8s import names
from flowsched_k8s.causes import Wake
from flowsched_k8s.configuration.configuration import Configuration, CostModelChoice, GpuResource
from flowsched_k8s.events.event_player import play
from flowsched_k8s.gpus import GpuIndex, NodeGpus
from flowsched_k8s.instructions import PatchCondition
from flowsched_k8s.objects import Node, Pod
from flowsched_k8s.records.snapshot_export import snapshot_of
from flowsched_k8s.rounds.gpu_costs import gpu_costs

NVIDIA, AMD, MIG = "nvidia.com/gpu", "amd.com/gpu", "nvidia.com/mig-1g.5gb"
PRODUCT, MEMORY = "nvidia.com/gpu.product", "nvidia.com/gpu.memory"
BOTH = (
    GpuResource(resource="nvidia.com/gpu"),
    GpuResource(resource=AMD, model_label="amd.com/gpu.product-name", memory_label="amd.com/gpu.vram"),
)


def gpu_node(name: str, count: int = 8, model: str = "A100", cpu: str = "64", **more: str) -> Node:
    labels = {PRODUCT: model, MEMORY: "40960"}
    return b.node(name, cpu, "256Gi", resources={NVIDIA: str(count), **more}, labels=labels)


def asks(name: str, count: int = 1, resource: str = NVIDIA, cpu: str | None = "2", **more: Any) -> Pod:
    asked = {resource: str(count)}
    return b.pod(name, containers=[b.container("main", cpu, "4Gi" if cpu else None, **asked)], **more)


def measured(name: str, count: int = 1, **more: Any) -> Pod:
    """A pod with a profile, which forecasts place."""
    asked = {NVIDIA: str(count)}
    return job(name, widths="2", containers=[b.container("main", "2", "4Gi", **asked)], **more)


def only(model: str, *more: str) -> Mapping[str, Any]:
    return b.affinity(nodes=b.node_terms([b.requirement(PRODUCT, "In", model, *more)]))


def scheduler(*nodes: Node, **configured: Any) -> ModelScheduler:
    server = ModelServer()
    for node in nodes:
        server.put(node)
    return ModelScheduler(server, Configuration(**configured))


def decided(running: ModelScheduler) -> dict[str, str]:
    """Nodes of pods after rounds until nothing changes."""
    for _ in range(4):
        running.round()
        running.answer_all()
        running.deliver()
        running.server.now += 6.0
        running.state.queue.wake(Wake.ANY, running.now)
    return {p.metadata.name: p.spec.node_name for p in running.server.pods.values() if p.spec.node_name}


def machines_of(running: ModelScheduler) -> dict[str, Machine]:
    return {m.name: m for m in snapshot_of(running.state, running.now)[0].machines}


def said(running: ModelScheduler, name: str) -> str:
    """Why a pod waits, by its condition."""
    told = [t for t in running.told if isinstance(t, PatchCondition) and t.pod.name == name]
    return told[-1].message


# What nodes have


def index(*nodes: Node, wanted: tuple[GpuResource, ...] = BOTH) -> GpuIndex:
    found = GpuIndex(wanted, lambda _name: None)
    for node in nodes:
        found.put(node)
    return found


def test_a_nodes_gpus_are_of_the_model_that_its_label_says() -> None:
    shared = b.node("shared", resources={NVIDIA: "10"}, labels={PRODUCT: "Tesla-T4-SHARED", MEMORY: "a lot"})
    found = index(gpu_node("labelled"), shared, b.node("bare", resources={NVIDIA: "1"}), b.node("none"))
    assert found.of("labelled") == NodeGpus(NVIDIA, "A100", 40960)
    assert found.of("shared") == NodeGpus(NVIDIA, "Tesla-T4-SHARED")
    assert found.of("bare") == NodeGpus(NVIDIA, NVIDIA)
    assert found.of("none") is None
    running = scheduler(gpu_node("labelled"), shared)
    of = {name: m.gpus for name, m in machines_of(running).items()}
    # Replicas of time slicing count like devices.
    assert of == {"labelled": MachineGpus("A100", 8, 40960), "shared": MachineGpus("Tesla-T4-SHARED", 10)}


def test_of_two_kinds_on_one_node_the_second_is_counted_everywhere() -> None:
    amd = b.node("amd", "64", "64Gi", resources={AMD: "4"})
    assert index(gpu_node("n"), amd).resources == (NVIDIA, AMD)
    found = index(gpu_node("n"), amd, gpu_node("mixed", 2, **{AMD: "2"}))
    assert found.resources == (NVIDIA,)
    assert found.of("amd") is None and found.of("mixed") == NodeGpus(NVIDIA, "A100", 40960)
    found.remove("mixed")
    assert found.of("amd") == NodeGpus(AMD, AMD)
    running = scheduler(gpu_node("n", 1), amd, gpu_node("mixed", 2, **{AMD: "2"}), gpus=BOTH)
    running.create(*(asks(f"a{i}", 2, AMD) for i in range(4)), *(asks(f"n{i}") for i in range(4)))
    places = decided(running)
    assert sorted(places[f"a{i}"] for i in range(3)) == ["amd", "amd", "mixed"]
    assert said(running, "a3") == "0/3 nodes are available: 3 Insufficient amd.com/gpu."
    assert sorted(places.get(f"n{i}", "waits") for i in range(4)) == ["mixed", "mixed", "n", "waits"]


def test_mig_slices_are_counted_and_models_are_labels() -> None:
    running = scheduler(gpu_node("n", 1, **{MIG: "2"}))
    running.create(*(asks(f"m{i}", 1, MIG) for i in range(3)), asks("whole"))
    assert sorted(decided(running)) == ["m0", "m1", "whole"]
    assert said(running, "m2") == f"0/1 nodes are available: 1 Insufficient {MIG}."
    assert machines_of(running)["n"].gpus == MachineGpus("A100", 1, 40960)


def test_nothing_is_a_device_where_nothing_is_configured_or_a_cost_model_counts() -> None:
    for configured in ({"gpus": ()}, {"cost_model": CostModelChoice("coco")}):
        running = scheduler(gpu_node("n", 2), **configured)
        running.create(asks("p"), asks("q", 2))
        assert len(decided(running)) == 1
        machine = machines_of(running)["n"]
        assert machine.gpus is None
        assert running.state.cache.gpus.now().demand == ()


# What pods ask for

IN, NOT_IN = b.requirement(PRODUCT, "In", "A100", "V100"), b.requirement(PRODUCT, "NotIn", "T4")
ELSEWHERE = b.requirement(names.ZONE, "In", "z1")
ASKED: list[tuple[dict[str, Any], tuple[str, ...]]] = [
    ({}, ()),
    ({"nodeSelector": {PRODUCT: "A100"}}, ("A100",)),
    ({"affinity": b.affinity(nodes=b.node_terms([IN, ELSEWHERE]))}, ("A100", "V100")),
    ({"affinity": b.affinity(nodes=b.node_terms([IN], [b.requirement(PRODUCT, "In", "T4")]))}, ("A100", "T4", "V100")),
    ({"affinity": b.affinity(nodes=b.node_terms([IN, b.requirement(PRODUCT, "In", "V100", "T4")]))}, ("V100",)),
    ({"affinity": b.affinity(nodes=b.node_terms([IN])), "nodeSelector": {PRODUCT: "V100"}}, ("V100",)),
    # Any node with that zone will do, whatever its model.
    ({"affinity": b.affinity(nodes=b.node_terms([IN], [ELSEWHERE]))}, ()),
    ({"affinity": b.affinity(nodes=b.node_terms([NOT_IN]))}, ()),
    ({"affinity": b.affinity(prefers=[(100, [IN])])}, ()),
]


@pytest.mark.parametrize(("spec", "models"), ASKED)
def test_models_are_those_that_required_affinity_names(spec: dict[str, Any], models: tuple[str, ...]) -> None:
    assert index(gpu_node("n")).models(asks("p", **spec), NVIDIA) == models


@given(spec=st.sampled_from([spec for spec, _ in ASKED]), model=st.sampled_from(["A100", "V100", "T4"]))
def test_models_leave_out_no_node_that_the_filters_allow(spec: dict[str, Any], model: str) -> None:
    running = scheduler(gpu_node("n", 1, model))
    running.create(measured("p", **spec))
    assert running.begin() and running.given is not None
    (c,) = running.given.classes
    if c.allowed[: running.given.machines.machine_count].any():
        assert not c.gpu_models or model in c.gpu_models


def test_pods_are_tasks_with_devices_and_no_resource_beside() -> None:
    running = scheduler(gpu_node("n", 4))
    running.create(measured("runs", 3))
    decided(running)
    running.create(measured("waits", 2, affinity=only("A100", "V100")), asks("plain"))
    snapshot, _ = snapshot_of(running.state, running.now)
    tasks = {t.name.partition("/")[2]: t for t in snapshot.pending}
    assert tasks["waits"].gpus == TaskGpus(2, models=("A100", "V100"))
    assert tasks["plain"].gpus == TaskGpus(1)
    (runs,) = snapshot.running
    assert (runs.task.gpus, runs.devices) == (TaskGpus(3), (0, 1, 2))
    assert not any(t.resources for t in (*snapshot.pending, runs.task))
    assert not any(NVIDIA in dict(m.resources) for m in snapshot.machines)


def test_an_exported_snapshot_gives_the_decisions_of_the_next_round(tmp_path: Path) -> None:
    running = scheduler(gpu_node("n1", 4), gpu_node("n2", 2, "V100"), b.node("n3", "8"))
    running.create(*(measured(f"j{i}", 1 + i % 2) for i in range(5)), job("k"), measured("v", affinity=only("V100")))
    for _ in range(2):
        offered, found, _ = both(running, tmp_path)
        assert offered == found and offered
        running.answer_all()
        running.server.now += 7.25
        running.create(*(measured(f"late-{i}") for i in range(3)))
        running.state.queue.wake(Wake.ANY, running.now)


# Bookkeeping


def placed_on(running: ModelScheduler, *nodes: str) -> list[Pod]:
    """Pods that are on some nodes and have not ended."""
    return [p for node in nodes for p in running.server.on(node)]


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("pod"), st.integers(1, 4), st.booleans()),
        st.tuples(st.just("small pod"), st.integers(1, 2), st.booleans()),
        st.tuples(st.just("allocate"), st.integers(1, 2), st.sampled_from(["0", "1", "3", "4"])),
        st.tuples(st.just("end"), st.integers(0, 9), st.none()),
        st.tuples(st.just("round"), st.none(), st.none()),
    ),
    max_size=14,
)


@settings(max_examples=40, deadline=None)
@given(steps=STEPS)
def test_devices_are_the_sum_of_pods(steps: list[tuple[str, Any, Any]]) -> None:
    running = scheduler(gpu_node("n1", 4), gpu_node("n2", 4, "V100"), b.node("n3", "8"))
    for number, (what, value, more) in enumerate(steps):
        before = {p.metadata.uid for p in placed_on(running, "n1", "n2")}
        if what == "pod":
            make = measured if more else asks
            running.create(make(f"p{number}", value))
        elif what == "small pod":
            running.create(asks(f"p{number}", value, cpu="100m" if more else None))
        elif what == "allocate":
            running.server.allocate(f"n{value}", **{NVIDIA: more})
            running.deliver()
        elif what == "end":
            bound = placed_on(running, "n1", "n2")
            if bound:
                running.server.finish(bound[value % len(bound)])
                running.deliver()
        else:
            running.round()
            running.answer_all()
            running.deliver()
            running.server.now += 6.0
            running.state.queue.wake(Wake.ANY, running.now)
        check_cache(running.state.cache)
        snapshot, _ = snapshot_of(running.state, running.now)
        machines = {m.name: m for m in snapshot.machines}
        for name in ("n1", "n2"):
            pods = placed_on(running, name)
            used = sum(int(c.resources.requests[NVIDIA]) for p in pods for c in p.spec.containers if c.resources)  # type: ignore[index]
            there = int((running.server.nodes[name].status.allocatable or {})[NVIDIA])
            gpus = machines[name].gpus
            assert (gpus.count if gpus else 0) == max(used, there)
            given_out = [d for r in snapshot.running if r.machine == name for d in r.devices]
            assert sorted(given_out) == list(range(used))
            assert sum(r.task.gpus.count for r in snapshot.running if r.machine == name and r.task.gpus) == used
            fresh = any(p.metadata.uid not in before for p in pods)
            # What came in this step found room in what there is.
            assert not fresh or used <= there


# Nodes that lose some


@pytest.mark.parametrize("make", [asks, measured])
def test_a_device_plugin_that_restarts(make: Any) -> None:
    running = scheduler(gpu_node("n", 4))
    running.create(make("runs", 2))
    assert decided(running) == {"runs": "n"}
    running.server.allocate("n", **{NVIDIA: "0"})
    running.deliver()
    running.create(make("waits", 1))
    assert decided(running) == {"runs": "n"}
    assert said(running, "waits") == f"0/1 nodes are available: 1 Insufficient {NVIDIA}."
    assert machines_of(running)["n"].gpus == MachineGpus("A100", 2, 40960)
    running.server.allocate("n", **{NVIDIA: "4"})
    running.deliver()
    assert decided(running) == {"runs": "n", "waits": "n"}
    assert machines_of(running)["n"].gpus == MachineGpus("A100", 4, 40960)


@pytest.mark.parametrize("make", [asks, measured])
def test_a_device_of_a_full_node_becomes_unhealthy(make: Any) -> None:
    running = scheduler(gpu_node("n", 8))
    running.create(*(make(f"p{i}") for i in range(8)))
    assert len(decided(running)) == 8
    running.server.allocate("n", **{NVIDIA: "7"})
    running.deliver()
    running.create(make("waits"))
    assert "waits" not in decided(running)
    assert machines_of(running)["n"].gpus == MachineGpus("A100", 8, 40960)
    for i in range(2):
        assert "waits" not in decided(running)
        running.server.finish(next(p for p in running.server.pods.values() if p.metadata.name == f"p{i}"))
        running.deliver()
    assert decided(running)["waits"] == "n"
    assert machines_of(running)["n"].gpus == MachineGpus("A100", 7, 40960)


# What they are worth


def test_the_demand_is_learnt_from_pods_that_nodes_with_gpus_see() -> None:
    running = scheduler(gpu_node("n"), b.node("c", taints=None))
    running.create(
        asks("a"), b.pod("foreign", node="n", cpu="1", scheduler="other"), b.pod("elsewhere", cpu="1", node="c")
    )
    running.create(b.pod("beside", cpu="1", node="n"))
    assert running.state.cache.gpus.now().demand == ((GpuShape(1000, 0, 0, 0), 1), (GpuShape(2000, 4096, 1, 1000), 1))
    running.create(asks("b", affinity=only("A100")))
    assert len(running.state.cache.gpus.now().demand) == 2
    running.create(asks("c"))
    assert [count for _, count in running.state.cache.gpus.now().demand] == [1, 2, 1]


def test_pods_that_came_before_the_first_node_with_gpus_count() -> None:
    running = scheduler(b.node("c"))
    running.create(asks("a"), asks("b"))
    assert running.state.cache.gpus.now().demand == ()
    running.put(gpu_node("n"))
    assert running.state.cache.gpus.now().demand == ((GpuShape(2000, 4096, 1, 1000), 2),)


@pytest.mark.parametrize("make", [asks, measured])
@pytest.mark.parametrize("weight", [0.0, 1.0])
def test_who_may_run_anywhere_leaves_a_scarce_model_to_others(make: Any, weight: float) -> None:
    """Without prices, the emptier node or the first one is taken."""
    running = scheduler(
        gpu_node("a-scarce", 2, "H100"), gpu_node("b-many", 8, "T4"), engine=Settings(gpu_weight=weight)
    )
    running.create(*(make(f"picky{i}", affinity=only("H100")) for i in range(6)), make("last", 8, affinity=only("T4")))
    running.create(*(make(f"any{i}") for i in range(9)))
    decided(running)
    for pod in list(running.server.pods.values()):
        running.server.finish(pod)
    running.deliver()
    running.create(make("any"))
    assert decided(running)["any"] == ("b-many" if weight else "a-scarce")


def test_pods_without_gpus_leave_nodes_with_gpus_their_cpu() -> None:
    running = scheduler(gpu_node("a", 8, cpu="16"), b.node("b", "8", "32Gi"))
    running.create(*(asks(f"g{i}") for i in range(4)))
    decided(running)
    for pod in list(running.server.pods.values()):
        running.server.finish(pod)
    running.deliver()
    running.create(b.pod("plain", cpu="2"))
    assert decided(running)["plain"] == "b"


@pytest.mark.parametrize("weight", [1.0, 0.0])
@pytest.mark.parametrize("count", [1, 2])
def test_of_equal_nodes_those_without_gpus_come_first_before_any_pod_asks_for_one(count: int, weight: float) -> None:
    nodes = gpu_node("a", 8, cpu="64"), gpu_node("b", 0, cpu="64"), b.node("c", "8", "32Gi"), b.node("d", "8", "32Gi")
    running = scheduler(*nodes, engine=Settings(gpu_weight=weight))
    running.create(*(b.pod(f"p{i}", cpu="1") for i in range(count)))
    places = set(decided(running).values())
    assert places <= {"c", "d"}
    running.create(*(b.pod(f"q{i}", cpu="2") for i in range(6)))
    assert all(decided(running).values()), "GPUs keep no pod waiting"


def test_a_cluster_without_gpus_pays_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    running = scheduler(b.node("n1"), b.node("n2"))
    monkeypatch.setattr("flowsched_k8s.rounds.gpu_costs.as_devices", pytest.fail)
    running.create(b.pod("p", cpu="1"))
    assert running.begin() and running.given is not None
    assert running.given.is_quick
    (c,) = running.given.classes
    assert not running.given.gpus_matter(c)
    assert gpu_costs(running.given, running.given.machines, [c]) == [None]
    assert running.given.gpus.nodes == {}


def test_a_pod_that_gpus_matter_to_is_decided_in_a_thread() -> None:
    for pod, quick in (
        (asks("g"), False),
        (b.pod("p", cpu="1"), False),
        (b.pod("q", cpu="1", nodeSelector={"x": "y"}), True),
    ):
        running = scheduler(gpu_node("n"), b.node("c", labels={"x": "y"}))
        running.create(asks("first"))
        decided(running)
        running.create(pod)
        assert running.begin() and running.given is not None
        assert running.given.is_quick == quick


# Records


def mixed_day(running: ModelScheduler) -> None:
    for hour in range(4):
        running.create(
            *(asks(f"a{hour}-{i}", 1 + i) for i in range(3)), measured(f"m{hour}", 2), b.pod(f"c{hour}", cpu="1")
        )
        running.round()
        running.answer_all()
        running.deliver()
        if hour == 1:
            running.server.allocate("n1", **{NVIDIA: "3"})
        if hour == 2:
            running.server.allocate("n1", **{NVIDIA: "8"})
            running.server.finish(next(p for p in running.server.pods.values() if p.spec.node_name))
            running.put(gpu_node("n3", 2, "T4"))
        running.deliver()
        running.server.now += 11.0
        running.state.queue.wake(Wake.ANY, running.now)


def test_recorded_rounds_are_played_as_they_were(tmp_path: Path) -> None:
    running = scheduler(gpu_node("n1"), gpu_node("n2", 4, "V100"), b.node("c", "8"))
    recorded = Recorded(running, tmp_path / "events.jsonl")
    mixed_day(running)
    path = recorded.done()
    assert not differences(played_inputs(path), recorded.inputs)
    played = play(path)
    assert played.same, played.verdict()
    assert played.rounds >= 4


def test_cost_models_that_count_can_be_compared_on_recorded_rounds(tmp_path: Path) -> None:
    running = scheduler(gpu_node("n1"), gpu_node("n2", 4, "V100"), b.node("c", "8"))
    recorded = Recorded(running, tmp_path / "events.jsonl")
    mixed_day(running)
    found = play(recorded.done(), lambda _settings: {"coco": NetworkScheduler(choice.configured("coco", {}), SOLVER)})
    (coco,) = found.policies or ()
    assert coco.placed > 0


def test_records_replay_byte_for_byte_and_say_why_a_pod_waits() -> None:
    running = scheduler(gpu_node("n1", 4), gpu_node("n2", 4, "V100"))
    running.create(
        measured("m", 2), asks("a"), asks("big", 6), measured("too-many", 5), asks("v", affinity=only("V100"))
    )
    assert running.begin()
    running.plan()
    assert running.result is not None and running.result.trace is not None
    recorded = RecordView(running.result.trace.record(), "test")
    assert replay(recorded).same
    messages = {uid: held.message for held in running.result.held for uid in held.uids}
    assert set(messages.values()) == {f"0/2 nodes are available: 2 Insufficient {NVIDIA}."}
    assert len(messages) == 2
    texts = {name: "\n".join(explain(recorded, f"default/{name}").lines()) for name in ("big", "too-many")}
    assert "Insufficient GPUs: n1, n2." in texts["too-many"]
    assert f"n1 has the most {NVIDIA}, 4, and it asks for 6." in texts["big"]
