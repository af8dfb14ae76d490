"""Numbers of a service's own server that cannot be true, faults in deciding about one service, overdue tasks."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from agent_fakes import SERVICE, TASK, Bench, FakeCounters, FakeStats, allocation, bench

from flowsched.node import LOWEST_WEIGHT, Allocation, NodeService, Reading, ServiceGrant, TaskGrant, TaskState
from flowsched.node.flow_node import FlowNode
from flowsched.node.load import LoadTracker
from flowsched.node.service_error import ServiceError
from flowsched.node.task_waits import TaskWaits
from flowsched_agent.configuration import Find, TaskSpec
from flowsched_agent.guard import Guarded, Overdue, guarded
from flowsched_agent.rates import ANEW_S, TOO_MANY, TOO_OFTEN, Rate
from flowsched_agent.sensors.memcached import MOST_COUNTED, _counters
from flowsched_models.latency import p95_us

HIGHEST = 40_000.0
"""Of ``SERVICE`` and ``OTHER`` on all their cores."""
SLO = SERVICE.model_copy(update={"cores": (0, 1)})
OTHER = SERVICE.model_copy(update={"name": "other", "cores": (2, 3), "find": Find(port=11212), "port": 11212})
Count = Callable[[float], int | None]
"""The counter of a server, by seconds since the beginning."""


def steady(qps: float) -> Count:
    return lambda t: round(qps * t)


def up_and_down(t: float) -> int:
    return 10**6 + (5000 if round(t * 10) % 2 else 0)


LIES: dict[str, Count] = {
    "many": steady(1e9),
    "a little too many": steady(2.2 * HIGHEST),
    "as many as a counter holds": lambda t: 3 * MOST_COUNTED if t > 0.05 else 0,
    "up and down": up_and_down,
    "down": lambda t: 10**9 - round(1000 * t),
    "growing ever faster": lambda t: 10 ** min(19, 4 + round(5 * t)),
}


# What memcached says


@pytest.mark.parametrize(
    "text", ["1" + 400 * "0", 4299 * "9", "nan", "inf", "-5", "1e3", "1_000", "+7", "", " 7", str(2**64), "\u0661", "٣"]
)
@pytest.mark.parametrize("key", ["cmd_get", "cmd_set", "cmd_touch", "pid"])
def test_what_no_counter_can_be_is_refused_in_a_short_sentence(text: str, key: str) -> None:
    with pytest.raises(ValueError, match=f"its {key} is .*, which no counter of memcached can be") as refused:
        _counters({"pid": "7", "cmd_get": "1", "cmd_set": "2", "cmd_touch": "3", key: text})
    assert len(str(refused.value)) < 150


def test_the_highest_counter_is_read() -> None:
    counters = _counters({"pid": "7", "cmd_get": str(MOST_COUNTED), "cmd_set": "007"})
    assert counters.queries == MOST_COUNTED + 7


# What is believed


def doubts(count: Count, seconds: float = 3.0, rate: Rate | None = None) -> list[str | None]:
    rate = rate or Rate(most_per_s=2 * HIGHEST, least_s=0.05)
    found = []
    for tick in range(round(seconds * 10)):
        rate.update(tick / 10, count(tick / 10), 7)
        found.append(rate.doubt)
    return found


@pytest.mark.parametrize("lie", LIES)
def test_what_cannot_be_true_is_doubted_all_the_time(lie: str) -> None:
    found = doubts(LIES[lie])
    assert set(found[12:]) <= {TOO_MANY, TOO_OFTEN}
    assert found[0] is None  # One number alone may be any.


@pytest.mark.parametrize("qps", [0.0, 5.0, 0.5 * HIGHEST, HIGHEST, 1.99 * HIGHEST])
def test_what_can_be_true_is_believed(qps: float) -> None:
    assert doubts(steady(qps)) == [None] * 30


def test_a_slow_service_may_be_asked_for_a_few_at_once() -> None:
    rate = Rate(most_per_s=10.0, least_s=0.05)
    assert doubts(lambda t: 4 * int(t), rate=rate) == [None] * 30


def test_true_numbers_are_believed_again() -> None:
    rate = Rate(most_per_s=2 * HIGHEST, least_s=0.05)
    found = doubts(lambda t: round(1000 * t) + (10**12 if 1.0 <= t < 2.0 else 0), rate=rate)
    assert found[9:11] == [None, TOO_MANY]
    assert found[20:] == [None] * 10
    assert rate.per_second == pytest.approx(1000.0)


def test_a_server_that_is_started_anew_is_believed_once_in_a_while() -> None:
    rate = Rate(most_per_s=2 * HIGHEST, least_s=0.05)
    for k, pid in enumerate([1, 1, 2, 2]):
        assert rate.update(k / 10, 10**15 * pid, pid)  # Another process: any number.
    assert rate.resets == 1
    assert not rate.update(1.0, 5, 3)
    assert rate.doubt == TOO_OFTEN
    assert not rate.update(0.9 + ANEW_S, 5, 3)
    assert rate.update(1.1 + ANEW_S, 5, 3)


def test_no_answer_is_no_doubt() -> None:
    rate = Rate(most_per_s=10.0)
    assert not rate.update(1.0, None)
    assert rate.doubt is None and rate.per_second is None


def test_another_process_has_a_load_of_its_own() -> None:
    tracker = LoadTracker(0.6, 0.0)
    for k in range(10):
        tracker.read(k / 10, 100 * k, pid=1)
    tracker.read(1.0, 10**9, pid=2)
    assert not tracker.known
    tracker.read(1.1, 10**9 + 100, pid=2)
    assert tracker.level == pytest.approx(1000.0)


# What it does to the node


def two_services(count: Count, ticks: int = 26) -> tuple[Bench, list[str]]:
    """All that is done to anything but ``mc``, whose counter this is."""
    b = bench(
        make=FlowNode,
        service=SLO,
        more_services=(OTHER,),
        tasks=(TASK, TaskSpec(name="b2", find=Find(command_line="x"))),
    )
    began = b.clock.t

    def counted(of: Count) -> FakeCounters | None:
        queries = of(b.clock.t - began)
        return None if queries is None else FakeCounters(queries)

    b.actuator.asked.answer = lambda: counted(count)
    b.actuator.asked_of["other"] = FakeStats()
    b.actuator.asked_of["other"].answer = lambda: counted(steady(9000.0))
    return b, [line for line in b.ticks(ticks) if not line.startswith("mc ")]


@pytest.mark.parametrize("lie, honest", [("many", 1), ("up and down", 13)])
def test_a_lie_counts_as_no_answer_and_is_said_once(lie: str, honest: int, caplog: pytest.LogCaptureFixture) -> None:
    # One number alone may be any, and a counter may begin anew once.
    _, expected = two_services(lambda t: LIES[lie](t) if t < 0.1 * honest - 0.05 else None)
    caplog.clear()
    b, done = two_services(LIES[lie])
    assert done[-12:] == expected[-12:]
    assert caplog.text.count("counts as no answer") == 1
    assert not b.agent.status.services["mc"].answers
    assert b.agent.status.services["other"].qps == pytest.approx(9000.0)
    assert "controller" not in b.agent.status.errors and "tick" not in b.agent.status.errors


def test_a_true_high_load_counts() -> None:
    b, _ = two_services(steady(1.5 * HIGHEST))
    assert b.agent.status.services["mc"].qps == pytest.approx(1.5 * HIGHEST)


def test_a_server_that_answers_every_other_time_is_said_once_a_minute(caplog: pytest.LogCaptureFixture) -> None:
    b = bench(tasks=())
    b.actuator.asked.answer = lambda: FakeCounters(5) if round(10 * b.clock.t) % 2 else None
    b.ticks(1250)
    assert caplog.text.count("does not answer") == 3


# A fault in deciding about one service


class FailsFor:
    """A controller that cannot decide about some services as long as they answer."""

    period_s = 0.1

    def __init__(self, *names: str) -> None:
        self.names = names
        self.readings: list[Reading] = []

    def decide(self, reading: Reading) -> Allocation:
        self.readings.append(reading)
        for seen in reading.services:
            if seen.service.name in self.names and seen.queries is not None:
                raise ServiceError(seen.service.name) from OverflowError("int too large")
        return Allocation({"other": ServiceGrant((3,))}, {"batch": TaskGrant(True, (2,))})


def test_a_fault_about_one_service_leaves_the_others_as_they_are(caplog: pytest.LogCaptureFixture) -> None:
    controller = FailsFor("mc")
    b = bench(make=lambda _: controller, service=SLO, more_services=(OTHER,))
    assert b.ticks(1) == ["batch weight 0.00195312", "batch cores 2", "mc cores 0,1", "other cores 3"]
    b.ticks(50)
    assert caplog.text.count("deciding about mc failed: OverflowError: int too large: that counts as no answer") == 1
    # It is not tried again at every tick.
    assert len(controller.readings) == 52
    assert b.agent.status.errors == {"controller": 1}
    b.ticks(60)
    assert b.agent.status.errors == {"controller": 2}


def test_a_fault_about_every_service_ends() -> None:
    b = bench(make=lambda _: FailsFor("mc", "other"), service=SLO, more_services=(OTHER,))
    assert "batch cores 2" in b.ticks(1)


@pytest.mark.parametrize("where", ["read", "qps"])
def test_flow_node_tells_of_which_service_the_fault_is(where: str, monkeypatch: pytest.MonkeyPatch) -> None:
    read, qps = LoadTracker.read, LoadTracker.qps.fget
    assert qps is not None

    def bad_read(self: LoadTracker, t_s: float, queries: int | None, pid: int | None = None) -> None:
        if where == "read" and queries is not None and queries > 10**6:
            raise OverflowError("a surprise")
        read(self, t_s, queries, pid)

    def bad_qps(self: LoadTracker) -> float:
        if where == "qps" and self.known and self.level > 35_000:
            raise OverflowError("a surprise")
        return float(qps(self))

    monkeypatch.setattr(LoadTracker, "read", bad_read)
    monkeypatch.setattr(LoadTracker, "qps", property(bad_qps))
    b, _ = two_services(lambda t: 10**7 + round(38_000 * t), ticks=12)
    assert b.agent.status.errors == {"controller": 1}
    assert b.agent.status.services["mc"].cores == (0, 1)
    assert b.agent.status.services["other"].answers and not b.agent.status.services["mc"].answers


def test_flow_node_tells_of_which_service_a_price_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    def bad(row: list[float], *more: float) -> float:
        if row[0] == row[0] and broken:
            raise FloatingPointError("a surprise")
        return float(p95_us(row, *more))

    broken = True
    monkeypatch.setattr("flowsched.node.slo.p95_us", bad)
    b = bench(make=FlowNode)
    # A fault about a service that does not answer as well is one of the controller.
    assert "batch pause" in b.ticks(1)
    assert b.agent.status.errors == {"controller": 2}
    broken = False
    # What failed is decided again, though nothing has changed since.
    assert "batch resume" in b.ticks(2)


def test_what_fails_in_reading_one_service_leaves_the_others(caplog: pytest.LogCaptureFixture) -> None:
    def surprise(t: float) -> int:
        raise RuntimeError("surprise")

    b, done = two_services(surprise, ticks=25)
    assert any(line.startswith("batch cores") for line in done)
    assert b.agent.status.services["other"].answers and not b.agent.status.services["mc"].answers
    assert caplog.text.count("surprise") == 1


# What is overdue


DUE_S = 5.0
SOON = {"dueS": DUE_S}


class Fails:
    period_s = 0.1

    def decide(self, reading: Reading) -> Allocation | None:
        raise ZeroDivisionError("x")


def cores_after(b: Bench, seconds: float) -> str | None:
    """Cores that ``batch`` runs on; None while it is paused."""
    b.ticks(round(seconds * 10))
    batch = b.actuator.controls["batch"]
    return None if batch.stopped else str(batch.now.get("cores"))


def test_while_the_controller_fails_what_is_overdue_runs_on_one_core_and_goes_on() -> None:
    b = bench(make=lambda _: Fails(), settings=SOON)
    assert cores_after(b, 0.1) is None
    assert cores_after(b, DUE_S - 0.2) is None
    assert cores_after(b, 0.4) == "3"
    assert b.actuator.controls["batch"].now["weight"] == f"{LOWEST_WEIGHT:g}"
    assert b.actuator.controls["mc"].now["cores"] == "0,1,2,3"
    pauses = b.agent.status.pauses
    assert cores_after(b, 20.0) == "3"
    assert b.agent.status.pauses == pauses == 1


def test_a_core_without_a_service_is_taken_first() -> None:
    b = bench(make=lambda _: Fails(), service=SERVICE.model_copy(update={"cores": (0, 1, 3)}), settings=SOON)
    assert cores_after(b, DUE_S + 0.3) == "2"


def test_what_has_no_low_weight_is_left_a_core() -> None:
    b = bench(make=lambda _: Fails(), settings=SOON)
    b.ticks(1)
    b.agent._targets.tasks["batch"].unweighed = True
    assert cores_after(b, DUE_S + 0.3) == "3"
    assert b.actuator.controls["mc"].now["cores"] == "0,1,2"


@pytest.mark.parametrize("answers", [True, False])
def test_what_a_controller_always_pauses_is_overdue_as_well(answers: bool) -> None:
    b = bench(allocation((0,), batch=TaskGrant(False)), settings=SOON)
    b.actuator.asked.answer = lambda: FakeCounters(0) if answers else None
    assert cores_after(b, DUE_S - 0.2) is None
    assert cores_after(b, 0.5) in ("1", "2", "3")


def test_what_was_never_decided_about_while_a_service_is_silent_is_overdue_too() -> None:
    b = bench(None, settings=SOON)
    b.actuator.asked.answer = lambda: None
    assert cores_after(b, DUE_S - 0.2) is None
    assert cores_after(b, 0.5) == "3"


def test_what_is_overdue_runs_where_nothing_can_be_read() -> None:
    b = bench(allocation((0,), batch=TaskGrant(False)), settings=SOON)
    b.ticks(2)

    def surprise() -> tuple[float, ...]:
        raise RuntimeError("surprise")

    b.actuator.core_busy_s = surprise  # type: ignore[method-assign]
    b.clock.t += DUE_S
    b.agent.run(ticks=1)
    assert not b.actuator.controls["batch"].stopped


def service(name: str, cores: tuple[int, ...], fewest: int = 1) -> Guarded:
    return Guarded(NodeService(name, "memcached", 1, 1000.0, "client", cores, fewest=fewest))


def test_the_services_keep_their_fewest_cores() -> None:
    services = [service("a", (0, 1), fewest=2), service("b", (2, 3))]
    nothing = Allocation({}, {"x": TaskGrant(False), "y": TaskGrant(False)})
    late = [Overdue("x"), Overdue("y")]
    found = guarded(nothing, services, ["x", "y"], range(4), unweighed=["x", "y"], overdue=late)
    assert {name: grant.cores for name, grant in found.tasks.items()} == {"x": (3,), "y": (3,)}
    assert {name: grant.cores for name, grant in found.services.items()} == {"b": (2,)}
    tight = [service("a", (0, 1, 2, 3), fewest=4)]
    found = guarded(nothing, tight, ["x", "y"], range(4), unweighed=["x"], overdue=late)
    assert (found.tasks["x"].run, found.tasks["y"].run) == (False, True)


def test_an_overdue_task_keeps_to_its_cores_and_is_not_pinned_where_it_has_bandwidth() -> None:
    nothing = Allocation({}, {"x": TaskGrant(False), "y": TaskGrant(False)})
    late = [Overdue("x", allowed=(0, 1)), Overdue("y", pinned=False)]
    found = guarded(nothing, [service("a", (1,))], ["x", "y"], range(4), overdue=late)
    assert (found.tasks["x"].cores, found.tasks["y"].cores) == ((0,), ())


def test_waits_are_counted_since_submission_or_pause() -> None:
    waits = TaskWaits(10.0)
    waits.note(0.0, [("queued", TaskState.QUEUED, -5.0), ("paused", TaskState.PAUSED, -5.0)])
    waits.note(5.0, [("queued", TaskState.QUEUED, -5.0), ("paused", TaskState.PAUSED, -5.0)])
    assert waits.due == {"queued"}
    assert (waits.waited_s("queued", 5.0), waits.waited_s("paused", 5.0), waits.waited_s("x", 5.0)) == (10.0, 5.0, 0.0)
    waits.note(10.0, [("queued", TaskState.RUNNING, -5.0), ("paused", TaskState.PAUSED, -5.0)])
    assert waits.due == {"queued", "paused"}
    waits.note(11.0, [])
    assert waits.due == frozenset()
