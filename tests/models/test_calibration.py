"""``flowsched calibrate`` finds what is there, says how well it knows it, and what it does not know."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from synthetic import ignorant, measured, truth

from flowsched_models.calibration.calibration import FitRequest, calibrate
from flowsched_models.calibration.observation import observe
from flowsched_models.calibration.parameter import parameters_of
from flowsched_models.calibration.profiles_text import profiles_text
from flowsched_models.calibration.runtime_fit import Fitted, fit_runtime
from flowsched_models.document import InputError
from flowsched_models.machine import MachineType
from flowsched_models.measurements.measurements import Measurements
from flowsched_models.profile import NEVER_MEASURED, PhaseOrder
from flowsched_models.profiles import load_catalogue
from flowsched_models.validation.score import Quantity, errors

pytest.importorskip("scipy")


def fit(data: Measurements) -> Fitted:
    observed = observe(data, ignorant(truth()))
    return fit_runtime(observed, parameters_of(observed, "ref-8"))


def true_values() -> dict[str, float]:
    known = truth()
    found = {}
    for name, job in known.jobs.items():
        found |= {
            f"work_s {name}": job.work_s,
            f"serial_fraction {name}": job.serial_fraction,
            f"smt_gain {name}": job.smt_gain,
            f"pressure {name}": job.pressure,
            f"sensitivity {name}": job.sensitivity,
        }
    return found | {"bandwidth fast": 0.8}


def test_parameters_of_made_up_data_are_found_within_their_own_intervals() -> None:
    inside = total = 0
    for seed in range(4):
        fitted = fit(measured(seed))
        assert fitted.phase_order == tuple(truth().jobs[name].phase_order for name in fitted.parameters.jobs)
        wanted = true_values()
        for at, (block, key, _) in enumerate(fitted.parameters.names()):
            value = wanted.get(f"{block} {key}")
            if value is None:
                continue
            middle, low, high = fitted.interval(at)
            assert abs(math.log(middle / value)) < 0.7, f"{block} {key} of seed {seed}: {middle} for {value}"
            inside += low <= value <= high
            total += 1
    # Of 64 intervals of 95 %, fewer than 54 inside would come by chance less than once in a thousand times.
    assert total == 64
    assert inside >= 54


def test_speeds_of_jobs_on_machines_are_found() -> None:
    fitted = fit(measured(7))
    kind = fitted.parameters.machine_types.index("fast-4")

    for j, name in enumerate(fitted.parameters.jobs):
        assert fitted.values.speed[kind, j] == pytest.approx(truth().speed(name, "fast-4"), rel=0.05)


def test_the_same_data_gives_the_same_file_byte_for_byte() -> None:
    data = measured(1, groups=2, runs=3)

    one, other = (profiles_text(calibrate(data, ignorant(truth())), "twice") for _ in range(2))

    assert one == other


def test_profiles_can_be_read_back_and_predict_what_was_measured(tmp_path) -> None:  # type: ignore[no-untyped-def]
    result = calibrate(measured(3, groups=3, runs=4), ignorant(truth()))
    path = tmp_path / "profiles.yaml"
    path.write_text(profiles_text(result, "made up"))

    again = load_catalogue(path)

    assert {n: j for n, j in again.jobs.items() if n != "neutral"} == result.catalogue.jobs
    assert again.machine_types == result.catalogue.machine_types
    left_out = errors(s for s in result.left_out if s.quantity is Quantity.DURATION)
    assert left_out is not None
    assert left_out.median < 6.0  # the noise is 3 %
    assert left_out.inside_outer is not None
    assert {s.group for s in result.left_out} == {"group-0", "group-1", "group-2"}
    assert all(0.0 < job.error < 0.15 for job in result.catalogue.jobs.values())


def test_one_group_with_a_thread_sweep_alone_gives_a_partial_profile_that_says_so() -> None:
    data = measured(5, groups=1)
    sweep = Measurements(
        thread_times=tuple(t for t in data.thread_times if t.machine_type == "ref-8" and t.job == "first")
    )

    result = calibrate(sweep, ignorant(truth()))

    (job,) = result.catalogue.jobs.values()
    assert job.work_s == pytest.approx(120.0, rel=0.1)
    assert job.phase_order is PhaseOrder.MIXED
    assert job.error == 0.3
    assert any("pressure is not identified" in w for w in result.warnings)
    assert any("no executions beside others" in w for w in result.warnings)
    assert any("no times beside the aggressor llc" in w for w in result.warnings)
    assert any("only one group" in w for w in result.warnings)
    assert any("memory was not measured" in d for d in result.defaults)
    assert result.left_out == ()


def test_one_time_on_one_thread_says_as_little_as_a_neutral_profile() -> None:
    data = measured(5, groups=1, runs=0)
    single = [t for t in data.thread_times if (t.machine_type, t.job, t.threads) == ("ref-8", "first", 1)]

    result = calibrate(Measurements(thread_times=tuple(single)), ignorant(truth()))

    assert result.catalogue.jobs["first"].error == NEVER_MEASURED
    assert "Error: assumed" in " ".join(profiles_text(result, "one time").split())
    assert list(result.catalogue.machine_types) == ["ref-8"]
    assert result.catalogue.machine_types["ref-8"].error == 0.1


def test_machine_types_that_were_not_measured_are_left_out_unless_asked_for() -> None:
    known = ignorant(truth())
    stranger = MachineType("other-2", 2, 4000)
    base = replace(
        known, machine_types={**known.machine_types, "other-2": stranger, "fast-8": MachineType("fast-8", 8, 9000)}
    )
    data = measured(1, groups=1, runs=1)

    own, whole = (
        calibrate(data, base, FitRequest(unmeasured=wanted)).catalogue.machine_types for wanted in (False, True)
    )

    assert sorted(own) == ["fast-4", "ref-8"]
    assert whole["fast-8"].speed == pytest.approx(1.2, rel=0.1)
    assert whole["fast-8"].error > 2 * whole["ref-8"].error
    # The middle of a family of speed 1 and one of speed 1.2, within a wide error.
    assert whole["other-2"].speed == pytest.approx(1.2**0.5, rel=0.1)
    assert whole["other-2"].error > 2 * whole["ref-8"].error


def test_an_unknown_machine_type_is_named_with_the_file() -> None:
    data = measured(5, groups=1, runs=0)
    unknown = replace(data, thread_times=tuple(replace(t, machine_type="ref-9") for t in data.thread_times))

    with pytest.raises(
        InputError, match=r"made up: machine_type: machine type 'ref-9' is in no profiles.*did you mean 'ref-8'"
    ):
        calibrate(unknown, ignorant(truth()))


def test_nothing_to_fit_is_refused() -> None:
    with pytest.raises(InputError, match="neither thread sweeps nor executions"):
        calibrate(Measurements(), truth())


def test_a_reference_that_was_not_measured_is_refused() -> None:
    with pytest.raises(InputError, match="--reference: 'fast' was not measured"):
        calibrate(measured(1, groups=1, runs=0), ignorant(truth()), FitRequest(reference="fast"))
