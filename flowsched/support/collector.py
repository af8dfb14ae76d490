"""Python's garbage collector in a process that decides rounds."""

from __future__ import annotations

import gc

_OBJECTS = 10_000


def collect_seldom() -> None:
    """Look for cycles of objects less often than Python does: after 10,000 new objects, not after 700.

    Rounds make many objects and hardly any cycles. For programs of ours; a library leaves the collector to its user.
    """
    gc.set_threshold(_OBJECTS, *gc.get_threshold()[1:])
