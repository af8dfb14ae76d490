"""A table of measurements: rows of a CSV file whose values are checked one by one, so that all mistakes show at once."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from flowsched_models.document import InputError, Problem, Problems, nearest, other_separator, read_text
from flowsched_models.measurements.measurements import Where
from flowsched_models.quantity import QuantityError, number_or_nan, parse_cores, parse_milli, parse_rate, shown

Parsed = TypeVar("Parsed")

LARGEST = 1e12
"""No measured number is larger."""
SHOWN = 20
"""So many different mistakes of one table are shown; a table of another kind would bury all else."""
MAX_THREADS = 4096
"""No measured program has more."""
MAX_ROWS = 2_000_000
"""More rows are no table of measurements."""


class Row:
    """One row. A value that cannot be used is noted in the table and read as None."""

    def __init__(self, table: Table, line: int, values: Mapping[str, str]) -> None:
        self.table = table
        self.line = line
        self.values = values
        self.sound = True
        """Whether every value that was asked for could be used."""

    def where(self, column: str = "") -> Where:
        """The place of a value in this row."""
        return Where(self.table.file, self.line, column)

    def text(self, column: str) -> str:
        """The value as it stands, without spaces around it; empty if there is none."""
        return self.values.get(column, "")

    def measured(self, column: str) -> bool:
        """Whether a measurement is there."""
        return self.text(column).lower() not in ("", "nan")

    def first(self, *columns: str) -> str:
        """The first of some columns that has a measurement here, else the first of them."""
        return next((c for c in columns if self.measured(c)), columns[0])

    def refuse(self, column: str, message: str, help: str = "") -> None:
        """Note that a value cannot be used."""
        self.sound = False
        self.table.refuse(self.line, column, message, help)

    def name(self, column: str) -> str:
        """A name; it must be there."""
        text = self.text(column)
        if not text:
            self.refuse(column, "the value is missing", "write a name")
        elif not text.isprintable():
            self.refuse(column, f"{shown(text)} is not a name", "write it in printable characters")
        return text

    def number(self, column: str, least: float | None = None) -> float | None:
        """A finite number; it must be there."""
        text = self.text(column)
        if not text:
            self.refuse(column, "the value is missing", "write a number, or take the row out")
            return None
        value = number_or_nan(text) if "_" not in text else math.nan
        if not math.isfinite(value) or abs(value) > LARGEST:
            self.refuse(column, f"{shown(text)} is not a number", _number_help(text))
            return None
        if least is not None and value < least:
            what = "must not be negative" if least == 0 else f"must be at least {least:g}"
            self.refuse(column, f"the value {what}, but is {text}")
            return None
        return value

    def optional_number(self, column: str, least: float | None = None) -> float | None:
        """A finite number, or None where there is none."""
        return self.number(column, least) if self.measured(column) else None

    def count(self, column: str, most: int | None = None) -> int | None:
        """A whole number of at least 1; it must be there."""
        value = self.number(column)
        if value is None:
            return None
        if value < 1 or value != int(value):
            self.refuse(column, f"the value must be a whole number of at least 1, but is {self.text(column)}")
            return None
        if most is not None and value > most:
            self.refuse(column, f"the value must be at most {most}, but is {self.text(column)}")
            return None
        return int(value)

    def load(self, column: str) -> float | None:
        """Queries per second, 30000 or 30K; None where there are none."""
        return self._parsed(column, parse_rate) if self.measured(column) else None

    def cpu(self, column: str) -> float | None:
        """CPU in cores: 4, 3.5 or 3500m; None where there is none, or 0."""
        milli = None if self.text(column) in ("", "0", "0m") else self._parsed(column, parse_milli)
        return None if milli is None else milli / 1000

    def cores(self, column: str) -> tuple[int, ...]:
        """A list of cores: ``0-3``, ``0,2-5``, ``0 1``; empty for all cores."""
        help = 'write a list of cores as "0-3", "0,2-5" or "0 1"; empty for all cores'
        return self._parsed(column, _spaced_cores, help) or () if self.text(column) else ()

    def _parsed(self, column: str, parse: Callable[[str], Parsed], help: str = "") -> Parsed | None:
        try:
            return parse(self.text(column))
        except QuantityError as error:
            self.refuse(column, error.message, help or error.help)
            return None


@dataclass
class Table:
    """The rows of one file; ``file`` as findings name it, ``source`` as problems do."""

    file: str
    source: str
    columns: tuple[str, ...]
    rows: tuple[Row, ...] = ()
    mistakes: dict[tuple[str, str, str], list[int]] = field(default_factory=dict)
    """Lines by column, message and help."""

    def refuse(self, line: int, column: str, message: str, help: str = "") -> None:
        """Note a mistake."""
        self.mistakes.setdefault((column, message, help), []).append(line)

    def problems(self) -> list[Problem]:
        """All mistakes; the same one in many rows is told once."""
        found = []
        for (column, message, help), lines in self.mistakes.items():
            more = len(lines) - 1
            rows = f" (and in {more} more row{'' if more == 1 else 's'})" if more else ""
            found.append(Problem(self.source, lines[0], column, message + rows, help))
        found.sort(key=lambda problem: problem.line or 0)
        if (hidden := len(found) - SHOWN) > 0:
            text = f"there {'is' if hidden == 1 else 'are'} {hidden} more mistake{'' if hidden == 1 else 's'} in this table"
            found[SHOWN:] = [Problem(self.source, found[SHOWN].line, "", text)]
        return found

    def require(self, *alternatives: Sequence[str]) -> bool:
        """Whether one column of each kind is there; what is missing is noted."""
        missing = [names for names in alternatives if not any(name in self.columns for name in names)]
        for names in missing:
            wanted = " or ".join(f"'{name}'" for name in names)
            close = next((c for name in names if (c := nearest(name, self.columns))), None)
            found = ", ".join(self.columns) or "none"
            help = f"did you mean '{close}'? (columns: {found})" if close else f"columns: {found}"
            self.refuse(1, "", f"the column {wanted} is missing", help)
        return not missing

    def __iter__(self) -> Iterator[Row]:
        """Row by row."""
        return iter(self.rows)


def read_table(path: Path, file: str, problems: Problems) -> Table | None:
    """Read a CSV file with a header; None if that fails, and the reason is noted."""
    try:
        text = read_text(path)
    except InputError as error:
        problems.extend(error.problems)
        return None
    source = str(path)
    if not text.strip():
        problems.add(Problem(source, None, "", "the file is empty", "the first row names the columns"))
        return None
    if "\0" in text:
        problems.add(Problem(source, None, "", "the file is not text: it holds zero bytes", "save it as CSV in UTF-8"))
        return None
    reader = csv.reader(io.StringIO(text, newline=""), strict=True)
    table: Table | None = None
    rows: list[Row] = []
    try:
        for cells in reader:
            stripped = [cell.strip() for cell in cells]
            if not any(stripped):
                continue
            if table is None:
                columns = _header(stripped, source, reader.line_num, problems)
                if columns is None:
                    return None
                table = Table(file, source, columns)
            else:
                rows.append(_row(table, reader.line_num, stripped))
                if len(rows) > MAX_ROWS:
                    problems.add(Problem(source, reader.line_num, "", f"the table has more than {MAX_ROWS} rows"))
                    return None
    except csv.Error as error:
        problems.add(Problem(source, reader.line_num, "", f"not valid CSV: {error}"))
        return None
    if table is None or not rows:
        problems.add(Problem(source, None, "", "the table has no rows under its header", "take the file out"))
        return None
    # A row with too many or too few values has its values in the wrong columns.
    table.rows = tuple(row for row in rows if row.sound)
    return table


def _header(cells: Sequence[str], source: str, line: int, problems: Problems) -> tuple[str, ...] | None:
    if other := other_separator(cells):
        problems.add(Problem(source, line, "", *other))
        return None
    twice = sorted({c for c in cells if c and cells.count(c) > 1})
    for column in twice:
        problems.add(Problem(source, line, column, "the column stands twice in the header"))
    return None if twice else tuple(cells)


def _row(table: Table, line: int, cells: Sequence[str]) -> Row:
    row = Row(table, line, dict(zip(table.columns, cells, strict=False)))
    if len(cells) > len(table.columns) and any(cells[len(table.columns) :]):
        counts = f"the row has {len(cells)} values, but the header names {len(table.columns)} columns"
        row.refuse("", counts, "a value with commas needs quotes around it")
    elif len(cells) < len(table.columns):
        counts = f"the row has only {len(cells)} values, but the header names {len(table.columns)} columns"
        row.refuse("", counts, "the file may be cut off")
    return row


def _spaced_cores(text: str) -> tuple[int, ...]:
    return parse_cores(",".join(text.replace(",", " ").split()))


def _number_help(text: str) -> str:
    if "," in text:
        return "write a decimal point, and no separators of thousands"
    if text[:1].isdigit() and text[-1:].isalpha():
        return "write the number without its unit: the unit is in the column's name"
    return ""
