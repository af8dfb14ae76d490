"""Is `kube-default` of the simulator the real kube-scheduler? Decision by decision, and score by score.

Pods are created one at a time on a fresh control plane and bound by the real kube-scheduler, which scores all nodes
(`percentageOfNodesToScore: 100`). Before each of them `kube-default` scores the nodes where the pod fits, in the state that
the real one's bindings have led to. A decision agrees if the chosen node is among those with the best score; where both
find no node, it agrees as well. For the others, and for all scores, the plug-in is named whose scores tell the nodes apart
in another way than the real one's, which the log of kube-scheduler has.

    python -m benchmarks.kube_default_agreement --nodes 20 --pods 500

The streams of pods are described in `benchmarks/pod_stream.py`.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import click
import msgspec
import numpy as np

from benchmarks.k8s_throughput import RESULTS, Api, BenchmarkError, control_plane, running_plane, say
from benchmarks.machine import describe_machine, measured_on
from benchmarks.pod_stream import STREAMS, Json, Step, draw_nodes, draw_steps
from flowsched_k8s.changes import Gone, Seen
from flowsched_k8s.configuration.configuration import Configuration, CostModelChoice, SchedulerProfile
from flowsched_k8s.objects import Node, Pod
from flowsched_k8s.records.snapshot_export import snapshot_of
from flowsched_k8s.state import SchedulerState
from flowsched_models.profiles import load_catalogue
from flowsched_simulator.baselines.granting import Granting
from flowsched_simulator.baselines.greedy_round import Round
from flowsched_simulator.baselines.kube_default import KubeDefault

SCHEDULER = "default-scheduler"
SPACE = "agreement"
LOG = Path("logs", "kube-scheduler.log")
"""In the control plane's folder."""
PATIENCE_S = 120.0
FILTER = "filter"
"""Stands among plug-ins for one that finds other nodes possible."""
Scores = Mapping[str, Mapping[str, int]]
"""By plug-in the score of each node."""
_HEARD = re.compile(r'(?:Add event for node" node|Delete event for scheduled pod" pod)="[^"]+"')
_SCORED = re.compile(r'"Plugin scored node for pod" pod="([^"]+)" plugin="([^"]+)" node="([^"]+)" score=(-?\d+)')


@dataclass(frozen=True)
class Decision:
    """What both said of one pod."""

    pod: str
    kind: str
    chosen: str
    """By the real one; empty for no node."""
    simulated: Scores
    feasible: tuple[str, ...]
    """Nodes where it fits, by the simulator."""


@dataclass
class Tally:
    """Decisions of one kind of pod."""

    decisions: int = 0
    agree: int = 0
    by_lot: float = 0.0
    """How many would agree on average if any node where the pod fits were drawn."""
    choices: int = 0
    """Decisions in which there was more than one such node."""
    choices_agree: int = 0
    same_scores: int = 0
    """Choices in which no plug-in tells the nodes apart in another way."""
    blamed: Counter[str] = field(default_factory=Counter)
    """By plug-in, choices that do not agree and in which its scores prefer the node that was chosen."""

    def add(self, other: Tally) -> None:
        for name in ("decisions", "agree", "by_lot", "choices", "choices_agree", "same_scores"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.blamed.update(other.blamed)


# The simulator's side


class Simulated:
    """`kube-default` in the state that the API server's objects describe."""

    def __init__(self) -> None:
        # With a cost model every pod is a task of the snapshot, those without a request too.
        choice = CostModelChoice("load-spreading")
        self._state = SchedulerState(
            Configuration(cost_model=choice, profiles=(SchedulerProfile(scheduler_name=SCHEDULER),)), load_catalogue()
        )
        self._policy = KubeDefault(Granting("declared", "shared"))
        self._now = 0.0

    def see(self, thing: Json, type_: type[Node] | type[Pod], gone: bool = False) -> None:
        self._now += 1.0
        read = msgspec.json.decode(msgspec.json.encode(thing), type=type_)
        self._state.observe([Gone(read) if gone else Seen(read)], self._now)

    def scores(self) -> tuple[Scores, tuple[str, ...]]:
        """For the one pod that waits: scores by plug-in and node, and the nodes where it fits."""
        snapshot, remarks = snapshot_of(self._state, self._now)
        if len(snapshot.pending) != 1:
            raise BenchmarkError(f"one pod must wait, got {len(snapshot.pending)}; {'; '.join(remarks)}")
        (task,) = snapshot.pending
        this = Round(snapshot, own_cores=self._policy.has_own_cores())
        width = self._policy.width_milli(task, this)
        by_plugin: dict[str, dict[str, int]] = {}
        rooms = this.candidates(task, width)
        for room in rooms:
            for plugin, score in self._policy.plugin_scores(task, width, room).items():
                by_plugin.setdefault(plugin, {})[room.name] = score
        return by_plugin, tuple(r.name for r in rooms)


# The real one's side


def read_scores(lines: Iterable[str]) -> dict[str, dict[str, dict[str, int]]]:
    """Scores in kube-scheduler's log by pod, plug-in and node; the weights of plug-ins are in them."""
    found: dict[str, dict[str, dict[str, int]]] = {}
    for line in lines:
        if match := _SCORED.search(line):
            pod = match[1].rpartition("/")[2]
            found.setdefault(pod, {}).setdefault(match[2], {})[match[3]] = int(match[4])
    return found


class SchedulerLog:
    """What kube-scheduler has heard of: its watches run beside each other, so an object's change may come after the next."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._read = 0
        self._said: set[str] = set()

    async def heard(self, *lines: str) -> None:
        """Wait until each of these parts of a line stands there."""
        missing = set(lines)
        async with asyncio.timeout(PATIENCE_S):
            while missing:
                with self._path.open("rb") as log:
                    log.seek(self._read)
                    new = log.read()
                whole = new[: new.rfind(b"\n") + 1]
                self._read += len(whole)
                self._said.update(m[0] for m in _HEARD.finditer(whole.decode(errors="replace")))
                if missing := missing - self._said:
                    await asyncio.sleep(0.005)


async def play(api: Api, log: SchedulerLog, nodes: Sequence[Json], steps: Iterable[Step]) -> list[Decision]:
    """One pod after the other; each is looked at by the simulator before the real one binds it."""
    simulated = Simulated()
    for node in nodes:
        simulated.see(await api.request("POST", "/api/v1/nodes", node), Node)
    await log.heard(*(f'Add event for node" node="{node["metadata"]["name"]}"' for node in nodes))
    pods = f"/api/v1/namespaces/{SPACE}/pods"
    await api.request(
        "POST", "/api/v1/namespaces", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": SPACE}}
    )
    decisions: list[Decision] = []
    there: set[str] = set()
    for step in steps:
        if step.body is None:
            if step.pod in there:
                simulated.see(await _delete(api, pods, step.pod), Pod, gone=True)
                there.remove(step.pod)
                await log.heard(f'Delete event for scheduled pod" pod="{SPACE}/{step.pod}"')
            continue
        simulated.see(await api.request("POST", pods, step.body), Pod)
        scores, feasible = simulated.scores()
        pod = await _decided(api, f"{pods}/{step.pod}")
        chosen = pod["spec"].get("nodeName", "")
        decisions.append(Decision(step.pod, step.kind, chosen, scores, feasible))
        if chosen:
            simulated.see(pod, Pod)
            there.add(step.pod)
        else:
            simulated.see(await _delete(api, pods, step.pod), Pod, gone=True)
        if len(decisions) % 100 == 0:
            say(f"{len(decisions)} pods")
    return decisions


async def _delete(api: Api, pods: str, name: str) -> Json:
    pod = await api.request("GET", f"{pods}/{name}")
    await api.request("DELETE", f"{pods}/{name}?gracePeriodSeconds=0")
    return pod


async def _decided(api: Api, path: str) -> Json:
    """The pod once it is bound, or said to fit nowhere."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            pod = await api.request("GET", path)
            conditions = pod["status"].get("conditions", ())
            if pod["spec"].get("nodeName") or any(c["type"] == "PodScheduled" for c in conditions):
                return pod
            await asyncio.sleep(0.005)


# The comparison


def judge(decision: Decision, real: Scores) -> Tally:
    """Whether a decision agrees, and whose scores differ. ``real`` is empty where the real one had nothing to choose."""
    feasible, chosen = decision.feasible, decision.chosen
    total = {n: sum(scores[n] for scores in decision.simulated.values()) for n in feasible}
    best = [n for n in feasible if total[n] == max(total.values())]
    agrees = chosen in best if chosen else not feasible
    tally = Tally(1, int(agrees), len(best) / len(feasible) if feasible else float(agrees))
    if len(feasible) < 2 and agrees:
        return tally
    tally.choices, tally.choices_agree = 1, int(agrees)
    compared = {n for scores in real.values() for n in scores}
    if (compared or {chosen} - {""}) != set(feasible):
        tally.blamed[FILTER] += 1
        return tally
    plugins = sorted(real.keys() | decision.simulated.keys())
    gap = {
        p: {n: real.get(p, {}).get(n, 0) - decision.simulated.get(p, {}).get(n, 0) for n in feasible} for p in plugins
    }
    tally.same_scores = int(all(len(set(gap[p].values())) == 1 for p in plugins))
    if not agrees:
        tally.blamed.update(p for p in plugins if any(gap[p][chosen] > gap[p][n] for n in best))
    return tally


def tallies(decisions: Iterable[Decision], real: Mapping[str, Scores]) -> dict[str, Tally]:
    """By kind of pod."""
    found: dict[str, Tally] = {}
    for decision in decisions:
        found.setdefault(decision.kind, Tally()).add(judge(decision, real.get(decision.pod, {})))
    return dict(sorted(found.items()))


def table(by_stream: Mapping[str, Mapping[str, Tally]]) -> str:
    """A line for each stream, above it one for each kind of pod that it is about; all kinds for the first."""
    rows = [("stream", "pods", "decisions", "agree %", "choices", "agree %", "by lot %", "same scores %", "plug-ins")]
    for stream, by_kind in by_stream.items():
        whole = Tally()
        for tally in by_kind.values():
            whole.add(tally)
        own = STREAMS[stream] or (tuple(by_kind) if stream == "requests" else ())
        rows += [_row(stream, kind, by_kind[kind]) for kind in own if kind in by_kind]
        rows.append(_row(stream, "all", whole))
    widths = [max(len(row[c]) for row in rows) for c in range(len(rows[0]))]
    left = (0, 1, len(rows[0]) - 1)
    return "\n".join(
        "  ".join(f"{cell:{'<' if c in left else '>'}{widths[c]}}" for c, cell in enumerate(row)).rstrip()
        for row in rows
    )


def _row(stream: str, kind: str, t: Tally) -> tuple[str, ...]:
    blamed = ", ".join(f"{plugin} {count}" for plugin, count in sorted(t.blamed.items(), key=lambda b: (-b[1], b[0])))
    shares = (t.agree, t.decisions), (t.choices_agree, t.choices), (t.by_lot, t.decisions), (t.same_scores, t.choices)
    whole, choice, lot, same = (f"{100.0 * part / all_:.1f}" if all_ else "-" for part, all_ in shares)
    return stream, kind, str(t.decisions), whole, str(t.choices), choice, lot, same, blamed or "-"


def measure(stream: str, nodes: int, pods: int, seed: int) -> dict[str, Tally]:
    """Play one stream on a fresh control plane."""
    rng = np.random.default_rng([seed, list(STREAMS).index(stream)])
    drawn = draw_nodes(stream, nodes, rng)
    with tempfile.TemporaryDirectory(prefix="agreement-") as name:
        folder = Path(name)
        with running_plane(folder, ["kube-scheduler"], 5000, "--scheduler-scores"):
            decisions = asyncio.run(_play(folder, drawn, draw_steps(stream, pods, drawn, rng)))
        with (folder / LOG).open(errors="replace") as log:
            return tallies(decisions, read_scores(log))


async def _play(folder: Path, nodes: Sequence[Json], steps: Iterator[Step]) -> list[Decision]:
    api = Api(folder / "admin.kubeconfig")
    try:
        return await play(api, SchedulerLog(folder / LOG), nodes, steps)
    finally:
        api.close()


@click.command()
@click.option("--nodes", default=20, show_default=True, type=click.IntRange(2))
@click.option("--pods", default=500, show_default=True, type=click.IntRange(1), help="Of each stream.")
@click.option("--seed", default=0, show_default=True, type=click.IntRange(0))
@click.option("--stream", "streams", multiple=True, type=click.Choice(tuple(STREAMS)), help="Only this one.")
@click.option("--keep", is_flag=True, help="Keep the result under benchmarks/results.")
def main(nodes: int, pods: int, seed: int, streams: tuple[str, ...], keep: bool) -> None:
    """Measure and print a table."""
    version = control_plane("version").strip()
    try:
        found = {stream: measure(stream, nodes, pods, seed) for stream in streams or STREAMS}
    except BenchmarkError as error:
        raise click.ClickException(str(error)) from None
    machine = describe_machine()
    text = f"{table(found)}\n\nKubernetes {version}, {nodes} nodes, {pods} pods of each stream, seed {seed}."
    click.echo(f"{text} {measured_on(machine)}")
    if keep:
        kept: dict[str, Any] = {"kubernetes": version, "nodes": nodes, "pods": pods, "seed": seed}
        kept["streams"] = {
            stream: {kind: msgspec.to_builtins(tally) for kind, tally in by_kind.items()}
            for stream, by_kind in found.items()
        }
        kept |= {"machine": machine, "load_average": os.getloadavg()[0]}
        (RESULTS / "kube-default-agreement.json").write_text(json.dumps(kept, indent=1) + "\n", encoding="utf-8")
        (RESULTS / "kube-default-agreement.txt").write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
