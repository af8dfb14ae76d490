"""What running tasks have of machines, and until when, kept from round to round."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from flowsched.cluster.change_log import LogMark
from flowsched.cluster.running_tasks import RunningTasks, entries_of
from flowsched.cluster.snapshot import Running, Snapshot
from flowsched.support.arrays import FloatArray, IntArray
from flowsched_models.execution import INSTANT_S
from flowsched_simulator.baselines.availability import Ends
from flowsched_simulator.baselines.expectation import OVERRUN
from flowsched_simulator.baselines.room import RoomLayout

_FIRST = 64


class Share(NamedTuple):
    """What one task has."""

    row: int
    """Of its machine."""
    amounts: IntArray
    """[R + D]: R resources and thousandths of D GPUs."""
    start_s: float
    lasting_s: float
    """Seconds from its start to its end, as policies are told; infinite without an end."""

    @property
    def end_s(self) -> float:
        """Its estimated end."""
        return self.start_s + self.lasting_s


class RunningShares:
    """The shares of all that runs, as columns."""

    def __init__(self) -> None:
        """Nothing runs."""
        self._mark: LogMark[Running] | None = None
        self._layout: RoomLayout | None = None

    def catch_up(
        self, snapshot: Snapshot, layout: RoomLayout, share_of: Callable[[Running], Share], units: int
    ) -> Sequence[tuple[Running, bool]] | None:
        """Bring them to what runs in a snapshot. What came (True) and went (False) since the last one, in any order; None if
        the machines are others. ``units``: R + D.
        """
        running = snapshot.running
        mark = running.mark if isinstance(running, RunningTasks) else None
        begins = self._layout is not layout
        if begins:
            self._clear(units)
        changes = None if mark is None or begins else mark.since(self._mark)
        if changes is None:
            now = {id(r): r for r in entries_of(running)}
            changes = [(r, False) for key, (_, r) in self._here.items() if key not in now]
            changes += [(r, True) for key, r in now.items() if key not in self._here]
        self._mark, self._layout = mark, layout
        for r, came in changes:
            if came:
                self._add(r, share_of(r))
            else:
                self.endless -= r.task.endless
                place, _ = self._here.pop(id(r))
                self._lasting_s[place] = np.inf
                self._unused.append(place)
        return None if begins else changes

    def ends(self, now_s: float) -> Ends:
        """What they give back, and when. A task that should have ended is taken to need another part of its estimate, as
        :func:`~flowsched_simulator.baselines.expectation.left_s` says.
        """
        left_s = self._start_s + self._lasting_s - now_s
        left_s = np.where(left_s > INSTANT_S, left_s, OVERRUN * self._lasting_s)
        return Ends(self._rows, self._amounts, now_s + left_s)

    def is_late(self, now_s: float) -> bool:
        """Whether any should have ended by now."""
        return bool((self._start_s + self._lasting_s - now_s <= INSTANT_S).any())

    def _clear(self, units: int) -> None:
        self._here: dict[int, tuple[int, Running]] = {}
        """By identity of what runs, its place in the columns."""
        self.endless = 0
        """How many have no end."""
        self._unused: list[int] = []
        self._rows: IntArray = np.zeros(0, np.int64)
        self._amounts: IntArray = np.zeros((0, units), np.int64)
        self._start_s: FloatArray = np.zeros(0)
        self._lasting_s: FloatArray = np.zeros(0)
        """All four: [places]; one that is not used has no end."""

    def _add(self, running: Running, share: Share) -> None:
        if not self._unused:
            count = len(self._rows)
            more = max(_FIRST, count)
            self._unused.extend(range(count + more - 1, count - 1, -1))
            self._rows = np.concatenate([self._rows, np.zeros(more, np.int64)])
            self._amounts = np.concatenate([self._amounts, np.zeros((more, self._amounts.shape[1]), np.int64)])
            self._start_s = np.concatenate([self._start_s, np.zeros(more)])
            self._lasting_s = np.concatenate([self._lasting_s, np.full(more, np.inf)])
        place = self._unused.pop()
        self.endless += running.task.endless
        self._here[id(running)] = place, running
        self._rows[place], self._amounts[place], self._start_s[place], self._lasting_s[place] = share
