"""Where the GPUs of a machine, its sockets and switches and the links between them stand in a drawing.

Devices are one row, a column for each socket. Links between devices of the row are arcs above it; the other places stand in
rows below it, nearest first. So no line crosses a box that it does not end at, whatever the topology is.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, pairwise

from flowsched_models.gpu_topology import End, GpuTopology

LEAST_WIDTH = 328.0
"""Of a drawing: the room in the panel of a page."""
EDGE = 4.0
"""Between a box and the edge of the drawing."""
DEVICE_HEIGHT = 30.0
PLACE_HEIGHT = 18.0
_DEVICE_WIDTH = 34.0
_NARROWEST = 19.0
"""Of what a device has of the row."""
_FRAME = 5.0
"""From devices to the frame of their socket."""
_LABEL = 15.0
"""For the name of a socket above its devices."""
_SOCKETS_APART = 16.0
_PLACES_APART = 8.0
_ROWS_APART = 34.0
_ARC = 11.0
"""From arc to arc."""
_LETTER = 6.4
"""Width of one, about."""


Span = tuple[float, float]
"""Left edge and width of a box."""


@dataclass(frozen=True)
class LinkBox:
    """A device, a socket or a switch. Coordinates are of the upper left corner, down is more."""

    end: End
    x: float
    y: float
    width: float
    height: float


@dataclass(frozen=True)
class SocketFrame:
    """What is drawn around the devices of a socket."""

    box: LinkBox
    """Its end is the name of the socket."""
    labelled: bool
    """Whether the name is drawn: where no place of the topology stands for the socket alone."""


@dataclass(frozen=True)
class LinkLine:
    """A link."""

    ends: tuple[End, End]
    link_class: int
    start: tuple[float, float]
    stop: tuple[float, float]
    bend: float
    """How far an arc goes beyond its ends, down; below 0 up, 0 for a straight line."""

    @property
    def path(self) -> str:
        """As the ``d`` of an SVG path."""
        (x, y), (to_x, to_y) = self.start, self.stop
        if not self.bend:
            return f"M{x:g} {y:g}L{to_x:g} {to_y:g}"
        # A cubic with both controls at one height reaches three quarters of it.
        height = round(y + self.bend / 0.75, 1)
        return f"M{x:g} {y:g}C{x:g} {height:g} {to_x:g} {height:g} {to_x:g} {to_y:g}"


@dataclass(frozen=True)
class LinkLayout:
    """A drawing of the links of a kind of machine."""

    width: float
    height: float
    boxes: tuple[LinkBox, ...]
    """Devices by number, then the other places."""
    frames: tuple[SocketFrame, ...]
    lines: tuple[LinkLine, ...]
    """Each link once; of two between the same ends the shorter one."""
    paths: Mapping[tuple[int, int], tuple[int, ...]]
    """By two devices, the smaller number first, numbers of the lines between them."""


def link_layout(topology: GpuTopology) -> LinkLayout:
    """Draw a topology; the same one always alike."""
    gaps = _SOCKETS_APART * (len(topology.sockets) - 1)
    width = max(LEAST_WIDTH, 2 * EDGE + topology.count * _NARROWEST + gaps)
    spans = _device_spans(topology, width)
    rows: list[list[End]] = [[*spans]]
    for row in _rows_below(topology):
        placed = _place_spans(topology, row, {end: spans[end] for end in rows[-1]}, width)
        spans |= placed
        rows.append([*placed])
    lanes = [_lanes(topology, row) for row in rows]
    depth = [_ARC * max(lane.values(), default=0) for lane in lanes]
    labelled = [not _stands_for(topology, socket) for socket in topology.sockets]
    label = _LABEL * any(labelled)
    top = EDGE + max(_FRAME + label, depth[0])
    bottom = top + DEVICE_HEIGHT + _FRAME
    boxes = {end: _box(end, spans[end], top, DEVICE_HEIGHT) for end in rows[0]}
    frames = []
    for n, socket in enumerate(topology.sockets):
        left, right = spans[socket[0]][0] - _FRAME, sum(spans[socket[-1]]) + _FRAME
        frame = _box(f"socket {n}", (left, right - left), top - _FRAME - label, bottom - top + _FRAME + label)
        frames.append(SocketFrame(frame, labelled[n]))
    for row, deep in zip(rows[1:], depth[1:], strict=True):
        bottom += _ROWS_APART
        boxes |= {end: _box(end, spans[end], bottom, PLACE_HEIGHT) for end in row}
        bottom += PLACE_HEIGHT + deep
    lines = _lines(topology, rows, boxes, {ends: lane for found in lanes for ends, lane in found.items()})
    number = {frozenset(line.ends): n for n, line in enumerate(lines)}
    paths = {
        pair: tuple(number[frozenset(step)] for step in pairwise(topology.path(*pair)))
        for pair in combinations(range(topology.count), 2)
    }
    return LinkLayout(width, round(bottom + EDGE, 1), tuple(boxes.values()), tuple(frames), lines, paths)


def _box(end: End, span: Span, y: float, height: float) -> LinkBox:
    return LinkBox(end, round(span[0], 1), round(y, 1), round(span[1], 1), round(height, 1))


def _device_spans(topology: GpuTopology, width: float) -> dict[End, Span]:
    """The devices from left to right, socket by socket."""
    each = (width - 2 * EDGE - _SOCKETS_APART * (len(topology.sockets) - 1)) / topology.count
    wide = min(_DEVICE_WIDTH, 0.62 * each)
    spans: dict[End, Span] = {}
    for n, socket in enumerate(topology.sockets):
        for device in socket:
            spans[device] = EDGE + len(spans) * each + n * _SOCKETS_APART + (each - wide) / 2, wide
    return spans


def _rows_below(topology: GpuTopology) -> Iterator[list[End]]:
    """The places that are linked to devices; then what is linked to those, and so on."""
    above: list[End] = [*range(topology.count)]
    left: list[End] = [end for end in topology.graph if isinstance(end, str)]
    while left:
        # Places that no links join to a device stand in the last row.
        above = [end for end in left if any(near in above for near in topology.graph[end])] or left
        yield above
        left = [end for end in left if end not in above]


def _place_spans(topology: GpuTopology, row: Sequence[End], above: Mapping[End, Span], width: float) -> dict[End, Span]:
    """Places from left to right, each below the middle of what it is linked to above as far as there is room."""
    widest = (width - 2 * EDGE - _PLACES_APART * (len(row) - 1)) / len(row)
    wide = {end: min(widest, _LETTER * len(str(end)) + 12) for end in row}
    middle = {}
    for end in row:
        near = [x + w / 2 for one, (x, w) in above.items() if one in topology.graph[end]]
        middle[end] = sum(near) / len(near) if near else width / 2
    order = sorted(row, key=lambda end: (round(middle[end], 6), str(end)))
    left: dict[End, float] = {}
    least = EDGE
    for end in order:
        left[end] = max(least, middle[end] - wide[end] / 2)
        least = left[end] + wide[end] + _PLACES_APART
    most = width - EDGE
    for end in reversed(order):
        left[end] = min(left[end], most - wide[end])
        most = left[end] - _PLACES_APART
    return {end: (left[end], wide[end]) for end in order}


def _lanes(topology: GpuTopology, row: Sequence[End]) -> dict[frozenset[End], int]:
    """Links of a row that need an arc, as others stand between their ends: how far out, so that none covers another."""
    at = {end: n for n, end in enumerate(row)}
    inside = (sorted((at[one], at[other])) for one, other in topology.graph.edges if one in at and other in at)
    lanes: dict[tuple[int, int], int] = {}
    for left, right in sorted(inside, key=lambda arc: (arc[1] - arc[0], arc)):
        if right - left > 1:
            below = (lane for (start, stop), lane in lanes.items() if start < right and left < stop)
            lanes[left, right] = 1 + max(below, default=0)
    return {frozenset((row[left], row[right])): lane for (left, right), lane in lanes.items()}


def _lines(
    topology: GpuTopology,
    rows: Sequence[Sequence[End]],
    boxes: Mapping[End, LinkBox],
    lanes: Mapping[frozenset[End], int],
) -> tuple[LinkLine, ...]:
    """Ends of lines share a side of a box in an order in which they do not cross at once."""
    place = {end: (r, n) for r, row in enumerate(rows) for n, end in enumerate(row)}
    links = [
        (*sorted(edge[:2], key=place.__getitem__), edge[2]["link_class"]) for edge in topology.graph.edges(data=True)
    ]
    links = sorted(
        (link for link in links if link[0] != link[1]), key=lambda link: (link[2], place[link[0]], place[link[1]])
    )
    sides: dict[tuple[End, bool], list[tuple[int, float, End]]] = {}
    for one, other, _ in links:
        (row, n), (to_row, to_n) = place[one], place[other]
        if row != to_row:
            sides.setdefault((one, True), []).append((1, _middle(boxes[other]), other))
            sides.setdefault((other, False), []).append((1, _middle(boxes[one]), one))
        elif to_n - n > 1:
            # The widest arcs begin in the middle, and the others below them.
            sides.setdefault((one, row > 0), []).append((2, n - to_n, other))
            sides.setdefault((other, row > 0), []).append((0, to_n - n, one))

    def port(end: End, down: bool, other: End) -> tuple[float, float]:
        box, order = boxes[end], [to for *_, to in sorted(sides[end, down], key=lambda one: one[:2])]
        x = box.x + box.width * (order.index(other) + 1) / (len(order) + 1)
        return round(x, 1), round(box.y + box.height * down, 1)

    lines = []
    for one, other, link_class in links:
        (row, n), (to_row, to_n) = place[one], place[other]
        bend = 0.0
        if row != to_row:
            start, stop = port(one, True, other), port(other, False, one)
        elif to_n - n > 1:
            start, stop = port(one, row > 0, other), port(other, row > 0, one)
            bend = lanes[frozenset((one, other))] * (_ARC if row else -_ARC)
        else:
            y = round(boxes[one].y + boxes[one].height / 2, 1)
            start, stop = (round(boxes[one].x + boxes[one].width, 1), y), (boxes[other].x, y)
        lines.append(LinkLine((one, other), link_class, start, stop, bend))
    return tuple(lines)


def _middle(box: LinkBox) -> float:
    return box.x + box.width / 2


def _stands_for(topology: GpuTopology, socket: Sequence[int]) -> bool:
    """Whether a place of the topology is linked to the devices of one socket and to no other device."""
    return any(
        {near for near in topology.graph[end] if isinstance(near, int)} == {*socket}
        for end in topology.graph
        if isinstance(end, str)
    )
