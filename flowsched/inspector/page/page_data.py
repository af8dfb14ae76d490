"""One round as the page's scripts read it: columns, numbers for names, only what is not 0 of the terms.

Tasks, machines, classes and groups are numbered by their order in the part. -1 stands for none, ``null`` for unknown.
Costs are rounded to nine digits; whole numbers of solver units are exact.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from flowsched.cluster.snapshot_dump import milli_of
from flowsched.inspector.device_facts import DeviceHold, machine_devices
from flowsched.inspector.explanation import Explanation, explain
from flowsched.inspector.gpu_facts import link_words
from flowsched.inspector.graph import LAYERS, Graph
from flowsched.inspector.link_layout import link_layout
from flowsched.inspector.record_view import BY_STAGE, Part, RecordView, Waits, option_of
from flowsched.inspector.round_network import RoundNetwork, round_network_or_none
from flowsched.support.arrays import IntArray
from flowsched_models.document import InputError
from flowsched_models.gpu_topology import GpuTopology

DIGITS = 9
EXPLAINED = 200
"""Every task of a round of flow is explained unless there are more; of others one that waits for every reason and class."""
PASS_ARCS = 20_000
"""Networks of all passes are in the page if they have no more arcs together."""
_FURTHER = 200
"""Explanations of one part at most, where not every task has one."""
_CLASSES = 30
_PAIRS = 400_000
"""At linear prices with so many classes, and machines times classes, one placed task of each is explained: in about 2 s."""


def headline(recorded: RecordView) -> dict[str, Any]:
    """What a list of rounds says of one."""
    placed, waiting = recorded.placed_and_waiting
    return {
        "source": Path(recorded.source).name,
        "round": recorded.round,
        "now_s": _time(recorded.now_s),
        "policy": recorded.policy,
        "objective": recorded.settings.get("objective"),
        "placed": placed,
        "waiting": waiting,
    }


def track(recorded: RecordView) -> tuple[str, str]:
    """The run that a round is of: its policy, and what its file is called without the number at its end."""
    numbered = re.fullmatch(r"(.*?)[-_.]?\d+", Path(recorded.source).stem, flags=re.DOTALL)
    return recorded.policy, numbered.group(1) if numbered else ""


def page_data(recorded: RecordView) -> dict[str, Any]:
    """All that the page shows of a round."""
    return {
        "round": recorded.round,
        "now_s": _time(recorded.now_s),
        "policy": recorded.policy,
        "solver": recorded.solver,
        "writer": recorded.writer,
        "source": Path(recorded.source).name,
        "settings": dict(recorded.settings),
        "timings": _numbers(recorded.timings),
        "titles": dict(recorded.titles),
        "held": [dict(h) for h in recorded.held],
        "parts": [_part(recorded, part) for part in recorded.parts],
    }


def _part(recorded: RecordView, part: Part) -> dict[str, Any]:
    task = {name: i for i, name in enumerate(part.tasks)}
    machine = {name: i for i, name in enumerate(part.machines)}
    certificate = part.certificate
    explained = _explained(recorded, part)
    made = None if part.plain.get("first_network") is None else round_network_or_none(recorded, part)
    return {
        "prices": part.prices,
        "priority": part.priority,
        "machines": list(part.machines),
        "machine_facts": _fleet(part) if not part.by_forecasts else _snapshot(recorded, part, explained),
        "groups": _members(part.groups, machine),
        "tasks": list(part.tasks),
        "classes": _members(part.classes, task),
        "class_facts": [_class_facts(part, i) for i in range(len(part.classes))],
        "placements": _placements(part, task, machine),
        "waiting": _waiting(part.waiting, task, machine),
        "plan": _plan(part, task, machine),
        "passes": [
            {
                "number": p["number"],
                "batch": [task.get(name, -1) for name in p["batch"]],
                "booked": [task.get(name, -1) for name in p["booked"]],
                "drawn": p["drawn"],
                "arcs": p["arcs"],
                "undone": [[task.get(u["task"], -1), BY_STAGE[u["by"]] if u["by"] else ""] for u in p["undone"]],
            }
            for p in part.passes
        ],
        "decided_by": _decided_by(part, task),
        "reservations": [
            [task.get(r["task"], -1), machine.get(r["machine"], -1), r["width_milli"], _time(r["start_s"])]
            for r in part.reservations
        ],
        "machine_costs": [_number(part.forecast["machine_costs"].get(m)) for m in part.machines]
        if "machine_costs" in part.plain
        else None,
        "goal_s": _number(part.forecast.get("goal_s")),
        "task_groups": [dict(group) for group in part.plain.get("task_groups", ())],
        "repairs": [dict(r) for r in part.forecast.get("repairs", ())],
        "graphs": _graphs(part, made),
        "round_notes": [] if made is None else made.sentences(),
        "gaining": [] if made is None else [task.get(name, -1) for name in made.gaining],
        "certificate": None
        if certificate is None
        else {k: v if isinstance(v, str) else _number(v) for k, v in certificate.items() if k != "prices"},
        "price_count": 0 if certificate is None else len(certificate.get("prices") or ()),
        "counts": {k: int(v) for k, v in part.counts.items()},
        "timings": _numbers(part.timings),
        "explanations": {str(task[name]): one.lines() for name, one in explained.items()},
    }


def _members(sets: Sequence[Any], number: Mapping[str, int]) -> list[Any]:
    return [[one.name, _ranges([number.get(m, -1) for m in one.members])] for one in sets]


def _ranges(numbers: Sequence[int]) -> list[int]:
    """Numbers as pairs of a first one and how many follow each other: mostly they do."""
    pairs: list[int] = []
    for n in numbers:
        if pairs and n == pairs[-2] + pairs[-1]:
            pairs[-1] += 1
        else:
            pairs += [n, 1]
    return pairs


def _fleet(part: Part) -> dict[str, Any]:
    """Resources before the round."""
    fleet = part.linear["fleet"]
    shape = (len(part.machines), len(fleet["resources"]))
    columns = {
        name: np.asarray(fleet[name], dtype=np.int64).reshape(shape).T.tolist() for name in ("allocatable", "free")
    }
    return {"resources": list(fleet["resources"]), **columns}


def _snapshot(recorded: RecordView, part: Part, explained: Mapping[str, Explanation]) -> dict[str, Any]:
    snapshot = part.forecast["snapshot"]
    by_name = {m["name"]: m for m in snapshot["machines"]}
    free_of = {name: int(g["free_milli"]) for g in part.forecast["groups"] for name in g["members"]}
    return {
        "type": [by_name[name].get("type") for name in part.machines],
        "cpu_milli": [_milli(by_name[name].get("cpu")) for name in part.machines],
        "free_milli": [free_of.get(name) for name in part.machines],
        "running": [
            {
                "task": r["task"]["name"],
                "machine": r["machine"],
                "width_milli": _milli(r.get("width")),
                **{key: r.get(key) for key in ("threads", "cores", "progress")},
            }
            for r in snapshot.get("running", ())
        ],
        "services": [
            {key: s.get(key) for key in ("name", "machine", "cores", "qps", "slo_p95")}
            for s in snapshot.get("services", ())
        ],
        **_gpus(recorded, part, explained),
    }


def _gpus(recorded: RecordView, part: Part, explained: Mapping[str, Explanation]) -> dict[str, dict[str, Any]]:
    """By name of the machine its GPUs, and by name of the topology how those are linked; nothing where there are none."""
    machines = machine_devices(recorded, part)
    topologies = {found.topology.name: found.topology for found in machines.values() if found.topology is not None}
    gpus = {
        name: {
            "model": found.model,
            "topology": None if found.topology is None else found.topology.name,
            "before": list(found.left_before),
            "after": list(found.left_after),
            "holds": [
                [hold.task, hold.does, hold.share_milli, list(hold.devices), _linked(hold, explained)]
                for hold in found.holds
            ],
        }
        for name, found in machines.items()
    }
    drawings = {name: _drawing(topology) for name, topology in topologies.items()}
    return {key: value for key, value in (("gpus", gpus), ("topologies", drawings)) if value}


def _linked(hold: DeviceHold, explained: Mapping[str, Explanation]) -> str | None:
    """How the devices of a task are linked, in the words of its explanation; None for one device."""
    if hold.link_class is None:
        return None
    facts = explained[hold.task].facts if hold.task in explained else {}
    return link_words(hold.link_class, (facts.get("gpus") or {}).get("links"))


def _drawing(topology: GpuTopology) -> dict[str, Any]:
    """Boxes and lines of a topology, and by pair of devices the lines between them."""
    layout = link_layout(topology)
    return {
        "width": layout.width,
        "height": layout.height,
        "classes": list(topology.link_classes),
        "sockets": [list(socket) for socket in topology.sockets],
        "boxes": [[box.end, box.x, box.y, box.width, box.height] for box in layout.boxes],
        "frames": [
            [str(frame.box.end) if frame.labelled else "", frame.box.x, frame.box.y, frame.box.width, frame.box.height]
            for frame in layout.frames
        ],
        "lines": [[*line.ends, line.link_class, line.path] for line in layout.lines],
        "paths": {f"{one}-{other}": list(lines) for (one, other), lines in layout.paths.items()},
    }


def _class_facts(part: Part, index: int) -> dict[str, Any]:
    """What a task of a class asks for, and how it is bound to others."""
    if not part.by_forecasts:
        demand = part.priced_classes[part.classes[index].name]
        facts = {
            key: demand.get(key) for key in ("needs", "group", "holds", "joins", "waiting_cost", "max_cost", "waiting")
        }
        return {**facts, "width_milli": int((demand.get("needs") or {}).get("cpu", 0))}
    name = part.classes[index].name
    tasks = part.forecast["snapshot"]["pending"]
    pending: Mapping[str, Any] = next((dict(t) for t in tasks if t["name"] == name), {})
    keys = ("profile", "scale", "memory", "goal_s", "priority", "group", "submit_s")
    return {
        **{key: pending[key] for key in keys if key in pending},
        "request_milli": _milli(pending.get("request")),
        "widths_milli": [_milli(width) for width in pending.get("widths", ())],
    }


def _placements(part: Part, task: Mapping[str, int], machine: Mapping[str, int]) -> dict[str, Any]:
    placed = part.placements
    return {
        "task": [task.get(p.task, -1) for p in placed],
        "machine": [machine.get(p.machine, -1) for p in placed],
        "cost": [_number(p.cost) for p in placed],
        "terms": _sparse_rows([p.terms for p in placed]),
        "width_milli": [p.width_milli for p in placed],
        "threads": [p.threads for p in placed] if part.by_forecasts else None,
        "cores": [None if p.cores is None else list(p.cores) for p in placed] if part.by_forecasts else None,
        "runner_up": [-1 if p.runner_up is None else machine.get(p.runner_up, -1) for p in placed]
        if not part.by_forecasts
        else None,
        "runner_up_cost": [_number(p.runner_up_cost) for p in placed] if not part.by_forecasts else None,
    }


def _waiting(waiting: Sequence[Waits], task: Mapping[str, int], machine: Mapping[str, int]) -> dict[str, Any]:
    reasons: dict[tuple[str, str], int] = {}
    number = [reasons.setdefault((w.cause, w.reason), len(reasons)) for w in waiting]
    return {
        "task": [task.get(w.task, -1) for w in waiting],
        "reason": number,
        "reasons": [list(pair) for pair in reasons],
        "waited_s": [_number(w.waited_s) for w in waiting],
        "cost": [_number(w.cost) for w in waiting],
        "terms": _sparse_rows([w.terms for w in waiting]),
        "planned": [
            None
            if w.planned is None or (option := option_of(w.planned)) is None
            else [machine.get(option[0], -1), *option[1:]]
            for w in waiting
        ],
    }


def _plan(part: Part, task: Mapping[str, int], machine: Mapping[str, int]) -> list[Any] | None:
    """For every task of a round of flow its machine, slot and width; -1 where it has none."""
    if not part.by_forecasts:
        return None
    plan: list[list[int]] = [[-1, -1, -1] for _ in task]
    for name, (place, slot, width, _) in part.planned.items():
        if name in task:
            plan[task[name]] = [machine.get(place, -1), slot, width]
    return plan


def _decided_by(part: Part, task: Mapping[str, int]) -> dict[str, list[Any]]:
    """By number of the task its stage, and of a network the pass, its price and that of the next machine."""
    return {
        str(task[name]): [
            entry["stage"],
            entry.get("pass"),
            _number(entry.get("price")),
            _number(entry.get("runner_up")),
        ]
        for name, entry in part.decided_by.items()
        if name in task
    }


def _graphs(part: Part, made: RoundNetwork | None) -> dict[str, Any]:
    """That of the round, and those of its passes: of many arcs only the one of which most stands.

    Records of baselines have none; the page has no place for the kinds of nodes that jobs with GPUs elsewhere have.
    """
    found = {} if made is None else {"round": made.graph}
    several = sum(p["arcs"] for p in part.passes) <= PASS_ARCS
    for p in part.passes:
        there = part.plain.get("first_network") is not None and (several or p["drawn"])
        graph = part.pass_graph(p["number"]) if there else None
        if graph is not None:
            found[f"pass:{p['number']}"] = graph
    return {
        name: _graph(part, graph)
        for name, graph in found.items()
        if graph.arc_count and LAYERS.keys() >= set(graph.kinds)
    }


def _graph(part: Part, graph: Graph) -> dict[str, Any]:
    kinds = list(dict.fromkeys(graph.kinds))
    group, cls = _owners(part, graph)
    try:
        potentials: list[int] | None = graph.potentials.tolist()
    except ValueError:
        potentials = None
    return {
        "kinds": kinds,
        "kind": [kinds.index(kind) for kind in graph.kinds],
        "name": list(graph.names),
        "group": group,
        "class": cls,
        "supplies": graph.supplies.tolist(),
        "potentials": potentials,
        **{
            key: getattr(graph, key).tolist() for key in ("tails", "heads", "capacities", "unit_costs", "flow", "units")
        },
        "cost_scale": graph.cost_scale,
        "terms": {name: _sparse(values) for name, values in graph.terms.items()},
        "columns": {name: values.tolist() for name, values in graph.columns.items()},
        "members": {str(node): list(names) for node, names in graph.members.items()},
        "unit_milli": _unit_milli(part, graph, cls),
    }


def _owners(part: Part, graph: Graph) -> tuple[list[int], list[int]]:
    """Group and class that each node belongs to, by number; -1 where it belongs to none."""
    group_of = {g.name: i for i, g in enumerate(part.groups)}
    class_of = {c.name: i for i, c in enumerate(part.classes)}
    groups, classes = [], []
    for kind, name in zip(graph.kinds, graph.names, strict=True):
        stem = name.rpartition("/")[0]
        group = cls = -1
        if kind == "tier":
            group = group_of.get(stem, -1)
        elif kind == "group":
            group = group_of.get(name, -1)
        elif kind in ("cores", "later"):
            group = group_of.get(part.group_of.get(stem, ""), -1)
        elif kind == "machine":
            group = group_of.get(part.group_of.get(name, ""), -1)
        elif kind in ("class", "unscheduled"):
            cls = class_of.get(name, -1)
        elif kind == "domain":
            cls = class_of.get(stem, -1)
        elif kind == "task":
            cls = class_of.get(part.class_of.get(name, ""), -1)
        groups.append(group)
        classes.append(cls)
    return groups, classes


def _unit_milli(part: Part, graph: Graph, cls: Sequence[int]) -> int | None:
    """Thousandths of a core that one unit of flow is; None where a unit is a task."""
    if graph.columns or part.by_forecasts:
        return None
    for arc, (tail, head) in enumerate(zip(graph.tails.tolist(), graph.heads.tolist(), strict=True)):
        if graph.kinds[tail] not in ("class", "domain") or graph.kinds[head] != "tier" or cls[tail] < 0:
            continue
        width = int((part.priced_classes[part.classes[cls[tail]].name].get("needs") or {}).get("cpu", 0))
        if width:
            return int(width // max(1, int(graph.units[arc])))
    return None


def _explained(recorded: RecordView, part: Part) -> dict[str, Explanation]:
    """Explanations by name of the task."""
    if part.by_forecasts and len(part.tasks) <= EXPLAINED:
        asked: Iterable[str] = part.tasks
    else:
        reasons: dict[tuple[str, str], str] = {}
        for waits in part.waiting:
            reasons.setdefault((part.class_of.get(waits.task, ""), waits.reason), waits.task)
        asked = [*list(reasons.values())[:_FURTHER], *_first_placed(part)]
    found: dict[str, Explanation] = {}
    for name in asked:
        try:
            found[name] = explain(recorded, name)
        except (InputError, ArithmeticError, LookupError, TypeError, ValueError):
            # A record may lack what explaining needs. All the rest can be shown without.
            continue
    return found


def _first_placed(part: Part) -> list[str]:
    """One placed task of every class, unless that takes too long."""
    if len(part.classes) > _CLASSES or len(part.classes) * len(part.machines) > _PAIRS:
        return []
    first: dict[str, str] = {}
    for placed in part.placements:
        first.setdefault(part.class_of.get(placed.task, ""), placed.task)
    return list(first.values())


def _sparse(values: Any) -> list[list[Any]]:
    """Where values are not 0, and the values."""
    array = np.asarray(values, dtype=np.float64)
    where: IntArray = np.flatnonzero(array)
    return [_deltas(where.tolist()), [_number(v) for v in array[where].tolist()]]


def _sparse_rows(rows: Sequence[Mapping[str, float]]) -> dict[str, list[list[Any]]]:
    names = list(dict.fromkeys(name for row in rows for name in row))
    return {name: _sparse([row.get(name) or 0.0 for row in rows]) for name in names}


def _deltas(numbers: Sequence[int]) -> list[int]:
    return [b - a for a, b in zip([0, *numbers], numbers, strict=False)]


def _numbers(values: Mapping[str, Any]) -> dict[str, float | None]:
    return {name: _number(value) for name, value in values.items()}


def _milli(value: Any) -> int | None:
    """Milli-CPU of a quantity such as ``2``, ``"2"`` or ``"1500m"``; None for what is none."""
    try:
        return None if value is None else milli_of(value)
    except (ArithmeticError, ValueError):
        return None


def _time(value: Any) -> float | None:
    """A time in seconds: seconds from 1970 have more digits than costs need."""
    return None if value is None else round(float(value), 3)


def _number(value: Any) -> float | None:
    """A number as JSON has it, short; None for what is unknown or endless."""
    if value is None or isinstance(value, str) or not math.isfinite(value):
        return None
    short = float(f"{value:.{DIGITS}g}")
    return int(short) if short.is_integer() and abs(short) < 1e15 else short
