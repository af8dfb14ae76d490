"""Measured loads of services, read as often as configured."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from flowsched_k8s.cache import Cache
from flowsched_k8s.instructions import PodKey
from flowsched_k8s.pods.entries import PodEntry
from flowsched_k8s.services.loads import AnnotationSource, LoadError, Loads, LoadSource, PrometheusSource, ServicePod

LOG = logging.getLogger(__name__)


class LoadReader:
    """Reads the configured source and lets the cache price services by what it says."""

    def __init__(self, cache: Cache, clock: Callable[[], float]) -> None:
        """Nothing is read before :meth:`run`."""
        self._cache = cache
        self._clock = clock
        self._loads: Loads | None = None

    async def run(self) -> None:
        """Read until cancelled."""
        settings = self._cache.configuration.load_source
        if settings.kind == "prometheus" and settings.url and settings.query:
            source: LoadSource = PrometheusSource(self._service_pods, settings.url, settings.query, settings.timeout_s)
        else:
            source = AnnotationSource(self._service_pods)
        self._loads = loads = Loads(settings.stale_after_s, source.measured)
        silent = False
        try:
            while True:
                silent = await self._read_once(source, loads, silent)
                await asyncio.sleep(settings.interval_s)
        finally:
            await source.close()

    def stale_nodes(self) -> int:
        """Nodes with a service whose load is not known freshly."""
        return 0 if self._loads is None else self._loads.stale_nodes(self._service_pods(), self._clock())

    async def _read_once(self, source: LoadSource, loads: Loads, silent: bool) -> bool:
        """Whether the source failed; said once for each outage."""
        failed = False
        try:
            loads.update(await source.read(self._clock()))
        except LoadError as error:
            failed = True
            if not silent:
                LOG.warning("loads could not be read", extra={"error": str(error)})
        loads.keep_only(p.key for p in self._service_pods())
        if source.measured:
            self._cache.services.read_loads(self._load_of)
        return failed

    def _load_of(self, key: PodKey) -> float | None:
        entry = self._cache.pods.get(key.uid)
        if entry is None or self._loads is None or (stated := _stated_qps(entry)) is None:
            return None
        return self._loads.load(key, stated, self._clock()).qps

    def _service_pods(self) -> list[ServicePod]:
        return [
            ServicePod(e.key, e.place, stated, e.intent.load_qps)
            for e in self._cache.pods.values()
            if (stated := _stated_qps(e)) is not None
        ]


def _stated_qps(entry: PodEntry) -> float | None:
    """The load of a service's goal: of the one that it was granted, or else of the one that it asks for."""
    if entry.grant is not None:
        return entry.grant.wish.qps
    intent = entry.intent
    return None if intent.service is None or intent.slo is None else intent.slo.qps
