"""The round as one solved network: every task, every place that it could have, and the flow that was decided.

::

    task    --price of the option--> cores:m/w -> cores:m/v -> ... -> machine:m -> sink    starts now, at width w > v
    task    --price of the option--> later:m/k ---------------------> machine:m -> sink    starts after k completions
    task    --price of waiting-----> unscheduled ---------------------------------> sink
    running --0, it stays---------------------> machine:m -> sink

The price of an option is the exact change of the total if that task alone came there, with everything else as decided: its
own penalty, and what it does to that of its neighbours. The arc of the option that a task has costs what it costs where
it is. An arc is there only where its task really fits beside all that starts or is planned there.

``cores:m/w`` is the room of a machine for tasks of width w or more: as many as fit into its free cores, and none less than
single moves could bring there. So any set of starts that fits is a flow; what was decided is one.

**The decision is an optimal flow if, and only if, no single move gains.** If one gains, sending its task along that arc is a
cheaper flow: each capacity between there and the sink has room for it. If none gains, the decision sends each task along its
cheapest arc, and no flow is cheaper than that, with capacities or without. So swaps and exchanges do not gain here, where
prices are those of single moves.

For the same reason the *reduced cost* of an arc of a task is what it costs more than the decided one: node prices of 0, but
for each task what it costs where it is, prove the flow optimal, and the way through each arc has room. An arc that becomes
cheaper by less changes nothing; by more, and its task goes there.

Where single moves would gain (the improvement had a limit of forecasts, or a later stage changed its plan) the flow is still
what was decided. Its *distance* is what it costs more than an optimal flow, which the node prices are those of.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from weakref import WeakKeyDictionary

import numpy as np

from flowsched.errors import RestoreError
from flowsched.inspector.graph import Graph
from flowsched.inspector.record_view import Part, RecordView
from flowsched.inspector.restored_round import restore
from flowsched.inspector.round_options import MACHINES, PricedOption, RoundOptions
from flowsched.network.network import NetworkBuilder, term_columns
from flowsched.records.level_types import ForecastLevel
from flowsched.solvers import SOLVERS, make_solver
from flowsched_models.document import InputError

SAME = 1e-9
"""An option that is cheaper by no more than this is no gain, as in the improvement."""
_SOLVER = "ortools"


@dataclass(frozen=True, eq=False)
class RoundNetwork:
    """The network of a round, with the decision as its flow."""

    graph: Graph
    priced: bool = True
    """Whether its arcs are single moves around what was decided; not of a part that one network decided."""
    gaining: tuple[str, ...] = ()
    """Tasks that a single move would make cheaper."""
    why: str = ""
    """Why the round did not make such moves, as far as its record tells."""
    left_out: int = 0
    """Machines, task by task, that have no arc because there are too many."""
    cut_short: int = 0
    """Pricings of a class that the round's budget ended, so that some options were not forecast."""
    untried: int = 0
    """Moves and swaps that the improvement had not tried when its forecasts ended."""

    @property
    def distance(self) -> float:
        """What the decision costs more than an optimal flow; 0 where no single move gains."""
        return self.graph.distance

    def sentences(self) -> list[str]:
        """How far the decision is from the optimum, and what was left out."""
        if not self.priced:
            return []
        if self.gaining:
            count = len(self.gaining)
            tasks = "1 task" if count == 1 else f"{count:,} tasks"
            cost = f"{self.distance:.6g}"
            found = [
                f"distance {cost}: the decision costs {cost} more than an optimal flow; single moves of {tasks} would gain"
            ]
            if self.why:
                found.append(self.why)
        else:
            found = ["distance 0: the decision is an optimal flow, no single move gains"]
        if self.untried:
            found.append(
                f"forecasts left out: {self.untried:,} moves and swaps, as those of the improvement were used up"
            )
        if self.cut_short:
            found.append(f"forecasts left out: the round's budget ended {self.cut_short:,} pricings of a class")
        if self.left_out:
            found.append(f"arcs left out: {self.left_out:,}, beyond the {MACHINES} cheapest places of each task")
        return found


_MADE: WeakKeyDictionary[Part, RoundNetwork] = WeakKeyDictionary()
"""Parts whose network was made: page, exports and explanations ask for it."""


def round_network(recorded: RecordView, part: Part) -> RoundNetwork:
    """The network of a part of a record, made from what it holds; of a part that one network decided, that one.

    Raises :class:`RestoreError` for policies that solve no such network, and where the numbers cannot be reproduced.
    """
    found = _MADE.get(part)
    if found is None:
        if part.by_forecasts:
            options = RoundOptions(part, restore(recorded, part))
            found = _Maker(part.forecast, options, recorded.solver).make()
        else:
            found = RoundNetwork(part.first, priced=False)
        _MADE[part] = found
    return found


def round_network_or_none(recorded: RecordView, part: Part) -> RoundNetwork | None:
    """The same; None where there is none, or where a record lacks what its prices need."""
    try:
        return round_network(recorded, part)
    except (RestoreError, InputError, ArithmeticError, LookupError, TypeError, ValueError):
        return None


@dataclass(frozen=True)
class _Arc:
    """An option as an arc to be: from the node of a set of tasks."""

    node: int
    size: int
    """Tasks of the set."""
    option: PricedOption
    flow: int
    back: int
    """Of the tasks of the set, how many start at the same place now: if one moves within it, there is one less."""
    back_milli: int
    """Their width."""
    cost: float


class _Maker:
    """Nodes and arcs of a round of flow."""

    def __init__(self, plain: ForecastLevel, options: RoundOptions, solver: str) -> None:
        self.plain, self.options, self.solver = plain, options, solver
        self.view = options.view
        self.builder = NetworkBuilder()
        self.members: dict[int, tuple[str, ...]] = {}
        self.flow: dict[int, int] = {}
        """By arc, where there is any."""
        self.columns: dict[int, PricedOption] = {}
        self.room: list[list[int]] = [[] for _ in options.places]
        """By place the arcs into its node ``machine``."""

    def make(self) -> RoundNetwork:
        """The network, its flow, and an optimal one where that is another."""
        sink, unscheduled = self._node("sink"), self._node("unscheduled")
        machines = [self._node("machine", place.names) for place in self.options.places]
        arcs: list[list[_Arc]] = [[] for _ in machines]
        waiting, gaining = 0, list[str]()
        for options in self.options.of_tasks():
            names, size, own = [self.view.tasks[t].name for t in options.tasks], len(options.tasks), options.cost
            node, decided = self._node("task", names, size), options.decided
            prices = [option.price for option in options.others]
            if options.waiting is not None:
                price, terms = options.waiting
                prices.append(price)
                self._arc(node, unscheduled, size, _snapped(price, own), size if decided is None else 0, terms)
                waiting += size if decided is None else 0
            if min(prices, default=own) < own - SAME:
                gaining += names
            starts = decided is not None and decided.start_after == 0
            for option in (*([] if decided is None else [decided]), *options.others):
                within = starts and decided is not None and option.place == decided.place and option.own
                back, width = (size, decided.width_milli) if within and decided is not None else (0, 0)
                flow = size if option is decided else 0
                arcs[option.place].append(_Arc(node, size, option, flow, back, width, _snapped(option.price, own)))
        for p, machine in enumerate(machines):
            self._cores(p, machine, [arc for arc in arcs[p] if arc.option.start_after == 0])
            self._later(p, machine, [arc for arc in arcs[p] if arc.option.start_after > 0])
        waiting += self._running(machines, unscheduled)
        for p, machine in enumerate(machines):
            flow = sum(self.flow.get(arc, 0) for arc in self.room[p])
            self._arc(machine, sink, sum(self.builder.capacity(arc) for arc in self.room[p]), 0.0, flow)
        self._arc(unscheduled, sink, sum(supply for supply in self.builder.supplies if supply > 0), 0.0, waiting)
        return RoundNetwork(
            self._graph(sink, bool(gaining)),
            gaining=tuple(gaining),
            why=self._why() if gaining else "",
            left_out=self.options.left_out,
            cut_short=int(self.plain["counts"].get("cut_short", 0)),
            untried=int(self.plain["counts"].get("untried", 0)),
        )

    def _why(self) -> str:
        settings, opened = self.options.opened.settings, self.options.opened
        if self.plain.get("goal_s") is not None:
            return "for a makespan the plan that ends first is kept, whatever single moves would save"
        if not opened.follows_plan:
            return "a stage after the improvement changed its plan"
        if len(self.view.tasks) > settings.improved_tasks:
            return f"no improvement follows the passes of more than {settings.improved_tasks} waiting tasks"
        if self.plain["counts"].get("untried") or not self.plain["counts"].get("cut_short"):
            return "the improvement ended before it had tried all moves, or these do not go together"
        return "the passes did not forecast all options, and no improvement followed"

    def _node(self, kind: str, names: Sequence[str] = (), supply: int = 0, after: str = "") -> int:
        node = self.builder.node(f"{kind}:{names[0]}{after}" if names else kind, supply)
        if len(names) > 1 or after:
            self.members[node] = tuple(names)
        return node

    def _arc(
        self, tail: int, head: int, capacity: int, cost: float, flow: int, terms: Mapping[str, float] | None = None
    ) -> int:
        arc = self.builder.arc(tail, head, capacity, cost, terms=terms)
        if flow:
            self.flow[arc] = flow
        return arc

    def _option_arcs(self, arcs: Sequence[_Arc], heads: Mapping[int, int]) -> None:
        """The arcs of tasks to nodes by the width that they lead to."""
        for arc in arcs:
            head = heads[arc.option.width_milli]
            made = self._arc(arc.node, head, arc.size, arc.cost, arc.flow, arc.option.terms)
            self.columns[made] = arc.option

    def _cores(self, p: int, machine: int, arcs: Sequence[_Arc]) -> None:
        """The room of a place for tasks that start now, a node for every width, wide ones first."""
        place = self.options.places[p]
        free_milli = self.view.groups[place.group].free_milli
        widths = sorted({arc.option.width_milli for arc in arcs})
        heads = {w: self._node("cores", place.names, after=f"/{w}m") for w in reversed(widths)}
        self._option_arcs(arcs, heads)
        for i, w in enumerate(widths):
            flow = sum(arc.flow for arc in arcs if arc.option.width_milli >= w)
            # One more than stays of those that are there, for each task that could come.
            wide = [arc for arc in arcs if arc.option.width_milli >= w]
            most = max((flow - (1 if arc.back and arc.back_milli >= w else 0) + 1 for arc in wide), default=0)
            capacity = max(len(place.names) * max(0, free_milli // max(1, w)), most, flow)
            head = heads[widths[i - 1]] if i else machine
            made = self._arc(heads[w], head, capacity, 0.0, flow)
            if head == machine:
                self.room[p].append(made)

    def _later(self, p: int, machine: int, arcs: Sequence[_Arc]) -> None:
        """A node for each number of completions to wait for: as many tasks as its cores could have."""
        place = self.options.places[p]
        milli = self.view.groups[place.group].machine.cpu_milli
        for after in sorted({arc.option.start_after for arc in arcs}):
            those = [arc for arc in arcs if arc.option.start_after == after]
            node = self._node("later", place.names, after=f"/{after}")
            self._option_arcs(those, {arc.option.width_milli: node for arc in those})
            flow = sum(arc.flow for arc in those)
            narrowest = min(arc.option.width_milli for arc in those)
            capacity = max(len(place.names) * (milli // max(1, narrowest)), flow + 1)
            self.room[p].append(self._arc(node, machine, capacity, 0.0, flow))

    def _running(self, machines: Sequence[int], unscheduled: int) -> int:
        """What runs already stays, but for what the round preempted or moved; how many wait again."""
        place_of = {name: p for p, place in enumerate(self.options.places) for name in place.names}
        preempted = {change["task"] for change in self.plain.get("preemptions", ())}
        moved = {change["task"]: change["machine"] for change in self.plain.get("moves", ())}
        stay: dict[int, list[str]] = {}
        for running in self.view.snapshot.running:
            name = running.task.name
            if name in preempted:
                self._arc(self._node("running", [name], 1), unscheduled, 1, 0.0, 1)
            elif moved.get(name, running.machine) in place_of:
                target = place_of[moved.get(name, running.machine)]
                if name in moved:
                    self.room[target].append(self._arc(self._node("running", [name], 1), machines[target], 1, 0.0, 1))
                else:
                    stay.setdefault(target, []).append(name)
        for p, names in sorted(stay.items()):
            node = self._node("running", names, len(names))
            self.room[p].append(self._arc(node, machines[p], len(names), 0.0, len(names)))
        return len(preempted)

    def _graph(self, sink: int, gains: bool) -> Graph:
        network = self.builder.build(sink)
        count = network.arc_count
        flow = np.zeros(count, np.int64)
        flow[list(self.flow)] = list(self.flow.values())
        columns = {name: np.full(count, -1, np.int64) for name in ("slot", "width_milli")}
        columns["own"] = np.zeros(count, np.int64)
        for arc, option in self.columns.items():
            columns["slot"][arc], columns["width_milli"][arc] = option.start_after, option.width_milli
            columns["own"][arc] = option.own
        best, proof = None, None
        if not gains:
            chosen = np.flatnonzero(flow)
            proof = np.zeros(len(network.supplies), np.int64)
            proof[network.tails[chosen]] = -network.unit_costs[chosen]
        else:
            name = self.solver if self.solver in SOLVERS else _SOLVER
            best = make_solver(name).solve(network).flow
        assert not isinstance(network.terms, Mapping), "the builder has them arc by arc"
        return Graph(
            network.tails,
            network.heads,
            network.capacities,
            network.unit_costs,
            network.supplies,
            network.cost_scale,
            network.nodes,
            terms=term_columns(network.terms),
            units=np.asarray(network.units, np.int64),
            flow=flow,
            columns=columns,
            members=self.members,
            best=best,
            proof=proof,
        )


def _snapped(price: float, own: float) -> float:
    """A price that is below that of the decision by a rounding error only is the same."""
    return own if own - SAME <= price < own else price
