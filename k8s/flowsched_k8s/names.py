"""Every name that operators, dashboards and autoscalers see, of the scheduler and of the node agent: they are interface."""

from __future__ import annotations

import re

PREFIX = "flowsched.io"
"""The one DNS prefix of the project."""
SCHEDULER_NAME = "flowsched"
CONFIG_VERSION = f"config.{PREFIX}/v1alpha1"
CONFIG_KIND = "FlowSchedulerConfiguration"
COMPONENT = "flowsched"
"""Lease, component of events, value of ``app.kubernetes.io/name``."""
FLOW = "flow"
"""The cost model, if nothing says otherwise."""

# On pods, as a label or an annotation; the annotation wins.
PROFILE = f"{PREFIX}/profile"
WORKLOAD_CLASS = f"{PREFIX}/workload-class"
SLO = f"{PREFIX}/slo"
SLO_FORM = re.compile(r"p95\s*=\s*([^@]+)(?:@\s*([^@]+))?", re.ASCII)
"""The latency, and the load that it is to hold at."""
LOAD = f"{PREFIX}/load"
"""Written by the agent: queries per second that the pod serves now. Rounds plan with it."""
CLIENT = f"{PREFIX}/client"
SCALE = f"{PREFIX}/scale"
GOAL = f"{PREFIX}/goal"
WIDTHS = f"{PREFIX}/widths"
MIN_UTILITY = f"{PREFIX}/min-utility"
RUN_TIME = f"{PREFIX}/run-time"
INTERFERENCE_CLASS = f"{PREFIX}/interference-class"
INPUT = f"{PREFIX}/input"
INPUT_AT = f"{PREFIX}/input-at"

RUN_CLASS = f"{PREFIX}/class"
"""A label alone: pods of one namespace with the same value are expected to run for as long as each other."""

# On pods of groups: the same on all that have it.
GROUP_TOPOLOGY = f"{PREFIX}/pod-group-topology"
DISRUPTION_MODE = f"{PREFIX}/disruption-mode"

# The ConfigMap of what completions taught is called as the lease, and this.
LEARNT = "learnt"

# Values of the workload class.
LATENCY_SENSITIVE = "latency-sensitive"
BATCH = "batch"

# Values of the disruption mode.
SINGLE = "single"
WHOLE = "all"

# Written on the binding, so that they are on the pod in the same write.
PLACEMENT = f"{PREFIX}/placement"
THREADS = f"{PREFIX}/threads"
CORES = f"{PREFIX}/cores"
WIDTH = f"{PREFIX}/width"

# Written on pods that wait.
ESTIMATED_START = f"{PREFIX}/estimated-start"

# On nodes.
MACHINE_TYPE = f"{PREFIX}/machine-type"
POOL = f"{PREFIX}/pool"
EMPTIED = f"{PREFIX}/emptied"
"""A taint that asks for no pods; its value is when the node was emptied."""
AVOIDED = "PreferNoSchedule"
"""The effect of a taint that a pod gets over."""

# On namespaces, read by the admission policies for tenants alone.
TENANT = f"{PREFIX}/tenant"
SERVICES = f"{PREFIX}/services"

# On the lease.
PREPARING = f"{PREFIX}/preparing"
"""uids of pods whose places are being prepared: of those that a process leaves there, one may be why it ended."""

# On nodes, written by the agent: ``name=value`` of each service, or plain words.
SERVICE_LOAD = f"{PREFIX}/service-load"
SERVICE_HEADROOM = f"{PREFIX}/service-headroom"
SERVICE_CORES = f"{PREFIX}/service-cores"
BATCH_TASKS = f"{PREFIX}/batch-tasks"

HOSTNAME = "kubernetes.io/hostname"
ZONE = "topology.kubernetes.io/zone"
INSTANCE_TYPE = "node.kubernetes.io/instance-type"

# Conditions, their reasons, reasons of events.
POD_SCHEDULED = "PodScheduled"
GRANTED = f"{PREFIX}/granted"
"""Of a latency service: the goal that keeps others off its node."""
BOUND = "Bound"
WITHDRAWN = "Withdrawn"
UNSCHEDULABLE = "Unschedulable"
SCHEDULER_ERROR = "SchedulerError"
DISRUPTION_TARGET = "DisruptionTarget"
PREEMPTION_BY_SCHEDULER = "PreemptionByScheduler"
EVICTION_BY_API = "EvictionByEvictionAPI"
FAILED_SCHEDULING = "FailedScheduling"
SCHEDULED = "Scheduled"
POSTPONED = "Postponed"
PREEMPTED = "Preempted"
REBALANCED = "Rebalanced"
GROUP_UNDONE = "GroupUndone"
PROFILES_REFUSED = "ProfilesRefused"
COUNTS_AS_GRANTED = "CountsAsGranted"

# Reason texts of filters: what follows the count in "0/N nodes are available: ...".
TOO_MANY_PODS = "Too many pods"
NODE_AFFINITY = "node(s) didn't match Pod's node affinity/selector"
TAINTS = "node(s) had untolerated taint(s)"
CORDONED = "node(s) were unschedulable"
DISK_CONFLICT = "node(s) had no available disk"
PORTS = "node(s) didn't have free ports for the requested pod ports"
POD_AFFINITY = "node(s) didn't match pod affinity rules"
POD_ANTI_AFFINITY = "node(s) didn't match pod anti-affinity rules"
EXISTING_ANTI_AFFINITY = "node(s) didn't satisfy existing pods anti-affinity rules"
GROUP_DOMAIN = "node(s) were outside of the topology domain of the pod group"
SPREAD = "node(s) didn't match pod topology spread constraints"
SPREAD_NO_LABEL = f"{SPREAD} (missing required label)"
VOLUME_AFFINITY = "node(s) didn't match PersistentVolume's node affinity"
NO_VOLUMES = "node(s) didn't find available persistent volumes to bind"
NO_STORAGE = "node(s) did not have enough free storage"
TOO_MANY_VOLUMES = "node(s) exceed max volume count"
VOLUME_LIMIT_PREFIX = "attachable-volumes-csi-"
"""Volumes of a CSI driver that a node takes, as if they were a resource."""
SERVICE_GOAL = "node(s) had a latency service whose p95 goal it would break"
CLAIM_IN_USE = "node has pod using PersistentVolumeClaim with the same name and ReadWriteOncePod access mode"
UNBOUND_CLAIMS = "pod has unbound immediate PersistentVolumeClaims"
NO_VICTIMS = "No preemption victims found for incoming pod"
PREEMPTION_NOT_HELPFUL = "Preemption is not helpful for scheduling"


def insufficient(resource: str) -> str:
    """The reason text of a resource that does not suffice."""
    if resource.startswith(VOLUME_LIMIT_PREFIX):
        return TOO_MANY_VOLUMES
    return TOO_MANY_PODS if resource == "pods" else f"Insufficient {resource}"
