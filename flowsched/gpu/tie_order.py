"""An order of machines that says which of equally good ones is taken."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from functools import lru_cache

import numpy as np

from flowsched.support.arrays import IntArray


def tie_order(names: Sequence[str]) -> IntArray:
    """Positions of the machines in an order that looks random, and is that of their names alone.

    In the order of a list of machines, those of one kind often stand together, and then ties would fill one kind
    first: whole machines of eight GPUs, for instance, that single ones would do as well for. Nothing but a name counts, so
    that machines which come, go or are listed otherwise change nothing among the others.
    """
    digests = [(hashlib.blake2b(name.encode(), digest_size=16).digest(), name) for name in names]
    return np.array(sorted(range(len(names)), key=digests.__getitem__), dtype=np.int64)


@lru_cache(maxsize=8)
def tie_ranks(names: tuple[str, ...]) -> Mapping[str, float]:
    """The place of each machine in that order, from 0 up to below 1: names are the same from round to round."""
    return {names[m]: place / len(names) for place, m in enumerate(tie_order(names).tolist())}
