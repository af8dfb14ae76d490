"""The min-cost flow network of one moment inside one machine.

A unit of flow is a seat: one task, or one service, on one virtual CPU. Every virtual CPU has a seat of full weight and,
where a service may hold that, one of the lowest weight beside it.

| node | supply | arcs out |
|---|---|---|
| task | its threads, at most the cores | to seats, at what it does to its neighbours; to its unscheduled node |
| task that may not share | the same | the same, but to full seats only |
| service | its cores but the first | to the full seats of these; to rest, at no cost: a seat is worth what its goal gains |
| full seat of a core | 0 | to the sink; the first core of a service has none, it is the service's |
| light seat of a core | 0 | to the background of the service whose core it is, at the CPU that the service keeps |
| background of a service | 0 | to the sink, core by core dearer: what p95 loses when work of the lowest weight is near |
| unscheduled node of a task | 0 | to the sink: the progress that each seat less costs; the last one also ends the waiting |

Progress of a task grows less with every further core, and a goal gains less from every further core, so all these costs are
convex and the flow takes them in order. What is not separable (interference, shared cores) is priced around the arrangement
at hand: :mod:`flowsched.node.search` prices anew around each answer and keeps the best arrangement by its exact worth.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from flowsched.network.network import IntArray, Network, NetworkBuilder
from flowsched.node.arrangement import Arrangement
from flowsched.node.moment import Candidate, Moment

_IN_ORDER = 1e-5
"""Seconds of work per second: decides between cores that are worth the same."""
_MUST_RUN = 10.0
"""What the first seat of a task that is due is worth, beyond the dearest way to it."""


@dataclass(frozen=True)
class SeatNetwork:
    """A network and how to read an arrangement off its flow."""

    network: Network
    task_arcs: tuple[tuple[int, int, int], ...]
    """Arc, candidate, core."""
    service_arcs: tuple[tuple[int, int], ...]
    """Arc, service."""

    def arrangement(self, flow: IntArray, tasks: int, services: int) -> Arrangement:
        """The seats that have flow."""
        cores: list[set[int]] = [set() for _ in range(tasks)]
        for arc, task, core in self.task_arcs:
            if flow[arc]:
                cores[task].add(core)
        counts = [1] * services
        for arc, service in self.service_arcs:
            counts[service] += int(flow[arc])
        return Arrangement(tuple(counts), tuple(tuple(sorted(c)) for c in cores))


def build_network(moment: Moment, around: Arrangement) -> SeatNetwork:
    """The network of a moment, with interference and shared cores priced around an arrangement."""
    node, candidates = moment.node, moment.candidates
    count = len(node.cores)
    gains = [_gains(moment, around, k) for k in range(len(candidates))]
    mean_gain = float(np.mean([g[0] for g in gains])) if gains else 0.0
    harms = _harms(moment, around)
    builder = NetworkBuilder()
    task_nodes = [builder.node(f"task:{c.task.name}", supply=len(g)) for c, g in zip(candidates, gains, strict=True)]
    service_nodes = [builder.node(f"service:{s.name}", supply=len(s.cores) - 1) for s in moment.services]
    taken = {s.cores[0] for s in moment.services}
    full = {c: builder.node(f"full:{c}") for c in node.cores if c not in taken}
    sink = builder.node("sink:")
    for own_seat in full.values():
        builder.arc(own_seat, sink, 1)
    task_arcs: list[tuple[int, int, int]] = []
    service_arcs: list[tuple[int, int]] = []
    shared: dict[int, int] = {}
    dearest = mean_gain + max(harms, default=0.0)
    for s, (service, price, qps) in enumerate(zip(moment.services, moment.slo, moment.qps, strict=True)):
        costs = [price.cost(k, qps, 0.0) for k in range(1, len(service.cores) + 1)]
        rest = builder.node(f"rest:{service.name}")
        builder.arc(rest, sink, len(service.cores))
        benefits = np.minimum.accumulate([max(0.0, a - b) for a, b in pairwise(costs)]).tolist()
        if moment.apart.tasks:
            # A service has its first cores: of two that it gains as much from it must not take the later one.
            benefits = [b - _IN_ORDER * k for k, b in enumerate(benefits)]
            dearest = max(dearest, mean_gain + max(benefits, default=0.0))
        for core, benefit in zip(service.cores[1:], benefits, strict=True):
            if core not in full:
                continue
            arc = builder.arc(service_nodes[s], full[core], 1, -benefit, terms={"slo": -benefit})
            service_arcs.append((arc, s))
        builder.arc(service_nodes[s], rest, len(service.cores))
        own = around.services[s]
        background = builder.node(f"background:{service.name}")
        before = price.cost(own, qps, 0.0)
        rising = 0.0
        for k in range(1, len(service.cores) + 1):
            after = price.cost(own, qps, min(1.0, k / own))
            rising = max(rising, after - before)
            dearest = max(dearest, rising)
            builder.arc(background, sink, 1, rising, terms={"headroom": rising})
            before = after
        profile = node.catalogue.services[service.profile]
        busy = min(1.0, profile.cpu_per_kqps * qps / 1000.0 / own)
        for core in service.cores:
            if core not in shared:
                shared[core] = builder.node(f"light:{core}")
                builder.arc(shared[core], background, 1, busy * mean_gain, terms={"shared core": busy * mean_gain})
    for k, (candidate, steps) in enumerate(zip(candidates, gains, strict=True)):
        for core in node.cores:
            for seat in _seats(moment, candidate, core, full, shared):
                arc = builder.arc(task_nodes[k], seat, 1, harms[k], terms={"interference": harms[k]})
                task_arcs.append((arc, k, core))
        unscheduled = builder.node(f"unscheduled:{candidate.task.name}")
        builder.arc(task_nodes[k], unscheduled, count)
        for level, value in enumerate(steps):
            first = 0.0
            if level == 0:
                first = candidate.waiting + (dearest + _MUST_RUN if candidate.due else 0.0)
            builder.arc(unscheduled, sink, 1, value + first, terms={"progress": value, "waiting": first})
    return SeatNetwork(builder.build(sink), tuple(task_arcs), tuple(service_arcs))


def _seats(
    moment: Moment, candidate: Candidate, core: int, full: Mapping[int, int], light: Mapping[int, int]
) -> Iterator[int]:
    """Nodes of the seats of a core that a task may have."""
    shares = candidate.task.shares
    if core in full and (shares or core in moment.apart.room):
        yield full[core]
    if core in light and (shares or core in moment.apart.never_served):
        yield light[core]


def _gains(moment: Moment, around: Arrangement, k: int) -> list[float]:
    """Value per second that each further core brings task ``k``: not rising, beside the present neighbours' pressure."""
    candidate = moment.candidates[k]
    node = moment.node
    taken = [c for cores in moment.service_cores(around) for c in cores]
    order = [c for c in node.cores if c not in taken] + [c for c in node.cores if c in taken]
    if not candidate.task.shares:
        order = [c for c in order if c in moment.apart.room]
        if not order:
            return [0.0]
    most = min(candidate.task.threads, len(order))
    felt = _felt(moment, around, k)
    host = moment.host(around)
    before, gains = 0.0, []
    lowest = float("inf")
    for n in range(1, most + 1):
        occupant = candidate.occupant(tuple(sorted(order[:n])))
        rate = host.rates((occupant,)).progress[occupant] / candidate.task.scale / felt
        lowest = max(0.0, min(lowest, (rate - before) * candidate.value))
        gains.append(lowest)
        before = max(before, rate)
    return gains


def _felt(moment: Moment, around: Arrangement, k: int) -> float:
    """Slow-down of task ``k`` by the present pressure of the others, relative to none."""
    node = moment.node
    job = node.catalogue.jobs[moment.candidates[k].task.profile]
    bandwidth = node.catalogue.machine_types[node.machine_type].bandwidth
    pressure = sum(
        node.catalogue.jobs[c.task.profile].pressure * used
        for i, (c, used) in enumerate(zip(moment.candidates, moment.busy(around), strict=True))
        if i != k
    )
    return 1.0 + job.sensitivity * bandwidth * pressure


def _harms(moment: Moment, around: Arrangement) -> list[float]:
    """Value per second that the others lose to one busy CPU of each task."""
    node = moment.node
    bandwidth = node.catalogue.machine_types[node.machine_type].bandwidth
    jobs = [node.catalogue.jobs[c.task.profile] for c in moment.candidates]
    rates = moment.rates(around)
    hurt = [
        c.value * r * job.sensitivity * bandwidth / _felt(moment, around, k)
        for k, (c, r, job) in enumerate(zip(moment.candidates, rates, jobs, strict=True))
    ]
    total = sum(hurt)
    return [job.pressure * (total - own) for job, own in zip(jobs, hurt, strict=True)]
