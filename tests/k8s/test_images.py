"""Images that nodes have already: what pulling them costs, and where pods go."""

from __future__ import annotations

from typing import Any

import objects_builders as b
import pytest
from hypothesis import given
from hypothesis import strategies as st
from model_scheduler import ModelScheduler
from model_server import ModelServer

from flowsched_k8s import names
from flowsched_k8s.configuration.configuration import Configuration
from flowsched_k8s.objects import Pod
from flowsched_k8s.pods.images import IMAGE_STEP, IMAGE_WEIGHT, ImageIndex, images_of

MB = 1_000_000
SIZES = {"a:1": 90 * MB, "b:1": 400 * MB, "c:1": 2500 * MB}


def runs(*images: str, **fields: Any) -> Pod:
    return b.pod(containers=[{**b.container(str(k), "1"), "image": image} for k, image in enumerate(images)], **fields)


def score(has: list[set[str]], node: int, wanted: list[str]) -> float:
    """ImageLocality's score of a node, 0 to 1, by the definition in Kubernetes' documentation and source."""
    total = sum(SIZES[i] * sum(i in h for h in has) / len(has) for i in wanted if i in has[node])
    least, most = 23 * MB, 1000 * MB * len(wanted)
    return (min(max(total, least), most) - least) / (most - least)


@given(
    st.lists(st.sets(st.sampled_from(sorted(SIZES))), min_size=1, max_size=5),
    st.lists(st.sampled_from(sorted(SIZES)), min_size=1, max_size=4),
    st.data(),
)
def test_a_place_costs_what_its_score_is_below_the_best_score(
    has: list[set[str]], wanted: list[str], data: st.DataObject
) -> None:
    index = ImageIndex()
    before = data.draw(st.lists(st.sets(st.sampled_from(sorted(SIZES))), min_size=len(has), max_size=len(has) + 2))
    for state in (before, has):
        for row, images in enumerate(state):
            index.put(row, b.node(images={i: SIZES[i] for i in images}))
    for row in range(len(has), len(before)):
        index.remove(row)

    cost = index.cost(images_of(runs(*wanted)), len(has) + 1)

    scores = [score(has, k, wanted) for k in range(len(has))]
    found = [0.0] * len(has) if cost is None else cost[: len(has)].tolist()
    best = max(*scores, 0.0)
    assert found == pytest.approx([IMAGE_WEIGHT * (best - s) for s in scores], abs=IMAGE_STEP / 2 + 1e-9)


def test_images_are_named_as_nodes_name_them() -> None:
    pod = b.pod(
        containers=[{"name": "a", "image": "registry:5000/web"}, {"name": "b", "image": "web:2"}],
        initContainers=[{"name": "c", "image": "tool@sha256:00"}],
        volumes=[{"name": "v", "image": {"reference": "model"}}, {"name": "w", "emptyDir": {}}],
    )
    assert images_of(pod) == ("model:latest", "registry:5000/web:latest", "tool@sha256:00", "web:2")


@pytest.mark.parametrize("said", [{}, {names.PROFILE: "canneal"}], ids=["plain", "measured"])
def test_a_pod_goes_where_its_image_is_until_that_node_is_busy(said: dict[str, str]) -> None:
    server = ModelServer()
    for k in range(3):
        server.put(b.node(f"n{k}", "8", images={"web:1": 2900 * MB} if k == 1 else {}))
    running = ModelScheduler(server, Configuration())
    for k in range(8):
        running.create(runs("web:1", name=f"p{k}", annotations=said))
        running.settle()
    where = running.where()
    assert where["p0"] == "n1"
    assert len(set(where.values())) > 1


def test_images_come_and_go_with_what_nodes_say() -> None:
    server = ModelServer()
    for k in range(3):
        server.put(b.node(f"n{k}", "8"))
    running = ModelScheduler(server, Configuration())
    for k, node in enumerate(("n2", "n1")):
        running.put(b.node(node, "8", images={"web:1": 2900 * MB}))
        running.create(runs("web:1", name=f"p{k}"))
        running.settle()
        assert running.where()[f"p{k}"] == node
        running.put(b.node(node, "8"))
    running.server.remove(running.server.nodes["n1"])
    running.deliver()
    assert running.state.cache.images.cost(("web:1",), 3) is None
