"""Isolation scenarios: the file, the comparison, the published one in direction and size."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from flowsched_models.document import InputError, parse_document
from flowsched_simulator.isolation.comparison import run
from flowsched_simulator.isolation.page import render_report
from flowsched_simulator.isolation.policies import POLICIES
from flowsched_simulator.isolation.scenario_file import load_isolation_scenario, read_isolation_scenario
from flowsched_simulator.isolation.scenario_form import IsolationForm
from flowsched_simulator.isolation.table import render_table

TEXT = """apiVersion: flowsched/v1
kind: IsolationScenario
name: small
cores: 2
kernel: "6.12"
duration_s: 20
loop: {interval_s: 10}
tasks:
  - {name: a, kind: critical, cpus: 0.4, deviation: 0.05}
  - {name: b, kind: critical, cpus: 0.5}
  - {name: c, kind: background, cpus: 1.5, threads: 2}
"""


def scenario(text: str = TEXT) -> IsolationForm:
    return read_isolation_scenario(parse_document(text, "small.yaml"))


def problems(text: str) -> list[str]:
    with pytest.raises(InputError) as caught:
        scenario(text)
    return [str(problem) for problem in caught.value.problems]


def by_policy(outcome: dict[str, Any]) -> dict[str, Any]:
    return {row["policy"]: row for row in outcome["table"]}


@pytest.mark.parametrize("name", ["isolation-14-tasks", "isolation-14-tasks-periodic"])
def test_the_bundled_ones_hold_the_published_table(name: str) -> None:
    """Its facts by their sums, beside which a mistyped figure shows."""
    found = load_isolation_scenario(name)
    assert (len(found.tasks), found.cores) == (14, 4)
    tasks = [task.task(found.duration_s) for task in found.tasks]
    critical = [task for task in tasks if task.critical]
    assert len(critical) == 7
    assert sum(task.mean_cpus for task in critical) == pytest.approx(1.343)
    assert sum(task.mean_cpus for task in tasks) == pytest.approx(3.967)
    assert sum(task.deviation_cpus for task in tasks) == pytest.approx(1.101)
    assert sum(task.duration_s for task in tasks) == 82_784
    assert found.loop.loop().relative_sleep == (name == "isolation-14-tasks")


def test_the_published_comparison_in_direction_and_size() -> None:
    """Published: deviations 0.03 to 0.05 with deadlines, 0.4 to 1.7 with 95 % shares; delays 3 to 40 times smaller.

    Two of the eight intervals; docs/isolation.md has the whole run.
    """
    found = load_isolation_scenario("isolation-14-tasks").model_copy(update={"duration_s": 600.0})
    rows = by_policy(run(found, ("deadline", "shares-95", "equal")))
    deadline, shares, equal = (rows[name] for name in ("deadline", "shares-95", "equal"))
    assert 0.01 < deadline["deviation"] < 0.06
    assert deadline["late_jobs"] == 0
    assert 0.2 < shares["deviation_of_machine"] < 1.7
    assert shares["delay_ratio"] > 3.0
    assert shares["deviation_ratio"] > 8.0
    assert equal["mean_delay_ms"] > shares["mean_delay_ms"]


def test_what_is_printed_is_plain_data_and_the_same_every_time() -> None:
    one, two = run(scenario()), run(scenario())
    assert json.dumps(one, allow_nan=False) == json.dumps(two, allow_nan=False)
    assert json.dumps(one) != json.dumps(run(scenario(), seed=1))
    assert tuple(by_policy(one)) == POLICIES
    assert len(one["runs"][0]["bandwidth"]) == 20
    assert one["admission"]["room_cpus"] == pytest.approx(1.8)
    text = render_table(one)
    assert all(policy in text for policy in POLICIES)
    assert "given away: 2 cores x (0.95 - 0.05 for ordinary tasks)" in text


def test_the_report_asks_for_nothing_beside_itself() -> None:
    odd = scenario().model_copy(update={"name": "<b>&", "description": "a <script> of 1 < 2"})
    page = render_report(run(odd, ("deadline", "shares-95")))
    assert "<b>" not in page
    assert "<script" not in page
    assert page.count("<svg") == 2
    assert "src=" not in page
    assert "http" not in page.replace("http://www.w3.org/2000/svg", "")


def test_reservations_may_rest_on_an_earlier_run() -> None:
    found = run(scenario(TEXT + "deadline: {reserved: history}\n"), ("deadline",))
    row = found["reservations"][0]
    assert row["task"] == "a"
    # Two deviations of 0.05 over a mean of 0.4.
    assert 0.44 < row["history_reserved_cpus"] < 0.56
    assert found["admission"]["asked_cpus"] == pytest.approx(
        sum(each["history_reserved_cpus"] for each in found["reservations"]), abs=1e-4
    )


def test_what_is_not_admitted_is_not_simulated() -> None:
    with pytest.raises(InputError, match="not admitted"):
        run(scenario(TEXT.replace("cores: 2", "cores: 1")), ("deadline",))
    run(scenario(TEXT.replace("cores: 2", "cores: 1")), ("equal",))


@pytest.mark.parametrize("name", ["shares-0", "shares-100", "shares-", "deadlin", "shares--5"])
def test_unknown_policies(name: str) -> None:
    with pytest.raises(InputError, match=name):
        run(scenario(), (name,))


def test_any_share_can_be_asked_for() -> None:
    assert list(by_policy(run(scenario(), ("shares-80", "shares-99.9", "shares-80")))) == ["shares-80", "shares-99.9"]


def test_all_mistakes_are_said_at_once_with_their_lines() -> None:
    text = (
        TEXT.replace("cpus: 0.4", "cpus: 1.4")
        .replace("name: b", "name: a")
        .replace("interval_s: 10", "interval_s: 1")
        .replace("cores: 2", "cores: 0")
    )
    found = problems(text)
    assert [f.split(":")[1] for f in found] == ["1", "4", "9", "10"]
    assert any("1 threads cannot use 1.4 CPUs" in f for f in found)


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("kind: critical", "kind: background", "no task is critical"),
        ("duration_s: 20", "duration_s: 1e7", "jobs are too many"),
        ("interval_s: 10", "interval_s: 10, period: 5s", "cannot be the period of a reservation"),
        ("interval_s: 10", "interval_s: 10, sleep: never", "sleep"),
        ("kind: IsolationScenario", "kind: Scenario", "IsolationScenario"),
        ("cores: 2", "cores: two", "cores"),
        ('kernel: "6.12"', 'kernel: "new"', "kernel"),
    ],
)
def test_single_mistakes(old: str, new: str, words: str) -> None:
    assert any(words in problem for problem in problems(TEXT.replace(old, new)))


def test_a_file_of_ones_own(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text(TEXT, encoding="utf-8")
    assert load_isolation_scenario(path).name == "small"
