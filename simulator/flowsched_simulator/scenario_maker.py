"""Scenarios from Python: the keys of a scenario file as arguments, jobs as mappings or as a data frame."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Union

from flowsched_models.document import Document
from flowsched_models.form import API_VERSION
from flowsched_simulator.scenario import Scenario
from flowsched_simulator.scenario_file import KIND, read_with_entries

if TYPE_CHECKING:
    import pandas as pd

Jobs = Union[Iterable[Mapping[str, Any]], "pd.DataFrame"]

SOURCE = "make_scenario"
"""How messages call what was passed."""
_PLAIN = frozenset({str, int, float})
"""Types that most values have; numpy's numbers are none of these."""


def make_scenario(
    machines: Iterable[Mapping[str, Any]], jobs: Jobs = (), name: str = "scenario", **keys: Any
) -> Scenario:
    """A scenario with the keys of a scenario file, checked as a file is.

    ``jobs`` may be a pandas data frame with the columns of an arrivals file. Files in ``keys`` are relative to the working
    directory. Raises :class:`flowsched_models.document.InputError` with all mistakes.
    """
    rows = jobs.to_dict("records") if hasattr(jobs, "to_dict") else None
    data = {"apiVersion": API_VERSION, "kind": KIND, "name": name, "machines": list(machines), **keys}
    if rows is None:
        data["jobs"] = list(jobs)
    return read_with_entries(Document(SOURCE, _plain(data), {}), rows)[0]


def _plain(value: Any) -> Any:
    """What YAML would have: lists for tuples and arrays, numbers for those of numpy."""
    if type(value) in _PLAIN:
        return value
    if isinstance(value, Mapping):
        return {str(key): _plain(each) for key, each in value.items()}
    if hasattr(value, "tolist"):
        value = value.tolist()
    return [_plain(each) for each in value] if isinstance(value, list | tuple) else value
