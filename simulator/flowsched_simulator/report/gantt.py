"""The Gantt chart of a run: which job may use which core, and when."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from xml.etree import ElementTree as Tree

from flowsched_simulator.report import svg
from flowsched_simulator.report.axis import FOOT, draw_makespan, draw_makespan_label, draw_time_axis, finish_s
from flowsched_simulator.report.block import Block, join_columns, join_rows, outline
from flowsched_simulator.report.colour import Colour
from flowsched_simulator.report.label import LINE, PADDING, Label, best_label
from flowsched_simulator.report.lane import LanePiece, Occupant, most_lanes, split_lanes
from flowsched_simulator.report.number import NOTHING, compact, core_list, counted, fixed
from flowsched_simulator.report.scale import LEFT, RIGHT, WIDTH, TimeScale

HEAD = 20.0
"""Height of the strip on top, which holds the label of the makespan."""
GROUP_HEAD = 22.0
"""Height of the line above each machine's cores, which holds its name."""
CLEAR_ROW = 14.0
"""Height of a row, in user units, from which on lines between the cores may cross the blocks."""
FULL_HEIGHT = 720.0
"""What all rows together may take before they shrink, in user units."""


@dataclass(frozen=True)
class Bar:
    """A job or a service, as drawn."""

    name: str
    detail: str
    """Second half of the label."""
    hover: str
    machine: str
    occupant: Occupant
    colour: Colour | None
    """None for a service, which is hatched."""
    finished: bool = True


@dataclass(frozen=True)
class Rack:
    """A machine, as drawn."""

    name: str
    kind: str
    cores: int


def racks(cluster: Mapping[str, Any], runs: Sequence[Mapping[str, Any]]) -> list[Rack]:
    """Return the machines in the cluster's order, then any that only a run knows."""
    order = {m["name"]: (m.get("type") or "", int(m.get("vcpus") or 0)) for m in cluster.get("machines", ())}
    placed = [job for run in runs for job in run.get("jobs", ())] + list(cluster.get("services", ()))
    for item in placed:
        if item.get("machine") is not None:
            kind, cores = order.get(item["machine"], ("", 0))
            order[item["machine"]] = (kind, max([cores, *(core + 1 for core in item.get("cores") or ())]))
    return [Rack(name, kind, cores) for name, (kind, cores) in order.items()]


def run_bars(
    cluster: Mapping[str, Any], run: Mapping[str, Any], end_s: float, colours: Mapping[str, Colour]
) -> list[Bar]:
    """Return what there is to draw of a run that ends at ``end_s`` seconds: services, then jobs by start."""
    jobs = [stretch for job in run.get("jobs", ()) for stretch in _stretches(job)]
    jobs.sort(key=lambda job: (job["start_s"], job["job"], job["machine"]))
    services = [_service_bar(service, end_s) for service in cluster.get("services", ())]
    return services + [_job_bar(job, end_s, colours[job["job"]]) for job in jobs]


def _stretches(job: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The places where a job ran, one after the other: those that it was preempted on or moved from come first."""
    ran = [stay for stay in job.get("earlier", ()) if stay["start_s"] < stay["left_s"]]
    found: list[Mapping[str, Any]] = [{**job, **stay, "end_s": stay["left_s"]} for stay in ran]
    if is_placed(job):
        moved = bool(ran) and ran[-1]["ended"] == "moved"
        found.append({**job, "start_s": max(job["start_s"], ran[-1]["left_s"]) if moved else job["start_s"]})
    return found


def is_placed(job: Mapping[str, Any]) -> bool:
    """Tell whether a job ever started."""
    return job.get("start_s") is not None and job.get("machine") is not None


def row_heights(machines: Sequence[Rack], runs: Sequence[Sequence[Bar]]) -> dict[str, float]:
    """Return the height of a core's row on each machine, in user units, that suits all runs."""
    lanes = {rack.name: max((most_lanes(_pieces(rack, bars)[1]) for bars in runs), default=1) for rack in machines}
    wanted = {name: min(max(LINE * count, 24.0), 52.0) for name, count in lanes.items()}
    total = sum(rack.cores * wanted[rack.name] for rack in machines)
    shrink = min(1.0, FULL_HEIGHT / total) if total else 1.0
    return {name: float(round(max(height * shrink, 7.0))) for name, height in wanted.items()}


def draw_gantt(
    ident: str,
    run: Mapping[str, Any],
    machines: Sequence[Rack],
    bars: Sequence[Bar],
    scale: TimeScale,
    rows: Mapping[str, float],
) -> Tree.Element:
    """Draw a run. ``rows`` has the height of a core's row by machine; ``ident`` is unique in the page."""
    height = HEAD + sum(GROUP_HEAD + rack.cores * rows[rack.name] for rack in machines) + FOOT
    root = svg.picture(ident, "gantt", WIDTH, height, *_words(run, machines, bars))
    service_fill = svg.hatch(root, f"{ident}-service", "hatch-service", 5, 45)
    open_fill = svg.hatch(root, f"{ident}-open", "hatch-open", 8, -45)
    tops = _tops(machines, rows)
    for rack in machines:
        _draw_rack(root, rack, tops[rack.name], rows[rack.name])
    draw_time_axis(root, scale, HEAD, height - FOOT)
    for rack in machines:
        top, row = tops[rack.name], rows[rack.name]
        used, pieces = _pieces(rack, bars)
        blocks: list[list[Block]] = [[] for _ in used]
        for piece in pieces:
            blocks[piece.occupant].append(_block(piece, scale, top, row))
        if row < CLEAR_ROW:
            _draw_separators(root, rack, top, row)
        for bar, own in zip(used, blocks, strict=True):
            _draw_bar(root, bar, own, service_fill if bar.colour is None else open_fill, row)
        if row >= CLEAR_ROW:
            _draw_separators(root, rack, top, row)
        for bar, own in zip(used, blocks, strict=True):
            _draw_label(root, bar, own, row)
    draw_makespan(root, finish_s(run), scale, 2, height - FOOT)
    draw_makespan_label(root, run, scale, HEAD - 6)
    return root


def _service_bar(service: Mapping[str, Any], end_s: float) -> Bar:
    cores = tuple(sorted(set(service.get("cores") or ())))
    threads = counted(int(service.get("threads") or 1), "thread")
    slo = f", SLO {compact(service['slo_us'] / 1000)} ms" if service.get("slo_us") else ""
    where = f"{service['machine']}, core {core_list(cores)}"
    hover = f"{service['name']} (service)\n{where}\n{threads}{slo}"
    return Bar(service["name"], "service", hover, service["machine"], Occupant(cores, 0.0, end_s), None)


def _job_bar(job: Mapping[str, Any], end_s: float, colour: Colour) -> Bar:
    finished = job.get("end_s") is not None
    cores = tuple(sorted(set(job.get("cores") or ())))
    occupant = Occupant(cores, float(job["start_s"]), float(job["end_s"] if finished else end_s))
    words = [f"{job['threads']} thr"] if job.get("threads") is not None else []
    if job.get("request") is not None:
        words.append(f"req {compact(job['request'])}")
    if not finished:
        words.append("unfinished")
    if job.get("ended") is not None:
        words.append(job["ended"])
    return Bar(job["job"], ", ".join(words), _job_hover(job, cores), job["machine"], occupant, colour, finished)


def _job_hover(job: Mapping[str, Any], cores: tuple[int, ...]) -> str:
    profile = job.get("profile")
    end = f"{fixed(job['end_s'], 1)} s" if job.get("end_s") is not None else "not finished"
    end += f", then {job['ended']}" if job.get("ended") is not None else ""
    lines = [
        job["job"] + (f" ({profile})" if profile and profile != job["job"] else ""),
        f"{job['machine']}, core {core_list(cores)}",
        f"{compact(job.get('threads'))} threads, request {compact(job.get('request'))} cores",
        f"submitted {fixed(job.get('submit_s'), 1)} s, runs {fixed(job['start_s'], 1)} s to {end}",
    ]
    if job.get("alone_s") is not None:
        slow = f", slowdown {fixed(job['slowdown'], 2)}" if job.get("slowdown") is not None else ""
        lines.append(f"alone it would take {fixed(job['alone_s'], 1)} s{slow}")
    return "\n".join(lines)


def _words(run: Mapping[str, Any], machines: Sequence[Rack], bars: Sequence[Bar]) -> tuple[str, str]:
    jobs = {bar.name for bar in bars if bar.colour is not None}
    late = sum(not bar.finished for bar in bars if bar.colour is not None)
    makespan = run.get("makespan_s")
    ending = f"makespan {fixed(makespan, 1)} s" if makespan is not None else f"makespan {NOTHING}"
    unfinished = f"; {late} did not finish" if late else ""
    what = f"{counted(len(jobs), 'job')} on {counted(len(machines), 'machine')}; {ending}{unfinished}"
    return f"Gantt chart of {run['policy']}", f"{what}. The same figures are in the table of jobs below."


def _tops(machines: Sequence[Rack], rows: Mapping[str, float]) -> dict[str, float]:
    """Return the y coordinate at which each machine's first row begins."""
    tops = {}
    top = HEAD
    for rack in machines:
        tops[rack.name] = top + GROUP_HEAD
        top += GROUP_HEAD + rack.cores * rows[rack.name]
    return tops


def _pieces(rack: Rack, bars: Sequence[Bar]) -> tuple[list[Bar], list[LanePiece]]:
    used = [bar for bar in bars if bar.machine == rack.name]
    return used, split_lanes([bar.occupant for bar in used])


def _block(piece: LanePiece, scale: TimeScale, top: float, row: float) -> Block:
    above = top + piece.core * row
    return Block(
        left=scale.x(piece.start_s),
        top=round(above + row * piece.lane / piece.lanes, 2),
        right=scale.x(piece.end_s),
        bottom=round(above + row * (piece.lane + 1) / piece.lanes, 2),
    )


def _draw_rack(root: Tree.Element, rack: Rack, top: float, row: float) -> None:
    name = svg.add(root, "text", rack.name, klass="machine", x=LEFT, y=top - 6)
    if rack.kind:
        svg.add(name, "tspan", rack.kind, klass="kind", dx=8)
    svg.add(root, "text", "core", klass="tick", x=LEFT - 8, y=top - 6, text_anchor="end")
    width = WIDTH - LEFT - RIGHT
    svg.add(root, "rect", klass="ground", x=LEFT, y=top, width=width, height=rack.cores * row)
    for core in range(0, rack.cores, 1 if row >= 12 else 2):
        middle = top + (core + 0.5) * row
        svg.add(root, "text", str(core), klass="tick", x=LEFT - 8, y=middle + 4, text_anchor="end")


def _draw_separators(root: Tree.Element, rack: Rack, top: float, row: float) -> None:
    for core in range(1, rack.cores):
        y = top + core * row
        svg.add(root, "line", klass="separator", x1=LEFT, x2=WIDTH - RIGHT, y1=y, y2=y)


def _draw_bar(root: Tree.Element, bar: Bar, own: Sequence[Block], hatching: str, row: float) -> None:
    blocks = join_rows(join_columns(own))
    group = svg.add(root, "g", klass="mark service" if bar.colour is None else "mark job")
    svg.add(group, "title", bar.hover)
    for block in blocks:
        rect = _draw_block(group, "piece", block)
        rect.set("fill", hatching if bar.colour is None else bar.colour.fill)
        if bar.colour is not None and not bar.finished:
            _draw_block(group, "overlay", block).set("fill", hatching)
    svg.add(group, "path", klass="edge" if row >= CLEAR_ROW else "edge fine", d=outline(own))


def _draw_block(group: Tree.Element, klass: str, block: Block) -> Tree.Element:
    return svg.add(group, "rect", klass=klass, x=block.left, y=block.top, width=block.width, height=block.height)


def _draw_label(root: Tree.Element, bar: Bar, own: Sequence[Block], row: float) -> None:
    candidates = {*join_rows(join_columns(own)), *join_columns(join_rows(own))}
    label = best_label(bar.name, bar.detail, sorted(candidates))
    if label is None:
        return
    klass = "label" if bar.colour is not None else "label service-label"
    text = svg.add(root, "text", klass=klass, x=label.block.left + PADDING)
    if bar.colour is not None:
        halo = "" if bar.finished else f";stroke:{bar.colour.fill}"
        text.set("style", f"fill:{bar.colour.ink}{halo}")
    if not bar.finished or bar.colour is None:
        text.set("class", f"{klass} haloed")
    for words, baseline in zip(label.lines, _baselines(label, row), strict=True):
        svg.add(text, "tspan", words, x=label.block.left + PADDING, y=baseline)


def _baselines(label: Label, row: float) -> list[float]:
    """Return the lines' baselines: clear of the lines between cores where a row is high enough."""
    block, count = label.block, len(label.lines)
    if CLEAR_ROW <= row < count * LINE and block.height >= count * row:
        return [block.top + (line + 0.5) * row + 4.5 for line in range(count)]
    room = row if row >= count * LINE and block.height >= row else block.height
    first = block.top + (room - count * LINE) / 2 + LINE - 3
    return [first + line * LINE for line in range(count)]
