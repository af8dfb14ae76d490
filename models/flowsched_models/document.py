"""A YAML file as plain data that remembers the line of every key, and the mistakes found in it."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from flowsched_models.text_table import printable

KeyPath = tuple[str | int, ...]
"""Where a value stands in a document: keys and list indices from the top."""

_TOO_DEEP = "the file is nested too deeply"
MAX_DEPTH = 100
"""No form needs a tenth of it."""
ALIASED_VALUES = 100_000
"""Aliases may repeat parts of a document; this many on top is an attack or an accident."""
LONGEST_NUMBER = 1000
"""Digits of a whole number; the largest that any key takes has 19."""
MOST_TOLD = 100
"""Problems of one input that are told; more are counted."""
_SHOWN_NAMES = 12


@dataclass(frozen=True)
class Problem:
    """One mistake in a file, in a form that a person can act on."""

    source: str
    line: int | None
    key: str
    message: str
    help: str = ""

    def __str__(self) -> str:
        """One line: where, what, and how to mend it. Without control characters, whatever stands in the input."""
        place = self.source if self.line is None else f"{self.source}:{self.line}"
        key = f"{self.key}: " if self.key else ""
        return printable(f"{place}: {key}{self.message}" + (f"; {self.help}" if self.help else ""))


class InputError(Exception):
    """Everything that is wrong with an input, at once."""

    exit_code = 2

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems = tuple(problems)
        super().__init__(self.problems)

    @classmethod
    def one(cls, source: str | Path, message: str, help: str = "", key: str = "") -> InputError:
        """With a single problem, of which no line is known."""
        return cls([Problem(str(source), None, key, message, help)])

    @classmethod
    def raise_any(cls, problems: Iterable[Problem]) -> None:
        """Raise with these problems if there are any, in their order."""
        if found := tuple(problems):
            raise cls(found)

    def __str__(self) -> str:
        """One line per problem, of the first hundred."""
        told = [str(p) for p in self.problems[:MOST_TOLD]]
        more = len(self.problems) - len(told)
        return "\n".join([*told, f"... and {more:,} more"] if more else told)


@dataclass(frozen=True)
class Document:
    """Plain data, and where in the file each part of it stands."""

    source: str
    data: Mapping[str, Any]
    lines: Mapping[KeyPath, int]
    path: Path | None = None
    problems: tuple[Problem, ...] = ()
    """Keys that stand twice; :func:`flowsched_models.form.check` reports them with everything else."""

    def line(self, path: KeyPath) -> int | None:
        """The line of a key or list item; of the nearest part around it if it is not in the file."""
        for length in range(len(path), 0, -1):
            if (line := self.lines.get(path[:length])) is not None:
                return line
        return self.lines.get(())

    def problem(self, path: KeyPath, message: str, help: str = "") -> Problem:
        """A problem at a place of this document."""
        return Problem(self.source, self.line(path), key_text(path), message, help)

    def names(self, section: str, key: str = "name") -> tuple[str, ...]:
        """The names in a list of named things, also of entries that have other mistakes."""
        items = self.data.get(section)
        found = [i.get(key) for i in items if isinstance(i, dict)] if isinstance(items, list) else []
        return tuple(name for name in found if isinstance(name, str))

    def beside(self, name: str) -> Path:
        """A file named in this document: relative names are relative to the document."""
        return (self.path.parent / name) if self.path is not None else Path(name)


@dataclass
class Problems:
    """Collects mistakes, so that a reader sees all of them in one go."""

    found: list[Problem] = field(default_factory=list)

    def add(self, problem: Problem) -> None:
        """Remember one."""
        self.found.append(problem)

    def extend(self, problems: Iterable[Problem]) -> None:
        """Remember several."""
        self.found.extend(problems)

    def raise_any(self) -> None:
        """Raise :class:`InputError` if there is any, in file order."""
        if self.found:
            first_seen = {source: i for i, source in reversed(list(enumerate(p.source for p in self.found)))}
            order = sorted(self.found, key=lambda p: (first_seen[p.source], p.line or 0))
            raise InputError(dict.fromkeys(order))


def key_text(path: KeyPath) -> str:
    """``jobs[2].profile`` for ``("jobs", 2, "profile")``."""
    text = ""
    for part in path:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else part
    return text


def nearest(name: str, known: Iterable[str]) -> str | None:
    """The known name that was probably meant."""
    by_lower = {k.lower(): k for k in known}
    close = difflib.get_close_matches(name.lower(), by_lower, n=1, cutoff=0.6)
    return by_lower[close[0]] if close else None


def name_help(name: str, known: Iterable[str]) -> str:
    """What to suggest for a name that does not exist."""
    names = list(dict.fromkeys(known))
    if not names:
        return "there is none to choose from"
    listed = ", ".join(names[:_SHOWN_NAMES]) + (", …" if len(names) > _SHOWN_NAMES else "")
    close = nearest(name, names)
    return f"did you mean '{close}'? (known: {listed})" if close else f"known: {listed}"


def other_separator(header: Sequence[str]) -> tuple[str, str] | None:
    """What is wrong with the header of a CSV file whose columns are not separated by commas, and what helps."""
    for separator, name in ((";", "semicolons"), ("\t", "tabs"), ("|", "vertical bars")):
        if len(header) == 1 and separator in header[0]:
            return f"the columns are not separated by commas, but by {name}", "save the table as CSV with commas"
    return None


def read_document(path: Path, source: str | None = None) -> Document:
    """Read a YAML (or JSON) file whose top level is a mapping. Raises :class:`InputError`."""
    return parse_document(read_text(path, source), source or str(path), path)


def read_text(path: Path, source: str | None = None) -> str:
    """Read a text file; every way in which that can fail is one clear sentence."""
    shown = source or str(path)
    try:
        return path.read_bytes().decode("utf-8-sig")
    except FileNotFoundError:
        message = "there is no such file"
    except IsADirectoryError:
        message = "this is a directory, not a file"
    except UnicodeDecodeError as error:
        message = f"the file is not UTF-8 text (byte {error.start})"
    except (OSError, ValueError) as error:
        message = f"the file cannot be read: {getattr(error, 'strerror', None) or error}"
    raise InputError.one(shown, message)


def parse_document(text: str, source: str, path: Path | None = None) -> Document:
    """Read YAML text whose top level is a mapping. Raises :class:`InputError`."""
    loader: Any = None
    try:
        _check_depth(text)
        loader = _Loader(text)
        root = loader.get_single_node()
        if root is None:
            raise InputError.one(source, "the file is empty")
        builder = _Builder(loader, source, limit=len(text) + ALIASED_VALUES)
        data = builder.build(root, ())
    except yaml.YAMLError as error:
        raise InputError([_syntax_problem(error, source)]) from None
    except RecursionError:
        # Aliases within aliases nest deeper than the text does.
        raise InputError.one(source, _TOO_DEEP) from None
    finally:
        if loader is not None:
            loader.dispose()
    if not isinstance(data, dict):
        kind = "a list" if isinstance(data, list) else "a single value"
        message = f"the file must hold 'key: value' pairs, but it is {kind}"
        raise InputError([Problem(source, root.start_mark.line + 1, "", message)])
    return Document(source, data, builder.lines, path, tuple(builder.duplicates))


def _check_depth(text: str) -> None:
    """Refuse deep nesting before the composer recurses into it: in its C form it has no limit of its own."""
    depth = 0
    for event in yaml.parse(text, Loader=_Loader):
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
            if depth > MAX_DEPTH:
                mark: Any = event.start_mark
                raise yaml.MarkedYAMLError(problem=_TOO_DEEP, problem_mark=mark)
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1


def _syntax_problem(error: yaml.YAMLError, source: str) -> Problem:
    mark = getattr(error, "problem_mark", None) or getattr(error, "context_mark", None)
    parts = [getattr(error, "context", None), getattr(error, "problem", None)]
    detail = ", ".join(p for p in parts if p) or " ".join(str(error).split())
    if "maximum nesting depth" in detail:
        # Some versions of libyaml have a limit of their own, which they reach before ours: they read ahead.
        detail = _TOO_DEEP
    help = "indent with spaces, not tabs" if "\\t" in detail else ""
    if mark is None:
        return Problem(source, None, "", f"not valid YAML: {detail}", help)
    return Problem(source, mark.line + 1, "", f"not valid YAML: {detail} (column {mark.column + 1})", help)


class _Loader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]
    """Resolves plain scalars as YAML 1.2 does.

    YAML 1.1 would take ``no`` for false, ``1:30`` for 90, ``010`` for 8 and ``1e3`` for text: traps in a
    configuration file.
    """

    # PyYAML looks resolvers up on the class, by first character.
    yaml_implicit_resolvers: Mapping[str, Sequence[tuple[str, re.Pattern[str]]]] = {}


def _resolvers() -> dict[str, list[tuple[str, re.Pattern[str]]]]:
    table: dict[str, list[tuple[str, re.Pattern[str]]]] = {}
    rules = [
        ("null", r"~|null|Null|NULL|", ["~", "n", "N", ""]),
        ("bool", r"true|True|TRUE|false|False|FALSE", list("tTfF")),
        ("int", r"[-+]?[0-9]+|0x[0-9a-fA-F]+", list("-+0123456789")),
        (
            "float",
            r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?|[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)",
            list("-+.0123456789"),
        ),
        ("merge", r"<<", ["<"]),
    ]
    for name, pattern, firsts in rules:
        for first in firsts:
            table.setdefault(first, []).append((f"tag:yaml.org,2002:{name}", re.compile(f"^(?:{pattern})$")))
    return table


def _construct_int(loader: Any, node: yaml.ScalarNode) -> int:
    text = str(loader.construct_scalar(node))
    if len(text) <= LONGEST_NUMBER:
        return int(text, 16) if text.lower().startswith("0x") else int(text)
    raise yaml.MarkedYAMLError(problem=f"a number of {len(text):,} digits is too long", problem_mark=node.start_mark)


_Loader.yaml_implicit_resolvers = _resolvers()
_Loader.add_constructor("tag:yaml.org,2002:int", _construct_int)


class _Builder:
    """Turns the node tree into plain data and notes every line on the way."""

    def __init__(self, loader: Any, source: str, limit: int) -> None:
        self.lines: dict[KeyPath, int] = {(): 1}
        self.duplicates: list[Problem] = []
        self._loader = loader
        self._source = source
        self._open: set[int] = set()
        self._left = limit

    def build(self, node: yaml.Node, path: KeyPath) -> Any:
        self._left -= 1
        if self._left < 0:
            self._fail(node, "the file expands to too many values")
        if isinstance(node, yaml.ScalarNode):
            return self._loader.construct_object(node)
        if id(node) in self._open:
            self._fail(node, "an alias contains itself")
        self._open.add(id(node))
        try:
            if isinstance(node, yaml.MappingNode):
                return self._mapping(node, path)
            return self._sequence(node, path)
        finally:
            self._open.discard(id(node))

    def _sequence(self, node: yaml.Node, path: KeyPath) -> list[Any]:
        items = []
        for index, item in enumerate(node.value):
            self.lines[(*path, index)] = item.start_mark.line + 1
            items.append(self.build(item, (*path, index)))
        return items

    def _mapping(self, node: yaml.MappingNode, path: KeyPath) -> dict[str, Any]:
        own: dict[str, int] = {}
        for key_node, _ in node.value:
            name = self._key(key_node)
            line = key_node.start_mark.line + 1
            if name in own and key_node.tag != "tag:yaml.org,2002:merge":
                message = f"the key stands twice in this mapping (first on line {own[name]})"
                self.duplicates.append(Problem(self._source, line, key_text((*path, name)), message))
            own.setdefault(name, line)
        # After the check: a merged key may be overridden by a key of the mapping itself.
        self._loader.flatten_mapping(node)
        data: dict[str, Any] = {}
        for key_node, value_node in node.value:
            name = self._key(key_node)
            self.lines[(*path, name)] = key_node.start_mark.line + 1
            data[name] = self.build(value_node, (*path, name))
        return data

    def _key(self, node: yaml.Node) -> str:
        if not isinstance(node, yaml.ScalarNode):
            self._fail(node, "a key must be a single word")
        # Keys are names: '1' and 'true' too.
        return str(node.value)

    def _fail(self, node: yaml.Node, message: str) -> None:
        raise yaml.MarkedYAMLError(problem=message, problem_mark=node.start_mark)
