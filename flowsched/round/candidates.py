"""The machines that a round of a large cluster looks at.

To forecast every class on every machine takes longer than a round may where there are thousands. Each kind of task draws
machines, which are ranked by a price that needs no forecast: processor sharing between the arriving task and what is left
of those that run, with the pressure that they put on each other. The cheapest of them are its *candidates*, which are
priced exactly; a round knows the machines that are a candidate for any of its tasks.

What is drawn follows from the names of machines, the kind of task and the number of the round: the same snapshot draws the
same, and the next round draws anew.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterator, Sequence
from typing import NamedTuple
from zlib import crc32

import numpy as np

from flowsched.cluster.compaction import Candidates, View, compact, kind_of
from flowsched.cluster.domain_counts import DomainCounts
from flowsched.cluster.settings import Settings
from flowsched.cluster.snapshot import MILLI, Snapshot, Task
from flowsched.pricing.flow_prices import price_settings_of
from flowsched.pricing.goals import REFERENCE_RUN_S
from flowsched.pricing.sharing_kernel import (
    ARRIVAL_NUMBERS,
    ArrivingKinds,
    RankedMachines,
    SharedMachines,
    sharing_prices,
)
from flowsched.relations.relation import MACHINE
from flowsched.round.candidate_kernel import cheapest_first, lowest, mixed
from flowsched.round.cluster_arrays import ClusterArrays
from flowsched.round.makespan import more_expected
from flowsched.round.ties import in_steps, packs
from flowsched.support.arrays import BoolArray, FloatArray, IntArray
from flowsched_models.runtime import HostFactory

DRAWN = 1000
"""Machines that are ranked for a kind of task that start it now, and as many that may later."""
_MOST_RIVALS = 2
"""More candidates than this times the setting are not looked at because other kinds may take some."""
_TOGETHER = 64
"""Kinds that are priced together: enough that what runs is seldom read from memory again, and their prices take little."""
MANY_MACHINES = 128
"""A round looks at all machines of a cluster that has no more."""


def look(snapshot: Snapshot, hosts: HostFactory, settings: Settings) -> View:
    """The view of a snapshot: of all its machines, or of the candidates of its tasks where there are many."""
    most = settings.candidates
    longest_first = settings.objective == "makespan" and not more_expected(snapshot)
    if most <= 0 or len(snapshot.machines) <= MANY_MACHINES or not snapshot.pending:
        return compact(snapshot, hosts, None, longest_first)
    return compact(snapshot, hosts, draw(snapshot, hosts, settings), longest_first)


def draw(snapshot: Snapshot, hosts: HostFactory, settings: Settings) -> Candidates:
    """The candidates of all tasks that wait, however many machines there are."""
    return _Draw(ClusterArrays(snapshot, hosts, settings), settings).candidates()


class _Drawn(NamedTuple):
    """The machines that are ranked for a kind of task."""

    task: Task
    """Any of the kind."""
    seed: int
    parts: Sequence[IntArray]
    """Machines with room now, then those with room later; each ascending."""
    rows: IntArray
    """All of them."""
    wanted: int
    """Candidates,"""
    alike: int
    """and how many more than one of them may cost the same."""


class _Draw:
    """Draws and ranks machines for every kind of task that waits."""

    def __init__(self, cluster: ClusterArrays, settings: Settings) -> None:
        self.cluster = cluster
        self.settings = settings
        self.snapshot = cluster.snapshot
        self.domain_counts = DomainCounts.of(cluster.snapshot) if cluster.snapshot.relations else None
        self._alone: dict[tuple[int, float], tuple[FloatArray, FloatArray]] = {}
        """By profile and the share of its work that is done: see :meth:`ProfileArrays.alone`."""
        self._known_places: dict[Hashable, tuple[BoolArray, BoolArray, tuple[IntArray, IntArray]]] = {}
        self._told: dict[Hashable, list[int]] = {}
        self._rank: IntArray = np.empty_like(cluster.hash)
        self._room = np.stack([cluster.free.milli / MILLI, cluster.free.memory_mib, cluster.batch_cores], axis=1)
        """[machines, 3] as :func:`sharing_prices` takes it."""

    def candidates(self) -> Candidates:
        """The candidates of every kind of task, and the machines that are planned for it; reserved ones are in all."""
        snapshot, cluster = self.snapshot, self.cluster
        number = cluster.number
        reserved = [row for r in snapshot.reservations if (row := number.get(r.machine)) is not None]
        planned = {p.task: row for p in snapshot.plan if (row := number.get(p.machine)) is not None}
        kinds: dict[Hashable, list[Task]] = {}
        for task in sorted(snapshot.pending, key=lambda t: (t.content, t.arrival)):
            kinds.setdefault(kind_of(task), []).append(task)
        by_kind: dict[Hashable, IntArray] = {}
        every = [*kinds.items()]
        for begin in range(0, len(every), _TOGETHER):
            some = every[begin : begin + _TOGETHER]
            drawn = [self._draw_for(kind, tasks) for kind, tasks in some]
            for (kind, tasks), each, prices in zip(some, drawn, self._prices(drawn), strict=True):
                own = [planned[t.name] for t in tasks if t.name in planned]
                by_kind[kind] = np.array([*self._best_of(each, *prices), *own, *reserved], np.int64)
        free = int(np.maximum(cluster.free.milli, 0)[cluster.batch_cores > 0.0].sum())
        return Candidates(
            cluster.machines, number, by_kind, int(cluster.batch_cores.sum()), cluster.work_s, cluster.completes, free
        )

    def _draw_for(self, kind: Hashable, tasks: Sequence[Task]) -> _Drawn:
        cluster, settings = self.cluster, self.settings
        task = tasks[0]
        others = len(self.snapshot.pending) - len(tasks)
        # Other kinds may want the same machines: as many as have drawn them, up to where one is as good as the next.
        drawn_by_others = int(others * min(1.0, DRAWN / len(cluster.names)))
        alike = len(tasks) + min(drawn_by_others, _MOST_RIVALS * settings.candidates)
        wanted = settings.candidates + alike
        seed = crc32(repr((self.snapshot.round, kind)).encode())
        rank, drawn = self._ranks(seed), max(DRAWN, 2 * wanted)
        parts = [self._drawn(task, some, rank, drawn) for some in self._places(task)[2]]
        return _Drawn(task, seed, parts, np.concatenate(parts), wanted, alike)

    def _best_of(self, drawn: _Drawn, price: FloatArray, price_now: FloatArray) -> list[int]:
        """The candidates of a kind, of the machines that were drawn for it; ``price`` and ``price_now`` [drawn]."""
        cluster, settings, task, rows = self.cluster, self.settings, drawn.task, drawn.rows
        wanted, alike, rank = drawn.wanted, drawn.alike, self._ranks(drawn.seed)
        open_, now, to_rank = self._places(task)
        found = self._best(task, rows, price, rank, wanted, alike)
        # Shares of CPU and memory say nothing of devices: a machine without free ones has a price as well.
        startable = np.isfinite(price_now) & now[rows]
        if startable.any():
            found += self._best(task, rows[startable], price_now[startable], rank, wanted, alike)
        if settings.preemption != "none":
            found += self._with_victims(task, open_, rank, wanted)
        if settings.drain and self.snapshot.age_s(task) > self._overdue_age_s(task):
            found += self._emptiest(np.flatnonzero(open_ & cluster.bare.fits(task, cluster.asked(task))), wanted)
        return found + self._told_of(task, open_, np.concatenate(to_rank))

    def _ranks(self, seed: int) -> IntArray:
        """[machines] what a draw goes by, the lowest first; void once it is asked for again."""
        with np.errstate(over="ignore"):  # they wrap, of which only Python tells
            mixed(self.cluster.hash, seed, self._rank)
        return self._rank

    def _places(self, task: Task) -> tuple[BoolArray, BoolArray, tuple[IntArray, IntArray]]:
        """[machines] where a task may run, and where it has room now; rows of the latter, and of those with room later."""
        key = _asks(task)
        found = self._known_places.get(key)
        if found is None:
            cluster, open_ = self.cluster, self._open(task)
            asked = cluster.asked(task)
            fits = open_ & cluster.lasting.fits(task, asked)
            now = fits & cluster.free.fits(task, asked) & cluster.has_devices(task)
            found = self._known_places[key] = open_, now, (np.flatnonzero(now), np.flatnonzero(fits & ~now))
        return found

    def _overdue_age_s(self, task: Task) -> float:
        """After how long a task is overdue; with a group that may be later, and then there are machines too many."""
        if task.endless or task.min_utility is not None:
            return self.settings.overdue_age_s(None)
        best_s = self.cluster.best_alone_s(task) * task.scale
        return self.settings.overdue_age_s(best_s)

    def _drawn(self, task: Task, every: IntArray, rank: IntArray, most: int) -> IntArray:
        """Machines to rank: some that the draw chooses, and as many whose GPUs lose least, where there are GPUs."""
        rows = _first(every, rank, most)
        if len(rows) == most and self.cluster.has_gpus:
            cheapest = every[np.argsort(self.cluster.gpu_costs(task, every), kind="stable")[: most // 2]]
            rows = np.unique(np.concatenate([rows[: most - len(cheapest)], cheapest]))
        return rows

    def _open(self, task: Task) -> BoolArray:
        """[machines] where a task may run at all."""
        open_ = (self.cluster.batch_cores > 0.0) & self.cluster.suits(task)
        if task.machines is not None:
            listed = np.zeros(len(open_), np.bool_)
            number = self.cluster.number
            listed[[i for name in task.machines if (i := number.get(name)) is not None]] = True
            open_ &= listed
        return open_

    def _best(
        self, task: Task, rows: IntArray, price: FloatArray, rank: IntArray, wanted: int, alike: int
    ) -> list[int]:
        """The cheapest of some machines; of those that cost the same no more than there may be tasks for them.

        The price does not know what services keep of their p95 goals. So where services run on the cheapest ones, there
        are as many without any, and some that the draw alone chooses: over the rounds every machine is one of them.
        """
        cluster = self.cluster
        price = in_steps(price)
        if self.domain_counts is not None and self.domain_counts.concerns(task):
            ranked = self._ranked(task, rows, price, rank, len(rows), len(rows))
            return self._related(task, ranked, wanted, self.domain_counts)
        first = self._ranked(task, rows, price, rank, wanted, alike)
        if not cluster.serves[first].any():
            return list(first.tolist())
        ranked = self._ranked(task, rows, price, rank, len(rows), alike)
        found = self._welcoming(task, ranked, wanted)
        if cluster.serves[found].any():
            found += ranked[~cluster.serves[ranked]][:wanted].tolist()
            found += self._welcoming(task, rows[np.argsort(rank[rows], kind="stable")], self.settings.candidates)
        return found

    def _ranked(self, task: Task, rows: IntArray, price: FloatArray, rank: IntArray, most: int, alike: int) -> IntArray:
        """The first ``most`` of some machines in order of price; of equal ones those that the order of ties has first."""
        free, found = self.cluster.free, np.empty(min(most, len(rows)), np.int64)
        sign = 1 if packs(self.settings, task) else -1
        return found[: cheapest_first(price, free.milli, free.memory_mib, rank, rows, sign, alike, found)]

    def _welcoming(self, task: Task, rows: IntArray, wanted: int) -> list[int]:
        """The first of some machines, without those whose services' goals the task would break alone."""
        found: list[int] = []
        for first in range(0, len(rows), wanted):
            some = rows[first : first + wanted]
            found += some[self.cluster.welcome(task, some)].tolist()
            if len(found) >= wanted:
                break
        return found[:wanted]

    def _related(self, task: Task, ranked: IntArray, wanted: int, domain_counts: DomainCounts) -> list[int]:
        """Of machines in order of price those that relations leave open and as many that they close, as these may open
        while the round goes on; each from all domains in turn, since one domain may not take all tasks.
        """
        named = {*task.holds, *task.joins}
        relations = [r for r in self.snapshot.relations if r.name in named and r.key != MACHINE]
        turns: Counter[tuple[object, ...]] = Counter()
        kept: tuple[list[tuple[int, int, int]], list[tuple[int, int, int]]] = [], []
        for place, i in enumerate(ranked[self.cluster.welcome(task, ranked)].tolist()):
            name = self.cluster.names[i]
            closed = domain_counts.refusal(task, name) is not None
            domain = (closed, *(domain_counts.domain(r, name) for r in relations))
            kept[closed].append((turns[domain], place, i))
            turns[domain] += 1
        return [i for some in kept for _, _, i in sorted(some)[:wanted]]

    def _with_victims(self, task: Task, open_: BoolArray, rank: IntArray, wanted: int) -> list[int]:
        """Machines where a task has room once lower priorities make way, the lowest ones first."""
        found: list[int] = []
        asked = self.cluster.asked(task)
        for _, room in self.cluster.freed_below(task.priority):
            rows = _first(np.flatnonzero(open_ & room.fits(task, asked)), rank, wanted)
            found += [i for i in rows.tolist() if i not in found]
            if len(found) >= wanted:
                break
        return found

    def _emptiest(self, rows: IntArray, wanted: int) -> list[int]:
        """Those with the most CPU free."""
        order = np.lexsort((rows, -self.cluster.free.milli[rows]))
        found: list[int] = rows[order[:wanted]].tolist()
        return found

    def _told_of(self, task: Task, open_: BoolArray, fits: IntArray) -> list[int]:
        """Machines that reasons name: the emptiest where a task could run, else the largest ones that it may use."""
        key = _asks(task)
        if key not in self._told:
            self._told[key] = self._to_tell(open_, np.sort(fits))
        return self._told[key]

    def _to_tell(self, open_: BoolArray, fits: IntArray) -> list[int]:
        cluster = self.cluster
        if len(fits):
            return [int(fits[cluster.free.milli[fits].argmax()])]
        rows = np.flatnonzero(open_ if open_.any() else np.ones(len(open_), np.bool_))
        amounts = [room for r in (cluster.bare, cluster.lasting) for room in (r.milli, r.memory_mib, *r.units.T)]
        return [int(rows[amount[rows].argmax()]) for amount in amounts]

    def _prices(self, drawn: Sequence[_Drawn]) -> Iterator[tuple[FloatArray, FloatArray]]:
        """Of each kind, [drawn] what one of its tasks would cost on the machines, roughly, and what if it started now."""
        cluster = self.cluster
        most = max(len(each.task.widths_milli) for each in drawn)
        numbers, widths = np.empty((len(drawn), ARRIVAL_NUMBERS)), np.full((len(drawn), most), np.inf)
        alone_s, demand = (np.empty((len(drawn), len(cluster.places))) for _ in range(2))
        for i, each in enumerate(drawn):
            numbers[i] = self._numbers(each.task)
            widths[i, : len(each.task.widths_milli)] = np.array(each.task.widths_milli) / MILLI
            alone_s[i], demand[i] = self._work(each.task)
        parts = [(i, part) for i, each in enumerate(drawn) for part in each.parts]
        rows = np.concatenate([part for _, part in parts])
        first = np.cumsum([0, *(len(part) for _, part in parts)])
        price, price_now = np.empty(len(rows)), np.empty(len(rows))
        sharing_prices(
            SharedMachines(cluster.first, cluster.running, self._room, cluster.shape),
            ArrivingKinds(numbers, alone_s, demand, widths),
            RankedMachines(rows, first, np.array([i for i, _ in parts], np.int64)),
            price_settings_of(self.settings, self.snapshot.start_delay.after_waiting_s),
            price,
            price_now,
        )
        begin = 0
        for each in drawn:
            here = slice(begin, begin + len(each.rows))
            begin = here.stop
            found = np.stack([price[here], price_now[here]])
            if each.task.wishes:
                found += self._unmet(each.task)[each.rows]
            if cluster.has_gpus:
                found += cluster.gpu_costs(each.task, each.rows)
            yield found[0], found[1]

    def _unmet(self, task: Task) -> FloatArray:
        """[machines] what a task's wishes cost there."""
        found = np.zeros(len(self.cluster.names))
        for name, cost in task.wishes:
            if (i := self.cluster.number.get(name)) is not None:
                found[i] = cost
        return found

    def _numbers(self, task: Task) -> list[float]:
        """[ARRIVAL_NUMBERS] of a task."""
        settings, cluster = self.settings, self.cluster
        job, profiles = cluster.jobs[task.profile], cluster.profiles
        best_s = REFERENCE_RUN_S if task.endless else cluster.best_alone_s(task) * task.scale
        goal_s = settings.goal_factor * best_s if task.goal_s is None else task.goal_s
        plain = self.snapshot.waits_plain and self.snapshot.catalogue.jobs[task.profile].is_plain
        exponent = 0.0 if task.endless else settings.length_exponent(plain)
        importance = task.weight * (best_s / REFERENCE_RUN_S) ** exponent
        delay = self.snapshot.start_delay
        delay_s = delay.at_submission_s if self.snapshot.is_new(task) else delay.after_waiting_s
        pressure = profiles.pressure[job], profiles.sensitivity[job]
        return [self.snapshot.age_s(task), goal_s, importance, delay_s, task.memory_mib, *pressure]

    def _work(self, task: Task) -> tuple[FloatArray, FloatArray]:
        """[shapes] seconds that a task takes alone, and the cores that it then keeps busy."""
        cluster, job = self.cluster, self.cluster.jobs[task.profile]
        work = self.snapshot.estimate(task, task.done)
        if (job, work.done) not in self._alone:
            self._alone[job, work.done] = cluster.profiles.alone(job, 1.0 - work.done)
        alone_s, demand = self._alone[job, work.done]
        scale = cluster.factors(task) * (task.scale / self.snapshot.expected_scale(task))
        return alone_s * scale * work.scale, demand


def _asks(task: Task) -> Hashable:
    """What decides where a task has room."""
    return task.machines, task.gpus, task.widths_milli[0], task.memory_mib, task.resources


def _first(rows: IntArray, rank: IntArray, most: int) -> IntArray:
    """Of some rows, ascending, those with the lowest ranks, at most so many; ascending, too, as arrays are read by row."""
    found = np.empty(min(most, len(rows)), np.int64)
    return found[: lowest(rows, rank, most, found)]
