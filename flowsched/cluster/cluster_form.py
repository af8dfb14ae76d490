"""Machines and services as they stand in a file, and what must hold between them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from flowsched.cluster.snapshot import MILLI, Machine, Service
from flowsched.cluster.snapshot_dump import SERVICE
from flowsched.gpu.devices import WHOLE_MILLI, MachineGpus, TaskGpus
from flowsched.gpu.shapes import GpuShape
from flowsched.relations.relation import MACHINE, Relation, RelationKind
from flowsched_models.catalogue import Catalogue
from flowsched_models.document import Document, InputError, KeyPath, Problems, name_help
from flowsched_models.form import CoreSet, Count, DurationUs, Form, MemoryMib, MilliCpu, Moment, Name, PositiveInt, Rate
from flowsched_models.profiles import ADDITIONAL, load_catalogue
from flowsched_models.quantity import (
    QuantityError,
    format_cores,
    format_duration_us,
    format_memory,
    format_milli,
    format_rate,
    parse_milli,
    shown,
)
from flowsched_models.service import LatencyCurve, ServiceProfile


def _parse_request(value: Any) -> int:
    """CPU in cores or thousandths; 0 is allowed, as pods may request no CPU."""
    return 0 if value in (0, "0", "0m") and not isinstance(value, bool) else parse_milli(value)


Request = Annotated[int, BeforeValidator(_parse_request, json_schema_input_type=MilliCpu)]
"""A task's CPU request: programs write snapshots of clusters where pods ask for none."""


class MachineGpusForm(Form):
    """The GPUs of a machine in a file."""

    model: Name
    count: PositiveInt
    memory: MemoryMib | None = None
    topology: Name | None = None

    def value(self) -> MachineGpus:
        """The plain value."""
        return MachineGpus(self.model, self.count, self.memory, self.topology or "")


def _parse_share(value: Any) -> int:
    """A part of one GPU, in thousandths."""
    try:
        return parse_milli(value)
    except QuantityError:
        raise QuantityError(
            f"{shown(value)} is not a share of a GPU", "write a share as 0.47, or thousandths of a GPU as 470m"
        ) from None


GpuShare = Annotated[int, BeforeValidator(_parse_share, json_schema_input_type=MilliCpu)]


class TaskGpusForm(Form):
    """GPUs that a task asks for, in a file: ``{count: 2}``, ``{share: 470m}``, ``{models: [V100, P100]}``."""

    count: PositiveInt | None = None
    share: GpuShare | None = None
    models: Annotated[list[Name], Field(min_length=1)] | None = None


class JobGpusForm(TaskGpusForm):
    """GPUs that a job asks for, in a file: as of a task, and whether they may be on other machines."""

    remote: bool = False


def _gpus_in_a_cell(value: Any) -> Any:
    """``count=2 models=V100|P100``, as it stands in a cell of a table, as YAML would have it."""
    if not isinstance(value, str):
        return value
    found: dict[str, Any] = {}
    for word in value.split():
        key, equals, text = word.partition("=")
        if not (key and equals and text):
            raise QuantityError(
                f"{shown(value)} is not what GPUs are asked for by", "write share=470m, or count=2 models=V100|P100"
            )
        found[key] = text.split("|") if key == "models" else text
    if "remote" in found:
        found["remote"] = {"true": True, "false": False}.get(found["remote"], found["remote"])
    if str(found.get("count", "")).isdigit():
        found["count"] = int(found["count"])
    return found


AskedGpus = Annotated[
    TaskGpusForm | None, BeforeValidator(_gpus_in_a_cell, json_schema_input_type=TaskGpusForm | str | None)
]
"""GPUs that a task asks for, or none."""
JobGpus = Annotated[
    JobGpusForm | None, BeforeValidator(_gpus_in_a_cell, json_schema_input_type=JobGpusForm | str | None)
]
"""GPUs that a job asks for, or none."""


class GpuDemandForm(Form):
    """A shape of task that is expected where there are GPUs, in a file."""

    request: Request
    memory: MemoryMib = 0
    gpus: AskedGpus = None
    count: PositiveInt = 1


class MachineKeys(Form):
    """What is said of a machine beside its name and type. What is left out is as its type has it."""

    cpu: MilliCpu | None = None
    memory: MemoryMib | None = None
    labels: dict[str, str] = Field(default_factory=dict)
    resources: dict[str, Count] = Field(default_factory=dict)
    gpus: MachineGpusForm | None = None


class MachineForm(MachineKeys):
    """A machine in a file."""

    name: Name
    type: Name


class RelationForm(Form):
    """A relation between tasks in a file."""

    name: Name
    kind: Literal["limit", "apart", "spread", "together", "count"]
    key: Name = MACHINE
    most: PositiveInt | None = None
    skew: PositiveInt | None = None
    min_domains: PositiveInt | None = None


class TaskGroupForm(Form):
    """A task group in a file."""

    name: Name
    minimum: PositiveInt
    deadline_s: Moment | None = None


class BoundForm(Form):
    """What binds a task to machines and to other tasks: the same keys for jobs and for tasks."""

    resources: dict[str, Count] = Field(default_factory=dict)
    gpus: AskedGpus = None
    relations: list[Name] = Field(default_factory=list)
    holds: list[Name] = Field(default_factory=list)
    joins: list[Name] = Field(default_factory=list)
    group: Name | None = None
    threads: Annotated[list[PositiveInt], Field(min_length=1)] | None = None
    min_utility: Annotated[float, Field(le=1)] | None = None


class ServiceForm(Form):
    """A latency service in a file."""

    name: Name
    profile: Name
    machine: Name
    cores: CoreSet
    threads: PositiveInt = 1
    request: MilliCpu = MILLI
    memory: MemoryMib = 512
    qps: Rate
    slo_p95: DurationUs
    client: Name


def plural(count: int, noun: str) -> str:
    """``1 core``, ``2 cores``."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def refer(problems: Problems, document: Document, path: KeyPath, noun: str, name: str, known: Iterable[str]) -> bool:
    """Report a name that does not exist. Whether it exists."""
    names = list(known)
    if name in names:
        return True
    problems.add(document.problem(path, f"there is no {noun} '{name}'", name_help(name, names)))
    return False


def unique(problems: Problems, document: Document, names: Iterable[tuple[KeyPath, str]]) -> None:
    """Report every name that stands more than once."""
    first: dict[str, KeyPath] = {}
    for path, name in names:
        if name in first:
            line = document.line(first[name])
            problems.add(document.problem(path, f"the name '{name}' stands twice (first on line {line})"))
        first.setdefault(name, path)


def read_profiles(problems: Problems, document: Document, names: Iterable[str]) -> Catalogue | None:
    """The bundled profiles and those that a document names, by file or as bundled; None after mistakes in them."""
    paths: list[Path] = []
    sound = True
    for index, name in enumerate(names):
        path = document.beside(name)
        if path.is_file() or name in ADDITIONAL:
            paths.append(path if path.is_file() else ADDITIONAL[name])
        else:
            sound = False
            bundled = "" if Path(name).suffix else f"bundled profiles are {' and '.join(ADDITIONAL)}"
            problems.add(document.problem(("profiles", index), f"there is no file '{path}'", bundled))
    try:
        catalogue = load_catalogue(extra=paths)
    except InputError as error:
        problems.extend(error.problems)
        return None
    return catalogue if sound else None


def build_machines(
    problems: Problems,
    document: Document,
    forms: Iterable[tuple[KeyPath, MachineForm]],
    catalogue: Catalogue,
) -> list[Machine]:
    """Machines with the defaults of their types; those with mistakes are left out."""
    machines = []
    for path, form in forms:
        if not refer(problems, document, (*path, "type"), "machine type", form.type, catalogue.machine_types):
            continue
        kind = catalogue.machine_types[form.type]
        vcpus = getattr(form, "vcpus", None) or kind.vcpus
        cpu = form.cpu if form.cpu is not None else vcpus * MILLI
        if cpu > vcpus * MILLI:
            has = plural(vcpus, "virtual CPU")
            message = f"{format_milli(cpu)} cores are more than the {has} of {form.name}"
            problems.add(document.problem((*path, "cpu"), message))
        memory = form.memory if form.memory is not None else kind.memory_mib
        labels = tuple(form.labels.items())
        resources = tuple(sorted(form.resources.items()))
        gpus = None if form.gpus is None else form.gpus.value()
        if gpus is not None and gpus.topology:
            _check_topology(problems, document, (*path, "gpus"), gpus, catalogue)
        machines.append(Machine(form.name, form.type, cpu, memory, vcpus, labels, resources, gpus))
    return machines


def _check_topology(
    problems: Problems, document: Document, path: KeyPath, gpus: MachineGpus, catalogue: Catalogue
) -> None:
    known = catalogue.gpu_topologies
    if refer(problems, document, (*path, "topology"), "GPU topology", gpus.topology, known):
        there = known[gpus.topology].count
        if there != gpus.count:
            message = f"topology {gpus.topology} links {there} devices, but there are {gpus.count}"
            problems.add(document.problem((*path, "count"), message))


_ONLY_FOR = {"most": "limit", "skew": "spread", "min_domains": "spread"}


def build_relations(
    problems: Problems, document: Document, forms: Iterable[tuple[KeyPath, RelationForm]]
) -> tuple[Relation, ...]:
    """Relations with the defaults of their kinds."""
    relations = []
    for path, form in forms:
        for key, only in _ONLY_FOR.items():
            if getattr(form, key) is not None and form.kind != only:
                message = f"has no meaning for a relation of kind '{form.kind}'"
                problems.add(document.problem((*path, key), message, f"leave it out; it is for '{only}'"))
        kind = RelationKind(form.kind)
        relations.append(Relation(form.name, kind, form.key, form.most or 1, form.skew or 1, form.min_domains or 0))
    return tuple(relations)


def bound_values(
    problems: Problems,
    document: Document,
    path: KeyPath,
    form: BoundForm,
    relations: Iterable[str],
    groups: Iterable[str],
) -> dict[str, Any]:
    """The fields of a task that bind it; names that do not exist are reported."""
    known = list(relations)
    for key in ("relations", "holds", "joins"):
        for index, name in enumerate(getattr(form, key)):
            refer(problems, document, (*path, key, index), "relation", name, known)
    if form.group is not None:
        refer(problems, document, (*path, "group"), "task group", form.group, groups)
    if form.threads is not None and len(set(form.threads)) < len(form.threads):
        problems.add(document.problem((*path, "threads"), "names a number twice"))
    return {
        "resources": tuple(sorted((name, units) for name, units in form.resources.items() if units)),
        "gpus": _task_gpus(problems, document, (*path, "gpus"), form.gpus),
        "holds": tuple(dict.fromkeys((*form.relations, *form.holds))),
        "joins": tuple(dict.fromkeys((*form.relations, *form.joins))),
        "group": form.group,
        "threads": tuple(sorted(set(form.threads or ()))),
        "min_utility": form.min_utility,
    }


def _task_gpus(problems: Problems, document: Document, path: KeyPath, form: TaskGpusForm | None) -> TaskGpus | None:
    if form is None:
        return None
    share = WHOLE_MILLI if form.share is None else form.share
    if share > WHOLE_MILLI:
        message = f"a share is a part of one GPU, at most 1, but is {format_milli(share)}"
        problems.add(document.problem((*path, "share"), message, "ask for whole GPUs with count"))
        return None
    if form.share is not None and form.count is not None and form.count > 1 and share < WHOLE_MILLI:
        message = f"asks for {format_milli(share)} of {form.count} GPUs each; a share is a part of a single GPU"
        problems.add(document.problem((*path, "share"), message, "leave out count, or ask for whole GPUs"))
        return None
    return TaskGpus(form.count or 1, share, tuple(sorted(set(form.models or ()))))


def build_gpu_demand(
    problems: Problems, document: Document, forms: Iterable[tuple[KeyPath, GpuDemandForm]], machines: Iterable[Machine]
) -> tuple[tuple[GpuShape, int], ...]:
    """Shapes of tasks that are expected, with how many of each."""
    counts: dict[GpuShape, int] = {}
    asked: list[tuple[KeyPath, TaskGpus | None]] = []
    for path, form in forms:
        gpus = _task_gpus(problems, document, (*path, "gpus"), form.gpus)
        asked.append((path, gpus))
        wanted = (0, 0) if gpus is None else (gpus.count, gpus.share_milli, gpus.models)
        shape = GpuShape(form.request, form.memory, *wanted)
        counts[shape] = counts.get(shape, 0) + form.count
    check_models(problems, document, asked, machines)
    return tuple(sorted(counts.items()))


def check_models(
    problems: Problems,
    document: Document,
    asked: Iterable[tuple[KeyPath, TaskGpus | None]],
    machines: Iterable[Machine],
) -> None:
    """Report GPU models that no machine has."""
    known = {m.gpus.model for m in machines if m.gpus is not None}
    for path, gpus in asked:
        for index, model in enumerate(() if gpus is None else gpus.models):
            if model not in known:
                has = name_help(model, known) if known else "no machine has GPUs; say gpus: {model: …, count: …} of one"
                message = f"no machine has the GPU model '{model}'"
                problems.add(document.problem((*path, "gpus", "models", index), message, has))


def build_services(
    problems: Problems,
    document: Document,
    forms: Iterable[tuple[KeyPath, ServiceForm]],
    machines: Mapping[str, Machine],
    machine_names: Iterable[str],
    catalogue: Catalogue,
) -> list[Service]:
    """Services at their places; those that refer to something unknown are left out.

    ``machine_names`` are all names that the file gives, also of machines whose entries are broken.
    """
    services = []
    owner: dict[tuple[str, int], str] = {}
    known_machines = list(machine_names)
    for path, form in forms:
        known = refer(problems, document, (*path, "machine"), "machine", form.machine, known_machines)
        if not refer(problems, document, (*path, "profile"), "service profile", form.profile, catalogue.services):
            continue
        profile = catalogue.services[form.profile]
        client = refer(problems, document, (*path, "client"), f"client of {profile.name}", form.client, profile.clients)
        curve = find_curve(problems, document, path, profile, form.threads, form.cores)
        machine = machines.get(form.machine)
        if machine is not None:
            check_cores(problems, document, (*path, "cores"), form.cores, machine)
        shared = sorted({owner[c] for core in form.cores if (c := (form.machine, core)) in owner})
        if shared:
            others = ", ".join(shared)
            message = f"cores {format_cores(form.cores)} of {form.machine} overlap those of {others}"
            problems.add(document.problem((*path, "cores"), message, "every service needs cores of its own"))
        owner |= {(form.machine, core): form.name for core in form.cores}
        if client and curve is not None:
            _check_slo(problems, document, path, form, profile, curve)
        if known and client and machine is not None:
            services.append(SERVICE.of(form))
    return services


def check_cores(problems: Problems, document: Document, path: KeyPath, cores: Iterable[int], machine: Machine) -> None:
    """Report cores that a machine does not have."""
    outside = [c for c in cores if c >= machine.vcpus]
    if outside:
        has = format_cores(range(machine.vcpus))
        verb = "does" if len(outside) == 1 else "do"
        noun = "core" if len(outside) == 1 else "cores"
        problems.add(
            document.problem(
                path, f"{noun} {format_cores(outside)} {verb} not exist on {machine.name}, which has {has}"
            )
        )


def find_curve(
    problems: Problems,
    document: Document,
    path: KeyPath,
    profile: ServiceProfile,
    threads: int,
    cores: tuple[int, ...],
) -> LatencyCurve | None:
    """The latency curve for a place; report if none was measured."""
    curve = profile.curve(threads, len(cores))
    if curve is None:
        measured = ", ".join(_on(c.threads, c.cores) for c in profile.curves)
        message = f"no latency of {profile.name} was measured for {_on(threads, len(cores))}"
        key = "threads" if document.line((*path, "threads")) != document.line(path) else "cores"
        problems.add(document.problem((*path, key), message, f"measured: {measured}"))
    return curve


def _on(threads: int, cores: int) -> str:
    return f"{plural(threads, 'thread')} on {plural(cores, 'core')}"


def _check_slo(
    problems: Problems,
    document: Document,
    path: KeyPath,
    form: ServiceForm,
    profile: ServiceProfile,
    curve: LatencyCurve,
) -> None:
    p95 = profile.p95_us(curve, form.qps, form.client)
    if p95 <= form.slo_p95:
        return
    message = (
        f"no machine can serve {format_rate(form.qps)} QPS within {format_duration_us(form.slo_p95)} with "
        f"{_on(form.threads, len(form.cores))}: p95 is {format_duration_us(p95)} even without neighbours"
    )
    able = [_on(c.threads, c.cores) for c in profile.curves if profile.p95_us(c, form.qps, form.client) <= form.slo_p95]
    help = f"{', '.join(able)} would do" if able else "no measured number of threads and cores would do"
    problems.add(document.problem((*path, "qps"), message, help))


def check_room(
    problems: Problems,
    document: Document,
    places: Mapping[str, KeyPath],
    services: Iterable[Service],
    machines: Mapping[str, Machine],
) -> None:
    """Report services that ask for more than their machine has, all on it together."""
    cpu: dict[str, int] = {}
    memory: dict[str, int] = {}
    for service in services:
        machine = machines[service.machine]
        path = places[service.name]
        cpu[machine.name] = cpu.get(machine.name, 0) + service.width_milli
        memory[machine.name] = memory.get(machine.name, 0) + service.memory_mib
        if cpu[machine.name] > machine.cpu_milli:
            asked, has = format_milli(cpu[machine.name]), format_milli(machine.cpu_milli)
            message = f"the services on {machine.name} request {asked} cores; it has {has}"
            problems.add(document.problem((*path, "request"), message))
        if memory[machine.name] > machine.memory_mib:
            asked, has = format_memory(memory[machine.name]), format_memory(machine.memory_mib)
            message = f"the services on {machine.name} ask for {asked}; it has {has}"
            problems.add(document.problem((*path, "memory"), message))
