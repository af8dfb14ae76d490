"""Writes records to a folder beside the decision path.

``add`` only puts a recipe in a queue. A thread takes it out, has the record made and packed by a process of its own
(:mod:`flowsched.records.record_maker`: in a thread it would hold up rounds through the interpreter's lock) and writes the
file. So a round pays for two milliseconds of pickling, and only if it runs at the same time. Each file is a draft first,
brought to the disk (fsync: otherwise a name may outlive its content when the machine goes down) and then renamed. The folder
is not: a record that is lost whole is no half-written one.

The thread has the priority of all others: at a lower one it could be kept waiting while it holds the lock that the decision
path needs. The process, which holds nothing, has a lower one.
"""

from __future__ import annotations

import logging
import os
import re
import threading
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path

from flowsched.errors import MakingError
from flowsched.records.record import Recipe
from flowsched.records.record_file import ARCHIVE_SUFFIX
from flowsched.records.record_maker import RecordMaker
from flowsched_models.document import InputError
from flowsched_models.output import make_folder, write_whole_bytes

LOG = logging.getLogger(__name__)

TIMED = r"[0-9]{8}T[0-9]{6}\.[0-9]{6}Z-[A-Za-z0-9][A-Za-z0-9._-]{0,63}"
"""Names of records that say when they were made: date, time (UTC), round."""
DRAFT_SUFFIX = ".part"
_FIT = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")


class RecordWriter:
    """One folder. Only files with names of the writer's own form are ever removed.

    Counters may be read at any time: ``written``, ``dropped`` (no room in the queue, or closed before its turn came) and
    ``failed`` (the record could not be made, or the disk refused it) add up to the records that were added.
    """

    def __init__(
        self,
        folder: Path,
        keep: int | None = None,
        waiting: int = 16,
        *,
        names: str = TIMED,
        make: Callable[[Recipe], bytes] | None = None,
    ) -> None:
        """Raises :class:`InputError` if there cannot be such a folder.

        ``keep``: files beyond so many go, oldest first (numbers in names count as numbers); None keeps all. ``waiting``:
        records that the queue holds. ``names``: what names look like, a regular expression. ``make``: how recipes become
        packed records, for those who share a :class:`RecordMaker`; it is theirs to close.
        """
        make_folder(folder)
        self.folder = folder
        self.written = 0
        self.dropped = 0
        self.failed = 0
        self.error: Exception | None = None
        """Why a record was not written, the latest one; None while ``failed`` is 0."""
        self._keep = keep
        self._room = max(1, waiting)
        self._own = re.compile(names)
        self._maker = RecordMaker() if make is None else None
        self._make = make if self._maker is None else self._maker.make
        self._queue: deque[tuple[str, Recipe]] = deque()
        self._busy = False
        self._closed = False
        self._changed = threading.Condition()
        self._failing: set[str] = set()
        self._thread = threading.Thread(target=self._run, name="record-writer", daemon=True)
        self._thread.start()

    def add(self, name: str, recipe: Recipe, *, wait: bool = False) -> bool:
        """Have a record written as NAME.npz; whether it is in the queue. Returns at once.

        ``wait``: where the queue is full, return only once there is room. Raises ``ValueError`` for a name that is unfit
        for a file or not of the writer's form.
        """
        if not (_FIT.fullmatch(name) and self._own.fullmatch(name)):
            raise ValueError(f"'{name}' cannot name a record")
        with self._changed:
            while wait and not self._closed and len(self._queue) >= self._room:
                self._changed.wait()
            if self._closed or len(self._queue) >= self._room:
                self.dropped += 1
                return False
            self._queue.append((name, recipe))
            self._changed.notify_all()
            return True

    def flush(self, timeout_s: float | None = None) -> bool:
        """Wait until all that was added is dealt with, or so long; whether it is."""
        with self._changed:
            return self._changed.wait_for(lambda: not (self._queue or self._busy), timeout_s)

    def close(self, timeout_s: float = 5.0) -> bool:
        """Write what still waits, but no longer than this, and take no more; whether all was dealt with in time."""
        deadline = time.monotonic() + timeout_s
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        done = self.flush(timeout_s)
        with self._changed:
            self.dropped += len(self._queue)
            self._queue.clear()
            self._changed.notify_all()
        if self._maker is not None:
            self._maker.close(max(0.0, deadline - time.monotonic()))
        self._thread.join(max(0.0, deadline - time.monotonic()))
        return done

    def _run(self) -> None:
        self._tidy(drafts=True)
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._queue or self._closed)
                if not self._queue:
                    return
                name, recipe = self._queue.popleft()
                self._busy = True
                self._changed.notify_all()
            try:
                error = self._write(name, recipe)
            finally:
                # What it was made of is let go before the next one comes.
                del recipe
            with self._changed:
                self.error = error or self.error
                self.written += error is None
                self.failed += error is not None
                self._busy = False
                self._changed.notify_all()

    def _write(self, name: str, recipe: Recipe) -> Exception | None:
        """What went wrong, or None."""
        assert self._make is not None
        try:
            content = self._make(recipe)
            self._failing.discard("recipe")
        except Exception as error:
            return self._complain("recipe", f"record {name} could not be made", error)
        try:
            write_whole_bytes(self.folder / f"{name}{ARCHIVE_SUFFIX}", content, sync=True)
            self._failing.discard("disk")
        except Exception as error:
            return self._complain("disk", f"record {name} was not written", error)
        if self._keep is not None:
            self._tidy()
        return None

    def _complain(self, what: str, text: str, error: Exception) -> Exception:
        """Once, until it works again."""
        if what not in self._failing:
            self._failing.add(what)
            expected = isinstance(error, InputError | MakingError)
            LOG.warning("%s: %s", text, error, exc_info=None if expected else error)
        return error

    def _tidy(self, drafts: bool = False) -> None:
        """Remove the oldest, and at the start what a crash left; never what others put there."""
        try:
            with os.scandir(self.folder) as entries:
                own = [entry.name for entry in entries if self._is_own(entry.name) and entry.is_file()]
            broken = [name for name in own if name.endswith(DRAFT_SUFFIX)] if drafts else []
            whole = sorted((name for name in own if not name.endswith(DRAFT_SUFFIX)), key=_natural)
            old = whole[: max(0, len(whole) - self._keep)] if self._keep is not None else []
            for name in (*broken, *old):
                (self.folder / name).unlink(missing_ok=True)
            self._failing.discard("removal")
        except OSError as error:
            self._complain("removal", "old records were not removed", error)

    def _is_own(self, file: str) -> bool:
        """Whether a file is named like one of this writer's records, or a draft of one."""
        name = file.removesuffix(DRAFT_SUFFIX)
        return name.endswith(ARCHIVE_SUFFIX) and self._own.fullmatch(name.removesuffix(ARCHIVE_SUFFIX)) is not None


def _natural(name: str) -> list[tuple[int, str]]:
    """An order in which round 10000 comes after 9999."""
    return [(int(text), "") if text.isdigit() else (0, text) for text in re.findall(r"[0-9]+|[^0-9]+", name)]
