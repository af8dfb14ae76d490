"""One moment of a machine as the network sees it, and what an arrangement is worth then."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

from flowsched.node.allocation import DEFAULT_WEIGHT, LOWEST_WEIGHT
from flowsched.node.apart import Apart
from flowsched.node.arrangement import Arrangement, Cores
from flowsched.node.node import Node, NodeService, NodeTask
from flowsched.node.service_error import deciding_about
from flowsched.node.settings import NodeSettings
from flowsched.node.slo import SloPrice
from flowsched_models.runtime import Host, HostFactory, Occupant, Rates, ServiceLoad, Stage

_LOAD_STEP = 5000.0
"""Loads are rounded up to this, in queries per second, where batch progress is asked for: hosts are shared then."""
LEAST_LEFT = 0.05
"""Share of every core that Linux keeps for ordinary tasks, whatever is owed to others."""
Piece = tuple[str, Stage]
"""The work of a task at one of its stages."""


@dataclass(frozen=True)
class Candidate:
    """A task at its present stage."""

    task: NodeTask
    stage: Stage
    value: float
    """Seconds of makespan that a unit of its progress is worth."""
    waiting: float = 0.0
    """What it is worth to run at all, per second."""
    due: bool = False

    @property
    def weight(self) -> float:
        """CPU weight that it runs at."""
        return LOWEST_WEIGHT if self.task.shares else DEFAULT_WEIGHT

    def occupant(self, cores: Cores) -> Occupant:
        """The task as its neighbours feel it."""
        return Occupant(self.task.profile, self.stage, self.task.threads, cores, self.weight)


@dataclass(frozen=True, eq=False)
class Moment:
    """Tasks, services and their loads."""

    node: Node
    settings: NodeSettings
    hosts: HostFactory
    candidates: tuple[Candidate, ...]
    services: tuple[NodeService, ...]
    qps: tuple[float, ...]
    """Load to be ready for, by service."""
    owed: float = 0.0
    """CPUs of bandwidth that admitted critical tasks take from all cores alike."""
    gone: frozenset[str] = frozenset()
    """Services that are not running: their cores are free for all."""
    _worth: dict[Arrangement, float] = field(init=False, default_factory=dict, repr=False)
    _costs: dict[tuple[int, int, float], float] = field(init=False, default_factory=dict, repr=False)
    _host_of: dict[tuple[int, ...], Host] = field(init=False, default_factory=dict, repr=False)

    @property
    def stages(self) -> tuple[Piece, ...]:
        """Every task with its stage."""
        return tuple((c.task.name, c.stage) for c in self.candidates)

    @cached_property
    def slo(self) -> tuple[SloPrice, ...]:
        """Prices of the services' cores."""
        return tuple(SloPrice(self.node.catalogue, self.node.machine_type, s, self.settings) for s in self.services)

    def service_cores(self, arrangement: Arrangement) -> tuple[Cores, ...]:
        """Virtual CPUs of each service."""
        return tuple(s.cores[:k] for s, k in zip(self.services, arrangement.services, strict=True))

    @cached_property
    def apart(self) -> Apart:
        """Tasks that may not share a core with a service."""
        return Apart(self.node.cores, self.services, tuple(c.task.shares for c in self.candidates), self.gone)

    def host(self, arrangement: Arrangement) -> Host:
        """The machine with its services as they are arranged."""
        if (counts := arrangement.services) not in self._host_of:
            loads = tuple(
                ServiceLoad(s.profile, s.cores[:k], s.threads, s.weight, _LOAD_STEP * -(-q // _LOAD_STEP), s.client)
                for s, k, q in zip(self.services, counts, self.qps, strict=True)
            )
            self._host_of[counts] = self.hosts.host(self.node.machine_type, loads)
        return self._host_of[counts]

    def rates(self, arrangement: Arrangement) -> tuple[float, ...]:
        """Progress per second of every candidate; 0 for who waits."""
        occupants, rates = self._together(arrangement)
        free = max(LEAST_LEFT, 1.0 - self.owed / len(self.node.cores))
        return tuple(
            0.0 if o is None else rates.progress[o] / c.task.scale * free
            for o, c in zip(occupants, self.candidates, strict=True)
        )

    def busy(self, arrangement: Arrangement) -> tuple[float, ...]:
        """CPUs that every candidate uses."""
        occupants, rates = self._together(arrangement)
        return tuple(0.0 if o is None else rates.busy[o] for o in occupants)

    def background(self, arrangement: Arrangement) -> tuple[float, ...]:
        """Of each service, the share of its cores on which tasks run."""
        used = {c for cores in arrangement.tasks for c in cores}
        return tuple(sum(c in used for c in cores) / len(cores) for cores in self.service_cores(arrangement))

    def slo_cost(self, arrangement: Arrangement) -> float:
        """Seconds of batch work per second that the services' goals cost."""
        total = 0.0
        for s, (cores, background) in enumerate(zip(arrangement.services, self.background(arrangement), strict=True)):
            total += self._goal_cost(s, cores, background)
        return total

    def goal_cost(self, arrangement: Arrangement, service: int) -> float:
        """The part of :meth:`slo_cost` that is one service's, by index."""
        return self._goal_cost(service, arrangement.services[service], self.background(arrangement)[service])

    def crowd_cost(self, arrangement: Arrangement) -> float:
        """Seconds of batch work per second that tasks cost each other by being on the same cores."""
        seats = [c for cores in arrangement.tasks for c in cores]
        return self.settings.crowd_price * (len(seats) - len(set(seats)))

    def worth(self, arrangement: Arrangement) -> float:
        """Exact value per second under the models: progress at its prices, waits that end, less what the goals cost."""
        found = self._worth.get(arrangement)
        if found is None:
            found = -self.slo_cost(arrangement) - self.crowd_cost(arrangement)
            for candidate, rate, cores in zip(self.candidates, self.rates(arrangement), arrangement.tasks, strict=True):
                found += candidate.value * rate + (candidate.waiting if cores else 0.0)
            self._worth[arrangement] = found
        return found

    def allowed(self, arrangement: Arrangement) -> bool:
        """Whether all overdue tasks run, no task shares that may not, and no core is claimed by two services except a first
        core where there are too few.
        """
        claimed = [c for cores in self.service_cores(arrangement) for c in cores]
        first = [s.cores[0] for s in self.services]
        due = all(cores for cores, c in zip(arrangement.tasks, self.candidates, strict=True) if c.due)
        return due and self.apart.kept(arrangement) and len(claimed) - len(set(claimed)) <= len(first) - len(set(first))

    def disjoint(self, counts: tuple[int, ...]) -> tuple[int, ...]:
        """These numbers of cores of each service, or one for each where two services would have the same core."""
        claimed = [c for s, k in zip(self.services, counts, strict=True) for c in s.cores[:k]]
        return counts if len(claimed) == len(set(claimed)) else (1,) * len(counts)

    def _goal_cost(self, service: int, cores: int, background: float) -> float:
        key = (service, cores, background)
        if key not in self._costs:
            with deciding_about(self.services[service].name):
                self._costs[key] = self.slo[service].cost(cores, self.qps[service], background)
        return self._costs[key]

    def _together(self, arrangement: Arrangement) -> tuple[list[Occupant | None], Rates]:
        """Every candidate as its neighbours feel it, None for who waits, and how fast they are."""
        pairs = zip(self.candidates, arrangement.tasks, strict=True)
        occupants = [c.occupant(cores) if cores else None for c, cores in pairs]
        present = tuple(sorted((o for o in occupants if o is not None), key=_order))
        return occupants, self.host(arrangement).rates(present)


def _order(o: Occupant) -> tuple[str, int, int, Cores, float]:
    return o.profile, int(o.stage), o.threads, o.cores, o.weight
