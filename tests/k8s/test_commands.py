"""The commands as a user types them: what they print, and with which code they end."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest
from plane import Plane, Space

from flowsched.records.snapshot_source import load_snapshot
from flowsched.round.scheduler import solve
from ready_python import run_ready


def flowsched(*words: str | Path) -> subprocess.CompletedProcess[str]:
    return run_ready("flowsched.cli", *words)


def unreachable(folder: Path) -> Path:
    """A kubeconfig for a port where no server listens."""
    path = folder / "kubeconfig"
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "c",
        "clusters": [{"name": "c", "cluster": {"server": "http://127.0.0.1:1"}}],
        "users": [{"name": "u", "user": {}}],
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
    }
    path.write_text(json.dumps(config))
    return path


@pytest.mark.parametrize("command", ["run", "snapshot"])
def test_bad_input_ends_with_2_and_one_sentence(command: str, tmp_path: Path) -> None:
    wrong = tmp_path / "config.yaml"
    wrong.write_text(
        "apiVersion: config.flowsched.io/v1alpha1\nkind: FlowSchedulerConfiguration\nround: {}\nrecords: {keep: many}\n"
    )
    for words, told in (
        (("--config", tmp_path / "no.yaml"), "there is no such file"),
        (("--config", wrong), "rounds"),
        (("--kubeconfig", tmp_path / "no"), "there is no such kubeconfig"),
    ):
        done = flowsched(command, *words)
        assert done.returncode == 2, done.stderr
        assert told in done.stderr
        assert "Traceback" not in done.stderr
        assert done.stdout == ""
    both = flowsched(command, "--config", wrong).stderr.splitlines()
    assert len(both) == 2, "all mistakes at once"


def test_a_cluster_that_does_not_answer_cannot_be_written_down(tmp_path: Path) -> None:
    out = tmp_path / "now.yaml"
    done = flowsched("snapshot", "--kubeconfig", unreachable(tmp_path), "--out", out)
    assert done.returncode == 2
    assert "http://127.0.0.1:1: cannot be read" in done.stderr
    assert not out.exists()


def test_a_live_cluster_is_written_down_and_solved(plane: Plane, space: Space, tmp_path: Path) -> None:
    """Only this test's nodes: they are the pool. Reading changes nothing; the snapshot stands alone."""
    [small, large, *_] = [space.make_nodes(1, prefix=p, cpu=cpu)[0] for p, cpu in (("s", "2"), ("l", "8"))]
    zone = {"flowsched.test/kind": "large"}
    admin = space.admin
    admin.patch(f"/api/v1/nodes/{large}", {"metadata": {"labels": zone}})
    space.make_pod("job", cpu="1", annotations={"flowsched.io/profile": "vips", "flowsched.io/widths": "1,2"})
    space.make_pod("plain", cpu="500m", nodeSelector=zone)
    space.make_pod("strange", resourceClaims=[{"name": "gpu", "resourceClaimName": "x"}])
    space.make_pod("foreign", cpu="1", scheduler="other", nodeName=small)
    config = tmp_path / "config.yaml"
    config.write_text(
        "apiVersion: config.flowsched.io/v1alpha1\nkind: FlowSchedulerConfiguration\n"
        f"nodeSelector: {{flowsched.test/space: {space.name}}}\n"
    )
    before = {p["metadata"]["name"]: p["metadata"]["resourceVersion"] for p in space.pods()}
    out = tmp_path / "now.yaml"
    done = flowsched("snapshot", "--config", config, "--kubeconfig", plane.kubeconfig, "--out", out)
    assert done.returncode == 0, done.stderr
    assert f"{space.name}/strange is left out: spec.resourceClaims" in done.stderr
    loaded = load_snapshot(out)
    assert {m.name for m in loaded.machines} == {small, large}
    pending = {t.name: t for t in loaded.pending}
    mine = {f"{space.name}/job", f"{space.name}/plain"}
    assert mine <= pending.keys()
    assert pending[f"{space.name}/plain"].machines == (large,)
    assert pending[f"{space.name}/job"].threads == (1, 2)
    assert [r.machine for r in loaded.running if r.task.name == f"{space.name}/foreign"] == [small]
    placed = {p.task: p.machine for p in solve(loaded).placements}
    assert placed[f"{space.name}/plain"] == large
    after = {p["metadata"]["name"]: p["metadata"]["resourceVersion"] for p in space.pods()}
    assert {n: v for n, v in after.items() if n != "foreign"} == {n: v for n, v in before.items() if n != "foreign"}
