"""What runs on a node with a real kubelet: a shop of three pods, the agent as its manifests make it, and their images."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import yaml
from plane import Object, wait_for
from real_nodes import Image, RealNode
from running import Site
from test_image_steps import ENVIRONMENT
from test_manifests import HOUSE, MANIFESTS, VERSION, kustomized

from flowsched_k8s import names
from requirements_on_machine import needs

NAMESPACE = "flowsched-agent"
DAEMON_SET = f"/apis/apps/v1/namespaces/{NAMESPACE}/daemonsets/flowsched-agent"
MEMCACHED, BATCH = "flowsched.test/memcached:1", "flowsched.test/batch:1"
END_S = 90.0


# Images


def memcached_image() -> Image:
    """This machine's memcached with the libraries that it needs, and nothing else."""
    program = Path(needs("memcached", "to run in a pod")).resolve()
    listed = subprocess.run(["ldd", str(program)], check=True, capture_output=True, text=True).stdout
    libraries = {word: Path(word) for word in listed.split() if word.startswith("/")}
    users = b"root:x:0:0::/:/bin/sh\nnobody:x:65534:65534::/:/bin/sh\n"
    files: dict[str, Path | bytes] = {"/memcached": program, "/etc/passwd": users, **libraries}
    return Image(MEMCACHED, files, ["/memcached", "-u", "nobody", "-l", "0.0.0.0"])


def batch_image(parts: Path) -> Image:
    """A program that takes a tenth of a core: enough to be seen, and little beside other tests."""
    return Image(BATCH, {"/pod": parts / "pod"}, ["/pod", "spin"])


def agent_image() -> tuple[Image, dict[str, Path]]:
    """An image without files, and the folders of this machine that are mounted over it: by path inside."""
    folders = {str(path): path for path in (Path("/usr"), HOUSE, Path(sys.prefix), Path(sys.base_prefix))}
    cache = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "flowsched"
    folders[f"{ENVIRONMENT['XDG_CACHE_HOME']}/flowsched"] = cache
    links = {f"/{name}": f"usr/{name}" for name in ("bin", "lib", "lib64") if Path("/", name).is_symlink()}
    # What was compiled here is for this processor.
    environment = {key: value for key, value in ENVIRONMENT.items() if key != "NUMBA_CPU_NAME"}
    environment["PATH"] = f"{sys.prefix}/bin:/usr/bin"
    return Image(f"docker.io/library/flowsched:{VERSION}", {}, ["flowsched"], ["run"], environment, links), folders


def manifests(folders: Mapping[str, Path]) -> Iterator[Object]:
    """Those of the agent; its pod mounts what an image of the Dockerfile would hold. Nothing else is changed."""
    for made in kustomized(MANIFESTS / "agent"):
        if made["kind"] == "DaemonSet":
            made = yaml.safe_load(yaml.safe_dump(made))
            pod = made["spec"]["template"]["spec"]
            for number, (inside, folder) in enumerate(folders.items()):
                pod["volumes"].append({"name": f"image-{number}", "hostPath": {"path": str(folder)}})
                mount = {"name": f"image-{number}", "mountPath": inside, "readOnly": True}
                pod["containers"][0]["volumeMounts"].append(mount)
        yield made


# Pods


class Agent:
    """The pod of the DaemonSet on the one node."""

    def __init__(self, node: RealNode) -> None:
        self.node = node
        self._admin = node.admin
        self._said = ""

    def pod(self) -> Object:
        (found,) = self._pods()
        return found

    def ready(self) -> bool:
        return any(status.get("ready") for status in self._statuses())

    def container_id(self) -> str:
        return "".join(str(status.get("containerID", "")) for status in self._statuses())

    def restarts(self) -> int:
        return sum(int(status["restartCount"]) for status in self._statuses())

    def processes(self) -> list[int]:
        """Of its container, the watchdog among them, by the numbers that they have outside; the main one first."""
        return [pid for pid in self.node.processes(self.pod()) if b"flowsched" in _arguments(pid)]

    def main_process(self) -> int:
        return self.processes()[0]

    def faults(self) -> list[str]:
        """What its pods have said, up to when they were asked to end, that must not be said."""
        wrong = ("could not be", "a tick failed", "not written", "not known freshly", "Traceback")
        return [line for line in self._said.splitlines() if any(text in line for text in wrong)]

    def remove(self) -> None:
        """As ``kubectl delete`` does: nothing of it runs when this returns."""
        self._said += "".join(self.node.log_of(pod) for pod in self._pods())
        if self._admin.find(DAEMON_SET):
            self._admin.delete(DAEMON_SET, grace=None)
        wait_for(lambda: not self._pods(), "the agent's pod to go", within=END_S)

    def _pods(self) -> list[Object]:
        return self._admin.items(f"/api/v1/namespaces/{NAMESPACE}/pods")

    def _statuses(self) -> list[Object]:
        return [status for pod in self._pods() for status in pod["status"].get("containerStatuses") or ()]


class Shop:
    """A service, and beside it two batch jobs, each in another class of quality."""

    KEYS = 200
    """Of one get: memcached counts each, so a load that is high for the agent is low for this machine."""
    jobs = ("batch", "solid")
    names = ("mc", *jobs)

    def __init__(self, site: Site, node: RealNode) -> None:
        self.site = site
        self.node = node
        self.name = site.name

    def open(self) -> None:
        """All run where flowsched placed them when this returns."""
        service = {names.PROFILE: "memcached", names.SLO: "p95=1ms@2Kqps"}
        small = {"cpu": "200m", "memory": "64Mi"}
        port = [{"containerPort": 11211, "protocol": "TCP"}]
        self._make("mc", MEMCACHED, service, args=["-t", "1"], ports=port, resources={"requests": small})
        self._make("batch", BATCH, {names.PROFILE: "canneal"})
        self._make("solid", BATCH, {names.PROFILE: "radix"}, resources={"requests": small, "limits": small})
        for name in self.names:
            assert self.site.bound(name) == self.node.name
            wait_for(partial(self.runs, name), f"{name} to run", within=END_S)

    def pod(self, name: str) -> Object:
        return self.site.space.pod(name)

    def runs(self, name: str) -> bool:
        statuses = self.pod(name)["status"].get("containerStatuses") or ()
        return bool(statuses) and all("running" in status["state"] for status in statuses)

    def container_id(self, name: str) -> str:
        return str(self.pod(name)["status"]["containerStatuses"][0].get("containerID", ""))

    def workers(self, name: str) -> list[int]:
        """The processes of a job but for the one that holds its pod together."""
        return [pid for pid in self.node.processes(self.pod(name)) if b"spin" in _arguments(pid)]

    def settings(self) -> dict[str, dict[str, str]]:
        """All that an agent may change, by pod."""
        return {name: self.node.settings(self.pod(name)) for name in self.names}

    def cores(self, name: str) -> str:
        return (self.node.group(self.pod(name), "cpuset") / "cpuset.cpus").read_text().strip()

    def shares(self, name: str) -> int:
        return int((self.node.group(self.pod(name), "cpu") / "cpu.shares").read_text())

    def idle(self, name: str) -> bool:
        return (self.node.group(self.pod(name), "cpu") / "cpu.idle").read_text().strip() == "1"

    def resize(self, name: str, cpu: str) -> None:
        """Ask for other CPU and wait until kubelet says that the pod has it."""
        amounts = {"cpu": cpu, "memory": "64Mi"}
        wish = {"name": "main", "resources": {"requests": amounts, "limits": amounts}}
        path = f"{self.site.space.pods_path}/{name}/resize"
        self.site.admin.patch(path, {"spec": {"containers": [wish]}}, "strategic-merge-patch")

        def done() -> bool:
            (container,) = self.pod(name)["status"]["containerStatuses"]
            return bool(container["resources"]["limits"]["cpu"] == cpu)

        wait_for(done, f"kubelet to give {name} {cpu} of CPU", within=120.0)

    def frozen(self) -> list[str]:
        """The jobs that stand still."""
        states = {job: self.node.group(self.pod(job), "freezer") / "freezer.state" for job in self.jobs}
        return [job for job, file in states.items() if file.read_text().strip() == "FROZEN"]

    @contextlib.contextmanager
    def load(self, rate: float) -> Iterator[None]:
        """Gets per second from the network of the node, until it is left."""
        address = self.pod("mc")["status"]["podIP"]
        asked = ["--host", address, "--rate", f"{rate:g}", "--seconds", "900", "--keys-per-get", str(self.KEYS)]
        command = self.node.inside(sys.executable, "-m", "benchmarks.load", *asked)
        process = subprocess.Popen(command, cwd=HOUSE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        try:
            yield
            assert process.poll() is None, "the load ended before the test did"
        finally:
            process.send_signal(signal.SIGINT)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.communicate(timeout=10.0)
            process.kill()
            process.communicate()

    def _make(self, name: str, image: str, notes: Mapping[str, str], **container: Any) -> None:
        made = {"name": "main", "image": image, "imagePullPolicy": "Never", **container}
        self.site.pod(name, scheduler="flowsched", annotations=notes, containers=[made], dnsPolicy="Default")


def _arguments(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""
