"""``flowsched solve``: one round from a file."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, replace
from math import inf
from pathlib import Path
from typing import get_args

import click

from flowsched.cluster.decision import Decisions, Postponement, gap_words
from flowsched.cluster.learning import Learning, with_learning
from flowsched.cluster.settings import Settings
from flowsched.cluster.settings_form import KUBERNETES_SETTINGS, SETTING_NAMES, Readers, apply_settings
from flowsched.cluster.snapshot import MILLI, Snapshot
from flowsched.cluster.start_errors import Interval
from flowsched.commands.solver_options import SOLVER, TIME_LIMIT, TIME_LIMIT_HELP
from flowsched.disaggregation.registry import DISAGGREGATION_POLICIES
from flowsched.pricing.linear.policy import CostModel
from flowsched.records.record import finite_or_none, plain_certificate, plain_timings
from flowsched.records.record_file import write_record
from flowsched.records.snapshot_source import load_snapshot
from flowsched.round.linear import choice
from flowsched.round.linear.network_scheduler import solve_network_round
from flowsched.round.scheduler import solve as solve_round
from flowsched_models.command_line import StrictCommand
from flowsched_models.document import InputError, name_help
from flowsched_models.output import check_file

FLOW = "flow"
SET_HELP = (
    "A setting; of another cost model with its name and a dot, as in coco.bucket=2. Repeat for more; of the same setting "
    "the last counts."
)


@click.command(
    cls=StrictCommand,
    short_help="Run one round on a snapshot and print the decisions.",
    epilog="Example: flowsched solve docs/examples/snapshot.yaml --objective makespan --record out/round.json",
)
@click.argument("snapshot", type=click.Path(path_type=Path), metavar="SNAPSHOT")
@click.option(
    "--policy",
    "policies",
    multiple=True,
    default=(FLOW,),
    show_default=True,
    metavar="NAME",
    help="`flow`, or another cost model of `flowsched policies`.",
)
@click.option(
    "--exact", is_flag=True, help="With a cost model other than flow: the best plan of a small round, by CP-SAT."
)
@click.option("--objective", type=click.Choice(["completion", "makespan"]), help="One goal for each task, or for all.")
@click.option("--solver", type=SOLVER, default="ortools", show_default=True)
@click.option("--time-limit", type=TIME_LIMIT, help=TIME_LIMIT_HELP)
@click.option("--set", "assignments", multiple=True, metavar="KEY=VALUE", help=SET_HELP)
@click.option(
    "--learning",
    type=click.Choice(get_args(Learning)),
    show_default="as the snapshot says",
    help="Whether forecasts use what completions taught, where the snapshot has it; `off`: and no classes of tasks.",
)
@click.option("--record", type=click.Path(path_type=Path, dir_okay=False), help="File for the round's record.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead of text.")
def solve(
    snapshot: Path,
    policies: tuple[str, ...],
    exact: bool,
    objective: str | None,
    solver: str,
    time_limit: float | None,
    assignments: tuple[str, ...],
    learning: Learning | None,
    record: Path | None,
    as_json: bool,
) -> None:
    """Run one round on SNAPSHOT (a file) and print placements, postponements and the certificate."""
    policy = only(policies)
    check_policy(policy, exact=exact, objective=objective)
    own, theirs = choice.apart(assignments, () if policy == FLOW else (policy,))
    cost_model = None if policy == FLOW else choice.from_options(policy, theirs.get(policy, ()))
    settings = apply_settings(Settings(), own, readers=_readers(policy, cost_model, own, exact=exact))
    if objective is not None:
        settings = replace(settings, objective=objective)
    loaded = with_learning(load_snapshot(snapshot), learning)
    if record is not None:
        check_file(record)
    if cost_model is None:
        decisions = solve_round(loaded, settings=settings, solver=solver, time_limit_s=time_limit)
    else:
        if exact and len(loaded.pending) > settings.exact_tasks:
            message = f"is for rounds of at most {settings.exact_tasks} tasks, and {len(loaded.pending)} wait"
            raise InputError.one("--exact", message, "raise that with --set exact_tasks=N")
        decisions = solve_network_round(
            loaded, cost_model, settings=settings, solver=solver, time_limit_s=time_limit, exact=exact
        )
    click.echo(
        json.dumps(_plain(decisions, loaded), allow_nan=False) if as_json else render_decisions(decisions, loaded)
    )
    if record is not None:
        if decisions.record is not None:
            write_record(decisions.record, record)
        click.echo(f"record: {record}", err=True)


def only(policies: tuple[str, ...]) -> str:
    """The one policy; raises :class:`InputError` for several, and for one that is given twice."""
    if len(policies) > 1:
        message = f"a round has one policy, and {len(policies)} are given: {', '.join(policies)}"
        raise InputError.one("--policy", message, "simulate compares several")
    return policies[0]


def _readers(policy: str, cost_model: CostModel | None, own: Sequence[str], *, exact: bool) -> Readers:
    """Who reads the plain settings: flow all of them that are not for Kubernetes alone, other cost models few."""
    if cost_model is None:
        return Readers((policy,), tuple(name for name in SETTING_NAMES if name not in KUBERNETES_SETTINGS))
    asked = any(text.partition("=")[0].strip().replace("-", "_") == "exact_tasks" for text in own)
    return Readers(
        (policy,),
        (*choice.plain_settings(cost_model.features), *(("exact_tasks",) if exact else ())),
        choice.own_settings(policy),
        "exact_tasks is read with --exact" if asked and not exact else "",
    )


_SIMULATED = (
    *("flow+plan", "fcfs", "best-fit", "lpt", "kube-default"),
    *("topo-aware", "topo-aware-p", "topo-worth-p", "topo-best-fit"),
    *("topo-bipartition", "topo-bipartition-fifo", "topo-bipartition-p"),
)
"""Names that are known from ``simulate``."""


_PROVED = ("method", "primal", "bound", "gap_absolute", "gap_relative")
"""What is told of a certificate."""


def check_policy(policy: str, *, exact: bool, objective: str | None) -> None:
    """Raise :class:`InputError` for a policy that there is not, and for options that are not for it."""
    known = (FLOW, *choice.names())
    if policy not in known:
        message, help = "there is no such policy", name_help(policy, known)
        if policy in (*_SIMULATED, *DISAGGREGATION_POLICIES):
            help = f"that one is for simulate; {help}"
        raise InputError.one("--policy", message, help, key=policy)
    if exact and policy == FLOW:
        message = "flow is proved by CP-SAT by itself, where a round has at most exact_tasks tasks"
        raise InputError.one("--exact", message, "raise that with --set exact_tasks=N")
    if objective is not None and policy != FLOW:
        raise InputError.one("--objective", f"is for {FLOW} only", "leave it out")


def render_decisions(decisions: Decisions, snapshot: Snapshot | None = None) -> str:
    """The decisions as text for a terminal; with their snapshot also when tasks that wait start and end."""
    lines = []
    for p in decisions.placements:
        cores = f"core{'' if len(p.cores) == 1 else 's'} {','.join(map(str, p.cores))}"
        threads = f"{p.threads} thread{'' if p.threads == 1 else 's'}"
        lines.append(
            f"place     {p.task} on {p.machine}: width {p.width_milli / MILLI:g}, {threads} on {cores}; "
            f"cost {p.cost:.3f}{_terms(p.terms)}"
        )
    for w in decisions.postponements:
        spans = () if snapshot is None else intervals(w, snapshot).items()
        likely = "".join(
            f"; {name}s in {i.expected_s - snapshot.now_s:.0f} s "
            f"[{i.earliest_s - snapshot.now_s:.0f}, {i.latest_s - snapshot.now_s:.0f}]"
            for name, i in spans
            if snapshot is not None
        )
        lines.append(f"postpone  {w.task}: {w.reason}; cost {w.cost:.3f}{_terms(w.terms)}{likely}")
    for v in decisions.preemptions or ():
        lines.append(f"preempt   {v.task} on {v.machine} for {v.room_for}; its leaving costs {v.cost:.3f}")
    for m in decisions.moves or ():
        lines.append(
            f"move      {m.task} from {m.source} to {m.machine}, with a pause of {m.pause_s:g} s; "
            f"gains {m.gain:.3f}, price {m.price:.3f}"
        )
    for r in decisions.reservations:
        free = "which drains: no end is known there" if r.start_s == inf else f"free at {r.start_s:.1f} s"
        lines.append(f"reserve   {r.machine} for {r.task}, {free}")
    if decisions.certificate is None:
        lines.append("nothing is pending")
    else:
        c = decisions.certificate
        lines.append(
            f"certificate ({c.method}): cost {c.primal:.4f}, lower bound {c.bound:.4f}, "
            + gap_words({"gap_absolute": c.gap_absolute, "gap_relative": c.gap_relative})
        )
    if decisions.stopped:
        times = "once" if len(decisions.stopped) == 1 else f"{len(decisions.stopped)} times"
        lines.append(
            f"the time limit struck {times}, so another run may decide otherwise; first: {decisions.stopped[0]}"
        )
    return "\n".join(lines)


def _terms(terms: object) -> str:
    assert isinstance(terms, dict)
    told = ", ".join(f"{name.replace('_', ' ')} {value:.3f}" for name, value in terms.items() if abs(value) >= 5e-4)
    return f" ({told})" if told else ""


def intervals(postponed: Postponement, snapshot: Snapshot) -> dict[str, Interval]:
    """When a task that waits starts, and ends, in seconds of the snapshot's clock, as far as the round has planned that."""
    planned, errors, now_s = postponed.planned, snapshot.start_errors, snapshot.now_s
    if planned is None or planned.start_s is None:
        return {}
    found = {"start": errors.start(planned.start_s, now_s)}
    return found if planned.end_s is None else found | {"end": errors.end(planned.end_s, now_s)}


def _plain(decisions: Decisions, snapshot: Snapshot) -> dict[str, object]:
    certificate = plain_certificate(decisions.certificate)
    return {
        "version": "flowsched/v1",
        "placements": [asdict(p) for p in decisions.placements],
        "postponements": [
            asdict(p) | {name: found._asdict() for name, found in intervals(p, snapshot).items()}
            for p in decisions.postponements
        ],
        "reservations": [asdict(r) | {"start_s": finite_or_none(r.start_s)} for r in decisions.reservations],
        **({"preemptions": [asdict(p) for p in decisions.preemptions]} if decisions.preemptions is not None else {}),
        **({"moves": [asdict(m) for m in decisions.moves]} if decisions.moves is not None else {}),
        "certificate": certificate and {key: certificate[key] for key in _PROVED},
        **({"reproducible": False, "stopped": list(decisions.stopped)} if decisions.stopped else {}),
        "timings": plain_timings(decisions.timings_ms),
    }
