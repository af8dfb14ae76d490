"""Python's garbage collector in a process that decides rounds."""

from __future__ import annotations

import gc

_OBJECTS = 10_000
_ONLY_WHEN_ASKED = 1_000_000
"""Times that younger objects are looked at before all are."""


def collect_seldom() -> None:
    """Look for cycles of objects less often than Python does: after 10,000 new objects, not after 700.

    Rounds make many objects and hardly any cycles. For programs of ours; a library leaves the collector to its user.
    """
    gc.set_threshold(_OBJECTS, *gc.get_threshold()[1:])


def leave_what_is_there() -> None:
    """What has been made until now mostly stays: the collector does not walk through it any more."""
    gc.freeze()


class CollectBetweenRounds:
    """All objects are looked at when nothing waits for it, not in a round: that takes 50 to 500 ms at thousands of nodes.

    What is looked at then is what has come since the last time; what outlives it is left alone from then on.
    """

    def __init__(self, every_s: float) -> None:
        """``every_s``: seconds between two looks."""
        self._every_s = every_s
        self._due_s = float("-inf")

    def collect(self, now_s: float) -> bool:
        """Look at all objects if it is time to; whether it was."""
        if now_s < self._due_s:
            return False
        self._due_s = now_s + self._every_s
        gc.set_threshold(*gc.get_threshold()[:2], _ONLY_WHEN_ASKED)
        gc.collect()
        leave_what_is_there()
        return True
