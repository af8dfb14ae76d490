from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from objects_builders import pod

from builders import CACHE, CATALOGUE, SCALING, catalogue
from flowsched_k8s import names
from flowsched_k8s.pods.intent import (
    GOAL_RANGE_S,
    LONGEST_VALUE,
    MOST_QPS,
    MOST_WIDTHS,
    NEUTRAL,
    P95_RANGE_US,
    SCALE_RANGE,
    UTILITY_RANGE,
    WIDEST_MILLI,
    Intent,
    Slo,
    read_intent,
)

KEYS = {
    "profile": names.PROFILE,
    "workload_class": names.WORKLOAD_CLASS,
    "slo": names.SLO,
    "load": names.LOAD,
    "client": names.CLIENT,
    "scale": names.SCALE,
    "goal": names.GOAL,
    "widths": names.WIDTHS,
    "min_utility": names.MIN_UTILITY,
}


def said(**values: str) -> Intent:
    return read_intent(pod(annotations={KEYS[k]: v for k, v in values.items()}), CATALOGUE)


def problem(**values: str) -> str:
    (text,) = said(**values).problems
    return text


def test_a_pod_that_says_nothing_is_neutral() -> None:
    assert read_intent(pod(annotations={"other/thing": "1"}), CATALOGUE) == NEUTRAL
    assert Intent() == NEUTRAL


def test_everything_at_once() -> None:
    assert said(
        profile="cache",
        workload_class="latency-sensitive",
        slo="p95=1ms@30000qps",
        load="25K",
        client="plain",
        scale="2.5",
        goal="1h30m",
        widths="2, 500m,1",
        min_utility="-0.5",
    ) == Intent(
        profile=None,
        service="cache",
        slo=Slo(1000.0, 30_000.0),
        load_qps=25_000.0,
        client="plain",
        scale=2.5,
        goal_s=5400.0,
        widths_milli=(500, 1000, 2000),
        min_utility=-0.5,
    )


def test_an_annotation_wins_over_a_label() -> None:
    both = pod(labels={names.PROFILE: "serial", names.SCALE: "2"}, annotations={names.PROFILE: "scaling"})
    found = read_intent(both, CATALOGUE)
    assert (found.profile, found.scale) == ("scaling", 2.0)


def test_a_bad_annotation_is_not_rescued_by_a_label() -> None:
    both = pod(labels={names.SCALE: "2"}, annotations={names.SCALE: "much"})
    assert read_intent(both, CATALOGUE).scale == 1.0


def test_a_problem_says_where_the_value_stands() -> None:
    (text,) = read_intent(pod(labels={names.SCALE: "much"}), CATALOGUE).problems
    assert text == f"label {names.SCALE}: 'much' is not a number; give a number from 0.001 to 100000"


def test_profiles_of_jobs_and_services() -> None:
    assert (said(profile="scaling").profile, said(profile="scaling").service) == ("scaling", None)
    assert (said(profile="cache").profile, said(profile="cache").service) == (None, "cache")


def test_a_name_of_both_is_what_its_class_says() -> None:
    twins = catalogue(services=[CACHE.__class__(**{**vars(CACHE), "name": SCALING.name})])
    for text, is_service in ((names.LATENCY_SENSITIVE, True), (names.BATCH, False)):
        notes = {names.PROFILE: SCALING.name, names.WORKLOAD_CLASS: text}
        found = read_intent(pod(annotations=notes), twins)
        assert (found.service is not None, found.profile is not None) == (is_service, not is_service)


def test_an_unknown_profile_gets_the_nearest_name() -> None:
    text = problem(profile="scalling")
    assert text == (
        f"annotation {names.PROFILE}: there is no profile 'scalling'; "
        "did you mean 'scaling'? (known: scaling, serial, hungry, cache)"
    )


@pytest.mark.parametrize(
    ("text", "slo"),
    [
        ("p95=1ms@30000qps", Slo(1000.0, 30_000.0)),
        ("p95=800us@30Kqps", Slo(800.0, 30_000.0)),
        ("p95=800us@30K", Slo(800.0, 30_000.0)),
        ("p95 = 1.5 ms @ 1e3 qps", Slo(1500.0, 1000.0)),
        ("p95=2s@1M", Slo(2e6, 1e6)),
    ],
)
def test_latency_goals(text: str, slo: Slo) -> None:
    assert said(profile=CACHE.name, slo=text) == Intent(service=CACHE.name, slo=slo)
    assert said(slo=text).slo == slo
    assert "is looked at only with the profile of a latency service" in problem(slo=text)


def test_a_misspelt_name_is_told_with_the_nearest_one() -> None:
    found = read_intent(pod("p", annotations={f"{names.PREFIX}/profiles": "freqmine"}), CATALOGUE)
    assert found.profile is None
    [told] = found.problems
    assert "flowsched.io/profiles" in told
    assert "flowsched.io/profile'" in told
    written = dict.fromkeys((names.PLACEMENT, names.THREADS, names.CORES, names.WIDTH), "1")
    assert not read_intent(pod("p", annotations=written), CATALOGUE).problems


def test_a_goal_without_load_uses_the_load_that_is_given() -> None:
    assert said(slo="p95=1ms", load="12K").slo == Slo(1000.0, 12_000.0)
    assert (
        f"names no load; write it as p95=1ms@30000qps or p95=800us@30Kqps, or give the load in {names.LOAD}"
        in problem(slo="p95=1ms")
    )


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("90s", 90.0),
        ("5m", 300.0),
        ("1h30m", 5400.0),
        ("1h1m1.5s", 3661.5),
        ("90", 90.0),
        ("0.5", 0.5),
        ("1e3", 1000.0),
    ],
)
def test_goals(text: str, seconds: float) -> None:
    assert said(goal=text) == Intent(goal_s=seconds)


@pytest.mark.parametrize(
    ("text", "widths", "threads"),
    [
        ("1,2,4", (1000, 2000, 4000), (1, 2, 4)),
        ("4, 1 ,4000m", (1000, 4000), (1, 4)),
        ("900m", (900,), (1,)),
        ("0.5,1,1.5", (500, 1000, 1500), (1, 2)),
    ],
)
def test_widths(text: str, widths: Any, threads: Any) -> None:
    assert said(widths=text) == Intent(widths_milli=widths)
    assert said(widths=text).threads == threads


@pytest.mark.parametrize(
    ("name", "value", "part"),
    [
        ("profile", "", "there is no profile ''"),
        ("workload_class", "bach", "did you mean 'batch'?"),
        ("slo", "1ms", "'1ms' is not a latency goal; write it as p95=1ms@30000qps"),
        ("slo", "p95=1@30000", "has no unit"),
        ("slo", "p95=1ms@fast", "'fast' is not a load"),
        ("slo", "p95=1ms@0", "is no load to keep a goal at"),
        ("slo", "p95=100s@1", "is not between 1us and 60s"),
        ("slo", "p99=1ms@30000", "is not a latency goal"),
        ("slo", "p95=1ms@1@2", "is not a latency goal"),
        ("load", "-5", "must be finite and not negative"),
        ("load", "1e12", "more than 1,000,000,000 queries per second"),
        ("scale", "0", "'0' is out of range; give a number from 0.001 to 100000"),
        ("scale", "nan", "'nan' is not a number"),
        ("scale", "inf", "'inf' is not a number"),
        ("goal", "soon", "'soon' is not a duration; write it as 90s, 5m, 1h30m or as seconds, at most 720h"),
        ("goal", "721h", "is not between 0.1s and 720h"),
        ("goal", "0", "is not between 0.1s and 720h"),
        ("goal", "", "'' is not a duration"),
        ("goal", "5m1h", "'5m1h' is not a duration"),
        ("widths", "1,,2", "has an empty width"),
        ("widths", "1;2", "'1;2' is not a number of cores"),
        ("widths", "0", "must be more than 0 cores"),
        ("widths", "9999", "is more than 4096 cores"),
        ("widths", ",".join(map(str, range(1, 18))), "17 widths are given, and 16 are allowed"),
        ("min_utility", "2", "give a number from -100 to 1"),
        ("client", "plain", f"name a service profile in {names.PROFILE}"),
    ],
)
def test_a_bad_value_is_one_sentence_and_counts_as_not_given(name: str, value: str, part: str) -> None:
    found = said(**{name: value})
    (text,) = found.problems
    assert text.startswith(f"annotation {KEYS[name]}: ") and part in text
    assert found == Intent(problems=found.problems)


def test_a_client_must_have_been_measured() -> None:
    found = said(profile="cache", client="plane")
    assert found.client is None and found.service == "cache"
    (text,) = found.problems
    assert "service cache was not measured with client 'plane'; did you mean 'plain'?" in text


def test_every_mistake_is_told() -> None:
    found = said(profile="nope", scale="x", widths="y", goal="1m")
    assert len(found.problems) == 3
    assert found.goal_s == 60.0


@pytest.mark.parametrize("name", KEYS)
def test_long_values_are_refused_and_not_repeated(name: str) -> None:
    long = "1" * (LONGEST_VALUE + 1)
    text = problem(**{name: long})
    assert text == (
        f"annotation {KEYS[name]}: the value has 257 characters, and 256 are allowed; write a shorter value"
    )


texts = st.one_of(
    st.text(max_size=40),
    st.text(alphabet="0123456789.,eE+-mshKMqpu=@ \x00\n٣", max_size=40),
    st.from_regex(r"p95=[0-9]{1,3}(us|ms|s)?@[0-9eE]{1,9}(K|M)?(qps)?", fullmatch=True),
    st.from_regex(r"[0-9]{1,400}", fullmatch=True),
    st.from_regex(r"[0-9]e[0-9]{1,12}", fullmatch=True),
    st.from_regex(r"[0-9]e-[0-9]{1,12}", fullmatch=True),
    st.sampled_from(["scaling", "cache", "plain", "batch", "1,2", "5m", "p95=1ms@1"]),
)


@given(
    st.dictionaries(st.sampled_from(sorted(KEYS.values())), texts),
    st.dictionaries(st.sampled_from(sorted(KEYS.values())), texts),
)
def test_whatever_users_write_is_bounded_and_never_raises(labels: dict[str, str], annotations: dict[str, str]) -> None:
    found = read_intent(pod(labels=labels, annotations=annotations), CATALOGUE)
    assert SCALE_RANGE[0] <= found.scale <= SCALE_RANGE[1]
    assert found.goal_s is None or GOAL_RANGE_S[0] <= found.goal_s <= GOAL_RANGE_S[1]
    assert found.load_qps is None or 0 <= found.load_qps <= MOST_QPS
    assert found.slo is None or (
        P95_RANGE_US[0] <= found.slo.p95_us <= P95_RANGE_US[1] and 0 < found.slo.qps <= MOST_QPS
    )
    assert found.min_utility is None or UTILITY_RANGE[0] <= found.min_utility <= UTILITY_RANGE[1]
    assert list(found.widths_milli) == sorted(set(found.widths_milli)) and len(found.widths_milli) <= MOST_WIDTHS
    assert all(0 < w <= WIDEST_MILLI for w in found.widths_milli)
    assert found.profile is None or found.profile in CATALOGUE.jobs
    assert found.service is None or found.service in CATALOGUE.services
    assert len(found.problems) <= len(labels.keys() | annotations.keys())
    assert all(len(p) < 600 and p.isprintable() for p in found.problems)
