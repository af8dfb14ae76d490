"""Many machines in motion that are looked at together, as a scheduler's estimate of a cluster is in every round.

What each does is what its own :class:`Execution` would do, bit by bit. But they are arrays, and what happens on them is
noted until it matters how far jobs are: compiled code works it out then, for the machines on which something happened.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from flowsched_models.cell import Floats
from flowsched_models.execution import stages_of
from flowsched_models.execution_kernel import (
    ADD,
    ALL,
    COUNT,
    DONE,
    HOST,
    KIND,
    MARK,
    NO_JOB,
    NONE,
    READY,
    REMOVE,
    SINCE,
    START,
    STOP,
    TICKS_PER_S,
    MovingMachines,
    look,
    progress,
)
from flowsched_models.ordered_pace_table import OrderedPaceTable
from flowsched_models.runtime import Host, Resident

_COURSE = MARK + 1
"""Columns of jobs that tell how far they are; the first ones."""
_NO_JOB_CHANGES = (0.0,) * (3 + len(NO_JOB))
"""What a change has of a job where none starts."""
_NO_CHANGES = np.empty((0, 4 + len(_NO_JOB_CHANGES)))


class Progress:
    """How far all jobs are at one moment, worked out when it is first asked for."""

    def __init__(self, courses: Floats, now_s: float) -> None:
        """``courses`` [rows, 4]: a job has a progress at a time; from then on it has a pace, up to a mark."""
        self._courses, self._now_s = courses, now_s

    @classmethod
    def given(cls, progress: Mapping[int, float]) -> Progress:
        """What is given by row."""
        jobs = _room(max(progress, default=-1) + 1, 0, 0).jobs
        jobs[[*progress], DONE] = [*progress.values()]
        return cls(jobs[:, :_COURSE], 0.0)

    @cached_property
    def by_row(self) -> Floats:
        """[rows] share of each job's work that is done; a row without a job has none."""
        done, since_s, pace, mark = self._courses.T
        step_s = np.rint(np.maximum(0.0, self._now_s - since_s) * TICKS_PER_S) / TICKS_PER_S
        found: Floats = np.minimum(mark, done + pace * step_s)
        return found

    def of(self, rows: NDArray[np.int64]) -> Floats:
        """[rows] the same of some rows, which may be higher than any that has had a job."""
        known = rows < len(self.by_row)
        found: Floats = np.zeros(len(rows))
        found[known] = self.by_row[rows[known]]
        return found


class EstimatedExecutions:
    """Machines by name and the jobs on them by *row*: a number that a job has alone for as long as it is there.

    For estimates alone: no job ends by itself; one that should have ended goes on beyond a progress of 1.
    """

    def __init__(self, now_s: float = 0.0) -> None:
        """No machines."""
        self.now_s = now_s
        self._table = OrderedPaceTable()
        self._number: dict[str, int] = {}
        """Of each machine, its row."""
        self._free: list[int] = []
        """Rows of machines that are gone."""
        self._hosts: list[Host] = []
        """Of machines, by row."""
        self._counts: list[int] = []
        """How many jobs each has."""
        self._begun: dict[int, Resident] = {}
        """By row, what was put there last."""
        self._most = (1, 1)
        """Rows of jobs, and jobs on one machine, that there have been at most."""
        self._changes: list[tuple[float, ...]] = []
        """What has happened and is not in the arrays yet."""
        self._machines = _room(1, 1, 1)

    def add(self, name: str, host: Host, began: Iterable[tuple[float, int, Resident]] = ()) -> None:
        """A machine. ``began``: jobs that are there already, with the seconds at which they started, of which none but the
        order counts where they lie ahead; before the first of them the machine was empty.
        """
        there = sorted(began, key=lambda job: job[0])
        first_s = min(there[0][0] if there else self.now_s, self.now_s)
        if not self._free:
            self._free.append(len(self._hosts))
            self._hosts.append(host)
            self._counts.append(0)
        machine = self._number[name] = self._free.pop()
        self._hosts[machine], self._counts[machine] = host, 0
        self._note(ADD, machine, self._table.host(host), first_s)
        for start_s, row, resident in there:
            self._start(machine, row, resident, min(start_s, self.now_s))

    def remove(self, name: str) -> None:
        """A machine goes, and the jobs on it with it."""
        machine = self._number.pop(name)
        self._note(REMOVE, machine, 0, self.now_s)
        self._free.append(machine)

    def start(self, machine: str, row: int, resident: Resident) -> None:
        """Put a job on a machine, at the present."""
        self._start(self._number[machine], row, resident, self.now_s)

    def stop(self, machine: str, row: int) -> None:
        """Take a job away, at the present."""
        number = self._number[machine]
        self._counts[number] -= 1
        self._note(STOP, number, row, self.now_s)

    def progress_of(self, machine: str, row: int) -> float:
        """How far one job is now."""
        self._look(self._number[machine])
        return progress(self._machines.jobs, row, self.now_s)

    def seen(self, machine: str, row: int, at_s: float) -> float:
        """The progress that a job will have made at ``at_s`` if nothing comes or goes until then. Nothing moves by that: how
        far jobs are must not depend, not even in the last bit, on who asked.
        """
        self._look(NONE)
        number, all_ = self._number[machine], self._machines
        rows = all_.slots[number, : all_.numbers[number, COUNT]]
        of = slice(number, number + 1)
        alone = MovingMachines(
            all_.jobs[rows],
            all_.kinds[rows],
            all_.moments[of].copy(),
            all_.numbers[of].copy(),
            np.arange(len(rows))[None],
        )
        look(self._table.memory, alone, _NO_CHANGES, 0, at_s)
        return progress(alone.jobs, int(np.flatnonzero(rows == row)[0]), at_s)

    def advance(self, to_s: float) -> None:
        """The present is ``to_s`` from now on."""
        self.now_s = max(self.now_s, to_s)

    def progress(self) -> Progress:
        """How far all jobs are now."""
        if self._hosts:
            self._look(ALL)
        return Progress(self._machines.jobs[:, :_COURSE].copy(), self.now_s)

    def _start(self, machine: int, row: int, resident: Resident, at_s: float) -> None:
        host = self._hosts[machine]
        now, last, until, own = stages_of(host, resident, ends=False)
        kind = self._table.kind(self._table.host(host), resident)
        self._begun[row] = resident
        self._counts[machine] += 1
        self._most = max(self._most[0], row + 1), max(self._most[1], self._counts[machine])
        job = (
            resident.progress,
            *NO_JOB[SINCE:READY],
            resident.ready_s,
            resident.scale,
            until,
            np.nan if own is None else own,
        )
        self._changes.append((START, machine, row, at_s, kind, int(now.stage), int(last.stage), *job))

    def _note(self, what: int, machine: int, number: int, at_s: float) -> None:
        self._changes.append((what, machine, number, at_s, *_NO_JOB_CHANGES))

    def _look(self, machine: int) -> None:
        """Let what has happened reach the arrays, and a machine, ``ALL`` or ``NONE``, the present."""
        if not self._changes:
            look(self._table.memory, self._machines, _NO_CHANGES, machine, self.now_s)
            return
        (rows, width), machines = self._most, len(self._hosts)
        if (
            rows > len(self._machines.jobs)
            or machines > len(self._machines.slots)
            or width > self._machines.slots.shape[1]
        ):
            self._machines = _wider(self._machines, rows, machines, width)
        look(self._table.memory, self._machines, np.array(self._changes, np.float64), machine, self.now_s)
        self._changes.clear()
        generation = self._table.generation
        self._table.begin_round(len(self._number), len(self._begun))
        if self._table.generation is not generation:
            self._register()

    def _register(self) -> None:
        """Numbers of hosts and kinds are void: all that is there gets others."""
        for machine in self._number.values():
            host = self._machines.numbers[machine, HOST] = self._table.host(self._hosts[machine])
            for row in self._machines.slots[machine, : self._counts[machine]].tolist():
                self._machines.kinds[row, KIND] = self._table.kind(host, self._begun[row])


def _wider(known: MovingMachines, rows: int, machines: int, width: int) -> MovingMachines:
    """Room for so many as well, at least by doubling."""
    sizes = [
        have if want <= have else max(want, 2 * have)
        for want, have in zip((rows, machines, width), (len(known.jobs), *known.slots.shape), strict=True)
    ]
    larger = _room(*sizes)
    for new, old in zip(larger, known, strict=True):
        new[tuple(map(slice, old.shape))] = old
    return larger


def _room(rows: int, machines: int, width: int) -> MovingMachines:
    """Without machines and jobs."""
    moments = np.full((machines, 2), np.inf)
    jobs, slots = np.tile(np.array(NO_JOB), (rows, 1)), np.zeros((machines, width), np.int64)
    return MovingMachines(jobs, np.zeros((rows, 3), np.int64), moments, np.zeros((machines, 4), np.int64), slots)
