"""The page: a template, its scripts and one packed blob of data for every round."""

from __future__ import annotations

import base64
import gzip
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from flowsched.inspector.page.page_data import headline, page_data, track
from flowsched.inspector.record_view import RecordView
from flowsched.inspector.wording import TERMS
from flowsched_models.page_style import page_template, page_text, scroll_style

SCRIPTS = (
    "format.js",
    "record.js",
    "difference.js",
    "network_scene.js",
    "round_scene.js",
    "layout.js",
    "drawing.js",
    "gpu_links.js",
    "panel.js",
    "tables.js",
    "search.js",
    "timeline.js",
    "address.js",
    "inspector.js",
)
"""In the order in which they need each other."""
OTHER_TERMS = {
    "price": "the exact change of the total",
    "tie_break": "the order of equally cheap options",
    "crowding": "arriving tasks beside each other",
    "patience": "more than the domain's share",
}
"""Terms that only networks have."""


def render_page(records: Sequence[RecordView], against: Sequence[RecordView] = ()) -> str:
    """One HTML document over one or more rounds, in their order, which asks for nothing beside itself.

    Rounds of several policies, or runs, are sorted by those: flow first, then as they come. ``against`` are rounds to
    put beside them: of another policy, or of another run. The page opens with the first of
    ``records`` beside the one of ``against`` that has the same number. The same records give the same text.
    """
    if not records:
        raise ValueError("a page needs a record")
    rounds = list(_rounds(records, against))
    index = {
        "rounds": [head for head, _ in rounds],
        "terms": {**TERMS, **OTHER_TERMS},
    }
    return page_template(__package__, "inspector.html.j2").render(
        title=_title(records),
        css=scroll_style() + page_text(__package__, "inspector.css"),
        d3=page_text(__package__, "d3.min.js"),
        licence=page_text(__package__, "d3.LICENSE.txt"),
        scripts=[(name, page_text(__package__, name)) for name in SCRIPTS],
        index=_in_script(index),
        blobs=[_pack(data) for _, data in rounds],
    )


def _rounds(
    records: Sequence[RecordView], against: Sequence[RecordView]
) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    for side, those in (("main", records), ("against", against)):
        runs = list(dict.fromkeys(track(recorded) for recorded in those))
        runs.sort(key=lambda run: run[0] != "flow")
        # Within a run they stay as they come, unless runs are mixed.
        order = sorted(those, key=lambda recorded: (runs.index(track(recorded)), recorded.round)) if runs[1:] else those
        for recorded in order:
            yield {"side": side, "track": runs.index(track(recorded)), **headline(recorded)}, page_data(recorded)


def _title(records: Sequence[RecordView]) -> str:
    rounds = [recorded.round for recorded in records]
    which = f"Round {rounds[0]}" if len(rounds) == 1 else f"{len(rounds)} rounds"
    source = Path(records[0].source).name if len(rounds) == 1 else Path(records[0].source).parent.name
    return f"{which}{f' · {source}' if source else ''} · flowsched"


def _pack(data: Mapping[str, Any]) -> str:
    """JSON, compressed, as text: it holds no name as such, and nothing that HTML could take for its own."""
    text = json.dumps(data, allow_nan=False, separators=(",", ":"))
    return base64.b64encode(gzip.compress(text.encode(), 9, mtime=0)).decode("ascii")


def _in_script(data: Mapping[str, Any]) -> str:
    """JSON within a script element: whatever names say, it does not end there."""
    text = json.dumps(data, allow_nan=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")
