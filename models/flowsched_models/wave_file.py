"""Waves: the course of a load in a CSV file, one line per interval."""

from __future__ import annotations

import csv
import io
import math
from pathlib import Path

from flowsched_models.document import InputError, Problem, Problems, other_separator, read_text
from flowsched_models.quantity import QuantityError, parse_rate

COLUMN = "qps"
"""The column that is read; others may be there."""


def read_wave(problems: Problems, path: Path, most_qps: float = math.inf) -> tuple[float, ...]:
    """[intervals] the loads of a file, in queries per second; empty where it has mistakes only.

    Every mistake goes to ``problems`` with file, line and column. ``most_qps``: no load may be higher.
    """
    source = str(path)
    try:
        text = read_text(path)
    except InputError as error:
        problems.extend(error.problems)
        return ()
    before = len(problems.found)
    loads: list[float] = []
    reader = csv.reader(io.StringIO(text, newline=""), strict=True)
    try:
        header = [cell.strip() for cell in next(reader, [])]
        if other := other_separator(header):
            problems.add(Problem(source, 1, "", *other))
            return ()
        if header.count(COLUMN) != 1:
            # The file's name may come from a stranger, who may not read it: nothing of it is quoted.
            has = "has it more than once" if COLUMN in header else "has no such column"
            message = f"there must be one column '{COLUMN}', in queries per second; the header {has}"
            problems.add(Problem(source, 1, "", message, f"the first line may be just {COLUMN}"))
            return ()
        at = header.index(COLUMN)
        for row in reader:
            if not any(cell.strip() for cell in row):
                continue
            if len(row) != len(header):
                message = f"this line has {len(row)} values, the header {len(header)}"
                problems.add(Problem(source, reader.line_num, "", message))
                continue
            try:
                loads.append(_load(row[at], most_qps))
            except QuantityError as error:
                problems.add(Problem(source, reader.line_num, f"column '{COLUMN}'", error.message, error.help))
    except csv.Error as error:
        problems.add(Problem(source, None, "", f"not a valid CSV file: {error}"))
    if not loads and len(problems.found) == before:
        problems.add(Problem(source, None, "", "there is no load below the header", "give one line per interval"))
    return tuple(loads)


def _load(text: str, most_qps: float) -> float:
    qps = parse_rate(text)
    if qps > most_qps:
        raise QuantityError(f"no load is beyond {most_qps:g} queries per second, but this is {qps:g}")
    return qps
