"""How profiles did, as text for a terminal."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from flowsched_models.text_table import counted, text_table
from flowsched_models.validation.limit import Limit
from flowsched_models.validation.part import Part
from flowsched_models.validation.score import Errors, Quantity
from flowsched_models.validation.validation import ScoreRow, Validation

_HEADS = {
    Quantity.DURATION: "Run times of jobs",
    Quantity.MAKESPAN: "Makespans of runs",
    Quantity.P95: "p95 of services in windows of runs",
}
_ALL = {Quantity.DURATION: "all executions", Quantity.MAKESPAN: "all runs", Quantity.P95: "all windows"}
_SHOWN_FINDINGS = 10
_UNIT = "error in % of what was measured; inside: % within the model's own 50 % and 90 % interval"


def lines(validation: Validation, limits: Sequence[Limit]) -> Iterator[str]:
    """All that is to be said, line by line; names are as users wrote them."""
    yield f"Profiles: {validation.profiles}"
    used = {s.subject for s in validation.scores if s.quantity is Quantity.P95}
    clients = [f"{client} of {service}" for service, client in validation.clients.items() if service in used]
    if clients:
        yield f"Load client: {', '.join(clients)}"
    for quantity in Quantity:
        rows = validation.rows(quantity)
        if rows:
            yield ""
            yield f"{_HEADS[quantity]} ({_UNIT})"
            yield from _table(rows, quantity, [parts for parts, _ in validation.compared])
    if validation.not_scored:
        yield ""
        yield "Not scored:"
        for what, why, count in validation.not_scored:
            yield f"  {counted(count, what.removesuffix('s'))}: {why}"
    if validation.findings:
        yield ""
        kinds = Counter(f.consequence for f in validation.findings)
        yield f"Found by the reader: {', '.join(f'{n} {kind}' for kind, n in sorted(kinds.items()))}"
        for finding in validation.findings[:_SHOWN_FINDINGS]:
            yield f"  {finding}"
        more = len(validation.findings) - _SHOWN_FINDINGS
        if more > 0:
            yield f"  and {more} more: --json has them all"
    if limits:
        yield ""
        yield "Limits:"
        for limit in limits:
            yield f"  {limit}"


def _table(rows: Sequence[ScoreRow], quantity: Quantity, compared: Sequence[Sequence[Part]]) -> list[str]:
    above = ["", "", "", "", "", "inside", "inside"]
    head = ["", "n", "median", "p90", "bias", "50 %", "90 %"]
    for parts in compared:
        above += ["without", "+".join(parts)]
        head += ["median", "p90"]
    cells = [above, head]
    table = ""
    for row in rows:
        if row.table not in (table, "all"):
            table = row.table
            cells.append([table, *[""] * (len(head) - 1)])
        name = _ALL[quantity] if row.table == "all" else f"  {row.name}"
        others = [text for errors in row.compared for text in (_percent(errors.median), _percent(errors.p90))]
        cells.append([name, *_figures(row.errors), *others])
    return text_table(cells)


def _figures(errors: Errors) -> list[str]:
    return [
        f"{errors.count}",
        _percent(errors.median),
        _percent(errors.p90),
        f"{errors.bias:+.1f}",
        _whole(errors.inside_inner),
        _whole(errors.inside_outer),
    ]


def _percent(value: float) -> str:
    return f"{value:.1f}" if value < 1000.0 else ">1000"


def _whole(value: float | None) -> str:
    return "-" if value is None else f"{value:.0f}"
