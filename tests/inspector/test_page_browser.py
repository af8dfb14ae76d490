"""The page in a real browser, with clicks and keys; after every test: no complaint, and nothing asked for but the file."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from inspected import on_kubernetes, searched, wide
from test_page import HOSTILE, renamed

from flowsched.inspector.account import Account
from flowsched.inspector.page import render_page
from flowsched.record_file import load_record
from requirements_on_machine import needs

sync_api = pytest.importorskip("playwright.sync_api")
expect = sync_api.expect
Page = Any
"""``playwright.sync_api.Page``."""
Open = Callable[[str], Page]


def later(record: dict[str, Any], number: int, now_s: float) -> dict[str, Any]:
    return {**copy.deepcopy(record), "round": number, "now_s": now_s}


def run_of_three() -> list[Account]:
    rounds = (searched(), later(searched("makespan"), 4, 60.0), later(searched(), 5, 90.0))
    return [Account(record, f"run/flow-{i:04}.npz") for i, record in enumerate(rounds)]


PAGES: dict[str, Callable[[], str]] = {
    "run": lambda: render_page(run_of_three()),
    "wide": lambda: render_page([Account(wide(machines=90, classes=6, each=20), "wide.npz")]),
    "two": lambda: render_page([Account(searched(), "a.json")], [Account(searched("makespan"), "b.json")]),
    "two wide": lambda: render_page(
        [Account(wide(machines=90, classes=6, each=20), "a.npz")],
        [Account(wide(machines=90, classes=6, each=24), "b.npz")],
    ),
    "kubernetes": lambda: render_page([Account(on_kubernetes(), "live.npz")]),
    "hostile": lambda: render_page([Account(renamed(searched(), "ferret", HOSTILE), "a.json")]),
    "nothing": lambda: render_page([Account({**searched(), "parts": []}, "a.json")]),
    "baseline": lambda: render_page([Account(without_networks(), "fcfs.json")]),
}


def without_networks() -> dict[str, Any]:
    record = copy.deepcopy(searched())
    record["parts"][0] |= {"first_network": None, "last_network": None, "certificate": None}
    return record


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    path = needs("chromium", "to open the inspector's page in a browser")
    with sync_api.sync_playwright() as playwright:
        running = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield running
        running.close()


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    folder = tmp_path_factory.mktemp("pages")

    def file(name: str) -> Path:
        path = folder / f"{name}.html"
        if not path.exists():
            path.write_text(PAGES[name](), encoding="utf-8")
        return path

    return file


@pytest.fixture
def visit(browser: Any, files: Callable[[str], Path]) -> Iterator[Open]:
    complaints: list[str] = []
    asked: list[str] = []
    opened: list[str] = []
    context = browser.new_context(viewport={"width": 1400, "height": 900})

    def go(name: str) -> Page:
        page = context.new_page()
        page.set_default_timeout(5000)
        page.on("console", lambda message: complaints.append(f"{message.type}: {message.text}"))
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("request", lambda request: asked.append(request.url))
        opened.append(files(name).as_uri())
        page.goto(opened[-1])
        page.wait_for_selector("html[data-ready]")
        return page

    yield go
    context.close()
    assert complaints == []
    assert asked == opened


def box(page: Page, name: str) -> Any:
    return page.locator(f'.box[data-id="{name}"]')


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


def test_the_decision_comes_first_with_the_round_in_figures(visit: Open) -> None:
    page = visit("run")
    assert page.locator('[data-view="plan"]').get_attribute("aria-selected") == "true"
    assert "3\ntasks pending" in text(page, "#figures")
    assert {b.get_attribute("data-id") for b in page.locator(".box.task").all()} == {
        "task:blackscholes",
        "task:canneal",
        "task:ferret",
    }
    assert "At most" in text(page, "#panel") or "No plan is cheaper" in text(page, "#panel")
    assert "its own run time" in text(page, "#panel")


def test_pointing_at_an_arc_shows_its_flow_capacity_and_terms(visit: Open) -> None:
    page = visit("run")
    page.click('[data-view="first"]')
    hover(page, line(page, "class:canneal", "group:node-b-4core"))
    shown = text(page, "#tip")
    for words in ("canneal → node-b-4core", "flow", "1 of 1", "cost of a task", "its own run time", "reduced cost"):
        assert words in shown, shown
    page.mouse.move(5, 5)
    assert page.locator("#tip").is_hidden()


def test_a_click_on_an_arc_keeps_its_exact_numbers(visit: Open) -> None:
    page = visit("run")
    page.click('[data-view="first"]')
    network = searched()["parts"][0]["first_network"]
    nodes = list(network["nodes"])
    ends = (nodes.index("class:canneal"), nodes.index("tier:node-b-4core/1000m"))
    (arc,) = (
        k for k, e in enumerate(zip(network["tails"], network["heads"], strict=True)) if tuple(map(int, e)) == ends
    )
    hover(page, line(page, "class:canneal", "group:node-b-4core"))
    page.mouse.down()
    page.mouse.up()
    assert f"{int(network['unit_costs'][arc]):,}" in text(page, "#panel")


def test_arcs_without_flow_are_drawn_on_demand(visit: Open) -> None:
    page = visit("run")
    page.click('[data-view="first"]')
    assert page.locator(".network .line.zero").count() == 0
    page.click("#zero")
    assert page.locator(".network .line.zero").count() > 3
    page.keyboard.press("z")
    assert page.locator(".network .line.zero").count() == 0
    box(page, "class:ferret").click()
    assert page.locator(".network .line.zero").count() == page.locator(".network .line.zero.lit").count() > 0


def test_colours_follow_the_switch(visit: Open) -> None:
    page = visit("run")
    page.click('[data-view="first"]')
    assert page.locator(".network .line.base").count() > 0
    page.select_option("#mode", "cost")
    assert page.locator('.network [class*="cost"].line').count() > 0
    page.select_option("#mode", "price")
    assert page.locator(".network .line.base").count() == 0
    assert "price" in text(page, "#legend")


def test_search_finds_a_task_and_follows_its_path(visit: Open) -> None:
    page = visit("wide")
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
    page = visit("wide")
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
    box(page, "task:ferret").click()
    panel = text(page, "#panel")
    assert "Waits for" in panel and "Why" in panel and "ferret waits for" in panel
    assert "Other places" in panel
    assert page.locator(".network .line.zero.lit").count() >= 1
    page.locator("#panel section", has_text="Other places").locator("button").first.click()
    assert "Change of the total" in text(page, "#panel")


def test_groups_without_flow_are_one_box_until_asked_for(visit: Open) -> None:
    page = visit("wide")
    drawn = page.locator(".box.group").count()
    assert 0 < drawn <= 40
    bundle = page.locator(".box.bundle").first
    name = bundle.get_attribute("data-id")
    assert name is not None
    bundle.click()
    assert page.locator(".box").count() > drawn


def test_a_group_unfolds_to_its_tiers_and_machines_and_folds_again(visit: Open) -> None:
    page = visit("wide")
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
    box(page, name).locator(".knob").click()
    assert page.locator(".box.tier").count() == 0


def test_a_class_unfolds_to_its_tasks(visit: Open) -> None:
    page = visit("wide")
    box(page, "class:class-0").locator(".knob").click()
    assert page.locator(".box.chip").count() == 20
    box(page, "task:shop/web-0-3").click()
    assert text(page, "#panel h2") == "shop/web-0-3"


def test_tables_sort_and_filter(visit: Open) -> None:
    page = visit("wide")
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
    box(page, "task:ferret").click()
    assert "Waits for" in text(page, "#panel .verdict")
    page.click("#next")
    expect(page.locator("#panel .verdict").first).to_contain_text("Starts on")


def test_two_policies_side_by_side_show_what_changed(visit: Open) -> None:
    page = visit("two")
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


def test_wide_rounds_side_by_side_mark_lines_whose_flow_differs(visit: Open) -> None:
    page = visit("two wide")
    assert page.locator(".network .line.changed").count() > 0
    page.locator("#panel .list button.link").first.click()
    assert page.locator("#panel .side").count() == 2


def test_the_page_can_be_walked_with_keys_alone(visit: Open) -> None:
    page = visit("wide")
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
    page = visit("wide")
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


@pytest.mark.parametrize("name", ["run", "wide", "two", "two wide", "kubernetes"])
def test_boxes_keep_apart_and_their_words_stay_inside(visit: Open, name: str) -> None:
    page = visit(name)
    assert page.evaluate(FAULTS) == []
    if "wide" in name:
        page.locator(".box.group .knob").first.click()
        page.locator(".box.class .knob").first.click()
        assert page.evaluate(FAULTS) == []


def test_parts_of_a_round_on_kubernetes_are_one_choice_away(visit: Open) -> None:
    page = visit("kubernetes")
    assert page.locator("#part option").count() == 2
    expect(page.locator(".box.task", has_text="shop/ferret-pod")).to_have_count(1)
    page.select_option("#part", "1")
    page.wait_for_selector(".box.class")
    search(page, "shop/huge-1")
    assert "0/24 nodes are available" in text(page, "#panel")


def test_names_that_look_like_markup_are_names(visit: Open) -> None:
    page = visit("hostile")
    assert page.locator("img").count() == 0
    page.locator(".box.task", has_text="</").click()
    assert text(page, "#panel h2") == HOSTILE
    search(page, "<img")
    assert text(page, "#panel h2") == HOSTILE
    for view in ("first", "last", "tables"):
        page.click(f'[data-view="{view}"]')
    assert page.locator("img").count() == 0


def test_rounds_with_nothing_to_draw_say_so(visit: Open) -> None:
    assert "nothing to solve" in text(visit("nothing"), "#stages")
    page = visit("baseline")
    assert page.locator(".box.task").count() == 3
    page.click('[data-view="tables"]')
    assert page.locator("#tables tbody tr").count() == 2


def test_on_paper_the_whole_drawing_is_there(visit: Open) -> None:
    page = visit("wide")
    page.emulate_media(media="print")
    page.wait_for_selector("svg.network[viewBox]")
    assert page.locator(".controls").is_hidden()
    page.emulate_media(media="screen")
    page.wait_for_selector("svg.network:not([viewBox])")


def test_without_colour_the_kinds_of_lines_differ(visit: Open) -> None:
    page = visit("run")
    page.click('[data-view="first"]')
    page.click("#zero")

    def dashes(selector: str) -> str:
        found = page.locator(f".network {selector} .stroke").first
        return str(found.evaluate("path => getComputedStyle(path).strokeDasharray"))

    assert dashes(".line.flow") == "none"
    assert dashes(".line.zero") != "none"
    page.click('[data-view="plan"]')
    assert dashes(".line.later") not in ("none", dashes(".line.zero"))


def test_a_record_of_version_1_can_be_walked_through(browser: Any, tmp_path: Path) -> None:
    old = Path(__file__).parents[1] / "k8s" / "round_record_v1.json"
    page = browser.new_page()
    page.set_default_timeout(5000)
    complaints: list[str] = []
    page.on("console", lambda message: complaints.append(message.text))
    page.on("pageerror", lambda error: complaints.append(str(error)))
    path = tmp_path / "old.html"
    path.write_text(render_page([Account(load_record(old), "old.json")]), encoding="utf-8")
    page.goto(path.as_uri())
    page.wait_for_selector("html[data-ready]")
    for part in range(page.locator("#part option").count()):
        page.select_option("#part", str(part))
        expect(page.locator("#part")).to_have_value(str(part))
        for view in page.locator("#views button").evaluate_all("all => all.map((one) => one.dataset.view)"):
            page.click(f'[data-view="{view}"]')
            for name in page.locator(".network .box").evaluate_all("all => all.map((one) => one.dataset.id)"):
                search(page, name.partition(":")[2])
                page.keyboard.press("Escape")
    page.close()
    assert complaints == []
