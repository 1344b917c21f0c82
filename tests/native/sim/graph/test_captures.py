"""Stream capture on the simulated driver, through NVIDIA's own cuda-bindings."""

import pytest

from tests.native.sim.graph.graph_scripts import told
from tests.native.sim_box import SimBox


def test_work_put_into_a_captured_stream_becomes_a_graph_and_does_not_run(box: SimBox) -> None:
    out = told(
        box,
        """
other = done(cu.cuMemAlloc(4096))
capture()
address = done(cu.cuMemAllocAsync(MIB, stream))
done(cu.cuMemsetD8Async(address, 5, 16, stream))
done(cu.cuMemcpyAsync(other, address, 16, stream))
run(1000)
done(cu.cuMemFreeAsync(address, stream))
print(done(cu.cuStreamIsCapturing(stream)).name)
g = captured()
print(kinds(g), done(cu.cuGraphGetEdges(g))[-1], memory("RESERVED_MEM_CURRENT"))
before = bytearray(16)
done(cu.cuMemcpyDtoH(before, other, 16))
launch(ready(g))
done(cu.cuStreamSynchronize(stream))
after = bytearray(16)
done(cu.cuMemcpyDtoH(after, other, 16))
print(max(before), min(after))
""",
    )

    assert out == [
        "CU_STREAM_CAPTURE_STATUS_ACTIVE",
        "['MEM_ALLOC', 'MEMSET', 'MEMCPY', 'KERNEL', 'MEM_FREE'] 4 0",
        "0 5",
    ]
    assert box.gpus.tenants()[0].devices[box.uuid].launches == 1


def test_streams_join_a_capture_by_events_and_must_come_back(box: SimBox) -> None:
    out = told(
        box,
        """
side = done(cu.cuStreamCreate(1))
fork, back = done(cu.cuEventCreate(2)), done(cu.cuEventCreate(2))
for comes_back in True, False:
    capture()
    run(1)
    done(cu.cuEventRecord(fork, stream))
    done(cu.cuStreamWaitEvent(side, fork, 0))
    run(1, side)
    run(1)
    print(done(cu.cuStreamIsCapturing(side)).value)
    if comes_back:
        done(cu.cuEventRecord(back, side))
        done(cu.cuStreamWaitEvent(stream, back, 0))
        run(1)
        g = captured()
        print(kinds(g), done(cu.cuGraphGetEdges(g))[-1])
    else:
        print(refused(cu.cuStreamEndCapture(stream)))
    print(done(cu.cuStreamIsCapturing(side)).value)
print(refused(cu.cuEventQuery(fork)))
""",
    )

    assert out == [
        "1",
        "['KERNEL', 'KERNEL', 'KERNEL', 'KERNEL'] 4",
        "0",
        "1",
        "CUDA_ERROR_STREAM_CAPTURE_UNJOINED",
        "0",
        "CUDA_ERROR_CAPTURED_EVENT",
    ]


@pytest.mark.parametrize(
    ("call", "error"),
    [
        ("cu.cuStreamSynchronize(stream)", "STREAM_CAPTURE_UNSUPPORTED"),
        ("cu.cuStreamQuery(stream)", "STREAM_CAPTURE_UNSUPPORTED"),
        ("cu.cuCtxSynchronize()", "STREAM_CAPTURE_UNSUPPORTED"),
        ("cu.cuMemAlloc(4096)", "STREAM_CAPTURE_UNSUPPORTED"),
        ("cu.cuStreamWaitEvent(stream, outside, 0)", "STREAM_CAPTURE_ISOLATION"),
        ("cu.cuStreamBeginCapture(stream, 2 and relaxed)", "INVALID_VALUE"),
    ],
)
def test_a_call_that_cannot_be_captured_fails_and_spoils_the_capture(
    box: SimBox, call: str, error: str
) -> None:
    out = told(
        box,
        f"""
relaxed = cu.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED
outside = done(cu.cuEventCreate(0))
done(cu.cuEventRecord(outside, 0))
capture()
print(refused({call}))
print(refused(cu.cuStreamEndCapture(stream)))
capture()
print(kinds(captured()))
""",
    )

    assert out == [f"CUDA_ERROR_{error}", "CUDA_ERROR_STREAM_CAPTURE_INVALIDATED", "[]"]


def test_a_relaxed_capture_lets_memory_be_allocated(box: SimBox) -> None:
    out = told(
        box,
        """
relaxed = cu.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED
capture(relaxed)
print(done(cu.cuMemAlloc(4096)) != 0)
captured()
capture()
print(done(cu.cuThreadExchangeStreamCaptureMode(relaxed)).name)
print(done(cu.cuMemAlloc(4096)) != 0, kinds(captured()))
""",
    )

    assert out == ["True", "CU_STREAM_CAPTURE_MODE_GLOBAL", "True []"]


def test_a_capture_can_go_on_in_a_graph_and_tells_about_itself(box: SimBox) -> None:
    out = told(
        box,
        """
g = graph()
root = kernel(g, [], 1)
relaxed = cu.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED
done(cu.cuStreamBeginCaptureToGraph(stream, g, [root], None, 1, relaxed))
status, number, inside, after, *_ , count = done(cu.cuStreamGetCaptureInfo(stream))
print(status.value, int(number) > 0, int(inside) == int(g), count)
run(1)
done(cu.cuStreamUpdateCaptureDependencies(stream, [root], None, 1, 1))
run(1)
print(int(captured()) == int(g), kinds(g), done(cu.cuGraphNodeGetDependentNodes(root))[-1])
""",
    )

    assert out == ["1 True True 1", "True ['KERNEL', 'KERNEL', 'KERNEL'] 2"]
