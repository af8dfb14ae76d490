"""``flowsched calibrate``: profiles from measurements."""

from __future__ import annotations

import importlib.util
import sys
import time
from pathlib import Path

import click

from flowsched_models.calibration.calibration import Calibration, FitRequest
from flowsched_models.calibration.calibration import calibrate as fit
from flowsched_models.calibration.gpu_fit import fit_gpus
from flowsched_models.calibration.gpu_profiles_text import gpu_profiles_text, gpu_summary
from flowsched_models.calibration.latency_score import errors as latency_errors
from flowsched_models.calibration.profiles_text import profiles_text
from flowsched_models.command_line import StrictCommand
from flowsched_models.document import InputError
from flowsched_models.extras import install_extra
from flowsched_models.measurements.gpu_throughputs import CITED, read_throughputs, throughputs_file
from flowsched_models.measurements.load import load_measurements
from flowsched_models.measurements.machines import machine_files
from flowsched_models.measurements.measurements import Measurements
from flowsched_models.output import check_file, make_folder, write_whole
from flowsched_models.profiles import load_catalogue
from flowsched_models.quantity import parse_words
from flowsched_models.text_table import counted, printable
from flowsched_models.validation.score import Quantity, errors

LATENCY_PARTS = (
    ("sweep", "sweeps"),
    ("run", "runs"),
    ("interval", "runs under a changing load"),
    ("behind", "such runs beside jobs of the lowest weight"),
)


@click.command(
    cls=StrictCommand,
    short_help="Fit profiles of jobs, machines and services to measurements.",
    epilog="Example: flowsched calibrate data --out my-profiles.yaml --report fit.html",
)
@click.argument("data", type=click.Path(path_type=Path), metavar="DATA")
@click.option(
    "--out", required=True, type=click.Path(path_type=Path, dir_okay=False), metavar="FILE", help="Write the profiles."
)
@click.option("--report", type=click.Path(path_type=Path, dir_okay=False), metavar="FILE", help="Write an HTML report.")
@click.option(
    "--base",
    multiple=True,
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Profiles that give what times do not tell (virtual CPUs, memory); they add to the bundled ones.",
)
@click.option("--years", metavar="LIST", help="Groups of these years only, as 2023,2024.")
@click.option("--year", metavar="YEAR", help="The year of groups that do not tell theirs.")
@click.option(
    "--sweeps-of",
    metavar="LIST",
    help="Sweeps of these years too: what their machines do with one job or one service alone, not their runs.",
)
@click.option("--reference", metavar="TYPE", help="Machine type that speeds are relative to.  [default: most swept]")
@click.option("--client", metavar="NAME", help="Load client of services during runs.  [default: as validate]")
@click.option("--title", metavar="TEXT", help="What the profiles say of their source.")
@click.option(
    "--no-leave-out", is_flag=True, help="Skip leave-one-group-out cross-validation (faster; errors are optimistic)."
)
@click.option(
    "--all-types",
    is_flag=True,
    help="Also write machine types that were not measured: as fast as their family, or as the middle of all families.",
)
@click.option("--quiet", "-q", is_flag=True, help="No progress.")
def calibrate(
    data: Path,
    out: Path,
    report: Path | None,
    base: tuple[Path, ...],
    years: str | None,
    year: str | None,
    sweeps_of: str | None,
    reference: str | None,
    client: str | None,
    title: str | None,
    no_leave_out: bool,
    all_types: bool,
    quiet: bool,
) -> int:
    """Fit profiles of jobs, machines and services to the measurements in DATA, a folder of tables.

    A folder with Gavel's simulation_throughputs.json gives profiles of training jobs on GPUs; of the options, it takes
    --out, --title and --quiet.
    """
    check_extra()
    for file in (out, report):
        if file is not None:
            check_file(file)
            make_folder(file.parent)
    throughputs = throughputs_file(data)
    if throughputs is not None:
        others = (report, base, years, year, sweeps_of, reference, client, no_leave_out, all_types)
        return calibrate_gpus(throughputs, out, title, any(others))
    measurements = read(data, years, year, sweeps_of)
    catalogue = load_catalogue(extra=[*machine_files(data), *base])
    began = time.monotonic()

    def tell(text: str) -> None:
        if not quiet:
            print(f"{time.monotonic() - began:6.0f} s  {text}", file=sys.stderr, flush=True)

    result = fit(measurements, catalogue, FitRequest(reference, client, not no_leave_out, all_types), tell)
    text = profiles_text(result, title or f"flowsched calibrate {data.name}")
    for line in summary(result, out, report):
        print(printable(line))
    _keep(out, text)
    if report is not None:
        from flowsched_models.calibration.report import parts_of, report_html  # matplotlib takes a second to import

        tell("drawing the report")
        write_whole(report, report_html(parts_of(result), title or data.name))
    return 0


def _keep(out: Path, text: str) -> None:
    """Write the profiles. Where that fails after the fit they go to standard output, so that the work is not lost."""
    try:
        write_whole(out, text)
    except InputError:
        click.echo(text, nl=False)
        raise


def calibrate_gpus(throughputs: Path, out: Path, title: str | None, others: bool) -> int:
    """Profiles of training jobs from measured throughputs."""
    if others:
        message = "is a table of throughputs on GPUs, which only --out, --title and --quiet are for"
        raise InputError.one(throughputs, message, "leave out the other options")
    measured = read_throughputs(throughputs)
    fitted = fit_gpus(measured)
    head, *lines = gpu_summary(fitted, measured)
    for line in (f"{head}: {out}", *lines):
        print(printable(line))
    _keep(out, gpu_profiles_text(fitted, measured, title or CITED))
    return 0


def check_extra() -> None:
    """Refuse to begin without what the fit needs."""
    missing = [name for name in ("scipy", "matplotlib") if importlib.util.find_spec(name) is None]
    if missing:
        message = f"{' and '.join(missing)} must be installed to calibrate"
        raise InputError.one("flowsched calibrate", message, install_extra("calibrate"))


def read(data: Path, years: str | None, year: str | None, sweeps_of: str | None) -> Measurements:
    """The measurements of some years, with the thread sweeps of some more."""
    kept = load_measurements(data, year=year, years=parse_words(years))
    if not sweeps_of:
        return kept
    more = load_measurements(data, year=year, years=parse_words(sweeps_of))
    return kept.with_sweeps_of(more)


def summary(result: Calibration, out: Path, report: Path | None) -> list[str]:
    """What a user must know of a fit, on a screen."""
    observed = result.observed
    lines = [
        f"{counted(len(observed.jobs), 'job')} on {counted(len(observed.machine_types), 'type')} of machines, measured by"
        f" {counted(len(observed.groups), 'group')}: {out}"
    ]
    for name, scores in (("fitted to all", result.in_sample), ("group left out", result.left_out)):
        for quantity, what in (
            (Quantity.DURATION, "run times"),
            (Quantity.MAKESPAN, "makespans"),
            (Quantity.P95, "p95 in runs"),
        ):
            found = errors(s for s in scores if s.quantity is quantity)
            if found is not None:
                lines.append(_error_line(f"{what}, {name}", found.median, found.p90, found.count))
    for service, latency in result.latency.items():
        for part, what in LATENCY_PARTS:
            own = latency_errors(s for s in (*latency.scores, *latency.interval_scores) if s.part == part)
            if own.count:
                lines.append(_error_line(f"p95 of {service} in {what}, group left out", own.median, own.p90, own.count))
                text = f"p95 of {service} in {what}, group left out but for one short measurement"
                lines.append(_error_line(text, own.calibrated_median, own.calibrated_p90, own.count))
        for noise in latency.noise:
            used = f"{counted(noise.windows, 'interval')} of {counted(noise.groups, 'group')}"
            left_out = f"{noise.unsettled:,} near a change on its cores left out"
            lines.append(f"  noise of {service} in windows of {noise.noise.window_s:g} s: {used}, {left_out}")
    for controlled in result.controlled:
        for part, own_scores in (
            ("fitted to all", controlled.scores),
            ("group left out", controlled.left_out),
            ("other years", controlled.elsewhere),
        ):
            found = errors(own_scores)
            if found is not None:
                text = f"run times on {controlled.machine.name}, {part}"
                lines.append(_error_line(text, found.median, found.p90, found.count))
        other = controlled.variants.get(not controlled.machine.smt)
        if other is not None:
            text = f"the same with siblings that do{' not' if controlled.machine.smt else ''} slow each other down"
            lines.append(_error_line(text, other.median, other.p90, other.count))
    for finding in result.findings:
        lines.append(f"found: {finding}")
    lines += [f"warning: {text}" for text in result.warnings]
    lines += [f"assumed: {text}" for text in result.defaults]
    if report is not None:
        lines.append(f"Report: {report}")
    return lines


def _error_line(what: str, median: float, p90: float, count: int) -> str:
    return f"  {what}: {median:.1f} % in the median, {p90:.1f} % at the 90th percentile ({count})"
