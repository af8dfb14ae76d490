"""The cache follows the API server, whatever happens on the way."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from plane import Fault, Plane, Space, Wire, becomes

from flowsched_k8s.api.access import find_access
from flowsched_k8s.api.client import ApiError, Connection, Reply
from flowsched_k8s.api.reflector import SETTLED_AFTER, Gone, Happening, Reflector, Seen, State
from flowsched_k8s.objects import Node, Pod, PodGroup


class Follower:
    """What a consumer of happenings knows."""

    def __init__(self) -> None:
        self.there: dict[str, Pod] = {}
        self.told: list[tuple[str, str]] = []

    def __call__(self, batch: list[Happening[Pod]]) -> None:
        assert batch
        for happening in batch:
            match happening:
                case Seen(pod):
                    name = pod.metadata.name
                    assert self.there.get(name, pod).metadata.uid == pod.metadata.uid, "Gone comes before another uid"
                    self.there[name] = pod
                    self.told.append(("seen", name))
                case Gone(pod):
                    assert self.there.pop(pod.metadata.name).metadata.uid == pod.metadata.uid
                    self.told.append(("gone", pod.metadata.name))

    @property
    def names(self) -> list[str]:
        return sorted(self.there)


# Against a server of a few lines: every course of events, without waiting


Opened = Callable[[], None]
Take = Callable[[bytes], None]


class Script:
    """A connection that answers lists and watches from a script, and records what was asked."""

    def __init__(self, *answers: Any) -> None:
        self.answers = list(answers)
        self.asked: list[dict[str, str]] = []
        self.delays: list[float] = []
        self.done = asyncio.Event()

    async def sleep(self, seconds: float) -> None:
        self.delays.append(seconds)
        await asyncio.sleep(0)

    async def next(self, query: dict[str, str]) -> Any:
        self.asked.append(dict(query))
        if not self.answers:
            self.done.set()
            await asyncio.Event().wait()
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    async def request(self, method: str, path: str, *, query: dict[str, str], accept: str = "") -> Reply:
        answer = await self.next(query)
        return answer if isinstance(answer, Reply) else Reply(200, json.dumps(answer).encode())

    async def follow(self, path: str, query: dict[str, str], stall: float, opened: Opened, take: Take) -> None:
        answer = await self.next(query)
        opened()
        for part in answer:
            take(part)


def pod(name: str, version: int, uid: str = "u", **more: Any) -> dict[str, Any]:
    return {"metadata": {"name": name, "namespace": "n", "uid": uid, "resourceVersion": str(version)}, **more}


def page(version: int, *items: dict[str, Any], more: str = "") -> dict[str, Any]:
    return {"metadata": {"resourceVersion": str(version), "continue": more}, "items": list(items)}


def event(kind: str, obj: dict[str, Any]) -> bytes:
    return json.dumps({"type": kind, "object": obj}).encode() + b"\n"


def refusal(status: int) -> Reply:
    return Reply(status, json.dumps({"kind": "Status", "code": status, "reason": "R", "message": "m"}).encode())


BOOKMARK = event("BOOKMARK", pod("", 50))
EXPIRED = event("ERROR", {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old"})


def followed(*answers: Any, **options: Any) -> tuple[Script, Follower, Reflector[Pod]]:
    async def run() -> tuple[Script, Follower, Reflector[Pod]]:
        script, follower = Script(*answers), Follower()
        reflector = Reflector(
            script,  # type: ignore[arg-type]
            "/api/v1/pods",
            Pod,
            follower,
            sleep=script.sleep,
            **options,
        )
        task = asyncio.create_task(reflector.run())
        await asyncio.wait_for(script.done.wait(), 30)
        task.cancel()
        return script, follower, reflector

    return asyncio.run(run())


def test_pages_are_told_as_they_come_and_the_watch_goes_on_from_there() -> None:
    script, follower, reflector = followed(
        page(7, pod("a", 1), more="token"), page(7, pod("b", 2)), [event("ADDED", pod("c", 8))], page_size=1
    )
    assert follower.told == [("seen", "a"), ("seen", "b"), ("seen", "c")]
    assert script.asked[0] == {"limit": "1"}
    assert script.asked[1] == {"limit": "1", "continue": "token"}
    assert script.asked[2]["resourceVersion"] == "7"
    assert script.asked[2]["allowWatchBookmarks"] == "true"
    assert script.asked[3]["resourceVersion"] == "8"
    assert reflector.synced


def test_a_page_that_has_expired_starts_the_list_again_and_tells_nothing_twice() -> None:
    script, follower, reflector = followed(
        page(7, pod("a", 1), pod("x", 2), more="token"), refusal(410), page(9, pod("a", 1), pod("b", 8)), []
    )
    assert follower.told == [("seen", "a"), ("seen", "x"), ("seen", "b"), ("gone", "x")]
    assert "continue" not in script.asked[2]
    assert reflector.counts.expired == 1


@pytest.mark.parametrize("expiry", [refusal(410), [EXPIRED]])
def test_after_a_lost_position_only_the_difference_is_told(expiry: Any) -> None:
    first = page(7, pod("same", 1), pod("changed", 2), pod("gone", 3), pod("anew", 4, "old"))
    second = page(20, pod("same", 1), pod("changed", 12), pod("anew", 13, "new"), pod("more", 14))
    answers = [first, [BOOKMARK], expiry, second, []]
    if isinstance(expiry, Reply):
        answers[2] = as_stream_error(expiry)
    _, follower, reflector = followed(*answers)
    assert follower.told[4:] == [
        ("seen", "changed"),
        ("gone", "anew"),
        ("seen", "anew"),
        ("seen", "more"),
        ("gone", "gone"),
    ]
    assert follower.names == sorted(name for _, name in reflector.cache) == ["anew", "changed", "more", "same"]
    assert reflector.counts.expired == 1


def as_stream_error(reply: Reply) -> Exception:
    return ApiError.of(reply)


def test_bookmarks_move_the_position_and_are_no_events() -> None:
    script, follower, _ = followed(page(7), [BOOKMARK])
    assert script.asked[2]["resourceVersion"] == "50"
    assert follower.told == []


def test_what_came_before_an_error_did_happen() -> None:
    _, follower, _ = followed(page(7), [event("ADDED", pod("a", 8)) + EXPIRED], page(9, pod("a", 8)))
    assert follower.told == [("seen", "a")]


def test_an_api_that_is_not_there_is_no_error() -> None:
    script, follower, reflector = followed(refusal(404), refusal(403), page(7, pod("a", 1)), unavailable_retry=60.0)
    assert all(48.0 <= delay <= 72.0 for delay in script.delays[:2])
    assert follower.names == ["a"]
    assert reflector.state is State.SYNCED


def test_unavailable_says_why_and_does_not_keep_others_waiting() -> None:
    _, _, reflector = followed(refusal(403))
    assert (reflector.state, reflector.reason) == (State.UNAVAILABLE, "403 R: m")
    assert not reflector.synced
    asyncio.run(asyncio.wait_for(reflector.wait_settled(), 5))


def test_objects_go_with_their_api_but_not_with_the_permission_to_read_them() -> None:
    _, kept, _ = followed(page(7, pod("a", 1)), as_stream_error(refusal(403)))
    assert kept.names == ["a"]
    _, gone, _ = followed(page(7, pod("a", 1)), as_stream_error(refusal(404)))
    assert gone.told == [("seen", "a"), ("gone", "a")]


def test_delays_grow_and_are_no_shorter_than_the_server_wants() -> None:
    slow = Reply(429, b"{}", retry_after=9.0)
    script, _, _ = followed(*[refusal(500)] * 8, slow, page(7))
    assert all(0.25 * 2**n <= delay <= 30.0 for n, delay in enumerate(script.delays[:6]))
    assert script.delays[7] <= 30.0
    assert script.delays[8] >= 9.0


def test_a_watch_that_is_refused_again_and_again_lists_again() -> None:
    script, _, reflector = followed(page(7), *[as_stream_error(refusal(500))] * 5, page(9))
    assert reflector.counts.lists == 2
    assert len(script.delays) >= 5


def test_a_server_that_forgets_at_once_is_left_some_peace() -> None:
    script, _, _ = followed(*[page(7), [EXPIRED]] * 10)
    assert sum(script.delays) > 20.0


def test_current_is_what_was_listed_or_is_watched_since_the_last_failure() -> None:
    class Open(Script):
        """Its last watch is opened, and nothing happens."""

        async def follow(self, path: str, query: dict[str, str], stall: float, opened: Opened, take: Take) -> None:
            if self.answers:
                await super().follow(path, query, stall, opened, take)
            else:
                opened()
                self.done.set()
                await asyncio.Event().wait()

        async def sleep(self, seconds: float) -> None:
            seen.append(reflector.current)
            await super().sleep(seconds)

    async def run() -> None:
        task = asyncio.create_task(reflector.run())
        await asyncio.wait_for(script.done.wait(), 30)
        await asyncio.sleep(0)
        seen.append(reflector.current)
        now[0] += SETTLED_AFTER
        seen.append(reflector.current)
        task.cancel()

    now, seen = [0.0], list[bool]()
    # Refused; listed, and a watch that ends as watches do; refused twice; opened, but its first words are still to come.
    script = Open(refusal(500), page(7), [], *[as_stream_error(refusal(500))] * 2)
    connection: Any = script
    reflector = Reflector(connection, "/api/v1/pods", Pod, Follower(), sleep=script.sleep, clock=lambda: now[0])
    assert not reflector.current
    asyncio.run(run())
    assert seen == [False, True, False, False, False, True]


def test_one_strange_object_does_not_hide_the_others() -> None:
    strange = pod("strange", 3, spec={"priority": "high"})
    later = pod("strange", 9, spec={"priority": 1})
    _, follower, reflector = followed(
        page(7, pod("a", 1), strange),
        [
            event("ADDED", pod("b", 8)),
            event("MODIFIED", later),
            event("MODIFIED", pod("a", 10, spec={"priority": "no"})),
        ],
    )
    assert follower.told == [("seen", "a"), ("seen", "b"), ("seen", "strange"), ("gone", "a")]
    assert reflector.counts.undecodable == 2


@given(st.integers(0, 2**32), st.lists(st.integers(1, 40), max_size=8))
def test_lines_survive_any_cut_into_chunks(seed: int, sizes: list[int]) -> None:
    rng = random.Random(seed)
    names = [f"p{rng.randrange(8)}" for _ in range(20)]
    text, expected = b"", []
    for version, name in enumerate(names):
        text += event("MODIFIED", pod(name, version + 10))
        expected.append(("seen", name))
    pieces = []
    while text:
        size = rng.choice(sizes) if sizes else len(text)
        pieces.append(text[:size])
        text = text[size:]
    _, follower, _ = followed(page(7), pieces)
    assert follower.told == expected


def reconciled(cached: list[dict[str, Any]], listed: list[dict[str, Any]], events: list[bytes]) -> list[int]:
    """How many differences a check finds if the API server lists this at version 20."""
    differences: list[int] = []
    begun = asyncio.Event()
    watching = asyncio.Event()

    class Two(Script):
        async def request(self, method: str, path: str, *, query: dict[str, str], accept: str = "") -> Reply:
            if "PartialObjectMetadataList" not in accept:
                return await super().request(method, path, query=query)
            await watching.wait()
            # The API server writes null where there is no object.
            return Reply(200, json.dumps({**page(20), "items": listed or None}).encode())

        async def follow(self, path: str, query: dict[str, str], stall: float, opened: Opened, take: Take) -> None:
            opened()
            watching.set()
            await begun.wait()
            for line in events:
                take(line)
            self.done.set()
            await asyncio.Event().wait()

    async def sleep(seconds: float) -> None:
        if seconds < 1000:
            return
        if watching.is_set():
            begun.set()
            await asyncio.Event().wait()

    async def run() -> None:
        script = Two(page(10, *cached), page(21, *listed))
        reflector = Reflector(
            script,  # type: ignore[arg-type]
            "/api/v1/pods",
            Pod,
            Follower(),
            reconcile_every=10000.0,
            on_difference=differences.append,
            sleep=sleep,
        )
        task = asyncio.create_task(reflector.run())
        await asyncio.wait_for(script.done.wait(), 30)
        if differences:
            while reflector.counts.lists < 2:
                await asyncio.sleep(0)
            assert {name for _, name in reflector.cache} == {item["metadata"]["name"] for item in listed}
        task.cancel()

    asyncio.run(run())
    return differences


@pytest.mark.parametrize(
    ("cached", "listed", "events", "differences"),
    [
        ([pod("a", 1)], [pod("a", 1)], [], []),
        ([pod("a", 1)], [pod("a", 15)], [event("MODIFIED", pod("a", 15))], []),
        ([pod("a", 1)], [pod("a", 1)], [event("DELETED", pod("a", 19))], []),
        ([], [], [event("ADDED", pod("later", 21))], []),
        ([pod("a", 1)], [], [event("DELETED", pod("a", 12))], []),
        ([pod("a", 1)], [pod("a", 15)], [], [1]),
        ([pod("a", 1)], [], [], [1]),
        ([], [pod("a", 15)], [], [1]),
        ([pod("a", 1, "old")], [pod("a", 15, "new")], [], [1]),
        ([pod("a", 1), pod("b", 2)], [pod("c", 3)], [], [3]),
    ],
)
def test_only_what_the_watch_has_missed_is_a_difference(
    cached: list[dict[str, Any]], listed: list[dict[str, Any]], events: list[bytes], differences: list[int]
) -> None:
    # The bookmark takes the watch past the position of the list.
    assert reconciled(cached, listed, [*events, BOOKMARK, BOOKMARK]) == differences


# Against the real API server


def run_on(
    config: Path,
    space: Space,
    body: Callable[[Reflector[Pod], Follower, Connection], Awaitable[None]],
    **options: Any,
) -> None:
    """Follow the pods of a test's namespace while ``body`` runs."""

    async def run() -> None:
        async with Connection(find_access(config)) as connection:
            follower = Follower()
            reflector = Reflector(connection, space.pods_path, Pod, follower, **options)
            task = asyncio.create_task(reflector.run())
            try:
                await asyncio.wait_for(reflector.wait_synced(), 60)
                await body(reflector, follower, connection)
                assert not task.done()
            finally:
                task.cancel()
                await asyncio.wait([task])

    asyncio.run(run())


async def away(work: Callable[..., Any], *words: Any, **options: Any) -> Any:
    """Run something that blocks."""
    return await asyncio.to_thread(lambda: work(*words, **options))


def test_pods_come_change_and_go(plane: Plane, space: Space) -> None:
    for number in range(7):
        space.make_pod(f"first-{number}")

    async def body(reflector: Reflector[Pod], follower: Follower, connection: Connection) -> None:
        assert len(follower.there) == 7
        assert reflector.counts.lists == 1
        await away(space.make_pod, "later", cpu="250m")
        await becomes(lambda: "later" in follower.there, "the new pod")
        assert follower.there["later"].spec.containers[0].resources is not None
        await away(space.delete_pod, "first-0")
        await becomes(lambda: "first-0" not in follower.there, "the deleted pod to go")

    run_on(plane.kubeconfig, space, body, page_size=3)


def test_a_pod_leaves_the_selection_like_one_that_is_deleted(plane: Plane, space: Space) -> None:
    (node,) = space.make_nodes(1, kwok=False)
    space.make_pod("a")

    async def body(reflector: Reflector[Pod], follower: Follower, connection: Connection) -> None:
        assert follower.names == ["a"]
        target = {"metadata": {"name": "a"}, "target": {"kind": "Node", "name": node}}
        await away(space.admin.post, f"{space.pods_path}/a/binding", target)
        await becomes(lambda: not follower.there, "the bound pod to leave the selection")

    run_on(plane.kubeconfig, space, body, selectors={"fieldSelector": "spec.nodeName="})


def test_the_watch_outlives_a_restart_of_the_api_server(plane: Plane, space: Space) -> None:
    space.make_pod("before")

    async def body(reflector: Reflector[Pod], follower: Follower, connection: Connection) -> None:
        await away(plane.stop, "kube-apiserver")
        await away(plane.start, "kube-apiserver")
        await away(space.make_pod, "after")
        await becomes(lambda: "after" in follower.there, "the pod that was made after the restart")
        assert follower.told.count(("seen", "before")) == 1

    run_on(plane.kubeconfig, space, body)


def test_an_expired_watch_lists_again_and_tells_the_difference(plane: Plane, space: Space) -> None:
    for name in ("stays", "goes", "anew"):
        space.make_pod(name)

    async def body(reflector: Reflector[Pod], follower: Follower, connection: Connection) -> None:
        wire.fault = Fault.REFUSE
        wire.cut()
        await away(space.delete_pod, "goes")
        await away(space.delete_pod, "anew")
        await away(space.make_pod, "anew")
        await away(space.make_pod, "comes")
        # The API server starts with an empty window of events, and the store has none from before.
        await away(plane.stop, "kube-apiserver")
        await away(plane.compact)
        await away(plane.start, "kube-apiserver")
        follower.told.clear()
        wire.fault = Fault.NONE
        await becomes(lambda: "comes" in follower.there, "the new pod")
        await becomes(lambda: reflector.counts.expired == 1, "the position to expire")
        assert sorted(follower.told) == [("gone", "anew"), ("gone", "goes"), ("seen", "anew"), ("seen", "comes")]
        assert follower.names == ["anew", "comes", "stays"]
        await away(space.make_pod, "last")
        await becomes(lambda: "last" in follower.there, "the watch to go on")

    with Wire(plane.server) as wire:
        rules = [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list", "watch"]}]
        run_on(space.service_account_kubeconfig(rules, server=wire.address), space, body)


def test_a_watch_that_has_fallen_silent_is_opened_again(plane: Plane, space: Space) -> None:
    async def body(reflector: Reflector[Pod], follower: Follower, connection: Connection) -> None:
        await becomes(lambda: reflector.counts.watches == 1, "the watch")
        await away(space.make_pod, "heard")
        await becomes(lambda: "heard" in follower.there, "the first pod")
        wire.fault = Fault.SILENCE
        await away(space.make_pod, "unheard")
        await becomes(lambda: reflector.counts.watches > 1, "another watch")
        wire.fault = Fault.NONE
        await becomes(lambda: "unheard" in follower.there, "the pod that was made in silence")
        assert follower.told == [("seen", "heard"), ("seen", "unheard")]
        assert reflector.counts.lists == 1

    with Wire(plane.server) as wire:
        rules = [{"apiGroups": [""], "resources": ["pods"], "verbs": ["list", "watch"]}]
        run_on(space.service_account_kubeconfig(rules, server=wire.address), space, body, stall=1.0)


def test_a_refresh_knows_what_a_silent_watch_has_not_told(plane: Plane, space: Space) -> None:
    """A new leader must not plan on a cache that lacks what the former one did last."""

    async def body(reflector: Reflector[Pod], follower: Follower, connection: Connection) -> None:
        for name in ("one", "two"):
            await away(space.make_pod, name)
            await asyncio.wait_for(reflector.refresh(), 60)
            assert name in follower.names
        await away(space.make_pod, "three")
        await becomes(lambda: "three" in follower.names, "the watch to go on after a refresh")

    run_on(plane.kubeconfig, space, body)


def test_a_permission_that_is_missing_and_given_later(plane: Plane, space: Space) -> None:
    config = space.service_account_kubeconfig([])
    groups: list[Happening[PodGroup]] = []

    async def run() -> None:
        async with Connection(find_access(config)) as connection:
            pods = Follower()
            forbidden = Reflector(connection, space.pods_path, Pod, pods, unavailable_retry=0.2)
            # A group of its own: other tests install the API of pod groups on this control plane and leave it there.
            path = "/apis/absent.example/v1alpha1/podgroups"
            absent = Reflector(connection, path, PodGroup, groups.extend, unavailable_retry=0.2)
            tasks = [asyncio.create_task(forbidden.run()), asyncio.create_task(absent.run())]
            await asyncio.gather(forbidden.wait_settled(), absent.wait_settled())
            for reflector in (forbidden, absent):
                assert reflector.state is State.UNAVAILABLE
                # RBAC refuses before the API server looks whether there is such an API.
                assert "403 Forbidden" in reflector.reason
            await away(space.make_pod, "seen-at-last")
            rules = [{"apiGroups": ["", "absent.example"], "resources": ["*"], "verbs": ["list", "watch"]}]
            role = {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole"}
            await away(space.admin.apply, [{**role, "metadata": {"name": f"{space.name}-account-0"}, "rules": rules}])
            await becomes(lambda: pods.names == ["seen-at-last"], "the pod to be seen")
            await becomes(lambda: absent.reason.startswith("404"), "the API to be missing")
            assert not any(task.done() for task in tasks)
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)

    asyncio.run(run())
    assert groups == []


def test_nothing_differs_on_a_sound_watch_under_load(plane: Plane, space: Space) -> None:
    differences: list[int] = []

    async def body(reflector: Reflector[Pod], follower: Follower, connection: Connection) -> None:
        for number in range(120):
            await away(space.make_pod, f"pod-{number}")
            if number % 3 == 2:
                await away(space.delete_pod, f"pod-{number - 1}")
        await becomes(lambda: reflector.counts.checks >= 3, "a few checks", within=120)
        await becomes(lambda: len(follower.there) == 80, "the last pod to go")

    run_on(plane.kubeconfig, space, body, reconcile_every=0.05, on_difference=differences.append, page_size=20)
    assert differences == []


def test_a_check_of_a_kind_without_objects_comes_to_its_end(plane: Plane, space: Space) -> None:
    async def body(reflector: Reflector[Pod], follower: Follower, connection: Connection) -> None:
        await reflector.wait_synced()
        await becomes(lambda: reflector.counts.checks >= 1, "a check of nothing", within=60)
        assert not follower.told

    run_on(plane.kubeconfig, space, body, reconcile_every=0.05)


def test_nodes_are_read_with_the_fields_that_are_used(plane: Plane, space: Space) -> None:
    names = space.make_nodes(3, cpu="2", labels={"topology.kubernetes.io/zone": "z"})

    async def run() -> dict[str, Node]:
        async with Connection(find_access(plane.kubeconfig)) as connection:
            selector = {"labelSelector": f"flowsched.test/space={space.name}"}
            reflector = Reflector(connection, "/api/v1/nodes", Node, lambda batch: None, selectors=selector)
            task = asyncio.create_task(reflector.run())
            await reflector.wait_synced()
            task.cancel()
            return {name: node for (_, name), node in reflector.cache.items()}

    nodes = asyncio.run(run())
    assert sorted(nodes) == sorted(names)
    node = nodes[names[0]]
    assert node.status.allocatable is not None and node.status.allocatable["cpu"] == "2"
    assert node.metadata.labels is not None and node.metadata.labels["topology.kubernetes.io/zone"] == "z"
