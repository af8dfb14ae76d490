"""What a round at linear prices changes of what runs: whose leaving lets tasks in, all of one priority together.

Worked out on a cluster that is made from the round's snapshot alone, so that it does not matter how the rounds
before came to theirs. A network says how many tasks of each class get in at the machines of each group. Its arcs cost
nothing for running tasks that stay, the price of a victim for those that leave, and for arriving tasks their place; its
capacities count the room with all possible victims gone. Who goes is then found exactly, machine by machine: the cheapest
tasks whose going lets the arriving one in, in every resource and below every limit, and none that could stay. What the first
arriving task takes decides what it costs to let the others in, so the network is about all of them, and so is a turn.

A victim costs

    VICTIM_PRICE * 2^(times it was preempted) + LOST_RUN_PRICE * (part of its run that is over) + waiting at its age

where nothing is lost for a task that goes on where it stopped. A task that has waited long is spared for one that has not,
as costs grow up to the due age. Tasks without an end only become dearer. Victims go only if the arriving task's place costs
it no more than waiting would, and wait as old as they were.

Moves are those of a full round (:mod:`flowsched.round.linear.full_round`); they may also make room for a task that waits.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from types import MappingProxyType

import numpy as np

from flowsched.cluster.settings import Settings
from flowsched.cluster.snapshot import Reservation, Running
from flowsched.cluster.task_rows import FREE, PENDING, RUNNING
from flowsched.round.linear.cluster_rows import ClusterRows
from flowsched.round.linear.full_network import solve_full_network
from flowsched.round.linear.full_round import propose
from flowsched.round.linear.machine_reservation import MachineReservation
from flowsched.round.linear.moves import LOST_RUN_PRICE, carry_out, elapsed, open_machines, waiting_cost
from flowsched.round.linear.reasons import Closing
from flowsched.round.linear.room_search import Quota, RoomSearch, Steps, alone, in_turn
from flowsched.round.running_changes import Entry, Leaving, MoveStep, ProposedMoves, may_go
from flowsched.solvers import Solver
from flowsched.support.arrays import BoolArray, FloatArray, IntArray, rows_of

VICTIM_PRICE = 1.0
"""Price of a victim, so that few go, in the unit of the cost model's costs."""

_NONE: IntArray = np.zeros(0, dtype=np.int64)


History = Mapping[str, tuple[int, float | None, bool]]
"""By running task: how often it was preempted, when it was moved last (None: never), and whether it may run on some machines
only: where it runs it is like all others, so it stays there.
"""


def history_of(running: Iterable[Running]) -> History:
    """That of a snapshot's running tasks, in order of their names."""
    found = {r.task.name: (r.task.preemptions, r.moved_s, r.task.machines is not None) for r in running}
    return dict(sorted(found.items()))


class LinearChanges:
    """A cluster once a round is carried out, and then what is changed of it. Raises ``RuntimeError`` if the solver refuses a
    network.
    """

    def __init__(
        self,
        cluster: ClusterRows,
        tasks: IntArray,
        machines: IntArray,
        waits: IntArray,
        solver: Solver,
        settings: Settings,
        now_s: float,
        history: History = MappingProxyType({}),
        protected: IntArray = _NONE,
    ) -> None:
        """After a round that starts ``tasks`` on ``machines`` and leaves ``waits``; ``cluster``: before it, which stays.
        ``protected``: those of ``tasks`` that start before higher priorities, since they are overdue.
        """
        self._before = cluster
        self.cluster = cluster.copy()
        """With all that runs."""
        self.cluster.bind(tasks, machines, cluster.predicted_end(tasks, machines, now_s))
        self._solver, self.settings, self._now_s = solver, settings, now_s
        self._rows = {self._name(row): row for row in np.flatnonzero(cluster.tasks.state != FREE).tolist()}
        known = self.rows(history)
        times, moved_s, stays = zip(*history.values(), strict=True) if history else ((), (), ())
        self._times = np.zeros(len(cluster.tasks.state), dtype=np.int64)
        self._times[known] = times
        self._moved_s = np.full(len(cluster.tasks.state), -np.inf)
        self._moved_s[known] = [-np.inf if at is None else at for at in moved_s]
        self._stay = known[np.array(stays, dtype=np.bool_)]
        self._starting = tasks
        self.placed = frozenset(map(self._name, tasks.tolist()))
        """Tasks that the round starts."""
        self.waiting = dict(zip(map(self._name, waits.tolist()), self._priorities(waits).tolist(), strict=True))
        """Tasks that the round leaves, with their priorities."""
        self._protected = protected
        self._victims: list[int] = []

    def rows(self, tasks: Collection[str]) -> IntArray:
        """Rows of tasks."""
        return np.array([self._rows[task] for task in tasks], dtype=np.int64)

    def turns(self, tasks: Sequence[str]) -> Sequence[Sequence[str]]:
        """All together."""
        able = [self._name(row) for row in alone(self.cluster, self.rows(tasks)).tolist()]
        return [able] if able else []

    def lower(self, tasks: Sequence[str], _barred: Collection[str], /) -> Sequence[int]:
        """Priorities of tasks that run."""
        running = np.flatnonzero(self.cluster.tasks.state == RUNNING)
        found = np.unique(self._priorities(running))
        lower: list[int] = found[found < self._priority(self._rows[tasks[0]])].tolist()
        return lower

    def let_in(self, tasks: Sequence[str], highest: int, barred: Collection[str], most: int) -> Sequence[Entry]:
        """Tasks that get in, class by class."""
        cluster, waits = self.cluster, self.rows(tasks)
        running = np.flatnonzero(cluster.tasks.state == RUNNING)
        running = cluster.tasks.in_order(running[self._priorities(running) <= highest])
        price = self.leaving_prices(running)
        running, price = running[np.isfinite(price)], price[np.isfinite(price)]
        if not len(running):
            return ()
        waits = waits[np.lexsort((cluster.tasks.sequence[waits], -self._waiting_cost(waits)))]
        enter, group_of = self._flow(waits, running, price)
        room = RoomSearch(
            cluster.model(),
            cluster.free.copy(),
            cluster.readings.copy(),
            open_machines(cluster, self._machines(barred)),
            cluster.tasks.task_class[running],
            cluster.tasks.machine[running],
            np.zeros(len(running), dtype=np.bool_),
        )
        found: list[Entry] = []
        classes = in_turn(cluster, np.unique(cluster.tasks.task_class[waits]))
        queue = {c: waits[cluster.tasks.task_class[waits] == c] for c in classes}
        for follow in (True, False):
            for c, mine in queue.items():
                if not len(mine) or most <= 0:
                    continue
                quota = Quota(enter[c].copy(), group_of) if follow else None
                steps = room.let_in(c, self._waiting_cost(mine), price, None, most + len(mine), quota)
                entries = self._entries(steps, running, price, mine)
                kept = entries[: int(np.searchsorted(np.cumsum([len(e.leaving) for e in entries]), most, side="right"))]
                self._carry_out(steps, len(kept), running, mine)
                found += kept
                if len(kept) < len(entries):
                    return found  # the room counts those that were cut off as gone
                most -= sum(len(e.leaving) for e in kept)
                queue[c] = mine[cluster.tasks.state[mine] == PENDING]
        return found

    def move(self, barred: Collection[str], fixed: Collection[str]) -> ProposedMoves:
        """All at once, as a full round proposes them."""
        cluster = self.cluster
        cluster.leave(
            np.array(self._victims, dtype=np.int64)
        )  # they wait for the next round: no move makes room for them
        stay = np.unique(np.concatenate([self.rows(fixed), self._stay]))
        stay = stay[cluster.tasks.state[stay] == RUNNING]
        held = self._machines(barred)
        moves = propose(cluster, self._solver, self.settings, self._now_s, self._moved_s, barred=held, fixed=stay)
        carry_out(moves, cluster)
        steps = moves.kept(~moves.starts)
        return ProposedMoves(
            [
                MoveStep(self._name(row), cluster.machines.name(source), cluster.machines.name(target), gain, price)
                for row, source, target, gain, price in rows_of(
                    steps.tasks, steps.source, steps.target, steps.gain, steps.least_gain
                )
            ],
            [self._name(row) for row in moves.tasks[moves.starts].tolist()],
        )

    def started(self) -> tuple[IntArray, Closing, FloatArray]:
        """Rows of the tasks that start, the state with all of them, and what each costs there."""
        cluster = self._before
        pending = cluster.tasks.in_order(np.flatnonzero(cluster.tasks.state == PENDING))
        starting = pending[self.cluster.tasks.state[pending] == RUNNING]
        before = self.cluster.copy()
        at = before.tasks.machine[starting].copy()
        before.unbind(starting)
        closing = Closing.of(before, starting, at)
        terms = closing.terms(before.tasks.task_class[starting], at)
        cost: FloatArray = np.sum([np.zeros(len(starting)), *terms.values()], axis=0)
        return starting, closing, cost

    def waiting_terms(self, task: str) -> dict[str, float]:
        """What waiting costs a task."""
        cost = float(self._waiting_cost(self.rows([task]))[0])
        return {"waiting": cost if np.isfinite(cost) else 0.0}

    def leaving_prices(self, tasks: IntArray) -> FloatArray:
        """What the going of each running task costs; infinite for those that are no victims."""
        settings, cluster = self.settings, self.cluster
        times = self._times[tasks]
        done, _ = elapsed(cluster, tasks, self._now_s)
        again = self._waiting_cost(tasks)
        again = np.where(
            np.isfinite(again), again, 0.0
        )  # it says that any place is better than none, not who waits best
        lost = 0.0 if settings.keeps_work else LOST_RUN_PRICE
        price = VICTIM_PRICE * 2.0 ** np.minimum(times, 60) + lost * done + again
        classes = cluster.tasks.task_class[tasks]
        able = np.array([c.movable and not c.bound for c in cluster.classes], dtype=np.bool_)[classes]
        endless = ~np.isfinite(cluster.classes.table().run_s)[classes]
        able &= may_go(times, endless, np.isin(tasks, self._starting), settings)
        able &= ~np.isin(tasks, self._protected)
        prices: FloatArray = np.where(able, price, np.inf)
        return prices

    def _name(self, row: int) -> str:
        return self._before.tasks.name(row)

    def _priorities(self, tasks: IntArray) -> IntArray:
        found: IntArray = self.cluster.classes.table().priority[self.cluster.tasks.task_class[tasks]]
        return found

    def _priority(self, row: int) -> int:
        return int(self._priorities(np.array([row]))[0])

    def _waiting_cost(self, tasks: IntArray) -> FloatArray:
        return waiting_cost(self.cluster, tasks, self._now_s, self.settings.due_age_s)

    def _machines(self, names: Collection[str]) -> BoolArray:
        found = np.zeros(self.cluster.machines.rows, dtype=np.bool_)
        found[[self._before.row(name) for name in names]] = True
        return found

    def _flow(self, waits: IntArray, running: IntArray, price: FloatArray) -> tuple[IntArray, IntArray]:
        """How many tasks of each class come to each group, in the optimal flow; group of each machine."""
        prices = (np.zeros(len(running)), np.full(len(running), np.inf), price)
        quotas, group_of = solve_full_network(
            self.cluster, self._solver, running, waits, prices, self._now_s, self.settings.due_age_s, "a network"
        )
        return quotas.enter, group_of

    def _entries(self, steps: Steps, running: IntArray, price: FloatArray, tasks: IntArray) -> list[Entry]:
        """Whose the steps are."""
        leaving: dict[int, list[Leaving]] = {}
        found = []
        for who, plan in rows_of(steps.who, steps.plan):
            if who < 0:
                found.append(Entry(self._name(int(tasks[-1 - who])), tuple(leaving.pop(plan, ()))))
                continue
            row = int(running[who])
            machine = self._before.machines.name(int(self.cluster.tasks.machine[row]))
            leaving.setdefault(plan, []).append(
                Leaving(self._name(row), self._priority(row), machine, float(price[who]))
            )
        return found

    def _carry_out(self, steps: Steps, count: int, running: IntArray, tasks: IntArray) -> None:
        """Book the first of those that come, with those that go for them."""
        kept = steps.plan < count
        goes, comes = steps.who[kept & (steps.who >= 0)], kept & (steps.who < 0)
        gone, come, at = running[goes], tasks[-1 - steps.who[comes]], steps.target[comes]
        self._victims += [row for row in gone.tolist() if self._name(row) not in self.placed]
        self.cluster.unbind(gone)
        self.cluster.bind(come, at, self.cluster.predicted_end(come, at, self._now_s))


def named_reservations(cluster: ClusterRows, reservations: Sequence[MachineReservation]) -> tuple[Reservation, ...]:
    """Reservations by names."""
    of = [cluster.classes[c].width_milli for c in cluster.tasks.task_class[[r.task for r in reservations]].tolist()]
    return tuple(
        Reservation(cluster.tasks.name(r.task), r.machine_name, width, r.start_s)
        for r, width in zip(reservations, of, strict=True)
    )
