"""``flow-node``: the network inside one machine, decided anew at every tick.

Read, predict, price, solve, act. Loads come from :class:`LoadTracker` (up at once, down after a calm while), progress is
estimated from the run-time model and what completions taught (:mod:`flowsched.node.node_learner`), prices of progress are
the duals of the work that is left (:mod:`flowsched.node.makespan_prices`), and one search over networks arranges services
and tasks (:mod:`flowsched.node.search`). A change is made only where it earns the price of switching.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from flowsched.cluster.learnt_run_times import LearntRunTime
from flowsched.network.network import IntArray
from flowsched.node import reasons
from flowsched.node.admission import DeadlineAdmission, admit_deadlines
from flowsched.node.allocation import Allocation, ServiceGrant, TaskGrant
from flowsched.node.arrangement import Arrangement, Cores
from flowsched.node.load import LoadTracker
from flowsched.node.makespan_prices import MakespanPrices, Regime
from flowsched.node.makespan_program import MakespanProgram
from flowsched.node.moment import Candidate, Moment
from flowsched.node.network import SeatNetwork
from flowsched.node.node import Node, NodeService, NodeTask, with_own_cores
from flowsched.node.node_learner import NodeLearner
from flowsched.node.progress import STANDSTILL, Pace, ProgressBook
from flowsched.node.reading import Reading, ServiceReading, TaskReading, TaskState
from flowsched.node.search import search, without_cores
from flowsched.node.service_error import deciding_about
from flowsched.node.settings import NodeSettings
from flowsched.node.task_waits import TaskWaits
from flowsched.node.usual_loads import UsualLoads
from flowsched.solvers import Solver, make_solver
from flowsched_models.isolation.admission import Room
from flowsched_models.runtime import HostFactory, Stage

MOST_STEPS = 8
"""Single changes after the networks of one tick."""
FIRST_SEARCHES = 40
"""Searches for better arrangements before the first decision; later one at each tick, until none is found any more."""
MOST_REMEMBERED = 40_000
"""Rates that are remembered, some 70 MB: a controller that runs for weeks must not grow with all that it ever weighed."""
LOAD_STEP = 1.02
"""Loads are rounded up to powers of this: what differs less decides alike."""


@dataclass(frozen=True)
class _View:
    """What one tick knows, beyond the reading."""

    services: tuple[NodeService, ...]
    tasks: tuple[TaskReading, ...]
    """Those without a deadline."""
    stages: tuple[Stage, ...]
    loads: tuple[float, ...]
    waits_s: tuple[float, ...]
    admission: DeadlineAdmission
    critical: tuple[NodeTask, ...]
    """Those with a deadline, admitted or not: they always run."""
    gone: frozenset[str]
    """Services that are not there."""

    @property
    def owed_cpus(self) -> float:
        """CPUs that critical tasks take."""
        return sum(t.deadline.bandwidth for t in self.critical if t.deadline is not None)


class FlowNode:
    """A node controller. Keeps no clock of its own: all times are the readings'."""

    def __init__(
        self,
        node: Node,
        settings: NodeSettings | None = None,
        *,
        room: Room | None = None,
        solver: Solver | None = None,
        learner: NodeLearner | None = None,
    ) -> None:
        """Nothing is known yet. ``room``: bandwidth that the kernel grants to deadlines; by default of the node's cores.

        ``learner`` is told of completions, and knows how long tasks of a class run; None: as their forecasts say.
        """
        self.node = node
        self.settings = settings or NodeSettings()
        self.room = room or Room(cores=len(node.cores))
        self.network: SeatNetwork | None = None
        """Of the last decision."""
        self.flow: IntArray | None = None
        """Through that network."""
        self.moment: Moment | None = None
        """What the last decision was made for."""
        self.arrangement: Arrangement | None = None
        """The last decision."""
        self._solver = solver or make_solver("ortools")
        self._hosts = HostFactory(node.catalogue)
        self._loads: dict[str, LoadTracker] = {}
        self._steps: dict[str, float] = {}
        self._progress = ProgressBook(node.catalogue, learner)
        self.learner = learner
        self._program = MakespanProgram(self._solver)
        self._prices = MakespanPrices({}, 0.0, (), True)
        self._usual = UsualLoads()
        self._planned_s = float("-inf")
        self._waits = TaskWaits(self.settings.due_s)
        self._paces: dict[str, Pace] = {}
        self._last_s: float | None = None
        self._decided_for: object = None
        self.refused: Mapping[str, str] = {}
        """Why tasks that ask for a deadline did not get it at the last reading."""
        self._reasons: Mapping[str, str] = {}
        self._company: object = None

    @property
    def period_s(self) -> float:
        """Seconds between two readings."""
        return self.settings.period_s

    @property
    def due(self) -> frozenset[str]:
        """Tasks that waited for too long: they are not paused any more."""
        return self._waits.due

    @property
    def makespan_s(self) -> float:
        """What the work that was left was believed to take when prices were made last."""
        return self._prices.makespan_s

    def reason(self, name: str) -> str:
        """Why a service or a task has what it was last given; empty where nothing keeps a task from running."""
        return self._reasons.get(name, "")

    def qps(self, service: str) -> float:
        """The load that a service is held ready for; 0 where nothing was read yet."""
        tracker = self._loads.get(service)
        return 0.0 if tracker is None else tracker.qps

    def progress(self, task: NodeTask) -> float:
        """Share of a task's work that is estimated to be done."""
        return self._progress.progress(task)

    def decide(self, reading: Reading) -> Allocation | None:
        """The allocation from now on; None where nothing changes.

        Raises :class:`ServiceError` where one service's numbers are why there is none: the same reading without an answer
        of that service may be decided at the same moment.
        """
        self._note(reading)
        view = self._view(reading)
        self.refused = view.admission.refused
        due = tuple(t.task.name in self.due for t in view.tasks)
        company = (view.services, tuple(t.task for t in view.tasks), view.stages, view.critical, view.gone)
        same_company = company == self._company
        new_prices = self._price(reading.t_s, view, same_company)
        key = (view.loads, due)
        if same_company and key == self._decided_for and not new_prices:
            return None
        # Nothing counts as decided until it is: a decision that fails is tried again at the next tick.
        self._decided_for = None
        moment = self._moment_of(view, due)
        after = self._arrange(moment, self._present(reading, view))
        changed = not same_company or after != self.arrangement
        self._decided_for, self._company = key, company
        self.moment, self.arrangement = moment, after
        self._paces = {c.task.name: p for c, p in zip(moment.candidates, self._paces_of(moment, after), strict=True)}
        return self._allocation(view, moment, after) if changed else None

    def _price(self, t_s: float, view: _View, same_company: bool) -> bool:
        """Bring the prices of progress up to date, a little at every tick; whether there are new ones to decide by."""
        ask = not same_company or t_s >= self._planned_s + self.settings.plan_s
        if ask:
            self._plan(t_s, view)
        settled = self._prices.settled
        for _ in range(FIRST_SEARCHES if self.arrangement is None else 1):
            if not self._prices.settled:
                self._prices = self._program.go_on()
        return ask or self._prices.settled != settled

    def _arrange(self, moment: Moment, before: Arrangement) -> Arrangement:
        """The best arrangement that earns its change, or the one before."""
        # All overdue tasks on every core: a way out when there are too few seats for them.
        owed = tuple(
            self.node.cores if c.due else cores for c, cores in zip(moment.candidates, before.tasks, strict=True)
        )
        known = [Arrangement(moment.disjoint(before.services), owed)]
        if moment.apart.tasks:
            # All that is due, beside services that leave as many cores as they can: there is always this way out.
            fewest = moment.disjoint(moment.apart.fewest)
            must = tuple(self.node.cores if c.due else () for c in moment.candidates)
            known += [before, *known, Arrangement(fewest, must)]
            known = [moment.apart.put_right(arrangement) for arrangement in known]
        found = search(moment, before, self._solver, self.settings.passes, MOST_STEPS, known=known)
        self.network, self.flow = found.network, found.flow
        best = self._of_schedule(moment, found.arrangement)
        return best if self._pays(moment, before, best) else before

    # What is believed.

    def _note(self, reading: Reading) -> None:
        step = 0.0 if self._last_s is None else reading.t_s - self._last_s
        self._last_s = reading.t_s
        for entry in reading.tasks:
            if entry.state is TaskState.RUNNING:
                self._progress.add(entry.task, self._paces.get(entry.task.name, STANDSTILL), step)
            elif entry.state is TaskState.QUEUED:
                self._progress.queued(entry.task)
        for task in reading.ended:
            # Some time since the last reading: half of it, as nothing says when.
            if (pace := self._paces.get(task.name, STANDSTILL)).now > 0.0:
                self._progress.add(task, pace, step / 2.0)
            self._progress.end(task)
        self._progress.forget_but({t.task.name for t in reading.tasks})
        self._waits.note(reading.t_s, ((t.task.name, t.state, t.submitted_s) for t in reading.tasks))
        there = {s.service.name for s in reading.services}
        self._loads = {k: v for k, v in self._loads.items() if k in there}
        self._steps = {k: v for k, v in self._steps.items() if k in there}
        # Last, as it may fail: of the tasks everything is noted by now.
        for seen in reading.services:
            self._track(reading.t_s, seen)
        self._usual.begin(tuple(s.service.name for s in reading.services))
        if reading.services and all(self._loads[s.service.name].known for s in reading.services):
            self._usual.add(reading.t_s, tuple(self._loads[s.service.name].level for s in reading.services))

    def _track(self, t_s: float, seen: ServiceReading) -> None:
        name = seen.service.name
        # What a reading spoils is not kept.
        tracker = self._loads.pop(name, None) or LoadTracker(self.settings.calm_s, self.settings.load_margin)
        with deciding_about(name):
            tracker.read(t_s if seen.at_s is None else seen.at_s, seen.queries, seen.pid)
        self._loads[name] = tracker

    def _view(self, reading: Reading) -> _View:
        admission = admit_deadlines([t.task for t in reading.tasks], self.room)
        tasks = tuple(t for t in reading.tasks if t.task.deadline is None)
        return _View(
            with_own_cores(tuple(s.service for s in reading.services)),
            tasks,
            tuple(self._progress.stage(t.task) for t in tasks),
            tuple(self._load(s) for s in reading.services),
            tuple(self._waits.waited_s(t.task.name, reading.t_s) for t in tasks),
            admission,
            tuple(t.task for t in reading.tasks if t.task.deadline is not None),
            frozenset(s.service.name for s in reading.services if not s.there),
        )

    def _load(self, seen: ServiceReading) -> float:
        """Load to be ready for; the most that its cores were ever seen to take where nothing is known."""
        with deciding_about(seen.service.name):
            load = self._step_of(seen.service.name) if self._loads[seen.service.name].known else None
        return self.node.highest_load(seen.service) if load is None else load

    def _step_of(self, name: str) -> float:
        """The load of a service that is known, rounded up to one of few."""
        qps = self._loads[name].qps
        if qps <= 1.0:
            return 0.0
        exact = math.log(qps) / math.log(LOAD_STEP)
        last = self._steps.get(name, math.inf)
        # A load that scatters around a step must not decide anew at every tick.
        if not last - 1.5 < exact <= last:
            last = self._steps[name] = math.ceil(exact)
        return float(LOAD_STEP**last)

    def _plan(self, t_s: float, view: _View) -> None:
        """Prices of progress for the work that is left, at the loads that the services usually have."""
        if self._hosts.remembered > MOST_REMEMBERED:
            self._hosts.forget()
        none_due = (False,) * len(view.tasks)
        usual = self._usual.regimes() or [(1.0, view.loads)]
        regimes = [Regime(share, self._moment_of(replace(view, loads=loads), none_due)) for share, loads in usual]
        left = [self._progress.pieces(t.task) for t in view.tasks]
        self._prices = self._program.ask(regimes, left)
        self._planned_s = t_s

    def _moment_of(self, view: _View, due: Sequence[bool]) -> Moment:
        candidates = []
        for entry, stage, waited_s, owed in zip(view.tasks, view.stages, view.waits_s, due, strict=True):
            value = self._prices.values.get((entry.task.name, stage), 0.0)
            left_s = max(1e-3, self._left_s(entry.task))
            value *= 1.0 + self.settings.short_first * min(1.0, self.settings.short_s / left_s)
            waiting = self.settings.waiting_growth * min(1.0, waited_s / self.settings.due_s)
            candidates.append(Candidate(entry.task, stage, value, waiting, owed))
        moment = Moment(
            self.node,
            self.settings,
            self._hosts,
            tuple(candidates),
            view.services,
            view.loads,
            view.owed_cpus,
            view.gone,
        )
        if moment.apart.tasks and not moment.apart.room:
            # What cannot be is not owed: no service leaves these tasks a core, however long they wait.
            possible = tuple(c if c.task.shares else replace(c, due=False) for c in candidates)
            return replace(moment, candidates=possible)
        return moment

    def _left_s(self, task: NodeTask) -> float:
        """Seconds that a task still needs alone on the idle machine."""
        host = self._hosts.host(self.node.machine_type)
        scale = task.scale * self._progress.length(task)
        return host.alone_s(task.profile, task.threads, self.node.cores, scale, self._progress.progress(task))

    def _paces_of(self, moment: Moment, arrangement: Arrangement) -> Iterator[Pace]:
        """Of all candidates."""
        for k, (candidate, rate) in enumerate(zip(moment.candidates, moment.rates(arrangement), strict=True)):
            serial = self._progress.serial(candidate.task)
            if self.learner is None or rate == 0.0 or not 0.0 < serial < 1.0:
                yield Pace(rate, rate, rate)
                continue
            first = candidate.stage is Stage.SERIAL
            there = replace(candidate, stage=Stage.PARALLEL if first else Stage.SERIAL)
            others = replace(moment, candidates=(*moment.candidates[:k], there, *moment.candidates[k + 1 :]))
            other = others.rates(arrangement)[k]
            yield Pace(rate, rate, other) if first else Pace(rate, other, rate)

    # What is decided.

    def _present(self, reading: Reading, view: _View) -> Arrangement:
        """Where all tasks are now, as far as this controller put them there; all cores to services that it does not know."""
        services: dict[str, int] = {}
        tasks: dict[str, Cores] = {}
        if self.moment is not None and self.arrangement is not None:
            services = {s.name: k for s, k in zip(self.moment.services, self.arrangement.services, strict=True)}
            tasks = {
                c.task.name: cores for c, cores in zip(self.moment.candidates, self.arrangement.tasks, strict=True)
            }
        running = {t.task.name for t in reading.tasks if t.state is TaskState.RUNNING}
        return Arrangement(
            tuple(min(services.get(s.name, len(s.cores)), len(s.cores)) for s in view.services),
            tuple(tasks.get(t.task.name, ()) if t.task.name in running else () for t in view.tasks),
        )

    def _of_schedule(self, moment: Moment, best: Arrangement) -> Arrangement:
        """An arrangement of the shortest schedule where it is worth nearly as much as the best of now.

        Prices are right at the margin only: many arrangements are worth the same, but only those of one schedule can be
        taken to their end together.
        """
        enough = moment.worth(best) - self.settings.schedule_slack
        for share in self._prices.schedule:
            if share.stages != moment.stages:
                continue
            off = [without_cores(share.arrangement, s.cores) for s in moment.services]
            for trial in (share.arrangement, *off):
                if moment.allowed(trial) and moment.worth(trial) >= enough:
                    return trial
        return best

    def _pays(self, moment: Moment, before: Arrangement, after: Arrangement) -> bool:
        """Whether a change earns its price within the payback time, or is no question of price."""
        if after == before:
            return False
        if not moment.allowed(before):
            return True
        moved, grown = after.changes_from(before)
        price = self.settings.switch_s * (moved + grown)
        return (moment.worth(after) - moment.worth(before)) * self.settings.payback_s > price

    def _allocation(self, view: _View, moment: Moment, arrangement: Arrangement) -> Allocation:
        services = {
            s.name: ServiceGrant(s.cores[:k], reasons.ready(q))
            for s, k, q in zip(view.services, arrangement.services, view.loads, strict=True)
        }
        tasks: dict[str, TaskGrant] = {}
        for k, (candidate, cores) in enumerate(zip(moment.candidates, arrangement.tasks, strict=True)):
            if cores:
                reason = reasons.due(self.settings.due_s) if candidate.due else ""
            else:
                reason = reasons.why_waiting(moment, arrangement, k)
            tasks[candidate.task.name] = TaskGrant(bool(cores), cores, candidate.weight, reason=reason)
        served = {c for grant in services.values() for c in grant.cores}
        apart = tuple(c for c in self.node.cores if c not in served) or self.node.cores
        for task in view.critical:
            if task.name in view.admission.admitted:
                tasks[task.name] = TaskGrant(True, self.node.cores, deadline=task.deadline)
            else:
                # A weight otherwise: that of a service, so not on a service's cores where there are others.
                tasks[task.name] = TaskGrant(True, apart, reason=view.admission.refused[task.name])
        self._reasons = {s: g.reason for s, g in services.items()} | {t: g.reason for t, g in tasks.items()}
        return Allocation(services, tasks)


def prepare(node: Node) -> None:
    """Compile what decisions need, so that the first one takes no half a minute: decides once for a made-up company."""
    catalogue = node.catalogue
    tasks = tuple(
        TaskReading(NodeTask(f"task-{k}", name, max(1, len(node.cores))), TaskState.QUEUED, 0.0)
        for k, name in enumerate(sorted(catalogue.jobs)[:2])
    )
    services: tuple[ServiceReading, ...] = ()
    for name, profile in sorted(catalogue.services.items())[:1]:
        client = next(iter(profile.clients))
        made_up = NodeService("service", name, 1, 1e6, client, node.cores[:1])
        services = (ServiceReading(made_up, 0),)
    FlowNode(node).decide(Reading(0.0, services, tasks))
    LearntRunTime(1.0, 0.1, 1, 1).length(1.0)  # what the first completion of a class needs
