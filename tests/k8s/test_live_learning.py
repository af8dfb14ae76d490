"""Run times are learnt from pods that end on a real API server, and outlast the leader that learnt them."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from plane import Object, Plane, Space, wait_for
from running import Running, Site, running_scheduler, site_of

from flowsched_k8s import names

RUNS_S = 8
"""Longer than the shortest run that counts, though starts and ends are whole seconds."""
LONGER_S = 12


@pytest.fixture
def scheduler(plane: Plane, tmp_path: Path) -> Iterator[Running]:
    with running_scheduler(plane, tmp_path, leaderElection={"leaseDuration": "3s", "renewDeadline": "2s"}) as started:
        yield started


@pytest.fixture
def site(scheduler: Running, space: Space) -> Iterator[Site]:
    with site_of(scheduler, space) as made:
        yield made


def job(site: Site, name: str, seconds: int, **more: str) -> None:
    """A pod that ends by itself; further annotations under the test's own prefix."""
    notes = {"flowsched.test/run-for": f"{seconds}s", **{f"flowsched.test/{key}": value for key, value in more.items()}}
    site.pod(name, restartPolicy="Never", annotations=notes)


def saved(site: Site) -> list[list[object]]:
    """The lines of the ConfigMap."""
    home = site.scheduler.home.name
    found: Object | None = site.admin.find(f"/api/v1/namespaces/{home}/configmaps/flowsched-{names.LEARNT}")
    return [] if found is None else [json.loads(line) for line in found["data"]["classes"].split("\n") if line]


def runs(site: Site) -> dict[str, int]:
    """Completions that were saved, by family of the class."""
    return {str(line[0]).partition("@")[0]: int(str(line[2])) for line in saved(site)}


def test_ends_are_learnt_from_and_outlast_the_leader(site: Site) -> None:
    site.nodes(2)
    scheduler = site.scheduler
    for i in range(3):
        job(site, f"encode-{i}", RUNS_S)
    job(site, "fails-0", RUNS_S, **{"exit-code": "3"})
    job(site, "short-0", 1)
    site.pod("web-0", annotations={"flowsched.test/run-for": f"{RUNS_S}s"})  # restartPolicy Always: it has no end
    site.all_bound(6)
    scheduler.metric_becomes(3, "flowsched_pod_ends_total", outcome="learnt")
    scheduler.metric_becomes(1, "flowsched_pod_ends_total", outcome="short")
    wait_for(lambda: runs(site), "what was learnt to be saved")
    families = {str(line[0]).partition("@")[0] for line in saved(site)}
    assert families == {f"{site.name}/encode"}
    ((key, factor),) = [
        (dict(labels), value)
        for (name, labels), value in scheduler.metrics().items()
        if name == "flowsched_learnt_factor"
    ]
    assert key["class"].startswith(f"{site.name}/encode@")
    assert 0.5 <= factor <= 2.0
    # It ends while nothing leads, after the last write, which may not have had all of the others either.
    job(site, "encode-10", LONGER_S)
    site.all_bound(7)
    scheduler.signal(signal.SIGKILL)
    scheduler.end()
    wait_for(lambda: site.space.pod("encode-10")["status"]["phase"] == "Succeeded", "the last pod to end")
    scheduler.start()
    wait_for(lambda: runs(site) == {f"{site.name}/encode": 4}, "a new leader to know all ends")
    scheduler.metric_becomes(1, "flowsched_learnt_classes")


def test_without_the_role_nothing_is_learnt_and_pods_are_placed(plane: Plane, space: Space, tmp_path: Path) -> None:
    with running_scheduler(plane, tmp_path, start=False) as scheduler:
        home = scheduler.home
        role = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{home.name}/roles/account-0"
        whole = plane.admin.get(role)["rules"]
        rules = [rule for rule in whole if "configmaps" not in rule["resources"]]
        plane.admin.patch(role, {"rules": rules}, "merge-patch")
        scheduler.start()
        with site_of(scheduler, space) as site:
            site.node()
            job(site, "encode-0", RUNS_S)
            site.bound("encode-0")
            (line,) = wait_for(lambda: [m for m in scheduler.log() if "nothing is learnt" in m["msg"]], "a warning")
            assert (line["level"], "configmaps" in line["msg"]) == ("warning", True)
            wait_for(lambda: site.space.pod("encode-0")["status"]["phase"] == "Succeeded", "the pod to end")
            assert not [name for name, _ in scheduler.metrics() if name == "flowsched_pod_ends_total"]
            # It counts once the role is there.
            plane.admin.patch(role, {"rules": whole}, "merge-patch")
            job(site, "encode-1", RUNS_S)
            scheduler.metric_becomes(1, "flowsched_learnt_classes")


def test_where_it_is_on_rounds_know_what_was_learnt(plane: Plane, space: Space, tmp_path: Path) -> None:
    with running_scheduler(plane, tmp_path, learning="on") as scheduler, site_of(scheduler, space) as site:
        site.node(cpu="8", labels={names.MACHINE_TYPE: "e2-standard-8"})

        def vips(name: str, run_s: int = RUNS_S) -> None:
            """A pod that ends after a fraction of its profile's run time."""
            notes = {"flowsched.test/run-for": f"{run_s}s", names.PROFILE: "vips", names.SCALE: "10"}
            site.pod(name, restartPolicy="Never", cpu="1", annotations=notes, labels={names.RUN_CLASS: "vips"})

        def snapshot(name: str) -> Object:
            """What the last round that decided on a pod knew."""

            def found() -> Object | None:
                parts: list[Object] = scheduler.record()["parts"]
                known = (part["snapshot"] for part in parts)
                return next((k for k in known if f"{site.name}/{name}" in [t["job"] for t in k["pending"]]), None)

            return wait_for(found, f"a round of {name}") or {}

        vips("first")
        site.bound("first")
        assert "learnt_run_times" not in snapshot("first")
        scheduler.metric_becomes(1, "flowsched_pod_ends_total", outcome="learnt")
        vips("second", 600)
        told = snapshot("second")
        assert [task["class"] for task in told["pending"]] == [f"{site.name}/vips"]
        (row,) = told["learnt_run_times"]["classes"]
        assert (row["class"], row["machine_type"], row["runs"]) == (f"{site.name}/vips", "e2-standard-8", 1)
        assert row["log_sum"] < 0.0
        site.bound("second")
        # Its forecast is that of its class, and the next round sees it so.
        vips("third")
        (there,) = snapshot("third")["running"]
        assert there["factor"] < 1.0
