"""The folder that a simulation writes its records to: POLICY-NNNN.npz, one for each round, and none is lost."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

from flowsched.records.record import Recipe
from flowsched.records.record_maker import RecordMaker
from flowsched.records.record_writer import RecordWriter
from flowsched_models.document import InputError
from flowsched_models.output import make_folder

OPTION = "--records"
_WAITING = 4
"""Records that may wait before the simulation does: a search's may take as long to make as the search."""


class RecordFolder:
    """A sink for records: written beside the simulation, which waits where they are slower than itself."""

    def __init__(self, folder: Path, policies: Iterable[str], keep: int | None = None) -> None:
        """``keep``: the last so many rounds of each policy; None for all.

        Raises :class:`InputError` if there cannot be such a folder, or if it has records of these policies already.
        """
        make_folder(folder)
        self._folder = folder
        self._keep = keep
        self._maker = RecordMaker()
        self._names = {policy: re.escape(policy) + r"-[0-9]{4,}" for policy in policies}
        self._writers: dict[str, RecordWriter] = {}
        own = re.compile(rf"({'|'.join(self._names.values())})\.(json|npz)")
        try:
            used = any(own.fullmatch(path.name) for path in folder.iterdir())
        except OSError as error:
            message = f"cannot be read: {(error.strerror or str(error)).lower()}"
            raise InputError.one(folder, message, key=OPTION) from None
        if used:
            message = "holds the records of another run"
            raise InputError.one(folder, message, "name an empty folder, or remove them", key=OPTION)

    @property
    def count(self) -> int:
        """Records that are there now."""
        written = [writer.written for writer in self._writers.values()]
        return sum(written if self._keep is None else (min(n, self._keep) for n in written))

    def add(self, policy: str, number: int, recipe: Recipe) -> None:
        """Have the record of a round written. Raises :class:`InputError` if an earlier one was not."""
        writer = self._writers.get(policy)
        if writer is None:
            writer = self._writers[policy] = RecordWriter(
                self._folder, self._keep, _WAITING, names=self._names[policy], make=self._maker.make
            )
        writer.add(f"{policy}-{number:04d}", recipe, wait=True)
        self._check()

    def finish(self) -> None:
        """Wait until all are written. Raises :class:`InputError` if one was not."""
        for writer in self._writers.values():
            writer.flush()
        self._check()

    def close(self) -> None:
        """Stop; what still waits is not written."""
        for writer in self._writers.values():
            writer.close(0.0)
        self._maker.close(0.0)

    def _check(self) -> None:
        for writer in self._writers.values():
            error = writer.error
            if isinstance(error, InputError):
                raise error
            if error is not None:
                raise InputError.one(self._folder, f"a record could not be made: {error}", key=OPTION)
