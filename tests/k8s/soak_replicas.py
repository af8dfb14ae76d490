"""The two replicas of a soak: started again when they end, as a kubelet does, and looked at."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import signal
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

from audit import account
from plane import Object, Plane, Space
from running import STANDARD, Running, rules_of, switched_on
from soak_findings import Findings
from test_live_failover import lease_of

FAKETIME = "/usr/lib/x86_64-linux-gnu/faketime/libfaketimeMT.so.1"
LEASE_S = 8.0
MOST_MIB = 700.0
"""Resident memory of a replica; with its compiled code it begins at 300."""
LAST_LINES = 40
"""What is shown of the log of a replica that ends as it should not."""
LOST = "the lease is lost: the process ends before anything else is written"
NO_LEADER = "is not the leader any more"
"""What the same loss is called by the election."""
SLEEP = "import select, time\ntime.sleep = lambda seconds: select.select([], [], [], seconds)\n"
"""Where faketime leaves the monotonic clock alone, it refuses every ``clock_nanosleep`` (EINVAL)."""


class Replicas:
    """Two replicas with one lease, each with a ServiceAccount of its own, by which the audit log tells them apart."""

    def __init__(self, plane: Plane, home: Space, server: str, folder: Path, found: Findings, fake_clock: bool) -> None:
        """``server`` is the address of the API server; with ``fake_clock`` the clock can be stepped."""
        self._plane, self.home, self._server, self._folder, self.found = plane, home, server, folder, found
        self.fake_clock = fake_clock
        self._clock_file = folder / "clock"
        self._asleep = folder / "asleep"
        self._asleep.mkdir()
        (self._asleep / "sitecustomize.py").write_text(SLEEP)
        self.set_clock(0)
        self.users: list[str] = []
        self._kubeconfigs: list[Path] = []
        self.each: list[Running] = []

    def start(self, stack: ExitStack, records: Path | None) -> None:
        """Both, of which one writes records to a folder if one is given."""
        features = (*STANDARD, "preemption")
        lease = {
            "resourceNamespace": self.home.name,
            "leaseDuration": f"{LEASE_S:g}s",
            "renewDeadline": "5s",
            "retryPeriod": "1s",
        }
        for number, name in enumerate(("one", "other")):
            place = self._folder / name
            place.mkdir()
            kubeconfig = self.home.service_account_kubeconfig(*rules_of(*features), self._server)
            self._kubeconfigs.append(kubeconfig)
            self.users.append(account(self.home.name, f"account-{number}"))
            kept = {"records": {"directory": str(records), "keep": 20}} if records and number == 0 else {}
            settings = {
                "leaderElection": lease,
                "features": {**switched_on(*features), "podGroups": ["labels"]},
                **kept,
            }
            replica = Running(self._plane, self.home, place, kubeconfig, settings)
            stack.callback(replica.end)
            self.each.append(replica)
        with ThreadPoolExecutor() as both:
            list(both.map(self._start, self.each))

    def _start(self, replica: Running) -> None:
        # Without a cache the file is read whenever the time is asked for, which takes as much CPU as all the rest.
        faked = {
            "LD_PRELOAD": FAKETIME,
            "FAKETIME_TIMESTAMP_FILE": str(self._clock_file),
            "FAKETIME_CACHE_DURATION": "1",
        }
        path = os.pathsep.join(filter(None, (str(self._asleep), os.environ.get("PYTHONPATH"))))
        faked |= {"FAKETIME_DONT_FAKE_MONOTONIC": "1", "PYTHONPATH": path}
        replica.start(leading=False, environment=faked if self.fake_clock else None)

    def leader(self) -> Running | None:
        """The one that the lease names, by the process id in its identity."""
        holder = lease_of(self.home).get("holderIdentity", "")
        return next((r for r in self.each if r._process is not None and f"_{r.pid}_" in holder), None)

    def set_clock(self, ahead_s: int) -> None:
        """Replicas look once a second how far ahead they are."""
        new = self._clock_file.with_suffix(".new")
        new.write_text(f"+{ahead_s}s\n")
        new.replace(self._clock_file)

    def look_after(self, ending: threading.Event) -> None:
        """Once a second until the end: start again what has ended."""
        while not ending.wait(1.0):
            self.look()

    def look(self) -> None:
        """Start again what has ended, and see how much memory replicas take."""
        ended = [r for r in self.each if r._process is not None and r._process.poll() is not None]
        for replica in ended:
            assert replica._process is not None
            code = replica._process.poll()
            assert code is not None
            self.found.counts[f"ended with {code}"] += 1
            self._judge_log(replica)
            if code != -signal.SIGKILL:
                self._judge_end(replica, code, "by itself")
        with ThreadPoolExecutor(max_workers=2) as both:
            list(both.map(self._start_again, ended))
        for replica in self.each:
            with contextlib.suppress(OSError, StopIteration, AssertionError):
                status = Path(f"/proc/{replica.pid}/status").read_text().splitlines()
                mib = next(int(line.split()[1]) for line in status if line.startswith("VmRSS")) / 1024
                self.found.peak_mib = max(self.found.peak_mib, mib)

    def _start_again(self, replica: Running) -> None:
        with contextlib.suppress(AssertionError):
            self._start(replica)

    def bind(self, pod: Object, node: str) -> None:
        """Bind a pod with the rights of a replica."""
        token = json.loads(self._kubeconfigs[0].read_text())["users"][0]["user"]["token"]
        meta = {key: pod["metadata"][key] for key in ("name", "namespace", "uid")}
        connection = http.client.HTTPConnection(self._server.removeprefix("http://"), timeout=30)
        connection.request(
            "POST",
            f"/api/v1/namespaces/{meta['namespace']}/pods/{meta['name']}/binding",
            json.dumps({"metadata": meta, "target": {"kind": "Node", "name": node}}),
            {"Authorization": f"Bearer {token}", "Content-Type": "application/json"},
        )
        answer = connection.getresponse()
        assert answer.status == 201, answer.read()

    def stop(self) -> None:
        """Both, at the end: as they are asked to, and without an error in their logs."""
        for replica in self.each:
            self._judge_log(replica)
            if (code := replica.stop()) != 0:
                self._judge_end(replica, code, "when it was asked to stop")
        if self.found.peak_mib > MOST_MIB:
            self.found.violated(f"a replica took {self.found.peak_mib:.0f} MiB")

    def _judge_log(self, replica: Running) -> None:
        faults = {line["msg"] for line in replica.faults() if not line["msg"].endswith((LOST, NO_LEADER))}
        for message in sorted(faults):
            self.found.violated(f"a replica has logged: {message}")

    def _judge_end(self, replica: Running, code: int, when: str) -> None:
        """A replica may end with a code only because its lease is lost."""
        if not replica.log(LOST):
            said = "\n".join(replica.text().splitlines()[-LAST_LINES:])
            self.found.violated(f"a replica ended with {code} {when}; it said last:\n{said}")
