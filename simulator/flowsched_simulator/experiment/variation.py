"""A scenario file with some keys changed, by their paths: ``arrivals.poisson.rate_per_minute``, ``services[0].qps``."""

from __future__ import annotations

import copy
import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from flowsched_models.document import Document, name_help
from flowsched_models.quantity import QuantityError

_PART = re.compile(r"([^.\[\]]+)|\[([^\[\]]+)\]")
_EVERY = "*"


def varied(document: Document, changes: Mapping[str, Any]) -> Document:
    """The document with other values. Keys that are missing are added; the document's reader refuses those it does not know.

    Raises :class:`QuantityError` for a path that leads nowhere.
    """
    data = copy.deepcopy(dict(document.data))
    for path, value in changes.items():
        _set(data, _parts(path), value, path)
    return replace(document, data=data)


def _parts(path: str) -> list[str | int]:
    """Keys as text; ``[0]``, ``[name]`` and ``[*]`` as list items."""
    found = _PART.findall(path)
    rest = _PART.sub("", path)
    if not found or set(rest) - {"."} or path.startswith((".", "[")) or path.endswith(".") or ".." in path:
        raise QuantityError(
            f"'{path}' is not a path to a key", "write it as arrivals.poisson.rate_per_minute or jobs[*].scale"
        )
    return [key if key else (int(item) if item.isdigit() else f"[{item}]") for key, item in found]


def _set(target: Any, parts: list[str | int], value: Any, path: str) -> None:
    part, rest = parts[0], parts[1:]
    if isinstance(part, int) or part.startswith("["):
        for index in _items(target, part, path):
            if rest:
                _set(target[index], rest, value, path)
            else:
                target[index] = copy.deepcopy(value)
        return
    if not isinstance(target, dict):
        raise QuantityError(
            f"'{path}' leads nowhere: there is no mapping with a key '{part}'", "for items of a list, write [0] or [*]"
        )
    if not rest:
        target[part] = copy.deepcopy(value)
        return
    follows_list = isinstance(rest[0], int) or rest[0].startswith("[")
    # `arrivals: all-at-once` gives way to `arrivals.poisson...`; a list does not.
    if not follows_list and not isinstance(target.get(part), dict | list):
        target[part] = {}
    _set(target.get(part), rest, value, path)


def _items(target: Any, part: str | int, path: str) -> list[int]:
    """The items of a list that a part of a path means: one by its number or name, or all."""
    if not isinstance(target, list):
        raise QuantityError(
            f"'{path}' leads nowhere: there is no list at '[{part}]'".replace("[[", "[").replace("]]", "]")
        )
    if isinstance(part, int):
        if part >= len(target):
            raise QuantityError(f"'{path}' leads nowhere: the list has {len(target)} items", "the first item is [0]")
        return [part]
    wanted = part[1:-1]
    if wanted == _EVERY:
        return list(range(len(target)))
    names = [str(item.get("name")) for item in target if isinstance(item, dict)]
    found = [k for k, item in enumerate(target) if isinstance(item, dict) and item.get("name") == wanted]
    if not found:
        raise QuantityError(f"'{path}' leads nowhere: no item is named '{wanted}'", name_help(wanted, names))
    return found
