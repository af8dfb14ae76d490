"""Every name that operators, dashboards and the cluster scheduler see. Strings here are interface.

The annotations of pods are those of the cluster scheduler, letter for letter; a test compares them.
"""

from __future__ import annotations

PREFIX = "flowsched.io"
"""The one DNS prefix of the project."""
CONFIG_VERSION = f"agent.{PREFIX}/v1alpha1"
CONFIG_KIND = "NodeAgent"
SCHEDULER_NAME = "flowsched"

# On pods, as a label or an annotation; the annotation wins.
PROFILE = f"{PREFIX}/profile"
WORKLOAD_CLASS = f"{PREFIX}/workload-class"
SLO = f"{PREFIX}/slo"
LOAD = f"{PREFIX}/load"
"""Written by the agent: queries per second that the pod serves now. The cluster scheduler plans with it."""
CLIENT = f"{PREFIX}/client"
SCALE = f"{PREFIX}/scale"

# Written by the cluster scheduler when it binds.
CORES = f"{PREFIX}/cores"
WIDTH = f"{PREFIX}/width"
THREADS = f"{PREFIX}/threads"

LATENCY_SENSITIVE = "latency-sensitive"
BATCH = "batch"

# On nodes, written by the agent: ``name=value`` of each service, or plain words.
SERVICE_LOAD = f"{PREFIX}/service-load"
SERVICE_HEADROOM = f"{PREFIX}/service-headroom"
SERVICE_CORES = f"{PREFIX}/service-cores"
BATCH_TASKS = f"{PREFIX}/batch-tasks"
