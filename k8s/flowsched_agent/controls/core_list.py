"""Lists of virtual CPUs as the kernel writes them: ``0-2,4``."""

from __future__ import annotations

from collections.abc import Iterable


def cores_text(cores: Iterable[int]) -> str:
    """The shortest list of them, in order."""
    runs: list[list[int]] = []
    for core in sorted(set(cores)):
        if runs and runs[-1][1] == core - 1:
            runs[-1][1] = core
        else:
            runs.append([core, core])
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in runs)


def cores_of(text: str) -> tuple[int, ...]:
    """Read one; empty for an empty text. Raises :class:`ValueError`."""
    found: set[int] = set()
    for part in text.strip().split(","):
        if part.strip():
            first, _, last = part.partition("-")
            found |= set(range(int(first), int(last or first) + 1))
    return tuple(sorted(found))
