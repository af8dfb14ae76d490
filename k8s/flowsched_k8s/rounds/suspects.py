"""Pods in whose preparation a process ended: the next leader prepares them last, each alone.

A process that ends by its own work, held up for longer than its lease or out of memory, is started anew and would do the
same work first. So the lease names the pods of the round that is under way; those that say much are named before their round
begins. What the leader finds there when it takes the lease is suspect until it has been prepared once.
"""

from __future__ import annotations

import heapq
import re
from collections.abc import Callable, Iterable, Sequence

from flowsched_k8s.cache import Cache
from flowsched_k8s.groups.gangs import Gangs
from flowsched_k8s.pods.entries import PodEntry
from flowsched_k8s.rounds.participants import LONG

MOST_NAMED = 128
"""Pods that a lease names, some 5 kB."""
MOST_OF_ROUND = 32
"""Of them pods of an ordinary round: those that say most. Each is prepared alone if the process ends for another reason."""
LAST_S = 10.0
"""So long suspects are put off at most while other pods come again and again; then they take turns with the others."""
_UID = re.compile(r"[0-9A-Za-z._-]{1,64}", re.ASCII)


class Suspects:
    """Those of one process. :meth:`note` may be called by any thread, all else in the event loop."""

    def __init__(self, cache: Cache, gangs: Gangs) -> None:
        """``gangs``: knows which pods are only prepared together."""
        self._cache = cache
        self._gangs = gangs
        self.noting = False
        """Whether there is a lease that names pods."""
        self.wanted: tuple[str, ...] = ()
        """uids of pods that the lease must name before they are prepared."""
        self._named: tuple[str, ...] = ()
        """Those that it names for that reason."""
        self._suspected: tuple[str, ...] = ()
        self._under_way: Sequence[PodEntry] = ()
        self._inherited = False
        self._since_s: float | None = None
        self._turn = False
        """Whether the next round is that of a suspect, where other pods wait as well."""

    @property
    def uids(self) -> tuple[str, ...]:
        """All suspects."""
        return self._suspected

    # The note on the lease

    def note(self, left: str) -> str:
        """What the lease is to say now, uids with commas between them. ``left``: what the leader before left there."""
        if not self._inherited:
            # It is not read yet, and must not be lost if this process ends before.
            return ",".join(_uids(left))
        named = dict.fromkeys((*self.wanted, *self._named, *self._suspected))
        under_way = self._under_way
        most = heapq.nlargest(MOST_OF_ROUND, under_way, key=lambda entry: entry.length) if under_way else ()
        named.update(dict.fromkeys(entry.key.uid for entry in most))
        return ",".join(list(named)[:MOST_NAMED])

    def inherit(self, left: str) -> None:
        """Lead from now on, after one that has left this note."""
        self._suspected = _uids(left)
        self._inherited = True

    def noted(self) -> None:
        """The lease names what was wanted by now."""
        self._named = tuple(dict.fromkeys((*self._named, *self.wanted)))
        self.wanted = ()

    def stop(self) -> None:
        """The process ends because it was asked to: no pod is the reason."""
        self.wanted = self._named = self._under_way = ()

    # Whose turn it is

    def turn(self, entries: list[PodEntry], now: float) -> tuple[list[PodEntry], list[PodEntry]]:
        """Pods of a round, and those whose turn is later: a suspect is prepared when no other pod waits, after ``LAST_S`` in
        every second round; alone, or with its group.
        """
        if not self._suspected:
            return entries, []
        known = (entry for uid in self._suspected if (entry := self._cache.pods.get(uid)) is not None)
        groups = {group for entry in known if (group := self._gangs.ref(entry)) is not None}
        suspects = [e for e in entries if e.key.uid in self._suspected or self._gangs.ref(e) in groups]
        if not suspects:
            return entries, []
        if self._since_s is None:
            self._since_s = now
        others = [e for e in entries if e not in suspects]
        if others and (now - self._since_s < LAST_S or not self._turn):
            self._turn = True
            return others, suspects
        self._turn = False
        group = self._gangs.ref(suspects[0])
        alone = [e for e in suspects if e is suspects[0] or (group is not None and self._gangs.ref(e) == group)]
        return alone, [e for e in entries if e not in alone]

    def named(self, entries: list[PodEntry]) -> tuple[list[PodEntry], list[PodEntry]]:
        """Those of a round that may be prepared now, and those that the lease must name first: long ones and suspects, and
        the others of their groups.

        That write also takes off the lease what was prepared before.
        """
        if not self.noting or (not self._suspected and all(e.length <= LONG for e in entries)):
            return entries, []
        suspected, named = {*self._suspected}, {*self._named}
        late = [e for e in entries if e.key.uid not in named and (e.length > LONG or e.key.uid in suspected)]
        if not late:
            return entries, []
        self.wanted = tuple(e.key.uid for e in late[:MOST_NAMED])
        uids, groups = {e.key.uid for e in late}, {self._gangs.ref(e) for e in late} - {None}
        put_off = [e.key.uid in uids or self._gangs.ref(e) in groups for e in entries]
        return (
            [e for e, later in zip(entries, put_off, strict=True) if not later],
            [e for e, later in zip(entries, put_off, strict=True) if later],
        )

    # What becomes of them

    def begin(self, entries: Sequence[PodEntry]) -> None:
        """These are prepared from now on."""
        self._under_way = entries

    def end(self) -> None:
        """They have been prepared, whatever came of it."""
        done = self._under_way
        self._under_way = ()
        if done and (self._suspected or self._named):
            uids = {entry.key.uid for entry in done}
            self._suspected = tuple(uid for uid in self._suspected if uid not in uids)
            self._named = tuple(uid for uid in self._named if uid not in uids)

    def forget(self, uid: str) -> None:
        """A pod waits no more."""
        if uid in self._suspected or uid in self._named or uid in self.wanted:
            self._keep(lambda other: other != uid)

    def activate(self) -> list[str]:
        """All pods are known: of the suspects those are left that wait; NAMESPACE/NAME of them."""
        pods = self._cache.pods
        self._keep(lambda uid: (entry := pods.get(uid)) is not None and entry.ours and not entry.place)
        return [str(pods[uid].key) for uid in self._suspected]

    def _keep(self, waits: Callable[[str], bool]) -> None:
        self._suspected = tuple(filter(waits, self._suspected))
        self._named = tuple(filter(waits, self._named))
        self.wanted = tuple(filter(waits, self.wanted))


def _uids(text: str) -> tuple[str, ...]:
    """Those of a note, which others may have written as well."""
    found: Iterable[str] = (uid for uid in text[: 65 * MOST_NAMED].split(",") if _UID.fullmatch(uid))
    return tuple(dict.fromkeys(found))[:MOST_NAMED]
