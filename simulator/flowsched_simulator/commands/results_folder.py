"""Where ``flowsched simulate`` puts its results, and what it prints of them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from flowsched_models.output import make_folder, write_whole


def tell_results(
    outcome: dict[str, Any],
    out: Path | None,
    page: Callable[[dict[str, Any]], str],
    table: Callable[[dict[str, Any]], str] | None,
    indent: int | None = 1,
) -> None:
    """Print the table, or JSON; then write ``report.html`` and ``result.json`` if there is a folder, and say where.

    Raises :class:`InputError` if writing fails: what was computed is printed by then.
    """
    click.echo(json.dumps(outcome, allow_nan=False) if table is None else table(outcome))
    if out is not None:
        text, report = page(outcome), out / "report.html"
        make_folder(out)
        write_whole(report, text)
        write_whole(out / "result.json", json.dumps(outcome, indent=indent) + "\n")
        click.echo(f"report: {report}", err=True)
