"""Fetching from schedulers and API servers that answer oddly; the usual case is tested live."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from functools import cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import yaml

from builders import machines, snapshot, task
from flowsched import solve
from flowsched.inspector.record_view import RecordView
from flowsched.records.record_file import record_json
from flowsched_k8s.live_record import fetch
from flowsched_k8s.names import PLACEMENT
from flowsched_models.document import InputError

LEASE = "/apis/coordination.k8s.io/v1/namespaces/flowsched-system/leases/flowsched"
PROXY = "/api/v1/namespaces/flowsched-system/pods/flowsched-0:8443/proxy"
Answer = tuple[int, bytes]


def refusal(status: int, reason: str, message: str) -> Answer:
    return status, json.dumps({"kind": "Status", "reason": reason, "message": message}).encode()


@cache
def decided() -> bytes:
    """Round 1: a pod was placed, and one is too large for every node."""
    large = task("uid-default-large", cores=64, widths_milli=(64_000,))
    plain = solve(snapshot([task("uid-default-placed"), large], machines(2))).record
    assert plain is not None
    titles = {f"uid-default-{name}": f"default/{name}" for name in ("placed", "large")}
    held = [
        {"tasks": ["uid-default-large"], "fate": "unschedulable", "message": "0/2 nodes are available.", "counts": {}}
    ]
    return record_json({**plain, "round": 1, "titles": titles, "held": held}).encode()


def empty(round: int) -> bytes:
    """Another round of the same scheduler, which decided on no pod that is asked for."""
    plain = json.loads(decided())
    return json.dumps({**plain, "round": round, "titles": {}, "parts": [], "held": []}).encode()


def pod(name: str, **spec: Any) -> Answer:
    placed = {PLACEMENT: json.dumps({"node": spec["nodeName"], "round": 1})} if "nodeName" in spec else {}
    body = {
        "metadata": {"name": name, "uid": f"uid-default-{name}", "annotations": placed},
        "spec": {"schedulerName": "flowsched", **spec},
        "status": {},
    }
    return 200, json.dumps(body).encode()


class Api:
    """Answers by path, whatever the query; it notes what it was asked."""

    def __init__(self) -> None:
        self.answers: dict[str, Answer] = {
            LEASE: (200, json.dumps({"spec": {"holderIdentity": "flowsched-0_7_ab"}}).encode()),
            f"{PROXY}/debug/records": (200, json.dumps({"records": [{"round": "2"}, {"round": "1"}]}).encode()),
            f"{PROXY}/debug/records/latest": (200, empty(2)),
            f"{PROXY}/debug/records/2": (200, empty(2)),
            f"{PROXY}/debug/records/1": (200, decided()),
            "/api/v1/namespaces/default/pods/placed": pod("placed", nodeName="node-b"),
            "/api/v1/namespaces/default/pods/large": pod("large"),
            "/api/v1/namespaces/default/pods/new": pod("new"),
        }
        self.asked: list[str] = []
        self.kubeconfig = Path()

    def handler(self) -> type[BaseHTTPRequestHandler]:
        api = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                path = urlsplit(self.path).path
                api.asked.append(path)
                status, body = api.answers.get(path, refusal(404, "NotFound", f"{path} not found"))
                self.send_response(status)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                """Say nothing."""

        return Handler


@pytest.fixture
def api(tmp_path: Path) -> Iterator[Api]:
    made = Api()
    server = ThreadingHTTPServer(("127.0.0.1", 0), made.handler())
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "c",
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u", "namespace": "default"}}],
        "clusters": [{"name": "c", "cluster": {"server": f"http://127.0.0.1:{server.server_address[1]}"}}],
        "users": [{"name": "u", "user": {"token": "secret"}}],
    }
    made.kubeconfig = tmp_path / "kubeconfig"
    made.kubeconfig.write_text(yaml.safe_dump(config), encoding="utf-8")
    yield made
    server.shutdown()
    server.server_close()


def said(api: Api, target: str | None) -> str:
    with pytest.raises(InputError) as caught:
        fetch(target, api.kubeconfig)
    (problem,) = caught.value.problems
    assert "\n" not in str(problem)
    return str(problem)


@pytest.mark.parametrize("target", ["pod/default/placed", "pod/default/large", "default/large", "pod/large", "large"])
def test_a_leader_that_gives_its_latest_record_whichever_pod_it_is_asked_about(api: Api, target: str) -> None:
    """It gives JSON."""
    live = fetch(target, api.kubeconfig)
    assert live.source == "scheduler flowsched-system/flowsched-0, round 1"
    assert live.task == f"uid-default-{target.rpartition('/')[2]}"
    recorded = RecordView(live.record, live.source)
    assert recorded.plain["apiVersion"] == "flowsched/v3"
    assert [[p.task for p in part.placements] for part in recorded.parts] == [["uid-default-placed"]]


def test_a_record_of_a_leader_of_another_version_is_refused(api: Api) -> None:
    for version in ("flowsched/v2", "flowsched/v4"):
        old = json.dumps({**json.loads(decided()), "apiVersion": version}).encode()
        api.answers[f"{PROXY}/debug/records/latest"] = (200, old)
        assert f"is a record of version {version}; this flowsched reads only flowsched/v3" in said(api, None)


def test_records_are_asked_for_one_by_one_only_where_a_leader_does_not_know_pods(api: Api) -> None:
    api.answers[f"{PROXY}/debug/records/latest"] = (200, decided())
    fetch("pod/default/large", api.kubeconfig)
    assert api.asked[-1] == f"{PROXY}/debug/records/latest"
    api.answers[f"{PROXY}/debug/records/latest"] = (404, b"no round that decided on pod 'default/large' is kept\n")
    assert said(api, "large").startswith("pod default/large: no round has decided on it yet, or none that is kept; ")
    assert f"{PROXY}/debug/records" not in api.asked


def test_a_pod_that_no_record_of_such_a_leader_knows(api: Api) -> None:
    assert said(api, "new").startswith(
        "pod default/new: no round has decided on it yet, or none that is kept; records."
    )


def test_another_leader_that_counts_anew(api: Api) -> None:
    """Its round 1 is not the one in which the pod was placed."""
    api.answers[f"{PROXY}/debug/records/1"] = (200, empty(1))
    text = said(api, "placed")
    assert text.startswith(
        "pod default/placed: it was placed in round 1, whose record flowsched-0 does not keep any more"
    )


@pytest.mark.parametrize("note", ["", "{}", "[]", "7", '{"round": null}', '{"round": "soon"}'])
def test_an_annotation_that_was_changed(api: Api, note: str) -> None:
    status, body = pod("placed", nodeName="node-b")
    plain = json.loads(body)
    plain["metadata"]["annotations"][PLACEMENT] = note
    api.answers["/api/v1/namespaces/default/pods/placed"] = status, json.dumps(plain).encode()
    assert said(api, "placed") == (
        "pod default/placed: its annotation flowsched.io/placement names no round: it was changed after flowsched wrote it"
    )


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (lambda a: a.update({LEASE: (200, b'{"spec": {}}')}), "no process leads at the moment"),
        (lambda a: a.update({LEASE: refusal(403, "Forbidden", "no")}), "may not get leases.coordination.k8s.io there"),
        (lambda a: a.update({LEASE: refusal(401, "Unauthorized", "no")}), "does not accept its credentials: no"),
        (
            lambda a: a.update({LEASE: (502, b"<html>\nbad gateway</html>")}),
            "leases.coordination.k8s.io: 502: <html> bad",
        ),
        (lambda a: a.update({LEASE: (200, b"<html>")}), "is no answer of an API server"),
        (lambda a: a.update({f"{PROXY}/debug/records/latest": (200, b"<html>")}), "is neither JSON nor an archive"),
        (lambda a: a.update({f"{PROXY}/debug/records/latest": (200, b"PK\x03")}), "is damaged or truncated"),
        (
            lambda a: a.update(
                {f"{PROXY}/debug/records/latest": (200, b'{"kind":"Record","apiVersion":"flowsched/v9"}')}
            ),
            "is a record of version flowsched/v9; this flowsched reads",
        ),
        (
            lambda a: a.update({f"{PROXY}/debug/records/latest": (404, b"there is no record")}),
            "has decided no round yet",
        ),
        (
            lambda a: a.update({f"{PROXY}/debug/records/latest": refusal(400, "BadRequest", "address not allowed")}),
            "the API server does not reach it: 400 BadRequest: address not allowed",
        ),
        (
            lambda a: a.update(
                {f"{PROXY}/debug/records/latest": refusal(503, "ServiceUnavailable", "dial tcp: refused")}
            ),
            "it does not answer on port 8443: dial tcp: refused; server.metrics in its configuration",
        ),
        (lambda a: a.pop(f"{PROXY}/debug/records/latest"), "its holder flowsched-0 is no pod there"),
    ],
)
def test_what_is_wrong_is_one_sentence(api: Api, change: Callable[[dict[str, Answer]], None], expected: str) -> None:
    change(api.answers)
    assert expected in said(api, None)
