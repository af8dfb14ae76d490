"""The record of a round, version 1: the complete, replayable account as plain data.

Everything but ``timings`` is a function of the snapshot and the settings. Costs are in units of penalty, times in
seconds, widths in milli-CPU. Networks are arrays: arc i runs from node ``tails[i]`` to node ``heads[i]``.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from flowsched.assignment import Assignment
from flowsched.compaction import View
from flowsched.decision import Certificate, Placement, Postponement
from flowsched.first_network import FirstSolution
from flowsched.gang import Gangs
from flowsched.output import make_folder, write_whole
from flowsched.passes import PassNetwork
from flowsched.repair import Repair
from flowsched.reservation import Dues
from flowsched.search import Search
from flowsched.settings import Settings
from flowsched.snapshot_file import dump_snapshot
from flowsched.solvers import Status

RECORD_VERSION = "flowsched/v1"
ROUND_RECORD = "RoundRecord"
"""Kind of a record of several networks: a round on Kubernetes, priority by priority."""
WIDE_RECORD = "WideRecord"
"""Kind of a wide round's part of it."""


def build_record(
    *,
    policy: str,
    settings: Settings,
    search: Search,
    plan: Assignment,
    first: FirstSolution,
    dues: Dues,
    gangs: Gangs,
    repairs: tuple[Repair, ...],
    goal_s: float | None,
    placements: tuple[Placement, ...],
    postponements: tuple[Postponement, ...],
    certificate: Certificate | None,
    timings_ms: Mapping[str, float],
) -> dict[str, Any]:
    """Plain data, ready for JSON."""
    view = search.view
    last = PassNetwork(search, plan, explain=True)
    answer = search.solver.solve(last.network)
    bound_together: dict[str, Any] = {}
    if view.snapshot.relations or view.snapshot.task_groups:
        bound_together["task_groups"] = _task_groups(view, gangs, placements)
        bound_together["repairs"] = [asdict(r) for r in repairs]
    return {
        "apiVersion": RECORD_VERSION,
        "kind": "Record",
        "round": view.snapshot.round,
        "now_s": view.snapshot.now_s,
        "policy": policy,
        "solver": search.solver.name,
        "settings": asdict(settings),
        "snapshot": dump_snapshot(view.snapshot),
        "classes": [
            {"task": cls.task.name, "members": [view.tasks[i].name for i in cls.members]} for cls in view.classes
        ],
        "groups": [
            {
                "machine": group.machine.name,
                "members": [*(view.machines[i].name for i in group.members), *group.spares],
                "free_milli": group.free_milli,
                "free_memory_mib": group.free_memory_mib,
                **({"free_resources": dict(group.free_resources)} if group.free_resources else {}),
                "running": [r.task.name for r in group.running],
            }
            for group in view.groups
        ],
        "first_network": first.first.network.to_plain(first.solution.flow),
        "last_network": last.network.to_plain(answer.flow) if answer.status is Status.OPTIMAL else None,
        "goal_s": goal_s,
        "plan": [
            {
                "task": view.tasks[t].name,
                "machine": None if column is None else view.machines[column.machine].name,
                "slot": None if column is None else column.slot,
                "width_milli": None if column is None else column.width_milli,
            }
            for t, column in enumerate(plan.columns)
        ],
        "machine_costs": {
            **{machine.name: search.cost(plan, m) for m, machine in enumerate(view.machines)},
            **{name: search.prices.machine_cost(g, ()) for g, group in enumerate(view.groups) for name in group.spares},
        },
        "placements": [_plain(p) for p in placements],
        "postponements": [_plain(p) for p in postponements],
        "reservations": [asdict(r) for r in dues.reservations],
        **bound_together,
        "certificate": None
        if certificate is None
        else {
            **_plain(certificate),
            "gap_absolute": certificate.gap_absolute,
            "gap_relative": certificate.gap_relative,
        },
        "counts": {"forecasts": search.outlook.forecasts, "solves": search.tally.solves},
        "timings": {f"{stage.replace(' ', '_')}_ms": ms for stage, ms in timings_ms.items()},
    }


def _task_groups(view: View, gangs: Gangs, placements: tuple[Placement, ...]) -> list[dict[str, Any]]:
    """What the round decided about the groups that did not run before."""
    placed = {p.task for p in placements}
    return [
        {
            "name": gang.group.name,
            "minimum": gang.group.minimum,
            "running": gang.running,
            "members": [view.tasks[t].name for t in gang.members],
            "starts": any(view.tasks[t].name in placed for t in gang.members),
        }
        for gang in gangs.all
    ]


def write_record(record: Mapping[str, Any], path: Path) -> None:
    """Write a record as JSON; a crash leaves nothing half-written under its final name."""
    make_folder(path.parent)
    write_whole(path, json.dumps(record, indent=1, allow_nan=False) + "\n")


def _plain(value: Any) -> dict[str, Any]:
    return json.loads(json.dumps(asdict(value)))  # type: ignore[no-any-return]
