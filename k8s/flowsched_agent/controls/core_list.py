"""Lists of virtual CPUs as the kernel writes them: ``0-2,4``."""

from __future__ import annotations


def cores_of(text: str) -> tuple[int, ...]:
    """Read one; empty for an empty text. Raises :class:`ValueError`."""
    found: set[int] = set()
    for part in text.strip().split(","):
        if part.strip():
            first, _, last = part.partition("-")
            found |= set(range(int(first), int(last or first) + 1))
    return tuple(sorted(found))
