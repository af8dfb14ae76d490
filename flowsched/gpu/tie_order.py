"""An order of machines that says which of equally good ones is taken."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

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
