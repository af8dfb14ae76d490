"""Compiles the functions of the run-time model's inner loops.

With numba they are compiled at first use (a minute) and kept in the user's cache folder; without it the same functions
run as they are written, some forty times slower and with the same results. numba is imported when the first of them is
called: commands that compute nothing do not wait for it.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import importlib
import os
import shutil
import threading
import time
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any, TypeVar, cast

Function = TypeVar("Function", bound=Callable[..., Any])

SOURCES = (
    "cell.py",
    "compiled.py",
    "execution_kernel.py",
    "held_share.py",
    "kernel.py",
    "latency.py",
    "moment.py",
    "pace.py",
    "sharing.py",
)
"""Files with compiled functions. They call each other, so a change in one makes what was kept of all useless."""
_KEPT_DAYS = 30
"""What was compiled of other versions is removed when it was not used for so long."""
_NAME_LENGTH = 16
"""Letters of the digest that name a folder."""


def _cache_folder(sources: Sequence[Path]) -> Path | None:
    """Where compiled code is kept, by the content of its sources; None where it can be neither written nor read."""
    name = hashlib.sha256(b"".join(source.read_bytes() for source in sources)).hexdigest()[:_NAME_LENGTH]
    try:
        folder = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "flowsched" / "compiled" / name
        known = folder.is_dir()
        folder.mkdir(parents=True, exist_ok=True)
    except (OSError, RuntimeError):  # also where the home folder is unknown
        return None
    if os.access(folder, os.W_OK):
        with contextlib.suppress(OSError):
            os.utime(folder)  # says that it is in use: reading what is kept leaves no trace
        if not known:
            remove_unused(folder.parent, time.time() - _KEPT_DAYS * 86400)
    return folder if os.access(folder, os.R_OK | os.X_OK) else None


def remove_unused(kept: Path, before_s: float) -> None:
    """Remove the folders of versions that were not used since ``before_s``, seconds since 1970. What cannot go stays."""
    with contextlib.suppress(OSError):
        for folder in list(kept.iterdir()):
            named = len(folder.name) == _NAME_LENGTH and set(folder.name) <= set("0123456789abcdef")
            with contextlib.suppress(OSError):  # another process may remove it just now
                if named and not folder.is_symlink() and folder.is_dir() and folder.stat().st_mtime < before_s:
                    shutil.rmtree(folder, ignore_errors=True)


class _Folder:
    """Where the functions of some files are kept; looked up, and made, when the first of them is called."""

    def __init__(self, sources: Sequence[Path]) -> None:
        self._sources = sources

    @functools.cached_property
    def path(self) -> Path | None:
        """The folder; None where there can be none."""
        return _cache_folder([*(Path(__file__).with_name(name) for name in SOURCES), *self._sources])

    @functools.cached_property
    def writable(self) -> bool:
        """Whether what is compiled can be kept there."""
        return self.path is not None and os.access(self.path, os.W_OK)


class _Deferred:
    """A function that becomes a compiled one when it is first called, and every function that it may call with it.

    Compiled code may only name compiled functions, so they take the places of the deferred ones among its module's names.
    """

    _lock = threading.RLock()

    def __init__(self, function: Callable[..., Any], folder: _Folder, borrows: bool) -> None:
        functools.update_wrapper(self, function)
        self._function = function
        self._folder = folder
        self._borrows = borrows
        self._settled: Callable[..., Any] | None = None

    def __call__(self, *values: Any, **named: Any) -> Any:
        """What the function returns."""
        return (self._settled or self.settle())(*values, **named)

    def __getattr__(self, name: str) -> Any:
        """What numba offers beside the call."""
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(self.settle(), name)

    def settle(self) -> Callable[..., Any]:
        """The compiled function, or the function itself where numba cannot be imported."""
        with self._lock:
            if self._settled is None:
                numba, made, open_ = _numba(), dict[_Deferred, Callable[..., Any]](), [self]
                while open_:
                    one = open_.pop()
                    made[one] = one._settled or _made(numba, one._function, one._folder, one._borrows)
                    open_ += [other for other in one._named().values() if other not in made and other not in open_]
                for one in made:
                    one._function.__globals__.update({name: made[other] for name, other in one._named().items()})
                # Only now: another thread that called one of them before would compile a half-made set.
                for one, settled in made.items():
                    one._settled = settled
        assert self._settled is not None
        return self._settled

    def _named(self) -> dict[str, _Deferred]:
        """The deferred functions among the names of the function's module."""
        return {name: value for name, value in self._function.__globals__.items() if isinstance(value, _Deferred)}


@functools.cache
def _numba() -> Any:
    """The module, or None where there is none."""
    try:
        numba = importlib.import_module("numba")
    except ImportError:
        return None
    with contextlib.suppress(ImportError, AttributeError):  # another numba: without a message, and slower to start
        events: Any = importlib.import_module("numba.core.event")

        class Listener(events.Listener):  # type: ignore[misc]
            def on_start(self, event: Any) -> None:  # noqa: ARG002
                while _tellers:
                    _tellers.pop()()

            def on_end(self, event: Any) -> None:
                """Nothing is said."""

        events.register("numba:compile", Listener())
        if find_spec("scipy") is not None:
            # Looking whether SciPy has a BLAS takes an eighth of a second. numba looks again where a function uses it.
            linalg: Any = importlib.import_module("numba.np.linalg")
            look, linalg.ensure_blas = linalg.ensure_blas, lambda: None
            importlib.import_module("numba.np.arraymath")
            linalg.ensure_blas = look
    return numba


_tellers: list[Callable[[], None]] = []


def tell_of_compiling(tell: Callable[[], None]) -> None:
    """Call ``tell`` once, just before a function is compiled of which nothing is kept."""
    _tellers[:] = [tell]


def _made(numba: Any, function: Callable[..., Any], folder: _Folder, borrows: bool) -> Callable[..., Any]:
    if numba is None:
        return function
    # numba asks for the folder when a function is decorated; other users of numba keep theirs.
    before = numba.config.CACHE_DIR
    try:
        if folder.path is not None:
            numba.config.CACHE_DIR = str(folder.path)
        # Nothing is passed as a C callback: a wrapper for that would be compiled in vain.
        result: Any = numba.njit(cache=folder.writable, nogil=True, no_cfunc_wrapper=True, _nrt=not borrows)(function)
        if (template := getattr(result, "get_call_template", None)) is not None:  # else compiling is switched off
            # A constant argument is compiled as any other of its type, not once more for each constant.
            result.get_call_template = lambda values, named: template(tuple(map(numba.types.unliteral, values)), named)
        if folder.path is not None and not folder.writable:
            _read_only(result, function)
    finally:
        numba.config.CACHE_DIR = before
    return cast("Callable[..., Any]", result)


def compiler(sources: Sequence[Path], *, borrows: bool = False) -> Callable[[Function], Function]:
    """A decorator for the functions of some files, which may call each other and those of the run-time model.

    They must be plain arithmetic over arrays and numbers. What was compiled is kept together, and is made anew once any of
    the files changes. Functions that ``borrow`` make no array, return none and call none that does: what they are given
    stays their callers', and that they use it is not counted, which took most of the time of short ones.
    """
    present = find_spec("numba") is not None
    folder = _Folder(sources)

    def decorate(function: Function) -> Function:
        """The function, compiled when it is first called."""
        return cast("Function", _Deferred(function, folder, borrows)) if present else function

    return decorate


def _read_only(dispatcher: Any, function: Callable[..., Any]) -> None:
    """Use what is kept, as in an image whose read-only file system: numba itself keeps nothing it cannot write."""
    with contextlib.suppress(AttributeError, RuntimeError):  # another numba: compiled at every start
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


compiled, borrowing = compiler(()), compiler((), borrows=True)
