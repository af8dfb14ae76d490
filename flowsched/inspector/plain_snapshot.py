"""The snapshot in a part of a record, read back as it was.

A record is written by a program about a cluster as it stood: a machine may have no core left, a node's clock may be ahead,
a latency goal may be out of reach. The reader of snapshot files, which people write, refuses all that; this one does not.
"""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from math import inf
from typing import Any

from flowsched.cluster.gpus import WHOLE_MILLI, MachineGpus, TaskGpus
from flowsched.cluster.snapshot import (
    Machine,
    PlannedStart,
    RelationCount,
    Reservation,
    Running,
    Service,
    Snapshot,
    StartDelay,
    Task,
)
from flowsched.gpu.shapes import GpuShape
from flowsched.records.record_types import (
    RecordedGpuDemand,
    RecordedMachine,
    RecordedRunning,
    RecordedService,
    RecordedSnapshot,
    RecordedSnapshotRelation,
    RecordedTask,
)
from flowsched.relations.relation import MACHINE, Relation, RelationKind, TaskGroup
from flowsched_models.gpu_topology import GpuTopology
from flowsched_models.profiles import CatalogueForm, GpuTopologyForm
from flowsched_models.quantity import parse_cores, parse_duration_us


def read_plain_snapshot(plain: RecordedSnapshot) -> Snapshot:
    """The snapshot that ``dump_snapshot`` wrote. Raises ``KeyError``, ``TypeError`` or ``ValueError`` for a damaged one."""
    catalogue = CatalogueForm.model_validate(plain["catalogue"]).catalogue("record")
    return Snapshot(
        now_s=plain["now_s"],
        catalogue=catalogue,
        machines=tuple(_machine(m) for m in plain["machines"]),
        services=tuple(_service(s) for s in plain["services"]),
        running=tuple(_running(r) for r in plain["running"]),
        pending=tuple(_task(t) for t in plain["pending"]),
        plan=tuple(PlannedStart(p["task"], p["machine"], p["slot"], milli_of(p["width"])) for p in plain["plan"]),
        reservations=tuple(
            Reservation(r["task"], r["machine"], milli_of(r["width"]), inf if r["start_s"] is None else r["start_s"])
            for r in plain["reservations"]
        ),
        start_delay=StartDelay(**plain["start_delay"]),
        round=plain["round"],
        relations=tuple(_relation(r) for r in plain.get("relations", ())),
        task_groups=tuple(
            TaskGroup(g["name"], g["minimum"], g.get("deadline_s")) for g in plain.get("task_groups", ())
        ),
        relation_counts=tuple(
            RelationCount(c["machine"], c["relation"], c.get("members", 0), c.get("holders", 0))
            for c in plain.get("relation_counts", ())
        ),
        share_service_cores=plain.get("share_service_cores", False),
        gpu_demand=tuple(_demand(d) for d in plain.get("gpu_demand", ())),
    )


def _demand(plain: RecordedGpuDemand) -> tuple[GpuShape, int]:
    gpus = plain_task_gpus(plain) or TaskGpus()
    asked = (gpus.count, gpus.share_milli, gpus.models) if "gpus" in plain else (0, 0)
    return GpuShape(milli_of(plain["request"]), _mib(plain["memory"]), *asked), plain["count"]


def plain_task_gpus(plain: RecordedTask | RecordedGpuDemand) -> TaskGpus | None:
    """What a task of a snapshot asks for of GPUs."""
    gpus = plain.get("gpus")
    if gpus is None:
        return None
    share = milli_of(gpus["share"]) if "share" in gpus else WHOLE_MILLI
    return TaskGpus(gpus.get("count", 1), share, tuple(gpus.get("models", ())))


def plain_machine_gpus(plain: RecordedMachine) -> MachineGpus | None:
    """The GPUs of a machine of a snapshot."""
    gpus = plain.get("gpus")
    if gpus is None:
        return None
    memory = _mib(gpus["memory"]) if "memory" in gpus else None
    return MachineGpus(gpus["model"], gpus["count"], memory, gpus.get("topology", ""))


def plain_gpu_topologies(plain: RecordedSnapshot) -> dict[str, GpuTopology]:
    """How the GPUs of the machines of a snapshot are linked, by name, as far as its catalogue says."""
    forms: Mapping[str, Any] = plain.get("catalogue", {}).get("gpu_topologies") or {}
    return {name: GpuTopologyForm.model_validate(form).topology(name) for name, form in forms.items()}


def _machine(plain: RecordedMachine) -> Machine:
    return Machine(
        plain["name"],
        plain["type"],
        milli_of(plain["cpu"]),
        _mib(plain["memory"]),
        plain["vcpus"],
        tuple(plain["labels"].items()),
        tuple(plain.get("resources", {}).items()),
        plain_machine_gpus(plain),
    )


def _service(plain: RecordedService) -> Service:
    return Service(
        plain["name"],
        plain["profile"],
        plain["machine"],
        parse_cores(plain["cores"]),
        plain["threads"],
        milli_of(plain["request"]),
        _mib(plain["memory"]),
        plain["qps"],
        parse_duration_us(plain["slo_p95"]),
        plain["client"],
    )


def _running(plain: RecordedRunning) -> Running:
    return Running(
        _task(plain["task"]),
        plain["machine"],
        milli_of(plain["width"]),
        plain["threads"],
        parse_cores(plain["cores"]),
        plain["bound_s"],
        plain["start_s"],
        plain["progress"],
        plain.get("moved_s"),
        tuple(plain.get("devices", ())),
        plain.get("remote", False),
    )


def _task(plain: RecordedTask) -> Task:
    machines, spread_over = plain.get("machines"), plain.get("spread_over")
    return Task(
        name=plain["name"],
        job=plain["job"],
        profile=plain["profile"],
        scale=plain["scale"],
        request_milli=milli_of(plain["request"]),
        widths_milli=tuple(milli_of(w) for w in plain["widths"]),
        memory_mib=_mib(plain["memory"]),
        submit_s=plain["submit_s"],
        goal_s=plain.get("goal_s"),
        priority=plain["priority"],
        machines=None if machines is None else tuple(machines),
        resources=tuple(plain.get("resources", {}).items()),
        holds=tuple(plain.get("holds", ())),
        joins=tuple(plain.get("joins", ())),
        group=plain.get("group"),
        threads=tuple(plain.get("threads", ())),
        min_utility=plain.get("min_utility"),
        endless=plain.get("endless", False),
        weight=plain.get("weight", 1.0),
        spread_over=None if spread_over is None else tuple(spread_over),
        rounds_waited=plain.get("rounds_waited", 0),
        preemptions=plain.get("preemptions", 0),
        done=plain.get("done", 0.0),
        run_s=plain.get("run_s"),
        interference_class=plain.get("interference_class", ""),
        input_mb=plain.get("input_mb", 0.0),
        locality=tuple((place["label"], place["value"], place["share"]) for place in plain.get("locality", ())),
        wishes=tuple(plain.get("wishes", {}).items()),
        gpus=plain_task_gpus(plain),
        gpus_for=plain.get("gpus_for", ""),
        postponements=plain.get("postponements", 0),
    )


def _relation(plain: RecordedSnapshotRelation) -> Relation:
    numbers = {key: plain[key] for key in ("most", "skew", "min_domains") if key in plain}
    return Relation(plain["name"], RelationKind(plain["kind"]), plain.get("key", MACHINE), **numbers)


def milli_of(value: Any) -> int:
    """``2``, ``"1500m"`` as milli-CPU; unlike in a file that a person writes, 0 and less are possible."""
    text = str(value)
    return int(text[:-1]) if text.endswith("m") else int(Decimal(text) * 1000)


def _mib(text: str | float) -> int:
    return int(str(text).removesuffix("Mi"))
