"""After an outage that was longer than the lease there is a leader again soon, and never two: whatever clocks say."""

from __future__ import annotations

import asyncio
import itertools
import random
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_election import World

from flowsched_k8s.api.client import Reply, UnreachableError
from flowsched_k8s.api.election import Election, Times

TIMES = Times(15.0, 10.0, 2.0)


class Way:
    """One replica's way to the lease. While it is cut, requests hang, and arrive all the same at its end, as with an API
    server whose etcd is away.
    """

    def __init__(self, world: World, arrives: bool = True) -> None:
        self.world = world
        self.arrives = arrives
        self.cuts: list[tuple[float, float]] = []

    async def request(self, method: str, path: str, *, body: Any = None, timeout: float = 1.0, **named: Any) -> Reply:
        world = self.world
        until = next((end for begin, end in self.cuts if begin <= world.now < end), None)
        if until is None:
            return await world.request(method, path, body=body, timeout=timeout, **named)
        wait = until - world.now
        if wait > timeout:
            if self.arrives:
                world._later(wait, method, body)
            await world.sleep(timeout)
            raise UnreachableError("no answer", sent=True)
        await world.sleep(wait)
        return await world.request(method, path, body=body, timeout=timeout - wait, **named)


class Replicas:
    """Processes that take part in one election; each that loses the lease ends, and is started again."""

    def __init__(self, seed: int, count: int = 2) -> None:
        self.world = World(random.Random(seed), 0.0)
        self.ways = [Way(self.world) for _ in range(count)]
        self.clocks: list[Callable[[], float]] = [lambda: self.world.now] * count
        """The wall clocks; the lives of processes are measured by another."""
        self.elections: dict[int, Election] = {}
        self.led: list[tuple[int, float]] = []

    async def _process(self, number: int) -> None:
        for life in itertools.count():
            election = self.elections[number] = Election(
                self.ways[number],  # type: ignore[arg-type]
                namespace="n",
                name="flowsched",
                identity=f"{number}-{life}",
                times=TIMES,
                clock=lambda: self.world.now,
                now=lambda: datetime(2026, 1, 1, tzinfo=UTC) + timedelta(seconds=self.clocks[number]()),
                sleep=self.world.sleep,
                rng=self.world.rng,
            )
            await election.run(lambda: self.led.append((number, self.world.now)), lambda: None)

    def run(self, until: float) -> None:
        def check() -> None:
            holding = [number for number, election in self.elections.items() if election.holds()]
            assert len(holding) <= 1, f"{holding} lead at {self.world.now}"

        async def main() -> None:
            tasks = [asyncio.create_task(self._process(number)) for number in range(len(self.ways))]
            await self.world.run(until, check)
            for task in tasks:
                assert not task.done(), task.exception()
                task.cancel()

        asyncio.run(main())


@pytest.mark.parametrize("seconds", [16.0, 60.0])
def test_there_is_a_leader_soon_after_an_outage_longer_than_the_lease(seconds: float) -> None:
    """The renewal that hung is carried out when the API server wakes up, and its sender has ended."""
    for seed in range(4):
        replicas = Replicas(seed)
        end = 60.0 + seconds
        for way in replicas.ways:
            way.cuts = [(60.0, end)]
        replicas.run(end + 30.0)
        again = [at for _, at in replicas.led if at > 60.0]
        assert end <= again[0] <= end + 7.0, replicas.led


def test_a_holder_that_lives_keeps_the_lease_while_another_was_cut_off() -> None:
    """Its clock was set back meanwhile: what it says is early by any amount."""
    for back in (0.0, 5.0, 57.0, 60.0, 3600.0):
        seed = 3
        replicas = Replicas(seed)
        replicas.clocks = [lambda r=replicas, b=back: r.world.now - (b if r.world.now > 70.0 else 0.0)] * 2
        other = 1 - first_leader(seed)
        replicas.ways[other].cuts = [(60.0, 120.0)]
        replicas.ways[other].arrives = False
        replicas.run(140.0)
        assert len(replicas.led) == 1, replicas.led


def first_leader(seed: int) -> int:
    replicas = Replicas(seed)
    replicas.run(20.0)
    return replicas.led[0][0]


def test_a_renewal_whose_clock_was_set_back_counts_from_when_it_was_seen() -> None:
    """Nothing tells how late it was."""
    for seed in range(2):
        replicas = Replicas(seed)
        leader = first_leader(seed)
        replicas.clocks = [lambda r=replicas: r.world.now - (3600.0 if r.world.now > 59.0 else 0.0)] * 2
        # The last renewal hangs until 100, and is the only request of the holder that ever arrives.
        replicas.ways[leader].cuts = [(60.0, 62.5), (62.5, 1e6)]
        replicas.run(100.0)
        later = [at for number, at in replicas.led if number != leader]
        assert later and 58.0 + TIMES.lease_duration <= later[0] <= 62.5 + TIMES.lease_duration + 3.0, replicas.led


@settings(max_examples=8)
@given(
    st.integers(0, 2**32),
    st.lists(st.tuples(st.floats(0.0, 120.0), st.floats(-100.0, 100.0)), max_size=4),
    st.lists(st.tuples(st.integers(0, 2), st.floats(20.0, 120.0), st.floats(1.0, 60.0)), max_size=4),
)
def test_never_two_lead_whatever_one_clock_does_while_others_are_cut_off(
    seed: int, steps: list[tuple[float, float]], cuts: list[tuple[int, float, float]]
) -> None:
    """The holder's clock is set at random while others do not see it; its own way is whole, so that it can renew."""
    replicas = Replicas(seed, 3)
    holder = first_leader_of(seed)

    def wall() -> float:
        return replicas.world.now + sum(by for at, by in steps if replicas.world.now > at)

    replicas.clocks[holder] = wall
    for number, begin, lasts in cuts:
        if number != holder:
            replicas.ways[number].cuts.append((begin, begin + lasts))
    replicas.run(150.0)
    assert [number for number, _ in replicas.led] == [holder]


def first_leader_of(seed: int) -> int:
    replicas = Replicas(seed, 3)
    replicas.run(20.0)
    return replicas.led[0][0]


@settings(max_examples=8)
@given(
    st.integers(0, 2**32),
    st.lists(st.tuples(st.integers(0, 2), st.floats(20.0, 120.0), st.floats(0.5, 60.0)), max_size=6),
    st.tuples(*[st.floats(-1e5, 1e5)] * 3),
    st.tuples(*[st.sampled_from([0.9, 0.999, 1.0, 1.001, 1.1])] * 3),
)
def test_never_two_lead_whatever_is_cut_off_while_clocks_run(
    seed: int, cuts: list[tuple[int, float, float]], skews: tuple[float, ...], speeds: tuple[float, ...]
) -> None:
    """Every way may be cut at any time; clocks are hours apart and run too fast or too slow, but are not set."""
    replicas = Replicas(seed, 3)
    replicas.clocks = [
        lambda skew=skew, speed=speed: skew + replicas.world.now * speed
        for skew, speed in zip(skews, speeds, strict=True)
    ]
    for number, begin, lasts in cuts:
        replicas.ways[number].cuts.append((begin, begin + lasts))
    replicas.run(160.0)
    assert replicas.led
