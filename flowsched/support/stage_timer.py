"""Where the time of a round goes."""

from __future__ import annotations

from collections.abc import Callable


class StageTimer:
    """Milliseconds by stage: a stage ends where the next one starts."""

    def __init__(self, clock: Callable[[], float]) -> None:
        """No stage has started."""
        self._clock = clock
        self._stage: str | None = None
        self._since = 0.0
        self.ms: dict[str, float] = {}

    def start(self, stage: str | None) -> None:
        """End the running stage and start another; None: only end."""
        now = self._clock()
        if self._stage is not None:
            self.ms[self._stage] = self.ms.get(self._stage, 0.0) + (now - self._since) * 1e3
        self._stage, self._since = stage, now
