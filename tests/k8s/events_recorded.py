"""Schedulers whose events are recorded, and what a round's input is apart from where its rows stand."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass, replace
from pathlib import Path
from typing import Any

from model_scheduler import SOLVER, ModelScheduler

from flowsched.cluster.snapshot import Snapshot
from flowsched.cluster.start_errors import NO_START_ERRORS
from flowsched.cluster.task_class import TaskClass
from flowsched.pricing.linear.policy import labels_of
from flowsched.round.linear.bulk_rows import bulk_rows
from flowsched.round.linear.places import ANYWHERE
from flowsched_k8s.configuration.cost_model import plain_cost_model
from flowsched_k8s.events.event_file import EventFile, EventReader
from flowsched_k8s.events.event_player import PlayedCluster
from flowsched_k8s.events.event_recorder import EventRecorder
from flowsched_k8s.events.live_events import RoundBegun
from flowsched_k8s.rounds.measured_pods import MeasuredPods
from flowsched_k8s.rounds.round_input import ClassInput, RoundInput

Inputs = dict[int, dict[str, Any]]


class Recorded:
    """Records a scheduler's events, and remembers the input of every round by its number."""

    def __init__(self, running: ModelScheduler, path: Path, most_bytes: int = 1 << 30, keep: int = 2) -> None:
        state = running.state
        self.path = path
        self.file = EventFile(path, keep)
        self.inputs: Inputs = {}
        recorder = EventRecorder(self.file, state.cache, state.inputs.occupied, SOLVER.name, most_bytes)
        begun = recorder.begun

        def remember(given: RoundInput) -> None:
            begun(given)
            self.inputs[given.number] = told(given)
            self.file.flush()  # so that the size of the file does not depend on the time

        recorder.begun = remember  # type: ignore[method-assign]
        state.events = self.recorder = recorder

    def done(self) -> Path:
        self.recorder.close(60.0)
        assert not self.file.failed and not self.recorder.broken
        return self.path


def differences(played: Inputs, live: Inputs) -> list[str]:
    """Where rounds that were played are not those that there were."""
    found = [f"round {n} is in one of both only" for n in sorted(played.keys() ^ live.keys())]
    for n in sorted(played.keys() & live.keys()):
        for key, there in live[n].items():
            if played[n][key] != there:
                found += [f"round {n}, {w}" for w in leaves(there, played[n][key], key)]
    return found


def leaves(live: Any, played: Any, where: str) -> list[str]:
    """The innermost values that differ."""
    if is_dataclass(live) and type(live) is type(played):
        names = [f.name for f in fields(live)]
        return [w for n in names for w in leaves(getattr(live, n), getattr(played, n), f"{where}.{n}")]
    if isinstance(live, dict) and isinstance(played, dict) and live.keys() == played.keys():
        return [w for key in live for w in leaves(live[key], played[key], f"{where}[{key}]")]
    if isinstance(live, tuple | list) and type(live) is type(played) and len(live) == len(played):
        pairs = enumerate(zip(live, played, strict=True))
        return [w for i, (a, b) in pairs for w in leaves(a, b, f"{where}[{i}]")]
    return [] if live == played else [f"{where}: live {live}, played {played}"]


def played_inputs(path: Path) -> Inputs:
    """The input of every round that a file tells of."""
    reader = EventReader(path)
    cluster = PlayedCluster(reader.header)
    found: Inputs = {}
    for t, event in reader:
        if isinstance(event, RoundBegun):
            found[event.round] = told(cluster.round_input(event, t))
        cluster.play(event, t)
    return found


def told(given: RoundInput) -> dict[str, Any]:
    """All that a round may know, machines in the order of their names; with what both kinds of rounds make of it."""
    machines, order = given.machines, given.machines.order()
    names = [str(machines.names[row]) for row in order.tolist()]
    columns = {r: i for i, r in enumerate(machines.resources)}
    amounts = {
        r: (machines.allocatable[order, i].tolist(), (machines.allocatable - machines.free)[order, i].tolist())
        for r, i in sorted(columns.items())
        if machines.allocatable[order, i].any() or (machines.allocatable - machines.free)[order, i].any()
    }
    cluster = given.cluster.in_order()
    forecast = [c for c in given.classes if c.task is not None]
    bulk = [c for c in given.classes if c.task is None]
    return {
        "number": given.number,
        "now_s": given.now_s,
        "machines": names,
        "labels": [dict(machines.labels(name)) for name in names],
        "amounts": amounts,
        "sums": machines.readings[order, :2].T.tolist(),
        "services": [machines.service(name) for name in names],
        "bandwidth": [machines.bandwidth(name) for name in names],
        "relations": {
            r.name: counts(given, r.name) for r in sorted(machines.relation_store.relations(), key=lambda r: r.name)
        },
        "classes": [told_class(c, order) for c in given.classes],
        "groups": given.groups,
        "group_members": dict(given.group_members),
        "group_of": dict(given.group_of),
        "catalogue": given.catalogue,
        "cluster": (
            cluster.machines,
            cluster.services,
            cluster.running,
            told_needs({r.task.name: given.booked.needs_of(r.task.name) for r in cluster.running}),
            cluster.plan,
            cluster.reservations,
        ),
        "settings": given.settings,
        "cost_model": plain_cost_model(given.cost_model),
        "model": None if given.model is None else (given.model.name, given.model.features, labels_of(given.model)),
        "nominated": [replace(n, needs=dict(n.needs)) for n in given.nominated],
        "held_nodes": given.held_nodes,
        "titles": dict(given.titles),
        "gpus": (dict(given.gpus.nodes), given.gpus.demand),
        "keepers": dict(given.keepers),
        "rounds_waited": {uid: given.rounds_waited.get(uid, 0) for c in given.classes for uid in c.uids},
        # Events do not tell how forecasts turned out: no decision depends on it.
        "snapshot": told_snapshot(given, forecast) if forecast else None,
        "bulk": told_bulk(given, bulk) if bulk else None,
    }


def told_snapshot(given: RoundInput, forecast: Sequence[ClassInput]) -> Snapshot:
    return replace(MeasuredPods(given).snapshot(forecast), start_errors=NO_START_ERRORS).in_order()


def told_needs(needs: Mapping[str, Mapping[str, int]]) -> dict[str, dict[str, int]]:
    return {uid: dict(amounts) for uid, amounts in needs.items()}


def told_class(c: ClassInput, order: Any) -> dict[str, Any]:
    return {
        "name": c.name,
        "uids": c.uids,
        "since_s": c.since_s,
        "priority": c.priority,
        "needs": dict(c.needs),
        "allowed": c.allowed[order].tolist(),
        "verdict": [c.reasons[i] for i in c.verdict[order].tolist()],
        "eligible": c.eligible[order].tolist(),
        "preference": c.preference[order].tolist(),
        "slowness": None if c.slowness is None else c.slowness[order].tolist(),
        "rest": (
            c.sensitivity,
            c.pressure,
            c.holds,
            c.joins,
            c.group,
            c.measured,
            c.min_utility,
            c.service,
            c.gpu_models,
        ),
        # Its pods take part with their own times.
        "task": None if c.task is None else replace(c.task, submit_s=0.0),
    }


def counts(given: RoundInput, name: str) -> tuple[list[int], list[int], list[int]]:
    """Domains, members and holders of a relation; domains by the first machine that is in them."""
    found = given.machines.relation_store.topology_counts(name, given.machines.order())
    return numbered(found.domain.tolist()), found.members.tolist(), found.holders.tolist()


def numbered(domains: Sequence[int]) -> list[int]:
    known: dict[int, int] = {-1: -1}
    return [known.setdefault(d, len(known)) for d in domains]


def told_bulk(given: RoundInput, classes: Sequence[ClassInput]) -> dict[str, Any]:
    """The machines that a bulk round on these classes reads, were it the first part of the round."""
    asked = [TaskClass(c.name, 0, tuple(c.needs.items()), holds=c.holds, joins=c.joins) for c in classes]
    found = bulk_rows(given.machines, asked, [ANYWHERE] * len(asked), [()] * len(asked))
    machines = given.machines
    rows = machines.order()
    arrays = {key: getattr(found, key)[rows].tolist() for key in ("allocatable", "free", "readings", "limits")}
    relations = {}
    for name in dict.fromkeys(name for c in asked for name in (*c.holds, *c.joins)):
        r = machines.relation_store.topology_counts(name, rows)
        relations[name] = r.relation, numbered(r.domain.tolist()), r.members.tolist(), r.holders.tolist()
    kinds = [machines.kinds[k] for k in machines.kind[rows].tolist()]
    rest = machines.ordered_names, found.classes.resources, given.groups, dict(given.group_members)
    return {**arrays, "kinds": kinds, "relations": relations, "rest": rest}
