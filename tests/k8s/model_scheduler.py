"""The state machine run against the model of an API server, every step of it by hand."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from model_server import KINDS, ModelServer, Thing
from naive_checker import Cluster

from flowsched.solvers import make_solver
from flowsched_k8s.bindings.bindings import BindOutcome, ReadPod
from flowsched_k8s.changes import Change
from flowsched_k8s.configuration.configuration import Configuration
from flowsched_k8s.instructions import Bind, Evict, MovePod, PatchCondition, PatchEstimate, PodKey, PostEvent, TaintNode
from flowsched_k8s.objects import Pod
from flowsched_k8s.rebalancing.move_plan import MovePlan, confirmed, plan_moves
from flowsched_k8s.rounds.planning import make_engine, plan_round
from flowsched_k8s.rounds.round_input import RoundInput, RoundResult
from flowsched_k8s.state import SchedulerState
from flowsched_models.catalogue import Catalogue
from flowsched_models.profiles import load_catalogue

CATALOGUE = load_catalogue()
SOLVER = make_solver("ortools")


class ModelScheduler:
    """What the process around the state machine does, without input, output or time of its own."""

    def __init__(
        self, server: ModelServer, configuration: Configuration | None = None, catalogue: Catalogue = CATALOGUE
    ) -> None:
        """It knows all that the server has."""
        self.server = server
        self.state = SchedulerState(configuration or Configuration(), catalogue)
        self.binds: list[Bind] = []
        """Decided and not sent."""
        self.replies: list[tuple[PodKey, BindOutcome]] = []
        """Sent; the answer is under way."""
        self.reads: list[ReadPod] = []
        self.victims: list[PodKey] = []
        """Pods to be evicted, which has not been done yet."""
        self.moves: list[PodKey] = []
        """Pods whose eviction is asked for, which has not been carried out yet."""
        self.marks: list[TaintNode] = []
        self.told: list[Any] = []
        """All other instructions."""
        self.given: RoundInput | None = None
        self.result: RoundResult | None = None
        self.observe(server.everything())
        self.state.activate()

    @property
    def now(self) -> float:
        return self.server.now

    def observe(self, changes: Sequence[Change]) -> None:
        self._carry_out(self.state.observe(changes, self.now))

    def deliver(self, *kinds: str) -> None:
        """All events of some kinds, or of all."""
        for kind in kinds or KINDS:
            self.observe(self.server.deliver(kind))

    def _carry_out(self, instructions: Sequence[Any]) -> list[Bind]:
        decided = [i for i in instructions if isinstance(i, Bind)]
        self.binds += decided
        self.reads += [i for i in instructions if isinstance(i, ReadPod)]
        self.told += [i for i in instructions if not isinstance(i, Bind | ReadPod)]
        for told in instructions:
            if isinstance(told, PatchCondition):
                self.server.patch_condition(told.pod, told.reason, told.message, told.nominated_node)
            elif isinstance(told, PatchEstimate):
                self.server.patch_estimate(told.pod, told.text)
            elif isinstance(told, Evict):
                self.victims.append(told.pod)
            elif isinstance(told, MovePod):
                self.moves.append(told.pod)
            elif isinstance(told, TaintNode):
                self.marks.append(told)
        return decided

    # Rounds

    def begin(self) -> bool:
        """Whether there is anything to decide."""
        self.given, out = self.state.begin_round(self.now)
        if self.given is not None and self.given.only_reads:
            # A process decides such a round before anything else happens, and tests let things happen in between.
            self.given = replace(self.given, booked=self.given.booked.copy())
        self._carry_out(out)
        return self.given is not None

    def plan(self) -> None:
        """The arithmetic, which changes nothing."""
        assert self.given is not None
        self.result = plan_round(self.given, SOLVER, clock=lambda: 0.0)
        # Every record that a test makes is checked.
        assert self.result.trace is not None
        self.result.trace.record()

    def end(self) -> list[Bind]:
        """What was decided."""
        assert self.result is not None
        out = self.state.end_round(self.result, self.now)
        self.given = self.result = None
        return self._carry_out(out)

    def round(self) -> list[Bind]:
        """A round in which nothing happens meanwhile."""
        if not self.begin():
            return []
        self.plan()
        return self.end()

    # Rebalancing

    def look(self) -> MovePlan | None:
        """Whether pods should be elsewhere; what is to leave is among the moves."""
        rebalancing, configuration = self.state.rebalancing, self.state.configuration
        self._carry_out(rebalancing.restore(self.now))
        questions = iter(rebalancing.questions(self.now))
        engine = make_engine(configuration.engine, SOLVER)
        refused: list[str] = []
        while True:
            plan, why = plan_moves(questions, SOLVER, engine, configuration.rebalancing)
            refused += why
            check = None if plan is None else rebalancing.check(plan, self.now)
            if plan is None or check is None:
                break
            found = confirmed(plan, check, SOLVER, engine, configuration.rebalancing)
            if isinstance(found, MovePlan):
                plan = found
                break
            refused.append(f"{check.what}: {found}")
        if plan is not None and plan.record is not None:
            plan.record()
        self._carry_out(rebalancing.carry_out(plan, refused, f"rebalancing-{rebalancing.looks}", self.now))
        return plan

    def marked(self, accepted: bool = True) -> None:
        """The answer to the last mark."""
        self._carry_out(self.state.rebalancing.marked(self.marks.pop(), accepted, "for the test"))

    def move(self, index: int = 0, refused: str = "") -> None:
        """The API server is asked for an eviction; the pod begins to go, unless that is refused."""
        key = self.moves.pop(index)
        pod = self.server.read(key)
        if not refused and pod is not None and pod.metadata.deletion_timestamp is None:
            self.server.terminate(pod)
        self._carry_out(self.state.rebalancing.answered(MovePod(key), not refused, refused, self.now))

    # Bindings

    def send(self, index: int = 0) -> BindOutcome | None:
        """Send a binding; the server's answer is under way. None: it was withheld."""
        bind = self.binds.pop(index)
        if self.state.bindings.withheld(bind, self.now) is not None:
            return None
        outcome = self.server.bind(bind.pod, bind.node, bind.annotations, bind.grant)
        self.replies.append((bind.pod, outcome))
        return outcome

    def fail(self, outcome: BindOutcome, index: int = 0, message: str = "for the test") -> None:
        """A binding that never reaches the server, or that it does not want."""
        bind = self.binds.pop(index)
        if self.state.bindings.withheld(bind, self.now) is None:
            self.replied(bind.pod, outcome, message)

    def reply(self, index: int = 0, lost: bool = False) -> None:
        """The answer arrives, or is lost."""
        key, outcome = self.replies.pop(index)
        self.replied(key, BindOutcome.LOST if lost else outcome)

    def replied(self, key: PodKey, outcome: BindOutcome, message: str = "") -> None:
        self._carry_out(self.state.bindings.done(key, outcome, message, self.now))

    def read(self, index: int = 0) -> None:
        """A GET and its answer."""
        asked = self.reads.pop(index)
        self._carry_out(self.state.pod_read(asked.pod, self.server.read(asked.pod), self.now))

    def overdue(self) -> None:
        self._carry_out(list(self.state.bindings.overdue(self.now)))

    def tick(self, seconds: float = 1.0) -> None:
        """What the process does every second; rounds follow when the queue calls for them."""
        self.server.now += seconds
        self._carry_out(list(self.state.bindings.overdue(self.now)))
        self._carry_out(self.state.bindings.without_outcome(self.now))
        self._carry_out(self.state.bindings.claims_settled(self.now))
        self._carry_out(self.state.grant_notices.look(self.now))
        self._carry_out(self.state.start_notices.look(self.now))
        self._carry_out(self.state.incomplete_gangs.look(self.now))
        self.settle(within=0.5)

    def evict(self, index: int = 0) -> None:
        """A victim begins to go; it keeps its place until the server removes it."""
        pod = self.server.read(self.victims.pop(index))
        if pod is not None and pod.metadata.deletion_timestamp is None:
            self.server.terminate(pod)

    def answer_all(self) -> None:
        """Send what is decided and hear what became of it."""
        while self.binds or self.replies or self.reads:
            if self.binds:
                self.send()
            elif self.replies:
                self.reply()
            else:
                self.read()

    def settle(self, within: float = 200.0) -> None:
        """Let everything arrive and decide rounds until nothing calls for another one.

        ``within`` seconds is less than the slow retry, so that a wake-up that was forgotten is found out.
        """
        until = self.now + within
        for _ in range(2000):
            self.deliver()
            self.answer_all()
            self.deliver()
            at = self.state.next_round_s(self.now)
            if at is None or at > until:
                return
            self.server.now = max(self.now, at)
            self.round()
        raise AssertionError("rounds do not come to an end")

    # What can be seen

    def create(self, *pods: Pod) -> list[Pod]:
        """New pods, known at once."""
        made = [self.server.put(p) for p in pods]
        self.deliver("pods")
        return made  # type: ignore[return-value]

    def put(self, *things: Thing) -> None:
        """Other objects, known at once."""
        for thing in things:
            self.server.put(thing)
        self.deliver()

    def where(self) -> dict[str, str]:
        """Node of every pod that the server has on one, by name."""
        return {p.metadata.name: p.spec.node_name for p in self.server.pods.values() if p.spec.node_name}

    def conditions(self, name: str) -> list[PatchCondition]:
        """Conditions written of a pod, in order."""
        return [i for i in self.told if isinstance(i, PatchCondition) and i.pod.name == name]

    def events(self, name: str) -> list[PostEvent]:
        """Events about a pod, in order."""
        return [i for i in self.told if isinstance(i, PostEvent) and i.regarding.name == name]

    def known(self) -> Cluster:
        """The cluster as the state machine believes it to be, assumptions included."""
        cache = self.state.cache
        nodes = {name: entry.node for name, entry in cache.nodes.items()}
        return Cluster(nodes, [(e.pod, e.place) for e in cache.pods.values() if e.place])
