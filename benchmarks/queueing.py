"""Queueing models: closed networks by mean value analysis, and the open M/M/c queue.

A *closed* system has N customers that each wait for an answer before they ask again (memaslap, mcperf in saturation); an
*open* one gets requests at a rate that does not depend on how it answers (mcperf while it keeps up with its target).

Sources: E. D. Lazowska, J. Zahorjan, G. S. Graham, K. C. Sevcik, "Quantitative System Performance", 1984 (laws, bounds,
mean value analysis); M. Reiser, S. S. Lavenberg, "Mean-Value Analysis of Closed Multichain Queuing Networks", JACM 27(2),
1980 (the recursion, also for stations of several servers); J. P. Buzen, "Computational Algorithms for Closed Queueing
Networks with Exponential Servers", CACM 16(9), 1973 (normalisation constants); A. K. Erlang, 1917 (waiting in M/M/c).
``python -m benchmarks.middleware`` puts them beside a published experiment.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

MOST_CUSTOMERS = 100_000
"""More customers than any closed system here has; the recursions take time and memory in proportion."""
_RECURSION_SERVERS = 4
"""Beyond this many servers the load-dependent recursion loses digits, and constants in logarithms are used instead."""


def erlang_c(servers: int, offered: float) -> float:
    """Probability that a customer of M/M/c has to wait (Erlang's second formula).

    ``offered``: arrival rate times mean service time, in busy servers. 1 where it reaches ``servers``: every arrival waits.
    Computed from Erlang's first formula by its recursion, which neither overflows nor cancels.
    """
    _check_count("servers", servers)
    _check_number("offered", offered, at_least=0.0)
    if offered >= servers:
        return 1.0
    blocked = 1.0
    for k in range(1, servers + 1):
        blocked = offered * blocked / (k + offered * blocked)
    return blocked / (1.0 - offered / servers * (1.0 - blocked))


@dataclass(frozen=True)
class OpenQueue:
    """M/M/c: Poisson arrivals, exponential service, c servers, one queue, first come first served.

    Times are infinite where the load reaches the capacity.
    """

    arrival_rate: float
    """Requests per second."""
    service_s: float
    """Mean service time of one request on one server."""
    servers: int = 1

    def __post_init__(self) -> None:
        """Refuse what is no queue. Raises ValueError."""
        _check_number("arrival_rate", self.arrival_rate, at_least=0.0)
        _check_number("service_s", self.service_s, above=0.0)
        _check_count("servers", self.servers)

    @property
    def utilisation(self) -> float:
        """Offered load per server; from 1 on the queue grows without end."""
        return self.arrival_rate * self.service_s / self.servers

    @property
    def waiting_probability(self) -> float:
        """Erlang C."""
        return erlang_c(self.servers, self.arrival_rate * self.service_s)

    @property
    def mean_wait_s(self) -> float:
        """Mean time in the queue, without service."""
        spare = self._spare
        return self.waiting_probability / spare if spare > 0.0 else math.inf

    @property
    def mean_response_s(self) -> float:
        """Mean time in the queue and in service."""
        return self.mean_wait_s + self.service_s

    def wait_quantile_s(self, p: float) -> float:
        """The time that a share ``p`` of the requests waits at most: ``P(W > t) = C exp(-(c mu - lambda) t)``."""
        _check_share("p", p)
        if self._spare <= 0.0:
            return math.inf
        waiting = self.waiting_probability
        return max(0.0, math.log(waiting / (1.0 - p)) / self._spare) if waiting > 0.0 else 0.0

    def response_tail(self, t_s: float) -> float:
        """Share of requests whose time in queue and service exceeds ``t_s``."""
        if t_s <= 0.0:
            return 1.0
        if self._spare <= 0.0:
            return 1.0
        mu, waiting, spare = 1.0 / self.service_s, self.waiting_probability, self._spare
        served = math.exp(-mu * t_s)
        # Wait and service are independent. Where both have the same rate the sum is an Erlang-2 time.
        if abs(spare - mu) < 1e-9 * mu:
            return served * (1.0 + waiting * mu * t_s)
        waited = math.exp(-spare * t_s)
        return (1.0 - waiting) * served + waiting * (mu * waited - spare * served) / (mu - spare)

    def response_quantile_s(self, p: float) -> float:
        """The time within which a share ``p`` of the requests is answered; for one server ``-ln(1 - p) / (mu - lambda)``."""
        _check_share("p", p)
        if self._spare <= 0.0:
            return math.inf
        low, high = 0.0, self.service_s
        while self.response_tail(high) > 1.0 - p:
            low, high = high, 2.0 * high
        for _ in range(200):
            middle = 0.5 * (low + high)
            if not low < middle < high:
                break
            low, high = (middle, high) if self.response_tail(middle) > 1.0 - p else (low, middle)
        return high

    @property
    def _spare(self) -> float:
        return self.servers / self.service_s - self.arrival_rate


@dataclass(frozen=True)
class Station:
    """A place that a request of a closed network visits."""

    name: str
    demand_s: float
    """Visits per request times mean service time of one visit."""
    servers: int = 1
    delay: bool = False
    """No customer waits here (a network, a client's think time): as many servers as customers."""
    speeds: tuple[float, ...] = ()
    """How fast it is with 1, 2, ... customers, relative to one, the last for more; empty: as its servers say. So a part of a
    network stands as one station (flow equivalence)."""

    def __post_init__(self) -> None:
        """Refuse what is no station. Raises ValueError."""
        _check_number("demand_s", self.demand_s, at_least=0.0)
        _check_count("servers", self.servers)
        for speed in self.speeds:
            _check_number("speeds", speed, above=0.0)

    @property
    def top_speed(self) -> float:
        """With any number of customers, relative to one."""
        return max(self.speeds) if self.speeds else float(self.servers)


@dataclass(frozen=True)
class ClosedSolution:
    """A closed network with N customers in its steady state."""

    customers: int
    throughput: float
    """Requests per second."""
    response_s: float
    """Time from a request to its answer, without ``think_s``: N / throughput - think_s."""
    residence_s: tuple[float, ...]
    """Time per request at each station, in their order, visits and waiting included."""
    queue: tuple[float, ...]
    """Mean number of customers at each station, in service included (Little's law)."""
    utilisation: tuple[float, ...]
    """Busy share of the servers of each station; for a delay station the mean number of customers there."""


@dataclass(frozen=True)
class Bounds:
    """Asymptotic and balanced-job bounds of a closed network (Lazowska et al., chapter 5)."""

    throughput_high: float
    """min(N / (D + Z), 1 / max D): no closed network does more."""
    throughput_low: float
    """N / (N D + Z): every customer waits for all others."""
    response_low_s: float
    knee_customers: float
    """Customers from which on some have to wait: (D + Z) / max D."""


def bounds(stations: Sequence[Station], customers: int, think_s: float = 0.0) -> Bounds:
    """What no distribution of service times can exceed. Stations of several servers count by their joint rate.

    Raises ValueError for what :func:`mean_value_analysis` refuses.
    """
    _check_network(stations, customers, think_s)
    total = math.fsum(s.demand_s for s in stations) + think_s
    slowest = max((s.demand_s / s.top_speed for s in stations if not s.delay), default=0.0)
    queueing = math.fsum(s.demand_s for s in stations if not s.delay)
    most = customers / total if slowest <= 0.0 else min(customers / total, 1.0 / slowest)
    least = customers / (customers * queueing + total - queueing)
    return Bounds(
        throughput_high=most,
        throughput_low=least,
        response_low_s=max(total - think_s, customers * slowest - think_s),
        knee_customers=math.inf if slowest <= 0.0 else total / slowest,
    )


def mean_value_analysis(stations: Sequence[Station], customers: int, think_s: float = 0.0) -> ClosedSolution:
    """The exact solution of a closed network of one class of customers.

    Exact for product-form networks: exponential service with first come first served (or any service time with processor
    sharing), and delay stations of any distribution. Stations of one server and delay stations follow the recursion of
    Reiser and Lavenberg over the number of customers; stations of several servers its load-dependent form, up to four
    servers. With more, that form loses its digits (it takes differences of probabilities near 1), and the same solution
    comes from normalisation constants kept in logarithms.

    ``think_s``: time between an answer and the next request. Raises ValueError for no customers, no stations, negative
    times or a network without any time.
    """
    _check_network(stations, customers, think_s)
    if any(not s.delay and (s.speeds or s.servers > _RECURSION_SERVERS) for s in stations):
        return normalisation_constants(stations, customers, think_s)
    queue = [0.0] * len(stations)
    # Probability that j customers are at a station of several servers, for j below its number of servers.
    few = [[1.0] + [0.0] * (s.servers - 1) for s in stations]
    throughput, residence = 0.0, [0.0] * len(stations)
    for n in range(1, customers + 1):
        for i, s in enumerate(stations):
            if s.delay:
                residence[i] = s.demand_s
            else:
                idle = math.fsum((s.servers - 1 - j) * p for j, p in enumerate(few[i][:-1]))
                residence[i] = s.demand_s / s.servers * (1.0 + queue[i] + idle)
        throughput = n / (think_s + math.fsum(residence))
        for i, s in enumerate(stations):
            queue[i] = throughput * residence[i]
            if not s.delay and s.servers > 1:
                few[i] = _few_customers(s, few[i], throughput)
    return _solution(stations, customers, think_s, throughput, residence)


def _few_customers(station: Station, before: Sequence[float], throughput: float) -> list[float]:
    """Probabilities of 0 to servers - 1 customers at a station, from those with one customer less in the network."""
    m, work = station.servers, throughput * station.demand_s
    probabilities = [0.0] * m
    for j in range(1, m):
        probabilities[j] = work / j * before[j - 1]
    busy = work + math.fsum((m - j) * probabilities[j] for j in range(1, m))
    probabilities[0] = max(0.0, 1.0 - busy / m)
    return probabilities


def normalisation_constants(stations: Sequence[Station], customers: int, think_s: float = 0.0) -> ClosedSolution:
    """The same as :func:`mean_value_analysis`, by convolution of the stations' constants in logarithms (Buzen 1973).

    Takes time in the square of the customers; loses no digits with any number of servers.
    """
    _check_network(stations, customers, think_s)
    counts = np.arange(customers + 1)
    own = [_log_constants(s.demand_s, _speeds(s, customers)) for s in stations]
    own.append(_log_constants(think_s, counts[1:].astype(np.float64)))
    # Constants of the network without one station each: products from the left and from the right.
    left, right = [_unit(customers)], [_unit(customers)]
    for i in range(len(own)):
        left.append(_convolve(left[-1], own[i]))
        right.append(_convolve(own[-1 - i], right[-1]))
    whole = left[-1]
    throughput = math.exp(whole[-2] - whole[-1])
    residence = []
    for i in range(len(stations)):
        rest = _convolve(left[i], right[len(own) - 1 - i])
        with np.errstate(invalid="ignore"):
            probability = np.exp(own[i] + rest[::-1] - whole[-1])
        residence.append(float(np.sum(counts * probability)) / throughput)
    return _solution(stations, customers, think_s, throughput, residence)


_Logs = npt.NDArray[np.float64]


def _unit(customers: int) -> _Logs:
    logs = np.full(customers + 1, -np.inf)
    logs[0] = 0.0
    return logs


def _speeds(station: Station, customers: int) -> _Logs:
    """[customers] how fast a station is with 1, 2, ... customers, relative to one."""
    counts = np.arange(1, customers + 1)
    if station.delay:
        return counts.astype(np.float64)
    if station.speeds:
        return np.array(station.speeds)[np.minimum(counts, len(station.speeds)) - 1]
    return np.minimum(counts, station.servers).astype(np.float64)


def _log_constants(demand_s: float, speeds: _Logs) -> _Logs:
    """Logarithm of ``demand^k / prod(speed of 1 ... speed of k)`` for k from 0 to N."""
    if demand_s <= 0.0:
        return _unit(len(speeds))
    steps = math.log(demand_s) - np.log(speeds)
    return np.concatenate([[0.0], np.cumsum(steps)])


def _convolve(a: _Logs, b: _Logs) -> _Logs:
    return np.array([np.logaddexp.reduce(a[: n + 1] + b[n::-1]) for n in range(len(a))])


def _solution(
    stations: Sequence[Station], customers: int, think_s: float, throughput: float, residence: Sequence[float]
) -> ClosedSolution:
    return ClosedSolution(
        customers=customers,
        throughput=throughput,
        response_s=customers / throughput - think_s,
        residence_s=tuple(residence),
        queue=tuple(throughput * r for r in residence),
        utilisation=tuple(throughput * s.demand_s / (1 if s.delay else s.top_speed) for s in stations),
    )


def interactive_response_s(customers: float, throughput: float, think_s: float = 0.0) -> float:
    """Response time of a closed system by the interactive response time law: N / X - Z."""
    _check_number("customers", customers, above=0.0)
    _check_number("throughput", throughput, above=0.0)
    _check_number("think_s", think_s, at_least=0.0)
    return customers / throughput - think_s


def _check_network(stations: Sequence[Station], customers: int, think_s: float) -> None:
    _check_count("customers", customers)
    if customers > MOST_CUSTOMERS:
        raise ValueError(f"customers must be at most {MOST_CUSTOMERS}, but is {customers}")
    _check_number("think_s", think_s, at_least=0.0)
    if not stations:
        raise ValueError("a closed network needs at least one station")
    if math.fsum(s.demand_s for s in stations) + think_s <= 0.0:
        raise ValueError("a closed network needs a station or a think time that takes time")


def _check_count(name: str, value: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ValueError(f"{name} must be a whole number of at least 1, but is {value!r}")


def _check_share(name: str, value: float) -> None:
    if not 0.0 < value < 1.0:
        raise ValueError(f"{name} must be between 0 and 1, but is {value!r}")


def _check_number(name: str, value: float, above: float = -math.inf, at_least: float = -math.inf) -> None:
    if not math.isfinite(value) or value <= above or value < at_least:
        limit = f"more than {above:g}" if above > at_least else f"at least {at_least:g}"
        raise ValueError(f"{name} must be a finite number of {limit}, but is {value!r}")
