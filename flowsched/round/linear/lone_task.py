"""The place of a single task that no relation or task group concerns, without a network: rounds of one task are frequent.

A bulk round puts it on the cheapest machine with room, and of equal ones on the first by rank. That takes two looks at the
machines' arrays; a round's cluster, groups and network take two milliseconds however small it is. Whatever is not that
plain is left to the round, and so is the record: it is made by that round when it is asked for.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import reduce
from operator import add
from typing import Any

import numpy as np

from flowsched.cluster.decision import Certificate
from flowsched.cluster.machine_arrays import FIXED
from flowsched.cluster.machine_rows import MachineRows
from flowsched.cluster.task_class import TaskClass
from flowsched.round.linear.bulk_outcome import BulkOutcome, BulkPlacement
from flowsched.round.linear.bulk_prices import BulkPrices
from flowsched.round.linear.bulk_round import decide
from flowsched.round.linear.bulk_rows import bulk_rows
from flowsched.round.linear.linear_round import RoundSettings
from flowsched.round.linear.lone_kernels import lone_place
from flowsched.round.linear.places import Places
from flowsched.solvers import Solver, make_solver

_ANYWHERE, _ALIKE = np.zeros(0, dtype=np.bool_), np.zeros(0)
"""No difference between machines."""


@dataclass(frozen=True, eq=False)
class LoneRecord:
    """The record of a lone task's round: that of the ordinary round on the same input, with what this one measured."""

    machines: MachineRows
    """As they were then."""
    task_class: TaskClass
    places: Places
    """By row of the machines."""
    task: str
    settings: RoundSettings
    solver: str
    placement: BulkPlacement
    timings_ms: Mapping[str, float] = field(default_factory=dict)

    def parts(self, priority: int | None = None) -> list[dict[str, Any]]:
        """Its one part of the record. Raises ``RuntimeError`` if the ordinary round decides otherwise, which is a fault."""
        outcome = self._outcome(keep_record=True)
        if outcome.placements != (self.placement,):
            raise RuntimeError(f"{self.placement} was decided for a lone task, and a round says {outcome.placements}")
        assert outcome.record is not None, "the round was asked for its record"
        (part,) = outcome.record(priority)
        return [{**part, "timings": dict(self.timings_ms)}]

    def certify(self) -> Certificate | None:
        """The certificate of the ordinary round."""
        return self._outcome(keep_record=False).certificate

    def _outcome(self, keep_record: bool) -> BulkOutcome:
        cluster = bulk_rows(self.machines, [self.task_class], [self.places], [[self.task]])
        return decide(cluster, self.settings, solver=make_solver(self.solver), keep_record=keep_record)


def decide_lone(
    machines: MachineRows,
    task_class: TaskClass,
    places: Places,
    task: str,
    settings: RoundSettings,
    *,
    solver: Solver,
    clock: Callable[[], float] = time.perf_counter,
    keep_record: bool = False,
) -> BulkOutcome | None:
    """What ``bulk_round.decide`` decides, for a lone task that takes any place rather than wait; None
    if that has to be asked.

    Arrays of ``places`` are by row of the machines, which are only read.
    """
    began = clock()
    if not _is_plain(task_class, settings):
        return None
    placement = _placement(machines, task_class, places, task, settings)
    if placement is None:
        return None
    timings = {"decide": (clock() - began) * 1e3}
    record = LoneRecord(
        machines.copy(relations=False), task_class, places, task, settings, solver.name, placement, timings
    )
    return BulkOutcome((placement,), (), {}, record.parts if keep_record else None, timings, record.certify)


def _is_plain(task_class: TaskClass, settings: RoundSettings) -> bool:
    return (
        not task_class.bound
        and not task_class.counted
        and task_class.max_cost == math.inf
        and not settings.reservations
        and not settings.exact_tasks
        and settings.settle_looks > 0
    )


def _placement(
    machines: MachineRows, task_class: TaskClass, places: Places, task: str, settings: RoundSettings
) -> BulkPlacement | None:
    """The machine that the task gets; None where there is none, or where a network may break the tie in another way.

    Machines of one group are ranked by a round as they are here; those of different ones maybe in another way.
    """
    column, demand = machines.column, task_class.demand()
    bandwidth = np.array([kind.bandwidth for kind in machines.kinds])
    row, rival, rival_cost = lone_place(
        settings.spreads((False,)),
        column("cpu"),
        column("memory"),
        machines.order(),
        np.array([column(resource) for resource in demand], dtype=np.int64),
        np.array(list(demand.values()), dtype=np.int64),
        machines.allocatable,
        machines.free,
        machines.readings,
        machines.limits,
        machines.kind,
        bandwidth,
        float(task_class.sensitivity),
        float(task_class.pressure),
        _ANYWHERE if places.allowed is None else places.allowed,
        _ALIKE if places.slowness is None else places.slowness,
        _ALIKE if places.preference is None else places.preference,
    )
    if row < 0:
        return None
    terms = {name: value.item() for name, value in places.terms(np.array([row])).items()}
    factor = bandwidth[machines.kind[row]].item()
    pressure, sensitivity, slope = (machines.readings[row] / FIXED).tolist()
    paid = (
        task_class.sensitivity * (pressure * factor),
        task_class.pressure * (sensitivity * factor),
        task_class.pressure * slope,
    )
    terms |= {feature.term: value for feature, value in zip(BulkPrices.lasting, paid, strict=True)}
    there = rival_cost < math.inf
    return BulkPlacement(
        task,
        machines.names[row] or "",
        reduce(add, terms.values(), 0.0),
        terms,
        machines.names[rival] if there else None,
        rival_cost if there else None,
    )
