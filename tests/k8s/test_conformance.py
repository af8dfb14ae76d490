"""The conformance suite without a control plane: the generator, how cases become objects, verdicts, and the page."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
from conformance.__main__ import KEPT, PAGE, page_with
from conformance.api_objects import Translation, dns
from conformance.expected import Deviation, Expected
from conformance.report import Result, Verdict, judge, known_failures, problems
from conformance.runner import Answer, questions_of
from conformance.scenario import Scenario, SkippedError, even_sample, scenario_of
from conformance.upstream import GENERATOR, PLUGINS, Call, Case, UpstreamError, record
from conformance.written import read_cases, written_cases, written_sources

from requirements_on_machine import needs

TABLE_TEST = """package sample

import "testing"

var shared = 1

func TestTable(t *testing.T) {
	tests := []struct{ name string }{{"a"}}
	for _, test := range tests {
		local := shared
		status := p.(Plugin).Filter(ctx, state, test.pod, local)
		use(status)
	}
}

func TestScores(t *testing.T) {
	for name, test := range map[string]struct{}{} {
		use(name, test)
	}
	table := map[string]struct{ want int }{}
	for name, test := range table {
		use(name, test)
	}
}
"""


def test_the_generator_records_calls_in_loops_over_tables_and_skips_other_loops(tmp_path: Path) -> None:
    go = needs("go", "to run the generator of upstream's cases")
    source = tmp_path / "source" / "sample"
    source.mkdir(parents=True)
    (source / "sample.go").write_text("package sample\n")
    (source / "sample_test.go").write_text(TABLE_TEST)
    command = [go, "run", str(GENERATOR / "main.go"), "-source", str(source.parent), "-out", str(tmp_path), "sample"]
    told = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    assert told == {"package": "sample", "tables": 2, "tests": ["TestScores", "TestTable"]}
    written = (tmp_path / "sample" / "sample_test.go").read_text()
    scope = 'map[string]any{"local": &local, "shared": &shared, "test": &test, }'
    assert f"upstreamCase.Filter({scope}, p.(Plugin), ctx, state, test.pod, local)" in written
    assert 'upstreamCase := beginUpstreamCase("TestTable", nil, &test)' in written
    assert written.count("continue") == 1, "only the loop in which nothing is recorded is cut short"
    assert (tmp_path / "sample" / "sample.go").read_text() == "package sample\n"


def test_without_go_recording_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLOWSCHED_CACHE", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(UpstreamError, match="Go is not installed"):
        record()


# Cases


def pod(**spec: Any) -> dict[str, Any]:
    return {"metadata": {"name": "p"}, "spec": {"containers": None, **spec}}


def node(name: str, **labels: str) -> dict[str, Any]:
    return {"metadata": {"name": name, "labels": labels}}


def call(point: str, code: str, *nodes: dict[str, Any], incoming: Any = None, names: Any = None) -> Call:
    shown = tuple({"node": n, "pods": []} for n in nodes)
    return Call(point, incoming or pod(), shown, (), code, (), names, None)


def case(*calls: Call, plugin: str = "nodeaffinity", objects: Any = (), **fields: Any) -> Case:
    return Case(plugin, "TestIt", 1, "a name", fields, list(objects), list(calls))


A, B = node("node-a"), node("node-b")


def test_filter_says_of_each_node_whether_the_pod_fits() -> None:
    found = scenario_of(
        case(call("PreFilter", "Success", A, B), call("Filter", "Success", A), call("Filter", "Bad", B))
    )
    assert found.fits == {"node-a": True, "node-b": False}
    assert [(q.nodes, q.fits) for q in questions_of(found)] == [({"node-a"}, True), ({"node-b"}, False)]
    nowhere = scenario_of(case(call("PreFilter", "Bad", A, B)))
    assert [(q.nodes, q.fits) for q in questions_of(nowhere)] == [({"node-a", "node-b"}, False)]
    assert [(q.nodes, q.fits) for q in questions_of(nowhere, singly=True)] == [({"node-a"}, False), ({"node-b"}, False)]


@pytest.mark.parametrize(
    ("code", "names", "fits"),
    [
        ("Skip", None, {"node-a": True, "node-b": True}),
        ("UnschedulableAndUnresolvable", None, {"node-a": False, "node-b": False}),
        ("Success", ("node-a",), {"node-a": True, "node-b": False}),
    ],
)
def test_prefilter_decides_for_all_nodes(code: str, names: Any, fits: dict[str, bool]) -> None:
    filters = [call("Filter", "Success", A), call("Filter", "Success", B)]
    assert scenario_of(case(call("PreFilter", code, A, B, names=names), *filters)).fits == fits


@pytest.mark.parametrize(
    ("skipped", "reason"),
    [
        (case(), "no extension point"),
        (case(call("Filter", "Success", A), args=True), "configured by the case"),
        (case(call("Filter", "Success", A, incoming=pod(nodeName="n")), plugin="nodename"), "names its node"),
        (case(call("PreFilter", "Success", A)), "no node is asked about"),
    ],
)
def test_what_cannot_be_run_is_skipped_with_a_reason(skipped: Case, reason: str) -> None:
    with pytest.raises(SkippedError, match=reason):
        scenario_of(skipped)


def test_namespaces_and_nodes_are_renamed_wherever_they_are_named() -> None:
    term = {"labelSelector": {}, "namespaces": ["Other NS"], "topologyKey": "zone"}
    fields = [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["node-a"]}]}]
    affinity = {
        "podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]},
        "nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": fields}},
    }
    there = {"metadata": {"namespace": "Other NS"}, "spec": {"nodeName": "node-a"}}
    made = Translation(
        Scenario(case(), pod(affinity=affinity), {"node-a": A}, {"node-a": True}, [there]), "c1", "mine", {"pool": "x"}
    )
    spec = made.incoming("new").body["spec"]
    assert spec["affinity"]["podAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"][0]["namespaces"] == [
        "c1-other-ns"
    ]
    assert "c1-node-a" in str(spec["affinity"]["nodeAffinity"])
    assert made.pods[0].body["metadata"]["namespace"] == "c1-other-ns"
    assert made.pods[0].body["spec"]["nodeName"] == "c1-node-a"
    assert {c.body["metadata"]["name"] for c in made.creations if c.body["kind"] == "Namespace"} == {
        "c1",
        "c1-other-ns",
    }
    (created,) = (c.body for c in made.creations if c.body["kind"] == "Node")
    assert created["metadata"]["labels"]["pool"] == "x"
    assert made.scenario.pods[0]["spec"]["nodeName"] == "node-a", "the scenario stays as it was"


def test_only_the_node_that_is_asked_about_has_what_the_pod_requests() -> None:
    scenario = Scenario(case(), pod(), {"node-a": A, "node-b": B}, {"node-a": True, "node-b": False})
    made = Translation(scenario, "c1", "mine", {})
    room = {c.body["metadata"]["name"]: c.body["status"]["allocatable"] for c in made.creations if "status" in c.body}
    for number, question in enumerate(questions_of(scenario)):
        requests = made.incoming(f"p{number}", question.resource).body["spec"]["containers"][0]["resources"]["requests"]
        assert {name for name, has in room.items() if requests.keys() <= has.keys()} == {
            f"c1-{name}" for name in question.nodes
        }


def test_names_are_as_the_api_server_takes_them() -> None:
    assert [dns(name) for name in ("Vol_1", "node/a:b", "a.b", "___")] == ["vol-1", "node-a-b", "a.b", "x"]


def test_a_sample_is_spread_evenly_and_always_the_same() -> None:
    scenarios = [Scenario(case(), pod(), {str(n): A}, {}) for n in range(100)]
    sample = even_sample(scenarios, 10)
    assert [next(iter(s.nodes)) for s in sample] == [str(n) for n in range(0, 100, 10)]
    assert even_sample(scenarios, 200) == scenarios


# Verdicts

ONE = Scenario(case(), pod(), {"node-a": A}, {"node-a": True})
NONE = Scenario(case(), pod(), {"node-a": A}, {"node-a": False})
BOUND, PENDING = Answer("node-a"), Answer("", "0/1 nodes are available")
REFUSED = Answer("", "0/1 nodes are available: spec.x is not supported by flowsched.")


@pytest.mark.parametrize(
    ("scenario", "kube", "own", "verdicts"),
    [
        (ONE, BOUND, BOUND, (Verdict.PASS, Verdict.PASS)),
        (ONE, BOUND, PENDING, (Verdict.PASS, Verdict.FAIL)),
        (ONE, BOUND, REFUSED, (Verdict.PASS, Verdict.REFUSED)),
        (ONE, BOUND, Answer("elsewhere"), (Verdict.PASS, Verdict.WRONG)),
        (NONE, PENDING, PENDING, (Verdict.PASS, Verdict.PASS)),
        (NONE, PENDING, BOUND, (Verdict.PASS, Verdict.WRONG)),
        (NONE, PENDING, Answer("", "", frozenset({"victim"})), (Verdict.PASS, Verdict.WRONG)),
        # Where the table does not hold for the whole of kube-scheduler, kube-scheduler is the measure.
        (NONE, BOUND, BOUND, (Verdict.NOT_APPLICABLE, Verdict.PASS)),
        (NONE, BOUND, PENDING, (Verdict.NOT_APPLICABLE, Verdict.FAIL)),
        (ONE, PENDING, PENDING, (Verdict.NOT_APPLICABLE, Verdict.PASS)),
        (ONE, PENDING, BOUND, (Verdict.NOT_APPLICABLE, Verdict.WRONG)),
    ],
)
def test_verdicts(scenario: Scenario, kube: Answer, own: Answer, verdicts: tuple[Verdict, Verdict]) -> None:
    result = judge(scenario, questions_of(scenario), [kube], [own])
    assert (result.kube_scheduler, result.flowsched) == verdicts
    assert bool(result.deviation) == (verdicts[0] is Verdict.NOT_APPLICABLE)


@pytest.mark.parametrize(
    ("verdict", "listed", "said"),
    [
        (Verdict.PASS, False, ""),
        (Verdict.REFUSED, False, ""),
        (Verdict.FAIL, True, ""),
        (Verdict.FAIL, False, "fails and is not listed"),
        (Verdict.PASS, True, "is listed as failing and does not fail"),
        (Verdict.WRONG, False, "wrong"),
        (Verdict.WRONG, True, "wrong"),
    ],
)
def test_only_listed_failures_are_allowed_and_wrong_bindings_never(verdict: Verdict, listed: bool, said: str) -> None:
    found = problems([Result(case(), Verdict.PASS, verdict)], {"nodeaffinity/TestIt/1": "why"} if listed else {})
    assert bool(found) == bool(said)
    assert not said or found[0].startswith(said)


def test_known_failures_name_a_case_and_a_reason() -> None:
    for name, reason in known_failures().items():
        if name not in {scenario.case.id for scenario in written_cases()}:
            plugin, test, number = name.split("/")
            assert plugin in PLUGINS and test.startswith("Test") and int(number) > 0
        assert re.fullmatch(r"[A-Z].{20,}\.", reason)


# Cases written here

SHORT = """
project: some/project
nodes: {a: {cpu: 4, zone: east, taints: ["k=v:NoSchedule"]}, b: {zone: west}}
cases:
  one:
    from: "file, test"
    pods:
      there: {node: a, labels: {app: db}}
      web: {copies: 2, cpu: 1, together: zone app=db, spread: {at: host, of: "app=web|api,!old", maxSkew: 2}}
      late: {where: "disk!=slow,size>3", ports: ["127.0.0.1:80/UDP"], tolerates: ["k=v:NoSchedule"]}
    claims: {data: {volume: disk}}
    volumes: {disk: {csi: a.driver}}
    then: {bound: {web: a}, pending: {late: ""}}
    later:
      - delete: [web]
        add: [late]
        then: {count: {web late: 1}, spread: {web: {zone: [1, 0]}}, evicted: 1}
"""


def short(**changes: str) -> Scenario:
    text = SHORT
    for before, after in changes.values():
        assert before in text
        text = text.replace(before, after)
    return next(iter(read_cases("source", text)))


def test_a_case_in_the_short_form_becomes_what_the_api_takes() -> None:
    found = short()
    assert (found.case.id, found.case.name) == ("source/one", "some/project, file, test")
    assert found.nodes["a"]["spec"]["taints"] == [{"key": "k", "value": "v", "effect": "NoSchedule"}]
    assert found.nodes["b"]["metadata"]["labels"] == {"topology.kubernetes.io/zone": "west"}
    assert [p["spec"]["nodeName"] for p in found.pods] == ["a"]
    web, _, late = found.waiting
    term = {"topologyKey": "topology.kubernetes.io/zone", "labelSelector": {"matchExpressions": [REQUIREMENT]}}
    assert web["spec"]["affinity"]["podAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"] == [term]
    (constraint,) = web["spec"]["topologySpreadConstraints"]
    assert (constraint["maxSkew"], constraint["whenUnsatisfiable"]) == (2, "DoNotSchedule")
    assert [e["operator"] for e in constraint["labelSelector"]["matchExpressions"]] == ["In", "DoesNotExist"]
    assert late["spec"]["containers"][0]["ports"] == [
        {"hostPort": 80, "containerPort": 80, "protocol": "UDP", "hostIP": "127.0.0.1"}
    ]
    assert [step.add for step in found.steps] == [("web-0", "web-1"), ("late",)]
    assert found.preempts
    assert found.steps[1].delete == ("web-0", "web-1")


REQUIREMENT = {"key": "app", "operator": "In", "values": ["db"]}


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        ("then: {bound: {web: a}", "then: {bound: {wep: a}", "no such pods: wep"),
        ("then: {bound: {web: a}", "then: {bind: {web: a}", "unknown keys of 'then': bind"),
        ("    claims: ", "    claim: ", "unknown keys: claim"),
        ("- delete: ", "- remove: ", "unknown keys of a step: remove"),
        ("{node: a, labels", "{on: a, labels", "a key of pod there is no text: True"),
    ],
)
def test_a_case_that_is_not_in_the_form_says_what_is_wrong(before: str, after: str, said: str) -> None:
    with pytest.raises(ValueError, match="source/one.*" + re.escape(said)):
        short(it=(before, after))


def test_what_is_added_later_is_not_there_at_first() -> None:
    made = Translation(short(), "c1", "mine", {})
    assert {c.body["kind"] for c in made.creations} == {
        "Namespace",
        "Node",
        "PersistentVolume",
        "PersistentVolumeClaim",
        "Pod",
    }
    assert [c.body["metadata"]["name"] for c in made.creations if c.body["kind"] == "Pod"] == ["there"]
    assert made.later.keys() == {"web-0", "web-1", "late"}
    assert made.by_name["a"].body["kind"] == "Node"


def test_every_case_names_its_source_and_there_are_more_than_a_hundred() -> None:
    found = written_cases()
    assert len(found) > 100
    assert len({scenario.case.id for scenario in found}) == len(found)
    assert {scenario.case.plugin for scenario in found} == set(written_sources())
    for scenario in found:
        # Project, folder or file, and test.
        assert scenario.case.name.count(",") >= 2 and "/" in scenario.case.name
    assert sum(not scenario.not_applicable for scenario in found) > 100


NODES = {"a": {"zone": "east"}, "b": {"zone": "west"}}


@pytest.mark.parametrize(
    ("then", "places", "messages", "evicted", "found"),
    [
        (Expected(bound={"p": frozenset("a")}), {"p": "a"}, {}, (), []),
        (Expected(bound={"p": frozenset("a")}), {"p": "b"}, {}, (), [True]),
        (Expected(bound={"p": frozenset()}), {}, {"p": "no"}, (), [False]),
        (Expected(preferred={"p": frozenset("a")}), {"p": "b"}, {}, (), [False]),
        (Expected(pending={"p": "cpu"}), {}, {"p": "Insufficient cpu"}, (), []),
        (Expected(pending={"p": "cpu"}), {}, {"p": "Too many pods"}, (), [False]),
        (Expected(pending={"p": ""}), {}, {}, (), [False]),
        (Expected(pending={"p": ""}), {"p": "a"}, {}, (), [True]),
        (Expected(counts=((frozenset("pq"), 1),)), {"p": "a"}, {"q": "no"}, (), []),
        (Expected(counts=((frozenset("pq"), 1),)), {"p": "a", "q": "a"}, {}, (), [True]),
        (Expected(counts=((frozenset("pq"), 1),)), {"p": "a"}, {}, (), [False]),
        (Expected(spread=((frozenset("pq"), "zone", (1, 1)),)), {"p": "a", "q": "b"}, {}, (), []),
        (Expected(spread=((frozenset("pq"), "zone", (1, 1)),)), {"p": "a", "q": "a"}, {}, (), [True]),
        (Expected(spread=((frozenset("pq"), "zone", (1, 1)),)), {"p": "a"}, {}, (), [False]),
        (Expected(evicted=frozenset("q")), {}, {}, ("q",), []),
        (Expected(evicted=frozenset("q")), {}, {}, ("r",), [False, True]),
        (Expected(), {}, {}, ("q",), [True]),
        (Expected(evicted=1), {}, {}, (), [False]),
        (Expected(evicted=1), {}, {}, ("q", "r"), [True]),
    ],
)
def test_deviations_tell_what_was_done_from_what_was_not(
    then: Expected, places: dict[str, str], messages: dict[str, str], evicted: tuple[str, ...], found: list[bool]
) -> None:
    assert [d.wrong for d in then.deviations(places, messages, frozenset(evicted), NODES)] == found


@pytest.mark.parametrize(
    ("kube", "own", "verdict", "said"),
    [
        (Answer(""), Answer(""), Verdict.PASS, ""),
        (Answer(""), Answer("", "x", deviations=(Deviation("x", False),)), Verdict.FAIL, "fails and is not listed"),
        (Answer(""), Answer("", "x", deviations=(Deviation("x", True),)), Verdict.WRONG, "wrong"),
        (Answer(""), Answer("", "not supported by flowsched", deviations=(Deviation("", False),)), Verdict.REFUSED, ""),
        (
            Answer("", "x", deviations=(Deviation("x", False),)),
            Answer(""),
            Verdict.PASS,
            "kube-scheduler does otherwise",
        ),
    ],
)
def test_verdicts_on_steps(kube: Answer, own: Answer, verdict: Verdict, said: str) -> None:
    scenario = short()
    result = judge(scenario, questions_of(scenario), [kube, Answer("")], [own, Answer("")])
    assert result.flowsched is verdict
    found = problems([result], {})
    assert bool(found) == bool(said) and (not said or found[0].startswith(said))


# The page


def test_the_page_shows_the_kept_result() -> None:
    data, page = json.loads(KEPT.read_text()), PAGE.read_text()
    assert page_with(page, data) == page
    rows = data["plugins"].values()
    assert sum(row["run"] for row in rows) >= 190
    assert sum(row["flowsched: wrong"] for row in rows) == 0
    assert data["fail"].keys() == known_failures().keys()
