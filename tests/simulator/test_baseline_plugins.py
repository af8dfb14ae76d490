"""Greedy rules of other packages: found by their entry points, and what is wrong in one is one sentence."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner

from builders import read_anew
from flowsched.cluster.knowledge import knowledge_text
from flowsched.records.record import Recipe
from flowsched_models.document import InputError
from flowsched_simulator import EngineOptions, Options, load_scenario, make_scenario, simulate
from flowsched_simulator.baselines.registry import BASELINES
from flowsched_simulator.commands.policies import policies
from flowsched_simulator.commands.simulate import simulate as simulate_command
from flowsched_simulator.policies import all_policies, describe

DOCS = Path(__file__).parent.parent.parent / "docs"
OURS = tuple(name for name in BASELINES if BASELINES.is_ours(name))
PART_3 = "parsec-memcached-2024"

Install = Callable[[str, str], None]


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Install:
    """Install a distribution with one module and the entry points that are given."""

    def install(code: str, points: str) -> None:
        (tmp_path / "vendor_rule.py").write_text(code, encoding="utf-8")
        about = tmp_path / "vendor-1.0.dist-info"
        about.mkdir()
        (about / "METADATA").write_text("Metadata-Version: 2.1\nName: vendor\nVersion: 1.0\n", encoding="utf-8")
        (about / "entry_points.txt").write_text(f"[flowsched.baselines]\n{points}\n", encoding="utf-8")
        monkeypatch.syspath_prepend(str(tmp_path))
        monkeypatch.delitem(sys.modules, "vendor_rule", raising=False)
        monkeypatch.setitem(BASELINES.__dict__, "_places", read_anew(BASELINES)._places)

    return install


def example() -> str:
    """The rule that the documents show, without what they do with it."""
    text = (DOCS / "own-baseline.md").read_text(encoding="utf-8")
    block = re.search(r"```python\n(.*?)\n\nfrom flowsched_simulator import load_scenario", text, re.DOTALL)
    assert block is not None
    return block[1]


def failure(policy: str) -> str:
    with pytest.raises(InputError) as caught:
        simulate(load_scenario(PART_3), policy, variant="declared-own")
    return str(caught.value)


def test_the_documented_rule_is_found_listed_and_run(installed: Install) -> None:
    installed(example(), "widest-first = vendor_rule:WidestFirst")

    assert len([line for line in example().splitlines() if line.strip()]) <= 10
    about = describe("widest-first")
    assert (about.kind, about.package, about.on_request) == ("baseline", "vendor", True)
    listed = CliRunner().invoke(policies, []).output
    assert re.search(r"^widest-first +nothing +Widest request first, .*; of vendor; only with --policy$", listed, re.M)
    run = simulate(load_scenario(PART_3), "widest-first", variant="declared-own")
    assert all(job.end_s is not None for job in run.jobs)
    assert (run.policy, run.variant) == ("widest-first", "declared request, own cores")


def test_our_names_cannot_be_taken_over(installed: Install) -> None:
    installed(example(), "easy = vendor_rule:WidestFirst\nflow = vendor_rule:WidestFirst\ncoco = x:Y")

    assert tuple(BASELINES) == OURS
    assert describe("coco").kind == "network"


RULE = "from flowsched_simulator.baselines import Baseline\nclass Rule(Baseline):\n    name = 'rule'\n"
WHOLE = RULE + "    description = 'd'\n    def choose(self, task, width_milli, rooms, this): return {}\n"


@pytest.mark.parametrize(
    ("code", "text"),
    [
        ("raise RuntimeError('no licence')", "'rule' of vendor cannot be loaded (RuntimeError: no licence)"),
        ("Rule = 3", "the baseline 'rule' of vendor is 3; its entry point should name a subclass of "),
        (RULE, "the baseline 'rule' of vendor lacks choose and description"),
        (WHOLE.replace("'rule'", "'other'").format("rooms[0]"), "of vendor calls itself 'other'; give its class and"),
        (WHOLE.format("1 / 0"), "'rule' of vendor fails in the round at 0 s (ZeroDivisionError: division by zero)"),
        (WHOLE.format("None"), "choose must return one of the machines that it is given for "),
        (
            WHOLE.format("rooms[0]") + "    def order(self, this): return []\n",
            "(ValueError: order and turns leave out blackscholes; they must have every task that waits, once)",
        ),
        (
            WHOLE.format("rooms[0]") + "    def __init__(self, granting): pass\n",
            "the baseline 'rule' of vendor cannot be made (TypeError: ",
        ),
    ],
    ids=["import", "no class", "members", "name", "in a round", "no machine", "order", "constructor"],
)
def test_a_broken_rule_is_one_sentence(installed: Install, code: str, text: str) -> None:
    installed(code, "rule = vendor_rule:Rule")

    said = failure("rule")
    assert text in said and "\n" not in said
    # Lists show all others, whatever is wrong with this one.
    assert CliRunner().invoke(policies, []).exit_code == 0


TWO = make_scenario(
    [{"name": "m", "cores": 8, "memory": "8Gi"}], [{"name": name, "request": 8, "runtime_s": 100} for name in "ab"]
)
CHANGED = """
    def decide(self, snapshot):
        from dataclasses import replace
        whole = super().decide(snapshot)
        return replace(whole, placements=tuple(replace(p, {}) for p in whole.placements))
"""


@pytest.mark.parametrize(
    ("decide", "text"),
    [
        (
            CHANGED.format("width_milli=p.width_milli // 2"),
            "decides what cannot be carried out at 0 s (RuntimeError: rule gives a 4 cores, and it asks for 8 cores: ",
        ),
        (
            CHANGED.format("width_milli=9000"),
            "decides what cannot be carried out at 0 s (ValueError: m would be overcommitted: 9000 of 8000 milli-CPU ",
        ),
        (
            CHANGED.format("machine='n'"),
            "decides what cannot be carried out at 0 s (ValueError: a was bound to n, which is not in the cluster)",
        ),
        ("    def decide(self, snapshot): pass", "fails in the round at 0 s (AttributeError: "),
    ],
    ids=["less than asked", "more than there is", "elsewhere", "nothing"],
)
@pytest.mark.parametrize("records", [False, True])
def test_what_a_rule_decides_wrongly_is_one_sentence(installed: Install, decide: str, text: str, records: bool) -> None:
    installed(WHOLE.format("rooms[0]") + decide, "rule = vendor_rule:Rule")

    with pytest.raises(InputError) as caught:
        simulate(TWO, "rule", engine=EngineOptions(keep_records=records))

    said = str(caught.value)
    assert said.startswith("baselines: the baseline 'rule' of vendor ") and text in said and "\n" not in said
    assert said.endswith("its code is vendor_rule:Rule")


def test_reasons_that_a_rule_fails_to_give_are_one_sentence_once_they_are_asked_for(installed: Install) -> None:
    installed(WHOLE.format("rooms[1 if this.explains else 0]"), "rule = vendor_rule:Rule")
    asked = []

    def sink(policy: str, number: int, recipe: Recipe) -> None:
        asked.append(number)
        recipe()

    with pytest.raises(
        InputError, match=r"'rule' of vendor fails to say why tasks wait in the round at 0 s \(IndexError: "
    ):
        simulate(TWO, "rule", options=Options(record_sink=sink), engine=EngineOptions(keep_records=True))
    assert asked == [0]
    assert simulate(TWO, "rule").makespan_s == 200.0


def test_a_broken_rule_is_told_before_anything_runs(installed: Install) -> None:
    installed("raise RuntimeError('no licence')", "rule = vendor_rule:Rule")

    done = CliRunner().invoke(simulate_command, [PART_3, "--policy", "fcfs", "--policy", "rule", "--json"])
    assert isinstance(done.exception, InputError)
    assert str(done.exception).startswith("--policy: the baseline 'rule' of vendor cannot be loaded")
    assert "fcfs" not in done.stderr


# What policies are told


def test_pages_tell_what_classes_say_they_are_told() -> None:
    """One list, the classes' own: the tables of the documents repeat it, and a test holds them to it."""
    shown = {}
    for page in ("baselines.md", "policies.md"):
        text = (DOCS / page).read_text(encoding="utf-8")
        table = re.search(r"^\| Policy \|.*\n\|[-|]+\|\n((?:\|.*\n)+)", text, re.M)
        assert table is not None
        head = [cell.strip() for cell in table[0].splitlines()[0].split("|")]
        for row in table[1].splitlines():
            cells = [cell.strip() for cell in re.split(r"(?<!\\)\|", row)]
            shown[cells[1].split("`")[1]] = cells[head.index("Is told")]
    told = {about.name: knowledge_text(about.told) for about in all_policies() if about.kind != "search"}
    assert shown == {name: told[name] for name in shown}
    assert set(OURS) <= set(shown)


def test_every_policy_of_clusters_says_what_it_is_told() -> None:
    listed = json.loads(CliRunner().invoke(policies, ["--json"]).output)["policies"]
    told = {each["name"]: each["told"] for each in listed if each["kind"] in ("search", "baseline", "network")}
    assert all(isinstance(value, list) for value in told.values())
    assert told["flow"] == told["flow+plan"] == ["run times", "profiles", "interference"]
    assert told["easy"] == ["run times"] and told["las"] == [] and told["coco"] == ["interference"]
    assert "is told: run times\n" in CliRunner().invoke(policies, ["easy"]).output


# One variant


@pytest.mark.parametrize(
    ("variant", "label"), [("declared-shared", "declared request, shared cores"), ("4-own", "request 4, own cores")]
)
def test_one_variant_is_run_alone(variant: str, label: str) -> None:
    scenario = load_scenario(PART_3)
    seen = set()
    run = simulate(scenario, "fcfs", variant=variant, report=lambda policy, name, *_: seen.add(name))

    assert run.variant == label and seen == {label}
    assert simulate(scenario, "all-at-once", variant=variant).variant == ""


def test_a_variant_that_there_is_not_is_refused() -> None:
    with pytest.raises(InputError, match=r"variant: declared-shred: .*did you mean 'declared-shared'"):
        simulate(load_scenario(PART_3), "fcfs", variant="declared-shred")
    for args, message in (
        (["--policy", "fcfs", "--variant", "own"], "--variant: own: there is no such variant"),
        (["--policy", "flow", "--variant", "1-own"], "--variant: 1-own: has no meaning for flow"),
    ):
        done = CliRunner().invoke(simulate_command, [PART_3, *args])
        assert isinstance(done.exception, InputError) and str(done.exception).startswith(message)


def test_the_table_calls_only_a_chosen_variant_the_best(tmp_path: Path) -> None:
    args = [PART_3, "--policy", "fcfs", "--out", str(tmp_path)]
    one = CliRunner().invoke(simulate_command, [*args, "--variant", "2-own"]).stdout
    every = CliRunner().invoke(simulate_command, args).stdout
    assert re.search(r"^fcfs +2, own ", one, re.M) and "best" not in one
    assert "best" in every
