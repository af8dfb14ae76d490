"""The command line as a new user meets it: what it needs, what it loads, and what it refuses."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from importlib.metadata import requires
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from flowsched.cli import SECTIONS, flowsched
from flowsched.round import scheduler
from flowsched.round.linear import preparation
from flowsched_models.extras import extra_with, install_extra

HOUSE = Path(__file__).parent.parent
RUN = """
import sys
sys.argv[0] = "flowsched"
for name in {missing!r}:
    sys.modules[name] = None
from flowsched.cli import main
try:
    main()
finally:
    loaded = [name for name in {watched!r} if sys.modules.get(name) is not None]
    print("loaded:", *loaded, file=sys.stderr)
"""
SLOW = ("numba", "ortools", "pandas", "scipy", "scipy.linalg", "networkx", "matplotlib")
"""Libraries that take long to import."""
OF_KUBERNETES = ("aiohttp", "kubernetes", "msgspec", "prometheus_client", "pycurl")


def run(*args: object, missing: tuple[str, ...] = ()) -> subprocess.CompletedProcess[str]:
    """One command in a process of its own; some modules cannot be imported."""
    code = RUN.format(missing=missing, watched=SLOW)
    command = [sys.executable, "-c", code, *map(str, args)]
    return subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)


# What a plain install lacks


@pytest.mark.parametrize("command", ["run", "snapshot"])
def test_without_the_extra_a_command_of_kubernetes_says_what_to_install(command: str) -> None:
    done = run(command, missing=OF_KUBERNETES)

    assert done.returncode == 2
    sentence, _ = done.stderr.splitlines()
    assert re.fullmatch(
        rf"flowsched {command}: needs \w+, which is not installed; {re.escape(install_extra('k8s'))}", sentence
    )
    assert done.stdout == ""


def test_a_module_that_no_extra_brings_is_a_fault_of_flowsched() -> None:
    done = run("scenarios", missing=("flowsched_simulator.scenario_file",))

    assert "Traceback" in done.stderr


def test_every_library_of_an_extra_is_known_by_its_module() -> None:
    extras = {"aiohttp": "k8s", "kubernetes": "k8s", "msgspec": "k8s", "prometheus_client": "k8s", "pycurl": "k8s"}
    extras |= {"matplotlib": "calibrate", "scipy.optimize": "calibrate", "hypothesis": None, "click": None}
    extras |= {"joblib": "sweep", "pandas": "sweep", "pyarrow.parquet": "sweep", "dask": "dask"}

    assert {module: extra_with(module) for module in extras} == extras
    named = {match[1] for line in requires("flowsched") or () if (match := re.search(r"extra\s*==\s*[\"'](\w+)", line))}
    assert named == {"calibrate", "dask", "dev", "docs", "k8s", "plots", "solvers", "sweep"}


def test_how_an_extra_is_installed_stands_in_one_place() -> None:
    """Nothing is published: a package called so in an index would be another one."""
    tracked = subprocess.run(["git", "ls-files"], cwd=HOUSE, capture_output=True, text=True, check=True).stdout.split(
        "\n"
    )
    texts = {name: HOUSE / name for name in tracked if name.endswith((".py", ".md", ".yaml", ".js", ".j2"))}
    named = {
        name for name, path in texts.items() if path.is_file() and "install 'flowsched[" in path.read_text("utf-8")
    }

    assert named - {"tests/test_first_contact.py"} == set()
    page = (HOUSE / "docs" / "install.md").read_text("utf-8")
    assert install_extra("k8s").rpartition(": ")[2] in page
    assert {f"| `{extra}` |" in page for extra in ("k8s", "calibrate", "plots", "solvers")} == {True}


# What a command loads


@pytest.mark.parametrize(
    "args", ["--help", "policies", "scenarios", "policies coco", "explain --help", "simulate --help"]
)
def test_a_command_that_computes_nothing_loads_no_slow_library(args: str) -> None:
    done = run(*args.split())

    assert done.returncode == 0, done.stderr
    assert done.stderr == "loaded:\n"


def test_the_watchdog_of_an_agent_loads_no_numpy() -> None:
    loaded = "import sys, flowsched_agent.watchdog; print('numpy' in sys.modules)"

    done = subprocess.run([sys.executable, "-c", loaded], capture_output=True, text=True, check=True)

    assert done.stdout == "False\n"


def test_explaining_a_record_loads_the_compiled_model_only(tmp_path: Path) -> None:
    """And solving reads profiles without the graph library of their topologies."""
    for example, task in (("snapshot.yaml", "ferret"), ("waiting.yaml", "report")):
        done = run("solve", HOUSE / "docs" / "examples" / example, "--record", tmp_path / "round.npz")

        assert done.returncode == 0, done.stderr
        assert "networkx" not in done.stderr.rpartition("loaded: ")[2].split()

        done = run("explain", tmp_path / "round.npz", task)

        assert task in done.stdout
        assert done.stderr == "loaded: numba scipy\n"


# What --help lists


@pytest.mark.parametrize("command", [[], ["agent"], ["workload"]])
def test_every_command_has_a_line_of_its_own_in_help(command: list[str]) -> None:
    lines = CliRunner().invoke(flowsched, [*command, "--help"], terminal_width=80).stdout.splitlines()

    assert max(map(len, lines)) <= 80 and not [line for line in lines[1:] if line.endswith("...")]
    group = flowsched if not command else flowsched.get_command(click.Context(flowsched), command[0])
    assert isinstance(group, click.Group)
    for name in group.list_commands(click.Context(group)):
        (at,) = (i for i, line in enumerate(lines) if line.startswith(f"  {name} "))
        assert not any(line.startswith("   ") for line in lines[at + 1 : at + 2]), "one line"


def test_every_command_is_in_one_section_and_those_of_other_packages_come_last(monkeypatch: pytest.MonkeyPatch) -> None:
    ours = flowsched.list_commands(click.Context(flowsched))
    assert sorted(name for section in SECTIONS.values() for name in section) == ours

    monkeypatch.setattr(type(flowsched), "list_commands", lambda self, ctx: ["run", "theirs"])
    monkeypatch.setattr(type(flowsched), "get_command", lambda self, ctx, name: click.Command(name, short_help=name))
    lines = CliRunner().invoke(flowsched, ["--help"]).stdout.splitlines()
    assert lines[lines.index("Kubernetes and machines:") :][:5] == [
        "Kubernetes and machines:",
        "  run     run",
        "",
        "Other packages:",
        "  theirs  theirs",
    ]


# What is refused


@pytest.mark.parametrize(("typed", "meant"), [("simualte", "simulate"), ("polices", "policies")])
def test_a_command_that_is_spelt_wrong_gets_a_suggestion(typed: str, meant: str) -> None:
    done = CliRunner().invoke(flowsched, [typed])

    assert done.exit_code == 2
    assert done.stderr.endswith(f"Error: No such command '{typed}'. Did you mean '{meant}'?\n")


def test_so_does_a_command_of_the_agent() -> None:
    done = CliRunner().invoke(flowsched, ["agent", "restroe"])

    assert done.exit_code == 2
    assert "Did you mean 'restore'?" in done.stderr


@pytest.mark.parametrize("args", ["simulate parsec-poisson", "plan parsec-poisson", "predict group-048"])
def test_an_option_of_one_value_is_given_once(args: str) -> None:
    done = CliRunner().invoke(flowsched, [*args.split(), "--seed", "1", "--seed", "2"])

    assert done.exit_code == 2
    assert done.stderr.endswith("Error: Option '--seed' is given 2 times; give it once.\n")


def test_options_of_many_values_and_flags_may_be_repeated() -> None:
    for args in (
        ["simulate", "nowhere", "--policy", "flow", "--policy", "fcfs"],
        ["policies", "unknown", "--json", "--json"],
    ):
        done = CliRunner().invoke(flowsched, args)
        assert "give it once" not in done.stderr + str(done.exception)


@pytest.mark.parametrize("command", ["solve x", "simulate parsec-poisson", "plan parsec-poisson"])
def test_a_time_limit_has_a_unit(command: str) -> None:
    done = CliRunner().invoke(flowsched, [*command.split(), "--time-limit", "5"])

    assert done.exit_code == 2
    assert "'5' has no unit; write 5s, 5ms or 5m" in done.stderr


# What is compiled once

COMPILES = """
import numpy as np
from flowsched_models.cell import water_fill
from flowsched_models.compiled import tell_of_compiling
tell_of_compiling(lambda: print("compiling"))
for _ in range(2):
    water_fill(1.0, np.zeros(2), np.ones(2), np.ones(2, np.bool_), np.zeros(2))
print("done")
"""


TELLS = 'tell_of_compiling(lambda: print("compiling"))\n'
COMPILES_IN_A_COMMAND = """
import sys
from flowsched.cli import flowsched, main
sys.argv = ["flowsched", "scenarios"]
flowsched.get_command(None, "scenarios").callback = lambda: exec({compiles!r}, {{}})
main()
"""


def test_compiling_is_told_once_and_only_where_nothing_is_kept(tmp_path: Path) -> None:
    pytest.importorskip("numba")
    environment = {**os.environ, "XDG_CACHE_HOME": str(tmp_path)}
    said = [
        subprocess.run(
            [sys.executable, "-c", COMPILES], env=environment, capture_output=True, text=True, check=True
        ).stdout
        for _ in range(2)
    ]

    assert said == ["compiling\ndone\n", "done\n"]


def test_a_first_command_says_that_it_compiles(tmp_path: Path) -> None:
    pytest.importorskip("numba")
    code = COMPILES_IN_A_COMMAND.format(compiles=COMPILES.replace(TELLS, ""))
    environment = {**os.environ, "XDG_CACHE_HOME": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)

    assert done.stdout == "done\n"
    assert re.fullmatch(r"compiling once, .*\(flowsched warm-up does it ahead\)\n", done.stderr)


def test_warm_up_compiles_rounds_of_all_kinds(monkeypatch: pytest.MonkeyPatch) -> None:
    called: list[str] = []
    monkeypatch.setattr(scheduler, "prepare", lambda: called.append("rounds"))
    monkeypatch.setattr(scheduler, "prepare_gpus", lambda: called.append("rounds with GPUs"))
    monkeypatch.setattr(preparation, "prepare", lambda: called.append("bulk rounds"))

    done = CliRunner().invoke(flowsched, ["warm-up"])

    assert (done.exit_code, sorted(called)) == (0, ["bulk rounds", "rounds", "rounds with GPUs"])
    makefile = (HOUSE / "Makefile").read_text("utf-8")
    assert "$(BIN)/flowsched warm-up" in makefile.partition("$(READY): $(INSTALLED)")[2]
