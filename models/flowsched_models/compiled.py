"""Compiles the functions of the run-time model's inner loops.

With numba they are compiled at first use (some seconds) and kept in the user's cache folder; without it the same functions
run as they are written, some hundred times slower and with the same results.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

Function = TypeVar("Function", bound=Callable[..., Any])

numba: Any
try:
    import numba
except ImportError:
    numba = None

SOURCES = ("compiled.py", "kernel.py", "latency.py", "sharing.py")
"""Files with compiled functions. They call each other, so a change in one makes what was kept of all useless."""


def _cache_folder() -> Path | None:
    """Where compiled code is kept, by the content of its sources; None where nothing can be written."""
    here = Path(__file__).parent
    digest = hashlib.sha256(b"".join((here / name).read_bytes() for name in SOURCES)).hexdigest()
    try:
        base = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser()
        folder = base / "flowsched" / "compiled" / digest[:16]
        folder.mkdir(parents=True, exist_ok=True)
    except (OSError, RuntimeError):  # also where nobody knows the home folder
        return None
    return folder if os.access(folder, os.W_OK) else None


_FOLDER = None if numba is None else _cache_folder()


def compiled(function: Function) -> Function:
    """The function, compiled where that is possible. It must be plain arithmetic over arrays and numbers."""
    if numba is None:
        return function
    # numba asks for the folder when a function is decorated; other users of numba keep theirs.
    before = numba.config.CACHE_DIR
    try:
        if _FOLDER is not None:
            numba.config.CACHE_DIR = str(_FOLDER)
        result: Function = numba.njit(cache=_FOLDER is not None, nogil=True)(function)
    finally:
        numba.config.CACHE_DIR = before
    return result
