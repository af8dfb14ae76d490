"""An exported snapshot, solved, gives what the next round of the scheduler gives; and no number of pods is too many."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import objects_builders as b
import pytest
import yaml
from model_scheduler import SOLVER, ModelScheduler
from test_state import scheduler

from flowsched.cluster.run_time_errors import RunTimeErrors
from flowsched.cluster.snapshot import Snapshot
from flowsched.cluster.snapshot_dump import dump_snapshot
from flowsched.records.snapshot_source import load_snapshot
from flowsched.round.scheduler import solve
from flowsched_k8s import names
from flowsched_k8s.causes import Cause, Wake
from flowsched_k8s.groups.pod_groups import MINIMUM_LABEL, NAME_LABEL
from flowsched_k8s.instructions import PatchCondition
from flowsched_k8s.objects import Node
from flowsched_k8s.records.snapshot_export import snapshot_of
from flowsched_k8s.rounds.planning import make_engine, plan_round
from flowsched_k8s.rounds.round_input import Fate, RoundResult
from flowsched_models.profiles import load_catalogue

PROFILES = sorted(load_catalogue().jobs)
WEB = b.selector(app="web")
APART: dict[str, Any] = {"affinity": b.affinity(apart=[b.pod_term(names.HOSTNAME, WEB)])}
NEAR: dict[str, Any] = {"affinity": b.affinity(near=[b.pod_term(names.ZONE, b.selector(app="cache"))])}
GPU = "example/gpu"


def job(name: str, number: int = 0, cpu: str = "2", widths: str = "1,2,4", **more: Any) -> Any:
    notes = {names.PROFILE: PROFILES[number % len(PROFILES)], names.WIDTHS: widths}
    return b.pod(name, cpu=cpu, memory="64Mi", annotations=notes, **more)


def nodes(count: int = 3, cpu: str = "4") -> list[Any]:
    return [b.node(f"n{i}", cpu, zone=f"z{i % 2}") for i in range(1, count + 1)]


def service(name: str, place: str) -> Any:
    notes = {
        names.PROFILE: "memcached",
        names.WORKLOAD_CLASS: "latency-sensitive",
        names.SLO: "p95=1ms@30000qps",
    }
    return b.pod(name, cpu="1", memory="64Mi", annotations=notes, node=place, status=b.granted(place))


def gang(name: str, members: int, minimum: int, **more: Any) -> list[Any]:
    labels = {NAME_LABEL: name, MINIMUM_LABEL: str(minimum)}
    return [job(f"{name}-{i}", i, labels=labels, **more) for i in range(members)]


DUMPER = getattr(yaml, "CSafeDumper", yaml.SafeDumper)


def read_back(snapshot: Snapshot, folder: Path) -> Snapshot:
    file = folder / "snapshot.yaml"
    file.write_text(yaml.dump(dump_snapshot(snapshot), Dumper=DUMPER, sort_keys=False))
    return load_snapshot(file)


def both(running: ModelScheduler, folder: Path) -> tuple[Mapping[str, Any], Mapping[str, Any], RoundResult]:
    """Decisions about measured pods by the exported snapshot, and by the next round; and the latter's result."""
    state = running.state
    snapshot, _ = snapshot_of(state, running.now)
    solved = solve(read_back(snapshot, folder), settings=state.configuration.engine)
    assert running.begin()
    running.plan()
    result = running.result
    assert result is not None
    running.end()
    title = {e.key.uid: str(e.key) for e in state.cache.pods.values()}
    offered: dict[str, Any] = {
        p.task: (p.machine, p.width_milli, p.threads, p.cores, p.cost, dict(p.terms)) for p in solved.placements
    }
    offered |= {p.task: (p.machine, p.slot) for w in solved.postponements if (p := w.planned) is not None}
    decided: dict[str, Any] = {
        title[c.uid]: (c.node, c.width_milli, c.threads, c.cores, c.cost, dict(c.terms)) for c in result.chosen
    }
    decided |= {title[p.task]: (p.machine, p.slot) for p in result.plan}
    reasons = {w.task: w.reason for w in solved.postponements}
    for held in result.held:
        for uid in held.uids:
            if held.fate is Fate.POSTPONED:
                assert held.message.startswith(f"postponed: {reasons[title[uid]]} (waiting costs ")
            assert title[uid] in reasons
    return offered, decided, result


SITUATIONS: Mapping[str, list[Any]] = {
    "services": [*nodes(), service("cache", "n1"), *(job(f"j{i}", i) for i in range(9))],
    "anti-affinity": [
        *nodes(),
        b.pod("theirs", cpu="100m", labels={"app": "web"}, node="n2"),
        *(job(f"j{i}", i, labels={"app": "web"}, **APART) for i in range(4)),
    ],
    "spread": [
        *nodes(4),
        # A domain that the spread compares and where none of its pods may go: at most one in each other zone.
        b.node("closed", "4", zone="z9", taints=[b.taint("only", "others")]),
        b.pod("theirs", cpu="100m", labels={"app": "web"}, node="n1"),
        *(
            job(f"j{i}", i, labels={"app": "web"}, topologySpreadConstraints=[b.spread(names.ZONE, WEB)])
            for i in range(6)
        ),
    ],
    "affinity": [
        *nodes(4),
        b.pod("near", cpu="100m", labels={"app": "cache"}, node="n2"),
        *(job(f"j{i}", i, **NEAR) for i in range(5)),
    ],
    "gangs": [*nodes(2), *gang("small", 3, 3), *gang("large", 9, 9, cpu="2"), job("alone", 3)],
    "priorities": [*nodes(2), *(job(f"j{i}", i, priority=10 * (i % 3)) for i in range(10))],
    "extended resources": [
        b.node("g1", "8", resources={GPU: "2"}),
        *nodes(2),
        *(job(f"j{i}", i, containers=[b.container("main", "1", "64Mi", example__gpu="1")]) for i in range(3)),
        *(job(f"k{i}", i) for i in range(3)),
    ],
}


@pytest.mark.parametrize("situation", SITUATIONS)
def test_an_exported_snapshot_gives_the_decisions_of_the_next_round(situation: str, tmp_path: Path) -> None:
    things = SITUATIONS[situation]
    running = scheduler(*(t for t in things if isinstance(t, Node)))
    running.create(*(t for t in things if not isinstance(t, Node)))
    offered, decided, _ = both(running, tmp_path)
    assert offered == decided
    assert any(isinstance(d, tuple) for d in offered.values())
    # Once some of them run, with progress, and others have come, both still agree.
    running.answer_all()
    running.server.now += 7.25
    running.create(*(job(f"late-{i}", i, priority=i % 2) for i in range(4)))
    running.server.now += 20.0  # No pod is behind a backoff any more.
    running.state.queue.wake(Wake.ANY, running.now)
    offered, decided, _ = both(running, tmp_path)
    assert offered == decided
    assert offered


def test_a_pod_that_runs_longer_than_forecast_is_estimated_by_the_stated_error(tmp_path: Path) -> None:
    running = scheduler(*nodes(2))
    running.create(*(job(f"j{i}", i) for i in range(2)))
    running.round()
    running.answer_all()
    running.server.now += 5000.0
    running.create(*(job(f"late-{i}", i) for i in range(4)))
    running.state.queue.wake(Wake.ANY, running.now)
    snapshot, _ = snapshot_of(running.state, running.now)
    offered, decided, _ = both(running, tmp_path)

    assert offered == decided and offered
    assert len(snapshot.running) == 2 and snapshot.run_time_errors == RunTimeErrors()
    for r in snapshot.running:
        length = RunTimeErrors().length(r.progress, snapshot.catalogue.jobs[r.task.profile].error)
        assert r.progress > 2.0 and snapshot.estimate(r.task, r.progress).done == pytest.approx(r.progress / length)


def test_relations_groups_and_resources_hold_in_what_the_engine_decides() -> None:
    running = scheduler(*(t for t in SITUATIONS["anti-affinity"] if isinstance(t, Node)))
    running.create(*(t for t in SITUATIONS["anti-affinity"] if not isinstance(t, Node)))
    bound = {bind.pod.name: bind.node for bind in running.round()}
    assert sorted(bound.values()) == ["n1", "n3"], "one on each node, and none beside the pod that is there"
    (waiting,) = {told.message for told in running.told if isinstance(told, PatchCondition)}
    assert waiting == f"0/3 nodes are available: 3 {names.POD_ANTI_AFFINITY}."

    running = scheduler(*(t for t in SITUATIONS["gangs"] if isinstance(t, Node)))
    running.create(*(t for t in SITUATIONS["gangs"] if not isinstance(t, Node)))
    running.begin()
    running.plan()
    assert running.result is not None
    bound = {c.uid: c.node for c in running.result.chosen}
    assert {uid.rsplit("-", 1)[0] for uid in bound if "small" in uid} == {"small-0", "small-1", "small-2"}
    assert not any("large" in uid for uid in bound)
    held = [h for h in running.result.held if Cause.GROUP in h.causes]
    assert sum(len(h.uids) for h in held) == 9
    assert {h.message.rsplit(": ", 1)[1].split(" ", 1)[1] for h in held} == {"of 9 could be placed"}
    assert all("group default/large: " in h.message and h.fate is Fate.UNSCHEDULABLE for h in held)

    running = scheduler(*(t for t in SITUATIONS["extended resources"] if isinstance(t, Node)))
    running.create(*(t for t in SITUATIONS["extended resources"] if not isinstance(t, Node)))
    bound = {bind.pod.name: bind.node for bind in running.round()}
    assert {bound[name] for name in bound if name.startswith("j")} == {"g1"}
    assert sum(name.startswith("j") for name in bound) == 2


@pytest.mark.parametrize("count", [1, 12, 13, 14, 30])
def test_every_measured_pod_is_priced_by_forecasts(count: int) -> None:
    """No number of waiting pods is a cliff: all have prices of forecasts, threads and cores, and may wait on purpose."""
    running = scheduler(*nodes(4, "8"))
    running.create(*(job(f"j{i}", i) for i in range(count)))
    assert running.begin()
    running.plan()
    result = running.result
    assert result is not None
    assert {uid for c in result.chosen for uid in [c.uid]}.isdisjoint(uid for h in result.held for uid in h.uids)
    assert len(result.chosen) + sum(len(h.uids) for h in result.held) == count
    assert result.chosen
    for chosen in result.chosen:
        assert chosen.threads is not None
        assert chosen.cores
        assert chosen.width_milli is not None
        assert chosen.terms["run_time"] > 0.0
    for held in result.held:
        assert held.fate is Fate.POSTPONED or held.message.startswith("0/4 nodes are available")
    assert result.trace is not None
    (part,) = result.trace.record()["parts"]
    assert {entry["task"] for entry in part["decided_by"]} >= {c.uid for c in result.chosen}


def test_the_engine_is_kept_and_decides_the_same_as_a_new_one() -> None:
    running = scheduler(*nodes(3))
    running.create(*(job(f"j{i}", i) for i in range(9)))
    given, _ = running.state.begin_round(running.now)
    assert given is not None
    kept = make_engine(given.settings, SOLVER)
    first, again = (plan_round(replace(given, booked=given.booked.copy()), SOLVER, kept) for _ in range(2))
    fresh = plan_round(given, SOLVER)
    assert first.chosen == again.chosen == fresh.chosen
    assert first.plan == again.plan == fresh.plan


def test_a_lower_priority_leaves_alone_what_a_higher_one_has_planned() -> None:
    """The pod between them is at linear prices, so that the engine decides twice."""
    running = scheduler(b.node("n1", "4"))
    running.create(job("runs", cpu="3", widths="3"))
    running.settle()
    running.create(
        job("urgent", cpu="4", widths="4", priority=20),
        b.pod("between", cpu="2", priority=10),
        job("late", cpu="1", widths="1"),
    )
    assert running.begin()
    running.plan()
    assert running.result is not None
    assert [(p.task.split("-")[0], p.machine) for p in running.result.plan] == [("urgent", "n1")]
    assert not running.result.chosen
