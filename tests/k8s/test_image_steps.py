"""The steps of the Dockerfile, taken without Docker: the wheel goes into an empty prefix and flowsched starts from it."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import stat
import subprocess
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from importlib.metadata import Distribution, distribution
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement

HOUSE = Path(__file__).parent.parent.parent
DOCKERFILE = HOUSE / "k8s" / "Dockerfile"
IGNORED = HOUSE / "k8s" / "Dockerfile.dockerignore"
DEPLOYMENT = HOUSE / "k8s" / "manifests" / "base" / "deployment.yaml"


@dataclass
class Stage:
    """One FROM and what follows it."""

    image: str
    name: str = ""
    steps: list[tuple[str, str]] = field(default_factory=list)

    def all_of(self, instruction: str) -> list[str]:
        return [text for name, text in self.steps if name == instruction]


def stages(text: str) -> list[Stage]:
    found: list[Stage] = []
    for line in text.replace("\\\n", " ").splitlines():
        if not line.strip() or line.startswith("#"):
            continue
        instruction, _, rest = line.partition(" ")
        if instruction == "FROM":
            image, _, name = rest.partition(" AS ")
            found.append(Stage(image, name))
        else:
            found[-1].steps.append((instruction, rest.strip()))
    return found


BUILD, FINAL = stages(DOCKERFILE.read_text(encoding="utf-8"))
ENVIRONMENT = dict(pair.split("=", 1) for text in FINAL.all_of("ENV") for pair in shlex.split(text))

# pip's steps as they are, but without the network: dependencies are linked in afterwards.
OFFLINE = {"wheel": "--no-build-isolation --no-index", "install": "--no-deps --no-index --ignore-installed"}
"""Some of which the steps have anyway."""
TOOLS = ("pip", "setuptools")
PYTHON = getattr(sys, "_base_executable", sys.executable)
"""Not the virtual environment's, which has flowsched from source."""


def closure(name: str, extras: frozenset[str], seen: dict[str, frozenset[str]]) -> None:
    """Every distribution that one needs, by name, as pip would choose them here."""
    if extras <= seen.get(name, frozenset()) and name in seen:
        return
    seen[name] = seen.get(name, frozenset()) | extras
    for text in distribution(name).requires or ():
        needed = Requirement(text)
        if needed.marker is None or any(needed.marker.evaluate({"extra": e}) for e in (extras or {""})):
            closure(needed.name, frozenset(needed.extras), seen)


def link_in(names: Iterable[str], folder: Path) -> None:
    """Make distributions of this environment importable from a folder that holds nothing else."""
    folder.mkdir()
    for name in names:
        for path in set(top_level(distribution(name))):
            link = folder / path.name
            if not link.exists():
                link.symlink_to(path)


def top_level(found: Distribution) -> Iterator[Path]:
    """Folders and modules that a distribution put into site-packages."""
    for file in found.files or ():
        if file.parts[0] not in ("..", "__pycache__"):
            yield Path(str(found.locate_file(file.parts[0])))


@dataclass(frozen=True)
class Image:
    """What the final stage would hold, in folders of this machine."""

    prefix: Path
    script: Path
    packages: Path
    dependencies: Path
    home: Path
    cache: Path

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Start flowsched as the container would: no HOME but the image's, no working directory to write to."""
        return self.python(str(self.script), *arguments)

    def python(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Start Python likewise."""
        return subprocess.run(
            [PYTHON, "-S", *arguments],
            cwd="/",
            env={
                **ENVIRONMENT,
                "HOME": str(self.home),
                "XDG_CACHE_HOME": str(self.cache),
                "PATH": "/usr/bin:/bin",
                "PYTHONPATH": f"{self.packages}:{self.dependencies}",
            },
            capture_output=True,
            text=True,
            timeout=1800,
            check=False,
        )


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> Image:
    """The steps of the first stage, in folders that stand for /src, /wheels and /install."""
    root = tmp_path_factory.mktemp("image")
    tools = root / "tools"
    link_in(TOOLS, tools)
    here: dict[str, Path] = {}

    def place(path: str) -> Path:
        return root / path.lstrip("/")

    work = root
    for instruction, text in BUILD.steps:
        if instruction == "WORKDIR":
            work = place(text)
            work.mkdir(parents=True)
        elif instruction == "COPY":
            *sources, target = text.split()
            for source in sources:
                copy(HOUSE / source, work / target / Path(source).name if target == "./" else work / target)
        elif instruction == "RUN" and "--require-hashes" in text:
            # Not without the network: what it would install is linked in below, and test_pins.py reads the file.
            assert (work / text.split(" -r ")[1]).is_file()
        elif instruction == "RUN":
            pip = re.match(r"python -m pip (\w+) ", text)
            assert pip is not None and pip[1] in OFFLINE, f"this test does not know the step: RUN {text}"
            # Without site, pip sees its tools alone: whatever it does, it cannot touch what is installed here.
            command = text.replace(pip[0], f"{shlex.quote(PYTHON)} -S -m pip {pip[1]} {OFFLINE[pip[1]]} ")
            for folder in ("/wheels", "/install"):
                here[folder] = place(folder)
                command = command.replace(folder, str(place(folder)))
            done = subprocess.run(
                ["sh", "-ec", command],
                cwd=work,
                env={**os.environ, "PYTHONPATH": str(tools), "PIP_DISABLE_PIP_VERSION_CHECK": "1"},
                capture_output=True,
                text=True,
                timeout=1800,
                check=False,
            )
            assert done.returncode == 0, done.stdout + done.stderr
        else:
            raise AssertionError(f"this test does not know the instruction {instruction}")
    prefix = here["/install"]
    (script,) = prefix.rglob("bin/flowsched")
    (module,) = prefix.rglob("flowsched/__init__.py")
    needed: dict[str, frozenset[str]] = {}
    closure("flowsched", frozenset({"k8s"}), needed)
    dependencies, home, cache = root / "dependencies", root / "home", root / "cache"
    link_in(needed.keys() - {"flowsched"}, dependencies)
    home.mkdir()
    for path in (root, *root.rglob("*")):
        if not path.is_symlink():
            path.chmod(path.stat().st_mode & ~(stat.S_IWUSR | stat.S_IWGRP | stat.S_IWOTH))
    return Image(prefix, script, module.parent.parent, dependencies, home, cache)


def copy(source: Path, target: Path) -> None:
    if source.is_dir():
        shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__", "*.pyc"))
    else:
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(source, target)


def files_below(folder: Path) -> set[Path]:
    return set(folder.rglob("*"))


def test_it_starts_and_says_its_version(image: Image) -> None:
    done = image.run("--version")
    assert done.returncode == 0, done.stderr
    assert re.search(r"\b\d+\.\d+\.\d+", done.stdout)


@pytest.mark.parametrize("command", ["run", "snapshot", "solve", "simulate"])
def test_every_command_is_there_and_its_dependencies_too(image: Image, command: str) -> None:
    done = image.run(command, "--help")
    assert done.returncode == 0, done.stderr
    assert f"flowsched {command}" in done.stdout


def test_it_starts_with_what_the_deployment_tells_it(image: Image) -> None:
    (container,) = yaml.safe_load(DEPLOYMENT.read_text(encoding="utf-8"))["spec"]["template"]["spec"]["containers"]
    configuration = HOUSE / "k8s" / "manifests" / "base" / "config.yaml"
    told = [a.replace("/etc/flowsched/config/config.yaml", str(configuration)) for a in container["args"]]
    assert str(configuration) in " ".join(told)
    done = image.run(*told, "--kubeconfig", "/nowhere")
    # There is no cluster here: it says so in a sentence, and knew its arguments and its configuration.
    assert done.returncode == 2, done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    assert "/nowhere" in done.stderr or "/etc/flowsched/profiles" in done.stderr


def test_nothing_is_written_beside_the_code_or_at_home(image: Image) -> None:
    before = files_below(image.prefix) | files_below(image.home)
    image.run("run", "--help")
    assert files_below(image.prefix) | files_below(image.home) == before


SCHEDULES = """
import os
asked = os.access
os.access = lambda path, mode, **more: mode & os.W_OK == 0 and asked(path, mode, **more)
from flowsched_simulator import EngineOptions, load_scenario, simulate
from flowsched.cluster.settings import Settings
simulate(load_scenario("parsec-memcached-2024"), "flow", engine=EngineOptions(Settings(exact_limit=0)))
from flowsched.pricing import forecast_kernel, option_kernel
from flowsched_models import kernel, pace
functions = {**vars(kernel), **vars(pace), **vars(forecast_kernel), **vars(option_kernel)}
compiled = {name: f.stats for name, f in functions.items() if hasattr(f, "stats")}
print("loaded:", *sorted(name for name, stats in compiled.items() if stats.cache_hits))
print("compiled:", *sorted(name for name, stats in compiled.items() if stats.cache_misses))
"""
"""Like a user who may write nothing (the tests may run as root, who may write everywhere)."""


def test_what_is_compiled_comes_with_the_image(image: Image) -> None:
    (step,) = FINAL.all_of("RUN")
    order = [instruction for instruction, _ in FINAL.steps]
    assert shlex.split(step) == ["flowsched", "warm-up"]
    assert order.index("ENV") < order.index("COPY") < order.index("RUN") < order.index("USER")
    # Whatever CPU compiled it, and as any user.
    assert ENVIRONMENT["NUMBA_CPU_NAME"] == "generic"
    assert not ENVIRONMENT["XDG_CACHE_HOME"].startswith(ENVIRONMENT["HOME"])

    image.cache.mkdir(exist_ok=True)
    done = image.run("warm-up")
    assert done.returncode == 0, done.stderr
    before = {path: path.stat().st_mtime_ns for path in files_below(image.cache)}
    assert all(path.stat().st_mode & 0o004 for path in before)
    done = image.python("-c", SCHEDULES)
    assert done.returncode == 0, done.stderr
    loaded, compiled = done.stdout.splitlines()
    assert {"base_costs", "colocation_costs", "price_classes", "run_draws"} <= set(loaded.split())
    assert compiled == "compiled:"
    assert {path: path.stat().st_mtime_ns for path in files_below(image.cache)} == before


def test_code_comes_from_the_prefix_alone(image: Image) -> None:
    assert not list(image.dependencies.glob("*flowsched*"))
    assert {p.name for p in image.packages.glob("flowsched*")} >= {"flowsched", "flowsched_k8s", "flowsched_models"}


def test_tools_of_developers_are_not_needed(image: Image) -> None:
    assert not {"pytest", "hypothesis", "mypy", "setuptools"} & {p.name for p in image.dependencies.iterdir()}


def test_the_first_stage_sees_what_it_copies_and_no_more() -> None:
    lines = IGNORED.read_text(encoding="utf-8").split()
    copied = {word for text in BUILD.all_of("COPY") for word in text.split()[:-1]}
    assert lines[0] == "*"
    assert {line[1:] for line in lines if line.startswith("!")} == copied
    assert all((HOUSE / name).exists() for name in copied)


def test_the_final_stage_is_slim_and_holds_the_prefix_only() -> None:
    assert FINAL.image == BUILD.image
    version = re.fullmatch(r"python:3\.(\d+)-slim@sha256:[0-9a-f]{64}", FINAL.image)
    assert version is not None
    # Without mimalloc Python would not start.
    pod = yaml.safe_load(DEPLOYMENT.read_text(encoding="utf-8"))["spec"]["template"]["spec"]
    environment = {one["name"]: one["value"] for one in pod["containers"][0]["env"]}
    assert int(version[1]) >= 13 or environment["PYTHONMALLOC"] != "mimalloc"
    assert FINAL.all_of("COPY") == [f"--from={BUILD.name} /install /usr/local"]
    assert FINAL.all_of("ADD") == []


def test_the_final_stage_runs_as_the_user_of_the_deployment() -> None:
    pod = yaml.safe_load(DEPLOYMENT.read_text(encoding="utf-8"))["spec"]["template"]["spec"]
    context = pod["securityContext"]
    assert FINAL.all_of("USER") == [f"{context['runAsUser']}:{context['runAsGroup']}"]
    assert context["runAsUser"] != 0
    (entry,), (command,) = FINAL.all_of("ENTRYPOINT"), FINAL.all_of("CMD")
    assert (yaml.safe_load(entry), yaml.safe_load(command)) == (["flowsched"], ["run"])
    # Only this one folder of the container can be written to.
    writable = {v["name"] for v in pod["volumes"] if "emptyDir" in v}
    (mount,) = (m["mountPath"] for m in pod["containers"][0]["volumeMounts"] if m["name"] in writable)
    assert ENVIRONMENT["HOME"] == mount


def test_every_version_of_python_that_the_image_may_have_is_supported() -> None:
    text = (HOUSE / "pyproject.toml").read_text(encoding="utf-8")
    least = re.search(r'requires-python = ">=3\.(\d+)"', text)
    used = re.search(r"python:3\.(\d+)", FINAL.image)
    assert least is not None and used is not None
    assert int(used[1]) >= int(least[1])
