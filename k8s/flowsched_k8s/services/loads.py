"""Load and latency of services: from annotations or from Prometheus, with what is too old left out.

A source is read every now and then; :class:`Loads` keeps what it said and falls back to the load stated in a service's
SLO, the one it must be able to take at any time, when nothing fresh is known.
"""

from __future__ import annotations

import asyncio
import json
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol
from urllib.parse import urlencode

import pycurl

from flowsched_k8s.api.transfers import TransferError, Transfers, new_handle
from flowsched_k8s.instructions import PodKey

LARGEST = 8 * 1024 * 1024
"""Bytes of one answer."""
MOST_QUERIES = 500
"""Different queries per reading: with ``$pod`` there is one for each service pod."""
AT_ONCE = 8
"""Queries under way at a time."""
_NAME = re.compile(r"[a-zA-Z0-9]([-a-zA-Z0-9.]{0,251}[a-zA-Z0-9])?")


class LoadError(Exception):
    """Loads could not be read; the text says why in one sentence."""


@dataclass(frozen=True)
class ServicePod:
    """A pod that serves, as far as loads go."""

    key: PodKey
    node: str
    """Empty while it has none."""
    stated_qps: float
    """The load in its SLO."""
    annotated_qps: float | None = None
    """The load that its annotation says."""


Pods = Callable[[], Iterable[ServicePod]]
Sample = tuple[Mapping[str, str], float]
"""Labels and value."""


@dataclass(frozen=True)
class Reading:
    """What a source said about a pod."""

    qps: float
    at_s: float


class LoadSource(Protocol):
    """Where readings come from."""

    measured: bool
    """Whether it is expected to know every service. Otherwise what it leaves out is simply not said."""

    async def read(self, now: float) -> Mapping[PodKey, Reading]:
        """What is known now; pods that nothing is known of are left out. Raises :class:`LoadError`."""
        ...

    async def close(self) -> None:
        """Let go of what is open."""
        ...


@dataclass(frozen=True)
class Load:
    """The load to plan with."""

    qps: float
    stale: bool
    """Whether there was a reading once, but none that is fresh."""


class Loads:
    """The latest readings by pod."""

    def __init__(self, stale_after_s: float, measured: bool) -> None:
        """``measured``: as the source says."""
        self._stale_after_s = stale_after_s
        self._measured = measured
        self._readings: dict[PodKey, Reading] = {}

    def update(self, readings: Mapping[PodKey, Reading]) -> None:
        """Take over what a source said; an older reading never replaces a newer one.

        What a measuring source leaves out grows stale; what another one leaves out is withdrawn.
        """
        if not self._measured:
            self._readings.clear()
        for key, reading in readings.items():
            known = self._readings.get(key)
            if known is None or known.at_s <= reading.at_s:
                self._readings[key] = reading

    def keep_only(self, pods: Iterable[PodKey]) -> None:
        """Forget pods that are gone."""
        wanted = set(pods)
        self._readings = {key: reading for key, reading in self._readings.items() if key in wanted}

    def load(self, key: PodKey, stated_qps: float, now: float) -> Load:
        """The fresh reading, or else the stated load."""
        reading = self._readings.get(key)
        if reading is None:
            return Load(stated_qps, stale=False)
        if now - reading.at_s > self._stale_after_s:
            return Load(stated_qps, stale=True)
        return Load(reading.qps, stale=False)

    def stale_nodes(self, pods: Iterable[ServicePod], now: float) -> int:
        """Nodes with a service whose load is not known freshly, though it should be."""
        nodes = set()
        for pod in pods:
            if pod.node:
                known = pod.key in self._readings
                if self.load(pod.key, pod.stated_qps, now).stale or (self._measured and not known):
                    nodes.add(pod.node)
        return len(nodes)


class AnnotationSource:
    """Loads as annotated on the pods: never stale, as there is nothing fresher."""

    measured = False

    def __init__(self, pods: Pods) -> None:
        self._pods = pods

    async def read(self, now: float) -> Mapping[PodKey, Reading]:
        """See :class:`LoadSource`."""
        said = ((pod.key, pod.annotated_qps) for pod in self._pods())
        return {key: Reading(qps, now) for key, qps in said if qps is not None}

    async def close(self) -> None:
        """See :class:`LoadSource`."""


class PrometheusSource:
    """Loads by instant queries to Prometheus; connections are opened when first needed."""

    measured = True

    def __init__(self, pods: Pods, url: str, query: str, timeout_s: float = 5.0) -> None:
        """``query`` gives queries per second, by ``namespace`` and ``pod``.

        ``$namespace``, ``$pod`` and ``$node`` stand for those of each service pod; equal texts are asked once.
        """
        self._pods = pods
        self._url = url.rstrip("/") + "/api/v1/query"
        self._query = query
        self._timeout_s = timeout_s
        self._transfers: Transfers | None = None

    async def close(self) -> None:
        """Close the connections; the next reading opens new ones."""
        if self._transfers is not None:
            self._transfers.close()
            self._transfers = None

    async def read(self, now: float) -> Mapping[PodKey, Reading]:
        """See :class:`LoadSource`. Time is of this machine's clock, at the start."""
        pods = [p for p in self._pods() if _NAME.fullmatch(p.key.name) and _NAME.fullmatch(p.key.namespace)]
        if not pods:
            return {}
        try:
            async with asyncio.timeout(self._timeout_s):
                found = await self._values(pods)
        except TimeoutError:
            raise LoadError(f"Prometheus did not answer within {self._timeout_s:g} s") from None
        return {key: Reading(qps, now) for key, qps in found.items()}

    async def _values(self, pods: Sequence[ServicePod]) -> dict[PodKey, float]:
        """One value for each pod that an answer is about."""
        asked: dict[str, list[ServicePod]] = {}
        for pod in pods:
            asked.setdefault(filled(self._query, pod), []).append(pod)
        if len(asked) > MOST_QUERIES:
            raise LoadError(
                f"the query comes to {len(asked)} different ones, more than {MOST_QUERIES}; leave out $pod and let the "
                "labels of the answer tell pods apart"
            )
        places = asyncio.Semaphore(AT_ONCE)

        async def ask(text: str) -> list[Sample]:
            async with places:
                return await self._ask(text)

        tasks = [asyncio.ensure_future(ask(text)) for text in asked]
        try:
            answers = await asyncio.gather(*tasks)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        found: dict[PodKey, float] = {}
        for group, samples in zip(asked.values(), answers, strict=True):
            found |= matched(group, samples, alone="$pod" in self._query)
        return found

    async def _ask(self, text: str) -> list[Sample]:
        if self._transfers is None:
            self._transfers = Transfers(AT_ONCE)
        body = bytearray()

        def take(chunk: bytes) -> int:
            body.extend(chunk)
            return len(chunk) if len(body) <= LARGEST else -1

        curl = new_handle()
        for option, value in (
            (pycurl.URL, self._url),
            (pycurl.POSTFIELDS, urlencode({"query": text})),
            (pycurl.HTTPHEADER, ["Accept: application/json"]),
            (pycurl.ACCEPT_ENCODING, "gzip"),
            (pycurl.WRITEFUNCTION, take),
        ):
            curl.setopt(option, value)
        try:
            await self._transfers.run(curl)
        except TransferError as error:
            if len(body) > LARGEST:
                message = f"the answer is larger than {LARGEST // 1024 // 1024} MiB; let the query select less"
                raise LoadError(message) from None
            raise LoadError(f"Prometheus cannot be reached: {_short(str(error))}") from None
        return samples_of(curl.getinfo(pycurl.RESPONSE_CODE), bytes(body))


def filled(query: str, pod: ServicePod) -> str:
    """A query with the names of a pod in it."""
    names = {"namespace": pod.key.namespace, "pod": pod.key.name, "node": pod.node}
    # In PromQL strings only these could end the string or stand for something else.
    safe = {key: value.replace("\\", "\\\\").replace('"', '\\"') for key, value in names.items()}
    return re.sub(r"\$(namespace|pod|node)\b", lambda match: safe[match[1]], query)


def samples_of(status: int, body: bytes) -> list[Sample]:
    """Labels and values of an answer, without those that are no load. Raises :class:`LoadError`."""
    try:
        answer = json.loads(body)
    except ValueError:
        raise LoadError(f"Prometheus answered {status} with something that is not JSON") from None
    if not isinstance(answer, dict) or answer.get("status") != "success":
        detail = answer.get("error") if isinstance(answer, dict) else None
        raise LoadError(f"Prometheus answered {status}: {_short(str(detail or 'no reason given'))}")
    data = answer.get("data")
    kind = data.get("resultType") if isinstance(data, dict) else None
    result = data.get("result") if isinstance(data, dict) else None
    if kind == "scalar" and isinstance(result, list):
        result = [{"metric": {}, "value": result}]
    elif kind != "vector" or not isinstance(result, list):
        raise LoadError(f"the query gives a {_short(str(kind))}, but an instant vector is needed")
    found: list[Sample] = []
    for sample in result:
        value = _value(sample)
        if value is not None:
            labels = sample.get("metric")
            texts = labels.items() if isinstance(labels, dict) else ()
            found.append(({name: text for name, text in texts if isinstance(text, str)}, value))
    return found


def matched(pods: Sequence[ServicePod], samples: Iterable[Sample], alone: bool) -> dict[PodKey, float]:
    """Which value is whose, by labels ``namespace`` and ``pod``; values of one pod are joined.

    Without a ``namespace`` the pod's name must be the only one like it. ``alone``: the query was about one pod, so a
    value without a ``pod`` is its own.
    """
    by_name: dict[str, list[ServicePod]] = {}
    for pod in pods:
        by_name.setdefault(pod.key.name, []).append(pod)
    found: dict[PodKey, float] = {}
    for labels, value in samples:
        name = labels.get("pod")
        if name is None:
            owners = list(pods) if alone else []
        else:
            owners = by_name.get(name, [])
        namespace = labels.get("namespace")
        if namespace is not None:
            owners = [pod for pod in owners if pod.key.namespace == namespace]
        if len(owners) == 1:
            key = owners[0].key
            found[key] = found.get(key, 0.0) + value
    return found


def _value(sample: Any) -> float | None:
    """The value of a sample; None for no number, infinity, a negative one, or a histogram."""
    pair = sample.get("value") if isinstance(sample, dict) else None
    if not isinstance(pair, list) or len(pair) != 2 or not isinstance(pair[1], str):
        return None
    try:
        value = float(pair[1])
    except ValueError:
        return None
    return value if math.isfinite(value) and value >= 0 else None


def _short(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= 200 else f"{line[:199]}…"
