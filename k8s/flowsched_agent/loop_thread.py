"""An event loop in a thread of its own: the agent's loop never waits for what comes over the network."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from typing import Any, TypeVar

END_WITHIN_S = 2.0
"""What has not ended by then ends with the process."""
T = TypeVar("T")


class LoopThread:
    """Runs coroutines until it is closed."""

    def __init__(self, name: str) -> None:
        """Start the thread."""
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name=name, daemon=True)
        self._thread.start()

    def begin(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        """Let it run beside everything else."""
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    def soon(self, call: Callable[[], object]) -> None:
        """Call a function there, unless the thread has ended."""
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(call)

    def close(self) -> None:
        """Cancel what runs, and end."""
        with contextlib.suppress(TimeoutError):
            self.begin(_cancel_others()).result(END_WITHIN_S)
        self.soon(self._loop.stop)
        self._thread.join(END_WITHIN_S)
        if not self._thread.is_alive():
            self._loop.close()


async def _cancel_others() -> None:
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)
