from __future__ import annotations

from pathlib import Path

import pytest

from flowsched.cluster.snapshot import StartDelay
from flowsched.relations.relation import MACHINE, Relation, RelationKind, TaskGroup
from flowsched_models.document import InputError
from flowsched_simulator.scenario import Arrivals, Objective
from flowsched_simulator.scenario_file import bundled_scenarios, load_scenario

HEAD = "apiVersion: flowsched/v1\nkind: Scenario\nname: test\n"
MACHINES = (
    "machines:\n  - {name: small, type: n2d-highcpu-2}\n  - {name: large, type: e2-standard-8, labels: {zone: a}}\n"
)
MEMCACHED = (
    "  - {name: memcached, profile: memcached, machine: small, cores: 1, qps: 30K, slo_p95: 1ms, client: mcperf-30k}\n"
)
JOBS = "jobs:\n  - {name: radix, profile: radix, request: 4, widths: [4, 1, 2]}\n"


def write(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "s.yaml"
    path.write_text(text)
    return path


def problems(tmp_path: Path, text: str) -> list[str]:
    path = write(tmp_path, text)
    with pytest.raises(InputError) as caught:
        load_scenario(path)
    return [str(p).replace(f"{tmp_path}/", "") for p in caught.value.problems]


def one(tmp_path: Path, text: str) -> str:
    (only,) = problems(tmp_path, text)
    return only


def test_bundled_scenario() -> None:
    scenario = load_scenario("parsec-memcached-2024")
    assert scenario.name == "parsec-memcached-2024"
    assert scenario.source == "parsec-memcached-2024.yaml (bundled)"
    assert scenario.objective is Objective.MAKESPAN
    assert [(m.name, m.cpu_milli, m.memory_mib, m.vcpus) for m in scenario.machines] == [
        ("node-a-2core", 2000, 1400, 2),
        ("node-b-4core", 4000, 29000, 4),
        ("node-c-8core", 8000, 28600, 8),
    ]
    (memcached,) = scenario.services
    assert (memcached.machine, memcached.cores, memcached.qps, memcached.slo_us) == (
        "node-a-2core",
        (1,),
        30_000.0,
        1000.0,
    )
    assert {t.name: t.request_milli for t in scenario.tasks} == {
        "blackscholes": 1000,
        "canneal": 4000,
        "dedup": 4000,
        "ferret": 4000,
        "freqmine": 4000,
        "radix": 4000,
        "vips": 4000,
    }
    assert {t.widths_milli for t in scenario.tasks} == {(1000, 2000, 4000)}
    assert scenario.start_delay == StartDelay(1.0, 3.0)
    assert scenario.arrivals == Arrivals()


def test_all_bundled_scenarios_load_under_their_own_names() -> None:
    listed = bundled_scenarios()
    names = ["memcached-tight-goal", "parsec-memcached-2024", "parsec-memcached-2024-c", "parsec-poisson"]
    names += ["thesis-100-jobs", "thesis-10000-jobs", "thesis-table-7"]
    assert [n for n, _ in listed] == names
    for name, description in listed:
        assert load_scenario(name).name == name
        assert description
    (memcached,) = load_scenario("parsec-memcached-2024-c").services
    assert (memcached.machine, memcached.cores) == ("node-c-8core", (0,))
    poisson = load_scenario("parsec-poisson")
    assert len(poisson.tasks) == 40
    assert poisson.arrivals == Arrivals("poisson", 6.0)
    assert {min(t.scale for t in poisson.tasks), max(t.scale for t in poisson.tasks)} == {0.3, 3.0}


def test_unknown_bundled_name() -> None:
    with pytest.raises(InputError) as caught:
        load_scenario("parsec-memcached-2042")
    assert str(caught.value) == (
        "parsec-memcached-2042: there is no bundled scenario 'parsec-memcached-2042'; did you mean "
        "'parsec-memcached-2024'? (known: memcached-tight-goal, parsec-memcached-2024, parsec-memcached-2024-c, "
        "parsec-poisson, thesis-100-jobs, thesis-10000-jobs, thesis-table-7), "
        "or give a path to a file"
    )
    with pytest.raises(InputError, match="there is no such file"):
        load_scenario("elsewhere/s.yaml")


def test_defaults_copies_and_text_paths(tmp_path: Path) -> None:
    jobs = "jobs:\n  - {name: radix, profile: radix, request: 0.5, copies: 3, goal_s: 60, machines: [large]}\n"
    scenario = load_scenario(str(write(tmp_path, HEAD + MACHINES + "services:\n" + MEMCACHED + jobs)))
    assert [t.name for t in scenario.tasks] == ["radix-1", "radix-2", "radix-3"]
    task = scenario.tasks[0]
    assert (task.widths_milli, task.memory_mib, task.goal_s, task.machines) == (
        (500,),
        2560,
        60.0,
        ("large",),
    )
    assert scenario.objective is Objective.COMPLETION
    assert scenario.machines[1].labels == (("zone", "a"),)
    (memcached,) = scenario.services
    assert (memcached.width_milli, memcached.memory_mib, memcached.threads) == (1000, 512, 1)


def test_another_kind_of_file_is_said_at_once(tmp_path: Path) -> None:
    text = "apiVersion: v1\nkind: Pod\nspec: {}\n"
    assert problems(tmp_path, text) == [
        "s.yaml:1: apiVersion: must be flowsched/v1 here, but is 'v1'",
        "s.yaml:2: kind: must be Scenario here, but is 'Pod'",
    ]


def test_all_mistakes_come_at_once_with_their_lines(tmp_path: Path) -> None:
    text = """\
apiVersion: flowsched/v1
kind: Scenario
name: wrong
objektive: makespan
machines:
  - {name: small, type: n2d-highcpu2}
  - {name: large, type: e2-standard-8}
  - {name: large, type: e2-standard-8, memory: 512}
services:
  - name: memcached
    profile: memcached
    machine: large
    cores: "7-8"
    qps: 300K
    slo_p95: 1
    client: mcperf-30k
  - name: other
    profile: memcached
    machine: huge
    cores: 0
    threads: 3
    qps: 30K
    slo_p95: 1ms
    client: mcperf
jobs:
  - name: freqmine
    profile: freqmin
    request: 4
  - {name: freqmine, profile: freqmine, request: 4, scale: 0}
  - {name: radix, profile: radix, request: 4, widths: [1, 1], machines: [lage]}
arrivals: {poison: {rate_per_minute: 6}}
start_delay: {at_submission_s: -1}
"""
    assert problems(tmp_path, text) == [
        "s.yaml:4: objektive: there is no key 'objektive' here; did you mean 'objective'? (known: apiVersion, kind, "
        "name, description, objective, profiles, machines, services, jobs, arrivals, start_delay, relations, …)",
        "s.yaml:6: machines[0].type: there is no machine type 'n2d-highcpu2'; did you mean 'n2d-highcpu-2'? (known: "
        "c3-highcpu-4, e2-highmem-2, e2-standard-2, e2-standard-4, e2-standard-8, n2-highcpu-2, n2-highmem-4, "
        "n2-standard-4, n2-standard-8, n2d-highcpu-2, n2d-highcpu-4, n2d-highmem-4, …)",
        "s.yaml:8: machines[2].memory: 512 has no unit; give a unit: 512Mi or 512Gi",
        "s.yaml:15: services[0].slo_p95: 1 has no unit; give a unit: 1us, 1ms or 1s",
        "s.yaml:19: services[1].machine: there is no machine 'huge'; known: small, large",
        "s.yaml:21: services[1].threads: no latency of memcached was measured for 3 threads on 1 core; measured: "
        "1 thread on 1 core, 1 thread on 2 cores, 2 threads on 1 core, 2 threads on 2 cores",
        "s.yaml:24: services[1].client: there is no client of memcached 'mcperf'; did you mean 'mcperf-30k'? "
        "(known: mcperf-sweep, mcperf-30k, mcperf-dynamic)",
        "s.yaml:27: jobs[0].profile: there is no job profile 'freqmin'; did you mean 'freqmine'? (known: "
        "blackscholes, canneal, dedup, ferret, freqmine, radix, vips, neutral)",
        "s.yaml:29: jobs[1].scale: must be more than 0, but is 0",
        "s.yaml:30: jobs[2].machines[0]: there is no machine 'lage'; did you mean 'large'? (known: small, large)",
        "s.yaml:30: jobs[2].widths: names a width twice",
        "s.yaml:31: arrivals.poison: there is no key 'poison' here; did you mean 'poisson'? (known: poisson, diurnal, "
        "bursty, file)",
        "s.yaml:32: start_delay.at_submission_s: must be at least 0, but is -1",
    ]


@pytest.mark.parametrize(
    ("job", "message"),
    [
        (
            "{name: x, profile: vips, request: 16}",
            "jobs[0].request: job 'x' needs at least 16 cores on one machine; the widest, large, has 8 beside its "
            "services; ask for less, or add a wider machine",
        ),
        (
            "{name: x, profile: vips, request: 16, widths: [1]}",
            "jobs[0].request: job 'x' requests 16 cores on one machine; the widest, large, has 8 beside its services; "
            "ask for less, or add a wider machine",
        ),
        (
            "{name: x, profile: vips, request: 4, widths: [2, 4], machines: [small]}",
            "jobs[0].widths: job 'x' needs at least 2 cores on one machine; the widest of those it may run on, small, "
            "has 1 beside its services; ask for less, or add a wider machine",
        ),
        (
            "{name: x, profile: radix, request: 1, machines: [small]}",
            "jobs[0].memory: job 'x' needs 2560Mi on one machine; the largest of those it may run on, small, has "
            "888Mi beside its services; ask for less, or add a larger machine",
        ),
    ],
)
def test_jobs_that_fit_nowhere(tmp_path: Path, job: str, message: str) -> None:
    text = HEAD + MACHINES + "services:\n" + MEMCACHED + f"jobs:\n  - {job}\n"
    assert one(tmp_path, text) == f"s.yaml:10: {message}"


def test_no_machine_has_both(tmp_path: Path) -> None:
    machines = "machines:\n  - {name: wide, type: e2-standard-8, memory: 1Gi}\n  - {name: deep, type: n2d-highmem-4}\n"
    text = HEAD + machines + "jobs:\n  - {name: x, profile: radix, request: 8}\n"
    assert "no machine has both free; beside their services: wide 8 and 1024Mi, deep 4 and" in one(tmp_path, text)


def test_services_that_cannot_be(tmp_path: Path) -> None:
    services = (
        "services:\n"
        "  - {name: a, profile: memcached, machine: small, cores: 1, qps: 90K, slo_p95: 1ms, client: mcperf-30k}\n"
        "  - {name: b, profile: memcached, machine: small, cores: 0-1, request: 1.5, memory: 1Gi,\n"
        "     qps: 1M, slo_p95: 1ms, client: mcperf-30k}\n"
        "  - {name: tasks, profile: memcached, machine: large, cores: 8, qps: 1K, slo_p95: 1ms, client: mcperf-30k}\n"
    )
    found = problems(tmp_path, HEAD + MACHINES + services + JOBS)
    assert [p.split(": ")[1] for p in found] == [
        "services[0].qps",
        "services[1].cores",
        "services[1].request",
        "services[1].memory",
        "services[1].qps",
        "services[2].cores",
        "services[2].name",
    ]
    text = "\n".join(found)
    assert "no machine can serve 90K QPS within 1 ms with 1 thread on 1 core" in text
    assert "2 threads on 2 cores would do" in text
    assert "no measured number of threads and cores would do" in text
    assert "cores 0-1 of small overlap those of a" in text
    assert "the services on small request 2.5 cores; it has 2" in text
    assert "core 8 does not exist on large, which has 0-7" in text


def test_duplicates_and_nothing_to_do(tmp_path: Path) -> None:
    text = HEAD + MACHINES + "jobs:\n  - {name: a-1, profile: vips, request: 1}\n"
    text += "  - {name: a, profile: vips, request: 1, copies: 2}\n"
    assert "s.yaml:9: jobs[1].name: the name 'a-1' stands twice (first at s.yaml:8)" in problems(tmp_path, text)[0]
    assert one(tmp_path, HEAD + MACHINES) == "s.yaml:1: jobs: a scenario needs at least one job"


def test_arrivals_file(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text(
        "submit_s,name,profile,request,widths,scale\n0,one,radix,4,1 2 4,0.5\n\n12.5,two,vips,500m,,\n"
    )
    scenario = load_scenario(write(tmp_path, HEAD + MACHINES + "arrivals: {file: a.csv}\n"))
    assert scenario.arrivals == Arrivals()
    assert [(t.name, t.submit_s, t.request_milli, t.widths_milli, t.scale) for t in scenario.tasks] == [
        ("one", 0.0, 4000, (1000, 2000, 4000), 0.5),
        ("two", 12.5, 500, (500,), 1.0),
    ]


def test_mistakes_in_an_arrivals_file(tmp_path: Path) -> None:
    csv = tmp_path / "a.csv"
    text = HEAD + MACHINES + "arrivals: {file: a.csv}\n"
    csv.write_text(
        "submit_s,name,profile,request,scale\n"
        "soon,one,radix,4,1\n"
        "0,two,radx,4,1\n"
        "0,three,radix,lots,-1\n"
        "0,four,radix\n"
        "0,five,radix,16,1\n"
        "0,five,radix,1,1\n"
    )
    assert [p.replace(f"{tmp_path}/", "") for p in problems(tmp_path, text)] == [
        "a.csv:2: column 'submit_s': must be a number, but is 'soon'",
        "a.csv:3: column 'profile': there is no job profile 'radx'; did you mean 'radix'? (known: blackscholes, "
        "canneal, dedup, ferret, freqmine, radix, vips, neutral)",
        "a.csv:4: column 'request': 'lots' is not a number of cores; write cores as 2 or 0.9, or thousandths of a "
        "core as 900m",
        "a.csv:4: column 'scale': must be more than 0, but is -1.0",
        "a.csv:5: this line has 3 values, the header 5",
        "a.csv:6: column 'request': job 'five' needs at least 16 cores on one machine; the widest, large, has 8 "
        "beside its services; ask for less, or add a wider machine",
        "a.csv:7: column 'name': the name 'five' stands twice (first at a.csv:6)",
    ]
    csv.write_text("submit_s,nam,profile,request\n")
    assert problems(tmp_path, text) == [
        "a.csv:1: there is no column 'nam'; did you mean 'name'? (known: submit_s, name, profile, request, widths, "
        "scale, runtime_s, estimate_s, walltime_s, goal_s, deadline_s, after, …)",
        "a.csv:1: the column 'name' is missing",
    ]
    csv.unlink()
    assert one(tmp_path, text) == "s.yaml:7: arrivals.file: there is no file 'a.csv'"


@pytest.mark.parametrize(
    ("arrivals", "message"),
    [
        ("weekly", "'weekly' is not a kind of arrivals"),
        ("{poisson: {rate_per_minute: 6}, file: a.csv}", "must be exactly one kind of arrivals"),
        ("{}", "must be exactly one kind of arrivals"),
        (
            "{poisson: {rate_per_minute: 0}}",
            "arrivals.poisson.rate_per_minute: must be more than 0, but is 0",
        ),
    ],
)
def test_arrivals_that_make_no_sense(tmp_path: Path, arrivals: str, message: str) -> None:
    assert message in one(tmp_path, HEAD + MACHINES + JOBS + f"arrivals: {arrivals}\n")


def test_submission_time_of_a_random_arrival(tmp_path: Path) -> None:
    jobs = "jobs:\n  - {name: radix, profile: radix, request: 4, submit_s: 5}\n"
    text = HEAD + MACHINES + jobs + "arrivals: {poisson: {rate_per_minute: 6}}\n"
    assert one(tmp_path, text).startswith("s.yaml:8: jobs[0].submit_s: has no meaning")


def test_bundled_profiles_by_name(tmp_path: Path) -> None:
    text = HEAD + "profiles: [thesys]\n" + MACHINES.replace("n2d-highcpu-2", "minsky") + JOBS
    assert one(tmp_path, text).startswith("s.yaml:4: profiles[0]: there is no file 'thesys'; bundled profiles are ")
    path = write(tmp_path, text.replace("thesys", "thesis"))
    assert "alexnet-tiny" in load_scenario(path).catalogue.jobs


def test_profiles_beside_the_scenario(tmp_path: Path) -> None:
    text = HEAD + "profiles: [mine.yaml]\n" + MACHINES.replace("n2d-highcpu-2", "mine-2") + JOBS
    assert one(tmp_path, text) == "s.yaml:4: profiles[0]: there is no file 'mine.yaml'"
    mine = tmp_path / "mine.yaml"
    mine.write_text(
        "apiVersion: flowsched/v1\nkind: Profiles\nmachine_types: {mine-2: {source: x, vcpus: 2, memory: 4}}\n"
    )
    assert one(tmp_path, text).startswith("mine.yaml:3: machine_types.mine-2.memory: 4 has no unit")
    mine.write_text(mine.read_text().replace("4}}", "4Gi}}"))
    assert load_scenario(tmp_path / "s.yaml").machines[0].memory_mib == 4096


BOUND = """relations:
  - {name: even, kind: spread, key: zone, min_domains: 2}
  - {name: few, kind: limit, most: 3}
task_groups:
  - {name: train, minimum: 2, deadline_s: 60}
"""


def test_relations_groups_and_devices(tmp_path: Path) -> None:
    text = (
        HEAD
        + MACHINES.replace("{zone: a}}", "{zone: a}, resources: {gpu: 2}}")
        + BOUND
        + "jobs:\n  - {name: w, profile: radix, request: 1, copies: 2, relations: [even], joins: [few], group: train,"
        " resources: {gpu: 1}, threads: [4, 1], min_utility: 0.2}\n"
    )
    scenario = load_scenario(write(tmp_path, text))
    assert scenario.relations == (
        Relation("even", RelationKind.SPREAD, "zone", min_domains=2),
        Relation("few", RelationKind.LIMIT, MACHINE, most=3),
    )
    assert scenario.task_groups == (TaskGroup("train", 2, 60.0),)
    assert [dict(m.resources) for m in scenario.machines] == [{}, {"gpu": 2}]
    for t in scenario.tasks:
        assert (t.holds, t.joins, t.group) == (("even",), ("even", "few"), "train")
        assert (t.resources, t.threads, t.min_utility, t.endless) == ((("gpu", 1),), (1, 4), 0.2, False)


def test_what_binds_jobs_must_make_sense(tmp_path: Path) -> None:
    text = (
        HEAD
        + MACHINES
        + BOUND.replace("key: zone", "key: zonne").replace("minimum: 2", "minimum: 3")
        + "  - {name: idle, minimum: 1}\n"
        + "jobs:\n  - {name: w, profile: radix, request: 1, copies: 2, relations: [evne], group: trian}\n"
        + "  - {name: v, profile: radix, request: 1, copies: 2, group: train, resources: {gpu: 1}}\n"
    )
    assert problems(tmp_path, text) == [
        "s.yaml:8: relations[0].key: no machine has the label 'zonne'; did you mean 'zone'? (known: machine, zone)",
        "s.yaml:11: task_groups[0].minimum: task group 'train' starts with at least 3, and has 2 tasks; give more jobs "
        "'group: train', or lower the minimum",
        "s.yaml:12: task_groups[1].minimum: task group 'idle' starts with at least 1, and has 0 tasks; give more jobs "
        "'group: idle', or lower the minimum",
        "s.yaml:14: jobs[0].relations[0]: there is no relation 'evne'; did you mean 'even'? (known: even, few)",
        "s.yaml:14: jobs[0].group: there is no task group 'trian'; did you mean 'train'? (known: train, idle)",
        "s.yaml:15: jobs[1].resources: job 'v' needs 1 gpu on one machine; none has that much; ask for less, or add it "
        "to a machine's resources",
    ]


@pytest.mark.parametrize(("line", "shared"), [("", True), ("share_service_cores: false\n", False)])
def test_whether_jobs_may_use_the_cores_of_services(tmp_path: Path, line: str, shared: bool) -> None:
    assert load_scenario(write(tmp_path, HEAD + MACHINES + JOBS + line)).share_service_cores is shared
