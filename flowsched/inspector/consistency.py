"""A record whose values contradict each other, said in one sentence.

Opening a record checks the shape of everything in it. What its values say together shows only when they are used: a
task that needs what no catalogue has, a flow that is not one, a number so large that sums do not hold it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from decimal import DecimalException
from typing import Any

import numpy as np

from flowsched.inspector.record_view import Part, RecordView
from flowsched_models.document import InputError

FAULTS = (
    KeyError, IndexError, TypeError, ValueError, ArithmeticError, AttributeError, RuntimeError, AssertionError,
    MemoryError,
)  # fmt: skip
"""What reading such values may raise; ``RuntimeError`` is what solvers and too deep a nesting raise."""
_HELP = "if the file was not edited, this is a bug in flowsched"
_OURS = "flowsched"


@contextmanager
def told_as_damage(*records: RecordView) -> Iterator[None]:
    """Around all that is done with opened records: what goes wrong is said as :class:`InputError` about one of them.

    Numpy says nothing about numbers that are too large: what comes of them is not finite, and is refused where it is told.
    """
    try:
        with np.errstate(all="ignore"):
            yield
    except InputError:
        # Some are errors of a lookup too.
        raise
    except FAULTS as error:
        recorded, where = _culprit(records)
        what = told(error)
        source = recorded.source if recorded is not None else "a record"
        raise InputError.one(source, f"is damaged: {what}", _HELP, key=where) from error


def told(error: BaseException) -> str:
    """What went wrong with values, without the words of the programming language."""
    match error:
        case KeyError():
            return f"it names {error}, which it does not have"
        case IndexError():
            return "it points beyond the end of a list"
        case OverflowError() | FloatingPointError() | ZeroDivisionError() | DecimalException():
            return "a number is out of the range that can be worked with"
        case RecursionError():
            return "it is nested too deeply"
        case MemoryError():
            return "it asks for more than the memory holds"
        case ValueError() | RuntimeError() if _is_ours(error):
            return str(error).partition("\n")[0]
    return "its values do not go together"


def _is_ours(error: BaseException) -> bool:
    """Whether a sentence of this program came with an error, rather than one of the language or a library."""
    trace = error.__traceback__
    if trace is None:
        return False
    while trace.tb_next is not None:
        trace = trace.tb_next
    frame = trace.tb_frame
    if str(frame.f_globals.get("__name__", "")).partition(".")[0].partition("_")[0] != _OURS:
        return False
    # Functions written in C raise in the frame of their caller: there it is no statement that raises.
    import linecache

    return linecache.getline(frame.f_code.co_filename, trace.tb_lineno).lstrip().startswith("raise ")


def _culprit(records: tuple[RecordView, ...]) -> tuple[RecordView | None, str]:
    """The record, and the part of it, that cannot be opened; the first one, where all of them can."""
    for recorded in records:
        if not _opens(lambda recorded=recorded: recorded.parts):  # type: ignore[misc]
            return recorded, ""
        for part in recorded.parts:
            if not _opens(lambda part=part: _open(part)):  # type: ignore[misc]
                return recorded, f"parts[{part.index}]"
    if not records:
        return None, ""
    recorded = records[0]
    return recorded, "parts[0]" if len(records) == 1 and len(recorded.plain["parts"]) == 1 else ""


def _opens(look: Callable[[], Any]) -> bool:
    try:
        with np.errstate(all="ignore"):
            look()
    except FAULTS:
        return False
    return True


def _open(part: Part) -> None:
    """All of a part that can be looked at without solving it again."""
    _ = part.machines, part.groups, part.class_of, part.placements, part.waiting, part.certificate
    for graph in part.graphs.values():
        _ = graph.potentials, graph.optimum
