"""The folder where every finished run has a file of its own, which appears whole or not at all."""

from __future__ import annotations

import contextlib
import os
import platform
from collections.abc import Iterator
from pathlib import Path

from flowsched_models.document import InputError
from flowsched_models.output import make_folder
from flowsched_simulator.experiment.finished_run import FinishedRun, read_finished

SUFFIX = ".json.gz"
_LOCK = "sweep.lock"


class RunStore:
    """Files named by the digest of a run's whole configuration. One process writes at a time, or one for each share."""

    def __init__(self, folder: Path) -> None:
        """``folder`` is the one of the sweep; runs stand in ``runs`` below it."""
        self.folder = folder / "runs"

    def path(self, digest: str) -> Path:
        """Where a run is kept."""
        return self.folder / f"{digest}{SUFFIX}"

    def digests(self) -> set[str]:
        """All that are done, of this experiment and of others."""
        return {path.name.removesuffix(SUFFIX) for path in self.folder.glob(f"*{SUFFIX}")}

    def write(self, run: FinishedRun) -> None:
        """Keep a run: under a temporary name first, on disk before it gets its own."""
        path = self.path(run.digest)
        draft = path.with_name(f"{run.digest}.{platform.node()}-{os.getpid()}.part")
        try:
            with draft.open("wb") as file:
                file.write(run.to_bytes())
                file.flush()
                os.fsync(file.fileno())
            draft.replace(path)
        except OSError as error:
            reason = (error.strerror or str(error)).lower()
            raise InputError.one(path, f"cannot be written: {reason}", "name another --out") from None
        finally:
            with contextlib.suppress(OSError):
                draft.unlink(missing_ok=True)

    def read(self, digest: str) -> FinishedRun:
        """A run that is done. Raises :class:`InputError` for a file that is damaged."""
        path = self.path(digest)
        try:
            found = read_finished(path.read_bytes())
        except (OSError, ValueError) as error:
            raise InputError.one(path, str(error), "delete the file; the run is done again") from None
        if found.digest != digest:
            raise InputError.one(path, "holds another run", "delete the file; the run is done again")
        return found

    @contextlib.contextmanager
    def locked(self, share: str = "") -> Iterator[None]:
        """Nothing else writes the same share meanwhile; the lock ends with the process, however that ends.

        Raises :class:`InputError` where another sweep has it.
        """
        make_folder(self.folder)
        path = self.folder.parent / (f"{_LOCK}.{share.replace('/', '-of-')}" if share else _LOCK)
        with path.open("a+") as file:
            if not _lock(file.fileno()):
                message = "another sweep writes to this folder"
                raise InputError.one(self.folder.parent, message, "wait for it, or name another --out")
            # What a killed process left half-written is of no use; shares may write at this very moment.
            for draft in () if share else self.folder.glob("*.part"):
                draft.unlink(missing_ok=True)
            yield


def _lock(file: int) -> bool:
    """Whether the lock on an open file could be had."""
    try:
        import fcntl
    except ImportError:  # no such locks on this system
        return True
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:  # the file system has no locks
        return True
    return True
