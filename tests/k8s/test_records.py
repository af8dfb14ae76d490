from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from plane import wait_for

from flowsched.cluster.settings import Settings
from flowsched.records.record import record_head
from flowsched.records.record_file import load_record, pack_record, read_record, record_json
from flowsched_k8s.records.records import Records
from flowsched_models.document import InputError

MIB = 1 << 20


def plain(number: int) -> dict[str, Any]:
    """A sound record without parts."""
    return {**record_head(number, 0.0, "flow", "ortools", Settings()), "parts": []}


def recipe(number: int) -> Callable[[], dict[str, Any]]:
    return lambda: plain(number)


def broken() -> dict[str, Any]:
    raise RuntimeError("no such thing")


def files(folder: Path) -> list[str]:
    return sorted(p.name for p in folder.iterdir())


def rounds(records: Records) -> list[str]:
    return [kept.round for kept in records.listing()]


def test_what_was_only_asked_is_never_the_latest() -> None:
    records = Records(5)
    records.add("1", 0.0, dict, pods=frozenset({"a/b"}))
    records.add("rebalancing-1", 0.0, dict, pods=frozenset({"a/b", "c/d"}), asked=True)
    assert (records.find("latest"), records.find("latest", "a/b")) == ("1", "1")
    assert records.find("latest", "c/d") is None
    assert records.find("rebalancing-1") == "rebalancing-1"
    records.close()


def test_the_last_ones_are_kept() -> None:
    records = Records(keep=2)
    for number in range(5):
        records.add(str(number), float(number), recipe(number))
    assert rounds(records) == ["4", "3"]
    assert records.render("2") is None
    assert msgspec.json.decode(records.render("latest") or b"") == plain(4)


def test_a_record_is_made_once_and_only_when_asked_for() -> None:
    made: list[int] = []

    def make() -> dict[str, Any]:
        made.append(1)
        return plain(1)

    records = Records(keep=2)
    records.add("1", 0.0, make)
    assert not made
    assert records.render("1") == records.render("latest") == record_json(plain(1), indent=None).encode()
    assert read_record(records.render("1", packed=True) or b"", "1") == plain(1)
    assert records.render("1", packed=True) == pack_record(plain(1))
    assert made == [1]


def test_nothing_is_kept_before_the_first_round() -> None:
    records = Records(keep=1)
    assert records.render("latest") is None
    assert records.find("latest") is None
    assert records.listing() == []


@pytest.mark.parametrize("round", ["", "latest", "../x", "a/b", ".x", "a b", "x" * 65, "a\n"])
def test_a_round_is_fit_for_a_file_name(round: str) -> None:
    with pytest.raises(ValueError, match="cannot name a round"):
        Records(keep=1).add(round, 0.0, recipe(0))


def test_the_round_of_a_pod_is_known_without_making_records() -> None:
    records = Records(keep=3)
    for number, pods in enumerate([{"ns/a"}, {"ns/a", "ns/b"}, {"ns/b"}, {"ns/c"}]):
        records.add(str(number), 0.0, broken, pods=frozenset(pods))
    assert records.find("latest") == "3"
    assert records.find("latest", "ns/a") == "1"
    assert records.find("latest", "ns/b") == "2"
    assert records.find("latest", "other/a") is None
    assert records.find("2", "ns/b") == "2"
    assert records.find("2", "ns/a") is None
    assert records.find("0", "ns/a") is None, "not kept any more"
    assert [kept.pods for kept in records.listing()] == [1, 1, 2]


def test_the_oldest_are_packed_where_they_take_much_memory() -> None:
    made = threading.Event()

    def make() -> dict[str, Any]:
        made.set()
        return plain(0)

    records = Records(keep=30, loose_bytes=10 * MIB, most_bytes=100 * MIB)
    records.add("0", 0.0, make, size_bytes=8 * MIB)
    assert not made.wait(0.05)
    records.add("1", 0.0, recipe(1), size_bytes=8 * MIB)
    assert made.wait(10)
    assert rounds(records) == ["1", "0"]
    assert records.dropped()["memory"] == 0
    # Once packed it takes next to nothing: ten times what may be loose are kept.
    packed: list[int] = [0]

    def note(number: int) -> Callable[[], dict[str, Any]]:
        def make() -> dict[str, Any]:
            packed.append(number)
            return plain(number)

        return make

    for number in range(2, 30):
        records.add(str(number), 0.0, note(number), size_bytes=8 * MIB)
        wait_for(lambda before=number: before < 3 or packed[-1] == before - 1, "the one before to be packed")
    assert rounds(records) == [str(number) for number in range(29, -1, -1)]
    assert records.dropped()["memory"] == 0
    assert [msgspec.json.decode(records.render(str(n)) or b"")["round"] for n in range(30)] == list(range(30))
    records.close(60)


def test_records_that_cannot_be_packed_in_time_are_let_go() -> None:
    began, free = threading.Event(), threading.Event()

    def slow() -> dict[str, Any]:
        began.set()
        free.wait(30)
        return plain(0)

    records = Records(keep=50, loose_bytes=10 * MIB, most_bytes=40 * MIB)
    for number in range(2):
        records.add(str(number), 0.0, slow, size_bytes=8 * MIB)
    assert began.wait(10)
    for number in range(2, 20):
        records.add(str(number), 0.0, recipe(number), size_bytes=8 * MIB)
    # What is being packed is not let go: it will soon be small.
    assert rounds(records) == ["19", "18", "17", "16", "0"]
    assert records.dropped() == {"busy": 0, "failed": 0, "memory": 15}
    records.add("huge", 0.0, recipe(20), size_bytes=1000 * MIB)
    assert rounds(records) == ["huge", "0"], "the last one is kept whatever it takes"
    free.set()
    wait_for(lambda: records.render("0") == record_json(plain(0), indent=None).encode(), "it to be packed")
    records.close(60)


def test_a_record_that_cannot_be_packed_is_gone_and_counted(caplog: pytest.LogCaptureFixture) -> None:
    records = Records(keep=50, loose_bytes=MIB)
    records.add("bad", 0.0, broken, size_bytes=2 * MIB)
    records.add("good", 0.0, recipe(1), size_bytes=2 * MIB)
    wait_for(lambda: rounds(records) == ["good"], "the bad one to be gone")
    assert records.dropped()["failed"] == 1
    assert "no such thing" in caplog.text


def test_files_are_archives_and_the_oldest_are_removed(tmp_path: Path) -> None:
    folder = tmp_path / "a" / "records"
    records = Records(2, folder)
    for number in range(4):
        records.add(f"r{number}", 1_700_000_000.5 + number, recipe(number))
    records.close(60)
    assert files(folder) == ["20231114T221322.500000Z-r2.npz", "20231114T221323.500000Z-r3.npz"]
    assert load_record(folder / files(folder)[-1]) == plain(3)
    assert records.dropped() == {"busy": 0, "failed": 0, "memory": 0}


def test_another_leader_goes_on_in_the_same_folder(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine", encoding="utf-8")
    for leader in range(2):
        records = Records(2, tmp_path)
        records.add("r1", 1_700_000_000.0 + leader, recipe(1))
        records.add("r2", 1_700_000_010.0 + leader, recipe(2))
        records.close(60)
    assert files(tmp_path) == [
        "20231114T221330.000000Z-r2.npz",
        "20231114T221331.000000Z-r2.npz",
        "notes.txt",
    ]


def test_a_slow_disk_never_holds_up_a_round(tmp_path: Path) -> None:
    free = threading.Event()

    def slow() -> dict[str, Any]:
        free.wait(30)
        return plain(0)

    records = Records(100, tmp_path)
    for number in range(30):
        records.add(f"r{number}", float(number), slow)
    assert records.dropped()["busy"] >= 10
    assert len(records.listing()) == 30, "in memory there are all of them"
    free.set()
    records.close(60)
    assert len(files(tmp_path)) + records.dropped()["busy"] == 30


def test_records_that_wait_for_a_slow_disk_take_little_memory(tmp_path: Path) -> None:
    free = threading.Event()

    def slow() -> dict[str, Any]:
        free.wait(30)
        return plain(0)

    records = Records(2, tmp_path, most_bytes=40 * MIB)
    for number in range(10):
        records.add(str(number), float(number), slow, size_bytes=8 * MIB)
    # Two of them fit into the half that is for the folder, whether they are still kept or not.
    assert records.dropped() == {"busy": 8, "failed": 0, "memory": 0}
    free.set()
    records.close(60)
    assert len(files(tmp_path)) == 2


def test_a_record_that_cannot_be_written_does_not_stop_the_others(tmp_path: Path) -> None:
    records = Records(5, tmp_path)
    records.add("bad", 0.0, broken)
    records.add("good", 1.0, recipe(1))
    records.close(60)
    assert [name.split("-")[1] for name in files(tmp_path)] == ["good.npz"]
    assert records.dropped() == {"busy": 0, "failed": 1, "memory": 0}


def test_a_folder_that_cannot_be_is_said_at_once(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("", encoding="utf-8")
    with pytest.raises(InputError, match="cannot be written"):
        Records(5, tmp_path / "file")
