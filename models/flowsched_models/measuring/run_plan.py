"""Which runs measure a job: how many threads where, beside what, and how often."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from flowsched_models.measurements.measurements import REFERENCE
from flowsched_models.measuring.aggressor import AGGRESSORS
from flowsched_models.measuring.topology import Topology
from flowsched_models.quantity import format_cores


class ResultTable(StrEnum):
    """The table that a run ends in."""

    THREADS = "threads"
    INTERFERENCE = "interference"
    EXECUTIONS = "executions"


@dataclass(frozen=True)
class Copy:
    """One copy of the program: its threads and the CPUs that it is pinned to."""

    threads: int
    cores: tuple[int, ...]

    def __str__(self) -> str:
        """For a message: ``2 threads on cores 0-1``."""
        threads = "1 thread" if self.threads == 1 else f"{self.threads} threads"
        return f"{threads} on core{'s' if len(self.cores) > 1 else ''} {format_cores(self.cores)}"


@dataclass(frozen=True)
class Setup:
    """What runs at the same time in one run."""

    table: ResultTable
    copies: tuple[Copy, ...]
    interference: str = REFERENCE
    aggressor_core: int | None = None
    sharing: str = ""
    """Of two copies: ``shared``, on the same CPUs, or ``beside``, on different ones."""

    def __str__(self) -> str:
        """For a message."""
        if self.table is ResultTable.EXECUTIONS:
            return f"two copies: {' and '.join(map(str, self.copies))}"
        if self.aggressor_core is None:
            return str(self.copies[0]) + (", undisturbed" if self.table is ResultTable.INTERFERENCE else "")
        return f"{self.copies[0]}, beside {self.interference} on core {self.aggressor_core}"

    @property
    def bounds(self) -> tuple[float, float]:
        """How long a run takes at least and at most, in times of an undisturbed run on one thread.

        The bounds are perfect speed-up and none; an aggressor on the same core takes half of the time, and one
        on another core is taken to slow the program down by no more than that.
        """
        if self.aggressor_core is not None:
            return (2.0, 3.0) if AGGRESSORS[self.interference].same_core else (1.0, 2.0)
        loads = [sum(c.cores == copy.cores for c in self.copies) for copy in self.copies]
        parallel = [min(c.threads, len(c.cores)) for c in self.copies]
        return max(n / p for n, p in zip(loads, parallel, strict=True)), float(max(loads))


@dataclass(frozen=True)
class PlannedRun:
    """One repetition of a setup; repetitions are numbered from 1."""

    setup: Setup
    number: int

    def __str__(self) -> str:
        """For a message."""
        return f"{self.setup}, run {self.number}"


@dataclass(frozen=True)
class RunPlan:
    """All runs in their order, and what was left out of them."""

    warm_up: Setup
    """Runs first and leaves no row: files are in memory and clocks are up when the first row is taken."""
    runs: tuple[PlannedRun, ...]
    notes: tuple[str, ...] = ()
    """What this machine does not allow to measure, one sentence each."""

    def bounds(self, rest_s: float) -> tuple[float, float, float]:
        """Shortest and longest duration in times of a run on one thread, and the seconds of rest on top."""
        setups = [self.warm_up, *(r.setup for r in self.runs)]
        return sum(s.bounds[0] for s in setups), sum(s.bounds[1] for s in setups), rest_s * len(self.runs)


def default_threads(topology: Topology) -> tuple[int, ...]:
    """1, 2, 4, ... and all usable CPUs."""
    count = len(topology.cores)
    powers = (1 << k for k in range(count.bit_length()))
    return tuple(sorted({n for n in powers if n <= count} | {count}))


def plan_runs(
    topology: Topology, threads: Sequence[int], kinds: Sequence[str], runs: int, sharing: bool = True
) -> RunPlan:
    """The runs that measure one job.

    ``threads``: numbers of threads of the sweep, each pinned to as many CPUs, one per physical core first; more threads
    than CPUs share all of them. ``kinds``: names of aggressors, none for no interference sweep. Every setup runs ``runs``
    times, in rounds over all setups: what changes slowly on a machine then meets all of them alike, and a run stopped
    early has complete rounds.
    """
    order = topology.physical_first()
    sweep = [Setup(ResultTable.THREADS, (Copy(n, tuple(sorted(order[:n]))),)) for n in threads]
    beside, notes = _interference(topology, order[0], kinds)
    setups = [*sweep, *beside]
    if sharing:
        pairs, missing = _pairs(topology, min(max(threads), len(order)))
        setups += pairs
        notes += missing
    warm_up = max(sweep, key=lambda s: s.copies[0].threads)
    return RunPlan(warm_up, tuple(PlannedRun(s, k) for k in range(1, runs + 1) for s in setups), tuple(notes))


def _interference(topology: Topology, core: int, kinds: Sequence[str]) -> tuple[list[Setup], list[str]]:
    alone = (Copy(1, (core,)),)
    setups = [Setup(ResultTable.INTERFERENCE, alone)] if kinds else []
    notes = []
    away = topology.other(core)
    for kind in kinds:
        place = core if AGGRESSORS[kind].same_core else away
        if place is None:
            notes.append(f"{kind} is left out: it needs a second core, and there is only core {core} to use")
            continue
        if place != core and topology.are_siblings(core, place):
            notes.append(
                f"{kind} runs on core {place}, a hardware thread of the program's core: there is no other core"
            )
        elif place != core and not topology.share_cache(core, place):
            notes.append(f"{kind} runs on core {place}, which does not share the last-level cache with core {core}")
        setups.append(Setup(ResultTable.INTERFERENCE, alone, kind, place))
    return setups, notes


def _pairs(topology: Topology, count: int) -> tuple[list[Setup], list[str]]:
    """Two copies of the program, on the same CPUs and on different ones."""
    cores = tuple(sorted(topology.physical_first()[:count]))
    setups = [Setup(ResultTable.EXECUTIONS, (Copy(count, cores),) * 2, sharing="shared")]
    if count < 2:
        return setups, ["two copies beside each other are left out: they need two cores"]
    half = count // 2
    # Whole physical cores for each copy, as far as there are.
    grouped = [c for c in topology.by_physical_core() if c in cores]
    apart = tuple(Copy(half, tuple(sorted(part))) for part in (grouped[:half], grouped[half : 2 * half]))
    setups.append(Setup(ResultTable.EXECUTIONS, apart, sharing="beside"))
    return setups, []
