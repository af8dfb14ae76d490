"""Loads that the services of a machine usually have: a few that stand for all that were seen."""

from __future__ import annotations

from collections import Counter, deque

EVERY_S = 1.0
KEPT = 900
"""Samples: a quarter of an hour."""
REGIMES = 3
FEWEST = 30
"""Samples before they are taken to tell what is usual."""
_STEP = 0.1
"""Loads are told apart by so much, relative to the highest that was seen."""

Loads = tuple[float, ...]


class UsualLoads:
    """Samples the loads of all services together, once a second."""

    def __init__(self) -> None:
        """Nothing was seen."""
        self._samples: deque[Loads] = deque(maxlen=KEPT)
        self._next_s = float("-inf")
        self._services: tuple[str, ...] = ()

    def begin(self, services: tuple[str, ...]) -> None:
        """The services by name, in the order of their loads; what was seen of other ones is forgotten."""
        if services != self._services:
            self._samples.clear()
            self._next_s = float("-inf")
            self._services = services

    def add(self, t_s: float, loads: Loads) -> None:
        """What the loads of these services are now."""
        if t_s >= self._next_s - 1e-9:
            self._samples.append(loads)
            self._next_s = t_s + EVERY_S

    def regimes(self) -> list[tuple[float, Loads]]:
        """Shares of time and loads, at most ``REGIMES``: equal parts of the samples by load, each by its middle one."""
        if len(self._samples) < FEWEST:
            return []
        highest = [max(1.0, *(s[k] for s in self._samples)) for k in range(len(self._samples[0]))]
        ordered = sorted(self._samples, key=lambda s: (sum(q / h for q, h in zip(s, highest, strict=True)), s))
        middles = [ordered[(2 * i + 1) * len(ordered) // (2 * REGIMES)] for i in range(REGIMES)]
        rounded = Counter(
            tuple(round(q / h / _STEP) * _STEP * h for q, h in zip(m, highest, strict=True)) for m in middles
        )
        return [(count / REGIMES, loads) for loads, count in sorted(rounded.items())]
