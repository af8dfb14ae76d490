"""Moves of running tasks: what one must bring to be worth its price, and which of a proposal still are.

A move brings what the task costs where it is, beside the others, less what it costs at its target, as things stand when its
turn comes. With prices that count what a task does to others beside what it suffers, that is what the total falls by.

Its price is paid once, but what it brings lasts only as long as the task does, and a task that starts over elsewhere loses
what it has done. With e the part of its predicted run that is over, a task moves if

    gain * (1 - e) > move_price + lost_work * e + what standing still for ``pause_s`` costs

where the price is ``hysteresis`` times as high for a task that moved less than ``quiet_s`` ago. A task without a predicted
end keeps what a move brings; what it has done is taken to be its age, at most a whole run.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from flowsched.scale import kernels, move_kernels
from flowsched.scale.ledger import PENDING, RUNNING, UNLIMITED, Ledger
from flowsched.scale.ledger_copy import copied
from flowsched.support.arrays import BoolArray, FloatArray, IntArray


@dataclass(frozen=True)
class MoveSettings:
    """What moving a running task costs, in the unit of the policy's costs."""

    move_price: float = 0.1
    """Price of any move; infinite if nothing is to move."""
    lost_work: float = 1.0
    """Price of losing a whole predicted run; 0 where tasks move without starting over."""
    hysteresis: float = 2.0
    """How many times as high ``move_price`` is for a task that moved a short while ago. At least 1."""
    quiet_s: float = 600.0
    """What a short while is."""
    pause_s: float = 0.0
    """How long the program of a moved task stands still: that costs what the task costs where it is, times the share of
    its predicted run."""
    move_endless: bool = False
    """Whether tasks without an end, such as services, may move."""

    def __post_init__(self) -> None:
        """Raises ``ValueError`` for prices below 0 and a hysteresis below 1."""
        for name in ("move_price", "lost_work", "quiet_s", "pause_s"):
            if not getattr(self, name) >= 0.0:
                raise ValueError(f"{name} is {getattr(self, name)}; it must be at least 0")
        if not self.hysteresis >= 1.0:
            raise ValueError(f"hysteresis is {self.hysteresis}; it must be at least 1, which is none")


@dataclass(frozen=True, eq=False)
class Moves:
    """Steps to take one plan after the other. Arrays by step; a plan is a run of steps of which all or none are taken.

    All tasks of a plan leave where they are, then one after the other comes to its target, those that wait last.
    """

    tasks: IntArray
    sequence: IntArray
    """The tasks' order of arrival, which says who is in a row: rows are used again."""
    source: IntArray
    """Machine row that the task is taken off; -1 for one that waits and starts."""
    target: IntArray
    gain: FloatArray
    """What each step brings when its turn comes; of one that starts, what leaving it would cost less what it costs. Steps
    that only make room for a later one of their plan may bring less than nothing."""
    least_gain: FloatArray
    """What each must bring to be worth its price; 0 for one that starts."""
    plan: IntArray
    """Number of each step's plan, ascending."""

    def __len__(self) -> int:
        """Number of steps."""
        return len(self.tasks)

    @property
    def starts(self) -> BoolArray:
        """Steps that start a task that waits."""
        started: BoolArray = self.source < 0
        return started

    def kept(self, which: BoolArray | IntArray, gain: FloatArray | None = None) -> Moves:
        """Some of the steps, perhaps with other gains; arrays are in the order of ``which``."""
        return Moves(
            self.tasks[which],
            self.sequence[which],
            self.source[which],
            self.target[which],
            (self.gain if gain is None else gain)[which],
            self.least_gain[which],
            self.plan[which],
        )


def no_moves() -> Moves:
    """Nothing to do."""
    none: IntArray = np.zeros(0, dtype=np.int64)
    return Moves(none, none, none, none, np.zeros(0), np.zeros(0), none)


class Memory:
    """When tasks moved last."""

    def __init__(self) -> None:
        """Nobody has moved."""
        self._at_s: FloatArray = np.zeros(0)
        self._sequence: IntArray = np.zeros(0, dtype=np.int64)

    def note(self, tasks: IntArray, sequence: IntArray, now_s: float | FloatArray) -> None:
        """Tasks move at a time, or each at its own."""
        more = int(tasks.max(initial=-1)) + 1 - len(self._at_s)
        if more > 0:
            self._at_s = np.concatenate([self._at_s, np.full(more, -np.inf)])
            self._sequence = np.concatenate([self._sequence, np.full(more, -1, dtype=np.int64)])
        self._at_s[tasks] = now_s
        self._sequence[tasks] = sequence

    def moved_s(self, tasks: IntArray, sequence: IntArray) -> FloatArray:
        """When each moved last; minus infinity for those that never did."""
        answer = np.full(len(tasks), -np.inf)
        known = np.flatnonzero(tasks < len(self._at_s))
        same = known[self._sequence[tasks[known]] == sequence[known]]
        answer[same] = self._at_s[tasks[same]]
        return answer


def elapsed(ledger: Ledger, tasks: IntArray, now_s: float) -> tuple[FloatArray, FloatArray]:
    """Parts of the predicted runs of running tasks that are over, and that are left, 0 to 1; 0 and 1 for the endless.

    Where a run's end is not known all of it counts as left, and its age as done.
    """
    lasting = ledger.lasting_s()[ledger.task_class[tasks], ledger.kind[ledger.machine[tasks]]]
    length = np.where(np.isfinite(lasting) & (lasting > 0.0), lasting, 1.0)
    finite, ending = np.isfinite(lasting), np.isfinite(ledger.end_s[tasks])
    left = np.clip((np.where(ending, ledger.end_s[tasks], now_s) - now_s) / length, 0.0, 1.0)
    age = np.clip((now_s - ledger.created_s[tasks]) / length, 0.0, 1.0)
    done = np.where(finite, np.where(ending, 1.0 - left, age), 0.0)
    return done, np.where(finite & ending, left, 1.0)


def may_move(ledger: Ledger, settings: MoveSettings) -> BoolArray:
    """Classes whose running tasks may move."""
    allowed = [
        c.movable and not (c.holds or c.joins) and (settings.move_endless or np.isfinite(c.run_s))
        for c in ledger.classes
    ]
    return np.array(allowed, dtype=np.bool_)


def least_gains(ledger: Ledger, tasks: IntArray, now_s: float, settings: MoveSettings, memory: Memory) -> FloatArray:
    """What moving each of these running tasks must bring; infinite for those that do not move."""
    done, left = elapsed(ledger, tasks, now_s)
    recent = now_s - memory.moved_s(tasks, ledger.sequence[tasks]) < settings.quiet_s
    price = settings.move_price * np.where(recent, settings.hysteresis, 1.0) + settings.lost_work * done
    if settings.pause_s > 0.0:
        price = price + _standing_still(ledger, tasks, settings.pause_s)
    worth: FloatArray = np.where(left > 0.0, price / np.where(left > 0.0, left, 1.0), np.inf)
    return np.where(may_move(ledger, settings)[ledger.task_class[tasks]], worth, np.inf)


def _standing_still(ledger: Ledger, tasks: IntArray, pause_s: float) -> FloatArray:
    """What a pause costs each running task, in the unit of the policy's costs."""
    classes, machine = ledger.task_class[tasks], ledger.machine[tasks]
    here = np.empty(len(tasks))
    kernels.reprice(classes, machine, ledger.model(), ledger.readings, here)
    lasting = ledger.lasting_s()[classes, ledger.kind[machine]]
    share = np.where(np.isfinite(lasting) & (lasting > 0.0), pause_s / np.where(lasting > 0.0, lasting, 1.0), 0.0)
    cost: FloatArray = np.maximum(0.0, here) * share
    return cost


def still_paying(
    moves: Moves,
    ledger: Ledger,
    now_s: float,
    settings: MoveSettings,
    memory: Memory,
    due_age_s: float,
    barred: BoolArray | None = None,
) -> Moves:
    """Those of the steps that are possible and worth their price at the ledger's state, in the order given.

    Each is looked at with those before it carried out: it must still run where it was, its target must have room, and its
    gain must be above its price. Of a plan all steps or none are kept.
    """
    if not len(moves):
        return moves
    tasks = np.minimum(moves.tasks, len(ledger.state) - 1)
    source = moves.source
    target = np.minimum(moves.target, ledger.rows - 1)
    same = (moves.tasks == tasks) & (moves.target == target) & (ledger.sequence[tasks] == moves.sequence)
    runs = same & (ledger.state[tasks] == RUNNING) & (ledger.machine[tasks] == source) & (source >= 0)
    waits = same & (ledger.state[tasks] == PENDING) & (source < 0)
    _, first_of_task = np.unique(tasks, return_index=True)
    once = np.zeros(len(tasks), dtype=np.bool_)
    once[first_of_task] = True
    price = np.zeros(len(tasks))
    price[runs] = least_gains(ledger, tasks[runs], now_s, settings, memory)
    worth = np.zeros(len(tasks))
    worth[waits] = waiting_cost(ledger, tasks[waits], now_s, due_age_s)
    first = np.flatnonzero(np.concatenate([[True], np.diff(moves.plan) != 0, [True]]))
    gains = np.zeros(len(tasks))
    kept = move_kernels.recheck(
        first,
        ledger.task_class[tasks],
        source,
        target,
        worth,
        price,
        (runs | waits) & once,
        open_machines(ledger, barred),
        ledger.model(),
        ledger.free.copy(),
        ledger.readings.copy(),
        gains,
    )
    return replace(moves, gain=gains, least_gain=price).kept(kept)


def carry_out(moves: Moves, ledger: Ledger, end_s: FloatArray | None = None) -> None:
    """Book steps on the ledger they are possible on; ``end_s``: when each task is predicted to end from then on."""
    runs = ~moves.starts
    ledger.move(moves.tasks[runs], moves.target[runs], None if end_s is None else end_s[runs])
    ledger.bind(moves.tasks[~runs], moves.target[~runs], None if end_s is None else end_s[~runs])


def waiting_cost(ledger: Ledger, tasks: IntArray, now_s: float, due_age_s: float) -> FloatArray:
    """What leaving each of these tasks for later costs, by its age."""
    table, classes = ledger.table(), ledger.task_class[tasks]
    age = np.clip((now_s - ledger.created_s[tasks]) / max(due_age_s, 1e-9), 0.0, 1.0)
    cost: FloatArray = table.waiting[classes] + table.growth[classes] * age
    return cost


def emptied_of(ledger: Ledger, tasks: IntArray) -> Ledger:
    """A copy in which there is as much room as if these running tasks were gone, at readings as they are."""
    emptied = copied(ledger)
    machine, classes = ledger.machine[tasks], ledger.task_class[tasks]
    np.add.at(emptied.free, machine, ledger.demands[classes])
    freed = np.zeros_like(emptied.limits)
    np.add.at(freed, machine, ledger.effects[classes])
    emptied.limits = np.where(ledger.limits < UNLIMITED, ledger.limits + freed, UNLIMITED)
    return emptied


def open_machines(ledger: Ledger, barred: BoolArray | None) -> BoolArray:
    """Machine rows that may take somebody."""
    return ledger.alive.copy() if barred is None else ledger.alive & ~barred
