"""Rules of the house: circles of imports, what is documented, what is shipped. Who may import whom is in pyproject.toml."""

from __future__ import annotations

import ast
import re
import tomllib
from collections.abc import Iterator, Mapping
from importlib.metadata import PackageNotFoundError, metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name

HOUSE = Path(__file__).parent.parent
FOLDERS = ("flowsched", "models", "simulator", "k8s", "benchmarks", "tests")
PYPROJECT = tomllib.loads((HOUSE / "pyproject.toml").read_text(encoding="utf-8"))
SETUPTOOLS = PYPROJECT["tool"]["setuptools"]


ENGLISH = re.compile(
    r"\b(?:(?:any|every|no|some)bod(?:y|ys)|everyone|whoever|he|his|himself|for_ever|(?:is|are)_wanted"
    r"|which_is_none|without_a_word)\b".replace("_", r"[\s#*]+"),
    re.IGNORECASE,
)
"""Words that talk of tasks, machines and values as if they were persons, or leave open what is meant."""
QUOTED = {
    "tests/benchmarks/test_shared_pool.py": ('"nobody"', ""),
    "tests/k8s/real_shop.py": ('"nobody"', ""),
}
"""Files with one of these words as a value, which is left out."""


def unclear(text: str) -> list[str]:
    """What ``ENGLISH`` finds, in names as well, with the lines where it begins."""
    found = ENGLISH.finditer(text.replace("_", " "))
    return [f"{text.count(chr(10), 0, m.start()) + 1}: {' '.join(m[0].split())}" for m in found]


def misplaced_docstrings(tree: ast.Module) -> list[str]:
    """Docstrings of a module's attributes that name the undocumented attribute above and not their own."""
    found = []
    for above, own, text in zip(tree.body, tree.body[1:], tree.body[2:], strict=False):
        if not (isinstance(text, ast.Expr) and isinstance(text.value, ast.Constant)):
            continue
        before, after, said = attribute(above), attribute(own), text.value.value
        if before is None or after is None or not isinstance(said, str):
            continue
        named = {word.lower().strip("_") for word in re.findall(r"``(\w+)``", said)}
        if before.lower().strip("_") in named and after.lower().strip("_") not in named:
            found.append(f"{text.lineno}: {after} is documented as {before}")
    return found


def attribute(node: ast.stmt) -> str | None:
    """The name that a statement gives a value, if it gives one name to one."""
    if isinstance(node, ast.AnnAssign):
        target: ast.expr = node.target
    elif isinstance(node, ast.Assign) and len(node.targets) == 1:
        target = node.targets[0]
    else:
        return None
    return target.id if isinstance(target, ast.Name) else None


def find_roots(house: Path) -> dict[str, Path]:
    """Every package that stands at the top of the house or one folder below."""
    found = [*house.glob("flowsched*/__init__.py"), *house.glob("[!.]*/flowsched*/__init__.py")]
    return {path.parent.name: path.parent for path in found if "build" not in path.parts}


ROOTS = find_roots(HOUSE)


def sources_of(root: Path) -> dict[str, ast.Module]:
    """The modules of a package by their dotted names."""
    found = {}
    for path in sorted(root.rglob("*.py")):
        parts = path.relative_to(root.parent).with_suffix("").parts
        name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        found[name] = ast.parse(path.read_text(encoding="utf-8"), filename=str(path))
    return found


SOURCES = {name: sources_of(root) for name, root in ROOTS.items()}


def is_package(module: str, modules: Mapping[str, ast.Module]) -> bool:
    return any(name.startswith(f"{module}.") for name in modules)


def imports(node: ast.AST, module: str, package: bool) -> Iterator[tuple[str, tuple[str, ...]]]:
    """What an import statement names: a dotted module and the names taken from it."""
    if isinstance(node, ast.Import):
        for alias in node.names:
            yield alias.name, ()
    elif isinstance(node, ast.ImportFrom):
        base = node.module or ""
        if node.level:
            parts = module.split(".")
            above = parts[: len(parts) - node.level + package]
            base = ".".join([*above, base] if base else above)
        yield base, tuple(alias.name for alias in node.names)


def executed(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """The statements that run, or are read by a type checker, when a module is imported."""
    for node in body:
        yield node
        if isinstance(node, (ast.If, ast.Try, ast.With, ast.For, ast.While, ast.ClassDef)):
            for part in ("body", "orelse", "finalbody"):
                yield from executed(getattr(node, part, []))
            for handler in getattr(node, "handlers", []):
                yield from executed(handler.body)


def needed_modules(module: str, modules: Mapping[str, ast.Module]) -> set[str]:
    """Modules of the same package that must have been imported before this one is ready."""
    found = set()
    for node in executed(modules[module].body):
        for target, names in imports(node, module, is_package(module, modules)):
            submodules = {f"{target}.{name}" for name in names} & modules.keys()
            # A package that is only passed through on the way to its submodules does not count.
            wanted = submodules if submodules and len(submodules) == len(names) else submodules | {target}
            for name in wanted & modules.keys():
                found.add(name)
                # Importing a.b.c runs a and a.b first; those that hold this module are running already.
                parts = name.split(".")
                above = {".".join(parts[:n]) for n in range(1, len(parts))}
                found |= {a for a in above if not f"{module}.".startswith(f"{a}.")}
    return found - {module}


def find_cycle(modules: Mapping[str, ast.Module]) -> list[str]:
    """The path of one cycle of imports, its first module again at its end; empty without any."""
    needed = {module: sorted(needed_modules(module, modules)) for module in modules}
    done: set[str] = set()

    def visit(module: str, path: list[str]) -> list[str]:
        if module in path:
            return [*path[path.index(module) :], module]
        if module in done:
            return []
        for other in needed[module]:
            cycle = visit(other, [*path, module])
            if cycle:
                return cycle
        done.add(module)
        return []

    return next((cycle for module in sorted(needed) if (cycle := visit(module, []))), [])


def without_docstring(module: str, tree: ast.Module) -> Iterator[str]:
    """Public names of a module that say nothing about themselves."""
    if any(part.startswith("_") and part != "__main__" for part in module.split(".")):
        return
    if tree.body and not ast.get_docstring(tree):
        yield module

    def inside(owner: str, body: list[ast.stmt]) -> Iterator[str]:
        for node in body:
            if not isinstance(node, (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
                continue
            if node.name.startswith("_") or any(is_exempt(d) for d in node.decorator_list):
                continue
            if not ast.get_docstring(node):
                yield f"{owner}.{node.name}"
            if isinstance(node, ast.ClassDef):
                yield from inside(f"{owner}.{node.name}", node.body)

    yield from inside(module, tree.body)


def classes_twice(modules: Mapping[str, ast.Module]) -> dict[str, list[str]]:
    """Names of classes that stand more than once, at any level of a file, with the modules that have them."""
    found: dict[str, list[str]] = {}
    for module, tree in modules.items():
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef):
                found.setdefault(node.name, []).append(module)
    return {name: where for name, where in found.items() if len(where) > 1}


def is_exempt(decorator: ast.expr) -> bool:
    """Whether a function says the same as another one that has a docstring."""
    return ast.unparse(decorator).split(".")[-1] in ("overload", "override", "setter", "deleter")


def parsed(**texts: str) -> dict[str, ast.Module]:
    """Modules from their text; ``__`` stands for a dot in a name."""
    return {name.replace("__", "."): ast.parse(text) for name, text in texts.items()}


def test_every_package_has_its_place_in_the_order_of_imports() -> None:
    rules = PYPROJECT["tool"]["importlinter"]
    order = " ".join(rules["contracts"][0]["layers"]).replace(" | ", " ").split()
    assert sorted(ROOTS) == sorted(rules["root_packages"]) == sorted(order)


@pytest.mark.parametrize("root", sorted(ROOTS))
def test_no_module_needs_itself(root: str) -> None:
    cycle = find_cycle(SOURCES[root])
    assert not cycle, "imports in a circle: " + " -> ".join(cycle)


@pytest.mark.parametrize("root", sorted(ROOTS))
def test_whatever_is_public_has_a_docstring(root: str) -> None:
    assert [name for module, tree in SOURCES[root].items() for name in without_docstring(module, tree)] == []


@pytest.mark.parametrize("folder", [*sorted(ROOTS), "tests"])
def test_texts_name_the_thing_they_are_about(folder: str) -> None:
    root = ROOTS.get(folder, HOUSE / folder)
    files = {path for kind in ("py", "c", "css", "j2", "js", "txt", "yaml") for path in root.rglob(f"*.{kind}")}
    texts = {
        str(path.relative_to(HOUSE)): path.read_text(encoding="utf-8") for path in sorted(files - {Path(__file__)})
    }
    found = {
        name: words
        for name, text in texts.items()
        if not name.endswith(".min.js") and (words := unclear(text.replace(*QUOTED.get(name, ("", "")))))
    }
    assert found == {}, "name the task, machine or value instead, and say what it must be"


@pytest.mark.parametrize("root", sorted(ROOTS))
def test_no_class_name_stands_twice(root: str) -> None:
    assert classes_twice(SOURCES[root]) == {}


@pytest.mark.parametrize("page", ["ARCHITECTURE.md", "docs/find-your-way.md"])
def test_files_that_a_page_sends_its_reader_to_are_there(page: str) -> None:
    """In the architecture a path may leave out the package that its section is about."""
    named = re.findall(r"`([\w/]+\.py)`", (HOUSE / page).read_text(encoding="utf-8"))
    files = {str(p.relative_to(HOUSE)) for folder in FOLDERS for p in (HOUSE / folder).rglob("*.py")}
    assert len(named) >= 20
    assert [name for name in named if not any(f == name or f.endswith(f"/{name}") for f in files)] == []


def test_a_round_is_its_numbered_steps_on_one_screen() -> None:
    source = (HOUSE / "flowsched/round/scheduler.py").read_text(encoding="utf-8")
    (whole,) = (n for n in ast.parse(source).body if isinstance(n, ast.ClassDef) and n.name == "FlowScheduler")
    (decide,) = (n for n in whole.body if isinstance(n, ast.FunctionDef) and n.name == "decide")
    lines = source.splitlines()[decide.lineno - 1 : decide.end_lineno]
    assert len(lines) <= 60
    told = (HOUSE / "ARCHITECTURE.md").read_text(encoding="utf-8").partition("## The path of a round")[2]
    steps = re.findall(r"^(\d)\. \*\*(\w+)\*\*", told.partition("\n## ")[0], re.MULTILINE)
    assert re.findall(r"^ +# (\d)\. (\w+)", "\n".join(lines), re.MULTILINE) == steps


def test_pyproject_lists_every_package() -> None:
    folders = {
        ".".join(path.parent.relative_to(root.parent).parts) for root in ROOTS.values() for path in root.rglob("*.py")
    }
    assert sorted(SETUPTOOLS["packages"]) == sorted(folders)
    homes = {name: (HOUSE / folder).resolve() for name, folder in SETUPTOOLS["package-dir"].items()}
    assert homes == {name: root.resolve() for name, root in ROOTS.items()}


def read_pins() -> dict[str, str]:
    pins = {}
    for line in (HOUSE / "constraints.txt").read_text(encoding="utf-8").splitlines():
        if not line.startswith("#"):
            name, version = re.fullmatch(r"([\w.-]+)==([\w.!+]+)", line).groups()  # type: ignore[union-attr]
            pins[canonicalize_name(name)] = version
    return pins


def test_every_pinned_version_installs_on_the_oldest_python() -> None:
    oldest = PYPROJECT["project"]["requires-python"].removeprefix(">=") + ".0"
    refused, compared = [], 0
    for name in read_pins():
        try:
            # By get: where importlib_metadata is imported too, a field that is not there is a KeyError.
            required = metadata(name).get("Requires-Python")
        except PackageNotFoundError:  # of another version of Python or system
            continue
        compared += 1
        if required and oldest not in SpecifierSet(required):
            refused.append(f"{name} needs Python {required}")
    assert compared > 100 and refused == []


def test_every_requirement_is_pinned_to_a_version_that_it_allows() -> None:
    pins = read_pins()
    project = PYPROJECT["project"]
    groups = [project["dependencies"], *project["optional-dependencies"].values()]
    needed = [Requirement(text) for group in groups for text in group]
    pinned = {str(one): pins.get(canonicalize_name(one.name)) for one in needed if one.name != "flowsched"}
    assert [text for text, version in pinned.items() if not version or version not in Requirement(text).specifier] == []


@pytest.mark.parametrize("root", sorted(ROOTS))
def test_every_folder_with_modules_is_a_package(root: str) -> None:
    folders = {path.parent for path in ROOTS[root].rglob("*.py")}
    assert [str(f.relative_to(HOUSE)) for f in sorted(folders) if not (f / "__init__.py").is_file()] == []


@pytest.mark.parametrize("root", sorted(ROOTS))
def test_the_wheel_takes_every_file_that_is_not_python(root: str) -> None:
    top = ROOTS[root]
    files = {
        path
        for path in top.rglob("*")
        if path.is_file() and path.suffix not in (".py", ".pyc") and not path.name.startswith(".")
    }
    taken: set[Path] = set()
    for package, patterns in SETUPTOOLS["package-data"].items():
        if package.split(".")[0] == root:
            folder = top.joinpath(*package.split(".")[1:])
            taken |= {path for pattern in patterns for path in folder.glob(pattern)}
    assert sorted(str(path.relative_to(HOUSE)) for path in files - taken) == []


@pytest.mark.parametrize("root", sorted(ROOTS))
def test_each_docstring_of_an_attribute_stands_below_it(root: str) -> None:
    found = {name: misplaced_docstrings(tree) for name, tree in SOURCES[root].items()}
    assert {name: lines for name, lines in found.items() if lines} == {}


def test_a_cycle_is_told_as_a_path() -> None:
    modules = parsed(p="", p__a="from p import b", p__b="import p.c", p__c="try:\n    from .a import x\nexcept E: pass")
    assert find_cycle(modules) == ["p.a", "p.b", "p.c", "p.a"]


def test_a_package_that_gathers_its_modules_is_no_cycle_unless_they_ask_it_back() -> None:
    gathered = parsed(p="", p__q="from p.q.a import x", p__q__a="from p.q.b import y", p__q__b="")
    assert find_cycle(gathered) == []
    asked = parsed(p="", p__q="from p.q.a import x", p__q__a="from p.q import z")
    assert find_cycle(asked) == ["p.q", "p.q.a", "p.q"]
    through = parsed(p="", p__n="from p.q.a import x", p__q="from p.q.b import y", p__q__a="", p__q__b="import p.n")
    assert find_cycle(through) == ["p.n", "p.q", "p.q.b", "p.n"]
    late = parsed(p="", p__a="from p import b", p__b="def f():\n    from p import a")
    assert find_cycle(late) == []


def test_a_docstring_below_another_attribute_is_found() -> None:
    text = 'CPU = 0\nOTHER = 1\n"""The column of ``cpu``."""\n\nOWN_S: int = 3\n"""Seconds of ``own_s``."""\n'
    assert misplaced_docstrings(ast.parse(text)) == ["3: OTHER is documented as CPU"]
    assert misplaced_docstrings(ast.parse(text.replace("cpu", "other"))) == []


def test_a_missing_docstring_is_found() -> None:
    text = (
        '"""M."""\nclass A:\n    """A."""\n    def f(self): ...\n    def _g(self): ...\ndef h(): ...\nclass _B: ...\n'
    )
    assert list(without_docstring("m", ast.parse(text))) == ["m.A.f", "m.h"]
    assert list(without_docstring("m", ast.parse(""))) == []
    assert list(without_docstring("m", ast.parse("x = 1"))) == ["m"]


def test_unclear_words_are_found_across_lines() -> None:
    assert unclear("It works.\n# Somebody waits for\n# ever; a number is\nwanted, the others") == [
        "2: Somebody",
        "2: for # ever",
        "3: is wanted",
    ]


def test_a_class_that_stands_twice_is_found_wherever_it_hides() -> None:
    modules = parsed(p="", p__a="class A: ...\nclass B: ...", p__b="def f():\n    class A: ...", p__c="class C(A): ...")
    assert classes_twice(modules) == {"A": ["p.a", "p.b"]}
