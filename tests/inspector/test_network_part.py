"""Records of cost models in the inspector: everything that shows rounds shows them, or says why not."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from builders import HUNGRY, lasting, machine, machines, running, service, snapshot, task
from flowsched.cli import flowsched
from flowsched.cluster.snapshot import Snapshot
from flowsched.inspector.explanation import explain
from flowsched.inspector.page.page import render_page
from flowsched.inspector.page.page_data import page_data
from flowsched.inspector.record_view import RecordView
from flowsched.inspector.summary import render_summary
from flowsched.records.record_file import read_record, record_json, write_record
from flowsched.relations.relation import Relation, RelationKind, TaskGroup
from flowsched.round.linear.choice import chosen
from flowsched.round.linear.network_scheduler import solve_network_round


def busy() -> Snapshot:
    """A service, neighbours, a due task, one that is too large, and narrow ones that fill what is left."""
    pending = [
        task("wide", widths_milli=(4000,), submit_s=-1000.0, machines=("m2",)),
        task("huge", widths_milli=(32_000,)),
        *(task(f"h{k}", HUNGRY, widths_milli=(1000,), memory_mib=100, scale=0.001) for k in range(4)),
        *(task(f"s{k}", widths_milli=(2000,), memory_mib=100) for k in range(5)),
    ]
    there = [running(task("r", widths_milli=(2000,)), "m2", (0, 1))]
    return snapshot(pending, machines(3), services=[service()], running=there)


def account_of(found: Snapshot, policy: str = "flow-network") -> RecordView:
    record = solve_network_round(found, chosen(policy)).record
    assert record is not None
    return RecordView(read_record(record_json(record).encode(), "round.json"), "round.json")


@pytest.fixture(scope="module")
def recorded() -> RecordView:
    return account_of(busy())


def test_the_summary_has_all_parts(recorded: RecordView) -> None:
    text = render_summary(recorded)
    assert "linear prices, priority 0" in text
    assert "11 tasks in 4 classes, 3 machines in" in text
    assert "reserved" in text and "m2" in text
    assert "certificate (lagrangian)" in text
    assert "huge: needs 32 cores on one machine; no machine is that large: the most is 4 cores" in text


def test_explanations_add_up(recorded: RecordView) -> None:
    (part,) = recorded.parts
    assert part.certificate is not None
    total = sum(p.cost for p in part.placements) + sum(w.cost for w in part.waiting if w.cost is not None)
    assert total == pytest.approx(part.certificate["primal"], abs=1e-9)
    for placed in part.placements:
        facts = explain(recorded, placed.task).plain()
        assert facts["fate"] == "placed"
        assert facts["when_placed"]["cost"] == pytest.approx(placed.cost, abs=1e-9)
        assert sum(t["cost"] for t in facts["when_placed"]["terms"]) == pytest.approx(placed.cost, abs=1e-9)
        assert facts["place"]["cost"] >= placed.cost - 1e-9
        assert sum(t["cost"] for t in facts["place"]["terms"]) == pytest.approx(facts["place"]["cost"], abs=1e-9)
        for other in facts["alternatives"]:
            assert other["cost"] - facts["place"]["cost"] == pytest.approx(other["more"], abs=1e-9)
            assert sum(d["more"] for d in other["differences"]) == pytest.approx(other["more"], abs=1e-9)
    json.dumps(explain(recorded, "wide").plain(), allow_nan=False)


def test_a_placed_task_says_why_here_and_why_not_there(recorded: RecordView) -> None:
    for placed in recorded.parts[0].placements:
        lines = "\n".join(explain(recorded, placed.task).lines())
        assert lines.startswith(f"{placed.task} starts on {placed.machine} ")
        assert (
            "Runner-up: " in lines
            or "There was no other place for it, and it takes any place rather than wait." in lines
        )


def test_waiting_tasks_say_why_not_yet(recorded: RecordView) -> None:
    wide = "\n".join(explain(recorded, "wide").lines())
    assert wide.startswith("wide waits for the machine that is reserved for it.")
    assert "m2 is reserved for it (4 cores), predicted to be free in" in wide
    huge = explain(recorded, "huge")
    assert huge.plain()["cause"] == "never"
    assert "no machine that may take it would have room even if it were empty" in huge.lines()[0]
    (part,) = recorded.parts
    other = next(w.task for w in part.waiting if w.task not in ("wide", "huge"))
    text = "\n".join(explain(recorded, other).lines())
    assert "no machine that may take it has room now" in text
    assert "What would help: room on m" in text


def test_a_dear_place_is_named() -> None:
    there = [running(task("r", HUNGRY, memory_mib=100), "m1", (0, 1))]
    found = snapshot([task("t", HUNGRY, memory_mib=100)], machines(1), running=there)
    record = solve_network_round(found, chosen("flow-network", [("waiting", "0.01")])).record
    assert record is not None
    recorded = RecordView(read_record(record_json(record).encode(), "r"), "r")
    (first, *_) = explain(recorded, "t").lines()
    assert first.startswith("t waits: starting now costs 0.") and first.endswith("on m1, waiting costs 0.01.")


def test_pressure_of_machines_with_services(recorded: RecordView) -> None:
    (part,) = recorded.parts
    there = next(p.task for p in part.placements if p.machine == "m1")
    pressure = explain(recorded, there).plain()["pressure"]
    assert pressure["without_it"] < pressure["with_it"] <= pressure["cap"]


def test_the_page_shows_it(recorded: RecordView) -> None:
    (shown,) = page_data(recorded)["parts"]
    assert shown["prices"] == "linear"
    assert shown["reservations"] and shown["machine_facts"]["resources"][0] == "cpu"
    explained = {shown["tasks"][int(k)] for k in shown["explanations"]}
    assert {"wide", "huge"} <= explained
    assert "wide" in render_page([recorded], [])


def run(*args: str) -> Result:
    return CliRunner().invoke(flowsched, args)


def test_every_command_takes_such_a_record(recorded: RecordView, tmp_path: Path) -> None:
    for name in ("round.npz", "round.json"):
        write_record(recorded.plain, tmp_path / name)
    path = str(tmp_path / "round.npz")
    exports = [f"--{kind}={tmp_path / f'x.{kind}'}" for kind in ("dot", "graphml", "dimacs", "svg")]
    for args in (
        ("inspect", path),
        ("inspect", path, "--all"),
        ("inspect", path, "--json"),
        ("inspect", path, *exports),
        ("inspect", path, f"--html={tmp_path / 'x.html'}"),
        ("inspect", str(tmp_path / "round.json"), "--against", path),
        ("explain", path, "wide"),
        ("explain", path, "h0", "--json"),
        ("replay", path),
    ):
        result = run(*args)
        assert result.exit_code == 0, (args, result.output, result.exception)
    assert "same" in run("replay", path).output
    assert "tier:m" in (tmp_path / "x.dot").read_text(encoding="utf-8")


def test_two_policies_beside_each_other() -> None:
    from flowsched.inspector.difference import difference

    lines = difference(account_of(busy()), account_of(busy(), "coco")).lines(20)
    assert "note: costs are not in the same units: each of flow-network and coco has its own" in lines


@pytest.mark.parametrize("policy", ["trivial", "coco"])
def test_a_member_of_a_gang_is_not_said_to_lack_what_one_machine_has(policy: str) -> None:
    # Three machines could take one member, of three switches; both can only be under the switch of a1 and a2.
    one_switch = Relation("one-switch", RelationKind.TOGETHER, "switch")
    cluster = [machine(name, labels=(("switch", name[0]),)) for name in ("a1", "a2", "b1", "c1")]
    bound = {"holds": ("one-switch",), "joins": ("one-switch",), "widths_milli": (4000,)}
    gang = [lasting(f"w-{k}", 4, 100.0, -1000.0, group="g", **bound) for k in (1, 2)]
    there = [running(lasting("x", 1, 300.0), "a2")]
    groups = (TaskGroup("g", 2),)
    view = snapshot(gang, cluster, running=there, relations=(one_switch,), task_groups=groups)
    recorded = account_of(view, policy)
    for member in gang:
        lines = "\n".join(explain(recorded, member.name).lines())
        assert "is reserved for it, with its task group, which starts whole or not at all" in lines
        assert "if its group let it, would cost" in lines
        assert "3 of 4 machines could take it alone now" in lines
        assert "Cores are short" not in lines and "What would help" not in lines
