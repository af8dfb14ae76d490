"""A snapshot as plain data, to be written as YAML or JSON and kept in records, and read back from there as it was.

A record is written by a program about a cluster as it stood: a machine may have no core left, a node's clock may be ahead,
a latency goal may be out of reach. The reader of snapshot files, which people write, refuses all that; this one does not.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, fields
from decimal import Decimal
from keyword import iskeyword
from math import inf
from operator import itemgetter
from typing import Any, Generic, NamedTuple, TypeVar

from flowsched.cluster.class_runs import ClassRuns
from flowsched.cluster.learnt_run_times import NOTHING_LEARNT, LearntRunTimes
from flowsched.cluster.run_time_errors import RunTimeErrors
from flowsched.cluster.snapshot import (
    SNAPSHOT_VERSION,
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
from flowsched.cluster.start_errors import StartErrors, read_error_classes
from flowsched.gpu.devices import MachineGpus, TaskGpus, profiles_of_worst
from flowsched.gpu.shapes import GpuShape
from flowsched.relations.relation import MACHINE, Relation, RelationKind, TaskGroup
from flowsched_models.catalogue import Catalogue
from flowsched_models.gpu_topology import GpuTopology
from flowsched_models.profiles import CatalogueForm, GpuTopologyForm, dump_catalogue
from flowsched_models.quantity import format_cores, format_memory, parse_cores, parse_duration_us

V = TypeVar("V")


class Kind(NamedTuple):
    """How the value of a field stands in plain data; ``field``: its name, where it is not the key's."""

    dump: Callable[[Any], Any]
    read: Callable[[Any], Any]
    field: str = ""


class PlainForm(Generic[V]):
    """The keys of a value in plain data, in their order: all of ``always``, then of ``optional`` what is not its default.

    ``kinds`` are those of keys whose values do not stand there as they are.
    """

    def __init__(self, made: type[V], always: str, optional: str = "", **kinds: Kind) -> None:
        defaults = {f.name: f.default for f in fields(made)}  # type: ignore[arg-type]
        self._made = made
        keys = []
        for key in (*always.split(), *optional.split()):
            kind = kinds.get(key)
            field = kind.field if kind and kind.field else key
            keys.append((key, field, kind and kind.dump, kind and kind.read, defaults[field]))
        self._fields = [field for _, field, *_ in keys]
        # No field of a form can be called "class".
        self._taken = itemgetter(*(field if iskeyword(key) else key for key, field, *_ in keys))
        self._lists = [field for _, field, dump, *_ in keys if dump is list]
        self._always, self._optional = keys[: len(always.split())], keys[len(always.split()) :]

    def dump(self, value: V) -> dict[str, Any]:
        """Plain data."""
        has = vars(value)
        data = {key: has[field] if dump is None else dump(has[field]) for key, field, dump, _, _ in self._always}
        for key, field, dump, _, default in self._optional:
            found = has[field]
            if found != default:
                data[key] = found if dump is None else dump(found)
        return data

    def read(self, plain: Mapping[str, Any], **given: Any) -> V:
        """The value of plain data; ``given`` are fields that do not stand there."""
        for key, field, _, read, _ in self._always:
            given[field] = plain[key] if read is None else read(plain[key])
        for key, field, _, read, _ in self._optional:
            if key in plain:
                given[field] = plain[key] if read is None else read(plain[key])
        return self._made(**given)

    def of(self, form: Any, **given: Any) -> V:
        """The value of a form, which has parsed what stands under the same keys; ``given`` are fields to take from there."""
        given = dict(zip(self._fields, self._taken(vars(form)), strict=True)) | given
        for field in self._lists:
            if isinstance(given[field], list):
                given[field] = tuple(given[field])
        return self._made(**given)


def _each(form: PlainForm[Any]) -> Kind:
    """A list of such values."""
    return _listed(form.dump, form.read)


def _listed(dump: Callable[[Any], Any], read: Callable[[Any], Any]) -> Kind:
    return Kind(lambda values: [dump(v) for v in values], lambda plain: tuple(map(read, plain)))


def _cores(milli: int) -> int | str:
    return f"{milli}m" if milli % 1000 else milli // 1000


def milli_of(value: Any) -> int:
    """``2``, ``"1500m"`` as milli-CPU; unlike in a file that a person writes, 0 and less are possible."""
    text = str(value)
    return int(text[:-1]) if text.endswith("m") else int(Decimal(text) * 1000)


def _mib(text: str) -> int:
    return int(str(text).removesuffix("Mi"))


def dump_task_gpus(gpus: TaskGpus) -> dict[str, Any]:
    """What a task asks for, as it stands in a file."""
    asked: dict[str, Any] = {"share": f"{gpus.share_milli}m"} if gpus.is_share else {"count": gpus.count}
    return {**asked, "models": list(gpus.models)} if gpus.models else asked


def _dump_demand(demand: tuple[GpuShape, int]) -> dict[str, Any]:
    shape, count = demand
    data: dict[str, Any] = {
        "request": _cores(shape.cpu_milli),
        "memory": format_memory(shape.memory_mib),
        "count": count,
    }
    if shape.count:
        data["gpus"] = dump_task_gpus(TaskGpus(shape.count, shape.share_milli, shape.models))
    return data


def _read_demand(plain: Mapping[str, Any]) -> tuple[GpuShape, int]:
    gpus = _TASK_GPUS.read(plain["gpus"]) if "gpus" in plain else None
    asked = (0, 0) if gpus is None else (gpus.count, gpus.share_milli, gpus.models)
    return GpuShape(milli_of(plain["request"]), _mib(plain["memory"]), *asked), plain["count"]


def _dump_relation(relation: Relation) -> dict[str, Any]:
    data: dict[str, Any] = {"name": relation.name, "kind": relation.kind.value, "key": relation.key}
    if relation.kind is RelationKind.LIMIT:
        data["most"] = relation.most
    if relation.kind is RelationKind.SPREAD:
        data["skew"] = relation.skew
        if relation.min_domains:
            data["min_domains"] = relation.min_domains
    return data


def _read_relation(plain: Mapping[str, Any]) -> Relation:
    numbers = {key: plain[key] for key in ("most", "skew", "min_domains") if key in plain}
    return Relation(plain["name"], RelationKind(plain["kind"]), plain.get("key", MACHINE), **numbers)


def _dump_start_errors(errors: StartErrors) -> dict[str, dict[str, int]]:
    # Beside its fields it may keep what follows from them.
    kept = {f.name: getattr(errors, f.name) for f in fields(errors)}
    return {name: {str(at): count for at, count in found} for name, found in kept.items() if found}


def _read_start_errors(plain: Mapping[str, Mapping[Any, int]]) -> StartErrors:
    return StartErrors(
        **{name: read_error_classes({int(at): n for at, n in found.items()}) for name, found in plain.items()}
    )


def _milli(field: str) -> Kind:
    return Kind(_cores, milli_of, field)


_LIST = Kind(list, tuple)
_MAPPING = Kind(dict, lambda plain: tuple(plain.items()))
_MEMORY = Kind(format_memory, _mib, "memory_mib")
_CORES = Kind(format_cores, parse_cores)
_COUNTED = _listed(
    lambda count: dict(zip(("count", "price"), count, strict=True)), lambda plain: (plain["count"], plain["price"])
)
_PLACES = _listed(
    lambda place: dict(zip(("label", "value", "share"), place, strict=True)),
    lambda plain: (plain["label"], plain["value"], plain["share"]),
)
_TASK_GPUS = PlainForm(TaskGpus, "", "count share models", share=Kind(_cores, milli_of, "share_milli"), models=_LIST)
_MACHINE_GPUS = PlainForm(MachineGpus, "model count", "memory topology", memory=_MEMORY)
_MACHINE = PlainForm(
    Machine,
    "name type cpu memory vcpus labels",
    "resources gpus",
    cpu=_milli("cpu_milli"),
    memory=_MEMORY,
    labels=_MAPPING,
    resources=_MAPPING,
    gpus=Kind(_MACHINE_GPUS.dump, _MACHINE_GPUS.read),
)
SERVICE = PlainForm(
    Service,
    "name profile machine cores threads request memory qps slo_p95 client",
    cores=_CORES,
    request=_milli("width_milli"),
    memory=_MEMORY,
    slo_p95=Kind(lambda slo_us: f"{slo_us!r}us", parse_duration_us, "slo_us"),
)
TASK = PlainForm(
    Task,
    "name job profile scale request widths memory submit_s priority",
    "weight goal_s machines spread_over resources holds joins threads group min_utility endless rounds_waited"
    " preemptions done run_s interference_class input_mb locality wishes counted gpus gpus_for postponements number"
    " class",
    request=_milli("request_milli"),
    widths=_listed(_cores, milli_of)._replace(field="widths_milli"),
    memory=_MEMORY,
    resources=_MAPPING,
    locality=_PLACES,
    wishes=_MAPPING,
    counted=_COUNTED,
    gpus=Kind(dump_task_gpus, _TASK_GPUS.read),
    **dict.fromkeys(("machines", "spread_over", "holds", "joins", "threads"), _LIST),
    **{"class": Kind(str, str, "run_class")},
)
RUNNING = PlainForm(
    Running,
    "task machine width threads cores bound_s start_s progress",
    "moved_s devices remote factor",
    task=Kind(TASK.dump, TASK.read),
    width=_milli("width_milli"),
    cores=_CORES,
    devices=_LIST,
)
PLANNED = PlainForm(PlannedStart, "task machine slot width", "start_s end_s", width=_milli("width_milli"))
RESERVATION = PlainForm(
    Reservation,
    "task machine width start_s",
    width=_milli("width_milli"),
    start_s=Kind(lambda s: None if s == inf else s, lambda s: inf if s is None else s),
)
TASK_GROUP = PlainForm(TaskGroup, "name minimum", "deadline_s")
RELATION_COUNT = PlainForm(RelationCount, "machine relation", "members holders")


def _dump_learnt(learnt: LearntRunTimes) -> dict[str, Any]:
    classes = [
        {
            "class": entry.run_class,
            "machine_type": entry.machine_type,
            "runs": entry.runs,
            "log_sum": entry.log_sum,
            "log_squares": entry.log_squares,
            "last": entry.last,
        }
        for entry in learnt.classes
    ]
    return {"classes": classes} if learnt.applied else {"applied": False, "classes": classes}


def _read_learnt(plain: Mapping[str, Any]) -> LearntRunTimes:
    entries = (
        ClassRuns.of(e["class"], e["machine_type"], e["runs"], e["log_sum"], e["log_squares"], e["last"])
        for e in plain["classes"]
    )
    return LearntRunTimes(tuple(entries), plain.get("applied", True))


_SNAPSHOT = PlainForm(
    Snapshot,
    "now_s round machines services running pending plan reservations start_delay",
    "relations task_groups relation_counts share_service_cores gpu_demand run_time_errors start_errors learnt_run_times",
    machines=_each(_MACHINE),
    services=_each(SERVICE),
    running=_each(RUNNING),
    pending=_each(TASK),
    plan=_each(PLANNED),
    reservations=_each(RESERVATION),
    start_delay=Kind(asdict, lambda plain: StartDelay(**plain)),
    relations=_listed(_dump_relation, _read_relation),
    task_groups=_each(TASK_GROUP),
    relation_counts=_each(RELATION_COUNT),
    gpu_demand=_listed(_dump_demand, _read_demand),
    run_time_errors=Kind(
        lambda errors: {"ends": errors.ends, "log_squares": errors.log_squares},
        lambda plain: RunTimeErrors.of(plain["ends"], plain["log_squares"]),
    ),
    start_errors=Kind(_dump_start_errors, _read_start_errors),
    learnt_run_times=Kind(_dump_learnt, _read_learnt),
)


def dump_snapshot(snapshot: Snapshot) -> dict[str, Any]:
    """Plain data for YAML or JSON, the same for the same content in any order (:meth:`Snapshot.in_order`). It holds the
    profiles that the snapshot uses, so it stands alone.
    """
    catalogue = dump_catalogue(used_profiles(snapshot))
    return {
        "apiVersion": SNAPSHOT_VERSION,
        "kind": "Snapshot",
        **_SNAPSHOT.dump(snapshot.in_order()),
        "catalogue": catalogue,
    }


def read_plain_snapshot(plain: Mapping[str, Any]) -> Snapshot:
    """The snapshot that ``dump_snapshot`` wrote. Raises ``KeyError``, ``TypeError`` or ``ValueError`` for a damaged one."""
    catalogue = CatalogueForm.model_validate(plain["catalogue"]).catalogue("record")
    return _SNAPSHOT.read(plain, catalogue=catalogue)


def plain_learnt_run_times(plain: Mapping[str, Any]) -> LearntRunTimes:
    """What completions had taught before the round of a snapshot."""
    return _read_learnt(plain["learnt_run_times"]) if "learnt_run_times" in plain else NOTHING_LEARNT


def plain_task_gpus(plain: Mapping[str, Any]) -> TaskGpus | None:
    """What a task of a snapshot asks for of GPUs."""
    return None if plain.get("gpus") is None else _TASK_GPUS.read(plain["gpus"])


def plain_machine_gpus(plain: Mapping[str, Any]) -> MachineGpus | None:
    """The GPUs of a machine of a snapshot."""
    return None if plain.get("gpus") is None else _MACHINE_GPUS.read(plain["gpus"])


def plain_gpu_topologies(plain: Mapping[str, Any]) -> dict[str, GpuTopology]:
    """How the GPUs of the machines of a snapshot are linked, by name, as far as its catalogue says."""
    forms: Mapping[str, Any] = plain.get("catalogue", {}).get("gpu_topologies") or {}
    return {name: GpuTopologyForm.model_validate(form).topology(name) for name, form in forms.items()}


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
