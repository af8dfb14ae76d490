"""A state that was kept while things happened, and one loaded from its snapshot in another order, decide the same."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from builders import (
    CATALOGUE,
    HUNGRY,
    LARGE,
    SCALING,
    SERIAL,
    SMALL,
    any_of,
    flow_scheduler,
    in_another_order,
    machine,
    service,
    some_of,
    task,
)
from flowsched.cluster.cluster_state import ClusterState
from flowsched.cluster.decision import Decisions, Scheduler, decider
from flowsched.cluster.events import (
    Event,
    MachineAdded,
    MachineRemoved,
    RoundDecided,
    TaskBound,
    TaskFinished,
    TaskMove,
    TaskPreempted,
    TasksMoved,
    TaskSubmitted,
    TaskWithdrawn,
)
from flowsched.cluster.settings import Settings
from flowsched.cluster.snapshot import Snapshot
from flowsched.cluster.task_rows import RUNNING
from flowsched.records.record_file import record_json
from flowsched.relations.relation import MACHINE, Relation, RelationKind, TaskGroup
from flowsched.round.linear.choice import chosen
from flowsched.round.linear.network_scheduler import NetworkScheduler
from flowsched.solvers import make_solver

PROFILES = st.sampled_from((SCALING, SERIAL, HUNGRY))
RELATIONS = (
    Relation("alone", RelationKind.APART),
    Relation("near", RelationKind.TOGETHER, "zone"),
    Relation("some", RelationKind.LIMIT, MACHINE, most=2),
    Relation("even", RelationKind.SPREAD, "zone"),
)
GROUPS = (TaskGroup("pair", 2), TaskGroup("three", 3))
CHANGES: Mapping[str, Any] = {"preemption": "lower-priority", "migration_moves": 2, "migration_price": 0.01}
WIDTHS = ((1000,), (1000,), (2000,), (1000, 2000), (3000,))


@st.composite
def arrivals(draw: st.DrawFn) -> dict[str, Any]:
    """What to make a task from, but for its name and when it comes."""
    found: dict[str, Any] = {"profile": draw(PROFILES), "widths_milli": draw(any_of(*WIDTHS))}
    found |= {"scale": draw(any_of(0.3, 1.0, 2.5)), "priority": draw(any_of(0, 0, 5)), "memory_mib": 500}
    found["run_class"] = draw(any_of("", "night", "day"))
    match draw(st.integers(0, 9)):
        case 0 | 1:
            found["holds"] = found["joins"] = draw(some_of(tuple(r.name for r in RELATIONS), 1, 2))
        case 2:
            found["group"] = draw(any_of("pair", "three"))
        case 3:
            found["endless"] = True
        case 4:
            found["machines"] = draw(any_of(("m1", "m2"), ("m3",)))
        case 5:
            found["wishes"] = (("m1", 0.5),)
    return found


HAPPENINGS = st.lists(
    st.tuples(any_of("join", "leave", "withdraw", "end", "end", "preempt"), st.integers(0, 10_000)), max_size=3
)


class KeptState(RuleBasedStateMachine):
    """Things happen; a round looks at what they have made of the state, and at what a snapshot of that is loaded as."""

    def scheduler(self) -> Scheduler:
        """One that has seen nothing yet, with the settings of this run."""
        raise NotImplementedError

    @initialize(count=st.integers(1, 4), changes=st.booleans())
    def begin(self, count: int, changes: bool) -> None:
        self.changes = CHANGES if changes else {}
        self.now_s, self.named = 0.0, 0
        self.state = ClusterState(CATALOGUE, relations=RELATIONS, task_groups=GROUPS)
        self.kept = self.scheduler()
        for number in range(count):
            self.happen("join", 3 * number + 1)

    @property
    def now(self) -> Snapshot:
        return self.state.snapshot(self.now_s)

    @rule(
        seconds=any_of(0.0, 0.001, 0.7, 3.0, 11.0, 40.0),
        happenings=HAPPENINGS,
        wanted=st.lists(arrivals(), max_size=4),
        age_s=any_of(0.0, 0.0, 3.0, 700.0),
        order=st.randoms(use_true_random=False),
        delay_s=any_of(0.0, 0.3),
    )
    def decide(
        self,
        seconds: float,
        happenings: list[tuple[str, int]],
        wanted: list[dict[str, Any]],
        age_s: float,
        order: random.Random,
        delay_s: float,
    ) -> None:
        self.now_s += seconds
        for what, number in happenings:
            self.happen(what, number)
        for fields in wanted:
            self.named += 1
            # Anywhere in the order of names.
            name = f"{'tamz'[7 * self.named % 4]}{self.named}"
            self.state.apply(TaskSubmitted(task(name, submit_s=self.now_s - age_s, **fields)), self.now_s)
        now = self.now
        loaded = ClusterState.of(in_another_order(now, order))

        assert loaded.snapshot(self.now_s) == now.in_order()
        for state in (self.state, loaded):
            assert told_by_rows(state) == told_by(now)
        decided = decider(self.kept)(self.state, self.now_s)
        again = decider(self.scheduler())(loaded, self.now_s)

        assert outcome(again) == outcome(decided)
        assert record_bytes(again) == record_bytes(decided)
        self.carry_out(decided, delay_s)

    def happen(self, what: str, number: int) -> None:
        now = self.now
        names = {
            "leave": [m.name for m in now.machines[1:]],
            "withdraw": [t.name for t in now.pending],
            "end": [r.task.name for r in now.running],
            "preempt": [r.task.name for r in now.running],
        }
        event: Event | None = None
        if what == "join":
            event = joining(f"m{number % 6}", number, {m.name for m in now.machines})
        elif names[what]:
            name = names[what][number % len(names[what])]
            match what:
                case "leave":
                    event = MachineRemoved(name)
                case "withdraw":
                    event = TaskWithdrawn(name)
                case "end":
                    event = TaskFinished(name, number % 5 == 0)
                case "preempt":
                    event = TaskPreempted(name, number % 2 == 0)
        if event is not None:
            self.state.apply(event, self.now_s)

    def carry_out(self, decided: Decisions, delay_s: float) -> None:
        now_s, apply = self.now_s, self.state.apply
        for left in decided.preemptions or ():
            apply(TaskPreempted(left.task, left.keeps_work), now_s)
        moves = tuple(
            TaskMove(m.task, m.machine, m.width_milli, m.threads, m.cores, now_s + m.pause_s, m.keeps_work)
            for m in decided.moves or ()
        )
        if moves:
            apply(TasksMoved(moves), now_s)
        for p in decided.placements:
            apply(TaskBound(p.task, p.machine, p.width_milli, p.threads, p.cores, now_s + delay_s), now_s)
        apply(RoundDecided(decided.plan, decided.reservations, decided.by_choice), now_s)


def joining(name: str, number: int, there: set[str]) -> Event | None:
    """A machine of this name; None where there is one already."""
    labels = (("zone", "ab"[number // 2 % 2]),) if number % 5 else ()
    services = (service(f"cache-{name}", name, qps=20_000.0 + number),) if number % 4 == 0 else ()
    kind = LARGE if number % 7 == 0 else SMALL
    return None if name in there else MachineAdded(machine(name, kind, labels=labels), services)


def told_by(now: Snapshot) -> tuple[Any, ...]:
    """What waits, what runs where, what is free of each machine, and how many tasks join each relation."""
    cores = {m.name: bool(now.batch_cores(m)) for m in now.machines}
    used = {m.name: sum(r.width_milli for r in now.running if r.machine == m.name) for m in now.machines}
    cpu = {name: free if cores[name] else -used[name] for name, free in now.free_milli().items()}
    joined = Counter(name for r in now.running for name in r.task.joins)
    return (
        {t.name for t in now.pending},
        {r.task.name: r.machine for r in now.running},
        {name: [cpu[name], free] for name, free in now.free_memory_mib().items()},
        {r.name: joined[r.name] for r in now.relations},
    )


def told_by_rows(state: ClusterState) -> tuple[Any, ...]:
    """The same, as the rows have it that readers follow."""
    rows = state.rows
    rows.settle()
    machines, tasks = rows.machines, rows.tasks
    assert [machines.names[row] for row in machines.order().tolist()] == sorted(rows.there)
    running = np.flatnonzero(tasks.state == RUNNING)
    return (
        {tasks.name(row) for row in tasks.waiting().tolist()},
        {tasks.name(row): machines.name(int(tasks.machine[row])) for row in running.tolist()},
        {machines.name(row): machines.free[row].tolist() for row in machines.order().tolist()},
        {r.name: machines.relation_store.members(r.name) for r in RELATIONS},
    )


def outcome(decided: Decisions) -> tuple[Any, ...]:
    """All that a round says, but for how long it took."""
    return (
        decided.placements,
        tuple(decided.postponements),
        decided.reservations,
        decided.preemptions,
        decided.moves,
        decided.certificate,
        decided.look_again_s,
        decided.counts,
    )


def record_bytes(decided: Decisions) -> str:
    """The record, without how long it took and without what became of arrays that are kept from round to round."""
    assert decided.record is not None
    parts = [{k: v for k, v in part.items() if k != "timings"} for part in decided.record["parts"]]
    return record_json({k: v for k, v in decided.record.items() if k not in ("timings", "upkeep")} | {"parts": parts})


class ForecastPrices(KeptState):
    def scheduler(self) -> Scheduler:
        return flow_scheduler(pricings=1000, improvement_forecasts=60, exact_limit=0, **self.changes)


class LinearPrices(KeptState):
    def scheduler(self) -> Scheduler:
        changes = replace(Settings(), **self.changes)
        return NetworkScheduler(chosen("flow-network"), make_solver("ortools"), keep_records=True, changes=changes)


EXAMPLES = max(1, settings().max_examples // 20)
"""Fifty in a thorough search."""
TestForecastPrices = ForecastPrices.TestCase
TestForecastPrices.settings = settings(max_examples=EXAMPLES, stateful_step_count=8)
TestLinearPrices = LinearPrices.TestCase
TestLinearPrices.settings = settings(max_examples=EXAMPLES, stateful_step_count=8)
