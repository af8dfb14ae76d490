"""Where results go: folders are made before any work is done, files appear whole or not at all."""

from __future__ import annotations

from pathlib import Path

from flowsched_models.document import InputError, Problem


def make_folder(folder: Path) -> None:
    """Make a folder that results shall go to. Raises :class:`InputError` if that cannot be."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as e:
        raise _refused(folder, e) from None


def write_whole(path: Path, text: str) -> None:
    """Write a file so that a crash leaves nothing half-written under its final name."""
    draft = path.with_name(path.name + ".part")
    try:
        draft.write_text(text, encoding="utf-8")
        draft.replace(path)
    except OSError as e:
        raise _refused(path, e) from None


def _refused(path: Path, error: OSError) -> InputError:
    reason = (error.strerror or str(error)).lower()
    return InputError([Problem(str(path), None, "", f"cannot be written: {reason}", "name another place")])
