"""Why rounds pause, and since when."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field

LOG = logging.getLogger(__name__)

STARTING = "starting"
"""This replica leads, and does not know the cluster yet."""
WATCH = "watch"
"""What happens to nodes or pods is not told."""
BINDINGS = "bindings"
"""Too many decided bindings wait to be sent."""
NAMESPACES = "namespaces"
"""Rounds go on without the pods of some namespaces, whose bindings have no outcome."""
REASONS = (STARTING, WATCH, BINDINGS, NAMESPACES)


@dataclass(frozen=True)
class Pause:
    """Since when rounds pause for a reason. In seconds on the caller's clock."""

    since_s: float
    why: str
    """In plain words."""


@dataclass(eq=False)
class Pauses:
    """Those that there are now. Of one process."""

    now: dict[str, Pause] = field(default_factory=dict)
    """By reason."""

    def look(self, found: Mapping[str, str], now: float) -> None:
        """These are the reasons now, each in plain words; a pause that goes on keeps its beginning."""
        if not found and not self.now:
            return
        before, self.now = self.now, {}
        for reason, why in found.items():
            known = before.get(reason)
            self.now[reason] = Pause(now if known is None else known.since_s, why)
        if WATCH in self.now and WATCH not in before:
            LOG.warning("rounds pause: %s", self.now[WATCH].why)
        elif WATCH in before and WATCH not in self.now:
            LOG.info("rounds go on after %.1f s", now - before[WATCH].since_s)

    def said(self, now: float) -> str | None:
        """All of them in one line; None if there are none."""
        told = [f"{p.why} (for {max(0.0, now - p.since_s):.0f} s)" for p in self.now.values()]
        return "; ".join(told) or None
