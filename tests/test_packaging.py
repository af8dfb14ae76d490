"""The wheel: everything a user needs is inside, and works from there."""

from __future__ import annotations

import configparser
import os
import shutil
import subprocess
import sys
import zipfile
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import pytest

from requirements_on_machine import give_up

HOUSE = Path(__file__).parent.parent
FOLDERS = ("flowsched", "models", "simulator", "k8s")
FILES = ("pyproject.toml", "README.md", "LICENSE")
BUILD = "import sys; from setuptools.build_meta import build_wheel; build_wheel(sys.argv[1])"
READ_ALL = """
import flowsched, flowsched_models, flowsched_simulator
from flowsched_models.profiles import load_catalogue
from flowsched_simulator.node.report.page import render_node_report
from flowsched_simulator.node.scenario_file import load_node_scenario
from flowsched_simulator.report.page import render_report
from flowsched_simulator.scenario_file import bundled_scenarios, load_scenario
from flowsched_simulator.schedule_file import bundled_schedules, load_schedule

print(*(p.__file__ for p in (flowsched, flowsched_models, flowsched_simulator)), sep="\\n")
assert load_catalogue().jobs
assert [load_scenario(name) for name, _ in bundled_scenarios()]
assert [load_schedule(name) for name, _ in bundled_schedules()]
assert load_node_scenario("node-4core-dynamic").tasks
assert callable(render_node_report)
assert "<script>" in render_report({"scenario": "none"})
"""
DEFINED = """
import sys
from importlib import import_module
for target in sys.argv[1:]:
    module, attribute = target.split(":")
    assert callable(getattr(import_module(module), attribute)), target
"""


def run(*arguments: str, cwd: Path, path: Path | None = None) -> str:
    """Run Python; the first packages that it finds are those at ``path``."""
    environment = {**os.environ, "PYTHONPATH": str(path)} if path else None
    command = [sys.executable, *arguments]
    done = subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The one that ``FLOWSCHED_WHEEL`` names, or built without the network and outside the house, which stays as it is."""
    if named := os.environ.get("FLOWSCHED_WHEEL"):
        return Path(named)
    try:
        old = int(version("setuptools").split(".")[0]) < 77
    except PackageNotFoundError:
        old = True
    if old:
        give_up("setuptools 77 or newer is not installed; it is needed to build the wheel without the network")
    source, target = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("wheel")
    for folder in FOLDERS:
        shutil.copytree(HOUSE / folder, source / folder, ignore=shutil.ignore_patterns("__pycache__"))
    for name in FILES:
        shutil.copy(HOUSE / name, source)
    run("-c", BUILD, str(target), cwd=source)
    (built,) = target.glob("flowsched-*.whl")
    return built


@pytest.fixture(scope="module")
def unpacked(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel's files as they would stand in a user's site-packages."""
    folder = tmp_path_factory.mktemp("unpacked")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder)
    return folder


def test_the_wheel_holds_every_file_of_the_packages(unpacked: Path) -> None:
    for root in (
        HOUSE / "flowsched",
        HOUSE / "models" / "flowsched_models",
        HOUSE / "simulator" / "flowsched_simulator",
        HOUSE / "k8s" / "flowsched_agent",
        HOUSE / "k8s" / "flowsched_k8s",
    ):
        files = (p.relative_to(root.parent) for p in root.rglob("*") if p.is_file() and p.suffix != ".pyc")
        assert [str(p) for p in files if not (unpacked / p).is_file()] == []
    for needed in (
        "flowsched_models/data/profiles.yaml",
        "flowsched_simulator/report/report.html.j2",
        "flowsched_simulator/scenarios/parsec-memcached-2024.yaml",
        "flowsched_simulator/schedules/group-048.yaml",
        "flowsched_simulator/scenarios/node-4core-dynamic.yaml",
    ):
        assert (unpacked / needed).is_file()


def test_the_wheel_holds_nothing_else(unpacked: Path) -> None:
    tops = {p.name for p in unpacked.iterdir() if not p.name.endswith(".dist-info")}
    assert all(top.startswith("flowsched") for top in tops)
    assert [p for p in unpacked.rglob("*") if p.name.startswith("test_")] == []
    assert list(unpacked.glob("*.dist-info/licenses/LICENSE"))


def test_bundled_files_are_read_from_the_wheel(unpacked: Path, tmp_path: Path) -> None:
    places = run("-c", READ_ALL, cwd=tmp_path, path=unpacked).split("\n")[:3]
    assert all(Path(place).is_relative_to(unpacked) for place in places)


def test_every_entry_point_leads_somewhere(unpacked: Path, tmp_path: Path) -> None:
    (file,) = unpacked.glob("*.dist-info/entry_points.txt")
    entries = configparser.ConfigParser(delimiters=("=",))
    entries.read(file, encoding="utf-8")
    assert entries["console_scripts"]["flowsched"] == "flowsched.cli:main"
    assert {"solve", "simulate", "scenarios", "policies"} <= set(entries["flowsched.commands"])
    targets = [target for section in entries.sections() for target in entries[section].values()]
    run("-c", DEFINED, *targets, cwd=tmp_path, path=unpacked)
