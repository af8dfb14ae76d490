"""Passes of min-cost flow: who of a level starts where, now or later, a batch of arrivals at a time.

Tasks that are priced as if each came alone all choose the same machine. So a pass lets at most one of them arrive at a
machine, prices what changed again, and goes on with what is left, until every option of a task is dearer than waiting. The
network decides between the tasks of a batch; the batch is a share of the machines, for a pass must not spread more arrivals
than there are machines to spare.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from flowsched.cluster.domain_counts import DomainCounts
from flowsched.cluster.resource import without
from flowsched.pricing.arrival import Arrival, joined
from flowsched.pricing.flow_prices import FORBIDDEN
from flowsched.round.assignment import Assignment, PlacementOption
from flowsched.round.demands import Demands, closed_by
from flowsched.round.options import Budget, ClassOptions, Options
from flowsched.round.order import pool_of
from flowsched.round.origin import Origin, PlanStage
from flowsched.round.pass_network import TIE, PassNetwork, build
from flowsched.round.round_model import RoundModel
from flowsched.round.ties import cheapest
from flowsched.solvers import Solution, Solver
from flowsched.support.arrays import BoolArray, IntArray

FEW_MACHINES = 8
"""On so many machines a pass has arrivals for :data:`_SHARE_OF_FEW` of them, and improvement follows it always."""
_SHARE_OF_FEW = 0.6
"""With one arrival a network is the choice of the cheapest option; with one for each machine all machines are filled before
any is priced again."""
MANY_TASKS = 8
"""On a machine with so many tasks, running and planned, a round plans one later start at most, except for a makespan, which
depends on all of them."""
FLOW, GREEDY, NONE = "flow", "greedy", "none"
"""What may assign the tasks of a pass: :attr:`flowsched.cluster.settings.Settings.assign`."""
_TOGETHER = 256
"""Tasks that are priced together for the reasons why they wait: so that their arrays stay small."""


@dataclass(frozen=True)
class Pass:
    """What one pass was asked and what came of it."""

    network: PassNetwork
    solution: Solution
    batch: tuple[int, ...]
    """Tasks of the view."""
    booked: tuple[tuple[int, PlacementOption], ...]
    """Tasks with the options that the flow chose for them."""
    goal_s: float | None = None
    """The goal for all tasks that its prices were made with, in seconds from now; None: each task's own."""


@dataclass(frozen=True)
class Start:
    """A plan to begin with, and where its options come from."""

    plan: Assignment
    origins: Mapping[int, Origin]
    """By task of the view, of those that have an option."""
    passes: Sequence[Pass] = ()
    """Those that the origins count."""

    @classmethod
    def of_stage(cls, plan: Assignment, stage: PlanStage) -> Start:
        """A plan all of whose options come from one stage."""
        return cls(plan, {t: Origin(stage) for t, option in enumerate(plan.options) if option is not None})


@dataclass
class Deciding:
    """The plan of a round in the making."""

    model: RoundModel
    options: Options
    solver: Solver
    plan: Assignment
    domain_counts: DomainCounts
    """Relations' counts with all that runs or is planned."""
    demands: Demands
    """What overdue tasks and gangs ask, of the levels so far."""
    passes: list[Pass] = field(default_factory=list)
    solves: int = 0
    improved: int = 0
    """Changes that the improvement made after the passes."""
    untried: int = 0
    """Moves and swaps that it had not tried when its forecasts ended."""
    closed: frozenset[int] = frozenset()
    """Machines on which a higher level has planned a later start: lower levels leave them alone."""
    contested: int = 0
    """Networks in which two tasks or more could take the same machine."""
    lone: int = 0
    """Networks that were solved for the one task that was left."""
    origins: dict[int, Origin] = field(default_factory=dict)
    """By task, what chose its option; of one that lost its option afterwards, what took it."""

    def book(self, task: int, option: PlacementOption | None) -> None:
        """Change a task's option, and all that is known of the machines that it leaves and joins."""
        view, plan = self.model.view, self.plan
        before = plan.options[task]
        if before is not None:
            self.domain_counts.remove(view.tasks[task], view.machines[before.machine].name)
        plan.move(task, option)
        if option is not None:
            self.domain_counts.add(view.tasks[task], view.machines[option.machine].name)
        for m in {o.machine for o in (before, option) if o is not None}:
            self.options.changed(m, self.options.states.plan(m, plan.colocation(m)))

    @property
    def as_start(self) -> Start:
        """The plan as it is, to begin another one with."""
        return Start(self.plan, self.origins, self.passes)

    def follow(self, early: Assignment, repaired: Assignment) -> None:
        """Take over what became of the plan when idle machines, and then relations, had their say."""
        for t, option in enumerate(repaired.options):
            before = self.plan.options[t]
            if option == before:
                continue
            if option != early.options[t]:
                self.origins[t] = Origin(PlanStage.REPAIR)
            elif before is None:
                self.origins[t] = Origin(PlanStage.NEVER_IDLE)
            # One that starts before its turn keeps what chose its machine.
            self.book(t, option)

    def close_level(self) -> None:
        """What the levels so far have planned is not delayed by those that follow."""
        self.closed = closed_by(self.plan)

    def open_machines(self, tasks: Sequence[int]) -> tuple[BoolArray, BoolArray]:
        """[tasks, machines] where each may start now, and where later, as constraints go; room and prices apart."""
        model, view, states = self.model, self.model.view, self.options.states
        shape = (len(tasks), len(view.machines))
        open_now = np.ones(shape, np.bool_)
        open_now[:, [*self.closed]] = False
        for mine, task in zip(open_now, tasks, strict=True):
            c = view.class_of[task]
            mine[[m for m, hold in model.holds.items() if c not in hold.above]] = False
            if task in model.barred:
                mine[:] = False
            if view.classes[c].task.machines is not None:
                mine &= np.array([view.allowed(c, m) for m in range(shape[1])], np.bool_)
            candidates = view.candidates_of(c)
            if candidates is not None:
                mine &= candidates
            if model.related(task):
                for m in np.flatnonzero(mine).tolist():
                    mine[m] = self.domain_counts.refusal(view.tasks[task], view.machines[m].name) is None
        open_later = open_now.copy()
        open_later[[task in model.must_start for task in tasks]] = False
        if model.prices.goal_s is None:
            # Later starts are advice there, and forecasts of long queues cost more than they tell.
            open_later &= (states.count < MANY_TASKS) | (states.start_after <= 0).all(axis=1)
        for i, task in enumerate(tasks):
            if view.tasks[task].resources:
                self._keep_resources(task, open_now[i], open_later[i])
            if view.tasks[task].gpus is not None:
                self._keep_devices(task, open_now[i], open_later[i])
        return open_now, open_later

    def class_options(self, tasks: Sequence[int], wanted: int, budget: Budget) -> list[ClassOptions]:
        """The cheapest option of each task's class on every machine, reserved ones included; see :meth:`Options.of`."""
        model = self.model
        classes = [model.view.class_of[t] for t in tasks]
        priced = self.options.of(classes, *self.open_machines(tasks), wanted, budget)
        for m in sorted(model.holds.keys() - self.closed):
            here = model.view.group_of[m]
            for task, c, found in zip(tasks, classes, priced, strict=True):
                price, option = model.best_option(self.plan, task, m)
                if option is None:
                    continue
                found.price[m], found.start_after[m] = price, option.start_after
                found.variant[m] = model.prices.variant(here, Arrival(c, *option[1:]))
        return priced

    def closest_now(self, tasks: Sequence[int]) -> dict[int, tuple[float, int]]:
        """Of each task the cheapest start now beside all that starts now or is planned, and its machine; none of those
        that can start nowhere.
        """
        closest: dict[int, tuple[float, int]] = {}
        if not self.model.view.machines:
            return closest
        for first in range(0, len(tasks), _TOGETHER):
            part = tasks[first : first + _TOGETHER]
            open_now, _ = self.open_machines(part)
            able = np.flatnonzero(open_now.any(axis=1)).tolist()
            classes, open_now = [self.model.view.class_of[part[i]] for i in able], open_now[able]
            priced = self.options.of(classes, open_now, np.zeros(open_now.shape, np.bool_), 1, Budget(0))
            for i, found in zip(able, priced, strict=True):
                machine = self.cheapest(part[i], found)
                if found.price[machine] < FORBIDDEN:
                    closest[part[i]] = float(found.price[machine]), machine
        return closest

    def cheapest(self, task: int, options: ClassOptions) -> int:
        """The machine of a task's cheapest option; ties as in a network."""
        return cheapest(self.options.states, self.model.view.class_of[task], options)

    def option(self, task: int, options: ClassOptions, machine: int) -> PlacementOption:
        """The option of a task that its class has on a machine."""
        arrival = self.options.arrival(self.model.view.class_of[task], options, machine)
        return PlacementOption(machine, arrival.start_after, arrival.width_milli, arrival.shared)

    def _keep_resources(self, task: int, open_now: BoolArray, open_later: BoolArray) -> None:
        model, view = self.model, self.model.view
        c = view.class_of[task]
        wanted, width = view.tasks[task], view.tasks[task].widths_milli[0]
        names, free, whole = self._units
        asked = np.array([dict(wanted.resources).get(name, 0) for name in names], np.int64)
        planned = np.zeros(len(open_now), np.bool_)
        planned[list(self.plan.arrived())] = True
        for mask, after, units in ((open_now, 0, free), (open_later, 1, whole)):
            mask &= ((units >= asked) | (asked <= 0)).all(axis=1) | planned
            for m in np.flatnonzero(mask & planned).tolist():
                arrival = Arrival(c, after, 0 if after == 0 else width)
                others = self.plan.colocation(m, without=task)
                mask[m] = model.forecasts.possible(view.group_of[m], joined(others, arrival))

    def _keep_devices(self, task: int, open_now: BoolArray, open_later: BoolArray) -> None:
        view, states, gpus = self.model.view, self.options.states, self.model.prices.gpus
        assert gpus is not None, "a task asks for GPUs"
        c = view.class_of[task]
        open_later &= view.supplied(view.classes[c].task)[states.group_of]
        open_now &= gpus.fits_now[c, states.group_of]
        for m, planned in states.gpu_plans():
            if open_now[m]:
                open_now[m] = gpus.marginal(int(states.group_of[m]), planned, c)[1]

    @cached_property
    def _units(self) -> tuple[list[str], IntArray, IntArray]:
        """Further resources that tasks ask for, and [machines, resources] units that are free, and that ever can be."""
        view = self.model.view
        names = sorted({name for cls in view.classes for name, _ in cls.task.resources})
        free = [[g.free_resources.get(name, 0) for name in names] for g in view.groups]
        left = [without(dict(g.machine.resources), *(r.task.resources for r in g.endless)) for g in view.groups]
        shape = (len(view.groups), len(names))
        whole = np.array([[amounts.get(name, 0) for name in names] for amounts in left], np.int64).reshape(shape)
        of = np.array(view.group_of, np.int64)
        return names, np.array(free, np.int64).reshape(shape)[of], whole[of]


def batch_size(waiting: int, machines: int, share: float) -> int:
    """Arrivals of a pass: ``share`` of the machines, or where it is 0 a half of them, a quarter where more tasks wait than
    there are machines, and three fifths where there are few.
    """
    if share > 0.0 or machines <= FEW_MACHINES:
        return max(1, -int(-(share or _SHARE_OF_FEW) * machines // 1))
    return -(-machines // (2 if waiting <= machines else 4))


def run_passes(deciding: Deciding, tasks: Sequence[int], share: float) -> None:
    """Give every task of a level its option, or leave it waiting; ``tasks`` are those without one."""
    model = deciding.model
    view = model.view
    assign = model.prices.settings.assign
    pool, scarce = pool_of(model, deciding.plan, [] if assign == NONE else tasks)
    shut_out: list[int] = []
    opened = False
    machines = sum(group.size for group in view.groups if group.batch_cores)
    while pool or (shut_out and opened):
        if not pool:
            # Tasks that came since may have opened a domain to those that relations refused.
            pool, shut_out, opened = shut_out, [], False
        batch = pool[: 1 if assign == GREEDY else batch_size(len(pool), machines, share)]
        if scarce is not None:
            batch = scarce.as_many_as_fit(batch)
        by_class: dict[int, list[int]] = {}
        for t in batch:
            by_class.setdefault(view.class_of[t], []).append(t)
        left = len({view.class_of[t] for t in pool})
        firsts = {c: members[0] for c, members in by_class.items()}
        waits = {c: FORBIDDEN if t in model.must_start else model.prices.waiting_cost(c) for c, t in firsts.items()}
        budget = Budget(deciding.options.most_forecasts - model.forecasts.made, left)
        found = deciding.class_options([*firsts.values()], len(batch) + 1, budget)
        priced = {c: o for c, o in zip(firsts, found, strict=True) if _is_worth_a_start(o, waits[c])}
        if not priced:
            booked: tuple[tuple[int, PlacementOption], ...] = ()
        elif assign == GREEDY:
            booked = _book_cheapest(deciding, batch[0], *priced.values())
        else:
            deciding.lone += len(pool) == 1
            booked = _pass(deciding, batch, by_class, priced, waits)
        taken = {t for t, _ in booked}
        if taken:
            # Those whose cheapest option is dearer than waiting leave the pool: options only become dearer.
            left_out = {t for c, members in by_class.items() if c not in priced for t in members}
            pool = [t for t in pool if t not in taken and t not in left_out]
            opened = True
            if scarce is not None:
                scarce.free_milli -= sum(scarce.asked_milli[t] for t, option in booked if option.start_after == 0)
        else:
            left_out = set(batch)
            pool = pool[len(batch) :]
        shut_out += [t for t in batch if t in left_out and model.related(t)]


def _is_worth_a_start(options: ClassOptions, waiting: float) -> bool:
    """Whether the cheapest option of a class is no dearer than waiting: with a tie there is nothing to wait for."""
    least = float(options.price.min(initial=FORBIDDEN))
    return least < FORBIDDEN and least <= waiting + TIE


def _pass(
    deciding: Deciding,
    batch: Sequence[int],
    by_class: dict[int, list[int]],
    priced: dict[int, ClassOptions],
    waits: dict[int, float],
) -> tuple[tuple[int, PlacementOption], ...]:
    model = deciding.model
    classes = list(priced)
    counts, waiting = [len(by_class[c]) for c in classes], [waits[c] for c in classes]
    network = build(deciding.options.states, classes, counts, list(priced.values()), waiting)
    solution = deciding.solver.solve(network.network)
    deciding.solves += 1
    deciding.contested += is_contested(network, counts)
    if not solution.status.has_flow:
        raise RuntimeError(f"{deciding.solver.name} answers {solution.status} to a pass: {solution.report}")
    chosen = np.flatnonzero(solution.flow[: len(network.arc_price)])
    members = {c: iter(by_class[c]) for c in classes}
    found = []
    for arc in chosen.tolist():
        c = classes[int(network.arc_class[arc])]
        gain = min(waits[c], 1e300) - float(network.arc_price[arc])
        task = next(members[c])
        found.append((-gain, model.view.tasks[task].job, task, arc))
    prices = np.array([o.price for o in priced.values()])
    cheapest = np.partition(np.column_stack([prices, np.full(len(prices), FORBIDDEN)]), (0, 1), axis=1)
    booked = []
    for _, _, task, arc in sorted(found):
        c = model.view.class_of[task]
        machine = int(network.arc_machine[arc])
        if model.related(task) and (
            deciding.domain_counts.refusal(model.view.tasks[task], model.view.machines[machine].name) is not None
        ):
            continue
        option = deciding.option(task, priced[c], machine)
        deciding.book(task, option)
        price = float(network.arc_price[arc])
        least, second = cheapest[network.arc_class[arc], :2].tolist()
        runner_up = second if price == least else least
        deciding.origins[task] = Origin(PlanStage.NETWORK, len(deciding.passes), price, runner_up)
        booked.append((task, option))
    deciding.passes.append(Pass(network, solution, tuple(batch), tuple(booked), model.prices.goal_s))
    return tuple(booked)


def is_contested(network: PassNetwork, counts: Sequence[int]) -> bool:
    """Whether two tasks or more could take the same machine. ``counts``: tasks by class of the network."""
    tasks = np.array(counts, np.int64)[network.arc_class]
    return bool((np.bincount(network.arc_machine, tasks) > 1.5).any())


def _book_cheapest(deciding: Deciding, task: int, options: ClassOptions) -> tuple[tuple[int, PlacementOption], ...]:
    """What a pass does in ablations: the task takes its cheapest option, with the same order of ties and no network."""
    machine = deciding.cheapest(task, options)
    option = deciding.option(task, options, machine)
    deciding.book(task, option)
    others = np.delete(options.price, machine)
    price, runner_up = float(options.price[machine]), float(others.min(initial=FORBIDDEN))
    deciding.origins[task] = Origin(PlanStage.GREEDY, None, price, runner_up)
    return ((task, option),)
