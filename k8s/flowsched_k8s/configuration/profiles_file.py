"""Profiles from a mounted file or folder, read again whenever their content changes."""

from __future__ import annotations

import hashlib
from pathlib import Path

from flowsched_models.catalogue import Catalogue
from flowsched_models.document import InputError
from flowsched_models.profiles import load_catalogue

LARGEST = 4 * 1024 * 1024
"""Bytes of all files together; a ConfigMap holds at most one MiB."""
_TRIES = 3


class ProfilesFile:
    """A YAML file of profiles, or a folder of them (``*.yaml``, ``*.yml``), as a ConfigMap is mounted.

    A mount changes by turning one link, so nothing can be told from the time stamps of files: contents are compared.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._seen = ""
        self._started = False
        self._had_files = False

    def poll(self) -> Catalogue | InputError | None:
        """The profiles if they changed since the last look, or why the old ones stay; None if nothing changed.

        The first look raises :class:`InputError` instead of refusing: there is nothing old to keep.
        """
        for _ in range(_TRIES):
            files, digest, problem = self._look()
            if digest == self._seen:
                return None
            result = problem or _load(files)
            # Otherwise what was read may be half old, half new.
            if self._look()[1] == digest:
                break
        else:
            if self._started:
                return None
            raise InputError.one(self._path, "the files change while they are read")
        if isinstance(result, InputError):
            if not self._started:
                raise result
            self._seen = digest
            return result
        self._seen = digest
        self._started = True
        self._had_files = self._had_files or bool(files)
        return result

    def _look(self) -> tuple[list[Path], str, InputError | None]:
        """The files, what tells their content from any other, and why they cannot be read."""
        try:
            files = self._files()
            if not files and self._had_files:
                raise InputError.one(self._path, "there are no *.yaml files here any more")
            return files, _digest(files), None
        except InputError as error:
            return [], f"unreadable: {error}", error

    def _files(self) -> list[Path]:
        if not self._path.is_dir():
            return [self._path]
        try:
            # A mount keeps its versions in entries that begin with dots.
            return sorted(
                p for p in self._path.iterdir() if p.suffix in (".yaml", ".yml") and not p.name.startswith(".")
            )
        except OSError as error:
            raise InputError.one(self._path, f"cannot be read: {error.strerror or error}") from None


def first_profiles(file: ProfilesFile | None) -> Catalogue:
    """What a process begins with: the bundled profiles, with those of the file. Raises :class:`InputError`."""
    found = None if file is None else file.poll()
    return found if isinstance(found, Catalogue) else load_catalogue()


def _load(files: list[Path]) -> Catalogue | InputError:
    try:
        return load_catalogue(extra=files)
    except InputError as error:
        return error


def _digest(files: list[Path]) -> str:
    digest = hashlib.sha256()
    left = LARGEST
    for path in files:
        try:
            with path.open("rb") as file:
                content = file.read(left + 1)
        except FileNotFoundError:
            raise InputError.one(path, "there is no such file") from None
        except OSError as error:
            raise InputError.one(path, f"cannot be read: {error.strerror or error}") from None
        left -= len(content)
        if left < 0:
            raise InputError.one(path, f"profiles are larger than {LARGEST // 1024 // 1024} MiB together")
        digest.update(f"{path.name}\0{len(content)}\0".encode())
        digest.update(content)
    return digest.hexdigest()
