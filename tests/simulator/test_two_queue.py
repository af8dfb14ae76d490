"""The two-queue controller on hand-made readings, line by line of its Algorithm 1."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import pytest

from builders import CATALOGUE
from flowsched.node import (
    Allocation,
    Node,
    NodeService,
    NodeTask,
    Reading,
    ServiceReading,
    TaskGrant,
    TaskReading,
    TaskState,
)
from flowsched_models.document import InputError
from flowsched_simulator.node.baselines.queue_parts import (
    LONG,
    SHORT,
    CoreQueue,
    CoreSample,
    CpuQuota,
    Every,
    QueryRate,
    Stability,
)
from flowsched_simulator.node.baselines.two_queue import (
    PUBLISHED_HIGH,
    PUBLISHED_LOW,
    THROTTLED_CPUS,
    TwoQueue,
)
from flowsched_simulator.node.policies import make_controller
from flowsched_simulator.node.scenario_file import load_node_scenario
from flowsched_simulator.node.simulation import NodeOptions, NodeSimulation

TICK_S = TwoQueue.period_s
NODE = Node(CATALOGUE, "small", (0, 1, 2, 3))
JOBS = (*PUBLISHED_LOW, *PUBLISHED_HIGH)
LIMIT = 29_000 * 9 / 10
"""The true rate at which the design's rate, ten additions over nine gaps, is 29K."""


class Bench:
    """A machine made by hand: counters grow as they are told to, jobs end when they are told to."""

    def __init__(self, jobs: tuple[str, ...] = JOBS, controller: TwoQueue | None = None) -> None:
        self.controller = controller or TwoQueue(NODE)
        self.service = NodeService("memcached", "kv", 2, 1000.0, "client", (0, 1))
        self.jobs = list(jobs)
        self.profiles = dict.fromkeys(jobs, "scaling")
        self.qps = 5000.0
        self.busy = 0.1
        """CPUs used on core 0; core 1 has what a job of the low queue uses."""
        self.answers = True
        self.counts_cores = True
        self.ticks = 0
        self.queries = 0.0
        self.core_s = [0.0, 0.0, 0.0, 0.0]
        self.cpu_s = dict.fromkeys(jobs, 0.0)
        self.grants: dict[str, TaskGrant] = {}
        self.cores: tuple[int, ...] = (0, 1)
        self.log: list[tuple[float, Allocation]] = []

    @property
    def t_s(self) -> float:
        return self.ticks * TICK_S

    def reading(self) -> Reading:
        tasks = tuple(
            TaskReading(NodeTask(j, self.profiles.get(j, "scaling"), 1), TaskState.RUNNING, 0.0, self.cpu_s[j])
            for j in self.jobs
        )
        service = ServiceReading(self.service, round(self.queries) if self.answers else None)
        return Reading(self.t_s, (service,), tasks, tuple(self.core_s) if self.counts_cores else ())

    def step(self) -> None:
        """One tick, and what happens until the next."""
        decided = self.controller.decide(self.reading())
        if decided is not None:
            self.log.append((self.t_s, decided))
            self.grants.update(decided.tasks)
            self.cores = decided.services["memcached"].cores
        self.ticks += 1
        self.queries += self.qps * TICK_S
        self.core_s[0] += self.busy * TICK_S
        for job in self.jobs:
            grant = self.grants.get(job)
            if grant is not None and grant.run:
                used = min(1.0, 1.0 if grant.quota is None else grant.quota) * TICK_S
                self.cpu_s[job] += used
                if grant.cores == (1,):
                    self.core_s[1] += used

    def run(self, seconds: float, until: Callable[[], bool] = lambda: False) -> float:
        """So many seconds, or until something is true; how many it took."""
        began = self.t_s
        while self.t_s < began + seconds - 1e-9 and not until():
            self.step()
        return self.t_s - began

    def shares(self) -> bool:
        return self.cores == (0,)


def settled(qps: float = 5000.0, busy: float = 2.0) -> Bench:
    """A bench whose load has been steady for three seconds in which its cores were too busy to share one."""
    bench = Bench()
    bench.qps, bench.busy = qps, 2.0
    bench.run(3.0)
    assert not bench.shares()
    bench.busy = busy
    return bench


def test_the_first_decision_fills_both_queues() -> None:
    bench = Bench()
    bench.step()
    assert {job: (g.run, g.cores) for job, g in bench.grants.items()} == {
        "radix": (True, (1,)),
        "ferret": (True, (2,)),
        "dedup": (True, (3,)),
    }
    assert bench.cores == (0, 1)


def test_a_low_job_is_paused_at_the_next_decision_unless_the_load_is_known_to_be_low() -> None:
    bench = Bench()
    assert bench.run(1.0, lambda: "radix" in bench.grants and not bench.grants["radix"].run) == pytest.approx(0.125)
    assert bench.grants["radix"].cores == (1,)
    assert "load" in bench.grants["radix"].reason


def test_a_low_and_steady_load_gives_the_second_core_to_the_low_queue() -> None:
    bench = Bench()
    bench.run(3.0, bench.shares)
    assert bench.shares()
    assert bench.grants["radix"] == TaskGrant(True, (1,))
    assert 1.0 <= bench.t_s <= 1.5, "ten readings of 100 ms, and the next decision"


@pytest.mark.parametrize(("qps", "shares"), [(LIMIT - 300, True), (LIMIT + 300, False)])
def test_the_limit_of_29k_is_one_of_the_rate_as_it_is_counted(qps: float, shares: bool) -> None:
    bench = settled(qps=qps, busy=0.1)
    bench.run(5.0, bench.shares)
    assert bench.shares() is shares


@pytest.mark.parametrize(("busy", "shares"), [(0.44, True), (0.46, False)])
def test_the_cores_must_be_less_than_45_percent_busy_together(busy: float, shares: bool) -> None:
    bench = settled(busy=busy)
    bench.run(5.0, bench.shares)
    assert bench.shares() is shares


def test_the_shared_job_counts_so_it_runs_for_a_second_and_is_paused_for_a_second() -> None:
    bench = Bench()
    bench.run(12.0)
    changes = [t for (t, a), (_, b) in zip(bench.log[1:], bench.log, strict=False) if a.services != b.services]
    stints = [b - a for a, b in pairwise(changes)]
    assert len(stints) >= 6
    assert all(0.9 <= s <= 1.1 for s in stints), stints


def test_without_counters_of_cores_nothing_is_shared() -> None:
    bench = Bench()
    bench.counts_cores = False
    bench.run(5.0)
    assert not bench.shares()


def test_a_step_up_takes_the_core_back_within_three_tenths_of_a_second() -> None:
    bench = Bench()
    bench.run(3.0, bench.shares)
    bench.qps = 60_000.0
    assert bench.run(1.0, lambda: not bench.shares()) <= 0.3
    assert not bench.grants["radix"].run


def test_after_a_step_down_it_takes_a_second_until_the_load_counts_as_stable() -> None:
    bench = settled(qps=60_000.0, busy=0.1)
    bench.run(3.0)
    assert not bench.shares()
    bench.qps = 5_000.0
    assert 0.8 <= bench.run(5.0, bench.shares) <= 2.2


def test_a_service_that_does_not_answer_gets_both_cores_until_a_second_was_read() -> None:
    bench = Bench()
    bench.run(3.0, bench.shares)
    bench.answers = False
    assert bench.run(1.0, lambda: not bench.shares()) <= 0.3
    bench.run(1.0)
    bench.answers = True
    assert 1.0 <= bench.run(4.0, bench.shares) <= 2.3


def test_a_counter_that_starts_anew_is_no_load() -> None:
    bench = Bench()
    bench.run(3.0, bench.shares)
    bench.queries = 0.0
    assert bench.run(1.0, lambda: not bench.shares()) <= 0.3
    assert 0.7 <= bench.run(4.0, bench.shares) <= 2.3


def test_the_quota_stops_the_low_job_for_the_rest_of_its_second_without_pausing_it() -> None:
    quota = CpuQuota(0.6, 1.0)
    answers = [quota.throttled(k / 10, min(0.6, k / 10)) for k in range(11)]
    assert answers == [False] * 6 + [True] * 4 + [False]
    assert not quota.throttled(3.45, 0.6), "periods keep their phase without queries"
    assert quota.throttled(3.7, 1.2)
    assert not quota.throttled(4.0, 1.2)


def test_a_throttled_job_is_left_next_to_nothing_and_runs_on() -> None:
    bench = Bench()
    bench.run(30.0)
    throttled = [a.tasks["radix"] for _, a in bench.log if a.tasks["radix"].quota is not None]
    assert throttled
    assert all(g.run and g.quota == THROTTLED_CPUS for g in throttled)
    assert bench.cpu_s["radix"] <= 0.6 * 30.0 + 0.1


def test_the_next_jobs_take_the_cores_of_those_that_ended() -> None:
    bench = settled()
    bench.jobs.remove("dedup")
    bench.run(0.2)
    assert bench.grants["vips"].cores == (3,)
    bench.jobs.remove("ferret")
    bench.run(0.2)
    assert bench.grants["blackscholes"].cores == (2,)
    assert "canneal" not in bench.grants


def test_the_last_job_of_the_high_queue_gets_both_cores() -> None:
    bench = settled()
    bench.jobs = ["canneal", "freqmine"]
    bench.run(0.2)
    assert bench.grants["canneal"].cores == (2,)
    assert bench.grants["freqmine"].cores == (3,)
    bench.jobs = ["freqmine"]
    bench.run(0.2)
    assert set(bench.grants["freqmine"].cores) == {2, 3}


def test_the_low_queue_moves_to_a_free_core_of_the_high_queue_before_any_upgrade() -> None:
    bench = settled()
    bench.jobs = ["radix", "freqmine"]
    bench.run(0.2)
    assert bench.grants["freqmine"].cores == (2,)
    assert bench.grants["radix"].run
    assert bench.grants["radix"].cores == (3,)
    assert bench.cores == (0, 1)
    bench.jobs = ["radix"]
    bench.run(0.2)
    assert set(bench.grants["radix"].cores) == {2, 3}


def test_a_service_has_both_cores_once_the_low_queue_is_empty() -> None:
    bench = Bench()
    bench.run(3.0, bench.shares)
    bench.jobs.remove("radix")
    bench.run(0.3)
    assert bench.cores == (0, 1)
    bench.run(3.0)
    assert bench.cores == (0, 1)


def test_jobs_in_neither_queue_come_last_in_the_high_queue() -> None:
    bench = Bench(("new", "b", "a", "c"), TwoQueue(NODE, high=("a", "b"), low=("c",)))
    bench.step()
    assert {job: g.cores for job, g in bench.grants.items()} == {"a": (2,), "b": (3,), "c": (1,)}
    bench.jobs.remove("a")
    bench.run(0.2)
    assert bench.grants["new"].cores == (2,)


def test_queues_name_profiles_too() -> None:
    bench = Bench(("one", "two", "three"), TwoQueue(NODE, low=("serial",)))
    bench.profiles["two"] = "serial"
    bench.step()
    assert {job: g.cores for job, g in bench.grants.items()} == {"one": (2,), "two": (1,), "three": (3,)}


def test_a_job_that_comes_later_is_queued() -> None:
    bench = Bench(("a",), TwoQueue(NODE, high=("a",)))
    bench.run(1.0)
    assert set(bench.grants["a"].cores) == {2, 3}
    bench.jobs.append("late")
    bench.cpu_s["late"] = 0.0
    bench.run(0.2)
    assert "late" not in bench.grants, "both cores were given away"
    bench.jobs.remove("a")
    bench.run(0.2)
    assert bench.grants["late"].run


def test_services_that_may_have_all_cores_leave_none_for_the_high_queue() -> None:
    bench = Bench()
    bench.service = NodeService("memcached", "kv", 4, 1000.0, "client", (0, 1, 2, 3))
    with pytest.raises(InputError, match="two-queue: needs virtual CPUs for jobs alone"):
        bench.step()


def test_equal_readings_give_equal_decisions() -> None:
    one, other = Bench(), Bench()
    one.run(20.0)
    other.run(20.0)
    assert one.log == other.log


def test_the_published_run_is_reproduced() -> None:
    """Group 048's mean of three runs: 673.5 s without a point over the SLO; 26 to 37 pauses, all of radix."""
    scenario = load_node_scenario("node-4core-dynamic")
    controller = make_controller("two-queue", scenario)
    run = NodeSimulation(scenario, "two-queue", controller, NodeOptions(noise=0.0)).run()
    assert run.makespan_s == pytest.approx(673.5, rel=0.03)
    assert run.violations == 0
    by_name = {job.job: job for job in run.jobs}
    assert [name for name, job in by_name.items() if job.pauses] == ["radix"]
    assert 20 <= by_name["radix"].pauses <= 50
    assert {name: {s.cores for s in job.stretches} for name, job in by_name.items()} == {
        "radix": {(1,)},
        "ferret": {(2,)},
        "dedup": {(3,)},
        "vips": {(3,)},
        "blackscholes": {(3,)},
        "canneal": {(3,)},
        "freqmine": {(2,), (2, 3)},
    }


def rate_of(*added: int) -> QueryRate:
    """A window with these additions, 100 ms apart."""
    rate, total = QueryRate(), 0
    rate.read(0.0, 0)
    for k, more in enumerate(added):
        total += more
        rate.read((k + 1) / 10, total)
    return rate


def test_a_rate_counts_all_additions_over_the_time_between_the_first_and_the_last() -> None:
    rate = rate_of(*[100] * 12)
    assert rate.over(LONG) == pytest.approx(1000 * 10 / 9)
    assert rate.over(SHORT) == pytest.approx(1000 * 4 / 3)
    assert rate_of(100).over(LONG) == 0.0
    assert not rate_of(*[100] * 9).full


@pytest.mark.parametrize(("factor", "stable"), [(0.999, True), (1.001, False)])
def test_a_difference_of_more_than_30_percent_is_not_stable(factor: float, stable: bool) -> None:
    # Six additions of 1 and four of x: the rates are (6 + 4 x) / 0.9 and 4 x / 0.3. The first is 30 % below the second
    # where 6 + 4 x = 8.4 x.
    added = round(factor * 6 / 4.4 * 100_000)
    look = Stability()
    look.look(1.0, rate_of(*[100_000] * 6, *[added] * 4))
    assert look.stable is stable


def test_a_fall_is_a_difference_of_the_larger_rate_too() -> None:
    # As above the other way round: (6 + 4 x) / 0.9 x 0.7 = 4 x / 0.3 where 4.2 = 9.2 x.
    edge = 4.2 / 9.2 * 100_000
    looks = [Stability(), Stability()]
    for look, added in zip(looks, (1.001 * edge, 0.999 * edge), strict=True):
        look.look(1.0, rate_of(*[100_000] * 6, *[round(added)] * 4))
    assert [look.stable for look in looks] == [True, False]
    assert looks[1].qps == pytest.approx((600_000 + 4 * 0.999 * edge) / 0.9, rel=1e-4), "the larger of the two"


def test_a_stable_rate_is_told_every_second_look() -> None:
    look, told = Stability(), []
    for k in range(8):
        look.look(k * 0.075, rate_of(*[100 + k] * 10))
        told.append(round(look.qps / (10 / 9) / 10))
    assert look.stable
    assert told == [100, 100, 102, 102, 104, 104, 106, 106]


def test_one_reading_of_the_cores_in_ten_is_used() -> None:
    sample = CoreSample((0, 1))
    seen = []
    busy = 0.0
    for k in range(23):
        sample.read(k / 10, (busy, 0.0))
        busy += 0.1 if k % 10 == 3 else 0.0
        seen.append(sample.percent)
    assert seen[0] is None
    assert seen[1:] == [0.0] * 22, "the busy tenth was never one that counts"
    sample = CoreSample((0, 1))
    sample.read(0.0, (0.0, 0.0))
    sample.read(0.1, (0.04, 0.05))
    assert sample.percent == pytest.approx(90.0)


def test_a_clock_keeps_its_phase_and_does_not_make_up_for_late_ticks() -> None:
    every = Every(0.075)
    assert [k for k in range(13) if every.due(k * 0.025)] == [0, 3, 6, 9, 12]
    assert every.due(2.0)
    assert not every.due(2.05)


def test_a_queue_gives_each_job_one_core_and_the_first_what_is_left() -> None:
    queue = CoreQueue((2, 3))
    queue.waiting.extend(["a", "b", "c"])
    queue.fill()
    assert queue.started == ("a", "b")
    queue.remove_done({"b", "c"})
    assert [*queue.started] == ["b"]
    assert queue.free == 1
    queue.fill()
    assert (queue.cores_of("c"), queue.cores_of("b")) == ((2,), (3,))
    queue.remove_done({"b"})
    queue.upgrade("b")
    assert queue.cores_of("b") == (2, 3)
    assert queue.pop() == "b"
    assert queue.empty
