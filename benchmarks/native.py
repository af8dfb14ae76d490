"""Small C programs, compiled on the machine that runs them: for what Python's clock and wake-ups are too coarse for.

Each is compiled once and kept in the user's cache folder under the digest of its source, its flags and the machine.
"""

from __future__ import annotations

import hashlib
import os
import platform
import shutil
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

FLAGS = ("-O2", "-std=gnu11", "-Wall")
TIME_LIMIT_S = 60.0
_COMPILERS = ("cc", "gcc", "clang")
_NAME_LENGTH = 16


class NativeError(Exception):
    """A program could not be had; one sentence says why."""


def compiler(environment: Mapping[str, str] | None = None) -> str | None:
    """The C compiler: ``CC`` of the environment, else the first of cc, gcc, clang; None where there is none."""
    named = (os.environ if environment is None else environment).get("CC")
    for name in (named,) if named else _COMPILERS:
        if found := shutil.which(name):
            return found
    return None


def cache_folder(environment: Mapping[str, str] | None = None) -> Path:
    """Where programs are kept."""
    base = (os.environ if environment is None else environment).get("XDG_CACHE_HOME") or "~/.cache"
    return Path(base).expanduser() / "flowsched" / "native"


def compile(source: str, libraries: Sequence[str] = (), folder: Path | None = None) -> Path:
    """The program of a C source, compiled unless it is kept already. Raises :class:`NativeError`.

    ``libraries``: names without ``-l``. ``folder``: instead of the cache folder of the user.
    """
    links = [f"-l{name}" for name in libraries]
    text = "\0".join((source, *FLAGS, *links, platform.machine()))
    try:
        folder = cache_folder() if folder is None else folder
        folder.mkdir(parents=True, exist_ok=True)
        program = folder / hashlib.sha256(text.encode()).hexdigest()[:_NAME_LENGTH]
        if not _is_ours(folder):
            raise NativeError(f"the cache folder {folder} can be written by others: programs there are not run")
        if program.is_file() and _is_ours(program) and os.access(program, os.X_OK):
            return program
    except (OSError, RuntimeError) as error:  # also where the home folder is unknown
        raise NativeError(f"the cache folder cannot be used: {error}") from None
    found = compiler()
    if found is None:
        raise NativeError("there is no C compiler (cc, gcc or clang) on this machine")
    _compile(found, source, links, program)
    return program


def _is_ours(path: Path) -> bool:
    """Whether no other user can have put it there: a program that others wrote is not run with our rights."""
    state = path.stat()
    return state.st_uid in (0, os.geteuid()) and not state.st_mode & 0o022


def _compile(compiler: str, source: str, links: Sequence[str], program: Path) -> None:
    """Compile beside the program and put it in place whole: another process may want it at the same moment."""
    try:
        with tempfile.TemporaryDirectory(prefix=".making-", dir=program.parent) as draft:
            code, made = Path(draft) / "program.c", Path(draft) / "program"
            code.write_text(source, encoding="utf-8")
            command = [compiler, *FLAGS, str(code), "-o", str(made), *links]
            run = subprocess.run(command, capture_output=True, text=True, timeout=TIME_LIMIT_S, check=False)
            if run.returncode:
                said = (run.stderr or run.stdout).strip().splitlines()
                first = f": {said[0]}" if said else " and no output"
                raise NativeError(f"compiling failed: {compiler} exited with {run.returncode}{first}")
            made.chmod(0o755)
            made.replace(program)
    except subprocess.TimeoutExpired:
        raise NativeError(f"{compiler} took longer than {TIME_LIMIT_S:g} s") from None
    except OSError as error:
        raise NativeError(f"{compiler} could not be run in {program.parent}: {error}") from None
