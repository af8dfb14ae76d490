"""Every write has one plain outcome, and none is made twice or guessed."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from plane import Fault, Space, Wire, becomes, running_plane, wait_for

from flowsched_k8s import names
from flowsched_k8s.api.access import find_access
from flowsched_k8s.api.client import ApiError, Connection, NotAllowedError, Reply, UnreachableError
from flowsched_k8s.api.rate_limit import RateLimit
from flowsched_k8s.api.writer import Result, WriteOutcome, Writer, result_of
from flowsched_k8s.instructions import Bind, Evict, GroupStatus, PatchClaim, PatchCondition, PodKey, PostEvent, Resize
from flowsched_k8s.notices.recorder import cut
from flowsched_k8s.volumes.volumes import ClaimPatch

RULES = [
    {"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "delete"]},
    {"apiGroups": [""], "resources": ["pods/binding"], "verbs": ["create"]},
    {"apiGroups": [""], "resources": ["pods/status", "pods/resize", "persistentvolumeclaims"], "verbs": ["patch"]},
    {"apiGroups": ["events.k8s.io"], "resources": ["events"], "verbs": ["create"]},
    {"apiGroups": ["scheduling.k8s.io"], "resources": ["podgroups/status"], "verbs": ["patch"]},
]
DONE = b'{"kind": "Status"}'
KEY = PodKey("n", "p", "u")
T = TypeVar("T")


def key_of(pod: dict[str, Any]) -> PodKey:
    meta = pod["metadata"]
    return PodKey(meta["namespace"], meta["name"], meta["uid"])


def write(config: Path, body: Callable[[Writer], Awaitable[T]], **options: Any) -> T:
    async def run() -> T:
        async with Connection(find_access(config), timeout=options.pop("timeout", 30.0)) as connection:
            return await body(Writer(connection, **options))

    return asyncio.run(run())


@pytest.fixture
def config(space: Space) -> Path:
    """Of a ServiceAccount that may do what the writer does, and nothing else."""
    return space.service_account_kubeconfig(RULES)


# Without a server


class Stub:
    """A connection that gives prepared answers and records the requests."""

    def __init__(self, *answers: Reply | Exception) -> None:
        self.answers = list(answers)
        self.sent: list[tuple[str, str, Any]] = []

    async def request(self, method: str, path: str, *, body: Any = None, guard: Any = None, **_: Any) -> Reply:
        if guard is not None and not guard():
            raise NotAllowedError
        self.sent.append((method, path, body))
        answer = self.answers.pop(0) if self.answers else Reply(201, DONE)
        if isinstance(answer, Exception):
            raise answer
        return answer

    async def get(self, path: str, type_: type[T], query: Any = None) -> T:
        reply = await self.request("GET", path)
        if not reply.ok:
            raise ApiError.of(reply)
        return msgspec.json.decode(reply.body, type=type_)


def stubbed(stub: Stub, body: Callable[[Writer], Awaitable[T]], **options: Any) -> T:
    async def sleep(seconds: float) -> None:
        clock.now += seconds
        await asyncio.sleep(0)

    class Clock:
        now = 0.0

    clock = Clock()

    async def run() -> T:
        return await body(Writer(stub, sleep=sleep, clock=lambda: clock.now, **options))  # type: ignore[arg-type]

    return asyncio.run(run())


def read(uid: str = "u", node: str = "") -> Reply:
    body = {"metadata": {"namespace": "n", "name": "p", "uid": uid}, "spec": {"nodeName": node}}
    return Reply(200, json.dumps(body).encode())


@pytest.mark.parametrize(
    ("status", "outcome"),
    [
        (200, WriteOutcome.DONE),
        (201, WriteOutcome.DONE),
        (202, WriteOutcome.DONE),
        (400, WriteOutcome.REFUSED),
        (401, WriteOutcome.REFUSED),
        (403, WriteOutcome.REFUSED),
        (404, WriteOutcome.GONE),
        (409, WriteOutcome.CONFLICT),
        (422, WriteOutcome.REFUSED),
        (429, WriteOutcome.RETRY),
        (500, WriteOutcome.LOST),
        (503, WriteOutcome.LOST),
        (504, WriteOutcome.LOST),
    ],
)
def test_every_status_is_one_outcome(status: int, outcome: WriteOutcome) -> None:
    assert result_of(Reply(status, DONE, 3.0)).outcome is outcome


LOST = UnreachableError("cut", sent=True)
NEVER = UnreachableError("refused", sent=False)
NOT_FOUND, CONFLICT = Reply(404, b"{}"), Reply(409, b"{}")


@pytest.mark.parametrize(
    ("answers", "outcome", "posts"),
    [
        ([LOST, read(node="a")], WriteOutcome.DONE, 1),
        ([LOST, read(node="b")], WriteOutcome.CONFLICT, 1),
        ([LOST, read(uid="other")], WriteOutcome.GONE, 1),
        ([LOST, NOT_FOUND], WriteOutcome.GONE, 1),
        ([LOST, read(), Reply(201, DONE)], WriteOutcome.DONE, 2),
        # The first request was still on its way when the pod was read.
        ([LOST, read(), CONFLICT, read(node="a")], WriteOutcome.DONE, 2),
        ([LOST, read(), CONFLICT, read(node="b")], WriteOutcome.CONFLICT, 2),
        ([LOST, read(), CONFLICT, NOT_FOUND], WriteOutcome.GONE, 2),
        ([LOST, NEVER, LOST, Reply(503, b""), read(node="a")], WriteOutcome.DONE, 1),
        ([LOST, read(), LOST, read(), LOST, read(node="a")], WriteOutcome.DONE, 3),
        ([LOST, Reply(403, b"")], WriteOutcome.REFUSED, 1),
        ([NEVER], WriteOutcome.RETRY, 1),
        ([Reply(500, b""), read(node="a")], WriteOutcome.DONE, 1),
    ],
)
def test_a_lost_reply_is_resolved_by_reading(answers: list[Any], outcome: WriteOutcome, posts: int) -> None:
    stub = Stub(*answers)
    result = stubbed(stub, lambda writer: writer.carry_out(Bind(KEY, "a")))
    assert result.outcome is outcome
    assert [method for method, _, _ in stub.sent].count("POST") == posts
    assert stub.answers == []


@pytest.mark.parametrize("grant", ["{}", ""])
def test_a_grant_is_written_before_the_binding(grant: str) -> None:
    stub = Stub(Reply(200, DONE))
    result = stubbed(stub, lambda writer: writer.carry_out(Bind(KEY, "a", grant=grant)))
    assert result.outcome is WriteOutcome.DONE
    (patched, posted) = stub.sent
    assert patched[:2] == ("PATCH", "/api/v1/namespaces/n/pods/p/status") and posted[1].endswith("/p/binding")
    (condition,) = patched[2]["status"]["conditions"]
    assert (condition["type"], condition["status"], condition["message"]) == (names.GRANTED, str(bool(grant)), grant)
    assert patched[2]["metadata"] == {"uid": KEY.uid}


@pytest.mark.parametrize(
    ("answers", "outcome", "posts"),
    [
        ([CONFLICT], WriteOutcome.CONFLICT, 0),
        ([NOT_FOUND], WriteOutcome.GONE, 0),
        ([Reply(403, b"")], WriteOutcome.REFUSED, 0),
        ([NEVER], WriteOutcome.RETRY, 0),
        ([LOST, read(), Reply(200, DONE), Reply(201, DONE)], WriteOutcome.DONE, 1),
    ],
)
def test_nothing_is_bound_whose_grant_was_not_written(answers: list[Any], outcome: WriteOutcome, posts: int) -> None:
    stub = Stub(*answers)
    result = stubbed(stub, lambda writer: writer.carry_out(Bind(KEY, "a", grant="{}")))
    assert result.outcome is outcome
    assert [method for method, _, _ in stub.sent].count("POST") == posts
    assert stub.answers == []


def test_a_server_that_stays_away_leaves_the_outcome_unknown() -> None:
    stub = Stub(*[LOST] * 1000)
    result = stubbed(stub, lambda writer: writer.resolve(Bind(KEY, "a"), within=60.0))
    assert result.outcome is WriteOutcome.LOST
    assert len(stub.sent) < 30


def test_a_writer_that_may_not_write_sends_nothing() -> None:
    stub = Stub()

    async def body(writer: Writer) -> set[WriteOutcome]:
        instructions = [Bind(KEY, "a"), PatchCondition(KEY, "r", "m"), Evict(KEY, "m"), Resize(KEY, {"c": 1})]
        return {(await writer.carry_out(instruction)).outcome for instruction in instructions}

    assert stubbed(stub, body, may_write=lambda: False) == {WriteOutcome.STOPPED}
    assert stub.sent == []


def test_a_dry_run_writes_nothing_at_all() -> None:
    stub = Stub()
    instructions = [
        Bind(KEY, "a"),
        PatchCondition(KEY, "r", "m"),
        PostEvent(KEY, "r", "Normal", "a", "n"),
        Evict(KEY, "m"),
        Resize(KEY, {"c": 1}),
        GroupStatus("n", "g", "scheduling.k8s.io/v1alpha2", True, "r", "m"),
        PatchClaim(KEY, ClaimPatch("n", "c", "u", "1", selected_node="a")),
    ]

    async def body(writer: Writer) -> set[WriteOutcome]:
        events = asyncio.create_task(writer.run_events())
        outcomes = {(await writer.carry_out(instruction)).outcome for instruction in instructions}
        await asyncio.sleep(0.05)
        events.cancel()
        return outcomes

    assert stubbed(stub, body, dry_run=True) == {WriteOutcome.DRY}
    assert stub.sent == []


@given(st.text(), st.integers(3, 40))
def test_text_is_cut_between_characters(text: str, limit: int) -> None:
    short = cut(text, limit)
    assert len(short.encode()) <= limit
    kept = text.encode(errors="replace").decode()
    assert short == kept or (short.endswith("…") and kept.startswith(short[:-1]))


def test_events_wait_in_a_queue_with_an_end() -> None:
    stub = Stub()

    async def body(writer: Writer) -> None:
        results = [writer.post_event(PostEvent(KEY, "r", "Normal", "a", str(n))) for n in range(15)]
        assert [r.outcome for r in results] == [WriteOutcome.DONE] * 10 + [WriteOutcome.REFUSED] * 5
        task = asyncio.create_task(writer.run_events())
        await becomes(lambda: writer.event_counts.posted == 10, "the events to be posted")
        assert writer.event_counts.dropped == 5
        task.cancel()

    stubbed(stub, body, event_queue=10)
    posted = [sent for _, _, sent in stub.sent]
    assert [event["note"] for event in posted] == [str(n) for n in range(10)]
    assert len({event["metadata"]["name"] for event in posted}) == 10


def test_events_keep_to_their_rate_and_bindings_do_not_wait_for_them() -> None:
    stub = Stub()
    now = 0.0
    times: list[float] = []

    async def sleep(seconds: float) -> None:
        nonlocal now
        now += seconds
        times.append(now)
        await asyncio.sleep(0)

    async def body(writer: Writer) -> Result:
        for number in range(20):
            writer.post_event(PostEvent(KEY, "r", "Normal", "a", str(number)))
        task = asyncio.create_task(writer.run_events(workers=1))
        result = await writer.bind(Bind(KEY, "a"))
        assert len(stub.sent) == 1
        await becomes(lambda: writer.event_counts.posted == 20, "the events to be posted")
        task.cancel()
        return result

    limit = RateLimit(10.0, 5, clock=lambda: now, sleep=sleep)
    assert stubbed(stub, body, event_limit=limit).outcome is WriteOutcome.DONE
    assert now == pytest.approx(1.5)


# On the real API server


def test_a_binding_carries_its_annotations_and_is_made_once(space: Space, config: Path) -> None:
    first, second = space.make_nodes(2, kwok=False)
    key = key_of(space.make_pod("p"))

    async def body(writer: Writer) -> list[Result]:
        given = {names.PLACEMENT: '{"node":"x"}'}
        return [await writer.bind(Bind(key, first, given)), await writer.bind(Bind(key, second))]

    bound, again = write(config, body)
    assert bound.outcome is WriteOutcome.DONE
    assert again.outcome is WriteOutcome.CONFLICT
    assert "already assigned" in again.message
    pod = space.pod("p")
    assert pod["spec"]["nodeName"] == first
    assert pod["metadata"]["annotations"][names.PLACEMENT] == '{"node":"x"}'


def test_bindings_that_facts_have_overtaken(space: Space, config: Path) -> None:
    (node,) = space.make_nodes(1, kwok=False)
    gated = key_of(space.make_pod("gated", schedulingGates=[{"name": "test/wait"}]))
    old = key_of(space.make_pod("anew"))
    space.delete_pod("anew")
    space.make_pod("anew")
    gone = key_of(space.make_pod("gone"))
    space.delete_pod("gone")

    async def body(writer: Writer) -> list[WriteOutcome]:
        return [(await writer.carry_out(Bind(key, node))).outcome for key in (gated, old, gone)]

    assert write(config, body) == [WriteOutcome.CONFLICT, WriteOutcome.CONFLICT, WriteOutcome.GONE]
    assert not any(pod["spec"].get("nodeName") for pod in space.pods())


def test_what_is_not_allowed_is_refused_and_says_so(space: Space) -> None:
    key = key_of(space.make_pod("p"))
    powerless = space.service_account_kubeconfig([])
    result = write(powerless, lambda writer: writer.carry_out(Bind(key, "node")))
    assert result.outcome is WriteOutcome.REFUSED
    assert result.message.startswith("403 Forbidden")


@pytest.mark.parametrize("fault", [Fault.LOSE_REPLIES, Fault.LOSE_REQUESTS])
def test_a_reply_that_is_lost_on_the_way(space: Space, fault: Fault) -> None:
    (node,) = space.make_nodes(1, kwok=False)
    key = key_of(space.make_pod("p"))

    async def body(writer: Writer) -> list[Result]:
        # Opens the connection; the fault is to hit the binding, not the handshake.
        assert await writer.read_pod(key) is not None
        wire.fault = fault
        lost = await writer.bind(Bind(key, node))
        wire.fault = Fault.NONE
        return [lost, await writer.resolve(Bind(key, node))]

    with Wire(space.plane.server) as wire:
        lost, resolved = write(space.service_account_kubeconfig(RULES, server=wire.address), body)
    assert lost.outcome is WriteOutcome.LOST
    assert resolved.outcome is WriteOutcome.DONE
    assert wire.lost == 1
    assert space.pod("p")["spec"]["nodeName"] == node


def test_an_api_server_that_is_away_has_not_been_asked(space: Space) -> None:
    key = key_of(space.make_pod("p"))

    async def body(writer: Writer) -> Result:
        wire.fault = Fault.REFUSE
        return await writer.bind(Bind(key, "node"))

    with Wire(space.plane.server) as wire:
        config = space.service_account_kubeconfig(RULES, server=wire.address)
        # Refused before the TLS handshake is complete: nothing can have been carried out.
        assert write(config, body).outcome is WriteOutcome.RETRY


def test_conditions_are_written_and_the_nominated_node_set_and_cleared(space: Space, config: Path) -> None:
    key = key_of(space.make_pod("p"))
    since = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)

    def conditions() -> dict[str, Any]:
        return {c["type"]: c for c in space.pod("p")["status"]["conditions"]}

    async def unschedulable(writer: Writer) -> Result:
        patch = PatchCondition(key, names.UNSCHEDULABLE, "0/1 nodes are available", 1, "some-node")
        return await writer.patch_condition(patch, since)

    assert write(config, unschedulable).outcome is WriteOutcome.DONE
    assert conditions()["PodScheduled"] | {"lastProbeTime": None} == {
        "type": "PodScheduled",
        "status": "False",
        "reason": "Unschedulable",
        "message": "0/1 nodes are available",
        "observedGeneration": 1,
        "lastTransitionTime": "2026-01-02T03:04:05Z",
        "lastProbeTime": None,
    }
    assert space.pod("p")["status"]["nominatedNodeName"] == "some-node"
    write(config, lambda writer: writer.carry_out(PatchCondition(key, "SchedulerError", "x", nominated_node="")))
    assert conditions()["PodScheduled"]["reason"] == "SchedulerError"
    assert "nominatedNodeName" not in space.pod("p")["status"]
    other = key._replace(uid="00000000-0000-0000-0000-000000000000")
    assert write(config, lambda w: w.carry_out(PatchCondition(other, "x", "y"))).outcome is WriteOutcome.CONFLICT
    gone = PodKey(space.name, "no-such-pod", key.uid)
    assert write(config, lambda w: w.carry_out(PatchCondition(gone, "x", "y"))).outcome is WriteOutcome.GONE


def test_an_event_arrives_with_all_that_describes_it(space: Space, config: Path) -> None:
    key = key_of(space.make_pod("p"))
    note = "é" * 600

    async def body(writer: Writer) -> None:
        task = asyncio.create_task(writer.run_events())
        writer.post_event(PostEvent(key, "FailedScheduling", "Warning", "Scheduling", note))
        await becomes(lambda: writer.event_counts.posted + writer.event_counts.failed == 1, "the event")
        assert writer.event_counts.failed == 0
        task.cancel()

    write(config, body, reporting_controller="flowsched", reporting_instance="flowsched-0")
    (event,) = space.events()
    assert event["regarding"] == {
        "apiVersion": "v1",
        "kind": "Pod",
        "namespace": space.name,
        "name": "p",
        "uid": key.uid,
    }
    about = {k: event[k] for k in ("reason", "type", "action", "reportingController", "reportingInstance")}
    assert list(about.values()) == ["FailedScheduling", "Warning", "Scheduling", "flowsched", "flowsched-0"]
    assert len(event["note"].encode()) <= 1024 and event["note"].endswith("é…")
    assert "." in event["eventTime"]


def test_an_eviction_marks_the_pod_and_then_deletes_it_with_its_grace(space: Space, config: Path) -> None:
    (node,) = space.make_nodes(1, kwok=False)
    key = key_of(space.make_pod("p", terminationGracePeriodSeconds=7))

    async def body(writer: Writer) -> list[WriteOutcome]:
        other = key._replace(uid="00000000-0000-0000-0000-000000000000")
        evictions = [Evict(other, "another pod"), Evict(key, "for default/urgent")]
        await writer.bind(Bind(key, node))
        return [(await writer.carry_out(evict)).outcome for evict in evictions]

    assert write(config, body) == [WriteOutcome.CONFLICT, WriteOutcome.DONE]
    pod = space.pod("p")
    assert pod["metadata"]["deletionGracePeriodSeconds"] == 7
    (condition,) = [c for c in pod["status"]["conditions"] if c["type"] == "DisruptionTarget"]
    assert (condition["status"], condition["reason"]) == ("True", "PreemptionByScheduler")
    assert condition["message"] == "for default/urgent"


def test_a_pod_that_may_not_be_deleted_is_not_told_that_it_will_be(space: Space) -> None:
    (node,) = space.make_nodes(1, kwok=False)
    key = key_of(space.make_pod("p"))
    config = space.service_account_kubeconfig([rule for rule in RULES if "delete" not in rule["verbs"]])

    async def body(writer: Writer) -> WriteOutcome:
        await writer.bind(Bind(key, node))
        return (await writer.carry_out(Evict(key, "for default/urgent"))).outcome

    assert write(config, body) is WriteOutcome.REFUSED
    pod = space.pod("p")
    assert "deletionTimestamp" not in pod["metadata"]
    assert not [c for c in pod["status"].get("conditions", []) if c["type"] == "DisruptionTarget"]


def test_a_running_pod_is_resized(space: Space, config: Path) -> None:
    (node,) = space.make_nodes(1)
    key = key_of(space.make_pod("p", cpu="1"))

    async def bound(writer: Writer) -> WriteOutcome:
        return (await writer.bind(Bind(key, node))).outcome

    async def resized(writer: Writer) -> list[Result]:
        sizes = [Resize(key, {"main": 2500}), Resize(key, {"main": -1}), Resize(key._replace(name="q"), {"main": 1})]
        return [await writer.carry_out(size) for size in sizes]

    assert write(config, bound) is WriteOutcome.DONE
    wait_for(lambda: space.pod("p")["status"]["phase"] == "Running", "the pod to run")
    results = write(config, resized)
    assert [result.outcome for result in results] == [WriteOutcome.DONE, WriteOutcome.REFUSED, WriteOutcome.GONE], (
        results
    )
    assert space.pod("p")["spec"]["containers"][0]["resources"]["requests"]["cpu"] == "2500m"

    def carried_out() -> bool:
        return space.pod("p")["status"]["containerStatuses"][0]["resources"]["requests"]["cpu"] == "2500m"

    wait_for(carried_out, "the resize to be carried out")


def test_a_claim_learns_its_node_unless_it_has_changed(space: Space, config: Path) -> None:
    path = f"/api/v1/namespaces/{space.name}/persistentvolumeclaims"
    spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    meta = space.admin.post(path, {"metadata": {"name": "c"}, "spec": spec})["metadata"]
    key = PodKey(space.name, "p", "u")
    patch = ClaimPatch(space.name, "c", meta["uid"], meta["resourceVersion"], selected_node="node-1")

    async def body(writer: Writer) -> list[WriteOutcome]:
        return [(await writer.carry_out(PatchClaim(key, patch))).outcome for _ in range(2)]

    assert write(config, body) == [WriteOutcome.DONE, WriteOutcome.CONFLICT]
    annotations = space.admin.get(f"{path}/c")["metadata"]["annotations"]
    assert annotations["volume.kubernetes.io/selected-node"] == "node-1"


def test_the_status_of_an_in_tree_group() -> None:
    options = ("--feature-gates", "GenericWorkload=true", "--runtime-config", "scheduling.k8s.io/v1alpha2=true")
    with running_plane("--parts", "", *options) as plane, plane.space("groups") as space:
        version = "scheduling.k8s.io/v1alpha2"
        path = f"/apis/{version}/namespaces/{space.name}/podgroups"
        group = {"metadata": {"name": "g"}, "spec": {"schedulingPolicy": {"gang": {"minCount": 2}}}}
        plane.admin.post(path, group)
        status = GroupStatus(space.name, "g", version, False, "Unschedulable", "3 of 4 members fit")
        config = space.service_account_kubeconfig(RULES)
        result = write(config, lambda writer: writer.carry_out(status))
        assert result.outcome is WriteOutcome.DONE, result
        (condition,) = plane.admin.get(f"{path}/g")["status"]["conditions"]
        del condition["lastTransitionTime"]
        assert condition == {
            "type": "PodGroupScheduled",
            "status": "False",
            "reason": "Unschedulable",
            "message": "3 of 4 members fit",
        }


def test_many_bindings_share_the_connections(space: Space, config: Path) -> None:
    nodes = space.make_nodes(4, kwok=False)
    keys = [key_of(space.make_pod(f"p{number}")) for number in range(100)]

    async def body(writer: Writer) -> list[Result]:
        binds = (Bind(key, nodes[number % 4]) for number, key in enumerate(keys))
        return await asyncio.gather(*(writer.bind(bind) for bind in binds))

    assert {result.outcome for result in write(config, body)} == {WriteOutcome.DONE}
    assert all(pod["spec"]["nodeName"] in nodes for pod in space.pods())
