"""Profiles in YAML: the bundled ones, a user's own, and those written into another file."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import Field

from flowsched_models.catalogue import Catalogue
from flowsched_models.document import (
    Document,
    InputError,
    KeyPath,
    Problem,
    Problems,
    name_help,
    parse_document,
    read_text,
)
from flowsched_models.form import (
    API_VERSION,
    Form,
    MemoryMib,
    Name,
    NotNegative,
    Positive,
    PositiveInt,
    Rate,
    check,
    check_header,
)
from flowsched_models.gpu_profile import NO_GPU_PROFILE, Contention, GpuProfile
from flowsched_models.gpu_topology import GpuLinks, GpuTopology
from flowsched_models.machine import HOST_ERROR, MachineType
from flowsched_models.neutral import with_neutral_job
from flowsched_models.profile import NEVER_MEASURED, JobProfile, PhaseOrder
from flowsched_models.quantity import format_memory
from flowsched_models.service import LatencyCurve, OtherMachine, ServiceProfile
from flowsched_models.window_noise import WindowNoise

BUNDLED = Path(__file__).with_name("data") / "profiles.yaml"
TOPOLOGIES = BUNDLED.with_name("gpu_topologies.yaml")
BUNDLED_SOURCE = "bundled profiles.yaml"
ADDITIONAL = {path.stem: path for path in sorted(BUNDLED.parent.glob("*.yaml")) if path not in (BUNDLED, TOPOLOGIES)}
"""Further bundled profiles by the name that takes the place of a file's: they are known where they are asked for."""

Share = Annotated[float, Field(ge=0, le=1)]
Text = Annotated[str, Field(min_length=1)]
DeviceNumber = Annotated[int, Field(ge=0)]


class ContentionForm(Form):
    """How jobs at one place disturb each other, in a file."""

    sensitivity: NotNegative = 0.0
    pressure: NotNegative = 0.0

    def value(self) -> Contention:
        """The plain value."""
        return Contention(self.sensitivity, self.pressure)


class GpuProfileForm(Form):
    """What GPUs do to a job's speed, in a file."""

    speed: dict[Name, Annotated[float, Field(gt=0, le=1)]] = Field(default_factory=dict)
    links: dict[Name, Annotated[float, Field(ge=1)]] = Field(default_factory=dict)
    communication: Annotated[float, Field(ge=0, le=4)] = 0.0
    socket: ContentionForm = ContentionForm()
    device: ContentionForm = ContentionForm()
    network: ContentionForm = ContentionForm()
    remote: Annotated[float, Field(ge=1)] = 1.0
    network_when_local: bool = False

    def value(self) -> GpuProfile:
        """The plain value."""
        places = self.socket.value(), self.device.value(), self.network.value()
        return GpuProfile(self.speed, self.links, self.communication, *places, self.remote, self.network_when_local)


class GpuLinksForm(Form):
    """Links of one class, in a file."""

    link_class: Name = Field(alias="class")
    weight: Positive
    between: Annotated[
        list[Annotated[list[DeviceNumber | Name], Field(min_length=2, max_length=2)]], Field(min_length=1)
    ]


class GpuTopologyForm(Form):
    """How the GPUs of a kind of machine are linked, in a file."""

    source: Text | None = None
    sockets: Annotated[list[Annotated[list[DeviceNumber], Field(min_length=1)]], Field(min_length=1)]
    links: Annotated[list[GpuLinksForm], Field(min_length=1)]

    def topology(self, name: str) -> GpuTopology:
        """The plain value."""
        links = tuple(GpuLinks(one.link_class, one.weight, tuple((a, b) for a, b in one.between)) for one in self.links)
        return GpuTopology(name, tuple(tuple(socket) for socket in self.sockets), links)


class JobForm(Form):
    """A job profile in a file."""

    source: Text | None = None
    work_s: Positive
    serial_fraction: Annotated[float, Field(ge=0, le=1)]
    phase_order: Literal["serial-first", "mixed"]
    smt_gain: Share
    sensitivity: NotNegative
    pressure: NotNegative
    memory: MemoryMib
    oversubscription: NotNegative = 0.0
    threads_power_of_two: bool = False
    speed: dict[str, Positive] = Field(default_factory=dict)
    gpus: GpuProfileForm | None = None
    error: NotNegative = NEVER_MEASURED

    def profile(self, name: str) -> JobProfile:
        """The plain value."""
        plain = self.model_dump(exclude={"source", "memory", "phase_order", "gpus"})
        order = PhaseOrder(self.phase_order)
        gpus = NO_GPU_PROFILE if self.gpus is None else self.gpus.value()
        return JobProfile(name=name, memory_mib=self.memory, phase_order=order, gpus=gpus, **plain)


class OtherMachineForm(Form):
    """How a curve differs on another machine type, in a file."""

    machine_type: Name
    latency: Positive
    capacity: Positive
    max_measured_qps: Rate


class CurveForm(Form):
    """One latency curve in a file."""

    threads: PositiveInt
    cores: PositiveInt
    a_us: NotNegative
    b_us: NotNegative
    q0: Rate
    qcap: Rate
    psat_us: NotNegative
    w: Rate
    max_measured_qps: Rate
    error: NotNegative | None = None
    estimated: bool = False
    elsewhere: list[OtherMachineForm] = Field(default_factory=list)

    def curve(self) -> LatencyCurve:
        """The plain value."""
        elsewhere = tuple(OtherMachine(**m.model_dump()) for m in self.elsewhere)
        return LatencyCurve(**self.model_dump(exclude={"elsewhere"}), elsewhere=elsewhere)


class WindowNoiseForm(Form):
    """How windows of one length scatter, in a file."""

    window_s: Positive
    error: NotNegative
    stalls: Share = 0.0
    stall: NotNegative = 0.0


class ServiceForm(Form):
    """A service profile in a file."""

    source: Text | None = None
    curves: Annotated[list[CurveForm], Field(min_length=1)]
    clients: Annotated[dict[str, Positive], Field(min_length=1)]
    cpu_per_kqps: NotNegative = 0.0
    pressure: NotNegative = 0.0
    sensitivity: NotNegative = 0.0
    sharing_slope: NotNegative = 0.0
    sharing_capacity: NotNegative = 0.0
    sharing_us: NotNegative = 0.0
    background_slope: NotNegative = 0.0
    background_at: NotNegative = 0.78
    background_width: Positive = 0.03
    window_noise: list[WindowNoiseForm] = Field(default_factory=list)
    error: NotNegative = 0.15
    capacity_error: NotNegative = 0.1
    latency_factor: dict[str, Positive] = Field(default_factory=dict)
    capacity_factor: dict[str, Positive] = Field(default_factory=dict)
    interference: dict[str, Positive] = Field(default_factory=dict)

    def profile(self, name: str) -> ServiceProfile:
        """The plain value."""
        plain = self.model_dump(exclude={"source", "curves", "window_noise"})
        curves = tuple(c.curve() for c in self.curves)
        noise = tuple(WindowNoise(**n.model_dump()) for n in self.window_noise)
        return ServiceProfile(name=name, curves=curves, window_noise=noise, **plain)


class MachineTypeForm(Form):
    """A machine type in a file."""

    source: Text | None = None
    vcpus: PositiveInt
    memory: MemoryMib
    speed: Positive = 1.0
    bandwidth: NotNegative = 1.0
    smt: bool = False
    error: NotNegative = HOST_ERROR

    def profile(self, name: str) -> MachineType:
        """The plain value."""
        plain = self.model_dump(exclude={"source", "memory"})
        return MachineType(name=name, memory_mib=self.memory, **plain)


class CatalogueForm(Form):
    """The kinds of profiles by name, as they stand in a profiles file and inside other files."""

    source: Text | None = None
    jobs: dict[Name, JobForm] = Field(default_factory=dict)
    services: dict[Name, ServiceForm] = Field(default_factory=dict)
    machine_types: dict[Name, MachineTypeForm] = Field(default_factory=dict)
    gpu_topologies: dict[Name, GpuTopologyForm] = Field(default_factory=dict)

    def catalogue(self, source: str) -> Catalogue:
        """The plain value."""
        return Catalogue(
            jobs={n: f.profile(n) for n, f in self.jobs.items()},
            services={n: f.profile(n) for n, f in self.services.items()},
            machine_types={n: f.profile(n) for n, f in self.machine_types.items()},
            source=self.source or source,
            gpu_topologies={n: f.topology(n) for n, f in self.gpu_topologies.items()},
        )


class ProfilesForm(CatalogueForm):
    """A profiles file."""

    api_version: Literal["flowsched/v1"] = Field(alias="apiVersion")
    kind: Literal["Profiles"]


def load_catalogue(path: Path | None = None, extra: Sequence[Path] = ()) -> Catalogue:
    """Profiles from a file, the bundled one by default, and from ``extra`` files, or what is bundled under their names.

    A profile of a later file replaces one of the same name. Jobs that were not measured have the profile ``neutral``, the
    middle of the others, unless a file has one of that name. Raises
    :class:`flowsched_models.document.InputError` with all mistakes of all files.
    """
    found = Problems()
    base = _bundled() if path is None else _read(path, str(path), found, None)
    for more in extra:
        file = more if more.is_file() else ADDITIONAL.get(str(more), more)
        source = f"bundled {file.name}" if file in ADDITIONAL.values() else str(more)
        base = _read(file, source, found, base)
    found.raise_any()
    return with_neutral_job(base)


@functools.cache
def _bundled() -> Catalogue:
    found = Problems()
    catalogue = _read(BUNDLED, BUNDLED_SOURCE, found, None)
    topologies = _read(TOPOLOGIES, "bundled gpu_topologies.yaml", found, None).gpu_topologies
    found.raise_any()
    return replace(catalogue, gpu_topologies=topologies)


_HEADER = {"apiVersion": API_VERSION, "kind": "Profiles"}


def _read(path: Path, source: str, found: Problems, below: Catalogue | None) -> Catalogue:
    text = read_text(path, source)
    if not all(key in text for key in _HEADER):
        # The name may come from a stranger, who may not read that file: nothing of it is quoted.
        message = f"is no file of profiles: it has no {' and '.join(_HEADER)}"
        raise InputError.one(source, message, f"its first lines are 'apiVersion: {API_VERSION}' and 'kind: Profiles'")
    document = parse_document(text, source, path)
    InputError.raise_any(
        document.problem((key,), "is missing", f"write '{key}: {word}'")
        for key, word in _HEADER.items()
        if key not in document.data
    )
    check_header(document, "Profiles")
    checked = check(document, ProfilesForm, placeholders=_HEADER)
    found.extend(checked.problems)
    form = checked.value
    if form is None:
        return below or Catalogue({}, {}, {}, source)
    catalogue = merged(below, form.catalogue(source))
    found.extend(catalogue_problems(document, form, (), catalogue.machine_types, sources_required=True))
    return catalogue


def merged(below: Catalogue | None, above: Catalogue) -> Catalogue:
    """Both; a profile of ``above`` replaces one of the same name."""
    if below is None:
        return above
    return Catalogue(
        jobs={**below.jobs, **above.jobs},
        services={**below.services, **above.services},
        machine_types={**below.machine_types, **above.machine_types},
        source=f"{below.source} + {above.source}",
        gpu_topologies={**below.gpu_topologies, **above.gpu_topologies},
    )


def catalogue_problems(
    document: Document,
    form: CatalogueForm,
    base: KeyPath,
    machine_types: Mapping[str, MachineType] | None,
    sources_required: bool,
) -> Iterator[Problem]:
    """What the form alone cannot see. ``machine_types``: the known ones, or None to allow any name."""
    sections: dict[str, Mapping[str, JobForm | ServiceForm | MachineTypeForm | GpuTopologyForm]] = {
        "jobs": form.jobs,
        "services": form.services,
        "machine_types": form.machine_types,
        "gpu_topologies": form.gpu_topologies,
    }
    if sources_required:
        for section, entries in sections.items():
            for name, entry in entries.items():
                if entry.source is None:
                    yield document.problem(
                        (*base, section, name, "source"), "is missing", "say where the values come from"
                    )
    if machine_types is not None:
        # A broken entry is still a name that may be referred to.
        own = document.data.get("machine_types")
        known = list(dict.fromkeys([*machine_types, *(own if isinstance(own, dict) else ())]))
        for name, job in form.jobs.items():
            for type_name in job.speed:
                if type_name not in known:
                    yield document.problem(
                        (*base, "jobs", name, "speed", type_name),
                        f"there is no machine type '{type_name}'",
                        name_help(type_name, known),
                    )
    for name, service in form.services.items():
        seen: set[tuple[int, int]] = set()
        for index, curve in enumerate(service.curves):
            place = (*base, "services", name, "curves", index)
            if (curve.threads, curve.cores) in seen:
                yield document.problem(place, f"a second curve for {curve.threads} threads on {curve.cores} cores")
            seen.add((curve.threads, curve.cores))
            for key in ("q0", "qcap", "w"):
                if getattr(curve, key) <= 0:
                    yield document.problem((*place, key), "must be more than 0")
    for name, machine in form.machine_types.items():
        if machine.smt and machine.vcpus % 2:
            yield document.problem(
                (*base, "machine_types", name, "vcpus"),
                f"must be even where virtual CPUs come in pairs (smt), but is {machine.vcpus}",
            )

    for name, topology in form.gpu_topologies.items():
        yield from _topology_problems(document, (*base, "gpu_topologies", name), topology)


def _topology_problems(document: Document, path: KeyPath, form: GpuTopologyForm) -> Iterator[Problem]:
    devices = [device for socket in form.sockets for device in socket]
    if sorted(devices) != list(range(len(devices))):
        numbers = ", ".join(map(str, devices))
        message = f"must have each of the {len(devices)} devices once, numbered from 0, but has {numbers}"
        yield document.problem((*path, "sockets"), message)
        return
    classes = [links.link_class for links in form.links]
    for index, links in enumerate(form.links):
        if classes.index(links.link_class) < index:
            message = f"a second entry for links of class '{links.link_class}'"
            yield document.problem((*path, "links", index, "class"), message, "write all links of a class in one entry")
        for number, ends in enumerate(links.between):
            for end in ends:
                if isinstance(end, int) and end >= len(devices):
                    message = f"there is no device {end}; there are {len(devices)}, numbered from 0"
                    yield document.problem((*path, "links", index, "between", number), message)
                    return
    apart = np.argwhere(~form.topology("").linked)
    if len(apart):
        one, other = apart[0].tolist()
        yield document.problem((*path, "links"), f"no links lead from device {one} to device {other}")


def dump_catalogue(catalogue: Catalogue) -> dict[str, Any]:
    """Plain data that :class:`CatalogueForm` reads back to an equal catalogue."""

    def plain(value: Any) -> dict[str, Any]:
        data = {f.name: getattr(value, f.name) for f in fields(value) if f.name != "name"}
        if "memory_mib" in data:
            data["memory"] = format_memory(data.pop("memory_mib"))
        return data

    jobs = {}
    for name, job in catalogue.jobs.items():
        jobs[name] = plain(job) | {"phase_order": job.phase_order.value, "speed": dict(job.speed)}
        del jobs[name]["gpus"]
        if job.gpus != NO_GPU_PROFILE:
            jobs[name]["gpus"] = _dump_gpu_profile(job.gpus)
    services = {}
    for name, service in catalogue.services.items():
        services[name] = plain(service) | {
            "curves": [plain(c) | {"elsewhere": [plain(m) for m in c.elsewhere]} for c in service.curves],
            "clients": dict(service.clients),
            "window_noise": [plain(n) for n in service.window_noise],
        }
    types = {name: plain(machine) for name, machine in catalogue.machine_types.items()}
    data = {"source": catalogue.source, "jobs": jobs, "services": services, "machine_types": types}
    if catalogue.gpu_topologies:
        data["gpu_topologies"] = {name: _dump_topology(t) for name, t in catalogue.gpu_topologies.items()}
    return data


def _dump_gpu_profile(gpus: GpuProfile) -> dict[str, Any]:
    places = {"socket": gpus.socket, "device": gpus.device, "network": gpus.network}
    data = {
        "speed": dict(gpus.speed),
        "links": dict(gpus.links),
        "communication": gpus.communication,
        **{place: contention._asdict() for place, contention in places.items()},
        "network_when_local": gpus.network_when_local,
    }
    return data if gpus.remote == 1.0 else {**data, "remote": gpus.remote}


def _dump_topology(topology: GpuTopology) -> dict[str, Any]:
    return {
        "sockets": [list(socket) for socket in topology.sockets],
        "links": [
            {"class": links.link_class, "weight": links.weight, "between": [list(ends) for ends in links.between]}
            for links in topology.links
        ],
    }
