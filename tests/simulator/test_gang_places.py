"""Gangs on machines as they stand, in random clusters with relations: held against brute force under every policy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import permutations

import numpy as np
import pytest

from builders import flow_scheduler, lasting, machine, permits, running, snapshot
from flowsched.cluster.decision import Scheduler
from flowsched.cluster.settings import Settings
from flowsched.cluster.snapshot import Snapshot, Task
from flowsched.pricing.linear.policies.registry import COST_MODELS
from flowsched.relations.relation import MACHINE, Relation, RelationKind, TaskGroup
from flowsched_simulator import EngineOptions
from flowsched_simulator.policies import network_scheduler

RELATIONS = (
    Relation("one-switch", RelationKind.TOGETHER, "switch"),
    Relation("one-zone", RelationKind.TOGETHER, "zone"),
    Relation("two-per-switch", RelationKind.LIMIT, "switch", most=2),
    Relation("one-each", RelationKind.LIMIT, MACHINE),
    Relation("even", RelationKind.SPREAD, "switch"),
    Relation("alone", RelationKind.APART, MACHINE),
    Relation("alone-in-zone", RelationKind.APART, "zone"),
)
HARD = (179, 258, 567, 782, 904)
"""Draws in which greedy placing failed, or a reservation let in what relations forbid."""


def drawn(seed: int) -> Snapshot:
    """Up to 12 machines in switches and zones, what runs there, and a gang of up to five members at time 1."""
    rng = np.random.default_rng([5, seed])
    cluster = []
    for k in range(int(rng.integers(2, 13))):
        labels = [(key, str(rng.choice(list("abc")))) for key in ("switch", "zone") if rng.random() < 0.9]
        cluster.append(machine(f"m{k:02}", labels=tuple(labels)))
    chosen = [RELATIONS[i] for i in rng.choice(len(RELATIONS), int(rng.integers(1, 4)), replace=False)]
    names = tuple(r.name for r in chosen)
    exclusive = tuple(r.name for r in chosen if r.kind is RelationKind.APART)
    there = []
    for m in cluster:
        left = 4
        for k in range(int(rng.integers(0, 4))):
            cores = int(rng.integers(1, 5))
            if cores > left:
                break
            left -= cores
            roles = {"joins": names if rng.random() < 0.25 else (), "holds": exclusive if rng.random() < 0.1 else ()}
            one = lasting(f"on-{m.name}-{k}", cores, float(rng.choice([30, 60, 90])), memory_mib=10, **roles)
            there.append(running(one, m.name))
    size, alike = int(rng.integers(2, 6)), bool(rng.random() < 0.5)
    widths = [int(rng.integers(1, 5))] * size if alike else [int(rng.integers(1, 5)) for _ in range(size)]
    gang = []
    for k, cores in enumerate(widths):
        role = "both" if alike else str(rng.choice(["both", "both", "both", "holds", "joins"]))
        roles = {"holds": names if role != "joins" else (), "joins": names if role != "holds" else ()}
        gang.append(lasting(f"g-{k}", cores, 10.0, group="g", memory_mib=10, widths_milli=(1000 * cores,), **roles))
    groups = (TaskGroup("g", int(rng.integers(2, size + 1))),)
    return snapshot(gang, cluster, running=there, relations=tuple(chosen), task_groups=groups, now_s=1.0)


def fits(view: Snapshot) -> bool:
    """Whether enough members could start now, in any order and at any places; ``TimeoutError`` where that takes too long."""
    needed, members = view.task_groups[0].minimum, view.pending
    seen: set[frozenset[tuple[int, str]]] = set()

    def go(free: Mapping[str, int], there: tuple[tuple[Task, str], ...], placed: frozenset[tuple[int, str]]) -> bool:
        if len(placed) == needed:
            return True
        if placed in seen:
            return False
        seen.add(placed)
        if len(seen) > 20_000:
            raise TimeoutError
        for k in sorted(set(range(len(members))) - {k for k, _ in placed}):
            task, width = members[k], members[k].widths_milli[0]
            for name, left in free.items():
                if left >= width and all(permits(r, task, name, there, view.machines) for r in view.relations):
                    more = {**free, name: left - width}
                    if go(more, (*there, (task, name)), placed | {(k, name)}):
                        return True
        return False

    return go(view.free_milli(), tuple((r.task, r.machine) for r in view.running), frozenset())


def may_come(view: Snapshot, there: Sequence[tuple[Task, str]], placed: Sequence[tuple[Task, str]]) -> bool:
    """Whether tasks can come one after the other, in some order, with every relation kept at every step."""
    return any(
        all(
            permits(r, *place, (*there, *order[:k]), view.machines)
            for k, place in enumerate(order)
            for r in view.relations
        )
        for order in permutations(placed)
    )


def scheduler(policy: str, rules: Settings) -> Scheduler:
    if policy == "flow":
        return flow_scheduler(due_age_s=rules.due_age_s, due_runs=rules.due_runs, exact_limit=rules.exact_limit)
    return network_scheduler(policy, rules, EngineOptions(rules), None)


@pytest.mark.parametrize("overdue", [True, False], ids=["overdue", "not overdue"])
@pytest.mark.parametrize("policy", ["flow", *COST_MODELS])
def test_a_gang_starts_if_and_only_if_brute_force_finds_places(policy: str, overdue: bool, exploring: bool) -> None:
    rules = Settings(due_age_s=0.5 if overdue else 1e6, due_runs=0.0, exact_limit=0)
    tried = {True: 0, False: 0}
    for seed in (*range(200 if exploring else 12), *HARD):
        view = drawn(seed)
        try:
            expected = fits(view)
        except TimeoutError:
            continue
        tried[expected] += 1
        decisions = scheduler(policy, rules).decide(view)
        started = [(next(t for t in view.pending if t.name == p.task), p.machine) for p in decisions.placements]
        assert len(started) >= view.task_groups[0].minimum if expected else not started, seed
        there = [(r.task, r.machine) for r in view.running]
        assert may_come(view, there, started), seed
    assert min(tried.values()) > 2


@pytest.mark.parametrize("policy", ["flow", *COST_MODELS])
def test_what_is_reserved_for_a_gang_could_start_together(policy: str, exploring: bool) -> None:
    """Once all that runs has ended; and there is a reservation if brute force finds places then."""
    rules = Settings(due_age_s=0.5, due_runs=0.0, exact_limit=0)
    reserved = 0
    for seed in (*range(200 if exploring else 12), *HARD):
        view = drawn(seed)
        try:
            ever = fits(replace(view, running=()))
        except TimeoutError:
            continue
        decisions = scheduler(policy, rules).decide(view)
        if decisions.placements:
            continue
        held = [(next(t for t in view.pending if t.name == r.task), r.machine) for r in decisions.reservations]
        # What only fits beside what runs is reserved as relations stand, if that is found.
        beside = [(r.task, r.machine) for r in view.running]
        assert len(held) == view.task_groups[0].minimum if ever else not held or may_come(view, beside, held), seed
        assert any(may_come(view, there, held) for there in (beside, [])), seed
        reserved += ever
    assert reserved > 2
