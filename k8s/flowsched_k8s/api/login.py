"""May a caller read what is served here? The API server says who a token belongs to, and whether that user may."""

from __future__ import annotations

import asyncio
import hashlib
import logging
import re
import time
from collections.abc import Callable
from dataclasses import dataclass

import msgspec

from flowsched_k8s.api.client import ApiError, Connection, UnreachableError, decoded
from flowsched_k8s.objects import Struct

LOG = logging.getLogger(__name__)

FRESH_S = 10.0
"""Seconds for which an answer of the API server is taken as it is."""
KEPT_S = 600.0
"""The same while the API server does not answer."""
ANSWER_WITHIN_S = 3.0
"""Prometheus waits for ten seconds, in which there may be two questions."""
PER_SECOND, BURST = 20.0, 40
"""Questions about tokens that were not admitted before."""
MOST_ASKED = 16
"""Such tokens at a time; with more, a caller is asked to come again."""
ADMITTED, REFUSED = 100, 1000
"""Tokens that are remembered."""
_TOKEN = re.compile(r"[Bb]earer +([A-Za-z0-9._~+/-]+=*) *")


@dataclass(frozen=True)
class Refusal:
    """Why a caller is not answered."""

    status: int
    """Of HTTP."""
    text: str


@dataclass(frozen=True)
class _Verdict:
    refusal: Refusal | None
    at: float


class _User(Struct):
    username: str = ""
    uid: str = ""
    groups: list[str] | None = None
    extra: dict[str, list[str]] | None = None


class _TokenStatus(Struct):
    authenticated: bool = False
    user: _User = _User()


class _TokenReview(Struct):
    status: _TokenStatus = _TokenStatus()


class _AccessStatus(Struct):
    allowed: bool = False


class _AccessReview(Struct):
    status: _AccessStatus = _AccessStatus()


_TOKEN_REVIEW = msgspec.json.Decoder(_TokenReview)
_ACCESS_REVIEW = msgspec.json.Decoder(_AccessReview)


class Login:
    """Admits callers who may ``get`` a path that is no object's (``nonResourceURLs``)."""

    def __init__(self, connection: Connection, path: str, clock: Callable[[], float] = time.monotonic) -> None:
        """``connection``: of its own, so that callers take nothing from what else is asked; limited to
        :data:`PER_SECOND` and :data:`BURST`.
        """
        self._connection = connection
        self._path = path
        self._clock = clock
        self._admitted: dict[bytes, _Verdict] = {}
        self._refused: dict[bytes, _Verdict] = {}
        self._asked: dict[bytes, asyncio.Task[Refusal | None]] = {}
        self._told = ""

    async def refusal(self, authorization: str) -> Refusal | None:
        """Why a caller with this header is refused; None for one that is admitted."""
        match = _TOKEN.fullmatch(authorization)
        if match is None:
            return Refusal(401, "show a token: Authorization: Bearer TOKEN")
        # Tokens themselves are not kept.
        key = hashlib.sha256(match[1].encode()).digest()
        kept = self._kept(key, FRESH_S)
        if kept is not None:
            return kept.refusal
        asked = self._asked.get(key)
        if asked is None:
            known = key in self._admitted
            if not known and len(self._asked) >= MOST_ASKED:
                return Refusal(429, "too many tokens are being looked at; come again")
            asked = self._asked[key] = asyncio.create_task(self._ask(key, match[1], known))
            asked.add_done_callback(lambda _: self._asked.pop(key))
        # Other callers may wait for the same answer.
        return await asyncio.shield(asked)

    def _kept(self, key: bytes, within_s: float) -> _Verdict | None:
        verdict = self._admitted.get(key) or self._refused.get(key)
        return verdict if verdict is not None and self._clock() - verdict.at < within_s else None

    async def _ask(self, key: bytes, token: str, known: bool) -> Refusal | None:
        try:
            refusal = await self._review(token, known)
        except (ApiError, UnreachableError) as error:
            away = isinstance(error, UnreachableError) or error.status == 429 or not 400 <= error.status < 500
            kept = self._kept(key, KEPT_S) if away else None
            if kept is not None:
                return kept.refusal
            self._tell(str(error))
            return Refusal(503, "the API server did not say whether this token may read it; the log says why")
        self._told = ""
        self._keep(key, _Verdict(refusal, self._clock()))
        return refusal

    async def _review(self, token: str, known: bool) -> Refusal | None:
        body = await self._post("authentication.k8s.io", "TokenReview", {"token": token}, known)
        told = decoded(body, _TOKEN_REVIEW).status
        if not told.authenticated:
            return Refusal(401, "the API server does not know this token")
        user = told.user
        asked = {
            "user": user.username,
            "uid": user.uid,
            "groups": user.groups or [],
            "extra": user.extra or {},
            "nonResourceAttributes": {"path": self._path, "verb": "get"},
        }
        body = await self._post("authorization.k8s.io", "SubjectAccessReview", asked, known)
        if decoded(body, _ACCESS_REVIEW).status.allowed:
            return None
        return Refusal(
            403, f"{user.username} may not get {self._path}: it needs a ClusterRole with this nonResourceURL"
        )

    async def _post(self, group: str, kind: str, spec: object, known: bool) -> bytes:
        body = {"apiVersion": f"{group}/v1", "kind": kind, "spec": spec}
        path = f"/apis/{group}/v1/{kind.lower()}s"
        # Those that were admitted before do not wait behind strangers.
        reply = await self._connection.request("POST", path, body=body, timeout=ANSWER_WITHIN_S, urgent=known)
        if not reply.ok:
            raise ApiError.of(reply)
        return reply.body

    def _keep(self, key: bytes, verdict: _Verdict) -> None:
        table, other, most = self._admitted, self._refused, ADMITTED
        if verdict.refusal is not None:
            table, other, most = other, table, REFUSED
        other.pop(key, None)
        table.pop(key, None)
        table[key] = verdict
        if len(table) > most:
            del table[next(iter(table))]

    def _tell(self, why: str) -> None:
        if why != self._told:
            self._told = why
            LOG.warning("callers of %s cannot be looked at", self._path, extra={"error": why})
