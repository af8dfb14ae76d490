"""The Grafana dashboard: sound JSON, and every metric that it shows is one that flowsched has."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import Metric

from flowsched_k8s.metrics.metrics import FAMILIES, Metrics

DASHBOARD = Path(__file__).parent.parent.parent / "k8s" / "dashboards" / "flowsched.json"
HELD = json.loads(DASHBOARD.read_text(encoding="utf-8"))
PANELS = [p for p in HELD["panels"] if p["type"] != "row"]
FUNCTIONS = {"histogram_quantile", "sum", "max", "count", "rate", "increase", "by", "le", "label_values"}


def queries() -> Iterator[str]:
    for panel in PANELS:
        for target in panel["targets"]:
            yield target["expr"]


QUERIES = sorted(set(queries()))


def families() -> dict[str, Metric]:
    return {family.name: family for family in Metrics("0").registry.collect()}


def series(query: str) -> set[str]:
    """Names of series in a query: words that are neither functions nor inside braces, brackets or a by()."""
    bare = re.sub(r'"[^"]*"|\{[^}]*\}|\[[^\]]*\]|by \([^)]*\)', " ", query)
    return {word for word in re.findall(r"[a-zA-Z_]\w+", bare) if word not in FUNCTIONS}


def parts(name: str) -> tuple[str, str]:
    """The family as the client library names it, and the suffix of the series."""
    known = families()
    for suffix in ("", "_total", "_bucket", "_sum", "_count"):
        if name.endswith(suffix) and name.removesuffix(suffix) in known:
            return name.removesuffix(suffix), suffix
    return "", ""


@pytest.mark.parametrize("query", QUERIES)
def test_a_query_asks_for_metrics_that_there_are(query: str) -> None:
    assert series(query)
    for name in series(query):
        family, suffix = parts(name)
        assert family, f"there is no metric {name}"
        kind = families()[family].type
        suffixes = {"counter": {"_total"}, "gauge": {""}, "histogram": {"_bucket", "_sum", "_count"}}
        assert suffix in suffixes[kind], f"{name} is a {kind}"
        assert ("rate(" in query or "increase(" in query) == (kind != "gauge")


@pytest.mark.parametrize("query", QUERIES)
def test_a_query_groups_by_labels_that_the_metric_has(query: str) -> None:
    labels = {family.name.removesuffix("_total"): set(family.labels) for family in FAMILIES}
    grouped = {word.strip() for text in re.findall(r"by \(([^)]*)\)", query) for word in text.split(",")}
    for name in series(query):
        family, suffix = parts(name)
        own = labels.get(family, set()) | {"pod"} | ({"le"} if suffix == "_bucket" else set())
        assert grouped <= own, name


@pytest.mark.parametrize("query", QUERIES)
def test_a_query_is_balanced_and_keeps_to_the_chosen_job(query: str) -> None:
    for opening, closing in ("()", "{}", "[]"):
        assert query.count(opening) == query.count(closing)
    assert query.count('job=~"$job", namespace=~"$namespace"') == len(re.findall(r"\{", query))


def test_metrics_of_our_own_are_all_shown() -> None:
    shown = {parts(name)[0] for query in QUERIES for name in series(query)}
    assert {f.name.removesuffix("_total") for f in FAMILIES} <= shown


def test_the_rows_are_those_that_an_operator_looks_for() -> None:
    rows = [p["title"] for p in HELD["panels"] if p["type"] == "row"]
    assert rows == ["Overview", "Queue", "Latency", "Rounds", "Binds", "API server", "Leader and processes", "Learning"]


def test_panels_have_their_own_numbers_and_do_not_overlap() -> None:
    numbers = [p["id"] for p in HELD["panels"]]
    assert len(numbers) == len(set(numbers))
    taken: set[tuple[int, int]] = set()
    for panel in HELD["panels"]:
        g: dict[str, Any] = panel["gridPos"]
        assert 0 <= g["x"] <= 24 - g["w"]
        cells = {(x, y) for x in range(g["x"], g["x"] + g["w"]) for y in range(g["y"], g["y"] + g["h"])}
        assert not cells & taken, panel["title"]
        taken |= cells


def test_the_data_source_is_chosen_by_the_viewer() -> None:
    names = [v["name"] for v in HELD["templating"]["list"]]
    assert names == ["datasource", "namespace", "job"]
    sources = [p["datasource"] for p in PANELS] + [t["datasource"] for p in PANELS for t in p["targets"]]
    assert all(source == {"type": "prometheus", "uid": "${datasource}"} for source in sources)
    assert HELD["uid"] == "flowsched"
    assert "id" not in HELD, "an id belongs to one Grafana"
    assert HELD["schemaVersion"] >= 39
