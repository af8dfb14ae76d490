"""The state as plain data, for SIGUSR2 and ``/debug/state``: in slices, between which the event loop does other work."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator, Iterable, Mapping
from itertools import islice
from typing import Any, TypeVar

import msgspec

from flowsched.cluster.class_runs import ClassRuns
from flowsched.cluster.snapshot import PlannedStart
from flowsched.cluster.start_errors import Interval
from flowsched_k8s.pods.entries import PodEntry
from flowsched_k8s.state import SchedulerState

MOST = 20_000
"""Entries of each list: with sentences of a thousand characters, below 100 MiB for all that is made on the way."""
SLICE = 500
"""Entries between which the event loop comes round: some milliseconds."""

Thing = TypeVar("Thing")
Slices = Generator[None, None, list[Any]]


def dump(
    state: SchedulerState, now: float, pod: str | None = None, limit: int = MOST
) -> Generator[None, None, dict[str, Any]]:
    """What the scheduler knows, and what is under way; :func:`whole` gives it at once. Yields after each slice.

    ``pod``: namespace/name of the only pod that is told of. ``limit``: entries of each list, at most; ``left_out`` counts
    the others.
    """
    cache, queue = state.cache, state.queue
    left_out: dict[str, int] = {}

    def listed(name: str, things: Iterable[Thing], plain: Callable[[Thing], Any]) -> Slices:
        found: list[Any] = []
        for number, thing in enumerate(list(things)):
            if number % SLICE == SLICE - 1:
                yield
            if (entry := plain(thing)) is None:
                continue
            if len(found) < limit:
                found.append(entry)
            else:
                left_out[name] = left_out.get(name, 0) + 1
        return found

    def node(name: str) -> Any:
        about = cache.nodes.get(name)
        pods = [] if about is None else sorted(str(cache.pods[uid].key) for uid in about.pods)
        if about is None or (pod is not None and pod not in pods):
            return None
        return name, {"type": about.type.name, "allocatable": about.allocatable, "pods": pods}

    def waiting(entry: PodEntry) -> Any:
        key = entry.key
        if key not in queue or (pod is not None and str(key) != pod):
            return None
        estimate, told = state.starts.of(key.uid), {}
        if estimate is not None:
            spans = {"starts": estimate.start, "ends": estimate.end, "job_ends": state.starts.job_end(entry)}
            told = {f"{name}_in_s": _from_now(i, now) for name, i in spans.items() if i is not None}
        return {
            "pod": str(key),
            "uid": key.uid,
            "queue": str(queue.place(key)),
            "attempts": queue.attempts(key),
            "age_s": round(now - entry.created_s, 3),
            "postponed": key.uid in state.waiting.postponed,
            "message": entry.message,
            **told,
        }

    def assumed(entry: PodEntry) -> Any:
        if not entry.assumed or entry.node or (pod is not None and str(entry.key) != pod):
            return None
        return str(entry.key), entry.assumed

    def planned(one: PlannedStart) -> Any:
        return dict(vars(one)) if pod is None or one.task == pod else None

    def learnt(runs: ClassRuns) -> Any:
        expected = cache.learnt.shown(runs.run_class, runs.machine_type)
        if expected is None:
            return None
        told = {"factor": round(expected.factor, 3), "spread": round(expected.spread, 3)}
        return {"class": runs.run_class, "machine_type": runs.machine_type, "runs": runs.runs, **told}

    nodes = yield from listed("nodes", sorted(cache.nodes), node)
    held = state.node_holds.held
    found = {
        "active": state.active,
        "rounds": state.rounds,
        "round_running": state.round_running,
        "nodes": dict(nodes),
        "nodes_outside": sorted(cache.others)[:limit],
        "queue": queue.sizes(),
        "waiting": (yield from listed("waiting", cache.pods.values(), waiting)),
        "assumed": dict((yield from listed("assumed", cache.pods.values(), assumed))),
        "binding": sorted(islice(state.bindings.under_way, limit)),
        "bindings_without_outcome": [
            {
                "pod": str(turn.item.pod),
                "node": turn.item.node,
                "age_s": round(now - turn.began_s, 3),
                "error": turn.error,
            }
            for turn in islice(state.bindings.turns.apart(), limit)
        ],
        "stuck_namespaces": state.bindings.stuck[:limit],
        "held_nodes": None if held is None else {"pods": dict(held.places), "priority": held.priority},
        "rebalancing": state.rebalancing.dump(now),
        "plan": (yield from listed("plan", state.plan.values(), planned)),
        "learnt": (yield from listed("learnt", () if pod is not None else cache.learnt.classes, learnt)),
    }
    return {**found, "left_out": left_out}


def _from_now(interval: Interval, now: float) -> dict[str, float]:
    return {name.removesuffix("_s"): round(at_s - now, 3) for name, at_s in interval._asdict().items()}


def whole(dumping: Generator[None, None, dict[str, Any]]) -> dict[str, Any]:
    """All of it, without a pause."""
    while True:
        try:
            next(dumping)
        except StopIteration as end:
            found: dict[str, Any] = end.value
            return found


async def encoded(dumping: Generator[None, None, dict[str, Any]], more: Mapping[str, Any]) -> bytes:
    """The same as JSON, with ``more`` beside it. The event loop does other work in between."""
    while True:
        try:
            next(dumping)
        except StopIteration as end:
            found = {**end.value, **more}
            break
        await asyncio.sleep(0)
    parts: dict[str, Any] = {}
    for name, value in found.items():
        if not isinstance(value, list | dict) or len(value) <= SLICE:
            parts[name] = value
            continue
        # What is encoded already is only copied in the end.
        entries: Iterable[Any] = value.items() if isinstance(value, dict) else enumerate(value)
        raw: dict[Any, msgspec.Raw] = {}
        for number, (key, entry) in enumerate(entries):
            raw[key] = msgspec.Raw(_json(entry))
            if number % SLICE == SLICE - 1:
                await asyncio.sleep(0)
        parts[name] = raw if isinstance(value, dict) else list(raw.values())
    return _json(parts)


def _json(value: Any) -> bytes:
    return msgspec.json.encode(value, enc_hook=str)
