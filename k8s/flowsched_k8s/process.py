"""The running scheduler: watches feed the state machine, rounds run in a thread, its instructions are carried out.

One event loop does all input and output but the renewal of the lease, which has a thread of its own; a round's arithmetic
happens elsewhere, on a copy, unless it is shorter than the way to a thread and back. Losing the lease ends the process:
every write asks right before it is sent whether we still lead.
"""

from __future__ import annotations

import asyncio
import logging
import math
import os
import random
import signal
import socket
import sys
import time
from collections import deque
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import replace
from functools import partial
from importlib.metadata import version
from threading import Thread
from typing import Any

from flowsched.round.scheduler import FlowScheduler, prepare_gpus
from flowsched.solvers import make_solver
from flowsched.support.collector import CollectBetweenRounds
from flowsched_k8s import names
from flowsched_k8s.api import login
from flowsched_k8s.api.access import Access, one_line
from flowsched_k8s.api.client import ApiError, Connection, UnreachableError
from flowsched_k8s.api.election import Election, Times
from flowsched_k8s.api.election_thread import ElectionThread
from flowsched_k8s.api.outage import Outage
from flowsched_k8s.api.rate_limit import RateLimit
from flowsched_k8s.api.reflector import Reflector, State
from flowsched_k8s.api.writer import Result, WriteOutcome, Writer
from flowsched_k8s.bindings.bindings import BindOutcome, ReadPod
from flowsched_k8s.bindings.sender import Sender
from flowsched_k8s.bindings.turns import Turn, Turns
from flowsched_k8s.changes import Gone, Seen
from flowsched_k8s.configuration.configuration import Configuration
from flowsched_k8s.configuration.profiles_file import ProfilesFile, first_profiles
from flowsched_k8s.events.event_file import EventFile
from flowsched_k8s.events.event_recorder import EventRecorder
from flowsched_k8s.groups.pod_groups import IN_TREE
from flowsched_k8s.http.health import Health, without
from flowsched_k8s.http.server import Answers, Server
from flowsched_k8s.instructions import (
    Bind,
    Evict,
    GroupStatus,
    Instruction,
    MovePod,
    PatchClaim,
    PatchCondition,
    PatchEstimate,
    PodKey,
    PostEvent,
    Resize,
    TaintNode,
    namespace_of,
)
from flowsched_k8s.learning.learning_metrics import LearningMetrics
from flowsched_k8s.learning.learnt_keeper import LearntKeeper
from flowsched_k8s.metrics.metrics import Metrics
from flowsched_k8s.metrics.metrics_updater import MetricsUpdater
from flowsched_k8s.objects import FinishedPod
from flowsched_k8s.pauses import BINDINGS, NAMESPACES, STARTING, WATCH, Pauses
from flowsched_k8s.rebalancing.move_plan import MovePlan, confirmed, plan_moves
from flowsched_k8s.records.records import Records
from flowsched_k8s.records.state_dump import MOST, dump, encoded
from flowsched_k8s.rounds.planning import make_engine, plan_any_round
from flowsched_k8s.services.load_reader import LoadReader
from flowsched_k8s.state import SchedulerState
from flowsched_k8s.threads import Threads
from flowsched_k8s.watched import IN_TREE_VERSIONS, NEEDED, finished, watched
from flowsched_models.catalogue import Catalogue
from flowsched_models.document import InputError

LOG = logging.getLogger(__name__)

BACKLOG = 64
"""With more decided bindings than this waiting to be sent, the next round gathers more pods instead."""
PATCHERS = 16
"""Conditions under way at a time that are answered, and as many other instructions."""
CONNECTIONS = 512
"""Requests under way at a time: those that hang must not stop others."""
TICK_S = 1.0
COLLECT_EVERY_S = 180.0
NAMED = 5
"""Namespaces that a message names."""
SWITCH_S = 0.0005
"""How long a thread that decides or packs may keep the event loop waiting; Python's own is ten times as long."""
GRACE_S = 5.0
"""How long a stop waits for bindings and events that are under way."""
PROFILES_EVERY_S = 5.0
TIDY_EVERY_S = 300.0
LOOK_AGAIN_S = 2.0
"""Seconds after which these are asked for again: an API server that has just started refuses what it will soon allow."""
QUIET_S = 30.0
"""Seconds without an event after which the watch of nodes or pods is begun again: nothing else tells that it is alive."""
OPTIONAL_AGAIN_S = 15.0
"""The same for what a cluster may do without."""
OTHERS_FIRST = 3.0
"""For so many retry periods a replica that lacks a list leaves a free lease to those that lack none."""
LISTED_WITHIN_S = 5.0
"""How long the first round waits for lists that only some pods need."""
SAYING_S = 2.0
"""How long the end of the process waits for its last log line."""
NAMED_WITHIN_S = 2.0
"""How long pods wait for the lease to name them; then others come first, and it is tried again."""
LOST_LEASE = 1
"""Exit code after the lease was lost."""


def steady(wall: Callable[[], float], monotonic: Callable[[], float]) -> Callable[[], float]:
    """Seconds since 1970 that pass evenly: every wait is measured by them.

    The machine's clock is read once. It may be set forwards and back again later; if that were followed, every pod would
    have waited for hours.
    """
    ahead = wall() - monotonic()
    return lambda: monotonic() + ahead


def _uptime() -> float:
    """Seconds, also those for which the machine slept where the system counts them."""
    return time.clock_gettime(time.CLOCK_BOOTTIME) if hasattr(time, "CLOCK_BOOTTIME") else time.monotonic()


class Process:
    """One ``flowsched run``."""

    def __init__(
        self,
        configuration: Configuration,
        access: Access,
        *,
        identity: str | None = None,
        clock: Callable[[], float] | None = None,
        leave: Callable[[int], None] = os._exit,
    ) -> None:
        """Read the profiles; nothing is sent before :meth:`run`. Raises :class:`InputError` for profiles that are wrong."""
        self.configuration = configuration
        given_clock = clock
        self._clock = clock = given_clock or steady(time.time, _uptime)
        self._leave = leave
        self._profiles = ProfilesFile(configuration.profiles_file) if configuration.profiles_file else None
        catalogue = first_profiles(self._profiles)
        self.identity = identity or f"{socket.gethostname()}_{os.getpid()}_{os.urandom(4).hex()}"
        self.state = SchedulerState(configuration, catalogue, random.Random(self.identity))
        self.metrics = Metrics(version("flowsched"), configuration.scheduler_names)
        limits = configuration.client_connection
        connect = partial(
            Connection,
            access,
            user_agent=f"flowsched/{version('flowsched')}",
            on_request=self._count_request,
            outage=Outage(access.address),
        )
        self.connection = connect(connections=CONNECTIONS, limit=RateLimit(limits.qps, limits.burst))
        self._lease_connection = connect(connections=1)
        lease = configuration.leader_election
        self.election = Election(
            self._lease_connection,
            namespace=lease.resource_namespace,
            name=lease.resource_name,
            identity=self.identity,
            times=Times(lease.lease_duration_s, lease.renew_deadline_s, lease.retry_period_s),
            defers=self._defers,
            lives=lambda: self.health.lives(),
            note=self.state.suspects.note,
        )
        self._election_thread: ElectionThread | None = None
        self.leading = False
        self.writer = Writer(
            self.connection,
            reporting_controller=configuration.scheduler_names[0],
            reporting_instance=self.identity,
            dry_run=configuration.dry_run,
            may_write=self._may_write,
            event_queue=50_000,
            event_limit=RateLimit(limits.qps, limits.burst),
            clock=clock,
        )
        self.records = Records(configuration.records.keep, configuration.records.directory)
        self.reflectors: dict[str, Reflector[Any]] = {
            w.name: Reflector(
                self.connection,
                w.path,
                w.type,
                self._observe,
                selectors=w.selectors,
                reconcile_every=configuration.rounds.reconcile_every_s,
                on_difference=self._difference_counter(w.name),
                unavailable_retry=LOOK_AGAIN_S if w.name in NEEDED else OPTIONAL_AGAIN_S,
                quiet=QUIET_S if w.name in NEEDED else math.inf,
                longest_backoff=LOOK_AGAIN_S if w.name in NEEDED else OPTIONAL_AGAIN_S,
            )
            for w in watched(configuration)
        }
        self._finished = [
            Reflector(
                self.connection,
                w.path,
                w.type,
                self._learn,
                selectors=w.selectors,
                keeps=lambda pod: pod.stub,
                unavailable_retry=OPTIONAL_AGAIN_S,
                longest_backoff=OPTIONAL_AGAIN_S,
            )
            for w in finished(configuration)
        ]
        """No decision waits for these lists, and no other replica has them first."""
        self._learnt_keeper: LearntKeeper | None = None
        learning: LearningMetrics | None = None
        if self.state.learner is not None:
            self._learnt_keeper = LearntKeeper(
                self.connection,
                self.writer,
                self.state.learner,
                self.state.starts,
                lease.resource_namespace,
                f"{lease.resource_name}-{names.LEARNT}",
                lambda: self.leading,
                clock,
            )
            learning = LearningMetrics(self.metrics, self.state.learner, self._learnt_keeper.saves)
        self.health = Health(self.reflectors, clock)
        self._login_connection = connect(
            connections=4, limit=RateLimit(login.PER_SECOND, login.BURST), timeout=login.ANSWER_WITHIN_S
        )
        checks = configuration.server.authentication != "none"
        admits = login.Login(self._login_connection, "/metrics") if checks else None
        self.server = Server(self._answers(), configuration.server, admits, given_clock or time.time)
        self._solver = make_solver("ortools")
        self.state.events = self._event_recorder()
        self._engine: FlowScheduler | None = None
        """Made before the first round, and kept: its forecasts stay warm."""
        self._gpus_prepared: asyncio.Future[None] | None = None
        """Loading of what rounds need for GPUs; None while no node has any."""
        self._pauses = Pauses()
        self._collector = CollectBetweenRounds(COLLECT_EVERY_S)
        self._dumping = asyncio.Lock()
        """One at a time: each takes memory of its own."""
        self._dumps: deque[asyncio.Task[None]] = deque(maxlen=4)
        """Those that signals asked for; the loop itself keeps no task alive."""
        self._woken = asyncio.Event()
        self._binds = Sender(self.state.bindings.turns, self._bind, clock, self._bind_failed)
        self._patches: Sender[PodKey] = Sender(Turns(PATCHERS), self._patch, clock, self._failed)
        self._latest_patch: dict[PodKey, PatchCondition] = {}
        self._others: Sender[Instruction | ReadPod] = Sender(Turns(PATCHERS), self._do_other, clock, self._other_failed)
        self._stopping = asyncio.Event()
        self._threads = Threads()
        """Rounds, and what they need compiled."""
        self._load_reader = LoadReader(self.state.cache, given_clock or time.time)
        """Readings bear the time of another machine's clock, which is compared with this one's as it is."""
        self._metrics_updater = MetricsUpdater(
            self.metrics,
            self.state,
            self.writer,
            self.records,
            self.reflectors,
            self._load_reader,
            {
                "binding": self._binds.turns,
                "condition": self._patches.turns,
                "event": self.writer.event_turns,
                # Evictions among them.
                "other": self._others.turns,
            },
            self._pauses,
            clock,
            learning,
        )

    # The whole

    async def run(self) -> int:
        """Run until stopped; the exit code."""
        loop = asyncio.get_running_loop()
        sys.setswitchinterval(SWITCH_S)
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._stopping.set)
        loop.add_signal_handler(signal.SIGUSR2, lambda: self._dumps.append(loop.create_task(self._dump())))
        if self.configuration.server.authentication == "none":
            extra = {"key": "server.authentication"}
            LOG.warning("every caller that reaches the address of metrics is answered, without login", extra=extra)
        bound = await self.server.start()
        addresses = {name: str(getattr(bound, name)) for name in ("health", "metrics", "loopback")}
        LOG.info("listening", extra=addresses)
        jobs: list[Coroutine[Any, Any, object]] = [r.run() for r in self.reflectors.values()]
        jobs += [self.writer.run_events(), self._tick(), self._lead(), self._load_reader.run()]
        jobs += [reflector.run() for reflector in self._finished]
        jobs += [] if self._learnt_keeper is None else [self._learnt_keeper.run()]
        jobs += [self._stopping.wait()]
        tasks = [asyncio.create_task(job) for job in jobs]
        stop = tasks[-1]
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        code = 0
        if stop not in done:
            code = 1
            for ended in done:
                # None of them ends by itself, not even without an exception.
                fault = None if ended.cancelled() else ended.exception()
                LOG.critical("stopped by a fault", exc_info=fault, extra={"part": str(ended.get_coro())})
        else:
            self.state.suspects.stop()
        self.state.active = False
        await self._finish_writes()
        tasks += [*self._binds.tasks, *self._patches.tasks, *self._others.tasks]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self.server.stop()
        await self.connection.close()
        await self._login_connection.close()
        await asyncio.to_thread(self.records.close)
        if self.state.events is not None:
            await asyncio.to_thread(self.state.events.close)
        LOG.info("stopped", extra={"code": code})
        if self._threads.under_way:
            # A round of a large cluster computes for seconds more, and its answer is of no use now.
            logging.shutdown()
            self._leave(code)
        return code

    async def _finish_writes(self) -> None:
        """What is decided and not sent yet is dropped; what was sent is waited for."""
        for sender in (self._binds, self._patches, self._others):
            sender.stop()
        until = time.monotonic() + GRACE_S
        while self._binds.tasks and time.monotonic() < until:
            await asyncio.sleep(0.02)
        await self.writer.flush_events(max(0.0, until - time.monotonic()))

    # Leadership

    def _may_write(self) -> bool:
        if not self.configuration.leader_election.leader_elect:
            return True
        return self.leading and self.election.holds()

    def _defers(self) -> float | None:
        """For how long this replica leaves a free lease to others: see :attr:`Election.defers`.

        Called in the election's thread. A process that is held up would decide nothing, nor would one without nodes and
        pods, and another replica may have them. One that lacks another list could decide on most pods, and one that lacks
        none on all of them: that one asks several times before this one takes the lease.
        """
        if self.health.silent_s > LOOK_AGAIN_S + TICK_S:
            return None
        if not all((r := self.reflectors[name]).synced and r.current for name in NEEDED):
            return None
        return OTHERS_FIRST * self.election.times.retry_period if self.health.failing() else 0.0

    async def _lead(self) -> None:
        """Wait until we lead and know the cluster as it is then, and decide rounds from then on."""
        # A leader decides at once: a replica that still compiles leaves the lease to others.
        began = time.perf_counter()
        self._engine = await self._threads.run(make_engine, self.configuration.engine, self._solver)
        LOG.info("prepared", extra={"ms": round((time.perf_counter() - began) * 1e3)})
        if self.configuration.leader_election.leader_elect and not self.configuration.dry_run:
            started = asyncio.Event()

            def begin() -> None:
                self.leading = True
                self.state.suspects.inherit(self.election.left)
                started.set()

            election = self._election_thread = ElectionThread(self._lease_connection, self.election, begin, self._lost)
            self.state.suspects.noting = True
            election.start()
            try:
                await started.wait()
                LOG.info("leading", extra={"identity": self.identity})
                await self._rounds()
            finally:
                await election.stop(GRACE_S)
        else:
            self.leading = True
            await self._rounds()

    async def _prepare_gpus(self) -> None:
        """Seconds if it has to be compiled: beside everything else, before a round waits for it."""
        began = time.perf_counter()
        await self._threads.run(prepare_gpus)
        LOG.info("prepared for GPUs", extra={"ms": round((time.perf_counter() - began) * 1e3)})

    def _lost(self) -> None:
        """Another one may lead by now: nothing more may happen here. Called in the election's thread."""
        why = self.health.stalled() or "the lease is lost"

        def say() -> None:
            LOG.critical("%s: the process ends before anything else is written", why)
            logging.shutdown()

        # What keeps the main loop may keep the log as well, such as a pipe that is not read.
        saying = Thread(target=say, daemon=True)
        saying.start()
        saying.join(SAYING_S)
        self._leave(LOST_LEASE)

    # Rounds

    async def _rounds(self) -> None:
        await self._know_the_present()
        if self._learnt_keeper is not None:
            await asyncio.wait([asyncio.ensure_future(self._learnt_keeper.begin())], timeout=LISTED_WITHIN_S)
        self._dispatch(self.state.activate())
        if suspects := self.state.suspects.activate():
            more = f" and {len(suspects) - NAMED} more" if len(suspects) > NAMED else ""
            said = "pods whose preparation an earlier process did not finish come last, each alone: %s%s"
            LOG.warning(said, ", ".join(suspects[:NAMED]), more)
        LOG.info(
            "scheduling",
            extra={"nodes": len(self.state.cache.nodes), "pods": len(self.state.cache.pods)},
        )
        loop = asyncio.get_running_loop()
        while True:
            now = self._clock()
            at = self.state.next_round_s(now)
            paused = self._paused(now)
            if at is None or at > now or paused:
                if not paused and not self._binds.turns.sendable(now) and self.state.rebalancing.due(now):
                    await self._rebalance(now)
                    continue
                self._woken.clear()
                wait = TICK_S if at is None or at <= now else min(TICK_S, at - now)
                timer = loop.call_later(max(wait, 1e-3), self._woken.set)
                await self._woken.wait()
                timer.cancel()
                continue
            await self._round(now)

    def _paused(self, now: float) -> bool:
        """Whether no round may be decided now; why is kept for those that ask."""
        self._pauses.look(self._reasons_to_pause(now), now)
        return bool(self._pauses.now.keys() - {NAMESPACES})

    def _reasons_to_pause(self, now: float) -> dict[str, str]:
        if not self.leading:
            return {}
        if not self.state.active:
            return {STARTING: self.health.caches() or "nodes and pods are listed anew, as this replica leads now"}
        found = {}
        # After an outage one of them may be known before the other.
        behind = [n for n in NEEDED if not self.reflectors[n].current]
        if behind:
            found[WATCH] = f"what happens to {' and '.join(behind)} cannot be followed"
        if (waiting := self._binds.turns.sendable(now)) > BACKLOG:
            found[BINDINGS] = f"{waiting} decided bindings wait to be sent"
        if stuck := self.state.bindings.stuck:
            more = f" and {len(stuck) - NAMED} more" if len(stuck) > NAMED else ""
            named = ", ".join(stuck[:NAMED])
            found[NAMESPACES] = f"bindings have no outcome, and no pods are decided on, in namespaces {named}{more}"
        return found

    async def _know_the_present(self) -> None:
        """Every cache is filled, and at least as new as the moment when we began to lead.

        What a former leader bound last may not have reached our watches yet; planning without it would overcommit.
        """
        listed = [asyncio.create_task(r.wait_settled()) for r in self.reflectors.values()]
        _, late = await asyncio.wait(listed, timeout=LISTED_WITHIN_S)
        for task in late:
            task.cancel()
        if missing := self.health.failing():
            LOG.warning("rounds begin without %s", without(missing))
        must = [self.reflectors[name] for name in NEEDED]
        await asyncio.gather(*(r.wait_synced() for r in must))
        await asyncio.gather(*(r.refresh() for r in must))
        self._tell_unreadable(self._clock())
        if self._gpus_prepared is not None:
            await self._gpus_prepared
        # What is in the caches now mostly stays: the collector need not walk through it again and again.
        self._collector.collect(self._clock())

    async def _round(self, now: float) -> None:
        given, out = self.state.begin_round(now)
        self._dispatch(out)
        if given is None:
            await self._name_suspects()
            # What was prepared in part goes on after what has come meanwhile.
            await asyncio.sleep(0)
            return
        began = time.perf_counter()
        assert self._engine is not None, "rounds begin once it is made"
        try:
            if given.is_quick:
                result = plan_any_round(given, self._solver, self._engine)
            else:
                result = await self._threads.run(plan_any_round, given, self._solver, self._engine)
        except Exception as error:  # A fault of ours must not stop the scheduling of other pods.
            LOG.exception("a round failed", extra={"round": given.number})
            self._dispatch(self.state.round_failed(given, f"{type(error).__name__}: {error}", self._clock()))
            return
        took = time.perf_counter() - began
        now = self._clock()
        self._dispatch(self.state.end_round(result, now, took))
        # Bindings are sent before anything else is done.
        self._binds.send()
        await asyncio.sleep(0)
        self._metrics_updater.tell_round(given, result, self._solver.name, took)
        trace = result.trace
        if trace is not None:
            self.records.add(str(result.number), now, trace.record, pods=trace.pods, size_bytes=trace.size_bytes)
        self._collector.collect(now)

    async def _name_suspects(self) -> None:
        """Let the lease name pods that say much before they are prepared: the next leader must know, if this one ends."""
        suspects, election = self.state.suspects, self._election_thread
        if suspects.wanted and election is not None and await election.write(NAMED_WITHIN_S):
            suspects.noted()

    async def _rebalance(self, now: float) -> None:
        """Look whether running pods should be elsewhere, and ask for their eviction."""
        assert self._engine is not None, "rounds begin once it is made"
        rebalancing, settings = self.state.rebalancing, self.configuration.rebalancing
        try:
            self._dispatch(rebalancing.restore(now))
            questions = iter(rebalancing.questions(now))
            refused: list[str] = []
            while True:
                plan, why = await self._threads.run(plan_moves, questions, self._solver, self._engine, settings)
                refused += why
                check = None if plan is None else rebalancing.check(plan, self._clock())
                if plan is None or check is None:
                    break
                found = await self._threads.run(confirmed, plan, check, self._solver, self._engine, settings)
                if isinstance(found, MovePlan):
                    plan = found
                    break
                refused.append(f"{check.what}: {found}")
        except Exception:  # A fault of ours must not stop the scheduling of pods.
            LOG.exception("rebalancing failed", extra={"look": rebalancing.looks})
            return
        now, name = self._clock(), f"rebalancing-{rebalancing.looks}"
        if plan is not None and plan.record is not None:
            self.records.add(name, now, plan.record, pods=plan.pods, asked=True)
        self._dispatch(rebalancing.carry_out(plan, refused, name, now))

    # Changes

    def _observe(self, changes: Sequence[Seen[Any] | Gone[Any]]) -> None:
        self.state.cache.live = self.reflectors["pods"].synced
        told: list[Instruction | ReadPod] = []
        for change in changes:
            try:
                told += self.state.observe([change], self._clock())
            except Exception:  # A fault of ours with one object must not keep us from seeing others.
                meta = change.object.metadata
                where = f"{meta.namespace}/{meta.name}" if meta.namespace else meta.name
                about = {"what": type(change.object).__name__, "object": where}
                LOG.exception("a change could not be taken in", extra=about)
        if self._gpus_prepared is None and self.state.cache.gpus.resources:
            self._gpus_prepared = asyncio.ensure_future(self._prepare_gpus())
        # Another replica leads and reports, or the cluster is not known well enough yet: reported later.
        if self.state.active:
            self._dispatch(told)
        self._woken.set()

    def _learn(self, changes: Sequence[Seen[FinishedPod] | Gone[FinishedPod]]) -> None:
        learner = self.state.learner
        assert learner is not None, "finished pods are watched where run times are learnt"
        try:
            learner.removed(c.object.metadata.uid for c in changes if isinstance(c, Gone))
            learner.finished([c.object for c in changes if isinstance(c, Seen)], self._clock())
        except Exception:  # A fault of ours there must not stop the scheduling of pods.
            LOG.exception("ends of pods could not be taken in")

    # Instructions

    def _dispatch(self, instructions: Sequence[Instruction | ReadPod]) -> None:
        for instruction in instructions:
            if isinstance(instruction, Bind):
                self._binds.add(instruction.pod.namespace, instruction)
            elif isinstance(instruction, PostEvent):
                about = self.state.cache.pods.get(instruction.regarding.uid)
                controller = about.pod.spec.scheduler_name if about is not None and about.ours else ""
                self.writer.post_event(replace(instruction, controller=controller))
            elif isinstance(instruction, PatchCondition):
                earlier = self._latest_patch.get(instruction.pod)
                if earlier is None:
                    self._patches.add(instruction.pod.namespace, instruction.pod)
                elif instruction.nominated_node is None:
                    # The last word on the nomination was said earlier and is not sent yet.
                    instruction = replace(instruction, nominated_node=earlier.nominated_node)
                self._latest_patch[instruction.pod] = instruction
            else:
                where = instruction.pod.namespace if isinstance(instruction, ReadPod) else namespace_of(instruction)
                self._others.add(where, instruction)

    def _failed(self, turn: Turn[Any], fault: Exception) -> None:
        """A fault of ours in what is written about one pod must not stop what is written about others."""
        about = {"what": type(turn.item).__name__, "pod": getattr(turn.item, "pod", turn.item)}
        LOG.error("an instruction failed", exc_info=fault, extra=about)

    def _bind_failed(self, turn: Turn[Bind], fault: Exception) -> None:
        self._failed(turn, fault)
        # It may have been sent: reading the pod tells.
        done = self.state.bindings.done(turn.item.pod, BindOutcome.LOST, "", self._clock())
        self._dispatch([*done, *self.state.bindings.tell_fault(turn.item, one_line(fault), self._clock())])
        self._woken.set()

    def _other_failed(self, turn: Turn[Instruction | ReadPod], fault: Exception) -> None:
        self._failed(turn, fault)
        if not isinstance(turn.item, ReadPod):
            result = Result(WriteOutcome.LOST, f"a fault of the scheduler: {one_line(fault)}")
            self._dispatch(self._answered(turn.item, result, self._clock()))

    async def _bind(self, turn: Turn[Bind]) -> bool:
        bind = turn.item
        withheld = self.state.bindings.withheld(bind, self._clock())
        if withheld is not None:
            LOG.info("binding not sent", extra={"pod": bind.pod, "node": bind.node, "why": withheld})
            self._woken.set()
            return False
        result = await self._binds.request(turn, self.writer.bind(bind))
        if result is None or result.outcome is WriteOutcome.LOST:
            self._binds.without_outcome(turn, "" if result is None else result.message)
            result = await self.writer.resolve(bind, again=self._binds.once_more)
        if result.outcome is WriteOutcome.STOPPED:
            return False
        outcome = BindOutcome.BOUND if result.outcome is WriteOutcome.DONE else BindOutcome(result.outcome.value)
        about = {"pod": bind.pod, "node": bind.node}
        if outcome is BindOutcome.BOUND:
            LOG.debug("bound", extra=about)
        elif outcome is not BindOutcome.DRY:
            LOG.info("not bound", extra={**about, "outcome": outcome.value, "error": result.message})
        now = self._clock()
        self._dispatch(self.state.bindings.done(bind.pod, outcome, result.message, now, result.retry_after))
        self._woken.set()
        return _is_outcome(result)

    async def _patch(self, turn: Turn[PodKey]) -> bool:
        """A condition: only the last word about a pod is written, and none about a pod that is gone or placed by now."""
        patch = self._latest_patch.pop(turn.item)
        entry = self.state.cache.pods.get(patch.pod.uid)
        if entry is None or entry.node:
            return False
        LOG.debug("waits", extra={"pod": patch.pod, "reason": patch.reason, "told": patch.message})
        answer = await self._patches.request(turn, self.writer.patch_condition(patch))
        result = answer or Result(WriteOutcome.LOST, "given up, as too many hang")
        if result.outcome in (WriteOutcome.RETRY, WriteOutcome.LOST, WriteOutcome.REFUSED):
            LOG.info("condition was not written", extra={"pod": patch.pod, "error": result.message})
        if result.outcome in (WriteOutcome.RETRY, WriteOutcome.LOST):
            self.state.notices.failed(patch, self._clock())
        return _is_outcome(result)

    async def _do_other(self, turn: Turn[Instruction | ReadPod]) -> bool:
        instruction = turn.item
        if isinstance(instruction, ReadPod):
            return await self._read_pod(instruction)
        if isinstance(instruction, PatchEstimate):
            entry = self.state.cache.pods.get(instruction.pod.uid)
            if entry is None or entry.place:
                return False
        if isinstance(instruction, GroupStatus):
            instruction = replace(instruction, api_version=self._in_tree_version())
        result = await self.writer.carry_out(instruction)
        self._dispatch(self._answered(instruction, result, self._clock()))
        return _is_outcome(result)

    def _answered(self, instruction: Instruction, result: Result, now: float) -> Sequence[Instruction]:
        """What follows from what the API server said to an instruction that is no binding, event or condition."""
        state, accepted = self.state, result.outcome in (WriteOutcome.DONE, WriteOutcome.DRY)
        if isinstance(instruction, PatchClaim):
            if accepted or result.outcome is WriteOutcome.STOPPED:
                return ()
            why = f"could not be prepared: {result.message}"
            return state.bindings.claim_failed(instruction.pod, why, now, instruction.patch)
        if isinstance(instruction, PatchEstimate):
            # A pod may be gone by now, or be told again later.
            if not accepted:
                LOG.debug("estimated start not written", extra={"pod": instruction.pod, "error": result.message})
                state.start_notices.failed(instruction.pod)
            return ()
        if not accepted:
            LOG.warning("not carried out", extra={"what": type(instruction).__name__, "error": result.message})
        match instruction:
            case Evict(pod, why):
                if not accepted:
                    return state.evictions.failed(pod, result.message, now)
                LOG.info("evicted", extra={"pod": pod, "why": why})
            case TaintNode():
                return state.rebalancing.marked(instruction, accepted, result.message)
            case MovePod():
                # A pod that is gone already has made room as well.
                left = accepted or result.outcome in (WriteOutcome.GONE, WriteOutcome.CONFLICT)
                return state.rebalancing.answered(instruction, left, result.message, now)
            case Resize(pod):
                return state.resizes.done(pod, accepted, result.message, now)
        return ()

    def _in_tree_version(self) -> str:
        """The version that the API server serves."""
        served = [v for v in IN_TREE_VERSIONS if self.reflectors[f"{IN_TREE}/{v}"].state is State.SYNCED]
        return f"{IN_TREE}/{(served or IN_TREE_VERSIONS)[0]}"

    async def _read_pod(self, asked: ReadPod) -> bool:
        """Whether there was an answer."""
        for delay in (0.0, 1.0, 2.0, 4.0, 8.0, 15.0):
            await asyncio.sleep(delay)
            try:
                pod = await self.writer.read_pod(asked.pod)
            except (ApiError, UnreachableError) as error:
                LOG.warning("a pod could not be read", extra={"pod": asked.pod, "error": str(error)})
                continue
            self._dispatch(self.state.pod_read(asked.pod, pod, self._clock()))
            self._woken.set()
            return True
        # The state machine asks again once the binding is overdue.
        return False

    # Every second

    async def _tick(self) -> None:
        polled = 0.0
        tidied = self._clock()
        while True:
            await asyncio.sleep(TICK_S)
            now = self._clock()
            self.health.came_round(now)
            self._paused(now)
            if self.state.active:
                self._dispatch(self.state.bindings.overdue(now))
                self._dispatch(self.state.bindings.without_outcome(now))
                self._dispatch(self.state.bindings.claims_settled(now))
                self._dispatch(self.state.notices.again(self.state.postponed, now, self.state.bindings.unsettled))
                self._dispatch(self.state.grant_notices.look(now))
                self._dispatch(self.state.start_notices.look(now))
                self._dispatch(self.state.incomplete_gangs.look(now))
                self.state.node_holds.look(now)
            self._tell_unreadable(now)
            if now - polled >= PROFILES_EVERY_S:
                polled = now
                await self._poll_profiles(now)
            if now - tidied >= TIDY_EVERY_S:
                tidied = now
                self.state.tidy()
            self._metrics_updater.update(leading=self.leading)

    def _tell_unreadable(self, now: float) -> None:
        """What cannot be read now is refused aloud where a pod needs it, never guessed."""
        refused = {n: r.unreadable for n, r in self.health.unavailable().items()}
        self.state.lists_unreadable(refused, self.health.failing(), now)

    def _event_recorder(self) -> EventRecorder | None:
        wanted, state = self.configuration.events, self.state
        if wanted.file is None:
            return None
        file = EventFile(wanted.file, wanted.keep)
        return EventRecorder(file, state.cache, state.inputs.occupied, self._solver.name, wanted.max_size_mib << 20)

    async def _poll_profiles(self, now: float) -> None:
        if self._profiles is None:
            return
        found = await asyncio.to_thread(self._profiles.poll)
        if isinstance(found, Catalogue):
            LOG.info("profiles changed", extra={"jobs": len(found.jobs), "services": len(found.services)})
            self.state.use_catalogue(found, now)
        elif isinstance(found, InputError):
            LOG.error("profiles refused, the old ones are kept", extra={"error": str(found)})
            about = self._own_pod()
            if self.leading and about is not None:
                note = f"the profiles were refused and the old ones are kept: {found}"
                self.writer.post_event(PostEvent(about, names.PROFILES_REFUSED, "Warning", "Reloading", note))

    def _own_pod(self) -> PodKey | None:
        """The pod that this process runs in; outside of a cluster there is none, and events go to the lease's namespace."""
        namespace = self.configuration.leader_election.resource_namespace
        name = os.environ.get("POD_NAME", socket.gethostname())
        uid = self.state.cache.by_name.get((namespace, name))
        return PodKey(namespace, name, uid or "")

    # What others see

    def _count_request(self, method: str, code: str, _seconds: float) -> None:
        self.metrics.request(method, int(code) if code.isdigit() else None)

    def _difference_counter(self, kind: str) -> Callable[[int], None]:
        def told(count: int) -> None:
            self.metrics.counter("flowsched_reconcile_differences_total", kind).inc(count)
            if count:
                LOG.warning("the cache differed from the API server", extra={"kind": kind, "differences": count})

        return told

    def _answers(self) -> Answers:
        return Answers(
            live={"loop": self.health.stalled, "election": self._election_check},
            ready={"caches": self.health.caches},
            notes={"lists": self.health.lists, "rounds": self._pauses_note, **self.health.ages()},
            metrics=self._exposition,
            configuration=self.configuration.plain,
            state=self._dumped,
            records=self.records,
        )

    def _exposition(self, accept: str) -> tuple[bytes, str]:
        self._metrics_updater.update(leading=self.leading)
        return self.metrics.exposition(accept)

    def _election_check(self) -> str | None:
        if self.leading and not self._may_write():
            return "the lease was not renewed in time"
        return None

    def _pauses_note(self) -> str | None:
        now = self._clock()
        self._paused(now)
        return self._pauses.said(now)

    async def _dumped(self, pod: str | None = None, limit: int = MOST) -> bytes:
        """Everything that is known, as JSON, and which APIs cannot be read and why: what they hold counts as not there, and
        of those that are not listed yet as not known.
        """
        unavailable = {n: r.reason for n, r in self.health.unavailable().items()}
        now = self._clock()
        paused = {reason: {"why": p.why, "for_s": round(now - p.since_s, 3)} for reason, p in self._pauses.now.items()}
        ages = {name: round(self.reflectors[name].age, 3) for name in NEEDED}
        more = {"not_listed": self.health.failing(), "rounds_paused": paused, "watch_age_s": ages}
        async with self._dumping:
            return await encoded(dump(self.state, now, pod, limit), {"unavailable": unavailable, **more})

    async def _dump(self) -> None:
        """Everything that is known, on one line of standard error."""
        try:
            print((await self._dumped()).decode(), file=sys.stderr, flush=True)
        except Exception:  # It must not end a process that schedules.
            LOG.exception("the state could not be dumped")


def _is_outcome(result: Result) -> bool:
    """Whether the API server has answered what became of a request."""
    return result.outcome not in (WriteOutcome.LOST, WriteOutcome.RETRY)
