"""What goes wrong: counted every time, said once."""

from __future__ import annotations

import logging
from collections import Counter

LOG = logging.getLogger(__name__)

_MOST_SAID = 10_000


class ErrorReporter:
    """Those of one agent."""

    def __init__(self) -> None:
        """Nothing has failed yet."""
        self.errors: Counter[str] = Counter()
        """By kind, see :class:`flowsched_agent.status.Status`."""
        self._said: set[str] = set()

    def fault(self, key: str, sentence: str, kind: str | None = None) -> None:
        """Something failed. ``key`` is also its kind unless that is given."""
        self.errors[kind or key] += 1
        self.once(f"{key}: {sentence}", sentence)

    def once(self, key: str, sentence: str) -> None:
        """Say it, unless it was said before."""
        if key not in self._said and len(self._said) < _MOST_SAID:
            self._said.add(key)
            LOG.warning("%s", sentence)
