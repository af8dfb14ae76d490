"""Metrics and health of the agent, as Prometheus and a kubelet read them."""

from __future__ import annotations

import json
import logging
import ssl
import threading
import time
import urllib.error
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from agent_fakes import FakeCounters, allocation, bench
from prometheus_client.parser import text_string_to_metric_families

from flowsched.cluster.learnt_run_times import NOTHING_LEARNT
from flowsched.node import NodeLearner, TaskGrant
from flowsched.support.address import Address
from flowsched.support.log_lines import JsonFormatter, TextFormatter
from flowsched_agent.configuration import ClusterServer
from flowsched_agent.metrics import FAMILIES, exposition
from flowsched_agent.server import Network, Server
from flowsched_agent.status import Status
from flowsched_k8s.api.access import Access
from flowsched_models.document import InputError


def values(text: bytes) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text.decode())
        for sample in family.samples
    }


def test_every_family_is_there_after_a_tick_with_its_unit() -> None:
    learner = NodeLearner("m", NOTHING_LEARNT.with_end("encode", "m", 2.0))
    b = bench(allocation((0, 1), batch=TaskGrant(False, (2,), 0.5)), learner=learner)
    b.actuator.asked.answer = lambda: FakeCounters(round(b.clock.t * 1000))
    b.ticks(3)
    scraped, _ = exposition(b.agent.status, "1.2")
    found = values(scraped)
    assert {name for name, _ in found} == {f.name for f in FAMILIES}
    assert found["flowsched_agent_service_load_qps", (("service", "mc"),)] == pytest.approx(1000, rel=0.01)
    assert found["flowsched_agent_service_slo_seconds", (("service", "mc"),)] == 0.001
    assert 0 < found["flowsched_agent_service_predicted_p95_seconds", (("service", "mc"),)] < 0.001
    assert found["flowsched_agent_service_cores", (("service", "mc"),)] == 2
    assert found["flowsched_agent_task_state", (("state", "paused"), ("task", "batch"))] == 1
    assert found["flowsched_agent_task_weight_ratio", (("task", "batch"),)] == 0.5
    assert found["flowsched_agent_pauses_total", ()] == 1
    assert found["flowsched_agent_ticks_total", ()] == 3
    assert found["flowsched_agent_acts_total", (("act", "pause"),)] == 1
    assert all(f.name.endswith("_total") == (f.kind == "counter") for f in FAMILIES)


def test_names_of_users_cannot_break_the_text() -> None:
    from flowsched_agent.status import TaskStatus

    name = 'a"b\\c\nd'
    status = Status(0.0, tasks={name: TaskStatus(name, "running", (), 1.0, 0.0, 0)})
    assert values(exposition(status, "1")[0])["flowsched_agent_task_cores", (("task", name),)] == 0


def test_health_follows_the_checks_and_unknown_paths_say_what_there_is() -> None:
    wrong: list[str] = []
    server = Server(
        Address("127.0.0.1", 0),
        lambda: wrong[0] if wrong else None,
        lambda: "no tick yet",
        lambda accept: (b"metrics here\n", "text/plain"),
    )

    def got(path: str, **headers: str) -> tuple[int, str]:
        try:
            asked = urllib.request.Request(f"http://{server.addresses['loopback']}{path}", headers=headers)
            with urllib.request.urlopen(asked, timeout=30) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()

    try:
        assert got("/healthz") == got("/livez?verbose") == (200, "ok\n")
        assert got("/readyz") == (500, "no tick yet\n")
        assert got("/metrics") == (200, "metrics here\n")
        wrong.append("no tick for 60 s")
        assert got("/livez") == (500, "no tick for 60 s\n")
        assert got("/other")[0] == 404 and "/metrics" in got("/other")[1]
        assert got("/metrics", Host="example.com")[0] == 403
        with pytest.raises(InputError, match="cannot listen"):
            Server(server.addresses["loopback"], lambda: None, lambda: None, lambda accept: (b"", ""))
    finally:
        server.close()


class Reviews(BaseHTTPRequestHandler):
    """An API server that knows the token ``may``."""

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))["spec"]
        known = {"authenticated": True, "user": {"username": "prometheus"}} if asked.get("token") == "may" else {}
        status = known if self.path.endswith("/tokenreviews") else {"allowed": asked["user"] == "prometheus"}
        body = json.dumps({"status": status}).encode()
        self.send_response(201)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Say nothing."""


class Credentials:
    cert_file = None

    def auth_settings(self) -> dict[str, dict[str, str]]:
        return {}


@pytest.mark.parametrize("authentication", ["kubernetes", "none"])
def test_on_the_network_of_a_cluster_metrics_need_a_token_and_health_does_not(authentication: str) -> None:
    with ThreadingHTTPServer(("127.0.0.1", 0), Reviews) as api:
        threading.Thread(target=api.serve_forever, args=(0.01,), daemon=True).start()
        access = Access(f"http://127.0.0.1:{api.server_address[1]}", None, None, None, "default", Credentials())
        anywhere = Address("127.0.0.1", 0)
        settings = ClusterServer(health=anywhere, metrics=anywhere, authentication=authentication)
        network = Network(settings, access, time.time)
        server = Server(None, lambda: None, lambda: None, lambda accept: (b"metrics here\n", "text/plain"), network)
        unchecked = ssl.create_default_context()
        unchecked.check_hostname, unchecked.verify_mode = False, ssl.CERT_NONE

        def status(url: str, token: str = "") -> int:
            asked = urllib.request.Request(url, headers={"Authorization": f"Bearer {token}"} if token else {})
            try:
                with urllib.request.urlopen(asked, timeout=30, context=unchecked) as answer:
                    return int(answer.status)
            except urllib.error.HTTPError as error:
                return error.code

        try:
            assert server.addresses.keys() == {"health", "metrics"}
            health, metrics = (f"{s}://{server.addresses[n]}" for s, n in (("http", "health"), ("https", "metrics")))
            assert [status(f"{health}/{path}") for path in ("livez", "readyz", "metrics")] == [200, 200, 404]
            found = [status(f"{metrics}/metrics", token) for token in ("may", "other", "")]
            assert found == ([200, 401, 401] if authentication == "kubernetes" else [200, 200, 200])
            assert status(f"{metrics}/livez", "may") == 404
        finally:
            server.close()
            api.shutdown()


def test_logs_are_one_line_each_in_both_forms(tmp_path: Path) -> None:
    record = logging.LogRecord("flowsched_agent.x", logging.INFO, "", 0, "a\nb %s", ("c",), None)
    record.target, record.pid = "the task", 5
    text = TextFormatter().format(record)
    assert "\n" not in text and text.endswith('INFO flowsched_agent.x: a\\nb c target="the task" pid=5')
    line = json.loads(JsonFormatter().format(record))
    assert (line["msg"], line["target"], line["pid"], line["level"]) == ("a\nb c", "the task", 5, "info")
