"""The report of a large simulation: time to write it, its size, and how long a browser takes to draw it and to zoom.

The runs are made up (jobs queue for cores of a machine drawn at random), since only their size matters here. Opening is from
the address to the first drawing; a zoom step is from the key to the frame after the one that shows it. Both in headless
Chromium with nothing cached, by Playwright.

    python -m benchmarks.report_page
"""

from __future__ import annotations

import json
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
import numpy as np

from benchmarks.inspector_page import RESULTS, find_browser
from benchmarks.machine import describe_machine, measured_on
from flowsched_simulator.report.page import render_report
from flowsched_simulator.run import JobRun, LatencyWindow, RoundSummary, Run

CORES = 8
POLICIES = ("flow", "fcfs")
SERVICES = 20
KEYS = ("+", "+", "ArrowRight", "+", "-", "ArrowLeft", "+", "-", "-", "0")
"""One zoom or move after the other."""
TO_NEXT_FRAME = """async (key) => {
  const host = document.querySelector(".schedule");
  const began = performance.now();
  host.dispatchEvent(new KeyboardEvent("keydown", { key, bubbles: true }));
  await new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)));
  return performance.now() - began;
}"""


@dataclass(frozen=True)
class Opened:
    """Milliseconds in a browser."""

    opening: tuple[float, ...]
    zooming: tuple[float, ...]
    zooming_unfolded: tuple[float, ...]
    filtering: tuple[float, ...]


@click.command()
@click.option("--machines", default=1000, show_default=True)
@click.option("--jobs", default=10_000, show_default=True)
@click.option("--repeats", default=5, show_default=True, help="Times the page is opened; the median counts.")
@click.option("--out", type=click.Path(path_type=Path), help="Keep the page here, to look at it.")
@click.option("--keep/--no-keep", default=True, help="Keep the result under benchmarks/results.")
def main(machines: int, jobs: int, repeats: int, out: Path | None, keep: bool) -> None:
    """Measure and print a table."""
    result = made_up_result(machines, jobs)
    began = time.process_time()
    page = render_report(result)
    render_ms = (time.process_time() - began) * 1e3
    with tempfile.TemporaryDirectory() as folder:
        path = out or Path(folder) / "report.html"
        path.write_text(page, encoding="utf-8")
        opened = open_page(path, repeats)
    row: dict[str, Any] = {
        "machines": machines,
        "jobs": jobs,
        "policies": len(POLICIES),
        "render_ms": render_ms,
        "page_bytes": len(page.encode()),
        "open_ms": float(np.median(opened.opening)),
        "open_max_ms": max(opened.opening),
        "zoom_ms": float(np.median(opened.zooming)),
        "zoom_max_ms": max(opened.zooming),
        "zoom_unfolded_ms": float(np.median(opened.zooming_unfolded)),
        "zoom_unfolded_max_ms": max(opened.zooming_unfolded),
        "filter_ms": float(np.median(opened.filtering)),
        "filter_max_ms": max(opened.filtering),
    }
    machine = describe_machine()
    text = f"{table(row)}\n\n{measured_on(machine)}"
    if keep:
        RESULTS.mkdir(exist_ok=True)
        kept = json.dumps({"row": row, "machine": machine}, indent=1)
        (RESULTS / "report_page.json").write_text(kept + "\n", encoding="utf-8")
        (RESULTS / "report_page.txt").write_text(text + "\n", encoding="utf-8")
    click.echo(text)


def made_up_result(machines: int, jobs: int) -> dict[str, Any]:
    """What ``simulate --json`` would print of runs of this size."""
    runs = [made_up_run(policy, seed, machines, jobs) for seed, policy in enumerate(POLICIES)]
    names = [name_of(machine) for machine in range(machines)]
    return {
        "scenario": f"{jobs} jobs on {machines} machines",
        "description": "Made up, to measure the page.",
        "objective": "completion",
        "cluster": {
            "machines": [{"name": name, "type": "e2-standard-8", "vcpus": CORES} for name in names],
            "services": [
                {
                    "name": f"memcached-{n}",
                    "machine": names[n],
                    "cores": [0],
                    "threads": 1,
                    "qps": 3e4,
                    "slo_us": 1000.0,
                }
                for n in range(min(SERVICES, machines))
            ],
        },
        "table": [run.summary() for run in runs],
        "runs": [run.to_json() for run in runs],
    }


def name_of(machine: int) -> str:
    """A machine as data centres name them."""
    return f"rack-{machine // 40:02}-node-{machine % 40:02}"


def made_up_run(policy: str, seed: int, machines: int, jobs: int) -> Run:
    """Poisson arrivals at 80 % of the cores; each job waits for its cores on a machine drawn at random."""
    draw = np.random.default_rng(seed)
    lasting = np.exp(draw.normal(5.0, 0.8, jobs))
    wide = draw.choice([1, 1, 2, 2, 4], jobs)
    gap = float((lasting * wide).mean()) / (0.8 * machines * (CORES - 1))
    arrivals = np.cumsum(draw.exponential(gap, jobs))
    free = np.zeros((machines, CORES))
    made = []
    for n in range(jobs):
        machine, width = int(draw.integers(machines)), int(wide[n])
        first = 1 + int(draw.integers(CORES - width))
        cores = tuple(range(first, first + width))
        start_s = max(float(arrivals[n]), float(free[machine, list(cores)].max()))
        end_s = start_s + float(lasting[n])
        # Every fourth leaves its cores to the next one early, so that jobs share them.
        free[machine, list(cores)] = start_s + (0.5 if n % 4 == 0 else 1.0) * float(lasting[n])
        profile = ("ferret", "dedup", "canneal", "vips", "radix", "freqmine")[n % 6]
        made.append(
            JobRun(
                f"{profile}-{n}", profile, name_of(machine), cores, width * 1000, width, float(arrivals[n]), start_s,
                start_s, end_s, float(lasting[n]),
            )
        )  # fmt: skip
    last = max(job.end_s or 0.0 for job in made)
    windows = tuple(
        LatencyWindow(f"memcached-{n}", float(at), float(at) + 60.0, 3e4, float(draw.uniform(300, 1100)), 1000.0, 6)
        for n in range(min(SERVICES, machines))
        for at in np.arange(0.0, last, 60.0)
    )
    rounds = tuple(RoundSummary(job.submit_s, 1, 1, 5.0, None) for job in made)
    return Run("made-up", policy, "", 0, tuple(made), windows, rounds)


def open_page(path: Path, repeats: int) -> Opened:
    """Open the page several times; zoom, unfold all machines and zoom again, and filter."""
    from playwright.sync_api import sync_playwright

    found: tuple[list[float], ...] = ([], [], [], [])
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=find_browser(), args=["--no-sandbox"])
        for _ in range(repeats):
            context = browser.new_context(viewport={"width": 1440, "height": 900})
            page = context.new_page()
            began = time.perf_counter()
            page.goto(path.as_uri())
            page.wait_for_selector("html[data-ready]", state="attached")
            found[0].append((time.perf_counter() - began) * 1e3)
            found[1].extend(page.evaluate(TO_NEXT_FRAME, key) for key in KEYS)
            page.click("#fold")
            found[2].extend(page.evaluate(TO_NEXT_FRAME, key) for key in KEYS)
            for text in ("ferret-1", "ferret-12"):
                began = time.perf_counter()
                page.fill("#filter", text)
                page.evaluate(TO_NEXT_FRAME, "")
                found[3].append((time.perf_counter() - began) * 1e3)
            context.close()
        browser.close()
    return Opened(*(tuple(times) for times in found))


def table(row: dict[str, Any]) -> str:
    """Medians and the longest, in ms."""
    lines = [
        f"{row['jobs']:,} jobs on {row['machines']:,} machines under {row['policies']} policies",
        f"page of {row['page_bytes'] / 1e6:.1f} MB, written in {row['render_ms']:,.0f} ms of CPU time",
        "",
        f"{'':34}{'median ms':>10}{'longest':>9}",
    ]
    for name, key in (
        ("first drawing", "open"),
        ("zoom step", "zoom"),
        ("zoom step, all machines unfolded", "zoom_unfolded"),
        ("filter by name", "filter"),
    ):
        lines.append(f"{name:34}{row[f'{key}_ms']:>10,.0f}{row[f'{key}_max_ms']:>9,.0f}")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
