"""The folders of the "Cloud Computing Architecture" course, ETH Zurich: which machines each year had, and what is flagged.

The machines are those of the cluster files of the groups' public repositories, by year.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from flowsched_models.document import Problems
from flowsched_models.measurements.group import RunKey
from flowsched_models.measurements.load_runs import load_run_key
from flowsched_models.measurements.machines import Machines
from flowsched_models.measurements.table import MAX_THREADS, Row, Table, read_table
from flowsched_models.quantity import QuantityError, parse_rate

LOAD_QPS = 30_000.0
"""Load of memcached in Part 3, every year."""
_ROLE_COLUMNS = {
    "latency_interference": "part1_memcached_node",
    "interference": "part2a_node",
    "threads": "part2b_node",
    "latency_sweep": "part4_node",
}


@dataclass(frozen=True)
class Year:
    """The machines and the jobs of one year of the course."""

    nodes: Mapping[str, str]
    roles: Mapping[str, str]
    load_qps: float = LOAD_QPS
    jobs: frozenset[str] = frozenset()

    def machines(self) -> Machines:
        """For the readers. The names of nodes and types end with the number of their virtual CPUs."""
        vcpus = {t: int(m[1]) for t in (*self.nodes.values(), *self.roles.values()) if (m := re.search(r"-(\d+)$", t))}
        return Machines(self.nodes, self.roles, vcpus)


_OLD_JOBS = frozenset(("blackscholes", "canneal", "dedup", "ferret", "freqmine", "fft"))
_JOBS = frozenset(("blackscholes", "canneal", "dedup", "ferret", "freqmine", "radix", "vips"))
_JOBS_2026 = frozenset(("barnes", "blackscholes", "canneal", "freqmine", "radix", "streamcluster", "vips"))
JOBS = {
    "2021": _OLD_JOBS,
    "2022": _OLD_JOBS,
    "2023": _JOBS,
    "2024": _JOBS,
    "2025": _JOBS,
    "2026": _JOBS_2026,
}
"""The jobs of every Part 3 run."""


def _year(year: str, part1: str, part2a: str, part2b: str, part4: str, *nodes: str) -> Year:
    roles = {"latency_interference": part1, "interference": part2a, "threads": part2b, "latency_sweep": part4}
    return Year(dict(n.split() for n in nodes), roles, jobs=JOBS[year])


_A, _B, _C = "node-a-2core ", "node-b-4core ", "node-c-8core "
_E2, _E8 = "e2-standard-2", "e2-standard-8"
YEARS: Mapping[str, Year] = {
    "2021": _year("2021", _E2, _E2, _E8, "e2-standard-4", _A + _E2, _B + "e2-standard-4", _C + _E8),
    "2022": _year(
        "2022", "n2d-highcpu-2", _E2, _E8, "n2d-highmem-4", _A + "n2d-highcpu-2", _B + "n2d-highmem-4", _C + _E8
    ),
    "2023": _year(
        "2023", "t2d-standard-2", _E2, _E8, "n2d-highmem-4", _A + "t2d-standard-2", _B + "n2d-highcpu-4", _C + _E8
    ),
    "2024": _year(
        "2024", "n2d-highcpu-2", _E2, _E8, "n2d-highmem-4", _A + "n2d-highcpu-2", _B + "n2d-highmem-4", _C + _E8
    ),
    "2025": _year(
        "2025",
        "n2-highcpu-2",
        "n2-standard-2",
        "n2-standard-8",
        "n2-highmem-4",
        "node-a-2core e2-highmem-2",
        "node-b-2core n2-highcpu-2",
        "node-c-4core c3-highcpu-4",
        "node-d-4core n2-standard-4",
    ),
    "2026": _year(
        "2026", "e2-highcpu-2", _E2, _E8, "n2d-highmem-4", "node-a-8core e2-standard-8", "node-b-4core n2d-highcpu-4"
    ),
}


JOBS_OF_LOWEST_WEIGHT = frozenset(("frikai",))
"""Groups whose jobs ran at 2 CPU shares against memcached's 1024 in Part 4, as the start of their containers says."""
THROTTLED_JOBS: Mapping[str, frozenset[str]] = {"czanoli": frozenset(("radix",))}
"""By group, jobs whose CPU time had a limit in Part 4 that the logs do not tell: radix 60 % of a core (group 048's report,
question 4.2)."""
DROPPED_JOBS = frozenset(("x264",))
"""Not in the list of jobs any more after the start of the course of 2023, the only one that had it."""


@dataclass
class Course:
    """What the tables over all groups say. Empty where a folder has none."""

    years: dict[str, Year] = field(default_factory=lambda: dict(YEARS))
    year_of: dict[str, str] = field(default_factory=dict)
    refused_runs: dict[str, dict[RunKey, str]] = field(default_factory=dict)
    refused_loads: dict[str, dict[tuple[str, str, str], str]] = field(default_factory=dict)
    suspect_times: dict[str, set[tuple[str, int]]] = field(default_factory=dict)
    unread: bool = False
    """Whether a table that may tell a group's year cannot be read."""


def read_course(folder: Path, problems: Problems) -> Course:
    """Read the course's tables over all groups, as far as they are there."""
    course = Course()
    for name, read in (
        ("repos.csv", _read_repos),
        ("years.csv", _read_years),
        ("runs_summary.csv", _read_summary),
        ("threads_by_group.csv", _read_suspects),
    ):
        if (folder / name).is_file() and (table := read_table(folder / name, name, problems)) is not None:
            read(table, course)
            problems.extend(table.problems())
    return course


def _read_repos(table: Table, course: Course) -> None:
    if table.require(("owner",), ("year",)):
        for row in table:
            course.year_of[row.name("owner")] = _year_text(row)


def _read_years(table: Table, course: Course) -> None:
    if not table.require(("year",), ("part3_nodes",), *((column,) for column in _ROLE_COLUMNS.values())):
        return
    for row in table:
        year = _year_text(row)
        nodes: dict[str, str] = {}
        for part in row.text("part3_nodes").split(";"):
            words = part.split()
            if len(words) == 2:
                nodes[words[0]] = words[1]
            elif words:
                row.refuse(
                    "part3_nodes",
                    f"'{part.strip()}' is not a node and its machine type",
                    "write 'NODE TYPE; NODE TYPE'",
                )
        try:
            qps = parse_rate(row.text("part3_load_qps")) if row.text("part3_load_qps") else LOAD_QPS
        except QuantityError as error:
            row.refuse("part3_load_qps", error.message, error.help)
            continue
        roles = {role: row.name(column) for role, column in _ROLE_COLUMNS.items()}
        course.years[year] = Year(nodes, roles, qps, JOBS.get(year, frozenset()))


def _read_summary(table: Table, course: Course) -> None:
    if not table.require(("owner",), ("part",), ("experiment",), ("run",), ("valid",)):
        return
    for row in table:
        if row.text("year"):
            course.year_of.setdefault(row.name("owner"), _year_text(row))
        if row.text("part") == "3" and row.text("valid") == "0":
            runs = course.refused_runs.setdefault(row.name("owner"), {})
            runs[row.text("experiment"), row.text("run")] = row.text("note") or "marked as not valid"
        elif row.text("part") == "4" and row.text("valid") == "0":
            loads = course.refused_loads.setdefault(row.name("owner"), {})
            loads[load_run_key(row)] = row.text("note") or "marked as not valid"


def _read_suspects(table: Table, course: Course) -> None:
    if not table.require(("owner",), ("job",), ("threads",), ("suspect",)):
        return
    for row in table:
        if row.text("year"):
            course.year_of.setdefault(row.name("owner"), _year_text(row))
        threads = row.count("threads", MAX_THREADS)
        if row.text("suspect") == "1" and threads is not None:
            course.suspect_times.setdefault(row.name("owner"), set()).add((row.name("job"), threads))


def _year_text(row: Row) -> str:
    text = row.text("year")
    if not re.fullmatch(r"\d{4}", text):
        row.refuse("year", f"'{text}' is not a year", "write it as 2024")
    return text


def start_year(table: Table) -> str:
    """The year in which the first run of a table started, by ``start_utc``; empty if there is none."""
    years = sorted(t[:4] for row in table if re.match(r"\d{4}-", t := row.text("start_utc")))
    return years[len(years) // 2] if years else ""


def why_unknown(year: str, known: Iterable[str]) -> str:
    """What helps where the machines of a group cannot be told from its year."""
    if year:
        return f"the machines of {year} are not known (known: {', '.join(sorted(known))}); {_MACHINES_HELP}"
    return (
        f"no repos.csv and no start_utc tells the year of this group; name the year (--year 2024), or {_MACHINES_HELP}"
    )


_MACHINES_HELP = "add a column machine_type, or machines.csv with the columns node, machine_type, role"
