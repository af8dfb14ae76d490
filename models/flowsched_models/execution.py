"""One machine in motion: jobs start, progress at the rates of the run-time model, change phase, finish.

The simulator runs the true machines with it, and :func:`flowsched_models.forecast.forecast` looks ahead with it. What a
scheduler estimates of many machines is worked out in :mod:`flowsched_models.estimated_executions`, to the last bit as here.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Generic, TypeVar

from flowsched_models.execution_kernel import DIGITS, LEAST_SCALE, TICKS_PER_S, TINY
from flowsched_models.runtime import Host, Occupant, Resident

INSTANT_S = 1e-6
"""What happens within so many seconds of an event happens in one instant with it: sums of seconds are rounded."""
_NEVER = float("inf")

Key = TypeVar("Key", bound=Hashable)


def what_is_left(part: float, seconds: float) -> float:
    """A part of some seconds, without the digits that the product gets wrong."""
    return round(part * seconds, DIGITS)


def stages_of(host: Host, resident: Resident, *, ends: bool) -> tuple[Occupant, Occupant, float, float | None]:
    """What a job does as it starts, what it does last, and the progress at which it passes to that; and its progress per
    second as work of scale 1, in any stage, where neighbours do not change it, else None.
    """
    first, later, serial_until = host.course(resident)
    if not ends and serial_until > 1.0 - TINY:
        serial_until = _NEVER  # all its work is serial, however much that turns out to be
    now = first if resident.progress < serial_until - TINY else later
    return now, later, serial_until, host.own_rate(first)


class _Entry:
    """A job, and how far it was when its rate was last another one: as long as that holds, nothing is added up."""

    __slots__ = (
        "at_s",
        "done",
        "later",
        "mark",
        "now",
        "own_rate",
        "pace",
        "rate",
        "ready_s",
        "scale",
        "serial_until",
        "since_s",
    )

    def __init__(self, host: Host, resident: Resident, slowdown: float, ends: bool) -> None:
        self.now, self.later, self.serial_until, self.own_rate = stages_of(host, resident, ends=ends)
        self.done = resident.progress
        self.ready_s = resident.ready_s
        self.scale = resident.scale if slowdown == 1.0 else what_is_left(slowdown, resident.scale)
        self.since_s = 0.0
        self.rate = self.pace = 0.0
        """Progress per second as work of scale 1, and as it is; 0 for a job that does not move."""
        self.at_s = self.mark = _NEVER
        """When it reaches its next mark, and the progress that it has then: no rounding can make it miss it."""

    def progress(self, now_s: float) -> float:
        """Share of its work that is done; see :meth:`EstimatedExecutions.progress` for the same of many."""
        step_s = round(max(0.0, now_s - self.since_s) * TICKS_PER_S) / TICKS_PER_S
        return min(self.mark, self.done + self.pace * step_s)

    def halt(self, now_s: float, done: float) -> None:
        """Stand still, with so much done, until it gets a rate."""
        self.done, self.since_s = done, now_s
        self.rate = self.pace = 0.0
        self.at_s = self.mark = _NEVER

    def go(self, now_s: float, rate: float, mark: float) -> None:
        """Make progress at a rate from now on, or still."""
        if rate == self.rate:
            return
        self.done = self.progress(now_s)
        self.since_s = max(now_s, self.ready_s)
        self.rate, self.pace, self.mark = rate, rate / max(self.scale, LEAST_SCALE), mark
        part = max(0.0, mark - self.done)
        self.at_s = self.since_s + (part * self.scale if self.done == 0.0 else what_is_left(part, self.scale)) / rate


class Execution(Generic[Key]):
    """The jobs on one machine and how far they are, at one moment that only moves forward.

    Without ``ends`` it says what estimates have to be: a job ends when that is reported. One that should have ended by now
    goes on in its last phase, and its progress, which counts what was forecast as 1, goes beyond that.
    """

    def __init__(self, host: Host, now_s: float = 0.0, *, ends: bool = True) -> None:
        """An empty machine at ``now_s``."""
        self.host = host
        self.now_s = now_s
        self._ends = ends
        self._entries: dict[Key, _Entry] = {}
        self._dependent = 0
        """Jobs whose rates depend on their neighbours."""
        self._settled = False
        """Whether all jobs have the rates that they have beside each other."""
        self._p95: tuple[float, ...] = ()
        self._next_s = _NEVER

    def start(self, key: Key, resident: Resident, slowdown: float = 1.0) -> None:
        """Put a job on the machine. ``slowdown`` multiplies its work beyond what its profile says."""
        entry = self._entries[key] = _Entry(self.host, resident, slowdown, self._ends)
        self._dependent += entry.own_rate is None
        if self._stays_settled():
            self._next_s = min(self._next_s, self._go_alone(entry))
        else:
            self._settled = False

    def stop(self, key: Key) -> None:
        """Take a job away."""
        entry = self._entries.pop(key)
        if not self._stays_settled():
            self._settled = False
        elif (entry.at_s if entry.rate > 0.0 else entry.ready_s) <= self._next_s < _NEVER:
            self._next_s = min(map(self._go_alone, self._entries.values()), default=_NEVER)
        self._dependent -= entry.own_rate is None

    def progress(self, key: Key) -> float:
        """Share of a job's work that is done."""
        return self._entries[key].progress(self.now_s)

    @property
    def p95_us(self) -> tuple[float, ...]:
        """p95 of each service of the host, now."""
        self._settle()
        return self._p95

    def next_event_s(self) -> float:
        """When the next program starts, phase changes or job ends; infinity when nothing moves."""
        self._settle()
        return self._next_s

    def advance(self, to_s: float) -> list[Key]:
        """Move to ``to_s``, at most the next event; returns the jobs that finished then, and removes them."""
        self._settle()
        if to_s > self._next_s + INSTANT_S:
            raise ValueError(f"cannot advance to {to_s}: something happens at {self._next_s}")
        self.now_s = to_s
        if to_s < self._next_s:
            return []
        self._settled = False
        finished = []
        for key, entry in self._entries.items():
            if to_s < entry.at_s:
                continue
            mark = entry.mark
            entry.halt(to_s, mark)
            if mark < 1.0:
                entry.now = entry.later
            else:
                finished.append(key)
        for key in finished:
            self._dependent -= self._entries.pop(key).own_rate is None
        return finished

    def _running(self) -> dict[Key, _Entry]:
        limit = self.now_s + TINY
        return {key: entry for key, entry in self._entries.items() if entry.ready_s <= limit}

    def _depends(self) -> bool:
        """Whether rates depend on what is here together."""
        return self._dependent > 0 or bool(self.host.services)

    def _stays_settled(self) -> bool:
        """Whether a job that comes or goes changes nothing for others, none of which is about to start."""
        return self._settled and not self._depends() and self._next_s > self.now_s + TINY

    def _go_alone(self, entry: _Entry) -> float:
        """Let a job whose rate is its own go on at it; when that changes, or its program starts."""
        assert entry.own_rate is not None
        if entry.rate == 0.0:
            if entry.ready_s > self.now_s + TINY:
                return entry.ready_s
            entry.go(self.now_s, entry.own_rate, self._mark(entry))
        return entry.at_s

    def _mark(self, entry: _Entry) -> float:
        """The progress at which something about a job changes."""
        if entry.now is not entry.later:
            return entry.serial_until
        return 1.0 if self._ends else _NEVER

    def _settle(self) -> None:
        """Rates and the next event for who is here now."""
        if self._settled:
            return
        self._settled = True
        if not self._depends():
            self._next_s = min(map(self._go_alone, self._entries.values()), default=_NEVER)
            return
        running = self._running().values()
        rates = self.host.rates(_canonical([e.now for e in running]))
        self._p95 = rates.p95_us
        soonest = _NEVER
        if len(running) < len(self._entries):
            soonest = min(e.ready_s for e in self._entries.values() if e.ready_s > self.now_s + TINY)
        for entry in running:
            rate = rates.progress[entry.now] if entry.own_rate is None else entry.own_rate
            entry.go(self.now_s, rate, self._mark(entry))
            soonest = min(soonest, entry.at_s)
        self._next_s = soonest


def _canonical(occupants: list[Occupant]) -> tuple[Occupant, ...]:
    """One order for equal sets, so that their rates are computed once."""
    if len(occupants) > 1:
        occupants.sort(key=lambda o: (o.profile, o.stage, o.weight, o.threads, o.cores, o.gpus))
    return tuple(occupants)
