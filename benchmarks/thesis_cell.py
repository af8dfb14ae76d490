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
    PREDICTED = "predicted"
    """Nothing was chosen by this value. It must be inside its band."""
    OURS = "ours"
    """The thesis has no number for it."""


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
    """How far outside of the published value or range a predicted one may be."""

    @property
    def outside(self) -> bool:
        """Whether it is predicted, and not within its band."""
        if self.kind is not Kind.PREDICTED or self.low is None or self.high is None:
            return False
        return not self.low - self.band <= self.ours <= self.high + self.band


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
        lines = [("", "", "published", "ours", "band", "")]
        for cell in self.cells:
            band = f"± {self._number(cell.band)}" if cell.kind is Kind.PREDICTED else ""
            judged = f"{cell.kind.value}, OUTSIDE ITS BAND" if cell.outside else cell.kind.value
            lines.append((cell.row, cell.column, self.published(cell), self._number(cell.ours), band, judged))
        return "\n".join([f"{self.name}: {self.title}", "", *text_table(lines, left=(0, 1, 5))])

    def published(self, cell: Cell) -> str:
        """A published value, or range; nothing where there is none."""
        if cell.low is None or cell.high is None:
            return ""
        low, high = self._number(cell.low), self._number(cell.high)
        return low if cell.low == cell.high else f"{low} to {high}"

    def misses(self) -> list[str]:
        """A clause for each predicted value outside its band."""
        return [
            f"{self.name}, {cell.row}, {cell.column}: {self._number(cell.ours)}, published {self.published(cell)}"
            f" ± {self._number(cell.band)}"
            for cell in self.cells
            if cell.outside
        ]

    def _number(self, value: float) -> str:
        return f"{value:.{self.decimals}f}"


def verdict(tables: Sequence[Computed]) -> str:
    """A sentence on the predicted values of some tables."""
    predicted = sum(cell.kind is Kind.PREDICTED for table in tables for cell in table.cells)
    misses = [miss for table in tables for miss in table.misses()]
    if not misses:
        return f"Predicted values: {predicted}, all inside their bands."
    return f"Outside their bands, {len(misses)} of {predicted} predicted values: {'; '.join(misses)}."


def plain(tables: Sequence[Computed]) -> dict[str, Any]:
    """As JSON."""
    return {
        "tables": [asdict(table) for table in tables],
        "outside": [miss for table in tables for miss in table.misses()],
    }
