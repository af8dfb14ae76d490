"""Whose request is sent next, so that namespaces whose requests are not answered keep no others waiting."""

from __future__ import annotations

from collections import Counter, OrderedDict, deque
from dataclasses import KW_ONLY, dataclass, field
from typing import Generic, TypeVar

PATIENCE_S = 0.5
"""A request that has no answer after so long gives its slot back; most are answered in a tenth of that."""
GIVE_UP_S = 2.0
"""Of requests that hang for longer a quarter as many as there are slots stay open: an API server has few places for all."""
STUCK_S = 2.0
"""A closed namespace that has heard nothing for so long is stuck: what waits for it is told."""
_EACH = 4
"""Requests of one namespace without an outcome; with so many, no further ones of it are sent."""
_MOST = 256
"""Of all namespaces; with so many, only namespaces that have been answered lately are tried."""
_LATELY_S = 60.0
AGES = {"under_5s": 5.0, "under_30s": 30.0, "over_30s": float("inf")}
"""The ends of the spans by which requests without an outcome are counted, in seconds, by name."""

Item = TypeVar("Item")


@dataclass(eq=False)
class Turn(Generic[Item]):
    """One item that is being carried out. Times are seconds on the caller's clock."""

    namespace: str
    item: Item
    began_s: float
    apart_s: float | None = None
    """Since when it counts as without an outcome, and has no slot; None: not yet."""
    error: str = ""
    """What the API server said instead of an outcome, if anything."""
    told_s: float | None = None
    """When its pod was told so last."""


@dataclass(eq=False)
class Turns(Generic[Item]):
    """Items that wait, in turn by namespace, and those that are being carried out.

    An item takes one of ``slots`` until it has an outcome, or until it has turned out to have none for now: it is then
    settled apart. Only those apart are limited by namespace, and all of them together by half of the slots: beyond that
    nothing more is sent of a namespace that has any of them. So the slots are for namespaces that are answered, or that
    nothing is known of.
    """

    slots: int
    _: KW_ONLY
    _clean: OrderedDict[str, deque[Item]] = field(default_factory=OrderedDict)
    """What waits, by namespaces without any request apart; the first is next."""
    _tainted: OrderedDict[str, deque[Item]] = field(default_factory=OrderedDict)
    """The same of all others."""
    _sent: dict[Turn[Item], None] = field(default_factory=dict)
    """Those with a slot, oldest first."""
    _apart: dict[str, dict[Turn[Item], None]] = field(default_factory=dict)
    """By namespace, oldest first."""
    _apart_count: int = 0
    _answered_s: dict[str, float] = field(default_factory=dict)
    """When a namespace had an answer last."""

    def add(self, namespace: str, item: Item) -> None:
        """It waits for its turn."""
        waiting = self._tainted if namespace in self._apart else self._clean
        waiting.setdefault(namespace, deque()).append(item)

    def next(self, now: float) -> Turn[Item] | None:
        """An item that may be carried out now; it has a slot."""
        if len(self._sent) >= self.slots:
            return None
        # Each new namespace may be one more that hangs, and requests that hang take the API server's places for others.
        wary = self._apart_count >= self.slots // 2 and self._unknown_sent(now) >= max(1, self.slots // 4)
        for waiting in (self._clean, self._tainted):
            for namespace in waiting:
                if not self.closed(namespace, now) and not (wary and not self._is_known(namespace, now)):
                    return self._begin(waiting, namespace, now)
        return None

    def _is_known(self, namespace: str, now: float) -> bool:
        """Whether a namespace was answered lately."""
        return now - self._answered_s.get(namespace, float("-inf")) < _LATELY_S

    def _unknown_sent(self, now: float) -> int:
        return sum(not self._is_known(turn.namespace, now) for turn in self._sent)

    def _begin(self, waiting: OrderedDict[str, deque[Item]], namespace: str, now: float) -> Turn[Item]:
        items = waiting[namespace]
        turn = Turn(namespace, items.popleft(), now)
        waiting.move_to_end(namespace)
        if not items:
            del waiting[namespace]
        self._sent[turn] = None
        return turn

    def look(self, now: float) -> bool:
        """Give back the slots of items that have had no answer for too long; whether there were any."""
        late = []
        for turn in self._sent:
            if now - turn.began_s < PATIENCE_S:
                break
            late.append(turn)
        for turn in late:
            self.set_apart(turn, now)
        return bool(late)

    def set_apart(self, turn: Turn[Item], now: float, error: str = "") -> None:
        """An item has no outcome for now: the API server has said so with an ``error``, or nothing at all."""
        turn.error = error or turn.error
        if turn.apart_s is not None:
            return
        turn.apart_s = now
        del self._sent[turn]
        namespace = turn.namespace
        self._apart.setdefault(namespace, {})[turn] = None
        self._apart_count += 1
        if namespace in self._clean:
            self._tainted[namespace] = self._clean.pop(namespace)

    def end(self, turn: Turn[Item], now: float, answered: bool = True) -> None:
        """An item is done with. ``answered``: whether there is an outcome, whatever it is."""
        namespace = turn.namespace
        if answered:
            self._answered_s[namespace] = now
        if turn.apart_s is None:
            del self._sent[turn]
            return
        apart = self._apart[namespace]
        del apart[turn]
        self._apart_count -= 1
        if not apart:
            del self._apart[namespace]
            if namespace in self._tainted:
                self._clean[namespace] = self._tainted.pop(namespace)

    def clear(self) -> None:
        """Nothing waits any more."""
        self._clean.clear()
        self._tainted.clear()

    def take_back(self, namespace: str) -> list[Item]:
        """What waits of a namespace, which is then not carried out."""
        return [*self._clean.pop(namespace, ()), *self._tainted.pop(namespace, ())]

    # What can be seen

    def closed(self, namespace: str, now: float) -> bool:
        """Whether nothing more of a namespace is sent for now."""
        apart = len(self._apart.get(namespace, ()))
        if apart and (apart >= _EACH or self._apart_count >= self.slots // 2):
            return True
        return self._apart_count >= _MOST and not self._is_known(namespace, now)

    def stuck(self, now: float) -> set[str]:
        """Closed namespaces of which nothing has been heard for a while."""
        return {namespace for namespace in self._apart if self._is_stuck(namespace, now)}

    def _is_stuck(self, namespace: str, now: float) -> bool:
        since = next(iter(self._apart[namespace])).apart_s or 0.0
        heard = self._answered_s.get(namespace, since)
        return self.closed(namespace, now) and now - max(since, heard) >= STUCK_S

    def apart(self, namespace: str | None = None) -> list[Turn[Item]]:
        """Those without an outcome, of one namespace or of all, oldest first in each."""
        if namespace is not None:
            return list(self._apart.get(namespace, ()))
        return [turn for apart in self._apart.values() for turn in apart]

    @property
    def waiting(self) -> int:
        """Items that no one has begun with."""
        return sum(map(len, self._clean.values())) + sum(map(len, self._tainted.values()))

    def waiting_of(self, namespace: str) -> int:
        """Those of a namespace."""
        return len(self._clean.get(namespace, ())) + len(self._tainted.get(namespace, ()))

    def sendable(self, now: float) -> int:
        """Items for which only a slot is missing."""
        both = (*self._clean.items(), *self._tainted.items())
        return sum(len(items) for namespace, items in both if not self.closed(namespace, now))

    def by_age(self, now: float) -> dict[str, int]:
        """How many have no outcome, by the span of :data:`AGES` that their age is in."""
        found = Counter(next(a for a, end in AGES.items() if now - turn.began_s < end) for turn in self.apart())
        return {age: found[age] for age in AGES}
