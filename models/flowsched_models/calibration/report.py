"""The report of a calibration: one HTML file that needs nothing beside itself."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from markupsafe import Markup

from flowsched_models.calibration import fit_parts, score_parts
from flowsched_models.calibration.calibration import Calibration
from flowsched_models.calibration.report_part import ReportPart
from flowsched_models.page_style import page_template, page_text, scroll_style
from flowsched_models.text_table import printable


def report_html(parts: Iterable[ReportPart], title: str) -> str:
    """The report as one HTML document."""
    return page_template(__package__, "report.html.j2").render(
        title=printable(title),
        parts=tuple(parts),
        css=Markup(scroll_style() + page_text(__package__, "report.css")),
    )


def parts_of(result: Calibration) -> Iterator[ReportPart]:
    """The sections of the report, in their order. The same result gives the same bytes.

    Needs matplotlib. What was not measured is one sentence in its place.
    """
    yield score_parts.summary(result)
    yield score_parts.against(result)
    yield score_parts.error_table(result)
    yield score_parts.residuals(result)
    yield score_parts.by_group(result)
    yield score_parts.coverage(result)
    yield fit_parts.parameters(result)
    yield fit_parts.sweeps(result)
    yield fit_parts.slowdowns(result)
    yield fit_parts.latency(result)
    yield from fit_parts.notes(result)
