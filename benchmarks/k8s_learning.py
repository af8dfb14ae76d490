"""Pods of a dozen owners without profiles or run times on a real control plane: what learning tells of when they end.

Each owner has a run time of its own, log-normal over owners, and each pod differs from it a little; nobody declares any.
KWOK runs bound pods and ends them after their true times. A first wave of each owner's pods comes at once, the others at
random moments. Every few seconds flowsched is asked, at `/debug/state`, when the pods that wait are going to start and to
end. Answers count for pods after the first wave, once their owner's first pod had ended: each answer alike, as for a
question at any time, and beside that each pod alike, whose answers share its weight. Errors of ends are shares of the time
from the question to the end.

The leader is killed twice, and the events that each leader recorded are played: every round has to decide the same again.
The same pods in the same order with `learning: off` are the peer.

    python -m benchmarks.k8s_learning
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import math
import os
import re
import signal
import tempfile
import time
import urllib.request
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import click
import numpy as np

from benchmarks.k8s_throughput import (
    RESULTS,
    Api,
    BenchmarkError,
    cpu_s,
    node_named,
    rss_mib,
    running_flowsched,
    running_plane,
    say,
)
from benchmarks.machine import describe_machine, measured_on
from flowsched.support.arrays import FloatArray
from flowsched_k8s.events.event_player import play
from flowsched_k8s.learning.saved_runs import read_saved
from flowsched_models.text_table import text_table

NAMESPACE = "learning"
SAVED = "/api/v1/namespaces/flowsched-system/configmaps/flowsched-learnt"
PODS = f"/api/v1/namespaces/{NAMESPACE}/pods"
RUN_FOR = "flowsched.test/run-for"
"""How long KWOK runs a pod; flowsched does not look at it."""
OWNER_SIGMA, POD_SIGMA = 0.8, 0.15
"""Standard deviations of the logarithms of true run times: over owners, and over the pods of one."""
LEAST_RUN_S = 6.0
"""Shorter runs teach nothing, so owners are drawn again until theirs is longer."""
CORES_ASKED = (1, 2, 4)
ASK_EVERY_S = 3.0
WARM_S = 60.0
"""What was learnt longer before a kill than this must be there after it."""
HEADS = (
    "learning",
    "pods",
    "no_answer",
    "answers",
    "time_left_s",
    "error_of_run",
    "error_of_start_s",
    "error_of_end_s",
    "late_s",
    "error_of_end",
    "starts_held",
    "ends_held",
    "pods_error_of_end",
    "pods_starts_held",
    "pods_ends_held",
    "mean_wait_s",
    "mean_completion_s",
)


@dataclass(frozen=True)
class TruePod:
    """A pod that comes, and how long it runs in truth."""

    name: str
    owner: int
    cores: int
    arrives_s: float
    run_s: float


@dataclass(frozen=True)
class Answer:
    """When a pod was told to start and to end, seconds on the clock of :func:`time.perf_counter`."""

    asked_s: float
    start_s: tuple[float, float, float]
    """At the earliest, expected, at the latest."""
    end_s: tuple[float, float, float]
    run_s: float
    """How long it was planned to run; not a number where the last round was about other pods."""


@dataclass
class Seen:
    """What the watch showed of each pod, and what flowsched said of it while it waited."""

    created_s: dict[str, float] = field(default_factory=dict)
    started_s: dict[str, float] = field(default_factory=dict)
    ended_s: dict[str, float] = field(default_factory=dict)
    answers: dict[str, list[Answer]] = field(default_factory=lambda: defaultdict(list))
    unanswered: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    """By pod, how often it waited and nothing was told."""

    async def follow(self, api: Api) -> None:
        """Watch for ever, from the last event on where a watch ends."""
        version = "0"
        while True:
            path = f"{PODS}?watch=1&resourceVersion={version}&timeoutSeconds=3600"
            async for now, line in api.watch(path):
                event = json.loads(line)
                if event["type"] == "ERROR":
                    raise BenchmarkError(f"the watch broke: {line.decode(errors='replace')}")
                meta, phase = event["object"]["metadata"], event["object"]["status"].get("phase")
                version = meta["resourceVersion"]
                self.created_s.setdefault(meta["name"], now)
                if phase in ("Running", "Succeeded"):
                    self.started_s.setdefault(meta["name"], now)
                if phase == "Succeeded":
                    self.ended_s.setdefault(meta["name"], now)


def drawn_pods(
    seed: int, count: int, owners: int, first_wave: int, cores: int, median_s: float, load: float = 1.1
) -> list[TruePod]:
    """``first_wave`` pods of each owner at once, the others of random owners as a Poisson stream at a load of the cores."""
    rng = np.random.default_rng([seed, count, owners])
    of_owner: list[float] = []
    while len(of_owner) < owners:
        drawn = median_s * float(np.exp(OWNER_SIGMA * rng.standard_normal()))
        if drawn * np.exp(-2 * POD_SIGMA) > LEAST_RUN_S:
            of_owner.append(drawn)
    asked = rng.choice(CORES_ASKED, size=owners)
    first = [owner for owner in range(owners) for _ in range(first_wave)]
    later = rng.integers(owners, size=count - len(first)).tolist()
    work = float(np.mean([of_owner[owner] * asked[owner] for owner in later]))
    gaps = rng.exponential(work / (load * cores), size=len(later))
    arrives = [0.0] * len(first) + np.cumsum(gaps).tolist()
    runs = np.exp(POD_SIGMA * rng.standard_normal(count))
    return [
        TruePod(f"owner-{owner:02d}-{k:05d}", owner, int(asked[owner]), at, of_owner[owner] * run)
        for k, (owner, at, run) in enumerate(zip(first + later, arrives, runs.tolist(), strict=True))
    ]


def pod_body(pod: TruePod) -> dict[str, Any]:
    """As a CronJob's: its Job has a number of its own in each run."""
    job = f"owner-{pod.owner:02d}-{28_000_000 + int(pod.arrives_s) // 60}"
    owner = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "name": job,
        "uid": f"00000000-0000-0000-{pod.owner:04d}-{int(pod.arrives_s) // 60:012d}",
        "controller": True,
    }
    requests = {"cpu": str(pod.cores), "memory": "200Mi"}
    container = {
        "name": "main",
        "image": f"example.invalid/owner-{pod.owner:02d}:1",
        "resources": {"requests": requests},
    }
    annotations = {RUN_FOR: f"{round(pod.run_s * 1e3)}ms"}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": pod.name, "ownerReferences": [owner], "annotations": annotations},
        "spec": {"schedulerName": "flowsched", "restartPolicy": "Never", "containers": [container]},
    }


class Leader:
    """flowsched, which is killed and started again."""

    def __init__(self, folder: Path, learning: str) -> None:
        """Not running yet."""
        self.folder, self._learning = folder, learning
        self._stack = contextlib.ExitStack()
        self.pid = 0
        self.events: list[Path] = []
        """What each process recorded."""
        self.cpu_s = 0.0
        """Of the processes that were killed."""

    def start(self) -> None:
        """Start it."""
        self.events.append(self.folder / f"events-{len(self.events)}.jsonl.gz")
        more = {"learning": self._learning, "events": {"file": str(self.events[-1])}}
        self.pid = self._stack.enter_context(running_flowsched(self.folder, 200, **more))

    def kill(self) -> None:
        """As where a machine fails: it may say nothing any more."""
        self.cpu_s += cpu_s(self.pid)
        os.kill(self.pid, signal.SIGKILL)
        self._stack.close()

    def stop(self) -> None:
        """Ask it to end."""
        self._stack.close()

    def ask(self, path: str) -> bytes:
        """What it answers over HTTP. Raises ``OSError`` while it does not."""
        log = (self.folder / "logs" / "flowsched.log").read_text(errors="replace")
        heard = re.search(r"listening .*loopback=(\S+)", log)
        if heard is None:
            raise OSError("it does not listen yet")
        with urllib.request.urlopen(f"http://{heard[1]}{path}", timeout=10) as reply:
            return bytes(reply.read())

    def factors(self) -> dict[str, float]:
        """What it has learnt: factors of classes; there is one type of machine."""
        return {entry["class"]: entry["factor"] for entry in json.loads(self.ask("/debug/state"))["learnt"]}


async def keep_asking(leader: Leader, seen: Seen) -> None:
    """Ask for ever when the pods that wait are going to start and to end."""
    while True:
        await asyncio.sleep(ASK_EVERY_S)
        try:
            state = json.loads(await asyncio.to_thread(leader.ask, "/debug/state"))
        except OSError:
            continue
        now = time.perf_counter()
        runs = {one["task"]: one["end_s"] - one["start_s"] for one in state["plan"] if one["end_s"] is not None}
        for entry in state["waiting"] if state["active"] else ():
            name = entry["pod"].split("/")[1]
            if "ends_in_s" not in entry:
                seen.unanswered[name] += 1
                continue
            start, end = (
                tuple(now + entry[key][word] for word in ("earliest", "expected", "latest"))
                for key in ("starts_in_s", "ends_in_s")
            )
            seen.answers[name].append(Answer(now, start, end, runs.get(entry["uid"], math.nan)))


async def run_pods(
    leader: Leader, nodes: Sequence[dict[str, Any]], pods: Sequence[TruePod], kills: int
) -> tuple[Seen, list[dict[str, Any]]]:
    """Let the pods come and end, and kill the leader so often; what was kept of what was learnt at each kill."""
    api = Api(leader.folder / "admin.kubeconfig")
    made = [("POST", "/api/v1/nodes", json.dumps(node).encode()) for node in nodes]
    await api.send_all(made, frozenset({201}))
    body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}
    await api.request("POST", "/api/v1/namespaces", body)
    seen = Seen()
    others = [asyncio.create_task(seen.follow(api)), asyncio.create_task(keep_asking(leader, seen))]
    last = pods[-1].arrives_s
    kill_at = [last * (k + 1) / (kills + 1) for k in range(kills)]
    kept: list[dict[str, Any]] = []
    history: list[tuple[float, dict[str, float]]] = []
    began = time.perf_counter()
    waiting = list(pods)
    try:
        while len(seen.ended_s) < len(pods):
            now = time.perf_counter() - began
            due = [pod for pod in waiting if pod.arrives_s <= now]
            waiting = waiting[len(due) :]
            requests = [("POST", PODS, json.dumps(pod_body(pod)).encode()) for pod in due]
            await api.send_all(requests, frozenset({201}))
            # The API server ends connections over which nothing is sent for a while.
            api.close()
            for other in others:
                if other.done():
                    other.result()
            if now > 4 * last + 600.0:
                raise BenchmarkError(f"{len(seen.ended_s)} of {len(pods)} pods ended after {now:.0f} s")
            with contextlib.suppress(OSError):
                history.append((now, await asyncio.to_thread(leader.factors)))
            if kill_at and now > kill_at[0]:
                kill_at.pop(0)
                before = next((factors for at, factors in reversed(history) if at <= now - WARM_S), {})
                leader.kill()
                version, saved = await saved_bases(api)
                await asyncio.to_thread(leader.start)
                kept.append(await compared(api, leader, before, version, saved))
                history.clear()
            await asyncio.sleep(1.0)
    finally:
        for other in others:
            other.cancel()
        await asyncio.gather(*others, return_exceptions=True)
        api.close()
    return seen, kept


async def saved_bases(api: Api) -> tuple[str, dict[str, float]]:
    """Version of the ConfigMap, and for each class in it the run time that its factor counts from, in seconds."""
    found = await api.request("GET", SAVED)
    saved, _ = read_saved(found["data"])
    return found["metadata"]["resourceVersion"], {row.runs.run_class: row.base_s for row in saved.rows}


async def compared(
    api: Api, leader: Leader, before: dict[str, float], version: str, bases: dict[str, float]
) -> dict[str, Any]:
    """What a new leader knows, once it has saved that itself, of the classes that were known a minute before a kill.

    A class is forgotten if it is not there, or counts from another run time; ``apart`` is by how much the run times that
    are expected of the others differ at most, as completions of that minute count too.
    """
    deadline = time.perf_counter() + 2 * WARM_S + 60.0
    while (now := await saved_bases(api))[0] == version and time.perf_counter() < deadline:
        await asyncio.sleep(1.0)
    factors = await asyncio.to_thread(leader.factors)
    there = [c for c in before if c in factors and now[1].get(c) == bases.get(c)]
    apart = [abs(np.log(factors[c] / before[c])) for c in there]
    return {
        "classes": len(before),
        "forgotten": len(before) - len(there),
        "apart": float(np.expm1(max(apart, default=0.0))),
        "saved_anew": now[0] != version,
    }


def judged(pods: Sequence[TruePod], seen: Seen) -> dict[str, Any]:
    """Errors of the answers about pods that came after the first wave; times of all pods."""
    first_end: dict[int, float] = {}
    for pod in pods:
        first_end[pod.owner] = min(first_end.get(pod.owner, np.inf), seen.ended_s[pod.name])
    told: list[tuple[float, ...]] = []
    silent = asked = 0
    for pod in pods:
        if pod.arrives_s == 0.0:
            continue
        usable = [a for a in seen.answers[pod.name] if a.asked_s >= first_end[pod.owner]]
        asked += bool(usable)
        silent += bool(not usable and seen.unanswered[pod.name])
        ended, started = seen.ended_s[pod.name], seen.started_s[pod.name]
        told += [
            (
                ended - answer.asked_s,
                answer.run_s / pod.run_s - 1.0,
                started - answer.start_s[1],
                ended - answer.end_s[1],
                answer.start_s[0] <= started <= answer.start_s[2],
                answer.end_s[0] <= ended <= answer.end_s[2],
                1.0 / len(usable),
                ended - seen.created_s[pod.name],
            )
            for answer in usable
        ]
    waits = [seen.started_s[p.name] - seen.created_s[p.name] for p in pods]
    completions = [seen.ended_s[p.name] - seen.created_s[p.name] for p in pods]
    left, run, start, end, start_held, end_held, share, completion = np.array(told, np.float64).reshape(-1, 8).T
    off = abs(end) / np.maximum(left, 1e-3)
    held = [float(np.average(h, weights=w)) if told else None for w in (None, share) for h in (start_held, end_held)]
    return {
        "pods": asked,
        "no_answer": silent,
        "answers": len(told),
        "time_left_s": _median(left),
        "error_of_run": _median(abs(run[~np.isnan(run)])),
        "error_of_start_s": _median(abs(start)),
        "error_of_end_s": _median(abs(end)),
        "late_s": _median(end),
        "error_of_end": _median(off),
        "error_of_completion": _median(abs(end) / completion),
        "starts_held": held[0],
        "ends_held": held[1],
        "pods_error_of_end": _weighted_median(off, share),
        "pods_starts_held": held[2],
        "pods_ends_held": held[3],
        "mean_wait_s": float(np.mean(waits)),
        "mean_completion_s": float(np.mean(completions)),
    }


def played(leader: Leader) -> list[str]:
    """What playing the events of each leader says, in a line each."""
    return [play(path).verdict() for path in leader.events]


@contextlib.contextmanager
def site(learning: str) -> Iterator[Leader]:
    """A fresh control plane, and flowsched on it."""
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="k8s-learning-")))
        stack.enter_context(running_plane(folder, ("kwok",), 5000))
        leader = Leader(folder, learning)
        leader.start()
        stack.callback(leader.stop)
        yield leader


@click.command()
@click.option("--pods", default=1500, show_default=True, type=click.IntRange(1))
@click.option("--owners", default=12, show_default=True, type=click.IntRange(1))
@click.option("--first-wave", default=5, show_default=True, type=click.IntRange(1), help="Pods of each owner.")
@click.option("--nodes", default=20, show_default=True, type=click.IntRange(1))
@click.option("--cores", default=8, show_default=True, type=click.IntRange(4), help="Of each node.")
@click.option("--median-run", default=18.0, show_default=True, help="Median of the owners' run times in seconds.")
@click.option("--load", default=1.1, show_default=True, help="What comes, as a share of what all cores can do.")
@click.option("--kills", default=2, show_default=True, type=click.IntRange(0), help="How often the leader is killed.")
@click.option("--seed", default=0, show_default=True)
@click.option("--learning", "modes", multiple=True, default=("on", "off"), show_default=True)
@click.option("--store/--no-store", default=False, help="Write the results to benchmarks/results.")
def main(
    pods: int,
    owners: int,
    first_wave: int,
    nodes: int,
    cores: int,
    median_run: float,
    load: float,
    kills: int,
    seed: int,
    modes: tuple[str, ...],
    store: bool,
) -> None:
    """Let pods without profiles come, and judge what flowsched told of their ends."""
    drawn = drawn_pods(seed, pods, owners, first_wave, nodes * cores, median_run, load)
    there = [node_named(f"node-{k:03d}", cores) for k in range(nodes)]
    rows: list[dict[str, Any]] = []
    for mode in modes:
        say(f"learning: {mode}, {pods} pods over {drawn[-1].arrives_s:.0f} s")
        with site(mode) as leader:
            seen, kept = asyncio.run(run_pods(leader, there, drawn, kills if mode == "on" else 0))
            used = leader.cpu_s + cpu_s(leader.pid)
            memory = rss_mib(leader.pid)
            leader.stop()
            events = played(leader)
        rows.append(
            {
                "learning": mode,
                **judged(drawn, seen),
                "kept": kept,
                "events": events,
                "cpu_s": round(used, 2),
                "rss_mib": round(memory, 1),
            }
        )
    table = text_table([HEADS, *([_cell(row[head]) for head in HEADS] for row in rows)], left=(0,), indent="")
    notes = [f"learning: {r['learning']}, {_of_kill(k)}" for r in rows for k in r["kept"]]
    notes += [f"learning: {r['learning']}, events played: {verdict}" for r in rows for verdict in r["events"]]
    site_told = f"{pods} pods of {owners} owners, {nodes} nodes of {cores} cores, load {load:g}, seed {seed}"
    foot = f"{site_told}. {measured_on(describe_machine())}"
    text = "\n".join([*table, *notes, foot])
    click.echo(text)
    if store:
        (RESULTS / f"k8s-learning-{load:g}.json").write_text(
            json.dumps({"rows": rows, "options": {"seed": seed, "pods": pods, "load": load}}, indent=1) + "\n"
        )
        (RESULTS / f"k8s-learning-{load:g}.txt").write_text(text + "\n")


def _median(values: FloatArray) -> float | None:
    return float(np.median(values)) if len(values) else None


def _weighted_median(values: FloatArray, weights: FloatArray) -> float | None:
    if not len(values):
        return None
    order = np.argsort(values)
    below = np.cumsum(weights[order])
    return float(values[order][np.searchsorted(below, below[-1] / 2)])


def _of_kill(kept: dict[str, Any]) -> str:
    text = f"leader killed: of {kept['classes']} classes known a minute before, {kept['forgotten']} forgotten"
    return f"{text}, run times of the others apart by at most {kept['apart']:.1%}"


def _cell(value: Any) -> str:
    return "-" if value is None else f"{value:.3f}" if isinstance(value, float) else str(value)


if __name__ == "__main__":
    main()
