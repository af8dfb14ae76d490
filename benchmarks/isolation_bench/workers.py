"""The processes of a measurement: started, told to begin, ended."""

from __future__ import annotations

import contextlib
import selectors
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

from benchmarks import native
from benchmarks.isolation_bench.measured import BenchError

_START_LIMIT_S = 20.0


@dataclass(frozen=True)
class Program:
    """How a worker is started."""

    command: tuple[str, ...]
    note: str = ""
    """What its users are told."""


def find_program() -> Program:
    """The compiled worker, or that in Python where it cannot be compiled."""
    here = Path(__file__).parent
    try:
        return Program((str(native.compile(here.joinpath("worker.c").read_text("utf-8"))),))
    except native.NativeError as error:
        slow = here.joinpath("slow_worker.py").read_text("utf-8")
        note = f"{error}: the worker runs in Python, and delays below 0.1 ms say nothing"
        return Program((sys.executable, "-I", "-S", "-c", slow), note)


class Worker:
    """One process, which stands ready until it is told to begin. Leaving the context ends it; so does our own end."""

    def __init__(self, program: Program, arguments: Sequence[str]) -> None:
        """Start it. Raises :class:`BenchError`."""
        try:
            self._process = subprocess.Popen(
                [*program.command, *arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
            )
        except OSError as error:
            raise BenchError(f"a worker could not be started: {error}") from None
        try:
            if self._line(_START_LIMIT_S) != "ready":
                raise BenchError("a worker did not get ready")
        except BaseException:
            self.end()
            raise

    @property
    def pid(self) -> int:
        """Its number."""
        return self._process.pid

    def begin(self) -> None:
        """Let it begin."""
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.write("begin\n")
            self._process.stdin.flush()

    def numbers(self, word: str, limit_s: float) -> list[int]:
        """The numbers of the line that begins with ``word``. Raises :class:`BenchError`."""
        said, *rest = self._line(limit_s).split() or [""]
        if said != word:
            raise BenchError("a worker ended before it was done")
        return [int(number) for number in rest]

    def end(self) -> None:
        """End it, whatever it does."""
        with contextlib.suppress(ProcessLookupError):
            self._process.kill()
        self._process.wait()
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                with contextlib.suppress(OSError):
                    stream.close()

    def _line(self, limit_s: float) -> str:
        """The next line, without its end; empty after the last, or when none comes in time."""
        assert self._process.stdout is not None
        with selectors.DefaultSelector() as selector:
            selector.register(self._process.stdout, selectors.EVENT_READ)
            deadline = time.monotonic() + limit_s
            # One line is written at a time, and only complete ones are waited for here.
            if not selector.select(max(0.0, deadline - time.monotonic())):
                return ""
        return self._process.stdout.readline().strip()

    def __enter__(self) -> Worker:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.end()
