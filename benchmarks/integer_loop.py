"""An event loop of its own for rules that textbooks define, in integers: what the simulator has to agree with."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from heapq import heapify, heappop, heappush
from typing import NamedTuple


class Job(NamedTuple):
    """One that asks for cores of one machine for a time; all in whole units."""

    submit: int
    run: int
    cores: int
    told: int = 0
    """The run time that rules are told, no less than the true one; 0: that one."""

    @property
    def expected(self) -> int:
        """The run time that rules go by."""
        return self.told or self.run


Started = tuple[int, int]
"""When a job starts, and on which machine."""
_Runs = list[list[tuple[int, int]]]
"""By machine, the expected ends of what runs and the cores that come free then."""


def starts_of(capacity: Sequence[int], jobs: Sequence[Job], rule: str) -> list[Started]:
    """Of each job, by ``fcfs``, ``sjf``, ``easy`` or ``conservative``.

    ``capacity``: cores of each machine, each of which could take any of the jobs.
    """
    free, runs = list(capacity), _Runs([[] for _ in capacity])
    found: dict[int, Started] = {}
    queue: list[int] = []
    events = [(job.submit, 0, j) for j, job in enumerate(jobs)]
    heapify(events)
    while events:
        now = events[0][0]
        while events and events[0][0] == now:
            _, is_end, j = heappop(events)
            if is_end:
                start, machine = found[j]
                free[machine] += jobs[j].cores
                runs[machine].remove((start + jobs[j].expected, jobs[j].cores))
            else:
                queue.append(j)
        for j, machine in _ROUNDS[rule](now, free, runs, [(j, jobs[j]) for j in queue]):
            found[j] = now, machine
            queue.remove(j)
            heappush(events, (now + jobs[j].run, 1, j))
    return [found[j] for j in range(len(jobs))]


Queue = list[tuple[int, Job]]


def _place(now: int, free: list[int], runs: _Runs, job: Job, machine: int) -> None:
    free[machine] -= job.cores
    runs[machine].append((now + job.expected, job.cores))


def _fcfs(now: int, free: list[int], runs: _Runs, queue: Queue) -> Iterator[Started]:
    for j, job in queue:
        machine = next((m for m, left in enumerate(free) if left >= job.cores), None)
        if machine is None:
            return
        _place(now, free, runs, job, machine)
        yield j, machine


def _sjf(now: int, free: list[int], runs: _Runs, queue: Queue) -> Iterator[Started]:
    for j, job in sorted(queue, key=lambda each: (each[1].expected, each[1].submit, each[0])):
        most = max(free)
        if most >= job.cores:
            machine = free.index(most)
            _place(now, free, runs, job, machine)
            yield j, machine


def _easy(now: int, free: list[int], runs: _Runs, queue: Queue) -> Iterator[Started]:
    reserved, shadow, extra = -1, 0, 0
    for j, job in queue:
        ends_s = now + job.expected
        for machine, left in enumerate(free):
            late = machine == reserved and ends_s > shadow
            if left >= job.cores and (not late or job.cores <= extra):
                extra -= job.cores if late else 0
                _place(now, free, runs, job, machine)
                yield j, machine
                break
        else:
            if reserved < 0:
                shadow, reserved = min((_falls_free(free[m], runs[m], job.cores), m) for m in range(len(free)))
                extra = free[reserved] + sum(cores for end, cores in runs[reserved] if end <= shadow) - job.cores


def _falls_free(left: int, runs: list[tuple[int, int]], wanted: int) -> int:
    for end, cores in sorted(runs):
        left += cores
        if left >= wanted:
            return end
    raise ValueError(f"a machine of {left} cores never has {wanted}")


def _conservative(now: int, free: list[int], runs: _Runs, queue: Queue) -> Iterator[Started]:
    plans = []
    for machine, left in enumerate(free):
        times, levels = [now], [left]
        for end, cores in sorted(runs[machine]):
            if end > times[-1]:
                times.append(end)
                levels.append(levels[-1])
            levels[-1] += cores
        plans.append((times, levels))
    for j, job in queue:
        begin, machine = min((_first_gap(*plan, job), m) for m, plan in enumerate(plans))
        times, levels = plans[machine]
        for moment in (begin, begin + job.expected):
            at = bisect_left(times, moment)
            if at == len(times) or times[at] != moment:
                times.insert(at, moment)
                levels.insert(at, levels[at - 1])
        for k in range(bisect_left(times, begin), bisect_left(times, begin + job.expected)):
            levels[k] -= job.cores
        if begin == now:
            _place(now, free, runs, job, machine)
            yield j, machine


def _first_gap(times: list[int], levels: list[int], job: Job) -> int:
    begin: int | None = None
    for time, level in zip(times, levels, strict=True):
        if begin is not None and time >= begin + job.expected:
            return begin
        if level < job.cores:
            begin = None
        elif begin is None:
            begin = time
    if begin is None:
        raise ValueError(f"a machine of {levels[-1]} cores never has {job.cores}")
    return begin


_ROUNDS = {"fcfs": _fcfs, "sjf": _sjf, "easy": _easy, "conservative": _conservative}
