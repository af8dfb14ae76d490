"""What installs the agent: least rights, what it needs of its node and no more, the same by kustomize and by helm."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml
from test_manifests import (
    CHART,
    EXAMPLES,
    MANIFESTS,
    READS,
    VERSION,
    grants,
    helm,
    kubectl,
    kustomized,
    of_kind,
    only,
    parsed,
    run,
)

from flowsched_agent.configuration_file import load_configuration

__all__ = ["helm", "kubectl"]

Object = dict[str, Any]
FOLDER = MANIFESTS / "agent"
NAMESPACE = "flowsched-agent"
OBJECTS = list(kustomized(FOLDER))
DAEMON = only(OBJECTS, "DaemonSet")
POD = DAEMON["spec"]["template"]["spec"]
(CONTAINER,) = POD["containers"]
CONFIGURATION = load_configuration(FOLDER / "config.yaml")


def test_the_role_reads_pods_and_writes_only_through_status() -> None:
    (role,) = of_kind(OBJECTS, "ClusterRole", "Role")
    assert {g for g in grants(role) if g[2] in READS} == {("", "pods", "list"), ("", "pods", "watch")}
    assert {g for g in grants(role) if g[2] not in READS} == {
        ("", "pods/status", "patch"),
        ("", "nodes/status", "patch"),
        ("authentication.k8s.io", "tokenreviews", "create"),
        ("authorization.k8s.io", "subjectaccessreviews", "create"),
    }
    binding = only(OBJECTS, "ClusterRoleBinding")
    account = only(OBJECTS, "ServiceAccount")["metadata"]
    assert binding["subjects"] == [
        {"kind": "ServiceAccount", "name": account["name"], "namespace": account["namespace"]}
    ]
    assert binding["roleRef"]["name"] == role["metadata"]["name"]
    assert POD["serviceAccountName"] == account["name"]


def test_the_policy_is_about_all_that_the_role_may_write_and_about_no_other_user() -> None:
    policy = only(OBJECTS, "ValidatingAdmissionPolicy")["spec"]
    (rule,) = policy["matchConstraints"]["resourceRules"]
    (role,) = of_kind(OBJECTS, "ClusterRole")
    assert set(rule["resources"]) == {resource for _, resource, verb in grants(role) if verb == "patch"}
    (condition,) = policy["matchConditions"]
    assert condition["expression"].endswith(f'"system:serviceaccount:{NAMESPACE}:flowsched-agent"')
    assert policy["failurePolicy"] == "Fail"
    binding = only(OBJECTS, "ValidatingAdmissionPolicyBinding")["spec"]
    assert (binding["policyName"], binding["validationActions"]) == ("flowsched-agent", ["Deny"])


def test_the_pod_has_what_it_needs_of_its_node_and_no_more() -> None:
    assert POD["hostPID"] is True
    assert not {"hostNetwork", "hostIPC"} & POD.keys()
    context = CONTAINER["securityContext"]
    assert "privileged" not in context
    assert context["capabilities"] == {"drop": ["ALL"], "add": ["KILL", "SYS_NICE"]}
    assert (context["allowPrivilegeEscalation"], context["readOnlyRootFilesystem"]) == (False, True)
    host = {v["name"]: v["hostPath"]["path"] for v in POD["volumes"] if "hostPath" in v}
    assert set(host.values()) == {"/sys/fs/cgroup", str(CONFIGURATION.state_file.parent)}
    mounts = {m["name"]: m["mountPath"] for m in CONTAINER["volumeMounts"]}
    assert {name: mounts[name] for name in host} == host
    # The namespace of the scheduler would refuse such a pod.
    namespace = only(OBJECTS, "Namespace")["metadata"]
    assert namespace["labels"]["pod-security.kubernetes.io/enforce"] == "privileged"


def test_the_configuration_is_mounted_where_it_is_read_and_is_for_a_cluster() -> None:
    (argument,) = (a for a in CONTAINER["args"] if a.startswith("--config="))
    path = Path(argument.removeprefix("--config="))
    (volume,) = (v for v in POD["volumes"] if "configMap" in v)
    mount = next(m for m in CONTAINER["volumeMounts"] if m["name"] == volume["name"])
    assert mount["mountPath"] == str(path.parent) and mount["readOnly"]
    (data,) = (o["data"] for o in of_kind(OBJECTS, "ConfigMap"))
    assert path.name in data
    assert CONFIGURATION.kubernetes.enabled and CONFIGURATION.kubernetes.node_name is None
    (variable,) = CONTAINER["env"]
    assert (variable["name"], variable["valueFrom"]["fieldRef"]["fieldPath"]) == ("NODE_NAME", "spec.nodeName")


def test_probes_and_the_port_are_where_the_configuration_listens() -> None:
    network = CONFIGURATION.kubernetes.server
    assert network.health is not None and network.metrics is not None
    assert {p["name"]: f":{p['containerPort']}" for p in CONTAINER["ports"]} == {
        "health": str(network.health),
        "metrics": str(network.metrics),
    }
    probes = {k: (v["httpGet"]["path"], v["httpGet"]["port"]) for k, v in CONTAINER.items() if k.endswith("Probe")}
    assert probes == {
        "startupProbe": ("/livez", "health"),
        "livenessProbe": ("/livez", "health"),
        "readinessProbe": ("/readyz", "health"),
    }


def test_prometheus_alone_reaches_the_metrics_and_all_reach_health() -> None:
    policy = only(OBJECTS, "NetworkPolicy")["spec"]
    assert policy["podSelector"] == DAEMON["spec"]["selector"]
    of_the_scheduler = parsed(MANIFESTS / "components" / "network-policy" / "network-policy.yaml")[0]["spec"]
    assert policy["ingress"] == of_the_scheduler["ingress"]


def test_the_example_scrapes_the_agent_with_an_account_that_may_do_nothing_else() -> None:
    account, secret, binding, monitor = parsed(EXAMPLES / "agent-pod-monitor.yaml")
    assert secret["metadata"]["annotations"] == {"kubernetes.io/service-account.name": account["metadata"]["name"]}
    assert [s["name"] for s in binding["subjects"]] == [account["metadata"]["name"]]
    assert binding["roleRef"]["name"] == parsed(EXAMPLES / "metrics-role.yaml")[0]["metadata"]["name"]
    (endpoint,) = monitor["spec"]["podMetricsEndpoints"]
    assert (endpoint["scheme"], endpoint["authorization"]["credentials"]["name"]) == (
        "https",
        secret["metadata"]["name"],
    )
    assert endpoint["port"] in {p["name"] for p in CONTAINER["ports"]}
    labels = DAEMON["spec"]["template"]["metadata"]["labels"]
    assert monitor["spec"]["selector"]["matchLabels"].items() <= labels.items()
    assert {o["metadata"].get("namespace", NAMESPACE) for o in (account, secret, monitor)} == {NAMESPACE}


def test_it_runs_on_every_node_of_the_pool_and_is_allowed_its_class() -> None:
    assert POD["nodeSelector"]["flowsched.io/pool"] == "true"
    assert POD["tolerations"] == [{"key": "flowsched.io/pool", "operator": "Exists"}]
    (scope,) = only(OBJECTS, "ResourceQuota")["spec"]["scopeSelector"]["matchExpressions"]
    assert scope["values"] == [POD["priorityClassName"]] == ["system-node-critical"]


@pytest.mark.parametrize("o", OBJECTS, ids=lambda o: f"{o['kind']}-{o['metadata']['name']}")
def test_every_object_says_whose_it_is(o: Object) -> None:
    labels = o["metadata"]["labels"]
    wanted = {"name": "flowsched", "component": "agent", "version": VERSION, "part-of": "flowsched"}
    assert labels.items() >= {f"app.kubernetes.io/{k}": v for k, v in wanted.items()}.items()
    cluster_wide = o["kind"].startswith(("Namespace", "ClusterRole", "Validating"))
    assert o["metadata"].get("namespace", "") == ("" if cluster_wide else NAMESPACE)


def test_the_image_is_that_of_the_scheduler() -> None:
    scheduler = parsed(MANIFESTS / "base" / "deployment.yaml")[0]["spec"]["template"]["spec"]["containers"][0]
    assert CONTAINER["image"] == scheduler["image"]
    assert CONTAINER["args"][0] == "agent"


def plain(objects: list[Object]) -> dict[tuple[str, str], Object]:
    """Objects by kind and name, without what the two ways of installing are meant to do differently."""
    found = {}
    for o in objects:
        text = re.sub(r"flowsched-agent-config-\w{10}", "flowsched-agent-config", msgspec.json.encode(o).decode())
        o = msgspec.json.decode(text)
        o["metadata"]["labels"].pop("app.kubernetes.io/managed-by")
        if o["kind"] == "ConfigMap":
            o["data"] = {file: yaml.safe_load(content) for file, content in o["data"].items()}
        elif o["kind"] == "DaemonSet":
            metadata = o["spec"]["template"]["metadata"]
            metadata["labels"].pop("app.kubernetes.io/managed-by")
            metadata.pop("annotations", None)
        found[o["kind"], o["metadata"]["name"]] = o
    return found


def test_our_reading_of_the_kustomization_is_the_real_one(kubectl: Path) -> None:
    assert plain(run(kubectl, "kustomize", FOLDER)) == plain(OBJECTS)


def rendered(helm: Path, *more: str) -> list[Object]:
    made = run(helm, "template", "flowsched", CHART, "--namespace", NAMESPACE, *more)
    return [o for o in made if o["metadata"]["labels"]["app.kubernetes.io/component"] == "agent"]


def test_the_chart_makes_what_the_kustomization_makes_when_it_is_switched_on(helm: Path) -> None:
    assert rendered(helm) == []
    wanted = {key: o for key, o in plain(OBJECTS).items() if key[0] != "Namespace"}
    assert plain(rendered(helm, "--set", "agent.enabled=true")) == wanted


def test_the_chart_rolls_the_agents_when_their_configuration_changes_and_only_then(helm: Path) -> None:
    def checksum(*more: str) -> str:
        made = only(rendered(helm, "--set", "agent.enabled=true", *more), "DaemonSet")
        return str(made["spec"]["template"]["metadata"]["annotations"]["checksum/config"])

    assert checksum() == checksum("--set", "config.dryRun=true")
    assert checksum() != checksum("--set", "agent.config.dryRun=true")


def test_the_chart_refuses_another_kind_of_configuration(helm: Path) -> None:
    command = [str(helm), "template", str(CHART), "--set", "agent.config.kind=Other"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode != 0 and "kind" in done.stderr
