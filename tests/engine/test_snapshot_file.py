from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from builders import bound_rounds, in_another_order
from flowsched.cluster.snapshot import PlannedStart, Snapshot, StartDelay
from flowsched.cluster.snapshot_dump import dump_snapshot, read_plain_snapshot, used_profiles
from flowsched.cluster.snapshot_file import read_snapshot
from flowsched.records.record_file import write_record
from flowsched.records.snapshot_source import load_snapshot
from flowsched.round.scheduler import FlowScheduler, solve
from flowsched.solvers import make_solver
from flowsched_models.document import InputError, parse_document

EXAMPLE = Path(__file__).parents[2] / "docs" / "examples" / "snapshot.yaml"


def problems(tmp_path: Path, content: str) -> list[str]:
    path = tmp_path / "now.yaml"
    path.write_text(content)
    with pytest.raises(InputError) as caught:
        load_snapshot(path)
    return [str(p).replace(f"{tmp_path}/", "") for p in caught.value.problems]


def awkward() -> Snapshot:
    """The example with values that a careless format would lose."""
    snapshot = load_snapshot(EXAMPLE)
    bound = snapshot.running[0]
    task = snapshot.pending[0]
    return replace(
        snapshot,
        now_s=30.1 + 0.2,
        round=7,
        catalogue=used_profiles(snapshot),
        machines=(
            replace(snapshot.machines[0], cpu_milli=1930, vcpus=3, labels=(("zone", "1"), ("a", "true"))),
            *snapshot.machines[1:],
        ),
        services=(replace(snapshot.services[0], slo_us=2e3 / 3, qps=1e4 / 3, width_milli=501),),
        running=(replace(bound, width_milli=3999, progress=1 / 3, cores=(0, 2, 3, 7), start_s=-0.1),),
        pending=(
            replace(
                task,
                name="ns/a-1",
                job="ns/a",
                scale=1e-7,
                goal_s=2 / 3,
                machines=("node-b-4core",),
                priority=-2,
                weight=1 / 7,
            ),
            *snapshot.pending[1:],
        ),
        plan=(PlannedStart("canneal", "node-c-8core", 1, 2000),),
        start_delay=StartDelay(0.3, 1e-3),
    )


def test_example() -> None:
    snapshot = load_snapshot(EXAMPLE)
    assert [m.name for m in snapshot.machines] == ["node-a-2core", "node-b-4core", "node-c-8core"]
    assert [r.task.name for r in snapshot.running] == ["freqmine"]
    assert [t.name for t in snapshot.pending] == ["blackscholes", "canneal", "ferret"]
    assert snapshot.free_milli() == {"node-a-2core": 1000, "node-b-4core": 4000, "node-c-8core": 4000}
    assert snapshot.running[0].task.memory_mib == 2048
    assert len(snapshot.catalogue.jobs) == 8
    assert "neutral" in snapshot.catalogue.jobs


@pytest.mark.parametrize("form", ["yaml", "json"])
def test_round_trip_is_exact(tmp_path: Path, form: str) -> None:
    snapshot = awkward()
    data = dump_snapshot(snapshot)
    path = tmp_path / f"dump.{form}"
    path.write_text(yaml.safe_dump(data, sort_keys=False) if form == "yaml" else json.dumps(data, indent=1))
    again = load_snapshot(path)
    assert again == snapshot.in_order()
    assert dump_snapshot(again) == data


@settings(max_examples=60)
@given(now=bound_rounds())
def test_what_binds_tasks_survives_a_round_trip(now: Snapshot) -> None:
    now = replace(now, services=())
    now = replace(now, catalogue=used_profiles(now))
    data = dump_snapshot(now)
    data["catalogue"].pop("source", None)
    again = read_snapshot(parse_document(json.dumps(data), "now.yaml"))
    assert replace(again, catalogue=now.catalogue) == now.in_order()


@settings(max_examples=30)
@given(bound_rounds(), st.data())
def test_what_is_written_does_not_depend_on_the_order_in_which_it_came(now: Snapshot, data: st.DataObject) -> None:
    assert json.dumps(dump_snapshot(in_another_order(now, data.draw(st.randoms())))) == json.dumps(dump_snapshot(now))


def test_a_dump_has_no_unused_keys() -> None:
    text = json.dumps(dump_snapshot(load_snapshot(EXAMPLE)))
    new = (
        "resources",
        "holds",
        "joins",
        "group",
        "threads_",
        "min_utility",
        "weight",
        "endless",
        "relations",
        "task_groups",
    )
    assert [key for key in new if f'"{key}"' in text] == []


def test_a_weight_is_above_zero(tmp_path: Path) -> None:
    text = EXAMPLE.read_text().replace("{name: blackscholes,", "{name: blackscholes, weight: 0,")
    assert "weight: 0" in text
    (problem,) = problems(tmp_path, text)
    assert "pending[0].weight: must be more than 0, but is 0" in problem


def test_names_that_bind_tasks_must_exist(tmp_path: Path) -> None:
    assert problems(
        tmp_path,
        """apiVersion: flowsched/v1
kind: Snapshot
now_s: 0
machines:
  - {name: a, type: e2-standard-4, resources: {gpu: 1}}
relations:
  - {name: web, kind: limit, most: 2, skew: 1}
  - {name: web, kind: aparted}
  - {name: far, kind: apart, key: zone}
task_groups:
  - {name: train, minimum: 0}
  - {name: test, minimum: 9}
running:
  - task: {name: r, profile: vips, request: 1, resources: {gpu: 2}}
    machine: a
    width: 1
    threads: 1
    cores: 0
    bound_s: 0
    start_s: 0
pending:
  - {name: v, profile: vips, request: 1, relations: [wbe], group: tset, threads: [2, 2]}
  - {name: w, profile: vips, request: 1, holds: [web], joins: [afr], min_utility: 2}
""",
    ) == [
        "now.yaml:7: relations[0].skew: has no meaning for a relation of kind 'limit'; leave it out; it is for 'spread'",
        "now.yaml:8: relations[1].kind: must be one of limit, apart, spread, together, count, but is 'aparted'; "
        "did you mean 'apart'?",
        "now.yaml:11: task_groups[0].minimum: must be more than 0, but is 0",
        "now.yaml:14: running[0].task.resources.gpu: requests on a exceed its 1 gpu by 1",
        "now.yaml:22: pending[0].relations[0]: there is no relation 'wbe'; did you mean 'web'? (known: web, far)",
        "now.yaml:22: pending[0].group: there is no task group 'tset'; did you mean 'test'? (known: train, test)",
        "now.yaml:22: pending[0].threads: names a number twice",
        "now.yaml:23: pending[1].min_utility: must be at most 1, but is 2",
    ]


def test_a_dump_holds_only_the_profiles_it_uses() -> None:
    catalogue = dump_snapshot(load_snapshot(EXAMPLE))["catalogue"]
    assert set(catalogue["jobs"]) == {"freqmine", "blackscholes", "canneal", "ferret"}
    assert set(catalogue["services"]) == {"memcached"}
    assert set(catalogue["machine_types"]) == {"n2d-highcpu-2", "n2d-highmem-4", "e2-standard-8"}


def test_all_mistakes_at_once(tmp_path: Path) -> None:
    content = """\
apiVersion: flowsched/v1
kind: Snapshot
now_s: soon
machines:
  - {name: a, type: n2d-highcpu-2}
  - {name: c, type: e2-standard-8}
services:
  - {name: m, profile: memcached, machine: a, cores: 1, qps: 30K, slo_p95: 1ms, client: mcperf-30k}
running:
  - task: {name: x, profile: freqmine, request: 4}
    machine: c
    width: 6
    threads: 8
    cores: 4-9
    bound_s: 0
    start_s: 0
  - task: {name: y, profile: blackscholes, request: 1}
    machine: c
    width: 3
    threads: 1
    cores: 0
    bound_s: 0
    start_s: 0
    progress: 1.5
  - {task: {name: x, profile: vips, request: 3}, machine: c, width: 3, threads: 1, cores: 0, bound_s: 0, start_s: 0}
  - {task: {name: z, profile: vips, request: 1}, machine: a, width: 1, threads: 1, cores: 1, bound_s: 0, start_s: 0}
pending:
  - {name: w, profile: vips, request: 1, memry: 1Gi}
  - {name: v, profile: vip, request: 1}
plan:
  - {task: u, machine: b, slot: 1, width: 1}
"""
    assert problems(tmp_path, content) == [
        "now.yaml:3: now_s: must be a number, but is 'soon'",
        "now.yaml:14: running[0].cores: cores 8-9 do not exist on c, which has 0-7",
        "now.yaml:24: running[1].progress: must be at most 1, but is 1.5; a task runs longer than forecast only where "
        "run_time_errors says how far forecasts may be wrong",
        "now.yaml:25: running[2].task.name: the name 'x' stands twice (first on line 10)",
        "now.yaml:25: running[2].width: requests on c exceed its 8 cores by 1",
        "now.yaml:26: running[3].cores: core 1 of a belongs to m; share_service_cores: true lets tasks use it",
        "now.yaml:26: running[3].task.memory: requests on a exceed its 1400Mi by 72Mi",
        "now.yaml:28: pending[0].memry: there is no key 'memry' here; did you mean 'memory'? (known: name, job, "
        "profile, scale, request, widths, memory, submit_s, goal_s, priority, weight, machines, …)",
        "now.yaml:29: pending[1].profile: there is no job profile 'vip'; did you mean 'vips'? (known: blackscholes, "
        "canneal, dedup, ferret, freqmine, radix, vips, neutral)",
        "now.yaml:31: plan[0].task: there is no pending task 'u'; known: w, v",
        "now.yaml:31: plan[0].machine: there is no machine 'b'; known: a, c",
    ]


def test_catalogue_within(tmp_path: Path) -> None:
    content = """\
apiVersion: flowsched/v1
kind: Snapshot
now_s: 0
profiles: [x.yaml]
catalogue:
  machine_types: {mine: {vcpus: 2, memory: 4Gi}}
machines: [{name: a, type: mine}]
pending: [{name: v, profile: vips, request: 1}]
"""
    assert problems(tmp_path, content) == [
        "now.yaml:4: profiles: a snapshot with a catalogue of its own names no profiles",
        "now.yaml:8: pending[0].profile: there is no job profile 'vips'; there is none to choose from",
    ]
    content = content.replace("profiles: [x.yaml]\n", "").replace("4Gi", "4")
    assert problems(tmp_path, content) == [
        "now.yaml:5: catalogue.machine_types.mine.memory: 4 has no unit; give a unit: 4Mi or 4Gi"
    ]


def test_what_contradicts_itself_is_named(tmp_path: Path) -> None:
    data = dump_snapshot(awkward())
    data["now_s"] = -1.0
    data["plan"][0]["width"] = 1.5
    path = tmp_path / "s.json"
    path.write_text(json.dumps(data))
    with pytest.raises(InputError) as caught:
        load_snapshot(path)
    text = str(caught.value)
    assert "plan[0].width: canneal does not run at 1.5 cores; its widths: 1, 2, 4" in text
    assert "was submitted at 30 s, after now_s; now_s is -1" in text
    assert "was bound at" in text


@pytest.mark.parametrize(("ends", "told"), [(0, "0 completions"), (1, "1 completion")])
def test_errors_of_run_times_are_not_beyond_all_runs(tmp_path: Path, ends: int, told: str) -> None:
    data = dump_snapshot(awkward())
    data["run_time_errors"] = {"ends": ends, "log_squares": 1e12}
    (said,) = problems(tmp_path, json.dumps(data))
    assert said.endswith(
        f"run_time_errors.log_squares: 1e+12 is more than {told} can bring; it is the sum of squared "
        "logarithms of run times over forecasts"
    )


def test_without_now_s_nothing_is_compared_with_it(tmp_path: Path) -> None:
    data = dump_snapshot(awkward())
    assert any(task["submit_s"] > 0 for task in data["pending"])
    del data["now_s"]
    path = tmp_path / "s.json"
    path.write_text(json.dumps(data))

    with pytest.raises(InputError) as caught:
        load_snapshot(path)

    assert [str(problem) for problem in caught.value.problems] == [f"{path}:1: now_s: is missing"]


@pytest.mark.parametrize(
    ("start_s", "taken"), [(99.0, True), (100.0, True), (104.0, True), (104.5, False), (200.0, False)]
)
def test_a_program_starts_after_now_only_as_far_as_it_takes_to_start(
    tmp_path: Path, start_s: float, taken: bool
) -> None:
    data = dump_snapshot(load_snapshot(EXAMPLE)) | {"now_s": 100.0}
    data["start_delay"] = {"at_submission_s": 5.0, "after_waiting_s": 1.0}
    data["running"][0] |= {"bound_s": 99.0, "start_s": start_s}
    path = tmp_path / "s.json"
    path.write_text(json.dumps(data))

    if taken:
        assert load_snapshot(path).running[0].start_s == start_s
        return
    message = rf"start_s: \w+ starts at {start_s:g} s, after now_s; now_s is 100; after it .* \(5 s\) after its bound_s"
    with pytest.raises(InputError, match=message):
        load_snapshot(path)


def test_the_snapshot_in_a_record_is_read_too(tmp_path: Path) -> None:
    snapshot = awkward()
    record = FlowScheduler(make_solver("ortools"), keep_records=True).decide(snapshot).record
    assert record is not None
    for path in (tmp_path / "record.json", tmp_path / "record.npz"):
        write_record(record, path)
        assert load_snapshot(path) == snapshot.in_order()


def test_a_task_on_a_services_cores_is_read_where_they_are_shared(tmp_path: Path) -> None:
    snapshot = load_snapshot(EXAMPLE)
    service = snapshot.services[0]
    guest = replace(snapshot.running[0], machine=service.machine, cores=service.cores, width_milli=100)
    guest = replace(guest, task=replace(guest.task, memory_mib=1))
    shared = replace(snapshot, running=(guest,), plan=(), share_service_cores=True)
    path = tmp_path / "shared.yaml"
    path.write_text(yaml.safe_dump(dump_snapshot(shared)))

    assert load_snapshot(path).running == (guest,)

    found = problems(tmp_path, yaml.safe_dump(dump_snapshot(replace(shared, share_service_cores=False))))
    assert len(found) == 1
    assert "belongs to memcached; share_service_cores: true lets tasks use it" in found[0]


def test_what_policies_look_at_survives_a_round_trip(tmp_path: Path) -> None:
    now = load_snapshot(EXAMPLE)
    task = replace(
        now.pending[0],
        request_milli=0,
        widths_milli=(0,),
        run_s=12.5,
        interference_class="devil",
        input_mb=3.5,
        locality=(("rack", "r1", 0.25), ("zone", "", 1.0)),
        wishes=((now.machines[0].name, 0.125),),
        counted=((0, 0.25), (3, 1.5)),
    )
    now = replace(now, pending=(task, *now.pending[1:]))
    file = tmp_path / "now.json"
    file.write_text(json.dumps(dump_snapshot(now)))
    assert load_snapshot(file).pending == now.in_order().pending
    assert read_plain_snapshot(dump_snapshot(now)).pending == now.in_order().pending
    placed = {p.task: p.width_milli for p in solve(now).placements}
    assert placed[task.name] == 1, "a forecast knows no program that takes no CPU"
    wrong = dump_snapshot(now)
    wrong["pending"][0] |= {
        "wishes": {"nowhere": 1.0},
        "run_s": 0.0,
        "counted": [{"count": 0, "price": 0.0}],
        "locality": [{"label": "a", "value": "b", "share": 2}],
    }
    file.write_text(json.dumps(wrong))
    with pytest.raises(InputError) as caught:
        load_snapshot(file)
    told = "\n".join(str(p) for p in caught.value.problems)
    for part in ("run_s", "counted[0].price", "locality[0].share"):
        assert part in told
