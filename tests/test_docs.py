"""What the documents say is what the code does: examples, commands, links and tables are tried here."""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner

from builders import running, snapshot, task
from engine.bulk_world import Kind, offered
from flowsched import Settings, load_snapshot, solve
from flowsched.cli import flowsched
from flowsched.cluster.booked_tasks import BookedTasks
from flowsched.cluster.snapshot_file import RunningForm, SnapshotForm
from flowsched.node.settings import NodeSettings
from flowsched.pricing.gpu_prices import GpuPrices
from flowsched.pricing.topology_prices import TopologyPrices
from flowsched.records.record_file import record_json
from flowsched.relations.relation import Relation, RelationKind, TaskGroup
from flowsched.round.linear.bulk_round import decide
from flowsched.solvers import make_solver
from flowsched_models import profiles
from flowsched_models.document import InputError
from flowsched_models.form import Form
from flowsched_simulator import load_scenario, load_schedule, replay, scenario_form, schedule_file, simulate
from flowsched_simulator.comparison import result
from flowsched_simulator.experiment import experiment_form, load_experiment
from flowsched_simulator.isolation import scenario_form as isolation_form
from flowsched_simulator.isolation.comparison import run as isolated
from flowsched_simulator.isolation.policies import POLICIES as ISOLATIONS
from flowsched_simulator.isolation.scenario_file import load_isolation_scenario
from flowsched_simulator.node import scenario_form as node_form
from flowsched_simulator.node.comparison import compare_on_node, node_result
from flowsched_simulator.node.policies import NODE_POLICIES
from flowsched_simulator.node.scenario_file import load_node_scenario
from flowsched_simulator.node.simulation import NodeOptions
from flowsched_simulator.scenario_file import BUNDLED, bundled
from requirements_on_machine import needs

HOUSE = Path(__file__).parent.parent
DOCS = sorted((HOUSE / "docs").glob("*.md"))
TUTORIALS = sorted((HOUSE / "docs" / "tutorials").glob("*.md"))
PAGES = [*DOCS, *TUTORIALS, *(HOUSE / name for name in ("README.md", "CONTRIBUTING.md", "ARCHITECTURE.md"))]
PLAN = "group-048"
LAB = Path("lab.yaml")
SHOP = Path("shop.yaml")
LOOP = Path("control-loop.yaml")
KINDS = {"Scenario", "Profiles", "Schedule", "Snapshot", "NodeScenario", "IsolationScenario", "Experiment"}


def text_of(page: Path) -> str:
    return page.read_text(encoding="utf-8")


def blocks(text: str) -> Iterator[tuple[str, str, str]]:
    """Of every fenced block: the line before it that says something, its language, its content."""
    before, language, content = "", None, list[str]()
    for line in text.splitlines():
        if language is None and (opening := re.fullmatch(r"```(\w*)", line)):
            language, content = opening[1], []
        elif language is not None and line == "```":
            yield before, language, "".join(f"{c}\n" for c in content)
            before, language = f"```{language}", None
        elif language is not None:
            content.append(line)
        elif line.strip():
            before = line
    assert language is None, "a block is not closed"


def examples(page: Path) -> list[tuple[str, str]]:
    """Python blocks with the text block that follows at once, which is what they print."""
    found: list[tuple[str, str]] = []
    for before, language, content in blocks(text_of(page)):
        if language == "python":
            found.append((content, ""))
        elif language == "text" and before == "```python":
            found[-1] = (found[-1][0], content)
    return found


PYTHON = [(p.name, k) for p in DOCS for k in range(len(examples(p)))]


@pytest.mark.parametrize(("page", "number"), PYTHON, ids=[f"{page}-{k + 1}" for page, k in PYTHON])
def test_python_examples_print_what_they_say(page: str, number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    code, printed = examples(HOUSE / "docs" / page)[number]
    monkeypatch.chdir(HOUSE)
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        exec(compile(code, f"{page}, example {number + 1}", "exec"), {"__name__": "__main__"})
    assert out.getvalue() == printed


@pytest.mark.parametrize("page", ["python.md", "records.md"])
def test_these_pages_have_examples_with_output(page: str) -> None:
    assert any(printed for _, printed in examples(HOUSE / "docs" / page))


def text_about_files() -> str:
    """What the reference says of files, as one text."""
    names = ("scenarios.md", "profile-files.md", "files.md", "simulate-json.md")
    return "".join(text_of(HOUSE / "docs" / name) for name in names)


def files_of(text: str) -> dict[str, tuple[str, str]]:
    """Name to language and content of blocks under a line that names a file and ends with a colon."""
    found = {}
    for before, language, content in blocks(text):
        if named := re.fullmatch(r"`([\w.-]+\.\w+)`.*:", before):
            found[named[1]] = language, content
    return found


@pytest.fixture
def example_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """The files that the reference shows, in the present folder; names to kinds."""
    kinds = {}
    for name, (language, content) in files_of(text_about_files()).items():
        (tmp_path / name).write_text(content, encoding="utf-8")
        if language == "yaml":
            kinds[name] = re.search(r"^kind: (\w+)$", content, re.MULTILINE)[1]  # type: ignore[index]
    monkeypatch.chdir(tmp_path)
    return kinds


def test_every_yaml_example_is_a_file_that_loads(example_files: dict[str, str]) -> None:
    shown = [content for _, language, content in blocks(text_about_files()) if language == "yaml"]
    assert len(shown) == len(example_files)
    assert set(example_files.values()) == KINDS
    for name, kind in example_files.items():
        if name == "faulty.yaml":
            continue
        if kind == "Scenario":
            assert load_scenario(Path(name)).tasks
        elif kind == "Profiles":
            profiles.load_catalogue(extra=[Path(name)])
        elif kind == "Schedule":
            assert replay(load_scenario(LAB), load_schedule(Path(name), lambda _: load_scenario(LAB))).makespan_s > 0.0
        elif kind == "NodeScenario":
            assert all(load.wave and load.span for load in load_node_scenario(Path(name)).loads)
        elif kind == "Experiment":
            assert len(load_experiment(Path(name)).plan.cases) > 1
        elif kind == "IsolationScenario":
            assert load_isolation_scenario(Path(name)).tasks
        else:
            snapshot = load_snapshot(name)
            assert len(solve(snapshot).reservations) == len(snapshot.reservations)


def test_the_faulty_file_has_the_mistakes_that_are_shown(example_files: dict[str, str]) -> None:
    consoles = [content for _, language, content in blocks(text_about_files()) if language == "console"]
    command, shown = consoles[0].split("\n", 1)
    assert command == "$ flowsched simulate faulty.yaml"
    with pytest.raises(InputError) as error:
        load_scenario("faulty.yaml")
    assert f"{error.value}\n" == shown


def commands_of(text: str) -> Iterator[list[str]]:
    """The arguments of every ``flowsched`` command in shell blocks."""
    for _, language, content in blocks(text):
        if language not in ("sh", "console", "bash"):
            continue
        for line in content.replace("\\\n", " ").splitlines():
            stripped = line.removeprefix("$ ")
            if not re.match(r"(\S*/)?flowsched( |$)", stripped) or (language == "console" and stripped == line):
                continue
            words = shlex.split(stripped, comments=True)
            end = next((i for i, word in enumerate(words) if word in ("|", ">", "2>", "&&", ";")), len(words))
            yield words[1:end]


COMMANDS = [(p.name, args) for p in PAGES for args in commands_of(text_of(p))]


def command_of(words: list[str]) -> tuple[click.Command | None, list[str]]:
    """The command that words begin with, of a group the one inside it, and what follows."""
    named = re.fullmatch(r"[a-z-]+", words[0])
    command = flowsched.get_command(click.Context(flowsched), words[0]) if named else None
    rest = words[1:]
    while isinstance(command, click.Group) and rest and re.fullmatch(r"[a-z-]+", rest[0]) and rest[0][0] != "-":
        command, rest = command.get_command(click.Context(command), rest[0]), rest[1:]
    return command, rest


@pytest.mark.parametrize(("page", "args"), COMMANDS, ids=[f"{page}: {' '.join(args)}" for page, args in COMMANDS])
def test_commands_have_the_options_that_they_are_shown_with(page: str, args: list[str]) -> None:
    if not args or args[0].startswith("-"):
        assert CliRunner().invoke(flowsched, args).exit_code in (0, 2)
        return
    command, rest = command_of(args)
    assert command is not None, f"{page} has the command {' '.join(args)}, which there is not"
    with contextlib.suppress(click.exceptions.Exit):  # --help
        command.make_context(args[0], rest)


def inline(text: str) -> list[str]:
    """What stands between backticks in prose and tables."""
    return re.findall(r"`([^`\n]+)`", re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL))


def options_of(command: click.Command) -> set[str]:
    return {name for param in command.params for name in (*param.opts, *param.secondary_opts)} | {"--help"}


@pytest.mark.parametrize("page", PAGES, ids=[p.name for p in PAGES])
def test_commands_and_options_in_sentences_are_there(page: Path) -> None:
    lost = []
    for words in (shown.split() for shown in inline(text_of(page)) if shown.startswith("flowsched ")):
        command, rest = command_of(words[1:])
        if command is None:
            lost.append(" ".join(words))
        else:
            lost += [f"{words[1]} {w}" for w in rest if w.startswith("--") and w not in options_of(command)]
    assert lost == []


NAMED_FILE = re.compile(
    r"(?<![\w/.-])((?:docs|tests|benchmarks|models|simulator|k8s|flowsched)/[\w./-]+\.(?:yaml|md|py|csv|txt|json))\b"
)


def every_command(command: click.Command, path: tuple[str, ...] = ()) -> Iterator[tuple[str, click.Command]]:
    """All commands with the words that call them."""
    yield " ".join(path), command
    if isinstance(command, click.Group):
        for name in command.list_commands(click.Context(command)):
            found = command.get_command(click.Context(command), name)
            assert found is not None
            yield from every_command(found, (*path, name))


def test_files_that_help_names_are_there() -> None:
    seen = 0
    for name, command in every_command(flowsched):
        texts = [command.help, command.epilog, *(getattr(option, "help", "") for option in command.params)]
        for file in NAMED_FILE.findall(" ".join(text for text in texts if text)):
            seen += 1
            assert (HOUSE / file).is_file(), f"flowsched {name} --help names {file}"
    assert seen >= 2


@pytest.mark.parametrize(
    "page", sorted(p.relative_to(HOUSE) for p in (*HOUSE.glob("*.md"), *HOUSE.glob("docs/**/*.md"))), ids=str
)
def test_files_that_pages_name_are_there(page: Path) -> None:
    text = (HOUSE / page).read_text(encoding="utf-8")
    # Names in capitals stand for those of a reader's own.
    named = [file for file in NAMED_FILE.findall(text) if not re.search(r"[A-Z]{4}|chapterN", file)]
    assert [file for file in named if not (HOUSE / file).is_file()] == []


def test_every_option_of_plan_is_listed() -> None:
    plan = flowsched.get_command(click.Context(flowsched), "plan")
    assert plan is not None
    table = [row for row in text_of(HOUSE / "docs" / "planning.md").splitlines() if row.startswith("| `-")]
    listed = {option for row in table for option in re.findall(r"`(--[a-z][a-z-]*)", row)}
    assert listed == {o for o in options_of(plan) if o.startswith("--")} - {"--help"}


@pytest.mark.parametrize("page", ["measuring.md", "predictions.md", "planning.md", "experiments.md"])
def test_options_named_in_tables_and_sentences_belong_to_some_command(page: str) -> None:
    commands = [flowsched.get_command(click.Context(flowsched), name) for name in flowsched.list_commands(None)]
    known = {option for command in commands if command is not None for option in options_of(command)}
    # stress-ng's own options stand in the table of aggressors.
    text = re.sub(r"^\| `\w+` \| (same|other) \|.*$", "", text_of(HOUSE / "docs" / page), flags=re.MULTILINE)
    # After "-- " stands the program that is measured.
    named = {w for shown in inline(text) for w in f" {shown}".split(" -- ")[0].split() if re.match(r"--\w", w)}
    assert named - known == set()


def test_modules_and_targets_that_are_named_are_there() -> None:
    targets = set(re.findall(r"^([a-z-]+):", text_of(HOUSE / "Makefile"), re.MULTILINE))
    lost = []
    for page in PAGES:
        text = text_of(page)
        for module in re.findall(r"python -m (benchmarks\.\w+)", text):
            lost += [module] if not (HOUSE / f"{module.replace('.', '/')}.py").is_file() else []
        for target in re.findall(r"(?:`|^)make ([a-z-]+)", text, re.MULTILINE):
            lost += [target] if target not in targets else []
    assert lost == []


def test_every_page_is_on_one_shelf() -> None:
    """The readme leads to the index, and that to every page."""
    assert "(docs/index.md)" in text_of(HOUSE / "README.md")
    shelves = re.findall(r"```{toctree}\n(.*?)```", text_of(HOUSE / "docs" / "index.md"), re.DOTALL)
    entries = [line for shelf in shelves for line in shelf.splitlines() if line and not line.startswith(":")]
    pages = [p.relative_to(HOUSE / "docs").with_suffix("").as_posix() for p in (HOUSE / "docs").rglob("*.md")]
    assert len(shelves) == 4 and sorted(entries) == sorted(page for page in pages if page != "index")


def test_the_readme_is_short() -> None:
    assert len(text_of(HOUSE / "README.md").splitlines()) <= 120


def test_the_site_builds_and_no_link_leads_nowhere(tmp_path: Path) -> None:
    sphinx = [sys.executable, "-m", "sphinx", "-q", "-W", "--keep-going", "-b", "html"]
    done = subprocess.run([*sphinx, str(HOUSE / "docs"), str(tmp_path)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "--policy" in (tmp_path / "reference" / "commands.html").read_text(encoding="utf-8")
    assert "load_snapshot" in (tmp_path / "reference" / "python.html").read_text(encoding="utf-8")
    for name, words in (("kubernetes-reference", "scheduler_pending_pods"), ("agent-reference", "statsTimeout")):
        page = (tmp_path / f"{name}.html").read_text(encoding="utf-8")
        assert f">{words}<" in page and "<!-- table" not in page


NOT_RUN = "<!-- not run by the tests: "
QUICK_START = "<!-- quick start -->"
"""Of blocks that tests/k8s/test_live_quickstart.py types against a real control plane."""


@pytest.mark.parametrize("page", TUTORIALS, ids=[p.stem for p in TUTORIALS])
def test_a_tutorial_works_as_it_is_typed(page: Path, tmp_path: Path) -> None:
    """Its files, then its commands in their order, in one shell in an empty folder; what needs more than that says what."""
    for name, (_, content) in files_of(text_of(page)).items():
        (tmp_path / name).write_text(content, encoding="utf-8")
    shell = [(before, content) for before, language, content in blocks(text_of(page)) if language == "sh"]
    typed = [content for before, content in shell if not before.startswith((NOT_RUN, QUICK_START))]
    if not typed:
        why = [before.removeprefix(NOT_RUN).removesuffix(" -->") for before, _ in shell if before.startswith(NOT_RUN)]
        pytest.skip(f"{page.name}: {'; '.join(why)}")
    for name in ", ".join(re.findall(r"<!-- needs (.*?) -->", text_of(page))).split(", "):
        if name:
            needs(name, f"for the tutorial {page.name}")
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    # What was started in the background ends with the shell, also where a command fails.
    done = subprocess.run(
        ["bash", "-euxc", "\n".join(["trap 'kill $(jobs -p) || true' EXIT", *typed])],
        cwd=tmp_path,
        env={**os.environ, "PATH": path},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"


def test_the_readme_opens_with_two_commands() -> None:
    _, language, content = next(blocks(text_of(HOUSE / "README.md")))
    assert language == "sh" and [line.split("#")[0].split() for line in content.splitlines()] == [
        ["make", "demo"],
        ["make", "test"],
    ]


def test_exit_codes_are_listed() -> None:
    codes = {code for code, _ in rows(text_about_files(), "| Code | Meaning |")}
    told = flowsched.get_help(click.Context(flowsched))
    assert set(re.findall(r"\b(\d+) (?:done|a fault|bad|a replay|interrupted)", " ".join(told.split()))) == codes


def consoles_of(page: Path) -> Iterator[tuple[str, str]]:
    """Every command in console blocks, with what is shown below it."""
    for _, language, content in blocks(text_of(page)):
        if language == "console":
            for shown in re.split(r"^\$ ", content, flags=re.MULTILINE)[1:]:
                command, _, output = shown.partition("\n")
                yield command, output


def test_the_inspector_prints_what_its_page_shows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The commands in their order, in a folder with the examples; milliseconds may differ."""
    for example in (HOUSE / "docs" / "examples").iterdir():
        (tmp_path / example.name).write_bytes(example.read_bytes())
    monkeypatch.chdir(tmp_path)
    seen = 0
    for command, shown in consoles_of(HOUSE / "docs" / "inspector.md"):
        name, *args = shlex.split(command)
        assert name == "flowsched"
        done = CliRunner().invoke(flowsched, args)
        assert done.exit_code == 0, (command, done.output)
        assert re.sub(r"[\d.]+ ms", "N ms", done.stdout) == re.sub(r"[\d.]+ ms", "N ms", shown), command
        seen += 1
    assert seen >= 5


def test_there_are_commands() -> None:
    assert {args[0] for _, args in COMMANDS if args} >= {"simulate", "solve"}


def anchors(page: Path) -> set[str]:
    """Anchors of a page's headings, as GitHub makes them."""
    heads = re.findall(r"^#+ (.+)$", re.sub(r"^```.*?^```$", "", text_of(page), flags=re.M | re.S), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", head.lower()).replace(" ", "-") for head in heads}


@pytest.mark.parametrize("page", PAGES, ids=[p.name for p in PAGES])
def test_links_inside_the_house_lead_somewhere(page: Path) -> None:
    prose = re.sub(r"^```.*?^```$", "", text_of(page), flags=re.MULTILINE | re.DOTALL)
    lost = []
    for target in re.findall(r"\]\(([^)\s]+)\)", prose):
        if re.match(r"[a-z]+:", target):
            continue
        path, _, anchor = target.partition("#")
        there = (page.parent / path).resolve() if path else page
        if not there.exists() or (anchor and there.suffix == ".md" and anchor not in anchors(there)):
            lost.append(target)
    assert lost == []


def rows(text: str, head: str) -> list[list[str]]:
    """The cells of the table under a heading line."""
    found = text[text.index(head) :].splitlines()[2:]
    end = next((i for i, line in enumerate(found) if not line.startswith("|")), len(found))
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in found[:end]]


@pytest.mark.parametrize(("page", "settings"), [("settings.md", Settings), ("node-settings.md", NodeSettings)])
def test_every_setting_is_listed_with_its_default(page: str, settings: type[Any]) -> None:
    table = rows(text_of(HOUSE / "docs" / page), "| Setting | Default | Meaning |")
    assert [(name, default) for name, default, _ in table] == [
        (f"`{f.name}`", f"`{f.default}`") for f in fields(settings)
    ]


def test_every_policy_of_one_machine_is_listed() -> None:
    table = rows(text_of(HOUSE / "docs" / "node.md"), "| Policy | Design |")
    assert [name for name, _ in table] == [f"`{name}`" for name in NODE_POLICIES]


def test_every_bundled_scenario_and_way_of_isolating_is_named() -> None:
    named = {name for page in PAGES for name in inline(text_of(page))}
    assert {name for name, _ in bundled(BUNDLED)} - named == set()
    assert set(ISOLATIONS) - set(inline(text_of(HOUSE / "docs" / "isolation.md"))) == set()


def test_the_published_plan_takes_as_long_as_the_table_says() -> None:
    run = replay(load_scenario("parsec-memcached-2024"), load_schedule(PLAN))
    simulated = {j.job: (j.end_s or 0.0) - (j.start_s or 0.0) for j in run.jobs} | {"total": run.makespan_s}
    table = rows(text_of(HOUSE / "docs" / "model.md"), "| Job | Measured s | Simulated s | Difference % |")
    assert {job for job, *_ in table} == set(simulated)
    for job, measured, shown, difference in table:
        assert shown == f"{simulated[job]:.2f}", job
        assert difference == f"{100 * (simulated[job] / float(measured) - 1):+.1f}", job


def keys_of(text: str, head: str, after: str = "") -> set[str]:
    """The keys in the first column of a table, without what stands inside others."""
    table = rows(text[text.index(after) :], head)
    return {key.split(".")[0] for first, *_ in table for key in re.findall(r"`([^`]+)`", first)}


def plain_default(cell: str) -> str:
    """A default as it stands in a table: the number or word it begins with."""
    return re.split(r"[:\s]", cell.strip("`"))[0].strip("`")


@pytest.mark.parametrize(
    ("after", "form"),
    [
        ("\nA job profile:", profiles.JobForm),
        ("\nA service profile:", profiles.ServiceForm),
        ("\nA machine type:", profiles.MachineTypeForm),
    ],
    ids=["job", "service", "machine type"],
)
def test_defaults_of_profiles_are_those_that_are_shown(after: str, form: type[Form]) -> None:
    text = text_about_files()
    for key, default, _ in rows(text[text.index(after) :], "| Key | Default | Meaning |"):
        field = form.model_fields[key.strip("`")]
        if field.is_required() or key == "`source`":
            assert default == "required", key
        elif isinstance(field.default, bool):
            assert plain_default(default) == str(field.default).lower(), key
        elif isinstance(field.default, int | float):
            assert float(plain_default(default)) == field.default, key
        else:
            assert default == "empty", key


FORMS: list[tuple[str, type[Form]]] = [
    ("## Scenario", scenario_form.ScenarioForm),
    ("\nA machine:", scenario_form.MachineEntryForm),
    ("\nA service:", scenario_form.ServiceForm),
    ("\nA job:", scenario_form.JobForm),
    ("\n`poisson`:", scenario_form.PoissonForm),
    ("\n`diurnal`,", scenario_form.DiurnalForm),
    ("\n`bursty`,", scenario_form.BurstyForm),
    ("# Profile files", profiles.ProfilesForm),
    ("\nA job profile:", profiles.JobForm),
    ("\nA service profile:", profiles.ServiceForm),
    ("\nA curve:", profiles.CurveForm),
    ("\nA machine type:", profiles.MachineTypeForm),
    ("\n## GPUs in profiles", profiles.GpuProfileForm),
    ("\nA topology says", profiles.GpuTopologyForm),
    ("## Schedule", schedule_file.ScheduleForm),
    ("\nA task:", schedule_file.ScheduledTask),
    ("## Snapshot", SnapshotForm),
    ("\nA running task:", RunningForm),
    ("## Node scenario", node_form.NodeScenarioForm),
    ("\nThe machine, `machine`:", node_form.NodeMachineForm),
    ("\nA service on one machine:", node_form.NodeServiceForm),
    ("\nIts load, `load`:", node_form.LoadForm),
    ("\nA job on one machine:", node_form.NodeJobForm),
    ("\nCPU time that is owed, `deadline`:", node_form.DeadlineForm),
    ("\nWhat a design fixes, `policies`", node_form.PolicyForm),
    ("## Isolation scenario", isolation_form.IsolationForm),
    ("\nA periodic task:", isolation_form.TaskForm),
    ("\nHow a task spends its time, `loop`:", isolation_form.LoopForm),
    ("\nThe fair class, `fair`:", isolation_form.FairForm),
    ("\nThe reservations, `deadline`:", isolation_form.ReservationForm),
    ("## Experiment", experiment_form.ExperimentForm),
    ("\nA scenario of an experiment.", experiment_form.CaseForm),
    ("\nA policy of an experiment:", experiment_form.ContenderForm),
]
HEADER = {"apiVersion", "kind"}
ON_ONE_MACHINE = [form for _, form in FORMS if form.__module__ in (node_form.__name__, isolation_form.__name__)]


@pytest.mark.parametrize(("after", "form"), FORMS, ids=[after.strip(" #\n:") for after, _ in FORMS])
def test_every_key_of_a_file_is_listed(after: str, form: type[Form]) -> None:
    listed = keys_of(text_about_files(), "| Key | Default | Meaning |", after)
    assert listed - HEADER == {f.alias or name for name, f in form.model_fields.items()} - HEADER


def test_every_key_of_a_record_is_listed() -> None:
    text = text_of(HOUSE / "docs" / "records.md")
    record = solve(load_snapshot(HOUSE / "docs" / "examples" / "snapshot.yaml")).record
    assert record is not None
    (part,) = record["parts"]
    assert keys_of(text, "| Key | Value |") == set(record) | {"cost_model"}  # of another than flow
    levels, forecast = "| Key of a level | Value |", "| Key at forecast prices | Value |"
    assert keys_of(text, levels) | keys_of(text, forecast) == set(part)
    assert keys_of(text, "| Key of a network | Value |") == set(part["first_network"])
    assert keys_of(text, "| Key of the certificate | Value |") == set(part["certificate"])
    postponed = solve(load_snapshot(HOUSE / "docs" / "examples" / "waiting.yaml"), settings=Settings(slots=1))
    terms = set(part["placements"]["terms"]) | {t for p in postponed.postponements for t in p.terms}
    terms |= set(part["first_network"]["terms"])
    plain = load_snapshot(HOUSE / "docs" / "examples" / "snapshot.yaml")
    wishes = tuple((m.name, 0.5) for m in plain.machines)
    choosy = tuple(replace(t, wishes=wishes, counted=((1, 0.001),)) for t in plain.pending for _ in range(2))
    choosy = tuple(replace(t, name=f"{t.name}-{k}") for k, t in enumerate(choosy))  # two of one count share a machine
    terms |= {t for p in solve(replace(plain, pending=choosy)).placements for t in p.terms}
    assert keys_of(text, "| Term | Meaning |") == terms | {GpuPrices.term, TopologyPrices.term}
    told = {
        key.strip("`"): set(re.findall(r"`(\w+)`", cell)) for key, cell in (*rows(text, levels), *rows(text, forecast))
    }
    quoted = set(re.findall(r"`(\w+)`", text[: text.index("## Levels at linear prices")]))
    assert {*part["timings"], *part["counts"]} <= quoted
    for key in ("passes", "decided_by", "plan"):
        assert {name for entry in part[key] for name in entry} <= told[key], key
    for key in ("placements", "waiting"):
        assert set(part[key]) <= told[key], key


def linear_keys(text: str) -> dict[str, set[str]]:
    """By key of a level at linear prices all that is quoted about it."""
    told: dict[str, set[str]] = {}
    for head in ("| Key of a level | Value |", "| Key at linear prices | Value |"):
        for keys, cell in rows(text, head):
            for key in re.findall(r"`(\w+)`", keys):
                told.setdefault(key, set()).update(re.findall(r"`(\w+)`", cell))
    return told


def test_every_key_of_a_bulk_round_is_listed() -> None:
    text = text_of(HOUSE / "docs" / "records.md")
    fleet = BookedTasks()
    fleet.machines.relation_store.declare(Relation("apart", RelationKind.APART))
    fleet.put_machine("m", {"cpu": 1000}, {})
    kind = Kind("c", 2, {"cpu": 1000}, holds=("apart",), joins=("apart",))
    outcome = decide(offered(fleet, [kind], [TaskGroup("g", 2)]), solver=make_solver("ortools"), keep_record=True)
    assert outcome.record is not None
    (part,) = outcome.record(0)
    told = linear_keys(text)
    assert set(part) <= told.keys()
    for key, inside in (("fleet", part["fleet"]), ("classes", part["classes"][0]), ("placements", part["placements"])):
        assert set(inside) <= told[key], key
    assert {*part["given"], *part["given"]["task_groups"][0]} <= told["given"]
    assert set(part["timings"]) <= set(re.findall(r"`(\w+)`", text[text.index("## Levels at linear prices") :]))


def test_every_key_of_a_level_at_linear_prices_is_listed() -> None:
    text = text_of(HOUSE / "docs" / "records.md")
    late = task("late", widths_milli=(4000,), submit_s=-1000.0)
    lacking = task("lacking", group="g")
    found = snapshot([task(), late, lacking], running=[running(task("r"))], task_groups=(TaskGroup("g", 2),))
    first = solve(found, policy="flow-network")
    record = solve(replace(found, reservations=first.reservations), policy="flow-network").record
    assert record is not None
    assert set(record) - keys_of(text, "| Key | Value |") == {"upkeep"}
    (part,) = record["parts"]
    told = linear_keys(text)
    groups = keys_of(text, "| Further key | Value |")
    listed = {*told, *groups} - {"repairs"}
    assert set(part) == listed
    for key, inside in (
        ("features", part["features"][0]),
        ("kinds", part["kinds"][0]),
        ("fleet", part["fleet"]),
        ("classes", part["classes"][0]),
        ("classes", part["outside"][0]),
        ("placements", part["placements"]),
        ("waiting", {**part["waiting"], **part["waiting"]["reasons"][0]}),
        ("reservations", part["reservations"][0]),
        ("dual", part["dual"]),
        ("given", part["given"]),
    ):
        assert set(inside) <= told[key], key


def test_every_key_of_the_result_is_listed() -> None:
    text = text_about_files()
    scenario = load_scenario("parsec-memcached-2024")
    outcome = result(scenario, [simulate(scenario, "all-at-once")])
    run = outcome["runs"][0]
    assert keys_of(text, "| Key | Value |", "# JSON of `simulate`") == set(outcome)
    assert keys_of(text, "| Key | Value |", "\nA summary:") == set(outcome["table"][0])
    assert keys_of(text, "| Key | Value |", "\nA run:") == set(run)
    assert keys_of(text, "| Key | Value |", "\nA job of a run:") == set(run["jobs"][0])


def test_defaults_of_scenarios_of_one_machine_are_those_that_are_shown() -> None:
    text = text_about_files()
    units = {"ms": 1e3, "us": 1.0}
    for after, form in FORMS:
        if form not in ON_ONE_MACHINE:
            continue
        for keys, default, _ in rows(text[text.index(after) :], "| Key | Default | Meaning |"):
            for key in re.findall(r"`(\w+)`", keys):
                field = next(f for name, f in form.model_fields.items() if key in (name, f.alias))
                assert field.is_required() == (default == "required"), (after, key)
                if field.is_required() or field.default is None or field.default_factory is not None:
                    continue
                if field.default == "":
                    assert default == "empty", (after, key)
                elif isinstance(field.default, bool):
                    assert default == f"`{str(field.default).lower()}`", (after, key)
                elif isinstance(field.default, str):
                    assert default == f"`{field.default}`", (after, key)
                elif measured := re.fullmatch(r"`(\d+)(ms|us)`", default):
                    assert float(measured[1]) * units[measured[2]] == field.default, (after, key)
                else:
                    assert float(default) == field.default, (after, key)


def test_every_key_of_the_result_of_one_machine_is_listed(example_files: dict[str, str]) -> None:
    text = text_about_files()
    scenario = load_node_scenario(SHOP)
    outcome = node_result(scenario, compare_on_node(scenario, ["static-2"], options=NodeOptions()))
    run, own = outcome["runs"][0], "\nA run of a controller has the same keys, and these:"
    assert keys_of(text, "| Key | Value |", "## Of a node scenario") == set(outcome)
    assert keys_of(text, "| Key | Value |", "\nA summary of a controller:") == set(outcome["table"][0])
    assert keys_of(text, "| Key | Value |", own) == set(run) - set(outcome["table"][0])
    assert keys_of(text, "| Key | Value |", "\nA job of a controller:") == set(run["jobs"][0])
    told = dict(rows(text[text.index(own) :], "| Key | Value |"))
    for key in ("noise", "latency", "service_cores"):
        assert set(run[key][0]) <= set(re.findall(r"`(\w+)`", told[f"`{key}`"])), key
    heads = dict(rows(text[text.index("## Of a node scenario") :], "| Key | Value |"))
    for key, inside in (("machine", outcome["machine"]), ("services", outcome["services"][0])):
        assert set(inside) <= set(re.findall(r"`(\w+)`", heads[f"`{key}`"])), key


def test_every_key_of_the_result_of_isolation_is_listed(example_files: dict[str, str]) -> None:
    text = text_about_files()
    outcome = isolated(load_isolation_scenario(LOOP), ("deadline",))
    run, own = outcome["runs"][0], "\nA run of isolation has the same keys, and these:"
    head = "## Of an isolation scenario"
    assert keys_of(text, "| Key | Value |", head) == set(outcome)
    assert keys_of(text, "| Key | Value |", "\nA summary of isolation:") == set(outcome["table"][0])
    assert keys_of(text, "| Key | Value |", own) == set(run) - set(outcome["table"][0])
    told = dict(rows(text[text.index(head) :], "| Key | Value |"))
    for key, inside in (("admission", outcome["admission"]), ("reservations", outcome["reservations"][0])):
        assert set(inside) <= set(re.findall(r"`(\w+)`", told[f"`{key}`"])), key
    (tasks,) = (cell for key, cell in rows(text[text.index(own) :], "| Key | Value |") if key == "`tasks`")
    assert set(run["tasks"][0]) <= set(re.findall(r"`(\w+)`", tasks))


def test_a_round_on_a_record_gives_the_same_record(tmp_path: Path) -> None:
    record = solve(load_snapshot(HOUSE / "docs" / "examples" / "snapshot.yaml")).record
    assert record is not None
    path = tmp_path / "again.json"
    path.write_text(json.dumps(record["parts"][0]["snapshot"]), encoding="utf-8")
    again = solve(load_snapshot(path), settings=Settings(**record["settings"])).record
    assert again is not None
    plain, other = json.loads(record_json(record)), json.loads(record_json(again))
    for each in (plain, other):
        del each["parts"][0]["timings"]
        each["parts"][0]["snapshot"]["catalogue"].pop("source")
    assert other == plain


def test_the_tutorial_measures_with_what_a_reader_has(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its input is made in the line before, and stress-ng is not needed; the plan is printed, nothing runs."""
    lines = text_of(HOUSE / "docs" / "tutorials" / "measure-to-plan.md").splitlines()
    (at,) = [k for k, line in enumerate(lines) if line.startswith("flowsched measure ")]
    made = re.fullmatch(r"seq \d+ > (\S+)\s+#.*", lines[at - 1])
    words = shlex.split(lines[at], comments=True)[1:]
    assert made is not None and made[1] in words
    (tmp_path / made[1]).write_text("1\n")
    (tmp_path / words[words.index("--") + 1]).symlink_to("/bin/true")
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.chdir(tmp_path)

    done = CliRunner().invoke(flowsched, [words[0], "--dry-run", *words[1:]])

    assert done.exit_code == 0, done.output
