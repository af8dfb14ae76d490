from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any

import pytest

from flowsched_k8s.records import WAITING, Records
from flowsched_models.document import InputError


def files(folder: Path) -> list[str]:
    return sorted(p.name for p in folder.iterdir())


def test_the_last_ones_are_kept() -> None:
    records = Records(keep=2)
    for number in range(5):
        records.add(str(number), float(number), {"n": number})
    assert [k.round for k in records.listing()] == ["4", "3"]
    assert records.render("2") is None
    assert json.loads(records.render("latest") or b"") == {"n": 4}


def test_a_record_is_made_once_and_only_when_asked_for() -> None:
    made: list[int] = []

    def make() -> dict[str, Any]:
        made.append(1)
        return {"n": 1}

    records = Records(keep=2)
    records.add("1", 0.0, make)
    assert not made
    assert records.render("1") == records.render("latest") == b'{"n":1}'
    assert made == [1]


def test_nothing_is_kept_before_the_first_round() -> None:
    assert Records(keep=1).render("latest") is None
    assert Records(keep=1).listing() == []


@pytest.mark.parametrize("round", ["", "latest", "../x", "a/b", ".x", "a b", "x" * 65, "a\n"])
def test_a_round_is_fit_for_a_file_name(round: str) -> None:
    with pytest.raises(ValueError, match="cannot name a round"):
        Records(keep=1).add(round, 0.0, {})


def test_files_are_whole_and_the_oldest_are_removed(tmp_path: Path) -> None:
    folder = tmp_path / "a" / "records"
    records = Records(2, folder)
    for number in range(4):
        records.add(f"r{number}", 1_700_000_000.5 + number, {"n": number})
    records.close()
    assert files(folder) == ["20231114T221322.500000Z-r2.json", "20231114T221323.500000Z-r3.json"]
    assert json.loads((folder / files(folder)[-1]).read_text(encoding="utf-8")) == {"n": 3}
    assert records.unwritten == 0


def test_another_leader_goes_on_in_the_same_folder(tmp_path: Path) -> None:
    (tmp_path / "notes.json").write_text("{}", encoding="utf-8")
    (tmp_path / "20200101T000000.000000Z-r9.json.part").write_text("{", encoding="utf-8")
    for leader in range(2):
        records = Records(2, tmp_path)
        records.add("r1", 1_700_000_000.0 + leader, {"leader": leader})
        records.add("r2", 1_700_000_010.0 + leader, {"leader": leader})
        records.close()
    assert files(tmp_path) == [
        "20231114T221330.000000Z-r2.json",
        "20231114T221331.000000Z-r2.json",
        "notes.json",
    ]


def test_a_slow_disk_never_holds_up_a_round(tmp_path: Path) -> None:
    free = threading.Event()

    def slow() -> dict[str, Any]:
        free.wait(30)
        return {}

    records = Records(100, tmp_path)
    for number in range(WAITING + 10):
        records.add(f"r{number}", float(number), slow)
    assert records.unwritten >= 9
    assert len(records.listing()) == WAITING + 10
    free.set()
    records.close()
    assert len(files(tmp_path)) + records.unwritten == WAITING + 10


def test_a_record_that_cannot_be_made_does_not_stop_the_others(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def broken() -> dict[str, Any]:
        raise RuntimeError("no such thing")

    records = Records(5, tmp_path)
    records.add("bad", 0.0, broken)
    records.add("good", 1.0, {"n": 1})
    records.close()
    assert [name.split("-")[1] for name in files(tmp_path)] == ["good.json"]
    assert records.unwritten == 1
    assert "no such thing" in caplog.text


def test_a_folder_that_cannot_be_is_said_at_once(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("", encoding="utf-8")
    with pytest.raises(InputError, match="cannot be written"):
        Records(5, tmp_path / "file")


def test_a_folder_that_vanishes_is_logged_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    folder = tmp_path / "records"
    records = Records(5, folder)
    folder.rmdir()
    for number in range(3):
        records.add(f"r{number}", float(number), {})
    records.close()
    assert records.unwritten == 3
    assert caplog.text.count("a record was not written") == 1
