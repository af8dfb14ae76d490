"""Logs of the agent: one line per message, see :mod:`flowsched.support.log_lines`.

What a message is about is given as ``extra`` (``target``, ``pid``, …).
"""

from __future__ import annotations

from typing import TextIO

from flowsched.support.log_lines import JsonFormatter, TextFormatter, send_logs

__all__ = ["JsonFormatter", "TextFormatter", "set_up_logging"]

OWN = ("flowsched", "flowsched_agent", "flowsched_k8s", "flowsched_models")
"""The project's own loggers."""


def set_up_logging(format: str, verbosity: int, stream: TextIO | None = None) -> None:
    """Send all logs to a stream, standard error by default, as ``text`` or ``json``.

    Verbosity 0 says what happens, 1 also every act and why, from 2 on also what libraries do.
    """
    send_logs(JsonFormatter() if format == "json" else TextFormatter(), OWN, verbosity, stream)
