"""What the readers of one group's tables share, and what they found."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from flowsched_models.measurements.load_event import LoadEvent, LoadRunKey
from flowsched_models.measurements.machines import Machines
from flowsched_models.measurements.measurements import (
    Finding,
    InterferenceTime,
    LatencyInterference,
    LatencyPoint,
    LatencyWindow,
    LoadRow,
    Run,
    ThreadTime,
    Where,
)
from flowsched_models.measurements.table import Row, Table

RunKey = tuple[str, str]
"""Schedule and run."""
TRUE = ("1", "true", "yes", "y")
FALSE = ("0", "false", "no", "n")
DIGITS_OF_A_COPY = 7
"""Digits, over all measured columns, that make a chance repetition improbable."""


@dataclass
class Group:
    """One group's measurements while they are read. Nothing here is final: ``quirks`` leaves out more."""

    name: str
    machines: Machines
    year: str = ""
    service: str = "memcached"
    """Name of the latency service where a table has no column for it."""
    service_qps: float | None = None
    """Load of the services during runs where no window tells it."""
    jobs: frozenset[str] = frozenset()
    """Jobs that every run must have; empty if that is not known."""
    dropped_jobs: frozenset[str] = frozenset()
    """Jobs whose rows are not wanted."""
    refused_runs: Mapping[RunKey, str] = field(default_factory=dict)
    """Runs that the data's owner says not to use, with the reason."""
    refused_loads: Mapping[LoadRunKey, str] = field(default_factory=dict)
    """Runs under a changing load that the data's owner says not to use, with the reason."""
    job_weight: float = 1.0
    throttled_jobs: frozenset[str] = frozenset()
    """Jobs under a controller whose CPU time had a limit that the logs do not tell."""
    """CPU weight of jobs relative to the service's, in runs under a changing load that do not tell it."""
    suspect_times: frozenset[tuple[str, int]] = frozenset()
    """Thread times (job, threads) that the data's owner says not to use."""
    thread_times: list[ThreadTime] = field(default_factory=list)
    interference_times: list[InterferenceTime] = field(default_factory=list)
    runs: list[Run] = field(default_factory=list)
    latency_points: list[LatencyPoint] = field(default_factory=list)
    latency_interference: list[LatencyInterference] = field(default_factory=list)
    latency_windows: list[LatencyWindow] = field(default_factory=list)
    load_rows: dict[LoadRunKey, list[LoadRow]] = field(default_factory=dict)
    load_events: dict[LoadRunKey, list[LoadEvent]] = field(default_factory=dict)
    findings: list[Finding] = field(default_factory=list)
    left_out_runs: set[RunKey] = field(default_factory=set)
    _told: set[tuple[str, str]] = field(default_factory=set)

    def leave_out(self, where: Where, text: str) -> None:
        """Note that something is not used, and why."""
        self.findings.append(Finding(where, text, "left out", self.name))

    def not_a_job(self, row: Row) -> bool:
        """Whether a row is about a job that was not asked for; named once per table."""
        job = row.text("job")
        if job not in self.dropped_jobs:
            return False
        if (row.table.file, job) not in self._told:
            self._told.add((row.table.file, job))
            self.leave_out(row.where("job"), f"{job} was dropped from the list of jobs, so all its rows are")
        return True

    def correct(self, where: Where, text: str) -> None:
        """Note that something is read as what it must mean, and why."""
        self.findings.append(Finding(where, text, "corrected", self.name))

    def leave_out_run(self, key: RunKey, where: Where, text: str) -> None:
        """Note that a whole run is not used, and why."""
        schedule, run = key
        shown = f"run '{run}'" + (f" of schedule '{schedule}'" if schedule else "")
        self.left_out_runs.add(key)
        self.leave_out(where, f"{shown}: {text}")


def flag(row: Row, column: str, default: bool) -> bool:
    """A yes or no: 1, 0, true, false, yes, no."""
    text = row.text(column).lower()
    if text in TRUE or text in FALSE:
        return text in TRUE
    if text:
        row.refuse(column, f"'{row.text(column)}' is neither yes nor no", "write 1 or 0")
    return default


def originals(table: Table, group: Group, measured: tuple[str, ...]) -> list[Row]:
    """The rows that repeat no earlier one, neither the same run again nor another with the same value to the last digit.

    Real repeats differ in their last digits, if there are enough of them: short times in hundredths do not.
    """
    columns = [c for c in table.columns if c != "src"]
    label = [c for c in columns if c != "run"]
    rows: dict[tuple[str, ...], Row] = {}
    values: dict[tuple[str, ...], Row] = {}
    copies: list[tuple[Row, Row]] = []
    found = []
    for row in table:
        present = [c for c in measured if row.text(c)]
        first = rows.setdefault(tuple(row.text(c) for c in columns), row) if row.text("run") else row
        if first is row:
            digits = sum(len(row.text(c).replace(".", "").strip("-0")) for c in present)
            first = values.setdefault(tuple(row.text(c) for c in label), row) if digits >= DIGITS_OF_A_COPY else row
        if first is not row and present:
            copies.append((row, first))
        else:
            found.append(row)
    _tell_copies(copies, group, measured[0])
    return found


def _tell_copies(copies: Sequence[tuple[Row, Row]], group: Group, column: str) -> None:
    """One finding for rows that follow each other and copy rows that follow each other."""
    blocks: list[list[tuple[Row, Row]]] = []
    for row, first in copies:
        last = blocks[-1][-1] if blocks else None
        if last is not None and (row.line, first.line) == (last[0].line + 1, last[1].line + 1):
            blocks[-1].append((row, first))
        else:
            blocks.append([(row, first)])
    for block in blocks:
        row, first = block[0]
        end, first_end = block[-1]
        if len(block) == 1:
            text = f"the row repeats row {first.line} to the last digit: it is a copy, not a measurement of its own"
        else:
            text = (
                f"rows {row.line} to {end.line} repeat rows {first.line} to {first_end.line} to the last digit: "
                "they are copies, not measurements of their own"
            )
        group.leave_out(row.where(column), text)


def measured(row: Row, column: str, group: Group) -> float | None:
    """A measured value above 0. Where nothing was measured, the row is left out; other mistakes are refused."""
    if not row.measured(column):
        group.leave_out(row.where(column), "no value was measured")
        return None
    value = row.number(column, 0)
    if value == 0:
        group.leave_out(row.where(column), "the value is 0, so nothing was measured")
        return None
    return value


def threads_text(threads: int) -> str:
    """``1 thread``, ``2 threads``."""
    return "1 thread" if threads == 1 else f"{threads} threads"
