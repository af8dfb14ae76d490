"""The table of what a failing webhook costs other namespaces."""

from __future__ import annotations

import socket

import click
import pytest

from benchmarks.k8s_faults import Outcome, _layout, address_of, table


def test_a_row_has_the_waits_and_says_what_never_came() -> None:
    waits = [0.01] * 98 + [0.2, 61.0]
    told = Outcome(50, 20, "hangs", "flowsched", waits, 99, 5.04)
    never = Outcome(1, 1000, "away", "kube_scheduler", [0.5], 1, None)
    lines = [line.split() for line in table([told, never]).splitlines()[1:]]
    assert lines == [
        ["50", "20", "hangs", "flowsched", "99/100", "0.01", "0.808", "61.0", "5.0"],
        ["1", "1000", "away", "kube_scheduler", "1/1", "0.5", "0.5", "0.5", "never"],
    ]


def test_layouts_are_read_and_refused() -> None:
    assert _layout(None, None, ("1x1000", "50x20")) == ((1, 1000), (50, 20))
    for wrong in ("50", "0x20", "ax2"):
        with pytest.raises(click.BadParameter):
            _layout(None, None, (wrong,))


def test_an_address_refuses_or_accepts_and_says_nothing() -> None:
    with address_of("away") as port, pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port), 5.0)
    with address_of("hangs") as port, socket.create_connection(("127.0.0.1", port), 5.0) as client:
        client.settimeout(0.05)
        with pytest.raises(TimeoutError):
            client.recv(1)
