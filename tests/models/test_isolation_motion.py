"""The models of the two scheduling classes: what must hold for every workload."""

from __future__ import annotations

import math
import os
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flowsched_models.isolation.admission import Room
from flowsched_models.isolation.bandwidth import delays, steadiness
from flowsched_models.isolation.fair_share import fair_rules, group_shares
from flowsched_models.isolation.simulation import (
    Background,
    Motion,
    Reservations,
    Shares,
    admission_of,
    reserve,
    simulate,
)
from flowsched_models.isolation.workload import Demand, Loop, Task, draw

EXACT = Loop(wakeup_us=0.0, work_deviation=0.0)
"""Without noise."""
few = settings(max_examples=25, deadline=None)


def hungry(name: str, critical: bool, cpus: float = 0.86) -> Task:
    return Task(name, critical, cpus, duration_s=20.0)


def used(motion: Motion, name: str, begin_s: float = 2.0) -> float:
    """CPUs of a task, after all have started."""
    rows = [k for k, index in enumerate(motion.demand.task_of) if motion.demand.tasks[index].name == name]
    windows = motion.used_s[rows][:, int(begin_s / motion.window_s) :]
    return float(windows.sum() / (windows.shape[1] * motion.window_s))


def reserved(demand: Demand, cpus: float, period_s: float = 0.1) -> Reservations:
    return Reservations(reserve(demand, 0.0, np.full((len(demand.task_of), 1), cpus)), period_s)


# The constant bandwidth server


@pytest.mark.parametrize("rivals", [0, 3])
def test_no_task_gets_more_than_its_runtime_in_every_period(rivals: int) -> None:
    """Even on an idle machine: what is left over is not given to those who have used up theirs."""
    tasks = [hungry("greedy", True), *(hungry(f"rival-{k}", False) for k in range(rivals))]
    demand = draw(tasks, EXACT, 1)
    motion = simulate(demand, 1, reserved(demand, 0.4), window_s=0.2)
    # Any 200 ms touch at most three periods of a server.
    assert motion.used_s[0].max() <= 3 * 0.04 + 1e-9
    assert used(motion, "greedy") == pytest.approx(0.4, abs=0.002)
    if rivals:
        assert motion.used_s[1:].sum() / 20.0 == pytest.approx(0.6, abs=0.01)


def test_the_fair_class_cannot_hurt_a_reservation() -> None:
    tasks = [Task("critical", True, 0.4, duration_s=20.0), *(hungry(f"rival-{k}", False) for k in range(6))]
    demand = draw(tasks, EXACT, 1)
    alone = simulate(draw(tasks[:1], EXACT, 1), 2, reserved(draw(tasks[:1], EXACT, 1), 0.44))
    beside = simulate(demand, 2, reserved(demand, 0.44))
    assert delays(beside, [0]).max_ms == pytest.approx(0.0, abs=1e-6)
    assert np.allclose(alone.used_s[0], beside.used_s[0], atol=1e-9)


def test_a_runtime_of_exactly_the_need_makes_jobs_late_when_the_need_varies() -> None:
    """As was measured: with runtime = need every job of a task is late, with a tenth more none is."""
    loop = Loop(wakeup_us=25.0, work_deviation=0.0015)
    demand = draw([Task("critical", True, 0.4, duration_s=60.0)], loop, 3)
    tight, wide = (simulate(demand, 2, reserved(demand, cpus)) for cpus in (0.4, 0.44))
    assert delays(tight, [0]).late > 100
    assert delays(wide, [0]).late == 0


@few
@given(
    shares=st.lists(st.floats(0.02, 0.5), min_size=1, max_size=6),
    pieces=st.sampled_from([1, 2, 5]),
    seed=st.integers(0, 99),
)
def test_on_one_core_all_deadlines_are_met_when_the_sum_is_admitted(
    shares: list[float], pieces: int, seed: int
) -> None:
    """The theorem for EDF; each job may be served in several periods of its server."""
    total = sum(shares)
    scale = min(1.0, 0.95 / total)
    tasks = [Task(f"t{k}", True, share * scale, duration_s=5.0) for k, share in enumerate(shares)]
    demand = draw(tasks, EXACT, seed)
    reservations = Reservations(reserve(demand, 1e-6), EXACT.period_s / pieces)
    assert admission_of(reservations, Room(1, 0.951)).admitted
    late = delays(simulate(demand, 1, reservations), range(len(tasks)))
    assert late.late == 0
    assert late.jobs + late.open >= 50 * len(tasks) - len(tasks)


def test_on_several_cores_the_earliest_deadlines_run() -> None:
    """Three tasks of 0.6 on two cores: admitted, and never late by more than a period."""
    demand = draw([hungry(f"t{k}", True, 0.6) for k in range(3)], EXACT, 2)
    motion = simulate(demand, 2, reserved(demand, 0.62))
    found = delays(motion, range(3))
    assert motion.used_s.sum() / 20.0 == pytest.approx(1.8, abs=0.01)
    assert found.max_ms < 100.0


# The fair class


@pytest.mark.parametrize("share", [0.3, 0.5, 0.75])
def test_on_one_core_groups_get_cpu_time_by_weight(share: float) -> None:
    demand = draw([hungry("critical", True), hungry("background", False)], EXACT, 0)
    motion = simulate(demand, 1, Shares(share, Background.GROUP))
    assert used(motion, "critical") == pytest.approx(share, abs=0.02)
    assert used(motion, "critical") + used(motion, "background") == pytest.approx(1.0, abs=1e-6)


def test_threads_in_the_root_count_each_by_itself() -> None:
    """75 % beside 1024 is 3 of 3 + 2 where two threads of 1024 are beside it."""
    tasks = [hungry("critical", True), hungry("b1", False), hungry("b2", False)]
    demand = draw(tasks, EXACT, 0)
    in_root = simulate(demand, 1, Shares(0.75, Background.ROOT))
    in_group = simulate(demand, 1, Shares(0.75, Background.GROUP))
    assert used(in_root, "critical") == pytest.approx(0.6, abs=0.02)
    assert used(in_group, "critical") == pytest.approx(0.75, abs=0.02)


def test_a_group_is_shared_evenly_inside() -> None:
    tasks = [hungry("c1", True), hungry("c2", True), hungry("b", False)]
    motion = simulate(draw(tasks, EXACT, 0), 1, Shares(0.8, Background.GROUP))
    assert used(motion, "c1") == pytest.approx(0.4, abs=0.02)
    assert used(motion, "c2") == pytest.approx(0.4, abs=0.02)


def test_without_groups_all_get_the_same() -> None:
    demand = draw([hungry(f"t{k}", k == 0) for k in range(4)], EXACT, 0)
    motion = simulate(demand, 1, Shares(None))
    assert [used(motion, f"t{k}") for k in range(4)] == pytest.approx([0.25] * 4, abs=0.01)


def test_no_core_idles_while_a_thread_waits() -> None:
    demand = draw([hungry(f"t{k}", k < 3) for k in range(9)], EXACT, 5)
    for isolation in (Shares(0.95), Shares(None), reserved(demand, 0.3)):
        motion = simulate(demand, 4, isolation)
        assert motion.used_s[:, 1:].sum() == pytest.approx(4 * 19.0, abs=0.05)


def test_a_weight_of_95_percent_delays_what_a_reservation_does_not() -> None:
    critical = [Task(f"c{k}", True, cpus, duration_s=20.0) for k, cpus in enumerate((0.3, 0.5, 0.6))]
    demand = draw([*critical, *(hungry(f"b{k}", False) for k in range(6))], Loop(), 7)
    by_weight = delays(simulate(demand, 2, Shares(0.95)), range(3))
    by_deadline = delays(simulate(demand, 2, Reservations(reserve(demand, 0.1), 0.1)), range(3))
    equal = delays(simulate(demand, 2, Shares(None)), range(3))
    assert by_deadline.late == 0
    assert by_deadline.mean_ms < by_weight.mean_ms < equal.mean_ms


def test_the_tunables_grow_with_the_cores_and_stop_at_eight() -> None:
    one, four, many = fair_rules(1), fair_rules(4), fair_rules(64)
    assert (one.latency_s, four.latency_s, many.latency_s) == pytest.approx((0.006, 0.018, 0.024))
    assert four.granularity_s == pytest.approx(0.00225)
    assert group_shares(0.95) == pytest.approx(19456)


# Both


@few
@given(
    usages=st.lists(st.tuples(st.booleans(), st.floats(0.01, 0.86)), min_size=1, max_size=8),
    cores=st.integers(1, 4),
    relative=st.booleans(),
    seed=st.integers(0, 99),
    way=st.sampled_from(["equal", "shares", "per task", "deadline"]),
)
def test_cpu_time_is_conserved(
    usages: list[tuple[bool, float]], cores: int, relative: bool, seed: int, way: str
) -> None:
    tasks = [Task(f"t{k}", critical, cpus, duration_s=3.0) for k, (critical, cpus) in enumerate(usages)]
    demand = draw(tasks, Loop(relative_sleep=relative), seed)
    isolation = {
        "equal": Shares(None),
        "shares": Shares(0.95),
        "per task": Shares(0.9, Background.GROUP, group_per_task=True),
        "deadline": Reservations(reserve(demand, 0.1), 0.1),
    }[way]
    motion = simulate(demand, cores, isolation, window_s=0.25)
    assert motion.used_s.sum(axis=0).max() <= cores * 0.25 + 1e-9
    assert motion.used_s.max() <= 0.25 + 1e-9
    done = ~np.isnan(motion.end_s)
    assert (motion.delay_s[done] >= -1e-9).all()
    for thread in range(len(tasks)):
        finished = motion.work_s[thread][done[thread]].sum()
        begun = np.nansum(motion.work_s[thread])
        assert finished - 1e-9 <= motion.used_s[thread].sum() <= begun + 1e-9
        ends = motion.end_s[thread][done[thread]]
        assert (np.diff(ends) >= motion.work_s[thread][1 : len(ends)] - 1e-9).all()


def test_the_same_seed_gives_the_same_bytes_and_tasks_do_not_disturb_each_other() -> None:
    tasks = [Task("a", True, 0.3, 0.1, 20.0), Task("b", False, 1.4, 0.3, 20.0, threads=2)]
    loop = Loop(interval_s=5.0)
    one, two, fewer = draw(tasks, loop, 4), draw(tasks, loop, 4), draw(tasks[:1], loop, 4)
    assert one.usage_cpus.shape == (3, 4)
    assert np.array_equal(one.usage_cpus, two.usage_cpus)
    assert np.array_equal(one.wakeup_s[0], fewer.wakeup_s[0])
    assert not np.array_equal(one.usage_cpus, draw(tasks, loop, 5).usage_cpus)
    first, second = (simulate(d, 2, Shares(0.95)).end_s for d in (one, two))
    assert first.tobytes() == second.tobytes()


def test_drawn_usage_has_the_mean_and_deviation_of_the_task() -> None:
    demand = draw([Task("a", True, 0.3, 0.06, 4000.0)], Loop(period_s=1.0, interval_s=2.0), 0)
    assert demand.usage_cpus.mean() == pytest.approx(0.3, abs=0.005)
    assert demand.usage_cpus.std() == pytest.approx(0.06, abs=0.005)


def test_a_workload_must_end() -> None:
    with pytest.raises(ValueError, match="ends"):
        draw([Task("a", True, 0.3)], EXACT, 0)
    with pytest.raises(ValueError, match="usage"):
        draw([Task("a", True, 0.0, duration_s=1.0)], EXACT, 0)


def test_the_models_say_the_same_without_the_compiler() -> None:
    code = (
        "import hashlib\n"
        "from flowsched_models.isolation.simulation import Reservations, Shares, reserve, simulate\n"
        "from flowsched_models.isolation.workload import Loop, Task, draw\n"
        "tasks = [Task(f't{k}', k < 3, 0.2 + 0.1 * k, 0.05, 4.0) for k in range(6)]\n"
        "demand = draw(tasks, Loop(), 3)\n"
        "for way in (Shares(0.95), Shares(None), Reservations(reserve(demand, 0.1), 0.1)):\n"
        "    found = simulate(demand, 2, way)\n"
        "    print(hashlib.sha256(found.end_s.tobytes() + found.used_s.tobytes()).hexdigest(), found.switches)\n"
    )
    said = [
        subprocess.run(
            [sys.executable, "-c", code],
            check=True,
            capture_output=True,
            text=True,
            env={**os.environ, "NUMBA_DISABLE_JIT": flag},
        ).stdout
        for flag in ("0", "1")
    ]
    assert said[0] == said[1]
    assert len(set(said[0].splitlines())) == 3


# What is said of a run


def made(used_s: list[list[float]], release_s: list[list[float]], end_s: list[list[float]]) -> Motion:
    """A run of one task as it might have been: 0.2 CPUs, intervals of 4 s, windows of 1 s."""
    demand = draw([Task("a", True, 0.2, duration_s=8.0)], Loop(interval_s=4.0), 0)
    work = np.full_like(np.array(release_s), 0.02)
    return Motion(demand, 1.0, np.array(used_s), np.array(release_s), work, np.array(end_s), 0, 0)


def test_steadiness_is_taken_within_intervals() -> None:
    """A need that changes from 0.2 to 0.4 CPUs is no unsteadiness; the window at the border is left out."""
    found = steadiness(made([[0.0, 0.2, 0.2, 0.2, 9.0, 0.4, 0.3, 0.5]], [[0.0]], [[0.02]]), [0])
    assert found.intervals == pytest.approx((0.0, 10.0))
    assert found.deviation == pytest.approx(math.sqrt(50.0))


def test_delays_count_from_the_release() -> None:
    nan = math.nan
    found = delays(made([[0.0] * 8], [[0.0, 0.1, 0.2, 7.0, 7.95, nan]], [[0.02, 0.13, 0.34, nan, nan, nan]]), [0])
    assert (found.jobs, found.open) == (3, 2)
    assert found.mean_ms == pytest.approx((0 + 10 + 120) / 3)
    assert found.max_ms == pytest.approx(120)
    # 140 ms after its release, and one that is still open 1 s after it; the last may yet be in time.
    assert found.late == 2
