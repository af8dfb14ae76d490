from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from objects_builders import container, node, pod

from flowsched_k8s.pods.requests import MOST, allocatable, pod_requests

MI = 1 << 20


def resized(desired: str, allocated: str, actual: str | None = None, reason: str | None = None) -> Any:
    """Requests of a running pod whose CPU is being changed."""
    status: dict[str, Any] = {
        "phase": "Running",
        "containerStatuses": [
            {
                "name": "main",
                "allocatedResources": {"cpu": allocated},
                **({"resources": {"requests": {"cpu": actual}}} if actual else {}),
            }
        ],
    }
    if reason:
        status["conditions"] = [{"type": "PodResizePending", "status": "True", "reason": reason}]
    return pod_requests(pod(cpu=desired, status=status))


def test_containers_add_up() -> None:
    found = pod_requests(pod(containers=[container("a", "100m", "64Mi"), container("b", "1", nvidia_gpu="2")]))
    assert found == {"cpu": 1100, "memory": 64 * MI, "nvidia_gpu": 2, "pods": 1}


def test_a_pod_that_asks_for_nothing_still_is_a_pod() -> None:
    assert pod_requests(pod()) == {"cpu": 0, "memory": 0, "pods": 1}


def test_zeros_of_other_resources_are_dropped() -> None:
    asked = container("a", "0", "0", **{"nvidia.com__gpu": "0", "ephemeral-storage": "1Gi"})
    assert pod_requests(pod(containers=[asked])) == {"cpu": 0, "ephemeral-storage": 1 << 30, "memory": 0, "pods": 1}


def test_the_largest_init_step_counts_if_it_is_more() -> None:
    steps = [container("i1", "3", "1Mi"), container("i2", "1", "512Mi")]
    found = pod_requests(pod(containers=[container("a", "2", "256Mi")], initContainers=steps))
    assert found == {"cpu": 3000, "memory": 512 * MI, "pods": 1}


def test_restartable_init_containers_run_beside_what_follows_them() -> None:
    # Steps: 1; side-car 2 (runs on); 3 beside it = 5; then the containers beside the side-car: 4 + 2 = 6.
    steps = [container("i1", "1"), container("side", "2", restartable=True), container("i2", "3")]
    assert pod_requests(pod(cpu="4", initContainers=steps))["cpu"] == 6000
    assert pod_requests(pod(cpu="1", initContainers=steps))["cpu"] == 5000


def test_overhead_is_added_at_the_end() -> None:
    found = pod_requests(pod(cpu="1", initContainers=[container("i", "2")], overhead={"cpu": "250m", "memory": "10Mi"}))
    assert found == {"cpu": 2250, "memory": 10 * MI, "pods": 1}


def test_requests_of_the_pod_as_a_whole_win_where_they_are_set() -> None:
    whole = {"requests": {"cpu": "2", "hugepages-2Mi": "4Mi", "nvidia.com/gpu": "5"}}
    found = pod_requests(pod(cpu="3", memory="1Mi", resources=whole, overhead={"cpu": "1"}))
    assert found == {"cpu": 3000, "hugepages-2Mi": 4 * MI, "memory": MI, "pods": 1}


def test_limits_of_the_pod_as_a_whole_change_nothing() -> None:
    assert pod_requests(pod(cpu="3", resources={"limits": {"cpu": "9"}}))["cpu"] == 3000


@pytest.mark.parametrize(
    ("desired", "allocated", "actual", "held"),
    [("2", "1", None, 2000), ("1", "2", None, 2000), ("1", "1", "3", 3000), ("1", "1", "1", 1000)],
)
def test_while_a_resize_is_under_way_the_larger_counts(
    desired: str, allocated: str, actual: str | None, held: int
) -> None:
    assert resized(desired, allocated, actual)["cpu"] == held
    assert resized(desired, allocated, actual, "Deferred")["cpu"] == held


def test_a_resize_that_will_never_be_granted_does_not_count() -> None:
    assert resized("8", "1", "1", "Infeasible")["cpu"] == 1000


def test_resizes_of_pod_level_requests() -> None:
    status = {"phase": "Running", "resources": {"requests": {"cpu": "3"}}, "allocatedResources": {"cpu": "4"}}
    assert pod_requests(pod(resources={"requests": {"cpu": "2"}}, status=status))["cpu"] == 4000


def test_an_unreadable_quantity_is_named() -> None:
    with pytest.raises(ValueError, match="container web: 'much' is not a quantity"):
        pod_requests(pod(containers=[container("web", "much")]))


def test_allocatable_is_what_pods_may_request() -> None:
    offered = allocatable(node(cpu="3920m", memory="7Gi", resources={"nvidia.com/gpu": "2", "hugepages-1Gi": "0"}))
    assert offered == {"cpu": 3920, "memory": 7 << 30, "nvidia.com/gpu": 2, "pods": 110}


def test_what_a_node_says_wrong_is_worth_nothing() -> None:
    assert allocatable(node(cpu="lots", memory="-5Gi", pods="")) == {"cpu": 0, "memory": 0, "pods": 0}


amounts = st.fixed_dictionaries({}, optional={"cpu": st.integers(0, 64), "memory": st.integers(0, 64)})
containers = st.builds(
    lambda name, asked, restartable: container(name, **{r: str(n) for r, n in asked.items()}, restartable=restartable),
    st.uuids().map(str),
    amounts,
    st.booleans(),
)


@given(st.lists(containers, min_size=1, max_size=4), st.lists(containers, max_size=4))
def test_every_container_has_room_and_nothing_is_charged_twice(running: list[Any], init: list[Any]) -> None:
    def asked(c: Any, r: str) -> int:
        return int(c.get("resources", {}).get("requests", {}).get(r, "0")) * (1000 if r == "cpu" else 1)

    found = pod_requests(pod(containers=running, initContainers=init))
    for r in ("cpu", "memory"):
        sidecars = [c for c in init if "restartPolicy" in c]
        assert found[r] >= sum(asked(c, r) for c in (*running, *sidecars))
        assert found[r] >= max((asked(c, r) for c in init), default=0)
        assert found[r] <= sum(asked(c, r) for c in (*running, *init))


@given(st.lists(containers, min_size=1, max_size=3), st.lists(containers, max_size=3), containers, st.booleans())
def test_more_containers_never_need_less(running: list[Any], init: list[Any], more: Any, first: bool) -> None:
    before = pod_requests(pod(containers=running, initContainers=init))
    after = pod_requests(
        pod(containers=running, initContainers=[more, *init])
        if first
        else pod(containers=[*running, more], initContainers=init)
    )
    assert all(after[r] >= n for r, n in before.items())


def test_amounts_stay_within_64_bits() -> None:
    huge = [container(f"c{i}", "9E", "9E") for i in range(9)]
    assert pod_requests(pod(containers=huge))["cpu"] == MOST
