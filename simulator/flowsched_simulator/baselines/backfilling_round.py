"""A round that keeps reservations for tasks that must wait."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from flowsched.cluster.domain_counts import DomainCounts
from flowsched.cluster.snapshot import MILLI, Running, Snapshot, Task
from flowsched.relations.gang_search import MOST_STEPS, GangSearch
from flowsched.support.arrays import FloatArray, IntArray
from flowsched_simulator.baselines.availability import Availability, Ends
from flowsched_simulator.baselines.greedy_round import PickDevices, Round, cores_for
from flowsched_simulator.baselines.room import Room, RoomLayout
from flowsched_simulator.baselines.room_places import RoomPlaces, alike
from flowsched_simulator.baselines.running_shares import RunningShares, Share


class Reservation(NamedTuple):
    """Where and when a task starts that waits; without GPUs."""

    row: int
    need: IntArray
    """[R + D]"""
    start_s: float
    lasting_s: float


_Demand = tuple[Task, IntArray, FloatArray]
"""A task with what it needs [R + D], GPUs apart, and how long on each machine [M]."""


class BackfillingRound(Round):
    """A round that keeps reservations. What will be free is worked out when the first of them is made."""

    def __init__(
        self,
        snapshot: Snapshot,
        *,
        own_cores: bool,
        seed: int = 0,
        layout: RoomLayout | None = None,
        held: RunningShares | None = None,
    ) -> None:
        """Nothing is reserved yet. ``held``: the shares of an earlier round."""
        super().__init__(snapshot, own_cores=own_cores, seed=seed, layout=layout)
        self._resources, self._devices = self.layout.resources, self.layout.most_devices
        self._units = 3 + len(self._resources) + self._devices
        self.held = RunningShares() if held is None else held
        """What runs has."""
        self.changes = self.held.catch_up(snapshot, self.layout, self.share, self._units)
        """What came and went there since the round before; None where that cannot be told."""
        self._availability: Availability | None = None
        self._late: tuple[Task, int] | None = None
        """A task with its width whose reservation is made when something depends on it."""
        self.begun: dict[str, Share] = {}
        """By task, what the round gave it."""
        self.reserved: dict[str, Reservation] = {}
        """Of single tasks without GPUs."""
        self._promises: dict[str, str] = {}
        """When and where reservations begin, in words, by task."""
        self._forever = False
        """Whether a task without an end has a reservation."""
        self.reservations = 0
        """Reservations so far; that of a task group is one."""

    def candidates(self, task: Task, width_milli: int) -> Sequence[Room]:
        """Machines where the task fits now and would, by the estimates, delay no reservation."""
        found = super().candidates(task, width_milli)
        if not found or (known := self._known()) is None:
            return found
        need, lasting_s = self._need(task, width_milli), self._lasting_s(task, width_milli)
        rows = [self.layout.row(room.name) for room in found]
        others = np.ones(len(self.rooms), dtype=np.bool_)
        others[rows] = False
        lasting_s[others] = np.nan
        now = known.fits(self.snapshot.now_s, need, lasting_s, task.gpus)
        return [r for row, r in zip(rows, found, strict=True) if now[row]]

    def place(self, task: Task, width_milli: int, room: Room, pick: PickDevices | None = None) -> None:
        """Give the task its share of the machine until its estimated end."""
        row, lasting_s = self.layout.row(room.name), self._delay_s(task) + self.told_s(task, width_milli, room)
        known, now_s = self._known(), self.snapshot.now_s
        if known is not None and task.gpus is not None:
            chosen = known.arrange(row, task.gpus, now_s, lasting_s, room.devices)
            if chosen is not None:
                pick = lambda room, task: chosen  # noqa: E731, ARG005
        super().place(task, width_milli, room, pick)
        need = self._need(task, width_milli, self._placements[-1].devices)
        self.begun[task.name] = Share(row, need, now_s, lasting_s)
        if known is not None:
            known.take(row, need, now_s, lasting_s)

    def take_back(self) -> None:
        """Undo the last placement of the attempt."""
        task, placement = self._tasks[self._placements[-1].task], self._placements[-1]
        row = self.layout.row(placement.machine)
        super().take_back()
        del self.begun[task.name]
        if self._availability is not None:
            width = placement.width_milli
            lasting_s = self._delay_s(task) + self.told_s(task, width, self.rooms[row])
            self._availability.take(row, -self._need(task, width, placement.devices), self.snapshot.now_s, lasting_s)

    def reserve_late(self, task: Task, width_milli: int) -> bool:
        """Promise a task the same as :meth:`reserve` does, once something depends on where and when. False where that is not
        to be: the promise is to be told, or perhaps it cannot be made.

        Where all that runs ends, each machine that could ever take the task does at last.
        """
        if self.explains or self._availability is not None or self._late is not None or task.gpus is not None:
            return False
        endless = self.held.endless or any(np.isinf(share.lasting_s) for share in self.begun.values())
        if endless or self.domain_counts.concerns(task):
            return False
        self._late = task, width_milli
        self.reservations += 1
        return True

    def _known(self) -> Availability | None:
        """What will be free beside all reservations; None where there are none."""
        if self._late is not None:
            (task, width_milli), self._late = self._late, None
            self.reservations -= 1
            self.reserve((task,), (width_milli,), 1)
        return self._availability

    def reserve(self, tasks: Sequence[Task], widths: Sequence[int], needed: int) -> None:
        """Promise tasks the earliest time at which ``needed`` of them fit together, each the machine that ends it first.

        Relations count what runs now, since until when is unknown, and the tasks themselves: a task that only what runs
        keeps waiting through a relation has no reservation.
        """
        if self._known() is None:
            self._availability = Availability(self.snapshot.now_s, self._free(), self._ends(), self._devices)
        assert self._availability is not None
        is_gang = len(tasks) > 1
        demands = [
            (task, self._need(task, width), self._open_s(task, width, is_gang))
            for task, width in zip(tasks, widths, strict=True)
        ]
        if not is_gang and tasks[0].gpus is None:
            # Nothing to be searched for: the first start that its machines have.
            ((task, need, lasting_s),) = demands
            if (found := self._availability.first(need, lasting_s)) is not None:
                start_s, row = found
                reservation = self.reserved[task.name] = Reservation(row, need, start_s, float(lasting_s[row]))
                self._availability.take(*reservation)
                self._promise([(task, row)], start_s)
            return
        trial, steps = self._availability.copy(), MOST_STEPS
        if is_gang and not self._forever:
            # What does not fit together when all has ended never does.
            if not GangSearch(_Later(self, trial, demands, float(trial.times[-1])), needed).fit():
                return
            trial = self._availability.copy()
        for start_s, here in self._starts(demands, needed):
            later = _Later(self, trial, here, start_s)
            search = GangSearch(later, needed, steps)
            if search.fit():
                self._availability = trial
                self._promise(later.placed, start_s)
                return
            steps -= search.steps

    def _promise(self, places: Sequence[tuple[Task, int]], start_s: float) -> None:
        self.reservations += 1
        self._forever |= any(task.endless for task, _ in places)
        for task, row in places:
            self._promises[task.name] = f"reserved on {self.rooms[row].name} at {start_s:.1f} s"

    def resume(self, earlier: BackfillingRound, due: Iterable[str]) -> bool:
        """Have the reservations of an earlier round, which that one can no longer use. False where there are none, or where
        what is free now is not what was expected. ``due``: the tasks whose time has come.
        """
        known = earlier._availability
        if known is None:
            return False
        known.advance(self.snapshot.now_s)
        expected = known.free[0, :, : self._units].copy()
        for row, need, _, _ in (earlier.reserved[name] for name in due):
            expected[row] += need
        if (expected != self._free()).any():
            return False
        self._availability, self.reserved, self.reservations = known, earlier.reserved, earlier.reservations
        self._forever = earlier._forever
        return True

    def release(self, name: str) -> None:
        """Give a reservation back, if a task has one."""
        if (reservation := self.reserved.pop(name, None)) is not None:
            assert self._availability is not None
            self._availability.take(*reservation._replace(need=-reservation.need))

    def most_s(self, task: Task, width_milli: int) -> float:
        """How long a task could run at most, on any machine, if it started now and delayed no reservation."""
        return np.inf if (known := self._known()) is None else known.most_s(self._need(task, width_milli))

    def shortage(self, task: Task, width_milli: int) -> str:
        """Say why the task does not start now."""
        could = super().candidates(task, width_milli)
        if could:
            promised = ", ".join(f"{name} ({words})" for name, words in list(self._promises.items())[:1])
            where = "machine" if len(could) == 1 else "machines"
            return f"would fit on {len(could)} {where} now, and delay a reservation there: first of all {promised}"
        return super().shortage(task, width_milli)

    def postpone(self, task: Task, reason: str) -> None:
        """Let the task wait; where it has a reservation, the reason says which."""
        promise = self._promises.get(task.name)
        super().postpone(task, f"{reason}; {promise}" if promise else reason)

    def _starts(self, demands: Sequence[_Demand], needed: int) -> Iterator[tuple[float, Sequence[_Demand]]]:
        """Times, ascending, at which enough of these tasks could start if each had all that is free to itself.

        With the demands there: a single task looks only at machines that have more free than before.
        """
        known = self._availability
        assert known is not None
        if len(demands) == 1:
            ((task, need, lasting_s),) = demands
            could = known.feasible(need, lasting_s, task.gpus) & known.gains()
            for start_s in np.unique(known.began[could]).tolist():
                there = (could & (known.began == start_s)).any(axis=0)
                yield start_s, [(task, need, np.where(there, lasting_s, np.nan))]
            return
        able = np.zeros(len(known.times), dtype=np.int64)
        for task, need, lasting_s in demands:
            able += known.feasible(need, lasting_s, task.gpus, known.times).any(axis=1)
        for start_s in known.times[able >= needed].tolist():
            yield start_s, demands

    def _open_s(self, task: Task, width_milli: int, beside_others: bool) -> FloatArray:
        """[M] the same as ``_lasting_s``; of a task alone, only where no relation closes a machine to it now."""
        lasting = self._lasting_s(task, width_milli)
        if not beside_others and self.domain_counts.concerns(task):
            for row in np.flatnonzero(~np.isnan(lasting)).tolist():
                if self.domain_counts.refusal(task, self.rooms[row].name) is not None:
                    lasting[row] = np.nan
        return lasting

    def _need(self, task: Task, width_milli: int, devices: Sequence[int] = ()) -> IntArray:
        """[R + D] millicores, memory, millicores on cores not owned by others, further resources, GPUs."""
        given = self.has_given_run_time(task)
        cores = (width_milli if given else cores_for(width_milli) * MILLI) if self.own_cores else 0
        units = dict(task.resources)
        others = [units.get(name, 0) for name in self._resources]
        need = np.array([width_milli, task.memory_mib, cores, *others, *(0,) * self._devices], dtype=np.int64)
        if task.gpus is not None:
            need[[3 + len(others) + device for device in devices]] = task.gpus.share_milli
        return need

    def _lasting_s(self, task: Task, width_milli: int) -> FloatArray:
        """[M] how long a task would hold its share of each machine; NaN where it would not fit if no other were there."""
        kinds = self.kinds(task, width_milli)
        lasting, delay_s = np.full(len(self.rooms), np.nan), self._delay_s(task)
        told = np.array(
            [delay_s + self.told_s(task, width_milli, self.rooms[row]) for row in kinds.firsts], dtype=np.float64
        )
        lasting[kinds.rows] = told[kinds.kind]
        return lasting

    def _delay_s(self, task: Task) -> float:
        delay = self.snapshot.start_delay
        return delay.at_submission_s if self.snapshot.is_new(task) else delay.after_waiting_s

    def _free(self) -> IntArray:
        """[M, R + D] what is free now."""
        free = np.zeros((len(self.rooms), self._units), dtype=np.int64)
        free[:, :2] = self.layout.free[:, :2]
        if self.own_cores:
            free[:, 2] = self.layout.free[:, 3]
        for column, name in enumerate(self._resources, 3):
            free[:, column] = [room.free_resources.get(name, 0) for room in self.rooms]
        free[:, self._units - self._devices :] = self.layout.devices
        return free

    def _ends(self) -> Ends:
        """When what runs, and what the round has started, gives its share back."""
        begun = [(share.row, share.amounts, share.end_s) for share in self.begun.values()]
        return self.held.ends(self.snapshot.now_s).and_(Ends.of(begun, self._units))

    def share(self, running: Running) -> Share:
        """What a running task has."""
        need = self._need(running.task, running.width_milli, running.devices)
        if self.own_cores and not self.has_given_run_time(running.task):
            need[2] = len(running.cores) * MILLI
        return Share(self.layout.row(running.machine), need, running.start_s, self.started_s(running))


class _Later(RoomPlaces):
    """Where tasks may start together at a time to come."""

    def __init__(self, this: Round, trial: Availability, demands: Sequence[_Demand], start_s: float) -> None:
        tasks = [task for task, _, _ in demands]
        super().__init__(tasks, [need for _, need, _ in demands], [alike(t, this.snapshot.now_s) for t in tasks])
        self.trial, self.placed = trial, list[tuple[Task, int]]()
        self._this, self._demands, self._start_s = this, demands, start_s
        self._counts = this.domain_counts.copy()

    @property
    def domain_counts(self) -> DomainCounts:
        return self._counts

    @property
    def places(self) -> Sequence[Room]:
        return self._this.rooms

    @property
    def free(self) -> IntArray:
        return self.trial.free_at(self._start_s)

    def options(self, member: int) -> list[Room]:
        task, need, lasting_s = self._demands[member]
        rows = np.flatnonzero(self.trial.fits(self._start_s, need, lasting_s, task.gpus)).tolist()
        found = [self._this.rooms[row] for row in rows]
        if not self._counts.concerns(task):
            return found
        return [room for room in found if self._counts.refusal(task, room.name) is None]

    def put(self, member: int, options: Sequence[Room]) -> Room:
        task, need, lasting_s = self._demands[member]
        row, room = min(
            ((self._this.layout.row(room.name), room) for room in options),
            key=lambda pair: (lasting_s[pair[0]], pair[0]),
        )
        if task.gpus is not None:
            self.trial.reserve_gpus(row, task.gpus, self._start_s, float(lasting_s[row]))
        self.trial.take(row, need, self._start_s, float(lasting_s[row]))
        self._counts.add(task, room.name)
        self.placed.append((task, row))
        return room

    def take_back(self) -> None:
        task, row = self.placed.pop()
        _, need, lasting_s = next(demand for demand in self._demands if demand[0] is task)
        if task.gpus is not None:
            self.trial.give_back_gpus(row)
        self.trial.take(row, -need, self._start_s, float(lasting_s[row]))
        self._counts.remove(task, self._this.rooms[row].name)
