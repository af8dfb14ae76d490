"""The record of a round, version 2: the complete, replayable account as plain data.

Everything but ``timings`` is a function of the snapshot and the settings. Costs are in units of penalty, times in
seconds, widths in milli-CPU. Where there are many values they are numpy arrays; JSON has lists instead. A round has
parts: one where everything was searched together; on Kubernetes one or two for every priority.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from flowsched.assignment import Assignment, Column
from flowsched.compaction import View, compact
from flowsched.decision import Certificate, Placement, Postponement
from flowsched.first_network import FirstSolution
from flowsched.gang import Gangs
from flowsched.hold import Hold
from flowsched.outlook import Outlook
from flowsched.passes import PassNetwork
from flowsched.policies.policy import Policy
from flowsched.repair import Repair
from flowsched.search import Search
from flowsched.settings import Settings
from flowsched.snapshot import Reservation, Snapshot
from flowsched.snapshot_file import dump_snapshot
from flowsched.solvers import Solver, Status
from flowsched_models.runtime import HostFactory

RECORD_VERSION = "flowsched/v2"
RECORD_KIND = "Record"
SEARCH_PART = "search"
WIDE_PART = "wide"
NETWORK_PART = "network"


@dataclass(frozen=True, eq=False)
class SearchAccount:
    """All that the part of a search is made of. Nothing in it changes after the round, so another thread may use it."""

    policy: Policy
    solver: Solver
    settings: Settings
    snapshot: Snapshot
    first: FirstSolution
    columns: tuple[Column | None, ...]
    """The plan, by task of the view."""
    holds: Mapping[int, Hold]
    must_start: frozenset[int]
    barred: frozenset[int]
    widths: bool
    """Whether the search ended with more widths than the narrowest."""
    shares: bool
    """Whether it ended with services' cores for light tasks."""
    gangs: Gangs
    repairs: tuple[Repair, ...]
    goal_s: float | None
    placements: tuple[Placement, ...]
    postponements: tuple[Postponement, ...]
    reservations: tuple[Reservation, ...]
    certificate: Certificate | None
    counts: Mapping[str, int]
    timings_ms: Mapping[str, float]
    stopped: tuple[str, ...] = ()
    """Reports of the solves that a time limit stopped."""


def round_record(account: SearchAccount) -> dict[str, Any]:
    """The record of a round that was one search."""
    snapshot = account.snapshot
    return {
        **record_head(snapshot.round, snapshot.now_s, account.policy.name, account.solver.name, account.settings),
        **({"reproducible": False, "stopped": list(account.stopped)} if account.stopped else {}),
        "parts": [search_part(account)],
    }


def record_head(number: int, now_s: float, policy: str, solver: str, settings: Settings) -> dict[str, Any]:
    """What every record begins with."""
    return {
        "apiVersion": RECORD_VERSION,
        "kind": RECORD_KIND,
        "writer": writer(),
        "round": number,
        "now_s": now_s,
        "policy": policy,
        "solver": solver,
        "settings": asdict(settings),
    }


@cache
def writer() -> str:
    """Who writes records: the name and version of this program."""
    try:
        return f"flowsched {version('flowsched')}"
    except PackageNotFoundError:
        return "flowsched"


def rebuild_search(
    snapshot: Snapshot,
    policy: Policy,
    solver: Solver,
    settings: Settings,
    *,
    holds: Mapping[int, Hold],
    must_start: frozenset[int],
    barred: frozenset[int],
    widths: bool,
    goal_s: float | None,
    shares: bool = False,
) -> Search:
    """A round's search from what it was made of: same prices, nothing shared with the round itself."""
    view = compact(snapshot, HostFactory(snapshot.catalogue))
    outlook = Outlook(view, shares)
    prices = policy.price(outlook)
    if goal_s is not None:
        # As the search does: a goal of 0 comes from rounds in which nobody has an end.
        prices = prices.with_goal(max(goal_s, 1e-3))
    return Search(
        view,
        outlook,
        prices,
        solver,
        settings.slots,
        settings.pricings,
        holds,
        must_start,
        widths,
        barred=barred,
    )


def search_part(account: SearchAccount, priority: int | None = None) -> dict[str, Any]:
    """The part of a record that a search is: its snapshot, classes, groups, networks, plan and decisions."""
    search = rebuild_search(
        account.snapshot,
        account.policy,
        account.solver,
        account.settings,
        holds=account.holds,
        must_start=account.must_start,
        barred=account.barred,
        widths=account.widths,
        goal_s=account.goal_s,
        shares=account.shares,
    )
    view = search.view
    plan = Assignment(list(account.columns), view.class_of, len(view.machines))
    last = PassNetwork(search, plan, explain=True)
    answer = account.solver.solve(last.network)
    solved = answer.status is Status.OPTIMAL
    first, begun = account.first.first.network, account.first.solution
    if begun.status is not Status.OPTIMAL:
        begun = account.solver.solve(first)  # a time limit struck; records have optimal flows
    # Among flows that cost nothing, the one in which nobody moves is the plan.
    flow = last.resting_flow() if answer.cost == 0 else answer.flow
    bound_together: dict[str, Any] = {}
    if view.snapshot.relations or view.snapshot.task_groups:
        bound_together["task_groups"] = plain_task_groups(view, account.gangs, account.placements)
        bound_together["repairs"] = [asdict(r) for r in account.repairs]
    return {
        "kind": SEARCH_PART,
        **({} if priority is None else {"priority": priority}),
        "snapshot": dump_snapshot(view.snapshot),
        **plain_compaction(view),
        "first_network": first.to_plain(begun.flow),
        "last_network": last.network.to_plain(flow, last.columns()) if solved else None,
        "goal_s": account.goal_s,
        "widths": account.widths,
        **({"shares": True} if account.shares else {}),
        "plan": plain_plan(view, plan.columns),
        "machine_costs": {
            **{machine.name: search.cost(plan, m) for m, machine in enumerate(view.machines)},
            **{name: search.prices.machine_cost(g, ()) for g, group in enumerate(view.groups) for name in group.spares},
        },
        "placements": [plain_value(p) for p in account.placements],
        "postponements": [plain_value(p) for p in account.postponements],
        "reservations": [asdict(r) for r in account.reservations],
        **bound_together,
        "certificate": plain_certificate(account.certificate),
        "counts": dict(account.counts),
        "timings": plain_timings(account.timings_ms),
    }


def plain_compaction(view: View) -> dict[str, Any]:
    """Classes of tasks and groups of machines."""
    return {
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
    }


def plain_plan(view: View, columns: Sequence[Column | None]) -> list[dict[str, Any]]:
    """The column of every task of a view."""
    return [
        {
            "task": view.tasks[t].name,
            "machine": None if column is None else view.machines[column.machine].name,
            "slot": None if column is None else column.slot,
            "width_milli": None if column is None else column.width_milli,
        }
        for t, column in enumerate(columns)
    ]


def plain_certificate(certificate: Certificate | None) -> dict[str, Any] | None:
    """A certificate with both gaps; None if nothing was pending."""
    if certificate is None:
        return None
    gaps = {"gap_absolute": certificate.gap_absolute, "gap_relative": certificate.gap_relative}
    return {**plain_value(certificate), **gaps}


def plain_timings(timings_ms: Mapping[str, float]) -> dict[str, float]:
    """Milliseconds by stage, the unit in the key."""
    return {f"{stage.replace(' ', '_')}_ms": ms for stage, ms in timings_ms.items()}


def plain_task_groups(view: View, gangs: Gangs, placements: Sequence[Placement]) -> list[dict[str, Any]]:
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


def plain_value(value: Any) -> dict[str, Any]:
    """A dataclass as JSON has it: tuples become lists."""
    return {name: list(v) if isinstance(v, tuple) else v for name, v in asdict(value).items()}


Recipe = Callable[[], Mapping[str, Any]]
"""How to make a record: most are never looked at."""
