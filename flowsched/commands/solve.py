"""``flowsched solve``: one round from a file."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from pathlib import Path

import click

from flowsched.decision import Decisions
from flowsched.record_file import write_record
from flowsched.round import solve as solve_round
from flowsched.settings import Settings
from flowsched.settings_form import apply_settings
from flowsched.snapshot import MILLI
from flowsched.snapshot_file import load_snapshot
from flowsched.solvers import SOLVERS
from flowsched_models.output import make_folder


@click.command(
    epilog="Example: flowsched solve docs/examples/snapshot.yaml --objective makespan --record out/round.json",
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.argument("snapshot", type=click.Path(path_type=Path), metavar="SNAPSHOT")
@click.option("--objective", type=click.Choice(["completion", "makespan"]), help="One goal for each task, or for all.")
@click.option("--solver", type=click.Choice(sorted(SOLVERS)), default="ortools", show_default=True)
@click.option("--set", "assignments", multiple=True, metavar="KEY=VALUE", help="A setting; repeat for more.")
@click.option("--record", type=click.Path(path_type=Path, dir_okay=False), help="File for the round's record.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead of text.")
def solve(
    snapshot: Path,
    objective: str | None,
    solver: str,
    assignments: tuple[str, ...],
    record: Path | None,
    as_json: bool,
) -> None:
    """Run one round on SNAPSHOT (a file) and print placements, postponements and the certificate."""
    settings = apply_settings(Settings(), assignments)
    if objective is not None:
        settings = replace(settings, objective=objective)
    loaded = load_snapshot(snapshot)
    if record is not None:
        make_folder(record.parent)
    decisions = solve_round(loaded, settings=settings, solver=solver)
    if record is not None and decisions.record is not None:
        write_record(decisions.record, record)
    click.echo(json.dumps(_plain(decisions), allow_nan=False) if as_json else render_decisions(decisions))
    if record is not None:
        click.echo(f"record: {record}", err=True)


def render_decisions(decisions: Decisions) -> str:
    """The decisions as text for a terminal."""
    lines = []
    for p in decisions.placements:
        cores = f"core{'' if len(p.cores) == 1 else 's'} {','.join(map(str, p.cores))}"
        threads = f"{p.threads} thread{'' if p.threads == 1 else 's'}"
        lines.append(
            f"place     {p.task} on {p.machine}: width {p.width_milli / MILLI:g}, {threads} on {cores}; "
            f"cost {p.cost:.3f} ({_terms(p.terms)})"
        )
    for w in decisions.postponements:
        lines.append(f"postpone  {w.task}: {w.reason}; cost {w.cost:.3f} ({_terms(w.terms)})")
    for r in decisions.reservations:
        lines.append(f"reserve   {r.machine} for {r.task}, free at {r.start_s:.1f} s")
    if decisions.certificate is None:
        lines.append("nothing is pending")
    else:
        c = decisions.certificate
        lines.append(
            f"certificate ({c.method}): cost {c.primal:.4f}, lower bound {c.bound:.4f}, gap {c.gap_absolute:.4f} "
            f"({100 * c.gap_relative:.2f} % of what scheduling can win or lose)"
        )
    return "\n".join(lines)


def _terms(terms: object) -> str:
    assert isinstance(terms, dict)
    return ", ".join(f"{name.replace('_', ' ')} {value:.3f}" for name, value in terms.items() if abs(value) >= 5e-4)


def _plain(decisions: Decisions) -> dict[str, object]:
    certificate = decisions.certificate
    return {
        "version": "flowsched/v1",
        "placements": [asdict(p) for p in decisions.placements],
        "postponements": [asdict(p) for p in decisions.postponements],
        "reservations": [asdict(r) for r in decisions.reservations],
        "certificate": None
        if certificate is None
        else {
            "method": certificate.method,
            "primal": certificate.primal,
            "bound": certificate.bound,
            "gap_absolute": certificate.gap_absolute,
            "gap_relative": certificate.gap_relative,
        },
        "timings": {f"{stage.replace(' ', '_')}_ms": ms for stage, ms in decisions.timings_ms.items()},
    }
