"""What happened, tick by tick, as a CSV file: one line for each service and task."""

from __future__ import annotations

import csv
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from flowsched_models.document import InputError

COLUMNS = (
    "t_s",
    "kind",
    "name",
    "state",
    "queries",
    "qps",
    "p95_us",
    "cpu_s",
    "cores",
    "weight",
    "quota",
    "reason",
)


class Recorder:
    """Writes the file; closed at the end, and flushed once a second, so that little is lost with a kill."""

    def __init__(self, path: Path) -> None:
        """Raises :class:`InputError` if the file cannot be written."""
        try:
            self._file = path.open("w", newline="", encoding="utf-8")
        except OSError as error:
            raise InputError.one("--record", f"{path} cannot be written: {error.strerror}") from None
        self._writer = csv.DictWriter(self._file, COLUMNS)
        self._writer.writeheader()
        self._flushed_s = float("-inf")

    def write(self, t_s: float, rows: Iterable[dict[str, Any]]) -> None:
        """The lines of one tick. Raises :class:`OSError`."""
        for row in rows:
            self._writer.writerow({"t_s": f"{t_s:.3f}", **row})
        if t_s - self._flushed_s >= 1.0:
            self._file.flush()
            self._flushed_s = t_s

    def close(self) -> None:
        """Write what is left."""
        self._file.close()
