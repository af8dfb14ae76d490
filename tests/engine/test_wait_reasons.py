"""The same cause has the same words, whichever prices have decided."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from builders import HUNGRY, machine, machines, running, service, snapshot, task
from flowsched.cluster.settings import Settings
from flowsched.cluster.snapshot import Snapshot
from flowsched.relations.relation import Relation, RelationKind, TaskGroup
from flowsched.round import wait_reasons
from flowsched.round.scheduler import solve

BUSY = [running(task(f"r{k}", widths_milli=(2000,)), f"m{k}", (0, 1)) for k in (1, 2)]
APART = Relation("apart", RelationKind.APART)
THERE = running(task("there", widths_milli=(1000,), joins=("apart",), holds=("apart",)), "m1", (0,))
LATE = task("late", widths_milli=(4000,), submit_s=-10_000.0)
CASES = {
    "no machine": snapshot([task("t")], ()),
    "not allowed": snapshot([task("t", machines=("elsewhere",))], machines(3)),
    "too large": snapshot([task("t", widths_milli=(32_000,), memory_mib=0)], machines(2)),
    "no room": snapshot([task("t", widths_milli=(3000,))], machines(2), running=BUSY),
    "relation": snapshot(
        [task("t", widths_milli=(1000,), joins=("apart",), holds=("apart",))],
        machines(1),
        running=[THERE],
        relations=(APART,),
    ),
    "service": snapshot(
        [task("t", HUNGRY, widths_milli=(1000,))],
        (machine(),),
        services=[replace(service(cores=(0,), qps=44_000.0, slo_us=1000.0), slo_us=1.0)],
    ),
    "reserved": snapshot([LATE], machines(1), running=BUSY[:1], now_s=1.0),
    "drains": snapshot([LATE], machines(1), running=[running(task("r", endless=True), "m1", (0, 1))], now_s=1.0),
    "group": snapshot(
        [task(f"g{k}", widths_milli=(3000,), group="g") for k in range(3)],
        machines(2),
        task_groups=(TaskGroup("g", 3),),
    ),
    "members missing": snapshot([task("g0", group="g")], machines(2), task_groups=(TaskGroup("g", 3),)),
}
WORDS = {
    "no machine": "there is no machine in the cluster",
    "not allowed": "none of the 3 machines may take it",
    "too large": "needs 32 cores on one machine; no machine is that large",
    "no room": "needs 3 cores and 1000 MiB on one machine; the emptiest, m1, has 2 cores and 15000 MiB free",
    "relation": "every machine with room is closed to it by relation apart: "
    "no matching task in the same machine (anti-affinity)",
    "service": "every machine with room has a latency service whose p95 goal it would break",
    "reserved": "is due, and m1 is reserved for it, predicted to be free in about N s",
    "drains": "is due, and m1 drains for it: no end is known there",
    "group": "group g: 2 of 3 could be placed",
    "members missing": "group g: 1 of 3 are here",
}


def told(now: Snapshot, policy: str) -> set[str]:
    """Without the numbers that a round at linear prices alone has, and without times, of which each has its own."""
    decisions = solve(now, policy=policy, settings=Settings(drain=True, due_runs=0.0, slots=1))
    assert not decisions.placements
    reasons = {p.reason.partition(": the most is ")[0] for p in decisions.postponements}
    return {re.sub(r"about \d+ s", "about N s", reason) for reason in reasons}


@pytest.mark.parametrize("policy", ["flow", "flow-network"])
@pytest.mark.parametrize("case", CASES)
def test_a_cause_has_its_words_whatever_the_prices(case: str, policy: str) -> None:
    assert told(CASES[case], policy) == {WORDS[case]}


def test_what_it_may_cost_is_told_where_that_is_less_than_waiting() -> None:
    assert (
        wait_reasons.too_dear(0.5, 1.25, "m1").text
        == "waiting costs 0.50; starting now would cost 1.25 on m1, where it costs least"
    )
    assert wait_reasons.too_dear(0.50001, 0.50002, "m1").text.startswith(
        "waiting costs 0.50001; starting now would cost 0.50002"
    )
    assert wait_reasons.too_dear(0.001, 0.4, "m1").text.startswith("waiting costs 0.001; starting now would cost 0.400")
    assert wait_reasons.too_dear(0.0, 0.0, "m1").text.startswith("waiting costs 0.00; starting now would cost 0.00")
    assert wait_reasons.too_dear(0.5, 1.25, "m1", most=0.25).text.startswith("it may cost 0.25; ")
    assert wait_reasons.too_dear(0.5, 0.25, "m1", others_had_it=True).text.endswith(
        "; others had that when it was looked at"
    )


def test_a_machine_that_should_be_free_is_told_by_how_long() -> None:
    assert wait_reasons.kept("m1", -7.0) == "m1 is reserved for it, predicted to be free 7 s ago"
    assert wait_reasons.reserved("m1", 7.0, overdue=False).text.startswith("comes next, and m1 is reserved for it")
