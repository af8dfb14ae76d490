"""The input of a bulk round with a cost model of its own, from a snapshot: the cluster is that of a round on the snapshot.

Machines, classes and their prices are as :mod:`flowsched.scale.snapshot_adapter` makes them for every snapshot.
What runs is added up, and tasks of one class are one demand, in the order of a cluster that is made afresh.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from flowsched.cluster.machine_rows import FIXED, amounts, own_readings
from flowsched.cluster.settings import Settings
from flowsched.cluster.snapshot import Machine, Running, Service, Snapshot, Task, by_machine
from flowsched.cluster.task_class import TaskClass
from flowsched.pricing.linear.policy import CostModel
from flowsched.relations.topology import Topology, roles_of
from flowsched.relations.topology_counts import TopologyCounts
from flowsched.scale.bulk_input import BOUND_STEPS, BulkInput
from flowsched.scale.demand import Demand
from flowsched.scale.places import ANYWHERE
from flowsched.scale.price_table import checked_prices
from flowsched.scale.round import RoundSettings
from flowsched.scale.snapshot_adapter import ClassContext, SnapshotAdapter, class_key
from flowsched_models.runtime import HostFactory

Behaviours = Mapping[str, tuple[float, float]]
"""By task: sensitivity and pressure of one that is not as its profile says."""


def model_settings(settings: Settings) -> RoundSettings:
    """Of an operator's settings, those that bulk rounds of a cost model beside ``flow`` have; the rest as in ``solve``."""
    return RoundSettings(
        due_age_s=settings.due_age_s, scoring=settings.scoring, reservations=False, bound_steps=BOUND_STEPS
    )


def input_of_snapshot(
    snapshot: Snapshot,
    model: CostModel,
    hosts: HostFactory,
    settings: Settings,
    behaviours: Behaviours | None = None,
) -> BulkInput:
    """Tasks wait in the order in which they were submitted, those of one moment by their job.

    Memory is in MiB. Reservations are not looked at: a machine that is held is none of those that
    a task names. Raises :class:`flowsched.scale.price_table.EventError` for prices that are none.
    """
    frame = ClassContext.of(snapshot)
    adapter = SnapshotAdapter(frame, model, hosts, settings.headroom_weight, settings.slo_margin)
    given = behaviours or {}
    machines = sorted(snapshot.machines, key=lambda machine: machine.name)
    row = {machine.name: i for i, machine in enumerate(machines)}
    specs = [
        adapter.machine(machine, own) for machine, own in zip(machines, _services(snapshot, machines), strict=True)
    ]
    there = {r for spec in specs for r in spec.allocatable} | {r for t in snapshot.pending for r, _ in t.resources}
    resources = ["cpu", "memory", *sorted(there - {"cpu", "memory"})]
    column = {resource: i for i, resource in enumerate(resources)}
    allocatable = amounts(specs, resources)
    free = allocatable.copy()
    readings, limits = own_readings(specs, [f.name for f in model.features])
    for task_class, rows in _by_class(snapshot.running, adapter, given, row).items():
        count = np.bincount(rows, minlength=len(specs))
        for resource, amount in task_class.demand().items():
            if resource in column:
                free[:, column[resource]] -= count * amount
        effects = np.rint(checked_prices(model, task_class, ()).effects * FIXED).astype(np.int64)
        readings += count[:, None] * effects
    kinds = list(dict.fromkeys(spec.kind for spec in specs))
    number = {kind: i for i, kind in enumerate(kinds)}
    pending = sorted(snapshot.pending, key=lambda task: task.arrival)
    in_group = Counter(r.task.group for r in snapshot.running)
    return BulkInput(
        [machine.name for machine in machines],
        resources,
        allocatable,
        free,
        kinds,
        np.array([number[spec.kind] for spec in specs], dtype=np.int64),
        readings,
        limits,
        _relations(snapshot, machines, row),
        _demands(pending, adapter, frame, given),
        snapshot.task_groups,
        {group.name: in_group[group.name] for group in snapshot.task_groups},
        model_settings(settings),
        model,
        tuple(task.name for task in pending),
        snapshot.now_s,
    )


def _services(snapshot: Snapshot, machines: Sequence[Machine]) -> list[list[Service]]:
    found = by_machine(sorted(snapshot.services, key=lambda service: service.name))
    return [found[machine.name] for machine in machines]


def _by_class(
    running: Sequence[Running], adapter: SnapshotAdapter, behaviours: Behaviours, row: Mapping[str, int]
) -> dict[TaskClass, list[int]]:
    """The machine of every running task, by class."""
    found: dict[TaskClass, list[int]] = {}
    for r in running:
        task_class = adapter.task_class(r.task, r.width_milli, placed=True, behaviour=behaviours.get(r.task.name))
        found.setdefault(task_class, []).append(row[r.machine])
    return found


def _relations(snapshot: Snapshot, machines: Sequence[Machine], row: Mapping[str, int]) -> dict[str, TopologyCounts]:
    topology = Topology()
    for i, machine in enumerate(machines):
        topology.set_labels(i, dict(machine.labels))
    for relation in sorted(snapshot.relations, key=lambda relation: relation.name):
        topology.declare(relation, len(machines))
    for count in snapshot.relation_counts:
        topology.count(count.relation, row[count.machine], count.members, count.holders)
    for r in snapshot.running:
        if r.task.holds or r.task.joins:
            topology.book(roles_of(r.task.holds, r.task.joins), np.array([row[r.machine]], dtype=np.int64), 1)
    alive = np.ones(len(machines), dtype=np.bool_)
    return {name: topology.topology_counts(name, alive) for name in topology.relations}


def _demands(
    pending: Sequence[Task], adapter: SnapshotAdapter, frame: ClassContext, behaviours: Behaviours
) -> list[Demand]:
    by_class: dict[TaskClass, list[Task]] = {}
    for task in pending:
        found = adapter.task_class(task, task.widths_milli[0], behaviour=behaviours.get(task.name))
        by_class.setdefault(found, []).append(task)
    demands = []
    for known in sorted(by_class, key=class_key):
        tasks = by_class[known]
        demands.append(
            Demand(
                tasks[0].name,
                tuple(task.name for task in tasks),
                known.demand(),
                frame.places[known.places - 1] if known.places else ANYWHERE,
                known.sensitivity,
                known.pressure,
                known.holds,
                known.joins,
                known.group or None,
                since_s=tuple(task.submit_s for task in tasks),
                known=replace(known, needs=()),
            )
        )
    return demands
