"""Tells of requests that get no answer: once when it begins, now and then while it lasts, once when it is over."""

from __future__ import annotations

import logging
from collections import Counter
from dataclasses import dataclass, field
from threading import Lock

_log = logging.getLogger(__name__)

EVERY_S = 60.0
"""So often it is told while it lasts."""
WELL_S = 10.0
"""All requests of so long were answered: it is over."""


@dataclass(eq=False)
class Outage:
    """Of one API server, for all connections to it, in any thread. Times are seconds on one clock."""

    server: str
    _began_s: float | None = None
    """When the first request of this time had no answer; None: all is well."""
    _failed_s: float = 0.0
    """When the last one had none."""
    _told_s: float = 0.0
    _causes: Counter[str] = field(default_factory=Counter)
    """Of those since it was told last."""
    _answered: int = 0
    """The same of requests that were answered."""
    _all: int = 0
    """Requests without an answer since it began."""
    _lock: Lock = field(default_factory=Lock)

    def failed(self, cause: str, now: float) -> None:
        """A request had no answer; why, in plain words."""
        with self._lock:
            self._failed_at(cause, now)

    def answered(self, now: float) -> None:
        """A request had an answer."""
        with self._lock:
            self._answered_at(now)

    def _failed_at(self, cause: str, now: float) -> None:
        self._failed_s = now
        self._all += 1
        if self._began_s is None:
            self._began_s = self._told_s = now
            _log.warning("the API server %s does not answer, trying again: %s", self.server, cause)
            return
        self._causes[cause] += 1
        self._tell(now)

    def _answered_at(self, now: float) -> None:
        if self._began_s is None:
            return
        self._answered += 1
        if now - self._failed_s < WELL_S:
            self._tell(now)
            return
        lasted = self._failed_s - self._began_s
        _log.warning(
            "the API server %s answers again: %d request(s) had no answer within %.0f s", self.server, self._all, lasted
        )
        self._began_s = None
        self._causes.clear()
        self._answered = self._all = 0

    def _tell(self, now: float) -> None:
        if now - self._told_s < EVERY_S:
            return
        causes = "; ".join(f"{count} times {cause}" for cause, count in sorted(self._causes.items(), key=_most_first))
        failed = self._causes.total()
        text = "%d of %d requests to the API server %s had no answer in the last %.0f s: %s"
        if failed:
            _log.warning(text, failed, failed + self._answered, self.server, now - self._told_s, causes)
        self._told_s = now
        self._causes.clear()
        self._answered = 0


def _most_first(cause: tuple[str, int]) -> tuple[int, str]:
    return -cause[1], cause[0]
