"""The plain node controllers on hand-made readings."""

from __future__ import annotations

import pytest

from builders import CATALOGUE
from flowsched.node import (
    LOWEST_WEIGHT,
    Allocation,
    Node,
    NodeService,
    NodeTask,
    Reading,
    ServiceReading,
    TaskGrant,
    TaskReading,
    TaskState,
)
from flowsched_models.document import InputError
from flowsched_simulator.node.baselines.low_weight import PUBLISHED_ORDER, LowWeight, LowWeightAll
from flowsched_simulator.node.baselines.static import Static

NODE = Node(CATALOGUE, "small", (0, 1, 2, 3))
ALL = (0, 1, 2, 3)
SUITE = ("blackscholes", "canneal", "dedup", "ferret", "freqmine", "radix", "vips")


def service(name: str = "memcached", cores: tuple[int, ...] = (0, 1)) -> NodeService:
    return NodeService(name, "cache", 2, 1000.0, "plain", cores)


def reading(t_s: float, jobs: list[str], *services: NodeService) -> Reading:
    tasks = tuple(TaskReading(NodeTask(j, "scaling", 2), TaskState.QUEUED, 0.0) for j in jobs)
    return Reading(t_s, tuple(ServiceReading(s, 0) for s in services or (service(),)), tasks)


def grants(allocation: Allocation | None) -> dict[str, tuple[int, ...]]:
    assert allocation is not None
    assert all(g.run and g.weight == LOWEST_WEIGHT and g.quota is None for g in allocation.tasks.values())
    assert not allocation.services, "the service keeps what it has"
    return {name: grant.cores for name, grant in allocation.tasks.items()}


def test_low_weight_runs_the_published_order() -> None:
    controller, jobs = LowWeight(NODE), list(SUITE)
    seen = []
    for t, ended in enumerate(["", "freqmine", "", "canneal", "blackscholes", "dedup", "radix", "vips", "ferret"]):
        jobs = [j for j in jobs if j != ended]
        decided = controller.decide(reading(float(t), jobs))
        seen.append(grants(decided) if decided is not None else {})
    assert seen == [
        {"freqmine": ALL},
        {"canneal": (2, 3)},
        {"ferret": (0, 1)},
        {"blackscholes": (2, 3)},
        {"dedup": (2, 3)},
        {"radix": (2, 3)},
        {"vips": (2, 3)},
        {"ferret": ALL},
        {},
    ]


def test_low_weight_takes_the_other_cores_where_the_first_are_not_free() -> None:
    controller, jobs = LowWeight(NODE), ["canneal", "radix", "vips"]
    assert grants(controller.decide(reading(0.0, jobs))) == {"canneal": (2, 3)}
    assert grants(controller.decide(reading(1.0, jobs))) == {"vips": (0, 1)}, "radix may run beside it only"
    assert controller.decide(reading(2.0, jobs)) is None
    assert grants(controller.decide(reading(3.0, ["radix", "vips"]))) == {"radix": (2, 3)}


def test_low_weight_runs_unknown_jobs_last_and_on_the_other_cores() -> None:
    controller = LowWeight(NODE)
    assert grants(controller.decide(reading(0.0, ["new", "dedup"]))) == {"dedup": (2, 3)}
    assert grants(controller.decide(reading(1.0, ["new", "dedup"]))) == {"dedup": (2, 3, 0, 1)}
    assert grants(controller.decide(reading(2.0, ["new"]))) == {"new": (2, 3)}


def test_low_weight_runs_on_all_cores_where_services_may_have_all() -> None:
    controller = LowWeight(NODE)
    services = (service("one"), service("two", (3, 2)))
    assert grants(controller.decide(reading(0.0, ["dedup"], *services))) == {"dedup": ALL}


def test_the_published_order_names_the_whole_suite() -> None:
    assert set(PUBLISHED_ORDER) == set(SUITE)


def test_low_weight_all_starts_every_job_at_once() -> None:
    controller = LowWeightAll(NODE)
    assert grants(controller.decide(reading(0.0, ["a", "b"]))) == {"a": ALL, "b": ALL}
    assert controller.decide(reading(0.1, ["a", "b"])) is None
    assert grants(controller.decide(reading(0.2, ["b", "c"]))) == {"c": ALL}


@pytest.mark.parametrize(("cores", "left"), [(2, (2, 3)), (1, (1, 2, 3))])
def test_static_runs_one_job_after_the_other_on_what_services_leave(cores: int, left: tuple[int, ...]) -> None:
    controller = Static(NODE, cores)
    first = controller.decide(reading(0.0, ["a", "b"]))
    assert first is not None
    assert {name: grant.cores for name, grant in first.services.items()} == {"memcached": ALL[:cores]}
    assert first.tasks == {"a": TaskGrant(True, left)}
    assert controller.decide(reading(0.1, ["a", "b"])) is None
    assert controller.decide(reading(0.2, ["b"])) == Allocation(tasks={"b": TaskGrant(True, left)})
    assert controller.decide(reading(0.3, [])) is None
    assert controller.decide(reading(0.4, ["late"])) == Allocation(tasks={"late": TaskGrant(True, left)})


def test_static_gives_every_service_its_first_cores() -> None:
    services = (service("one"), service("two", (3, 2)))
    decided = Static(NODE, 1).decide(reading(0.0, ["a"], *services))
    assert decided is not None
    assert {name: grant.cores for name, grant in decided.services.items()} == {"one": (0,), "two": (3,)}
    assert decided.tasks["a"].cores == (1, 2)


def test_static_needs_a_core_for_jobs() -> None:
    services = (service("one"), service("two", (3, 2)))
    with pytest.raises(
        InputError, match="static-2: needs virtual CPUs for jobs alone; the services have all: 0, 1, 2, 3"
    ):
        Static(NODE, 2).decide(reading(0.0, ["a"], *services))
