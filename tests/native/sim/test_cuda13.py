"""The simulated driver's functions of CUDA 13, of a context or a device that the call names."""

import ctypes

from tests.native.programs.sim_client import *
from tests.native.programs.virtual_client import read

MACHINE = {"cuda_version": 13040}

assert init() == 0


def on_second_device() -> ctypes.c_void_p:
    """Its context, with work to do; that of the first is current again."""
    second = ctypes.c_void_p()
    assert [init(1), cuda.cuCtxGetCurrent(ctypes.byref(second)), work(), init(0)] == [0] * 4
    return second


def work() -> int:
    return spin(300_000_000) or record("end")


def stream() -> ctypes.c_void_p:
    made = ctypes.c_void_p()
    assert cuda.cuStreamCreate(ctypes.byref(made), 0) == 0
    return made


def test_a_context_is_waited_for_that_is_not_current_and_tells_its_device() -> None:
    second, device = on_second_device(), ctypes.c_int(-1)

    assert [cuda.cuCtxSynchronize_v2(second), cuda.cuEventQuery(events["end"])] == [0, 0]
    assert (cuda.cuCtxGetDevice_v2(ctypes.byref(device), second), device.value) == (0, 1)


def test_no_context_means_the_current_one_if_there_is_one() -> None:
    device = ctypes.byref(ctypes.c_int())
    assert work() == 0
    assert [cuda.cuCtxSynchronize_v2(None), cuda.cuEventQuery(events["end"])] == [0, 0]

    cuda.cuCtxSetCurrent(None)

    assert [cuda.cuCtxSynchronize_v2(None), cuda.cuCtxGetDevice_v2(device, None)] == [201, 201]


def test_a_batch_of_copies_is_made_or_refused_for_what_is_wrong() -> None:
    def copy(*, where: object, order: int = 1, first: int = 0, last: int = 4) -> int:
        to = (ctypes.c_uint64 * 2)(held[-1] + 4, held[-1])
        sources = (ctypes.c_uint64 * 2)(*(ctypes.addressof(text) + n for n in (0, 4)))
        sizes, begin = (ctypes.c_size_t * 2)(4, last), (ctypes.c_size_t * 1)(first)
        ranges = to, sources, sizes, ctypes.c_size_t(2), (ctypes.c_int * 6)(order), begin
        return int(cuda.cuMemcpyBatchAsync_v2(*ranges, ctypes.c_size_t(1), where))

    assert alloc(4096) == 0
    text, own = ctypes.create_string_buffer(b"evenmost"), stream()

    assert [copy(where=own, order=order) for order in (0, 4)] == [1, 1]
    assert [copy(where=own, first=1), copy(where=None), copy(where=own, last=1 << 20)] == [1, 1, 1]
    assert (copy(where=own), read(held[-1], 8)) == (0, "mosteven")


def test_events_and_streams_answer_to_their_newer_names() -> None:
    time, device = ctypes.c_float(), ctypes.c_int(-1)
    assert [record("begin"), spin(2_000_000), record("end"), sync()] == [0] * 4
    pair = events["begin"], events["end"]

    assert cuda.cuEventElapsedTime_v2(ctypes.byref(time), *pair) == 0
    assert time.value == elapsed("begin", "end")
    assert cuda.cuStreamGetDevice(stream(), ctypes.byref(device)) == device.value == 0


def test_graphs_take_nodes_by_their_newest_name() -> None:
    """An allocation of 5,000 bytes, whose parameters begin at the 16th byte."""
    graph, node = ctypes.c_void_p(), ctypes.c_void_p()
    assert cuda.cuGraphCreate(ctypes.byref(graph), 0) == 0
    params = (ctypes.c_int * 64)(10, 0, 0, 0, 1, 0, 1, 0)
    ctypes.c_uint64.from_buffer(params, 120).value = 5000

    none = None, None, ctypes.c_size_t(0)
    assert cuda.cuGraphAddNode_v3(ctypes.byref(node), graph, *none, params) == 0
    assert node.value is not None
    assert cuda.cuGraphNodeSetParams_v2(node, params) == 1
    address = ctypes.c_uint64.from_buffer(params, 128).value
    assert address % (2 << 20) == 0 < address
