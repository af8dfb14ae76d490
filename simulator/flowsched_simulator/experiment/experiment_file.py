"""Experiments in YAML: the file, the scenarios that it names, and all mistakes at once."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from flowsched_models.document import Document, InputError, KeyPath, Problem, Problems, read_document
from flowsched_models.form import Checked, Form, check_header
from flowsched_models.quantity import QuantityError
from flowsched_simulator.experiment.contender import Contender, contenders_of
from flowsched_simulator.experiment.experiment import (
    Experiment,
    empty_problems,
    make_plan,
    plan_problems,
    setting_text,
)
from flowsched_simulator.experiment.experiment_form import CaseForm, ContenderForm, ExperimentForm
from flowsched_simulator.experiment.scenario_case import (
    ESTIMATE_ERROR,
    LEARNING,
    LOAD,
    MODEL_ERROR,
    ScenarioCase,
    make_case,
)
from flowsched_simulator.experiment.variation import varied
from flowsched_simulator.form_reader import check_named
from flowsched_simulator.policies import check_policies
from flowsched_simulator.scenario import Scenario
from flowsched_simulator.scenario_file import BUNDLED, find_file, read_scenario, source_of
from flowsched_simulator.scenario_file import KIND as SCENARIO
from flowsched_simulator.simulation import NO_LIMIT_S

KIND = "Experiment"


def load_experiment(path: str | Path) -> Experiment:
    """An experiment file. Raises :class:`InputError` with all mistakes of the file and of the scenarios that it names."""
    return _ExperimentReader(read_document(Path(path))).read()


class _ExperimentReader:
    """Reads one experiment and collects what is wrong with it."""

    def __init__(self, document: Document) -> None:
        self.document = document
        self.problems = Problems()
        self._documents: dict[Path, Document] = {}
        self._scenarios: dict[str, Scenario] = {}

    def read(self) -> Experiment:
        checked = check_named(self.document, KIND, ExperimentForm, scenarios=[], policies=[], seeds=(1,))
        self.problems.extend(checked.problems)
        form = checked.value
        if form is None:
            self.problems.raise_any()
            raise AssertionError("a form is missing without a problem")
        cases = [case for path, each in checked.items("scenarios", form.scenarios) for case in self._cases(path, each)]
        grid = {key: [setting_text(value) for value in values] for key, values in form.settings.items()}
        wrong_before = len(self.problems.found)
        contenders = [
            contender
            for path, each in checked.items("policies", form.policies)
            for contender in self._contenders(path, each, grid, form.variant)
        ]
        # A policy that is left out may be the reference, or be the one that reads a setting.
        whole = len(self.problems.found) == wrong_before and not checked.broken & {"policies", "settings"}
        self._judge_left_out(checked, form)
        empty = empty_problems("", form.scenarios, form.policies)
        found = [each for each in empty if each.key not in checked.broken]
        found += plan_problems(
            "", cases, contenders, form.seeds, grid if whole else {}, form.reference if whole else None, form.metric
        )
        for each in found:
            self._add_at(tuple(each.key.split(".", 1)), each)
        self.problems.raise_any()
        longest_s = form.max_time_s if form.max_time_s is not None else NO_LIMIT_S
        return Experiment.of(
            make_plan(form.name, cases, contenders, form.seeds, form.reference, form.metric, longest_s, form.about)
        )

    def _add_at(self, place: KeyPath, *problems: Problem) -> None:
        """Problems of what the file names, at its place in the file."""
        self.problems.extend(self.document.problem(place, each.message, each.help) for each in problems)

    def _judge_left_out(self, checked: Checked[ExperimentForm], form: ExperimentForm) -> None:
        """What entries name that have mistakes of their own, and are left out for them."""
        for path, entry in self._left_out(checked, "scenarios", form.scenarios):
            name = entry.get("scenario")
            source = self._document(path, name) if isinstance(name, str) else None
            # Changes may mend what the scenario alone has wrong.
            if source is not None and not entry.get("change"):
                self._varied(path, source, {})
        for path, entry in self._left_out(checked, "policies", form.policies):
            name = entry.get("policy")
            if isinstance(name, str):
                try:
                    check_policies((name,), "policies")
                except InputError as error:
                    self._add_at(path, *error.problems)

    def _left_out(
        self, checked: Checked[ExperimentForm], section: str, forms: Sequence[Form]
    ) -> Iterator[tuple[KeyPath, Mapping[str, Any]]]:
        """The entries of a list that have mistakes."""
        given = self.document.data.get(section)
        kept = {path for path, _ in checked.items(section, forms)}
        for position, entry in enumerate(given if isinstance(given, list) else ()):
            if (section, position) not in kept and isinstance(entry, dict):
                yield (section, position), entry

    def _contenders(
        self, path: KeyPath, form: ContenderForm, grid: Mapping[str, list[str]], variant: str
    ) -> tuple[Contender, ...]:
        own = [f"{key}={setting_text(value)}" for key, value in form.set.items()]
        others = {key: values for key, values in grid.items() if key not in form.set}
        try:
            return contenders_of(form.name or form.policy, form.policy, own, others, form.variant or variant)
        except InputError as error:
            for problem in error.problems:
                place = self._place(path, form, problem)
                text = f"'{problem.key}' {problem.message}" if problem.message.startswith("is ") else problem.message
                self.problems.add(self.document.problem(place, text, problem.help))
            return ()

    def _place(self, path: KeyPath, form: ContenderForm, problem: Problem) -> KeyPath:
        """Where in the file the cause of a problem stands."""
        if problem.source == "variant":
            return (*path, "variant") if form.variant is not None else ("variant",)
        if problem.source == "policies":
            return path
        key = problem.key.partition("=")[0].split(",")[0]
        return (*path, "set", key) if key in form.set else ("settings", key)

    def _cases(self, path: KeyPath, form: CaseForm) -> Iterator[ScenarioCase]:
        """A case for every combination of what is varied, with the values in its name."""
        source = self._document(path, form.scenario)
        if source is None:
            return
        if "error_of" in form.model_fields_set and all(each in (0.0, "measured") for each in form.model_error):
            message = "has no meaning without a model error by number"
            help = "add model_error: 0.2, or leave it out"
            self.problems.add(self.document.problem((*path, "error_of"), message, help))
        changes = {key: value if isinstance(value, list) else [value] for key, value in form.change.items()}
        if form.estimate_error is not None:
            # A key of the scenario itself, which is varied as often as others are changed.
            changes[ESTIMATE_ERROR] = form.estimate_error
        axes: dict[str, list[Any]] = {
            **changes,
            LOAD: form.load if form.load is not None else [None],
            MODEL_ERROR: list(form.model_error),
            LEARNING: form.learning if form.learning is not None else [None],
            "machine_copies": form.machine_copies,
            "job_copies": form.job_copies,
        }
        for values in itertools.product(*axes.values()):
            point = dict(zip(axes, values, strict=True))
            scenario = self._varied(path, source, {key: point[key] for key in changes})
            if scenario is None:
                return  # one complaint, not one for every combination
            own = [f"{_short(key)}={_shown(value)}" for key, value in point.items() if len(axes[key]) > 1]
            name = " ".join((form.name or scenario.name, *own))
            try:
                yield make_case(
                    scenario,
                    name,
                    load=point[LOAD],
                    model_error=point[MODEL_ERROR],
                    error_of=form.error_of,
                    learning=point[LEARNING],
                    machine_copies=point["machine_copies"],
                    job_copies=point["job_copies"],
                    changes={key: _plain(point[key]) for key in changes},
                )
            except ValueError as error:
                hint = "give it arrivals over time, such as {poisson: {rate_per_minute: 6}}, or leave load out"
                self.problems.add(self.document.problem((*path, LOAD), f"cannot be set: {error}", hint))
                return

    def _document(self, path: KeyPath, name: str) -> Document | None:
        """The scenario that an entry names; None after a complaint."""
        try:
            return self._read_document(name)
        except InputError as error:
            at = (*path, "scenario") if (*path, "scenario") in self.document.lines else path
            self._add_at(at, *error.problems)
            return None

    def _read_document(self, name: str) -> Document:
        beside = self.document.beside(name)
        path = beside if beside.is_file() else find_file(name, BUNDLED, "scenario", SCENARIO)
        if path not in self._documents:
            self._documents[path] = read_document(path, source_of(path, BUNDLED))
            check_header(self._documents[path], SCENARIO)
        return self._documents[path]

    def _varied(self, path: KeyPath, source: Document, changes: Mapping[str, Any]) -> Scenario | None:
        """A scenario with some keys changed; None after a complaint."""
        known = f"{source.source} {changes!r}"
        if known in self._scenarios:
            return self._scenarios[known]
        try:
            self._scenarios[known] = read_scenario(varied(source, changes))
        except QuantityError as error:
            key = next((key for key in changes if f"'{key}'" in error.message), "")
            self.problems.add(self.document.problem((*path, "change", key), error.message, error.help))
            return None
        except InputError as error:
            if not changes:
                self.problems.extend(error.problems)
            for problem in error.problems if changes else ():
                message = f"{problem.key}: {problem.message}" if problem.key else problem.message
                of = f"in {source.source}, changed: "
                self.problems.add(self.document.problem((*path, "change"), of + message, problem.help))
            return None
        return self._scenarios[known]


def _short(key: str) -> str:
    """The end of a path, which tells enough."""
    return key.rpartition(".")[2]


def _shown(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value).replace(" ", "")


def _plain(value: Any) -> float | str | bool | None:
    return value if value is None or isinstance(value, str | bool | int | float) else str(value)
