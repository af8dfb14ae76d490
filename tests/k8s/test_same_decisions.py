"""The bundled scenario's pods go where the engine puts the scenario's tasks, with the same threads and cores."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest
from consistency import check_state
from objects_builders import granted, node, pod
from plane import Plane, Space, wait_for
from running import running_scheduler

from flowsched.cluster.settings import Settings
from flowsched.cluster.snapshot import Snapshot, StartDelay
from flowsched.inspector.record_view import RecordView
from flowsched.records.record_file import write_record
from flowsched.records.snapshot_source import load_snapshot
from flowsched.round.scheduler import solve
from flowsched.solvers import make_solver
from flowsched_k8s.bindings.bindings import BindOutcome
from flowsched_k8s.changes import Seen
from flowsched_k8s.configuration.configuration import Configuration
from flowsched_k8s.instructions import Bind, PatchCondition
from flowsched_k8s.names import CORES, THREADS
from flowsched_k8s.objects import Pod
from flowsched_k8s.pods.readings import seconds
from flowsched_k8s.rounds.planning import plan_apart, plan_round
from flowsched_k8s.rounds.round_input import Fate
from flowsched_k8s.state import SchedulerState
from flowsched_models.document import InputError
from flowsched_models.quantity import parse_cores
from flowsched_simulator.scenario import Scenario
from flowsched_simulator.scenario_file import load_scenario

SCENARIO = load_scenario("parsec-memcached-2024")


def first_snapshot(scenario: Scenario) -> Snapshot:
    """What the scenario's first round decides on, at the requests: without resizes a pod's width is its request."""
    tasks = tuple(
        replace(t, widths_milli=(t.request_milli,), threads=tuple(w // 1000 for w in t.widths_milli))
        for t in scenario.tasks
    )
    return Snapshot(
        0.0, scenario.catalogue, scenario.machines, scenario.services, pending=tasks, start_delay=StartDelay()
    )


def expected(
    scenario: Scenario, settings: Settings, waited_s: float = 0.0
) -> dict[str, tuple[str, int, tuple[int, ...]]]:
    """Machine, threads and cores of each task that the first round starts, ``waited_s`` after all were submitted."""
    decisions = solve(replace(first_snapshot(scenario), now_s=waited_s), settings=settings)
    return {p.task: (p.machine, p.threads, p.cores) for p in decisions.placements}


def cluster(scenario: Scenario) -> list[Any]:
    """The scenario's machines as nodes, its service as a bound pod, its jobs as waiting pods."""
    found: list[Any] = []
    for m in scenario.machines:
        cpu, memory = f"{m.cpu_milli}m", f"{m.memory_mib}Mi"
        found.append(node(m.name, cpu, memory, labels={"flowsched.io/machine-type": m.type}))
    for s in scenario.services:
        notes = {
            "flowsched.io/profile": s.profile,
            "flowsched.io/workload-class": "latency-sensitive",
            "flowsched.io/slo": f"p95={s.slo_us:g}us@{s.qps:g}qps",
            "flowsched.io/client": s.client,
        }
        status = granted(
            s.machine,
            profile=s.profile,
            p95_us=s.slo_us,
            qps=s.qps,
            client=s.client,
            width_milli=s.width_milli,
            threads=s.threads,
            cores=s.cores,
        )
        cpu, memory = f"{s.width_milli}m", f"{s.memory_mib}Mi"
        found.append(pod(s.name, cpu=cpu, memory=memory, annotations=notes, node=s.machine, status=status))
    for t in scenario.tasks:
        widths = ",".join(f"{w // 1000}" for w in t.widths_milli)
        notes = {"flowsched.io/profile": t.profile, "flowsched.io/widths": widths}
        memory = f"{t.memory_mib}Mi"
        found.append(pod(t.name, cpu=f"{t.request_milli}m", memory=memory, annotations=notes))
    return found


def as_posted(pod: Pod, scheduler: str) -> dict[str, Any]:
    """What a user would send for a pod."""
    body: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(pod))
    body["metadata"] = {k: body["metadata"][k] for k in ("name", "annotations")}
    body["spec"]["schedulerName"] = scheduler
    body["spec"]["containers"][0]["image"] = "test"
    del body["status"]
    return body


def bindings(state: SchedulerState, now_s: float) -> Mapping[str, tuple[str, int, tuple[int, ...]]]:
    given, _ = state.begin_round(now_s)
    assert given is not None
    result = plan_round(given, make_solver("ortools"))
    binds = [i for i in state.end_round(result, now_s) if isinstance(i, Bind)]
    for bind in binds:
        state.bindings.done(bind.pod, BindOutcome.BOUND, "", now_s)
    check_state(state)
    return {b.pod.name: (b.node, int(b.annotations[THREADS]), parse_cores(b.annotations[CORES])) for b in binds}


def test_pods_on_a_real_api_server_go_where_the_engine_says(plane: Plane, space: Space, tmp_path: Path) -> None:
    """The first round sees all pods: they come first, and it is asked how long they had waited by then."""
    admin = space.admin
    settings = Settings(objective="makespan")
    with running_scheduler(plane, tmp_path, start=False, engine={"objective": "makespan"}) as scheduler:
        for m in SCENARIO.machines:
            amounts = {"cpu": f"{m.cpu_milli}m", "memory": f"{m.memory_mib}Mi", "pods": "110"}
            labels = {**space.pool, **scheduler.pool, "flowsched.io/machine-type": m.type}
            admin.post(
                "/api/v1/nodes",
                {
                    "metadata": {"name": m.name, "labels": labels, "annotations": {"kwok.x-k8s.io/node": "fake"}},
                    "status": {"allocatable": amounts, "capacity": amounts},
                },
            )
        pods_of_it = [thing for thing in cluster(SCENARIO) if isinstance(thing, Pod)]
        bodies = [as_posted(thing, scheduler.name) for thing in pods_of_it]
        grants = {p.metadata.name: msgspec.to_builtins(c) for p in pods_of_it if (c := p.status.conditions)}

        def created_in_one_second() -> bool:
            """Like the scenario's tasks: what comes earlier goes earlier where costs are equal."""
            for name in [p["metadata"]["name"] for p in space.pods()]:
                space.delete_pod(name)
            made = [admin.post(space.pods_path, body) for body in bodies]
            for name, conditions in grants.items():
                admin.patch(f"{space.pods_path}/{name}/status", {"status": {"conditions": conditions}})
            return len({pod["metadata"]["creationTimestamp"] for pod in made}) == 1

        wait_for(created_in_one_second, "all pods to be created within one second")
        time.sleep(2.0)  # what is seen sooner than that after its second counts as made when it was seen
        scheduler.start()
        services = {s.name for s in SCENARIO.services}

        def first_round() -> Snapshot | None:
            if not any(p["spec"].get("nodeName") for p in space.pods() if p["metadata"]["name"] not in services):
                return None
            kept = json.loads(scheduler.answer("/debug/records"))["records"]
            file = tmp_path / "first.json"
            write_record(scheduler.record(min((str(k["round"]) for k in kept), key=int)), file)
            return load_snapshot(file)

        snapshot = wait_for(first_round, "a job's pod to be bound")
        assert len(snapshot.pending) == len(SCENARIO.tasks)
        (submitted_s,) = {t.submit_s for t in snapshot.pending}
        wanted = expected(SCENARIO, settings, snapshot.now_s - submitted_s)

        def bound() -> dict[str, dict[str, Any]]:
            found = {p["metadata"]["name"]: p for p in space.pods() if p["spec"].get("nodeName")}
            return found if len(found) >= len(wanted) + len(SCENARIO.services) else {}

        pods = wait_for(bound, "the first round's pods to be bound")
        notes = {name: pods[name]["metadata"]["annotations"] for name in wanted}
        assert wanted == {
            name: (pods[name]["spec"]["nodeName"], int(notes[name][THREADS]), parse_cores(notes[name][CORES]))
            for name in wanted
        }


@pytest.mark.parametrize("waited_s", [0.0, 3.0])
@pytest.mark.parametrize("objective", ["makespan", "completion"])
def test_the_same_snapshot_gives_the_same_decisions(objective: str, waited_s: float) -> None:
    settings = Settings(objective=objective)
    state = SchedulerState(Configuration(engine=settings), SCENARIO.catalogue)
    things = cluster(SCENARIO)
    # The pods are all created in the same instant, as the scenario's tasks are.
    now_s = seconds(things[-1].metadata.creation_timestamp) + waited_s
    state.observe([Seen(thing) for thing in things], now_s)
    state.activate()
    bound = bindings(state, now_s)
    assert bound == expected(SCENARIO, settings, waited_s)
    assert bound


def test_a_round_s_record_can_be_solved_again(tmp_path: Path) -> None:
    state = SchedulerState(Configuration(), SCENARIO.catalogue)
    things = [*cluster(SCENARIO), pod("plain", cpu="100m")]
    now_s = seconds(things[-1].metadata.creation_timestamp)
    state.observe([Seen(thing) for thing in things], now_s)
    state.activate()
    given, _ = state.begin_round(now_s)
    assert given is not None
    result = plan_round(given, make_solver("ortools"))
    assert result.trace is not None
    record = result.trace.record()
    assert [(p["prices"], p["priority"]) for p in record["parts"]] == [("forecast", 0), ("linear", 0)]
    services = {f"default/{s.name}" for s in SCENARIO.services}
    assert (
        set(record["titles"].values()) == {f"default/{t.name}" for t in SCENARIO.tasks} | {"default/plain"} | services
    )
    assert result.trace.pods == set(record["titles"].values()) - services
    file = tmp_path / "round.json"
    write_record(record, file)
    again = solve(load_snapshot(file))
    assert {p.task: p.machine for p in again.placements} == {
        p.task: p.machine for p in RecordView(record).parts[0].placements
    }
    write_record({**record, "parts": record["parts"][1:]}, file)
    with pytest.raises(InputError, match="no snapshot: what runs is known"):
        load_snapshot(file)


def test_a_class_that_cannot_be_planned_harms_no_other() -> None:
    state = SchedulerState(Configuration(), SCENARIO.catalogue)
    things = [*cluster(SCENARIO), pod("plain", cpu="100m")]
    now_s = seconds(things[-1].metadata.creation_timestamp)
    state.observe([Seen(thing) for thing in things], now_s)
    state.activate()
    given, _ = state.begin_round(now_s)
    assert given is not None
    # A relation that was not declared cannot come from the cache; it stands for whatever may go wrong in a round.
    poison = next(c for c in given.classes if c.name == "default/plain")
    given = replace(given, classes=tuple(replace(c, holds=("unknown",)) if c is poison else c for c in given.classes))
    with pytest.raises(KeyError):
        plan_round(replace(given, booked=given.booked.copy()), make_solver("ortools"))
    result = plan_apart(given, make_solver("ortools"))
    all_uids = {uid for c in given.classes for uid in c.uids}
    failed = [held for held in result.held if held.fate is Fate.ERROR]
    assert [held.uids for held in failed] == [poison.uids]
    assert {c.uid for c in result.chosen} | {uid for held in result.held for uid in held.uids} == all_uids
    assert len(result.chosen) >= 3
    out = state.end_round(result, now_s)
    check_state(state)
    [condition] = [i for i in out if isinstance(i, PatchCondition) and i.reason == "SchedulerError"]
    assert condition.pod.name == "plain"
    assert "KeyError" in condition.message
