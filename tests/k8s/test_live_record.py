"""Fetching from schedulers and API servers that answer oddly; the usual case is tested live."""

from __future__ import annotations

import json
import shlex
import socket
import ssl
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml
from aiohttp import web
from certificates import Authority
from port_forwarding import forwarded, reset, served

from builders import machines, snapshot, task
from flowsched import solve
from flowsched.inspector.record_view import RecordView
from flowsched.records.record_file import record_json
from flowsched_k8s.names import PLACEMENT
from flowsched_k8s.records import live_record
from flowsched_k8s.records.live_record import fetch
from flowsched_models.document import InputError

LEASE = "/apis/coordination.k8s.io/v1/namespaces/flowsched-system/leases/flowsched"
RESET = b"reset"
FORWARD = "/api/v1/namespaces/flowsched-system/pods/flowsched-0/portforward"
RECORDS = "/debug/records"
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
    """An API server and, behind a forwarded port, the leader. Both answer by path, whatever the query."""

    def __init__(self) -> None:
        self.answers: dict[str, Answer] = {
            LEASE: (200, json.dumps({"spec": {"holderIdentity": "flowsched-0_7_ab"}}).encode()),
            FORWARD: (101, b""),
            f"{RECORDS}/latest": (200, decided()),
            f"{RECORDS}/1": (200, decided()),
            "/api/v1/namespaces/default/pods/placed": pod("placed", nodeName="node-b"),
            "/api/v1/namespaces/default/pods/large": pod("large"),
            "/api/v1/namespaces/default/pods/new": pod("new"),
        }
        self.asked: list[str] = []
        self.shown: set[str] = set()
        """What clients of the API server have shown: their tokens, or the names in their certificates."""
        self.leader = 0
        """The port that the leader really listens on."""
        self.kubeconfig = Path()

    async def answer(self, request: web.Request) -> web.StreamResponse:
        """Of the API server."""
        self.shown.add(request.headers.get("Authorization") or common_name(request))
        status, body = self.answered(request)
        if status == 101 and body == RESET:
            return await reset(request, int(request.query["ports"]))
        if status == 101:
            return await forwarded(request, int(request.query["ports"]), self.leader)
        return web.Response(status=status, body=body)

    async def answer_of_leader(self, request: web.Request) -> web.StreamResponse:
        assert request.headers["Host"] == "localhost:8444"
        status, body = self.answered(request)
        return web.Response(status=status, body=body)

    def answered(self, request: web.Request) -> Answer:
        self.asked.append(request.path)
        return self.answers.get(request.path, refusal(404, "NotFound", f"{request.path} not found"))

    def write_kubeconfig(self, server: str, user: dict[str, Any], cluster: dict[str, Any]) -> None:
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "c",
            "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u", "namespace": "default"}}],
            "clusters": [{"name": "c", "cluster": {"server": server, **cluster}}],
            "users": [{"name": "u", "user": user}],
        }
        self.kubeconfig.write_text(yaml.safe_dump(config), encoding="utf-8")


def common_name(request: web.Request) -> str:
    assert request.transport is not None
    certificate = request.transport.get_extra_info("peercert")
    return str(dict(part[0] for part in certificate["subject"])["commonName"])


@pytest.fixture
def api(tmp_path: Path) -> Iterator[Api]:
    made = Api()
    apps = web.Application(), web.Application()
    for app, answer in zip(apps, (made.answer, made.answer_of_leader), strict=True):
        app.router.add_get("/{path:.*}", answer)
    made.kubeconfig = tmp_path / "kubeconfig"
    with served(apps[0]) as port, served(apps[1]) as made.leader:
        made.write_kubeconfig(f"http://127.0.0.1:{port}", {"token": "secret"}, {})
        yield made


def said(api: Api, target: str | None) -> str:
    with pytest.raises(InputError) as caught:
        fetch(target, api.kubeconfig)
    (problem,) = caught.value.problems
    assert "\n" not in str(problem)
    return str(problem)


@pytest.mark.parametrize("target", ["pod/default/placed", "pod/default/large", "default/large", "pod/large", "large"])
def test_a_leader_that_gives_json(api: Api, target: str) -> None:
    live = fetch(target, api.kubeconfig)
    assert live.source == "scheduler flowsched-system/flowsched-0, round 1"
    assert live.task == f"uid-default-{target.rpartition('/')[2]}"
    recorded = RecordView(live.record, live.source)
    assert recorded.plain["apiVersion"] == "flowsched/v5"
    assert [[p.task for p in part.placements] for part in recorded.parts] == [["uid-default-placed"]]
    assert api.shown == {"Bearer secret"}


def test_a_record_of_many_megabytes_comes_whole(api: Api) -> None:
    plain = json.loads(decided())
    api.answers[f"{RECORDS}/latest"] = (200, json.dumps({**plain, "zeros": "0" * 20_000_000}).encode())
    assert len(fetch(None, api.kubeconfig).record["zeros"]) == 20_000_000


def test_a_record_of_a_leader_of_another_version_is_refused(api: Api) -> None:
    for version in ("flowsched/v4", "flowsched/v6"):
        old = json.dumps({**json.loads(decided()), "apiVersion": version}).encode()
        api.answers[f"{RECORDS}/latest"] = (200, old)
        told = said(api, None)
        assert f"is a record of version {version}, which flowsched " in told
        assert "wrote and reads; this flowsched reads only flowsched/v5" in told


def test_a_pod_that_no_kept_record_knows(api: Api) -> None:
    text = "pod default/new: no round has decided on it yet, or none that is kept; records."
    assert said(api, "new").startswith(text)
    api.answers[f"{RECORDS}/latest"] = (404, b"no round that decided on pod 'default/new' is kept\n")
    assert said(api, "new").startswith(text)


def test_another_leader_that_counts_anew(api: Api) -> None:
    """Its round 1 is not the one in which the pod was placed."""
    api.answers[f"{RECORDS}/1"] = (200, empty(1))
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
        (lambda a: a.update({f"{RECORDS}/latest": (200, b"<html>")}), "is neither JSON nor an archive"),
        (lambda a: a.update({f"{RECORDS}/latest": (200, b"PK\x03")}), "is damaged or truncated"),
        (
            lambda a: a.update({f"{RECORDS}/latest": (200, b'{"kind":"Record","apiVersion":"flowsched/v9"}')}),
            "is a record of version flowsched/v9; this flowsched reads",
        ),
        (
            lambda a: a.update({f"{RECORDS}/latest": (404, b"there is no record")}),
            "has decided no round yet",
        ),
        (
            lambda a: a.update({f"{RECORDS}/latest": (500, b"the answer failed\n")}),
            "answers with status 500: the answer",
        ),
        (
            lambda a: a.update({FORWARD: refusal(400, "BadRequest", "pod does not have a host assigned")}),
            "the API server does not reach it: 400 BadRequest: pod does not have a host assigned",
        ),
        (
            lambda a: a.update({FORWARD: refusal(502, "BadGateway", "error dialing backend: refused")}),
            "it does not answer on port 8444: error dialing backend: refused; server.loopback in its configuration",
        ),
        (
            lambda a: a.update(
                {FORWARD: refusal(403, "Forbidden", 'User "u" cannot create resource "pods/portforward" in API')}
            ),
            "may not create pods/portforward there: it needs a Role with this verb; k8s/examples/explain-role.yaml",
        ),
        (lambda a: a.pop(FORWARD), "its holder flowsched-0 is no pod there"),
    ],
)
def test_what_is_wrong_is_one_sentence(api: Api, change: Callable[[dict[str, Answer]], None], expected: str) -> None:
    change(api.answers)
    assert expected in said(api, None)


def test_a_port_on_which_nothing_answers(api: Api) -> None:
    with socket.socket() as taken:  # and kept, so that nothing else comes to listen there
        taken.bind(("127.0.0.1", 0))
        api.leader = taken.getsockname()[1]
        told = said(api, None)
    assert "it does not answer on port 8444: error forwarding port 8444 to pod: Connect call failed" in told


@pytest.mark.filterwarnings("error")
def test_a_connection_that_is_reset_is_told_at_once(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not after the longest wait, and not by the traceback of a thread that died of it."""
    monkeypatch.setattr(live_record, "TIMEOUT_S", 30.0)
    api.answers[FORWARD] = 101, RESET
    assert "it does not answer on port 8444: Remote end closed connection without response" in said(api, None)


@pytest.mark.parametrize("way", ["token", "plug-in", "plug-in with a certificate", "certificate"])
def test_each_way_to_prove_who_asks_reaches_the_port(api: Api, tmp_path: Path, way: str) -> None:
    authority = Authority(tmp_path)
    server = authority.issue("127.0.0.1")
    shown = authority.issue("ann")
    app = web.Application()
    app.router.add_get("/{path:.*}", api.answer)
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=str(authority.file))
    tls.load_cert_chain(*server)
    tls.verify_mode = ssl.CERT_OPTIONAL
    certificate, key = map(str, shown)
    status = {
        "plug-in": {"token": "from-the-plug-in"},
        "plug-in with a certificate": {
            "clientCertificateData": shown[0].read_text(),
            "clientKeyData": shown[1].read_text(),
        },
    }
    user: dict[str, Any] = {"token": "secret"}
    if way == "certificate":
        user = {"client-certificate": certificate, "client-key": key}
    elif way in status:
        credential = {"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential", "status": status[way]}
        given = tmp_path / "credential.json"
        given.write_text(json.dumps(credential))
        user = {
            "exec": {
                "apiVersion": "client.authentication.k8s.io/v1",
                "command": "sh",
                "args": ["-c", f"cat {shlex.quote(str(given))}"],
                "interactiveMode": "Never",
            }
        }
    with served(app, tls=tls) as port:
        api.write_kubeconfig(f"https://127.0.0.1:{port}", user, {"certificate-authority": str(authority.file)})
        assert fetch("large", api.kubeconfig).task == "uid-default-large"
    bearers = {"token": {"Bearer secret"}, "plug-in": {"Bearer from-the-plug-in"}}
    assert api.shown == bearers.get(way, {"ann"})
    assert api.asked[-2:] == [FORWARD, f"{RECORDS}/latest"]
