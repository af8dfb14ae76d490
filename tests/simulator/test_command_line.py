"""The commands as a user types them: output, exit codes, and what bad input leaves behind."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from flowsched import load_record
from flowsched.records.record_file import record_json
from flowsched_simulator.scenario_file import BUNDLED
from ready_python import run_ready

PARSEC = "parsec-memcached-2024"
FAST = ("--set", "exact_limit=0")


def run(*args: object, cwd: Path) -> subprocess.CompletedProcess[str]:
    return run_ready("flowsched.cli", *args, cwd=cwd)


def run_fresh(*args: object, cwd: Path) -> subprocess.CompletedProcess[str]:
    """In a process that shares nothing with another one, such as the order of sets."""
    command = [sys.executable, "-m", "flowsched.cli", *map(str, args)]
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=300, check=False)


def test_simulate_prints_one_json_object(tmp_path: Path) -> None:
    done = run("simulate", PARSEC, "--policy", "flow", "--policy", "fcfs", "--seed", 3, "--json", *FAST, cwd=tmp_path)

    assert done.returncode == 0
    result = json.loads(done.stdout)
    assert result["scenario"] == PARSEC
    assert [r["policy"] for r in result["runs"]] == ["flow", "fcfs"]
    for one in result["runs"]:
        assert set(one) >= {
            "policy",
            "seed",
            "makespan_s",
            "jobs",
            "latency",
            "slo_violation_ratio",
            "rounds",
            "gap",
            "timings",
        }
        assert one["seed"] == 3
        assert set(one["gap"]) == {"max", "mean"}
        assert set(one["timings"]["round_ms"]) == {"p50", "p99"}
        for job in one["jobs"]:
            assert set(job) >= {
                "job", "machine", "cores", "request", "threads", "submit_s", "start_s", "end_s", "alone_s", "slowdown",
            }  # fmt: skip
            assert job["slowdown"] == pytest.approx((job["end_s"] - job["submit_s"]) / job["alone_s"])
        assert {"t_s", "qps", "p95_us"} <= set(one["latency"][0])
    assert list(tmp_path.iterdir()) == []


def test_simulate_writes_a_report_and_a_table(tmp_path: Path) -> None:
    done = run("simulate", PARSEC, "--policy", "flow", "--out", "here", "--records", "rec", *FAST, cwd=tmp_path)

    assert done.returncode == 0
    heads, units, _, row = done.stdout.splitlines()
    assert "makespan" in heads
    assert "p95 ms" in units
    assert row.startswith("flow")
    assert "flow: 7 jobs done" in done.stderr
    assert (tmp_path / "here" / "report.html").read_text().startswith("<!doctype html>")
    assert json.loads((tmp_path / "here" / "result.json").read_text())["runs"][0]["policy"] == "flow"
    records = sorted((tmp_path / "rec").iterdir())
    assert records[0].name == "flow-0000.npz"
    assert load_record(records[0])["policy"] == "flow"
    assert f"records: {len(records)} in rec" in done.stderr


def test_the_same_seed_gives_the_same_bytes_but_for_timings(tmp_path: Path) -> None:
    forty = (BUNDLED / "parsec-poisson.yaml").read_text(encoding="utf-8")
    fourteen = re.sub(r"  - {name: [a-z]+-[3-6], .*\n", "", forty).replace("per_minute: 6", "per_minute: 20")
    assert fourteen.count("profile: ") - fourteen.count("profile: memcached") == 14
    (tmp_path / "drawn.yaml").write_text(fourteen, encoding="utf-8")
    texts = []
    for folder, how in (("one", run), ("two", run_fresh)):
        done = how("simulate", "drawn.yaml", "--policy", "flow", "--policy", "random", "--seed", 5, "--out", folder,
                   "--records", f"{folder}-records", *FAST, cwd=tmp_path)  # fmt: skip
        assert done.returncode == 0
        result = json.loads((tmp_path / folder / "result.json").read_text())
        for one in result["runs"]:
            del one["timings"]
        for row in result["table"]:
            del row["timings"]
        files = sorted((tmp_path / f"{folder}-records").iterdir())
        assert {p.name.partition("-")[0] for p in files} == {"flow", "random"}
        records = [load_record(p) for p in files]
        for record in records:
            for part in record["parts"]:
                del part["timings"]
        texts.append(json.dumps(result) + "".join(map(record_json, records)))
    assert texts[0] == texts[1]


def test_the_last_records_of_each_policy_are_kept(tmp_path: Path) -> None:
    policies = ("--policy", "flow", "--policy", "fcfs", "--policy", "kube-default")
    every = run("simulate", PARSEC, *policies, "--json", "--records", "all", *FAST, cwd=tmp_path)
    last = run("simulate", PARSEC, *policies, "--json", "--records", "last", "--keep-rounds", 1, *FAST, cwd=tmp_path)

    assert every.returncode == last.returncode == 0
    names = sorted(p.name for p in (tmp_path / "all").iterdir())
    assert sum(name.startswith("fcfs-") for name in names) > 1
    ends = {name.rpartition("-")[0]: name for name in names}
    assert sorted(p.name for p in (tmp_path / "last").iterdir()) == sorted(ends.values())
    assert "records: 3 in last" in last.stderr
    tables = [json.loads(done.stdout)["table"] for done in (every, last)]
    for row in (row for table in tables for row in table):
        del row["timings"]
    assert tables[0] == tables[1]


@pytest.mark.parametrize("left", ["flow-0003.json", "flow-0003.npz", "flow-12345.npz"])
def test_records_of_another_run_are_not_mixed_with_new_ones(left: str, tmp_path: Path) -> None:
    folder = tmp_path / "rec"
    folder.mkdir()
    (folder / left).write_text("mine")
    done = run("simulate", PARSEC, "--policy", "flow", "--records", "rec", *FAST, cwd=tmp_path)

    assert done.returncode == 2
    assert "holds the records of another run" in done.stderr
    assert [p.name for p in folder.iterdir()] == [left]

    (folder / left).rename(folder / "notes.npz")
    done = run("simulate", PARSEC, "--policy", "flow", "--records", "rec", "--json", *FAST, cwd=tmp_path)
    assert done.returncode == 0
    assert (folder / "notes.npz").read_text() == "mine"


def test_a_disk_that_refuses_a_record_ends_the_run_with_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "rec").mkdir()
    (tmp_path / "rec" / "flow-0001.npz.part").mkdir()
    (tmp_path / "rec" / "flow-0001.npz.part" / "in the way").mkdir()
    done = run("simulate", PARSEC, "--policy", "flow", "--records", "rec", "--json", *FAST, cwd=tmp_path)

    assert done.returncode == 2
    assert done.stdout == ""
    assert "flow-0001.npz: cannot be written" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_given_schedule_is_replayed(tmp_path: Path) -> None:
    plan = tmp_path / "plan.yaml"
    plan.write_text(
        f"""cluster: {PARSEC}
memcached: {{machine: node-a-2core, cores: "1", threads: 1}}
tasks:
  - {{job: blackscholes, machine: node-a-2core, cores: "0", threads: 2, start_s: 0}}
  - {{job: ferret, machine: node-b-4core, cores: "0-3", threads: 6, start_s: 0}}
  - {{job: vips, machine: node-b-4core, cores: "0-3", threads: 6, after: ferret}}
  - {{job: radix, machine: node-b-4core, cores: "0-3", threads: 8, after: vips}}
  - {{job: freqmine, machine: node-c-8core, cores: "0-5", threads: 8, start_s: 0, request: 3.9, limit: 6}}
  - {{job: canneal, machine: node-c-8core, cores: "2,3,4-7", threads: 8, start_s: 0, request: 3.9}}
  - {{job: dedup, machine: node-c-8core, cores: "0-7", threads: 8, after: freqmine}}
"""
    )
    done = run("simulate", PARSEC, "--schedule", plan, "--json", cwd=tmp_path)

    assert done.returncode == 0, done.stderr
    (one,) = json.loads(done.stdout)["runs"]
    jobs = {j["job"]: j for j in one["jobs"]}
    assert jobs["vips"]["start_s"] == pytest.approx(jobs["ferret"]["end_s"] + 3.0)
    assert jobs["freqmine"]["request"] == 3.9
    assert jobs["canneal"]["cores"] == [2, 3, 4, 5, 6, 7]
    assert one["rounds"] == 0


BAD = {
    "unknown scenario": (("simulate", "parsec-memcached-2042"), ["parsec-memcached-2024"]),
    "unknown policy": (("simulate", PARSEC, "--policy", "fcsf", "--policy", "ltp"), ["fcfs", "lpt"]),
    "unknown setting": (("simulate", PARSEC, "--set", "bta=3"), ["did you mean 'beta=3'"]),
    "half a setting": (("simulate", PARSEC, "--set", "slots"), ["slots=..."]),
    "settings without flow": (("simulate", PARSEC, "--policy", "lpt", "--set", "slots=1"), ["--policy flow"]),
    "rounds to keep without records": (("simulate", PARSEC, "--keep-rounds", "3"), ["--records FOLDER"]),
    "no rounds to keep": (("simulate", PARSEC, "--records", "rec", "--keep-rounds", "0"), ["keep-rounds"]),
    "records of a schedule": (("simulate", PARSEC, "--schedule", "group-048", "--records", "rec"), ["--records"]),
    "records in a file": (("simulate", PARSEC, "--policy", "flow", "--records", "file"), ["file"]),
    "two bad settings at once": (("simulate", PARSEC, "--set", "beta=x", "--set", "slots=1.5"), ["beta", "slots"]),
    "zero slots": (("simulate", PARSEC, "--set", "slots=0"), ["slots"]),
    "unknown schedule": (("simulate", PARSEC, "--schedule", "group-84"), ["group-048"]),
    "schedule and policy": (("simulate", PARSEC, "--schedule", "group-048", "--policy", "flow"), ["--policy"]),
    "schedule of another cluster": (("simulate", "parsec-poisson", "--schedule", "group-048"), [PARSEC]),
    "no snapshot": (("solve", "nothing.yaml"), ["nothing.yaml"]),
    "out is a file": (("simulate", PARSEC, "--out", "file"), ["file"]),
    "negative seed": (("simulate", PARSEC, "--seed", "-1"), ["-1"]),
}


@pytest.mark.parametrize(("args", "said"), BAD.values(), ids=BAD)
def test_bad_input_gets_a_sentence_and_nothing_is_written(
    args: tuple[str, ...], said: list[str], tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("mine")
    done = run(*args, cwd=tmp_path)

    assert done.returncode == 2
    assert done.stdout == ""
    assert "Traceback" not in done.stderr
    for word in said:
        assert word in done.stderr
    assert [p.name for p in tmp_path.iterdir()] == ["file"]
    assert (tmp_path / "file").read_text() == "mine"


def test_lists_and_help(tmp_path: Path) -> None:
    for command in ("scenarios", "policies"):
        done = run(command, cwd=tmp_path)
        assert done.returncode == 0
        assert all(len(line.split()) > 2 for line in done.stdout.splitlines())
    for command in ([], ["simulate"], ["solve"], ["scenarios"], ["policies"]):
        done = run(*command, "--help", cwd=tmp_path)
        assert done.returncode == 0
        assert "Example: flowsched" in done.stdout


def test_a_job_that_never_ends_is_named_and_the_exit_code_says_so(tmp_path: Path) -> None:
    """Under a reservation-free baseline a job whose memory no machine has left waits without end."""
    scenario = tmp_path / "s.yaml"
    scenario.write_text(
        """apiVersion: flowsched/v1
kind: Scenario
name: crowded
machines: [{name: a, type: n2d-highcpu-2}]
services:
  - {name: memcached, profile: memcached, machine: a, cores: "0", threads: 1, request: 1, memory: 512Mi, qps: 30K,
     slo_p95: 560us, client: mcperf-30k}
jobs: [{name: b, profile: blackscholes, request: 1}]
"""
    )
    done = run("simulate", scenario, "--policy", "flow", "--set", "slo_margin=0.5", "--json", *FAST, cwd=tmp_path)

    assert done.returncode == 3
    assert "never ended: flow: b" in done.stderr
    assert json.loads(done.stdout)["runs"][0]["makespan_s"] is None


ENDLESS = """
apiVersion: flowsched/v1
kind: Scenario
name: endless
machines: [{name: m, type: e2-standard-4}]
services:
  - {name: cache, profile: memcached, machine: m, cores: "0", threads: 1, request: 1, memory: 512Mi, qps: 20K, slo_p95: 1ms,
     client: mcperf-30k}
jobs:
  - {name: short, profile: vips, request: 1}
  - {name: typo, profile: vips, request: 1, scale: 1e12}
"""


@pytest.mark.parametrize("policy", ["flow", "fcfs", "coco"])
def test_a_scale_out_of_all_proportion_ends_and_is_named(tmp_path: Path, policy: str) -> None:
    (tmp_path / "endless.yaml").write_text(ENDLESS)

    done = run("simulate", "endless.yaml", "--policy", policy, "--max-time", "12h", "--json", cwd=tmp_path)

    assert done.returncode == 3
    told = "simulated time ended after 43200 s (max_time_s, --max-time), before this job"
    assert f"never ended: {policy}: typo: {told}" in done.stderr
    assert len(done.stdout) < 20_000, "equal windows are one"


def test_of_many_jobs_that_never_ended_the_first_ten_are_named(tmp_path: Path) -> None:
    head = "apiVersion: flowsched/v1\nkind: Scenario\nname: late\nmachines: [{cores: 1, memory: 1Gi}]\n"
    (tmp_path / "late.yaml").write_text(f"{head}jobs: [{{name: j, request: 1, runtime_s: 60, copies: 14}}]\n")

    done = run("simulate", "late.yaml", "--policy", "fcfs", "--max-time", "90s", "--json", cwd=tmp_path)

    assert done.returncode == 3
    lines = [line for line in done.stderr.splitlines() if line.startswith("never ended: ")]
    assert len(lines) == 11 and lines[-1] == "never ended: … and 3 more"
