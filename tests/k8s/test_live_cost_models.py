"""A cost model beside flow on a real control plane: what `solve` says of the snapshot is what the scheduler does, also
after a restart.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from plane import Plane, Space, wait_for
from running import Running, Site, running_scheduler
from test_commands import flowsched

from flowsched.inspector.record_view import RecordView
from flowsched.inspector.replay import replay
from flowsched.records.record_file import read_record
from flowsched_k8s import names

CLASSES = ("devil", "rabbit", "sheep", "turtle")
MODELS: dict[str, tuple[dict[str, Any], list[str]]] = {
    "coco": ({"name": "coco", "bucket": 0.5, "growth": 0}, ["coco.bucket=0.5", "coco.growth=0"]),
    "load-spreading": (
        {"name": "load-spreading", "count": "cores", "growth": 0},
        ["load-spreading.count=cores", "load-spreading.growth=0"],
    ),
}
"""Without growth: where two rounds cost the same, which it is may depend on what waiting costs, and so on the second."""


def expected(scheduler: Running, plane: Plane, model: str, folder: Path) -> dict[str, str]:
    """Node by pod: what `flowsched solve` says of `flowsched snapshot`, both as a user types them."""
    file = folder / "now.yaml"
    done = flowsched("snapshot", "--config", scheduler.configuration, "--kubeconfig", plane.kubeconfig, "--out", file)
    assert done.returncode == 0, done.stderr
    settings = [word for setting in MODELS[model][1] for word in ("--set", setting)]
    done = flowsched("solve", file, "--policy", model, *settings, "--json")
    assert done.returncode == 0, done.stderr
    return {p["task"].partition("/")[2]: p["machine"] for p in json.loads(done.stdout)["placements"]}


@pytest.mark.parametrize("model", MODELS)
def test_solve_says_where_pods_go_before_and_after_a_restart(
    model: str, plane: Plane, space: Space, tmp_path: Path
) -> None:
    with running_scheduler(plane, tmp_path, start=False, costModel=MODELS[model][0]) as scheduler:
        site = Site(scheduler, space)
        nodes = space.make_nodes(4, labels=scheduler.pool, cpu="8")
        for i, kind in enumerate(("devil", "rabbit", "devil")):
            notes = {names.INTERFERENCE_CLASS: kind}
            space.make_pod(f"theirs-{i}", cpu="1", scheduler="another-scheduler", nodeName=nodes[i], annotations=notes)
        prefers = {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [
            {"weight": 60, "preference": {"matchExpressions": [
                {"key": names.HOSTNAME, "operator": "In", "values": [nodes[3]]}]}}]}}  # fmt: skip
        for i in range(12):
            notes = {names.INTERFERENCE_CLASS: CLASSES[i % 4]}
            more: dict[str, Any] = {"affinity": prefers} if i % 5 == 0 else {}
            site.pod(f"first-{i}", cpu=("500m", "1")[i % 2], memory="100M", annotations=notes, **more)
        wanted = expected(scheduler, plane, model, tmp_path)
        assert len(wanted) == 12
        events = tmp_path / "events.jsonl.gz"
        scheduler.start("--events", str(events))
        found = site.all_bound(15)
        assert {name: found[name] for name in wanted} == wanted

        record = read_record(scheduler.answer("/debug/records/latest?format=npz"), "latest")
        assert record["policy"] == record["cost_model"]["name"] == model
        assert replay(RecordView(record)).same
        note = json.loads(space.pod("first-1")["metadata"]["annotations"][names.PLACEMENT])
        assert any(term.startswith(("beside_", "load", "place")) for term in note["terms"])

        # What the process knew is gone; the pods that run are what it knows of now.
        assert scheduler.stop() == 0
        done = flowsched("simulate", events)
        assert done.returncode == 0, done.stderr
        assert done.stdout.endswith(", 12 placements: the same decisions as recorded\n")
        for i in range(8):
            site.pod(f"second-{i}", cpu="1", annotations={names.INTERFERENCE_CLASS: CLASSES[i % 4]})
        wanted = expected(scheduler, plane, model, tmp_path)
        assert len(wanted) == 8
        scheduler.start()
        found = site.all_bound(23)
        assert {name: found[name] for name in wanted} == wanted


def test_a_pod_hears_what_its_cost_model_does_not_read(plane: Plane, space: Space, tmp_path: Path) -> None:
    with running_scheduler(plane, tmp_path, costModel="trivial") as scheduler:
        site = Site(scheduler, space)
        site.node(cpu="2")
        site.pod("job", annotations={names.GOAL: "5m"})
        assert site.bound("job")
        said = f"{names.GOAL} has no effect: the cost model is trivial, and flow is the one that reads it"
        wait_for(lambda: said in {e.get("note") for e in site.events("job", names.FAILED_SCHEDULING)}, "the event")
        plain = json.loads(scheduler.answer("/configz"))
        assert plain["costModel"] == "trivial"
