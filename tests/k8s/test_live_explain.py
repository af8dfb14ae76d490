"""Records of a running scheduler, fetched as a user does: with a user's rights, by a port that the API server forwards."""

from __future__ import annotations

import contextlib
import json
import re
import socket
import ssl
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from certificates import Authority
from click.testing import CliRunner
from plane import Object, Plane, Space, free_ports
from port_forwarding import kubelet
from running import MANIFESTS, Running, Site, running_scheduler, site_of

from flowsched.cli import flowsched as commands
from flowsched.inspector.record_view import RecordView
from flowsched.inspector.source import open_live
from flowsched.records.record_file import record_json, write_record
from flowsched_k8s import names
from flowsched_k8s.records.live_record import fetch
from flowsched_models.document import InputError
from ready_python import run_ready

ROLE = MANIFESTS.parent / "examples" / "explain-role.yaml"
VIEW = {"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}
"""Of what the ClusterRole ``view`` grants, the part that counts here."""
MEASURED = {names.PROFILE: "canneal"}


@contextlib.contextmanager
def reachable_scheduler(plane: Plane, folder: Path, **settings: Any) -> Iterator[Running]:
    """Its lease names this machine, so a pod of that name, on a node with a kubelet of its own, stands for it."""
    (port,) = free_ports(1)
    listens = {"loopback": f"127.0.0.1:{port}"}
    with (
        kubelet(tls_of_a_kubelet(folder), "127.0.0.1") as port,
        running_scheduler(plane, folder, start=False, listens=listens, **settings) as scheduler,
    ):
        home = scheduler.home
        (node,) = home.make_nodes(1, prefix="kubelet", kwok=False)
        status = {
            "addresses": [{"type": "InternalIP", "address": "127.0.0.1"}],
            "daemonEndpoints": {"kubeletEndpoint": {"Port": port}},
        }
        plane.admin.patch(f"/api/v1/nodes/{node}/status", {"status": status}, "strategic-merge-patch")
        home.make_pod(socket.gethostname(), scheduler="another-scheduler", nodeName=node)
        scheduler.start()
        yield scheduler


def tls_of_a_kubelet(folder: Path) -> ssl.SSLContext:
    place = folder / "kubelet"
    place.mkdir()
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    tls.load_cert_chain(*Authority(place).issue("kubelet"))
    return tls


@pytest.fixture(scope="module")
def scheduler(plane: Plane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """It leads, and the API server reaches it as it reaches a pod."""
    head = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass"}
    plane.admin.apply({**head, "metadata": {"name": f"explain-{p}"}, "value": p} for p in (10, 20))
    # Long enough for pods that lose their gates one after the other to be in one round.
    rounds = {"batchWindow": "300ms"}
    with reachable_scheduler(plane, tmp_path_factory.mktemp("scheduler"), rounds=rounds) as started:
        yield started


@pytest.fixture
def site(scheduler: Running, space: Space) -> Iterator[Site]:
    with site_of(scheduler, space) as made:
        yield made


@pytest.fixture
def user(scheduler: Running) -> Path:
    """The kubeconfig of a user with the rights of the example who may look at pods."""
    return kubeconfig_of(scheduler, *rules_of_the_example())


def rules_of_the_example() -> list[Object]:
    role, _ = yaml.safe_load_all(ROLE.read_text(encoding="utf-8"))
    assert role["metadata"]["namespace"] == "flowsched-system"
    rules: list[Object] = role["rules"]
    return rules


def kubeconfig_of(scheduler: Running, *rules: Object) -> Path:
    """``rules`` hold where the scheduler is; looking at pods is allowed everywhere."""
    return scheduler.home.service_account_kubeconfig([VIEW], list(rules))


def said(user: Path, scheduler: Running, target: str | None) -> str:
    with pytest.raises(InputError) as caught:
        fetch(target, user, scheduler.configuration)
    (problem,) = caught.value.problems
    text = str(problem)
    assert "\n" not in text
    return text


def faults(recorded: RecordView) -> list[str]:
    return [fault for part in recorded.parts for graph in part.graphs.values() for fault in graph.faults()]


def test_the_record_of_a_placed_pod(site: Site, user: Path) -> None:
    node = site.node()
    uid = site.pod("placed")["metadata"]["uid"]
    assert site.bound("placed") == node
    # Rounds after it are none of its business.
    site.pod("later")
    site.bound("later")
    live = fetch(f"pod/{site.name}/placed", user, site.scheduler.configuration)
    recorded = RecordView(live.record, live.source)
    assert live.task == uid
    note = json.loads(site.space.pod("placed")["metadata"]["annotations"][names.PLACEMENT])
    assert recorded.round == note["round"]
    assert live.source == f"scheduler {site.scheduler.home.name}/{socket.gethostname()}, round {note['round']}"
    found = recorded.find_task(f"pod/{site.name}/placed")
    assert found is not None
    part, task = found
    (placed,) = (p for p in part.placements if p.task == task)
    assert (task, placed.machine) == (uid, node)
    assert placed.cost == pytest.approx(note["cost"], abs=1e-3)
    assert faults(recorded) == []


def test_the_record_of_a_pod_that_no_node_takes(site: Site, user: Path) -> None:
    site.nodes(2, cpu="1")
    site.pod("large", cpu="2")
    message = site.refused("large")
    live = fetch(f"pod/{site.name}/large", user, site.scheduler.configuration)
    (held,) = (h for h in RecordView(live.record, live.source).held if live.task in h["tasks"])
    assert (held["message"], held["fate"]) == (message, "unschedulable")
    assert held["counts"] == {"Insufficient cpu": 2}
    assert live.record["waited"][live.task]["rounds"] >= 0
    assert record_json(fetch(f"{site.name}/large", user, site.scheduler.configuration).record) == record_json(
        live.record
    )


def test_a_round_of_several_priorities_and_both_ways(site: Site, user: Path, tmp_path: Path) -> None:
    """Measured pods and others, of two priorities, in one round: gates keep them out until all are there."""
    site.nodes(3, cpu="4")
    gates = {"schedulingGates": [{"name": "example.com/later"}]}
    for priority in ("explain-10", "explain-20"):
        for number in range(3):
            site.pod(f"{priority}-plain-{number}", cpu="500m", priorityClassName=priority, **gates)
        site.pod(f"{priority}-job", cpu="1", annotations=MEASURED, priorityClassName=priority, **gates)
        site.pod(f"{priority}-large", cpu="32", priorityClassName=priority, **gates)
    pods = [p["metadata"]["name"] for p in site.space.pods()]
    waits = f"pod/{site.name}/{pods[0]}"
    assert "before its scheduling gates are removed: example.com/later" in said(user, site.scheduler, waits)
    for name in pods:
        site.change_pod(name, {"spec": {"schedulingGates": None}})
    for name in pods:
        site.refused(name) if name.endswith("large") else site.bound(name)
    placed = {name: site.space.pod(name)["spec"].get("nodeName") for name in pods}
    parts: set[tuple[tuple[str, int | None], ...]] = set()
    for name in pods:
        live = fetch(f"pod/{site.name}/{name}", user, site.scheduler.configuration)
        recorded = RecordView(live.record, live.source)
        assert faults(recorded) == []
        parts.add(tuple((part.prices, part.priority) for part in recorded.parts))
        found = recorded.find_task(f"{site.name}/{name}")
        assert found is not None
        part, task = found
        assert task == live.task
        assert part.priority == int(name.split("-")[1])
        assert [p.machine for p in part.placements if p.task == task] == ([placed[name]] if placed[name] else [])
        assert [w.task for w in part.waiting if w.task == task] == ([] if placed[name] else [task])
        write_record(live.record, tmp_path / f"{recorded.round}.npz")
    assert (("forecast", 20), ("linear", 20), ("forecast", 10), ("linear", 10)) in parts
    for file in tmp_path.glob("*.npz"):
        replayed(file)


def replayed(file: Path) -> None:
    """Solved again, every decision is the same, also here: a process that shares no order of sets with the scheduler."""
    done = CliRunner().invoke(commands, ["replay", str(file)])
    assert (done.exit_code, "same" in done.stdout) == (0, True), done.output


def flowsched(*words: str | Path) -> str:
    """What the command prints."""
    done = run_ready("flowsched.cli", *words)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_commands_that_ask_a_running_scheduler(site: Site, user: Path, tmp_path: Path) -> None:
    """What they say is tested with the inspector; here, that they reach it, and that all is there that they want."""
    node = site.node(cpu="2")
    site.node("tainted", cpu="2", taints=[{"key": "k", "effect": "NoSchedule"}])
    site.pod("placed", cpu="1")
    assert site.bound("placed") == node
    site.pod("job", cpu="500m", annotations=MEASURED)
    assert site.bound("job") == node
    site.pod("large", cpu="8")
    site.refused("large")
    asks = ("--kubeconfig", user, "--config", site.scheduler.configuration)
    for name in ("placed", "job"):
        assert node in flowsched("explain", "--live", f"pod/{site.name}/{name}", *asks)
    told = flowsched("explain", "--live", f"pod/{site.name}/large", *asks)
    for reason in (names.TAINTS, "Insufficient cpu"):
        assert reason in told
    plain = json.loads(flowsched("explain", "--live", f"pod/{site.name}/large", "--json", *asks))
    assert site.space.pod("large")["metadata"]["uid"] in json.dumps(plain)
    assert flowsched("inspect", "--live", *asks)


def test_the_latest_round_and_those_that_are_kept(site: Site, user: Path) -> None:
    site.node()
    for number in range(3):
        site.pod(f"p{number}", annotations=MEASURED if number == 1 else {})
        site.bound(f"p{number}")
    live = fetch(None, user, site.scheduler.configuration)
    assert live.task is None
    assert live.record["round"] == site.scheduler.record()["round"]
    # By the entry point, as commands do it.
    recorded, task = open_live(f"pod/{site.name}/p1", user, site.scheduler.configuration)
    assert task == site.space.pod("p1")["metadata"]["uid"]
    assert [p.prices for p in recorded.parts] == ["forecast"]
    site.scheduler.check_records()


def test_a_pod_of_the_same_name_is_another_pod(site: Site, user: Path) -> None:
    site.node()
    site.pod("again")
    site.bound("again")
    note = site.space.pod("again")["metadata"]["annotations"][names.PLACEMENT]
    site.space.delete_pod("again")
    site.pod("again", cpu="64")
    message = site.refused("again")
    live = fetch(f"pod/{site.name}/again", user, site.scheduler.configuration)
    assert [h["message"] for h in live.record["held"] if live.task in h["tasks"]] == [message]
    # Copied annotations are not believed.
    site.space.delete_pod("again")
    node = site.node("other")
    site.pod("again", nodeName=node, annotations={names.PLACEMENT: note})
    text = said(user, site.scheduler, f"pod/{site.name}/again")
    assert re.search(r"placed in round \d+, whose record \S+ does not keep any more; records\.keep", text)


def test_pods_that_no_round_decides_on(site: Site, user: Path) -> None:
    scheduler = site.scheduler
    node = site.node()
    assert said(user, scheduler, f"pod/{site.name}/missing") == (
        f"pod {site.name}/missing: there is no such pod; kubectl get pods -A lists them"
    )
    site.foreign("foreign", node)
    text = said(user, scheduler, f"pod/{site.name}/foreign")
    assert text.startswith(
        f"pod {site.name}/foreign: it is placed by scheduler another-scheduler, and this one is {scheduler.name}"
    )
    site.pod("pinned", nodeName=node)
    text = said(user, scheduler, f"pod/{site.name}/pinned")
    assert text == (
        f"pod {site.name}/pinned: it is on {node} without an annotation flowsched.io/placement: "
        "another scheduler or a user bound it"
    )
    site.pod("odd", resourceClaims=[{"name": "gpu", "resourceClaimName": "gpu"}])
    message = site.refused("odd")
    text = said(user, scheduler, f"pod/{site.name}/odd")
    assert text.startswith(f"pod {site.name}/odd: no round that decided on it is kept; its condition says: {message}; ")
    for target in ("pod/", "a/b/c", ""):
        assert "names no pod; write pod/NAMESPACE/NAME" in said(user, scheduler, target)


def test_rights_that_are_missing_are_named(site: Site) -> None:
    scheduler = site.scheduler
    site.node()
    site.pod("pod")
    site.bound("pod")
    lease, forward, look = rules_of_the_example()
    home, target = scheduler.home.name, f"pod/{site.name}/pod"
    grants = "k8s/examples/explain-role.yaml grants what this needs"
    assert forward["resources"] == ["pods/portforward"]
    for rules in ([], [{**forward, "verbs": ["create"]}]):
        assert said(kubeconfig_of(scheduler, lease, *rules), scheduler, target) == (
            f"namespace {home}: you may not get pods/portforward there: it needs a Role with this verb; {grants}"
        )
    assert said(kubeconfig_of(scheduler, forward, look), scheduler, target) == (
        f"namespace {home}: you may not get leases.coordination.k8s.io there: it needs a Role with this verb; {grants}"
    )
    nothing = scheduler.home.service_account_kubeconfig([], [])
    assert f"namespace {site.name}: you may not get pods there" in said(nothing, scheduler, target)


def changed(scheduler: Running, file: Path, **keys: Any) -> Path:
    """Its configuration with other keys."""
    plain = yaml.safe_load(scheduler.configuration.read_text(encoding="utf-8"))
    for key, value in keys.items():
        plain[key] = {**plain.get(key, {}), **value}
    file.write_text(yaml.safe_dump(plain), encoding="utf-8")
    return file


def test_a_scheduler_that_cannot_be_found(site: Site, user: Path, tmp_path: Path) -> None:
    scheduler, home = site.scheduler, site.scheduler.home
    admin = site.space.plane.kubeconfig

    def told(config: Path | None, kubeconfig: Path = admin) -> str:
        with pytest.raises(InputError) as caught:
            fetch(None, kubeconfig, config)
        assert len(caught.value.problems) == 1
        return str(caught.value)

    assert told(None) == (
        "lease flowsched-system/flowsched: there is no such lease, so no scheduler runs there; "
        "--config FILE gives a configuration that names another lease"
    )
    other = changed(scheduler, tmp_path / "port.yaml", server={"loopback": "127.0.0.1:1"})
    assert f"scheduler {home.name}/{socket.gethostname()}: it does not answer on port 1: " in told(other)
    assert "without leader election" in told(
        changed(scheduler, tmp_path / "alone.yaml", leaderElection={"leaderElect": False})
    )
    leases = f"/apis/coordination.k8s.io/v1/namespaces/{home.name}/leases"
    for name, holder in (("outside", "my-laptop_1_ab"), ("empty", "")):
        site.admin.post(leases, {"metadata": {"name": name}, "spec": {"holderIdentity": holder}})
    outside = changed(scheduler, tmp_path / "outside.yaml", leaderElection={"resourceName": "outside"})
    assert told(outside) == (
        f"lease {home.name}/outside: its holder my-laptop is no pod there: the scheduler runs outside of the cluster, or "
        "has just ended; flowsched explain FILE POD reads a record from the folder records.directory of its configuration"
    )
    empty = changed(scheduler, tmp_path / "empty.yaml", leaderElection={"resourceName": "empty"})
    assert "no process leads at the moment" in told(empty)
    away = yaml.safe_load(admin.read_text(encoding="utf-8"))
    away["clusters"][0]["cluster"]["server"] = "https://127.0.0.1:1"
    (tmp_path / "away").write_text(yaml.safe_dump(away), encoding="utf-8")
    assert told(None, tmp_path / "away").startswith("https://127.0.0.1:1: the API server does not answer: ")


def test_a_record_that_is_let_go_of(plane: Plane, space: Space, tmp_path: Path) -> None:
    """A leader that keeps one record only."""
    with reachable_scheduler(plane, tmp_path, records={"keep": 1}) as small:
        site = Site(small, space)
        user = kubeconfig_of(small, *rules_of_the_example())
        assert "it has decided no round yet" in said(user, small, None)
        site.node()
        site.pod("first")
        site.bound("first")
        assert fetch(f"pod/{site.name}/first", user, small.configuration).task
        site.pod("second")
        site.bound("second")
        text = said(user, small, f"pod/{site.name}/first")
        assert "whose record" in text
        assert text.endswith("records.keep and records.directory in the scheduler's configuration keep more")
