"""What the static filters say of every node, remembered: only nodes that changed are asked again."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from flowsched.support.arrays import moved
from flowsched_k8s.pods.entries import NodeEntry
from flowsched_k8s.pods.filters import StaticFilter

REMEMBERED = 512
"""Distinct filters whose verdicts are kept: one per kind of pod, least recently used first to go."""


@dataclass
class Verdicts:
    """One filter against all nodes, by machine row."""

    reason: NDArray[np.int16]
    """Index into ``reasons``; 0 passes."""
    eligible: NDArray[np.bool_]
    """Nodes that count for topology spread: selector and node affinity match."""
    preference: NDArray[np.float64]
    reasons: list[str]
    seen: NDArray[np.int64]
    """Version of the node that each verdict is about; -1 for no node, -2 before the first."""
    latest: int = -1
    """Version of the latest change of a node when all verdicts were up to date."""

    @cached_property
    def passes(self) -> NDArray[np.bool_]:
        """Nodes that no static filter refuses."""
        found: NDArray[np.bool_] = (self.reason == 0) & (self.seen >= 0)
        return found


class VerdictCache:
    """Verdicts by filter key. Raises nothing; a filter must answer the same for the same node version."""

    def __init__(self) -> None:
        """Nothing is asked before it is needed."""
        self._kept: OrderedDict[Hashable, Verdicts] = OrderedDict()
        self._last: tuple[StaticFilter, Verdicts] | None = None
        """What was asked last: pods of one template share their filter."""

    def move(self, before: NDArray[np.int64]) -> None:
        """Nodes are in other rows now. ``before``: by row, the one where its node was; -1 for rows without one."""
        last = before.max(initial=-1)
        for key, old in list(self._kept.items()):
            if len(old.seen) <= last:
                # Not asked for since there were more rows.
                del self._kept[key]
                continue
            reason, eligible, preference = (moved(a, before) for a in (old.reason, old.eligible, old.preference))
            seen = moved(old.seen, before, -1)
            self._kept[key] = replace(old, reason=reason, eligible=eligible, preference=preference, seen=seen)
        self._last = None

    def unasked(self, static: StaticFilter, versions: NDArray[np.int64], latest: int) -> int:
        """How many nodes :meth:`ask` would have to look at."""
        found = self._kept.get(static.key)
        if found is not None and found.latest == latest:
            return 0
        if found is None or len(found.seen) != len(versions):
            return int((versions >= 0).sum())
        return int((found.seen != versions).sum())

    def ask(
        self,
        static: StaticFilter,
        nodes: Mapping[str, NodeEntry],
        names: Sequence[str | None],
        versions: NDArray[np.int64],
        latest: int,
        most: int | None = None,
    ) -> Verdicts:
        """Verdicts on all nodes. By row: ``names``, and ``versions``, -1 where there is no node; the ``latest`` too.

        ``most``: no more nodes are asked about than that; the verdicts on others are not up to date.
        """
        size = len(versions)
        if self._last is not None and self._last[0] is static:
            last = self._last[1]
            if last.latest == latest and len(last.seen) == size:
                return last
        found = self._kept.get(static.key)
        if found is None or len(found.seen) != size:
            found = Verdicts(
                np.zeros(size, np.int16),
                np.zeros(size, np.bool_),
                np.zeros(size, np.float64),
                [""],
                np.where(versions >= 0, -2, -1),
            )
        self._kept[static.key] = found
        self._kept.move_to_end(static.key)
        while len(self._kept) > REMEMBERED:
            self._kept.popitem(last=False)
        if found.latest != latest:
            stale = np.flatnonzero(found.seen != versions)
            now = stale[:most]
            if len(now):
                found = self._kept[static.key] = _asked_again(found, static, now, nodes, names, versions)
            if len(now) < len(stale):
                return found
            found.latest = latest
        self._last = static, found
        return found


def _asked_again(
    old: Verdicts,
    static: StaticFilter,
    stale: NDArray[np.intp],
    nodes: Mapping[str, NodeEntry],
    names: Sequence[str | None],
    versions: NDArray[np.int64],
) -> Verdicts:
    """New arrays, so that a round that reads the old ones in another thread is not disturbed."""
    reason, eligible, preference = old.reason.copy(), old.eligible.copy(), old.preference.copy()
    seen = old.seen.copy()
    seen[stale] = versions[stale]
    reasons = list(old.reasons)
    known = {text: i for i, text in enumerate(reasons)}
    for row in stale.tolist():
        name = names[row] if versions[row] >= 0 else None
        if name is None or name not in nodes:
            reason[row], eligible[row], preference[row] = 0, False, 0.0
            continue
        node = nodes[name].node
        text = static.verdict(node) or ""
        if text not in known:
            known[text] = len(reasons)
            reasons.append(text)
        reason[row] = known[text]
        eligible[row] = static.affine(node)
        preference[row] = static.preference(node)
    return Verdicts(reason, eligible, preference, reasons, seen)
