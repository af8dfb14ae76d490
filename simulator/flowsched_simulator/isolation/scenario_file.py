"""Isolation scenarios in YAML."""

from __future__ import annotations

from pathlib import Path

from flowsched.cluster.cluster_form import unique
from flowsched_models.document import Document, Problems
from flowsched_models.form import Checked
from flowsched_simulator.form_reader import check_named
from flowsched_simulator.isolation.scenario_form import MOST_JOBS, IsolationForm
from flowsched_simulator.scenario_file import BUNDLED, find_document

KIND = "IsolationScenario"


def load_isolation_scenario(name_or_path: str | Path) -> IsolationForm:
    """A bundled isolation scenario by its name, or a file by its path. Raises :class:`InputError` with all mistakes."""
    return read_isolation_scenario(find_document(name_or_path, BUNDLED, "scenario"))


def read_isolation_scenario(document: Document) -> IsolationForm:
    """The same from a document that is read. Raises :class:`InputError` with all mistakes."""
    checked = check_named(document, KIND, IsolationForm, cores=1, kernel="6.12", duration_s=1.0)
    problems = Problems()
    problems.extend(checked.problems)
    form = checked.value
    if form is not None:
        _check_values(problems, document, checked, form)
    problems.raise_any()
    assert form is not None, "a scenario without problems was read"
    return form


def _check_values(problems: Problems, document: Document, checked: Checked[IsolationForm], form: IsolationForm) -> None:
    """What no single value shows."""
    tasks = list(checked.items("tasks", form.tasks))
    unique(problems, document, (((*path, "name"), task.name) for path, task in tasks))
    for path, task in tasks:
        if task.cpus > task.threads:
            message = f"{task.threads} threads cannot use {task.cpus:g} CPUs"
            problems.add(
                document.problem((*path, "threads"), message, "give it as many threads as it uses CPUs, or more")
            )
    if "tasks" not in checked.broken and not any(task.kind == "critical" for _, task in tasks):
        problems.add(document.problem(("tasks",), "no task is critical", "write 'kind: critical' for at least one"))
    if "loop" in checked.broken or "duration_s" in checked.broken:
        return
    period_s = form.loop.period * 1e-6
    jobs = form.duration_s / period_s * sum(task.threads for _, task in tasks)
    if jobs > MOST_JOBS:
        message = f"{jobs:,.0f} jobs are too many: at most {MOST_JOBS:,}"
        problems.add(document.problem(("duration_s",), message, "a shorter run or a longer loop.period"))
    if not 100e-6 <= period_s <= 4.194304:
        message = f"{period_s:g} s cannot be the period of a reservation: 100 us to 4.19 s"
        problems.add(document.problem(("loop", "period"), message))
    if form.window_s < period_s or form.window_s * 2 > form.loop.interval_s:
        message = f"{form.window_s:g} s is shorter than the loop's period or longer than half of its interval"
        problems.add(document.problem(("window_s",), message, "bandwidth is added up over windows of this length"))
