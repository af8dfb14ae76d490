"""Virtual CPUs that no service may have."""

from __future__ import annotations

from collections.abc import Iterable

from flowsched_models.document import InputError


def without_services(policy: str, cores: Iterable[int], taken: Iterable[tuple[int, ...]]) -> tuple[int, ...]:
    """``cores`` that stand in none of ``taken``. :class:`InputError` if there is none: ``policy`` needs some."""
    served = {c for own in taken for c in own}
    left = tuple(c for c in cores if c not in served)
    if not left:
        text = f"needs virtual CPUs for jobs alone; the services have all: {', '.join(map(str, sorted(served)))}"
        raise InputError.one("--policy", text, "give services fewer cores, or compare without it", key=policy)
    return left
