"""Node scenarios in files: the bundled ones, and every mistake at once with its line."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from flowsched.node import Deadline
from flowsched_models.document import InputError
from flowsched_simulator.node.scenario_file import KIND, load_node_scenario
from flowsched_simulator.node.scenario_form import QueuesForm
from flowsched_simulator.scenario_file import bundled_scenarios, load_scenario
from measured_data import cca_data

GOOD = """apiVersion: flowsched/v1
kind: NodeScenario
name: mine
machine: {type: n2d-highmem-4}
services:
  - name: memcached
    profile: memcached
    threads: 2
    cores: [1, 0]
    client: mcperf-sweep
    slo_p95: 1ms
    load: {wave: [5K, 60000], draw: {min: 5K, max: 100K}}
jobs:
  - {name: one, profile: radix, threads: 2}
  - {name: two, profile: vips, threads: 1, submit_s: 4, deadline: {runtime: 4ms, period: 10ms}}
policies:
  two-queue: {threads: {one: 1}, queues: {high: [two], low: [one]}}
"""


def write(folder: Path, text: str) -> Path:
    path = folder / "n.yaml"
    path.write_text(text)
    return path


def problems(folder: Path, text: str) -> list[str]:
    with pytest.raises(InputError) as caught:
        load_node_scenario(write(folder, text))
    return [str(p).replace(f"{folder}/", "") for p in caught.value.problems]


def test_a_file_is_read(tmp_path: Path) -> None:
    scenario = load_node_scenario(write(tmp_path, GOOD))

    assert scenario.cores == (0, 1, 2, 3)
    assert scenario.services[0].cores == (1, 0)
    assert scenario.services[0].slo_us == 1000.0
    assert scenario.loads[0].wave == (5_000.0, 60_000.0)
    assert scenario.submit_s == (0.0, 4.0)
    assert scenario.tasks[1].deadline == Deadline(4_000.0, 10_000.0)
    assert scenario.qps_interval_s == 10.0
    assert scenario.hints["two-queue"].threads == {"one": 1}
    assert scenario.hints["two-queue"].queues == QueuesForm(high=["two"], low=["one"])


@pytest.mark.parametrize("name", [name for name, _ in bundled_scenarios(KIND)])
def test_bundled_scenarios_are_sound(name: str) -> None:
    scenario = load_node_scenario(name)

    assert scenario.name == name
    assert scenario.description
    assert scenario.source == f"{name}.yaml (bundled)"
    assert len(scenario.tasks) == 7
    assert all(load.span is not None for load in scenario.loads)
    for hints in scenario.hints.values():
        named = [job for _, queue in hints.queues or () for job in queue]
        assert sorted(named) in ([], sorted(t.name for t in scenario.tasks))


def test_cluster_scenarios_are_not_mixed_with_those_of_one_machine() -> None:
    clusters, nodes = ({name for name, _ in bundled_scenarios(kind)} for kind in ("Scenario", KIND))

    assert "node-4core-dynamic" in nodes
    assert "parsec-poisson" in clusters
    assert not clusters & nodes
    with pytest.raises(InputError, match="kind: must be Scenario here, but is 'NodeScenario'"):
        load_scenario("node-4core-dynamic")
    with pytest.raises(InputError, match="kind: must be NodeScenario here, but is 'Scenario'"):
        load_node_scenario("parsec-poisson")


@pytest.mark.parametrize(("name", "wave"), [("node-4core-dynamic", "2023-2024"), ("node-4core-dynamic-08", "2025")])
def test_the_bundled_waves_are_the_measured_ones(name: str, wave: str) -> None:
    with (cca_data() / "part4_target_waves.csv").open() as file:
        rows = [(int(r["interval_index"]), float(r["target_qps"])) for r in csv.DictReader(file) if r["wave"] == wave]

    assert load_node_scenario(name).loads[0].wave == tuple(qps for _, qps in sorted(rows))


def test_all_mistakes_come_at_once_with_their_lines(tmp_path: Path) -> None:
    text = """apiVersion: flowsched/v1
kind: NodeScenario
nam: mine
machine: {type: n2d-highmem-4, cores: 6}
services:
  - {name: a, profile: memcachd, threads: 2, cores: [0, 4, 0], client: mcperf-sweep, slo_p95: 1ms, load: {}}
  - {name: a, profile: memcached, threads: 2, cores: [0, 7], client: mcperf, slo_p95: 1ms,
     load: {wave: none.csv, draw: {min: 9K, max: 5K}}}
  - {name: c, profile: memcached, threads: 2, cores: [], client: mcperf-sweep, slo_p95: 1ms, load: {wave: []}}
  - {name: d, profile: memcached, threads: 2, cores: [3], client: mcperf-sweep, slo_p95: 10us, load: {wave: [5X, 3K, -2]}}
qps_interval_s: 0
jobs:
  - {name: one, profile: raddix, threads: 2, deadline: {runtime: 20ms, period: 10ms}}
  - {name: one, profile: radix, threads: 0}
  - {name: two, profile: radix, threads: 1, submit_s: -1}
start_delay_s: -0.5
policies:
  flow-nod: {}
  low-weight: {threads: {onne: 1}, queues: {high: [one, one, three]}}
"""
    found = problems(tmp_path, text)
    assert found == sorted(found, key=lambda p: int(p.split(":")[1]))
    wanted = [
        "n.yaml:3: nam: there is no key 'nam' here; did you mean 'name'?",
        "n.yaml:4: machine.cores: 6 are more than the 4 virtual CPUs of n2d-highmem-4",
        "n.yaml:6: services[0].profile: there is no service profile 'memcachd'; did you mean 'memcached'?",
        "n.yaml:6: services[0].cores[2]: core 0 stands twice",
        "n.yaml:6: services[0].load: there is no load; write wave: [5K, 60K], wave: FILE.csv or draw:",
        "n.yaml:7: services[1].name: the name 'a' stands twice (first on line 6)",
        "n.yaml:7: services[1].cores[1]: there is no core 7; the machine has 0 to 5",
        "n.yaml:7: services[1].client: there is no client of memcached 'mcperf'",
        "n.yaml:8: services[1].load.wave: there is no file 'none.csv'",
        "n.yaml:8: services[1].load.draw.max: 5K is less than min, 9K",
        "n.yaml:9: services[2].cores: must not be empty",
        "n.yaml:9: services[2].load.wave: a wave needs at least one load",
        "n.yaml:10: services[3].load.wave: 'X' is not a multiple of queries per second (number 1 of the list); "
        "a load must be finite and not negative, but is -2 (number 3 of the list)",
        "n.yaml:11: qps_interval_s: must be at least 0.05, but is 0",
        "n.yaml:13: jobs[0].profile: there is no job profile 'raddix'; did you mean 'radix'?",
        "n.yaml:13: jobs[0].deadline.runtime: is longer than the period",
        "n.yaml:14: jobs[1].threads: must be more than 0, but is 0",
        "n.yaml:15: jobs[2].submit_s: must be at least 0, but is -1",
        "n.yaml:16: start_delay_s: must be at least 0, but is -0.5",
        "n.yaml:18: policies.flow-nod: there is no policy 'flow-nod'; did you mean 'flow-node'?",
        "n.yaml:19: policies.low-weight.threads.onne: there is no job 'onne'; did you mean 'one'?",
        "n.yaml:19: policies.low-weight.queues: 'low-weight' has no queues; leave it out; it is for two-queue",
        "n.yaml:19: policies.low-weight.queues.high[1]: job 'one' stands in the queues twice",
        "n.yaml:19: policies.low-weight.queues.high[2]: there is no job 'three'",
    ]
    for words in wanted:
        assert sum(p.startswith(words) for p in found) == 1, (words, found)
    assert len(found) == len(wanted), found


def test_an_unreachable_goal_is_reported(tmp_path: Path) -> None:
    (only,) = problems(tmp_path, GOOD.replace("slo_p95: 1ms", "slo_p95: 50us"))

    assert only.startswith("n.yaml:11: services[0].slo_p95: 50 us cannot be met: p95 is ")


def test_two_services_need_first_cores_of_their_own(tmp_path: Path) -> None:
    text = """apiVersion: flowsched/v1
kind: NodeScenario
name: mine
machine: {type: n2d-highmem-4, cores: 4}
services:
  - {name: a, profile: memcached, threads: 2, cores: [0, 1], client: mcperf-sweep, slo_p95: 1ms, load: {wave: [5K]}}
  - {name: b, profile: memcached, threads: 2, cores: [0, 2], client: mcperf-sweep, slo_p95: 1ms, load: {wave: [5K]}}
  - {name: c, profile: memcached, threads: 2, cores: [3, 0], client: mcperf-sweep, slo_p95: 1ms, load: {wave: [5K]}}
jobs:
  - {name: one, profile: radix, threads: 2}
"""
    (only,) = problems(tmp_path, text)
    assert only.startswith("n.yaml:7: services[1].cores: core 0 is already the first one of service 'a'")

    scenario = load_node_scenario(write(tmp_path, text.replace("[0, 2]", "[2, 0]")))
    assert [s.cores for s in scenario.services] == [(0, 1), (2, 0), (3, 0)]


def test_a_wave_may_stand_in_a_file_beside(tmp_path: Path) -> None:
    (tmp_path / "w.csv").write_text("t_s,qps\n0,5K\n10,60000\n\n")
    scenario = load_node_scenario(write(tmp_path, GOOD.replace("[5K, 60000]", "w.csv")))

    assert scenario.loads[0].wave == (5_000.0, 60_000.0)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "w.csv:1: there must be one column 'qps', in queries per second; the header has no such column"),
        ("load\n5\n", "w.csv:1: there must be one column 'qps', in queries per second; the header has no such column"),
        ("qps\n", "w.csv: there is no load below the header"),
        ("qps\n5K\nmany\n", "w.csv:3: column 'qps': 'many' is not a load in queries per second"),
        ("qps,t_s\n5K\n", "w.csv:2: this line has 1 values, the header 2"),
        ('qps\n"5K\n', "w.csv: not a valid CSV file"),
    ],
)
def test_mistakes_in_a_wave_file_name_its_lines(text: str, words: str, tmp_path: Path) -> None:
    (tmp_path / "w.csv").write_text(text)
    (only,) = problems(tmp_path, GOOD.replace("[5K, 60000]", "w.csv"))

    assert only.startswith(words)


def test_a_job_shares_unless_it_says_otherwise(tmp_path: Path) -> None:
    text = GOOD.replace(
        "{name: one, profile: radix, threads: 2}", "{name: one, profile: radix, threads: 2, shares: false}"
    )
    assert [t.shares for t in load_node_scenario(write(tmp_path, text)).tasks] == [False, True]
    with pytest.raises(InputError, match="shares"):
        load_node_scenario(write(tmp_path, text.replace("shares: false", "shares: seldom")))


def test_one_broken_service_hides_no_other_mistake(tmp_path: Path) -> None:
    """It is the only one: what is left of the list is empty, and that is not the user's mistake."""
    text = GOOD.replace("    threads: 2\n", "    threads: 2\n    treads: 3\n", 1).replace(
        "n2d-highmem-4", "n2d-himem", 1
    )
    found = problems(tmp_path, text)

    assert any("treads" in p for p in found)
    assert any("n2d-himem" in p for p in found)
    assert not any("must not be empty" in p for p in found)


@pytest.mark.parametrize("key", ["services", "jobs"])
def test_an_empty_list_is_said(key: str, tmp_path: Path) -> None:
    text = f"{GOOD[: GOOD.index('services:')]}" + "".join(f"{k}: []\n" for k in ("services", "jobs"))
    assert any(p.endswith(f"{key}: must not be empty") for p in problems(tmp_path, text))
