"""The objects of one kind, kept as the API server has them: list, watch, and list again when the watch has lost track."""

from __future__ import annotations

import asyncio
import logging
import math
import random
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping
from dataclasses import KW_ONLY, InitVar, dataclass, field
from enum import StrEnum
from sys import intern
from typing import Any, Generic, TypeVar

import msgspec

from flowsched_k8s.api.backoff import Backoff
from flowsched_k8s.api.client import JSON, ApiError, Connection, MalformedError, UnreachableError, decoded
from flowsched_k8s.changes import Gone, Seen
from flowsched_k8s.objects import ApiObject, ListMeta, ObjectList, Status, Struct, WatchEvent

_log = logging.getLogger(__name__)

STALL = 150.0
"""Seconds without a byte after which a watch counts as dead: bookmarks come every minute."""
WATCH_FOR = (300.0, 600.0)
"""Seconds after which the server ends a watch, drawn at random so that watches do not all end at once."""
QUICK = 1.0
"""A watch that ends within so many seconds is one that failed."""
SETTLED_AFTER = 0.1
"""Seconds in which a watch opened anew tells what happened meanwhile, or that it does not know."""
LOST_AFTER = 5
"""Refused watches in a row after which the position itself is held to be wrong."""
_GONE = 410
_NOT_AVAILABLE = (403, 404)


Obj = TypeVar("Obj", bound=ApiObject)
Listed = TypeVar("Listed")
Name = tuple[str, str]
"""Namespace and name."""
Happening = Seen[Obj] | Gone[Obj]


class State(StrEnum):
    """How far a reflector is."""

    LISTING = "listing"
    FAILING = "failing"
    """Nothing was listed so far, and the last attempt was not answered with a list."""
    SYNCED = "synced"
    UNAVAILABLE = "unavailable"
    """The server has no such API (404), or does not let us read it (403)."""


@dataclass
class Counts:
    """What has happened since the start."""

    lists: int = 0
    watches: int = 0
    events: int = 0
    replaced: int = 0
    """Watches that gave way because they were quiet."""
    expired: int = 0
    """Positions that the server had forgotten (410)."""
    checks: int = 0
    differences: int = 0
    undecodable: int = 0


_BRIEF = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json"
_BRIEF_LIST = msgspec.json.Decoder(ObjectList[ApiObject])


class _RawList(Struct):
    metadata: ListMeta = ListMeta()
    items: list[msgspec.Raw] | None = None


_RAW_LIST = msgspec.json.Decoder(_RawList)
_STATUS = msgspec.json.Decoder(Status)


class _LostTrackError(Exception):
    """The cache is not what the API server has."""


@dataclass
class _Check:
    """The API server's side of a comparison, until the watch has come as far."""

    position: int
    listed: dict[Name, tuple[str, int]]
    removed: set[Name]


@dataclass(eq=False)
class Reflector(Generic[Obj]):
    """Lists and watches one path, and tells ``on_event`` in batches what is there and what is gone.

    After the first list every happening is told once and in order; after a lost position only the difference is
    told. ``cache`` holds the newest object of each name. An API that may not be there is no error: the state is
    then ``unavailable``, with the reason, and is looked at again every ``unavailable_retry`` seconds.
    """

    connection: Connection
    path: str
    type_: InitVar[type[Obj]]
    on_event: Callable[[list[Happening[Obj]]], object]
    _: KW_ONLY
    selectors: Mapping[str, str] = field(default_factory=dict)
    """``labelSelector`` and ``fieldSelector``."""
    page_size: int = 500
    reconcile_every: float = 0.0
    """So often the API server is asked for what it has, beside the watch; objects that differ are counted, told to
    ``on_difference`` and put right. This and all other times are in seconds.
    """
    on_difference: Callable[[int], None] | None = None
    unavailable_retry: float = 60.0
    longest_backoff: float = 30.0
    """Seconds between attempts that fail one after the other, at most."""
    stall: float = STALL
    quiet: float = math.inf
    """A watch that has shown no event for so long gives way to a new one, which starts from the last event: a watch may stay
    open and silent, or show bookmarks that tell nothing of what it has left out. Such a watch goes on from events only.
    """
    keeps: Callable[[Obj], Obj] | None = None
    """What the cache holds of an object once it was told, at least its name, uid and version; None for all of it."""
    rng: random.Random = field(default_factory=lambda: random.Random(0))
    clock: Callable[[], float] = time.monotonic
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    cache: dict[Name, Obj] = field(default_factory=dict)
    state: State = State.LISTING
    reason: str = ""
    counts: Counts = field(default_factory=Counts)
    _position: str = ""
    """Where a new watch begins."""
    _reached: str = ""
    """How far the watch has come, bookmarks included."""
    _refusals: int = 0
    _current_from: float = math.inf
    _heard_at: float = 0.0
    _settled: asyncio.Event = field(default_factory=asyncio.Event)
    _synced: asyncio.Event = field(default_factory=asyncio.Event)
    _rest: list[bytes] = field(default_factory=list)
    """What has come of an event that is not complete."""
    _check: _Check | None = None
    _removed: set[Name] | None = None
    _lost_track: bool = False
    _unreadable: set[Name] = field(default_factory=set)
    _waiters: list[asyncio.Future[None]] = field(default_factory=list)
    _watch_task: asyncio.Task[None] | None = None
    _quiet_since: float = 0.0
    _gives_way: bool = False
    _is_open: bool = False

    def __post_init__(self, type_: type[Obj]) -> None:
        """Prepare to decode objects of the type."""
        self._heard_at = self.clock()
        self._backoff = Backoff(self.rng, limit=self.longest_backoff)
        self._list_decoder = msgspec.json.Decoder(ObjectList[type_])  # type: ignore[valid-type]
        self._decoder = msgspec.json.Decoder(type_)
        self._event_decoder = msgspec.json.Decoder(WatchEvent)
        self._brief_decoder = msgspec.json.Decoder(ApiObject)

    @property
    def synced(self) -> bool:
        """Whether the cache has been filled; it stays true while a lost position is being made good."""
        return self._synced.is_set()

    @property
    def unreadable(self) -> str:
        """Why it is not known what there is; empty once that was listed."""
        if self.state is State.SYNCED:
            return ""
        return self.reason or "no answer yet"

    @property
    def current(self) -> bool:
        """Whether what happens is told: since the last failure everything was listed, or a watch goes on where one ended."""
        return self._current_from <= self.clock()

    @property
    def age(self) -> float:
        """Seconds since the API server has last said anything about these objects: a list, an event or a bookmark."""
        return max(0.0, self.clock() - self._heard_at)

    async def wait_synced(self) -> None:
        """Return once the cache has been filled for the first time."""
        await self._synced.wait()

    async def wait_settled(self) -> None:
        """Return once the cache has been filled, or the API has turned out not to be available."""
        await self._settled.wait()

    async def list_once(self, required: bool) -> None:
        """Fill the cache once and follow nothing. Raises :class:`ApiError` if a required API refuses."""
        try:
            await self._list()
        except ApiError as error:
            if required or error.status not in _NOT_AVAILABLE:
                raise

    async def refresh(self) -> None:
        """Return once the cache is at least as new as the moment of the call: everything is listed again.

        A watch that is merely open proves nothing about what it has not delivered yet.
        """
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiters.append(waiter)
        if self._watch_task is not None:
            self._watch_task.cancel()
        await waiter

    async def run(self) -> None:
        """Follow the API server until cancelled. Nothing that the server does ends it."""
        if self.reconcile_every > 0:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._follow())
                tasks.create_task(self._reconcile())
        else:
            await self._follow()

    async def _follow(self) -> None:
        while True:
            delay = await self._guarded(self._step())
            if delay > 0:
                await self.sleep(delay)

    async def _step(self) -> float:
        """One list or one watch; returns the seconds to wait after it."""
        if not self._position or self._waiters:
            waiters, self._waiters = self._waiters, []
            try:
                await self._list()
            except BaseException:
                self._waiters += waiters
                raise
            self._set(State.SYNCED)
            for waiter in waiters:
                if not waiter.done():
                    waiter.set_result(None)
            return 0.0
        began = self.clock()
        events = self.counts.events
        self._quiet_since, self._gives_way, self._is_open = began, False, False
        self._watch_task = asyncio.create_task(self._watch())
        looks = asyncio.create_task(self._end_quiet(self._watch_task)) if self.quiet < math.inf else None
        try:
            await self._watch_task
        except asyncio.CancelledError:
            me = asyncio.current_task()
            if not (self._waiters or self._gives_way) or (me is not None and me.cancelling()):
                raise
            if self._gives_way and not self._is_open:
                raise UnreachableError(f"a watch was not answered within {self.quiet:g} s", sent=True) from None
            return 0.0
        finally:
            self._watch_task = None
            if looks is not None:
                looks.cancel()
            # However it ended, a watch that lived says that the outage before it is over.
            lived = self.clock() - began >= QUICK or self.counts.events > events
            if lived:
                self._backoff.reset()
                self._refusals = 0
        return 0.0 if lived else self._backoff.next()

    async def _end_quiet(self, watch: asyncio.Task[None]) -> None:
        """End a watch once it has been quiet for too long."""
        while (left := self._quiet_since + self.quiet - self.clock()) > 0.0:
            await self.sleep(left)
        self._gives_way = True
        self.counts.replaced += 1
        watch.cancel()

    async def _guarded(self, step: Coroutine[Any, Any, float]) -> float:
        """Turn every failure into a delay in seconds."""
        try:
            return await step
        except (UnreachableError, ApiError, _LostTrackError) as error:
            self._current_from = math.inf
            delay = self._failed(error)
            absent = isinstance(error, ApiError) and error.status in _NOT_AVAILABLE
            if not absent and self.state is not State.SYNCED:
                self._set(State.FAILING, str(error).strip(), logging.DEBUG)
            return delay

    def _failed(self, error: UnreachableError | ApiError | _LostTrackError) -> float:
        if isinstance(error, UnreachableError):
            _log.debug("%s: no answer: %s", self.path, error)
            return self._backoff.next()
        if isinstance(error, ApiError) and not isinstance(error, MalformedError):
            return self._refused(error)
        self._position = ""
        if isinstance(error, _LostTrackError):
            return 0.0
        _log.warning("%s: %s", self.path, error)
        return self._backoff.next()

    def _refused(self, error: ApiError) -> float:
        if error.status == _GONE:
            _log.info("%s: the position is too old: listing again", self.path)
            self.counts.expired += 1
            self._position = ""
            # At once the first time; a server that says so again and again is left some peace.
            self._refusals += 1
            return self._backoff.next() if self._refusals > 1 else 0.0
        if error.status in _NOT_AVAILABLE:
            if error.status == 404:
                # The API itself is gone, and its objects with it.
                self._tell([Gone(o) for o in self.cache.values()])
                self.cache.clear()
            self._position = ""
            # A cluster need not have every API; not to be allowed to read one that it has is worth a look.
            level = logging.WARNING if error.status == 403 else logging.INFO
            self._set(State.UNAVAILABLE, str(error).strip(), level)
            return self.unavailable_retry * self.rng.uniform(0.8, 1.2)
        _log.warning("%s: %s", self.path, error)
        if error.status != 429:
            self._refusals += 1
            if self._refusals >= LOST_AFTER:
                self._position = ""
        return self._backoff.next(error.retry_after)

    def _set(self, state: State, reason: str = "", level: int = logging.INFO) -> None:
        if state is not self.state or reason != self.reason:
            _log.log(level, "%s: %s%s", self.path, state, f": {reason}" if reason else "")
        self.state = state
        self.reason = reason
        if state is State.SYNCED:
            self._synced.set()
        if state is not State.FAILING:
            self._settled.set()

    # List

    async def _list(self) -> None:
        self.counts.lists += 1
        self._check = self._removed = None
        self._lost_track = False
        self._unreadable.clear()
        listed: set[Name] = set()
        async for page in self._pages(self._decoded_page):
            batch: list[Happening[Obj]] = []
            for obj in page.items or ():
                name = (intern(obj.metadata.namespace), obj.metadata.name)
                listed.add(name)
                known = self.cache.get(name)
                if known is not None:
                    if known.metadata.uid != obj.metadata.uid:
                        batch.append(Gone(known))
                    elif known.metadata.resource_version == obj.metadata.resource_version:
                        continue
                self._keep(name, obj)
                batch.append(Seen(obj))
            self._tell(batch)
        vanished = [name for name in self.cache if name not in listed]
        self._tell([Gone(self.cache.pop(name)) for name in vanished])
        self._position = self._reached = page.metadata.resource_version
        self._current_from = self._heard_at = self.clock()

    async def _pages(
        self, decode: Callable[[bytes], ObjectList[Listed]], accept: str = JSON
    ) -> AsyncIterator[ObjectList[Listed]]:
        """What the server has now, page by page; the last one says what position that is."""
        query = {"limit": str(self.page_size), **self.selectors}
        while True:
            reply = await self.connection.request("GET", self.path, query=query, accept=accept)
            if not reply.ok:
                raise ApiError.of(reply)
            page = decode(reply.body)
            if not page.metadata.resource_version:
                # As an object that is no list has none: it must not empty the cache.
                raise MalformedError(reply.status, "a list without a version")
            yield page
            if not page.metadata.continue_:
                return
            query["continue"] = page.metadata.continue_

    def _decoded_page(self, body: bytes) -> ObjectList[Obj]:
        try:
            return decoded(body, self._list_decoder)
        except MalformedError:
            # One strange object must not hide all others.
            raw = decoded(body, _RAW_LIST)
            items = [obj for item in raw.items or () if (obj := self._decoded(item)) is not None]
            return ObjectList(metadata=raw.metadata, items=items)

    def _decoded(self, raw: msgspec.Raw) -> Obj | None:
        try:
            return decoded(raw, self._decoder)
        except MalformedError as error:
            self.counts.undecodable += 1
            try:
                meta = decoded(raw, self._brief_decoder).metadata
                who = f"{meta.namespace}/{meta.name}"
                self._unreadable.add((meta.namespace, meta.name))
            except MalformedError:
                who = "an object"
            _log.warning("%s: %s cannot be read and is left out: %s", self.path, who, error.message)
            return None

    # Watch

    async def _watch(self) -> None:
        self.counts.watches += 1
        query = {
            "watch": "1",
            "allowWatchBookmarks": "true",
            "resourceVersion": self._position,
            "timeoutSeconds": str(round(self.rng.uniform(*WATCH_FOR))),
            **self.selectors,
        }
        self._rest.clear()
        await self.connection.follow(self.path, query, self.stall, self._opened, self._take)

    def _opened(self) -> None:
        self._heard_at = self.clock()
        self._is_open = True
        self._current_from = min(self._current_from, self.clock() + SETTLED_AFTER)

    def _take(self, chunk: bytes) -> None:
        """Take in the events of which a chunk is the end."""
        self._heard_at = self.clock()
        *lines, last = chunk.split(b"\n")
        if lines:
            lines[0] = b"".join([*self._rest, lines[0]])
            self._rest.clear()
        self._rest.append(last)
        batch: list[Happening[Obj]] = []
        try:
            for line in filter(None, lines):
                event = decoded(line, self._event_decoder)
                if event.type == "ERROR":
                    status = decoded(event.object, _STATUS)
                    raise ApiError(status.code, status.reason, status.message)
                if event.type == "BOOKMARK":
                    self._reached = decoded(event.object, self._brief_decoder).metadata.resource_version
                    if self.quiet == math.inf:
                        self._position = self._reached
                    continue
                self._apply(event, batch)
        finally:
            # What came before an error did happen.
            self._tell(batch)
            if self._check is not None:
                self._compare()
        if self._lost_track:
            raise _LostTrackError

    def _apply(self, event: WatchEvent, batch: list[Happening[Obj]]) -> None:
        self.counts.events += 1
        self._quiet_since = self.clock()
        obj = self._decoded(event.object)
        if obj is None:
            self._forget(event.object, batch)
            return
        name = (intern(obj.metadata.namespace), obj.metadata.name)
        if not obj.metadata.name:
            raise MalformedError(200, f"{event.type} of an object without a name")
        if event.type == "DELETED":
            self.cache.pop(name, None)
            if self._removed is not None:
                self._removed.add(name)
            batch.append(Gone(obj))
        else:
            known = self.cache.get(name)
            if known is not None and known.metadata.uid != obj.metadata.uid:
                batch.append(Gone(known))
            self._keep(name, obj)
            batch.append(Seen(obj))
        self._position = self._reached = obj.metadata.resource_version

    def _forget(self, raw: msgspec.Raw, batch: list[Happening[Obj]]) -> None:
        """An object that has become unreadable is no longer known."""
        meta = decoded(raw, self._brief_decoder).metadata
        known = self.cache.pop((meta.namespace, meta.name), None)
        if known is not None:
            batch.append(Gone(known))
        self._position = self._reached = meta.resource_version

    def _keep(self, name: Name, obj: Obj) -> None:
        self.cache[name] = obj if self.keeps is None else self.keeps(obj)

    def _tell(self, batch: list[Happening[Obj]]) -> None:
        if batch:
            self.on_event(batch)

    # Reconcile

    async def _reconcile(self) -> None:
        while True:
            await self.sleep(self.reconcile_every * self.rng.uniform(0.9, 1.1))
            # One that has not come to its end yet is not given up for the next.
            if self.state is not State.SYNCED or self._check is not None:
                continue
            try:
                await self._begin_check()
            except (ApiError, UnreachableError) as error:
                self._check = self._removed = None
                _log.info("%s: not reconciled: %s", self.path, error)

    async def _begin_check(self) -> None:
        """Ask what the server has; it is compared when the watch has come to the same position."""
        self._removed = removed = set[Name]()
        listed: dict[Name, tuple[str, int]] = {}
        async for page in self._pages(lambda body: decoded(body, _BRIEF_LIST), _BRIEF):
            for brief in page.items or ():
                meta = brief.metadata
                listed[(meta.namespace, meta.name)] = (meta.uid, _number(meta.resource_version))
        if self._removed is not removed:
            # The cache was filled anew meanwhile: nothing to compare.
            return
        self._check = _Check(_number(page.metadata.resource_version), listed, removed)
        self._compare()

    def _compare(self) -> None:
        check = self._check
        if check is None or _number(self._reached) < check.position:
            return
        self._check = self._removed = None
        self.counts.checks += 1
        wrong = 0
        for name, (uid, version) in check.listed.items():
            known = self.cache.get(name)
            if known is None:
                wrong += name not in check.removed and name not in self._unreadable
            elif _number(known.metadata.resource_version) < version or (
                known.metadata.uid != uid and _number(known.metadata.resource_version) <= check.position
            ):
                wrong += 1
        for name, obj in self.cache.items():
            if name not in check.listed and _number(obj.metadata.resource_version) <= check.position:
                wrong += 1
        if wrong:
            _log.warning("%s: %d objects differ from what the API server has: listing again", self.path, wrong)
            self.counts.differences += wrong
            self._lost_track = True
        if self.on_difference is not None and wrong:
            self.on_difference(wrong)


def _number(position: str) -> int:
    """Resource versions of the Kubernetes API are numbers in the order of the writes."""
    return int(position) if position.isdigit() else 0
