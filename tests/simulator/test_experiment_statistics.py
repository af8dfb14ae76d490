"""Intervals, paired differences and what is said about them: published numbers and properties."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from flowsched_simulator.experiment.paired import holm, paired_difference
from flowsched_simulator.experiment.policy_comparison import (
    BETTER,
    OPEN,
    UNTESTED,
    WORSE,
    PolicyComparison,
    adjusted,
)
from flowsched_simulator.experiment.seed_statistics import mean_of, quantile_of

# Student 1908, Biometrika 6: additional hours of sleep of ten patients by two drugs.
FIRST = (0.7, -1.6, -0.2, -1.2, -0.1, 3.4, 3.7, 0.8, 0.0, 2.0)
SECOND = (1.9, 0.8, 1.1, 0.1, -0.1, 4.4, 5.5, 1.6, 4.6, 3.4)


def by_seed(values: tuple[float | None, ...]) -> dict[int, float | None]:
    return dict(enumerate(values, start=1))


def test_students_sleep_data_give_the_published_interval_and_p_value() -> None:
    found = paired_difference(by_seed(FIRST), by_seed(SECOND))
    assert found.seeds == 10 and found.lost == 0
    # As R's t.test(extra ~ group, data = sleep, paired = TRUE) prints them.
    assert found.mean == pytest.approx(-1.58)
    assert (found.low, found.high) == pytest.approx((-2.4598858, -0.7001142), abs=1e-6)
    assert found.p == pytest.approx(0.002832890, abs=1e-8)
    assert found.reference_mean == pytest.approx(2.33)
    assert found.p_wilcoxon is not None and found.p_wilcoxon < 0.05


def test_students_interval_of_one_mean() -> None:
    found = mean_of(SECOND)
    # R: t.test(sleep$extra[sleep$group == 2])
    assert (found.value, found.low, found.high) == pytest.approx((2.33, 0.8976775, 3.7623225), abs=1e-6)


def test_holm_as_it_was_published() -> None:
    # R: p.adjust(c(0.01, 0.02, 0.03, 0.04), "holm")
    assert holm([0.01, 0.02, 0.03, 0.04]) == pytest.approx([0.04, 0.06, 0.06, 0.06])
    assert holm([0.04, None, 0.01]) == [pytest.approx(0.04), None, pytest.approx(0.02)]


def test_missing_figures_are_counted_and_left_out() -> None:
    found = paired_difference(by_seed((1.0, None, 3.0)), by_seed((2.0, 2.0, 5.0)))
    assert (found.seeds, found.lost, found.mean) == (2, 1, pytest.approx(-1.5))
    assert paired_difference({1: None}, {1: 2.0}).mean is None
    assert paired_difference({1: 1.0}, {2: 2.0}).mean is None


@settings(max_examples=30)
@given(st.lists(st.floats(1.0, 100.0), min_size=2, max_size=12), st.floats(-5.0, 5.0))
def test_a_constant_difference_is_known_exactly(values: list[float], shift: float) -> None:
    base = np.array(values)
    found = paired_difference(by_seed(tuple(base + shift)), by_seed(tuple(base)))
    assert found.mean == pytest.approx(shift, abs=1e-9)
    assert found.low == pytest.approx(shift, abs=1e-6) and found.high == pytest.approx(shift, abs=1e-6)


@settings(max_examples=30)
@given(st.lists(st.tuples(st.floats(0.0, 100.0), st.floats(1.0, 100.0)), min_size=2, max_size=12))
def test_the_other_way_round_is_the_negative(pairs: list[tuple[float, float]]) -> None:
    own, other = by_seed(tuple(a for a, _ in pairs)), by_seed(tuple(b for _, b in pairs))
    there, back = paired_difference(own, other), paired_difference(other, own)
    assert there.mean == pytest.approx(-back.mean, abs=1e-9)  # type: ignore[operator]
    assert there.low == pytest.approx(-back.high, abs=1e-9)  # type: ignore[operator]
    assert there.p == pytest.approx(back.p, abs=1e-9)


@settings(max_examples=20)
@given(st.lists(st.lists(st.floats(0.0, 1e6), min_size=1, max_size=30), min_size=2, max_size=6), st.floats(0.05, 0.95))
def test_a_bootstrap_interval_holds_values_and_repeats(groups: list[list[float]], q: float) -> None:
    found = quantile_of(groups, q)
    every = [value for group in groups for value in group]
    assert min(every) <= found.low <= found.high <= max(every)  # type: ignore[operator]
    assert found.value in every
    assert quantile_of(groups, q) == found


def test_the_quantile_is_of_all_jobs_and_many_jobs_are_thinned_without_harm() -> None:
    few = [[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]
    assert quantile_of(few, 0.5).value == 3.0
    assert quantile_of(few, 0.95).value == 6.0
    rng = np.random.default_rng(3)
    many = [rng.exponential(size=20_000) for _ in range(4)]
    found = quantile_of(many, 0.95)
    assert found.value == pytest.approx(np.quantile(np.concatenate(many), 0.95), rel=0.01)
    assert found.low < -np.log(0.05) < found.high  # type: ignore[operator]


def test_bootstrap_intervals_of_independent_seeds_hold_the_truth_about_as_often_as_they_say() -> None:
    rng = np.random.default_rng(11)
    inside = 0
    for _ in range(30):
        found = quantile_of([rng.exponential(size=40) for _ in range(20)], 0.5)
        inside += found.low <= np.log(2.0) <= found.high  # type: ignore[operator]
    assert 25 <= inside <= 30


def compared(
    own: tuple[float | None, ...], other: tuple[float | None, ...], metric: str = "makespan_s"
) -> PolicyComparison:
    difference = paired_difference(by_seed(own), by_seed(other))
    (found,) = adjusted([PolicyComparison("case", "a", "b", metric, difference)])
    return found


def test_sentences_say_which_is_better_by_how_much_or_that_it_is_not_decided() -> None:
    less, more = (10.0, 11.0, 12.0, 10.5), (20.0, 21.5, 23.0, 20.5)
    assert compared(less, more).verdict == BETTER
    assert "case: a is better than b by makespan: 48.8 % lower (95 % interval" in compared(less, more).sentence()
    assert compared(more, less).verdict == WORSE
    assert compared((1.0, 2.0, 3.0), (2.0, 1.0, 3.1)).verdict == OPEN
    told = compared((1.0, 2.0, 3.0), (2.0, 1.0, 3.1)).sentence()
    assert told.startswith(
        "case: no significant difference between a and b by makespan: a is 1.6 % lower in the mean ("
    )
    assert told.endswith("3 seeds, p = 0.96).")
    assert compared(less, less).sentence() == "case: a and b are equal by makespan in all 4 seeds."
    assert "a is 50.0 % lower than b with one seed, which decides nothing" in compared((1.0,), (2.0,)).sentence()
    assert "2 seeds left out: a job never ended" in compared((*less, None, None), (*more, 1.0, 1.0)).sentence()
    assert "no seed has a figure of both" in compared((None,), (1.0,)).sentence()


def test_a_share_is_told_in_percentage_points_and_a_reference_of_zero_in_units() -> None:
    over = compared((0.1, 0.12, 0.11), (0.0, 0.0, 0.0), "slo_violation_ratio").sentence()
    assert "11 percentage points higher (95 % interval" in over
    assert "1.5 s higher (95 % interval" in compared((1.0, 2.0, 1.5), (0.0, 0.0, 0.0), "mean_waiting_s").sentence()


def test_many_comparisons_make_each_of_them_harder_to_decide() -> None:
    rng = np.random.default_rng(5)
    base = rng.normal(100.0, 1.0, size=8)
    alone = paired_difference(by_seed(tuple(base + rng.normal(1.2, 1.0, size=8))), by_seed(tuple(base)))
    assert alone.p is not None and 0.005 < alone.p < 0.05
    once = PolicyComparison("case", "a", "b", "makespan_s", alone)
    assert adjusted([once])[0].verdict == WORSE
    among = adjusted([once] * 30)[0]
    assert among.verdict == OPEN
    assert "not significant after correction for 30 comparisons" in among.sentence()


def test_a_test_that_cannot_have_its_level_is_not_made() -> None:
    rng = np.random.default_rng(2)
    for seeds in range(2, 8):
        other = rng.normal(100.0, 1.0, size=seeds)
        found = paired_difference(by_seed(tuple(other + rng.uniform(5.0, 6.0, size=seeds))), by_seed(tuple(other)))
        # All of one sign is the most that signed ranks can show: 2 / 2^n.
        assert found.p_wilcoxon == (None if seeds < 6 else pytest.approx(2.0 / 2**seeds))
        assert found.p is not None and found.p < 0.05
    equal = compared((1.0, 2.0, 3.0, 4.0), (1.0, 2.0, 3.0, 4.0))
    assert (equal.difference.p, equal.difference.p_wilcoxon, equal.verdict) == (None, None, UNTESTED)
    alike = compared((1.0, 2.0, 3.0), (2.0, 3.0, 4.0))
    assert (alike.difference.p, alike.difference.p_wilcoxon, alike.verdict) == (None, None, UNTESTED)
    assert alike.sentence() == "case: by makespan, a is 33.3 % lower than b in all 3 seeds alike: nothing varies."
    assert compared((1.0,), (2.0,)).verdict == compared((None,), (2.0,)).verdict == UNTESTED


def test_where_nothing_is_drawn_there_is_no_p() -> None:
    one = PolicyComparison("case", "a", "b", "makespan_s", paired_difference({1: 99.9}, {1: 100.0}, drawn=False))
    tested = PolicyComparison(
        "case", "c", "b", "makespan_s", paired_difference(by_seed((1.0, 2.0, 3.5)), by_seed((2.0, 3.1, 4.0)))
    )
    found, beside = adjusted([one, tested])
    assert (found.p_adjusted, found.verdict, found.difference.p_wilcoxon) == (None, UNTESTED, None)
    assert found.sentence() == "case: by makespan, a is 0.1 % lower than b (nothing is drawn: one run each)."
    assert (beside.among, beside.p_adjusted) == (1, tested.difference.p), "what is not tested does not count"
    same = PolicyComparison("case", "a", "b", "makespan_s", paired_difference({1: 5.0}, {1: 5.0}, drawn=False))
    assert same.sentence() == "case: a and b are equal by makespan (nothing is drawn: one run each)."


@settings(max_examples=60)
@given(st.lists(st.sampled_from([-3.0, -2.0, -1.0, 0.0, 1.0, 2.0, 3.0]) | st.floats(-9.0, 9.0), min_size=2, max_size=9))
def test_signed_ranks_are_exact_with_zeros_and_ties(differences: list[float]) -> None:
    """Against all signs, by brute force."""
    found = paired_difference(by_seed(tuple(differences)), by_seed((0.0,) * len(differences)))
    scale = max(abs(d) for d in differences)
    kept = [d for d in differences if abs(d) > 1e-12 * scale]
    if len(kept) < 6:
        assert found.p_wilcoxon is None
        return
    ranks = [sum((abs(e) < abs(d)) + (abs(e) == abs(d)) / 2 for e in kept) + 0.5 for d in kept]
    sums = [sum(r for r, up in zip(ranks, signs, strict=True) if up) for signs in product((0, 1), repeat=len(kept))]
    mine = sum(r for r, d in zip(ranks, kept, strict=True) if d > 0.0)
    least = min(mine, sum(ranks) - mine)
    assert found.p_wilcoxon == pytest.approx(min(1.0, 2.0 * sum(s <= least + 1e-9 for s in sums) / len(sums)))


def test_signed_ranks_of_many_seeds_are_those_of_scipy() -> None:
    differences = np.random.default_rng(4).normal(0.2, 1.0, size=70)
    found = paired_difference(by_seed(tuple(differences)), by_seed((0.0,) * 70))
    assert found.p_wilcoxon == pytest.approx(stats.wilcoxon(differences, method="approx").pvalue)
    few = paired_difference(by_seed(tuple(differences[:12])), by_seed((0.0,) * 12))
    assert few.p_wilcoxon == pytest.approx(stats.wilcoxon(differences[:12], method="exact").pvalue)
