"""Where ``flowsched simulate`` puts its results."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from flowsched_models.output import make_folder, write_whole


def write_results(out: Path, page: str, outcome: Mapping[str, Any], indent: int | None = 1) -> None:
    """Write ``report.html`` and ``result.json``, and say where the report is. Raises :class:`InputError` if that fails."""
    make_folder(out)
    report = out / "report.html"
    write_whole(report, page)
    write_whole(out / "result.json", json.dumps(outcome, indent=indent) + "\n")
    click.echo(f"report: {report}", err=True)
