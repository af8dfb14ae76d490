"""A scenario's jobs, as a seed draws them, written as an arrivals file that gives the same run."""

from __future__ import annotations

import io
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from flowsched_models.document import Document, InputError
from flowsched_models.extras import install_extra
from flowsched_models.output import write_whole, write_whole_bytes
from flowsched_models.text_table import csv_table
from flowsched_simulator.arrivals_file import COLUMNS, column_type, is_parquet
from flowsched_simulator.job_form import JobEntry
from flowsched_simulator.run_classes import chosen_learning
from flowsched_simulator.scenario import Scenario
from flowsched_simulator.workload import drawn_workload

_SPENT = ("copies", "mix")
"""Keys that a row cannot have: it is one job, and comes once."""


def workload_rows(scenario: Scenario, entries: Sequence[JobEntry], seed: int) -> list[dict[str, Any]]:
    """A row per job in the order of submission: the keys of its entry as they were written, its name and its time, and where
    run times are learnt its class.
    """
    drawn = drawn_workload(scenario, seed)
    learns = chosen_learning(scenario, 0.0) != "off"
    entry_of = {name: entry for entry in entries for name in entry.form.names()}
    rows: dict[str, dict[str, Any]] = {}
    for task in drawn.tasks:
        if task.job in rows:
            continue
        listed = task.job if scenario.arrivals.jobs is None else task.job.rpartition("-")[0]
        row = {"submit_s": task.submit_s, "name": task.job}
        row |= {key: value for key, value in entry_of[listed].data.items() if key not in (*row, *_SPENT)}
        if learns and task.job in drawn.classes:
            row.setdefault("class", drawn.class_of(task))
        if after := drawn.terms_of(task.job).after:
            row["after"] = list(after)
        rows[task.job] = row
    return list(rows.values())


def csv_text(rows: Sequence[Mapping[str, Any]]) -> str:
    """The rows as CSV. Raises :class:`InputError` for a value that no cell can hold."""
    columns = _columns(rows)
    return csv_table([columns, *([_text(name, row.get(name)) or "" for name in columns] for row in rows)])


def write_workload(path: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    """Write an arrivals file, Parquet if its name says so and else CSV. Raises :class:`InputError` if that cannot be."""
    if not is_parquet(path):
        write_whole(path, csv_text(rows))
        return
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        message = "writing Parquet needs pyarrow, which is not installed"
        raise InputError.one(path, message, f"name a file that ends in .csv, or {install_extra('sweep')}") from None
    types: dict[type | None, Any] = {float: pyarrow.float64(), int: pyarrow.int64(), bool: pyarrow.bool_()}
    arrays = {}
    for name in _columns(rows):
        plain = types.get(column_type(name))
        values = [row.get(name) if plain else _text(name, row.get(name)) for row in rows]
        arrays[name] = pyarrow.array(values, plain or pyarrow.string())
    buffer = io.BytesIO()
    pyarrow.parquet.write_table(pyarrow.table(arrays), buffer)
    write_whole_bytes(path, buffer.getvalue())


def write_scenario(path: Path, document: Document, arrivals: Path) -> None:
    """Write the scenario of a document with an arrivals file in place of its jobs. Files in it are named from ``path``."""
    data = {key: value for key, value in document.data.items() if key not in ("jobs", "arrivals")}
    if "profiles" in data:
        data["profiles"] = [_beside(path, document.beside(name)) for name in data["profiles"]]
    data["arrivals"] = {"file": _beside(path, arrivals)}
    write_whole(path, yaml.safe_dump(data, sort_keys=False, allow_unicode=True, width=120))


def _beside(path: Path, file: Path) -> str:
    return Path(os.path.relpath(file.resolve(), path.resolve().parent)).as_posix()


def _columns(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    given = {name for row in rows for name, value in row.items() if value is not None}
    return [name for name in COLUMNS if name in given]


def _text(name: str, value: Any) -> str | None:
    """A value as a cell; None for nothing."""
    if value is None:
        return None
    if isinstance(value, Mapping):
        return _words(name, [(str(key), f"{key}={_in_a_mapping(name, each)}") for key, each in value.items()])
    if isinstance(value, list | tuple):
        return _words(name, [("", str(_text(name, each))) for each in value])
    if isinstance(value, bool):
        return "true" if value else "false"
    return repr(value) if isinstance(value, float) else str(value)


def _in_a_mapping(name: str, value: Any) -> str:
    return "|".join(str(_text(name, each)) for each in value) if isinstance(value, list) else str(_text(name, value))


def _words(name: str, words: Sequence[tuple[str, str]]) -> str:
    return " ".join(_checked(name, words))


def _checked(name: str, words: Sequence[tuple[str, str]]) -> Iterator[str]:
    for key, word in words:
        if any(letter.isspace() for letter in word) or "=" in key:
            message = f"'{word}' cannot be a word in a cell, in which words have spaces between them"
            raise InputError.one("arrivals file", message, "rename it", key=name)
        yield word
