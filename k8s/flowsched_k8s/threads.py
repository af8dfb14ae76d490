"""Work in threads, counted: a thread cannot be stopped, so the end of the process depends on which still compute."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from threading import Lock
from typing import ParamSpec, TypeVar

Given = ParamSpec("Given")
Answer = TypeVar("Answer")


class Threads:
    """Runs functions beside the event loop."""

    def __init__(self) -> None:
        """Nothing runs."""
        self._running = 0
        self._lock = Lock()

    @property
    def under_way(self) -> int:
        """Functions that have not returned yet, those whose callers were cancelled among them."""
        return self._running

    async def run(self, work: Callable[Given, Answer], *args: Given.args, **kwargs: Given.kwargs) -> Answer:
        """What a function answers."""

        def counted() -> Answer:
            try:
                return work(*args, **kwargs)
            finally:
                self._count(-1)

        self._count(1)
        return await asyncio.to_thread(counted)

    def _count(self, change: int) -> None:
        with self._lock:
            self._running += change
