"""The inspector's page: time to write it, its size, and how long a browser takes to open it and to unfold a group.

Opening is from the address to the finished drawing, in headless Chromium with nothing cached, by Playwright.

    python -m benchmarks.inspector_page
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import numpy as np

from benchmarks.bulk_workload import MIB, Workload, cluster, many_classes
from benchmarks.machine import describe_machine
from flowsched.cluster.settings import Settings
from flowsched.cluster.task_class import TaskClass
from flowsched.inspector.page.page import render_page
from flowsched.inspector.record_view import RecordView
from flowsched.inspector.source import open_records
from flowsched.records.record import record_head
from flowsched.round.linear.bulk_round import decide
from flowsched.round.linear.places import Places
from flowsched.solvers import make_solver
from flowsched_models.text_table import text_table

RESULTS = Path(__file__).parent / "results"
BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
KINDS = (
    ("shop/web", 900, 500, 0.6, 0.02, ()),
    ("shop/checkout", 240, 1000, 0.9, 0.04, ()),
    ("search/shards", 320, 4000, 0.8, 0.10, (8000, 16000)),
    ("search/query", 600, 1000, 1.1, 0.03, ()),
    ("batch/etl", 480, 2000, 0.3, 0.20, ()),
    ("batch/report", 160, 500, 0.2, 0.02, ()),
    ("ml/features", 220, 2000, 0.5, 0.12, (16000,)),
    ("ml/train", 40, 8000, 0.9, 0.30, (16000,)),
    ("media/encode", 300, 4000, 0.4, 0.15, ()),
    ("data/kafka", 60, 2000, 1.0, 0.05, (8000, 16000)),
    ("data/cassandra", 36, 8000, 1.1, 0.12, (16000,)),
    ("ops/backup", 620, 250, 0.1, 0.01, ()),
    ("ops/audit", 24, 24000, 0.1, 0.01, ()),
)
"""Classes with their tasks, milli-CPU, sensitivity, pressure, and the sizes of machines that they may use."""


@click.command()
@click.option("--repeats", default=5, show_default=True, help="Times each page is opened; the median counts.")
@click.option("--json", "as_json", is_flag=True)
@click.option("--keep/--no-keep", default=True, help="Keep the result under benchmarks/results.")
def main(repeats: int, as_json: bool, keep: bool) -> None:
    """Measure and print a table."""
    rows = []
    for name, make in SCENARIOS.items():
        with tempfile.TemporaryDirectory() as folder:
            rows.append(measure(name, make(Path(folder)), Path(folder), repeats))
    outcome = {"rows": rows, "machine": describe_machine()}
    text = table(rows)
    if keep:
        RESULTS.mkdir(exist_ok=True)
        (RESULTS / "inspector_page.json").write_text(json.dumps(outcome, indent=1) + "\n", encoding="utf-8")
        (RESULTS / "inspector_page.txt").write_text(text + "\n", encoding="utf-8")
    click.echo(json.dumps(outcome) if as_json else text)


def measure(name: str, records: list[RecordView], folder: Path, repeats: int) -> dict[str, Any]:
    """One page: written and opened several times."""
    writing = []
    page = ""
    for _ in range(repeats):
        fresh = [RecordView(a.plain, a.source) for a in records]
        began = time.perf_counter()
        page = render_page(fresh)
        writing.append((time.perf_counter() - began) * 1e3)
    path = folder / "page.html"
    path.write_text(page, encoding="utf-8")
    data = sum(len(blob) for blob in re.findall(r'id="round-\d+">([^<]*)<', page))
    opening, unfolding = open_times(path, repeats)
    part = records[0].parts[0]
    return {
        "scenario": name,
        "rounds": len(records),
        "machines": len(part.machines),
        "tasks": len(part.tasks),
        "arcs": part.first.arc_count,
        "render_ms": float(np.median(writing)),
        "page_bytes": len(page.encode()),
        "data_bytes": data,
        "open_ms": float(np.median(opening)),
        "open_max_ms": max(opening),
        "unfold_ms": float(np.median(unfolding)) if unfolding else None,
    }


def open_times(path: Path, repeats: int) -> tuple[list[float], list[float]]:
    """Milliseconds until the drawing stands, and until a group is unfolded, where there is one."""
    from playwright.sync_api import sync_playwright

    opening, unfolding = [], []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=find_browser(), args=["--no-sandbox"])
        for _ in range(repeats):
            context = browser.new_context(viewport={"width": 1440, "height": 900})
            page = context.new_page()
            began = time.perf_counter()
            page.goto(path.as_uri())
            page.wait_for_selector("html[data-ready]", state="attached")
            opening.append((time.perf_counter() - began) * 1e3)
            knob = page.locator(".box.group .knob").first
            if knob.count():
                began = time.perf_counter()
                knob.click()
                page.wait_for_selector(".box.tier")
                unfolding.append((time.perf_counter() - began) * 1e3)
            context.close()
        browser.close()
    return opening, unfolding


def find_browser() -> str:
    """The system's Chromium; a one-line message where there is none."""
    found = next(filter(None, map(shutil.which, BROWSERS)), None)
    if found is None:
        raise click.ClickException("there is no chromium to open pages in")
    return found


def demo(folder: Path) -> list[RecordView]:
    """The rounds of the demo's run under the policy flow."""
    flowsched = Path(sys.executable).with_name("flowsched")
    records = folder / "records"
    arguments = ["simulate", "parsec-memcached-2024", "--policy", "flow", "--records", records, "--out", folder / "out"]
    subprocess.run([flowsched, *arguments], check=True, capture_output=True)
    return open_records(records)[0]


def bulk_record(work: Workload, source: str = "round-0007.npz") -> RecordView:
    """The record of one bulk round."""
    outcome = decide(work.cluster(), solver=make_solver("ortools"), keep_record=True)
    if outcome.record is None:
        raise RuntimeError("the round kept no record")
    head = record_head(7, 1000.0, "flow", "ortools", Settings())
    return RecordView({**head, "parts": outcome.record(0)}, source)


def data_centre(machines: int, busy: float = 0.55) -> Workload:
    """Machines of three sizes, more than half of their cores busy, and what a company might start on a Monday morning."""
    sizes = np.array([(4000, 8000, 16000)[i % 3] for i in range(machines)])
    return Workload(
        cluster(machines, busy),
        [
            TaskClass(name, cpu, (("memory", cpu * MIB), ("pods", 1)), sensitivity, pressure)
            for name, _, cpu, sensitivity, pressure, _ in KINDS
        ],
        [Places(np.isin(sizes, allowed) if allowed else None) for *_, allowed in KINDS],
        [[f"{name}-{i}" for i in range(tasks)] for name, tasks, *_ in KINDS],
    )


SCENARIOS: dict[str, Callable[[Path], list[RecordView]]] = {
    "demo, first round": lambda folder: demo(folder)[:1],
    "demo, all rounds": demo,
    "60 machines": lambda _: [bulk_record(many_classes(60, 120, 6))],
    "12,500 machines, 13 kinds": lambda _: [bulk_record(data_centre(12500))],
    "12,500 machines, 20 classes": lambda _: [bulk_record(many_classes(12500, 4000, 20))],
    "12,500 machines, 15,000 tasks": lambda _: [bulk_record(many_classes(12500, 15000, 60))],
}


def table(rows: list[dict[str, Any]]) -> str:
    """Times in ms, medians; sizes in kB, without and with data."""
    heads = [
        "scenario",
        "rounds",
        "machines",
        "tasks",
        "arcs",
        "render ms",
        "page kB",
        "data kB",
        "open ms",
        "max",
        "unfold ms",
    ]
    lines = [heads]
    for row in rows:
        lines.append(
            [
                row["scenario"],
                *(f"{row[k]:,}" for k in ("rounds", "machines", "tasks", "arcs")),
                f"{row['render_ms']:,.0f}",
                f"{(row['page_bytes'] - row['data_bytes']) / 1e3:,.0f}",
                f"{row['data_bytes'] / 1e3:,.0f}",
                f"{row['open_ms']:,.0f}",
                f"{row['open_max_ms']:,.0f}",
                "-" if row["unfold_ms"] is None else f"{row['unfold_ms']:,.0f}",
            ]
        )
    return "\n".join(text_table(lines, indent=""))


if __name__ == "__main__":
    main()
