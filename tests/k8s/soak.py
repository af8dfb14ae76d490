"""Two replicas of the scheduler under churn that never pauses, and one disturbance after the other.

    make soak MINUTES=10

All the time every binding is checked, from the watches of the API server and its audit log. After each disturbance a new pod
must be bound within half a minute, and by then no pod may wait although a node would do. Exit code 1 if not.
"""

from __future__ import annotations

import argparse
import contextlib
import random
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from pathlib import Path

from audit import AuditLog
from binding_checker import BindingChecker
from cluster_watch import AWAY, ClusterWatch
from fault_proxy import FaultProxy
from plane import Plane, running_plane, wait_for
from soak_churn import NODES, Churn
from soak_faults import Fault, Faults, chosen, disturbance
from soak_findings import Findings, say
from soak_replicas import FAKETIME, Replicas

STARTED_WITHIN_S = 60.0
LOOKS = 5
"""A pod that waits although a node would do is one that was found to do so in so many looks one after the other."""
DISK_BYTES = 1 << 20
HOPELESS = 20_000


class Soak:
    """One run. ``folder`` is for configurations, logs and records."""

    def __init__(self, plane: Plane, folder: Path, stack: ExitStack, *, seed: int, hopeless: int, brief: bool) -> None:
        """Everything is started, and ends with ``stack``. ``brief``: faults are short, and the clock is left alone."""
        self.found = Findings()
        self.home, self.space, other = (stack.enter_context(plane.space(n)) for n in ("home", "soak", "other"))
        proxy = stack.enter_context(FaultProxy(plane.server, plane.folder / "pki" / "ca.crt", seed))
        records = self._small_disk(folder, stack)
        fake_clock = not brief
        if fake_clock and not Path(FAKETIME).exists():
            self.found.skipped.append("steps of the clock, because faketime is not installed")
            fake_clock = False
        self.replicas = Replicas(plane, self.home, proxy.address, folder, self.found, fake_clock)
        self.watch = stack.enter_context(ClusterWatch(plane.admin))
        pool = {"flowsched.test/scheduler": self.home.name}
        self.churn = Churn(self.space, self.watch, self.home.name, pool, self.found.counts, seed)
        for _ in range(NODES):
            self.churn.add_node()
        self.replicas.start(stack, records)
        self.checker = BindingChecker(self.replicas.users, [self.home.name])
        self.faults = Faults(
            plane,
            proxy,
            self.replicas,
            self.churn,
            self.watch,
            other,
            self.probe,
            hopeless,
            records / "filler" if records else None,
            seed,
            0.5 if brief else 1.0,
        )
        self._audit = AuditLog(plane)
        self._ending = threading.Event()
        self._checking = threading.Lock()
        self._probes = 0
        self._told_until = 0.0

    def _small_disk(self, folder: Path, stack: ExitStack) -> Path | None:
        """Where records go, if one can be mounted."""
        records = folder / "records"
        records.mkdir()
        command = ["mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES}", "tmpfs", str(records)]
        if subprocess.run(command, capture_output=True).returncode:
            self.found.skipped.append("a full disk, because none can be mounted here (that needs root)")
            return None
        stack.callback(subprocess.run, ["umount", "-l", str(records)], check=False)
        return records

    # Checks

    def check(self) -> None:
        """Twice a second until the end."""
        while not self._ending.wait(0.5):
            self.look()

    def look(self) -> None:
        """Give the checker what is new."""
        with self._checking:
            self._feed()
            for violation in self.checker.violations:
                self.found.violated(violation)
        self.found.counts["looked at"] += 1

    def _feed(self) -> None:
        changes, self._told_until = self.watch.changes()
        self.checker.feed(changes, self._audit.writes(), self._told_until)

    def look_until(self, moment: float, look: Callable[[], None]) -> None:
        """Until all of a moment, in seconds since the epoch, has been looked at."""

        def seen() -> bool:
            look()
            return self._told_until > moment

        with contextlib.suppress(AssertionError):  # a later check says so
            wait_for(seen, "the checker to have seen all", STARTED_WITHIN_S)

    def probe(self, what: str, within_s: float) -> None:
        """Wait until a pod that is created now is bound."""
        began = time.monotonic()
        self._probes += 1
        name, admin = f"probe-{self._probes}", self.space.admin

        def bound() -> bool:
            with contextlib.suppress(*AWAY):
                if admin.find(f"{self.space.pods_path}/{name}") is None:
                    self.churn.pod(name, cpu="10m", memory="1Mi", priorityClassName="system-node-critical")
                return bool(self.space.pod(name)["spec"].get("nodeName"))
            return False

        try:
            wait_for(bound, f"a pod to be bound: {what}", within_s)
        except AssertionError as error:
            self.found.violated(str(error))
        self.found.recovered_s.setdefault(what, []).append(time.monotonic() - began)
        with contextlib.suppress(*AWAY):
            self.space.delete_pod(name)

    def nothing_waits(self, what: str, since: float, until: float) -> None:
        """Wait until no pod that waited at a moment does so although a node would do, and no gang is torn.

        Moments are seconds since the epoch.
        """
        looks: Counter[str] = Counter()
        while True:
            with self._checking:
                late = self._told_until < since
                left = set() if late else {*self.checker.fitting(since), *self.checker.torn()}
            if not late and not left:
                return
            looks = Counter({name: looks[name] + 1 for name in left})
            stuck = sorted(name for name, count in looks.items() if count >= LOOKS)
            over = time.time() - until
            if over > 0.0 and (late or stuck):
                words = (
                    f"wait although a node would do, or are torn: {', '.join(stuck)}" if stuck else "no watch answers"
                )
                self.found.violated(f"{what}: {until - since:.0f} s later {words}")
            if over > (0.0 if late or stuck else LOOKS * 3.0):
                return
            time.sleep(1.0 if stuck else 0.3)

    # The run

    def run(self, faults: Iterable[Fault]) -> None:
        """Disturb, then look whether everything comes to rest."""
        self.probe("the start", STARTED_WITHIN_S)
        works = (self.churn.run, self.replicas.look_after)
        threads = [threading.Thread(target=work, args=(self._ending,), daemon=True) for work in works]
        threads.append(threading.Thread(target=self.check, daemon=True))
        for thread in threads:
            thread.start()
        for fault in faults:
            say(fault.name)
            try:
                with disturbance(fault, self.checker.disturbed):
                    fault.act()
            except (*AWAY, AssertionError, subprocess.CalledProcessError) as error:
                say(f"  not done: {error}")
                self.found.counts["not done"] += 1
            over = time.time()
            self.probe(fault.name, fault.recovers_s)
            self.nothing_waits(fault.name, over, over + fault.recovers_s)
        self._ending.set()
        for thread in threads:
            thread.join()
        self.rest()

    def postponed(self) -> set[str]:
        """Pods that wait because that costs less: they have no condition."""
        waiting = [entry for replica in self.replicas.each for entry in replica.state()["waiting"]]
        return {str(entry["pod"]).partition("/")[2] for entry in waiting if entry["postponed"]}

    def rest(self) -> None:
        """Without churn every pod has a node, or says why not; no fault was logged."""

        def silent() -> list[str]:
            waiting = [pod for pod in self.watch.pods(self.space.name) if not pod.spec.node_name]
            untold = [p.metadata.name for p in waiting if not any(c.message for c in p.status.conditions or ())]
            return sorted(set(untold) - self.postponed()) if untold else []

        def settled() -> bool:
            # The last disturbance may have cost the leader its lease after the checks had ended.
            self.replicas.look()
            self.look()
            with contextlib.suppress(*AWAY):
                return not silent()
            return False

        try:
            with contextlib.suppress(AssertionError):
                wait_for(settled, "every pod to have a node or a reason", STARTED_WITHIN_S)
            if not settled() and (forgotten := silent()):
                self.found.violated(f"no node and no reason for: {', '.join(forgotten)}")
        except AWAY as error:
            self.found.violated(f"a replica or the API server does not answer at the end: {error}")
        now = time.time()
        self.look_until(now, self.look)
        self.nothing_waits("at rest", now, now)
        pods = self.watch.pods(self.space.name)
        self.found.counts["bound at the end"] = sum(bool(pod.spec.node_name) for pod in pods)
        self.replicas.stop()
        self.look_until(time.time(), self.look)
        self.found.counts += self.checker.counts
        self.try_checker()

    def try_checker(self) -> None:
        """It must notice a binding to a node without room, made with the rights of a replica that has ended."""
        name = "unlawful"
        self.churn.pod(name, cpu="64")
        self.replicas.bind(self.space.pod(name), sorted(self.watch.nodes())[0])
        self.look_until(time.time(), self._feed)
        noticed = [violation for violation in self.checker.violations if f"/{name}" in violation]
        for words in ("too little cpu", "without the lease"):
            if not any(words in violation for violation in noticed):
                self.found.violated(f"the checker has not noticed that a binding was wrong: {words}")


def in_turn(faults: list[Fault], seed: int, minutes: float, each: bool) -> Iterator[Fault]:
    """All of them in an order drawn anew each time, for so many minutes; ``each``: until each has been tried."""
    draw, until = random.Random(seed), time.monotonic() + 60.0 * minutes
    tried: set[str] = set()
    while True:
        for fault in draw.sample(faults, len(faults)):
            if time.monotonic() >= until and not (each and len(tried) < len(faults)):
                return
            tried.add(fault.name)
            yield fault


def soak(
    *,
    seed: int,
    minutes: float = 0.0,
    seconds: float = 0.0,
    each: bool = False,
    only: str = "",
    hopeless: int = HOPELESS,
    logs: Path | None = None,
) -> Findings:
    """One run on a plane of its own, for so many minutes; with ``seconds`` of some faults that take so long together.

    ``only``: of faults whose name has this text. ``logs``: where the logs of the replicas and the audit log are kept.
    """
    with ExitStack() as stack:
        plane = stack.enter_context(running_plane("--parts", "kwok", "--audit-log"))
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="soak-")))
        one = Soak(plane, folder, stack, seed=seed, hopeless=hopeless, brief=bool(seconds))
        faults = [fault for fault in one.faults.all() if only in fault.name]
        if not faults:
            known = ", ".join(fault.name for fault in one.faults.all())
            raise SystemExit(f"--only: no disturbance has '{only}' in its name; there are: {known}")
        try:
            one.run(chosen(faults, seed, seconds) if seconds else in_turn(faults, seed, minutes, each))
        finally:
            if logs is not None:
                logs.mkdir(parents=True, exist_ok=True)
                for replica in one.replicas.each:
                    shutil.copy(replica.log_file, logs / f"{replica.folder.name}.jsonl")
                shutil.copy(plane.folder / "logs" / "audit.log", logs)
        return one.found


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--each", action="store_true", help="go on until each disturbance has been tried")
    parser.add_argument("--only", default="", metavar="TEXT", help="only disturbances whose name has this text")
    parser.add_argument("--hopeless", type=int, default=HOPELESS, help="how many pods that fit nowhere come and go")
    parser.add_argument(
        "--logs", type=Path, metavar="FOLDER", help="keep the logs of the replicas and the audit log there"
    )
    options = parser.parse_args()
    found = soak(
        seed=options.seed,
        minutes=options.minutes,
        each=options.each,
        only=options.only,
        hopeless=options.hopeless,
        logs=options.logs,
    )
    print(found.table())
    return 1 if found.violations else 0


if __name__ == "__main__":
    sys.exit(main())
