"""Every option that a task of a restored round could have, with everything else placed as decided."""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from flowsched.inspector.record_view import Part
from flowsched.inspector.restored_round import RestoredRound
from flowsched.inspector.running_changes import let_in
from flowsched.pricing.arrival import Arrival, Colocation, joined
from flowsched.pricing.flow_prices import FORBIDDEN
from flowsched.round.assignment import PlacementOption
from flowsched.round.options import UNBOUNDED, Options
from flowsched.round.passes import MANY_TASKS

MACHINES = 60
"""Up to so many machines are places of their own, and each task has options on all that could take it; of more, equal ones
are one place, and a task has options on its so many cheapest places."""
_STEP = 1e-12


@dataclass(frozen=True)
class RoundPlace:
    """A machine, or machines on which every option of a task that is not there has the same price."""

    names: tuple[str, ...]
    numbers: tuple[int, ...]
    """In the view of the round; spare machines of a group have none."""
    group: int
    colocation: Colocation
    """What starts or is planned on each of them."""


@dataclass(frozen=True)
class PricedOption:
    """An option of a task, with the exact change of the total if the task came there."""

    place: int
    own: bool
    """Whether it is on the machine that the task was given; if not, on another one of the place."""
    start_after: int
    width_milli: int
    price: float
    terms: Mapping[str, float]
    """They add up to the price."""


@dataclass(frozen=True)
class TaskOptions:
    """Equal tasks with the same decision, and all that each could have instead."""

    tasks: tuple[int, ...]
    """Of the view."""
    decided: PricedOption | None
    """None for tasks that wait without a place."""
    others: tuple[PricedOption, ...]
    waiting: tuple[float, Mapping[str, float]] | None
    """What waiting costs, with terms; None for tasks that must start."""

    @property
    def cost(self) -> float:
        """What the decision costs."""
        if self.decided is not None:
            return self.decided.price
        assert self.waiting is not None, "it waits"
        return self.waiting[0]


class RoundOptions:
    """The options of all tasks of a round."""

    def __init__(self, part: Part, opened: RestoredRound) -> None:
        """Nothing is priced yet."""
        self.part, self.opened = part, opened
        self.model, self.plan, self.view = opened.model, opened.decided, opened.model.view
        self.let_in = let_in(part)
        self.taken_back = {change["task"] for change in part.forecast.get("taken_back", ())}
        self.left_out = 0
        """Machines, task by task, that have no option because there are too many places."""

    @cached_property
    def places(self) -> list[RoundPlace]:
        """Machines one by one; of a large cluster those together that are equal as decided."""
        view, plain = self.view, self.part.forecast
        changed = {c["machine"] for key in ("preemptions", "taken_back", "moves") for c in plain.get(key, ())}  # type: ignore[attr-defined]
        changed |= {c["source"] for c in plain.get("moves", ())}
        changed |= {p.machine for p in self.part.placements if p.task in self.let_in}
        sets: dict[tuple[int, Colocation, int | None], list[int]] = {}
        for m, machine in enumerate(view.machines):
            alone = m if m in self.model.holds or machine.name in changed else None
            sets.setdefault((view.group_of[m], self.plan.colocation(m), alone), []).append(m)
        found = [
            RoundPlace(tuple(view.machines[m].name for m in numbers), tuple(numbers), group, colocation)
            for (group, colocation, _), numbers in sets.items()
        ]
        found += [RoundPlace(group.spares, (), g, ()) for g, group in enumerate(view.groups) if group.spares]
        if sum(group.size for group in view.groups) > MACHINES:
            return found
        number = self.opened.machine_number
        return [
            RoundPlace((name,), (number[name],) if name in number else (), place.group, place.colocation)
            for place in found
            for name in place.names
        ]

    def of_tasks(self) -> Iterator[TaskOptions]:
        """Of every set of equal tasks with the same decision its options, in the order of the view."""
        if len(self.places) <= MACHINES:
            self._price_ahead()
        sets: dict[Hashable, list[int]] = {}
        for t, here in enumerate(self.plan.options):
            name = self.view.tasks[t].name
            single = name in self.let_in or name in self.taken_back or self.model.related(t)
            place = None if here is None else (self._place_of[here.machine], *here[1:])
            key = (
                self.view.class_of[t],
                place,
                t in self.model.must_start,
                t in self.model.barred,
                t if single else None,
            )
            sets.setdefault(key, []).append(t)
        for tasks in sets.values():
            yield self._of(tuple(tasks))

    def _price_ahead(self) -> None:
        """Forecast all classes on a place at once: one by one most of the time goes into the calls."""
        model, classes = self.model, range(len(self.view.classes))
        for group, colocation in dict.fromkeys((place.group, place.colocation) for place in self.places):
            arrivals = [
                Arrival(c, k, *way)
                for c in classes
                for way in model.offered.of(model.forecasts.ways(group, c))
                for k in range(model.starts)
            ]
            model.prices.machine_costs(group, [joined(colocation, arrival) for arrival in arrivals])

    def _of(self, tasks: tuple[int, ...]) -> TaskOptions:
        view, model, task = self.view, self.model, tasks[0]
        name, c = view.tasks[task].name, view.class_of[task]
        terms = model.prices.waiting_terms(c)
        waiting = sum(terms.values()), terms
        decided, fixed = self._decided(task)
        others: list[PricedOption] = []
        if not fixed:
            places, left_out = self._wanted(c, None if decided is None else decided.place)
            others += self._others(task, decided, places)
            self.left_out += left_out * len(tasks)
        if decided is None or name in self.taken_back:
            return TaskOptions(tasks, None, tuple(others), waiting)
        may_wait = task not in model.must_start and not fixed and math.isfinite(waiting[0])
        return TaskOptions(tasks, decided, tuple(others), waiting if may_wait else None)

    def _decided(self, task: int) -> tuple[PricedOption | None, bool]:
        """The option that a task was given; whether others that start later count on it, so that no other has a price."""
        name, here = self.view.tasks[task].name, self.plan.options[task]
        if name in self.let_in:
            placed = next(p for p in self.part.placements if p.task == name)
            assert placed.width_milli is not None, "parts of flow have the width of every placement"
            place = self._place_of[self.opened.machine_number[placed.machine]]
            return PricedOption(place, True, 0, placed.width_milli, placed.cost, placed.terms), False
        if here is None:
            return None, False
        leaving, terms = self.model.leaving(self.plan, task), self._terms(task, here)
        fixed = not math.isfinite(leaving)
        price = sum(terms.values()) if fixed else leaving
        return PricedOption(self._place_of[here.machine], True, *here[1:3], price, terms), fixed

    def _others(self, task: int, decided: PricedOption | None, places: Iterable[int]) -> Iterator[PricedOption]:
        """All options on the machine where the task is, and elsewhere the cheapest one of every start."""
        here, name = self.plan.options[task], self.view.tasks[task].name
        own = None if decided is None else decided.place
        if here is not None and name not in self.let_in and name not in self.taken_back:
            for price, option in self.model.offers(self.plan, task, here.machine):
                if price < FORBIDDEN and option != here and self._orderly(task, option):
                    yield PricedOption(own or 0, True, *option[1:3], price, self._terms(task, option))
        gone = name in self.let_in or name in self.taken_back
        known: dict[Hashable, list[PricedOption]] = {}
        for p in places:
            place = self.places[p]
            machine = next((m for m in place.numbers if here is None or m != here.machine), None)
            if (machine is None and place.numbers) or (gone and p == own):
                continue
            # Domains of relations tell the machines of a group apart.
            alone = p if self.model.related(task) or machine in self.model.holds else None
            key = (place.group, place.colocation, alone, machine in self._closed(task))
            if key not in known:
                known[key] = list(self._cheapest(task, p, machine))
            yield from (replace(option, place=p) for option in known[key])

    def _cheapest(self, task: int, p: int, machine: int | None) -> Iterator[PricedOption]:
        """The cheapest option of every start on a machine; None: a spare one."""
        place, best = self.places[p], dict[int, tuple[float, PlacementOption]]()
        offers = self._on_spare(task, place) if machine is None else self.model.offers(self.plan, task, machine)
        if machine is not None and machine in self._closed(task):
            return
        later = not self._crowded(place)
        for price, option in offers:
            least = best[option.start_after][0] if option.start_after in best else FORBIDDEN
            possible = price < least - _STEP and (later or option.start_after == 0)
            if possible and (machine is None or self._orderly(task, option)):
                best[option.start_after] = price, option
        for price, option in best.values():
            terms = self._group_terms(task, place.group, place.colocation, option)
            yield PricedOption(p, False, *option[1:3], price, terms)

    def _on_spare(self, task: int, place: RoundPlace) -> Iterator[tuple[float, PlacementOption]]:
        """As :meth:`RoundModel.offers`, of a machine that the round did not need to look at."""
        model, c = self.model, self.view.class_of[task]
        if task in model.barred or (model.related(task) and self._refused(task, place.names[0])):
            return
        late = 1 if task in model.must_start else model.starts
        ways = model.offered.of(model.forecasts.ways(place.group, c))
        base = model.prices.machine_cost(place.group, ())
        for option in (PlacementOption(-1, k, *way) for k in range(late) for way in ways):
            yield model.prices.machine_cost(place.group, (Arrival(c, *option[1:]),)) - base, option

    def _refused(self, task: int, machine: str) -> bool:
        view = self.view
        others = ((t, o.machine) for t, o in enumerate(self.plan.options) if o is not None and t != task)
        return view.counted_with(others).refusal(view.tasks[task], machine) is not None

    def _orderly(self, task: int, option: PlacementOption) -> bool:
        """Whether relations let the tasks come in some order once the task has moved."""
        if not self.model.related(task):
            return True
        moved = self.plan.copy()
        moved.move(task, option)
        return self.model.orderly(moved)

    def _terms(self, task: int, option: PlacementOption) -> Mapping[str, float]:
        others = self.plan.colocation(option.machine, without=task)
        return self._group_terms(task, self.view.group_of[option.machine], others, option)

    def _group_terms(self, task: int, group: int, others: Colocation, option: PlacementOption) -> Mapping[str, float]:
        arrival = Arrival(self.view.class_of[task], *option[1:])
        colocation = joined(others, arrival)
        return dict(self.model.prices.machine_terms(group, colocation, colocation.index(arrival)))

    # --- what the round does not look at ---

    @cached_property
    def _place_of(self) -> Mapping[int, int]:
        return {m: p for p, place in enumerate(self.places) for m in place.numbers}

    def _crowded(self, place: RoundPlace) -> bool:
        """Whether a round plans no further later start there."""
        there = len(self.view.groups[place.group].running) + len(place.colocation)
        planned = any(arrival.start_after for arrival in place.colocation)
        return self.model.prices.goal_s is None and there >= MANY_TASKS and planned

    def _closed(self, task: int) -> frozenset[int]:
        """Machines for which a higher level has planned later starts: lower levels leave them alone."""
        return self._closed_below[self.opened.levels.level_of(task)]

    @cached_property
    def _closed_below(self) -> Mapping[float, frozenset[int]]:
        levels = [self.opened.levels.level_of(t) for t in range(len(self.view.tasks))]
        later = [(level, o.machine) for level, o in zip(levels, self.plan.options, strict=True) if o and o.start_after]
        return {own: frozenset(m for level, m in later if level > own) for own in set(levels)}

    def _wanted(self, c: int, own: int | None) -> tuple[Sequence[int], int]:
        """Places on which a class is priced, and how many machines are left out that could take it."""
        if len(self.places) <= MACHINES:
            return range(len(self.places)), 0
        order, could = self._ranked[c]
        chosen = dict.fromkeys([*order[:MACHINES], *([] if own is None else [own])])
        return sorted(chosen), could - sum(len(self.places[p].names) for p in order if p in chosen)

    @cached_property
    def _ranked(self) -> list[tuple[list[int], int]]:
        """By class the places that could take it, the cheapest first, and how many machines those are."""
        model, view = self.model, self.view
        classes = range(len(view.classes))
        group_of = np.array(view.group_of, np.int64)
        now = np.array([view.roomy(cls.task)[group_of] for cls in view.classes], np.bool_)
        later = np.array([view.large_enough(cls.task, cls.task.widths_milli[0])[group_of] for cls in view.classes])
        options = Options(self.opened.states, model.starts, UNBOUNDED.forecasts, model.offered)
        found = options.of(classes, now, later & (model.starts > 1), MACHINES, UNBOUNDED)
        first = [place.numbers[0] if place.numbers else view.groups[place.group].members[0] for place in self.places]
        ranked = []
        for each in found:
            price = each.price[first]
            able = np.flatnonzero(np.isfinite(price))
            order = able[np.argsort(price[able], kind="stable")].tolist()
            ranked.append((order, sum(len(self.places[p].names) for p in order)))
        return ranked
