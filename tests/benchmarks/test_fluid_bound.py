"""No simulated run is done before the bounds say, and small bounds are what one can work out by hand."""

from __future__ import annotations

import re
import sys
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.fluid_bound import BoundError, FluidBound, plain_bound
from benchmarks.service_need import service_need
from builders import CATALOGUE, HUNGRY, SCALING, SERIAL, SMALL
from flowsched.node import LOWEST_WEIGHT, NodeService, NodeTask, TaskGrant
from flowsched_models.extras import install_extra
from flowsched_models.machine import MachineType
from flowsched_simulator.node.machine import NodeMachine
from flowsched_simulator.node.wave import GivenWave

PAIRS = MachineType("pairs", vcpus=4, memory_mib=16_000, speed=1.25, bandwidth=0.8, smt=True)
"""Two physical cores with two hardware threads each: 0 and 2 are siblings."""
WITH_PAIRS = replace(CATALOGUE, machine_types={**CATALOGUE.machine_types, PAIRS.name: PAIRS})
CACHE = NodeService("cache", "cache", 2, 1000.0, "plain", (0, 1))
INTERVAL_S = 7.0


def without_load(t_s: float) -> tuple[float, ...]:
    return ()


def one(profile: str, scale: float = 1.0) -> NodeTask:
    return NodeTask(f"{profile}-{scale:g}", profile, 4, scale)


def bound(tasks: list[NodeTask], kind: str = "small", cores: int = 4) -> float:
    return FluidBound(WITH_PAIRS, kind, cores, (), tasks).makespan_s(without_load)


def test_a_job_alone_takes_its_work_over_all_cores() -> None:
    assert bound([one("scaling")]) == pytest.approx(SCALING.work_s / 4)
    assert plain_bound(CATALOGUE, "small", 4, [one("scaling")], without_load) == pytest.approx(
        SCALING.work_s / 4, abs=1e-5
    )


def test_serial_work_uses_one_core_and_its_parallel_work_comes_before_or_after_it() -> None:
    assert bound([one("serial")]) == pytest.approx(30.0 + 30.0 / 4)
    assert plain_bound(CATALOGUE, "small", 4, [one("serial")], without_load) == pytest.approx(
        SERIAL.work_s / 4, abs=1e-5
    )


def test_other_jobs_fill_the_cores_beside_serial_work() -> None:
    # 90 s beside the 30 s of serial work, more for what both do to each other; the last 10 s of `scaling` on all cores.
    both = bound([one("serial"), one("scaling")])
    assert (60.0 + 100.0) / 4 < both < 1.02 * (60.0 + 100.0) / 4


def test_neighbours_that_disturb_each_other_cost_time_only_where_they_must_meet() -> None:
    serial_s = HUNGRY.work_s * HUNGRY.serial_fraction
    alone_s = serial_s + (HUNGRY.work_s - serial_s) / 4
    assert bound([one("hungry")]) == pytest.approx(alone_s), "a job does not disturb itself"
    both_s = bound([one("hungry"), one("hungry", 2.0)])
    assert 3 * HUNGRY.work_s / 4 < both_s <= 3 * alone_s + 1e-6, "one after the other no two meet"


def test_busy_siblings_cost_what_the_model_says() -> None:
    # Two physical cores, both threads busy: each runs at 1 - (1 - gain) / 2 of the speed that it has alone.
    speed = WITH_PAIRS.speed("scaling", "pairs")
    beside = 1.0 - (1.0 - SCALING.smt_gain) / 2.0
    assert bound([one("scaling")], "pairs") == pytest.approx(SCALING.work_s / speed / (4 * beside))


def test_services_get_the_cpu_that_their_load_needs() -> None:
    cpus = 50_000.0 * CATALOGUE.services["cache"].cpu_per_kqps / 1000.0
    need = service_need(CATALOGUE, [CACHE], [GivenWave((50_000.0,))], INTERVAL_S)
    assert need(30.0) == pytest.approx((30.0 * cpus,))
    plain_s = plain_bound(CATALOGUE, "small", 4, [one("scaling")], need)
    assert plain_s == pytest.approx(SCALING.work_s / (4.0 - cpus), abs=1e-5)
    fluid_s = FluidBound(CATALOGUE, "small", 4, [CACHE], [one("scaling")]).makespan_s(need)
    felt = SCALING.sensitivity * SMALL.bandwidth * CATALOGUE.services["cache"].pressure
    assert plain_s < fluid_s <= SCALING.work_s * (1.0 + felt) / (4.0 - cpus) + 1e-6


def test_a_need_is_the_integral_of_its_wave() -> None:
    need = service_need(CATALOGUE, [CACHE, CACHE], [GivenWave((10_000.0, 1e9)), GivenWave((0.0,))], INTERVAL_S)
    per_s = 10.0 * CATALOGUE.services["cache"].cpu_per_kqps
    assert need(INTERVAL_S) == pytest.approx((7.0 * per_s, 0.0))
    assert need(10.0) == pytest.approx((7.0 * per_s + 3.0 * 2.0, 0.0)), "no service uses more than its cores"
    assert need(3.0) == pytest.approx((3.0 * per_s, 0.0))


def test_a_factor_on_work_lengthens_the_bound() -> None:
    slow = FluidBound(CATALOGUE, "small", 4, (), [one("scaling")], {"scaling-1": 1.5}).makespan_s(without_load)
    assert slow == pytest.approx(1.5 * bound([one("scaling")]))


def test_no_jobs_take_no_time() -> None:
    assert bound([]) == pytest.approx(0.0)


def test_a_machine_with_too_many_configurations_is_refused() -> None:
    with pytest.raises(BoundError, match="more than 200000 configurations"):
        FluidBound(CATALOGUE, "large", 8, (), [one("serial", k) for k in range(1, 8)])


def test_without_room_for_jobs_there_is_no_bound() -> None:
    with pytest.raises(BoundError, match="no job is ever done"):
        plain_bound(CATALOGUE, "small", 4, [one("scaling")], lambda t: (4.0 * t,))
    with pytest.raises(BoundError, match="no job is ever done"):
        full = FluidBound(CATALOGUE, "small", 4, [replace(CACHE, cores=(0, 1, 2, 3))], [one("scaling")])
        full.makespan_s(lambda t: (4.0 * t + 1.0,))


def test_without_scipy_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "scipy.optimize", None)
    with pytest.raises(BoundError, match=re.escape(install_extra("solvers"))):
        bound([one("scaling")])


@st.composite
def cases(draw: st.DrawFn) -> dict[str, Any]:
    """A few jobs, a load, and a plan that knows nothing: what every job has changes every few seconds."""
    profiles = draw(st.lists(st.sampled_from(["scaling", "serial", "hungry"]), min_size=1, max_size=3))
    tasks = [
        NodeTask(f"{p}-{k}", p, draw(st.sampled_from([1, 2, 4])), draw(st.floats(0.1, 0.6)))
        for k, p in enumerate(profiles)
    ]
    cores = st.sets(st.integers(0, 3), min_size=1).map(lambda s: tuple(sorted(s)))
    grant = st.tuples(st.booleans(), cores, st.sampled_from([0.1, 0.5, 1.0]))
    plan = draw(st.lists(st.tuples(*[grant] * len(tasks)), min_size=1, max_size=6))
    waves = draw(st.lists(st.floats(0.0, 90_000.0), min_size=1, max_size=4))
    return {"tasks": tasks, "plan": plan, "waves": tuple(waves), "kind": draw(st.sampled_from(["small", "pairs"]))}


@settings(max_examples=60, deadline=None)
@given(cases())
def test_no_run_that_leaves_the_service_its_cpu_is_done_before_the_bounds(case: dict[str, Any]) -> None:
    tasks, plan, wave = case["tasks"], case["plan"], GivenWave(case["waves"])
    machine = NodeMachine(WITH_PAIRS, case["kind"], (0, 1, 2, 3), (CACHE,))
    for task in tasks:
        machine.submit(task)
    end_s, step = 0.0, 0
    while machine.tasks():
        machine.set_load("cache", wave.qps(int(machine.now_s // INTERVAL_S)))
        # In the end all run, so that every plan comes to an end.
        for task, (run, cores, weight) in zip(tasks, plan[step % len(plan)], strict=True):
            if task.name in machine.tasks():
                machine.set_grant(task.name, TaskGrant(run or step > 20, cores, weight * LOWEST_WEIGHT))
        ended = machine.advance(machine.now_s + 3.5)
        end_s = ended[-1][0] if ended else end_s
        step += 1
    need = service_need(WITH_PAIRS, [CACHE], [wave], INTERVAL_S)
    plain_s = plain_bound(WITH_PAIRS, case["kind"], 4, tasks, need)
    fluid_s = FluidBound(WITH_PAIRS, case["kind"], 4, [CACHE], tasks).makespan_s(need)
    assert plain_s <= fluid_s + 1e-4
    assert fluid_s <= end_s * (1.0 + 1e-6) + 1e-4
