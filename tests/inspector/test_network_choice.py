"""Any network of a round can be asked for, and proves what the record says that it decided."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from inspected import HOUSE, bulk, searched

from builders import CATALOGUE, flow_scheduler, machines, running, snapshot, task
from flowsched.inspector.dimacs import render_dimacs
from flowsched.inspector.dot import render_dot
from flowsched.inspector.graph import Graph
from flowsched.inspector.graphml import render_graphml
from flowsched.inspector.network_choice import choose_network
from flowsched.inspector.record_view import RecordView
from flowsched.inspector.replay import replay
from flowsched.records.record_file import check_record, record_json, write_record
from flowsched.round.origin import PlanStage
from flowsched.solvers import make_solver
from flowsched_models.document import InputError
from flowsched_models.runtime import HostFactory
from flowsched_simulator import EngineOptions, load_scenario
from flowsched_simulator.policies import schedulers
from flowsched_simulator.simulation import Options, Simulation

KINDS = [("serial", 2.0), ("scaling", 1.0), ("serial", 1.0), ("scaling", 3.0), ("scaling", 2.0)]


def batch(objective: str) -> RecordView:
    """Five jobs that came together, on three machines of which one is busy."""
    jobs = [task(f"j{k}", CATALOGUE.jobs[p], scale=s, widths_milli=(1000, 2000)) for k, (p, s) in enumerate(KINDS)]
    now = snapshot(jobs, machines(3), running=[running(task("r"), "m1", progress=0.25)])
    record = flow_scheduler(objective=objective, exact_limit=0).decide(now).record
    assert record is not None
    return RecordView(check_record(dict(record), "round.json"), "round.json")


def flows(graph: Graph, kind: str, name: str) -> set[str]:
    """Labels of the nodes that flow from a node leads to."""
    node = graph.node(kind, name)
    assert node is not None
    reached, left = set(), [node]
    while left:
        for arc in graph.leaving(left.pop()).tolist():
            head = int(graph.heads[arc])
            if graph.flow[arc] and head not in reached:
                reached.add(head)
                left.append(head)
    return {graph.label(head) for head in reached}


@pytest.mark.parametrize("objective", ["completion", "makespan"])
def test_each_place_that_a_network_chose_is_proved_by_its_network(objective: str) -> None:
    recorded = batch(objective)
    (part,) = recorded.parts
    decided = [e for e in part.decided_by.values() if e["stage"] == PlanStage.NETWORK]
    assert decided

    for entry in decided:
        chosen = choose_network(recorded, f"of:{entry['task']}", None)
        graph = chosen.graph
        assert chosen.title == f"network of pass {entry['pass']}"
        assert make_solver("networkx").solve(graph).cost == graph.optimum
        assert not list(graph.faults())
        assert f"machine:{entry['machine']}" in flows(graph, "class", part.class_of[entry["task"]])


def test_all_passes_of_a_record_can_be_exported() -> None:
    recorded = batch("makespan")
    (part,) = recorded.parts
    assert len(part.passes) > 1
    for one in part.passes:
        chosen = choose_network(recorded, f"pass:{one['number']}", None)
        assert chosen.graph.arc_count == one["arcs"]
        assert chosen.graph.flow[: len(one["booked"])].size
        assert f"network of pass {one['number']} of round" in render_dimacs(recorded, chosen.graph, chosen.title)
        if one["drawn"]:
            assert np.array_equal(chosen.graph.flow, part.first.flow)
    assert choose_network(recorded, "first", None).title == "first network"


@pytest.mark.parametrize(
    ("asked", "part", "sentence"),
    [
        ("pass:9", None, "there is no pass 9 in part 0 of round.json, which has passes 1 to 3"),
        ("pass:x", None, "there is no pass x in part 0 of round.json, which has passes 1 to 3"),
        ("pass:0", None, "there is no pass 0 in part 0 of round.json, which has passes 1 to 3"),
        ("of:j9", None, "there is no task 'j9' in round.json"),
        ("sixth", None, "'sixth' is not round, first, pass:N or of:TASK"),
        ("first", 3, "there is no part 3; round.json has only part 0"),
    ],
)
def test_what_is_not_there_is_told_with_what_is(asked: str, part: int | None, sentence: str) -> None:
    recorded = batch("completion")
    count = len(recorded.parts[0].passes)
    with pytest.raises(InputError) as caught:
        choose_network(recorded, asked, part)
    (problem,) = caught.value.problems
    assert problem.message == sentence.replace("1 to 3", f"1 to {count}")


def test_a_task_that_no_network_decided_on_is_told_with_the_stage_that_did() -> None:
    recorded = RecordView(searched(), "turns.json")  # type: ignore[arg-type]
    (part,) = recorded.parts
    others = [e for e in part.decided_by.values() if e["stage"] != PlanStage.NETWORK]
    assert others
    for entry in others:
        with pytest.raises(InputError) as caught:
            choose_network(recorded, f"of:{entry['task']}", None)
        (problem,) = caught.value.problems
        assert problem.message.startswith(
            f"no network decided on '{entry['task']}': the stage '{entry['stage']}' chose its place; pass"
        )


@pytest.mark.parametrize("objective", ["completion", "makespan"])
def test_a_pass_says_what_was_undone_later_and_by_what(objective: str) -> None:
    for recorded in (batch(objective), RecordView(searched(objective), "turns.json")):  # type: ignore[arg-type]
        (part,) = recorded.parts
        for one in part.passes:
            undone = {entry["task"]: entry["by"] for entry in one["undone"]}
            for name in one["booked"]:
                entry = part.decided_by.get(name)
                stands = entry is not None and entry["stage"] == "network" and entry["pass"] == one["number"]
                assert (name in undone) != stands
                if entry is not None and name in undone:
                    assert undone[name] == entry["stage"]
            chosen = choose_network(recorded, f"pass:{one['number']}", None)
            for file in (
                render_dimacs(recorded, chosen.graph, chosen.heading),
                render_dot(recorded, chosen.graph, which=chosen.heading),
                render_graphml(recorded, chosen.graph, chosen.heading),
            ):
                assert ("undone later" in file) == bool(undone)
                assert all(f"{name} by a {by}" in file for name, by in undone.items())
        stand = [len(one["booked"]) - len(one["undone"]) for one in part.passes]
        assert [one["drawn"] for one in part.passes].index(True) == stand.index(max(stand)) or max(stand) == 0


def test_the_example_opens_with_the_pass_that_stands() -> None:
    (part,) = RecordView(searched(), "turns.json").parts  # type: ignore[arg-type]
    assert [[e["task"] for e in one["undone"]] for one in part.passes] == [["ferret", "canneal"], []]
    assert [one["drawn"] for one in part.passes] == [False, True]


def test_of_a_bulk_round_the_one_network_decided_on_each_task() -> None:
    recorded = RecordView(bulk(), "bulk.json")  # type: ignore[arg-type]
    name = recorded.parts[0].tasks[0]
    assert choose_network(recorded, f"of:{name}", None).title == "network of the round"
    with pytest.raises(InputError, match="which has one network, the first"):
        choose_network(recorded, "pass:1", None)


@pytest.mark.parametrize("policy", ["drmaestro", "drmaestro-network", "drmaestro-joint"])
def test_rounds_of_jobs_with_gpus_elsewhere_are_recorded_and_replayed(policy: str, tmp_path: Path) -> None:
    scenario = load_scenario(HOUSE / "docs" / "examples" / "remote-gpus.yaml")
    hosts = HostFactory(scenario.catalogue)
    ((_, scheduler),) = schedulers(policy, scenario, 0, EngineOptions(keep_records=True), hosts)
    run = Simulation(scenario, scheduler, Options(keep_records=True), hosts=hosts).run()

    solved = 0
    for i, record in enumerate(run.records):
        path = tmp_path / f"{i}.json"
        write_record(record, path)
        recorded = RecordView(check_record(dict(record), str(path)), str(path))
        assert record_json(record) == record_json(recorded.plain)
        assert replay(recorded).same
        (part,) = recorded.parts
        for p in part.placements:
            graph = choose_network(recorded, f"of:{p.task}", None).graph
            assert make_solver("networkx").solve(graph).cost == graph.optimum
            solved += 1
    assert solved > 0
