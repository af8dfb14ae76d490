"""Records of baselines: what they decided is in them, and costs are those that `flow` would give it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from flowsched.cluster.settings import Settings
from flowsched.cluster.snapshot import Snapshot
from flowsched.inspector.record_view import Part, RecordView
from flowsched.records.record_file import pack_record, read_record
from flowsched.records.snapshot_source import snapshot_of_record
from flowsched.round.scheduler import FlowScheduler, solve
from flowsched.solvers import make_solver
from flowsched_simulator import EngineOptions, Options, load_scenario, simulate
from flowsched_simulator.baseline_record import NO_SOLVER, RecordedBaseline
from flowsched_simulator.baselines import Granting
from flowsched_simulator.baselines.granting import VARIANTS
from flowsched_simulator.baselines.registry import BASELINES, variants_of

SETTINGS = Settings(exact_limit=0)
SHARED = Granting("declared", "shared")


def first_snapshot(copies: int = 1) -> Snapshot:
    """The bundled scenario at time 0, its machines several times."""
    scenario = load_scenario("parsec-memcached-2024")
    machines = [replace(m, name=f"{m.name}-{i}") for i in range(copies) for m in scenario.machines]
    services = [
        replace(s, name=f"{s.name}-{i}", machine=f"{s.machine}-{i}") for i in range(copies) for s in scenario.services
    ]
    return Snapshot(0.0, scenario.catalogue, tuple(machines), tuple(services), (), scenario.tasks)


def record_of(name: str, granting: Granting, snapshot: Snapshot) -> tuple[Part, RecordView]:
    scheduler = RecordedBaseline(BASELINES[name](granting, 0), granting.label, SETTINGS)
    decisions = scheduler.decide(snapshot)
    plain = decisions.record
    assert plain is not None
    recorded = RecordView(read_record(pack_record(plain), name))
    (part,) = recorded.parts
    assert {p.task: (p.machine, p.width_milli, p.threads, p.cores) for p in part.placements} == {
        p.task: (p.machine, p.width_milli, p.threads, p.cores) for p in decisions.placements
    }
    assert [(w.task, w.reason) for w in part.waiting] == [(p.task, p.reason) for p in decisions.postponements]
    return part, recorded


@pytest.mark.parametrize("copies", [1, 40])
@pytest.mark.parametrize("name", sorted(BASELINES))
def test_every_variant_s_record_opens(name: str, copies: int) -> None:
    """Forty copies are groups of many machines, of which a search looks at some only."""
    snapshot = first_snapshot(copies)
    for granting in variants_of(name):
        part, recorded = record_of(name, granting, snapshot)
        assert (recorded.policy, recorded.solver, recorded.plain["variant"]) == (name, NO_SOLVER, granting.label)
        assert list(part.first.faults()) == []
        assert (part.plain["passes"], part.plain["decided_by"]) == ([], [])
        assert part.certificate is None
        assert {p.task for p in part.placements} | {w.task for w in part.waiting} == set(part.tasks)
        assert {e["task"]: e["machine"] for e in part.plain["plan"]} == {
            **dict.fromkeys(part.tasks),
            **{p.task: p.machine for p in part.placements},
        }
        for entry in (*part.placements, *part.waiting):
            assert entry.cost is not None
            assert sum(entry.terms.values()) == pytest.approx(entry.cost)
        for placed in part.placements:
            assert bool(placed.terms) == (placed.machine in part.plain["machine_costs"])


def test_costs_are_those_that_flow_gives_the_same_placement() -> None:
    """One task, one machine, one width: there `flow` and a baseline decide the same."""
    snapshot = first_snapshot()
    compared = 0
    for task in snapshot.pending:
        for machine in snapshot.machines:
            only = replace(task, widths_milli=(task.request_milli,), machines=(machine.name,))
            lone = replace(snapshot, pending=(only,))
            part, _ = record_of("best-fit", SHARED, lone)
            ours = FlowScheduler(make_solver("ortools"), SETTINGS).decide(lone)
            assert [p.machine for p in part.placements] == [p.machine for p in ours.placements]
            for theirs, our in zip(part.placements, ours.placements, strict=True):
                assert theirs.cost == pytest.approx(our.cost)
                assert dict(theirs.terms) == pytest.approx(dict(our.terms))
                compared += 1
    assert compared >= 7


def test_cores_that_flow_would_not_give_have_no_cost() -> None:
    part, _ = record_of("fcfs", Granting(1, "own"), first_snapshot())
    partial_cores = [p for p in part.placements if len(p.cores or ()) == 1 and p.machine != "node-a-2core-0"]
    assert partial_cores
    for placed in partial_cores:
        assert (placed.cost, dict(placed.terms)) == (0.0, {})
        assert placed.machine not in part.plain["machine_costs"]


def test_two_policies_can_be_put_side_by_side() -> None:
    """In the first round of a run both see the same snapshot."""
    scenario = load_scenario("parsec-memcached-2024")
    engine = EngineOptions(SETTINGS, keep_records=True)
    runs = {
        p: simulate(scenario, p, options=Options(keep_records=True), engine=engine) for p in ("flow", "kube-default")
    }
    firsts = [RecordView(run.records[0]).parts[0] for run in runs.values()]
    assert firsts[0].plain["snapshot"] == firsts[1].plain["snapshot"]
    assert firsts[0].classes == firsts[1].classes
    assert firsts[0].groups == firsts[1].groups
    for run in runs.values():
        assert [r["round"] for r in run.records] == list(range(len(run.rounds)))


def test_the_records_are_those_of_the_best_variant() -> None:
    scenario = load_scenario("parsec-memcached-2024")
    plain = simulate(scenario, "fcfs")
    sunk: list[tuple[str, int, Any]] = []
    options = Options(record_sink=lambda policy, number, recipe: sunk.append((policy, number, recipe())))
    kept = simulate(scenario, "fcfs", options=options, engine=EngineOptions(keep_records=True))

    assert plain.jobs == kept.jobs
    assert plain.variant == kept.variant in {v.label for v in VARIANTS}
    assert kept.records == ()
    assert [(policy, number) for policy, number, _ in sunk] == [("fcfs", n) for n in range(len(kept.rounds))]
    assert {record["variant"] for _, _, record in sunk} == {kept.variant}
    placed = {p.task: p.machine for _, _, record in sunk for p in RecordView(record).parts[0].placements}
    assert placed == {job.job: job.machine for job in kept.jobs}


def test_flow_can_solve_what_a_baseline_saw() -> None:
    snapshot = first_snapshot()
    _, recorded = record_of("lpt", SHARED, snapshot)
    again = solve(snapshot_of_record(recorded.plain, "lpt"), settings=SETTINGS)
    assert again.placements == solve(snapshot, settings=SETTINGS).placements
