"""An election in a thread of its own, so that no work of the process keeps its lease from being renewed in time."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from threading import Thread

from flowsched_k8s.api.client import Connection
from flowsched_k8s.api.election import Election

_log = logging.getLogger(__name__)


@dataclass(eq=False)
class ElectionThread:
    """Runs one election over a connection that nothing else uses."""

    connection: Connection
    election: Election
    """With this connection. Its callables are called in the thread."""
    on_started: Callable[[], None]
    """Called on the event loop that :meth:`start` was called on."""
    on_lost: Callable[[], None]
    """Called in the thread, as that event loop may not come round any more."""
    _thread: Thread | None = None
    _loop: asyncio.AbstractEventLoop = field(default_factory=asyncio.new_event_loop)
    _task: asyncio.Task[None] | None = None
    _stopped: bool = False
    _woken: asyncio.Event = field(default_factory=asyncio.Event)
    """Of the thread's loop: the lease is to be written before its time."""
    _written: asyncio.Event = field(default_factory=asyncio.Event)

    def start(self) -> None:
        """Become a candidate."""
        main = asyncio.get_running_loop()
        self.election.sleep = self._sleep
        self.election.on_written = partial(self._tell, main)
        self._thread = Thread(target=self._run, args=(main,), name="election", daemon=True)
        self._thread.start()

    async def write(self, within: float) -> bool:
        """Write the lease now, with the note that it is to bear from now on; whether it was written ``within`` seconds."""
        before = self.election.writes
        loop = asyncio.get_running_loop()
        until = loop.time() + within
        try:
            self._loop.call_soon_threadsafe(self._woken.set)
        except RuntimeError:  # The election is over.
            return False
        while self.election.written <= before:
            self._written.clear()
            try:
                await asyncio.wait_for(self._written.wait(), until - loop.time())
            except TimeoutError:
                return False
        return True

    async def stop(self, within: float) -> None:
        """Be no candidate any more; a lease that is held is released. Returns after so many seconds at the latest."""
        self._stopped = True
        if self._thread is not None and self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._cancel)
            await asyncio.to_thread(self._thread.join, within)

    async def _sleep(self, seconds: float) -> None:
        """A pause of the election, shorter where the lease is to be written."""
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._woken.wait(), seconds)
        self._woken.clear()

    def _tell(self, main: asyncio.AbstractEventLoop) -> None:
        with contextlib.suppress(RuntimeError):  # The last write may come after the end of the main loop.
            main.call_soon_threadsafe(self._written.set)

    def _cancel(self) -> None:
        if self._task is not None:
            self._task.cancel()

    def _run(self, main: asyncio.AbstractEventLoop) -> None:
        try:
            self._loop.run_until_complete(self._candidate(main))
        except Exception:
            _log.exception("the election stopped by a fault")
            self.on_lost()
        finally:
            self._loop.close()

    async def _candidate(self, main: asyncio.AbstractEventLoop) -> None:
        async with self.connection:
            run = self.election.run(partial(main.call_soon_threadsafe, self.on_started), self.on_lost)
            self._task = asyncio.create_task(run)
            if self._stopped:
                self._task.cancel()
            await asyncio.wait([self._task])
            if not self._task.cancelled() and (fault := self._task.exception()) is not None:
                raise fault
