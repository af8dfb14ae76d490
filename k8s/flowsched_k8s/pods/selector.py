"""Selectors of labels and of nodes, in a form that can be compared, hashed and asked quickly.

What the API server should never have accepted (an operator that does not exist, ``In`` without values) matches nothing.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache

from flowsched_k8s.objects import LabelSelector, Node, NodeSelector, NodeSelectorTerm, Requirement

_INTEGER = re.compile(r"[+-]?[0-9]{1,19}", re.ASCII)
_INT64 = 1 << 63
_NAME_FIELD = "metadata.name"
_FEW = 8


@dataclass(frozen=True, order=True)
class Expression:
    """One requirement on a label, its values sorted and each named once."""

    key: str
    operator: str
    values: tuple[str, ...] = ()

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Whether labels meet it."""
        found = labels.get(self.key)
        match self.operator:
            case "In":
                return found is not None and found in self._among
            case "NotIn":
                return found is None or found not in self._among
            case "Exists":
                return found is not None
            case "DoesNotExist":
                return found is None
            case "Gt":
                return _compared(found, self.values[0]) > 0
            case "Lt":
                return _compared(found, self.values[0]) < 0
        return False

    @cached_property
    def _among(self) -> Collection[str]:
        """The values; as a set where looking at one after the other would take longer."""
        return frozenset(self.values) if len(self.values) > _FEW else self.values


@dataclass(frozen=True, order=True)
class LabelTest:
    """A label selector: every expression holds. Without any it matches everything."""

    expressions: tuple[Expression, ...] = ()

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Whether labels are selected."""
        return all(e.matches(labels) for e in self.expressions)

    def narrowed(self, more: Iterable[Expression]) -> LabelTest:
        """The same with further expressions."""
        return LabelTest(tuple(sorted({*self.expressions, *more})))


@dataclass(frozen=True, order=True)
class NodeTerm:
    """One term of a node selector: all of its expressions hold, and it is about one of the names where it has some."""

    labels: tuple[Expression, ...] = ()
    is_named: tuple[str, ...] = ()
    not_named: tuple[str, ...] = ()

    @property
    def size(self) -> int:
        """Of how many parts it is made."""
        return len(self.labels) + len(self.is_named) + len(self.not_named)

    def matches(self, node: Node) -> bool:
        """Whether a node meets it."""
        name = node.metadata.name
        if name in self.not_named or any(name != wanted for wanted in self.is_named):
            return False
        labels = node.metadata.labels or {}
        return all(e.matches(labels) for e in self.labels)


@dataclass(frozen=True, order=True)
class NodeTest:
    """A node selector: any of its terms holds. Without any it matches nothing."""

    terms: tuple[NodeTerm, ...] = ()

    def matches(self, node: Node) -> bool:
        """Whether a node is selected."""
        return any(t.matches(node) for t in self.terms)


def matches(selector: LabelSelector | None, labels: Mapping[str, str] | None) -> bool:
    """Whether a selector selects labels: none at all selects nothing, an empty one everything."""
    test = label_test(selector)
    return test is not None and test.matches(labels or {})


def label_test(selector: LabelSelector | None) -> LabelTest | None:
    """A label selector ready to be asked; ``None`` for one that matches nothing."""
    if selector is None:
        return None
    found = _expressions(selector.match_expressions, numbers=False)
    named = {Expression(key, "In", (value,)) for key, value in (selector.match_labels or {}).items()}
    return None if found is None else LabelTest(tuple(sorted(found | named)))


def node_test(selector: NodeSelector) -> NodeTest:
    """A node selector ready to be asked; terms that match nothing are left out."""
    terms = (node_term(term) for term in selector.node_selector_terms)
    return NodeTest(tuple(sorted({t for t in terms if t is not None})))


def node_term(term: NodeSelectorTerm) -> NodeTerm | None:
    """A term of a node selector; ``None`` for one that matches nothing, such as an empty one."""
    if not term.match_expressions and not term.match_fields:
        return None
    labels = _expressions(term.match_expressions, numbers=True)
    if labels is None:
        return None
    named: dict[str, set[str]] = {"In": set(), "NotIn": set()}
    for requirement in term.match_fields or ():
        values = requirement.values or ()
        if requirement.key != _NAME_FIELD or requirement.operator not in named or len(values) != 1:
            return None
        named[requirement.operator].update(values)
    return NodeTerm(tuple(sorted(labels)), tuple(sorted(named["In"])), tuple(sorted(named["NotIn"])))


def _expressions(requirements: Iterable[Requirement] | None, numbers: bool) -> set[Expression] | None:
    """Requirements in their one form; ``None`` if one is not valid."""
    found = [_expression(requirement, numbers) for requirement in requirements or ()]
    valid = {expression for expression in found if expression is not None}
    return valid if None not in found else None


def _expression(requirement: Requirement, numbers: bool) -> Expression | None:
    """A requirement in its one form; ``None`` if it is not valid."""
    values = tuple(sorted(set(requirement.values or ())))
    match requirement.operator:
        case "In" | "NotIn":
            valid = bool(values)
        case "Exists" | "DoesNotExist":
            valid = not values
        case "Gt" | "Lt":
            valid = numbers and len(requirement.values or ()) == 1 and _integer(values[0]) is not None
        case _:
            valid = False
    return Expression(requirement.key, requirement.operator, values) if valid else None


def _compared(found: str | None, bound: str) -> int:
    """Sign of a label's number minus the bound; 0, which meets neither ``Gt`` nor ``Lt``, if it has no number."""
    number, limit = _integer(found or ""), _integer(bound)
    if number is None or limit is None:
        return 0
    return (number > limit) - (number < limit)


@lru_cache(maxsize=1 << 12)
def _integer(text: str) -> int | None:
    if _INTEGER.fullmatch(text) is None:
        return None
    number = int(text)
    return number if -_INT64 <= number < _INT64 else None
