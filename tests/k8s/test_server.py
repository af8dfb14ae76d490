from __future__ import annotations

import asyncio
import gzip
import json
import socket
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, TypeVar

import aiohttp
import pytest

from flowsched.cluster.settings import Settings
from flowsched.records.record import record_head
from flowsched.records.record_file import read_record
from flowsched_k8s.api.login import Login, Refusal
from flowsched_k8s.configuration.configuration import Address, Configuration, ServerSettings
from flowsched_k8s.http.server import Answers, Server, everything, health_only, metrics_only
from flowsched_k8s.metrics.metrics import Metrics
from flowsched_k8s.records.records import Records
from flowsched_k8s.records.state_dump import MOST
from flowsched_models.document import InputError

T = TypeVar("T")
HOST = "127.0.0.1"
LISTENERS = ("health", "metrics", "loopback")


class Wrong:
    """What the checks say, changeable."""

    def __init__(self) -> None:
        self.loop: str | None = None
        self.ready: str | None = None
        self.paused: str | None = None

    def broken(self) -> str | None:
        raise RuntimeError("secret detail")


@dataclass
class Setup:
    wrong: Wrong
    records: Records
    answers: Answers


async def told_state(pod: str | None, limit: int) -> bytes:
    return json.dumps({"queue": {"active": [("ns", "pod")]}, "round": 12, "pod": pod, "limit": limit}).encode()


@pytest.fixture
def setup() -> Setup:
    wrong = Wrong()
    records = Records(keep=3)
    answers = Answers(
        live={"ping": lambda: None, "loop": lambda: wrong.loop},
        ready={"caches": lambda: wrong.ready},
        notes={"rounds": lambda: wrong.paused},
        metrics=Metrics("1").exposition,
        configuration=Configuration().plain,
        state=told_state,
        records=records,
    )
    return Setup(wrong, records, answers)


def plain(number: int) -> dict[str, Any]:
    """A sound record without parts."""
    return {**record_head(number, 0.0, "flow", "ortools", Settings()), "parts": []}


def keep(setup: Setup, number: int, pod: str, **more: Any) -> None:
    record = {**plain(number), **more}
    setup.records.add(str(number), 1_700_000_000.0 + number, lambda: record, pods=frozenset({pod}))


@dataclass
class Got:
    status: int
    text: str
    headers: dict[str, str]
    raw: bytes


def get(setup: Setup, path: str, *, method: str = "GET", which: str = "loopback", **headers: str) -> Got:
    async def ask(session: aiohttp.ClientSession, base: str) -> Got:
        async with session.request(method, base + path, headers=headers, ssl=False) as answer:
            raw = await answer.read()
            content = gzip.decompress(raw) if answer.headers.get("Content-Encoding") == "gzip" else raw
            text = "" if answer.content_type == "application/zip" else content.decode()
            return Got(answer.status, text, dict(answer.headers), raw)

    return served(setup, ask, which)


def served(
    setup: Setup,
    ask: Callable[[aiohttp.ClientSession, str], Awaitable[T]],
    which: str = "loopback",
    login: Login | None = None,
) -> T:
    async def run() -> T:
        settings = ServerSettings(**dict.fromkeys(LISTENERS, Address(HOST, 0)))
        server = Server(setup.answers, settings, login, time.time)
        bound = await server.start()
        try:
            async with aiohttp.ClientSession(auto_decompress=False) as session:
                scheme = "https" if which == "metrics" else "http"
                return await ask(session, f"{scheme}://{getattr(bound, which)}")
        finally:
            await server.stop()

    return asyncio.run(run())


@pytest.mark.parametrize("which", ["loopback", "health"])
@pytest.mark.parametrize("path", ["/livez", "/healthz", "/readyz"])
def test_what_is_well_says_ok(setup: Setup, path: str, which: str) -> None:
    got = get(setup, path, which=which)
    assert (got.status, got.text) == (200, "ok")


def test_verbose_lists_the_checks(setup: Setup) -> None:
    assert get(setup, "/livez?verbose").text == "[+]ping ok\n[+]loop ok\nlivez check passed\n"


def test_a_pause_of_rounds_is_noted_and_makes_no_replica_unready(setup: Setup) -> None:
    assert get(setup, "/readyz?verbose").text == "[+]caches ok\n[+]rounds ok\nreadyz check passed\n"
    setup.wrong.paused = "pods cannot be followed (for 30 s)"
    got = get(setup, "/readyz?verbose")
    assert (got.status, get(setup, "/readyz").text) == (200, "ok\n[!]rounds: pods cannot be followed (for 30 s)\n")
    assert got.text == "[+]caches ok\n[!]rounds: pods cannot be followed (for 30 s)\nreadyz check passed\n"
    setup.wrong.ready = "pods are not listed yet"
    assert "[!]rounds: pods cannot be followed" in get(setup, "/readyz").text


def test_a_failed_check_is_named_without_being_asked(setup: Setup) -> None:
    setup.wrong.loop = "no tick for 31 s"
    for path in ("/livez", "/healthz"):
        got = get(setup, path)
        assert got.status == 500
        assert "[+]ping ok\n[-]loop failed: no tick for 31 s\n" in got.text
    assert get(setup, "/readyz").status == 200, "alive and ready are two things"
    assert get(setup, "/livez?exclude=loop").status == 200
    setup.wrong.ready = "pods are not listed yet"
    assert get(setup, "/readyz").status == 500


def test_a_check_that_breaks_is_a_failed_check(setup: Setup) -> None:
    answers = Answers(**{**vars(setup.answers), "live": {"odd": setup.wrong.broken}})
    got = get(Setup(setup.wrong, setup.records, answers), "/livez")
    assert got.status == 500
    assert "[-]odd failed: the check itself failed (RuntimeError)" in got.text
    assert "secret" not in got.text


class Admits(Login):
    """One token."""

    def __init__(self) -> None:
        """It asks no API server."""

    async def refusal(self, authorization: str) -> Refusal | None:
        if not authorization:
            return Refusal(401, "show a token")
        return None if authorization == "Bearer may" else Refusal(403, "x may not")


def test_metrics_on_the_network_are_for_callers_that_are_admitted(setup: Setup) -> None:
    async def ask(session: aiohttp.ClientSession, base: str) -> None:
        plain = {"Accept-Encoding": "identity"}
        for header, status in (({}, 401), ({"Authorization": "Bearer x"}, 403), ({"Authorization": "Bearer may"}, 200)):
            async with session.get(f"{base}/metrics", headers={**plain, **header}, ssl=False) as answer:
                text = await answer.text()
                assert answer.status == status
                assert ("scheduler_pending_pods" in text) == (status == 200)
                assert answer.headers.get("WWW-Authenticate") == ("Bearer" if status == 401 else None)
        without_tls = base.replace("https", "http")
        with pytest.raises(aiohttp.ClientError):
            await session.get(f"{without_tls}/metrics", headers={"Authorization": "Bearer may"})

    served(setup, ask, "metrics", Admits())


def test_metrics_in_the_form_that_is_asked_for(setup: Setup) -> None:
    got = get(setup, "/metrics")
    assert got.headers["Content-Type"].startswith("text/plain; version=")
    assert "scheduler_pending_pods" in got.text
    asked = get(setup, "/metrics", Accept="application/openmetrics-text;version=1.0.0")
    assert asked.headers["Content-Type"].startswith("application/openmetrics-text")


def test_configuration_and_state_are_json(setup: Setup) -> None:
    assert json.loads(get(setup, "/configz").text)["kind"] == "FlowSchedulerConfiguration"
    state = json.loads(get(setup, "/debug/state").text)
    assert state["queue"]["active"] == [["ns", "pod"]]
    assert (state["pod"], state["limit"]) == (None, MOST)
    some = json.loads(get(setup, "/debug/state?pod=ns/a&limit=3").text)
    assert (some["pod"], some["limit"]) == ("ns/a", 3)


@pytest.mark.parametrize("limit", ["0", "-1", "x", str(MOST + 1), "9" * 5000, "", "²"])
def test_a_limit_that_is_none(setup: Setup, limit: str) -> None:
    got = get(setup, f"/debug/state?limit={limit}")
    assert got.status == 400
    assert got.text.startswith(f"limit must be from 1 to {MOST}, but is '")
    assert len(got.text) < 300


def test_records_are_listed_and_served(setup: Setup) -> None:
    for number in range(5):
        keep(setup, number, f"ns/p-{number}")
    listed = json.loads(get(setup, "/debug/records").text)["records"]
    assert [r["round"] for r in listed] == ["4", "3", "2"]
    assert (listed[0]["at"], listed[0]["pods"]) == ("2023-11-14T22:13:24.000000Z", 1)
    assert json.loads(get(setup, "/debug/records/3").text) == plain(3)
    assert json.loads(get(setup, "/debug/records/latest").text) == plain(4)
    assert get(setup, "/debug/records/3").headers["Content-Type"] == "application/json"


@pytest.mark.parametrize("accept", ["application/zip", "text/html, application/zip;q=0.9, */*;q=0.1"])
def test_a_record_as_an_archive(setup: Setup, accept: str) -> None:
    keep(setup, 7, "ns/p", zeros=[0] * 5000)
    for got in (
        get(setup, "/debug/records/7?format=npz", **{"Accept-Encoding": "gzip"}),
        get(setup, "/debug/records/latest", Accept=accept),
        get(setup, "/debug/records/latest?format=npz", Accept="application/json"),
    ):
        assert got.status == 200
        assert got.headers["Content-Type"] == "application/zip"
        assert got.headers["Content-Disposition"] == 'attachment; filename="round-7.npz"'
        assert "Content-Encoding" not in got.headers
        assert read_record(got.raw, "it") == {**plain(7), "zeros": [0] * 5000}
    assert json.loads(get(setup, "/debug/records/7?format=json", Accept=accept).text)["round"] == 7
    odd = get(setup, "/debug/records/7?format=<xml>")
    assert (odd.status, odd.text) == (400, "there is no format '%3Cxml%3E'; there are: json, npz\n")


def test_the_record_that_a_pod_is_in(setup: Setup) -> None:
    for number in range(3):
        keep(setup, number, "ns/p" if number == 1 else f"ns/p-{number}")
    assert json.loads(get(setup, "/debug/records/latest?pod=ns/p").text)["round"] == 1
    assert json.loads(get(setup, "/debug/records/latest?pod=ns%2Fp").text)["round"] == 1
    assert json.loads(get(setup, "/debug/records/1?pod=ns/p").text)["round"] == 1
    missing = get(setup, "/debug/records/latest?pod=ns/<p>")
    assert (missing.status, missing.text) == (
        404, "no round that decided on pod 'ns/%3Cp%3E' is kept; see /debug/records\n"
    )  # fmt: skip
    other = get(setup, "/debug/records/2?pod=ns/p")
    assert other.status == 404
    assert other.text == "no record is kept of a round '2' that decided on pod 'ns/p'; see /debug/records\n"


@pytest.mark.parametrize("name", ["r-0", "latest", "..", "%2e%2e%2fetc", "<script>"])
def test_a_record_that_is_not_kept(setup: Setup, name: str) -> None:
    got = get(setup, f"/debug/records/{name}")
    assert got.status == 404
    assert "<" not in got.text


def test_large_answers_are_compressed_for_those_who_can(setup: Setup) -> None:
    keep(setup, 5, "ns/p", zeros=[0] * 5000)
    packed = get(setup, "/debug/records/5", **{"Accept-Encoding": "deflate, gzip;q=0.5"})
    assert packed.headers["Content-Encoding"] == "gzip"
    assert len(packed.raw) < 2000
    assert len(json.loads(packed.text)["zeros"]) == 5000
    for refuses in ("identity", "gzip;q=0", "gzip; q=0.00"):
        whole = get(setup, "/debug/records/5", **{"Accept-Encoding": refuses})
        assert "Content-Encoding" not in whole.headers
        assert whole.text == packed.text


def test_an_unknown_path_lists_those_there_are(setup: Setup) -> None:
    got = get(setup, "/debug/pprof/<b>")
    assert got.status == 404
    assert "<b>" not in got.text
    for path in (
        "/livez",
        "/readyz",
        "/metrics",
        "/configz",
        "/debug/state",
        "/debug/records",
        "/debug/records/{round}",
    ):
        assert f"\n{path}\n" in got.text


@pytest.mark.parametrize(("which", "paths"), [("health", {"/livez", "/readyz", "/healthz"}), ("metrics", {"/metrics"})])
def test_the_network_gets_nothing_else(setup: Setup, which: str, paths: set[str]) -> None:
    every = {"/livez", "/readyz", "/healthz", "/metrics", "/configz", "/debug/state", "/debug/records"}
    assert {path for path in every if get(setup, path, which=which).status != 404} == paths


@pytest.mark.parametrize(
    "host", ["localhost", "LocalHost:80", "127.0.0.1", "127.0.0.1:8444", "127.1.2.3", "[::1]", "[::1]:8444"]
)
def test_loopback_answers_requests_to_loopback(setup: Setup, host: str) -> None:
    assert get(setup, "/configz", Host=host).status == 200


@pytest.mark.parametrize(
    "host",
    [
        *("example.com", "localhost.example.com:8444", "127.0.0.1.example.com", "10.0.0.1", "0.0.0.0", "[::]"),
        *("[fe80::1]:8444", "", "localhost:", "127.0.0.1:8444@example.com", "user@localhost", "localhost, localhost"),
    ],
)
@pytest.mark.parametrize("path", ["/livez", "/metrics", "/configz", "/debug/state", "/nothing"])
def test_a_name_that_points_to_loopback_is_refused(setup: Setup, host: str, path: str) -> None:
    """Of a page in a browser: rebinding."""
    got = get(setup, path, Host=host)
    assert (got.status, got.text[:57]) == (
        403,
        "only requests to localhost are answered here, not to '" + got.text[54:57],
    )


def test_other_addresses_answer_whatever_the_name(setup: Setup) -> None:
    for which, path in (("health", "/livez"), ("metrics", "/metrics")):
        assert get(setup, path, which=which, Host="flowsched-metrics.flowsched-system.svc").status == 200


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH"])
@pytest.mark.parametrize("path", ["/livez", "/debug/state", "/nothing"])
def test_nothing_can_be_changed(setup: Setup, method: str, path: str) -> None:
    got = get(setup, path, method=method)
    assert got.status == 405
    assert got.headers["Allow"] == "GET"


def test_a_fault_is_an_answer_and_a_log_line(setup: Setup, caplog: pytest.LogCaptureFixture) -> None:
    def broken(_pod: str | None, _limit: int) -> object:
        raise RuntimeError("inner detail")

    answers = Answers(**{**vars(setup.answers), "state": broken})
    got = get(Setup(setup.wrong, setup.records, answers), "/debug/state")
    assert (got.status, got.text) == (500, "the answer failed; the log says why\n")
    assert "inner detail" in caplog.text


def test_a_taken_port_is_a_sentence_and_leaves_nothing_open(setup: Setup) -> None:
    async def run(port: int) -> str:
        taken = ServerSettings(health=Address(HOST, 0), metrics=Address(HOST, port), loopback=Address(HOST, 0))
        server = Server(setup.answers, taken, None, time.time)
        with pytest.raises(InputError) as caught:
            await server.start()
        return str(caught.value)

    with socket.create_server((HOST, 0)) as taken:
        port = taken.getsockname()[1]
        text = asyncio.run(run(port))
    assert f"server.metrics: cannot listen on {HOST}:{port}: " in text


def test_the_paths_of_the_listeners_are_what_the_contract_names(setup: Setup) -> None:
    health = {r.resource.canonical for r in health_only(setup.answers).router.routes() if r.resource}
    every = {r.resource.canonical for r in everything(setup.answers).router.routes() if r.resource}
    metrics = {r.resource.canonical for r in metrics_only(setup.answers, None).router.routes() if r.resource}
    assert (health, metrics) == ({"/livez", "/readyz", "/healthz"}, {"/metrics"})
    assert every > health | metrics
