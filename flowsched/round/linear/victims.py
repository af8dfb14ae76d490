"""Preemption: running tasks of lower priority wait again, so that a task of higher priority gets in.

Asked after a round, for tasks that found no room. Higher priorities are served first. A network says how many tasks of
each class get in at the machines of each group: those who run there stay for nothing or leave at a price, those who come pay
what they cost there, capacities count the room with all possible victims gone. Who goes is then found exactly, machine by
machine: the cheapest tasks whose going lets the newcomer in, in every resource and below every limit, and none that could
stay.

A victim costs

    VICTIM_PRICE * 2^(times it was preempted) + LOST_RUN_PRICE * (part of its run that is over) + waiting at its age

where nothing is lost for a task that goes on where it stopped. A task that has waited long is spared for one that has not,
as costs grow up to the due age. One that was preempted ``preemption_limit`` times runs to its end and is no victim any
more; tasks without an end only become dearer, since nothing would ever take their room from them. Priorities are strict:
the price says who goes, not whether. Tasks of the lowest priorities go first, so that none that goes drives out another. So
a task goes for a higher priority only, and only if the newcomer's place costs it no more than waiting would. Victims wait as
old as they were.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from flowsched.cluster.settings import Settings
from flowsched.cluster.task_rows import RUNNING
from flowsched.round.linear.cluster_rows import ClusterRows
from flowsched.round.linear.full_network import solve_full_network
from flowsched.round.linear.moves import LOST_RUN_PRICE, elapsed, open_machines, waiting_cost
from flowsched.round.linear.room_search import Quota, RoomSearch, Steps, alone, in_turn
from flowsched.solvers import Solver
from flowsched.support.arrays import BoolArray, FloatArray, IntArray

VICTIM_PRICE = 1.0
"""Price of a victim, so that few go, in the unit of the cost model's costs."""
MOST_VICTIMS = 1000


@dataclass(frozen=True, eq=False)
class Preemptions:
    """Who goes and who comes; nothing is done yet."""

    victims: IntArray
    """Task rows that wait again."""
    price: FloatArray
    """What the going of each costs."""
    room_for: IntArray
    """Position in ``tasks`` of the one that each goes for."""
    tasks: IntArray
    """Task rows that start once their victims are gone; some need none, in what others leave over."""
    machines: IntArray
    """Where."""

    def __len__(self) -> int:
        """Number of victims."""
        return len(self.victims)


@dataclass(eq=False)
class PreemptionPlanner:
    """Plans preemptions on one cluster."""

    cluster: ClusterRows
    solver: Solver
    settings: Settings
    times: IntArray
    """By task row, how often each was preempted so far."""
    most_victims: int = MOST_VICTIMS
    """Of one plan."""

    def plan(self, waits: IntArray, now_s: float, barred: BoolArray | None = None) -> Preemptions:
        """Victims for tasks that found no room in a round whose placements the cluster knows already.

        ``barred``: machine rows that take no task, such as those reserved for others. Raises ``RuntimeError`` if the solver
        refuses a network.
        """
        found: list[Preemptions] = []
        if len(waits):
            work: ClusterRows | None = None
            waits = alone(self.cluster, waits)
            priority = self.cluster.classes.table().priority
            running = np.flatnonzero(self.cluster.tasks.state == RUNNING)
            lowest = int(priority[self.cluster.tasks.task_class[running]].min(initial=1 << 62))
            left = self.most_victims
            for level in sorted(set(priority[self.cluster.tasks.task_class[waits]].tolist()), reverse=True):
                if level <= lowest or left <= 0:
                    break
                work = work or self.cluster.copy()
                mine = waits[priority[work.tasks.task_class[waits]] == level]
                lower = np.unique(priority[self.cluster.tasks.task_class[running]])
                for highest in lower[lower < level].tolist():
                    if not len(mine) or left <= 0:
                        break
                    one = self._level(work, mine, highest, now_s, open_machines(work, barred), left)
                    work.unbind(one.victims)
                    work.bind(one.tasks, one.machines)
                    mine = mine[~np.isin(mine, one.tasks)]
                    left -= len(one)
                    found.append(one)
        return together(found)

    def prices(self, tasks: IntArray, cluster: ClusterRows, now_s: float) -> FloatArray:
        """What the going of each running task costs; infinite for those that are no victims."""
        settings = self.settings
        times = self.times[tasks]
        done, _ = elapsed(cluster, tasks, now_s)
        again = waiting_cost(cluster, tasks, now_s, settings.due_age_s)
        again = np.where(
            np.isfinite(again), again, 0.0
        )  # it says that any place is better than none, not who waits best
        lost = 0.0 if settings.keeps_work else LOST_RUN_PRICE
        price = VICTIM_PRICE * 2.0 ** np.minimum(times, 60) + lost * done + again
        classes = cluster.tasks.task_class[tasks]
        stays = np.array([not c.movable or c.bound for c in cluster.classes], dtype=np.bool_)
        ends = np.isfinite(cluster.classes.table().run_s)
        spared = stays[classes] | (ends[classes] & (times >= settings.preemption_limit))
        prices: FloatArray = np.where(spared, np.inf, price)
        return prices

    def _level(
        self, cluster: ClusterRows, waits: IntArray, highest: int, now_s: float, open_: BoolArray, most: int
    ) -> Preemptions:
        """Victims of priority ``highest`` or lower for tasks of one higher priority."""
        running = np.flatnonzero(cluster.tasks.state == RUNNING)
        running = running[cluster.classes.table().priority[cluster.tasks.task_class[running]] <= highest]
        running = cluster.tasks.in_order(running)
        price = self.prices(running, cluster, now_s)
        running, price = running[np.isfinite(price)], price[np.isfinite(price)]
        if not len(running):
            return together([])
        order = np.lexsort(
            (cluster.tasks.sequence[waits], -waiting_cost(cluster, waits, now_s, self.settings.due_age_s))
        )
        waits = waits[order]
        enter, group_of = self._flow(cluster, waits, running, price, now_s)
        model = cluster.model()
        machine, gone = cluster.tasks.machine[running], np.zeros(len(running), dtype=np.bool_)
        room = RoomSearch(
            model, cluster.free.copy(), cluster.readings.copy(), open_, cluster.tasks.task_class[running], machine, gone
        )
        found: list[Preemptions] = []
        queue = {
            c: waits[cluster.tasks.task_class[waits] == c]
            for c in in_turn(cluster, np.unique(cluster.tasks.task_class[waits]))
        }
        for follow in (True, False):
            for c, tasks in queue.items():
                if not len(tasks) or most <= 0:
                    continue
                worth = waiting_cost(cluster, tasks, now_s, self.settings.due_age_s)
                quota = Quota(enter[c].copy(), group_of) if follow else None
                steps = room.let_in(c, worth, price, None, most + len(tasks), quota)
                one = _named(steps, running, price, tasks)
                if len(one) > most:
                    found.append(_first_of(one, most))
                    return together(found)  # the room counts those that were cut off as gone
                most -= len(one)
                found.append(one)
                queue[c] = tasks[~np.isin(tasks, one.tasks)]
        return together(found)

    def _flow(
        self, cluster: ClusterRows, waits: IntArray, running: IntArray, price: FloatArray, now_s: float
    ) -> tuple[IntArray, IntArray]:
        """How many tasks of each class come to each group, in the optimal flow; group of each machine."""
        prices = (np.zeros(len(running)), np.full(len(running), np.inf), price)
        quotas, group_of = solve_full_network(
            cluster, self.solver, running, waits, prices, now_s, self.settings.due_age_s, "a network"
        )
        return quotas.enter, group_of


def carry_out(preemptions: Preemptions, cluster: ClusterRows, end_s: FloatArray | None = None) -> None:
    """Book it: victims wait again, as old as they were, and the others start. ``end_s``: when these are predicted to end."""
    cluster.unbind(preemptions.victims)
    cluster.bind(preemptions.tasks, preemptions.machines, end_s)


def _named(steps: Steps, running: IntArray, price: FloatArray, tasks: IntArray) -> Preemptions:
    """Whose the steps are."""
    goes, comes = steps.who >= 0, steps.who < 0
    return Preemptions(
        running[steps.who[goes]],
        price[steps.who[goes]],
        steps.plan[goes],
        tasks[-1 - steps.who[comes]],
        steps.target[comes],
    )


def _first_of(one: Preemptions, most: int) -> Preemptions:
    """As many of the first tasks as need at most so many victims together."""
    count = int(one.room_for[most])
    kept = one.room_for < count
    return Preemptions(one.victims[kept], one.price[kept], one.room_for[kept], one.tasks[:count], one.machines[:count])


def together(parts: list[Preemptions]) -> Preemptions:
    """One after the other."""
    none: IntArray = np.zeros(0, dtype=np.int64)
    before = np.cumsum([0, *(len(p.tasks) for p in parts)])
    return Preemptions(
        np.concatenate([none, *(p.victims for p in parts)]),
        np.concatenate([np.zeros(0), *(p.price for p in parts)]),
        np.concatenate([none, *(p.room_for + b for p, b in zip(parts, before, strict=False))]),
        np.concatenate([none, *(p.tasks for p in parts)]),
        np.concatenate([none, *(p.machines for p in parts)]),
    )
