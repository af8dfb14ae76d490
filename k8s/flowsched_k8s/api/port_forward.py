"""One GET to a port of a pod that listens on loopback only, by way of the API server and the kubelet (``pods/portforward``).

The official Python client speaks that protocol, with the same credentials as every other request.
"""

from __future__ import annotations

import asyncio
import contextlib
import copy
import functools
import http.client
import importlib
import ssl
from typing import Any

from flowsched_k8s.api.access import Access, one_line
from flowsched_k8s.api.client import ApiError, Reply


class NotForwardedError(Exception):
    """The API server refused to forward."""

    def __init__(self, reply: Reply) -> None:
        """Keep what it answered."""
        self.reply = reply
        super().__init__(f"the port is not forwarded: {ApiError.of(reply)}")


class SilentPortError(Exception):
    """Nothing that speaks HTTP answers on the port, or the kubelet is not reached."""


async def get_forwarded(
    access: Access, namespace: str, pod: str, port: int, path: str, accept: str, timeout_s: float
) -> Reply:
    """What a pod answers on one of its ports, whatever the status.

    ``timeout_s``: longest wait for the next bytes of the answer. Raises :class:`NotForwardedError` and
    :class:`SilentPortError`.
    """
    return await asyncio.to_thread(_got, access, namespace, pod, port, path, accept, timeout_s)


def _got(access: Access, namespace: str, pod: str, port: int, path: str, accept: str, timeout_s: float) -> Reply:
    forward = _forward(access, namespace, pod, port)
    connection = http.client.HTTPConnection("localhost", port)
    connection.sock = forward.socket(port)
    connection.sock.settimeout(timeout_s)
    try:
        # Kept open until the answer is read: the client drops bytes that come right before an end.
        connection.request("GET", path, headers={"Accept": accept, "Accept-Encoding": "identity"})
        answer = connection.getresponse()
        return Reply(answer.status, answer.read())
    except (OSError, http.client.HTTPException) as error:
        raise SilentPortError(forward.error(port) or one_line(error)) from None
    finally:
        connection.close()


def _forward(access: Access, namespace: str, pod: str, port: int) -> Any:
    client, portforward = importlib.import_module("kubernetes.client"), _portforward()
    api = client.CoreV1Api(client.ApiClient(_configuration(access)))
    try:
        return portforward(api.connect_get_namespaced_pod_portforward, pod, namespace, ports=str(port))
    except client.ApiException as error:
        # It tells a refusal as text; the status and the body are in the fault below.
        refusal = error.__context__
        status, body = getattr(refusal, "status_code", 0), getattr(refusal, "resp_body", b"")
        if not status:
            raise SilentPortError(one_line(refusal or error)) from None
        raise NotForwardedError(Reply(status, body or b"")) from None


@functools.cache
def _portforward() -> Any:
    """The official client's, whose thread also ends the sockets when the connection to the API server is cut.

    Without that the thread dies with a traceback on stderr, and what reads from the sockets waits for its timeout.
    """
    stream, ws_client = (importlib.import_module(f"kubernetes.{part}") for part in ("stream", "stream.ws_client"))
    proxy = getattr(ws_client.PortForward, "_proxy", None)
    if proxy is None:  # it is no part of the client's interface, and another version may do without
        return stream.portforward

    def ending(forward: Any) -> None:
        try:
            proxy(forward)
        except OSError:
            # A reset, or an end of TLS without notice, also where it is told by the reply to a close.
            for port in forward.local_ports.values():
                with contextlib.suppress(OSError):
                    port.python.sendall(port.data)
                port.python.close()

    ws_client.PortForward._proxy = ending
    return stream.portforward


def _configuration(access: Access) -> Any:
    """The official client's, with the proxy and the authorities that :class:`Access` found."""
    configuration = copy.copy(access.configuration)
    configuration.proxy, configuration.no_proxy = access.proxy, None
    configuration.ssl_ca_cert = configuration.ssl_ca_cert or ssl.get_default_verify_paths().cafile
    return configuration
