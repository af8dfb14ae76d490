"""No two lead at once, and there is a leader again soon."""

from __future__ import annotations

import asyncio
import heapq
import itertools
import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from plane import Fault, Plane, Space, Wire, becomes, wait_for

from flowsched_k8s.api.access import find_access
from flowsched_k8s.api.client import Connection, Reply, UnreachableError
from flowsched_k8s.api.election import Election, Times

SHORT = Times(lease_duration=3.0, renew_deadline=2.0, retry_period=0.5)
LEASES = [{"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": ["create"]}]
OWN_LEASE = {
    "apiGroups": ["coordination.k8s.io"],
    "resources": ["leases"],
    "resourceNames": ["flowsched"],
    "verbs": ["get", "update"],
}


@pytest.mark.parametrize(
    ("duration", "deadline", "period"),
    [(15, 15, 2), (10, 15, 2), (15, 2, 2), (15, 10, 0), (0.5, 0.3, 0.1), (float("nan"), 1, 0.1)],
)
def test_times_that_allow_two_leaders_are_refused(duration: float, deadline: float, period: float) -> None:
    with pytest.raises(ValueError):
        Times(duration, deadline, period)


# In a time of its own


class World:
    """One lease, several candidates, a network that loses things, and a clock that only sleeping moves."""

    def __init__(self, rng: random.Random, trouble: float) -> None:
        self.now = 0.0
        self.rng = rng
        self.trouble = trouble
        self.lease: dict[str, Any] | None = None
        self.version = 0
        self._number = itertools.count()
        self._sleepers: list[tuple[float, int, asyncio.Future[None]]] = []

    async def sleep(self, seconds: float) -> None:
        woken = asyncio.get_running_loop().create_future()
        heapq.heappush(self._sleepers, (self.now + max(seconds, 0.0), next(self._number), woken))
        await woken

    async def run(self, until: float, each: Any) -> None:
        while self.now < until:
            # All processes come to rest before time goes on.
            for _ in range(12):
                await asyncio.sleep(0)
            each()
            at, _, woken = heapq.heappop(self._sleepers)
            self.now = max(self.now, at)
            if not woken.done():
                woken.set_result(None)

    def election(self, **more: Any) -> Election:
        """One in this world, with the usual times."""
        return Election(
            self,  # type: ignore[arg-type]
            namespace="n",
            name="flowsched",
            identity="one",
            times=Times(15.0, 10.0, 2.0),
            clock=lambda: self.now,
            now=lambda: datetime(2026, 1, 1, tzinfo=UTC) + timedelta(seconds=self.now),
            sleep=self.sleep,
            rng=random.Random(1),
            **more,
        )

    async def request(
        self, method: str, path: str, *, body: Any = None, timeout: float = 1.0, urgent: bool = False
    ) -> Reply:
        assert urgent
        there, back = (self.rng.expovariate(10.0 if self.rng.random() > self.trouble else 0.3) for _ in range(2))
        if there > timeout:
            await self.sleep(timeout)
            # It may arrive all the same, much later.
            self._later(there - timeout, method, body)
            raise UnreachableError("late", sent=True)
        await self.sleep(there)
        reply = self._do(method, body)
        if there + back > timeout or self.rng.random() < self.trouble / 2:
            await self.sleep(timeout - there)
            raise UnreachableError("lost", sent=True)
        await self.sleep(back)
        return reply

    def _later(self, seconds: float, method: str, body: Any) -> None:
        async def arrive() -> None:
            await self.sleep(seconds)
            self._do(method, body)

        self.arriving = asyncio.ensure_future(arrive())

    def _do(self, method: str, body: Any) -> Reply:
        if method == "GET":
            return Reply(404, b"{}") if self.lease is None else Reply(200, json.dumps(self.lease).encode())
        if method == "POST" and self.lease is not None:
            return Reply(409, b"{}")
        if method == "PUT":
            assert self.lease is not None
            if body["metadata"]["resourceVersion"] != self.lease["metadata"]["resourceVersion"]:
                return Reply(409, b"{}")
        self.version += 1
        self.lease = {**body, "metadata": {**body["metadata"], "resourceVersion": str(self.version)}}
        return Reply(200, json.dumps(self.lease).encode())


@settings(max_examples=60)
@given(st.integers(0, 2**32), st.sampled_from([0.0, 0.1, 0.3, 0.6]), st.integers(2, 4))
def test_at_most_one_leads_whatever_the_network_does(seed: int, trouble: float, count: int) -> None:
    rng = random.Random(seed)
    world = World(rng, trouble)
    leaders: list[str] = []
    times = Times(15.0, 10.0, 2.0)

    async def candidate(number: int) -> None:
        # Their wall clocks are hours apart.
        skew = timedelta(hours=rng.uniform(-5, 5))
        for life in itertools.count():
            election = Election(
                world,  # type: ignore[arg-type]
                namespace="n",
                name="flowsched",
                identity=f"{number}-{life}",
                times=times,
                clock=lambda: world.now,
                now=lambda: datetime(2026, 1, 1, tzinfo=UTC) + timedelta(seconds=world.now) + skew,
                sleep=world.sleep,
                rng=rng,
            )
            elections[number] = election
            await election.run(lambda number=number: leaders.append(str(number)), lambda: None)
            assert not election.holds()

    elections: dict[int, Election] = {}

    def check() -> None:
        holding = [number for number, election in elections.items() if election.holds()]
        assert len(holding) <= 1, f"{holding} lead at {world.now}"

    async def run() -> None:
        tasks = [asyncio.create_task(candidate(number)) for number in range(count)]
        await world.run(600.0, check)
        for task in tasks:
            assert not task.done(), task.exception()
            task.cancel()

    asyncio.run(run())
    assert leaders
    if trouble == 0.0:
        assert len(leaders) == 1, "a leader stays the leader"


@pytest.mark.parametrize(("hangs_s", "stays"), [(5.0, True), (20.0, False)])
def test_a_request_that_hangs_does_not_cost_the_lease(hangs_s: float, stays: bool) -> None:
    """What comes after it is answered at once: there must be time left to ask again."""
    world = World(random.Random(1), 0.0)
    hangs = False
    asked = world.request

    async def request(*words: Any, timeout: float = 1.0, **named: Any) -> Reply:
        nonlocal hangs
        if hangs:
            hangs = world.now + min(timeout, hangs_s) < began + hangs_s
            await world.sleep(min(timeout, hangs_s))
            raise UnreachableError("no answer", sent=True)
        return await asked(*words, timeout=timeout, **named)

    world.request = request  # type: ignore[method-assign]
    lost: list[float] = []
    began = 0.0

    async def run() -> None:
        nonlocal hangs, began
        election = world.election()

        async def tick() -> None:
            while True:
                await world.sleep(1.0)

        ticks = asyncio.create_task(tick())
        task = asyncio.create_task(election.run(lambda: None, lambda: lost.append(world.now)))
        await world.run(10.0, lambda: None)
        hangs, began = True, world.now
        await world.run(40.0, lambda: None)
        task.cancel()
        ticks.cancel()

    asyncio.run(run())
    assert bool(lost) != stays


# On the real API server


def elect(connection: Connection, space: Space, identity: str, **options: Any) -> Election:
    return Election(
        connection, namespace=space.name, name="flowsched", identity=identity, **{"times": SHORT, **options}
    )


def lease(space: Space) -> dict[str, Any]:
    path = f"/apis/coordination.k8s.io/v1/namespaces/{space.name}/leases/flowsched"
    return dict(space.admin.get(path))


def test_the_lease_says_what_others_read_in_it(space: Space) -> None:
    config = space.service_account_kubeconfig([], [*LEASES, OWN_LEASE])

    async def run() -> None:
        async with Connection(find_access(config)) as connection:
            first, second = (elect(connection, space, name) for name in ("first", "second"))
            started: list[str] = []
            lost: list[str] = []
            one = asyncio.create_task(first.run(lambda: started.append("first"), lambda: lost.append("first")))
            await becomes(lambda: started == ["first"], "the first to lead")
            spec = lease(space)["spec"]
            assert {**spec, "acquireTime": "", "renewTime": ""} == {
                "holderIdentity": "first",
                "leaseDurationSeconds": 3,
                "leaseTransitions": 0,
                "acquireTime": "",
                "renewTime": "",
            }
            assert spec["acquireTime"] == spec["renewTime"] and "." in spec["renewTime"]
            # What others have written on it stays.
            path = f"/apis/coordination.k8s.io/v1/namespaces/{space.name}/leases/flowsched"
            space.admin.patch(path, {"metadata": {"labels": {"kept": "yes"}}})
            two = asyncio.create_task(second.run(lambda: started.append("second"), lambda: lost.append("second")))
            await becomes(lambda: lease(space)["spec"]["renewTime"] > spec["renewTime"], "the lease to be renewed")
            await becomes(lambda: second.leader == "first", "the second to see the first")
            assert first.holds() and not second.holds()
            one.cancel()
            await asyncio.wait([one])
            assert not first.holds()
            await becomes(lambda: started == ["first", "second"], "the second to take over")
            after = lease(space)
            assert after["metadata"]["labels"] == {"kept": "yes"}
            assert after["spec"]["holderIdentity"] == "second"
            assert after["spec"]["leaseTransitions"] == 1
            assert lost == []
            two.cancel()
            await asyncio.wait([two])
            assert lease(space)["spec"]["holderIdentity"] == ""

    asyncio.run(run())


@pytest.mark.parametrize("fault", [Fault.SILENCE, Fault.REFUSE, Fault.LOSE_REPLIES])
def test_a_leader_that_is_cut_off_gives_up_before_another_leads(plane: Plane, space: Space, fault: Fault) -> None:
    far = space.service_account_kubeconfig([], [*LEASES, OWN_LEASE], server="https://wire")

    async def run(wire: Wire) -> None:
        far.write_text(far.read_text().replace("https://wire", wire.address))
        async with Connection(find_access(far)) as one, Connection(find_access(plane.kubeconfig)) as other:
            first, second = elect(one, space, "first"), elect(other, space, "second")
            happened: list[str] = []
            leading = asyncio.create_task(first.run(lambda: happened.append("first"), lambda: happened.append("lost")))
            await becomes(lambda: happened == ["first"], "the first to lead")
            waiting = asyncio.create_task(second.run(lambda: happened.append("second"), lambda: None))
            wire.fault = fault
            if fault is Fault.REFUSE:
                wire.cut()

            def taken() -> bool:
                assert not (first.holds() and second.holds())
                return "second" in happened

            await becomes(taken, "the second to lead")
            assert happened == ["first", "lost", "second"]
            assert leading.done()
            waiting.cancel()
            await asyncio.wait([waiting])

    with Wire(plane.server) as wire:
        asyncio.run(run(wire))


def test_a_leader_that_finds_its_lease_taken_gives_up_at_once(plane: Plane, space: Space) -> None:
    async def run() -> None:
        async with Connection(find_access(plane.kubeconfig)) as connection:
            # With these times only the conflict can end it within the test.
            election = elect(connection, space, "robbed", times=Times(600.0, 500.0, 0.2))
            happened: list[str] = []
            leading = asyncio.create_task(
                election.run(lambda: happened.append("started"), lambda: happened.append("lost"))
            )
            await becomes(lambda: happened == ["started"], "it to lead")
            path = f"/apis/coordination.k8s.io/v1/namespaces/{space.name}/leases/flowsched"
            space.admin.patch(path, {"spec": {"holderIdentity": "robber"}})
            await becomes(leading.done, "it to give up")
            assert happened == ["started", "lost"]
            assert not election.holds()

    asyncio.run(run())


CHILD = """
import asyncio, sys, time
from pathlib import Path
from flowsched_k8s.api.access import find_access
from flowsched_k8s.api.client import Connection
from flowsched_k8s.api.election import Election, Times

async def main(config, namespace, identity):
    async with Connection(find_access(Path(config))) as connection:
        times = Times(3.0, 2.0, 0.5)
        election = Election(connection, namespace=namespace, name="flowsched", identity=identity, times=times)
        told = lambda word: print(word, time.monotonic(), flush=True)
        task = asyncio.create_task(election.run(lambda: told("started"), lambda: told("lost")))
        while not task.done():
            if election.holds():
                told("holds")
            await asyncio.sleep(0.02)

asyncio.run(main(*sys.argv[1:]))
"""


class Child:
    """A candidate in a process of its own; what it says, as it says it."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        self.said: list[tuple[str, float]] = []
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if len(parts := line.split()) != 2:
                continue  # torn: the process was stopped or killed in the middle of it
            word, at = parts
            self.said.append((word, float(at)))

    def finish(self) -> None:
        self.process.wait(30)
        self._reader.join(30)

    def times(self, word: str) -> list[float]:
        return [at for said, at in list(self.said) if said == word]


@contextmanager
def children(space: Space, count: int) -> Iterator[list[Child]]:
    command = [sys.executable, "-c", CHILD, str(space.plane.kubeconfig), space.name]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    started = []
    try:
        for number in range(count):
            process = subprocess.Popen([*command, str(number)], stdout=subprocess.PIPE, text=True, env=environment)
            started.append(Child(process))
        yield started
    finally:
        for child in started:
            child.process.kill()
            child.finish()


def first_leader(both: list[Child]) -> tuple[Child, Child]:
    """The one that leads, and the other one."""

    def leaders() -> list[Child]:
        assert all(child.process.poll() is None for child in both), "a candidate has ended"
        return [child for child in both if child.times("started") and child.times("holds")]

    leader = wait_for(leaders, "a leader")[0]
    return leader, next(child for child in both if child is not leader)


def test_a_process_that_was_stopped_does_not_lead_when_it_wakes_up(space: Space) -> None:
    with children(space, 2) as both:
        first, second = first_leader(both)
        first.process.send_signal(signal.SIGSTOP)
        wait_for(lambda: second.times("started") and second.times("holds"), "the other one to take over")
        first.process.send_signal(signal.SIGCONT)
        first.finish()
        assert first.times("lost")
        held = second.times("holds")
        assert held and max(first.times("holds")) < min(held)


def test_a_process_that_was_killed_is_followed_by_another(space: Space) -> None:
    with children(space, 2) as both:
        first, second = first_leader(both)
        killed = time.monotonic()
        first.process.kill()
        first.finish()
        wait_for(lambda: second.times("started") and second.times("holds"), "the other one to take over")
        assert min(second.times("holds")) > killed
        assert lease(space)["spec"]["leaseTransitions"] == 1
