"""Draws docs/images/inspector-*.png: the inspector's page in headless Chromium, over records that it makes itself.

python docs/screenshots.py
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable, Sequence
from io import BytesIO
from pathlib import Path
from typing import Any

from PIL import Image

HOUSE = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(HOUSE))

from benchmarks.inspector_page import bulk_record, data_centre, demo, find_browser  # noqa: E402
from flowsched import Settings, load_snapshot, solve  # noqa: E402
from flowsched.inspector.page.page import render_page  # noqa: E402
from flowsched.inspector.record_view import RecordView  # noqa: E402

IMAGES = HOUSE / "docs" / "images"
EXAMPLE = HOUSE / "docs" / "examples" / "turns.yaml"
SIZE = {"width": 1280, "height": 800}
Step = Callable[[Any], None]
"""Something to do on a page of Playwright."""


def main() -> None:
    """Make the records, open the pages, keep what they look like."""
    from playwright.sync_api import sync_playwright

    with tempfile.TemporaryDirectory() as name, sync_playwright() as playwright:
        folder = Path(name)
        browser = playwright.chromium.launch(executable_path=find_browser(), args=["--no-sandbox"])
        rounds = demo(folder)
        bulk = bulk_record(*data_centre(12500))
        shots: list[tuple[str, Sequence[RecordView], Sequence[RecordView], Step]] = [
            ("inspector-demo", rounds, (), as_it_opens),
            ("inspector-network", rounds, (), demo_network),
            ("inspector-postponed", rounds, (), postponed),
            ("inspector-large", [bulk], (), as_it_opens),
            ("inspector-large-expanded", [bulk], (), unfold_group),
            ("inspector-policies", [example("completion")], [example("makespan")], as_it_opens),
        ]
        for image, records, against, step in shots:
            path = folder / "page.html"
            path.write_text(render_page(records, against), encoding="utf-8")
            page = browser.new_page(viewport=SIZE)
            page.goto(path.as_uri())
            page.wait_for_selector("html[data-ready]", state="attached")
            step(page)
            page.mouse.move(1, 1)
            target = IMAGES / f"{image}.png"
            keep(page.screenshot(), target)
            page.close()
            print(f"{target.relative_to(HOUSE)}: {target.stat().st_size / 1e3:.0f} kB")
        browser.close()


def keep(picture: bytes, target: Path) -> None:
    """Write a picture with no more than 256 colours: a third of the size, and looks the same."""
    Image.open(BytesIO(picture)).convert("RGB").quantize(
        256, Image.Quantize.MAXCOVERAGE, dither=Image.Dither.NONE
    ).save(target, optimize=True)


def as_it_opens(_: Any) -> None:
    """Nothing but opening the page."""


def demo_network(page: Any) -> None:
    """The first pass of the demo's first round, with arcs that carry nothing."""
    page.click('[data-view="passes"]')
    page.click("#zero")


def postponed(page: Any) -> None:
    """A task that waits on purpose, with its arcs."""
    page.locator(".box.task.waiting").last.click()


def unfold_group(page: Any) -> None:
    """The group that got most, with its tiers and machines."""
    page.locator(".box.group").first.click()
    page.locator(".box.group.chosen .knob").click()


def example(objective: str) -> RecordView:
    """The bundled snapshot, solved."""
    record = solve(load_snapshot(EXAMPLE), settings=Settings(objective=objective)).record
    if record is None:
        raise RuntimeError("the round kept no record")
    return RecordView(record, f"{objective}.json")


if __name__ == "__main__":
    main()
