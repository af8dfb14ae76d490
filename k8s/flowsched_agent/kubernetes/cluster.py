"""The agent's two threads in a cluster: one follows the pods of the node, one writes annotations."""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Mapping
from typing import Any

from flowsched_agent.catalogue import catalogue_of
from flowsched_agent.configuration import Configuration
from flowsched_agent.hands import LinuxHands
from flowsched_agent.kubernetes.access import Access, find_access
from flowsched_agent.kubernetes.client import ApiError, Client
from flowsched_agent.kubernetes.pod_groups import control_of_pod
from flowsched_agent.kubernetes.pods import PodWorkload, read_pod
from flowsched_agent.kubernetes.reporting import Report, Reporter
from flowsched_agent.status import Status
from flowsched_agent.steered import Handle
from flowsched_agent.workloads import Workload
from flowsched_models.document import InputError, Problem

LOG = logging.getLogger(__name__)

WATCH_S = 240
"""Seconds after which the server ends a watch, and all pods are listed again: what was missed is seen then at the latest."""
STALL_S = 300.0
AGAIN_S = (1.0, 30.0)
"""First and longest wait after a failure."""


class Cluster:
    """The pods of one node as workloads. Its own threads read and write; the loop never waits for them."""

    def __init__(self, configuration: Configuration, hands: LinuxHands, access: Access | None = None) -> None:
        """Raises :class:`InputError` if the node has no name or the API server cannot be found."""
        settings = configuration.kubernetes
        node = settings.node_name or os.environ.get("NODE_NAME")
        if not node:
            help = "name it, or set $NODE_NAME from the field spec.nodeName of the pod"
            raise InputError([Problem("configuration", None, "kubernetes.nodeName", "is missing", help)])
        self.node = node
        self._settings = settings
        self._dry_run = configuration.dry_run
        self._hands = hands
        self._catalogue = catalogue_of(configuration.profiles_files)
        self._access = access or find_access(settings.kubeconfig)
        self._pods: dict[str, dict[str, Any]] = {}
        self._present: Mapping[str, PodWorkload] = {}
        self._told: set[str] = set()
        self._reporter = Reporter(settings.report_s, settings.report_change)
        self._status: Status | None = None
        self._news = threading.Event()
        self._stopping = threading.Event()
        self.listed = threading.Event()
        """Set once the pods of the node are known."""
        self.failures = 0
        self._threads = [
            threading.Thread(target=self._follow, name="pods", daemon=True),
            threading.Thread(target=self._write, name="reports", daemon=True),
        ]

    def start(self) -> None:
        """Start both threads."""
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """Ask both to end; a watch under way ends with the process."""
        self._stopping.set()
        self._news.set()
        self._threads[1].join(timeout=2.0)

    def present(self) -> Mapping[str, PodWorkload]:
        """See :class:`flowsched_agent.workloads.Workloads`."""
        return self._present

    def handle(self, workload: Workload) -> Handle | None:
        """See :class:`flowsched_agent.workloads.Workloads`."""
        assert isinstance(workload, PodWorkload)
        detected = self._hands.detected
        handle = Handle(control_of_pod(self._hands.system, detected.hierarchies, workload, detected.one_way))
        self._hands.claim(workload.spec.name, handle)
        return handle

    def report(self, status: Status) -> None:
        """Let the other thread write what is new."""
        self._status = status
        self._news.set()

    # Pods

    def _follow(self) -> None:
        client = Client(self._access)
        wait = AGAIN_S[0]
        while not self._stopping.is_set():
            try:
                began = time.monotonic()
                self._watch(client, self._list(client))
                wait = AGAIN_S[0]
                # A server that ends its watches at once must not be asked without a pause.
                if time.monotonic() - began < AGAIN_S[0]:
                    self._stopping.wait(AGAIN_S[0])
            except Exception as error:  # Whatever the API server says, the machine is steered on.
                self._failed("the pods of the node are not known freshly", error)
                client.close()
                self._stopping.wait(wait)
                wait = min(2 * wait, AGAIN_S[1])
        client.close()

    def _list(self, client: Client) -> str:
        answer = client.get("/api/v1/pods", {"fieldSelector": f"spec.nodeName={self.node}"})
        self._pods = {str(pod["metadata"]["uid"]): pod for pod in answer["items"]}
        self._renew()
        self.listed.set()
        return str(answer["metadata"]["resourceVersion"])

    def _watch(self, client: Client, version: str) -> None:
        query = {
            "watch": "true",
            "fieldSelector": f"spec.nodeName={self.node}",
            "resourceVersion": version,
            "timeoutSeconds": str(WATCH_S),
        }
        for event in client.watch("/api/v1/pods", query, STALL_S):
            if self._stopping.is_set():
                return
            pod = event["object"]
            if event["type"] == "ERROR":
                # The position is forgotten: all are listed again.
                return
            uid = str(pod["metadata"]["uid"])
            if event["type"] == "DELETED":
                self._pods.pop(uid, None)
            else:
                self._pods[uid] = pod
            self._renew()

    def _renew(self) -> None:
        found = {}
        for pod in self._pods.values():
            read = read_pod(pod, self._catalogue, self._settings.scheduler_names)
            if read.problem is not None and read.problem not in self._told:
                self._told.add(read.problem)
                LOG.warning("%s", read.problem)
            if read.workload is not None:
                found[read.workload.spec.name] = read.workload
        self._present = found

    # Reports

    def _write(self) -> None:
        client = Client(self._access)
        while not self._stopping.is_set():
            self._news.wait()
            self._news.clear()
            status = self._status
            if status is None or self._stopping.is_set():
                continue
            pods = {name: workload.path for name, workload in self._present.items()}
            report = self._reporter.due(status, pods)
            if report is None:
                continue
            try:
                self._send(client, report, pods)
            except Exception as error:  # The next report says everything again.
                self._reporter.forget()
                self._failed("a report was not written", error)
        client.close()

    def _send(self, client: Client, report: Report, pods: Mapping[str, str]) -> None:
        if self._dry_run:
            return
        # By way of the status: that grants no change of what runs in a pod or of the taints of a node.
        if report.node:
            client.patch(f"/api/v1/nodes/{self.node}/status", {"metadata": {"annotations": dict(report.node)}})
        for name, notes in report.pods.items():
            workload = self._present.get(name)
            if workload is None:
                continue
            body = {"metadata": {"annotations": dict(notes), "uid": workload.uid}}
            try:
                client.patch(f"{pods[name]}/status", body)
            except ApiError as error:
                # Gone, or made anew under the same name.
                if error.status not in (404, 409, 422):
                    raise

    def _failed(self, what: str, error: Exception) -> None:
        self.failures += 1
        text = f"{what}: {error if isinstance(error, ApiError) else repr(error)}"
        if text not in self._told and len(self._told) < 1000:
            self._told.add(text)
            LOG.warning("%s", text)
