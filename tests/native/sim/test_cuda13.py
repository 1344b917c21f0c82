"""The simulated driver's functions of CUDA 13, of a context or a device that the call names."""

from collections.abc import Iterator

import pytest

from tests.native.sim_box import Client, SimBox, machine, sim_box

WORK = "[spin(300_000_000), record('end')]"
ON_SECOND_DEVICE = (
    "[init(1),"
    " cuda.cuCtxGetCurrent(ctypes.byref(kept.setdefault('second', ctypes.c_void_p()))),"
    f" *{WORK}, init(0)]"
)


@pytest.fixture
def box() -> Iterator[SimBox]:
    with sim_box(machine(capability=9, cuda_version=13040)) as made:
        yield made


def test_a_context_is_waited_for_that_is_not_current(client: Client) -> None:
    assert client(ON_SECOND_DEVICE) == [0] * 5

    waited = client("[cuda.cuCtxSynchronize_v2(kept['second']), cuda.cuEventQuery(events['end'])]")

    assert waited == [0, 0]


def test_no_context_means_the_current_one(client: Client) -> None:
    assert client(WORK) == [0, 0]

    assert client("[cuda.cuCtxSynchronize_v2(None), cuda.cuEventQuery(events['end'])]") == [0, 0]


def test_the_device_of_a_context_that_is_not_current_is_told(client: Client) -> None:
    client(ON_SECOND_DEVICE)

    told = client(
        "(lambda device: [cuda.cuCtxGetDevice_v2(ctypes.byref(device), kept['second']),"
        " device.value])(ctypes.c_int(-1))"
    )

    assert told == [0, 1]


@pytest.mark.parametrize(
    "call", ["cuCtxSynchronize_v2(None)", "cuCtxGetDevice_v2(ctypes.byref(ctypes.c_int()), None)"]
)
def test_without_a_current_context_none_is_none(client: Client, call: str) -> None:
    client("cuda.cuCtxSetCurrent(None)")

    assert client(f"cuda.{call}") == 201


def test_memory_is_bound_on_its_own_device_alone(client: Client) -> None:
    client(
        "[keep('object', vm.multicast(vm.PAGE, 2)[1]), vm.join(kept['object'], 0),"
        " vm.join(kept['object'], 1), keep('memory', vm.create(vm.PAGE)[1])]"
    )

    bound = [
        client(f"vm.bind_on({device}, kept['object'], kept['memory'], vm.PAGE)")
        for device in (1, -1, 0)
    ]

    assert bound == [1, 1, 0]


BATCH = (
    "(lambda to, size, attributes, first: cuda.cuMemcpyBatchAsync_v2("
    "to, (ctypes.c_uint64 * 2)(*(ctypes.addressof(kept['text']) + n for n in (0, 4))),"
    " size, ctypes.c_size_t(2), attributes, first, ctypes.c_size_t(1), {stream}))"
    "((ctypes.c_uint64 * 2)(held[-1] + 4, held[-1]), (ctypes.c_size_t * 2)(4, {last}),"
    " (ctypes.c_int * 6)({order}), (ctypes.c_size_t * 1)({first}))"
)


@pytest.mark.parametrize(
    ("asked", "result"),
    [
        ({}, 0),
        ({"order": 0}, 1),
        ({"order": 4}, 1),
        ({"first": 1}, 1),
        ({"stream": "None"}, 1),
        ({"last": 1 << 20}, 1),
    ],
)
def test_a_batch_of_copies_is_made_or_refused_for_what_is_wrong(
    client: Client, asked: dict[str, object], result: int
) -> None:
    client("[alloc(4096), keep('text', ctypes.create_string_buffer(b'evenmost')) and 0]")
    client("cuda.cuStreamCreate(ctypes.byref(kept.setdefault('stream', ctypes.c_void_p())), 0)")
    words = {"stream": "kept['stream']", "order": 1, "first": 0, "last": 4} | asked

    assert client(BATCH.format(**words)) == result
    if result == 0:
        read = "cuda.cuMemcpyDtoH_v2(kept['text'], word(held[-1]), ctypes.c_size_t(8))"
        assert client(f"[{read}, kept['text'].value.decode()]") == [0, "mosteven"]


def test_events_and_streams_answer_to_their_newer_names(client: Client) -> None:
    client("[record('begin'), spin(2_000_000), record('end'), sync()]")
    client("cuda.cuStreamCreate(ctypes.byref(kept.setdefault('stream', ctypes.c_void_p())), 0)")

    elapsed = client(
        "(lambda time: [cuda.cuEventElapsedTime_v2(ctypes.byref(time), events['begin'],"
        " events['end']), time.value])(ctypes.c_float())"
    )
    device = client(
        "(lambda device: [cuda.cuStreamGetDevice(kept['stream'], ctypes.byref(device)),"
        " device.value])(ctypes.c_int(-1))"
    )

    assert elapsed == [0, client("elapsed('begin', 'end')")]
    assert device == [0, 0]


def test_graphs_take_nodes_by_their_newest_name(client: Client) -> None:
    """An allocation of 5,000 bytes, whose parameters begin at the 16th byte."""
    client("cuda.cuGraphCreate(ctypes.byref(kept.setdefault('graph', ctypes.c_void_p())), 0)")
    words = "(ctypes.c_int * 64)(10, 0, 0, 0, 1, 0, 1, 0)"
    client(
        f"keep('params', {words}) and ctypes.memmove(ctypes.addressof(kept['params']) + 120,"
        " ctypes.byref(ctypes.c_uint64(5000)), 8) and 0"
    )

    added = client(
        "(lambda node: [cuda.cuGraphAddNode_v3(ctypes.byref(node), kept['graph'], None, None,"
        " ctypes.c_size_t(0), kept['params']), node.value is not None,"
        " cuda.cuGraphNodeSetParams_v2(node, kept['params'])])(ctypes.c_void_p())"
    )
    address = client("ctypes.c_uint64.from_address(ctypes.addressof(kept['params']) + 128).value")

    assert added == [0, True, 1]
    assert address % (2 << 20) == 0
    assert address > 0
