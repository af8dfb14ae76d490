"""HTTP transfers of libcurl on the event loop, over connections that are kept alive."""

from __future__ import annotations

import asyncio
import errno
import os

import pycurl

_IDLE_FOR = 60
"""Seconds after which an idle connection is not used again; API servers close theirs after 90."""
_BUFFER = 1 << 18
"""Bytes that are read at once."""
_CONNECT_WITHIN = 10.0
"""Seconds."""
_SUPPRESS_CONNECT_HEADERS = 265
"""CURLOPT_SUPPRESS_CONNECT_HEADERS of curl/curl.h, which pycurl has no name for: a proxy's answer is not the server's."""
_NEVER_SENT = (pycurl.E_COULDNT_RESOLVE_PROXY, pycurl.E_COULDNT_RESOLVE_HOST, pycurl.E_COULDNT_CONNECT)


def new_handle(proxy: str | None = None) -> pycurl.Curl:
    """A handle of libcurl with what all transfers share. Only the given proxy is used, and none of the environment."""
    curl = pycurl.Curl()
    for option, value in (
        (pycurl.NOSIGNAL, 1),
        (pycurl.HTTP_VERSION, pycurl.CURL_HTTP_VERSION_1_1),
        (pycurl.BUFFERSIZE, _BUFFER),
        (pycurl.CONNECTTIMEOUT_MS, round(_CONNECT_WITHIN * 1000)),
        (pycurl.MAXAGE_CONN, _IDLE_FOR),
        (pycurl.TCP_KEEPALIVE, 1),
        (_SUPPRESS_CONNECT_HEADERS, 1),
        # Names in paths are data.
        (pycurl.PATH_AS_IS, 1),
        (pycurl.PROXY, proxy or ""),
    ):
        curl.setopt(option, value)
    return curl


_CAUSES = {
    pycurl.E_COULDNT_RESOLVE_PROXY: "the name of the proxy cannot be resolved",
    pycurl.E_COULDNT_RESOLVE_HOST: "its name cannot be resolved",
    pycurl.E_GOT_NOTHING: "the connection was closed without an answer",
    pycurl.E_RECV_ERROR: "the connection was cut before the whole answer had come",
    pycurl.E_PARTIAL_FILE: "the connection was closed in the middle of an answer",
    pycurl.E_SEND_ERROR: "the connection was cut before the whole request was sent",
    pycurl.E_WRITE_ERROR: "the answer is more than could be taken in",
    pycurl.E_UNSUPPORTED_PROTOCOL: "what came is no HTTP",
    pycurl.E_BAD_CONTENT_ENCODING: "what came is not encoded as it says",
    pycurl.E_FAILED_INIT: "there is too little memory",
    pycurl.E_OUT_OF_MEMORY: "there is too little memory",
    pycurl.E_FTP_WEIRD_SERVER_REPLY: "what came is no HTTP",
}
_REFUSALS = {
    errno.ECONNREFUSED: "it refuses connections, as where no process listens",
    errno.ECONNRESET: "the connection was cut",
    errno.EHOSTUNREACH: "there is no way to its address",
    errno.ENETUNREACH: "there is no network to its address",
}
_NO_DESCRIPTOR = "this process has no file descriptor left (EMFILE): raise the limit, ulimit -n"


def _cause(curl: pycurl.Curl, code: int, message: str) -> str:
    """Why a transfer has failed, in plain words; libcurl's own where there are none."""
    if code in _NEVER_SENT and not _has_descriptor():
        return _NO_DESCRIPTOR
    if code == pycurl.E_OPERATION_TIMEDOUT:
        connected = curl.getinfo(pycurl.PRETRANSFER_TIME) > 0
        after = round(curl.getinfo(pycurl.TOTAL_TIME), 1)
        return f"no answer within {after:g} s" if connected else f"no connection within {after:g} s"
    if code == pycurl.E_COULDNT_CONNECT:
        number = curl.getinfo(pycurl.OS_ERRNO)
        return _REFUSALS.get(number) or f"no connection: {os.strerror(number).lower() if number else message}"
    return _CAUSES.get(code) or message or str(pycurl.easy_strerror(code))


def _has_descriptor() -> bool:
    try:
        os.close(os.open(os.devnull, os.O_RDONLY))
    except OSError as error:
        return error.errno not in (errno.EMFILE, errno.ENFILE)
    return True


class TransferError(Exception):
    """A transfer did not come to its end. ``sent`` says whether the server may have got the request."""

    def __init__(self, message: str, sent: bool) -> None:
        """Keep why."""
        self.sent = sent
        super().__init__(message)


class Transfers:
    """The transfers that are under way on the running event loop, and their connections."""

    def __init__(self, kept: int) -> None:
        """Keep as many idle connections as ``kept``."""
        self._loop = asyncio.get_running_loop()
        self._multi = pycurl.CurlMulti()
        self._multi.setopt(pycurl.M_SOCKETFUNCTION, self._follow)
        self._multi.setopt(pycurl.M_TIMERFUNCTION, self._wake_after)
        self._multi.setopt(pycurl.M_MAXCONNECTS, kept)
        self._timer: asyncio.TimerHandle | None = None
        self._followed: dict[int, int] = {}
        self._running: dict[pycurl.Curl, asyncio.Future[None]] = {}

    async def run(self, curl: pycurl.Curl) -> None:
        """Carry out one transfer. Raises :class:`TransferError`. Cancelled, it closes its connection."""
        ended = self._running[curl] = self._loop.create_future()
        self._multi.add_handle(curl)
        # At once: the timer that libcurl has just set for it would be one turn of the loop later.
        self._proceed()
        try:
            await ended
        finally:
            self.stop(curl, TransferError("given up", sent=True))

    def stop(self, curl: pycurl.Curl, error: TransferError) -> None:
        """Close the connection of a transfer that has not ended."""
        if curl in self._running:
            self._end(curl, error)

    def close(self) -> None:
        """Give up what is under way and close every connection."""
        for curl in list(self._running):
            self.stop(curl, TransferError("the connection was closed", sent=True))
        self._multi.close()
        self._wake_after(-1)
        for socket in list(self._followed):
            self._follow(pycurl.POLL_REMOVE, socket, None, None)

    def _proceed(self) -> None:
        self._act(pycurl.SOCKET_TIMEOUT, 0)

    def _act(self, socket: int, events: int) -> None:
        self._multi.socket_action(socket, events)
        left = 1
        while left:
            left, done, failed = self._multi.info_read()
            for curl in done:
                self._end(curl, None)
            for curl, code, message in failed:
                sent = code not in _NEVER_SENT and curl.getinfo(pycurl.REQUEST_SIZE) > 0
                self._end(curl, TransferError(_cause(curl, code, message), sent))

    def _end(self, curl: pycurl.Curl, error: TransferError | None) -> None:
        self._multi.remove_handle(curl)
        ended = self._running.pop(curl)
        if ended.done():
            return
        if error is None:
            ended.set_result(None)
        else:
            ended.set_exception(error)

    def _follow(self, wanted: int, socket: int, _multi: object, _data: object) -> None:
        """Have the loop tell when a socket can be read or written, as libcurl asks."""
        before = self._followed.get(socket, 0)
        now = 0 if wanted == pycurl.POLL_REMOVE else wanted
        if now & ~before & pycurl.POLL_IN:
            self._loop.add_reader(socket, self._act, socket, pycurl.CSELECT_IN)
        elif before & ~now & pycurl.POLL_IN:
            self._loop.remove_reader(socket)
        if now & ~before & pycurl.POLL_OUT:
            self._loop.add_writer(socket, self._act, socket, pycurl.CSELECT_OUT)
        elif before & ~now & pycurl.POLL_OUT:
            self._loop.remove_writer(socket)
        if now:
            self._followed[socket] = now
        else:
            self._followed.pop(socket, None)

    def _wake_after(self, milliseconds: int) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_later(milliseconds / 1000.0, self._proceed) if milliseconds >= 0 else None
