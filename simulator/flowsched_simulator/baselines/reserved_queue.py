"""A queue in which every task has a reservation, kept from round to round while all goes as estimated."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from heapq import heappop, heappush

from flowsched.cluster.pending_tasks import Wait
from flowsched.cluster.snapshot import Task
from flowsched_models.execution import INSTANT_S
from flowsched_simulator.baselines.backfilling_round import BackfillingRound
from flowsched_simulator.baselines.greedy_round import Round
from flowsched_simulator.baselines.waiting import Turn, Waiting, by_rank

_SAME_S = 0.1 * INSTANT_S
"""Ends that differ by less differ by rounding alone."""


class ReservedQueue(Waiting):
    """What waits, with the reservations of the round before.

    They are made anew in each round, in the order of the queue. That changes none of them while what runs ends when it was
    estimated to, what was promised a start starts, and what comes is behind all that waits: no machine then has more free at
    any time than before, and each task still finds the place that it has, since all others were given theirs beside it. Then
    only tasks that came, and those whose time has come, have a turn.
    """

    _earlier: BackfillingRound | None = None
    """The round before."""
    _holds = False
    """Whether the reservations of the round before are those of this one."""

    def _clear(self) -> None:
        self._went: dict[str, Wait] = {name: turn.wait for name, (turn, _, _) in self._turns.items()}
        super()._clear()
        self._special: set[str] = set()
        """Tasks that relations count or bind, with GPUs, and members of task groups."""

    def catch_up(self, this: Round) -> None:
        """Bring the queue to what waits in a round."""
        assert isinstance(this, BackfillingRound)
        last = self._order[-1] if self._order else None
        self._came: dict[str, Turn] = {}
        self._went = {}
        super().catch_up(this)
        # Where the whole queue was read again, most of it is what it was.
        for name in self._came.keys() & self._went.keys():
            if self._came[name].wait is self._went[name]:
                del self._came[name], self._went[name]
        self._holds = self._goes_as_estimated(this, last)
        if not self._holds:
            self._starts: list[tuple[float, str]] = []
            """A heap of all reservations: when, and whose."""
        self._earlier = this

    def in_turn(self, this: Round, passes: Callable[[], bool], most_s: Callable[[Task, int], float]) -> Iterator[Task]:
        """All tasks, or those that may start and those without a reservation so far."""
        assert isinstance(this, BackfillingRound)
        if self._holds:
            turns = [*self._came.values(), *(self._turns[name][0] for name in self._due)]
            number = this.snapshot.round
            tasks = iter([turn.wait.in_round(number) for turn in sorted(turns, key=by_rank)])
        else:
            tasks = super().in_turn(this, passes, most_s)
        for task in tasks:
            this.release(task.name)
            yield task
            if (reservation := this.reserved.get(task.name)) is not None:
                heappush(self._starts, (reservation.start_s, task.name))

    def _goes_as_estimated(self, this: BackfillingRound, last: Turn | None) -> bool:
        """Whether all that happened since the last round was expected; ``last``: the end of the queue then."""
        earlier, now_s, delay = self._earlier, this.snapshot.now_s, this.snapshot.start_delay
        if earlier is None or self._special or delay.at_submission_s != delay.after_waiting_s:
            return False
        if self._went.keys() & earlier.reserved.keys():
            return False
        if last is not None and any(by_rank(turn) < by_rank(last) for turn in self._came.values()):
            return False
        if not self._runs_as_estimated(earlier, this) or (self._starts and self._starts[0][0] < now_s - INSTANT_S):
            return False
        self._due: list[str] = []
        """The tasks whose time has come."""
        while self._starts and self._starts[0][0] <= now_s + INSTANT_S:
            self._due.append(heappop(self._starts)[1])
        return this.resume(earlier, self._due)

    @staticmethod
    def _runs_as_estimated(earlier: BackfillingRound, this: BackfillingRound) -> bool:
        """Whether what was started runs, and ends of tasks, and only those that were estimated, have come."""
        now_s, begun = this.snapshot.now_s, dict(earlier.begun)
        if this.changes is None or this.held.is_late(now_s):
            return False
        for running, came in this.changes:
            share = this.share(running)
            if not came:
                if share.end_s > now_s + INSTANT_S:
                    return False
                continue
            expected = begun.pop(running.task.name, None)
            if expected is None or expected.row != share.row or (expected.amounts != share.amounts).any():
                return False
            if not (share.end_s == expected.end_s or abs(share.end_s - expected.end_s) <= _SAME_S):
                return False
        return not begun

    def _add(self, wait: Wait, this: Round) -> None:
        super()._add(wait, this)
        task = wait.task
        if task.group is not None or task.gpus is not None or this.domain_counts.concerns(task):
            self._special.add(task.name)
        if task.name in self._turns:
            self._came[task.name] = self._turns[task.name][0]

    def _drop(self, task: Task) -> None:
        if task.name in self._turns:
            self._went.setdefault(task.name, self._turns[task.name][0].wait)
        super()._drop(task)
        self._special.discard(task.name)
        self._came.pop(task.name, None)
