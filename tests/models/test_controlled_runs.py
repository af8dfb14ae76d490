"""What a controller's log says of who ran when, and which logs say too little."""

from __future__ import annotations

from pathlib import Path

import pytest
from measured_tables import findings, write

from flowsched_models.measurements import Measurements, load_measurements
from measured_data import cca_measurements

MACHINES = "node,machine_type,role,vcpus\n,lab-4,latency_sweep,4\n"
LOADS = (
    "run,qps_interval_s,t_start_s,t_end_s,qps,p95_us\n1,10,-5,5,20000,400\n1,10,5,15,80000,900\n1,10,15,25,30000,500\n"
)
EVENTS = "run,qps_interval_s,t_s,event,job,cores,threads\n"
WHOLE = """\
1,10,-1,start,scheduler,,
1,10,-1,start,memcached,0,2
1,10,0,start,sort,1 2,4
1,10,6,pause,sort,,
1,10,6.5,update_cores,memcached,0 1,
1,10,12,start,pack,3,1
1,10,14,unpause,sort,,
1,10,14,update_cores,memcached,0,
1,10,18,update_cores,sort,2,
1,10,20,end,pack,,
1,10,22,end,sort,,
1,10,23,end,scheduler,,
"""


def read(folder: Path, events: str) -> Measurements:
    return load_measurements(
        write(folder / "lab", machines=MACHINES, load_runs=LOADS, load_events=EVENTS + events), year="2024"
    )


def test_a_log_says_who_ran_when_on_which_cores(tmp_path: Path) -> None:
    (run,) = read(tmp_path, WHOLE).controlled_runs

    assert (run.machine_type, run.service, run.service_threads, run.interval_s) == ("lab-4", "memcached", 2, 10.0)
    assert run.executions == {"pack": (12.0, 20.0), "sort": (0.0, 22.0)}
    assert run.makespan_s == 22.0
    assert run.active_s == {"pack": 8.0, "sort": pytest.approx(14.0)}
    seen = {s.t_s: (s.service_cores, s.qps, [(j.job, j.cores, j.threads) for j in s.jobs]) for s in run.stretches}
    assert seen[0.0] == ((0,), 20_000.0, [("sort", (1, 2), 4)])
    assert seen[5.0] == ((0,), 80_000.0, [("sort", (1, 2), 4)])
    assert seen[6.5] == ((0, 1), 80_000.0, [])
    assert seen[12.0] == ((0, 1), 80_000.0, [("pack", (3,), 1)])
    assert seen[18.0] == ((0,), 30_000.0, [("pack", (3,), 1), ("sort", (2,), 4)])
    assert seen[20.0] == ((0,), 30_000.0, [("sort", (2,), 4)])


def test_what_is_said_twice_counts_once(tmp_path: Path) -> None:
    (run,) = read(tmp_path, WHOLE + "1,10,30,end,sort,,\n").controlled_runs

    assert run.executions["sort"] == (0.0, 22.0)


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ("memcached,0 1,", "memcached,1 2 3 4,", "memcached is said to have cores 1-4 of the 4 of lab-4"),
        ("1,10,22,end,sort,,\n", "", "sort has no end"),
        ("start,pack,3,1", "start,pack,3,", "nothing tells the threads or the cores of pack"),
    ],
)
def test_a_log_that_tells_too_little_is_left_out_with_the_reason(
    tmp_path: Path, old: str, new: str, reason: str
) -> None:
    measured = read(tmp_path, WHOLE.replace(old, new))

    assert measured.controlled_runs == ()
    (found,) = [text for text in findings(measured) if "controller" in text]
    assert reason in found


def test_active_seconds_of_the_course_are_those_that_its_tables_say() -> None:
    runs = [r for r in cca_measurements().of_years("2024").controlled_runs if r.interval_s == 10.0]

    (first,) = [r for r in runs if r.group == "czanoli" and r.run == "1"]
    assert first.makespan_s == pytest.approx(668.7, abs=0.1)
    assert first.active_s["ferret"] == pytest.approx(367.0, abs=0.1)
    assert first.active_s["radix"] == pytest.approx(45.5, abs=0.1)
    assert {j.weight for r in runs if r.group == "frikai" for s in r.stretches for j in s.jobs} == {2 / 1024}
