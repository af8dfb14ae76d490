"""Records of version 1 as version 2.

Version 1 had one object for a round of ``solve`` and ``simulate`` (``Record``) and another for one on Kubernetes
(``RoundRecord``) that held several, and terms arc by arc. What it did not keep stays unknown: the moves that its last
network did not offer, and the machines and demands of wide rounds beyond their names.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from flowsched.network import term_columns

WRITER = "flowsched 0.1.0 (a record of version 1)"
_HEAD = ("round", "now_s", "policy", "solver", "settings")
_SEARCH = (
    "snapshot", "classes", "groups", "goal_s", "plan", "machine_costs", "placements", "postponements", "reservations",
    "task_groups", "repairs", "certificate", "counts", "timings",
)  # fmt: skip


def upgrade(old: Mapping[str, Any]) -> dict[str, Any]:
    """A record of version 1 as version 2; raises ``KeyError`` where it lacks something."""
    if old["kind"] == "Record":
        head = {"apiVersion": "flowsched/v2", "kind": "Record", "writer": WRITER}
        return {**head, **{k: old[k] for k in _HEAD}, "parts": [_search(old)]}
    networks = old["networks"]
    certificates = iter(old.get("certificates", ()))
    placed = {p["task"]: p for p in old["placements"]}
    told = {task: (h["fate"], h["message"]) for h in old["held"] for task in h["tasks"]}
    parts = []
    for network in networks:
        certificate = next(certificates, None)
        parts.append(_search(network) if network["kind"] == "Record" else _wide(network, placed, told, certificate))
    searched = next((n for n in networks if n["kind"] == "Record"), None)
    return {
        "apiVersion": "flowsched/v2",
        "kind": "Record",
        "writer": WRITER,
        "round": old["round"],
        "now_s": old["now_s"],
        "policy": "flow",
        "solver": "unknown" if searched is None else searched["solver"],
        "settings": old["settings"],
        "titles": old["pods"],
        "parts": parts,
        "held": [{**h, "counts": {}} for h in old["held"]],
        "timings": old["timings"],
    }


def _search(old: Mapping[str, Any]) -> dict[str, Any]:
    last = old["last_network"]
    return {
        "kind": "search",
        **{k: old[k] for k in _SEARCH if k in old},
        "first_network": _network(old["first_network"]),
        "last_network": None if last is None else _network(last),
        "widths": False,
    }


def _wide(
    old: Mapping[str, Any], placed: Mapping[str, Any], told: Mapping[str, tuple[str, str]], certificate: Any
) -> dict[str, Any]:
    groups = old["groups"]
    machines = sorted(m for g in groups for m in g["members"])
    row = {name: i for i, name in enumerate(machines)}
    group_of = [0] * len(machines)
    for g, group in enumerate(groups):
        for name in group["members"]:
            group_of[row[name]] = g
    tasks = [t for c in old["classes"] for t in c["tasks"] if t in placed]
    names = list(dict.fromkeys(term for t in tasks for term in placed[t]["terms"]))
    return {
        "kind": "wide",
        "fleet": {"machines": machines},
        "demands": [dict(c) for c in old["classes"]],
        "group_of": group_of,
        "first_network": _network(old["first_network"]),
        "placements": {
            "task": tasks,
            "machine": [row[placed[t]["machine"]] for t in tasks],
            "cost": [placed[t]["cost"] for t in tasks],
            "terms": {n: [placed[t]["terms"].get(n, 0.0) for t in tasks] for n in names},
            "runner_up": [row.get(placed[t].get("runner_up"), -1) for t in tasks],
            "runner_up_cost": [None for _ in tasks],
        },
        "left": [
            {"tasks": [t], "cause": told[t][0], "text": told[t][1]}
            for c in old["classes"]
            for t in c["tasks"]
            if t not in placed
        ],
        "certificate": certificate,
        "counts": {},
        "timings": {},
    }


def _network(old: Mapping[str, Any]) -> dict[str, Any]:
    return {**old, "terms": term_columns(old["terms"])}
