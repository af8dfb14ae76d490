"""What came later and starts before a waiting task, with the reason; which of equal machines a task takes, and why."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from builders import SINGLE, bound_rounds, catalogue, machine, running, snapshot, task
from flowsched.cluster.settings import Settings
from flowsched.cluster.snapshot import Reservation, Snapshot, Task
from flowsched.inspector.change import Changes
from flowsched.inspector.explanation import explain
from flowsched.inspector.record_view import RecordView
from flowsched.inspector.replay import replay
from flowsched.inspector.whatif import what_if
from inspector.round_records import search_record
from inspector.test_explanation import check_shape

NOW_S = 1000.0
PLAIN = replace(SINGLE, serial_fraction=1.0)
"""No place makes it faster or slower."""
CATALOGUE = catalogue((PLAIN,))


def wants(name: str, cores: int, at: float, seconds: float = 50.0, **changes: Any) -> Task:
    return task(
        name, PLAIN, widths_milli=(1000 * cores,), submit_s=at, scale=seconds / PLAIN.work_s, memory_mib=1, **changes
    )


def moment(pending: list[Task], busy: dict[str, tuple[int, float]], **changes: Any) -> Snapshot:
    """Machines of four cores, each with a task on so many of them for so many seconds from now."""
    there = [
        running(wants(f"on-{name}", cores, 0.0, NOW_S + left_s, request_milli=1000 * cores), name)
        for name, (cores, left_s) in busy.items()
        if cores
    ]
    names = [machine(name) for name in busy]
    return snapshot(pending, names, running=there, now_s=NOW_S, catalogue=CATALOGUE, **changes)


def rows_of(recorded: RecordView, name: str) -> dict[str, dict[str, Any]]:
    plain = check_shape(explain(recorded, name))
    assert plain["fate"] == "waits"
    assert plain["came_later"]["count"] == sum(row["count"] for row in plain["came_later"]["rows"])
    return {row["reason"]: row for row in plain["came_later"]["rows"]}


def line_of(recorded: RecordView, name: str) -> str:
    (line,) = (line for line in explain(recorded, name).lines() if line.startswith("Came later"))
    return line


def names_of(row: dict[str, Any]) -> list[str]:
    return [t["task"] for t in row["tasks"]]


def test_a_shorter_task_is_offered_places_first() -> None:
    pending = [wants("long", 2, 990.0, 300.0), *(wants(f"s{i}", 2, 995.0 + i, 10.0 + i) for i in range(2))]
    recorded = search_record(moment(pending, {"m1": (0, 0.0)}))
    rows = rows_of(recorded, "long")
    assert list(rows) == ["shorter"]
    assert [t["run_s"] for t in rows["shorter"]["tasks"]] == pytest.approx([10.0, 11.0], rel=0.1)
    line = line_of(recorded, "long")
    assert line.startswith("Came later but start first, shorter than its 300 s and so offered places first: s0 (10")


def test_weights_are_told_where_they_differ() -> None:
    pending = [wants("light", 4, 990.0, 50.0), wants("heavy", 4, 995.0, 80.0, weight=4.0)]
    recorded = search_record(moment(pending, {"m1": (0, 0.0)}))
    assert list(rows_of(recorded, "light")) == ["shorter"]
    assert "(weight 1, 50 s) and so offered places first: heavy (weight 4, 80 s)." in line_of(recorded, "light")


def test_a_wider_task_is_offered_places_first() -> None:
    pending = [wants("narrow", 2, 990.0, 50.0), wants("wide", 4, 995.0, 55.0)]
    recorded = search_record(moment(pending, {"m1": (0, 0.0)}), Settings(improved_tasks=0))
    assert list(rows_of(recorded, "narrow")) == ["wider"]
    assert line_of(recorded, "narrow") == (
        "Came later but starts first, wider than its 2 cores and so offered places first: wide (4 cores, 55 s)."
    )


def test_a_higher_priority_comes_first() -> None:
    pending = [wants("low", 4, 0.0), wants("high", 4, 999.0, priority=7), wants("before", 1, -1.0)]
    recorded = search_record(moment(pending, {"m1": (0, 0.0)}), Settings(due_age_s=1e6))
    rows = rows_of(recorded, "low")
    assert names_of(rows["priority"]) == ["high"]
    assert line_of(recorded, "low") == "Came later but starts first, of higher priority than its 0: high (7)."


def test_a_smaller_task_fits_where_a_wide_one_does_not() -> None:
    pending = [wants("wide", 4, 990.0), *(wants(f"n{i}", 1, 995.0 + i) for i in range(2))]
    recorded = search_record(moment(pending, {"m1": (2, 900.0), "m2": (4, 300.0)}), Settings(slots=1))
    row = rows_of(recorded, "wide")["smaller"]
    assert [(t["asks"], t["free"]) for t in row["tasks"]] == [(1000, 2000)] * 2
    assert line_of(recorded, "wide") == (
        "Came later but start first, smaller than the 4 cores of cpu that it asks for: "
        "n0 on m1 (1 core, 2 cores free), n1 on m1 (1 core, 2 cores free)."
    )


def test_what_ends_before_a_reservation_may_come_first() -> None:
    pending = [wants("wide", 4, 0.0), wants("quick", 1, 999.0, 20.0), wants("slow", 1, 999.0, 4000.0)]
    recorded = search_record(moment(pending, {"m1": (2, 300.0)}), Settings(due_runs=0.0))
    row = rows_of(recorded, "wide")["backfilled"]
    assert names_of(row) == ["quick"]
    assert row["tasks"][0]["end_s"] < row["tasks"][0]["reserved_s"]
    assert "before the machine is needed for a reservation: quick on m1 (in 20" in line_of(recorded, "wide")


def test_a_longer_task_that_came_later_waits_for_the_reservation_of_another_one() -> None:
    pending = [wants("wide", 4, 0.0), wants("slow", 1, 998.0, 4000.0), wants("quick", 1, 999.0, 20.0)]
    recorded = search_record(moment(pending, {"m1": (2, 300.0)}), Settings(due_runs=0.0))
    assert names_of(rows_of(recorded, "slow")["backfilled"]) == ["quick"]


def test_an_overdue_task_had_to_start() -> None:
    # The first is overdue after 10 x 300 s, the second after 600 s.
    pending = [wants("long", 4, 0.0, 300.0), wants("short", 4, 100.0, 20.0)]
    recorded = search_record(moment(pending, {"m1": (0, 0.0)}))
    assert rows_of(recorded, "long")["due"]["tasks"] == [{"task": "short", "due_age_s": 600.0}]
    assert (
        line_of(recorded, "long") == "Came later but starts first, overdue and so bound to start: short (after 600 s)."
    )


def test_a_machine_that_it_may_not_use_is_not_taken_from_it() -> None:
    pending = [wants("bound", 4, 990.0, machines=frozenset({"m2"})), wants("free", 2, 995.0)]
    recorded = search_record(moment(pending, {"m1": (0, 0.0), "m2": (3, 500.0)}), Settings(slots=1))
    assert line_of(recorded, "bound") == "Came later but starts first, where it may not run: free on m1."


def test_nothing_is_told_where_nothing_came_later() -> None:
    recorded = search_record(moment([wants("n", 4, 990.0)], {"m1": (2, 300.0)}))
    assert explain(recorded, "n").plain()["came_later"] == {"count": 0, "rows": []}
    assert "Came later" not in "\n".join(explain(recorded, "n").lines())


def test_a_task_that_never_starts_is_not_said_to_be_passed() -> None:
    recorded = search_record(moment([wants("n", 9, 990.0), wants("m", 1, 995.0)], {"m1": (0, 0.0)}))
    assert explain(recorded, "n").plain()["came_later"] is None


@settings(max_examples=25)
@given(bound_rounds(), st.booleans())
def test_all_that_came_later_and_starts_is_told_with_what_the_record_has(snap: Snapshot, due: bool) -> None:
    recorded = search_record(snap, Settings(slots=2, exact_limit=0, due_age_s=5.0 if due else 600.0))
    (part,) = recorded.parts
    of = {t.name: t for t in snap.pending}
    for waits in part.waiting:
        plain = explain(recorded, waits.task).plain()
        if plain["came_later"] is None:
            continue
        told = {t["task"]: row for row in plain["came_later"]["rows"] for t in row["tasks"]}
        mine = of[waits.task]
        assert all(of[name].submit_s > mine.submit_s for name in told)
        starting = {p.task for p in part.placements if of[p.task].submit_s > mine.submit_s}
        assert plain["came_later"]["count"] >= len(starting)
        assert starting <= set(told) or any(row["more"] for row in told.values())
        for name, row in told.items():
            other = of[name]
            match row["reason"]:
                case "priority":
                    assert other.priority > mine.priority
                case "smaller":
                    assert next(t["asks"] for t in row["tasks"] if t["task"] == name) < row["own_asks"]
                case "shorter" | "wider":
                    assert other.priority == mine.priority


# Equal machines


def tied(recorded: RecordView, name: str) -> dict[str, Any]:
    plain = check_shape(explain(recorded, name))
    found: dict[str, Any] = plain["tied"]
    return found


@pytest.mark.parametrize(
    ("scoring", "taken", "by", "why"),
    [
        ("auto", "m2", "idle", "it leaves the least CPU idle here, "),
        ("spread", "m1", "cpu", "it takes the one with the most CPU free, 4 cores (scoring spread)."),
    ],
)
def test_of_equal_machines_the_fullest_or_the_emptiest_is_taken(scoring: str, taken: str, by: str, why: str) -> None:
    recorded = search_record(
        moment([wants("n", 1, 990.0)], {"m1": (0, 0.0), "m2": (2, 300.0)}), Settings(scoring=scoring)
    )
    (placed,) = recorded.parts[0].placements
    assert placed.machine == taken
    found = tied(recorded, "n")
    assert (found["count"], found["by"], found["fullest"]) == (1, by, scoring == "auto")
    said = next(line for line in explain(recorded, "n").lines() if line.startswith("1 other machine costs the same"))
    assert why in said
    assert f"(scoring {scoring})" in said


def test_of_equally_full_machines_the_first_is_taken() -> None:
    recorded = search_record(moment([wants("n", 1, 990.0)], {f"m{i}": (2, 300.0) for i in range(3)}))
    assert tied(recorded, "n")["by"] == "number"
    assert (
        "2 other machines cost the same: of these, equally full, it takes the first." in explain(recorded, "n").lines()
    )


# Replay and what-if


def crowd() -> Snapshot:
    """Four overdue tasks with reservations, a fifth behind them, and short ones that come later."""
    wide = [wants(f"w{i}", 4, float(i), 40.0) for i in range(5)]
    short = [wants(f"s{i}", 1, 990.0 + i, 10.0) for i in range(6)]
    kept = (Reservation("w0", "m0", 4000, NOW_S + 900.0),)
    return moment([*wide, *short], {f"m{i}": (2, 300.0 + i) for i in range(5)}, reservations=kept)


def test_a_round_with_four_reservations_is_replayed_the_same() -> None:
    recorded = search_record(crowd(), Settings(due_runs=10.0, scoring="auto"))
    (part,) = recorded.parts
    assert len(part.reservations) == 4
    assert part.placements
    again = replay(recorded)
    assert again.same, again.lines()
    assert {"shorter", "backfilled", "smaller"} & set(rows_of(recorded, "w4"))


def test_a_what_if_of_such_a_round_has_its_reservations_and_overdue_ages() -> None:
    recorded = search_record(crowd(), Settings(due_runs=10.0, scoring="auto"))
    after = what_if(recorded, Changes(drains=("m4",)))
    (part,) = after.parts
    assert len(part.reservations) == 4
    assert "m4" not in {r["machine"] for r in part.reservations}
    never_due = explain(recorded, "s0").plain()
    assert never_due["fate"] == "placed"
    assert explain(after, "w4").plain()["bound"]["due_age_s"] == 600.0
