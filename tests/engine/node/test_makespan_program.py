"""Prices of progress: duals of the shortest schedule."""

import pytest

from flowsched.node import Node, NodeService, NodeTask
from flowsched.node.arrangement import Arrangement
from flowsched.node.makespan_prices import Regime
from flowsched.node.makespan_program import MakespanProgram
from flowsched.node.moment import Candidate, Moment
from flowsched.node.progress import CEILING, Pace, ProgressBook
from flowsched.node.settings import NodeSettings
from flowsched.solvers import make_solver
from flowsched_models.profiles import load_catalogue
from flowsched_models.runtime import HostFactory, Stage

CATALOGUE = load_catalogue()
HOSTS = HostFactory(CATALOGUE)
JOBS = ("canneal", "ferret", "freqmine", "vips")
SERVICE = NodeService("memcached", "memcached", 2, 1000.0, "mcperf-sweep", (0, 1))


def question(jobs=JOBS, loads=((1.0, 30_000.0),)):
    book = ProgressBook(CATALOGUE)
    tasks = [NodeTask(j, j, 4) for j in jobs]
    regimes = [
        Regime(
            share,
            Moment(
                Node(CATALOGUE, "n2d-highmem-4", (0, 1, 2, 3)),
                NodeSettings(),
                HOSTS,
                tuple(Candidate(t, book.stage(t), 0.0) for t in tasks),
                (SERVICE,),
                (qps,),
            ),
        )
        for share, qps in loads
    ]
    return regimes, [book.pieces(t) for t in tasks]


def cost_of(moment, arrangement):
    """What an arrangement costs the services' goals, and its tasks each other."""
    empty = Arrangement((2,), ((),) * len(arrangement.tasks))
    return max(0.0, moment.slo_cost(arrangement) - moment.slo_cost(empty) + moment.crowd_cost(arrangement))


def settled(program, regimes, left):
    prices = program.ask(regimes, left)
    for _ in range(200):
        if prices.settled:
            return prices
        prices = program.go_on()
    raise AssertionError("never settles")


def test_no_schedule_of_plain_arrangements_is_shorter():
    regimes, left = question()
    prices = settled(MakespanProgram(make_solver("ortools")), regimes, left)
    moment = regimes[0].moment
    alone = 0.0
    for k, parts in enumerate(left):
        for stage, amount in parts:
            at = Moment(
                moment.node,
                moment.settings,
                HOSTS,
                tuple(Candidate(c.task, stage, 0.0) for c in moment.candidates),
                moment.services,
                moment.qps,
            )
            cores = tuple((0, 1, 2, 3) if i == k else () for i in range(len(left)))
            alone += amount / at.rates(Arrangement((2,), cores))[k]
    assert 0.0 < prices.makespan_s < alone


def test_prices_and_schedule_say_the_same():
    """Strong duality: the work left at its prices is the time plus what the goals cost."""
    regimes, left = question()
    program = MakespanProgram(make_solver("ortools"))
    prices = settled(program, regimes, left)
    worth = sum(
        prices.values[job, stage] * amount for job, parts in zip(JOBS, left, strict=True) for stage, amount in parts
    )
    costs = sum(s.seconds * cost_of(regimes[s.regime].moment, s.arrangement) for s in prices.schedule)
    assert worth == pytest.approx(prices.makespan_s + costs, rel=1e-6)


def test_the_schedule_does_all_the_work_in_the_shares_of_its_regimes():
    regimes, left = question(loads=((0.5, 20_000.0), (0.5, 95_000.0)))
    prices = settled(MakespanProgram(make_solver("ortools")), regimes, left)
    time = [sum(s.seconds for s in prices.schedule if s.regime == q) for q in range(2)]
    assert time[0] == pytest.approx(time[1], rel=1e-6)
    done = {}
    for spell in prices.schedule:
        moment = regimes[spell.regime].moment
        at = Moment(
            moment.node,
            moment.settings,
            HOSTS,
            tuple(Candidate(c.task, stage, 0.0) for c, (_, stage) in zip(moment.candidates, spell.stages, strict=True)),
            moment.services,
            moment.qps,
        )
        for piece, rate in zip(spell.stages, at.rates(spell.arrangement), strict=True):
            done[piece] = done.get(piece, 0.0) + rate * spell.seconds
    for job, parts in zip(JOBS, left, strict=True):
        for stage, amount in parts:
            assert done[job, stage] >= amount * (1.0 - 1e-6)


def test_more_searches_never_lengthen_the_schedule():
    regimes, left = question()
    program = MakespanProgram(make_solver("ortools"))
    prices = program.ask(regimes, left)
    before = float("inf")
    while not prices.settled:
        assert prices.makespan_s <= before * (1.0 + 1e-2)
        before = min(before, prices.makespan_s)
        prices = program.go_on()


def test_an_empty_machine_has_nothing_to_price():
    regimes, left = question(jobs=())
    prices = MakespanProgram(make_solver("ortools")).ask(regimes, left)
    assert prices.settled
    assert prices.values == {}


def test_no_task_is_estimated_done_before_the_system_says_so():
    book = ProgressBook(CATALOGUE)
    task = NodeTask("canneal", "canneal", 4)
    book.add(task, Pace(5.0, 5.0, 5.0), 1.0)
    assert book.progress(task) == CEILING
    assert book.pieces(task)[0][0] is Stage.PARALLEL
