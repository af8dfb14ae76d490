from __future__ import annotations

from pathlib import Path

import pytest

from flowsched_models.document import InputError
from flowsched_simulator.schedule import Place
from flowsched_simulator.schedule_file import bundled_schedules, load_schedule

LINES = [
    "{job: blackscholes, machine: node-a-2core, cores: 0, threads: 2, start_s: 0}",
    "{job: ferret, machine: node-b-4core, cores: 0-3, threads: 6, start_s: 0}",
    "{job: vips, machine: node-b-4core, cores: 0-3, threads: 6, after: ferret, request: 2, limit: 3.5}",
    "{job: radix, machine: node-b-4core, cores: 0-3, threads: 8, after: vips}",
    "{job: freqmine, machine: node-c-8core, cores: 0-5, threads: 8, start_s: 0}",
    "{job: canneal, machine: node-c-8core, cores: 2-7, threads: 8, start_s: 0}",
    "{job: dedup, machine: node-c-8core, cores: 0-7, threads: 8, after: freqmine}",
]


def text(lines: list[str], head: str = "cluster: parsec-memcached-2024\n") -> str:
    return head + "tasks:\n" + "".join(f"  - {line}\n" for line in lines)


def problems(tmp_path: Path, content: str) -> list[str]:
    path = tmp_path / "plan.yaml"
    path.write_text(content)
    with pytest.raises(InputError) as caught:
        load_schedule(path)
    return [str(p).replace(f"{tmp_path}/", "") for p in caught.value.problems]


def test_bundled_schedule() -> None:
    assert [name for name, _ in bundled_schedules()] == ["group-048"]
    schedule = load_schedule("group-048")
    assert schedule.cluster == "parsec-memcached-2024"
    assert schedule.services == {"memcached": Place(machine="node-a-2core", cores=(1,), threads=1)}
    assert {(t.job, t.machine, t.cores, t.threads, t.start_s) for t in schedule.tasks} == {
        ("blackscholes", "node-a-2core", (0,), 2, 0.0),
        ("ferret", "node-b-4core", (0, 1, 2, 3), 6, 0.0),
        ("vips", "node-b-4core", (0, 1, 2, 3), 6, 97.0),
        ("radix", "node-b-4core", (0, 1, 2, 3), 8, 133.0),
        ("freqmine", "node-c-8core", (0, 1, 2, 3, 4, 5), 8, 0.0),
        ("canneal", "node-c-8core", (2, 3, 4, 5, 6, 7), 8, 0.0),
        ("dedup", "node-c-8core", tuple(range(8)), 8, 143.0),
    }


def test_short_form_takes_the_place_of_the_service_from_the_scenario(tmp_path: Path) -> None:
    path = tmp_path / "plan.yaml"
    path.write_text(text(LINES))
    schedule = load_schedule(path)
    assert schedule.name == "plan"
    assert schedule.services == {"memcached": Place(machine="node-a-2core", cores=(1,), threads=1)}
    vips = schedule.tasks[2]
    assert (vips.after, vips.start_s, vips.request_milli, vips.limit_milli) == ("ferret", None, 2000, 3500)


def test_scenario_beside_the_schedule(tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text(
        "apiVersion: flowsched/v1\nkind: Scenario\nname: mine\nmachines: [{name: m, type: e2-standard-4}]\n"
        "jobs: [{name: vips, profile: vips, request: 1}]\n"
    )
    path = tmp_path / "plan.yaml"
    path.write_text("cluster: mine.yaml\ntasks: [{job: vips, machine: m, cores: 0-3, threads: 9, start_s: 0}]\n")
    assert load_schedule(path).cluster == str(tmp_path / "mine.yaml")
    path.write_text(path.read_text().replace("mine", "yours"))
    assert problems(tmp_path, path.read_text()) == ["plan.yaml:1: cluster: yours.yaml: there is no such file"]


def test_all_mistakes_at_once(tmp_path: Path) -> None:
    lines = [
        "{job: blackscholes, machine: node-a-2core, cores: 0-2, threads: 2, start_s: 0}",
        "{job: ferret, machine: node-b, cores: 0-3, threads: 6, start_s: 0}",
        "{job: vips, machine: node-b-4core, cores: 3-0, threads: 6, after: feret}",
        "{job: radix, machine: node-b-4core, cores: 0-3, threads: 6, after: vips}",
        "{job: freqmin, machine: node-c-8core, cores: 0-5, threads: 8, start_s: 0}",
        "{job: canneal, machine: node-c-8core, cores: 2-7, threads: 0, start_s: 0}",
        "{job: canneal, machine: node-c-8core, cores: 2-7, threads: 1, start_s: 0, after: radix}",
        "{job: canneal, machine: node-c-8core, cores: 2-7, threads: 1}",
        "{job: dedup, machine: node-c-8core, cores: 0-7, thread: 8, start_s: -1}",
    ]
    head = "cluster: parsec-memcached-2024\nmemcachd: {machine: node-a-2core, cores: 1}\n"
    machines = "(known: node-a-2core, node-b-4core, node-c-8core)"
    assert problems(tmp_path, text(lines, head)) == [
        "plan.yaml:2: memcachd: there is no key and no service 'memcachd' here; did you mean 'memcached'? (known: "
        "memcached, apiVersion, kind, name, description, cluster, tasks)",
        "plan.yaml:4: tasks[0].cores: core 2 does not exist on node-a-2core, which has 0-1",
        f"plan.yaml:5: tasks[1].machine: there is no machine 'node-b'; did you mean 'node-b-4core'? {machines}",
        "plan.yaml:6: tasks[2].cores: the range '3-0' is reversed; write '0-3'",
        "plan.yaml:8: tasks[4].job: there is no job 'freqmin'; did you mean 'freqmine'? (known: blackscholes, "
        "canneal, dedup, ferret, freqmine, radix, vips)",
        "plan.yaml:9: tasks[5].threads: must be more than 0, but is 0",
        "plan.yaml:10: tasks[6]: has both start_s and after; give one of start_s (seconds) and after (a job)",
        "plan.yaml:11: tasks[7].job: the name 'canneal' stands twice (first on line 10)",
        "plan.yaml:11: tasks[7]: needs a start; give one of start_s (seconds) and after (a job)",
        "plan.yaml:12: tasks[8].start_s: must be at least 0, but is -1",
        "plan.yaml:12: tasks[8].thread: there is no key 'thread' here; did you mean 'threads'? (known: job, machine, "
        "cores, threads, start_s, after, request, limit)",
    ]


def test_a_schedule_may_leave_jobs_out_but_not_wait_for_them(tmp_path: Path) -> None:
    first = "{job: radix, machine: node-b-4core, cores: 0-3, threads: 4, start_s: 0}"
    head = "cluster: parsec-memcached-2024\n"
    path = tmp_path / "plan.yaml"
    path.write_text(text([first], head))
    assert [t.job for t in load_schedule(path).tasks] == ["radix"]
    second = "{job: vips, machine: node-b-4core, cores: 0-3, threads: 4, after: ferret}"
    (only,) = problems(tmp_path, text([first, second], head))
    assert "there is no job of this schedule 'ferret'" in only
    (only,) = problems(tmp_path, head + "tasks: []\n")
    assert "tasks: are empty" in only


def test_circles(tmp_path: Path) -> None:
    lines = list(LINES)
    lines[1] = lines[1].replace("start_s: 0", "after: radix")
    lines[6] = lines[6].replace("after: freqmine", "after: dedup")
    assert problems(tmp_path, text(lines)) == [
        "plan.yaml:4: tasks[1].after: waits in a circle: ferret after radix after vips after ferret; give one of "
        "them a start_s",
        "plan.yaml:9: tasks[6].after: waits for itself; give one of them a start_s",
    ]


def test_service_places(tmp_path: Path) -> None:
    head = "cluster: parsec-memcached-2024\nmemcached: {machine: node-a-2core, cores: 0-2, threads: 4}\n"
    found = problems(tmp_path, text(LINES, head))
    assert found[0] == "plan.yaml:2: memcached.cores: core 2 does not exist on node-a-2core, which has 0-1"
    assert "no latency of memcached was measured for 4 threads on 3 cores" in found[1]
    head = "cluster: parsec-memcached-2024\nmemcached: node-a-2core\n"
    assert problems(tmp_path, text(LINES, head))[0].startswith("plan.yaml:2: memcached: must say where")


def test_unknown_cluster_is_the_only_complaint_about_names(tmp_path: Path) -> None:
    head = "cluster: parsec-memcached-2023\nmemcached: {machine: node-a-2core, cores: 1}\n"
    (only,) = problems(tmp_path, text(LINES, head))
    assert only.startswith("plan.yaml:1: cluster: there is no bundled scenario 'parsec-memcached-2023'; did you mean")
    assert problems(tmp_path, "tasks: []\n")[0] == "plan.yaml:1: cluster: is missing"
