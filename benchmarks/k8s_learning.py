"""Pods of a dozen owners without profiles or run times on a real control plane: what learning tells of when they end.

Each owner has a run time of its own, log-normal over owners, and each pod differs from it a little; nobody declares any.
KWOK runs bound pods and ends them after their true times. A first wave of each owner's pods comes at once, the others at
random moments. Every few seconds flowsched is asked, at `/debug/state`, when the pods that wait are going to start and to
end; of each pod one answer counts, drawn from all that were given once its owner's first pod had ended. The leader is
killed twice. The same pods in the same order with `learning: off` are the peer.

    python -m benchmarks.k8s_learning
"""

from __future__ import annotations

import asyncio
import contextlib
import json
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
from flowsched_models.text_table import text_table

NAMESPACE = "learning"
PODS = f"/api/v1/namespaces/{NAMESPACE}/pods"
RUN_FOR = "flowsched.test/run-for"
"""How long KWOK runs a pod; flowsched does not look at it."""
OWNER_SIGMA, POD_SIGMA = 0.8, 0.15
"""Standard deviations of the logarithms of true run times: over owners, and over the pods of one."""
LEAST_RUN_S = 6.0
"""Shorter runs teach nothing, so owners are drawn again until theirs is longer."""
LOAD = 1.1
CORES_ASKED = (1, 2, 4)
ASK_EVERY_S = 3.0
WARM_S = 60.0
"""What was learnt longer before a kill than this must be there after it."""
HEADS = (
    "learning",
    "pods",
    "no_answer",
    "time_left_s",
    "error_of_start_s",
    "error_of_end_s",
    "error_of_end",
    "late_s",
    "starts_held",
    "ends_held",
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


def drawn_pods(seed: int, count: int, owners: int, first_wave: int, cores: int, median_s: float) -> list[TruePod]:
    """``first_wave`` pods of each owner at once, the others of random owners as a Poisson stream at the load."""
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
    gaps = rng.exponential(work / (LOAD * cores), size=len(later))
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
        self.cpu_s = 0.0
        """Of the processes that were killed."""

    def start(self) -> None:
        """Start it, with rounds recorded nowhere."""
        self.pid = self._stack.enter_context(running_flowsched(self.folder, 200, learning=self._learning))

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

    def learnt(self) -> int:
        """Completions that it has learnt from, over all classes; of one with 64 of them they begin to count half."""
        return sum(entry["runs"] for entry in json.loads(self.ask("/debug/state"))["learnt"])


async def keep_asking(leader: Leader, seen: Seen) -> None:
    """Ask for ever when the pods that wait are going to start and to end."""
    while True:
        await asyncio.sleep(ASK_EVERY_S)
        try:
            state = json.loads(await asyncio.to_thread(leader.ask, "/debug/state"))
        except OSError:
            continue
        now = time.perf_counter()
        for entry in state["waiting"] if state["active"] else ():
            name = entry["pod"].split("/")[1]
            if "ends_in_s" not in entry:
                seen.unanswered[name] += 1
                continue
            start, end = (
                tuple(now + entry[key][word] for word in ("earliest", "expected", "latest"))
                for key in ("starts_in_s", "ends_in_s")
            )
            seen.answers[name].append(Answer(now, start, end))


async def run_pods(
    leader: Leader, nodes: Sequence[dict[str, Any]], pods: Sequence[TruePod], kills: int
) -> tuple[Seen, list[tuple[int, int]]]:
    """Let the pods come and end, and kill the leader so often; (learnt a minute before, learnt after) of each kill."""
    api = Api(leader.folder / "admin.kubeconfig")
    made = [("POST", "/api/v1/nodes", json.dumps(node).encode()) for node in nodes]
    await api.send_all(made, frozenset({201}))
    body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}
    await api.request("POST", "/api/v1/namespaces", body)
    seen = Seen()
    others = [asyncio.create_task(seen.follow(api)), asyncio.create_task(keep_asking(leader, seen))]
    last = pods[-1].arrives_s
    kill_at = [last * (k + 1) / (kills + 1) for k in range(kills)]
    kept: list[tuple[int, int]] = []
    history: list[tuple[float, int]] = []
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
                history.append((now, await asyncio.to_thread(leader.learnt)))
            if kill_at and now > kill_at[0]:
                kill_at.pop(0)
                before = max((count for at, count in history if at <= now - WARM_S), default=0)
                leader.kill()
                await asyncio.to_thread(leader.start)
                after = await learnt_again(leader, before)
                kept.append((before, after))
                history.clear()
            await asyncio.sleep(1.0)
    finally:
        for other in others:
            other.cancel()
        await asyncio.gather(*others, return_exceptions=True)
        api.close()
    return seen, kept


async def learnt_again(leader: Leader, before: int) -> int:
    """What the new leader has learnt as soon as it knows as much as before, or after a minute."""
    found = 0
    for _ in range(60):
        await asyncio.sleep(1.0)
        with contextlib.suppress(OSError):
            found = await asyncio.to_thread(leader.learnt)
        if found >= before:
            break
    return found


def judged(pods: Sequence[TruePod], seen: Seen, seed: int) -> dict[str, Any]:
    """Errors of the answers, one a pod, of those that came after the first wave; times of all pods."""
    rng = np.random.default_rng([seed, 1])
    first_end: dict[int, float] = {}
    for pod in pods:
        first_end[pod.owner] = min(first_end.get(pod.owner, np.inf), seen.ended_s[pod.name])
    told: list[tuple[float, float, float, bool, bool]] = []
    silent = 0
    for pod in pods:
        if pod.arrives_s == 0.0:
            continue
        usable = [a for a in seen.answers[pod.name] if a.asked_s >= first_end[pod.owner]]
        if not usable:
            silent += bool(seen.unanswered[pod.name])
            continue
        answer = usable[int(rng.integers(len(usable)))]
        ended, started = seen.ended_s[pod.name], seen.started_s[pod.name]
        told.append(
            (
                ended - answer.asked_s,
                started - answer.start_s[1],
                ended - answer.end_s[1],
                answer.start_s[0] <= started <= answer.start_s[2],
                answer.end_s[0] <= ended <= answer.end_s[2],
            )
        )
    waits = [seen.started_s[p.name] - seen.created_s[p.name] for p in pods]
    completions = [seen.ended_s[p.name] - seen.created_s[p.name] for p in pods]
    left, start, end, start_held, end_held = np.array(told, np.float64).reshape(-1, 5).T
    return {
        "pods": len(told),
        "no_answer": silent,
        "time_left_s": _median(left),
        "error_of_start_s": _median(abs(start)),
        "error_of_end_s": _median(abs(end)),
        "error_of_end": _median(abs(end) / np.maximum(left, 1e-3)),
        "late_s": _median(end),
        "starts_held": float(start_held.mean()) if told else None,
        "ends_held": float(end_held.mean()) if told else None,
        "mean_wait_s": float(np.mean(waits)),
        "mean_completion_s": float(np.mean(completions)),
    }


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
    kills: int,
    seed: int,
    modes: tuple[str, ...],
    store: bool,
) -> None:
    """Let pods without profiles come, and judge what flowsched told of their ends."""
    drawn = drawn_pods(seed, pods, owners, first_wave, nodes * cores, median_run)
    there = [node_named(f"node-{k:03d}", cores) for k in range(nodes)]
    rows: list[dict[str, Any]] = []
    for mode in modes:
        say(f"learning: {mode}, {pods} pods over {drawn[-1].arrives_s:.0f} s")
        with site(mode) as leader:
            seen, kept = asyncio.run(run_pods(leader, there, drawn, kills if mode == "on" else 0))
            used = leader.cpu_s + cpu_s(leader.pid)
            memory = rss_mib(leader.pid)
        rows.append(
            {
                "learning": mode,
                **judged(drawn, seen, seed),
                "kept": kept,
                "cpu_s": round(used, 2),
                "rss_mib": round(memory, 1),
            }
        )
    table = text_table([HEADS, *([_cell(row[head]) for head in HEADS] for row in rows)], left=(0,), indent="")
    kills_told = [
        f"killed: {before} completions learnt a minute before, {after} after"
        for r in rows
        for before, after in r["kept"]
    ]
    foot = f"{pods} pods of {owners} owners, {nodes} nodes of {cores} cores, seed {seed}. {measured_on(describe_machine())}"
    text = "\n".join([*table, *kills_told, foot])
    click.echo(text)
    if store:
        (RESULTS / "k8s-learning.json").write_text(
            json.dumps({"rows": rows, "options": {"seed": seed, "pods": pods}}, indent=1) + "\n"
        )
        (RESULTS / "k8s-learning.txt").write_text(text + "\n")


def _median(values: FloatArray) -> float | None:
    return float(np.median(values)) if len(values) else None


def _cell(value: Any) -> str:
    return "-" if value is None else f"{value:.3f}" if isinstance(value, float) else str(value)


if __name__ == "__main__":
    main()
