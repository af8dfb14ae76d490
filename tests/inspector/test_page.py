"""The page as a text: whole in itself, the same for the same records, and safe whatever things are called."""

from __future__ import annotations

import base64
import copy
import gzip
import json
import re
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from inspected import bulk, on_kubernetes, searched
from round_records import chained_record

from engine.bulk_world import worlds
from flowsched.inspector.page import page_data as page_data_module
from flowsched.inspector.page.page import SCRIPTS, render_page
from flowsched.inspector.page.page_data import page_data
from flowsched.inspector.record_view import RecordView
from flowsched.inspector.round_network import round_network
from flowsched_models.page_style import scroll_style
from flowsched_simulator import Options, make_scenario, simulate
from flowsched_simulator.policies import EngineOptions

PAGE = Path(page_data_module.__file__).parent
HOSTILE = "</script><img src=x onerror=alert(1)><!--"


def blobs(page: str) -> list[dict[str, Any]]:
    """The data of every round in a page."""
    found = re.findall(r'<script type="application/gzip" id="round-\d+">([^<]*)</script>', page)
    return [json.loads(gzip.decompress(base64.b64decode(text))) for text in found]


def test_wide_tables_are_shaded_as_on_our_other_pages() -> None:
    assert scroll_style() in render_page([RecordView(searched(), "a.json")])


def unfolded(pairs: list[int]) -> list[int]:
    """Numbers from pairs of a first one and how many follow each other."""
    return [a + k for a, n in zip(pairs[::2], pairs[1::2], strict=True) for k in range(n)]


def dense(sparse: list[list[Any]], length: int) -> list[float]:
    """Values from where they are not 0."""
    values = [0.0] * length
    at = 0
    for step, value in zip(*sparse, strict=True):
        at += step
        values[at] = value
    return values


def renamed(record: dict[str, Any], old: str, new: str) -> dict[str, Any]:
    """The same record with a name changed wherever it stands."""

    def change(value: Any) -> Any:
        if isinstance(value, dict):
            return {change(k): change(v) for k, v in value.items()}
        if isinstance(value, list):
            return [change(v) for v in value]
        return value.replace(old, new) if isinstance(value, str) else value

    changed: dict[str, Any] = change(record)
    return changed


@pytest.fixture(scope="module")
def page() -> str:
    return render_page([RecordView(searched(), "out/round.json"), RecordView(bulk(), "out/bulk.npz")])


def test_the_same_records_give_the_same_bytes(page: str) -> None:
    again = render_page([RecordView(searched(), "out/round.json"), RecordView(bulk(), "out/bulk.npz")])
    assert page == again


def test_the_page_asks_for_nothing_and_forbids_itself_to(page: str) -> None:
    without_comments = re.sub(r"<!--.*?-->", "", page, flags=re.DOTALL)
    d3 = (PAGE / "d3.min.js").read_text(encoding="utf-8")
    assert d3 in without_comments
    own = without_comments.replace(d3, "")
    assert not re.search(r"https?:|//[\w.-]+\.\w+/", own)
    assert set(re.findall(r"https?://[^\s\"']+", d3)) <= {
        "https://d3js.org",
        "http://www.w3.org/2000/svg",
        "http://www.w3.org/1999/xhtml",
        "http://www.w3.org/1999/xlink",
        "http://www.w3.org/XML/1998/namespace",
        "http://www.w3.org/2000/xmlns/",
    }
    for tag in ("<link ", "<img", "<iframe", "src="):
        assert tag not in own.replace('<link rel="icon" href="data:,">', "")
    policy = re.search(r'http-equiv="Content-Security-Policy" content="([^"]*)"', page)
    assert policy is not None and "default-src 'none'" in policy.group(1)


def test_what_is_built_in_keeps_its_licence(page: str) -> None:
    licence = (PAGE / "d3.LICENSE.txt").read_text(encoding="utf-8")
    assert "Copyright" in licence
    assert licence.splitlines()[0] in page
    assert "THE SOFTWARE IS PROVIDED" in page


def test_without_data_the_page_is_below_two_megabytes(page: str) -> None:
    data = sum(len(text) for text in re.findall(r'id="round-\d+">([^<]*)<', page))
    assert len(page.encode()) - data < 2_000_000


def test_every_script_of_the_folder_is_in_the_page(page: str) -> None:
    own = {path.name for path in PAGE.glob("*.js")} - {"d3.min.js"}
    assert own == set(SCRIPTS)
    for name in SCRIPTS:
        assert (PAGE / name).read_text(encoding="utf-8") in page
        assert "innerHTML" not in (PAGE / name).read_text(encoding="utf-8")


def test_names_cannot_become_markup() -> None:
    record = renamed(searched(), "ferret", HOSTILE)
    page = render_page(
        [RecordView(record, f"out/{HOSTILE}.json")], [RecordView({**record, "policy": HOSTILE}, HOSTILE)]
    )
    assert "<img" not in page
    assert page.count("<script") == page.count("</script>") == 1 + 2 + 2
    assert HOSTILE in blobs(page)[0]["parts"][0]["tasks"]
    index = re.search(r'<script type="application/json" id="index">(.*?)</script>', page, flags=re.DOTALL)
    assert index is not None
    assert json.loads(index.group(1))["rounds"][1]["policy"] == HOSTILE


@pytest.mark.parametrize("record", [searched, partial(searched, "makespan"), bulk, on_kubernetes])
def test_all_tasks_and_machines_are_in_the_data(record: Callable[[], dict[str, Any]]) -> None:
    recorded = RecordView(record(), "round.npz")
    (data,) = blobs(render_page([recorded]))
    assert [part["tasks"] for part in data["parts"]] == [list(part.tasks) for part in recorded.parts]
    assert [part["machines"] for part in data["parts"]] == [list(part.machines) for part in recorded.parts]
    assert data["titles"] == dict(recorded.titles)
    for told, part in zip(data["parts"], recorded.parts, strict=True):
        decided = {told["tasks"][t] for t in (*told["placements"]["task"], *told["waiting"]["task"])}
        assert decided == {p.task for p in part.placements} | {w.task for w in part.waiting}


@pytest.mark.parametrize("record", [searched, bulk, on_kubernetes])
def test_the_data_says_what_the_record_says(record: Callable[[], dict[str, Any]]) -> None:
    agrees(RecordView(record(), "round.npz"))


@settings(max_examples=25)
@given(worlds())
def test_any_bulk_round_can_be_shown(world: Any) -> None:
    recorded = chained_record(world)
    agrees(recorded)


def agrees(recorded: RecordView) -> None:
    """Numbers for names, sparse terms and ranges, undone."""
    (data,) = blobs(render_page([recorded]))
    assert len(data["parts"]) == len(recorded.parts)
    for told, part in zip(data["parts"], recorded.parts, strict=True):
        for key, sets, names in (("classes", part.classes, part.tasks), ("groups", part.groups, part.machines)):
            members = [(name, tuple(names[i] for i in unfolded(pairs))) for name, pairs in told[key]]
            assert members == [(one.name, one.members) for one in sets]
        placed = told["placements"]
        count = len(placed["task"])
        assert [part.machines[m] for m in placed["machine"]] == [p.machine for p in part.placements]
        assert placed["cost"] == pytest.approx([p.cost for p in part.placements], rel=1e-8)
        for term, values in placed["terms"].items():
            assert dense(values, count) == pytest.approx([p.terms.get(term, 0.0) for p in part.placements], rel=1e-8)
        for name, graph in told["graphs"].items():
            made = round_network(recorded, part).graph
            real = made if name == "round" else part.pass_graph(int(name.removeprefix("pass:")))
            assert real is not None
            for key in ("tails", "heads", "capacities", "unit_costs", "flow", "units", "supplies"):
                assert graph[key] == getattr(real, key).tolist()
            assert graph["potentials"] == real.potentials.tolist()
            assert max(map(abs, graph["potentials"])) < 2**53, "whole numbers stay exact in a browser"
            terms = [dense(values, real.arc_count) for values in graph["terms"].values()]
            assert np.sum(terms, axis=0) == pytest.approx([real.cost(k) for k in range(real.arc_count)], abs=1e-6)
            for node, group in enumerate(graph["group"]):
                assert (group >= 0) == (real.kinds[node] in ("tier", "group", "cores", "later", "machine"))


def test_tasks_of_a_search_are_explained_and_one_for_every_class_and_reason_of_a_bulk_round() -> None:
    search = page_data(RecordView(searched(), "round.json"))["parts"][0]
    assert set(search["explanations"]) == {str(i) for i in range(len(search["tasks"]))}
    assert all(lines and all(isinstance(line, str) for line in lines) for lines in search["explanations"].values())
    large = page_data(RecordView(bulk(), "bulk.npz"))["parts"][0]
    explained = {large["tasks"][int(i)] for i in large["explanations"]}
    assert explained == {"shop/huge-0", *(f"shop/web-{c}-0" for c in range(4))}


def test_bulk_rounds_with_many_classes_or_machines_leave_explaining_what_was_placed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name, limit in (("_CLASSES", 4), ("_PAIRS", 5 * 24 - 1)):
        with monkeypatch.context() as patch:
            patch.setattr(page_data_module, name, limit)
            large = page_data(RecordView(bulk(), "bulk.npz"))["parts"][0]
        assert {large["tasks"][int(i)] for i in large["explanations"]} == {"shop/huge-0"}


@pytest.mark.parametrize(("quantity", "milli"), [(2, 2000), ("2", 2000), ("1500m", 1500), ("300m", 300), (0.5, 500)])
def test_quantities_are_thousandths_of_cores_however_the_record_writes_them(quantity: Any, milli: int) -> None:
    record = copy.deepcopy(searched())
    snapshot = record["parts"][0]["snapshot"]
    snapshot["machines"][0]["cpu"] = quantity
    snapshot["pending"][0] |= {"request": quantity, "widths": [quantity]}
    snapshot["running"] = [running_like(snapshot["pending"][0], snapshot["machines"][0]["name"], quantity)]
    part = page_data(RecordView(record, "round.json"))["parts"][0]
    assert part["machine_facts"]["cpu_milli"][0] == milli
    assert part["machine_facts"]["running"][0]["width_milli"] == milli
    facts = [f for f in part["class_facts"] if f["request_milli"] == milli and f["widths_milli"] == [milli]]
    assert facts


def running_like(task: dict[str, Any], machine: str, width: Any) -> dict[str, Any]:
    """A running task in a snapshot."""
    return {
        "task": {**task, "name": "already-there"},
        "machine": machine,
        "width": width,
        "threads": 1,
        "cores": "0",
        "bound_s": 0.0,
        "start_s": 0.0,
        "progress": 0.5,
    }


def test_rounds_of_several_policies_are_sorted_by_policy_then_round() -> None:
    def recorded(policy: str, number: int) -> RecordView:
        return RecordView({**searched(), "policy": policy, "round": number}, f"out/{policy}-{number:04}.npz")

    page = render_page([recorded(policy, number) for policy in ("fcfs", "flow") for number in (2, 1)])
    index = re.search(r'<script type="application/json" id="index">(.*?)</script>', page, flags=re.DOTALL)
    assert index is not None
    rounds = json.loads(index.group(1))["rounds"]
    assert [(r["track"], r["policy"], r["round"]) for r in rounds] == [
        (0, "flow", 1),
        (0, "flow", 2),
        (1, "fcfs", 1),
        (1, "fcfs", 2),
    ]
    assert [data["policy"] for data in blobs(page)] == ["flow", "flow", "fcfs", "fcfs"]


def test_times_from_1970_keep_their_seconds() -> None:
    record = {**copy.deepcopy(searched()), "now_s": 2000000001.25}
    task, machine = record["parts"][0]["placements"]["task"][0], record["parts"][0]["machines"][0]
    record["parts"][0]["reservations"] = [
        {"task": task, "machine": machine, "width_milli": 1000, "start_s": 2000000163.7871}
    ]
    data = page_data(RecordView(record, "round.json"))
    assert data["now_s"] == 2000000001.25
    assert data["parts"][0]["reservations"][0][3] == 2000000163.787


def test_a_record_without_networks_can_be_shown() -> None:
    record = copy.deepcopy(searched())
    record["parts"][0] |= {"first_network": None, "certificate": None}
    (data,) = blobs(render_page([RecordView(record, "fcfs-0000.json")]))
    assert data["parts"][0]["graphs"] == {}
    assert data["parts"][0]["certificate"] is None


def test_a_flow_that_is_not_optimal_has_no_prices() -> None:
    record = copy.deepcopy(searched())
    network = record["parts"][0]["first_network"]
    network["unit_costs"] = [-cost for cost in np.asarray(network["unit_costs"]).tolist()]
    (data,) = blobs(render_page([RecordView(record, "round.json")]))
    assert data["parts"][0]["graphs"]["pass:2"]["potentials"] is None


def test_a_round_that_solved_nothing_can_be_shown() -> None:
    record = {**searched(), "parts": []}
    (data,) = blobs(render_page([RecordView(record, "")]))
    assert data["parts"] == []


def test_a_page_needs_a_record() -> None:
    with pytest.raises(ValueError, match="needs a record"):
        render_page([])


def test_numbers_that_json_lacks_become_unknown() -> None:
    record = copy.deepcopy(bulk())
    record["parts"][0]["placements"]["runner_up_cost"] = np.full(len(record["parts"][0]["placements"]["task"]), np.inf)
    (data,) = blobs(render_page([RecordView(record, "bulk.npz")]))
    assert set(data["parts"][0]["placements"]["runner_up_cost"]) == {None}


@pytest.mark.parametrize(
    ("policy", "words"),
    [
        ("topo-aware", ", linked by nvlink where they are farthest apart. That costs "),
        ("flow", ", linked by nvlink where they are farthest apart."),
        ("topo-bipartition", ", linked by nvlink where they are farthest apart."),
    ],
)
def test_links_of_gpus_are_told_of_every_policy_and_their_cost_where_they_are_priced(policy: str, words: str) -> None:
    gpus = {"model": "P100", "count": 4}
    machines = [
        {"name": "linked", "type": "e2-standard-8", "gpus": {**gpus, "topology": "minsky"}},
        {"name": "unknown", "type": "e2-standard-8", "gpus": gpus},
    ]
    job = {"request": 1, "memory": "1Gi", "runtime_s": 60}
    jobs = [
        {"name": "pair", **job, "gpus": {"count": 2}, "machines": ["linked"]},
        {"name": "single", **job, "gpus": {"count": 1}, "machines": ["linked"]},
        {"name": "other", **job, "gpus": {"count": 2}, "machines": ["unknown"]},
    ]
    run = simulate(
        make_scenario(machines, jobs),
        policy,
        options=Options(keep_records=True),
        engine=EngineOptions(keep_records=True),
    )
    (record, *_) = run.records
    facts = page_data(RecordView(record))["parts"][0]["machine_facts"]
    told = {task: found for gpus in facts["gpus"].values() for task, *_, found in gpus["holds"]}
    assert told["single"] is told["other"] is None
    assert told["pair"].startswith(words) and ("utility" in told["pair"]) == (policy == "topo-aware")
    assert {name: found["topology"] for name, found in facts["gpus"].items()} == {"linked": "minsky", "unknown": None}
    assert [*facts["topologies"]] == ["minsky"]


def test_without_topologies_nothing_is_said_of_links() -> None:
    for record in (searched(), bulk(), on_kubernetes()):
        assert not any("topologies" in part["machine_facts"] for part in page_data(RecordView(record))["parts"])
