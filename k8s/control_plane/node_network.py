"""How a node in a network of its own reaches the API server on the loopback of the machine, and nothing else."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import os
import socket
import threading
from collections.abc import Sequence
from pathlib import Path

_NEW_NETWORK = 0x40000000
Address = tuple[str, int]


def listening_inside(pid: int, addresses: Sequence[Address]) -> list[socket.socket]:
    """Sockets that listen in the network of another process. Raises ``OSError``."""
    made: list[socket.socket] = []
    failed: list[OSError] = []

    def listen() -> None:
        # A thread may be in another network than its process, and sockets stay where they were made.
        try:
            library = ctypes.CDLL(None, use_errno=True)
            with Path(f"/proc/{pid}/ns/net").open() as network:
                if library.setns(network.fileno(), _NEW_NETWORK):
                    number = ctypes.get_errno()
                    raise OSError(number, os.strerror(number))
            for address in addresses:
                made.append(socket.create_server(address))
        except OSError as error:
            failed.append(error)

    thread = threading.Thread(target=listen)
    thread.start()
    thread.join()
    if failed:
        raise failed[0]
    return made


def forward(listening: Sequence[socket.socket], target: Address) -> None:
    """Pass every connection on to another address, for as long as this process lives."""
    threading.Thread(target=lambda: asyncio.run(serve(listening, target)), daemon=True).start()


async def serve(listening: Sequence[socket.socket], target: Address) -> None:
    """Pass every connection on to an address of the network that this process is in."""

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            far_reader, far_writer = await asyncio.open_connection(*target)
        except OSError:
            writer.transport.abort()
            return
        await asyncio.gather(_pump(reader, far_writer), _pump(far_reader, writer))

    servers = [await asyncio.start_server(connected, sock=one) for one in listening]
    await asyncio.gather(*(server.serve_forever() for server in servers))


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while data := await reader.read(1 << 16):
            writer.write(data)
            await writer.drain()
    writer.close()
