"""Speeds of jobs under a controller are found again from its logs, and those of the course are predicted."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from controlled_world import MACHINE, SPEED, inside, outside, run

from flowsched_models.calibration.controlled_fit import (
    SUFFIX,
    ControlledFit,
    fit_controlled,
    with_controlled,
    without_controlled,
)
from flowsched_models.calibration.controlled_progress import progress
from flowsched_models.measurements.controlled_run import ControlledRun
from flowsched_models.profiles import load_catalogue
from flowsched_models.runtime import HostFactory
from flowsched_models.validation.score import errors
from measured_data import cca_measurements

pytest.importorskip("scipy")


def logs(seed: int, smt: bool, groups: int = 4, noise: float = 0.03) -> list[ControlledRun]:
    truth = inside(smt)
    return [run(seed, f"group-{g}", 10 * g + k, truth, noise) for g in range(groups) for k in range(2)]


def fitted(runs: list[ControlledRun], **options: bool) -> ControlledFit:
    (fit,) = fit_controlled(runs, outside(), **options)
    return fit


def test_a_log_without_noise_makes_every_job_whole() -> None:
    truth = inside()

    for number in range(6):
        done = progress(run(3, "one", number, truth, noise=0.0), truth, HostFactory(truth), MACHINE)
        assert done == {name: pytest.approx(1.0, abs=1e-6) for name in SPEED}


@pytest.mark.parametrize("smt", [False, True])
def test_speeds_and_whether_siblings_matter_are_found_again(smt: bool) -> None:
    fit = fitted(logs(5, smt))

    assert fit.machine.smt is smt
    assert fit.machine.name == MACHINE + SUFFIX
    for name, speed in SPEED.items():
        assert fit.speed[name] == pytest.approx(speed, rel=0.04)
    left_out = errors(fit.left_out)
    assert left_out is not None and left_out.median < 5.0  # the noise is 3 %
    assert fit.variants[smt].median < fit.variants[not smt].median


def test_without_leaving_groups_out_the_better_fit_decides() -> None:
    fit = fitted(logs(5, True), leave_out=False)

    assert fit.machine.smt
    assert fit.left_out == ()
    assert fit.variants == {}


def test_the_year_with_most_groups_is_fitted_and_the_others_are_predicted() -> None:
    slower = [replace(r, group=f"old {r.group}", year="2023") for r in logs(8, True, groups=2)]

    fit = fitted([*logs(5, True, groups=3), *slower], smt=True)

    assert fit.year == "2024"
    assert {r.year for r in fit.runs} == {"2024"}
    assert {s.year for s in fit.elsewhere} == {"2023"}


@pytest.mark.parametrize(
    "change",
    [{"interval_s": 5.0}, {"machine_type": "unknown"}, {"executions": {"unknown": (0.0, 9.0)}}, {"group": "the only"}],
)
def test_runs_that_tell_too_little_give_no_machine_type(change: dict[str, object]) -> None:
    runs = [replace(r, **change) for r in logs(5, True, groups=2)]  # type: ignore[arg-type]

    assert fit_controlled(runs, outside(), leave_out=False) == ()


def test_a_machine_type_comes_and_goes_without_a_trace() -> None:
    known = outside()
    fit = fitted(logs(5, True, groups=2), leave_out=False)

    with_it = with_controlled(known, [fit])

    assert with_it.speed("first", MACHINE + SUFFIX) == fit.speed["first"]
    assert with_it.speed("first", MACHINE) == 1.0
    assert without_controlled(with_it) == known


def test_logs_of_the_course_are_explained_and_group_048_is_predicted_unseen() -> None:
    runs = cca_measurements().of_years("2024").controlled_runs
    bundled = load_catalogue()
    known = without_controlled(bundled)

    (fit,) = fit_controlled(runs, known, leave_out=False, smt=True)
    (unseen,) = fit_controlled([r for r in runs if r.group != "czanoli"], known, leave_out=False, smt=True)

    assert len({r.group for r in fit.runs}) == 6
    found = errors(fit.scores)
    assert found is not None and found.median < 7.5
    for job, speed in fit.speed.items():
        assert bundled.speed(job, fit.machine.name) == pytest.approx(speed, rel=0.01), (
            "bundled profiles are of this fit"
        )
    typed, held_out = with_controlled(known, [unseen]), [r for r in fit.runs if r.group == "czanoli"]
    assert len(held_out) == 3
    for r in held_out:
        for job, done in progress(r, typed, HostFactory(typed), fit.machine.name).items():
            assert abs(math.log(done)) < 0.2, f"{job} of {r.name}: {done:.2f} of its work in the time that it took"
