"""A middleware in front of memcached as a closed queueing network: throughput and response time over clients and threads.

Published: "Advanced Systems Lab", ETH Zurich, autumn 2016, second milestone, section 1: five memcached servers, reads only,
no replication. Three numbers of it are fitted to (throughput and time inside the middleware with 180 clients and 32 threads,
and how long a thread is busy in the trace experiment with five threads); the others are predicted.

    python -m benchmarks.middleware
    python -m benchmarks.middleware --clients 180 --clients 720 --threads 16
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache

import click
from scipy.optimize import brentq

from benchmarks.queueing import ClosedSolution, Station, mean_value_analysis
from flowsched_models.text_table import text_table

SERVERS = 5
FITTED_CLIENTS, FITTED_THREADS, FITTED_PER_S = 180, 32, 18_400.0
INSIDE_S = (1.40 + 2.85) / 1000
"""Mean time of a request in a queue of the middleware and at memcached, with these clients and threads."""
TRACE_CLIENTS, TRACE_THREADS, TRACE_SERVERS, TRACE_PER_S = 192, 5, 3, 10_300.0
TRACE_BUSY_S = 0.09 * TRACE_CLIENTS / TRACE_PER_S
"""Of the trace experiment: the share of a request's time that it spends at memcached, in seconds."""
PUBLISHED = {(180, 32): 18_400.0, (432, 32): 19_600.0, (648, 64): 20_000.0, (720, 64): 20_100.0}
"""Requests per second by clients and read threads for each server: the maxima that are named."""
CLIENTS, THREADS = (36, 72, 144, 180, 216, 288, 432, 648, 720), (1, 16, 32, 64)


@dataclass(frozen=True)
class Middleware:
    """What the model knows, in seconds."""

    service_s: float
    """Mean time for which memcached works on a request; one at a time."""
    link_s: float
    """Time that a thread waits for a request beside that: nothing queues there."""
    rest_s: float
    """Time of a request outside of queues and threads: clients, their network, the other steps."""

    def solved(self, clients: int, threads: int, servers: int = SERVERS) -> ClosedSolution:
        """The steady state; every server has ``threads`` of its own, and a request that finds them busy waits for one."""
        alone_s = self.service_s + self.link_s
        here = [Station("memcached", self.service_s), Station("link", self.link_s, delay=True)]
        speeds = tuple(mean_value_analysis(here, busy).throughput * alone_s for busy in range(1, threads + 1))
        each = [Station(f"server {k}", alone_s / servers, speeds=speeds) for k in range(servers)]
        return mean_value_analysis([*each, Station("rest", self.rest_s, delay=True)], clients)


@cache
def fitted() -> Middleware:
    """The model that has the published figures of two experiments."""
    rest_s = FITTED_CLIENTS / FITTED_PER_S - INSIDE_S

    def with_link(link_s: float) -> Middleware:
        def off(service_s: float) -> float:
            found = Middleware(service_s, link_s, rest_s).solved(FITTED_CLIENTS, FITTED_THREADS)
            return FITTED_PER_S - found.throughput

        return Middleware(_root(off, 1e-6, SERVERS / FITTED_PER_S), link_s, rest_s)

    def busy_off(link_s: float) -> float:
        found = with_link(link_s)
        here = [Station("memcached", found.service_s), Station("link", link_s, delay=True)]
        return TRACE_THREADS / mean_value_analysis(here, TRACE_THREADS).throughput - TRACE_BUSY_S

    return with_link(_root(busy_off, 0.0, TRACE_BUSY_S))


def _root(off: Callable[[float], float], low: float, high: float) -> float:
    """Where a function that changes its sign between two points is 0."""
    return float(brentq(off, low, high, rtol=1e-6))


def grid(clients: Sequence[int], threads: Sequence[int]) -> str:
    """Requests per second and milliseconds of a request, by clients, for each number of threads."""
    rows = [
        ["clients", *(f"{t} thread{'' if t == 1 else 's'}: per s" if i == 0 else "ms" for t in threads for i in (0, 1))]
    ]
    for count in clients:
        found = [fitted().solved(count, t).throughput for t in threads]
        rows.append([f"{count}", *(text for x in found for text in (f"{x:,.0f}", f"{1000 * count / x:.1f}"))])
    return "\n".join(text_table(rows))


def comparison() -> str:
    """Beside the published figures."""
    rows = [["clients", "threads", "servers", "published per s", "model per s", "model ms", "difference %", ""]]
    known = {(*key, SERVERS): value for key, value in PUBLISHED.items()}
    known[TRACE_CLIENTS, TRACE_THREADS, TRACE_SERVERS] = TRACE_PER_S
    for (clients, threads, servers), published in known.items():
        found = fitted().solved(clients, threads, servers).throughput
        fits = (clients, threads) == (FITTED_CLIENTS, FITTED_THREADS)
        numbers = [f"{clients}", f"{threads}", f"{servers}", f"{published:,.0f}", f"{found:,.0f}"]
        rest = [
            f"{1000 * clients / found:.1f}",
            f"{100 * (found / published - 1):+.1f}",
            "fitted" if fits else "predicted",
        ]
        rows.append([*numbers, *rest])
    return "\n".join(text_table(rows, left=(7,)))


@click.command()
@click.option("--clients", multiple=True, type=click.IntRange(1, 5000), default=CLIENTS, show_default=True)
@click.option("--threads", multiple=True, type=click.IntRange(1, 512), default=THREADS, show_default=True)
def main(clients: tuple[int, ...], threads: tuple[int, ...]) -> None:
    """Print the model beside the published figures, then over clients and read threads for each of five servers."""
    click.echo(f"{comparison()}\n\n{grid(clients, threads)}")


if __name__ == "__main__":
    main()
