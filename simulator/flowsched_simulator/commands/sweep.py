"""``flowsched sweep``: runs an experiment, which may be killed and goes on where it was."""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from flowsched_models.command_line import StrictCommand
from flowsched_models.document import InputError
from flowsched_models.output import default_folder, make_folder
from flowsched_models.text_table import counted, spelt
from flowsched_simulator.commands.sweep_progress import SweepProgress, duration

FAILED = 3
"""Exit code when some runs failed, or have jobs that never ended."""


class _Percent(click.ParamType[float]):
    """``2%`` or ``0.5%``."""

    name = "percent"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """As a share."""
        if isinstance(value, float):
            return value
        found = re.fullmatch(r"\s*(\d+(?:\.\d*)?|\.\d+)\s*%\s*", str(value))
        if found is None or not 0.0 < float(found[1]) <= 100.0:
            self.fail(f"'{value}' is not a percentage above 0; write 2%", param, ctx)
        return float(found[1]) / 100.0


class _Share(click.ParamType[tuple[int, int]]):
    """``3/10``: the fourth tenth."""

    name = "share"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[int, int]:
        """Index and number of shares."""
        if isinstance(value, tuple):
            return value
        found = re.fullmatch(r"(\d+)/(\d+)", str(value).strip())
        if found is None or not int(found[1]) < int(found[2]):
            self.fail(f"'{value}' is not a share; of ten shares the first is 0/10 and the last 9/10", param, ctx)
        return int(found[1]), int(found[2])


@click.command(
    cls=StrictCommand,
    short_help="Run an experiment: scenarios x policies x settings x seeds.",
    epilog="Example: flowsched sweep docs/examples/first-experiment.yaml --out out/first",
)
@click.argument("experiment", metavar="EXPERIMENT", type=click.Path(path_type=Path))
@click.option(
    "--out", type=click.Path(path_type=Path), help="Folder for runs, results and the report. Default: out/NAME."
)
@click.option("--jobs", type=click.IntRange(1), metavar="N", help="Runs at once. Default: one for each core.")
@click.option(
    "--backend", default="local", show_default=True, help="local: processes of this machine; dask: a cluster."
)
@click.option("--address", metavar="URL", help="Address of the Dask scheduler, such as tcp://10.0.0.1:8786.")
@click.option(
    "--until",
    type=_Percent(),
    metavar="2%",
    help="Add seeds until the 95% interval of every paired difference to the reference is within so much of its mean.",
)
@click.option(
    "--max-seeds",
    type=click.IntRange(1),
    metavar="N",
    help="With --until: no more seeds than these, 5 at least. Default: 100.",
)
@click.option("--share", type=_Share(), metavar="I/N", help="Do only the I-th of N shares of the runs, I from 0.")
@click.option("--dry-run", is_flag=True, help="Say what would run and about how long, and run nothing of it.")
@click.option(
    "--report/--no-report", "with_report", default=True, show_default=True, help="Write report.html and plots."
)
@click.pass_context
def sweep(
    context: click.Context,
    experiment: Path,
    out: Path | None,
    jobs: int | None,
    backend: str,
    address: str | None,
    until: float | None,
    max_seeds: int | None,
    share: tuple[int, int] | None,
    dry_run: bool,
    with_report: bool,
) -> None:
    """Run EXPERIMENT (a file): scenarios x policies x settings x seeds, on all cores.

    Every run is kept in a file of its own when it is done. A sweep that was stopped, or killed, goes on with the same
    command; one that was changed runs what is new. At the end the folder has results/ (tables as Parquet, which depend on
    seeds only), timings/, plots/ and report.html.
    """
    from flowsched_simulator.experiment.experiment_file import load_experiment
    from flowsched_simulator.experiment.sweep import Sweep, check_most_seeds

    if share is not None and until is not None:
        raise InputError.one("--share", "has no meaning with --until", "leave one of them out")
    plan = load_experiment(experiment).plan
    check_most_seeds(plan, until, max_seeds)
    folder = out or default_folder(plan.name, "experiment")
    with SweepProgress() as progress, _warnings_as_notes():
        made = Sweep(plan, folder, jobs=jobs, backend=backend, address=address, share=share, report=progress.show)
        if not dry_run:
            make_folder(folder)
        expected = _tell_estimate(made, folder, until)
        if dry_run:
            return
        if until is not None:
            failures = made.run_until(until, max_seeds, expected)
        else:
            failures = made.run(expected)
    for failure in failures:
        case, label, seed = failure.key
        click.echo(f"failed: {case}, {label}, seed {seed}: {failure.message}", err=True)
    if failures:
        click.echo(f"there are no results: {counted(len(failures), 'run')} failed; the others are kept", err=True)
        context.exit(FAILED)
    if made.lacking():
        text = f"this share is done; {counted(made.lacking(), 'run')} of other shares are missing"
        click.echo(f"{text}. The sweep that does the last one writes the results", err=True)
        return
    _finish(context, folder, with_report)


@contextmanager
def _warnings_as_notes() -> Iterator[None]:
    """Warnings of joblib, such as that this machine has no room for processes, as one sentence without a path."""

    def tell(message: Warning | str, *_: object) -> None:
        click.echo(f"note: {' '.join(str(message).split())}", err=True)

    with warnings.catch_warnings():
        warnings.showwarning = tell  # type: ignore[assignment]  # the place of a warning is what is left out
        yield


def _tell_estimate(made: Any, folder: Path, until: float | None) -> Any:
    """Say what is going to run, and about how long it takes; the estimate."""
    from flowsched_simulator.drawn import selection_seeds
    from flowsched_simulator.experiment.offered_load import load_note

    plan = made.plan if until is None else replace(made.plan, seeds=tuple(made.first_seeds()))
    every, pending = made.mine(plan.seeds), made.pending(plan.seeds)
    more = "" if until is None else f", and more seeds until intervals are within {100 * until:g} %"
    click.echo(f"{plan.overview().words}{more} -> {folder}", err=True)
    for case in plan.cases:
        if note := load_note(case.scenario):
            click.echo(f"note: {case.name}: {note}", err=True)
    _tell_unused(made, folder, until is not None)
    if not pending:
        click.echo(f"all {counted(len(every), 'run')} are done", err=True)
        return None
    if trials := made.trials(pending):
        rules = ", ".join(dict.fromkeys(run.contender.label for run in pending if run.variant_seeds))
        text = (
            f"{counted(len(trials), 'run')} with seeds {spelt(selection_seeds(plan.seeds))} choose variants of {rules}"
        )
        click.echo(f"{text} first", err=True)
    expected = made.estimate(plan.seeds)
    cores = made.cores()
    about = duration(expected.total_s([*trials, *pending]) / min(cores, len(trials) + len(pending)))
    done = (
        f"{len(every) - len(pending)} of them are done; the others take" if len(pending) < len(every) else "they take"
    )
    click.echo(f"{done} about {about} on {counted(cores, 'core')}, by {expected.how}; runs correct it", err=True)
    return expected


def _tell_unused(made: Any, folder: Path, adds_seeds: bool) -> None:
    """Say which finished runs of the folder take no part in the results, and why."""
    further = made.further_seeds()
    if further and not adds_seeds:
        runs = counted(made.finished(further), "finished run")
        text = f"{runs} in {folder} have seeds that the experiment does not name ({spelt(further)})"
        click.echo(f"note: {text}; they stay, and only --until uses them", err=True)
    if foreign := made.foreign([*made.plan.seeds, *further]):
        text = f"{counted(foreign, 'finished run')} in {folder} are of other seeds, configurations or versions"
        click.echo(f"note: {text}; they stay, and are not used", err=True)


def _finish(context: click.Context, folder: Path, with_report: bool) -> None:
    """Statistics on standard output, the report beside the results."""
    from flowsched_simulator.experiment.comparison_text import results_text
    from flowsched_simulator.experiment.results import load_results

    results = load_results(folder)
    click.echo(results_text(results))
    if with_report:
        from flowsched_simulator.experiment.sweep_report import write_report

        click.echo(f"report: {write_report(results)}", err=True)
    runs = results.to_frame()
    _tell_unfinished(context, runs[runs["unfinished"] > 0])


def _tell_unfinished(context: click.Context, runs: Any) -> None:
    rows: Sequence[Any] = list(runs.itertuples())
    for row in rows[:10]:
        click.echo(
            f"never ended: {row.case}, {row.policy}, seed {row.seed}: {counted(row.unfinished, 'job')}", err=True
        )
    if len(rows) > 10:
        click.echo(f"never ended: jobs of {len(rows) - 10} more runs", err=True)
    if rows:
        context.exit(FAILED)
