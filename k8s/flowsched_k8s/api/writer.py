"""Carries out what the scheduler decided: one request per instruction, and a plain word for what came of it."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import KW_ONLY, dataclass, field
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any

import msgspec

from flowsched_k8s import names
from flowsched_k8s.api.client import (
    JSON,
    MERGE,
    STRATEGIC_MERGE,
    ApiError,
    Connection,
    MalformedError,
    NotAllowedError,
    Reply,
    UnreachableError,
    decoded,
    path_of,
)
from flowsched_k8s.api.rate_limit import RateLimit
from flowsched_k8s.bindings.sender import Sender
from flowsched_k8s.bindings.turns import Turn, Turns
from flowsched_k8s.instructions import (
    Bind,
    Evict,
    GroupStatus,
    Instruction,
    MovePod,
    PatchClaim,
    PatchCondition,
    PatchEstimate,
    PodKey,
    PostEvent,
    Resize,
    TaintNode,
)
from flowsched_k8s.notices.recorder import NOTE_BYTES, cut
from flowsched_k8s.objects import Pod, Struct

_log = logging.getLogger(__name__)

CORE = "/api/v1"
EVENTS = "/apis/events.k8s.io/v1"
MESSAGE_BYTES = 16 * 1024
"""Of a condition; far below what an object may hold."""
RESOLVE_WITHIN = 60.0
"""Seconds for finding out what became of a binding; the API server gives up on a request within that time too."""
_SLOWEST_S = 3.0
"""Between two attempts to find out."""
_NAME_BYTES = 253
_TAINT = ("key", "value", "effect", "timeAdded")


class WriteOutcome(StrEnum):
    """What came of an instruction."""

    DONE = "done"
    CONFLICT = "conflict"
    """The API server has newer facts (409): another uid, already bound, gated."""
    GONE = "gone"
    """The object is not there (404)."""
    LOST = "lost"
    """It may or may not have been carried out: the answer did not arrive, or says only that the server failed."""
    REFUSED = "refused"
    """It will not be carried out as it is (400, 403, 422)."""
    RETRY = "retry"
    """It was not carried out (429, or never sent), and may be later."""
    STOPPED = "stopped"
    """It was not sent, because this process may not write any more."""
    DRY = "dry"
    """Nothing was sent: this is a dry run."""


@dataclass(frozen=True)
class Result:
    """What came of an instruction, with the API server's words."""

    outcome: WriteOutcome
    message: str = ""
    retry_after: float = 0.0
    """Seconds for which the API server wants to be left alone."""


@dataclass
class EventCounts:
    """What became of events."""

    posted: int = 0
    dropped: int = 0
    """The queue was full."""
    failed: int = 0


_Event = tuple[PostEvent, datetime]
"""With the time at which it happened."""


class _Cause(Struct):
    field: str = ""


class _Details(Struct):
    causes: list[_Cause] = msgspec.field(default_factory=list)


class _Refusal(Struct):
    details: _Details = _Details()


class _Written(Struct):
    kind: str
    """Of what was changed, or of a Status."""


_REFUSAL = msgspec.json.Decoder(_Refusal)
_WRITTEN = msgspec.json.Decoder(_Written)


_Posting = Callable[[], Awaitable[Result]]


def _now() -> datetime:
    return datetime.now(UTC)


@dataclass(eq=False)
class Writer:
    """Writes to the API server under one scheduler name."""

    connection: Connection
    _: KW_ONLY
    reporting_controller: str = names.SCHEDULER_NAME
    reporting_instance: str = names.SCHEDULER_NAME
    dry_run: bool = False
    may_write: Callable[[], bool] | None = None
    """Asked right before each request is sent, so that a process which has lost its lease writes nothing more, however long
    the request had to wait.
    """
    event_queue: int = 1000
    """How many events may wait."""
    event_limit: RateLimit = field(default_factory=lambda: RateLimit(50.0, 100))
    """How many are posted."""
    now: Callable[[], datetime] = _now
    clock: Callable[[], float] = time.monotonic
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    event_counts: EventCounts = field(default_factory=EventCounts)
    event_turns: Turns[_Event] = field(default_factory=lambda: Turns(4))
    """Events that wait, and those that are being posted."""
    _arrived: asyncio.Event = field(default_factory=asyncio.Event)
    _event_number: int = 0

    async def carry_out(self, instruction: Instruction) -> Result:
        """Carry out any instruction. A binding whose answer is lost is resolved; an event is queued."""
        match instruction:
            case Bind():
                result = await self.bind(instruction)
                return await self.resolve(instruction) if result.outcome is WriteOutcome.LOST else result
            case PatchCondition():
                return await self.patch_condition(instruction)
            case PatchEstimate():
                return await self.patch_estimate(instruction)
            case PostEvent():
                return self.post_event(instruction)
            case Evict():
                return await self.evict(instruction)
            case MovePod():
                return await self.move(instruction)
            case TaintNode():
                return await self.taint(instruction)
            case Resize():
                return await self.resize(instruction)
            case GroupStatus():
                return await self.group_status(instruction)
            case PatchClaim():
                return await self.patch_claim(instruction)

    async def bind(self, bind: Bind) -> Result:
        """POST a binding, once, after what the pod is granted. ``LOST`` must be settled by :meth:`resolve`."""
        pod = bind.pod
        if bind.grant is not None:
            # A leader that finds the pod bound has to find its grant as well.
            reason = names.BOUND if bind.grant else names.WITHDRAWN
            condition = _condition(names.GRANTED, bool(bind.grant), reason, bind.grant, self.now())
            granted = await self._patch_status(pod, {"conditions": [condition]}, f"grant of {pod}")
            if granted.outcome not in (WriteOutcome.DONE, WriteOutcome.DRY):
                return granted
        metadata: dict[str, Any] = {"name": pod.name, "namespace": pod.namespace, "uid": pod.uid}
        if bind.annotations:
            metadata["annotations"] = dict(bind.annotations)
        body = {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": metadata,
            "target": {"apiVersion": "v1", "kind": "Node", "name": bind.node},
        }
        return await self._write("POST", _pod(pod, "binding"), body, JSON)

    async def resolve(
        self, bind: Bind, within: float = RESOLVE_WITHIN, again: Callable[[_Posting], Awaitable[Result]] | None = None
    ) -> Result:
        """Find out what became of a binding whose answer was lost.

        Reading alone cannot tell: the request may still be on its way when the pod is read. So as long as the pod
        is unassigned the same binding is sent again, which is harmless, since the API server accepts one only. The
        answer is ``LOST`` only if the API server cannot be asked within so many seconds. ``again``: sends it, once it may.
        """
        until = self.clock() + within
        delay = 0.05
        while True:
            result = await self._resolved(bind, again)
            if result.outcome not in (WriteOutcome.LOST, WriteOutcome.RETRY):
                return result
            if self.clock() + delay >= until:
                return Result(WriteOutcome.LOST, result.message)
            await self.sleep(max(delay, result.retry_after))
            delay = min(delay * 2.0, _SLOWEST_S)

    async def _resolved(self, bind: Bind, again: Callable[[_Posting], Awaitable[Result]] | None) -> Result:
        try:
            pod = await self.read_pod(bind.pod)
        except UnreachableError as error:
            return Result(WriteOutcome.LOST, str(error))
        except ApiError as error:
            if error.status in (401, 403):
                return Result(WriteOutcome.REFUSED, str(error))
            return Result(WriteOutcome.LOST, str(error), error.retry_after)
        if pod is None:
            return Result(WriteOutcome.GONE, f"pod {bind.pod} is gone")
        node = pod.spec.node_name
        if node == bind.node:
            return Result(WriteOutcome.DONE)
        if node:
            return Result(WriteOutcome.CONFLICT, f"pod {bind.pod} is already assigned to node {node}")
        result = await (self.bind(bind) if again is None else again(lambda: self.bind(bind)))
        if result.outcome is WriteOutcome.CONFLICT:
            # Either the first request has arrived after all, or something else has: reading tells.
            return await self._reread(bind) or result
        return result

    async def _reread(self, bind: Bind) -> Result | None:
        try:
            pod = await self.read_pod(bind.pod)
        except (UnreachableError, ApiError) as error:
            return Result(WriteOutcome.LOST, str(error))
        if pod is None:
            return Result(WriteOutcome.GONE, f"pod {bind.pod} is gone")
        return Result(WriteOutcome.DONE) if pod.spec.node_name == bind.node else None

    async def read_pod(self, key: PodKey) -> Pod | None:
        """The pod as it is now; ``None`` if it is gone or another one has its name.

        Raises :class:`~flowsched_k8s.api.client.ApiError` and :class:`~flowsched_k8s.api.client.UnreachableError`.
        """
        try:
            pod = await self.connection.get(_pod(key), Pod)
        except ApiError as error:
            if error.status == 404:
                return None
            raise
        return pod if pod.metadata.uid == key.uid else None

    async def patch_condition(self, patch: PatchCondition, since: datetime | None = None) -> Result:
        """Say that a pod is not scheduled and why. ``since`` is when that became so; now, if not given."""
        condition = _condition(names.POD_SCHEDULED, False, patch.reason, patch.message, since or self.now())
        if patch.generation is not None:
            condition["observedGeneration"] = patch.generation
        status: dict[str, Any] = {"conditions": [condition]}
        if patch.nominated_node is not None:
            status["nominatedNodeName"] = patch.nominated_node or None
        what = f"condition {patch.reason} of {patch.pod}"
        return await self._patch_status(patch.pod, status, what, patch.version)

    async def patch_estimate(self, patch: PatchEstimate) -> Result:
        """Tell when a waiting pod starts and ends. The right to change its status is enough for an annotation."""
        metadata = {"uid": patch.pod.uid, "annotations": {names.ESTIMATED_START: patch.text}}
        what = f"estimated start of {patch.pod}"
        return await self._write("PATCH", _pod(patch.pod, "status"), {"metadata": metadata}, STRATEGIC_MERGE, what)

    async def evict(self, evict: Evict) -> Result:
        """Mark a pod as disrupted, then delete it with the grace period that it asks for."""
        reason = names.PREEMPTION_BY_SCHEDULER
        condition = _condition(names.DISRUPTION_TARGET, True, reason, evict.message, self.now())
        what = f"evict {evict.pod}"
        body = {"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": {"uid": evict.pod.uid}}
        # A pod that may not be deleted must not be told that it is about to be.
        asked = await self._write("DELETE", _pod(evict.pod), {**body, "dryRun": ["All"]}, JSON, what)
        if asked.outcome is not WriteOutcome.DONE:
            return asked
        marked = await self._patch_status(evict.pod, {"conditions": [condition]}, what)
        if marked.outcome is not WriteOutcome.DONE:
            return marked
        return await self._write("DELETE", _pod(evict.pod), body, JSON, what)

    async def move(self, move: MovePod) -> Result:
        """Ask for a pod's eviction. The API server refuses it (429, so ``RETRY``) where a disruption budget forbids it."""
        pod = move.pod
        body = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": pod.name, "namespace": pod.namespace},
            "deleteOptions": {"preconditions": {"uid": pod.uid}},
        }
        return await self._write("POST", _pod(pod, "eviction"), body, JSON, f"evict {pod}")

    async def taint(self, taint: TaintNode) -> Result:
        """Give a node other taints, unless it was changed meanwhile."""
        taints = [
            {k: v for k, v in zip(_TAINT, (t.key, t.value, t.effect, t.time_added), strict=True) if v}
            for t in taint.taints
        ]
        body = {"metadata": {"resourceVersion": taint.version}, "spec": {"taints": taints}}
        return await self._write("PATCH", path_of(CORE, "nodes", name=taint.node), body, MERGE, f"mark {taint.node}")

    async def resize(self, resize: Resize) -> Result:
        """Change the CPU requests of a running pod's containers."""
        containers = [
            {"name": name, "resources": {"requests": {"cpu": f"{milli}m"}}}
            for name, milli in sorted(resize.cpu_milli.items())
        ]
        body = {"metadata": {"uid": resize.pod.uid}, "spec": {"containers": containers}}
        what = f"resize {resize.pod}"
        return await self._write("PATCH", _pod(resize.pod, "resize"), body, STRATEGIC_MERGE, what)

    async def group_status(self, status: GroupStatus) -> Result:
        """Say whether an in-tree pod group has been scheduled."""
        # 1.36 calls it so, later versions say that it is about the first time.
        kind = "PodGroupScheduled" if status.api_version.endswith("/v1alpha2") else "PodGroupInitiallyScheduled"
        condition = _condition(kind, status.scheduled, status.reason, status.message, self.now())
        path = path_of(f"/apis/{status.api_version}", "podgroups", status.namespace, status.name, "status")
        what = f"status of pod group {status.namespace}/{status.name}"
        return await self._write("PATCH", path, {"status": {"conditions": [condition]}}, STRATEGIC_MERGE, what)

    async def patch_claim(self, patch: PatchClaim) -> Result:
        """Say where the volume of a claim shall be, or which one it gets."""
        claim = patch.patch
        path = path_of(CORE, "persistentvolumeclaims", claim.namespace, claim.name)
        what = f"claim {claim.namespace}/{claim.name} of {patch.pod}"
        return await self._write("PATCH", path, claim.body(), MERGE, what)

    async def save(self, namespace: str, name: str, data: Mapping[str, str], uid: str) -> Result:
        """Make a ConfigMap of ours, or change the one that has a uid: not another one that has its name by now."""
        what = f"save {namespace}/{name}"
        if uid:
            path = path_of(CORE, "configmaps", namespace, name)
            return await self._write("PATCH", path, {"metadata": {"uid": uid}, "data": data}, MERGE, what)
        metadata = {"name": name, "namespace": namespace, "labels": {"app.kubernetes.io/name": names.COMPONENT}}
        body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data}
        return await self._write("POST", path_of(CORE, "configmaps", namespace), body, JSON, what)

    async def _patch_status(self, pod: PodKey, status: dict[str, Any], what: str, version: str = "") -> Result:
        metadata = {"uid": pod.uid, **({"resourceVersion": version} if version else {})}
        body = {"metadata": metadata, "status": status}
        return await self._write("PATCH", _pod(pod, "status"), body, STRATEGIC_MERGE, what)

    async def _write(self, method: str, path: str, body: Any, content_type: str, what: str = "") -> Result:
        """``what`` is said before every error, unless empty."""
        if self.dry_run:
            _log.info("dry run: %s", what or f"{method} {path}")
            return Result(WriteOutcome.DRY)
        before = f"{what}: " if what else ""
        try:
            reply = await self.connection.request(
                method, path, body=body, content_type=content_type, guard=self.may_write
            )
        except NotAllowedError:
            return Result(WriteOutcome.STOPPED, f"{before}not sent, this process may not write any more")
        except UnreachableError as error:
            return Result(WriteOutcome.LOST if error.sent else WriteOutcome.RETRY, f"{before}{error}")
        return result_of(reply, before)

    # Events

    def post_event(self, event: PostEvent) -> Result:
        """Queue an event; never waits. :meth:`run_events` posts it."""
        if self.dry_run:
            _log.info("dry run: event %s on %s: %s", event.reason, event.regarding, event.note)
            return Result(WriteOutcome.DRY)
        turns, namespace = self.event_turns, event.regarding.namespace
        # A namespace whose events are not answered leaves room for those of others.
        most = self.event_queue // 10 if turns.closed(namespace, self.clock()) else self.event_queue
        if turns.waiting_of(namespace) >= most or turns.waiting >= self.event_queue:
            self.event_counts.dropped += 1
            return Result(WriteOutcome.REFUSED, "too many events wait")
        turns.add(namespace, (event, self.now()))
        self._arrived.set()
        return Result(WriteOutcome.DONE)

    async def run_events(self, workers: int = 4) -> None:
        """Post queued events until cancelled, with so many requests that are answered at a time."""
        self.event_turns.slots = workers
        sender = Sender(self.event_turns, self._post_event, self.clock, self._event_failed)
        try:
            while True:
                sender.send()
                await self._arrived.wait()
                self._arrived.clear()
        finally:
            sender.stop()
            for task in sender.tasks:
                task.cancel()

    async def flush_events(self, within: float) -> None:
        """Wait until no event is queued, but no more than so many seconds."""
        until = self.clock() + within
        while self.event_turns.waiting and self.clock() < until:
            await self.sleep(0.02)

    async def _post_event(self, turn: Turn[_Event]) -> bool:
        event, at = turn.item
        await self.event_limit.wait()
        result = await self._post(event, at)
        if result.outcome is WriteOutcome.RETRY:
            await self.sleep(max(1.0, result.retry_after))
            result = await self._post(event, at)
        if result.outcome is WriteOutcome.DONE:
            self.event_counts.posted += 1
        else:
            self.event_counts.failed += 1
            _log.info("event %s on %s: %s", event.reason, event.regarding, result.message)
        return result.outcome not in (WriteOutcome.LOST, WriteOutcome.RETRY)

    def _event_failed(self, turn: Turn[_Event], fault: Exception) -> None:
        self.event_counts.failed += 1
        _log.error("event %s on %s", turn.item[0].reason, turn.item[0].regarding, exc_info=fault)

    async def _post(self, event: PostEvent, at: datetime) -> Result:
        about = event.regarding
        self._event_number += 1
        # Unique over restarts: the microsecond, and a number within this process.
        suffix = f".{int(at.timestamp() * 1e6):x}{self._event_number & 0xFFFF:04x}"
        regarding = {"apiVersion": "v1", "kind": "Pod", **about._asdict()}
        body = {
            "apiVersion": "events.k8s.io/v1",
            "kind": "Event",
            "metadata": {"name": about.name[: _NAME_BYTES - len(suffix)] + suffix, "namespace": about.namespace},
            "eventTime": at.strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
            "reportingController": event.controller or self.reporting_controller,
            "reportingInstance": self.reporting_instance[:128],
            "action": event.action,
            "reason": event.reason,
            "type": event.type,
            "regarding": regarding,
            "note": cut(event.note, NOTE_BYTES),
        }
        return await self._write(
            "POST", path_of(EVENTS, "events", about.namespace), body, JSON, f"event {event.reason}"
        )


def result_of(reply: Reply, before: str = "") -> Result:
    """The plain word for an answer to a write; ``before`` is what an error is said after."""
    if reply.ok:
        try:
            decoded(reply.body, _WRITTEN, reply.status)
        except MalformedError as malformed:
            # A proxy may have answered this in place of the API server.
            return Result(WriteOutcome.LOST, f"{before}{malformed}")
        return Result(WriteOutcome.DONE)
    error = ApiError.of(reply)
    if reply.status == 404:
        outcome = WriteOutcome.GONE
    elif reply.status == 409 or _is_other_uid(reply):
        outcome = WriteOutcome.CONFLICT
    elif reply.status == 429:
        outcome = WriteOutcome.RETRY
    elif reply.status >= 500:
        # The write may have reached the store before something behind it failed.
        outcome = WriteOutcome.LOST
    else:
        outcome = WriteOutcome.REFUSED
    return Result(outcome, f"{before}{error}", reply.retry_after)


def _is_other_uid(reply: Reply) -> bool:
    """A patch that names another uid than the object has is answered as an attempt to change it."""
    if reply.status != 422:
        return False
    try:
        causes = decoded(reply.body, _REFUSAL).details.causes
    except MalformedError:
        return False
    return any(cause.field == "metadata.uid" for cause in causes)


def _pod(key: PodKey, sub: str = "") -> str:
    return path_of(CORE, "pods", key.namespace, key.name, sub)


def _condition(kind: str, holds: bool, reason: str, message: str, since: datetime) -> dict[str, Any]:
    return {
        "type": kind,
        "status": "True" if holds else "False",
        "reason": reason,
        "message": cut(message, MESSAGE_BYTES),
        "lastTransitionTime": since.strftime("%Y-%m-%dT%H:%M:%SZ"),
    }
