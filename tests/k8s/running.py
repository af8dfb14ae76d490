"""``flowsched run`` as a process beside a real control plane, with the permissions that the manifests give it."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import os
import re
import signal
import ssl
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml
from plane import Fault, Object, Plane, RefusedError, Space, Wire, wait_for

from flowsched.inspector.record_view import RecordView
from flowsched.records.record_file import read_record
from flowsched_k8s import names
from ready_python import ReadyPython

MANIFESTS = Path(__file__).parents[2] / "k8s" / "manifests"
ROLES = {
    "volumes": "volumes",
    "podGroups": "pod-groups",
    "podGroupsInTree": "pod-groups-in-tree",
    "namespaceSelector": "namespace-selector",
    "preemption": "preemption",
    "rebalancing": "rebalancing",
    "resize": "resize",
}
"""The component of the manifests that goes with a feature."""
STANDARD = ("volumes", "podGroups", "namespaceSelector")
"""Features that are on by default."""
GROUPS_CRD = """
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata:
  name: podgroups.scheduling.x-k8s.io
  annotations: {api-approved.kubernetes.io: "https://github.com/kubernetes-sigs/scheduler-plugins/pull/50"}
spec:
  group: scheduling.x-k8s.io
  scope: Namespaced
  names: {kind: PodGroup, listKind: PodGroupList, plural: podgroups, singular: podgroup}
  versions:
  - name: v1alpha1
    served: true
    storage: true
    subresources: {status: {}}
    schema:
      openAPIV3Schema:
        type: object
        properties:
          spec:
            type: object
            properties:
              minMember: {type: integer, format: int32}
              scheduleTimeoutSeconds: {type: integer, format: int32}
          status: {type: object, x-kubernetes-preserve-unknown-fields: true}
"""

PATIENT = {"leaseDuration": "2m", "renewDeadline": "1m40s", "retryPeriod": "1s"}
"""So that neither a slow start of the API server nor a machine that is busy with other tests costs a process its lease."""

_SERIES = re.compile(r"([A-Za-z_:][\w:]*)(?:\{(.*)\})? (\S+)")
_LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')
_numbers = itertools.count()


def rules_of(*features: str) -> tuple[list[Object], list[Object]]:
    """What the manifests allow with these features: (in the whole cluster, in the namespace of the lease)."""
    files = [MANIFESTS / "base" / f"role-{name}.yaml" for name in ("core", "metrics")]
    files += [MANIFESTS / "components" / ROLES[feature] / "role.yaml" for feature in features]
    return [rule for file in files for rule in _rules(file)], _rules(MANIFESTS / "base" / "role-lease.yaml")


def rules_of_learning() -> list[Object]:
    """What the manifests allow for learnt run times, in the namespace of the lease."""
    return _rules(MANIFESTS / "components" / "learning" / "role.yaml")


def switched_on(*features: str) -> Object:
    """The configuration's ``features`` with these on and no others, and groups that need no rights."""
    sources = {"podGroups": "scheduling.x-k8s.io", "podGroupsInTree": "scheduling.k8s.io"}
    switches = {name: name in features for name in ROLES if name not in sources}
    return {
        **switches,
        "podGroups": ["labels", "kueue.x-k8s.io", *(s for name, s in sources.items() if name in features)],
    }


def _rules(file: Path) -> list[Object]:
    documents = yaml.safe_load_all(file.read_text())
    return [rule for d in documents if d["kind"] in ("Role", "ClusterRole") for rule in d["rules"]]


def install_pod_groups(plane: Plane) -> None:
    """The PodGroup API of scheduler-plugins, served when this returns."""
    plane.admin.apply(GROUPS_CRD)

    def served() -> bool:
        try:
            return plane.admin.find("/apis/scheduling.x-k8s.io/v1alpha1/podgroups") is not None
        except RefusedError as error:
            # 429: its storage is being made.
            assert error.status == 429, error
            return False

    wait_for(served, "the PodGroup API to be served")


class Running:
    """One ``flowsched run``. Its pool is a label of its own, so that several can share a plane."""

    def __init__(self, plane: Plane, home: Space, folder: Path, kubeconfig: Path, settings: Mapping[str, Any]) -> None:
        """``home`` is where its lease is; ``settings`` are keys of the configuration file."""
        self.plane = plane
        self.home = home
        self.folder = folder
        self.name = home.name
        self.pool = {"flowsched.test/scheduler": self.name}
        self.configuration = folder / "config.yaml"
        self.log_file = folder / "log.jsonl"
        self._kubeconfig = kubeconfig
        self._process: subprocess.Popen[bytes] | ReadyPython | None = None
        self._log_start = 0
        self._address = ""
        plain: Object = {
            "apiVersion": names.CONFIG_VERSION,
            "kind": names.CONFIG_KIND,
            "leaderElection": {"resourceNamespace": home.name, **PATIENT},
            "profiles": [{"schedulerName": self.name}],
            "nodeSelector": self.pool,
            "podInitialBackoffSeconds": 0.1,
            "podMaxBackoffSeconds": 1,
            "server": dict.fromkeys(("health", "metrics", "loopback"), "127.0.0.1:0"),
            "logging": {"format": "json"},
        }
        for key, value in settings.items():
            plain[key] = {**plain.get(key, {}), **value} if isinstance(value, Mapping) else value
        self.configuration.write_text(yaml.safe_dump(plain))

    # The process

    @property
    def pid(self) -> int:
        """Of the process that runs now."""
        assert self._process is not None
        return self._process.pid

    def start(self, *options: str, leading: bool = True, environment: Mapping[str, str] | None = None) -> None:
        """Start, and return once it decides rounds; with ``leading=False`` once it answers.

        ``environment``: what a fresh process gets beside the usual one; without it the process need not be a fresh one.
        """
        words = ["run", "--config", str(self.configuration), "--kubeconfig", str(self._kubeconfig), *options]
        self._log_start = self.log_file.stat().st_size if self.log_file.exists() else 0
        own = {**os.environ, "POD_NAME": "tests", **(environment or {})}
        with self.log_file.open("ab") as log:
            if environment is None:
                self._process = ReadyPython("flowsched.cli", *words, stdout=log, stderr=log, env=own)
            else:
                command = [sys.executable, "-m", "flowsched.cli", *words]
                self._process = subprocess.Popen(command, stdout=log, stderr=log, env=own)
        self._address = wait_for(self._listens, "flowsched to listen")
        if leading:
            wait_for(lambda: self.state()["active"], "flowsched to lead")

    def stop(self, number: int = signal.SIGTERM) -> int:
        """Send a signal and wait for the end; the exit code."""
        assert self._process is not None
        self._process.send_signal(number)
        code = self._process.wait(180)
        self._process = None
        return code

    def end(self) -> None:
        """Be gone, whatever has happened."""
        if self._process is not None and self._process.poll() is None:
            self._process.kill()
            self._process.wait()

    def signal(self, number: int) -> None:
        """Send a signal and wait for nothing."""
        os.kill(self.pid, number)

    def _listens(self) -> str:
        assert self._process is not None
        assert self._process.poll() is None, f"flowsched ended with {self._process.returncode}: {self.text()}"
        return next((str(line["loopback"]) for line in self.log() if line["msg"] == "listening"), "")

    # What it says

    def text(self) -> str:
        """All lines that the process that was started last has written; it may be writing another one."""
        with self.log_file.open("rb") as file:
            file.seek(self._log_start)
            written = file.read()
        return written[: written.rfind(b"\n") + 1].decode()

    def log(self, message: str = "") -> list[Object]:
        """Its log lines, those with a message if one is given."""
        lines = [json.loads(line) for line in self.text().splitlines() if line.startswith('{"ts"')]
        return [line for line in lines if not message or line["msg"] == message]

    def faults(self) -> list[Object]:
        """Log lines that say that something went wrong which must not."""
        return [line for line in self.log() if line["level"] in ("error", "critical")]

    def answer(self, path: str) -> bytes:
        """What it answers over HTTP."""
        with urllib.request.urlopen(f"http://{self._address}{path}", timeout=30) as reply:
            return bytes(reply.read())

    @property
    def token(self) -> str:
        """Of its own ServiceAccount."""
        (user,) = yaml.safe_load(self._kubeconfig.read_text())["users"]
        return str(user["user"]["token"])

    def scrape(self, token: str) -> tuple[int, str]:
        """What a caller from the network gets who shows a token and takes any certificate: status and metrics."""
        (line,) = self.log("listening")
        asked = urllib.request.Request(
            f"https://{line['metrics']}/metrics", headers={"Authorization": f"Bearer {token}"}
        )
        anyone = ssl.create_default_context()
        anyone.check_hostname, anyone.verify_mode = False, ssl.CERT_NONE
        try:
            with urllib.request.urlopen(asked, timeout=30, context=anyone) as reply:
                return reply.status, reply.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()

    def state(self) -> Object:
        """Its state dump."""
        found: Object = json.loads(self.answer("/debug/state"))
        return found

    def record(self, round: str = "latest") -> Object:
        """The record of a round."""
        found: Object = json.loads(self.answer(f"/debug/records/{round}"))
        return found

    def check_records(self) -> None:
        """Every record that it keeps is sound: its flows are optimal flows, its terms add up."""
        kept = json.loads(self.answer("/debug/records"))["records"]
        for round in (str(entry["round"]) for entry in kept):
            content = self.answer(f"/debug/records/{round}?format=npz")
            for part in RecordView(read_record(content, f"round {round}"), self.name).parts:
                for name, graph in part.graphs.items():
                    faults = list(graph.faults())
                    assert not faults, f"round {round}, part {part.index}, {name} network: {faults[:3]}"

    def metrics(self) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
        """Every series that it exposes."""
        found = {}
        for line in self.answer("/metrics").decode().splitlines():
            if match := _SERIES.fullmatch(line):
                found[match[1], frozenset(_LABEL.findall(match[2] or ""))] = float(match[3])
        return found

    def metric(self, name: str, /, **labels: str) -> float:
        """The sum over the series of a metric that have these labels."""
        wanted = labels.items()
        return sum(v for (n, have), v in self.metrics().items() if n == name and wanted <= set(have))

    def metric_becomes(self, value: float, name: str, /, **labels: str) -> None:
        """Wait until a metric has a value: a pod that a change wakes is counted nowhere while it is judged anew."""
        wait_for(lambda: self.metric(name, **labels) == value, f"{name} to be {value:g}")


@contextlib.contextmanager
def running_scheduler(
    plane: Plane,
    folder: Path,
    *options: str,
    features: Sequence[str] = STANDARD,
    rules: Callable[[list[Object]], list[Object]] = list,
    server: str = "",
    listens: Mapping[str, str] | None = None,
    expected_faults: Sequence[str] = (),
    start: bool = True,
    **settings: Any,
) -> Iterator[Running]:
    """A scheduler that leads, with ``features`` on and a ServiceAccount that may do what the manifests allow for them.

    ``rules`` may change those of the cluster; ``server`` is another address of the API server, such as a wire's.
    ``listens`` are the addresses that it listens on, ``settings`` other keys of the configuration file. At its end there
    must be no error in its log, but for messages that are expected, all records that it keeps must be sound, and it must
    stop when it is asked to.
    """
    number = next(_numbers)
    with plane.space(f"scheduler-{number}-{os.getpid()}") as home:
        everywhere, here = rules_of(*features)
        # The lease is called as usual, in a namespace of its own, and so is the ConfigMap.
        here = [*here, *rules_of_learning()]
        kubeconfig = home.service_account_kubeconfig(rules(everywhere), here, server)
        place = folder / home.name
        place.mkdir()
        settings = {"features": switched_on(*features), **({"server": listens} if listens else {}), **settings}
        scheduler = Running(plane, home, place, kubeconfig, settings)
        try:
            if start:
                scheduler.start(*options)
            yield scheduler
            if scheduler._process is not None:
                scheduler.check_records()
                assert scheduler.stop() == 0, scheduler.text()
            faults = [line for line in scheduler.faults() if line["msg"] not in expected_faults]
            assert not faults, faults
        finally:
            scheduler.end()


class Site:
    """A test's own namespace and nodes, as one scheduler's work."""

    def __init__(self, scheduler: Running, space: Space) -> None:
        self.scheduler = scheduler
        self.space = space
        self.admin = space.admin
        self.name = space.name

    # What there is

    def nodes(self, count: int = 1, *, labels: Mapping[str, str] | None = None, **more: Any) -> list[str]:
        """Nodes of the scheduler's pool, known to it when this returns. ``more`` as for ``Space.make_nodes``."""
        made = self.space.make_nodes(count, labels={**self.scheduler.pool, **(labels or {})}, **more)
        wait_for(lambda: set(made) <= self.scheduler.state()["nodes"].keys(), "the scheduler to see the nodes")
        return made

    def node(self, prefix: str = "node", **more: Any) -> str:
        """One node."""
        return self.nodes(1, prefix=prefix, **more)[0]

    def pod(self, name: str, **more: Any) -> Object:
        """A pod for the scheduler. ``more`` as for ``Space.make_pod``."""
        return self.space.make_pod(name, **{"scheduler": self.scheduler.name, **more})

    def foreign(self, name: str, node: str, **more: Any) -> Object:
        """A pod that another scheduler has put on a node; the scheduler knows when this returns."""
        made = self.space.make_pod(name, **{"scheduler": "another-scheduler", "nodeName": node, **more})
        key = f"{self.name}/{name}"
        wait_for(lambda: key in self.scheduler.state()["nodes"][node]["pods"], "the scheduler to see a foreign pod")
        return made

    def change_node(self, name: str, change: Object) -> None:
        """Merge something into a node."""
        self.admin.patch(f"/api/v1/nodes/{name}", change, "strategic-merge-patch")

    def change_pod(self, name: str, change: Object, kind: str = "strategic-merge-patch") -> Object:
        """Merge something into a pod."""
        return self.admin.patch(f"{self.space.pods_path}/{name}", change, kind)

    # What becomes of it

    def bound(self, name: str) -> str:
        """The node of a pod, once it has one."""
        return str(wait_for(lambda: self.space.pod(name)["spec"].get("nodeName"), f"{name} to be bound"))

    def all_bound(self, count: int, within: float = 180.0) -> dict[str, str]:
        """The nodes of all pods in the namespace, once there are so many of them and all have one."""

        def done() -> dict[str, str]:
            places = {p["metadata"]["name"]: p["spec"].get("nodeName", "") for p in self.space.pods()}
            return places if len(places) == count and all(places.values()) else {}

        return wait_for(done, f"{count} pods to be bound", within)

    def condition(self, name: str, type_: str = names.POD_SCHEDULED) -> Object | None:
        """A condition of a pod."""
        conditions = self.space.pod(name)["status"].get("conditions", [])
        return next((c for c in conditions if c["type"] == type_), None)

    def refused(self, name: str, contains: str = "") -> str:
        """Why a pod is unschedulable, once it says so in its condition."""

        def message() -> str:
            condition = self.condition(name)
            if condition is None or condition["status"] != "False" or condition["reason"] != names.UNSCHEDULABLE:
                return ""
            return str(condition["message"]) if contains in condition["message"] else ""

        said = wait_for(message, f"{name} to be unschedulable{contains and ': '}{contains}")
        assert not self.space.pod(name)["spec"].get("nodeName")
        return said

    def events(self, name: str, reason: str = "") -> list[Object]:
        """Events about a pod, oldest first."""
        found = self.space.events(fieldSelector=f"regarding.name={name}")
        return sorted((e for e in found if reason in ("", e["reason"])), key=lambda e: str(e["eventTime"]))

    def event(self, name: str, reason: str) -> Object:
        """The one event of a reason about a pod, once there is one."""
        found = wait_for(lambda: self.events(name, reason), f"an event {reason} about {name}")
        assert len(found) == 1, found
        return found[0]

    def waits(self, name: str) -> Object:
        """What the scheduler says about a pod in its queue; empty if it is not there."""
        key = f"{self.name}/{name}"
        return next((w for w in self.scheduler.state()["waiting"] if w["pod"] == key), {})

    def waits_with(self, name: str, text: str) -> str:
        """The message of a waiting pod, once it has such a text. Unlike the condition, it is the latest at any time."""

        def message() -> str:
            said = str(self.waits(name).get("message", ""))
            return said if text in said else ""

        return wait_for(message, f"{name} to wait with: {text}")

    # Volumes

    def volumes_path(self, name: str = "") -> str:
        """Where claims are."""
        return f"/api/v1/namespaces/{self.name}/persistentvolumeclaims{name and '/'}{name}"


@contextlib.contextmanager
def site_of(scheduler: Running, space: Space) -> Iterator[Site]:
    """A site on which nothing is left of the tests before."""
    wait_for(lambda: not scheduler.state()["nodes"], "the nodes of earlier tests to be gone")
    yield Site(scheduler, space)


class HoldingWire(Wire):
    """A wire that can hold what the scheduler sends while it goes on hearing: decisions are made, and are under way."""

    def __init__(self, server: str) -> None:
        super().__init__(server)
        self.holding = False

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, loses: Fault) -> None:
        if loses is Fault.LOSE_REQUESTS:
            reader = _HeldReader(self, reader)  # type: ignore[assignment]
        await super()._pump(reader, writer, loses)


class _HeldReader:
    """Reads on only while the wire does not hold."""

    def __init__(self, wire: HoldingWire, reader: asyncio.StreamReader) -> None:
        self._wire = wire
        self._reader = reader

    async def read(self, count: int) -> bytes:
        data = await self._reader.read(count)
        while self._wire.holding:
            await asyncio.sleep(0.01)
        return data
