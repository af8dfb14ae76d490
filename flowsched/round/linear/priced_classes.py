"""What a cost model knows of classes: what each asks for, brings and costs, by its number; asked when one turns up."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from flowsched.cluster.machine_arrays import FIXED, wider
from flowsched.cluster.task_class import MachineKind, TaskClass
from flowsched.errors import EventError
from flowsched.pricing.linear.policy import ClassPrices, CostModel
from flowsched.relations.relation import Role, roles_of
from flowsched.round.linear import cluster_checks
from flowsched.round.linear.places import PlacesTable
from flowsched.round.linear.price_table import PriceTable, checked_prices
from flowsched.support.arrays import BoolArray, FloatArray, IntArray


class PricedClasses:
    """Classes by number, which are never forgotten, with their prices on kinds of machines."""

    def __init__(self, policy: CostModel, resources: Sequence[str] = ("cpu", "memory")) -> None:
        """No classes yet. ``resources``: those that demands have a column for; CPU comes first, more may turn up."""
        self.policy = policy
        self.features = tuple(policy.features)
        self.resources = ["cpu", *(r for r in resources if r != "cpu")]
        self.kinds: list[MachineKind] = []
        """Those that classes are priced on, in the order of their numbers."""
        width = len(self.features)
        self.factors: FloatArray = np.zeros((0, width))
        """By kind and feature."""
        self._classes: list[TaskClass] = []
        self._number: dict[TaskClass, int] = {}
        self.prices: list[ClassPrices] = []
        self.demands: IntArray = np.zeros((0, len(self.resources)), dtype=np.int64)
        """By class and resource."""
        self.effects: IntArray = np.zeros((0, width), dtype=np.int64)
        """By class and feature, in units of 1/FIXED."""
        self.places = PlacesTable()
        self.roles: list[tuple[Role, ...]] = []
        """By class: what it is to relations, whether they are declared or not."""
        self.related: BoolArray = np.zeros(0, dtype=np.bool_)
        """By class: whether it is anything to relations."""
        self.structure = 0
        """Goes up when classes, kinds or resources turn up: what depends on their number grows then."""
        self._table: tuple[int, PriceTable] | None = None
        self._lasting: tuple[int, FloatArray] | None = None

    def __len__(self) -> int:
        """How many classes there are."""
        return len(self._classes)

    def __getitem__(self, number: int) -> TaskClass:
        """The class with a number."""
        return self._classes[number]

    def __iter__(self) -> Iterator[TaskClass]:
        """In the order of their numbers."""
        return iter(self._classes)

    def intern(self, task_class: TaskClass) -> int:
        """The number of a class; the policy prices it when it turns up.

        Raises ``EventError`` for prices and demands that are none.
        """
        try:
            number = self._number.get(task_class)
        except TypeError:  # a list or a dict instead of tuples
            number = None
        if number is not None:
            return number
        cluster_checks.check_class(task_class)
        prices = checked_prices(self.policy, task_class, self.kinds)
        self.add_resources([resource for resource, _ in task_class.needs])
        number = self._number[task_class] = len(self._classes)
        self._classes.append(task_class)
        self.prices.append(prices)
        demand = task_class.demand()
        self.demands = np.vstack([self.demands, [demand.get(r, 0) for r in self.resources]])
        self.effects = np.vstack([self.effects, np.rint(prices.effects * FIXED).astype(np.int64)])
        self.roles.append(roles_of(task_class.holds, task_class.joins))
        self.related = np.append(self.related, bool(self.roles[-1]))
        self.structure += 1
        return number

    def reorder(self, order: list[int]) -> IntArray:
        """Number the classes anew, in this order of their numbers; the new number of each."""
        number = np.empty(len(order), dtype=np.int64)
        number[order] = np.arange(len(order))
        self._classes = [self._classes[c] for c in order]
        self.prices = [self.prices[c] for c in order]
        self.roles = [self.roles[c] for c in order]
        self._number = {task_class: c for c, task_class in enumerate(self._classes)}
        rows = np.array(order, dtype=np.int64)
        self.demands, self.effects, self.related = self.demands[rows], self.effects[rows], self.related[rows]
        self.structure += 1
        return number

    def price_on(self, kinds: Sequence[MachineKind]) -> None:
        """Kinds of machines have these numbers now; if these are other kinds, the policy is asked about all classes anew.

        Raises ``EventError``, and nothing has changed, for prices and factors that are none.
        """
        if kinds == self.kinds:
            return
        if len(kinds) == len(self.kinds) and set(kinds) == set(self.kinds):
            order = [self.kinds.index(kind) for kind in kinds]
            self.prices = [replace(prices, base=prices.base[order]) for prices in self.prices]
            self.kinds, self.factors = list(kinds), self.factors[order]
            self.structure += 1
            return
        width = len(self.features)
        known = dict(zip(self.kinds, self.factors, strict=True))
        factors = [
            known[kind] if kind in known else np.asarray(self.policy.factors(kind), dtype=np.float64) for kind in kinds
        ]
        for kind, of_kind in zip(kinds, factors, strict=True):
            if of_kind.shape != (width,) or not (np.isfinite(of_kind) & (of_kind >= 0.0)).all():
                raise EventError(
                    f"policy {self.policy.name} has factors {of_kind.tolist()} for machines of type {kind.type}; "
                    f"expected {width} finite numbers >= 0"
                )
        self.prices = [checked_prices(self.policy, c, kinds) for c in self._classes]
        self.kinds, self.factors = list(kinds), np.array(factors).reshape(len(kinds), width)
        self.structure += 1

    def add_resources(self, resources: Sequence[str]) -> None:
        """Count further resources, which no class has asked for yet; a known one is nothing to do."""
        for resource in resources:
            if resource not in self.resources:
                self.resources.append(resource)
                self.demands = wider(self.demands)
                self.structure += 1

    def table(self) -> PriceTable:
        """Prices of all classes; the same object until a class or a kind turns up."""
        if self._table is None or self._table[0] != self.structure:
            table = PriceTable.of(self._classes, self.prices, len(self.kinds), len(self.features))
            self._table = self.structure, table
        return self._table[1]

    def lasting_s(self) -> FloatArray:
        """Predicted run time by class and kind in seconds; infinite for tasks without an end."""
        if self._lasting is None or self._lasting[0] != self.structure:
            types = dict.fromkeys(kind.type for kind in self.kinds)
            column = {name: i for i, name in enumerate(types)}
            slowness = np.zeros((len(self), len(types)))
            for number, task_class in enumerate(self._classes):
                for name, slower in task_class.slowness:
                    if name in column:
                        slowness[number, column[name]] = slower
            by_kind = slowness[:, np.array([column[kind.type] for kind in self.kinds], dtype=np.int64)]
            self._lasting = self.structure, self.table().run_s[:, None] * (1.0 + by_kind)
        return self._lasting[1]
