"""The benchmark of scaled workloads: its scenarios are what they say, its tables count right."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

sys.path.append(str(Path(__file__).parent.parent.parent))  # benchmarks are no part of what is installed

from benchmarks.scaled_workloads import FOUR_CORES, Case, JobError, best_of, cases, error_table, table, told
from benchmarks.variations import NAMES
from flowsched_simulator import Options, load_scenario, load_schedule, replay
from flowsched_simulator.workload import workload
from flowsched_simulator.world import ModelError


def test_workloads_are_scaled_and_copied_as_they_say() -> None:
    every = cases([0, 100], 2, [1, 3], 1, 1)
    assert [(c.name, c.copies, c.seed) for c in every][:4] == [(NAMES[0], 1, s) for s in (0, 1, 100, 101)]
    assert len(every) == 16
    scenario = Case(NAMES[0], 3, 5, 0, 1).scenario()
    assert (len(scenario.machines), len(scenario.tasks), len(scenario.services)) == (9, 21, 3)
    scales = [t.scale for t in scenario.tasks]
    assert all(0.6 <= s <= 1.6 for s in scales)
    assert len(set(scales)) == 21


def test_who_is_told_the_times_meets_the_same_machines() -> None:
    """The published plan takes as long on machines that differ from the models as in models that know."""
    scenario = load_scenario(NAMES[0])
    schedule = load_schedule("group-048")
    for error in (ModelError(0.2, 3), JobError(0.2, 3)):
        there = replay(scenario, schedule, Options(model_error=error))
        known = replay(told(scenario, error), schedule)
        assert known.makespan_s == pytest.approx(there.makespan_s, abs=1e-6)
        assert [t.scale for t in workload(told(scenario, error), 0)] == [t.scale for t in scenario.tasks]
    assert replay(scenario, schedule, Options(model_error=0.2, seed=3)).makespan_s == pytest.approx(
        replay(scenario, schedule, Options(model_error=ModelError(0.2, 3))).makespan_s
    )
    assert JobError(0.2, 3).factor("dedup", "a") == JobError(0.2, 3).factor("dedup", "b") != 1.0


def test_a_baseline_in_one_variant_is_never_better_than_in_its_best() -> None:
    scenario = load_scenario(NAMES[0])
    assert best_of(scenario, "lpt") <= best_of(scenario, "lpt", FOUR_CORES) < float("inf")


def test_tables_count_and_average() -> None:
    def row(flow: float, fcfs: float, lpt: float, plan: float | None) -> dict[str, Any]:
        return {
            "scenario": NAMES[0],
            "copies": 1,
            "flow_s": flow,
            "fcfs_s": fcfs,
            "lpt_s": lpt,
            "fcfs_four_s": 2 * fcfs,
            "lpt_four_s": 2 * lpt,
            "plan_s": plan,
            "over_slo": 0.0,
            "slowest_round_ms": flow,
        }

    line = table([row(80.0, 100.0, 120.0, 80.0), row(110.0, 200.0, 100.0, 100.0)]).splitlines()[2].split()
    beside = [NAMES[0], "1", "2", "2/2", "52.5", "15", "1/2", "5.0"]
    assert line == [*beside, "5.0", "5", "10.0", "12", "0", "110", "50"]
    assert table([row(80.0, 100.0, 120.0, None)]).splitlines()[2].split()[8] == "-"
    errors = [{"scenario": NAMES[0], "factor": "job", "believes_s": b, "knows_s": 100.0} for b in (104.0, 110.0)]
    assert error_table(errors).splitlines()[1].split() == [NAMES[0], "20%", "job", "2", "7.0", "7", "10.0"]
