"""Records of the last rounds: kept in memory as what they are made of, and written to a folder off the decision path."""

from __future__ import annotations

import logging
import re
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import Enum
from pathlib import Path
from typing import Any

from flowsched.records.record import Recipe
from flowsched.records.record_file import pack_record, read_record, record_json
from flowsched.records.record_maker import RecordMaker
from flowsched.records.record_writer import RecordWriter

LOOSE_BYTES = 64 << 20
"""Memory that records may take while they are kept as what they are made of; beyond, the oldest of them are packed."""
MOST_BYTES = 256 << 20
"""Memory that all kept records may take, by their own estimate; the last one is kept whatever it takes. Half of it is for
those that wait to be written.
"""

LOG = logging.getLogger(__name__)

_ROUND = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


@dataclass(frozen=True)
class Kept:
    """What is known of a record without making it."""

    round: str
    at: str
    """When it was made, RFC 3339."""
    pods: int
    """How many pods it decided on."""


class _State(Enum):
    LOOSE = "loose"
    """Kept as what it is made of."""
    TAKEN = "taken"
    """The same; it is being packed, or waits to be written."""
    PACKED = "packed"
    """Some hundred times smaller."""


@dataclass(eq=False)
class _KeptRecord:
    """One record; packed when it is asked for, it is written, or room is short. As a recipe it gives the record."""

    round: str
    at: datetime
    pods: frozenset[str]
    size_bytes: int
    asked: bool
    _recipe: Recipe | None
    state: _State = _State.LOOSE
    _packed: bytes = b""
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def __call__(self) -> Mapping[str, Any]:
        return read_record(self.packed(_pack_here), f"round {self.round}")

    def packed(self, make: Callable[[Recipe], bytes]) -> bytes:
        with self._lock:
            if self._recipe is not None:
                try:
                    self._packed = make(self._recipe)
                except Exception:
                    self.state = _State.LOOSE
                    raise
                self.size_bytes = len(self._packed)
                self.state = _State.PACKED
                # What it was made of is let go.
                self._recipe = None
            return self._packed

    def name(self) -> str:
        return f"{self.at:%Y%m%dT%H%M%S.%fZ}-{self.round}"


class Records:
    """The last ``keep`` records, by round; with a folder they are also files there.

    Making them is left to threads and a process of their own: :meth:`add` is for the decision path.
    """

    def __init__(
        self, keep: int, folder: Path | None = None, *, loose_bytes: int = LOOSE_BYTES, most_bytes: int = MOST_BYTES
    ) -> None:
        """Raises :class:`InputError` if there cannot be such a folder."""
        self._keep = keep
        self._loose_bytes = loose_bytes
        self._most_bytes = most_bytes
        self._entries: OrderedDict[str, _KeptRecord] = OrderedDict()
        self._changed = threading.Condition()
        self._closed = False
        self._handed: list[_KeptRecord] = []
        """Waiting to be written, kept or not."""
        self._dropped = {"busy": 0, "failed": 0, "memory": 0}
        self._maker = RecordMaker()
        self._writer = RecordWriter(folder, keep, make=self._make) if folder is not None else None
        self._packer = threading.Thread(target=self._pack_all, name="records", daemon=True)
        self._packer.start()

    def add(
        self,
        round: str,
        at_s: float,
        recipe: Recipe,
        *,
        pods: frozenset[str] = frozenset(),
        size_bytes: int = 0,
        asked: bool = False,
    ) -> None:
        """Keep a record; returns at once. ``at_s``: seconds since 1970. A round is one word, fit for a file name.

        ``pods``: NAMESPACE/NAME of those that it decided on. ``size_bytes``: about what the recipe holds. ``asked``: what
        the engine would do, and no round that placed pods; it is never the latest one.
        """
        if not _ROUND.fullmatch(round) or round == "latest":
            raise ValueError(f"'{round}' cannot name a round")
        entry = _KeptRecord(round, datetime.fromtimestamp(at_s, UTC), pods, size_bytes, asked, recipe)
        with self._changed:
            self._entries.pop(round, None)
            self._entries[round] = entry
            while len(self._entries) > self._keep:
                self._entries.popitem(last=False)
            if self._writer is not None:
                self._hand_over(entry, self._writer)
            self._make_room()
            # Rounds are frequent, and waking a thread holds up the one that is on.
            if self._next_to_pack() is not None:
                self._changed.notify_all()

    def dropped(self) -> dict[str, int]:
        """How many records were not kept as configured, by why: ``busy`` is a folder that was too slow, ``failed`` one
        that cannot be written or a record that cannot be made; ``memory`` were let go early.
        """
        writer = self._writer
        found = dict(self._dropped)
        if writer is not None:
            found["busy"] += writer.dropped
            found["failed"] += writer.failed
        return found

    def listing(self) -> list[Kept]:
        """What is kept, latest first."""
        with self._changed:
            entries = list(self._entries.values())
        return [Kept(e.round, e.at.strftime("%Y-%m-%dT%H:%M:%S.%fZ"), len(e.pods)) for e in reversed(entries)]

    def find(self, round: str, pod: str | None = None) -> str | None:
        """The round of a record that is kept. ``latest`` is the last one; with a pod (NAMESPACE/NAME) only a round that
        decided on it counts. Nothing is made for this.
        """
        with self._changed:
            rounds = self._rounds() if round == "latest" else [round]
            found = [r for r in rounds if r in self._entries and (pod is None or pod in self._entries[r].pods)]
        return found[0] if found else None

    def render(self, round: str, *, packed: bool = False) -> bytes | None:
        """A record as JSON or as an archive; ``latest`` is the last one. None if it is not kept (any more).

        May take seconds: not for the event loop.
        """
        with self._changed:
            if round == "latest":
                round = next(iter(self._rounds()), round)
            entry = self._entries.get(round)
        if entry is None:
            return None
        return entry.packed(_pack_here) if packed else record_json(entry(), indent=None).encode()

    def _rounds(self) -> list[str]:
        """Those that decided, latest first."""
        return [name for name, entry in reversed(self._entries.items()) if not entry.asked]

    def close(self, timeout_s: float = 5.0) -> None:
        """Write what still waits, but no longer than this."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        if self._writer is not None:
            self._writer.close(timeout_s)
        self._maker.close(1.0)

    # Room

    def _hand_over(self, entry: _KeptRecord, writer: RecordWriter) -> None:
        self._handed = [e for e in self._handed if e.state is _State.TAKEN]
        if self._handed and _bytes(self._handed) + entry.size_bytes > self._most_bytes // 2:
            self._dropped["busy"] += 1
            return
        # Before it is taken: from then on its state belongs to the writer.
        entry.state = _State.TAKEN
        if writer.add(entry.name(), entry):
            self._handed.append(entry)
        else:
            entry.state = _State.LOOSE

    def _make_room(self) -> None:
        """Let go of the oldest that are loose, then of the oldest that are packed; never of the last one."""
        excess = _bytes({*self._entries.values(), *self._handed}) - self._most_bytes
        *earlier, _ = self._entries.values()
        for state in (_State.LOOSE, _State.PACKED):
            for entry in earlier:
                if excess > 0 and entry.state is state and self._entries.pop(entry.round, None) is not None:
                    excess -= entry.size_bytes
                    self._dropped["memory"] += 1

    def _next_to_pack(self) -> _KeptRecord | None:
        loose = [e for e in self._entries.values() if e.state is _State.LOOSE]
        return loose[0] if _bytes(loose) > self._loose_bytes else None

    def _pack_all(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._closed or self._next_to_pack() is not None)
                entry = self._next_to_pack()
                if self._closed or entry is None:
                    return
                entry.state = _State.TAKEN
            try:
                self._make(entry)
            except Exception:
                if self._closed:
                    return
                LOG.exception("a record could not be made", extra={"round": entry.round})
                with self._changed:
                    self._dropped["failed"] += 1
                    if self._entries.get(entry.round) is entry:
                        del self._entries[entry.round]

    def _make(self, recipe: Recipe) -> bytes:
        """Nothing waits for it here, and a process of its own leaves the interpreter to the rounds."""
        assert isinstance(recipe, _KeptRecord)
        return recipe.packed(self._maker.make)


def _bytes(entries: Iterable[_KeptRecord]) -> int:
    return sum(e.size_bytes for e in entries)


def _pack_here(recipe: Recipe) -> bytes:
    return pack_record(recipe())
