"""An answer that comes bit by bit."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

import pycurl

from flowsched_k8s.api.transfers import TransferError, Transfers

T = TypeVar("T")


@dataclass(eq=False)
class Stream:
    """One answer. Its parts are taken in as they come, before the event loop does anything else."""

    _transfers: Transfers
    _curl: pycurl.Curl
    _stall: float
    """No bytes for so many seconds are an error."""
    _opened: Callable[[int], None]
    """Told the status; what it raises ends the stream, as what ``_take`` does."""
    _take: Callable[[bytes], None]
    """Told each part of the body if the status is 200."""
    status: int = 0
    """0 as long as there is none."""
    refusal: bytes = b""
    """The body of any other status than 200."""
    _raised: Exception | None = None

    def __post_init__(self) -> None:
        """Take in from now on."""
        self._loop = asyncio.get_running_loop()
        self._last = self._loop.time()
        self._curl.setopt(pycurl.HEADERFUNCTION, self._take_header)
        self._curl.setopt(pycurl.WRITEFUNCTION, self._take_part)

    async def run(self) -> None:
        """Return when the answer is complete. Raises what was raised on the way, and :class:`TransferError`."""
        self._look()
        try:
            await self._transfers.run(self._curl)
        except TransferError:
            if self._raised is not None:
                raise self._raised from None
            raise
        finally:
            self._timer.cancel()

    def _look(self) -> None:
        left = self._last + self._stall - self._loop.time()
        if left > 0:
            self._timer = self._loop.call_later(left, self._look)
        else:
            self._transfers.stop(self._curl, TransferError(f"no bytes for {self._stall:g} s", sent=True))

    def _take_header(self, line: bytes) -> int:
        if line.startswith(b"HTTP/"):
            _, status, *_ = *line.split(), b"", b""
            self.status = int(status) if status.isdigit() else 0
        if line.strip() or self.status < 200:
            return len(line)
        return len(line) if self._done(self._opened, self.status) else -1

    def _take_part(self, part: bytes) -> int:
        self._last = self._loop.time()
        if self.status != 200:
            self.refusal += part
            return len(part)
        return len(part) if self._done(self._take, part) else -1

    def _done(self, action: Callable[[T], None], about: T) -> bool:
        # libcurl lets no exception through.
        try:
            action(about)
        except Exception as error:
            self._raised = error
            return False
        return True
