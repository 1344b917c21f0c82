"""Amounts: as they are written, and as a policy rounds them."""

import pytest

from gpumanager.sim.claims.quantities import NotRepresentable, read_capacity, read_quantity


@pytest.mark.parametrize(
    ("written", "canonical"),
    [
        ("100", "100"),
        ("1000", "1k"),
        ("1500", "1500"),
        ("0.5", "500m"),
        ("1e3", "1k"),
        ("0", "0"),
        ("2048Mi", "2Gi"),
        ("300Mi", "300Mi"),
        ("0.5Ki", "512"),
        ("1.5Gi", "1536Mi"),
    ],
)
def test_a_quantity_is_written_as_kubernetes_writes_it(written: str, canonical: str) -> None:
    assert str(read_quantity(written)) == canonical


def test_what_is_no_quantity_is_refused() -> None:
    with pytest.raises(ValueError, match="'2 GB' is not a quantity"):
        read_quantity("2 GB")


RANGE = {"default": "100", "validRange": {"min": "10", "step": "5", "max": "100"}}
THOUSANDTHS = {"default": "1", "validRange": {"min": "100m", "step": "50m"}}
VALUES = {"default": "10", "validValues": ["10", "25"]}
LEAST = {"default": "1Gi", "validRange": {"min": "1Gi"}}


@pytest.mark.parametrize(
    ("policy", "asked", "consumed"),
    [
        (None, None, "200"),
        (None, "7", "7"),
        (RANGE, None, "100"),
        (RANGE, "7", "10"),
        (RANGE, "11", "15"),
        (RANGE, "15", "15"),
        (THOUSANDTHS, "120m", "150m"),
        (VALUES, "11", "25"),
        (VALUES, "26", "26"),
        (LEAST, "1", "1Gi"),
        (LEAST, "1500Mi", "1500Mi"),
    ],
)
def test_a_request_is_rounded_up(
    policy: dict[str, object] | None, asked: str | None, consumed: str
) -> None:
    capacity = read_capacity(
        {"value": "200", "requestPolicy": policy} if policy else {"value": "200"}
    )

    assert str(capacity.consumed(read_quantity(asked) if asked else None)) == consumed


@pytest.mark.parametrize(
    ("policy", "amount", "violated"),
    [
        (RANGE, "100", False),
        (RANGE, "105", True),
        (RANGE, "12", True),
        (VALUES, "25", False),
        (VALUES, "26", True),
        (LEAST, "1500Mi", False),
    ],
)
def test_what_a_policy_does_not_allow(
    policy: dict[str, object], amount: str, *, violated: bool
) -> None:
    found = read_capacity({"value": "200", "requestPolicy": policy}).policy

    assert found is not None
    assert found.violated_by(read_quantity(amount).value) == violated


def test_what_cannot_be_counted_in_steps_is_refused() -> None:
    capacity = read_capacity({"value": "1", "requestPolicy": THOUSANDTHS})

    with pytest.raises(NotRepresentable):
        capacity.consumed(read_quantity("100500u"))
