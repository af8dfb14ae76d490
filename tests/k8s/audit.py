"""The API server's audit log: who asked for what, and who was refused."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from plane import Object, Plane

Grant = tuple[str, str, str]
"""API group, resource (``pods/status`` for a subresource) and verb."""


class AuditLog:
    """Reads what a plane that was started with ``--audit-log`` writes. A request is in it before its answer is out."""

    def __init__(self, plane: Plane) -> None:
        self._path = plane.folder / "logs" / "audit.log"
        self._position = 0
        self._requests: list[Object] = []

    def requests(self, user: str) -> list[Object]:
        """What a user has asked for so far, as audit events."""
        with self._path.open("rb") as file:
            file.seek(self._position)
            # The last line may not be whole yet.
            whole = file.read().rpartition(b"\n")[0]
        if whole:
            self._position += len(whole) + 1
            self._requests += map(json.loads, whole.splitlines())
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
