"""The file of the agent: every mistake at once with its line, and what comes of a good one."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
from agent_fakes import SERVICE

sys.path.append(str(Path(__file__).parent.parent.parent))  # benchmarks are no part of what is installed

from benchmarks.service_loads import highest_load
from flowsched.node import Deadline
from flowsched.support.address import Address
from flowsched.support.configuration import reference
from flowsched_agent.catalogue import HERE, known_settings, machine_here, node_of, service_of, stated_profile
from flowsched_agent.configuration import Command, Configuration, Find
from flowsched_agent.configuration_file import load_configuration
from flowsched_models.document import InputError
from flowsched_models.profiles import load_catalogue

HEAD = "apiVersion: agent.flowsched.io/v1alpha1\nkind: NodeAgent\n"
GOOD = (
    HEAD
    + """
machineType: n2d-highmem-4
cores: 0-3
period: 50ms
statsTimeout: 20ms
services:
  - name: mc
    profile: memcached
    threads: 2
    slo: {p95: 800us}
    client: mcperf-30k
    cores: [2, 0, 1]
    minCores: 2
tasks:
  - name: found
    profile: canneal
    find: {commandLine: "bin/canneal .*"}
    threads: 2
  - name: started
    command: {argv: [sleep, "5"], environment: {A: b}, output: out.txt}
    priority: 3
    deadline: {runtime: 4400us, period: 10ms}
controller: {settings: {calmS: 2, passes: 3}}
kubernetes: {enabled: true, nodeName: node-1, report: 10s, server: {health: ":1", metrics: "[::1]:2"}}
server: "127.0.0.1:0"
stateFile: state/agent.json
onExit: stop
"""
)


def loaded(folder: Path, text: str) -> Configuration:
    path = folder / "agent.yaml"
    path.write_text(text)
    return load_configuration(path)


def mistakes(folder: Path, text: str) -> list[str]:
    with pytest.raises(InputError) as caught:
        loaded(folder, text)
    return [str(problem).removeprefix(f"{folder / 'agent.yaml'}:") for problem in caught.value.problems]


def test_a_whole_file(tmp_path: Path) -> None:
    c = loaded(tmp_path, GOOD)
    assert (c.machine_type, c.cores, c.period_s, c.stats_timeout_s) == ("n2d-highmem-4", (0, 1, 2, 3), 0.05, 0.02)
    (service,) = c.services
    assert (service.cores, service.min_cores, service.slo_us, service.client) == ((2, 0, 1), 2, 800.0, "mcperf-30k")
    assert service.find == Find(port=11211)
    found, started = c.tasks
    assert found.find == Find(command_line="bin/canneal .*")
    assert started.command == Command(
        argv=("sleep", "5"), directory=tmp_path / ".", environment={"A": "b"}, output=tmp_path / "out.txt"
    )
    assert started.deadline is not None and started.deadline.owed == Deadline(4400.0, 10_000.0)
    assert c.controller.settings == {"calmS": 2, "passes": 3}
    assert (c.kubernetes.node_name, c.kubernetes.report_s) == ("node-1", 10.0)
    network = c.kubernetes.server
    assert (str(network.health), str(network.metrics), network.authentication) == (":1", "[::1]:2", "kubernetes")
    assert (c.server, c.state_file, c.on_exit) == (Address("127.0.0.1", 0), tmp_path / "state/agent.json", "stop")


def test_all_mistakes_come_at_once_with_their_lines(tmp_path: Path) -> None:
    text = HEAD + (
        "machineType: n2d-highmem-5\n"  # 3
        "cores: 0-1\n"
        "period: 20ms\n"  # 5
        "services:\n"
        "  - name: mc\n"  # 7
        "    slo: {p95: 1ms}\n"
        "    cores: 1-2\n"  # 9
        "    minCores: 3\n"
        "  - name: other\n"  # 11
        "    profile: memcache\n"
        "    slo: {p95: 5}\n"
        "  - name: third\n"  # 14
        "    profile: memcached\n"
        "    socket: /tmp/x\n"
        "    client: unknown\n"
        "    slo: {p95: 1ms}\n"
        "    capacity: {1: 30K, 2: 20K, x: 1}\n"  # 19
        "tasks:\n"
        "  - name: mc\n"  # 21
        "    find: {pid: 1, port: 2}\n"
        "  - name: both\n"
        "    find: {commandLine: '('}\n"
        "    command: {argv: []}\n"  # 25
        "  - name: neither\n"
        "    deadline: {runtime: 2ms, period: 1ms}\n"
        "controller: {settings: {calm: 1, passes: x}}\n"  # 28
        "colour: red\n"
    )
    said = "\n".join(mistakes(tmp_path, text))
    for expected in (
        "3: machineType: there is no machine type 'n2d-highmem-5'; did you mean 'n2d-highmem-4'?",
        "5: period: statsTimeout (50 ms) must be shorter than period (20 ms)",
        "7: services[0].name: 'mc' stands twice",
        "7: services[0].profile: is missing; name a profile, or state what was measured",
        "9: services[0].cores: core 2 is not among the cores that may be used (0-1)",
        "10: services[0].minCores: must be at most the number of its cores (2), but is 3",
        "13: services[1].slo.p95: 5 has no unit",
        "14: services[2].find: is missing; behind a Unix socket",
        "17: services[2].client: profile memcached was not measured with client 'unknown'",
        "19: services[2].capacity.x: 'x' is not a number of cores",
        "19: services[2].capacity.2: 20K on 2 cores is less than 30K on 1",
        "21: tasks[0].name: 'mc' stands twice",
        "22: tasks[0].find: 2 ways are given (pid, port)",
        "24: tasks[1].find.commandLine: '(' is not a regular expression",
        "25: tasks[1].command.argv: must not be empty",
        "27: tasks[2].deadline.runtime: must not be longer than period (1 ms)",
        "28: controller.settings.calm: there is no key 'calm' here; did you mean 'calmS'?",
        "28: controller.settings.passes: must be a number, but is 'x'",
        "29: colour: there is no key 'colour' here",
    ):
        assert expected in said, f"{expected}\nnot in\n{said}"


@pytest.mark.parametrize(
    "text, expected",
    [
        ("apiVersion: agent.flowsched.io/v2\nkind: NodeAgent\n", "must be agent.flowsched.io/v1alpha1 here"),
        (HEAD, "there is nothing to look after"),
        (HEAD + "kubernetes: {enabled: true}\nperiod: 1m\n", "'m' is not a unit of time here"),
        (HEAD + "kubernetes: {enabled: true}\nperiod: 5ms\nstatsTimeout: 1ms\n", "must be from 10 ms to 10 s"),
        (HEAD + "kubernetes: {enabled: true}\nserver: nowhere\n", "'nowhere' is not an address to listen on"),
        (
            HEAD + "kubernetes: {enabled: true}\nserver: ':9464'\n",
            'server: :9464 is not on loopback; write "127.0.0.1:9464"; kubernetes.server has the addresses on the network',
        ),
        (
            HEAD + "kubernetes: {enabled: true, server: {health: ':1', metrics: ':1'}}\n",
            "kubernetes.server.metrics: :1 and :1 overlap; give each a port of its own",
        ),
        (
            HEAD + "kubernetes: {enabled: true, server: {health: ':9464'}}\n",
            "server: 127.0.0.1:9464 and :9464 overlap",
        ),
        (
            HEAD + "kubernetes: {enabled: true, server: {keyFile: a}}\n",
            "kubernetes.server.certificateFile: is missing, and keyFile is given",
        ),
        (HEAD + "kubernetes: {enabled: true}\nprofilesFiles: [gone.yaml]\n", "there is no such file"),
        (HEAD + "tasks: [{name: a, find: {cgroup: ../up}}]\n", "'../up' is not the path of a cgroup"),
        (HEAD + "tasks: [{name: a, find: {container: xyz}}]\n", "is not the id of a container"),
    ],
)
def test_single_mistakes(text: str, expected: str, tmp_path: Path) -> None:
    assert expected in "\n".join(mistakes(tmp_path, text))


def test_the_reference_names_every_key_once() -> None:
    keys = [key.key for key in reference(Configuration)]
    assert len(keys) == len(set(keys))
    assert {"services[].capacity", "tasks[].command.argv", "kubernetes.report", "stateFile"} <= set(keys)
    assert {k.key: k.default for k in reference(Configuration)}["period"] == "100ms"


def test_the_settings_are_those_of_the_controller() -> None:
    assert "periodS" not in known_settings()
    assert known_settings()["calmS"] == "calm_s"


# Stated capacities


@pytest.mark.parametrize("base", [None, load_catalogue().services["memcached"]], ids=["alone", "with a profile"])
@pytest.mark.parametrize("cores, capacity", [(1, 25_000.0), (2, 40_000.0)])
def test_p95_crosses_the_slo_at_the_stated_capacity(base: object, cores: int, capacity: float) -> None:
    profile = stated_profile("mc", SERVICE, base)  # type: ignore[arg-type]
    curve = profile.curve(SERVICE.threads, cores)
    assert curve is not None
    (client,) = profile.clients
    assert profile.p95_us(curve, capacity, client) == pytest.approx(SERVICE.slo_us, rel=1e-9)
    assert highest_load(profile, curve, SERVICE.slo_us, client) == pytest.approx(capacity, rel=1e-9)
    assert profile.p95_us(curve, 1.05 * capacity, client) > 2 * SERVICE.slo_us


def test_a_machine_without_a_type_gets_one_of_its_size(tmp_path: Path) -> None:
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc/meminfo").write_text("MemTotal:        2097152 kB\n")
    node = node_of(Configuration(services=(SERVICE,), cores=(1, 9)), (0, 1, 2), tmp_path)
    assert node.machine_type == HERE
    assert node.cores == (1,)
    assert node.catalogue.machine_types[HERE].memory_mib == 2048
    assert service_of(node, SERVICE).cores == (1,)


def test_a_machine_with_siblings_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for core, pair in enumerate(("0,2", "1,3", "0,2", "1,3")):
        folder = tmp_path / f"sys/devices/system/cpu/cpu{core}/topology"
        folder.mkdir(parents=True)
        (folder / "thread_siblings_list").write_text(f"{pair}\n")
    monkeypatch.setattr(os, "cpu_count", lambda: 4)
    assert machine_here((0, 1), tmp_path).smt
    assert not machine_here((0, 5), tmp_path).smt
