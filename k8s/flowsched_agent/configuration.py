"""What an operator configures. :mod:`flowsched_agent.configuration_file` reads it from a file."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, PlainSerializer, TypeAdapter, ValidationInfo
from pydantic.alias_generators import to_camel

from flowsched.node import Deadline
from flowsched.support.address import Address, parse_address
from flowsched.support.configuration import Filled, Place, Section, Several, key, written
from flowsched.support.protected_server import ProtectedServer
from flowsched_k8s.names import PREFIX, SCHEDULER_NAME
from flowsched_models import form
from flowsched_models.form import DurationUs, Positive, PositiveInt, Rate, parse_name
from flowsched_models.quantity import (
    MAX_CORE,
    QuantityError,
    format_cores,
    format_duration_us,
    parse_cores,
    parse_duration_us,
    shown,
)

CONFIG_VERSION = f"agent.{PREFIX}/v1alpha1"
CONFIG_KIND = "NodeAgent"
DEFAULT_STATE = Path("/run/flowsched/agent.json")
MEMCACHED_PORT = 11211
METRICS_PORT = 9464
WEIGHT_RANGE = (2.0 / 1024.0, 256.0)
"""What Linux has between 2 and 262,144 shares."""
_CONTAINER = re.compile(r"[0-9a-f]{12,64}")
_RATES = TypeAdapter(dict[str, Rate])


def number_of_cores(text: str) -> int | None:
    """A key of ``capacity``; None for what is no number of cores."""
    return int(text) if re.fullmatch("[0-9]{1,4}", text) and 1 <= int(text) <= MAX_CORE else None


def _capacity(value: Any) -> dict[int, float]:
    """What has a number of cores as its key; the other keys are told with everything else that no key shows alone."""
    rates = _RATES.validate_python(value, strict=True)
    numbers = {cores: rate for text, rate in rates.items() if (cores := number_of_cores(text)) is not None}
    return {cores: numbers[cores] for cores in sorted(numbers)}


def _cores(value: Any) -> tuple[int, ...]:
    return () if value is None else parse_cores(value)


def _ordered_cores(value: Any) -> tuple[int, ...]:
    """A core set whose order counts where it is written as a list."""
    cores = _cores(value)
    if isinstance(value, (list, tuple)) and all(isinstance(core, int) for core in value):
        return tuple(value)
    return cores


def _address(value: Any) -> Address | None:
    return None if value == "" else parse_address(value, METRICS_PORT, '; "" for none')


def _loopback(value: Any) -> Address | None:
    address = _address(value)
    if address is not None and not address.is_loopback:
        help = f'write "127.0.0.1:{address.port}"; kubernetes.server has the addresses on the network of a cluster'
        raise QuantityError(f"{address} is not on loopback", help)
    return address


def _pattern(value: Any) -> Any:
    if isinstance(value, str):
        if not value:
            raise QuantityError("an empty pattern matches every process")
        try:
            re.compile(value)
        except re.error as error:
            raise QuantityError(f"{shown(value)} is not a regular expression: {error}") from None
    return value


def _container(value: Any) -> Any:
    if isinstance(value, str):
        value = value.rpartition("://")[2]
        if not _CONTAINER.fullmatch(value):
            raise QuantityError(f"{shown(value)} is not the id of a container", "12 to 64 characters of 0-9 and a-f")
    return value


def _cgroup(value: Any) -> Any:
    if isinstance(value, str):
        parts = value.strip("/").split("/")
        if not value.strip("/") or ".." in parts or "." in parts or "" in parts or "\0" in value:
            raise QuantityError(
                f"{shown(value)} is not the path of a cgroup", "give it below the cgroup root: batch/one"
            )
        return value.strip("/")
    return value


def _listener(value: Any, info: ValidationInfo) -> Any:
    return Find(port=info.data.get("port")) if value is None else value


Name = Annotated[str, written(parse_name, str)]
Seconds = Annotated[
    float,
    written(lambda value: parse_duration_us(value) / 1e6, DurationUs),
    PlainSerializer(lambda seconds: format_duration_us(seconds * 1e6).replace(" ", "")),
]
Microseconds = Annotated[float, written(parse_duration_us, DurationUs)]
_AnyCores = PlainSerializer(lambda cores: format_cores(cores) or None)
CoreSet = Annotated[tuple[int, ...], written(_cores, form.CoreSet | None), _AnyCores]
OrderedCores = Annotated[tuple[int, ...], written(_ordered_cores, form.CoreSet | None), _AnyCores]
Port = Annotated[int, Field(ge=1, le=65535)]


class Find(Section):
    """How to find processes that another program started; in a file exactly one of the keys is set."""

    pid: PositiveInt | None = key("process id")
    pid_file: Place | None = key("file that holds the process id; read again when the process is gone")
    command_line: Annotated[str, BeforeValidator(_pattern)] | None = key(
        "regular expression that matches in the arguments joined by spaces"
    )
    cgroup: Annotated[str, BeforeValidator(_cgroup)] | None = key("cgroup, as a path below its root")
    container: Annotated[str, BeforeValidator(_container)] | None = key(
        "id of a container, at least its first 12 characters"
    )
    port: Port | None = key("the process that listens on this TCP port")

    def ways(self) -> list[str]:
        """The keys that are given."""
        return [to_camel(name) for name in type(self).model_fields if getattr(self, name) is not None]


class Slo(Section):
    """Latency that shall be kept."""

    p95_us: Microseconds = Field(description="95th percentile of the latency that shall be kept")


class ServiceSpec(Section):
    """A latency service on this machine."""

    name: Name = Field(description="name in logs, metrics and reports")
    profile: Name | None = key("profile of the service; may be left out where `capacity` is given")
    host: str = key("address of the service", "127.0.0.1")
    port: Port = key("TCP port of the service", MEMCACHED_PORT)
    socket: Place | None = key("Unix socket of the service, instead of host and port")
    find: Annotated[Find, BeforeValidator(_listener, json_schema_input_type=Find | None)] = key(
        "how to find its process; default: the process that listens on `port`", validate_default=True
    )
    threads: PositiveInt = key("worker threads of the service", 1)
    slo: Slo
    client: Name | None = key("load client of the profile; default: its first")
    cores: OrderedCores = key("cores it may be given; a list is taken in its order. Default: all", ())
    min_cores: PositiveInt = key("it never has fewer", 1)
    weight: Annotated[float, Field(ge=WEIGHT_RANGE[0], le=WEIGHT_RANGE[1])] = key(
        "CPU weight relative to the default of Linux", 1.0
    )
    capacity: Annotated[dict[int, float], written(_capacity, dict[str, Rate])] = key(
        "highest load within the SLO by number of cores, measured on this machine: `{1: 25K, 2: 30K}`", {}
    )

    @property
    def slo_us(self) -> float:
        """The 95th percentile that shall be kept."""
        return self.slo.p95_us


class Command(Section):
    """A program that the agent starts."""

    argv: Annotated[tuple[str, ...], Several, Filled] = Field(description="program and arguments")
    directory: Annotated[Place | None, written(lambda value: "." if value is None else value, str | None)] = key(
        "folder it starts in; default: that of this file", validate_default=True
    )
    environment: dict[str, str] = key("added to the agent's own environment", {})
    output: Place | None = key("file for what it prints, appended; default: nowhere")


class TaskDeadline(Section):
    """Bandwidth of a task."""

    runtime_us: Microseconds = Field(description="CPU time owed in every period, with a margin of 10 % or more")
    period_us: Microseconds = Field(description="the period")

    @property
    def owed(self) -> Deadline:
        """As the controller knows it."""
        return Deadline(self.runtime_us, self.period_us)


class TaskSpec(Section):
    """A batch job on this machine: processes that are found, or a command that is started."""

    name: Name = Field(description="name in logs, metrics and reports")
    profile: Name | None = key("profile of the job; default: `neutral`")
    find: Find | None = key("processes that another program started")
    command: Command | None = key("a program that the agent starts, instead of `find`")
    threads: PositiveInt = key("threads of the job", 1)
    scale: Positive = key("its work relative to the profile's", 1.0)
    run_class: Name | None = key(
        "tasks of one class run for as long as each other, relative to their profiles; default: the name without a number "
        "at its end",
        alias="class",
    )
    priority: int = key("deadlines of higher priority are admitted first", 0)
    deadline: TaskDeadline | None = key("bandwidth that it is owed")


class Controller(Section):
    """Who decides."""

    name: Literal["flow-node", "observe"] = key("`flow-node`, or `observe`: report and change nothing", "flow-node")
    settings: dict[str, Any] = key("settings of the controller in camelCase", {})


_Address = PlainSerializer(str)


class ClusterServer(ProtectedServer):
    """What the agent serves on the network of a cluster."""

    health: Annotated[Annotated[Address, _Address] | None, written(_address, str)] = key(
        "address of `/livez`, `/readyz` and `/healthz`; default: none"
    )
    metrics: Annotated[Annotated[Address, _Address] | None, written(_address, str)] = key(
        "address of `/metrics`, by TLS; default: none"
    )


class Kubernetes(Section):
    """The agent as part of a cluster."""

    enabled: bool = key("steer the pods of this node, and report", False)
    node_name: Name | None = key("name of this node; default: `$NODE_NAME`")
    kubeconfig: Place | None = key("kubeconfig file; default: the pod's own service account")
    scheduler_names: Annotated[tuple[Name, ...], Several, Filled] = key(
        "pods of these schedulers are steered", (SCHEDULER_NAME,)
    )
    namespaces: Annotated[tuple[Name, ...], Several] = key(
        "pods of these namespaces are read and steered, and no right beyond these is needed. Default: all", ()
    )
    report_s: Seconds = key("shortest time between two reports", 5.0)
    report_change: Annotated[float, Field(gt=0, le=10)] = key(
        "a load is reported again when it changed by this share", 0.1
    )
    server: ClusterServer = ClusterServer()


class Logging(Section):
    """How logs are written."""

    format: Literal["text", "json"] = key("`text`, or `json` for one object per line", "text")
    verbosity: Annotated[int, Field(ge=0, le=10)] = key("0: what happens; 1: and why", 0)


class Configuration(Section):
    """Everything that ``flowsched agent`` can be told."""

    api_version: Literal["agent.flowsched.io/v1alpha1"] = key("version of this file", CONFIG_VERSION, examples=[""])
    kind: Literal["NodeAgent"] = key("kind of this file", CONFIG_KIND, examples=[""])
    machine_type: Name | None = key("machine type of the profiles; default: one made after this machine")
    cores: CoreSet = key("cores that may be used; default: all that the agent itself may use", ())
    period_s: Seconds = key("time between two decisions", 0.1)
    stats_timeout_s: Seconds = key("a service that has not answered by then does not", 0.05)
    services: Annotated[tuple[ServiceSpec, ...], Several] = ()
    tasks: Annotated[tuple[TaskSpec, ...], Several] = ()
    controller: Controller = Controller()
    learning: Literal["off", "observe", "on"] = key(
        "completions of commands teach how long others of their class run: `on`, not at all (`off`), or for metrics alone "
        "(`observe`)",
        "observe",
    )
    profiles_files: Annotated[tuple[Place, ...], Several] = key("profiles besides the bundled ones", ())
    kubernetes: Kubernetes = Kubernetes()
    server: Annotated[Annotated[Address, _Address] | None, written(_loopback, str)] = key(
        'address on loopback of metrics and health; "" for none', Address("127.0.0.1", METRICS_PORT)
    )
    state_file: Place = key("what was changed, so that it can be restored", DEFAULT_STATE)
    on_exit: Literal["leave", "stop"] = key("started commands go on or are stopped when the agent ends", "leave")
    logging: Logging = Logging()
    dry_run: bool = key("read and decide, change nothing", False)

    @property
    def hands_off(self) -> bool:
        """Nothing on the machine is changed: a dry run, or a controller that only observes."""
        return self.dry_run or self.controller.name == "observe"
