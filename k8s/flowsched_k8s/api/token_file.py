"""A token in a file that is replaced from time to time."""

from __future__ import annotations

import logging
from pathlib import Path
from threading import Lock

_log = logging.getLogger(__name__)


class TokenFile:
    """Gives what the file holds at each moment. Any thread may ask."""

    def __init__(self, path: Path) -> None:
        """It need not be there yet."""
        self.path = path
        self._last = ""
        self._problem = ""
        self._lock = Lock()

    def read(self) -> str:
        """The token; while the file cannot be read or is empty, as when it is being replaced, the last one that it held.

        Raises :class:`OSError` if there was none.
        """
        with self._lock:
            try:
                found = self.path.read_bytes().decode("ascii").strip()
                problem = "" if found else "it is empty"
            except UnicodeDecodeError:
                found, problem = "", "it is not text"
            except OSError as error:
                found, problem = "", str(error.strerror)
            if problem and problem != self._problem:
                more = "the last token stays in use" if self._last else "there is no token"
                _log.warning("token file %s: %s; %s", self.path, problem, more)
            self._problem = problem
            if not found and not self._last:
                raise OSError(f"token file {self.path}: {problem}")
            self._last = found or self._last
            return self._last
