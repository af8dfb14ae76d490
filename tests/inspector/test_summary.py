"""What the terminal shows of a record is what the record says."""

from __future__ import annotations

import copy
import re
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
from inspected import bulk, on_kubernetes, searched

from flowsched.inspector.record_view import RecordView
from flowsched.inspector.round_network import round_network
from flowsched.inspector.summary import LISTED, STAGE_WORDS, decide_ms, render_overview, render_summary
from flowsched.round.origin import PlanStage
from flowsched_models.quantity import format_cores


def recorded(record: dict[str, Any]) -> RecordView:
    return RecordView(record, "runs/flow-0000.json")


def table(text: str, head: str) -> dict[str, list[str]]:
    """The rows of the table whose head matches: name to values."""
    lines = text.splitlines()
    start = next(i for i, line in enumerate(lines) if re.match(head, line.strip()))
    rows = {}
    for line in lines[start + 1 :]:
        if not line.startswith("  "):
            break
        name, *values = re.split(r"\s{2,}", line.strip())
        rows[name] = values
    return rows


def test_the_first_lines_say_what_round_it_was_and_what_came_of_it() -> None:
    first, second, *_ = render_summary(recorded(searched())).splitlines()
    assert first == "round 3 at 42.0 s: 3 tasks pending, 2 placed, 1 waiting"
    assert second == "policy flow, objective completion, solver ortools; runs/flow-0000.json"


@pytest.mark.parametrize(
    "make", [searched, partial(searched, "makespan"), bulk], ids=["completion", "makespan", "bulk"]
)
def test_sizes_are_those_of_the_networks(make: Callable[[], dict[str, Any]]) -> None:
    opened = recorded(make())
    part = opened.parts[0]
    rows = table(render_summary(opened), "the round")
    graphs = [round_network(opened, part).graph, *([part.first] if part.by_forecasts else [])]
    for column, graph in enumerate(graphs):
        carrying = graph.flow > 0
        expected = {
            "nodes": (graph.node_count, len(np.union1d(graph.tails[carrying], graph.heads[carrying]))),
            "arcs": (graph.arc_count, int(carrying.sum())),
        }
        for tail, head, flows in zip(graph.tails, graph.heads, carrying, strict=True):
            key = f"{graph.kinds[tail]} -> {graph.kinds[head]}"
            count, busy = expected.get(key, (0, 0))
            expected[key] = count + 1, busy + int(flows)
        for kind in set(graph.kinds):
            expected[kind] = graph.kinds.count(kind), -1
        for key, (count, busy) in expected.items():
            shown = [int(v.replace(",", "")) if v != "-" else 0 for v in rows[key]][2 * column : 2 * column + 2]
            assert shown[0] == count
            assert busy in (-1, shown[1])


@pytest.mark.parametrize("make", [searched, bulk], ids=["search", "bulk"])
def test_costs_by_term_add_up_to_the_costs(make: Callable[[], dict[str, Any]]) -> None:
    opened = recorded(make())
    part = opened.parts[0]
    rows = table(render_summary(opened), "cost by term")
    waits = any(w.cost is not None for w in part.waiting)
    sums = [sum(p.cost for p in part.placements), part.first.optimum / part.first.cost_scale]
    if waits:
        sums.insert(1, sum(w.cost or 0.0 for w in part.waiting))
    assert [float(v) for v in rows["sum"]] == pytest.approx(sums, abs=6e-4)
    for column in range(len(sums)):
        terms = [float(values[column]) for term, values in rows.items() if term != "sum" and values[column] != "-"]
        assert sum(terms) == pytest.approx(sums[column], abs=6e-4 * (len(terms) + 1))


def test_a_placement_shows_where_how_wide_and_what_it_is_made_of() -> None:
    text = render_summary(recorded(searched()))
    row = table(text, "task +machine")["blackscholes"]
    (placed,) = (p for p in recorded(searched()).parts[0].placements if p.task == "blackscholes")
    assert row[:5] == [placed.machine, f"{placed.width_milli / 1000:g}", "4", "0-3", f"{placed.cost:.3f}"]
    assert row[6].startswith(f"run time {placed.terms['run_time']:.3f}, interference suffered ")
    assert "  ferret: waits for the next completion on node-c-8core" in text
    primal = recorded(searched()).parts[0].certificate["primal"]  # type: ignore[index]
    assert re.search(rf"certificate \(\w+\): cost {primal:.4f}, lower bound ", text)
    assert re.search(r"^time: compact \d", text, re.MULTILINE)


def test_every_placement_shows_the_stage_that_decided_it_and_the_stages_are_counted() -> None:
    opened = recorded(searched())
    (part,) = opened.parts
    rows = table(render_summary(opened), "task +machine")
    for p in part.placements:
        entry = part.decided_by[p.task]
        if entry["stage"] == "network":
            other = "" if entry["runner_up"] is None else f", next {entry['runner_up']:.3f}"
            assert rows[p.task][5] == f"pass {entry['pass']} at {entry['price']:.3f}{other}"
        else:
            assert rows[p.task][5] == entry["stage"].replace("_", " ")
    stages = [part.decided_by[p.task]["stage"] for p in part.placements]
    by = {stage: stages.count(stage) for stage in PlanStage if stage == PlanStage.NETWORK or stage in stages}
    assert by == {stage: part.counts[f"decided_by_{stage}"] for stage in by}
    (line,) = (line for line in render_summary(opened).splitlines() if line.startswith("decided by networks"))
    told = ", ".join(f"{STAGE_WORDS[stage]} {count}" for stage, count in by.items())
    assert line.startswith(f"decided {told}; {part.counts['passes']} pass")


def test_a_large_bulk_round_is_told_by_class_unless_all_is_asked_for() -> None:
    opened = recorded(bulk())
    part = opened.parts[0]
    assert len(part.placements) > LISTED
    text = render_summary(opened)
    assert "shop/web-0-0" not in text
    assert "--all shows every task" in text
    for name, values in table(text, "class +tasks").items():
        if name.startswith("--"):
            continue
        members = next(c.members for c in part.classes if c.name == name)
        placed = [p for p in part.placements if p.task in members]
        assert values[:3] == [str(len(members)), str(len(placed)), str(len({p.machine for p in placed}))]
    everything = render_summary(opened, everything=True)
    rows = table(everything, "task +machine")
    assert len(rows) == len(part.placements)
    for p in part.placements:
        assert rows[p.task][0] == p.machine
    huge = "needs 64 cores on one machine; no machine is that large: the most is 16 cores"
    assert f"2 × shop/huge-0, shop/huge-1: {huge}" in text


def repeated(columns: dict[str, Any], tasks: list[str]) -> dict[str, Any]:
    """Columns with so many tasks like the first one."""
    alike = {key: [values[0]] * len(tasks) for key, values in columns.items() if key not in ("terms", "reasons")}
    terms = {term: [values[0]] * len(tasks) for term, values in columns["terms"].items()}
    return {**columns, **alike, "terms": terms, "task": tasks}


def test_a_long_list_says_how_much_is_left_out() -> None:
    record = copy.deepcopy(searched())
    part = record["parts"][0]
    part["placements"] = repeated(part["placements"], [f"t{k}" for k in range(LISTED + 4)])
    part["waiting"] = repeated(part["waiting"], [f"w{k}" for k in range(25)])
    part["waiting"] |= {"reason": range(25), "reasons": [{"cause": "x", "text": f"reason {k}"} for k in range(25)]}
    part["reservations"] = [{"task": "ferret", "machine": "node-c-8core", "width_milli": 1500, "start_s": 113.0}]
    text = render_summary(recorded(record))
    assert "  … 4 more; --all shows them" in text
    assert "  … 5 more reasons; --all shows them" in text
    assert table(text, "machine +for") == {"node-c-8core": ["ferret", "1.5", "113.0 s"]}
    assert "more" not in render_summary(recorded(record), everything=True)


def test_equal_reasons_are_told_once() -> None:
    record = copy.deepcopy(searched())
    part = record["parts"][0]
    part["waiting"] = repeated(part["waiting"], [f"w{k}" for k in range(9)])
    part["waiting"]["reasons"] = [{"cause": "x", "text": "no room"}]
    text = render_summary(recorded(record))
    assert "  9 × w0, w1, w2, … 6 more: no room; cost " in text
    assert text.count("no room") == 1


def test_a_round_on_kubernetes_is_told_part_by_part_with_titles() -> None:
    text = render_summary(recorded(on_kubernetes()))
    assert text.startswith("round 12 at 2023-11-14 22:13:20 UTC: ")
    assert "part 0 of 2: forecast prices, priority 10" in text
    assert "part 1 of 2: linear prices, priority 0" in text
    assert "shop/blackscholes-pod" in text
    assert not re.search(r"^\s+blackscholes ", text, re.MULTILINE)
    told = "  2 × shop/huge-0, shop/huge-1: unschedulable: 0/24 nodes are available: 24 Insufficient cpu."
    assert told in text
    assert "time of the round: forecast 12.5 ms, linear 2.0 ms, explain 0.5 ms" in text


def test_names_cannot_command_the_terminal() -> None:
    record = copy.deepcopy(searched())
    record["parts"][0]["placements"]["task"][0] = "evil\x1b[2Jname\r\nsecond"
    text = render_summary(recorded(record))
    assert "\x1b" not in text
    assert "evil\ufffd[2Jname\ufffd\ufffdsecond" in text


def test_a_round_without_pending_tasks_says_so() -> None:
    record = {**searched(), "parts": []}
    assert render_summary(recorded(record)).endswith("nothing was solved")


def test_the_overview_has_a_line_for_every_round() -> None:
    records = [
        RecordView(searched(), "runs/a.json"),
        RecordView(bulk(), "runs/b.npz"),
        RecordView({**bulk(), "parts": []}, "runs/c"),
    ]
    text = render_overview(records, "runs")
    rows = table(text, "file +round")
    certificate = searched()["parts"][0]["certificate"]
    assert rows["a.json"][:6] == ["3", "42.0 s", "3", "2", "1", f"{certificate['primal']:.3f}"]
    assert float(rows["a.json"][7]) == pytest.approx(searched()["parts"][0]["timings"]["decide_ms"], abs=0.06)
    assert rows["b.npz"][:5] == ["7", "1000.0 s", "50", "48", "2"]
    assert rows["c"][5:] == ["-", "-", "2.5"]
    assert text.endswith("one of them: flowsched inspect runs/a.json")


def test_deciding_takes_what_its_stages_take() -> None:
    assert decide_ms(recorded(on_kubernetes())) == 14.5
    assert decide_ms(recorded({**searched(), "parts": []})) is None


def test_numbers_that_follow_each_other_are_told_as_ranges() -> None:
    assert format_cores((0, 1, 2, 3, 6, 8, 9)) == "0-3,6,8-9"
    assert format_cores(()) == ""
