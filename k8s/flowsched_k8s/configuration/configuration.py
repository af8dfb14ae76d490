"""What an operator configures. :mod:`flowsched_k8s.configuration.configuration_file` reads it from a file."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field, PlainSerializer, field_serializer
from pydantic.alias_generators import to_camel
from pydantic_core import PydanticKnownError

from flowsched.cluster.settings import Settings
from flowsched.support import configuration
from flowsched.support.address import Address, loopback_only, parse_address
from flowsched.support.configuration import Filled, Section, Several, key, written
from flowsched.support.protected_server import ProtectedServer
from flowsched_k8s.configuration.duration import format_duration_s, parse_duration_s
from flowsched_k8s.configuration.engine_form import (
    ENGINE_DEFAULTS,
    cost_model_schema,
    engine_schema,
    engine_settings,
    read_cost_model,
    read_engine,
)
from flowsched_k8s.names import COMPONENT, CONFIG_KIND, CONFIG_VERSION, FLOW, POOL, SCHEDULER_NAME
from flowsched_models.form import MemoryMib, Positive, PositiveInt
from flowsched_models.quantity import QuantityError, format_memory, parse_memory, shown

DEFAULT_NAMESPACE = f"{COMPONENT}-system"
"""Where flowsched runs, if nothing says otherwise."""
HEALTH_PORT = 8081
LOOPBACK_PORT = 8444
EVERY_NAMESPACE = "*"
"""Names all namespaces that are not named themselves."""
LABEL_NAME = re.compile(r"[A-Za-z0-9](?:[-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")
SUBDOMAIN = re.compile(r"[a-z0-9](?:[-a-z0-9]*[a-z0-9])?(?:\.[a-z0-9](?:[-a-z0-9]*[a-z0-9])?)*")
_QUALIFIED = re.compile(rf"(?:{SUBDOMAIN.pattern}/)?{LABEL_NAME.pattern}")
_DNS_LABEL = re.compile(r"[a-z0-9](?:[-a-z0-9]{0,61}[a-z0-9])?")
_EXTENDED = re.compile(rf"(?!(?:[^/]*\.)?kubernetes\.io/){SUBDOMAIN.pattern}/{LABEL_NAME.pattern}")
_LABEL_HELP = "letters, digits, '-', '_' and '.', at most 63"


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


def _as_text(value: Any) -> Any:
    if isinstance(value, (bool, int, float)):
        raise QuantityError(f"must be text, but is {shown(value)}", f'write it in quotes: "{shown(value)}"')
    return value


def _matching(pattern: re.Pattern[str], what: str, help: str, longest: int) -> BeforeValidator:
    def look(value: Any) -> Any:
        value = _as_text(value)
        if isinstance(value, str) and (len(value) > longest or not pattern.fullmatch(value)):
            raise QuantityError(f"{shown(value)} {what}", help)
        return value

    return BeforeValidator(look)


def _engine(value: Any) -> Settings:
    if not isinstance(value, dict):
        raise PydanticKnownError("dict_type")
    return read_engine(value)


@dataclass(frozen=True)
class _SchemaOf:
    """The JSON Schema of a value that pydantic cannot know, made when it is asked for."""

    made: Callable[[], dict[str, Any]]

    def __get_pydantic_json_schema__(self, schema: Any, handler: Any) -> dict[str, Any]:
        return self.made()


Place = Annotated[configuration.Place, BeforeValidator(_as_text)]
Duration = Annotated[float, written(parse_duration_s, str), PlainSerializer(format_duration_s)]
Memory = Annotated[int, written(parse_memory, MemoryMib), PlainSerializer(format_memory)]
Listen = Annotated[Address, written(lambda value: parse_address(value, HEALTH_PORT), str), PlainSerializer(str)]
LabelValue = Annotated[
    str, _matching(re.compile(f"(?:{LABEL_NAME.pattern})?"), "cannot be the value of a label", _LABEL_HELP, 63)
]
SchedulerName = Annotated[str, _matching(LABEL_NAME, "is not a scheduler name", _LABEL_HELP, 63)]
ObjectName = Annotated[
    str, _matching(SUBDOMAIN, "is not a name for a Lease", "small letters, digits, '-' and '.', at most 253", 253)
]
LabelName = Annotated[
    str, _matching(_QUALIFIED, "is not the name of a label", "write it as nvidia.com/gpu.product", 253 + 1 + 63)
]
ExtendedResource = Annotated[
    str, _matching(_EXTENDED, "is not the name of an extended resource", "write it as nvidia.com/gpu", 253 + 1 + 63)
]
Namespace = Annotated[str, _matching(_DNS_LABEL, "is not a namespace", "small letters, digits and '-', at most 63", 63)]
PodGroupSource = Literal["scheduling.x-k8s.io", "labels", "kueue.x-k8s.io", "scheduling.k8s.io"]
_SWITCH = {False: "off", True: "on"}
"""What YAML takes these words to be where they stand without quotes."""
Learning = Annotated[
    Literal["off", "observe", "on"],
    BeforeValidator(
        lambda value: _SWITCH[value] if isinstance(value, bool) else value,
        json_schema_input_type=Literal["off", "observe", "on"] | bool,
    ),
]
Count = Annotated[int, Field(ge=1, le=10_000)]
Gain = Annotated[float, Field(ge=0, le=1e9)]
Multiple = Annotated[float, Field(ge=1, le=1e6)]
NamespaceOrAll = Annotated[
    str,
    _matching(
        re.compile(rf"\*|{_DNS_LABEL.pattern}"),
        "is not a namespace",
        "small letters, digits and '-', at most 63, or '*' for all others",
        63,
    ),
]
Ceilings = Annotated[
    dict[NamespaceOrAll, Multiple],
    BeforeValidator(
        lambda value: {EVERY_NAMESPACE: value} if isinstance(value, int | float) else value,
        json_schema_input_type=Multiple | dict[NamespaceOrAll, Multiple],
    ),
]


class ClientConnection(Section):
    """How to talk to the API server."""

    kubeconfig: Place | None = key("kubeconfig file; default: the usual places, or the pod's own service account")
    qps: Annotated[float, Field(gt=0, le=1e6)] = key("requests per second to the API server, on average", 1000.0)
    burst: Annotated[int, Field(gt=0, le=1_000_000)] = key("requests at once", 2000)


class LeaderElection(Section):
    """One of several replicas decides; the others wait."""

    leader_elect: bool = key("elect one of several replicas", True)
    lease_duration_s: Duration = key("how long the others wait before they take over; whole seconds", 15.0)
    renew_deadline_s: Duration = key("a leader that could not renew for so long stops", 10.0)
    retry_period_s: Duration = key("time between attempts", 2.0)
    resource_lock: Literal["leases"] = key("kind of the lock; only `leases`", "leases")
    resource_name: ObjectName = key("name of the Lease", COMPONENT)
    resource_namespace: Annotated[
        Namespace, written(lambda value: DEFAULT_NAMESPACE if value is None else value, str | None)
    ] = key(
        f"namespace of the Lease; default: the pod's own, or `{DEFAULT_NAMESPACE}`",
        DEFAULT_NAMESPACE,
        examples=[""],
    )


class SchedulerProfile(Section):
    """A name by which pods ask for this scheduler."""

    scheduler_name: SchedulerName = Field(description="pods with this `spec.schedulerName` are ours")


class GpuResource(Section):
    """An extended resource whose units are GPUs, which the engine knows as devices."""

    resource: ExtendedResource = Field(
        description="extended resource whose units are [GPUs](kubernetes-pods.md#gpus); of two that a node has, the first "
        "listed are its GPUs, and the other one is counted. `gpus: []` only counts"
    )
    model_label: LabelName = key("label of nodes that says the model of their GPUs", "nvidia.com/gpu.product")
    memory_label: LabelName = key(
        "label of nodes that says the memory of each GPU, in MiB; decides nothing yet", "nvidia.com/gpu.memory"
    )


class Rounds(Section):
    """When a round starts."""

    batch_window_s: Duration = key(
        "how long to gather pods before a round; a single one without a profile is decided at once", 0.02
    )
    batch_limit: PositiveInt = key("so many pods start a round at once", 2000)
    max_period_s: Duration = key("longest time between two rounds while pods wait", 5.0)
    unschedulable_retry_s: Duration = key(
        "an unschedulable pod is looked at again after this time at the latest", 300.0
    )
    reconcile_every_s: Duration = key("time between full comparisons with the API server", 600.0)


class Features(Section):
    """What can be left out, each with the permissions it needs."""

    volumes: bool = key("read volumes and claims, and honour where they bind a pod to", True)
    pod_groups: Annotated[tuple[PodGroupSource, ...], Several] = key(
        "forms of pod groups that are read: `scheduling.x-k8s.io` (scheduler-plugins), `labels`, `kueue.x-k8s.io` "
        "(Kueue's groups of plain pods), `scheduling.k8s.io` (in-tree, 1.36 and later)",
        ("scheduling.x-k8s.io", "labels", "kueue.x-k8s.io"),
    )
    namespace_selector: bool = key("read namespaces, for `namespaceSelector` in pod affinity", True)
    preemption: bool = key("delete pods of lower priority to [make room](kubernetes-pods.md#preemption)", False)
    resize: bool = key("resize a pod's CPU requests in place to the width chosen", False)
    rebalancing: bool = key(
        "evict running pods where [another place](kubernetes.md#rebalancing) saves more than the move costs", False
    )


class RebalancingSettings(Section):
    """When and at which price running pods are moved to other nodes."""

    interval_s: Duration = key("time between two looks", 60.0)
    price: Gain = key("what each move must gain, in the unit of the engine's costs", 0.1)
    restart_s: Duration = key("how long a moved pod's program stands still", 10.0)
    empty_node_gain: Gain = key("what a node without pods is worth, for autoscalers; 0: no node is emptied", 0.0)
    cool_down_s: Duration = key(
        "a pod has run so long before it is moved, and nothing is moved for so long after another program evicted a pod",
        600.0,
    )
    max_moves: Annotated[int, Field(ge=1, le=1000)] = key("most pods moved at a time", 8)
    dry_run: bool = key("say what would be moved, move nothing", False)


class LoadSettings(Section):
    """Where the load and latency of services come from."""

    kind: Literal["annotation", "prometheus"] = key(
        "where load and latency of services come from: `annotation` or `prometheus`", "annotation"
    )
    url: Annotated[str, AfterValidator(lambda url: url.rstrip("/"))] | None = key(
        "address of Prometheus, such as `http://prometheus.monitoring:9090`"
    )
    query: str | None = key(
        "PromQL for queries per second, by labels `namespace` and `pod`; may name `$namespace`, `$pod` and `$node`"
    )
    interval_s: Duration = key("time between two readings", 15.0)
    stale_after_s: Duration = key("a reading older than this is not used: the load stated in the SLO is", 60.0)
    timeout_s: Duration = key("longest time one reading may take", 5.0)
    ceiling: Ceilings = key(
        "with up to how many times the load that it was [granted](kubernetes.md#what-a-service-keeps-off) a bound service "
        "counts: a number, or numbers by namespace, `*` for all others; 1 where nothing is said",
        {},
    )


class RecordSettings(Section):
    """How many records of rounds are kept, and in which folder besides memory."""

    keep: Count = key("records of rounds to keep", 50)
    directory: Place | None = key("folder to write them to as well; default: memory only")


class Events(Section):
    """A file of what happens in the cluster and what is decided, for ``flowsched simulate``."""

    file: Place | None = key(
        "file for what happens and what is decided, which `flowsched simulate` plays; packed if its name ends with `.gz`"
    )
    max_size_mib: Memory = key("a larger file is followed by another one", 256)
    keep: Count = key("files to keep in all, as `NAME.1` and so on", 2)


class ServerSettings(ProtectedServer):
    """Where health, metrics and debugging are served."""

    health: Listen = key("address of `/livez`, `/readyz` and `/healthz`", Address("", HEALTH_PORT))
    metrics: Listen = key("address of `/metrics`, by TLS", Address("", 8443))
    loopback: Annotated[Listen, AfterValidator(loopback_only)] = key(
        "address on loopback of these, `/configz` and `/debug`, without TLS and login",
        Address("127.0.0.1", LOOPBACK_PORT),
    )


class Logging(Section):
    """How logs are written."""

    format: Literal["text", "json"] = key("`text`, or `json` for one object per line", "text")
    verbosity: Annotated[int, Field(ge=0, le=10)] = key(
        "0: what happens; 1: and why; 2 or more: and what libraries say", 0
    )


class Configuration(Section):
    """Everything that ``flowsched run`` can be told."""

    api_version: Literal["config.flowsched.io/v1alpha1"] = key("version of this file", CONFIG_VERSION)
    kind: Literal["FlowSchedulerConfiguration"] = key("kind of this file", CONFIG_KIND)
    client_connection: ClientConnection = ClientConnection()
    leader_election: LeaderElection = LeaderElection()
    profiles: Annotated[tuple[SchedulerProfile, ...], Several, Filled] = (
        SchedulerProfile(scheduler_name=SCHEDULER_NAME),
    )
    node_selector: dict[str, LabelValue] = key(
        f'labels a node must have to be ours, such as `{POOL}: "true"`; default: every node', {}
    )
    rounds: Rounds = Rounds()
    pod_initial_backoff_s: Positive = key(
        "wait before a pod that failed is tried again; doubles each time, and is up to a quarter longer after an error",
        1.0,
        alias="podInitialBackoffSeconds",
    )
    pod_max_backoff_s: Positive = key("longest such wait", 10.0, alias="podMaxBackoffSeconds")
    engine: Annotated[Settings, written(_engine, dict[str, Any]), _SchemaOf(engine_schema)] = key(
        "settings of the engine in camelCase, such as `dueAgeS: 600`", ENGINE_DEFAULTS
    )
    cost_model: Annotated[
        CostModelChoice,
        written(lambda value: CostModelChoice(*read_cost_model(value)), str | dict[str, Any]),
        _SchemaOf(cost_model_schema),
    ] = key(
        "what a place costs: `flow` or another [cost model](policies.md) by its name; with settings, a mapping of "
        "`name` and these",
        CostModelChoice(),
    )
    gpus: Annotated[tuple[GpuResource, ...], Several] = (GpuResource(resource="nvidia.com/gpu"),)
    profiles_file: Place | None = key(
        "profiles besides the bundled ones: a YAML file or a folder of them, read again when it changes"
    )
    features: Features = Features()
    rebalancing: RebalancingSettings = RebalancingSettings()
    learning: Learning = key(
        "whether ends of pods teach [how long others of their class run](kubernetes.md#learnt-run-times): `off`; "
        "`observe`, which shows it as metrics and prices nothing; `on`",
        "observe",
    )
    load_source: LoadSettings = LoadSettings()
    records: RecordSettings = RecordSettings()
    events: Events = Events()
    server: ServerSettings = ServerSettings()
    logging: Logging = Logging()
    annotate_estimated_starts: bool = key(
        "write on pods that wait when they are [expected to start](kubernetes.md#when-a-pod-starts), at most two a second",
        False,
    )
    dry_run: bool = key("decide and log, but write nothing", False)

    @property
    def scheduler_names(self) -> tuple[str, ...]:
        """Pods that ask for one of these are ours."""
        return tuple(profile.scheduler_name for profile in self.profiles)

    @field_serializer("engine")
    def _plain_engine(self, engine: Settings) -> dict[str, Any]:
        read = engine_settings(self.cost_model.name, self.cost_model.settings)
        return {to_camel(name): getattr(engine, name) for name in read}

    @field_serializer("cost_model")
    def _plain_cost_model(self, chosen: CostModelChoice) -> str | dict[str, Any]:
        return {"name": chosen.name, **chosen.settings} if chosen.settings else chosen.name
