"""Which pods are expected to run for as long as each other, relative to their forecasts: the class of a pod.

A label says it (``flowsched.io/class``, within a namespace), else it follows from the namespace, from what made the pod
without the parts of names that are generated, and from profile, images and requests. Pods that differ in these last three
alone are of one *family*: a class that is new begins as another one of its family is.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from hashlib import blake2b

from flowsched_k8s.names import PROFILE, RUN_CLASS
from flowsched_k8s.objects import Pod
from flowsched_k8s.pods.readings import ends_by_itself

LONGEST_FAMILY = 96
"""Characters; longer ones are cut, and end with a digest."""
_APART = "@"
"""Between the family of a class and the digest of the rest. Neither names nor labels of Kubernetes contain it."""
_JOB_SET, _JOB_SET_PART = "jobset.sigs.k8s.io/jobset-name", "jobset.sigs.k8s.io/replicatedjob-name"
_GENERATED = re.compile(r"-[bcdfghjklmnpqrstvwxz2456789]{5}$")
"""What the API server appends to a ``generateName``: no vowels, and no 0, 1 or 3."""
_SCHEDULED = re.compile(r"-[0-9]{8,10}$")
"""What a CronJob appends to the names of its Jobs: minutes since 1970."""
_NUMBERED = re.compile(r"-[0-9]+$")
_DIGEST_BYTES = 4


def run_class_of(pod: Pod, needs: Mapping[str, int]) -> str:
    """The class of a pod that asks for ``needs``; empty for one that runs until it is deleted.

    Pods that a controller keeps running are such: nothing is learnt from their ends.
    """
    if not ends_by_itself(pod):
        return ""
    meta = pod.metadata
    labels, annotations = meta.labels or {}, meta.annotations or {}
    if label := labels.get(RUN_CLASS, ""):
        return f"{meta.namespace}/{label}"
    kind, owner = _owner(pod, labels)
    images = [container.image for container in pod.spec.containers]
    profile = annotations.get(PROFILE, labels.get(PROFILE, ""))
    rest = repr((kind, profile, images, sorted(needs.items())))
    return f"{_cut(f'{meta.namespace}/{owner}')}{_APART}{_digest(rest)}"


def family_of(run_class: str) -> str:
    """What a class has in common with those that differ in profile, images or requests; empty for one that a label names."""
    return run_class.rpartition(_APART)[0]


def _owner(pod: Pod, labels: Mapping[str, str]) -> tuple[str, str]:
    """Kind and name, without generated parts, of what makes such pods again and again."""
    name = pod.metadata.name
    if job_set := labels.get(_JOB_SET, ""):
        part = labels.get(_JOB_SET_PART, "")
        return "JobSet", f"{_plain(job_set)}.{part}" if part else _plain(job_set)
    owner = next((o for o in pod.metadata.owner_references or () if o.controller), None)
    if owner is None:
        return "Pod", _plain(name)
    if owner.kind == "Workflow":
        # Argo names a step's pod WORKFLOW-TEMPLATE-NUMBER, and that of a workflow with one step like the workflow.
        step = _NUMBERED.sub("", name.removeprefix(owner.name).removeprefix("-"))
        return owner.kind, f"{_plain(owner.name)}.{step}" if step else _plain(owner.name)
    return owner.kind, _plain(owner.name)


def _plain(name: str) -> str:
    """A name without what is generated of it, or the number of a copy."""
    for pattern in (_SCHEDULED, _GENERATED, _NUMBERED):
        found = pattern.search(name)
        if found is not None and found.start() > 0:
            return name[: found.start()]
    return name


def _cut(family: str) -> str:
    if len(family) <= LONGEST_FAMILY:
        return family
    digest = _digest(family)
    return f"{family[: LONGEST_FAMILY - len(digest) - 1]}~{digest}"


def _digest(text: str) -> str:
    return blake2b(text.encode(), digest_size=_DIGEST_BYTES).hexdigest()
