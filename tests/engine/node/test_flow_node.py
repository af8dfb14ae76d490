"""The controller as a whole, driven by readings of a simulated machine."""

from dataclasses import replace

import pytest

from flowsched.node import (
    LOWEST_WEIGHT,
    Deadline,
    Node,
    NodeService,
    NodeTask,
    Reading,
    ServiceReading,
    TaskReading,
    TaskState,
)
from flowsched.node.flow_node import FlowNode
from flowsched.node.settings import NodeSettings
from flowsched_models.profiles import load_catalogue
from flowsched_models.runtime import HostFactory
from flowsched_simulator.node.machine import NodeMachine

CATALOGUE = load_catalogue()
TYPE = "n2d-highmem-4"
CORES = (0, 1, 2, 3)
MEMCACHED = NodeService("memcached", "memcached", 2, 1000.0, "mcperf-sweep", (0, 1))
NODE = Node(CATALOGUE, TYPE, CORES)
STRICT = NodeSettings(violation_price=300.0)
"""At the highest load no task is let near the service."""


class Drive:
    """A machine under a controller, tick by tick."""

    def __init__(self, tasks, controller=None, services=(MEMCACHED,), load=lambda t: 20_000.0):
        self.controller = controller or FlowNode(NODE)
        self.services, self.load = services, load
        self.machine = NodeMachine(CATALOGUE, TYPE, CORES, services)
        self.tasks, self.submitted, self.ends, self.allocations = {}, {}, {}, []
        self.ended = ()
        self.answers = True
        for task in tasks:
            self.submit(task)

    def submit(self, task, slowdown=1.0):
        self.tasks[task.name] = task
        self.submitted[task.name] = self.machine.now_s
        self.machine.submit(task, slowdown)

    def state(self, name):
        if self.machine.grant(name).run:
            return TaskState.RUNNING
        return TaskState.QUEUED if self.machine.started_s(name) is None else TaskState.PAUSED

    def reading(self):
        m = self.machine
        return Reading(
            m.now_s,
            tuple(
                ServiceReading(s, int(m.queries(s.name)) if self.answers else None, m.service_busy_s(s.name))
                for s in self.services
            ),
            tuple(TaskReading(self.tasks[n], self.state(n), self.submitted[n], m.cpu_s(n)) for n in m.tasks()),
            ended=self.ended,
        )

    def tick(self):
        for s in self.services:
            self.machine.set_load(s.name, self.load(self.machine.now_s))
        allocation = self.controller.decide(self.reading())
        if allocation is not None:
            self.allocations.append((self.machine.now_s, allocation))
            for name, grant in allocation.services.items():
                self.machine.set_cores(name, grant.cores)
            for name, grant in allocation.tasks.items():
                self.machine.set_grant(name, grant)
        ended = self.machine.advance(round(self.machine.now_s + 0.1, 6))
        self.ended = tuple(self.tasks[name] for _, name in ended)
        for t_s, name in ended:
            self.ends[name] = t_s
        return allocation

    def run(self, seconds):
        for _ in range(round(seconds / 0.1)):
            self.tick()
        return self

    def beside_service(self):
        """Tasks that run on the service's cores now."""
        service = set(self.machine.service_cores("memcached"))
        return [
            n for n in self.machine.tasks() if self.machine.grant(n).run and service & set(self.machine.grant(n).cores)
        ]


def job(name, profile=None, scale=1.0, **more):
    return NodeTask(name, profile or name, 4, scale, **more)


PARSEC = [job(n) for n in ("canneal", "ferret", "freqmine", "vips")]


def test_a_step_up_is_acted_on_within_two_ticks():
    drive = Drive(PARSEC, FlowNode(NODE, STRICT), load=lambda t: 100_000.0 if t >= 10.0 else 20_000.0).run(10.0)
    assert drive.beside_service()
    drive.run(0.2)
    assert not drive.beside_service()
    assert drive.machine.service_cores("memcached") == (0, 1)


def test_a_step_down_is_acted_on_after_a_calm_while():
    drive = Drive(PARSEC, FlowNode(NODE, STRICT), load=lambda t: 20_000.0 if t >= 10.0 else 100_000.0).run(10.5)
    assert not drive.beside_service()
    drive.run(1.0)
    assert drive.beside_service()


def test_no_answer_takes_the_jobs_away_and_gives_all_cores():
    drive = Drive(PARSEC).run(5.0)
    assert drive.beside_service()
    drive.answers = False
    drive.run(0.2)
    assert not drive.beside_service()
    assert drive.machine.service_cores("memcached") == (0, 1)
    drive.answers = True
    drive.run(2.0)
    assert drive.beside_service()


def test_nothing_changes_while_nothing_happens():
    drive = Drive([job("freqmine", scale=50.0), job("ferret", scale=50.0)]).run(15.0)
    before = len(drive.allocations)
    drive.run(30.0)
    assert len(drive.allocations) - before <= 3


def test_batch_never_has_more_than_the_lowest_weight_and_services_always_have_a_core():
    drive = Drive(PARSEC, load=lambda t: 5_000.0 + 95_000.0 * (int(t) % 7) / 6).run(40.0)
    assert drive.allocations
    for _, allocation in drive.allocations:
        assert all(g.cores for g in allocation.services.values())
        for grant in allocation.tasks.values():
            assert grant.weight <= LOWEST_WEIGHT
            assert set(grant.cores) <= set(CORES)
            assert grant.run == bool(grant.cores)
            assert grant.run or grant.reason


def test_equal_readings_give_equal_decisions():
    def once():
        drive = Drive(PARSEC, load=lambda t: 5_000.0 + 90_000.0 * (int(t / 3) % 5) / 4).run(60.0)
        return drive.allocations, drive.ends

    assert once() == once()


def test_no_task_starves_behind_others_that_keep_coming():
    """Later arrivals are always worth more: without a due age the first one would never run."""
    settings = NodeSettings(due_s=20.0)
    drive = Drive([job("old", "canneal", 0.05)], FlowNode(NODE, settings))
    for k in range(60):
        drive.submit(job(f"new-{k}", "freqmine", 0.02))
        drive.run(2.0)
        if "old" in drive.ends:
            break
    assert drive.ends["old"] < 20.0 + 60.0


def test_who_is_due_is_not_paused_again():
    settings = NodeSettings(due_s=3.0, waiting_growth=0.0, violation_price=1e5)
    drive = Drive([job(n, scale=5.0) for n in ("canneal", "ferret", "freqmine", "vips", "radix", "dedup")],
                  FlowNode(NODE, settings), load=lambda t: 110_000.0)  # fmt: skip
    for _ in range(300):
        due = drive.controller.due
        drive.tick()
        assert all(drive.machine.grant(n).run for n in due)
        assert due <= drive.controller.due
    assert drive.controller.due


def test_tasks_come_and_go():
    drive = Drive([job("ferret")]).run(3.0)
    drive.submit(job("late", "vips", 0.05))
    drive.run(200.0)
    assert set(drive.ends) == {"ferret", "late"}
    assert drive.tick() is None


def test_a_critical_task_gets_its_bandwidth_on_all_cores_and_one_too_many_a_reason():
    half = Deadline(500_000.0, 1_000_000.0)
    tasks = [job(f"critical-{k}", "radix", deadline=half) for k in range(8)]
    drive = Drive([*tasks, job("ferret")])
    grants = drive.tick().tasks
    owed = [n for n, g in grants.items() if g.deadline == half]
    assert len(owed) == 7
    assert all(grants[n].cores == CORES for n in owed)
    (refused,) = {f"critical-{k}" for k in range(8)} - set(owed)
    assert grants[refused].deadline is None
    assert grants[refused].run
    assert grants[refused].weight == 1.0
    assert not {0, 1} & set(grants[refused].cores)
    assert "CPUs" in drive.controller.refused[refused]


def test_two_services_share_one_machine():
    two = (
        replace(MEMCACHED, name="a", cores=(0, 1), threads=1),
        replace(MEMCACHED, name="b", cores=(2, 3), threads=1),
    )
    drive = Drive(PARSEC, services=two, load=lambda t: 60_000.0 if 10 <= t < 20 else 10_000.0).run(25.0)
    for _, allocation in drive.allocations:
        cores = [c for g in allocation.services.values() for c in g.cores]
        assert len(cores) == len(set(cores))
    assert drive.controller.qps("a") == pytest.approx(10_000.0, rel=0.1)


def plain_reading(t_s, services, queries, tasks, state=TaskState.QUEUED):
    return Reading(
        t_s, tuple(ServiceReading(s, queries) for s in services), tuple(TaskReading(t, state, 0.0) for t in tasks)
    )


def test_services_come_and_go_beside_tasks_that_stay():
    """What is usual, and arrangements that are remembered, are those of the services that were there then."""
    one, two = (MEMCACHED,), (MEMCACHED, replace(MEMCACHED, name="b", cores=(3, 2)))
    controller = FlowNode(NODE)
    given = []
    for k in range(400):
        services = two if 330 <= k < 340 else () if k == 340 else one
        # The new one is not heard of at first: nothing new is usual yet.
        readings = tuple(ServiceReading(s, None if s.name == "b" and k < 335 else 2_000 * k) for s in services)
        tasks = tuple(TaskReading(t, TaskState.QUEUED, 0.0) for t in PARSEC)
        allocation = controller.decide(Reading(0.1 * k, readings, tasks))
        if k in (330, 340, 341):
            given.append({name: grant.cores for name, grant in allocation.services.items()})
    assert [set(g) for g in given] == [{"memcached", "b"}, set(), {"memcached"}]
    assert set(given[0]["b"]) & set(given[0]["memcached"]) == set()


def test_a_service_or_a_task_of_the_same_name_with_other_properties_is_decided_anew():
    controller = FlowNode(NODE)
    decisions = [controller.decide(plain_reading(0.1 * k, (MEMCACHED,), 100 * k, PARSEC)) for k in range(30)]
    assert decisions[-1] is None
    moved = replace(MEMCACHED, cores=(2, 3))
    allocation = controller.decide(plain_reading(3.0, (moved,), 3000, PARSEC))
    assert set(allocation.services["memcached"].cores) <= {2, 3}
    owed = replace(PARSEC[0], deadline=Deadline(10_000.0, 100_000.0))
    allocation = controller.decide(plain_reading(3.1, (moved,), 3100, [owed, *PARSEC[1:]]))
    assert allocation.tasks["canneal"].deadline == owed.deadline


def test_more_tasks_are_due_than_there_are_seats_when_services_claim_the_same_cores():
    node = Node(CATALOGUE, "e2-standard-2", (0, 1))
    services = (replace(MEMCACHED, cores=(0, 1)), replace(MEMCACHED, name="b", cores=(1, 0)))
    controller = FlowNode(node, NodeSettings(due_s=1.0))
    tasks = [job(f"{n}-{k}", n) for n in ("canneal", "ferret", "vips") for k in range(2)]
    allocation = controller.decide(plain_reading(5.0, services, None, tasks))
    assert all(grant.run for grant in allocation.tasks.values())
    a, b = (set(allocation.services[s.name].cores) for s in services)
    assert a
    assert b
    assert not a & b


def test_what_is_remembered_is_bounded_and_changes_no_decision(monkeypatch):
    def run():
        drive = Drive(PARSEC, load=lambda t: 10_000.0 + 17_000.0 * (int(t) % 5)).run(25.0)
        return drive.allocations

    usual = run()
    forgotten = []
    monkeypatch.setattr("flowsched.node.flow_node.MOST_REMEMBERED", 100)
    forget = HostFactory.forget
    monkeypatch.setattr(HostFactory, "forget", lambda self: (forgotten.append(self.remembered), forget(self)))
    assert run() == usual
    assert len(forgotten) >= 2
    assert max(forgotten) > 100


def test_an_overload_beyond_all_measure_is_decided_too():
    controller = FlowNode(NODE)
    for k in range(40):
        # 50 million queries per second: p95 in its window is ten thousands of the goal.
        allocation = controller.decide(plain_reading(0.1 * k, (MEMCACHED,), 5_000_000 * k, PARSEC))
    assert controller.qps("memcached") > 1e7
    assert allocation is None or allocation.services["memcached"].cores == (0, 1)


def test_services_that_may_have_the_same_cores_get_first_ones_of_their_own():
    two = tuple(replace(MEMCACHED, name=n, cores=(0, 1, 2, 3), threads=1) for n in ("a", "b"))
    drive = Drive([job("vips", scale=0.1)], services=two, load=lambda t: 10_000.0).run(30.0)
    assert "vips" in drive.ends
    grants = drive.allocations[0][1].services
    assert not set(grants["a"].cores) & set(grants["b"].cores)


def test_more_services_than_cores_still_let_jobs_run():
    many = tuple(replace(MEMCACHED, name=f"s{k}", cores=(k % 2,), threads=1) for k in range(3))
    drive = Drive([job("vips", scale=0.1)], services=many, load=lambda t: 2_000.0).run(30.0)
    assert "vips" in drive.ends


def test_an_empty_machine_is_decided_too():
    drive = Drive([])
    allocation = drive.tick()
    assert allocation is not None
    assert allocation.services["memcached"].cores
    assert FlowNode(NODE).decide(Reading(0.0, (), ())) is not None
