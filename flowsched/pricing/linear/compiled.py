"""Compiles the functions of this folder's kernels."""

from __future__ import annotations

from pathlib import Path

from flowsched_models.compiled import compiler

SOURCES = sorted(Path(__file__).parent.glob("*kernels.py"))
"""For compilers of functions that call these."""

compiled, borrowing = compiler(SOURCES), compiler(SOURCES, borrows=True)
