"""Nodes that are kept for overdue pods: only where that can help, only while it does, and the pod is told."""

from __future__ import annotations

from typing import Any

import objects_builders as b
import pytest
from consistency import check_state
from model_scheduler import ModelScheduler
from model_server import ModelServer, moment

from flowsched.cluster.settings import Settings
from flowsched_k8s import names
from flowsched_k8s.causes import Wake
from flowsched_k8s.changes import Seen
from flowsched_k8s.configuration.configuration import Configuration
from flowsched_k8s.groups.pod_groups import MINIMUM_LABEL, NAME_LABEL

DUE_S = 60.0
JOB: dict[str, Any] = {"restartPolicy": "Never"}
SERVICE: dict[str, Any] = {"owner": ("ReplicaSet", "rs")}
PLACED = {names.PLACEMENT: "by a test"}


def scheduler(*things: Any, **engine: Any) -> ModelScheduler:
    server = ModelServer()
    for thing in things:
        server.put(thing)
    return ModelScheduler(server, Configuration(engine=Settings(**{"due_age_s": DUE_S, "due_runs": 0.0, **engine})))


def nodes(count: int = 2, cpu: str = "4") -> list[Any]:
    return [b.node(f"n{i + 1}", cpu) for i in range(count)]


def there(name: str, node: str, cpu: str = "1", **fields: Any) -> Any:
    return b.pod(name, cpu=cpu, node=node, **fields)


def decide(running: ModelScheduler) -> None:
    """All pods that wait take part in a round."""
    running.state.queue.wake(Wake.ANY, running.now)
    running.round()
    running.answer_all()
    running.deliver()


def tick(running: ModelScheduler, seconds: float = 1.0) -> None:
    """The process looks every second; rounds follow when the queue calls for them."""
    running.server.now += seconds
    running.state.node_holds.look(running.now)
    running.settle(within=0.5)


def overdue(running: ModelScheduler, *pods: Any) -> None:
    """These pods wait until they are overdue."""
    running.create(*pods)
    running.round()
    running.answer_all()
    running.server.now += DUE_S + 1.0
    decide(running)


def held(running: ModelScheduler) -> tuple[str, str]:
    """The pod and the node that drains for it."""
    found = running.state.node_holds.held
    if found is None:
        return "", ""
    ((uid, node),) = found.places
    return running.state.cache.pods[uid].key.name, node


def message(running: ModelScheduler, name: str) -> str:
    return running.state.cache.pods[running.server.pods["default", name].metadata.uid].message


STAYING: dict[str, dict[str, Any]] = {
    "of a DaemonSet": {"owner": ("DaemonSet", "ds"), "annotations": PLACED},
    "static": {"annotations": {"kubernetes.io/config.mirror": "x"}, "scheduler": "default-scheduler"},
    "bound by its maker": {},
    "of another scheduler": {"scheduler": "other", **SERVICE},
    "more important": {"priority": 10, "annotations": PLACED, **SERVICE},
    "late": {"deleting": True, **JOB},
}


@pytest.mark.parametrize("kind", STAYING.values(), ids=STAYING.keys())
def test_no_node_is_kept_for_a_pod_that_never_fits(kind: dict[str, Any]) -> None:
    late = "deleting" in kind
    kind = {k: v for k, v in kind.items() if k != "deleting"}
    running = scheduler(*nodes(), *(there(f"s{i}", f"n{i}", "100m", **kind) for i in (1, 2)))
    for pod in list(running.server.pods.values()) if late else ():
        running.server.terminate(pod, grace_s=1)
    running.deliver()
    overdue(running, b.pod("big", cpu="4"))
    assert held(running) == ("", "")
    running.create(*(b.pod(f"t{i}", cpu="1") for i in range(6)))
    running.settle(within=5.0)
    assert sum(name.startswith("t") for name in running.where()) == 6
    assert "drains" not in message(running, "big")


GOING: dict[str, dict[str, Any]] = {
    "a job": JOB,
    "a job of another scheduler": {"scheduler": "other", **JOB},
    "a more important job": {"priority": 10, **JOB},
    "a replica": {"annotations": PLACED, **SERVICE},
    "leaving": {"deleting": True},
}


@pytest.mark.parametrize("kind", GOING.values(), ids=GOING.keys())
def test_a_node_is_kept_where_the_room_may_come(kind: dict[str, Any]) -> None:
    running = scheduler(*nodes(1), there("s", "n1", "100m", **{k: v for k, v in kind.items() if k != "deleting"}))
    if "deleting" in kind:
        running.server.terminate(running.server.pods["default", "s"], grace_s=3600)
        running.deliver()
    overdue(running, b.pod("big", cpu="4"))
    assert held(running) == ("big", "n1")


def test_the_next_overdue_pod_gets_a_node_where_the_first_one_never_fits() -> None:
    daemons = (there(f"d{i}", f"n{i}", "100m", owner=("DaemonSet", "ds")) for i in (1, 2))
    running = scheduler(*nodes(), *daemons, *(there(f"j{i}", f"n{i}", "2", **JOB) for i in (1, 2)))
    running.create(b.pod("big", cpu="4"))
    running.server.now += 5.0
    overdue(running, b.pod("medium", cpu="3"))
    assert held(running) == ("medium", "n1")


def test_ports_of_pods_that_stay_keep_a_node_from_being_kept() -> None:
    ports = {"containers": [b.container("main", "100m", ports=[b.host_port(80)])]}
    jobs = (there(f"j{i}", f"n{i}", "2", **JOB) for i in (1, 2))
    running = scheduler(*nodes(), *jobs, there("d1", "n1", owner=("DaemonSet", "ds"), **ports))
    overdue(running, b.pod("big", containers=[b.container("main", "3", ports=[b.host_port(80)])]))
    assert held(running) == ("big", "n2")


def test_a_daemon_that_comes_ends_a_hold_that_became_vain() -> None:
    running = scheduler(*nodes(), *(there(f"j{i}", f"n{i}", **JOB) for i in (1, 2)))
    overdue(running, b.pod("big", cpu="4"))
    assert held(running) == ("big", "n1")
    running.create(*(there(f"d{i}", f"n{i}", "100m", owner=("DaemonSet", "ds")) for i in (1, 2)))
    tick(running)
    decide(running)
    assert held(running) == ("", "")


# Progress


def test_a_node_that_nothing_leaves_is_given_up_and_another_one_is_kept() -> None:
    running = scheduler(*nodes(), *(there(f"j{i}", f"n{i}", **JOB) for i in (1, 2)))
    overdue(running, b.pod("big", cpu="4"))
    assert held(running) == ("big", "n1")
    tick(running, DUE_S - 1.0)
    assert held(running) == ("big", "n1")
    tick(running, 2.0)
    assert held(running) == ("big", "n2")
    running.create(*(b.pod(f"t{i}", cpu="1") for i in range(3)))
    running.settle(within=1.0)
    assert {running.where()[f"t{i}"] for i in range(3)} == {"n1"}


def test_a_node_is_kept_as_long_as_pods_leave_it() -> None:
    running = scheduler(*nodes(1), *(there(f"j{i}", "n1", "500m", **JOB) for i in range(8)))
    overdue(running, b.pod("big", cpu="4"))
    for i in range(7):
        tick(running, DUE_S - 5.0)
        running.server.finish(running.server.pods["default", f"j{i}"])
        running.deliver()
        tick(running)
        assert held(running) == ("big", "n1")
    running.server.finish(running.server.pods["default", "j7"])
    running.settle(within=1.0)
    assert running.where()["big"] == "n1"


def test_another_overdue_pod_gets_its_turn() -> None:
    running = scheduler(*nodes(1), there("j", "n1", **JOB))
    running.create(b.pod("first", cpu="4"))
    running.server.now += 5.0
    overdue(running, b.pod("second", cpu="4"))
    turns = []
    for _ in range(int(8 * DUE_S)):
        tick(running)
        turns += [held(running)[0]] if not turns or turns[-1] != held(running)[0] else []
    assert [name for name in turns if name][:4] == ["first", "second", "first", "second"]


@pytest.mark.parametrize(("length", "others"), [(2.5, 1), (9.0, 4)])
def test_work_of_any_length_is_outlasted(length: float, others: int) -> None:
    """Small pods fill the node whenever it is not kept; each of them runs for so many times the age."""
    running = scheduler(*nodes(1), *(there(f"j{i}", "n1", **JOB) for i in range(4)))
    ends = {f"j{i}": running.now + length * DUE_S * (i + 1) / 4 for i in range(4)}
    overdue(running, b.pod("big", cpu="4"))
    began, number = running.now, 0
    while "big" not in running.where():
        for name in [name for name, end_s in ends.items() if end_s <= running.now]:
            del ends[name]
            running.server.finish(running.server.pods["default", name])
        if len(running.server.waiting()) < 2:
            number += 1
            running.create(b.pod(f"t{number}", cpu="1", **JOB))
        running.deliver()
        tick(running, 5.0)
        for name in running.where():
            ends.setdefault(name, running.now + length * DUE_S)
        assert running.now - began < 8.0 * (length + 1.0) * DUE_S
    assert number >= others, "the node is not kept all the time"


def test_where_pods_have_to_be_deleted_each_node_is_kept_once() -> None:
    """Until something leaves it: replicas of a Deployment may go, and need not."""
    running = scheduler(*nodes(), *(there(f"s{i}", f"n{i}", annotations=PLACED, **SERVICE) for i in (1, 2)))
    overdue(running, b.pod("big", cpu="4"))
    kept = []
    for _ in range(int(12 * DUE_S)):
        tick(running)
        kept += [held(running)[1]] if not kept or kept[-1] != held(running)[1] else []
    assert kept == ["n1", "n2", ""]
    running.create(b.pod("t", cpu="1"))
    running.settle(within=1.0)
    assert "t" in running.where()
    gone = running.where()["t"]
    running.create(b.pod("big2", cpu="4"))
    running.server.remove(running.server.pods["default", f"s{gone[1]}"])
    running.deliver()
    running.server.remove(running.server.pods["default", "t"])
    running.settle(within=1.0)
    assert gone in running.where().values()


def test_a_pod_of_the_same_name_ends_what_was_kept_for_the_first_one() -> None:
    """Whose end may not have been told yet."""
    running = scheduler(*nodes(1), there("j", "n1", **JOB))
    overdue(running, b.pod("big", cpu="4"))
    assert held(running) == ("big", "n1")
    running.observe([Seen(b.pod("big", cpu="4", uid="another"))])
    assert held(running) == ("", "")
    decide(running)
    check_state(running.state)


# Messages


def test_the_pod_is_told_which_node_drains_for_it_and_since_when() -> None:
    running = scheduler(*nodes(1), there("j", "n1", **JOB))
    overdue(running, b.pod("big", cpu="4"))
    text = f"n1 drains for it since {moment(running.now)}."
    assert message(running, "big").endswith(text)
    running.server.now += 20.0
    decide(running)
    assert message(running, "big").endswith(text)
    running.create(b.pod("late", cpu="1"))
    running.settle(within=1.0)
    assert message(running, "late").endswith("n1 drains for a pod that has waited longer.")
    tick(running, DUE_S)
    decide(running)
    assert "for it since" not in message(running, "big")


# Measured pods


MEASURED = {names.PROFILE: "canneal"}


def reserving(*things: Any) -> ModelScheduler:
    """A measured pod wants all of a node; on each a measured job is forecast to end, n1's no later than n2's."""
    running = scheduler(*nodes(), *(there(f"j{i}", f"n{i}", "2", annotations=MEASURED, **JOB) for i in (1, 2)), *things)
    overdue(running, b.pod("big", cpu="4", annotations=MEASURED, **JOB))
    assert held(running) == ("big", "n1")
    return running


def reserved(running: ModelScheduler) -> list[tuple[str, float]]:
    return [(r.machine, r.start_s) for r in running.state.node_holds.reservations]


def test_a_reservation_is_given_up_when_its_node_does_not_drain_as_forecast() -> None:
    running = reserving()
    ((node, start_s),) = reserved(running)
    assert node == "n1"
    since = moment(running.now)
    assert message(running, "big").endswith(f"n1 is reserved for it since {since}.")
    tick(running, start_s + DUE_S - 2.0 - running.now)
    assert held(running) == ("big", "n1")
    tick(running, 4.0)
    assert held(running) == ("big", "n2")
    assert [machine for machine, _ in reserved(running)] == ["n2"]
    running.create(b.pod("t", cpu="1"), b.pod("m", cpu="1", annotations=MEASURED, **JOB))
    running.settle(within=30.0)
    assert (running.where()["t"], running.where()["m"]) == ("n1", "n1")
    running.server.finish(running.server.pods["default", "j2"])
    running.settle(within=30.0)
    assert running.where()["big"] == "n2"


def test_a_node_that_was_given_up_takes_the_pod_once_it_has_room() -> None:
    running = reserving()
    ((_, start_s),) = reserved(running)
    tick(running, start_s + DUE_S + 2.0 - running.now)
    assert held(running) == ("big", "n2")
    running.server.finish(running.server.pods["default", "j1"])
    running.settle(within=30.0)
    assert running.where()["big"] == "n1"


def test_a_reservation_outlives_rounds_without_its_pod() -> None:
    running = reserving()
    before = reserved(running)
    running.create(b.pod("t", cpu="1"), b.pod("m", cpu="1", annotations=MEASURED, **JOB))
    running.settle(within=1.0)
    assert {running.where().get("t"), running.where().get("m")} <= {None, "n2"}
    assert reserved(running) == before
    running.server.now += 5.0
    decide(running)
    assert reserved(running) == before


def test_a_measured_pod_of_a_daemon_set_never_ends() -> None:
    running = scheduler(
        *nodes(), *(there(f"d{i}", f"n{i}", "1", annotations=MEASURED, owner=("DaemonSet", "ds")) for i in (1, 2))
    )
    overdue(running, b.pod("big", cpu="4", annotations=MEASURED, **JOB))
    assert (held(running), reserved(running)) == (("", ""), [])


def test_a_node_that_one_member_gave_up_is_reserved_for_no_other_member() -> None:
    jobs = (there(f"j{i}", f"n{i}", "2", annotations=MEASURED, **JOB) for i in (1, 2, 3))
    running = scheduler(*nodes(3), *jobs)
    gang: dict[str, Any] = {"labels": {NAME_LABEL: "g", MINIMUM_LABEL: "2"}, "annotations": MEASURED}
    overdue(running, *(b.pod(f"m{i}", cpu="4", **gang, **JOB) for i in range(2)))
    assert {machine for machine, _ in reserved(running)} == {"n1", "n2"}
    start_s = max(start_s for _, start_s in reserved(running))
    running.server.finish(running.server.pods["default", "j2"])
    running.deliver()
    tick(running, start_s + DUE_S + 2.0 - running.now)
    assert {machine for machine, _ in reserved(running)} == {"n2", "n3"}
    running.server.finish(running.server.pods["default", "j3"])
    running.settle(within=30.0)
    assert {running.where().get(f"m{i}") for i in range(2)} == {"n2", "n3"}
