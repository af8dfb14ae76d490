"""Compiles the functions of the run-time model's inner loops.

With numba they are compiled at first use (half a minute) and kept in the user's cache folder; without it the same functions
run as they are written, some forty times slower and with the same results.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib
import os
import shutil
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

Function = TypeVar("Function", bound=Callable[..., Any])

numba: Any
try:
    import numba
except ImportError:
    numba = None

SOURCES = ("cell.py", "compiled.py", "held_share.py", "kernel.py", "latency.py", "moment.py", "pace.py", "sharing.py")
"""Files with compiled functions. They call each other, so a change in one makes what was kept of all useless."""
_KEPT_DAYS = 30
"""What was compiled of other versions is removed when nobody used it for so long."""
_NAME_LENGTH = 16
"""Letters of the digest that name a folder."""


def _cache_folder(sources: Sequence[Path]) -> Path | None:
    """Where compiled code is kept, by the content of its sources; None where it can be neither written nor read."""
    digest = hashlib.sha256(b"".join(source.read_bytes() for source in sources)).hexdigest()
    try:
        base = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser()
        folder = base / "flowsched" / "compiled" / digest[:_NAME_LENGTH]
        known = folder.is_dir()
        folder.mkdir(parents=True, exist_ok=True)
    except (OSError, RuntimeError):  # also where nobody knows the home folder
        return None
    if os.access(folder, os.W_OK):
        with contextlib.suppress(OSError):
            os.utime(folder)  # says that it is in use: reading what is kept leaves no trace
        if not known:
            remove_unused(folder.parent, time.time() - _KEPT_DAYS * 86400)
    return folder if os.access(folder, os.R_OK | os.X_OK) else None


def remove_unused(kept: Path, before_s: float) -> None:
    """Remove the folders of versions that nobody used since ``before_s``, seconds since 1970. What cannot go stays."""
    with contextlib.suppress(OSError):
        for folder in list(kept.iterdir()):
            named = len(folder.name) == _NAME_LENGTH and set(folder.name) <= set("0123456789abcdef")
            with contextlib.suppress(OSError):  # another process may remove it just now
                if named and not folder.is_symlink() and folder.is_dir() and folder.stat().st_mtime < before_s:
                    shutil.rmtree(folder, ignore_errors=True)


def compiler(sources: Sequence[Path]) -> Callable[[Function], Function]:
    """A decorator for the functions of some files, which may call each other and those of the run-time model.

    What was compiled is kept together, and is made anew once any of the files changes.
    """
    here = Path(__file__).parent
    folder = None if numba is None else _cache_folder([*(here / name for name in SOURCES), *sources])
    writable = folder is not None and os.access(folder, os.W_OK)

    def decorate(function: Function) -> Function:
        """The function, compiled where that is possible. It must be plain arithmetic over arrays and numbers."""
        if numba is None:
            return function
        # numba asks for the folder when a function is decorated; other users of numba keep theirs.
        before = numba.config.CACHE_DIR
        try:
            if folder is not None:
                numba.config.CACHE_DIR = str(folder)
            result: Function = numba.njit(cache=writable, nogil=True)(function)
            if folder is not None and not writable:
                _read_only(result, function)
        finally:
            numba.config.CACHE_DIR = before
        return result

    return decorate


def _read_only(dispatcher: Any, function: Callable[..., Any]) -> None:
    """Use what is kept, as in an image whose file system nobody may write to: numba itself keeps nothing it cannot write."""
    try:
        caching: Any = importlib.import_module("numba.core.caching")

        class Locator(caching.UserProvidedCacheLocator):  # type: ignore[misc]
            def ensure_cache_path(self) -> None:
                """Nothing is made."""

        class Kind(caching.CompileResultCacheImpl):  # type: ignore[misc]
            _locator_classes = (Locator,)

        class Kept(caching.FunctionCache):  # type: ignore[misc]
            _impl_class = Kind

            def save_overload(self, sig: Any, data: Any) -> None:
                """Nothing is kept."""

        dispatcher._cache = Kept(function)
    except (AttributeError, RuntimeError):  # another numba: compiled at every start
        return


compiled = compiler(())
