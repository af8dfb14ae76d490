"""The writer beside the decision path: it never holds a round up, never writes half a record, and counts what it loses."""

from __future__ import annotations

import gc
import json
import logging
import os
import signal
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from record_recipes import PAUSE_S, USUAL_PRIORITY, broken, endless, fatal, plain, where_it_is_made

from flowsched import load_record
from flowsched.errors import MakingError
from flowsched.records import record_maker
from flowsched.records.record_file import pack_record
from flowsched.records.record_maker import NICENESS, RecordMaker
from flowsched.records.record_writer import RecordWriter
from flowsched_models.document import InputError

NAMES = r"round-[0-9]+"


@pytest.fixture(autouse=True)
def _usual_priority(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(record_maker, "_START", USUAL_PRIORITY)


def files(folder: Path) -> list[str]:
    return sorted(p.name for p in folder.iterdir())


def counts(writer: RecordWriter) -> tuple[int, int, int]:
    return writer.written, writer.dropped, writer.failed


def in_this_process(number: int) -> Callable[[], dict[str, Any]]:
    """A local function cannot cross to another process."""
    return lambda: plain(number)


def test_records_are_whole_files_and_the_oldest_go(tmp_path: Path) -> None:
    folder = tmp_path / "a" / "records"
    writer = RecordWriter(folder, 3, names=NAMES)
    for number in (8, 9, 10, 11, 100):
        assert writer.add(f"round-{number}", partial(plain, number))
    assert writer.flush(PAUSE_S)
    assert counts(writer) == (5, 0, 0)
    assert files(folder) == ["round-10.npz", "round-100.npz", "round-11.npz"], "numbers in names count as numbers"
    assert load_record(folder / "round-100.npz")["round"] == 100
    assert writer.close()
    assert not writer.add("round-101", partial(plain, 101)), "a closed writer takes nothing"
    assert counts(writer) == (5, 1, 0)


def test_all_are_kept_without_a_bound(tmp_path: Path) -> None:
    writer = RecordWriter(tmp_path, names=NAMES)
    for number in range(10):
        writer.add(f"round-{number}", in_this_process(number))
    assert writer.close(PAUSE_S)
    assert len(files(tmp_path)) == 10


def test_files_of_others_are_left_alone(tmp_path: Path) -> None:
    foreign = ["notes.txt", "round-1.json", "round-x.npz", "other-1.npz", "other-1.npz.part", "round-1.npz.part.part"]
    for name in foreign:
        (tmp_path / name).write_bytes(b"mine")
    (tmp_path / "round-7.npz").mkdir()
    (tmp_path / "round-5.npz.part").write_bytes(b"half")
    (tmp_path / "round-3.npz").write_bytes(pack_record(plain(3)))
    writer = RecordWriter(tmp_path, 1, names=NAMES)
    writer.add("round-4", partial(plain, 4))
    assert writer.close(PAUSE_S)
    assert counts(writer) == (1, 0, 0)
    assert set(files(tmp_path)) - set(foreign) <= {"round-4.npz", "round-7.npz"}, "the draft and the oldest are gone"
    assert set(foreign) <= set(files(tmp_path))
    assert load_record(tmp_path / "round-4.npz")["round"] == 4


@pytest.mark.parametrize(
    "name", ["", "../round-1", "round-1/x", ".round-1", "round 1", "round-1\n", "round-", "r" * 200]
)
def test_a_name_is_fit_for_a_file_and_of_the_writer_s_form(name: str, tmp_path: Path) -> None:
    writer = RecordWriter(tmp_path, names=NAMES)
    with pytest.raises(ValueError, match="cannot name a record"):
        writer.add(name, partial(plain, 1))
    anything = RecordWriter(tmp_path, names=r"(?s:.*)")
    if name not in ("round-",):
        with pytest.raises(ValueError, match="cannot name a record"):
            anything.add(name, partial(plain, 1))
    writer.close()
    anything.close()
    assert files(tmp_path) == []


def test_names_say_when_unless_told_otherwise(tmp_path: Path) -> None:
    writer = RecordWriter(tmp_path)
    assert writer.add("20231114T221322.500000Z-r2", partial(plain, 2))
    with pytest.raises(ValueError, match="cannot name a record"):
        writer.add("r2", partial(plain, 2))
    assert writer.close(PAUSE_S)
    assert files(tmp_path) == ["20231114T221322.500000Z-r2.npz"]


def test_under_back_pressure_whole_records_are_dropped_and_counted(tmp_path: Path) -> None:
    free = threading.Event()
    begun = threading.Event()

    def slow() -> dict[str, Any]:
        begun.set()
        free.wait(PAUSE_S)
        return plain(0, 1000)

    writer = RecordWriter(tmp_path, waiting=4, names=NAMES)
    assert writer.add("round-0", slow)
    assert begun.wait(PAUSE_S)
    began = time.monotonic()
    taken = [writer.add(f"round-{number}", partial(plain, number, 1000)) for number in range(1, 40)]
    assert time.monotonic() - began < PAUSE_S, "the caller is not held up"
    assert taken == [True] * 4 + [False] * 35
    assert writer.dropped == 35
    assert not writer.flush(0.01)
    free.set()
    assert writer.close(PAUSE_S)
    assert counts(writer) == (5, 35, 0)
    assert files(tmp_path) == [f"round-{n}.npz" for n in range(5)]
    for name in files(tmp_path):
        assert len(load_record(tmp_path / name)["noise"]) == 1000


def test_who_waits_loses_nothing(tmp_path: Path) -> None:
    writer = RecordWriter(tmp_path, waiting=1, names=NAMES)

    def slow(number: int) -> dict[str, Any]:
        time.sleep(0.01)
        return plain(number)

    for number in range(20):
        assert writer.add(f"round-{number}", partial(slow, number), wait=True)
    assert writer.flush(PAUSE_S)
    assert counts(writer) == (20, 0, 0)
    assert len(files(tmp_path)) == 20
    writer.close()


def test_a_caller_that_waits_for_room_is_let_go_when_the_writer_is_closed(tmp_path: Path) -> None:
    free = threading.Event()
    answers = []

    def slow() -> dict[str, Any]:
        free.wait(PAUSE_S)
        return plain(0)

    writer = RecordWriter(tmp_path, waiting=1, names=NAMES)
    writer.add("round-0", slow, wait=True)
    writer.add("round-1", slow, wait=True)
    waits = threading.Thread(target=lambda: answers.append(writer.add("round-2", slow, wait=True)))
    waits.start()
    assert not writer.close(0.2)
    waits.join(PAUSE_S)
    assert answers == [False]
    free.set()
    assert writer.flush(PAUSE_S)
    assert counts(writer) == (1, 2, 0)


def test_closing_takes_no_longer_than_it_may(tmp_path: Path) -> None:
    folder, begun = tmp_path / "records", tmp_path / "begun"
    writer = RecordWriter(folder, names=NAMES)
    for number in range(3):
        writer.add(f"round-{number}", partial(endless, begun))
    deadline = time.monotonic() + PAUSE_S
    while not begun.exists():
        assert time.monotonic() < deadline, "the process does not begin"
        time.sleep(0.01)
    began = time.monotonic()
    assert not writer.close(0.3)
    assert time.monotonic() - began < PAUSE_S / 10, "it would take until the record is made"
    assert writer.flush(PAUSE_S), "the record that was being made is given up"
    assert counts(writer) == (0, 2, 1)
    assert files(folder) == []


def test_many_may_add_at_once(tmp_path: Path) -> None:
    writer = RecordWriter(tmp_path, waiting=8, names=NAMES)

    def add(offset: int) -> None:
        for number in range(offset, offset + 50):
            writer.add(f"round-{number}", in_this_process(number), wait=number % 2 == 0)

    threads = [threading.Thread(target=add, args=(100 * i,)) for i in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PAUSE_S)
    assert writer.close(PAUSE_S)
    assert sum(counts(writer)) == 300
    assert writer.written == len(files(tmp_path)) >= 150
    assert writer.failed == 0


def test_what_a_record_is_made_of_is_let_go(tmp_path: Path) -> None:
    class RecordView:
        def record(self) -> dict[str, Any]:
            return plain(1)

    recorded = RecordView()
    alive = weakref.ref(recorded)
    writer = RecordWriter(tmp_path, names=NAMES)
    writer.add("round-1", recorded.record)
    del recorded
    assert writer.flush(PAUSE_S)
    gc.collect()
    assert alive() is None
    writer.close()


# The process


def test_records_are_made_in_a_process_of_lower_priority(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    writer = RecordWriter(tmp_path, names=NAMES)
    for number in range(3):
        writer.add(f"round-{number}", partial(where_it_is_made, number))
    assert writer.flush(PAUSE_S)
    records = [load_record(tmp_path / name) for name in files(tmp_path)]
    assert [r["round"] for r in records] == [0, 1, 2]
    (process,) = {r["process"] for r in records}
    assert process != os.getpid()
    assert records[0]["niceness"] == min(19, os.nice(0) + NICENESS)
    os.kill(process, 0)
    writer.close()
    with pytest.raises(ProcessLookupError):
        os.kill(process, 0)


def test_arrays_cross_unharmed(tmp_path: Path) -> None:
    arrays = {
        "long": np.arange(100_000),
        "columns": np.arange(300.0).reshape(100, 3)[:, ::2],
        "turned": np.asfortranarray(np.arange(300).reshape(100, 3)),
        "none": np.zeros((0, 3)),
        "flags": np.arange(100) % 3 == 0,
    }
    maker = RecordMaker()
    recipe = partial(plain, 1, **arrays)
    assert maker.make(recipe) == pack_record(recipe())
    maker.close()


def test_what_cannot_cross_is_made_here() -> None:
    maker = RecordMaker()
    here = os.getpid()
    made = maker.make(lambda: plain(1, process=os.getpid()))
    assert made == pack_record(plain(1, process=here))
    with pytest.raises(ZeroDivisionError):
        maker.make(lambda: {"value": 1 // 0})
    maker.close()


def test_a_record_that_cannot_be_made_is_logged_once_and_stops_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    writer = RecordWriter(tmp_path, names=NAMES)
    for number in range(3):
        writer.add(f"round-{number}", partial(broken, number))
    writer.add("round-3", partial(plain, 3))
    writer.add("round-4", partial(broken, 4))
    assert writer.close(PAUSE_S)
    assert counts(writer) == (1, 0, 4)
    assert files(tmp_path) == ["round-3.npz"]
    assert [r.getMessage().partition(":")[0] for r in caplog.records if r.levelno >= logging.WARNING] == [
        "record round-0 could not be made",
        "record round-4 could not be made",
    ]
    assert "no such thing as 0" in caplog.text
    assert "no such thing as 4" in str(writer.error)


def test_another_process_takes_over_when_one_dies(tmp_path: Path) -> None:
    writer = RecordWriter(tmp_path, names=NAMES)
    writer.add("round-0", partial(plain, 0))
    writer.add("round-1", fatal)
    writer.add("round-2", partial(plain, 2))
    assert writer.close(PAUSE_S)
    assert counts(writer) == (2, 0, 1)
    assert isinstance(writer.error, MakingError)
    assert files(tmp_path) == ["round-0.npz", "round-2.npz"]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signals_are_for_the_parent(number: signal.Signals) -> None:
    """A terminal and a service manager signal both; what waits is still written if the parent says so."""
    maker = RecordMaker()
    maker.make(partial(where_it_is_made, 0))
    process = maker._process
    assert process is not None
    os.kill(process.pid, number)
    assert maker.make(partial(plain, 1)) == pack_record(plain(1))
    assert process.poll() is None
    maker.close()


# The disk


def test_a_folder_that_cannot_be_is_said_at_once(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("", encoding="utf-8")
    with pytest.raises(InputError, match="cannot be written"):
        RecordWriter(tmp_path / "file")


def test_a_folder_that_vanishes_is_logged_once_until_it_is_back(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = tmp_path / "records"
    writer = RecordWriter(folder, 5, names=NAMES)
    writer.add("round-0", in_this_process(0))
    assert writer.flush(PAUSE_S)
    (folder / "round-0.npz").unlink()
    folder.rmdir()
    for number in range(1, 4):
        writer.add(f"round-{number}", in_this_process(number))
    assert writer.flush(PAUSE_S)
    assert counts(writer) == (1, 0, 3)
    assert caplog.text.count("was not written") == 1
    folder.mkdir()
    writer.add("round-4", in_this_process(4))
    assert writer.flush(PAUSE_S)
    folder.rename(tmp_path / "elsewhere")
    writer.add("round-5", in_this_process(5))
    assert writer.close(PAUSE_S)
    assert counts(writer) == (2, 0, 4)
    assert caplog.text.count("was not written") == 2
    assert files(tmp_path / "elsewhere") == ["round-4.npz"]


def test_a_name_that_is_taken_by_a_folder_fails_alone(tmp_path: Path) -> None:
    writer = RecordWriter(tmp_path, names=NAMES)
    (tmp_path / "round-1.npz").mkdir()
    for number in range(3):
        writer.add(f"round-{number}", in_this_process(number))
    assert writer.close(PAUSE_S)
    assert counts(writer) == (2, 0, 1)
    assert files(tmp_path) == ["round-0.npz", "round-1.npz", "round-2.npz"]


SCRIPT = f"""
import sys
sys.path[:] = {sys.path!r}
from functools import partial
from pathlib import Path
from flowsched.records import record_maker
from flowsched.records.record_writer import RecordWriter
from record_recipes import USUAL_PRIORITY, plain
record_maker._START = USUAL_PRIORITY
"""

FULL = (
    SCRIPT
    + """
import json, logging, resource
logging.basicConfig(stream=sys.stderr)
resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, resource.RLIM_INFINITY))
writer = RecordWriter(Path(sys.argv[1]), names="round-[0-9]+")
for number, size in enumerate((10, 10_000, 10_000, 20, 10_000)):
    writer.add(f"round-{number}", partial(plain, number, size))
    writer.flush()
writer.close()
print(json.dumps([writer.written, writer.dropped, writer.failed, str(writer.error)]))
"""
)


def test_a_full_disk_leaves_no_part_of_a_record(tmp_path: Path) -> None:
    """No file may grow beyond 20 kB there: the write stops in the middle, as on a disk without room."""
    done = subprocess.run(
        [sys.executable, "-c", FULL, tmp_path], capture_output=True, text=True, timeout=PAUSE_S, check=True
    )
    written, dropped, failed, error = json.loads(done.stdout)
    assert (written, dropped, failed) == (2, 0, 3)
    assert "cannot be written: file too large" in error
    assert files(tmp_path) == ["round-0.npz", "round-3.npz"]
    assert done.stderr.count("was not written") == 2


ENDLESS = (
    SCRIPT
    + """
import itertools, os, time
sync = os.fsync
def slow_sync(file):
    time.sleep(0.05)
    sync(file)
os.fsync = slow_sync
writer = RecordWriter(Path(sys.argv[1]), keep=6, waiting=2, names="round-[0-9]+")
for number in itertools.count(int(sys.argv[2])):
    writer.add(f"round-{number}", lambda: plain(number, 20_000), wait=True)
"""
)


def test_a_crash_leaves_no_half_written_record(tmp_path: Path) -> None:
    """Killed again and again while it writes to a slow disk: what has a final name is whole, the next one tidies up."""
    drafts = 0
    for life in range(1, 5):
        command = [sys.executable, "-c", ENDLESS, str(tmp_path), str(1000 * life)]
        with subprocess.Popen(command) as process:
            deadline = time.monotonic() + PAUSE_S
            while time.monotonic() < deadline:
                names = files(tmp_path)
                if any(name.startswith(f"round-{life}") and name.endswith(".npz") for name in names) and any(
                    name.endswith(".part") for name in names
                ):
                    break
                time.sleep(0.005)
            process.kill()
        names = files(tmp_path)
        whole = [name for name in names if name.endswith(".npz")]
        assert 1 <= len(whole) <= 7, "one more than is kept while the oldest is about to go"
        for name in whole:
            assert len(load_record(tmp_path / name)["noise"]) == 20_000
        half = [name for name in names if name.endswith(".part")]
        assert len(half) <= 1, "what the one before left is gone"
        drafts += len(half)
    assert drafts, "at least one was killed in the middle of a file"


ORPHAN = (
    SCRIPT
    + """
import os, signal
from record_recipes import where_it_is_made
writer = RecordWriter(Path(sys.argv[1]), names="round-[0-9]+")
writer.add("round-0", partial(where_it_is_made, 0))
writer.flush()
os.kill(os.getpid(), signal.SIGKILL)
"""
)


def test_the_process_ends_with_its_parent(tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-c", ORPHAN, tmp_path], timeout=PAUSE_S, check=False)
    process = load_record(tmp_path / "round-0.npz")["process"]
    deadline = time.monotonic() + PAUSE_S
    while time.monotonic() < deadline:
        try:
            os.kill(process, 0)
            # It may not have been collected yet.
            if Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] == "Z":
                return
        except (ProcessLookupError, FileNotFoundError):
            return
        time.sleep(0.02)
    pytest.fail("it runs on")
