"""The report of a calibration, and the page of the documents that is made the same way."""

from __future__ import annotations

import base64
import importlib.util
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from html.parser import HTMLParser
from pathlib import Path
from types import ModuleType
from xml.etree import ElementTree as Tree

import pytest

from builders import CATALOGUE
from flowsched_models.calibration.calibration import Calibration, FitRequest, calibrate
from flowsched_models.calibration.figure import label
from flowsched_models.calibration.report import parts_of, report_html
from flowsched_models.calibration.report_part import ReportPart
from flowsched_models.calibration.score_parts import pairs_of, summary_rows
from flowsched_models.measurements.measurements import (
    Finding,
    InterferenceTime,
    LatencyPoint,
    MeasuredExecution,
    Measurements,
    Run,
    ThreadTime,
    Where,
)
from flowsched_models.page_style import scroll_style
from flowsched_models.validation.score import Quantity, errors

pytest.importorskip("matplotlib")
pytest.importorskip("scipy")

DOCS = Path(__file__).parent.parent.parent / "docs"
NOWHERE = Where("threads.csv", 2, "real_s")
ODD = "_<b>$x$&"
"""A job whose name means something to HTML, to mathematics in drawings and to legends."""


def sweep_of(group: str, job: str, work_s: float, machine_type: str = "small") -> list[ThreadTime]:
    times = ((1, work_s), (2, 0.55 * work_s), (4, 0.33 * work_s))
    return [ThreadTime(group, machine_type, job, n, None, s, NOWHERE) for n, s in times]


def run_of(group: str, factor: float) -> Run:
    where = ("n1", "small", (0, 1, 2, 3), 4, 4.0, None)
    other = ("n2", "large", (0, 1, 2, 3, 4, 5, 6, 7), 8, 8.0, None)
    executions = (
        MeasuredExecution("scaling", *where, 0.0, 29.0 * factor, NOWHERE),
        MeasuredExecution("serial", *other, 0.0, 34.0 * factor, NOWHERE),
        MeasuredExecution("scaling", *other, 1.0, 33.0 * factor, NOWHERE),
    )
    return Run(group, "plan", "1", "2024", executions)


def points_of(group: str) -> list[LatencyPoint]:
    loads = (5e3, 20e3, 40e3, 60e3, 70e3, 80e3, 90e3)
    p95 = (450.0, 600.0, 680.0, 700.0, 720.0, 1100.0, 1300.0)
    return [
        LatencyPoint(group, "store", "small", 1, 1, min(q, 78e3), p, None, NOWHERE, target_qps=q)
        for q, p in zip(loads, p95, strict=True)
    ]


def pressed(group: str, job: str) -> list[InterferenceTime]:
    return [InterferenceTime(group, "small", job, k, s, NOWHERE) for k, s in (("none", 100.0), ("llc", 140.0))]


SWEEPS = Measurements(thread_times=(*sweep_of("lab", "scaling", 100.0), *sweep_of("lab", ODD, 50.0)))
"""One group that measured two jobs alone and nothing else."""
WHOLE = Measurements(
    thread_times=tuple(
        t for g in ("lab", "team") for j, w in (("scaling", 100.0), ("serial", 60.0)) for t in sweep_of(g, j, w)
    ),
    interference_times=tuple(i for g in ("lab", "team") for i in pressed(g, "scaling")),
    runs=(run_of("lab", 1.0), run_of("team", 1.2)),
    latency_points=tuple(p for g in ("lab", "team", "third") for p in points_of(g)),
    findings=(Finding(Where("lab/threads.csv", 7, "real_s"), "<script>alert(1)</script> is odd", "left out", "lab"),),
    years={"lab": "2024", "team": "2023", "third": "2024"},
)


TITLE = "<i>a & b</i>\x1b"
"""Means something to HTML and to terminals."""


@pytest.fixture(scope="module")
def whole() -> Calibration:
    return calibrate(WHOLE, CATALOGUE)


@pytest.fixture(scope="module")
def parts(whole: Calibration) -> tuple[ReportPart, ...]:
    """Of its report: the drawings take seconds."""
    return tuple(parts_of(whole))


@pytest.fixture(scope="module")
def html(parts: tuple[ReportPart, ...]) -> str:
    return report_html(parts, TITLE)


@pytest.fixture(scope="module")
def sweeps_only() -> Calibration:
    return calibrate(SWEEPS, CATALOGUE)


@dataclass
class Page(HTMLParser):
    """What a report consists of."""

    elements: list[tuple[str, dict[str, str | None]]] = field(default_factory=list)
    words: str = ""

    def __post_init__(self) -> None:
        super().__init__()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.words += data

    def all(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.elements if name == tag]


def read(html: str) -> Page:
    page = Page()
    page.feed(html)
    return page


def test_the_same_fit_gives_the_same_bytes_whatever_the_style_of_the_user(whole: Calibration, html: str) -> None:
    import matplotlib

    with matplotlib.rc_context({"lines.linewidth": 9.0, "svg.hashsalt": None, "font.size": 30.0, "axes.grid": True}):
        before = dict(matplotlib.rcParams)
        assert report_html(parts_of(whole), TITLE) == html
        assert dict(matplotlib.rcParams) == before


def test_it_needs_nothing_beside_itself(html: str) -> None:
    page = read(html)
    assert {tag for tag, _ in page.elements} & {"script", "link", "iframe", "object"} == set()
    for tag, attributes in page.elements:
        for name in ("src", "href"):
            if (target := attributes.get(name)) is not None:
                assert target.startswith(("data:image/svg+xml;base64,", "#")), (tag, target)
    anchors = {a["id"] for _, a in page.elements if "id" in a}
    assert {(a["href"] or "").removeprefix("#") for a in page.all("a")} <= anchors


def test_wide_tables_are_shaded_as_on_our_other_pages(html: str) -> None:
    assert scroll_style() in html


def test_drawings_are_svg_with_words_for_those_who_do_not_see_them(html: str) -> None:
    pictures = read(html).all("img")
    assert len(pictures) >= 12
    for picture in pictures:
        drawing = base64.b64decode((picture["src"] or "").split(",", 1)[1])
        assert Tree.fromstring(drawing).tag == "{http://www.w3.org/2000/svg}svg"
        assert b"dc:date" not in drawing
        assert len(picture["alt"] or "") > 30


def test_it_leads_with_sentences_and_drawings(html: str, parts: tuple[ReportPart, ...]) -> None:
    assert html.index("predicted by") < html.index("<img") < html.index("<table")
    first, second, *_ = parts
    assert not first.tables and len(first.said) > 2
    assert second.pictures and not second.tables
    goals = [text for text in first.said if "The goal, at most" in text]
    assert goals and all(re.search(r"is (met|missed)\.$", text) for text in goals)


def test_it_is_dark_where_a_reader_has_that(html: str) -> None:
    _, dark = html.split("@media screen and (prefers-color-scheme: dark) {", 1)
    assert {"--page", "--ink", "--line"} <= set(re.findall(r"--[a-z]+", dark[: dark.index("* {")]))
    assert "#ffffff" not in html.split("--page: #ffffff;", 1)[1].split("</style>")[0]
    assert re.search(r"img \{\s*filter: invert", dark), "drawings are black on white"
    assert '<meta name="color-scheme" content="light dark">' in html


def test_tables_have_captions_and_heads(html: str, parts: tuple[ReportPart, ...]) -> None:
    page = read(html)
    tables = page.all("table")
    assert len(tables) >= 15
    assert len(page.all("caption")) == len(tables)
    assert all(head.get("scope") in ("col", "row") for head in page.all("th"))
    for part in parts:
        for table in part.tables:
            assert {len(row) for row in table.rows} == {len(table.head)}, table.caption


def test_names_and_findings_are_text(sweeps_only: Calibration, html: str) -> None:
    page = read(html)
    assert "script" not in {tag for tag, _ in page.elements}
    assert "lab/threads.csv:7:real_s" in page.words
    assert "<script>alert(1)</script> is odd" in page.words
    assert "<i>a & b</i>\ufffd" in page.words
    odd = report_html(parts_of(sweeps_only), "odd")
    assert ODD in read(odd).words
    assert "<b>" not in odd


@pytest.mark.filterwarnings("error")
def test_what_was_not_measured_is_one_sentence(sweeps_only: Calibration) -> None:
    parts = {part.anchor: part for part in parts_of(sweeps_only)}
    for anchor in ("against", "residuals", "groups", "coverage", "slowdowns", "latency", "findings"):
        part = parts[anchor]
        assert (len(part.said), part.pictures, part.tables) == (1, (), ()), anchor
        assert part.said[0].count(".") == 1
    assert "there are no errors to report" in parts["summary"].said[1]
    assert parts["sweeps"].pictures
    assert parts["parameters"].pictures


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("kept", ["runs", "latency_points", "one group"])
def test_other_parts_of_the_data_do_as_well(kept: str) -> None:
    if kept == "runs":
        data = Measurements(runs=WHOLE.runs)
    elif kept == "latency_points":
        data = replace(SWEEPS, latency_points=tuple(points_of("lab")))
    else:
        data = WHOLE.only("lab")
    result = calibrate(data, CATALOGUE, FitRequest(leave_out=kept == "one group"))
    all_parts = tuple(parts_of(result))
    parts = {part.anchor: part for part in all_parts}
    assert not result.left_out
    assert bool(parts["latency"].pictures) == bool(data.latency_points)
    assert bool(parts["against"].pictures) == bool(data.runs)
    assert bool(parts["sweeps"].pictures) == bool(data.thread_times)
    if data.runs:
        assert "No group was left out" in parts["summary"].said[1]
    assert report_html(all_parts, kept).count("<section") == len(parts)


def test_errors_are_those_of_the_scores(whole: Calibration) -> None:
    rows = {(what, by): cells for what, by, *cells in summary_rows(whole)}
    for by, scores in (("a fit without its group", whole.left_out), ("the fit of all groups", whole.in_sample)):
        found = errors(s for s in scores if s.quantity is Quantity.DURATION)
        assert found is not None
        assert rows["run times", by][:3] == [f"{found.count}", f"{found.median:.1f}", f"{found.p90:.1f}"]
    assert rows["run times", "a fit without its group"][4] == "at most 6 / 24"
    assert ("p95 of store in sweeps", "a fit without its group") in rows
    for table in ("job", "machine type", "sharing", "service", "group"):
        pairs = pairs_of(whole, Quantity.DURATION, table)
        for side in ("left_out", "in_sample"):
            counts = [getattr(pair, side).count for pair in pairs]
            assert sum(counts) == 6, (table, side)


def test_numbers_that_are_not_identified_are_marked_in_words(sweeps_only: Calibration) -> None:
    part = next(p for p in parts_of(sweeps_only) if p.anchor == "parameters")
    tables = {table.caption: table for table in part.tables}
    decided = {row[0]: row[-1] for row in tables["pressure."].rows}
    assert set(decided.values()) == {"not identified: mostly what was assumed"}
    assert {row[0]: row[-1] for row in tables["work_s."].rows}["scaling"] == "the measurements"


def test_labels_of_drawings() -> None:
    assert label("a\x07") == "a\ufffd"
    assert label("_hidden")[0] != "_"
    assert len(label("x" * 500)) < 50


@pytest.fixture(scope="module")
def page() -> Iterator[ModuleType]:
    spec = importlib.util.spec_from_file_location("calibration_page", DOCS / "calibration_page.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # Its dataclasses look themselves up there.
    spec.loader.exec_module(module)
    yield module
    del sys.modules[spec.name]


def test_the_page_is_filled_between_its_markers_only(page: ModuleType) -> None:
    text = "before\n<!-- begin: a -->\nold\n<!-- end -->\nbetween\n<!-- begin: b-c -->\n<!-- end -->\nafter\n"
    (once,) = page.fill([text], {"a": "new \\1\n\n", "b-c": "| x |"})
    assert once == (
        "before\n<!-- begin: a -->\n\nnew \\1\n\n<!-- end -->\n"
        "between\n<!-- begin: b-c -->\n\n| x |\n\n<!-- end -->\nafter\n"
    )
    assert page.fill([once], {"a": "new \\1", "b-c": "| x |"}) == [once]
    with pytest.raises(ValueError, match="markers"):
        page.fill([text], {"a": "x"})


def test_one_run_fills_both_pages(page: ModuleType, whole: Calibration, tmp_path: Path) -> None:
    copies = [tmp_path / original.name for original in page.PAGES]
    for copy, original in zip(copies, page.PAGES, strict=True):
        copy.write_text(original.read_text(encoding="utf-8"), encoding="utf-8")
    found = page.Findings(WHOLE, whole, WHOLE.only("team"), None)
    page.write(found, copies, tmp_path)
    text = "".join(copy.read_text(encoding="utf-8") for copy in copies)
    assert "| without smt |" in text
    assert "| 2023-1 |" in text
    assert "| team |" not in text
    assert "do not hold the runs of this group" in text
    for name in (line.split("(images/")[1].rstrip(")") for line in text.splitlines() if "(images/" in line):
        assert (tmp_path / name).is_file()
    first = {p.name: p.read_bytes() for p in tmp_path.iterdir()}
    page.write(found, copies, tmp_path)
    assert {p.name: p.read_bytes() for p in tmp_path.iterdir()} == first


def test_every_kind_of_parameter_is_explained(page: ModuleType, whole: Calibration) -> None:
    blocks = whole.fitted.parameters.blocks
    assert {block.name for block in blocks} == set(page.MEANING)
    text = (DOCS / "calibration-accuracy.md").read_text(encoding="utf-8")
    shown = [row for row in text.splitlines() if row.startswith("| `")]
    for row in page.assumptions_table(blocks).rows:
        if row[4] != "by job":
            assert any(row[0] in line and f"| {row[4]} | {row[5]} |" in line for line in shown), row


def test_groups_are_numbered_by_year(page: ModuleType) -> None:
    names = page.numbered({"zoe": "2024", "abe": "2024", "eve": "2023", "lab": ""})
    assert names == {"eve": "2023-1", "abe": "2024-1", "zoe": "2024-2", "lab": "group-1"}
    text = "| abe | 1 |\nleft out: zoe/threads.csv:3:real_s: lab stays in prose\n| job | eve |"
    assert page.renamed(text, names) == (
        "| 2024-1 | 1 |\nleft out: 2024-2/threads.csv:3:real_s: lab stays in prose\n| job | 2023-1 |"
    )
