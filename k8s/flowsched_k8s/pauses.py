"""Why rounds pause, and since when."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from flowsched_k8s.api.reflector import Reflector
from flowsched_k8s.bindings.turns import Turns
from flowsched_k8s.http.health import Health
from flowsched_k8s.instructions import Bind
from flowsched_k8s.state import SchedulerState
from flowsched_k8s.watched import NEEDED

LOG = logging.getLogger(__name__)

BACKLOG = 64
"""With more decided bindings than this waiting to be sent, the next round gathers more pods instead."""
NAMED = 5
"""Namespaces that a message names."""
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


class RoundPauses:
    """Finds the reasons for which the rounds of a process pause."""

    def __init__(
        self,
        state: SchedulerState,
        reflectors: Mapping[str, Reflector[Any]],
        health: Health,
        binds: Turns[Bind],
        leading: Callable[[], bool],
    ) -> None:
        """There is none yet."""
        self.pauses = Pauses()
        self._state = state
        self._reflectors = reflectors
        self._health = health
        self._binds = binds
        self._leading = leading

    def look(self, now: float) -> bool:
        """Whether no round may be decided now; why is kept for those that ask."""
        self.pauses.look(self._reasons(now), now)
        return bool(self.pauses.now.keys() - {NAMESPACES})

    def _reasons(self, now: float) -> dict[str, str]:
        if not self._leading():
            return {}
        if not self._state.active:
            return {STARTING: self._health.caches() or "nodes and pods are listed anew, as this replica leads now"}
        found = {}
        # After an outage one of them may be known before the other.
        behind = [n for n in NEEDED if not self._reflectors[n].current]
        if behind:
            found[WATCH] = f"what happens to {' and '.join(behind)} cannot be followed"
        if (waiting := self._binds.sendable(now)) > BACKLOG:
            found[BINDINGS] = f"{waiting} decided bindings wait to be sent"
        if stuck := self._state.bindings.stuck:
            more = f" and {len(stuck) - NAMED} more" if len(stuck) > NAMED else ""
            named = ", ".join(stuck[:NAMED])
            found[NAMESPACES] = f"bindings have no outcome, and no pods are decided on, in namespaces {named}{more}"
        return found
