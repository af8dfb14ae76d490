"""A snapshot as plain data, to be written as YAML or JSON and kept in records."""

from __future__ import annotations

from math import inf
from typing import Any

from flowsched.cluster.gpus import MachineGpus, TaskGpus, profiles_of_worst
from flowsched.cluster.snapshot import SNAPSHOT_VERSION, Machine, RelationCount, Running, Service, Snapshot, Task
from flowsched.gpu.shapes import GpuShape
from flowsched.relations.relation import Relation, RelationKind, TaskGroup
from flowsched_models.catalogue import Catalogue
from flowsched_models.profiles import dump_catalogue
from flowsched_models.quantity import format_cores, format_memory


def dump_snapshot(snapshot: Snapshot) -> dict[str, Any]:
    """Plain data for YAML or JSON. It holds the profiles that the snapshot uses, so it stands alone."""
    bound: dict[str, Any] = {}
    if snapshot.relations:
        bound["relations"] = [_dump_relation(r) for r in snapshot.relations]
    if snapshot.task_groups:
        bound["task_groups"] = [_dump_group(g) for g in snapshot.task_groups]
    if snapshot.relation_counts:
        bound["relation_counts"] = [_dump_count(c) for c in snapshot.relation_counts]
    if snapshot.share_service_cores:
        bound["share_service_cores"] = True
    if snapshot.gpu_demand:
        bound["gpu_demand"] = [dump_demand(shape, count) for shape, count in snapshot.gpu_demand]
    return {
        "apiVersion": SNAPSHOT_VERSION,
        "kind": "Snapshot",
        "now_s": snapshot.now_s,
        "round": snapshot.round,
        "machines": [_dump_machine(m) for m in snapshot.machines],
        "services": [_dump_service(s) for s in snapshot.services],
        "running": [_dump_running(r) for r in snapshot.running],
        "pending": [_dump_task(t) for t in snapshot.pending],
        "plan": [
            {"task": p.task, "machine": p.machine, "slot": p.slot, "width": _cores(p.width_milli)}
            for p in snapshot.plan
        ],
        "reservations": [
            {
                "task": r.task,
                "machine": r.machine,
                "width": _cores(r.width_milli),
                "start_s": None if r.start_s == inf else r.start_s,
            }
            for r in snapshot.reservations
        ],
        "start_delay": {
            "at_submission_s": snapshot.start_delay.at_submission_s,
            "after_waiting_s": snapshot.start_delay.after_waiting_s,
        },
        **bound,
        "catalogue": dump_catalogue(used_profiles(snapshot)),
    }


def used_profiles(snapshot: Snapshot) -> Catalogue:
    """The catalogue with the profiles that the snapshot refers to, and those by which interference at sockets is measured
    where GPUs are linked.
    """
    jobs = {r.task.profile for r in snapshot.running} | {t.profile for t in snapshot.pending}
    services = {s.profile for s in snapshot.services}
    types = {m.type for m in snapshot.machines}
    topologies = {m.gpus.topology for m in snapshot.machines if m.gpus is not None}
    whole = snapshot.catalogue
    if topologies - {""}:
        jobs |= profiles_of_worst(whole)
    return Catalogue(
        jobs={n: p for n, p in whole.jobs.items() if n in jobs},
        services={n: p for n, p in whole.services.items() if n in services},
        machine_types={n: p for n, p in whole.machine_types.items() if n in types},
        source=whole.source,
        gpu_topologies={n: t for n, t in whole.gpu_topologies.items() if n in topologies},
    )


def _cores(milli: int) -> int | str:
    return f"{milli}m" if milli % 1000 else milli // 1000


def _dump_machine(machine: Machine) -> dict[str, Any]:
    return {
        "name": machine.name,
        "type": machine.type,
        "cpu": _cores(machine.cpu_milli),
        "memory": format_memory(machine.memory_mib),
        "vcpus": machine.vcpus,
        "labels": dict(machine.labels),
        **({"resources": dict(machine.resources)} if machine.resources else {}),
        **({} if machine.gpus is None else {"gpus": _dump_machine_gpus(machine.gpus)}),
    }


def _dump_machine_gpus(gpus: MachineGpus) -> dict[str, Any]:
    memory = {} if gpus.memory_mib is None else {"memory": format_memory(gpus.memory_mib)}
    topology = {"topology": gpus.topology} if gpus.topology else {}
    return {"model": gpus.model, "count": gpus.count, **memory, **topology}


def dump_demand(shape: GpuShape, count: int) -> dict[str, Any]:
    """A shape that came, and how often, as it stands in a file."""
    data: dict[str, Any] = {
        "request": _cores(shape.cpu_milli),
        "memory": format_memory(shape.memory_mib),
        "count": count,
    }
    if shape.count:
        data["gpus"] = dump_task_gpus(TaskGpus(shape.count, shape.share_milli, shape.models))
    return data


def dump_task_gpus(gpus: TaskGpus) -> dict[str, Any]:
    """What a task asks for, as it stands in a file."""
    asked: dict[str, Any] = {"share": f"{gpus.share_milli}m"} if gpus.is_share else {"count": gpus.count}
    return {**asked, "models": list(gpus.models)} if gpus.models else asked


def _dump_relation(relation: Relation) -> dict[str, Any]:
    data: dict[str, Any] = {"name": relation.name, "kind": relation.kind.value, "key": relation.key}
    if relation.kind is RelationKind.LIMIT:
        data["most"] = relation.most
    if relation.kind is RelationKind.SPREAD:
        data["skew"] = relation.skew
        if relation.min_domains:
            data["min_domains"] = relation.min_domains
    return data


def _dump_group(group: TaskGroup) -> dict[str, Any]:
    data: dict[str, Any] = {"name": group.name, "minimum": group.minimum}
    if group.deadline_s is not None:
        data["deadline_s"] = group.deadline_s
    return data


def _dump_count(count: RelationCount) -> dict[str, Any]:
    numbers = {key: getattr(count, key) for key in ("members", "holders") if getattr(count, key)}
    return {"machine": count.machine, "relation": count.relation, **numbers}


def _dump_service(service: Service) -> dict[str, Any]:
    return {
        "name": service.name,
        "profile": service.profile,
        "machine": service.machine,
        "cores": format_cores(service.cores),
        "threads": service.threads,
        "request": _cores(service.width_milli),
        "memory": format_memory(service.memory_mib),
        "qps": service.qps,
        "slo_p95": f"{service.slo_us!r}us",
        "client": service.client,
    }


def _dump_task(task: Task) -> dict[str, Any]:
    data: dict[str, Any] = {
        "name": task.name,
        "job": task.job,
        "profile": task.profile,
        "scale": task.scale,
        "request": _cores(task.request_milli),
        "widths": [_cores(w) for w in task.widths_milli],
        "memory": format_memory(task.memory_mib),
        "submit_s": task.submit_s,
        "priority": task.priority,
    }
    if task.weight != 1.0:
        data["weight"] = task.weight
    if task.goal_s is not None:
        data["goal_s"] = task.goal_s
    if task.machines is not None:
        data["machines"] = list(task.machines)
    if task.spread_over is not None:
        data["spread_over"] = list(task.spread_over)
    if task.resources:
        data["resources"] = dict(task.resources)
    for key in ("holds", "joins", "threads"):
        if getattr(task, key):
            data[key] = list(getattr(task, key))
    for key in ("group", "min_utility"):
        if getattr(task, key) is not None:
            data[key] = getattr(task, key)
    if task.endless:
        data["endless"] = True
    if task.rounds_waited:
        data["rounds_waited"] = task.rounds_waited
    if task.preemptions:
        data["preemptions"] = task.preemptions
    if task.done:
        data["done"] = task.done
    if task.run_s is not None:
        data["run_s"] = task.run_s
    for key in ("interference_class", "input_mb"):
        if getattr(task, key):
            data[key] = getattr(task, key)
    if task.locality:
        data["locality"] = [{"label": label, "value": value, "share": share} for label, value, share in task.locality]
    if task.wishes:
        data["wishes"] = dict(task.wishes)
    if task.gpus is not None:
        data["gpus"] = dump_task_gpus(task.gpus)
    for key in ("gpus_for", "postponements"):
        if getattr(task, key):
            data[key] = getattr(task, key)
    return data


def _dump_running(running: Running) -> dict[str, Any]:
    return {
        "task": _dump_task(running.task),
        "machine": running.machine,
        "width": _cores(running.width_milli),
        "threads": running.threads,
        "cores": format_cores(running.cores),
        "bound_s": running.bound_s,
        "start_s": running.start_s,
        "progress": running.progress,
        **({} if running.moved_s is None else {"moved_s": running.moved_s}),
        **({"devices": list(running.devices)} if running.devices else {}),
        **({"remote": True} if running.remote else {}),
    }
