"""Arrivals files: a row for each job, in CSV or Parquet, with the keys of a job as columns."""

from __future__ import annotations

import csv
import datetime
import io
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Annotated, Any, get_args, get_origin

from pydantic import BeforeValidator

from flowsched_models.document import (
    Document,
    InputError,
    KeyPath,
    Problem,
    Problems,
    name_help,
    nearest,
    other_separator,
    read_text,
)
from flowsched_models.extras import install_extra
from flowsched_models.form import check
from flowsched_simulator.job_form import ArrivalForm, JobEntry

PARQUET = (".parquet", ".pq")
"""How the names of Parquet files end; any other file is read as CSV."""
_FIELDS = {field.alias or name: field for name, field in ArrivalForm.model_fields.items()}
COLUMNS = tuple(sorted(_FIELDS, key=lambda name: (name != "submit_s", name != "name")))
"""Names of the columns, the first two in front as in a log."""
REQUIRED = tuple(name for name in COLUMNS if _FIELDS[name].is_required())
_STAMP = re.compile(r"\d{4}[-/.]\d{1,2}[-/.]\d{1,2}.*|\d{1,2}[-/.]\d{1,2}[-/.]\d{2,4}.*|\d+:\d{1,2}(:\d{1,2}(\.\d*)?)?")
_STAMP_HELP = (
    "use seconds, counted from one moment for all rows; pandas converts a column of time stamps by "
    "(t - t.min()).dt.total_seconds(), t being pandas.to_datetime(column)"
)


class _Line(Document):
    """One line of a CSV file: its keys are columns."""

    def problem(self, path: KeyPath, message: str, help: str = "") -> Problem:
        """A problem with one value of the line."""
        return Problem(self.source, self.line(path), f"column '{path[0]}'", message, help)


class _Row(Document):
    """One row of a table without lines, counted from 1."""

    def problem(self, path: KeyPath, message: str, help: str = "") -> Problem:
        """A problem with one value of the row."""
        return Problem(self.source, None, f"row {self.line(path)}, column '{path[0]}'", message, help)


@dataclass(frozen=True)
class _Table:
    """The cells of a file before anything is known about them."""

    header: Sequence[str]
    rows: Iterable[tuple[int, Sequence[Any]]]
    """Where each row stands, and its cells."""
    place: type[_Line] | type[_Row]
    """What says where a row stands."""


def is_parquet(path: Path) -> bool:
    """Whether a file is read and written as Parquet."""
    return path.suffix.lower() in PARQUET


def read_arrivals(problems: Problems, path: Path) -> list[JobEntry]:
    """The jobs of an arrivals file. Every mistake names the file, the line (in Parquet: the row) and the column."""
    before = len(problems.found)
    try:
        table = _parquet(path) if is_parquet(path) else _csv(path)
        problems.extend(_header_problems(str(path), table))
        # Without a sound header every row would complain.
        entries = list(_entries(problems, table, str(path))) if len(problems.found) == before else []
    except InputError as error:
        problems.extend(error.problems)
        return []
    except csv.Error as error:
        problems.add(Problem(str(path), None, "", f"not a valid CSV file: {error}"))
        return []
    if not entries and len(problems.found) == before:
        problems.add(Problem(str(path), None, "", "there is no job below the header", "give one line per job"))
    return entries


def rows_as_entries(problems: Problems, rows: Iterable[Mapping[str, Any]], source: str) -> list[JobEntry]:
    """Jobs given as mappings from columns to cells, such as the records of a data frame; messages count rows from 1."""
    listed = [dict(row) for row in rows]
    header = list(dict.fromkeys(str(name) for row in listed for name in row))
    cells = ((number, [row.get(name) for name in header]) for number, row in enumerate(listed, start=1))
    table = _Table(header, cells, _Row)
    faults = list(_header_problems(source, table)) if listed else []
    problems.extend(faults)
    return [] if faults else list(_entries(problems, table, source))


def _csv(path: Path) -> _Table:
    reader = csv.reader(io.StringIO(read_text(path), newline=""), strict=True)
    header = [cell.strip() for cell in next(reader, [])]

    def rows() -> Iterator[tuple[int, Sequence[Any]]]:
        line = reader.line_num + 1
        for row in reader:
            first, line = line, reader.line_num + 1
            if any(cell.strip() for cell in row):
                yield first, [cell.strip() for cell in row]

    return _Table(header, rows(), _Line)


def _parquet(path: Path) -> _Table:
    try:
        import pyarrow.parquet
    except ImportError:
        message = "reading Parquet needs pyarrow, which is not installed"
        raise InputError.one(path, message, install_extra("sweep")) from None
    try:
        table = pyarrow.parquet.read_table(path)
    except (OSError, ValueError, pyarrow.ArrowException) as error:
        text = " ".join(str(error).split())
        raise InputError.one(path, f"not a valid Parquet file: {text}") from None
    columns = [column.to_pylist() for column in table.columns]
    return _Table(table.column_names, enumerate(zip(*columns, strict=True), start=1), _Row)


def _header_problems(source: str, table: _Table) -> Iterator[Problem]:
    header = table.header
    if not header:
        yield Problem(source, None, "", "the file is empty", f"the first line names columns: {','.join(COLUMNS)}")
        return
    line = 1 if table.place is _Line else None
    if other := other_separator(header):
        yield Problem(source, line, "", *other)
        return
    if not any(name in COLUMNS or nearest(name, COLUMNS) for name in header):
        # The file's name may come from a stranger, who may not read it: nothing of it is quoted.
        message = "is no table of jobs: its first line has none of their columns"
        yield Problem(source, line, "", message, f"it names columns: {','.join(COLUMNS)}")
        return
    for name in header:
        if name not in COLUMNS:
            yield Problem(source, line, "", f"there is no column '{name}'", name_help(name, COLUMNS))
    for name in COLUMNS:
        if header.count(name) > 1:
            yield Problem(source, line, "", f"the column '{name}' stands twice")
    for name in REQUIRED:
        if name not in header:
            yield Problem(source, line, "", f"the column '{name}' is missing")


def _entries(problems: Problems, table: _Table, source: str) -> Iterator[JobEntry]:
    kinds = _kinds()
    for number, cells in table.rows:
        if len(cells) != len(table.header):
            message = f"this line has {len(cells)} values, the header {len(table.header)}"
            problems.add(Problem(source, number, "", message))
            continue
        data = {
            name: kinds[name].value(cell)
            for name, cell in zip(table.header, map(_plain, cells), strict=True)
            if name in REQUIRED or not _is_empty(cell)
        }
        row = table.place(source, data, {(): number})
        checked = check(row, ArrivalForm)
        for fault in checked.problems:
            column = next((name for name in data if fault.key.endswith(f"column '{name}'")), None)
            help = fault.help or ("" if column is None else kinds[column].help(data[column]))
            problems.add(replace(fault, help=help))
        if not checked.problems and checked.value is not None:
            yield JobEntry(checked.value, row, ())


def _plain(cell: Any) -> Any:
    """A value of numpy as Python has it, and nothing for the words that pandas has for it."""
    if type(cell).__name__ in ("NAType", "NaTType"):
        return None
    return cell.tolist() if hasattr(cell, "tolist") else cell


def _is_empty(cell: Any) -> bool:
    return cell is None or cell == "" or (isinstance(cell, float) and math.isnan(cell))


@dataclass(frozen=True)
class _Kind:
    """How the cells of a column are read: what its key wants, as far as text and numbers are told apart by it."""

    plain: type
    """Type of the value, or of the items of a list or mapping."""
    many: type | None
    """``list`` or ``dict``: words with spaces between them, those of a mapping as ``key=value``."""

    def value(self, cell: Any) -> Any:
        """A cell as YAML would have it; what cannot be read stays as it is, for the form to complain of."""
        if self.many is list:
            items = cell.split() if isinstance(cell, str) else cell
            return [self._one(item) for item in items] if isinstance(items, list | tuple) else items
        if self.many is dict:
            return self._mapping(cell)
        return self._one(cell)

    def help(self, value: Any) -> str:
        """How to write what was meant: pairs of a mapping, or seconds where a time stamp is found."""
        if self.many is dict and not isinstance(value, dict):
            return "write name=value, with a space between two of them"
        if self.plain is not float or self.many is not None:
            return ""
        stamp = isinstance(value, datetime.date | datetime.time | datetime.timedelta)
        return _STAMP_HELP if stamp or (isinstance(value, str) and _STAMP.fullmatch(value)) else ""

    def _mapping(self, cell: Any) -> Any:
        if isinstance(cell, str):
            pairs = [word.partition("=") for word in cell.split()]
            if any(not (key and equals and value) for key, equals, value in pairs):
                return cell
            return {key: self._one(value) for key, _, value in pairs}
        if isinstance(cell, dict):  # a struct, which has a field for every key of any row
            return {key: self._one(value) for key, value in cell.items() if not _is_empty(value)}
        if isinstance(cell, list):  # a map
            return {key: self._one(value) for key, value in cell}
        return cell

    def _one(self, cell: Any) -> Any:
        if self.plain is str:
            return str(cell) if isinstance(cell, int) and not isinstance(cell, bool) else cell
        if self.plain is bool:
            return {"true": True, "false": False}.get(cell.lower(), cell) if isinstance(cell, str) else cell
        if self.plain is int and isinstance(cell, float) and cell.is_integer():
            return int(cell)  # a column of whole numbers in which some row has none
        if self.plain in (int, float) and isinstance(cell, str):
            try:
                return self.plain(cell)
            except ValueError:
                return cell
        return cell


def column_type(name: str) -> type | None:
    """The plain type of a column's values, ``float``, ``int`` or ``bool``; None where they are written as text."""
    kind = _kinds()[name]
    return kind.plain if kind.many is None and kind.plain in (float, int, bool) else None


@cache
def _kinds() -> Mapping[str, _Kind]:
    """How each column is read, by the form."""
    return {
        name: _kind(Annotated[field.annotation, *field.metadata] if field.metadata else field.annotation)
        for name, field in _FIELDS.items()
    }


def _kind(annotation: Any, many: type | None = None) -> _Kind:
    """The same for a type: texts with a unit have a parser of their own, and stay as they are."""
    arguments = get_args(annotation)
    if hasattr(annotation, "__metadata__"):
        plain = _kind(arguments[0], many)
        parsed = any(isinstance(part, BeforeValidator) for part in arguments[1:])
        return _Kind(object, plain.many) if parsed and plain.plain is not str else plain
    if get_origin(annotation) in (list, dict):
        return _kind(arguments[-1], get_origin(annotation))
    return _kind(arguments[0], many) if arguments else _Kind(annotation, many)
