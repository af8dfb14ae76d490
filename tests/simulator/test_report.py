import copy
import json
import re
from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flowsched_simulator.report.colour import job_colours
from flowsched_simulator.report.drawn_data import MOVED, PREEMPTED, UNFINISHED
from flowsched_simulator.report.lane import Occupant, shares, split_lanes
from flowsched_simulator.report.number import compact, core_list, fixed
from flowsched_simulator.report.page import render_report
from flowsched_simulator.report.scale import LEFT, RIGHT, WIDTH, TimeScale, even_ticks
from flowsched_simulator.report.verdict import verdict
from flowsched_simulator.table import render_table


def job(name, machine="small", cores=(0,), start=0.0, end=10.0, **more):
    return {
        "job": name, "profile": name, "machine": machine, "cores": list(cores), "request": 1.0, "threads": 2,
        "submit_s": 0, "start_s": start, "end_s": end, "alone_s": 8.0, "slowdown": 1.25,
    } | more  # fmt: skip


def window(start, end, p95_us, service="memcached"):
    return {"service": service, "t_s": start, "end_s": end, "qps": 30000, "p95_us": p95_us}


def run(policy="flow", jobs=(), latency=(), makespan=100.0, **more):
    return {
        "policy": policy, "variant": "", "seed": 0, "makespan_s": makespan, "jobs": list(jobs),
        "latency": list(latency), "slo_violation_ratio": 0.0, "rounds": 3, "gap": {"max": 0.0, "mean": 0.0},
        "timings": {"round_ms": {"p50": 1.0, "p99": 2.0}},
    } | more  # fmt: skip


def row(policy="flow", **more):
    return {
        "policy": policy, "variant": "", "makespan_s": 100.0, "mean_completion_s": 50.0,
        "p95_completion_s": 90.0, "mean_waiting_s": 1.0, "mean_slowdown": 1.2, "slo_violation_ratio": 0.0,
        "worst_p95_us": None, "timings": {"round_ms": {"p50": 1.0, "p99": 2.0}}, "gap_absolute_max": None,
        "gap_relative_max": None, "certificate": None,
    } | more  # fmt: skip


def result(runs, table=None, services=True):
    memcached = {
        "name": "memcached", "machine": "small", "cores": [1], "threads": 1, "qps": 30000, "slo_us": 1000.0
    }  # fmt: skip
    machines = [
        {"name": "small", "type": "n2d-highcpu-2", "vcpus": 2},
        {"name": "large", "type": "e2-standard-4", "vcpus": 4},
    ]
    return {
        "version": "flowsched/v1", "scenario": "two-machines", "description": "Try", "objective": "makespan",
        "cluster": {"machines": machines, "services": [memcached] if services else []},
        "table": [row(r["policy"], variant=r["variant"]) for r in runs] if table is None else table,
        "runs": list(runs),
    }  # fmt: skip


def drawn(page):
    """What the page's scripts draw from."""
    (data,) = re.findall(r'<script type="application/json" id="data">(.*?)</script>', page, flags=re.DOTALL)
    return json.loads(data)


def lanes(page, run=0):
    """Lane pieces of a run: by job or service, the machine, seconds and cores that each covers."""
    data = drawn(page)
    pieces, stays, jobs = (data["runs"][run][key] for key in ("pieces", "stays", "jobs"))
    found = {}
    for stay, *box in zip(*(pieces[key] for key in ("stay", "start", "end", "low", "high")), strict=True):
        if stay < 0:
            name, machine = data["services"][-1 - stay]["name"], data["services"][-1 - stay]["machine"]
        else:
            name, machine = data["jobs"]["name"][jobs["job"][stays["job"][stay]]], stays["machine"][stay]
        found.setdefault(name, []).append((data["machines"]["name"][machine], *box))
    return found


@pytest.fixture
def page():
    shared = [job("ferret", "large", range(4), 1, 90), job("freqmine", "large", (0, 1), 5, 60)]
    windows = [window(0, 10, 440.0), window(10, 20, 1500.0), window(20, 30, 90000.0)]
    runs = [run("flow", shared, windows), run("fifo", [job("ferret", "large", (2,), 0, 80)], makespan=80.0)]
    return render_report(result(runs))


def test_identifiers_are_unique(page):
    identifiers = re.findall(r'\bid="([^"]+)"', page)
    assert len(identifiers) == len(set(identifiers))


def test_every_table_has_a_caption(page):
    assert page.count("<caption>") == page.count("<table") == 1


def test_nothing_is_fetched(page):
    assert not re.search(r"https?://", page)
    assert not re.search(r"""(?:src|href)=["'](?!data:,)|@import|url\(""", page)


def test_same_input_gives_same_bytes():
    data = result([run("flow", [job("a"), job("b", "large", (0, 3))], [window(0, 10, 1.0)])])
    before = copy.deepcopy(data)
    assert render_report(data) == render_report(copy.deepcopy(data))
    assert data == before


def test_names_are_escaped_everywhere():
    evil = '<script>alert("x")</script>&\'\x07'
    odd = run(evil, [job(evil, evil, (0,), profile=evil)], [window(0, 10, 5.0, evil)], variant=evil)
    data = result([odd], [row(evil, variant=evil, certificate=evil)])
    data |= {"scenario": evil, "description": evil, "objective": evil}
    data["cluster"]["machines"].append({"name": evil, "type": evil, "vcpus": 1})
    data["cluster"]["services"].append({"name": evil, "machine": evil, "cores": [0], "slo_us": 1.0})
    text = render_report(data)
    assert "<script>alert" not in text
    assert text.count("<script>") == 1
    assert drawn(text)["jobs"]["name"] == [evil]


def test_jobs_divide_the_cores_that_they_share(page):
    assert lanes(page) == {
        "memcached": [("small", 0, 100, 1, 2)],
        # Two threads each: the cores that are ferret's alone are enough for it.
        "ferret": [("large", 1, 90, 0, 2)],
        "freqmine": [("large", 5, 60, 2, 4)],
    }


def test_windows_are_as_they_were_measured(page):
    data = drawn(page)
    (windows,) = data["runs"][0]["latency"]
    assert (windows["start"], windows["end"], windows["p95"]) == ([0, 10, 20], [10, 20, 30], [0.44, 1.5, 90])
    assert data["services"][windows["service"]] == {
        "name": "memcached", "machine": 0, "cores": "1", "threads": 1, "slo": 1.0
    }  # fmt: skip
    assert data["runs"][1]["latency"] == []


def test_several_services_are_told_apart():
    data = drawn(render_report(result([run("flow", [job("a")], [window(0, 10, 5.0), window(0, 10, 9.0, "search")])])))
    names = [data["services"][one["service"]]["name"] for one in data["runs"][0]["latency"]]
    assert names == ["memcached", "search"]
    assert data["services"][1]["slo"] is None


def test_a_run_without_latency_says_so():
    without_rows = render_report(result([run("flow", [job("a")])]))
    assert drawn(without_rows)["runs"][0]["notes"] == ["No latency was recorded for memcached in this run."]
    assert "no latency service" in render_report(result([run("flow", [job("a")])], services=False))


def test_an_unfinished_job_lasts_to_the_end_of_the_run():
    text = render_report(result([run("fifo", [job("a", "large", (0, 1), 20, None), job("b")])]))
    assert lanes(text)["a"] == [("large", 20, 100, 0, 2)]
    assert UNFINISHED in drawn(text)["runs"][0]["stays"]["ended"]
    assert "1 job did not finish" in text


def test_a_job_is_drawn_wherever_it_ran():
    stays = [
        {
            "machine": "small",
            "cores": [0],
            "request": 1.0,
            "threads": 2,
            "start_s": 0,
            "left_s": 5,
            "ended": "preempted",
        },
        {"machine": "large", "cores": [3], "request": 1.0, "threads": 2, "start_s": 8, "left_s": 20, "ended": "moved"},
        {"machine": "large", "cores": [2], "request": 1.0, "threads": 2, "start_s": 30, "left_s": 25, "ended": "moved"},
    ]
    text = render_report(result([run("flow", [job("a", "small", (0,), 21, 40, earlier=stays)])]))
    assert lanes(text)["a"] == [("small", 0, 5, 0, 1), ("small", 21, 40, 0, 1), ("large", 8, 20, 3, 4)]
    assert drawn(text)["runs"][0]["stays"]["ended"] == [PREEMPTED, MOVED, 0]


def test_a_job_that_never_started_is_named():
    text = render_report(result([run("fifo", [job("lost", None, (), None, None), job("b")], makespan=None)]))
    assert "Never started: lost." in text
    assert drawn(text)["runs"][0]["finish"] is None


def test_of_many_that_never_started_some_are_named():
    lost = [job(f"lost-{n}", None, (), None, None) for n in range(50)]
    text = render_report(result([run("fifo", lost, makespan=None)]))
    assert "lost-19 and 30 more." in text


def test_nothing_at_all_still_gives_a_page():
    assert "two-machines" in render_report(result([]))
    assert drawn(render_report(result([run("flow", [], makespan=0.0)])))["runs"][0]["end"] == 1


def test_runs_follow_the_table_and_flow_opens_beside_the_best_of_the_others():
    runs = [run("fifo", [job("a")], seed=1), run("lpt", [job("a")]), run("flow", [job("a")]), run("fifo", [job("a")])]
    table = [row("flow", makespan_s=90.0), row("fifo", makespan_s=120.0), row("lpt", makespan_s=100.0)]
    data = drawn(render_report(result(runs, table)))
    assert [(one["policy"], one["seed"]) for one in data["runs"]] == [("flow", 0), ("fifo", 0), ("fifo", 1), ("lpt", 0)]
    assert data["shown"] == [0, 3]


@pytest.mark.parametrize(("gap", "shown"), [(1.0, "no bound"), (0.9996, "no bound"), (0.994, "99.4"), (0.123, "12.3")])
def test_a_bound_that_proves_nothing_is_none(gap, shown):
    """100 % of what scheduling can win or lose: the bound is what the tasks cost alone."""
    table = [row(gap_absolute_max=2.384, gap_relative_max=gap, certificate="lagrangian")]
    assert f">{shown}<" in render_report(result([run()], table))
    assert f" {shown} " in render_table(table).splitlines()[-1]


def test_best_values_are_marked_by_what_is_shown():
    table = [row("flow", makespan_s=90.04), row("fifo", makespan_s=90.01), row("random", makespan_s=120.0)]
    text = render_report(result([], table))
    assert text.count("(best)") == 2
    assert '<tr class="own">' in text


def test_bars_are_as_long_as_the_figures():
    text = render_report(result([], [row("flow", makespan_s=60.0), row("fifo", makespan_s=120.0)]))
    assert re.findall(r'class="ratio"><span style="width:([\d.]+)%', text) == ["50.0", "100.0"]


occupants = st.lists(
    st.builds(
        lambda cores, start, length, weight, most: Occupant(tuple(sorted(cores)), start, start + length, weight, most),
        st.sets(st.integers(0, 3), min_size=1),
        st.integers(0, 20).map(float),
        st.integers(0, 20).map(float),
        st.sampled_from([0.1, 1.0, 2.5]),
        st.integers(1, 5).map(float),
    ),
    max_size=8,
)


@given(occupants)
def test_lanes_never_overlap_and_hide_no_task(users):
    pieces = split_lanes(users)
    boxes = [(p.start_s, p.low, p.end_s, p.high) for p in pieces]
    for one, other in combinations(boxes, 2):
        in_time = min(one[2], other[2]) > max(one[0], other[0])
        assert not (in_time and min(one[3], other[3]) > max(one[1], other[1]) + 1e-6)
    for number, user in enumerate(users):
        own = [p for p in pieces if p.occupant == number]
        times = sorted({time for p in own for time in (p.start_s, p.end_s)})
        assert bool(own) == (user.end_s > user.start_s)
        if own:
            assert (times[0], times[-1]) == (user.start_s, user.end_s)


@given(occupants)
def test_a_lane_is_as_high_as_the_share_of_its_job(users):
    pieces = split_lanes(users)
    for time in {user.start_s for user in users}:
        active = [n for n, user in enumerate(users) if user.start_s <= time < user.end_s]
        found = shares(active, users)
        heights = dict.fromkeys(active, 0.0)
        for piece in pieces:
            if piece.start_s <= time < piece.end_s:
                heights[piece.occupant] += piece.high - piece.low
        assert heights == pytest.approx(found, abs=1e-6)


@given(occupants)
def test_no_job_gets_more_than_its_cores_and_threads_and_no_core_idles_for_want_of_use(users):
    found = shares(range(len(users)), users)
    for number, user in enumerate(users):
        assert 0 < found[number] <= min(user.most, len(user.cores)) + 1e-9
    together = {core for user in users for core in user.cores}
    assert sum(found.values()) <= len(together) + 1e-9
    if all(user.most >= len(user.cores) for user in users):
        assert sum(found.values()) == pytest.approx(len(together))


def test_cores_are_divided_by_request():
    users = [Occupant((0, 1, 2, 3), 0, 10, 3.0), Occupant((0, 1, 2, 3), 0, 10, 1.0)]
    assert shares([0, 1], users) == pytest.approx({0: 3.0, 1: 1.0})
    # What one thread leaves goes to the other job.
    assert shares([0, 1], [Occupant((0, 1, 2, 3), 0, 10, 3.0, 1.0), users[1]]) == pytest.approx({0: 1.0, 1: 3.0})


def test_a_lane_lies_on_cores_that_are_apart():
    pieces = split_lanes([Occupant((0, 3), 0, 10), Occupant((1, 2), 0, 10)])
    assert [(p.occupant, p.low, p.high) for p in pieces] == [(0, 0, 1), (0, 3, 4), (1, 1, 3)]


@pytest.mark.parametrize(
    ("table", "objective", "sentence"),
    [
        ([row("flow", makespan_s=88.0), row("lpt", makespan_s=100.0)], "makespan",
         "flow has the least makespan, 88.0 s: 12.0 % less than the runner-up, lpt (100.0 s)."),
        ([row("flow", mean_completion_s=50.0), row("lpt", mean_completion_s=40.0)], "completion",
         "lpt has the least mean completion time, 40.0 s: 20.0 % less than the runner-up, flow (50.0 s)."),
        ([row("flow", makespan_s=88.01), row("lpt", makespan_s=88.04), row("fifo", makespan_s=176.0)], "makespan",
         "flow and lpt share the least makespan, 88.0 s: 50.0 % less than the runner-up, fifo (176.0 s)."),
        ([row("flow"), row("lpt")], "makespan", "flow and lpt have the same makespan, 100.0 s."),
        ([row("flow")], "makespan", "flow has a makespan of 100.0 s."),
        ([row("flow", makespan_s=110.0), row("fifo", makespan_s=100.0), row("lpt", makespan_s=80.0)], "makespan",
         "lpt has the least makespan, 80.0 s: 20.0 % less than the runner-up, fifo (100.0 s). flow: 110.0 s, 37.5 % more."),
        ([row("flow", makespan_s=None), row("lpt")], "makespan",
         "lpt has a makespan of 100.0 s. flow did not finish all jobs."),
        ([row("flow", makespan_s=None), row("lpt", makespan_s=None)], "makespan", "No policy finished all jobs."),
        ([], "makespan", ""),
    ],
)  # fmt: skip
def test_the_verdict_names_the_best_and_the_runner_up(table, objective, sentence):
    assert verdict(table, objective) == sentence


def test_the_verdict_tells_of_deadlines():
    late = [row("flow", missed=0), row("lpt", makespan_s=125.0, missed=3)]
    assert verdict(late, "makespan").endswith(" Deadlines missed: flow 0, lpt 3.")
    assert verdict([row("flow", missed=0)], "makespan").endswith(" No deadline is missed.")


def test_the_verdict_puts_the_slo_first():
    kept = row("flow", makespan_s=100.0, worst_p95_us=900.0)
    broken = row("fifo", makespan_s=90.0, worst_p95_us=9000.0, slo_violation_ratio=0.25)
    assert verdict([kept, broken], "makespan") == (
        "flow has the least makespan of the policies that keep the SLO, 100.0 s. "
        "fifo has a makespan of 90.0 s, but is over the SLO in 25.0 % of the windows."
    )
    assert verdict([kept, row("lpt", makespan_s=125.0, worst_p95_us=900.0)], "makespan").endswith(
        ": 20.0 % less than the runner-up, lpt (125.0 s), with every service within its SLO (as with all policies)."
    )
    assert verdict([broken], "makespan") == (
        "fifo has a makespan of 90.0 s; services are over their SLO in 25.0 % of the windows."
    )
    worse = row("lpt", makespan_s=80.0, worst_p95_us=9000.0, slo_violation_ratio=0.5)
    assert verdict([broken, worse], "makespan").startswith(
        "fifo has the fewest windows over the SLO, and a makespan of 90.0 s; services are over their SLO in 25.0 %"
    )


def test_the_verdict_leads_the_report():
    text = render_report(result([run()], [row()]))
    assert text.index('class="verdict"') < text.index('class="comparison"')


def test_colours_do_not_depend_on_order_and_differ_within_a_profile():
    pairs = [("a1", "a"), ("a2", "a"), ("b1", "b")]
    colours = job_colours(pairs)
    assert colours == job_colours(reversed(pairs))
    assert len({colour.fill for colour in colours.values()}) == 3


def test_time_scale_fills_the_plot():
    scale = TimeScale(50.0)
    assert (scale.x(0), scale.x(50), scale.x(25)) == (LEFT, WIDTH - RIGHT, (LEFT + WIDTH - RIGHT) / 2)


@given(st.floats(1e-3, 1e6), st.integers(2, 12))
def test_ticks_are_even_from_zero_and_inside(high, count):
    ticks = even_ticks(high, count)
    assert ticks[0] == 0
    assert ticks[-1] <= high * (1 + 1e-6)
    assert len(ticks) <= count + 1


@pytest.mark.parametrize(
    ("value", "decimals", "text"),
    [(None, 1, "–"), (0.0, 1, "0.0"), (0.004, 2, "<0.01"), (12345.67, 1, "12\u2009345.7"), (-2.5, 1, "−2.5"),
     (float("inf"), 1, "∞"), (float("nan"), 1, "–")],
)  # fmt: skip
def test_fixed(value, decimals, text):
    assert fixed(value, decimals) == text


def test_compact_and_core_list():
    assert [compact(v) for v in (1.0, 2.50, 100, 0.001)] == ["1", "2.5", "100", "<0.01"]
    assert core_list((0, 1, 2, 5, 7, 8)) == "0–2, 5, 7–8"
