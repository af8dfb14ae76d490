"""Network policies as users choose them: by name, with what each says about itself, and settings as they are typed."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from flowsched.scale.policies import NETWORK_POLICIES, describe_network_policy, make_network_policy
from flowsched.scale.policy import ClassPrices, NetworkPolicy
from flowsched.scale.task_class import MachineKind, TaskClass
from flowsched_models.document import InputError, Problem

_OWN_NAMES = {"flow": "flow-network"}
"""Where a network policy's name means something else to users: flow is the search."""
_BY_USER = {user: own for own, user in _OWN_NAMES.items()}


class GuardedPolicy:
    """A policy, perhaps of somebody else's making: what goes wrong in it is said in one sentence."""

    def __init__(self, inner: NetworkPolicy) -> None:
        """Ask ``inner``."""
        self._inner = inner
        self.name = inner.name
        self.features = inner.features

    def factors(self, kind: MachineKind) -> Sequence[float]:
        """What it says. Raises :class:`InputError` where it fails."""
        with self._told(f"machines of type {kind.type}"):
            return self._inner.factors(kind)

    def price(self, task_class: TaskClass, kinds: Sequence[MachineKind]) -> ClassPrices:
        """What it says. Raises :class:`InputError` where it fails."""
        with self._told(f"class {task_class.name}"):
            return self._inner.price(task_class, kinds)

    @contextmanager
    def _told(self, what: str) -> Iterator[None]:
        try:
            yield
        except InputError:
            raise
        except ValueError as error:  # what a policy says of what it is asked about
            raise InputError([Problem("--policy", None, user_name(self.name), str(error))]) from error
        except Exception as error:  # other people's code: anything may go wrong
            message = f"fails to price {what} ({type(error).__name__}: {error})"
            raise InputError([Problem("--policy", None, user_name(self.name), message)]) from error


def user_name(policy: str) -> str:
    """The name by which users choose a network policy."""
    return _OWN_NAMES.get(policy, policy)


def names() -> tuple[str, ...]:
    """All of them, ours first; nothing is loaded."""
    return tuple(user_name(name) for name in NETWORK_POLICIES)


def described() -> dict[str, str]:
    """A line about each; of one that cannot be loaded, why."""
    found = {}
    for name in NETWORK_POLICIES:
        try:
            notes = describe_network_policy(name)
        except InputError as error:
            found[user_name(name)] = error.problems[0].message
            continue
        text = notes.summary.rstrip(".")
        found[user_name(name)] = f"{text}; of {notes.package}" if notes.package else text
    return found


def chosen(name: str, assignments: Sequence[tuple[str, str]] = ()) -> NetworkPolicy:
    """A policy by the name that users know, with settings as ``(key, value)`` texts.

    Raises :class:`InputError` for one that there is not or that is broken, and for settings that it does not take.
    """
    return make_network_policy(_BY_USER.get(name, name), **{key: _value(text) for key, text in assignments})


def apart(assignments: Sequence[str], policies: Sequence[str]) -> tuple[list[str], Mapping[str, list[tuple[str, str]]]]:
    """Settings that name a policy before a dot, such as ``coco.growth=1``, by policy; and all others as they are."""
    own: list[str] = []
    theirs: dict[str, list[tuple[str, str]]] = {}
    for text in assignments:
        key, equals, value = text.partition("=")
        policy, dot, setting = key.strip().rpartition(".")
        if equals and dot and policy in policies:
            theirs.setdefault(policy, []).append((setting, value.strip()))
        elif equals and dot and policy in names():
            raise InputError([Problem("--set", None, key.strip(), f"is for {policy}", f"add --policy {policy}")])
        else:
            own.append(text)
    return own, theirs


def _value(text: str) -> Any:
    """What was typed: a number, true or false, a list, or text; inf for no limit."""
    if text.lower() in ("inf", "infinity"):
        return float("inf")
    try:
        return json.loads(text.lower() if text in ("True", "False") else text)
    except ValueError:
        return text
