"""Runs scenarios on a control plane: first under kube-scheduler, then under flowsched."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import Any

from plane import Admin, RefusedError, wait_for

from conformance.api_objects import BIND_COMPLETED, PROBE, Creation, Translation
from conformance.expected import Deviation
from conformance.scenario import Scenario, SkippedError, Step
from conformance.upstream import Object

SETTLE_S = 0.15
"""For kube-scheduler, which does not say what it has seen: nodes and volumes come on other watches than pods."""
LONG_SETTLE_S = 2.0
"""The same where an answer is not what it should be: on a busy machine, something may have come too late."""
STAYS_S = 0.2
"""How long a pod that is unschedulable has to stay so."""
PATIENCE_S = 4.0
"""For a pod that should be bound, after it was said to be unschedulable: longer than kube-scheduler's first backoff."""
GIVE_UP_S = 15.0
"""For any word about a pod."""
STEP_S = 15.0
"""For all to be as a step says: longer than kube-scheduler's longest backoff."""
POLL_S = 0.015
SELECTED_NODE = "volume.kubernetes.io/selected-node"
GATE = f"{PROBE}/claims"


@dataclass(frozen=True)
class Question:
    """May the pod run on these nodes? Upstream's plugin says yes or no. Or: is all as a step says?"""

    resource: str
    nodes: frozenset[str]
    fits: bool
    step: Step | None = None


@dataclass(frozen=True)
class Answer:
    """What became of the pod, or of all pods after a step."""

    node: str
    message: str = ""
    victims: frozenset[str] = frozenset()
    deviations: tuple[Deviation, ...] = ()
    """Of a step."""

    @property
    def bound(self) -> bool:
        """Whether it has a node."""
        return bool(self.node)


@dataclass
class Scheduler:
    """One of the two: the name that pods say, its nodes' labels, and how to know that it has seen nodes and pods."""

    name: str
    node_labels: Mapping[str, str] = field(default_factory=dict)
    sees: Callable[[], Mapping[str, Any]] | None = None
    """The nodes that it knows, each with its pods as ``namespace/name``."""


def questions_of(scenario: Scenario, singly: bool = False) -> list[Question]:
    """One for each node that the pod fits, and one for all the others together, or for each of them too."""
    fits = scenario.fits
    if scenario.steps:
        return [Question("", frozenset(scenario.nodes), True, step) for step in scenario.steps]
    if scenario.preempts:
        chosen = frozenset(name for name, fit in fits.items() if fit)
        return [Question("", chosen or frozenset(fits), bool(chosen))]
    if len(scenario.nodes) == 1:
        return [Question("", frozenset(fits), fit) for fit in fits.values()]
    numbers = {name: number for number, name in enumerate(scenario.nodes)}
    asked = [Question(f"{PROBE}/node-{numbers[n]}", frozenset({n}), fit) for n, fit in fits.items() if fit or singly]
    if singly:
        return asked
    if unfit := frozenset(name for name, fit in fits.items() if not fit):
        asked.append(Question(f"{PROBE}/unfit", unfit, False))
    return asked


class Runner:
    """Runs one scenario after the other: nodes of one would be candidates in the other."""

    def __init__(self, admin: Admin) -> None:
        self._admin = admin
        self._count = 0

    def run(
        self,
        scenario: Scenario,
        asked: Sequence[Question],
        scheduler: Scheduler,
        settle_s: float,
        control: Sequence[Answer] = (),
    ) -> list[Answer]:
        """The answers to questions. Raises :class:`SkippedError` if the API server refuses an object.

        ``control``: another scheduler's answers, which say what is worth waiting for.
        """
        hopes = [a.bound for a in control] or [q.fits for q in asked]
        # A volume that one pod binds is no longer there for the next one.
        alone = not scenario.steps and any(
            o["kind"] == "PersistentVolumeClaim" and not o["spec"].get("volumeName") for o in scenario.others
        )
        pairs = list(zip(asked, hopes, strict=True))
        answers: list[Answer] = []
        for batch in [[pair] for pair in pairs] if alone else [pairs]:
            self._count += 1
            made = Translation(scenario, f"case-{self._count}", scheduler.name, scheduler.node_labels)
            with self._created(made):
                self._await_sight(made, scheduler)
                time.sleep(settle_s)
                if scenario.steps:
                    answers += self._walk(made)
                else:
                    answers += [self._ask(made, f"pod-{n}", *pair) for n, pair in enumerate(batch)]
        return answers

    @contextlib.contextmanager
    def _created(self, made: Translation) -> Iterator[None]:
        """The objects of a scenario, deleted afterwards."""
        try:
            for creation in made.creations:
                self._create(creation)
                if creation in made.pods:
                    self._create_owned(made, creation)
            for pod in made.leaving:
                self._admin.delete(pod.path, None)
            yield
        finally:
            self._delete_all(made)

    def _create(self, creation: Creation) -> Object:
        """Create an object with its status."""
        try:
            found = self._post(creation)
            if creation.status is not None:
                self._admin.patch(f"{creation.path}/status", {"status": creation.status})
        except RefusedError as error:
            kind = creation.body["kind"]
            raise SkippedError(f"the API server refuses an object: {kind}: {error}") from None
        return found

    def _post(self, creation: Creation) -> Object:
        """Create an object. A class of overheads that was made just now may not be known to admission yet."""
        until = time.monotonic() + 5.0
        while True:
            try:
                return self._admin.post(creation.collection, creation.body)
            except RefusedError as error:
                runtime = creation.body.get("spec", {}).get("runtimeClassName", "-")
                if error.status != 403 or runtime not in str(error) or time.monotonic() > until:
                    raise
                time.sleep(POLL_S)

    def _create_owned(self, made: Translation, pod: Creation) -> None:
        """The claims that a pod owns; they name its uid."""
        owned = made.owned.get(pod.body["metadata"]["name"], ())
        if not owned:
            return
        uid = self._admin.get(pod.path)["metadata"]["uid"]
        owner = {
            "apiVersion": "v1",
            "kind": "Pod",
            "name": pod.body["metadata"]["name"],
            "uid": uid,
            "controller": True,
        }
        for claim in owned:
            claim.body["metadata"]["ownerReferences"] = [owner]
            self._create(claim)

    def _await_sight(self, made: Translation, scheduler: Scheduler) -> None:
        """Wait until the scheduler knows the nodes of this scenario and no others, and the pods on them."""
        if scheduler.sees is not None:
            sees = scheduler.sees
            nodes = {c.body["metadata"]["name"] for c in made.creations if c.body["kind"] == "Node"}
            pods: dict[str, set[str]] = {}
            for pod in made.pods:
                key = f"{pod.body['metadata']['namespace']}/{pod.body['metadata']['name']}"
                pods.setdefault(pod.body["spec"].get("nodeName", ""), set()).add(key)

            def seen() -> bool:
                known = sees()
                there = {name: set(node["pods"]) for name, node in known.items()}
                return there.keys() == nodes and all(pods.get(name, set()) <= there[name] for name in nodes)

            wait_for(seen, "the scheduler to see the nodes and pods of the case", 60.0)

    # One pod

    def _ask(self, made: Translation, name: str, question: Question, hope: bool) -> Answer:
        """Create the pod, wait for what becomes of it, and delete it. ``hope``: that it is bound."""
        pod = made.incoming(name, question.resource)
        gated = bool(made.owned.get(pod.body["metadata"]["name"]))
        if gated:
            pod.body["spec"]["schedulingGates"] = [{"name": GATE}]
        self._create(pod)
        try:
            if gated:
                self._create_owned(made, pod)
                self._admin.patch(pod.path, {"spec": {"schedulingGates": []}})
            return self._await_answer(made, pod, PATIENCE_S if hope else STAYS_S)
        finally:
            self._admin.delete(pod.path)

    def _await_answer(self, made: Translation, pod: Creation, stays_s: float) -> Answer:
        """The node of the pod, or why it has none, once it has been unschedulable for so long."""
        begin = time.monotonic()
        refused_since, message = 0.0, ""
        while True:
            now = time.monotonic()
            found = self._admin.get(pod.path)
            if node := found["spec"].get("nodeName"):
                return Answer(_original(made, node), "", self._victims(made))
            said = _refusal(found)
            if said is not None:
                refused_since, message = refused_since or now, said
            if (refused_since and now - refused_since > stays_s) or now - begin > GIVE_UP_S:
                return Answer("", message, self._victims(made))
            self._bind_volumes(made)
            time.sleep(POLL_S)

    def _victims(self, made: Translation) -> frozenset[str]:
        """Names that the case gives to the pods that are gone or going."""
        if not made.scenario.preempts:
            return frozenset()
        gone = set()
        for original, pod in zip(made.scenario.pods, made.pods, strict=True):
            found = self._admin.find(pod.path)
            if found is None or "deletionTimestamp" in found["metadata"]:
                gone.add(original["metadata"]["name"])
        return frozenset(gone)

    # Steps

    def _walk(self, made: Translation) -> list[Answer]:
        """Do each step and wait until all is as it says, or for long enough."""
        deleted: set[str] = set()
        answers = []
        for step in made.scenario.steps:
            deleted |= set(step.delete)
            self._take(made, step)
            answers.append(self._await_step(made, step, deleted))
        return answers

    def _take(self, made: Translation, step: Step) -> None:
        """Delete, change and add what a step says."""
        for name in step.delete:
            self._admin.delete(made.by_name[name].path)
        for name, change in step.change.items():
            path = made.by_name[name].path
            for part, where in (({k: v for k, v in change.items() if k != "status"}, path), (change, f"{path}/status")):
                if part and (where == path or "status" in change):
                    self._admin.patch(where, part)
        for name in step.add:
            creation = made.waiting.get(name) or made.later[name]
            made.creations.append(creation)
            self._create(creation)

    def _await_step(self, made: Translation, step: Step, deleted: Set[str]) -> Answer:
        """What became of all pods, once it is as it must be and stays so."""
        begin = time.monotonic()
        since = 0.0
        while True:
            self._bind_volumes(made)
            now = time.monotonic()
            found = self._deviations(made, step, deleted)
            since = 0.0 if found else since or now
            if not found and (step.then.settles or now - since > STAYS_S):
                return Answer("")
            if found and now - begin > STEP_S:
                return Answer("", "; ".join(d.text for d in found), deviations=found)
            time.sleep(POLL_S)

    def _deviations(self, made: Translation, step: Step, deleted: Set[str]) -> tuple[Deviation, ...]:
        """What is not yet as a step says."""
        spaces = sorted({c.collection for c in made.creations if c.body["kind"] == "Pod"})
        pods = {pod["metadata"]["name"]: pod for space in spaces for pod in self._admin.items(space)}
        names = {c.body["metadata"]["name"] for c in made.creations if c.body["kind"] == "Pod"} - deleted
        gone = {n for n in names if n not in pods or "deletionTimestamp" in pods[n]["metadata"]}
        there = {name: pods[name] for name in names - gone}
        places = {n: _original(made, node) for n, pod in there.items() if (node := pod["spec"].get("nodeName"))}
        messages = {name: said for name, pod in there.items() if (said := _refusal(pod))}
        nodes = {
            n: c.body["metadata"]["labels"]
            for n, own in made.nodes.items()
            for c in made.creations
            if c.body["kind"] == "Node" and c.body["metadata"]["name"] == own
        }
        return tuple(step.then.deviations(places, messages, frozenset(gone), nodes))

    # What controllers would do

    def _bind_volumes(self, made: Translation) -> None:
        """Bind claims as the volume controller does.

        To the volume that they name, to the one that names them, else to one made for the chosen node.
        """
        waiting = [c for c in made.claims if (c.status or {}).get("phase") == "Pending"]
        if not waiting:
            return
        volumes = self._admin.items("/api/v1/persistentvolumes")
        for claim in waiting:
            found = self._admin.find(claim.path)
            if found is None or BIND_COMPLETED in found["metadata"].get("annotations", {}):
                continue
            metadata = found["metadata"]
            mine = (metadata["namespace"], metadata["name"])
            volume = found["spec"].get("volumeName", "")
            volume = volume or next((v["metadata"]["name"] for v in volumes if _claimed_by(v) == mine), "")
            if not volume and metadata.get("annotations", {}).get(SELECTED_NODE):
                volume = self._provision(made, found)
            if volume:
                self._bind(claim, found, f"/api/v1/persistentvolumes/{volume}")

    def _bind(self, claim: Creation, found: Object, volume_path: str) -> None:
        """Make claim and volume name each other, and mark both as bound."""
        reference = {key: found["metadata"][key] for key in ("namespace", "name", "uid")}
        spec = {"claimRef": {"apiVersion": "v1", "kind": "PersistentVolumeClaim", **reference}}
        self._admin.patch(volume_path, {"spec": spec})
        self._admin.patch(f"{volume_path}/status", {"status": {"phase": "Bound"}})
        change = {
            "metadata": {"annotations": {BIND_COMPLETED: "yes"}},
            "spec": {"volumeName": volume_path.split("/")[-1]},
        }
        self._admin.patch(claim.path, change)
        self._admin.patch(f"{claim.path}/status", {"status": {"phase": "Bound"}})

    def _provision(self, made: Translation, claim: Object) -> str:
        """A new volume for a claim; its name."""
        name = f"{made.prefix}-made-for-{claim['metadata']['name']}"
        reference = {key: claim["metadata"][key] for key in ("namespace", "name", "uid")}
        spec = {
            "capacity": claim["spec"]["resources"]["requests"],
            "accessModes": claim["spec"]["accessModes"],
            "storageClassName": claim["spec"].get("storageClassName", ""),
            "hostPath": {"path": "/tmp"},
            "claimRef": {"apiVersion": "v1", "kind": "PersistentVolumeClaim", **reference},
        }
        body = {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": name}, "spec": spec}
        creation = Creation("/api/v1/persistentvolumes", body)
        self._create(creation)
        made.creations.append(creation)
        return name

    # Afterwards

    def _delete_all(self, made: Translation) -> None:
        for claim in (c for claims in made.owned.values() for c in claims):
            self._delete(claim)
        for creation in reversed(made.creations):
            self._delete(creation)

    def _delete(self, creation: Creation) -> None:
        """Delete an object at once; without controllers nothing takes its finalizers away."""
        found = self._admin.find(creation.path)
        if found is None:
            return
        self._admin.delete(creation.path)
        if creation.body["kind"] == "Namespace":
            found["spec"] = {"finalizers": []}
            found["metadata"].pop("resourceVersion")
            self._admin.put(f"{creation.path}/finalize", found)
        elif found["metadata"].get("finalizers"):
            with contextlib.suppress(RefusedError):
                self._admin.patch(creation.path, {"metadata": {"finalizers": None}})


def _original(made: Translation, node: str) -> str:
    """The case's name of a node."""
    return next((name for name, own in made.nodes.items() if own == node), node)


def _refusal(pod: Object) -> str | None:
    """Why a pod is not scheduled, if its condition says so."""
    for condition in pod["status"].get("conditions") or ():
        if condition["type"] == "PodScheduled" and condition["status"] == "False":
            return str(condition.get("message") or condition.get("reason"))
    return None


def _claimed_by(volume: Object) -> tuple[str, str]:
    reference = volume["spec"].get("claimRef") or {}
    return reference.get("namespace", ""), reference.get("name", "")


def as_expected(scenario: Scenario, question: Question, answer: Answer) -> bool:
    """Whether the answer is what upstream's plugin says, or what a step says."""
    if question.step is not None:
        return not answer.deviations
    if scenario.victims and answer.victims != scenario.victims:
        return False
    return answer.node in question.nodes if question.fits else not answer.bound and not answer.victims
