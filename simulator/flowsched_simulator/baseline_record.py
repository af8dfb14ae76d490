"""Records of baselines: what they saw and decided, in the shape of a search, with the costs that ``flow`` would give it.

A greedy rule solves no network, has no certificate and plans nothing for later. Its placements are priced as ``flow`` prices
its own, each task by its own goal, so that two policies on one snapshot can be compared: the task with the width that it
got, on all batch cores of the machine. Where a baseline granted other cores than these, or a company that ``flow`` forbids,
nobody who came to that machine has a cost: it is 0 and has no terms.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from flowsched.assignment import Assignment, Column
from flowsched.decision import Decisions, Placement, Postponement, Scheduler
from flowsched.gang import Gangs, gangs_of
from flowsched.network import Network
from flowsched.policies.flow import FlowPolicy
from flowsched.policies.policy import FORBIDDEN
from flowsched.record import (
    SEARCH_PART,
    plain_compaction,
    plain_plan,
    plain_task_groups,
    plain_value,
    rebuild_search,
    record_head,
)
from flowsched.search import Search
from flowsched.settings import Settings
from flowsched.snapshot import Snapshot
from flowsched.snapshot_file import dump_snapshot
from flowsched.solvers import make_solver

NO_SOLVER = "none"
"""What stands in the place of a solver's name."""


class RecordedBaseline:
    """A baseline whose decisions come with a recipe for the round's record."""

    def __init__(self, baseline: Scheduler, variant: str, settings: Settings) -> None:
        """``settings``: those that ``flow`` has in the same comparison; they price the decisions."""
        self._baseline = baseline
        self._variant = variant
        self._settings = settings

    @property
    def name(self) -> str:
        """The baseline's."""
        return self._baseline.name

    def decide(self, snapshot: Snapshot) -> Decisions:
        """The baseline's decisions."""
        began = time.perf_counter()
        decisions = self._baseline.decide(snapshot)
        decide_ms = (time.perf_counter() - began) * 1e3
        recipe = partial(
            baseline_record,
            snapshot,
            self.name,
            self._variant,
            self._settings,
            decisions.placements,
            decisions.postponements,
            decide_ms,
        )
        return replace(decisions, recipe=recipe)


def baseline_record(
    snapshot: Snapshot,
    name: str,
    variant: str,
    settings: Settings,
    placements: Sequence[Placement],
    postponements: Sequence[Postponement],
    decide_ms: float,
) -> dict[str, Any]:
    """The record of one round of a baseline, version 2. ``decide_ms``: how long it took."""
    search = rebuild_search(
        snapshot,
        FlowPolicy(settings),
        make_solver("ortools"),
        settings,
        holds={},
        must_start=frozenset(),
        barred=frozenset(),
        widths=True,
        goal_s=None,
    )
    view = search.view
    machine_of = {m.name: i for i, m in enumerate(view.machines)}
    task_of = {t.name: i for i, t in enumerate(view.tasks)}
    columns: list[Column | None] = [None] * len(view.tasks)
    for p in placements:
        if p.machine in machine_of:
            columns[task_of[p.task]] = Column(machine_of[p.machine], 0, p.width_milli)
    assignment = Assignment(columns, view.class_of, len(view.machines))
    costs = _machine_costs(search, assignment, placements)
    bound_together: dict[str, Any] = {}
    if snapshot.relations or snapshot.task_groups:
        bound_together = {
            "task_groups": plain_task_groups(view, Gangs(gangs_of(view)), placements),
            "repairs": [],
        }
    # Of many machines alike the view has only some; a baseline may have taken one of the others.
    started = {p.task: {"machine": p.machine, "slot": 0, "width_milli": p.width_milli} for p in placements}
    plan = [{**entry, **started.get(entry["task"], {})} for entry in plain_plan(view, columns)]
    return {
        **record_head(snapshot.round, snapshot.now_s, name, NO_SOLVER, settings),
        **({"variant": variant} if variant else {}),
        "parts": [
            {
                "kind": SEARCH_PART,
                "snapshot": dump_snapshot(snapshot),
                **plain_compaction(view),
                "first_network": _nothing(),
                "last_network": None,
                "goal_s": None,
                "widths": False,
                "plan": plan,
                "machine_costs": costs,
                "placements": [plain_value(_priced(search, assignment, p, task_of[p.task], costs)) for p in placements],
                "postponements": [plain_value(_waiting(search, p, task_of[p.task])) for p in postponements],
                "reservations": [],
                **bound_together,
                "certificate": None,
                "counts": {"forecasts": 0, "solves": 0},
                "timings": {"decide_ms": decide_ms},
            }
        ],
    }


def _machine_costs(search: Search, plan: Assignment, placements: Sequence[Placement]) -> dict[str, float]:
    """Cost of every machine that ``flow`` can price with those who came to it."""
    view = search.view
    group_of = {view.machines[m].name: g for g, group in enumerate(view.groups) for m in group.members}
    class_of = {task.name: view.class_of[t] for t, task in enumerate(view.tasks)}
    foreign = set()
    for p in placements:
        g = group_of.get(p.machine)
        if g is None or (p.cores, p.threads) != (
            view.groups[g].batch_cores,
            search.outlook.threads(g, class_of[p.task]),
        ):
            foreign.add(p.machine)
    costs = {machine.name: search.cost(plan, m) for m, machine in enumerate(view.machines)}
    for g, group in enumerate(view.groups):
        costs |= dict.fromkeys(group.spares, search.prices.machine_cost(g, ()) if group.spares else 0.0)
    return {name: cost for name, cost in costs.items() if name not in foreign and cost != FORBIDDEN}


def _priced(search: Search, plan: Assignment, p: Placement, task: int, costs: Mapping[str, float]) -> Placement:
    column = plan.columns[task]
    if column is None or p.machine not in costs:
        return p
    c = search.view.class_of[task]
    company = plan.company(column.machine)
    member = company.index((c, 0, column.width_milli))
    terms = search.prices.machine_terms(search.view.group_of[column.machine], company, member)
    return replace(p, cost=sum(terms.values()), terms=terms)


def _waiting(search: Search, p: Postponement, task: int) -> Postponement:
    terms = search.prices.waiting_terms(search.view.class_of[task])
    return replace(p, cost=sum(terms.values()), terms=terms)


def _nothing() -> dict[str, Any]:
    """The network of somebody who has none: a sink that nothing flows to."""
    none = np.zeros(0, dtype=np.int64)
    return Network(none, none, none, none, np.zeros(1, dtype=np.int64), 1.0, ("sink",)).to_plain(none)
