"""Process 1 of a test node: its mounts, its network, its runtime and its kubelet. Started by real_node.py alone.

Everything here is in namespaces that end with this process: mounts, interfaces and processes cannot outlive it.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from control_plane import SERVICE_ADDRESS

BRIDGE, GATEWAY, PODS = "cni0", "10.244.0.1", "10.244.0.0/24"
RUNTIME = "/run/containerd/containerd.sock"
TUNABLES = {
    "vm/overcommit_memory": "1",
    "vm/panic_on_oom": "0",
    "kernel/panic": "10",
    "kernel/panic_on_oops": "1",
    "kernel/keys/root_maxkeys": "1000000",
    "kernel/keys/root_maxbytes": "25000000",
}
"""What a kubelet sets for the whole machine. Here it writes to files that lie over them."""
UP_WITHIN_S = 120.0


def run(*words: str | Path) -> None:
    """One command that must succeed."""
    subprocess.run([str(word) for word in words], check=True)


def mount_all(data: Path) -> None:
    """The cgroups of this node as if they were the machine's; folders that kubelet and containerd fill, in memory."""
    run("mount", "--make-rprivate", "/")
    run("mount", "-t", "sysfs", "sysfs", "/sys")
    run("mount", "-t", "tmpfs", "-o", "mode=755", "tmpfs", "/sys/fs/cgroup")
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        number, controllers, _ = line.split(":", 2)
        place = Path("/sys/fs/cgroup") / (controllers.removeprefix("name=") or "unified")
        place.mkdir()
        kind = ("cgroup2",) if number == "0" else ("cgroup", "-o", controllers)
        run("mount", "-t", *kind, "cgroup", place)
    for place in (Path("/run"), Path("/var/log"), data):
        run("mount", "-t", "tmpfs", "-o", "mode=755", "tmpfs", place)
    for name, value in TUNABLES.items():
        file = Path("/run/tunables") / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"{value}\n")
        run("mount", "--bind", file, Path("/proc/sys") / name)


def connect_all(data: Path) -> None:
    """A bridge for pods, and the address of the API server: what kube-proxy would do with rules is a process here."""
    run("ip", "link", "set", "lo", "up")
    run("ip", "address", "add", f"{SERVICE_ADDRESS}/32", "dev", "lo")
    run("ip", "link", "add", BRIDGE, "type", "bridge")
    run("ip", "address", "add", f"{GATEWAY}/24", "dev", BRIDGE)
    run("ip", "link", "set", BRIDGE, "up")
    addresses = {"type": "host-local", "dataDir": "/run/cni", "ranges": [[{"subnet": PODS}]]}
    bridge = {
        "type": "bridge",
        "bridge": BRIDGE,
        "isGateway": True,
        "ipam": {**addresses, "routes": [{"dst": "0.0.0.0/0"}]},
    }
    (data / "cni").mkdir()
    write(data / "cni" / "10-pods.conflist", {"cniVersion": "1.0.0", "name": "pods", "plugins": [bridge]})


def write(path: Path, content: Any) -> Path:
    """JSON, which is YAML."""
    path.write_text(json.dumps(content))
    return path


def containerd_settings(data: Path, programs: str, sandbox: str) -> str:
    """Everything below our own folder; cgroups without systemd; no right needed to spare processes from the OOM killer."""
    runtime = "plugins.'io.containerd.cri.v1.runtime'"
    return f"""
version = 3
root = "{data}/containerd"
state = "/run/containerd"
imports = []
disabled_plugins = ["io.containerd.nri.v1.nri"]
[grpc]
address = "{RUNTIME}"
[plugins.'io.containerd.internal.v1.opt']
path = "{data}/opt"
[plugins.'io.containerd.cri.v1.images'.pinned_images]
sandbox = "{sandbox}"
[{runtime}]
restrict_oom_score_adj = true
[{runtime}.cni]
bin_dirs = ["{programs}"]
conf_dir = "{data}/cni"
use_internal_loopback = true
[{runtime}.containerd.runtimes.runc]
runtime_type = "io.containerd.runc.v2"
[{runtime}.containerd.runtimes.runc.options]
SystemdCgroup = false
"""


def kubelet_settings(data: Path, authority: str) -> dict[str, Any]:
    """As usual, but for what a test has not: cgroups v2, systemd, iptables, a disk that could fill up."""
    return {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "containerRuntimeEndpoint": f"unix://{RUNTIME}",
        "cgroupDriver": "cgroupfs",
        "failCgroupV1": False,
        "failSwapOn": False,
        "authentication": {"anonymous": {"enabled": False}, "x509": {"clientCAFile": authority}},
        "evictionHard": {
            "memory.available": "0%",
            **{f"{place}.{what}": "0%" for place in ("nodefs", "imagefs") for what in ("available", "inodesFree")},
        },
        "imageGCHighThresholdPercent": 100,
        "makeIPTablesUtilChains": False,
        "resolvConf": "",
        "podLogsDir": str(data / "pods"),
        "volumePluginDir": str(data / "volume-plugins"),
    }


class Node:
    """What runs here."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.data = folder / "data"
        self.plan: dict[str, Any] = json.loads((folder / "plan.json").read_text())
        self.programs: str = self.plan["programs"]
        self.parts: dict[str, subprocess.Popen[bytes]] = {}

    def start(self) -> None:
        """containerd, then the images, then kubelet. Raises ``RuntimeError``."""
        settings = self.data / "containerd.toml"
        settings.write_text(containerd_settings(self.data, self.programs, self.plan["sandbox"]))
        self._launch("containerd", "--config", settings)
        until = time.monotonic() + UP_WITHIN_S
        while self._ctr("version"):
            if self.parts["containerd"].poll() is not None or time.monotonic() > until:
                raise RuntimeError("containerd does not come up")
            time.sleep(0.05)
        for image in self.plan["images"]:
            if self._ctr("--namespace", "k8s.io", "images", "import", "--local", image):
                raise RuntimeError(f"containerd does not take the image {image}")
        authority = self.plan["authority"]
        self._launch(
            "kubelet",
            *("--config", write(self.data / "kubelet.json", kubelet_settings(self.data, authority))),
            *("--kubeconfig", self.plan["kubeconfig"]),
            *("--hostname-override", self.plan["name"], "--node-ip", GATEWAY),
            *("--node-labels", ",".join(f"{key}={value}" for key, value in self.plan["labels"].items())),
            *("--root-dir", self.data / "kubelet", "--cert-dir", self.data / "kubelet-keys"),
        )

    def look_after(self) -> str:
        """Reap processes that end, as process 1 must; why it is over, once it is."""
        ours = {process.pid: name for name, process in self.parts.items()}
        while True:
            readable, _, _ = select.select([sys.stdin], [], [], 0.1)
            if readable and not sys.stdin.readline():
                return "asked to end"
            with contextlib.suppress(ChildProcessError):
                while (dead := os.waitpid(-1, os.WNOHANG))[0]:
                    if dead[0] in ours:
                        return f"{ours[dead[0]]} ended with {os.waitstatus_to_exitcode(dead[1])}"

    def _launch(self, name: str, *words: str | Path) -> None:
        environment = {**os.environ, "PATH": f"{self.programs}:{os.environ['PATH']}"}
        with (self.folder / "logs" / f"{name}.log").open("ab") as log:
            self.parts[name] = subprocess.Popen(
                [f"{self.programs}/{name}", *map(str, words)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=environment,
            )

    def _ctr(self, *words: str) -> int:
        with (self.folder / "logs" / "ctr.log").open("ab") as log:
            command = [f"{self.programs}/ctr", "--address", RUNTIME, *words]
            return subprocess.run(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, check=False).returncode


def main() -> int:
    """Say ``network``, wait for a line, say ``started``; then until the input ends or a part does."""
    node = Node(Path(sys.argv[1]))
    try:
        mount_all(node.data)
        connect_all(node.data)
        print("network", flush=True)
        if sys.stdin.readline():
            node.start()
            print("started", flush=True)
            print(node.look_after(), flush=True)
    except (RuntimeError, OSError, subprocess.CalledProcessError) as error:
        print(error, flush=True)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
