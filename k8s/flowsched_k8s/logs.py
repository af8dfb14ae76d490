"""Logs of the scheduler: one line per message, see :mod:`flowsched.support.log_lines`.

What a message is about is given as ``extra`` (``round``, ``pod``, ``node``, …).
"""

from __future__ import annotations

from typing import TextIO

from flowsched.support import log_lines
from flowsched.support.log_lines import LONGEST, send_logs
from flowsched_k8s.instructions import PodKey

__all__ = ["LONGEST", "JsonFormatter", "TextFormatter", "set_up_logging"]

OWN = ("flowsched", "flowsched_k8s", "flowsched_models")
"""The project's own loggers."""


class JsonFormatter(log_lines.JsonFormatter):
    """See :class:`flowsched.support.log_lines.JsonFormatter`."""

    words = (PodKey,)


class TextFormatter(log_lines.TextFormatter):
    """See :class:`flowsched.support.log_lines.TextFormatter`."""

    words = (PodKey,)


def set_up_logging(format: str, verbosity: int, stream: TextIO | None = None) -> None:
    """Send all logs to a stream, standard error by default, as ``text`` or ``json``.

    Verbosity 0 says what happens, 1 also why, from 2 on also what libraries do.
    """
    send_logs(JsonFormatter() if format == "json" else TextFormatter(), OWN, verbosity, stream)
