"""The order of acts: batch loses before a service changes, and gains after it."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from flowsched.node import LOWEST_WEIGHT, Allocation, NodeService, ServiceGrant, TaskGrant
from flowsched_agent.actuation_plan import Has, Kind, plan
from flowsched_agent.guard import ALONE, Guarded, guarded

SERVICE = NodeService("mc", "memcached", 1, 1000.0, "any", (0, 1, 2, 3))


def planned(services: dict[str, Has], tasks: dict[str, Has], wanted: Allocation) -> list[str]:
    return [str(act) for act in plan(services, tasks, wanted)]


def one(cores: tuple[int, ...], **tasks: TaskGrant) -> Allocation:
    return Allocation({"mc": ServiceGrant(cores)}, tasks)


def test_nothing_is_done_where_nothing_differs() -> None:
    tasks = {"b": Has(cores=(2, 3), weight=0.5, quota=1.5), "p": Has(run=False, cores=(3,))}
    wanted = one((0, 1), b=TaskGrant(True, (2, 3), 0.5, 1.5), p=TaskGrant(False, (3,)))
    assert planned({"mc": Has(cores=(0, 1))}, tasks, wanted) == []


def test_a_service_grows_after_batch_has_left_its_new_core() -> None:
    wanted = one((0, 1), b=TaskGrant(True, (2,)))
    assert planned({"mc": Has(cores=(0,))}, {"b": Has(cores=(1, 2))}, wanted) == ["b: cores 2", "mc: cores 0,1"]


def test_batch_gets_a_core_after_the_service_has_left_it() -> None:
    wanted = one((0,), b=TaskGrant(True, (1, 2)))
    assert planned({"mc": Has(cores=(0, 1))}, {"b": Has(cores=(2,))}, wanted) == ["mc: cores 0", "b: cores 1,2"]


def test_weight_protects_before_anything_is_paused_and_returns_after_all_else() -> None:
    tasks = {"a": Has(cores=(0, 1)), "b": Has(cores=(0, 1), weight=LOWEST_WEIGHT)}
    wanted = one((0, 1), a=TaskGrant(False, weight=LOWEST_WEIGHT), b=TaskGrant(True, (0, 1), 1.0))
    done = planned({"mc": Has(cores=(0,))}, tasks, wanted)
    assert done == ["a: weight 0.001953", "a: pause", "mc: cores 0,1", "b: weight 1"]


def test_a_task_goes_on_only_when_its_cores_and_weight_are_set() -> None:
    wanted = one((0,), b=TaskGrant(True, (1,), LOWEST_WEIGHT, 0.5))
    done = planned({"mc": Has(cores=(0,))}, {"b": Has(run=False, cores=(0, 1))}, wanted)
    assert done[-1] == "b: resume"
    assert set(done[:-1]) == {"b: cores 1", "b: weight 0.001953", "b: quota 0.5"}


def test_what_is_not_named_is_left_alone() -> None:
    assert planned({"mc": Has()}, {"b": Has()}, Allocation()) == []


@pytest.mark.parametrize("seed", range(200))
def test_no_running_task_without_least_weight_is_ever_on_a_core_that_a_service_just_gained(seed: int) -> None:
    """Whatever the two allocations, both of which keep service and batch apart: each state between does too."""
    rng = random.Random(seed)

    def apart() -> tuple[tuple[int, ...], tuple[int, ...]]:
        split = rng.randint(1, 3)
        cores = rng.sample(range(4), 4)
        return tuple(sorted(cores[:split])), tuple(sorted(cores[split:]))

    service, batch = apart()
    later_service, later_batch = apart()
    has = {"mc": Has(cores=service)}
    tasks = {"b": Has(run=rng.random() < 0.7, cores=batch)}
    wanted = one(later_service, b=TaskGrant(rng.random() < 0.7, later_batch))
    for act in plan(has, tasks, wanted):
        side = has if act.target == "mc" else tasks
        side[act.target] = side[act.target].after(act)
        if tasks["b"].run and act.target == "mc":
            assert not set(tasks["b"].cores or ()) & (set(later_service) - set(service))
    assert has["mc"].cores == later_service
    assert (tasks["b"].cores, tasks["b"].run) == (later_batch, wanted.tasks["b"].run)


def test_a_silent_service_has_all_its_cores_and_batch_the_lowest_weight() -> None:
    wanted = one((0,), b=TaskGrant(True, (1, 2)))
    safe = guarded(wanted, [Guarded(SERVICE, silent=True)], ["b", "unknown"], range(4))
    assert safe.services["mc"].cores == (0, 1, 2, 3)
    assert safe.tasks["b"].weight == LOWEST_WEIGHT
    assert not safe.tasks["unknown"].run


def test_the_least_number_of_cores_holds_whatever_is_decided() -> None:
    safe = guarded(one((1,)), [Guarded(replace(SERVICE, fewest=2))], [], range(4))
    assert safe.services["mc"].cores == (1, 0)


def test_cores_that_do_not_exist_are_left_out_and_a_task_of_only_such_does_not_run() -> None:
    wanted = one((0,), a=TaskGrant(True, (1, 9)), b=TaskGrant(True, (9,)))
    safe = guarded(wanted, [Guarded(SERVICE)], ["a", "b"], range(4))
    assert safe.tasks["a"].cores == (1,) and safe.tasks["a"].run
    assert not safe.tasks["b"].run


def low(*cores: int, run: bool = True) -> TaskGrant:
    return TaskGrant(run, cores, LOWEST_WEIGHT)


def test_by_any_policy_no_task_shares_without_low_weight_and_no_other_is_touched() -> None:
    tasks = {"shares": low(1, 2), "anywhere": low(), "within": low(0), "beside": low(2), "weighed": low(0)}
    unweighed = set(tasks) - {"weighed"}
    safe = guarded(one((0, 1), **tasks), [Guarded(SERVICE)], tasks, range(4), unweighed)
    assert {n: (t.run, t.cores) for n, t in safe.tasks.items()} == {
        "shares": (True, (2,)),
        "anywhere": (True, (2, 3)),
        "within": (False, ()),
        "beside": (True, (2,)),
        "weighed": (True, (0,)),
    }
    assert {n for n, t in safe.tasks.items() if t.reason == ALONE} == {"shares", "anywhere", "within"}
    assert {n: t.weight for n, t in safe.tasks.items()} == {**dict.fromkeys(unweighed, 1.0), "weighed": LOWEST_WEIGHT}
    assert safe.services["mc"].cores == (0, 1)


def test_the_cores_of_a_service_that_is_gone_are_free_for_all() -> None:
    gone = Guarded(SERVICE, silent=True, there=False)
    safe = guarded(one((0, 1), b=low(1)), [gone], ["b"], range(4), {"b"})
    assert (safe.services["mc"].cores, safe.tasks["b"].cores) == ((0, 1, 2, 3), (1,))


def test_a_silent_service_has_all_but_the_cores_that_were_found_for_who_may_not_share() -> None:
    silent = Guarded(SERVICE, silent=True)
    safe = guarded(one((0, 1), b=low(1, 3)), [silent], ["b"], range(4), {"b"})
    assert (safe.services["mc"].cores, safe.tasks["b"].cores) == ((0, 1, 2), (3,))
    safe = guarded(one((0, 1), b=low(3, run=False)), [silent], ["b"], range(4), {"b"})
    assert safe.services["mc"].cores == (0, 1, 2, 3)


def test_a_program_is_started_last() -> None:
    wanted = one((0,), b=TaskGrant(True, (1,), 0.5), c=TaskGrant(True, (2,)))
    acts = plan(
        {"mc": Has(cores=(0, 1))}, {"b": Has(run=False, started=False), "c": Has(run=False, cores=(2,))}, wanted
    )
    assert [act.kind for act in acts] == [Kind.CORES, Kind.RESUME, Kind.START]
    assert (acts[-1].cores, acts[-1].weight) == ((1,), 0.5)
