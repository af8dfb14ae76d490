"""Rounds with a cost model beside flow: what an exported snapshot gives with `solve`, records, and what pods are told."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import objects_builders as b
import pytest
from consistency import check_state
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from model_scheduler import CATALOGUE, SOLVER, ModelScheduler
from model_server import ModelServer
from test_snapshot_decisions import APART, SITUATIONS, gang, job, nodes, read_back

from builders import any_of, read_anew
from flowsched.cluster.machine_arrays import FIXED
from flowsched.cluster.settings import Settings
from flowsched.inspector.change import parse_changes
from flowsched.inspector.explanation import explain
from flowsched.inspector.record_view import RecordView
from flowsched.inspector.replay import differences, replay
from flowsched.inspector.summary import render_summary
from flowsched.inspector.whatif import what_if
from flowsched.pricing.linear.policies import registry
from flowsched.records.record_file import pack_record, read_record
from flowsched.round.linear import choice
from flowsched.round.linear.network_scheduler import solve_network_round
from flowsched_k8s import names
from flowsched_k8s.causes import Wake
from flowsched_k8s.changes import Seen
from flowsched_k8s.configuration import cost_model
from flowsched_k8s.configuration.configuration import Configuration, CostModelChoice, Features
from flowsched_k8s.configuration.configuration_file import load_configuration
from flowsched_k8s.instructions import PatchCondition, PostEvent
from flowsched_k8s.objects import Node
from flowsched_k8s.pods.intent import read_intent
from flowsched_k8s.records.snapshot_export import snapshot_of
from flowsched_k8s.records.state_dump import dump, whole
from flowsched_k8s.rounds.planning import plan_apart, plan_round
from flowsched_k8s.rounds.round_input import Fate, RoundResult
from flowsched_models.document import InputError

ZONES = {"rack_label": names.ZONE, "machine_label": names.HOSTNAME}
MODELS = {
    "flow-network": CostModelChoice("flow-network"),
    "quincy": CostModelChoice("quincy", ZONES),
    "coco": CostModelChoice("coco"),
    "load-spreading": CostModelChoice("load-spreading"),
    "load-spreading by cores": CostModelChoice("load-spreading", {"count": "cores", "bucket": 0.5}),
    "shortest-job-first": CostModelChoice("shortest-job-first"),
    "trivial": CostModelChoice("trivial"),
}


def scheduler(model: CostModelChoice, *things: Any, **more: Any) -> ModelScheduler:
    """A scheduler that knows nodes, and hears of pods."""
    server = ModelServer()
    for thing in things:
        if isinstance(thing, Node):
            server.put(thing)
    running = ModelScheduler(server, Configuration(cost_model=model, **more))
    running.create(*(thing for thing in things if not isinstance(thing, Node)))
    return running


def both(running: ModelScheduler, folder: Path) -> tuple[Mapping[str, str], Mapping[str, str], RoundResult]:
    """Nodes by pod: by the exported snapshot, and by the next round; and the latter's result."""
    state = running.state
    model = state.configuration.cost_model
    snapshot, _ = snapshot_of(state, running.now)
    policy = choice.configured(model.name, model.settings)
    solved = solve_network_round(read_back(snapshot, folder), policy, settings=state.configuration.engine)
    assert running.begin()
    running.plan()
    result = running.result
    assert result is not None
    running.end()
    title = {e.key.uid: str(e.key) for e in state.cache.pods.values()}
    offered = {p.task: p.machine for p in solved.placements}
    decided = {title[c.uid]: c.node for c in result.chosen}
    assert {w.task for w in solved.postponements} == {title[uid] for held in result.held for uid in held.uids}
    return offered, decided, result


def notes(**said: str) -> dict[str, str]:
    return {f"{names.PREFIX}/{name.replace('_', '-')}": value for name, value in said.items()}


def prefers(zone: str) -> dict[str, Any]:
    return {"affinity": b.affinity(prefers=[(80, [b.requirement(names.ZONE, "In", zone)])])}


MORE: Mapping[str, list[Any]] = {
    "bulk": [
        *nodes(4),
        b.pod("there", cpu="500m", node="n1"),
        b.pod("little", cpu="50m", node="n2"),
        b.pod("nothing", cpu="0", node="n3"),
        *(b.pod(f"p{i}", cpu="300m", memory="100M") for i in range(12)),
        *(b.pod(f"q{i}", cpu="0") for i in range(6)),
    ],
    "neighbours": [
        *nodes(3, "8"),
        *(b.pod(f"d{i}", cpu="1", annotations=notes(interference_class="devil"), node=f"n{i}") for i in (1, 2)),
        *(b.pod(f"r{i}", cpu="1", annotations=notes(interference_class="rabbit")) for i in range(3)),
        *(b.pod(f"s{i}", cpu="1", annotations=notes(interference_class="sheep")) for i in range(5)),
    ],
    "input": [
        *nodes(4),
        *(
            b.pod(f"i{i}", cpu="1", annotations=notes(input="2Gi", input_at=f"{names.ZONE}=z{i % 2}:0.9"))
            for i in range(6)
        ),
    ],
    "wishes": [*nodes(4), *(b.pod(f"w{i}", cpu="700m", **prefers(f"z{i % 2}")) for i in range(6))],
    "filters": [
        *nodes(4),
        *(b.pod(f"f{i}", cpu="700m", nodeSelector={names.HOSTNAME: f"n{1 + i % 3}"}) for i in range(6)),
        *(b.pod(f"g{i}", cpu="700m", labels={"app": "web"}, **APART) for i in range(3)),
    ],
    "run times": [
        *nodes(1),
        *(b.pod(f"t{i}", cpu="1", annotations=notes(run_time=f"{10 * (7 - i)}s")) for i in range(7)),
    ],
}


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("situation", [*SITUATIONS, *MORE])
def test_an_exported_snapshot_gives_the_placements_of_the_next_round(
    situation: str, model: str, tmp_path: Path
) -> None:
    running = scheduler(MODELS[model], *({**SITUATIONS, **MORE}[situation]))
    offered, decided, _ = both(running, tmp_path)
    assert offered == decided
    running.answer_all()
    running.server.now += 7.25
    running.create(*(job(f"late-{i}", i, priority=i % 2) for i in range(4)), b.pod("later", cpu="100m"))
    running.server.now += 20.0  # No pod is behind a backoff any more.
    running.state.queue.wake(Wake.ANY, running.now)
    offered, decided, _ = both(running, tmp_path)
    assert offered == decided


@st.composite
def clusters(draw: st.DrawFn) -> list[Any]:
    """Nodes and pods, some of which run, with everything that a cost model looks at."""
    found: list[Any] = nodes(draw(st.integers(1, 4)), draw(any_of("2", "4", "8")))
    places = [n.metadata.name for n in found]
    for i in range(draw(st.integers(1, 10))):
        said: dict[str, str] = {}
        if draw(st.booleans()):
            said |= notes(interference_class=draw(any_of("devil", "rabbit", "sheep", "turtle")))
        if draw(st.booleans()):
            said |= notes(run_time=f"{draw(st.integers(1, 300))}s")
        if draw(st.booleans()):
            share = draw(any_of("0.2", "0.5", "1"))
            said |= notes(input="300Mi", input_at=f"{names.HOSTNAME}={draw(st.sampled_from(places))}:{share}")
        if draw(st.booleans()):
            said |= notes(profile=draw(any_of("canneal", "vips", "freqmine")))
        more: dict[str, Any] = draw(
            st.sampled_from(
                [{}, {}, prefers("z0"), prefers("z1"), APART, {"nodeSelector": {names.HOSTNAME: places[0]}}]
            )
        )
        labels = {"app": "web"} if draw(st.booleans()) else {}
        place = {"node": draw(st.sampled_from(places))} if draw(st.integers(0, 3)) == 0 else {}
        cpu, memory = draw(any_of("0", "300m", "1", "3")), draw(any_of("100Mi", "1500M"))
        priority = draw(any_of(0, 0, 50))
        if place:
            cpu, more = "100m", {}
        found.append(
            b.pod(f"p{i}", cpu=cpu, memory=memory, annotations=said, labels=labels, priority=priority, **place, **more)
        )
    return found


def account_of(running: ModelScheduler) -> RecordView | None:
    if not running.begin():
        return None
    running.plan()
    assert running.result is not None
    assert running.result.trace is not None
    record = running.result.trace.record()
    return RecordView(read_record(pack_record(record), "round.npz"), "round.npz")


@settings(max_examples=60)
@given(clusters(), st.sampled_from(sorted(MODELS)), st.integers(0, 700))
def test_any_cluster_gives_the_same_in_solve(things: list[Any], model: str, waited_s: int) -> None:
    # With no pod overdue: what a node drains for is decided apart.
    running = scheduler(MODELS[model], *things, engine=Settings(due_age_s=1000.0))
    running.server.now += waited_s
    assume(any(e.key in running.state.queue for e in running.state.cache.pods.values()))
    with TemporaryDirectory() as folder:
        offered, decided, _ = both(running, Path(folder))
    assert offered == decided
    running.answer_all()
    check_state(running.state)


@settings(max_examples=40)
@given(clusters(), st.sampled_from(sorted(MODELS)))
def test_any_round_is_replayed_changed_explained_and_told(things: list[Any], model: str) -> None:
    running = scheduler(MODELS[model], *things)
    recorded = account_of(running)
    assume(recorded is not None and recorded.parts)
    assert recorded is not None
    outcome = replay(recorded)
    assert outcome.same, outcome.lines()
    again = what_if(recorded, parse_changes(recorded))
    untimed = [[{k: v for k, v in p.plain.items() if k != "timings"} for p in a.parts] for a in (recorded, again)]
    assert [m.where for m in differences(*untimed)] == []
    name = MODELS[model].name
    assert recorded.policy == again.policy == name
    assert recorded.plain["cost_model"] == again.plain["cost_model"]
    assert recorded.plain["cost_model"]["name"] == name
    told = render_summary(recorded)
    assert f"policy {name}" in told
    for part in recorded.parts:
        for task in part.tasks:
            explained = explain(recorded, recorded.title(task))
            assert explained.lines()
            json.dumps(explained.plain(), allow_nan=False)


@settings(max_examples=30)
@given(clusters(), st.sampled_from(sorted(MODELS)), st.data())
def test_without_a_pod_a_round_is_that_of_a_cluster_that_never_had_it(
    things: list[Any], model: str, data: st.DataObject
) -> None:
    recorded = account_of(scheduler(MODELS[model], *things))
    waiting = [t for t in things if not isinstance(t, Node) and not t.spec.node_name]
    assume(recorded is not None and recorded.parts and len(waiting) > 1)
    assert recorded is not None
    gone = data.draw(st.sampled_from(waiting))
    expected = account_of(scheduler(MODELS[model], *(t for t in things if t is not gone)))
    assert expected is not None
    again = what_if(recorded, parse_changes(recorded, without=[f"default/{gone.metadata.name}"]))
    places = [{p.task: p.machine for part in a.parts for p in part.placements} for a in (again, expected)]
    assert len(places[0]) == len(places[1])


def test_a_setting_that_a_cost_model_does_not_read_is_refused() -> None:
    recorded = account_of(scheduler(MODELS["coco"], *nodes(1), b.pod("p")))
    assert recorded is not None
    for typed, told in (("slots=2", "not read by coco"), ("coco.growth=1", "what coco says is kept as it was")):
        with pytest.raises(InputError) as error:
            parse_changes(recorded, settings=[typed])
        (problem,) = error.value.problems
        assert problem.message.startswith(told)
        assert problem.help == "what is read: due_age_s, scoring"
    assert parse_changes(recorded, settings=["due_age_s=3", "scoring=pack"]).settings == ("due_age_s=3", "scoring=pack")


def test_pods_that_run_count_after_a_restart_as_before() -> None:
    """A scheduler that starts anew knows of them what the API server has, and decides as the one before it would have."""
    things = [*nodes(3, "8"), *(job(f"j{i}", i) for i in range(4))]
    things += [b.pod(f"d{i}", cpu="1", annotations=notes(interference_class="devil")) for i in range(4)]
    old = scheduler(MODELS["coco"], *things)
    old.settle()
    new = ModelScheduler(old.server, old.state.configuration)
    late = [b.pod(f"r{i}", cpu="1", annotations=notes(interference_class="rabbit")) for i in range(3)]
    for running in (old, new):
        running.observe([Seen(pod) for pod in late])
    found = [account_of(running) for running in (old, new)]
    parts = [a.parts[0].plain for a in found if a is not None]
    assert len(parts) == 2
    readings = parts[0]["fleet"]["readings"]
    assert readings.sum(axis=0).tolist()[3] >= 4 * FIXED, "four devils run, and jobs that may be more"
    assert (readings == parts[1]["fleet"]["readings"]).all()
    assert [p.machine for p in found[0].parts[0].placements] == [p.machine for p in found[1].parts[0].placements]  # type: ignore[union-attr]


def test_a_rabbit_keeps_away_from_devils_of_any_scheduler() -> None:
    things = [b.node("n1", "8"), b.node("n2", "8")]
    things += [b.pod("theirs", cpu="1", annotations=notes(interference_class="devil"), node="n1", scheduler="other")]
    things += [b.pod(f"s{i}", cpu="1", annotations=notes(interference_class="sheep"), node="n2") for i in range(2)]
    things += [b.pod("mine", cpu="1", annotations=notes(interference_class="rabbit"))]
    running = scheduler(MODELS["coco"], *things)
    (bind,) = running.round()
    assert bind.node == "n2"
    told = json.loads(bind.annotations[names.PLACEMENT])
    assert told["terms"] == {"beside_sheep": pytest.approx(2 * 75.0 / 8)}


def test_data_attracts_and_what_is_short_goes_first() -> None:
    near = notes(input="1000M", input_at=f"{names.HOSTNAME}=n3:1")
    running = scheduler(
        CostModelChoice("quincy", {**ZONES, "waiting": 1e6}), *nodes(3), b.pod("a", cpu="1", annotations=near)
    )
    (bind,) = running.round()
    assert bind.node == "n3"
    short, long = notes(run_time="15s"), notes(run_time="1h")
    running = scheduler(
        MODELS["shortest-job-first"],
        b.node("n1", "1"),
        b.pod("a", cpu="1", annotations=long),
        b.pod("b", cpu="1", annotations=short),
    )
    (bind,) = running.round()
    assert bind.pod.name == "b"


def test_what_a_cost_model_does_not_look_at_is_said_once() -> None:
    said = notes(
        goal="5m", min_utility="0.5", interference_class="wolf", run_time="1m", input="1Gi", input_at="rack=r1:1"
    )

    def told(model: CostModelChoice) -> str:
        running = scheduler(model, b.node("n1", "4"), b.pod("p", cpu="1", annotations=said))
        (bind,) = running.round()
        assert bind.node == "n1"
        running.round()
        (event,) = [e for e in running.told if isinstance(e, PostEvent) and e.reason == names.FAILED_SCHEDULING]
        return event.note

    assert told(MODELS["coco"]) == (
        "flowsched.io/goal has no effect: the cost model is coco, and flow is the one that reads it; "
        "flowsched.io/min-utility has no effect: the cost model is coco, and flow is the one that reads it; "
        "flowsched.io/run-time has no effect: the cost model is coco, and flow and shortest-job-first are those that read "
        "it; "
        "flowsched.io/input has no effect: the cost model is coco, and quincy is the one that reads it; "
        "flowsched.io/input-at has no effect: the cost model is coco, and quincy is the one that reads it; "
        "flowsched.io/interference-class: 'wolf' is not a class of the cost model coco; known: turtle, sheep, rabbit, devil"
    )
    assert "flowsched.io/interference-class has no effect: the cost model is flow, and coco is" in told(
        CostModelChoice()
    )
    assert told(CostModelChoice("quincy", {**ZONES, "waiting": 1e9})).endswith(
        "flowsched.io/input-at: the cost model quincy looks at the labels topology.kubernetes.io/zone (rack_label) and "
        "kubernetes.io/hostname (machine_label), not at rack"
    )


@pytest.mark.parametrize(
    ("value", "says"),
    [
        ({"input_at": "zone"}, "'zone' is not a place with a share of the input; write it as LABEL=VALUE:SHARE"),
        ({"input_at": "a=b:2"}, "'2' is out of range; give a number from 0 to 1"),
        ({"input_at": "a=b:0.1, a=b:0.2"}, "'a=b' stands twice"),
        ({"input": "much"}, "'much' is not a size; write it as 20Gi or 500M"),
        ({"input": "-1"}, "an input of '-1' is not between 0 and 1P"),
        ({"interference_class": "big devil"}, "'big devil' is not a class of neighbours; write one word"),
        ({"run_time": "soon"}, "'soon' is not a duration"),
        ({"run_time": "0s"}, "a run time of '0s' is not between 0.1s and 720h"),
    ],
)
def test_annotations_that_cannot_be_read_are_told(value: dict[str, str], says: str) -> None:
    (problem,) = read_intent(b.pod("p", annotations=notes(**value)), CATALOGUE).problems
    assert says in problem


def test_pods_that_no_model_places_hear_the_usual_words() -> None:
    running = scheduler(MODELS["load-spreading"], b.node("n1", "2"), b.pod("p", cpu="3"), *gang("g", 2, 2, cpu="2"))
    assert not running.round()
    said = {t.pod.name: t.message for t in running.told if isinstance(t, PatchCondition)}
    assert said["p"] == "0/1 nodes are available: 1 Insufficient cpu."
    assert said["g-0"].endswith("group default/g: 1 of 2 could be placed")


def test_a_dear_place_is_worse_than_waiting_and_the_pod_hears_it() -> None:
    model = CostModelChoice("coco", {"waiting": 10.0, "growth": 0.0})
    devil = notes(interference_class="devil")
    running = scheduler(model, b.node("n1", "4"), b.pod("d", cpu="1", annotations=devil, node="n1"))
    running.create(b.pod("r", cpu="1", annotations=notes(interference_class="rabbit")))
    assert not running.round()
    (event,) = [t for t in running.told if isinstance(t, PostEvent) and t.reason == names.POSTPONED]
    assert "250" in event.note


def test_room_that_is_held_and_nodes_that_drain_are_left_alone() -> None:
    """One pod is overdue and wants all of a node: what came later stays away from the node that drains for it."""
    model = MODELS["trivial"]
    running = scheduler(model, *nodes(2, "4"), engine=Settings(due_age_s=60.0))
    jobs = (b.pod(f"s{i}", cpu="1", node=f"n{1 + i % 2}", restartPolicy="Never") for i in range(2))
    running.create(*jobs, b.pod("wide", cpu="4"))
    running.round()
    running.server.now += 400.0
    running.state.queue.wake(Wake.ANY, running.now)
    running.round()
    running.create(*(b.pod(f"late{i}", cpu="2") for i in range(2)))
    running.server.now += 20.0
    running.state.queue.wake(Wake.ANY, running.now)
    bound = {bind.pod.name: bind.node for bind in running.round()}
    assert len(bound) == 1
    held = whole(dump(running.state, running.now))["held_nodes"]
    assert held is not None
    assert not set(held["pods"].values()) & set(bound.values())


def test_preemption_makes_room_with_any_cost_model() -> None:
    features = Features(preemption=True)
    running = scheduler(MODELS["coco"], b.node("n1", "4"), b.pod("low", cpu="3", node="n1"), features=features)
    running.create(b.pod("high", cpu="3", priority=100))
    assert not running.round()
    assert [key.name for key in running.victims] == ["low"]
    running.create(b.pod("other", cpu="1", priority=50))
    while running.victims:
        running.evict()
    running.server.now += 1.0
    running.settle()
    assert running.state.cache.pods


def test_a_service_that_waits_is_placed_where_its_goal_is_kept() -> None:
    said = {
        names.PROFILE: "memcached",
        names.WORKLOAD_CLASS: "latency-sensitive",
        names.SLO: "p95=1ms@30000qps",
    }
    for model in MODELS.values():
        running = scheduler(model, *nodes(2), b.pod("cache", cpu="1", memory="64Mi", annotations=said), job("j", 0))
        places = {bind.pod.name for bind in running.round()}
        assert "cache" in places or model.name == "quincy"


RENT = """
from dataclasses import dataclass

import numpy as np

from flowsched.pricing.linear.policy import ClassPrices


@dataclass(frozen=True)
class Rent:
    \"\"\"Cheap nodes first.\"\"\"

    factor: float = 1.0
    name = "rent"
    features = ()
    labels = ("hourly",)

    def factors(self, kind):
        return ()

    def price(self, task_class, kinds):
        hourly = np.array([float(kind.label("hourly", "1.0")) for kind in kinds])
        return ClassPrices(self.factor * hourly, np.zeros(0), np.zeros(0), 100.0, 1.0)
"""


def test_a_cost_model_of_another_package_sees_the_labels_that_it_asks_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "vendor_rent.py").write_text(RENT)
    about = tmp_path / "vendor-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: vendor\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text("[flowsched.policies]\nrent = vendor_rent:Rent\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    known = read_anew(registry.COST_MODELS)
    for module in (registry, choice, cost_model):
        monkeypatch.setattr(module, "COST_MODELS", known)
    file = tmp_path / "config.yaml"
    header = f"apiVersion: {names.CONFIG_VERSION}\nkind: {names.CONFIG_KIND}\n"
    file.write_text(f"{header}costModel: {{name: rent, factor: 2}}\n")
    model = load_configuration(file).cost_model
    dear, cheap = (b.node(name, "4", labels={"hourly": price}) for name, price in (("n1", "0.9"), ("n2", "0.25")))
    running = scheduler(model, dear, cheap, *(b.pod(f"p{i}", cpu="3") for i in range(2)))
    offered, decided, result = both(running, tmp_path)
    assert offered == decided
    assert sorted((c.node, c.cost) for c in result.chosen) == [("n1", 1.8), ("n2", 0.5)]
    assert result.trace is not None
    record = read_record(pack_record(result.trace.record()), "round.npz")
    assert record["cost_model"] == {"name": "rent", "settings": {"factor": 2}}
    recorded = RecordView(record, "round.npz")
    # The prices are in the record; only another width needs to ask for new ones.
    for module in (registry, choice, cost_model):
        monkeypatch.setattr(module, "COST_MODELS", read_anew(registry.COST_MODELS))
    monkeypatch.setattr("flowsched.support.registry.entry_points", lambda **_: ())
    assert replay(recorded).same
    with pytest.raises(InputError, match="there is no policy 'rent'"):
        what_if(recorded, parse_changes(recorded, width=["default/p0=1"]))


def test_what_cannot_be_planned_harms_no_other_and_is_replayed() -> None:
    running = scheduler(
        MODELS["coco"], *nodes(3), b.pod("bad", cpu="1500m"), *(b.pod(f"p{i}", cpu=f"{i + 1}") for i in range(3))
    )
    assert running.begin()
    assert running.given is not None
    poison = next(c for c in running.given.classes if c.name == "default/bad")
    classes = tuple(replace(c, holds=("unknown",)) if c is poison else c for c in running.given.classes)
    broken = replace(running.given, classes=classes)
    with pytest.raises(KeyError):
        plan_round(replace(broken, booked=broken.booked.copy()), SOLVER)
    result = plan_apart(broken, SOLVER)
    assert [held.uids for held in result.held if held.fate is Fate.ERROR] == [poison.uids]
    assert len(result.chosen) == 3
    assert result.trace is not None
    recorded = RecordView(read_record(pack_record(result.trace.record()), "round.npz"), "round.npz")
    assert [p.plain["given"]["decision"] for p in recorded.parts] == [0, 1, 2]
    assert replay(recorded).same
    assert len(what_if(recorded, parse_changes(recorded)).parts) == 3


def test_room_that_preemption_makes_is_for_the_pod_that_it_is_made_for() -> None:
    """With room held, priorities are decisions of their own: the record has them one by one, and each is replayed."""
    low = b.pod("low", cpu="3", node="n1", deleting=True)
    high = b.pod("high", cpu="3", priority=100, status={"phase": "Pending", "nominatedNodeName": "n1"})
    running = scheduler(MODELS["load-spreading"], b.node("n1", "4"), b.node("n2", "1"), low, high)
    running.create(*(b.pod(f"p{i}", cpu="1") for i in range(2)))
    recorded = account_of(running)
    assert recorded is not None
    assert [(p.priority, p.plain["given"]["decision"]) for p in recorded.parts] == [(100, 0), (0, 1)]
    assert not recorded.parts[0].placements, "the pod that makes room for it has not gone yet"
    assert [p.machine for p in recorded.parts[1].placements] == ["n2"], "the room on the other node is held for it"
    assert replay(recorded).same
