from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from objects_builders import decoded, label_selectors, label_sets, node, node_terms, requirement, requirements, selector

from flowsched_k8s.objects import LabelSelector, NodeSelector
from flowsched_k8s.pods.selector import label_test, matches, node_test

LABEL_OPERATORS = ("In", "NotIn", "Exists", "DoesNotExist")
NODE_OPERATORS = (*LABEL_OPERATORS, "Gt", "Lt", "Nonsense")


def naive(expression: Any, labels: dict[str, str]) -> bool | None:
    """What the API documentation says, word for word; None for what it does not allow."""
    key, operator, values = expression["key"], expression["operator"], expression.get("values", [])
    if operator in ("In", "NotIn"):
        if not values:
            return None
        inside = key in labels and labels[key] in values
        return inside if operator == "In" else not inside
    if operator in ("Exists", "DoesNotExist"):
        return None if values else (key in labels) == (operator == "Exists")
    if operator in ("Gt", "Lt"):
        if len(values) != 1 or not values[0].lstrip("-").isdigit():
            return None
        if not labels.get(key, "").lstrip("-").isdigit():
            return False
        left, right = int(labels[key]), int(values[0])
        return left > right if operator == "Gt" else left < right
    return None


def selects(data: Any, labels: dict[str, str] | None) -> bool:
    return matches(decoded(LabelSelector, data), labels)


@given(label_selectors(), label_sets())
def test_label_selectors_mean_what_the_documentation_says(data: Any, labels: dict[str, str]) -> None:
    expressions = data.get("matchExpressions", [])
    found = [None if e["operator"] not in LABEL_OPERATORS else naive(e, labels) for e in expressions]
    wanted = None not in found and all(found) and data.get("matchLabels", {}).items() <= labels.items()
    assert selects(data, labels) == wanted


@given(st.lists(st.lists(requirements(NODE_OPERATORS), max_size=2), max_size=3), label_sets())
def test_node_selectors_mean_what_the_documentation_says(terms: list[Any], labels: dict[str, str]) -> None:
    here = node("n1", labels=labels)
    all_labels = dict(here.metadata.labels or {})
    found = [[naive(e, all_labels) for e in term] for term in terms]
    wanted = any(term and None not in term and all(term) for term in found)
    assert node_test(decoded(NodeSelector, node_terms(*terms))).matches(here) == wanted


def test_no_selector_selects_nothing_and_an_empty_one_everything() -> None:
    assert not matches(None, {"app": "web"})
    assert selects({}, {"app": "web"})
    assert selects({}, None)


@given(label_selectors(), st.randoms())
def test_the_same_demand_written_differently_is_equal(data: Any, random: Any) -> None:
    other = dict(reversed(data.items()))
    if "matchLabels" in data:
        keys = list(data["matchLabels"])
        random.shuffle(keys)
        other["matchLabels"] = {k: data["matchLabels"][k] for k in keys}
    if "matchExpressions" in data:
        other["matchExpressions"] = random.sample(data["matchExpressions"], len(data["matchExpressions"]))
    one, two = label_test(decoded(LabelSelector, data)), label_test(decoded(LabelSelector, other))
    assert one == two and hash(one) == hash(two)


def test_a_label_is_the_same_as_being_in_a_list_of_one() -> None:
    by_label = label_test(decoded(LabelSelector, selector(app="web")))
    assert by_label == label_test(decoded(LabelSelector, selector(requirement("app", "In", "web", "web"))))


def test_terms_about_names() -> None:
    def names(*fields: Any) -> Any:
        return node_test(decoded(NodeSelector, {"nodeSelectorTerms": [{"matchFields": list(fields)}]}))

    is_n1 = requirement("metadata.name", "In", "n1")
    assert names(is_n1).matches(node("n1")) and not names(is_n1).matches(node("n2"))
    not_n1 = requirement("metadata.name", "NotIn", "n1")
    assert names(not_n1).matches(node("n2")) and not names(not_n1).matches(node("n1"))
    assert not names(is_n1, not_n1).matches(node("n1"))
    assert not names(is_n1, requirement("metadata.name", "In", "n2")).matches(node("n1"))


@pytest.mark.parametrize(
    "field",
    [
        requirement("metadata.name", "In", "n1", "n2"),
        requirement("metadata.name", "In"),
        requirement("metadata.name", "Exists"),
        requirement("spec.unschedulable", "NotIn", "x"),
    ],
)
def test_fields_that_kubernetes_does_not_allow_match_nothing(field: Any) -> None:
    test = node_test(decoded(NodeSelector, {"nodeSelectorTerms": [{"matchFields": [field]}]}))
    assert not test.matches(node("n1"))


def test_a_term_without_demands_matches_nothing() -> None:
    assert not node_test(decoded(NodeSelector, {"nodeSelectorTerms": [{}]})).matches(node())
    assert not node_test(decoded(NodeSelector, {"nodeSelectorTerms": []})).matches(node())


@pytest.mark.parametrize(
    ("label", "greater"), [("11", True), ("10", False), ("9", False), ("+11", True), ("many", False)]
)
def test_numbers_are_compared_as_numbers(label: str, greater: bool) -> None:
    test = node_test(decoded(NodeSelector, node_terms([requirement("cores", "Gt", "10")])))
    assert test.matches(node(labels={"cores": label})) == greater


@pytest.mark.parametrize("text", [str(1 << 63), "9" * 40, "1_0", " 1", "1.5", "١"])
def test_what_is_no_64_bit_number_is_not_compared(text: str) -> None:
    for operator in ("Gt", "Lt"):
        assert not node_test(decoded(NodeSelector, node_terms([requirement("x", operator, "0")]))).matches(
            node(labels={"x": text})
        )
        assert not node_test(decoded(NodeSelector, node_terms([requirement("x", operator, text)]))).matches(
            node(labels={"x": "0"})
        )
