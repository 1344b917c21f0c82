"""Time of the simulated GPUs, on the real clock: what a program sees of its kernels.

The host may be late, so a test bounds what the GPU did by what it accounts, never by wall time
from above; bounds from below are exact.
"""

import ctypes
import os

import pytest

from gpumanager.sim.results import share_of
from tests.native.programs.shim_client import soon
from tests.native.programs.sim_client import *
from tests.native.sim.program import on
from tests.native.sim_box import Client, SimBox

MACHINE = {"cuda_version": 12050}
MS = 1_000_000
SLICE, LONG = 2 * MS, 600_000 * MS

assert init() == 0


def busy(box: SimBox) -> dict[int, int]:
    """GPU time received, by process."""
    return {process.pid: process.busy_ns for process in box.gpus.processes()}


def another(box: SimBox) -> Client:
    made = box.client()
    assert made("init()") == 0
    return made


def test_a_launch_returns_at_once_and_its_kernel_takes_its_time() -> None:
    def queries() -> list[int]:
        return [cuda.cuEventQuery(events["end"]), cuda.cuStreamQuery(None)]

    assert [record("start"), spin(300 * MS), record("end"), *queries()] == [0, 0, 0, 600, 600]
    assert seconds("sync()") > 0.03
    assert queries() == [0, 0]
    assert elapsed("start", "end") >= 300


def test_kernels_without_a_known_length_take_ten_microseconds(box: SimBox) -> None:
    assert [max(launch("some_kernel") for _ in range(100)), sync()] == [0, 0]

    assert busy(box) == {os.getpid(): 100 * 10_000}


def test_an_event_knows_its_time_after_its_place_in_the_queue_was_reused() -> None:
    """To the nanosecond, as long as the host is not 200 ms late."""
    assert [spin(200 * MS), record("a"), spin(3 * MS), record("b")] == [0] * 4
    assert [spin(1000, 2500), sync()] == [0, 0]

    assert elapsed("a", "b") == pytest.approx(3, abs=1e-5)


def test_a_full_queue_holds_the_launcher_back() -> None:
    assert seconds("spin(100_000, 2500)") > (2500 - 1024) * 0.0001


def test_timing_needs_recorded_and_finished_events() -> None:
    assert [record("start"), spin(LONG), record("end")] == [0, 0, 0]

    found = ctypes.byref(ctypes.c_float())
    assert cuda.cuEventElapsedTime(found, events["start"], events["end"]) == 600


def test_two_processes_with_work_each_get_half(box: SimBox) -> None:
    other = another(box)
    assert [spin(20 * MS, 1000), other("spin(20_000_000, 1000)")] == [0, 0]

    before = busy(box)
    assert soon(lambda: sum(busy(box).values()) >= 100 * MS + sum(before.values()), within=20)
    after = busy(box)

    received = [after[pid] - before[pid] for pid in before]
    assert len(received) == 2
    assert abs(received[0] - received[1]) <= SLICE


def test_a_process_alone_gets_everything_and_a_late_one_its_half(box: SimBox) -> None:
    other = another(box)
    assert other(f"spin({LONG})") == 0

    assert [spin(200 * MS), record("a"), spin(50 * MS), record("b"), sync()] == [0] * 5

    assert elapsed("a", "b") == pytest.approx(100, abs=3)  # ends between two slices of the other's


def test_work_of_a_killed_process_vanishes(box: SimBox) -> None:
    victim = another(box)
    assert victim("spin(100_000_000, 1000)") == 0

    victim.kill()

    assert seconds("spin(50_000_000) or sync()") < 50
    assert box.account().launches == 1001
    assert box.account().busy_ns < 50_000 * MS


def test_the_account_says_when_work_began_and_ended(box: SimBox) -> None:
    assert [spin(30 * MS, 2), sync()] == [0, 0]

    account = box.account()
    assert (account.busy_ns, account.launches) == (60 * MS, 2)
    assert account.last_end_ns - account.first_work_ns >= 60 * MS


def only(box: SimBox, work: int) -> None:
    """No launch, and all of the time from its begin to its end."""
    assert [work, sync()] == [0, 0]

    account = box.account()
    share = share_of(account.busy_ns, account.first_work_ns, account.last_end_ns)
    assert account.launches == 0
    assert share == pytest.approx(100)


def test_a_process_that_only_fills_has_a_share(box: SimBox) -> None:
    assert alloc(1 << 26) == 0
    only(box, cuda.cuMemsetD8_v2(word(held[0]), 0, word(1 << 26)))


def test_a_process_that_only_copies_has_a_share(box: SimBox) -> None:
    assert alloc(1 << 27) == 0
    only(box, cuda.cuMemcpyDtoD_v2(word(held[0] + (1 << 26)), word(held[0]), word(1 << 26)))


def test_a_stream_without_work_is_not_held_up_by_another() -> None:
    own = ctypes.c_void_p()
    assert [spin(LONG), cuda.cuStreamCreate(ctypes.byref(own), 1)] == [0, 0]

    assert [cuda.cuStreamQuery(own), cuda.cuStreamSynchronize(own)] == [0, 0]
    assert cuda.cuStreamQuery(None) == 600


@on(event_floor_ns=3000, event_idle_ns=6000)
def test_a_pair_of_events_behind_other_work_shows_the_floor_more() -> None:
    codes = [spin(200 * MS), record("a"), record("b"), spin(10_000), record("c"), sync()]
    pairs = [elapsed(*pair) for pair in ("ab", "bc", "ac")]

    assert codes == [0] * 6
    assert pairs == pytest.approx([0.003, 0.013, 0.013], abs=1e-7)


@on(event_floor_ns=3000, event_idle_ns=6000)
def test_a_pair_that_begins_on_an_idle_stream_shows_the_launch_too() -> None:
    def pair() -> float:
        assert [record("a"), spin(10 * MS), record("b"), sync()] == [0] * 4
        return elapsed("a", "b")

    assert [spin(1), sync()] == [0, 0]
    assert pair() >= 10.009
    spin(200 * MS)
    assert pair() == pytest.approx(10.003, abs=1e-5)


@on(event_floor_ns=3000, event_idle_ns=6000)
def test_events_are_stamped_in_half_microseconds() -> None:
    assert [spin(200 * MS), record("a"), spin(10_240), record("b"), sync()] == [0] * 5

    assert round(elapsed("a", "b") * 1e6) in (13_000, 13_500)


@on(queue_depth=0)
@on(queue_depth=64)
def test_a_launch_blocks_once_so_many_wait(box: SimBox) -> None:
    held = box.machine.driver.queue_depth or 1024
    assert [spin(400 * MS), record("first")] == [0, 0]

    assert [spin(1000, held - 2), cuda.cuEventQuery(events["first"])] == [0, 600]
    assert [spin(1000), cuda.cuEventQuery(events["first"])] == [0, 0]


def test_a_kernel_of_fixed_work_takes_a_nanosecond_for_each_iteration() -> None:
    assert [spin(200 * MS), record("a"), spin(5 * MS, 1, "work"), record("b"), sync()] == [0] * 5

    assert elapsed("a", "b") == pytest.approx(5, abs=1e-5)
