"""Scenarios in YAML: the bundled ones by name, a user's own by path."""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from flowsched.cluster.cluster_form import (
    bound_values,
    build_machines,
    build_relations,
    build_services,
    check_room,
    plural,
    refer,
    unique,
)
from flowsched.cluster.resource import amount_text, covers
from flowsched.cluster.snapshot import MILLI, Machine, Service, StartDelay, Task
from flowsched.relations.relation import MACHINE, Relation, TaskGroup
from flowsched_models.catalogue import Catalogue
from flowsched_models.document import (
    Document,
    InputError,
    KeyPath,
    Problem,
    Problems,
    name_help,
    read_document,
)
from flowsched_models.form import Checked, check_header
from flowsched_models.profile import JobProfile
from flowsched_models.quantity import format_memory, format_milli
from flowsched_simulator.fixed_run_time import fixed_profile
from flowsched_simulator.form_reader import read_form
from flowsched_simulator.scenario import Arrivals, Objective, Scenario
from flowsched_simulator.scenario_form import JobEntry, ScenarioForm, read_arrivals

BUNDLED = Path(__file__).with_name("scenarios")
KIND = "Scenario"

_PLACEHOLDERS: Mapping[str, Any] = {
    "apiVersion": "flowsched/v1",
    "kind": KIND,
    "name": "unnamed",
}
_SCHEDULE_WORDS = ("apiVersion", "kind", "name", "description", "cluster", "tasks")


def load_scenario(name_or_path: str | Path) -> Scenario:
    """A bundled scenario by its name, or a scenario file by its path.

    Raises :class:`flowsched_models.document.InputError` with all mistakes of the file and of those it names.
    """
    path = find_file(name_or_path, BUNDLED, "scenario", KIND)
    return read_scenario(read_document(path, source_of(path, BUNDLED)))


def read_scenario(document: Document) -> Scenario:
    """The same from a document that is read. Raises :class:`flowsched_models.document.InputError`."""
    check_header(document, KIND)
    return _ScenarioReader(document).read()


@functools.cache
def bundled_scenarios(kind: str = KIND) -> tuple[tuple[str, str], ...]:
    """Name and description of every bundled scenario of a kind: clusters, or with ``NodeScenario`` single machines."""
    return bundled(BUNDLED, kind)


def scenario_schema() -> dict[str, Any]:
    """The JSON schema of a scenario file."""
    schema = ScenarioForm.model_json_schema(by_alias=True)
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        **schema,
        "title": "flowsched scenario",
    }


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
    raise InputError([Problem(text, None, "", f"there is no bundled {noun} '{text}'", help)])


def source_of(path: Path, folder: Path) -> str:
    """How a file is called in messages and results: a bundled one the same on every machine."""
    return f"{path.name} (bundled)" if path.parent == folder else str(path)


class _ScenarioReader:
    """Reads one scenario and collects what is wrong with it."""

    def __init__(self, document: Document) -> None:
        self.document = document
        self.problems = Problems()

    def read(self) -> Scenario:
        return read_form(
            self.document, self.problems, ScenarioForm, _PLACEHOLDERS, lambda form: form.profiles, self._build
        )

    def _build(self, checked: Checked[ScenarioForm], form: ScenarioForm, catalogue: Catalogue) -> Scenario:
        document, problems = self.document, self.problems
        named_machines = list(checked.items("machines", form.machines))
        named_services = list(checked.items("services", form.services))
        unique(problems, document, (((*p, "name"), f.name) for p, f in named_machines))
        unique(problems, document, (((*p, "name"), f.name) for p, f in named_services))
        machine_names = document.names("machines")
        machines = build_machines(problems, document, named_machines, catalogue)
        by_name = {m.name: m for m in machines}
        services = build_services(problems, document, named_services, by_name, machine_names, catalogue)
        for path, service_form in named_services:
            if service_form.name in _SCHEDULE_WORDS:
                message = f"a service cannot be called '{service_form.name}': the word has a meaning in schedules"
                problems.add(document.problem((*path, "name"), message))
        check_room(problems, document, {f.name: p for p, f in named_services}, services, by_name)
        jobs = self._jobs(checked, form)
        fixed = self._fixed_profiles(jobs, catalogue)
        catalogue = replace(catalogue, jobs={**catalogue.jobs, **{p.name: p for p in fixed.values()}})
        tasks = self._tasks(jobs, catalogue, machine_names, fixed)
        relations = self._relations(checked, form)
        groups = self._task_groups(checked, form, jobs)
        # Whether a job fits anywhere can only be said where all machines and services are sound.
        if {"machines", "services"}.isdisjoint(checked.broken) and len(by_name) == len(form.machines):
            self._check_fit(tasks, machines, services)
        poisson = form.arrivals.poisson
        return Scenario(
            name=form.name,
            description=" ".join(form.description.split()),
            catalogue=catalogue,
            machines=tuple(machines),
            services=tuple(services),
            tasks=tuple(task for task, _ in tasks),
            objective=Objective(form.objective),
            arrivals=Arrivals("poisson", poisson.rate_per_minute) if poisson else Arrivals(),
            start_delay=StartDelay(**form.start_delay.model_dump()),
            relations=relations,
            task_groups=groups,
            share_service_cores=form.share_service_cores,
            run_time_factors=_run_time_factors(jobs),
            source=document.source,
        )

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
        self, checked: Checked[ScenarioForm], form: ScenarioForm, jobs: Iterable[JobEntry]
    ) -> tuple[TaskGroup, ...]:
        """Task groups, with jobs enough to ever start."""
        named = list(checked.items("task_groups", form.task_groups))
        unique(self.problems, self.document, (((*p, "name"), f.name) for p, f in named))
        count: Counter[str | None] = Counter()
        for entry in jobs:
            count[entry.form.group] += entry.form.copies
        for path, group in named:
            if group.minimum > count[group.name] and "jobs" not in checked.broken:
                has = plural(count[group.name], "job")
                message = f"task group '{group.name}' starts with at least {group.minimum}, and has {has}"
                help = f"give more jobs 'group: {group.name}', or lower the minimum"
                self.problems.add(self.document.problem((*path, "minimum"), message, help))
        return tuple(TaskGroup(g.name, g.minimum, g.deadline_s) for _, g in named)

    def _jobs(self, checked: Checked[ScenarioForm], form: ScenarioForm) -> list[JobEntry]:
        entries = [JobEntry(f, self.document, path) for path, f in checked.items("jobs", form.jobs)]
        if form.arrivals.poisson is not None:
            for entry in entries:
                if entry.form.submit_s:
                    message = "has no meaning where arrivals are drawn at random"
                    self.problems.add(
                        entry.problem("submit_s", message, "leave it out; jobs arrive in the order listed")
                    )
        if form.arrivals.file is not None:
            path = self.document.beside(form.arrivals.file)
            if path.is_file():
                entries += read_arrivals(self.problems, path)
            else:
                self.problems.add(self.document.problem(("arrivals", "file"), f"there is no file '{path}'"))
        elif not entries and "jobs" not in checked.broken:
            self.problems.add(self.document.problem(("jobs",), "a scenario needs at least one job"))
        return entries

    def _fixed_profiles(
        self, entries: Iterable[JobEntry], catalogue: Catalogue
    ) -> dict[tuple[str | None, float | None], JobProfile]:
        """Profiles of jobs with a given run time, by the profile that they name and the run time that policies are told."""
        found: dict[tuple[str | None, float | None], JobProfile] = {}
        for entry in entries:
            form = entry.form
            self.problems.extend(entry.run_time_problems())
            if (
                form.runtime_s is not None
                and form.told_s is not None
                and (not form.profile or form.profile in catalogue.jobs)
            ):
                found[form.profile, form.told_s] = fixed_profile(catalogue, form.profile, form.told_s)
        return found

    def _tasks(
        self,
        entries: Iterable[JobEntry],
        catalogue: Catalogue,
        machine_names: Iterable[str],
        fixed: Mapping[tuple[str | None, float | None], JobProfile],
    ) -> list[tuple[Task, JobEntry]]:
        tasks: list[tuple[Task, JobEntry]] = []
        first: dict[str, JobEntry] = {}
        known_machines = list(machine_names)
        made = {profile.name for profile in fixed.values()}
        for entry in entries:
            form = entry.form
            for name in form.names():
                if name in first:
                    before = first[name]
                    where = f"{before.document.source}:{before.document.line((*before.path, 'name'))}"
                    self.problems.add(entry.problem("name", f"the name '{name}' stands twice (first at {where})"))
                    break
                first[name] = entry
            for index, name in enumerate(form.machines or ()):
                refer(
                    self.problems,
                    entry.document,
                    (*entry.path, "machines", index),
                    "machine",
                    name,
                    known_machines,
                )
            widths = form.widths or [form.request]
            if len(set(widths)) < len(widths):
                self.problems.add(entry.problem("widths", "names a width twice"))
            known = (self.document.names("relations"), self.document.names("task_groups"))
            bound = bound_values(self.problems, entry.document, entry.path, form, *known)
            profile_path: KeyPath = (*entry.path, "profile")
            profile = fixed.get((form.profile, form.told_s))
            if profile is None and form.profile is not None:
                named = [name for name in catalogue.jobs if name not in made]
                if refer(self.problems, entry.document, profile_path, "job profile", form.profile, named):
                    profile = catalogue.jobs[form.profile]
            if profile is not None:
                tasks += ((task, entry) for task in _tasks_of(entry, profile, bound))
        return tasks

    def _check_fit(
        self, tasks: Iterable[tuple[Task, JobEntry]], machines: Sequence[Machine], services: Iterable[Service]
    ) -> None:
        room = _room(machines, services)
        seen: set[int] = set()
        for task, entry in tasks:
            if id(entry) in seen:
                continue
            # The copies of an entry differ by name only.
            seen.add(id(entry))
            allowed = {n: r for n, r in room.items() if task.machines is None or n in task.machines}
            able = {m.name for m in machines if covers(dict(m.resources), task.resources)}
            if task.resources and allowed and not able & allowed.keys():
                message = (
                    f"job '{entry.form.name}' needs {amount_text(task.resources)} on one machine; none has that much"
                )
                self.problems.add(
                    entry.problem("resources", message, "ask for less, or add it to a machine's resources")
                )
                continue
            allowed = {n: r for n, r in allowed.items() if n in able}
            for key, milli, words in (
                ("widths", task.widths_milli[0], "needs at least"),
                ("request", task.request_milli, "requests"),
            ):
                if allowed and not any(milli <= c and task.memory_mib <= m for c, m in allowed.values()):
                    key = key if getattr(entry.form, key) is not None else "request"
                    self.problems.add(entry.problem(*_misfit(entry.form.name, key, words, milli, task, allowed)))
                    break


def _run_time_factors(entries: Iterable[JobEntry]) -> dict[str, float]:
    """True over estimated run time, by task, where they differ."""
    forms = [entry.form for entry in entries]
    return {
        name: form.runtime_s / form.told_s
        for form in forms
        if form.runtime_s is not None and form.told_s not in (None, form.runtime_s)
        for name in form.names()
    }


def _tasks_of(entry: JobEntry, profile: JobProfile, bound: Mapping[str, Any]) -> Iterator[Task]:
    form = entry.form
    for name in form.names():
        yield Task(
            name=name,
            job=name,
            profile=profile.name,
            scale=form.scale,
            request_milli=form.request,
            widths_milli=tuple(sorted(set(form.widths or [form.request]))),
            memory_mib=form.memory if form.memory is not None else profile.memory_mib,
            submit_s=form.submit_s,
            goal_s=form.goal_s,
            priority=form.priority,
            weight=form.weight,
            machines=tuple(form.machines) if form.machines is not None else None,
            **bound,
        )


def _room(machines: Iterable[Machine], services: Iterable[Service]) -> dict[str, tuple[int, int]]:
    """CPU and memory of each machine beside its services."""
    room = {}
    placed = list(services)
    for machine in machines:
        mine = [s for s in placed if s.machine == machine.name]
        cpu = machine.cpu_milli - sum(s.width_milli for s in mine)
        own_cores = machine.vcpus - len({c for s in mine for c in s.cores})
        memory = machine.memory_mib - sum(s.memory_mib for s in mine)
        room[machine.name] = (min(cpu, own_cores * MILLI), memory)
    return room


def _misfit(
    name: str, key: str, words: str, milli: int, task: Task, room: Mapping[str, tuple[int, int]]
) -> tuple[str, str, str]:
    """Key, message and help for a job that fits nowhere."""
    cores = f"{format_milli(milli)} {'core' if milli == MILLI else 'cores'}"
    among = "" if task.machines is None else " of those it may run on"
    widest = max(room, key=lambda n: room[n][0])
    largest = max(room, key=lambda n: room[n][1])
    if milli > room[widest][0]:
        message = (
            f"job '{name}' {words} {cores} on one machine; the widest{among}, {widest}, "
            f"has {format_milli(room[widest][0])} beside its services"
        )
        return key, message, "ask for less, or add a wider machine"
    memory = format_memory(task.memory_mib)
    if task.memory_mib > room[largest][1]:
        message = (
            f"job '{name}' needs {memory} on one machine; the largest{among}, {largest}, "
            f"has {format_memory(room[largest][1])} beside its services"
        )
        return "memory", message, "ask for less, or add a larger machine"
    listed = ", ".join(f"{n} {format_milli(c)} and {format_memory(m)}" for n, (c, m) in room.items())
    message = f"job '{name}' {words} {cores} and {memory} on the same machine; no machine{among} has both free"
    return key, message, f"beside their services: {listed}"
