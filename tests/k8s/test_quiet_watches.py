"""A watch that stays open and tells nothing gives way to a new one, which tells what the old one left out."""

from __future__ import annotations

import asyncio
import math
from typing import Any

from test_reflector import BOOKMARK, EXPIRED, Follower, Opened, Script, Take, event, page, pod

from flowsched_k8s.api.reflector import Reflector
from flowsched_k8s.objects import Pod

QUIET_S = 30.0


class Passing(Script):
    """Answers from a script on a clock that sleeping moves. Watches stay open after what they say but for an error."""

    def __init__(self, *answers: Any, closed: bool = False) -> None:
        super().__init__(*answers)
        self.now = 0.0
        self.closed = closed
        self.opened_s: list[float] = []

    async def sleep(self, seconds: float) -> None:
        self.delays.append(seconds)
        until = self.now + seconds
        while self.now < until:
            for _ in range(5):
                await asyncio.sleep(0)
            self.now = min(self.now + 5.0, until)

    async def follow(self, path: str, query: dict[str, str], stall: float, opened: Opened, take: Take) -> None:
        answer = await self.next(query)
        self.opened_s.append(self.now)
        if not self.closed:
            opened()
        for part in answer:
            if isinstance(part, float):
                while self.now < self.opened_s[-1] + part:
                    await asyncio.sleep(0)
            else:
                take(part)
        await asyncio.Event().wait()


def followed(script: Passing, quiet: float = QUIET_S) -> tuple[Follower, Reflector[Pod]]:
    async def run() -> tuple[Follower, Reflector[Pod]]:
        follower = Follower()
        reflector = Reflector(
            script,  # type: ignore[arg-type]
            "/api/v1/pods",
            Pod,
            follower,
            sleep=script.sleep,
            clock=lambda: script.now,
            quiet=quiet,
        )
        task = asyncio.create_task(reflector.run())
        await asyncio.wait_for(script.done.wait(), 10)
        task.cancel()
        return follower, reflector

    return asyncio.run(run())


def positions(script: Passing) -> list[str]:
    """Where watches began."""
    return [asked["resourceVersion"] for asked in script.asked if "watch" in asked]


def test_what_a_silent_watch_left_out_is_told_by_the_next() -> None:
    script = Passing(page(7, pod("a", 1)), [], [event("ADDED", pod("b", 8))], [])
    follower, reflector = followed(script)
    assert follower.names == ["a", "b"]
    assert positions(script)[:3] == ["7", "7", "8"]
    assert script.opened_s[:3] == [0.0, QUIET_S, 2 * QUIET_S]
    assert (reflector.counts.lists, reflector.current) == (1, True)


def test_bookmarks_say_nothing_of_what_was_left_out() -> None:
    """They are at 50 while the event of 8 was never delivered."""
    script = Passing(page(7), [BOOKMARK], [event("ADDED", pod("b", 8)), BOOKMARK], [])
    follower, _ = followed(script)
    assert positions(script)[:3] == ["7", "7", "8"]
    assert follower.names == ["b"]


def test_a_quiet_cluster_costs_two_requests_a_minute_and_no_list() -> None:
    script = Passing(page(7), *[[]] * 20)
    _, reflector = followed(script)
    assert script.opened_s[:21] == [QUIET_S * i for i in range(20)]
    assert reflector.counts.lists == 1 and reflector.counts.replaced == 20


def test_events_keep_a_watch() -> None:
    script = Passing(page(7), [event("ADDED", pod("b", 8)), 20.0, event("MODIFIED", pod("b", 9)), 60.0], [])
    followed(script)
    assert script.opened_s[1] == 20.0 + QUIET_S


def test_everything_is_listed_only_where_the_server_has_forgotten() -> None:
    script = Passing(page(7, pod("a", 1)), [], [EXPIRED], page(90, pod("a", 1), pod("c", 80)), [])
    follower, reflector = followed(script)
    assert follower.names == ["a", "c"]
    assert reflector.counts.lists == 2 and positions(script)[2:] == ["90", "90"][: len(positions(script)) - 2]


def test_a_watch_that_is_never_answered_is_a_failure() -> None:
    script = Passing(page(7), [], [], closed=True)
    _, reflector = followed(script)
    assert not reflector.current


def test_other_kinds_go_on_from_bookmarks() -> None:
    script = Passing(page(7), [BOOKMARK, EXPIRED], page(60))
    _, reflector = followed(script, math.inf)
    assert positions(script) == ["7", "60"]
    assert reflector.counts.lists == 2
