"""What if on rounds of cost models: what is changed is what another snapshot would have been."""

from __future__ import annotations

import random
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from builders import HUNGRY, bound_rounds, machine, machines, running, service, snapshot, snapshots, task
from flowsched.cli import flowsched
from flowsched.cluster.settings import Settings
from flowsched.cluster.snapshot import Snapshot
from flowsched.inspector.change import parse_changes
from flowsched.inspector.difference import difference
from flowsched.inspector.explanation import explain
from flowsched.inspector.record_view import RecordView
from flowsched.inspector.replay import differences
from flowsched.inspector.running_changes import changes_of
from flowsched.inspector.whatif import what_if
from flowsched.pricing.linear.policies import COST_MODELS
from flowsched.records.record_file import load_record, pack_record, read_record, write_record
from flowsched.records.snapshot_source import snapshot_of_record
from flowsched.relations.relation import TaskGroup
from flowsched.round.linear.choice import chosen
from flowsched.round.linear.network_scheduler import solve_network_round
from flowsched.round.scheduler import solve
from flowsched_models.document import InputError

MODELS = [name for name in COST_MODELS if not COST_MODELS.package(name)]
CHANGING = Settings(preemption="lower-priority", migration_moves=2)


def recorded_round(found: Snapshot, policy: str = "coco", engine: Settings | None = None, **own: Any) -> RecordView:
    model = chosen(policy, [(name, str(value)) for name, value in own.items()])
    record = solve_network_round(found, model, settings=engine).record
    assert record is not None
    return RecordView(read_record(pack_record(record), "round.npz"), "round.npz")


def flow_round(found: Snapshot) -> RecordView:
    record = solve(found).record
    assert record is not None
    return RecordView(read_record(pack_record(record), "round.npz"), "round.npz")


def after(recorded: RecordView, **options: Iterable[str]) -> RecordView:
    return what_if(recorded, parse_changes(recorded, **options))  # type: ignore[arg-type]


def untimed(recorded: RecordView) -> list[dict[str, Any]]:
    return [{k: v for k, v in part.plain.items() if k != "timings"} for part in recorded.parts]


def decided(recorded: RecordView) -> dict[str, Any]:
    placed = {p.task: (p.machine, p.width_milli, p.cost) for part in recorded.parts for p in part.placements}
    return placed | {w.task: w.cost for part in recorded.parts for w in part.waiting}


def comes_out_the_same(recorded: RecordView) -> None:
    again = after(recorded)
    assert differences(untimed(recorded), untimed(again), "parts") is not None
    assert [m.where for m in differences(untimed(recorded), untimed(again))] == []
    assert difference(recorded, again).same
    assert again.plain["cost_model"] == recorded.plain["cost_model"]
    assert (again.policy, dict(again.settings)) == (recorded.policy, dict(recorded.settings))


@pytest.mark.parametrize("policy", MODELS)
@settings(max_examples=10)
@given(found=bound_rounds(), due_age_s=st.sampled_from([0.5, 600.0]))
def test_with_relations_gangs_and_reservations_nothing_changed_is_the_same(
    policy: str, found: Snapshot, due_age_s: float
) -> None:
    comes_out_the_same(recorded_round(found, policy, Settings(due_age_s=due_age_s)))


@pytest.mark.parametrize("policy", MODELS)
@settings(max_examples=10)
@given(found=snapshots(max_pending=8, max_running=6), seed=st.integers(0, 20))
def test_with_preemption_and_migration_nothing_changed_is_the_same(policy: str, found: Snapshot, seed: int) -> None:
    draw = random.Random(seed)
    raised = tuple(replace(t, priority=draw.randrange(4)) for t in found.pending)
    comes_out_the_same(recorded_round(replace(found, pending=raised), policy, CHANGING))


def late() -> Snapshot:
    """A machine is held for a wide task that waits for long, beside a gang."""
    busy = [running(task(f"r{k}", widths_milli=(2000,)), f"m{k + 1}", (0, 1)) for k in range(2)]
    pending = [task("wide", widths_milli=(4000,), submit_s=-1000.0)]
    pending += [task(f"g{k}", widths_milli=(1000,), group="g") for k in range(2)]
    pending += [task(f"t{k}", widths_milli=(1000,), scale=(0.1, 50.0)[k % 2]) for k in range(4)]
    return snapshot(pending, machines(2), running=busy, task_groups=(TaskGroup("g", 2),))


@pytest.mark.parametrize("policy", MODELS)
def test_what_was_held_and_what_is_preempted_comes_out_the_same(policy: str) -> None:
    first = recorded_round(late(), policy)
    assert first.parts[0].reservations
    comes_out_the_same(first)
    held = solve_network_round(late(), chosen(policy)).reservations
    comes_out_the_same(recorded_round(replace(late(), reservations=held, now_s=3.0), policy))
    preempted = recorded_round(full(), policy, CHANGING)
    assert preempted.parts[0].plain["preemptions"]
    comes_out_the_same(preempted)


@pytest.mark.parametrize("policy", MODELS)
@settings(max_examples=10)
@given(found=bound_rounds(), data=st.data())
def test_a_round_without_a_task_or_an_idle_machine_is_that_of_a_cluster_that_never_had_it(
    policy: str, found: Snapshot, data: st.DataObject
) -> None:
    assume(found.pending)
    recorded = recorded_round(found, policy)
    gone = data.draw(st.sampled_from(sorted(t.name for t in found.pending)))
    fewer = replace(found, pending=tuple(t for t in found.pending if t.name != gone))
    if fewer.pending:
        assert decided(after(recorded, without=[gone])) == decided(recorded_round(fewer, policy))
    used = {r.machine for r in found.running} | {s.machine for s in found.services}
    idle = sorted({m.name for m in found.machines} - used)
    if len(found.machines) < 2 or not idle:
        return
    name = data.draw(st.sampled_from(idle))

    def left(names: tuple[str, ...] | None) -> tuple[str, ...] | None:
        return None if names is None else tuple(n for n in names if n != name)

    smaller = replace(
        found,
        machines=tuple(m for m in found.machines if m.name != name),
        pending=tuple(replace(t, machines=left(t.machines)) for t in found.pending),
        running=tuple(replace(r, task=replace(r.task, machines=left(r.task.machines))) for r in found.running),
    )
    assert decided(after(recorded, drain=[name])) == decided(recorded_round(smaller, policy))


def test_what_ran_on_a_drained_machine_waits_and_its_service_is_lost() -> None:
    there = [running(task("r", widths_milli=(2000,)), "m1", (2, 3))]
    recorded = recorded_round(snapshot([task("a")], machines(2), services=[service()], running=there))
    again = after(recorded, drain=["m1"])
    assert set(decided(again)) == {"a", "r"}
    assert again.plain["what_if"]["notes"] == [
        "service cache-1 is lost: its place was on m1",
        "what ran on drained machines waits as if submitted now, from its beginning: r",
    ]
    now = snapshot_of_record(again.plain, "what if")
    assert (now.running, [m.name for m in now.machines]) == ((), ["m2"])
    assert "r" not in decided(after(recorded, drain=["m1"], without=["r"]))


def test_machines_are_added_by_type_and_like_others_and_tasks_get_widths() -> None:
    recorded = recorded_round(snapshot([task("wide", widths_milli=(8000,), request_milli=8000)], [machine("m1")]))
    (waits,) = recorded.parts[0].waiting
    assert (waits.cause, waits.reason.partition(";")[0]) == ("never", "needs 8 cores on one machine")
    added = after(recorded, add_machine=["e2-standard-8:big"])
    assert [(p.task, p.machine) for p in added.parts[0].placements] == [("wide", "big")]
    narrow = after(recorded, width=["wide=2"])
    assert [(p.task, p.machine, p.width_milli) for p in narrow.parts[0].placements] == [("wide", "m1", 2000)]
    twin = after(added, drain=["big"], add_machine=["big:big-2"])
    assert [p.machine for p in twin.parts[0].placements] == ["big-2"]
    assert twin.plain["what_if"]["changes"][-1] == "machine big is drained"


def full() -> Snapshot:
    """Two machines without room, and a task that is more urgent than what runs there."""
    of_four: dict[str, Any] = {"widths_milli": (4000,), "request_milli": 4000}
    there = [running(task(f"r{k}", **of_four), f"m{k}", (0, 1, 2, 3)) for k in (1, 2)]
    return snapshot([task("urgent", priority=5, **of_four)], machines(2), running=there)


@pytest.mark.parametrize("policy", ["flow", "trivial", "coco"])
def test_what_is_preempted_and_moved_for_other_settings_is_told(policy: str) -> None:
    recorded = flow_round(full()) if policy == "flow" else recorded_round(full(), policy)
    told = difference(recorded, after(recorded, settings=["preemption=lower-priority"])).lines()
    assert told[told.index("newly placed: 1") + 1].startswith("  urgent: on m")
    assert "it was preempted for urgent" in told[told.index("newly waiting: 1") + 1]
    there = [running(task(f"r{k}", HUNGRY, widths_milli=(1000,), memory_mib=100), "m1", (k,)) for k in range(3)]
    uneven = snapshot([task("a", widths_milli=(1000,), memory_mib=100)], machines(2), running=there)
    recorded = flow_round(uneven) if policy == "flow" else recorded_round(uneven, policy)
    changed = after(recorded, settings=["migration_moves=1", "migration_price=0", "migration_pause_s=0"])
    moves = changed.parts[0].plain.get("moves", [])
    assert moves or policy == "trivial"
    told = difference(recorded, changed).lines()
    for move in moves:
        assert f"  {move['task']}: m1, 2 cores (it ran there) -> {move['machine']}, 2 cores" in told


def test_its_own_settings_are_kept_and_changed() -> None:
    found = late()
    recorded = recorded_round(found, "coco", growth=1.5, waiting=50.0)
    again = after(recorded, settings=["coco.waiting=70", "due_age_s=2000"])
    expected = recorded_round(found, "coco", Settings(due_age_s=2000.0), growth=1.5, waiting=70.0)
    assert decided(again) == decided(expected) != decided(recorded)
    told = difference(recorded, again).lines()
    assert "coco.waiting: 50 -> 70" in told
    assert "settings.due_age_s: 600 -> 2000" in told
    assert "solver: ortools -> networkx" in difference(recorded, after(recorded, solver="networkx")).lines()
    assert "note: costs are not in the same prices: settings differ (due_age_s, coco.waiting)" in told


@pytest.mark.parametrize(
    ("typed", "told"),
    [
        ("slots=2", "--set: slots: not read by coco; what is read: due_age_s, "),
        ("coco.nix=2", "--set: coco.nix=2: the policy 'coco' has no setting 'nix'; known: coco.penalties, "),
        ("coco.growth=x", "--set: coco.growth is 'x'; give a number"),
        ("quincy.waiting=2", "--set: quincy.waiting: is for quincy; its round was decided by coco"),
        ("exact_tasks=3", "--set: exact_tasks: not read by coco; "),
    ],
)
def test_a_setting_that_it_does_not_know_gets_one_sentence(typed: str, told: str) -> None:
    recorded = recorded_round(snapshot([task("a")]))
    with pytest.raises(InputError) as error:
        after(recorded, settings=[typed])
    (line,) = str(error.value).splitlines()
    assert line.startswith(told)


def test_settings_that_a_record_lacks_are_told() -> None:
    recorded = recorded_round(snapshot([task("a")]))
    plain: dict[str, Any] = dict(recorded.plain)
    few = RecordView({**plain, "cost_model": {"name": "coco", "settings": {}}}, "few.npz")  # type: ignore[typeddict-item]
    (note,) = after(few).plain["what_if"]["notes"]
    assert note.startswith("settings of coco that the record does not have are at their defaults: bucket, ")


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        (
            {"policy": "mine", "cost_model": {"name": "mine", "settings": {}}},
            "cost_model.name: there is no policy 'mine'; ",
        ),
        (
            {"cost_model": {"name": "coco", "settings": {"nix": 1}}},
            "cost_model.settings.nix: the cost model 'coco' has no ",
        ),
        (
            {"cost_model": {"name": "coco", "settings": {"growth": "x"}}},
            "cost_model.settings.growth: is 'x'; give a number",
        ),
        ({"solver": "mine"}, "solver: there is no solver 'mine'; "),
    ],
)
def test_commands_say_what_is_not_installed_in_one_sentence(changed: dict[str, Any], told: str, tmp_path: Path) -> None:
    path = tmp_path / "round.json"
    write_record({**recorded_round(snapshot([task("a")])).plain, **changed}, path)  # type: ignore[typeddict-item]
    for command in ("replay", "whatif"):
        result = CliRunner().invoke(flowsched, [command, str(path)])
        assert isinstance(result.exception, InputError)
        (line,) = str(result.exception).splitlines()
        assert line.startswith(f"{path}: {told}")


@pytest.mark.parametrize("policy", ["flow", "coco"])
def test_another_solver_takes_the_place_of_one_that_is_not_there(policy: str) -> None:
    found = snapshot([task("a")])
    recorded = flow_round(found) if policy == "flow" else recorded_round(found, policy)
    gone = RecordView({**recorded.plain, "solver": "mine"}, "gone.npz")
    assert "solver: mine -> highs" in difference(gone, after(gone, solver="highs")).lines()


def test_a_round_whose_snapshot_an_older_version_left_out_is_refused() -> None:
    recorded = recorded_round(late())
    parts = [{k: v for k, v in part.plain.items() if k != "snapshot"} for part in recorded.parts]
    old = RecordView({**recorded.plain, "parts": parts}, "old.npz")  # type: ignore[typeddict-item]
    with pytest.raises(InputError, match=r"old.npz: has no snapshot of its round: an older flowsched wrote it"):
        after(old)


@pytest.mark.parametrize("policy", ["flow", "trivial", "coco"])
def test_what_starts_in_the_place_of_others_is_placed(policy: str) -> None:
    record = (
        solve(full(), settings=CHANGING).record if policy == "flow" else recorded_round(full(), policy, CHANGING).plain
    )
    assert record is not None
    recorded = RecordView(read_record(pack_record(record), "round.npz"), "round.npz")
    (left,) = changes_of(recorded)["preemptions"]
    assert recorded.placed_and_waiting == (1, 0)
    with pytest.raises(InputError, match=f"'{left['machine']}' is a machine; .* this round placed urgent there"):
        explain(recorded, left["machine"])
    note = "total costs and certificates are those before anything was preempted or moved"
    assert note in difference(recorded, after(recorded, settings=["preemption=none"])).notes


def test_the_command_takes_rounds_of_a_simulation(tmp_path: Path) -> None:
    def run(*args: object, code: int = 0) -> str:
        result = CliRunner().invoke(flowsched, [str(arg) for arg in args])
        assert result.exit_code == code, (args, result.output, result.exception)
        return result.output

    more = ["--policy=quincy", "--policy=coco", "--set=migration_moves=1", "--max-time=120s", "--json"]
    run("simulate", "parsec-poisson", *more, f"--records={tmp_path}", code=3)  # not all jobs end in time
    found = sorted(tmp_path.glob("*.npz"))
    assert len(found) > 10
    for path in found[:: max(1, len(found) // 6)]:
        assert "no difference" in run("whatif", path)
        assert run("replay", path).endswith("same\n")
    (name, *_) = [m["name"] for m in load_record(found[-1])["parts"][0]["snapshot"]["machines"]]
    out = tmp_path / "new.json"
    assert f"machines that are gone: {name}" in run("whatif", found[-1], "--drain", name, "--record", out)
    assert run("replay", out).endswith("same\n")
    write_record(load_record(out), tmp_path / "again.npz")
