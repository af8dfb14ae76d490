"""Tasks that may not share a core with a service: decided with the services, never beside one, and never forgotten."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from flowsched.node import Node, NodeService, NodeTask, Reading, ServiceReading, TaskReading, TaskState, reasons
from flowsched.node.apart import Apart
from flowsched.node.arrangement import Arrangement
from flowsched.node.decision_trace import decision_trace, network_graph
from flowsched.node.flow_node import FlowNode
from flowsched.node.makespan_prices import Regime
from flowsched.node.makespan_program import MakespanProgram
from flowsched.node.moment import Candidate, Moment
from flowsched.node.network import build_network
from flowsched.node.search import search
from flowsched.node.settings import NodeSettings
from flowsched.solvers import make_solver
from flowsched_models.profiles import load_catalogue
from flowsched_models.runtime import HostFactory, Stage

CATALOGUE = load_catalogue()
HOSTS = HostFactory(CATALOGUE)
SOLVER = make_solver("ortools")
JOBS = ("blackscholes", "canneal", "dedup", "ferret", "freqmine", "radix", "vips")
TYPE = "n2d-highmem-4"
CORES = (0, 1, 2, 3)
ANYWHERE = NodeService("mc", "memcached", 2, 1000.0, "mcperf-sweep", (0, 1, 2, 3))
"""As the agent has them: it may be given every core."""


def moment_of(shares, qps=(20_000.0,), services=(ANYWHERE,), due=(), gone=frozenset(), cores=CORES, **changed):
    """``shares``: of each job by name, whether it may."""
    candidates = []
    for name, may in shares.items():
        profile = CATALOGUE.jobs[name]
        stage = Stage.MIXED if profile.phase_order == "mixed" else Stage.PARALLEL
        task = NodeTask(name, name, 4, shares=may)
        candidates.append(Candidate(task, stage, profile.work_s / 300.0, due=name in due))
    node = Node(CATALOGUE, TYPE, cores)
    return Moment(
        node, NodeSettings(**changed), HOSTS, tuple(candidates), tuple(services), tuple(map(float, qps)), gone=gone
    )


def without_tasks(moment):
    return Arrangement(tuple(len(s.cores) for s in moment.services), ((),) * len(moment.candidates))


class World:
    """A machine that only counts queries: its tasks never end."""

    def __init__(self, tasks, services=(ANYWHERE,), cores=CORES, machine_type=TYPE, **changed):
        self.controller = FlowNode(Node(CATALOGUE, machine_type, cores), NodeSettings(**changed))
        self.tasks, self.services = list(tasks), list(services)
        self.t_s = 0.0
        self.queries = 0.0
        self.gone = set()
        self.cores = {s.name: s.cores for s in services}
        self.grants = {}
        self.submitted = {}
        self.paused_since = {}

    def tick(self, qps, answers=True):
        self.queries += 0.1 * qps
        for task in self.tasks:
            self.submitted.setdefault(task.name, self.t_s)
        reading = Reading(
            self.t_s,
            tuple(
                ServiceReading(s, int(self.queries) if answers else None, there=s.name not in self.gone)
                for s in self.services
            ),
            tuple(TaskReading(t, self.state(t.name), self.submitted[t.name]) for t in self.tasks),
        )
        decided = self.controller.decide(reading)
        if decided is not None:
            self.cores |= {name: grant.cores for name, grant in decided.services.items()}
            self.grants |= decided.tasks
        for task in self.tasks:
            if self.grants[task.name].run:
                self.paused_since.pop(task.name, None)
            else:
                self.paused_since.setdefault(task.name, self.t_s)
        self.t_s = round(self.t_s + 0.1, 6)
        return decided

    def state(self, name):
        grant = self.grants.get(name)
        return TaskState.QUEUED if grant is None else TaskState.RUNNING if grant.run else TaskState.PAUSED

    def run(self, seconds, qps):
        for _ in range(round(10 * seconds)):
            self.tick(qps)
        return self

    def served(self):
        return {c for name, cores in self.cores.items() if name not in self.gone for c in cores}


def task(name, shares=False, scale=1.0, threads=4):
    return NodeTask(name, name.split("-")[0], threads, scale, shares=shares)


# Without such tasks nothing is different.


@given(st.lists(st.lists(st.sampled_from(CORES), unique=True).map(tuple), max_size=3), st.integers(1, 4))
def test_arrangements_of_tasks_that_share_are_left_as_they_are(tasks, count):
    apart = Apart(CORES, (ANYWHERE,), (True,) * len(tasks))
    arrangement = Arrangement((count,), tuple(tasks))
    assert apart.kept(arrangement)
    assert apart.put_right(arrangement) is arrangement
    assert list(apart.making_room(arrangement)) == []


def test_work_of_tasks_that_share_is_never_left_for_later():
    moment = moment_of(dict.fromkeys(JOBS[:3], True), (500_000.0,))
    left = [((c.stage, 1.0),) for c in moment.candidates]
    program = MakespanProgram(SOLVER)
    prices = program.ask([Regime(1.0, moment)], left)
    done = sum(
        s.seconds * np.array(replace(moment, candidates=moment.candidates).rates(s.arrangement))
        for s in prices.schedule
    )
    assert (done >= 1.0 - 1e-6).all()


# The limit.


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    shares=st.dictionaries(st.sampled_from(JOBS), st.booleans(), min_size=1, max_size=5),
    qps=st.integers(0, 400_000),
    fewest=st.integers(1, 4),
    data=st.data(),
)
def test_no_task_shares_that_may_not_whatever_the_search_starts_from(shares, qps, fewest, data):
    due = [name for name in shares if data.draw(st.booleans())] if fewest < 4 else ()
    moment = moment_of(shares, (qps,), (replace(ANYWHERE, fewest=fewest),), due)
    cores = st.lists(st.sampled_from(CORES), unique=True).map(lambda c: tuple(sorted(c)))
    start = Arrangement((data.draw(st.integers(1, 4)),), tuple(data.draw(cores) for _ in shares))
    out = moment.apart.put_right(Arrangement((fewest,), tuple(CORES if n in due else () for n in shares)))
    assert moment.allowed(out)
    found = search(moment, start, SOLVER, 4, 8, known=(out,))
    service = set(CORES[: max(fewest, found.arrangement.services[0])])
    for (name, may), own in zip(shares.items(), found.arrangement.tasks, strict=True):
        assert may or not service & set(own)
        assert own or name not in due
    assert found.worth >= moment.worth(out) - 1e-9
    if moment.allowed(start):
        assert found.worth >= moment.worth(start) - 1e-9


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    first=st.sampled_from(JOBS),
    other=st.sampled_from(JOBS),
    both=st.booleans(),
    qps=st.integers(0, 200_000),
)
@example("blackscholes", "dedup", False, 0)  # the service gives cores up, and the other task alone takes them
@example("canneal", "dedup", False, 0)
def test_near_the_best_of_all_arrangements_of_a_small_machine(first, other, both, qps):
    moment = moment_of({first: False} | ({other: not both} if other != first else {}), (qps,))
    subsets = [tuple(c for c in CORES if bits >> c & 1) for bits in range(16)]
    count = len(moment.candidates)
    every = [()]
    for _ in range(count):
        every = [(*own, s) for own in every for s in subsets]
    trials = [Arrangement((k,), own) for k in (1, 2, 3, 4) for own in every]
    best = max(moment.worth(a) for a in trials if moment.allowed(a))
    found = search(moment, without_tasks(moment), SOLVER, 4, 8).worth
    assert found >= best - 0.02 * abs(best) - 1e-9


def test_the_network_has_no_arc_for_it_on_a_seat_beside_a_service():
    moment = moment_of({"canneal": False, "ferret": True}, services=(replace(ANYWHERE, cores=(0, 1), fewest=1),))
    network = build_network(moment, without_tasks(moment))
    heads = {0: set(), 1: set()}
    for arc, k, _ in network.task_arcs:
        heads[k].add(network.network.nodes[network.network.heads[arc]])
    assert heads[0] == {"full:1", "full:2", "full:3"}
    assert heads[1] == {"light:0", "light:1", "full:1", "full:2", "full:3"}


def test_a_service_takes_its_cores_in_order_also_where_the_later_ones_are_worth_as_much():
    # Overloaded on any number of cores: each further one gains as much.
    moment = moment_of({"canneal": False}, (2_000_000.0,), (replace(ANYWHERE, cores=(0, 1, 2)),))
    network = build_network(moment, without_tasks(moment))
    flow = SOLVER.solve(network.network).flow
    assert moment.apart.kept(network.arrangement(flow, 1, 1))


# Decisions over time.


def test_a_service_leaves_a_core_while_its_load_is_low_and_takes_it_back_within_two_ticks():
    world = World([task("canneal")], (replace(ANYWHERE, cores=(0, 1), threads=2),), (0, 1), "e2-standard-2")
    world.run(5.0, 5_000.0)
    assert (world.cores["mc"], world.grants["canneal"].cores) == ((0,), (1,))
    assert world.grants["canneal"].weight == 1.0
    world.run(0.2, 100_000.0)
    assert (world.cores["mc"], world.grants["canneal"].run) == ((0, 1), False)
    qps = world.controller.qps("mc")
    assert world.grants["canneal"].reason == reasons.alone("mc", world.controller.moment.qps[0])
    assert qps >= 100_000.0
    world.run(1.0, 5_000.0)
    assert world.grants["canneal"].cores == (1,)


def test_load_that_is_high_from_the_start_is_no_reason_to_break_goals():
    """Whatever the program believes to be usual: work that cannot be done well now is left for later."""
    world = World([task("canneal")], (replace(ANYWHERE, cores=(0, 1), threads=2),), (0, 1), "e2-standard-2")
    for _ in range(600):
        world.tick(100_000.0)
        assert not world.grants["canneal"].run
    world.run(2.0, 5_000.0)
    assert world.grants["canneal"].run


def test_no_answer_counts_as_the_highest_load_also_for_those_who_may_not_share():
    world = World([task("freqmine")], (replace(ANYWHERE, threads=4),)).run(5.0, 5_000.0)
    assert world.grants["freqmine"].run
    before = len(world.cores["mc"])
    world.tick(5_000.0, answers=False)
    assert len(world.cores["mc"]) > before
    assert not world.served() & set(world.grants["freqmine"].cores)


@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    loads=st.lists(st.integers(0, 300_000), min_size=2, max_size=6),
    shares=st.dictionaries(st.sampled_from(JOBS), st.booleans(), min_size=1, max_size=4),
    fewest=st.integers(1, 3),
    two=st.booleans(),
)
def test_at_any_loads_no_task_shares_that_may_not_and_none_waits_beyond_the_due_age(loads, shares, fewest, two):
    services = [replace(ANYWHERE, fewest=fewest)]
    if two:
        services = [replace(ANYWHERE, cores=(0, 1), fewest=min(fewest, 2)), replace(ANYWHERE, name="b", cores=(2, 3))]
    due_s = 2.0
    world = World([task(n, may) for n, may in shares.items()], services, due_s=due_s)
    for qps in loads:
        for _ in range(12):
            world.tick(float(qps))
            kept = {c for s in services for c in s.cores[: max(len(world.cores[s.name]), s.fewest)]}
            for name, may in shares.items():
                assert may or not kept & set(world.grants[name].cores)
            for name, since in world.paused_since.items():
                assert world.t_s - since <= due_s + 0.3, name


def test_who_is_due_gets_a_core_of_a_service_that_is_down_to_its_fewest():
    service = replace(ANYWHERE, cores=(0, 1, 2), threads=3, fewest=2)
    world = World([task("canneal")], (service,), (0, 1, 2), "e2-standard-4", due_s=5.0).run(4.0, 300_000.0)
    assert (len(world.cores["mc"]), world.grants["canneal"].run) == (3, False)
    world.run(2.0, 300_000.0)
    assert (len(world.cores["mc"]), world.grants["canneal"].cores) == (2, (2,))
    assert world.grants["canneal"].reason == reasons.due(5.0)
    world.run(5.0, 300_000.0)
    assert world.grants["canneal"].run


def test_where_services_never_leave_a_core_it_waits_for_as_long_as_they_are_there():
    world = World([task("canneal")], (replace(ANYWHERE, fewest=4),), due_s=1.0).run(5.0, 1_000.0)
    assert (world.grants["canneal"].run, world.grants["canneal"].reason) == (False, reasons.NO_ROOM)
    world.gone.add("mc")
    world.tick(1_000.0)
    assert world.grants["canneal"].run


def test_an_ability_that_is_lost_or_found_is_decided_by_at_once():
    world = World([task("canneal", shares=True)], (replace(ANYWHERE, threads=4),)).run(5.0, 5_000.0)
    assert world.served() & set(world.grants["canneal"].cores)
    world.tasks = [task("canneal")]
    world.tick(5_000.0)
    assert world.grants["canneal"].run
    assert not world.served() & set(world.grants["canneal"].cores)
    world.tasks = [task("canneal", shares=True)]
    world.run(1.0, 5_000.0)
    assert world.grants["canneal"].weight < 1.0


def test_nothing_changes_while_nothing_happens():
    world = World([task("canneal", scale=50.0), task("ferret", scale=50.0), task("vips", True, 50.0)])
    world.run(15.0, 30_000.0)
    assert sum(world.tick(30_000.0) is not None for _ in range(300)) <= 3


# Reasons.


def test_reasons_name_the_case():
    two = replace(ANYWHERE, cores=(0, 1), threads=2)
    calm, busy = (moment_of({"canneal": True}, (qps,), (two,), cores=(0, 1)) for qps in (5_000.0, 100_000.0))
    assert reasons.why_waiting(busy, without_tasks(busy), 0) == reasons.goal("mc", 100_000.0)
    assert reasons.why_waiting(calm, without_tasks(calm), 0) == reasons.CHEAPER_LATER
    crowd = [task(f"canneal-{k}", True, 20.0) for k in range(3)]
    world = World(crowd, (replace(two, cores=(0,)),), (0, 1), "e2-standard-2", crowd_price=5.0).run(1.0, 95_000.0)
    waiting = {g.reason for g in world.grants.values() if not g.run}
    assert waiting == {reasons.OTHERS}


def test_a_decision_record_says_why_and_who_may_share():
    world = World([task("canneal")], (replace(ANYWHERE, fewest=4),)).run(1.0, 1_000.0)
    trace = decision_trace(world.controller)
    (entry,) = trace["tasks"]
    assert (entry["shares"], entry["reason"], entry["cores"]) == (False, reasons.NO_ROOM, [])
    assert trace["services"][0]["reason"].startswith("ready for")
    graph = network_graph(trace)
    assert {head for _, head in graph.out_edges("task:canneal")} == {"unscheduled:canneal"}


@pytest.mark.parametrize("shares", [True, False])
def test_a_service_that_is_gone_takes_no_core_from_those_who_may_not_share(shares):
    world = World([task("canneal", shares)])
    world.gone.add("mc")
    world.run(1.0, 0.0)
    assert world.grants["canneal"].run
