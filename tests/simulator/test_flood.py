"""The example of a wide job beside a flood of narrow ones waits as long as its page says."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from flowsched.cluster.settings import Settings
from flowsched.round.scheduler import FlowScheduler
from flowsched.solvers import make_solver
from flowsched_models.runtime import HostFactory
from flowsched_simulator import load_scenario
from flowsched_simulator.simulation import Options, Simulation

DOCS = Path(__file__).parents[2] / "docs"


@pytest.mark.parametrize(
    ("row", "changes", "until_s"),
    [
        ("a planned start", {}, 200.0),
        ("the reservation alone", {"slots": 1}, 700.0),
        ("neither", {"slots": 1, "due_runs": 1e6}, 1600.0),
    ],
)
def test_the_wide_job_waits_as_long_as_the_page_says(row: str, changes: dict[str, Any], until_s: float) -> None:
    scenario = load_scenario(DOCS / "examples" / "flood.yaml")
    hosts = HostFactory(scenario.catalogue)
    scheduler = FlowScheduler(make_solver("ortools"), Settings(exact_limit=0, **changes), hosts=hosts)
    run = Simulation(scenario, scheduler, Options(max_time_s=until_s), hosts=hosts).run()

    wide = next(job for job in run.jobs if job.job == "wide")
    page = (DOCS / "how-it-works.md").read_text(encoding="utf-8")
    told = re.search(rf"^\| {row}.*\| ([\d,]+) s", page, re.MULTILINE)
    assert told is not None
    assert wide.start_s is not None
    assert round(wide.start_s - wide.submit_s) == int(told[1].replace(",", ""))
    if row == "neither":
        # It starts when the flood is over.
        assert wide.start_s > max(job.submit_s for job in run.jobs)
