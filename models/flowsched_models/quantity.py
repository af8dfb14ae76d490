"""Values with units as people write them: core sets, CPU, memory, durations, loads."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable
from decimal import Decimal, InvalidOperation
from typing import Any

MAX_CORE = 4095
_NUMBER = r"[0-9]+(?:\.[0-9]+)?(?:[eE][-+]?[0-9]+)?"
_MEMORY = re.compile(rf"({_NUMBER})\s*([A-Za-z]*)", re.ASCII)
_DURATION = re.compile(rf"({_NUMBER})\s*([A-Za-zµμ]*)")
_MEMORY_UNITS = {"Ki": Decimal(1) / 1024, "Mi": Decimal(1), "Gi": Decimal(1024), "Ti": Decimal(1024**2)}
_DURATION_UNITS = {"us": 1, "µs": 1, "μs": 1, "ms": 1000, "s": 1_000_000}
SECONDS_IN = {"us": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86_400.0}
"""Units of longer times. Files have such times as numbers of seconds, command lines with their unit."""
_KEYS_OF_TIMES = (("_s", "seconds", 1.0), ("Seconds", "seconds", 1.0), ("_us", "microseconds", 1e-6))
"""By how a key ends: its unit in words, and in seconds."""
_RATE_UNITS = {"": 1, "K": 1000, "k": 1000, "M": 1_000_000}


class QuantityError(ValueError):
    """A value that was understood well enough to say what is wrong with it."""

    def __init__(self, message: str, help: str = "") -> None:
        self.message = message
        self.help = help
        super().__init__(message)


def number_or_nan(text: str) -> float:
    """The number that a text is; NaN for one that is none."""
    try:
        return float(text)
    except ValueError:
        return math.nan


_LONGEST_SHOWN = 60


def shown(value: Any) -> str:
    """A value in an error message."""
    if value is None:
        return "empty"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (list, tuple)):
        return "a list"
    if isinstance(value, dict):
        return "a mapping"
    if isinstance(value, str):
        return f"'{value}'" if len(value) <= _LONGEST_SHOWN else f"'{value[: _LONGEST_SHOWN - 3]}…'"
    if isinstance(value, int) and value.bit_length() > 4 * _LONGEST_SHOWN:
        return f"a number of {value.bit_length()} bits"  # Python does not write longer ones down
    return str(value)


def misfit(value: Any, kind: type) -> str | None:
    """What is wrong with a value of a file for a setting of this type, ``bool``, ``str`` or a number; None if nothing is."""
    what = {bool: "true or false", str: "text"}.get(kind, "a number")
    wanted = kind if kind in (bool, str) else (int, float)
    fits = isinstance(value, wanted) and (kind is bool or not isinstance(value, bool))
    return None if fits else f"must be {what}, but is {shown(value)}"


def number_help(key: str, text: str, whole: bool = False) -> str:
    """How to write as a number what was written with a unit, or in per cent. Empty where that is not known.

    ``whole``: only whole numbers will do.
    """
    found = re.fullmatch(rf"\s*({_NUMBER})\s*([a-z]+|%)\s*", text, re.ASCII)
    if found is None:
        return ""
    try:
        number, unit = _decimal(found[1]), found[2]
    except QuantityError:
        return ""
    words, in_s = next(((words, in_s) for end, words, in_s in _KEYS_OF_TIMES if key.endswith(end)), ("", 1.0))
    if words and unit in SECONDS_IN:
        number, help = number * Decimal(str(SECONDS_IN[unit])) / Decimal(str(in_s)), f"{key} is in {words}: write {{}}"
    elif unit == "%" and not words:
        number, help = number / 100, "write {}"
    else:
        return ""
    return "" if whole and number != int(number) else help.format(_plainly(number))


def parse_words(text: str | None) -> tuple[str, ...]:
    """The words of a list as ``a,b``; what is empty does not count."""
    return tuple(word for part in (text or "").split(",") if (word := part.strip()))


def parse_cores(value: Any) -> tuple[int, ...]:
    """A core set: ``"0-5"``, ``"1,3"``, ``"0-2,5"``, ``3`` or ``[0, 1, 2]``; ascending."""
    parts: list[Any]
    if isinstance(value, str):
        parts = [p.strip() for p in value.split(",")]
    elif isinstance(value, (list, tuple)):
        parts = list(value)
    else:
        parts = [value]
    cores: list[int] = []
    for part in parts:
        cores.extend(_core_range(part, value))
        if len(cores) > MAX_CORE + 1:
            # Some core is named twice by now. Texts come from outside, so nothing grows with the number of parts.
            break
    if not cores:
        raise QuantityError("a core set must name at least one core")
    twice = sorted(core for core, count in Counter(cores).items() if count > 1)
    if twice:
        raise QuantityError(f"the core set names core {', '.join(map(str, twice))} twice")
    return tuple(sorted(cores))


def _core_range(part: Any, whole: Any) -> range:
    help = 'write a core set as "0-5", "1,3" or [0, 1, 2]'
    if isinstance(part, bool) or not isinstance(part, (int, str)):
        raise QuantityError(f"{shown(whole if part is None else part)} is not a core set", help)
    match = re.fullmatch(r"(\d+)(?:\s*-\s*(\d+))?", str(part), re.ASCII)
    if match is None:
        if re.fullmatch(r"-\s*\d+", str(part), re.ASCII):
            raise QuantityError(f"core {part} is negative: cores are numbered from 0", help)
        raise QuantityError(f"{shown(whole)} is not a core set", help)
    if max(len(match[1]), len(match[2] or "")) > 6:
        raise QuantityError(f"{shown(part)} names a core beyond {MAX_CORE}")
    first = int(match[1])
    last = int(match[2]) if match[2] is not None else first
    if last < first:
        raise QuantityError(f"the range '{part}' is reversed", f"write '{last}-{first}'")
    if last > MAX_CORE:
        raise QuantityError(f"core {last} is beyond {MAX_CORE}, the highest number allowed")
    return range(first, last + 1)


def format_cores(cores: Iterable[int]) -> str:
    """The shortest text that :func:`parse_cores` reads as these cores."""
    runs: list[list[int]] = []
    for core in sorted(cores):
        if runs and core == runs[-1][1] + 1:
            runs[-1][1] = core
        else:
            runs.append([core, core])
    return ",".join(str(a) if a == b else f"{a}-{b}" for a, b in runs)


def parse_milli(value: Any) -> int:
    """CPU in cores (``1``, ``0.9``) or thousandths (``"900m"``), as milli-CPU."""
    help = "write cores as 2 or 0.9, or thousandths of a core as 900m"
    text = "" if isinstance(value, bool) else str(value).strip()
    unit = Decimal(1000)
    if isinstance(value, str) and text.endswith("m"):
        text, unit = text[:-1].rstrip(), Decimal(1)
    if not re.fullmatch(f"[-+]?{_NUMBER}", text, re.ASCII):
        raise QuantityError(f"{shown(value)} is not a number of cores", help)
    milli = _decimal(text) * unit
    if milli <= 0:
        raise QuantityError(f"must be more than 0 cores, but is {shown(value)}")
    if milli > 10**9:
        raise QuantityError(f"{shown(value)} cores are more than any machine has")
    if milli != int(milli):
        raise QuantityError(f"{shown(value)} is finer than a thousandth of a core", help)
    return int(milli)


def format_milli(milli: int) -> str:
    """Cores for a message or a file: ``2``, ``0.9``."""
    return f"{Decimal(milli) / 1000:f}" if milli % 1000 else str(milli // 1000)


def count_cores(milli: int) -> str:
    """Cores in a sentence: ``1 core``, ``0.9 cores``."""
    return f"{format_milli(milli)} core{'' if milli == 1000 else 's'}"


def _with_unit(value: Any, form: re.Pattern[str], subject: str, what: str, units: str, help: str) -> tuple[str, str]:
    """Number and unit of a value that must have both; ``units``: how a number ``{0}`` is written with some of them."""
    text = value.strip() if isinstance(value, str) else ""
    match = form.fullmatch(text)
    number = match[1] if match else value
    if (match and not match[2]) or (isinstance(value, (int, float)) and not isinstance(value, bool)):
        raise QuantityError(f"{shown(value)} has no unit", f"give a unit: {units.format(number)}")
    if match:
        return match[1], match[2]
    if text.startswith("-"):
        raise QuantityError(f"{subject} must not be negative, but is {shown(value)}")
    raise QuantityError(f"{shown(value)} is not {what}", help)


def parse_memory(value: Any) -> int:
    """Memory with a unit (``"512Mi"``, ``"2Gi"``), as whole MiB."""
    number, unit = _with_unit(
        value, _MEMORY, "memory", "an amount of memory", "{0}Mi or {0}Gi", "write it as 512Mi or 2Gi"
    )
    if unit not in _MEMORY_UNITS:
        near = next((u for u in _MEMORY_UNITS if u[0].lower() == unit[0].lower()), None)
        meant = f"did you mean '{number}{near}'? (units: Ki, Mi, Gi, Ti)" if near else "units: Ki, Mi, Gi, Ti"
        raise QuantityError(f"'{unit}' is not a unit of memory here", meant)
    mib = _decimal(number) * _MEMORY_UNITS[unit]
    if mib > 10**12:
        raise QuantityError(f"{shown(value)} is more memory than any machine has")
    if mib != int(mib):
        raise QuantityError(f"{shown(value)} is not a whole number of MiB", "write it in Mi")
    return int(mib)


def format_memory(mib: int) -> str:
    """Memory that :func:`parse_memory` reads back."""
    return f"{mib}Mi"


def parse_duration_us(value: Any) -> float:
    """A duration with a unit (``"1ms"``, ``"140 us"``, ``"1 s"``), in microseconds."""
    number, unit = _with_unit(
        value, _DURATION, "a duration", "a duration", "{0}us, {0}ms or {0}s", "write it as 1ms, 140us or 2s"
    )
    if unit not in _DURATION_UNITS:
        raise QuantityError(f"'{unit}' is not a unit of time here", "units: us, ms, s")
    duration = float(_decimal(number) * _DURATION_UNITS[unit])
    if not 0 < duration < float("inf"):
        raise QuantityError(f"a duration must be more than 0 and finite, but is {shown(value)}")
    return duration


def format_duration_us(us: float) -> str:
    """A duration for a message: ``1 ms``, ``140 us``."""
    for limit, unit in ((1e6, "s"), (1e3, "ms")):
        if us >= limit:
            return f"{us / limit:.3g} {unit}"
    return f"{us:.3g} us"


def parse_rate(value: Any) -> float:
    """A load in queries per second: ``30000`` or ``"30K"``."""
    text = "" if isinstance(value, bool) else str(value).strip()
    match = re.fullmatch(rf"(-?{_NUMBER})\s*([A-Za-z]*)", text, re.ASCII)
    help = "write it as 30000 or 30K"
    if match is None:
        raise QuantityError(f"{shown(value)} is not a load in queries per second", help)
    if match[2] not in _RATE_UNITS:
        raise QuantityError(f"'{match[2]}' is not a multiple of queries per second", help)
    rate = float(_decimal(match[1]) * _RATE_UNITS[match[2]])
    if not 0 <= rate < float("inf"):
        raise QuantityError(f"a load must be finite and not negative, but is {shown(value)}")
    return rate


def format_rate(qps: float) -> str:
    """A load for a message: ``30K``."""
    return f"{qps / 1000:g}K" if qps >= 1000 else f"{qps:g}"


def _plainly(number: Decimal) -> str:
    """Without zeros at the end, and without an exponent unless it would be long."""
    text = f"{number.normalize():f}"
    return text if len(text) <= 12 else f"{float(number):g}"


def _decimal(text: str) -> Decimal:
    try:
        number = Decimal(text)
    except InvalidOperation:
        raise QuantityError(f"'{text}' is not a number") from None
    if number.adjusted() > 300:
        raise QuantityError(f"'{text}' is too large")
    return number
