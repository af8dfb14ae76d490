"""Fits the profiles to the course's measurements and writes what comes out into docs/calibration*.md and docs/images.

python docs/calibration_page.py DATA

DATA is the folder with one folder per group, repos.csv and years.csv. Takes some minutes. Everything between the markers of
the page is written here; the rest is text.
"""

from __future__ import annotations

import csv
import re
import statistics
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from flowsched_models.calibration import fit_parts, score_parts
from flowsched_models.calibration.calibration import Calibration, FitRequest, calibrate
from flowsched_models.calibration.fit_parts import short
from flowsched_models.calibration.parameter import Block, Scale
from flowsched_models.calibration.report_part import Picture, ReportTable, percent
from flowsched_models.commands.calibrate import summary
from flowsched_models.measurements.load import load_measurements
from flowsched_models.measurements.measurements import Measurements
from flowsched_models.profiles import load_catalogue
from flowsched_models.text_table import counted
from flowsched_models.validation import Question, validate
from flowsched_models.validation.part import Part
from flowsched_models.validation.score import Quantity, Score, errors
from flowsched_simulator import load_scenario, load_schedule, replay

HOUSE = Path(__file__).resolve().parent.parent
PAGES = tuple(HOUSE / "docs" / name for name in ("calibration.md", "calibration-accuracy.md"))
IMAGES = HOUSE / "docs" / "images"
YEARS = ("2023", "2024")
"""Whose runs are fitted: the same jobs with the same inputs."""
TRANSFER = "2025"
"""Other machines, of which the fit sees the thread sweeps only."""
PLAN, SCENARIO, PLANNERS = "group-048", "parsec-memcached-2024", "048"
"""A published schedule, where it is replayed, and the group that ran it."""
MARKER = re.compile(r"(<!-- begin: ([\w-]+) -->\n).*?(<!-- end -->)", re.DOTALL)
_PRINTED = 3
"""Findings, warnings and assumptions that are shown of each kind."""

MEANING = {
    "work_s": "seconds on one thread of the reference type, alone; the middle is taken from the cheapest measurement",
    "serial_fraction": "share of the work that one thread does",
    "smt_gain": "what a core does more when both its hardware threads are busy",
    "pressure": "what a busy CPU of the job does to its neighbours",
    "sensitivity": "what the job feels of one unit of pressure",
    "oversubscription": "what every doubling of the threads above four costs; never below 0",
    "family speed": "speed of a family of machine types (the first word of the name), relative to the reference",
    "bandwidth": "how strongly pressure is felt on a family",
    "family speed of a job": "a job's own factor on the speed of a family",
    "type speed": "factor of one type within its family",
    "type speed of a job": "a job's own factor on one type",
}
"""Blocks of parameters in words."""


@dataclass(frozen=True)
class Findings:
    """All that the page tells of."""

    data: Measurements
    result: Calibration
    transfer: Measurements
    planners: str | None
    """The folder of the group that published the plan, if the data has it."""


def main(folder: Path) -> None:
    """Fit, draw, write."""
    found = find(folder, lambda text: print(text, file=sys.stderr, flush=True))
    write(found)


def find(folder: Path, tell: Callable[[str], None]) -> Findings:
    """Fit once to everything."""
    transfer = load_measurements(folder, years=(TRANSFER,))
    data = load_measurements(folder, years=YEARS).with_sweeps_of(transfer)
    result = calibrate(data, load_catalogue(), FitRequest(unmeasured=True), tell)
    return Findings(data, result, transfer, planners(folder))


def planners(folder: Path) -> str | None:
    """Whose folder holds the runs of the published plan."""
    table = folder / "repos.csv"
    if not table.is_file():
        return None
    with table.open(encoding="utf-8", newline="") as file:
        return next((row["owner"] for row in csv.DictReader(file) if row["group"].split(" ")[0] == PLANNERS), None)


def write(found: Findings, pages: Sequence[Path] = PAGES, images: Path = IMAGES) -> None:
    """Fill the pages and draw their images."""
    sections = page_sections(found, images)
    for page, text in zip(pages, fill([p.read_text(encoding="utf-8") for p in pages], sections), strict=True):
        page.write_text(text, encoding="utf-8")
        print(f"wrote {page.name}")


def fill(texts: Sequence[str], sections: Mapping[str, str]) -> list[str]:
    """The pages with other content between their markers. Raises ValueError where the two do not belong together."""
    there = [name for text in texts for _, name, _ in MARKER.findall(text)]
    if sorted(there) != sorted(sections):
        raise ValueError(f"the pages have markers for {sorted(there)}, but there is {sorted(sections)}")
    return [MARKER.sub(lambda m: f"{m[1]}\n{sections[m[2]].strip()}\n\n{m[3]}", text) for text in texts]


def page_sections(found: Findings, images: Path) -> dict[str, str]:
    """Markdown by the name of its marker."""
    result = found.result
    drawn = {p.name: p for part in _drawn_parts(result) for p in part}
    sections = {
        "printed": _printed(result),
        "assumptions": markdown(assumptions_table(result.fitted.parameters.blocks)),
        "errors": markdown(ReportTable("", score_parts.SUMMARY_HEAD, score_parts.summary_rows(result), (0, 1, 6, 7))),
        "against": _image(drawn["against-duration"], images),
        "by-job": _image(drawn["residuals-duration-job"], images) + _errors(result, "job", "job"),
        "by-machine": _errors(result, "machine type", "type of machine"),
        "by-sharing": _image(drawn["residuals-duration-sharing"], images)
        + _errors(result, "sharing", "jobs")
        + _errors(result, "service", "services"),
        "by-group": _errors(result, "group", "group") + _errors(result, "group", "group", Quantity.MAKESPAN),
        "coverage": _image(drawn["coverage"], images)
        + "".join(markdown(t) for t in score_parts.coverage(result).tables),
        "without": markdown(_without_table(found)),
        "transfer": _transfer(found),
        "plan": _plan(found),
        "jobs": _image(drawn["parameters-jobs"], images) + markdown(_jobs_table(result)),
        "machines": markdown(_machines_table(result)),
        "sweeps": _image(drawn["sweeps"], images),
        "slowdowns": _image(drawn["slowdowns"], images),
        "latency": "".join(_image(p, images) for name, p in drawn.items() if name.startswith("latency-"))
        + "".join(markdown(t) for t in fit_parts.latency(result).tables),
        "warnings": _bullets(result.warnings) + "\nAssumed:\n\n" + _bullets(result.defaults),
    }
    names = numbered({**dict.fromkeys(result.observed.groups, ""), **found.data.years})
    return {name: renamed(text, names) for name, text in sections.items()}


def numbered(years: Mapping[str, str]) -> dict[str, str]:
    """``2024-3`` for the third group of a year by name: the page is about measurements, not about who made them."""
    names: dict[str, str] = {}
    for year in sorted(set(years.values())):
        own = sorted(group for group, other in years.items() if other == year)
        names.update({group: f"{year or 'group'}-{k}" for k, group in enumerate(own, start=1)})
    return names


def renamed(text: str, names: Mapping[str, str]) -> str:
    """The text with other names of groups, in cells of their own and at the head of paths."""
    return re.sub(r"(?<=\| )[^|\n]+(?= \|)|[\w.-]+(?=/[\w.-]+\.csv)", lambda m: names.get(m[0], m[0]), text)


def _drawn_parts(result: Calibration) -> list[tuple[Picture, ...]]:
    makers = (
        score_parts.against,
        score_parts.residuals,
        score_parts.coverage,
        fit_parts.parameters,
        fit_parts.sweeps,
        fit_parts.slowdowns,
        fit_parts.latency,
    )
    return [make(result).pictures for make in makers]


def markdown(table: ReportTable) -> str:
    """A table in Markdown; its caption is left to the text around it."""
    rows = [table.head, *table.rows]
    lines = ["| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in rows]
    lines.insert(1, "|" + "|".join("---" if c in table.words else "---:" for c in range(len(table.head))) + "|")
    return "\n".join(lines) + "\n\n"


def _image(picture: Picture, images: Path) -> str:
    """Write a drawing and refer to it."""
    target = images / f"calibration-{picture.name}.svg"
    target.write_bytes(picture.svg)
    print(f"{target.name}: {len(picture.svg) / 1e3:.0f} kB")
    return f"![{picture.alt}](images/{target.name})\n\n{picture.caption}\n\n"


def _printed(result: Calibration) -> str:
    lines = summary(result, Path("profiles.yaml"), Path("fit.html"))
    shown, counts = [], dict[str, int]()
    for line in lines:
        kind = line.split(":", 1)[0] if re.match(r"[a-z ]+: ", line) else ""
        counts[kind] = counts.get(kind, 0) + 1
        if not kind or counts[kind] <= _PRINTED:
            shown.append(line)
        elif counts[kind] == _PRINTED + 1:
            shown.append("…")
    return "```text\n" + "\n".join(shown) + "\n```\n"


def assumptions_table(blocks: Sequence[Block]) -> ReportTable:
    """What is assumed of each kind of parameter before anything is measured."""
    rows = []
    for block in blocks:
        if not block.keys:
            continue
        if np.ptp(block.mean) > 0.0:
            middle, ends = "by job", f"times or divided by {np.exp(1.96 * block.deviation[0]):.2g}"
        else:
            value, low, high = block.plain(block.mean[0] + block.deviation[0] * np.array([0.0, -1.96, 1.96]))
            least = max(0.0, float(low)) if block.scale is Scale.PLAIN else float(low)
            middle, ends = short(float(value)), f"{short(least)} to {short(float(high))}"
        rows.append((f"`{block.name}`", MEANING[block.name], block.scale.value, str(len(block.keys)), middle, ends))
    head = ("parameter", "what it is", "scale", "how many", "middle", "95 % of what is assumed")
    return ReportTable("", head, tuple(rows), (0, 1, 2))


def _errors(result: Calibration, table: str, name: str, quantity: Quantity = Quantity.DURATION) -> str:
    pairs = score_parts.pairs_of(result, quantity, table)
    if not pairs:
        return ""
    head = (f"{name} ({score_parts.WHAT[quantity]})", *score_parts.ERROR_HEAD)
    return markdown(ReportTable("", head, score_parts.pair_rows(pairs)))


def _compared(scores: Sequence[Score]) -> list[str]:
    cells = []
    for quantity in (Quantity.DURATION, Quantity.MAKESPAN, Quantity.P95):
        found = errors(s for s in scores if s.quantity is quantity)
        cells += [percent(found.median), percent(found.p90)] if found else ["–", "–"]
    return cells


_COMPARED_HEAD = (
    "run times: median, %",
    "90th percentile",
    "makespans: median, %",
    "90th percentile",
    "p95: median, %",
    "90th percentile",
)


def _without_table(found: Findings) -> ReportTable:
    """The fit of all groups, and the same profiles read by models that lack a part."""
    scored = validate(found.data, found.result.catalogue, Question(without=tuple((part,) for part in Part)))
    rows = [("the whole model", *_compared(scored.scores))]
    rows += [(f"without {' and '.join(parts)}", *_compared(scores)) for parts, scores in scored.compared]
    return ReportTable("", ("model", *_COMPARED_HEAD), tuple(rows))


def _transfer(found: Findings) -> str:
    parts = (Part.MACHINE_FACTORS,)
    scored = validate(found.transfer, found.result.catalogue, Question(without=(parts,)))
    rows = [("with machine factors", *_compared(scored.scores))]
    rows += [("without machine factors", *_compared(scores)) for _, scores in scored.compared]
    groups = {s.group for s in scored.scores}
    runs = {(s.group, s.schedule, s.run) for s in scored.scores}
    executions = sum(s.quantity is Quantity.DURATION for s in scored.scores)
    counts = [counted(len(groups), "group"), counted(len(runs), "run"), counted(executions, "execution")]
    text = f"{', '.join(counts)} of {TRANSFER}:\n\n"
    by_type = [
        (row.name, f"{row.errors.count}", *(percent(v) for e in (row.errors, *row.compared) for v in (e.median, e.p90)))
        for row in scored.rows(Quantity.DURATION)
        if row.table == "machine type"
    ]
    head = (
        "type of machine",
        "executions",
        "with: median, %",
        "90th percentile",
        "without: median, %",
        "90th percentile",
    )
    return (
        text
        + markdown(ReportTable("", ("model", *_COMPARED_HEAD), tuple(rows)))
        + markdown(ReportTable("", head, tuple(by_type)))
    )


def _plan(found: Findings) -> str:
    """The published plan replayed with the fitted profiles, beside what its group measured."""
    runs = [r for r in found.data.runs if r.group == found.planners]
    if not runs:
        return "The measurements do not hold the runs of this group.\n"
    scenario = replace(load_scenario(SCENARIO), catalogue=found.result.catalogue)
    played = replay(scenario, load_schedule(PLAN))
    rows = []
    for job in sorted(played.jobs, key=lambda j: j.job):
        measured = statistics.fmean(e.duration_s for r in runs for e in r.executions if e.job == job.job)
        rows.append((job.job, *_side_by_side(measured, (job.end_s or 0.0) - (job.start_s or 0.0))))
    total = statistics.fmean(r.makespan_s for r in runs)
    rows.append(("total", *_side_by_side(total, played.makespan_s or 0.0)))
    head = ("job", f"measured s, mean of {counted(len(runs), 'run')}", "replayed s", "difference, %")
    return markdown(ReportTable("", head, tuple(rows)))


def _side_by_side(measured: float, predicted: float) -> tuple[str, str, str]:
    return f"{measured:.2f}", f"{predicted:.2f}", f"{100.0 * (predicted / measured - 1.0):+.1f}"


def _jobs_table(result: Calibration) -> ReportTable:
    """A line per job, its parameters with their intervals."""
    parameters = result.fitted.parameters
    blocks = [b for b in parameters.blocks if b.keys == parameters.jobs]
    cells = {(block, key): k for k, (block, key, _) in enumerate(parameters.names())}
    rows = [
        (
            job,
            result.fitted.phase_order[j].value,
            *(_with_interval(result, cells[b.name, job]) for b in blocks),
            short(result.catalogue.jobs[job].error),
        )
        for j, job in enumerate(parameters.jobs)
    ]
    return ReportTable("", ("job", "`phase_order`", *(f"`{b.name}`" for b in blocks), "`error`"), tuple(rows), (0, 1))


def _with_interval(result: Calibration, at: int) -> str:
    value, low, high = result.fitted.interval(at)
    doubt = "" if result.fitted.identified(at) else ", mostly assumed"
    return f"{short(value)} [{short(low)}, {short(high)}]{doubt}"


def _machines_table(result: Calibration) -> ReportTable:
    """A line per number of a machine family or type; those of jobs are in the report."""
    names = result.fitted.parameters.names()
    rows = [
        (key, f"`{block}`", _with_interval(result, at))
        for at, (block, key, _) in enumerate(names)
        if block in ("family speed", "bandwidth", "type speed")
    ]
    return ReportTable("", ("of", "parameter", "value, 95 % interval"), tuple(rows), (0, 1))


def _bullets(texts: Sequence[str]) -> str:
    return "".join(f"- {text}\n" for text in texts) or "- nothing\n"


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    main(Path(sys.argv[1]))
