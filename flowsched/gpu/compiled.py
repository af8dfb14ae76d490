"""Compiles the functions of this folder's kernels, which call each other across files."""

from __future__ import annotations

from pathlib import Path

from flowsched_models.compiled import compiler

_HERE = Path(__file__).parent

# The tuples that kernels take are part of what is compiled.
SOURCES = (_HERE / "device_arrays.py", _HERE / "shapes.py", *sorted(_HERE.glob("*kernels.py")))
"""For compilers of functions that call these."""

compiled, borrowing = compiler(SOURCES), compiler(SOURCES, borrows=True)
