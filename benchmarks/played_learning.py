"""Pods of a dozen owners through the scheduler's state machine, without a control plane: what learning tells of their ends.

The pods of `k8s_learning`, with and without declared run times, on nodes that run and end them at once. Nothing takes time
but the pods, so the machine that plays them changes no result. Pods without declared run times are asked for as there while
they wait, which is the first table, and as often while they run: the second table has both, and all of them. Errors are
relative to the time that is left, and those of the last column to the time from a pod's arrival to its end.

`--informed` adds, for the pods that wait some two minutes apart, what forecasters would tell that know more, and what the
scheduler will decide: a copy of this process plays on from there. *No more* knows how long every pod runs which is there,
and takes none to come later. *Drawn* knows the same, and is the median of copies to which as many pods come as are still to
come, at the same rate, each like one of all that come: so it knows all but which pods come later. *All drawn* knows only
the laws: the run times of the pods that are there are drawn as well, each like one of its owner that ran for as long.

    python -m benchmarks.played_learning
    python -m benchmarks.played_learning --seeds 0-2 --pods 500 --informed --no-keep
"""

from __future__ import annotations

import heapq
import json
import math
import multiprocessing
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence, Set
from dataclasses import replace
from datetime import UTC, datetime
from multiprocessing.connection import Connection
from pathlib import Path
from random import Random
from statistics import fmean, median
from typing import Any

import click
import msgspec
import numpy as np

from benchmarks.k8s_learning import Answer, Seen, TruePod, drawn_pods, judged, pod_body
from benchmarks.k8s_throughput import node_named
from benchmarks.machine import describe_machine, measured_on
from benchmarks.seed_range import SeedRange
from flowsched.solvers import make_solver
from flowsched_k8s import changes as watched
from flowsched_k8s import names
from flowsched_k8s.configuration.configuration import Configuration
from flowsched_k8s.learning.learner import LEARNT
from flowsched_k8s.learning.saved_runs import Saved
from flowsched_k8s.objects import FinishedPod, Node, Pod
from flowsched_k8s.pods.entries import PodEntry
from flowsched_k8s.rounds.planning import make_engine, plan_round
from flowsched_k8s.state import SchedulerState
from flowsched_models.profiles import load_catalogue
from flowsched_models.text_table import text_table

RESULTS = Path(__file__).parent / "results"
LOADS = (0.7, 0.9, 1.1)
OWNERS, FIRST_WAVE, NODES, CORES, MEDIAN_RUN_S = 12, 5, 20, 8, 18.0
START_S = 1_767_225_600.0
STEP_S = 0.5
"""Time passes in steps of this."""
ASK_EVERY_S = 3.0
INFORM_EVERY_S, DRAWS = 120.0, 3
"""How often forecasts are compared with those of one who is informed, and of how many copies that is the median."""
HEADS = {
    "load": "load",
    "answers": "answers",
    "time_left_s": "left s",
    "error_of_run": "error of run",
    "error_of_end": "of end",
    "late_s": "late s",
    "starts_held": "starts held",
    "ends_held": "ends held",
    "pods_error_of_end": "of end, by pod",
    "pods_starts_held": "starts held",
    "pods_ends_held": "ends held",
}


TOLD, NO_MORE, DRAWN, ALL_DRAWN = INFORMED = ("told", "no more", "drawn", "all drawn")
"""What flowsched tells, and what forecasters would that know more; see above."""
WHICH = ("waiting", "running", "all")
ASKED = {
    "answers": "answers",
    "error_of_end": "error of end",
    "ends_held": "ends held",
    "pods_error_of_end": "error of end, by pod",
    "pods_ends_held": "ends held",
    "error_of_completion": "of completion",
}
Moments = Mapping[str, tuple[float, float]]
"""When pods start and end."""


class Playing:
    """Pods on their way through a state machine that leads, with `learning` as it is told."""

    def __init__(
        self, learning: str, pods: Sequence[TruePod], nodes: int, declared: bool, informed: bool = False
    ) -> None:
        """The nodes are there. ``declared``: pods say how long their owner's pods run. ``informed``: see the module."""
        self._informed = informed
        self._state = SchedulerState(Configuration.model_validate({"learning": learning}), load_catalogue(), Random(0))
        solver = make_solver("ortools")
        self._solver, self._engine = solver, make_engine(self._state.configuration.engine, solver)
        self._coming = list(reversed(pods))
        self._pods = {pod.name: pod for pod in pods}
        owners = {pod.owner for pod in pods}
        run_s = {owner: median(pod.run_s for pod in pods if pod.owner == owner) for owner in owners if declared}
        self._notes = {owner: {names.RUN_TIME: f"{seconds:.0f}s"} for owner, seconds in run_s.items()}
        self.seen = Seen()
        self.running: dict[str, list[Answer]] = defaultdict(list)
        """By pod, what was told of it while it ran."""
        self.compared: dict[str, dict[str, list[Answer]]] = {of: defaultdict(list) for of in INFORMED}
        """By pod, what was told of it, and what one tells who is informed, at the same moments."""
        self._bodies: dict[str, dict[str, Any]] = {}
        self._running: list[tuple[float, str, str]] = []
        """When each of them ends, its name and node."""
        self._state.observe([watched.Seen(_node(number)) for number in range(nodes)], START_S)
        if self._state.learner is not None:
            self._state.learner.lead(Saved(until_s=START_S), START_S)
        self._state.activate()
        self._now = START_S
        self._compare_s = START_S + INFORM_EVERY_S
        """From when on forecasts are compared again, as soon as a pod waits that counts."""
        self.rounds = 0
        self.cpu_s = 0.0

    def play(self) -> None:
        """Until the last pod has ended."""
        while self._coming or self._bodies:
            self._step()
            if self._now % ASK_EVERY_S == 0.0:
                self._ask(self._now)
                if self._informed and self._now >= self._compare_s:
                    self._compare(self._now)

    def _step(self) -> None:
        """Let a little time pass."""
        self._now = now = self._now + STEP_S
        changes, finished = self._due(now)
        began = time.process_time()
        self._state.observe(changes, now)
        if self._state.learner is not None:
            self._state.learner.finished(finished, now)
            if now % 1.0 == 0.0 or not self._bodies:
                self._state.learner.learn(now)
        bound = self._round(now)
        self._state.observe(bound, now)
        self.cpu_s += time.process_time() - began
        for told in vars(self._state.tallies).values():
            told.clear()

    def _compare(self, now: float) -> None:
        """What was told of pods that wait, beside what one tells who is informed."""
        told = {uid: answers[-1] for uid, answers in self.seen.answers.items() if answers[-1].asked_s == now}
        known = {self._pods[uid].owner for uid in self.seen.ended_s}
        told = {
            uid: answer for uid, answer in told.items() if self._pods[uid].arrives_s and self._pods[uid].owner in known
        }
        if not told:
            return
        self._compare_s = now + INFORM_EVERY_S
        moments = {NO_MORE: self._played_on(told.keys(), [], None)}
        for of in (DRAWN, ALL_DRAWN):
            draws = []
            for draw in range(DRAWS):
                rng = np.random.default_rng([round(now - START_S), draw])
                draws.append(self._played_on(told.keys(), self._later(rng), rng if of == ALL_DRAWN else None))
            moments[of] = {uid: _middle([found[uid] for found in draws]) for uid in told}
        for uid, answer in told.items():
            self.compared[TOLD][uid].append(answer)
            for of, found in moments.items():
                start_s, end_s = found[uid]
                answer = Answer(now, (start_s,) * 3, (end_s,) * 3, self._pods[uid].run_s)
                self.compared[of][uid].append(answer)

    def _later(self, rng: np.random.Generator) -> list[TruePod]:
        """As many pods as are still to come, at the rate of all that come after the first wave, each like one of them."""
        count, here_s = len(self._coming), self._now - START_S
        all_later = [pod for pod in self._pods.values() if pod.arrives_s > 0.0]
        like = rng.integers(len(all_later), size=count).tolist()
        arrives = here_s + np.cumsum(rng.exponential(all_later[-1].arrives_s / len(all_later), size=count))
        return [
            replace(all_later[k], name=f"{all_later[k].name}-{i}", arrives_s=at)
            for i, (k, at) in enumerate(zip(like, arrives.tolist(), strict=True))
        ]

    def _played_on(self, uids: Set[str], coming: Sequence[TruePod], runs: np.random.Generator | None) -> Moments:
        """When pods that wait start and end if these come later: by a copy of this process, which stays as it is. ``runs``
        draws the run times of what is there; None: they are true.
        """
        processes = multiprocessing.get_context("fork")
        receiver, sender = processes.Pipe(duplex=False)
        copy = processes.Process(target=self._play_on, args=(frozenset(uids), coming, runs, sender))
        copy.start()
        sender.close()
        found: Moments = receiver.recv()
        copy.join()
        return found

    def _play_on(
        self, uids: Set[str], coming: Sequence[TruePod], runs: np.random.Generator | None, sender: Connection
    ) -> None:
        started_s, ended_s = self.seen.started_s, self.seen.ended_s
        if runs is not None:
            of_owner = defaultdict(list)
            for pod in self._pods.values():
                of_owner[pod.owner].append(pod.run_s)
            for name in self._bodies:
                pod, ran_s = self._pods[name], self._now - started_s.get(name, self._now)
                longer = [run_s for run_s in of_owner[pod.owner] if run_s > ran_s]
                self._pods[name] = replace(pod, run_s=longer[int(runs.integers(len(longer)))])
            self._running = [(started_s[n] + self._pods[n].run_s, n, node) for _, n, node in self._running]
            heapq.heapify(self._running)
        self._coming = list(reversed(coming))
        self._pods |= {pod.name: pod for pod in coming}
        while not uids <= ended_s.keys():
            self._step()
        sender.send({uid: (started_s[uid], ended_s[uid]) for uid in uids})

    def _ask(self, now: float) -> None:
        """When the pods that wait are going to start and to end, and when those that run are."""
        state = self._state
        for uid, entry in state.cache.pods.items():
            estimate, plan = state.starts.of(uid), state.plan.get(uid)
            if entry.place:
                self._ask_running(uid, entry, now)
                continue
            if estimate is None or estimate.end is None:
                self.seen.unanswered[uid] += 1
                continue
            run_s = math.nan
            if plan is not None and plan.start_s is not None and plan.end_s is not None:
                run_s = plan.end_s - plan.start_s
            self.seen.answers[uid].append(Answer(now, estimate.start, estimate.end, run_s))

    def _ask_running(self, uid: str, entry: PodEntry, now: float) -> None:
        """When a pod ends that runs, as rounds take it; nothing slows a pod down that has no profile."""
        learnt = self._state.cache.learnt.of(entry.priced_class)
        began_s = self.seen.started_s[uid]
        if learnt is not None and entry.learnt_s is not None:
            done = (now - began_s) / entry.learnt_s
            lengths = (learnt.late_length(done, 0.1), learnt.length(done), learnt.late_length(done, 0.9))
            ends_s = tuple(began_s + length * entry.learnt_s for length in lengths)
            self.running[uid].append(Answer(now, (began_s, began_s, began_s), ends_s, math.nan))

    @property
    def learnt(self) -> int:
        """How many completions taught something."""
        learner = self._state.learner
        return 0 if learner is None else learner.tallies.ends[LEARNT]

    def _due(self, now: float) -> tuple[list[watched.Change], list[FinishedPod]]:
        """What the two watches tell."""
        changes: list[watched.Change] = []
        finished = []
        while self._coming and START_S + self._coming[-1].arrives_s <= now:
            pod = self._coming.pop()
            body = pod_body(pod)
            meta = {"namespace": "default", "uid": pod.name, "creationTimestamp": _moment(now)}
            body["metadata"] |= meta
            body["metadata"]["annotations"] = self._notes.get(pod.owner, {})
            self.seen.created_s[pod.name] = now
            self._bodies[pod.name] = body
            changes.append(watched.Seen(msgspec.convert({**body, "status": {"phase": "Pending"}}, Pod)))
        while self._running and self._running[0][0] <= now:
            at_s, name, node = heapq.heappop(self._running)
            body = self._bodies.pop(name)
            body["spec"]["nodeName"] = node
            changes.append(watched.Gone(msgspec.convert({**body, "status": {"phase": "Running"}}, Pod)))
            ended = {"startedAt": _moment(at_s - self._pods[name].run_s), "finishedAt": _moment(at_s)}
            status = {"containerStatuses": [{"restartCount": 0, "state": {"terminated": ended}}]}
            finished.append(msgspec.convert({**body, "status": status}, FinishedPod))
            self.seen.ended_s[name] = now
        return changes, finished

    def _round(self, now: float) -> list[watched.Change]:
        """A round, if one is due; what it binds runs at once."""
        due = self._state.next_round_s(now)
        given = self._state.begin_round(now, keep_record=False)[0] if due is not None and due <= now else None
        if given is None:
            return []
        result = plan_round(given, self._solver, self._engine)
        self._state.end_round(result, now)
        self.rounds += 1
        bound: list[watched.Change] = []
        for chosen in result.chosen:
            body = self._bodies[chosen.uid]
            status = {"phase": "Running", "startTime": _moment(now)}
            placed = {**body, "spec": {**body["spec"], "nodeName": chosen.node}, "status": status}
            bound.append(watched.Seen(msgspec.convert(placed, Pod)))
            self.seen.started_s[chosen.uid] = now
            heapq.heappush(self._running, (now + self._pods[chosen.uid].run_s, chosen.uid, chosen.node))
        return bound


def _middle(moments: Sequence[tuple[float, float]]) -> tuple[float, float]:
    """The medians of starts and ends."""
    starts_s, ends_s = zip(*moments, strict=True)
    return median(starts_s), median(ends_s)


def measured(load: float, seeds: Sequence[int], pods: int, informed: bool = False) -> dict[str, Any]:
    """One row: means over seeds of what the answers of each come to."""
    found = []
    for seed in seeds:
        drawn = drawn_pods(seed, pods, OWNERS, FIRST_WAVE, NODES * CORES, MEDIAN_RUN_S, load)
        playing = Playing("on", drawn, NODES, declared=False, informed=informed)
        playing.play()
        seen, running = playing.seen, playing.running
        of = {
            "waiting": judged(drawn, seen),
            "running": judged(drawn, replace(seen, answers=running)),
            "all": judged(
                drawn, replace(seen, answers={p.name: seen.answers[p.name] + running[p.name] for p in drawn})
            ),
        } | {of: judged(drawn, replace(seen, answers=playing.compared[of])) for of in INFORMED if informed}
        found.append(of["waiting"] | {f"{which}_{key}": row[key] for which, row in of.items() for key in ASKED})
    known = {key: [row[key] for row in found if row[key] is not None] for key in found[0]}
    return {"load": load, **{key: fmean(values) if values else None for key, values in known.items()}}


def table(rows: Sequence[dict[str, Any]]) -> str:
    """A line for each load, and below that one for each load and what pods did as they were asked for."""
    lines = [[*HEADS.values()]]
    for row in rows:
        cells = [f"{row['load']:g}", f"{row['answers']:,.0f}", _told(row["time_left_s"], ".1f")]
        lines.append(cells + [_told(row[key], ".1f" if key == "late_s" else ".1%") for key in [*HEADS][3:]])
    asked = [["load", "asked", *ASKED.values()]]
    for row in rows:
        for which in WHICH:
            answers, *shares = (row[f"{which}_{key}"] for key in ASKED)
            asked.append([f"{row['load']:g}", which, f"{answers:,.0f}", *(_told(share, ".1%") for share in shares)])
    tables = [text_table(lines, left=()), text_table(asked, left=(1,))]
    if all("drawn_answers" in row for row in rows):
        heads = [f"of {what}: {of}" for what in ("end", "completion") for of in INFORMED]
        informed = [["load", "answers", *heads]]
        for row in rows:
            shares = [row[f"{of}_{key}"] for key in ("error_of_end", "error_of_completion") for of in INFORMED]
            informed.append(
                [f"{row['load']:g}", f"{row['drawn_answers']:,.0f}", *(_told(share, ".1%") for share in shares)]
            )
        tables.append(text_table(informed, left=()))
    return "\n\n".join("\n".join(lines) for lines in tables)


def _told(value: float | None, form: str) -> str:
    """A value, and a dash where no answer tells it."""
    return "-" if value is None else f"{value:{form}}"


@click.command()
@click.option("--seeds", type=SeedRange(), default="0-4", show_default=True, help="Of each load.")
@click.option("--pods", default=1500, show_default=True, type=click.IntRange(OWNERS * FIRST_WAVE + 1))
@click.option("--informed", is_flag=True, help="Also what one would tell who knows all but the pods that come later.")
@click.option("--keep/--no-keep", default=True, help="Keep the result under benchmarks/results.")
def main(seeds: range, pods: int, informed: bool, keep: bool) -> None:
    """Measure and print a table."""
    rows = [measured(load, seeds, pods, informed) for load in LOADS]
    machine = describe_machine()
    told = f"Means over seeds {seeds[0]} to {seeds[-1]}, {pods} pods, {NODES} nodes of {CORES} cores"
    text = f"{table(rows)}\n{told}. {measured_on(machine)}"
    click.echo(text)
    if keep:
        result = {"seeds": [seeds[0], seeds[-1]], "pods": pods, "rows": rows, "machine": machine}
        (RESULTS / "played_learning.json").write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
        (RESULTS / "played_learning.txt").write_text(text + "\n", encoding="utf-8")


def _moment(at_s: float) -> str:
    return datetime.fromtimestamp(int(at_s), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _node(number: int) -> Node:
    body = node_named(f"node-{number:03d}", CORES)
    body["metadata"] |= {"uid": body["metadata"]["name"], "creationTimestamp": _moment(START_S)}
    return msgspec.convert({**body, "spec": {}}, Node)


if __name__ == "__main__":
    main()
