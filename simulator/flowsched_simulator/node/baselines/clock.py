"""Something that is done again and again."""

from __future__ import annotations

_TINY = 1e-9


class Every:
    """Due every ``period_s``, from the first time that it is asked. Late ticks are not made up for."""

    def __init__(self, period_s: float) -> None:
        """Due at once."""
        self._period_s = period_s
        self._next_s: float | None = None

    def due(self, t_s: float) -> bool:
        """Whether it is time; if so the next time is a period later."""
        if self._next_s is None:
            self._next_s = t_s
        if t_s < self._next_s - _TINY:
            return False
        self._next_s += self._period_s
        if self._next_s <= t_s + _TINY:
            self._next_s = t_s + self._period_s
        return True
