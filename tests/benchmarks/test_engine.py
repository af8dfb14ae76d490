"""The benchmark of the engine: its workloads are what the page says, its yardstick is right, every part runs."""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import click
import pytest
from click.testing import CliRunner

sys.path.append(str(Path(__file__).parent.parent.parent))  # benchmarks are no part of what is installed

from benchmarks import engine, engine_ablation, engine_crowds, engine_hooks, engine_page
from benchmarks.engine_crowds import (
    bars,
    chosen_variant,
    compared,
    every_scheduler,
    measure,
    ratio_lines,
    selection_lines,
)
from benchmarks.engine_demo import demo_variations
from benchmarks.engine_penalty import Yardstick, interference
from benchmarks.engine_snapshots import one_per_machine, pods, tight
from benchmarks.engine_text import bar, mean, spread
from benchmarks.engine_trees import HERE, Tree
from benchmarks.engine_worker import answer, penalty, settings_with
from benchmarks.engine_workloads import SIXTY, THREE_HUNDRED, Crowd, crowd_document, digest, scenario_document, write
from benchmarks.machine import describe_machine
from benchmarks.variations import NAMES
from flowsched import solve
from flowsched.cluster.decision import Decisions, Placement, Postponement
from flowsched.cluster.settings import Settings
from flowsched.cluster.snapshot import PlannedStart
from flowsched_models.profiles import load_catalogue
from flowsched_models.runtime import HostFactory
from flowsched_simulator import load_scenario
from flowsched_simulator.baselines.registry import COMPARED
from flowsched_simulator.workload import workload

SMALL = Crowd(of_each_type=1, draws=2, copies=2)


def test_sixty_machines_are_those_of_the_page() -> None:
    document = crowd_document(SIXTY, 0.74, 0)
    assert Counter(m["type"] for m in document["machines"]) == dict.fromkeys(
        ("n2d-highcpu-2", "n2d-highmem-4", "e2-standard-8"), 20
    )
    assert len(document["services"]) == len({s["machine"] for s in document["services"]}) == 4
    kinds = Counter((j["profile"], j["request"], j["scale"]) for j in document["jobs"])
    assert len(kinds) == 40 and set(kinds.values()) == {10}
    assert all(j["widths"] == [1, 2, 4] and 0.3 <= j["scale"] <= 3.0 for j in document["jobs"])
    assert {j["request"] for j in document["jobs"]} == {1, 2, 4}
    assert (THREE_HUNDRED.machines, THREE_HUNDRED.jobs) == (300, 1500)


def test_load_is_work_over_batch_cores() -> None:
    catalogue = load_catalogue()
    ratios = []
    for seed in range(20):
        jobs = crowd_document(SIXTY, 0.74, seed)["jobs"]
        work_s = sum(catalogue.jobs[j["profile"]].work_s * j["scale"] for j in jobs)
        ratios.append(work_s / jobs[-1]["submit_s"] / (20 * (2 + 4 + 8) - 4))
    assert sum(ratios) / len(ratios) == pytest.approx(0.74, rel=0.03)
    single, double = (crowd_document(SIXTY, load, 1)["jobs"] for load in (0.5, 1.0))
    assert [j["submit_s"] for j in single] == pytest.approx([2 * j["submit_s"] for j in double], abs=1e-5)
    assert [{**j, "submit_s": 0} for j in single] == [{**j, "submit_s": 0} for j in double]


def test_workloads_are_told_apart_by_their_content() -> None:
    assert digest(crowd_document(SMALL, 0.5, 0)) == digest(crowd_document(SMALL, 0.5, 0))
    assert digest(crowd_document(SMALL, 0.5, 0)) != digest(crowd_document(SMALL, 0.5, 1))


@pytest.mark.parametrize("name", [*NAMES, "parsec-poisson"])
def test_a_scenario_survives_its_file(name: str, tmp_path: Path) -> None:
    scenario = load_scenario(name)
    again = load_scenario(write(scenario_document(scenario), tmp_path))
    assert replace(again, source=scenario.source, catalogue=scenario.catalogue) == scenario
    assert workload(again, 0) == workload(scenario, 0)


def test_the_demo_has_24_variations() -> None:
    assert len(list(demo_variations())) == 24


def test_penalties_by_hand() -> None:
    assert penalty(90.0, 60.0) == pytest.approx(0.5)
    assert penalty(180.0, 60.0) == pytest.approx(1.0)
    assert penalty(270.0, 60.0) == pytest.approx(11.0)
    assert penalty(720.0, 240.0) == pytest.approx(8.0)


def test_one_pod_costs_what_the_engine_says() -> None:
    for seed in range(3):
        snapshot = pods(1, 6, seed)
        decisions = solve(snapshot, settings=settings_with({}))
        if decisions.placements:
            yardstick = Yardstick(snapshot, HostFactory(snapshot.catalogue))
            assert yardstick.total(decisions) == pytest.approx(decisions.placements[0].cost, rel=1e-9)
            break
    else:
        pytest.fail("no round placed its pod")


def test_planned_and_unscheduled_tasks_cost_more_than_a_start_on_an_idle_machine() -> None:
    snapshot = replace(pods(1, 3, 0, busy=0.0), services=())
    (task,) = snapshot.pending
    machine = snapshot.machines[2]
    cores = tuple(range(machine.vcpus))
    threads = task.threads_on(len(cores), snapshot.catalogue.jobs[task.profile])
    starts = Decisions((Placement(task.name, machine.name, 1000, threads, cores),), ())
    planned = PlannedStart(task.name, machine.name, 1, 1000)
    later = Decisions((), (Postponement(task.name, "later", 0.0, planned=planned),))
    never = Decisions((), (Postponement(task.name, "no place", 0.0),))
    yardstick = Yardstick(snapshot, HostFactory(snapshot.catalogue))
    alone_s = load_alone_s(snapshot, machine.type, threads, cores)
    best_s = min(load_alone_s(snapshot, m.type, len(c), c) for m in snapshot.machines for c in [tuple(range(m.vcpus))])
    assert yardstick.total(starts) == pytest.approx(penalty(1.0 + alone_s, best_s))
    assert yardstick.total(starts) < yardstick.total(later) < yardstick.total(never)


def load_alone_s(snapshot: Any, kind: str, threads: int, cores: tuple[int, ...]) -> float:
    (task,) = snapshot.pending
    threads = snapshot.catalogue.jobs[task.profile].threads_for(threads)
    return float(HostFactory(snapshot.catalogue).host(kind).alone_s(task.profile, threads, cores, task.scale))


def test_interference_by_hand() -> None:
    snapshot = one_per_machine(3, 2, 2)
    names = [t.name for t in snapshot.pending]
    machines = [m.name for m in snapshot.machines]

    def decided(*where: str) -> Decisions:
        pairs = zip(names, where, strict=False)
        return Decisions(tuple(Placement(t, m, 250, 1, (0,)) for t, m in pairs), ())

    assert interference(snapshot, decided(*machines)) == 0.0
    # Both suffer 0.8 * 0.03 * 0.25 from the other.
    assert interference(snapshot, decided(machines[0], machines[0])) == pytest.approx(2 * 0.8 * 0.03 * 0.25)


def test_single_rounds_have_their_sizes() -> None:
    scarce = one_per_machine()
    assert (len(scarce.machines), len(scarce.pending), len(scarce.relations)) == (400, 7200, 20)
    for classes in (20, 200):
        snapshot = tight(400, 2400, classes)
        assert (len(snapshot.machines), len(snapshot.pending)) == (400, 2400)
        kinds = {replace(t, name="", job="") for t in snapshot.pending}
        assert len(kinds) == classes
        assert sum(snapshot.free_milli().values()) < 1.5 * sum(t.request_milli for t in snapshot.pending)


def test_one_more_pod_changes_nothing_else() -> None:
    few, more = pods(8, 6, 3), pods(9, 6, 3)
    assert replace(more, pending=more.pending[:8]) == few


def test_a_tree_decides_as_this_process_does(tmp_path: Path) -> None:
    path = write(crowd_document(SMALL, 0.74, 0), tmp_path)
    with Tree() as tree:
        there = tree.run(path, "flow")
        assert tree.run(path, "no-such-scheduler") is None
    (here,) = answer({"scenario": str(path), "scheduler": "flow"})["variants"]
    assert there is not None and there["schedule"] == here["schedule"]
    assert there["rounds"] == here["rounds"] > 0 and there["cpu_p50_ms"] > 0.0
    assert there["unfinished"] == 0 and there["mean_penalty"] > 0.0


def test_a_folder_without_flowsched_is_refused(tmp_path: Path) -> None:
    with pytest.raises(click.ClickException, match="is not a checkout of flowsched"):
        Tree(tmp_path)
    assert (HERE / "flowsched" / "__init__.py").is_file()


def test_settings_that_are_unknown_are_named() -> None:
    assert settings_with({"goal_factor": 2.0}).goal_factor == 2.0
    with pytest.raises(ValueError, match="Settings has no field 'no_such'"):
        settings_with({"no_such": 1})


class Told(Tree):
    """Answers what a test says, by seed of the workload and variant."""

    def __init__(self, root: Path = HERE) -> None:
        self.asked: list[tuple[str, str | None]] = []

    def run_variants(self, scenario: Path, scheduler: str, variant: str | None = None) -> list[dict[str, Any]] | None:
        seed = json.loads(scenario.read_text(encoding="utf-8"))["description"].rpartition(" ")[2]
        self.asked.append((seed, variant))
        # Where it is reported, "lucky" is the better one; on all other workloads "steady" is.
        times = {"steady": 20.0, "lucky": 5.0 if seed == "0" else 40.0}
        rows = [{"variant": v, "slo_violation_ratio": 0.0, "mean_completion_s": t} for v, t in times.items()]
        return [row for row in rows if variant in (None, row["variant"])]

    def close(self) -> None:
        pass


def test_variants_are_chosen_on_workloads_that_are_not_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    tree = Told()
    monkeypatch.setattr(engine_crowds, "Tree", lambda: tree)
    rows = list(measure(SMALL, (0.74,), (0, 1_000_000_002), ("fcfs",), None))
    others = ("1000000001", "1000000003", "1000000004")
    assert tree.asked == [*((seed, None) for seed in others), ("0", "steady"), ("1000000002", "steady")]
    assert [row["mean_completion_s"] for row in rows] == [20.0, 20.0]
    expected = {"seeds": [int(s) for s in others], "variant": "steady"}
    expected["mean_completion_s"] = {"steady": 20.0, "lucky": 40.0}
    kept = json.loads(json.dumps(rows))  # as the kept results have it
    assert [row["selection"] for row in kept] == [expected, expected]
    assert "seeds\n1000000001, 1000000003, 1000000004, not by the reported ones" in selection_lines(kept)


def test_a_variant_that_breaks_goals_or_never_ends_is_not_chosen(tmp_path: Path) -> None:
    class Answers(Told):
        def run_variants(self, scenario: Path, scheduler: str, variant: str | None = None) -> list[dict[str, Any]]:
            figures = {"breaks": (0.1, 1.0), "hangs": (0.0, None), "fair": (0.0, 3.0)}
            return [{"variant": v, "slo_violation_ratio": r, "mean_completion_s": t} for v, (r, t) in figures.items()]

    chosen = chosen_variant("fcfs", [tmp_path, tmp_path], Answers())
    assert chosen == {"variant": "fair", "mean_completion_s": {"breaks": 1.0, "hangs": None, "fair": 3.0}}


def crowd_row(scheduler: str, mean_s: float | None, seed: int = 0, **changes: Any) -> dict[str, Any]:
    row = {"load": 0.74, "seed": seed, "digest": f"d{seed}", "scheduler": scheduler, "mean_completion_s": mean_s}
    figures = {"p95_completion_s": mean_s, "mean_penalty": 1.0, "cpu_p50_ms": 5.0, "cpu_p99_ms": 70.0}
    if scheduler in COMPARED:
        changes = {"selection": chosen(mean_s), **changes}
    return {**row, **figures, "slo_violation_ratio": 0.0, "rounds": 3, **changes}


def chosen(mean_s: float | None) -> dict[str, Any]:
    return {"seeds": [9], "variant": "wide", "mean_completion_s": {"wide": mean_s, "slim": 900.0}}


def test_ratios_are_paired_and_against_the_best_greedy() -> None:
    rows = [
        crowd_row("flow", 90.0),
        crowd_row("old", 100.0),
        crowd_row("fcfs", 100.0),
        crowd_row("lpt", None),
        crowd_row("load-spreading", 50.0),
        crowd_row("flow", 110.0, 1),
        crowd_row("old", 100.0, 1),
        crowd_row("fcfs", 100.0, 1, selection=chosen(200.0)),  # lucky on this workload, and not the one to choose
        crowd_row("lpt", 125.0, 1),
    ]
    lines = compared(rows)
    assert [line["to_old"] for line in lines] == pytest.approx([0.9, 1.1])
    assert [line["greedy"]["scheduler"] for line in lines] == ["fcfs", "lpt"]
    ratios = " ".join(ratio_lines(rows).splitlines()[1].split())
    assert ratios == "74% load 1.000 [0.900, 1.100] 1.000 [0.900, 1.100] 0.890 [0.880, 0.900]"
    found = {b["what"]: (b["measured"], b["met"]) for b in bars("sixty", rows)}
    assert found == {
        "74% load: mean completion over the old engine's": (pytest.approx(1.0), True),
        "74% load: mean completion over the best greedy's": (pytest.approx(0.89), True),
        "74% load: CPU per round p50, ms": (5.0, True),
        "74% load: CPU per round p99, ms": (70.0, False),
    }
    assert {b["what"]: b["met"] for b in bars("three-hundred", rows[:1])} == {
        "74% load: mean completion over the best greedy's": None,
        "74% load: CPU per round p50, ms": True,
    }


def test_the_old_search_takes_part_where_it_can() -> None:
    assert "old" in every_scheduler("sixty", Path("old"))
    assert "old" not in every_scheduler("three-hundred", Path("old"))
    assert "old" not in every_scheduler("sixty", None)


def test_figures_with_a_gap_have_no_mean() -> None:
    assert mean([1.0, 3.0]) == 2.0 and mean([1.0, None]) is None and mean([]) is None
    assert spread([1.0, None, 3.0]) == "2.0 [1.0, 3.0]" and spread([None]) == "-" and spread([2.0]) == "2.0"
    assert bar("x", 1.0, 1.0)["met"] is True and bar("x", 0.5, 0.9, least=True)["met"] is False


def test_fresh_rows_replace_kept_ones_of_the_same_workload_only() -> None:
    key = engine.PARTS["sixty"].key
    kept = [crowd_row("flow", 1.0), crowd_row("fcfs", 2.0)]
    assert engine.merged(kept, [crowd_row("flow", 3.0)], key) == [kept[1], crowd_row("flow", 3.0)]
    with pytest.raises(click.ClickException, match="of other workloads"):
        engine.merged(kept, [crowd_row("lpt", 3.0, digest="other")], key)


def test_kept_rows_of_another_machine_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "RESULTS", tmp_path)
    assert engine.earlier("sixty") == []
    outcome = {"rows": [crowd_row("flow", 1.0)], "machine": describe_machine()}
    path = tmp_path / "engine-sixty.json"
    path.write_text(json.dumps(outcome), encoding="utf-8")
    assert engine.earlier("sixty") == outcome["rows"]
    biased = {k: v for k, v in crowd_row("fcfs", 1.0).items() if k != "selection"}
    path.write_text(json.dumps({**outcome, "rows": [biased]}), encoding="utf-8")
    with pytest.raises(click.ClickException, match="chosen by the reported runs; measure it again without --add"):
        engine.earlier("sixty")
    path.write_text(json.dumps({**outcome, "machine": {"cores": -1}}), encoding="utf-8")
    with pytest.raises(click.ClickException, match="on another machine"):
        engine.earlier("sixty")


def run_quick(*options: str) -> str:
    done = CliRunner().invoke(engine.main, ["--quick", *options])
    assert done.exit_code == 0, done.output
    return done.stdout


def test_parts_run_and_keep_nothing_when_quick(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "RESULTS", tmp_path)
    outcome = json.loads(run_quick("--json", "--old", str(HERE)))
    by_name = {row["scheduler"]: row for row in outcome["rows"]}
    assert set(by_name) == {"flow", "old", "kube-default", "load-spreading"}
    assert by_name["flow"]["schedule"] == by_name["old"]["schedule"]
    assert len(by_name["kube-default"]["selection"]["mean_completion_s"]) == 8
    assert "parsec-memcached-2024: makespan over the published plan's" in run_quick("--part", "demo")
    assert "largest step of that ratio" in run_quick("--part", "cliff")
    assert "penalty over that of exact prices on all machines" in run_quick("--part", "large")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("part", "machines"), [("sixty", 60), ("three-hundred", 300)])
def test_options_choose_the_workloads(part: str, machines: int, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []

    def measured(*what: Any) -> Iterator[dict[str, Any]]:
        asked.append(what)
        return iter(())

    monkeypatch.setattr(engine.engine_crowds, "measure", measured)
    options = ["--service-cores", "own", "--seeds", "2", "--first-seed", "7", "--loads", "0.5,1", "--no-keep"]
    done = CliRunner().invoke(engine.main, ["--part", part, "--schedulers", "flow,fcfs", *options])
    assert done.exit_code == 0 and done.stdout.startswith("nothing was measured")
    ((crowd, loads, seeds, schedulers, old),) = asked
    assert (crowd.machines, crowd.share_service_cores) == (machines, False)
    assert (loads, seeds, schedulers, old) == ((0.5, 1.0), (7, 8), ("flow", "fcfs"), None)


def test_rows_are_kept_as_they_come(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(request: engine.Request) -> Iterator[dict[str, Any]]:
        yield crowd_row("flow", 1.0)
        yield crowd_row("fcfs", 2.0)
        raise KeyboardInterrupt

    monkeypatch.setattr(engine, "RESULTS", tmp_path)
    monkeypatch.setitem(engine.PARTS, "sixty", replace(engine.PARTS["sixty"], measure=broken))
    assert CliRunner().invoke(engine.main, []).exit_code != 0
    kept = json.loads((tmp_path / "engine-sixty.json").read_text(encoding="utf-8"))
    assert [row["scheduler"] for row in kept["rows"]] == ["flow", "fcfs"]
    assert "0.500" in (tmp_path / "engine-sixty.txt").read_text(encoding="utf-8")


def test_an_engine_without_the_hook_is_named_in_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine_hooks, "ASSIGN", "no_such_setting")
    done = CliRunner().invoke(engine.main, ["--quick", "--part", "ablation"])
    assert done.exit_code == 1 and done.stdout == ""
    assert done.stderr == (
        "Error: the engine cannot replace its network, which this part needs: flowsched.Settings has no field "
        "'no_such_setting'\n"
    )


def test_the_ablation_compares_runs_and_rounds() -> None:
    rows = list(engine_ablation.measure((0.74,), (0,), True))
    greedy, alone = engine_ablation.summed(rows[:1])
    for line in (greedy, alone):
        assert 0.0 < line["changed"] <= 1.0 and line["differ"] > 0.0
        assert line["contested"] >= engine_ablation.CONTESTED_LIMIT
    assert alone["mean_completion_s"] != 1.0
    (bulk, _) = engine_ablation.summed(rows[1:])
    assert bulk["placed"] == (12, 12) and bulk["stand"] == 1.0
    assert "placements that stand as a network decided them" in engine_ablation.table(rows)
    assert [row["workload"] for row in engine_ablation.measure((0.74,), (0,), True, ("one per",))] == [
        "one per machine"
    ]


def test_more_placements_count_where_room_is_scarce() -> None:
    rounds = {kind: {"penalty": 1.0, "differ": 1.0} for kind in engine_hooks.ABLATIONS}
    row = {"workload": engine_ablation.ONE_PER_MACHINE, "scenario": "", "runs": {}, "rounds": rounds, "stand": 0.95}
    equal = {**row, "placed": dict.fromkeys(rounds, 10)}
    more = {**row, "placed": {**dict.fromkeys(rounds, 10), engine_hooks.NETWORK: 11}}
    met = [[b["met"] for b in engine_ablation.bars([r])] for r in (equal, more)]
    assert met == [[True, False, True], [True, True, True]]


def test_counts_of_a_round_are_read_where_it_has_some() -> None:
    assert engine_hooks.decided_by_network(Decisions((), ())) is None

    class Counted:
        counts: ClassVar = {engine_hooks.DECIDED: 7}

    assert engine_hooks.decided_by_network(Counted()) == 7  # type: ignore[arg-type]
    assert engine_hooks.contested_networks(Decisions((), ())) == (0, 0)
    counts = {"solves": 9, "lone": 4, "contested": 3}
    assert engine_hooks.contested_networks(Decisions((), (), counts=counts)) == (3, 5)


@pytest.mark.parametrize("text", ["", "0", "a,b", "0.5,-1"])
def test_loads_are_numbers_above_zero(text: str) -> None:
    done = CliRunner().invoke(engine.main, ["--loads", text])
    assert done.exit_code == 2 and "expected numbers above 0" in done.stderr


def test_the_old_engine_needs_its_checkout() -> None:
    done = CliRunner().invoke(engine.main, ["--schedulers", "flow,old"])
    assert done.exit_code == 1 and done.stderr == (
        "Error: the scheduler 'old' needs --old with a checkout of the commit to compare with\n"
    )


def test_the_page_is_what_its_command_makes_of_the_kept_results() -> None:
    page = engine_page.PAGE.read_text(encoding="utf-8")
    assert engine_page.written(page) == page
    with pytest.raises(ValueError, match="must hold the lines"):
        engine_page.written("no markers")


def test_kept_results_stand_on_the_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine_page, "RESULTS", tmp_path)
    rows = [crowd_row("flow", 1.0)]
    outcome = {"part": "sixty", "rows": rows, "machine": describe_machine(), "load_before": 3.0}
    (tmp_path / "engine-sixty.json").write_text(json.dumps(outcome), encoding="utf-8")
    (tmp_path / "engine-sixty.txt").write_text("the table\n", encoding="utf-8")
    text = engine_page.block()
    assert "```text\nthe table\n```\n\nMeasured on " in text
    assert "*Preliminary: 1 seed only, other processes shared the machine (load 3.0).*" in text
    assert text.count("There is no kept result.") == len(engine.PARTS) - 1
    assert Settings().goal_factor == 3.0, "the page says that a goal is three times the best run time"
