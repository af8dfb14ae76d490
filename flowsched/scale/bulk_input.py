"""What a bulk round depends on: machines as arrays, relations as counts, and classes of equal tasks.

It is taken from a fleet, from a snapshot, or read back from the record of a round; a round on the same input decides the
same.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import ClassVar

import numpy as np

from flowsched.cluster.fleet import Fleet, FleetMachines
from flowsched.cluster.machine_rows import UNLIMITED, LoadedMachines
from flowsched.cluster.settings import Settings
from flowsched.cluster.task_class import MachineKind, TaskClass
from flowsched.pricing.linear.policies.flow import FlowCostModel, linear
from flowsched.pricing.linear.policy import ClassPrices, CostModel, Feature
from flowsched.pricing.spread_prices import SPREADING
from flowsched.relations.relation import TaskGroup
from flowsched.relations.topology_counts import TopologyCounts
from flowsched.scale.bulk_cluster import BulkCluster
from flowsched.scale.demand import Demand
from flowsched.scale.fleet_kernels import machine_arrays
from flowsched.scale.restricted import coarsen
from flowsched.scale.round import RoundSettings
from flowsched.scale.snapshot_adapter import places_order

_MIB = 1 << 20
BOUND_STEPS = 20
"""Every record has a bound, and rounds are seconds apart: most of what a hundred steps prove, in a fifth of their time."""


def bulk_settings(settings: Settings) -> RoundSettings:
    """Of an operator's settings, those that bulk rounds have."""
    return _round_settings(settings.resolves, settings.scoring)


@lru_cache(maxsize=8)
def _round_settings(resolves: int, scoring: str) -> RoundSettings:
    return RoundSettings(resolves=resolves, scoring=scoring, reservations=False, bound_steps=BOUND_STEPS)


class BulkPrices:
    """The linear prices of ``flow`` for the demands of a round, with waiting costs of their own."""

    name = "flow"
    lasting: ClassVar = FlowCostModel().features
    """Those of what runs too. Machines are told apart by every reading until :func:`coarsen`."""

    def __init__(self, demands: Sequence[Demand], counts: int = 0) -> None:
        """Of these demands, which have numbers of ``counts`` counts."""
        self._waiting = {demand.name: demand.waiting_cost for demand in demands}
        self._counts = counts
        self.features = (*self.lasting, *(Feature(f"count-{k}", 0.0, SPREADING, True) for k in range(counts)))

    def factors(self, kind: MachineKind) -> Sequence[float]:
        """Memory bandwidth scales what neighbours do to each other, not what a service loses."""
        return (kind.bandwidth, kind.bandwidth, 1.0, *(1.0 for _ in range(self._counts)))

    def price(self, task_class: TaskClass, kinds: Sequence[MachineKind]) -> ClassPrices:
        """The same on every kind, but for the factors."""
        coefficients, effects = np.zeros((2, len(self.features)))
        lasting = len(self.lasting)
        coefficients[:lasting], effects[:lasting] = linear(task_class.sensitivity, task_class.pressure)
        for number, each in task_class.counted:
            coefficients[lasting + number] = each
            effects[lasting + number] = 1.0
        return ClassPrices(np.zeros(len(kinds)), coefficients, effects, self._waiting[task_class.name])


@dataclass(eq=False)
class BulkInput(LoadedMachines):
    """Machines are in the order of their names; arrays by machine, those of the demands too. A what-if changes it.

    ``memory`` is in bytes, with a cost model beside ``flow`` in MiB. Readings are the features of the cost model; those of
    ``flow`` are pressure, sensitivity, the slope of headroom, and counts of what the round has put there, which begin at 0.
    """

    relations: dict[str, TopologyCounts]
    demands: list[Demand]
    """In an order that does not depend on chance; their names differ."""
    groups: tuple[TaskGroup, ...] = ()
    running_members: Mapping[str, int] = field(default_factory=dict)
    """Tasks of each group that run already and count towards its minimum."""
    settings: RoundSettings = field(default_factory=lambda: bulk_settings(Settings()))
    model: CostModel | None = None
    """The cost model; None for the linear prices of ``flow``. With any other, demands have classes of their own."""
    order: tuple[str, ...] = ()
    """The tasks in the order in which they came; empty for that of the demands."""
    now_s: float = 0.0

    def cluster(self) -> BulkCluster:
        """The state that the round decides on, machines in rows as they are here, with the demands' tasks waiting."""
        counts = self.readings.shape[1] - len(BulkPrices.lasting)
        cluster = BulkCluster(self.model or BulkPrices(self.demands, counts))
        cluster.memory_unit = _MIB if self.model is None else 1
        for group in self.groups:
            cluster.declare_group(group.name, max(1, group.minimum))
        cluster.members_elsewhere = dict(self.running_members)
        cluster.load_machines(self)
        for counts in self.relations.values():
            cluster.topology.put(counts, np.arange(len(self.names)), len(self.names))
        if self.model is not None:
            # Numbers of places go by what they are, as in a cluster made from a snapshot.
            for places in sorted((demand.places for demand in self.demands if demand.tasks), key=places_order):
                cluster.places.intern(places)
        numbers: list[int] = []
        names: list[str] = []
        created_s: list[float] = []
        for demand in self.demands:
            if demand.tasks:
                number = cluster.intern(_task_class(cluster, demand))
                numbers += [number] * len(demand.tasks)
                names += demand.tasks
                created_s += demand.since_s or (0.0,) * len(demand.tasks)
        position = {name: i for i, name in enumerate(names)}
        came = [position[name] for name in self.order] if self.order else range(len(names))
        cluster.submit(
            np.array([numbers[i] for i in came], dtype=np.int64),
            np.array([created_s[i] for i in came], dtype=np.float64),
            [names[i] for i in came],
        )
        if self.model is None:
            coarsen(cluster)
        return cluster


def input_of_fleet(
    fleet: Fleet,
    demands: Sequence[Demand],
    groups: Sequence[TaskGroup] = (),
    running_members: Mapping[str, int] | None = None,
    settings: RoundSettings | None = None,
) -> BulkInput:
    """From a fleet, which is only read; arrays of ``demands`` are by row of the fleet.

    Raises ``KeyError`` for a relation that the fleet does not know.
    """
    machines = fleet.machines()
    relations = dict.fromkeys(name for d in demands for name in (*d.holds, *d.joins))
    counts = {name: fleet.topology_counts(name, machines.order) for name in relations}
    return input_of_machines(machines, demands, counts, groups, running_members, settings)


def input_of_machines(
    machines: FleetMachines,
    demands: Sequence[Demand],
    relations: Mapping[str, TopologyCounts],
    groups: Sequence[TaskGroup] = (),
    running_members: Mapping[str, int] | None = None,
    settings: RoundSettings | None = None,
) -> BulkInput:
    """From a fleet's machines; arrays of ``demands`` are by row, those of ``relations`` in the order of the machines."""
    rows = machines.order
    known = {resource: i for i, resource in enumerate(machines.resources)}
    needed = {r for d in demands for r, amount in d.needs.items() if amount > 0}
    resources = ["cpu", "memory", *sorted(needed - {"cpu", "memory"})]
    columns = np.array([known.get(resource, -1) for resource in resources], dtype=np.int64)
    allocatable, free, readings, limits, alike = machine_arrays(rows, columns, machines.arrays)
    counts = max((1 + number for d in demands for number, _ in d.counted), default=0)
    if counts:
        readings = np.hstack([readings, np.zeros((len(rows), counts), dtype=np.int64)])
        limits = np.hstack([limits, np.full((len(rows), counts), UNLIMITED, dtype=np.int64)])
    # Mostly all are alike.
    bandwidths, kind = (
        (machines.arrays.bandwidth[rows[:1]], np.zeros(len(rows), np.int64))
        if alike
        else np.unique(machines.arrays.bandwidth[rows], return_inverse=True)
    )
    return BulkInput(
        list(machines.names),
        resources,
        allocatable,
        free,
        [MachineKind("machine", bandwidth=q) for q in bandwidths.tolist()],
        kind.reshape(-1),
        readings,
        limits,
        dict(relations),
        [replace(demand, places=demand.places.changed(lambda values: values[rows])) for demand in demands],
        tuple(groups),
        dict(running_members or {}),
        settings or bulk_settings(Settings()),
    )


def _task_class(cluster: BulkCluster, demand: Demand) -> TaskClass:
    places = cluster.places.intern(demand.places)
    needs = tuple(sorted((r, amount) for r, amount in demand.needs.items() if r != "cpu" and amount > 0))
    if demand.known is not None:
        return replace(demand.known, width_milli=demand.needs.get("cpu", 0), needs=needs, places=places)
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
        places=places,
        counted=demand.counted,
    )
