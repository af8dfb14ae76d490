"""What completions teach of classes: factors that find the truth, are shrunk and bounded, and do not depend on any order."""

from __future__ import annotations

import math
import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flowsched.cluster import learnt_run_times
from flowsched.cluster.class_runs import MOST_RUNS, ClassRuns
from flowsched.cluster.learnt_run_times import EARLY_FACTORS, FEW_RUNS, LEARNT_FACTORS, LearntRunTime, LearntRunTimes
from flowsched.cluster.snapshot import LATE
from tests.builders import any_of

NAMES, TYPES = ("a", "b", "c", "d"), ("large", "small")
PLACES = [(name, machine_type) for name in NAMES for machine_type in (*TYPES, None)]
ENDS = st.lists(st.tuples(st.sampled_from(NAMES), st.sampled_from(TYPES), st.floats(0.02, 50.0)), max_size=20)


def after(ends: list[tuple[str, str, float]]) -> LearntRunTimes:
    known = LearntRunTimes()
    for run_class, machine_type, done in ends:
        known = known.with_end(run_class, machine_type, done)
    return known


def learnt(known: LearntRunTimes, run_class: str, machine_type: str | None = None) -> LearntRunTime:
    found = known.of(run_class, machine_type)
    assert found is not None
    return found


@given(ENDS, st.randoms(use_true_random=False))
def test_the_order_of_completions_decides_nothing(ends: list[tuple[str, str, float]], order: random.Random) -> None:
    known = after(ends)
    shuffled = after(order.sample(ends, len(ends)))

    assert [entry._replace(last=0) for entry in shuffled.classes] == [entry._replace(last=0) for entry in known.classes]
    assert [shuffled.of(*place) for place in PLACES] == [known.of(*place) for place in PLACES]
    assert [shuffled.factors(name) for name in NAMES] == [known.factors(name) for name in NAMES]


@given(ENDS)
def test_what_stands_in_a_file_is_what_was_known(ends: list[tuple[str, str, float]]) -> None:
    known = after(ends)

    numbers = [(e.run_class, e.machine_type, e.runs, e.log_sum, e.log_squares, e.last) for e in known.classes]
    loaded = LearntRunTimes(tuple(ClassRuns.of(*each) for each in numbers))
    assert loaded == known
    # What was kept from one completion to the next is what follows from the sums.
    assert [loaded.of(*place) for place in PLACES] == [known.of(*place) for place in PLACES]
    assert loaded.with_end("b", "large", 1.5) == known.with_end("b", "large", 1.5)


def test_old_runs_fade_and_the_spread_stays() -> None:
    known = LearntRunTimes()
    for done in (1.4, 1.6) * 150:
        known = known.with_end("a", "small", done)
    (entry,) = known.classes
    assert MOST_RUNS // 2 < entry.runs <= MOST_RUNS + 1 and entry.last == 300
    mean = entry.log_sum / entry.runs
    assert mean == pytest.approx(math.log(math.sqrt(1.4 * 1.6)), abs=2e-3)
    assert math.sqrt(entry.log_squares / entry.runs - mean**2) == pytest.approx(math.log(1.6 / 1.4) / 2, rel=0.02)

    steps = 0
    while learnt(known, "a", "small").factor > 0.8:
        known, steps = known.with_end("a", "small", 0.75), steps + 1
    assert steps < 5 * MOST_RUNS


def test_of_too_many_classes_those_seen_least_recently_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(learnt_run_times, "MOST_ENTRIES", 3)
    known = after([("a", "small", 2.0), ("b", "small", 2.0), ("c", "small", 2.0), ("a", "small", 2.0)])
    before = known.with_end("aa", "small", 1.5)
    assert [e.run_class for e in before.classes] == ["a", "aa", "c"] and before.of("b") is None
    later = before.with_end("d", "small", 1.0).with_end("e", "small", 1.0)
    assert [e.run_class for e in later.classes] == ["aa", "d", "e"] and [e.last for e in later.classes] == [5, 6, 7]
    assert LearntRunTimes(later.classes).of("aa") == later.of("aa")


@given(ENDS, st.integers(2, 5))
def test_what_is_asked_meanwhile_changes_nothing(ends: list[tuple[str, str, float]], most: int) -> None:
    """After a question what all classes tell is kept, and follows completions and classes that are forgotten."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(learnt_run_times, "MOST_ENTRIES", most)
        asked = LearntRunTimes()
        for run_class, machine_type, done in ends:
            asked = asked.with_end(run_class, machine_type, done)
            asked.of(run_class)
        assert [asked.of(*place) for place in PLACES] == [after(ends).of(*place) for place in PLACES]
        assert asked.variances == after(ends).variances


@settings(max_examples=30)
@given(ENDS.filter(bool))
def test_factors_and_spreads_are_those_of_the_model_written_out(ends: list[tuple[str, str, float]]) -> None:
    """By the covariance of all runs and the next one, at each pair of shares."""
    known = after(ends)
    logs = np.array([math.log(done) for _, _, done in ends])
    of = np.array([(NAMES.index(name), TYPES.index(kind)) for name, kind, _ in ends])
    asked = of[-1]
    every = np.vstack([of, asked])
    same_class = every[:, None, 0] == every[None, :, 0]
    same_type = same_class & (every[:, None, 1] == every[None, :, 1])
    count, of_runs = learnt_run_times.RUN_COUNT, learnt_run_times.RUN_VARIANCE
    points = []
    for i, of_classes in enumerate(learnt_run_times.CLASS_SHARES):
        for j, of_types in enumerate(learnt_run_times.TYPE_SHARES):
            rest = 1.0 - of_classes
            shared = of_classes * same_class + rest * of_types * same_type
            covariance = shared / (rest * (1.0 - of_types)) + np.eye(len(every))
            seen, next_to = covariance[:-1, :-1], covariance[-1, :-1]
            squares = count * of_runs + logs @ np.linalg.solve(seen, logs)
            likelihood = -0.5 * (np.linalg.slogdet(seen)[1] + (count + len(ends)) * math.log(squares))
            before = math.log((9.0 if i == 0 else 1.0) * (7.0 if j == 0 else 1.0))
            variance = (covariance[-1, -1] - next_to @ np.linalg.solve(seen, next_to)) * squares / (count + len(ends))
            points.append((likelihood + before, next_to @ np.linalg.solve(seen, logs), variance))
    weights, means, variances = np.array(points).T
    weights = np.exp(weights - weights.max())
    mean = np.average(means, weights=weights)
    spread = math.sqrt(np.average(variances + (means - mean) ** 2, weights=weights))
    runs = sum(name == ends[-1][0] for name, _, _ in ends)
    factor = np.clip(math.exp(mean), *(EARLY_FACTORS if runs < FEW_RUNS else LEARNT_FACTORS))
    found = learnt(known, *ends[-1][:2])
    assert found.factor == pytest.approx(factor, rel=0.011)
    assert found.spread == pytest.approx(spread + abs(mean - math.log(factor)), abs=0.011, rel=0.005)


@given(ENDS.filter(bool), any_of(0.0, 0.5, 1.0, 2.5, 20.0))
def test_bounds_of_factors_make_no_run_end_earlier_for_sure(ends: list[tuple[str, str, float]], done: float) -> None:
    """The late quantile of a class whose factor is bounded from above is not before that of what its runs tell."""
    found = learnt(after(ends), *ends[-1][:2])
    with pytest.MonkeyPatch.context() as patch:
        wide = [step / 100.0 for step in range(-700, 701)]
        patch.setattr(learnt_run_times, "_BOUNDED", np.exp([wide, wide]))
        free = learnt(after(ends), *ends[-1][:2])
    if found.factor < free.factor:
        assert found.late_length(done, LATE) >= 0.98 * free.late_length(done, LATE)


@given(ENDS)
def test_factors_are_bounded_and_narrowly_while_runs_are_few(ends: list[tuple[str, str, float]]) -> None:
    known = after(ends)
    for name in NAMES:
        runs = sum(run_class == name for run_class, _, _ in ends)
        assert (known.of(name) is None) == (runs == 0)
        least, most = EARLY_FACTORS if runs < FEW_RUNS else LEARNT_FACTORS
        assert all(least <= factor <= most for _, factor in known.factors(name))
    assert known.of("", "small") is None and known.of("never ran") is None and known.factors("never ran") == ()


@given(ENDS)
def test_factors_of_a_class_are_those_of_its_types(ends: list[tuple[str, str, float]]) -> None:
    known = after(ends)
    for name in NAMES:
        seen = {machine_type for run_class, machine_type, _ in ends if run_class == name}
        assert {machine_type for machine_type, _ in known.factors(name)} == (seen | {""} if seen else set())
        for machine_type, factor in known.factors(name):
            assert factor == learnt(known, name, machine_type or None).factor


@given(ENDS, st.sampled_from(NAMES))
def test_a_class_that_runs_as_forecast_has_no_factor(ends: list[tuple[str, str, float]], name: str) -> None:
    exact = after([(run_class, machine_type, 1.0) for run_class, machine_type, _ in ends])

    assert all(factor == 1.0 for _, factor in exact.factors(name))


def test_factors_that_are_not_applied_are_shown_only() -> None:
    known = LearntRunTimes(applied=False).with_end("a", "small", 2.0)

    assert known.of("a", "small") is None and known.factors("a") == ()
    found = known.shown("a", "small")
    assert found is not None and found.factor > 1.0 and found.runs == 1


def drawn(classes: float, types: float, runs: float, seed: int, ends: int = 900) -> tuple[LearntRunTimes, list[float]]:
    """After completions of 30 classes on both types, whose logarithms have such spreads; and the truth on the first type."""
    rng = np.random.default_rng(seed)
    of_class, of_type = classes * rng.standard_normal(30), types * rng.standard_normal((30, 2))
    known = LearntRunTimes()
    for k in range(ends):
        c, t = k % 30, int(rng.integers(2))
        log = of_class[c] + of_type[c, t] + runs * rng.standard_normal()
        known = known.with_end(f"{c:02d}", TYPES[t], math.exp(log))
    return known, (of_class + of_type[:, 0]).tolist()


@pytest.mark.parametrize(("classes", "types", "runs"), [(0.6, 0.0, 0.1), (0.3, 0.3, 0.1), (0.5, 0.2, 0.4)])
def test_variances_and_factors_find_the_truth(classes: float, types: float, runs: float) -> None:
    known, truth = drawn(classes, types, runs, seed=5)
    found = known.variances

    assert math.sqrt(found.run) == pytest.approx(runs, rel=0.1)
    assert math.sqrt(found.run_class) == pytest.approx(classes, rel=0.3)
    assert math.sqrt(found.type) == pytest.approx(types, abs=0.1)
    logs = [math.log(learnt(known, f"{c:02d}", "large").factor) for c in range(30)]
    error = math.sqrt(np.mean([(log - true) ** 2 for log, true in zip(logs, truth, strict=True)]))
    assert error < 1.3 * runs / math.sqrt(15.0) + 0.01
    assert learnt(known, "07", "large").spread == pytest.approx(math.hypot(runs, error), rel=0.25)


def test_more_completions_come_closer() -> None:
    errors = []
    for ends in (60, 300, 1500):
        known, truth = drawn(0.5, 0.2, 0.3, seed=8, ends=ends)
        logs = [math.log(learnt(known, f"{c:02d}", "large").factor) for c in range(30)]
        errors.append(float(np.mean(np.abs(np.subtract(logs, truth)))))

    assert errors[0] > 1.5 * errors[1] and errors[1] > 1.5 * errors[2]


def test_one_completion_is_enough_where_classes_differ_and_runs_do_not() -> None:
    known, _ = drawn(0.5, 0.0, 0.05, seed=3)

    assert learnt(known.with_end("new", "small", 1.8), "new", "small").factor == pytest.approx(1.8, rel=0.03)


def test_scattered_runs_of_classes_that_are_alike_move_no_factor() -> None:
    known, _ = drawn(0.0, 0.0, 0.4, seed=4)
    known = known.with_end("new", "small", 1.8)

    logs = [math.log(learnt(known, f"{c:02d}", "large").factor) for c in range(30)]
    assert math.sqrt(np.mean(np.square(logs))) < 0.6 * 0.4 / math.sqrt(15.0)
    assert learnt(known, "new", "small").factor < 1.1
    assert learnt(known, "new", "small").spread == pytest.approx(0.4, abs=0.05)


def test_a_class_on_a_type_is_between_its_own_runs_and_those_of_its_class() -> None:
    known, _ = drawn(0.3, 0.3, 0.3, seed=6)
    for _ in range(40):
        known = known.with_end("new", "large", 1.5)
    once = known.with_end("new", "small", 0.9)

    assert 0.9 < learnt(once, "new", "small").factor < learnt(once, "new").factor < learnt(once, "new", "large").factor
    assert learnt(once, "new", "large").factor == pytest.approx(1.5, rel=0.05)
    assert learnt(known, "new", "small") == learnt(known, "new") and learnt(known, "new").spread > 0.3


@pytest.mark.parametrize("log_sum", [-1e12, -700.0, 700.0, 1e12])
@pytest.mark.parametrize("done", [0.0, 0.5, 1.0, 1e12])
def test_no_sums_that_a_file_may_have_leave_the_range_of_numbers(log_sum: float, done: float) -> None:
    entry = ClassRuns.of("a", "t", 1, log_sum, 1e12, 1)
    for machine_type in ("t", None):
        found = LearntRunTimes((entry,)).of("a", machine_type)
        assert found is not None
        assert 0.99 * done <= found.length(done) < math.inf
        assert 0.99 * done <= found.late_length(done, LATE) < math.inf
