from __future__ import annotations

from dataclasses import fields, replace
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from flowsched.cluster.settings import Settings
from flowsched.cluster.settings_form import CHANGE_SETTINGS
from flowsched.support.address import Address, parse_address
from flowsched.support.configuration import reference, reference_table
from flowsched_k8s.configuration.configuration import (
    ClientConnection,
    Configuration,
    CostModelChoice,
    Features,
    GpuResource,
    LeaderElection,
    LoadSettings,
    Logging,
    RebalancingSettings,
    RecordSettings,
    Rounds,
    SchedulerProfile,
    ServerSettings,
)
from flowsched_k8s.configuration.configuration_file import load_configuration
from flowsched_k8s.configuration.duration import format_duration_s, parse_duration_s
from flowsched_k8s.configuration.engine_form import ENGINE_DEFAULTS
from flowsched_k8s.names import CONFIG_KIND, CONFIG_VERSION
from flowsched_models.document import InputError
from flowsched_models.quantity import QuantityError

HEADER = f"apiVersion: {CONFIG_VERSION}\nkind: {CONFIG_KIND}\n"


def load(tmp_path: Path, text: str, header: str = HEADER) -> Configuration:
    path = tmp_path / "config.yaml"
    path.write_text(header + text, encoding="utf-8")
    return load_configuration(path, tmp_path / "namespace")


def complaints(tmp_path: Path, text: str, header: str = HEADER) -> list[str]:
    with pytest.raises(InputError) as caught:
        load(tmp_path, text, header)
    return [str(p).replace(str(tmp_path / "config.yaml"), "F") for p in caught.value.problems]


def test_without_a_file_and_with_an_empty_one_the_defaults_hold(tmp_path: Path) -> None:
    assert load_configuration(None, tmp_path / "none") == load(tmp_path, "") == Configuration()


def test_defaults_are_those_of_the_contract() -> None:
    c = Configuration()
    assert (c.leader_election.lease_duration_s, c.leader_election.renew_deadline_s) == (15, 10)
    assert (c.leader_election.retry_period_s, c.leader_election.resource_name) == (2, "flowsched")
    assert (c.pod_initial_backoff_s, c.pod_max_backoff_s) == (1, 10)
    assert c.scheduler_names == ("flowsched",)
    assert not c.node_selector
    assert c.rounds == Rounds(
        batch_window_s=0.02, batch_limit=2000, max_period_s=5, unschedulable_retry_s=300, reconcile_every_s=600
    )
    assert c.features == Features(
        volumes=True,
        pod_groups=("scheduling.x-k8s.io", "labels", "kueue.x-k8s.io"),
        namespace_selector=True,
        preemption=False,
        resize=False,
    )
    assert [str(a) for a in (c.server.health, c.server.metrics, c.server.loopback)] == [
        ":8081",
        ":8443",
        "127.0.0.1:8444",
    ]
    assert (c.server.authentication, c.server.certificate) == ("kubernetes", None)


def test_every_key_is_read(tmp_path: Path) -> None:
    text = """\
clientConnection: {kubeconfig: kube/config, qps: 50, burst: 100}
leaderElection:
  leaderElect: false
  leaseDuration: 3s
  renewDeadline: 2s
  retryPeriod: 500ms
  resourceLock: leases
  resourceName: other
  resourceNamespace: elsewhere
profiles: [{schedulerName: a}, {schedulerName: b}]
nodeSelector: {flowsched.io/pool: "true"}
rounds:
  {batchWindow: 5ms, batchLimit: 10, maxPeriod: 1s, unschedulableRetry: 1h30m, reconcileEvery: 1.5m}
podInitialBackoffSeconds: 2
podMaxBackoffSeconds: 2.5
engine: {dueAgeS: 60, slots: 2, shareServiceCores: false, objective: makespan}
gpus: [{resource: nvidia.com/gpu}, {resource: amd.com/gpu, modelLabel: model, memoryLabel: amd.com/gpu.vram}]
profilesFile: /etc/flowsched/profiles
features:
  {volumes: false, podGroups: [scheduling.k8s.io], namespaceSelector: false, preemption: true, resize: true,
   rebalancing: true}
rebalancing:
  {interval: 30s, price: 0.2, restart: 20s, emptyNodeGain: 1, coolDown: 5m, maxMoves: 3, dryRun: true}
loadSource:
  {kind: prometheus, url: "https://prometheus:9090/", query: 'rate(queries_total{pod="$pod"}[1m])',
   interval: 30s, staleAfter: 2m, timeout: 3s}
records: {keep: 7, directory: records}
server: {health: "127.0.0.1:1", metrics: "[::1]:2", loopback: "localhost:3"}
logging: {format: json, verbosity: 4}
dryRun: true
"""
    assert load(tmp_path, text) == Configuration(
        client_connection=ClientConnection(kubeconfig=tmp_path / "kube/config", qps=50, burst=100),
        leader_election=LeaderElection(
            leader_elect=False,
            lease_duration_s=3,
            renew_deadline_s=2,
            retry_period_s=0.5,
            resource_lock="leases",
            resource_name="other",
            resource_namespace="elsewhere",
        ),
        profiles=(SchedulerProfile(scheduler_name="a"), SchedulerProfile(scheduler_name="b")),
        node_selector={"flowsched.io/pool": "true"},
        rounds=Rounds(
            batch_window_s=0.005, batch_limit=10, max_period_s=1, unschedulable_retry_s=5400, reconcile_every_s=90
        ),
        pod_initial_backoff_s=2,
        pod_max_backoff_s=2.5,
        engine=replace(ENGINE_DEFAULTS, due_age_s=60, slots=2, share_service_cores=False, objective="makespan"),
        gpus=(
            GpuResource(resource="nvidia.com/gpu"),
            GpuResource(resource="amd.com/gpu", model_label="model", memory_label="amd.com/gpu.vram"),
        ),
        profiles_file=Path("/etc/flowsched/profiles"),
        features=Features(
            volumes=False,
            pod_groups=("scheduling.k8s.io",),
            namespace_selector=False,
            preemption=True,
            resize=True,
            rebalancing=True,
        ),
        rebalancing=RebalancingSettings(
            interval_s=30, price=0.2, restart_s=20, empty_node_gain=1, cool_down_s=300, max_moves=3, dry_run=True
        ),
        load_source=LoadSettings(
            kind="prometheus",
            url="https://prometheus:9090",
            query='rate(queries_total{pod="$pod"}[1m])',
            interval_s=30,
            stale_after_s=120,
            timeout_s=3,
        ),
        records=RecordSettings(keep=7, directory=tmp_path / "records"),
        server=ServerSettings(
            health=Address("127.0.0.1", 1), metrics=Address("::1", 2), loopback=Address("localhost", 3)
        ),
        logging=Logging(format="json", verbosity=4),
        dry_run=True,
    )


def test_the_lease_is_in_our_own_namespace(tmp_path: Path) -> None:
    (tmp_path / "namespace").write_text("scheduling\n", encoding="utf-8")
    assert load(tmp_path, "").leader_election.resource_namespace == "scheduling"
    assert load_configuration(None, tmp_path / "namespace").leader_election.resource_namespace == "scheduling"
    own = load(tmp_path, "leaderElection: {resourceNamespace: mine}")
    assert own.leader_election.resource_namespace == "mine"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("clientConnection: {qsp: 3}", "F:3: clientConnection.qsp: there is no key 'qsp' here; did you mean 'qps'?"),
        ("leader_election: {}", "F:3: leader_election: there is no key 'leader_election' here; did you mean 'leader"),
        ("leaderElection: {lease_duration: 3s}", "did you mean 'leaseDuration'?"),
        (
            "leaderElection: {lease_duration_s: 3s}",
            "there is no key 'lease_duration_s' here; did you mean 'leaseDuration'",
        ),
        ("events: {max_size_mib: 3Mi}", "there is no key 'max_size_mib' here; did you mean 'maxSize'?"),
        ("engine: 3", "F:3: engine: must be a mapping of 'key: value' pairs, but is 3"),
        ("records: {directory: 3}", 'records.directory: must be text, but is 3; write it in quotes: "3"'),
        ("leaderElection: {leaseDuration: 15}", "F:3: leaderElection.leaseDuration: 15 has no unit; give a unit: 15s"),
        ("leaderElection: {leaseDuration: 10500ms}", "must be whole seconds, but is 10.5s; a Lease holds no fractions"),
        ("leaderElection: {renewDeadline: 15s}", "renewDeadline: must be shorter than leaseDuration (15s), but is 15s"),
        ("leaderElection: {retryPeriod: 9s}", "retryPeriod: must be shorter than renewDeadline / 1.2 (8.333333s), but"),
        ("leaderElection: {resourceLock: configmaps}", "resourceLock: must be leases, but is 'configmaps'"),
        ("leaderElection: {resourceName: kube-scheduler}", "this Lease belongs to the cluster's own scheduler"),
        ("leaderElection: {resourceName: My Lease}", "'My Lease' is not a name for a Lease"),
        ("leaderElection: {resourceNamespace: a.b}", "'a.b' is not a namespace"),
        ("profiles: []", "F:3: profiles: must not be empty"),
        ("profiles: [{}]", "F:3: profiles[0].schedulerName: is missing"),
        (
            "profiles: [{schedulerName: default-scheduler}]",
            "'default-scheduler' is the cluster's own scheduler; choose",
        ),
        ("profiles: [{schedulerName: 'a,b'}]", "'a,b' is not a scheduler name"),
        (
            "profiles:\n- schedulerName: a\n- schedulerName: a",
            "F:5: profiles[1].schedulerName: 'a' stands twice (first",
        ),
        ("nodeSelector: {pool: true}", 'F:3: nodeSelector.pool: must be text, but is true; write it in quotes: "true"'),
        ("nodeSelector: {'a b': x}", "'a b' cannot be the name of a label"),
        ("nodeSelector: {'/b': x}", "'/b' cannot be the name of a label"),
        ("nodeSelector: {a: 'x y'}", "'x y' cannot be the value of a label"),
        ("gpus: [{resource: gpu}]", "F:3: gpus[0].resource: 'gpu' is not the name of an extended resource"),
        ("gpus: [{resource: kubernetes.io/gpu}]", "'kubernetes.io/gpu' is not the name of an extended resource"),
        ("gpus: [{modelLabel: m}]", "gpus[0].resource: is missing"),
        ("gpus: [{resource: a.b/c, modelLabel: 'a b'}]", "gpus[0].modelLabel: 'a b' is not the name of a label"),
        (
            "gpus:\n- resource: a.b/c\n- resource: a.b/c",
            "F:5: gpus[1].resource: 'a.b/c' stands twice (first in gpus[0])",
        ),
        ("rounds: {batchWindow: 10s}", "batchWindow: must not be longer than maxPeriod (5s)"),
        ("rounds: {batchLimit: 0}", "rounds.batchLimit: must be more than 0, but is 0"),
        ("podMaxBackoffSeconds: 0.5", "podMaxBackoffSeconds: must be at least podInitialBackoffSeconds (1)"),
        ("engine: {dueAge: 3}", "F:3: engine.dueAge: there is no key 'dueAge' here; did you mean 'dueAgeS'?"),
        ("engine: {due_age_s: 3}", "there is no key 'due_age_s' here; did you mean 'dueAgeS'?"),
        ("engine: {slots: 99}", "F:3: engine.slots: 99 is not a whole number from 1 to 16"),
        ("engine: {slots: '2'}", "engine.slots: must be a number, but is '2'"),
        ("engine: {beta: .nan}", "engine.beta: nan is not a number from"),
        ("engine: {shareServiceCores: 1}", "engine.shareServiceCores: must be true or false, but is 1"),
        ("engine: {refineWidths: true}", "engine.refineWidths: this key is gone: every width is priced together with"),
        (
            "engine: {passes: 3}",
            "engine.passes: this key is gone: moves and swaps follow while at most engine.improved",
        ),
        (
            "rounds: {searchTasks: 0}",
            "F:3: rounds.searchTasks: this key is gone: every measured pod is priced by forecasts",
        ),
        ("rounds: {searchMachines: 9}", "engine.pricings bounds how many"),
        ("engine: {preemption: lower-priority}", "there is no key 'preemption' here"),
        ("engine: {drain: true}", "there is no key 'drain' here"),
        ("engine: {eps: true}", "engine.eps: must be a number, but is true"),
        ("engine: {objective: speed}", "there is no objective 'speed'; makespan or completion"),
        ("features: {podGroups: [label]}", "features.podGroups[0]: must be one of scheduling.x-k8s.io, labels, kueue"),
        ("features: {podGroups: [labels, labels]}", "features.podGroups: 'labels' stands twice"),
        ("features: {volume: true}", "did you mean 'volumes'?"),
        (
            "loadSource: {kind: prometheus, url: 'http://x', query: q, latencyQuery: p}",
            "loadSource.latencyQuery: this key is gone: no decision used the latency",
        ),
        ("loadSource: {kind: prometheus}", "F:3: loadSource.url: is missing; kind prometheus needs it"),
        ("loadSource: {url: 'http://x'}", "loadSource.url: has no meaning with kind annotation"),
        ("loadSource: {kind: prometheus, url: x, query: q}", "'x' is not an address"),
        ("loadSource: {kind: prometheus, url: 'http://x:y', query: q}", "'http://x:y' is not an address"),
        ("loadSource: {kind: prometheus, url: 'http://u:p@x', query: q}", "must not hold a user name or password"),
        (
            "loadSource: {kind: prometheus, url: 'http://x', query: '$pdo'}",
            "there is no placeholder '$pdo'; did you mean",
        ),
        ("loadSource: {staleAfter: 1s}", "loadSource.staleAfter: must be at least interval (15s)"),
        ("loadSource: {timeout: 1m}", "loadSource.timeout: must not be longer than interval (15s)"),
        ("records: {keep: 0}", "records.keep: must be at least 1, but is 0"),
        ("server: {health: 8081}", "server.health: 8081 is not an address to listen on; write it as"),
        ("server: {metrics: ':70000'}", "there is no port 70000"),
        ("server: {metrics: '[1.2.3]:1'}", "'1.2.3' is not an IPv6 address"),
        ("server: {health: ':1', metrics: '127.0.0.1:1'}", "server.metrics: 127.0.0.1:1 and :1 overlap; give each a"),
        ("server: {health: ':1', metrics: ':1'}", "server.metrics: :1 and :1 overlap"),
        ("server: {health: ':8444'}", "server.loopback: 127.0.0.1:8444 and :8444 overlap"),
        ("server: {keyFile: a}", "server.certificateFile: is missing, and keyFile is given; name both, or neither"),
        ("server: {certificateFile: a}", "server.keyFile: is missing, and certificateFile is given"),
        ("server: {authentication: None}", "server.authentication: "),
        ("server: {loopback: ':1'}", 'server.loopback: :1 is not on loopback; write it as "127.0.0.1:1"'),
        ("server: {loopback: '10.0.0.1:1'}", "10.0.0.1:1 is not on loopback"),
        ("server: {loopback: 'localhost.example:1'}", "localhost.example:1 is not on loopback"),
        ("logging: {format: xml}", "logging.format: must be one of text, json, but is 'xml'"),
        ("dryRun: yes", "dryRun: must be true or false, but is 'yes'"),
        ("dryRun: true\ndryRun: true", "F:4: dryRun: the key stands twice"),
    ],
)
def test_a_mistake_is_one_clear_sentence(tmp_path: Path, text: str, message: str) -> None:
    assert any(message in line for line in complaints(tmp_path, text)), complaints(tmp_path, text)


def test_all_mistakes_are_told_at_once_and_in_order(tmp_path: Path) -> None:
    text = "rounds: {batchLimt: 1}\nengine: {slots: 0}\nleaderElection: {retryPeriod: 20s}\nserver: {health: x}\n"
    lines = complaints(tmp_path, text)
    assert [line.split(": ")[:2] for line in lines] == [
        ["F:3", "rounds.batchLimt"],
        ["F:4", "engine.slots"],
        ["F:5", "leaderElection.retryPeriod"],
        ["F:6", "server.health"],
    ]


def test_another_kind_of_file_is_refused_before_its_keys(tmp_path: Path) -> None:
    lines = complaints(tmp_path, "jobs: {}", "apiVersion: flowsched/v1\nkind: Profiles\n")
    assert lines == [
        f"F:1: apiVersion: must be {CONFIG_VERSION} here, but is 'flowsched/v1'",
        f"F:2: kind: must be {CONFIG_KIND} here, but is 'Profiles'",
    ]
    assert complaints(tmp_path, "dryRun: true", "") == [
        f"F:1: apiVersion: is missing; write 'apiVersion: {CONFIG_VERSION}'",
        f"F:1: kind: is missing; write 'kind: {CONFIG_KIND}'",
    ]


def test_a_missing_file_is_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="there is no such file"):
        load_configuration(tmp_path / "none.yaml")


durations = st.integers(1, 10**13).map(lambda us: us / 1e6)


@given(
    configuration=st.builds(
        Configuration,
        profiles=st.lists(st.from_regex(r"[a-z]{1,9}", fullmatch=True), min_size=1, unique=True).map(
            lambda names: tuple(SchedulerProfile(scheduler_name=name) for name in names)
        ),
        rounds=st.builds(
            Rounds,
            batch_window_s=st.just(0.001),
            batch_limit=st.integers(1, 9999),
            max_period_s=durations.filter(lambda s: s > 0.001),
            unschedulable_retry_s=durations,
        ),
        engine=st.builds(Settings, beta=st.floats(0.1, 1e6), slots=st.integers(1, 16)),
        records=st.builds(
            RecordSettings, keep=st.integers(1, 10_000), directory=st.none() | st.just(Path("/var/records"))
        ),
        server=st.builds(
            ServerSettings,
            health=st.builds(Address, st.sampled_from(["", "::1", "localhost"]), st.integers(0, 999)),
        ),
        dry_run=st.booleans(),
    )
)
def test_what_is_shown_can_be_read_back(tmp_path_factory: pytest.TempPathFactory, configuration: Configuration) -> None:
    folder = tmp_path_factory.getbasetemp()
    text = yaml.safe_dump(configuration.plain(), sort_keys=False)
    assert load(folder, text, header="") == configuration


@given(durations)
def test_durations_read_back_exactly(seconds: float) -> None:
    assert parse_duration_s(format_duration_s(seconds)) == seconds


@pytest.mark.parametrize(
    ("text", "seconds"), [("15s", 15), ("20ms", 0.02), ("5m", 300), ("1h30m", 5400), ("1.5s", 1.5), ("7us", 7e-6)]
)
def test_durations(text: str, seconds: float) -> None:
    assert parse_duration_s(text) == pytest.approx(seconds)
    if "." not in text:
        assert format_duration_s(seconds) == text


@pytest.mark.parametrize(
    "value", ["", "s", "5", "5 minutes", "-5s", "5d", "1m5", 5, True, None, [], "0s", "1e9s", "9" * 99]
)
def test_what_is_no_duration(value: object) -> None:
    with pytest.raises(QuantityError):
        parse_duration_s(value)


@given(st.text(max_size=30))
def test_an_address_reads_back_or_is_refused(text: str) -> None:
    try:
        address = parse_address(text, 8081)
    except QuantityError:
        return
    assert parse_address(str(address), 8081) == address


def test_the_reference_has_every_key_once_with_its_default() -> None:
    keys = reference(Configuration)
    names = [k.key for k in keys]
    assert len(set(names)) == len(names)
    top = {info.alias for info in Configuration.model_fields.values()}
    assert {n.split(".")[0].split("[")[0] for n in names} == top
    assert all(k.meaning for k in keys)
    by_name = {k.key: k.default for k in keys}
    assert by_name["leaderElection.leaseDuration"] == "15s"
    assert by_name["rounds.batchWindow"] == "20ms"
    assert by_name["features.podGroups"] == "[scheduling.x-k8s.io, labels, kueue.x-k8s.io]"
    assert by_name["dryRun"] == "false"
    assert reference_table(Configuration).count("\n") == len(keys) + 2


def test_the_reference_leads_to_the_defaults(tmp_path: Path) -> None:
    """A file made of the table's defaults is the default configuration."""
    data: dict[str, object] = {}
    for key in reference(Configuration):
        if key.default and "[]" not in key.key:
            place = data
            *above, last = key.key.split(".")
            for part in above:
                place = place.setdefault(part, {})  # type: ignore[assignment]
            place[last] = yaml.safe_load(key.default)
    assert load(tmp_path, yaml.safe_dump(data), header="") == Configuration()


def test_the_form_agrees_with_the_values() -> None:
    plain = Configuration().plain()
    assert plain.keys() == {info.alias for info in Configuration.model_fields.values()}
    assert len(plain["engine"]) == len(fields(Settings)) - len(CHANGE_SETTINGS) - len(["drain"])


def test_a_cost_model_is_a_name_or_a_mapping_with_its_settings(tmp_path: Path) -> None:
    assert load(tmp_path, "costModel: coco\n").cost_model == CostModelChoice("coco")
    assert load(tmp_path, "costModel: {name: flow}\n").cost_model == CostModelChoice()
    text = "costModel: {name: load-spreading, count: cores, by-size: false, weight: 2}\n"
    found = load(tmp_path, text)
    assert found.cost_model == CostModelChoice("load-spreading", {"count": "cores", "by_size": False, "weight": 2})
    assert load(tmp_path, yaml.safe_dump(found.plain()), header="") == found
    assert load(tmp_path, "engine: {dueAgeS: 60, scoring: pack}\ncostModel: trivial\n").engine.due_age_s == 60.0
    assert load(tmp_path, "engine: {headroomWeight: 0.1}\ncostModel: flow-network\n").cost_model.name == "flow-network"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (
            "costModel: cocoa\n",
            "F:3: costModel: there is no cost model 'cocoa'; did you mean 'coco'? (known: flow, flow-network, quincy, "
            "load-spreading, coco, shortest-job-first, trivial)",
        ),
        (
            "costModel: {bucket: 2}\n",
            "F:3: costModel.name: is missing; one of flow, flow-network, quincy, load-spreading, coco, "
            "shortest-job-first, trivial",
        ),
        ("costModel: {name: 7}\n", "F:3: costModel.name: must be text, but is 7; one of flow, flow-network, quincy, "
         "load-spreading, coco, shortest-job-first, trivial"),
        (
            "costModel: {name: flow, slots: 2}\n",
            "F:3: costModel.slots: is no setting of the cost model flow; flow's settings are under engine",
        ),
        (
            "costModel:\n  name: coco\n  buckets: 2\n",
            "F:5: costModel.buckets: the cost model 'coco' has no setting 'buckets'; did you mean 'bucket'? (known: "
            "penalties, devil_pressure, rabbit_sensitivity, sheep_pressure, bucket, waiting, growth)",
        ),
        ("costModel: {name: coco, bucket: wide}\n", "F:3: costModel.bucket: is 'wide'; give a number"),
        ("costModel: {name: coco, bucket: true}\n", "F:3: costModel.bucket: is True; give a number"),
        (
            "costModel: {name: coco, bucket: -1}\n",
            "F:3: costModel.bucket: is -1; give a finite number from 0 up",
        ),
        (
            "engine: {slots: 2}\ncostModel: coco\n",
            "F:3: engine.slots: has no effect with the cost model coco; remove it; coco reads sloMargin, dueAgeS, "
            "agingCrossesPriority, scoring",
        ),
        (
            "features: {resize: true}\ncostModel: trivial\n",
            "F:3: features.resize: has no effect with the cost model trivial: only flow chooses widths; remove it, or "
            "costModel",
        ),
    ],
)  # fmt: skip
def test_a_cost_model_that_cannot_be_is_told_with_its_line(text: str, says: str, tmp_path: Path) -> None:
    assert complaints(tmp_path, text) == [says]


def test_all_that_is_wrong_with_a_cost_model_is_told_at_once(tmp_path: Path) -> None:
    text = "engine: {slots: 2}\nfeatures: {resize: true}\ncostModel: {name: quincy, waiting: soon, racks: 1}\n"
    assert [line.split(": ")[1] for line in complaints(tmp_path, text)] == [
        "engine.slots", "features.resize", "costModel.waiting", "costModel.racks"
    ]  # fmt: skip
