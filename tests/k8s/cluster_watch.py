"""Pods and nodes as the API server itself reports them, each change in the order in which the store made it."""

from __future__ import annotations

import contextlib
import http.client
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass

import msgspec
from plane import Admin, RefusedError

from flowsched_k8s.objects import Node, ObjectList, Pod, WatchEvent

BEHIND_S = 1.5
"""Changes of pods and of nodes are told by different watches: so much later none is missing among them."""
AWAY = (OSError, RefusedError, http.client.HTTPException, ValueError)
"""What requests fail with while the API server or etcd is down."""


@dataclass(frozen=True)
class Change:
    """A pod or a node is new, different or gone."""

    version: int
    """Revision of the store; pods and nodes share one."""
    at: float
    """When it was told, in seconds since the epoch."""
    thing: Pod | Node
    gone: bool = False
    exact: bool = True
    """False where it was found by a list, after changes that no watch told of any more."""


_EVENT = msgspec.json.Decoder(WatchEvent)


class _ExpiredError(Exception):
    """The API server has forgotten what comes after the version that was asked for."""


class _Watch:
    """One collection, followed from one connection to the next."""

    def __init__(self, admin: Admin, path: str, of: type[Pod] | type[Node]) -> None:
        self._admin, self._path = admin, path
        self._decode = msgspec.json.Decoder(of)
        self._decode_list = msgspec.json.Decoder(ObjectList[of])  # type: ignore[valid-type]
        self._version = 0
        self.things: dict[str, Pod | Node] = {}
        """By uid."""
        self.changes: list[Change] = []
        self.lock = threading.Lock()
        self.connected_at: float | None = None
        self._connection: http.client.HTTPSConnection | None = None
        self.ending = False
        self._list()
        self._thread = threading.Thread(target=self._follow, daemon=True)
        self._thread.start()

    def end(self) -> None:
        self.ending = True
        connection = self._connection
        if connection is not None and connection.sock is not None:
            with contextlib.suppress(OSError):
                connection.sock.shutdown(2)
        self._thread.join(5.0)

    def _follow(self) -> None:
        while not self.ending:
            try:
                self._watch()
            except _ExpiredError:
                with contextlib.suppress(*AWAY):
                    self._list()
            except AWAY:
                pass
            self.connected_at = None
            time.sleep(0.1)

    def _opened(self, query: str) -> http.client.HTTPResponse:
        connection = http.client.HTTPSConnection(
            self._admin.host, self._admin.port, context=self._admin._tls, timeout=120
        )
        self._connection = connection
        connection.request("GET", f"{self._path}?{query}")
        answer = connection.getresponse()
        if answer.status == 410:
            raise _ExpiredError
        if answer.status != 200:
            raise RefusedError(answer.status, answer.read().decode(errors="replace"))
        return answer

    def _list(self) -> None:
        found = self._decode_list.decode(self._opened("").read())
        version, now = int(found.metadata.resource_version), time.time()
        listed = {thing.metadata.uid: thing for thing in found.items or ()}
        with self.lock:
            for uid, thing in self.things.items():
                if uid not in listed:
                    self.changes.append(Change(version, now, thing, gone=True, exact=False))
            for uid, thing in listed.items():
                known = self.things.get(uid)
                if known is None or known.metadata.resource_version != thing.metadata.resource_version:
                    self.changes.append(Change(int(thing.metadata.resource_version), now, thing, exact=False))
            self.things = dict(listed)
        self._version = version

    def _watch(self) -> None:
        answer = self._opened(f"watch=1&allowWatchBookmarks=true&resourceVersion={self._version}&timeoutSeconds=3600")
        self.connected_at = time.time()
        while line := answer.readline():
            event = _EVENT.decode(line)
            if event.type == "ERROR":
                raise _ExpiredError
            thing = self._decode.decode(event.object)
            self._version = int(thing.metadata.resource_version)
            if event.type == "BOOKMARK":
                continue
            gone = event.type == "DELETED"
            with self.lock:
                self.changes.append(Change(self._version, time.time(), thing, gone))
                if gone:
                    self.things.pop(thing.metadata.uid, None)
                else:
                    self.things[thing.metadata.uid] = thing


class ClusterWatch:
    """Follows all pods and nodes until it is left. Its connections are its own: no proxy and no client is between."""

    def __init__(self, admin: Admin) -> None:
        self._pods = _Watch(admin, "/api/v1/pods", Pod)
        self._nodes = _Watch(admin, "/api/v1/nodes", Node)
        self._told_until = 0.0

    def __enter__(self) -> ClusterWatch:
        return self

    def __exit__(self, *_: object) -> None:
        for watch in (self._pods, self._nodes):
            watch.end()

    def pods(self, namespace: str = "") -> list[Pod]:
        """Those that there are, as far as is known; of one namespace if given."""
        with self._pods.lock:
            found = list(self._pods.things.values())
        return [pod for pod in found if isinstance(pod, Pod) and namespace in ("", pod.metadata.namespace)]

    def nodes(self) -> dict[str, Node]:
        """By name."""
        with self._nodes.lock:
            found = list(self._nodes.things.values())
        return {node.metadata.name: node for node in found if isinstance(node, Node)}

    def changes(self) -> tuple[Sequence[Change], float]:
        """What has changed since this was asked last, oldest first, and until when that is all of it.

        The end stands still while a watch is not connected.
        """
        now, watches = time.time(), (self._pods, self._nodes)
        began = [watch.connected_at for watch in watches]
        if all(at is not None and at <= now - BEHIND_S for at in began):
            self._told_until = now - BEHIND_S
        found: list[Change] = []
        for watch in watches:
            with watch.lock:
                found += [change for change in watch.changes if change.at <= self._told_until]
                watch.changes = [change for change in watch.changes if change.at > self._told_until]
        return sorted(found, key=lambda change: change.version), self._told_until
