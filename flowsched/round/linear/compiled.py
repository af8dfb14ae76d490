"""Compiles the functions of this folder's kernels, which call each other across files, and those of prices."""

from __future__ import annotations

from pathlib import Path

from flowsched.pricing.linear.compiled import SOURCES as PRICES
from flowsched_models.compiled import compiler

_SOURCES = [*PRICES, *sorted(Path(__file__).parent.glob("*kernels.py"))]

compiled, borrowing = compiler(_SOURCES), compiler(_SOURCES, borrows=True)
