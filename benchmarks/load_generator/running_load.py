"""A generator that runs: started, read while it runs, awaited."""

from __future__ import annotations

import contextlib
import subprocess
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

from benchmarks import native
from benchmarks.load_generator.load_plan import LoadPlan
from benchmarks.load_generator.rows import LoadRow, StepResult, Totals
from benchmarks.load_generator.steps import total_s

_START_LIMIT_S = 60.0
"""Connecting and storing values."""
_SPARE_S = 30.0
"""How long beyond steps and drain a generator may take that this machine hardly lets run."""


class LoadError(Exception):
    """No load could be made; one sentence says why."""


@dataclass(frozen=True)
class LoadResult:
    """What came of a plan."""

    plan: LoadPlan
    start_s: float
    """When the first step began, on the clock of :func:`time.monotonic`."""
    rows: tuple[LoadRow, ...]
    steps: tuple[StepResult, ...]
    totals: Totals


class RunningLoad:
    """The generator as a process of its own; leaving the context ends it."""

    def __init__(self, plan: LoadPlan, on_row: Callable[[LoadRow], None] | None = None) -> None:
        """Compile it if need be, start it, and return once the first step begins. Raises :class:`LoadError`.

        ``on_row`` is called in a thread of its own with every window, once all requests of it have an end.
        """
        self.plan = plan
        self.start_s = 0.0
        self.rows: list[LoadRow] = []
        """Grows while the load runs."""
        self._on_row = on_row
        self._steps: list[StepResult] = []
        self._totals: Totals | None = None
        self._complaint = ""
        self._ready = threading.Event()
        try:
            program = native.compile(Path(__file__).with_name("generator.c").read_text("utf-8"), ("m",))
        except native.NativeError as error:
            raise LoadError(f"the load generator cannot be compiled: {error}") from None
        self._process = subprocess.Popen(
            [str(program), *plan.arguments()],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        try:
            assert self._process.stdin
            with contextlib.suppress(BrokenPipeError):  # it has said why on its standard error
                self._process.stdin.write(plan.standard_input())
                self._process.stdin.close()
            self._reader.start()
            if not self._ready.wait(_START_LIMIT_S):
                raise LoadError(f"the load generator did not start within {_START_LIMIT_S:g} s")
            if not self.start_s:
                self._process.wait(_SPARE_S)
                raise LoadError(self._complaint or f"the load generator ended with code {self._process.returncode}")
        except BaseException:
            self.kill()
            raise

    @property
    def pid(self) -> int:
        """Of the generator."""
        return self._process.pid

    def wait(self) -> LoadResult:
        """The result, once all steps are over and answers were awaited. Raises :class:`LoadError`."""
        limit_s = total_s(self.plan.steps) + self.plan.drain_s + _SPARE_S
        try:
            code = self._process.wait(limit_s)
        except subprocess.TimeoutExpired:
            self.kill()
            raise LoadError(f"the load generator was still there after {limit_s:g} s and was ended") from None
        self._reader.join(_SPARE_S)
        if code != 0 or self._totals is None:
            raise LoadError(self._complaint or f"the load generator ended with code {code}")
        return LoadResult(self.plan, self.start_s, tuple(self.rows), tuple(self._steps), self._totals)

    def stop(self) -> LoadResult:
        """End it now; the result is of what was due until now."""
        self._process.terminate()
        return self.wait()

    def kill(self) -> None:
        """End it without a result."""
        with contextlib.suppress(ProcessLookupError):
            self._process.kill()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(_SPARE_S)

    def __enter__(self) -> RunningLoad:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._process.poll() is None:
            self.kill()

    def _read(self) -> None:
        assert self._process.stdout
        assert self._process.stderr
        for line in self._process.stdout:
            word, *rest = line.split()
            if word == "row":
                row = LoadRow.parse(rest)
                self.rows.append(row)
                if self._on_row:
                    self._on_row(row)
            elif word == "step":
                self._steps.append(StepResult.parse(rest))
            elif word == "end":
                self._totals = Totals.parse(rest)
            else:
                self.start_s = int(rest[0]) / 1e9
                self._ready.set()
        self._complaint = self._process.stderr.read().strip()
        self._ready.set()


def run_load(plan: LoadPlan, on_row: Callable[[LoadRow], None] | None = None) -> LoadResult:
    """Start a load and wait for its end. Raises :class:`LoadError`."""
    with RunningLoad(plan, on_row) as load:
        return load.wait()
