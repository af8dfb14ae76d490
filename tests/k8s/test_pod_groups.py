from __future__ import annotations

from typing import Any

import msgspec
import pytest
from objects_builders import in_tree_group, metadata, plugins_group, pod

from flowsched_k8s import names
from flowsched_k8s.groups.pod_groups import (
    IN_TREE,
    KUEUE,
    KUEUE_FAST,
    KUEUE_LABEL,
    KUEUE_SERVING,
    KUEUE_TOTAL,
    LABELS,
    LONGEST_S,
    MINIMUM_LABEL,
    NAME_LABEL,
    PLUGINS,
    PLUGINS_LABEL,
    SOURCES,
    TIMEOUT_S,
    GroupRef,
    GroupSpec,
    PodGroupIndex,
    group_ref,
    ref_of,
    unsupported_group,
)
from flowsched_k8s.objects import PodGroup, SucceededPod
from flowsched_k8s.pods.intent import read_intent
from flowsched_models.profiles import load_catalogue

EVERYTHING = frozenset(SOURCES)
IN_TREE_POD = pod(schedulingGroup={"podGroupName": "train"})
PLUGINS_POD = pod(labels={PLUGINS_LABEL: "train"})


def labelled(minimum: str | None, name: str = "p1") -> Any:
    return pod(name, labels={NAME_LABEL: "train"} | ({MINIMUM_LABEL: minimum} if minimum is not None else {}))


def queued(total: str | None, name: str = "p1", **notes: str) -> Any:
    given = notes | ({KUEUE_TOTAL: total} if total is not None else {})
    return pod(name, labels={KUEUE_LABEL: "train"}, annotations=given)


@pytest.mark.parametrize(
    ("member", "source"),
    [(IN_TREE_POD, IN_TREE), (PLUGINS_POD, PLUGINS), (labelled("2"), LABELS), (queued("2"), KUEUE)],
)
def test_a_pod_joins_a_group_by_each_source_that_is_switched_on(member: Any, source: str) -> None:
    assert group_ref(member, EVERYTHING) == GroupRef("default", "train", source)
    assert group_ref(member, EVERYTHING - {source}) is None


def test_a_pod_without_a_group_has_none() -> None:
    assert group_ref(pod(), EVERYTHING) is None
    assert group_ref(pod(labels={PLUGINS_LABEL: ""}, schedulingGroup={"podGroupName": ""}), EVERYTHING) is None


def test_the_field_wins_over_labels() -> None:
    both = pod(labels={PLUGINS_LABEL: "other"}, schedulingGroup={"podGroupName": "train"})
    assert group_ref(both, EVERYTHING) == GroupRef("default", "train", IN_TREE)
    assert group_ref(both, {PLUGINS}) == GroupRef("default", "other", PLUGINS)


def test_fields_that_are_not_read_are_refused_by_name() -> None:
    workload = pod(workloadRef={"name": "w", "podGroup": "g"})
    assert (unsupported_group(workload, EVERYTHING) or "").startswith("spec.workloadRef is not supported")
    assert "spec.schedulingGroup" in (unsupported_group(IN_TREE_POD, {PLUGINS}) or "")
    assert unsupported_group(IN_TREE_POD, EVERYTHING) is None
    assert unsupported_group(PLUGINS_POD, ()) is None, "a label that is not read is just a label"


def test_group_and_pods_arrive_in_either_order() -> None:
    known = PodGroupIndex()
    ref = GroupRef("default", "train", PLUGINS)
    assert known.resolve(ref, [PLUGINS_POD]) == 'PodGroup "train" not found in namespace default'
    assert known.put(plugins_group(minMember=3)) == ref
    assert known.resolve(ref, []) == GroupSpec(3)
    known.put(plugins_group(minMember=4))
    assert known.resolve(ref, [PLUGINS_POD]) == GroupSpec(4)
    known.remove(plugins_group())
    assert isinstance(known.resolve(ref, [PLUGINS_POD]), str)


@pytest.mark.parametrize(
    ("said", "timeout"), [(60, 60.0), (None, TIMEOUT_S), (0, TIMEOUT_S), (-5, TIMEOUT_S), (10**9, LONGEST_S)]
)
def test_the_deadline(said: int | None, timeout: float) -> None:
    known = PodGroupIndex()
    spec = {} if said is None else {"scheduleTimeoutSeconds": said}
    assert known.resolve(known.put(plugins_group(minMember=2, **spec)), []) == GroupSpec(2, timeout)
    assert TIMEOUT_S == 300.0


@pytest.mark.parametrize("minimum", [None, 0, -1])
def test_a_group_without_a_sensible_minimum_asks_for_one(minimum: int | None) -> None:
    known = PodGroupIndex()
    spec = {} if minimum is None else {"minMember": minimum}
    assert known.resolve(known.put(plugins_group(**spec)), []) == GroupSpec(1)


@pytest.mark.parametrize("version", ["v1alpha2", "v1beta1", "v1alpha3"])
def test_in_tree_groups(version: str) -> None:
    known = PodGroupIndex()
    ref = known.put(in_tree_group(minimum=4, version=version))
    assert ref == GroupRef("default", "train", IN_TREE) == group_ref(IN_TREE_POD, EVERYTHING)
    assert known.resolve(ref, []) == GroupSpec(4)
    assert known.get(ref) == in_tree_group(minimum=4, version=version)
    known.put(in_tree_group())
    assert known.resolve(ref, []) == GroupSpec(1)


def test_one_topology_of_a_group_is_kept_and_more_are_refused_by_name() -> None:
    known = PodGroupIndex()
    rack, zone = {"key": "rack"}, {"key": "zone"}
    ref = known.put(in_tree_group(minimum=2, schedulingConstraints={"topology": [rack]}, priority=7))
    assert known.resolve(ref, []) == GroupSpec(2, topology=("rack",), priority=7)
    known.put(in_tree_group(minimum=2, schedulingConstraints={}))
    assert known.resolve(ref, []) == GroupSpec(2)
    for refused in ({"topology": [rack, zone]}, {"devices": ["d"]}):
        known.put(in_tree_group(minimum=2, schedulingConstraints=refused))
        assert 'spec.schedulingConstraints of PodGroup "train"' in str(known.resolve(ref, []))
    known.put(in_tree_group(minimum=2, resourceClaims=[{"name": "shared"}]))
    assert known.resolve(ref, []) == 'spec.resourceClaims of PodGroup "train" is not supported by flowsched'


def test_pods_name_the_topologies_of_their_group() -> None:
    known = PodGroupIndex()
    ref = GroupRef("default", "train", LABELS)

    def member(keys: str | None) -> Any:
        notes = {} if keys is None else {names.GROUP_TOPOLOGY: keys}
        return pod(labels={NAME_LABEL: "train", MINIMUM_LABEL: "2"}, annotations=notes)

    assert known.resolve(ref, [member("rack, block"), member(None)]) == GroupSpec(2, topology=("rack", "block"))
    assert "is not the same for all pods: 'a', 'b'" in str(known.resolve(ref, [member("b"), member("a")]))
    for wrong in ("", "a,,b", ",".join("abcdefghi")):
        assert "is not a list of 1 to 8 node labels" in str(known.resolve(ref, [member(wrong)]))
    # What a PodGroup says itself counts.
    tree = known.put(in_tree_group(minimum=2, schedulingConstraints={"topology": [{"key": "zone"}]}))
    assert known.resolve(tree, [member("rack")]) == GroupSpec(2, topology=("zone",))
    assert known.resolve(known.put(plugins_group(minMember=3)), [member("rack")]) == GroupSpec(3, topology=("rack",))


@pytest.mark.parametrize(
    ("mode", "alone"), [(None, True), ("Pod", True), ({"single": {}}, True), ("PodGroup", False), ({"all": {}}, False)]
)
def test_whose_pods_may_be_evicted_alone(mode: Any, alone: bool) -> None:
    known = PodGroupIndex()
    known.put(in_tree_group(minimum=2, disruptionMode=mode))
    ref = GroupRef("default", "train", IN_TREE)
    assert known.breaks_apart(ref, ()) == known.breaks_apart(ref, ["all"]) == alone, "its field counts"


@pytest.mark.parametrize("source", [s for s in SOURCES if s != IN_TREE])
def test_pods_of_other_forms_say_whether_they_may_be_evicted_alone(source: str) -> None:
    known, ref = PodGroupIndex(), GroupRef("default", "train", source)
    assert known.breaks_apart(ref, ()) and known.breaks_apart(ref, ["single"])
    assert not any(known.breaks_apart(ref, modes) for modes in (["all"], ["all", "single"], ["whole"]))


@pytest.mark.parametrize("where", ["annotations", "labels"])
def test_how_a_group_may_be_evicted_is_one_of_two_words(where: str) -> None:
    ref, known = GroupRef("default", "train", LABELS), PodGroupIndex()

    def member(mode: str | None) -> Any:
        labels = {NAME_LABEL: "train", MINIMUM_LABEL: "2"}
        said = {} if mode is None else {names.DISRUPTION_MODE: mode}
        return pod(**{"labels": labels, **({where: {**labels, **said}} if where == "labels" else {where: said})})

    for mode in ("single", "all", None):
        assert known.resolve(ref, [member(mode), member(None)]) == GroupSpec(2)
    note = f"annotation {names.DISRUPTION_MODE} of group train is"
    assert known.resolve(ref, [member("PodGroup")]) == f"{note} 'PodGroup'; write 'single' or 'all'"
    assert known.resolve(ref, [member("all"), member("single")]) == f"{note} not the same for all pods: 'all', 'single'"


def test_annotations_of_groups_are_not_taken_for_misspelt_ones() -> None:
    notes = {names.DISRUPTION_MODE: "all", names.GROUP_TOPOLOGY: "rack"}
    assert read_intent(pod(annotations=notes), load_catalogue()).problems == ()


def test_items_of_a_list_do_not_say_what_they_are() -> None:
    item = msgspec.convert({"metadata": metadata("train", "default"), "spec": {}}, PodGroup)
    assert ref_of(item).source == PLUGINS
    policy = {"schedulingPolicy": {"gang": {"minCount": 2}}}
    said = msgspec.convert({"metadata": metadata("train", "default"), "spec": policy}, PodGroup)
    assert ref_of(said).source == IN_TREE


def test_groups_of_both_apis_may_have_the_same_name() -> None:
    known = PodGroupIndex()
    refs = [known.put(plugins_group(minMember=2)), known.put(in_tree_group(minimum=5))]
    assert [known.resolve(r, []) for r in refs] == [GroupSpec(2), GroupSpec(5)]


@pytest.mark.parametrize(
    ("minimums", "result"),
    [
        (["2"], GroupSpec(2)),
        (["2", "3", "x"], GroupSpec(3)),
        ([], f"no pod of group train has the label {MINIMUM_LABEL}"),
        ([None], f"no pod of group train has the label {MINIMUM_LABEL}"),
        (["0"], f"label {MINIMUM_LABEL} of group train is '0', which is not a number of pods"),
        (["-1"], f"label {MINIMUM_LABEL} of group train is '-1', which is not a number of pods"),
        (["9" * 60], f"label {MINIMUM_LABEL} of group train is '{'9' * 60}', which is not a number of pods"),
    ],
)
def test_groups_by_labels(minimums: list[str | None], result: Any) -> None:
    members = [labelled(m, f"p{i}") for i, m in enumerate(minimums)]
    for order in (members, members[::-1]):
        assert PodGroupIndex().resolve(GroupRef("default", "train", LABELS), order) == result


def test_names_of_groups_differ() -> None:
    refs = [GroupRef("a", "b", s) for s in SOURCES] + [GroupRef("a", "c", PLUGINS)]
    assert len({str(r) for r in refs}) == len(refs)


QUEUED = GroupRef("default", "train", KUEUE)


def test_a_group_of_kueue_counts_as_kueue_counts() -> None:
    known = PodGroupIndex()
    assert known.resolve(QUEUED, [queued("3"), queued("3", "p2")]) == GroupSpec(3)
    assert known.resolve(QUEUED, [queued("3"), queued(None, "p2")]) == GroupSpec(3)
    topology = queued("3", **{names.GROUP_TOPOLOGY: "rack"})
    assert known.resolve(QUEUED, [topology]) == GroupSpec(3, topology=("rack",))
    refused = f"annotation {KUEUE_TOTAL} of group train is not the same for all pods: '2', '3'"
    assert known.resolve(QUEUED, [queued("3"), queued("2", "p2")]) == refused
    assert known.resolve(QUEUED, [queued(None)]) == f"no pod of group train has the annotation {KUEUE_TOTAL}"


@pytest.mark.parametrize("text", ["", "0", "-1", "two", "1.5", "1e3", "1234567", "٣"])
def test_what_is_no_number_of_pods_is_refused(text: str) -> None:
    expected = f"annotation {KUEUE_TOTAL} of group train is '{text}', which is not a number of pods"
    assert PodGroupIndex().resolve(QUEUED, [queued(text)]) == expected


@pytest.mark.parametrize(
    ("note", "alone"),
    [
        ({KUEUE_FAST: "true"}, True),
        ({KUEUE_FAST: ""}, True),
        ({KUEUE_SERVING: "true"}, True),
        ({KUEUE_SERVING: "false"}, False),
        ({KUEUE_SERVING: ""}, False),
    ],
)
def test_pods_that_come_one_after_the_other_do_not_wait_for_each_other(note: dict[str, str], alone: bool) -> None:
    """As a StatefulSet's, of which the second is made when the first runs."""
    assert PodGroupIndex().resolve(QUEUED, [queued("3", **note)]) == GroupSpec(1 if alone else 3)


def test_pods_that_succeeded_need_no_place_and_no_replacement() -> None:
    known = PodGroupIndex()
    done = [SucceededPod(metadata=queued("3", f"done-{i}").metadata) for i in range(2)]
    for ended in done:
        assert known.put_succeeded(ended) == QUEUED
        known.put_succeeded(ended)
    assert known.resolve(QUEUED, [queued("3")]) == GroupSpec(1, succeeded=2)
    assert known.resolve(QUEUED, [queued("2")]) == GroupSpec(1, succeeded=2), "never less than one"
    # One watch is behind the other: it still has as running who is known to have succeeded.
    assert known.resolve(QUEUED, [queued("3"), queued("3", "done-0")]) == GroupSpec(2, succeeded=1)
    assert known.remove_succeeded(done[0]) == QUEUED
    assert known.resolve(QUEUED, [queued("3")]) == GroupSpec(2, succeeded=1)
    for ended in done:
        known.remove_succeeded(ended)
    assert known.resolve(QUEUED, [queued("3")]) == GroupSpec(3)
