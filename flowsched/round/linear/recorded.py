"""A decision at linear prices, made again from its levels in a record alone: the prices are the recorded ones."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, replace
from typing import Any

import numpy as np

from flowsched.cluster.machine_arrays import FIXED
from flowsched.cluster.task_class import MachineKind, MachineSpec, TaskClass
from flowsched.pricing.linear.policy import FORBIDDEN, ClassPrices, CostModel, Feature
from flowsched.records.record import of_decision, of_first
from flowsched.relations.relation import MACHINE
from flowsched.relations.topology_counts import read_topology_counts
from flowsched.round.linear.bulk_prices import BulkPrices
from flowsched.round.linear.bulk_round import decide
from flowsched.round.linear.bulk_rows import MIB
from flowsched.round.linear.cluster_rows import ClusterRows
from flowsched.round.linear.linear_round import RoundSettings
from flowsched.round.linear.places import read_numbers, read_places
from flowsched.solvers import Solver

Part = Mapping[str, Any]


class RecordedPolicy:
    """A policy that says what it said when the record was made."""

    def __init__(self, name: str, part: Part, ask: Callable[[], CostModel] | None = None) -> None:
        """``part``: any of the record's. ``ask``: makes the policy itself, for classes that the record lacks; None if it
        cannot be made here.
        """
        self.name = name
        self._ask = ask
        self.features = tuple(
            Feature(f["name"], f["bucket"], f["term"], f.get("of_round", False)) for f in part["features"]
        )
        self._kinds: dict[MachineKind, int] = {}
        self._factors: list[Sequence[float]] = []
        for number, plain in enumerate(part["kinds"]):
            self._factors.append(plain["factors"])
            if "held_like" not in plain:
                self._kinds[read_kind(plain)] = number
        self._prices: dict[TaskClass, ClassPrices] = {}

    def learn(self, task_class: TaskClass, demand: Part) -> None:
        """Remember what it said of a class."""
        waiting = FORBIDDEN if demand["waiting"] is None else float(demand["waiting"])
        self._prices[_as_priced(task_class)] = ClassPrices(
            read_numbers(demand["base"]),
            np.asarray(demand["coefficients"], dtype=np.float64),
            np.asarray(demand["effects"], dtype=np.float64) / FIXED,
            waiting,
            float(demand["growth"]),
        )

    def factors(self, kind: MachineKind) -> Sequence[float]:
        """As recorded."""
        return self._factors[self._kinds[kind]]

    def price(self, task_class: TaskClass, kinds: Sequence[MachineKind]) -> ClassPrices:
        """As recorded, in the order of ``kinds``. Raises ``KeyError`` for a class that is not recorded, if it cannot ask."""
        prices = self._prices.get(_as_priced(task_class))
        if prices is None:
            if self._ask is None:
                raise KeyError(task_class)
            return self._ask().price(task_class, kinds)
        base = prices.base[[self._kinds[kind] for kind in kinds]]
        return ClassPrices(base, prices.coefficients, prices.effects, prices.waiting, prices.growth)


def _as_priced(task_class: TaskClass) -> TaskClass:
    """What prices depend on: a what-if changes places, and so their numbers."""
    return replace(task_class, places=0) if task_class.places else task_class


def decided(
    cluster: ClusterRows, settings: RoundSettings, solver: Solver, parts: Sequence[Part]
) -> list[dict[str, Any]]:
    """The levels of a decision on a cluster, which may have been changed since it was read from ``parts``."""
    given = parts[0]["given"]
    outcome = decide(
        cluster,
        settings,
        solver=solver,
        now_s=float(given.get("now_s", 0.0)),
        keep_record=True,
    )
    assert outcome.record is not None, "the round was asked for its record"
    found = of_decision(outcome.record(parts[0].get("priority")), given["decision"])
    return of_first(found) if "goes_first" in given else found


def read_round_settings(plain: Mapping[str, Any]) -> RoundSettings:
    """Settings of a record; what this program does not know is left out. Raises ``ValueError`` for another kind of value."""
    known = {f.name: getattr(RoundSettings(), f.name) for f in fields(RoundSettings)}
    used: dict[str, Any] = {}
    for name, value in plain.items():
        if name not in known:
            continue
        flag = isinstance(known[name], bool)
        number = isinstance(value, int | float if isinstance(known[name], float) else int)
        if name == "scoring":
            used[name] = value
            continue
        if isinstance(value, bool) != flag or not number:
            raise ValueError(f"setting {name} is {value!r}")
        used[name] = value
    return RoundSettings(**used)


def read_linear_cluster(parts: Sequence[Part], ask: Callable[[], CostModel] | None = None) -> ClusterRows:
    """The cluster that a decision began with, from its levels. ``ask`` makes its cost model, for classes that the record
    lacks.

    Tasks came in the recorded ``order``, or as their times and names say; where nothing says when, class by class. Raises
    ``ValueError`` or ``KeyError`` for values that contradict.
    """
    first, given = parts[0], parts[0]["given"]
    if first["fixed"] != FIXED:
        raise ValueError(f"sums are in units of 1/{first['fixed']}")
    waiting = [(read_class(c["class"]), c) for c in recorded_classes(parts)]
    cluster = ClusterRows.of(
        _read_policy(parts, ask), first["fleet"]["resources"], memory_unit=1 if "cost_model" in given else MIB
    )
    for group in given["task_groups"]:
        cluster.declare_group(group["name"], group["minimum"])
    cluster.members_elsewhere.update(given["members_elsewhere"])
    _read_machines(cluster, first)
    for plain in first["places"][1:]:
        cluster.classes.places.append(read_places(plain))
    for task_class, _ in waiting:
        cluster.intern(task_class)
    pending = [
        (float(s), t, task_class) for task_class, c in waiting for t, s in zip(c["tasks"], c["created_s"], strict=True)
    ]
    if "cost_model" in given:
        came = {name: place for place, name in enumerate(given.get("order", ()))}
        pending.sort(key=lambda entry: (came.get(entry[1], 0), entry[:2]))
    numbers = np.array([cluster.intern(task_class) for *_, task_class in pending], dtype=np.int64)
    cluster.submit(numbers, np.array([s for s, *_ in pending], dtype=np.float64), [t for _, t, _ in pending])
    return cluster


def recorded_classes(parts: Sequence[Part]) -> list[Part]:
    """All classes that wait, in the order of their numbers."""
    return sorted((c for part in parts for c in (*part["classes"], *part["outside"])), key=_number)


def _number(task_class: Part) -> int:
    return int(task_class["number"])


def _read_policy(parts: Sequence[Part], ask: Callable[[], CostModel] | None) -> BulkPrices | RecordedPolicy:
    """The linear prices of ``flow``, or a policy that says what the record has of all its classes."""
    first, given, classes = parts[0], parts[0]["given"], recorded_classes(parts)
    if "cost_model" not in given:
        waiting = {c["name"]: float(c["waiting"]) for c in classes if c["waiting"] is not None}
        return BulkPrices(len(first["features"]) - len(BulkPrices.lasting), waiting)
    policy = RecordedPolicy(str(given["cost_model"]), first, ask)
    for plain in classes:
        policy.learn(read_class(plain["class"]), plain)
    return policy


def read_kind(plain: Part) -> MachineKind:
    """A kind of machines."""
    labels = tuple(sorted(plain["labels"].items()))
    return MachineKind(plain["type"], labels, float(plain["bandwidth"]), float(plain["cores"]))


def read_class(plain: Part) -> TaskClass:
    """A class of tasks; keys that this program does not know are left out."""
    values: dict[str, Any] = {}
    for known in fields(TaskClass):
        if known.name in plain:
            value = plain[known.name]
            several = isinstance(value, list | tuple)
            values[known.name] = tuple(v if isinstance(v, str) else tuple(v) for v in value) if several else value
    for endless in ("run_s", "max_cost"):
        if values.get(endless, 0.0) is None:
            values[endless] = float("inf")
    return TaskClass(**values)


def _read_machines(cluster: ClusterRows, part: Part) -> None:
    """The machines of a level join, with what is taken of them, and the relations that it has. The numbers of domains become
    the values of labels.
    """
    fleet, names = part["fleet"], list(part["machines"])
    count, features, resources = len(names), [f["name"] for f in part["features"]], list(fleet["resources"])
    kinds = [read_kind(kind) for kind in part["kinds"]]
    relations = [read_topology_counts(each) for each in part["relations"]]
    domains = {counts.relation.key: counts.domain.tolist() for counts in relations}
    domains.pop(MACHINE, None)
    amounts = np.array(fleet["allocatable"], dtype=np.int64).reshape(count, len(resources))
    readings = np.array(fleet["readings"], dtype=np.int64).reshape(count, len(features)) / FIXED
    limits = np.array([read_numbers(row) for row in fleet["limits"]]).reshape(count, len(features)) / FIXED
    machines = cluster.machines
    machines.add_machines(
        [
            MachineSpec(
                name,
                kinds[kind],
                dict(zip(resources, amounts[i].tolist(), strict=True)),
                dict(zip(features, readings[i].tolist(), strict=True)),
                dict(zip(features, limits[i].tolist(), strict=True)),
                {key: str(of[i]) for key, of in domains.items() if of[i] >= 0},
            )
            for i, (name, kind) in enumerate(zip(names, np.asarray(fleet["kind"]).tolist(), strict=True))
        ]
    )
    machines.settle()
    cluster.classes.price_on(machines.kinds)
    rows = machines.rows_of(names)
    machines.free[rows] = np.array(fleet["free"], dtype=np.int64).reshape(count, len(resources))
    for counts in relations:
        machines.relation_store.declare(counts.relation)
        machines.relation_store.count_all(counts.relation.name, rows, counts.members, counts.holders)
