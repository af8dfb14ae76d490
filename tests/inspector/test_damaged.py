"""Records that were edited: every command says in one sentence that they are damaged, or works with them."""

from __future__ import annotations

import copy
import json
import random
import warnings
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from inspected import bulk, on_kubernetes, searched

from flowsched.cli import flowsched
from flowsched.inspector.consistency import told_as_damage
from flowsched.inspector.record_view import RecordView
from flowsched.records.record_file import record_json, write_record
from flowsched_models.document import InputError, Problem

pytestmark = pytest.mark.tampers

CHANGES = 40
"""Of each record and seed; with two records and two seeds four times that."""
ANOTHER: tuple[Any, ...] = (
    None, "x", "", -1, 0, 1.5, True, 2**62, 10**30, -(10**18), float("nan"), float("inf"), [], {}, [None], ["x"],
    {"a": 1}, "\ud800\x1b[31m",
)  # fmt: skip
GONE = object()


@cache
def plain(kind: str) -> Any:
    made = {"search": searched, "bulk": lambda: bulk(6, 2, 3), "pods": on_kubernetes}[kind]()  # type: ignore[operator]
    return json.loads(record_json(made))


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Ways to all values; of a list the first few."""
    inner = value.items() if isinstance(value, dict) else enumerate(value[:3]) if isinstance(value, list) else ()
    return [*([path] if path else []), *(p for key, item in inner for p in places(item, (*path, key)))]


def tampered(record: Any, rng: random.Random) -> tuple[Any, str]:
    """The record with one value changed, or gone; every kind of place is as likely."""
    kinds: dict[tuple[Any, ...], list[tuple[Any, ...]]] = {}
    for path in places(record):
        kinds.setdefault(tuple("#" if isinstance(key, int) else key for key in path), []).append(path)
    path = rng.choice(kinds[rng.choice(sorted(kinds, key=str))])
    value = rng.choice((*ANOTHER, GONE))
    changed = copy.deepcopy(record)
    holder = changed
    for key in path[:-1]:
        holder = holder[key]
    if value is GONE:
        del holder[path[-1]]
    else:
        holder[path[-1]] = value
    return changed, f"{'.'.join(map(str, path))} <- {'nothing' if value is GONE else repr(value)}"


def run(*args: object) -> tuple[int, str]:
    """Exit code and standard error, as the program gives them; what is no :class:`InputError` is raised."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        result = CliRunner().invoke(flowsched, [*map(str, args)], standalone_mode=False)
    if isinstance(result.exception, InputError):
        assert not result.stdout
        return result.exception.exit_code, str(result.exception)
    if result.exception is not None:
        raise result.exception
    return int(result.return_value or 0), result.stderr


@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize(
    ("kind", "placed", "waiting"), [("search", "blackscholes", "ferret"), ("bulk", "shop/web-0-0", "shop/huge-0")]
)
def test_one_changed_value_never_ends_in_a_traceback(
    kind: str, placed: str, waiting: str, seed: int, tmp_path: Path
) -> None:
    rng = random.Random(f"{kind} {seed}")
    sound, path, page = tmp_path / "sound.json", tmp_path / "changed.json", tmp_path / "page.html"
    sound.write_text(json.dumps(plain(kind)))
    commands: list[tuple[object, ...]] = [
        ("inspect", path), ("inspect", path, "--all"), ("inspect", path, "--json"), ("inspect", path, "--dot", "-"),
        ("inspect", path, "--graphml", "-"), ("inspect", path, "--dimacs", "-"), ("inspect", path, "--html", page),
        ("inspect", path, "--against", sound), ("inspect", sound, "--against", path), ("explain", path, placed),
        ("explain", path, waiting, "--json"), ("replay", path), ("whatif", path, "--without", placed),
        ("whatif", path, "--solver", "networkx", "--json"),
    ]  # fmt: skip
    refused = 0
    for _ in range(CHANGES):
        record, what = tampered(plain(kind), rng)
        path.write_text(json.dumps(record))
        for command in rng.sample(commands, 3):
            try:
                code, err = run(*command)
            except Exception as error:
                raise AssertionError(f"{what}: {command}") from error
            assert code in (0, 2, 4), (what, command)
            if code == 2:
                refused += 1
                assert err.count("\n") == 0, (what, command, err)
                assert "Error" not in err, (what, command, err)
            else:
                assert err in ("", f"html: {page}\n"), (what, command, err)
    assert refused > CHANGES


TAMPERED: dict[str, tuple[str, tuple[Any, ...], Any, str]] = {
    "no parts": ("search", ("parts",), None, "parts must be a list, not null"),
    "parts by name": ("search", ("parts",), {}, "parts must be a list, not an object"),
    "a number as text": ("search", ("now_s",), "x", "now_s must be a finite number, not 'x'"),
    "infinity": ("search", ("parts", 0, "plan", 0, "slot"), float("inf"), "parts[0].plan[0].slot must be a whole number"),
    "beyond 64 bits": (
        "search", ("parts", 0, "first_network", "unit_costs", 0), 10**30, "first_network.unit_costs[0] must be a whole",
    ),
    "a machine that is not there": (
        "search", ("parts", 0, "plan", 0, "machine"), "x", "plan[0].machine is 'x', not one of",
    ),
    "an index beyond the machines": (
        "bulk", ("parts", 0, "placements", "machine", 0), 99, "placements.machine[0] is 99, which is beyond the 6",
    ),
    "an empty group": ("bulk", ("parts", 0, "group_of", 0), 5, "group_of leaves out a number"),
    "a domain beyond": ("bulk", ("parts", 0, "relations", 0, "domain", 0), 9, "relations[0].domain[0] is 9"),
    "a runner-up beyond": ("bulk", ("parts", 0, "placements", "runner_up", 1), -2, "placements.runner_up[1] is -2"),
    "told twice": ("pods", ("held", 0, "counts"), None, "held[0].counts must be an object, not null"),
}  # fmt: skip


@pytest.mark.parametrize(("kind", "path", "value", "said"), TAMPERED.values(), ids=TAMPERED)
def test_a_value_of_the_wrong_kind_is_named_by_its_place(
    kind: str, path: tuple[Any, ...], value: Any, said: str, tmp_path: Path
) -> None:
    record = copy.deepcopy(plain(kind))
    holder = record
    for key in path[:-1]:
        holder = holder[key]
    holder[path[-1]] = value
    file = tmp_path / "changed.json"
    file.write_text(json.dumps(record))
    for command in (("inspect", file), ("explain", file, "x"), ("replay", file), ("whatif", file)):
        code, err = run(*command)
        assert code == 2
        assert err.startswith(f"{file}: is damaged: ")
        assert said in err


def test_costs_that_no_sum_holds_leave_no_warning(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    record = copy.deepcopy(plain("search"))
    for name, values in record["parts"][0]["first_network"]["terms"].items():
        record["parts"][0]["first_network"]["terms"][name] = [1.7e308] * len(values)
    file = tmp_path / "large.json"
    file.write_text(json.dumps(record))
    for command in (("inspect", file), ("inspect", file, "--html", tmp_path / "page.html")):
        assert run(*command)[0] in (0, 2)
    assert capfd.readouterr().err == ""


def test_bad_input_is_passed_on_as_it_is_and_the_cause_is_kept() -> None:
    recorded = RecordView(searched(), "round.json")
    with pytest.raises(InputError, match="of its own"), told_as_damage(recorded):
        raise InputError([Problem("x", None, "", "of its own")])
    with (
        pytest.raises(InputError, match=r"round.json: parts\[0\]: is damaged: it names 'x'") as caught,
        told_as_damage(recorded),
    ):
        _ = plain("search")["x"]
    assert isinstance(caught.value.__cause__, KeyError)


def test_the_record_that_is_damaged_is_the_one_that_is_named() -> None:
    sound, broken = RecordView(searched(), "sound.json"), copy.deepcopy(plain("search"))
    broken["parts"][0]["placements"]["machine"] = None
    with (
        pytest.raises(InputError, match=r"broken.json: parts\[0\]"),
        told_as_damage(sound, RecordView(broken, "broken.json")),
    ):
        raise TypeError("'NoneType' object is not iterable")


# Folders


def test_a_folder_leaves_out_what_is_no_record_and_says_so(tmp_path: Path) -> None:
    for number in (9999, 10000, 2):
        write_record(searched(), tmp_path / f"flow-{number:04d}.npz")
    (tmp_path / "result.json").write_text('{"jobs": 3}')
    result = CliRunner().invoke(flowsched, ["inspect", str(tmp_path)], standalone_mode=False)
    assert result.exception is None
    named = [line.split()[0] for line in result.stdout.splitlines() if line.startswith("  flow-")]
    assert named == ["flow-0002.npz", "flow-9999.npz", "flow-10000.npz"]
    assert result.stderr == f"{tmp_path}: left out 1 file that is no record: result.json\n"


def test_a_folder_without_any_record_is_refused(tmp_path: Path) -> None:
    (tmp_path / "result.json").write_text('{"jobs": 3}')
    said = f"{tmp_path}: holds no records (*.npz, *.json); flowsched simulate --records FOLDER writes them"
    assert run("inspect", tmp_path) == (2, said)


def test_all_broken_records_of_a_folder_are_told_at_once(tmp_path: Path) -> None:
    write_record(searched(), tmp_path / "a.json")
    for name in ("b.json", "c.json"):
        (tmp_path / name).write_text(json.dumps({**plain("search"), "parts": None}))
    code, err = run("inspect", tmp_path)
    assert code == 2
    assert [line.split(": ")[0] for line in err.splitlines()] == [str(tmp_path / "b.json"), str(tmp_path / "c.json")]


@pytest.mark.parametrize("inside", [False, True])
def test_no_output_replaces_a_record_that_was_read(inside: bool, tmp_path: Path) -> None:
    record, link = tmp_path / "a.json", tmp_path / "hard.html"
    write_record(searched(), record)
    before = record.read_bytes()
    link.hardlink_to(record)
    for output in (record, tmp_path / ".." / tmp_path.name / "a.json", link):
        code, err = run("inspect", tmp_path if inside else record, "--html", output)
        assert (code, "is the record already" in err) == (2, True)
        for option in ("--record", "--html"):
            code, err = run("whatif", record, option, output)
            assert (code, "is the record already" in err) == (2, True)
    assert record.read_bytes() == before
