"""What each policy is known for, through real rounds."""

from __future__ import annotations

import heapq
from itertools import combinations

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from policy_world import DUE_S, World, a_class, a_machine, price_of

from benchmarks.quincy.choices import choose
from benchmarks.quincy.machines import Machines
from benchmarks.quincy.network import build_network as build_locality_network
from benchmarks.quincy.tasks import DataTasks
from flowsched.cluster.task_class import TaskClass
from flowsched.pricing.linear.policies import make_cost_model
from flowsched.pricing.linear.policies.coco import CLASSES, PENALTIES, CocoPolicy
from flowsched.pricing.linear.policies.load_spreading import LoadSpreadingPolicy
from flowsched.pricing.linear.policies.locality_prices import LocalityPrices
from flowsched.pricing.linear.policy import CostModel
from flowsched.round.linear.linear_round import RoundSettings
from flowsched.round.linear.machine_groups import RUNGS
from flowsched.round.linear.network import build_network
from flowsched.round.linear.waiting import survey
from flowsched.solvers import make_solver

few = settings(max_examples=30, deadline=None)


def alike(policy: CostModel, machines: int, cores: int = 8) -> World:
    return World(policy, [a_machine(f"n{i}", cores) for i in range(machines)])


# trivial


@few
@given(
    cores=st.lists(st.sampled_from([2, 3, 4, 8]), min_size=1, max_size=5),
    tasks=st.lists(st.tuples(st.sampled_from([0.5, 1, 2, 3]), st.integers(1, 8)), min_size=1, max_size=4),
)
def test_trivial_leaves_no_task_beside_room_that_would_do(cores: list[int], tasks: list[tuple[float, int]]) -> None:
    world = World(make_cost_model("trivial"), [a_machine(f"n{i}", c) for i, c in enumerate(cores)])
    for i, (width, count) in enumerate(tasks):
        world.submit(a_class(f"c{i}", width), count)
    world.round()
    widths = {f"c{i}": round(1000 * width) for i, (width, _) in enumerate(tasks)}
    largest = int(world.cluster.machines.free[world.rows, 0].max())
    assert all(widths[name] > largest for name in world.waiting())


def test_trivial_minds_neither_neighbours_nor_types() -> None:
    world = World(make_cost_model("trivial"), [a_machine("slow", 2, type="slow"), a_machine("fast", 2)])
    world.submit(a_class("averse", 1, sensitivity=9.0, pressure=9.0, slowness=(("slow", 9.0),)), 4)
    outcome = world.round()
    assert outcome.cost.tolist() == [1.0] * 4 and world.waiting() == []


def test_trivial_serves_those_that_waited_longer_where_room_is_scarce() -> None:
    world = alike(make_cost_model("trivial"), 1, cores=2)
    world.submit(a_class("young"), 2, created_s=0.0)
    world.submit(a_class("old"), 2, created_s=-DUE_S)
    world.round()
    assert world.on("n0") == ["old", "old"]


# load-spreading


@few
@given(
    machines=st.integers(1, 6),
    tasks=st.lists(st.tuples(st.sampled_from([0.5, 1, 2]), st.integers(1, 9)), min_size=1, max_size=4),
    rounds=st.integers(1, 2),
)
def test_equal_machines_end_within_one_task_of_each_other(
    machines: int, tasks: list[tuple[float, int]], rounds: int
) -> None:
    world = alike(make_cost_model("load-spreading"), machines, cores=160)
    for _ in range(rounds):
        for i, (width, count) in enumerate(tasks):
            world.submit(a_class(f"c{i}", width, run_s=10.0 * i), count)
        world.round()
    counts = world.counts()
    assert world.waiting() == []
    assert counts.max() - counts.min() <= 1


def test_new_tasks_fill_up_what_was_uneven() -> None:
    world = alike(make_cost_model("load-spreading"), 4)
    world.run(a_class("there"), "n0", 5)
    world.run(a_class("there"), "n1", 2)
    world.submit(a_class("new"), 5)
    world.round()
    assert sorted(world.counts().tolist()) == [2, 2, 3, 5]


@few
@given(cores=st.lists(st.sampled_from([4, 8, 16]), min_size=2, max_size=5), count=st.integers(1, 40))
def test_larger_machines_get_more_so_that_loads_per_core_are_least_apart(cores: list[int], count: int) -> None:
    world = World(LoadSpreadingPolicy(), [a_machine(f"n{i}", c) for i, c in enumerate(cores)])
    count = min(count, sum(cores))
    world.submit(a_class(), count)
    world.round()
    counts, sizes = world.counts(), np.array(cores, dtype=float)
    assert counts.sum() == count
    # No move of one task to another machine brings the sum of squares down.
    for i, j in ((i, j) for i in range(len(cores)) for j in range(len(cores)) if i != j and counts[i]):
        assert (counts[j] + 0.5) / sizes[j] >= (counts[i] - 0.5) / sizes[i] - 1e-9


def test_spreading_needs_no_search_by_exchanges() -> None:
    alone = RoundSettings(exchange_tasks=0, exact_tasks=0)
    world = World(LoadSpreadingPolicy(), [a_machine("small", 4), a_machine("large", 16)], alone)
    world.submit(a_class(), 13)
    world.round()
    assert world.counts().tolist() == [3, 10]


def test_without_size_every_machine_gets_the_same() -> None:
    world = World(LoadSpreadingPolicy(by_size=False), [a_machine("small", 8), a_machine("large", 32)])
    world.submit(a_class(), 10)
    world.round()
    assert world.counts().tolist() == [5, 5]


def test_load_can_be_cores_instead_of_tasks() -> None:
    world = alike(LoadSpreadingPolicy(count="cores"), 2)
    world.run(a_class("wide", 4), "n0")
    world.submit(a_class("narrow"), 4)
    world.round()
    assert world.counts().tolist() == [1, 4]


@few
@given(
    loads=st.lists(st.integers(0, 4), min_size=1, max_size=5),
    news=st.lists(st.integers(1, 5), min_size=1, max_size=3),
    width=st.sampled_from([1, 2]),
)
def test_the_network_of_equal_machines_knows_the_true_convex_optimum(
    loads: list[int], news: list[int], width: int
) -> None:
    cores = 64
    world = alike(LoadSpreadingPolicy(), len(loads), cores)
    for i, load in enumerate(loads):
        world.run(a_class("there", width), f"n{i}", load)
    for i, count in enumerate(news):
        world.submit(a_class(f"c{i}", width, run_s=float(i)), count)
    cluster, compaction = world.cluster, world.rounds.compaction
    pending = cluster.tasks.waiting()
    compaction.catch_up(np.flatnonzero(cluster.machines.alive), np.unique(cluster.tasks.task_class[pending]))
    network = build_network(cluster, compaction, survey(cluster, pending, 0.0, DUE_S))
    solution = make_solver("ortools").solve(network.network)
    believed = solution.cost / network.network.cost_scale

    # The cheapest next place again and again: right because each machine's marginal cost rises.
    heap = [(load + 0.5, load, i) for i, load in enumerate(loads)]
    heapq.heapify(heap)
    best, came = 0.0, [0] * len(loads)
    for _ in range(min(sum(news), len(loads) * (cores // width) - sum(loads))):
        cost, load, i = heapq.heappop(heap)
        best += cost / cores
        came[i] += 1
        if (load + 1) * width < cores:
            heapq.heappush(heap, (load + 1.5, load + 1, i))
    assume(max(came) <= RUNGS)  # beyond its last step a ladder no longer rises
    assert believed == pytest.approx(best, rel=1e-4)


def test_ladders_stand_on_the_machine_side_once_not_once_per_class() -> None:
    ladders = []
    for many in (1, 12):
        world = alike(LoadSpreadingPolicy(), 6)
        world.run(a_class("there"), "n0", 3)
        world.run(a_class("there"), "n1", 1)
        for i in range(many):
            world.submit(a_class(f"c{i}", run_s=float(i)), 2)
        network = world.rounds.decide(0.0).levels[0].network
        assert network is not None and len(network.classes) == many and len(network.groups) == 3
        ladder = slice(network.ladder_from, network.waiting_from)
        ladders.append(network.waiting_from - network.ladder_from)
        assert set(network.network.heads[ladder].tolist()) == {0}
        by_group = network.network.unit_costs[ladder].reshape(len(network.groups), -1)
        assert (np.diff(by_group, axis=1) > 0).all()
        # What a class's own arcs cost is the place as it is; only a ladder's rise.
        assert len(network.arc_class) == many * 3
    assert ladders[0] == ladders[1]


# coco


def a_beast(name: str, cores: float = 1.0) -> TaskClass:
    return a_class(name, cores, interference_class=name)


@pytest.mark.parametrize("width", [1, 2])
def test_devils_and_rabbits_keep_apart_while_there_is_room_and_turtles_fill(width: int) -> None:
    world = alike(make_cost_model("coco"), 4, cores=4 * width)
    for i, beast in enumerate(("devil", "devil", "rabbit", "rabbit")):
        world.run(a_beast(beast, width), f"n{i}")
    world.submit(a_beast("rabbit", width), 4)
    world.submit(a_beast("devil", width), 4)
    world.submit(a_beast("turtle", width), 4)
    world.round()
    places = [set(world.on(f"n{i}")) for i in range(4)]
    assert places == [{"devil", "turtle"}] * 2 + [{"rabbit", "turtle"}] * 2
    assert world.waiting() == []

    # Free room is worth more than good neighbours: what is left comes to the task that leaves.
    world.cluster.leave(world.cluster.tasks.running_on(world.cluster.row("n0"))[:1])
    world.submit(a_beast("rabbit", width))
    world.round()
    assert "rabbit" in world.on("n0")


@few
@given(beasts=st.lists(st.sampled_from(CLASSES), min_size=1, max_size=8))
def test_penalties_are_the_sum_over_pairs_in_whatever_order_they_come(beasts: list[str]) -> None:
    world = alike(make_cost_model("coco"), 1, cores=8)
    total = 0.0
    for beast in beasts:
        number = world.cluster.intern(a_beast(beast))
        total += price_of(world.cluster, number, 0, world.cluster.machines.readings[world.rows[0]])
        world.run(a_beast(beast), "n0")
    table = {a: dict(zip(CLASSES, row, strict=True)) for a, row in zip(CLASSES, PENALTIES, strict=True)}
    assert total == pytest.approx(sum((table[a][b] + table[b][a]) / 2 for a, b in combinations(beasts, 2)) / 8)


def test_profiles_become_beasts_by_what_they_do_and_suffer() -> None:
    policy = CocoPolicy()
    of = {
        "devil": a_class("d", 2, pressure=0.4, sensitivity=0.6),
        "rabbit": a_class("r", 1, pressure=0.03, sensitivity=1.6),
        "sheep": a_class("s", 1, pressure=0.03, sensitivity=0.2),
        "turtle": a_class("t", 4, pressure=0.04, sensitivity=0.2),
    }
    assert {name: policy.interference_class(c) for name, c in of.items()} == {name: name for name in of}
    assert policy.interference_class(a_class("x", pressure=9.0, interference_class="turtle")) == "turtle"
    with pytest.raises(ValueError, match="class x is a 'wolf'; policy coco knows turtle, sheep, rabbit, devil"):
        policy.interference_class(a_class("x", interference_class="wolf"))


# shortest-job-first


@pytest.mark.parametrize("width", [1, 2])
def test_where_room_is_scarce_the_short_ones_run(width: int) -> None:
    world = alike(make_cost_model("shortest-job-first"), 2, cores=3 * width)
    for run_s in (2000.0, 20.0, 400.0, 90.0):
        world.submit(a_class(f"{run_s:g}", width, run_s=run_s), 3)
    world.round()
    assert world.waiting() == ["2000"] * 3 + ["400"] * 3


@few
@given(runs=st.lists(st.integers(10, 5000), min_size=1, max_size=12, unique=True), room=st.integers(1, 12))
def test_it_is_always_the_shortest_that_run(runs: list[int], room: int) -> None:
    world = alike(make_cost_model("shortest-job-first"), 1, cores=room)
    for run_s in runs:
        world.submit(a_class(str(run_s), run_s=float(run_s)))
    world.round()
    assert sorted(map(int, world.on("n0"))) == sorted(runs)[:room]


def test_long_ones_wait_for_a_bounded_time_at_any_finite_price() -> None:
    world = alike(make_cost_model("shortest-job-first"), 1, cores=1)
    world.submit(a_class("endless"), created_s=-DUE_S)
    world.submit(a_class("long", run_s=1e6), created_s=-0.9 * DUE_S)
    world.submit(a_class("short", run_s=5.0), 3)
    world.round()
    assert world.on("n0") == ["endless"]


def test_no_task_waits_beside_free_room_and_faster_types_come_first() -> None:
    world = World(make_cost_model("shortest-job-first"), [a_machine("slow", 2, type="slow"), a_machine("fast", 2)])
    world.submit(a_class("endless", slowness=(("slow", 0.8),)), 3)
    world.round()
    assert world.counts().tolist() == [1, 2]


# quincy


def in_racks(machines: int, per_rack: int, cores: int = 1) -> list:
    """Machines that say who they are and in which rack."""
    return [
        a_machine(f"m{i}", cores, labels=(("machine", f"m{i}"), ("rack", f"r{i // per_rack}"))) for i in range(machines)
    ]


def reads(name: str, mb: float, *where: tuple[str, str, float]) -> TaskClass:
    return a_class(name, locality=where, input_mb=mb)


HERE = (("machine", "m0", 0.8), ("rack", "r0", 1.0))


def test_a_task_goes_to_its_data_then_to_its_rack_then_anywhere() -> None:
    world = World(make_cost_model("quincy"), in_racks(4, 2))
    found = []
    for turn in range(4):
        world.submit(reads("reader", 100.0, *HERE), created_s=-DUE_S)
        outcome = world.round(float(turn))
        found.append((world.cluster.machines.name(int(outcome.machines[0])), float(outcome.cost[0])))
    # 20 MB from the rack; all 100 MB from the rack; all of it from another.
    assert [name for name, _ in found[:2]] == ["m0", "m1"]
    assert [cost for _, cost in found] == pytest.approx([20.0, 100.0, 200.0, 200.0])


def test_it_waits_for_its_data_until_that_is_dearer_than_the_transfer() -> None:
    world = World(make_cost_model("quincy", waiting_per_s=1.0), in_racks(4, 2))
    world.run(a_class("other"), "m0")
    world.run(a_class("other"), "m1")
    world.submit(reads("reader", 100.0, *HERE))
    assert world.round(150.0).tasks.tolist() == []
    assert world.round(250.0).cost.tolist() == [200.0]


def test_data_too_small_to_be_preferred_counts_like_none() -> None:
    policy = make_cost_model("quincy", preferred_share=0.5)
    kinds = [machine.kind for machine in in_racks(2, 1)]
    prices = policy.price(reads("reader", 10.0, ("machine", "m0", 0.4), ("rack", "r0", 0.4)), kinds)
    assert prices.base.tolist() == [20.0, 20.0]


@few
@given(
    held=st.lists(
        st.lists(
            st.tuples(st.integers(1, 90), st.sets(st.integers(0, 5), min_size=1, max_size=3)), min_size=1, max_size=3
        ),
        min_size=1,
        max_size=8,
    )
)
def test_the_compacted_network_costs_what_the_network_of_every_task_costs(
    held: list[list[tuple[int, set[int]]]],
) -> None:
    """``held``: for each task its blocks, each with MB and the machines that have a copy."""
    count, per_rack = 6, 2
    blocks = [block for task in held for block in task]
    tasks = DataTasks(
        np.zeros(len(held), dtype=np.int64),
        np.cumsum([0, *[len(task) for task in held]]),
        np.array([mb for mb, _ in blocks], dtype=float),
        np.cumsum([0, *[len(where) for _, where in blocks]]),
        np.array([m for _, where in blocks for m in sorted(where)], dtype=np.int64),
        np.zeros(len(held)),
        np.full(len(held), -1, dtype=np.int64),
        np.zeros(len(held)),
    )
    prices = LocalityPrices(waiting=150.0, preferred_share=0.25)
    machines = Machines(np.arange(count) // per_rack, np.ones(count, dtype=np.int64))
    whole = build_locality_network(machines, choose(machines, tasks, prices), tasks.jobs)
    optimum = make_solver("ortools").solve(whole.network).cost

    policy = make_cost_model("quincy", waiting=150.0, waiting_per_s=0.0, preferred_share=0.25)
    world = World(policy, in_racks(count, per_rack))
    for i, task in enumerate(held):
        total = sum(mb for mb, _ in task)
        where = []
        for m in range(count):
            where.append(("machine", f"m{m}", sum(mb for mb, has in task if m in has) / total))
        for r in range(count // per_rack):
            near = sum(mb for mb, has in task if any(m // per_rack == r for m in has))
            where.append(("rack", f"r{r}", near / total))
        world.submit(reads(f"task-{i}", float(total), *where))
    level = world.rounds.decide(0.0).levels[0]
    if level.network is not None and level.solution is not None:  # else waiting is cheaper than any place
        assert level.solution.cost / level.network.network.cost_scale == pytest.approx(optimum, rel=1e-6)
    assert level.primal == pytest.approx(optimum, rel=1e-6)


# flow


@pytest.mark.parametrize("width", [1, 2])
def test_pairs_that_hurt_each_other_are_kept_apart(width: int) -> None:
    loud = a_class("loud", width, pressure=0.5, sensitivity=0.1)
    tender = a_class("tender", width, pressure=0.01, sensitivity=2.0)
    world = alike(make_cost_model("flow"), 4, cores=2 * width)
    world.run(loud, "n0")
    world.run(loud, "n1")
    world.run(tender, "n2")
    world.run(tender, "n3")
    world.submit(loud, 2)
    world.submit(tender, 2)
    world.round()
    assert [world.on(f"n{i}") for i in range(4)] == [["loud"] * 2] * 2 + [["tender"] * 2] * 2


FLOW_CLASSES = (
    a_class("neutral"),
    a_class("loud", pressure=0.5, sensitivity=0.25),
    a_class("tender", 2, pressure=0.125, sensitivity=2.0),
    a_class("slow", sensitivity=1.0, slowness=(("m", 0.5),)),
)


@few
@given(order=st.lists(st.integers(0, 3), min_size=1, max_size=6), bandwidth=st.sampled_from([0.5, 1.0, 1.5]))
def test_a_price_is_the_exact_change_of_the_total(order: list[int], bandwidth: float) -> None:
    world = World(make_cost_model("flow"), [a_machine("n0", 16, bandwidth=bandwidth)])

    def slow_down(there: list[int]) -> float:
        some = [FLOW_CLASSES[i] for i in there]
        pairs = sum(a.sensitivity * b.pressure + b.sensitivity * a.pressure for a, b in combinations(some, 2))
        return sum(dict(c.slowness).get("m", 0.0) for c in some) + bandwidth * pairs

    for n, i in enumerate(order):
        number = world.cluster.intern(FLOW_CLASSES[i])
        price = price_of(world.cluster, number, 0, world.cluster.machines.readings[world.rows[0]])
        assert price == pytest.approx(slow_down(order[: n + 1]) - slow_down(order[:n]), abs=1e-6)
        world.run(FLOW_CLASSES[i], "n0")


def test_neutral_tasks_go_anywhere_and_leave_the_cleanest_places_to_others() -> None:
    world = alike(make_cost_model("flow"), 2, cores=2)
    world.run(a_class("loud", pressure=0.5), "n0")
    world.submit(a_class("neutral"))
    world.submit(a_class("tender", sensitivity=1.0), 2)
    world.round()
    assert world.on("n0") == ["loud", "neutral"]
    assert world.on("n1") == ["tender", "tender"]


def test_a_wish_is_met_where_there_is_room_and_costs_what_it_says_where_not() -> None:
    labels = (("disk", "ssd"),)
    world = World(make_cost_model("flow"), [a_machine("ssd", 2, labels=labels), a_machine("plain", 2)])
    world.submit(a_class("wishes", preferences=(("disk", "ssd", 0.3),)), 3)
    outcome = world.round()
    assert world.counts().tolist() == [2, 1]
    assert sorted(outcome.cost.tolist()) == [0.0, 0.0, pytest.approx(0.3)]


def test_headroom_of_a_service_counts_as_its_machine_reads_it() -> None:
    world = alike(make_cost_model("flow"), 2)
    world.cluster.read("n0", "headroom", 2.0)
    world.submit(a_class("loud", pressure=0.5), 2)
    world.submit(a_class("quiet"), 1)
    outcome = world.round()
    assert world.on("n1").count("loud") == 2
    assert outcome.cost.tolist() == [0.0] * 3
