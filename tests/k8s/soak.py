"""Two replicas of the scheduler under churn that never pauses, and one disturbance after the other.

    make soak MINUTES=10

All the time no node may hold more than it offers, and after each disturbance a new pod must be bound. Exit code 1 if not.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import http.client
import json
import os
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from plane import Fault, Object, Plane, RefusedError, Space, Wire, running_plane, wait_for
from running import STANDARD, Running, rules_of, switched_on
from test_live_failover import decode

from flowsched_k8s import names
from flowsched_k8s.pod_groups import MINIMUM_LABEL, NAME_LABEL
from flowsched_k8s.requests import pod_requests

NODES, CPU = 24, 4
POPULATION = 100
"""Pods that there are at a time, about; they ask for some 90 % of the CPU."""
RECOVERED_WITHIN_S = 60.0
MOST_MIB = 700.0
"""Resident memory of a replica; with its compiled code it begins at 300."""
DISK_BYTES = 1 << 20
FAKETIME = "/usr/lib/x86_64-linux-gnu/faketime/libfaketimeMT.so.1"
AWAY = (OSError, RefusedError, http.client.HTTPException, AssertionError, json.JSONDecodeError)
"""What requests fail with while the API server or etcd is down."""


class SlowWire(Wire):
    """A wire on which everything takes a while."""

    def __init__(self, server: str) -> None:
        super().__init__(server)
        self.delay_s = 0.0

    async def _pump(self, reader: Any, writer: Any, loses: Fault) -> None:
        await super()._pump(_LateReader(self, reader), writer, loses)  # type: ignore[arg-type]


class _LateReader:
    def __init__(self, wire: SlowWire, reader: Any) -> None:
        self._wire, self._reader = wire, reader

    async def read(self, count: int) -> bytes:
        data: bytes = await self._reader.read(count)
        await asyncio.sleep(self._wire.delay_s)
        return data


@dataclass
class Findings:
    """What was seen."""

    recovered_s: dict[str, list[float]] = field(default_factory=dict)
    """By disturbance, seconds until a pod that was created after it was bound."""
    violations: list[str] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)
    peak_mib: float = 0.0


class Soak:
    """One run. ``folder`` is for configurations, logs and records."""

    def __init__(self, plane: Plane, wire: SlowWire, home: Space, space: Space, folder: Path, seed: int) -> None:
        self.plane, self.wire, self.home, self.space, self.folder = plane, wire, home, space, folder
        self.found = Findings()
        self.replicas: list[Running] = []
        self.full: Path | None = None
        self._draw = random.Random(seed)
        self._number = 0
        self._ending = threading.Event()
        self._nodes = 0
        self._clock_file = folder / "clock"
        self._asleep = folder / "asleep"

    # The world

    def start(self, stack: ExitStack) -> None:
        """Nodes and two replicas, whose records go to a small disk where one can be mounted."""
        records = self.folder / "records"
        records.mkdir()
        if subprocess.run(
            ["mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES}", "tmpfs", str(records)], capture_output=True
        ).returncode:
            self.found.skipped.append("a full disk, because none can be mounted here (that needs root)")
        else:
            stack.callback(subprocess.run, ["umount", "-l", str(records)], check=False)
            self.full = records / "filler"
        if not Path(FAKETIME).exists():
            self.found.skipped.append("steps of the clock, because faketime is not installed")
        self._asleep.mkdir()
        (self._asleep / "sitecustomize.py").write_text(SLEEP)
        self._set_clock(0)
        features = (*STANDARD, "preemption")
        kubeconfig = self.home.service_account_kubeconfig(*rules_of(*features), self.wire.address)
        lease = {
            "resourceNamespace": self.home.name,
            "leaseDuration": "8s",
            "renewDeadline": "5s",
            "retryPeriod": "1s",
        }
        for name in ("one", "other"):
            place = self.folder / name
            place.mkdir()
            kept = {"records": {"directory": str(records), "keep": 20}} if self.full and name == "one" else {}
            settings = {
                "leaderElection": lease,
                "features": {**switched_on(*features), "podGroups": ["labels"]},
                **kept,
            }
            replica = Running(self.plane, self.home, place, kubeconfig, settings)
            stack.callback(replica.end)
            self.replicas.append(replica)
            self._start(replica)
        for _ in range(NODES):
            self.add_node()

    def _start(self, replica: Running) -> None:
        # Without a cache the file is read whenever the time is asked for, which takes as much CPU as all the rest.
        faked = {
            "LD_PRELOAD": FAKETIME,
            "FAKETIME_TIMESTAMP_FILE": str(self._clock_file),
            "FAKETIME_CACHE_DURATION": "1",
        }
        faked |= {"FAKETIME_DONT_FAKE_MONOTONIC": "1", "PYTHONPATH": str(self._asleep)}
        replica.start(leading=False, environment=faked if Path(FAKETIME).exists() else {})

    def add_node(self) -> None:
        """One more, in one of three zones."""
        self._nodes += 1
        labels = {**self.replicas[0].pool, names.ZONE: "abc"[self._nodes % 3]}
        self.space.make_nodes(1, prefix=f"n{self._nodes}", cpu=str(CPU), pods=30, labels=labels)

    def nodes(self) -> dict[str, Object]:
        """Those of the run, by name."""
        found = self.space.admin.items("/api/v1/nodes", labelSelector="flowsched.test/space=" + self.space.name)
        return {n["metadata"]["name"]: n for n in found}

    # Churn

    def churn(self) -> None:
        """Pods come and go until the end; what fails while the API server is away is left."""
        while not self._ending.wait(0.5):
            with contextlib.suppress(*AWAY):
                pods = self.space.pods()
                for pod in self._draw.sample(pods, max(0, min(8, len(pods) - POPULATION))):
                    self.space.delete_pod(pod["metadata"]["name"])
                    self.found.counts["deleted"] += 1
                for _ in range(self._draw.randint(1, 4)):
                    self._create()

    def _create(self) -> None:
        self._number += 1
        name, cpu = f"p{self._number}", self._draw.choice(("500m", "1", "1500m", "2"))
        kind = self._draw.choice(("plain", "plain", "measured", "gang", "spread", "urgent"))
        self.found.counts[kind] += 1
        if kind == "gang":
            labels = {NAME_LABEL: name, MINIMUM_LABEL: "3"}
            for i in range(3):
                self.pod(f"{name}-{i}", cpu="500m", labels=labels)
        elif kind == "measured":
            self.pod(name, cpu=cpu, annotations={names.PROFILE: self._draw.choice(("canneal", "radix", "ferret"))})
        elif kind == "spread":
            labels = {"app": f"s{self._number % 5}"}
            constraint = {"maxSkew": 2, "topologyKey": names.ZONE, "whenUnsatisfiable": "DoNotSchedule"}
            self.pod(
                name,
                cpu="500m",
                labels=labels,
                topologySpreadConstraints=[{**constraint, "labelSelector": {"matchLabels": labels}}],
            )
        else:
            self.pod(
                name,
                cpu=cpu,
                **(
                    {"priorityClassName": "system-cluster-critical"}
                    if kind == "urgent" and self._number % 7 == 0
                    else {}
                ),
            )

    def pod(self, name: str, **more: Any) -> None:
        """A pod for the schedulers."""
        self.space.make_pod(name, scheduler=self.home.name, **more)

    # Checks

    def check(self) -> None:
        """Look at everything once a second until the end."""
        while not self._ending.wait(1.0):
            with contextlib.suppress(*AWAY):
                self.check_room()
            for replica in self.replicas:
                self._look_at(replica)

    def check_room(self) -> None:
        """No node holds more than it offers."""
        used: dict[str, Counter[str]] = {}
        pods = self.space.pods()
        for pod in pods:
            if (node := pod["spec"].get("nodeName")) and pod["status"].get("phase") not in ("Succeeded", "Failed"):
                used.setdefault(node, Counter()).update(pod_requests(decode(pod)))
        self.found.counts["looked at"] += 1
        for node, amounts in used.items():
            if amounts["cpu"] > 1000 * CPU or amounts["pods"] > 30:
                self.found.violations.append(
                    f"{node} holds {amounts['cpu']} milli-CPU of {1000 * CPU} and {amounts['pods']} pods"
                )

    def _look_at(self, replica: Running) -> None:
        process = replica._process
        if process is None:
            return
        if process.poll() is not None:
            # As a kubelet does. A leader that cannot renew its lease ends by itself.
            self.found.counts[f"ended with {process.returncode}"] += 1
            if process.returncode != -signal.SIGKILL:
                self._ended(replica, process.returncode, "by itself")
            with contextlib.suppress(AssertionError):
                self._start(replica)
            return
        with contextlib.suppress(OSError, StopIteration):
            status = Path(f"/proc/{process.pid}/status").read_text().splitlines()
            mib = next(int(line.split()[1]) for line in status if line.startswith("VmRSS")) / 1024
            self.found.peak_mib = max(self.found.peak_mib, mib)

    def _ended(self, replica: Running, code: int, when: str) -> None:
        """Nothing but a lease that is lost ends a replica with a code."""
        if not replica.log(LOST):
            said = "\n".join(replica.text().splitlines()[-LAST_LINES:])
            self.found.violations.append(f"a replica ended with {code} {when}; it said last:\n{said}")

    def recovered(self, what: str) -> None:
        """Wait until a pod that is created now is bound."""
        began = time.monotonic()
        self._number += 1
        name = f"probe-{self._number}"

        def bound() -> bool:
            with contextlib.suppress(*AWAY):
                if self.space.admin.find(f"{self.space.pods_path}/{name}") is None:
                    self.pod(name, cpu="10m", memory="1Mi", priorityClassName="system-node-critical")
                return bool(self.space.pod(name)["spec"].get("nodeName"))
            return False

        try:
            wait_for(bound, f"a pod to be bound after: {what}", RECOVERED_WITHIN_S)
        except AssertionError as error:
            self.found.violations.append(str(error))
        self.found.recovered_s.setdefault(what, []).append(time.monotonic() - began)
        with contextlib.suppress(*AWAY):
            self.space.delete_pod(name)

    # Disturbances

    def disturbances(self) -> Iterator[tuple[str, Callable[[], None]]]:
        """One after the other, without end."""
        these: list[tuple[str, Callable[[], None]]] = [
            ("a node is drained", self.drain),
            ("a node goes and another one comes", self.replace_node),
            ("the leader is killed", self.kill_leader),
            ("connections are cut", self.wire.cut),
            ("answers are lost for 3 s", lambda: self.fault(Fault.LOSE_REPLIES, 3.0)),
            ("the API server is slow for 5 s", self.slow),
            ("the API server stops for 3 s", lambda: self.restart("kube-apiserver", 3.0)),
            ("etcd is stopped for 2 s", lambda: self.restart("etcd", 2.0)),
            ("the API server forgets what happened", self.forget),
        ]
        if self.full is not None:
            these.append(("the disk of the records is full for 5 s", self.fill))
        if Path(FAKETIME).exists():
            these += [
                ("the clock goes 10 min forward", lambda: self.step_clock(600)),
                ("the clock goes back", lambda: self.step_clock(0)),
            ]
        while True:
            yield from these

    def drain(self) -> None:
        """Cordon a node, delete what is there, and open it again."""
        node = self._draw.choice(sorted(self.nodes()))
        path = f"/api/v1/nodes/{node}"
        self.space.admin.patch(path, {"spec": {"unschedulable": True}})
        time.sleep(1.0)
        self._empty(node)
        time.sleep(1.0)
        if any(p["spec"].get("nodeName") == node for p in self.space.pods()):
            self.found.violations.append(f"{node} was cordoned and got a pod")
        self.space.admin.patch(path, {"spec": {"unschedulable": None}})

    def replace_node(self) -> None:
        """A machine dies; another one takes its place."""
        node = self._draw.choice(sorted(self.nodes()))
        self.space.admin.delete(f"/api/v1/nodes/{node}")
        time.sleep(1.0)
        self._empty(node)
        self.add_node()

    def _empty(self, node: str) -> None:
        for pod in self.space.pods():
            if pod["spec"].get("nodeName") == node:
                self.space.delete_pod(pod["metadata"]["name"])

    def kill_leader(self) -> None:
        """SIGKILL to the one that holds the lease; the checks start it again."""
        path = f"/apis/coordination.k8s.io/v1/namespaces/{self.home.name}/leases/flowsched"
        holder = self.space.admin.get(path)["spec"].get("holderIdentity", "")
        for replica in self.replicas:
            if f"_{replica.pid}_" in holder:
                os.kill(replica.pid, 9)

    def fault(self, fault: Fault, seconds: float) -> None:
        """A fault of the wire for a while."""
        self.wire.fault = fault
        time.sleep(seconds)
        self.wire.fault = Fault.NONE

    def slow(self) -> None:
        """Every chunk takes 0.3 s longer, each way."""
        self.wire.delay_s = 0.3
        time.sleep(5.0)
        self.wire.delay_s = 0.0

    def restart(self, part: str, seconds: float) -> None:
        """Stop a part of the control plane for a while."""
        self.plane.stop(part)
        time.sleep(seconds)
        self._bring_up(part)

    def forget(self) -> None:
        """Compaction while the watches are cut: they have to list again."""
        self.wire.fault = Fault.REFUSE
        self.wire.cut()
        time.sleep(1.0)
        self.plane.stop("kube-apiserver")
        self.plane.compact()
        self._bring_up("kube-apiserver")
        self.wire.fault = Fault.NONE

    def _bring_up(self, part: str) -> None:
        """Start a part, again where it was too slow for a busy machine."""
        for left in (2, 1, 0):
            try:
                self.plane.start(part)
                return
            except subprocess.CalledProcessError as error:
                say(f"  {error.stderr.strip()}")
                if not left:
                    raise

    def fill(self) -> None:
        """No byte is left for records."""
        assert self.full is not None
        with contextlib.suppress(OSError), self.full.open("wb", buffering=0) as file:
            while True:
                file.write(bytes(4096))
        time.sleep(5.0)
        self.full.unlink()

    def step_clock(self, ahead_s: int) -> None:
        """The replicas look once a second how far ahead they are."""
        self._set_clock(ahead_s)
        time.sleep(2.0)

    def _set_clock(self, ahead_s: int) -> None:
        new = self._clock_file.with_suffix(".new")
        new.write_text(f"+{ahead_s}s\n")
        new.replace(self._clock_file)

    # The run

    def run(self, minutes: float) -> None:
        """Disturb for so many minutes, then look whether everything comes to rest."""
        self.recovered("the start")
        threads = [threading.Thread(target=work, daemon=True) for work in (self.churn, self.check)]
        for thread in threads:
            thread.start()
        until = time.monotonic() + 60.0 * minutes
        for what, disturb in self.disturbances():
            if time.monotonic() >= until:
                break
            say(what)
            try:
                disturb()
            except AWAY as error:
                say(f"  not done: {error}")
            self.recovered(what)
            time.sleep(2.0)
        self._ending.set()
        for thread in threads:
            thread.join()
        self.rest()

    def postponed(self) -> set[str]:
        """Pods that wait because that costs less: they have no condition."""
        waiting = [entry for replica in self.replicas for entry in replica.state()["waiting"]]
        return {str(entry["pod"]).partition("/")[2] for entry in waiting if entry["postponed"]}

    def rest(self) -> None:
        """Without churn every pod has a node, or says why not; no fault was logged."""

        def silent() -> list[str]:
            waiting = [p for p in self.space.pods() if not p["spec"].get("nodeName")]
            told = {
                p["metadata"]["name"]
                for p in waiting
                if any(c.get("message") for c in p["status"].get("conditions", ()))
            }
            return [p["metadata"]["name"] for p in waiting if p["metadata"]["name"] not in told | self.postponed()]

        def settled() -> bool:
            for replica in self.replicas:
                # The last disturbance may have cost the leader its lease after the checks had ended.
                self._look_at(replica)
            with contextlib.suppress(*AWAY):
                return not silent()
            return False

        with contextlib.suppress(AssertionError):
            wait_for(settled, "every pod to have a node or a reason", RECOVERED_WITHIN_S)
        try:
            if not settled() and (forgotten := silent()):
                self.found.violations.append(f"no node and no reason for: {', '.join(forgotten)}")
        except AWAY as error:
            self.found.violations.append(f"a replica or the API server does not answer at the end: {error}")
        self.check_room()
        self.found.counts["bound at the end"] = sum(bool(p["spec"].get("nodeName")) for p in self.space.pods())
        for replica in self.replicas:
            faults = {line["msg"] for line in replica.faults() if not line["msg"].endswith((LOST, NO_LEADER))}
            self.found.violations += [f"a replica has logged: {message}" for message in sorted(faults)]
            if (code := replica.stop()) != 0:
                self._ended(replica, code, "when it was asked to stop")
        if self.found.peak_mib > MOST_MIB:
            self.found.violations.append(f"a replica took {self.found.peak_mib:.0f} MiB")


SLEEP = "import select, time\ntime.sleep = lambda seconds: select.select([], [], [], seconds)\n"
"""Where faketime leaves the monotonic clock alone, it refuses every ``clock_nanosleep`` (EINVAL)."""
LAST_LINES = 40
"""What is shown of the log of a replica that ends as it should not."""
LOST = "the lease is lost: the process ends before anything else is written"
NO_LEADER = "is not the leader any more"
"""What the same loss is called by the election."""


def say(text: str) -> None:
    """One line at once."""
    print(time.strftime("%H:%M:%S"), text, flush=True)


def table(found: Findings) -> str:
    """What was found, for people."""
    wide = max(map(len, found.recovered_s))
    lines = [f"{'disturbance':{wide}}  times  a new pod is bound after s: median   most"]
    for what, seconds in found.recovered_s.items():
        lines.append(f"{what:{wide}}  {len(seconds):5}  {statistics.median(seconds):34.1f}  {max(seconds):5.1f}")
    lines.append(", ".join(f"{what}: {n}" for what, n in sorted(found.counts.items())))
    lines.append(f"resident memory at most {found.peak_mib:.0f} MiB")
    lines += [f"skipped: {what}" for what in found.skipped]
    lines += [f"VIOLATED: {what}" for what in dict.fromkeys(found.violations)] or ["nothing was violated"]
    return "\n".join(lines)


def soak(minutes: float, seed: int) -> Findings:
    """One run on a plane of its own."""
    with ExitStack() as stack:
        plane = stack.enter_context(running_plane("--parts", "kwok"))
        wire = stack.enter_context(SlowWire(plane.server))
        home, space = stack.enter_context(plane.space("home")), stack.enter_context(plane.space("soak"))
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="soak-")))
        one = Soak(plane, wire, home, space, folder, seed)
        one.start(stack)
        one.run(minutes)
        return one.found


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    found = soak(options.minutes, options.seed)
    print(table(found))
    return 1 if found.violations else 0


if __name__ == "__main__":
    sys.exit(main())
