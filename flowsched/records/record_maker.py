"""Makes records in a process of its own.

Making and packing one of 12,500 machines takes about as long as the round itself, and part of it holds the
interpreter's lock: a thread of the same process would take that time from the rounds. What a record is made of is values,
so it crosses a pipe in a millisecond or two, its arrays as they are. The process runs at a lower priority, remembers
nothing and ends when the pipe closes, however its parent ended.
"""

from __future__ import annotations

import contextlib
import logging
import os
import pickle
import signal
import struct
import subprocess
import sys
import threading
import traceback
from collections.abc import Sequence
from io import FileIO
from typing import IO, cast

from flowsched.errors import MakingError
from flowsched.records.record import Recipe
from flowsched.records.record_file import pack_record

LOG = logging.getLogger(__name__)

NICENESS = 19
"""The lowest priority: where it shares a processor with the rounds it takes a seventieth of it, not a tenth."""
_PIPE_BYTES = 1 << 20
Buffer = bytes | memoryview
_SIZE = struct.Struct("<q")
_MADE, _FAILED, _UNREADABLE = range(3)
_START = "import sys; sys.path[:] = {path!r}; from flowsched.records.record_maker import serve; serve()"


class RecordMaker:
    """The process, started with the first record. Any thread may use it; records are made one after another.

    A recipe that cannot cross to another process (one that is a local function, say) is carried out by the caller's thread.
    """

    def __init__(self) -> None:
        """Nothing is started yet."""
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None

    def make(self, recipe: Recipe) -> bytes:
        """The packed record. Raises :class:`MakingError`, and what the recipe raises where this thread carries it out."""
        parts = _as_parts(recipe)
        if parts is None:
            return pack_record(recipe())
        with self._lock:
            process = self._running()
            if process is None:
                return pack_record(recipe())
            try:
                _send(process.stdin, parts)
                status, content = _receive(process.stdout)
            except (OSError, EOFError, ValueError):
                self._end(0.0)
                raise MakingError("the process that makes records ended") from None
        if status == _UNREADABLE:
            return pack_record(recipe())
        if status == _FAILED:
            raise MakingError(content.decode())
        return content

    def close(self, timeout_s: float = 5.0) -> None:
        """End the process. Another record would start a new one."""
        if self._lock.acquire(timeout=timeout_s):
            try:
                self._end(timeout_s)
            finally:
                self._lock.release()
        elif (process := self._process) is not None:
            # The thread that waits for it gets an error, and ends it.
            process.kill()

    def _running(self) -> subprocess.Popen[bytes] | None:
        """The process; None where there can be none."""
        if self._process is not None and self._process.poll() is not None:
            self._end(0.0)
        if self._process is None:
            command = [sys.executable, "-c", _START.format(path=sys.path)]
            if not sys.executable:
                return None
            group = 0 if os.name == "posix" else None
            try:
                # A group of its own: an interrupt at the terminal is for the parent, which decides what is still written.
                self._process = subprocess.Popen(
                    command, bufsize=0, stdin=subprocess.PIPE, stdout=subprocess.PIPE, process_group=group
                )
            except (OSError, ValueError) as error:
                LOG.debug("no process for records: %s", error)
                return None
            _widen(self._process.stdin)
        return self._process

    def _end(self, timeout_s: float) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                with contextlib.suppress(OSError):
                    pipe.close()
        try:
            process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def serve() -> None:
    """Make records until the pipe closes: what the process runs."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    with contextlib.suppress(OSError, AttributeError):
        os.nice(NICENESS)
    requests, answers = os.fdopen(os.dup(0), "rb", 0), os.fdopen(os.dup(1), "wb", 0)
    # Whatever a recipe prints is not an answer.
    os.dup2(2, 1)
    with contextlib.suppress(EOFError, BrokenPipeError):
        while True:
            status, content = _carry_out(requests)
            _send(answers, [_SIZE.pack(status), _SIZE.pack(len(content)), content])


def _carry_out(requests: IO[bytes]) -> tuple[int, bytes]:
    sizes = [_read_size(requests) for _ in range(_read_size(requests))]
    head, *buffers = [_read(requests, size) for size in sizes]
    try:
        recipe = pickle.loads(head, buffers=buffers)
    except Exception as error:
        return _UNREADABLE, str(error).encode()
    try:
        return _MADE, pack_record(recipe())
    except Exception:
        return _FAILED, traceback.format_exc().encode()


def _as_parts(recipe: Recipe) -> list[Buffer] | None:
    """A recipe as it crosses the pipe: its arrays are not copied. None if it cannot."""
    arrays: list[pickle.PickleBuffer] = []
    try:
        head = pickle.dumps(recipe, 5, buffer_callback=arrays.append)
        buffers = [array.raw() for array in arrays]
    except Exception as error:
        # Whatever it is: pickle raises what the objects in its way raise.
        LOG.debug("a recipe stays in its process: %s", error)
        return None
    sizes = [1 + len(buffers), len(head), *(buffer.nbytes for buffer in buffers)]
    return [b"".join(map(_SIZE.pack, sizes)) + head, *buffers]


def _receive(answers: IO[bytes] | None) -> tuple[int, bytes]:
    assert answers is not None
    status = _read_size(answers)
    return status, bytes(_read(answers, _read_size(answers)))


def _send(pipe: IO[bytes] | None, parts: Sequence[Buffer]) -> None:
    assert pipe is not None
    for part in parts:
        view = memoryview(part)
        while view.nbytes:
            view = view[pipe.write(view) :]


def _read_size(pipe: IO[bytes]) -> int:
    (size,) = _SIZE.unpack(_read(pipe, _SIZE.size))
    return int(size)


def _read(pipe: IO[bytes], size: int) -> bytearray:
    """So many bytes; raises ``EOFError`` if there are no more."""
    content = bytearray(size)
    view = memoryview(content)
    while view.nbytes:
        count = cast(FileIO, pipe).readinto(view)
        if not count:
            raise EOFError
        view = view[count:]
    return content


def _widen(pipe: IO[bytes] | None) -> None:
    """Let a pipe hold more at once, where it can: fewer turns between the two."""
    try:
        import fcntl

        assert pipe is not None
        fcntl.fcntl(pipe.fileno(), fcntl.F_SETPIPE_SZ, _PIPE_BYTES)
    except (ImportError, AttributeError, OSError):
        pass
