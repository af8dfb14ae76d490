"""Jobs whose GPUs may be on other machines: how they are read, placed all or none, slowed down by networks, and ended."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st

from flowsched.cluster.cluster_state import ClusterState
from flowsched.cluster.decision import Decisions, Preemption
from flowsched.cluster.events import MachineAdded, RoundDecided, TaskBound, TaskSubmitted
from flowsched.cluster.snapshot import Machine, Snapshot, Task
from flowsched.cluster.snapshot_dump import dump_snapshot, read_plain_snapshot
from flowsched.disaggregation.coupled import coupled, coupled_jobs, serving_profile
from flowsched.disaggregation.registry import DISAGGREGATION_POLICIES, make_disaggregation
from flowsched.disaggregation.settings import DisaggregationSettings, place_cost, utility, waiting_cost
from flowsched.gpu.devices import MachineGpus, TaskGpus, left_beside
from flowsched.inspector.change import parse_changes
from flowsched.inspector.difference import difference
from flowsched.inspector.record_view import RecordView
from flowsched.inspector.whatif import what_if
from flowsched.records.record_file import pack_record, read_record
from flowsched.relations.relation import TaskGroup
from flowsched.solvers import make_solver
from flowsched_models.catalogue import Catalogue
from flowsched_models.document import InputError
from flowsched_models.given_run_time import fixed_profile
from flowsched_models.gpu_profile import Contention, GpuProfile
from flowsched_models.machine import MachineType
from flowsched_simulator import Options, make_scenario, simulate
from flowsched_simulator.commands.policies import policies as policies_command
from flowsched_simulator.commands.simulate import simulate as simulate_command
from flowsched_simulator.policies import ON_REQUEST, EngineOptions, readers
from flowsched_simulator.run import Run
from flowsched_simulator.scenario import Scenario
from flowsched_simulator.simulation import Simulation

NAMES = tuple(DISAGGREGATION_POLICIES)
_TYPES = Catalogue({}, {}, {"any": MachineType("any", 64, 1_000_000)})
_BASE = fixed_profile(_TYPES, None)
QUIET = replace(_BASE, name="quiet", gpus=GpuProfile(communication=1.0))
"""Known, and neither disturbs nor is disturbed."""
LOUD = replace(_BASE, name="loud", gpus=GpuProfile(network=Contention(0.5, 1.0), remote=1.2))
"""20 % longer with remote GPUs, and half its time more for each other job of that kind on the same network."""
CATALOGUE = replace(_TYPES, jobs={p.name: p for q in (_BASE, QUIET, LOUD) for p in (q, serving_profile(q))})


def machine(name: str, gpus: int, cores: int = 8, model: str = "K80") -> Machine:
    return Machine(name, "any", cores * 1000, 64_000, 64, gpus=MachineGpus(model, gpus) if gpus else None)


def job(name: str, gpus: int = 1, profile: str = QUIET.name, **more: Any) -> tuple[Task, ...]:
    """A job of a core and 100 s whose GPUs may be anywhere."""
    whole = Task(name, name, profile, 100.0, 1000, (1000,), 100, 0.0, gpus=TaskGpus(gpus))
    return coupled(replace(whole, **more))


def plain(name: str, cores: int, gpus: int = 0, run_s: float = 100.0, **more: Any) -> Task:
    wanted = TaskGpus(gpus) if gpus else None
    return replace(Task(name, name, QUIET.name, run_s, cores * 1000, (cores * 1000,), 100, 0.0, gpus=wanted), **more)


def scenario(machines: list[Machine], *tasks: tuple[Task, ...] | Task) -> Scenario:
    every = tuple(t for one in tasks for t in (one if isinstance(one, tuple) else (one,)))
    groups = tuple(TaskGroup(j.first.name, len(j.tasks)) for j in coupled_jobs(every) if j.parts)
    return Scenario(
        "remote", "", CATALOGUE, tuple(machines), (), every, task_groups=groups,
        barriers=frozenset(g.name for g in groups),
    )  # fmt: skip


def run_of(policy: str, of: Scenario, settings: DisaggregationSettings | None = None, **options: Any) -> Run:
    texts = () if settings is None else tuple((k, str(v)) for k, v in vars(settings).items())
    return simulate(of, policy, options=Options(**options), engine=EngineOptions(network_settings={policy: texts}))


def snapshot_of(of: Scenario, running: Mapping[str, str] | None = None) -> Snapshot:
    """All jobs pending but for those that run, by task."""
    state = ClusterState(of.catalogue, task_groups=of.task_groups)
    for each in of.machines:
        state.apply(MachineAdded(each), 0.0)
    for task in of.tasks:
        state.apply(TaskSubmitted(task), 0.0)
    for name, place in (running or {}).items():
        task = next(t for t in of.tasks if t.name == name)
        peers = [p for n, p in (running or {}).items() if n == task.gpus_for or _for(of, n) == name]
        left = state.snapshot(0.0).devices_left().get(place, ())
        devices = (left.index(1000),) if task.gpus is not None else ()
        bound = TaskBound(name, place, task.widths_milli[0], 1, (0, 1), 0.0, devices, any(p != place for p in peers))
        state.apply(bound, 0.0)
    return state.snapshot(0.0)


def _for(of: Scenario, name: str) -> str:
    return next(t for t in of.tasks if t.name == name).gpus_for


def decided(policy: str, snapshot: Snapshot, **settings: Any) -> Decisions:
    return make_disaggregation(policy, make_solver("ortools"), DisaggregationSettings(**settings)).decide(snapshot)


def places(decisions: Decisions) -> dict[str, str]:
    return {p.task: p.machine for p in decisions.placements}


# How they are read


MACHINES: list[dict[str, Any]] = [
    {"name": "m", "type": "e2-standard-8", "copies": 2, "gpus": {"model": "K80", "count": 1}}
]
JOB: dict[str, Any] = {
    "name": "j",
    "request": 1,
    "memory": "1Gi",
    "runtime_s": 50,
    "gpus": {"count": 2, "remote": True},
}


def test_a_job_is_a_group_of_a_task_for_its_cpu_and_one_for_each_gpu() -> None:
    made = make_scenario(MACHINES, [JOB | {"copies": 2}])
    assert [t.name for t in made.tasks] == ["j-1", "j-1/gpu-1", "j-1/gpu-2", "j-2", "j-2/gpu-1", "j-2/gpu-2"]
    first, gpu = made.tasks[0], made.tasks[1]
    assert (first.widths_milli, first.memory_mib, first.gpus, first.gpus_for) == ((1000,), 1024, None, "")
    assert (gpu.widths_milli, gpu.memory_mib, gpu.gpus, gpu.gpus_for) == ((0,), 0, TaskGpus(1), "j-1")
    assert made.task_groups == (TaskGroup("j-1", 3), TaskGroup("j-2", 3))


def test_a_table_may_say_so_too() -> None:
    rows = [JOB | {"gpus": "count=2 models=K80 remote=true"}]
    assert make_scenario(MACHINES, rows).tasks[1].gpus == TaskGpus(1, models=("K80",))


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"gpus": {"share": "470m", "remote": True}}, "jobs[0].gpus: asks for a share of a GPU that may be on another"),
        ({"runtime_s": None, "profile": "vips"}, "jobs[0].gpus: may be on other machines (remote), which needs"),
        ({"tasks": 3}, "jobs[0].gpus: may be on other machines (remote), but the job has 3 tasks; use copies"),
        ({"gpus": {"count": 3, "remote": True}}, "jobs[0].gpus: job 'j' needs 3 GPUs; the machines have 2 together"),
        ({"gpus": {"models": ["V100"], "remote": True}}, "needs 1 GPU of model V100 on one machine; no machine has that"),
        ({"gpus": {"count": 1, "remote": "maybe"}}, "remote"),
        ({"group": "g"}, "jobs[0].group: may be on other machines (remote): such a job is a task group of its own"),
    ],
)  # fmt: skip
def test_what_cannot_be_is_one_sentence_with_its_place(change: dict[str, Any], text: str) -> None:
    keys = {k: v for k, v in (JOB | change).items() if v is not None}
    groups = {"task_groups": [{"name": "g", "minimum": 1}]} if "group" in change else {}
    with pytest.raises(InputError) as caught:
        make_scenario(MACHINES, [keys], **groups)
    assert any(text in str(p) for p in caught.value.problems), caught.value
    assert "\n" not in str(caught.value.problems[0])


def test_random_arrivals_draw_whole_jobs() -> None:
    arrivals = {"poisson": {"rate_per_minute": 60, "jobs": 5}}
    made = make_scenario(MACHINES, [JOB], arrivals=arrivals)
    run = simulate(made, "drmaestro")
    assert [o.tasks for o in run.outcomes] == [3] * 5 and all(o.end_s is not None for o in run.outcomes)


def test_records_and_dumps_keep_what_is_remote() -> None:
    of = scenario([machine("a", 0), machine("b", 2)], job("x"), job("y", postponements=3))
    snapshot = snapshot_of(of, {"x": "a", "x/gpu-1": "b"})
    assert {r.task.name: r.remote for r in snapshot.running} == {"x": True, "x/gpu-1": True}
    back = read_plain_snapshot(dump_snapshot(snapshot))
    assert [(r.task.gpus_for, r.remote) for r in back.running] == [("", True), ("x", True)]
    assert [t.postponements for t in back.pending] == [3, 3]


@pytest.mark.parametrize("policy", NAMES)
def test_what_ifs_ask_the_policy_that_decided(policy: str) -> None:
    of = scenario([machine("a", 1), machine("b", 1, cores=0), machine("c", 0)], job("x"), job("y"))
    solver, settings = make_solver("ortools"), DisaggregationSettings(slack=2.0)
    scheduler = make_disaggregation(policy, solver, settings, keep_records=True)
    made = scheduler.decide(snapshot_of(of)).record
    assert made is not None
    recorded = RecordView(read_record(pack_record(made), "round.npz"), "round.npz")
    assert difference(recorded, what_if(recorded, parse_changes(recorded))).same
    text = f"{policy}.remote_price=1"
    changed = what_if(recorded, parse_changes(recorded, drain=["b"], without=["y", "y/gpu-1"], settings=[text]))
    fewer = replace(of, machines=(of.machines[0], of.machines[2]), tasks=of.tasks[:2], task_groups=of.task_groups[:1])
    expected = decided(policy, snapshot_of(fewer), slack=2.0, remote_price=1.0)
    assert {p.task: (p.machine, p.cost) for part in changed.parts for p in part.placements} == {
        p.task: (p.machine, p.cost) for p in expected.placements
    }
    assert (changed.policy, changed.settings["slack"], changed.settings["remote_price"]) == (policy, 2.0, 1.0)
    told = difference(recorded, changed).lines()
    assert "settings.remote_price: 1.5 -> 1" in told and not any("is no flow" in line for line in told)
    with pytest.raises(InputError, match=f"slots: not read by {policy}; what is read: {policy}.remote_price, "):
        parse_changes(recorded, settings=["slots=2"])


# Where they go


@pytest.mark.parametrize("policy", NAMES)
def test_a_gpu_is_local_where_it_can_be_and_remote_where_it_must(policy: str) -> None:
    of = scenario([machine("a", 1), machine("b", 1, cores=0), machine("c", 0)], job("x"), job("y"))
    found = places(decided(policy, snapshot_of(of)))
    cpus = {found["x"], found["y"]}
    assert {found["x/gpu-1"], found["y/gpu-1"]} == {"a", "b"} and cpus <= {"a", "c"}
    local = sum(found[n] == found[f"{n}/gpu-1"] for n in "xy")
    assert local == 1 if policy == "drmaestro-joint" else local <= 1


@pytest.mark.parametrize("policy", (*NAMES, "flow", "best-fit", "fcfs"))
def test_all_sub_tasks_start_together_or_none_does(policy: str) -> None:
    # Two GPUs in all: x has both, y waits for both though one would be free earlier nowhere.
    of = scenario([machine("a", 1), machine("b", 1)], job("x", 2), job("y", 2, submit_s=1.0))
    run = run_of(policy, of) if policy in NAMES else simulate(of, policy)
    starts = {j.name: j.start_s for j in run.jobs}
    assert starts["x"] == starts["x/gpu-1"] == starts["x/gpu-2"] == 0.0
    assert starts["y"] == starts["y/gpu-1"] == starts["y/gpu-2"] == pytest.approx(100.0)


def test_a_gang_without_its_last_gpu_waits_and_is_told_why() -> None:
    of = scenario([machine("a", 1), machine("b", 1)], job("x", 3))
    decisions = decided("drmaestro", snapshot_of(of))
    assert decisions.placements == () and len(decisions.postponements) == 4
    of = scenario([machine("a", 1), machine("b", 1), plain_machine("c")], job("w"), job("x", 2))
    decisions = decided("drmaestro", snapshot_of(of, {"w": "c", "w/gpu-1": "a"}))
    assert decisions.placements == ()
    assert "waits until the jobs before it" in decisions.postponements[0].reason


def plain_machine(name: str) -> Machine:
    return machine(name, 0)


@st.composite
def clusters(draw: st.DrawFn) -> Scenario:
    machines = [
        machine(f"m{k}", draw(st.integers(0, 3)), draw(st.integers(0, 4))) for k in range(draw(st.integers(1, 4)))
    ]
    tasks: list[tuple[Task, ...] | Task] = []
    for k in range(draw(st.integers(1, 7))):
        at = float(draw(st.integers(0, 3)))
        if draw(st.booleans()):
            profile = draw(st.sampled_from([QUIET.name, LOUD.name]))
            tasks.append(job(f"j{k}", draw(st.integers(1, 3)), profile, submit_s=at))
        else:
            tasks.append(plain(f"p{k}", draw(st.integers(1, 3)), draw(st.integers(0, 2)), submit_s=at))
    return scenario(machines, *tasks)


@given(clusters(), st.sampled_from(NAMES))
@settings(max_examples=60, deadline=None)
def test_nothing_is_overcommitted_and_no_job_is_torn_apart(of: Scenario, policy: str) -> None:
    """The state refuses devices, CPU and memory that are not there; every job is in one of both lists, whole."""
    snapshot = snapshot_of(of)
    decisions = decided(policy, snapshot)
    state = ClusterState(of.catalogue, task_groups=of.task_groups)
    for each in of.machines:
        state.apply(MachineAdded(each), 0.0)
    for task in of.tasks:
        state.apply(TaskSubmitted(task), 0.0)
    for p in decisions.placements:
        state.apply(TaskBound(p.task, p.machine, p.width_milli, p.threads, p.cores, 0.0, p.devices), 0.0)
    now = state.snapshot(0.0)
    for each in of.machines:
        mine = [(r.task.gpus, r.devices) for r in now.running if r.machine == each.name]
        assert min(left_beside(each.gpus, mine), default=0) >= 0
    placed, waiting = {p.task for p in decisions.placements}, {p.task for p in decisions.postponements}
    assert placed | waiting == {t.name for t in of.tasks} and not placed & waiting
    for one in coupled_jobs(of.tasks):
        assert len({t.name in placed for t in one.tasks}) == 1
    assert decided(policy, snapshot) == decisions, "the same snapshot gives the same decisions"


def round_cost(of: Scenario, decisions: Decisions) -> float:
    """What a round's GPUs cost, by equations 12 and 13: the jobs' CPU costs the same wherever it is."""
    cost = {p.task: p.cost for p in (*decisions.placements, *decisions.postponements)}
    return sum(cost[t.name] for t in of.tasks if t.gpus is not None)


@given(
    st.lists(st.tuples(st.integers(0, 3), st.integers(0, 4)), min_size=1, max_size=4),
    st.integers(1, 8),
    st.floats(1.0, 3.0),
    st.floats(0.05, 2.0),
)
@settings(max_examples=80, deadline=None)
def test_one_network_is_never_dearer_than_phases(
    sizes: list[tuple[int, int]], count: int, price: float, step: float
) -> None:
    """At the same prices, in one round, of jobs that ask for equally much."""
    of = scenario([machine(f"m{k}", g, c) for k, (g, c) in enumerate(sizes)], *(job(f"j{k}") for k in range(count)))
    snapshot = snapshot_of(of)
    chosen = {"remote_price": price, "wait_step": step}
    phases, joint = (decided(name, snapshot, **chosen) for name in ("drmaestro", "drmaestro-joint"))
    assert round_cost(of, joint) <= round_cost(of, phases) + 1e-6


def test_one_network_sees_what_phases_do_not() -> None:
    """CPU goes first to a machine without GPUs in one of the orders; the joint network never sends it there."""
    for order in (("a", "b"), ("b", "a")):
        of = scenario([machine(order[0], 1), machine(order[1], 0)], job("x"))
        found = places(decided("drmaestro-joint", snapshot_of(of)))
        assert found == {"x": order[0], "x/gpu-1": order[0]}


# How they run


def test_remote_jobs_are_slowed_down_as_worked_out_by_hand() -> None:
    """CPU is on a alone and GPUs on b alone: 1.2 times 100 s alone, and 1 + 0.5 for the other job at both ends."""
    machines = [machine("a", 0), machine("b", 2, cores=0)]
    alone = run_of("drmaestro", scenario(machines, job("x", profile="loud")))
    assert alone.makespan_s == pytest.approx(120.0, rel=1e-6)
    two = run_of("drmaestro", scenario(machines, job("x", profile="loud"), job("y", profile="loud")))
    assert [o.end_s for o in two.outcomes] == [pytest.approx(180.0, rel=1e-6)] * 2
    local = run_of("drmaestro", scenario([machine("a", 2)], job("x", profile="loud"), job("y", profile="loud")))
    assert local.makespan_s == pytest.approx(100.0, rel=1e-6)


def test_jobs_that_go_through_the_network_locally_disturb_each_other_there() -> None:
    always = replace(LOUD, gpus=replace(LOUD.gpus, network_when_local=True))
    of = scenario([machine("a", 2)], job("x", profile="loud"), job("y", profile="loud"))
    jobs = {**CATALOGUE.jobs, "loud": always, "loud:gpu": serving_profile(always)}
    run = run_of("drmaestro", replace(of, catalogue=replace(CATALOGUE, jobs=jobs)))
    assert run.makespan_s == pytest.approx(150.0, rel=1e-6)


def test_a_job_holds_all_that_it_has_until_its_last_sub_task_is_through() -> None:
    """y disturbs x's GPU on b, and not its CPU on a: x ends with the GPU, and its core is free from then on only."""
    machines = [machine("a", 0, cores=1), machine("b", 2, cores=0), machine("c", 0, cores=1)]
    of = scenario(
        machines, job("x", profile="loud"), job("y", profile="loud", submit_s=60.0), plain("z", 1, submit_s=70.0)
    )
    run = run_of("drmaestro", of)
    ends = {j.name: j.end_s for j in run.jobs}
    # Alone for 60 of 120 s, then at 1/1.5 on b.
    assert ends["x"] == ends["x/gpu-1"] == pytest.approx(60.0 + 60.0 * 1.5, rel=1e-6)
    starts = {j.name: j.start_s for j in run.jobs}
    assert starts["z"] == pytest.approx(ends["x"])


def test_runs_are_the_same_again() -> None:
    of = scenario(
        [machine("a", 2, 2), machine("b", 2, 1)],
        *(job(f"j{k}", 1 + k % 2, "loud", submit_s=float(k)) for k in range(9)),
    )
    for policy in NAMES:
        once, again = (run_of(policy, of, round_interval_s=5.0).to_json() for _ in range(2))
        assert once | {"timings": {}} == again | {"timings": {}}


def test_rounds_keep_their_distance() -> None:
    of = scenario([machine("a", 1)], *(job(f"j{k}", submit_s=float(k)) for k in range(4)))
    times = [r.t_s for r in run_of("drmaestro", of, round_interval_s=7.0).rounds]
    assert times[0] == 0.0 and min(b - a for a, b in pairwise(times)) >= 7.0 - 1e-9
    assert len(run_of("drmaestro", of).rounds) < len(times)


# Prices, waiting and postponements


def test_equations_by_hand() -> None:
    assert utility(50.0, 200.0, 1.0) == 0.75
    assert utility(300.0, 200.0, 1.0) == -0.5
    assert utility(300.0, 200.0, 5.5) == pytest.approx(-0.25)
    assert utility(300.0, 200.0, 10.0) == 0.0
    assert place_cost(0.75, 2.0) == 0.5
    assert waiting_cost(0.75, 4, 0.1) == pytest.approx(0.25 + 0.5)


def test_w_grows_by_its_step_in_every_round_until_a_remote_gpu_is_cheaper() -> None:
    """Local 2/3; remote twice that; waiting 2/3 + 0.15 for each round: remote from the fifth round on."""
    of = scenario([machine("a", 0), machine("b", 1, cores=0)], job("x"), plain("clock", 1, run_s=10.0))
    state = ClusterState(of.catalogue, task_groups=of.task_groups)
    for each in of.machines:
        state.apply(MachineAdded(each), 0.0)
    for task in of.tasks[:2]:
        state.apply(TaskSubmitted(task), 0.0)
    costs = []
    for k in range(4):
        decisions = decided("drmaestro", state.snapshot(float(k)), remote_price=2.0, wait_step=0.15)
        assert not decisions.placements and "costs it more than waiting" in decisions.postponements[0].reason
        costs.append(decisions.postponements[0].cost)
        state.apply(RoundDecided((), ()), float(k))
    assert costs == pytest.approx([2 / 3 + 0.15 * (k + 1) for k in range(4)])
    assert places(decided("drmaestro", state.snapshot(4.0), remote_price=2.0, wait_step=0.15)) == {
        "x": "a",
        "x/gpu-1": "b",
    }


def test_an_unknown_job_costs_one_wherever_it_is_local() -> None:
    jobs = job("x", profile=_BASE.name), job("y")
    costs = {p.task: p.cost for p in decided("drmaestro", snapshot_of(scenario([machine("a", 2)], *jobs))).placements}
    assert costs["x/gpu-1"] == 1.0 and costs["y/gpu-1"] == pytest.approx(2 / 3)
    none = scenario([machine("a", 1, cores=0)], *jobs)
    waits = {p.task: p.cost for p in decided("drmaestro", snapshot_of(none), wait_step=0.5).postponements}
    assert waits["x/gpu-1"] == pytest.approx(1.5) and waits["y/gpu-1"] == pytest.approx(2 / 3 + 0.5)


def test_a_placement_that_would_miss_its_goal_is_postponed_ten_times_at_most() -> None:
    """x keeps the network of a and b loaded for 1,000 s: y would run 180 s there, its goal is 150 s."""
    machines = [machine("a", 0), machine("b", 2, cores=0)]
    x = job("x", profile="loud", scale=1000.0)
    of = scenario(machines, x, job("y", profile="loud", submit_s=1.0))
    run = run_of("drmaestro-network", of, round_interval_s=10.0)
    start = {j.name: j.start_s for j in run.jobs}
    assert start["y"] == pytest.approx(10.0 + 10 * 10.0)
    never = run_of("drmaestro-network", of, DisaggregationSettings(most_postponements=0), round_interval_s=10.0)
    assert {j.name: j.start_s for j in never.jobs}["y"] == pytest.approx(10.0)
    unaware = run_of("drmaestro", of, round_interval_s=10.0)
    assert {j.name: j.start_s for j in unaware.jobs}["y"] == pytest.approx(10.0)


def test_why_it_is_postponed_is_told() -> None:
    of = scenario([machine("a", 0), machine("b", 2, cores=0)], job("x", profile="loud"), job("y", profile="loud"))
    said = decided("drmaestro-network", snapshot_of(of, {"x": "a", "x/gpu-1": "b"})).postponements
    assert [p.by_choice for p in said] == [True, True]
    assert said[0].reason == (
        "postponed 1 of at most 10 times: with CPU on a and GPU on b it would run 180.0 s; its goal is 150.0 s"
    )


def test_a_network_aware_round_goes_where_the_network_is_idle() -> None:
    machines = [machine("a", 0), machine("b", 2, cores=0), machine("c", 0), machine("d", 1, cores=0)]
    of = scenario(machines, job("x", profile="loud"), job("y", profile="loud"))
    found = places(decided("drmaestro-network", snapshot_of(of, {"x": "a", "x/gpu-1": "b"})))
    assert found == {"y": "c", "y/gpu-1": "d"}


# What is refused, and what users see


@pytest.mark.parametrize(
    ("setting", "text"),
    [
        ("remote_price=0.5", "drmaestro.remote_price must be >= 1 (1: no preference), got 0.5"),
        ("wait_step=0", "drmaestro.wait_step must be > 0, got 0: W grows, or jobs starve"),
        ("importance=11", "drmaestro.importance must be 1 (most important) to 10, got 11"),
        ("slack=0.9", "drmaestro.slack must be >= 1 (1: no slower than alone), got 0.9"),
        ("most_postponements=-1", "drmaestro.most_postponements must be >= 0, got -1"),
        ("slack=abc", "drmaestro.slack is 'abc'; give a number"),
        ("slacks=1", "the policy 'drmaestro' has no setting 'slacks'; known: drmaestro.remote_price, "),
    ],
)
def test_settings_that_make_no_sense_are_one_sentence(setting: str, text: str) -> None:
    key, _, value = setting.partition("=")
    with pytest.raises(InputError, match=re.escape(text)):
        readers(("drmaestro",), {"drmaestro": [(key, value)]})


def test_what_these_policies_do_not_know_is_refused() -> None:
    relations = [{"name": "r", "kind": "apart"}]
    made = make_scenario(MACHINES, [JOB | {"relations": ["r"]}], relations=relations)
    with pytest.raises(InputError, match="j has relations to other tasks, which this policy does not know"):
        simulate(made, "drmaestro")


class Preempting:
    """Places with DRMaestro, and preempts a sub-task in the next round."""

    name = "preempting"

    def __init__(self) -> None:
        self._inner = make_disaggregation("drmaestro", make_solver("ortools"))

    def decide(self, snapshot: Snapshot) -> Decisions:
        found = self._inner.decide(snapshot)
        stop = tuple(Preemption(r.task.name, r.machine, "y", 0.0) for r in snapshot.running[:1])
        return replace(found, preemptions=stop)


def test_what_is_coupled_is_not_preempted() -> None:
    of = scenario([machine("a", 2)], job("x"), job("y", submit_s=5.0))
    with pytest.raises(InputError, match=r"preempting: x is a sub-task of a job .* those do not leave their place"):
        Simulation(of, Preempting()).run()


def outputs() -> Iterator[tuple[str, str]]:
    for name in NAMES:
        done = CliRunner().invoke(policies_command, [name])
        assert done.exit_code == 0
        yield name, done.output


def test_users_are_told_what_there_is() -> None:
    for name, text in outputs():
        assert text.startswith(f"{name}: {ON_REQUEST[name]}")
        assert f"{name}.slack" in text and "is told: run times, interference" in text


def test_the_command_line_takes_settings_and_an_interval(tmp_path: Any) -> None:
    path = tmp_path / "s.yaml"
    path.write_text(
        "apiVersion: flowsched/v1\nkind: Scenario\nname: s\nmachines:\n"
        "  - {name: m, type: e2-standard-8, copies: 2, gpus: {model: K80, count: 1}}\n"
        "jobs:\n  - {name: j, request: 1, runtime_s: 50, copies: 3, gpus: {count: 1, remote: true}}\n"
    )
    args = [str(path), "--policy", "drmaestro", "--set", "drmaestro.wait_step=0.5", "--round-interval", "5s", "--json"]
    done = CliRunner().invoke(simulate_command, args)
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["table"][0]["makespan_s"] == pytest.approx(100.0, rel=1e-6)
