"""Columns that change row by row, and what they were whenever they were looked at.

A look keeps all as it is then, and costs a reference for each page of rows; a change after it copies the page that it is in,
not the whole.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

ROWS_OF_A_PAGE = 128
Scalar = TypeVar("Scalar", bound=np.generic)


class SeenColumns(Generic[Scalar]):
    """Columns as they were at one moment."""

    def __init__(self, pages: Sequence[NDArray[Scalar]]) -> None:
        """``pages``: which nothing changes any more."""
        self.pages = pages

    def row(self, row: int) -> Any:
        """The values of a row: [columns], or the value of a single column."""
        return self.pages[row // ROWS_OF_A_PAGE].T[row % ROWS_OF_A_PAGE]

    @cached_property
    def all(self) -> NDArray[Scalar]:
        """[columns, rows], or [rows] of a single column."""
        return np.concatenate(self.pages, axis=-1)


class PagedColumns(Generic[Scalar]):
    """Columns of rows that are numbered from 0."""

    def __init__(self, blank: NDArray[Scalar]) -> None:
        """No rows. ``blank``: [columns] what new rows have; without a dimension for a single column."""
        self._blank = np.repeat(blank[..., None], ROWS_OF_A_PAGE, axis=-1)
        self._pages: list[NDArray[Scalar]] = []
        self._own: list[bool] = []
        """[pages] whether a page has been seen by no look."""

    @classmethod
    def of(cls, seen: SeenColumns[Scalar], blank: NDArray[Scalar]) -> PagedColumns[Scalar]:
        """Columns that go on from a look, which stays as it is."""
        found = cls(blank)
        found._pages = [page for page in seen.pages if page.shape[-1]]
        found._own = [False] * len(found._pages)
        return found

    def __len__(self) -> int:
        return len(self._pages) * ROWS_OF_A_PAGE

    def widen(self) -> None:
        """Add a page of blank rows."""
        self._pages.append(self._blank.copy())
        self._own.append(True)

    def row(self, row: int) -> Any:
        """The values of a row, now: [columns], or the value of a single column."""
        return self._pages[row // ROWS_OF_A_PAGE].T[row % ROWS_OF_A_PAGE]

    def put(self, row: int, values: Any) -> None:
        """Change a row."""
        page, at = divmod(row, ROWS_OF_A_PAGE)
        (self._pages[page] if self._own[page] else self._mine(page))[..., at] = values

    def close_gap(self, column: int, above: float) -> None:
        """Lower by 1 what is above a value in a column, in all rows."""
        for page in range(len(self._pages)):
            values = self._mine(page)[column]
            values -= values > above

    def _mine(self, page: int) -> NDArray[Scalar]:
        """A page that no look has."""
        if not self._own[page]:
            self._pages[page], self._own[page] = self._pages[page].copy(), True
        return self._pages[page]

    def look(self) -> SeenColumns[Scalar]:
        """All as it is now."""
        self._own = [False] * len(self._pages)
        return SeenColumns(self._pages.copy() or [self._blank[..., :0]])
