"""A scenario: objects for an API server, and what must come of them.

That of a recorded case is made here, from what upstream's plugin says of each node.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from conformance.expected import Expected
from conformance.upstream import Call, Case, Object

ONLY_NODE = "node"
"""The node of a case that names none."""
ARGUMENTS = ("args", "defaultConstraints", "config", "extender", "extenders")
"""Fields by which a case configures the plugin."""
STORAGE = ("PersistentVolumeClaim", "PersistentVolume", "StorageClass", "CSINode", "CSIDriver", "CSIStorageCapacity")
OTHERS = (*STORAGE, "VolumeAttachment", "Namespace", "PodDisruptionBudget")
"""Kinds of objects that a case may need beside its nodes and pods."""


class SkippedError(Exception):
    """A case cannot be run on a cluster; the text is the reason under which it is counted."""


@dataclass(frozen=True)
class Step:
    """What happens, by names of the scenario, and what must be true then."""

    then: Expected
    add: tuple[str, ...] = ()
    delete: tuple[str, ...] = ()
    change: Mapping[str, Object] = field(default_factory=dict)
    """Merge patches."""


@dataclass
class Scenario:
    """What to create, in the names of the case, and what must come of it.

    Either ``fits`` says for ``pod`` where it fits by upstream's plugin, or ``steps`` say what must be true of all pods.
    """

    case: Case
    pod: Object
    nodes: dict[str, Object]
    fits: dict[str, bool]
    pods: list[Object] = field(default_factory=list)
    """Those that run, or are bound, before a scheduler is asked."""
    others: list[Object] = field(default_factory=list)
    victims: frozenset[str] = frozenset()
    """Names of the pods that must be evicted, of a case of preemption."""
    preempts: bool = False
    waiting: list[Object] = field(default_factory=list)
    """Of a scenario with steps, all pods that are to be scheduled."""
    steps: tuple[Step, ...] = ()
    not_applicable: str = ""
    """Why kube-scheduler is not asked; empty if it is."""
    since: tuple[int, ...] = ()
    """The first version of Kubernetes that has what it is about."""

    @property
    def all_pods(self) -> list[Object]:
        """Those that are there and those that are to be scheduled."""
        return [*self.pods, *(self.waiting if self.steps else [self.pod])]

    @property
    def later(self) -> frozenset[str]:
        """Names of what is not there at first."""
        return frozenset(name for step in self.steps for name in step.add)


def scenario_of(case: Case) -> Scenario:
    """The scenario of a case. Raises :class:`SkippedError`."""
    if not case.calls:
        raise SkippedError("no extension point that decides where a pod may run is called (scores, events, helpers)")
    for name in ARGUMENTS:
        if case.fields.get(name):
            raise SkippedError(f"the plugin is configured by the case ({name})")
    points = {call.point for call in case.calls}
    if points & {"PostFilter", "Preempt"}:
        return _preemption(case)
    if case.plugin == "defaultpreemption":
        raise SkippedError("the plugin is called with state of its own")
    pods = {repr(_plain(call.pod)) for call in case.calls}
    if len(pods) > 1:
        raise SkippedError("the calls of the case are for different pods")
    scenario = _filter(case)
    _check_pod(scenario)
    return scenario


# Filters


def _filter(case: Case) -> Scenario:
    """A case in which a plugin says of each node whether the pod fits."""
    infos = _infos(case)
    nodes: dict[str, Object] = {}
    pods: list[Object] = []
    for info in infos:
        node = copy.deepcopy(info["node"]) if info["node"] else {"metadata": {}}
        name = node["metadata"].setdefault("name", ONLY_NODE)
        if name in nodes:
            continue
        nodes[name] = node
        for pod in info["pods"]:
            placed = copy.deepcopy(pod)
            placed.setdefault("spec", {})["nodeName"] = name
            pods.append(placed)
    fits = _fits(case, list(nodes))
    pod = copy.deepcopy(case.calls[-1].pod)
    scenario = Scenario(case, pod, nodes, fits, pods)
    scenario.others = list(_others(scenario))
    return scenario


def _infos(case: Case) -> list[Object]:
    """The nodes with their pods: those that the plugin was shown, else those of the case, else one without properties."""
    shown = [info for call in case.calls for info in call.nodes]
    if shown:
        return shown
    nodes = [o for o in case.objects if o["kind"] == "Node"]
    incoming = _plain(case.calls[-1].pod)
    pods = [o for o in case.objects if o["kind"] == "Pod" and _plain(o) != incoming]
    if not nodes:
        return [{"node": None, "pods": []}]
    names = [n["metadata"].get("name", ONLY_NODE) for n in nodes]
    on = {name: [p for p in pods if p["spec"].get("nodeName") == name] for name in names}
    return [{"node": node, "pods": on[name]} for node, name in zip(nodes, names, strict=True)]


def _fits(case: Case, nodes: Sequence[str]) -> dict[str, bool]:
    """What upstream's plugin said: PreEnqueue and PreFilter for all nodes, Filter for each."""
    fits: dict[str, bool] = {}
    for call in case.calls:
        if call.point == "Filter":
            fits[_node_of(call)] = call.code == "Success"
    for call in case.calls:
        if call.point == "Filter":
            continue
        if call.code == "Skip":
            fits = dict.fromkeys(nodes, True)
        elif call.code != "Success":
            fits = dict.fromkeys(nodes, False)
        elif call.names is not None:
            fits |= {name: False for name in nodes if name not in call.names}
        elif call.point == "PreEnqueue":
            fits = dict.fromkeys(nodes, True)
    if not fits:
        raise SkippedError("no node is asked about")
    return {name: fit for name, fit in fits.items() if name in nodes}


def _node_of(call: Call) -> str:
    node = call.nodes[0]["node"] if call.nodes else None
    return str(node["metadata"].get("name", ONLY_NODE)) if node else ONLY_NODE


def _check_pod(scenario: Scenario) -> None:
    """A pod that names its node is bound already; only the plugin of that name is about it."""
    named = scenario.pod["spec"].pop("nodeName", "")
    if named and scenario.case.plugin == "nodename":
        raise SkippedError("the pod names its node, so no scheduler sees it")
    if any(has_ephemeral(p) and _name(p) == _name(scenario.pod) for p in scenario.pods):
        raise SkippedError("two pods of one name own the same claim")


def has_ephemeral(pod: Object) -> bool:
    """Whether the name of a pod matters, because claims are named after it."""
    return any("ephemeral" in v for v in pod["spec"].get("volumes") or ())


def _name(pod: Object) -> tuple[str, str]:
    return pod["metadata"].get("namespace", ""), pod["metadata"].get("name", "")


# Preemption


def _preemption(case: Case) -> Scenario:
    """A case in which pods of lower priority make room, or do not."""
    call = next(c for c in case.calls if c.point in ("PostFilter", "Preempt"))
    nodes = [o for o in case.objects if o["kind"] == "Node"] or [o for o in call.objects if o["kind"] == "Node"]
    pods = [o for o in case.objects if o["kind"] == "Pod" and o["spec"].get("nodeName")]
    if any(n["metadata"].get("labels", {}).get("error") for n in nodes):
        raise SkippedError("a plugin of the test's own fails")
    if case.fields.get("podGroups") or any(o["kind"] == "PodGroup" for o in case.objects):
        raise SkippedError("pod groups of an API that is off by default")
    if not nodes:
        raise SkippedError("the plugin is called with state of its own")
    named = {n["metadata"]["name"]: copy.deepcopy(n) for n in nodes}
    if call.code not in ("Success", "Unschedulable", "UnschedulableAndUnresolvable"):
        raise SkippedError("the plugin answers with an error that no cluster has")
    fits = {name: name == call.nominated for name in named}
    scenario = Scenario(case, copy.deepcopy(call.pod), named, fits, copy.deepcopy(pods), preempts=True)
    scenario.pod["spec"].pop("nodeName", None)
    scenario.victims = frozenset(case.fields.get("expectedPods") or ())
    scenario.others = [copy.deepcopy(o) for o in case.objects if o["kind"] == "PodDisruptionBudget"]
    return scenario


# What else there must be


def _others(scenario: Scenario) -> Iterator[Object]:
    """Objects of the case, and those in the scope of its test that it can reach."""
    case = scenario.case
    own = [o for o in case.objects if o["kind"] in OTHERS]
    # A case that lists the claims that there are does not mean those of its neighbours.
    listed = ("PersistentVolumeClaim",) if {"pvcs", "existingPVCs"} & case.fields.keys() else ()
    scope = [o for call in case.calls for o in call.objects if o["kind"] in OTHERS and o["kind"] not in listed]
    found: dict[tuple[str, str, str], Object] = {}
    for obj in own:
        found.setdefault(_key(obj), obj)
    index: dict[tuple[str, str], list[Object]] = {}
    for obj in scope:
        index.setdefault((obj["kind"], obj["metadata"].get("name", "")), []).append(obj)
    for obj in scope:
        node = obj.get("spec", {}).get("nodeName") if obj["kind"] == "VolumeAttachment" else None
        if node in scenario.nodes or obj["kind"] in ("Namespace", "CSIDriver"):
            found.setdefault(_key(obj), obj)
    wanted = list(_referred([scenario.pod, *scenario.pods, *found.values()]))
    wanted += [("CSINode", name) for name in scenario.nodes]
    while wanted:
        for obj in index.pop(wanted.pop(), ()):
            if _key(obj) not in found:
                found[_key(obj)] = obj
                wanted += _referred([obj])
    for obj in copy.deepcopy(list(found.values())):
        if obj["kind"] == "PersistentVolumeClaim" and case.plugin == "volumerestrictions":
            yield from _bound(obj)
        else:
            yield obj


def _bound(claim: Object) -> Iterator[Object]:
    """A claim with a volume: the plugin of restrictions does not look whether it has one, others would."""
    if not claim["spec"].get("volumeName"):
        claim["spec"]["volumeName"] = f"of-{claim['metadata']['name']}"
        spec = {"accessModes": claim["spec"].get("accessModes") or ["ReadWriteOnce"]}
        metadata = {"name": claim["spec"]["volumeName"]}
        yield {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": metadata, "spec": spec}
    yield claim


def _key(obj: Object) -> tuple[str, str, str]:
    return obj["kind"], obj["metadata"].get("namespace", ""), obj["metadata"].get("name", "")


def _referred(objects: Iterable[Object]) -> Iterator[tuple[str, str]]:
    """Kinds and names of what objects refer to."""
    for obj in objects:
        spec = obj.get("spec") or {}
        for volume in spec.get("volumes") or ():
            if "persistentVolumeClaim" in volume:
                yield "PersistentVolumeClaim", volume["persistentVolumeClaim"]["claimName"]
            if "ephemeral" in volume:
                yield "PersistentVolumeClaim", f"{obj['metadata'].get('name', '')}-{volume.get('name', '')}"
        if spec.get("volumeName"):
            yield "PersistentVolume", spec["volumeName"]
        if obj.get("kind") == "VolumeAttachment":
            yield "PersistentVolume", spec["source"]["persistentVolumeName"]
        if spec.get("storageClassName"):
            yield "StorageClass", spec["storageClassName"]
        driver = (spec.get("csi") or {}).get("driver") or obj.get("provisioner")
        if driver:
            yield "CSIDriver", driver


def _plain(pod: Object) -> Object:
    return {key: pod[key] for key in ("metadata", "spec") if key in pod}


def even_sample(scenarios: Sequence[Scenario], count: int) -> list[Scenario]:
    """So many of them at equal distances: always the same, and from every plugin in proportion."""
    if count >= len(scenarios):
        return list(scenarios)
    return [scenarios[index * len(scenarios) // count] for index in range(count)]


def skipped_and_mapped(cases: Iterable[Case]) -> tuple[list[Scenario], list[tuple[Case, str]]]:
    """The scenarios, and the cases that have none with their reasons."""
    mapped, skipped = [], []
    for case in cases:
        try:
            mapped.append(scenario_of(case))
        except SkippedError as reason:
            skipped.append((case, str(reason)))
    return mapped, skipped
