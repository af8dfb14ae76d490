"""TLS of what is served on the network: a given certificate, read again when it changes, or one of its own."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import ssl
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest
from aiohttp import web
from certificates import Authority
from cryptography import x509
from cryptography.x509.oid import NameOID

from flowsched.support.address import Address
from flowsched_k8s.http import connections
from flowsched_k8s.http.certificate import LOOK_EVERY_S, VALID, ServedCertificate
from flowsched_k8s.http.web_server import application, listen
from flowsched_models.document import InputError

NOW = datetime(2026, 1, 1, tzinfo=UTC).timestamp()


class Clock:
    def __init__(self) -> None:
        self.now = NOW

    def __call__(self) -> float:
        return self.now


def served(certificate: ServedCertificate, work: Callable[[int], Awaitable[None]]) -> None:
    async def answer(_: web.Request) -> web.StreamResponse:
        return web.Response(text="here")

    async def run() -> None:
        app = application({"/a": answer})
        runner, address = await listen(app, "server", Address("127.0.0.1", 0), certificate.context)
        try:
            await asyncio.wait_for(work(address.port), 60)
        finally:
            await runner.cleanup()

    asyncio.run(run())


async def shown(port: int, trusted: Path | None = None) -> x509.Certificate:
    """The certificate that a new connection gets, which answers a request."""
    tls = ssl.create_default_context(cafile=trusted)
    if trusted is None:
        tls.check_hostname, tls.verify_mode = False, ssl.CERT_NONE
    reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=tls, server_hostname="flowsched")
    writer.write(b"GET /a HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
    assert (await reader.read()).endswith(b"\r\n\r\nhere")
    found: bytes | None = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
    assert found is not None
    writer.close()
    return x509.load_der_x509_certificate(found)


def named(certificate: x509.Certificate) -> str:
    return str(certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)[0].value)


def moved(files: tuple[Path, Path], to: tuple[Path, Path]) -> None:
    for source, target in zip(files, to, strict=True):
        target.write_bytes(source.read_bytes())


def test_one_of_its_own_is_replaced_long_before_it_ends() -> None:
    clock = Clock()

    async def work(port: int) -> None:
        first = await shown(port)
        assert first.not_valid_before_utc.timestamp() < NOW < NOW + 0.99 * VALID.total_seconds()
        assert first.not_valid_after_utc.timestamp() > NOW + 0.99 * VALID.total_seconds()
        assert await shown(port) == first
        clock.now += 0.51 * VALID.total_seconds()
        second = await shown(port)
        assert second.not_valid_after_utc > first.not_valid_after_utc
        assert second.public_key() != first.public_key()

    served(ServedCertificate(None, clock), work)


def test_given_files_are_read_again_when_they_change(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    authority, clock = Authority(tmp_path), Clock()
    files = tmp_path / "tls.crt", tmp_path / "tls.key"
    moved(authority.issue("flowsched"), files)

    async def work(port: int) -> None:
        first = await shown(port, authority.file)
        moved(authority.issue("flowsched"), files)
        clock.now += LOOK_EVERY_S
        second = await shown(port, authority.file)
        assert (named(first), named(second), first != second) == ("flowsched", "flowsched", True)
        # Half of a change, and then none of it.
        files[1].write_bytes(authority.issue("another")[1].read_bytes())
        for _ in range(3):
            clock.now += LOOK_EVERY_S
            assert await shown(port, authority.file) == second
        files[0].unlink()
        clock.now += LOOK_EVERY_S
        assert await shown(port, authority.file) == second
        moved(authority.issue("flowsched"), files)
        clock.now += LOOK_EVERY_S
        assert await shown(port, authority.file) not in (first, second)

    with caplog.at_level(logging.INFO, "flowsched_k8s.http.certificate"):
        served(ServedCertificate(files, clock), work)
    assert [r.levelname for r in caplog.records] == ["INFO", "WARNING", "WARNING", "INFO"]
    assert "is not a certificate with the key beside it: key values mismatch" in str(vars(caplog.records[1])["error"])


@pytest.mark.parametrize(
    ("certificate", "key", "told"),
    [
        (None, None, "cannot be read: No such file or directory"),
        ("tls.crt", None, "cannot be read: No such file or directory"),
        ("no PEM", "no PEM", "is not a certificate with the key beside it: "),
        ("tls.crt", "other.key", "is not a certificate with the key beside it: key values mismatch"),
        ("tls.key", "tls.crt", "is not a certificate with the key beside it: "),
    ],
)
def test_files_that_cannot_be_used_are_a_sentence(
    tmp_path: Path, certificate: str | None, key: str | None, told: str
) -> None:
    authority = Authority(tmp_path)
    files = tmp_path / "given.crt", tmp_path / "given.key"
    moved(authority.issue("tls"), (tmp_path / "tls.crt", tmp_path / "tls.key"))
    authority.issue("other")
    for file, content in zip(files, (certificate, key), strict=True):
        if content is not None:
            source = tmp_path / content
            file.write_bytes(source.read_bytes() if source.exists() else content.encode())
    with pytest.raises(InputError) as caught:
        ServedCertificate(files, Clock())
    (problem,) = caught.value.problems
    assert f"given.crt: {told}" in str(problem)
    assert "\n" not in str(problem)


@pytest.mark.parametrize("sent", [b"", b"\x16\x03\x01", b"GET /a HTTP/1.1\r\nHost: x\r\n\r\n", b"\x00" * 100])
def test_a_handshake_that_does_not_come_about_ends(monkeypatch: pytest.MonkeyPatch, sent: bytes) -> None:
    monkeypatch.setattr(connections, "SENT_WITHIN_S", 0.1)

    async def work(port: int) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(sent)
        with contextlib.suppress(ConnectionResetError):
            assert b"here" not in await reader.read()
        writer.close()

    served(ServedCertificate(None, Clock()), work)


def test_handshakes_that_do_not_go_on_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "MOST", 5)

    async def work(port: int) -> None:
        silent = [await asyncio.open_connection("127.0.0.1", port) for _ in range(20)]
        for reader, _ in silent[:15]:
            try:
                assert await reader.read() == b""
            except ConnectionResetError:
                continue
        await shown(port)

    served(ServedCertificate(None, Clock()), work)
