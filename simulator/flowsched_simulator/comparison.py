"""Policies on one scenario, on the same clock: one run each, a baseline's best variant."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from flowsched.cluster.snapshot import Machine
from flowsched_models.picked_fields import picked
from flowsched_models.runtime import HostFactory
from flowsched_simulator.baselines.granting import variant_label
from flowsched_simulator.baselines.registry import BASELINES, variants_of
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
    """One policy on a scenario. Of a baseline's variants (request declared, 1, 2, 4; own or shared cores) the best, or
    the one that ``variant`` names, such as ``declared-shared``; policies that have only one way run as they are.

    The best has the fewest SLO violations, then the least makespan or mean completion, whichever is the scenario's
    objective: a rule is judged at its best, with hindsight that the rule itself does not have. Where records are kept the
    best variant runs once more: they are its records only. Raises :class:`InputError` for a policy or a variant that there
    is not.
    """
    check_policies((policy,), "policy")
    engine = engine or EngineOptions()
    runs_of = partial(
        simulate_variants, scenario, policy, options=options, hosts=hosts or HostFactory(scenario.catalogue)
    )
    if variant is not None:
        # A policy with a single variant gives it no name.
        (run,) = runs_of(engine=engine, report=report, variants={variant_label(variant, "variant"), ""})
        return run
    again = engine.keep_records and policy in BASELINES and len(variants_of(policy)) > 1
    trials = runs_of(engine=replace(engine, keep_records=engine.keep_records and not again), report=report)
    best = min(trials, key=lambda run: _rank(run, scenario.objective))
    if again:
        (best,) = runs_of(engine=engine, variants={best.variant})
    return best


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
    """One run per policy, in the order given; of baselines the best variant, or ``variant``.

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


def _rank(run: Run, objective: Objective) -> tuple[float, float]:
    if objective is Objective.MAKESPAN:
        return run.slo_violation_ratio, run.makespan_s
    completions = [j.completion_s for j in run.outcomes]
    if any(c is None for c in completions):
        return run.slo_violation_ratio, float("inf")
    return run.slo_violation_ratio, sum(c for c in completions if c is not None) / max(1, len(completions))
