"""Time of the simulated GPUs, on the real clock: what a program sees of its kernels.

The host may be late, so a test bounds what the GPU did by what it accounts, never by wall time
from above; bounds from below are exact.
"""

import time

import pytest

from gpumanager.sim.results import share_of
from tests.native.sim_box import Client, SimBox

MS = 1_000_000
SLICE = 2 * MS


def busy(box: SimBox) -> dict[int, int]:
    """GPU time received, by process."""
    return {process.pid: process.busy_ns for process in box.gpus.processes()}


def busy_after(box: SimBox, total: int) -> dict[int, int]:
    """The same once all together received `total`."""
    end = time.monotonic() + 20
    while time.monotonic() < end:
        received = busy(box)
        if sum(received.values()) >= total:
            return received
    raise AssertionError(f"{total} ns of GPU time were not received in time")


def test_a_launch_returns_at_once_and_its_kernel_takes_its_time(client: Client) -> None:
    answers = client(
        "[record('start'), spin(2_000_000_000), record('end'),"
        " cuda.cuEventQuery(events['end']), cuda.cuStreamQuery(None), seconds('sync()'),"
        " cuda.cuEventQuery(events['end']), cuda.cuStreamQuery(None), elapsed('start', 'end')]"
    )

    assert answers[:5] == [0, 0, 0, 600, 600]
    assert answers[5] > 0.03
    assert answers[6:8] == [0, 0]
    assert answers[8] >= 2000


def test_kernels_without_a_known_length_take_ten_microseconds(box: SimBox, client: Client) -> None:
    assert client("[max(launch('some_kernel') for _ in range(100)), sync()]") == [0, 0]

    assert busy(box) == {client.pid: 100 * 10_000}


def test_events_around_queued_kernels_tell_their_length_exactly(client: Client) -> None:
    client("[spin(500_000_000), record('a'), spin(3_000_000), record('b'), sync()]")

    assert client("elapsed('a', 'b')") == pytest.approx(3, abs=1e-5)


def test_an_event_knows_its_time_after_its_place_in_the_queue_was_reused(client: Client) -> None:
    client("[spin(500_000_000), record('a'), spin(3_000_000), record('b')]")

    assert client("[spin(1000, 2500), sync()]") == [0, 0]

    assert client("elapsed('a', 'b')") == pytest.approx(3, abs=1e-5)


def test_a_full_queue_holds_the_launcher_back(client: Client) -> None:
    assert client("seconds('spin(100_000, 2500)')") > (2500 - 1024) * 0.0001


def test_timing_needs_recorded_and_finished_events(client: Client) -> None:
    client("[record('start'), spin(600_000_000_000), record('end')]")

    code = client(
        "cuda.cuEventElapsedTime(ctypes.byref(ctypes.c_float()), events['start'], events['end'])"
    )

    assert code == 600


def test_two_processes_with_work_each_get_half(box: SimBox) -> None:
    one, other = box.client(), box.client()
    assert [one("init()"), other("init()")] == [0, 0]
    for client in (one, other):
        assert client("spin(20_000_000, 1000)") == 0

    before = busy(box)
    after = busy_after(box, 300 * MS + sum(before.values()))

    received = [after[client.pid] - before[client.pid] for client in (one, other)]
    assert sum(received) >= 300 * MS
    assert abs(received[0] - received[1]) <= SLICE


def test_a_process_alone_gets_everything_and_a_late_one_its_half(box: SimBox) -> None:
    long, short = box.client(), box.client()
    assert [long("init()"), short("init()")] == [0, 0]
    long("spin(600_000_000_000)")

    answers = short(
        "[spin(500_000_000), record('a'), spin(50_000_000), record('b'), sync(), elapsed('a', 'b')]"
    )

    assert answers[:5] == [0, 0, 0, 0, 0]
    assert answers[5] == pytest.approx(100, abs=3)  # ends between two slices of the other's


def test_work_of_a_killed_process_vanishes(box: SimBox) -> None:
    victim, client = box.client(), box.client()
    assert [victim("init()"), client("init()")] == [0, 0]
    assert victim("spin(100_000_000, 1000)") == 0

    victim.kill()

    assert client("seconds('spin(50_000_000) or sync()')") < 50
    account = box.gpus.tenants()[0].devices[box.uuid]
    assert account.launches == 1001
    assert account.busy_ns < 50_000 * MS


def test_the_account_says_when_work_began_and_ended(box: SimBox, client: Client) -> None:
    client("[spin(30_000_000, 2), sync()]")

    account = box.gpus.tenants()[0].devices[box.uuid]

    assert (account.busy_ns, account.launches) == (60 * MS, 2)
    assert account.last_end_ns - account.first_work_ns >= 60 * MS


@pytest.mark.parametrize(
    "work",
    [
        "cuda.cuMemsetD8_v2(word(held[0]), 0, word(1 << 26))",
        "cuda.cuMemcpyDtoD_v2(word(held[0] + (1 << 26)), word(held[0]), word(1 << 26))",
    ],
    ids=["fill", "copy"],
)
def test_a_process_that_only_fills_or_copies_has_a_share(
    box: SimBox, client: Client, work: str
) -> None:
    client(f"[alloc(1 << 27), {work}, sync()]")

    account = box.gpus.tenants()[0].devices[box.uuid]
    share = share_of(account.busy_ns, account.first_work_ns, account.last_end_ns)

    assert account.launches == 0
    assert share == pytest.approx(100)


def test_a_stream_without_work_is_not_held_up_by_another(client: Client) -> None:
    client("[spin(600_000_000_000), events.update(s=ctypes.c_void_p())]")

    codes = client(
        "[cuda.cuStreamCreate(ctypes.byref(events['s']), 1), cuda.cuStreamQuery(events['s']),"
        " cuda.cuStreamSynchronize(events['s']), cuda.cuStreamQuery(None)]"
    )

    assert codes == [0, 0, 0, 600]


def test_impossible_shapes_are_refused(client: Client) -> None:
    codes = client(
        "[cuda.cuLaunchKernel(function('k'), *shape, 0, None, None, None)"
        " for shape in ([0, 1, 1, 1, 1, 1], [1, 1, 1, 1025, 1, 1], [1, 1, 1, 32, 32, 2])]"
    )

    assert codes == [1, 1, 1]
