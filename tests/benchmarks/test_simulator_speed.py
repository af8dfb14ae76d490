"""The peer of the benchmark does the same as our own rule: each job waits as long."""

from __future__ import annotations

import pytest

from benchmarks.simulator_speed import World, flowsched_waits_s, jobs_of, simpy_waits_s, table


@pytest.mark.parametrize(("load", "waits"), [(0.5, False), (1.5, True)])
def test_simpy_and_fcfs_let_each_job_wait_as_long(load: float, waits: bool) -> None:
    world = World(machines=6, jobs=200, load=load, seed=3)

    ours = flowsched_waits_s(world, "fcfs")

    assert ours == pytest.approx(simpy_waits_s(world), abs=1e-6)
    assert (max(ours) > 60.0) == waits, "the load decides whether there is a queue to compare"


def test_a_world_offers_the_load_that_was_asked_for() -> None:
    jobs = jobs_of(World(machines=50, jobs=40_000, load=0.8, seed=0))
    work = sum(job.run_s * job.cores for job in jobs)

    assert work / (50 * 8 * jobs[-1].submit_s) == pytest.approx(0.8, rel=0.03)


def test_the_table_has_a_line_per_engine() -> None:
    row = {"engine": "flow", "events": 400, "mean_waiting_s": 1.0, "most_waiting_s": 9.0}
    text = table([row | {"timings": {"cpu_s": 4.0, "peak_mib": 100.0}}])

    assert text.splitlines()[1].split() == ["flow", "400", "4.0", "100", "100", "1.00", "9.0"]
