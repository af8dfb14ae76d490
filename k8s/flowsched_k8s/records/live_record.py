"""Records of a running scheduler, read through the API server with the rights of the caller; nothing is written.

The lease says which pod leads, a forwarded port reaches its ``/debug/records``, and the annotation of a placed pod names the
round.
"""

from __future__ import annotations

import asyncio
import json
import logging
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from flowsched.inspector.source import LiveRecord
from flowsched.records.record_file import read_record
from flowsched_k8s.api.access import Access, find_access
from flowsched_k8s.api.client import ApiError, Connection, Reply, UnreachableError, path_of
from flowsched_k8s.api.port_forward import NotForwardedError, SilentPortError, get_forwarded
from flowsched_k8s.configuration.configuration import Configuration
from flowsched_k8s.configuration.configuration_file import load_configuration
from flowsched_k8s.http.server import ARCHIVE
from flowsched_k8s.names import PLACEMENT, POD_SCHEDULED
from flowsched_models.document import InputError
from flowsched_models.quantity import shown

TIMEOUT_S = 120.0
"""The record of a large round is made when it is asked for."""
_KEEP = "records.keep and records.directory in the scheduler's configuration keep more"
_RIGHTS = "k8s/examples/explain-role.yaml grants what this needs"
_OTHERS = "flowsched explain FILE POD reads a record from the folder records.directory of its configuration"

# What goes wrong is said in one sentence where it is caught, and not in a log as well.
logging.getLogger("flowsched_k8s").addHandler(logging.NullHandler())


def fetch(target: str | None, kubeconfig: Path | None = None, config: Path | None = None) -> LiveRecord:
    """The record of the round that decided last on a pod (``pod/NAMESPACE/NAME``), or without a target the latest one.

    ``config`` is the scheduler's configuration: it names the lease, the port and the scheduler; without it they are the
    defaults. Raises :class:`InputError` with one sentence for whatever stands in between.
    """
    configuration = load_configuration(config)
    access = find_access(kubeconfig or configuration.client_connection.kubeconfig)
    pod = None if target is None else _pod(target, access.namespace)
    try:
        return asyncio.run(_fetch(access, configuration, pod))
    except UnreachableError as error:
        raise InputError.one(
            access.address, f"the API server does not answer: {error}", "is it the right cluster?"
        ) from None


def _pod(target: str, namespace: str) -> tuple[str, str]:
    parts = target.removeprefix("pod/").split("/")
    if not 1 <= len(parts) <= 2 or not all(parts):
        raise InputError.one("--live", f"{shown(target)} names no pod", "write pod/NAMESPACE/NAME")
    return (namespace, parts[0]) if len(parts) == 1 else (parts[0], parts[1])


async def _fetch(access: Access, configuration: Configuration, pod: tuple[str, str] | None) -> LiveRecord:
    async with Connection(access, timeout=TIMEOUT_S) as connection:
        if pod is None:
            leader = await _Leader.find(connection, access, configuration)
            reply = await leader.record("latest")
            if reply is None:
                raise InputError.one(leader.title, "it has decided no round yet")
            return leader.live(reply, None)
        wanted = _Wanted(*pod, await _read_pod(connection, *pod))
        wanted.require_ours(configuration)
        leader = await _Leader.find(connection, access, configuration)
        round = wanted.round()
        return await leader.about(wanted) if round is None else await leader.round_of(wanted, round)


async def _read_pod(connection: Connection, namespace: str, name: str) -> dict[str, Any]:
    reply = await connection.request("GET", path_of("/api/v1", "pods", namespace, name))
    if reply.status == 404:
        raise InputError.one(f"pod {namespace}/{name}", "there is no such pod", "kubectl get pods -A lists them")
    return _decoded(reply, "get", "pods", namespace)


class _Wanted:
    """A pod that is asked about."""

    def __init__(self, namespace: str, name: str, plain: Mapping[str, Any]) -> None:
        self.key = f"{namespace}/{name}"
        self.title = f"pod {self.key}"
        self.uid = str(plain["metadata"]["uid"])
        self.node = str(plain["spec"].get("nodeName") or "")
        self._scheduler = str(plain["spec"].get("schedulerName") or "")
        self._notes: Mapping[str, str] = plain["metadata"].get("annotations") or {}
        self._gates = [str(g.get("name")) for g in plain["spec"].get("schedulingGates") or ()]
        conditions = plain.get("status", {}).get("conditions") or ()
        told: Mapping[str, Any] = next((c for c in conditions if c.get("type") == POD_SCHEDULED), {})
        self._message = " ".join(str(told.get("message") or "").split())

    def require_ours(self, configuration: Configuration) -> None:
        """Refuse pods that no round decides on."""
        ours = configuration.scheduler_names
        if self._scheduler not in ours:
            message = f"it is placed by scheduler {self._scheduler}, and this one is {', '.join(ours)}"
            raise InputError.one(
                self.title, message, "--config FILE gives the configuration of a scheduler of another name"
            )
        if self._gates and not self.node:
            message = f"no round decides on it before its scheduling gates are removed: {', '.join(self._gates)}"
            raise InputError.one(self.title, message)

    def round(self) -> str | None:
        """The round that placed it; None while it waits."""
        if not self.node:
            return None
        if PLACEMENT not in self._notes:
            message = f"it is on {self.node} without an annotation {PLACEMENT}: another scheduler or a user bound it"
            raise InputError.one(self.title, message)
        try:
            return str(int(json.loads(self._notes[PLACEMENT])["round"]))
        except (ValueError, TypeError, LookupError):
            message = f"its annotation {PLACEMENT} names no round: it was changed after flowsched wrote it"
            raise InputError.one(self.title, message) from None

    def is_in(self, record: Mapping[str, Any]) -> bool:
        """Whether a round decided on it: on this pod, and not on one before it of the same name."""
        decided = (uid for held in record.get("held", ()) for uid in held["tasks"])
        if self.uid in record.get("titles", {}) and self.uid in decided:
            return True
        return any(self.uid in part["placements"]["task"] for part in record["parts"])

    def no_record(self) -> InputError:
        """For one that waits and that no kept record knows."""
        if self._message:
            message = f"no round that decided on it is kept; its condition says: {self._message}"
            return InputError.one(self.title, message, _KEEP)
        return InputError.one(self.title, "no round has decided on it yet, or none that is kept", _KEEP)


class _Leader:
    """The scheduler's pod that leads, reached by a port that the API server forwards."""

    def __init__(self, access: Access, namespace: str, pod: str, port: int, lease: str) -> None:
        self._access = access
        self._namespace = namespace
        self._pod = pod
        self._port = port
        self._lease = lease
        self.title = f"scheduler {namespace}/{pod}"

    @classmethod
    async def find(cls, connection: Connection, access: Access, configuration: Configuration) -> _Leader:
        """Ask the lease."""
        election = configuration.leader_election
        namespace, name = election.resource_namespace, election.resource_name
        title = f"lease {namespace}/{name}"
        if not election.leader_elect:
            message = "without leader election (leaderElection.leaderElect) nothing says where the scheduler runs"
            raise InputError.one("--config", message, _OTHERS)
        path = path_of("/apis/coordination.k8s.io/v1", "leases", namespace, name)
        reply = await connection.request("GET", path)
        if reply.status == 404:
            message = "there is no such lease, so no scheduler runs there"
            raise InputError.one(title, message, "--config FILE gives a configuration that names another lease")
        lease = _decoded(reply, "get", "leases.coordination.k8s.io", namespace)
        holder = str((lease.get("spec") or {}).get("holderIdentity") or "")
        if not holder:
            raise InputError.one(title, "no process leads at the moment", "try again in a few seconds")
        return cls(access, namespace, holder.partition("_")[0], configuration.server.loopback.port, title)

    async def about(self, wanted: _Wanted) -> LiveRecord:
        """The latest record that decided on a pod."""
        reply = await self.record("latest", pod=wanted.key)
        if reply is None:
            raise wanted.no_record()
        live = self.live(reply, wanted.uid)
        if not wanted.is_in(live.record):
            # The round decided on an earlier pod of the same name.
            raise wanted.no_record()
        return live

    async def round_of(self, wanted: _Wanted, round: str) -> LiveRecord:
        """The record of the round that placed a pod."""
        reply = await self.record(round, pod=wanted.key)
        if reply is not None:
            live = self.live(reply, wanted.uid)
            if wanted.is_in(live.record):
                return live
            # Another leader began to count anew.
        message = f"it was placed in round {round}, whose record {self._pod} does not keep any more"
        raise InputError.one(wanted.title, message, _KEEP)

    def live(self, reply: Reply, task: str | None) -> LiveRecord:
        """A record in an answer; one of another version is refused."""
        record = read_record(reply.body, self.title)
        return LiveRecord(record, f"{self.title}, round {record['round']}", task)

    async def record(self, round: str, **query: str) -> Reply | None:
        """A record as the leader gives it; None if it has no such one."""
        return await self._get(f"/debug/records/{round}", {**query, "format": "npz"})

    async def _get(self, path: str, query: Mapping[str, str]) -> Reply | None:
        """An answer of the leader; None for its 404."""
        text = path + (f"?{urlencode(query)}" if query else "")
        accept = f"{ARCHIVE}, application/json"
        try:
            reply = await get_forwarded(self._access, self._namespace, self._pod, self._port, text, accept, TIMEOUT_S)
        except NotForwardedError as refused:
            raise self._not_reached(refused.reply) from None
        except SilentPortError as error:
            raise self._silent(str(error)) from None
        if reply.ok:
            return reply
        if reply.status == 404:
            return None
        raise InputError.one(self.title, f"it answers with status {reply.status}: {_line(ApiError.of(reply).message)}")

    def _not_reached(self, reply: Reply) -> InputError:
        refusal = ApiError.of(reply)
        if reply.status == 404:
            message = (
                f"its holder {self._pod} is no pod there: the scheduler runs outside of the cluster, or has just ended"
            )
            return InputError.one(self._lease, message, _OTHERS)
        if reply.status in (401, 403):
            # Since Kubernetes 1.35 a port is forwarded only with both verbs.
            found = re.search(r"cannot (\w+) resource", refusal.message)
            return _refused(refusal, found[1] if found else "get", "pods/portforward", self._namespace)
        if reply.status >= 500:
            return self._silent(refusal.message)
        return InputError.one(self.title, f"the API server does not reach it: {_line(str(refusal))}")

    def _silent(self, why: str) -> InputError:
        message = f"it does not answer on port {self._port}: {_line(why)}"
        return InputError.one(self.title, message, "server.loopback in its configuration (--config FILE) says the port")


def _decoded(reply: Reply, verb: str, resource: str, namespace: str) -> dict[str, Any]:
    """What was asked for. Raises :class:`InputError` for a refusal."""
    if reply.ok:
        try:
            found: dict[str, Any] = json.loads(reply.body)
            return found
        except ValueError:
            raise InputError.one(f"namespace {namespace}", "what came is no answer of an API server") from None
    raise _refused(ApiError.of(reply), verb, resource, namespace)


def _refused(refusal: ApiError, verb: str, resource: str, namespace: str) -> InputError:
    """Why the API server did not do it."""
    if refusal.status == 401:
        return InputError.one("kubeconfig", f"the API server does not accept its credentials: {_line(refusal.message)}")
    if refusal.status == 403:
        message = f"you may not {verb} {resource} there: it needs a Role with this verb"
        return InputError.one(f"namespace {namespace}", message, _RIGHTS)
    return InputError.one(f"namespace {namespace}", f"cannot {verb} {resource}: {_line(str(refusal))}")


def _line(text: str) -> str:
    return " ".join(text.split())[:300] or "no reason is given"
