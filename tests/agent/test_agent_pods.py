"""Pods of a node as services and tasks, where their cgroups are, and what is reported of them."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import msgspec
import pytest

from flowsched_agent.configuration import ServiceSpec, TaskSpec
from flowsched_agent.controls.hierarchies import find_hierarchies
from flowsched_agent.controls.refusals import ControlError
from flowsched_agent.kubernetes.pod_groups import groups_of_pod, pod_paths
from flowsched_agent.kubernetes.pods import NodePod, PodWorkload, read_pod
from flowsched_agent.kubernetes.reporting import Reporter, load_text
from flowsched_agent.status import ServiceStatus, Status, TaskStatus
from flowsched_agent.system import System
from flowsched_k8s import names
from flowsched_models.catalogue import Catalogue
from flowsched_models.profiles import load_catalogue

CATALOGUE = load_catalogue()
UID = "0f6c2c4e-5d0b-4b8e-9a57-8f5b7c1d2e3f"
UNIT = UID.replace("-", "_")
CONTAINER = "4f0c" * 16
POD: dict[str, Any] = {
    "metadata": {
        "name": "mc-0",
        "namespace": "shop",
        "uid": UID,
        "labels": {names.WORKLOAD_CLASS: "latency-sensitive"},
        "annotations": {
            names.PROFILE: "memcached",
            names.SLO: "p95=1ms@30Kqps",
            names.CORES: "2-3",
            names.THREADS: "2",
            names.CLIENT: "mcperf-30k",
        },
    },
    "spec": {"schedulerName": "flowsched", "containers": [{"name": "main", "ports": [{"containerPort": 11300}]}]},
    "status": {
        "phase": "Running",
        "podIP": "10.0.0.7",
        "qosClass": "Guaranteed",
        "containerStatuses": [{"containerID": f"containerd://{CONTAINER}", "state": {"running": {}}}],
    },
}


def pod(**annotations: str | None) -> dict[str, Any]:
    made = copy.deepcopy(POD)
    for key, value in annotations.items():
        name = f"{names.PREFIX}/{key.replace('_', '-')}"
        made["metadata"]["annotations"].pop(name, None)
        made["metadata"]["labels"].pop(name, None)
        if value is not None:
            made["metadata"]["annotations"][name] = value
    return made


def looked_at(given: dict[str, Any], catalogue: Catalogue = CATALOGUE) -> PodWorkload | str | None:
    return read_pod(msgspec.convert(given, NodePod), catalogue, ("flowsched",))


def read(given: dict[str, Any]) -> PodWorkload:
    got = looked_at(given)
    assert isinstance(got, PodWorkload), got
    return got


def test_a_service_pod() -> None:
    workload = read(POD)
    spec = workload.spec
    assert isinstance(spec, ServiceSpec)
    assert (spec.name, spec.host, spec.port, spec.profile) == ("shop/mc-0", "10.0.0.7", 11300, "memcached")
    assert (spec.threads, spec.slo_us, spec.client, spec.cores) == (2, 1000.0, "mcperf-30k", (2, 3))
    assert (workload.uid, workload.qos, workload.containers) == (UID, "Guaranteed", (CONTAINER,))
    assert workload.path == "/api/v1/namespaces/shop/pods/mc-0"


def test_a_batch_pod() -> None:
    spec = read(pod(profile="canneal", workload_class="batch", slo=None, scale="2.5", threads="4")).spec
    assert isinstance(spec, TaskSpec)
    assert (spec.profile, spec.scale, spec.threads) == ("canneal", 2.5, 4)
    neutral = read(pod(profile=None, workload_class="batch", slo=None)).spec
    assert isinstance(neutral, TaskSpec) and neutral.profile is None


def test_a_name_that_is_a_job_and_a_service_is_what_its_class_says() -> None:
    both = type(CATALOGUE)({**CATALOGUE.jobs, "memcached": CATALOGUE.jobs["vips"]}, CATALOGUE.services, {})
    for said, kind in (("latency-sensitive", ServiceSpec), ("batch", TaskSpec), (None, TaskSpec)):
        got = looked_at(pod(workload_class=said), both)
        assert isinstance(got, PodWorkload) and isinstance(got.spec, kind)


@pytest.mark.parametrize(
    "change",
    [
        lambda p: p["spec"].update(schedulerName="default-scheduler"),
        lambda p: p["status"].update(phase="Succeeded"),
        lambda p: p["status"].update(containerStatuses=[{"containerID": "x://y", "state": {"terminated": {}}}]),
        lambda p: p["metadata"].update(annotations=None, labels=None),
    ],
)
def test_pods_that_are_none_of_ours_are_left_alone_in_silence(change: Any) -> None:
    given = copy.deepcopy(POD)
    change(given)
    assert looked_at(given) is None


@pytest.mark.parametrize(
    "annotations, expected",
    [
        ({"slo": None}, "it has no flowsched.io/slo"),
        ({"slo": "fast"}, "is no latency goal"),
        ({"slo": "p95=1"}, "has no unit"),
        ({"profile": None}, "it names no profile of a service"),
        ({"cores": "a"}, "is not a core set"),
        ({"threads": "0"}, "is not between"),
        ({"threads": "many"}, "invalid literal"),
    ],
)
def test_what_users_wrote_wrongly_is_one_sentence(annotations: dict[str, str | None], expected: str) -> None:
    got = looked_at(pod(**annotations))
    assert isinstance(got, str) and "pod shop/mc-0 is left alone" in got and expected in got


def test_a_container_that_is_started_anew_is_another_workload() -> None:
    again = copy.deepcopy(POD)
    again["status"]["containerStatuses"][0]["containerID"] = "containerd://" + "5" * 64
    assert read(again).key != read(POD).key


# Cgroups


@pytest.mark.parametrize(
    "qos, systemd, cgroupfs",
    [
        ("Guaranteed", f"/kubepods.slice/kubepods-pod{UNIT}.slice", f"/kubepods/pod{UID}"),
        (
            "Burstable",
            f"/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{UNIT}.slice",
            f"/kubepods/burstable/pod{UID}",
        ),
        (
            "BestEffort",
            f"/kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-pod{UNIT}.slice",
            f"/kubepods/besteffort/pod{UID}",
        ),
    ],
)
def test_where_a_kubelet_puts_a_pod(qos: str, systemd: str, cgroupfs: str) -> None:
    assert pod_paths(UID, qos) == (systemd, cgroupfs)


def fake_system(folder: Path, mounts: str) -> System:
    (folder / "proc/self").mkdir(parents=True)
    for name in ("proc/self/mountinfo", "proc/mounts", "proc/self/mounts"):
        (folder / name).write_text(mounts)
    return System(folder / "proc", folder / "cgroup")


def v2(folder: Path) -> System:
    root = folder / "cgroup"
    root.mkdir()
    (root / "cgroup.controllers").write_text("cpuset cpu\n")
    return fake_system(folder, f"cgroup2 {root} cgroup2 rw 0 0\n")


def test_the_group_of_a_pod_on_v2(tmp_path: Path) -> None:
    system = v2(tmp_path)
    hierarchies = find_hierarchies(system)
    if hierarchies.kind != "v2":
        pytest.fail(f"the fake tree is taken for {hierarchies.kind}")
    workload = read(POD)
    with pytest.raises(ControlError) as caught:
        groups_of_pod(system, hierarchies, workload)
    assert caught.value.gone
    path = pod_paths(UID, "Guaranteed")[0]
    (tmp_path / "cgroup" / path.lstrip("/")).mkdir(parents=True)
    assert set(groups_of_pod(system, hierarchies, workload).values()) == {path}


def test_the_group_of_a_pod_below_another_root_is_found_by_its_container(tmp_path: Path) -> None:
    system = v2(tmp_path)
    above = f"/kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-pod{UNIT}.slice"
    (tmp_path / "cgroup" / above.lstrip("/") / f"cri-containerd-{CONTAINER}.scope").mkdir(parents=True)
    assert set(groups_of_pod(system, find_hierarchies(system), read(POD)).values()) == {above}


# Reports


def status(t_s: float, qps: float | None, p95_us: float = 500.0, paused: int = 0) -> Status:
    return Status(
        t_s,
        services={"shop/mc-0": ServiceStatus("shop/mc-0", True, (0, 1), 1000.0, qps, p95_us)},
        tasks={f"t{n}": TaskStatus(f"t{n}", "paused", (), 1.0, 0.0, 1) for n in range(paused)},
    )


PODS = {"shop/mc-0": "/api/v1/namespaces/shop/pods/mc-0"}


def test_a_report_says_what_is_new_and_not_more_often_than_its_period() -> None:
    reporter = Reporter(5.0, 0.1)
    first = reporter.due(status(0.0, 30_000.4), PODS)
    assert first is not None
    assert first.node == {
        names.SERVICE_LOAD: "shop/mc-0=30000",
        names.SERVICE_HEADROOM: "shop/mc-0=0.5",
        names.SERVICE_CORES: "shop/mc-0=0-1",
        names.BATCH_TASKS: "running=0,paused=0",
    }
    assert first.pods == {"shop/mc-0": {names.LOAD: "30000"}}
    assert reporter.due(status(4.9, 90_000.0), PODS) is None
    assert reporter.due(status(5.1, 32_000.0), PODS) is None  # within a tenth
    second = reporter.due(status(6.0, 34_000.0), PODS)
    assert second is not None
    assert second.node == {names.SERVICE_LOAD: "shop/mc-0=34000"}
    third = reporter.due(status(11.1, 34_000.0, paused=1), PODS)
    assert third is not None
    assert (third.node, third.pods) == ({names.BATCH_TASKS: "running=0,paused=1"}, {})


def test_services_that_are_no_pods_are_reported_on_the_node_alone() -> None:
    report = Reporter(5.0, 0.1).due(status(0.0, 10.0), {})
    assert report is not None and report.pods == {} and names.SERVICE_LOAD in report.node


def test_after_a_failure_all_of_it_is_said_again() -> None:
    reporter = Reporter(5.0, 0.1)
    reporter.due(status(0.0, 10.0), PODS)
    reporter.forget()
    again = reporter.due(status(5.0, 10.0), PODS)
    assert again is not None and len(again.node) == 4 and again.pods


@pytest.mark.parametrize("qps", [0.0, 0.4, 999.6, 30_000.0, 1_234_567.8])
def test_the_cluster_scheduler_reads_the_load_that_is_written(qps: float) -> None:
    intent = pytest.importorskip("flowsched_k8s.pods.intent")
    objects = pytest.importorskip("flowsched_k8s.objects")
    text = load_text(qps)
    annotations = {**POD["metadata"]["annotations"], names.LOAD: text}
    found = intent.read_intent(objects.Pod(metadata=objects.Meta(annotations=annotations)), CATALOGUE)
    assert found.problems == ()
    assert found.load_qps == pytest.approx(qps, abs=0.5)
