from __future__ import annotations

from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kubernetes.utils import parse_quantity

from flowsched_k8s.pods.quantity import LARGEST, cpu_milli, whole

SUFFIXES = [
    "",
    "n",
    "u",
    "m",
    "k",
    "M",
    "G",
    "T",
    "P",
    "E",
    "Ki",
    "Mi",
    "Gi",
    "Ti",
    "Pi",
    "Ei",
    "e3",
    "E2",
    "e-3",
    "E+1",
]

quantities = st.builds(
    lambda number, suffix: f"{number}{suffix}",
    st.one_of(
        st.integers(0, 10**9).map(str),
        st.decimals(0, 10**6, places=4, allow_nan=False).map(lambda d: f"{d:f}"),
    ),
    st.sampled_from(SUFFIXES),
)


@pytest.mark.parametrize(
    ("text", "milli"),
    [
        ("100m", 100),
        ("1", 1000),
        ("1.5", 1500),
        ("0.1", 100),
        ("1u", 1),
        ("1500001u", 1501),
        ("2e3", 2_000_000),
        ("0", 0),
    ],
)
def test_cpu_is_counted_in_thousandths_rounded_up(text: str, milli: int) -> None:
    assert cpu_milli(text) == milli


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("1Ki", 1024),
        ("1.5Gi", 3 << 29),
        ("128974848", 128_974_848),
        ("129e6", 129_000_000),
        ("129M", 129_000_000),
        ("123Mi", 123 << 20),
        ("1E", 10**18),
        ("1E3", 1000),
        ("500m", 1),
        (".5Ki", 512),
        ("5.", 5),
        ("+2", 2),
        ("-1.5", -2),
    ],
)
def test_everything_else_is_counted_whole(text: str, number: int) -> None:
    assert whole(text) == number


@given(quantities)
def test_it_agrees_with_the_official_client(text: str) -> None:
    exact: Decimal = parse_quantity(text)
    for ours, factor in ((whole(text), 1), (cpu_milli(text), 1000)):
        wanted = exact * factor
        if wanted < LARGEST:
            assert 0 <= ours - wanted < 1
        else:
            assert ours == LARGEST


@given(st.integers(0, LARGEST - 1))
def test_whole_numbers_are_exact_however_large(number: int) -> None:
    assert whole(str(number)) == number
    assert cpu_milli(f"{number}m") == number


@pytest.mark.parametrize(
    "text", ["", "m", ".", "1ki", "1 Gi", "1e", "0x10", "1.2.3", "١", "--1", "1Kib", "9" * 200, "1_0"]
)
def test_what_is_no_quantity_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not a quantity"):
        whole(text)


@given(st.text(max_size=200))
def test_any_text_is_read_or_refused(text: str) -> None:
    for read in (whole, cpu_milli):
        try:
            assert -LARGEST <= read(text) <= LARGEST
        except ValueError as error:
            assert "quantity" in str(error)


@pytest.mark.parametrize("text", ["1e999999999", "9e300", "99999999999999999999Ei"])
def test_absurd_amounts_are_just_very_large(text: str) -> None:
    assert whole(text) == LARGEST


def test_the_smallest_amount_is_still_something() -> None:
    assert whole("1e-99999") == cpu_milli("0.0000000001") == 1
