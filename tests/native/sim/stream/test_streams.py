"""Streams, copies and memsets on a simulated GPU: 40 SMs, 12 GB/s to the host, 500 GB/s inside."""

from cuda.bindings import driver as cu

from tests.native.programs.graph_client import done, ready
from tests.native.programs.stream_client import *
from tests.native.sim_box import SimBox

MACHINE = {"cuda_version": 12050}
MS = 1_000_000


def overlapping(blocks: int) -> list[float]:
    """When kernels of 10 and of 30 ms end that start together in two streams."""
    a, b = new(), new()
    begin = hold([a, b])
    busy(a, 10, blocks)
    busy(b, 30, blocks)
    return since(begin, mark(a), mark(b))


def test_streams_overlap_while_their_blocks_fit_the_sms(box: SimBox) -> None:
    assert overlapping(20) == [10, 30]

    assert box.account().busy_ns == 30 * MS
    assert box.account().sm_ns == (10 + 30) * 20 * MS


def test_streams_that_fill_the_sms_share_them() -> None:
    assert overlapping(40) == [20, 40]


def test_small_blocks_share_an_sm(box: SimBox) -> None:
    busy(new(), 1, 60, 256)
    busy(new(), 1, 3, 768)
    done(cu.cuCtxSynchronize())

    assert box.account().sm_ns == (60 // 4 + 3) * MS


def test_a_blocking_stream_and_the_legacy_one_follow_each_other() -> None:
    blocking, apart = new(0), new()
    begin = hold([blocking, apart])
    busy(blocking, 10)
    first = mark(blocking)
    busy(0, 5)
    legacy = mark(0)
    busy(blocking, 1)
    busy(apart, 2)

    assert since(begin, first, legacy, mark(blocking), mark(apart)) == [10, 15, 16, 2]


def test_copies_take_the_links_time_in_order_and_beside_kernels(box: SimBox) -> None:
    a, b, c = new(), new(), new()
    there, here = reserve(4), host(4)
    begin = hold([a, b, c])
    done(cu.cuMemcpyHtoDAsync(there, here, 1_200_000, a))
    first = mark(a)
    done(cu.cuMemcpyHtoDAsync(there, here, 2_400_000, a))
    done(cu.cuMemcpyDtoHAsync(here, there, 3_600_000, b))
    busy(c, 10)

    assert since(begin, first, mark(a), mark(b), mark(c)) == [0.102, 0.304, 0.302, 10]
    assert box.account().busy_ns == 10 * MS


def test_memsets_and_copies_within_the_device_take_the_sms(box: SimBox) -> None:
    a = new()
    one, other = reserve(5), reserve(5)
    begin = hold([a])
    done(cu.cuMemsetD8Async(one, 0, 5_000_000, a))
    set_ = mark(a)
    done(cu.cuMemcpyDtoDAsync(other, one, 5_000_000, a))

    assert since(begin, set_, mark(a)) == [0.011, 0.032]
    assert (box.account().busy_ns, box.account().launches) == (32_000, 0)


def test_memsets_and_copies_of_a_graph_take_as_long() -> None:
    a = new()
    there, here = reserve(5), host(2)
    done(cu.cuStreamBeginCapture(a, cu.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_THREAD_LOCAL))
    done(cu.cuMemsetD8Async(there, 0, 5_000_000, a))
    done(cu.cuMemcpyHtoDAsync(there, here, 1_200_000, a))
    graph = ready(done(cu.cuStreamEndCapture(a)))
    begin = hold([a])
    done(cu.cuGraphLaunch(graph, a))

    assert since(begin, mark(a)) == [0.113]


def test_who_copies_synchronously_waits_for_the_work_before_and_the_copy() -> None:
    there, here = reserve(2), host(2)
    states = []
    for copy, to, source in (
        (cu.cuMemcpyHtoD, there, here),
        (cu.cuMemcpyDtoH, here, there),
        (cu.cuMemcpyDtoD, there, there),
    ):
        busy(0, 50)
        event = mark(0)
        assert int(copy(to, source, 1_200_000)[0]) == 0
        states.append(int(cu.cuEventQuery(event)[0]))

    assert states == [0, 0, 600]  # within the device nobody is waited for
