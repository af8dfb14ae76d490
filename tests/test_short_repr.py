"""What objects for Python show of themselves, and what calls with a wrong name raise."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from flowsched import load_snapshot, solve
from flowsched_models.document import InputError
from flowsched_models.short_repr import ShortRepr
from flowsched_simulator import Scenario, compare, load_scenario, simulate

SCENARIO = load_scenario("parsec-memcached-2024")
SNAPSHOT = load_snapshot(Path(__file__).parents[1] / "docs" / "examples" / "snapshot.yaml")


@pytest.mark.parametrize("call", [lambda: simulate(SCENARIO, "fifo"), lambda: compare(SCENARIO, ["flow", "fifo"])])
def test_a_policy_that_there_is_not_is_an_input_error(call: object) -> None:
    assert callable(call)
    with pytest.raises(InputError, match=r"^policy: fifo: there is no such policy; .*known: flow, fcfs"):
        call()


def shown() -> list[tuple[ShortRepr, str]]:
    run = simulate(SCENARIO, "all-at-once")
    return [
        (SCENARIO, "<Scenario parsec-memcached-2024: 3 machines, 1 service, 7 jobs, objective makespan>"),
        (SCENARIO.catalogue, "<Catalogue of 8 jobs, 1 service and "),
        (SNAPSHOT, "<Snapshot at 42 s: 3 machines, 1 service, 1 running, 3 pending>"),
        (solve(SNAPSHOT), "<Decisions of a round: 3 placements, 0 postponements>"),
        (run, f"<Run of all-at-once on parsec-memcached-2024: 7 of 7 jobs ended, makespan {run.makespan_s:.1f} s>"),
    ]


def test_an_object_of_thousands_of_values_is_a_line_and_a_table_of_twenty_rows() -> None:
    for value, line in shown():
        assert repr(value).startswith(line) and len(repr(value)) < 150
        html = value._repr_html_()
        assert html.count("<table>") == html.count("</table>") == 1
        assert len(html) < 5000


def test_more_rows_are_counted_and_names_are_escaped() -> None:
    tasks = tuple(replace(SCENARIO.tasks[0], name=f"<b>{k}", job=f"<b>{k}") for k in range(1234))
    many: Scenario = replace(SCENARIO, tasks=tasks)

    html = many._repr_html_()

    assert html.count("<tr>") == 21 and "and 1,214 more" in html
    assert "&lt;b&gt;0" in html and "<b>0" not in html
    assert "1,234 jobs" in repr(many)
