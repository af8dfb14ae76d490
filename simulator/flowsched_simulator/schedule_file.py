"""Given schedules in YAML: the bundled ones by name, a user's own by path."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from itertools import combinations
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field

from flowsched.cluster.cluster_form import check_cores, find_curve, refer, unique
from flowsched_models.document import (
    Document,
    InputError,
    KeyPath,
    Problems,
    name_help,
)
from flowsched_models.form import Form, Name, check, check_header
from flowsched_models.quantity import format_cores
from flowsched_simulator.job_reader import circles
from flowsched_simulator.scenario import Scenario
from flowsched_simulator.scenario_file import bundled, find_document, load_scenario
from flowsched_simulator.schedule import Place, Schedule, ScheduledTask, place_of

BUNDLED = Path(__file__).with_name("schedules")
ScenarioLoader = Callable[[str | Path], Scenario]

_PLACEHOLDERS: dict[str, Any] = {"cluster": "unknown", "tasks": []}


class ScheduleForm(Form):
    """A schedule file, without the services: their keys are the names in the scenario."""

    model_config = ConfigDict(json_schema_extra={"additionalProperties": Place.model_json_schema()})

    api_version: Literal["flowsched/v1"] = Field("flowsched/v1", alias="apiVersion")
    kind: Literal["Schedule"] = "Schedule"
    name: Name | None = None
    description: str = ""
    cluster: Annotated[str, Field(min_length=1)]
    tasks: list[ScheduledTask]


KEYS = tuple(f.alias or name for name, f in ScheduleForm.model_fields.items())


def load_schedule(name_or_path: str | Path, scenario_loader: ScenarioLoader = load_scenario) -> Schedule:
    """A bundled schedule by its name, or a schedule file by its path, checked against its scenario.

    Raises :class:`flowsched_models.document.InputError` with all mistakes of the file.
    """
    document = find_document(name_or_path, BUNDLED, "schedule")
    check_header(document, "Schedule")
    return _ScheduleReader(document, scenario_loader).read()


@functools.cache
def bundled_schedules() -> tuple[tuple[str, str], ...]:
    """Name and description of every bundled schedule."""
    return bundled(BUNDLED)


class _ScheduleReader:
    """Reads one schedule and collects what is wrong with it."""

    def __init__(self, document: Document, scenario_loader: ScenarioLoader) -> None:
        self.document = document
        self.problems = Problems()
        self._load = scenario_loader

    def read(self) -> Schedule:
        document = self.document
        known = {k: v for k, v in document.data.items() if k in KEYS}
        others = [k for k in document.data if k not in KEYS]
        checked = check(document, ScheduleForm, known, placeholders=_PLACEHOLDERS)
        self.problems.extend(checked.problems)
        form = checked.value
        scenario = None
        if form is not None and "cluster" not in checked.broken:
            scenario = self._scenario(form.cluster)
        if scenario is not None:
            places = self._places(others, scenario)
            if form is not None:
                tasks = list(checked.items("tasks", form.tasks))
                self._check_tasks(tasks, scenario)
        else:
            # Without its scenario every name would be unknown.
            for key in others:
                if isinstance(document.data[key], dict):
                    self.problems.extend(check(document, Place, document.data[key], (key,)).problems)
                else:
                    self._unknown_key(key, KEYS)
        self.problems.raise_any()
        assert form is not None and scenario is not None, "a schedule without problems was read"
        path = document.path
        return Schedule(
            name=form.name or (path.stem if path is not None else "schedule"),
            cluster=self._cluster(form.cluster),
            services=places,
            tasks=tuple(task for _, task in tasks),
            source=document.source,
        )

    def _scenario(self, cluster: str) -> Scenario | None:
        is_path = self._is_path(cluster)
        try:
            return self._load(Path(self._cluster(cluster)) if is_path else cluster)
        except InputError as error:
            for problem in error.problems:
                if problem.line is None and not problem.key:
                    # The file as a whole could not be read or found: the mistake may well be its name here.
                    message = problem.message if not is_path else f"{problem.source}: {problem.message}"
                    problem = self.document.problem(("cluster",), message, problem.help)
                self.problems.add(problem)
            return None

    def _is_path(self, cluster: str) -> bool:
        path = Path(cluster)
        return len(path.parts) != 1 or path.suffix in (".yaml", ".yml", ".json")

    def _cluster(self, cluster: str) -> str:
        """The cluster as a loader finds it from anywhere: paths are relative to the schedule."""
        return str(self.document.beside(cluster)) if self._is_path(cluster) else cluster

    def _unknown_key(self, key: str, known: Iterable[str]) -> None:
        message = f"there is no key and no service '{key}' here"
        self.problems.add(self.document.problem((key,), message, name_help(key, known)))

    def _places(self, keys: Iterable[str], scenario: Scenario) -> dict[str, Place]:
        """Where each service stands: as the schedule says, or else as the scenario has it."""
        document, problems = self.document, self.problems
        machines = {m.name: m for m in scenario.machines}
        services = {s.name: s for s in scenario.services}
        forms: dict[str, Place] = {}
        for key in keys:
            if key not in services:
                self._unknown_key(key, [*services, *KEYS])
                continue
            if not isinstance(document.data[key], dict):
                problems.add(document.problem((key,), "must say where the service is", "{machine: …, cores: …}"))
                continue
            checked = check(document, Place, document.data[key], (key,))
            problems.extend(checked.problems)
            if checked.value is not None and not checked.problems:
                forms[key] = checked.value
        placed = {name: forms.get(name) or place_of(service) for name, service in services.items()}
        for name in (each for each in services if each in forms):
            form = forms[name]
            if refer(problems, document, (name, "machine"), "machine", form.machine, machines):
                check_cores(problems, document, (name, "cores"), form.cores, machines[form.machine])
            profile = scenario.catalogue.services[services[name].profile]
            find_curve(problems, document, (name,), profile, form.threads, form.cores)
        for (before, one), (name, other) in combinations(placed.items(), 2):
            both = set(one.cores) & set(other.cores)
            if both and one.machine == other.machine:
                message = f"{name} and {before} share core {format_cores(both)} of {one.machine}"
                place = (name if name in forms else before, "cores")
                problems.add(document.problem(place, message, "every service needs cores of its own"))
        return placed

    def _check_tasks(self, tasks: list[tuple[KeyPath, ScheduledTask]], scenario: Scenario) -> None:
        document, problems = self.document, self.problems
        machines = {m.name: m for m in scenario.machines}
        jobs = {t.name: t for t in scenario.tasks}
        # Jobs of broken entries are listed all the same.
        listed = document.names("tasks", "job")
        unique(problems, document, (((*p, "job"), f.job) for p, f in tasks))
        for path, form in tasks:
            refer(problems, document, (*path, "job"), "job", form.job, jobs)
            if refer(problems, document, (*path, "machine"), "machine", form.machine, machines):
                check_cores(problems, document, (*path, "cores"), form.cores, machines[form.machine])
            if (form.start_s is None) == (form.after is None):
                message = "needs a start" if form.after is None else "has both start_s and after"
                problems.add(document.problem(path, message, "give one of start_s (seconds) and after (a job)"))
            if form.after is not None:
                refer(problems, document, (*path, "after"), "job of this schedule", form.after, listed)
        if document.data.get("tasks") == []:
            problems.add(document.problem(("tasks",), "are empty", f"place some of: {', '.join(jobs)}"))
        self._check_circles(tasks)

    def _check_circles(self, tasks: list[tuple[KeyPath, ScheduledTask]]) -> None:
        """Jobs that wait for each other in a circle would never start."""
        number = {task.job: i for i, (_, task) in enumerate(tasks) if task.after is not None}
        before = {number[t.job]: [number[t.after]] for _, t in tasks if t.after is not None and t.after in number}
        for circle in circles(before):
            names = [tasks[i][1].job for i in (*circle, circle[0])]
            words = "waits for itself" if len(circle) == 1 else f"waits in a circle: {' after '.join(names)}"
            path, _ = tasks[circle[0]]
            self.problems.add(self.document.problem((*path, "after"), words, "give one of them a start_s"))
