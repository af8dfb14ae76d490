"""How much memcached on this machine takes, on one core and on two: what the loads of the real run are relative to."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass

from benchmarks.live_node import LiveError, Memcached, fifo_refused, pin
from benchmarks.load_capacity import measure_capacity
from benchmarks.load_generator.load_plan import LoadPlan
from benchmarks.load_generator.rows import LoadRow
from benchmarks.load_generator.running_load import run_load
from benchmarks.load_generator.steps import LoadStep

KEYS = 200
"""Keys of one get, none of them stored: dear for the server (some 30 us), cheap for the generator (an answer of 5 bytes)."""
CONNECTIONS = 32
GENERATOR_PRIORITY = 50
SLO_US = 1000.0
SHARES = (0.95, 0.9, 0.8, 0.7, 0.6, 0.5)
"""Of the closed loop's throughput, tried from above for the highest load within the SLO."""
TOLERATED = 0.05
"""Share of windows of 100 ms that may be over it there."""
ALONE_US = 500.0
"""With a p95 above this at a tenth of its capacity and nobody beside it, a machine is too noisy to show anything."""
MOST_RATIO = 1.1
"""In a closed loop two cores serve little more than one, as the generator has the second; much less means somebody else."""


@dataclass(frozen=True)
class Site:
    """The cores of this machine that a real run uses, and whether the generator can have priority there."""

    service: int
    """The core that is always memcached's."""
    other: int
    """The second core: the generator's, and shared with memcached or the batch job."""
    fifo: int
    """Priority of the generator, 0 where SCHED_FIFO is refused."""

    def plan(self, *steps: LoadStep, seed: int = 1, closed: bool = False, keys: int = KEYS, port: int = 0) -> LoadPlan:
        """A load from the second core."""
        return LoadPlan(
            steps,
            port=port,
            connections=CONNECTIONS,
            keys_per_get=keys,
            seed=seed,
            closed=closed,
            cpus=(self.other,),
            fifo=self.fifo,
        )

    def cores(self, count: int) -> tuple[int, ...]:
        """The first one or both."""
        return (self.service, self.other)[:count]


@dataclass(frozen=True)
class NodeCapacity:
    """Requests per second by number of cores."""

    closed: dict[int, float]
    """Served at most."""
    within_slo: dict[int, float]
    """Highest load tried whose p95 is over the SLO in few windows only."""

    def at_most(self, cores: int) -> float:
        """Within the SLO on so many cores or fewer."""
        return max(rate for count, rate in self.within_slo.items() if count <= cores)

    def doubt(self) -> str:
        """Why nothing can be shown here; empty if it can."""
        one, two = self.closed[1], self.closed[2]
        if one <= MOST_RATIO * two:
            return ""
        return f"two cores serve {two:,.0f} requests/s and one {one:,.0f}: others work here"


def find_site() -> Site:
    """Raises :class:`LiveError` with fewer than two cores."""
    cores = sorted(os.sched_getaffinity(0))
    if len(cores) < 2:
        raise LiveError(f"a real run needs two cores, and this process may use {len(cores)}")
    return Site(cores[0], cores[1], 0 if fifo_refused() else GENERATOR_PRIORITY)


def over_slo(row: LoadRow, slo_us: float = SLO_US) -> bool:
    """Whether a window breaks the goal. One that lost requests does."""
    return row.lost > 0 or (row.p95_us is not None and row.p95_us > slo_us)


def calibrate(site: Site, seconds: float = 2.0, say: Callable[[str], None] = print) -> NodeCapacity:
    """Memcached alone, in a closed loop and then in open ones."""
    closed, within = {}, {}
    for count in (1, 2):
        with Memcached() as memcached:
            pin(memcached.pid, site.cores(count))
            closed[count] = measure_capacity(site.plan(port=memcached.port), seconds)
            for share in SHARES:
                within[count] = share * closed[count]
                rows = run_load(site.plan(LoadStep(within[count], seconds), port=memcached.port)).rows
                if sum(map(over_slo, rows)) <= TOLERATED * len(rows):
                    break
        say(
            f"memcached on {count} core(s): {closed[count]:,.0f} requests/s at most, {within[count]:,.0f} within "
            f"p95 {SLO_US:g} us"
        )
    return NodeCapacity(closed, within)


def p95_alone_us(site: Site, capacity: float, seconds: float = 2.0) -> float:
    """Median over windows of 100 ms at a tenth of the capacity, memcached alone on its core, in microseconds."""
    with Memcached() as memcached:
        pin(memcached.pid, site.cores(1))
        rows = run_load(site.plan(LoadStep(0.1 * capacity, seconds), port=memcached.port)).rows
    measured = sorted(row.p95_us for row in rows if row.p95_us is not None)
    return measured[len(measured) // 2]
