"""Where results go: folders are made before any work is done, files appear whole or not at all."""

from __future__ import annotations

import contextlib
import errno
import os
import re
import tempfile
from pathlib import Path

from flowsched_models.document import InputError

_TRIED_BYTES = 4096


def default_folder(name: str, otherwise: str) -> Path:
    """Where the results of what has this name go unless a folder is given; ``otherwise``: for names without a letter."""
    return Path("out") / (re.sub(r"[^A-Za-z0-9_-]+", "-", name).strip("-") or otherwise)


def make_folder(folder: Path) -> None:
    """Make a folder for results. Raises :class:`InputError` if that cannot be, or nothing can be written there."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as e:
        raise _refused(folder, e) from None
    check_folder(folder)


def check_folder(folder: Path) -> None:
    """Raise :class:`InputError`, before any work is done, for a folder that could not take its results afterwards.

    One that is not there yet is not made: the nearest folder that is there has to take a file.
    """
    there = folder
    try:
        while not there.exists() and there != there.parent:
            there = there.parent
        if not there.is_dir():
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR))
        # Only writing shows whether there is room: permissions do not, nor does an empty file.
        with tempfile.NamedTemporaryFile(dir=there, prefix=".flowsched-") as file:
            file.write(b" " * _TRIED_BYTES)
    except OSError as e:
        raise _refused(folder, e) from None


def check_file(path: Path, *, makes_folder: bool = True) -> None:
    """The same for a file. ``makes_folder``: whether its folder is made when it is written."""
    if path.is_dir():
        raise _refused(path, IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR)))
    if not makes_folder and not path.parent.exists():
        raise _refused(path, FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT)))
    check_folder(path.parent)


def write_whole(path: Path, text: str) -> None:
    """Write a file so that a crash leaves nothing half-written under its final name."""
    write_whole_bytes(path, text.encode("utf-8"))


def write_whole_bytes(path: Path, content: bytes, *, sync: bool = False) -> None:
    """The same for bytes. ``sync``: not even if the machine itself goes down; waits for the disk."""
    draft = path.with_name(path.name + ".part")
    try:
        with draft.open("wb") as file:
            file.write(content)
            if sync:
                file.flush()
                os.fsync(file.fileno())
        draft.replace(path)
    except OSError as e:
        raise _refused(path, e) from None
    finally:
        with contextlib.suppress(OSError):
            draft.unlink(missing_ok=True)


def _refused(path: Path, error: OSError) -> InputError:
    reason = (error.strerror or str(error)).lower()
    return InputError.one(path, f"cannot be written: {reason}", "name another place")
