"""Which of the pods that wait an autoscaler adds nodes for, by the rule in Karpenter's own module."""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest
from plane import Plane, Space, wait_for
from running import STANDARD, Site, running_scheduler, site_of

from flowsched_k8s import names
from flowsched_k8s.groups.pod_groups import MINIMUM_LABEL, NAME_LABEL
from requirements_on_machine import give_up, needs

SOURCE = Path(__file__).parent / "provisionable"


@pytest.fixture(scope="module")
def rule() -> Path:
    """The program, built once for each state of its source: two minutes of compiling."""
    files = sorted(SOURCE.iterdir())
    key = hashlib.sha256(b"\0".join(file.read_bytes() for file in files)).hexdigest()[:16]
    root = os.environ.get("FLOWSCHED_CACHE")
    folder = (Path(root) if root else Path.home() / ".cache" / "flowsched") / "provisionable"
    target = folder / key
    if not target.exists():
        go = needs("go", "to build Karpenter's rule")
        folder.mkdir(parents=True, exist_ok=True)
        with (folder / "lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not target.exists():
                part = folder / "part"
                command = [go, "build", "-trimpath", "-ldflags=-s -w", "-o", str(part), "."]
                done = subprocess.run(
                    command, cwd=SOURCE, capture_output=True, text=True, env={**os.environ, "GOWORK": "off"}
                )
                if done.returncode:
                    give_up(f"Karpenter's rule cannot be built: {done.stderr.strip().splitlines()[-1]}")
                shutil.move(part, target)
    return target


def provisionable(rule: Path, site: Site) -> set[str]:
    """Names of the site's pods that Karpenter would add nodes for."""
    pods = json.dumps({"items": site.space.pods()})
    return set(subprocess.run([rule], input=pods, capture_output=True, text=True, check=True).stdout.split())


def test_nodes_are_added_for_pods_without_room_and_for_no_others(
    rule: Path, plane: Plane, space: Space, tmp_path: Path
) -> None:
    features = (*STANDARD, "preemption")
    with running_scheduler(plane, tmp_path, features=features) as scheduler, site_of(scheduler, space) as site:
        node = site.node(cpu="2", kwok=False)
        site.pod("runs", cpu="1")
        site.bound("runs")
        site.pod("gated", cpu="1", schedulingGates=[{"name": "later"}])
        site.pod("large", cpu="64")
        site.pod("elsewhere", nodeSelector={"disk": "ssd"})
        for i in range(2):
            site.pod(f"member-{i}", cpu="2", labels={NAME_LABEL: "gang", MINIMUM_LABEL: "2"})
        for name in ("large", "elsewhere", "member-0", "member-1"):
            site.refused(name)
        # A pod that is better off waiting is not one that a node is missing for.
        site.pod("patient", cpu="1", annotations={names.PROFILE: "canneal", names.MIN_UTILITY: "1"})
        site.event("patient", names.POSTPONED)
        # Nor is one that others make room for.
        site.pod("critical", cpu="2", priorityClassName="system-cluster-critical")
        nominated = wait_for(lambda: site.space.pod("critical")["status"].get("nominatedNodeName"), "the nomination")
        assert nominated == node
        site.refused("critical")
        assert provisionable(rule, site) == {"large", "elsewhere", "member-0", "member-1"}
