"""The form of an experiment file."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from flowsched.cluster.learning import Learning
from flowsched_models.form import Form, Name, Positive, PositiveInt
from flowsched_models.quantity import QuantityError, shown
from flowsched_simulator.experiment.contender import BEST
from flowsched_simulator.form_reader import NamedForm
from flowsched_simulator.truth import MAX_SIGMA
from flowsched_simulator.world import ErrorOf

MOST_SEEDS = 100_000


def _listed(value: Any) -> Any:
    """One value is a list of one."""
    return list(value) if isinstance(value, list | tuple) else [value]


def _entry(key: str, form: type[Form]) -> BeforeValidator:
    """A name alone stands for an entry with nothing but that."""
    return BeforeValidator(
        lambda value: {key: value} if isinstance(value, str) else value, json_schema_input_type=form | str
    )


def _one_or_more(read: Callable[[Any], Any], item: Any) -> BeforeValidator:
    """A list that a file may have as the one value that is in it."""
    return BeforeValidator(read, json_schema_input_type=item | list[item])


def _seeds(value: Any) -> Any:
    """``1..30``, one number, or a list of both."""
    found: list[int] = []
    for each in _listed(value):
        span = re.fullmatch(r"\s*(\d+)\s*\.\.\s*(\d+)\s*", each) if isinstance(each, str) else None
        if span is not None:
            first, last = int(span[1]), int(span[2])
            if last < first or last - first >= MOST_SEEDS:
                raise QuantityError(f"{each} is not a range of 1 to {MOST_SEEDS} seeds", "write 1..30")
            found += range(first, last + 1)
        elif isinstance(each, int) and not isinstance(each, bool) and each >= 0:
            found.append(each)
        else:
            raise QuantityError(f"{shown(each)} is neither a seed nor a range of seeds", "write 1..30, or [1, 2, 3]")
    if len(set(found)) < len(found):
        raise QuantityError("a seed stands twice", "write 1..30, or [1, 2, 3]")
    return tuple(found)


def _errors(value: Any) -> Any:
    for each in _listed(value):
        number = isinstance(each, int | float) and not isinstance(each, bool)
        if each != "measured" and not (number and 0.0 <= each <= MAX_SIGMA):
            raise QuantityError(f"{shown(each)} is not a number from 0 to {MAX_SIGMA:g}", "or: measured")
    return [each if isinstance(each, str) else float(each) for each in _listed(value)]


_Copies = Annotated[PositiveInt, Field(le=1000)]
_Error = float | Literal["measured"]
Loads = Annotated[list[Positive], _one_or_more(_listed, Positive), Field(min_length=1)]
Copies = Annotated[list[_Copies], _one_or_more(_listed, _Copies), Field(min_length=1)]
_Sigma = Annotated[float, Field(ge=0, le=MAX_SIGMA)]
Sigmas = Annotated[list[_Sigma], _one_or_more(_listed, _Sigma), Field(min_length=1)]
Errors = Annotated[list[_Error], _one_or_more(_errors, _Error), Field(min_length=1)]
_EXACT: list[_Error] = [0.0]
Learnings = Annotated[list[Learning], _one_or_more(_listed, Learning), Field(min_length=1)]
SettingValue = float | int | str | bool | None


class CaseForm(Form):
    """A scenario, and what is varied in it."""

    scenario: str
    name: Name | None = None
    load: Loads | None = None
    model_error: Errors = Field(default_factory=lambda: _EXACT)
    error_of: ErrorOf = "job"
    estimate_error: Sigmas | None = None
    learning: Learnings | None = None
    machine_copies: Copies = Field(default_factory=lambda: [1])
    job_copies: Copies = Field(default_factory=lambda: [1])
    change: dict[str, Any] = Field(default_factory=dict)


class ContenderForm(Form):
    """A policy with settings of its own."""

    policy: Name
    name: Name | None = None
    set: dict[str, SettingValue] = Field(default_factory=dict)
    variant: str | None = None


class ExperimentForm(NamedForm):
    """An experiment file."""

    kind: Literal["Experiment"]
    scenarios: list[Annotated[CaseForm, _entry("scenario", CaseForm)]]
    policies: list[Annotated[ContenderForm, _entry("policy", ContenderForm)]]
    settings: dict[str, Annotated[list[SettingValue], _one_or_more(_listed, SettingValue), Field(min_length=1)]] = (
        Field(default_factory=dict)
    )
    seeds: Annotated[tuple[int, ...], _one_or_more(_seeds, int | str), Field(min_length=1)] = tuple(range(1, 11))
    variant: str = BEST
    reference: str | None = None
    metric: str | None = None
    max_time_s: Positive | None = None
