"""A value of the thesis beside ours, and tables of them: what each chapter's module gives to ``benchmarks.thesis``."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any

from flowsched_models.text_table import text_table


class Kind(StrEnum):
    """How far a value of ours depends on the one that is published."""

    INPUT = "input"
    """The published value went into the profiles: that it comes out says that profiles, model and simulator agree."""
    FITTED = "fitted"
    """A parameter was chosen so that this value, among others, comes out."""
    DERIVED = "derived"
    """It follows from fitted values, or from another row: a number that was fitted, for another policy; a ratio of values
    that are judged themselves; a run whose every event is that of another one."""
    PREDICTED = "predicted"
    """No parameter was chosen by this value, and no other row implies it."""
    OURS = "ours"
    """The thesis has no number for it, or only one that holds for its own machine."""


class Verdict(StrEnum):
    """What a published value says of ours."""

    INSIDE = "inside"
    OUTSIDE = "OUTSIDE"
    NOT_PUBLISHED = "not published"


@dataclass(frozen=True)
class Cell:
    """One value of a table."""

    table: str
    row: str
    column: str
    low: float | None
    """The published value, or the least of a published range; None: it is not published."""
    high: float | None
    """The published value again, or the largest of the range."""
    ours: float
    kind: Kind
    band: float = 0.0
    """How far outside of the published value or range ours may be."""

    def __post_init__(self) -> None:
        if (self.low is None or self.high is None) is not (self.kind is Kind.OURS):
            raise ValueError(
                f"{self.table}, {self.row}, {self.column}: a value has a published one to be judged by unless it is"
                f" '{Kind.OURS}', got '{self.kind}' and {self.low} to {self.high}"
            )

    @property
    def verdict(self) -> Verdict:
        """Of whatever kind it is: whether it is within the band of what is published."""
        if self.low is None or self.high is None:
            return Verdict.NOT_PUBLISHED
        inside = self.low - self.band <= self.ours <= self.high + self.band
        return Verdict.INSIDE if inside else Verdict.OUTSIDE


@dataclass(frozen=True)
class ThesisTable:
    """A table of the thesis, or the numbers that its text says of a figure."""

    name: str
    title: str
    """What the values are, in which unit, and where the thesis has them."""
    cells: Callable[[], Iterable[Cell]]
    """Runs the simulator, and yields every value of the table."""
    decimals: int = 2


@dataclass(frozen=True)
class Computed:
    """A table with its values."""

    name: str
    title: str
    decimals: int
    cells: tuple[Cell, ...]

    @classmethod
    def of(cls, table: ThesisTable) -> Computed:
        """Compute a table."""
        return cls(table.name, table.title, table.decimals, tuple(table.cells()))

    @classmethod
    def read(cls, data: Mapping[str, Any]) -> Computed:
        """From the plain data that ``asdict`` made of it."""
        cells = tuple(Cell(**{**cell, "kind": Kind(cell["kind"])}) for cell in data["cells"])
        return cls(data["name"], data["title"], data["decimals"], cells)

    def text(self) -> str:
        """Title and lines."""
        lines = [("", "", "published", "ours", "band", "kind", "verdict")]
        for cell in self.cells:
            numbers = self.published(cell), self._number(cell.ours), self._band(cell)
            lines.append((cell.row, cell.column, *numbers, cell.kind.value, cell.verdict.value))
        return "\n".join([f"{self.name}: {self.title}", "", *text_table(lines, left=(0, 1, 5, 6))])

    def published(self, cell: Cell) -> str:
        """A published value, or range; nothing where there is none."""
        if cell.low is None or cell.high is None:
            return ""
        low, high = self._number(cell.low), self._number(cell.high)
        return low if cell.low == cell.high else f"{low} to {high}"

    def misses(self) -> list[str]:
        """A clause for each value outside its band."""
        return [
            f"{', '.join(part for part in (self.name, cell.row, cell.column) if part)} ({cell.kind}):"
            f" {self._number(cell.ours)}, published {self.published(cell)} {self._band(cell)}".rstrip()
            for cell in self.cells
            if cell.verdict is Verdict.OUTSIDE
        ]

    def _band(self, cell: Cell) -> str:
        return f"± {cell.band:.{max(self.decimals, 3 if cell.band < 0.01 else 0)}f}" if cell.band else ""

    def _number(self, value: float) -> str:
        return f"{round(value, self.decimals) + 0.0:.{self.decimals}f}"  # not "-0.00"


def summary(tables: Sequence[Computed]) -> str:
    """A sentence: how many values of each kind are outside their bands."""
    judged = [cell for table in tables for cell in table.cells if cell.verdict is not Verdict.NOT_PUBLISHED]
    outside = [cell for cell in judged if cell.verdict is Verdict.OUTSIDE]
    if not outside:
        return f"Published values: {len(judged)}, all inside their bands."
    kinds = ", ".join(
        f"{sum(cell.kind is kind for cell in outside)} of {total} {kind}"
        for kind in Kind
        if (total := sum(cell.kind is kind for cell in judged))
    )
    return f"Outside their bands: {len(outside)} of {len(judged)} published values ({kinds})."


def verdict(tables: Sequence[Computed]) -> str:
    """The same, and a line for each value outside its band."""
    return "\n".join([summary(tables), *(f"- {miss}" for table in tables for miss in table.misses())])


def plain(tables: Sequence[Computed]) -> dict[str, Any]:
    """As JSON."""
    return {
        "tables": [asdict(table) for table in tables],
        "outside": [miss for table in tables for miss in table.misses()],
    }
