"""What the two-queue design is made of: queues, and how it reads load, stability, busy cores and a job's CPU quota."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Sequence

_TINY = 1e-9


class Every:
    """Due every ``period_s``, from the first time that it is asked. Late ticks are not made up for."""

    def __init__(self, period_s: float) -> None:
        """Due at once."""
        self._period_s = period_s
        self._next_s: float | None = None

    def due(self, t_s: float) -> bool:
        """Whether it is time; if so the next time is a period later."""
        if self._next_s is None:
            self._next_s = t_s
        if t_s < self._next_s - _TINY:
            return False
        self._next_s += self._period_s
        if self._next_s <= t_s + _TINY:
            self._next_s = t_s + self._period_s
        return True


class CoreQueue:
    """Q: names of jobs that wait for a core; R: jobs that were started, by core; n: the number of cores."""

    def __init__(self, cores: tuple[int, ...]) -> None:
        """An empty queue."""
        self.cores = cores
        self.waiting: deque[str] = deque()
        self._on: dict[int, str | None] = dict.fromkeys(cores)

    @property
    def started(self) -> tuple[str, ...]:
        """R: in order of their first core."""
        return tuple(dict.fromkeys(name for name in self._on.values() if name is not None))

    @property
    def empty(self) -> bool:
        """Whether it has no job at all."""
        return not self.waiting and not self.started

    @property
    def free(self) -> int:
        """Cores without a job."""
        return sum(name is None for name in self._on.values())

    def cores_of(self, name: str) -> tuple[int, ...]:
        """Cores of a started job."""
        return tuple(core for core, who in self._on.items() if who == name)

    def remove_done(self, alive: Collection[str]) -> None:
        """Done(queue): forget the jobs that are not alive any more."""
        self._on = {core: name if name in alive else None for core, name in self._on.items()}
        self.waiting = deque(name for name in self.waiting if name in alive)

    def fill(self) -> None:
        """Fill(queue): start as many as there are free cores, each on one core."""
        for core, name in self._on.items():
            if name is None and self.waiting:
                self._on[core] = self.waiting.popleft()

    def pop(self) -> str:
        """Pop(queue): take one job away, one that waits if there is one."""
        if self.waiting:
            return self.waiting.popleft()
        name = self.started[0]
        self._on = {core: None if who == name else who for core, who in self._on.items()}
        return name

    def upgrade(self, name: str) -> None:
        """Upgrade(queue, job): give a started job all free cores too."""
        self._on = {core: name if who is None else who for core, who in self._on.items()}


HELD = 10
"""Readings for which one that was taken stays in use: one second."""


class CoreSample:
    """One reading of 100 ms out of ten.

    The published design keeps a window of readings of 100 ms each and empties it once it is full, and its decisions
    take the first of those left. So one reading is in use for a second. Its logs show that: with the shared job's
    core counted, the job makes its own limit be passed, is paused, and runs again once the next reading shows an idle
    core: runs and pauses of 0.99 to 1.02 s follow each other (half of all 102 runs and 104 pauses at intervals of 10 s).
    """

    def __init__(self, cores: tuple[int, ...]) -> None:
        """Nothing read yet."""
        self._cores = cores
        self._before: tuple[float, float] | None = None
        self._until_next = 0
        self.percent: float | None = None
        """Sum over the cores, 100 for each busy one; None: it is not counted."""

    def read(self, t_s: float, core_busy_s: Sequence[float]) -> None:
        """One reading of the counters: CPU seconds used on each virtual CPU."""
        if not self._cores or len(core_busy_s) <= max(self._cores):
            self._before = self.percent = None
            self._until_next = 0
            return
        busy_s = sum(core_busy_s[c] for c in self._cores)
        before, self._before = self._before, (t_s, busy_s)
        if before is None:
            return
        if self._until_next == 0:
            self.percent = 100.0 * (busy_s - before[1]) / (t_s - before[0])
            self._until_next = HELD
        self._until_next -= 1


class CpuQuota:
    """So much CPU time in every period, and none beyond it until the period ends.

    Over a long period this is not the same as a smaller speed: a job that is paused half of the time has not used up
    what it may use when it is paused, and runs at full speed while it runs.
    """

    def __init__(self, cpus: float, period_s: float) -> None:
        """``cpus`` x ``period_s`` seconds of CPU in every period; periods count from the first question."""
        self._budget_s = cpus * period_s
        self._period_s = period_s
        self._from_s: float | None = None
        self._used_before_s = 0.0

    def throttled(self, t_s: float, cpu_s: float) -> bool:
        """Whether the job, which has used ``cpu_s`` so far, must stand still until its period ends."""
        if self._from_s is None or t_s >= self._from_s + self._period_s - 1e-9:
            elapsed = 0.0 if self._from_s is None else (t_s + 1e-9 - self._from_s) // self._period_s
            self._from_s = t_s if self._from_s is None else self._from_s + elapsed * self._period_s
            self._used_before_s = cpu_s
        return cpu_s - self._used_before_s >= self._budget_s - 1e-9


LONG = 10
"""Readings of the long window: one second."""
SHORT = 4
"""Readings of the short window: 400 ms."""


class QueryRate:
    """A sliding window over the counter of queries: what was added since the reading before, at each reading.

    A rate over the last n readings is what they added together divided by the time from the first to the last *of them*:
    n additions over n - 1 gaps, so a steady rate is told 11 % too high over ten readings and 33 % over four. The published
    design is used as it was measured: its limit of 29K queries per second stands at 26.1K, and in its logs (24 runs with
    intervals of 5 and 10 s, 700 intervals) the shared job ran at every load up to 24.4K and at none from 27.2K on.
    """

    def __init__(self) -> None:
        """Nothing read yet."""
        self._added: deque[tuple[float, int]] = deque(maxlen=LONG)
        self._before: int | None = None

    def read(self, t_s: float, queries: int | None) -> None:
        """One reading of the counter. None (no answer), or less than before (started anew): the window begins anew."""
        if queries is None or self._before is None or queries < self._before:
            self._added.clear()
        else:
            self._added.append((t_s, queries - self._before))
        self._before = queries

    @property
    def full(self) -> bool:
        """Whether the long window is full."""
        return len(self._added) == LONG

    def over(self, readings: int) -> float:
        """Queries per second over the last ``readings``; 0 where there are fewer than two."""
        last = list(self._added)[-readings:]
        if len(last) < 2:
            return 0.0
        return sum(added for _, added in last) / (last[-1][0] - last[0][0])


SCAN_S = 0.075
"""Seconds between two looks at the rates."""
TELL_S = 0.14
"""A stable rate is told this often, at the first look from then on: every 150 ms."""
LARGEST_CHANGE = 0.3
"""Largest difference of the two rates, relative to the larger one, of a stable load."""


class Stability:
    """Compares the rate of the last 400 ms with that of the last second.

    A change is told at once. The rate itself is told only while the load is stable, and not at every look, so what
    the queues act on may be older than what was read.
    """

    def __init__(self) -> None:
        """Not stable until a second was read."""
        self.stable = False
        self.qps = float("inf")
        """The rate that was told last."""
        self._scan = Every(SCAN_S)
        self._tell = Every(TELL_S)

    def look(self, t_s: float, rate: QueryRate) -> None:
        """Look again, where it is time to."""
        if not self._scan.due(t_s):
            return
        before, now = rate.over(LONG), rate.over(SHORT)
        largest = max(before, now)
        if not rate.full or abs(now - before) > LARGEST_CHANGE * largest:
            self.stable = False
            self.qps = largest if rate.full else float("inf")
            return
        tell = self._tell.due(t_s)
        if tell or not self.stable:
            self.qps = before
        self.stable = True
