"""The agent against a small API server: list, watch, broken watches, refused and lost reports."""

from __future__ import annotations

import copy
import json
import logging
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from test_agent_pods import POD, status

from flowsched_agent.configuration import Configuration, Kubernetes
from flowsched_agent.kubernetes.cluster import Cluster
from flowsched_k8s import names
from flowsched_k8s.api.access import IN_CLUSTER, Access
from flowsched_models.document import InputError

NODE = "node-1"
FORGOTTEN = {"type": "ERROR", "object": {"code": 410}}
WITHIN_S = 30.0
"""Only ends a test that has failed anyway."""


def wait_for(predicate: Callable[[], object], what: str) -> None:
    until = time.monotonic() + WITHIN_S
    while not predicate():
        assert time.monotonic() < until, f"waited in vain for {what}"
        time.sleep(0.01)


class Token:
    """What the official client knows of who we are."""

    def auth_settings(self) -> dict[str, dict[str, str]]:
        return {"BearerToken": {"value": "Bearer abc"}}


def access_to(port: int) -> Access:
    return Access(f"http://127.0.0.1:{port}", None, None, None, "default", Token())


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
        self.paths: list[str] = []
        self.cut = threading.Event()
        """Ends the watch that is under way, and its position is forgotten."""
        api = self

        class Answer(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                parts = urlsplit(self.path)
                query = parse_qs(parts.query)
                api.paths.append(parts.path)
                api.queries.append({**query, "authorization": [self.headers["Authorization"]]})
                if "watch" in query:
                    self._watch()
                else:
                    api.lists += 1
                    answer = {"metadata": {"resourceVersion": "7"}, "items": api.pods}
                    self._say(api.refuse.get(parts.path, 200), answer)

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
                self.wfile.write(json.dumps(FORGOTTEN).encode() + b"\n")

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
        self.access = access_to(self.server.server_address[1])

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


def cluster_of(access: Access, dry_run: bool = False) -> Cluster:
    settings = Kubernetes(enabled=True, node_name=NODE, report_s=0.001, report_change=0.1)
    return Cluster(Configuration(kubernetes=settings, dry_run=dry_run), None, access)  # type: ignore[arg-type]


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]


@pytest.fixture
def cluster(api: Api) -> Iterator[Cluster]:
    made = cluster_of(api.access)
    made.start()
    yield made
    made.stop()


def named(name: str) -> dict[str, Any]:
    made = copy.deepcopy(POD)
    made["metadata"] |= {"name": name, "uid": f"uid-{name}"}
    return made


def test_pods_are_listed_and_followed(api: Api, cluster: Cluster) -> None:
    api.pods.append(named("a"))
    wait_for(api.listed_anew(lambda: set(cluster.present()) == {"shop/a"}), "the listed pod")
    api.events.append({"type": "ADDED", "object": named("b")})
    wait_for(lambda: set(cluster.present()) == {"shop/a", "shop/b"}, "the added pod")
    api.events.append({"type": "DELETED", "object": named("a")})
    wait_for(lambda: set(cluster.present()) == {"shop/b"}, "the deleted pod to go")
    assert all(q["fieldSelector"] == [f"spec.nodeName={NODE}"] for q in api.queries)
    assert all(q["authorization"] == ["Bearer abc"] for q in api.queries)


def test_only_named_namespaces_are_asked_for(api: Api) -> None:
    settings = Kubernetes(enabled=True, node_name=NODE, namespaces=("shop", "lab"))
    made = Cluster(Configuration(kubernetes=settings), None, api.access)  # type: ignore[arg-type]
    made.start()
    api.pods.append(named("a"))
    paths = {f"/api/v1/namespaces/{name}/pods" for name in settings.namespaces}
    wait_for(api.listed_anew(lambda: paths <= set(api.paths) and set(made.present()) == {"shop/a"}), "both lists")
    made.stop()
    assert set(api.paths) == paths


def test_a_forgotten_position_and_nonsense_lead_to_another_list(
    api: Api, cluster: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    wait_for(lambda: api.lists, "the first list")
    api.pods.append(named("a"))
    api.events.append(FORGOTTEN)
    wait_for(lambda: "shop/a" in cluster.present(), "another list")
    api.events[:] = [{"type": "ADDED", "object": {"metadata": None}}]
    wait_for(api.listed_anew(lambda: warnings(caplog)), "the nonsense to be said")
    lists = api.lists
    api.events.clear()
    wait_for(lambda: api.lists > lists, "another list")
    assert "shop/a" in cluster.present()


@pytest.mark.parametrize("code", [403, 404, 500])
def test_a_server_that_refuses_takes_no_pod_away(
    code: int, api: Api, cluster: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    """The machine is steered on, whatever the API server says."""
    api.pods.append(named("a"))
    wait_for(api.listed_anew(lambda: "shop/a" in cluster.present()), "the pod")
    api.refuse["/api/v1/pods"] = code
    caplog.clear()
    caplog.set_level(logging.INFO)
    wait_for(api.listed_anew(lambda: any(f"{code}" in r.getMessage() for r in caplog.records)), "the refusal")
    assert set(cluster.present()) == {"shop/a"}


def test_a_pod_beyond_all_understanding_takes_none_away(
    api: Api, cluster: Cluster, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("flowsched_agent.kubernetes.cluster.AGAIN_S", 0.01)
    api.pods.append(named("a"))
    wait_for(api.listed_anew(lambda: "shop/a" in cluster.present()), "the pod")
    strange = named("b")
    strange["status"]["containerStatuses"] = ["not an object"]
    api.events.append({"type": "ADDED", "object": strange})
    wait_for(lambda: any("not known freshly" in text for text in warnings(caplog)), "the warning")
    assert set(cluster.present()) == {"shop/a"}
    api.events.append({"type": "DELETED", "object": strange})
    api.events.append({"type": "ADDED", "object": named("c")})
    wait_for(lambda: set(cluster.present()) == {"shop/a", "shop/c"}, "what came later")


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


def test_a_report_that_was_refused_is_made_again_with_all_that_it_said(
    api: Api, cluster: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    api.refuse["/api/v1/nodes/"] = 403
    cluster.report(status(1.0, 30_000.0))
    wait_for(lambda: warnings(caplog), "the refusal")
    assert warnings(caplog)[0].startswith("a report was not written: 403")
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
def test_a_pod_that_is_gone_or_another_by_now_is_no_failure(
    code: int, api: Api, cluster: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    api.pods.append(named("mc-0"))
    wait_for(api.listed_anew(lambda: "shop/mc-0" in cluster.present()), "the pod")
    api.refuse["/api/v1/namespaces/"] = code
    cluster.report(status(1.0, 30_000.0))
    wait_for(lambda: len(api.patches) == 1, "the node's report")
    # Once it is written that it is paused, what was asked of the pod before that was answered, too.
    cluster.report(status(2.0, 30_000.0, paused=1))
    wait_for(lambda: len(api.patches) == 2, "the node's next report")
    assert not [text for text in warnings(caplog) if "report" in text]


def test_a_dry_run_writes_nothing(api: Api) -> None:
    cluster = cluster_of(api.access, dry_run=True)
    cluster.start()
    cluster.report(status(1.0, 30_000.0))
    wait_for(lambda: cluster._reporter.due(status(9.0, 30_000.0), {}) is None, "the report to be looked at")
    cluster.stop()
    assert api.patches == []


def test_a_server_that_is_away_is_said_so(caplog: pytest.LogCaptureFixture) -> None:
    cluster = cluster_of(access_to(1))
    cluster.start()
    wait_for(lambda: any("does not answer" in text for text in warnings(caplog)), "the warning")
    cluster.stop()


def test_without_a_service_account_it_is_said_what_is_missing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "config").write_text("a kubeconfig that happens to be there is not used")
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "config"))
    monkeypatch.delenv(IN_CLUSTER, raising=False)
    configuration = Configuration(kubernetes=Kubernetes(enabled=True, node_name=NODE))
    with pytest.raises(InputError, match="there is no cluster around the agent"):
        Cluster(configuration, None)  # type: ignore[arg-type]
    monkeypatch.setenv(IN_CLUSTER, "10.0.0.1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "443")
    with pytest.raises(
        InputError, match="the cluster cannot be reached from within: Service token file does not exist"
    ):
        Cluster(configuration, None)  # type: ignore[arg-type]


def test_a_node_without_a_name_is_refused(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NODE_NAME", raising=False)
    configuration = Configuration(kubernetes=Kubernetes(enabled=True))
    with pytest.raises(InputError, match="nodeName"):
        Cluster(configuration, None, api.access)  # type: ignore[arg-type]
    monkeypatch.setenv("NODE_NAME", "from-the-pod")
    assert Cluster(configuration, None, api.access).node == "from-the-pod"  # type: ignore[arg-type]
