"""Whatever is answered to a request, of any status, body and length: it is an error of the client, and ends no process."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import objects_builders as b
import pytest
import yaml
from hypothesis import example, given, settings
from hypothesis import strategies as st
from model_scheduler import CATALOGUE

from flowsched_k8s.api.access import find_access
from flowsched_k8s.api.client import ApiError, Connection, MalformedError, UnreachableError
from flowsched_k8s.api.election import Election
from flowsched_k8s.api.reflector import Reflector
from flowsched_k8s.api.writer import WriteOutcome, Writer
from flowsched_k8s.bindings.turns import Turns
from flowsched_k8s.changes import Gone, Seen
from flowsched_k8s.configuration.configuration import Configuration
from flowsched_k8s.dispatcher import Dispatcher
from flowsched_k8s.instructions import (
    Bind,
    Evict,
    GroupStatus,
    MovePod,
    PatchClaim,
    PatchCondition,
    PodKey,
    PostEvent,
    Resize,
    TaintNode,
)
from flowsched_k8s.objects import Node, Pod
from flowsched_k8s.process import Process
from flowsched_k8s.state import SchedulerState
from flowsched_k8s.volumes.volumes import ClaimPatch

KEY = PodKey("n", "p", "u")
WRITES = (
    Bind(KEY, "a"),
    PatchCondition(KEY, "r", "m"),
    Evict(KEY, "m"),
    MovePod(KEY),
    TaintNode("a", "1", ()),
    Resize(KEY, {"c": 1}),
    GroupStatus("n", "g", "scheduling.k8s.io/v1alpha2", True, "r", "m"),
    PatchClaim(KEY, ClaimPatch("n", "c", "u", "1", selected_node="a")),
)
PAGE = b"<html><body>502 Bad Gateway</body></html>"
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ("kind", "metadata", "spec", "status", "items", "object", "type", "name", "code", "resourceVersion")
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=8,
)
BODIES = (
    st.sampled_from((b"", b"\xff\xfe", PAGE, b"null", b"[]", b"{}", b'"text"', b"0", b"[" * 5000, b'{"a":' * 5000))
    | st.sampled_from((b'{"metadata":{"name":"\xff"}}', b'{"type":"ADDED","object":{}}\n', b'{"type":"ERROR"}\n'))
    | VALUES.map(lambda value: json.dumps(value).encode() + b"\n")
    | st.binary(max_size=40)
)
STATUSES = st.sampled_from(
    (200, 201, 202, 204, 206, 302, 304, 400, 401, 403, 404, 409, 410, 418, 422, 429, 500, 503, 504, 599, 999)
)
LENGTHS = st.sampled_from(("right", "short", "long", "none", "chunked", "odd"))


def head(status: int, body: bytes, length: str) -> bytes:
    """What is sent of an answer whose length is told rightly or not."""
    told = {"right": len(body), "short": len(body) // 2, "long": len(body) + 7, "odd": -3}.get(length)
    lines = [f"HTTP/1.1 {status} Whatever", "Content-Type: text/html"]
    lines += [f"Content-Length: {told}"] if told is not None else []
    lines += ["Transfer-Encoding: chunked"] if length == "chunked" else []
    sent = b"%x\r\n%b\r\n0\r\n\r\n" % (len(body), body) if length == "chunked" and body else body
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + sent


class Answering:
    """A server that gives one answer to everything and closes the connection."""

    def __init__(self, folder: Path) -> None:
        self.answer = b""
        self.loop = asyncio.new_event_loop()
        self.server = self.loop.run_until_complete(asyncio.start_server(self._serve, "127.0.0.1", 0))
        port = self.server.sockets[0].getsockname()[1]
        named = {"clusters": [{"name": "c", "cluster": {"server": f"http://127.0.0.1:{port}"}}]}
        user = {"users": [{"name": "u", "user": {"token": "secret"}}], "current-context": "x"}
        context = {"contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}]}
        path = folder / "config"
        path.write_text(yaml.safe_dump({"apiVersion": "v1", "kind": "Config", **named, **user, **context}))
        self.access = find_access(path)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        lengths = [int(line.split(b":")[1]) for line in head.splitlines() if line.lower().startswith(b"content-length")]
        await reader.readexactly(lengths[0] if lengths else 0)
        writer.write(self.answer)
        writer.close()

    def asked(self, work: Callable[[Connection], Awaitable[Any]]) -> Any:
        async def once() -> Any:
            async with Connection(self.access, timeout=5.0) as connection:
                return await work(connection)

        return self.loop.run_until_complete(once())


@pytest.fixture(scope="module")
def answering(tmp_path_factory: pytest.TempPathFactory) -> Any:
    made = Answering(tmp_path_factory.mktemp("access"))
    yield made
    made.server.close()
    made.loop.run_until_complete(asyncio.sleep(0))
    made.loop.close()


async def all_requests(connection: Connection) -> dict[str, Any]:
    """What comes of every request that there is; nothing else than the errors of the client may be raised."""
    found: dict[str, Any] = {}
    clock = SimpleNamespace(now=0.0)

    async def sleep(seconds: float) -> None:
        clock.now += max(seconds, 20.0)

    writer = Writer(connection, sleep=sleep, clock=lambda: clock.now)
    for instruction in WRITES:
        found[type(instruction).__name__] = (await writer.carry_out(instruction)).outcome
    event = PostEvent(KEY, "r", "Normal", "a", "n")
    found["event"] = (await writer._post(event, writer.now())).outcome
    election = Election(connection, namespace="n", name="l", identity="me")
    found["lease"] = await election._tried(1.0)
    found["lease again"] = await election._tried(1.0)
    await election._let_go()
    for kind, type_ in (("pods", Pod), ("nodes", Node)):
        told: list[Any] = []
        reflector = Reflector(connection, f"/api/v1/{kind}", type_, told.extend, clock=lambda: clock.now)
        known = b.pod("known", node="a") if type_ is Pod else b.node("known", "1")
        reflector.cache["", "known"] = known  # type: ignore[assignment]
        await reflector._guarded(reflector._step())
        reflector._position = "7"
        await reflector._guarded(reflector._step())
        found[kind] = told
    try:
        found["read"] = await writer.read_pod(KEY)
    except (ApiError, UnreachableError) as error:
        found["read"] = error
    return found


@settings(max_examples=70)
@given(STATUSES, BODIES, LENGTHS)
@example(200, PAGE, "right")
@example(200, b"{}", "right")
@example(200, b'{"error": "away"}', "chunked")
@example(200, b'{"spec": {"holderIdentity": 5, "leaseTransitions": "many"}}', "right")
@example(200, b'{"type":"ADDED","object":{"metadata":{"name":"\xff"}}}\n', "none")
@example(401, b"", "right")
def test_every_answer_to_every_request(answering: Answering, status: int, body: bytes, length: str) -> None:
    answering.answer = head(status, body, length)
    found = answering.asked(all_requests)
    if b'"kind"' not in body:
        assert WriteOutcome.DONE not in found.values(), "a page of a proxy is no answer of the API server"
    for kind in ("pods", "nodes"):
        gone = [told for told in found[kind] if isinstance(told, Gone)]
        assert not gone or status == 404 or b'"resourceVersion"' in body, "nothing is gone because of a wrong answer"
        assert not [told for told in found[kind] if isinstance(told, Seen) and not told.object.metadata.name]


def test_an_object_that_cannot_be_decoded_is_an_error_of_the_client(answering: Answering) -> None:
    answering.answer = head(200, PAGE, "right")
    with pytest.raises(MalformedError, match="the answer is not what was expected"):
        answering.asked(lambda connection: connection.get("/x", Pod))


# Faults of our own


def dispatcher_of(state: Any, writer: Any) -> Dispatcher:
    return Dispatcher(state, writer, lambda: 0.0, asyncio.Event(), lambda: "")


def test_a_fault_in_one_binding_is_that_pods() -> None:
    state = SchedulerState(Configuration(), CATALOGUE)
    pods = [b.pod(name, cpu="1") for name in ("bad", "good")]
    state.observe([Seen(b.node("n1", "8")), *map(Seen, pods)], 0.0)
    state.activate()
    binds = [Bind(PodKey("default", p.metadata.name, p.metadata.uid), "n1") for p in pods]
    for bind in binds:
        state.bindings.under_way[bind.pod.uid] = bind
    sent: list[str] = []
    read: list[PodKey] = []
    told: list[PatchCondition] = []

    async def send(bind: Bind) -> Any:
        sent.append(bind.pod.name)
        raise KeyError("of ours")

    async def read_pod(key: PodKey) -> Pod | None:
        read.append(key)
        return pods[0]

    async def patch_condition(patch: PatchCondition) -> Any:
        told.append(patch)
        raise KeyError("another one")

    dispatcher = dispatcher_of(
        state, SimpleNamespace(bind=send, read_pod=read_pod, patch_condition=patch_condition, post_event=lambda e: None)
    )

    async def course() -> None:
        dispatcher.dispatch(binds)
        for _ in range(20):
            await asyncio.sleep(0)

    state.bindings.withheld = lambda bind, now: None  # type: ignore[method-assign]
    asyncio.run(course())
    assert sent == ["bad", "good"]
    assert read == [bind.pod for bind in binds]
    assert [patch.message for patch in told] == ["binding to n1 failed: a fault of the scheduler: 'of ours'"] * 2
    assert not state.bindings.turns.apart()


def test_a_fault_with_one_object_keeps_no_others_unseen() -> None:
    seen: list[str] = []

    def observe(changes: Any, now: float) -> list[Any]:
        (change,) = changes
        if change.object.metadata.name == "bad":
            raise ValueError("of ours")
        seen.append(change.object.metadata.name)
        return []

    state = SimpleNamespace(
        observe=observe,
        active=True,
        cache=SimpleNamespace(live=False, gpus=SimpleNamespace(resources=())),
        bindings=SimpleNamespace(turns=Turns(1)),
    )
    process = Process.__new__(Process)
    process.state, process._clock, process._woken = state, lambda: 0.0, asyncio.Event()
    process._dispatcher, process._gpus_prepared = dispatcher_of(state, None), None
    process.reflectors = {"pods": SimpleNamespace(synced=True)}  # type: ignore[dict-item]
    process._observe([Seen(b.pod(name)) for name in ("bad", "good")])
    assert seen == ["good"]
