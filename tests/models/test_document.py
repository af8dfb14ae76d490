from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pydantic import Field

from flowsched_models.document import (
    InputError,
    Problem,
    key_text,
    name_help,
    nearest,
    parse_document,
    read_document,
)
from flowsched_models.form import CoreSet, Form, Name, PositiveInt, check
from flowsched_models.quantity import (
    QuantityError,
    format_cores,
    format_duration_us,
    format_milli,
    parse_cores,
    parse_duration_us,
    parse_memory,
    parse_milli,
    parse_rate,
)


class Inner(Form):
    name: Name
    size: PositiveInt = 1
    cores: CoreSet | None = None


class Outer(Form):
    title: str
    inner: list[Inner] = Field(default_factory=list)
    by_name: dict[str, Inner] = Field(default_factory=dict)


def checked(text: str) -> tuple[Outer | None, list[str]]:
    result = check(parse_document(text, "f.yaml"), Outer)
    return result.value, [str(p) for p in result.problems]


def failure(path: Path) -> str:
    with pytest.raises(InputError) as caught:
        read_document(path)
    assert len(caught.value.problems) == 1
    assert caught.value.exit_code == 2
    return str(caught.value).replace(str(path), "F")


def test_problem_text() -> None:
    help = name_help("freqmin", ["canneal", "freqmine"])
    problem = Problem("scenario.yaml", 14, "jobs[2].profile", "there is no job profile 'freqmin'", help)
    assert str(problem) == (
        "scenario.yaml:14: jobs[2].profile: there is no job profile 'freqmin'; "
        "did you mean 'freqmine'? (known: canneal, freqmine)"
    )
    assert str(Problem("f", None, "", "no")) == "f: no"
    assert key_text(("jobs", 2, "widths", 0)) == "jobs[2].widths[0]"


def test_nearest_ignores_case_and_refuses_far_names() -> None:
    assert nearest("Radix", ["radix", "vips"]) == "radix"
    assert nearest("zzz", ["radix", "vips"]) is None
    assert name_help("zzz", []) == "there is none to choose from"
    assert "…" in name_help("zzz", [f"name{k}" for k in range(40)])


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    assert failure(tmp_path / "none.yaml") == "F: there is no such file"
    assert failure(tmp_path) == "F: this is a directory, not a file"
    path = tmp_path / "x.yaml"
    for content, message in [
        (b"a: \xff", "F: the file is not UTF-8 text (byte 3)"),
        (b"", "F: the file is empty"),
        (b"# nothing\n", "F: the file is empty"),
        (b"- 1\n- 2\n", "F:1: the file must hold 'key: value' pairs, but it is a list"),
        (b"\nword\n", "F:2: the file must hold 'key: value' pairs, but it is a single value"),
    ]:
        path.write_bytes(content)
        assert failure(path) == message


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("a: 1\nb: [1, 2\nc: 3\n", 3),
        ("a: 1\n\tb: 2\n", 2),
        ("a: 1\nb: !!python/object:os.system x\n", 2),
        ("a: &x [*x]\n", 1),
        ("? [1, 2]\n: 3\n", 1),
        ("a: 1\n---\nb: 2\n", 2),
    ],
)
def test_syntax_errors_have_lines(text: str, line: int) -> None:
    with pytest.raises(InputError) as caught:
        parse_document(text, "f.yaml")
    (problem,) = caught.value.problems
    assert problem.line == line
    assert str(problem).startswith(f"f.yaml:{line}: not valid YAML: ")
    assert "\n" not in str(problem)


def test_hostile_documents_are_refused_quickly() -> None:
    bomb = "a0: &a0 [1,1,1,1,1,1,1,1,1,1]\n" + "".join(
        f"a{k}: &a{k} [{','.join([f'*a{k - 1}'] * 10)}]\n" for k in range(1, 9)
    )
    with pytest.raises(InputError, match="too many values"):
        parse_document(bomb, "bomb.yaml")
    with pytest.raises(InputError, match="nested too deeply"):
        parse_document("[" * 20_000 + "]" * 20_000, "deep.yaml")
    with pytest.raises(InputError, match="nested too deeply"):
        parse_document("a: " + "[" * 1_000_000, "deeper.yaml")
    with pytest.raises(InputError, match="nested too deeply"):
        parse_document("- " * 100_000, "deep list.yaml")
    chain = "a0: &a0 1\n" + "".join(f"a{k}: &a{k} [*a{k - 1}]\n" for k in range(1, 2000))
    with pytest.raises(InputError, match=r"nested too deeply|too many values"):
        parse_document(chain, "chain.yaml")
    with pytest.raises(InputError, match="too long"):
        parse_document("a: " + "9" * 10_000, "long.yaml")


def test_scalars_as_in_yaml_1_2() -> None:
    text = "a: no\nb: 1e3\nc: 010\nd: 1:30\ne: 2024-05-01\nf: null\ng: true\nh: 0x10\ni: 0-5\n1: x\n"
    assert parse_document(text, "f").data == {
        "a": "no",
        "b": 1000.0,
        "c": 10,
        "d": "1:30",
        "e": "2024-05-01",
        "f": None,
        "g": True,
        "h": 16,
        "i": "0-5",
        "1": "x",
    }


def test_lines_anchors_and_merges() -> None:
    text = "base: &b {x: 1, y: 2}\nother:\n  <<: *b\n  y: 3\nlist:\n  - 1\n  -\n    z: 4\n"
    document = parse_document(text, "f")
    assert document.data["other"] == {"x": 1, "y": 3}
    assert document.line(("other", "y")) == 4
    assert document.line(("list", 1)) == 8
    assert document.line(("list", 1, "missing", "deeper")) == 8
    assert document.line(("absent",)) == 1


def test_duplicate_keys_come_with_everything_else() -> None:
    _, problems = checked("title: 1\ntitle: x\ninner:\n  - {name: a, nme: b}\n")
    assert problems == [
        "f.yaml:2: title: the key stands twice in this mapping (first on line 1)",
        "f.yaml:4: inner[0].nme: there is no key 'nme' here; did you mean 'name'? (known: name, size, cores)",
    ]


def test_form_problems_in_our_words() -> None:
    value, problems = checked(
        "titel: x\n"
        "inner:\n"
        "  - {name: a, size: 0}\n"
        "  - {name: fine, cores: 1-2}\n"
        "  - {size: 2.5, name: 'two words'}\n"
        "  - {name: b, cores: 5-2}\n"
        "  - 7\n"
        "by_name:\n"
        "  p: {name: 1}\n"
        "  q: {}\n"
    )
    assert value is None
    assert problems == [
        "f.yaml:3: inner[0].size: must be more than 0, but is 0",
        "f.yaml:5: inner[2].name: 'two words' is not a name; a name is one word, without spaces",
        "f.yaml:5: inner[2].size: must be a whole number, but is 2.5",
        "f.yaml:6: inner[3].cores: the range '5-2' is reversed; write '2-5'",
        "f.yaml:7: inner[4]: must be a mapping of 'key: value' pairs, but is 7",
        'f.yaml:9: by_name.p.name: a name must be text, but is the number 1; write it in quotes: "1"',
        "f.yaml:10: by_name.q.name: is missing",
        "f.yaml:1: titel: there is no key 'titel' here; did you mean 'title'? (known: title, inner, by_name)",
    ]


def test_what_is_sound_is_read_in_spite_of_the_rest() -> None:
    document = parse_document(
        "title: x\ninner:\n  - {name: a, size: no}\n  - {name: b}\nby_name: {p: {name: 1}, q: {name: c}}\n",
        "f",
    )
    result = check(document, Outer)
    assert result.value is not None
    assert result.broken == {"inner", "by_name"}
    assert [(path, form.name) for path, form in result.items("inner", result.value.inner)] == [(("inner", 1), "b")]
    assert list(result.value.by_name) == ["q"]


@pytest.mark.parametrize(
    ("value", "cores"),
    [
        ("0-5", (0, 1, 2, 3, 4, 5)),
        ("1,3", (1, 3)),
        ("0-2, 5", (0, 1, 2, 5)),
        ("5,0 - 1", (0, 1, 5)),
        (3, (3,)),
        ("3", (3,)),
        ([0, 2, 1], (0, 1, 2)),
        (["0-1", 3], (0, 1, 3)),
    ],
)
def test_core_sets(value: Any, cores: tuple[int, ...]) -> None:
    assert parse_cores(value) == cores
    assert parse_cores(format_cores(cores)) == cores


@pytest.mark.parametrize(
    ("parse", "value", "message"),
    [
        (parse_cores, "1,1", "twice"),
        (parse_cores, "0-3,2-4", "core 2, 3 twice"),
        (parse_cores, "3-1", "reversed"),
        (parse_cores, -1, "negative"),
        (parse_cores, "", "not a core set"),
        (parse_cores, [], "at least one"),
        (parse_cores, True, "not a core set"),
        (parse_cores, 1.5, "not a core set"),
        (parse_cores, None, "not a core set"),
        (parse_cores, "0-99999999999999", "beyond"),
        (parse_milli, 0, "more than 0"),
        (parse_milli, "-2", "more than 0"),
        (parse_milli, 0.0001, "finer than a thousandth"),
        (parse_milli, "two", "not a number of cores"),
        (parse_milli, True, "not a number of cores"),
        (parse_milli, float("nan"), "not a number of cores"),
        (parse_milli, "1e99999999999999999999", "too large|not a number"),
        (parse_memory, 512, "no unit"),
        (parse_memory, "512", "no unit"),
        (parse_memory, "512M", "not a unit of memory"),
        (parse_memory, "-1Gi", "negative"),
        (parse_memory, "1Ki", "whole number of MiB"),
        (parse_memory, "lots", "not an amount"),
        (parse_duration_us, 1, "no unit"),
        (parse_duration_us, "1", "no unit"),
        (parse_duration_us, "1min", "not a unit of time"),
        (parse_duration_us, "-1ms", "negative"),
        (parse_duration_us, "0ms", "more than 0"),
        (parse_rate, "-5", "not negative"),
        (parse_rate, "30G", "not a multiple"),
        (parse_rate, "many", "not a load"),
        (parse_rate, None, "not a load"),
    ],
)
def test_quantities_refused(parse: Any, value: Any, message: str) -> None:
    with pytest.raises(QuantityError, match=message):
        parse(value)


def test_memory_help_names_the_unit_that_was_meant() -> None:
    with pytest.raises(QuantityError) as caught:
        parse_memory("512M")
    assert caught.value.help == "did you mean '512Mi'? (units: Ki, Mi, Gi, Ti)"


def test_quantities() -> None:
    assert [parse_milli(v) for v in (1, 0.9, 1.1, "900m", "2", "0.5")] == [1000, 900, 1100, 900, 2000, 500]
    assert [parse_memory(v) for v in ("512Mi", "2Gi", "1.5 Gi", "2048Ki", "0Mi")] == [512, 2048, 1536, 2, 0]
    assert [parse_duration_us(v) for v in ("1ms", "1 s", "140 us", "0.1µs")] == [1000.0, 1e6, 140.0, 0.1]
    assert [parse_rate(v) for v in (30000, "30K", "15.0K", "1.5M", 0)] == [30000, 30000, 15000, 1.5e6, 0]
    assert [format_milli(m) for m in (1000, 900, 2500)] == ["1", "0.9", "2.5"]
    assert [format_duration_us(us) for us in (140, 1000, 2.5e6)] == ["140 us", "1 ms", "2.5 s"]


class Times(Form):
    runtime_s: float
    a_us: float = 0.0
    max_wait: int = Field(1, alias="maxWaitSeconds")
    loads: list[float] = Field(default_factory=list)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("runtime_s: 60s", "runtime_s: must be a number, but is '60s'; runtime_s is in seconds: write 60"),
        ("runtime_s: 1.5 h", "runtime_s: must be a number, but is '1.5 h'; runtime_s is in seconds: write 5400"),
        ("runtime_s: 2m", "runtime_s: must be a number, but is '2m'; runtime_s is in seconds: write 120"),
        ("runtime_s: 10min", "runtime_s: must be a number, but is '10min'; runtime_s is in seconds: write 600"),
        ("runtime_s: 250ms", "runtime_s: must be a number, but is '250ms'; runtime_s is in seconds: write 0.25"),
        ("runtime_s: '60'", "runtime_s: must be a number, but is '60'; write 60, without quotes"),
        ("runtime_s: 5%", "runtime_s: must be a number, but is '5%'"),
        ("runtime_s: soon", "runtime_s: must be a number, but is 'soon'"),
        ("runtime_s: 6e301s", "runtime_s: must be a number, but is '6e301s'"),
        ("runtime_s: [60s]", "runtime_s: must be a number, but is a list"),
        ("a_us: 1ms", "a_us: must be a number, but is '1ms'; a_us is in microseconds: write 1000"),
        (
            "maxWaitSeconds: 2m",
            "maxWaitSeconds: must be a whole number, but is '2m'; maxWaitSeconds is in seconds: write 120",
        ),
        ("maxWaitSeconds: 2ms", "maxWaitSeconds: must be a whole number, but is '2ms'"),
        ("loads: [1, 60%]", "loads[1]: must be a number, but is '60%'; write 0.6"),
        ("loads: [1h]", "loads[0]: must be a number, but is '1h'"),
    ],
)
def test_a_text_in_place_of_a_number_is_shown_the_number(text: str, message: str) -> None:
    whole = text if text.startswith("runtime_s") else f"runtime_s: 1\n{text}"
    (problem,) = check(parse_document(whole, "f.yaml"), Times).problems
    assert str(problem) == f"f.yaml:{whole.count(chr(10)) + 1}: {message}"
