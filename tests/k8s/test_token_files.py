"""Tokens in files are used as they are replaced, and none that still works is given up."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from test_client import config, served, written

from flowsched_k8s.api import access as access_module
from flowsched_k8s.api.access import Access, find_access
from flowsched_k8s.api.client import CREDENTIALS_FOR, Connection, UnreachableError
from flowsched_k8s.api.election import Election, Times
from flowsched_k8s.api.token_file import TokenFile


def in_a_kubeconfig(server: str, folder: Path, token: Path, monkeypatch: pytest.MonkeyPatch) -> Access:
    """The path is relative to the kubeconfig, and goes before a token that stands there."""
    content = config(server, token="stale", tokenFile=token.name)
    return find_access(written(folder, content))


def in_a_pod(server: str, folder: Path, token: Path, monkeypatch: pytest.MonkeyPatch) -> Access:
    """What a pod finds where its ServiceAccount is mounted."""

    class Settings:
        host, ssl_ca_cert, cert_file, verify_ssl, no_proxy, proxy = server, None, None, True, "", None

    class Loader:
        ConfigException = ValueError

        @staticmethod
        def load_incluster_config(_: Any) -> None: ...

    monkeypatch.setattr(access_module, "_official_client", lambda: (Loader, Settings()))
    monkeypatch.setattr(access_module, "_TOKEN_FILE", token)
    return find_access(None, {access_module.IN_CLUSTER: "here"})


WAYS = pytest.mark.parametrize("found", [in_a_kubeconfig, in_a_pod])
Found = Callable[[str, Path, Path, pytest.MonkeyPatch], Access]


@WAYS
def test_a_token_is_read_again_on_every_401_and_every_minute(
    found: Found, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    token, now = tmp_path / "the-token", 0.0
    shown: list[str] = []
    good = {"one"}

    async def handler(request: web.Request) -> web.Response:
        shown.append(request.headers["Authorization"].removeprefix("Bearer "))
        return web.json_response({}, status=200 if shown[-1] in good else 401)

    async def work(server: str) -> None:
        nonlocal now
        token.write_text("one\n")
        async with Connection(found(server, tmp_path, token, monkeypatch), clock=lambda: now) as connection:

            async def asked() -> tuple[bool, list[str]]:
                shown.clear()
                return (await connection.request("GET", "/")).ok, shown

            assert await asked() == (True, ["one"])
            for old, new in (("one", "two"), ("two", "three"), ("three", "four")):
                token.write_text(new)
                good.clear()
                good.add(new)
                assert await asked() == (True, [old, new]), "as soon as the old one is refused"
            token.write_text("five")
            good.add("five")
            now += CREDENTIALS_FOR
            assert CREDENTIALS_FOR <= 60.0 and await asked() == (True, ["five"])

    served(handler, work)


@WAYS
@pytest.mark.parametrize("state", ["missing", "empty", "no text"])
def test_a_token_that_works_is_not_given_up_while_its_file_is_replaced(
    found: Found, state: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    token, now = tmp_path / "the-token", 0.0

    async def handler(request: web.Request) -> web.Response:
        return web.json_response({}, status=200 if request.headers["Authorization"] == "Bearer one" else 401)

    async def work(server: str) -> None:
        nonlocal now
        token.write_text("one")
        async with Connection(found(server, tmp_path, token, monkeypatch), clock=lambda: now) as connection:
            assert (await connection.request("GET", "/")).ok
            if state == "missing":
                token.unlink()
            else:
                token.write_bytes(b"" if state == "empty" else b"\xff\xfe")
            for _ in range(3):
                now += 60.0
                assert (await connection.request("GET", "/")).ok

    served(handler, work)
    assert sum("the last token stays in use" in line for line in caplog.messages) == 1


def test_where_there_was_never_a_token_one_sentence_says_so(tmp_path: Path) -> None:
    access = Access("http://127.0.0.1:1", None, None, None, "default", None, TokenFile(tmp_path / "none"))

    async def run() -> None:
        async with Connection(access) as connection:
            with pytest.raises(
                UnreachableError, match=r"no credentials: token file .*/none: No such file or directory"
            ):
                await connection.request("GET", "/")

    asyncio.run(run())


def test_a_leader_keeps_the_lease_when_its_token_is_revoked_and_replaced(tmp_path: Path) -> None:
    """The official client remembers a token for a minute: the lease of 15 s was lost meanwhile."""
    token, now = tmp_path / "token", 0.0
    lease: dict[str, Any] = {}
    good, refused, lost = "t0", [0], list[float]()

    async def handler(request: web.Request) -> web.Response:
        if request.headers["Authorization"] != f"Bearer {good}":
            refused[0] += 1
            return web.json_response({}, status=401)
        if request.method == "GET" and not lease:
            return web.json_response({}, status=404)
        if request.method != "GET":
            lease.update(json.loads(await request.read()))
        return web.json_response(lease)

    async def sleep(seconds: float) -> None:
        nonlocal now, good
        now += seconds
        # The token is revoked at every look, and its file has another one some seconds later.
        if int(now) % 20 >= 14:
            good = f"t{int(now) // 20 + 1}"
        if int(now) % 20 >= 17:
            token.write_text(good)
        if now > 100.0:
            ended.set()
        await asyncio.sleep(0)

    async def work(server: str) -> None:
        token.write_text(good)
        access = find_access(written(tmp_path, config(server, tokenFile=str(token))))
        async with Connection(access, clock=lambda: now) as connection:
            election = Election(
                connection,
                namespace="n",
                name="flowsched",
                identity="one",
                times=Times(15.0, 10.0, 2.0),
                clock=lambda: now,
                sleep=sleep,
                rng=random.Random(1),
            )
            task = asyncio.create_task(election.run(lambda: None, lambda: lost.append(now)))
            await asyncio.wait_for(ended.wait(), 30)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    ended = asyncio.Event()
    served(handler, work)
    assert not lost and refused[0] >= 4
