"""What an operator configures, as plain values. :mod:`flowsched_k8s.configuration_form` reads them from a file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from flowsched.cluster.settings import Settings
from flowsched.support.address import Address
from flowsched_k8s.names import COMPONENT, SCHEDULER_NAME

FLOW = "flow"
"""The cost model, if nothing says otherwise."""
DEFAULT_NAMESPACE = f"{COMPONENT}-system"
"""Where flowsched runs, if nothing says otherwise."""
HEALTH_PORT = 8081
_HEALTH, _METRICS = Address("", HEALTH_PORT), Address("", 8443)


@dataclass(frozen=True)
class ClientConnection:
    """How to talk to the API server."""

    kubeconfig: Path | None = None
    """None: the usual places, or the pod's own service account."""
    qps: float = 1000.0
    """Requests per second on average."""
    burst: int = 2000
    """Requests at once."""


@dataclass(frozen=True)
class LeaderElection:
    """One of several replicas decides; the others wait."""

    leader_elect: bool = True
    lease_duration_s: float = 15.0
    renew_deadline_s: float = 10.0
    retry_period_s: float = 2.0
    resource_lock: str = "leases"
    resource_name: str = COMPONENT
    resource_namespace: str = DEFAULT_NAMESPACE


@dataclass(frozen=True)
class Rounds:
    """When a round starts."""

    batch_window_s: float = 0.02
    batch_limit: int = 2000
    max_period_s: float = 5.0
    unschedulable_retry_s: float = 300.0
    reconcile_every_s: float = 600.0


@dataclass(frozen=True)
class CostModelChoice:
    """What says what a place costs."""

    name: str = FLOW
    settings: Mapping[str, Any] = field(default_factory=dict)
    """Those that are not at their defaults, as the cost model names them; ``flow`` has its own in the engine's."""

    @property
    def is_flow(self) -> bool:
        """Whether pods are placed by forecasts, those without a profile by linear prices."""
        return self.name == FLOW


@dataclass(frozen=True)
class GpuResource:
    """An extended resource whose units are GPUs, which the engine knows as devices."""

    resource: str = "nvidia.com/gpu"
    model_label: str = "nvidia.com/gpu.product"
    """Label of nodes with the model."""
    memory_label: str = "nvidia.com/gpu.memory"
    """Label of nodes with the memory of each, in MiB."""


@dataclass(frozen=True)
class Features:
    """What can be left out, each with the permissions it needs."""

    volumes: bool = True
    pod_groups: tuple[str, ...] = ("scheduling.x-k8s.io", "labels")
    namespace_selector: bool = True
    preemption: bool = False
    resize: bool = False
    rebalancing: bool = False


@dataclass(frozen=True)
class RebalancingSettings:
    """When and at which price running pods are moved to other nodes."""

    interval_s: float = 60.0
    """Time between two looks."""
    price: float = 0.1
    """What each move must gain, in the unit of the engine's costs."""
    restart_s: float = 10.0
    """How long a moved pod's program stands still."""
    empty_node_gain: float = 0.0
    """What a node without pods is worth; 0: no node is emptied."""
    cool_down_s: float = 600.0
    """A pod has run so long before it is moved, and nothing is moved for so long after somebody else evicted a pod."""
    max_moves: int = 8
    """Most pods moved at a time."""
    dry_run: bool = False
    """Say what would be moved, move nothing."""


@dataclass(frozen=True)
class LoadSettings:
    """Where the load and latency of services come from."""

    kind: str = "annotation"
    """``annotation`` or ``prometheus``."""
    url: str | None = None
    query: str | None = None
    """Queries per second by pod."""
    latency_query: str | None = None
    """p95 in seconds by pod."""
    interval_s: float = 15.0
    stale_after_s: float = 60.0
    timeout_s: float = 5.0


@dataclass(frozen=True)
class RecordSettings:
    """How many records of rounds are kept, and in which folder besides memory."""

    keep: int = 50
    directory: Path | None = None


@dataclass(frozen=True)
class Events:
    """A file of what happens in the cluster and what is decided, for ``flowsched simulate``."""

    file: Path | None = None
    """None: nothing is recorded."""
    max_size_mib: int = 256
    """A larger file is followed by another one."""
    keep: int = 2
    """Files in all."""


@dataclass(frozen=True)
class ServerSettings:
    """Where health, metrics and debugging are served; both may be the same."""

    health: Address = _HEALTH
    metrics: Address = _METRICS


@dataclass(frozen=True)
class Logging:
    """How logs are written."""

    format: str = "text"
    """``text`` or ``json``."""
    verbosity: int = 0


@dataclass(frozen=True)
class Configuration:
    """Everything that ``flowsched run`` can be told."""

    client_connection: ClientConnection = field(default_factory=ClientConnection)
    leader_election: LeaderElection = field(default_factory=LeaderElection)
    scheduler_names: tuple[str, ...] = (SCHEDULER_NAME,)
    node_selector: Mapping[str, str] = field(default_factory=dict)
    """Labels that a node must have to be ours; empty: every node."""
    rounds: Rounds = field(default_factory=Rounds)
    pod_initial_backoff_s: float = 1.0
    pod_max_backoff_s: float = 10.0
    engine: Settings = field(default_factory=Settings)
    cost_model: CostModelChoice = field(default_factory=CostModelChoice)
    gpus: tuple[GpuResource, ...] = (GpuResource(),)
    """In the order of preference where a node has several; empty: GPUs are counted like other extended resources."""
    profiles_file: Path | None = None
    features: Features = field(default_factory=Features)
    rebalancing: RebalancingSettings = field(default_factory=RebalancingSettings)
    load_source: LoadSettings = field(default_factory=LoadSettings)
    records: RecordSettings = field(default_factory=RecordSettings)
    events: Events = field(default_factory=Events)
    server: ServerSettings = field(default_factory=ServerSettings)
    logging: Logging = field(default_factory=Logging)
    dry_run: bool = False
