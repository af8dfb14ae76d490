"""Upstream's table cases: recorded once from its own tests for the Kubernetes version in use, then kept in the cache.

The tests of the plugins are taken from the Go module cache, rewritten by ``generator/main.go`` into a module of their own
and run. What they tell a plugin, and what it answers, is one line of JSON each. Nothing of upstream is in the repository.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import re
import shutil
import subprocess
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

Object = dict[str, Any]
GENERATOR = Path(__file__).parent / "generator"
MODULE = Path(__file__).parents[3] / "k8s" / "control_plane"
"""Its go.mod says which version of Kubernetes is in use."""
PLUGINS = (
    "schedulinggates",
    "nodename",
    "nodeports",
    "nodeunschedulable",
    "nodeaffinity",
    "tainttoleration",
    "noderesources",
    "interpodaffinity",
    "podtopologyspread",
    "volumerestrictions",
    "volumezone",
    "nodevolumelimits",
    "volumebinding",
    "defaultpreemption",
)
SECONDS_PER_PACKAGE = 1200


class UpstreamError(Exception):
    """Upstream's tests cannot be built or run; the text says why."""


@dataclass(frozen=True)
class Call:
    """One call of a plugin's extension point by upstream's test."""

    point: str
    pod: Object
    nodes: tuple[Object, ...]
    """Each ``{"node": ..., "pods": [...]}``; the node may be missing."""
    objects: tuple[Object, ...]
    code: str
    reasons: tuple[str, ...]
    names: tuple[str, ...] | None
    """Of the nodes that PreFilter leaves; None if it leaves all."""
    nominated: str | None


@dataclass
class Case:
    """One entry of a table."""

    plugin: str
    test: str
    number: int
    """Its place in the table, from 1. With nested loops a table is counted once. 0: it is in no table."""
    name: str
    fields: Mapping[str, Any]
    objects: Sequence[Object]
    calls: list[Call] = field(default_factory=list)

    @property
    def id(self) -> str:
        """What it is called here. Its name is a sentence of upstream's, which is printed and not kept."""
        return f"{self.plugin}/{self.test}" + (f"/{self.number}" if self.number else "")

    @property
    def title(self) -> str:
        """What it is called in reports."""
        return f"{self.id} ({self.name})" if self.name else self.id


def kubernetes_version() -> str:
    """The release that go.mod asks for."""
    found = re.search(r"^\s*k8s\.io/kubernetes (v\S+)", (MODULE / "go.mod").read_text(), re.MULTILINE)
    assert found is not None
    return found[1]


def recorded_cases() -> list[Case]:
    """All cases, in the order of the plugins and of their tables. Raises :class:`UpstreamError`."""
    folder = record()
    return [case for plugin in PLUGINS for case in _read(plugin, folder / f"{plugin}.jsonl")]


def cache_folder() -> Path:
    """Where the cases of exactly this generator and this version of Kubernetes are, or will be."""
    digest = hashlib.sha256(repr(PLUGINS).encode())
    sources = (GENERATOR / "main.go", GENERATOR / "record.go.txt", MODULE / "go.mod", MODULE / "go.sum")
    for source in sources:
        digest.update(source.read_bytes())
    root = os.environ.get("FLOWSCHED_CACHE")
    cache = Path(root) if root else Path.home() / ".cache" / "flowsched"
    return cache / "upstream-cases" / digest.hexdigest()[:16] / "cases"


def record() -> Path:
    """The folder with the cases, recorded first if the cache has none. Raises :class:`UpstreamError`."""
    target = cache_folder()
    if target.exists():
        return target
    if shutil.which("go") is None:
        raise UpstreamError("upstream's cases are not recorded yet, and Go is not installed")
    target.parent.mkdir(parents=True, exist_ok=True)
    with (target.parent / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if target.exists():
            return target
        work, part = target.with_name("module"), target.with_name("cases.part")
        for folder in (work, part):
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir()
        for package in _rewrite(work):
            _run_tests(work, package, part / f"{package['package']}.jsonl")
        shutil.rmtree(work)
        part.rename(target)
    return target


def _rewrite(work: Path) -> list[Object]:
    """Make the module of rewritten tests; what to run in each package."""
    listed = _go(["list", "-mod=readonly", "-m", "-f", "{{.Dir}}", "k8s.io/kubernetes"], MODULE).strip()
    if not listed:
        _go(["mod", "download", "k8s.io/kubernetes"], MODULE)
        listed = _go(["list", "-mod=readonly", "-m", "-f", "{{.Dir}}", "k8s.io/kubernetes"], MODULE).strip()
    content = (MODULE / "go.mod").read_text()
    (work / "go.mod").write_text(re.sub(r"^module .*", "module upstreamcases", content, count=1, flags=re.MULTILINE))
    shutil.copy(MODULE / "go.sum", work / "go.sum")
    plugins = Path(listed) / "pkg" / "scheduler" / "framework" / "plugins"
    words = ["run", str(GENERATOR / "main.go"), "-source", str(plugins), "-out", str(work), *PLUGINS]
    return [json.loads(line) for line in _go(words, work).splitlines()]


def _run_tests(work: Path, package: Mapping[str, Any], output: Path) -> None:
    """Run the rewritten tests of a package. A test that fails there would be a case that upstream itself fails."""
    output.touch()
    pattern = f"^({'|'.join(package['tests'])})$"
    # -mod=mod: packages that only upstream's tests need are not among the requirements of the control plane.
    options = ["-mod=mod", "-trimpath", "-vet=off", "-count=1", "-ldflags=-s -w", "-p=1"]
    _go(["test", *options, "-run", pattern, f"./{package['package']}"], work, UPSTREAM_CASES_FILE=str(output))


def _go(words: Sequence[str], folder: Path, **environment: str) -> str:
    """What a Go command prints. Raises :class:`UpstreamError` with the end of its messages."""
    try:
        done = subprocess.run(
            ["go", *words],
            cwd=folder,
            env={**os.environ, "GOWORK": "off", **environment},
            preexec_fn=lambda: os.nice(10),
            capture_output=True,
            text=True,
            check=False,
            timeout=SECONDS_PER_PACKAGE,
        )
    except subprocess.TimeoutExpired:
        raise UpstreamError(f"go {words[0]} took longer than {SECONDS_PER_PACKAGE} s") from None
    if done.returncode:
        said = (done.stdout + done.stderr).strip()[-2000:]
        raise UpstreamError(f"go {words[0]} failed in the folder of {words[-1]}: {said}")
    return done.stdout


def _read(plugin: str, path: Path) -> Iterator[Case]:
    """The cases of a package, each once: some tests go through a table for every setting of a feature."""
    cases: dict[int, Case] = {}
    for line in path.read_text().splitlines():
        entry = json.loads(line)
        if entry["event"] == "failed":
            raise UpstreamError(f"{plugin}: a case cannot be written as JSON: {entry['message']}")
        if entry["event"] == "case":
            case = Case(plugin, entry["test"], 0, entry["name"], entry["fields"], entry["objects"])
            cases[entry["number"]] = case
        else:
            cases[entry["number"]].calls.append(_call(entry))
    counts: Counter[str] = Counter()
    seen: set[tuple[str, str, str]] = set()
    for case in cases.values():
        # Preemption's tests run each case under two settings, with times in it that differ.
        content = "" if plugin == "defaultpreemption" else repr((case.fields, case.objects, case.calls))
        key = (case.test, case.name, content)
        if key in seen:
            continue
        seen.add(key)
        counts[case.test] += 1
        case.number = counts[case.test]
        yield case


def _call(entry: Mapping[str, Any]) -> Call:
    names = entry.get("names")
    return Call(
        entry["call"],
        entry["pod"],
        tuple(entry["nodes"]),
        tuple(entry["objects"]),
        entry["code"],
        tuple(entry["reasons"] or ()),
        None if names is None else tuple(sorted(names)),
        entry.get("nominated"),
    )
