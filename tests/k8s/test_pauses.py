"""Why rounds pause, and since when."""

from __future__ import annotations

import pytest

from flowsched_k8s.pauses import BINDINGS, NAMESPACES, WATCH, Pause, Pauses


def test_a_pause_begins_once_and_ends(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    pauses = Pauses()
    assert pauses.said(1.0) is None
    pauses.look({WATCH: "pods cannot be followed"}, 10.0)
    pauses.look({WATCH: "nodes and pods cannot be followed", BINDINGS: "65 wait"}, 12.0)
    assert pauses.now == {WATCH: Pause(10.0, "nodes and pods cannot be followed"), BINDINGS: Pause(12.0, "65 wait")}
    assert pauses.said(40.2) == "nodes and pods cannot be followed (for 30 s); 65 wait (for 28 s)"
    pauses.look({NAMESPACES: "a"}, 41.0)
    assert set(pauses.now) == {NAMESPACES}
    pauses.look({}, 42.0)
    assert pauses.said(43.0) is None
    pauses.look({WATCH: "again"}, 50.0)
    assert pauses.now[WATCH].since_s == 50.0
    assert [r.getMessage() for r in caplog.records] == [
        "rounds pause: pods cannot be followed",
        "rounds go on after 31.0 s",
        "rounds pause: again",
    ]
