"""Who may read metrics: what a small API server says of tokens, kept for a while, and what strangers cannot use up."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from aiohttp import web

from flowsched_k8s.api.access import Access
from flowsched_k8s.api.client import Connection
from flowsched_k8s.api.login import ADMITTED, FRESH_S, KEPT_S, MOST_ASKED, REFUSED, Login

TOKENS = "/apis/authentication.k8s.io/v1/tokenreviews"
ACCESS = "/apis/authorization.k8s.io/v1/subjectaccessreviews"


class Credentials:
    """What the official client knows of who asks."""

    cert_file = None

    def auth_settings(self) -> dict[str, dict[str, str]]:
        return {"BearerToken": {"value": "Bearer own"}}


class Api:
    """Answers reviews: ``may`` is admitted, ``known`` is a user without rights, every other token belongs to none."""

    def __init__(self) -> None:
        self.asked: Counter[str] = Counter()
        self.bodies: dict[str, Any] = {}
        self.status = 201
        self.allowed = True
        self.held: asyncio.Event | None = None
        self.now = 0.0

    async def answer(self, request: web.Request) -> web.Response:
        body = await request.json()
        self.asked[request.path] += 1
        self.bodies[request.path] = body
        if self.held is not None:
            await self.held.wait()
        if self.status == 200:
            # The page of a proxy is no answer.
            return web.Response(text="<html>")
        if self.status != 201:
            return web.json_response({"kind": "Status", "message": "no"}, status=self.status)
        if request.path == TOKENS:
            token = body["spec"]["token"]
            user = {"username": token, "uid": "7", "groups": ["g"], "extra": {"e": ["x"]}}
            known = token.startswith(("may", "known"))
            return web.json_response({"status": {"authenticated": known, "user": user if known else {}}}, status=201)
        assert request.path == ACCESS
        allowed = self.allowed and body["spec"]["user"].startswith("may")
        return web.json_response({"status": {"allowed": allowed}}, status=201)


def against(api: Api, work: Callable[[Login], Awaitable[None]]) -> None:
    async def run() -> None:
        app = web.Application()
        app.router.add_post("/{path:.*}", api.answer)
        runner = web.AppRunner(app, shutdown_timeout=0.1)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        access = Access(f"http://127.0.0.1:{runner.addresses[0][1]}", None, None, None, "default", Credentials())
        try:
            async with Connection(access, connections=4) as connection:
                await asyncio.wait_for(work(Login(connection, "/metrics", lambda: api.now)), 60)
        finally:
            await runner.cleanup()

    asyncio.run(run())


async def status(login: Login, token: str) -> int:
    refusal = await login.refusal(f"Bearer {token}")
    return 200 if refusal is None else refusal.status


def test_the_api_server_says_who_it_is_and_whether_that_user_may() -> None:
    api = Api()

    async def work(login: Login) -> None:
        assert await login.refusal("Bearer may") is None
        assert api.bodies[TOKENS]["spec"] == {"token": "may"}
        assert api.bodies[ACCESS]["spec"] == {
            "user": "may",
            "uid": "7",
            "groups": ["g"],
            "extra": {"e": ["x"]},
            "nonResourceAttributes": {"path": "/metrics", "verb": "get"},
        }
        known, other = await login.refusal("bearer known"), await login.refusal("Bearer other")
        assert known is not None and other is not None
        assert (known.status, other.status) == (403, 401)
        assert known.text == "known may not get /metrics: it needs a ClusterRole with this nonResourceURL"

    against(api, work)


@pytest.mark.parametrize(
    "header", ["", "may", "Basic may", "Bearer", "Bearer ", "Bearer a b", "Bearer ä", "Bearer a\nb"]
)
def test_what_is_no_token_is_not_asked_about(header: str) -> None:
    api = Api()

    async def work(login: Login) -> None:
        refusal = await login.refusal(header)
        assert refusal is not None and refusal.status == 401
        assert not api.asked

    against(api, work)


def test_an_answer_holds_for_ten_seconds() -> None:
    api = Api()

    async def work(login: Login) -> None:
        for token in ("may", "known", "other"):
            await status(login, token)
        asked = api.asked.copy()
        api.now += FRESH_S - 0.1
        assert [await status(login, token) for token in ("may", "known", "other")] == [200, 403, 401]
        assert api.asked == asked
        # A right that was taken away is seen then.
        api.allowed = False
        api.now += 0.1
        assert await status(login, "may") == 403
        api.allowed = True
        assert await status(login, "may") == 403
        api.now += FRESH_S
        assert await status(login, "may") == 200

    against(api, work)


@pytest.mark.parametrize("fault", [500, 503, 429, 200])
def test_while_the_api_server_does_not_answer_its_last_word_holds_for_ten_minutes(fault: int) -> None:
    api = Api()

    async def work(login: Login) -> None:
        assert [await status(login, token) for token in ("may", "known")] == [200, 403]
        api.status = fault
        api.now = KEPT_S - 0.1
        assert [await status(login, token) for token in ("may", "known", "may-new")] == [200, 403, 503]
        api.now = KEPT_S
        assert [await status(login, token) for token in ("may", "known")] == [503, 503]

    against(api, work)


@pytest.mark.parametrize("fault", [401, 403])
def test_without_the_right_to_ask_no_caller_is_admitted_and_the_log_says_why_once(
    fault: int, caplog: pytest.LogCaptureFixture
) -> None:
    api = Api()

    async def work(login: Login) -> None:
        assert await status(login, "may") == 200
        api.now, api.status = FRESH_S, fault
        with caplog.at_level(logging.WARNING):
            assert [await status(login, token) for token in ("may", "known", "may")] == [503] * 3
        (line,) = [r for r in caplog.records if r.name == "flowsched_k8s.api.login"]
        assert line.getMessage() == "callers of /metrics cannot be looked at"

    against(api, work)


def test_one_question_for_all_who_show_a_token_at_once() -> None:
    api = Api()

    async def work(login: Login) -> None:
        api.held = asyncio.Event()
        callers = [asyncio.create_task(status(login, "may")) for _ in range(50)]
        while not api.asked:
            await asyncio.sleep(0.001)
        # One that goes takes the answer from no other.
        callers[0].cancel()
        api.held.set()
        assert await asyncio.gather(*callers[1:]) == [200] * 49
        assert api.asked == {TOKENS: 1, ACCESS: 1}

    against(api, work)


def test_strangers_do_not_keep_those_out_who_were_admitted_before() -> None:
    api = Api()

    async def work(login: Login) -> None:
        assert await status(login, "may") == 200
        api.now, api.held = FRESH_S, asyncio.Event()
        strangers = [asyncio.create_task(status(login, f"stranger-{n}")) for n in range(MOST_ASKED)]
        while api.asked[TOKENS] < 4:
            await asyncio.sleep(0.001)
        assert await status(login, "one-more") == 429
        known = asyncio.create_task(status(login, "may"))
        # All four connections of strangers wait; this one has its own.
        while api.asked[TOKENS] < 6:
            await asyncio.sleep(0.001)
        api.held.set()
        assert await known == 200
        assert await asyncio.gather(*strangers) == [401] * MOST_ASKED

    against(api, work)


def test_what_is_remembered_has_an_end() -> None:
    api = Api()

    async def work(login: Login) -> None:
        for number in range(ADMITTED + 5):
            await status(login, f"may-{number}")
        login._refused.update({str(n).encode(): login._admitted[next(iter(login._admitted))] for n in range(REFUSED)})
        await status(login, "other")
        assert (len(login._admitted), len(login._refused)) == (ADMITTED, REFUSED)

    against(api, work)
