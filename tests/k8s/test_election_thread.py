"""The lease is renewed whatever the main loop does, but not for one that does not come round any more."""

from __future__ import annotations

import asyncio
import random
import time

from plane import Space, becomes
from test_election import LEASES, OWN_LEASE, World, elect, lease

from flowsched_k8s.api.access import find_access
from flowsched_k8s.api.client import Connection
from flowsched_k8s.api.election import Times
from flowsched_k8s.api.election_thread import ElectionThread


def test_a_process_that_does_its_work_no_more_loses_the_lease_at_once() -> None:
    world = World(random.Random(1), 0.0)
    alive, lost = True, list[float]()

    async def run() -> None:
        nonlocal alive
        election = world.election(lives=lambda: alive)
        ticks = asyncio.create_task(_tick(world))
        task = asyncio.create_task(election.run(lambda: None, lambda: lost.append(world.now)))
        await world.run(60.0, lambda: None)
        assert election.holds() and not lost
        alive = False
        await world.run(70.0, lambda: None)
        assert not election.holds()
        task.cancel()
        ticks.cancel()

    asyncio.run(run())
    assert len(lost) == 1 and lost[0] < 60.0 + 4.0


async def _tick(world: World) -> None:
    while True:
        await world.sleep(1.0)


def test_the_lease_is_renewed_while_the_main_loop_is_held_up(space: Space) -> None:
    config = space.service_account_kubeconfig([], [*LEASES, OWN_LEASE])
    happened: list[str] = []
    # Long enough for a machine that is busy with other tests.
    times = Times(lease_duration=9.0, renew_deadline=6.0, retry_period=0.5)
    comes_round = True

    async def run() -> None:
        nonlocal comes_round
        election = elect(Connection(find_access(config)), space, "one", times=times)
        election.lives = lambda: comes_round
        thread = ElectionThread(
            election.connection, election, lambda: happened.append("started"), lambda: happened.append("lost")
        )
        thread.start()
        await becomes(lambda: happened == ["started"], "it to lead")
        before = lease(space)["spec"]["renewTime"]
        time.sleep(times.renew_deadline + 0.5)
        assert election.holds() and lease(space)["spec"]["renewTime"] > before
        comes_round = False
        await becomes(lambda: happened == ["started", "lost"], "it to end for a loop that does not come round")
        assert not election.holds()
        await thread.stop(5.0)

    asyncio.run(run())


def test_a_stop_hands_the_lease_over(space: Space) -> None:
    config = space.service_account_kubeconfig([], [*LEASES, OWN_LEASE])
    happened: list[str] = []

    async def run() -> None:
        election = elect(Connection(find_access(config)), space, "one")
        thread = ElectionThread(
            election.connection, election, lambda: happened.append("started"), lambda: happened.append("lost")
        )
        thread.start()
        await becomes(lambda: happened == ["started"], "it to lead")
        await thread.stop(5.0)
        assert happened == ["started"]
        assert lease(space)["spec"]["holderIdentity"] == ""

    asyncio.run(run())
