"""The configuration file: read strictly, with all mistakes at once."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

from pydantic import BeforeValidator, ConfigDict, Field
from pydantic.alias_generators import to_camel

from flowsched.support.address import Address, parse_address
from flowsched_k8s.configuration import (
    DEFAULT_NAMESPACE,
    FLOW,
    HEALTH_PORT,
    ClientConnection,
    Configuration,
    Events,
    Features,
    GpuResource,
    LeaderElection,
    LoadSettings,
    Logging,
    RebalancingSettings,
    RecordSettings,
    Rounds,
    ServerSettings,
)
from flowsched_k8s.duration import format_duration_s, parse_duration_s
from flowsched_k8s.engine_form import read_cost_model, read_engine
from flowsched_k8s.gone_keys import explained
from flowsched_k8s.names import CONFIG_KIND, CONFIG_VERSION, POOL
from flowsched_models.document import (
    Document,
    InputError,
    Problem,
    Problems,
    nearest,
    read_document,
    read_text,
)
from flowsched_models.form import Form, MemoryMib, Positive, PositiveInt, check
from flowsched_models.quantity import QuantityError, shown

NAMESPACE_FILE = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")
"""Where a pod finds the name of its own namespace."""
PLACEHOLDERS = ("namespace", "pod", "node")
"""What a Prometheus query may name as ``$namespace``."""
LEASE_JITTER = 1.2
"""Retries are spread by up to this factor, so a renewal takes that much longer at worst."""

_LABEL_NAME = re.compile(r"[A-Za-z0-9](?:[-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")
_SUBDOMAIN = re.compile(r"[a-z0-9](?:[-a-z0-9]*[a-z0-9])?(?:\.[a-z0-9](?:[-a-z0-9]*[a-z0-9])?)*")
_QUALIFIED = re.compile(rf"(?:{_SUBDOMAIN.pattern}/)?{_LABEL_NAME.pattern}")
_DNS_LABEL = re.compile(r"[a-z0-9](?:[-a-z0-9]{0,61}[a-z0-9])?")


def _address(value: Any) -> Address:
    return parse_address(value, HEALTH_PORT)


def _as_text(value: Any) -> Any:
    if isinstance(value, (bool, int, float)):
        raise QuantityError(f"must be text, but is {shown(value)}", f'write it in quotes: "{shown(value)}"')
    return value


def _label_value(value: Any) -> Any:
    value = _as_text(value)
    if isinstance(value, str) and value and not _LABEL_NAME.fullmatch(value):
        raise QuantityError(
            f"{shown(value)} cannot be the value of a label", "letters, digits, '-', '_' and '.', at most 63"
        )
    return value


def _matching(pattern: re.Pattern[str], what: str, help: str, longest: int) -> BeforeValidator:
    def look(value: Any) -> Any:
        value = _as_text(value)
        if isinstance(value, str) and (len(value) > longest or not pattern.fullmatch(value)):
            raise QuantityError(f"{shown(value)} is not {what}", help)
        return value

    return BeforeValidator(look)


def _path(value: Any) -> Any:
    value = _as_text(value)
    if isinstance(value, str) and (not value or "\0" in value):
        raise QuantityError(f"{shown(value)} is not the name of a file")
    return value


def _named_model(value: Any) -> Any:
    if isinstance(value, str):
        return value
    if not isinstance(value, dict) or not all(isinstance(key, str) for key in value):
        help = "write it as costModel: coco or costModel: {name: coco, waiting: 500}"
        raise QuantityError(
            f"must be the name of a cost model, or a mapping with its name, but is {shown(value)}", help
        )
    return value


Duration = Annotated[float, BeforeValidator(parse_duration_s)]
Place = Annotated[str, BeforeValidator(_path)]
NamedModel = Annotated[Any, BeforeValidator(_named_model)]
Listen = Annotated[Any, BeforeValidator(_address)]
LabelValue = Annotated[str, BeforeValidator(_label_value)]
SchedulerName = Annotated[
    str, _matching(_LABEL_NAME, "a scheduler name", "letters, digits, '-', '_' and '.', at most 63", 63)
]
ObjectName = Annotated[
    str, _matching(_SUBDOMAIN, "a name for a Lease", "small letters, digits, '-' and '.', at most 253", 253)
]
LabelName = Annotated[
    str, _matching(_QUALIFIED, "the name of a label", "write it as nvidia.com/gpu.product", 253 + 1 + 63)
]
ExtendedResource = Annotated[
    str,
    _matching(
        re.compile(rf"(?!(?:[^/]*\.)?kubernetes\.io/){_SUBDOMAIN.pattern}/{_LABEL_NAME.pattern}"),
        "the name of an extended resource",
        "write it as nvidia.com/gpu",
        253 + 1 + 63,
    ),
]
Namespace = Annotated[str, _matching(_DNS_LABEL, "a namespace", "small letters, digits and '-', at most 63", 63)]


class ConfigForm(Form):
    """Base: keys are camelCase in the file."""

    model_config = ConfigDict(alias_generator=to_camel)


def _key(meaning: str, default: Any = None) -> Any:
    return Field(default=default, description=meaning)


class ClientConnectionForm(ConfigForm):
    """clientConnection"""

    kubeconfig: Place | None = _key("kubeconfig file; default: the usual places, or the pod's own service account")
    qps: Annotated[float, Field(gt=0, le=1e6)] = _key(
        "requests per second to the API server, on average", ClientConnection.qps
    )
    burst: Annotated[int, Field(gt=0, le=1_000_000)] = _key("requests at once", ClientConnection.burst)

    def value(self, document: Document) -> ClientConnection:
        """The plain value."""
        return ClientConnection(_beside(document, self.kubeconfig), self.qps, self.burst)


class LeaderElectionForm(ConfigForm):
    """leaderElection"""

    leader_elect: bool = _key("elect one of several replicas", LeaderElection.leader_elect)
    lease_duration: Duration = _key(
        "how long the others wait before they take over; whole seconds", LeaderElection.lease_duration_s
    )
    renew_deadline: Duration = _key("a leader that could not renew for so long stops", LeaderElection.renew_deadline_s)
    retry_period: Duration = _key("time between attempts", LeaderElection.retry_period_s)
    resource_lock: Literal["leases"] = _key("kind of the lock; only `leases`", LeaderElection.resource_lock)
    resource_name: ObjectName = _key("name of the Lease", LeaderElection.resource_name)
    resource_namespace: Namespace | None = _key("namespace of the Lease; default: the pod's own")

    def value(self, namespace: str) -> LeaderElection:
        """The plain value."""
        return LeaderElection(
            leader_elect=self.leader_elect,
            lease_duration_s=self.lease_duration,
            renew_deadline_s=self.renew_deadline,
            retry_period_s=self.retry_period,
            resource_lock=self.resource_lock,
            resource_name=self.resource_name,
            resource_namespace=self.resource_namespace or namespace,
        )


class ProfileForm(ConfigForm):
    """One entry of profiles"""

    scheduler_name: SchedulerName = Field(description="pods with this `spec.schedulerName` are ours")


class GpuForm(ConfigForm):
    """One entry of gpus"""

    resource: ExtendedResource = Field(
        description="extended resource whose units are [GPUs](kubernetes-pods.md#gpus); of two that a node has, the first "
        "listed are its GPUs, and the other one is counted. `gpus: []` only counts"
    )
    model_label: LabelName = _key("label of nodes that says the model of their GPUs", GpuResource.model_label)
    memory_label: LabelName = _key(
        "label of nodes that says the memory of each GPU, in MiB; decides nothing yet", GpuResource.memory_label
    )

    def value(self) -> GpuResource:
        """The plain value."""
        return GpuResource(self.resource, self.model_label, self.memory_label)


class RoundsForm(ConfigForm):
    """rounds"""

    batch_window: Duration = _key(
        "how long to gather pods before a round; a single one without a profile is decided at once",
        Rounds.batch_window_s,
    )
    batch_limit: PositiveInt = _key("so many pods start a round at once", Rounds.batch_limit)
    max_period: Duration = _key("longest time between two rounds while pods wait", Rounds.max_period_s)
    unschedulable_retry: Duration = _key(
        "an unschedulable pod is looked at again after this time at the latest", Rounds.unschedulable_retry_s
    )
    reconcile_every: Duration = _key("time between full comparisons with the API server", Rounds.reconcile_every_s)

    def value(self) -> Rounds:
        """The plain value."""
        return Rounds(
            batch_window_s=self.batch_window,
            batch_limit=self.batch_limit,
            max_period_s=self.max_period,
            unschedulable_retry_s=self.unschedulable_retry,
            reconcile_every_s=self.reconcile_every,
        )


PodGroupSource = Literal["scheduling.x-k8s.io", "labels", "scheduling.k8s.io"]


class FeaturesForm(ConfigForm):
    """features"""

    volumes: bool = _key("read volumes and claims, and honour where they bind a pod to", Features.volumes)
    pod_groups: list[PodGroupSource] = _key(
        "forms of pod groups that are read: `scheduling.x-k8s.io` (scheduler-plugins), `labels`, `scheduling.k8s.io` "
        "(in-tree, 1.36 and later)",
        list(Features.pod_groups),
    )
    namespace_selector: bool = _key(
        "read namespaces, for `namespaceSelector` in pod affinity", Features.namespace_selector
    )
    preemption: bool = _key(
        "delete pods of lower priority to [make room](kubernetes-pods.md#preemption)", Features.preemption
    )
    resize: bool = _key("resize a pod's CPU requests in place to the width chosen", Features.resize)
    rebalancing: bool = _key(
        "evict running pods where [another place](kubernetes.md#rebalancing) saves more than the move costs",
        Features.rebalancing,
    )

    def value(self) -> Features:
        """The plain value."""
        return Features(**{**self.model_dump(), "pod_groups": tuple(self.pod_groups)})


class RebalancingForm(ConfigForm):
    """rebalancing"""

    interval: Duration = _key("time between two looks", RebalancingSettings.interval_s)
    price: Annotated[float, Field(ge=0, le=1e9)] = _key(
        "what each move must gain, in the unit of the engine's costs", RebalancingSettings.price
    )
    restart: Duration = _key("how long a moved pod's program stands still", RebalancingSettings.restart_s)
    empty_node_gain: Annotated[float, Field(ge=0, le=1e9)] = _key(
        "what a node without pods is worth, for autoscalers; 0: no node is emptied", RebalancingSettings.empty_node_gain
    )
    cool_down: Duration = _key(
        "a pod has run so long before it is moved, and nothing is moved for so long after somebody else evicted a pod",
        RebalancingSettings.cool_down_s,
    )
    max_moves: Annotated[int, Field(ge=1, le=1000)] = _key("most pods moved at a time", RebalancingSettings.max_moves)
    dry_run: bool = _key("say what would be moved, move nothing", RebalancingSettings.dry_run)

    def value(self) -> RebalancingSettings:
        """The plain value."""
        return RebalancingSettings(
            interval_s=self.interval,
            price=self.price,
            restart_s=self.restart,
            empty_node_gain=self.empty_node_gain,
            cool_down_s=self.cool_down,
            max_moves=self.max_moves,
            dry_run=self.dry_run,
        )


class LoadSourceForm(ConfigForm):
    """loadSource"""

    kind: Literal["annotation", "prometheus"] = _key(
        "where load and latency of services come from: `annotation` or `prometheus`", LoadSettings.kind
    )
    url: str | None = _key("address of Prometheus, such as `http://prometheus.monitoring:9090`")
    query: str | None = _key(
        "PromQL for queries per second, by labels `namespace` and `pod`; may name `$namespace`, `$pod` and `$node`"
    )
    latency_query: str | None = _key("PromQL for p95 in seconds, likewise")
    interval: Duration = _key("time between two readings", LoadSettings.interval_s)
    stale_after: Duration = _key(
        "a reading older than this is not used: the load stated in the SLO is", LoadSettings.stale_after_s
    )
    timeout: Duration = _key("longest time one reading may take", LoadSettings.timeout_s)

    def value(self) -> LoadSettings:
        """The plain value."""
        return LoadSettings(
            kind=self.kind,
            url=self.url.rstrip("/") if self.url is not None else None,
            query=self.query,
            latency_query=self.latency_query,
            interval_s=self.interval,
            stale_after_s=self.stale_after,
            timeout_s=self.timeout,
        )


class RecordsForm(ConfigForm):
    """records"""

    keep: Annotated[int, Field(ge=1, le=10_000)] = _key("records of rounds to keep", RecordSettings.keep)
    directory: Place | None = _key("folder to write them to as well; default: memory only")


class EventsForm(ConfigForm):
    """events"""

    file: Place | None = _key(
        "file for what happens and what is decided, which `flowsched simulate` plays; packed if its name ends with `.gz`"
    )
    max_size: MemoryMib = _key("a larger file is followed by another one", Events.max_size_mib)
    keep: Annotated[int, Field(ge=1, le=10_000)] = _key("files to keep in all, as `NAME.1` and so on", Events.keep)


class ServerForm(ConfigForm):
    """server"""

    health: Listen = _key("address of `/livez`, `/readyz` and `/healthz`", ServerSettings.health)
    metrics: Listen = _key("address of `/metrics`, `/configz` and `/debug`; may be the same", ServerSettings.metrics)


class LoggingForm(ConfigForm):
    """logging"""

    format: Literal["text", "json"] = _key("`text`, or `json` for one object per line", Logging.format)
    verbosity: Annotated[int, Field(ge=0, le=10)] = _key(
        "0: what happens; 1: and why; 2 or more: and what libraries say", Logging.verbosity
    )


class ConfigurationForm(ConfigForm):
    """The whole file"""

    api_version: Literal["config.flowsched.io/v1alpha1"] = Field(description="version of this file")
    kind: Literal["FlowSchedulerConfiguration"] = Field(description="kind of this file")
    client_connection: ClientConnectionForm = Field(default_factory=ClientConnectionForm)
    leader_election: LeaderElectionForm = Field(default_factory=LeaderElectionForm)
    profiles: Annotated[list[ProfileForm], Field(min_length=1)] = Field(
        default_factory=lambda: [
            ProfileForm.model_validate({"schedulerName": n}) for n in Configuration.scheduler_names
        ]
    )
    node_selector: dict[str, LabelValue] = Field(
        default_factory=dict,
        description=f'labels a node must have to be ours, such as `{POOL}: "true"`; default: every node',
    )
    rounds: RoundsForm = Field(default_factory=RoundsForm)
    pod_initial_backoff_seconds: Positive = _key(
        "wait before a pod that failed is tried again; doubles each time, and is up to a quarter longer after an error",
        Configuration.pod_initial_backoff_s,
    )
    pod_max_backoff_seconds: Positive = _key("longest such wait", Configuration.pod_max_backoff_s)
    engine: dict[str, Any] = Field(
        default_factory=dict, description="settings of the engine in camelCase, such as `dueAgeS: 600`"
    )
    cost_model: NamedModel = _key(
        "what a place costs: `flow` or another [cost model](policies.md) by its name; with settings, a mapping of "
        "`name` and these",
        FLOW,
    )
    gpus: list[GpuForm] = Field(
        default_factory=lambda: [GpuForm.model_validate({"resource": g.resource}) for g in Configuration.gpus]
    )
    profiles_file: Place | None = _key(
        "profiles besides the bundled ones: a YAML file or a folder of them, read again when it changes"
    )
    features: FeaturesForm = Field(default_factory=FeaturesForm)
    rebalancing: RebalancingForm = Field(default_factory=RebalancingForm)
    load_source: LoadSourceForm = Field(default_factory=LoadSourceForm)
    records: RecordsForm = Field(default_factory=RecordsForm)
    events: EventsForm = Field(default_factory=EventsForm)
    server: ServerForm = Field(default_factory=ServerForm)
    logging: LoggingForm = Field(default_factory=LoggingForm)
    dry_run: bool = _key("decide and log, but write nothing", Configuration.dry_run)


def load_configuration(path: Path | None, namespace_file: Path = NAMESPACE_FILE) -> Configuration:
    """The configuration in a file, or the defaults. Raises :class:`InputError` with every mistake in it."""
    namespace = _own_namespace(namespace_file)
    if path is None:
        return Configuration(leader_election=LeaderElection(resource_namespace=namespace))
    document = read_document(path)
    _check_header(document)
    checked = check(document, ConfigurationForm, placeholders={"apiVersion": CONFIG_VERSION, "kind": CONFIG_KIND})
    found = Problems()
    found.extend(explained(checked.problems))
    form = checked.value
    if form is None:
        found.raise_any()
        raise AssertionError("a form without a value has problems")
    found.extend(_conflicts(document, form))
    engine, wrong = read_engine(document, form.engine)
    found.extend(explained(wrong))
    cost_model, wrong = read_cost_model(document, form.cost_model, form.engine, form.features.resize)
    found.extend(wrong)
    found.raise_any()
    return Configuration(
        client_connection=form.client_connection.value(document),
        leader_election=form.leader_election.value(namespace),
        scheduler_names=tuple(p.scheduler_name for p in form.profiles),
        node_selector=dict(form.node_selector),
        rounds=form.rounds.value(),
        pod_initial_backoff_s=form.pod_initial_backoff_seconds,
        pod_max_backoff_s=form.pod_max_backoff_seconds,
        engine=engine,
        cost_model=cost_model,
        gpus=tuple(g.value() for g in form.gpus),
        profiles_file=_beside(document, form.profiles_file),
        features=form.features.value(),
        rebalancing=form.rebalancing.value(),
        load_source=form.load_source.value(),
        records=RecordSettings(form.records.keep, _beside(document, form.records.directory)),
        events=Events(_beside(document, form.events.file), form.events.max_size, form.events.keep),
        server=ServerSettings(form.server.health, form.server.metrics),
        logging=Logging(form.logging.format, form.logging.verbosity),
        dry_run=form.dry_run,
    )


def _beside(document: Document, name: str | None) -> Path | None:
    return None if name is None else document.beside(name)


def _own_namespace(file: Path) -> str:
    if not file.is_file():
        return DEFAULT_NAMESPACE
    return read_text(file).strip() or DEFAULT_NAMESPACE


def _check_header(document: Document) -> None:
    wanted = {"apiVersion": CONFIG_VERSION, "kind": CONFIG_KIND}
    found = [
        document.problem((key,), f"must be {value} here, but is {shown(document.data[key])}")
        for key, value in wanted.items()
        if key in document.data and document.data[key] != value
    ]
    if found:
        raise InputError(found)


def _conflicts(document: Document, form: ConfigurationForm) -> Iterator[Problem]:
    """What no key shows alone."""
    yield from _election_conflicts(document, form.leader_election)
    yield from _name_conflicts(document)
    yield from _selector_conflicts(document, form.node_selector)
    yield from _gpu_conflicts(document)
    yield from _load_conflicts(document, form.load_source)
    rounds = form.rounds
    if rounds.batch_window > rounds.max_period:
        yield document.problem(
            ("rounds", "batchWindow"),
            f"must not be longer than maxPeriod ({format_duration_s(rounds.max_period)})",
        )
    if form.pod_max_backoff_seconds < form.pod_initial_backoff_seconds:
        yield document.problem(
            ("podMaxBackoffSeconds",),
            f"must be at least podInitialBackoffSeconds ({form.pod_initial_backoff_seconds:g})",
        )
    twice = [g for i, g in enumerate(form.features.pod_groups) if g in form.features.pod_groups[:i]]
    for group in dict.fromkeys(twice):
        yield document.problem(("features", "podGroups"), f"'{group}' stands twice")
    health, metrics = form.server.health, form.server.metrics
    if health.port == metrics.port != 0 and health.host != metrics.host and "" in (health.host, metrics.host):
        yield document.problem(
            ("server", "metrics"), f"{metrics} and {health} overlap", "give both the same address or different ports"
        )


def _election_conflicts(document: Document, form: LeaderElectionForm) -> Iterator[Problem]:
    if form.lease_duration % 1:
        yield document.problem(
            ("leaderElection", "leaseDuration"),
            f"must be whole seconds, but is {format_duration_s(form.lease_duration)}",
            "a Lease holds no fractions",
        )
    if form.renew_deadline >= form.lease_duration:
        yield document.problem(
            ("leaderElection", "renewDeadline"),
            f"must be shorter than leaseDuration ({format_duration_s(form.lease_duration)}), but is "
            f"{format_duration_s(form.renew_deadline)}",
            "a leader must stop before another may start",
        )
    if form.retry_period * LEASE_JITTER >= form.renew_deadline:
        yield document.problem(
            ("leaderElection", "retryPeriod"),
            f"must be shorter than renewDeadline / {LEASE_JITTER} "
            f"({format_duration_s(round(form.renew_deadline / LEASE_JITTER, 6))}), but is "
            f"{format_duration_s(form.retry_period)}",
        )
    if form.resource_name == "kube-scheduler":
        yield document.problem(
            ("leaderElection", "resourceName"),
            "this Lease belongs to the cluster's own scheduler",
            "choose another name",
        )


def _name_conflicts(document: Document) -> Iterator[Problem]:
    first: dict[str, int] = {}
    entries = document.data.get("profiles")
    for index, entry in enumerate(entries if isinstance(entries, list) else []):
        name = entry.get("schedulerName") if isinstance(entry, dict) else None
        if not isinstance(name, str):
            continue
        place = ("profiles", index, "schedulerName")
        if name == "default-scheduler":
            yield document.problem(
                place, "'default-scheduler' is the cluster's own scheduler", "choose another name, such as flowsched"
            )
        if name in first:
            yield document.problem(place, f"'{name}' stands twice (first in profiles[{first[name]}])")
        first.setdefault(name, index)


def _selector_conflicts(document: Document, selector: Mapping[str, str]) -> Iterator[Problem]:
    for key in selector:
        prefix, slash, name = key.rpartition("/")
        if not _LABEL_NAME.fullmatch(name) or (slash and not _SUBDOMAIN.fullmatch(prefix)) or len(prefix) > 253:
            yield document.problem(("nodeSelector", key), f"{shown(key)} cannot be the name of a label")


def _gpu_conflicts(document: Document) -> Iterator[Problem]:
    first: dict[str, int] = {}
    entries = document.data.get("gpus")
    for index, entry in enumerate(entries if isinstance(entries, list) else []):
        resource = entry.get("resource") if isinstance(entry, dict) else None
        if isinstance(resource, str):
            if resource in first:
                place = ("gpus", index, "resource")
                yield document.problem(place, f"'{resource}' stands twice (first in gpus[{first[resource]}])")
            first.setdefault(resource, index)


def _load_conflicts(document: Document, form: LoadSourceForm) -> Iterator[Problem]:
    section = "loadSource"
    if form.kind == "annotation":
        for name, value in (("url", form.url), ("query", form.query), ("latencyQuery", form.latency_query)):
            if value is not None:
                yield document.problem(
                    (section, name), "has no meaning with kind annotation", "write 'kind: prometheus'"
                )
    else:
        for name, value in (("url", form.url), ("query", form.query)):
            if not value:
                yield document.problem((section, name), "is missing", "kind prometheus needs it")
    if form.url:
        yield from _url_problems(document, form.url)
    for name, text in (("query", form.query), ("latencyQuery", form.latency_query)):
        for placeholder in dict.fromkeys(re.findall(r"\$([A-Za-z_]\w*)", text or "")):
            if placeholder not in PLACEHOLDERS:
                close = nearest(placeholder, PLACEHOLDERS)
                known = ", ".join(f"${p}" for p in PLACEHOLDERS)
                help = f"did you mean '${close}'? (known: {known})" if close else f"known: {known}"
                yield document.problem((section, name), f"there is no placeholder '${placeholder}'", help)
    if form.timeout > form.interval:
        yield document.problem(
            (section, "timeout"), f"must not be longer than interval ({format_duration_s(form.interval)})"
        )
    if form.stale_after < form.interval:
        yield document.problem(
            (section, "staleAfter"),
            f"must be at least interval ({format_duration_s(form.interval)})",
            "otherwise every reading is stale before the next one",
        )


def _url_problems(document: Document, url: str) -> Iterator[Problem]:
    place = ("loadSource", "url")
    try:
        parts = urlsplit(url)
        parts.port  # noqa: B018
    except ValueError:
        parts = None
    if parts is None or parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment:
        yield document.problem(
            place, f"{shown(url)} is not an address", "write it as http://prometheus.monitoring:9090"
        )
    elif parts.username is not None or parts.password is not None:
        yield document.problem(place, "must not hold a user name or password", "configurations are shown on /configz")
