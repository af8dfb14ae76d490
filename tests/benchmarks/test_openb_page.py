"""The page of shared GPUs says what the kept results say, and these keep what was promised."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parent.parent.parent))  # benchmarks are no part of what is installed

from benchmarks.openb import POLICIES
from benchmarks.openb_page import LISTS, PAGE, draw, kept, render


def test_the_page_is_what_its_command_makes_of_the_kept_results() -> None:
    assert PAGE.read_text(encoding="utf-8") == render()


@pytest.mark.parametrize("name", LISTS)
def test_kept_results_are_of_all_policies_over_ten_orders(name: str) -> None:
    outcome = kept(name)
    assert (outcome["list"], outcome["seeds"]) == (name, list(range(42, 52)))
    assert list(outcome["policies"]) == list(POLICIES)


@pytest.mark.parametrize(
    ("name", "policy", "at_95", "at_100"),
    [
        ("default", "gpu-value", 94.9, 95.9),
        ("default", "gpu-value-online", 94.9, 95.4),
        ("gpuspec33", "gpu-value", 84.35 + 0.2, 87.84 + 0.2),
        ("gpuspec33", "gpu-value-online", 84.35 + 0.2, 87.84 + 0.2),
        ("multigpu50", "gpu-value", 94.5, 97.09 + 0.2),
        ("multigpu50", "gpu-value-online", 94.5, 97.09 + 0.2),
    ],
)
def test_our_rule_allocates_what_it_has_to(name: str, policy: str, at_95: float, at_100: float) -> None:
    outcome = kept(name)
    figures = outcome["policies"][policy]
    assert figures["allocation"]["95"]["mean"] >= at_95
    assert figures["allocation"]["100"]["mean"] >= at_100
    assert figures["us_per_placement"] <= 50.0
    assert figures["s_per_set_of_prices"] <= 10.0
    assert all(spread["mean"] <= outcome["bound"][percent] + 0.005 for percent, spread in figures["allocation"].items())


@pytest.mark.parametrize("name", LISTS)
def test_our_rule_does_not_care_how_machines_are_listed(name: str) -> None:
    rows = kept(f"{name}-orders")["policies"]
    ours = [rows[row]["allocation"] for row in rows if row.startswith("gpu-value, ties hash")]
    assert len(ours) == 5
    assert all(row == ours[0] for row in ours)


def test_pictures_are_drawn(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    draw(tmp_path / "images" / "a.png", kept("default"))
    first = (tmp_path / "images" / "a.png").read_bytes()
    draw(tmp_path / "images" / "a.png", kept("default"))
    assert first[:4] == b"\x89PNG"
    assert (tmp_path / "images" / "a.png").read_bytes() == first
