"""Streams, copies and memsets on a simulated GPU: 40 SMs, 12 GB/s to the host, 500 GB/s inside."""

import json
from typing import Any

from tests.native.sim_box import SimBox

MS = 1_000_000
HOLD = 500 * MS


def told(box: SimBox, script: str) -> Any:
    """What the script prints, which is JSON."""
    script = "import json\nfrom tests.native.programs.stream_client import *\n" + script
    return json.loads(box.python(script))


def overlapping(box: SimBox, blocks: int) -> Any:
    """When kernels of 10 and of 30 ms end that start together in two streams."""
    return told(
        box,
        f"""
a, b = new(), new()
begin = hold([a, b])
busy(a, 10, {blocks})
busy(b, 30, {blocks})
print(json.dumps(since(begin, mark(a), mark(b))))
""",
    )


def test_streams_overlap_while_their_blocks_fit_the_sms(box: SimBox) -> None:
    assert overlapping(box, 20) == [10, 30]

    account = box.gpus.tenants()[0].devices[box.uuid]
    assert account.busy_ns == HOLD + 30 * MS
    assert account.sm_ns == HOLD + (10 + 30) * 20 * MS


def test_streams_that_fill_the_sms_share_them(box: SimBox) -> None:
    assert overlapping(box, 40) == [20, 40]


def test_small_blocks_share_an_sm(box: SimBox) -> None:
    told(
        box,
        "busy(new(), 1, 60, 256), busy(new(), 1, 3, 768)\ndone(cu.cuCtxSynchronize())\nprint(0)",
    )

    assert box.gpus.tenants()[0].devices[box.uuid].sm_ns == (60 // 4 + 3) * MS


def test_a_blocking_stream_and_the_legacy_one_follow_each_other(box: SimBox) -> None:
    ends = told(
        box,
        """
blocking, apart = new(0), new()
begin = hold([blocking, apart])
busy(blocking, 10)
first = mark(blocking)
busy(0, 5)
legacy = mark(0)
busy(blocking, 1)
busy(apart, 2)
print(json.dumps(since(begin, first, legacy, mark(blocking), mark(apart))))
""",
    )

    assert ends == [10, 15, 16, 2]


def test_copies_take_the_links_time_in_order_and_beside_kernels(box: SimBox) -> None:
    ends = told(
        box,
        """
a, b, c = new(), new(), new()
there, here = reserve(4), host(4)
begin = hold([a, b, c])
done(cu.cuMemcpyHtoDAsync(there, here, 1_200_000, a))
first = mark(a)
done(cu.cuMemcpyHtoDAsync(there, here, 2_400_000, a))
done(cu.cuMemcpyDtoHAsync(here, there, 3_600_000, b))
busy(c, 10)
print(json.dumps(since(begin, first, mark(a), mark(b), mark(c))))
""",
    )

    assert ends == [0.102, 0.304, 0.302, 10]
    assert box.gpus.tenants()[0].devices[box.uuid].busy_ns == HOLD + 10 * MS


def test_memsets_and_copies_within_the_device_take_the_sms(box: SimBox) -> None:
    ends = told(
        box,
        """
a = new()
one, other = reserve(5), reserve(5)
begin = hold([a])
done(cu.cuMemsetD8Async(one, 0, 5_000_000, a))
set = mark(a)
done(cu.cuMemcpyDtoDAsync(other, one, 5_000_000, a))
print(json.dumps(since(begin, set, mark(a))))
""",
    )

    account = box.gpus.tenants()[0].devices[box.uuid]
    assert ends == [0.011, 0.032]
    assert (account.busy_ns - HOLD, account.launches) == (32_000, 1)


def test_memsets_and_copies_of_a_graph_take_as_long(box: SimBox) -> None:
    ends = told(
        box,
        """
a = new()
there, here = reserve(5), host(2)
done(cu.cuStreamBeginCapture(a, cu.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_THREAD_LOCAL))
done(cu.cuMemsetD8Async(there, 0, 5_000_000, a))
done(cu.cuMemcpyHtoDAsync(there, here, 1_200_000, a))
graph = done(cu.cuGraphInstantiate(done(cu.cuStreamEndCapture(a)), 0))
begin = hold([a])
done(cu.cuGraphLaunch(graph, a))
print(json.dumps(since(begin, mark(a))))
""",
    )

    assert ends == [0.113]


def test_who_copies_synchronously_waits_for_the_work_before_and_the_copy(box: SimBox) -> None:
    states = told(
        box,
        """
there, here = reserve(2), host(2)
states = []
for copy in (lambda size: cu.cuMemcpyHtoD(there, here, size),
             lambda size: cu.cuMemcpyDtoH(here, there, size),
             lambda size: cu.cuMemcpyDtoD(there, there, size)):
    busy(0, 50)
    event = mark(0)
    done(copy(1_200_000))
    states.append(int(cu.cuEventQuery(event)[0]))
print(json.dumps(states))
""",
    )

    assert states == [0, 0, 600]  # within the device nobody is waited for
