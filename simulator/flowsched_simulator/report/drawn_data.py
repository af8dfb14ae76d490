"""What the page's scripts draw from: the runs as arrays, one value per job, stay, lane piece or latency window."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from flowsched.gpu.devices import WHOLE_MILLI
from flowsched_models.given_run_time import FIXED, GIVEN_RUN_TIME
from flowsched_simulator.report.axis import finish_s
from flowsched_simulator.report.colour import job_colours
from flowsched_simulator.report.lane import Occupant, split_lanes
from flowsched_simulator.report.number import core_list
from flowsched_simulator.report.svg import printable

FINISHED, PREEMPTED, MOVED, UNFINISHED = range(4)
"""How a stay of a job on a machine ended, as the scripts know it."""


@dataclass(frozen=True)
class DrawnMachine:
    """A machine, as drawn."""

    name: str
    kind: str
    cores: int
    gpus: int = 0
    gpu_model: str = ""


def machines_of(cluster: Mapping[str, Any], runs: Sequence[Mapping[str, Any]]) -> list[DrawnMachine]:
    """Return the machines in the cluster's order, then any that only a run knows."""
    order = {m["name"]: (m.get("type") or "", int(m.get("vcpus") or 0)) for m in cluster.get("machines", ())}
    gpus = {
        m["name"]: (int(m["gpus"]["count"]), m["gpus"]["model"]) for m in cluster.get("machines", ()) if m.get("gpus")
    }
    for item in [job for run in runs for job in run.get("jobs", ())] + list(cluster.get("services", ())):
        if item.get("machine") is not None:
            kind, cores = order.get(item["machine"], ("", 0))
            order[item["machine"]] = (kind, max([cores, *(core + 1 for core in item.get("cores") or ())]))
    return [DrawnMachine(name, kind, cores, *gpus.get(name, ())) for name, (kind, cores) in order.items()]


def drawn_data(
    cluster: Mapping[str, Any],
    machines: Sequence[DrawnMachine],
    runs: Sequence[Mapping[str, Any]],
    limits: Mapping[str, float | None],
) -> dict[str, Any]:
    """Return all that is drawn, as plain data. ``limits`` has the SLO of each service in microseconds, or None.

    Times are seconds with three decimals, latencies milliseconds.
    """
    place = {machine.name: n for n, machine in enumerate(machines)}
    profiles = sorted({profile_of(job) for run in runs for job in run.get("jobs", ())})
    names = list(dict.fromkeys(task_name(job) for run in runs for job in run.get("jobs", ())))
    colours = job_colours((task_name(job), profile_of(job)) for run in runs for job in run.get("jobs", ()))
    shades = list(dict.fromkeys((colours[name].fill, colours[name].ink) for name in names))
    of_profile = {task_name(job): profile_of(job) for run in runs for job in run.get("jobs", ())}
    numbers = _Numbers({name: n for n, name in enumerate(names)}, place, {name: n for n, name in enumerate(limits)}, {})
    drawn = [_run(cluster, run, numbers) for run in runs]
    return {
        "end": _short(max((end_of(run) for run in runs), default=1.0)),
        "machines": {
            key: [getattr(machine, key) for machine in machines]
            for key in ("name", "kind", "cores", *(("gpus", "gpu_model") if any(m.gpus for m in machines) else ()))
        },
        "services": _services(cluster, limits, place),
        "profiles": profiles,
        "colours": shades,
        "jobs": {
            "name": names,
            "profile": [profiles.index(of_profile[name]) for name in names],
            "colour": [shades.index((colours[name].fill, colours[name].ink)) for name in names],
        },
        "core_lists": list(numbers.core_lists),
        "runs": drawn,
    }


def in_script(data: Mapping[str, Any]) -> str:
    """JSON within a script element: whatever names say, it does not end there."""
    text = printable(json.dumps(data, allow_nan=False, separators=(",", ":"), ensure_ascii=False))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def end_of(run: Mapping[str, Any]) -> float:
    """Return the last second of which a run tells anything."""
    times = [finish_s(run), *(window["end_s"] for window in run.get("latency", ()))]
    for job in run.get("jobs", ()):
        times += [job.get("start_s"), job.get("end_s")]
    return max((float(time) for time in times if time is not None), default=0.0) or 1.0


def task_name(job: Mapping[str, Any]) -> str:
    """Return the name of a row of jobs: the task's, where the job has several."""
    return str(job.get("task") or job["job"])


def profile_of(job: Mapping[str, Any]) -> str:
    """Return the profile of a job, or its name where it has none."""
    profile = str(job.get("profile") or task_name(job))
    base = profile.removesuffix(GIVEN_RUN_TIME)
    if base == profile:
        return profile
    return "given run time" if base == FIXED else f"{base}, given run time"


def is_placed(job: Mapping[str, Any]) -> bool:
    """Tell whether a job ever started."""
    return job.get("start_s") is not None and job.get("machine") is not None


@dataclass(frozen=True)
class _Numbers:
    """Numbers that stand for names, so that a name is in the page once."""

    jobs: Mapping[str, int]
    machines: Mapping[str, int]
    services: Mapping[str, int]
    core_lists: dict[str, int]
    """Filled while runs are read."""

    def cores(self, cores: tuple[int, ...]) -> int:
        return self.core_lists.setdefault(core_list(cores), len(self.core_lists))


def _services(
    cluster: Mapping[str, Any], limits: Mapping[str, float | None], place: Mapping[str, int]
) -> list[dict[str, Any]]:
    known = {service["name"]: service for service in cluster.get("services", ())}
    found = []
    for name, slo_us in limits.items():
        service = known.get(name, {})
        found.append(
            {
                "name": name,
                "machine": place.get(service.get("machine", ""), -1),
                "cores": core_list(tuple(sorted(set(service.get("cores") or ())))),
                "threads": int(service.get("threads") or 1),
                "slo": slo_us / 1000 if slo_us else None,
            }
        )
    return found


def _run(cluster: Mapping[str, Any], run: Mapping[str, Any], numbers: _Numbers) -> dict[str, Any]:
    jobs, end_s = run.get("jobs", ()), end_of(run)
    stays = [stay for n, job in enumerate(jobs) for stay in _stays(n, job, end_s, numbers.machines)]
    stays.sort(key=lambda stay: (stay["start"], stay["job"]))
    finish = finish_s(run)
    return {
        "policy": run["policy"],
        "variant": run.get("variant") or "",
        "seed": run.get("seed") or 0,
        "end": _short(end_s),
        "makespan": None if run.get("makespan_s") is None else _short(run["makespan_s"]),
        "finish": None if finish is None else _short(finish),
        "jobs": {
            "job": [numbers.jobs[task_name(job)] for job in jobs],
            "submit": [_short(job.get("submit_s") or 0.0) for job in jobs],
            "alone": [_short(job.get("alone_s")) for job in jobs],
            "slowdown": [_short(job.get("slowdown")) for job in jobs],
            "columns": [*_devices(jobs), *_limit(jobs, "deadline_s", "missed"), *_limit(jobs, "walltime_s", "killed")],
        },
        "stays": {
            **_columns(stays, "job", "machine", "start", "end"),
            "cores": [numbers.cores(stay["cores"]) for stay in stays],
            **_columns(stays, "request", "threads", "ended"),
        },
        "pieces": _pieces(cluster, stays, end_s, numbers),
        **({"gpus": _gpus(run["gpus"], stays)} if run.get("gpus") else {}),
        "latency": _latency(run, numbers.services),
    }


def _gpus(use: Mapping[str, Any], stays: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """What only runs with GPUs have: who has which device, and how all of them were used over time."""
    return {
        "devices": [stay["devices"] for stay in stays],
        "share": [stay["share"] for stay in stays],
        "pieces": _gpu_pieces(stays),
        "capacity": use["capacity_milli"],
        "time": [_short(t) for t in use["t_s"]],
        "allocated": list(use["allocated_milli"]),
        "fragmented": [_short(value) for value in use["fragmented_milli"]],
    }


def _devices(jobs: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """A column that only jobs with GPUs have: the devices of the last machine, and a share of one."""
    if not any(job.get("gpu_share_milli") for job in jobs):
        return []
    return [{"head": "GPU", "cells": [_device_words(job) for job in jobs]}]


def _device_words(job: Mapping[str, Any]) -> str | None:
    if not job.get("devices"):
        return None
    share = job["gpu_share_milli"]
    return core_list(tuple(job["devices"])) + (f" ({share}m)" if share < WHOLE_MILLI else "")


def _limit(jobs: Sequence[Mapping[str, Any]], key: str, passed: str) -> list[dict[str, Any]]:
    """Columns that only jobs with a limit have, a deadline or a walltime: its seconds, and whether each passed it."""
    if all(job.get(key) is None for job in jobs):
        return []
    words = {True: "yes", False: "no", None: None}
    return [
        {"head": f"{key.removesuffix('_s').capitalize()}, s", "cells": [_short(job.get(key)) for job in jobs]},
        {"head": passed.capitalize(), "cells": [words[job.get(passed)] for job in jobs]},
    ]


def _stays(number: int, job: Mapping[str, Any], end_s: float, machines: Mapping[str, int]) -> list[dict[str, Any]]:
    """The places where a job ran, one after the other: those that it was preempted on or moved from come first."""
    ran = [stay for stay in job.get("earlier", ()) if stay["start_s"] < stay["left_s"]]
    share = int(job.get("gpu_share_milli") or 0)
    found = [
        _stay(number, stay, stay["left_s"], MOVED if stay["ended"] == "moved" else PREEMPTED, machines, share)
        for stay in ran
    ]
    if is_placed(job):
        moved = bool(ran) and ran[-1]["ended"] == "moved"
        last = {**job, "start_s": max(job["start_s"], ran[-1]["left_s"])} if moved else job
        done = job.get("end_s") is not None
        ended = FINISHED if done else UNFINISHED
        found.append(_stay(number, last, job["end_s"] if done else end_s, ended, machines, share))
    return found


def _stay(
    number: int, stay: Mapping[str, Any], end_s: float, ended: int, machines: Mapping[str, int], share_milli: int
) -> dict[str, Any]:
    """A time that a job spends on a machine; ``share`` is what it has of each GPU there, in thousandths."""
    return {
        "job": number,
        "machine": machines[stay["machine"]],
        "start": float(stay["start_s"]),
        "end": float(end_s),
        "cores": tuple(sorted(set(stay.get("cores") or ()))),
        "request": float(stay.get("request") or 0.0),
        "threads": int(stay.get("threads") or 0),
        "ended": ended,
        "devices": sorted(stay.get("devices") or ()),
        "share": share_milli,
    }


def _columns(rows: Sequence[Mapping[str, Any]], *keys: str) -> dict[str, list[float | int | None]]:
    return {key: [_short(row[key]) for row in rows] for key in keys}


def _pieces(
    cluster: Mapping[str, Any], stays: Sequence[Mapping[str, Any]], end_s: float, numbers: _Numbers
) -> dict[str, list[Any]]:
    """The lanes of all machines; a service is the stay -1 for the first one, -2 for the second and so on."""
    by_machine: dict[int, list[tuple[int, Occupant]]] = {}
    for service in cluster.get("services", ()):
        cores = tuple(sorted(set(service.get("cores") or ())))
        occupant = Occupant(cores, 0.0, end_s, float(len(cores)))
        machine = by_machine.setdefault(numbers.machines[service["machine"]], [])
        machine.append((-1 - numbers.services[service["name"]], occupant))
    for n, stay in enumerate(stays):
        most = float(stay["threads"] or len(stay["cores"]))
        occupant = Occupant(stay["cores"], stay["start"], stay["end"], stay["request"] or 1.0, most)
        by_machine.setdefault(stay["machine"], []).append((n, occupant))
    return _lanes(by_machine)


def _gpu_pieces(stays: Sequence[Mapping[str, Any]]) -> dict[str, list[Any]]:
    """The lanes of all GPUs: device d of a machine lies from d to d + 1, and shares of one stack within it."""
    by_machine: dict[int, list[tuple[int, Occupant]]] = {}
    for n, stay in enumerate(stays):
        share = stay["share"] / WHOLE_MILLI
        for device in stay["devices"]:
            # A thread of the share's size: what others leave of the device does not make its lane higher.
            occupant = Occupant((device,), stay["start"], stay["end"], share, share)
            by_machine.setdefault(stay["machine"], []).append((n, occupant))
    return _lanes(by_machine)


def _lanes(by_machine: Mapping[int, Sequence[tuple[int, Occupant]]]) -> dict[str, list[Any]]:
    """What runs on each machine divided into lane pieces, by the number that each occupant is known by."""
    found: dict[str, list[Any]] = {key: [] for key in ("stay", "start", "end", "low", "high")}
    for machine_number in sorted(by_machine):
        those = by_machine[machine_number]
        for piece in split_lanes([occupant for _, occupant in those]):
            found["stay"].append(those[piece.occupant][0])
            found["start"].append(_short(piece.start_s))
            found["end"].append(_short(piece.end_s))
            found["low"].append(_short(piece.low))
            found["high"].append(_short(piece.high))
    return found


def _latency(run: Mapping[str, Any], services: Mapping[str, int]) -> list[dict[str, Any]]:
    """Windows of each service that have a latency, in order of time."""
    found = []
    for name, number in services.items():
        rows = [row for row in run.get("latency", ()) if row["service"] == name and row.get("p95_us") is not None]
        rows.sort(key=lambda row: (row["t_s"], row["end_s"]))
        if rows:
            found.append(
                {
                    "service": number,
                    "start": [_short(row["t_s"]) for row in rows],
                    "end": [_short(row["end_s"]) for row in rows],
                    "p95": [_short(row["p95_us"] / 1000) for row in rows],
                    "qps": [_short(row.get("qps")) for row in rows],
                }
            )
    return found


def _short(value: float | None) -> float | int | None:
    """At most three decimals, and none where they are zero."""
    if value is None:
        return None
    number = round(float(value), 3)
    return int(number) if number.is_integer() else number
