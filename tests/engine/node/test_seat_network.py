"""The network inside one machine: what its flow means, and that the search around it never loses."""

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from flowsched.node import Node, NodeService, NodeTask
from flowsched.node.arrangement import Arrangement
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


def service(name="memcached", cores=(0, 1)):
    return NodeService(name, "memcached", 2, 1000.0, "mcperf-sweep", cores)


def moment_of(jobs=JOBS[:3], qps=(20_000.0,), services=None, *, due=(), values=None, threads=4, **changed):
    services = (service(),) if services is None else services
    candidates = []
    for job in jobs:
        profile = CATALOGUE.jobs[job]
        stage = Stage.MIXED if profile.phase_order == "mixed" else Stage.PARALLEL
        value = (values or {}).get(job, profile.work_s)
        candidates.append(Candidate(NodeTask(job, job, threads), stage, value / 300.0, due=job in due))
    node = Node(CATALOGUE, TYPE, (0, 1, 2, 3))
    return Moment(node, NodeSettings(**changed), HOSTS, tuple(candidates), tuple(services), tuple(qps))


def no_task(moment):
    return Arrangement(tuple(len(s.cores) for s in moment.services), ((),) * len(moment.candidates))


def solved(moment, around=None):
    network = build_network(moment, around or no_task(moment))
    solution = SOLVER.solve(network.network)
    return network, solution, network.arrangement(solution.flow, len(moment.candidates), len(moment.services))


def test_the_network_conserves_and_keeps_capacities():
    network, solution, _ = solved(moment_of(JOBS))
    net = network.network
    balance = np.zeros(len(net.supplies), dtype=np.int64)
    np.add.at(balance, net.tails, solution.flow)
    np.add.at(balance, net.heads, -solution.flow)
    assert (balance == net.supplies).all()
    assert ((solution.flow >= 0) & (solution.flow <= net.capacities)).all()


def test_the_first_core_of_a_service_is_always_its_own():
    for qps in (0.0, 5_000.0, 100_000.0, 500_000.0):
        _, _, arrangement = solved(moment_of(JOBS, (qps,)))
        assert arrangement.services[0] >= 1


def test_a_low_load_shares_its_cores_and_a_high_one_does_not():
    calm = search(moment_of(qps=(5_000.0,)), no_task(moment_of()), SOLVER, 4, 8).arrangement
    busy = search(moment_of(qps=(100_000.0,)), no_task(moment_of()), SOLVER, 4, 8).arrangement
    assert {0, 1} & {c for cores in calm.tasks for c in cores}
    assert not {0, 1} & {c for cores in busy.tasks for c in cores}
    assert {2, 3} & {c for cores in busy.tasks for c in cores}


def test_a_load_beyond_one_core_gets_two():
    assert solved(moment_of(qps=(60_000.0,)))[2].services == (2,)


def test_overdue_tasks_run_even_at_a_load_that_leaves_no_room():
    moment = moment_of(JOBS, (115_000.0,), due=JOBS, violation_price=1e4)
    every = Arrangement((2,), ((0, 1, 2, 3),) * len(JOBS))
    found = search(moment, no_task(moment), SOLVER, 4, 8, known=(every,)).arrangement
    assert all(found.tasks)


def test_a_task_of_no_value_stays_on_its_unscheduled_node():
    moment = moment_of(("ferret", "radix"), values={"radix": 0.0})
    _, _, arrangement = solved(moment)
    assert arrangement.tasks[0]
    assert not arrangement.tasks[1]


def test_two_services_never_claim_one_core():
    two = (service("a", (0, 1)), service("b", (2, 1)))
    moment = moment_of(JOBS[:2], (60_000.0, 60_000.0), two)
    found = search(moment, Arrangement((1, 1), ((),) * 2), SOLVER, 4, 8).arrangement
    claimed = [c for cores in moment.service_cores(found) for c in cores]
    assert len(claimed) == len(set(claimed))


def test_reserved_bandwidth_slows_all_others():
    free = moment_of(("ferret",))
    owed = Moment(free.node, free.settings, HOSTS, free.candidates, free.services, free.qps, owed=2.0)
    everywhere = Arrangement((2,), ((0, 1, 2, 3),))
    assert owed.rates(everywhere)[0] == pytest.approx(0.5 * free.rates(everywhere)[0])


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    jobs=st.lists(st.sampled_from(JOBS), min_size=1, max_size=5, unique=True),
    qps=st.integers(0, 120_000),
    data=st.data(),
)
def test_a_search_never_ends_worse_than_where_it_began(jobs, qps, data):
    moment = moment_of(tuple(jobs), (float(qps),))
    cores = st.lists(st.sampled_from((0, 1, 2, 3)), unique=True).map(lambda c: tuple(sorted(c)))
    start = Arrangement((data.draw(st.integers(1, 2)),), tuple(data.draw(cores) for _ in jobs))
    found = search(moment, start, SOLVER, 4, 8)
    assert found.worth >= moment.worth(start) - 1e-9
    assert found.worth == moment.worth(found.arrangement)
    assert moment.allowed(found.arrangement)


@settings(max_examples=40, deadline=None)
@given(qps=st.integers(0, 200_000), more=st.integers(0, 100_000), cores=st.integers(1, 2))
def test_a_goal_costs_more_with_load_and_with_neighbours(qps, more, cores):
    price = moment_of().slo[0]
    assert price.cost(cores, qps + more, 0.0) >= price.cost(cores, qps, 0.0) - 1e-9
    assert price.cost(cores, qps, 1.0) >= price.cost(cores, qps, 0.5) - 1e-9
    assert price.cost(cores, qps, 0.5) >= price.cost(cores, qps, 0.0) - 1e-9


@settings(max_examples=25, deadline=None)
@given(data=st.data())
def test_near_the_best_of_all_arrangements_of_a_small_machine(data):
    """Against every arrangement of two tasks on four cores: what a search gives away is small."""
    jobs = data.draw(st.lists(st.sampled_from(JOBS), min_size=2, max_size=2, unique=True))
    moment = moment_of(tuple(jobs), (float(data.draw(st.integers(0, 110_000))),))
    subsets = [tuple(c for c in range(4) if bits >> c & 1) for bits in range(16)]
    best = max(moment.worth(Arrangement((k,), (a, b))) for k in (1, 2) for a in subsets for b in subsets)
    found = search(moment, no_task(moment), SOLVER, 4, 8).worth
    assert found >= best - 0.02 * abs(best) - 1e-9
