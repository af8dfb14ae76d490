"""Controllers on one machine under the same load: one run per policy and interval."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from flowsched.node.settings import NodeSettings
from flowsched_models.document import InputError
from flowsched_models.picked_fields import picked
from flowsched_models.runtime import HostFactory
from flowsched_simulator.node.policies import make_controller
from flowsched_simulator.node.run import NodeRun
from flowsched_simulator.node.scenario import NodeScenario
from flowsched_simulator.node.simulation import NodeOptions, NodeSimulation
from flowsched_simulator.node.task_classes import chosen_learning, learner_of, with_classes

Report = Callable[[str, str, float, int, int], None]
"""Called with policy, variant, simulated seconds, jobs ended and jobs in all."""


def simulate_node(
    scenario: NodeScenario,
    policy: str,
    *,
    options: NodeOptions | None = None,
    settings: NodeSettings | None = None,
    hosts: HostFactory | None = None,
    report: Report | None = None,
) -> NodeRun:
    """One policy on one machine. ``settings``: of ``flow-node``; None: its defaults."""
    options = options or NodeOptions()
    variant = f"{options.qps_interval_s or scenario.qps_interval_s:g} s"
    progress = None if report is None else partial(report, policy, variant)
    learning = options.learning or chosen_learning(scenario, options.model_error)
    if learning != "off":
        scenario = with_classes(scenario)
    controller = make_controller(policy, scenario, settings, learner_of(scenario, learning))
    return NodeSimulation(scenario, policy, controller, options, hosts=hosts, progress=progress).run()


def compare_on_node(
    scenario: NodeScenario,
    policies: Sequence[str],
    intervals_s: Sequence[float] = (),
    *,
    options: NodeOptions | None = None,
    settings: NodeSettings | None = None,
    report: Report | None = None,
    left_out: Callable[[InputError], None] | None = None,
) -> tuple[NodeRun, ...]:
    """A run for every interval (the scenario's if none is given) of every policy, in the order given.

    All share the rates that are computed on the way, and nothing else. ``left_out`` is told why a policy cannot run such a
    machine; without it that raises :class:`InputError`.
    """
    options = options or NodeOptions()
    hosts = HostFactory(scenario.catalogue)
    runs: list[NodeRun] = []
    for policy in policies:
        try:
            own = [
                simulate_node(
                    scenario,
                    policy,
                    options=replace(options, qps_interval_s=interval_s),
                    settings=settings,
                    hosts=hosts,
                    report=report,
                )
                for interval_s in intervals_s or (options.qps_interval_s or scenario.qps_interval_s,)
            ]
        except InputError as error:
            if left_out is None:
                raise
            left_out(error)
            continue
        runs += own
    return tuple(runs)


def node_result(scenario: NodeScenario, runs: Sequence[NodeRun]) -> dict[str, Any]:
    """The object that ``--json`` prints and the report is made from (version 1)."""
    return {
        "version": "flowsched/v1",
        "kind": "node",
        "scenario": scenario.name,
        "description": scenario.description,
        "machine": {"type": scenario.machine_type, "vcpus": len(scenario.cores)},
        "services": [
            {
                **picked(s, "name", "profile", "threads"),
                "cores": list(s.cores),
                "client": s.client,
                "slo_us": s.slo_us,
            }
            for s in scenario.services
        ],
        "table": [run.summary() for run in runs],
        "runs": [run.to_json() for run in runs],
    }
