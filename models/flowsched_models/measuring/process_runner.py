"""Runs programs for real, and sees to it that none is left behind."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from flowsched_models.measuring.aggressor import HOW_TO_INSTALL, PROGRAM
from flowsched_models.measuring.clock import MachineClock
from flowsched_models.measuring.runner import Disturbance, Ended, Outcome, Program
from flowsched_models.measuring.started_program import StartedProgram, uninterrupted

LEAD_S = 1.0
"""What an aggressor gets to fill its buffers before the program starts."""
_PATIENCE_S = 2.0
_SPARE_S = 60.0
_BUSY = (1, 2, 3, 6, 7, 8)
"""Columns of ``cpu`` in ``/proc/stat``: user, nice, system, irq, softirq, steal; see proc(5)."""


class ProcessRunner:
    """Runs programs at the same time, beside an aggressor or not, as processes of this machine."""

    def __init__(self, clock: MachineClock, stress_ng: str | None, folder: Path) -> None:
        self._clock = clock
        self._stress_ng = stress_ng
        self._folder = folder
        """Where stress-ng may put its temporary files."""

    def run(self, programs: Sequence[Program], disturbance: Disturbance | None, limit_s: float) -> Outcome:
        """Start all programs at once and wait for them, at most ``limit_s`` seconds.

        Nothing that was started outlives the call, however it ends.
        """
        running: list[StartedProgram] = []
        try:
            return self._run(programs, disturbance, limit_s, running)
        finally:
            with uninterrupted():
                for each in running:
                    each.kill()

    def _run(
        self,
        programs: Sequence[Program],
        disturbance: Disturbance | None,
        limit_s: float,
        running: list[StartedProgram],
    ) -> Outcome:
        clock = self._clock
        begin_s, busy_s = clock.now(), _busy_s()
        aggressor = None
        if disturbance is not None:
            aggressor = _start(self._aggressor(disturbance, limit_s), running)
            if aggressor.wait(clock, clock.now() + LEAD_S):
                return Outcome((), _ended_early(aggressor))
        until_s = clock.now() + limit_s
        started = [_start(program, running) for program in programs]
        for each in started:
            if not each.wait(clock, until_s):
                return Outcome((), f"it took longer than {limit_s:g} s and was ended", too_long=True)
        if aggressor is not None:
            if aggressor.wait(clock, clock.now()):
                return Outcome((), _ended_early(aggressor))
            aggressor.ask_to_end(clock, _PATIENCE_S)
        for each in started:
            if each.trouble:
                return Outcome((), each.trouble)
        ended = [e for each in started if (e := each.ended) is not None]
        ours = [*ended, *([aggressor.ended] if aggressor is not None else [])]
        return Outcome(tuple(ended), other_cpus=_others(ours, _busy_s(), busy_s, clock.now() - begin_s))

    def _aggressor(self, disturbance: Disturbance, limit_s: float) -> Program:
        if self._stress_ng is None:
            raise ValueError(f"{PROGRAM} is not installed; {HOW_TO_INSTALL}")
        folder = str(self._folder.absolute())
        command = disturbance.aggressor.command(self._stress_ng, limit_s + _SPARE_S, folder)
        return Program(command, (disturbance.core,))


def _start(program: Program, running: list[StartedProgram]) -> StartedProgram:
    with uninterrupted():
        running.append(StartedProgram(program))
    return running[-1]


def _ended_early(aggressor: StartedProgram) -> str:
    words = aggressor.trouble or aggressor.said() or "it said nothing"
    return f"{PROGRAM} ended before the program did: {words}"


def _others(ours: Sequence[Ended | None], busy_s: float | None, before_s: float | None, wall_s: float) -> float | None:
    """CPUs that were busy with what is not ours."""
    if busy_s is None or before_s is None or any(e is None for e in ours):
        return None
    own_s = sum(e.user_s + e.sys_s for e in ours if e is not None)
    return max(0.0, (busy_s - before_s - own_s) / wall_s)


def _busy_s(stat: Path = Path("/proc/stat")) -> float | None:
    """CPU seconds that all CPUs of the machine were busy, or taken away by its host, since it started."""
    try:
        fields = stat.read_text().splitlines()[0].split()
        return sum(int(fields[column]) for column in _BUSY) / os.sysconf("SC_CLK_TCK")
    except (OSError, IndexError, ValueError):
        return None
