"""Blocks: the rectangles of one occupant, joined where they touch, with the outline around them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, order=True)
class Block:
    """A rectangle in user units; y grows downwards."""

    left: float
    top: float
    right: float
    bottom: float

    @property
    def width(self) -> float:
        """Width in user units."""
        return self.right - self.left

    @property
    def height(self) -> float:
        """Height in user units."""
        return self.bottom - self.top


def join_columns(blocks: Iterable[Block]) -> list[Block]:
    """Join blocks that touch above each other over the same width."""
    joined: list[Block] = []
    for block in sorted(blocks, key=lambda b: (b.left, b.right, b.top)):
        last = joined[-1] if joined else None
        if last and (last.left, last.right, last.bottom) == (block.left, block.right, block.top):
            joined[-1] = Block(last.left, last.top, last.right, block.bottom)
        else:
            joined.append(block)
    return joined


def join_rows(blocks: Iterable[Block]) -> list[Block]:
    """Join blocks that touch beside each other over the same height."""
    joined: list[Block] = []
    for block in sorted(blocks, key=lambda b: (b.top, b.bottom, b.left)):
        last = joined[-1] if joined else None
        if last and (last.top, last.bottom, last.right) == (block.top, block.bottom, block.left):
            joined[-1] = Block(last.left, last.top, block.right, last.bottom)
        else:
            joined.append(block)
    return joined


def outline(blocks: Sequence[Block]) -> str:
    """Return the path around blocks that do not overlap; edges between two of them are left out."""
    upright: dict[float, Counter[float]] = {}
    level: dict[float, Counter[float]] = {}
    for block in blocks:
        for x in (block.left, block.right):
            upright.setdefault(x, Counter()).update((block.top, block.bottom))
        for y in (block.top, block.bottom):
            level.setdefault(y, Counter()).update((block.left, block.right))
    parts = [f"M{x:g} {low:g}V{high:g}" for x in sorted(upright) for low, high in _uneven(upright[x])]
    parts += [f"M{low:g} {y:g}H{high:g}" for y in sorted(level) for low, high in _uneven(level[y])]
    return "".join(parts)


def _uneven(ends: Counter[float]) -> list[tuple[float, float]]:
    """Return the stretches covered an odd number of times, from the ends of all stretches."""
    odd = sorted(end for end, count in ends.items() if count % 2)
    return list(zip(odd[::2], odd[1::2], strict=True))
