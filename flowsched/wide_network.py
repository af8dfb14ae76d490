"""The network of a wide round: classes to groups of machines that cost them the same, through width tiers to the sink.

    class [-> domain] --price--> (group, tier w) -> (group, next narrower tier) -> ... -> group --crowding--> sink
    class --waiting--> unscheduled -> sink

Flow is counted in units of CPU (the greatest common divisor of all widths); tasks that ask for no CPU are one unit each and
have an arc of their own into the sink. Newcomers pay for each other by crowding, in steps: the price of a further unit
rises with the units that a machine of the group has got, so equal machines fill evenly and dearer groups take over when
it pays. Classes that spread over domains, or are limited there, pass a node for each domain that takes so many at most.
A flow may split a task over groups; it is a guide, and packing is exact.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from flowsched.arrays import BoolArray, FloatArray, IntArray
from flowsched.fleet import FIXED
from flowsched.network import Network
from flowsched.wide_board import CPU, TIE, UNLIMITED, Board, WideClass

BUCKET = 0.01
"""Prices of one group differ by no more than this, unless there would be too many groups."""
MAX_ARCS = 20_000
"""Groups are made coarser when classes times groups would pass this."""
MAX_TIERS = 6
STEPS = 10
"""Crowding steps of a group; the last one is endless."""
SCALE_BITS = 36
"""Costs are scaled to at most this many bits: solvers take 38."""
TOTAL_BITS = 60
"""Bits of the largest cost of a whole flow."""


@dataclass(frozen=True, eq=False)
class WideNetwork:
    """The network with what is needed to read a flow back and to prove a bound."""

    network: Network
    group_of: IntArray
    """Group of each machine."""
    groups: int
    unit: int
    """Milli-CPU of one unit of flow."""
    counts: IntArray
    """Tasks of each class that it places; 0 for classes that take no part."""
    units: IntArray
    """Units of one task of each class."""
    task_widths: tuple[int, ...]
    """Milli-CPU of one task of each class."""
    waiting: FloatArray
    """Cost of leaving one task, by class. What is dearer than any place could be is priced only so much: it changes no
    decision, and costs stay in a range that can be solved exactly."""
    arc_class: IntArray
    """Class of each of the first arcs, which run from classes to groups."""
    arc_group: IntArray
    widths: tuple[int, ...]
    """The least width of every tier, widest first."""
    domains: int
    """Domains that take only so many of a class."""

    @property
    def class_arcs(self) -> int:
        """How many arcs run from classes to groups."""
        return len(self.arc_class)

    def whole_tasks(self, flow: IntArray) -> IntArray:
        """Tasks by class and group: the flow floored, and the parts of tasks that a class is left with made whole.

        They go where the largest parts were; packing puts back what has no room there.
        """
        counts = np.zeros((len(self.counts), self.groups), dtype=np.int64)
        if not self.class_arcs:
            return counts
        flow = flow[: self.class_arcs]
        units = self.units[self.arc_class]
        tasks = flow // units
        part = flow - tasks * units
        whole = np.bincount(self.arc_class, weights=part, minlength=len(self.counts)) // self.units
        order = np.lexsort((-part, self.arc_class))
        first = np.searchsorted(self.arc_class, self.arc_class)
        rank = np.empty(self.class_arcs, dtype=np.int64)
        rank[order] = np.arange(self.class_arcs) - first[order]
        tasks += (rank < whole[self.arc_class]) & (part > 0)
        counts[self.arc_class, self.arc_group] = tasks
        return counts

    def sizes(self) -> dict[str, int]:
        """Nodes and arcs by kind, classes and groups."""
        classes = int(np.count_nonzero(self.counts))
        tiers = self.groups * len(self.widths)
        others = self.class_arcs + tiers + 2 * classes + 2 * self.domains
        return {
            "classes": classes,
            "groups": self.groups,
            "nodes_class": classes,
            "nodes_domain": self.domains,
            "nodes_tier": tiers,
            "nodes_group": 2 * self.groups,
            "nodes_unscheduled": classes,
            "nodes_sink": 1,
            "arcs_class": self.class_arcs,
            "arcs_domain": 2 * self.domains,
            "arcs_tier": tiers,
            "arcs_crowding": self.network.arc_count - others,
            "arcs_unscheduled": 2 * classes,
        }


def whole_slots(board: Board, cls: WideClass, joined: frozenset[str]) -> IntArray:
    """Tasks of a class that each machine may take as things stand, relations as far as they are a matter of one machine.

    Never too few, whatever else this round places: what relations in ``joined`` refuse now they may allow later.
    """
    slots = np.minimum(board.room(cls), board.bearable(cls))
    for gate in board.gates(cls):
        if gate.widens and gate.topology.relation.name in joined:
            continue
        if gate.counts:
            np.minimum(slots, gate.room(UNLIMITED), out=slots)
        elif not gate.widens:
            slots[~gate.open_machines()] = 0
    return slots


def build_wide_network(board: Board, left: Sequence[int], explain: bool = False) -> WideNetwork:
    """The network for ``left[c]`` tasks of each class. ``explain``: with the names and cost terms that a record keeps."""
    counts = np.array(left, dtype=np.int64)
    classes = [cls for cls in board.classes if counts[cls.index]]
    prices = {cls.index: board.price(cls) for cls in classes}
    group_of, groups = group_machines(board, classes, prices)
    unit = math.gcd(*(cls.width for cls in classes)) or 1
    units = np.array([max(1, cls.width // unit) for cls in board.classes], dtype=np.int64)
    width_of = np.array([cls.width for cls in board.classes], dtype=np.int64)
    widths = _tier_widths({cls.width for cls in classes if cls.width})
    present = np.array([cls.index for cls in classes], dtype=np.int64)
    offers = _offers(board, classes, counts, prices, group_of, groups, explain)

    nodes = _Nodes()
    sink = int(nodes.add(1)[0])
    class_node = np.zeros(len(board.classes), dtype=np.int64)
    class_node[present] = nodes.add(len(present))
    waiting_node = nodes.add(len(present))
    tier_node = nodes.add(groups * len(widths)).reshape(groups, len(widths))
    gate_node = nodes.add(groups)
    bare_node = nodes.add(groups)
    domain_node = nodes.add(len(offers.domain_class))

    tier_of = np.zeros(len(board.classes), dtype=np.int64)
    for t in reversed(range(len(widths))):
        tier_of[width_of >= widths[t]] = t
    entry = bare_node[offers.group]
    if widths:
        entry = np.where(width_of[offers.task_class] == 0, entry, tier_node[offers.group, tier_of[offers.task_class]])
    tails = class_node[offers.task_class]
    tails = np.where(offers.domain >= 0, np.append(domain_node, 0)[offers.domain], tails)

    arcs = _Arcs()
    per_task = units[offers.task_class]
    arcs.add(tails, entry, offers.places * per_task, offers.cost / per_task)
    cpu = np.maximum(board.free[:, board.resources.index(CPU)], 0)
    tier_cap = np.zeros((groups, len(widths)), dtype=np.int64)
    for t, least in enumerate(widths):
        tier_cap[:, t] = np.bincount(group_of, weights=_tier_room(cpu, least, classes) // unit, minlength=groups)
    arcs.add(tier_node, np.hstack([tier_node[:, 1:], gate_node[:, None]])[:, : len(widths)], tier_cap, 0.0)
    total = int((counts * units).sum())
    for node, those, room in (
        (gate_node, [cls for cls in classes if cls.width], cpu // unit),
        (bare_node, [cls for cls in classes if not cls.width], np.full(len(cpu), UNLIMITED)),
    ):
        capacities, costs = _crowding(board, those, counts, units, group_of, groups, room)
        arcs.add(np.broadcast_to(node, capacities.shape), sink, np.minimum(capacities, total), costs)
    crowded = float(arcs.costs()[len(offers.cost) :].max(initial=0.0)) * float(units.max(initial=1))
    dearest = float(offers.cost.max(initial=0.0)) + crowded
    waiting = _waiting(board, dearest)
    crowding_end = arcs.count
    arcs.add(class_node[present], waiting_node, (counts * units)[present], (waiting / units)[present])
    arcs.add(waiting_node, sink, total, 0.0)
    of_domain = offers.domain_class
    arcs.add(class_node[of_domain], domain_node, offers.domain_places * units[of_domain], 0.0)
    # Dearer than any difference between places, so that no domain gets more than its share before all have theirs.
    patience = np.minimum(waiting[of_domain] / 2.0, 2.0 * (dearest + 0.125)) / units[of_domain]
    arcs.add(class_node[of_domain], domain_node, offers.domain_extra * units[of_domain], patience)

    supplies = np.zeros(nodes.count, dtype=np.int64)
    supplies[class_node[present]] = (counts * units)[present]
    supplies[sink] = -total
    costs = arcs.costs()
    scale = _scale(float(np.abs(costs).max(initial=0.0)), total)
    labels: tuple[object, ...] = ()
    if explain:
        labels = _labels(board, classes, group_of, groups, widths, offers, units, waiting, costs, crowding_end)
    network = Network(
        arcs.column("tails"),
        arcs.column("heads"),
        arcs.column("capacities"),
        np.rint(costs * scale).astype(np.int64),
        supplies,
        scale,
        *labels,  # type: ignore[arg-type]
    )
    return WideNetwork(
        network,
        group_of,
        groups,
        unit,
        counts,
        units,
        tuple(width_of.tolist()),
        waiting,
        offers.task_class,
        offers.group,
        widths,
        len(offers.domain_class),
    )


class _Nodes:
    """Numbers nodes in blocks."""

    def __init__(self) -> None:
        self.count = 0

    def add(self, many: int) -> IntArray:
        self.count += many
        return np.arange(self.count - many, self.count, dtype=np.int64)


class _Arcs:
    """Collects arcs in blocks of arrays; single values stand for as many as there are tails."""

    def __init__(self) -> None:
        self.count = 0
        self._columns: dict[str, list[IntArray]] = {"tails": [], "heads": [], "capacities": []}
        self._costs: list[FloatArray] = []

    def add(
        self, tails: IntArray, heads: IntArray | int, capacities: IntArray | int, costs: FloatArray | float
    ) -> None:
        shape = tails.shape
        self.count += tails.size
        for name, values in (("tails", tails), ("heads", heads), ("capacities", capacities)):
            self._columns[name].append(np.broadcast_to(values, shape).reshape(-1))
        self._costs.append(np.broadcast_to(costs, shape).reshape(-1))

    def column(self, name: str) -> IntArray:
        return np.concatenate(self._columns[name])

    def costs(self) -> FloatArray:
        return np.concatenate(self._costs)


@dataclass(frozen=True, eq=False)
class _Offers:
    """What each class may place on each group, one entry for each arc between them."""

    task_class: IntArray
    group: IntArray
    places: IntArray
    """Tasks, machine by machine as many as fit."""
    cost: FloatArray
    """Of a task: the mean over the machines that have a place."""
    domain: IntArray
    """Which of the class's limited domains the group belongs to, by position in ``domain_class``; -1 for none."""
    domain_class: IntArray
    """Class of each limited domain."""
    domain_places: IntArray
    """How many of the class it may take in all."""
    domain_extra: IntArray
    """How many on top once the class's other domains have got theirs."""
    terms: dict[str, FloatArray]
    """What the costs are made of, by term, where somebody asks."""


def _offers(
    board: Board,
    classes: Sequence[WideClass],
    counts: IntArray,
    prices: dict[int, FloatArray],
    group_of: IntArray,
    groups: int,
    explain: bool,
) -> _Offers:
    joined = frozenset(r for cls in classes for r in cls.demand.joins)
    first = np.zeros(groups, dtype=np.int64)
    first[group_of[::-1]] = np.arange(len(group_of))[::-1]
    parts: dict[str, list[IntArray | FloatArray]] = {n: [] for n in ("class", "group", "places", "cost", "domain")}
    domain_class: list[IntArray] = []
    domain_places: list[IntArray] = []
    domain_extra: list[IntArray] = []
    terms: dict[str, list[FloatArray]] = {}
    domains = 0
    for cls in classes:
        c = cls.index
        slots = np.minimum(whole_slots(board, cls, joined), counts[c])
        slots[prices[c] > cls.limit] = 0
        usable = slots > 0
        room = np.bincount(group_of, weights=slots, minlength=groups)
        here = np.flatnonzero(room)
        size = np.bincount(group_of[usable], minlength=groups)[here]

        def mean(
            values: FloatArray, usable: BoolArray = usable, here: IntArray = here, size: IntArray = size
        ) -> FloatArray:
            return np.bincount(group_of[usable], weights=values[usable], minlength=groups)[here] / size

        parts["class"].append(np.full(len(here), c))
        parts["group"].append(here)
        parts["places"].append(np.minimum(room[here], counts[c]).astype(np.int64))
        parts["cost"].append(mean(prices[c]))
        gate = next((g for g in board.gates(cls) if g.minds_itself and not g.counts), None)
        if gate is None:
            parts["domain"].append(np.full(len(here), -1))
        else:
            allowance, extra = gate.allowance(slots, int(counts[c]))
            of_group = gate.topology.domain[first[here]]
            parts["domain"].append(np.where(of_group >= 0, of_group + domains, -1))
            domain_class.append(np.full(len(allowance), c))
            domain_places.append(allowance)
            domain_extra.append(extra)
            domains += len(allowance)
        if explain:
            for name, values in board.terms(cls).items():
                terms.setdefault(name, []).append(mean(values) if values.any() else np.zeros(len(here)))
    return _Offers(
        _whole(parts["class"]),
        _whole(parts["group"]),
        _whole(parts["places"]),
        np.concatenate([np.zeros(0), *parts["cost"]]),
        _whole(parts["domain"]),
        _whole(domain_class),
        _whole(domain_places),
        _whole(domain_extra),
        {name: np.concatenate(columns) for name, columns in terms.items()},
    )


def group_machines(board: Board, classes: Sequence[WideClass], prices: dict[int, FloatArray]) -> tuple[IntArray, int]:
    """Group of each machine and how many there are, numbered by the first machine by name.

    One group has the same price within a bucket for each class, the same classes that may enter, the same bandwidth, the
    same domains of every relation in play and, where limits count tasks on machines, about as much room. Where that makes
    too many groups, room is left out, then buckets grow, and constraints are left out last.
    """
    if not board.machine_count:
        return np.zeros(0, dtype=np.int64), 0
    limit = max(16, MAX_ARCS // max(1, len(classes)))
    kinds: dict[object, FloatArray] = {}
    masks: dict[bytes, np.ndarray[Any, Any]] = {}
    crowded = False
    for cls in classes:
        key = (cls.sensitivity, cls.pressure, id(cls.base) if cls.base is board.nothing else cls.base.tobytes())
        kinds.setdefault(key, prices[cls.index])
        if cls.allowed is not board.everywhere:
            masks.setdefault(cls.allowed.tobytes(), cls.allowed)
        crowded = crowded or cls.self_price > 0.0
    names = sorted({r for cls in classes for r in cls.relations})
    keyed = {board.standings[r].relation.key: board.standings[r] for r in names}
    domains = [s.domain for s in keyed.values() if not s.per_machine]
    fixed_hash = np.zeros(board.machine_count, dtype=np.uint64)
    salt = 0
    for column in [*masks.values(), *domains]:
        salt += 1
        fixed_hash += _mix(column.astype(np.int64), salt)
    if crowded:
        salt += 1
        fixed_hash += _mix(np.rint(board.bandwidth * 1000).astype(np.int64), salt)
    shape = _mix(_shape(board, classes), 0)
    bucket = BUCKET
    for attempt in range(24):
        mixed = fixed_hash.copy() if attempt < 20 else np.zeros(board.machine_count, dtype=np.uint64)
        if attempt < 4:
            mixed += shape
        for i, price in enumerate(kinds.values()):
            finite = np.where(np.isfinite(price), price, 1e12)
            mixed += _mix(np.floor(np.minimum(finite, 1e12) / bucket).astype(np.int64), salt + 1 + i)
        _, first, inverse = np.unique(mixed, return_index=True, return_inverse=True)
        if len(first) <= limit:
            break
        bucket *= 2.0 if attempt < 12 else 16.0
    rank = np.empty(len(first), dtype=np.int64)
    rank[np.argsort(first)] = np.arange(len(first))
    return rank[inverse.reshape(-1)], len(first)


def _shape(board: Board, classes: Sequence[WideClass]) -> IntArray:
    """How many average tasks a machine has room for, in steps of a tenth, where limits say how many of a set it may take.

    Then equal room in total is not equal: ten machines with one place each take ten of a set that goes one to a machine,
    one machine with ten places takes one.
    """
    limited = any(gate.counts and gate.minds_itself for cls in classes for gate in board.gates(cls))
    if not limited:
        return np.zeros(board.machine_count, dtype=np.int64)
    need = np.zeros(len(board.resources))
    tasks = 0
    for cls in classes:
        need[cls.columns] += cls.amounts * float(len(cls.demand.tasks))
        tasks += len(cls.demand.tasks)
    asked = need > 0.0
    room = np.maximum(board.free[:, asked], 0) / (need[asked] / tasks)
    steps: IntArray = np.rint(np.log1p(room.min(axis=1, initial=1e9)) * 10.0).astype(np.int64)
    return steps


def _mix(values: IntArray, salt: int) -> np.ndarray[Any, np.dtype[np.uint64]]:
    """A well-spread 64-bit number for each value, different for each salt; sums of them stand for tuples."""
    x = values.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15) + np.uint64(salt * 0xD1B54A32D192ED03 % (1 << 64))
    x ^= x >> np.uint64(30)
    x *= np.uint64(0xBF58476D1CE4E5B9)
    x ^= x >> np.uint64(27)
    x *= np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


def _whole(parts: Sequence[IntArray | FloatArray]) -> IntArray:
    return np.concatenate([np.zeros(0), *parts]).astype(np.int64)


def _tier_widths(widths: set[int]) -> tuple[int, ...]:
    """The least width of each tier, widest first: one for every width, or for every doubling where they are many."""
    if len(widths) > MAX_TIERS:
        bands: dict[int, int] = {}
        for w in widths:
            band = w.bit_length()
            bands[band] = min(w, bands.get(band, w))
        chosen = sorted(bands.values(), reverse=True)
        return (*chosen[: MAX_TIERS - 1], chosen[-1]) if len(chosen) > MAX_TIERS else tuple(chosen)
    return tuple(sorted(widths, reverse=True))


def _tier_room(cpu: IntArray, least: int, classes: Sequence[WideClass]) -> IntArray:
    """Milli-CPU of each machine that tasks at least ``least`` wide can take: no packable set takes more.

    Every sum of their widths is a multiple of the greatest common divisor; for dividing widths that is exact.
    """
    step = math.gcd(*(cls.width for cls in classes if cls.width >= least))
    return np.where(cpu >= least, cpu // step * step, 0)


def _crowding(
    board: Board,
    classes: Sequence[WideClass],
    counts: IntArray,
    units: IntArray,
    group_of: IntArray,
    groups: int,
    room: IntArray,
) -> tuple[IntArray, FloatArray]:
    """Capacities and unit costs of the steps from groups to the sink, by step and group.

    Two tasks on a machine cost each other ``q (s P' + s' P)``. With the averages of what is pending, per unit, a further
    unit on a machine that has got W units costs ``2 q s P W``.
    """
    if not classes:
        return np.zeros((0, groups), dtype=np.int64), np.zeros((0, groups))
    size = np.bincount(group_of, minlength=groups)
    index = np.array([cls.index for cls in classes], dtype=np.int64)
    tasks = counts[index]
    total = float((tasks * units[index]).sum())
    task = total / float(tasks.sum())
    s = float(sum(n * cls.sensitivity for n, cls in zip(tasks.tolist(), classes, strict=True))) / FIXED / total
    p = float(sum(n * cls.pressure for n, cls in zip(tasks.tolist(), classes, strict=True))) / FIXED / total
    bandwidth = np.bincount(group_of, weights=board.bandwidth, minlength=groups) / size
    load = np.bincount(group_of, weights=board.load, minlength=groups) / size
    added = sum((n * cls.load for n, cls in zip(tasks.tolist(), classes, strict=True)), np.zeros(len(group_of)))
    load_step = np.bincount(group_of, weights=added, minlength=groups) / size / total
    usual = float(tasks.sum()) / board.machine_count
    per_step = max(1.0, math.ceil(2.0 * usual / (STEPS - 2)))
    edges = [round(j * per_step * task) for j in range(STEPS)]
    capacities = np.full((STEPS, groups), UNLIMITED, dtype=np.int64)
    costs = np.zeros((STEPS, groups))
    for j, edge in enumerate(edges):
        if j < STEPS - 1:
            inside = np.clip(room - edge, 0, edges[j + 1] - edge)
            capacities[j] = np.bincount(group_of, weights=inside, minlength=groups)
        # Units on the machine before the middle task of the step.
        before = (j * per_step + (per_step - 1.0) / 2.0) * task
        costs[j] = 2.0 * bandwidth * s * p * before + TIE * (load + before * load_step) / task
    return capacities, costs


def _waiting(board: Board, dearest: float) -> FloatArray:
    """Waiting cost by class; beyond what any place can cost it still rises, but never past twice that.

    There, where only order matters, classes that come first wait a little dearer than equal ones that come later.
    """
    enough = 8.0 * max(dearest, 0.125)
    costs = np.array([cls.demand.waiting_cost for cls in board.classes])
    order = 1.0 - np.arange(len(costs)) / max(1, len(costs))
    beyond = enough * (2.0 - enough / np.maximum(costs, enough) + 0.05 * order)
    return np.where(costs > enough, beyond, costs)


def _scale(largest: float, total: int) -> float:
    """The power of two by which costs are multiplied: fine, but neither a cost nor a total may overflow."""
    if largest == 0.0:
        return 1.0
    bits = min(SCALE_BITS, TOTAL_BITS - max(1, total).bit_length())
    return float(2.0 ** (bits - math.ceil(math.log2(largest))))


def _labels(
    board: Board,
    classes: Sequence[WideClass],
    group_of: IntArray,
    groups: int,
    widths: tuple[int, ...],
    offers: _Offers,
    units: IntArray,
    waiting: FloatArray,
    costs: FloatArray,
    crowding_end: int,
) -> tuple[tuple[str, ...], dict[str, FloatArray], IntArray]:
    """Labels of nodes, cost terms and units of arcs, in the order in which the network has them."""
    first = np.zeros(groups, dtype=np.int64)
    first[group_of[::-1]] = np.arange(len(group_of))[::-1]
    name = [board.names[m] for m in first.tolist()]
    nodes = ["sink", *(f"class:{cls.demand.name}" for cls in classes)]
    nodes += [f"unscheduled:{cls.demand.name}" for cls in classes]
    nodes += [f"tier:{n}/{w}m" for n in name for w in widths]
    nodes += [f"group:{n}" for n in name] + [f"group:{n}/no-cpu" for n in name]
    nodes += [f"domain:{board.classes[c].demand.name}/{d}" for d, c in enumerate(offers.domain_class.tolist())]
    offered = len(offers.task_class)
    terms = {name: np.concatenate([values, np.zeros(len(costs) - offered)]) for name, values in offers.terms.items()}
    waits = slice(crowding_end, crowding_end + len(classes))
    waited_for = waits.stop + len(classes) + len(offers.domain_class)
    for term, here in (
        ("crowding", slice(offered + groups * len(widths), crowding_end)),
        ("waiting", waits),
        ("patience", slice(waited_for, len(costs))),
    ):
        terms[term] = np.zeros(len(costs))
        terms[term][here] = costs[here]
    per_arc = np.ones(len(costs), dtype=np.int64)
    per_arc[:offered] = units[offers.task_class]
    index = [cls.index for cls in classes]
    per_arc[waits] = units[index]
    terms["waiting"][waits] = waiting[index]
    of_domain = units[offers.domain_class]
    for start in (waits.stop + len(classes), waited_for):
        per_arc[start : start + len(of_domain)] = of_domain
    terms["patience"][waited_for:] *= of_domain
    return tuple(nodes), terms, per_arc
