"""Keeps what was learnt of run times, and of errors of forecasts, in a ConfigMap beside the lease for the next leader."""

from __future__ import annotations

import asyncio
import logging
import math
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import KW_ONLY, dataclass, field

from flowsched.cluster.start_errors import NO_START_ERRORS, StartErrors
from flowsched_k8s.api.client import ApiError, Connection, UnreachableError, path_of
from flowsched_k8s.api.writer import CORE, WriteOutcome, Writer
from flowsched_k8s.learning.learner import Learner
from flowsched_k8s.learning.saved_runs import Saved, dump_saved, read_saved
from flowsched_k8s.objects import ConfigMap
from flowsched_k8s.rounds.start_forecasts import StartForecasts

LOG = logging.getLogger(__name__)

SAVE_EVERY_S = 60.0
"""Between two writes, at least; and so often it is looked whether the ConfigMap is still there."""
LOOK_S = 1.0
READ_AGAIN_S = 15.0
"""What was learnt before could not be read: nothing is learnt until it was."""


@dataclass(eq=False)
class LearntKeeper:
    """See the module."""

    connection: Connection
    writer: Writer
    learner: Learner
    starts: StartForecasts
    namespace: str
    name: str
    leading: Callable[[], bool]
    clock: Callable[[], float]
    """Seconds since 1970."""
    _: KW_ONLY
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    saves: Counter[str] = field(default_factory=Counter)
    """Writes by what came of them, since this was last looked at."""
    _uid: str = ""
    """Of the ConfigMap; empty while there is none."""
    _saved_version: int = 0
    _saved_errors: StartErrors = NO_START_ERRORS
    _next_s: float = -math.inf
    _read_s: float = -math.inf
    _said: str = ""

    async def begin(self) -> None:
        """Read what was learnt before, as this replica leads now; :meth:`run` tries again where that fails."""
        self._read_s = self.clock()
        try:
            found = await self._read()
        except (ApiError, UnreachableError) as error:
            self._say(f"what was learnt before cannot be read, and nothing is learnt until it can: {error}")
            return
        if not self.learner.leads:  # else an earlier attempt was answered after all
            self._load(found)

    async def run(self) -> None:
        """Learn every second from what has ended, and write what is new, until cancelled."""
        while True:
            await self.sleep(LOOK_S)
            if not self.leading():
                continue
            try:
                await self._step(self.clock())
            except Exception:  # A fault of ours there must not stop the scheduling of pods.
                LOG.exception("run times were not learnt")

    async def _step(self, now: float) -> None:
        self.learner.learn(now)
        if not self.learner.leads:
            if now - self._read_s >= READ_AGAIN_S:
                await self.begin()
        elif now >= self._next_s:
            await self.look(now)

    async def look(self, now: float) -> None:
        """Write what is new since the last time; where nothing is, look whether it is to be forgotten."""
        version, errors = self.learner.version, self.starts.known_errors
        if (version, errors) == (self._saved_version, self._saved_errors):
            if self._uid:
                self._next_s = now + SAVE_EVERY_S
                await self._look_for_another(now)
            return
        self._next_s = now + SAVE_EVERY_S
        data = dump_saved(self.learner.saved()._replace(errors=errors))
        result = await self.writer.save(self.namespace, self.name, data, self._uid)
        self.saves[result.outcome] += 1
        match result.outcome:
            case WriteOutcome.DONE | WriteOutcome.DRY:
                self._saved_version, self._saved_errors, self._said = version, errors, ""
                if not self._uid and result.outcome is WriteOutcome.DONE:
                    await self._learn_uid()
            case WriteOutcome.GONE | WriteOutcome.CONFLICT if self._uid:
                await self._look_for_another(now)
            case WriteOutcome.CONFLICT:
                # A write of which no answer came has made it after all.
                await self._learn_uid()
            case _:
                self._say(f"what was learnt is not saved: {result.message}")

    async def _look_for_another(self, now: float) -> None:
        """Forget what was learnt where it was deleted; where another one has its name, such as a copy, that holds."""
        try:
            found = await self._read()
        except (ApiError, UnreachableError) as error:
            self._say(f"what was learnt cannot be read: {error}")
            return
        if found is None:
            LOG.info("what was learnt is forgotten: configmap %s/%s was deleted", self.namespace, self.name)
            self._uid = ""
            self.learner.forget(now)
            self.starts.resume(NO_START_ERRORS)
        elif found.metadata.uid != self._uid:
            self._load(found)

    def _load(self, found: ConfigMap | None) -> None:
        now = self.clock()
        # Without one nothing that ended before counts: deleting it is forgetting.
        saved, wrong = (Saved(), "") if found is None else read_saved(found.data or {})
        if wrong:
            LOG.warning("configmap %s/%s: %s; what cannot be used is forgotten", self.namespace, self.name, wrong)
        if not saved.until_s:
            saved = saved._replace(until_s=now)
        self._uid = "" if found is None else found.metadata.uid
        self._saved_version, self._saved_errors = self.learner.version, saved.errors
        self.starts.resume(saved.errors)
        self.learner.lead(saved, now)
        LOG.info("learnt run times", extra={"rows": len(saved.rows)})

    async def _learn_uid(self) -> None:
        try:
            found = await self._read()
        except (ApiError, UnreachableError) as error:
            LOG.debug("its uid is not known: %s", error)
            return
        self._uid = "" if found is None else found.metadata.uid

    async def _read(self) -> ConfigMap | None:
        try:
            return await self.connection.get(path_of(CORE, "configmaps", self.namespace, self.name), ConfigMap)
        except ApiError as error:
            if error.status == 404:
                return None
            raise

    def _say(self, what: str) -> None:
        """A warning, once for each reason."""
        if what != self._said:
            LOG.warning("configmap %s/%s: %s", self.namespace, self.name, what)
        self._said = what
