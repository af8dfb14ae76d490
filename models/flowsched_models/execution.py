"""One machine in motion: jobs start, progress at the rates of the run-time model, change phase, finish.

The only place where progress is integrated: the simulator runs the true machines with it, the engine's cluster state
what it believes of them, and :func:`flowsched_models.forecast.forecast` looks ahead with it.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping
from typing import Generic, TypeVar

from flowsched_models.runtime import Host, Occupant, Resident

_TINY = 1e-9
_NEVER = float("inf")

Key = TypeVar("Key", bound=Hashable)


class _Entry:
    __slots__ = ("later", "now", "progress", "ready_s", "scale", "serial_until")

    def __init__(self, host: Host, resident: Resident, slowdown: float) -> None:
        first, self.later, self.serial_until = host.course(resident)
        self.progress = resident.progress
        self.now = first if resident.progress < self.serial_until - _TINY else self.later
        self.ready_s = resident.ready_s
        self.scale = resident.scale * slowdown


class Execution(Generic[Key]):
    """The jobs on one machine and how far they are, at one moment that only moves forward.

    ``ceiling`` < 1 is for beliefs: no job is held to be done before its end is reported; a job that should be done by now
    stays at the ceiling and goes on using its cores.
    """

    def __init__(self, host: Host, now_s: float = 0.0, ceiling: float = 1.0) -> None:
        """An empty machine at ``now_s``."""
        self.host = host
        self.now_s = now_s
        self._ceiling = ceiling
        self._entries: dict[Key, _Entry] = {}
        self._paces: dict[Key, float] | None = None
        self._marks: dict[Key, tuple[float, float]] = {}
        """When each job reaches its next mark, and the progress that it has then: no rounding can make it miss it."""
        self._p95: tuple[float, ...] = ()
        self._next_s = _NEVER

    def start(self, key: Key, resident: Resident, slowdown: float = 1.0) -> None:
        """Put a job on the machine. ``slowdown`` multiplies its work beyond what its profile says."""
        self._entries[key] = _Entry(self.host, resident, slowdown)
        self._paces = None

    def stop(self, key: Key) -> None:
        """Take a job away."""
        del self._entries[key]
        self._paces = None

    def progress(self, key: Key) -> float:
        """Share of a job's work that is done."""
        return self._entries[key].progress

    def jobs(self) -> Iterable[Key]:
        """The jobs on the machine, those first that came first."""
        return self._entries.keys()

    def progresses(self) -> Iterator[tuple[Key, float]]:
        """Each job, and the share of its work that is done."""
        return ((key, entry.progress) for key, entry in self._entries.items())

    def courses(self) -> Iterator[tuple[Key, float, float, float]]:
        """Each job with its progress, its pace in 1/s up to the next event and the progress that it cannot pass before."""
        if self._paces is None:
            self._settle()
        assert self._paces is not None
        for key, entry in self._entries.items():
            pace = self._paces.get(key)
            yield (
                (key, entry.progress, 0.0, _NEVER) if pace is None else (key, entry.progress, pace, self._marks[key][1])
            )

    def resume(self, now_s: float, progress: Mapping[Key, float]) -> None:
        """Go on at ``now_s``, before the next event, as another execution followed the ``courses`` until then."""
        self.now_s = now_s
        for key, done in progress.items():
            self._entries[key].progress = done

    @property
    def p95_us(self) -> tuple[float, ...]:
        """p95 of each service of the host, now."""
        if self._paces is None:
            self._settle()
        return self._p95

    def next_event_s(self) -> float:
        """When the next program starts, phase changes or job ends; infinity when nothing moves."""
        if self._paces is None:
            self._settle()
        return self._next_s

    def advance(self, to_s: float) -> list[Key]:
        """Move to ``to_s``, at most the next event; returns the jobs that finished then, and removes them."""
        if self._paces is None:
            self._settle()
        assert self._paces is not None
        if to_s > self._next_s + 1e-6:
            raise ValueError(f"cannot advance to {to_s}: something happens at {self._next_s}")
        step = to_s - self.now_s
        self.now_s = to_s
        finished = []
        changed = False
        for key, pace in self._paces.items():
            entry = self._entries[key]
            at, mark = self._marks[key]
            if to_s < at:
                entry.progress = min(mark, entry.progress + pace * step)
                continue
            changed = True
            entry.progress = mark
            if mark < self._ceiling:
                entry.now = entry.later
            elif self._ceiling >= 1.0:
                finished.append(key)
        for key in finished:
            del self._entries[key]
        if changed or to_s >= self._next_s - _TINY:
            self._paces = None
        return finished

    def _running(self) -> dict[Key, _Entry]:
        limit = self.now_s + _TINY
        return {key: entry for key, entry in self._entries.items() if entry.ready_s <= limit}

    def _settle(self) -> None:
        """Rates and the next event for who is here now."""
        running = self._running()
        rates = self.host.rates(_canonical([e.now for e in running.values()]))
        self._p95 = rates.p95_us
        soonest = _NEVER
        if len(running) < len(self._entries):
            limit = self.now_s + _TINY
            soonest = min(e.ready_s for e in self._entries.values() if e.ready_s > limit)
        paces: dict[Key, float] = {}
        for key, entry in running.items():
            if self._ceiling < 1.0 and entry.progress >= self._ceiling:
                continue
            pace = rates.progress[entry.now] / entry.scale
            paces[key] = pace
            mark = self._ceiling if entry.now is entry.later else min(entry.serial_until, self._ceiling)
            at = self.now_s + max(0.0, mark - entry.progress) / pace
            self._marks[key] = (at, mark)
            if at < soonest:
                soonest = at
        self._paces = paces
        self._next_s = soonest


def _canonical(occupants: list[Occupant]) -> tuple[Occupant, ...]:
    """One order for equal sets, so that their rates are computed once."""
    if len(occupants) > 1:
        occupants.sort(key=lambda o: (o.profile, o.stage, o.weight, o.threads, o.cores, o.gpus))
    return tuple(occupants)
