"""The control plane that other tests rely on: what it is built from, what it starts, what it ends."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from plane import SCRIPT, Plane, RefusedError, Space, run_script, running_plane, started_at, wait_for

KUSTOMIZATION = """
apiVersion: kustomize.config.k8s.io/v1beta1
kind: Kustomization
resources: [map.yaml]
namePrefix: made-
"""
MAP = """
apiVersion: v1
kind: ConfigMap
metadata: {name: map}
data: {key: value}
"""


def path_of(script: Path) -> str:
    return subprocess.run([sys.executable, str(script), "path"], check=True, capture_output=True, text=True).stdout


def test_every_source_counts_for_the_executable(tmp_path: Path) -> None:
    copy = tmp_path / "control_plane"
    shutil.copytree(SCRIPT.parent, copy, ignore=shutil.ignore_patterns("__pycache__"))
    script = copy / SCRIPT.name
    seen = [path_of(script)]
    assert seen == [path_of(SCRIPT)]
    (copy / "stages.yaml").write_text("read at each start, so not part of the executable")
    assert path_of(script) == seen[0]
    new = copy / "cmd" / "control-plane" / "extra" / "extra.go"
    new.parent.mkdir()
    for path, text in (
        (new, "package extra\n"),
        (copy / "cmd" / "control-plane" / "main.go", "package main\n"),
        (copy / "go.mod", (copy / "go.mod").read_text() + "\n"),
        (copy / "go.sum", ""),
    ):
        path.write_text(text)
        seen.append(path_of(script))
    assert len(set(seen)) == len(seen)


def test_builds_of_several_versions_lie_side_by_side(monkeypatch: pytest.MonkeyPatch) -> None:
    default = path_of(SCRIPT)
    found = {}
    for version in ("1.34", "1.35", "1.36", ""):
        monkeypatch.setenv("FLOWSCHED_KUBERNETES", version)
        found[version] = path_of(SCRIPT)
    assert found.pop("") == found["1.36"] == default
    assert len(set(found.values())) == 3
    monkeypatch.setenv("FLOWSCHED_KUBERNETES", "1.2")
    with pytest.raises(subprocess.CalledProcessError) as caught:
        run_script("path")
    assert "FLOWSCHED_KUBERNETES must be one of 1.34, 1.35, 1.36, got '1.2'" in caught.value.stderr


def test_other_versions_differ_in_the_modules_of_kubernetes_only() -> None:
    default = (SCRIPT.parent / "go.mod").read_text()
    shared = [re.search(rf"\s{module} (v\S+)", default) for module in ("go.etcd.io/etcd/server/v3", "sigs.k8s.io/kwok")]
    for file in sorted((SCRIPT.parent / "versions").glob("*.mod")):
        text = file.read_text()
        release = re.search(r"k8s.io/kubernetes v1\.(\S+)", text)
        assert release and release[1].startswith(file.stem.removeprefix("1.") + ".")
        assert f"k8s.io/api => k8s.io/api v0.{release[1]}\n" in text
        assert all(found and found[0] in text for found in shared)
        assert file.with_suffix(".sum").exists()


def test_mistakes_are_one_message(tmp_path: Path) -> None:
    for words, expected in (
        (["up", tmp_path, "--parts", "kwok,kubelet"], "no such part: kubelet"),
        (["stop", tmp_path, "etcd"], "has no part 'etcd' (started: none)"),
    ):
        with pytest.raises(subprocess.CalledProcessError) as caught:
            run_script(*words)
        assert expected in caught.value.stderr
        assert "Traceback" not in caught.value.stderr
    assert list(tmp_path.iterdir()) == []


def test_it_listens_on_loopback_only(plane: Plane) -> None:
    parts = json.loads((plane.folder / "state.json").read_text())["processes"]
    inodes = set()
    for process in parts.values():
        for link in Path(f"/proc/{process['pid']}/fd").iterdir():
            try:
                target = str(link.readlink())
            except OSError:
                continue
            if target.startswith("socket:["):
                inodes.add(target[8:-1])
    listening = set()
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        for line in Path(table).read_text().splitlines()[1:]:
            words = line.split()
            if words[3] == "0A" and words[9] in inodes:
                listening.add(words[1].split(":")[0])
    assert listening == {"0100007F"}


def test_bound_pods_run_and_end(space: Space) -> None:
    (node,) = space.make_nodes(1)
    space.make_pod("job", annotations={"flowsched.test/run-for": "10ms"})
    target = {"kind": "Node", "name": node}
    space.admin.post(f"{space.pods_path}/job/binding", {"metadata": {"name": "job"}, "target": target})
    try:
        wait_for(lambda: space.pod("job")["status"]["phase"] == "Succeeded", "the pod to end")
    except AssertionError as error:
        log = (space.plane.folder / "logs" / "kwok.log").read_text()
        raise AssertionError(f"{error}; {space.pod('job')['status']}; the end of KWOK's log:\n{log[-3000:]}") from None


def test_a_service_account_may_do_what_its_rules_say(space: Space) -> None:
    rules = [{"apiGroups": [""], "resources": ["pods"], "verbs": ["list"]}]
    leases = [{"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": ["list"]}]
    config = space.service_account_kubeconfig(rules, leases)

    def may(*words: str) -> bool:
        command = [f"--kubeconfig={config}", "auth", "can-i", *words]
        try:
            return space.plane.kubectl(*command).strip() == "yes"
        except subprocess.CalledProcessError:
            return False

    assert may("list", "pods", "-A")
    assert may("list", "leases")
    assert not may("list", "leases", "-n", "default")
    assert not may("get", "pods")
    assert not may("list", "secrets")


def test_kubectl_applies_a_kustomization(plane: Plane, namespace: str, tmp_path: Path) -> None:
    (tmp_path / "kustomization.yaml").write_text(KUSTOMIZATION)
    (tmp_path / "map.yaml").write_text(MAP)
    assert "created" in plane.kubectl("apply", "-n", namespace, "-k", str(tmp_path))
    found = json.loads(plane.kubectl("get", "-n", namespace, "configmap", "made-map", "-o", "json"))
    assert found["data"] == {"key": "value"}


def test_documents_can_be_applied_and_refused(space: Space) -> None:
    (made,) = space.admin.apply(MAP, space.name)
    assert made["data"] == {"key": "value"}
    assert space.admin.find(f"/api/v1/namespaces/{space.name}/configmaps/map") is not None
    assert space.admin.find(f"/api/v1/namespaces/{space.name}/configmaps/other") is None
    with pytest.raises(RefusedError) as caught:
        space.admin.post(space.pods_path, {"metadata": {"name": "bad"}, "spec": {}})
    assert caught.value.status == 422


def test_all_parts_together_with_a_gate() -> None:
    options = ("--feature-gates", "GenericWorkload=true", "--runtime-config", "scheduling.k8s.io/v1alpha2=true")
    with running_plane(*options, "--scheduler-qps", "1000") as full:
        resources = full.admin.get("/apis/scheduling.k8s.io/v1alpha2")["resources"]
        assert "podgroups" in {resource["name"] for resource in resources}
        job = {
            "metadata": {"name": "job"},
            "spec": {
                "template": {
                    "metadata": {"annotations": {"flowsched.test/run-for": "10ms"}},
                    "spec": {"restartPolicy": "Never", "containers": [{"name": "main", "image": "test"}]},
                }
            },
        }
        with full.space("jobs") as space:
            space.make_nodes(2)
            full.admin.post(f"/apis/batch/v1/namespaces/{space.name}/jobs", job)
            path = f"/apis/batch/v1/namespaces/{space.name}/jobs/job"
            wait_for(lambda: full.admin.get(path)["status"].get("succeeded") == 1, "the job to be complete")
        pids = [full.pid(part) for part in json.loads(run_script("status", full.folder))]
        folder = full.folder
    assert len(pids) == 5
    assert [pid for pid in pids if started_at(pid)] == []
    assert not folder.exists()


def test_a_part_comes_back_where_it_was(plane: Plane, space: Space) -> None:
    space.make_pod("kept")
    before = plane.pid("kube-apiserver")
    plane.restart("kube-apiserver")
    assert plane.pid("kube-apiserver") != before
    assert space.pod("kept")["metadata"]["name"] == "kept"
