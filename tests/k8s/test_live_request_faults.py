"""Some requests are answered wrongly, or not at all, between the scheduler and a real API server; others go on."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest
from fault_proxy import Asked, Does, FaultProxy, Rule, failing, webhook_fails
from plane import Plane, Space, wait_for
from running import Running, Site, running_scheduler, site_of

SOON_S = 20.0
"""What waits for a request that hangs waits longer: such a request is given up after 30 s."""


@pytest.fixture(scope="module")
def proxy(plane: Plane) -> Iterator[FaultProxy]:
    with FaultProxy(plane.server, plane.folder / "pki" / "ca.crt") as made:
        yield made


@pytest.fixture(scope="module")
def scheduler(plane: Plane, proxy: FaultProxy, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    folder = tmp_path_factory.mktemp("scheduler")
    with running_scheduler(plane, folder, server=proxy.address) as started:
        yield started


@pytest.fixture
def site(scheduler: Running, space: Space) -> Iterator[Site]:
    with site_of(scheduler, space) as made:
        yield made


@pytest.fixture
def other(plane: Plane, request: pytest.FixtureRequest) -> Iterator[Space]:
    """Another namespace, whose requests are answered."""
    with plane.space(f"other-{request.node.name.removeprefix('test_')}") as made:
        yield made


def bindings_of(site: Site) -> Rule:
    return webhook_fails(lambda asked: asked.sub == "binding" and asked.namespace == site.name)


def bound_within(other: Space, scheduler: Running, name: str) -> float:
    """Seconds from the creation of a pod in the other namespace to its binding."""
    began = time.monotonic()
    other.make_pod(name, scheduler=scheduler.name, cpu="10m")
    wait_for(lambda: other.pod(name)["spec"].get("nodeName"), f"{name} to be bound")
    return time.monotonic() - began


@pytest.mark.parametrize("hangs", [False, True])
def test_bindings_without_an_outcome_keep_no_other_namespace_waiting(
    site: Site, other: Space, proxy: FaultProxy, hangs: bool
) -> None:
    site.nodes(3, cpu="64")
    rule = bindings_of(site)
    rule.does = Does.HANG if hangs else Does.ANSWER
    count = 60
    with proxy.faults(rule):
        for number in range(count):
            site.pod(f"p{number}", cpu="10m")
        wait_for(lambda: rule.done > 0, "a binding of the namespace that fails")
        began = time.monotonic()
        took = [bound_within(other, site.scheduler, f"other-{number}") for number in range(5)]

        def says() -> bool:
            said = [c["message"] for p in site.space.pods() for c in p["status"].get("conditions", ())]
            return len([m for m in said if "binding to" in m and "failed" in m and "webhook" in m]) == count

        wait_for(says, "all pods to say so")
        told = time.monotonic() - began
        state = site.scheduler.state()
        assert site.scheduler.metric("flowsched_requests_without_outcome", request="binding") >= 4
    assert max(took) < SOON_S
    assert told < SOON_S
    assert state["stuck_namespaces"] == [site.name]
    assert site.name in state["rounds_paused"]["namespaces"]["why"]
    assert 4 <= len(state["bindings_without_outcome"]) <= 40
    site.all_bound(count)
    wait_for(lambda: site.scheduler.metric("flowsched_requests_without_outcome") == 0, "all to be answered")
    assert not [c for p in site.space.pods() for c in p["status"]["conditions"] if c["status"] == "False"]


def test_conditions_that_hang_keep_those_of_no_other_namespace_waiting(
    site: Site, other: Space, proxy: FaultProxy
) -> None:
    site.node(cpu="1")

    def told(asked: Asked) -> bool:
        return asked.method == "PATCH" and asked.sub == "status" and asked.namespace == site.name

    with proxy.faults(Rule(told, Does.HANG)) as (rule,):
        for number in range(20):
            site.pod(f"p{number}", cpu="2")
        wait_for(lambda: rule.done >= 4, "conditions that hang")
        began = time.monotonic()
        other.make_pod("large", scheduler=site.scheduler.name, cpu="3")
        wait_for(lambda: len(other.pod("large")["status"].get("conditions", ())) == 1, "the condition")
        took = time.monotonic() - began
    assert took < SOON_S
    # Those that had not been sent.
    for number in range(12, 20):
        site.refused(f"p{number}", "Insufficient cpu")


def test_the_page_of_a_proxy_is_no_answer(site: Site, proxy: FaultProxy) -> None:
    """The binding arrives, its answer does not, and the requests that ask about the pod get a page."""
    site.node()

    def about(asked: Asked) -> bool:
        return asked.namespace == site.name and asked.resource == "pods" and asked.name == "pod"

    page = {"Content-Type": "text/html"}
    lost = Rule(lambda asked: about(asked) and asked.sub == "binding", Does.DROP, times=1)
    pages = Rule(lambda asked: about(asked) and not asked.sub, Does.ANSWER, 200, b"<html></html>", page, times=3)
    with proxy.faults(lost, pages):
        site.pod("pod")
        wait_for(lambda: pages.done == 3, "three pages to be read")
    assert site.bound("pod")
    wait_for(lambda: not site.scheduler.state()["bindings_without_outcome"], "the binding to be found out about")
    assert site.event("pod", "Scheduled")


def test_rounds_that_pause_say_why(site: Site, proxy: FaultProxy) -> None:
    """The watch of pods is cut and answered 503 then, with a wish to be left alone for longer than that lasts."""
    site.node()

    def pods(asked: Asked) -> bool:
        return asked.resource == "pods" and not asked.namespace and asked.method == "GET"

    with proxy.faults(failing(pods, 503, "away", Retry_After="2")):
        proxy.cut(pods)
        wait_for(
            lambda: site.scheduler.metric("flowsched_rounds_paused", reason="watch") == 1, "the pause to be counted"
        )
        site.pod("pod")
        ready = site.scheduler.answer("/readyz?verbose").decode()
        state = site.scheduler.state()
        age = site.scheduler.metric("flowsched_watch_age_seconds", kind="pods")
        wait_for(
            lambda: site.scheduler.metric("flowsched_watch_age_seconds", kind="pods") > age, "the age of pods to grow"
        )
    assert ready.startswith("[+]caches ok\n[+]lists ok\n[!]rounds: what happens to pods cannot be followed (for ")
    assert "cannot be followed" in state["rounds_paused"]["watch"]["why"]
    assert site.bound("pod")
    assert site.scheduler.metric("flowsched_rounds_paused") == 0
    assert "[+]rounds ok" in site.scheduler.answer("/readyz?verbose").decode()
    assert site.scheduler.state()["rounds_paused"] == {}
