"""Which of several processes may write: a Lease that the others can see."""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Awaitable, Callable
from dataclasses import KW_ONLY, dataclass
from datetime import UTC, datetime
from typing import Any

import msgspec

from flowsched_k8s.api.client import ApiError, Connection, Reply, UnreachableError, decoded, path_of
from flowsched_k8s.names import PREPARING
from flowsched_k8s.objects import Struct

_log = logging.getLogger(__name__)

LEASES = "/apis/coordination.k8s.io/v1"
_SPREAD = 1.2
"""Candidates ask again after one to this many retry periods, so that they do not ask all at once."""
_CHANGING = ("holderIdentity", "renewTime", "acquireTime", "leaseTransitions")
_UNSEEN = 2.0
"""So many retry periods a lease is left to its holder after it was seen to change, however late that was: a holder that
lives renews it once more in that time.
"""


class _Spec(Struct):
    holder_identity: str | None = None
    lease_duration_seconds: int | None = None
    lease_transitions: int | None = None
    acquire_time: str | None = None
    renew_time: str | None = None


class _Lease(Struct):
    spec: _Spec | None = None


_SHAPE = msgspec.json.Decoder(_Lease)
_WHOLE = msgspec.json.Decoder(dict[str, Any])
_ATTEMPTS = 4
"""A request may hang, as while etcd is away, for so small a part of the deadline that there is time for others."""


@dataclass(frozen=True)
class Times:
    """In seconds. Candidates wait for the duration; a leader gives up after the deadline, which must be earlier."""

    lease_duration: float = 15.0
    renew_deadline: float = 10.0
    retry_period: float = 2.0

    def __post_init__(self) -> None:
        """Refuse times under which two processes could lead at once, or none could stay leader."""
        if not self.lease_duration >= 1.0:
            raise ValueError("the lease duration must be at least 1 s")
        if not self.lease_duration > self.renew_deadline:
            raise ValueError("the lease duration must be longer than the renew deadline")
        if not self.renew_deadline > self.retry_period * _SPREAD > 0.0:
            raise ValueError(f"the renew deadline must be longer than {_SPREAD:g} times the retry period")


@dataclass
class _Observed:
    """What a lease said, and when that was first seen by the own clock: clocks of other machines may be wrong."""

    record: tuple[Any, ...]
    at: float
    renewed_at: float
    """When the holder renewed it, by the own clock; not before it did, and not after it was seen."""


@dataclass(eq=False)
class Election:
    """One candidate. It leads from ``on_started`` on, at most until :meth:`holds` says no."""

    connection: Connection
    _: KW_ONLY
    namespace: str
    name: str
    identity: str
    """Another one for each process."""
    times: Times = Times()
    release: bool = True
    """Whether a stop hands over at once."""
    clock: Callable[[], float] = time.monotonic
    now: Callable[[], datetime] = lambda: datetime.now(UTC)
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    rng: random.Random | None = None
    defers: Callable[[], float | None] = lambda: 0.0
    """For how many seconds a lease that is free is left to other candidates; None: it is not taken at all. Asked each time.
    The lease is followed meanwhile.
    """
    lives: Callable[[], bool] = lambda: True
    """Whether the process still does its work. The lease of one that does not is not renewed: it is lost at once."""
    note: Callable[[str], str] = lambda left: left
    """The text on the lease for the next leader, made at each write from the one that the leader before has left; empty for
    none.
    """
    on_written: Callable[[], None] = lambda: None
    """Called after each write that was accepted."""
    left: str = ""
    """The note that was on the lease when this process took it."""
    writes: int = 0
    """Writes that have begun, each with the note of that moment."""
    written: int = 0
    """The last of them that was accepted."""
    leader: str = ""
    """Who leads, as far as is known."""
    _lease: dict[str, Any] | None = None
    _observed: _Observed | None = None
    _renewed_at: float | None = None

    def __post_init__(self) -> None:
        """Nothing is asked yet."""
        self._path = path_of(LEASES, "leases", self.namespace, self.name)
        self._collection = path_of(LEASES, "leases", self.namespace)
        self._random = self.rng or random.Random(self.identity)

    def holds(self) -> bool:
        """Whether this process leads right now. Only the own clock is asked, so it is true also after a long sleep."""
        at = self._renewed_at
        return at is not None and self.clock() < at + self.times.renew_deadline

    async def run(self, on_started: Callable[[], object], on_lost: Callable[[], None]) -> None:
        """Become the leader, stay it, and return once that is lost. Cancel it to stop; the lease is then released."""
        try:
            await self._acquire()
            on_started()
            await self._renew()
            self._renewed_at = None
            _log.error("%s is not the leader any more", self.identity)
            on_lost()
        except asyncio.CancelledError:
            await self._let_go()
            raise

    async def _acquire(self) -> None:
        while True:
            began = self.clock()
            if await self._tried(self.times.renew_deadline / _ATTEMPTS):
                break
            # A request that hung was pause enough, and a lease that ends before the next look is looked at as it ends.
            pause = self.times.retry_period * self._random.uniform(1.0, _SPREAD)
            left = self._free_from() - self.clock() if self._lease is not None and self.leader else 0.0
            spread = self.times.retry_period * self._random.uniform(0.0, _SPREAD - 1.0)
            pause = min(pause, left + spread) if left > 0.0 else pause
            await self.sleep(max(0.0, pause - (self.clock() - began)))
        _log.info("%s leads", self.identity)

    async def _renew(self) -> None:
        """Return when the leadership is lost."""
        while True:
            await self.sleep(self.times.retry_period)
            if not self.lives():
                self._renewed_at = None
                return
            began = self.clock()
            while self.holds() and not await self._tried(min(self._left(), self.times.renew_deadline / _ATTEMPTS)):
                if self.leader != self.identity:
                    self._renewed_at = None
                    break
                # A request that hung was pause enough.
                pause = self.times.retry_period - (self.clock() - began)
                await self.sleep(max(0.0, min(pause, self._left())))
                began = self.clock()
            if not self.holds():
                return

    def _left(self) -> float:
        at = self._renewed_at
        return 0.0 if at is None else at + self.times.renew_deadline - self.clock()

    async def _tried(self, within: float) -> bool:
        """Take or renew the lease once; whether it is ours now."""
        if within <= 0.0:
            return False
        try:
            return await self._try(within)
        except UnreachableError as error:
            _log.debug("lease: no answer: %s", error)
        except ApiError as error:
            hint = "; the lease's namespace must be there (leaderElection.resourceNamespace), or set leaderElect: false"
            _log.warning("lease: %s%s", error, hint if error.status == 404 else "")
        # What is known may be out of date.
        self._lease = None
        return False

    async def _try(self, within: float) -> bool:
        if self._lease is None or self.leader != self.identity:
            reply = await self.connection.request("GET", self._path, timeout=within, urgent=True)
            if reply.ok:
                self._observe(_lease_in(reply))
            elif reply.status == 404:
                self._observe(None)
            else:
                raise ApiError.of(reply)
        if self.leader != self.identity:
            deferred = self.defers()
            if deferred is None or self.clock() < self._free_from() + deferred:
                return False
        return await self._put(self._lease, within)

    def _free_from(self) -> float:
        """When the lease that another one holds, or held, ends by the own clock, or since when it is known to be free."""
        assert self._observed is not None
        if not self.leader:
            return self._observed.at
        least = self._observed.at + _UNSEEN * self.times.retry_period
        return max(self._observed.renewed_at + self._duration(), min(least, self._observed.at + self._duration()))

    def _duration(self) -> float:
        """Seconds for which the holder asked."""
        assert self._lease is not None
        told = self._lease.get("spec", {}).get("leaseDurationSeconds")
        return float(told) if isinstance(told, int) else self.times.lease_duration

    def _observe(self, lease: dict[str, Any] | None) -> None:
        """Keep what a lease says; None where there is no lease."""
        spec = (lease or {}).get("spec") or {}
        record = tuple(map(spec.get, _CHANGING))
        self._lease = lease
        before = self._observed
        if before is None or before.record != record:
            now = self.clock()
            self._observed = _Observed(record, now, now if before is None else _renewed_at(before, record, now))
        leader = spec.get("holderIdentity") or ""
        if leader != self.leader:
            _log.info("the leader is %s", leader or "not elected yet")
        self.leader = leader

    async def _put(self, lease: dict[str, Any] | None, within: float) -> bool:
        """Write the lease as ours; another replica may be faster."""
        # Counted from before the request: the lease may be ours from any moment after that.
        began = self.clock()
        spec = dict((lease or {}).get("spec") or {})
        now = self.now().strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        if spec.get("holderIdentity") != self.identity:
            spec["leaseTransitions"] = int(spec.get("leaseTransitions") or 0) + (lease is not None)
            spec["acquireTime"] = now
            self.left = str(((lease or {}).get("metadata", {}).get("annotations") or {}).get(PREPARING, ""))
        spec["holderIdentity"] = self.identity
        spec["renewTime"] = now
        spec["leaseDurationSeconds"] = max(1, round(self.times.lease_duration))
        return await self._written(lease, spec, within, began)

    async def _written(self, lease: dict[str, Any] | None, spec: dict[str, Any], within: float, began: float) -> bool:
        self.writes += 1
        number = self.writes
        metadata = dict((lease or {}).get("metadata") or {"name": self.name, "namespace": self.namespace})
        notes = {k: v for k, v in (metadata.get("annotations") or {}).items() if k != PREPARING}
        note = self.note(self.left)
        metadata["annotations"] = {**notes, PREPARING: note} if note else notes
        if lease is None:
            body = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": metadata, "spec": spec}
            method, path = "POST", self._collection
        else:
            # As it was read, with its resourceVersion: a change in between is a conflict, and labels stay.
            body = {**lease, "metadata": metadata, "spec": spec}
            method, path = "PUT", self._path
        reply = await self.connection.request(method, path, body=body, timeout=within, urgent=True)
        if reply.status == 409:
            self._lease = None
            return False
        if not reply.ok:
            raise ApiError.of(reply)
        self._observe(_lease_in(reply))
        self._renewed_at = began if spec["holderIdentity"] else None
        self.written = number
        self.on_written()
        return True

    async def _let_go(self) -> None:
        """Hand the lease over, so that another one need not wait for its end."""
        held = self.holds()
        self._renewed_at = None
        if not (held and self.release and self._lease is not None):
            return
        spec = dict(self._lease.get("spec") or {})
        spec |= {
            "holderIdentity": "",
            "leaseDurationSeconds": 1,
            "renewTime": self.now().strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
        }
        try:
            await self._written(self._lease, spec, self.times.retry_period, self.clock())
        except (ApiError, UnreachableError) as error:
            _log.warning("the lease could not be handed over: %s", error)


def _lease_in(reply: Reply) -> dict[str, Any]:
    """All of a lease, of which what is read is as it should be."""
    decoded(reply.body, _SHAPE, reply.status)
    return decoded(reply.body, _WHOLE, reply.status)


def _renewed_at(before: _Observed, record: tuple[Any, ...], now: float) -> float:
    """When a lease was renewed that is seen now: a renewal that hung with the API server is seen long after it was sent.

    Its holder says how long after the one before it was, by a clock that may be wrong but is the same for both. If that was
    set back in between, nothing is known.
    """
    if before.record[0] != record[0] or not record[0]:
        return now
    passed = _moment(record[1]), _moment(before.record[1])
    if passed[0] is None or passed[1] is None or passed[0] < passed[1]:
        return now
    return min(now, before.at + (passed[0] - passed[1]).total_seconds())


def _moment(text: object) -> datetime | None:
    """A time as the API has it; None for anything else."""
    try:
        found = datetime.fromisoformat(text.replace("Z", "+00:00")) if isinstance(text, str) else None
    except ValueError:
        return None
    return found if found is not None and found.tzinfo is not None else None
