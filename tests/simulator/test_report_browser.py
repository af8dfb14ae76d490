"""The report in a real browser: its script runs without a complaint, and nothing is fetched."""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from matplotlib.image import imread

from browser_tab import Page, Seen, browser_tab, show, watched
from flowsched_simulator.report.page import render_report

POLICIES = ("flow", "fcfs", "best-fit", "lpt")
Open = Callable[..., Page]


def sample() -> dict[str, Any]:
    """Two jobs that share a core beside a service, under four policies; the second has a further seed."""
    cluster = {
        "machines": [{"name": "small", "type": "a", "vcpus": 2}, {"name": "large", "type": "b", "vcpus": 4}],
        "services": [{"name": "memcached", "machine": "small", "cores": [1], "slo_us": 1000.0}],
    }
    jobs = [
        {"job": "ferret", "profile": "ferret", "machine": "large", "cores": [0, 1, 2, 3], "request": 4.0,
         "threads": 4, "submit_s": 0.0, "start_s": 1.0, "end_s": 90.0, "alone_s": 80.0, "slowdown": 1.1},
        {"job": "dedup", "profile": "dedup", "machine": "large", "cores": [0], "request": 1.0,
         "threads": 1, "submit_s": 0.0, "start_s": 5.0, "end_s": None, "alone_s": None, "slowdown": None},
    ]  # fmt: skip
    latency = [
        {"service": "memcached", "t_s": 10.0 * n, "end_s": 10.0 * (n + 1), "qps": 30000.0, "p95_us": 400.0 * (n + 1)}
        for n in range(9)
    ]
    runs = [
        {"policy": policy, "variant": "", "seed": seed, "makespan_s": 90.0, "jobs": jobs, "latency": latency,
         "slo_violation_ratio": 0.5, "rounds": 3}
        for policy, seed in [*((p, 0) for p in POLICIES), (POLICIES[1], 1)]
    ]  # fmt: skip
    table = [
        {"policy": policy, "makespan_s": 90.0 + n, "timings": {"round_ms": {"p50": 1.0}}}
        for n, policy in enumerate(POLICIES)
    ]
    return {"scenario": "in-a-browser", "objective": "makespan", "cluster": cluster, "table": table, "runs": runs}


@pytest.fixture(scope="module")
def tab() -> Iterator[Page]:
    with browser_tab("to open the report") as tab:
        yield tab


@pytest.fixture
def seen(tab: Page) -> Iterator[Seen]:
    with watched(tab, width=1280, height=900) as seen:
        yield seen


@pytest.fixture
def visit(tab: Page, seen: Seen, tmp_path: Path) -> Iterator[Open]:
    path = tmp_path / "report.html"
    opened: list[str] = []

    def go(result: dict[str, Any], width: int = 1280, height: int = 900, scheme: str = "light") -> Page:
        path.write_text(render_report(result), encoding="utf-8")
        opened.append(path.as_uri())
        tab.set_viewport_size({"width": width, "height": height})
        tab.emulate_media(color_scheme=scheme)
        return show(tab, opened[-1])

    yield go
    # The browser warns where a canvas is read more than once, which only tests do.
    assert [each for each in seen.complaints if "willReadFrequently" not in each] == []
    assert seen.asked == opened


def test_the_script_makes_headings_buttons(visit: Open) -> None:
    headings = visit(sample()).locator("th[data-column]").all()
    assert len(headings) > 5
    assert all(heading.inner_html().startswith("<button") for heading in headings)


def test_the_table_and_the_figures_are_there(visit: Open) -> None:
    page = visit(sample(), 1400, 1000)
    (table,) = page.locator("table.comparison").all()
    assert [row.split()[0] for row in table.locator('th[scope="row"]').all_inner_texts()] == list(POLICIES)
    words = summaries(page)
    assert [one.split(" ", 1)[0] for one in words] == ["CPU", "Queue", "Schedule", "p95", "Schedule", "p95"]
    assert words[0].startswith("CPU held by jobs from 0.0 s to 90.9 s: flow 66 % on average, 67 % at most;")
    assert "Schedule under fcfs, seed 0: 2 jobs on 2 machines; makespan 90.0 s; 1 did not finish." in words[4]
    assert "highest 3.60 ms; 7 of 9 bars over the SLO of 1 ms" in words[3]
    assert not re.search(r"https?://", page.content())
    assert len(page.screenshot()) > 20_000, "a page with drawings is larger than an empty one"


def test_a_broken_page_would_be_noticed(tab: Page, seen: Seen, tmp_path: Path) -> None:
    broken, image = tmp_path / "broken.html", "http://nowhere.invalid/a.png"
    broken.write_text(f'<!doctype html><img src="{image}"><script>missing();</script>', encoding="utf-8")
    tab.goto(broken.as_uri())
    assert sorted(seen.complaints) == [
        "error: Failed to load resource: net::ERR_NAME_NOT_RESOLVED",
        "missing is not defined",
    ]
    assert seen.asked == [broken.as_uri(), image]


def open_jobs(page: Any) -> None:
    """Open the table of jobs and wait until it is filled: a browser tells of the opening a moment later."""
    page.click("summary")
    page.wait_for_selector(".jobs tbody tr")


def settled(page: Any) -> None:
    """Wait until what was asked for is drawn."""
    page.evaluate("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")


def time_shown(page: Any) -> tuple[float, float]:
    settled(page)
    data = page.locator("#range").evaluate("(range) => ({ ...range.dataset })")
    return float(data["from"]), float(data["to"])


def summaries(page: Any) -> list[str]:
    """What each figure says of itself."""
    settled(page)
    return page.locator("canvas").evaluate_all("(all) => all.map((one) => one.getAttribute('aria-label'))")


def many_machines(machines: int = 30, jobs: int = 120) -> dict[str, Any]:
    """Jobs of two kinds, each kind on machines of its own."""
    cluster = {"machines": [{"name": f"m{n:02}", "type": "x", "vcpus": 4} for n in range(machines)], "services": []}
    made = [
        {"job": f"{'even' if n % 2 == 0 else 'odd'}-{n}", "profile": "p", "machine": f"m{n % machines:02}",
         "cores": [n % 4], "request": 1.0, "threads": 1, "submit_s": 0.0, "start_s": 10.0 * (n // machines),
         "end_s": 10.0 * (n // machines) + 30.0, "alone_s": 30.0, "slowdown": 1.0}
        for n in range(jobs)
    ]  # fmt: skip
    run = {"policy": "flow", "variant": "", "seed": 0, "makespan_s": 60.0, "jobs": made, "latency": [], "rounds": 1}
    table = [{"policy": "flow", "makespan_s": 60.0, "timings": {"round_ms": {"p50": 1.0}}}]
    return {"scenario": "many", "objective": "makespan", "cluster": cluster, "table": table, "runs": [run]}


def test_keys_wheel_and_a_drag_choose_the_time_for_all_figures(visit: Open) -> None:
    page = visit(sample())
    whole = time_shown(page)
    assert whole == (0, pytest.approx(90.9))
    chart = page.locator("#courses .figure").first
    chart.focus()
    page.keyboard.press("+")
    closer = time_shown(page)
    assert closer == (pytest.approx(90.9 / 6), pytest.approx(90.9 * 5 / 6))
    assert "from 15.2 s to 75.8 s" in summaries(page)[0]
    page.keyboard.press("ArrowRight")
    assert time_shown(page)[0] == pytest.approx(closer[0] + 0.2 * (closer[1] - closer[0]))
    page.keyboard.press("-")
    page.keyboard.press("0")
    assert time_shown(page) == whole
    box = chart.locator("canvas").bounding_box()
    page.mouse.move(box["x"] + 46 + 200, box["y"] + 60)
    page.mouse.wheel(0, -100)
    before = time_shown(page)
    assert before[1] - before[0] < 90
    page.keyboard.press("0")
    width = box["width"] - 46 - 14
    page.mouse.move(box["x"] + 46 + width * 0.25, box["y"] + 60)
    page.mouse.down()
    page.mouse.move(box["x"] + 46 + width * 0.5, box["y"] + 60, steps=4)
    assert page.locator("#courses .selection").first.is_visible()
    page.mouse.up()
    assert time_shown(page) == (pytest.approx(90.9 * 0.25, abs=0.2), pytest.approx(90.9 * 0.5, abs=0.2))
    page.click("#whole")
    assert time_shown(page) == whole


def test_a_wheel_over_a_figure_that_was_not_clicked_scrolls_the_page(visit: Open) -> None:
    page = visit(sample())
    whole = time_shown(page)
    page.locator("#courses .figure").first.hover()
    page.mouse.wheel(0, 150)
    page.wait_for_function("scrollY > 0")
    assert time_shown(page) == whole


def test_runs_are_chosen_by_their_chips(visit: Open) -> None:
    page = visit(sample())
    pressed = page.locator('.chip[aria-pressed="true"]')
    assert pressed.all_inner_texts() == ["flow", "fcfs, seed 0"]
    page.click(".chip >> text=lpt")
    assert [text.split()[0] for text in page.locator("h3").all_inner_texts()] == ["flow", "fcfs,", "lpt"]
    for name in ("flow", "fcfs, seed 0", "lpt"):
        page.click(f'.chip:has-text("{name}")')
    assert pressed.all_inner_texts() == ["lpt"], "the last one stays"
    assert "lpt" in summaries(page)[0]


def test_many_machines_are_folded_and_open_by_click_and_key(visit: Open) -> None:
    page = visit(many_machines())
    rows = page.locator(".rows")
    folded = rows.evaluate("(rows) => rows.scrollHeight")
    assert page.inner_text("#fold") == "unfold machines"
    canvas = rows.locator("canvas")
    canvas.click(position={"x": 20, "y": 18 + 5})
    settled(page)
    assert page.inner_text("#said") == "m00 unfolded"
    opened_one = rows.evaluate("(rows) => rows.scrollHeight")
    assert opened_one > folded
    page.keyboard.press("ArrowDown")
    settled(page)
    assert page.inner_text("#said").startswith("m01, x 4 cores, ")
    page.keyboard.press("Enter")
    settled(page)
    assert page.inner_text("#said") == "m01 unfolded"
    assert rows.evaluate("(rows) => rows.scrollHeight") > opened_one
    page.click("#fold")
    settled(page)
    assert rows.evaluate("(rows) => rows.scrollHeight") == folded


def test_the_filter_leaves_the_machines_of_its_jobs(visit: Open) -> None:
    page = visit(many_machines())
    open_jobs(page)
    assert page.locator(".jobs tbody tr").count() == 120
    page.fill("#filter", "ODD-1")
    assert page.inner_text("#fits") == "16 jobs"
    assert page.locator(".jobs tbody tr").count() == 16
    assert "; 11 machines with jobs that fit the filter" in summaries(page)[2]
    page.fill("#filter", "odd-119")
    assert page.inner_text("#fits") == "1 job"
    assert "; 1 machine with jobs that fit the filter" in summaries(page)[2]
    assert page.inner_text("#fold") == "fold machines", "few machines are open"
    page.fill("#filter", "nowhere")
    assert page.inner_text("#fits") == "0 jobs"
    page.fill("#filter", "")
    assert page.locator(".jobs tbody tr").count() == 120


def test_a_long_table_of_jobs_is_shown_in_parts(visit: Open) -> None:
    page = visit(many_machines(30, 1250))
    open_jobs(page)
    assert page.locator(".jobs tbody tr").count() == 200
    assert "The first 200 of 1\u2009250 jobs" in page.inner_text(".jobs caption")
    page.click(".more")
    assert page.locator(".jobs tbody tr").count() == 1200


def test_deadlines_have_columns_where_jobs_have_some(visit: Open) -> None:
    result = many_machines(3, 3)
    own = {0: {"deadline_s": 20.0, "missed": True}, 1: {"deadline_s": 40.5, "missed": False}}
    for number, terms in own.items():
        result["runs"][0]["jobs"][number] |= terms
    page = visit(result)
    open_jobs(page)
    assert page.locator(".jobs thead th").all_inner_texts()[-2:] == ["Deadline, s", "Missed"]
    cells = [row.split("\t")[-2:] for row in page.locator(".jobs tbody tr").all_inner_texts()]
    assert cells == [["20.0", "yes"], ["40.5", "no"], ["–", "–"]]

    plain = visit(many_machines(3, 3))
    open_jobs(plain)
    assert plain.locator(".jobs thead th").all_inner_texts()[-1] == "Slowdown, ×"


def test_a_given_run_time_is_called_that(visit: Open) -> None:
    result = many_machines(3, 3)
    for job, profile in zip(result["runs"][0]["jobs"], ("fixed:1s", "vips:1s", "vips"), strict=True):
        job["profile"] = profile
    page = visit(result)
    text = page.inner_text("body")
    assert "vips, given run time" in text and ":1s" not in text


def test_the_tip_tells_of_the_job_under_the_pointer(visit: Open) -> None:
    page = visit(sample())
    canvas = page.locator(".rows canvas").first
    box = canvas.bounding_box()
    # The lower machine; ferret lies on its three cores above.
    canvas.hover(position={"x": box["width"] / 2, "y": box["height"] - 20 - 6 - 70})
    settled(page)
    tip = page.inner_text("#tip")
    assert tip.splitlines()[:2] == ["ferret", "large, core 0–3"]
    assert "4 threads, request 4 cores" in tip
    assert "submitted 0.0 s, runs 1.0 s to 90.0 s" in tip


def test_paper_is_white(visit: Open) -> None:
    page = visit(sample(), scheme="dark")
    corner = "(canvas) => [...canvas.getContext('2d').getImageData(canvas.width / 2, 60, 1, 1).data].slice(0, 3)"
    canvas = page.locator("#courses canvas").first
    assert sum(canvas.evaluate(corner)) < 300
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert sum(canvas.evaluate(corner)) > 600
    page.evaluate("dispatchEvent(new Event('afterprint'))")
    assert sum(canvas.evaluate(corner)) < 300


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 1280])
def test_the_page_is_as_wide_as_the_screen(visit: Open, width: int, scheme: str) -> None:
    """Nothing to pan into: what is wider scrolls by itself."""
    page = visit(sample(), width, 844, scheme)
    assert page.evaluate("document.documentElement.scrollWidth") == width
    caption = page.locator("table.comparison caption").bounding_box()
    assert caption["x"] + caption["width"] <= width


def shades(page: Any) -> tuple[float, float]:
    """By how much the left and the right edge of the comparison, at the head of its table, differ from the page's ground."""
    box = page.locator(".scroll:has(table.comparison)").bounding_box()
    clip = {"x": 0, "y": 0, "width": box["x"] + box["width"], "height": box["y"] + 5}
    picture = imread(io.BytesIO(page.screenshot(clip=clip, full_page=True)))[..., :3]
    head, ground = picture[int(box["y"]) + 3 :][:2], picture[:2, :2]
    left, right = (head[:, int(x) :][:, :2] for x in (box["x"] + 1, box["x"] + box["width"] - 3))
    return float(abs(left - ground).max()), float(abs(right - ground).max())


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_table_that_is_wider_than_the_screen_is_shaded_where_there_is_more(visit: Open, scheme: str) -> None:
    page = visit(sample(), 390, 844, scheme)
    table = page.locator(".scroll:has(table.comparison)")
    assert table.evaluate("(each) => each.scrollWidth > each.clientWidth")
    left, right = shades(page)
    assert right > 0.1 and left < 0.02
    table.evaluate("(each) => { each.scrollLeft = each.scrollWidth; }")
    left, right = shades(page)
    assert left > 0.1 and right < 0.02

    wide = visit(sample(), 1280, 844, scheme)
    assert max(shades(wide)) < 0.02


def with_gpus(machines: int = 2, devices: int = 8) -> dict[str, Any]:
    """On each machine a job with two whole GPUs, and two with shares of the third; a job without on the first."""
    cluster = {
        "machines": [
            {"name": f"gpu-{n:03}", "type": "x", "vcpus": 4, "gpus": {"model": "V100", "count": devices}}
            for n in range(machines)
        ],
        "services": [],
    }
    base = {"profile": "p", "cores": [0, 1, 2, 3], "request": 1.0, "threads": 1, "submit_s": 0.0, "start_s": 0.0,
            "end_s": 60.0, "alone_s": 60.0, "slowdown": 1.0}  # fmt: skip
    jobs: list[dict[str, Any]] = [base | {"job": "plain", "machine": "gpu-000"}]
    for n in range(machines):
        for name, own, share in (("whole", [0, 1], 1000), ("left", [2], 470), ("right", [2], 500)):
            jobs.append(
                base
                | {"job": f"{name}-{n}", "machine": f"gpu-{n:03}", "devices": own, "gpu_share_milli": share}
                | ({"end_s": 30.0} if name == "left" else {})
            )
    capacity = 1000 * devices * machines
    use = {"mean_gpu_allocation": 0.34, "mean_gpu_fragmentation": 0.05, "capacity_milli": capacity, "t_s": [0.0, 30.0],
           "allocated_milli": [2970 * machines, 2500 * machines], "fragmented_milli": [30.0, 0.0]}  # fmt: skip
    run = {"policy": "flow", "variant": "", "seed": 0, "makespan_s": 60.0, "jobs": jobs, "latency": [], "rounds": 1,
           "gpus": use}  # fmt: skip
    table = [
        {"policy": "flow", "makespan_s": 60.0, "timings": {"round_ms": {"p50": 1.0}},
         "mean_gpu_allocation": 0.34, "mean_gpu_fragmentation": 0.05}
    ]  # fmt: skip
    return {"scenario": "gpus", "objective": "makespan", "cluster": cluster, "table": table, "runs": [run]}


LISTENS = """
window.words = [];
const write = CanvasRenderingContext2D.prototype.fillText;
CanvasRenderingContext2D.prototype.fillText = function (text, x, y) {
  const size = this.measureText(text);
  const box = [x - size.actualBoundingBoxLeft, y - size.actualBoundingBoxAscent,
               x + size.actualBoundingBoxRight, y + size.actualBoundingBoxDescent];
  if (this.canvas.closest(".schedule")) window.words.push([text, ...box]);
  return write.apply(this, arguments);
};
"""
"""Keeps what a schedule writes, and where."""


def written(page: Page) -> list[list[Any]]:
    """The words of a report's schedule, each with its box."""
    settled(page)
    return list(page.evaluate(f"() => {{ {LISTENS} dispatchEvent(new Event('afterprint')); return words; }}"))


@pytest.mark.parametrize("width", [390, 1280])
def test_each_gpu_has_a_lane_and_no_words_overlap(visit: Open, width: int) -> None:
    page = visit(with_gpus(), width, 844)
    words = written(page)
    texts = [text for text, *_ in words]
    assert texts.count("GPU") == texts.count("V100") == 2
    assert all(texts.count(str(device)) >= 2 for device in range(8))
    assert texts.count("whole-0  2 GPUs") == 2, "once in each of its lanes"
    for n, (text, left, top, right, bottom) in enumerate(words):
        for other, *box in words[n + 1 :]:
            apart = right <= box[0] or box[2] <= left or bottom <= box[1] or box[3] <= top
            assert apart, (text, other)
    assert page.evaluate("document.documentElement.scrollWidth") == width
    assert [one.split(" from ")[0] for one in summaries(page)[2:4]] == ["GPU allocation", "GPU fragmentation"]
    assert "flow 34 % on average, 37 % at most" in summaries(page)[2]


def test_shares_of_a_gpu_are_as_high_as_they_are_and_told(visit: Open) -> None:
    page = visit(with_gpus(1, 4))
    words = written(page)
    (left, right) = (next(box for text, *box in words if text.startswith(name)) for name in ("left-0", "right-0"))
    assert right[3] < left[1], "later ones lie above"
    canvas = page.locator(".rows canvas")
    colour = "(canvas, [x, y]) => { const s = canvas.width / canvas.clientWidth;"
    colour += " return [...canvas.getContext('2d').getImageData(x * s, y * s, 1, 1).data].join(); }"
    (ground,) = {canvas.evaluate(colour, [1200, (left[1] + left[3]) / 2 + 32])}
    at = {name: canvas.evaluate(colour, [300, (box[1] + box[3]) / 2]) for name, box in (("l", left), ("r", right))}
    assert len({ground, *at.values()}) == 3
    canvas.hover(position={"x": 300, "y": (left[1] + left[3]) / 2})
    settled(page)
    assert "470m of GPU 2 (V100)" in page.inner_text("#tip")
    # From 30 s on the other lies on the ground of the lane.
    canvas.hover(position={"x": 1000, "y": (left[1] + left[3]) / 2})
    settled(page)
    assert page.inner_text("#tip").startswith("right-0") and "500m of GPU 2 (V100)" in page.inner_text("#tip")
    open_jobs(page)
    cells = [row.split("\t")[-1] for row in page.locator(".jobs tbody tr").all_inner_texts()]
    assert cells == ["–", "0–1", "2 (470m)", "2 (500m)"]


def test_hundreds_of_machines_with_gpus_are_folded_and_scroll(visit: Open) -> None:
    page = visit(with_gpus(300))
    words = written(page)
    rows = page.locator(".rows")
    assert rows.evaluate("(rows) => rows.clientHeight") <= 900
    assert 0 < [text for text, *_ in words].count("GPUs") < 60, "what is on the screen alone is drawn"
    rows.locator("canvas").hover(position={"x": 400, "y": 18 + 20})
    settled(page)
    tip = page.inner_text("#tip").splitlines()
    assert tip[-2].startswith("8 GPUs (V100): 34 % held, 37 % at ")
    rows.locator("canvas").click(position={"x": 20, "y": 18 + 20})
    settled(page)
    assert page.inner_text("#said") == "gpu-000 unfolded"
