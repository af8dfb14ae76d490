"""Manifests, chart and examples: least rights, restricted pods, the same objects whichever way they are installed."""

from __future__ import annotations

import importlib.util
import json
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import msgspec
import pytest
import yaml

from flowsched.support.configuration import reference_table
from flowsched_k8s import names
from flowsched_k8s.configuration.configuration import Configuration, Features
from flowsched_k8s.configuration.configuration_file import load_configuration
from flowsched_k8s.groups.pod_groups import GroupSpec, PodGroupIndex, group_ref
from flowsched_k8s.metrics.metrics import FAMILIES
from flowsched_k8s.objects import Meta, Node, NodeSpec, Pod, Taint
from flowsched_k8s.pods.filters import static_filter
from flowsched_k8s.pods.intent import read_intent
from flowsched_k8s.pods.requests import pod_requests
from flowsched_k8s.volumes.volumes import VolumeIndex
from flowsched_models.profiles import load_catalogue
from flowsched_simulator import load_scenario
from requirements_on_machine import give_up
from site_pages import site_page

HOUSE = Path(__file__).parent.parent.parent
K8S = HOUSE / "k8s"
MANIFESTS = K8S / "manifests"
CHART = K8S / "chart"
EXAMPLES = K8S / "examples"
NAMESPACE = "flowsched-system"
VERSION = tomllib.loads((HOUSE / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]
COMPONENTS = sorted(path.parent.name for path in (MANIFESTS / "components").glob("*/kustomization.yaml"))
FEATURES = [name for name in COMPONENTS if name not in ("network-policy", "service-monitor", "learning")]

Object = dict[str, Any]

CHANGES = {
    "core": {
        ("", "pods/binding", "create"),
        ("", "pods/status", "patch"),
        ("events.k8s.io", "events", "create"),
    },
    "metrics": {
        ("authentication.k8s.io", "tokenreviews", "create"),
        ("authorization.k8s.io", "subjectaccessreviews", "create"),
    },
    "volumes": {("", "persistentvolumeclaims", "patch")},
    "pod-groups": set(),
    "pod-groups-in-tree": {("scheduling.k8s.io", "podgroups/status", "patch")},
    "namespace-selector": set(),
    "preemption": {("", "pods", "delete")},
    "rebalancing": {("", "pods/eviction", "create"), ("", "nodes", "patch")},
    "resize": {("", "pods/resize", "patch")},
    "learning": {("", "configmaps", "create"), ("", "configmaps", "patch")},
    "lease": {("coordination.k8s.io", "leases", "create"), ("coordination.k8s.io", "leases", "update")},
}
"""Everything that flowsched may ever change, by feature. Whatever else it is granted is reading."""
READS = {"get", "list", "watch"}


# Reading


def parsed(path: Path) -> list[Object]:
    return [document for document in yaml.safe_load_all(path.read_text(encoding="utf-8")) if document]


def kustomized(folder: Path) -> Iterator[Object]:
    """The objects of a kustomization, as far as ours use it: resources, components and generated ConfigMaps."""
    (kustomization,) = parsed(folder / "kustomization.yaml")
    for name in (*kustomization.get("resources", ()), *kustomization.get("components", ())):
        path = folder / name
        yield from kustomized(path) if path.is_dir() else parsed(path)
    for generated in kustomization.get("configMapGenerator", ()):
        files = [folder / name for name in generated["files"]]
        yield {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {
                "name": generated["name"],
                "namespace": generated["namespace"],
                "labels": dict(generated["options"]["labels"]),
            },
            "data": {file.name: file.read_text(encoding="utf-8") for file in files},
        }


DEFAULT = list(kustomized(MANIFESTS))
EVERYTHING = [*DEFAULT, *(o for name in COMPONENTS for o in kustomized(MANIFESTS / "components" / name))]


def of_kind(objects: list[Object], *kinds: str) -> list[Object]:
    return [o for o in objects if o["kind"] in kinds]


def only(objects: list[Object], kind: str) -> Object:
    (found,) = of_kind(objects, kind)
    return found


def configuration_of(path: Path = MANIFESTS / "base" / "config.yaml") -> Configuration:
    return load_configuration(path)


def switched_on(features: Features) -> set[str]:
    """The roles that features need, beside the core and the lease."""
    wanted = {
        "volumes": features.volumes,
        "pod-groups": "scheduling.x-k8s.io" in features.pod_groups,
        "pod-groups-in-tree": "scheduling.k8s.io" in features.pod_groups,
        "namespace-selector": features.namespace_selector,
        "preemption": features.preemption,
        "rebalancing": features.rebalancing,
        "resize": features.resize,
    }
    return {name for name, on in wanted.items() if on}


def grants(role: Object) -> set[tuple[str, str, str]]:
    return {
        (group, resource, verb)
        for rule in role["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }


ROLES = {o["metadata"]["name"].removeprefix("flowsched-"): o for o in of_kind(EVERYTHING, "ClusterRole", "Role")}
DEPLOYMENT = only(DEFAULT, "Deployment")
POD = DEPLOYMENT["spec"]["template"]["spec"]
(CONTAINER,) = POD["containers"]


# Rights


def test_the_default_has_the_roles_of_the_features_that_its_configuration_switches_on() -> None:
    roles = {o["metadata"]["name"] for o in of_kind(DEFAULT, "ClusterRole")}
    assert roles == {f"flowsched-{name}" for name in ("core", "metrics", *switched_on(configuration_of().features))}


def test_features_left_out_of_the_file_need_the_same_roles() -> None:
    assert switched_on(Features()) == switched_on(configuration_of().features)


def test_every_feature_has_a_role_of_its_own() -> None:
    groups = ("scheduling.x-k8s.io", "scheduling.k8s.io")
    everything = Features(pod_groups=groups, preemption=True, resize=True, rebalancing=True)
    assert switched_on(everything) == set(FEATURES)
    assert set(ROLES) == {"core", "lease", "learning", "metrics", *FEATURES} == set(CHANGES)


@pytest.mark.parametrize("name", sorted(CHANGES))
def test_a_role_changes_only_what_its_feature_is_for(name: str) -> None:
    assert {g for g in grants(ROLES[name]) if g[2] not in READS} == CHANGES[name]


@pytest.mark.parametrize("name", sorted(CHANGES))
def test_nothing_is_granted_by_a_wildcard_and_no_secret_is_read(name: str) -> None:
    for group, resource, verb in grants(ROLES[name]):
        assert "*" not in f"{group}{resource}{verb}"
        assert resource.split("/")[0] not in ("secrets", "serviceaccounts", "roles", "clusterroles")
        assert resource != "configmaps" or name == "learning"
        assert resource not in ("pods/exec", "pods/attach", "pods/portforward", "pods/proxy", "nodes/proxy")
    assert all(rule.keys() <= {"apiGroups", "resources", "verbs", "resourceNames"} for rule in ROLES[name]["rules"])


def test_nothing_is_granted_twice_but_reading_budgets_which_either_of_two_features_needs() -> None:
    granted = [grant for role in ROLES.values() for grant in grants(role)]
    shared = grants(ROLES["preemption"]) & grants(ROLES["rebalancing"])
    assert {resource for _, resource, _ in shared} == {"poddisruptionbudgets"}
    granted = [grant for grant in granted if grant not in shared]
    assert len(granted) == len(set(granted))


@pytest.mark.parametrize(("role", "ending"), [("lease", ""), ("learning", f"-{names.LEARNT}")])
def test_of_leases_and_config_maps_only_its_own_can_be_read_or_changed(role: str, ending: str) -> None:
    making, using = ROLES[role]["rules"]
    assert making["verbs"] == ["create"]
    assert using["resourceNames"] == [configuration_of().leader_election.resource_name + ending]
    assert ROLES[role]["kind"] == "Role"
    assert ROLES[role]["metadata"]["namespace"] == NAMESPACE


def test_every_role_is_bound_to_our_service_account_only() -> None:
    account = only(DEFAULT, "ServiceAccount")["metadata"]
    assert POD["serviceAccountName"] == account["name"]
    subject = {"kind": "ServiceAccount", "name": account["name"], "namespace": account["namespace"]}
    bindings = of_kind(EVERYTHING, "ClusterRoleBinding", "RoleBinding")
    assert all(b["subjects"] == [subject] for b in bindings)
    bound = {(b["roleRef"]["kind"], b["roleRef"]["name"]) for b in bindings}
    assert bound == {(o["kind"], o["metadata"]["name"]) for o in ROLES.values()}


# Pods


def test_the_pod_is_restricted_and_its_namespace_demands_it() -> None:
    namespace = only(DEFAULT, "Namespace")["metadata"]
    assert namespace["name"] == NAMESPACE
    assert namespace["labels"]["pod-security.kubernetes.io/enforce"] == "restricted"
    assert POD["securityContext"]["runAsNonRoot"] is True
    assert POD["securityContext"]["runAsUser"] > 0
    assert POD["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert CONTAINER["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert not {"hostNetwork", "hostPID", "hostIPC"} & POD.keys()
    assert all(set(v) - {"name"} <= {"configMap", "emptyDir"} for v in POD["volumes"])


def test_two_replicas_of_which_one_may_be_away() -> None:
    assert DEPLOYMENT["spec"]["replicas"] == 2
    assert configuration_of().leader_election.leader_elect
    budget = only(DEFAULT, "PodDisruptionBudget")["spec"]
    assert budget["maxUnavailable"] == 1
    assert budget["selector"] == DEPLOYMENT["spec"]["selector"]
    # A hard rule would leave the second replica pending on a cluster of one node.
    assert set(POD["affinity"]["podAntiAffinity"]) == {"preferredDuringSchedulingIgnoredDuringExecution"}
    assert [c["whenUnsatisfiable"] for c in POD["topologySpreadConstraints"]] == ["ScheduleAnyway"]


def test_the_critical_class_is_allowed_by_a_quota_with_room_for_an_update() -> None:
    quota = only(DEFAULT, "ResourceQuota")["spec"]
    (scope,) = quota["scopeSelector"]["matchExpressions"]
    assert (scope["scopeName"], scope["values"]) == ("PriorityClass", [POD["priorityClassName"]])
    assert POD["priorityClassName"] == "system-cluster-critical"
    surge = DEPLOYMENT["spec"]["strategy"]["rollingUpdate"]["maxSurge"]
    assert int(quota["hard"]["pods"]) >= 2 * (DEPLOYMENT["spec"]["replicas"] + surge)


def test_flowsched_does_not_place_itself() -> None:
    assert "schedulerName" not in POD
    assert POD.get("tolerations", []) == []


def test_probes_and_ports_are_where_the_configuration_listens() -> None:
    server = configuration_of().server
    ports = {p["name"]: p["containerPort"] for p in CONTAINER["ports"]}
    assert ports == {"health": server.health.port, "metrics": server.metrics.port}
    assert server.health.host == server.metrics.host == ""
    probed = {k: v["httpGet"] for k, v in CONTAINER.items() if k.endswith("Probe")}
    assert {k: v["path"] for k, v in probed.items()} == {
        "startupProbe": "/livez",
        "livenessProbe": "/livez",
        "readinessProbe": "/readyz",
    }
    assert {v["port"] for v in probed.values()} == {"health"}
    service = only(DEFAULT, "Service")["spec"]
    assert service["selector"] == DEPLOYMENT["spec"]["selector"]["matchLabels"]
    assert [(p["name"], p["port"], p["targetPort"]) for p in service["ports"]] == [
        ("metrics", server.metrics.port, "metrics")
    ]


def test_prometheus_alone_reaches_the_metrics_and_all_reach_health() -> None:
    policy = only(DEFAULT, "NetworkPolicy")["spec"]
    assert policy["podSelector"] == DEPLOYMENT["spec"]["selector"]
    assert policy["policyTypes"] == ["Ingress"]
    health, metrics = policy["ingress"]
    assert health == {"ports": [{"port": "health", "protocol": "TCP"}]}
    assert [p["port"] for p in metrics["ports"]] == ["metrics"]
    (source,) = metrics["from"]
    # Both: a pod of another namespace may bear any label.
    assert source.keys() == {"namespaceSelector", "podSelector"}


def test_prometheus_scrapes_by_tls_and_with_its_token() -> None:
    (endpoint,) = only(EVERYTHING, "ServiceMonitor")["spec"]["endpoints"]
    assert (endpoint["scheme"], endpoint["port"], endpoint["path"]) == ("https", "metrics", "/metrics")
    assert endpoint["bearerTokenFile"] == "/var/run/secrets/kubernetes.io/serviceaccount/token"
    role, binding = parsed(EXAMPLES / "metrics-role.yaml")
    assert role["rules"] == [{"nonResourceURLs": [endpoint["path"]], "verbs": ["get"]}]
    assert binding["roleRef"]["name"] == role["metadata"]["name"]


def test_the_chart_takes_another_token_than_that_of_prometheus(helm: Path) -> None:
    given = "serviceMonitor.authorization.credentials.name=own,serviceMonitor.authorization.credentials.key=token"
    (endpoint,) = only(rendered(helm, "--set", f"serviceMonitor.enabled=true,{given}"), "ServiceMonitor")["spec"][
        "endpoints"
    ]
    assert endpoint["authorization"] == {"credentials": {"name": "own", "key": "token"}}
    assert "bearerTokenFile" not in endpoint


def test_files_are_mounted_where_they_are_read() -> None:
    sources = {v["name"]: v["configMap"]["name"] for v in POD["volumes"] if "configMap" in v}
    mounts = {m["mountPath"]: sources[m["name"]] for m in CONTAINER["volumeMounts"] if m["name"] in sources}
    data = {o["metadata"]["name"]: o["data"] for o in of_kind(DEFAULT, "ConfigMap")}
    (argument,) = (a for a in CONTAINER["args"] if a.startswith("--config="))
    path = Path(argument.removeprefix("--config="))
    assert path.name in data[mounts[str(path.parent)]]
    assert mounts[str(configuration_of().profiles_file)] == "flowsched-profiles"
    assert all(m["readOnly"] for m in CONTAINER["volumeMounts"] if m["name"] in sources)


def test_a_changed_configuration_rolls_the_pods_and_changed_profiles_do_not() -> None:
    (base,) = parsed(MANIFESTS / "base" / "kustomization.yaml")
    fixed = {g["name"]: g["options"].get("disableNameSuffixHash", False) for g in base["configMapGenerator"]}
    assert fixed == {"flowsched-config": False, "flowsched-profiles": True}


def test_the_example_profiles_are_read_beside_the_bundled_ones() -> None:
    files = sorted((MANIFESTS / "base" / "profiles").glob("*.yaml"))
    assert set(load_catalogue(extra=files).jobs) > set(load_catalogue().jobs)


def test_the_pool_is_the_one_that_the_examples_and_the_documents_speak_of() -> None:
    assert configuration_of().node_selector == {names.POOL: "true"}


# Labels


@pytest.mark.parametrize("o", EVERYTHING, ids=lambda o: f"{o['kind']}-{o['metadata']['name']}")
def test_every_object_says_whose_it_is(o: Object) -> None:
    wanted = {
        "name": names.COMPONENT,
        "instance": "flowsched",
        "version": VERSION,
        "component": "scheduler",
        "part-of": "flowsched",
        "managed-by": "kustomize",
    }
    assert o["metadata"]["labels"].items() >= {f"app.kubernetes.io/{k}": v for k, v in wanted.items()}.items()
    cluster_wide = o["kind"] in ("Namespace", "ClusterRole", "ClusterRoleBinding")
    assert o["metadata"].get("namespace", "") == ("" if cluster_wide else NAMESPACE)


def test_selectors_outlive_an_upgrade() -> None:
    selector = DEPLOYMENT["spec"]["selector"]["matchLabels"]
    assert selector.items() < DEPLOYMENT["spec"]["template"]["metadata"]["labels"].items()
    assert not {"app.kubernetes.io/version", "app.kubernetes.io/managed-by"} & selector.keys()


def test_the_version_is_the_same_everywhere() -> None:
    (chart,) = parsed(CHART / "Chart.yaml")
    assert {chart["version"], chart["appVersion"]} == {VERSION}
    assert CONTAINER["image"] == f"flowsched:{VERSION}"


# Chart and kustomize


def module_at(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def run(*command: str | Path) -> list[Object]:
    done = subprocess.run([str(c) for c in command], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    return [o for o in yaml.safe_load_all(done.stdout) if o]


@pytest.fixture(scope="session")
def helm() -> Path:
    """The helm of the cache; built there first, which takes a minute or two."""
    sys.path.append(str(K8S / "control_plane"))  # scripts of their own, and no part of what is installed
    builder = module_at(K8S / "control_plane" / "helm.py")
    try:
        return builder.build()  # type: ignore[no-any-return]
    except builder.PlaneError as error:
        give_up(str(error))


@pytest.fixture(scope="session")
def kubectl(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The kubectl inside the test control plane if that is built, or the machine's own."""
    built = module_at(K8S / "control_plane" / "control_plane.py").executable()
    if built.exists():
        link: Path = tmp_path_factory.mktemp("bin") / "kubectl"
        link.symlink_to(built)
        return link
    found = shutil.which("kubectl")
    if found is None:
        give_up("neither the test control plane nor kubectl is there; one is needed to build the kustomization")
    return Path(found)


def plain(objects: list[Object]) -> dict[tuple[str, str], Object]:
    """Objects by kind and name, without what the two ways of installing are meant to do differently."""
    found = {}
    for o in objects:
        name = o["metadata"]["name"]
        o = msgspec.json.decode(msgspec.json.encode(o))
        o["metadata"]["labels"].pop("app.kubernetes.io/managed-by")
        if o["kind"] == "ConfigMap":
            name = o["metadata"]["name"] = re.sub(r"^(flowsched-config)-\w{10}$", r"\1", name)
            o["data"] = {file: yaml.safe_load(text) for file, text in o["data"].items()}
        elif o["kind"] == "Deployment":
            template = o["spec"]["template"]
            template["metadata"]["labels"].pop("app.kubernetes.io/managed-by")
            template["metadata"].get("annotations", {}).pop("checksum/config", None)
            if not template["metadata"].get("annotations"):
                template["metadata"].pop("annotations", None)
            for volume in template["spec"]["volumes"]:
                if "configMap" in volume:
                    generated = volume["configMap"]["name"]
                    volume["configMap"]["name"] = re.sub(r"^(flowsched-config)-\w{10}$", r"\1", generated)
        found[o["kind"], name] = o
    assert len(found) == len(objects)
    return found


def rendered(helm: Path, *more: str, release: str = "flowsched") -> list[Object]:
    return run(helm, "template", release, CHART, "--namespace", NAMESPACE, *more)


def test_our_reading_of_the_kustomization_is_the_real_one(kubectl: Path) -> None:
    assert plain(run(kubectl, "kustomize", MANIFESTS)) == plain(DEFAULT)


def test_the_chart_makes_what_the_kustomization_makes(helm: Path) -> None:
    wanted = {key: o for key, o in plain(DEFAULT).items() if key[0] != "Namespace"}
    assert plain(rendered(helm)) == wanted


def test_with_everything_on_the_chart_still_makes_the_same(helm: Path) -> None:
    everything = "config.features.podGroups={scheduling.x-k8s.io,scheduling.k8s.io,labels,kueue.x-k8s.io}"
    features = [f"config.features.{name}=true" for name in ("preemption", "rebalancing", "resize")]
    on = (*features, "serviceMonitor.enabled=true", everything)
    made = plain(rendered(helm, *(word for value in on for word in ("--set", value))))
    wanted = {(o["kind"], o["metadata"]["name"]): o for o in EVERYTHING}
    assert made.keys() == wanted.keys() - {("Namespace", NAMESPACE)}
    for key in made:
        if key[0] in ("ClusterRole", "ClusterRoleBinding", "ServiceMonitor"):
            assert made[key] == plain([wanted[key]])[key]


def test_with_everything_off_the_chart_grants_the_core_alone(helm: Path, tmp_path: Path) -> None:
    values = tmp_path / "values.yaml"
    values.write_text(
        "config: {features: {volumes: false, podGroups: [labels, kueue.x-k8s.io], namespaceSelector: false},"
        " learning: off, leaderElection: {leaderElect: false}, server: {authentication: none}}"
    )
    made = rendered(helm, "--values", str(values))
    assert [o["metadata"]["name"] for o in of_kind(made, "ClusterRole", "Role")] == ["flowsched-core"]


def test_the_chart_mounts_a_certificate_and_leaves_the_network_policy_out(helm: Path) -> None:
    made = rendered(helm, "--set", "tlsSecret=own-tls,networkPolicy.enabled=false")
    assert not of_kind(made, "NetworkPolicy")
    pod = only(made, "Deployment")["spec"]["template"]["spec"]
    assert {"name": "tls", "secret": {"secretName": "own-tls"}} in pod["volumes"]
    mounts = {m["name"]: m["mountPath"] for m in pod["containers"][0]["volumeMounts"]}
    assert mounts["tls"] == "/etc/flowsched/tls"


def test_a_second_release_shares_nothing_with_the_first(helm: Path) -> None:
    second = rendered(
        helm, "--set", "config.leaderElection.resourceName=second,config.profiles[0].schedulerName=second",
        release="second",
    )  # fmt: skip
    assert not plain(rendered(helm)).keys() & plain(second).keys()
    named = [r["resourceNames"] for role in of_kind(second, "Role") for r in role["rules"] if "resourceNames" in r]
    assert named == [["second"], [f"second-{names.LEARNT}"]]


def test_the_chart_rolls_the_pods_when_the_configuration_changes_and_only_then(helm: Path) -> None:
    def checksum(*more: str) -> str:
        metadata = only(rendered(helm, *more), "Deployment")["spec"]["template"]["metadata"]
        return str(metadata["annotations"]["checksum/config"])

    assert checksum() == checksum("--set", "profiles.more\\.yaml=x")
    assert checksum() != checksum("--set", "config.dryRun=true")


def test_the_chart_refuses_a_value_that_it_does_not_know(helm: Path) -> None:
    command = [str(helm), "template", str(CHART), "--set", "replica=3"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode != 0
    assert "replica" in done.stderr


@pytest.mark.parametrize(
    ("value", "told"),
    [
        ("config.costModel.nam=coco", "at '/config/costModel': additional properties 'nam' not allowed"),
        ("config.costModel.name=coco,config.costModel.wait=1", "'wait' not allowed"),
        ("config.features.preemptions=true", "at '/config/features': additional properties 'preemptions' not allowed"),
        ("config.rounds.batchWindows=1s", "at '/config/rounds': additional properties 'batchWindows' not allowed"),
        ("config.engine.dueAge=3", "at '/config/engine': additional properties 'dueAge' not allowed"),
        ("config.engine.dueAgeS=60s", "at '/config/engine/dueAgeS': got string, want number"),
        ("config.profiles[0].name=flowsched", "at '/config/profiles/0': "),
        ("config.logging.format=xml", "at '/config/logging/format': "),
        ("config.round.batchLimit=5", "at '/config': additional properties 'round' not allowed"),
        ("agent.config.logs.format=json", "at '/agent/config': additional properties 'logs' not allowed"),
        ("agent.config.kubernetes.enable=true", "additional properties 'enable' not allowed"),
    ],
)
def test_the_chart_refuses_what_the_configurations_do_not_know(helm: Path, value: str, told: str) -> None:
    command = [str(helm), "template", str(CHART), "--set", value]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode != 0
    assert told in done.stderr


@pytest.mark.parametrize(
    "value",
    [
        "config.costModel=coco",
        "config.costModel.name=quincy,config.costModel.rack-label=rack",
        "config.costModel.name=of-another-package,config.costModel.own=1",
        "config.costModel=null,config.nodeSelector=null",
        "config.engine.dueAgeS=60,config.rounds.batchWindow=1s,config.clientConnection.qps=50",
        "config.gpus[0].resource=amd.com/gpu",
        "agent.enabled=true,agent.config.period=2s",
    ],
)
def test_the_chart_takes_what_the_configurations_know(helm: Path, value: str) -> None:
    assert rendered(helm, "--set", value)


def test_the_chart_s_schema_is_that_of_the_configurations() -> None:
    script = module_at(K8S / "chart_schema.py")
    assert json.loads(script.FILE.read_text(encoding="utf-8")) == script.written(), "run python k8s/chart_schema.py"


def test_helm_finds_no_fault_with_the_chart(helm: Path) -> None:
    done = subprocess.run([str(helm), "lint", str(CHART)], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_overlay_changes_image_and_configuration_and_adds_a_role_and_profiles(kubectl: Path) -> None:
    made = run(kubectl, "kustomize", EXAMPLES / "overlay")
    (container,) = only(made, "Deployment")["spec"]["template"]["spec"]["containers"]
    assert container["image"] == f"registry.example.com/flowsched:{VERSION}"
    configuration = configuration_of(EXAMPLES / "overlay" / "config.yaml")
    roles = {o["metadata"]["name"] for o in of_kind(made, "ClusterRole")}
    assert roles == {f"flowsched-{name}" for name in ("core", "metrics", *switched_on(configuration.features))}
    (config,) = (o for o in of_kind(made, "ConfigMap") if o["metadata"]["name"].startswith("flowsched-config-"))
    assert config["data"]["config.yaml"] == (EXAMPLES / "overlay" / "config.yaml").read_text(encoding="utf-8")
    (profiles,) = (o for o in of_kind(made, "ConfigMap") if o["metadata"]["name"] == "flowsched-profiles")
    assert set(profiles["data"]) == {"example.yaml", "lab-profiles.yaml"}
    assert "lab-render" in load_catalogue(extra=[EXAMPLES / "overlay" / "lab-profiles.yaml"]).jobs


def test_the_overlay_in_the_documents_is_the_one_that_is_there() -> None:
    text = (EXAMPLES / "overlay" / "kustomization.yaml").read_text(encoding="utf-8")
    code = "".join(line for line in text.splitlines(keepends=True) if not line.startswith("#"))
    assert f"```yaml\n{code}```" in page("kubernetes.md")


# Examples


def pods_in(path: Path) -> Iterator[tuple[str, Pod]]:
    """The pods of a file and of the controllers in it."""
    for o in parsed(path):
        template = o if o["kind"] == "Pod" else o.get("spec", {}).get("template")
        if template is not None:
            whole = {"metadata": template["metadata"], "spec": template["spec"]}
            yield o["metadata"]["name"], msgspec.convert(whole, Pod)


EXAMPLE_PODS = [
    pytest.param(pod, id=f"{path.stem}-{name}") for path in sorted(EXAMPLES.glob("*.yaml")) for name, pod in pods_in(path)
]  # fmt: skip
POOL_NODE = Node(
    metadata=Meta(name="n", labels={names.POOL: "true", "kubernetes.io/hostname": "n"}),
    spec=NodeSpec(taints=[Taint(key=names.POOL, value="true", effect="NoSchedule")]),
)


@pytest.mark.parametrize("pod", EXAMPLE_PODS)
def test_an_example_is_ours_and_may_run_in_the_pool(pod: Pod) -> None:
    assert pod.spec.scheduler_name in configuration_of().scheduler_names
    passes = static_filter(pod, VolumeIndex())
    assert passes.blocked is None
    assert passes.verdict(POOL_NODE) is None


@pytest.mark.parametrize("pod", EXAMPLE_PODS)
def test_what_an_example_says_of_itself_is_understood(pod: Pod) -> None:
    assert read_intent(pod, load_catalogue()).problems == ()
    ours = {**(pod.metadata.labels or {}), **(pod.metadata.annotations or {})}
    known = {value for name, value in vars(names).items() if name.isupper() and isinstance(value, str)}
    assert {key for key in ours if key.startswith(f"{names.PREFIX}/")} <= known


def test_the_parsec_jobs_are_those_of_the_bundled_scenario() -> None:
    catalogue = load_catalogue()
    shown = {}
    for name, pod in pods_in(EXAMPLES / "parsec.yaml"):
        intent = read_intent(pod, catalogue)
        asked = pod_requests(pod)
        shown[name] = (intent.profile, asked["cpu"], asked["memory"] // 2**20, tuple(intent.widths_milli))
    assert shown == {
        task.name: (task.profile, task.request_milli, task.memory_mib, tuple(task.widths_milli))
        for task in load_scenario("parsec-memcached-2024").tasks
    }


def test_memcached_is_that_of_the_bundled_scenario() -> None:
    ((_, pod),) = pods_in(EXAMPLES / "memcached.yaml")
    intent = read_intent(pod, load_catalogue())
    (service,) = load_scenario("parsec-memcached-2024").services
    assert intent.service == service.profile
    assert intent.slo is not None
    assert (intent.slo.p95_us, intent.slo.qps, intent.client) == (service.slo_us, service.qps, service.client)
    asked = pod_requests(pod)
    assert (asked["cpu"], asked["memory"] // 2**20) == (service.width_milli, service.memory_mib)


def test_all_forms_of_a_pod_group_say_the_same() -> None:
    group, job = parsed(EXAMPLES / "pod-group.yaml")
    (labelled,) = parsed(EXAMPLES / "pod-group-labels.yaml")
    labels = labelled["spec"]["template"]["metadata"]["labels"]
    assert labels["pod-group.scheduling.sigs.k8s.io/min-available"] == str(group["spec"]["minMember"])
    assert job["spec"]["parallelism"] == labelled["spec"]["parallelism"] == group["spec"]["minMember"]
    assert job["spec"]["template"]["metadata"]["labels"]["scheduling.x-k8s.io/pod-group"] == group["metadata"]["name"]
    pods = [pod for _, pod in pods_in(EXAMPLES / "pod-group-kueue.yaml")]
    (ref,) = {group_ref(pod, configuration_of().features.pod_groups) for pod in pods}
    assert ref is not None
    assert PodGroupIndex().resolve(ref, pods) == GroupSpec(len(pods)) == GroupSpec(group["spec"]["minMember"])


def test_a_container_reads_what_was_chosen_from_annotations_that_the_binding_carries() -> None:
    written = {names.THREADS, names.CORES, names.WIDTH, names.PLACEMENT}
    fields = set()
    for path in sorted(EXAMPLES.glob("*.yaml")):
        fields |= set(re.findall(r"fieldPath: metadata\.annotations\['([^']+)'\]", path.read_text(encoding="utf-8")))
    assert {names.THREADS, names.CORES} <= fields <= written


# Documents


PAGES = ("tutorials/kubernetes.md", "helm.md", *(p.name for p in sorted((HOUSE / "docs").glob("kubernetes*.md"))))


def page(name: str) -> str:
    return (HOUSE / "docs" / name).read_text(encoding="utf-8")


def table(text: str, head: str) -> list[list[str]]:
    """The cells of the table under a heading line."""
    lines = text[text.index(head) :].splitlines()[2:]
    end = next((i for i, line in enumerate(lines) if not line.startswith("|")), len(lines))
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[:end]]


def said(role: Object) -> str:
    """A role's rules as the documents write them."""
    parts = []
    for rule in role["rules"]:
        (group,) = rule["apiGroups"]
        of = "".join(f' "{name}"' for name in rule.get("resourceNames", ()))
        what = ", ".join(f"{resource}.{group}" if group else resource for resource in rule["resources"])
        parts.append(f"{what}{of}: {', '.join(rule['verbs'])}")
    return " · ".join(parts)


def test_the_documents_list_every_role_with_its_rights() -> None:
    shown = {
        cells[0].strip("`"): cells[2] for cells in table(page("kubernetes.md"), "| Role | Switched on by | Rights |")
    }
    assert shown == {role["metadata"]["name"]: said(role) for role in ROLES.values()}


def test_the_documents_list_every_key_of_the_configuration() -> None:
    assert reference_table(Configuration) in site_page("kubernetes-reference.md")


def test_the_documents_list_every_metric() -> None:
    shown = [
        (name.strip("`"), re.split(": |, ", kind.replace("`", "")), meaning)
        for name, kind, meaning in table(site_page("kubernetes-reference.md"), "| Metric | Type: labels | Meaning |")
    ]
    assert shown == [(family.name, [family.kind, *family.labels], family.help) for family in FAMILIES]


def test_the_documents_explain_every_label_and_annotation() -> None:
    ours = {
        v for k, v in vars(names).items() if k.isupper() and isinstance(v, str) and v.startswith(f"{names.PREFIX}/")
    }
    of_the_agent = {name for name in ours if f"| the node | `{name}` |" in page("agent.md")}
    assert {name for name in ours - of_the_agent if f"| `{name}` |" not in page("kubernetes-pods.md")} == set()
    spoken_of = {name for page_name in PAGES for name in re.findall(r"flowsched\.io/[\w-]*\w", page(page_name))}
    assert {name for name in spoken_of if name not in ours and name != f"{names.PREFIX}/v1alpha1"} == set()


def commands() -> Iterator[str]:
    for name in PAGES:
        for block in re.findall(r"```sh\n(.*?)```", page(name), re.DOTALL):
            yield from block.splitlines()


def test_every_file_in_a_command_is_there() -> None:
    files = {word for line in commands() for word in re.findall(r"(?<![\w/.])k8s/[\w./-]+", line)}
    assert "k8s/manifests" in files
    assert [file for file in sorted(files) if not (HOUSE / file).exists()] == []


def test_commands_name_objects_that_there_are() -> None:
    lease = configuration_of().leader_election.resource_name
    known = {o["metadata"]["name"] for o in EVERYTHING} | {lease, f"{lease}-{names.LEARNT}"}
    for line in commands():
        if line.startswith("kubectl") and "-n flowsched-system" in line:
            for kind, name in re.findall(r"\b(deployment|lease|configmap)[/ ](flowsched[\w-]*)", line):
                assert name in known, f"{kind} {name}"
