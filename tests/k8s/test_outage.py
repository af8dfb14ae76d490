"""What is said of an API server that does not answer: why, in plain words, and not for every request."""

from __future__ import annotations

import asyncio
import resource
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from flowsched_k8s.api.access import find_access
from flowsched_k8s.api.client import Connection, UnreachableError
from flowsched_k8s.api.outage import Outage
from flowsched_k8s.descriptors import NEEDED, WANTED, provide_descriptors
from flowsched_models.document import InputError

S = "https://s"


def said(caplog: pytest.LogCaptureFixture) -> list[str]:
    told = [record.getMessage() for record in caplog.records]
    caplog.clear()
    return told


def test_an_outage_is_told_once_every_minute_and_at_its_end(caplog: pytest.LogCaptureFixture) -> None:
    outage = Outage(S)
    outage.answered(0.0)
    assert said(caplog) == []
    outage.failed("it refuses connections", 1.0)
    assert said(caplog) == [f"the API server {S} does not answer, trying again: it refuses connections"]
    for tenth in range(590):
        # Every second request is answered.
        outage.failed("no answer within 30 s" if tenth % 10 == 0 else "it refuses connections", 1.1 + tenth / 10)
        outage.answered(1.15 + tenth / 10)
    assert said(caplog) == []
    outage.failed("it refuses connections", 61.5)
    assert said(caplog) == [
        f"591 of 1181 requests to the API server {S} had no answer in the last 60 s: "
        "532 times it refuses connections; 59 times no answer within 30 s"
    ]
    outage.answered(71.4)
    assert said(caplog) == []
    outage.answered(71.5)
    assert said(caplog) == [f"the API server {S} answers again: 592 request(s) had no answer within 60 s"]
    outage.answered(200.0)
    assert said(caplog) == []
    outage.failed("its name cannot be resolved", 300.0)
    assert len(said(caplog)) == 1


def test_a_quiet_minute_is_told_nothing_of(caplog: pytest.LogCaptureFixture) -> None:
    """One request has failed, and the next one is answered much later: all is well by then."""
    outage = Outage(S)
    outage.failed("no answer within 30 s", 1.0)
    outage.answered(5.0)
    outage.answered(300.0)
    assert [text for text in said(caplog) if "in the last" in text] == []


def access(folder: Path, server: str) -> Any:
    named: dict[str, Any] = {"clusters": [{"name": "c", "cluster": {"server": server}}]}
    named |= {"users": [{"name": "u", "user": {"token": "secret"}}], "current-context": "x"}
    named["contexts"] = [{"name": "x", "context": {"cluster": "c", "user": "u"}}]
    (folder / "config").write_text(yaml.safe_dump({"apiVersion": "v1", "kind": "Config", **named}))
    return find_access(folder / "config")


def test_connections_to_one_server_tell_together(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """As those of rounds and of the lease do, which is renewed in a thread of its own."""
    server = "http://127.0.0.1:9"
    outage = Outage(server)

    async def ask() -> None:
        for _ in range(2):
            async with Connection(access(tmp_path, server), outage=outage, timeout=5.0) as connection:
                with pytest.raises(UnreachableError):
                    await connection.request("GET", "/version")

    asyncio.run(ask())
    assert len([text for text in said(caplog) if "does not answer" in text]) == 1


def cause(folder: Path, answer: Callable[[asyncio.StreamWriter], None] | None, timeout: float = 5.0) -> str:
    """What is said of a request to a server that does this with it; None: nothing listens."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        assert answer is not None
        answer(writer)

    async def ask() -> str:
        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        if answer is None:
            server.close()
            await server.wait_closed()
        async with Connection(access(folder, f"http://127.0.0.1:{port}"), timeout=timeout) as connection:
            with pytest.raises(UnreachableError) as caught:
                await connection.request("GET", "/x")
        server.close()
        return str(caught.value)

    return asyncio.run(ask())


def after(data: bytes) -> Callable[[asyncio.StreamWriter], None]:
    """An answer, and the end of the connection."""

    def write(writer: asyncio.StreamWriter) -> None:
        writer.write(data)
        writer.close()

    return write


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (None, "it refuses connections, as where no process listens"),
        (lambda writer: None, "no answer within 0.2 s"),
        (after(b""), "the connection was closed without an answer"),
        (lambda writer: writer.transport.abort(), "the connection was c"),
        (
            after(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n{"),
            "the connection was closed in the middle of an answer",
        ),
        (after(b"220 mail ready\r\n"), "what came is no HTTP"),
    ],
)
def test_causes_are_in_plain_words(tmp_path: Path, answer: Any, expected: str) -> None:
    assert cause(tmp_path, answer, 0.2).startswith(expected)


def test_a_name_that_is_none_is_said_so(tmp_path: Path) -> None:
    async def ask() -> None:
        async with Connection(access(tmp_path, "http://nowhere.invalid")) as connection:
            with pytest.raises(UnreachableError, match="its name cannot be resolved"):
                await connection.request("GET", "/x")

    asyncio.run(ask())


_WITHOUT = """
import asyncio, os, resource, sys
from pathlib import Path
from flowsched_k8s.api.access import find_access
from flowsched_k8s.api.client import Connection, UnreachableError

async def ask():
    async with Connection(find_access(Path(sys.argv[1]))) as connection:
        await connection._renew_credentials()
        connection._transfers()
        taken = []
        resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
        while True:
            try:
                taken.append(os.open(os.devnull, os.O_RDONLY))
            except OSError:
                break
        try:
            await connection.request("GET", "/x")
        except UnreachableError as error:
            print(error, error.sent)

asyncio.run(ask())
"""


def test_a_process_without_file_descriptors_says_so(tmp_path: Path) -> None:
    access(tmp_path, "http://127.0.0.1:1")
    command = [sys.executable, "-c", _WITHOUT, str(tmp_path / "config")]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout == "this process has no file descriptor left (EMFILE): raise the limit, ulimit -n False\n"


def test_the_limit_of_file_descriptors_is_raised_or_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    limits = (32, 32)
    monkeypatch.setattr(resource, "getrlimit", lambda _: limits)

    def set_to(_: int, new: tuple[int, int]) -> None:
        nonlocal limits
        limits = new

    monkeypatch.setattr(resource, "setrlimit", set_to)
    with pytest.raises(InputError, match=f"this process may have 32 file descriptors, and needs {NEEDED}"):
        provide_descriptors()
    limits = (1024, 1_000_000)
    assert provide_descriptors() == WANTED
    assert limits == (WANTED, 1_000_000)
    limits = (1024, 1024)
    assert provide_descriptors() == 1024
    limits = (8192, resource.RLIM_INFINITY)
    assert provide_descriptors() == 8192
