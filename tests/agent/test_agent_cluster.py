"""The two threads of the agent against a small API server: list, watch, broken watches, refused and lost reports."""

from __future__ import annotations

import copy
import json
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from test_agent_pods import POD, status

from flowsched_agent import names
from flowsched_agent.configuration import Configuration, Kubernetes
from flowsched_agent.kubernetes.access import Access, find_access
from flowsched_agent.kubernetes.client import ApiError, Client
from flowsched_agent.kubernetes.cluster import Cluster
from flowsched_models.document import InputError

NODE = "node-1"
WITHIN_S = 30.0
"""Only ends a test that has failed anyway."""


def wait_for(predicate: Callable[[], object], what: str) -> None:
    until = time.monotonic() + WITHIN_S
    while not predicate():
        assert time.monotonic() < until, f"waited in vain for {what}"
        time.sleep(0.01)


class Api:
    """Pods of one node, a stream of events, and patches as they arrive."""

    def __init__(self) -> None:
        self.pods: list[dict[str, Any]] = []
        self.events: list[dict[str, Any]] = []
        self.patches: list[tuple[str, dict[str, Any]]] = []
        self.lists = 0
        self.queries: list[dict[str, list[str]]] = []
        self.refuse: dict[str, int] = {}
        """Status by the start of a path."""
        self.cut = threading.Event()
        """Ends the watch that is under way."""
        api = self

        class Answer(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                parts = urlsplit(self.path)
                query = parse_qs(parts.query)
                api.queries.append({**query, "authorization": [self.headers["Authorization"]]})
                if "watch" in query:
                    self._watch()
                else:
                    api.lists += 1
                    self._say(200, {"metadata": {"resourceVersion": "7"}, "items": api.pods})

            def do_PATCH(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                code = next((c for start, c in api.refuse.items() if self.path.startswith(start)), 200)
                if code == 200:
                    assert self.headers["Content-Type"] == "application/merge-patch+json"
                    api.patches.append((self.path, body))
                self._say(code, {"message": "no", "status": "x"})

            def _watch(self) -> None:
                self.send_response(200)
                self.end_headers()
                self.close_connection = True
                api.cut.clear()
                told = 0
                while not api.cut.is_set():
                    for event in api.events[told:]:
                        self.wfile.write(json.dumps(event).encode() + b"\n")
                        told += 1
                    time.sleep(0.01)

            def _say(self, code: int, body: Any) -> None:
                data = json.dumps(body).encode()
                self.send_response(code)
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, format: str, *arguments: object) -> None:
                pass

        class Quiet(ThreadingHTTPServer):
            daemon_threads = True

            def handle_error(self, request: object, client_address: object) -> None:
                pass

        self.server = Quiet(("127.0.0.1", 0), Answer)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        self.access = Access("127.0.0.1", self.server.server_address[1], None, lambda: "Bearer abc")

    def listed_anew(self, predicate: Callable[[], object]) -> Callable[[], object]:
        """A predicate that ends the watch, whenever it began, until it is true."""

        def ask() -> object:
            self.cut.set()
            return predicate()

        return ask

    def close(self) -> None:
        self.cut.set()
        self.server.shutdown()
        self.server.server_close()


@pytest.fixture
def api() -> Iterator[Api]:
    made = Api()
    yield made
    made.close()


def cluster_of(api: Api, dry_run: bool = False) -> Cluster:
    settings = Kubernetes(enabled=True, node_name=NODE, report_s=0.001, report_change=0.1)
    return Cluster(Configuration(kubernetes=settings, dry_run=dry_run), None, api.access)  # type: ignore[arg-type]


@pytest.fixture
def cluster(api: Api) -> Iterator[Cluster]:
    made = cluster_of(api)
    made.start()
    yield made
    made.stop()


def named(name: str) -> dict[str, Any]:
    made = copy.deepcopy(POD)
    made["metadata"] |= {"name": name, "uid": f"uid-{name}"}
    return made


def test_pods_are_listed_and_followed(api: Api, cluster: Cluster) -> None:
    api.pods.append(named("a"))
    cluster.listed.wait(WITHIN_S)
    wait_for(api.listed_anew(lambda: set(cluster.present()) == {"shop/a"}), "the listed pod")
    api.events.append({"type": "ADDED", "object": named("b")})
    wait_for(lambda: set(cluster.present()) == {"shop/a", "shop/b"}, "the added pod")
    api.events.append({"type": "DELETED", "object": named("a")})
    wait_for(lambda: set(cluster.present()) == {"shop/b"}, "the deleted pod to go")
    assert all(q["fieldSelector"] == [f"spec.nodeName={NODE}"] for q in api.queries)
    assert all(q["authorization"] == ["Bearer abc"] for q in api.queries)


def test_a_forgotten_position_and_nonsense_lead_to_another_list(api: Api, cluster: Cluster) -> None:
    cluster.listed.wait(WITHIN_S)
    api.pods.append(named("a"))
    api.events.append({"type": "ERROR", "object": {"code": 410}})
    wait_for(lambda: "shop/a" in cluster.present(), "another list")
    api.events[:] = [{"type": "ADDED", "object": {"metadata": None}}]
    wait_for(api.listed_anew(lambda: cluster.failures > 0), "the nonsense to be counted")
    lists = api.lists
    api.events.clear()
    wait_for(lambda: api.lists > lists, "another list")
    assert "shop/a" in cluster.present()


def test_reports_reach_the_node_and_the_pod_of_the_service(api: Api, cluster: Cluster) -> None:
    api.pods.append(named("mc-0"))
    wait_for(api.listed_anew(lambda: "shop/mc-0" in cluster.present()), "the pod")
    cluster.report(status(1.0, 30_000.0))
    wait_for(lambda: len(api.patches) == 2, "both patches")
    (node, about_node), (pod, about_pod) = api.patches
    assert node == f"/api/v1/nodes/{NODE}/status"
    assert about_node["metadata"]["annotations"][names.SERVICE_LOAD] == "shop/mc-0=30000"
    assert pod == "/api/v1/namespaces/shop/pods/mc-0/status"
    assert about_pod["metadata"] == {"annotations": {names.LOAD: "30000"}, "uid": "uid-mc-0"}


def test_a_report_that_was_refused_is_made_again_with_all_that_it_said(api: Api, cluster: Cluster) -> None:
    cluster.listed.wait(WITHIN_S)
    api.refuse["/api/v1/nodes/"] = 403
    cluster.report(status(1.0, 30_000.0))
    wait_for(lambda: cluster.failures > 0, "the refusal")
    api.refuse.clear()
    cluster.report(status(2.0, 30_000.0))
    wait_for(lambda: api.patches, "the report")
    assert set(api.patches[0][1]["metadata"]["annotations"]) == {
        names.SERVICE_LOAD,
        names.SERVICE_HEADROOM,
        names.SERVICE_CORES,
        names.BATCH_TASKS,
    }


@pytest.mark.parametrize("code", [404, 409, 422])
def test_a_pod_that_is_gone_or_another_by_now_is_no_failure(code: int, api: Api, cluster: Cluster) -> None:
    api.pods.append(named("mc-0"))
    wait_for(api.listed_anew(lambda: "shop/mc-0" in cluster.present()), "the pod")
    api.refuse["/api/v1/namespaces/"] = code
    cluster.report(status(1.0, 30_000.0))
    cluster.report(status(2.0, 60_000.0))
    wait_for(lambda: len(api.patches) >= 1, "the node's report")
    assert cluster.failures == 0


def test_a_dry_run_writes_nothing(api: Api) -> None:
    cluster = cluster_of(api, dry_run=True)
    cluster.start()
    cluster.report(status(1.0, 30_000.0))
    wait_for(lambda: cluster._reporter.due(status(9.0, 30_000.0), {}) is None, "the report to be looked at")
    cluster.stop()
    assert api.patches == []


def test_a_server_that_is_away_is_said_so() -> None:
    nowhere = Client(Access("127.0.0.1", 1, None, lambda: None), timeout_s=5.0)
    with pytest.raises(ApiError, match="does not answer"):
        nowhere.get("/api/v1/pods")


def test_without_a_service_account_it_is_said_what_is_missing(tmp_path: Path) -> None:
    environment = {"KUBERNETES_SERVICE_HOST": "10.0.0.1", "KUBERNETES_SERVICE_PORT": "443"}
    with pytest.raises(InputError, match="the service account in"):
        find_access(None, environment, tmp_path)
    with pytest.raises(InputError, match="there is no cluster around the agent"):
        find_access(None, {}, tmp_path)


def test_a_node_without_a_name_is_refused(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NODE_NAME", raising=False)
    configuration = Configuration(kubernetes=Kubernetes(enabled=True))
    with pytest.raises(InputError, match="nodeName"):
        Cluster(configuration, None, api.access)  # type: ignore[arg-type]
    monkeypatch.setenv("NODE_NAME", "from-the-pod")
    assert Cluster(configuration, None, api.access).node == "from-the-pod"  # type: ignore[arg-type]
