"""Allocate through the driver until it refuses, in ever smaller pieces; then live on."""

import time

from driver import Driver, Failed
from say import say, shim_loaded

PIECES = (64 << 20, 1 << 20, 4 << 10, 1)
MOST_OF_ONE = 4096
HELD_SECONDS = 1.5
"""So long that whoever watches from outside sees it."""


def fill(driver):
    """All that can be had: addresses, bytes, and what each kind of piece was refused with."""
    addresses, held, answers = [], 0, []
    for piece in PIECES:
        for _ in range(MOST_OF_ONE):
            try:
                addresses.append(driver.allocate(piece))
            except Failed as refused:
                answers.append(refused.number)
                break
            held += piece
    return addresses, held, answers


if __name__ == "__main__":
    driver = Driver()
    addresses, held, answers = fill(driver)
    left, total = driver.memory()
    time.sleep(HELD_SECONDS)
    for address in addresses:
        driver.free(address)
    again = driver.allocate(total // 4)
    driver.free(again)
    driver.synchronize()
    say(shim=shim_loaded(), held=held, answers=answers, left=left, total=total)
