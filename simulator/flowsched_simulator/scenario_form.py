"""The form of a scenario file, and of the arrivals that may stand in a CSV file beside it."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from flowsched.cluster.cluster_form import BoundForm, MachineForm, RelationForm, ServiceForm, TaskGroupForm
from flowsched_models.document import Document, InputError, KeyPath, Problem, Problems, name_help, read_text
from flowsched_models.form import (
    Form,
    MemoryMib,
    MilliCpu,
    Name,
    NotNegative,
    Positive,
    check,
)
from flowsched_models.quantity import QuantityError, shown

MAX_COPIES = 100_000


class _JobKeys(Form):
    """The keys of a job by itself."""

    name: Name
    profile: Name | None = None
    request: MilliCpu
    widths: Annotated[list[MilliCpu], Field(min_length=1)] | None = None
    scale: Positive = 1.0
    submit_s: NotNegative = 0.0
    goal_s: Positive | None = None
    priority: int = 0
    weight: Positive = 1.0
    memory: MemoryMib | None = None
    machines: Annotated[list[Name], Field(min_length=1)] | None = None
    copies: Annotated[int, Field(gt=0, le=MAX_COPIES)] = 1
    runtime_s: Positive | None = None
    estimate_s: Positive | None = None


class JobForm(BoundForm, _JobKeys):
    """A job in a file."""

    @property
    def told_s(self) -> float | None:
        """The run time that policies are told, in seconds; None where it follows from the profile."""
        return self.runtime_s if self.estimate_s is None else self.estimate_s

    def names(self) -> list[str]:
        """The jobs that the entry stands for."""
        if self.copies == 1:
            return [self.name]
        return [f"{self.name}-{k}" for k in range(1, self.copies + 1)]


class PoissonForm(Form):
    """Random arrivals."""

    rate_per_minute: Positive


class ArrivalsForm(Form):
    """How jobs arrive; neither of both: all at once."""

    poisson: PoissonForm | None = None
    file: str | None = None


def _one_of(value: Any) -> Any:
    forms = "all-at-once, {poisson: {rate_per_minute: 6}}, {file: arrivals.csv}"
    if value == "all-at-once":
        return ArrivalsForm()
    if isinstance(value, str) or value is None:
        raise QuantityError(f"{shown(value)} is not a kind of arrivals", f"write one of {forms}")
    # One unknown key is left to the form, which knows what was meant.
    if isinstance(value, dict) and len(value) != 1:
        raise QuantityError("must be exactly one kind of arrivals", f"write one of {forms}")
    return value


class StartDelayForm(Form):
    """How long a program takes to start."""

    at_submission_s: NotNegative = 0.0
    after_waiting_s: NotNegative = 0.0


class ScenarioForm(Form):
    """A scenario file."""

    api_version: Literal["flowsched/v1"] = Field(alias="apiVersion")
    kind: Literal["Scenario"]
    name: Name
    description: str = ""
    objective: Literal["makespan", "completion"] = "completion"
    profiles: list[str] = Field(default_factory=list)
    machines: Annotated[list[MachineForm], Field(min_length=1)]
    services: list[ServiceForm] = Field(default_factory=list)
    jobs: list[JobForm] = Field(default_factory=list)
    arrivals: Annotated[ArrivalsForm, BeforeValidator(_one_of)] = Field(default_factory=ArrivalsForm)
    start_delay: StartDelayForm = Field(default_factory=StartDelayForm)
    relations: list[RelationForm] = Field(default_factory=list)
    task_groups: list[TaskGroupForm] = Field(default_factory=list)
    share_service_cores: bool = True


@dataclass(frozen=True)
class JobEntry:
    """A job with its place: an item of the scenario, or a line of its arrivals file."""

    form: JobForm
    document: Document
    path: KeyPath

    def problem(self, key: str, message: str, help: str = "") -> Problem:
        """A problem with one value of the job."""
        return self.document.problem((*self.path, key), message, help)

    def run_time_problems(self) -> Iterator[Problem]:
        """What its profile and its given run time lack or contradict."""
        form = self.form
        if form.profile is None and form.runtime_s is None:
            yield self.problem("profile", "is missing", "name a job profile, or give runtime_s")
        if form.estimate_s is not None and form.runtime_s is None:
            yield self.problem("estimate_s", "is for jobs with runtime_s", "add runtime_s, or leave estimate_s out")
        if form.runtime_s is not None and "scale" in form.model_fields_set:
            yield self.problem("scale", "has no meaning beside runtime_s, the whole run time", "leave it out")


class _RowForm(Form):
    submit_s: NotNegative
    name: Name
    profile: Name | None = None
    request: MilliCpu
    widths: Annotated[list[MilliCpu], Field(min_length=1)] | None = None
    scale: Positive = 1.0
    runtime_s: Positive | None = None
    estimate_s: Positive | None = None


_REQUIRED = ("submit_s", "name", "request")
_COLUMNS = ("submit_s", "name", "profile", "request", "widths", "scale", "runtime_s", "estimate_s")
_NUMBERS = ("submit_s", "scale", "runtime_s", "estimate_s")


def read_arrivals(problems: Problems, path: Path) -> list[JobEntry]:
    """The jobs of an arrivals file. Every mistake names the file, the line and the column."""
    source = str(path)
    try:
        text = read_text(path)
    except InputError as error:
        problems.extend(error.problems)
        return []
    try:
        before = len(problems.found)
        entries = list(_rows(problems, text, source))
        if not entries and len(problems.found) == before:
            problems.add(Problem(source, None, "", "there is no job below the header", "give one line per job"))
        return entries
    except csv.Error as error:
        problems.add(Problem(source, None, "", f"not a valid CSV file: {error}"))
        return []


def _rows(problems: Problems, text: str, source: str) -> Iterator[JobEntry]:
    reader = csv.reader(io.StringIO(text, newline=""), strict=True)
    header = [cell.strip() for cell in next(reader, [])]
    if not header:
        problems.add(Problem(source, None, "", "the file is empty", f"the first line is {','.join(_COLUMNS)}"))
        return
    faults = [
        Problem(source, 1, "", f"there is no column '{c}'", name_help(c, _COLUMNS)) for c in header if c not in _COLUMNS
    ]
    faults += [Problem(source, 1, "", f"the column '{c}' stands twice") for c in _COLUMNS if header.count(c) > 1]
    faults += [Problem(source, 1, "", f"the column '{c}' is missing") for c in _REQUIRED if c not in header]
    if faults:
        # Without a sound header every line would complain.
        problems.extend(faults)
        return
    line = reader.line_num + 1
    for row in reader:
        first, line = line, reader.line_num + 1
        if not any(cell.strip() for cell in row):
            continue
        if len(row) != len(header):
            message = f"this line has {len(row)} values, the header {len(header)}"
            problems.add(Problem(source, first, "", message))
            continue
        data = _values(dict(zip(header, (cell.strip() for cell in row), strict=True)))
        document = Document(source, data, {(): first})
        checked = check(document, _RowForm)
        for fault in checked.problems:
            problems.add(Problem(source, first, f"column '{fault.key}'", fault.message, fault.help))
        if not checked.problems and checked.value is not None:
            form = JobForm.model_validate(data)
            yield JobEntry(form, _CsvRow(source, data, {(): first}), ())


class _CsvRow(Document):
    """One line of a CSV file: its keys are columns."""

    def problem(self, path: KeyPath, message: str, help: str = "") -> Problem:
        """A problem with one value of the line."""
        return Problem(self.source, self.line(path), f"column '{path[0]}'", message, help)


def _values(row: Mapping[str, str]) -> dict[str, Any]:
    """Empty optional cells are left out; numbers are numbers where they can be read as such."""
    data: dict[str, Any] = {}
    for column, cell in row.items():
        if not cell and column not in _REQUIRED:
            continue
        data[column] = cell
        if column == "widths":
            data[column] = cell.split()
        elif column in _NUMBERS:
            try:
                data[column] = float(cell)
            except ValueError:
                continue
    return data
