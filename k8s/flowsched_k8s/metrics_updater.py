"""Brings the metrics up to date with what happened since they were last asked for."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field
from typing import Any

from flowsched_k8s.api.reflector import Reflector, State
from flowsched_k8s.api.writer import Writer
from flowsched_k8s.load_reader import LoadReader
from flowsched_k8s.metrics import Metrics
from flowsched_k8s.records import Records
from flowsched_k8s.round_input import RoundInput, RoundResult
from flowsched_k8s.state import SchedulerState

LOG = logging.getLogger(__name__)


@dataclass(eq=False)
class MetricsUpdater:
    """Of one process."""

    _metrics: Metrics
    _state: SchedulerState
    _writer: Writer
    _records: Records
    _reflectors: Mapping[str, Reflector[Any]]
    _load_reader: LoadReader
    _watch_counts: dict[str, int] = field(default_factory=dict)
    _told: Counter[Hashable] = field(default_factory=Counter)
    _rounds: list[tuple[RoundResult, str, float]] = field(default_factory=list)
    """With the solver's name and the seconds that each took."""

    def update(self, *, leading: bool) -> None:
        """Everything as it is now."""
        state, metrics = self._state, self._metrics
        profile = state.configuration.scheduler_names[0]
        metrics.queue_sizes(state.queue.sizes())
        for (queue, event), count in state.queue.incoming.items():
            if new := self._new((queue, event), count):
                metrics.incoming(queue, event, new)
        metrics.unschedulable({(cause, profile): n for cause, n in state.queue.unschedulable().items()})
        metrics.postponed(len(state.postponed))
        metrics.gangs_waiting(state.gangs.count())
        metrics.leader(state.configuration.leader_election.resource_name, leading)
        assumed = sum(1 for e in state.cache.pods.values() if e.assumed and not e.node) if state.active else 0
        metrics.cache_size(len(state.cache.nodes), len(state.cache.pods), assumed)
        metrics.events_dropped(
            self._new("events", self._writer.event_counts.dropped + state.recorder.suppressed["rate"])
        )
        for reason, count in self._records.dropped().items():
            metrics.records_dropped(reason, self._new(("records", reason), count))
        metrics.stale_nodes(self._load_reader.stale_nodes())
        for name, reflector in self._reflectors.items():
            lists = reflector.counts.lists
            if reflector.state is State.SYNCED:
                for _ in range(self._watch_counts.get(name, lists), lists):
                    metrics.watch_restarted(name, "relist")
                self._watch_counts[name] = lists
            else:
                # Looking again for an API that is not there is no restart, nor is finding it.
                self._watch_counts.pop(name, None)
        self._tell_tallies()
        for ended in self._rounds:
            self._count_round(*ended)
        self._rounds.clear()

    def _new(self, what: Hashable, count: int) -> int:
        """How many more there are than at the last call."""
        new, self._told[what] = count - self._told[what], count
        return new

    def tell_round(self, given: RoundInput, result: RoundResult, solver: str, took: float) -> None:
        """A round has ended, after ``took`` seconds. :meth:`update` counts it: many at once take less time."""
        self._rounds.append((result, solver, took))
        # A pod that came alone and got its place is one line of those that `-v` shows, as its binding is.
        alone = len(result.chosen) == 1 and not result.held
        LOG.log(
            logging.DEBUG if alone else logging.INFO,
            "round",
            extra={
                "round": result.number,
                "pods": sum(len(c.uids) for c in given.classes),
                "classes": len(given.classes),
                "placed": len(result.chosen),
                "held": sum(len(h.uids) for h in result.held),
                "ms": round(took * 1e3, 1),
            },
        )

    def _count_round(self, result: RoundResult, solver: str, took: float) -> None:
        metrics = self._metrics
        metrics.decided(took)
        for phase, ms in result.timings_ms.items():
            metrics.phase(phase, ms / 1e3)
        if result.solve_ms > 0.0:
            metrics.solved(solver, "full", result.solve_ms / 1e3)
        else:
            metrics.not_solved(solver)
        nodes = {k.removeprefix("nodes_"): n for k, n in result.counts.items() if k.startswith("nodes_")}
        arcs = {k.removeprefix("arcs_"): n for k, n in result.counts.items() if k.startswith("arcs_")}
        if nodes:
            metrics.graph(nodes, arcs)
        # Nothing is kept between rounds: every network is built anew.
        for _ in range(result.counts.get("solves", 0)):
            metrics.graph_rebuilt("every_round")
        for reason in result.fallbacks:
            metrics.fell_back(reason)
        metrics.placement_cost(result.cost)

    def _tell_tallies(self) -> None:
        tallies, metrics = self._state.tallies, self._metrics
        for result, seconds, name in tallies.attempts:
            metrics.attempt(result, seconds, name)
        for waited, attempts in tallies.bound:
            metrics.bound(0.0, attempts, waited)
        for outcome, count in tallies.binds.items():
            for _ in range(count):
                metrics.bind_sent(outcome)
        for reason, count in tallies.rejections.items():
            for _ in range(count):
                metrics.kubelet_rejected(reason)
        for (purpose, outcome), count in tallies.moves.items():
            metrics.moved(purpose, outcome, count)
        for victims in tallies.victims:
            metrics.preemption(victims)
        tallies.attempts.clear()
        tallies.bound.clear()
        tallies.binds.clear()
        tallies.rejections.clear()
        tallies.moves.clear()
        tallies.victims.clear()
