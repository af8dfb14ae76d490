"""The record of a round of DRMaestro's policies: every network that it solved, in order, and what came of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from flowsched.cluster.compaction import compact
from flowsched.cluster.decision import Placement, Postponement
from flowsched.cluster.snapshot import Snapshot
from flowsched.disaggregation.phase_network import SolvedNetwork
from flowsched.disaggregation.settings import DisaggregationSettings
from flowsched.records.record import (
    finite_or_none,
    plain_nothing,
    plain_placements,
    plain_postponements,
    record_head,
)
from flowsched.round.origin import PlanStage
from flowsched.round.round_record import plain_head, standing
from flowsched_models.runtime import HostFactory


def phases_record(
    snapshot: Snapshot,
    policy: str,
    solver: str,
    settings: DisaggregationSettings,
    solved: Sequence[SolvedNetwork],
    placements: Sequence[Placement],
    postponements: Sequence[Postponement],
) -> dict[str, Any]:
    """The record, with one part. Its passes are the networks of the phases, or the joint ones; it proves nothing."""
    started = {p.task: p for p in placements}
    decided_by = [_decided(p, solved) for p in placements]
    number = {entry["task"]: entry["pass"] for entry in decided_by}
    undone = [[task for task in one.found if number.get(task) != i + 1] for i, one in enumerate(solved)]
    most = max(range(len(solved)), key=lambda i: standing(len(solved[i].found), len(undone[i]), i), default=None)
    networks = [_plain_network(one) for one in solved]
    head = plain_head(compact(snapshot, HostFactory(snapshot.catalogue)))
    return {
        **record_head(snapshot.round, snapshot.now_s, policy, solver, settings),
        "parts": [
            {
                **head,
                "first_network": plain_nothing() if most is None else networks[most],
                "passes": [
                    {
                        "number": i + 1,
                        "batch": list(one.batch),
                        "booked": list(one.found),
                        "arcs": int(one.network.arc_count),
                        "drawn": i == most,
                        "goal_s": None,
                        **({} if i == most else {"network": networks[i]}),
                        # Its job found no place as a whole, or would have missed its goal.
                        "undone": [{"task": task, "by": None} for task in undone[i]],
                    }
                    for i, one in enumerate(solved)
                ],
                "decided_by": decided_by,
                "goal_s": None,
                "plan": [_planned(task.name, started.get(task.name)) for task in snapshot.pending],
                "placements": plain_placements(placements, head["machines"]),
                "waiting": plain_postponements(postponements),
                "reservations": [],
                "certificate": None,
                "counts": {"solves": len(solved), "passes": len(solved), "decided_by_network": len(placements)},
                "timings": {},
            }
        ],
    }


def _plain_network(solved: SolvedNetwork) -> dict[str, Any]:
    network = solved.network
    cost = network.unit_costs / network.cost_scale
    named = replace(network, terms={"price": cost}, units=np.ones(network.arc_count, np.int64))
    return named.to_plain(solved.flow)


def _decided(p: Placement, solved: Sequence[SolvedNetwork]) -> Mapping[str, Any]:
    """The last network that placed a task there: one whose job found no GPU is tried again."""
    number = max(i for i, one in enumerate(solved) if one.found.get(p.task) == p.machine)
    return {
        "task": p.task,
        "machine": p.machine,
        "stage": str(PlanStage.NETWORK),
        "pass": number + 1,
        "price": solved[number].paid[p.task],
        "runner_up": finite_or_none(solved[number].rivals[p.task]),
    }


def _planned(task: str, p: Placement | None) -> dict[str, Any]:
    return {
        "task": task,
        "machine": None if p is None else p.machine,
        "slot": None if p is None else 0,
        "width_milli": None if p is None else p.width_milli,
        "shared": None if p is None else False,
    }
