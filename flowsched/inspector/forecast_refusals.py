"""Which machines a waiting task of a round of flow could not take, by which constraint, and what they are short of."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from flowsched.cluster.domain_counts import DomainCounts
from flowsched.cluster.snapshot import Task
from flowsched.gpu.devices import left_beside, suits, untouched
from flowsched.inspector import pod_facts, refusals
from flowsched.inspector.flow_task import FlowTask, counts_without
from flowsched.inspector.restored_round import RestoredRound, remembered
from flowsched.inspector.wait_cause import WaitCause
from flowsched.pricing.arrival import Arrival, Colocation, joined
from flowsched.pricing.flow_prices import FORBIDDEN
from flowsched.relations.relation import RelationKind
from flowsched.support.arrays import BoolArray, IntArray

GPU = "GPUs"
"""Stands among resources for devices that have as much left as a task asks for of each."""


@dataclass(frozen=True)
class _Machines:
    """What a task finds on every machine: arrays by machine, and by machine and resource."""

    names: tuple[str, ...]
    allowed: BoolArray
    cores: BoolArray
    suits: BoolArray
    """Where there are GPUs of a model that it may run on, if it asks for any."""
    known: BoolArray
    free: IntArray
    """What is free once all that starts now is there."""
    whole: IntArray
    """What would be free if all left that will."""
    sizes: IntArray
    """What would be free if it were empty."""
    by_relation: dict[str, str] = field(default_factory=dict)
    """Machines that a relation refuses, each with the reason."""
    by_price: dict[str, str] = field(default_factory=dict)
    """Machines with room that have no price, each with the reason."""


def machines_found(task: FlowTask) -> refusals.MachinesFound | None:
    """Look at every machine; None without the models."""
    if task.opened is None:
        return None
    own = task.opened.model.view.tasks[task.number]
    names, away = _all_machines(task)
    asked = [name for name, units in own.resources if units > 0]
    resources = ["cpu", "memory", *asked]
    units = dict(own.resources)
    asks = [task.width_milli, own.memory_mib, *(units[name] for name in asked)]
    if own.gpus is not None:
        resources.append(GPU)
        asks.append(own.gpus.count)
    found = _look(task, names, asked, asks)
    unlisted = np.array([name in away for name in names], dtype=np.bool_)
    return refusals.MachinesFound(
        names,
        resources,
        asks,
        found.free,
        found.whole,
        found.sizes,
        found.allowed & found.cores & found.suits,
        found.known,
        [
            *refusals.by_reason(names, away),
            refusals.Check(refusals.SELECTOR, ~found.allowed & ~unlisted),
            refusals.Check(refusals.NO_CORES, ~found.cores & ~unlisted),
            refusals.Check(refusals.GPU_MODEL, ~found.suits & ~unlisted),
            *refusals.by_reason(names, found.by_relation),
        ],
        refusals.by_reason(names, found.by_price),
    )


def _look(task: FlowTask, names: tuple[str, ...], asked: Sequence[str], asks: Sequence[int]) -> _Machines:
    opened, own = task.restored, task.own_machine
    found = _beside_all(opened, task.task_class, task.starting, names, tuple(asked), tuple(asks))
    machine = None if own is None else opened.model.view.machines[own].name
    if machine not in names:
        return found
    # Where it starts or is planned, it is beside all others.
    found = replace(
        found,
        free=found.free.copy(),
        whole=found.whole.copy(),
        sizes=found.sizes.copy(),
        by_price={name: why for name, why in found.by_price.items() if name != machine},
    )
    assert own is not None, "its name is known"
    _fill(found, names.index(machine), opened, task.task_class, task.others_on(own), asked, asks)
    return found


@remembered
def _beside_all(
    opened: RestoredRound,
    c: int,
    starting: int | None,
    names: tuple[str, ...],
    asked: tuple[str, ...],
    asks: tuple[int, ...],
) -> _Machines:
    """What a task of a class finds beside all that starts and is planned. ``starting``: one that relations do not count."""
    view, own = opened.model.view, opened.model.view.classes[c].task
    domain_counts = counts_without(opened, starting)
    count, resources = len(names), len(asks)
    shape = (count, resources)
    found = _Machines(
        names,
        allowed=np.zeros(count, dtype=np.bool_),
        cores=np.zeros(count, dtype=np.bool_),
        suits=np.zeros(count, dtype=np.bool_),
        known=np.array([name in opened.group_number for name in names], dtype=np.bool_),
        free=np.zeros(shape, dtype=np.int64),
        whole=np.zeros(shape, dtype=np.int64),
        sizes=np.zeros(shape, dtype=np.int64),
    )
    for i, name in enumerate(names):
        if not found.known[i]:
            continue
        g = opened.group_number[name]
        found.allowed[i] = own.machines is None or name in own.machines
        found.cores[i] = bool(view.groups[g].batch_cores)
        gpus = view.groups[g].machine.gpus
        found.suits[i] = own.gpus is None or suits(gpus, replace(own.gpus, count=1))
        refusal = domain_counts.refusal(own, name)
        if refusal is not None:
            holds = refusal.name in own.holds
            role = "holds" if holds and not _only_joined(domain_counts, refusal.name, own, name) else "joins"
            missing = domain_counts.domain(refusal, name) is None
            found.by_relation[name] = refusals.refused_by(refusal, role, missing)
        _fill(found, i, opened, c, opened.colocation(name), asked, asks)
    return found


def _fill(
    found: _Machines,
    i: int,
    opened: RestoredRound,
    c: int,
    others: Colocation,
    asked: Sequence[str],
    asks: Sequence[int],
) -> None:
    """Take note of what a task of a class finds on a machine beside others, and why it has no price there."""
    name = found.names[i]
    g, m = opened.group_number[name], opened.machine_number.get(name)
    found.free[i], found.whole[i], found.sizes[i] = _room(opened, c, g, others, asked)
    open_ = found.allowed[i] and found.cores[i] and found.suits[i] and (found.free[i] >= asks).all()
    if open_ and name not in found.by_relation:
        why = _closed(opened, c, g, m, others)
        if why is not None:
            found.by_price[name] = why


def cause_of(found: refusals.MachinesFound, facts: Mapping[str, Any]) -> WaitCause:
    """What keeps a task from starting now; ``facts``: ``refusals`` and ``shortage``."""
    if not found.candidates.any():
        return WaitCause.NOT_ALLOWED
    if facts["shortage"]["never"]:
        return WaitCause.NEVER
    if facts["refusals"]["available"]:
        return WaitCause.COST
    roomy = found.candidates & (found.free >= np.array(found.asks)).all(axis=1)
    if not roomy.any():
        return WaitCause.CAPACITY
    counts = {check.reason: int(check.refused.sum()) for check in found.after}
    if not any(counts.values()):
        return WaitCause.RELATION
    last = {refusals.SERVICE: WaitCause.SERVICE, refusals.UTILITY: WaitCause.UTILITY, refusals.RESERVED: WaitCause.HELD}
    most = max(counts, key=lambda reason: (counts[reason], reason))
    return last.get(most, WaitCause.PROMISED)


def _all_machines(task: FlowTask) -> tuple[tuple[str, ...], Mapping[str, str]]:
    """Machines of the part, and on Kubernetes all others; and what is known of those that the task may not use."""
    recorded = task.recorded
    names, filtered = task.part.machines, pod_facts.filtered(recorded, task.name)
    if filtered is None:
        return names, {}
    everywhere = tuple(sorted({*names, *pod_facts.all_machines(recorded)}))
    reasons = {name: refusals.OUTSIDE for name in everywhere if name not in names} | dict(filtered)
    allowed = task.plain.get("machines")
    if allowed is not None:
        for machine in pod_facts.drained_for_others(recorded, task.name):
            if machine not in allowed:
                reasons.setdefault(machine, refusals.RESERVED)
    return everywhere, reasons


def _room(
    opened: RestoredRound, c: int, group: int, colocation: Colocation, asked: Sequence[str]
) -> tuple[list[int], list[int], list[int]]:
    """What is free on a machine once all that starts now is there, what would be free if all left that will, and what if
    it were empty.
    """
    view = opened.model.view
    here = view.groups[group]
    starting = [(a, view.classes[a.task_class].task) for a in colocation if a.start_after == 0]
    stay = here.endless
    free = [
        here.free_milli - sum(a.width_milli for a, _ in starting),
        here.free_memory_mib - sum(other.memory_mib for _, other in starting),
    ]
    whole = [
        here.machine.cpu_milli - sum(s.width_milli for s in here.services) - sum(r.width_milli for r in stay),
        here.machine.memory_mib - sum(s.memory_mib for s in here.services) - sum(r.task.memory_mib for r in stay),
    ]
    size = [here.machine.cpu_milli, here.machine.memory_mib]
    for name in asked:
        taken = sum(dict(other.resources).get(name, 0) for _, other in starting)
        kept = sum(dict(r.task.resources).get(name, 0) for r in stay)
        free.append(here.free_resources.get(name, 0) - taken)
        whole.append(dict(here.machine.resources).get(name, 0) - kept)
        size.append(dict(here.machine.resources).get(name, 0))
    wanted, gpus = view.classes[c].task.gpus, opened.model.prices.gpus
    if wanted is not None and gpus is not None:
        kept_devices = left_beside(here.machine.gpus, [(r.task.gpus, r.devices) for r in stay])
        for left, column in (
            (gpus.left_after(group, colocation), free),
            (kept_devices, whole),
            (untouched(here.machine.gpus), size),
        ):
            column.append(sum(milli >= wanted.share_milli for milli in left))
    return free, whole, size


def stays(opened: RestoredRound, machines: Sequence[str]) -> list[dict[str, Any]]:
    """Of some machines: the services there, and the tasks that run without an end."""
    found = []
    for name in machines:
        services = [s.name for s in opened.model.view.snapshot.services if s.machine == name]
        tasks = [r.task.name for r in opened.residents(name) if r.task.endless]
        if services or tasks:
            found.append({"machine": name, "services": services, "tasks": tasks})
    return found


def _closed(opened: RestoredRound, c: int, group: int, machine: int | None, others: Colocation) -> str | None:
    """Why a machine with room has no price for a task of a class; None where it has one."""
    model, view = opened.model, opened.model.view
    together = joined(others, Arrival(c, 0, view.classes[c].task.widths_milli[0]))
    if model.prices.machine_cost(group, together) < FORBIDDEN:
        free = machine is None or model.machine_cost(machine, together) < FORBIDDEN
        return None if free else refusals.RESERVED
    predicted = model.prices.forecast(group, together)
    if predicted is None:
        return refusals.PROMISED if model.prices.welcome(group, c) else refusals.SERVICE
    margin, services = opened.settings.slo_margin, view.groups[group].services
    if any(p > margin * s.slo_us for p, s in zip(predicted.peak_p95_us, services, strict=True)):
        return refusals.SERVICE
    return refusals.UTILITY


def _only_joined(domain_counts: DomainCounts, name: str, task: Task, machine: str) -> bool:
    """Whether anti-affinity refuses only because an owner is there: what the task owns itself is kept."""
    relation = domain_counts.relations[name]
    if relation.kind is not RelationKind.APART or name not in task.joins or name not in task.holds:
        return name not in task.holds
    holder = replace(task, holds=(name,), joins=())
    return domain_counts.refusal(holder, machine) is None
