"""Rounds depend on what there is, not on the events that led to it: rows, numbers of kinds and classes decide nothing."""

from __future__ import annotations

import json
from collections.abc import Sequence

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from scale_world import draws
from small_worlds import Draw, World, draw_world

from flowsched.cluster.task_class import MachineKind, MachineSpec, TaskClass
from flowsched.round.linear.cluster_rows import ClusterRows
from flowsched.round.linear.level_record import linear_levels
from flowsched.round.linear.linear_round import Rounds, RoundSettings
from flowsched.round.linear.network_trace import NetworkTrace, RoundHead
from flowsched.round.linear.placed_costs import PlacedCosts
from flowsched.round.linear.reasons import Closing, why_all
from flowsched.solvers import make_solver

SETTINGS = RoundSettings(due_age_s=400.0)
ODD = MachineSpec("", MachineKind("odd", (("zone", "nowhere"),), 0.25), {"cpu": 64000, "memory": 1 << 20})


def rounds_of(cluster: ClusterRows) -> Rounds:
    return Rounds(cluster, make_solver("ortools"), SETTINGS)


def record(rounds: Rounds, now_s: float) -> str:
    """A round with all that its record has, but for what was made anew for it and how long it took."""
    cluster = rounds.cluster
    rounds.reservations = ()
    outcome = rounds.decide(now_s)
    closing = Closing.of(cluster, outcome.tasks, outcome.machines)
    reasons, costs = why_all(now_s, cluster, outcome, closing), PlacedCosts.in_turn(outcome, closing)
    head = RoundHead(0, now_s, "flow", "ortools", SETTINGS)
    plain = linear_levels(NetworkTrace.of(rounds, outcome, reasons, costs, head))
    for part in plain:
        del part["counts"], part["timings"]
    return json.dumps(plain, default=lambda value: value.tolist())


def submit(cluster: ClusterRows, world: World, tasks: Sequence[int]) -> None:
    """Some of the world's tasks come: those that run, then those that wait, by their number."""
    running = len(world.running)
    for task in tasks:
        c, when = world.running[task][0] if task < running else world.waiting[task - running][0], float(task) / 64.0
        number = cluster.intern(world.classes[c])
        row = cluster.submit(np.array([number]), np.array([when if task < running else when + 500.0]), [f"t{task}"])
        if task < running:
            at = cluster.row(world.machines[world.running[task][1]].name)
            cluster.bind(row, np.array([at]), np.array([1000.0 + 10.0 * task]))


def order_classes(cluster: ClusterRows) -> None:
    cluster.order_classes(sorted(range(len(cluster.classes)), key=lambda c: repr(cluster.classes[c])))


def extra(cluster: ClusterRows, i: int, number: int) -> None:
    """A machine of another kind comes, a task of another class, and both go."""
    name = f"{'-~'[i % 2]}{i}"
    machine = MachineSpec(name, ODD.kind, ODD.allocatable)
    (row,) = cluster.add_machines([machine]).tolist()
    task = cluster.submit(np.array([cluster.intern(TaskClass(f"odd-{number}", 500))]), np.zeros(1))
    cluster.bind(task, np.array([row]))
    cluster.leave(task)
    cluster.remove_machines([name])


@settings(deadline=None, max_examples=25)
@given(st.integers(0, 2**31), draws(), st.data())
def test_the_order_of_events_changes_neither_a_round_nor_its_record(seed: int, draw: Draw, data: st.DataObject) -> None:
    world = draw_world(seed, draw)
    count = len(world.running) + len(world.waiting)
    plain = ClusterRows.of(world.policy())
    plain.add_machines(sorted(world.machines, key=lambda spec: spec.name))
    submit(plain, world, range(count))
    order_classes(plain)

    kept = ClusterRows.of(world.policy())
    rounds = rounds_of(kept)
    for i, spec in enumerate(data.draw(st.permutations(world.machines))):
        kept.add_machines([spec])
        if i % 3 == 0:
            extra(kept, i, i)
    tasks = data.draw(st.permutations(range(count)))
    half = count // 2
    submit(kept, world, tasks[:half])
    order_classes(kept)
    rounds.decide(world.now_s)
    extra(kept, 0, 100)
    submit(kept, world, tasks[half:])
    order_classes(kept)
    assert record(rounds, world.now_s) == record(rounds_of(plain), world.now_s)
