"""The quick start of the documents, typed as it stands there, against a real control plane.

No container runs: KWOK says that flowsched's pods do, and the test runs ``flowsched run`` in their place, with the files and
the ServiceAccount that the manifests give them.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from audit import AuditLog, account, grants_of
from plane import Object, Plane, Space, running_plane, wait_for
from running import STANDARD, Running, rules_of, rules_of_learning

from flowsched_k8s import names

HOUSE = Path(__file__).parents[2]
PAGE = (HOUSE / "docs" / "kubernetes.md").read_text(encoding="utf-8")
TUTORIAL = (HOUSE / "docs" / "tutorials" / "kubernetes.md").read_text(encoding="utf-8")
NAMESPACE = "flowsched-system"
USER = account(NAMESPACE, "flowsched")
POOL = {"node-a-2core": "t2d-standard-2", "node-b-4core": "n2d-highmem-4", "node-c-8core": "e2-standard-8"}
"""The nodes that the page names, with types of which the bundled profiles know measurements."""
ALLOCATABLE = {"node-a-2core": ("2", "6100Mi"), "node-b-4core": ("4", "29000Mi"), "node-c-8core": ("8", "28600Mi")}
OUTSIDE = "outside"
PODS = "/api/v1/namespaces/default/pods"
QUICK_START = re.findall(r"<!-- quick start -->\n```sh\n(.*?)```", TUTORIAL + PAGE, re.DOTALL)


def block_under(heading: str, number: int = 0) -> str:
    """A block of commands in a section of the page."""
    section = re.split(r"^## ", PAGE.split(f"\n## {heading}\n", 1)[1], maxsplit=1, flags=re.MULTILINE)[0]
    return str(re.findall(r"```sh\n(.*?)```", section, re.DOTALL)[number])


def step(words: str) -> str:
    """The one block of the quick start that has these words."""
    (found,) = (str(block) for block in QUICK_START if words in block)
    return found


class Reader:
    """A reader who follows the page: what is typed, and what is to be seen then."""

    def __init__(self, plane: Plane, folder: Path) -> None:
        self.plane = plane
        self.admin = plane.admin
        self.folder = folder
        self.typed: list[str] = []
        self.replicas: list[Running] = []

    def types(self, block: str, where: Path = HOUSE) -> str:
        """Run a block of commands, each of which must succeed; what they print."""
        self.typed.append(block)
        command = ["bash", "-euo", "pipefail", "-c", block]
        done = subprocess.run(
            command, cwd=where, capture_output=True, text=True, env=self.plane.environment(), check=False, timeout=300
        )
        assert done.returncode == 0, f"{block}\n{done.stdout}\n{done.stderr}"
        return done.stdout

    def deployment(self) -> Object:
        return self.admin.get(f"/apis/apps/v1/namespaces/{NAMESPACE}/deployments/flowsched")

    def start_replica(self, leading: bool) -> Running:
        """What a kubelet does with a pod of the Deployment: its files, its ServiceAccount, its arguments."""
        folder = self.folder / f"replica-{len(self.replicas)}"
        pod = self.deployment()["spec"]["template"]["spec"]
        (container,) = pod["containers"]
        maps = {v["name"]: v["configMap"]["name"] for v in pod["volumes"] if "configMap" in v}
        for mount in container["volumeMounts"]:
            if mount["name"] in maps:
                place = folder / mount["mountPath"].lstrip("/")
                place.mkdir(parents=True)
                data = self.admin.get(f"/api/v1/namespaces/{NAMESPACE}/configmaps/{maps[mount['name']]}")["data"]
                for name, text in data.items():
                    (place / name).write_text(text)
        verb, option = container["args"]
        assert verb == "run"
        given = folder / option.removeprefix("--config=/")
        configuration = yaml.safe_load(given.read_text())
        # There is one machine for all of them, and its root is not ours.
        configuration["server"] = dict.fromkeys(configuration["server"], "127.0.0.1:0")
        configuration["profilesFile"] = str(folder / configuration["profilesFile"].lstrip("/"))
        kubeconfig = self.plane.kubeconfig_for(NAMESPACE, pod["serviceAccountName"])
        replica = Running(self.plane, Space(self.plane, NAMESPACE), folder, kubeconfig, {})
        replica.configuration.write_text(yaml.safe_dump(configuration))
        self.replicas.append(replica)
        replica.start(leading=leading, environment={})  # fresh, as a container starts it
        return replica

    def leader(self) -> str:
        lease = self.admin.find(f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases/flowsched")
        return str(((lease or {}).get("spec") or {}).get("holderIdentity", ""))

    def pods(self, label: str) -> list[Object]:
        return self.admin.items(PODS, labelSelector=f"app.kubernetes.io/{label}")

    def places(self, label: str) -> dict[str, str]:
        return {p["metadata"]["name"]: p["spec"].get("nodeName", "") for p in self.pods(label)}


@pytest.fixture
def reader(tmp_path: Path) -> Iterator[Reader]:
    with running_plane("--parts", "kwok,kube-controller-manager,kube-scheduler", "--audit-log") as plane:
        for name in (*POOL, OUTSIDE):
            cpu, memory = ALLOCATABLE.get(name, ("4", "16Gi"))
            room = {"cpu": cpu, "memory": memory, "pods": "110"}
            labels = {names.HOSTNAME: name, "kubernetes.io/os": "linux", names.INSTANCE_TYPE: POOL.get(name, "other")}
            metadata = {"name": name, "labels": labels, "annotations": {"kwok.x-k8s.io/node": "fake"}}
            ready = {"type": "Ready", "status": "True", "reason": "Test"}
            status = {"allocatable": room, "capacity": room, "conditions": [ready]}
            plane.admin.post("/api/v1/nodes", {"metadata": metadata, "status": status})
        # Every pod of a namespace needs its ServiceAccount, which a controller makes.
        default = "/api/v1/namespaces/default/serviceaccounts/default"
        wait_for(lambda: plane.admin.find(default), "the cluster to be ready for pods")
        made = Reader(plane, tmp_path)
        try:
            yield made
        finally:
            for replica in made.replicas:
                replica.end()


def test_the_page_can_be_followed(reader: Reader) -> None:
    audit = AuditLog(reader.plane)
    first, second = installed(reader)
    web_server(reader)
    measured_jobs(reader)
    too_large(reader)
    cleaned_up(reader)
    # Something that runs, and something that waits, through all that follows.
    reader.plane.kubectl("apply", "-f", str(HOUSE / "k8s/examples/nginx.yaml"))
    reader.plane.kubectl("apply", "-f", str(HOUSE / "k8s/examples/too-large.yaml"))
    reader.plane.kubectl("rollout", "status", "deployment/nginx", "--timeout=60s")
    before = {p["metadata"]["uid"]: p["spec"]["nodeName"] for p in reader.pods("name=nginx")}
    third = upgraded(reader, first, second)
    rolled_back(reader)
    assert not [line for replica in (first, second, third) for line in replica.faults()]
    assert audit.refused(USER) == set()
    everywhere, lease = rules_of(*STANDARD)
    assert audit.used(USER) <= grants_of([*everywhere, *lease, *rules_of_learning()])
    uninstalled(reader)
    after = {p["metadata"]["uid"]: p["spec"]["nodeName"] for p in reader.pods("name=nginx")}
    assert before == after
    assert {p["status"]["phase"] for p in reader.pods("name=nginx")} == {"Running"}
    assert set(QUICK_START) <= set(reader.typed)


def installed(reader: Reader) -> tuple[Running, Running]:
    """The nodes, the manifests, and two replicas of which one leads."""
    reader.types(step("kubectl taint node node-a-2core"))
    wanted = {"key": names.POOL, "value": "true", "effect": "NoSchedule"}
    for node in reader.admin.items("/api/v1/nodes"):
        chosen = node["metadata"]["name"] in POOL
        assert (node["metadata"]["labels"].get(names.POOL) == "true") == chosen
        assert (wanted in node["spec"].get("taints", [])) == chosen
    said = reader.types(step("kubectl apply -k k8s/manifests"))
    assert 'deployment "flowsched" successfully rolled out' in said
    pods = reader.admin.items(f"/api/v1/namespaces/{NAMESPACE}/pods")
    # The pool's taint keeps flowsched itself off its nodes.
    assert [p["spec"]["nodeName"] for p in pods] == [OUTSIDE, OUTSIDE]
    first = reader.start_replica(leading=True)
    second = reader.start_replica(leading=False)
    assert reader.leader()
    assert set(first.state()["nodes"]) == set(POOL)
    assert not second.state()["active"]
    return first, second


def web_server(reader: Reader) -> None:
    """It runs in the pool, and one sees who placed it, and why there."""
    said = reader.types(step("kubectl apply -f k8s/examples/nginx.yaml"))
    assert 'deployment "nginx" successfully rolled out' in said
    shown = [line.split() for line in said.splitlines() if line.startswith("nginx-")]
    assert len(shown) == 2
    for words in shown:
        assert "Running" in words
        assert set(words) & set(POOL)
    wait_for(
        lambda: len(reader.admin.items("/api/v1/namespaces/default/events", fieldSelector="reason=Scheduled")) == 2,
        "the events to be written",
    )
    said = reader.types(step("flowsched\\.io/placement"))
    places = reader.places("name=nginx")
    for pod, node in places.items():
        (event,) = (line for line in said.splitlines() if f"pod/{pod} " in line)
        assert "flowsched" in event
        assert node in event
        (placement,) = (line for line in said.splitlines() if line.startswith(f"{pod}  "))
        why = json.loads(placement.removeprefix(pod))
        assert why["node"] == node
        assert why.keys() >= {"node", "round", "cost", "terms"}


def measured_jobs(reader: Reader) -> None:
    """Some of them run at once; the others say why they do not."""
    said = reader.types(step("k8s/examples/parsec.yaml\nkubectl get"))
    assert "pod/memcached condition met" in said
    memcached = reader.admin.get(f"{PODS}/memcached")
    assert memcached["spec"]["nodeName"] in POOL

    def answered() -> bool:
        pods = reader.pods("part-of=parsec")
        postponed = {
            e["involvedObject"]["name"]
            for e in reader.admin.items("/api/v1/namespaces/default/events", fieldSelector="reason=Postponed")
        }

        def told(pod: Object) -> bool:
            conditions = pod["status"].get("conditions", [])
            unschedulable = any(c.get("reason") == names.UNSCHEDULABLE for c in conditions)
            return bool(pod["spec"].get("nodeName") or unschedulable or pod["metadata"]["name"] in postponed)

        return len(pods) == 7 and all(map(told, pods))

    wait_for(answered, "every job to run or to say why not")
    nodes = [node for node in reader.places("part-of=parsec").values() if node]
    assert 0 < len(nodes) < 7
    assert set(nodes) <= set(POOL)
    shown = reader.types(step("k8s/examples/parsec.yaml\nkubectl get").splitlines()[-1])
    assert len(re.findall(r" Running .* node-\w-\dcore ", shown)) == len(nodes)
    assert len(re.findall(r" Pending .* <none> ", shown)) == 7 - len(nodes)
    for pod in reader.pods("part-of=parsec"):
        if pod["spec"].get("nodeName"):
            assert int(pod["metadata"]["annotations"][names.THREADS]) >= 1


def too_large(reader: Reader) -> None:
    """The message is the one that the page shows."""
    block = step("k8s/examples/too-large.yaml\nkubectl wait")
    expected = re.search(re.escape(f"{block}```") + r"\s+```text\n(.*?)```", TUTORIAL, re.DOTALL)
    assert expected is not None
    assert reader.types(block).endswith(f"\n{expected[1]}")


def cleaned_up(reader: Reader) -> None:
    """Of the examples nothing is left."""
    reader.types(step("kubectl delete -f k8s/examples/nginx.yaml"))
    wait_for(lambda: not reader.admin.items(PODS), "the examples to be gone")


def upgraded(reader: Reader, first: Running, second: Running) -> Running:
    """A new image and configuration: what changes is shown, the pods are rolled, a standby goes on."""
    checkout = reader.folder / "checkout"
    shutil.copytree(HOUSE / "k8s" / "manifests", checkout / "k8s" / "manifests")
    for file, old, new in (
        ("deployment.yaml", "image: flowsched:0.1.0", "image: flowsched:0.1.1"),
        ("config.yaml", "format: json", "format: json\n  verbosity: 1"),
    ):
        path = checkout / "k8s" / "manifests" / "base" / file
        assert old in path.read_text()
        path.write_text(path.read_text().replace(old, new))
    block = block_under("Upgrade")
    # It ends with 1 where there is a difference, which does not end the reader's shell.
    diff = "kubectl diff -k k8s/manifests"
    assert diff in block
    said = reader.types(block.replace(diff, f"{diff} || test $? -eq 1"), checkout)
    assert "+        image: flowsched:0.1.1" in said
    assert 'deployment "flowsched" successfully rolled out' in said
    third = reader.start_replica(leading=False)
    leader = reader.leader()
    assert first.stop() == 0
    wait_for(lambda: second.state()["active"] or third.state()["active"], "one of the others to lead")
    assert reader.leader() != leader
    assert second.stop() == 0
    wait_for(lambda: third.state()["active"], "the new one to lead")
    assert json.loads(third.answer("/configz"))["logging"]["verbosity"] == 1
    return third


def rolled_back(reader: Reader) -> None:
    """The image and the configuration from before are back."""
    changed = reader.deployment()["spec"]["template"]["spec"]
    said = reader.types(block_under("Rollback"))
    assert 'deployment "flowsched" successfully rolled out' in said
    pod = reader.deployment()["spec"]["template"]["spec"]
    assert pod["containers"][0]["image"] == "flowsched:0.1.0"
    assert pod["volumes"] != changed["volumes"]
    reader.start_replica(leading=False)
    said = reader.types(block_under("Rollback", 1))
    for role in ("core", "volumes", "pod-groups", "namespace-selector"):
        for kind in ("clusterrole", "clusterrolebinding"):
            assert f"\n{kind}.rbac.authorization.k8s.io/flowsched-{role} " in said
    (command,) = re.findall(r"`(kubectl -n flowsched-system get configmap [^`]*)`", PAGE)
    maps = reader.types(command)
    assert maps.count("flowsched-config-") == 2


def uninstalled(reader: Reader) -> None:
    """Who waits is listed; then nothing of flowsched is left."""
    waiting = reader.types(step("spec.schedulerName=flowsched,spec.nodeName="))
    assert [line.split()[:2] for line in waiting.splitlines()[1:]] == [["default", "too-large"]]
    for replica in reader.replicas:
        replica.end()
    reader.types(step("kubectl delete -k k8s/manifests"))
    assert reader.admin.find(f"/api/v1/namespaces/{NAMESPACE}") is None
    group = "/apis/rbac.authorization.k8s.io/v1"
    for kind in ("clusterroles", "clusterrolebindings"):
        assert not reader.admin.items(f"{group}/{kind}", labelSelector="app.kubernetes.io/name=flowsched")
    for node in reader.admin.items("/api/v1/nodes"):
        assert names.POOL not in node["metadata"]["labels"]
        assert not [t for t in node["spec"].get("taints", []) if t["key"] == names.POOL]
    (pod,) = reader.admin.items(PODS, fieldSelector="spec.nodeName=")
    assert pod["metadata"]["name"] == "too-large"
