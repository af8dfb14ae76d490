"""Policies by name: ours and those of others, their settings, and what is said when something is wrong."""

from __future__ import annotations

import dataclasses
import inspect
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from builders import read_anew
from flowsched.errors import PolicyError
from flowsched.pricing.linear.policies import COST_MODELS, describe_cost_model, make_cost_model, registry

OURS = ("flow-network", "quincy", "load-spreading", "coco", "shortest-job-first", "trivial")
DOCS = Path(__file__).parents[3] / "docs"
PAGE, OWN = DOCS / "policies.md", DOCS / "own-cost-model.md"


def said(name: str, **settings: object) -> str:
    """What is wrong, without where it was said."""
    with pytest.raises(PolicyError) as error:
        make_cost_model(name, **settings)
    assert isinstance(error.value, KeyError) and error.value.exit_code == 2
    text = str(error.value)
    assert "\n" not in text and "--" not in text
    return text


def test_ours_are_there_under_the_names_that_they_have() -> None:
    assert tuple(COST_MODELS)[: len(OURS)] == OURS
    for name in OURS:
        assert make_cost_model(name).name == name
        assert COST_MODELS.package(name) == ""


def test_the_older_name_is_understood_and_not_listed() -> None:
    assert make_cost_model("flow", waiting=5.0) == make_cost_model("flow-network", waiting=5.0)
    assert describe_cost_model("flow") == describe_cost_model("flow-network")
    assert "flow" not in COST_MODELS


def test_a_description_has_the_place_and_what_settings_are() -> None:
    notes = describe_cost_model("load-spreading")
    assert (notes.package, notes.place) == ("", "flowsched.pricing.linear.policies.load_spreading:LoadSpreadingPolicy")
    assert {s.name: s.kind for s in notes.settings}["by_size"] == "bool"
    assert COST_MODELS.is_ours("coco") and not COST_MODELS.is_ours("rent")
    assert COST_MODELS.place("rent") == ""


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -1.0])
def test_numbers_that_are_none_have_one_wording(value: float) -> None:
    assert said("coco", bucket=value) == f"the policy 'coco': bucket is {value:g}; give a finite number from 0 up"
    assert said("coco", devil_pressure=value).endswith(f"is {value:g}; give a finite number above 0")


def test_nothing_is_loaded_before_it_is_asked_for() -> None:
    code = (
        "import sys\n"
        "from flowsched.pricing.linear.policies import COST_MODELS, make_cost_model\n"
        "list(COST_MODELS)\n"
        "make_cost_model('trivial')\n"
        "print([m for m in ('coco', 'flow', 'quincy') if f'flowsched.pricing.linear.policies.{m}' in sys.modules])\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_an_unknown_name_is_told_with_the_nearest_one_and_all_others() -> None:
    text = said("load-spread")
    assert text.startswith("there is no policy 'load-spread'; did you mean 'load-spreading'?")
    assert all(name in text for name in OURS)
    assert said("xyz").startswith("there is no policy 'xyz'; known: flow-network, ")


@pytest.mark.parametrize(
    ("name", "settings", "text"),
    [
        ("coco", {"buket": 1}, "the policy 'coco' has no setting 'buket'; did you mean 'bucket'? (known: penalties,"),
        ("coco", {"bucket": -1.0}, "the policy 'coco': bucket is -1; give a finite number from 0 up"),
        ("coco", {"penalties": 7}, "the policy 'coco': penalties is 7; give four rows of four, turtle, sheep,"),
        ("coco", {"penalties": [[1, 2], [3, 4]]}, "the policy 'coco': penalties is [[1, 2], [3, 4]]; give four rows"),
        (
            "coco",
            {"penalties": [[-1] * 4] * 4},
            "the policy 'coco': the penalty of a turtle beside a turtle is -1; give",
        ),
        ("coco", {"devil_pressure": 0}, "the policy 'coco': devil_pressure is 0; give a finite number above 0"),
        (
            "flow-network",
            {"growth": float("inf")},
            "the policy 'flow-network': growth is inf; give a finite number from 0 up",
        ),
        (
            "flow-network",
            {"waiting": float("nan")},
            "the policy 'flow-network': waiting is nan; give a number from 0 up",
        ),
        ("flow-network", {"waiting": "much"}, "the policy 'flow-network': waiting is 'much'; give a number from 0 up"),
        ("load-spreading", {"count": "pods"}, "the policy 'load-spreading': count is 'pods'; give tasks or cores"),
        ("load-spreading", {"by_size": "no"}, "the policy 'load-spreading': by_size is 'no'; give true or false"),
        ("quincy", {"preferred_share": 1.5}, "the policy 'quincy': preferred_share is 1.5; give a share from 0 to 1"),
        (
            "quincy",
            {"preferred_racks": 2.5},
            "the policy 'quincy': preferred_racks is 2.5; give a whole number from 0 up",
        ),
        ("quincy", {"within_rack": 9.0}, "the policy 'quincy': within_rack is 9 and across_racks 2; data from"),
        ("quincy", {"rack_label": ""}, "the policy 'quincy': rack_label is ''; give a text"),
        (
            "quincy",
            {"rack_label": "machine"},
            "the policy 'quincy': rack_label and machine_label are both 'machine'; a",
        ),
        (
            "shortest-job-first",
            {"shortest_s": 0.0},
            "the policy 'shortest-job-first': shortest_s is 0; give a finite number above",
        ),
        (
            "trivial",
            {"waiting": 1.0},
            "the policy 'trivial': waiting is 1 and place 1; waiting must cost more than a place",
        ),
    ],
)
def test_a_bad_setting_has_one_sentence(name: str, settings: dict[str, object], text: str) -> None:
    assert said(name, **settings).startswith(text)


def test_the_documented_settings_are_those_that_there_are() -> None:
    rows = re.findall(r"^\| `([\w-]+)` \| `(\w+)` \| (.+?) \| .+ \|$", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    told = [(policy, setting, default.strip("`")) for policy, setting, default in rows]
    known = [
        (name, s.name, "Firmament's" if s.name == "penalties" else str(s.default))
        for name in OURS
        for s in describe_cost_model(name).settings
    ]
    assert told == known


def test_every_setting_has_a_line_in_its_class() -> None:
    for name in OURS:
        factory = COST_MODELS[name]
        source = inspect.getsource(factory)  # type: ignore[arg-type]
        for field in dataclasses.fields(factory):  # type: ignore[arg-type]
            assert re.search(rf'\n    {field.name}: .*\n    """', source), (name, field.name)


# Policies of others


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str, str], None]:
    """Install a distribution with one module and the entry points that are given."""

    def install(code: str, points: str) -> None:
        (tmp_path / "vendor_policy.py").write_text(code, encoding="utf-8")
        about = tmp_path / "vendor-1.0.dist-info"
        about.mkdir()
        (about / "METADATA").write_text("Metadata-Version: 2.1\nName: vendor\nVersion: 1.0\n", encoding="utf-8")
        (about / "entry_points.txt").write_text(f"[flowsched.policies]\n{points}\n", encoding="utf-8")
        monkeypatch.syspath_prepend(str(tmp_path))
        monkeypatch.delitem(sys.modules, "vendor_policy", raising=False)
        monkeypatch.setattr(registry, "COST_MODELS", read_anew(COST_MODELS))

    return install


def example() -> str:
    """The policy that the documents show, without what they do with it."""
    block = re.search(
        r"```python\n(.*?)\n\nfrom flowsched.round.linear.cluster_rows", OWN.read_text(encoding="utf-8"), re.DOTALL
    )
    assert block is not None
    return block[1]


def test_the_documented_policy_of_an_outsider_is_found_made_and_described(
    installed: Callable[[str, str], None],
) -> None:
    installed(example(), "rent = vendor_policy:Rent")
    assert list(registry.COST_MODELS) == [*OURS, "rent"]
    assert len([line for line in example().splitlines() if line.strip()]) <= 25
    policy = make_cost_model("rent", crowd=0.5)
    assert policy.name == "rent" and policy.features[0].name == "neighbours"
    notes = describe_cost_model("rent")
    assert (notes.package, notes.summary) == ("vendor", "Cheap machines first, with few neighbours.")
    assert [(s.name, s.default) for s in notes.settings] == [("crowd", 0.1)]
    assert said("rent", crowds=1) == "the policy 'rent' has no setting 'crowds'; did you mean 'crowd'? (known: crowd)"


def test_a_function_may_make_a_policy_and_ask_for_a_setting(installed: Callable[[str, str], None]) -> None:
    installed(
        "from flowsched.pricing.linear.policies.trivial import TrivialPolicy\n"
        "def make(cost):\n    return TrivialPolicy(place=cost)\n",
        "dear = vendor_policy:make",
    )
    assert make_cost_model("dear", cost=3.0).name == "trivial"
    assert said("dear") == "the policy 'dear' needs the setting 'cost'; it has no default"


def test_our_names_cannot_be_taken_over(installed: Callable[[str, str], None]) -> None:
    installed("broken", "trivial = vendor_policy:Nothing")
    assert list(registry.COST_MODELS) == list(OURS)
    assert make_cost_model("trivial").name == "trivial"


NO_POLICY = "class Policy:\n    '''Nothing.'''\n    name = 'p'\n"
WHOLE = (
    NO_POLICY
    + "    features = {features}\n    def factors(self, kind): return ()\n"
    + "    def price(self, task_class, kinds): return None\n"
)


@pytest.mark.parametrize(
    ("code", "point", "text"),
    [
        (
            "raise RuntimeError('no licence')",
            "Policy",
            "of vendor cannot be loaded (RuntimeError: no licence); install it",
        ),
        ("", "Policy", "of vendor cannot be loaded (AttributeError: "),
        ("Policy = 3", "Policy", "of vendor is 3, which cannot be called; its entry point should name a class or a"),
        (NO_POLICY, "Policy", "makes a Policy without features and factors and price; a policy has name, features,"),
        (WHOLE.format(features="['a']"), "Policy", "has features ['a']; give a tuple of Feature, empty for none"),
        (
            "from flowsched.scale.policy import Feature\n" + WHOLE.format(features="(Feature('a'), Feature('a'))"),
            "Policy",
            "has the feature 'a' twice; features have names of their own",
        ),
        (
            "from flowsched.scale.policy import Feature\n" + WHOLE.format(features="(Feature('a', -1.0),)"),
            "Policy",
            "has a bucket of -1.0 for 'a'; give a width from 0 up; 0 is exact",
        ),
        ("def Policy():\n    raise OSError('disk')", "Policy", "cannot be made (OSError: disk); its settings are none"),
    ],
)
def test_a_broken_policy_has_one_sentence(
    installed: Callable[[str, str], None], code: str, point: str, text: str
) -> None:
    installed(code, f"other = vendor_policy:{point}")
    assert said("other").startswith(f"the policy 'other' {text}")
    assert make_cost_model("flow").name == "flow-network"
