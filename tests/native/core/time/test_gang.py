"""Devices whose kernels wait for one another go on together, on a clock of the test."""

from typing import Any

import pytest

from vcuda_shim._shim import ffi, lib

MILLISECOND = 1_000_000
SECOND = 1_000 * MILLISECOND
START = 50 * SECOND
BURST = 20 * MILLISECOND
PART = BURST // lib.GANG_STOPS
FRESH = int(lib.GANG_FRESH_NS)


class Gang:
    """A container with some GPUs, a rank on each."""

    def __init__(self, devices: int) -> None:
        self.books: Any = ffi.new("struct vcuda_books *")
        limits = [{"core_percent": 50} for _ in range(devices)]
        words = {"device_count": devices, "limits": limits}
        self.config: Any = ffi.new("struct vcuda_config *", words)
        self.counts = [0] * devices
        self.now = START

    def rank(self, device: int, *, since: int = 0) -> Any:
        """since: its last collective."""
        return ffi.new(
            "struct gang *",
            (self.books, self.config, device, self.counts[device], self.now - since, self.now),
        )

    def launch(self, *devices: int, times: int = 1) -> None:
        for device in devices:
            self.counts[device] += times
            lib.gang_tell(self.rank(device))

    def owe(self, device: int, debt: int) -> None:
        self.books.meters[device].virtual_time = self.now + debt

    def pause(self, device: int, *, stopped: bool = False) -> int:
        return int(lib.gang_pause(self.rank(device), stopped))


def test_a_device_waits_for_the_one_furthest_ahead() -> None:
    gang = Gang(3)
    gang.launch(0, 1, 2)
    gang.owe(1, BURST + 5 * MILLISECOND)
    gang.owe(2, BURST)

    assert [gang.pause(device) for device in range(3)] == [5 * MILLISECOND] * 3
    gang.now += 5 * MILLISECOND
    assert [gang.pause(device) for device in range(3)] == [0] * 3
    assert [gang.pause(device, stopped=True) for device in range(3)] == [PART] * 3


def test_who_is_behind_by_a_collective_is_waited_for() -> None:
    gang = Gang(2)
    gang.launch(0, 1)
    before = [bool(lib.gang_behind(gang.rank(device))) for device in (0, 1)]
    gang.launch(0)
    after = [bool(lib.gang_behind(gang.rank(device))) for device in (0, 1)]

    assert (before, after) == ([False, False], [False, True])


def test_counts_go_round() -> None:
    gang = Gang(2)
    gang.counts = [(1 << 16) - 1, (1 << 16) - 1]
    gang.launch(0, 1)
    gang.launch(0)

    assert gang.counts == [(1 << 16) + 1, 1 << 16]
    assert [bool(lib.gang_behind(gang.rank(device))) for device in (0, 1)] == [False, True]


@pytest.mark.parametrize("ahead", [0, 1])
def test_a_rank_that_died_holds_nobody_for_longer_than_a_second(ahead: int) -> None:
    gang = Gang(2)
    gang.launch(0, 1)
    gang.launch(1, times=ahead)
    gang.owe(1, 100 * SECOND)
    assert gang.pause(0) > 0
    gang.now += FRESH + (2 << lib.GANG_STAMP_BITS)

    assert gang.pause(0) == 0
    assert not lib.gang_behind(gang.rank(0))
    assert not lib.gang_any(gang.rank(0))


def test_jobs_that_count_differently_are_no_gang() -> None:
    gang = Gang(2)
    gang.launch(0, times=lib.GANG_NEAR + 2)
    gang.launch(1)
    gang.owe(1, SECOND)

    assert not lib.gang_any(gang.rank(0))
    assert not lib.gang_behind(gang.rank(1))
    assert gang.pause(0) == 0


def test_a_device_without_collectives_lately_belongs_to_none() -> None:
    gang = Gang(3)
    gang.launch(0, 1)

    assert lib.gang_any(gang.rank(0))
    assert not lib.gang_any(gang.rank(0, since=FRESH + 1))
    assert gang.pause(1) == 0
    gang.owe(2, SECOND)  # has none
    assert gang.pause(1) == 0
