"""Data locality: preferred sets, the network, its decoding, and rounds from the last flow."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

sys.path.append(str(Path(__file__).parent.parent.parent))  # benchmarks are no part of what is installed

from benchmarks.quincy import decoding
from benchmarks.quincy.choices import Choices, choose
from benchmarks.quincy.decoding import place_tasks
from benchmarks.quincy.incremental_outcome import Way
from benchmarks.quincy.instance import InstanceShape
from benchmarks.quincy.machines import Machines
from benchmarks.quincy.network import build_network
from benchmarks.quincy.rounds import LocalityRounds
from benchmarks.quincy.tasks import DataTasks
from benchmarks.quincy_rounds import measure_quincy, measure_quincy_incremental
from flowsched.pricing.linear.policies.locality_prices import LocalityPrices
from flowsched.solvers.networkx import NetworkxSolver
from flowsched.solvers.ortools import OrtoolsSolver
from flowsched.support.arrays import IntArray

PRICES = LocalityPrices(waiting=900.0, waiting_per_s=1.0, running_per_s=2.0)
BLOCK = tuple[int, list[int]]
"""MB, and the machines that hold it."""


def data_tasks(inputs: list[list[BLOCK]], **columns: list[float]) -> DataTasks:
    blocks = [block for task in inputs for block in task]
    count = len(inputs)
    given_columns = {
        "jobs": np.array(columns.get("jobs", [0] * count), dtype=np.int64),
        "age_s": np.array(columns.get("age_s", [0.0] * count), dtype=np.float64),
        "running_on": np.array(columns.get("running_on", [-1] * count), dtype=np.int64),
        "running_s": np.array(columns.get("running_s", [0.0] * count), dtype=np.float64),
    }
    return DataTasks(
        block_starts=np.cumsum([0, *[len(task) for task in inputs]]),
        block_mb=np.array([mb for mb, _ in blocks], dtype=np.float64),
        replica_starts=np.cumsum([0, *[len(held) for _, held in blocks]]),
        replicas=np.array([m for _, held in blocks for m in held], dtype=np.int64),
        **given_columns,
    )


def machines(slots: list[int], per_rack: int = 2) -> Machines:
    return Machines(np.arange(len(slots)) // per_rack, np.array(slots, dtype=np.int64))


def of_task(choices: Choices, task: int) -> dict[int, int]:
    named = choices.hubs[task] >= 0
    return dict(zip(choices.hubs[task][named].tolist(), choices.costs[task][named].tolist(), strict=True))


def test_what_holds_its_share_is_preferred_and_priced_by_the_way_of_the_data() -> None:
    tasks = data_tasks([[(60, [0, 1]), (30, [2]), (10, [3])]])

    choices = choose(machines([1] * 6), tasks, replace(PRICES, preferred_share=0.3))

    # Racks 6 and 7 hold 60 and 40 MB of 100; machine 3 holds too little; the cluster is 9.
    assert of_task(choices, 0) == {9: 200, 0: 80, 1: 80, 2: 10 + 120, 6: 60 + 80, 7: 40 + 120}
    assert choices.waiting.tolist() == [900]


def test_only_the_first_so_many_are_preferred() -> None:
    tasks = data_tasks([[(10, [5]), (30, [3]), (20, [1])]])

    choices = choose(machines([1] * 6), tasks, replace(PRICES, preferred_machines=2, preferred_racks=1))

    assert set(of_task(choices, 0)) == {9, 3, 1, 7}


def test_a_running_task_may_stay_for_less_the_longer_it_has_run() -> None:
    tasks = data_tasks(
        [[(50, [0])], [(50, [0])], []], running_on=[0, 3, 2], running_s=[5.0, 10.0, 1.0], age_s=[7.0, 20.0, 3.0]
    )

    choices = choose(machines([1] * 4), tasks, PRICES)

    assert of_task(choices, 0)[0] == 0 - 10
    assert of_task(choices, 1)[3] == 100 - 20
    assert of_task(choices, 2) == {6: 0, 2: -2}
    assert choices.waiting.tolist() == [907, 920, 903]


@st.composite
def instances(draw: st.DrawFn) -> tuple[Machines, DataTasks]:
    count = draw(st.integers(1, 6))
    slots = draw(st.lists(st.integers(0, 3), min_size=count, max_size=count))
    block = st.tuples(st.integers(1, 400), st.lists(st.integers(0, count - 1), min_size=1, max_size=3))
    inputs = draw(st.lists(st.lists(block, max_size=4), max_size=12))
    n = len(inputs)
    running = draw(st.lists(st.integers(-1, count - 1), min_size=n, max_size=n))
    return machines(slots), data_tasks(
        inputs,
        jobs=draw(st.lists(st.integers(0, 3), min_size=n, max_size=n)),
        age_s=draw(st.lists(st.floats(0.0, 999.0), min_size=n, max_size=n)),
        running_on=running,
        running_s=[30.0 * (m >= 0) for m in running],
    )


def rule(cluster: Machines, tasks: DataTasks, prices: LocalityPrices, task: int) -> dict[int, float]:
    """The rule once more, block by block."""
    m = cluster.count
    total, at, near = 0.0, dict.fromkeys(range(m), 0.0), dict.fromkeys(range(cluster.rack_count), 0.0)
    for b in range(int(tasks.block_starts[task]), int(tasks.block_starts[task + 1])):
        mb = float(tasks.block_mb[b])
        total += mb
        held = set(tasks.replicas[tasks.replica_starts[b] : tasks.replica_starts[b + 1]].tolist())
        for machine in held:
            at[machine] += mb
        for rack in {int(cluster.racks[machine]) for machine in held}:
            near[rack] += mb
    costs = {m + cluster.rack_count: prices.across_racks * total}
    for machine, mb in at.items():
        rack = int(cluster.racks[machine])
        price = prices.within_rack * (near[rack] - mb) + prices.across_racks * (total - near[rack])
        if tasks.running_on[task] == machine:
            costs[machine] = price - prices.running_per_s * float(tasks.running_s[task])
        elif mb > 0 and mb >= prices.preferred_share * total:
            costs[machine] = price
    for rack, mb in near.items():
        if mb > 0 and mb >= prices.preferred_share * total:
            costs[m + rack] = prices.within_rack * mb + prices.across_racks * (total - mb)
    return costs


@settings(max_examples=100, deadline=None)
@given(instances(), st.sampled_from((0.0, 0.1, 0.25, 0.5, 1.0)))
def test_choices_follow_the_rule_block_by_block(instance: tuple[Machines, DataTasks], share: float) -> None:
    cluster, tasks = instance
    prices = replace(PRICES, preferred_share=share)

    choices = choose(cluster, tasks, prices)

    for task in range(tasks.count):
        assert of_task(choices, task) == {hub: round(cost) for hub, cost in rule(cluster, tasks, prices, task).items()}


def check_places(cluster: Machines, tasks: DataTasks, choices: Choices, placed: IntArray, cost: int) -> None:
    """No machine is overfull, and places cost what the flow did: by the cheapest choice that leads there."""
    assert (np.bincount(placed[placed >= 0], minlength=cluster.count) <= cluster.slots).all()
    paid = 0
    for task, machine in enumerate(placed.tolist()):
        ways = of_task(choices, task)
        leads = (machine, cluster.count + int(cluster.racks[machine]), cluster.count + cluster.rack_count)
        paid += min(ways[h] for h in leads if h in ways) if machine >= 0 else int(choices.waiting[task])
    assert paid <= cost


@settings(max_examples=80, deadline=None)
@given(instances())
def test_network_and_rounds_agree_and_places_keep_to_slots(instance: tuple[Machines, DataTasks]) -> None:
    cluster, tasks = instance
    choices = choose(cluster, tasks, PRICES)
    built = build_network(cluster, choices, tasks.jobs)
    solution = NetworkxSolver().solve(built.network)
    state = LocalityRounds(cluster, PRICES, room=1)
    state.arrive(tasks)

    placement = state.decide()

    assert state.flow.cost() == solution.cost
    assert state.flow.certificate().proves
    check_places(cluster, tasks, choices, placement.machines, solution.cost)
    check_places(cluster, tasks, choices, built.decode(solution.flow), solution.cost)


@settings(max_examples=40, deadline=None)
@given(instances(), instances(), st.lists(st.tuples(st.integers(0, 5), st.integers(0, 3)), max_size=4), st.data())
def test_tasks_come_and_go_and_machines_leave_and_return(
    first: tuple[Machines, DataTasks],
    second: tuple[Machines, DataTasks],
    sizes: list[tuple[int, int]],
    data: st.DataObject,
) -> None:
    cluster, tasks = first
    more = replace(second[1], replicas=second[1].replicas % cluster.count)
    more = replace(more, running_on=np.full(more.count, -1), running_s=np.zeros(more.count))
    state = LocalityRounds(cluster, PRICES, room=1)
    state.arrive(tasks)
    state.decide()
    if tasks.count:
        gone = data.draw(st.lists(st.integers(0, tasks.count - 1), unique=True))
        state.leave(np.array(gone, dtype=np.int64))
    slots = cluster.slots.copy()
    for machine, size in sizes:
        state.resize(np.array([machine % cluster.count]), np.array([size]))
        slots[machine % cluster.count] = size
    state.arrive(more)

    placement = state.decide()

    assert placement.outcome.way is Way.STEPS
    assert state.flow.certificate().proves
    assert state.flow.cost() == OrtoolsSolver().solve(state.flow.network()).cost
    assert (np.bincount(placement.machines[placement.machines >= 0], minlength=cluster.count) <= slots).all()


@pytest.mark.parametrize("use", [0.98, 1.05])
def test_crowded_rounds_with_every_kind_of_change_stay_optimal(use: float) -> None:
    shape = InstanceShape(machines=100)
    random = np.random.default_rng(7)
    count = round(100 * shape.slots * use)
    state = LocalityRounds(shape.draw_machines(), shape.prices, 100, scanned_per_arc=1000.0)
    state.arrive(shape.draw_tasks(count, 0, random))
    placement = state.decide()
    for _ in range(12):
        state.leave(random.choice(placement.tasks, 30, replace=False))
        state.resize(random.choice(100, 4, replace=False), random.integers(0, 16, 4))
        state.arrive(shape.draw_tasks(30, 0, random))
        runs = random.integers(-1, 100, 40)
        others = replace(shape.draw_tasks(40, 0, random), running_on=runs, running_s=np.where(runs >= 0, 30.0, 0.0))
        state.renew(random.choice(state.flow.tasks(), 40, replace=False), others)
        placement = state.decide()
        assert placement.outcome.way is Way.STEPS
        assert state.flow.certificate().proves
        assert state.flow.cost() == OrtoolsSolver().solve(state.flow.network()).cost


def test_a_task_that_runs_stays_when_a_better_place_gets_free() -> None:
    state = LocalityRounds(machines([1, 1]), PRICES)
    inputs: list[list[BLOCK]] = [[(100, [0])], [(90, [0])]]
    numbers = state.arrive(data_tasks(inputs))
    first = state.decide()
    assert first.machines.tolist() == [0, 1]
    state.leave(numbers[:1])
    for age, place in ((10.0, 0), (50.0, 1)):  # staying saves 2 for each second, the data would save 90
        state.renew(numbers[1:], data_tasks(inputs[1:], running_on=[1], running_s=[age], age_s=[age]))
        assert state.decide().machines.tolist() == [place]
        assert state.flow.certificate().proves


def test_tasks_behind_an_aggregator_stay_where_they_were() -> None:
    cluster = machines([2, 2, 2, 2])
    hubs = np.array([4, 4, 5, 6, 6])  # two by rack 0, one by rack 1, two by the cluster
    rack_flow, cluster_flow = np.array([1, 2, 1, 1]), np.array([1, 1])

    fresh = place_tasks(cluster, hubs, rack_flow, cluster_flow)
    again = place_tasks(cluster, hubs, rack_flow, cluster_flow, np.array([1, 0, 3, 2, 1]))

    assert sorted(fresh.tolist()) == [0, 1, 1, 2, 3]
    assert again.tolist() == [1, 0, 3, 2, 1]
    with pytest.raises(ValueError, match="less than"):
        place_tasks(cluster, hubs, np.zeros(4, dtype=np.int64), cluster_flow)


def test_decoding_in_plain_python_does_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    shape = InstanceShape(machines=30, machines_per_rack=5, slots=3)
    cluster = shape.draw_machines()
    tasks = shape.draw_tasks(80, 0, np.random.default_rng(1))
    built = build_network(cluster, choose(cluster, tasks, shape.prices), tasks.jobs)
    flow = OrtoolsSolver().solve(built.network).flow
    fast = built.decode(flow)

    monkeypatch.setattr(decoding, "_place", getattr(decoding._place, "py_func", decoding._place))

    assert built.decode(flow).tolist() == fast.tolist()


@pytest.mark.parametrize("use", [0.9, 1.1])
def test_the_benchmark_runs_small_and_checks_itself(use: float) -> None:
    row = measure_quincy_incremental(4, machines=60, use=use, churn=0.02, peer_every=1)
    scratch = measure_quincy(1, machines=60, use=use)

    keys = {
        "preset",
        "machines",
        "tasks",
        "churn",
        "rounds",
        "p50_ms",
        "p95_ms",
        "p99_ms",
        "phases_ms",
        "arcs",
        "rss_mib",
    }
    assert keys | {"peer_ms"} <= row.keys() & scratch.keys()
    assert (row["tasks"], row["rounds"]) == (round(60 * 12 * use), 4)


def test_a_round_from_scratch_is_measured_by_the_solve_of_or_tools_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not by our solver around it: then the ratio could not tell what that adds."""
    monkeypatch.setattr("benchmarks.quincy_rounds._own_solve_ms", lambda network: 0.5)

    row = measure_quincy(1, machines=20)

    assert (row["peer_ms"], row["ratio"]) == (0.5, 2.0 * row["p50_ms"])


def test_instances_have_the_shape_they_promise() -> None:
    shape = InstanceShape(machines=400)
    cluster = shape.draw_machines()

    one, two = (shape.draw_tasks(2000, 5, np.random.default_rng(3)) for _ in range(2))

    assert one.replicas.tolist() == two.replicas.tolist()
    assert (cluster.rack_count, one.job_count) == (10, 105)
    hot = np.mean(one.replicas % 5 == 0)
    assert 0.42 < hot < 0.46  # 30 % aimed at the hot fifth, and a fifth of the others
    assert 11.5 < np.mean((choose(cluster, one, shape.prices).hubs >= 0).sum(axis=1)) + 1 <= 12.0


@pytest.mark.parametrize(
    ("make", "message"),
    [
        pytest.param(lambda: machines([]), "at least 1", id="no machines"),
        pytest.param(lambda: machines([1, -1]), "machine 1 has", id="slots"),
        pytest.param(lambda: LocalityPrices(preferred_share=1.5), "share from 0 to 1", id="share"),
        pytest.param(lambda: LocalityPrices(within_rack=float("nan")), "within_rack is nan", id="nan"),
        pytest.param(lambda: LocalityPrices(cost_scale=0.0), "cost_scale is 0", id="scale"),
        pytest.param(lambda: data_tasks([[(-1, [0])]]), "block_mb", id="size"),
        pytest.param(lambda: data_tasks([[]], age_s=[1.0, 2.0]), "2 values for 1 tasks", id="ages"),
        pytest.param(lambda: choose(machines([1]), data_tasks([[(1, [7])]]), PRICES), "machine 7", id="replica"),
    ],
)
def test_bad_input_is_named(make: object, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()  # type: ignore[operator]
