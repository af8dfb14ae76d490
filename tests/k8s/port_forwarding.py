"""A small kubelet: it forwards ports over a websocket (``v4.channel.k8s.io``) as a kubelet does, to loopback."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
import struct
import threading
from collections.abc import Callable, Iterator
from socket import SO_LINGER, SOL_SOCKET

from aiohttp import WSMsgType, web

PROTOCOL = "v4.channel.k8s.io"
DATA, ERROR = b"\0", b"\1"
"""Channels of the first port."""


async def forwarded(request: web.Request, port: int, dialled: int) -> web.StreamResponse:
    """Forward a port of a pod until either side ends. ``dialled``: where that port really is."""
    socket = web.WebSocketResponse(protocols=(PROTOCOL,), max_msg_size=0)
    await socket.prepare(request)
    assert socket.ws_protocol == PROTOCOL
    for channel in (DATA, ERROR):
        await socket.send_bytes(channel + port.to_bytes(2, "little"))
    try:
        reader, writer = await asyncio.open_connection("127.0.0.1", dialled)
    except OSError as error:
        await socket.send_bytes(ERROR + f"error forwarding port {port} to pod: {error.strerror}".encode())
        await socket.close()
        return socket

    async def send() -> None:
        while data := await reader.read(65536):
            await socket.send_bytes(DATA + data)
        await socket.close()

    sending = asyncio.create_task(send())
    try:
        async for message in socket:
            assert message.type is WSMsgType.BINARY and message.data[:1] == DATA
            writer.write(message.data[1:])
            await writer.drain()
    finally:
        sending.cancel()
        writer.close()
    return socket


async def reset(request: web.Request, port: int) -> web.StreamResponse:
    """Agree to forward a port, and reset the connection when the first bytes come."""
    socket = web.WebSocketResponse(protocols=(PROTOCOL,), autoclose=False)
    await socket.prepare(request)
    for channel in (DATA, ERROR):
        await socket.send_bytes(channel + port.to_bytes(2, "little"))
    await socket.receive_bytes()
    transport = request.transport
    assert transport is not None
    transport.get_extra_info("socket").setsockopt(SOL_SOCKET, SO_LINGER, struct.pack("ii", 1, 0))
    transport.abort()
    return socket


@contextlib.contextmanager
def kubelet(tls: ssl.SSLContext, host: str) -> Iterator[int]:
    """One that an API server asks to forward ports of any pod, which are those of this machine; the port it listens on."""

    async def answer(request: web.Request) -> web.StreamResponse:
        port = int(request.query["port"])
        return await forwarded(request, port, port)

    app = web.Application()
    app.router.add_get("/portForward/{namespace}/{pod}", answer)
    with served(app, host, tls) as port:
        yield port


@contextlib.contextmanager
def served(app: web.Application, host: str = "127.0.0.1", tls: ssl.SSLContext | None = None) -> Iterator[int]:
    """An application in a thread of its own; the port it listens on."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()

    def run(call: Callable[[], object]) -> object:
        return asyncio.run_coroutine_threadsafe(call(), loop).result(60)  # type: ignore[arg-type]

    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
    run(runner.setup)
    run(web.TCPSite(runner, host, 0, ssl_context=tls).start)
    try:
        yield int(runner.addresses[0][1])
    finally:
        run(runner.cleanup)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(60)
        loop.close()
