"""Cost models as users choose them: settings as they are typed, and what is said of those that are wrong."""

from __future__ import annotations

from typing import Any

import pytest

from flowsched.cluster.settings import Settings
from flowsched.cluster.settings_form import CHANGE_SETTINGS, Readers, apply_settings
from flowsched.errors import PolicyError
from flowsched.round.linear import choice
from flowsched_models.document import InputError


@pytest.mark.parametrize(
    ("text", "kind", "value"),
    [
        ("2", "float", 2.0),
        ("1e3", "float", 1000.0),
        ("inf", "float", float("inf")),
        ("7", "int", 7),
        ("7", "int | float", 7),
        ("7.5", "int | float", 7.5),
        ("Yes", "bool", True),
        ("off", "bool", False),
        ("none", "float | None", None),
        ("3", "float | None", 3.0),
        ("5", "str", "5"),
        ("true", "str", "true"),
        ("5", "", "5"),
        ("much", "float | str", "much"),
        ("[[1, 2]]", "tuple[tuple[float, ...], ...]", [[1, 2]]),
        ('{"a": 1}', "collections.abc.Mapping[str, int]", {"a": 1}),
        ("[1", "list", "[1"),
    ],
)
def test_what_is_typed_becomes_what_is_annotated(text: str, kind: str, value: Any) -> None:
    found = choice.value_of(text, kind)
    assert found == value and type(found) is type(value)


@pytest.mark.parametrize(
    ("text", "kind", "message"),
    [
        ("x", "float", "is 'x'; give a number"),
        ("1.5", "int", "is '1.5'; give a whole number"),
        ("nan", "int", "is 'nan'; give a whole number"),
        ("2", "bool", "is '2'; give true or false"),
        ("", "float", "is ''; give a number"),
    ],
)
def test_what_it_cannot_be_is_said(text: str, kind: str, message: str) -> None:
    with pytest.raises(ValueError, match="give") as error:
        choice.value_of(text, kind)
    assert str(error.value) == message


def refused(name: str, *settings: tuple[str, str]) -> str:
    with pytest.raises(InputError) as error:
        choice.chosen(name, settings)
    assert not isinstance(error.value, PolicyError)
    return str(error.value)


def test_wrong_settings_name_the_option_and_the_policy() -> None:
    finite = "give a finite number from 0 up"
    assert refused("coco", ("bucket", "-1")) == f"--set: coco.bucket is -1; {finite}"
    assert refused("coco", ("bucket", "nan")) == f"--set: coco.bucket is nan; {finite}"
    assert refused("coco", ("bucket", "inf")) == f"--set: coco.bucket is inf; {finite}"
    assert refused("coco", ("bucket", "x")) == "--set: coco.bucket is 'x'; give a number"
    assert refused("coco", ("penalties", str([[-1] * 4] * 4))) == (
        f"--set: coco: the penalty of a turtle beside a turtle is -1; {finite}"
    )
    text = refused("coco", ("bukket", "2"), ("growth", "x"))
    assert "the policy 'coco' has no setting 'bukket'; did you mean 'coco.bucket=2'? (known: coco.penalties, " in text
    assert text.splitlines()[1] == "--set: coco.growth is 'x'; give a number"


def test_of_the_same_setting_the_last_counts() -> None:
    policy = choice.chosen("load-spreading", [("by-size", "no"), ("weight", "2"), ("weight", "3")])
    assert (policy.weight, policy.by_size) == (3.0, False)  # type: ignore[attr-defined]


def test_only_the_command_line_names_its_option() -> None:
    with pytest.raises(PolicyError) as error:
        choice.chosen("cocoo")
    assert str(error.value).startswith("there is no policy 'cocoo'; did you mean 'coco'?")
    with pytest.raises(InputError) as asked:
        choice.from_options("cocoo")
    assert str(asked.value) == f"--policy: {error.value}"


def test_plain_settings_go_by_features() -> None:
    rounds = ("due_age_s", "aging_crosses_priority", "drain", *CHANGE_SETTINGS, "scoring")
    assert choice.plain_settings(choice.chosen("coco").features) == rounds
    assert choice.plain_settings(choice.chosen("flow").features) == (*rounds, "headroom_weight", "slo_margin")


def test_settings_come_apart_by_policy() -> None:
    own, theirs = choice.apart(["slots=1", "coco.bucket = 2", "plan.cores=shared", "coco.growth"], ["coco"])
    assert own == ["slots=1", "plan.cores=shared", "coco.growth"]
    assert theirs == {"coco": [("bucket", "2")]}


@pytest.mark.parametrize(
    ("text", "policies", "message"),
    [
        ("trivial.place=2", ["coco"], "--set: trivial.place: is for trivial; add --policy trivial"),
        ("flow.waiting=5", ["flow-network"], "did you mean 'flow-network.waiting=5'?"),
        ("flow.waiting=5", [], "did you mean 'flow-network.waiting=5', with --policy flow-network?"),
        ("flow.slots=2", [], "there is no setting 'flow.slots'; did you mean 'slots=2'?"),
    ],
)
def test_settings_of_another_policy(text: str, policies: list[str], message: str) -> None:
    with pytest.raises(InputError) as error:
        choice.apart([text], policies)
    assert str(error.value).endswith(message)


READERS = Readers(("coco", "lpt"), ("due_age_s",), ("coco.bucket", "x.bucket", "coco.growth"), "or flow")


@pytest.mark.parametrize(
    ("assignments", "message"),
    [
        (
            ["slots=1", "due_age_s=3", "pricings=1"],
            "--set: slots, pricings: not read by coco or lpt; what is read: due_age_s, coco.bucket, x.bucket, "
            "coco.growth; or flow",
        ),
        (
            ["bucket=2"],
            "--set: bucket=2: there is no setting 'bucket'; did you mean 'coco.bucket=2' or 'x.bucket=2'? "
            "(known: due_age_s, coco.bucket, x.bucket, coco.growth)",
        ),
        (
            ["no-such.zzz=2"],
            "--set: no-such.zzz=2: there is no setting 'no-such.zzz'; known: due_age_s, coco.bucket, x.bucket, "
            "coco.growth",
        ),
        (["coco.growth"], "--set: coco.growth: is not of the form KEY=VALUE; did you mean 'coco.growth=...'? (known: "),
    ],
)
def test_settings_that_are_not_read_or_do_not_exist(assignments: list[str], message: str) -> None:
    with pytest.raises(InputError) as error:
        apply_settings(Settings(), assignments, readers=READERS)
    assert str(error.value).startswith(message)
    assert len(str(error.value).splitlines()) == 1


def test_without_readers_every_setting_is_read() -> None:
    assert apply_settings(Settings(), ["slots=1", "slots=2"]).slots == 2
    with pytest.raises(InputError, match=r"'nosuch\.zzz'; known: objective, "):
        apply_settings(Settings(), ["nosuch.zzz=1"])


def test_a_setting_in_seconds_with_a_unit_gets_told_the_number() -> None:
    with pytest.raises(InputError) as caught:
        apply_settings(Settings(), ["due_age_s=2m", "pass_share=20%", "slots=many"])
    assert [str(problem) for problem in caught.value.problems] == [
        "--set: due_age_s: '2m' is not a number; due_age_s is in seconds: write 120",
        "--set: pass_share: '20%' is not a number; write 0.2",
        "--set: slots: 'many' is not a whole number",
    ]
