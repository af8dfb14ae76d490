"""Small C programs: compiled once, never taken from strangers."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from benchmarks import native

SEVEN = "int main(void) { return 7; }\n"
compiles = pytest.mark.skipif(native.compiler() is None, reason="there is no C compiler on this machine")


@compiles
def test_a_program_is_compiled_once(tmp_path: Path) -> None:
    program = native.compile(SEVEN, folder=tmp_path / "kept")
    assert subprocess.run([program], check=False).returncode == 7
    before = program.stat().st_mtime_ns
    assert native.compile(SEVEN, folder=tmp_path / "kept") == program
    assert program.stat().st_mtime_ns == before
    assert [path.name for path in (tmp_path / "kept").iterdir()] == [program.name]


@compiles
def test_another_source_is_another_program(tmp_path: Path) -> None:
    assert native.compile(SEVEN, folder=tmp_path) != native.compile(SEVEN.replace("7", "8"), folder=tmp_path)


@compiles
def test_a_broken_source_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(native.NativeError, match="compiling failed: ") as caught:
        native.compile("int main(", folder=tmp_path)
    assert "\n" not in str(caught.value)
    assert list(tmp_path.iterdir()) == []


@compiles
def test_a_program_that_others_may_have_written_is_made_anew(tmp_path: Path) -> None:
    program = native.compile(SEVEN, folder=tmp_path)
    program.write_text("#!/bin/sh\nexit 9\n", encoding="utf-8")
    program.chmod(0o777)
    assert subprocess.run([native.compile(SEVEN, folder=tmp_path)], check=False).returncode == 7


def test_a_folder_of_others_is_not_used(tmp_path: Path) -> None:
    tmp_path.chmod(0o777)
    with pytest.raises(native.NativeError, match="written by others"):
        native.compile(SEVEN, folder=tmp_path)


def test_a_folder_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("", encoding="utf-8")
    with pytest.raises(native.NativeError, match="cannot be used"):
        native.compile(SEVEN, folder=tmp_path / "file" / "below")


def test_without_a_compiler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CC", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(native.NativeError, match="no C compiler"):
        native.compile(SEVEN, folder=tmp_path)
