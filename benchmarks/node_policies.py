"""Controllers of one machine: makespan against the fluid bound, and points over the SLO, over seeds of the load.

Every setting is a bundled scenario with one length of interval; each seed draws its load and the noise on p95, and all
policies run on the same draws. Rows are kept, so a policy can be run again by itself.

    python -m benchmarks.node_policies
    python -m benchmarks.node_policies --policy flow-node --setting 10s --seeds 3
"""

from __future__ import annotations

import json
import multiprocessing
import statistics
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import click

from benchmarks.fluid_bound import FluidBound, plain_bound
from benchmarks.machine import describe_machine, measured_on
from benchmarks.node_targets import checks
from benchmarks.service_loads import safe_load
from benchmarks.service_need import service_need
from flowsched_models.document import InputError
from flowsched_simulator.node.policies import NODE_POLICIES, make_controller
from flowsched_simulator.node.run import NodeRun
from flowsched_simulator.node.scenario import NodeScenario
from flowsched_simulator.node.scenario_file import load_node_scenario
from flowsched_simulator.node.simulation import NodeOptions, NodeSimulation, waves_of

RESULTS = Path(__file__).parent / "results"
PUBLISHED = "published wave"


@dataclass(frozen=True)
class Setting:
    """A scenario, and how fast its load changes."""

    scenario: str
    interval_s: float
    drawn: bool = True
    """False: the scenario's own wave, so a seed draws the noise only."""


SETTINGS: Mapping[str, Setting] = {
    PUBLISHED: Setting("node-4core-dynamic", 10.0, drawn=False),
    "published wave, 1.75s": Setting("node-4core-dynamic", 1.75, drawn=False),
    "10s": Setting("node-4core-dynamic", 10.0),
    "5s": Setting("node-4core-dynamic", 5.0),
    "4s": Setting("node-4core-dynamic", 4.0),
    "1.75s": Setting("node-4core-dynamic", 1.75),
    "1s": Setting("node-4core-dynamic", 1.0),
    "0.8 ms, 10s": Setting("node-4core-dynamic-08", 10.0),
    "two services, 10s": Setting("node-4core-two-services", 10.0),
}

Row = dict[str, Any]


@click.command()
@click.option("--policy", "policies", multiple=True, type=click.Choice(list(NODE_POLICIES)), help="Default: all.")
@click.option("--setting", "settings", multiple=True, type=click.Choice(list(SETTINGS)), help="Default: all.")
@click.option("--seeds", default=20, show_default=True, help="Seeds 0, 1, 2, ...")
@click.option("--workers", default=2, show_default=True, help="Processes at once.")
@click.option("--keep/--no-keep", default=True, help="Merge the rows into those kept under benchmarks/results.")
def main(policies: tuple[str, ...], settings: tuple[str, ...], seeds: int, workers: int, keep: bool) -> None:
    """Run and print the tables."""
    cells = [(s, k, policies or tuple(NODE_POLICIES)) for s in settings or SETTINGS for k in range(seeds)]
    place = RESULTS / "node_policies.json"
    rows: dict[tuple[str, str, int], Row] = {}
    if keep and place.exists():
        kept = json.loads(place.read_text(encoding="utf-8"))
        rows = {(r["setting"], r["policy"], r["seed"]): r for r in kept["rows"]}
    began = time.perf_counter()
    with multiprocessing.Pool(workers) as pool:
        for fresh in pool.imap_unordered(run_cell, cells):
            rows |= {(r["setting"], r["policy"], r["seed"]): r for r in fresh}
    click.echo(f"{len(cells) * len(cells[0][2])} runs in {time.perf_counter() - began:.0f} s", err=True)
    ordered = [rows[key] for key in sorted(rows, key=_order)]
    machine = describe_machine()
    text = render(ordered) + "\n\n" + measured_on(machine)
    if keep:
        RESULTS.mkdir(exist_ok=True)
        place.write_text(_lines({"machine": machine}, ordered), encoding="utf-8")
        place.with_suffix(".txt").write_text(text + "\n", encoding="utf-8")
    click.echo(text)


def run_cell(cell: tuple[str, int, tuple[str, ...]]) -> list[Row]:
    """All policies on one load, and its bounds."""
    name, seed, policies = cell
    setting, scenario = SETTINGS[name], _scenario(SETTINGS[name].scenario)
    options = NodeOptions(seed=seed, load_seed=seed if setting.drawn else None, qps_interval_s=setting.interval_s)
    need = service_need(
        scenario.catalogue, scenario.services, waves_of(scenario, options.load_seed), setting.interval_s
    )
    plain_s = plain_bound(scenario.catalogue, scenario.machine_type, len(scenario.cores), scenario.tasks, need)
    bounds = {
        "fluid_bound_s": round(_bound(setting.scenario).makespan_s(need), 2),
        "plain_bound_s": round(plain_s, 2),
    }
    return [
        {"setting": name, "policy": policy, "seed": seed} | bounds | _outcome(scenario, policy, options)
        for policy in policies
    ]


def _outcome(scenario: NodeScenario, policy: str, options: NodeOptions) -> Row:
    began = time.perf_counter()
    try:
        controller = make_controller(policy, scenario)
        run = NodeSimulation(scenario, policy, controller, options).run()
    except InputError as error:
        return {"impossible": "; ".join(p.message for p in error.problems)}
    return {
        "makespan_s": None if run.makespan_s is None else round(run.makespan_s, 2),
        "points": len(run.windows),
        "violations": run.violations,
        **_feasible(scenario, run),
        "model_violations": sum(w.model_p95_us > dict(run.slo_us)[w.service] for w in run.windows),
        "worst_p95_us": round(run.worst_p95_us or 0.0, 1),
        "pauses": sum(j.pauses for j in run.jobs),
        "core_changes": run.service_core_changes,
        "active_s": {j.job: round(j.active_s, 2) for j in run.jobs},
        "run_s": round(time.perf_counter() - began, 2),
    }


@cache
def _scenario(name: str) -> NodeScenario:
    return load_node_scenario(name)


@cache
def _bound(name: str) -> FluidBound:
    s = _scenario(name)
    return FluidBound(s.catalogue, s.machine_type, len(s.cores), s.services, s.tasks)


def _feasible(scenario: NodeScenario, run: NodeRun) -> Row:
    """Points at loads that their service, alone and with all its cores, was measured to serve within its SLO."""
    limits = {}
    for service in scenario.services:
        profile = scenario.catalogue.services[service.profile]
        curve = profile.curve_or_estimate(service.threads, len(service.cores))
        limits[service.name] = safe_load(
            profile, curve, service.slo_us, service.client, machine_type=scenario.machine_type
        )
    points = [w for w in run.windows if w.qps <= limits[w.service]]
    slo = dict(run.slo_us)
    return {
        "feasible_points": len(points),
        "feasible_violations": sum(w.p95_us > slo[w.service] for w in points),
        "feasible_model_violations": sum(w.model_p95_us > slo[w.service] for w in points),
    }


def render(rows: Sequence[Row]) -> str:
    """One table per setting, and the targets."""
    parts = []
    for name in SETTINGS:
        here = [r for r in rows if r["setting"] == name]
        if here:
            parts.append(_table(name, here))
    return "\n\n".join([*parts, "Targets\n" + "\n".join(checks(rows))])


def _table(name: str, rows: Sequence[Row]) -> str:
    ran = [r for r in rows if "impossible" not in r]
    bounds = {r["seed"]: r["fluid_bound_s"] for r in ran}
    setting = SETTINGS[name]
    load = "drawn per seed" if setting.drawn else "the scenario's wave"
    lines = [
        f"{name}: {setting.scenario}, {setting.interval_s:g} s between load steps, {load}; {len(bounds)} seeds; "
        f"fluid bound {_middle_and_worst(bounds.values(), '.1f')} s",
        f"{'policy':<15} {'makespan s':>15} {'/ bound':>13} {'over SLO':>17} {'worst seed':>10} {'feasible':>9} "
        f"{'model':>6} {'worst p95 us':>15} {'pauses':>6} {'cores':>6}",
    ]
    for policy in NODE_POLICIES:
        own = [r for r in rows if r["policy"] == policy]
        if not own:
            continue
        done = [r for r in own if r.get("makespan_s") is not None]
        if not done:
            lines.append(f"{policy:<15} cannot run here: {own[0].get('impossible', 'jobs never ended')}")
            continue
        over, points = sum(r["violations"] for r in done), sum(r["points"] for r in done)
        note = f"  ({len(own) - len(done)} runs never ended)" if len(done) < len(own) else ""
        lines.append(
            f"{policy:<15} {_middle_and_worst((r['makespan_s'] for r in done), '.1f'):>15} "
            f"{_middle_and_worst((r['makespan_s'] / r['fluid_bound_s'] for r in done), '.3f'):>13} "
            f"{f'{over}/{points} {over / points:.2%}':>17} {max(r['violations'] / r['points'] for r in done):>10.2%} "
            f"{sum(r['feasible_violations'] for r in done):>9} {sum(r['model_violations'] for r in done):>6} "
            f"{_middle_and_worst((r['worst_p95_us'] for r in done), '.0f'):>15} "
            f"{statistics.median(r['pauses'] for r in done):>6g} {statistics.median(r['core_changes'] for r in done):>6g}"
            f"{note}"
        )
    lines.append(
        "Two figures: median and worst over the seeds. feasible: points over the SLO at loads measured to be within it; "
        "model: without noise."
    )
    return "\n".join(lines)


def _middle_and_worst(values: Iterable[float], form: str) -> str:
    known = list(values)
    return f"{statistics.median(known):{form}} {max(known):{form}}"


def _order(key: tuple[str, str, int]) -> tuple[int, int, int]:
    setting, policy, seed = key
    return list(SETTINGS).index(setting), list(NODE_POLICIES).index(policy), seed


def _lines(head: Mapping[str, Any], rows: Sequence[Row]) -> str:
    """JSON with one row per line: a row that is run again changes one line."""
    listed = ",\n".join("  " + json.dumps(row) for row in rows)
    return json.dumps(dict(head), indent=1).removesuffix("\n}") + ',\n "rows": [\n' + listed + "\n ]\n}\n"


if __name__ == "__main__":
    main()
