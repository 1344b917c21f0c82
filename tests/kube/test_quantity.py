"""Quantities are read as Kubernetes reads them."""

import pytest

from gpumanager.kube.quantity import amount, whole_number


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("30", 30), (30, 30), ("1k", 1000), ("2Ki", 2048), ("3e2", 300), ("3E2", 300),
        ("1.5k", 1500), ("100.0", 100), ("1000m", 1), ("-5", -5), ("0", 0), ("+7", 7),
        ("500m", None), ("0.5", None), ("", None), ("x", None), ("1e", None), (True, None),
        ([30], None), ({}, None), ("9" * 21, None), ("1e999999999", None), (" 30 ", 30),
        ("1P", 10**15), ("٣", None), ("1n", None), ("5000000000n", 5),
    ],
)  # fmt: skip
def test_a_whole_number_is_read_exactly(text: object, number: int | None) -> None:
    assert whole_number(text) == number


@pytest.mark.parametrize(
    ("text", "number"),
    [("500m", 0.5), ("2Ki", 2048.0), ("0.1", 0.1), ("-5", 0.0), ("many", 0.0), ("", 0.0)],
)
def test_an_amount_to_weigh_is_read_roughly(text: str, number: float) -> None:
    assert amount(text) == pytest.approx(number)
