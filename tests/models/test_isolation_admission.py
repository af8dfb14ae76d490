"""Which reservations the kernel admits."""

from __future__ import annotations

import math

import pytest

from flowsched_models.isolation.admission import Bandwidth, Room, admit, objection, room_of


def forty(count: int) -> list[Bandwidth]:
    return [Bandwidth(4_000, 10_000)] * count


@pytest.mark.parametrize(
    ("release", "cpus"),
    [("5.5.0-rc1", 1.9), ("6.11.9-amd64", 1.9), ("6.12.0", 1.8), ("6.18.44-fc", 1.8), ("7.0.0", 1.8), ("unknown", 1.8)],
)
def test_the_fair_server_takes_its_share_on_new_kernels(release: str, cpus: float) -> None:
    """1.798 of 2 cores was the largest sum that Linux 6.18 admitted."""
    assert room_of(2, release).cpus == pytest.approx(cpus)


def test_the_machine_may_be_set_otherwise() -> None:
    assert room_of(4, "5.4", 500_000, 1_000_000).cpus == pytest.approx(2.0)
    assert room_of(4, "6.12", fair_server=0.0).cpus == pytest.approx(3.8)
    assert room_of(4, "6.12", -1).cpus == math.inf
    assert room_of(1, "6.12", 10_000, 1_000_000).cpus == 0.0


@pytest.mark.parametrize("values", [(0, 95, 100), (1, 101, 100), (1, -2, 100), (1, 0, 0)])
def test_numbers_that_no_machine_has_are_refused(values: tuple[int, int, int]) -> None:
    with pytest.raises(ValueError, match="no machine"):
        room_of(values[0], "6.12", values[1], values[2])


def test_four_of_five_tasks_of_two_fifths_fit_on_two_cores() -> None:
    room = room_of(2, "6.18")
    assert admit(forty(4), room).admitted
    answer = admit(forty(5), room)
    assert not answer.admitted
    assert answer.reason == (
        "2.000 CPUs are asked for, 1.800 are given away: 2 cores x (0.95 - 0.05 for ordinary tasks): 0.200 too much"
    )


def test_the_sum_counts_and_not_any_single_core() -> None:
    assert admit([Bandwidth(9_600, 10_000)], room_of(2, "6.18")).admitted
    assert not admit([Bandwidth(9_600, 10_000)], room_of(1, "5.5")).admitted
    assert admit([Bandwidth(9_500, 10_000)], room_of(1, "5.5")).admitted


@pytest.mark.parametrize(
    ("bandwidth", "words"),
    [
        (Bandwidth(1.0, 1_000), "less than 1.024 us"),
        (Bandwidth(10, 20), "not between 100 us and 4.19 s"),
        (Bandwidth(1_000, 5_000_000), "the period of 5 s"),
        (Bandwidth(2_000, 1_000), "does not fit"),
        (Bandwidth(0, 1_000), "more than 0"),
        (Bandwidth(math.nan, 1_000), "more than 0"),
    ],
)
def test_parameters_that_every_kernel_refuses(bandwidth: Bandwidth, words: str) -> None:
    assert words in (objection(bandwidth) or "")
    assert not admit([Bandwidth(100, 1_000), bandwidth], Room(8)).admitted
    assert admit([Bandwidth(100, 1_000), bandwidth], Room(8)).reason.startswith("task 2: ")


@pytest.mark.parametrize("bandwidth", [Bandwidth(100, 100), Bandwidth(1.024, 100), Bandwidth(4_194_304, 4_194_304)])
def test_the_limits_themselves_are_allowed(bandwidth: Bandwidth) -> None:
    assert objection(bandwidth) is None
