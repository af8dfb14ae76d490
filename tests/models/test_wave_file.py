"""The course of a load in a CSV file."""

from __future__ import annotations

from pathlib import Path

import pytest

from flowsched_models.document import Problems
from flowsched_models.wave_file import read_wave


def read(folder: Path, text: str | bytes, most_qps: float = 1e6) -> tuple[tuple[float, ...], list[str]]:
    path = folder / "wave.csv"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    problems = Problems()
    loads = read_wave(problems, path, most_qps)
    return loads, [str(problem).removeprefix(f"{path}") for problem in problems.found]


@pytest.mark.parametrize("text", ["qps\n8K\n34000\n", "n, qps ,x\r\n1,8K,\r\n\r\n , ,\r\n2,3.4e4,y", 'qps\n"8K"\n34K'])
def test_loads_stand_in_one_column(tmp_path: Path, text: str) -> None:
    assert read(tmp_path, text) == ((8_000.0, 34_000.0), [])


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", [":1: there must be one column 'qps', in queries per second; the header has no such column"]),
        ("rate\n5\n", [":1: there must be one column 'qps', in queries per second; the header has no such column"]),
        ("qps,qps\n5,6\n", [":1: there must be one column 'qps'"]),
        ("qps\n\n", [": there is no load below the header; give one line per interval"]),
        ("n,qps\n0,many\n1\n2,-5\n3,2M\n", [":2: column 'qps': ", ":3: this line has 1 values", ":4: ", ":5: "]),
        ('qps\n5\n"6', [": not a valid CSV file"]),
        (b"qps\n\xff\n", [""]),
    ],
)
def test_every_mistake_is_told_with_its_line(tmp_path: Path, text: str | bytes, said: list[str]) -> None:
    loads, found = read(tmp_path, text)
    assert len(found) == len(said), found
    assert [one.startswith(words) for one, words in zip(found, said, strict=True)] == [True] * len(said), found
    assert loads in ((), (5.0,))


def test_the_limit_and_a_file_that_is_not_there(tmp_path: Path) -> None:
    assert read(tmp_path, "qps\n6\n", most_qps=5.0)[1] == [
        ":2: column 'qps': no load is beyond 5 queries per second, but this is 6"
    ]
    problems = Problems()
    assert read_wave(problems, tmp_path / "none.csv") == ()
    assert "there is no such file" in str(problems.found[0])
