"""The body of an answer that comes bit by bit."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pycurl

from flowsched_k8s.api.transfers import TransferError, Transfers

_WAITING = 1 << 20
"""Bytes that may wait to be read before the server is slowed down."""


class Stream:
    """One transfer. Its chunks are read as they come; those that nothing reads yet wait."""

    def __init__(self, transfers: Transfers, curl: pycurl.Curl, stall: float) -> None:
        """Begin. No bytes for ``stall`` seconds are an error."""
        self._transfers = transfers
        self._curl = curl
        self._stall = stall
        self._loop = asyncio.get_running_loop()
        self._chunks: list[bytes] = []
        self._waiting = 0
        self._paused = False
        self._status = 0
        self._answered = False
        self._error: TransferError | None = None
        self._news: asyncio.Future[None] | None = None
        self._last = self._loop.time()
        self._timer = self._loop.call_later(stall, self._look)
        curl.setopt(pycurl.HEADERFUNCTION, self._take_header)
        curl.setopt(pycurl.WRITEFUNCTION, self._take)
        self._ended = transfers.start(curl)
        self._ended.add_done_callback(self._tell)

    async def status(self) -> int:
        """Wait for the answer's status. Raises :class:`TransferError`."""
        while not self._answered and not self._over():
            await self._wait()
        return self._status

    async def chunks(self) -> AsyncIterator[bytes]:
        """What has come since the last chunk, until the body ends. Raises :class:`TransferError`."""
        while self._chunks or not self._over():
            if self._chunks:
                chunk = b"".join(self._chunks)
                self._chunks.clear()
                self._waiting = 0
                if self._paused:
                    self._paused = False
                    self._curl.pause(pycurl.PAUSE_CONT)
                    self._transfers.proceed()
                yield chunk
            else:
                await self._wait()

    def close(self) -> None:
        """End it, wherever it is."""
        self._timer.cancel()
        self._transfers.stop(self._curl)

    def _over(self) -> bool:
        if self._error is not None:
            raise self._error
        if self._ended.done():
            self._ended.result()
            return True
        return False

    async def _wait(self) -> None:
        self._news = self._loop.create_future()
        await self._news

    def _tell(self, _: object = None) -> None:
        if self._news is not None and not self._news.done():
            self._news.set_result(None)

    def _take_header(self, line: bytes) -> None:
        if line.startswith(b"HTTP/"):
            self._status = int(line.split()[1])
        elif not line.strip() and self._status >= 200:
            self._answered = True
            self._last = self._loop.time()
            self._tell()

    def _take(self, chunk: bytes) -> int:
        if self._waiting > _WAITING:
            self._paused = True
            return pycurl.WRITEFUNC_PAUSE
        self._chunks.append(chunk)
        self._waiting += len(chunk)
        self._last = self._loop.time()
        self._tell()
        return len(chunk)

    def _look(self) -> None:
        """Whether the server has been silent for too long; not while it is held up here."""
        left = self._stall if self._paused else self._last + self._stall - self._loop.time()
        if left > 0:
            self._timer = self._loop.call_later(left, self._look)
        else:
            self._error = TransferError(f"no bytes for {self._stall:g} s", sent=True)
            self._tell()
