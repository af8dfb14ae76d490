"""Compiles the functions of this folder's kernels, and those that are made of a loop and of what a rule puts into it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import FunctionType
from typing import Any, TypeVar

from flowsched.gpu.compiled import SOURCES
from flowsched_models.compiled import compiler

Function = TypeVar("Function", bound=Callable[..., Any])

_ALL = (*SOURCES, *sorted(Path(__file__).parent.glob("*kernels.py")))

compiled, borrowing = compiler(_ALL), compiler(_ALL, borrows=True)


def filled(loop: Function, name: str, **kernels: Callable[..., Any]) -> Function:
    """The loop, compiled, with kernels in the places of the functions that it names so.

    numba could be given the kernels as arguments, but would then compile anew in every process. What it keeps it finds by
    the name of a function; so each filling has a name of its own.
    """
    assert isinstance(loop, FunctionType)
    copy = FunctionType(loop.__code__, {**loop.__globals__, **kernels}, name)
    copy.__qualname__, copy.__module__, copy.__doc__ = name, loop.__module__, loop.__doc__
    result: Function = compiled(copy)  # type: ignore[assignment]  # it has the signature of the loop
    return result
