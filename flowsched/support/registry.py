"""Classes by name: ours, and those that other packages announce as entry points."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Set
from functools import cached_property
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from flowsched_models.document import InputError, name_help


class Registry(Mapping[str, Any]):
    """Name to class, usable here or not; a class is loaded when it is looked up."""

    def __init__(
        self,
        noun: str,
        group: str,
        built_in: Mapping[str, str],
        check: Callable[[str, Any, str], None],
        error: Callable[[str, str], InputError],
        reserved: Set[str] = frozenset(),
    ) -> None:
        """``noun``: what is registered, for messages. ``group``: of entry points, ``name = "module:Class"``; ``built_in``:
        ours, in the same form. ``check(name, loaded, package)`` raises for what cannot be used; ``error`` makes what is
        raised of a message and a help. ``reserved``: names that no other package may have, beside ours.
        """
        self._noun, self._group, self._built_in, self._reserved = noun, group, built_in, reserved
        self._check, self._error = check, error

    @cached_property
    def _places(self) -> dict[str, str | EntryPoint]:
        # Our own names cannot be taken over: who says ortools gets ours.
        found = sorted(entry_points(group=self._group), key=lambda e: (e.name, e.value))
        own = self._built_in.keys() | self._reserved
        return {**self._built_in, **{entry.name: entry for entry in found if entry.name not in own}}

    def __getitem__(self, name: str) -> Any:
        """The class; raises for an unknown name, one that cannot be loaded, and what cannot be used."""
        place = self._places.get(name)
        if place is None:
            raise self._error(f"there is no {self._noun} '{name}'", name_help(name, self))
        if isinstance(place, str):
            module, _, attribute = place.partition(":")
            return getattr(import_module(module), attribute)
        package = self.package(name) or "another package"
        try:
            loaded = place.load()
        except Exception as error:  # other people's code: anything may go wrong
            message = f"the {self._noun} '{name}' of {package} cannot be loaded ({type(error).__name__}: {error})"
            help = f"install it again, or take another one: {', '.join(self._built_in)}"
            raise self._error(message, help) from error
        self._check(name, loaded, package)
        return loaded

    def __iter__(self) -> Iterator[str]:
        """The names, ours first."""
        return iter(self._places)

    def __len__(self) -> int:
        """How many there are."""
        return len(self._places)

    def __contains__(self, name: object) -> bool:
        """Whether there is one of that name, without loading it."""
        return name in self._places

    def is_ours(self, name: str) -> bool:
        """Whether one is flowsched's own."""
        return name in self._built_in

    def place(self, name: str) -> str:
        """Where the code is, ``module:Class``, without loading it; empty for an unknown name."""
        place = self._places.get(name, "")
        return place if isinstance(place, str) else place.value

    def package(self, name: str) -> str:
        """The distribution that announces it; empty for ours and where it is unknown."""
        place = self._places.get(name, "")
        # Not by its class: where importlib_metadata is imported too, entry points are of that.
        return "" if isinstance(place, str) or place.dist is None else place.dist.name
