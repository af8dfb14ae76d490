"""A part of a record restored: the same models, prices and decisions, so that more can be asked of them.

Nothing is solved or decided anew. A record whose numbers this flowsched cannot reproduce is not restored: its explanations
have only what the record itself holds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from functools import cached_property, wraps
from typing import Any, Concatenate, ParamSpec, TypeVar
from weakref import WeakKeyDictionary

from flowsched.cluster.settings import Settings
from flowsched.cluster.snapshot import Running, Task, by_machine
from flowsched.cluster.tasks_there import order_of
from flowsched.errors import RestoreError
from flowsched.inspector.re_solve import snapshot_of
from flowsched.inspector.record_view import Part, RecordView, option_of
from flowsched.inspector.running_changes import let_in
from flowsched.inspector.terms import POLICY
from flowsched.pricing.arrival import Arrival, Colocation
from flowsched.pricing.flow_prices import FlowPrices
from flowsched.round.assignment import Assignment, PlacementOption
from flowsched.round.demands import Levels
from flowsched.round.gang import Gangs
from flowsched.round.machine_states import MachineStates
from flowsched.round.reservation import OverdueDemands
from flowsched.round.round_model import RoundModel
from flowsched.round.round_record import rebuild_model
from flowsched_models.document import InputError

P = ParamSpec("P")
T = TypeVar("T")
_SAME = 1e-6
"""How far a cost may be from the record's, relative to 1 or to itself."""


@dataclass(frozen=True, eq=False)
class RestoredRound:
    """The prices and constraints that a round ended with, and what it made of them."""

    model: RoundModel
    settings: Settings
    plan: Assignment
    """The plan that passes and improvement ended with."""
    decided: Assignment
    """What became of it: what starts now, and what is planned for later; as if nothing were preempted."""
    overdue: OverdueDemands
    gangs: Gangs
    levels: Levels
    """At each task's own goal: who is overdue, and when."""

    @cached_property
    def task_number(self) -> Mapping[str, int]:
        """Index of every pending task."""
        return {task.name: t for t, task in enumerate(self.model.view.tasks)}

    @cached_property
    def machine_number(self) -> Mapping[str, int]:
        """Index of every machine that the round looked at."""
        return {machine.name: m for m, machine in enumerate(self.model.view.machines)}

    @cached_property
    def group_number(self) -> Mapping[str, int]:
        """Group of every machine, also of those that the round left out because they were like others."""
        view = self.model.view
        found = {machine.name: g for machine, g in zip(view.machines, view.group_of, strict=True)}
        return found | {name: g for g, group in enumerate(view.groups) for name in group.spares}

    @cached_property
    def follows_plan(self) -> bool:
        """Whether everything was decided as the plan says: nothing was repaired, no idle machine began early."""
        return self.plan.options == self.decided.options

    def overdue_age_s(self, name: str) -> float:
        """After how many seconds of waiting a pending task is overdue."""
        return self.levels.overdue_age_s(self.task_number[name])

    def task(self, name: str) -> Task:
        """A pending task."""
        return self.model.view.tasks[self.task_number[name]]

    def arrivals(self, machine: int) -> list[tuple[Arrival, str]]:
        """Tasks that start on a machine or are planned for it, in the order of its co-location, with names."""
        view = self.model.view
        found = []
        for t in self.decided.on(machine):
            option = self.decided.options[t]
            assert option is not None, "it is on the machine"
            found.append((Arrival(view.class_of[t], *option[1:]), view.tasks[t].name))
        return sorted(found)

    def planned_s(self, task: int) -> tuple[float, float] | None:
        """In how many seconds a pending task that has a place is forecast to be bound there, and to end."""
        option, model = self.decided.options[task], self.model
        assert option is not None, "it has a place"
        colocation = self.decided.colocation(option.machine)
        found = model.prices.forecast(model.view.group_of[option.machine], colocation)
        arrival = Arrival(model.view.class_of[task], *option[1:])
        member = colocation.index(arrival)
        return None if found is None else (found.starts_s[member], found.arrivals_s[member])

    def colocation(self, machine: str) -> Colocation:
        """The arriving tasks of a machine, by its name; none on one that the round left out."""
        number = self.machine_number.get(machine)
        return () if number is None else self.decided.colocation(number)

    def residents(self, machine: str) -> tuple[Running, ...]:
        """What runs on a machine, in the order of its group's residents."""
        now_s = self.model.view.snapshot.now_s
        return tuple(sorted(self._running_on.get(machine, ()), key=lambda r: order_of(r, r.progress, now_s)))

    @contextmanager
    def states_without(self, task: int) -> Iterator[MachineStates]:
        """All machines with what starts there or is planned, one task left out."""
        option, states = self.decided.options[task], self.states
        if option is not None:
            states.plan(option.machine, self.decided.colocation(option.machine, without=task))
        try:
            yield states
        finally:
            if option is not None:
                states.plan(option.machine, self.decided.colocation(option.machine))

    @cached_property
    def states(self) -> MachineStates:
        """All machines with what starts there or is planned; not to be changed."""
        states = MachineStates(self.model.prices)
        for m in self.decided.arrived():
            states.plan(m, self.decided.colocation(m))
        return states

    @cached_property
    def _running_on(self) -> Mapping[str, list[Running]]:
        return by_machine(self.model.view.snapshot.running)


def remembered(find: Callable[Concatenate[RestoredRound, P], T]) -> Callable[Concatenate[RestoredRound, P], T]:
    """Keep what is found for as long as its round is there: much is the same for all of its tasks."""
    known: WeakKeyDictionary[RestoredRound, dict[Any, T]] = WeakKeyDictionary()

    @wraps(find)
    def ask(opened: RestoredRound, /, *args: P.args, **kwargs: P.kwargs) -> T:
        found = known.setdefault(opened, {})
        if args not in found:
            found[args] = find(opened, *args, **kwargs)
        return found[args]

    return ask


_RESTORED: WeakKeyDictionary[Part, RestoredRound] = WeakKeyDictionary()
"""Parts that have been restored: questions about one task are often followed by some about the next."""


def restore(recorded: RecordView, part: Part) -> RestoredRound:
    """A part of a round of flow, restored. Raises :class:`RestoreError`."""
    found = _RESTORED.get(part)
    if found is None:
        found = _RESTORED[part] = _restore(recorded, part)
    return found


def _restore(recorded: RecordView, part: Part) -> RestoredRound:
    if recorded.policy != POLICY:
        raise RestoreError(f"its policy, {recorded.policy}, is not known here")
    try:
        snapshot = snapshot_of(recorded, part)
        known = {f.name for f in fields(Settings)}
        settings = Settings(**{k: v for k, v in recorded.settings.items() if k in known})
    except InputError as error:
        raise RestoreError(f"the record {error.problems[0].message}") from None
    except (TypeError, ValueError) as error:
        raise RestoreError(f"the settings cannot be read ({error})") from None
    goal_s = part.forecast.get("goal_s")
    model = rebuild_model(snapshot, settings, goal_s)
    plan = _plan(model, part)
    # Overdue tasks and gangs were settled before the passes of their level, at each task's own goal.
    own = model if goal_s is None else replace(model, prices=FlowPrices(model.forecasts, settings))
    levels = Levels(own, settings)
    demands = levels.settled(plan)
    model = demands.on(model)
    restored = RestoredRound(model, settings, plan, _decided(model, part, plan), demands.overdue, demands.gangs, levels)
    _check(restored, part)
    return restored


def _plan(model: RoundModel, part: Part) -> Assignment:
    number = {machine.name: m for m, machine in enumerate(model.view.machines)}
    planned = part.planned.items()
    return _assignment(model, {task: PlacementOption(_known(number, at[0]), *at[1:]) for task, at in planned})


def _decided(model: RoundModel, part: Part, plan: Assignment) -> Assignment:
    view = model.view
    options: dict[str, PlacementOption | None] = {}
    number = {machine.name: m for m, machine in enumerate(view.machines)}
    planned = {task.name: option for task, option in zip(view.tasks, plan.options, strict=True)}
    taken = let_in(part)
    for p in part.placements:
        if p.task in taken:
            options[p.task] = planned[p.task]
            continue
        assert p.width_milli is not None, "parts of flow have the width of every placement"
        machine = _known(number, p.machine)
        # Whether it may use the services' cores shows in the cores that it was given.
        shared = p.cores != view.groups[view.group_of[machine]].batch_cores
        options[p.task] = PlacementOption(machine, 0, p.width_milli, shared)
    for w in part.waiting:
        own = planned.get(w.task)
        if w.planned is None and own is not None and own.start_after == 0 and "preemptions" in part.plain:
            options[w.task] = own  # a higher priority took its place when the passes were over
        later = None if w.planned is None else option_of(w.planned)
        if later is not None:
            found = PlacementOption(_known(number, later[0]), *later[1:])
            options[w.task] = own if own is not None and own[:3] == found[:3] else found
    return _assignment(model, options)


def _assignment(model: RoundModel, options: Mapping[str, PlacementOption | None]) -> Assignment:
    view = model.view
    return Assignment([options.get(t.name) for t in view.tasks], view.class_of, len(view.machines))


def _known(number: Mapping[str, int], machine: str) -> int:
    if machine not in number:
        raise RestoreError(f"the record places a task on {machine}, which its snapshot does not lead to")
    return number[machine]


def _check(restored: RestoredRound, part: Part) -> None:
    """Whether the models predict what they predicted when the record was made."""
    model, decided = restored.model, restored.decided
    taken = let_in(part)
    for placed in part.placements:
        if placed.task not in restored.task_number:
            raise RestoreError(f"the record places {placed.task}, which its snapshot does not have")
        if placed.task in taken:
            continue
        t = restored.task_number[placed.task]
        option = decided.options[t]
        assert option is not None, "it is placed"
        colocation = decided.colocation(option.machine)
        member = colocation.index(Arrival(model.view.class_of[t], *option[1:]))
        terms = model.prices.machine_terms(model.view.group_of[option.machine], colocation, member)
        if not _same(sum(terms.values()), placed.cost):
            raise RestoreError("the models of this flowsched predict other costs than the record has")
    for waits in part.waiting:
        if waits.planned is not None or waits.cost is None or waits.task not in restored.task_number:
            continue
        if not _same(model.waiting(restored.task_number[waits.task]), waits.cost):
            raise RestoreError("the models of this flowsched predict other costs than the record has")


def _same(a: float, b: float) -> bool:
    return abs(a - b) <= _SAME * max(1.0, abs(b))
