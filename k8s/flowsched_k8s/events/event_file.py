"""Files of events: written line by line beside the decision path, and read back as far as they go.

After every batch what was written is brought to the file, so that a crash leaves a prefix of whole lines (within a
compressed file too: it is flushed, not only closed, at these points).
"""

from __future__ import annotations

import gzip
import logging
import threading
import zlib
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from queue import SimpleQueue
from typing import IO, cast

from flowsched_k8s.events.live_events import (
    EventsHeader,
    LineError,
    LiveEvent,
    event_line,
    header_line,
    read_event,
    read_header,
)
from flowsched_models.document import InputError, Problem
from flowsched_models.output import make_folder

LOG = logging.getLogger(__name__)

GZIP_SUFFIX = ".gz"
MOST_WAITING = 500_000
"""Events that may wait to be written."""
_CHUNK = 1 << 16
_LONGEST_LINE = 64 << 20
"""Bytes; the longest lines are those of tens of thousands of pods in one round."""

Batch = Sequence[tuple[float, LiveEvent]]


class EventFile:
    """One file at a time, and the ones before it under the names ``NAME.1``, ``NAME.2`` and so on, newest first.

    :meth:`add` only puts a batch in a queue; a thread writes it. Nothing is ever written over: a file that is there already
    counts as the one before.
    """

    def __init__(self, path: Path, keep: int = 2) -> None:
        """``keep``: files to keep in all. Raises :class:`InputError` if there cannot be such a file."""
        make_folder(path.parent)
        self.path = path
        self.size = 0
        """Bytes of the file that is being written."""
        self.failed = ""
        """Why nothing is written any more; empty while all goes well."""
        self._keep = max(1, keep)
        self._queue: SimpleQueue[tuple[EventsHeader | None, Batch] | threading.Event | None] = SimpleQueue()
        self._added = self._done = 0
        """Events; each is counted by one thread alone."""
        self._open: tuple[IO[bytes], ...] = ()
        """What is written to, and the file below it; the same if it is not compressed."""
        try:
            path.open("ab").close()
            if path.stat().st_size == 0:
                path.unlink()
        except OSError as error:
            reason = (error.strerror or str(error)).lower()
            raise InputError.one(path, f"cannot be written: {reason}", "name another place") from None
        self._thread = threading.Thread(target=self._run, name="events", daemon=True)
        self._thread.start()

    @property
    def full(self) -> bool:
        """Whether the disk is too slow for what happens: so many events wait that no more should be added."""
        return self._added - self._done >= MOST_WAITING

    def add(self, batch: Batch, header: EventsHeader | None = None) -> None:
        """Append events, or begin another file with them if it is given a header. Returns at once."""
        if header is not None:
            self.size = 0
        if not self.failed:
            self._added += len(batch)
            self._queue.put((header, batch))

    def flush(self, timeout_s: float | None = None) -> bool:
        """Wait until all that was added is written, or so long; whether it is."""
        written = threading.Event()
        self._queue.put(written)
        return not self._thread.is_alive() or written.wait(timeout_s)

    def close(self, timeout_s: float = 5.0) -> bool:
        """Write what still waits, but no longer than this; whether all was written. What is added later is left out."""
        self._queue.put(None)
        self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def _run(self) -> None:
        while (work := self._queue.get()) is not None:
            if isinstance(work, threading.Event):
                work.set()
            elif not self.failed:
                try:
                    self._write(*work)
                except Exception as error:
                    self.failed = f"{self.path}: {error}"
                    LOG.error("events are not recorded any more", extra={"error": self.failed})
                    self._end()
                self._done += len(work[1])
        self._end()

    def _write(self, header: EventsHeader | None, batch: Batch) -> None:
        lines = [event_line(t, event) for t, event in batch]
        if header is not None:
            self._begin()
            lines.insert(0, header_line(header))
        self._open[0].write("".join(f"{line}\n" for line in lines).encode())
        for file in self._open:
            file.flush()
        self.size = self._open[-1].tell()

    def _begin(self) -> None:
        self._end()
        names = [self.path, *(numbered(self.path, i) for i in range(1, self._keep))]
        for newer, older in reversed(list(pairwise(names))):
            if newer.exists():
                newer.replace(older)
        raw = self.path.open("wb")
        if self.path.name.endswith(GZIP_SUFFIX):
            # Flushing a gzip file ends a block of it: all that came before can be read without what follows.
            packed = gzip.GzipFile(filename="", fileobj=raw, mode="wb", mtime=0)
            self._open = cast(IO[bytes], packed), raw
        else:
            self._open = (raw,)

    def _end(self) -> None:
        for file in self._open:
            try:
                file.close()
            except OSError as error:
                LOG.warning("the file of events could not be closed", extra={"error": str(error)})
        self._open = ()


def numbered(path: Path, number: int) -> Path:
    """Where an earlier file is kept: ``events.2.jsonl.gz`` for the second of ``events.jsonl.gz``."""
    stem, dot, suffixes = path.name.partition(".")
    return path.with_name(f"{stem}.{number}{dot}{suffixes}")


class EventReader:
    """A file of events, line by line. Every mistake is one sentence that names the line."""

    def __init__(self, path: Path) -> None:
        """Read the header. Raises :class:`InputError`."""
        self.path = path
        self.line = 0
        self.cut = ""
        """Why the file ends earlier than it should, in a sentence; known once it was read to its end."""
        self._lines = self._read()
        text = next(self._lines, None)
        if text is None:
            raise self.problem(self.cut or "it is empty")
        try:
            self.header = read_header(text)
        except LineError as error:
            raise self.problem(str(error)) from None

    def __iter__(self) -> Iterator[tuple[float, LiveEvent]]:
        """Events with their times, in the order of the file. Raises :class:`InputError`."""
        before = float("-inf")
        for text in self._lines:
            try:
                t, event = read_event(text)
            except LineError as error:
                raise self.problem(str(error)) from None
            if t < before:
                raise self.problem(f"its time, {t}, is before that of the line above, {before}")
            before = t
            yield t, event

    def problem(self, message: str) -> InputError:
        """A mistake on the line that was read last."""
        return InputError([Problem(str(self.path), self.line or None, "", message)])

    def _read(self) -> Iterator[str]:
        """Whole lines, counted."""
        # Of a line that goes on in the next chunk.
        rest, length = [], 0
        try:
            for chunk in self._chunks():
                first, *more = chunk.split(b"\n")
                rest.append(first)
                length += len(first)
                if more:
                    *whole, last = more
                    for line in (b"".join(rest), *whole):
                        self.line += 1
                        yield line.decode()
                    rest, length = [last], len(last)
                if length > _LONGEST_LINE:
                    self.line += 1
                    raise self.problem(f"is longer than {_LONGEST_LINE >> 20} MiB")
        except UnicodeDecodeError:
            raise self.problem("is not text in UTF-8") from None
        except (zlib.error, gzip.BadGzipFile) as error:
            raise InputError.one(self.path, f"is damaged: {error}") from None
        except OSError as error:
            reason = (error.strerror or str(error)).lower()
            raise InputError.one(self.path, f"cannot be read: {reason}") from None
        if length:
            self.cut = f"line {self.line + 1} is cut off: the file ends within it"

    def _chunks(self) -> Iterator[bytes]:
        """The file, unpacked; of a compressed one that a crash left the end is missing."""
        with self.path.open("rb") as raw:
            compressed = raw.peek(2)[:2] == b"\x1f\x8b"
            file = gzip.GzipFile(fileobj=raw) if compressed else raw
            try:
                while chunk := file.read1(_CHUNK):
                    yield chunk
            except EOFError:
                return
