"""What pods say of themselves, with profiles from a mounted folder, on a real API server."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from plane import Object, Plane, Space, wait_for
from running import MANIFESTS, Running, Site, running_scheduler, site_of

from flowsched_k8s import names

EXAMPLE = MANIFESTS / "base" / "profiles" / "example.yaml"
REFUSED = "profiles refused, the old ones are kept"
DUE_S = 3.0


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Mounted as a ConfigMap is."""
    return tmp_path_factory.mktemp("profiles")


@pytest.fixture(scope="module")
def scheduler(plane: Plane, folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    made = tmp_path_factory.mktemp("scheduler")
    with running_scheduler(
        plane,
        made,
        profilesFile=str(folder),
        engine={"dueAgeS": DUE_S},
        rounds={"maxPeriod": "1s"},
        expected_faults=[REFUSED],
    ) as started:
        yield started


@pytest.fixture
def site(scheduler: Running, space: Space) -> Iterator[Site]:
    with site_of(scheduler, space) as made:
        yield made


def notes(site: Site, name: str) -> dict[str, str]:
    found: dict[str, str] = site.space.pod(name)["metadata"]["annotations"]
    return found


def cores(text: str) -> set[int]:
    """``0-1,3`` as a set."""
    parts = (part.partition("-") for part in text.split(","))
    return {core for first, _, last in parts for core in range(int(first), int(last or first) + 1)}


def postponed(site: Site, name: str) -> Object:
    """The event about a pod that waits although it could run; autoscalers hear nothing of it."""
    event = site.event(name, names.POSTPONED)
    assert (event["type"], event["action"]) == ("Normal", "Scheduling")
    assert any(character.isdigit() for character in event["note"]), event
    assert site.condition(name) is None
    assert not site.space.pod(name)["spec"].get("nodeName")
    return event


def test_who_leads_has_compiled_before(scheduler: Running) -> None:
    said = [line["msg"] for line in scheduler.log() if line["msg"] in ("prepared", "leading")]
    assert said == ["prepared", "leading"]


# What the container hears


def test_a_plain_pod(site: Site) -> None:
    node = site.node(cpu="4")
    site.pod("plain", cpu="1500m")
    assert site.bound("plain") == node
    found = notes(site, "plain")
    placement = json.loads(found[names.PLACEMENT])
    assert len(found[names.PLACEMENT].encode()) < 1024
    assert (placement["node"], placement["round"]) == (node, site.scheduler.record()["round"])
    assert placement["cost"] == pytest.approx(sum(placement["terms"].values()), abs=1e-3)
    assert (found[names.THREADS], found[names.WIDTH]) == ("2", "1500m")
    assert cores(found[names.CORES]) == {0, 1, 2, 3}
    event = site.event("plain", names.SCHEDULED)
    assert event["note"] == f"Successfully assigned {site.name}/plain to {node}"
    assert (event["type"], event["action"]) == ("Normal", "Binding")


def test_a_measured_job_hears_its_threads(site: Site) -> None:
    node = site.node(cpu="4")
    wishes = {names.PROFILE: "canneal", names.WIDTHS: "1,2"}
    site.pod("job", cpu="1", annotations=wishes)
    assert site.bound("job") == node
    found = notes(site, "job")
    assert found[names.THREADS] in ("1", "2")
    # Without resizes the width is the request, whatever widths are allowed.
    assert found[names.WIDTH] == "1000m"
    assert cores(found[names.CORES]) <= {0, 1, 2, 3}
    placement = json.loads(found[names.PLACEMENT])
    assert len(found[names.PLACEMENT].encode()) < 1024
    assert "run_time" in placement["terms"]
    uid = site.space.pod("job")["metadata"]["uid"]
    (part,) = site.scheduler.record(str(placement["round"]))["parts"]
    assert uid in part["placements"]["task"]
    # The same by labels.
    site.pod("labelled", cpu="1", labels={names.PROFILE: "canneal"})
    site.bound("labelled")
    assert "run_time" in json.loads(notes(site, "labelled")[names.PLACEMENT])["terms"]


def test_a_service_gets_cores_of_its_own(site: Site) -> None:
    node = site.node(cpu="4", labels={names.MACHINE_TYPE: "n2d-highmem-4"})
    wishes = {
        names.PROFILE: "memcached",
        names.WORKLOAD_CLASS: "latency-sensitive",
        names.SLO: "p95=1ms@30000qps",
        names.CLIENT: "mcperf-sweep",
    }
    site.pod("cache", cpu="1", annotations=wishes)
    assert site.bound("cache") == node
    own = cores(notes(site, "cache")[names.CORES])
    assert len(own) == 1
    site.pod("job", cpu="1", annotations={names.PROFILE: "blackscholes", names.WIDTHS: "1,2,3"})
    assert site.bound("job") == node
    assert cores(notes(site, "job")[names.CORES]).isdisjoint(own)


def test_a_value_that_cannot_be_used_counts_as_not_given(site: Site) -> None:
    site.node()
    site.pod("odd", annotations={names.PROFILE: "cannael", names.SCALE: "much"})
    site.bound("odd")
    event = site.event("odd", names.FAILED_SCHEDULING)
    assert f"annotation {names.PROFILE}: there is no profile 'cannael'" in event["note"]
    assert "did you mean 'canneal'" in event["note"]
    assert f"annotation {names.SCALE}: 'much' is not a number" in event["note"]
    assert notes(site, "odd")[names.THREADS] == "1"


# Waiting that pays


def test_postponed_until_due(site: Site) -> None:
    """No place is good enough for it, so it waits, and goes anyway once it has waited too long."""
    node = site.node()
    site.pod("choosy", annotations={names.MIN_UTILITY: "1"})
    postponed(site, "choosy")
    assert site.waits("choosy")["postponed"]
    site.scheduler.metric_becomes(1, "flowsched_postponed_pods")
    assert site.bound("choosy") == node
    age_s = wait_for(lambda: site.events("choosy", names.SCHEDULED), "the event")[0]["eventTime"]
    assert age_s > site.events("choosy", names.POSTPONED)[0]["eventTime"]


def test_a_measured_job_is_postponed_as_well(site: Site) -> None:
    node = site.node()
    site.pod("choosy", cpu="1", annotations={names.PROFILE: "canneal", names.MIN_UTILITY: "1"})
    postponed(site, "choosy")
    # A change of the pod counts with the next look.
    site.change_pod("choosy", {"metadata": {"annotations": {names.MIN_UTILITY: None}}}, "merge-patch")
    assert site.bound("choosy") == node


# Profiles that change


def test_profiles_are_read_again_when_they_change(site: Site, folder: Path) -> None:
    site.node()
    site.pod("early", annotations={names.PROFILE: "example-render"})
    site.bound("early")
    assert "no profile 'example-render'" in site.event("early", names.FAILED_SCHEDULING)["note"]
    seen = len(site.scheduler.log("profiles changed"))
    shutil.copy(EXAMPLE, folder / "profiles.yaml")
    wait_for(lambda: len(site.scheduler.log("profiles changed")) > seen, "the profiles to be read")
    site.pod("late", cpu="1", annotations={names.PROFILE: "example-render"})
    site.bound("late")
    assert site.events("late", names.FAILED_SCHEDULING) == []
    assert "run_time" in json.loads(notes(site, "late")[names.PLACEMENT])["terms"]


def test_bad_profiles_are_refused_and_the_old_ones_kept(site: Site, folder: Path) -> None:
    """Runs after the one before it, whose profiles are the old ones; it makes them itself if it runs alone."""
    file = folder / "profiles.yaml"
    if not file.exists():
        shutil.copy(EXAMPLE, file)
        wait_for(lambda: site.scheduler.log("profiles changed"), "the profiles to be read")
    bad = yaml.safe_load(file.read_text())
    bad["jobs"]["example-render"]["work_s"] = -1
    file.write_text(yaml.safe_dump(bad))
    wait_for(lambda: site.scheduler.log(REFUSED), "the profiles to be refused")
    home = site.scheduler.home

    def told() -> list[Object]:
        return [e for e in home.events() if e["reason"] == names.PROFILES_REFUSED]

    (event,) = wait_for(told, "an event about the profiles")
    assert event["type"] == "Warning"
    assert "work_s" in event["note"] and "the old ones are kept" in event["note"]
    site.node()
    site.pod("kept", cpu="1", annotations={names.PROFILE: "example-render"})
    site.bound("kept")
    assert site.events("kept", names.FAILED_SCHEDULING) == []
