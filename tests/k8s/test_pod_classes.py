"""Which pods are expected to run for as long as each other."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from objects_builders import container, decoded, pod

from flowsched_k8s import names
from flowsched_k8s.learning.pod_classes import LONGEST_FAMILY, family_of, run_class_of
from flowsched_k8s.objects import OwnerReference, Pod
from flowsched_k8s.pods.requests import pod_requests


def made(name: str, owner: tuple[str, str] | None = None, image: str = "", **more: Any) -> Pod:
    """A pod that ends by itself; ``owner``: kind and name of its controller."""
    containers = [{**container("main", more.pop("cpu", "1")), "image": image}]
    found = pod(name, containers=containers, **{"restartPolicy": "Never", **more})
    if owner is None:
        return found
    reference = decoded(OwnerReference, {"kind": owner[0], "name": owner[1], "uid": owner[1], "controller": True})
    return msgspec.structs.replace(
        found, metadata=msgspec.structs.replace(found.metadata, owner_references=[reference])
    )


def class_of(found: Pod) -> str:
    return run_class_of(found, pod_requests(found))


@pytest.mark.parametrize(
    ("one", "other", "family"),
    [
        (made("a-x", ("Job", "encode-29412345")), made("b-y", ("Job", "encode-29412350")), "default/encode"),
        (made("a-x", ("Job", "encode-x7k2p")), made("b-y", ("Job", "encode-bcdfg")), "default/encode"),
        (made("a-x", ("Job", "encode")), made("b-y", ("Job", "encode")), "default/encode"),
        (made("train-1"), made("train-27"), "default/train"),
        (made("train-x7k2p"), made("train-z9z9z"), "default/train"),
        (
            made("etl-8xk2p-clean-317", ("Workflow", "etl-8xk2p")),
            made("etl-4zz2p-clean-9910", ("Workflow", "etl-4zz2p")),
            "default/etl.clean",
        ),
        (made("etl-8xk2p", ("Workflow", "etl-8xk2p")), made("etl-4zz2p", ("Workflow", "etl-4zz2p")), "default/etl"),
        (
            made("s-w-0-0-abc", ("Job", "s-w-0"), labels={"jobset.sigs.k8s.io/jobset-name": "s-x7k2p",
                 "jobset.sigs.k8s.io/replicatedjob-name": "w"}),
            made("t-w-1-0-abc", ("Job", "t-w-1"), labels={"jobset.sigs.k8s.io/jobset-name": "s-b7k2p",
                 "jobset.sigs.k8s.io/replicatedjob-name": "w"}),
            "default/s.w",
        ),
    ],
)  # fmt: skip
def test_generated_parts_of_names_make_no_difference(one: Pod, other: Pod, family: str) -> None:
    assert class_of(one) == class_of(other)
    assert family_of(class_of(one)) == family


@pytest.mark.parametrize(
    "other",
    [
        made("a", ("Job", "encode"), image="v2"),
        made("a", ("Job", "encode"), cpu="2"),
        made("a", ("Job", "encode"), annotations={names.PROFILE: "canneal"}),
    ],
)
def test_another_image_profile_or_request_is_another_class_of_the_family(other: Pod) -> None:
    before = class_of(made("a", ("Job", "encode")))
    assert class_of(other) != before
    assert family_of(class_of(other)) == family_of(before) == "default/encode"


def test_steps_of_a_workflow_and_namespaces_are_apart() -> None:
    steps = [made(f"etl-8xk2p-{step}-1", ("Workflow", "etl-8xk2p")) for step in ("clean", "join")]
    found = [*steps, made("a", ("Job", "etl")), made("a", ("Job", "etl"), namespace="other")]
    assert len({family_of(class_of(p)) for p in found}) == 4


def test_a_label_names_the_class_within_its_namespace() -> None:
    one, other = (made(f"p-{i}", ("Job", f"j{i}"), image=str(i), labels={names.RUN_CLASS: "vips"}) for i in range(2))
    assert class_of(one) == class_of(other) == "default/vips"
    assert family_of("default/vips") == ""
    assert class_of(made("p", labels={names.RUN_CLASS: "vips"}, namespace="b")) == "b/vips"


@pytest.mark.parametrize("policy", [None, "Always"])
def test_a_pod_that_runs_until_it_is_deleted_has_none(policy: str | None) -> None:
    spec = {"restartPolicy": policy} if policy else {}
    found = pod("web-abc", owner=("ReplicaSet", "web"), labels={names.RUN_CLASS: "web"}, **spec)
    assert class_of(found) == ""


def test_long_names_are_cut_and_stay_apart() -> None:
    long = [class_of(made("p", ("Job", "j" * 250 + end))) for end in ("a", "b")]
    assert len(set(long)) == 2
    assert all(len(family_of(c)) == LONGEST_FAMILY and " " not in c for c in long)
