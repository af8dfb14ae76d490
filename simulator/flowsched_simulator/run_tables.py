"""A run as tables: jobs, windows of latency and rounds in columns, for data frames, Parquet files and sweeps.

Columns follow the fields and properties of :class:`JobRun`, :class:`LatencyWindow` and :class:`RoundSummary`: a new one
becomes a column without a change here.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, fields, is_dataclass
from functools import cache
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args, get_type_hints

from flowsched.cluster.snapshot import MILLI
from flowsched_models.output import make_folder, write_whole_bytes
from flowsched_simulator.run import JobRun, LatencyWindow, RoundSummary, Run

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

Columns = dict[str, list[Any]]
"""Values by column, all lists of equal length; None where there is no value. Infinity is no value."""

TABLES = ("jobs", "windows", "rounds")
_KINDS: Mapping[Any, str] = {
    str: "string",
    bool: "bool",
    int: "int64",
    float: "float64",
    tuple[int, ...]: "list<int64>",
}
_JSON = "json"
"""The kind of a column that holds more than one value: JSON text."""
_OF_CERTIFICATES = {"gap_absolute": "float64", "gap_relative": "float64", "certificate": "string"}


def run_columns(run: Run, table: str) -> Columns:
    """One of :data:`TABLES` of a run: a job, a stretch of equal windows of latency, or a round per row."""
    rows: Sequence[Any] = {"jobs": run.jobs, "windows": run.latency, "rounds": run.rounds}[table]
    return {name: [_value(read(row), kind) for row in rows] for name, (kind, read) in _columns(table).items()}


def column_kinds(table: str) -> dict[str, str]:
    """The kind of every column: ``string``, ``bool``, ``int64``, ``float64``, ``list<int64>`` or ``json``, which is text."""
    return {name: kind for name, (kind, _) in _columns(table).items()}


def round_times_ms(run: Run) -> list[float]:
    """Milliseconds that each round took on this machine: the only part of a run that differs between equal runs."""
    return [each.solve_ms for each in run.rounds]


def arrow_table(columns: Mapping[str, Sequence[Any]], kinds: Mapping[str, str]) -> pa.Table:
    """Columns as an Arrow table with types that do not depend on the values."""
    import pyarrow as pa

    types: Mapping[str, Callable[[], Any]] = {
        "string": pa.string,
        _JSON: pa.string,
        "bool": pa.bool_,
        "int64": pa.int64,
        "float64": pa.float64,
        "list<int64>": lambda: pa.list_(pa.int64()),
    }
    schema = pa.schema([(name, types[kind]()) for name, kind in kinds.items()])
    return pa.table({name: columns[name] for name in kinds}, schema=schema)


def parquet_bytes(table: pa.Table) -> bytes:
    """A table as a Parquet file. The same table gives the same bytes."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, compression="zstd")
    return bytes(sink.getvalue())


def run_frame(run: Run, table: str) -> pd.DataFrame:
    """One of :data:`TABLES` as a data frame."""
    frame = arrow_table(run_columns(run, table), column_kinds(table)).to_pandas()
    if table == "rounds":
        frame["solve_ms"] = round_times_ms(run)
    return frame


def write_parquet(run: Run, folder: Path) -> tuple[Path, ...]:
    """Write ``jobs.parquet``, ``windows.parquet`` and ``rounds.parquet``; the paths. The same run gives the same bytes."""
    written = {
        folder / f"{table}.parquet": parquet_bytes(arrow_table(run_columns(run, table), column_kinds(table)))
        for table in TABLES
    }
    make_folder(folder)
    for path, content in written.items():
        write_whole_bytes(path, content)
    return tuple(written)


@cache
def _columns(table: str) -> dict[str, tuple[str, Callable[[Any], Any]]]:
    """Kind and reader of every column of a table."""
    made = _members({"jobs": JobRun, "windows": LatencyWindow, "rounds": RoundSummary}[table])
    if table == "jobs":
        made["width_milli"] = "float64", lambda job: job.width_milli / MILLI
        return {"request" if name == "width_milli" else name: column for name, column in made.items()}
    if table == "rounds":
        del made["solve_ms"], made["certificate"]
        for name, kind in _OF_CERTIFICATES.items():
            made[name] = kind, _certificate_reader("method" if name == "certificate" else name)
    return made


def _certificate_reader(name: str) -> Callable[[RoundSummary], Any]:
    return lambda each: None if each.certificate is None else getattr(each.certificate, name)


def _members(row: type) -> dict[str, tuple[str, Callable[[Any], Any]]]:
    """Fields, then properties."""
    hints = get_type_hints(row)
    kinds = {field.name: hints[field.name] for field in fields(row)}
    for name, member in vars(row).items():
        if isinstance(member, property) and member.fget is not None and not name.startswith("_"):
            kinds[name] = get_type_hints(member.fget)["return"]
    return {name: (_kind(hint), attrgetter(name)) for name, hint in kinds.items()}


def _kind(hint: Any) -> str:
    """The kind of a column, by the annotation of its values; None beside a kind is a missing value."""
    if hint in _KINDS:
        return _KINDS[hint]
    inner = [each for each in get_args(hint) if each is not type(None)]
    return _KINDS.get(inner[0], _JSON) if len(inner) == 1 else _JSON


def _value(value: Any, kind: str) -> Any:
    if value is None:
        return None
    if kind == "float64":
        return float(value) if math.isfinite(value) else None
    if kind == "list<int64>":
        return [int(each) for each in value]
    if kind == _JSON:
        return json.dumps(value, default=_plain) if value else None
    return value


def _plain(value: Any) -> Any:
    """A value inside a JSON column."""
    if is_dataclass(value) and not isinstance(value, type):
        return asdict(value)
    raise TypeError(f"no column can hold {value!r}")
