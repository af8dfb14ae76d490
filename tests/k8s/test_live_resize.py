"""In-place resize on a real API server: where a wider share pays, the request grows to it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from plane import Object, Plane, Space, wait_for
from running import STANDARD, Running, Site, running_scheduler, site_of

from flowsched_k8s import names

JOB = "blackscholes"


@pytest.fixture(scope="module")
def scheduler(plane: Plane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    folder = tmp_path_factory.mktemp("scheduler")
    with running_scheduler(plane, folder, features=(*STANDARD, "resize")) as started:
        yield started


@pytest.fixture
def site(scheduler: Running, space: Space) -> Iterator[Site]:
    with site_of(scheduler, space) as made:
        yield made


def job(site: Site, name: str, widths: str, **more: object) -> Object:
    annotations = {names.PROFILE: JOB, names.WIDTHS: widths}
    return site.pod(name, **{"cpu": "1", "annotations": annotations, **more})


def request(site: Site, name: str) -> str:
    return str(site.space.pod(name)["spec"]["containers"][0]["resources"]["requests"]["cpu"])


def contended(site: Site) -> str:
    """A node where a wider share pays: a job with as many threads as there are cores is there already."""
    node = site.node(cpu="4")
    job(site, "first", "4")
    assert site.bound("first") == node
    notes = site.space.pod("first")["metadata"]["annotations"]
    assert (notes[names.WIDTH], notes[names.THREADS]) == ("1000m", "4")
    return node


def test_the_request_grows_to_the_width(site: Site) -> None:
    node = contended(site)
    job(site, "wide", "3")
    assert site.bound("wide") == node
    notes = site.space.pod("wide")["metadata"]["annotations"]
    assert (notes[names.WIDTH], notes[names.THREADS]) == ("3000m", "3")
    wait_for(lambda: request(site, "wide") == "3", "the request to be resized")
    # What the width takes is gone for others, not what was asked for first.
    site.pod("other", cpu="100m")
    assert site.refused("other") == "0/1 nodes are available: 1 Insufficient cpu."


def test_no_widths_no_resize(site: Site) -> None:
    site.node(cpu="4")
    site.pod("plain", cpu="1", annotations={names.PROFILE: JOB})
    site.bound("plain")
    assert site.space.pod("plain")["metadata"]["annotations"][names.WIDTH] == "1000m"
    job(site, "one", "1")
    site.bound("one")
    site.pod("last", cpu="2")
    site.bound("last")
    assert request(site, "plain") == request(site, "one") == "1"


def test_a_refused_resize_gives_the_room_back(site: Site) -> None:
    """The API server does not let a request grow beyond its limit: the pod stays as it is, and an event says so."""
    node = contended(site)
    resources = {"requests": {"cpu": "1", "memory": "64Mi"}, "limits": {"cpu": "1", "memory": "64Mi"}}
    job(site, "limited", "3", containers=[{"name": "main", "image": "test", "resources": resources}])
    assert site.bound("limited") == node
    assert site.space.pod("limited")["metadata"]["annotations"][names.WIDTH] == "3000m"

    def told() -> list[Object]:
        return [e for e in site.events("limited") if "was not resized" in e["note"]]

    assert "limited" in wait_for(told, "an event about the resize")[0]["note"]
    assert request(site, "limited") == "1"
    site.pod("fits", cpu="2")
    assert site.bound("fits") == node


def test_a_resize_down_frees_room_without_a_condition(site: Site) -> None:
    """The API server shows the smaller request at once, and no kubelet says here that the resize is in progress."""
    node = site.node(cpu="4")
    site.pod("shrinks", cpu="3")
    assert site.bound("shrinks") == node
    site.pod("waits", cpu="3")
    assert site.refused("waits") == "0/1 nodes are available: 1 Insufficient cpu."
    resources = {"requests": {"cpu": "1"}}
    smaller = {"spec": {"containers": [{"name": "main", "resources": resources}]}}
    site.admin.patch(f"{site.space.pods_path}/shrinks/resize", smaller, "strategic-merge-patch")
    assert site.bound("waits") == node
    assert request(site, "shrinks") == "1"
    conditions = site.space.pod("shrinks")["status"].get("conditions", [])
    assert "PodResizeInProgress" not in {c["type"] for c in conditions}
