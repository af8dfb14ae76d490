from __future__ import annotations

import io
import json
import logging
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from flowsched.support.log_lines import LONGEST, OWN, JsonFormatter, TextFormatter, set_up_logging
from flowsched_k8s.instructions import PodKey
from flowsched_k8s.objects import PodSpec

LOG = logging.getLogger("flowsched_k8s.process")
Start = Callable[[str, int], io.StringIO]


@pytest.fixture
def start() -> Iterator[Start]:
    """Set up logging into a buffer; afterwards everything is as before."""
    root = logging.getLogger()
    before = (root.handlers[:], root.level)
    names = (*OWN, "kubernetes", "urllib3", "requests_oauthlib")
    levels = {name: logging.getLogger(name).level for name in names}

    def begin(format: str, verbosity: int) -> io.StringIO:
        stream = io.StringIO()
        set_up_logging(format, verbosity, stream, words=(PodKey,))
        return stream

    yield begin
    root.handlers[:], level = before[0], before[1]
    root.setLevel(level)
    for name, level in levels.items():
        logging.getLogger(name).setLevel(level)


def record(message: str, *arguments: object, **extra: object) -> logging.LogRecord:
    return logging.makeLogRecord(
        {"msg": message, "args": arguments, "name": "flowsched_k8s.x", "levelname": "INFO", "created": 1.5, **extra}
    )


def as_json(message: str, *arguments: object, **extra: object) -> dict[str, Any]:
    line = JsonFormatter((PodKey,)).format(record(message, *arguments, **extra))
    assert "\n" not in line
    found = json.loads(line)
    assert isinstance(found, dict)
    return found


def test_one_object_per_line(start: Start) -> None:
    stream = start("json", 0)
    LOG.info("round %d done", 12, extra={"round": 12, "pod": PodKey("ns", "web-0", "u-1"), "seconds": 0.25})
    LOG.warning("two\nlines")
    first, second = map(json.loads, stream.getvalue().splitlines())
    assert list(first) == ["ts", "level", "logger", "msg", "round", "pod", "seconds"]
    assert (first["level"], first["logger"], first["msg"]) == ("info", "flowsched_k8s.process", "round 12 done")
    assert (first["round"], first["pod"], first["seconds"]) == (12, "ns/web-0", 0.25)
    assert second["msg"] == "two\nlines"


def test_time_is_rfc_3339_with_microseconds() -> None:
    assert as_json("x")["ts"] == "1970-01-01T00:00:01.500000Z"


def test_text_is_one_line_with_pairs() -> None:
    made = record("bound\nINFO forged", round=3, pod=PodKey("ns", "a", "u"), note='say "hi"', empty="")
    assert TextFormatter((PodKey,)).format(made) == (
        r"1970-01-01T00:00:01.500000Z INFO flowsched_k8s.x: bound\nINFO forged "
        r'round=3 pod=ns/a note="say \"hi\"" empty=""'
    )


@pytest.mark.parametrize(
    ("verbosity", "said"),
    [
        (0, ["own info", "other warning"]),
        (1, ["own debug", "own info", "other warning"]),
        (2, ["own debug", "own info", "other debug", "other warning"]),
    ],
)
def test_verbosity(start: Start, verbosity: int, said: list[str]) -> None:
    stream = start("json", verbosity)
    LOG.debug("own debug")
    LOG.info("own info")
    other = logging.getLogger("aiohttp.client")
    other.debug("other debug")
    other.warning("other warning")
    # The client of the API server logs whole answers, tokens among them.
    logging.getLogger("kubernetes.client.rest").debug("response body: {...}")
    assert [json.loads(line)["msg"] for line in stream.getvalue().splitlines()] == said


def test_setting_up_again_does_not_double_lines(start: Start) -> None:
    start("text", 0)
    stream = start("text", 0)
    LOG.info("once")
    assert stream.getvalue().count("once") == 1


def test_errors_come_with_their_traceback() -> None:
    try:
        raise ValueError("bad thing")
    except ValueError as error:
        made = record("failed", exc_info=(ValueError, error, error.__traceback__))
    line = json.loads(JsonFormatter((PodKey,)).format(made))
    assert line["exception"] == "ValueError: bad thing"
    assert "Traceback" in line["stack"]
    text = TextFormatter((PodKey,)).format(made)
    assert all(part.startswith("  ") for part in text.splitlines()[1:])


def test_specifications_of_pods_stay_out() -> None:
    line = as_json("placing", spec=PodSpec(node_name="hidden"), env={"PASSWORD": "hidden"}, args_=["hidden"])
    assert (line["spec"], line["env"], line["args_"]) == ("<PodSpec>", "<dict>", "<list>")
    assert "hidden" not in json.dumps(line)


@pytest.mark.parametrize(
    "secret",
    [
        "Authorization: Bearer abcdefgh12345678",
        "authorization: basic abcdefgh12345678==",
        "token eyJhbGciOiJSUzI1NiJ9.abcdefgh12345678.abcdefgh12345678",
        "https://user:abcdefgh12345678@host/path",
        "id_token=abcdefgh12345678&x=1",
        '{"password": "abcdefgh12345678"}',
    ],
)
def test_secrets_are_masked(secret: str) -> None:
    for line in (as_json(secret), as_json("%s", secret), as_json("x", url=secret), as_json("x", e=OSError(secret))):
        assert "abcdefgh12345678" not in json.dumps(line)
        assert "***" in json.dumps(line)


def test_what_a_message_is_about_cannot_hide_what_it_is() -> None:
    line = as_json("x", level="fake", ts="never")
    assert (line["level"], line["level_"]) == ("info", "fake")


def test_long_texts_are_cut() -> None:
    line = as_json("y" * 10 * LONGEST, note="z" * 10 * LONGEST)
    assert len(line["msg"]) == len(line["note"]) == LONGEST + 1


def test_half_a_character_breaks_no_stream() -> None:
    for line in (JsonFormatter().format(record("\ud800", pod="\udfff")), TextFormatter().format(record("\ud800"))):
        assert line.encode()


def test_arguments_that_do_not_fit_lose_no_message() -> None:
    assert as_json("only %d", "text")["msg"] == "only %d"


values = st.text() | st.integers() | st.floats() | st.booleans() | st.none() | st.lists(st.text())


@example(message="", extra={"about_x": "a line\x85another\u2028and one more"})
@given(message=st.text(), extra=st.dictionaries(st.from_regex(r"[a-z]{1,8}_x", fullmatch=True), values))
def test_anything_is_one_line(message: str, extra: dict[str, Any]) -> None:
    assert as_json(message, **extra)["logger"] == "flowsched_k8s.x"
    assert len(TextFormatter((PodKey,)).format(record(message, **extra)).splitlines()) == 1


def test_a_fault_is_written_whole_once_and_then_counted(start: Start) -> None:
    stream = start("json", 0)
    for number in range(120):
        try:
            raise ValueError(f"round {number}") if number % 2 else KeyError("other")
        except (ValueError, KeyError):
            LOG.exception("a round failed")
    lines = [json.loads(line) for line in stream.getvalue().splitlines()]
    assert [line.get("times") for line in lines] == [None, None, 10, 10]
    assert ["stack" in line for line in lines] == [True, True, False, False]
    assert {line["exception"] for line in lines} == {"KeyError: 'other'", "ValueError: round 1", "ValueError: round 19"}
