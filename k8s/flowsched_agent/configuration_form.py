"""The configuration file of the agent: read strictly, with all mistakes at once, each with its line."""

from __future__ import annotations

import itertools
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, ConfigDict, Field, WithJsonSchema
from pydantic.alias_generators import to_camel

from flowsched.node import Deadline
from flowsched.support.address import Address, parse_address
from flowsched_agent.catalogue import catalogue_of, known_settings
from flowsched_agent.configuration import (
    DEFAULT_STATE,
    MEMCACHED_PORT,
    METRICS_PORT,
    Command,
    Configuration,
    Controller,
    Find,
    Kubernetes,
    Logging,
    ServiceSpec,
    TaskSpec,
)
from flowsched_agent.names import CONFIG_KIND, CONFIG_VERSION, SCHEDULER_NAME
from flowsched_models.catalogue import Catalogue
from flowsched_models.document import Document, InputError, KeyPath, Problem, Problems, name_help, read_document
from flowsched_models.form import CoreSet, DurationUs, Form, Name, Positive, PositiveInt, Rate, check
from flowsched_models.quantity import (
    MAX_CORE,
    QuantityError,
    format_cores,
    format_duration_us,
    format_rate,
    parse_cores,
    parse_duration_us,
    shown,
)

SHORTEST_PERIOD_S = 0.01
LONGEST_PERIOD_S = 10.0
WEIGHT_RANGE = (2.0 / 1024.0, 256.0)
"""What Linux has between 2 and 262,144 shares."""
_CONTAINER = re.compile(r"[0-9a-f]{12,64}")


def _ordered_cores(value: Any) -> tuple[int, ...]:
    """A core set whose order counts where it is written as a list."""
    cores = parse_cores(value)
    if isinstance(value, (list, tuple)) and all(isinstance(core, int) for core in value):
        return tuple(value)
    return cores


def _seconds(value: Any) -> float:
    return parse_duration_us(value) / 1e6


def _address(value: Any) -> Any:
    return None if value == "" else parse_address(value, METRICS_PORT, '; "" for none')


def _place(value: Any) -> Any:
    if isinstance(value, str) and (not value or "\0" in value):
        raise QuantityError(f"{shown(value)} is not the name of a file")
    return value


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


Seconds = Annotated[
    float,
    BeforeValidator(_seconds),
    WithJsonSchema({"type": "string", "description": "duration with its unit: 100ms, 5s"}),
]
OrderedCores = Annotated[
    tuple[int, ...],
    BeforeValidator(_ordered_cores),
    WithJsonSchema({"type": ["string", "integer", "array"], "description": "core set; a list keeps its order"}),
]
Place = Annotated[str, BeforeValidator(_place)]
Pattern = Annotated[str, BeforeValidator(_pattern)]
Listen = Annotated[Any, BeforeValidator(_address)]
ContainerId = Annotated[str, BeforeValidator(_container)]
CgroupPath = Annotated[str, BeforeValidator(_cgroup)]
Port = Annotated[int, Field(ge=1, le=65535)]
Weight = Annotated[float, Field(ge=WEIGHT_RANGE[0], le=WEIGHT_RANGE[1])]


class AgentForm(Form):
    """Base: keys are camelCase in the file."""

    model_config = ConfigDict(alias_generator=to_camel)


def _key(meaning: str, default: Any = None) -> Any:
    return Field(default=default, description=meaning)


class FindForm(AgentForm):
    """find"""

    pid: PositiveInt | None = _key("process id")
    pid_file: Place | None = _key("file that holds the process id; read again when the process is gone")
    command_line: Pattern | None = _key("regular expression that matches in the arguments joined by spaces")
    cgroup: CgroupPath | None = _key("cgroup, as a path below its root")
    container: ContainerId | None = _key("id of a container, at least its first 12 characters")
    port: Port | None = _key("the process that listens on this TCP port")

    def value(self, document: Document) -> Find:
        """The plain value."""
        file = None if self.pid_file is None else document.beside(self.pid_file)
        return Find(self.pid, file, self.command_line, self.cgroup, self.container, self.port)

    def ways(self) -> list[str]:
        """The keys that are given."""
        return [to_camel(name) for name in type(self).model_fields if getattr(self, name) is not None]


class SloForm(AgentForm):
    """slo"""

    p95: DurationUs = Field(description="95th percentile of the latency that shall be kept")


class ServiceForm(AgentForm):
    """services[]"""

    name: Name = Field(description="name in logs, metrics and reports")
    profile: Name | None = _key("profile of the service; may be left out where `capacity` is given")
    host: str = _key("address of the service", ServiceSpec.host)
    port: Port = _key("TCP port of the service", MEMCACHED_PORT)
    socket: Place | None = _key("Unix socket of the service, instead of host and port")
    find: FindForm | None = _key("how to find its process; default: the process that listens on `port`")
    threads: PositiveInt = _key("worker threads of the service", ServiceSpec.threads)
    slo: SloForm = Field(description="latency that shall be kept")
    client: Name | None = _key("load client of the profile; default: its first")
    cores: OrderedCores | None = _key("cores it may be given; a list is taken in its order. Default: all")
    min_cores: PositiveInt = _key("it never has fewer", ServiceSpec.min_cores)
    weight: Weight = _key("CPU weight relative to the default of Linux", ServiceSpec.weight)
    capacity: dict[str, Rate] = Field(
        default_factory=dict,
        description="highest load within the SLO by number of cores, measured on this machine: `{1: 25K, 2: 30K}`",
    )


class CommandForm(AgentForm):
    """command"""

    argv: Annotated[list[str], Field(min_length=1)] = Field(description="program and arguments")
    directory: Place | None = _key("folder it starts in; default: that of this file")
    environment: dict[str, str] = Field(default_factory=dict, description="added to the agent's own environment")
    output: Place | None = _key("file for what it prints, appended; default: nowhere")

    def value(self, document: Document) -> Command:
        """The plain value."""
        return Command(
            tuple(self.argv),
            document.beside(self.directory or "."),
            dict(self.environment),
            _beside(document, self.output),
        )


class DeadlineForm(AgentForm):
    """deadline"""

    runtime: DurationUs = Field(description="CPU time owed in every period, with a margin of 10 % or more")
    period: DurationUs = Field(description="the period")


class TaskForm(AgentForm):
    """tasks[]"""

    name: Name = Field(description="name in logs, metrics and reports")
    profile: Name | None = _key("profile of the job; default: `neutral`")
    find: FindForm | None = _key("processes that somebody else started")
    command: CommandForm | None = _key("a program that the agent starts, instead of `find`")
    threads: PositiveInt = _key("threads of the job", TaskSpec.threads)
    scale: Positive = _key("its work relative to the profile's", TaskSpec.scale)
    priority: int = _key("deadlines of higher priority are admitted first", TaskSpec.priority)
    deadline: DeadlineForm | None = _key("bandwidth that it is owed")


class ControllerForm(AgentForm):
    """controller"""

    name: Literal["flow-node", "observe"] = _key("`flow-node`, or `observe`: report and change nothing", "flow-node")
    settings: dict[str, Any] = Field(default_factory=dict, description="settings of the controller in camelCase")


class KubernetesForm(AgentForm):
    """kubernetes"""

    enabled: bool = _key("steer the pods of this node, and report", Kubernetes.enabled)
    node_name: Name | None = _key("name of this node; default: `$NODE_NAME`")
    kubeconfig: Place | None = _key("kubeconfig file; default: the pod's own service account")
    scheduler_names: Annotated[list[Name], Field(min_length=1)] = _key(
        "pods of these schedulers are steered", [SCHEDULER_NAME]
    )
    report: Seconds = _key("shortest time between two reports", Kubernetes.report_s)
    report_change: Annotated[float, Field(gt=0, le=10)] = _key(
        "a load is reported again when it changed by this share", Kubernetes.report_change
    )


class LoggingForm(AgentForm):
    """logging"""

    format: Literal["text", "json"] = _key("`text`, or `json` for one object per line", Logging.format)
    verbosity: Annotated[int, Field(ge=0, le=10)] = _key("0: what happens; 1: and why", Logging.verbosity)


class ConfigurationForm(AgentForm):
    """The whole file"""

    api_version: Literal["agent.flowsched.io/v1alpha1"] = Field(description="version of this file")
    kind: Literal["NodeAgent"] = Field(description="kind of this file")
    machine_type: Name | None = _key("machine type of the profiles; default: one made after this machine")
    cores: CoreSet | None = _key("cores that may be used; default: all that the agent itself may use")
    period: Seconds = _key("time between two decisions", Configuration.period_s)
    stats_timeout: Seconds = _key("a service that has not answered by then does not", Configuration.stats_timeout_s)
    services: list[ServiceForm] = Field(default_factory=list, description="latency services of this machine")
    tasks: list[TaskForm] = Field(default_factory=list, description="batch jobs of this machine")
    controller: ControllerForm = Field(default_factory=ControllerForm, description="who decides")
    profiles_files: list[Place] = Field(default_factory=list, description="profiles besides the bundled ones")
    kubernetes: KubernetesForm = Field(default_factory=KubernetesForm, description="the agent in a cluster")
    server: Listen = Field(
        default_factory=lambda: Address("", METRICS_PORT), description='address of metrics and health; "" for none'
    )
    state_file: Place = _key("what was changed, so that it can be restored", str(DEFAULT_STATE))
    on_exit: Literal["leave", "stop"] = _key("started commands go on or are stopped when the agent ends", "leave")
    logging: LoggingForm = Field(default_factory=LoggingForm, description="how logs are written")
    dry_run: bool = _key("read and decide, change nothing", Configuration.dry_run)


def load_configuration(path: Path) -> Configuration:
    """The configuration in a file. Raises :class:`InputError` with every mistake in it."""
    document = read_document(path)
    _check_header(document)
    checked = check(document, ConfigurationForm, placeholders={"apiVersion": CONFIG_VERSION, "kind": CONFIG_KIND})
    found = Problems()
    found.extend(checked.problems)
    form = checked.value
    if form is None:
        found.raise_any()
        raise AssertionError("a form without a value has problems")
    places = {
        "services": [place for place, _ in checked.items("services", form.services)],
        "tasks": [place for place, _ in checked.items("tasks", form.tasks)],
    }
    found.extend(_conflicts(document, form, places))
    profiles_files = tuple(document.beside(name) for name in form.profiles_files)
    try:
        catalogue = catalogue_of(profiles_files)
    except InputError as error:
        found.extend(error.problems)
    else:
        found.extend(_unknown_names(document, form, places, catalogue))
    found.raise_any()
    return Configuration(
        machine_type=form.machine_type,
        cores=form.cores or (),
        period_s=form.period,
        services=tuple(_service(document, s) for s in form.services),
        tasks=tuple(_task(document, t) for t in form.tasks),
        controller=Controller(form.controller.name, dict(form.controller.settings)),
        profiles_files=profiles_files,
        kubernetes=_kubernetes(document, form.kubernetes),
        server=form.server,
        state_file=document.beside(form.state_file),
        on_exit=form.on_exit,
        stats_timeout_s=form.stats_timeout,
        logging=Logging(form.logging.format, form.logging.verbosity),
        dry_run=form.dry_run,
    )


def _service(document: Document, form: ServiceForm) -> ServiceSpec:
    return ServiceSpec(
        name=form.name,
        find=form.find.value(document) if form.find is not None else Find(port=form.port),
        host=form.host,
        port=form.port,
        socket=_beside(document, form.socket),
        profile=form.profile,
        threads=form.threads,
        slo_us=form.slo.p95,
        client=form.client,
        cores=form.cores or (),
        min_cores=form.min_cores,
        weight=form.weight,
        capacity={int(n): qps for n, qps in sorted(form.capacity.items(), key=lambda item: int(item[0]))},
    )


def _task(document: Document, form: TaskForm) -> TaskSpec:
    deadline = form.deadline
    return TaskSpec(
        name=form.name,
        find=None if form.find is None else form.find.value(document),
        command=None if form.command is None else form.command.value(document),
        profile=form.profile,
        threads=form.threads,
        scale=form.scale,
        priority=form.priority,
        deadline=None if deadline is None else Deadline(deadline.runtime, deadline.period),
    )


def _kubernetes(document: Document, form: KubernetesForm) -> Kubernetes:
    return Kubernetes(
        enabled=form.enabled,
        node_name=form.node_name,
        kubeconfig=_beside(document, form.kubeconfig),
        scheduler_names=tuple(form.scheduler_names),
        report_s=form.report,
        report_change=form.report_change,
    )


def _check_header(document: Document) -> None:
    wanted = {"apiVersion": CONFIG_VERSION, "kind": CONFIG_KIND}
    found = [
        document.problem((key,), f"must be {value} here, but is {shown(document.data[key])}")
        for key, value in wanted.items()
        if key in document.data and document.data[key] != value
    ]
    if found:
        raise InputError(found)


Places = Mapping[str, list[KeyPath]]


def _conflicts(document: Document, form: ConfigurationForm, places: Places) -> Iterator[Problem]:
    """What no key shows alone."""
    if not SHORTEST_PERIOD_S <= form.period <= LONGEST_PERIOD_S:
        yield document.problem(
            ("period",), f"must be from 10 ms to 10 s, but is {format_duration_us(form.period * 1e6)}"
        )
    if form.stats_timeout >= form.period:
        yield document.problem(
            ("statsTimeout",) if "statsTimeout" in document.data else ("period",),
            f"statsTimeout ({format_duration_us(form.stats_timeout * 1e6)}) must be shorter than period "
            f"({format_duration_us(form.period * 1e6)})",
            "a tick must be able to wait for an answer",
        )
    names = [*document.names("services"), *document.names("tasks")]
    twice = {name for name, count in Counter(names).items() if count > 1}
    named = [(s.name, p) for s, p in zip(form.services, places["services"], strict=True)]
    named += [(t.name, p) for t, p in zip(form.tasks, places["tasks"], strict=True)]
    for name, place in named:
        if name in twice:
            yield document.problem((*place, "name"), f"'{name}' stands twice", "names are unique in this file")
    for place, service in zip(places["services"], form.services, strict=True):
        yield from _service_conflicts(document, place, service, form)
    for place, task in zip(places["tasks"], form.tasks, strict=True):
        yield from _task_conflicts(document, place, task)
    if not form.services and not form.tasks and not form.kubernetes.enabled and "services" not in document.data:
        yield document.problem((), "there is nothing to look after", "name services and tasks, or enable kubernetes")


def _service_conflicts(
    document: Document, place: KeyPath, service: ServiceForm, form: ConfigurationForm
) -> Iterator[Problem]:
    if service.find is not None:
        yield from _find_conflicts(document, (*place, "find"), service.find)
    elif service.socket is not None:
        yield document.problem((*place, "find"), "is missing", "behind a Unix socket the process must be named")
    if service.cores is not None and form.cores is not None and (strange := set(service.cores) - set(form.cores)):
        yield document.problem(
            (*place, "cores"),
            f"core {format_cores(strange)} is not among the cores that may be used ({format_cores(form.cores)})",
        )
    cores = service.cores if service.cores is not None else form.cores
    if cores is not None and service.min_cores > len(cores):
        yield document.problem(
            (*place, "minCores"), f"must be at most the number of its cores ({len(cores)}), but is {service.min_cores}"
        )
    yield from _capacity_conflicts(document, place, service)
    if service.profile is None and not service.capacity:
        yield document.problem(
            (*place, "profile"),
            "is missing",
            "name a profile, or state what was measured: 'capacity: {1: 25K, 2: 30K}'",
        )


def _capacity_conflicts(document: Document, place: KeyPath, service: ServiceForm) -> Iterator[Problem]:
    numbers = {}
    for key, qps in service.capacity.items():
        where = (*place, "capacity", key)
        if not re.fullmatch("[0-9]{1,4}", key) or not 1 <= int(key) <= MAX_CORE:
            yield document.problem(where, f"'{key}' is not a number of cores")
        elif qps <= 0:
            yield document.problem(where, "must be more than 0 queries per second")
        else:
            numbers[int(key)] = qps
    order = sorted(numbers)
    for few, many in itertools.pairwise(order):
        if numbers[many] < numbers[few]:
            yield document.problem(
                (*place, "capacity", str(many)),
                f"{format_rate(numbers[many])} on {many} cores is less than {format_rate(numbers[few])} on {few}",
                "more cores never carry less",
            )


def _task_conflicts(document: Document, place: KeyPath, task: TaskForm) -> Iterator[Problem]:
    if (task.find is None) == (task.command is None):
        yield document.problem(
            (*place, "find"),
            "stands beside command" if task.find is not None else "is missing",
            "give either find (processes that run) or command (a program to start)",
        )
    if task.find is not None:
        yield from _find_conflicts(document, (*place, "find"), task.find)
    if task.deadline is not None and task.deadline.runtime > task.deadline.period:
        yield document.problem(
            (*place, "deadline", "runtime"),
            f"must not be longer than period ({format_duration_us(task.deadline.period)})",
        )


def _find_conflicts(document: Document, place: KeyPath, find: FindForm) -> Iterator[Problem]:
    ways = find.ways()
    if len(ways) != 1:
        given = f"{len(ways)} ways are given ({', '.join(ways)})" if ways else "no way is given"
        yield document.problem(place, given, "give exactly one of pid, pidFile, commandLine, cgroup, container, port")


def _unknown_names(
    document: Document, form: ConfigurationForm, places: Places, catalogue: Catalogue
) -> Iterator[Problem]:
    """Names that the profiles do not have, and settings that the controller does not know."""
    if form.machine_type is not None and form.machine_type not in catalogue.machine_types:
        yield document.problem(
            ("machineType",),
            f"there is no machine type '{form.machine_type}'",
            name_help(form.machine_type, catalogue.machine_types),
        )
    for place, service in zip(places["services"], form.services, strict=True):
        if service.profile is None:
            continue
        if service.profile not in catalogue.services:
            yield document.problem(
                (*place, "profile"),
                f"there is no service profile '{service.profile}'",
                name_help(service.profile, catalogue.services),
            )
        elif service.client is not None and service.client not in catalogue.services[service.profile].clients:
            yield document.problem(
                (*place, "client"),
                f"profile {service.profile} was not measured with client '{service.client}'",
                name_help(service.client, catalogue.services[service.profile].clients),
            )
    for place, task in zip(places["tasks"], form.tasks, strict=True):
        if task.profile is not None and task.profile not in catalogue.jobs:
            yield document.problem(
                (*place, "profile"),
                f"there is no job profile '{task.profile}'",
                name_help(task.profile, catalogue.jobs),
            )
    known = known_settings()
    for key, value in form.controller.settings.items():
        where = ("controller", "settings", key)
        if key not in known:
            yield document.problem(where, f"there is no key '{key}' here", name_help(key, known))
        elif (wrong := known[key].wrong(value)) is not None:
            yield document.problem(where, wrong)


def _beside(document: Document, name: str | None) -> Path | None:
    return None if name is None else document.beside(name)


@dataclass(frozen=True)
class Key:
    """One key of the file."""

    key: str
    """With the keys around it: ``kubernetes.nodeName``."""
    default: str
    meaning: str


def reference() -> tuple[Key, ...]:
    """Every key of the file, in its order."""
    return tuple(_reference(ConfigurationForm, ""))


def reference_table() -> str:
    """The keys as a Markdown table, for the documentation."""
    rows = [f"| `{k.key}` | {f'`{k.default}`' if k.default else ''} | {k.meaning} |" for k in reference()]
    return "\n".join(["| Key | Default | Meaning |", "|---|---|---|", *rows]) + "\n"


_INNER: Mapping[str, tuple[str, type[AgentForm]]] = {
    "services": ("services[]", ServiceForm),
    "tasks": ("tasks[]", TaskForm),
    "find": ("find", FindForm),
    "command": ("command", CommandForm),
    "deadline": ("deadline", DeadlineForm),
    "slo": ("slo", SloForm),
    "controller": ("controller", ControllerForm),
    "kubernetes": ("kubernetes", KubernetesForm),
    "logging": ("logging", LoggingForm),
}


def _reference(form: type[AgentForm], prefix: str, told: frozenset[str] = frozenset()) -> Iterator[Key]:
    for name, info in form.model_fields.items():
        alias = info.alias or name
        inner = _INNER.get(alias)
        # The same keys of find are told once, below services.
        if inner is None or alias in told:
            default = _shown_default(info.get_default(call_default_factory=True), alias in _DURATIONS)
            yield Key(f"{prefix}{alias}", default, info.description or "")
            continue
        title, nested = inner
        if info.description and alias in ("find", "command", "deadline"):
            yield Key(f"{prefix}{title}", "", info.description)
        yield from _reference(nested, f"{prefix}{title}.", told | ({"find"} if alias == "tasks" else set()))


_DURATIONS = ("period", "statsTimeout", "report")


def _shown_default(value: Any, is_duration: bool) -> str:
    text = ""
    if value is None or repr(value) == "PydanticUndefined":
        return text
    if isinstance(value, bool):
        text = "true" if value else "false"
    elif isinstance(value, Address):
        text = f'"{value}"'
    elif isinstance(value, (list, tuple)):
        text = f"[{', '.join(map(str, value))}]"
    elif isinstance(value, dict):
        text = "{}" if not value else str(value)
    elif isinstance(value, float):
        text = format_duration_us(value * 1e6).replace(" ", "") if is_duration else f"{value:g}"
    else:
        text = str(value)
    return text
