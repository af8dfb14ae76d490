"""Explanations name the real rival, and machines that can help."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from builders import HUNGRY, LARGE, SCALING, SERIAL, bound_rounds, machine, running, service, snapshot, task
from engine.bulk_world import Kind
from flowsched import load_snapshot
from flowsched.cluster.snapshot import Snapshot
from flowsched.inspector.explanation import explain
from flowsched.inspector.record_view import RecordView
from flowsched.inspector.refusals import Check, shortage, tabulate
from flowsched.inspector.restored_round import RestoredRound, restore
from flowsched.pricing.flow_prices import FORBIDDEN
from flowsched.relations.relation import TaskGroup
from flowsched.round.assignment import PlacementOption
from inspector.test_explanation import (
    bulk,
    check_searched,
    check_shape,
    fleet_of,
    needs,
    searched,
    starts_at_once,
)

ROOT = Path(__file__).parents[2]


def text_of(recorded: RecordView, name: str) -> str:
    return "\n".join(explain(recorded, name).lines())


def offers(recorded: RecordView, name: str) -> dict[tuple[str, int, int], float]:
    """Price of every option that a task could have, asked of the engine, starts now and later ones alike."""
    found = restore(recorded, recorded.parts[0])
    model, t = replace(found.model, must_start=frozenset()), found.task_number[name]
    level = found.levels.level_of
    placed = [(u, o) for u, o in enumerate(found.decided.options) if o is not None and u != t]
    # What a higher level has planned for later there, lower ones leave alone.
    closed = {o.machine for u, o in placed if o.start_after and level(u) > level(t)}
    own = found.decided.options[t]
    return {
        (here.name, option.start_after, option.width_milli): price
        for m, here in enumerate(model.view.machines)
        for price, option in model.offers(found.decided, t, m)
        if price < FORBIDDEN
        and (m not in closed or (own is not None and m == own.machine))
        and orderly(found, t, option)
    }


def orderly(found: RestoredRound, t: int, option: PlacementOption) -> bool:
    """Whether relations let a task come there."""
    moved = found.decided.copy()
    moved.move(t, option)
    return found.model.orderly(moved)


def at_once(recorded: RecordView, name: str, column: tuple[str, int, int]) -> bool:
    """Whether no task would complete before a later slot."""
    part = recorded.parts[0]
    decided = {p.task: (p.machine, 0, None) for p in part.placements}
    decided |= {w.task: (w.planned["machine"], w.planned["slot"], None) for w in part.waiting if w.planned is not None}
    return starts_at_once(part.plain, decided, name, {"head": f"arrive:{column[0]}", "slot": column[1]})


# Rivals


@settings(max_examples=60)
@given(bound_rounds(), st.sampled_from(["completion", "makespan"]), st.booleans())
def test_the_runner_up_is_the_cheapest_of_all_that_the_engine_offers(snap: Snapshot, objective: str, due: bool) -> None:
    recorded = searched(snap, objective=objective, slots=2, due_age_s=5.0 if due else 600.0, exact_limit=0)
    for placed in recorded.parts[0].placements:
        plain = check_shape(explain(recorded, placed.task))
        prices = offers(recorded, placed.task)
        prices.pop((placed.machine, 0, placed.width_milli or 0), None)
        prices = {k: price for k, price in prices.items() if not at_once(recorded, placed.task, k)}
        assert plain["runner_up"]["cost"] == pytest.approx(min([*prices.values(), plain["waiting"]["cost"]]), abs=1e-6)
        own = [price for (name, _, _), price in prices.items() if name == placed.machine]
        assert [m["cost"] for m in plain["same_machine"]] == pytest.approx(sorted(own), abs=1e-6)
        lines = explain(recorded, placed.task).lines()
        cheaper = plain["runner_up"]["more"] < -5e-5
        assert any(line.startswith("Cheaper, but left: ") for line in lines) == cheaper
        assert any(line.startswith("Why it was left: ") for line in lines) == cheaper
        assert any(line.startswith("Runner-up: ") for line in lines) != cheaper


def test_what_must_start_says_what_waiting_or_a_later_slot_would_have_saved() -> None:
    group = TaskGroup("team", 3)
    pending = [task(f"g{i}", HUNGRY, group="team", widths_milli=(1000,), memory_mib=100) for i in range(3)]
    recorded = searched(snapshot(pending, task_groups=(group,)), slots=2)
    plain = check_searched(recorded, "g1")
    assert plain["why_now"] == "group"
    assert any(m["slot"] > 0 for m in plain["same_machine"])
    if plain["runner_up"]["more"] < 0.0:
        assert "Why it was left: its task group had to start now, whole." in explain(recorded, "g1").lines()


# What would help


def test_a_machine_that_can_never_hold_it_is_not_what_would_help() -> None:
    there = running(task("r", SCALING, cores=8, widths_milli=(8000,)), "big", cores=tuple(range(8)))
    wanted = task("n", SCALING, cores=8, widths_milli=(8000,))
    recorded = searched(snapshot([wanted], [machine("small"), machine("big", LARGE)], running=[there]))
    short = check_searched(recorded, "n")["shortage"]
    assert (short["emptiest"]["machine"], short["empty"]["machine"]) == ("big", "small")
    text = text_of(recorded, "n")
    assert "room on big, which misses least of those that are large enough: 8 cores short" in text
    assert "small is empty and still 4 cores short (4 of 8): a smaller request would fit there." in text


def test_the_worked_example_leads_to_its_fix() -> None:
    recorded = searched(load_snapshot(ROOT / "docs" / "examples" / "waiting.yaml"))
    text = text_of(recorded, "report")
    assert "room on node-c-8core, which misses least of those that are large enough: 0.09 cores short" in text
    assert "node-b-4core is empty and still 0.08 cores short (3.92 of 4): a smaller request would fit there." in text


def test_what_stays_on_a_machine_is_named_where_it_is_the_reason() -> None:
    endless = running(task("web", SERIAL, cores=1, widths_milli=(1000,), endless=True), "m1", cores=(0,))
    wanted = task("n", SCALING, cores=4, widths_milli=(4000,))
    recorded = searched(snapshot([wanted], running=[endless]))
    short = check_searched(recorded, "n")["shortage"]
    assert (short["never"], short["too_small"]) == (True, False)
    assert short["stays"] == [{"machine": "m1", "services": [], "tasks": ["web"]}]
    text = text_of(recorded, "n")
    assert "even if it were empty" not in text
    assert "beside its services and tasks without an end" in text
    assert "m1 without what stays there (task web, without an end): of its 4 cores 3 cores can become free" in text
    served = searched(snapshot([wanted], services=[service()]))
    assert "m1 without what stays there (service cache-1)" in text_of(served, "n")


def test_machines_that_lack_different_things_are_told_one_by_one() -> None:
    room = _array([[2, 8], [8, 4]])
    short = shortage(["a", "b"], ["cpu", "memory"], [4, 10], room, room, _mask(2), room)
    assert (short["never"], short["too_small"]) == (True, True)
    wanted = task("n", SCALING, cores=4, widths_milli=(4000,), memory_mib=20_000)
    slim = machine("slim", LARGE, memory_mib=1000)
    fat = machine("fat", cpu_milli=2000, memory_mib=30_000)
    recorded = searched(snapshot([wanted], [slim, fat]))
    text = text_of(recorded, "n")
    assert "different things" in text
    assert "fat cpu (2 of 4)" in text
    assert "slim memory (1000 MiB of 20000 MiB)" in text


def _array(rows: Any) -> Any:
    return np.array(rows, dtype=np.int64)


def _mask(count: int) -> Any:
    return np.ones(count, dtype=np.bool_)


@given(
    st.lists(st.tuples(*[st.integers(0, 6)] * 4), min_size=1, max_size=6),
    st.tuples(st.integers(0, 5), st.integers(0, 5)),
)
def test_a_shortage_names_who_could_hold_it_wherever_there_is_one(
    rows: list[tuple[int, ...]], asks: tuple[int, int]
) -> None:
    whole = _array([[max(r[0], r[2]), max(r[1], r[3])] for r in rows])
    free = _array([[min(r[0], r[2]), min(r[1], r[3])] for r in rows])
    names = [f"m{i}" for i in range(len(rows))]
    short = shortage(names, ["cpu", "memory"], list(asks), free, whole, _mask(len(rows)), whole)
    holds = {n for n, w in zip(names, whole.tolist(), strict=True) if w[0] >= asks[0] and w[1] >= asks[1]}
    assert short["never"] == (not holds)
    assert short["emptiest"]["machine"] in (holds or set(names))
    assert bool(short["lacking"]) == short["never"]
    if short["empty"] is not None:
        i = names.index(short["empty"]["machine"])
        assert names[i] not in holds
        assert (free[i] == whole[i]).all()
        assert any(x["short"] for x in short["empty"]["resources"])


# Words


def test_a_row_says_which_machines_another_reason_removed_first() -> None:
    table = tabulate(
        ["a", "b", "c"], [Check("x", np.array([True, False, True])), Check("y", np.array([True, True, False]))]
    )
    rows = {row["reason"]: row for row in table["rows"]}
    assert (rows["y"]["names"], rows["y"]["also_names"], rows["y"]["count"], rows["y"]["also"]) == (["b"], ["a"], 1, 1)


def test_a_first_round_is_no_news() -> None:
    wanted = task("n", SCALING, cores=9, widths_milli=(9000,), submit_s=100.0)
    assert "It has waited" not in text_of(searched(snapshot([wanted], now_s=100.0)), "n")
    assert "It has waited 12 s.\n" in text_of(searched(snapshot([wanted], now_s=112.0)), "n") + "\n"


def test_a_class_that_the_first_network_left_is_not_said_to_be_left() -> None:
    recorded = bulk(fleet_of(4, 8, 8), [Kind("a", 5, needs(3))])
    for name in recorded.parts[0].tasks:
        found = explain(recorded, name).plain()["class"]
        placed = [p for p in recorded.parts[0].placements if recorded.parts[0].class_of[p.task] == "a"]
        assert found["placed"] == len(placed)
        text = text_of(recorded, name)
        assert f"has 5 tasks, {'all' if len(placed) == 5 else len(placed)} placed: the first network" in text


def test_what_a_task_cost_when_it_was_placed_is_said_only_if_it_changed() -> None:
    recorded = bulk(fleet_of(4, 4), [Kind("a", 1, needs(1))])
    assert "When it was placed" not in text_of(recorded, "a-0")
