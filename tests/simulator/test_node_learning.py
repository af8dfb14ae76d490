"""Learnt run times in simulations of one machine: which classes there are, when it is on, and what is told."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from node_world import scenario

from flowsched.node import NodeTask
from flowsched_simulator.commands.simulate import simulate
from flowsched_simulator.node.comparison import simulate_node
from flowsched_simulator.node.run import NodeRun
from flowsched_simulator.node.scenario import NodeScenario
from flowsched_simulator.node.scenario_file import load_node_scenario
from flowsched_simulator.node.simulation import NodeOptions
from flowsched_simulator.node.task_classes import chosen_learning, with_classes
from flowsched_simulator.node.truth import true_machine

FACTORS = {"vips": 2.0, "ferret": 0.5}


@dataclass(frozen=True)
class ByName:
    """A factor for each name without its number."""

    def factor(self, task: str, machine: str) -> float:
        return FACTORS[task.rpartition("-")[0]]


def copies() -> NodeScenario:
    tasks = tuple(NodeTask(f"{profile}-{k}", profile, 4, 0.2) for k in (1, 2, 3) for profile in FACTORS)
    return replace(scenario(), tasks=tasks, submit_s=(0.0, 0.0, 60.0, 60.0, 120.0, 120.0))


def run_with(learning: str | None, *, of: NodeScenario | None = None, error: Any = 0.0) -> tuple[NodeRun, list[dict]]:
    traces: list[dict[str, Any]] = []
    options = NodeOptions(noise=0.0, model_error=error, learning=learning, decision_sink=traces.append)
    return simulate_node(of or copies(), "flow-node", options=options), traces


def test_completions_are_in_the_decisions_that_follow() -> None:
    run, traces = run_with("on", error=ByName())
    ends = {job.job: job.end_s for job in run.jobs}
    for trace in traces:
        for task in trace["tasks"]:
            name, _, copy = task["task"].rpartition("-")
            assert ("learnt" in task) == (ends[f"{name}-1"] < trace["t_s"])
            if "learnt" in task:
                assert task["learnt"]["class"] == name
                # One run of each of two classes does not tell whether classes differ or runs do; a second one does.
                low, high = sorted((1.0, FACTORS[name]))
                assert low < task["learnt"]["factor"] < high
                assert copy == "2" or abs(task["learnt"]["factor"] - FACTORS[name]) < 0.2 * FACTORS[name]
    assert any("learnt" in task for trace in traces for task in trace["tasks"])


def test_observed_learning_decides_as_none_and_is_recorded() -> None:
    (off, without), (observed, traces) = run_with("off", error=ByName()), run_with("observe", error=ByName())
    assert observed == off
    learnt = [task.pop("learnt") for trace in traces for task in trace["tasks"] if "learnt" in task]
    assert traces == without and learnt


def test_learning_decides_otherwise_and_always_alike() -> None:
    (off, _), (on, first), (_, second) = (run_with(learning, error=ByName()) for learning in ("off", "on", None))
    assert on != off
    assert first == second


def test_without_errors_and_classes_nothing_is_learnt() -> None:
    assert run_with(None) == run_with("off")
    assert chosen_learning(copies(), 0.0) == "off"
    given = replace(copies(), tasks=tuple(replace(t, run_class="all") for t in copies().tasks))
    assert chosen_learning(given, 0.0) == "on"


def test_a_job_alone_in_its_class_has_none_unless_it_is_given() -> None:
    tasks = (NodeTask("a-1", "vips", 1), NodeTask("a-2", "vips", 1), NodeTask("b-1", "vips", 1))
    alone = NodeTask("c", "vips", 1, run_class="mine")
    found = with_classes(replace(scenario(), tasks=(*tasks, alone), submit_s=(0.0,) * 4))
    assert [task.run_class for task in found.tasks] == ["a", "a", "", "mine"]


def test_an_error_of_a_class_is_the_same_for_its_jobs() -> None:
    of_jobs = true_machine(copies(), 0.5, 1).slowdown
    of_classes = true_machine(copies(), 0.5, 1, "class").slowdown
    of_types = true_machine(copies(), 0.5, 1, "class-and-machine-type").slowdown
    assert len({*of_jobs.values()}) == 6
    for found in (of_classes, of_types):
        assert found["vips-1"] == found["vips-2"] != found["ferret-1"] == found["ferret-2"]


WORLD = """
apiVersion: flowsched/v1
kind: NodeScenario
name: copies
machine: {type: n2d-highmem-4, cores: 4}
services:
  - {name: mc, profile: memcached, threads: 2, cores: [0, 1], client: mcperf-sweep, slo_p95: 1ms, load: {wave: [20K, 60K]}}
jobs:
  - {name: night-1, profile: vips, threads: 4, class: encode}
  - {name: day-1, profile: vips, threads: 4, class: encode, submit_s: 300}
  - {name: other, profile: radix, threads: 4, scale: 0.1}
"""


def test_the_command_learns_by_the_classes_of_the_file(tmp_path: Path) -> None:
    file = tmp_path / "copies.yaml"
    file.write_text(WORLD)
    assert [task.run_class for task in load_node_scenario(file).tasks] == ["encode", "encode", ""]

    def decisions(*arguments: str) -> list[dict[str, Any]]:
        records = tmp_path / "-".join(["records", *arguments])
        command = [str(file), "--policy", "flow-node", "--json", "--records", str(records), *arguments]
        outcome = CliRunner().invoke(simulate, command)
        assert outcome.exit_code == 0, outcome.output
        return [json.loads(line) for line in (records / "flow-node.jsonl").read_text().splitlines()]

    def classes(traces: list[dict[str, Any]]) -> set[str]:
        return {task["learnt"]["class"] for trace in traces for task in trace["tasks"] if "learnt" in task}

    assert classes(decisions("--learning", "off")) == set()
    wrong = ("--model-error", "0.8", "--error-of", "class")
    assert classes(decisions(*wrong)) == {"encode"}
    assert classes(decisions()) == {"encode"}


@pytest.mark.parametrize("policy", ["two-queue", "low-weight", "low-weight-all", "static-1", "static-2"])
def test_baselines_decide_alike_whatever_is_learnt(policy: str) -> None:
    runs = [
        simulate_node(copies(), policy, options=NodeOptions(noise=0.0, model_error=ByName(), learning=learning))
        for learning in ("off", "on")
    ]
    assert runs[0] == runs[1]
