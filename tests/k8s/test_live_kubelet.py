"""The agent as its DaemonSet runs it: a real kubelet and containerd, real pods of flowsched, real cgroups."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace

import pytest
import yaml
from plane import Plane, Space, running_plane, started_at, wait_for
from real_nodes import END_WITHIN_S, RealNode, node_process, require_parts, running_node
from real_shop import NAMESPACE, Agent, Shop, agent_image, batch_image, manifests, memcached_image
from running import MANIFESTS, Site, running_scheduler
from test_agent_manifests import CONTAINER
from test_live_agent_reports import patch

from flowsched.round.linear.preparation import prepare as prepare_bulk
from flowsched.round.scheduler import prepare
from flowsched_agent.kubernetes.pod_groups import pod_paths
from flowsched_k8s import names
from flowsched_k8s.api.access import Access, Tls, find_access
from flowsched_k8s.api.client import ApiError, Reply
from flowsched_k8s.api.port_forward import NotForwardedError, SilentPortError, get_forwarded

NODE = "real"
LOW, HIGH = 20.0, 500.0
"""Gets per second, of many keys each. By its profile memcached has room beside it at the one, and by far none at the other;
so nothing here depends on how fast the machine is."""
CAPABILITIES = {"KILL": 5, "SYS_NICE": 23}
"""Their numbers in Linux."""


@dataclass
class Real:
    """A control plane, and the one node of it."""

    plane: Plane
    node: RealNode
    folders: Mapping[str, Path]


@pytest.fixture(scope="module")
def real() -> Iterator[Real]:
    parts = require_parts()
    prepare()
    prepare_bulk()
    with running_plane("--parts", "kube-scheduler,kube-controller-manager", "--real-nodes") as plane:
        flowsched, folders = agent_image()
        archives = []
        for image in (flowsched, memcached_image(), batch_image(parts)):
            archives.append(plane.folder / f"image-{len(archives)}.tar")
            image.write(archives[-1])
        with running_node(plane, NODE, archives, {"flowsched.io/pool": "true"}) as node:
            yield Real(plane, node, folders)


@pytest.fixture(scope="module")
def shop(real: Real, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shop]:
    """A service and batch jobs of two other classes of quality, placed by flowsched."""
    folder = tmp_path_factory.mktemp("scheduler")
    with (
        real.plane.space("shop") as space,
        running_scheduler(real.plane, folder, profiles=[{"schedulerName": "flowsched"}]) as scheduler,
    ):
        real.plane.admin.patch(real.node.path, {"metadata": {"labels": scheduler.pool}})
        wait_for(lambda: NODE in scheduler.state()["nodes"], "the scheduler to see the node")
        account = f"/api/v1/namespaces/{space.name}/serviceaccounts/default"
        wait_for(lambda: space.admin.find(account), "the account of the namespace")
        made = Shop(Site(scheduler, space), real.node)
        made.open()
        yield made


@pytest.fixture
def agent(real: Real) -> Iterator[Agent]:
    """What ``kubectl apply -k k8s/manifests/agent`` makes, and ``kubectl delete`` removes."""
    made = Agent(real.node)
    real.plane.admin.apply(manifests(real.folders), NAMESPACE)
    try:
        wait_for(made.ready, "the agent's pod to be ready", within=180.0)
        yield made
    finally:
        made.remove()
    assert not made.faults()


def test_pods_run_where_flowsched_put_them_in_groups_that_kubelet_made(real: Real, shop: Shop) -> None:
    assert {name: shop.pod(name)["status"]["qosClass"] for name in shop.names} == {
        "mc": "Burstable",
        "batch": "BestEffort",
        "solid": "Guaranteed",
    }
    for name in shop.names:
        pod = shop.pod(name)
        assert (pod["spec"]["nodeName"], pod["spec"]["schedulerName"]) == (NODE, "flowsched")
        assert names.CORES in pod["metadata"]["annotations"]
        assert real.node.processes(pod)
        group = real.node.group(pod, "cpu").relative_to(real.node.root / "sys/fs/cgroup/cpu")
        assert f"/{group}" in pod_paths(pod["metadata"]["uid"], pod["status"]["qosClass"])
    used = real.node.cpu_s(shop.pod("batch"))
    wait_for(lambda: real.node.cpu_s(shop.pod("batch")) > used, "the batch job to use its core")


@pytest.mark.parametrize("way", ["certificate", "token", "plug-in"])
def test_what_is_on_loopback_comes_by_a_forwarded_port_and_no_other_way(
    real: Real, agent: Agent, tmp_path: Path, capfd: pytest.CaptureFixture[str], way: str
) -> None:
    """A real kubelet forwards it, with the rights of the example for flowsched explain."""
    kubeconfig = real.plane.kubeconfig
    if way != "certificate":
        _, *rules = next(yaml.safe_load_all((MANIFESTS.parent / "examples" / "explain-role.yaml").read_text()))["rules"]
        kubeconfig = Space(real.plane, NAMESPACE).service_account_kubeconfig([], rules)
    if way == "plug-in":
        kubeconfig = with_plug_in(kubeconfig, tmp_path)
    pod = agent.pod()
    loopback, metrics = 9466, 9464
    access = find_access(kubeconfig)

    def forwarded(port: int) -> Reply | str:
        real.node.move_here()
        asked = get_forwarded(access, NAMESPACE, pod["metadata"]["name"], port, "/metrics", "text/plain", 30.0)
        try:
            return asyncio.run(asked)
        except SilentPortError as error:
            return str(error)
        except NotForwardedError as error:
            assert b"no such host" in error.reply.body, error
            return ""

    with real.node.reachable():
        reply = wait_for(lambda: forwarded(loopback), "the port to be forwarded")
        silent = wait_for(lambda: forwarded(1), "a port on which nothing listens to be told")
    assert isinstance(reply, Reply) and isinstance(silent, str)
    assert "error forwarding port 1 to pod" in silent
    assert "Traceback" not in capfd.readouterr().err
    assert (reply.status, b"flowsched_agent_ticks_total" in reply.body) == (200, True)
    # From the network of the node.
    address = pod["status"]["podIP"]
    for port, answer in ((loopback, "Connection refused"), (metrics, "401")):
        url = f"https://{address}:{port}/metrics"
        asks = f"import ssl, urllib.request as r; r.urlopen({url!r}, context=ssl._create_unverified_context())"
        done = subprocess.run(real.node.inside(sys.executable, "-c", asks), capture_output=True, text=True, timeout=60)
        assert done.returncode == 1 and answer in done.stderr


def test_kubectl_forwards_as_the_runbook_has_it(real: Real, agent: Agent) -> None:
    name = agent.pod()["metadata"]["name"]
    command = [str(real.plane.folder / "bin" / "kubectl"), "-n", NAMESPACE, "port-forward", f"pod/{name}", ":9466"]

    def asked() -> bytes:
        real.node.move_here()
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=real.plane.environment()) as forwarding:
            try:
                assert forwarding.stdout is not None
                # Nothing where kubelet has corrected its address.
                found = re.match(r"Forwarding from (127\.0\.0\.1:\d+) -> 9466", forwarding.stdout.readline())
                if found is None:
                    return b""
                with urllib.request.urlopen(f"http://{found[1]}/metrics", timeout=30) as answer:
                    return bytes(answer.read())
            finally:
                forwarding.kill()

    with real.node.reachable():
        assert b"flowsched_agent_ticks_total" in wait_for(asked, "kubectl to forward the port")


def with_plug_in(kubeconfig: Path, folder: Path) -> Path:
    """The same user, whose token a plug-in gives."""
    config = yaml.safe_load(kubeconfig.read_text())
    version = "client.authentication.k8s.io/v1"
    (named,) = config["users"]
    credential = {"apiVersion": version, "kind": "ExecCredential", "status": {"token": named["user"]["token"]}}
    (folder / "credential.json").write_text(json.dumps(credential))
    command = {"command": "cat", "args": [str(folder / "credential.json")]}
    named["user"] = {"exec": {"apiVersion": version, "interactiveMode": "Never", **command}}
    made = folder / "kubeconfig"
    made.write_text(yaml.safe_dump(config))
    return made


def test_the_agent_steers_real_pods_by_their_load_and_puts_all_back_when_it_is_deleted(
    real: Real, shop: Shop, request: pytest.FixtureRequest
) -> None:
    before = shop.settings()
    agent: Agent = request.getfixturevalue("agent")
    with shop.load(LOW):
        wait_for(lambda: shop.cores("mc") == "0", "the service to have a core that flowsched gave it")
        # Every class of quality has its groups elsewhere.
        wait_for(lambda: all(shop.shares(name) < 10 for name in shop.jobs), "the jobs to have the lowest weight")
        assert all(shop.settings()[name] != before[name] for name in shop.names)
        reported(real, shop, LOW / 2, LOW * 2)
    with shop.load(HIGH):
        paused = wait_for(shop.frozen, "a job to be paused while the load is high")[0]
        reported(real, shop, LOW * 2, HIGH * 2)
        assert real.node.annotations()[names.SERVICE_CORES] == f"{shop.name}/mc=0"
        wait_for(lambda: real.node.annotations()[names.BATCH_TASKS] == "running=1,paused=1", "the node to say so")
        agent.remove()
        assert values(shop.settings()) == values(before)
    used = real.node.cpu_s(shop.pod(paused))
    wait_for(lambda: real.node.cpu_s(shop.pod(paused)) > used, "the paused job to go on")


def reported(real: Real, shop: Shop, least: float, most: float) -> None:
    """Pod and node say a load between these, in gets per second."""

    def told() -> bool:
        load = float(shop.pod("mc")["metadata"]["annotations"].get(names.LOAD, "0"))
        on_node = real.node.annotations().get(names.SERVICE_LOAD, "")
        return least * shop.KEYS < load < most * shop.KEYS and on_node == f"{shop.name}/mc={load:.0f}"

    wait_for(told, f"a load between {least * shop.KEYS:g} and {most * shop.KEYS:g} on the pod and the node")


def test_what_a_killed_agent_left_behind_is_put_back_by_the_next(shop: Shop, request: pytest.FixtureRequest) -> None:
    before = shop.settings()
    agent: Agent = request.getfixturevalue("agent")
    with shop.load(HIGH):
        paused = wait_for(shop.frozen, "a job to be paused while the load is high")
        first = agent.container_id()
        # The watchdog too: no process is left that could put anything back.
        for pid in agent.processes():
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        assert set(paused) <= set(shop.frozen())
    wait_for(lambda: agent.ready() and agent.container_id() != first, "kubelet to start the agent again", within=180.0)
    assert agent.restarts() == 1
    # Had the next one not put back what the first one left, it would take that for what was there before it.
    agent.remove()
    assert values(shop.settings()) == values(before)


def test_a_container_that_starts_in_a_steered_pod_is_as_free_as_the_others_afterwards(
    real: Real, shop: Shop, request: pytest.FixtureRequest
) -> None:
    before = shop.settings()
    agent: Agent = request.getfixturevalue("agent")
    wait_for(lambda: shop.settings()["batch"] != before["batch"], "the job to be steered")
    first = shop.container_id("batch")
    for pid in shop.workers("batch"):
        os.kill(pid, signal.SIGKILL)
    wait_for(lambda: shop.runs("batch") and shop.container_id("batch") != first, "kubelet to start the job again")
    wait_for(lambda: all(shop.settings()[name] != before[name] for name in shop.names), "all to be steered again")
    agent.remove()
    assert values(shop.settings()) == values(before)


def values(settings: Mapping[str, Mapping[str, str]]) -> dict[str, set[tuple[str, str]]]:
    """By pod, without the numbers of threads and the ids of containers: kubelet, the container runtime and the program
    of a pod start and end threads and processes as they like, and one may be seen on one of two sides only."""
    return {name: {(unnumbered(key), value) for key, value in found.items()} for name, found in settings.items()}


def unnumbered(key: str) -> str:
    owner, _, name = key.rpartition("/")
    if not owner:
        return key.split()[0]
    return f"{owner if owner == '.' else 'container'}/{name}"


def test_kubelet_resizes_a_pod_that_is_steered(real: Real, shop: Shop, request: pytest.FixtureRequest) -> None:
    """The kernel refuses shares of a group that the agent has made idle, and quotas change behind its back."""
    before = shop.settings()
    agent: Agent = request.getfixturevalue("agent")
    wait_for(lambda: shop.idle("solid"), "the job to be steered")
    shop.resize("solid", "300m")
    wait_for(lambda: shop.idle("solid"), "the job to be steered again")
    agent.remove()
    group = real.node.group(shop.pod("solid"), "cpu")
    assert (shop.shares("solid"), (group / "cpu.cfs_quota_us").read_text().strip()) == (307, "30000")
    shop.resize("solid", "200m")
    assert values(shop.settings()) == values(before)


def test_kubelet_gives_the_agent_what_the_manifest_asks_for_and_no_more(real: Real, shop: Shop, agent: Agent) -> None:
    pid = agent.main_process()
    status = dict(
        line.split(":\t", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines() if ":\t" in line
    )
    wanted = sum(1 << CAPABILITIES[name] for name in CONTAINER["securityContext"]["capabilities"]["add"])
    for kind in ("CapEff", "CapPrm", "CapBnd"):
        assert int(status[kind], 16) == wanted
    assert (status["Uid"].split()[0], status["NoNewPrivs"], status["Seccomp"]) == ("0", "1", "2")
    # It sees the processes of the node, and so the numbers in the files of groups are those that it knows.
    assert Path(f"/proc/{pid}/ns/pid").readlink() == Path(f"/proc/{real.node.pid}/ns/pid").readlink()
    root = [line.split() for line in Path(f"/proc/{pid}/mountinfo").read_text().splitlines() if line.split()[4] == "/"]
    assert "ro" in root[-1][5].split(",")
    limit, used = (int((real.node.group(agent.pod(), "memory") / f"memory.{name}").read_text()) for name in (
        "limit_in_bytes", "max_usage_in_bytes"))  # fmt: skip
    assert used < 0.8 * limit, f"the agent used {used >> 20} MiB of {limit >> 20}"


def test_the_token_that_kubelet_mounts_speaks_for_this_node_alone(real: Real, agent: Agent) -> None:
    folder = Path(f"/proc/{agent.main_process()}/root/var/run/secrets/kubernetes.io/serviceaccount")
    token = (folder / "token").read_text()
    admin = real.plane.admin
    tls = Tls((folder / "ca.crt").read_bytes(), verified=True)
    configuration = SimpleNamespace(
        auth_settings=lambda: {"BearerToken": {"value": f"Bearer {token}"}}, cert_file=None, key_file=None
    )
    access = Access(f"https://{admin.host}:{admin.port}", tls, None, None, "default", configuration)
    with real.plane.space("elsewhere") as space:
        (other,) = space.make_nodes(1, kwok=False)

        def refusal(node: str) -> str:
            try:
                annotations = {names.BATCH_TASKS: "test"}
                patch(access, f"/api/v1/nodes/{node}/status", {"metadata": {"annotations": annotations}})
            except ApiError as error:
                return str(error)
            return ""

        # The policy is read by the API server some time after it was written.
        wait_for(lambda: "its own node" in refusal(other), "the policy")
        assert refusal(NODE) == ""


def test_a_node_that_is_killed_leaves_nothing_that_the_next_does_not_remove(real: Real) -> None:
    interfaces, mounts = socket.if_nameindex(), Path("/proc/self/mounts").read_text()
    process, node = node_process(real.plane, "short-lived", (), {})
    group = next(Path("/sys/fs/cgroup/freezer").rglob(f"flowsched-node-{process.pid}-*"))
    # What is frozen cannot even be killed.
    (group / "freezer.state").write_text("FROZEN")
    process.kill()
    process.communicate(timeout=END_WITHIN_S)
    assert group.exists() and started_at(node.pid)
    with running_node(real.plane, "next", (), {}):
        assert not list(Path("/sys/fs/cgroup").rglob(f"flowsched-node-{process.pid}-*"))
        assert started_at(node.pid) is None
    assert (socket.if_nameindex(), Path("/proc/self/mounts").read_text()) == (interfaces, mounts)
    for name in ("short-lived", "next"):
        real.plane.admin.delete(f"/api/v1/nodes/{name}")
