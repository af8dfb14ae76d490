"""``flowsched simulate`` on a scenario of critical tasks that are isolated from others."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

from flowsched_models.document import Document
from flowsched_models.output import make_folder, write_whole
from flowsched_simulator.isolation import read_isolation_scenario, render_report, render_table, run
from flowsched_simulator.isolation.policies import check_isolation_policies


def simulate_isolation(
    document: Document,
    policies: tuple[str, ...],
    seed: int,
    folder: Callable[[str], Path | None],
    as_json: bool,
    report: Callable[[str], None],
) -> tuple[str, Path | None]:
    """What there is to say, and the report. ``folder``: where results of a scenario go, by its name; None: nowhere.

    Raises :class:`flowsched_models.document.InputError` before anything is written.
    """
    scenario = read_isolation_scenario(document)
    names = check_isolation_policies(policies)
    out = folder(scenario.name)
    if out is not None:
        make_folder(out)
    outcome = run(scenario, names, seed, report)
    if out is not None:
        write_whole(out / "report.html", render_report(outcome))
        write_whole(out / "result.json", json.dumps(outcome, allow_nan=False, indent=1) + "\n")
    text = json.dumps(outcome, allow_nan=False) if as_json else render_table(outcome)
    return text, None if out is None else out / "report.html"
