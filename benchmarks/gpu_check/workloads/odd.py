"""Pieces of 1.125 MiB until the driver refuses; all freed, and as many allocated again at once."""

import time

from driver import Driver, Failed
from say import say, shim_loaded

PIECE = 9 << 17
MOST = 1 << 14
HELD_SECONDS = 1.5
"""So long that whoever watches from outside sees it."""

SLACK = 64
"""Pieces less the second time: a measurement in between may have found more overhead."""


def fill(driver, most):
    """Addresses, and how often an allocation was refused."""
    addresses, refusals = [], 0
    for _ in range(most):
        try:
            addresses.append(driver.allocate(PIECE))
        except Failed:
            refusals += 1
            if most == MOST:
                break
    return addresses, refusals


if __name__ == "__main__":
    driver = Driver()
    addresses, refused = fill(driver, MOST)
    time.sleep(HELD_SECONDS)
    for address in addresses:
        driver.free(address)
    tries = max(1, len(addresses) - SLACK)
    again, refusals = fill(driver, tries)
    say(
        shim=shim_loaded(),
        held=len(addresses) * PIECE,
        refused=bool(refused),
        refusals=refusals,
        tries=tries,
    )
