"""Which account is charged for memory, by location and type (core/memory/location.h)."""

from itertools import product

import pytest

from vcuda_shim._shim import lib

PINNED, MANAGED, FUTURE = 1, 2, 3
DEVICE, HOST, HOST_NUMA, INVISIBLE, DOMAIN = 1, 2, 3, 5, 6
NOBODY, CURRENT = "nobody", "current"
PAYERS = {lib.PAYER_NOBODY: NOBODY, lib.PAYER_CURRENT: CURRENT}


def payer(allocation: int, kind: int, number: int) -> int | str:
    """The ordinal of the device that pays, or one of the words."""
    found = lib.location_of(allocation, kind, number)
    return PAYERS.get(found.payer, int(found.ordinal))


@pytest.mark.parametrize(
    ("allocation", "kind", "number", "expected"),
    [
        (PINNED, DEVICE, 5, 5),
        (PINNED, DOMAIN, 2, 2),
        (PINNED, DOMAIN, 0x0302, 2),  # domain 3 of device 2
        (PINNED, DOMAIN, -254, 2),  # what lies behind the two bytes may be anything
        (PINNED, HOST, 5, NOBODY),
        (PINNED, HOST_NUMA, 1, NOBODY),
        (PINNED, 0, 0, NOBODY),
        (PINNED, INVISIBLE, -2, CURRENT),
        (PINNED, 7, 5, CURRENT),
        (PINNED, -1, 5, CURRENT),
        (MANAGED, 0, 0, CURRENT),
        (MANAGED, HOST, 0, CURRENT),
        (MANAGED, HOST_NUMA, 1, CURRENT),
        (MANAGED, DEVICE, 3, 3),
        (FUTURE, DEVICE, 3, 3),
        (FUTURE, HOST, 0, CURRENT),
        (0, HOST, 0, NOBODY),
    ],
)
def test_the_device_that_pays(allocation: int, kind: int, number: int, expected: int | str) -> None:
    assert payer(allocation, kind, number) == expected


def test_what_is_unknown_is_charged_and_said_so(subtests: pytest.Subtests) -> None:
    kinds = (-1, 0, DEVICE, HOST, HOST_NUMA, 4, INVISIBLE, DOMAIN, 7, 99)
    for allocation, kind in product((-1, 0, PINNED, MANAGED, FUTURE, 99), kinds):
        with subtests.test(f"{allocation} {kind}"):
            found = lib.location_of(allocation, kind, 0)

            known = allocation in {0, PINNED, MANAGED} and kind in {*range(5), 6}
            assert found.unknown == (not known)
            assert found.managed == (allocation == MANAGED)
            if found.unknown:
                assert found.payer != lib.PAYER_NOBODY
