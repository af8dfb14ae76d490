"""Plain traces: `flow` beside rules on jobs with given run times and declared cores, and the bars that it has to keep to.

Drawn jobs have log-normal run times (median 60 s, standard deviation of the logarithm 1, cut to 5 to 400 s), are as likely
to ask for each of the cores of their case, and come in a Poisson process. NASA's log, of one machine of 128 processors, is
replayed on ten such machines, so that places matter and every job fits: 1,000 consecutive jobs for each seed. Alibaba 2017:
instances are jobs, with their memory, on machines of 64 cores; tasks of more than 200 instances are left out. Philly: GPUs
count as the cores of machines of 8, and jobs that ask for more are left out. Times of submission are multiplied by one
number, so that the load is exact: offered core-seconds (or memory, where that is more) over the capacity from time 0 to the
last submission.

    python -m benchmarks.plain_traces --traces FOLDER --jobs 2 --keep
    python -m benchmarks.plain_traces --seeds choose --out before.json
    python -m benchmarks.plain_traces --seeds choose --policy flow --baselines before.json --set length_weight=0
    python -m benchmarks.plain_traces --case 1to16-1.1 --seeds 101

Seeds 101 to 103 are for choosing between variants of the engine, 1 to 5 for what is reported. Cases whose trace is not in
the folder are left out.
"""

from __future__ import annotations

import hashlib
import json
import math
import multiprocessing
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
import numpy as np

from benchmarks import plain_spread
from benchmarks.batch_log import VARIANT, bounded_slowdowns, waits_s
from benchmarks.machine import describe_machine, measured_on
from benchmarks.plain_bars import RULES, Bar, bars_of
from benchmarks.plain_cases import CASES, RELAXED, Case
from benchmarks.plain_jobs import PlainJob, load_of
from flowsched_models.document import InputError
from flowsched_models.text_table import spelt, text_table
from flowsched_simulator import EngineOptions, Options, simulate
from flowsched_simulator.policies import check_policies, engine_of

RESULTS = Path(__file__).parent / "results"
POLICIES = ("flow", *RULES, "fcfs")
SEEDS = {"report": (1, 2, 3, 4, 5), "choose": (101, 102, 103)}
NO_CERTIFICATE = "exact_limit=0"
"""The certificate decides nothing, and would only take time."""
SPREAD = "spread"
"""Name of the part about one-core jobs."""
FIGURES = ("mean_waiting_s", "mean_bounded_slowdown", "makespan_s", "longest_waiting_s", "widest_waiting_s")


@dataclass(frozen=True)
class Cell:
    """One run."""

    case: str
    seed: int
    policy: str
    settings: tuple[str, ...]
    """Of `flow`, as ``KEY=VALUE``."""
    traces: Path | None


def engine_with(settings: Sequence[str]) -> EngineOptions:
    """The engine with settings of a user. Raises :class:`InputError` for those that `flow` does not read."""
    return engine_of(("flow",), (NO_CERTIFICATE, *settings))


def measure(cell: Cell) -> dict[str, Any]:
    """A row: figures of one policy on the jobs of one seed."""
    case = CASES[cell.case]
    jobs = case.jobs_of(cell.seed, cell.traces)
    scenario = case.scenario(jobs)
    engine = engine_with(cell.settings if cell.policy == "flow" else ())
    began = time.process_time()
    run = simulate(scenario, cell.policy, options=Options(seed=cell.seed), engine=engine, variant=VARIANT)
    cpu_s = time.process_time() - began
    waits = waits_s(run)
    return {
        "case": cell.case,
        "seed": cell.seed,
        "policy": cell.policy,
        "digest": digest(jobs),
        "jobs": len(jobs),
        "load": load_of(jobs, case.cluster),
        "mean_waiting_s": float(waits.mean()),
        "mean_bounded_slowdown": float(bounded_slowdowns(run, [job.run_s for job in jobs]).mean()),
        "makespan_s": run.makespan_s,
        "longest_waiting_s": float(waits.max()),
        "widest_waiting_s": float(waits[widest_tenth([job.cores for job in jobs])].mean()),
        "timings": {"cpu_s": cpu_s},
    }


def widest_tenth(cores: Sequence[float]) -> np.ndarray[Any, np.dtype[np.int64]]:
    """Indices of the jobs with the most cores, a tenth of all, rounded up; of equals those that come first."""
    order = np.argsort(-np.asarray(cores, dtype=np.float64), kind="stable")
    return order[: math.ceil(len(cores) / 10)]


def digest(jobs: Sequence[PlainJob]) -> str:
    """What tells workloads apart in kept results."""
    return hashlib.sha256(repr(jobs).encode()).hexdigest()[:16]


def measured(cells: Sequence[Cell], processes: int) -> Iterator[dict[str, Any]]:
    """Rows of all cells, as they are done."""
    if processes == 1:
        yield from map(measure, cells)
        return
    with ProcessPoolExecutor(processes, mp_context=multiprocessing.get_context("spawn")) as pool:
        for done in as_completed([pool.submit(measure, cell) for cell in cells]):
            yield done.result()


def means(rows: Iterable[Mapping[str, Any]]) -> dict[str, dict[str, dict[str, float]]]:
    """By case and policy, the means over the seeds of all figures, and of CPU seconds."""
    found: dict[str, dict[str, list[Mapping[str, Any]]]] = {}
    for row in rows:
        found.setdefault(row["case"], {}).setdefault(row["policy"], []).append({**row, **row["timings"]})
    return {
        case: {
            policy: {name: float(np.mean([row[name] for row in mine])) for name in (*FIGURES, "cpu_s")}
            for policy, mine in policies.items()
        }
        for case, policies in found.items()
    }


def bars(outcome: Mapping[str, Any]) -> list[Bar]:
    """All bars that can be judged: those of cases with `flow` and every rule."""
    judged: list[Bar] = []
    for name, figures in means(outcome["rows"]).items():
        if {"flow", *RULES} <= {*figures}:
            case = CASES[name]
            judged += bars_of(name, figures, sigma=case.sigma, relaxed=case.source in RELAXED)
    return judged + plain_spread.bars(outcome["spread"])


def table(outcome: Mapping[str, Any]) -> str:
    """Figures of every case and policy, one-core jobs, and the bars."""
    lines = [["case", "policy", "waiting s", "slowdown", "makespan s", "longest s", "widest tenth s", "CPU s"]]
    for case, policies in means(outcome["rows"]).items():
        lines += [
            [
                case,
                policy,
                f"{mine['mean_waiting_s']:.2f}",
                f"{mine['mean_bounded_slowdown']:.3f}",
                f"{mine['makespan_s']:.0f}",
                f"{mine['longest_waiting_s']:.0f}",
                f"{mine['widest_waiting_s']:.2f}",
                f"{mine['cpu_s']:.1f}",
            ]
            for policy, mine in policies.items()
        ]
    settings = f"; flow with {', '.join(outcome['settings'])}" if outcome["settings"] else ""
    parts = [f"Means over seeds {outcome['seeds']} ({outcome['purpose']}){settings}."]
    parts += ["\n".join(text_table(lines, left=(0, 1), indent=""))] if outcome["rows"] else []
    parts += [plain_spread.table(outcome["spread"])] if outcome["spread"] else []
    judged = bars(outcome)
    if judged:
        count = sum(bar.met for bar in judged)
        parts.append("\n".join([*(bar.line for bar in judged), f"{count} of {len(judged)} bars met"]))
    return "\n\n".join(parts)


def read_seeds(text: str) -> tuple[str, tuple[int, ...]]:
    """What seeds are for, and the seeds: by a name of ``SEEDS``, or numbers. Raises :class:`click.BadParameter`."""
    if text in SEEDS:
        return ("for reporting" if text == "report" else "for choosing"), SEEDS[text]
    parts = text.split(",")
    if not all(part.strip().isdecimal() for part in parts):
        message = f"expected {' or '.join(SEEDS)}, or numbers with commas between them, got '{text}'"
        raise click.BadParameter(message, param_hint="--seeds")
    return "of your own", tuple(dict.fromkeys(int(part) for part in parts))


def reused(path: Path | None, cells: Sequence[Cell]) -> list[dict[str, Any]]:
    """Rows of rules in an earlier result that the cells ask for, or that stand beside them: of the same jobs.

    Raises :class:`click.ClickException` where the earlier result is of other jobs.
    """
    if path is None:
        return []
    wanted = {(cell.case, cell.seed): cell.traces for cell in cells}
    rows = [
        row
        for row in json.loads(path.read_text(encoding="utf-8"))["rows"]
        if row["policy"] != "flow" and (row["case"], row["seed"]) in wanted
    ]
    for case, seed in sorted({(row["case"], row["seed"]) for row in rows}):
        now = digest(CASES[case].jobs_of(seed, wanted[case, seed]))
        if any(row["digest"] != now for row in rows if (row["case"], row["seed"]) == (case, seed)):
            raise click.ClickException(
                f"{path} has other jobs in {case}, seed {seed}; measure again without --baselines"
            )
    return rows


def save(outcome: Mapping[str, Any], file: Path) -> None:
    """Write a result as JSON."""
    file.write_text(json.dumps(outcome, indent=1) + "\n", encoding="utf-8")


def in_order(rows: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Rows by case, policy and seed, as they are listed."""
    cases, policies = list(CASES), list(POLICIES)
    known = {name: k for k, name in enumerate(policies)}
    return sorted(
        rows, key=lambda r: (cases.index(r["case"]), known.get(r["policy"], len(known)), r["policy"], r["seed"])
    )


def chosen_cases(names: Sequence[str], traces: Path | None) -> tuple[list[Case], list[Case]]:
    """Cases by their names, all without one: those that can run, and those whose trace is not in the folder."""
    cases = [CASES[name] for name in dict.fromkeys(names or CASES) if name != SPREAD]
    there = [c for c in cases if c.file is None or (traces is not None and (traces / c.file).is_file())]
    return there, [c for c in cases if c not in there]


@click.command()
@click.option("--case", "names", multiple=True, type=click.Choice([*CASES, SPREAD]), help="Only these. Default: all.")
@click.option("--policy", "policies", multiple=True, default=POLICIES, show_default=True)
@click.option(
    "--seeds", default="report", show_default=True, help="report, choose, or numbers with commas between them."
)
@click.option("--set", "settings", multiple=True, metavar="KEY=VALUE", help="A setting of flow.")
@click.option(
    "--traces",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    envvar="FLOWSCHED_TRACES",
    show_envvar=True,
    help="The folder with swf_nasa_ipsc, alibaba2017_batch and philly.",
)
@click.option(
    "--baselines",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="An earlier result, whose rows of rules are not measured again.",
)
@click.option("--jobs", "processes", default=1, show_default=True, type=click.IntRange(1), help="Processes.")
@click.option("--out", type=click.Path(dir_okay=False, path_type=Path), help="Write the result to this file as JSON.")
@click.option("--keep", is_flag=True, help="Keep the result, which has to be whole, under benchmarks/results.")
def main(
    names: tuple[str, ...],
    policies: tuple[str, ...],
    seeds: str,
    settings: tuple[str, ...],
    traces: Path | None,
    baselines: Path | None,
    processes: int,
    out: Path | None,
    keep: bool,
) -> None:
    """Measure the cases and print a table, and which bars are met."""
    purpose, numbers = read_seeds(seeds)
    try:
        policies = check_policies(policies)
        engine = engine_with(settings)
    except InputError as error:
        raise click.UsageError("\n".join(str(p) for p in error.problems)) from error
    spread = not names or SPREAD in names
    cases, missing = chosen_cases(names, traces)
    if missing:
        click.echo(f"left out, as their traces are not in --traces: {', '.join(c.name for c in missing)}", err=True)
    if keep and (names or missing or settings or purpose != "for reporting" or {*policies} != {*POLICIES}):
        raise click.UsageError("--keep is for all cases and policies, the seeds for reporting and no --set")
    # Long ones first, so that no process is left with one.
    cells = [
        Cell(case.name, seed, policy, settings, traces)
        for case in sorted(cases, key=lambda c: -c.jobs * c.cluster.machines)
        for policy in policies
        for seed in numbers
    ]

    def outcome_of(rows: list[dict[str, Any]]) -> dict[str, Any]:
        return {
            "seeds": spelt(numbers),
            "purpose": purpose,
            "settings": list(settings),
            "rows": in_order(rows),
            "spread": [],
            "machine": describe_machine(),
        }

    try:
        rows = reused(baselines, cells)
        have = {(row["case"], row["seed"], row["policy"]) for row in rows}
        for row in measured([c for c in cells if (c.case, c.seed, c.policy) not in have], processes):
            rows.append(row)
            told = f"{row['case']}, seed {row['seed']}, {row['policy']}: waiting {row['mean_waiting_s']:.2f} s"
            click.echo(f"{told}, {row['timings']['cpu_s']:.1f} s of CPU", err=True)
            if out:
                save(outcome_of(rows), out)  # row by row: a run of hours may be interrupted
    except InputError as error:
        raise click.ClickException("\n".join(str(p) for p in error.problems)) from error
    outcome = outcome_of(rows)
    outcome["spread"] = plain_spread.rows(policies, engine) if spread else []
    text = table(outcome)
    files = [out] if out else []
    if keep:
        RESULTS.mkdir(exist_ok=True)
        files.append(RESULTS / "plain_traces.json")
        files[-1].with_suffix(".txt").write_text(text + "\n", encoding="utf-8")
    for file in files:
        save(outcome, file)
    click.echo(f"{text}\n\n{measured_on(outcome['machine'])}")


if __name__ == "__main__":
    main()
