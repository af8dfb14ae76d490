"""GPUs as devices in whole rounds: what fits, who goes where, what is said of it, and that nothing is ever overcommitted."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from flowsched.cluster.cluster_state import ClusterState
from flowsched.cluster.events import MachineAdded, MachineRemoved, TaskBound, TaskSubmitted
from flowsched.cluster.settings import Settings
from flowsched.cluster.settings_form import apply_settings
from flowsched.cluster.snapshot import Machine, Snapshot, Task
from flowsched.cluster.snapshot_dump import dump_snapshot, read_plain_snapshot
from flowsched.gpu.devices import WHOLE_MILLI, MachineGpus, TaskGpus
from flowsched.inspector.wording import term_text
from flowsched.pricing.gpu_prices import GpuMemory, GpuPrices
from flowsched.pricing.topology_prices import TopologyPrices
from flowsched.records.snapshot_source import load_snapshot
from flowsched.round.scheduler import FlowScheduler
from flowsched.solvers import make_solver
from flowsched_models.catalogue import Catalogue
from flowsched_models.document import InputError
from flowsched_models.given_run_time import fixed_profile
from flowsched_models.machine import MachineType
from flowsched_models.runtime import HostFactory
from flowsched_simulator import Options, compare, make_scenario, simulate

_TYPES = Catalogue({}, {}, {"any": MachineType("any", 16, 1)})
PROFILE = fixed_profile(_TYPES, None)
CATALOGUE = replace(_TYPES, jobs={PROFILE.name: PROFILE})
POLICIES = (
    "flow", "fcfs", "best-fit", "easy", "conservative", "srpt", "las", "tetris", "wfs", "kube-default",
    "gpu-fgd", "gpu-best-fit", "gpu-packing", "gpu-clustering", "gpu-dot-prod", "gpu-random",
    "topo-bipartition", "topo-bipartition-fifo", "topo-bipartition-p", "topo-best-fit",
)  # fmt: skip


def machine(name: str, count: int, model: str = "V100", cores: int = 16) -> Machine:
    gpus = MachineGpus(model, count) if count else None
    return Machine(name, "any", cores * 1000, 64_000, 16, gpus=gpus)


def task(name: str, gpus: TaskGpus | None, **more: Any) -> Task:
    return replace(Task(name, name, PROFILE.name, 60.0, 1000, (1000,), 100, 0.0), gpus=gpus, **more)


def cluster(*machines: Machine, **more: Any) -> ClusterState:
    state = ClusterState(CATALOGUE, **more)
    for one in machines:
        state.apply(MachineAdded(one), 0.0)
    return state


def scheduler(**changes: Any) -> FlowScheduler:
    return FlowScheduler(make_solver("ortools"), Settings(**changes), keep_records=True)


def decided(state: ClusterState, now_s: float = 0.0, **changes: Any) -> Any:
    """A round, carried out: the state refuses what devices do not hold."""
    decisions = scheduler(**changes).decide(state.snapshot(now_s))
    for p in decisions.placements:
        bound = TaskBound(p.task, p.machine, p.width_milli, p.threads, p.cores, now_s, p.devices)
        state.apply(bound, now_s)
    return decisions


def left(snapshot: Snapshot) -> dict[str, tuple[int, ...]]:
    """What is left of each device, worked out task by task."""
    found = {m.name: [WHOLE_MILLI] * (m.gpus.count if m.gpus else 0) for m in snapshot.machines}
    for r in snapshot.running:
        for device in r.devices:
            assert r.task.gpus is not None
            found[r.machine][device] -= r.task.gpus.share_milli
    return {name: tuple(devices) for name, devices in found.items()}


def test_shares_of_two_devices_do_not_add_up() -> None:
    state = cluster(machine("a", 2))
    for name, share in (("first", 540), ("second", 620)):
        state.apply(TaskSubmitted(task(name, TaskGpus(share_milli=share))), 0.0)
    decided(state)
    assert sorted(left(state.snapshot(0.0))["a"]) == [380, 460]
    state.apply(TaskSubmitted(task("third", TaskGpus(share_milli=810))), 1.0)
    found = decided(state, 1.0)
    assert not found.placements
    (waits,) = found.postponements
    assert "810m of a GPU" in waits.reason or "next completion" in waits.reason


def test_a_model_is_kept_to() -> None:
    state = cluster(machine("a", 4, "V100"), machine("b", 2, "P100"))
    state.apply(TaskSubmitted(task("t", TaskGpus(2, models=("P100",)))), 0.0)
    (placed,) = decided(state).placements
    assert (placed.machine, placed.devices) == ("b", (0, 1))


def test_a_share_goes_where_it_breaks_nothing() -> None:
    """What is left beside a 470 holds another one: a 320 that went there, as best fit has it, would break that hole."""
    demand = {TaskGpus(share_milli=470): 50, TaskGpus(share_milli=320): 50}
    shapes = tuple((task("x", gpus).gpu_shape, count) for gpus, count in demand.items())
    state = cluster(machine("a", 2), machine("b", 2), gpu_demand=shapes)
    state.apply(TaskSubmitted(task("large", TaskGpus(share_milli=470))), 0.0)
    decided(state)
    state.apply(TaskSubmitted(task("small", TaskGpus(share_milli=320))), 1.0)
    decided(state, 1.0)
    running = {r.task.name: (r.machine, r.devices) for r in state.snapshot(1.0).running}
    assert running["small"] != running["large"]


def test_a_task_without_gpus_leaves_machines_with_gpus_their_cpu() -> None:
    shapes = ((task("x", TaskGpus(1), widths_milli=(4000,)).gpu_shape, 10),)
    state = cluster(machine("a", 4), machine("b", 0), gpu_demand=shapes)
    state.apply(TaskSubmitted(task("plain", None)), 0.0)
    (placed,) = decided(state).placements
    assert placed.machine == "b"


def test_preemption_knows_devices() -> None:
    state = cluster(machine("a", 2))
    for n in range(4):
        state.apply(TaskSubmitted(task(f"low-{n}", TaskGpus(share_milli=500))), 0.0)
    decided(state)
    state.apply(TaskSubmitted(task("high", TaskGpus(1), priority=5)), 1.0)
    found = scheduler(preemption="lower-priority").decide(state.snapshot(1.0))
    (placed,) = found.placements
    gone = {p.task for p in found.preemptions or ()}
    running = {r.task.name: r.devices for r in state.snapshot(1.0).running}
    # Half a device each: both of one device go, and not one of each.
    assert placed.devices == running[min(gone)]
    assert {name for name, devices in running.items() if devices == placed.devices} == gone


def test_trials_of_a_round_leave_what_gpus_are_worth() -> None:
    """Who makes room is tried on copies of machines: they are no more GPUs, and no price program is solved for them."""
    state = cluster(machine("a", 2))
    for n in range(4):
        state.apply(TaskSubmitted(task(f"low-{n}", TaskGpus(share_milli=500))), 0.0)
    decided(state)
    state.apply(TaskSubmitted(task("high", TaskGpus(1), priority=5)), 1.0)
    snapshot, hosts = state.snapshot(1.0), HostFactory(CATALOGUE)
    worth = hosts.attached(GpuMemory).worth(snapshot)
    rounds = FlowScheduler(make_solver("ortools"), Settings(preemption="lower-priority"), hosts=hosts)
    assert rounds.decide(snapshot).preemptions
    assert hosts.attached(GpuMemory).last is worth


def test_a_gang_of_64_gpus_on_eight_machines_beside_shares_and_a_machine_that_leaves() -> None:
    from flowsched.relations.relation import TaskGroup

    machines = [machine(f"m{n}", 8) for n in range(9)]
    state = cluster(*machines, task_groups=(TaskGroup("gang", 8),))
    for n in range(4):
        state.apply(TaskSubmitted(task(f"share-{n}", TaskGpus(share_milli=470))), 0.0)
    for n in range(8):
        state.apply(TaskSubmitted(task(f"member-{n}", TaskGpus(8), group="gang", priority=1)), 0.0)
    decided(state)
    snapshot = state.snapshot(0.0)
    members = [r for r in snapshot.running if r.task.group == "gang"]
    assert Counter(len(r.devices) for r in members) == {8: 8}
    assert len({r.machine for r in members}) == 8
    assert min(min(devices) for devices in left(snapshot).values()) >= 0
    shares = [r for r in snapshot.running if r.task.gpus and r.task.gpus.is_share]
    assert len(shares) == 4
    state.apply(MachineRemoved(members[0].machine), 5.0)
    state.apply(TaskSubmitted(task("again", TaskGpus(8), priority=1)), 5.0)
    found = decided(state, 5.0)
    assert not found.placements
    assert found.postponements[0].reason


@st.composite
def worlds(draw: st.DrawFn) -> tuple[list[Machine], list[Task]]:
    models = ("P100", "V100")
    machines = [
        machine(
            f"m{n}", draw(st.sampled_from((0, 1, 2, 4, 8))), draw(st.sampled_from(models)), draw(st.integers(1, 16))
        )
        for n in range(draw(st.integers(1, 5)))
    ]
    asked = st.one_of(
        st.none(),
        st.builds(TaskGpus, st.just(1), st.integers(1, 99).map(lambda n: 10 * n)),
        st.builds(TaskGpus, st.integers(1, 8)),
        st.builds(TaskGpus, st.integers(1, 2), st.just(1000), st.sampled_from((("P100",), ("P100", "V100")))),
    )
    tasks = [
        task(f"t{n}", draw(asked), priority=draw(st.integers(0, 1)), widths_milli=(draw(st.integers(1, 4)) * 500,))
        for n in range(draw(st.integers(1, 10)))
    ]
    return machines, tasks


@settings(max_examples=60, deadline=None)
@given(worlds(), st.data())
def test_no_device_is_overcommitted_and_the_same_is_decided_again(
    world: tuple[list[Machine], list[Task]], data: st.DataObject
) -> None:
    machines, tasks = world
    state = cluster(*machines)
    at = 0
    for now in range(3):
        more = data.draw(st.integers(0, len(tasks) - at))
        for one in tasks[at : at + more]:
            state.apply(TaskSubmitted(replace(one, submit_s=float(now))), float(now))
        at += more
        snapshot = state.snapshot(float(now))
        again = scheduler().decide(replace(snapshot, machines=snapshot.machines[::-1]))
        found = decided(state, float(now))
        assert found.placements == again.placements
        assert len(found.placements) + len(found.postponements) == len(snapshot.pending)
    snapshot = state.snapshot(3.0)
    assert all(min(devices, default=0) >= 0 for devices in left(snapshot).values())
    models = {m.name: m.gpus for m in machines}
    for r in snapshot.running:
        wanted, has = r.task.gpus, models[r.machine]
        assert len(r.devices) == (wanted.count if wanted else 0)
        assert not wanted or not wanted.models or (has is not None and has.model in wanted.models)
    plain = dump_snapshot(snapshot)
    assert dump_snapshot(read_plain_snapshot(plain)) == plain


def scenario(jobs: list[dict[str, Any]], **keys: Any) -> Any:
    machines = [
        {"name": "v", "type": "e2-standard-8", "gpus": {"model": "V100", "count": 4, "memory": "16Gi"}, "copies": 2},
        {"name": "t", "type": "e2-standard-8", "gpus": {"model": "T4", "count": 2}},
        {"name": "c", "type": "e2-standard-4"},
    ]
    return make_scenario(machines, jobs, **keys)


JOBS: list[dict[str, Any]] = [
    {"name": "share", "request": 1, "runtime_s": 50, "copies": 6, "gpus": {"share": "470m"}, "memory": "1Gi"},
    {"name": "most", "request": 1, "runtime_s": 40, "copies": 4, "gpus": {"share": 0.81}, "memory": "1Gi"},
    {
        "name": "two",
        "request": 1,
        "runtime_s": 30,
        "copies": 4,
        "gpus": {"count": 2, "models": ["V100"]},
        "memory": "1Gi",
    },
    {"name": "four", "request": 1, "runtime_s": 30, "gpus": {"count": 4}, "submit_s": 5, "memory": "1Gi"},
    {"name": "plain", "request": 2, "runtime_s": 20, "copies": 3, "memory": "1Gi"},
]


@pytest.mark.parametrize("policy", POLICIES)
def test_every_policy_gets_all_jobs_done(policy: str) -> None:
    """The state that decisions are carried out on refuses an overcommitted device."""
    run = simulate(scenario(JOBS), policy, options=Options(seed=1))
    assert all(job.end_s is not None for job in run.jobs), [(j.job, j.reason) for j in run.jobs if j.end_s is None]


def test_what_no_machine_has_is_reported_with_its_place(tmp_path: Path) -> None:
    wrong = [
        ({"share": 1.5}, "a share is a part of one GPU, at most 1, but is 1.5"),
        ({"share": "half"}, "'half' is not a share of a GPU"),
        ({"count": 2, "share": "500m"}, "a share is a part of a single GPU"),
        ({"models": ["A100"]}, "no machine has that model; the models here are T4, V100"),
        ({"count": 5}, "needs 5 GPUs on one machine; the machines have 4 at most"),
        ({"models": ["T4"], "count": 3}, "the machines have 2 at most"),
        ({"cores": 5}, "there is no key 'cores' here"),
        ("share of 5", "write share=470m"),
    ]
    jobs = [{"name": f"j{n}", "request": 1, "runtime_s": 10, "gpus": gpus} for n, (gpus, _) in enumerate(wrong)]
    with pytest.raises(InputError) as caught:
        scenario(jobs)
    told = "\n".join(str(p) for p in caught.value.problems)
    for n in (1, 6, 7):
        assert wrong[n][1] in told
    with pytest.raises(InputError) as caught:
        scenario([job for n, job in enumerate(jobs) if n not in (1, 6, 7)])
    told = "\n".join(str(p) for p in caught.value.problems)
    for n in (0, 2, 3, 4, 5):
        assert wrong[n][1] in told, told


def test_cost_models_say_that_they_do_not_know_devices() -> None:
    with pytest.raises(InputError, match="asks for GPUs as devices, which cost models do not know"):
        simulate(scenario(JOBS), "coco")
    ran: list[object] = []
    with pytest.raises(InputError, match="asks for GPUs as devices"):
        compare(scenario(JOBS), ["flow", "coco"], report=lambda *what: ran.append(what))
    assert not ran, "no task runs before"


def snapshot_file(folder: Path, **running: Any) -> Path:
    data = {
        "apiVersion": "flowsched/v1",
        "kind": "Snapshot",
        "now_s": 10.0,
        "machines": [{"name": "v", "type": "e2-standard-8", "gpus": {"model": "V100", "count": 2}}],
        "running": [
            {
                "task": {"name": f"r{n}", "profile": "ferret", "request": 1, "gpus": {"share": "600m"}},
                "machine": "v",
                "width": 1,
                "threads": 1,
                "cores": "0-7",
                "bound_s": 0.0,
                "start_s": 0.0,
                **running,
            }
            for n in range(2)
        ],
        "pending": [{"name": "p", "profile": "ferret", "request": 1, "gpus": {"models": ["V100"]}}],
    }
    path = folder / "snapshot.yaml"
    path.write_text(yaml.safe_dump(data))
    return path


@pytest.mark.parametrize(
    ("running", "words"),
    [
        ({"devices": [0]}, "tasks on v have 1.2 of device 0 together"),
        ({}, "asks for 600m of a GPU and has 0 devices; say which of the devices 0 to 1 of v it has"),
        ({"devices": [2]}, "there is no device 2 on v, which has 0 to 1"),
    ],
)
def test_devices_of_running_tasks_are_checked(tmp_path: Path, running: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError) as caught:
        load_snapshot(snapshot_file(tmp_path, **running))
    assert words in "\n".join(str(p) for p in caught.value.problems)


def test_the_demand_is_learnt_when_twice_as_many_have_come() -> None:
    state = cluster(machine("a", 8))
    seen = []
    for n in range(9):
        state.apply(TaskSubmitted(task(f"t{n}", TaskGpus(share_milli=100 * (n + 1)))), float(n))
        seen.append(len(state.snapshot(float(n)).gpu_demand))
    assert seen == [1, 2, 2, 4, 4, 4, 4, 8, 8]


def test_prices_are_those_of_the_demand_and_not_of_the_order_of_machines() -> None:
    demand = tuple((task("x", TaskGpus(share_milli=s)).gpu_shape, 10) for s in (500, 300, 200))
    state = cluster(machine("b", 2), machine("a", 2), gpu_demand=demand)
    rng = np.random.default_rng(0)
    for n, share in enumerate(rng.choice((500, 300, 200), 9).tolist()):
        state.apply(TaskSubmitted(task(f"t{n}", TaskGpus(share_milli=share))), float(n))
        decided(state, float(n))
    whole = [d for devices in left(state.snapshot(9.0)).values() for d in devices]
    assert min(whole) >= 0
    assert sum(r.task.gpus is not None for r in state.snapshot(9.0).running) >= 8


def test_the_weight_of_gpus_may_be_set() -> None:
    """Without it, what the demand could have used of a machine decides nothing."""
    assert apply_settings(Settings(), ["gpu_weight=0"]).gpu_weight == 0.0
    with pytest.raises(InputError, match="is not a number from 0"):
        apply_settings(Settings(), ["gpu_weight=-1"])
    state = cluster(machine("a", 2))
    state.apply(TaskSubmitted(task("t", TaskGpus(share_milli=300))), 0.0)
    (placed,) = scheduler(gpu_weight=0.0).decide(state.snapshot(0.0)).placements
    assert placed.terms["gpu_value"] == 0.0


def test_where_no_machine_has_gpus_a_task_that_asks_for_one_waits_and_others_start() -> None:
    state = cluster(machine("a", 0))
    state.apply(TaskSubmitted(task("asks", TaskGpus(1))), 0.0)
    state.apply(TaskSubmitted(task("plain", None)), 0.0)
    found = decided(state)
    assert [p.task for p in found.placements] == ["plain"]
    assert "1 GPU" in found.postponements[0].reason


def test_long_running_tasks_of_fixed_run_time_disturb_nothing() -> None:
    """Each keeps one core busy for good; not all cores that its threads may use."""
    state = cluster(machine("node", 0))
    for n in range(3):
        wide = replace(task(f"task-{n}", None, endless=True), request_milli=4000, widths_milli=(4000,))
        state.apply(TaskSubmitted(wide), 0.0)
        (placed,) = decided(state).placements
        assert placed.threads > 4
        assert placed.terms["interference_suffered"] == placed.terms["interference_caused"] == 0.0


def test_of_many_machines_the_only_one_with_free_devices_is_found() -> None:
    """All have room for the CPU and memory of the task, and no candidate is better in that."""
    state = cluster(*(machine(f"node-{n:03}", 2) for n in range(200)))
    for n in range(200):
        gpus, devices = (None, ()) if n == 77 else (TaskGpus(1), (0,))
        state.apply(TaskSubmitted(task(f"old-{n}", gpus, endless=True)), 0.0)
        state.apply(TaskBound(f"old-{n}", f"node-{n:03}", 1000, 1, tuple(range(16)), 0.0, devices), 0.0)
    state.apply(TaskSubmitted(task("new", TaskGpus(2), endless=True)), 0.0)

    (placed,) = decided(state).placements

    assert placed.machine == "node-077"


@pytest.mark.parametrize("seed", [1, 3, 4])
def test_whole_devices_are_packed_as_well_as_by_fgd(seed: int) -> None:
    """Tasks of 1, 2, 4 and 8 GPUs that stay: prices alone are alike everywhere, and whole machines must stay whole."""
    rng = np.random.default_rng(seed)
    jobs = [
        {"name": f"job-{k}", "runtime_s": 1e5, "request": 4, "submit_s": float(k), "gpus": {"count": int(n)}}
        for k, n in enumerate(rng.choice([1, 1, 1, 2, 2, 4, 8], 40))
    ]
    machines = [{"name": "node", "type": "e2-standard-8", "gpus": {"model": "A100", "count": 8}, "copies": 12}]
    scenario = make_scenario(machines, [{**job, "request": 0.5} for job in jobs])
    asked = {job["name"]: job["gpus"]["count"] for job in jobs}

    def given(policy: str, variant: str | None) -> int:
        run = simulate(scenario, policy, variant=variant, options=Options(max_time_s=60.0))
        return sum(asked[job.job] for job in run.jobs if job.start_s is not None)

    assert given("flow", None) >= given("gpu-fgd", "declared-own") - 1


def test_terms_of_gpus_are_named_for_what_they_are() -> None:
    """A task without GPUs pays what GPUs beside it lose, as it takes their CPU."""
    for term in (GpuPrices.term, TopologyPrices.term):
        assert term_text(term) != term.replace("_", " ")
        assert "GPUs" in term_text(term)
