"""Compiles the inner loops of the isolation models, which call each other."""

from __future__ import annotations

from pathlib import Path

from flowsched_models.compiled import compiler

_NAMES = ("board.py", "constant_bandwidth.py", "fair_share.py", "loops.py", "motion.py")

compiled, borrowing = (compiler([Path(__file__).with_name(n) for n in _NAMES], borrows=b) for b in (False, True))
"""Decorators for their functions."""
