"""Where a drawing puts boxes and lines: fixed layers from left to right, few crossings, no chance. Lengths are in inches.

Layers are classes (or tasks), domains, machines (or groups of machines, or arrivals), the sink. The tiers of a group stand
on top of each other, the widest above; unscheduled nodes stand below everything else.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from flowsched.inspector.condensed_graph import Bundle, CondensedGraph
from flowsched.inspector.graph import LAYERS

TEXT = 8.0
"""Points of a box's label."""
NOTE = 6.5
"""Points of notes and of the labels of lines."""
LINE = 1.35
"""Height of a line of text over its size."""
LABELLED = 40
"""More lines than these have no labels."""
_POINT = 1.0 / 72.0
_PAD = 0.08
_ROW_GAP = 0.13
_TIER_GAP = 0.17
_LINE_GAP = 0.035
"""Between lines that meet at a box."""
_GROWN, _SINK = 0.9, 2.0
"""Boxes grow to hold their lines up to this height,"""
_FULL = 8.0
"""unless their column would become higher than this by it."""
THINNEST, WIDEST, WITHOUT = 0.8, 6.0, 0.6
"""Points of the line with least flow, of that with most, of one without."""
_FRAME = 0.07
_MARGIN = 0.15
_COLUMN = {kind: layer - (layer > LAYERS["tier"]) for kind, layer in LAYERS.items()}
"""Tiers stand where groups do."""
_SWEEPS = 12

Measure = Callable[[str, float], float]
"""Width in inches of a text at a size in points."""
Point = tuple[float, float]


@dataclass(frozen=True)
class Rect:
    """Its left and lower edge, its size."""

    x: float
    y: float
    width: float
    height: float

    @property
    def right(self) -> float:
        """X of the right edge."""
        return self.x + self.width

    @property
    def top(self) -> float:
        """Y of the upper edge."""
        return self.y + self.height

    def overlap(self, other: Rect) -> float:
        """Area that both cover."""
        wide = min(self.right, other.right) - max(self.x, other.x)
        high = min(self.top, other.top) - max(self.y, other.y)
        return wide * high if wide > 0 and high > 0 else 0.0


@dataclass(frozen=True)
class Frame:
    """A group of machines around its tiers."""

    rect: Rect
    title: str


@dataclass(frozen=True)
class Curve:
    """A line: a cubic curve that ends in an arrow's head, and the middle of its label."""

    bundle: Bundle
    points: tuple[Point, Point, Point, Point]
    width: float
    """In points."""
    upright: bool
    """Whether it goes down from tier to tier rather than to the right."""
    label: str
    at: Point


@dataclass(frozen=True)
class Layout:
    """All of a drawing. ``boxes[i]`` is the place of ``condensed.cells[i]``."""

    condensed: CondensedGraph
    width: float
    height: float
    boxes: tuple[Rect, ...]
    frames: tuple[Frame, ...]
    curves: tuple[Curve, ...]


def lay_out(condensed: CondensedGraph, measure: Measure, titles: Mapping[str, str]) -> Layout:
    """Places for everything. ``titles``: what stands above the tiers of a group, by lane."""
    return _LayOut(condensed, measure, titles).run()


@dataclass(frozen=True)
class _Item:
    """What moves as one in its column: a box, or a group with its tiers."""

    cells: tuple[int, ...]
    frame: str
    width: float
    height: float


class _LayOut:
    def __init__(self, condensed: CondensedGraph, measure: Measure, titles: Mapping[str, str]) -> None:
        self.condensed = condensed
        self.cells = condensed.cells
        self.measure = measure
        self.titles = titles
        self.widths = _line_widths(condensed.bundles)
        self.lines: dict[int, list[float]] = {}
        """Room that the lines on the busier side of a box take."""
        for side in ([b.tail for b in condensed.bundles], [b.head for b in condensed.bundles]):
            taken: dict[int, float] = {}
            for end, width in zip(side, self.widths, strict=True):
                taken[end] = taken.get(end, 0.0) + width * _POINT + _LINE_GAP
            for end, room in taken.items():
                self.lines.setdefault(end, []).append(room)
        self.rows = Counter(_COLUMN.get(cell.kind, 2) for cell in self.cells)
        self.boxes: dict[int, Rect] = {}
        self.frames: list[Frame] = []

    def run(self) -> Layout:
        columns, apart = self._columns()
        columns = self._ordered(columns, apart)
        self._place(columns, apart)
        boxes = tuple(self.boxes[i] for i in range(len(self.cells)))
        curves = self._curves(boxes)
        everything = [*boxes, *(f.rect for f in self.frames)]
        low = min((r.y for r in everything), default=0.0) - _MARGIN
        width = max((r.right for r in everything), default=0.0) + _MARGIN
        height = max((r.top for r in everything), default=0.0) + _MARGIN - low

        def moved(rect: Rect) -> Rect:
            return Rect(rect.x, rect.y - low, rect.width, rect.height)

        frames = tuple(Frame(moved(f.rect), f.title) for f in self.frames)
        lifted = tuple(
            Curve(
                c.bundle,
                tuple((x, y - low) for x, y in c.points),  # type: ignore[arg-type]
                c.width,
                c.upright,
                c.label,
                (c.at[0], c.at[1] - low),
            )
            for c in curves
        )
        return Layout(self.condensed, width, height, tuple(map(moved, boxes)), frames, lifted)

    # Columns of items

    def _columns(self) -> tuple[list[list[_Item]], list[_Item]]:
        columns: list[list[_Item]] = [[], [], [], []]
        apart: list[_Item] = []
        stacks: dict[str, list[int]] = {}
        for i, cell in enumerate(self.cells):
            if cell.lane:
                stacks.setdefault(cell.lane, []).append(i)
            elif cell.kind == "unscheduled":
                apart.append(self._box(i))
            else:
                columns[_COLUMN.get(cell.kind, 2)].append(self._box(i))
        columns[2] += [self._stack(lane, cells) for lane, cells in stacks.items()]
        for c, items in enumerate(columns):
            beside = apart if c == 2 else []
            widest = max((item.width for item in (*items, *beside)), default=0.0)
            columns[c] = [replace(item, width=widest) for item in sorted(items, key=self._gathers)]
            if beside:
                apart = [replace(item, width=widest) for item in sorted(beside, key=self._gathers)]
        return columns, apart

    def _box(self, i: int) -> _Item:
        cell = self.cells[i]
        width = max(self.measure(cell.label, TEXT), self.measure(cell.note, NOTE), 0.3) + 2 * _PAD
        return _Item((i,), "", width, self._cell_height(i))

    def _stack(self, lane: str, cells: Sequence[int]) -> _Item:
        inside = max(self.measure(self.cells[i].label, TEXT) for i in cells) + 2 * _PAD
        title = self.titles.get(lane, lane)
        width = max(inside, self.measure(title, NOTE + 0.5)) + 2 * _FRAME
        height = sum(self._cell_height(i) for i in cells) + _TIER_GAP * (len(cells) - 1)
        return _Item(tuple(cells), title, width, height + _FRAME + NOTE * LINE * _POINT + _FRAME)

    def _cell_height(self, i: int) -> float:
        cell = self.cells[i]
        text = (TEXT + (NOTE if cell.note else 0.0)) * LINE * _POINT + 0.07
        most = _SINK if cell.kind == "sink" else min(_GROWN, _FULL / self.rows[_COLUMN.get(cell.kind, 2)] - _ROW_GAP)
        return max(text, min(most, max(self.lines.get(i, [0.0])) + 0.06))

    # Order

    def _ordered(self, columns: list[list[_Item]], apart: list[_Item]) -> list[list[_Item]]:
        """Barycentres, sweep by sweep; the order with the fewest crossings that was seen."""
        bottom = float(max(map(len, columns), default=0) + 2)
        best, fewest = columns, self._crossings(columns, apart, bottom)
        current = columns
        for sweep in range(_SWEEPS):
            forward = sweep % 2 == 0
            current = [*current]
            for c in range(4) if forward else reversed(range(4)):
                at = self._positions(current, apart, bottom)
                own = {i for item in current[c] for i in item.cells}
                reach: dict[int, list[tuple[float, float]]] = {i: [] for i in own}
                for b in self.condensed.bundles:
                    weight = 1.0 + float(b.flow) * 10.0
                    for one, other in ((b.tail, b.head), (b.head, b.tail)):
                        if one in own and other not in own and self.cells[other].kind != "sink":
                            reach[one].append((at[other], weight))
                middle = {
                    item: _mean([x for i in item.cells for x in reach[i]], at[item.cells[0]]) for item in current[c]
                }
                current[c] = sorted(current[c], key=lambda item: (self._gathers(item), middle[item]))
            crossings = self._crossings(current, apart, bottom)
            if crossings < fewest:
                best, fewest = current, crossings
        return best

    def _gathers(self, item: _Item) -> bool:
        """Whether it is what was gathered into one box: that stands below the others."""
        return any(self.cells[i].gathered for i in item.cells)

    def _positions(self, columns: Sequence[Sequence[_Item]], apart: Sequence[_Item], bottom: float) -> dict[int, float]:
        tallest = max(map(len, columns), default=0)
        at = {}
        for items in columns:
            offset = (tallest - len(items)) / 2
            for row, item in enumerate(items):
                for k, i in enumerate(item.cells):
                    at[i] = row + offset + k / (len(item.cells) + 1)
        for row, item in enumerate(apart):
            at[item.cells[0]] = bottom + row
        return at

    def _crossings(self, columns: Sequence[Sequence[_Item]], apart: Sequence[_Item], bottom: float) -> float:
        at = self._positions(columns, apart, bottom)
        if not self.condensed.bundles:
            return 0.0
        ends = np.array([(at[b.tail], at[b.head]) for b in self.condensed.bundles])
        weight = np.array([1.0 if b.flow else 0.2 for b in self.condensed.bundles])
        column = np.array([_COLUMN.get(self.cells[b.tail].kind, 2) for b in self.condensed.bundles])
        before = (ends[:, None, 0] - ends[None, :, 0]) * (ends[:, None, 1] - ends[None, :, 1])
        same = column[:, None] == column[None, :]
        return float((weight[:, None] * weight[None, :] * ((before < 0) & same)).sum()) / 2

    # Places

    def _place(self, columns: list[list[_Item]], apart: list[_Item]) -> None:
        heights = [sum(i.height for i in items) + _ROW_GAP * max(0, len(items) - 1) for items in columns]
        tallest = max(heights, default=0.0)
        few = len(self.condensed.bundles) <= LABELLED
        x = _MARGIN
        for c, items in enumerate(columns):
            beside = apart if c == 2 else []
            if not items and not beside:
                continue
            width = max(item.width for item in (*items, *beside))
            # Columns that are much shorter than the tallest spread out.
            loose = (0.6 * tallest - heights[c]) / (len(items) - 1) if len(items) > 1 else 0.0
            gap = _ROW_GAP + min(max(0.0, loose), 0.35)
            used = heights[c] + (gap - _ROW_GAP) * max(0, len(items) - 1)
            y = (tallest + used) / 2
            for item in items:
                self._put(item, x, y)
                y -= item.height + gap
            if beside:
                low = min(0.0, *(r.y for r in self.boxes.values())) if self.boxes else 0.0
                low -= 0.35
                for item in beside:
                    self._put(item, x, low)
                    low -= item.height + _ROW_GAP
            x += width + (1.9 if few else 1.5) + min(1.2, 0.03 * tallest * len(items) ** 0.5)

    def _put(self, item: _Item, x: float, top: float) -> None:
        if not item.frame:
            (i,) = item.cells
            height = item.height
            self.boxes[i] = Rect(x, top - height, item.width, height)
            return
        self.frames.append(Frame(Rect(x, top - item.height, item.width, item.height), item.frame))
        y = top - _FRAME - NOTE * LINE * _POINT
        for i in item.cells:
            height = self._cell_height(i)
            self.boxes[i] = Rect(x + _FRAME, y - height, item.width - 2 * _FRAME, height)
            y -= height + _TIER_GAP

    # Lines

    def _curves(self, boxes: Sequence[Rect]) -> list[Curve]:
        bundles = self.condensed.bundles
        leaves = self._ports(boxes, [b.tail for b in bundles], [b.head for b in bundles])
        enters = self._ports(boxes, [b.head for b in bundles], [b.tail for b in bundles])
        drawn = []
        for k, b in enumerate(bundles):
            tail, head = boxes[b.tail], boxes[b.head]
            if self.cells[b.tail].lane and self.cells[b.tail].lane == self.cells[b.head].lane:
                x = tail.x + tail.width / 2
                ends = (x, tail.y), (x, head.top)
                bend = (ends[0][1] - ends[1][1]) / 3
                drawn.append(((ends[0], (x, ends[0][1] - bend), (x, ends[1][1] + bend), ends[1]), True))
                continue
            start, end = (tail.right, leaves[k]), (head.x, enters[k])
            pull = max(0.3, 0.45 * (end[0] - start[0]))
            drawn.append(((start, (start[0] + pull, start[1]), (end[0] - pull, end[1]), end), False))
        labels = [self._label(b) for b in bundles] if len(bundles) <= LABELLED else [""] * len(bundles)
        places = _label_places(drawn, labels, [*boxes, *(f.rect for f in self.frames)], self.measure)
        return [
            Curve(b, points, width, upright, label, at)
            for b, width, (points, upright), label, at in zip(bundles, self.widths, drawn, labels, places, strict=True)
        ]

    def _ports(self, boxes: Sequence[Rect], ends: Sequence[int], others: Sequence[int]) -> list[float]:
        """Where each line meets the side of the box at its end: in the order of the boxes at its other end."""
        meeting: dict[int, list[int]] = {}
        for k, end in enumerate(ends):
            if not (self.cells[end].lane and self.cells[end].lane == self.cells[others[k]].lane):
                meeting.setdefault(end, []).append(k)
        at = [0.0] * len(ends)
        for end, lines in meeting.items():
            box = boxes[end]
            lines.sort(key=lambda k: -(boxes[others[k]].y + boxes[others[k]].height / 2))
            rooms = [self.widths[k] * _POINT + _LINE_GAP for k in lines]
            scale = min(1.0, (box.height - 0.06) / sum(rooms))
            y = box.y + box.height / 2 + scale * sum(rooms) / 2
            for k, room in zip(lines, rooms, strict=True):
                at[k] = y - scale * room / 2
                y -= scale * room
        return at

    def _label(self, bundle: Bundle) -> str:
        cost = bundle.cost if bundle.cost is not None and abs(bundle.cost) >= 5e-4 else None
        inner = self.cells[bundle.head].kind in ("tier", "group") and self.cells[bundle.tail].kind == "tier"
        if not bundle.flow:
            return "" if cost is None else _amount(cost)
        several = len(bundle.arcs) > 1 or bundle.capacity >= 1_000_000
        flow = f"{bundle.flow:,}" if several else f"{bundle.flow:,}/{bundle.capacity:,}"
        return flow if cost is None or inner else f"{flow} · {_amount(cost)}"


def _line_widths(bundles: Sequence[Bundle]) -> list[float]:
    """In points: linear in the flow; where no flow is large no line is wide."""
    most = max((b.flow for b in bundles), default=0) or 1
    widest = min(WIDEST, 1.4 + 0.8 * most**0.5)
    return [THINNEST + (widest - THINNEST) * b.flow / most if b.flow else WITHOUT for b in bundles]


def _amount(cost: float) -> str:
    return f"{cost:.3f}".replace("-", "−") if abs(cost) < 1000 else f"{cost:,.0f}".replace("-", "−")


def _mean(reached: Sequence[tuple[float, float]], fallback: float) -> float:
    total = sum(weight for _, weight in reached)
    return sum(at * weight for at, weight in reached) / total if total else fallback


def point_on(points: tuple[Point, Point, Point, Point], t: float) -> Point:
    """The point of a cubic curve at t from 0 to 1."""
    s = 1.0 - t
    weights = (s * s * s, 3 * s * s * t, 3 * s * t * t, t * t * t)
    return (
        sum(w * p[0] for w, p in zip(weights, points, strict=True)),
        sum(w * p[1] for w, p in zip(weights, points, strict=True)),
    )


def _label_places(
    drawn: Sequence[tuple[tuple[Point, Point, Point, Point], bool]],
    labels: Sequence[str],
    obstacles: Sequence[Rect],
    measure: Measure,
) -> list[Point]:
    """The middle of each label: on its line, where it covers no box, no other label and as few other lines as can be; beside
    lines that go down from tier to tier, which are short.
    """
    steps = [i / 20 for i in range(1, 20)]
    curves = [points for points, _ in drawn]
    samples = [np.array([point_on(c, t / 40) for t in range(1, 40)]) for c in curves]
    taken: list[Rect] = []
    places: list[Point] = [point_on(c, 0.5) for c in curves]
    order = sorted((k for k in range(len(curves)) if labels[k]), key=lambda k: (_length(curves[k]), k))
    for k in order:
        width, height = measure(labels[k], NOTE) + 0.05, NOTE * LINE * _POINT
        if drawn[k][1]:
            places[k] = (places[k][0] + width / 2 + 0.1, places[k][1])
            continue
        best = None
        others = [s for j, s in enumerate(samples) if j != k]
        crowd = np.concatenate(others) if others else np.zeros((0, 2))
        for t in steps:
            x, y = point_on(curves[k], t)
            rect = Rect(x - width / 2, y - height / 2, width, height)
            covered = 400.0 * sum(rect.overlap(o) for o in (*taken, *obstacles))
            inside = (np.abs(crowd[:, 0] - x) < width / 2) & (np.abs(crowd[:, 1] - y) < height / 2)
            penalty = covered + 0.15 * float(inside.sum()) + 0.4 * abs(t - 0.5)
            if best is None or penalty < best[0] - 1e-12:
                best = penalty, rect, (x, y)
        assert best is not None
        taken.append(best[1])
        places[k] = best[2]
    return places


def _length(curve: tuple[Point, Point, Point, Point]) -> float:
    return float(np.hypot(curve[3][0] - curve[0][0], curve[3][1] - curve[0][1]))
