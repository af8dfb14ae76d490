"""Cases that are written here, after tests of other projects: scenarios in a short form of YAML, one file per source.

``cases/README.md`` describes the form. Everything in it that is not abbreviated is as in the API.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from conformance.expected import Expected
from conformance.scenario import Scenario, Step
from conformance.upstream import Case, Object

FOLDER = Path(__file__).parent / "cases"
TOPOLOGY = {
    "zone": "topology.kubernetes.io/zone",
    "region": "topology.kubernetes.io/region",
    "host": "kubernetes.io/hostname",
}
RESOURCES = ("cpu", "memory", "pods", "ephemeral-storage")
ANY = "any"
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
_SOURCES = tuple(sorted(path.stem for path in FOLDER.glob("*.yaml")))
_STEP_KEYS = frozenset({"add", "delete", "change", "then"})
_OBJECTS = ("volumes", "claims", "classes", "attach", "groups", "budgets", "namespaces", "services", "objects")
_CASE_KEYS = frozenset({"from", "since", "nodes", "pods", "then", "later", *_OBJECTS})


def written_sources() -> tuple[str, ...]:
    """The names of the files with cases."""
    return _SOURCES


def written_cases() -> list[Scenario]:
    """All cases, in the order of their files. Raises ``ValueError`` if one is not in the form."""
    return [scenario for source in _SOURCES for scenario in read_cases(source, (FOLDER / f"{source}.yaml").read_text())]


def read_cases(source: str, text: str) -> Iterator[Scenario]:
    """The cases of a file."""
    content = yaml.safe_load(text)
    reason = content.get("not-for-kube-scheduler", "")
    for name, plain in content["cases"].items():
        case = Case(source, name, 0, f"{content['project']}, {plain['from']}", {}, ())
        try:
            yield _scenario(case, plain, content.get("nodes") or {}, reason)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise ValueError(f"{source}/{name}: {type(error).__name__}: {error}") from error


def _scenario(case: Case, plain: Mapping[str, Any], nodes: Mapping[str, Any], reason: str) -> Scenario:
    if unknown := plain.keys() - _CASE_KEYS:
        raise ValueError(f"unknown keys: {', '.join(sorted(unknown))}")
    made = {name: _node(name, node or {}) for name, node in plain.get("nodes", nodes).items()}
    sets: dict[str, tuple[str, ...]] = {}
    pods = [pod for name, short in plain["pods"].items() for pod in _pods(name, dict(short or {}), sets)]
    later = [dict(step) for step in plain.get("later") or ()]
    steps = (_step({"then": plain["then"]}, sets), *(_step(step, sets) for step in later))
    added = {name for step in steps[1:] for name in step.add}
    waiting = [pod for pod in pods if "nodeName" not in pod["spec"]]
    first = tuple(pod["metadata"]["name"] for pod in waiting if pod["metadata"]["name"] not in added)
    steps = (Step(steps[0].then, first), *steps[1:])
    scenario = Scenario(case, {}, made, {}, [pod for pod in pods if "nodeName" in pod["spec"]])
    scenario.waiting, scenario.steps, scenario.not_applicable = waiting, steps, reason
    scenario.others = [*_objects(plain)]
    scenario.since = tuple(int(part) for part in str(plain.get("since", "1.0")).split("."))
    scenario.preempts = any(step.then.evicted for step in steps)
    known = {name for pod in pods for name in (pod["metadata"]["name"],)}
    if strange := frozenset().union(*(s.then.pods for s in steps)) - known:
        raise ValueError(f"no such pods: {', '.join(sorted(strange))}")
    return scenario


def _step(plain: Mapping[str, Any], sets: Mapping[str, tuple[str, ...]]) -> Step:
    if unknown := plain.keys() - _STEP_KEYS:
        raise ValueError(f"unknown keys of a step: {', '.join(sorted(unknown))}")
    change = {name: patch for key, patch in (plain.get("change") or {}).items() for name in _named([key], sets)}
    return Step(
        _expected(plain["then"] or {}, sets),
        _named(plain.get("add") or (), sets),
        _named(plain.get("delete") or (), sets),
        change,
    )


def _named(names: Iterable[str], sets: Mapping[str, tuple[str, ...]]) -> tuple[str, ...]:
    """Names with each set of copies replaced by its pods."""
    return tuple(one for name in names for one in sets.get(name, (name,)))


# What must be true


def _expected(plain: Mapping[str, Any], sets: Mapping[str, tuple[str, ...]]) -> Expected:
    known = {"bound", "preferred", "pending", "count", "spread", "evicted"}
    if unknown := plain.keys() - known:
        raise ValueError(f"unknown keys of 'then': {', '.join(sorted(unknown))}")
    pending = plain.get("pending") or {}
    pending = pending if isinstance(pending, Mapping) else dict.fromkeys(pending, "")
    evicted = plain.get("evicted", ())
    return Expected(
        _places(plain.get("bound") or {}, sets),
        _places(plain.get("preferred") or {}, sets),
        {pod: words or "" for name, words in pending.items() for pod in _named([name], sets)},
        tuple((frozenset(_named(key.split(), sets)), count) for key, count in (plain.get("count") or {}).items()),
        tuple(
            (frozenset(_named(key.split(), sets)), TOPOLOGY.get(label, label), tuple(counts))
            for key, labels in (plain.get("spread") or {}).items()
            for label, counts in labels.items()
        ),
        evicted if isinstance(evicted, int) else frozenset(_named(evicted, sets)),
    )


def _places(plain: Any, sets: Mapping[str, tuple[str, ...]]) -> dict[str, frozenset[str]]:
    """Nodes by pod; pods that are only listed may be on any."""
    wanted = plain if isinstance(plain, Mapping) else dict.fromkeys(plain, ANY)
    return {
        pod: frozenset() if nodes == ANY else frozenset([nodes] if isinstance(nodes, str) else nodes)
        for name, nodes in wanted.items()
        for pod in _named([name], sets)
    }


# Nodes


def _node(name: str, short: Mapping[str, Any]) -> Object:
    short = dict(short)
    labels = dict(short.pop("labels", {}))
    labels |= {TOPOLOGY[key]: short.pop(key) for key in TOPOLOGY if key in short}
    room = {key: str(short.pop(key)) for key in RESOURCES if key in short}
    room |= {key: str(amount) for key, amount in short.pop("resources", {}).items()}
    images = [{"names": [image], "sizeBytes": size} for image, size in short.pop("images", {}).items()]
    taints = [_taint(text) for text in short.pop("taints", ())]
    return {
        "metadata": {"name": name, "labels": labels},
        "spec": {"taints": taints, **short},
        "status": {"allocatable": room, "images": images},
    }


def _taint(text: str) -> Object:
    found, effect = text.rsplit(":", 1)
    key, _, value = found.partition("=")
    return {"key": key, "value": value, "effect": effect}


# Pods


def _pods(name: str, short: dict[str, Any], sets: dict[str, tuple[str, ...]]) -> Iterator[Object]:
    """A pod, or as many as it says; those are named with a number from 0."""
    copies = short.pop("copies", 0)
    names = tuple(f"{name}-{number}" for number in range(copies)) if copies else (name,)
    sets[name] = names
    for one in names:
        yield _pod(one, dict(short))


def _pod(name: str, short: dict[str, Any]) -> Object:
    requests = {key: str(short.pop(key)) for key in RESOURCES if key in short}
    requests |= {key: str(amount) for key, amount in short.pop("requests", {}).items()}
    labels = {key: str(value) for key, value in short.pop("labels", {}).items()}
    annotations = {key: str(value) for key, value in short.pop("annotations", {}).items()}
    metadata: Object = {"name": name, "labels": labels, "annotations": annotations}
    if group := short.pop("group", None):
        labels["scheduling.x-k8s.io/pod-group"] = group
    for key in ("namespace", "ownerReferences"):
        if key in short:
            metadata[key] = short.pop(key)
    container: Object = {"resources": {"requests": requests} if requests else {}}
    if ports := short.pop("ports", None):
        container["ports"] = [_port(text) for text in ports]
    if image := short.pop("image", None):
        container["image"] = image
    spec: Object = {"containers": [container]}
    if node := short.pop("node", None):
        spec["nodeName"] = node
    if gates := short.pop("gates", None):
        spec["schedulingGates"] = [{"name": gate} for gate in gates]
    if tolerations := short.pop("tolerates", None):
        spec["tolerations"] = [_toleration(text) for text in tolerations]
    if claims := short.pop("claims", None):
        volumes = [{"name": claim, "persistentVolumeClaim": {"claimName": claim}} for claim in claims]
        spec["volumes"] = volumes
    if spread := short.pop("spread", None):
        spec["topologySpreadConstraints"] = [_constraint(one) for one in _list(spread)]
    if strange := [key for key in short if not isinstance(key, str)]:
        raise ValueError(f"a key of pod {name} is no text: {strange[0]}")
    affinity = _affinity(short)
    if affinity:
        spec["affinity"] = affinity
    return {"metadata": metadata, "spec": spec | short}


def _port(text: str | int) -> Object:
    """``8080``, ``8080/UDP`` or ``127.0.0.1:8080``."""
    found = re.fullmatch(r"(?:([\d.]+):)?(\d+)(?:/(\w+))?", str(text))
    if found is None:
        raise ValueError(f"not a port: {text}")
    port = {"hostPort": int(found[2]), "containerPort": int(found[2]), "protocol": found[3] or "TCP"}
    return port | ({"hostIP": found[1]} if found[1] else {})


def _toleration(text: str | Object) -> Object:
    """``key=value:Effect`` or ``key:Effect``; as in the API otherwise."""
    if not isinstance(text, str):
        return text
    found, _, effect = text.partition(":")
    key, equals, value = found.partition("=")
    made: Object = {"key": key, "operator": "Equal" if equals else "Exists"} | ({"value": value} if equals else {})
    return made | ({"effect": effect} if effect else {})


def _affinity(short: dict[str, Any]) -> Object:
    """The affinity of a pod, taken out of its short form."""
    found: Object = {}
    nodes: Object = {}
    if where := short.pop("where", None):
        nodes[REQUIRED] = {"nodeSelectorTerms": [_term(one) for one in _list(where)]}
    if prefers := short.pop("prefers", None):
        nodes[PREFERRED] = [{"weight": 100, "preference": _term(one)} for one in _list(prefers)]
    if nodes:
        found["nodeAffinity"] = nodes
    for kind, together in (("podAffinity", "together"), ("podAntiAffinity", "apart")):
        made: Object = {}
        if terms := short.pop(together, None):
            made[REQUIRED] = [_pod_term(one) for one in _list(terms)]
        if terms := short.pop(f"prefers-{together}", None):
            made[PREFERRED] = [{"weight": 100, "podAffinityTerm": _pod_term(one)} for one in _list(terms)]
        if made:
            found[kind] = made
    return found


def _term(text: str) -> Object:
    fields = {"key": "metadata.name", "operator": "In"}
    if text.startswith("name="):
        return {"matchFields": [{**fields, "values": text.removeprefix("name=").split("|")}]}
    return {"matchExpressions": _requirements(text)}


def _pod_term(given: str | Object) -> Object:
    label, selector, more = _topology(given)
    return {"topologyKey": label, "labelSelector": selector, **more}


def _constraint(given: str | Object) -> Object:
    label, selector, more = _topology(given)
    more = {"maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule", **more}
    return {"topologyKey": label, "labelSelector": selector, **more}


def _topology(given: str | Object) -> tuple[str, Object, Object]:
    """(label of nodes, selector of pods, other fields) of ``zone app=web`` or ``{at: zone, of: app=web, ...}``."""
    if isinstance(given, str):
        label, _, selector = given.partition(" ")
        given = {"at": label, "of": selector}
    more = {key: value for key, value in given.items() if key not in ("at", "of")}
    selector = {"matchExpressions": _requirements(given["of"])} if given.get("of") else {}
    return TOPOLOGY.get(given["at"], given["at"]), selector, more


def _requirements(text: str) -> list[Object]:
    """``a=1``, ``a=1|2``, ``a!=1``, ``a``, ``!a``, ``a>1`` and ``a<1``, with commas between."""
    return [_requirement(part.strip()) for part in text.split(",")]


def _requirement(text: str) -> Object:
    for sign, operator in (("!=", "NotIn"), ("=", "In"), (">", "Gt"), ("<", "Lt")):
        key, found, value = text.partition(sign)
        if found:
            return {"key": TOPOLOGY.get(key, key), "operator": operator, "values": value.split("|")}
    operator = "DoesNotExist" if text.startswith("!") else "Exists"
    return {"key": TOPOLOGY.get(text.lstrip("!"), text.lstrip("!")), "operator": operator}


def _list(given: Any) -> Sequence[Any]:
    return given if isinstance(given, list) else [given]


# Other objects


def _objects(plain: Mapping[str, Any]) -> Iterator[Object]:
    """Everything of a case that is neither node nor pod."""
    for name, labels in (plain.get("namespaces") or {}).items():
        yield _object("v1", "Namespace", name, labels=labels or {})
    for name, short in (plain.get("classes") or {}).items():
        yield _object("storage.k8s.io/v1", "StorageClass", name) | _class(dict(short or {}))
    for node, drivers in (plain.get("attach") or {}).items():
        limits = [{"name": name, "nodeID": node, "allocatable": {"count": count}} for name, count in drivers.items()]
        yield _object("storage.k8s.io/v1", "CSINode", node) | {"spec": {"drivers": limits}}
    for name, short in (plain.get("volumes") or {}).items():
        short = dict(short or {})
        yield _object("v1", "PersistentVolume", name, labels=short.pop("labels", {})) | _volume(name, short)
    for name, short in (plain.get("claims") or {}).items():
        yield _object("v1", "PersistentVolumeClaim", name) | _claim(short or {})
    for name, minimum in (plain.get("groups") or {}).items():
        spec = minimum if isinstance(minimum, dict) else {"minMember": minimum}
        yield _object("scheduling.x-k8s.io/v1alpha1", "PodGroup", name) | {"spec": spec}
    for name, short in (plain.get("budgets") or {}).items():
        selector = {"matchExpressions": _requirements(short["of"])}
        status = {"disruptionsAllowed": short["allowed"]}
        yield _object("policy/v1", "PodDisruptionBudget", name) | {"spec": {"selector": selector}, "status": status}
    for name, selector in (plain.get("services") or {}).items():
        yield _object("v1", "Service", name) | {"spec": {"clusterIP": "None", "selector": selector}}
    yield from plain.get("objects") or ()


def _class(short: dict[str, Any]) -> Object:
    topologies = [
        {"matchLabelExpressions": [{"key": TOPOLOGY["zone"], "values": zones}]}
        for zones in [short.pop("zones", None)]
        if zones
    ]
    wait = {"volumeBindingMode": "WaitForFirstConsumer"} if short.pop("waits", False) else {}
    more = {"allowedTopologies": topologies} if topologies else {}
    return {"provisioner": short.pop("by", "kubernetes.io/no-provisioner"), **wait, **more, **short}


def _volume(name: str, short: dict[str, Any]) -> Object:
    spec: Object = {"capacity": {"storage": short.pop("size", "1Gi")}}
    if where := short.pop("where", None):
        spec["nodeAffinity"] = {"required": {"nodeSelectorTerms": [_term(one) for one in _list(where)]}}
    if driver := short.pop("csi", None):
        spec["csi"] = {"driver": driver, "volumeHandle": short.pop("handle", name)}
    if storage_class := short.pop("class", None):
        spec["storageClassName"] = storage_class
    if modes := short.pop("modes", None):
        spec["accessModes"] = modes
    return {"spec": spec | short}


def _claim(given: Mapping[str, Any]) -> Object:
    short = dict(given)
    spec: Object = {"resources": {"requests": {"storage": short.pop("size", "1Gi")}}}
    spec["storageClassName"] = short.pop("class", "")
    if volume := short.pop("volume", None):
        spec["volumeName"] = volume
    if modes := short.pop("modes", None):
        spec["accessModes"] = modes
    return {"spec": spec | short}


def _object(version: str, kind: str, name: str, labels: Mapping[str, str] | None = None) -> Object:
    return {"apiVersion": version, "kind": kind, "metadata": {"name": name, **({"labels": labels} if labels else {})}}
