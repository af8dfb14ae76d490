"""The proxy of faults does what its rules say, between a plain client and a real API server."""

from __future__ import annotations

import http.client
import json
import time
from collections.abc import Iterator

import pytest
from fault_proxy import Asked, Does, FaultProxy, Rule
from plane import Plane, Space


@pytest.fixture
def proxy(plane: Plane) -> Iterator[FaultProxy]:
    with FaultProxy(plane.server, plane.folder / "pki" / "ca.crt") as made:
        yield made


def opened(proxy: FaultProxy, space: Space, path: str) -> http.client.HTTPResponse:
    """An answer that is still to be read; with the rights of a ServiceAccount that may read pods."""
    rules = [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list", "watch"]}]
    kubeconfig = json.loads(space.service_account_kubeconfig(rules).read_text())
    token = kubeconfig["users"][0]["user"]["token"]
    connection = http.client.HTTPConnection(proxy.address.removeprefix("http://"), timeout=30)
    connection.request("GET", path, headers={"Authorization": f"Bearer {token}", "Accept": "application/json"})
    return connection.getresponse()


def lists(asked: Asked) -> bool:
    return asked.lists and asked.resource == "pods"


def test_a_long_list_arrives_as_it_is_asked_for(space: Space, proxy: FaultProxy) -> None:
    """The API server compresses it if the client takes that."""
    space.make_pod("p", annotations={"long": "x" * 200_000})
    assert len(json.loads(opened(proxy, space, space.pods_path).read())["items"]) == 1


def test_half_an_answer_and_a_late_one(space: Space, proxy: FaultProxy) -> None:
    space.make_pod("p")
    with proxy.faults(Rule(lists, Does.HALF)), pytest.raises((http.client.HTTPException, OSError)):
        opened(proxy, space, space.pods_path).read()
    began = time.monotonic()
    with proxy.faults(Rule(lists, Does.LATE, seconds=0.3)):
        assert len(json.loads(opened(proxy, space, space.pods_path).read())["items"]) == 1
    assert time.monotonic() - began > 0.3


def test_some_of_the_requests_meet_a_rule(space: Space, proxy: FaultProxy) -> None:
    with proxy.faults(Rule(lists, Does.ANSWER, status=500, share=0.5)) as (rule,):
        found = {opened(proxy, space, space.pods_path).status for _ in range(12)}
    assert found == {200, 500}
    assert 0 < rule.done < 12


def test_a_watch_that_is_under_way_falls_silent_and_a_new_one_does_not(space: Space, proxy: FaultProxy) -> None:
    def watches(asked: Asked) -> bool:
        return asked.watches and asked.resource == "pods"

    path = f"{space.pods_path}?watch=1"
    old = opened(proxy, space, path)
    space.make_pod("first")
    assert json.loads(old.readline())["object"]["metadata"]["name"] == "first"
    with proxy.faults(Rule(watches, Does.SILENCE, under_way=True)):
        space.make_pod("second")
        new = opened(proxy, space, path)
        assert {json.loads(new.readline())["object"]["metadata"]["name"] for _ in range(2)} == {"first", "second"}
        until = time.monotonic()
    assert json.loads(old.readline())["object"]["metadata"]["name"] == "second"
    assert time.monotonic() > until
    proxy.cut()
    with pytest.raises((http.client.HTTPException, OSError)):
        if not new.readline():
            raise ConnectionResetError("the watch has ended")
