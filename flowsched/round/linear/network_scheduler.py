"""Rounds at linear prices as a scheduler of a cluster's state, whatever the cost model."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, replace
from functools import cache, partial
from operator import attrgetter
from typing import Any

import numpy as np

from flowsched.cluster.cluster_state import ClusterState
from flowsched.cluster.decision import Certificate, Decisions, Placement, Postponement
from flowsched.cluster.settings import Settings
from flowsched.cluster.settings_form import CHANGE_SETTINGS
from flowsched.cluster.snapshot import Snapshot, cores_beside
from flowsched.cluster.state_rows import StateRows
from flowsched.cluster.task_class import MachineKind, MachineSpec, TaskClass
from flowsched.cluster.task_rows import RUNNING
from flowsched.errors import EventError
from flowsched.pricing.linear.policies.flow import FlowCostModel
from flowsched.pricing.linear.policy import CostModel
from flowsched.round.linear.changed_round import changed_round
from flowsched.round.linear.choice import GuardedCostModel, shown_settings, user_name
from flowsched.round.linear.cluster_rows import ClusterRows
from flowsched.round.linear.level_record import linear_record
from flowsched.round.linear.linear_changes import LinearChanges, history_of, named_reservations
from flowsched.round.linear.linear_round import RoundOutcome, Rounds, RoundSettings
from flowsched.round.linear.machine_reservation import MachineReservation
from flowsched.round.linear.network_trace import NetworkTrace, RoundGiven, RoundHead
from flowsched.round.linear.placed_costs import PlacedCosts
from flowsched.round.linear.priced_rows import PricedRows
from flowsched.round.linear.reasons import Closing, leaving, why_all
from flowsched.round.running_changes import ChangedDecisions, change_running
from flowsched.round.wait_reasons import Reason
from flowsched.solvers import Solver, make_solver
from flowsched.solvers.limited import limited, take_stopped, unlimited
from flowsched.support.arrays import FloatArray, IntArray
from flowsched.support.stage_timer import StageTimer
from flowsched_models.document import InputError
from flowsched_models.runtime import HostFactory

_USUAL = Settings()


class NetworkScheduler:
    """One cost model in every round. It follows the events of a state, so a round looks at what is different; what it
    decides depends on what the state is alone.

    A task that may have several widths gets the narrowest. Relations and task groups are kept.
    """

    def __init__(
        self,
        policy: CostModel,
        solver: Solver,
        settings: RoundSettings | None = None,
        *,
        hosts: HostFactory | None = None,
        keep_records: bool = False,
        headroom_weight: float = _USUAL.headroom_weight,
        slo_margin: float = _USUAL.slo_margin,
        clock: Callable[[], float] = time.perf_counter,
        changes: Settings | None = None,
    ) -> None:
        """``hosts`` may be shared with others that use the same profiles; ``headroom_weight`` and ``slo_margin`` as in
        :class:`Settings`; ``clock`` only times stages. ``changes``: what may become of running tasks; nothing by default.
        """
        self._policy = GuardedCostModel(policy)
        self._solver = solver
        self._settings = settings or RoundSettings()
        self._keep_records = keep_records
        self._clock = clock
        prepare()
        self._changes = changes or _USUAL
        self.model: Mapping[str, Any] = {"name": self.name, "settings": shown_settings(policy)}
        """Its cost model as records have it."""
        self._services = {"headroom_weight": headroom_weight, "slo_margin": slo_margin}
        self._make_rows = partial(PricedRows, self._policy, headroom_weight, slo_margin, hosts)
        self._rows = self._make_rows()
        self._rounds: Rounds | None = None

    @property
    def name(self) -> str:
        """The name by which users choose the policy."""
        return user_name(self._policy.name)

    def decide(self, snapshot: Snapshot) -> Decisions:
        """One round on a state that is loaded from a snapshot. Raises as :meth:`decide_on` does."""
        with self._told():
            state = ClusterState.of(snapshot)
        return self.decide_on(state, snapshot.now_s)

    def decide_on(self, state: ClusterState, now_s: float) -> Decisions:
        """One round. Raises :class:`InputError` for what network rounds cannot keep and for a policy that fails or whose
        prices are none, and ``RuntimeError`` if the solver refuses a network.
        """
        timer = StageTimer(self._clock)
        began = self._clock()
        timer.start("snapshot")
        take_stopped(self._solver)
        with self._told():
            cluster = self._rows.catch_up(state.rows)
        if self._rounds is None or self._rounds.cluster is not cluster:
            self._rounds = Rounds(cluster, self._solver, self._settings, clock=self._clock)
        before = tuple(
            MachineReservation.of(cluster, cluster.tasks.row(r.task), cluster.row(r.machine), r.start_s)
            for r in sorted(state.reservations, key=attrgetter("task", "machine"))
        )
        self._rounds.reservations = before
        timer.start(None)
        outcome = self._rounds.decide(now_s)
        timer.ms.update(outcome.timings_ms)
        timer.start("read off")
        closing = Closing.of(cluster, outcome.tasks, outcome.machines)
        bound = _placements(state, cluster, outcome.tasks, outcome.machines, outcome.cost, closing)
        reasons = why_all(now_s, cluster, outcome, closing)
        left = _postponements(now_s, cluster, outcome, reasons)
        may_preempt, may_move = self._changes.preempts, bool(self._changes.migration_moves)
        decided = ChangedDecisions(
            bound,
            left,
            named_reservations(cluster, outcome.reservations),
            () if may_preempt else None,
            () if may_move else None,
        )
        changed: ChangedDecisions | None = None
        if self._changes.changes_running and self._may_change(cluster, outcome):
            timer.start("changes")
            changed = self._change(state, now_s, cluster, outcome, decided)
            decided = changed
        timer.start(None)
        total = (self._clock() - began) * 1e3
        timer.start("certify")
        certificate = named_certificate(cluster, outcome)
        timer.start(None)
        timings = {name: ms for name, ms in timer.ms.items() if name not in ("decide", "certify")}
        timings |= {"gather": timer.ms.get("decide", 0.0), "decide": total, "certify": timer.ms["certify"]}
        stopped = take_stopped(self._solver)
        recipe = None
        if self._keep_records:
            name, solver = self.name, unlimited(self._solver).name
            head = RoundHead(state.round, now_s, name, solver, self._settings, self.upkeep(), timings, stopped, changed)
            costs = PlacedCosts.in_turn(outcome, closing)
            given = RoundGiven(state.snapshot(now_s), self.model, self.read_settings())
            trace = NetworkTrace.of(self._rounds, outcome, reasons, costs, head, given)
            recipe = partial(linear_record, trace)
        return Decisions(
            decided.placements,
            decided.postponements,
            decided.reservations,
            lambda: certificate,
            recipe,
            timings,
            stopped,
            preemptions=decided.preemptions,
            moves=decided.moves,
        )

    def _may_change(self, cluster: ClusterRows, outcome: RoundOutcome) -> bool:
        """Whether anything might move, or a task waits beside one of lower priority."""
        if self._changes.migration_moves:
            return True
        priority = cluster.classes.table().priority
        there = np.concatenate([np.flatnonzero(cluster.tasks.state == RUNNING), outcome.tasks])
        highest = priority[cluster.tasks.task_class[outcome.waits]].max(initial=-(1 << 62))
        return bool(highest > priority[cluster.tasks.task_class[there]].min(initial=1 << 62))

    def _change(
        self, state: ClusterState, now_s: float, cluster: ClusterRows, outcome: RoundOutcome, before: ChangedDecisions
    ) -> ChangedDecisions:
        """What becomes of the round, on rows that are laid out anew: those that are kept depend on the rounds before."""
        snapshot = state.snapshot(now_s)
        fresh = self._make_rows().catch_up(StateRows.of(snapshot))

        def rows(tasks: IntArray) -> IntArray:
            return np.array([fresh.tasks.row(cluster.tasks.name(row)) for row in tasks.tolist()], dtype=np.int64)

        machines = [fresh.row(cluster.machines.name(row)) for row in outcome.machines.tolist()]
        pricer = LinearChanges(
            fresh,
            rows(outcome.tasks),
            np.array(machines, dtype=np.int64),
            rows(outcome.waits),
            self._solver,
            self._changes,
            now_s,
            history_of(snapshot.running),
            rows(outcome.must_start if self._settings.aging_crosses_priority else outcome.must_start[:0]),
        )
        changes = change_running(pricer, before.reservations, self._changes)
        starting, closing, cost = pricer.started()
        bound = _placements(state, fresh, starting, pricer.cluster.tasks.machine[starting], cost, closing)
        return changed_round(snapshot, pricer, changes, bound, before.postponements, before.reservations, self._changes)

    def read_settings(self) -> dict[str, Any]:
        """All settings that it reads, beside those of its cost model."""
        changes = {name: getattr(self._changes, name) for name in CHANGE_SETTINGS}
        return {**asdict(self._settings), **self._services, **changes}

    def upkeep(self) -> dict[str, dict[str, int]]:
        """What happened since the round before: applied in place, or made anew, with the reasons."""
        found = self._rows.upkeep.plain()
        if self._rounds is not None:
            for kind, counts in self._rounds.compaction.upkeep.plain().items():
                found[kind] |= {f"groups.{name}": count for name, count in counts.items()}
        return found

    @contextmanager
    def _told(self) -> Iterator[None]:
        """What contradicts itself, or cannot be priced, is a mistake of the input."""
        try:
            yield
        except EventError as error:
            raise InputError.one("--policy", str(error), key=self.name) from error


def _placements(
    state: ClusterState, cluster: ClusterRows, rows: IntArray, machines: IntArray, costs: FloatArray, closing: Closing
) -> tuple[Placement, ...]:
    classes = cluster.tasks.task_class[rows]
    terms = closing.terms(classes, machines)
    columns = {name: values.tolist() for name, values in terms.items() if values.any()}
    cores: dict[str, tuple[int, ...]] = {}
    found = []
    for i, (row, at, c, cost) in enumerate(
        zip(rows.tolist(), machines.tolist(), classes.tolist(), costs.tolist(), strict=True)
    ):
        task, machine = state.waiting(cluster.tasks.name(row)), cluster.machines.name(at)
        assert task is not None, "a round starts what waits"
        if machine not in cores:
            here = state.on(machine)
            cores[machine] = cores_beside(here.machine, here.services)
        threads = task.threads_on(len(cores[machine]), state.catalogue.jobs[task.profile])
        width, paid = cluster.classes[c].width_milli, {name: v[i] for name, v in columns.items()}
        found.append(Placement(task.name, machine, width, threads, cores[machine], cost, paid))
    return tuple(found)


def named_certificate(cluster: ClusterRows, outcome: RoundOutcome) -> Certificate | None:
    """The certificate with prices by the first task of each class: its number depends on what was there before."""
    certificate = outcome.certificate
    if certificate is None:
        return None
    prices: dict[str, float] = {}
    for level, found in zip(outcome.levels, outcome.bounds, strict=True):
        waiting = level.waiting
        for c, first in zip(waiting.classes.tolist(), waiting.tasks[waiting.first[:-1]].tolist(), strict=True):
            prices[cluster.tasks.name(first)] = float(found.prices[c])
    return replace(certificate, prices=prices)


def _postponements(
    now_s: float, cluster: ClusterRows, outcome: RoundOutcome, reasons: Mapping[int, Reason]
) -> tuple[Postponement, ...]:
    cost = leaving(cluster, outcome)
    return tuple(
        Postponement(
            cluster.tasks.name(row),
            reasons[row].text,
            now_s - float(cluster.tasks.created_s[row]),
            float(cost[row]),
            {"waiting": float(cost[row])},
        )
        for row in outcome.waits.tolist()
    )


@cache
def prepare() -> None:
    """Load the compiled code of rounds, or compile it (up to a minute, once), before the first round."""
    cluster = ClusterRows.of(FlowCostModel())
    cluster.add_machines([MachineSpec("m", MachineKind("type"), {"cpu": 2, "memory": 2})])
    one = cluster.intern(TaskClass("c", 1, sensitivity=1.0, pressure=1.0))
    cluster.submit(np.full(2, one), np.zeros(2))
    outcome = Rounds(cluster, make_solver("ortools")).decide(0.0)
    cluster.bind(outcome.tasks, outcome.machines)
    _ = outcome.bounds


def solve_network_round(
    snapshot: Snapshot,
    policy: CostModel,
    *,
    settings: Settings | None = None,
    solver: str = "ortools",
    time_limit_s: float | None = None,
    exact: bool = False,
) -> Decisions:
    """One round of a cost model on a snapshot, with its record. Of ``settings`` the due age and what concerns services
    count. ``exact``: rounds of at most ``exact_tasks`` tasks are decided by CP-SAT.

    Raises as :meth:`NetworkScheduler.decide` does, and ``KeyError`` for a solver that there is not.
    """
    settings = settings or Settings()
    scheduler = NetworkScheduler(
        policy,
        limited(make_solver(solver), time_limit_s),
        RoundSettings(
            due_age_s=settings.due_age_s,
            scoring=settings.scoring,
            exact_tasks=settings.exact_tasks if exact else 0,
            drain=settings.drain,
            aging_crosses_priority=settings.aging_crosses_priority,
        ),
        keep_records=True,
        headroom_weight=settings.headroom_weight,
        slo_margin=settings.slo_margin,
        changes=settings,
    )
    return scheduler.decide(snapshot)
