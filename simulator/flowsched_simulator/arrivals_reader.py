"""From the form of arrivals to the process that draws them, and what jobs cannot have beside it."""

from __future__ import annotations

from collections.abc import Sequence

from flowsched_models.document import Document, Problems
from flowsched_simulator.arrivals import Arrivals, Bursts, DailyCycle, RateTable
from flowsched_simulator.job_form import JobEntry
from flowsched_simulator.scenario_form import ArrivalsForm, BurstyForm, DiurnalForm


def read_process(
    problems: Problems, document: Document, form: ArrivalsForm, entries: Sequence[JobEntry]
) -> Arrivals | None:
    """How jobs arrive; None after mistakes, which are added to ``problems``."""
    before = len(problems.found)
    process = form.process
    drawn = process is not None and process.jobs is not None
    for entry in entries:
        job = entry.form
        if process is not None and job.submit_s:
            message = "has no meaning where arrivals are drawn at random"
            help = "leave it out" + ("" if drawn else "; jobs arrive in the order listed")
            problems.add(entry.problem("submit_s", message, help))
        if job.mix is not None and not drawn:
            message = "is for random arrivals that draw jobs by weight"
            problems.add(
                entry.problem("mix", message, "give the number of jobs to draw: arrivals: {poisson: {jobs: ...}}")
            )
        if drawn and job.copies > 1:
            message = "has no meaning where jobs are drawn by weight"
            problems.add(entry.problem("copies", message, f"leave it out, or write mix: {job.copies}"))
        if drawn and job.after:
            problems.add(entry.problem("after", "has no meaning where jobs are drawn by weight", "leave it out"))
    kind = next((name for name in ("poisson", "diurnal", "bursty") if getattr(form, name) is not None), None)
    pattern: DailyCycle | RateTable | Bursts | None = None
    if isinstance(process, DiurnalForm):
        pattern = _daily(problems, document, process)
    elif isinstance(process, BurstyForm):
        pattern = Bursts(process.burst_s, process.calm_s, process.share)
    if len(problems.found) > before:
        return None
    if process is None or kind is None:
        return Arrivals()
    mix = {entry.form.name: entry.form.mix for entry in entries if entry.form.mix is not None}
    return Arrivals(kind, process.rate_per_minute, pattern, process.jobs, mix)


def _daily(problems: Problems, document: Document, form: DiurnalForm) -> DailyCycle | RateTable | None:
    path = ("arrivals", "diurnal")
    if (form.amplitude is None) == (form.levels is None):
        message = "must have either amplitude, for a sinusoid, or levels, for rates in equal parts of the period"
        problems.add(document.problem(path, message, "write amplitude: 0.8, or levels: [1, 2, 5, 2]"))
        return None
    if form.levels is not None:
        if form.peak_s is not None:
            problems.add(document.problem((*path, "peak_s"), "is for a sinusoid", "leave it out, or order the levels"))
        if not any(form.levels):
            problems.add(document.problem((*path, "levels"), "must not be 0 throughout", "nothing would ever arrive"))
            return None
        return RateTable(tuple(form.levels), form.period_s)
    peak_s = form.period_s / 2 if form.peak_s is None else form.peak_s
    return DailyCycle(form.amplitude or 0.0, form.period_s, peak_s)
