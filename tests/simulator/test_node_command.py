"""``flowsched simulate`` on one machine: tables, files, exit codes, and what does not belong there."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from node_world import Scripted

from flowsched.node import Allocation, Reading, TaskGrant
from flowsched_models.document import InputError
from flowsched_simulator.commands.policies import policies
from flowsched_simulator.commands.scenarios import scenarios
from flowsched_simulator.commands.simulate import UNFINISHED, simulate
from flowsched_simulator.node import comparison
from flowsched_simulator.node.policies import NODE_POLICIES, flow_node_settings

SMALL = """apiVersion: flowsched/v1
kind: NodeScenario
name: small-one
machine: {type: n2d-highmem-4}
services:
  - {name: memcached, profile: memcached, threads: 2, cores: [0, 1], client: mcperf-sweep, slo_p95: 1ms,
     load: {wave: [20K, 60K, 5K]}}
qps_interval_s: 5
jobs:
  - {name: radix, profile: radix, threads: 2, scale: 0.3}
  - {name: vips, profile: vips, threads: 2, scale: 0.1, submit_s: 3}
policies:
  static-2: {threads: {radix: 1}}
"""


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "n.yaml"
    path.write_text(SMALL)
    return path


def ask(*arguments: object) -> Result:
    return CliRunner().invoke(simulate, [str(a) for a in arguments])


def refused(*arguments: object) -> list[str]:
    done = ask(*arguments)
    assert isinstance(done.exception, InputError), done.output
    return [str(p) for p in done.exception.problems]


def answer(*arguments: object) -> dict[str, Any]:
    done = ask(*arguments, "--json")
    assert done.exit_code == 0, (done.output, done.exception)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_all_policies_are_compared_and_reported(file: Path) -> None:
    done = ask(file)

    assert done.exit_code == 0, done.exception
    assert [line.split()[0] for line in done.stdout.splitlines()[3 : 3 + len(NODE_POLICIES)]] == list(NODE_POLICIES)
    folder = file.parent / "out" / "small-one"
    assert (folder / "report.html").read_text().startswith("<!doctype html>")
    told = json.loads((folder / "result.json").read_text())
    assert [run["policy"] for run in told["runs"]] == list(NODE_POLICIES)
    assert all(run["makespan_s"] is not None for run in told["runs"])
    assert "report: out/small-one/report.html" in done.stderr


def test_the_same_seed_gives_the_same_bytes(file: Path) -> None:
    both = [ask(file, "--policy", "flow-node", "--policy", "two-queue", "--seed", 4, "--json").stdout for _ in range(2)]

    assert both[0] == both[1]
    assert json.loads(both[0])["runs"][0]["seed"] == 4
    assert not (file.parent / "out").exists()


def test_threads_of_a_policy_come_from_the_file(file: Path) -> None:
    told = answer(file, "--policy", "static-2", "--policy", "static-1")

    assert [[job["threads"] for job in run["jobs"]] for run in told["runs"]] == [[1, 2], [2, 2]]


def test_a_run_for_every_interval(file: Path) -> None:
    told = answer(file, "--policy", "static-2", "--qps-interval", "5,2.5,5", "--noise", 0)

    assert [run["qps_interval_s"] for run in told["runs"]] == [5.0, 2.5]
    windows = told["runs"][1]["latency"]
    assert [w["qps"] for w in windows[:4]] == pytest.approx([20_000.0, 60_000.0, 5_000.0, 20_000.0])
    assert all(w["p95_us"] == w["model_p95_us"] for w in windows)


def test_a_load_can_be_drawn(file: Path) -> None:
    (only,) = refused(file, "--load-seed", 1)
    assert only.startswith(
        "--load-seed: the load of memcached has no range to draw from; add 'draw: {min: 5K, max: 100K}'"
    )

    file.write_text(SMALL.replace("wave: [20K, 60K, 5K]", "wave: [20K, 60K, 5K], draw: {min: 7K, max: 8K}"))
    told = answer(file, "--policy", "static-2", "--load-seed", 1)
    assert all(7_000 <= w["qps"] <= 8_000.001 for w in told["runs"][0]["latency"])
    assert told["runs"][0]["load_seed"] == 1


def test_settings_reach_flow_node(file: Path) -> None:
    usual = answer(file, "--policy", "flow-node")["runs"][0]
    slow = answer(file, "--policy", "flow-node", "--set", "flow-node.period_s=9", "--set", "flow-node.period_s=1")[
        "runs"
    ][0]

    assert usual["ticks"] > 5 * slow["ticks"]
    assert flow_node_settings(["flow-node.calm-s=3"], ["flow-node"]).calm_s == 3.0


def test_bad_settings_are_told_together(file: Path) -> None:
    found = refused(file, "--set", "flow-node.calm=3", "--set", "due_s=3", "--set", "x", "--set", "flow-node.period_s=0",
                    "--set", "flow-node.passes=many")  # fmt: skip

    assert "did you mean 'flow-node.calm_s=3'?" in found[0]
    assert "there is no setting 'due_s' on one machine" in found[1]
    assert "is not of the form flow-node.KEY=VALUE" in found[2]
    assert found[3] == "--set: flow-node.period_s is 0; give a number from 0.001 to 1e+09"
    assert found[4] == "--set: flow-node.passes is 'many'; give a whole number"
    assert refused(file, "--policy", "static-1", "--set", "flow-node.calm_s=3") == [
        "--set: flow-node.calm_s=3: is for flow-node; add --policy flow-node"
    ]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--schedule", "s.yaml"), "--schedule: has no meaning on one machine"),
        (("--solver", "ortools"), "--solver: has no meaning on one machine"),
        (("--time-limit", "3s"), "--time-limit: has no meaning on one machine"),
        (("--policy", "static-1", "--records", "r"), "--records: are kept of flow-node only; add --policy flow-node"),
        (("--keep-rounds", "2"), "--keep-rounds: has no meaning on one machine"),
        (("--charge-scheduling-time",), "--charge-scheduling-time: has no meaning on one machine"),
        (("--policy", "flow"), "--policy: flow: there is no such policy for one machine; did you mean 'flow-node'?"),
        (("--qps-interval", "0"), "--qps-interval: '0' is not a number of seconds from 0.05"),
        (("--qps-interval", ","), "--qps-interval: names no interval"),
        (("--noise", "-1"), "--noise: -1 is not a number from 0 to 1"),
        (("--noise", "much"), "--noise: much is not a number from 0 to 1"),
    ],
)
def test_options_that_do_not_apply_are_one_sentence(options: tuple[str, ...], words: str, file: Path) -> None:
    (only,) = refused(file, *options)

    assert only.startswith(words)
    assert not (file.parent / "out").exists()


@pytest.mark.parametrize("option", [("--noise", "0"), ("--load-seed", "1"), ("--qps-interval", "5")])
def test_options_of_one_machine_are_refused_on_a_cluster(option: tuple[str, str], file: Path) -> None:
    (only,) = refused("parsec-memcached-2024", *option)

    assert only.startswith(f"{option[0]}: is for scenarios of one machine (kind NodeScenario)")


def test_controllers_are_refused_on_a_cluster(file: Path) -> None:
    (only,) = refused("parsec-memcached-2024", "--policy", "flow-node", "--policy", "flow")

    assert only.startswith("--policy: flow-node: runs one machine: it is for scenarios of kind NodeScenario")


def test_who_cannot_run_a_machine_is_left_out_unless_asked_for(file: Path) -> None:
    second = "  - {name: b, profile: memcached, threads: 2, cores: [3, 2], client: mcperf-sweep, slo_p95: 1ms,\n"
    file.write_text(SMALL.replace("qps_interval_s: 5", f"{second}     load: {{wave: [5K]}}}}\nqps_interval_s: 5"))
    done = ask(file)

    assert done.exit_code == 0, done.exception
    assert "note: left out: two-queue: needs virtual CPUs for jobs alone" in done.stderr
    assert not any(line.startswith("two-queue") for line in done.stdout.splitlines())
    (only,) = refused(file, "--policy", "two-queue")
    assert only.startswith("--policy: two-queue: needs virtual CPUs for jobs alone")


def test_a_job_that_never_ends_has_an_exit_code_of_its_own(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def lazy(reading: Reading) -> Allocation:
        grants = {t.task.name: TaskGrant(t.task.name == "vips", (2, 3), reason="no core") for t in reading.tasks}
        return Allocation(tasks=grants)

    monkeypatch.setattr(comparison, "make_controller", lambda *_: Scripted(lazy, 1.0))
    done = ask(file, "--policy", "static-2")

    assert done.exit_code == UNFINISHED
    assert "never ended: static-2: radix: no core" in done.stderr
    assert "vips:" not in done.stderr
    assert done.stdout.splitlines()[3].split()[1] == "never"
    assert "did not finish" in (file.parent / "out" / "small-one" / "report.html").read_text()


def test_lists_name_machines_and_controllers(file: Path) -> None:
    listed = CliRunner().invoke(scenarios).output
    assert "node-4core-dynamic " in listed
    assert "node-4core-two-services " in listed

    text = CliRunner().invoke(policies).output
    for name, policy in NODE_POLICIES.items():
        assert f"one machine: {policy.summary}" in next(
            line for line in text.splitlines() if line.startswith(f"{name} ")
        )
    about = CliRunner().invoke(policies, ["flow-node"]).output
    assert "flow-node.calm_s" in about
    told = json.loads(CliRunner().invoke(policies, ["flow-node", "--json"]).output)["policies"]
    assert [(p["name"], p["kind"]) for p in told] == [("flow-node", "controller")]
