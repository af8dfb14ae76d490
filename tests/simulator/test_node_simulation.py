"""The loop around one machine: what a controller sees, what is written down, and what it may not ask for."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from itertools import pairwise

import pytest
from node_world import Scripted, memcached, run, run_all, scenario

from flowsched.node import LOWEST_WEIGHT, Allocation, Deadline, Reading, ServiceGrant, TaskGrant, TaskState
from flowsched.node.flow_node import FlowNode
from flowsched_models.runtime import HostFactory, ServiceLoad
from flowsched_simulator.node.machine import NodeMachine
from flowsched_simulator.node.simulation import IDLE_S, ControllerError, NodeOptions, NodeSimulation, waves_of
from flowsched_simulator.node.wave import DrawnWave, GivenWave, LoadRange

QUIET = NodeOptions(noise=0.0)


def alternately(on_s: float, off_s: float, cores: tuple[int, ...] = (2, 3)) -> Scripted:
    """Every task runs for a while, and is paused for a while."""

    def rule(reading: Reading) -> Allocation:
        runs = reading.t_s % (on_s + off_s) < on_s - 1e-6
        return Allocation(tasks={t.task.name: TaskGrant(runs, cores) for t in reading.tasks})

    return Scripted(rule)


# Tasks without a low weight.


def test_who_cannot_be_given_a_low_weight_does_not_get_it() -> None:
    world = scenario(jobs={"radix": 0.05, "vips": 0.05})
    world = replace(world, tasks=tuple(replace(t, shares=t.name != "vips") for t in world.tasks))

    def rule(reading: Reading) -> Allocation:
        return Allocation(tasks={t.task.name: TaskGrant(True, (1, 2), LOWEST_WEIGHT) for t in reading.tasks})

    result = run(rule, of=world)
    assert {job.job: {s.weight for s in job.stretches} for job in result.jobs} == {
        "radix": {LOWEST_WEIGHT},
        "vips": {1.0},
    }
    # At an equal weight beside it, p95 suffers.
    assert max(w.model_p95_us for w in result.windows) > 2.0 * max(
        w.model_p95_us for w in run(run_all(), of=world).windows
    )


def test_a_deadline_takes_from_a_service_no_more_than_it_is_owed() -> None:
    """Beside a task of full weight on the other cores, it once stood for weight without end on all of them."""
    world = scenario(jobs={"radix": 0.05, "vips": 0.1}, wave=(20_000.0, 20_000.0))
    owed = Deadline(5_000.0, 20_000.0)

    def rule(reading: Reading) -> Allocation:
        grants = {"radix": TaskGrant(True, (0, 1, 2, 3), deadline=owed), "vips": TaskGrant(True, (2, 3))}
        return Allocation(tasks={t.task.name: grants[t.task.name] for t in reading.tasks})

    result = run(rule, of=world, options=QUIET)
    without = run(run_all(), of=world, options=QUIET)
    most = max(w.model_p95_us for w in without.windows)
    assert most < max(w.model_p95_us for w in result.windows) < 2.0 * most


def test_flow_node_lets_no_job_beside_a_service_that_may_not_share() -> None:
    world = scenario(jobs={"radix": 0.3, "vips": 0.2, "ferret": 0.05}, wave=(100_000.0, 10_000.0, 60_000.0))
    world = replace(world, tasks=tuple(replace(t, shares=t.name == "radix") for t in world.tasks))
    result = NodeSimulation(world, "flow-node", FlowNode(world.node)).run()

    assert all(job.end_s is not None for job in result.jobs)
    steps = [*result.core_steps, replace(result.core_steps[-1], t_s=math.inf)]
    for job in (j for j in result.jobs if j.job != "radix"):
        for stretch in job.stretches:
            held = [
                a.cores for a, b in pairwise(steps) if a.t_s < stretch.end_s - 1e-9 and b.t_s > stretch.start_s + 1e-9
            ]
            assert not set(stretch.cores) & {c for cores in held for c in cores}


# Conservation.


def test_a_job_alone_takes_as_long_as_the_models_say() -> None:
    world = scenario(jobs={"vips": 0.2}, wave=(20_000.0,))
    result = run(run_all((2, 3)), of=world)
    load = ServiceLoad("memcached", (0, 1), 2, 1.0, 20_000.0, "mcperf-sweep")
    host = HostFactory(world.catalogue).host(world.machine_type, [load])

    assert result.makespan_s == pytest.approx(host.alone_s("vips", 2, (2, 3), 0.2), rel=1e-9)


def test_pauses_cost_their_length_and_nothing_else() -> None:
    world = scenario(jobs={"vips": 0.2}, wave=(20_000.0,))
    whole = run(of=world).jobs[0]
    paused = run(of=world, controller=alternately(1.0, 2.0)).jobs[0]

    assert paused.active_s == pytest.approx(whole.active_s, abs=1e-6)
    assert paused.pauses == math.ceil(whole.active_s) - 1
    assert paused.end_s == pytest.approx(whole.active_s + 2.0 * paused.pauses, abs=1e-6)
    assert whole.pauses == 0


@pytest.mark.parametrize("period_s", [0.025, 0.1, 0.7, 3.0])
def test_how_often_a_controller_looks_changes_nothing_that_it_does_not_change(period_s: float) -> None:
    finest = run(controller=Scripted(run_all(), 0.01), options=QUIET)
    other = run(controller=Scripted(run_all(), period_s), options=QUIET)

    assert [j.end_s for j in other.jobs] == pytest.approx([j.end_s for j in finest.jobs])
    assert [w.p95_us for w in other.windows] == pytest.approx([w.p95_us for w in finest.windows])
    assert [w.qps for w in other.windows] == pytest.approx([w.qps for w in finest.windows])


def test_work_of_all_cores_is_what_tasks_and_services_used() -> None:
    world = scenario(wave=(40_000.0, 10_000.0), interval_s=1.0)
    machine = NodeMachine(world.catalogue, world.machine_type, world.cores, world.services)
    for task in world.tasks:
        machine.submit(task)
    machine.set_load("memcached", 40_000.0)
    for task in world.tasks:
        machine.set_grant(task.name, TaskGrant(True, (1, 2, 3), LOWEST_WEIGHT))
    machine.advance(1.0)
    machine.set_load("memcached", 10_000.0)
    machine.set_cores("memcached", (0,))
    machine.advance(2.0)

    used = sum(machine.cpu_s(t.name) for t in world.tasks) + machine.service_busy_s("memcached")
    assert sum(machine.core_busy_s()) == pytest.approx(used)
    assert machine.queries("memcached") == pytest.approx(50_000.0)


# What a controller sees.


def test_counters_only_grow_and_count_what_arrived() -> None:
    controller = Scripted(run_all())
    result = run(controller=controller, of=scenario(wave=(20_000.0, 60_000.0)))
    counts = [r.services[0].queries for r in controller.seen]

    assert counts[0] == 0
    assert all(isinstance(c, int) and a <= c for a, c in pairwise(counts))
    assert all(
        a.services[0].busy_s <= b.services[0].busy_s for a, b in zip(controller.seen, controller.seen[1:], strict=False)
    )
    mean = sum(w.qps * (w.end_s - w.t_s) for w in result.windows)
    last = controller.seen[-1]
    assert last.services[0].queries == pytest.approx(mean, rel=0.05)
    # Poisson: the scatter of tenths of a second at 20K is that of 2000 arrivals.
    steps = [b - a for a, b in pairwise(counts[1:46])]
    deviation = math.sqrt(sum((s - 2000) ** 2 for s in steps) / len(steps))
    assert 0.6 * math.sqrt(2000) < deviation < 1.5 * math.sqrt(2000)


def test_tasks_show_their_state_and_are_gone_when_done() -> None:
    world = scenario(jobs={"radix": 0.2, "vips": 0.1}, submit_s=(3.05, 0.0), wave=(20_000.0,))
    controller = alternately(1.0, 1.0)
    result = run(controller=controller, of=world)
    by_name = [{t.task.name: t for t in r.tasks} for r in controller.seen]

    assert controller.seen[0].t_s == 0.0
    assert by_name[0]["vips"].state is TaskState.QUEUED
    assert by_name[1]["vips"].state is TaskState.RUNNING
    assert by_name[11]["vips"].state is TaskState.PAUSED
    assert "radix" not in by_name[30]
    assert by_name[31]["radix"].submitted_s == 3.05
    assert [t.task.name for t in controller.seen[31].tasks] == ["vips", "radix"]
    last = max(j.end_s or 0.0 for j in result.jobs)
    assert controller.seen[-1].t_s <= last
    assert all(len(r.core_busy_s) == 4 for r in controller.seen)


def test_a_program_that_starts_does_nothing_at_first() -> None:
    plain = run(of=scenario(wave=(20_000.0,)))
    slow = run(of=scenario(wave=(20_000.0,), start_delay_s=0.5))

    assert [j.start_s for j in slow.jobs] == [0.0, 0.0]
    assert [j.end_s for j in slow.jobs] == pytest.approx([(j.end_s or 0.0) + 0.5 for j in plain.jobs])


def test_threads_of_a_policy_replace_those_of_the_scenario() -> None:
    two = run(of=scenario(jobs={"vips": 0.2}))
    one = run(of=scenario(jobs={"vips": 0.2}), threads={"vips": 1})

    assert (two.jobs[0].threads, one.jobs[0].threads) == (2, 1)
    assert one.jobs[0].active_s > 1.5 * two.jobs[0].active_s


# What is written down.


def test_windows_are_intervals_from_the_first_start_to_the_last_end() -> None:
    def late(reading: Reading) -> Allocation | None:
        return run_all()(reading) if reading.t_s >= 6.95 else None

    result = run(late, of=scenario(interval_s=5.0), options=QUIET)
    ends = [w.end_s for w in result.windows]

    assert result.windows[0].t_s == pytest.approx(7.0)
    assert ends[0] == pytest.approx(10.0)
    assert ends[-1] == pytest.approx(max(j.end_s or 0.0 for j in result.jobs))
    assert ends[1:-1] == pytest.approx([10.0 + 5.0 * k for k in range(1, len(ends) - 1)])
    assert [w.qps for w in result.windows[:3]] == pytest.approx([60_000.0, 20_000.0, 60_000.0])


def test_no_window_is_shorter_than_a_client_reports() -> None:
    result = run(of=scenario(interval_s=0.4, wave=(10_000.0, 30_000.0)), options=QUIET)

    assert result.windows[0].end_s - result.windows[0].t_s == pytest.approx(1.2)
    assert result.windows[0].qps == pytest.approx(50_000.0 / 3.0)


def test_points_over_the_goal_are_counted() -> None:
    on_one = {"memcached": ServiceGrant((0,))}

    def rule(reading: Reading) -> Allocation:
        return replace(run_all()(reading), services=on_one)

    world = scenario(wave=(10_000.0, 95_000.0))
    result = run(rule, of=world, options=QUIET)
    over = [w for w in result.windows if w.p95_us > 1000.0]

    assert over
    assert all(w.qps == pytest.approx(95_000.0) for w in over if w.t_s < 10.0)
    assert result.violations == len(over)
    assert result.slo_violation_ratio == len(over) / len(result.windows)
    assert result.worst_p95_us == max(w.p95_us for w in result.windows) > 1e6


def test_core_changes_and_pauses_are_counted_once_each() -> None:
    def rule(reading: Reading) -> Allocation:
        step = int(reading.t_s + 1e-6)
        cores = (2, 3) if step < 2 else (3,)
        service = (0, 1) if step != 3 else (0,)
        return Allocation(
            {"memcached": ServiceGrant(service)}, {t.task.name: TaskGrant(step != 1, cores) for t in reading.tasks}
        )

    result = run(rule, of=scenario(jobs={"vips": 0.4}))
    (job,) = result.jobs

    assert job.pauses == 1
    assert job.core_changes == 1
    assert [(s.start_s, s.cores) for s in job.stretches] == [(0.0, (2, 3)), (pytest.approx(2.0), (3,))]
    assert [(c.t_s, c.cores) for c in result.core_steps] == [
        (0.0, (0, 1)),
        (pytest.approx(3.0), (0,)),
        (pytest.approx(4.0), (0, 1)),
    ]
    assert result.service_core_changes == 2


# Noise, seeds.


def test_noise_is_a_factor_on_what_the_models_say_and_can_be_turned_off() -> None:
    quiet, loud = run(options=QUIET), run(options=NodeOptions(noise=0.3))

    assert [w.p95_us for w in quiet.windows] == [w.model_p95_us for w in quiet.windows]
    assert [w.model_p95_us for w in loud.windows] == [w.model_p95_us for w in quiet.windows]
    assert all(w.p95_us != w.model_p95_us for w in loud.windows)


def test_the_noise_has_the_width_that_was_asked_for() -> None:
    world = scenario(jobs={"vips": 3.0}, interval_s=1.0)
    logs = [math.log(w.p95_us / w.model_p95_us) for w in run(of=world, options=NodeOptions(noise=0.3)).windows]

    assert len(logs) > 60
    assert abs(sum(logs) / len(logs)) < 0.12
    assert math.sqrt(sum(x * x for x in logs) / len(logs)) == pytest.approx(0.3, rel=0.3)


def test_measured_noise_is_that_of_the_profile() -> None:
    world = scenario()
    noise = world.catalogue.services["memcached"].noise(5.0)

    assert noise.error > 0.0
    assert run(of=world).noise == (noise,)


def test_two_policies_meet_the_same_noise_and_the_same_arrivals() -> None:
    early, late = Scripted(run_all()), alternately(5.0, 5.0)
    first, second = run(controller=early), run(controller=late)
    factors = [{round(w.end_s): w.p95_us / w.model_p95_us for w in r.windows[:2]} for r in (first, second)]

    assert factors[0] == pytest.approx(factors[1])
    assert [r.services[0].queries for r in early.seen[:50]] == [r.services[0].queries for r in late.seen[:50]]


def test_the_same_seed_gives_the_same_bytes() -> None:
    options = NodeOptions(seed=3, load_seed=5, model_error="measured")
    texts = [json.dumps(run(of=scenario(), options=options).to_json()) for _ in range(2)]

    assert texts[0] == texts[1]
    assert texts[0] != json.dumps(run(of=scenario(), options=replace(options, seed=4)).to_json())
    assert texts[0] != json.dumps(run(of=scenario(), options=replace(options, load_seed=6)).to_json())


def test_rates_that_are_shared_change_nothing() -> None:
    world = scenario()
    hosts = HostFactory(world.catalogue)
    NodeSimulation(world, "a", Scripted(run_all((1, 2, 3))), hosts=hosts).run()

    shared = NodeSimulation(world, "a", Scripted(run_all()), hosts=hosts).run()
    assert shared == NodeSimulation(world, "a", Scripted(run_all())).run()


def test_a_machine_may_differ_from_its_models() -> None:
    exact, slow = run(), run(options=NodeOptions(model_error=0.5))

    assert [j.active_s for j in exact.jobs] != pytest.approx([j.active_s for j in slow.jobs], rel=0.02)


# Waves.


def test_waves_repeat_and_drawn_ones_stay_in_their_range() -> None:
    given = GivenWave((1.0, 2.0, 3.0))
    assert [given.qps(k) for k in range(5)] == [1.0, 2.0, 3.0, 1.0, 2.0]

    drawn = [DrawnWave(LoadRange(5_000.0, 100_000.0), 7, 0).qps(k) for k in range(5_000)]
    assert all(5_000 <= q <= 100_000 and q == round(q) for q in drawn)
    assert sum(drawn) / len(drawn) == pytest.approx(52_500, rel=0.03)
    assert min(drawn) < 5_200
    assert max(drawn) > 99_800


def test_services_draw_loads_of_their_own() -> None:
    world = scenario(services=(memcached("a", (0, 1)), memcached("b", (3, 2))))
    one, other = waves_of(world, 1)

    assert [one.qps(k) for k in range(9)] != [other.qps(k) for k in range(9)]
    assert [one.qps(k) for k in range(9)] == [waves_of(world, 1)[0].qps(k) for k in range(9)]
    assert waves_of(world, None)[0].qps(0) == 20_000.0


# Runs that never end, and controllers that ask for what cannot be.


def test_a_run_in_which_nothing_moves_is_cut() -> None:
    def rule(reading: Reading) -> Allocation:
        return Allocation(tasks={t.task.name: TaskGrant(False, (2,), reason="no time") for t in reading.tasks})

    result = run(rule)

    assert result.makespan_s is None
    assert result.mean_completion_s is None
    assert [(j.job, j.reason) for j in result.unfinished] == [("radix", "no time"), ("vips", "no time")]
    assert result.end_s == pytest.approx(IDLE_S, abs=IDLE_S / 5)


def test_a_run_that_crawls_is_cut_too() -> None:
    def rule(reading: Reading) -> Allocation:
        return Allocation(tasks={t.task.name: TaskGrant(True, (2,), quota=1e-3) for t in reading.tasks})

    result = run(rule, of=scenario(jobs={"radix": 0.2}), controller=Scripted(rule, 5.0))

    assert result.unfinished
    assert result.jobs[0].stretches
    assert result.end_s > IDLE_S


def test_a_late_submission_is_waited_for() -> None:
    result = run(of=scenario(submit_s=(0.0, 2.0 * IDLE_S)), controller=Scripted(run_all(), 1.0))

    assert not result.unfinished
    assert result.jobs[1].start_s == pytest.approx(2.0 * IDLE_S)


@pytest.mark.parametrize(
    ("allocation", "words"),
    [
        (Allocation({"redis": ServiceGrant((0,))}), "gives cores to service 'redis', which there is not"),
        (Allocation({"memcached": ServiceGrant(())}), "leaves service 'memcached' without a core"),
        (Allocation({"memcached": ServiceGrant((2,))}), r"gives service 'memcached' the cores \[2\]; it may have 0-1"),
        (Allocation(tasks={"ferret": TaskGrant(True, (1,))}), "job 'ferret', which is not there"),
        (Allocation(tasks={"vips": TaskGrant(True)}), "leaves job 'vips' without a core"),
        (Allocation(tasks={"vips": TaskGrant(True, (3, 4))}), r"the cores \[3, 4\]; it may have 0-3"),
        (Allocation(tasks={"vips": TaskGrant(True, (3, 3))}), r"the cores \[3, 3\]"),
        (Allocation(tasks={"vips": TaskGrant(True, (3,), weight=0.0)}), "the weight 0.0"),
        (Allocation(tasks={"vips": TaskGrant(True, (3,), quota=-1.0)}), "the quota -1.0"),
    ],
)
def test_what_cannot_be_granted_is_a_fault_of_the_controller(allocation: Allocation, words: str) -> None:
    with pytest.raises(ControllerError, match=f"scripted .*{words}"):
        run(lambda _: allocation)


def test_a_grant_to_a_job_that_is_done_is_a_fault_too() -> None:
    first = run_all()

    def rule(reading: Reading) -> Allocation:
        grants = dict(first(reading).tasks)
        return Allocation(tasks=grants | {"vips": TaskGrant(True, (2, 3))})

    with pytest.raises(ControllerError, match="'vips', which is not there any more"):
        run(rule, of=scenario(jobs={"vips": 0.05, "radix": 0.5}))


def test_a_period_of_nothing_is_refused() -> None:
    with pytest.raises(ControllerError, match="period must be above 0"):
        run(controller=Scripted(run_all(), 0.0))
