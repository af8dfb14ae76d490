"""Records of the last rounds: kept in memory, and written to a folder off the decision path."""

from __future__ import annotations

import logging
import queue
import re
import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec

from flowsched.output import make_folder, write_whole
from flowsched_models.document import InputError

LOG = logging.getLogger(__name__)
WAITING = 16
"""Records that may wait for the disk; beyond, they are kept in memory only."""

Record = Mapping[str, Any] | Callable[[], Mapping[str, Any]]
"""A record, or how to make it: most are never looked at."""

_ROUND = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_FILE = re.compile(r"[0-9]{8}T[0-9]{6}\.[0-9]{6}Z-[A-Za-z0-9][A-Za-z0-9._-]{0,63}\.json(\.part)?")


@dataclass(frozen=True)
class Kept:
    """What is known of a record without making it."""

    round: str
    at: str
    """When it was made, RFC 3339."""


class _Entry:
    """One record; made at most once, whoever asks first."""

    def __init__(self, round: str, at_s: float, record: Record) -> None:
        self.round = round
        self.at = datetime.fromtimestamp(at_s, UTC)
        self._record: Record | None = record
        self._bytes = b""
        self._lock = threading.Lock()

    def render(self) -> bytes:
        with self._lock:
            if self._record is not None:
                plain = self._record() if callable(self._record) else self._record
                self._bytes = msgspec.json.encode(plain)
                self._record = None
            return self._bytes

    def file_name(self) -> str:
        return f"{self.at:%Y%m%dT%H%M%S.%fZ}-{self.round}.json"


class Records:
    """The last ``keep`` records, by round; with a folder they are also files there, made and removed by a thread."""

    def __init__(self, keep: int, folder: Path | None = None) -> None:
        """Raises :class:`InputError` if there cannot be such a folder."""
        self._keep = keep
        self._folder = folder
        self._entries: OrderedDict[str, _Entry] = OrderedDict()
        self._lock = threading.Lock()
        self._waiting: queue.Queue[_Entry | None] = queue.Queue(WAITING)
        self._thread: threading.Thread | None = None
        self.unwritten = 0
        """Records that did not get to the folder."""
        if folder is not None:
            make_folder(folder)
            self._thread = threading.Thread(target=self._write_all, name="records", daemon=True)
            self._thread.start()

    def add(self, round: str, at_s: float, record: Record) -> None:
        """Keep a record; returns at once. ``at_s``: seconds since 1970. A round is one word, fit for a file name."""
        if not _ROUND.fullmatch(round) or round == "latest":
            raise ValueError(f"'{round}' cannot name a round")
        entry = _Entry(round, at_s, record)
        with self._lock:
            self._entries.pop(round, None)
            self._entries[round] = entry
            while len(self._entries) > self._keep:
                self._entries.popitem(last=False)
        if self._thread is not None:
            try:
                self._waiting.put_nowait(entry)
            except queue.Full:
                self.unwritten += 1

    def listing(self) -> list[Kept]:
        """What is kept, latest first."""
        with self._lock:
            entries = list(self._entries.values())
        return [Kept(e.round, e.at.strftime("%Y-%m-%dT%H:%M:%S.%fZ")) for e in reversed(entries)]

    def render(self, round: str) -> bytes | None:
        """A record as JSON; ``latest`` is the last one. None if it is not kept (any more). May take a while."""
        with self._lock:
            if round == "latest" and self._entries:
                round = next(reversed(self._entries))
            entry = self._entries.get(round)
        return None if entry is None else entry.render()

    def close(self, timeout_s: float = 5.0) -> None:
        """Write what still waits, but no longer than this."""
        if self._thread is None:
            return
        try:
            self._waiting.put(None, timeout=timeout_s)
        except queue.Full:
            return
        self._thread.join(timeout_s)

    def _write_all(self) -> None:
        assert self._folder is not None
        failing = False
        self._remove(self._folder, drafts=True)
        while (entry := self._waiting.get()) is not None:
            try:
                write_whole(self._folder / entry.file_name(), entry.render().decode())
                self._remove(self._folder)
                failing = False
            except InputError as error:
                self.unwritten += 1
                if not failing:
                    LOG.warning("a record was not written: %s", error)
                failing = True
            except Exception:
                self.unwritten += 1
                LOG.exception("a record was not written", extra={"round": entry.round})

    def _remove(self, folder: Path, drafts: bool = False) -> None:
        """Remove the oldest, whose names come first, and what a crash left. Files of others are left alone."""
        try:
            files = sorted(p for p in folder.iterdir() if _FILE.fullmatch(p.name))
            whole = [p for p in files if p.suffix != ".part"]
            broken = [p for p in files if p.suffix == ".part"] if drafts else []
            for path in (*broken, *whole[: -self._keep]):
                path.unlink(missing_ok=True)
        except OSError as error:
            LOG.warning("old records were not removed: %s", error.strerror or error)
