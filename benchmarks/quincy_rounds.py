"""Rounds on Quincy's data-locality network with every task in the graph: from scratch, and from the last flow.

python -m benchmarks.quincy_rounds --machines 12500 --use 0.9 --incremental
"""

from __future__ import annotations

import json
import resource
import time
from typing import Any

import click
import numpy as np
from ortools.graph.python import min_cost_flow

from benchmarks.machine import describe_machine
from benchmarks.quincy.choices import choose
from benchmarks.quincy.incremental_outcome import Way
from benchmarks.quincy.instance import InstanceShape
from benchmarks.quincy.network import build_network
from benchmarks.quincy.rounds import LocalityRounds
from flowsched.network.network import Network
from flowsched.solvers.ortools import OrtoolsSolver
from flowsched.support.stage_timer import StageTimer


def measure_quincy(rounds: int, machines: int = 12_500, use: float = 0.9, seed: int = 0) -> dict[str, Any]:
    """Rounds from scratch by OR-tools: build, solve, decode; each round another draw of all tasks.

    ``peer_ms`` is the median of OR-tools' own solve of the same networks, its arrays filled before and its flow not read
    back; ``ratio`` is the median round by that. Choices are made when tasks come, so they are no part of a round.
    """
    shape = InstanceShape(machines=machines)
    cluster = shape.draw_machines()
    count = round(machines * shape.slots * use)
    whole: list[float] = []
    own: list[float] = []
    phases: dict[str, list[float]] = {}
    arcs = 0
    for k in range(rounds + 1):
        tasks = shape.draw_tasks(count, 0, np.random.default_rng([seed, k]))
        choices = choose(cluster, tasks, shape.prices)
        timer = StageTimer(time.perf_counter)
        timer.start("build")
        built = build_network(cluster, choices, tasks.jobs)
        timer.start("solve")
        solution = OrtoolsSolver().solve(built.network)
        timer.start("decode")
        placed = built.decode(solution.flow)
        timer.start(None)
        _check_places(placed, cluster.slots)
        arcs = built.network.arc_count
        if k > 0:  # the first compiles what is not compiled yet
            whole.append(sum(timer.ms.values()))
            own.append(_own_solve_ms(built.network))
            for stage, ms in timer.ms.items():
                phases.setdefault(stage, []).append(ms)
    row = _row("quincy", machines, count, 1.0, whole, phases, arcs)
    peer = float(np.median(own))
    return {**row, "peer_ms": peer, "ratio": row["p50_ms"] / peer}


def _own_solve_ms(network: Network) -> float:
    """OR-tools' solve alone, without what our solver does around it."""
    engine = min_cost_flow.SimpleMinCostFlow()
    engine.add_arcs_with_capacity_and_unit_cost(network.tails, network.heads, network.capacities, network.unit_costs)
    engine.set_nodes_supplies(np.arange(len(network.supplies)), network.supplies)
    began = time.perf_counter()
    status = engine.solve()
    took = (time.perf_counter() - began) * 1e3
    if status != engine.OPTIMAL:
        raise RuntimeError(f"OR-tools answers {status}")
    return took


def measure_quincy_incremental(
    rounds: int,
    machines: int = 12_500,
    use: float = 0.9,
    churn: float = 0.01,
    seed: int = 0,
    peer_every: int = 20,
) -> dict[str, Any]:
    """Rounds from the last flow: a share of the tasks leaves, as many come; leave, arrive (choices made and put into the
    graph), optimise and decode are timed together.

    Every ``peer_every``-th round is solved from scratch too: ``peer_ms`` is OR-tools' median for building its network and
    solving it. Raises ``RuntimeError`` if its optimal cost differs, or if the flow does not prove itself.
    """
    shape = InstanceShape(machines=machines)
    random = np.random.default_rng([seed, machines])
    cluster = shape.draw_machines()
    count = round(machines * shape.slots * use)
    per_round = max(1, round(count * churn))
    _compile(seed)
    state = LocalityRounds(cluster, shape.prices, room=count + per_round)
    first = shape.draw_tasks(count, 0, random)
    timer = StageTimer(time.perf_counter)
    timer.start("arrive")
    state.arrive(first)
    timer.start("optimise")
    start = state.flow.reoptimise()
    timer.start("decode")
    placement = state.decide()
    timer.start(None)
    start_ms = timer.ms
    whole: list[float] = []
    peers: list[float] = []
    phases: dict[str, list[float]] = {}
    moved = 0
    for k in range(rounds):
        leaving = random.choice(placement.tasks, per_round, replace=False)
        coming = shape.draw_tasks(per_round, 0, random)
        before = placement
        timer = StageTimer(time.perf_counter)
        timer.start("leave")
        state.leave(leaving)
        timer.start("arrive")
        state.arrive(coming)
        timer.start("optimise")
        outcome = state.flow.reoptimise()
        timer.start("decode")
        placement = state.decide()
        timer.start(None)
        whole.append(sum(timer.ms.values()))
        for stage, ms in timer.ms.items():
            phases.setdefault(stage, []).append(ms)
        steps = outcome.way is Way.STEPS
        moved += _moves(before, placement, leaving)
        if k % peer_every == 0 or (not steps and len(peers) == 0):
            _check_places(placement.machines, cluster.slots)
            began = time.perf_counter()
            solution = OrtoolsSolver().solve(state.flow.network())
            peers.append((time.perf_counter() - began) * 1e3)
            if solution.cost != state.flow.cost() or not state.flow.certificate().proves:
                raise RuntimeError(
                    f"round {k}: OR-tools finds {solution.cost}, the last flow led to {state.flow.cost()}"
                )
    row = _row("quincy-incremental", machines, count, churn, whole, phases, state.flow.arc_count)
    peer = float(np.median(peers))
    return {
        **row,
        "use": use,
        "start_ms": start_ms,
        "start_way": str(start.way),
        "from_scratch": dict(state.flow.reasons),
        "moved_per_round": moved / max(rounds, 1),
        "peer_ms": peer,
        "ratio": peer / row["p50_ms"],
    }


def _compile(seed: int) -> None:
    """Everything once on a small cluster, so that no compilation is timed."""
    shape = InstanceShape(machines=20)
    random = np.random.default_rng(seed)
    for limit in (4.0, 0.0):
        state = LocalityRounds(shape.draw_machines(), shape.prices, 300, limit)
        numbers = state.arrive(shape.draw_tasks(280, 0, random))
        state.decide()
        state.leave(numbers[:20])
        state.decide()


def _moves(before: Any, after: Any, left: Any) -> int:
    """Tasks that stayed and are elsewhere now; numbers of those that left may be in use again."""
    known = np.isin(before.tasks, left, invert=True)
    where = dict(zip(after.tasks.tolist(), after.machines.tolist(), strict=True))
    return sum(
        where[t] != m for t, m in zip(before.tasks[known].tolist(), before.machines[known].tolist(), strict=True)
    )


def _check_places(placed: Any, slots: Any) -> None:
    if (np.bincount(placed[placed >= 0], minlength=len(slots)) > slots).any():
        raise RuntimeError("a machine has more tasks than slots")


def _row(
    preset: str, machines: int, tasks: int, churn: float, whole: list[float], phases: dict[str, list[float]], arcs: int
) -> dict[str, Any]:
    return {
        "preset": preset,
        "machines": machines,
        "tasks": tasks,
        "churn": churn,
        "rounds": len(whole),
        **{f"p{q}_ms": float(np.percentile(whole, q)) for q in (50, 95, 99)},
        "phases_ms": {stage: float(np.median(ms)) for stage, ms in phases.items()},
        "arcs": arcs,
        "rss_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    }


@click.command()
@click.option("--rounds", default=20, show_default=True)
@click.option("--machines", default=12_500, show_default=True)
@click.option("--use", default=0.9, show_default=True, help="Share of all slots that tasks ask for.")
@click.option("--churn", default=0.01, show_default=True)
@click.option("--seed", default=0, show_default=True)
@click.option("--incremental/--scratch", default=True, show_default=True)
def main(rounds: int, machines: int, use: float, churn: float, seed: int, incremental: bool) -> None:
    """Measure and print JSON."""
    if incremental:
        row = measure_quincy_incremental(rounds, machines, use, churn, seed)
    else:
        row = measure_quincy(rounds, machines, use, seed)
    click.echo(json.dumps({**row, "machine": describe_machine()}, indent=1))


if __name__ == "__main__":
    main()
