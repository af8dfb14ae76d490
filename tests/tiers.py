"""Tiers of tests, by what they need and how long they take: ``make quick`` runs ``unit`` only, ``make test`` all.

A test is ``emulated``, ``browser`` or ``live`` by its file or its fixtures. Of the others those are ``slow`` that took more
than ``SLOW_S`` when ``make durations`` kept the durations last; a new test is quick until then.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from xml.etree import ElementTree

import pytest

KEPT = Path(__file__).parent / "durations.txt"
LEAST_S = 0.2
"""Shorter ones are not kept: they say more about the machine than about the test."""
SLOW_S = 0.3
LIVE_FIXTURES = frozenset({"plane", "space", "namespace", "real", "shop", "started"})
"""Of a real control plane, a kubelet, or a scheduler that runs as a process."""
LIVE_FILES = ("test_live_", "test_soak", "test_control_plane", "test_node_parts", "test_image_steps")
TIERS = ("unit", "slow", "live", "browser", "emulated")


def tier_of(item: pytest.Item, durations: Mapping[str, float]) -> str:
    """The tier of a test."""
    name = item.path.name
    if name == "test_cgroup_v2_machine.py":
        return "emulated"
    if name.endswith("_browser.py"):
        return "browser"
    if name.startswith(LIVE_FILES) or LIVE_FIXTURES.intersection(getattr(item, "fixturenames", ())):
        return "live"
    return "slow" if durations.get(key_of(item.nodeid), 0.0) > SLOW_S else "unit"


def key_of(nodeid: str) -> str:
    """``file::test``, without what it is parametrised by: its cases share a tier."""
    return nodeid.partition("[")[0]


def kept_durations() -> dict[str, float]:
    """Seconds of the longest case of each test, of those that are kept."""
    rows = (line.split(maxsplit=1) for line in KEPT.read_text(encoding="utf-8").splitlines())
    return {nodeid: float(seconds) for seconds, nodeid in rows}


def mark(items: Sequence[pytest.Item]) -> None:
    """Give every test its tier."""
    durations = kept_durations()
    tiers = [tier_of(item, durations) for item in items]
    # The first test that asks for what a file makes once may be slow for that alone, and then the next one would be.
    shared = {made for item, tier in zip(items, tiers, strict=True) if tier == "slow" for made in _made_once(item)}
    for item, tier in zip(items, tiers, strict=True):
        item.add_marker("slow" if tier == "unit" and not shared.isdisjoint(_made_once(item)) else tier)


def longest_first(items: Sequence[pytest.Item]) -> list[pytest.Item]:
    """File by file, those first that took longest together: what begins last shall be short, or the others wait for it."""
    taken_s: defaultdict[Path, float] = defaultdict(float)
    durations = kept_durations()
    # In one order, so that sums are the same to the last digit in each process.
    for path, key in dict.fromkeys((item.path, key_of(item.nodeid)) for item in items):
        taken_s[path] += durations.get(key, 0.0)
    return sorted(items, key=lambda item: (-taken_s[item.path], item.path))


def _made_once(item: pytest.Item) -> set[tuple[Path, str]]:
    """Fixtures that a test shares with others of its file."""
    known = getattr(item, "_fixtureinfo", None)
    named = {} if known is None else known.name2fixturedefs
    return {(item.path, name) for name, made in named.items() if made[-1].scope == "module"}


def keep(report: Path) -> None:
    """Keep the durations of a run from its JUnit report; those of tests that it left out stay."""
    longest: dict[str, float] = {}
    for case in ElementTree.parse(report).iter("testcase"):
        *folders, last = case.get("classname", "").split(".")
        where = [*folders[:-1], f"{folders[-1]}.py::{last}"] if last[:1].isupper() else [*folders, f"{last}.py"]
        key = key_of(f"{'/'.join(where)}::{case.get('name', '')}")
        longest[key] = max(longest.get(key, 0.0), float(case.get("time", 0.0)))
    rows = sorted((kept_durations() | longest).items(), key=lambda pair: (-pair[1], pair[0]))
    KEPT.write_text("".join(f"{s:.1f} {key}\n" for key, s in rows if s >= LEAST_S), encoding="utf-8")
    total, shown = sum(s for _, s in rows), rows[:30]
    print(
        f"the slowest {len(shown)} of {len(rows)} tests take {100 * sum(s for _, s in shown) / total:.0f} % of the time"
    )
    for key, s in shown:
        print(f"{s:8.1f} s  {key}")


if __name__ == "__main__":
    keep(Path(sys.argv[1]))
