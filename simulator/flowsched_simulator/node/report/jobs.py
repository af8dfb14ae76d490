"""When each job ran, on how many cores, and when it was paused."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any
from xml.etree import ElementTree as Tree

from flowsched_models.quantity import parse_cores
from flowsched_simulator.report import svg
from flowsched_simulator.report.axis import FOOT, draw_makespan, draw_makespan_label, draw_time_axis, finish_s
from flowsched_simulator.report.colour import Colour
from flowsched_simulator.report.label import text_width
from flowsched_simulator.report.number import compact, counted, fixed
from flowsched_simulator.report.scale import LEFT, WIDTH, TimeScale

HEAD = 20.0
"""Height of the strip on top, which holds the label of the makespan."""
WORDS = 15.0
"""Height of the line above a bar, which says whose it is."""
BAR = 18.0
"""Height of a bar on all cores of the machine."""
GAP = 5.0
_JOIN = 0.01


def draw_jobs(
    ident: str, run: Mapping[str, Any], cores: int, scale: TimeScale, colours: Mapping[str, Colour]
) -> Tree.Element:
    """Draw a row for every job that started. ``cores``: of the machine; ``ident`` is unique in the page."""
    jobs = sorted((j for j in run["jobs"] if j["stretches"]), key=lambda j: (j["start_s"], j["job"]))
    row = WORDS + BAR + GAP
    height = HEAD + row * len(jobs) + FOOT
    root = svg.picture(ident, "node-jobs", WIDTH, height, *_words(run, jobs))
    svg.add(root, "rect", klass="ground", x=LEFT, y=HEAD, width=scale.right - LEFT, height=row * len(jobs))
    draw_time_axis(root, scale, HEAD, height - FOOT)
    for place, job in enumerate(jobs):
        _draw_job(root, job, cores, scale, colours[job["job"]], HEAD + place * row)
    draw_makespan(root, finish_s(run), scale, 2, height - FOOT)
    draw_makespan_label(root, run, scale, HEAD - 6)
    return root


def pieces(stretches: Iterable[Sequence[Any]]) -> list[tuple[float, float, int]]:
    """Start, end and number of cores of the times on the same number of cores without a pause.

    ``stretches`` begin with their start, their end and the cores as text.
    """
    joined: list[tuple[float, float, int]] = []
    for start_s, end_s, cores, *_ in stretches:
        count = len(parse_cores(cores))
        last = joined[-1] if joined else None
        if last is not None and last[2] == count and start_s - last[1] < _JOIN:
            joined[-1] = (last[0], end_s, count)
        else:
            joined.append((start_s, end_s, count))
    return joined


def _draw_job(
    root: Tree.Element, job: Mapping[str, Any], cores: int, scale: TimeScale, colour: Colour, top: float
) -> None:
    found = pieces(job["stretches"])
    left, right = scale.x(found[0][0]), scale.x(found[-1][1])
    roof = top + WORDS
    group = svg.add(root, "g", klass="mark job")
    svg.add(group, "title", _hover(job))
    # One path for all pieces: a job that is paused every second has hundreds.
    svg.add(group, "rect", klass="paused", x=left, y=roof, width=max(right - left, 0.5), height=1.5)
    parts = []
    for start_s, end_s, count in found:
        high = BAR * min(count, cores) / cores
        width = max(scale.x(end_s) - scale.x(start_s), 0.2)
        parts.append(f"M{svg.length(scale.x(start_s))} {svg.length(roof)}h{svg.length(width)}")
        parts.append(f"v{svg.length(high)}h-{svg.length(width)}z")
    svg.add(group, "path", klass="piece", d="".join(parts), fill=colour.fill)
    name, detail = job["job"], _detail(job)
    room = text_width(f"{name}  {detail}")
    late = left + room > scale.right
    x, anchor = (max(right, LEFT + room), "end") if late else (left, "start")
    label = svg.add(root, "text", name, klass="machine", x=x, y=top + WORDS - 4, text_anchor=anchor)
    svg.add(label, "tspan", detail, klass="kind", dx=6)


def _detail(job: Mapping[str, Any]) -> str:
    words = [f"{compact(job['active_s'], 1)} s active"]
    if job["pauses"]:
        words.append(counted(job["pauses"], "pause"))
    if job["end_s"] is None:
        words.append("not finished")
    return ", ".join(words)


def _hover(job: Mapping[str, Any]) -> str:
    end = f"{fixed(job['end_s'], 1)} s" if job["end_s"] is not None else "not finished"
    return "\n".join(
        [
            job["job"] + (f" ({job['profile']})" if job["profile"] != job["job"] else ""),
            counted(job["threads"], "thread"),
            f"submitted {fixed(job['submit_s'], 1)} s, runs {fixed(job['start_s'], 1)} s to {end}",
            f"active {fixed(job['active_s'], 1)} s, {counted(job['pauses'], 'pause')}, "
            f"{counted(job['core_changes'], 'core change')}",
        ]
    )


def _words(run: Mapping[str, Any], jobs: Sequence[Mapping[str, Any]]) -> tuple[str, str]:
    told = "; ".join(
        f"{j['job']} from {fixed(j['start_s'], 1)} s"
        + (f" to {fixed(j['end_s'], 1)} s" if j["end_s"] is not None else ", not finished")
        + f", {_detail(j)}"
        for j in jobs
    )
    return f"Jobs under {run['policy']}", f"{counted(len(jobs), 'job')}: {told}."
