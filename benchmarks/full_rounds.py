"""Full rounds: every task of 12,500 machines in the network, what its moves save, and what it takes.

Three states: tasks at random on whatever had room; the same cluster after many rounds of the fast loop, in which tasks left
and came; and 98 % use with 5,000 tasks that wait. Proposals are carried out, one after the other, until one is empty; then
priority tasks of 8 cores come to the full cluster, for which others are preempted. Times are those of the first proposal,
which has the most to do; compiled code is warm.

    python -m benchmarks.full_rounds
"""

from __future__ import annotations

import json
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import click
import numpy as np

from benchmarks.machine import describe_machine
from benchmarks.rounds_course import Course
from benchmarks.rounds_presets import PRESETS
from flowsched.cluster.settings import Settings
from flowsched.scale.full_round import propose
from flowsched.scale.ledger import PENDING, RUNNING, Ledger
from flowsched.scale.migration import carry_out
from flowsched.scale.preemption import PreemptionPlanner
from flowsched.scale.round import Rounds
from flowsched.solvers import make_solver

RESULTS = Path(__file__).parent / "results"
ROUND_S = 1.0
URGENT = 500
"""Priority tasks that come to the full cluster."""
PRICE = 0.1
CASES = (
    ("at random, 90 %", "google", 0),
    ("after the fast loop, 90 %", "google", 100),
    ("98 %, 5,000 wait", "google-98", 40),
)


@click.command()
@click.option("--machines", default=12_500, show_default=True)
@click.option("--seed", default=1, show_default=True)
@click.option("--json", "as_json", is_flag=True)
@click.option("--keep/--no-keep", default=True, help="Keep the result under benchmarks/results.")
def main(machines: int, seed: int, as_json: bool, keep: bool) -> None:
    """Measure and print a table."""
    for _, preset, _ in CASES:
        _measure("warm", preset, 2, 60, seed)
    rows = [_measure(name, preset, rounds, machines, seed) for name, preset, rounds in CASES]
    outcome = {"price": PRICE, "rows": rows, "machine": describe_machine()}
    text = _table(rows)
    if keep:
        RESULTS.mkdir(exist_ok=True)
        (RESULTS / "full_rounds.json").write_text(json.dumps(outcome, indent=1) + "\n", encoding="utf-8")
        (RESULTS / "full_rounds.txt").write_text(text + "\n", encoding="utf-8")
    click.echo(json.dumps(outcome) if as_json else text)


def _measure(name: str, preset: str, rounds: int, machines: int, seed: int) -> dict[str, Any]:
    """One case: the state it starts from, full rounds until nothing moves, then preemption."""
    course = Course(replace(PRESETS[preset], machines=machines), seed)
    ledger, now_s = course.ledger, 0.0
    fast = Rounds(ledger, make_solver("ortools"))
    for _ in range(rounds):
        now_s += ROUND_S
        events = course.draw()
        ledger.leave(events.leave)
        ledger.submit(events.come, np.full(len(events.come), now_s))
        outcome = fast.decide(now_s)
        ledger.bind(outcome.tasks, outcome.machines)
    settings = Settings(migration_price=PRICE, migration_pause_s=0.0, migration_moves=1 << 20)
    moved_s = np.full(len(ledger.state), -np.inf)
    row: dict[str, Any] = {"case": name, "machines": machines, "tasks": int((ledger.state == RUNNING).sum())}
    row["waiting"] = int((ledger.state == PENDING).sum())
    row["cost_before"] = _cost(ledger)
    row |= {"proposals": 0, "moves": 0, "let_in": 0, "gain": 0.0, "paid": 0.0}
    for _ in range(20):
        began = time.perf_counter()
        proposal = propose(ledger, make_solver("ortools"), settings, now_s, moved_s)
        moves = proposal.moves
        if not row["proposals"]:
            row["propose_ms"] = 1e3 * (time.perf_counter() - began)
            row["first"] = dict(proposal.counts)
        if not len(moves):
            break
        runs = ~moves.starts
        row["proposals"] += 1
        row["moves"] += int(runs.sum())
        row["let_in"] += int((~runs).sum())
        row["gain"] += float(moves.gain[runs].sum())
        row["paid"] += float(moves.least_gain.sum())
        carry_out(moves, ledger)
        moved_s[moves.tasks[runs]] = now_s
        now_s += ROUND_S
    row["arcs"] = row["first"].get("arcs", 0)
    row["cost_after"] = _cost(ledger)
    row["preemption"] = _preempt(ledger, course, now_s)
    return row


def _preempt(ledger: Ledger, course: Course, now_s: float) -> dict[str, Any]:
    """Priority tasks come, and others make room."""
    wide = max(course.mix.classes, key=lambda c: c.width_milli)
    urgent = ledger.intern(replace(wide, name="urgent", priority=10))
    tasks = ledger.submit(np.full(URGENT, urgent), np.full(URGENT, now_s))
    outcome = Rounds(ledger, make_solver("ortools")).decide(now_s)
    ledger.bind(outcome.tasks, outcome.machines)
    left = int((ledger.state[tasks] == PENDING).sum())
    began = time.perf_counter()
    never = np.zeros(len(ledger.state), dtype=np.int64)
    by = PreemptionPlanner(ledger, make_solver("ortools"), Settings(), never, most_victims=1 << 20)
    plan = by.plan(tasks[ledger.state[tasks] == PENDING], now_s)
    return {
        "waiting": left,
        "plan_ms": 1e3 * (time.perf_counter() - began),
        "victims": len(plan),
        "let_in": len(plan.tasks),
    }


def _cost(ledger: Ledger) -> float:
    """Sum of what the running tasks of every machine cost as they come."""
    from flowsched.scale import kernels

    tasks = np.flatnonzero(ledger.state == RUNNING)
    classes, machine = ledger.task_class[tasks], ledger.machine[tasks]
    free, readings = ledger.free.copy(), ledger.readings.copy()
    np.add.at(free, machine, ledger.demands[classes])
    np.subtract.at(readings, machine, ledger.effects[classes])
    cost = np.empty(len(tasks))
    kernels.in_turn(classes, machine, ledger.model(), free, readings, cost)
    return float(cost.sum())


def _table(rows: list[dict[str, Any]]) -> str:
    lines = [
        f"{rows[0]['machines']:,} machines; a move's price is {PRICE}; proposals until nothing moves",
        "",
        f"{'state':<26}{'tasks':>9}{'arcs':>9}{'propose ms':>12}{'proposals':>11}{'moves':>9}{'let in':>8}"
        f"{'cost before':>13}{'after':>10}{'won':>9}{'paid':>9}{'waited':>8}{'victims':>9}{'got in':>8}{'plan ms':>9}",
    ]
    for row in rows:
        by = row["preemption"]
        lines.append(
            f"{row['case']:<26}{row['tasks']:>9,}{row['arcs']:>9,}{row['propose_ms']:>12,.0f}"
            f"{row['proposals']:>11}{row['moves']:>9,}{row['let_in']:>8,}{row['cost_before']:>13,.0f}"
            f"{row['cost_after']:>10,.0f}{row['gain']:>9,.0f}{row['paid']:>9,.0f}"
            f"{by['waiting']:>8}{by['victims']:>9,}{by['let_in']:>8}{by['plan_ms']:>9.0f}"
        )
    return "\n".join(lines)


if __name__ == "__main__":
    main()
