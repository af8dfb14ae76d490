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
from functools import partial
from importlib.metadata import version
from threading import Thread
from typing import Any

from flowsched.round.scheduler import FlowScheduler, prepare_gpus
from flowsched.solvers import make_solver
from flowsched.support.collector import CollectBetweenRounds
from flowsched_k8s import names
from flowsched_k8s.api import login
from flowsched_k8s.api.access import Access
from flowsched_k8s.api.client import Connection
from flowsched_k8s.api.election import Election, Times
from flowsched_k8s.api.election_thread import ElectionThread
from flowsched_k8s.api.outage import Outage
from flowsched_k8s.api.rate_limit import RateLimit
from flowsched_k8s.api.reflector import Reflector, State
from flowsched_k8s.api.writer import Writer
from flowsched_k8s.bindings.bindings import ReadPod
from flowsched_k8s.changes import Gone, Seen
from flowsched_k8s.configuration.configuration import Configuration
from flowsched_k8s.configuration.profiles_file import ProfilesFile, first_profiles
from flowsched_k8s.dispatcher import Dispatcher
from flowsched_k8s.events.event_file import EventFile
from flowsched_k8s.events.event_recorder import EventRecorder
from flowsched_k8s.groups.pod_groups import IN_TREE
from flowsched_k8s.http.health import Health, without
from flowsched_k8s.http.process_answers import ProcessAnswers
from flowsched_k8s.http.server import Server
from flowsched_k8s.instructions import (
    Instruction,
    PodKey,
    PostEvent,
)
from flowsched_k8s.learning.learning_metrics import LearningMetrics
from flowsched_k8s.learning.learnt_keeper import LearntKeeper
from flowsched_k8s.metrics.metrics import Metrics
from flowsched_k8s.metrics.metrics_updater import MetricsUpdater
from flowsched_k8s.objects import FinishedPod
from flowsched_k8s.pauses import NAMED, RoundPauses
from flowsched_k8s.rebalancing.looks import RebalancingLooks
from flowsched_k8s.records.records import Records
from flowsched_k8s.rounds.planning import make_engine, plan_any_round
from flowsched_k8s.services.load_reader import LoadReader
from flowsched_k8s.state import SchedulerState
from flowsched_k8s.steady_clock import steady, uptime
from flowsched_k8s.threads import Threads
from flowsched_k8s.watched import IN_TREE_VERSIONS, NEEDED, finished, watched
from flowsched_models.catalogue import Catalogue
from flowsched_models.document import InputError

LOG = logging.getLogger(__name__)

CONNECTIONS = 512
"""Requests under way at a time: those that hang must not stop others."""
TICK_S = 1.0
COLLECT_EVERY_S = 180.0
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
        self._clock = clock = given_clock or steady(time.time, uptime)
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
        self._woken = asyncio.Event()
        self._dispatcher = Dispatcher(self.state, self.writer, clock, self._woken, self._in_tree_version)
        self._pauses = RoundPauses(
            self.state, self.reflectors, self.health, self._dispatcher.binds.turns, lambda: self.leading
        )
        self._answers = ProcessAnswers(self.state, self.reflectors, self.health, self._pauses, clock)
        answers = self._answers.all(
            configuration.plain, self.records, self.metrics, self._update_metrics, self._election_check
        )
        self.server = Server(answers, configuration.server, admits, given_clock or time.time)
        self._solver = make_solver("ortools")
        self.state.events = self._event_recorder()
        self._engine: FlowScheduler | None = None
        """Made before the first round, and kept: its forecasts stay warm."""
        self._gpus_prepared: asyncio.Future[None] | None = None
        """Loading of what rounds need for GPUs; None while no node has any."""
        self._collector = CollectBetweenRounds(COLLECT_EVERY_S)
        self._dumps: deque[asyncio.Task[None]] = deque(maxlen=4)
        """Those that signals asked for; the loop itself keeps no task alive."""
        self._stopping = asyncio.Event()
        self._threads = Threads()
        """Rounds, and what they need compiled."""
        self._looks = RebalancingLooks(
            self.state.rebalancing,
            configuration.rebalancing,
            self._solver,
            self._threads,
            self.records,
            self._dispatcher.dispatch,
            clock,
        )
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
                "binding": self._dispatcher.binds.turns,
                "condition": self._dispatcher.patches.turns,
                "event": self.writer.event_turns,
                # Evictions among them.
                "other": self._dispatcher.others.turns,
            },
            self._pauses.pauses,
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
        loop.add_signal_handler(signal.SIGUSR2, lambda: self._dumps.append(loop.create_task(self._answers.dump())))
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
        tasks += [*self._dispatcher.binds.tasks, *self._dispatcher.patches.tasks, *self._dispatcher.others.tasks]
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
        for sender in (self._dispatcher.binds, self._dispatcher.patches, self._dispatcher.others):
            sender.stop()
        until = time.monotonic() + GRACE_S
        while self._dispatcher.binds.tasks and time.monotonic() < until:
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
        self._dispatcher.dispatch(self.state.activate())
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
            paused = self._pauses.look(now)
            if at is None or at > now or paused:
                if not paused and not self._dispatcher.binds.turns.sendable(now) and self.state.rebalancing.due(now):
                    await self._looks.look(self._ready_engine, now)
                    continue
                self._woken.clear()
                wait = TICK_S if at is None or at <= now else min(TICK_S, at - now)
                timer = loop.call_later(max(wait, 1e-3), self._woken.set)
                await self._woken.wait()
                timer.cancel()
                continue
            await self._round(now)

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

    @property
    def _ready_engine(self) -> FlowScheduler:
        assert self._engine is not None, "rounds begin once it is made"
        return self._engine

    async def _round(self, now: float) -> None:
        given, out = self.state.begin_round(now)
        self._dispatcher.dispatch(out)
        if given is None:
            await self._name_suspects()
            # What was prepared in part goes on after what has come meanwhile.
            await asyncio.sleep(0)
            return
        began = time.perf_counter()
        engine = self._ready_engine
        try:
            if given.is_quick:
                result = plan_any_round(given, self._solver, engine)
            else:
                result = await self._threads.run(plan_any_round, given, self._solver, engine)
        except Exception as error:  # A fault of ours must not stop the scheduling of other pods.
            LOG.exception("a round failed", extra={"round": given.number})
            self._dispatcher.dispatch(self.state.round_failed(given, f"{type(error).__name__}: {error}", self._clock()))
            return
        took = time.perf_counter() - began
        now = self._clock()
        self._dispatcher.dispatch(self.state.end_round(result, now, took))
        # Bindings are sent before anything else is done.
        self._dispatcher.binds.send()
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
            self._dispatcher.dispatch(told)
        self._woken.set()

    def _learn(self, changes: Sequence[Seen[FinishedPod] | Gone[FinishedPod]]) -> None:
        learner = self.state.learner
        assert learner is not None, "finished pods are watched where run times are learnt"
        try:
            learner.removed(c.object.metadata.uid for c in changes if isinstance(c, Gone))
            learner.finished([c.object for c in changes if isinstance(c, Seen)], self._clock())
        except Exception:  # A fault of ours there must not stop the scheduling of pods.
            LOG.exception("ends of pods could not be taken in")

    def _in_tree_version(self) -> str:
        """The version that the API server serves."""
        served = [v for v in IN_TREE_VERSIONS if self.reflectors[f"{IN_TREE}/{v}"].state is State.SYNCED]
        return f"{IN_TREE}/{(served or IN_TREE_VERSIONS)[0]}"

    # Every second

    async def _tick(self) -> None:
        polled = 0.0
        tidied = self._clock()
        while True:
            await asyncio.sleep(TICK_S)
            now = self._clock()
            self.health.came_round(now)
            self._pauses.look(now)
            if self.state.active:
                self._dispatcher.dispatch(self.state.bindings.overdue(now))
                self._dispatcher.dispatch(self.state.bindings.without_outcome(now))
                self._dispatcher.dispatch(self.state.bindings.claims_settled(now))
                self._dispatcher.dispatch(
                    self.state.notices.again(self.state.waiting.postponed, now, self.state.bindings.unsettled)
                )
                self._dispatcher.dispatch(self.state.grant_notices.look(now))
                self._dispatcher.dispatch(self.state.start_notices.look(now))
                self._dispatcher.dispatch(self.state.incomplete_gangs.look(now))
                self.state.node_holds.look(now)
            self._tell_unreadable(now)
            if now - polled >= PROFILES_EVERY_S:
                polled = now
                await self._poll_profiles(now)
            if now - tidied >= TIDY_EVERY_S:
                tidied = now
                self.state.tidy()
            self._update_metrics()

    def _tell_unreadable(self, now: float) -> None:
        """What cannot be read now is refused aloud where a pod needs it, never guessed."""
        refused = {n: r.unreadable for n, r in self.health.unavailable().items()}
        self.state.other_objects.lists_unreadable(refused, self.health.failing(), now)

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

    def _update_metrics(self) -> None:
        self._metrics_updater.update(leading=self.leading)

    def _election_check(self) -> str | None:
        if self.leading and not self._may_write():
            return "the lease was not renewed in time"
        return None
