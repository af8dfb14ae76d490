"""Where results go: folders are made before any work is done, files appear whole or not at all."""

from __future__ import annotations

import contextlib
import os
import re
from pathlib import Path

from flowsched_models.document import InputError


def default_folder(name: str, otherwise: str) -> Path:
    """Where the results of what has this name go unless a folder is given; ``otherwise``: for names without a letter."""
    return Path("out") / (re.sub(r"[^A-Za-z0-9_-]+", "-", name).strip("-") or otherwise)


def make_folder(folder: Path) -> None:
    """Make a folder that results shall go to. Raises :class:`InputError` if that cannot be."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as e:
        raise _refused(folder, e) from None


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
