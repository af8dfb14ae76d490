"""Brings the metrics up to date with what happened since they were last asked for."""

from __future__ import annotations

import logging
import math
from collections import Counter
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field
from typing import Any

from flowsched_k8s.api.reflector import Reflector, State
from flowsched_k8s.api.writer import Writer
from flowsched_k8s.bindings.turns import Turns
from flowsched_k8s.learning.learning_metrics import LearningMetrics
from flowsched_k8s.metrics.metrics import Metrics
from flowsched_k8s.pauses import REASONS, Pauses
from flowsched_k8s.records.records import Records
from flowsched_k8s.rounds.round_input import RoundInput, RoundResult
from flowsched_k8s.services.grant import CLAIMS
from flowsched_k8s.services.load_reader import LoadReader
from flowsched_k8s.state import SchedulerState
from flowsched_k8s.watched import NEEDED

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
    _turns: Mapping[str, Turns[Any]]
    """Of the requests, by their kind."""
    _pauses: Pauses
    _clock: Callable[[], float]
    _learning: LearningMetrics | None = None
    _watch_counts: dict[str, int] = field(default_factory=dict)
    _told: Counter[Hashable] = field(default_factory=Counter)
    _rounds: list[tuple[RoundResult, str, float]] = field(default_factory=list)
    """With the solver's name and the seconds that each took."""

    def update(self, *, leading: bool) -> None:
        """Everything as it is now."""
        state, metrics = self._state, self._metrics
        profile = state.configuration.scheduler_names[0]
        for place, pods in state.queue.sizes().items():
            metrics.gauge("scheduler_pending_pods", place).set(pods)
        for (queue, event), count in state.queue.incoming.items():
            if new := self._new((queue, event), count):
                metrics.counter("scheduler_queue_incoming_pods_total", queue, event).inc(new)
        metrics.unschedulable({(cause, profile): n for cause, n in state.queue.unschedulable().items()})
        metrics.gauge("flowsched_postponed_pods").set(len(state.waiting.postponed))
        metrics.gauge("flowsched_estimated_pods").set(len(state.starts))
        waits_s = state.starts.waits_s(self._clock())
        for share in (0.5, 0.9, 1.0):
            wait_s = waits_s[math.ceil(share * len(waits_s)) - 1] if len(waits_s) else math.nan
            metrics.gauge("flowsched_estimated_wait_seconds", f"{share:g}").set(wait_s)
        metrics.gauge("flowsched_gang_waiting").set(state.gangs.count())
        lease = state.configuration.leader_election.resource_name
        metrics.gauge("leader_election_master_status", lease).set(leading)
        assumed = sum(1 for e in state.cache.pods.values() if e.assumed and not e.node) if state.active else 0
        sizes = {"nodes": len(state.cache.nodes), "pods": len(state.cache.pods), "assumed": assumed}
        for kind, size in sizes.items():
            metrics.gauge("scheduler_cache_size", kind).set(size)
        dropped = self._writer.event_counts.dropped + state.recorder.suppressed["rate"]
        metrics.counter("flowsched_events_dropped_total").inc(self._new("events", dropped))
        for reason, count in self._records.dropped().items():
            metrics.counter("flowsched_records_dropped_total", reason).inc(self._new(("records", reason), count))
        metrics.gauge("flowsched_stale_metrics_nodes").set(self._load_reader.stale_nodes())
        claimed = Counter(claim for claims in state.cache.services.beyond.values() for claim in claims)
        for claim in CLAIMS:
            metrics.gauge("flowsched_services_beyond_grant", claim).set(claimed[claim])
        for kind, turns in self._turns.items():
            for age, requests in turns.by_age(self._clock()).items():
                metrics.gauge("flowsched_requests_without_outcome", kind, age).set(requests)
        for reason in REASONS:
            metrics.gauge("flowsched_rounds_paused", reason).set(reason in self._pauses.now)
        for name in NEEDED:
            metrics.gauge("flowsched_watch_age_seconds", name).set(self._reflectors[name].age)
        for name, reflector in self._reflectors.items():
            lists = reflector.counts.lists
            if reflector.state is State.SYNCED:
                if again := lists - self._watch_counts.get(name, lists):
                    metrics.counter("flowsched_watch_restarts_total", name, "relist").inc(again)
                self._watch_counts[name] = lists
            else:
                # Looking again for an API that is not there is no restart, nor is finding it.
                self._watch_counts.pop(name, None)
        self._tell_tallies()
        if self._learning is not None:
            self._learning.update()
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
        metrics.histogram("scheduler_scheduling_algorithm_duration_seconds").observe(took)
        for phase, ms in result.timings_ms.items():
            metrics.histogram("flowsched_round_duration_seconds", phase).observe(ms / 1e3)
        if result.solve_ms > 0.0:
            metrics.histogram("flowsched_solve_duration_seconds", solver, "full").observe(result.solve_ms / 1e3)
        else:
            metrics.not_solved(solver)
        nodes = {k.removeprefix("nodes_"): n for k, n in result.counts.items() if k.startswith("nodes_")}
        arcs = {k.removeprefix("arcs_"): n for k, n in result.counts.items() if k.startswith("arcs_")}
        if nodes:
            metrics.graph(nodes, arcs)
        # Nothing is kept between rounds: every network is built anew.
        if solves := result.counts.get("solves", 0):
            metrics.counter("flowsched_graph_rebuilds_total", "every_round").inc(solves)
        for reason in result.fallbacks:
            metrics.counter("flowsched_solver_fallbacks_total", reason).inc()
        metrics.gauge("flowsched_placement_cost").set(result.cost)

    def _tell_tallies(self) -> None:
        tallies, metrics = self._state.tallies, self._metrics
        for result, seconds, name in tallies.attempts:
            metrics.attempt(result, seconds, name)
        for waited, attempts in tallies.bound:
            metrics.bound(0.0, attempts, waited)
        for outcome, count in tallies.binds.items():
            metrics.counter("flowsched_binds_total", outcome).inc(count)
        for reason, count in tallies.rejections.items():
            metrics.kubelet_rejected(reason, count)
        for (purpose, outcome), count in tallies.moves.items():
            metrics.counter("flowsched_rebalancing_moves_total", purpose, outcome).inc(count)
        for judged in tallies.start_outcomes:
            metrics.forecast_judged(judged)
        for victims in tallies.victims:
            metrics.preemption(victims)
        for told in vars(tallies).values():
            told.clear()
