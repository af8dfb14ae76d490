"""A round on a fleet: classes of equal tasks, masks and wishes by machine row, through the network of machine groups.

The fleet becomes a ledger for the round, in arrays: what runs is known as sums only, and relations as counts.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any

import numpy as np

from flowsched.arrays import BoolArray, FloatArray, IntArray
from flowsched.decision import Certificate
from flowsched.demand import Demand
from flowsched.fleet import FIXED as FLEET_FIXED
from flowsched.fleet import Fleet
from flowsched.record import plain_timings
from flowsched.relations.relation import TaskGroup
from flowsched.scale import kernels
from flowsched.scale.ledger import Ledger
from flowsched.scale.machine_arrays import FIXED, LoadedMachines
from flowsched.scale.places import Places
from flowsched.scale.policies.flow import HEADROOM, PRESSURE, SENSITIVITY
from flowsched.scale.policy import ClassPrices, Feature
from flowsched.scale.reasons import PLACE, Closing, why_all
from flowsched.scale.record import NetworkAccount, network_record
from flowsched.scale.restricted import coarsen
from flowsched.scale.round import RoundOutcome, Rounds, RoundSettings
from flowsched.scale.scheduler import named_certificate
from flowsched.scale.task_class import MachineKind, TaskClass
from flowsched.solvers import Solver
from flowsched.stage_timer import StageTimer
from flowsched.wide_outcome import Cause, Leftover, WidePlacement

_ANY = 1e6
"""More than any pressure."""
_CAUSES = {"never": Cause.CAPACITY, "held": Cause.CAPACITY, "reserved": Cause.CAPACITY}
_SHIFT = FLEET_FIXED // FIXED


class FleetPolicy:
    """The prices of ``flow`` for the demands of a round, with waiting costs of their own."""

    name = "flow"

    def __init__(self, demands: Sequence[Demand]) -> None:
        """Machines are told apart by every reading until :func:`coarsen`."""
        self._waiting = {demand.name: demand.waiting_cost for demand in demands}
        self.features = (
            Feature(PRESSURE, 0.0, "interference_suffered"),
            Feature(SENSITIVITY, 0.0, "interference_caused"),
            Feature(HEADROOM, 0.0, "slo_headroom"),
        )

    def factors(self, kind: MachineKind) -> Sequence[float]:
        """Memory bandwidth scales what neighbours do to each other, not what a service loses."""
        return kind.bandwidth, kind.bandwidth, 1.0

    def price(self, task_class: TaskClass, kinds: Sequence[MachineKind]) -> ClassPrices:
        """What it suffers goes by the neighbours' pressure, what it causes by their sensitivity."""
        s, p = task_class.sensitivity, task_class.pressure
        waiting = self._waiting[task_class.name]
        return ClassPrices(np.zeros(len(kinds)), np.array([s, p, p]), np.array([p, s, 0.0]), waiting)


@dataclass(frozen=True, eq=False)
class FleetOutcome:
    """Every task of every demand is in exactly one of placements and left."""

    placements: tuple[WidePlacement, ...]
    left: tuple[Leftover, ...]
    counts: Mapping[str, int]
    """Solves, classes, groups, nodes and arcs by kind of the first network."""
    record: Callable[[int | None], Mapping[str, Any]] | None
    """Its part of the record, made once it is asked for; the priority of its tasks, where rounds go by priority. None where
    no record is kept, and where no task takes part."""
    timings_ms: Mapping[str, float]
    certify: Callable[[], Certificate | None]

    @cached_property
    def certificate(self) -> Certificate | None:
        """How far from optimal it can be; None if no task takes part. Worked out when it is first asked for."""
        return self.certify()


def place(
    fleet: Fleet,
    demands: Sequence[Demand],
    groups: Sequence[TaskGroup] = (),
    running_members: Mapping[str, int] | None = None,
    *,
    solver: Solver,
    settings: RoundSettings | None = None,
    clock: Callable[[], float] = time.perf_counter,
    keep_record: bool = False,
) -> FleetOutcome:
    """Place the demands' tasks. ``fleet`` is only read; hand over a copy if it may change meanwhile.

    ``running_members``: tasks of each group that run already and count towards its minimum. Demands must be in an order
    that does not depend on chance, and their names differ.

    Raises ``KeyError`` for a relation that the fleet does not know and ``RuntimeError`` if the solver refuses a network.
    """
    timer = StageTimer(clock)
    timer.start("view")
    settings = replace(settings or RoundSettings(), reservations=False)
    policy = FleetPolicy(demands)
    ledger = read_fleet(fleet, demands, policy)
    for group in groups:
        ledger.declare_group(group.name, max(1, group.minimum))
    ledger.members_elsewhere = dict(running_members or {})
    coarsen(ledger)
    rounds = Rounds(ledger, solver, settings, clock=clock, canonical=True)
    timer.start(None)
    outcome = rounds.decide(0.0)
    return _told(ledger, demands, outcome, solver, settings, timer, keep_record)


def read_fleet(fleet: Fleet, demands: Sequence[Demand], policy: FleetPolicy) -> Ledger:
    """A ledger with the fleet's machines in the order of their names, and the demands' tasks waiting."""
    ledger = Ledger(policy)
    rows = fleet.order()
    _load_machines(ledger, fleet, rows, {r for d in demands for r, amount in d.needs.items() if amount > 0})
    for name in dict.fromkeys(name for d in demands for name in (*d.holds, *d.joins)):
        ledger.topology.put(fleet.topology_counts(name, rows), np.arange(len(rows)), len(rows))
    numbers: list[int] = []
    names: list[str] = []
    for demand in demands:
        if not demand.tasks:
            continue
        number = ledger.intern(_task_class(ledger, demand, rows))
        numbers += [number] * len(demand.tasks)
        names += demand.tasks
    ledger.submit(np.array(numbers, dtype=np.int64), np.zeros(len(numbers)), names)
    return ledger


def _load_machines(ledger: Ledger, fleet: Fleet, rows: IntArray, needed: set[str]) -> None:
    known = {resource: i for i, resource in enumerate(fleet.resources)}
    resources = ["cpu", "memory", *sorted(needed - {"cpu", "memory"})]
    allocatable = np.zeros((len(rows), len(resources)), dtype=np.int64)
    free = allocatable.copy()
    for k, resource in enumerate(resources):
        column = known.get(resource)
        if column is not None:
            allocatable[:, k] = fleet.allocatable()[rows, column]
            free[:, k] = allocatable[:, k] - fleet.used()[rows, column]
    found, first, kind_of = np.unique(fleet.bandwidth[rows], return_index=True, return_inverse=True)
    # Numbered by the first machine of each, as a ledger numbers machines that join one by one.
    order = np.argsort(first)
    bandwidth, kind_of = found[order], np.argsort(order)[kind_of.reshape(-1)]
    sensitivity, pressure = fleet.fixed_sums(rows)
    slope = np.rint(fleet.headroom_slope[rows] * FIXED).astype(np.int64)
    readings = np.stack([pressure // _SHIFT, sensitivity // _SHIFT, slope], axis=1)
    limits = np.full(readings.shape, kernels.UNLIMITED, dtype=np.int64)
    cap = np.clip(fleet.pressure_cap[rows], -_ANY, _ANY * _ANY)
    limits[:, 0] = np.where(cap < _ANY * _ANY, np.floor(cap * FIXED), kernels.UNLIMITED)
    ledger.load_machines(
        LoadedMachines(
            [str(fleet.names[row]) for row in rows.tolist()],
            [MachineKind("machine", bandwidth=q) for q in bandwidth.tolist()],
            kind_of,
            resources,
            allocatable,
            free,
            readings,
            limits,
        )
    )


def _task_class(ledger: Ledger, demand: Demand, rows: IntArray) -> TaskClass:
    def by_row(values: Any) -> Any:
        return None if values is None else values[rows]

    places = Places(by_row(demand.allowed), by_row(demand.eligible), by_row(demand.slowness), by_row(demand.preference))
    needs = tuple(sorted((r, amount) for r, amount in demand.needs.items() if r != "cpu" and amount > 0))
    return TaskClass(
        demand.name,
        demand.needs.get("cpu", 0),
        needs,
        demand.sensitivity,
        demand.pressure,
        group=demand.group or "",
        max_cost=demand.max_cost,
        holds=demand.holds,
        joins=demand.joins,
        places=ledger.places.intern(places),
    )


def _told(
    ledger: Ledger,
    demands: Sequence[Demand],
    outcome: RoundOutcome,
    solver: Solver,
    settings: RoundSettings,
    timer: StageTimer,
    keep_record: bool,
) -> FleetOutcome:
    """The round's outcome by names."""
    timer.ms.update(outcome.timings_ms)
    timer.start("report")
    closing = Closing.of(ledger, outcome.tasks, outcome.machines)
    reasons = why_all(0.0, ledger, outcome, closing)
    classes = ledger.task_class[outcome.tasks]
    terms = closing.in_turn(classes, outcome.machines)
    cost = np.sum(list(terms.values()), axis=0) if len(classes) else np.zeros(0)
    rival, rival_cost = runners_up(closing, classes, outcome.machines)
    names = ledger.names
    shown = {name: values.tolist() for name, values in terms.items() if name != PLACE or values.any()}
    placements = tuple(
        WidePlacement(
            ledger.task_name(task),
            str(names[machine]),
            paid,
            dict(zip(shown, parts, strict=True)),
            None if other < 0 else names[other],
            None if other < 0 else other_cost,
        )
        for task, machine, paid, other, other_cost, *parts in zip(
            outcome.tasks.tolist(),
            outcome.machines.tolist(),
            cost.tolist(),
            rival.tolist(),
            rival_cost.tolist(),
            *shown.values(),
            strict=True,
        )
    )
    waits = {ledger.task_name(row): reasons[row] for row in outcome.waits.tolist()}
    left = tuple(
        Leftover(task, _CAUSES.get(why.cause) or Cause(why.cause), why.text)
        for demand in demands
        for task in demand.tasks
        if (why := waits.get(task)) is not None
    )
    recipe = None
    if keep_record and outcome.levels:
        account = NetworkAccount.of(
            ledger, outcome, closing, reasons, (), number=0, now_s=0.0, policy="flow", solver=solver.name,
            settings=settings, upkeep={}, timings_ms=outcome.timings_ms, own_names=True,
        )  # fmt: skip
        recipe = partial(_part, account)
    timer.start(None)
    counts = dict(outcome.counts)
    for level in outcome.levels:
        if level.network is not None:
            counts |= level.network.kinds()
    return FleetOutcome(placements, left, counts, recipe, timer.ms, partial(named_certificate, ledger, outcome))


def runners_up(closing: Closing, classes: IntArray, machines: IntArray) -> tuple[IntArray, FloatArray]:
    """For each placement the machine, not its own, where one more task of its class would cost least; -1 for none."""
    rival = np.full(len(machines), -1, dtype=np.int64)
    cost = np.zeros(len(machines))
    model = closing.model
    tie = model.tie[:, 0] + model.tie[:, 1] * closing.free[:, 0] + model.tie[:, 2] * closing.free[:, model.memory]
    for c in np.unique(classes).tolist():
        mine = np.flatnonzero(classes == c)
        price = np.where(_open(closing, c), closing.prices(c), np.inf)
        order = np.lexsort((tie, price)) if len(price) <= 2 else _first_two(price, tie)
        best, second = order[0] if len(order) else -1, order[1] if len(order) > 1 else -1
        chosen = np.where(machines[mine] == best, second, best)
        there = (chosen >= 0) & np.isfinite(price[chosen])
        rival[mine[there]] = chosen[there]
        cost[mine[there]] = price[chosen[there]]
    return rival, cost


def _first_two(price: FloatArray, tie: FloatArray) -> IntArray:
    """The two cheapest machines; ties by rank."""
    least = np.partition(price, 1)[1]
    near = np.flatnonzero(price <= least)
    found: IntArray = near[np.lexsort((near, tie[near], price[near]))][:2]
    return found


def _open(closing: Closing, c: int) -> BoolArray:
    """Machines that take one task of a class more."""
    ledger = closing.ledger
    demand, effect = ledger.demands[c], ledger.effects[c]
    open_: BoolArray = ((demand == 0) | (closing.free >= demand)).all(axis=1)
    open_ &= ((effect == 0) | (closing.readings + effect <= ledger.limits)).all(axis=1)
    for _, refused in closing.relations.refusals(c):
        open_ &= ~refused
    return open_


def _part(account: NetworkAccount, priority: int | None = None) -> dict[str, Any]:
    """The part of a record that the round is, with all that solving it again takes."""
    record = network_record(account)
    timings = plain_timings(account.timings_ms)
    needed = ("now_s", "policy", "settings", "task_groups", "members_elsewhere", "outside")
    given = {**{key: record[key] for key in needed if key in record}, "apart": True}
    (part,) = record["parts"]
    return {
        **part,
        **({} if priority is None else {"priority": priority}),
        "given": given,
        "timings": timings,
    }
