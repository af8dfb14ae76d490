"""What docs/agent.md says is what there is: keys, metrics, columns, annotations and its example."""

from __future__ import annotations

import re
from pathlib import Path

from flowsched.support.configuration import reference_table
from flowsched_agent.configuration import Configuration
from flowsched_agent.configuration_file import load_configuration
from flowsched_agent.metrics import FAMILIES
from flowsched_agent.recorder import COLUMNS
from flowsched_k8s import names
from site_pages import site_page

DOCS = Path(__file__).parents[2] / "docs"
PAGE = "".join(site_page(name) for name in ("agent.md", "agent-reference.md"))
TUTORIAL = (DOCS / "tutorials" / "agent.md").read_text(encoding="utf-8")


def test_every_key_is_listed_with_its_default() -> None:
    assert reference_table(Configuration) in PAGE


def test_every_metric_is_listed() -> None:
    for family in FAMILIES:
        kind = ": ".join(filter(None, (family.kind, ", ".join(f"`{label}`" for label in family.labels))))
        assert f"| `{family.name}` | {kind} | {family.help} |\n" in PAGE


def test_every_column_and_annotation_is_named() -> None:
    for name in COLUMNS:
        assert f"`{name}`" in PAGE
    for name in (names.LOAD, names.SERVICE_LOAD, names.SERVICE_HEADROOM, names.SERVICE_CORES, names.BATCH_TASKS):
        assert f"`{name}`" in PAGE


def test_the_example_loads(tmp_path: Path) -> None:
    example = re.search(r"```yaml\n(.*?)```", TUTORIAL, re.DOTALL)
    assert example is not None
    (tmp_path / "agent.yaml").write_text(example[1])
    configuration = load_configuration(tmp_path / "agent.yaml")
    assert [t.name for t in configuration.tasks] == ["running-already", "to-be-started"]
