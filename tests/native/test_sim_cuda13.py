"""The simulated driver's functions of CUDA 13, of a context or a device that the call names."""

from collections.abc import Iterator

import pytest
from sim_box import Client, SimBox, machine, sim_box

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
