"""Labels: the words that fit into a block."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from flowsched_simulator.report.block import Block

LINE = 14.0
"""Height of a line of a label, in user units."""
PADDING = 6.0
"""Least space left and right of a label, in user units."""
_EM = 13.0
_NARROW = frozenset("iljtfrI.,:;'|!()[] -1")
_WIDE = frozenset("mwMW@%")


@dataclass(frozen=True)
class Label:
    """Lines of words in a block."""

    lines: tuple[str, ...]
    block: Block


def text_width(text: str) -> float:
    """Return about how wide ``text`` is, in user units, rather too much than too little."""
    return _EM * sum(0.42 if c in _NARROW else 0.9 if c in _WIDE else 0.7 if c.isupper() else 0.59 for c in text)


def best_label(name: str, detail: str, blocks: Sequence[Block]) -> Label | None:
    """Return as many of the words as fit into one of the blocks, the largest that takes them."""
    by_size = sorted(blocks, key=lambda b: (-b.width * b.height, b))
    choices: list[tuple[str, ...]] = [
        (f"{name} {detail}",),
        (name, detail),
        (name, *detail.split(", ")),
        (name,),
    ]
    for lines in choices:
        for block in by_size:
            if _fits(lines, block):
                return Label(lines, block)
    return None


def _fits(lines: Sequence[str], block: Block) -> bool:
    room = block.width - 2 * PADDING
    return len(lines) * LINE <= block.height + 2 and all(text_width(line) <= room for line in lines)
