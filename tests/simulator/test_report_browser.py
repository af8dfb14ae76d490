"""The report in a real browser: its script runs without a complaint, and nothing is fetched."""

from __future__ import annotations

import re
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from flowsched_simulator.report import render_report
from requirements_on_machine import needs

POLICIES = ("flow", "fcfs", "best-fit", "lpt")
FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync", "--enable-logging=stderr",
    "--host-resolver-rules=MAP * ~NOTFOUND", "--window-size=1400,1000", "--dump-dom",
)  # fmt: skip
WITNESS = """
<script>
addEventListener("load", () => {
  const fetched = performance.getEntriesByType("resource").map((entry) => entry.name);
  document.documentElement.dataset.fetched = fetched.join(" ");
});
</script>
"""
"""Writes down what the document asked for; the browser's own errands are not among it."""


@dataclass(frozen=True)
class Visit:
    """What a browser made of a page."""

    dom: str
    console: tuple[str, ...]
    screenshot: bytes

    @property
    def fetched(self) -> str:
        """Addresses that the page asked for."""
        (addresses,) = re.findall(r'<html[^>]* data-fetched="([^"]*)"', self.dom)
        return str(addresses)


def visit(page: str, folder: Path) -> Visit:
    """Open a page and wait until its scripts have run."""
    browser = needs("chromium", "to open the report in a browser")
    file, picture = folder / "report.html", folder / "report.png"
    file.write_text(page + WITNESS, encoding="utf-8")
    done = subprocess.run(
        [browser, *FLAGS, f"--user-data-dir={folder / 'profile'}", f"--screenshot={picture}", file.as_uri()],
        capture_output=True,
        timeout=120,
        check=False,
    )
    log = done.stderr.decode(errors="replace")
    assert done.returncode == 0, log
    console = tuple(line for line in log.splitlines() if ":CONSOLE" in line)
    return Visit(done.stdout.decode(), console, picture.read_bytes())


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
def report(tmp_path_factory: pytest.TempPathFactory) -> Visit:
    return visit(render_report(sample()), tmp_path_factory.mktemp("report"))


def test_the_script_runs_without_a_complaint(report: Visit) -> None:
    assert report.console == ()
    # The script has gone over the whole page: each heading of the comparison is a button, and its own details have
    # taken the place of the drawings' titles.
    headings = re.findall(r"<th [^>]*data-column=[^>]*>(.*?)</th>", report.dom, flags=re.DOTALL)
    assert len(headings) > 5
    assert all(heading.startswith("<button") for heading in headings)
    assert re.findall(r"<title[ >]", report.dom) == ["<title>"]


def test_the_table_and_the_figures_are_there(report: Visit) -> None:
    (table,) = re.findall(r'<table class="comparison".*?</table>', report.dom, flags=re.DOTALL)
    assert re.findall(r'<th scope="row"[^>]*>([\w-]+)', table) == list(POLICIES)
    drawings = re.findall(r'<svg [^>]*class="(\w+)"', report.dom)
    assert drawings == ["gantt", "latency"] * (len(POLICIES) + 1)
    assert report.dom.count('<table class="jobs"') == len(POLICIES) + 1
    assert report.screenshot.startswith(b"\x89PNG")
    assert len(report.screenshot) > 20_000, "a page with drawings is larger than an empty one"


def test_nothing_is_fetched(report: Visit) -> None:
    assert report.fetched == ""
    assert not re.search(r"https?://", report.dom.replace('xmlns="http://www.w3.org/2000/svg"', ""))


def test_a_broken_page_would_be_noticed(tmp_path: Path) -> None:
    broken = visit('<!doctype html><img src="http://nowhere.invalid/a.png"><script>missing();</script>', tmp_path)
    assert len(broken.console) == 1
    assert "missing is not defined" in broken.console[0]
    assert broken.fetched == "http://nowhere.invalid/a.png"


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 1280])
def test_the_page_is_as_wide_as_the_screen(tmp_path: Path, width: int, scheme: str) -> None:
    """Nothing to pan into: what is wider scrolls by itself."""
    sync_api = pytest.importorskip("playwright.sync_api")
    path = tmp_path / "report.html"
    path.write_text(render_report(sample()), encoding="utf-8")
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=needs("chromium", "to open the report in a browser"), args=["--no-sandbox"]
        )
        page = browser.new_page(viewport={"width": width, "height": 844}, color_scheme=scheme)
        page.goto(path.as_uri())
        assert page.evaluate("document.documentElement.scrollWidth") == width
        caption = page.locator("table.comparison caption").bounding_box()
        assert caption["x"] + caption["width"] <= width
        browser.close()
