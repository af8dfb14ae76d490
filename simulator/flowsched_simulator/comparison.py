"""Policies on one scenario, on the same clock: one run each, a baseline's variant chosen among all."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from flowsched.cluster.snapshot import Machine
from flowsched_models.picked_fields import picked
from flowsched_models.runtime import HostFactory
from flowsched_simulator.baselines.granting import variant_label
from flowsched_simulator.baselines.registry import BASELINES, variants_of
from flowsched_simulator.drawn import drawn_parts, draws, selection_seeds
from flowsched_simulator.policies import EngineOptions, check_devices, check_policies, schedulers
from flowsched_simulator.run import Run
from flowsched_simulator.scenario import Objective, Scenario
from flowsched_simulator.simulation import Options, Simulation

Report = Callable[[str, str, float, int, int], None]
"""Called with policy, variant, simulated seconds since the first submission, jobs ended and jobs in all."""


def simulate(
    scenario: Scenario,
    policy: str = "flow",
    *,
    options: Options | None = None,
    engine: EngineOptions | None = None,
    hosts: HostFactory | None = None,
    report: Report | None = None,
    variant: str | None = None,
) -> Run:
    """One policy on a scenario. Of a baseline's variants (request declared, 1, 2, 4; own or shared cores) the one that is
    chosen, or that ``variant`` names, such as ``declared-shared``; policies that have only one way run as they are. Where
    the run times of all jobs are given there is only one way: each has what it declares.

    The best variant has the fewest SLO violations, then the least makespan or mean completion, whichever is the scenario's
    objective. Where nothing is drawn it is the best of the runs of this very scenario. Where something is, the best of
    several draws would be the luckiest one: it is chosen by the means over runs with :func:`selection_seeds`, and then runs
    with the seed of ``options``. Where records are kept the chosen variant runs once more: they are its records only. Raises
    :class:`InputError` for a policy or a variant that there is not.
    """
    check_policies((policy,), "policy")
    engine, options = engine or EngineOptions(), options or Options()
    runs_of = partial(simulate_variants, scenario, policy, hosts=hosts or HostFactory(scenario.catalogue))
    if variant is not None:
        # A policy with a single variant gives it no name.
        (run,) = runs_of(
            options=options, engine=engine, report=report, variants={variant_label(variant, "variant"), ""}
        )
        return run
    if not has_variants(policy, scenario):
        (run,) = runs_of(options=options, engine=engine, report=report)
        return run
    drawn = bool(drawn_parts(scenario, options.model_error)) or draws(policy)
    seeds = selection_seeds({options.seed}) if drawn else ()
    trials: dict[str, list[Run]] = {}
    for seed in seeds or (options.seed,):
        plain = replace(engine, keep_records=False)
        for run in runs_of(options=replace(options, seed=seed), engine=plain, report=report):
            trials.setdefault(run.variant, []).append(run)
    chosen = best_variant({v: [run.summary() for run in runs] for v, runs in trials.items()}, scenario.objective)
    if drawn or engine.keep_records:
        (best,) = runs_of(options=options, engine=engine, report=report, variants={chosen})
    else:
        (best,) = trials[chosen]
    return replace(best, variant_seeds=seeds)


def has_variants(policy: str, scenario: Scenario) -> bool:
    """Whether a policy is run with several grantings on a scenario, of which one is chosen."""
    return policy in BASELINES and len(variants_of(policy, scenario.given_run_times)) > 1


def best_variant(figures: Mapping[str, Sequence[Mapping[str, Any]]], objective: Objective) -> str:
    """The variant with the fewest SLO violations, then the least makespan or mean completion; the first of equal ones.

    ``figures``: of every variant the summaries of its runs, over which figures are averaged; one where a job never ended
    is infinite.
    """
    key = "makespan_s" if objective is Objective.MAKESPAN else "mean_completion_s"

    def rank(variant: str) -> tuple[float, float]:
        rows = figures[variant]
        values = [float("inf") if row[key] is None else row[key] for row in rows]
        return sum(row["slo_violation_ratio"] for row in rows) / len(rows), sum(values) / len(rows)

    return min(figures, key=rank)


def simulate_variants(
    scenario: Scenario,
    policy: str,
    *,
    options: Options | None = None,
    engine: EngineOptions | None = None,
    hosts: HostFactory | None = None,
    report: Report | None = None,
    variants: Collection[str] | None = None,
) -> tuple[Run, ...]:
    """One run for every variant of a policy, or for those in ``variants``; ``flow`` has one."""
    options = options or Options()
    hosts = hosts or HostFactory(scenario.catalogue)
    runs = []
    for variant, scheduler in schedulers(policy, scenario, options.seed, engine or EngineOptions(), hosts):
        if variants is not None and variant not in variants:
            continue
        progress = None if report is None else partial(report, policy, variant)
        runs.append(Simulation(scenario, scheduler, options, hosts=hosts, variant=variant, progress=progress).run())
    return tuple(runs)


def compare(
    scenario: Scenario,
    policies: Sequence[str],
    *,
    options: Options | None = None,
    engine: EngineOptions | None = None,
    report: Report | None = None,
    variant: str | None = None,
) -> tuple[Run, ...]:
    """One run per policy, in the order given; of baselines the variant that :func:`simulate` chooses, or ``variant``.

    All share the rates that are computed on the way, and nothing else.

    Raises :class:`InputError` for policies and variants that there are not, before any runs.
    """
    check_policies(tuple(policies), "policy")
    if variant is not None:
        variant_label(variant, "variant")
    check_devices(policies, scenario.tasks)
    hosts = HostFactory(scenario.catalogue)
    return tuple(
        simulate(scenario, policy, options=options, engine=engine, hosts=hosts, report=report, variant=variant)
        for policy in policies
    )


def result(scenario: Scenario, runs: Sequence[Run]) -> dict[str, Any]:
    """The object that ``--json`` prints and the report is made from (version 1)."""
    return {
        "version": "flowsched/v1",
        "scenario": scenario.name,
        "description": scenario.description,
        "objective": scenario.objective.value,
        "cluster": {
            "machines": [_machine(m) for m in scenario.machines],
            "services": [
                {
                    "name": s.name,
                    "machine": s.machine,
                    "cores": list(s.cores),
                    **picked(s, "threads", "qps", "slo_us"),
                }
                for s in scenario.services
            ],
        },
        "table": [run.summary() for run in runs],
        "runs": [run.to_json() for run in runs],
    }


def _machine(machine: Machine) -> dict[str, Any]:
    found = {"name": machine.name, "type": machine.type, "vcpus": machine.vcpus}
    gpus = machine.gpus
    return found if gpus is None else {**found, "gpus": {"model": gpus.model, "count": gpus.count}}
