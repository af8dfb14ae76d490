"""Sequences whose items are made when they are first asked for."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from typing import TypeVar, overload

Item_co = TypeVar("Item_co", covariant=True)


class LateSequence(Sequence[Item_co]):
    """A sequence that makes its items when the first of them is asked for; equal to a tuple of the same items."""

    @property
    @abstractmethod
    def all(self) -> tuple[Item_co, ...]:
        """All items, in order; the same ones whenever they are asked for."""

    @abstractmethod
    def __len__(self) -> int:
        """How many there are, made or not."""

    @overload
    def __getitem__(self, index: int) -> Item_co: ...

    @overload
    def __getitem__(self, index: slice) -> tuple[Item_co, ...]: ...

    def __getitem__(self, index: int | slice) -> Item_co | tuple[Item_co, ...]:
        return self.all[index]

    def __iter__(self) -> Iterator[Item_co]:
        return iter(self.all)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, LateSequence | tuple) and self.all == tuple(other)

    def __hash__(self) -> int:
        return hash(self.all)

    def __repr__(self) -> str:
        return repr(self.all)
