"""Records as files: nothing is lost either way, and whatever else a file holds is refused in one sentence."""

from __future__ import annotations

import io
import json
import subprocess
import sys
import zipfile
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flowsched import load_snapshot, solve
from flowsched.cluster.settings import Settings
from flowsched.records.record import record_head
from flowsched.records.record_file import (
    RECORD_MEMBER,
    load_record,
    looks_like_record,
    pack_record,
    read_record,
    record_json,
    write_record,
)
from flowsched_models.document import InputError

SNAPSHOT = Path(__file__).parents[2] / "docs" / "examples" / "snapshot.yaml"


@cache
def solved() -> Mapping[str, Any]:
    record = solve(load_snapshot(SNAPSHOT)).record
    assert record is not None
    return record


def bare(**more: Any) -> dict[str, Any]:
    """The least that is a record."""
    return {**record_head(1, 2.0, "flow", "ortools", Settings()), "parts": [], **more}


def as_json(record: Mapping[str, Any]) -> Any:
    return json.loads(record_json(record))


def refusal(content: bytes) -> str:
    """What is said about a file, in one sentence."""
    with pytest.raises(InputError) as refused:
        read_record(content, "FILE")
    (problem,) = refused.value.problems
    assert problem.source == "FILE"
    assert problem.message
    assert "\n" not in problem.message
    return problem.message


# Round trips


def arrays() -> st.SearchStrategy[np.ndarray[Any, Any]]:
    """Short and long ones, of one and two dimensions."""
    values = st.one_of(
        st.lists(st.integers(-(2**63), 2**63 - 1), max_size=4).map(lambda v: np.array(v, dtype=np.int64)),
        st.lists(st.floats(), max_size=4).map(lambda v: np.array(v, dtype=np.float64)),
        st.lists(st.booleans(), max_size=4).map(lambda v: np.array(v, dtype=np.bool_)),
        st.lists(st.integers(-5, 5), max_size=4).map(lambda v: np.array(v, dtype=np.int16)),
    )

    def shaped(array: np.ndarray[Any, Any], repeats: int, columns: int) -> np.ndarray[Any, Any]:
        long = np.tile(array, repeats)
        return long if columns == 0 else np.stack([long] * columns, axis=1)

    return st.builds(shaped, values, st.sampled_from((1, 40)), st.sampled_from((0, 0, 2)))


def plain_data() -> st.SearchStrategy[Any]:
    floats = st.floats(allow_nan=False, allow_infinity=False)
    leaves = st.one_of(
        st.none(),
        st.booleans(),
        st.integers(),
        floats,
        st.text(max_size=4),
        arrays(),
        st.integers(-9, 9).map(np.int64),
        floats.map(np.float64),
    )
    keys = st.one_of(st.sampled_from(("a", "a/b", "b", "x.npy", RECORD_MEMBER, "..", "\0")), st.text(max_size=3))
    inner = keys.filter(lambda key: key != "$array")
    return st.recursive(
        leaves,
        lambda within: st.one_of(st.lists(within, max_size=4), st.dictionaries(inner, within, max_size=4)),
        max_leaves=12,
    )


@given(plain_data())
def test_archive_and_json_hold_the_same(data: Any) -> None:
    record = bare(more=data)
    text = record_json(record)
    packed = pack_record(record)
    assert record_json(read_record(packed, "npz")) == text
    assert record_json(read_record(text.encode(), "json")) == text
    assert pack_record(read_record(packed, "npz")) == packed


@given(st.lists(arrays(), min_size=1, max_size=3))
def test_arrays_come_back_as_they_were(values: list[np.ndarray[Any, Any]]) -> None:
    """Those that are long enough to be worth a member of their own: with their type and every bit of them."""
    back = read_record(pack_record(bare(more=values)), "npz")["more"]
    for value, other in zip(values, back, strict=True):
        if value.size >= 64 or value.ndim > 1:
            assert other.dtype == value.dtype
            np.testing.assert_array_equal(other, value)
        else:
            assert isinstance(other, list)


def test_a_solved_round_comes_back_from_either_file(tmp_path: Path) -> None:
    write_record(solved(), tmp_path / "a.json")
    write_record(solved(), tmp_path / "sub" / "a.npz")
    assert as_json(load_record(tmp_path / "a.json")) == as_json(load_record(tmp_path / "sub" / "a.npz"))
    assert as_json(load_record(tmp_path / "a.json")) == as_json(solved())
    assert sorted(p.name for p in tmp_path.rglob("*.part")) == []
    assert looks_like_record(tmp_path / "a.json")
    assert looks_like_record(tmp_path / "sub" / "a.npz")


def test_numpy_and_unzip_open_an_archive(tmp_path: Path) -> None:
    write_record(bare(values=np.arange(100)), tmp_path / "a.npz")
    with zipfile.ZipFile(tmp_path / "a.npz") as archive:
        assert archive.testzip() is None
        assert json.loads(archive.read(RECORD_MEMBER))["values"] == {"$array": "values.npy"}
    with np.load(tmp_path / "a.npz") as archive:
        np.testing.assert_array_equal(archive["values"], np.arange(100))


def test_what_cannot_be_told_from_an_array_is_not_written() -> None:
    with pytest.raises(TypeError, match=r"\$array"):
        pack_record(bare(more={"$array": "values.npy"}))
    for foreign in (object(), {1, 2}, b"bytes"):
        with pytest.raises(TypeError, match=r"a record cannot hold|not JSON serializable"):
            record_json(bare(more=foreign))
        with pytest.raises(TypeError):
            pack_record(bare(more=foreign))


def test_equal_records_are_equal_files_in_any_process() -> None:
    program = (
        "import sys, hashlib; from flowsched import load_snapshot, solve;"
        "from flowsched.records.record_file import pack_record;"
        "record = solve(load_snapshot(sys.argv[1])).record;"
        "record['parts'][0]['timings'] = {};"
        "print(hashlib.sha256(pack_record(record)).hexdigest())"
    )
    digests = set()
    for seed in ("1", "2"):
        environment = {"PYTHONHASHSEED": seed, "PYTHONPATH": ":".join(sys.path)}
        command = [sys.executable, "-c", program, str(SNAPSHOT)]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True, timeout=120)
        digests.add(done.stdout)
    assert len(digests) == 1


# Damage


def small_archive() -> bytes:
    return pack_record(bare(values=np.arange(70), more={"text": "x" * 50, "terms": np.linspace(0.0, 1.0, 80)}))


def test_an_archive_cut_off_anywhere_is_refused() -> None:
    content = small_archive()
    for length in range(len(content)):
        message = refusal(content[:length])
        assert "truncated" in message or message in ("is empty", "is neither JSON nor an archive")


def test_json_cut_off_anywhere_is_refused() -> None:
    content = record_json(bare(values=np.arange(70), text="Größe")).encode()
    for length in range(len(content)):
        assert refusal(content[:length])


def test_a_list_of_decisions_is_not_called_damaged() -> None:
    assert refusal(b'{"t_s": 0.1}\n{"t_s": 0.2}\n').startswith("is not the record of a round: it holds more than one")


def test_a_changed_byte_in_an_archive_is_found_or_harmless() -> None:
    content = small_archive()
    whole = as_json(read_record(content, "FILE"))
    rng = np.random.default_rng(7)
    found = 0
    for at in range(len(content)):
        for bit in rng.permutation(8)[:3].tolist():
            changed = bytearray(content)
            changed[at] ^= 1 << bit
            try:
                record = read_record(bytes(changed), "FILE")
            except InputError as error:
                assert len(error.problems) == 1
                assert "\n" not in error.problems[0].message
                found += 1
            else:
                assert as_json(record) == whole
    # What is left are times and rights of members, which are not read.
    assert found > 2 * len(content)


def test_changed_bytes_in_json_are_refused_or_read() -> None:
    """JSON has no check sums: a changed digit is another number. But there is never anything but a sentence."""
    content = record_json(solved()).encode()
    rng = np.random.default_rng(11)
    refused = 0
    for _ in range(1500):
        changed = bytearray(content)
        for at in rng.integers(len(content), size=3).tolist():
            changed[at] = int(rng.integers(256)) if rng.random() < 0.5 else ord(rng.choice(list('0129eE.-"{}[],:')))
        try:
            read_record(bytes(changed), "FILE")
        except InputError as error:
            assert len(error.problems) == 1
            refused += 1
    assert refused > 100


def test_parts_that_do_not_belong_together_are_refused() -> None:
    def changed(change: Any) -> bytes:
        record = as_json(solved())
        change(record["parts"][0])
        return json.dumps(record).encode()

    def drop_an_arc(part: Any) -> None:
        part["first_network"]["tails"].pop()

    def lead_nowhere(part: Any) -> None:
        part["first_network"]["heads"][0] = 10_000

    def shorten_a_term(part: Any) -> None:
        next(iter(part["first_network"]["terms"].values())).pop()

    def forget_the_plan(part: Any) -> None:
        del part["plan"]

    assert "values of" in refusal(changed(drop_an_arc))
    assert "node that is not there" in refusal(changed(lead_nowhere))
    assert "values of terms" in refusal(changed(shorten_a_term))
    assert "'plan' is missing" in refusal(changed(forget_the_plan))
    assert "has the prices x, not one of" in refusal(changed(lambda part: part.update(prices="x")))
    assert "kind is 'x', not one of level" in refusal(changed(lambda part: part.update(kind="x")))


# What is no record


def zipped(**members: bytes) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return out.getvalue()


def plain_npz() -> bytes:
    out = io.BytesIO()
    np.savez(out, values=np.arange(3))
    return out.getvalue()


FOREIGN = {
    "nothing": (b"", "is empty"),
    "a picture": (b"\x89PNG\r\n\x1a\n" + bytes(50), "is neither JSON nor an archive"),
    "text": (b"hello", "is neither JSON nor an archive"),
    "yaml": (b"apiVersion: flowsched/v1\nkind: Snapshot\n", "is neither JSON nor an archive"),
    "a zip": (zipped(**{"word/document.xml": b"<xml/>"}), "without record.json"),
    "arrays of another program": (plain_npz(), "without record.json"),
    "a list": (b"[1, 2]", "no record"),
    "a number": (b"17", "no record"),
    "another object": (b'{"a": 1}', "no record"),
    "a pod": (b'{"apiVersion": "v1", "kind": "Pod"}', "is a Pod, not a Record"),
    "a snapshot": (b'{"apiVersion": "flowsched/v1", "kind": "Snapshot"}', "is a snapshot, not a record"),
    "a record of others": (b'{"apiVersion": "other/v1", "kind": "Record"}', "version other/v1"),
    "deep": (b"[" * 200_000, "nested too deeply"),
    "a huge number": (b'{"n": ' + b"9" * 5000 + b"}", "is damaged"),
    "a hollow archive": (zipped(**{RECORD_MEMBER: b"{}"}), "no record"),
    "an archive without its arrays": (
        zipped(**{RECORD_MEMBER: json.dumps(bare(values={"$array": "values.npy"})).encode()}),
        "is damaged",
    ),
}


@pytest.mark.parametrize(("content", "said"), FOREIGN.values(), ids=FOREIGN)
def test_what_is_no_record_gets_a_sentence(content: bytes, said: str) -> None:
    assert said in refusal(content)


@pytest.mark.parametrize("version", ["flowsched/v3", "flowsched/v4", "flowsched/v6"])
@pytest.mark.parametrize("kind", ["Record", "RoundRecord"])
def test_another_version_is_refused_with_both_versions_and_what_to_do(version: str, kind: str) -> None:
    other = {**bare(), "apiVersion": version, "kind": kind}
    for writer, reader in (("flowsched 0.1.0", ", which flowsched 0.1.0 wrote and reads"), ("a\x1b[2Jb", ""), (3, "")):
        told = f"is a record of version {version}{reader}; this flowsched reads only flowsched/v5"
        assert refusal(json.dumps({**other, "writer": writer}).encode()) == told
    del other["writer"]
    for content in (json.dumps(other).encode(), pack_record(other)):
        assert refusal(content) == f"is a record of version {version}; this flowsched reads only flowsched/v5"
        with pytest.raises(InputError) as refused:
            read_record(content, "FILE")
        assert "solve the round again" in refused.value.problems[0].help


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda part: part["decided_by"][0].update(stage="luck"), "decided_by[0].stage is 'luck', not one of"),
        (lambda part: part["decided_by"][0].update({"pass": 99, "stage": "network", "price": 1.0}), "pass is 99"),
        (lambda part: part["decided_by"][0].update({"pass": 0, "stage": "network", "price": 1.0}), "pass is 0"),
        (lambda part: part["decided_by"][0].update(task="ghost"), "decided_by[0].task is 'ghost'"),
        (lambda part: part["decided_by"][0].update(machine="ghost"), "decided_by[0].machine is 'ghost'"),
        (lambda part: part["passes"][0]["batch"].append("ghost"), "passes[0].batch has 'ghost'"),
    ],
)
def test_a_stage_that_stands_for_nothing_is_refused(change: Any, said: str) -> None:
    record = as_json(solved())
    change(record["parts"][0])
    assert said in refusal(json.dumps(record).encode())


def test_arrays_that_hold_programs_are_not_run() -> None:
    """Numpy can store pickled objects; reading one would run what is in it."""
    out = io.BytesIO()
    np.save(out, np.array([{"a": 1}], dtype=object), allow_pickle=True)
    plain = json.dumps(bare(values={"$array": "values.npy"})).encode()
    assert "is damaged" in refusal(zipped(**{RECORD_MEMBER: plain, "values.npy": out.getvalue()}))


def test_an_archive_that_would_fill_the_memory_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("flowsched.records.record_file.LARGEST_BYTES", 1 << 20)
    bomb = pack_record(bare(values=np.zeros(1 << 18)))
    assert len(bomb) < 1 << 14
    assert refusal(bomb) == "would take more than 1 MiB"
    assert read_record(pack_record(bare(values=np.zeros(1 << 16))), "FILE")


def test_files_that_cannot_be_read_get_a_sentence(tmp_path: Path) -> None:
    for path, said in ((tmp_path, "is a folder"), (tmp_path / "none.npz", "no such file")):
        with pytest.raises(InputError, match=said):
            load_record(path)
