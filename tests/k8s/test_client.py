"""Finding the API server, and asking it."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import ipaddress
import json
import os
import stat
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from aiohttp import web
from hypothesis import given
from hypothesis import strategies as st
from plane import Fault, Plane, Space, Wire, run_script

from flowsched_k8s.api.access import Access, find_access, goes_direct
from flowsched_k8s.api.client import ApiError, Connection, NotAllowedError, UnreachableError, path_of
from flowsched_k8s.api.rate_limit import RateLimit
from flowsched_k8s.api.reflector import Reflector
from flowsched_k8s.api.writer import Writer
from flowsched_k8s.instructions import Bind, PodKey
from flowsched_k8s.objects import ObjectList, Pod
from flowsched_models.document import InputError


def config(server: str = "http://127.0.0.1:1", **user: Any) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "here",
        "clusters": [{"name": "c", "cluster": {"server": server}}],
        "users": [{"name": "u", "user": user or {"token": "secret"}}],
        "contexts": [
            {"name": "here", "context": {"cluster": "c", "user": "u", "namespace": "mine"}},
        ],
    }


def written(folder: Path, content: Any) -> Path:
    path = folder / "config"
    path.write_text(content if isinstance(content, str) else yaml.safe_dump(content))
    return path


def served(handler: Callable[[web.Request], Any], work: Callable[[str], Any]) -> Any:
    """Run ``work`` with the address of a server that answers as ``handler`` does."""

    async def run() -> Any:
        app = web.Application()
        app.router.add_route("*", "/{path:.*}", handler)
        runner = web.AppRunner(app, shutdown_timeout=0.1)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        try:
            return await work(f"http://127.0.0.1:{runner.addresses[0][1]}")
        finally:
            await runner.cleanup()

    return asyncio.run(run())


# Access


def test_the_context_says_the_namespace(tmp_path: Path) -> None:
    path = written(tmp_path, config())
    access = find_access(path)
    assert (access.server, access.namespace, access.tls) == ("http://127.0.0.1:1", "mine", None)
    assert access.credentials().authorization == "Bearer secret"


def test_the_search_goes_from_what_is_said_to_what_is_usual(tmp_path: Path) -> None:
    home = tmp_path / "home"
    (home / ".kube").mkdir(parents=True)
    written(tmp_path, config("http://said:1"))
    (tmp_path / "config").rename(tmp_path / "said")
    written(tmp_path, config("http://variable:1")).rename(tmp_path / "variable")
    written(home / ".kube", config("http://usual:1"))
    variables = {"HOME": str(home), "KUBECONFIG": str(tmp_path / "variable")}
    assert find_access(tmp_path / "said", environment=variables).server == "http://said:1"
    assert find_access(environment=variables).server == "http://variable:1"
    assert find_access(environment={"HOME": str(home)}).server == "http://usual:1"
    several = os.pathsep.join([str(tmp_path / "missing"), str(tmp_path / "said")])
    assert find_access(environment={"KUBECONFIG": several}).server == "http://said:1"


def test_without_any_cluster_one_sentence_says_so(tmp_path: Path) -> None:
    with pytest.raises(InputError) as caught:
        find_access(environment={"HOME": str(tmp_path)})
    assert "neither --kubeconfig nor $KUBECONFIG is given" in str(caught.value)
    with pytest.raises(InputError) as caught:
        find_access(environment={"KUBERNETES_SERVICE_HOST": "10.0.0.1", "KUBERNETES_SERVICE_PORT": "443"})
    assert str(caught.value).startswith("ServiceAccount: the cluster cannot be reached from within: ")


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ("", "cannot be used"),
        ("a: [", "not valid YAML"),
        ("just text", "cannot be used"),
        ("[1, 2]", "cannot be used"),
        ({"kind": "Config"}, "cannot be used: Invalid kube-config file. Expected key current-context"),
        (config() | {"current-context": "nowhere"}, "nowhere"),
        (config() | {"clusters": []}, "cannot be used"),
        (config() | {"users": "u"}, "cannot be used"),
        (config("ftp://x"), "its server is 'ftp://x', which is not an http or https address"),
        (config("https://127.0.0.1:1", username="u"), "has no credentials"),
        (config("https://127.0.0.1:1", **{"client-certificate": "missing", "client-key": "missing"}), "missing"),
        (config("https://127.0.0.1:1", **{"client-certificate-data": "!", "client-key-data": "!"}), "cannot be used"),
    ],
)
def test_a_bad_kubeconfig_is_one_sentence(tmp_path: Path, content: Any, expected: str) -> None:
    path = written(tmp_path, content)
    with pytest.raises(InputError) as caught:
        find_access(path)
    assert len(caught.value.problems) == 1
    assert str(caught.value).startswith(str(path))
    assert expected in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_missing_kubeconfig_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="missing: there is no such kubeconfig"):
        find_access(tmp_path / "missing")
    with pytest.raises(InputError, match="cannot be read"):
        find_access(tmp_path)


def plugin(folder: Path, body: str) -> dict[str, Any]:
    script = folder / "plugin"
    script.write_text(f"#!{sys.executable}\n{body}")
    script.chmod(script.stat().st_mode | stat.S_IEXEC)
    return {
        "exec": {"apiVersion": "client.authentication.k8s.io/v1", "command": str(script), "interactiveMode": "Never"}
    }


def test_a_plugin_gives_a_token_and_a_new_one_when_it_expires(tmp_path: Path) -> None:
    body = f"""
import json, pathlib
count = pathlib.Path({str(tmp_path / "count")!r})
count.write_text(str(int(count.read_text()) + 1 if count.exists() else 1))
status = {{"token": "token-" + count.read_text(), "expirationTimestamp": "2020-01-01T00:00:00Z"}}
print(json.dumps({{"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential", "status": status}}))
"""
    access = find_access(written(tmp_path, config(**plugin(tmp_path, body))))
    first = access.credentials().authorization
    assert first is not None and first.startswith("Bearer token-")
    assert access.credentials().authorization != first


def test_a_plugin_that_fails_is_told(tmp_path: Path) -> None:
    path = written(tmp_path, config("https://127.0.0.1:1", **plugin(tmp_path, "raise SystemExit(3)")))
    with pytest.raises(InputError, match=r"has no credentials.*'exec' plugin"):
        find_access(path)


@pytest.mark.parametrize(
    ("host", "no_proxy", "direct"),
    [
        ("api.example.com", "example.com", True),
        ("api.example.com", ".example.com", True),
        ("api.example.com", "*.example.com", True),
        ("badexample.com", "example.com", False),
        ("10.1.2.3", "10.0.0.0/8", True),
        ("11.1.2.3", "10.0.0.0/8, localhost", False),
        ("anything", "*", True),
        ("::1", "::/0", True),
        ("anything", "", False),
    ],
)
def test_which_hosts_need_no_proxy(host: str, no_proxy: str, direct: bool) -> None:
    assert goes_direct(host, no_proxy) is direct


def test_a_proxy_of_the_kubeconfig_is_used(tmp_path: Path) -> None:
    content = config()
    content["clusters"][0]["cluster"]["proxy-url"] = "http://proxy:3128"
    assert find_access(written(tmp_path, content)).proxy == "http://proxy:3128"


# Paths


@given(st.text(min_size=1), st.text(min_size=1))
def test_names_stay_in_their_place_in_a_path(namespace: str, name: str) -> None:
    names = [text.encode(errors="replace").decode() for text in (namespace, name)]
    parts = path_of("/api/v1", "pods", *names, "status").split("/")
    assert len(parts) == 8
    assert "." not in parts and ".." not in parts
    assert not {"?", "#", " "} & set("".join(parts))


# Requests


def test_answers_are_values_and_are_counted(tmp_path: Path) -> None:
    async def handler(request: web.Request) -> web.Response:
        status = int(request.path.rsplit("/", 1)[1])
        body = {"kind": "Status", "reason": "Because", "message": "no"} if status >= 300 else {"items": []}
        return web.json_response(body, status=status, headers={"Retry-After": "7"})

    counted: list[tuple[str, str]] = []

    async def work(server: str) -> None:
        access = find_access(written(tmp_path, config(server)))
        async with Connection(access, on_request=lambda m, c, s: counted.append((m, c))) as connection:
            reply = await connection.request("POST", "/429", body={})
            assert (reply.status, reply.ok, reply.retry_after) == (429, False, 7.0)
            assert (await connection.get("/200", ObjectList[Pod])).items == []
            with pytest.raises(ApiError, match="404 Because: no") as caught:
                await connection.get("/404", Pod)
            assert caught.value.status == 404

    served(handler, work)
    assert counted == [("POST", "429"), ("GET", "200"), ("GET", "404")]


@pytest.mark.parametrize("prefix", ["", "/", "/k8s/clusters/c-1", "/k8s/a%2Fb/"])
@pytest.mark.parametrize("query", [None, {"fieldSelector": "a=b,c!=d"}])
def test_what_is_asked_of_a_server_behind_a_path(tmp_path: Path, prefix: str, query: dict[str, str] | None) -> None:
    asked: list[str] = []

    async def handler(request: web.Request) -> web.Response:
        asked.append(request.raw_path)
        return web.json_response({})

    async def work(server: str) -> None:
        async with Connection(find_access(written(tmp_path, config(server + prefix)))) as connection:
            await connection.request("GET", path_of("/api/v1", "pods", "name space", "x/y?z"), query=query)

    served(handler, work)
    expected = f"{prefix.rstrip('/')}/api/v1/namespaces/name%20space/pods/x%2Fy%3Fz"
    assert asked == [expected + ("?fieldSelector=a%3Db%2Cc%21%3Dd" if query else "")]


def test_no_answer_says_whether_the_request_was_sent(tmp_path: Path) -> None:
    async def handler(request: web.Request) -> web.Response:
        assert request.transport is not None
        request.transport.abort()
        return web.Response()

    counted: list[str] = []

    async def work(server: str) -> None:
        for address, sent in ((server, True), ("http://127.0.0.1:1", False)):
            access = find_access(written(tmp_path, config(address)))
            async with Connection(access, on_request=lambda m, c, s: counted.append(c)) as connection:
                with pytest.raises(UnreachableError) as caught:
                    await connection.request("POST", "/", body={})
                assert caught.value.sent is sent

    served(handler, work)
    assert counted == ["<error>"] * 2


def test_a_slow_answer_is_an_unknown_outcome_but_waiting_for_a_turn_is_not(tmp_path: Path) -> None:
    async def handler(request: web.Request) -> web.Response:
        await asyncio.sleep(60.0 if request.path == "/slow" else 0.5)
        return web.json_response({})

    async def work(server: str) -> None:
        access = find_access(written(tmp_path, config(server)))
        async with Connection(access, connections=1, timeout=2.0) as connection:
            # Five in turn take longer than the limit of one.
            replies = await asyncio.gather(*(connection.request("GET", "/") for _ in range(5)))
            assert all(reply.ok for reply in replies)
            with pytest.raises(UnreachableError) as caught:
                await connection.request("GET", "/slow")
            assert caught.value.sent

    served(handler, work)


def test_the_guard_is_asked_after_the_waiting(tmp_path: Path) -> None:
    arrived: list[str] = []
    free = asyncio.Event()

    async def handler(request: web.Request) -> web.Response:
        arrived.append(request.path)
        await free.wait()
        return web.json_response({})

    async def work(server: str) -> None:
        access = find_access(written(tmp_path, config(server)))
        async with Connection(access, connections=1) as connection:
            allowed = True
            first = asyncio.create_task(connection.request("POST", "/first", body={}, guard=lambda: allowed))
            second = asyncio.create_task(connection.request("POST", "/second", body={}, guard=lambda: allowed))
            while not arrived:
                await asyncio.sleep(0.01)
            allowed = False
            urgent = await asyncio.wait_for(urgent_one(connection), 10)
            assert urgent.ok
            assert (await first).ok
            with pytest.raises(NotAllowedError):
                await second

    async def urgent_one(connection: Connection) -> Any:
        task = asyncio.create_task(connection.request("GET", "/urgent", urgent=True))
        while "/urgent" not in arrived:
            await asyncio.sleep(0.01)
        free.set()
        return await task

    served(handler, work)
    assert arrived == ["/first", "/urgent"]


def test_a_token_that_has_been_replaced_is_read_again(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("old")

    async def handler(request: web.Request) -> web.Response:
        good = request.headers["Authorization"] == f"Bearer {token.read_text()}"
        return web.json_response({}, status=200 if good else 401)

    class Rotating:
        """As the official client's configuration in a pod."""

        def auth_settings(self) -> dict[str, Any]:
            return {"BearerToken": {"value": f"Bearer {token.read_text()}\n"}}

    async def work(server: str) -> None:
        access = Access(server, None, None, None, "default", Rotating())
        async with Connection(access) as connection:
            assert (await connection.request("GET", "/")).ok
            token.write_text("new")
            assert (await connection.request("GET", "/")).ok

    served(handler, work)


def test_a_rate_limit_lets_a_burst_through_and_then_so_many_per_second() -> None:
    now = 0.0
    passed: list[float] = []

    async def sleep(seconds: float) -> None:
        nonlocal now
        now += seconds

    async def run() -> None:
        limit = RateLimit(10.0, 3, clock=lambda: now, sleep=sleep)
        for _ in range(6):
            await limit.wait()
            passed.append(round(now, 6))

    asyncio.run(run())
    assert passed == [0.0, 0.0, 0.0, 0.1, 0.2, 0.3]


def test_the_real_api_server_is_reached_by_certificate_and_by_token(plane: Plane, space: Space, tmp_path: Path) -> None:
    rules = [{"apiGroups": [""], "resources": ["pods"], "verbs": ["list"]}]
    space.make_pod("one")

    async def names(path: Path) -> list[str]:
        async with Connection(find_access(path)) as connection:
            found = await connection.get(space.pods_path, ObjectList[Pod])
            assert (await connection.request("GET", space.pods_path + "/one")).status in (200, 403)
            return [pod.metadata.name for pod in found.items]

    assert asyncio.run(names(plane.kubeconfig)) == ["one"]
    assert asyncio.run(names(space.service_account_kubeconfig(rules))) == ["one"]
    by_command = tmp_path / "kubeconfig"
    run_script("token", plane.folder, space.name, "account-0", "--output", by_command)
    assert asyncio.run(names(by_command)) == ["one"]


def test_a_server_of_another_certificate_authority_is_not_talked_to(plane: Plane, tmp_path: Path) -> None:
    trusting = json.loads(plane.kubeconfig.read_text())
    del trusting["clusters"][0]["cluster"]["certificate-authority-data"]
    path = written(tmp_path, trusting)

    async def ask() -> int:
        async with Connection(find_access(path)) as connection:
            return (await connection.request("GET", "/version")).status

    with pytest.raises(UnreachableError) as caught:
        asyncio.run(ask())
    assert not caught.value.sent
    trusting["clusters"][0]["cluster"]["insecure-skip-tls-verify"] = True
    written(tmp_path, trusting)
    assert asyncio.run(ask()) == 200


def test_a_cut_connection_is_opened_again(plane: Plane) -> None:
    async def run(wire: Wire) -> None:
        access = find_access(plane.kubeconfig)
        through = Access(wire.address, access.tls, None, None, "default", access.configuration)
        async with Connection(through) as connection:
            assert (await connection.request("GET", "/version")).ok
            wire.fault = Fault.REFUSE
            wire.cut()
            with pytest.raises(UnreachableError):
                await connection.request("GET", "/version")
            wire.fault = Fault.NONE
            assert (await connection.request("GET", "/version")).ok

    with Wire(plane.server) as wire:
        asyncio.run(run(wire))


@pytest.mark.parametrize(("name", "reached"), [("kubernetes.default.svc", True), ("another.example", False)])
def test_a_server_may_have_a_name_that_is_not_its_address(
    plane: Plane, tmp_path: Path, name: str, reached: bool
) -> None:
    document = json.loads(plane.kubeconfig.read_text())
    document["clusters"][0]["cluster"]["tls-server-name"] = name

    async def ask() -> int:
        async with Connection(find_access(written(tmp_path, document))) as connection:
            return (await connection.request("GET", "/version")).status

    if reached:
        assert asyncio.run(ask()) == 200
    else:
        with pytest.raises(UnreachableError, match=name) as caught:
            asyncio.run(ask())
        assert not caught.value.sent


class Tunnels:
    """A proxy that opens a way to where it is asked to, as HTTP or SOCKS proxies do."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        first = await reader.readexactly(1)
        if first == b"\x05":
            await reader.readexactly((await reader.readexactly(1))[0])
            writer.write(b"\x05\x00")
            asked = await reader.readexactly(10)
            assert asked[:4] == b"\x05\x01\x00\x01", "CONNECT to an address of IPv4"
            where = f"{ipaddress.ip_address(asked[4:8])}:{int.from_bytes(asked[8:])}"
            answer = b"\x05\x00\x00\x01" + bytes(6)
        else:
            where = (first + await reader.readuntil(b"\r\n\r\n")).decode().split(" ")[1]
            answer = b"HTTP/1.1 200 Connection established\r\n\r\n"
        self.asked.append(where)
        host, port = where.rsplit(":", 1)
        far_reader, far_writer = await asyncio.open_connection(host, int(port))
        writer.write(answer)
        await asyncio.gather(self._pump(reader, far_writer), self._pump(far_reader, writer))

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError):
            while chunk := await reader.read(65536):
                writer.write(chunk)
                await writer.drain()
        writer.close()


@pytest.mark.parametrize("scheme", ["http", "socks5"])
def test_a_proxy_is_gone_through_and_its_answer_is_not_the_servers(
    plane: Plane, monkeypatch: pytest.MonkeyPatch, scheme: str
) -> None:
    # That of the environment was looked at when the kubeconfig was read, and is not asked for again.
    monkeypatch.setenv("https_proxy", "http://127.0.0.1:1")

    told: list[bytes] = []

    async def ask() -> None:
        tunnels = Tunnels()
        server = await asyncio.start_server(tunnels.serve, "127.0.0.1", 0)
        proxy = f"{scheme}://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        direct = dataclasses.replace(find_access(plane.kubeconfig), proxy=None)
        async with Connection(direct) as connection:
            assert (await connection.request("GET", "/version")).ok
        assert not tunnels.asked
        async with Connection(dataclasses.replace(direct, proxy=proxy)) as connection:
            assert (await connection.request("GET", "/version")).ok
            with pytest.raises(ApiError, match="404"):
                await connection.follow("/nowhere", {}, 10.0, told.clear, told.append)
        assert tunnels.asked[0] == plane.server.removeprefix("https://")
        server.close()

    asyncio.run(ask())


# Streams


def test_a_stream_is_taken_in_as_it_comes_until_it_ends(tmp_path: Path) -> None:
    part = bytes(range(256)) * 256
    count = 100

    async def handler(request: web.Request) -> web.StreamResponse:
        answer = web.StreamResponse()
        await answer.prepare(request)
        for _ in range(count):
            await answer.write(part)
        return answer

    async def work(server: str) -> None:
        async with Connection(find_access(written(tmp_path, config(server)))) as connection:
            opened, parts = [], list[bytes]()
            await connection.follow("/", {}, 60.0, lambda: opened.append(len(parts)), parts.append)
            assert (opened, b"".join(parts)) == ([0], part * count)
            assert (await connection.request("GET", "/")).body == part * count

    served(handler, work)


def test_a_stream_that_stays_silent_or_is_cut_is_an_error(tmp_path: Path) -> None:
    async def handler(request: web.Request) -> web.StreamResponse:
        answer = web.StreamResponse()
        await answer.prepare(request)
        await answer.write(b"one")
        if request.path == "/silent":
            await asyncio.sleep(60.0)
        assert request.transport is not None
        request.transport.abort()
        return answer

    async def work(server: str) -> None:
        async with Connection(find_access(written(tmp_path, config(server)))) as connection:
            for path, said in (("/silent", "no bytes for 0.2 s"), ("/cut", None)):
                found: list[bytes] = []
                with pytest.raises(UnreachableError, match=said):
                    await connection.follow(path, {}, 0.2, found.clear, found.append)
                assert found == [b"one"]

    served(handler, work)


@pytest.mark.parametrize("place", ["opened", "take"])
def test_what_a_reader_of_a_stream_raises_ends_it(tmp_path: Path, place: str) -> None:
    async def handler(request: web.Request) -> web.StreamResponse:
        answer = web.StreamResponse()
        await answer.prepare(request)
        await answer.write(b"one")
        await asyncio.sleep(60.0)
        return answer

    def fail(*_: object) -> None:
        raise ApiError(410, "Expired", "too old")

    async def work(server: str) -> None:
        async with Connection(find_access(written(tmp_path, config(server)))) as connection:
            reader: dict[str, Any] = {"opened": lambda: None, "take": lambda part: None} | {place: fail}
            with pytest.raises(ApiError, match="410 Expired"):
                await connection.follow("/", {}, 60.0, **reader)

    served(handler, work)


def test_what_is_given_up_leaves_the_connection_usable(tmp_path: Path) -> None:
    async def handler(request: web.Request) -> web.Response:
        if request.path == "/slow":
            await asyncio.sleep(60.0)
        return web.json_response({})

    async def work(server: str) -> None:
        async with Connection(find_access(written(tmp_path, config(server))), connections=1) as connection:
            for _ in range(3):
                with pytest.raises(TimeoutError):
                    await asyncio.wait_for(connection.request("GET", "/slow"), 0.1)
                assert (await connection.request("GET", "/")).ok
            under_way = asyncio.create_task(connection.request("POST", "/slow", body={}))
            await asyncio.sleep(0.1)
        with pytest.raises(UnreachableError) as caught:
            await under_way
        assert caught.value.sent

    served(handler, work)


@pytest.mark.parametrize(("told", "obeyed"), [("7", 7.0), ("30", 30.0), ("300", 30.0), ("99999999", 30.0)])
def test_a_server_is_left_alone_as_it_asks_and_no_longer_than_half_a_minute(
    tmp_path: Path, told: str, obeyed: float
) -> None:
    """By lists, watches and bindings."""

    async def handler(_: web.Request) -> web.Response:
        return web.json_response({"message": "away"}, status=503, headers={"Retry-After": told})

    async def work(server: str) -> None:
        async with Connection(find_access(written(tmp_path, config(server)))) as connection:
            waited: list[float] = []

            async def sleep(seconds: float) -> None:
                waited.append(seconds)
                if len(waited) == 2:
                    raise EOFError

            reflector = Reflector(connection, "/api/v1/pods", Pod, print, sleep=sleep)
            for position in ("", "7"):
                reflector._position, waited[:] = position, []
                with pytest.raises(EOFError):
                    await reflector.run()
                assert waited == [obeyed, obeyed]
            bound = await Writer(connection).bind(Bind(PodKey("n", "p", "u"), "a"))
            assert bound.retry_after == obeyed

    served(handler, work)
