"""What chose each option of a plan: it is known of every one, and holds."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from round_parts import begun

from builders import CATALOGUE, SCALING, flow_scheduler, machines, rounds, running, snapshot, task
from flowsched.cluster.settings import Settings
from flowsched.cluster.snapshot import PlannedStart, Snapshot
from flowsched.inspector.summary import STAGE_WORDS
from flowsched.inspector.task_sentences import stage_sentences
from flowsched.network.network import Network
from flowsched.records import level_types
from flowsched.round.origin import PlanStage
from flowsched.round.scheduler import FlowScheduler, make_plan
from flowsched.solvers import make_solver
from flowsched.solvers.solver import Solution

KINDS = [("serial", 2.0), ("scaling", 1.0), ("serial", 1.0), ("scaling", 3.0), ("scaling", 2.0)]


class Counting:
    """A solver that counts what it is asked."""

    def __init__(self) -> None:
        self.inner = make_solver("ortools")
        self.name, self.capabilities = self.inner.name, self.inner.capabilities
        self.asked = 0

    def solve(self, network: Network, *, time_limit_s: float | None = None) -> Solution:
        self.asked += 1
        return self.inner.solve(network, time_limit_s=time_limit_s)


def batch(widths: tuple[int, ...] = (1000, 2000)) -> Snapshot:
    """Jobs that came together, on two machines of which one is busy."""
    jobs = [task(f"j{k}", CATALOGUE.jobs[p], scale=s, widths_milli=widths) for k, (p, s) in enumerate(KINDS)]
    return snapshot(jobs, machines(2), running=[running(task("r"), "m1", progress=0.25)])


def stages(part: Any) -> dict[str, str]:
    return {entry["task"]: entry["stage"] for entry in part["decided_by"]}


@settings(max_examples=40)
@given(rounds(max_machines=3, max_pending=5), st.sampled_from(("completion", "makespan")), st.sampled_from((1, 3)))
def test_every_option_has_an_origin_that_holds(now: Snapshot, objective: str, slots: int) -> None:
    chosen = Settings(objective=objective, slots=slots)
    solver = Counting()
    round_ = begun(now, chosen)
    deciding, _ = make_plan(round_, solver, chosen)

    assert round_.work.solves == solver.asked >= len(deciding.passes)
    changed = 0
    for t, option in enumerate(deciding.plan.options):
        if option is None:
            continue
        origin = deciding.origins[t]
        changed += origin.stage in (PlanStage.MOVE, PlanStage.SWAP)
        if origin.stage is PlanStage.NETWORK:
            assert origin.number is not None
            booked = dict(deciding.passes[origin.number].booked)
            assert booked[t][:3] == option[:3]
        assert origin.stage is not PlanStage.GANG
    assert changed <= 2 * round_.work.improved


@pytest.mark.parametrize("objective", ["completion", "makespan"])
def test_nothing_comes_from_an_improvement_that_there_was_not(objective: str) -> None:
    decisions = flow_scheduler(objective=objective, improved_tasks=0, exact_limit=0).decide(batch())

    assert decisions.record is not None
    (part,) = decisions.record["parts"]
    assert part["counts"]["improved"] == 0
    assert set(stages(part).values()) == {"network"}
    assert part["counts"]["decided_by_network"] == len(part["placements"]["task"]) > 0


def test_the_solves_of_a_round_are_those_of_all_its_plans() -> None:
    solver = Counting()
    decisions = FlowScheduler(solver, Settings(objective="makespan", exact_limit=0)).decide(batch())

    assert decisions.counts is not None
    assert decisions.counts["solves"] == solver.asked > decisions.counts["passes"] > 0


def test_the_plan_of_the_last_round_is_told_from_a_new_one() -> None:
    jobs = [task(f"t{k}", SCALING, submit_s=0.0, widths_milli=(4000,)) for k in range(3)]
    # Each alone on a machine: no plan ends sooner, so this one is kept.
    carried = tuple(PlannedStart(f"t{k}", f"m{3 - k}", 0, 4000) for k in range(3))
    now = replace(snapshot(jobs, machines(3), now_s=10.0), plan=carried)
    record = flow_scheduler(objective="makespan", exact_limit=0).decide(now).record

    assert record is not None
    assert set(stages(record["parts"][0]).values()) == {"carried"}


def test_a_start_before_its_turn_keeps_the_network_that_chose_its_machine() -> None:
    record = flow_scheduler(objective="makespan", exact_limit=0).decide(batch()).record
    assert record is not None
    (part,) = record["parts"]
    planned = {entry["task"]: entry["slot"] for entry in part["plan"]}
    starts = set(part["placements"]["task"])

    assert {e["task"] for e in part["decided_by"] if e.get("early")} == {t for t in starts if planned[t]}


def test_each_stage_is_in_the_record_and_has_words() -> None:
    assert set(get_args(level_types.Stage)) == set(PlanStage)
    assert set(STAGE_WORDS) == set(PlanStage)
    told = {
        stage
        for stage in PlanStage
        if stage is not PlanStage.NETWORK and stage_sentences({"decided_by": {"stage": stage, "early": False}})
    }
    # Of a preemption the sentences say more.
    assert told == set(PlanStage) - {PlanStage.NETWORK, PlanStage.PREEMPTION}
