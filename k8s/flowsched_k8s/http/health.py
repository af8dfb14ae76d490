"""What ``/livez`` and ``/readyz`` tell of a process: whether its main loop comes round, and which lists it lacks."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from flowsched_k8s.api.reflector import Reflector, State
from flowsched_k8s.groups.pod_groups import IN_TREE
from flowsched_k8s.http.web_server import Check
from flowsched_k8s.watched import IN_TREE_VERSIONS, NEEDED

STALLED_S = 60.0
"""A main loop that has not come round for so long is not alive."""
SILENT_S = 75.0
"""Nodes and pods that nothing is said about for longer are noted: bookmarks come every minute."""


class Health:
    """Of one process. All but :attr:`silent_s` and :meth:`failing` are asked in its event loop."""

    def __init__(self, reflectors: Mapping[str, Reflector[Any]], clock: Callable[[], float]) -> None:
        self._reflectors = reflectors
        self._clock = clock
        self._came_round_s = clock()

    def came_round(self, now: float) -> None:
        """The main loop has come round. `now` in seconds on the clock."""
        self._came_round_s = now

    @property
    def silent_s(self) -> float:
        """Since when the main loop has not come round. In seconds."""
        return self._clock() - self._came_round_s

    def lives(self) -> bool:
        """Whether the main loop has come round lately."""
        return self.silent_s <= STALLED_S

    def stalled(self) -> str | None:
        """That the main loop does not come round; None while it does."""
        silent = self.silent_s
        return f"the main loop has not come round for {silent:.0f} s" if silent > STALLED_S else None

    def failing(self) -> dict[str, str]:
        """Lists that the server has, or may have, and that were not read yet, with the reason."""
        found = {n: r for n, r in self._reflectors.items() if r.state in (State.LISTING, State.FAILING)}
        in_tree = [f"{IN_TREE}/{version}" for version in IN_TREE_VERSIONS if f"{IN_TREE}/{version}" in self._reflectors]
        if any(self._reflectors[name].synced for name in in_tree):
            # The server has one version of them.
            found = {n: r for n, r in found.items() if n not in in_tree}
        return {n: r.unreadable for n, r in found.items()}

    def unavailable(self) -> dict[str, Reflector[Any]]:
        """What the server does not have, or does not allow, by name: it counts as not there."""
        return {n: r for n, r in self._reflectors.items() if r.state is State.UNAVAILABLE}

    def caches(self) -> str | None:
        """Which of nodes and pods are not listed yet; None if both are."""
        missing = {name: r.reason for name in NEEDED if not (r := self._reflectors[name]).synced}
        return f"not filled yet: {without(missing)}" if missing else None

    def ages(self) -> dict[str, Check]:
        """That nothing is said about nodes or pods, by name."""
        return {name: self._age(name) for name in NEEDED}

    def lists(self) -> str | None:
        """Lists without which only some pods can be placed: no replica is unready for that, as no other need have them."""
        missing = {name: why for name, why in self.failing().items() if name not in NEEDED}
        return f"not listed, pods that need them wait: {without(missing)}" if missing else None

    def _age(self, name: str) -> Check:
        def said() -> str | None:
            age = self._reflectors[name].age
            return f"nothing was said about them for {age:.0f} s" if age > SILENT_S else None

        return said


def without(missing: Mapping[str, str]) -> str:
    """Lists by name, each with why it cannot be read where that is known."""
    return ", ".join(f"{name} ({why})" if why else name for name, why in missing.items())
