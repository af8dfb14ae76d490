"""Scenarios in YAML: the bundled ones by name, a user's own by path."""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import replace
from pathlib import Path
from typing import Any

from flowsched.cluster.cluster_form import (
    MachineForm,
    ServiceForm,
    build_gpu_demand,
    build_machines,
    build_relations,
    build_services,
    check_room,
    plural,
    unique,
)
from flowsched.cluster.snapshot import Machine, StartDelay
from flowsched.relations.relation import MACHINE, Relation, TaskGroup
from flowsched_models.catalogue import Catalogue
from flowsched_models.document import (
    Document,
    InputError,
    KeyPath,
    Problems,
    name_help,
    read_document,
)
from flowsched_models.form import Checked
from flowsched_simulator.arrivals import Arrivals
from flowsched_simulator.arrivals_file import read_arrivals, rows_as_entries
from flowsched_simulator.arrivals_reader import read_process
from flowsched_simulator.form_reader import read_form
from flowsched_simulator.job_fit import check_fit
from flowsched_simulator.job_form import JobEntry
from flowsched_simulator.job_reader import KnownNames, ReadJobs, read_jobs
from flowsched_simulator.scenario import Objective, Scenario, Stragglers
from flowsched_simulator.scenario_form import MachineEntryForm, ScenarioForm
from flowsched_simulator.scenario_size import check_size

BUNDLED = Path(__file__).with_name("scenarios")
KIND = "Scenario"

_SCHEDULE_WORDS = ("apiVersion", "kind", "name", "description", "cluster", "tasks")


def load_scenario(name_or_path: str | Path) -> Scenario:
    """A bundled scenario by its name, or a scenario file by its path.

    Raises :class:`flowsched_models.document.InputError` with all mistakes of the file and of those it names.
    """
    return read_scenario(find_document(name_or_path, BUNDLED, "scenario", KIND))


def read_scenario(document: Document) -> Scenario:
    """The same from a document that is read. Raises :class:`flowsched_models.document.InputError`."""
    return read_with_entries(document)[0]


def read_with_entries(
    document: Document, rows: Iterable[Mapping[str, Any]] | None = None
) -> tuple[Scenario, tuple[JobEntry, ...]]:
    """The same, and the entries of its jobs as they were written. ``rows``: further jobs, as of an arrivals file."""
    reader = _ScenarioReader(document, rows)
    return reader.read(), tuple(reader.entries)


@functools.cache
def bundled_scenarios(kind: str = KIND) -> tuple[tuple[str, str], ...]:
    """Name and description of every bundled scenario of a kind: clusters, or with ``NodeScenario`` single machines."""
    return bundled(BUNDLED, kind)


def bundled(folder: Path, kind: str | None = None) -> tuple[tuple[str, str], ...]:
    """Name and description of the files of a folder, or of those of one kind."""
    documents = [(path, read_document(path)) for path in sorted(folder.glob("*.yaml"), key=lambda p: p.stem)]
    return tuple(
        (path.stem, " ".join(str(d.data.get("description", "")).split()))
        for path, d in documents
        if kind is None or d.data.get("kind") == kind
    )


def find_file(name_or_path: str | Path, folder: Path, noun: str, kind: str | None = None) -> Path:
    """The bundled file of this name, or else the file at this path. ``kind``: of those to suggest; None: any."""
    text = str(name_or_path)
    path = Path(name_or_path)
    is_path = isinstance(name_or_path, Path) or len(path.parts) != 1 or path.suffix in (".yaml", ".yml", ".json")
    names = sorted(p.stem for p in folder.glob("*.yaml"))
    if not is_path and text in names:
        return folder / f"{text}.yaml"
    if is_path or path.is_file():
        return path
    known = names if kind is None else [name for name, _ in bundled(folder, kind)]
    help = f"{name_help(text, known)}, or give a path to a file"
    raise InputError.one(text, f"there is no bundled {noun} '{text}'", help)


def find_document(name_or_path: str | Path, folder: Path, noun: str, kind: str | None = None) -> Document:
    """The file that :func:`find_file` finds, read. Raises :class:`flowsched_models.document.InputError`."""
    path = find_file(name_or_path, folder, noun, kind)
    return read_document(path, source_of(path, folder))


def source_of(path: Path, folder: Path) -> str:
    """How a file is called in messages and results: a bundled one the same on every machine."""
    return f"{path.name} (bundled)" if path.parent == folder else str(path)


class _ScenarioReader:
    """Reads one scenario and collects what is wrong with it."""

    def __init__(self, document: Document, rows: Iterable[Mapping[str, Any]] | None = None) -> None:
        self.document = document
        self.rows = rows
        self.problems = Problems()
        self.entries: list[JobEntry] = []

    def read(self) -> Scenario:
        return read_form(self.document, self.problems, KIND, ScenarioForm, lambda form: form.profiles, self._build)

    def _build(self, checked: Checked[ScenarioForm], form: ScenarioForm, catalogue: Catalogue) -> Scenario:
        document, problems = self.document, self.problems
        drawn = form.arrivals.process.jobs if form.arrivals.process is not None else None
        tasks = sum(job.copies * job.tasks for job in form.jobs)
        check_size(document.source, sum(entry.copies for entry in form.machines), max(tasks, drawn or 0))
        named_machines = list(checked.items("machines", form.machines))
        named_services = list(checked.items("services", form.services))
        every = [((*p, "name"), name) for p, f in named_machines for name in f.names()]
        unique(problems, document, every)
        unique(problems, document, (((*p, "name"), f.name) for p, f in named_services))
        several = {f.name for _, f in named_machines if f.copies > 1}
        broken = [name for name in document.names("machines") if name not in several]
        machine_names = tuple(dict.fromkeys([*broken, *(name for _, name in every)]))
        catalogue = self._with_plain_types(named_machines, catalogue)
        machines = self._machines(named_machines, catalogue)
        by_name = {m.name: m for m in machines}
        services = build_services(problems, document, named_services, by_name, machine_names, catalogue)
        for path, service_form in named_services:
            if service_form.name in _SCHEDULE_WORDS:
                message = f"a service cannot be called '{service_form.name}': the word has a meaning in schedules"
                problems.add(document.problem((*path, "name"), message))
        check_room(problems, document, {f.name: p for p, f in named_services}, services, by_name)
        found = len(problems.found)
        jobs = self.entries = self._jobs(checked, form)
        check_size(document.source, len(machines), sum(entry.form.copies * entry.form.tasks for entry in jobs))
        sound = "jobs" not in checked.broken and len(problems.found) == found
        plain = {name for _, f in named_machines if f.plain_type() is not None for name in f.names()}
        self._check_plain_services(named_services, plain)
        labels = {m.name: dict(m.labels) for m in machines}
        known = KnownNames(machine_names, labels, document.names("relations"), document.names("task_groups"))
        read = read_jobs(problems, jobs, catalogue, known)
        self._check_plain_jobs(read, plain)
        # After a mistake in it, whether jobs are drawn is not known.
        known_process = "arrivals" not in checked.broken
        arrivals = read_process(problems, document, form.arrivals, jobs) if known_process else None
        relations = self._relations(checked, form)
        counted = sound and (form.arrivals.process is None or form.arrivals.process.jobs is None)
        groups = self._task_groups(checked, form, jobs if counted else None)
        # Whether a job fits anywhere can only be said where all machines and services are sound.
        if {"machines", "services"}.isdisjoint(checked.broken) and len(by_name) == len(every):
            check_fit(problems, read.tasks, machines, services)
        return Scenario(
            name=form.name,
            description=form.about,
            catalogue=read.catalogue,
            machines=tuple(machines),
            services=tuple(services),
            tasks=tuple(task for task, _ in read.tasks),
            objective=Objective(form.objective),
            arrivals=arrivals or Arrivals(),
            start_delay=StartDelay(**form.start_delay.model_dump()),
            relations=relations,
            task_groups=(*groups, *read.barriers),
            barriers=frozenset(group.name for group in read.barriers),
            share_service_cores=form.share_service_cores,
            gpu_demand=build_gpu_demand(
                self.problems, self.document, checked.items("gpu_demand", form.gpu_demand), machines
            ),
            estimate_error=form.estimate_error,
            run_time_factors=read.run_time_factors,
            job_terms=read.terms,
            true_profiles=read.true_profiles,
            sensitivity_error=form.sensitivity_error,
            stragglers=None if form.stragglers is None else Stragglers(form.stragglers.share, form.stragglers.factor),
            classes=read.classes,
            source=document.source,
        )

    def _with_plain_types(self, named: Iterable[tuple[KeyPath, MachineEntryForm]], catalogue: Catalogue) -> Catalogue:
        """The catalogue with the types of plain machines, which no profile was measured on."""
        types = dict(catalogue.machine_types)
        for path, form in named:
            if form.type is not None and form.cores is not None:
                message = f"stands beside the type {form.type}, which has its own number of cores"
                self.problems.add(self.document.problem((*path, "cores"), message, "leave one of them out"))
            elif form.type is None and form.cores is None:
                message = "is missing"
                help = "name a machine type, or give cores and memory of a plain machine"
                self.problems.add(self.document.problem((*path, "type"), message, help))
            elif form.type is None and form.memory is None:
                help = "say how much jobs may ask for, such as memory: 64Gi, or name a type"
                self.problems.add(self.document.problem((*path, "memory"), "is missing beside cores", help))
            elif (plain := form.plain_type()) is not None and types.setdefault(plain.name, plain) != plain:
                message = f"the profiles have a type {plain.name}, which is how machines with these cores are called"
                self.problems.add(self.document.problem((*path, "cores"), message, f"name it: type: {plain.name}"))
        return replace(catalogue, machine_types=types)

    def _check_plain_jobs(self, read: ReadJobs, plain: AbstractSet[str]) -> None:
        """Report jobs with a measured profile that may come to a plain machine: how fast they are there is not known."""
        seen: set[int] = set()
        for task, entry in read.tasks:
            profile = read.catalogue.jobs[task.profile]
            here = plain if task.machines is None else plain & set(task.machines)
            if profile.has_given_run_time or not profile.speed or not here or id(entry) in seen:
                continue
            seen.add(id(entry))
            message = f"was not measured on plain machines, and job '{entry.form.name}' may come to {min(here)}"
            help = "give the job runtime_s, give the machine a type, or keep them apart by machines or machine_labels"
            self.problems.add(entry.problem("profile", message, help))

    def _check_plain_services(self, named: Iterable[tuple[KeyPath, ServiceForm]], plain: AbstractSet[str]) -> None:
        """Report latency services on plain machines."""
        for path, form in named:
            if form.machine in plain:
                message = f"{form.machine} is a plain machine, on which no service was measured"
                self.problems.add(self.document.problem((*path, "machine"), message, "give the machine a type"))

    def _machines(self, named: Iterable[tuple[KeyPath, MachineEntryForm]], catalogue: Catalogue) -> list[Machine]:
        """All machines; those of one entry differ by name only, and have their mistakes reported once."""
        machines: list[Machine] = []
        for path, form in named:
            names = form.names()
            if form.type_name not in catalogue.machine_types and form.type is None:
                continue  # what it lacks is reported
            keys = {key: value for key, value in form if key not in ("copies", "cores")}
            one = MachineForm.model_construct(**{**keys, "name": names[0], "type": form.type_name})
            for machine in build_machines(self.problems, self.document, [(path, one)], catalogue):
                machines += (replace(machine, name=name) for name in names)
        return machines

    def _relations(self, checked: Checked[ScenarioForm], form: ScenarioForm) -> tuple[Relation, ...]:
        """Relations, whose domains some machine must be in."""
        named = list(checked.items("relations", form.relations))
        unique(self.problems, self.document, (((*p, "name"), f.name) for p, f in named))
        keys = sorted({key for machine in form.machines for key in machine.labels})
        for path, relation in named:
            if relation.key != MACHINE and relation.key not in keys and "machines" not in checked.broken:
                message = f"no machine has the label '{relation.key}'"
                problem = self.document.problem((*path, "key"), message, name_help(relation.key, [MACHINE, *keys]))
                self.problems.add(problem)
        return build_relations(self.problems, self.document, named)

    def _task_groups(
        self, checked: Checked[ScenarioForm], form: ScenarioForm, jobs: Iterable[JobEntry] | None
    ) -> tuple[TaskGroup, ...]:
        """Task groups, with jobs enough to ever start. ``jobs``: None where they cannot be counted."""
        named = list(checked.items("task_groups", form.task_groups))
        unique(self.problems, self.document, (((*p, "name"), f.name) for p, f in named))
        count: Counter[str | None] = Counter()
        for entry in jobs or ():
            count[entry.form.group] += entry.form.copies * entry.form.tasks
        for path, group in named:
            if jobs is not None and group.minimum > count[group.name]:
                has = plural(count[group.name], "task")
                message = f"task group '{group.name}' starts with at least {group.minimum}, and has {has}"
                help = f"give more jobs 'group: {group.name}', or lower the minimum"
                self.problems.add(self.document.problem((*path, "minimum"), message, help))
        return tuple(TaskGroup(g.name, g.minimum, g.deadline_s) for _, g in named)

    def _jobs(self, checked: Checked[ScenarioForm], form: ScenarioForm) -> list[JobEntry]:
        entries = [JobEntry(f, self.document, path) for path, f in checked.items("jobs", form.jobs)]
        found = len(self.problems.found)
        if self.rows is not None:
            entries += rows_as_entries(self.problems, self.rows, "jobs")
        if form.arrivals.file is not None:
            path = self.document.beside(form.arrivals.file)
            if path.is_file():
                entries += read_arrivals(self.problems, path)
            else:
                self.problems.add(self.document.problem(("arrivals", "file"), f"there is no file '{path}'"))
        elif not entries and "jobs" not in checked.broken and len(self.problems.found) == found:
            self.problems.add(self.document.problem(("jobs",), "a scenario needs at least one job"))
        return entries
