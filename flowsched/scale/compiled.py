"""Compiles the functions of this folder's kernels, which call each other across files."""

from __future__ import annotations

from pathlib import Path

from flowsched_models.compiled import compiler

compiled = compiler(sorted(Path(__file__).parent.glob("*kernels.py")))
