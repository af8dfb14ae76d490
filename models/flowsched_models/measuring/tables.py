"""The tables that measurements end in: CSV files of one folder that are never half-written."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from flowsched_models.document import InputError, Problem, read_text
from flowsched_models.output import make_folder, write_whole_bytes

Row = Mapping[str, str]

COLUMNS = {
    "threads": (
        "job", "machine_type", "threads", "cores", "run", "real_s", "user_s", "sys_s", "max_rss_mib", "other_cpus",
    ),
    "interference": (
        "job", "machine_type", "interference", "run", "real_s", "user_s", "sys_s", "max_rss_mib", "other_cpus",
    ),
    "executions": (
        "schedule", "run", "job", "node", "machine_type", "cores", "threads", "start_s", "end_s", "exit_code", "other_cpus",
    ),
    "machines": ("node", "machine_type", "vcpus"),
    "programs": ("job", "machine_type", "program", "processor"),
}  # fmt: skip
"""Columns by table, in the order in which they are written. ``docs/measuring.md`` says what they mean."""
KEYS = {
    "threads": ("job", "machine_type", "threads", "cores", "run"),
    "interference": ("job", "machine_type", "interference", "run"),
    "executions": ("schedule", "run"),
    "machines": ("node",),
    "programs": ("job", "machine_type"),
}
"""What tells one measured run from another."""


class Tables:
    """The tables of a folder, read once and written again after every run.

    Rows and columns of others stay as they are. Raises :class:`flowsched_models.document.InputError` for a table that is
    there and cannot be read.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._rows: dict[str, list[dict[str, str]]] = {}
        self._columns: dict[str, list[str]] = {}
        problems: list[Problem] = []
        for name, columns in COLUMNS.items():
            try:
                self._rows[name], there = _read(self.path(name))
            except InputError as error:
                problems += error.problems
                continue
            self._columns[name] = [*there, *(c for c in columns if c not in there)]
        InputError.raise_any(problems)

    def path(self, table: str) -> Path:
        """The file of a table."""
        return self.folder / f"{table}.csv"

    def rows(self, table: str, **values: str) -> list[Row]:
        """The rows that have these values."""
        return [r for r in self._rows[table] if all(r.get(c, "") == v for c, v in values.items())]

    def put(self, table: str, rows: Sequence[Row]) -> None:
        """Add the rows of one run, all or none of them, in place of those with the same key."""
        for row in rows:
            key = [(c, row[c]) for c in KEYS[table]]
            self._rows[table] = [r for r in self._rows[table] if any(r.get(c, "") != v for c, v in key)]
        self._rows[table] += [dict(r) for r in rows]
        text = _written(self._columns[table], self._rows[table])
        make_folder(self.folder)
        write_whole_bytes(self.path(table), text.encode(), sync=True)


def _written(columns: Sequence[str], rows: Iterable[Row]) -> str:
    out = io.StringIO()
    writer = csv.DictWriter(out, columns, restval="", lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return out.getvalue()


def _read(path: Path) -> tuple[list[dict[str, str]], list[str]]:
    if not path.exists():
        return [], []
    lines = list(csv.reader(io.StringIO(read_text(path), newline="")))
    header = lines[0] if lines else []
    problems = [
        Problem(str(path), number, "", f"the row has {len(line)} values, but the header names {len(header)} columns")
        for number, line in enumerate(lines, 1)
        if line and len(line) != len(header)
    ]
    if len(set(header)) < len(header):
        problems.append(Problem(str(path), 1, "", "a column stands twice in the header"))
    InputError.raise_any(problems)
    return [dict(zip(header, line, strict=True)) for line in lines[1:] if line], header
