"""Lines of logs: one per message, as text or as JSON, without what should not stand in a log.

What a message is about is given as ``extra``. Only plain values are written; of anything else just its type, so that
nothing large or secret gets into a log by accident.
"""

from __future__ import annotations

import json
import logging
import re
import sys
from collections import OrderedDict
from datetime import UTC, datetime
from traceback import walk_tb
from typing import Any, TextIO

OWN = ("flowsched", "flowsched_agent", "flowsched_k8s", "flowsched_models")
"""The project's own loggers."""
LONGEST = 4096
"""Characters of one value or message."""
_FAULTS = 256
"""Different faults that are remembered; the one that was seen longest ago is forgotten first."""

_STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}
_OURS = frozenset({"ts", "level", "logger", "msg"})
_SECRETS = (
    (re.compile(r"(?i)\b(bearer|basic)\s+[\w.~+/-]{8,}=*"), r"\1 ***"),
    (re.compile(r"\beyJ[\w-]{5,}\.[\w-]{5,}\.[\w-]*"), "***"),
    (re.compile(r"(?i)(://[^\s/:@]*):[^\s/@]+@"), r"\1:***@"),
    (re.compile(r"(?i)\b((?:access_|id_|refresh_)?token|password|secret)(\"?\s*[=:]\s*\"?)[^\s\"&,;]+"), r"\1\2***"),
)


def set_up_logging(format: str, verbosity: int, stream: TextIO | None = None, words: tuple[type, ...] = ()) -> None:
    """Send all logs to a stream, standard error by default, as ``text`` or ``json``; ``words``: see the formatters.

    Verbosity 0 says what happens, 1 also why, from 2 on also what libraries do. The Kubernetes client never says more than
    warnings: its details hold tokens.
    """
    handler = logging.StreamHandler(stream if stream is not None else sys.stderr)
    handler.setFormatter(JsonFormatter(words) if format == "json" else TextFormatter(words))
    handler.addFilter(RepeatedFaults())
    root = logging.getLogger()
    for old in root.handlers[:]:
        root.removeHandler(old)
    root.addHandler(handler)
    root.setLevel(logging.DEBUG if verbosity >= 2 else logging.WARNING)
    for name in OWN:
        logging.getLogger(name).setLevel(logging.DEBUG if verbosity >= 1 else logging.INFO)
    for name in ("kubernetes", "urllib3", "requests_oauthlib"):
        logging.getLogger(name).setLevel(logging.WARNING)


class RepeatedFaults(logging.Filter):
    """Lets a fault through whole once; from then on it is counted, and a short line says so the 10th, 100th, ... time."""

    def __init__(self) -> None:
        """No fault has been seen."""
        super().__init__()
        self._times: OrderedDict[tuple[object, ...], int] = OrderedDict()

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether the line is written."""
        if not record.exc_info or record.exc_info[0] is None:
            return True
        kind, fault, _ = record.exc_info
        where = [(frame.f_code, line) for frame, line in walk_tb(record.exc_info[2])][-1:]
        same = record.name, record.msg, kind, *where
        times = self._times[same] = self._times.pop(same, 0) + 1
        if len(self._times) > _FAULTS:
            self._times.popitem(last=False)
        if times == 1:
            return True
        record.exc_info = record.exc_text = None
        record.exception, record.times = f"{kind.__name__}: {fault}", times
        return re.fullmatch("10+", str(times)) is not None


class LineFormatter(logging.Formatter):
    """What both kinds of lines share."""

    def __init__(self, words: tuple[type, ...] = ()) -> None:
        """``words``: types whose values are written as their text: small names that hold no secret."""
        super().__init__()
        self.words = words


class JsonFormatter(LineFormatter):
    """One JSON object per line: ``ts``, ``level``, ``logger``, ``msg``, then what the message is about."""

    def format(self, record: logging.LogRecord) -> str:
        """The line."""
        line: dict[str, Any] = {
            "ts": _timestamp(record),
            "level": record.levelname.lower(),
            "logger": record.name,
            "msg": _message(record),
            **_about(record, self.words),
        }
        if record.exc_info and record.exc_info[0] is not None:
            line["exception"] = _clean(f"{record.exc_info[0].__name__}: {record.exc_info[1]}")
            line["stack"] = _clean(self.formatException(record.exc_info))
        return json.dumps(line, ensure_ascii=False, allow_nan=False)


class TextFormatter(LineFormatter):
    """Time, level, logger, message and ``key=value`` pairs; the lines of a traceback follow indented."""

    def format(self, record: logging.LogRecord) -> str:
        """The line, or lines with a traceback."""
        pairs = "".join(f" {key}={_word(value)}" for key, value in _about(record, self.words).items())
        text = f"{_timestamp(record)} {record.levelname} {record.name}: {_one_line(_message(record))}{pairs}"
        if record.exc_info and record.exc_info[0] is not None:
            stack = _clean(self.formatException(record.exc_info))
            text += "".join(f"\n  {line}" for line in stack.splitlines())
        return text


def _timestamp(record: logging.LogRecord) -> str:
    return datetime.fromtimestamp(record.created, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def _message(record: logging.LogRecord) -> str:
    try:
        return _clean(record.getMessage())
    except Exception:
        # A message whose arguments do not fit is still worth its text.
        return _clean(str(record.msg))


def _about(record: logging.LogRecord, words: tuple[type, ...]) -> dict[str, Any]:
    found = {}
    for key, value in vars(record).items():
        if key not in _STANDARD:
            found[f"{key}_" if key in _OURS else key] = _plain(value, words)
    return found


def _plain(value: Any, words: tuple[type, ...]) -> Any:
    if isinstance(value, words):
        return str(value)
    if isinstance(value, str):
        return _clean(value)
    if value is None or isinstance(value, (bool, int)):
        return value
    if isinstance(value, float):
        return value if value - value == 0 else str(value)
    if isinstance(value, BaseException):
        return _clean(f"{type(value).__name__}: {value}")
    return f"<{type(value).__name__}>"


def _clean(text: str) -> str:
    text = text.encode("utf-8", "replace").decode()
    for pattern, replacement in _SECRETS:
        text = pattern.sub(replacement, text)
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}…"


def _word(value: Any) -> str:
    if isinstance(value, str) and re.fullmatch(r"[^\s\"=\\]+", value) and value.isprintable():
        return value
    text = json.dumps(value, ensure_ascii=False)
    # Some signs beyond ASCII end a line as well.
    return text if text.isprintable() else json.dumps(value)


def _one_line(text: str) -> str:
    """A line break in a message would look like a message of its own."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
