"""A node with a real kubelet and containerd for tests, and what of its insides tests look at."""

from __future__ import annotations

import contextlib
import json
import os
import re
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from plane import SCRIPT, Object, Plane, wait_for

from requirements_on_machine import give_up, needs

FOLDER = SCRIPT.parent
sys.path.append(str(FOLDER))  # scripts of their own, and no part of what is installed

from oci_image import Image  # noqa: E402

__all__ = ["Image", "RealNode", "node_process", "require_parts", "running_node"]

STEERED = ("cpu.shares", "cpu.cfs_quota_us", "cpu.cfs_period_us", "cpuset.cpus", "cpuset.mems", "freezer.state")
"""Files of a group that an agent may write to, in cgroups v1."""
END_WITHIN_S = 60.0
KUBELET_PORT = 10250
FORWARDS = f"""
import asyncio, socket, sys
sys.path.append(sys.argv[1])
from node_network import serve
asyncio.run(serve([socket.socket(fileno=int(sys.argv[2]))], ("127.0.0.1", {KUBELET_PORT})))
"""
"""Passes connections to a socket of this machine on to the node's network, in which it runs."""


def require_parts() -> Path:
    """The programs of a node. Skips the tests (or fails them, in CI) where such a node cannot run."""
    if os.geteuid() != 0:
        give_up("a real kubelet needs root")
    for tool in ("runc", "openssl", "ip", "unshare", "nsenter"):
        needs(tool, "to run a node with a real kubelet")
    if not Path("/sys/fs/cgroup/cpuset/tasks").exists():
        give_up("the node of these tests needs cgroups v1 (alone, or beside v2), and this machine has v2 alone")
    script = [sys.executable, str(FOLDER / "node_parts.py")]
    found = Path(subprocess.run([*script, "path"], check=True, capture_output=True, text=True).stdout.strip())
    if not found.exists():
        needs("go", "to build kubelet and containerd")
        done = subprocess.run([*script, "build"], capture_output=True, text=True, check=False)
        if done.returncode:
            give_up(
                f"kubelet and containerd cannot be built: {(done.stderr.strip() or 'no reason given').splitlines()[-1]}"
            )
    return found


class RealNode:
    """One that runs."""

    def __init__(self, plane: Plane, name: str, pid: int, logs: Path) -> None:
        self.admin = plane.admin
        self.name = name
        self.pid = pid
        self.logs = logs
        self.root = Path(f"/proc/{pid}/root")
        """What programs on the node see as /."""
        self.kubelet = f"127.1.{pid >> 8 & 255}.{pid & 255}"
        """Where :meth:`reachable` listens; another address for each node, since the port of kubelet is always the same."""

    @property
    def path(self) -> str:
        return f"/api/v1/nodes/{self.name}"

    def annotations(self) -> Mapping[str, str]:
        return self.admin.get(self.path)["metadata"].get("annotations") or {}

    def ready(self) -> bool:
        found = self.admin.find(self.path)
        conditions = found["status"].get("conditions", []) if found else []
        return any(c["type"] == "Ready" and c["status"] == "True" for c in conditions)

    def inside(self, *words: str) -> list[str]:
        """A command line that runs in the network of the node."""
        return ["nsenter", f"--net=/proc/{self.pid}/ns/net", *words]

    @contextlib.contextmanager
    def reachable(self) -> Iterator[None]:
        """The API server reaches kubelet, which listens in the network of the node, at an address of this machine.

        kubelet corrects the address within ten seconds: asking may have to be repeated.
        """
        with socket.create_server((self.kubelet, KUBELET_PORT)) as outside:
            command = self.inside(sys.executable, "-c", FORWARDS, str(FOLDER), str(outside.fileno()))
            process = subprocess.Popen(command, pass_fds=[outside.fileno()])
            try:
                yield
            finally:
                process.kill()
                process.wait()

    def move_here(self) -> None:
        """The address of kubelet is that of :meth:`reachable` for the next seconds."""
        addresses = [{"type": "InternalIP", "address": self.kubelet}]
        self.admin.patch(f"{self.path}/status", {"status": {"addresses": addresses}})

    def group(self, pod: Object, tree: str) -> Path:
        """The folder of a pod's group in one tree, where kubelet made it."""
        (found,) = (self.root / "sys/fs/cgroup" / tree).glob(f"kubepods/**/pod{pod['metadata']['uid']}")
        return found

    def settings(self, pod: Object) -> dict[str, str]:
        """All in the groups of a pod and its containers that an agent may change, and how its threads are scheduled."""
        found: dict[str, str] = {}
        for tree in ("cpu", "cpuset", "freezer"):
            top = self.group(pod, tree)
            for folder in (top, *sorted(path for path in top.iterdir() if path.is_dir())):
                for name in STEERED:
                    if (folder / name).exists():
                        found[f"{folder.relative_to(top)}/{name}"] = (folder / name).read_text().strip()
        for pid in self.processes(pod):
            with contextlib.suppress(OSError):
                for task in Path(f"/proc/{pid}/task").iterdir():
                    with contextlib.suppress(OSError):
                        number = int(task.name)
                        settings = (os.sched_getscheduler(number), sorted(os.sched_getaffinity(number)))
                        found[f"thread {number}"] = f"{settings} {os.getpriority(os.PRIO_PROCESS, number)}"
        return found

    def processes(self, pod: Object) -> list[int]:
        """All of a pod's, by the numbers that they have outside."""
        mark = f"/pod{pod['metadata']['uid']}/"
        found = []
        for folder in Path("/proc").iterdir():
            if folder.name.isdigit():
                with contextlib.suppress(OSError):
                    if mark in (folder / "cgroup").read_text():
                        found.append(int(folder.name))
        return sorted(found)

    def cpu_s(self, pod: Object) -> float:
        """CPU time that a pod has used."""
        return int((self.group(pod, "cpuacct") / "cpuacct.usage").read_text()) / 1e9

    def log_of(self, pod: Object, container: str = "*") -> str:
        """What its containers have said, those that were restarted first."""
        name = f"{pod['metadata']['namespace']}_{pod['metadata']['name']}_{pod['metadata']['uid']}"
        files = sorted(
            (self.root / str(self.logs.parent / "data" / "pods").lstrip("/") / name).glob(f"{container}/*.log")
        )
        return "".join(re.sub(r"^\S+ (stdout|stderr) F ", "", file.read_text(), flags=re.MULTILINE) for file in files)


def node_process(
    plane: Plane, name: str, images: Sequence[Path], labels: Mapping[str, str]
) -> tuple[subprocess.Popen[bytes], RealNode]:
    """A node that is ready, and the process that ends it when its input is closed."""
    folder = plane.folder / "nodes" / name
    command = [sys.executable, str(FOLDER / "real_node.py"), str(plane.folder), str(folder), "--name", name]
    command += [word for image in images for word in ("--image", str(image))]
    command += [word for key, value in labels.items() for word in ("--label", f"{key}={value}")]
    errors = plane.folder / f"node-{name}.log"
    with errors.open("wb") as log:
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log)
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line, f"the node did not start: {errors.read_text()}\n{ends_of(folder / 'logs')}"
        said: dict[str, Any] = json.loads(line)
        node = RealNode(plane, name, said["pid"], Path(said["logs"]))
        wait_for(node.ready, f"the node to be ready; its logs are in {node.logs}", within=120.0)
    except BaseException:
        process.communicate(timeout=END_WITHIN_S)
        raise
    return process, node


@contextlib.contextmanager
def running_node(plane: Plane, name: str, images: Sequence[Path], labels: Mapping[str, str]) -> Iterator[RealNode]:
    """A node that is ready; afterwards neither processes nor cgroups, mounts or interfaces of it are left."""
    process, node = node_process(plane, name, images, labels)
    try:
        yield node
        assert process.poll() is None, f"the node ended by itself\n{ends_of(node.logs)}"
    finally:
        process.communicate(timeout=END_WITHIN_S)
    assert process.returncode == 0, (plane.folder / f"node-{name}.log").read_text()
    assert not list(Path("/sys/fs/cgroup").rglob(f"flowsched-node-{process.pid}-*"))


def ends_of(logs: Path) -> str:
    """The last lines of every log."""
    return "\n".join(f"{path.name}: {path.read_text(errors='replace')[-1500:]}" for path in sorted(logs.glob("*.log")))
