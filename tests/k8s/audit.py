"""The API server's audit log: who asked for what, and who was refused."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any, BinaryIO

from plane import Object, Plane

Grant = tuple[str, str, str]
"""API group, resource (``pods/status`` for a subresource) and verb."""


_READS = (b'"verb":"get"', b'"verb":"list"', b'"verb":"watch"')


@dataclass(frozen=True)
class Write:
    """A request that is to change a pod, or a lease."""

    user: str
    at: float
    """When it arrived, in seconds since the epoch."""
    answered: float
    code: int
    """Of the answer."""
    does: str
    """``bind``, ``delete`` or ``change`` (a pod), or ``lease``."""
    what: str
    """Namespace and name."""
    uid: str = ""
    """Of the pod, where the request names it."""
    node: str = ""
    """Where the pod is bound."""
    holder: str = ""
    """Who is to have the lease; empty: it is given up."""

    @property
    def done(self) -> bool:
        """Whether it was carried out."""
        return 200 <= self.code < 300

    @classmethod
    def of(cls, event: Object) -> Write | None:
        """None for any other request, and for one that was only to be tried."""
        about, verb = event.get("objectRef") or {}, event["verb"]
        body = event.get("requestObject") or {}
        if body.get("dryRun") or "dryRun=" in event["requestURI"]:
            return None
        more: dict[str, str] = {}
        match about.get("resource"), about.get("subresource"), verb:
            case "pods", "binding", "create":
                does = "bind"
                more = {"uid": body["metadata"].get("uid", ""), "node": body["target"]["name"]}
            case "pods", None, "delete":
                does, more = "delete", {"uid": (body.get("preconditions") or {}).get("uid", "")}
            case "pods", _, "patch" | "update":
                does = "change"
            case "leases", None, "create" | "update":
                does, more = "lease", {"holder": (body.get("spec") or {}).get("holderIdentity") or ""}
            case _:
                return None
        return cls(
            event["user"]["username"],
            _seconds(event["requestReceivedTimestamp"]),
            _seconds(event["stageTimestamp"]),
            _code(event) or 0,
            does,
            f"{about.get('namespace', '')}/{about.get('name') or body.get('metadata', {}).get('name', '')}",
            **more,
        )


class AuditLog:
    """Reads what a plane that was started with ``--audit-log`` writes. A request is in it before its answer is out."""

    def __init__(self, plane: Plane) -> None:
        self._path = plane.folder / "logs" / "audit.log"
        self._file: BinaryIO | None = None
        self._requests: list[Object] = []

    def _lines(self) -> list[bytes]:
        """Those that are new; also of the file before, where the log has gone on in another one."""
        found: list[bytes] = []
        while True:
            if self._file is None:
                self._file = self._path.open("rb")
            last = self._path.stat().st_ino == os.fstat(self._file.fileno()).st_ino
            position = self._file.tell()
            # The last line may not be whole yet.
            whole = self._file.read().rpartition(b"\n")[0]
            self._file.seek(position + len(whole) + bool(whole))
            found += whole.splitlines()
            if last:
                return found
            self._file.close()
            self._file = None

    def writes(self) -> list[Write]:
        """Requests since this was asked last, of all users, in the order in which they were answered. None is kept."""
        lines = (line for line in self._lines() if not any(read in line for read in _READS))
        return [write for line in lines if (write := Write.of(json.loads(line))) is not None]

    def requests(self, user: str) -> list[Object]:
        """What a user has asked for so far, as audit events."""
        self._requests += map(json.loads, self._lines())
        return [request for request in self._requests if request["user"]["username"] == user]

    def used(self, user: str) -> set[Grant]:
        """The rights that a user has made use of."""
        return {grant_of(request) for request in self.requests(user) if _code(request) != 403}

    def refused(self, user: str) -> set[Grant]:
        """The rights that a user has lacked."""
        return {grant_of(request) for request in self.requests(user) if _code(request) == 403}


def account(namespace: str, name: str) -> str:
    """A ServiceAccount as a user."""
    return f"system:serviceaccount:{namespace}:{name}"


def grant_of(request: Object) -> Grant:
    """The right that a request needs; one that is about no resource has its path as the resource."""
    about = request.get("objectRef")
    if about is None:
        return "", request["requestURI"], request["verb"]
    resource = "/".join(filter(None, (about["resource"], about.get("subresource"))))
    return about.get("apiGroup", ""), resource, request["verb"]


def grants_of(rules: Iterable[Object]) -> set[Grant]:
    """The rights that rules of a role give."""
    return {
        (group, resource, verb)
        for rule in rules
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }


def _code(request: Object) -> Any:
    return request.get("responseStatus", {}).get("code")


def _seconds(time: str) -> float:
    return datetime.fromisoformat(time).timestamp()
