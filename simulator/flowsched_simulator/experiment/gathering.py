"""From one file per run to the tables of a sweep: ``results``, which depend on seeds only, and ``timings``."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any

from flowsched_models.output import make_folder, write_whole
from flowsched_simulator.experiment.finished_run import FinishedRun
from flowsched_simulator.experiment.plan import Plan
from flowsched_simulator.experiment.planned_run import PlannedRun
from flowsched_simulator.experiment.run_store import RunStore
from flowsched_simulator.run_tables import TABLES, Columns, arrow_table, column_kinds

RESULTS, TIMINGS, ABOUT = "results", "timings", "experiment.json"
KEYS: Mapping[str, str] = {"case": "string", "policy": "string", "seed": "int64"}
"""The columns that every table begins with, and is sorted by."""
_ROWS_AT_ONCE = 100_000


def gather(plan: Plan, runs: Sequence[PlannedRun], store: RunStore, folder: Path) -> None:
    """Write the tables of all ``runs``, which are done. The same runs give the same bytes in ``results``."""
    results, timings = folder / RESULTS, folder / TIMINGS
    for each in (results, timings):
        make_folder(each)
    rows, measured = [], []
    with ExitStack() as stack:
        writers = {
            table: stack.enter_context(_TableWriter(results / f"{table}.parquet", column_kinds(table)))
            for table in TABLES
        }
        kinds = {"round": "int64", "solve_ms": "float64"}
        rounds = stack.enter_context(_TableWriter(timings / "rounds.parquet", kinds))
        for run in runs:
            done = store.read(run.digest)
            for table, writer in writers.items():
                writer.add(run, done.tables[table])
            rounds.add(run, {"round": list(range(len(done.round_ms))), "solve_ms": list(done.round_ms)})
            rows.append({**_key(run), **_described(run, done), **done.figures})
            measured.append({**_key(run), **done.timings})
    _write_rows(results / "runs.parquet", rows)
    _write_rows(timings / "runs.parquet", measured)
    about = {**plan.told(), "seeds": sorted({run.seed for run in runs})}
    write_whole(results / ABOUT, json.dumps(about, indent=1, allow_nan=False) + "\n")


def _key(run: PlannedRun) -> dict[str, Any]:
    return dict(zip(KEYS, run.key, strict=True))


def _described(run: PlannedRun, done: FinishedRun) -> dict[str, Any]:
    """What tells a run from others beside its key. A model error of ``measured`` is no number: None."""
    error = run.case.model_error
    return {
        "variant": done.variant,
        "settings": ", ".join(run.contender.settings),
        "model_error": None if isinstance(error, str) else float(error),
        "error_of": run.case.error_of,
        "estimate_error": run.case.scenario.estimate_error,
    }


def _write_rows(path: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    """A table with a row per run: the columns are all that any row has."""
    names = list(dict.fromkeys(name for row in rows for name in row))
    columns = {name: [row.get(name) for row in rows] for name in names}
    with _TableWriter(path, {name: KEYS.get(name) or _kind_of(values) for name, values in columns.items()}) as writer:
        writer.extend(columns)


def _kind_of(values: Sequence[Any]) -> str:
    known = [value for value in values if value is not None]
    if known and all(isinstance(value, bool) for value in known):
        return "bool"
    if any(isinstance(value, str) for value in known):
        return "string"
    return "int64" if known and all(isinstance(value, int) for value in known) else "float64"


class _TableWriter:
    """A Parquet file, written in parts of some 100,000 rows; it appears whole, or not at all."""

    def __init__(self, path: Path, kinds: Mapping[str, str]) -> None:
        self._path = path
        self._draft = path.with_name(path.name + ".part")
        self._kinds = {**KEYS, **kinds}
        self._held: Columns = {name: [] for name in self._kinds}
        self._writer: Any = None

    def __enter__(self) -> _TableWriter:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if kind is None:
            self._flush()
        if self._writer is not None:
            self._writer.close()
        if kind is None:
            self._draft.replace(self._path)
        else:
            self._draft.unlink(missing_ok=True)

    def add(self, run: PlannedRun, columns: Columns) -> None:
        """The rows of one run."""
        count = len(next(iter(columns.values())))
        self.extend({**{name: [value] * count for name, value in _key(run).items()}, **columns})

    def extend(self, columns: Columns) -> None:
        """Rows with all their columns."""
        for name, values in self._held.items():
            values += columns[name]
        if len(self._held["seed"]) >= _ROWS_AT_ONCE:
            self._flush()

    def _flush(self) -> None:
        import pyarrow.parquet as pq

        table = arrow_table(self._held, self._kinds)
        if self._writer is None:
            self._writer = pq.ParquetWriter(self._draft, table.schema, compression="zstd")
        self._writer.write_table(table)
        self._held = {name: [] for name in self._kinds}
