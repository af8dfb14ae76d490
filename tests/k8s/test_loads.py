from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar

import aiohttp
import pytest
from aiohttp import web
from hypothesis import given
from hypothesis import strategies as st
from plane import free_ports

from flowsched_k8s.instructions import PodKey
from flowsched_k8s.services import loads as loads_module
from flowsched_k8s.services.loads import (
    AnnotationSource,
    Load,
    LoadError,
    Loads,
    PrometheusSource,
    Reading,
    ServicePod,
    filled,
    samples_of,
)
from requirements_on_machine import needs

T = TypeVar("T")
HOST = "127.0.0.1"


def key(name: str, namespace: str = "web") -> PodKey:
    return PodKey(namespace, name, f"uid-{namespace}-{name}")


def pod(name: str, namespace: str = "web", node: str = "n1", annotated: float | None = None) -> ServicePod:
    return ServicePod(key(name, namespace), node, 30_000.0, annotated)


A, B = pod("a"), pod("b", node="n2")


class FakePrometheus:
    """Speaks Prometheus' HTTP API: answers by the text of the query."""

    def __init__(self) -> None:
        self.answers: dict[str, Any] = {}
        self.asked: list[str] = []
        self.delay_s = 0.0
        self.status = 200
        self.raw: bytes | None = None

    def vector(self, query: str, *samples: tuple[Mapping[str, str], str]) -> None:
        """An instant vector, with values as text, as the real one gives them."""
        self.answers[query] = {
            "resultType": "vector",
            "result": [{"metric": dict(labels), "value": [1_700_000_000.123, value]} for labels, value in samples],
        }

    async def handle(self, request: web.Request) -> web.Response:
        text = str((await request.post())["query"])
        self.asked.append(text)
        await asyncio.sleep(self.delay_s)
        if self.raw is not None:
            return web.Response(body=self.raw, status=self.status)
        if text not in self.answers:
            body = {"status": "error", "errorType": "bad_data", "error": 'invalid parameter "query": parse error'}
            return web.json_response(body, status=400)
        return web.json_response({"status": "success", "data": self.answers[text]})


def read(
    fake: FakePrometheus,
    query: str,
    pods: tuple[ServicePod, ...] = (A, B),
    timeout_s: float = 20.0,
) -> Mapping[PodKey, Reading]:
    async def run() -> Mapping[PodKey, Reading]:
        app = web.Application()
        app.router.add_post("/prefix/api/v1/query", fake.handle)
        runner = web.AppRunner(app, shutdown_timeout=0.05)
        await runner.setup()
        site = web.TCPSite(runner, HOST, 0)
        await site.start()
        try:
            url = f"http://{HOST}:{runner.addresses[0][1]}/prefix/"
            async with asking(lambda: pods, url, query, timeout_s) as source:
                return await source.read(100.0)
        finally:
            await runner.cleanup()

    return asyncio.run(run())


@asynccontextmanager
async def asking(*arguments: Any) -> AsyncIterator[PrometheusSource]:
    source = PrometheusSource(*arguments)
    try:
        yield source
    finally:
        await source.close()


def labels(name: str, namespace: str | None = "web", **more: str) -> dict[str, str]:
    return {"pod": name, **({"namespace": namespace} if namespace else {}), **more}


def test_values_are_matched_by_namespace_and_pod() -> None:
    fake = FakePrometheus()
    fake.vector("q", (labels("a"), "1200.5"), (labels("b"), "7"), (labels("a", "other"), "9"), (labels("c"), "9"))
    found = read(fake, "q")
    assert found == {A.key: Reading(1200.5, 100.0), B.key: Reading(7.0, 100.0)}
    assert fake.asked == ["q"], "one query for all pods"


def test_series_of_one_pod_add_up() -> None:
    fake = FakePrometheus()
    fake.vector("q", (labels("a", instance="1"), "10"), (labels("a", instance="2"), "5"))
    assert read(fake, "q")[A.key] == Reading(15.0, 100.0)


def test_without_a_namespace_the_name_must_be_the_only_one() -> None:
    fake = FakePrometheus()
    fake.vector("q", (labels("a", None), "1"), (labels("b", None), "2"))
    assert read(fake, "q", pods=(A, pod("a", "other"), B)).keys() == {B.key}


def test_placeholders_are_asked_once_for_each_text() -> None:
    fake = FakePrometheus()
    fake.vector('sum(q{pod="a",namespace="web"})', ({}, "1"))
    fake.vector('sum(q{pod="b",namespace="web"})', ({}, "2"))
    found = read(fake, 'sum(q{pod="$pod",namespace="$namespace"})')
    assert {k.name: r.qps for k, r in found.items()} == {"a": 1.0, "b": 2.0}
    fake = FakePrometheus()
    fake.vector('q{namespace="web"}', (labels("a"), "3"), (labels("b"), "4"), ({}, "5"))
    found = read(fake, 'q{namespace="$namespace"}')
    assert len(fake.asked) == 1
    assert {k.name: r.qps for k, r in found.items()} == {"a": 3.0, "b": 4.0}, (
        "a value without a service counts for none"
    )


def test_a_scalar_will_do_for_one_pod() -> None:
    fake = FakePrometheus()
    fake.answers["scalar(a)"] = {"resultType": "scalar", "result": [1.0, "12"]}
    assert read(fake, "scalar($pod)", pods=(A,))[A.key].qps == 12


def test_names_cannot_leave_their_string() -> None:
    odd = ServicePod(key("a"), 'n" or vector(1)\\', 1.0)
    assert filled('q{node="$node"}', odd) == 'q{node="n\\" or vector(1)\\\\"}'
    assert filled("$pods $pod$pod $x", A) == "$pods aa $x"


@pytest.mark.parametrize("value", ["NaN", "+Inf", "-Inf", "-1", "", "many"])
def test_what_is_no_load_is_left_out(value: str) -> None:
    fake = FakePrometheus()
    fake.vector("q", (labels("a"), value), (labels("b"), "1"))
    assert read(fake, "q").keys() == {B.key}


def test_no_services_no_question() -> None:
    fake = FakePrometheus()
    assert read(fake, "q", pods=()) == {}
    assert not fake.asked


def failure(fake: FakePrometheus, query: str = "q", **options: Any) -> str:
    with pytest.raises(LoadError) as caught:
        read(fake, query, **options)
    text = str(caught.value)
    assert "\n" not in text
    assert len(text) < 400
    return text


def test_failures_are_one_sentence_each(monkeypatch: pytest.MonkeyPatch) -> None:
    fake = FakePrometheus()
    assert failure(fake) == 'Prometheus answered 400: invalid parameter "query": parse error'
    fake.answers["q"] = {"resultType": "matrix", "result": []}
    assert failure(fake) == "the query gives a matrix, but an instant vector is needed"
    fake.status, fake.raw = 502, b"<html>Bad gateway</html>"
    assert failure(fake) == "Prometheus answered 502 with something that is not JSON"
    fake.raw = json.dumps({"status": "error", "error": "x" * 9999}).encode()
    assert failure(fake).endswith("…")
    monkeypatch.setattr(loads_module, "LARGEST", 1000)
    fake.raw = b" " * 2_000_000
    assert "the answer is larger than" in failure(fake)


def test_a_slow_answer_is_given_up() -> None:
    fake = FakePrometheus()
    fake.delay_s = 60.0
    assert failure(fake, timeout_s=0.05) == "Prometheus did not answer within 0.05 s"


def test_too_many_queries_are_refused() -> None:
    pods = tuple(pod(f"p{i}") for i in range(loads_module.MOST_QUERIES + 1))
    fake = FakePrometheus()
    assert "leave out $pod" in failure(fake, "q$pod", pods=pods)
    assert not fake.asked


def test_a_source_may_be_closed_and_read_again() -> None:
    async def run() -> None:
        async with asking(lambda: [A], f"http://{HOST}:1", "q") as source:
            for _ in range(2):
                with pytest.raises(LoadError):
                    await source.read(0.0)
                await source.close()

    asyncio.run(run())


def test_no_pods_there() -> None:
    async def run(port: int) -> None:
        async with asking(lambda: [A], f"http://{HOST}:{port}", "q") as source:
            await source.read(0.0)

    with socket.socket() as taken:  # and kept, so that nothing else comes to listen there
        taken.bind((HOST, 0))
        with pytest.raises(LoadError, match="Prometheus cannot be reached"):
            asyncio.run(run(taken.getsockname()[1]))


json_values = st.recursive(
    st.none() | st.booleans() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
    max_leaves=12,
)
answers = st.builds(
    lambda kind, result: {"status": "success", "data": {"resultType": kind, "result": result}},
    st.sampled_from(["vector", "scalar"]),
    st.lists(st.fixed_dictionaries({"metric": json_values, "value": json_values}) | json_values, max_size=4),
)


@given(st.binary(max_size=30) | (json_values | answers).map(lambda v: json.dumps(v).encode()))
def test_any_answer_is_values_or_a_sentence(body: bytes) -> None:
    try:
        found = samples_of(200, body)
    except LoadError:
        return
    for given_labels, value in found:
        assert value >= 0
        assert all(isinstance(text, str) for text in given_labels.values())


def test_annotations_are_readings_of_now() -> None:
    said, silent = pod("said", annotated=500.0), pod("silent")
    found = asyncio.run(AnnotationSource(lambda: [said, silent]).read(7.0))
    assert found == {said.key: Reading(500.0, 7.0)}


def test_a_fresh_reading_is_used_and_a_stale_one_is_not() -> None:
    loads = Loads(60.0, measured=True)
    assert loads.load(A.key, 30_000, 0.0) == Load(30_000, stale=False)
    loads.update({A.key: Reading(100.0, 10.0)})
    assert loads.load(A.key, 30_000, 70.0) == Load(100.0, stale=False)
    assert loads.load(A.key, 30_000, 70.1) == Load(30_000, stale=True)
    loads.update({A.key: Reading(5.0, 9.0)})
    assert loads.load(A.key, 30_000, 70.0).qps == 100.0, "an older answer that comes late changes nothing"


def test_stale_nodes_are_counted_once_each() -> None:
    both, waiting = pod("c", node="n1"), pod("d", node="")
    loads = Loads(60.0, measured=True)
    loads.update({A.key: Reading(1.0, 0.0), B.key: Reading(1.0, 50.0), both.key: Reading(1.0, 0.0)})
    pods = [A, B, both, waiting]
    assert loads.stale_nodes(pods, 60.0) == 0
    assert loads.stale_nodes(pods, 61.0) == 1
    assert loads.stale_nodes(pods, 111.0) == 2
    assert loads.stale_nodes([*pods, pod("new", node="n3")], 60.0) == 1, "never measured"
    assert Loads(60.0, measured=False).stale_nodes(pods, 0.0) == 0, "nothing was to be expected"


def test_an_annotation_that_is_withdrawn_is_gone_at_once() -> None:
    loads = Loads(60.0, measured=False)
    loads.update({A.key: Reading(100.0, 10.0)})
    loads.update({})
    assert loads.load(A.key, 30_000, 10.0) == Load(30_000, stale=False)
    measuring = Loads(60.0, measured=True)
    measuring.update({A.key: Reading(100.0, 10.0)})
    measuring.update({})
    assert measuring.load(A.key, 30_000, 20.0).qps == 100.0


def test_pods_that_are_gone_are_forgotten() -> None:
    loads = Loads(60.0, measured=True)
    loads.update({A.key: Reading(1.0, 0.0), B.key: Reading(2.0, 0.0)})
    loads.keep_only([B.key])
    assert (loads.load(A.key, 9, 0.0).qps, loads.load(B.key, 9, 0.0).qps) == (9, 2)


def test_against_a_real_prometheus(tmp_path: Path) -> None:
    """A real server scrapes two services; their loads come back by pod, or the reason why not."""
    program = needs("prometheus", "to read loads from a real one")

    stated = {"a": 1250.5, "b": 10.0}
    scrapes = [0]

    async def target(request: web.Request) -> web.Response:
        scrapes[0] += 1
        lines = ["# TYPE qps gauge", *(f'qps{{namespace="web",pod="{name}"}} {qps}' for name, qps in stated.items())]
        lines += ["# TYPE queries_total counter", f'queries_total{{namespace="web",pod="a"}} {scrapes[0] * 1000}']
        return web.Response(text="\n".join(lines) + "\n")

    async def run() -> None:
        app = web.Application()
        app.router.add_get("/metrics", target)
        runner = web.AppRunner(app)
        await runner.setup()
        await web.TCPSite(runner, HOST, 0).start()
        config = tmp_path / "prometheus.yml"
        config.write_text(
            "global: {scrape_interval: 1s}\nscrape_configs:\n- job_name: services\n  honor_labels: true\n"
            f"  static_configs: [{{targets: ['{HOST}:{runner.addresses[0][1]}']}}]\n",
            encoding="utf-8",
        )
        (port,) = free_ports(1)
        server = await asyncio.create_subprocess_exec(
            program,
            f"--config.file={config}",
            f"--storage.tsdb.path={tmp_path / 'data'}",
            f"--web.listen-address={HOST}:{port}",
            "--log.level=error",
        )
        url = f"http://{HOST}:{port}"
        try:
            async with asyncio.timeout(60):
                await until(lambda: ready(url))
                async with asking(lambda: [A, B], url, "qps") as source:
                    found = await until(lambda: source.read(5.0))
                async with asking(
                    lambda: [A, B], url, 'sum(rate(queries_total{pod="$pod",namespace="$namespace"}[1m]))'
                ) as source:
                    rates = await until(lambda: source.read(5.0))
                async with asking(lambda: [A], url, "rate(queries_total") as source:
                    with pytest.raises(LoadError, match=r"Prometheus answered 400: .*parse error"):
                        await source.read(5.0)
                async with asking(lambda: [A], url, "queries_total[10s]") as source:
                    with pytest.raises(LoadError, match="the query gives a matrix"):
                        await source.read(5.0)
        finally:
            server.terminate()
            await server.wait()
            await runner.cleanup()
        assert found == {A.key: Reading(1250.5, 5.0), B.key: Reading(10.0, 5.0)}
        assert rates.keys() == {A.key}
        assert rates[A.key].qps > 0

    asyncio.run(run())


async def until(look: Callable[[], Awaitable[T]]) -> T:
    """What is found as soon as something is."""
    while not (found := await look()):
        await asyncio.sleep(0.2)
    return found


async def ready(url: str) -> bool:
    try:
        async with aiohttp.ClientSession() as session, session.get(f"{url}/-/ready") as answer:
            return answer.status == 200
    except aiohttp.ClientError:
        return False
