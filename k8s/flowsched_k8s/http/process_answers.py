"""What a process answers to those that ask how it is, what it measures and what it knows."""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import Callable, Mapping
from typing import Any

from flowsched_k8s.api.reflector import Reflector
from flowsched_k8s.http.health import Health
from flowsched_k8s.http.server import Answers
from flowsched_k8s.metrics.metrics import Metrics
from flowsched_k8s.pauses import RoundPauses
from flowsched_k8s.records.records import Records
from flowsched_k8s.records.state_dump import MOST, dump, encoded
from flowsched_k8s.state import SchedulerState
from flowsched_k8s.watched import NEEDED

LOG = logging.getLogger(__name__)


class ProcessAnswers:
    """Of one process."""

    def __init__(
        self,
        state: SchedulerState,
        reflectors: Mapping[str, Reflector[Any]],
        health: Health,
        pauses: RoundPauses,
        clock: Callable[[], float],
    ) -> None:
        """Nothing is asked yet."""
        self._state = state
        self._reflectors = reflectors
        self._health = health
        self._pauses = pauses
        self._clock = clock
        self._dumping = asyncio.Lock()
        """One at a time: each takes memory of its own."""

    def all(
        self,
        configuration: Callable[[], Any],
        records: Records,
        metrics: Metrics,
        update: Callable[[], None],
        election: Callable[[], str | None],
    ) -> Answers:
        """For the server. ``update`` brings the metrics up to date; ``election`` says why the process cannot lead as it
        should, None if it can.
        """

        def exposition(accept: str) -> tuple[bytes, str]:
            update()
            return metrics.exposition(accept)

        return Answers(
            live={"loop": self._health.stalled, "election": election},
            ready={"caches": self._health.caches},
            notes={"lists": self._health.lists, "rounds": self._pauses_note, **self._health.ages()},
            metrics=exposition,
            configuration=configuration,
            state=self.dumped,
            records=records,
        )

    def _pauses_note(self) -> str | None:
        now = self._clock()
        self._pauses.look(now)
        return self._pauses.pauses.said(now)

    async def dumped(self, pod: str | None = None, limit: int = MOST) -> bytes:
        """Everything that is known, as JSON, and which APIs cannot be read and why: what they hold counts as not there, and
        of those that are not listed yet as not known.
        """
        unavailable = {n: r.reason for n, r in self._health.unavailable().items()}
        now = self._clock()
        pauses = self._pauses.pauses.now.items()
        paused = {reason: {"why": p.why, "for_s": round(now - p.since_s, 3)} for reason, p in pauses}
        ages = {name: round(self._reflectors[name].age, 3) for name in NEEDED}
        more = {"not_listed": self._health.failing(), "rounds_paused": paused, "watch_age_s": ages}
        async with self._dumping:
            return await encoded(dump(self._state, now, pod, limit), {"unavailable": unavailable, **more})

    async def dump(self) -> None:
        """Everything that is known, on one line of standard error."""
        try:
            print((await self.dumped()).decode(), file=sys.stderr, flush=True)
        except Exception:  # It must not end a process that schedules.
            LOG.exception("the state could not be dumped")
