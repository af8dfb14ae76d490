"""Part `demo` of `benchmarks.engine`: bundled scenarios, their variations and `parsec-poisson`."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import click

from benchmarks.engine_text import aligned, bar, bar_lines, number, ratio, spread
from benchmarks.engine_trees import Tree
from benchmarks.engine_workloads import scenario_document, write
from benchmarks.variations import NAMES, variations
from flowsched_simulator import Scenario, load_scenario, load_schedule, replay

POISSON = "parsec-poisson"
PLAN = "group-048"
BUNDLED = "as bundled"
LIMITS = {NAMES[0]: 0.915, NAMES[1]: 0.89}
"""Makespan over that of the replayed published plan."""
POISSON_LIMIT_S = 57.0


def demo_variations() -> Iterator[tuple[str, Scenario]]:
    """The 24 variations: both bundled scenarios as they are, shuffled, and with ten draws of the jobs' times.

    Of the 30 of `benchmarks.policies`, those that are renamed or have two and three copies are left out: a name changes
    nothing, and copies have another published plan.
    """
    return ((what, scenario) for what, scenario in variations() if "renamed" not in what and "copies" not in what)


def measure(quick: bool, old: Path | None) -> Iterator[dict[str, Any]]:
    """One row per scenario."""
    plan_s = replay(load_scenario(NAMES[0]), load_schedule(PLAN)).makespan_s
    worlds = [(POISSON, load_scenario(POISSON)), *variations()]
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        new_tree = stack.enter_context(Tree())
        old_tree = stack.enter_context(Tree(old)) if old is not None else None
        for what, scenario in worlds[1:2] if quick else worlds:
            path = write(scenario_document(scenario), folder)
            row: dict[str, Any] = {
                "what": what,
                "scenario": scenario.name,
                # Other jobs, or several plans' worth of them, have no published plan.
                "plan_s": None if what == POISSON or "times" in what or "copies" in what else plan_s,
                "flow": new_tree.run(path, "flow"),
                "old": None if old_tree is None else old_tree.run(path, "flow"),
            }
            click.echo(f"{what}: makespan {number((row['flow'] or {}).get('makespan_s'))} s", err=True)
            yield row


def bars(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """What the engine has to keep to."""
    found = []
    for row in rows:
        flow = row["flow"]
        if row["what"].endswith(BUNDLED):
            over = ratio(flow["makespan_s"], row["plan_s"])
            found.append(bar(f"{row['scenario']}: makespan over the published plan's", over, LIMITS[row["scenario"]]))
        if row["what"] == POISSON:
            found.append(bar(f"{POISSON}: mean completion, s", flow["mean_completion_s"], POISSON_LIMIT_S))
    found.append(bar("SLO violations, share of windows", max(r["flow"]["slo_violation_ratio"] for r in rows), 0.0))
    return found


def table(rows: Sequence[dict[str, Any]]) -> str:
    """A line for each scenario, then the bars."""
    lines = [["scenario", "flow s", "flow/plan", "old s", "flow/old", "flow mean s", "old mean s", "SLO viol. %"]]
    for row in rows:
        flow, old = row["flow"], row["old"] or {}
        lines.append(
            [
                row["what"],
                number(flow["makespan_s"]),
                number(ratio(flow["makespan_s"], row["plan_s"]), 3),
                number(old.get("makespan_s")),
                number(ratio(flow["makespan_s"], old.get("makespan_s")), 3),
                number(flow["mean_completion_s"]),
                number(old.get("mean_completion_s")),
                number(100.0 * flow["slo_violation_ratio"]),
            ]
        )
    over_old = spread((ratio(r["flow"]["makespan_s"], (r["old"] or {}).get("makespan_s")) for r in rows), 3)
    text = f"makespans; flow/old over all rows, mean [least, most]: {over_old}"
    return "\n\n".join([aligned(lines), text, bar_lines(bars(rows))])
