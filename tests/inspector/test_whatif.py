"""What if: nothing changed is nothing different; what is changed is what the engine would make of the changed world."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from hypothesis import assume, given, settings
from hypothesis import strategies as st
from round_records import bulk_record, chained_record, reread, search_record, unlike

from builders import (
    HUNGRY,
    LARGE,
    SERIAL,
    any_of,
    bound_rounds,
    machine,
    machines,
    rounds,
    running,
    service,
    snapshot,
    task,
)
from engine.bulk_world import RESOURCES, Box, Kind, Naive, World, worlds
from flowsched.cluster.settings import Settings
from flowsched.cluster.snapshot import Reservation, Snapshot
from flowsched.cluster.snapshot_dump import read_plain_snapshot
from flowsched.inspector.change import Changes, NewWidth, parse_changes
from flowsched.inspector.difference import difference
from flowsched.inspector.record_view import RecordView
from flowsched.inspector.replay import replay
from flowsched.inspector.whatif import WHAT_IF, what_if
from flowsched.relations.relation import MACHINE, Relation, RelationKind

CHOSEN = st.sampled_from([Settings(), Settings(objective="makespan"), Settings(due_age_s=20.0, exact_limit=0)])


def after(recorded: RecordView, **options: Any) -> RecordView:
    """The what-if, with options as the command has them."""
    return what_if(recorded, parse_changes(recorded, **options))


def snapshot_of(recorded: RecordView, part: int = 0) -> Snapshot:
    return read_plain_snapshot(recorded.parts[part].plain["snapshot"])


def standing(recorded: RecordView) -> dict[str, str]:
    """Where every task is that was placed."""
    return {p.task: p.machine for part in recorded.parts for p in part.placements}


def overcommitted(recorded: RecordView) -> list[str]:
    """Machines of a search's record on which more is requested than there is."""
    found = []
    for part in recorded.parts:
        cluster = read_plain_snapshot(part.plain["snapshot"])
        tasks = {t.name: t for t in cluster.pending}
        cpu, memory = Counter(cluster.free_milli()), Counter(cluster.free_memory_mib())
        for p in part.placements:
            cpu[p.machine] -= p.width_milli
            memory[p.machine] -= tasks[p.task].memory_mib
        found += [name for name in cpu if cpu[name] < 0 or memory[name] < 0]
    return found


# Nothing is changed


@settings(max_examples=25)
@given(bound_rounds(), CHOSEN, st.booleans())
def test_nothing_changed_in_a_search_is_nothing_different(cluster: Snapshot, chosen: Settings, packed: bool) -> None:
    recorded = reread(search_record(cluster, chosen).plain, packed)
    again = after(recorded)
    assert unlike(recorded, again) == []
    told = difference(recorded, again)
    assert told.same, told.lines()
    assert told.lines()[-1] == "no difference"


@settings(max_examples=60)
@given(worlds(), st.booleans())
def test_nothing_changed_in_a_bulk_round_is_nothing_different(world: World, packed: bool) -> None:
    recorded = reread(bulk_record(world).plain, packed)
    again = after(recorded)
    assert unlike(recorded, again) == []
    told = difference(recorded, again)
    assert told.same, told.lines()


@settings(max_examples=60)
@given(worlds())
def test_nothing_changed_in_a_round_by_priority_is_nothing_different(world: World) -> None:
    recorded = chained_record(world)
    assume(recorded.parts)
    again = after(recorded)
    assert unlike(recorded, again) == []
    assert difference(recorded, again).same


@settings(max_examples=10)
@given(rounds(max_pending=3))
def test_a_what_if_is_a_record_that_can_be_replayed_and_asked_again(cluster: Snapshot) -> None:
    recorded = search_record(cluster)
    first = after(recorded, drain=["m1"])
    again = reread(first.plain)
    assert replay(again).same
    second = after(again)
    assert difference(again, second).same
    assert second.plain[WHAT_IF]["changes"] == ["machine m1 is drained"]


# Changes of a search


@settings(max_examples=25)
@given(bound_rounds(), st.data())
def test_no_task_stays_on_a_drained_machine(cluster: Snapshot, data: st.DataObject) -> None:
    recorded = search_record(cluster, Settings(exact_limit=0))
    gone = data.draw(st.sets(st.sampled_from([m.name for m in cluster.machines]), min_size=1))
    again = after(recorded, drain=sorted(gone))

    assert not gone & set(standing(again).values())
    assert overcommitted(again) == []
    now = snapshot_of(again)
    assert {m.name for m in now.machines} == {m.name for m in cluster.machines} - gone
    assert not any(s.machine in gone for s in now.services)
    moved = {r.task.name for r in cluster.running if r.machine in gone}
    assert {t.name for t in now.pending} == {t.name for t in cluster.pending} | moved
    assert {r.task.name for r in now.running} == {r.task.name for r in cluster.running} - moved
    assert replay(again).same


@settings(max_examples=25)
@given(rounds(), st.data())
def test_a_search_without_tasks_is_the_search_that_never_saw_them(cluster: Snapshot, data: st.DataObject) -> None:
    tasks = [*(t.name for t in cluster.pending), *(r.task.name for r in cluster.running)]
    assume(tasks)
    gone = data.draw(st.sets(st.sampled_from(tasks), min_size=1))
    again = after(search_record(cluster), without=sorted(gone))

    never = replace(
        cluster,
        pending=tuple(t for t in cluster.pending if t.name not in gone),
        running=tuple(r for r in cluster.running if r.task.name not in gone),
    )
    expected = search_record(never)
    # The profiles that only they had are still in the record.
    assert unlike(_without_snapshots(expected), _without_snapshots(again)) == []


@settings(max_examples=20)
@given(rounds(), st.data())
def test_a_width_is_the_only_one_that_a_task_gets(cluster: Snapshot, data: st.DataObject) -> None:
    assume(cluster.pending)
    name = data.draw(st.sampled_from([t.name for t in cluster.pending]))
    cores = data.draw(any_of("1", "2", "500m", "16"))
    again = after(search_record(cluster), width=[f"{name}={cores}"])

    milli = {"1": 1000, "2": 2000, "500m": 500, "16": 16_000}[cores]
    now = next(t for t in snapshot_of(again).pending if t.name == name)
    assert (now.widths_milli, now.request_milli) == ((milli,), milli)
    assert all(p.width_milli == milli for part in again.parts for p in part.placements if p.task == name)
    assert overcommitted(again) == []


@settings(max_examples=20)
@given(rounds(), st.booleans())
def test_a_new_machine_is_empty_and_taken_like_any_other(cluster: Snapshot, of_type: bool) -> None:
    like = cluster.machines[0].type if of_type else "m1"
    again = after(search_record(cluster, Settings(exact_limit=0)), add_machine=[f"{like}:fresh"])

    now = snapshot_of(again)
    fresh = next(m for m in now.machines if m.name == "fresh")
    whole = {m.name: m for m in (machine("small"), machine("large", LARGE), *cluster.machines)}[like]
    assert (fresh.type, fresh.cpu_milli, fresh.memory_mib) == (whole.type, whole.cpu_milli, whole.memory_mib)
    assert not any(r.machine == "fresh" for r in now.running)
    assert not any(s.machine == "fresh" for s in now.services)
    assert overcommitted(again) == []
    assert replay(again).same


@settings(max_examples=15)
@given(rounds())
def test_another_solver_finds_the_same_optimum_of_the_first_network(cluster: Snapshot) -> None:
    recorded = search_record(cluster, Settings(exact_limit=0))
    again = after(recorded, solver="networkx")
    assert again.solver == "networkx"
    assert again.parts[0].first.optimum == recorded.parts[0].first.optimum
    assert list(again.parts[0].first.faults()) == []


def test_settings_are_those_of_the_record_with_the_new_ones() -> None:
    recorded = search_record(snapshot([task("a")]), Settings(slots=1, eps=0.5))
    again = after(recorded, settings=["objective=makespan", "eps=2"])
    assert again.settings == {**recorded.settings, "objective": "makespan", "eps": 2.0}
    assert recorded.settings["slots"] == 1
    told = difference(recorded, again)
    assert {(c.what, c.before, c.after) for c in told.conditions} == {
        ("settings.objective", "completion", "makespan"),
        ("settings.eps", 0.5, 2.0),
    }
    assert any("not in the same prices" in note for note in told.notes)


def test_what_is_lost_by_a_drain_is_said() -> None:
    cluster = snapshot([task("a")], machines(2), services=[service()], running=[running(task("r"), "m1", (1, 2))])
    notes = after(search_record(cluster), drain=["m1"]).plain[WHAT_IF]["notes"]
    assert notes == [
        "service cache-1 is lost: its place was on m1",
        "what ran on drained machines waits as if submitted now, from its beginning: r",
    ]


def test_a_drained_task_begins_again_as_if_submitted_now() -> None:
    cluster = snapshot([], machines(2), running=[running(task("r"), "m1", progress=0.5)], now_s=900.0)
    recorded = search_record(cluster)
    again = after(recorded, drain=["m1"])
    (pending,) = snapshot_of(again).pending
    assert (pending.name, pending.submit_s, pending.rounds_waited) == ("r", 900.0, 0)
    (change,) = difference(recorded, again).changes["moved"]
    assert (change.before.state, change.before.machine) == ("running", "m1")
    assert (change.after.state, change.after.machine) == ("placed", "m2")


def test_a_copy_goes_where_tasks_may_go_that_name_the_original() -> None:
    labelled = machine("m1", labels=(("zone", "a"), ("host", "m1")))
    cluster = snapshot([task("a", machines=("m1",)), task("b", machines=("m1",), cores=4)], [labelled])
    now = snapshot_of(after(search_record(cluster), add_machine=["m1:twin"]))
    assert [t.machines for t in now.pending] == [("m1", "twin")] * 2
    assert dict(now.machines[1].labels) == {"zone": "a", "host": "twin"}


def test_a_type_of_the_bundled_profiles_can_be_added_though_the_record_has_it_not() -> None:
    again = after(
        search_record(snapshot([task("a", HUNGRY)], [machine(memory_mib=100)])), add_machine=["e2-standard-8"]
    )
    assert standing(again) == {"a": "e2-standard-8-new-1"}
    assert "e2-standard-8" in snapshot_of(again).catalogue.machine_types


def test_the_reservation_of_a_task_with_another_width_is_given_up() -> None:
    full = [running(task("r", cores=4, profile=SERIAL), "m1")]
    cluster = snapshot([task("old", cores=4, widths_milli=(4000,))], machines(1), running=full, now_s=1000.0)
    recorded = search_record(cluster, Settings(due_age_s=10.0))
    (held,) = recorded.parts[0].reservations
    later = replace(cluster, reservations=(Reservation(**held),))
    again = after(search_record(later, Settings(due_age_s=10.0)), width=["old=2"])
    assert snapshot_of(again).reservations == ()
    assert "the reservation of old is given up" in again.plain[WHAT_IF]["notes"]


# Changes of bulk rounds: what comes out is what the engine makes of the changed world


@settings(max_examples=60)
@given(worlds(), st.data())
def test_rounds_without_tasks_are_rounds_that_never_saw_them(world: World, data: st.DataObject) -> None:
    """The last tasks of a class: those who come first are served first."""
    tasks = [(k, t) for k in world.kinds for t in k.tasks[-1:]]
    assume(tasks)
    kind, gone = data.draw(st.sampled_from(tasks))
    never = tuple(replace(k, count=k.count - 1) if k is kind else k for k in world.kinds)
    expected = chained_record(replace(world, kinds=never))
    assert unlike(expected, after(chained_record(world), without=[gone])) == []


@settings(max_examples=80)
@given(worlds(relations=False), st.data())
def test_drained_rounds_are_rounds_that_never_had_the_machine(world: World, data: st.DataObject) -> None:
    assume(world.boxes and world.kinds)
    gone = data.draw(st.sampled_from([b.name for b in world.boxes]))
    expected = chained_record(replace(world, boxes=tuple(b for b in world.boxes if b.name != gone)))
    assert unlike(expected, after(chained_record(world), drain=[gone])) == []


@settings(max_examples=80)
@given(worlds(relations=False), st.data())
def test_a_copied_machine_is_one_that_was_always_there(world: World, data: st.DataObject) -> None:
    """Without what runs and is served on the original."""
    assume(world.boxes and world.kinds)
    box = data.draw(st.sampled_from(world.boxes))
    name = data.draw(any_of("aa", "zz"))
    twin = replace(box, name=name, pressure_cap=float("inf"), headroom_slope=0.0)
    expected = chained_record(
        replace(
            world,
            boxes=(*world.boxes, twin),
            kinds=tuple(_also_for(k, box.name, name) for k in world.kinds),
        )
    )
    assert unlike(expected, after(chained_record(world), add_machine=[f"{box.name}:{name}"])) == []


@settings(max_examples=60)
@given(worlds(), st.data())
def test_whatever_is_changed_in_a_bulk_round_its_placements_are_valid(world: World, data: st.DataObject) -> None:
    """With relations too, where domains may be numbered otherwise."""
    assume(world.boxes and world.kinds)
    gone = data.draw(st.sampled_from(world.boxes)).name
    box = data.draw(st.sampled_from(world.boxes))
    again = after(chained_record(world), drain=[gone], add_machine=[f"{box.name}:twin"])

    twin = replace(box, name="twin", pressure_cap=float("inf"), labels={**box.labels})
    boxes = (*(b for b in world.boxes if b.name != gone), twin)
    kinds = tuple(_also_for(k, box.name, "twin") for k in world.kinds)
    naive = Naive(replace(world, boxes=boxes, kinds=kinds))
    of = {t: k for k in kinds for t in k.tasks}
    for part in again.parts:
        for p in part.placements:
            assert naive.valid(of[p.task], p.machine), (p.task, p.machine)
            naive.add(of[p.task], p.machine)
    assert gone not in standing(again).values()
    assert replay(again).same


@settings(max_examples=60)
@given(worlds(groups=False), st.data())
def test_a_task_with_another_width_leaves_its_class(world: World, data: st.DataObject) -> None:
    kinds = [k for k in world.kinds if k.count]
    assume(kinds)
    kind = data.draw(st.sampled_from(kinds))
    chosen = data.draw(st.sampled_from(kind.tasks))
    recorded = bulk_record(world)
    again = what_if(recorded, Changes(widths=(NewWidth(chosen, 3),)))

    naive = Naive(world)
    wider = replace(kind, needs={**kind.needs, "cpu": 3})
    of = {t: k for k in world.kinds for t in k.tasks} | {chosen: wider}
    (part,) = again.parts
    for p in part.placements:
        assert naive.valid(of[p.task], p.machine)
        naive.add(of[p.task], p.machine)
        assert p.task != chosen or p.width_milli == 3
    assert sorted(part.tasks) == sorted(recorded.parts[0].tasks)
    assert len({c.name for c in part.classes}) == len(part.classes)


@settings(max_examples=60)
@given(worlds(relations=False, groups=False), st.data())
def test_a_new_machine_never_makes_the_unconstrained_cost_worse(world: World, data: st.DataObject) -> None:
    """What is bound to hold: placing is a heuristic, but who had a place before still has it."""
    assume(world.boxes)
    room = dict.fromkeys(RESOURCES, 100)
    boxes = tuple(replace(b, allocatable=room, pressure_cap=float("inf")) for b in world.boxes)
    free = {"forbidden": frozenset(), "waiting_cost": float("inf"), "max_cost": float("inf")}
    kinds = tuple(replace(k, count=k.count + 1, **free) for k in world.kinds or (KIND,))
    recorded = bulk_record(replace(world, boxes=boxes, kinds=kinds))
    certificate = recorded.parts[0].certificate
    assert certificate is not None
    assert recorded.parts[0].waiting == ()
    box = data.draw(st.sampled_from(world.boxes))
    again = after(recorded, add_machine=[box.name]).parts[0].certificate
    assert again["unconstrained"] <= certificate["unconstrained"] + 1e-9
    assert again["bound"] <= again["primal"] + 1e-9


@settings(max_examples=25)
@given(worlds())
def test_another_solver_finds_the_same_optimum_of_a_bulk_network(world: World) -> None:
    recorded = bulk_record(world)
    again = after(recorded, solver="networkx")
    assert again.parts[0].first.optimum == recorded.parts[0].first.optimum


def test_a_copied_machine_is_a_domain_of_its_own_where_machines_are_domains() -> None:
    one = Relation("one", RelationKind.APART, MACHINE)
    zone = Relation("zone", RelationKind.LIMIT, "zone", most=2)
    kinds = (
        Kind("apart", 3, {"cpu": 1}, holds=("one",), joins=("one",)),
        Kind("limited", 4, {"cpu": 1}, holds=("zone",), joins=("zone",)),
    )
    world = World(tuple(_box(n) for n in "ab"), (one, zone), kinds=kinds)
    recorded = bulk_record(world)
    placed = Counter(t.partition("-")[0] for t in standing(recorded))
    assert placed == {"apart": 2, "limited": 2}
    again = Counter(t.partition("-")[0] for t in standing(after(recorded, add_machine=["a:c"])))
    assert again == {"apart": 3, "limited": 2}


def test_what_runs_on_a_drained_machine_of_a_bulk_round_is_not_moved_and_that_is_said() -> None:
    world = World((_box("a", pressure_cap=1.0), _box("b")), running=((Kind("old", 1, {"cpu": 1}), "a"),), kinds=(KIND,))
    notes = after(bulk_record(world), drain=["a"]).plain[WHAT_IF]["notes"]
    assert notes == [
        "of what runs on a a bulk round has sums only: it is gone with it, and not moved",
        "latency services on a are lost",
    ]


def test_resolves_is_the_setting_of_bulk_rounds() -> None:
    recorded = bulk_record(World((_box("a"),), kinds=(KIND,)))
    assert after(recorded, settings=["resolves=0"]).parts[0].plain["given"]["settings"]["resolves"] == 0
    notes = after(recorded, settings=["slots=1"]).plain[WHAT_IF]["notes"]
    assert notes == ["a bulk round keeps its prices whatever is set: only resolves and scoring count there"]


# Helpers

KIND = Kind("k", 2, {"cpu": 1})


def _box(name: str, **changes: Any) -> Box:
    return Box(name, {"cpu": 8}, {"zone": "x"}, **changes)


def _also_for(kind: Kind, like: str, name: str) -> Kind:
    def named(names: Iterable[str]) -> frozenset[str]:
        return frozenset((*names, name) if like in names else names)

    def valued(values: Mapping[str, float]) -> dict[str, float]:
        return {**values, name: values[like]} if like in values else dict(values)

    return replace(
        kind,
        forbidden=named(kind.forbidden),
        ineligible=named(kind.ineligible),
        preference=valued(kind.preference),
        slowness=valued(kind.slowness),
    )


def _without_snapshots(recorded: RecordView) -> RecordView:
    parts = [{k: v for k, v in part.plain.items() if k != "snapshot"} for part in recorded.parts]
    return RecordView({**recorded.plain, "parts": parts}, recorded.source)
