#!/usr/bin/env python3
"""Run a real kubelet and a real container runtime beside a control plane that was started with --real-nodes.

    real_node.py PLANE DIR --name NAME [--label KEY=VALUE ...] [--image ARCHIVE ...]

It runs until its input ends or it gets SIGTERM or SIGINT, and then leaves nothing behind but the folder DIR with its logs:
the node has a network, mounts, processes and cgroups of its own, in which it believes that it has the whole machine.
Prints one line of JSON once kubelet has been started: the process whose namespaces are those of the node, its name, and
where its logs are. Killing it with SIGKILL leaves empty cgroups; the next one removes them.

Needs root, Linux with cgroups v1 (also beside v2), runc, openssl, iproute2 and util-linux, and what node_parts.py builds.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import urllib.parse
from collections.abc import Iterator
from pathlib import Path
from types import FrameType

from node_groups import Groups, clear_dead
from node_network import forward, listening_inside
from node_parts import build
from oci_image import Image

from control_plane import SERVICE_ADDRESS, Plane, PlaneError, write_kubeconfig

HERE = Path(__file__).resolve().parent
SANDBOX = "flowsched.test/pause:1"
TOOLS = {"runc": "runc", "openssl": "openssl", "ip": "iproute2", "unshare": "util-linux", "mount": "mount"}
"""Programs, and Debian's packages that have them."""
NAMESPACES = ("--mount", "--net", "--pid", "--ipc", "--uts", "--cgroup")
_DIES_WITH_PARENT = 1


def missing() -> str:
    """What this machine lacks, in a sentence; empty if nothing."""
    if os.geteuid() != 0:
        return "a node with a real kubelet needs root"
    for tool, package in TOOLS.items():
        if shutil.which(tool) is None:
            return f"a node with a real kubelet needs {tool} (on Debian: apt-get install {package})"
    return ""


class RealNode:
    """One node, run by this process."""

    def __init__(self, plane: Plane, folder: Path, name: str, labels: dict[str, str], images: list[Path]) -> None:
        self.plane = plane
        self.folder = folder
        self.name = name
        self._labels = labels
        self._images = images
        self._programs = build()

    def prepare(self) -> None:
        """Files that the inside reads: an identity, images, a plan."""
        for sub in ("data", "logs"):
            (self.folder / sub).mkdir(parents=True, exist_ok=True)
        user = f"/O=system:nodes/CN=system:node:{self.name}"
        key, certificate = self.plane.certificate(f"node-{self.name}", user, "extendedKeyUsage=clientAuth\n")
        identity = {"client-certificate": str(certificate), "client-key": str(key)}
        authority = self.plane.pki / "ca.crt"
        kubeconfig = self.folder / "kubelet.kubeconfig"
        write_kubeconfig(kubeconfig, self.plane.state["server"], authority, self.name, identity)
        pause = self.folder / "pause.tar"
        Image(SANDBOX, {"/pod": self._programs / "pod"}, ["/pod", "pause"]).write(pause)
        plan = {
            "name": self.name,
            "labels": self._labels,
            "programs": str(self._programs),
            "images": [str(path) for path in (pause, *self._images)],
            "sandbox": SANDBOX,
            "authority": str(authority),
            "kubeconfig": str(kubeconfig),
        }
        (self.folder / "plan.json").write_text(json.dumps(plan))

    @contextlib.contextmanager
    def running(self) -> Iterator[subprocess.Popen[str]]:
        """The process that holds the namespaces; all of it is gone afterwards."""
        clear_dead()
        groups = Groups()
        process: subprocess.Popen[str] | None = None
        try:
            groups.make()
            process = self._unshared(groups)
            yield process
        finally:
            if process is not None:
                process.kill()
            groups.end()
            if process is not None:
                process.wait()

    def connect(self, process: subprocess.Popen[str]) -> int:
        """Make the API server reachable from inside and let kubelet start; returns process 1 of the node."""
        assert process.stdin is not None
        self._heard(process, "network")
        inside = _child_of(process.pid)
        target = urllib.parse.urlsplit(self.plane.state["server"])
        assert target.hostname is not None and target.port is not None
        # The same address as outside for kubelet, that of a service for pods.
        listening = listening_inside(inside, [(target.hostname, target.port), (SERVICE_ADDRESS, 443)])
        forward(listening, (target.hostname, target.port))
        process.stdin.write("go\n")
        process.stdin.flush()
        self._heard(process, "started")
        return inside

    def _unshared(self, groups: Groups) -> subprocess.Popen[str]:
        library = ctypes.CDLL(None)

        def enter() -> None:
            library.prctl(_DIES_WITH_PARENT, signal.SIGKILL)
            groups.enter()

        inside = [sys.executable, str(HERE / "node_inside.py"), str(self.folder)]
        return subprocess.Popen(
            ["unshare", *NAMESPACES, "--fork", "--kill-child", "--mount-proc", *inside],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            preexec_fn=enter,
            start_new_session=True,
        )

    def _heard(self, process: subprocess.Popen[str], word: str) -> None:
        assert process.stdout is not None
        said = process.stdout.readline().strip()
        if said != word:
            raise PlaneError(f"the node did not come up: {said or 'it ended'}; its logs are in {self.folder / 'logs'}")


def _child_of(pid: int) -> int:
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            with contextlib.suppress(OSError):
                if int((folder / "stat").read_text().rsplit(")", 1)[1].split()[1]) == pid:
                    return int(folder.name)
    raise PlaneError("the node did not come up: it has no process")


def _run(node: RealNode) -> str:
    """Until it is over; why that is, where it was not asked for."""
    node.prepare()
    over: list[str] = []
    done = threading.Event()
    with node.running() as process:
        inside = node.connect(process)
        print(json.dumps({"pid": inside, "name": node.name, "logs": str(node.folder / "logs")}), flush=True)

        def hear() -> None:
            assert process.stdout is not None
            over.append(process.stdout.readline().strip() or "it ended")
            done.set()

        def obey() -> None:
            while sys.stdin.readline():
                pass
            done.set()

        for work in (hear, obey):
            threading.Thread(target=work, daemon=True).start()
        while not done.wait(0.2):
            pass  # Signals are seen between two waits.
        return over[0] if over else ""


def main() -> int:
    """Do what the command line says; 1 and one message if that fails."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("plane", type=Path)
    parser.add_argument("dir", type=Path)
    parser.add_argument("--name", default="real")
    parser.add_argument("--label", action="append", default=[], metavar="KEY=VALUE")
    parser.add_argument("--image", action="append", default=[], type=Path, metavar="ARCHIVE")
    args = parser.parse_args()

    def end(number: int, _: FrameType | None) -> None:
        raise SystemExit(128 + number)

    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, end)
    try:
        if lacking := missing():
            raise PlaneError(lacking)
        plane = Plane(args.plane)
        if "server" not in plane.state:
            raise PlaneError(f"no control plane was started in {args.plane}")
        if wrong := [label for label in args.label if "=" not in label]:
            raise PlaneError(f"the label {wrong[0]!r} has no '='; write KEY=VALUE")
        labels = dict(label.split("=", 1) for label in args.label)
        node = RealNode(plane, args.dir.resolve(), args.name, labels, args.image)
        if ended := _run(node):
            raise PlaneError(f"the node is over: {ended}; its logs are in {node.folder / 'logs'}")
    except (PlaneError, OSError) as error:
        print(f"real_node.py: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
