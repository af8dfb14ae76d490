"""The form of a file: pydantic models, with their complaints translated to our words and lines."""

from __future__ import annotations

import types
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Annotated, Any, Generic, Literal, TypeVar, Union, get_args, get_origin

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, WithJsonSchema
from pydantic_core import InitErrorDetails

from flowsched_models.document import MOST_TOLD, Document, InputError, KeyPath, Problem, name_help, nearest
from flowsched_models.quantity import (
    QuantityError,
    number_help,
    parse_cores,
    parse_duration_us,
    parse_memory,
    parse_milli,
    parse_rate,
    shown,
)

API_VERSION = "flowsched/v1"


class Form(BaseModel):
    """Base of every form: unknown keys and silent conversions are refused."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, allow_inf_nan=False)


def parse_name(value: Any) -> Any:
    """A name, or what is no text at all, which its type refuses. Raises :class:`QuantityError`."""
    if isinstance(value, str) and (not value or not value.isprintable() or " " in value):
        raise QuantityError(f"{shown(value)} is not a name", "a name is one word, without spaces")
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        raise QuantityError(f"a name must be text, but is the number {value}", f'write it in quotes: "{value}"')
    return value


def _schema(description: str, *kinds: str) -> WithJsonSchema:
    return WithJsonSchema({"type": list(kinds), "description": description})


Name = Annotated[str, BeforeValidator(parse_name)]
CoreSet = Annotated[
    tuple[int, ...],
    BeforeValidator(parse_cores),
    _schema('core set: "0-5", "1,3", 3 or [0, 1, 2]', "string", "integer", "array"),
]
MilliCpu = Annotated[int, BeforeValidator(parse_milli), _schema("CPU in cores: 2, 0.9 or 900m", "number", "string")]
MemoryMib = Annotated[int, BeforeValidator(parse_memory), _schema("memory with its unit: 512Mi, 2Gi", "string")]
DurationUs = Annotated[
    float, BeforeValidator(parse_duration_us), _schema("duration with its unit: 1ms, 140us", "string")
]
Rate = Annotated[float, BeforeValidator(parse_rate), _schema("queries per second: 30000 or 30K", "number", "string")]
LARGEST_COUNT = 10**15
"""No whole number of things in a file is larger: sums of thousands of them fit 64 bits, in which rounds add them up."""
PositiveInt = Annotated[int, Field(gt=0, le=LARGEST_COUNT)]
Count = Annotated[int, Field(ge=0, le=LARGEST_COUNT)]
"""A number of things, perhaps none."""
_HIGHEST = (1 << 63) - 1


def beyond_64_bits(value: int) -> str:
    """What is wrong with a whole number that no array of 64 bits holds; empty where one does."""
    if -_HIGHEST <= value <= _HIGHEST:
        return ""
    return f"must be from {-_HIGHEST} to {_HIGHEST}, which 64 bits hold, but is {value}"


def _check_priority(value: int) -> int:
    if message := beyond_64_bits(value):
        raise QuantityError(message)
    return value


Priority = Annotated[
    int,
    AfterValidator(_check_priority),
    WithJsonSchema({"type": "integer", "minimum": -_HIGHEST, "maximum": _HIGHEST}),
]
LARGEST = 1e12
"""No time or factor in a file is larger: beyond it, sums lose seconds."""
Positive = Annotated[float, Field(gt=0, le=LARGEST)]
NotNegative = Annotated[float, Field(ge=0, le=LARGEST)]
Moment = Annotated[float, Field(ge=-LARGEST, le=LARGEST)]
"""A point in time, in seconds; before 0 is allowed."""

F = TypeVar("F", bound=Form)
T = TypeVar("T")


@dataclass(frozen=True)
class Checked(Generic[F]):
    """A form read from a document. If parts were broken, ``value`` is what remains without them."""

    value: F | None
    problems: tuple[Problem, ...] = ()
    broken: frozenset[str] = frozenset()
    """Top-level keys that hold a mistake: what depends on them as a whole cannot be judged."""
    _kept: Mapping[str, tuple[int, ...]] = field(default_factory=dict)

    def items(self, section: str, forms: Sequence[T]) -> Iterator[tuple[KeyPath, T]]:
        """The entries of a list with their places in the document."""
        for position, form in enumerate(forms):
            yield (section, self._kept[section][position] if section in self._kept else position), form


def check_header(document: Document, kind: str, version: str = API_VERSION) -> None:
    """Refuse a document of another kind or version at once: all further complaints would mislead.

    A missing header is left to the form, to be reported with everything else.
    """
    wanted = {"apiVersion": version, "kind": kind}
    InputError.raise_any(
        document.problem((key,), f"must be {value} here, but is {shown(document.data[key])}")
        for key, value in wanted.items()
        if key in document.data and document.data[key] != value
    )


def check(
    document: Document,
    model: type[F],
    data: Mapping[str, Any] | None = None,
    base: KeyPath = (),
    placeholders: Mapping[str, Any] | None = None,
    required: Sequence[str] = (),
) -> Checked[F]:
    """Read a form. After mistakes the broken list items and keys are left out and the rest is read.

    ``placeholders`` stand in for broken required keys, so that checks which do not need them can go on. ``required``
    keys have a default in the form, and yet a file must have them. Validators find the document in their context.
    """
    data = document.data if data is None else data
    errors: list[Any] = [{"type": "missing", "loc": (key,)} for key in required if key not in data]
    try:
        value: F | None = _validated(model, data, document)
        if not errors:
            return Checked(value, () if base else document.problems)
    except ValidationError as error:
        errors += error.errors(include_url=False)
    problems = (*(() if base else document.problems), *_problems(document, model, errors, base))
    broken = frozenset(str(e["loc"][0]) for e in errors if e["loc"])
    rest, kept = _without_broken(model, data, errors, placeholders or {})
    try:
        value = _validated(model, rest, document)
    except ValidationError:
        value = None
    return Checked(value, problems, broken, kept)


def _validated(model: type[F], data: Mapping[str, Any], document: Document) -> F:
    # A field's name in code is no key of a file where they differ.
    return model.model_validate(data, context=document, by_alias=True, by_name=False)


def refused(mistakes: Iterable[tuple[KeyPath, QuantityError]]) -> ValidationError:
    """What a validator raises that found several mistakes, each with its place below the validated key."""
    return ValidationError.from_exception_data(
        "",
        [InitErrorDetails(type="value_error", loc=place, input=None, ctx={"error": e}) for place, e in mistakes],
    )


def _without_broken(
    model: type[Form], data: Mapping[str, Any], errors: Sequence[Any], placeholders: Mapping[str, Any]
) -> tuple[dict[str, Any], dict[str, tuple[int, ...]]]:
    rest = dict(data)
    items: dict[str, set[int]] = {}
    entries: dict[str, set[str]] = {}
    for error in errors:
        loc = error["loc"]
        key = loc[0] if loc else ""
        # A list loses the broken item, a mapping of named things the broken entry, anything else goes whole.
        if len(loc) > 1 and isinstance(loc[1], int) and isinstance(data.get(key), list):
            items.setdefault(key, set()).add(loc[1])
        elif len(loc) > 2 and isinstance(data.get(key), dict) and _is_mapping(_field(model, key)):
            entries.setdefault(key, set()).add(loc[1])
        else:
            rest.pop(key, None)
    kept = {}
    for key, bad in items.items():
        if key in rest:
            kept[key] = tuple(i for i in range(len(data[key])) if i not in bad)
            rest[key] = [data[key][i] for i in kept[key]]
    for key, names in entries.items():
        if key in rest:
            rest[key] = {k: v for k, v in data[key].items() if k not in names}
    for key, value in placeholders.items():
        rest.setdefault(key, value)
    return rest, kept


def _problems(document: Document, model: type[Form], errors: Sequence[Any], base: KeyPath) -> Iterator[Problem]:
    # Names are looked for that may have been meant: not for more keys than are told.
    unknown = dict.fromkeys(islice((e["loc"] for e in errors if e["type"] == "extra_forbidden"), MOST_TOLD))
    for error in errors:
        loc: KeyPath = tuple(error["loc"])
        known = _keys(model, loc[:-1])
        if error["type"] == "missing":
            # A misspelt key is one mistake, not an unknown key and a missing one.
            if any(u[:-1] == loc[:-1] and nearest(str(u[-1]), known) == loc[-1] for u in unknown):
                continue
            yield document.problem(base + loc, "is missing", _missing_help(model, loc))
        elif error["type"] == "extra_forbidden":
            name = str(loc[-1])
            help = name_help(name, known) if loc in unknown else ""
            yield document.problem(base + loc, f"there is no key {shown(name)} here", help)
        else:
            message, help = _words(error)
            yield document.problem(_written(document.data, base + loc), message, help)


def _written(data: Any, path: KeyPath) -> KeyPath:
    """The part of a path that stands in the file: a number may be short for a mapping, and pydantic marks keys."""
    for i, part in enumerate(path):
        if part == "[key]" or isinstance(data, str | int | float):
            return path[:i]
        if isinstance(data, Mapping):
            data = data.get(part)
        else:
            data = data[part] if isinstance(data, list) and isinstance(part, int) and part < len(data) else None
    return path


def _missing_help(model: type[Form], path: KeyPath) -> str:
    annotation: Any = model
    for part in path:
        annotation = _field(annotation, part)
    if get_origin(annotation) is Literal and len(get_args(annotation)) == 1:
        return f"write '{path[-1]}: {get_args(annotation)[0]}'"
    return ""


_TYPES = {
    "string_type": "text",
    "int_type": "a whole number",
    "int_from_float": "a whole number",
    "float_type": "a number",
    "bool_type": "true or false",
    "list_type": "a list",
    "tuple_type": "a list",
    "dict_type": "a mapping of 'key: value' pairs",
    "model_type": "a mapping of 'key: value' pairs",
    "model_attributes_type": "a mapping of 'key: value' pairs",
    "finite_number": "a finite number",
}
_LIMITS = {
    "greater_than": ("gt", "more than"),
    "greater_than_equal": ("ge", "at least"),
    "less_than": ("lt", "less than"),
    "less_than_equal": ("le", "at most"),
}


def _words(error: Any) -> tuple[str, str]:
    """What pydantic found, in our words: message and help."""
    kind, value, context = error["type"], error.get("input"), error.get("ctx", {})
    if kind == "value_error":
        cause = context.get("error")
        return (cause.message, cause.help) if isinstance(cause, QuantityError) else (str(cause), "")
    if kind in _TYPES:
        return f"must be {_TYPES[kind]}, but is {shown(value)}", _type_help(error)
    if kind in _LIMITS:
        name, words = _LIMITS[kind]
        limit = context[name] if isinstance(context[name], int) else f"{context[name]:g}"
        return f"must be {words} {limit}, but is {shown(value)}", _limit_help(error)
    if kind == "literal_error":
        expected = [w.strip().strip("'") for w in context["expected"].replace(" or ", ", ").split(",")]
        wanted = f"must be {expected[0]}" if len(expected) == 1 else f"must be one of {', '.join(expected)}"
        close = nearest(str(value), expected) if len(expected) > 1 else None
        return f"{wanted}, but is {shown(value)}", f"did you mean '{close}'?" if close else ""
    if kind in ("too_short", "string_too_short"):
        return "must not be empty", ""
    text = str(error["msg"])
    return text[:1].lower() + text[1:], ""


def _limit_help(error: Any) -> str:
    """The cure of a time that no seconds are so many of."""
    key = str(error["loc"][-1]) if error["loc"] else ""
    if error["type"] != "less_than_equal" or not key.endswith("_s"):
        return ""
    return "it is in seconds: divide what is in milliseconds or microseconds, and count from the first of all"


def _type_help(error: Any) -> str:
    """The cure of a text instead of a number; other types have none that is not in the message."""
    value, wanted = error.get("input"), _TYPES[error["type"]]
    if not isinstance(value, str) or wanted not in ("a number", "a whole number"):
        return ""
    if value.isascii() and value.isdigit():
        return f"write {value}, without quotes"
    key = next((part for part in reversed(error["loc"]) if isinstance(part, str)), "")
    return number_help(key, value, whole=wanted == "a whole number")


def _keys(model: type[Form], path: KeyPath) -> list[str]:
    """The keys that a form knows at a place."""
    annotation: Any = model
    for part in path:
        annotation = _field(annotation, part)
    annotation = _bare(annotation)
    if not (isinstance(annotation, type) and issubclass(annotation, BaseModel)):
        return []
    return [f.alias or name for name, f in annotation.model_fields.items()]


def _field(annotation: Any, part: str | int) -> Any:
    annotation = _bare(annotation)
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return next((f.annotation for n, f in annotation.model_fields.items() if part in (f.alias, n)), None)
    arguments = get_args(annotation)
    if not arguments:
        return None
    return arguments[-1] if get_origin(annotation) is dict else arguments[0]


def _bare(annotation: Any) -> Any:
    """An annotation without ``Annotated`` and ``| None``."""
    while True:
        origin = get_origin(annotation)
        if origin is Annotated:
            annotation = get_args(annotation)[0]
        elif origin in (Union, types.UnionType):
            annotation = next(a for a in get_args(annotation) if a is not type(None))
        else:
            return annotation


def _is_mapping(annotation: Any) -> bool:
    return get_origin(_bare(annotation)) is dict
