"""How GPUs are linked: distances, what links and neighbours do to run times, and topology-aware placement."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from flowsched.cluster.cluster_state import ClusterState
from flowsched.cluster.events import MachineAdded, TaskBound, TaskSubmitted
from flowsched.cluster.settings import TOPOLOGY, TOPOLOGY_WORTH, Settings
from flowsched.cluster.snapshot import Machine, Task
from flowsched.cluster.snapshot_dump import dump_snapshot
from flowsched.errors import RestoreError
from flowsched.gpu.devices import WHOLE_MILLI, DevicesNow, GpuJob, MachineGpus, TaskGpus
from flowsched.gpu.set_demand import SetDemand
from flowsched.gpu.topology_cost import WEIGHT, TopologyCost
from flowsched.inspector import flow_task
from flowsched.inspector.explanation import explain
from flowsched.inspector.record_view import RecordView
from flowsched.inspector.replay import replay
from flowsched.pricing.topology_prices import SetMemory
from flowsched.records.record import Recipe
from flowsched.records.snapshot_source import load_snapshot
from flowsched.round.scheduler import FlowScheduler
from flowsched.solvers import make_solver
from flowsched_models.catalogue import Catalogue
from flowsched_models.document import InputError
from flowsched_models.gpu_profile import Contention, GpuProfile
from flowsched_models.gpu_topology import GpuLinks, GpuTopology
from flowsched_models.machine import MachineType
from flowsched_models.profile import JobProfile, PhaseOrder
from flowsched_models.profiles import CatalogueForm, dump_catalogue, load_catalogue
from flowsched_simulator import EngineOptions, Options, Scenario, load_scenario, make_scenario, simulate
from flowsched_simulator.policies import readers

TOPOLOGIES = load_catalogue().gpu_topologies


def profile(name: str, work_s: float, communication: float, slower: float = 0.34, bus: float = 1.29) -> JobProfile:
    gpus = GpuProfile(links={"bus": bus}, communication=communication, socket=Contention(1.0, slower))
    return JobProfile(name, work_s, 0.0, PhaseOrder.MIXED, 0.0, 0.0, 0.0, 0, gpus=gpus)


CATALOGUE = Catalogue(
    {p.name: p for p in (profile("tiny", 60.0, 4.0), profile("big", 600.0, 1.0, 0.05, 1.01))},
    {},
    {"power8": MachineType("power8", 16, 512_000)},
    gpu_topologies=TOPOLOGIES,
)
MINSKY = MachineGpus("P100", 4, topology="minsky")
DGX1 = MachineGpus("V100", 8, topology="dgx1")
POSTPONING = Settings(
    eps=0.0, beta=0.0, slots=1, waiting_weight=0.01, improved_tasks=0, gpu_sets=TOPOLOGY, gpu_postpones=True
)


def task(name: str, count: int, kind: str = "tiny", **more: object) -> Task:
    plain = Task(name, name, kind, 1.0, 1000, (1000,), 0, 0.0, gpus=TaskGpus(count), threads=(1,))
    return replace(plain, **more)  # type: ignore[arg-type]


def running(gpus: MachineGpus, *jobs: tuple[str, str, tuple[int, ...]]) -> ClusterState:
    state = ClusterState(CATALOGUE)
    state.apply(MachineAdded(Machine("m", "power8", 16_000, 512_000, 16, gpus=gpus), ()), 0.0)
    for name, kind, devices in jobs:
        state.apply(TaskSubmitted(task(name, len(devices), kind)), 0.0)
        state.apply(TaskBound(name, "m", 1000, 1, tuple(range(16)), 0.0, devices), 0.0)
    return state


def test_distances_are_those_of_the_thesis() -> None:
    minsky = TOPOLOGIES["minsky"]
    assert minsky.spread((0, 1)) == 2.0
    assert minsky.spread((0, 2)) == 42.0
    assert minsky.slowest_class((0, 1)) == "nvlink"
    assert minsky.slowest_class((1, 3)) == "bus"
    assert minsky.slowest_class((1,)) is None
    assert minsky.socket_mask((0, 1)) == 0b01
    assert minsky.socket_mask((1, 2)) == 0b11


def test_no_path_leads_through_a_third_gpu() -> None:
    dgx1 = TOPOLOGIES["dgx1"]
    assert dgx1.slowest_class((0, 4)) == "nvlink"
    assert dgx1.slowest_class((0, 5)) == "bus"
    direct = {frozenset(ends) for ends in dgx1.links[0].between}
    for one, other in combinations(range(8), 2):
        assert (dgx1.distance[one, other] == 1.0) == (frozenset((one, other)) in direct)


@given(st.data())
def test_devices_are_linked_where_a_path_has_a_length(data: st.DataObject) -> None:
    count = data.draw(st.integers(1, 6))
    ends = st.sampled_from([*range(count), "socket-0", "socket-1", "switch", "bridge"])
    between = st.lists(st.lists(ends, min_size=2, max_size=2, unique=True).map(tuple), min_size=1, max_size=9)
    links = GpuLinks("bus", 1.0, tuple(data.draw(between)))
    topology = GpuTopology("drawn", (tuple(range(count)),), (links,))
    assert np.array_equal(topology.linked, np.isfinite(topology.distance))


@pytest.mark.parametrize("name", sorted(TOPOLOGIES))
def test_worst_and_best_sets_are_those_of_all(name: str) -> None:
    topology = TOPOLOGIES[name]
    for count in range(1, topology.count + 1):
        sets = list(combinations(range(topology.count), count))
        assert topology.worst_spread(count) == max(map(topology.spread, sets))
        assert topology.best_class(count) == topology.slowest_class(topology.closest(range(topology.count), count))


def test_catalogues_with_topologies_and_profiles_of_gpus_are_read_back_equal() -> None:
    assert CatalogueForm.model_validate(dump_catalogue(CATALOGUE)).catalogue("").jobs == CATALOGUE.jobs
    again = CatalogueForm.model_validate(dump_catalogue(CATALOGUE)).catalogue("").gpu_topologies
    assert again == TOPOLOGIES


def _profiles(tmp_path: Path, topology: str, machines: str = "{model: P100, count: 2, topology: own}") -> Path:
    own = tmp_path / "profiles.yaml"
    own.write_text(
        "apiVersion: flowsched/v1\nkind: Profiles\nmachine_types: {any: {source: s, vcpus: 8, memory: 8Gi}}\n"
        f"gpu_topologies:\n  own: {topology}\n"
    )
    scenario = tmp_path / "scenario.yaml"
    scenario.write_text(
        "apiVersion: flowsched/v1\nkind: Scenario\nname: t\nprofiles: [profiles.yaml]\n"
        f"machines: [{{name: m, type: any, gpus: {machines}}}]\n"
        "jobs: [{name: j, request: 1, runtime_s: 10, gpus: {count: 2}}]\n"
    )
    return scenario


OWN = "{source: s, sockets: [[0, 1]], links: [{class: pcie, weight: 1, between: [[0, 1]]}]}"


@pytest.mark.parametrize(
    ("topology", "machines", "words"),
    [
        (OWN.replace("[[0, 1]], links", "[[0, 2]], links"), None, "each of the 2 devices once, numbered from 0"),
        (OWN.replace("between: [[0, 1]]", "between: [[0, 7]]"), None, "there is no device 7; there are 2"),
        (OWN.replace("between: [[0, 1]]", "between: [[0, here]]"), None, "no links lead from device 0 to device 1"),
        (OWN, "{model: P100, count: 4, topology: own}", "topology own links 2 devices, but there are 4"),
        (OWN, "{model: P100, count: 4, topology: owm}", "there is no GPU topology 'owm'"),
    ],
)
def test_bad_topologies_are_said_in_one_sentence(
    tmp_path: Path, topology: str, machines: str | None, words: str
) -> None:
    scenario = _profiles(tmp_path, topology, *([machines] if machines else []))
    with pytest.raises(InputError, match=words):
        load_scenario(scenario)


def test_an_own_topology_is_a_small_graph_in_a_profiles_file(tmp_path: Path) -> None:
    run = simulate(load_scenario(_profiles(tmp_path, OWN)), "flow")
    assert run.jobs[0].end_s == pytest.approx(10.0)


def test_links_and_neighbours_at_a_socket_slow_jobs_down() -> None:
    spread = running(MINSKY, ("a", "tiny", (0, 2)), ("b", "tiny", (1,)), ("c", "tiny", (3,)))
    state = spread.snapshot(20.0)
    done = {r.task.name: r.progress for r in state.running}
    # a feels both others, they feel it alone: 34 % for each.
    assert done["a"] == pytest.approx(20.0 / (60.0 * 1.29 * (1 + 2 * 0.34)))
    assert done["b"] == done["c"] == pytest.approx(20.0 / (60.0 * 1.34))
    alone = running(MINSKY, ("a", "tiny", (0, 1)), ("b", "tiny", (2,))).snapshot(20.0)
    assert [r.progress for r in alone.running] == pytest.approx([20.0 / 60.0] * 2)


def test_a_slower_model_takes_longer_and_flow_knows_it() -> None:
    gpus = GpuProfile(speed={"K80": 0.25, "P100": 0.8})
    known = replace(CATALOGUE.jobs["tiny"], name="train", gpus=gpus)
    catalogue = replace(CATALOGUE, jobs={"train": known})
    state = ClusterState(catalogue)
    for model in ("K80", "P100", "V100"):
        machine = Machine(model.lower(), "power8", 16_000, 512_000, 16, gpus=MachineGpus(model, 1))
        state.apply(MachineAdded(machine, ()), 0.0)
    for n in range(2):
        state.apply(TaskSubmitted(task(f"t{n}", 1, "train")), 0.0)
    decided = FlowScheduler(make_solver("ortools"), Settings(slots=1)).decide(state.snapshot(0.0))
    assert {p.machine for p in decided.placements} == {"v100", "p100"}


def costs(gpus: MachineGpus, demand: SetDemand | None = None) -> TopologyCost:
    return TopologyCost(CATALOGUE, gpus, demand)


def test_the_terms_are_those_of_the_thesis() -> None:
    left = (WHOLE_MILLI, 0, WHOLE_MILLI, 0)
    there = [GpuJob("tiny", (1,)), GpuJob("tiny", (3,))]
    terms = costs(MINSKY).terms("tiny", (0, 2), there, left)
    assert terms.communication == pytest.approx(0.33 * 4 / 4)
    # Each neighbour is 34 % slower, the job itself 68 %: nowhere on this machine is the mean worse.
    assert costs(MINSKY).worst_interference == pytest.approx((0.34 + 0.34 + 0.68) / 3)
    assert terms.interference == pytest.approx(0.33)
    assert terms.fragmentation == 0.0
    assert terms.utility == pytest.approx(1 - 0.66)


@st.composite
def states(draw: st.DrawFn) -> tuple[DevicesNow, str, TaskGpus]:
    gpus = draw(st.sampled_from([MINSKY, DGX1]))
    state = DevicesNow.idle(gpus)
    for _ in range(draw(st.integers(0, 4))):
        free = [d for d, milli in enumerate(state.left) if milli == WHOLE_MILLI]
        devices = tuple(draw(st.sets(st.sampled_from(free), min_size=1, max_size=2))) if free else ()
        if devices:
            state = state.with_task(draw(st.sampled_from(["tiny", "big"])), TaskGpus(len(devices)), sorted(devices))
    return state, draw(st.sampled_from(["tiny", "big"])), TaskGpus(draw(st.integers(1, gpus.count)))


@given(states(), st.booleans())
@settings(max_examples=200, deadline=None)
def test_the_best_set_is_the_cheapest_of_all_that_are_free(
    case: tuple[DevicesNow, str, TaskGpus], by_demand: bool
) -> None:
    state, kind, wanted = case
    demand = SetDemand(((2, 0.5), (4, 0.25)), ((2, 4.0), (4, 2.0))) if by_demand else None
    memory = SetMemory()
    memory.begin(CATALOGUE, demand)
    choice = memory.best(state, kind, wanted)
    free = [d for d, milli in enumerate(state.left) if milli == WHOLE_MILLI]
    if len(free) < wanted.count:
        assert choice is None
        return
    assert choice is not None
    cost = costs(state.gpus, demand)
    every = [cost.terms(kind, devices, state.jobs, state.left).cost for devices in combinations(free, wanted.count)]
    assert choice.terms.cost == pytest.approx(min(every))
    assert set(choice.devices) <= set(free)
    assert all(0.0 <= term <= WEIGHT + 1e-9 for term in choice.terms[:2])
    assert choice.terms.fragmentation >= -1e-9, "what is left free is never worth more than before"


@given(states())
@settings(max_examples=100, deadline=None)
def test_a_state_forgets_a_task_that_is_gone(case: tuple[DevicesNow, str, TaskGpus]) -> None:
    state, kind, wanted = case
    free = [d for d, milli in enumerate(state.left) if milli == WHOLE_MILLI][: wanted.count]
    if len(free) == wanted.count:
        after = state.with_task(kind, wanted, free).without_task(kind, wanted, free)
        assert after == state
        assert hash(after) == hash(state)


def test_what_is_left_is_worth_the_distance_that_it_spares() -> None:
    demand = SetDemand(((2, 0.5),), ((2, 4.0),))
    cost = costs(MINSKY, demand)
    pair = WEIGHT * 0.5 * (1 - 2 / 42)
    assert cost.worth([WHOLE_MILLI] * 4) == pytest.approx(2 * pair)
    assert cost.worth([WHOLE_MILLI, 0, WHOLE_MILLI, 0]) == 0.0
    assert cost.terms("tiny", (0,), [], [WHOLE_MILLI] * 4).fragmentation == pytest.approx(pair)
    assert cost.terms("tiny", (2,), [], [0, WHOLE_MILLI, WHOLE_MILLI, 0]).fragmentation == 0.0


def test_a_task_waits_for_better_gpus_and_is_told_which() -> None:
    state = running(MINSKY, ("a", "tiny", (0,)), ("b", "tiny", (2,)))
    state.apply(TaskSubmitted(task("c", 2, min_utility=0.5)), 0.0)
    decided = FlowScheduler(make_solver("ortools"), POSTPONING, keep_records=True).decide(state.snapshot(0.0))
    assert not decided.placements
    (waits,) = decided.postponements
    assert "waits for better GPUs: the best free ones, 1, 3 of m, linked by bus, are of utility 0.34" in waits.reason
    assert "it demands 0.5" in waits.reason
    assert decided.record is not None
    explained = explain(RecordView(decided.record), "c")
    assert explained.lines()[0] == f"c {waits.reason}."
    better = explained.plain()["better_gpus"]
    assert (better["machine"], better["devices"], better["link_class"]) == ("m", [1, 3], "bus")
    terms = [better[term] for term in ("communication", "interference", "fragmentation")]
    assert better["utility"] == pytest.approx(1 - sum(terms))
    assert better["utility"] < better["demanded"] == 0.5
    full = running(MINSKY, ("a", "tiny", (0, 1)), ("b", "tiny", (2,)))
    full.apply(TaskSubmitted(task("c", 2, min_utility=0.5)), 0.0)
    record = FlowScheduler(make_solver("ortools"), POSTPONING, keep_records=True).decide(full.snapshot(0.0)).record
    assert record is not None
    without = explain(RecordView(record), "c")
    assert without.plain()["better_gpus"] is None, "none are free, good or bad"
    assert without.lines()[0] == "c waits: no machine that may take it has room now."
    at_once = FlowScheduler(make_solver("ortools"), replace(POSTPONING, gpu_postpones=False)).decide(
        state.snapshot(0.0)
    )
    assert [p.devices for p in at_once.placements] == [(1, 3)]
    due = FlowScheduler(make_solver("ortools"), replace(POSTPONING, due_age_s=5.0)).decide(state.snapshot(6.0))
    assert [p.task for p in due.placements] == ["c"], "waiting is bounded"


def test_a_tie_between_a_place_and_waiting_goes_to_the_place() -> None:
    # Neither where the best devices are just of the utility that a task demands, nor for tasks without any price.
    state = running(MINSKY, ("a", "tiny", (0,)), ("b", "tiny", (2,)))
    best = SetMemory()
    best.begin(CATALOGUE, None)
    (now,) = state.snapshot(0.0).devices_now().values()
    choice = best.best(now, "tiny", TaskGpus(2))
    assert choice is not None
    state.apply(TaskSubmitted(task("c", 2, min_utility=choice.terms.utility)), 0.0)
    for n in range(4):
        state.apply(TaskSubmitted(task(f"plain-{n}", 1, gpus=None)), 0.0)
    for share in (0.0, 0.1, 1.0):
        decided = FlowScheduler(make_solver("ortools"), replace(POSTPONING, pass_share=share)).decide(
            state.snapshot(0.0)
        )
        assert {p.task for p in decided.placements} == {"c", *(f"plain-{n}" for n in range(4))}
    state.apply(TaskSubmitted(task("d", 1, min_utility=1.0)), 0.0)
    decided = FlowScheduler(make_solver("ortools"), POSTPONING).decide(state.snapshot(0.0))
    assert [p.task for p in decided.postponements] == ["d"], "dearer than waiting"


def test_the_oldest_task_starts_also_where_a_younger_one_would_disturb_less() -> None:
    state = running(MINSKY, ("a", "tiny", (0, 1)), ("b", "tiny", (2,)))
    for n in range(9):
        state.apply(MachineAdded(Machine(f"full-{n}", "power8", 16_000, 512_000, 16, gpus=MINSKY), ()), 0.0)
        state.apply(TaskSubmitted(task(f"there-{n}", 4)), 0.0)
        state.apply(TaskBound(f"there-{n}", f"full-{n}", 1000, 1, tuple(range(16)), 0.0, (0, 1, 2, 3)), 0.0)
    for name, count, kind, at_s in (("pair", 2, "tiny", 0.0), ("old", 1, "tiny", 1.0), ("young", 1, "big", 2.0)):
        state.apply(TaskSubmitted(task(name, count, kind, submit_s=at_s)), at_s)
    several = replace(POSTPONING, gpu_postpones=False, pass_share=0.5)
    decided = FlowScheduler(make_solver("ortools"), several).decide(state.snapshot(3.0))
    assert [p.task for p in decided.placements] == ["old"], "places say where to start, not who"
    reasons = {p.task: p.reason for p in decided.postponements}
    assert "of the machines that suit it m has most left: 1000m, 0m, 0m, 0m" in reasons["pair"]
    assert reasons["young"].endswith("no machine has room for it beside those that start now or are planned")


@pytest.mark.parametrize("sets", [TOPOLOGY, TOPOLOGY_WORTH])
def test_rounds_of_many_tasks_give_no_device_twice(sets: str) -> None:
    state = ClusterState(CATALOGUE)
    for name, gpus in (("m0", MINSKY), ("m1", MINSKY), ("d", DGX1), ("plain", MachineGpus("P100", 2))):
        state.apply(MachineAdded(Machine(name, "power8", 16_000, 512_000, 16, gpus=gpus), ()), 0.0)
    for n in range(14):
        state.apply(TaskSubmitted(task(f"t{n:02}", 1 + n % 3, ("tiny", "big")[n % 2])), 0.0)
    scheduler = FlowScheduler(make_solver("ortools"), replace(POSTPONING, gpu_sets=sets, gpu_postpones=False))
    placed = 0
    for now in range(3):
        decided = scheduler.decide(state.snapshot(float(now)))
        for p in decided.placements:
            # The state refuses devices that are taken.
            state.apply(TaskBound(p.task, p.machine, p.width_milli, p.threads, p.cores, now, p.devices), float(now))
        placed += len(decided.placements)
    assert placed >= 8
    whole = sum(milli == WHOLE_MILLI for now in state.snapshot(9.0).devices_now().values() for milli in now.left)
    waiting = min((t.gpus.count for t in state.snapshot(9.0).pending if t.gpus is not None), default=9)
    assert whole < 4 or waiting == 9, "what fits is placed"


def test_snapshots_with_topologies_are_read_back(tmp_path: Path) -> None:
    state = running(MINSKY, ("a", "tiny", (0, 3)))
    path = tmp_path / "snapshot.yaml"
    path.write_text(yaml.safe_dump(dump_snapshot(state.snapshot(1.0)), sort_keys=False))
    again = load_snapshot(path)
    assert again.machines[0].gpus == MINSKY
    assert again.running[0].devices == (0, 3)
    assert again.devices_now() == dict(state.snapshot(1.0).devices_now())


def test_without_the_models_the_sentence_of_the_record_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    def closed(*_: object) -> None:
        raise RestoreError("a model is gone")

    state = running(MINSKY, ("a", "tiny", (0,)), ("b", "tiny", (2,)))
    state.apply(TaskSubmitted(task("c", 2, min_utility=0.5)), 0.0)
    decided = FlowScheduler(make_solver("ortools"), POSTPONING, keep_records=True).decide(state.snapshot(0.0))
    assert decided.record is not None
    monkeypatch.setattr(flow_task, "restore", closed)
    assert explain(RecordView(decided.record), "c").lines()[0] == f"c {decided.postponements[0].reason}."


JOBS = (
    ("alexnet-1", 57.7, 1, 0.3, 0.51),
    ("googlenet-4", 177.5, 1, 0.3, 15.03),
    ("alexnet-1", 172.1, 1, 0.3, 24.36),
    ("alexnet-4", 119.9, 2, 0.5, 25.33),
    ("alexnet-1", 38.4, 2, 0.5, 29.33),
    ("cafferef-1", 110.4, 2, 0.5, 29.89),
)


def table_7(folder: Path) -> Scenario:
    """Six jobs of the thesis's Table 7, run times as fitted by others to its figure 17."""
    weights = {"alexnet-1": 4.0, "googlenet-4": 3.0, "alexnet-4": 3.0, "cafferef-1": 4.0}
    catalogue = Catalogue(
        {name: profile(name, 1.0, weight) for name, weight in weights.items()},
        {},
        {"power8": CATALOGUE.machine_types["power8"]},
        gpu_topologies=TOPOLOGIES,
    )
    written = folder / "profiles.yaml"
    plain = dump_catalogue(catalogue)
    for section in ("jobs", "machine_types", "gpu_topologies"):
        for entry in plain[section].values():
            entry["source"] = "a test"
            entry.pop("name", None)
    written.write_text(yaml.safe_dump({"apiVersion": "flowsched/v1", "kind": "Profiles", **plain}))
    jobs = [
        {
            "name": f"job-{n}", "profile": name, "scale": run_s, "request": 1, "threads": [1], "submit_s": at,
            "min_utility": least, "gpus": {"count": count},
        }
        for n, (name, run_s, count, least, at) in enumerate(JOBS)
    ]  # fmt: skip
    machine = {"name": "minsky", "type": "power8", "gpus": {"model": "P100", "count": 4, "topology": "minsky"}}
    return replace(make_scenario([machine], jobs, profiles=[str(written)]), name="table-7")


def test_table_7_in_order_of_the_thesis(tmp_path: Path) -> None:
    scenario = table_7(tmp_path)
    runs = {
        policy: simulate(scenario, policy, variant=variant, options=Options())
        for policy, variant in (("topo-aware-p", None), ("topo-aware", None), ("fcfs", "declared-own"))
    }
    least = runs["topo-aware-p"].makespan_s
    for other in ("topo-aware", "fcfs"):
        assert 1.2 < runs[other].makespan_s / least < 1.35
    slower = {j.job: (j.end_s - j.start_s) / j.alone_s for j in runs["topo-aware-p"].jobs}
    assert [slower[f"job-{n}"] for n in (1, 3, 4)] == pytest.approx([1.0] * 3, abs=1e-6)


def test_records_keep_what_interference_is_measured_by(tmp_path: Path) -> None:
    """The profile of the largest sensitivity is in no use in the last rounds: their costs must not change for it."""
    loud = profile("loud", 5.0, 4.0, 0.9)
    jobs = [
        {"name": "first", "profile": "loud", "request": 1, "gpus": {"count": 1}},
        *(
            {"name": f"later-{k}", "profile": "tiny", "request": 1, "submit_s": 50.0 + k, "gpus": {"count": 1}}
            for k in range(3)
        ),
    ]
    written = tmp_path / "profiles.yaml"
    plain = dump_catalogue(replace(CATALOGUE, jobs={**CATALOGUE.jobs, "loud": loud}))
    for section in ("jobs", "machine_types", "gpu_topologies"):
        for entry in plain[section].values():
            entry["source"] = "a test"
    written.write_text(yaml.safe_dump({"apiVersion": "flowsched/v1", "kind": "Profiles", **plain}))
    machine = {"name": "m", "type": "power8", "gpus": {"model": "P100", "count": 4, "topology": "minsky"}}
    scenario = make_scenario([machine], jobs, profiles=[str(written)])
    kept: list[Recipe] = []
    options = Options(record_sink=lambda policy, number, recipe: kept.append(recipe))
    simulate(scenario, "topo-aware", options=options, engine=EngineOptions(keep_records=True))
    assert len(kept) >= 4
    for recipe in kept:
        assert replay(RecordView(recipe(), "test")).same


@pytest.mark.parametrize("policy", ["topo-aware-p", "flow"])
def test_a_task_that_waits_for_utility_starts_when_it_is_due_and_not_at_the_next_event(policy: str) -> None:
    machine = {"name": "m", "type": "e2-standard-8", "gpus": {"model": "P100", "count": 4, "topology": "minsky"}}
    jobs = [
        {"name": "long", "runtime_s": 5000, "request": 1, "gpus": {"count": 1}},
        {
            "name": "choosy", "runtime_s": 50, "request": 1, "submit_s": 2, "goal_s": 10, "min_utility": 0.95,
            "gpus": {"count": 2},
        },
    ]  # fmt: skip
    engine = EngineOptions(settings=Settings(due_age_s=100.0))
    run = simulate(make_scenario([machine], jobs), policy, engine=engine)
    assert {job.job: job.start_s for job in run.jobs}["choosy"] == pytest.approx(102.0, abs=0.01)


def test_a_job_of_a_slow_model_only_does_not_wait_for_a_fast_one() -> None:
    gpus = GpuProfile(speed={"K80": 0.1})
    catalogue = replace(CATALOGUE, jobs={"train": replace(CATALOGUE.jobs["tiny"], name="train", gpus=gpus)})
    state = ClusterState(catalogue)
    for model in ("K80", "P100"):
        machine = Machine(model.lower(), "power8", 16_000, 512_000, 16, gpus=MachineGpus(model, 1))
        state.apply(MachineAdded(machine, ()), 0.0)
    state.apply(TaskSubmitted(task("only", 1, "train", gpus=TaskGpus(models=("K80",)))), 0.0)
    decided = FlowScheduler(make_solver("ortools"), Settings()).decide(state.snapshot(0.0))
    (placed,) = decided.placements
    assert placed.machine == "k80"
    assert placed.terms["interference_caused"] == placed.terms["interference_suffered"] == 0.0


def test_settings_that_a_topology_policy_fixes_are_not_read_by_it() -> None:
    read = readers(("topo-aware",), {}).plain
    assert "due_age_s" in read
    assert not {"gpu_sets", "gpu_postpones", "eps", "slots"} & set(read)
    assert {"gpu_sets", "gpu_postpones", "eps", "slots"} <= set(readers(("topo-aware", "flow"), {}).plain)
