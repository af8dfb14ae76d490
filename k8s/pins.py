#!/usr/bin/env python3
"""Write down what the image and CI are made of, each by its hash: ``make pins``, after ``make constraints``, with a network.

``packages``: requirements.txt and build-requirements.txt, with the versions of constraints.txt. ``base``: the digest of the
image that the Dockerfile begins with; needs docker. ``actions``: the commits of the actions in CI; needs git.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Callable, Iterator
from importlib.metadata import distribution
from pathlib import Path
from typing import Any

from packaging.markers import Marker
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

HOUSE = Path(__file__).parent.parent
CONSTRAINTS = HOUSE / "constraints.txt"
DOCKERFILE = HOUSE / "k8s" / "Dockerfile"
WORKFLOWS = HOUSE / ".github" / "workflows"
REQUIREMENTS = HOUSE / "k8s" / "requirements.txt"
BUILD_REQUIREMENTS = HOUSE / "k8s" / "build-requirements.txt"
MACHINES = ("x86_64", "aarch64")
GLIBC = range(5, 42)
"""Minor versions of glibc 2 that the image is newer than."""
FROM = re.compile(r"^FROM (python:3\.(\d+)-slim)(@sha256:[0-9a-f]{64})?", re.MULTILINE)
USES = re.compile(r"uses: ([\w./-]+)@(\S+)(?: # (\S+))?")


def python_of_image() -> str:
    """Its version, ``3.13``."""
    found = FROM.search(DOCKERFILE.read_text(encoding="utf-8"))
    assert found is not None, "the Dockerfile begins with python:3.N-slim"
    return f"3.{found[2]}"


def pins() -> dict[str, str]:
    """Version by canonical name, of constraints.txt."""
    lines = CONSTRAINTS.read_text(encoding="utf-8").splitlines()
    pairs = (line.split("==", 1) for line in lines if "==" in line)
    return {canonicalize_name(name): version for name, version in pairs}


def required_by(name: str) -> list[str]:
    """What a package asks for. Of flowsched, what pyproject.toml says: what is installed may be older."""
    if name != "flowsched":
        return distribution(name).requires or []
    project = tomllib.loads((HOUSE / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    found = list(project["dependencies"])
    for extra, texts in project["optional-dependencies"].items():
        for needed in map(Requirement, texts):
            marker = f"({needed.marker}) and " if needed.marker else ""
            needed.marker = Marker(f'{marker}extra == "{extra}"')
            found.append(str(needed))
    return found


def closure(requirement: str, python: str) -> set[str]:
    """Canonical names of all that a requirement brings on Linux with this Python, itself included, by what is installed."""
    environment = {
        "python_version": python,
        "python_full_version": f"{python}.0",
        "implementation_name": "cpython",
        "platform_python_implementation": "CPython",
        "sys_platform": "linux",
        "platform_system": "Linux",
        "os_name": "posix",
    }
    found: dict[str, set[str]] = {}

    def visit(one: Requirement) -> None:
        name = canonicalize_name(one.name)
        if name in found and one.extras <= found[name]:
            return
        extras = found.setdefault(name, set())
        extras |= one.extras
        for text in required_by(name):
            needed = Requirement(text)
            wanted = ({**environment, "extra": extra} for extra in extras or {""})
            if needed.marker is None or any(needed.marker.evaluate(e) for e in wanted):  # type: ignore[arg-type]
                visit(needed)

    visit(Requirement(requirement))
    return set(found)


def of_image() -> set[str]:
    """What is installed into the image beside flowsched."""
    return closure("flowsched[k8s]", python_of_image()) - {"flowsched"}


def of_build() -> set[str]:
    """What builds flowsched's wheel."""
    build = tomllib.loads((HOUSE / "pyproject.toml").read_text(encoding="utf-8"))["build-system"]["requires"]
    return {name for text in build for name in closure(text, python_of_image())}


# Looking up


def hashed(names: set[str]) -> Iterator[str]:
    """A line for each package, with the hash of its wheel for each machine, as pip chooses it."""
    versions = pins()
    wanted = {name: f"{name}=={versions[name]}" for name in sorted(names)}
    hashes: dict[str, set[str]] = {name: set() for name in wanted}
    for machine in MACHINES:
        for item in _chosen([*wanted.values()], machine):
            hashes[canonicalize_name(item["metadata"]["name"])].add(
                item["download_info"]["archive_info"]["hashes"]["sha256"]
            )
    for name, line in wanted.items():
        yield " \\\n    ".join([line, *(f"--hash=sha256:{value}" for value in sorted(hashes[name]))])


def _chosen(requirements: list[str], machine: str) -> list[Any]:
    python = python_of_image()
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.json"
        command = [sys.executable, "-m", "pip", "install", "--quiet", "--dry-run", "--ignore-installed", "--no-deps"]
        command += ["--only-binary", ":all:", "--implementation", "cp", "--python-version", python]
        command += ["--target", folder, "--report", str(report)]
        for minor in reversed(GLIBC):
            command += ["--platform", f"manylinux_2_{minor}_{machine}"]
        command += ["--platform", f"manylinux2014_{machine}", *requirements]
        # What lies on this machine may be another build than that of the index.
        environment = {k: v for k, v in os.environ.items() if k not in ("PIP_FIND_LINKS", "PIP_NO_INDEX")}
        subprocess.run(command, check=True, env=environment)
        found = json.loads(report.read_text(encoding="utf-8"))["install"]
    return list(found)


def packages() -> None:
    """Write both files of requirements."""
    for path, names, what in (
        (REQUIREMENTS, of_image(), "What the image has beside flowsched"),
        (BUILD_REQUIREMENTS, of_build(), "What builds the wheel of the image"),
    ):
        head = f"# {what}, on {' and '.join(MACHINES)}. Made by make pins from constraints.txt."
        path.write_text("\n".join([head, *hashed(names)]) + "\n", encoding="utf-8")


def base() -> None:
    """Write the digest that the base image has now."""
    text = DOCKERFILE.read_text(encoding="utf-8")
    found = FROM.search(text)
    assert found is not None
    command = ["docker", "buildx", "imagetools", "inspect", found[1], "--format", "{{.Manifest.Digest}}"]
    digest = subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()
    if not re.fullmatch("sha256:[0-9a-f]{64}", digest):
        raise SystemExit(f"docker named no digest of {found[1]}: {digest[:80]!r}")
    DOCKERFILE.write_text(FROM.sub(rf"FROM \g<1>@{digest}", text), encoding="utf-8")


def actions() -> None:
    """Write the commits that the tags beside them name now."""

    def committed(match: re.Match[str]) -> str:
        action, reference, tag = match.groups()
        tag = tag or reference
        repository = "/".join(action.split("/")[:2])
        command = ["git", "ls-remote", f"https://github.com/{repository}", f"refs/tags/{tag}", f"refs/tags/{tag}^{{}}"]
        lines = subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()
        if not lines:
            raise SystemExit(f"{repository} has no tag {tag}")
        # Of a tag with a message, the line with ^{} names the commit; it comes last.
        return f"uses: {action}@{lines[-1].split()[0]} # {tag}"

    for path in sorted(WORKFLOWS.glob("*.y*ml")):
        text = path.read_text(encoding="utf-8")
        path.write_text(USES.sub(committed, text), encoding="utf-8")


PARTS: dict[str, Callable[[], None]] = {"packages": packages, "base": base, "actions": actions}

if __name__ == "__main__":
    for name in sys.argv[1:] or PARTS:
        PARTS[name]()
