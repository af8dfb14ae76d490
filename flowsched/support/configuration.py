"""Configurations: one frozen model says what a file may hold, is what the program reads, and shows and documents itself."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, get_args

from pydantic import BeforeValidator, ConfigDict, Field, PlainSerializer, ValidationInfo
from pydantic.alias_generators import to_camel
from pydantic_core import PydanticKnownError

from flowsched_models.form import Form
from flowsched_models.quantity import QuantityError, shown


def _file_key(name: str) -> str:
    """A key of the file: values that it holds with their unit do not name it."""
    for unit in ("_s", "_us", "_mib"):
        name = name.removesuffix(unit)
    return to_camel(name)


class Section(Form):
    """Base: keys are camelCase in the file, and names of fields in code."""

    model_config = ConfigDict(alias_generator=_file_key, validate_by_name=True)

    def plain(self) -> dict[str, Any]:
        """As a file would say it, every key included."""
        return self.model_dump(mode="json", by_alias=True)


def key(meaning: str, default: Any = None, **more: Any) -> Any:
    """A key that may be left out; ``examples`` has what the reference says instead of its default."""
    return Field(default=default, description=meaning, **more)


def written(read: Callable[[Any], Any], form: Any) -> BeforeValidator:
    """How a value is read from a file, which code gives as it is; ``form``: the type that the file has, for schemas."""
    return BeforeValidator(
        lambda value, info: value if info.context is None else read(value), json_schema_input_type=form
    )


def _place(value: Any, info: ValidationInfo) -> Any:
    if info.context is None:
        return value
    if not isinstance(value, str):
        raise PydanticKnownError("string_type")
    if not value or "\0" in value:
        raise QuantityError(f"{shown(value)} is not the name of a file")
    return info.context.beside(value)


def _filled(value: Any) -> Any:
    if value in ([], ()):
        raise QuantityError("must not be empty")
    return value


Place = Annotated[Path, BeforeValidator(_place), PlainSerializer(str)]
"""A file or folder; relative names are relative to the file that names it."""
Several = Field(strict=False)
"""For tuples, which a file has as lists."""
Filled = BeforeValidator(_filled)
"""For tuples with at least one item; a minimum length would also count items that are wrong as missing."""


@dataclass(frozen=True)
class Key:
    """One key of a file."""

    key: str
    """With the keys around it: ``leaderElection.leaseDuration``."""
    default: str
    """As it would stand in the file; empty if there is none."""
    meaning: str


def reference(model: type[Section]) -> tuple[Key, ...]:
    """Every key of a file, in its order; those of a section that stands twice only once."""
    return tuple(_reference(model, {}, "", set()))


def reference_table(model: type[Section]) -> str:
    """The keys as a Markdown table, for the documentation."""
    rows = [f"| `{k.key}` | {f'`{k.default}`' if k.default else ''} | {k.meaning} |" for k in reference(model)]
    return "\n".join(["| Key | Default | Meaning |", "|---|---|---|", *rows]) + "\n"


def _reference(model: type[Section], given: Mapping[str, Any], prefix: str, told: set[type]) -> Iterator[Key]:
    """Keys of a section; what is given takes the place of its own defaults."""
    # Without complaints of the required keys, which have no default.
    own = model.model_construct().model_dump(mode="json", by_alias=True, warnings=False)
    plain = {**own, **given}
    for name, info in model.model_fields.items():
        alias = info.alias or name
        default = plain.get(alias)
        inner = _section(info.annotation)
        if inner is None or info.description:
            shown_default = info.examples[0] if info.examples else _shown(default)
            yield Key(f"{prefix}{alias}", shown_default, info.description or "")
        if inner is not None and inner not in told:
            told.add(inner)
            dots = "[]." if isinstance(default, list) else "."
            given = (default or [{}])[0] if isinstance(default, list) else default or {}
            yield from _reference(inner, given, f"{prefix}{alias}{dots}", told)


def _section(annotation: Any) -> type[Section] | None:
    """The section that a field is, or that its entries are."""
    if isinstance(annotation, type) and issubclass(annotation, Section):
        return annotation
    return next((found for part in get_args(annotation) if (found := _section(part)) is not None), None)


def _shown(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list):
        return f"[{', '.join(map(str, value))}]"
    if isinstance(value, dict):
        return "{}"
    if isinstance(value, str) and value.startswith(":"):
        return f'"{value}"'
    return f"{value:g}" if isinstance(value, float) else str(value)
