"""Stream capture on the simulated driver, through NVIDIA's own cuda-bindings."""

from cuda.bindings import driver as cu

from tests.native.programs.graph_client import *
from tests.native.sim_box import SimBox

MACHINE = {"cuda_version": 12050}
RELAXED = cu.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED


def test_work_put_into_a_captured_stream_becomes_a_graph_and_does_not_run(box: SimBox) -> None:
    def content() -> bytearray:
        found = bytearray(16)
        done(cu.cuMemcpyDtoH(found, other, 16))
        return found

    other = done(cu.cuMemAlloc(4096))
    capture()
    address = done(cu.cuMemAllocAsync(MIB, stream))
    done(cu.cuMemsetD8Async(address, 5, 16, stream))
    done(cu.cuMemcpyAsync(other, address, 16, stream))
    run(1000)
    done(cu.cuMemFreeAsync(address, stream))
    assert done(cu.cuStreamIsCapturing(stream)).name == "CU_STREAM_CAPTURE_STATUS_ACTIVE"
    g = captured()
    assert kinds(g) == ["MEM_ALLOC", "MEMSET", "MEMCPY", "KERNEL", "MEM_FREE"]
    assert (done(cu.cuGraphGetEdges(g))[-1], memory("RESERVED_MEM_CURRENT")) == (4, 0)
    assert max(content()) == 0

    launch(ready(g))
    sync()

    assert min(content()) == 5
    assert box.account().launches == 1


def test_streams_join_a_capture_by_events_and_must_come_back() -> None:
    side = done(cu.cuStreamCreate(1))
    fork, back = done(cu.cuEventCreate(2)), done(cu.cuEventCreate(2))
    for comes_back in True, False:
        capture()
        run(1)
        done(cu.cuEventRecord(fork, stream))
        done(cu.cuStreamWaitEvent(side, fork, 0))
        run(1, side)
        run(1)
        assert done(cu.cuStreamIsCapturing(side)).value == 1
        if comes_back:
            done(cu.cuEventRecord(back, side))
            done(cu.cuStreamWaitEvent(stream, back, 0))
            run(1)
            g = captured()
            assert (kinds(g), done(cu.cuGraphGetEdges(g))[-1]) == (["KERNEL"] * 4, 4)
        else:
            unjoined = refused(cu.cuStreamEndCapture(stream))
            assert unjoined == "CUDA_ERROR_STREAM_CAPTURE_UNJOINED"
        assert done(cu.cuStreamIsCapturing(side)).value == 0
    assert refused(cu.cuEventQuery(fork)) == "CUDA_ERROR_CAPTURED_EVENT"


def test_a_call_that_cannot_be_captured_fails_and_spoils_the_capture() -> None:
    outside = done(cu.cuEventCreate(0))
    done(cu.cuEventRecord(outside, 0))
    for call, error in (
        (lambda: cu.cuStreamSynchronize(stream), "STREAM_CAPTURE_UNSUPPORTED"),
        (lambda: cu.cuStreamQuery(stream), "STREAM_CAPTURE_UNSUPPORTED"),
        (cu.cuCtxSynchronize, "STREAM_CAPTURE_UNSUPPORTED"),
        (lambda: cu.cuMemAlloc(4096), "STREAM_CAPTURE_UNSUPPORTED"),
        (lambda: cu.cuStreamWaitEvent(stream, outside, 0), "STREAM_CAPTURE_ISOLATION"),
        (lambda: cu.cuStreamBeginCapture(stream, RELAXED), "INVALID_VALUE"),
    ):
        capture()
        assert refused(call()) == f"CUDA_ERROR_{error}"
        spoilt = refused(cu.cuStreamEndCapture(stream))
        assert spoilt == "CUDA_ERROR_STREAM_CAPTURE_INVALIDATED"
    capture()
    assert kinds(captured()) == []


def test_a_relaxed_capture_lets_memory_be_allocated() -> None:
    capture(RELAXED)
    assert done(cu.cuMemAlloc(4096)) != 0
    captured()
    capture()
    before = done(cu.cuThreadExchangeStreamCaptureMode(RELAXED))
    assert before.name == "CU_STREAM_CAPTURE_MODE_GLOBAL"
    assert done(cu.cuMemAlloc(4096)) != 0
    assert kinds(captured()) == []


def test_a_capture_can_go_on_in_a_graph_and_tells_about_itself() -> None:
    g = graph()
    root = kernel(g, [], 1)
    done(cu.cuStreamBeginCaptureToGraph(stream, g, [root], None, 1, RELAXED))
    status, number, inside, *_, count = done(cu.cuStreamGetCaptureInfo(stream))
    assert (status.value, int(number) > 0, int(inside), count) == (1, True, int(g), 1)
    run(1)
    done(cu.cuStreamUpdateCaptureDependencies(stream, [root], None, 1, 1))
    run(1)

    assert (int(captured()), kinds(g)) == (int(g), ["KERNEL"] * 3)
    assert done(cu.cuGraphGetEdges(g))[-1] == 2
    assert done(cu.cuGraphNodeGetDependentNodes(root))[-1] == 2
