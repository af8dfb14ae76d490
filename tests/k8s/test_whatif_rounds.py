"""What if and replay on rounds that go priority by priority, searches and bulk rounds in turn: a part that is solved again
sees what the parts before it place now.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import objects_builders as b
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from builders import any_of
from flowsched.cluster.settings import Settings
from flowsched.inspector.change import parse_changes
from flowsched.inspector.difference import difference
from flowsched.inspector.record_view import RecordView
from flowsched.inspector.replay import differences, replay
from flowsched.inspector.whatif import WHAT_IF, what_if
from flowsched.records.record_file import pack_record, read_record
from flowsched.solvers import make_solver
from flowsched_k8s import names
from flowsched_k8s.changes import Seen
from flowsched_k8s.configuration.configuration import Configuration
from flowsched_k8s.rounds.planning import plan_apart, plan_round
from flowsched_k8s.state import SchedulerState
from flowsched_models.profiles import load_catalogue

CATALOGUE = load_catalogue()
SOLVER = make_solver("ortools")
NOW_S = 1767225610.0
"""Ten seconds after all pods came: none is overdue."""
LATE_S = 2e9
"""All pods are: the one that is for longest goes before others of its priority."""
PROFILES = ("canneal", "vips", "freqmine")


@dataclass(frozen=True)
class Wish:
    """A pod."""

    name: str
    cpu: str
    memory: str
    priority: int
    profile: str | None
    node: str | None = None
    replica_of: str | None = None


@dataclass(frozen=True)
class Cluster:
    """Nodes of one type by name and CPU, and pods."""

    nodes: tuple[tuple[str, str], ...]
    pods: tuple[Wish, ...]


@st.composite
def clusters(draw: st.DrawFn, replicas: bool = False) -> Cluster:
    """``replicas``: some pods are those of two workloads, which are priced by how many of them wait."""
    nodes = tuple(
        (f"n{i}", cpu) for i, cpu in enumerate(draw(st.lists(st.sampled_from("248"), min_size=1, max_size=4)))
    )
    pods = []
    for i in range(draw(st.integers(1, 7))):
        wish = Wish(
            f"p{i}",
            draw(any_of("300m", "1", "2", "3")),
            draw(any_of("100Mi", "3000000Ki", "1500M")),
            draw(any_of(0, 50, 100)),
            draw(any_of(None, None, *PROFILES)),
            replica_of=draw(any_of(None, "a", "b")) if replicas else None,
        )
        if draw(st.integers(0, 4)) == 0:
            wish = replace(wish, node=draw(st.sampled_from(nodes))[0], cpu="300m")
        pods.append(wish)
    return Cluster(nodes, tuple(pods))


def account_of(
    cluster: Cluster, apart: bool = False, engine: Settings | None = None, now_s: float = NOW_S
) -> RecordView:
    """The record of the cluster's round."""
    things: list[Any] = [b.node(name, cpu=cpu, memory="32Gi") for name, cpu in cluster.nodes]
    for p in cluster.pods:
        notes = {} if p.profile is None else {names.PROFILE: p.profile, names.WIDTHS: "1,2"}
        more: dict[str, Any] = {} if p.node is None else {"node": p.node}
        if p.replica_of is not None:
            more["owner"] = ("ReplicaSet", p.replica_of)
        things.append(b.pod(p.name, cpu=p.cpu, memory=p.memory, priority=p.priority, annotations=notes, **more))
    state = SchedulerState(Configuration(engine=engine or Settings()), CATALOGUE)
    state.observe([Seen(thing) for thing in things], now_s)
    state.activate()
    given, _ = state.begin_round(now_s)
    if given is None:
        return RecordView({"parts": []})
    result = (plan_apart if apart else plan_round)(given, SOLVER)
    assert result.trace is not None
    record = result.trace.record()
    return RecordView(read_record(pack_record(record), "round.npz"), "round.npz")


def decided(recorded: RecordView) -> dict[str, Any]:
    """Where every pod goes and at what cost, or that it waits."""
    placed = {p.task: (p.machine, p.width_milli, p.cost) for part in recorded.parts for p in part.placements}
    return placed | {w.task: None for part in recorded.parts for w in part.waiting}


def untimed(recorded: RecordView) -> list[dict[str, Any]]:
    return [{k: v for k, v in part.plain.items() if k != "timings"} for part in recorded.parts]


def after(recorded: RecordView, **options: Any) -> RecordView:
    return what_if(recorded, parse_changes(recorded, **options))


@settings(max_examples=30)
@given(clusters(replicas=True), st.booleans(), any_of(NOW_S, LATE_S))
def test_nothing_changed_is_the_same_round_to_the_bit(cluster: Cluster, apart: bool, now_s: float) -> None:
    recorded = account_of(cluster, apart, now_s=now_s)
    assume(recorded.parts)
    outcome = replay(recorded)
    assert outcome.same, outcome.lines()
    again = after(recorded)
    assert [m.where for m in differences(untimed(recorded), untimed(again))] == []
    assert difference(recorded, again).same


@settings(max_examples=40)
@given(clusters(), st.data())
def test_without_a_pod_the_round_is_that_of_a_cluster_that_never_had_it(cluster: Cluster, data: st.DataObject) -> None:
    pending = [p for p in cluster.pods if p.node is None]
    assume(pending)
    gone = data.draw(st.sampled_from(pending))
    expected = account_of(replace(cluster, pods=tuple(p for p in cluster.pods if p is not gone)))
    again = after(account_of(cluster), without=[f"default/{gone.name}"])
    assert decided(again) == decided(expected)


@settings(max_examples=40)
@given(clusters(), any_of(NOW_S, LATE_S), st.data())
def test_without_an_idle_node_the_round_is_that_of_a_cluster_that_never_had_it(
    cluster: Cluster, now_s: float, data: st.DataObject
) -> None:
    used = {p.node for p in cluster.pods}
    idle = [n for n in cluster.nodes if n[0] not in used]
    assume(idle and len(cluster.nodes) > 1 and any(p.node is None for p in cluster.pods))
    gone = data.draw(st.sampled_from(idle))
    expected = account_of(replace(cluster, nodes=tuple(n for n in cluster.nodes if n is not gone)), now_s=now_s)
    again = after(account_of(cluster, now_s=now_s), drain=[gone[0]])
    assert decided(again) == decided(expected)
    assert gone[0] not in again.plain["machines"]


@settings(max_examples=40)
@given(clusters(), any_of(NOW_S, LATE_S), st.data())
def test_with_another_node_the_round_is_that_of_a_cluster_that_has_it(
    cluster: Cluster, now_s: float, data: st.DataObject
) -> None:
    used = {p.node for p in cluster.pods}
    idle = [n for n in cluster.nodes if n[0] not in used]
    assume(idle and any(p.node is None for p in cluster.pods))
    like = data.draw(st.sampled_from(idle))
    expected = account_of(replace(cluster, nodes=(*cluster.nodes, ("new", like[1]))), now_s=now_s)
    again = after(account_of(cluster, now_s=now_s), add_machine=[f"{like[0]}:new"])
    assert decided(again) == decided(expected)
    assert again.plain["machines"] == expected.plain["machines"]
    assert [m.where for m in differences(again.plain["filters"], expected.plain["filters"])] == []


def mixed() -> RecordView:
    """Two nodes; what is urgent fills one of them, what is not finds room on what is left."""
    return account_of(
        Cluster(
            (("n1", "4"), ("n2", "4")),
            (
                Wish("urgent-job", "2", "1Gi", 100, "canneal"),
                Wish("urgent", "3", "1Gi", 100, None),
                Wish("job", "2", "1Gi", 0, "vips"),
                Wish("plain", "1", "1Gi", 0, None),
                Wish("running-job", "300m", "1Gi", 0, "freqmine", "n1"),
                Wish("running", "300m", "1Gi", 0, None, "n2"),
            ),
        )
    )


def test_parts_are_searches_and_bulk_rounds_in_turn() -> None:
    assert [(p.prices, p.priority) for p in mixed().parts] == [
        ("forecast", 100),
        ("linear", 100),
        ("forecast", 0),
        ("linear", 0),
    ]


def test_the_pod_that_is_overdue_for_longest_goes_first_and_its_room_is_taken() -> None:
    wishes = (
        Wish("a-plain", "3", "1Gi", 0, None),
        Wish("job", "2", "1Gi", 0, "vips"),
        Wish("plain", "1", "1Gi", 0, None),
    )
    recorded = account_of(Cluster((("n1", "4"),), wishes), now_s=LATE_S)
    assert [(p.prices, p.priority) for p in recorded.parts] == [("linear", 0), ("forecast", 0), ("linear", 0)]
    assert {task for task, at in decided(recorded).items() if at is None} == {"uid-default-job"}
    again = after(recorded, without=["default/a-plain"])
    assert "who is overdue for longest goes first" in "".join(again.plain["what_if"]["notes"])


def test_settings_of_the_scheduler_reach_bulk_rounds() -> None:
    cluster = Cluster((("n1", "4"),), (Wish("plain", "1", "1Gi", 0, None),))
    for engine in (Settings(), Settings(scoring="pack", resolves=1)):
        (part,) = account_of(cluster, engine=engine).parts
        used = part.plain["given"]["settings"]
        assert (used["scoring"], used["resolves"]) == (engine.scoring, engine.resolves)
        assert not used["reservations"]


def test_without_a_pod_that_runs_its_room_is_free_for_searches_and_bulk_rounds() -> None:
    recorded = mixed()
    again = after(recorded, without=["default/running-job"])
    boards = [dict(zip(p.machines, p.plain["fleet"]["free"].tolist(), strict=True)) for p in again.parts[1::2]]
    before = [dict(zip(p.machines, p.plain["fleet"]["free"].tolist(), strict=True)) for p in recorded.parts[1::2]]
    cpu = recorded.parts[1].plain["fleet"]["resources"].index("cpu")
    moved = sum(placed[2] != 0 for placed in decided(recorded).values() if placed)
    assert moved
    assert boards[0]["n1"][cpu] - before[0]["n1"][cpu] in (300, 300 + 2000, 300 - 2000)
    assert not any(r["task"]["name"].endswith("running-job") for r in again.parts[0].plain["snapshot"]["running"])
    assert any("computed from its profile" in note for note in again.plain[WHAT_IF]["notes"])


def test_measured_pods_on_a_drained_node_wait_with_the_lowest_priority() -> None:
    recorded = mixed()
    again = after(recorded, drain=["n1"])
    (home,) = [part for part in again.parts if any(task.endswith("running-job") for task in part.tasks)]
    assert (home.prices, home.priority) == ("forecast", 0)
    assert all(machine == "n2" for machine, _, _ in filter(None, decided(again).values()))
    assert replay(again).same
    lines = difference(recorded, again).lines()
    assert any("default/running-job" in line and "it ran" in line for line in lines)


def test_another_width_of_an_urgent_pod_reaches_later_parts() -> None:
    recorded = mixed()
    again = after(recorded, width=["default/urgent=1"])
    _, bulk, search, _ = again.parts
    (urgent,) = bulk.placements
    assert urgent.width_milli == 1000
    cpu = {m["name"]: m["cpu"] for m in search.plain["snapshot"]["machines"]}
    old = {m["name"]: m["cpu"] for m in recorded.parts[2].plain["snapshot"]["machines"]}
    assert sum(map(_milli, cpu.values())) - sum(map(_milli, old.values())) == 2000


@settings(max_examples=20)
@given(clusters())
def test_what_runs_is_counted_once_however_many_searches_see_it(cluster: Cluster) -> None:
    """The total is that of the first search, and what each further part adds: at least what its tasks cost by themselves."""
    recorded = account_of(cluster)
    assume(recorded.parts)
    costs = difference(recorded, recorded).before
    searches = [part for part in recorded.parts if part.by_forecasts]
    bulk = sum(p.certificate["primal"] for p in recorded.parts if not p.by_forecasts and p.certificate)
    if len(searches) == 1:
        assert costs.total == pytest.approx(searches[0].certificate["primal"] + bulk)
    elif searches:
        added = costs.total - bulk - searches[0].certificate["primal"]
        whole = sum(part.certificate["primal"] for part in searches[1:])
        assert added + 1e-6 >= 0.0
        assert added <= whole + 1e-6


def _milli(value: Any) -> int:
    return int(value[:-1]) if str(value).endswith("m") else int(value) * 1000


@pytest.mark.parametrize("name", ["n1", "e2-standard-8"])
def test_a_machine_is_added_to_all_parts_or_the_mistake_is_said(name: str) -> None:
    recorded = mixed()
    if name == "n1":
        again = after(recorded, add_machine=["n1:n3"])
        assert all("n3" in part.machines for part in again.parts)
        assert again.plain["machines"] == ["n1", "n2", "n3"]
        return
    with pytest.raises(Exception, match="name a machine to copy"):
        after(recorded, add_machine=[name])
