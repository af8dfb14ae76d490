"""The agent in a cluster: a thread of its own follows the pods of the node and writes annotations."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Mapping

from flowsched_agent.actuator import LinuxActuator
from flowsched_agent.configuration import Configuration, Kubernetes
from flowsched_agent.controls.control import Control
from flowsched_agent.kubernetes.pod_groups import control_of_pod
from flowsched_agent.kubernetes.pods import NodePod, PodWorkload, read_pod
from flowsched_agent.kubernetes.reporting import Annotations, Report, Reporter
from flowsched_agent.loop_thread import LoopThread
from flowsched_agent.status import Status
from flowsched_agent.workloads import Workload, Workloads
from flowsched_k8s.api.access import IN_CLUSTER, Access, find_access
from flowsched_k8s.api.client import MERGE, ApiError, Connection, UnreachableError, path_of
from flowsched_k8s.api.reflector import Reflector
from flowsched_models.document import InputError
from flowsched_models.profiles import load_catalogue

LOG = logging.getLogger(__name__)

COMPARE_S = 240.0
"""So often the pods that are known are compared with those of the API server: what was missed is seen then at the latest."""
ANSWER_WITHIN_S = 10.0
AGAIN_S = 30.0
"""Wait after the API server did not let us read pods, or said what cannot be understood at all."""


class Cluster(Workloads):
    """The pods of one node as workloads. What comes and goes over the network does so beside the loop, which never waits."""

    def __init__(self, configuration: Configuration, actuator: LinuxActuator, access: Access | None = None) -> None:
        """Raises :class:`InputError` if the node has no name or the API server cannot be found."""
        settings = configuration.kubernetes
        node = settings.node_name or os.environ.get("NODE_NAME")
        if not node:
            help = "name it, or set $NODE_NAME from the field spec.nodeName of the pod"
            raise InputError.one("configuration", "is missing", help, key="kubernetes.nodeName")
        self.node = node
        self._settings = settings
        self._dry_run = configuration.dry_run
        self._actuator = actuator
        self._catalogue = load_catalogue(extra=configuration.profiles_files)
        self._connection = Connection(
            access or access_of(settings), timeout=ANSWER_WITHIN_S, user_agent="flowsched-agent"
        )
        self._pods = [
            Reflector(
                self._connection,
                path,
                NodePod,
                lambda _: self._renew(),
                selectors={"fieldSelector": f"spec.nodeName={node}"},
                reconcile_every=COMPARE_S,
                unavailable_retry=AGAIN_S,
            )
            for path in [path_of("/api/v1", "pods", namespace) for namespace in settings.namespaces] or ["/api/v1/pods"]
        ]
        """Of all namespaces at once, or one by one."""
        self._present: Mapping[str, PodWorkload] = {}
        self._told: set[str] = set()
        self._reporter = Reporter(settings.report_s, settings.report_change)
        self._status: Status | None = None
        self._news = asyncio.Event()
        self._thread: LoopThread | None = None

    def start(self) -> None:
        """Begin to follow and to write."""
        self._thread = LoopThread("cluster")
        self._thread.begin(self._run())

    def stop(self) -> None:
        """End both."""
        if self._thread is not None:
            self._thread.close()

    def present(self) -> Mapping[str, PodWorkload]:
        """See :class:`flowsched_agent.workloads.Workloads`."""
        return self._present

    def control(self, workload: Workload) -> Control:
        """See :class:`flowsched_agent.workloads.Workloads`."""
        assert isinstance(workload, PodWorkload)
        detected = self._actuator.detected
        control = control_of_pod(self._actuator.system, detected.hierarchies, workload, detected.one_way)
        return self._actuator.claimed(workload.spec.name, control)

    def report(self, status: Status) -> None:
        """Let the other thread write what is new."""
        self._status = status
        if self._thread is not None:
            self._thread.soon(self._news.set)

    async def _run(self) -> None:
        async with self._connection, asyncio.TaskGroup() as tasks:
            for pods in self._pods:
                tasks.create_task(self._follow(pods))
            tasks.create_task(self._write())

    async def _follow(self, pods: Reflector[NodePod]) -> None:
        while True:
            try:
                await pods.run()
            except Exception as error:  # Whatever the API server says, the machine is steered on.
                self._warn(f"the pods of the node are not known freshly: {error!r}")
                await asyncio.sleep(AGAIN_S)

    def _renew(self) -> None:
        found = {}
        for pod in (pod for pods in self._pods for pod in pods.cache.values()):
            read = read_pod(pod, self._catalogue, self._settings.scheduler_names)
            if isinstance(read, str):
                self._warn(read)
            elif read is not None:
                found[read.spec.name] = read
        self._present = found

    async def _write(self) -> None:
        while True:
            await self._news.wait()
            self._news.clear()
            assert self._status is not None
            present = self._present
            report = self._reporter.due(self._status, {name: workload.path for name, workload in present.items()})
            if report is None or self._dry_run:
                continue
            try:
                await self._send(report, present)
            except Exception as error:  # The next report says everything again.
                self._reporter.forget()
                told = error if isinstance(error, (ApiError, UnreachableError)) else repr(error)
                self._warn(f"a report was not written: {told}")

    async def _send(self, report: Report, present: Mapping[str, PodWorkload]) -> None:
        if report.node:
            await self._annotate(f"/api/v1/nodes/{self.node}", {"annotations": dict(report.node)})
        for name, notes in report.pods.items():
            try:
                await self._annotate(present[name].path, {"annotations": dict(notes), "uid": present[name].uid})
            except ApiError as error:
                # Gone, or made anew under the same name.
                if error.status not in (404, 409, 422):
                    raise

    async def _annotate(self, path: str, metadata: Mapping[str, Annotations | str]) -> None:
        """By way of the status: that grants no change of what runs in a pod or of the taints of a node."""
        body = {"metadata": metadata}
        reply = await self._connection.request("PATCH", f"{path}/status", body=body, content_type=MERGE)
        if not reply.ok:
            raise ApiError.of(reply)

    def _warn(self, text: str) -> None:
        if text not in self._told and len(self._told) < 1000:
            self._told.add(text)
            LOG.warning("%s", text)


def access_of(settings: Kubernetes) -> Access:
    """The named kubeconfig, else the cluster around the agent; no kubeconfig that happens to be on the node."""
    if settings.kubeconfig is None and not os.environ.get(IN_CLUSTER):
        help = "run the agent in a pod, or name a kubeconfig in kubernetes.kubeconfig"
        raise InputError.one("kubernetes", "there is no cluster around the agent", help, key="kubeconfig")
    return find_access(settings.kubeconfig, environment={IN_CLUSTER: "here"})
