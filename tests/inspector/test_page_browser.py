"""The page in a real browser, with clicks and keys; after every test: no complaint, and nothing asked for but the file."""

from __future__ import annotations

import copy
import itertools
import re
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from inspected import bulk, on_kubernetes, searched
from test_page import HOSTILE, renamed, running_like

from browser_tab import Page, browser_tab, show, sync_api, watched
from flowsched.inspector.device_facts import machine_devices
from flowsched.inspector.link_layout import link_layout
from flowsched.inspector.page.page import render_page
from flowsched.inspector.record_view import RecordView
from flowsched.inspector.round_network import round_network
from flowsched_simulator import Options, make_scenario, simulate
from flowsched_simulator.policies import EngineOptions

expect = sync_api.expect
Open = Callable[..., Page]


def later(record: dict[str, Any], number: int, now_s: float) -> dict[str, Any]:
    return {**copy.deepcopy(record), "round": number, "now_s": now_s}


def run_of_three() -> list[RecordView]:
    rounds = (searched(), later(searched("makespan"), 4, 60.0), later(searched(), 5, 90.0))
    return [RecordView(record, f"run/flow-{i:04}.npz") for i, record in enumerate(rounds)]


PAGES: dict[str, Callable[[], str]] = {
    "run": lambda: render_page(run_of_three()),
    "bulk": lambda: render_page([RecordView(bulk(machines=90, classes=6, each=20), "bulk.npz")]),
    "two": lambda: render_page([RecordView(searched(), "a.json")], [RecordView(searched("makespan"), "b.json")]),
    "two bulk": lambda: render_page(
        [RecordView(bulk(machines=90, classes=6, each=20), "a.npz")],
        [RecordView(bulk(machines=90, classes=6, each=24), "b.npz")],
    ),
    "kubernetes": lambda: render_page([RecordView(on_kubernetes(), "live.npz")]),
    "hostile": lambda: render_page([RecordView(renamed(searched(), "ferret", HOSTILE), "a.json")]),
    "nothing": lambda: render_page([RecordView({**searched(), "parts": []}, "a.json")]),
    "baseline": lambda: render_page([RecordView({**without_networks(), "policy": "fcfs"}, "fcfs.json")]),
    "policies": lambda: render_page(
        [
            RecordView({**later(record, i, 30.0 * i), "policy": policy}, f"out/{policy}-{i:04}.npz")
            for policy, record in (("fcfs", without_networks()), ("flow", searched()))
            for i in range(2)
        ]
    ),
    "without flow": lambda: render_page([RecordView(flow_elsewhere(), "bulk.npz")]),
    "epoch": lambda: render_page([RecordView(of_epoch(), "live.npz")]),
    "from 1970": lambda: render_page(
        [RecordView(later(searched(), n, 2e9 + 60 * n), f"run/flow-{n:04}.npz") for n in range(3)]
    ),
    "twins": lambda: render_page([RecordView(searched(), "a.json")], [RecordView(searched(), "b.json")]),
    "gpus": lambda: render_page(with_gpus()),
    "links": lambda: render_page(with_links()),
    "equals": lambda: render_page(of_equals()),
    "many": lambda: render_page([RecordView(bulk(machines=300, classes=6, each=60), "bulk.npz")]),
}


def with_gpus() -> list[RecordView]:
    """Two rounds: on one machine of eight GPUs start a task of four and two with shares; then one share comes to them."""
    machines = [{"name": "m", "type": "e2-standard-8", "gpus": {"model": "V100", "count": 8}}]
    jobs = [
        {"name": "four", "request": 1, "memory": "1Gi", "runtime_s": 60, "gpus": {"count": 4}},
        {"name": "share", "request": 1, "memory": "1Gi", "runtime_s": 60, "copies": 2, "gpus": {"share": "470m"}},
        {"name": "late", "request": 1, "memory": "1Gi", "runtime_s": 60, "submit_s": 9, "gpus": {"share": "50m"}},
    ]
    run = simulate(
        make_scenario(machines, jobs),
        "flow",
        options=Options(keep_records=True),
        engine=EngineOptions(keep_records=True),
    )
    return [RecordView(record, f"run/flow-{i:04}.npz") for i, record in enumerate(run.records)]


@cache
def with_links() -> list[RecordView]:
    """Two rounds: a task of one GPU runs where then tasks of two and of five start; the other machine has no topology."""
    machines = [
        {"name": "linked", "type": "e2-standard-8", "gpus": {"model": "P100", "count": 8, "topology": "dgx1"}},
        {"name": "other", "type": "e2-standard-8", "gpus": {"model": "K80", "count": 1}},
    ]
    job = {"request": 1, "memory": "1Gi", "runtime_s": 60}
    jobs = [
        {"name": "one", **job, "gpus": {"count": 1, "models": ["P100"]}},
        {"name": "two", **job, "submit_s": 9, "gpus": {"count": 2}},
        {"name": "five", **job, "submit_s": 9, "gpus": {"count": 5}},
        {"name": "old", **job, "submit_s": 9, "gpus": {"count": 1, "models": ["K80"]}},
    ]
    run = simulate(
        make_scenario(machines, jobs),
        "topo-aware",
        options=Options(keep_records=True),
        engine=EngineOptions(keep_records=True),
    )
    return [RecordView(record, f"run/topo-aware-{i:04}.npz") for i, record in enumerate(run.records)]


@cache
def of_equals() -> list[RecordView]:
    """A round of tasks that are equal on machines that are, too."""
    machines = [{"name": "m", "type": "e2-standard-4", "copies": 3}]
    jobs = [{"name": "job", "request": 2, "memory": "1Gi", "runtime_s": 60, "copies": 6}]
    run = simulate(
        make_scenario(machines, jobs),
        "flow",
        options=Options(keep_records=True),
        engine=EngineOptions(keep_records=True),
    )
    return [RecordView(run.records[0], "run/flow-0000.npz")]


def flow_elsewhere() -> dict[str, Any]:
    """A bulk round in which the first network left everything waiting, as far as its flow tells."""
    record = copy.deepcopy(bulk(machines=90, classes=6, each=20))
    network = record["parts"][0]["first_network"]
    network["flow"] = [0] * len(network["flow"])
    return record


def of_epoch() -> dict[str, Any]:
    """Times count from 1970; a second part in which something waits, and something with a width below a core runs."""
    now_s = 2000000000.0
    first = copy.deepcopy(searched("makespan")["parts"][0])
    second = copy.deepcopy(searched()["parts"][0])
    waiting = second["waiting"]
    (waits,) = waiting["task"]
    waiting["waited_s"] = [232774400.0]
    waiting["reasons"][0]["text"] = f"a machine is reserved for it, free at {now_s + 164:.0f} s"
    machine = second["snapshot"]["machines"][0]["name"]
    second["reservations"] = [{"task": waits, "machine": machine, "width_milli": 1000, "start_s": now_s + 164.2}]
    second["snapshot"]["running"] = [
        running_like(second["snapshot"]["pending"][0], machine, "300m"),
    ]
    for part, end in ((first, "early"), (second, "late")):
        for task in [t["name"] for t in part["snapshot"]["pending"]]:
            part |= renamed({"part": part}, task, f"{task}-{end}")["part"]
    names = [task["name"] for part in (first, second) for task in part["snapshot"]["pending"]]
    return {
        **searched(),
        "now_s": now_s,
        "titles": {name: f"shop/pod-{name[::-1]}" for name in names},
        "parts": [first, second],
        "held": [{"tasks": ["never-tried"], "fate": "unschedulable", "message": "no node fits", "counts": {}}],
    }


def without_networks() -> dict[str, Any]:
    record = copy.deepcopy(searched())
    record["parts"][0] |= {"first_network": None, "certificate": None}
    return record


@pytest.fixture(scope="module")
def tab() -> Iterator[Page]:
    with browser_tab("to open the inspector's page") as tab:
        tab.add_init_script(OPENS_LATE)
        yield tab


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    folder = tmp_path_factory.mktemp("pages")

    def file(name: str) -> Path:
        path = folder / f"{name}.html"
        if not path.exists():
            path.write_text(PAGES[name](), encoding="utf-8")
        return path

    return file


OPENS_LATE = """
const json = Response.prototype.json;
Response.prototype.json = async function () {
  await new Promise((done) => setTimeout(done, 100));
  return json.call(this);
};
"""
"""Unpacking a round takes its time, so that a test that does not wait for the round fails at every run."""


@pytest.fixture
def visit(tab: Page, files: Callable[[str], Path]) -> Iterator[Open]:
    opened: list[str] = []

    def go(name: str, fragment: str = "") -> Page:
        opened.append(files(name).as_uri())
        return show(tab, f"{opened[-1]}#{fragment}")

    with watched(tab, width=1400, height=900) as seen:
        yield go
    assert seen.complaints == []
    assert seen.asked == opened


def box(page: Page, name: str) -> Any:
    return page.locator(f'.box[data-id="{name}"]')


def decision(page: Page) -> None:
    """The round as one network."""
    page.click('[data-view="round"]')


def passes(page: Page, number: int) -> None:
    """The network of a pass."""
    page.click('[data-view="passes"]')
    for _ in range(number - 1):
        page.click("#step-after")


def line(page: Page, source: str, target: str) -> Any:
    return page.locator(f'.line[data-id="{source} → {target}"]')


def text(page: Page, selector: str) -> str:
    return str(page.locator(selector).inner_text())


def hover(page: Page, found: Any) -> None:
    """Point at the middle of a line."""
    at = found.locator(".catch").evaluate(
        "path => { const p = path.getPointAtLength(path.getTotalLength() / 2).matrixTransform(path.getScreenCTM());"
        " return [p.x, p.y]; }"
    )
    page.mouse.move(*at)


def transform(page: Page) -> str:
    return str(page.locator("svg .world").first.get_attribute("transform"))


def search(page: Page, words: str) -> None:
    page.keyboard.press("/")
    page.keyboard.type(words)
    page.keyboard.press("Enter")


def test_the_page_opens_with_the_round_as_one_network_and_tells_what_was_undone(visit: Open) -> None:
    page = visit("run")
    assert page.locator('[data-view="round"]').get_attribute("aria-selected") == "true"
    assert [tab.inner_text() for tab in page.locator("#views button").all()] == ["Round", "Passes", "Tables"]
    told = page.locator("#panel section", has_text="Undone after its pass").last.inner_text()
    undone = [entry["task"] for one in searched()["parts"][0]["passes"] for entry in one["undone"]]
    assert undone
    for task in undone:
        assert f"{task} of pass 1, by a swap" in told
    assert "3\ntasks pending" in text(page, "#figures")
    assert {b.get_attribute("data-id") for b in page.locator(".box.task:not(.running)").all()} == {
        "task:blackscholes",
        "task:canneal",
        "task:ferret",
    }
    said = ("At most", "No plan is cheaper", "No bound says how far")
    assert any(words in text(page, "#panel") for words in said)
    assert "its own run time" in text(page, "#panel")
    assert "Distance 0: the decision is an optimal flow, no single move gains." in text(page, "#panel")


def test_the_first_picture_leads_from_each_task_over_a_place_to_the_sink(visit: Open) -> None:
    page = visit("run")
    for source, target in (
        ("task:blackscholes", "machine:node-b-4core now"),
        ("task:canneal", "machine:node-b-4core now"),
        ("task:ferret", "machine:node-c-8core 1"),
        ("running:node-c-8core", "machine:node-c-8core row 0"),
        ("machine:node-b-4core", "sink"),
        ("machine:node-c-8core", "sink"),
    ):
        assert line(page, source, target).count() == 1, (source, target)
        assert "flow" in str(line(page, source, target).get_attribute("class"))
    assert line(page, "waits", "sink").count() == 0
    page.click("#zero")
    assert line(page, "waits", "sink").count() == 1
    for place in ("machine:node-c-8core now", "machine:node-b-4core 1", "waits"):
        assert line(page, "task:canneal", place).count() == 1


def test_choosing_a_task_shows_the_cost_of_each_of_its_arcs(visit: Open) -> None:
    page = visit("run")
    box(page, "task:canneal").click()
    arcs = page.locator("#panel table.arcs")
    first = arcs.locator("tbody tr").first
    assert "decided" in str(first.get_attribute("class"))
    assert first.inner_text().split("\t")[1:] == ["0.912", "decided"]
    assert "its own run time 0.866" in first.inner_text()
    rows = arcs.locator("tbody tr").count()
    page.locator("#panel .rest button").first.click()
    assert arcs.locator("tbody tr").count() > rows
    told = arcs.inner_text()
    assert "unscheduled" in told and "+0.419" in told
    assert "node-c-8core, at once, 4 cores" in told


def test_the_slider_of_passes_tells_what_each_saw_chose_and_what_became_of_it(visit: Open) -> None:
    page = visit("run")
    passes(page, 1)
    found = searched()["parts"][0]["passes"]
    assert "Pass 1 of 2: saw 2 tasks, placed 2, 0 of them stay" in text(page, "#steps")
    panel = text(page, "#panel")
    for entry in found[0]["undone"]:
        assert re.search(rf"{entry['task']} → .*; undone by a swap: now", panel)
    page.click("#step-after")
    assert "Pass 2 of 2: saw 1 task, placed 1, all stay" in text(page, "#steps")
    assert "blackscholes → node-b-4core at 0.598; stays" in text(page, "#panel")
    assert page.locator("#step-after").is_disabled()
    page.keyboard.press(",")
    assert "Pass 1 of 2" in text(page, "#step-words")
    page.locator("#step").focus()
    page.keyboard.press("ArrowRight")
    assert "Pass 2 of 2" in text(page, "#step-words")


def test_pointing_at_an_arc_shows_its_flow_capacity_and_terms(visit: Open) -> None:
    page = visit("run")
    passes(page, 2)
    hover(page, line(page, "class:blackscholes", "machine:node-b-4core"))
    shown = text(page, "#tip")
    for words in ("blackscholes → node-b-4core", "flow", "1 of 1", "cost of a task", "exact change", "reduced cost"):
        assert words in shown, shown
    page.mouse.move(5, 5)
    assert page.locator("#tip").is_hidden()


def test_a_click_on_an_arc_keeps_its_exact_numbers(visit: Open) -> None:
    page = visit("run")
    passes(page, 2)
    network = searched()["parts"][0]["first_network"]
    nodes = list(network["nodes"])
    ends = (nodes.index("class:blackscholes"), nodes.index("machine:node-b-4core"))
    (arc,) = (
        k for k, e in enumerate(zip(network["tails"], network["heads"], strict=True)) if tuple(map(int, e)) == ends
    )
    hover(page, line(page, "class:blackscholes", "machine:node-b-4core"))
    page.mouse.down()
    page.mouse.up()
    assert f"{int(network['unit_costs'][arc]):,}" in text(page, "#panel")


def test_arcs_without_flow_are_drawn_on_demand(visit: Open) -> None:
    page = visit("run")
    passes(page, 2)
    assert page.locator(".network .line.zero").count() == 0
    page.click("#zero")
    assert page.locator(".network .line.zero").count() > 3
    page.keyboard.press("z")
    assert page.locator(".network .line.zero").count() == 0
    box(page, "class:blackscholes").click()
    assert page.locator(".network .line.zero").count() == page.locator(".network .line.zero.lit").count() > 0


def test_colours_follow_the_switch(visit: Open) -> None:
    page = visit("run")
    passes(page, 2)
    assert page.locator(".network .line.base").count() > 0
    page.select_option("#mode", "cost")
    assert page.locator('.network [class*="cost"].line').count() > 0
    page.select_option("#mode", "price")
    assert page.locator(".network .line.base").count() == 0
    assert "price" in text(page, "#legend")


def test_search_finds_a_task_and_follows_its_path(visit: Open) -> None:
    page = visit("bulk")
    search(page, "shop/web-1-7")
    assert text(page, "#panel h2") == "shop/web-1-7"
    steps = page.locator("#panel .path li").all_inner_texts()
    assert steps[0] == "class-1"
    assert "domain" in steps[1]
    assert steps[-1] == "sink"
    assert page.locator(".network .line.on-path").count() >= 3
    page.click("text=Follow its path")
    assert box(page, "task:shop/web-1-7").get_attribute("aria-pressed") == "true"
    machine = page.locator("#panel .verdict button").inner_text()
    assert box(page, f"machine:{machine}").get_attribute("aria-pressed") == "true"


def test_search_finds_machines_classes_and_part_of_a_name(visit: Open) -> None:
    page = visit("bulk")
    page.fill("#search", "node-03")
    kinds = page.locator("#hits .type").all_inner_texts()
    assert "machine" in kinds and len(kinds) >= 10
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    assert text(page, "#panel .kind") in ("machine", "group of machines")
    page.fill("#search", "no such thing")
    assert "nothing has that name" in text(page, "#hits")
    page.keyboard.press("Escape")
    assert page.locator("#hits").is_hidden()


def test_what_waits_is_explained(visit: Open) -> None:
    page = visit("run")
    decision(page)
    box(page, "task:ferret").click()
    panel = text(page, "#panel")
    assert "Waits for" in panel and "Why" in panel and "ferret waits for" in panel
    assert "Its arcs" in panel
    assert page.locator(".network .line.zero.lit").count() >= 1
    page.locator("#panel table.arcs button").nth(1).click()
    assert "Dearer by" in text(page, "#panel")


def test_equal_tasks_have_their_own_arcs(visit: Open) -> None:
    (part,) = of_equals()[0].parts
    graph = round_network(of_equals()[0], part).graph
    placed = next(p for p in reversed(part.placements) if graph.names[graph.node("task", p.task) or 0] != p.task)
    page = visit("equals")
    page.fill("#search", placed.task)
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    rows = page.locator("#panel table.arcs tbody tr")
    assert rows.first.inner_text().startswith(f"{placed.machine}, at once") or rows.count() > 1
    decided = page.locator("#panel table.arcs tr.decided")
    assert decided.inner_text().startswith(f"{placed.machine}, at once")
    decided.locator("button").click()
    assert "nothing: it was decided" in text(page, "#panel")


def test_groups_without_flow_are_one_box_until_asked_for(visit: Open) -> None:
    page = visit("bulk")
    drawn = page.locator(".box.group").count()
    assert 0 < drawn <= 40
    bundle = page.locator(".box.bundle").first
    name = bundle.get_attribute("data-id")
    assert name is not None
    bundle.click()
    assert page.locator(".box").count() > drawn


def test_a_group_unfolds_to_its_tiers_and_machines_and_folds_again(visit: Open) -> None:
    page = visit("bulk")
    group = page.locator(".box.group").first
    name = str(group.get_attribute("data-id"))
    assert group.get_attribute("aria-expanded") == "false"
    group.click()
    assert page.locator(".box.tier").count() == 0, "the first click chooses"
    box(page, name).click(position={"x": 30, "y": 8})
    assert page.locator(".box.tier").count() >= 2
    assert page.locator(".box.chip").count() >= 1
    assert box(page, name).get_attribute("aria-expanded") == "true"
    page.locator(".box.chip").first.click()
    assert text(page, "#panel .kind") == "machine"
    # Above the lines, of which one may pass over it.
    page.locator(f'.knob[data-of="{name}"]').click()
    assert page.locator(".knobs ~ .boxes").count() == page.locator(".lines ~ .knobs").count() == 1
    assert page.locator(".box.tier").count() == 0


def test_a_class_unfolds_to_its_tasks(visit: Open) -> None:
    page = visit("bulk")
    box(page, "class:class-0").locator(".knob").click()
    assert page.locator(".box.chip").count() == 20
    box(page, "task:shop/web-0-3").click()
    assert text(page, "#panel h2") == "shop/web-0-3"


def test_tables_sort_and_filter(visit: Open) -> None:
    page = visit("bulk")
    page.click('[data-view="tables"]')
    page.click('[data-table="Arcs"]')

    def column(place: int) -> list[str]:
        return [str(t) for t in page.locator(f"#tables tbody tr td:nth-child({place})").all_inner_texts()]

    page.click('#tables th[data-key="flow"] button')
    flows = [int(t.replace(",", "")) for t in column(3)]
    assert flows == sorted(flows, reverse=True) and flows[0] > 0
    page.click('#tables th[data-key="flow"] button')
    assert page.locator('#tables th[data-key="flow"]').get_attribute("aria-sort") == "ascending"
    assert [int(t.replace(",", "")) for t in column(3)] == sorted(int(t.replace(",", "")) for t in column(3))
    page.click('[data-table="Placements"]')
    page.fill("#tables .filter", "class-2")
    assert set(column(2)) == {"class-2"}
    page.click('[data-table="Waiting"]')
    assert column(1) == ["shop/huge-0", "shop/huge-1"]
    page.locator("#tables tbody button").first.click()
    assert text(page, "#panel h2") == "shop/huge-0"
    assert "Why" in text(page, "#panel")


def address(page: Page) -> dict[str, list[str]]:
    """What the address says of the view, after a moment for panning to end."""
    page.wait_for_timeout(300)
    return parse_qs(urlsplit(page.url).fragment)


def test_the_slider_is_an_axis_of_time(visit: Open) -> None:
    page = visit("run")
    times = [searched()["now_s"], 60, 90]
    places = page.locator("#axis line").evaluate_all("all => all.map(one => Number(one.getAttribute('x1')))")
    spans = [(at - places[0]) / (places[2] - places[0]) for at in places]
    assert spans == pytest.approx([(time - times[0]) / (90 - times[0]) for time in times], abs=0.01)
    labels = page.locator("#axis text").all_text_contents()
    assert "60 s" in labels
    assert all(label.endswith(" s") for label in labels)
    bar = page.locator("#slider").bounding_box()
    page.mouse.click(bar["x"] + places[1], bar["y"] + bar["height"] / 2)
    expect(page.locator("#position")).to_have_text("2 of 3")
    assert page.locator("#axis line.here").count() == 1
    page.locator("#slider").focus()
    page.keyboard.press("End")
    expect(page.locator("#position")).to_have_text("3 of 3")
    page.keyboard.press("ArrowLeft")
    expect(page.locator("#position")).to_have_text("2 of 3")


def test_the_slider_covers_the_rounds_of_the_policy_that_is_shown(visit: Open) -> None:
    page = visit("policies")
    assert page.locator("#axis line").count() == 2
    for _ in range(2):
        page.keyboard.press("n")
    expect(page.locator("#position")).to_have_text("fcfs 1 of 2")
    assert page.locator("#axis line").count() == 2


def test_dates_are_on_the_axis_of_rounds_that_count_from_1970(visit: Open) -> None:
    page = visit("from 1970")
    assert any(label.startswith("03:3") for label in page.locator("#axis text").all_text_contents())


def test_the_address_opens_the_same_view(visit: Open) -> None:
    page = visit("run")
    page.keyboard.press("n")
    expect(page.locator("#position")).to_have_text("2 of 3")
    decision(page)
    page.locator(".box.task").first.click()
    page.click("#larger")
    page.click("#zero")
    named = address(page)
    assert named["round"] == ["4"]
    assert named["view"] == ["round"]
    assert named["choose"][0].startswith("task:")
    assert named["zero"] == ["1"]
    assert named["zoom"][0].startswith("network ")
    told, scale = text(page, "#panel"), scale_of(page)
    visit("run", urlsplit(page.url).fragment)
    assert address(page) == named
    assert text(page, "#panel") == told
    assert scale_of(page) == pytest.approx(scale, rel=0.01)


def scale_of(page: Page) -> float:
    return float(re.findall(r"scale\(([\d.]+)", transform(page))[0])


def test_back_and_forward_go_from_view_to_view(visit: Open) -> None:
    page = visit("run")
    opened = page.url
    page.keyboard.press("n")
    expect(page.locator("#position")).to_have_text("2 of 3")
    page.click('[data-view="passes"]')
    decision(page)
    page.locator(".box.task").first.click()
    chosen = page.url
    page.go_back()
    expect(page.locator(".box.task.chosen")).to_have_count(0)
    page.go_back()
    expect(page.locator('[data-view="passes"]')).to_have_attribute("aria-selected", "true")
    page.go_back()
    expect(page.locator('[data-view="round"]')).to_have_attribute("aria-selected", "true")
    page.go_back()
    expect(page.locator("#position")).to_have_text("1 of 3")
    assert page.url == opened
    for _ in range(4):
        page.go_forward()
    expect(page.locator(".box.task.chosen")).to_have_count(1)
    assert page.url == chosen


@pytest.mark.parametrize(
    "fragment", ["round=99&view=nothing&choose=task:none", "choose={", "zoom=network x,y&part=-1", "%"]
)
def test_an_address_that_names_nothing_opens_the_page_as_it_is(visit: Open, fragment: str) -> None:
    expect(visit("run", fragment).locator("#position")).to_have_text("1 of 3")


def test_rounds_change_by_slider_buttons_and_keys(visit: Open) -> None:
    page = visit("run")
    assert text(page, "#title") == "Round 3"
    assert page.locator("#previous").is_disabled()
    page.locator("#slider").focus()
    page.keyboard.press("ArrowRight")
    expect(page.locator("#title")).to_have_text("Round 4")
    assert "60 s" in str(page.locator("#slider").get_attribute("aria-valuetext"))
    expect(page.locator(".row.later")).to_have_count(0)
    page.click("#next")
    expect(page.locator("#title")).to_have_text("Round 5")
    page.locator("#position").click()
    page.keyboard.press("p")
    expect(page.locator("#title")).to_have_text("Round 4")
    page.keyboard.press("n")
    expect(page.locator("#title")).to_have_text("Round 5")
    assert text(page, "#position") == "3 of 3"


def test_what_is_chosen_stays_chosen_in_the_next_round(visit: Open) -> None:
    page = visit("run")
    decision(page)
    box(page, "task:ferret").click()
    assert "Waits for" in text(page, "#panel .verdict")
    page.click("#next")
    expect(page.locator("#panel .verdict").first).to_contain_text("Starts on")


def test_two_policies_side_by_side_show_what_changed(visit: Open) -> None:
    page = visit("two")
    decision(page)
    assert page.locator(".stage").count() == 2
    assert page.locator("#panel h2").first.inner_text() == "What changed"
    badges = page.locator(".badge").all_text_contents()
    assert sorted(badges) == sorted(["moved", "moved", "starts"] * 2)
    assert page.locator(".network .line.changed .halo").count() == 6
    changes = page.locator("#panel .change").all_inner_texts()
    assert sorted(changes) == ["moved", "moved", "starts"]
    page.click('[data-view="tables"]')
    page.click('[data-table="Differences"]')
    rows = page.locator("#tables tbody tr").all_inner_texts()
    assert len(rows) == 3 and all("node-" in row for row in rows)


def test_any_second_round_can_be_put_beside(visit: Open) -> None:
    page = visit("run")
    decision(page)
    assert page.locator(".stage").count() == 1
    page.select_option("#compare", label="round 4 · 60 s · flow, makespan")
    expect(page.locator(".stage")).to_have_count(2)
    assert page.locator(".badge").count() == 6
    page.select_option("#compare", "before")
    expect(page.locator(".stage")).to_have_count(1)
    page.click("#next")
    expect(page.locator(".stage")).to_have_count(2)
    titles = page.locator(".stage-title").all_inner_texts()
    assert "round 3" in titles[0] and "round 4" in titles[1]
    page.select_option("#compare", "")
    expect(page.locator(".stage")).to_have_count(1)


def test_bulk_rounds_side_by_side_mark_lines_whose_flow_differs(visit: Open) -> None:
    page = visit("two bulk")
    assert page.locator(".network .line.changed").count() > 0
    page.locator("#panel .list button.link").first.click()
    assert page.locator("#panel .side").count() == 2


def test_the_page_can_be_walked_with_keys_alone(visit: Open) -> None:
    page = visit("bulk")
    focused = "document.activeElement.dataset ? document.activeElement.dataset.id || '' : ''"
    for _ in range(40):
        page.keyboard.press("Tab")
        if page.evaluate(focused):
            break
    first = page.evaluate(focused)
    assert first.startswith("class:")
    assert page.locator("#tip").is_visible(), "the focus shows what the pointer would"
    page.keyboard.press("ArrowDown")
    second = page.evaluate(focused)
    assert second.startswith("class:") and second != first
    page.keyboard.press("Enter")
    assert text(page, "#panel h2") == second.removeprefix("class:")
    assert page.evaluate(focused) == second, "the focus stays where it was"
    page.keyboard.press("Enter")
    assert box(page, second).get_attribute("aria-expanded") == "true"
    page.keyboard.press(" ")
    assert box(page, second).get_attribute("aria-expanded") == "false"
    before = page.evaluate(focused)
    page.keyboard.press("ArrowRight")
    assert page.evaluate(focused) != before
    page.keyboard.press("Escape")
    assert text(page, "#panel .kind") == "round"


def test_help_lists_the_keys_and_closes_with_escape(visit: Open) -> None:
    page = visit("run")
    page.keyboard.press("?")
    assert page.locator("#help").is_visible()
    assert "choose nothing" in text(page, "#help")
    page.keyboard.press("Escape")
    assert page.locator("#help").is_hidden()


def test_the_drawing_zooms_and_fits(visit: Open) -> None:
    page = visit("bulk")
    whole = transform(page)
    page.click("#larger")
    assert transform(page) != whole
    page.keyboard.press("0")
    assert transform(page) == whole


FAULTS = """() => {
  const faults = [];
  const rect = (one) => one.getBoundingClientRect();
  const ground = (box) => rect(box.querySelector(".ground"));
  const boxes = [...document.querySelectorAll(".box")].map((box) => [box, ground(box)]);
  for (const [box, r] of boxes) {
    for (const words of box.querySelectorAll(":scope > text")) {
      const q = rect(words);
      if (q.left < r.left - 1 || q.right > r.right + 1) faults.push(`${box.dataset.id}: ${words.textContent}`);
    }
    for (const [other, s] of boxes) {
      if (box === other || box.ownerSVGElement !== other.ownerSVGElement) continue;
      if (box.matches(".framed") || other.matches(".framed")) continue;
      const apart = r.right - 1 < s.left || s.right - 1 < r.left || r.bottom - 1 < s.top || s.bottom - 1 < r.top;
      if (!apart) faults.push(`${box.dataset.id} over ${other.dataset.id}`);
    }
  }
  return faults;
}"""


@pytest.mark.parametrize("name", ["run", "bulk", "two", "two bulk", "kubernetes"])
def test_boxes_keep_apart_and_their_words_stay_inside(visit: Open, name: str) -> None:
    page = visit(name)
    assert page.evaluate(FAULTS) == []
    if "bulk" in name:
        page.locator(".box.group .knob").first.click()
        page.locator(".box.class .knob").first.click()
        assert page.evaluate(FAULTS) == []


def test_parts_of_a_round_on_kubernetes_are_one_choice_away(visit: Open) -> None:
    page = visit("kubernetes")
    decision(page)
    assert page.locator("#part option").count() == 2
    expect(page.locator(".box.task", has_text="shop/ferret-pod")).to_have_count(1)
    page.select_option("#part", "1")
    page.wait_for_selector(".box.class")
    search(page, "shop/huge-1")
    assert "0/24 nodes are available" in text(page, "#panel")


def test_a_round_in_parts_opens_with_one_in_which_something_waits(visit: Open) -> None:
    page = visit("epoch")
    assert page.locator("#part").input_value() == "1"
    figures = text(page, "#figures")
    assert "part 2: cost" in figures and "to decide, all parts" in figures
    assert "6\ntasks pending" in figures
    waiting = page.locator("#panel section", has_text="Waiting in all parts")
    assert "shop/pod-etal-terref (part 2)" in waiting.inner_text()
    assert "never-tried" in waiting.inner_text()
    waiting.locator("button", has_text="never-tried").click()
    assert "no node fits" in text(page, "#panel")


@pytest.mark.parametrize("words", ["canneal-early", "pod-ylrae-laennac", "ylrae-laen"])
def test_search_finds_pods_of_other_parts_by_uid_and_title(visit: Open, words: str) -> None:
    page = visit("epoch")
    decision(page)
    assert page.locator("#part").input_value() == "1"
    search(page, words)
    expect(page.locator("#panel h2")).to_have_text("shop/pod-ylrae-laennac")
    assert page.locator("#part").input_value() == "0"
    assert "Starts on" in text(page, "#panel .verdict")
    assert box(page, "task:canneal-early").get_attribute("aria-pressed") == "true"
    page.keyboard.press("Escape")
    assert page.locator("#part").input_value() == "0"


def test_no_number_is_unknown_where_a_width_is_a_quantity(visit: Open) -> None:
    page = visit("epoch")
    decision(page)
    assert "0.3 cores" in page.locator(".box.row.runs").first.inner_html()
    assert "NaN" not in page.locator("body").inner_text() + "".join(page.locator("svg text").all_text_contents())
    page.locator(".box.task").first.click()
    assert "NaN" not in text(page, "#panel")


def test_times_from_1970_are_told_from_the_round_on(visit: Open) -> None:
    page = visit("epoch")
    decision(page)
    assert "in 2 min 44 s (03:36:04 UTC)" in text(page, '#panel section:has(h3:text-is("Reserved"))')
    assert "free in 2 min 44 s (03:36:04 UTC)" in text(page, "#panel section:has-text('Waiting in all')")
    box(page, "task:ferret-late").click()
    assert "2,694 d 3 h" in text(page, "#panel")
    assert "2000000164" not in text(page, "#panel") and "232774400 s" not in text(page, "#panel")


def test_groups_show_what_was_given_away_and_not_the_first_flow(visit: Open) -> None:
    page = visit("bulk")
    recorded = RecordView(bulk(machines=90, classes=6, each=20))
    (part,) = recorded.parts
    fleet = part.plain["fleet"]
    cpu = list(fleet["resources"]).index("cpu")
    free = {m: max(0, int(row[cpu])) for m, row in zip(part.machines, fleet["free"], strict=True)}
    given = {m: sum(p.width_milli or 0 for p in part.placements if p.machine == m) for m in part.machines}
    members = {group.name: group.members for group in part.groups}
    seen = 0
    for drawn in page.locator(".box.group").all():
        name = str(drawn.get_attribute("data-id")).removeprefix("group:")
        told = re.search(r"([\d.,]+) of ([\d.,]+) free cores? given away", str(drawn.get_attribute("aria-label")))
        assert told is not None
        numbers = [float(number.replace(",", "")) for number in told.groups()]
        assert numbers == pytest.approx(
            [sum(of[m] for m in members[name]) / 1000 for of in (given, free)], rel=0.02, abs=0.01
        )
        seen += 1
    assert seen > 3
    assert "free cores given away" in text(page, "#legend")
    page.locator(".box.group .knob").first.click()
    assert "in use before" in text(page, "#legend")


def test_groups_without_flow_say_how_many_tasks_were_placed_there_later(visit: Open) -> None:
    page = visit("without flow")
    (part,) = RecordView(flow_elsewhere()).parts
    drawn = page.locator('.box[data-id="idle:group"]')
    assert f"{len(part.placements):,} tasks placed there later" in str(drawn.get_attribute("aria-label"))
    assert "idle" not in str(drawn.get_attribute("class")).split()


def test_what_was_placed_in_a_bulk_round_is_explained_by_one_of_its_class(visit: Open) -> None:
    page = visit("bulk")
    search(page, "shop/web-1-7")
    why = text(page, "#panel section:has-text('Why')")
    assert re.search(r"For shop/web-1-\d+, of the same class:", why)
    assert "Runner-up" in why or "starts on" in why
    assert "rounding to whole tasks" not in text(page, "#panel")


def test_unfolding_keeps_the_machines_in_sight(visit: Open) -> None:
    page = visit("bulk")
    page.locator(".box.class .knob").first.click()
    stage = page.locator(".stage-host").bounding_box()
    right = max(b.bounding_box()["x"] + b.bounding_box()["width"] for b in page.locator(".box.group").all())
    assert stage["x"] < right <= stage["x"] + stage["width"]
    assert page.locator(".box.sink").bounding_box()["x"] < stage["x"] + stage["width"]


@pytest.mark.parametrize("task", ["shop/web-0-3", "shop/web-1-7", "shop/web-5-39"])
def test_the_whole_path_that_is_followed_is_in_sight(visit: Open, task: str) -> None:
    page = visit("many")
    search(page, task)
    page.keyboard.press("f")
    stage = page.locator(".stage-host").bounding_box()
    found = page.locator(".line.on-path .stroke").all()
    assert len(found) >= 2
    inside = page.evaluate(
        """() => {
          const stage = document.querySelector(".stage-host").getBoundingClientRect();
          return [...document.querySelectorAll(".line.on-path .stroke")].every((path) => {
            const r = path.getBoundingClientRect();
            return r.left >= stage.left - 1 && r.right <= stage.right + 1
              && r.top >= stage.top - 1 && r.bottom <= stage.bottom + 1;
          });
        }"""
    )
    assert inside
    sink = page.locator(".box.sink").bounding_box()
    assert sink["x"] >= stage["x"] and sink["x"] + sink["width"] <= stage["x"] + stage["width"] + 1


def test_rounds_of_policies_stay_apart_and_can_be_put_beside_by_time(visit: Open) -> None:
    page = visit("policies")
    assert text(page, "#position") == "flow 1 of 2"
    page.select_option("#compare", "before")
    expect(page.locator(".stage")).to_have_count(1)
    page.click("#next")
    expect(page.locator(".stage")).to_have_count(2)
    page.click("#next")
    expect(page.locator("#position")).to_have_text("fcfs 1 of 2")
    expect(page.locator(".stage")).to_have_count(1)
    page.select_option("#compare", label="same time, flow")
    expect(page.locator(".stage")).to_have_count(2)
    titles = page.locator(".stage-title").all_inner_texts()
    assert "round 0 · 0 s · fcfs" in titles[0] and "round 0 · 0 s · flow" in titles[1]
    page.click("#next")
    expect(page.locator(".stage-title").nth(1)).to_contain_text("round 1 · 30 s · flow")


def test_rounds_of_one_name_are_told_apart_by_their_files(visit: Open) -> None:
    titles = visit("twins").locator(".stage-title").all_inner_texts()
    assert titles[0].endswith("a.json") and titles[1].endswith("b.json")


def test_a_policy_that_is_no_flow_has_no_certificate(visit: Open) -> None:
    assert "No certificate: fcfs is no flow." in text(visit("baseline"), "#panel")


@pytest.mark.parametrize("name", ["epoch", "policies", "twins"])
def test_a_small_window_keeps_the_numbers_and_whole_choices(visit: Open, name: str) -> None:
    page = visit(name)
    page.set_viewport_size({"width": 1000, "height": 700})
    assert page.locator("#figures").is_visible()
    assert "tasks pending" in text(page, "#figures")
    for field in page.locator("header, .controls select:visible, #figures li").all():
        at = field.bounding_box()
        assert at["x"] >= 0 and at["x"] + at["width"] <= 1000


FOCUS = "document.activeElement.id || document.activeElement.dataset.view || document.activeElement.tagName"


def test_the_focus_is_never_lost(visit: Open) -> None:
    page = visit("bulk")
    search(page, "class-0")
    assert page.evaluate(FOCUS) == "panel"
    page.locator("#panel .list button.link").first.focus()
    page.keyboard.press("Enter")
    assert text(page, "#panel .kind") != "class of tasks"
    assert page.evaluate(FOCUS) == "panel"
    page.keyboard.press("Escape")
    assert page.evaluate(FOCUS) == "panel"
    page.keyboard.press("2")
    page.click('[data-table="Machines"]')
    assert page.evaluate("document.activeElement.dataset.table") == "Machines"
    page.keyboard.press("1")
    assert page.evaluate(FOCUS) == "round"
    page.keyboard.press("/")
    page.keyboard.press("Escape")
    assert page.evaluate(FOCUS) == "round"
    page.keyboard.press("2")
    assert page.evaluate(FOCUS) == "tables"


def test_on_paper_a_table_has_up_to_a_thousand_rows_and_says_what_it_leaves(visit: Open) -> None:
    page = visit("many")
    page.click('[data-view="tables"]')
    page.click('[data-table="Arcs"]')
    rows = page.locator("#tables tbody tr")
    assert rows.count() == 200
    assert page.locator(".paper-note").is_hidden()
    page.emulate_media(media="print")
    expect(rows).to_have_count(1000)
    assert re.fullmatch(r"The first 1,000 of \d,\d+ rows\.", text(page, ".paper-note"))


def test_names_that_look_like_markup_are_names(visit: Open) -> None:
    page = visit("hostile")
    decision(page)
    assert page.locator("img").count() == 0
    page.locator(".box.task", has_text="</").click()
    assert text(page, "#panel h2") == HOSTILE
    search(page, "<img")
    assert text(page, "#panel h2") == HOSTILE
    for view in ("round", "passes", "tables"):
        page.click(f'[data-view="{view}"]')
    assert page.locator("img").count() == 0


def test_rounds_with_nothing_to_draw_say_so(visit: Open) -> None:
    assert "nothing to solve" in text(visit("nothing"), "#stages")
    page = visit("baseline")
    assert page.locator(".box.task").count() == 3
    page.click('[data-view="tables"]')
    assert page.locator("#tables tbody tr").count() == 2


def test_on_paper_the_whole_drawing_is_there(visit: Open) -> None:
    page = visit("bulk")
    page.emulate_media(media="print")
    page.wait_for_selector("svg.network[viewBox]")
    assert page.locator(".controls").is_hidden()
    page.emulate_media(media="screen")
    page.wait_for_selector("svg.network:not([viewBox])")


def test_without_colour_the_kinds_of_lines_differ(visit: Open) -> None:
    page = visit("run")
    passes(page, 2)
    page.click("#zero")

    def dashes(selector: str) -> str:
        found = page.locator(f".network {selector} .stroke").first
        return str(found.evaluate("path => getComputedStyle(path).strokeDasharray"))

    assert dashes(".line.flow") == "none"
    assert dashes(".line.zero") != "none"
    decision(page)
    assert dashes(".line.later") not in ("none", dashes(".line.zero"))


# Narrow screens, and what the help says


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize(("width", "beside"), [(390, False), (1280, True)])
def test_the_panel_never_covers_the_drawing(visit: Open, tab: Page, width: int, beside: bool, scheme: str) -> None:
    tab.set_viewport_size({"width": width, "height": 844})
    tab.emulate_media(color_scheme=scheme)
    page = visit("run")
    drawing, panel, legend = (page.locator(each).bounding_box() for each in ("#stages", "#panel", "#legend"))
    for box in (drawing, legend):
        apart = box["x"] + box["width"] <= panel["x"] + 1 if beside else box["y"] + box["height"] <= panel["y"] + 1
        assert apart, (box, panel)
    assert drawing["width"] > 0.6 * width and drawing["height"] > 200
    assert page.evaluate("document.documentElement.scrollWidth") == width
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == (
        "rgb(255, 255, 255)" if scheme == "light" else "rgb(20, 23, 27)"
    )


def test_the_help_leaves_colours_to_the_legend(visit: Open) -> None:
    """A dashed line's colour says another thing under each colouring, and a line's width another one under Round."""
    page = visit("run")
    page.keyboard.press("?")
    told = page.locator("#help .sheet").inner_text()
    page.keyboard.press("Escape")

    assert "its colour says" not in told and "legend below the drawing says what colours mean" in told
    modes = page.locator("#mode option").all_inner_texts()
    assert [mode for mode in modes if mode.split()[0].capitalize() not in told] == []
    page.get_by_role("tab", name="Round").click()
    assert "width: cores it gets" in page.locator("#legend").inner_text()
    assert "under Round as the cores that a task gets" in told
    assert "search ended with" not in told, "rounds are decided by passes"


@pytest.mark.parametrize("width", [390, 1400])
def test_each_gpu_of_a_machine_has_a_lane(visit: Open, width: int) -> None:
    page = visit("gpus")
    page.set_viewport_size({"width": width, "height": 844})
    page.fill("#search", "m")
    page.keyboard.press("Enter")
    lanes = page.locator("#panel .gpus li")
    expect(lanes).to_have_count(8)
    expect(page.locator("#panel .links")).to_have_count(0)
    assert "8 devices of model V100" in text(page, "#panel")
    assert "Free: 8 GPUs before the round, 3.06 GPUs after it." in text(page, "#panel")
    four = lanes.filter(has_text="four")
    expect(four).to_have_count(4)
    shared = lanes.filter(has_text="share-1")
    assert shared.inner_text().split("\n")[-1] == "60m free"
    track = shared.locator(".track").bounding_box()
    boxes = [each.bounding_box() for each in shared.locator(".held").all()]
    assert [box["width"] / track["width"] for box in boxes] == pytest.approx([0.47, 0.47], abs=0.01)
    assert boxes[0]["x"] + boxes[0]["width"] <= boxes[1]["x"] + 0.5
    assert boxes[1]["x"] + boxes[1]["width"] <= track["x"] + track["width"] + 0.5
    whole = four.first.locator(".held").bounding_box()
    assert whole["width"] == pytest.approx(track["width"], abs=1)
    for cells in (each.locator("> span").all() for each in lanes.all()):
        edges = [(box["x"], box["x"] + box["width"]) for box in (cell.bounding_box() for cell in cells)]
        assert all(right <= left for (_, right), (left, _) in itertools.pairwise(edges))
        assert edges[-1][1] <= width
    assert page.evaluate("document.documentElement.scrollWidth") == width

    page.click("#next")
    expect(page.locator("#panel .gpus .held.comes")).to_have_count(1)
    late = page.locator("#panel .gpus .held.comes")
    assert late.get_attribute("aria-label") == "late: starts, 50m"
    late.click()
    assert text(page, "#panel h2") == "late"


def lit_wires(page: Page) -> set[frozenset[str]]:
    """Ends of the lines that stand out."""
    found = page.eval_on_selector_all("#panel .links .wire.lit", "all => all.map(one => one.__data__.slice(0, 2))")
    return {frozenset(str(end) for end in ends) for ends in found}


@pytest.mark.parametrize("width", [390, 1400])
def test_the_links_of_a_machine_are_drawn_and_those_of_a_task_stand_out(visit: Open, width: int) -> None:
    (layout,) = [link_layout(m.topology) for m in linked_devices() if m.topology is not None]
    page = visit("links")
    page.set_viewport_size({"width": width, "height": 844})
    page.fill("#search", "linked")
    page.keyboard.press("Enter")
    drawing = page.locator("#panel .links > svg")
    expect(drawing).to_have_count(1)
    assert page.locator("#panel .links .wire").count() == len(layout.lines) == 26
    expect(page.locator("#panel .links .gpu")).to_have_count(8)
    expect(page.locator("#panel .links .place")).to_have_count(3)
    expect(page.locator("#panel .links .gpu.taken")).to_have_count(1)
    assert lit_wires(page) == set(), "one GPU needs no links"

    page.keyboard.press("n")
    holds = {hold.task: hold for machine in linked_devices() for hold in machine.holds}
    two, five = holds["two"].devices, holds["five"].devices
    assert holds["two"].link_class == "nvlink" and holds["five"].link_class == "bus"
    expect(page.locator("#panel .links .gpu.taken")).to_have_count(7)
    taken = page.eval_on_selector_all("#panel .links .gpu.taken text", "all => all.map(one => +one.textContent)")
    assert sorted(taken) == sorted({*two, *five})
    expect(page.locator("#panel .links .gpu .runs")).to_have_count(1)
    keys = page.locator("#panel .links .key li").all_inner_texts()
    assert keys == ["nvlink, the fastest", "pcie", "bus", "in use", "taken by this round"]
    for name, devices, slowest in (("two", two, "nvlink"), ("five", five, "bus")):
        page.locator(f'#panel .gpus .held[aria-label^="{name}"]').first.hover()
        numbers = ", ".join(map(str, devices))
        assert text(page, "#panel .linked") == f"{name} starts on GPUs {numbers}; slowest link: {slowest}"
        between = {n for pair, lines in layout.paths.items() if {*pair} <= {*devices} for n in lines}
        assert lit_wires(page) == {frozenset(map(str, layout.lines[n].ends)) for n in between}
        rims = page.eval_on_selector_all("#panel .links .halo.lit", "all => all.map(one => one.__data__[0])")
        assert sorted(rims) == sorted(devices)
        told = page.locator("#panel li").filter(has_text=f"{name} starts on GPUs {numbers}, linked by {slowest}")
        words = told.inner_text()
        assert "for their distance" in words and "for what is left free: a utility of" in words

    labelled, described = (drawing.get_attribute(f"aria-{key}") for key in ("labelledby", "describedby"))
    assert page.locator(f"#{labelled}").text_content() == "Links between the GPUs of linked"
    about = page.locator(f"#{described}").text_content()
    assert "Socket 1 has GPUs 4, 5, 6, 7." in about and "0 to socket-0" in about and "two starts on" in about
    area = drawing.bounding_box()
    for each in page.locator("#panel .links svg .gpu, #panel .links svg .place").all():
        box = each.bounding_box()
        assert area["x"] - 1 <= box["x"] and box["x"] + box["width"] <= area["x"] + area["width"] + 1
    assert area["x"] + area["width"] <= width
    assert page.evaluate("document.documentElement.scrollWidth") == width

    page.locator('#panel .gpus .held[aria-label^="five"]').first.click()
    assert text(page, "#panel h2") == "five"
    assert text(page, "#panel .linked").startswith("five starts on"), (
        "the panel of a task has the drawing with its links"
    )
    page.fill("#search", "other")
    page.keyboard.press("Enter")
    expect(page.locator("#panel .gpus li")).to_have_count(1)
    expect(page.locator("#panel .links")).to_have_count(0)


def linked_devices() -> list[Any]:
    """The devices of the second round's machines."""
    recorded = with_links()[1]
    return [*machine_devices(recorded, recorded.parts[0]).values()]
