import copy
import re
from collections import defaultdict
from itertools import combinations
from xml.etree import ElementTree as Tree

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flowsched_simulator.report import render_report
from flowsched_simulator.report.block import Block, join_columns, join_rows, outline
from flowsched_simulator.report.colour import job_colours
from flowsched_simulator.report.lane import Occupant, split_lanes
from flowsched_simulator.report.number import compact, core_list, fixed
from flowsched_simulator.report.scale import LEFT, RIGHT, WIDTH, TimeScale, even_ticks
from flowsched_simulator.table import render_table

NAMESPACE = "{http://www.w3.org/2000/svg}"


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


def drawings(page, klass):
    """The drawings of a class, each parsed as XML on its own."""
    parsed = [Tree.fromstring(text) for text in re.findall(r"<svg .*?</svg>", page, flags=re.DOTALL)]
    return [root for root in parsed if root.get("class") == klass]


def having(root, tag, klass):
    return [e for e in root.iter(NAMESPACE + tag) if klass in (e.get("class") or "").split()]


def words(root):
    return ["".join(text.itertext()) for text in root.iter(NAMESPACE + "text")]


def edges(rect):
    x, y, width, height = (float(rect.get(key)) for key in ("x", "y", "width", "height"))
    return x, y, x + width, y + height


@pytest.fixture
def page():
    shared = [job("ferret", "large", range(4), 1, 90), job("freqmine", "large", (0, 1), 5, 60)]
    windows = [window(0, 10, 440.0), window(10, 20, 1500.0), window(20, 30, 90000.0)]
    runs = [run("flow", shared, windows), run("fifo", [job("ferret", "large", (2,), 0, 80)], makespan=80.0)]
    return render_report(result(runs))


def test_each_drawing_is_well_formed_and_says_what_it_shows(page):
    pictures = drawings(page, "gantt") + drawings(page, "latency")
    assert len(pictures) == 3
    for root in pictures:
        assert root.get("role") == "img"
        title, desc = root.find(NAMESPACE + "title"), root.find(NAMESPACE + "desc")
        assert title.text
        assert desc.text
        assert root.get("aria-labelledby") == title.get("id")
        assert root.get("aria-describedby") == desc.get("id")


def test_identifiers_are_unique_and_every_fill_is_defined(page):
    identifiers = re.findall(r'\bid="([^"]+)"', page)
    assert len(identifiers) == len(set(identifiers))
    assert set(re.findall(r"url\(#([^)]+)\)", page)) <= set(identifiers)


def test_every_table_has_a_caption(page):
    assert page.count("<caption>") == page.count("<table") > 1


def test_nothing_is_fetched(page):
    rest = page.replace('xmlns="http://www.w3.org/2000/svg"', "")
    assert not re.search(r"https?://", rest)
    assert not re.search(r"""(?:src|href)=["'](?!data:,)|@import|url\((?!#)""", rest)


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
    assert len(drawings(text, "latency")) == 1


def test_a_shared_core_shows_both_jobs(page):
    chart = drawings(page, "gantt")[0]
    heights = {}
    for group in having(chart, "g", "job"):
        name = group.find(NAMESPACE + "title").text.splitlines()[0]
        heights[name] = {round(b - t, 1) for _, t, _, b in map(edges, having(group, "rect", "piece"))}
    assert len(heights["freqmine"]) == 1
    lane = heights["freqmine"].pop()
    assert lane in heights["ferret"]
    assert any(height >= 2 * lane for height in heights["ferret"])


def test_label_tells_job_threads_and_request_once(page):
    chart = drawings(page, "gantt")[1]
    assert words(chart).count("ferret2 thr, req 1") + words(chart).count("ferret 2 thr, req 1") == 1


def test_charts_of_a_run_are_aligned(page):
    gantt, latency = drawings(page, "gantt")[0], drawings(page, "latency")[0]
    assert gantt.get("viewBox").split()[2] == latency.get("viewBox").split()[2]
    upright = [[float(e.get("x1")) for e in having(root, "line", "grid") if e.get("x1") == e.get("x2")]
               for root in (gantt, latency)]  # fmt: skip
    assert upright[0] == upright[1]
    makespans = [having(root, "line", "makespan")[0].get("x1") for root in (gantt, latency)]
    assert makespans[0] == makespans[1]
    grounds = [{(e.get("x"), e.get("width")) for e in having(root, "rect", "ground")} for root in (gantt, latency)]
    assert grounds[0] == grounds[1]
    service_left, _, _, _ = edges(having(having(gantt, "g", "service")[0], "rect", "piece")[0])
    assert service_left == edges(having(latency, "rect", "bar")[0])[0] == LEFT


def test_all_policies_share_the_time_scale(page):
    charts = drawings(page, "gantt")
    first, second = (float(having(root, "line", "makespan")[0].get("x1")) for root in charts)
    assert (second - LEFT) / (first - LEFT) == pytest.approx(80 / 100, abs=1e-3)
    assert "makespan 100.0 s" in words(charts[0])
    assert "makespan 80.0 s" in words(charts[1])


def test_windows_over_the_slo_are_hatched_and_cut_where_too_high(page):
    latency = drawings(page, "latency")[0]
    windows = having(latency, "g", "window")
    assert ["over" in w.get("class").split() for w in windows] == [False, True, True]
    assert [len(having(w, "rect", "overlay")) for w in windows] == [0, 1, 1]
    assert [len(having(w, "path", "cut")) for w in windows] == [0, 0, 1]
    tops = [edges(having(w, "rect", "bar")[0])[1] for w in windows]
    ground = edges(having(latency, "rect", "ground")[0])
    assert all(ground[1] <= top <= ground[3] for top in tops)
    assert "SLO 1 ms" in words(latency)


def test_bars_are_as_wide_as_their_windows(page):
    bars = [edges(rect) for rect in having(drawings(page, "latency")[0], "rect", "bar")]
    scale = TimeScale(100 * 1.01)
    assert [bar[0] for bar in bars] == [scale.x(0), scale.x(10), scale.x(20)]
    assert all(0 <= scale.x(t) - bar[2] <= 1.01 for t, bar in zip((10, 20, 30), bars, strict=True))


def test_several_services_have_a_chart_each():
    data = result([run("flow", [job("a")], [window(0, 10, 5.0), window(0, 10, 9.0, "search")])])
    charts = drawings(render_report(data), "latency")
    assert [having(root, "text", "machine")[0].text for root in charts] == ["memcached", "search"]


def test_a_run_without_latency_says_so():
    without_rows = render_report(result([run("flow", [job("a")])]))
    assert not drawings(without_rows, "latency")
    assert "No latency was recorded for memcached" in without_rows
    without_service = render_report(result([run("flow", [job("a")])], services=False))
    assert "no latency service" in without_service


def test_an_unfinished_job_is_hatched_to_the_end_of_the_run():
    text = render_report(result([run("fifo", [job("a", "large", (0, 1), 20, None), job("b")])]))
    chart = drawings(text, "gantt")[0]
    overlays = [edges(rect) for rect in having(chart, "rect", "overlay")]
    assert len(overlays) == 1
    assert overlays[0][0] == TimeScale(101).x(20)
    assert overlays[0][2] == pytest.approx(float(having(chart, "line", "makespan")[0].get("x1")))
    assert "1 job did not finish" in text


def test_a_job_that_never_started_is_named():
    text = render_report(result([run("fifo", [job("lost", None, (), None, None), job("b")], makespan=None)]))
    assert "Never started: lost." in text
    assert not having(drawings(text, "gantt")[0], "line", "makespan")


def test_nothing_at_all_still_gives_a_page():
    assert "two-machines" in render_report(result([]))
    assert drawings(render_report(result([run("flow", [], makespan=0.0)])), "gantt")


def test_sections_follow_the_table_and_further_seeds_are_folded():
    runs = [run("fifo", [job("a")], seed=1), run("flow", [job("a")]), run("fifo", [job("a")], seed=0)]
    text = render_report(result(runs, [row("flow"), row("fifo")]))
    headings = re.findall(r'<h2 id="policy-\d+">(\w+)', text)
    assert headings == ["flow", "fifo"]
    assert "<summary>Seed 1</summary>" in text
    assert "<summary>Seed 0</summary>" not in text


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


def test_sixty_jobs_on_ten_machines_keep_rows_apart():
    machines = [{"name": f"m{n}", "type": "x", "vcpus": 8} for n in range(10)]
    jobs = [job(f"j{n}", f"m{n % 10}", range(n % 5, n % 5 + 3), n, n + 40, profile="p") for n in range(60)]
    data = result([run("flow", jobs)])
    data["cluster"] = {"machines": machines, "services": []}
    chart = drawings(render_report(data), "gantt")[0]
    assert len(having(chart, "g", "job")) == 60
    assert_apart([edges(rect) for rect in having(chart, "rect", "piece")])


def assert_apart(rects):
    slack = 0.011
    for (l1, t1, r1, b1), (l2, t2, r2, b2) in combinations(rects, 2):
        assert min(r1, r2) - max(l1, l2) <= slack or min(b1, b2) - max(t1, t2) <= slack


occupants = st.lists(
    st.builds(
        lambda cores, start, length: Occupant(tuple(sorted(cores)), start, start + length),
        st.sets(st.integers(0, 3), min_size=1),
        st.integers(0, 20).map(float),
        st.integers(0, 20).map(float),
    ),
    max_size=8,
)


@given(occupants)
def test_lanes_of_a_core_never_overlap_and_hide_nobody(users):
    pieces = split_lanes(users)
    by_core = defaultdict(list)
    seconds = defaultdict(float)
    for piece in pieces:
        assert 0 <= piece.lane < piece.lanes
        top, bottom = piece.lane / piece.lanes, (piece.lane + 1) / piece.lanes
        by_core[piece.core].append((piece.start_s, top, piece.end_s, bottom))
        seconds[piece.occupant, piece.core] += piece.end_s - piece.start_s
    for rects in by_core.values():
        for one, other in combinations(rects, 2):
            in_time = min(one[2], other[2]) > max(one[0], other[0])
            assert not (in_time and min(one[3], other[3]) > max(one[1], other[1]) + 1e-9)
    wanted = {(n, c): u.end_s - u.start_s for n, u in enumerate(users) for c in u.cores if u.end_s > u.start_s}
    assert seconds == wanted


@settings(max_examples=40, deadline=None)
@given(occupants)
def test_drawn_rectangles_never_overlap(users):
    jobs = [job(f"j{n}", "large", u.cores, u.start_s, u.end_s) for n, u in enumerate(users)]
    chart = drawings(render_report(result([run("flow", jobs, makespan=40.0)])), "gantt")[0]
    assert_apart([edges(rect) for rect in having(chart, "rect", "piece")])


@given(occupants)
def test_joining_blocks_keeps_their_area(users):
    pieces = [p for p in split_lanes(users) if p.occupant == 0]
    blocks = [Block(p.start_s, p.core + p.lane / p.lanes, p.end_s, p.core + (p.lane + 1) / p.lanes) for p in pieces]
    area = sum(b.width * b.height for b in blocks)
    for joined in (join_rows(blocks), join_columns(blocks), join_rows(join_columns(blocks))):
        assert len(joined) <= len(blocks)
        assert sum(b.width * b.height for b in joined) == pytest.approx(area)


def test_outline_leaves_out_inner_edges():
    assert outline([Block(0, 0, 2, 1), Block(0, 1, 2, 2)]) == "M0 0V2M2 0V2M0 0H2M0 2H2"


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
