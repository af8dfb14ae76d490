"""Compiles the inner loops of the isolation models, which call each other."""

from __future__ import annotations

from pathlib import Path

from flowsched_models.compiled import compiler

_FILES = ("board.py", "constant_bandwidth.py", "fair_share.py", "loops.py", "motion.py")

compiled = compiler(tuple(Path(__file__).with_name(name) for name in _FILES))
"""Decorator for their functions."""
