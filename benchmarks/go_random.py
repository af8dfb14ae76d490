"""The random numbers of Go's math/rand, by which published arrival orders were drawn.

Go's generator is the additive lagged Fibonacci generator of Mitchell and Reeds, z(n) = z(n - 607) + z(n - 273) modulo 2^64.
Its state is a sequence of a Lehmer generator (Park and Miller, "Random number generators: good ones are hard to find", CACM
1988, with the multiplier 48271) mixed into a fixed table: the state of the same generator, begun from seed 1, after 7.8e12
steps. The recurrence is linear, so that table is computed here by squaring a polynomial 43 times.
"""

from __future__ import annotations

import functools
from collections.abc import MutableSequence

import numpy as np
from numpy.typing import NDArray

Words = NDArray[np.uint64]

LONG, SHORT = 607, 273
"""The lags."""
_MULTIPLIER, _MODULUS = 48271, 2**31 - 1
_INSTEAD_OF_ZERO = 89482311
_WARM_UP = 20
_TABLE_STEPS = 7_800_000_000_000
_TABLE_SHIFTS, _SEED_SHIFTS = (20, 10, 0), (40, 20, 0)
_63_BITS = 2**63 - 1
_32_BITS = 2**32 - 1


def _lehmer_words(seed: int, shifts: tuple[int, ...]) -> Words:
    """[607] words, each of three numbers of the Lehmer generator."""
    x = seed % _MODULUS or _INSTEAD_OF_ZERO
    for _ in range(_WARM_UP):
        x = x * _MULTIPLIER % _MODULUS
    words = []
    for _ in range(LONG):
        word = 0
        for shift in shifts:
            x = x * _MULTIPLIER % _MODULUS
            word ^= x << shift
        words.append(word & (2**64 - 1))
    return np.array(words, dtype=np.uint64)


def _reduced(product: Words) -> Words:
    """A polynomial modulo x^607 - x^334 - 1: coefficients, lowest power first."""
    product = product.copy()
    while len(product) > LONG:
        # What is above is at most 273 powers wide at a time, so that it falls below without meeting itself.
        width = min(SHORT, len(product) - LONG)
        low, high = product[:-width], product[-width:]
        start = len(low) - LONG
        low[start : start + width] += high
        low[start + LONG - SHORT : start + LONG - SHORT + width] += high
        product = low
    return product


def _times(a: Words, b: Words) -> Words:
    product = np.zeros(2 * LONG - 1, dtype=np.uint64)
    for power in np.flatnonzero(a):
        product[power : power + LONG] += a[power] * b
    return _reduced(product)


@functools.cache
def _table() -> Words:
    """[607] the words that every seed is mixed into."""
    power = np.zeros(LONG, dtype=np.uint64)
    power[0] = 1
    for bit in f"{_TABLE_STEPS:b}":
        power = _times(power, power)
        if bit == "1":
            power = _reduced(np.concatenate([np.zeros(1, dtype=np.uint64), power]))
    # Place p of the state holds z(n) where p = 334 - n modulo 607; w(k) = z(k - 606) puts them into the recurrence's order.
    places = (LONG - SHORT - np.arange(-LONG + 1, 1)) % LONG
    w = np.zeros(2 * LONG, dtype=np.uint64)
    w[:LONG] = _lehmer_words(1, _TABLE_SHIFTS)[places]
    for k in range(LONG, 2 * LONG):
        w[k] = w[k - LONG] + w[k - SHORT]
    later = np.array([(power * w[j : j + LONG]).sum(dtype=np.uint64) for j in range(LONG)], dtype=np.uint64)
    table = np.zeros(LONG, dtype=np.uint64)
    table[(places - _TABLE_STEPS) % LONG] = later
    return table


class GoRandom:
    """What ``rand.New(rand.NewSource(seed))`` gives. Names are those of Go, in our spelling."""

    def __init__(self, seed: int) -> None:
        self._state = [int(word) for word in _lehmer_words(seed, _SEED_SHIFTS) ^ _table()]
        self._tap, self._feed = 0, LONG - SHORT

    def int63(self) -> int:
        """The next number from 0 to 2^63 - 1."""
        self._tap = (self._tap - 1) % LONG
        self._feed = (self._feed - 1) % LONG
        word = (self._state[self._feed] + self._state[self._tap]) & (2**64 - 1)
        self._state[self._feed] = word
        return word & _63_BITS

    def intn(self, n: int) -> int:
        """A number from 0 to n - 1, n < 2^31, as ``Intn`` draws it: the high 31 bits, again where they would favour some."""
        if not 0 < n < 2**31:
            raise ValueError(f"n must be from 1 to 2^31 - 1, got {n}")
        highest = 2**31 - 1 - (0 if n & (n - 1) == 0 else 2**31 % n)
        while (drawn := self.int63() >> 32) > highest:
            pass
        return drawn % n

    def shuffle(self, items: MutableSequence[int]) -> None:
        """Fisher and Yates from the end, with numbers by Lemire's multiplication, as ``Shuffle`` does it."""
        for i in range(len(items) - 1, 0, -1):
            n = i + 1
            product = (self.int63() >> 31) * n
            while product & _32_BITS < 2**32 % n:
                product = (self.int63() >> 31) * n
            j = product >> 32
            items[i], items[j] = items[j], items[i]
