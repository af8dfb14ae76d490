"""A pod in whose preparation a process ended comes last, and alone; the lease tells the next leader which it is."""

from __future__ import annotations

import asyncio
import random
import threading
from types import SimpleNamespace
from typing import Any

import msgspec
import objects_builders as b
import pytest
from model_scheduler import SOLVER, ModelScheduler
from model_server import ModelServer

from flowsched_k8s import names
from flowsched_k8s.api.access import Access
from flowsched_k8s.api.client import Connection, Reply
from flowsched_k8s.api.election import Election, Times
from flowsched_k8s.api.election_thread import ElectionThread
from flowsched_k8s.changes import Seen
from flowsched_k8s.configuration.configuration import Configuration
from flowsched_k8s.pods.entries import PodEntry
from flowsched_k8s.process import Process
from flowsched_k8s.rounds.inputs import InputBuilder
from flowsched_k8s.rounds.participants import LONG
from flowsched_k8s.rounds.planning import make_engine
from flowsched_k8s.rounds.suspects import LAST_S, MOST_NAMED, MOST_OF_ROUND, Suspects

EVIL = {"flowsched.example/" + str(i): "x" for i in range(LONG)}
"""Annotations of a pod that says much."""


def scheduler(nodes: int = 3) -> ModelScheduler:
    server = ModelServer()
    for i in range(nodes):
        server.put(b.node(f"n{i}", "4"))
    return ModelScheduler(server)


def decided(running: ModelScheduler) -> list[str]:
    """Pods that one round decides on."""
    return sorted(bind.pod.name for bind in running.round())


def uid(running: ModelScheduler, name: str) -> str:
    return next(e.key.uid for e in running.state.cache.pods.values() if e.key.name == name)


def suspects_of(running: ModelScheduler, *called: str) -> Suspects:
    """As after an end in the preparation of these."""
    suspects = running.state.suspects
    suspects.inherit(",".join(uid(running, name) for name in called))
    suspects.activate()
    return suspects


# The order of the next leader


def test_a_suspect_comes_after_all_others_and_alone_and_only_once() -> None:
    running = scheduler()
    running.create(
        b.pod("evil", cpu="1", priority=100), b.pod("bad", cpu="1"), *(b.pod(f"p{i}", cpu="1") for i in range(3))
    )
    suspects = suspects_of(running, "evil", "bad")
    assert decided(running) == ["p0", "p1", "p2"]
    assert set(suspects.note("").split(",")) == {uid(running, "evil"), uid(running, "bad")}
    assert decided(running) == ["evil"]
    assert suspects.note("") == uid(running, "bad")
    assert decided(running) == ["bad"]
    assert suspects.note("") == ""


def test_a_suspect_that_finds_no_place_is_none_any_more() -> None:
    running = scheduler()
    running.create(b.pod("evil", cpu="100"), b.pod("usual", cpu="1"))
    suspects = suspects_of(running, "evil")
    assert decided(running) == ["usual"]
    assert decided(running) == []
    assert suspects.uids == ()
    running.create(b.pod("second", cpu="1"))
    running.server.now += 1000.0
    assert decided(running) == ["second"], "together with the other, which has no place"


def test_suspects_take_turns_with_others_that_keep_coming() -> None:
    running = scheduler()
    running.create(b.pod("evil-0", cpu="100m"), b.pod("evil-1", cpu="100m"))
    suspects_of(running, "evil-0", "evil-1")
    rounds = []
    for i in range(7):
        running.create(b.pod(f"p{i}", cpu="100m"))
        rounds += [decided(running)]
        running.server.now += 0.4 * LAST_S
    assert rounds == [["p0"], ["p1"], ["p2"], ["evil-0"], ["p3", "p4"], ["evil-1"], ["p5", "p6"]]


def test_a_group_comes_whole_with_its_suspect() -> None:
    grouped = {"pod-group.scheduling.sigs.k8s.io/name": "g", "pod-group.scheduling.sigs.k8s.io/min-available": "2"}
    running = scheduler()
    running.create(*(b.pod(f"g{i}", cpu="1", labels=grouped) for i in range(2)), b.pod("usual", cpu="1"))
    suspects = suspects_of(running, "g1")
    assert decided(running) == ["usual"]
    assert decided(running) == ["g0", "g1"]
    assert suspects.uids == ()


def test_what_waits_no_more_is_no_suspect() -> None:
    running = scheduler()
    running.create(b.pod("gone", cpu="1"), b.pod("placed", cpu="1"), b.pod("there", node="n0", cpu="1"))
    suspects = suspects_of(running, "gone", "placed", "there")
    assert {running.state.cache.pods[u].key.name for u in suspects.uids} == {"gone", "placed"}
    suspects.inherit(suspects.note("") + ",of-a-pod-that-is-no-more")
    assert sorted(suspects.activate()) == ["default/gone", "default/placed"]
    for name in ("gone", "placed"):
        suspects.forget(uid(running, name))
    assert suspects.note("") == ""


# The note


def test_a_round_under_way_is_noted_with_those_that_say_most() -> None:
    running = scheduler()
    suspects = suspects_of(running)
    running.create(
        *(b.pod(f"p{i}", cpu="1m") for i in range(MOST_NAMED + 50)), b.pod("evil", cpu="1m", annotations=EVIL)
    )
    running.round()
    assert running.begin()
    noted = suspects.note("").split(",")
    assert noted == [uid(running, "evil")]
    running.plan()
    running.end()
    assert suspects.note("") == ""


def test_a_note_is_bounded_and_one_that_others_wrote_is_read_as_far_as_it_makes_sense() -> None:
    running = scheduler()
    suspects = running.state.suspects
    strange = "a,b\n,,<script>,a," + "x" * 100 + "," + ",".join(f"u{i}" for i in range(10**5))
    suspects.inherit(strange)
    assert suspects.uids[:3] == ("a", "u0", "u1") and len(suspects.uids) == MOST_NAMED
    running.create(*(b.pod(f"p{i}", cpu="1m") for i in range(500)))
    assert running.begin()
    assert len(suspects.note("").split(",")) == MOST_NAMED
    suspects.inherit("")
    assert len(suspects.note("").split(",")) == MOST_OF_ROUND
    assert len(suspects.note("")) < 65 * MOST_NAMED


def test_the_note_of_the_leader_before_stays_until_it_is_read() -> None:
    suspects = scheduler().state.suspects
    assert suspects.note("a,b") == "a,b"
    suspects.inherit("a,b")
    assert suspects.note("a,b") == "a,b"
    suspects.activate()
    assert suspects.note("a,b") == ""


def test_what_says_much_is_prepared_once_it_is_noted() -> None:
    running = scheduler()
    suspects = suspects_of(running)
    suspects.noting = True
    running.create(b.pod("evil", cpu="1", annotations=EVIL), b.pod("usual", cpu="1"))
    assert decided(running) == ["usual"]
    assert decided(running) == []
    assert suspects.wanted == (uid(running, "evil"),) and suspects.note("") == uid(running, "evil")
    suspects.noted()
    running.create(b.pod("late", cpu="1", annotations=EVIL))
    assert decided(running) == ["evil"]
    assert decided(running) == []
    suspects.noted()
    assert decided(running) == ["late"]
    assert suspects.note("") == ""


def test_a_stop_that_was_asked_for_makes_no_pod_suspect() -> None:
    running = scheduler()
    running.create(b.pod("old", cpu="1"), b.pod("usual", cpu="1"))
    suspects = suspects_of(running, "old")
    assert running.begin()
    suspects.stop()
    assert suspects.note("") == uid(running, "old")


# The process


class LeaseServer:
    """One lease in memory, for any number of candidates in any thread."""

    def __init__(self) -> None:
        self.lease: dict[str, Any] | None = None
        self._lock = threading.Lock()

    @property
    def noted(self) -> str:
        return str(((self.lease or {}).get("metadata", {}).get("annotations") or {}).get(names.PREPARING, ""))

    def run_out(self) -> None:
        """Its holder is gone, and the time of the lease is over."""
        assert self.lease is not None
        self.lease["spec"]["holderIdentity"] = ""

    async def __aenter__(self) -> LeaseServer:
        return self

    async def __aexit__(self, *_: object) -> None:
        pass

    async def request(self, method: str, path: str, *, body: Any = None, **_: object) -> Reply:
        with self._lock:
            if method == "GET":
                return Reply(404, b"{}") if self.lease is None else Reply(200, msgspec.json.encode(self.lease))
            version = 0 if self.lease is None else int(self.lease["metadata"]["resourceVersion"])
            if (method == "POST" and version) or (
                method == "PUT" and body["metadata"]["resourceVersion"] != str(version)
            ):
                return Reply(409, b"{}")
            self.lease = {**body, "metadata": {**body["metadata"], "resourceVersion": str(version + 1)}}
            return Reply(200, msgspec.json.encode(self.lease))


class Crash(BaseException):
    """The end of a process, which nothing catches."""


async def lead(process: Process, server: LeaseServer) -> ElectionThread:
    """Let a process lead that is connected to nothing but this lease."""
    connection: Connection = server  # type: ignore[assignment]
    process.election = Election(
        connection,
        namespace="n",
        name="flowsched",
        identity=process.identity,
        times=Times(600.0, 500.0, 100.0),
        release=False,
        rng=random.Random(1),
        note=process.state.suspects.note,
    )
    started = asyncio.Event()
    thread = process._election_thread = ElectionThread(connection, process.election, started.set, lambda: None)
    thread.start()
    await asyncio.wait_for(started.wait(), 30.0)
    process.leading = True
    process.state.suspects.noting = True
    process.state.suspects.inherit(process.election.left)
    return thread


def test_the_next_leader_places_others_first_after_a_process_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    server, cluster = LeaseServer(), ModelServer()
    cluster.put(b.node("n0", "4"))
    cluster.put(b.pod("evil", cpu="1", priority=10, annotations=EVIL))
    cluster.put(b.pod("usual", cpu="1"))
    seen = cluster.everything()
    evil = next(s.object.metadata.uid for s in seen if s.object.metadata.name == "evil")
    build = InputBuilder.build
    prepared: list[list[str]] = []
    notes: list[str] = []
    harmless = False

    def build_or_end(self: InputBuilder, entries: list[PodEntry], *words: Any, **more: Any) -> Any:
        prepared.append(sorted(e.key.name for e in entries))
        notes.append(server.noted)
        if not harmless and any(e.key.uid == evil for e in entries):
            raise Crash
        return build(self, entries, *words, **more)

    monkeypatch.setattr(InputBuilder, "build", build_or_end)

    async def life(rounds: int) -> None:
        process = Process(Configuration(), Access("http://127.0.0.1:1", None, None, None, "default", NoToken()))
        process._engine = make_engine(process.configuration.engine, SOLVER)
        process._observe([s for s in seen if isinstance(s, Seen)])
        thread = await lead(process, server)
        process.state.activate()
        process.state.suspects.activate()
        try:
            for _ in range(rounds):
                await process._round(process._clock())
            assert await thread.write(60.0)
        finally:
            await thread.stop(10.0)

    with pytest.raises(Crash):
        asyncio.run(life(5))
    assert prepared == [["usual"], ["evil"]] and notes[-1] == evil == server.noted
    del prepared[:], notes[:]
    server.run_out()
    # The one after it ends by it again, but places the others before.
    cluster.put(b.pod("other", cpu="1", annotations=EVIL))
    seen = [s for s in cluster.everything() if s.object.metadata.name != "usual"]
    with pytest.raises(Crash):
        asyncio.run(life(9))
    assert prepared == [["other"], ["evil"]]
    del prepared[:], notes[:]
    server.run_out()
    harmless = True
    asyncio.run(life(9))
    assert prepared == [["other"], ["evil"]]
    assert server.noted == ""


class NoToken:
    """Credentials that are not asked for."""


def test_the_loop_comes_round_between_slices_of_preparation() -> None:
    ran: list[str] = []

    async def nothing() -> None:
        pass

    state = SimpleNamespace(begin_round=lambda now: (None, []))
    dispatcher = SimpleNamespace(dispatch=lambda out: None)
    process: Any = SimpleNamespace(state=state, _dispatcher=dispatcher, _name_suspects=nothing)

    async def slice_() -> None:
        asyncio.get_running_loop().call_soon(ran.append, "what came meanwhile")
        await Process._round(process, 0.0)
        assert ran

    asyncio.run(slice_())
