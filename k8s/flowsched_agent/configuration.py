"""What an operator configures, as plain values. :mod:`flowsched_agent.configuration_form` reads them from a file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from flowsched.node import Deadline
from flowsched.support.address import Address

DEFAULT_STATE = Path("/run/flowsched/agent.json")
MEMCACHED_PORT = 11211
METRICS_PORT = 9464


@dataclass(frozen=True)
class Find:
    """How to find processes that somebody else started; exactly one of the fields is set."""

    pid: int | None = None
    pid_file: Path | None = None
    command_line: str | None = None
    """Regular expression that must match somewhere in the arguments, joined by single spaces."""
    cgroup: str | None = None
    """Path below the cgroup root."""
    container: str | None = None
    """Id of a container, or the first 12 or more characters of it."""
    port: int | None = None
    """The process that listens on this TCP port."""


@dataclass(frozen=True)
class Command:
    """A program that the agent starts."""

    argv: tuple[str, ...]
    directory: Path | None = None
    environment: Mapping[str, str] = field(default_factory=dict)
    output: Path | None = None
    """File for what it prints, appended; None: nowhere."""


@dataclass(frozen=True)
class ServiceSpec:
    """A latency service on this machine."""

    name: str
    find: Find
    host: str = "127.0.0.1"
    port: int = MEMCACHED_PORT
    socket: Path | None = None
    """A Unix socket, instead of host and port."""
    profile: str | None = None
    threads: int = 1
    slo_us: float = 1000.0
    client: str | None = None
    """None: the first client of the profile."""
    cores: tuple[int, ...] = ()
    """Cores that it may be given, in the order in which they are added; empty: all that may be used."""
    min_cores: int = 1
    weight: float = 1.0
    capacity: Mapping[int, float] = field(default_factory=dict)
    """Highest queries per second within the SLO by number of cores, measured on this machine."""


@dataclass(frozen=True)
class TaskSpec:
    """A batch job on this machine: processes that are found, or a command that is started."""

    name: str
    find: Find | None = None
    command: Command | None = None
    profile: str | None = None
    threads: int = 1
    scale: float = 1.0
    priority: int = 0
    deadline: Deadline | None = None


@dataclass(frozen=True)
class Controller:
    """Who decides."""

    name: str = "flow-node"
    """``flow-node``, or ``observe``: read and report, change nothing."""
    settings: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Kubernetes:
    """The agent as part of a cluster."""

    enabled: bool = False
    node_name: str | None = None
    kubeconfig: Path | None = None
    """None: the pod's own service account."""
    scheduler_names: tuple[str, ...] = ("flowsched",)
    report_s: float = 5.0
    """Shortest time between two reports."""
    report_change: float = 0.1
    """A load is reported again when it has changed by this share."""


@dataclass(frozen=True)
class Logging:
    """How logs are written."""

    format: str = "text"
    """``text`` or ``json``."""
    verbosity: int = 0


@dataclass(frozen=True)
class Configuration:
    """Everything that ``flowsched agent`` can be told."""

    machine_type: str | None = None
    """None: a type of this machine's size, with the speed of the reference type."""
    cores: tuple[int, ...] = ()
    """Cores that may be used; empty: all that this process is allowed."""
    period_s: float = 0.1
    services: tuple[ServiceSpec, ...] = ()
    tasks: tuple[TaskSpec, ...] = ()
    controller: Controller = field(default_factory=Controller)
    profiles_files: tuple[Path, ...] = ()
    kubernetes: Kubernetes = field(default_factory=Kubernetes)
    server: Address | None = field(default_factory=lambda: Address("", METRICS_PORT))
    """Where health and metrics are served; None: nowhere."""
    state_file: Path = DEFAULT_STATE
    on_exit: str = "leave"
    """What happens to started commands when the agent ends: ``leave`` or ``stop``."""
    stats_timeout_s: float = 0.05
    """A service that has not answered by then does not answer."""
    logging: Logging = field(default_factory=Logging)
    dry_run: bool = False

    @property
    def hands_off(self) -> bool:
        """Nothing on the machine is changed: a dry run, or a controller that only observes."""
        return self.dry_run or self.controller.name == "observe"
