"""Small random clusters for bulk rounds, and a naive record of what is allowed in them, written from the definitions.

Everything here is plain Python over dictionaries, one task at a time: slow, obvious, and independent of the engine's arrays.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from hypothesis import strategies as st

from builders import any_of, some_of
from flowsched.cluster.booked_tasks import BookedTasks
from flowsched.cluster.task_class import TaskClass
from flowsched.relations.relation import MACHINE, Relation, RelationKind, TaskGroup
from flowsched.round.linear.bulk_rows import bulk_rows
from flowsched.round.linear.cluster_rows import ClusterRows
from flowsched.round.linear.places import Places

RESOURCES = ("cpu", "memory", "gpu")


@dataclass(frozen=True)
class Box:
    """A machine."""

    name: str
    allocatable: Mapping[str, int]
    labels: Mapping[str, str]
    bandwidth: float = 1.0
    pressure_cap: float = float("inf")
    headroom_slope: float = 0.0


@dataclass(frozen=True)
class Kind:
    """A class of tasks; by-machine values are dictionaries by name, missing ones are the default."""

    name: str
    count: int
    needs: Mapping[str, int]
    forbidden: frozenset[str] = frozenset()
    ineligible: frozenset[str] = frozenset()
    preference: Mapping[str, float] = field(default_factory=dict)
    slowness: Mapping[str, float] = field(default_factory=dict)
    sensitivity: float = 0.0
    pressure: float = 0.0
    holds: tuple[str, ...] = ()
    joins: tuple[str, ...] = ()
    group: str | None = None
    waiting_cost: float = float("inf")
    max_cost: float = float("inf")
    counted: tuple[tuple[int, float], ...] = ()
    """Of a kind that waits."""
    names: Sequence[str] = ()
    """Of its tasks, where they have others than the kind's with a number."""

    @property
    def tasks(self) -> tuple[str, ...]:
        return tuple(self.names) or tuple(f"{self.name}-{i}" for i in range(self.count))


@dataclass(frozen=True)
class World:
    """A cluster with what runs there, and what is pending."""

    boxes: tuple[Box, ...]
    relations: tuple[Relation, ...] = ()
    running: tuple[tuple[Kind, str], ...] = ()
    """A task of a kind on a machine; the machine need not exist."""
    kinds: tuple[Kind, ...] = ()
    groups: tuple[TaskGroup, ...] = ()
    running_members: Mapping[str, int] = field(default_factory=dict)

    def fleet(self, order: Iterable[int] | None = None) -> BookedTasks:
        """As the engine sees it, machines added in some order."""
        fleet = BookedTasks()
        for relation in self.relations:
            fleet.machines.relation_store.declare(relation)
        for i in range(len(self.boxes)) if order is None else order:
            put(fleet, self.boxes[i])
        for i, (kind, machine) in enumerate(self.running):
            book(fleet, f"running-{i}", kind, machine)
        return fleet

    def cluster(self, fleet: BookedTasks | None = None) -> ClusterRows:
        """What a bulk round decides on."""
        return offered(fleet or self.fleet(), self.kinds, self.groups, self.running_members)


def put(fleet: BookedTasks, box: Box) -> None:
    fleet.put_machine(box.name, box.allocatable, box.labels, bandwidth=box.bandwidth)
    fleet.machines.set_service(box.name, box.pressure_cap, box.headroom_slope)


def book(fleet: BookedTasks, task: str, kind: Kind, machine: str) -> None:
    fleet.book(
        task,
        machine,
        kind.needs,
        sensitivity=kind.sensitivity,
        pressure=kind.pressure,
        holds=kind.holds,
        joins=kind.joins,
    )


def offered(
    fleet: BookedTasks,
    kinds: Sequence[Kind],
    groups: Iterable[TaskGroup] = (),
    running_members: Mapping[str, int] | None = None,
) -> ClusterRows:
    """A fleet's cluster, where the tasks of some kinds wait."""
    fleet.machines.settle()
    classes = [task_class(kind) for kind in kinds]
    waiting = {kind.name: kind.waiting_cost for kind in kinds if kind.waiting_cost < float("inf")}
    machines, where, names = fleet.machines, [places(k, fleet) for k in kinds], [k.tasks for k in kinds]
    cluster = bulk_rows(machines, classes, where, names, waiting)
    for group in groups:
        cluster.declare_group(group.name, group.minimum)
    cluster.members_elsewhere.update(running_members or {})
    return cluster


def task_class(kind: Kind) -> TaskClass:
    return TaskClass(
        kind.name,
        kind.needs.get("cpu", 0),
        tuple(sorted((r, amount) for r, amount in kind.needs.items() if r != "cpu" and amount > 0)),
        kind.sensitivity,
        kind.pressure,
        group=kind.group or "",
        max_cost=kind.max_cost,
        holds=kind.holds,
        joins=kind.joins,
        counted=kind.counted,
    )


def places(kind: Kind, fleet: BookedTasks) -> Places:
    def by_row(values: Mapping[str, float]) -> np.ndarray:
        return np.array([0.0 if name is None else values.get(name, 0.0) for name in fleet.machines.names])

    def without(names: frozenset[str]) -> np.ndarray | None:
        return np.array([name not in names for name in fleet.machines.names], dtype=np.bool_) if names else None

    return Places(
        allowed=without(kind.forbidden),
        eligible=without(kind.ineligible),
        preference=by_row(kind.preference) if kind.preference else None,
        slowness=by_row(kind.slowness) if kind.slowness else None,
    )


class Naive:
    """Where tasks are, and what that allows."""

    def __init__(self, world: World) -> None:
        self.boxes = {b.name: b for b in world.boxes}
        self.relations = {r.name: r for r in world.relations}
        self.on: dict[str, list[Kind]] = {b.name: [] for b in world.boxes}
        for kind, machine in world.running:
            if machine in self.on:
                self.on[machine].append(kind)

    def copy(self) -> Naive:
        twin = object.__new__(Naive)
        twin.boxes, twin.relations = self.boxes, self.relations
        twin.on = {name: list(kinds) for name, kinds in self.on.items()}
        return twin

    def add(self, kind: Kind, machine: str) -> None:
        self.on[machine].append(kind)

    def fits(self, kind: Kind, machine: str) -> bool:
        box = self.boxes[machine]
        return all(
            amount <= box.allocatable.get(resource, 0) - sum(k.needs.get(resource, 0) for k in self.on[machine])
            for resource, amount in kind.needs.items()
            if amount > 0
        )

    def refusals(self, kind: Kind, machine: str) -> list[str]:
        names = dict.fromkeys((*kind.holds, *kind.joins))
        return [name for name in names if self._refuses(self.relations[name], kind, machine)]

    def bears(self, kind: Kind, machine: str) -> bool:
        there = sum(k.pressure for k in self.on[machine])
        return kind.pressure == 0.0 or there + kind.pressure <= self.boxes[machine].pressure_cap + 1e-9

    def price(self, kind: Kind, machine: str) -> float:
        box = self.boxes[machine]
        others = self.on[machine]
        return (
            kind.slowness.get(machine, 0.0)
            + kind.preference.get(machine, 0.0)
            + kind.sensitivity * box.bandwidth * sum(k.pressure for k in others)
            + kind.pressure * box.bandwidth * sum(k.sensitivity for k in others)
            + kind.pressure * box.headroom_slope
            + sum(each * sum(number in dict(k.counted) for k in others) for number, each in kind.counted)
        )

    def affords(self, kind: Kind, machine: str, slack: float = 1e-9) -> bool:
        return self.price(kind, machine) <= min(kind.waiting_cost, kind.max_cost) + slack

    def valid(self, kind: Kind, machine: str) -> bool:
        return (
            machine not in kind.forbidden
            and self.fits(kind, machine)
            and not self.refusals(kind, machine)
            and self.bears(kind, machine)
        )

    def _domain(self, relation: Relation, machine: str) -> str | None:
        return machine if relation.key == MACHINE else self.boxes[machine].labels.get(relation.key)

    def _refuses(self, relation: Relation, kind: Kind, machine: str) -> bool:
        holds, joins = relation.name in kind.holds, relation.name in kind.joins
        domain = self._domain(relation, machine)
        around = [m for m in self.on if domain is not None and self._domain(relation, m) == domain]
        members = sum(relation.name in k.joins for m in around for k in self.on[m])
        match relation.kind:
            case RelationKind.LIMIT:
                return joins and domain is not None and members + 1 > relation.most
            case RelationKind.APART:
                holders = sum(relation.name in k.holds for m in around for k in self.on[m])
                return (holds and members > 0) or (joins and holders > 0)
            case RelationKind.TOGETHER:
                anywhere = sum(
                    relation.name in k.joins
                    for m in self.on
                    if self._domain(relation, m) is not None
                    for k in self.on[m]
                )
                return holds and (domain is None or (members == 0 and (anywhere > 0 or not joins)))
            case RelationKind.SPREAD:
                if not holds:
                    return False
                if domain is None:
                    return True
                counts: dict[str, int] = {}
                for m in self.on:
                    other = self._domain(relation, m)
                    if other is not None and m not in kind.ineligible:
                        counts[other] = counts.get(other, 0) + sum(relation.name in k.joins for k in self.on[m])
                floor = 0 if len(counts) < max(1, relation.min_domains) else min(counts.values())
                return counts.get(domain, 0) + joins - floor > relation.skew
            case RelationKind.COUNT:
                return False


NAMES = tuple("abcdefg")
RELATION_NAMES = ("r0", "r1", "r2")


@st.composite
def boxes(draw: st.DrawFn, most: int = 5, services: bool = True) -> tuple[Box, ...]:
    made = []
    for name in NAMES[: draw(st.integers(0, most))]:
        resources = {r: draw(any_of(0, 2, 4, 7, 8)) for r in RESOURCES[: draw(st.integers(1, 3))]}
        resources["cpu"] = draw(st.integers(0, 8))
        labels = {} if draw(st.integers(0, 4)) == 0 else {"zone": draw(any_of("x", "y", "z"))}
        labels["host"] = name
        box = Box(name, resources, labels, draw(any_of(1.0, 0.5)))
        if services and draw(st.integers(0, 3)) == 0:
            box = replace(box, pressure_cap=draw(any_of(0.25, 0.5, 1.0)), headroom_slope=0.5)
        made.append(box)
    return tuple(made)


RELATIONS = st.tuples(
    *(
        st.builds(
            Relation,
            st.just(name),
            st.sampled_from(RelationKind),
            st.sampled_from((MACHINE, "zone", "host", "nowhere")),
            most=st.integers(1, 3),
            skew=st.integers(1, 2),
            min_domains=st.integers(0, 3),
        )
        for name in RELATION_NAMES
    )
)


SOME_MACHINES = st.frozensets(st.sampled_from(NAMES), max_size=2)
COSTS = st.dictionaries(st.sampled_from(NAMES), st.sampled_from((0.0, 0.125, 0.5, 1.0)), max_size=4)


@st.composite
def kinds(draw: st.DrawFn, name: str, relations: Sequence[str], groups: Sequence[str], prices: bool = True) -> Kind:
    names = some_of(tuple(relations), most=2) if relations else st.just(())
    kind = Kind(
        name,
        draw(st.integers(0, 5)),
        {
            "cpu": draw(st.integers(0, 4)),
            **({"memory": draw(st.integers(0, 4))} if draw(st.booleans()) else {}),
            **({"gpu": draw(st.integers(0, 2))} if draw(st.integers(0, 3)) == 0 else {}),
        },
        forbidden=draw(SOME_MACHINES) if draw(st.booleans()) else frozenset(),
        ineligible=draw(SOME_MACHINES) if draw(st.booleans()) else frozenset(),
        sensitivity=draw(any_of(0.0, 0.5, 1.0)),
        pressure=draw(any_of(0.0, 0.125, 0.25)),
        holds=draw(names),
        joins=draw(names),
        group=draw(any_of(None, *groups)) if groups else None,
    )
    if not prices:
        return kind
    return replace(
        kind,
        preference=draw(COSTS),
        slowness=draw(COSTS),
        waiting_cost=draw(any_of(float("inf"), float("inf"), 0.25, 1.0)),
        max_cost=draw(any_of(float("inf"), float("inf"), 0.5)),
        counted=draw(any_of((), (), ((0, 0.25),), ((1, 0.5),), ((0, 0.5), (2, 0.125)))),
    )


@st.composite
def worlds(draw: st.DrawFn, relations: bool = True, groups: bool = True) -> World:
    """Everything at once, small enough to think about."""
    known = draw(RELATIONS) if relations else ()
    names = tuple(r.name for r in known)
    machines = draw(boxes())
    gangs = (
        tuple(TaskGroup(name, draw(st.integers(1, 5))) for name in ("g", "h")) if groups and draw(st.booleans()) else ()
    )
    pending = tuple(draw(kinds(f"k{i}", names, tuple(g.name for g in gangs))) for i in range(draw(st.integers(0, 4))))
    running = []
    naive = Naive(World(machines, known))
    for i in range(draw(st.integers(0, 4))):
        kind = replace(draw(kinds(f"old{i}", names, ())), count=1, counted=())
        at = draw(st.sampled_from(NAMES))
        # What runs has room; relations may be broken, as they are when labels change.
        if at not in naive.on or naive.fits(kind, at):
            running.append((kind, at))
            if at in naive.on:
                naive.add(kind, at)
    members = {g.name: draw(st.integers(0, 2)) for g in gangs}
    return World(machines, known, tuple(running), pending, gangs, members)
