"""A round taken apart: its model, its passes and every change of its plan."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from itertools import product

from flowsched.cluster.compaction import compact
from flowsched.cluster.settings import Settings
from flowsched.cluster.snapshot import Snapshot
from flowsched.pricing.flow_prices import FORBIDDEN
from flowsched.round.assignment import Assignment, PlacementOption
from flowsched.round.machine_states import MachineStates
from flowsched.round.options import Options
from flowsched.round.passes import Deciding
from flowsched.round.round_model import Offered, RoundModel
from flowsched.round.scheduler import BegunRound, begin_round
from flowsched.solvers import make_solver
from flowsched_models.runtime import HostFactory


@dataclass
class WatchedDeciding(Deciding):
    """Notes what every booking changes on the machine that is joined."""

    changes: dict[int, float] = field(default_factory=dict)
    """By task: cost of its machine after its last booking minus cost before."""

    def book(self, task: int, option: PlacementOption | None) -> None:
        """Book and note."""
        before = 0.0 if option is None else self.model.cost(self.plan, option.machine)
        super().book(task, option)
        if option is not None:
            self.changes[task] = self.model.cost(self.plan, option.machine) - before


def begun(now: Snapshot, chosen: Settings) -> BegunRound:
    """What a round has in hand before its first pass."""
    hosts = HostFactory(now.catalogue)
    return begin_round(compact(now, hosts), hosts, chosen)


def deciding_on(
    now: Snapshot, chosen: Settings, offered: Offered = Offered.WIDTHS, solver: str = "ortools"
) -> WatchedDeciding:
    """A round with nothing planned yet."""
    round_ = begun(now, chosen)
    model = replace(settled(round_), offered=offered)
    options = Options(MachineStates(model.prices), chosen.slots, 1 << 40, offered)
    return WatchedDeciding(
        model,
        options,
        make_solver(solver),
        nothing_planned(model),
        model.view.domain_counts.copy(),
        round_.levels.nothing(),
    )


def settled(round_: BegunRound) -> RoundModel:
    """The model of a round of one level, with what its overdue tasks and gangs ask."""
    return round_.levels.settled(nothing_planned(round_.model)).on(round_.model)


def nothing_planned(model: RoundModel) -> Assignment:
    """The plan in which every task waits."""
    view = model.view
    return Assignment([None] * len(view.tasks), view.class_of, len(view.machines))


def optimum(model: RoundModel) -> float:
    """The least cost of any plan in the model, by trying all of them."""
    view = model.view
    options: list[list[PlacementOption | None]] = []
    for t in range(len(view.tasks)):
        ways: list[PlacementOption | None] = [] if t in model.must_start else [None]
        for m in range(len(view.machines)):
            ways += model.options_on(t, m)
        options.append(ways)
    plans = (Assignment(list(choice), view.class_of, len(view.machines)) for choice in product(*options))
    return min((model.total(plan) for plan in plans), default=FORBIDDEN)


def ways(model: RoundModel) -> int:
    """How many plans :func:`optimum` would try."""
    total = 1
    for t in range(len(model.view.tasks)):
        total *= 1 + sum(len(model.options_on(t, m)) for m in range(len(model.view.machines)))
    return total


def recorded_plan(model: RoundModel, part: Mapping[str, object]) -> Assignment:
    """The plan of a record's part."""
    number = {m.name: i for i, m in enumerate(model.view.machines)}
    entries = {p["task"]: p for p in part["plan"]}  # type: ignore[attr-defined]
    options: list[PlacementOption | None] = []
    for task in model.view.tasks:
        p = entries[task.name]
        options.append(
            None if p["machine"] is None else PlacementOption(number[p["machine"]], p["slot"], p["width_milli"])
        )
    return Assignment(options, model.view.class_of, len(model.view.machines))
