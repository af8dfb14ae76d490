"""Jobs of several tasks, barriers, jobs after others, and machines by labels."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from builders import task
from flowsched_models.document import InputError
from flowsched_simulator import Scenario, load_scenario, simulate
from flowsched_simulator.commands.simulate import result
from flowsched_simulator.run import Run
from flowsched_simulator.scenario import JobTerms
from flowsched_simulator.submissions import Submissions

HEAD = "apiVersion: flowsched/v1\nkind: Scenario\nname: terms\n"
ONE = "machines: [{name: m, type: e2-standard-8, cpu: 2}]\n"
POLICIES = ("flow", "fcfs", "best-fit", "kube-default", "coco", "shortest-job-first")


def loaded(tmp_path: Path, text: str) -> Scenario:
    path = tmp_path / "s.yaml"
    path.write_text(HEAD + text)
    return load_scenario(path)


def problems(tmp_path: Path, text: str) -> list[str]:
    with pytest.raises(InputError) as caught:
        loaded(tmp_path, text)
    return [str(p).replace(f"{tmp_path}/", "") for p in caught.value.problems]


def starts(run: Run) -> dict[str, float]:
    return {j.name: j.start_s for j in run.jobs if j.start_s is not None}


# --- several tasks ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("policy", POLICIES)
def test_a_job_ends_with_its_last_task(tmp_path: Path, policy: str) -> None:
    many = loaded(
        tmp_path, ONE + "jobs:\n  - {name: a, request: 1, runtime_s: 30, tasks: 5, copies: 2, deadline_s: 100}\n"
    )
    run = simulate(many, policy)

    assert [j.name for j in run.jobs] == [f"a-{k}/{n}" for k in (1, 2) for n in range(1, 6)]
    assert {j.job for j in run.jobs} == {"a-1", "a-2"}
    for outcome in run.outcomes:
        mine = [j for j in run.jobs if j.job == outcome.job]
        assert (outcome.tasks, outcome.end_s) == (5, max(j.end_s or 0.0 for j in mine))
        assert outcome.waiting_s == min(j.waiting_s or 0.0 for j in mine)
        assert outcome.alone_s == pytest.approx(30.0)
    # Ten tasks of 30 s, two at a time: the last ends after 150 s, so one of the jobs is late.
    assert run.makespan_s == pytest.approx(150.0, abs=5.0)
    assert run.summary()["missed"] == 1
    assert run.summary()["mean_completion_s"] == pytest.approx(sum(o.completion_s or 0 for o in run.outcomes) / 2)


def test_results_name_tasks_where_a_job_has_several(tmp_path: Path) -> None:
    mixed = loaded(
        tmp_path,
        ONE + "jobs:\n  - {name: a, request: 1, runtime_s: 3, tasks: 2}\n  - {name: b, request: 1, runtime_s: 3}\n",
    )
    rows = result(mixed, [simulate(mixed, "fcfs")])["runs"][0]["jobs"]
    assert [(row["job"], row.get("task")) for row in rows] == [("a", "a/1"), ("a", "a/2"), ("b", None)]
    assert "3 jobs" not in repr(simulate(mixed, "fcfs")) and "2 of 2 jobs ended" in repr(simulate(mixed, "fcfs"))


@pytest.mark.parametrize("policy", POLICIES)
def test_tasks_behind_a_barrier_start_together(tmp_path: Path, policy: str) -> None:
    jobs = (
        "jobs:\n  - {name: first, request: 1, runtime_s: 60}\n"
        "  - {name: pair, request: 1, runtime_s: 30, tasks: 2, submit_s: 1, BARRIER}\n"
    )
    held = starts(simulate(loaded(tmp_path, ONE + jobs.replace("BARRIER", "barrier: true")), policy))
    assert held["pair/1"] == held["pair/2"] >= 59.9
    free = starts(simulate(loaded(tmp_path, ONE + jobs.replace("BARRIER", "barrier: false")), policy))
    assert min(free["pair/1"], free["pair/2"]) < 59.9


def test_a_barrier_contradicts_groups(tmp_path: Path) -> None:
    text = ONE + (
        "task_groups: [{name: g, minimum: 1}, {name: b, minimum: 1}]\n"
        "jobs:\n  - {name: a, request: 1, runtime_s: 3, tasks: 2, barrier: true, group: g}\n"
        "  - {name: b, request: 1, runtime_s: 3, tasks: 2, barrier: true}\n"
        "  - {name: c, request: 1, runtime_s: 3, group: b}\n"
    )
    assert problems(tmp_path, text) == [
        "s.yaml:7: jobs[0].group: a job with a barrier is a group of its own; leave out barrier to start with the group, "
        "or group to start alone",
        "s.yaml:8: jobs[1].name: task group 'b' has the name of this job, whose barrier is a group of that name; rename "
        "one of them",
    ]


def test_a_barrier_that_no_idle_cluster_holds_is_refused_with_its_place(tmp_path: Path) -> None:
    text = (
        "machines: [{name: a, type: e2-standard-8}, {name: b, type: e2-standard-8, labels: {disk: ssd}}]\njobs:\n"
        "  - {name: fits, request: 4, runtime_s: 3, tasks: 4, barrier: true}\n"
        "  - {name: cpu, request: 5, runtime_s: 3, tasks: 3, barrier: true}\n"
        "  - {name: memory, request: 1, memory: 20Gi, runtime_s: 3, tasks: 3, barrier: true}\n"
        "  - {name: labels, request: 4, runtime_s: 3, tasks: 3, barrier: true, machine_labels: {disk: ssd}}\n"
        "  - {name: narrow, profile: vips, request: 4, widths: [2, 4], tasks: 8, barrier: true, memory: 1Gi}\n"
        "  - {name: free, request: 5, runtime_s: 3, tasks: 3}\n"
    )
    cure = "ask for fewer or smaller tasks, or add machines"
    assert problems(tmp_path, text) == [
        f"s.yaml:7: jobs[1].tasks: job 'cpu' starts 3 tasks together; the machines hold 2 of them when idle; {cure}",
        f"s.yaml:8: jobs[2].tasks: job 'memory' starts 3 tasks together; the machines hold 2 of them when idle; {cure}",
        "s.yaml:9: jobs[3].tasks: job 'labels' starts 3 tasks together; the machines that it may run on hold 2 of them "
        f"when idle; {cure}",
    ]


# --- after ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("policy", POLICIES)
def test_a_job_is_submitted_when_those_before_it_have_ended(tmp_path: Path, policy: str) -> None:
    run = simulate(
        loaded(
            tmp_path,
            "machines: [{name: m, type: e2-standard-8}]\njobs:\n"
            "  - {name: last, request: 1, runtime_s: 5, after: [middle]}\n"
            "  - {name: middle, request: 1, runtime_s: 10, after: [prep, more-2], copies: 2, tasks: 2}\n"
            "  - {name: prep, request: 1, runtime_s: 20, tasks: 2}\n"
            "  - {name: more, request: 1, runtime_s: 30, copies: 2}\n"
            "  - {name: late, request: 1, runtime_s: 1, submit_s: 300, after: [prep]}\n",
        ),
        policy,
    )
    by_name = {j.name: j for j in run.jobs}
    for name, at in {"middle-1/1": 30, "middle-2/2": 30, "last": 40, "late": 300, "prep/1": 0}.items():
        assert by_name[name].submit_s == pytest.approx(at), name
        assert by_name[name].waiting_s == pytest.approx(0.0, abs=1e-6), (
            "waiting for other jobs is none of the scheduler's"
        )
    assert {o.job: o.completion_s for o in run.outcomes}["last"] == pytest.approx(5.0)


def test_what_comes_after_a_job_that_never_ends_says_so(tmp_path: Path) -> None:
    text = ONE + "task_groups: [{name: g, minimum: 2}]\njobs:\n"
    text += "  - {name: a, request: 1, memory: 20Gi, runtime_s: 5, copies: 2, group: g}\n"
    text += "  - {name: b, request: 1, runtime_s: 5, after: [a]}\n"
    run = simulate(loaded(tmp_path, text), "fcfs")
    assert {j.job: j.end_s for j in run.jobs} == {"a-1": None, "a-2": None, "b": None}
    assert run.jobs[-1].reason == "comes after a-1, a-2, which did not end"


def test_circles_and_unknown_names_are_refused(tmp_path: Path) -> None:
    jobs = "jobs:\n  - {name: a, request: 1, runtime_s: 3, after: [c, prap]}\n"
    jobs += "  - {name: b, request: 1, runtime_s: 3, after: [a], copies: 2}\n"
    jobs += "  - {name: c, request: 1, runtime_s: 3, after: [b-2]}\n"
    jobs += "  - {name: prep, request: 1, runtime_s: 3, after: [prep]}\n"
    jobs += "  - {name: d, request: 1, runtime_s: 3, after: [a]}\n"
    assert problems(tmp_path, ONE + jobs) == [
        "s.yaml:6: jobs[0].after[1]: there is no job 'prap'; did you mean 'prep'? (known: a, b, c, prep, d, b-1, b-2)",
        "s.yaml:6: jobs[0].after: jobs wait for each other in a circle: a after c after b after a; none of them could ever "
        "start; break the circle",
        "s.yaml:9: jobs[3].after: jobs wait for each other in a circle: prep after prep; none of them could ever start; "
        "break the circle",
    ]


@given(st.data())
def test_submissions_come_in_order_and_never_before_what_they_follow(data: st.DataObject) -> None:
    count = data.draw(st.integers(1, 8))
    before = {k: data.draw(st.sets(st.integers(0, k - 1), max_size=3)) if k else set() for k in range(count)}
    tasks = [
        task(f"{k}/{n}", job=str(k), submit_s=float(data.draw(st.integers(0, 5))))
        for k in range(count)
        for n in range(data.draw(st.integers(1, 3)))
    ]
    waiting = Submissions(tasks, {str(k): JobTerms(after=tuple(map(str, names))) for k, names in before.items()})
    ends: dict[str, list[float]] = {}
    seen: list[str] = []
    running: list[tuple[float, str]] = []
    by_name = {t.name: t for t in tasks}
    while waiting.next_s() < float("inf") or running:
        now = min([waiting.next_s(), *(end for end, _ in running)])
        for end, name in sorted(each for each in running if each[0] <= now):
            running.remove((end, name))
            ends.setdefault(by_name[name].job, []).append(end)
            waiting.ended(by_name[name], now)
        for come in waiting.take(now):
            assert come.submit_s == now
            first = by_name[come.name].submit_s
            preceding = [ends[str(k)] for k in before[int(come.job)]]
            assert all(
                len(e) == sum(t.job == str(k) for t in tasks)
                for k, e in zip(before[int(come.job)], preceding, strict=True)
            )
            assert now == max([first, *(max(e) for e in preceding)])
            seen.append(come.name)
            running.append((now + data.draw(st.integers(0, 3)), come.name))
    assert sorted(seen) == sorted(by_name)


# --- machines ---------------------------------------------------------------------------------------------


def test_copies_of_machines_have_numbers(tmp_path: Path) -> None:
    text = "machines:\n  - {type: e2-standard-8, copies: 2, labels: {zone: a}}\n"
    text += "  - {name: x, type: n2d-highcpu-2, copies: 3}\n"
    text += "  - {type: n2d-highcpu-2, cpu: 1}\njobs: [{name: a, request: 1, runtime_s: 3, machines: [x-3]}]\n"
    found = loaded(tmp_path, text).machines
    assert [(m.name, m.vcpus, m.labels) for m in found] == [
        *((f"e2-standard-8-{k}", 8, (("zone", "a"),)) for k in (1, 2)),
        *((f"x-{k}", 2, ()) for k in (1, 2, 3)),
        ("n2d-highcpu-2", 2, ()),
    ]
    assert problems(tmp_path, text.replace("[x-3]", "[x]")) == [
        "s.yaml:8: jobs[0].machines[0]: there is no machine 'x'; known: e2-standard-8-1, e2-standard-8-2, x-1, "
        "x-2, x-3, n2d-highcpu-2"
    ]
    twice = problems(tmp_path, text.replace("cpu: 1", "name: x-2, cpu: 9"))
    assert twice[0].startswith("s.yaml:7: machines[2].name: the name 'x-2' stands twice (first on line 6)")
    assert len(problems(tmp_path, text.replace("n2d-highcpu-2, copies: 3", "n2d, copies: 300"))) == 1


def test_a_job_runs_on_machines_with_all_its_labels(tmp_path: Path) -> None:
    machines = "machines:\n  - {name: a, type: e2-standard-8, labels: {disk: ssd, zone: z1}, copies: 2}\n"
    machines += "  - {name: b, type: e2-standard-8, labels: {disk: hdd, zone: z1}}\n"
    job = "jobs:\n  - {name: j, request: 1, runtime_s: 3, machine_labels: {LABELS}MORE}\n"

    def allowed(labels: str, more: str = "") -> tuple[str, ...] | None:
        text = machines + job.replace("LABELS", labels).replace("MORE", more)
        return loaded(tmp_path, text).tasks[0].machines

    assert allowed("disk: ssd") == ("a-1", "a-2")
    assert allowed("disk: ssd, zone: z1", ", machines: [a-2, b]") == ("a-2",)
    assert allowed("zone: z1") == ("a-1", "a-2", "b")
    assert allowed("") is None
    assert problems(tmp_path, machines + job.replace("LABELS", "disk: sdd").replace("MORE", "")) == [
        "s.yaml:8: jobs[0].machine_labels: no machine has the labels disk=sdd; did you mean 'disk=ssd'? (known: disk=hdd, "
        "disk=ssd, zone=z1)"
    ]
    assert (
        "of those that it names"
        in problems(tmp_path, machines + job.replace("LABELS", "disk: ssd").replace("MORE", ", machines: [b]"))[0]
    )
