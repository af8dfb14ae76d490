"""Requests to the API server: one at a time over a kept connection, and a watch line by line."""

from __future__ import annotations

import contextlib
import http.client
import json
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import urlencode

from flowsched_agent.kubernetes.access import Access

TIMEOUT_S = 10.0
LARGEST = 64 * 1024 * 1024
MERGE_PATCH = "application/merge-patch+json"
USER_AGENT = "flowsched-agent"


class ApiError(Exception):
    """The API server refused, or did not answer; one sentence says why."""

    def __init__(self, status: int, message: str) -> None:
        """``status`` is 0 if there was no answer."""
        self.status = status
        super().__init__(message)


class Client:
    """One connection; for one thread."""

    def __init__(self, access: Access, timeout_s: float = TIMEOUT_S) -> None:
        self._access = access
        self._timeout_s = timeout_s
        self._connection: http.client.HTTPConnection | None = None

    def get(self, path: str, query: Mapping[str, str] | None = None) -> Any:
        """GET and decode. Raises :class:`ApiError`."""
        return self._decoded("GET", path, query)

    def patch(self, path: str, body: Any) -> Any:
        """A JSON merge patch. Raises :class:`ApiError`."""
        return self._decoded("PATCH", path, None, body)

    def watch(self, path: str, query: Mapping[str, str], stall_s: float) -> Iterator[Any]:
        """The events of a watch until the server ends it; no byte for ``stall_s`` is an error. Raises :class:`ApiError`.

        On a connection of its own, which :meth:`close` does not end.
        """
        connection = self._opened(stall_s)
        try:
            answer = self._sent(connection, "GET", path, query, None)
            if answer.status != 200:
                raise _refused(answer.status, answer.read(LARGEST))
            while line := answer.readline(LARGEST):
                yield json.loads(line)
        except (OSError, http.client.HTTPException, ValueError) as error:
            raise ApiError(0, f"the watch of {path} broke: {_told(error)}") from None
        finally:
            connection.close()

    def close(self) -> None:
        """Close the connection; the next request opens another."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _decoded(self, method: str, path: str, query: Mapping[str, str] | None, body: Any = None) -> Any:
        for attempt in (1, 2):
            fresh = self._connection is None
            if self._connection is None:
                self._connection = self._opened(self._timeout_s)
            try:
                answer = self._sent(self._connection, method, path, query, body)
                content = answer.read(LARGEST)
                break
            except (OSError, http.client.HTTPException) as error:
                self.close()
                # A kept connection may have been closed meanwhile; all requests may be sent twice.
                if fresh or attempt == 2:
                    raise ApiError(0, f"the API server does not answer: {_told(error)}") from None
        if not 200 <= answer.status < 300:
            raise _refused(answer.status, content)
        try:
            return json.loads(content)
        except ValueError:
            raise ApiError(answer.status, f"{method} {path} was answered with something that is not JSON") from None

    def _opened(self, timeout_s: float) -> http.client.HTTPConnection:
        access = self._access
        if access.tls is None:
            return http.client.HTTPConnection(access.host, access.port, timeout=timeout_s)
        return http.client.HTTPSConnection(access.host, access.port, timeout=timeout_s, context=access.tls)

    def _sent(
        self,
        connection: http.client.HTTPConnection,
        method: str,
        path: str,
        query: Mapping[str, str] | None,
        body: Any,
    ) -> http.client.HTTPResponse:
        headers = {"Accept": "application/json", "User-Agent": USER_AGENT}
        with contextlib.suppress(OSError):
            if (authorization := self._access.authorization()) is not None:
                headers["Authorization"] = authorization
        data = None
        if body is not None:
            data = json.dumps(body).encode()
            headers["Content-Type"] = MERGE_PATCH
        connection.request(method, f"{path}?{urlencode(query)}" if query else path, data, headers)
        return connection.getresponse()


def _refused(status: int, content: bytes) -> ApiError:
    try:
        message = str(json.loads(content)["message"])
    except (ValueError, KeyError, TypeError):
        message = content[:200].decode(errors="replace")
    return ApiError(status, f"the API server answered {status}: {' '.join(message.split())[:500]}")


def _told(error: BaseException) -> str:
    return " ".join(str(error).split()) or type(error).__name__
