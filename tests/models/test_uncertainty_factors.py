"""Drawn factors are the same on every processor."""

from __future__ import annotations

import math

import numpy as np

from flowsched_models.uncertainty import factors, normals
from flowsched_simulator.world import ModelError


def test_factors_are_exponentials_of_the_c_library() -> None:
    """numpy's own exponential rounds otherwise where a processor has wide vectors, and runs part at the last bit."""
    normal = np.random.default_rng(0).standard_normal(1000)
    assert factors(0.5, normal).tolist() == [math.exp(0.5 * z) for z in normal.tolist()]
    words = [7, 3632233996, 3632233996]
    expected = math.exp(0.2 * float(np.random.default_rng(words).standard_normal()))
    assert ModelError(0.2, 7, "job-and-machine").factor("test", "test") == expected
    expected = math.exp(0.2 * float(normals(7, "job", "test", 1)[0]))
    assert ModelError(0.2, 7).factor("test", "test") == expected
