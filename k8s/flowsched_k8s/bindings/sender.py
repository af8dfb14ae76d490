"""Carries out items of many namespaces, as many at a time as there are slots."""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Generic, TypeVar

from flowsched_k8s.bindings.turns import GIVE_UP_S, PATIENCE_S, Turn, Turns

LOG = logging.getLogger(__name__)

Item = TypeVar("Item")
Answer = TypeVar("Answer")


class Sender(Generic[Item]):
    """Of one kind of items. What they raise is told to ``failed``, and ends nothing else."""

    def __init__(
        self,
        turns: Turns[Item],
        carry_out: Callable[[Turn[Item]], Awaitable[bool]],
        clock: Callable[[], float],
        failed: Callable[[Turn[Item], Exception], object],
    ) -> None:
        """Nothing waits. ``carry_out`` says whether there is an outcome."""
        self.turns = turns
        self._carry_out = carry_out
        self._clock = clock
        self._failed = failed
        self.tasks: set[asyncio.Task[None]] = set()
        """Of items that are being carried out."""
        self._timer: asyncio.TimerHandle | None = None
        self._asked = False
        """Whether :meth:`send` is called soon anyway."""
        self._open: dict[Turn[Item], asyncio.Task[Any]] = {}
        """Requests under way that may be given up, oldest first."""
        self._again = asyncio.Semaphore(max(1, turns.slots // 4))

    def add(self, namespace: str, item: Item) -> None:
        """Send an item in its turn."""
        self.turns.add(namespace, item)
        if not self._asked:
            self._asked = True
            asyncio.get_running_loop().call_soon(self.send)

    def send(self) -> None:
        """Begin with as many items as may be sent now, before anything else is done."""
        self._asked = False
        while (turn := self.turns.next(self._clock())) is not None:
            task = _start(self._run(turn))
            self.tasks.add(task)
            task.add_done_callback(self._ended)
        if self._timer is None and self.tasks:
            self._timer = asyncio.get_running_loop().call_later(PATIENCE_S / 2, self._look)

    async def request(self, turn: Turn[Item], work: Awaitable[Answer]) -> Answer | None:
        """The answer to the first request of an item; None if it was given up, as it and too many others hang."""
        task = asyncio.current_task()
        assert task is not None, "called while the item is carried out"
        self._open[turn] = task
        try:
            return await work
        except asyncio.CancelledError:
            if turn in self._open:
                raise
            # It was given up, which does not end what carries the item out.
            task.uncancel()
            return None
        finally:
            self._open.pop(turn, None)

    async def once_more(self, work: Callable[[], Awaitable[Answer]]) -> Answer:
        """The answer to a further request of an item that has no outcome; a few of these are sent at a time."""
        async with self._again:
            return await work()

    def without_outcome(self, turn: Turn[Item], error: str) -> None:
        """An item is settled apart from now on."""
        self.turns.set_apart(turn, self._clock(), error)
        self.send()

    def stop(self) -> None:
        """Begin with nothing more."""
        self.turns.clear()
        if self._timer is not None:
            self._timer.cancel()

    def _look(self) -> None:
        self._timer = None
        now = self._clock()
        self.turns.look(now)
        hanging = [turn for turn in self._open if turn.apart_s is not None]
        for turn in hanging[: max(0, len(hanging) - self.turns.slots // 4)]:
            if now - turn.began_s >= GIVE_UP_S:
                self._open.pop(turn).cancel()
        self.send()

    async def _run(self, turn: Turn[Item]) -> None:
        answered = False
        try:
            answered = await self._carry_out(turn)
        except Exception as fault:
            try:
                self._failed(turn, fault)
            except Exception:
                LOG.exception("a fault could not be told", extra={"what": turn.item})
        finally:
            self.turns.end(turn, self._clock(), answered)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self.tasks.discard(task)
        if not task.cancelled():
            # Awaited by no one.
            task.result()
            self.send()


def _start(work: Coroutine[Any, Any, Answer]) -> asyncio.Task[Answer]:
    """A task that has come to its first wait where Python can do that, and begins with the loop's next turn before 3.12."""
    if sys.version_info >= (3, 12):
        return asyncio.Task(work, loop=asyncio.get_running_loop(), eager_start=True)
    return asyncio.create_task(work)
