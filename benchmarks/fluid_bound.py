"""How soon all jobs of one machine can be done at all, beside services that get the CPU that their load needs.

Two lower bounds of the makespan, from the run-time model (:mod:`flowsched_models.runtime`) and the load of the services:

- :func:`plain_bound`: the work of all jobs against the CPU that the services leave. It knows neither that serial parts
  use one virtual CPU, nor what jobs do to each other's caches and memory, nor what busy siblings cost.
- :class:`FluidBound`: a linear program over *configurations*. It knows all three.

A job is cut into two *pieces*, its serial and its parallel work. A configuration says what each virtual CPU runs: a piece, a
service, or nothing; the serial piece of a job stands on one virtual CPU at most, and not beside its parallel piece. Its
rates are those of the model with every thread alone on its virtual CPU. The program mixes configurations so that all work is
done and the services have had the CPU that their load needed up to the end, in the least time T::

    min T   where  sum_c y_c = T,  sum_c y_c rate_p(c) >= work_p for each piece p,
                   sum_c y_c cores_s(c) >= integral of the CPU need of service s up to T

It is below the makespan of *every policy that gives each service, up to the end, the CPU its load needs*, whatever else it
does: pause, move, share cores by any weights, use any number of threads. Why:

- Left out are the order of a job's parts, starting delays, the cost of more than four threads, quotas, and when the
  services need their CPU: each can only lengthen a run.
- Sharing a virtual CPU is a mixture of configurations. Give each virtual CPU to its users in turn, at random, with the
  shares that they have, one virtual CPU independent of the others: everybody uses the same CPU as before. The rate of a
  job is its CPU times a convex, falling function of the CPU that others use, and on its own virtual CPU nobody else runs
  in its turn; so by Jensen's inequality its mean rate in the mixture is at least the rate with shares. For serial work
  that is spread over several virtual CPUs, for jobs whose serial and parallel work is mixed, and for siblings, turns
  cannot be independent; there it is not proved, but tested.

It is no bound for a policy that lets a service starve: with jobs at the service's own weight on its cores, or a service
on fewer cores than its load needs. Such a policy may use CPU that the bound keeps for the service. Memory is left out.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations_with_replacement
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.service_need import Need
from flowsched.node import NodeService, NodeTask
from flowsched_models.catalogue import Catalogue
from flowsched_models.extras import install_extra

MOST_CONFIGURATIONS = 200_000
"""A machine with more is refused: the linear program would take minutes."""
SETTLED_S = 1e-6
_MOST_STEPS = 200
_LATEST_S = 1e7
_NO_ROOM = "the services need all virtual CPUs for ever: no job is ever done"


class BoundError(RuntimeError):
    """There is no bound for this machine, or nothing to compute it with; the text says which, and what would help."""


@dataclass(frozen=True)
class Piece:
    """The serial or the parallel work of a job, or a service."""

    name: str
    work_s: float
    """Seconds of one virtual CPU of this machine with nobody beside it; 0 for a service."""
    widest: int
    """Virtual CPUs that it can use at once."""
    smt_gain: float = 1.0
    sensitivity: float = 0.0
    pressure: float = 0.0


def plain_bound(
    catalogue: Catalogue,
    machine_type: str,
    cores: int,
    tasks: Sequence[NodeTask],
    need: Need,
    factors: Mapping[str, float] | None = None,
) -> float:
    """Seconds until ``cores`` virtual CPUs, less what services need, have done the work of all tasks at full speed.

    ``factors``: on the work of a task, by name, beyond what its profile says.
    """
    work_s = sum(p.work_s for p in job_pieces(catalogue, machine_type, cores, tasks, factors or {}))

    def lacks(t_s: float) -> bool:
        return cores * t_s - sum(need(t_s)) < work_s

    high = max(1.0, work_s / cores)
    while lacks(high):
        high *= 2.0
        if high > _LATEST_S:
            raise BoundError(_NO_ROOM)
    low = 0.0
    while high - low > SETTLED_S:
        middle = 0.5 * (low + high)
        low, high = (middle, high) if lacks(middle) else (low, middle)
    return low


class FluidBound:
    """The linear program of one machine and its jobs, to be asked about several loads."""

    def __init__(
        self,
        catalogue: Catalogue,
        machine_type: str,
        cores: int,
        services: Sequence[NodeService],
        tasks: Sequence[NodeTask],
        factors: Mapping[str, float] | None = None,
    ) -> None:
        """``cores``: virtual CPUs in all; ``factors``: on the work of a task, by name, beyond what its profile says.

        Raises :class:`BoundError` without scipy, and for machines with too many configurations.
        """
        self._linprog = _linprog()
        pieces = [*job_pieces(catalogue, machine_type, cores, tasks, factors or {})]
        self._work = np.array([p.work_s for p in pieces])
        for service in services:
            profile = catalogue.services[service.profile]
            widest = len(service.cores)
            pieces.append(Piece(service.name, 0.0, widest, pressure=profile.pressure))
        smt = catalogue.machine_types[machine_type].smt
        self._rates, self._served = _columns(pieces, len(services), cores, smt)

    def makespan_s(self, need: Need) -> float:
        """The least T. The program's T is a convex, growing function of the services' need, and the need grows with T: the
        first T where both agree, by tangents from below.
        """
        t_s = 0.0
        for _ in range(_MOST_STEPS):
            needed = need(t_s)
            least_s, prices = self._least_s(needed)
            if least_s <= t_s + SETTLED_S:
                return least_s
            t_s = _first_agreement(t_s, needed, least_s, prices, need)
        raise BoundError(_NO_ROOM)

    def _least_s(self, needed: tuple[float, ...]) -> tuple[float, list[float]]:
        """The program's T, and what one more second of CPU for each service would add to it."""
        columns = np.vstack([self._rates, self._served])
        amounts = np.concatenate([self._work, np.array(needed)])
        answer = self._linprog(np.ones(columns.shape[1]), A_ub=-columns, b_ub=-amounts, method="highs")
        if answer.status != 0:
            raise BoundError(f"the linear program of the bound has no answer: {answer.message}")
        return float(answer.fun), [-float(m) for m in answer.ineqlin.marginals[len(self._work) :]]


def _first_agreement(
    from_s: float, needed: tuple[float, ...], least_s: float, prices: Sequence[float], need: Need
) -> float:
    """The first T from ``from_s`` on with T = ``least_s`` + prices x (the need at T - ``needed``)."""
    t_s = max(from_s, least_s)
    while True:
        more = zip(prices, need(t_s), needed, strict=True)
        next_s = least_s + math.fsum(price * (now - before) for price, now, before in more)
        if next_s <= t_s + SETTLED_S / 10:
            return t_s
        if next_s > _LATEST_S:
            raise BoundError(_NO_ROOM)
        t_s = next_s


def job_pieces(
    catalogue: Catalogue, machine_type: str, cores: int, tasks: Sequence[NodeTask], factors: Mapping[str, float]
) -> list[Piece]:
    """Serial and parallel work of all tasks, both named after the task; parts without work are left out."""
    bandwidth = catalogue.machine_types[machine_type].bandwidth
    pieces = []
    for task in tasks:
        job = catalogue.jobs[task.profile]
        speed = catalogue.speed(task.profile, machine_type)
        work_s = job.work_s * task.scale * factors.get(task.name, 1.0) / speed
        for part_s, widest in ((work_s * job.serial_fraction, 1), (work_s * (1.0 - job.serial_fraction), cores)):
            if part_s > 0.0:
                felt = job.sensitivity * bandwidth
                pieces.append(Piece(task.name, part_s, widest, job.smt_gain, felt, job.pressure))
    return pieces


def _columns(
    pieces: Sequence[Piece], services: int, cores: int, smt: bool
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Rates [job pieces, configurations] and virtual CPUs of services [services, configurations]."""
    rates, served = [], []
    for configuration in _configurations(pieces, cores, smt):
        used: dict[str, float] = {}
        for piece in (p for core in configuration for p in core):
            used[pieces[piece].name] = used.get(pieces[piece].name, 0.0) + pieces[piece].pressure
        caused = sum(used.values())
        column = np.zeros(len(pieces))
        for core in configuration:
            for piece in core:
                p = pieces[piece]
                beside = 1.0 if len(core) == 1 else 1.0 - 0.5 * (1.0 - p.smt_gain)
                column[piece] += beside / (1.0 + p.sensitivity * (caused - used[p.name]))
        jobs = len(pieces) - services
        rates.append(column[:jobs])
        served.append(column[jobs:])
    return np.array(rates).T, np.array(served).T


def _configurations(pieces: Sequence[Piece], cores: int, smt: bool) -> Iterator[tuple[tuple[int, ...], ...]]:
    """What the cores run, each with one virtual CPU or two, equal cores in one order only; an idle one says nothing."""
    threads = 2 if smt else 1
    contents = [
        content for width in range(threads + 1) for content in combinations_with_replacement(range(len(pieces)), width)
    ]
    slots = cores // threads
    if math.comb(len(contents) + slots - 1, slots) > MOST_CONFIGURATIONS:
        raise BoundError(
            f"{cores} virtual CPUs and {len(pieces)} pieces of work make more than {MOST_CONFIGURATIONS} "
            "configurations: there is a bound for smaller machines and fewer jobs only"
        )
    for chosen in combinations_with_replacement(contents, slots):
        count: dict[int, int] = {}
        for piece in (p for core in chosen for p in core):
            count[piece] = count.get(piece, 0) + 1
        # Two pieces of one name are the serial and the parallel work of one job.
        names = [pieces[piece].name for piece in count]
        if len(set(names)) == len(names) and all(number <= pieces[piece].widest for piece, number in count.items()):
            yield chosen


def _linprog() -> Any:
    try:
        from scipy.optimize import linprog
    except ImportError:
        raise BoundError(f"the bound needs scipy, which is not installed; {install_extra('solvers')}") from None
    return linprog
