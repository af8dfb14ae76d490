"""Connections to one address: half-sent requests, too many of them, and answers that are not read."""

from __future__ import annotations

import asyncio
import resource
from collections.abc import Awaitable, Callable

import pytest
from aiohttp import web

from flowsched.support.address import Address
from flowsched_k8s.http import connections
from flowsched_k8s.http.web_server import application, listen

REQUEST = b"GET /a HTTP/1.1\r\nHost: localhost\r\n\r\n"
LARGE = b"x" * 20_000_000


def against(
    test: Callable[[Callable[[bytes], Awaitable[tuple[asyncio.StreamReader, asyncio.StreamWriter]]]], Awaitable[None]],
    answer: Callable[[web.Request], Awaitable[web.StreamResponse]],
) -> None:
    """Run a test, which opens connections and sends bytes."""

    async def run() -> None:
        runner, address = await listen(application({"/a": answer}), "server", Address("127.0.0.1", 0))
        writers = []

        async def opened(data: bytes, client: str = "127.0.0.1") -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
            # Little room, so that an answer which is not read is not sent.
            reader, writer = await asyncio.open_connection(
                "127.0.0.1", address.port, limit=1024, local_addr=(client, 0)
            )
            writer.write(data)
            # One that is forgotten is closed.
            writers.append(writer)
            return reader, writer

        try:
            await asyncio.wait_for(test(opened), 60)
        finally:
            await runner.cleanup()

    asyncio.run(run())


async def short(_: web.Request) -> web.StreamResponse:
    return web.Response(text="here")


async def large(_: web.Request) -> web.StreamResponse:
    return web.Response(body=LARGE)


async def rest(reader: asyncio.StreamReader) -> bytes:
    try:
        return await reader.read()
    except ConnectionResetError:
        return b""


@pytest.mark.parametrize("sent", [b"", REQUEST[:5], REQUEST[:-2], REQUEST + REQUEST[:-2]])
def test_a_request_that_is_not_sent_ends(monkeypatch: pytest.MonkeyPatch, sent: bytes) -> None:
    monkeypatch.setattr(connections, "SENT_WITHIN_S", 0.05)

    async def test(opened: Callable[[bytes], Awaitable[tuple[asyncio.StreamReader, asyncio.StreamWriter]]]) -> None:
        reader, _ = await opened(sent)
        assert (await rest(reader)).count(b"here") == sent.count(REQUEST)

    against(test, short)


def test_bytes_that_trickle_in_give_no_more_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "SENT_WITHIN_S", 0.2)

    async def test(opened: Callable[[bytes], Awaitable[tuple[asyncio.StreamReader, asyncio.StreamWriter]]]) -> None:
        reader, writer = await opened(REQUEST[:-2])
        ended = asyncio.create_task(rest(reader))
        while not ended.done():
            writer.write(b"X-A: b\r\n")
            await asyncio.sleep(0.01)

    against(test, short)


def test_an_answer_may_take_longer_than_a_request(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "SENT_WITHIN_S", 0.02)
    monkeypatch.setattr(connections, "READ_WITHIN_S", 0.02)

    async def slow(_: web.Request) -> web.StreamResponse:
        await asyncio.sleep(0.2)
        return web.Response(text="here")

    async def test(opened: Callable[[bytes], Awaitable[tuple[asyncio.StreamReader, asyncio.StreamWriter]]]) -> None:
        # The second one has come long before it is looked at.
        reader, _ = await opened(REQUEST + REQUEST)
        assert (await rest(reader)).count(b"here") == 2

    against(test, slow)


def test_one_connection_more_ends_the_one_that_has_asked_for_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "MOST", 3)
    begun, release = asyncio.Semaphore(0), asyncio.Event()

    async def held(_: web.Request) -> web.StreamResponse:
        begun.release()
        await release.wait()
        return web.Response(text="here")

    async def test(opened: Callable[[bytes], Awaitable[tuple[asyncio.StreamReader, asyncio.StreamWriter]]]) -> None:
        served, _ = await opened(REQUEST)
        await begun.acquire()
        half = [(await opened(REQUEST[:-2]))[0] for _ in range(9)]
        # Only the two that came last are there still, beside the one that is served.
        assert [await rest(reader) for reader in half[:7]] == [b""] * 7
        last, _ = await opened(REQUEST)
        await begun.acquire()
        assert await rest(half[7]) == b""
        release.set()
        for reader in (served, last):
            assert b"200 OK" in await reader.readline()
        assert not half[8].at_eof()

    against(test, held)


def test_where_descriptors_are_few_so_are_connections(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (40, 40))

    async def test(opened: Callable[..., Awaitable[tuple[asyncio.StreamReader, asyncio.StreamWriter]]]) -> None:
        many = [(await opened(REQUEST[:-2]))[0] for _ in range(20)]
        assert [await rest(reader) for reader in many[:15]] == [b""] * 15
        assert not any(reader.at_eof() for reader in many[15:])

    against(test, short)


def test_a_client_that_opens_many_takes_them_from_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "MOST", 5)

    async def test(opened: Callable[..., Awaitable[tuple[asyncio.StreamReader, asyncio.StreamWriter]]]) -> None:
        other, writer = await opened(REQUEST[:-2], "127.0.0.2")
        many = [(await opened(REQUEST[:-2]))[0] for _ in range(20)]
        assert [await rest(reader) for reader in many[:16]] == [b""] * 16
        writer.write(REQUEST[-2:])
        assert b"200 OK" in await other.readline()

    against(test, short)


def test_an_answer_of_which_nothing_is_read_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "READ_WITHIN_S", 0.05)
    sites: list[connections.LimitedSite] = []
    start = connections.LimitedSite.start

    async def noted(site: connections.LimitedSite) -> None:
        sites.append(site)
        await start(site)

    monkeypatch.setattr(connections.LimitedSite, "start", noted)

    async def test(opened: Callable[[bytes], Awaitable[tuple[asyncio.StreamReader, asyncio.StreamWriter]]]) -> None:
        reader, _ = await opened(REQUEST)
        assert b"200 OK" in await reader.readline()
        while len(sites[0]):
            await asyncio.sleep(0.01)
        assert len(await rest(reader)) < len(LARGE)

    against(test, large)


def test_an_answer_that_is_read_slowly_comes_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    """In more than twice the time in which something of it must be read, and a part of it again and again."""
    monkeypatch.setattr(connections, "READ_WITHIN_S", 1.0)

    async def test(opened: Callable[[bytes], Awaitable[tuple[asyncio.StreamReader, asyncio.StreamWriter]]]) -> None:
        reader, _ = await opened(REQUEST)
        await reader.readuntil(b"\r\n\r\n")
        got = 0
        while got < len(LARGE):
            part = len(await reader.read(1_000_000))
            assert part, f"it ended after {got} bytes"
            got += part
            await asyncio.sleep(3.0 * part / len(LARGE))

    against(test, large)
