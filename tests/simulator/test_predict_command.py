"""What a schedule will take: intervals hold what they promise, in digits that mean something, the same every time."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import click
import numpy as np
import pytest
from click.testing import CliRunner, Result

from flowsched_models.document import InputError
from flowsched_simulator.commands.predict import predict as command
from flowsched_simulator.commands.simulate import simulate
from flowsched_simulator.prediction import Prediction, Range, predict
from flowsched_simulator.prediction_text import digits_of, plain, range_words, share_words
from flowsched_simulator.replay import replay
from flowsched_simulator.scenario import Scenario
from flowsched_simulator.scenario_file import load_scenario
from flowsched_simulator.schedule import Schedule, ScheduledTask
from flowsched_simulator.schedule_file import load_schedule
from flowsched_simulator.simulation import Options
from flowsched_simulator.truth import Draws
from flowsched_simulator.workload import workload
from ready_python import run_ready

DOCS = Path(__file__).parent.parent.parent / "docs"
PARSEC = "parsec-memcached-2024"
PLAN = "group-048"


def scenario(job: float = 0.1, host: float = 0.05, latency: float = 0.1, capacity: float = 0.1) -> Scenario:
    """The bundled scenario with errors of our own."""
    loaded = load_scenario(PARSEC)
    old = loaded.catalogue
    services = {}
    for name, profile in old.services.items():
        curves = tuple(replace(c, error=None) for c in profile.curves)
        services[name] = replace(profile, curves=curves, error=latency, capacity_error=capacity)
    catalogue = replace(
        old,
        jobs={name: replace(p, error=job) for name, p in old.jobs.items()},
        machine_types={name: replace(t, error=host) for name, t in old.machine_types.items()},
        services=services,
    )
    return replace(loaded, catalogue=catalogue)


def schedule(*tasks: ScheduledTask) -> Schedule:
    return Schedule("mine", PARSEC, {}, tasks)


def task(job: str, machine: str, cores: Sequence[int], start_s: float | None = 0.0, **more: object) -> ScheduledTask:
    placed = {"job": job, "machine": machine, "cores": tuple(cores), "threads": len(cores), "start_s": start_s}
    return ScheduledTask(**placed, **more)  # type: ignore[arg-type]


ALONE = schedule(task("freqmine", "node-c-8core", (0, 1, 2, 3)), task("ferret", "node-b-4core", (0, 1, 2, 3)))


def test_without_errors_nothing_is_uncertain() -> None:
    exact = scenario(0.0, 0.0, 0.0, 0.0)
    plan = load_schedule(PLAN)
    outcome, run = predict(exact, plan, draws=20), replay(exact, plan)
    for job, known in zip(outcome.jobs, run.jobs, strict=True):
        for values, truth in ((job.start_s, known.start_s), (job.end_s, known.end_s)):
            assert (values.low, values.median, values.high, values.nominal) == pytest.approx((truth,) * 4)
    assert outcome.makespan_s.nominal == pytest.approx(run.makespan_s)
    (service,) = outcome.services
    assert service.worst_p95_us.high == pytest.approx(run.worst_p95_us)
    assert service.risk == 0.0


def test_nominal_values_are_what_simulate_prints() -> None:
    of, plan = load_scenario(PARSEC), load_schedule(PLAN)
    outcome, run = predict(of, plan, draws=20), replay(of, plan)
    assert outcome.makespan_s.nominal == run.makespan_s
    assert [j.end_s.nominal for j in outcome.jobs] == [j.end_s for j in run.jobs]


def test_as_many_truths_are_inside_an_interval_as_it_promises() -> None:
    """Truths that were drawn with another seed; jobs that share nothing have log-normal times."""
    of = scenario(job=0.12, host=0.05)
    for level in (0.5, 0.9):
        outcome = predict(of, ALONE, draws=2000, level=level)
        for job in outcome.jobs:
            width = np.log(job.duration_s.high / job.duration_s.low)
            score = {0.5: 0.6745, 0.9: 1.6449}[level]
            assert width == pytest.approx(2.0 * score * 0.13, rel=0.07)
        truth = Draws(of, workload(of, 0), seed=77, count=400)
        inside = []
        for r in range(truth.count):
            factors = truth.error(r)
            for t, job in zip(ALONE.tasks, outcome.jobs, strict=True):
                took = job.duration_s.nominal * factors.factor(t.job, t.machine)
                inside.append(job.duration_s.low <= took <= job.duration_s.high)
        assert np.mean(inside) == pytest.approx(level, abs=0.04)


def test_a_host_is_slow_for_all_its_jobs_alike() -> None:
    of = scenario(job=0.0, host=0.2)
    here = Draws(of, workload(of, 0), seed=3, count=5)
    for r in range(5):
        error = here.error(r)
        c = {error.factor(job, "node-c-8core") for job in ("freqmine", "canneal", "dedup")}
        assert len(c) == 1
        assert c != {error.factor("freqmine", "node-b-4core")}


def test_one_seed_means_the_same_machines_for_every_plan_and_more_draws_begin_alike() -> None:
    of = scenario()
    few, many, other = (Draws(of, workload(of, 0), seed, n) for seed, n in ((1, 3), (1, 9), (2, 9)))
    for r in range(3):
        factors = [d.error(r).factor("vips", "node-b-4core") for d in (few, many, other)]
        assert factors[0] == factors[1] != factors[2]


def test_later_tasks_inherit_what_is_uncertain_before_them() -> None:
    first = task("vips", "node-b-4core", (0, 1, 2, 3))
    fixed = task("dedup", "node-c-8core", range(8), 30.0)
    outcome = predict(
        scenario(), schedule(first, task("radix", "node-b-4core", (0, 1), None, after="vips"), fixed), draws=50
    )
    vips, radix, dedup = outcome.jobs
    delay = load_scenario(PARSEC).start_delay.after_waiting_s
    assert radix.start_s.low == pytest.approx(vips.end_s.low + delay)
    assert radix.start_s.high > radix.start_s.low
    assert dedup.start_s.high == dedup.start_s.low == 30.0


def goal(of: Scenario, slo_us: float) -> Scenario:
    return replace(of, services=tuple(replace(s, slo_us=slo_us) for s in of.services))


def test_risk_is_the_share_of_draws_with_a_window_above_the_goal() -> None:
    of, plan = scenario(latency=0.1), load_schedule(PLAN)
    (service,) = predict(of, plan, draws=400).services
    assert predict(goal(of, 10.0 * service.worst_p95_us.nominal), plan, draws=50).services[0].risk == 0.0
    assert predict(goal(of, service.worst_p95_us.low * 0.5), plan, draws=50).services[0].risk == 1.0
    (even,) = predict(goal(of, service.worst_p95_us.median), plan, draws=400).services
    assert even.risk == pytest.approx(0.5, abs=0.01)
    assert even.windows_above <= even.risk
    (edge,) = predict(goal(of, service.worst_p95_us.high), plan, draws=400).services
    assert edge.risk == pytest.approx(0.05, abs=0.01)


def test_an_uncertain_capacity_matters_near_the_knee() -> None:
    of = scenario(latency=0.0, capacity=0.15)
    busy = replace(of, services=tuple(replace(s, qps=70_000.0) for s in of.services))
    calm, near = (predict(s, ALONE, draws=50).services[0].worst_p95_us for s in (of, busy))
    assert calm.high / calm.low < 1.01
    assert near.high / near.low > 1.3


def test_requests_that_exceed_a_machine_in_some_draws_are_told() -> None:
    first = task("vips", "node-b-4core", (0, 1, 2, 3), request_milli=3000)
    nominal = predict(scenario(), schedule(first), draws=20).jobs[0].end_s.nominal
    later = task("radix", "node-b-4core", (0, 1), start_s=nominal + 0.5, request_milli=3000)
    outcome = predict(scenario(), schedule(first, later), draws=200)
    ((machine, count),) = outcome.overcommitted
    assert machine == "node-b-4core"
    assert 50 < count < 150
    with pytest.raises(InputError, match="exceed the machine's"):
        predict(scenario(), schedule(first, later.model_copy(update={"start_s": 1.0})), draws=20)


def test_simulate_takes_the_profiles_own_errors() -> None:
    of, plan = scenario(), load_schedule(PLAN)
    run = replay(of, plan, Options(seed=5, model_error="measured"))
    assert run == replay(of, plan, Options(seed=5, model_error="measured"))
    assert run != replay(of, plan, Options(seed=6, model_error="measured"))
    (alone,) = replay(of, schedule(ALONE.tasks[0]), Options(seed=5, model_error="measured")).jobs
    (nominal,) = replay(of, schedule(ALONE.tasks[0])).jobs
    factor = Draws(of, workload(of, 5), 5, 1).error(0).factor("freqmine", "node-c-8core")
    assert alone.end_s == pytest.approx((nominal.end_s or 0.0) * factor)
    assert {w.p95_us for w in run.latency} != {w.p95_us for w in replay(of, plan).latency}
    assert {w.service for w in run.latency} == {s.name for s in of.services}


# Digits.


@pytest.mark.parametrize(
    ("low", "median", "high", "words"),
    [
        (131.8, 140.27, 151.3, ("140", "[132, 151]")),
        (9.31, 10.64, 12.09, ("10.6", "[9.3, 12.1]")),
        (50.0, 140.3, 287.0, ("140", "[50, 290]")),
        (1416.0, 1533.0, 1648.0, ("1530", "[1420, 1650]")),
        (97.0, 97.0, 97.0, ("97", "")),
        (10.25, 10.25, 10.25, ("10.2", "")),
        (99.999, 100.0, 100.001, ("100", "")),
    ],
)
def test_digits_follow_the_width_of_the_interval(
    low: float, median: float, high: float, words: tuple[str, str]
) -> None:
    assert range_words(Range(median, low, high, median)) == words


def test_every_interval_has_ten_to_a_hundred_steps() -> None:
    for width in (1.0, 2.5, 9.9, 10.0, 31.0, 99.0, 100.0, 1234.0):
        steps = width / 10.0 ** -digits_of(width, 0.1)
        assert 9.99 <= steps < 100.0


def test_a_share_of_no_draw_is_not_called_impossible() -> None:
    assert share_words(0.0, 400) == "<0.8 %"
    assert share_words(1.0, 400) == ">99.2 %"
    assert share_words(0.25, 400) == "25 %"
    assert share_words(0.0125, 400) == "1.2 %"


# The command.


def run_command(*args: object) -> Result:
    return CliRunner().invoke(command, [str(a) for a in args], standalone_mode=False)


def test_the_command_prints_intervals_for_every_job_and_service() -> None:
    done = run_command(PLAN, "--draws", 50)
    assert done.exit_code == 0, done.output
    for word in ("freqmine", "memcached", "Makespan: ", "90 % of 50 draws", "every profile were exact"):
        assert word in done.stdout
    rows = [line for line in done.stdout.splitlines() if line.startswith("  ") and "node-" in line]
    assert len(rows) == 8
    assert all(line.count("[") >= 2 for line in rows)


def test_the_same_seed_gives_the_same_bytes() -> None:
    first, again, other = (run_command(PLAN, "--draws", 30, "--json", "--seed", s).stdout for s in (1, 1, 2))
    assert first == again != other
    assert json.loads(first)["makespan_s"]["nominal"] == json.loads(other)["makespan_s"]["nominal"]


def test_intervals_grow_with_the_level() -> None:
    def makespan(level: int) -> tuple[float, float]:
        values = json.loads(run_command(PLAN, "--draws", 100, "--json", "--level", level).stdout)["makespan_s"]
        return values["low"], values["high"]

    (a, b), (c, d), (e, f) = makespan(50), makespan(80), makespan(95)
    assert e <= c <= a <= b <= d <= f
    assert e < a


def test_another_scenario_may_be_named() -> None:
    done = run_command(PLAN, "--scenario", f"{PARSEC}-c", "--draws", 20, "--json")
    assert json.loads(done.stdout)["scenario"] == f"{PARSEC}-c"


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (("grup-048",), "group-048"),
        ((PLAN, "--scenario", "nowhere"), "nowhere"),
        ((PLAN, "--scenario", "parsec-poisson"), "there is no"),
        ((PLAN, "--level", "100"), "range"),
        ((PLAN, "--draws", "1"), "range"),
        ((PLAN, "--seed", "-1"), "range"),
    ],
)
def test_bad_input_is_told(args: tuple[str, ...], message: str) -> None:
    done = run_command(*args)
    assert isinstance(done.exception, InputError | click.UsageError)
    assert done.exception.exit_code == 2
    assert message in str(done.exception)
    assert done.stdout == ""


def test_bad_input_ends_with_2_and_no_traceback(tmp_path: Path) -> None:
    done = run_ready("flowsched.cli", "predict", PLAN, "--scenario", "nowhere", cwd=tmp_path)
    assert done.returncode == 2
    assert "nowhere" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_wrong_model_error_of_simulate_is_one_sentence() -> None:
    for wrong in ("4", "nan", "mesured"):
        done = CliRunner().invoke(simulate, [PARSEC, "--model-error", wrong], standalone_mode=False)
        assert isinstance(done.exception, InputError)
        assert str(done.exception) == f"--model-error: {wrong} is not a number from 0 to 3; or: measured"


def keys(outcome: Prediction) -> set[str]:
    result = plain(outcome)
    return {*result, *result["jobs"][0], *result["services"][0], *result["makespan_s"]}


def test_every_key_of_the_result_is_documented() -> None:
    text = (DOCS / "predictions.md").read_text(encoding="utf-8")
    for key in keys(predict(scenario(), load_schedule(PLAN), draws=20)):
        assert f"`{key}`" in text, key


def test_a_value_below_the_steps_of_its_interval_is_not_told_as_nothing() -> None:
    assert range_words(Range(520.0, 400.0, 110_000.0, 510.0), 0.01, 1000.0) == ("0.5", "[0, 110]")
    assert range_words(Range(0.0, 0.0, 110_000.0, 0.0), 0.01, 1000.0)[0] == "0"


def test_a_schedule_for_a_scenario_of_ones_own_says_how_to_name_it(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text("cluster: mine\ntasks: [{job: vips, machine: node-b-4core, cores: 0-3, threads: 4, start_s: 0}]\n")
    with pytest.raises(InputError, match=r"there is no bundled scenario 'mine'.*--scenario FILE"):
        command.main([str(path)], standalone_mode=False)
