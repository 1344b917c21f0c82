"""Looking for GPUs: until there are some, past a driver that fails or hangs; and who is missing."""

import asyncio
import threading
from collections.abc import Callable

import pytest

from gpumanager.gpu.discovery import DeviceDiscovery, joined
from gpumanager.gpu.nvml import NvmlError
from gpumanager.gpu.nvml_service import NvmlService
from gpumanager.gpu.values import Bond, Gpu, GpuUUID, Level, Topology, topology
from gpumanager.units import GIB, Bytes

BOUND = 120.0
NONE = topology([], [])


def gpus(*names: str) -> Topology:
    found = [
        Gpu(index, index, GpuUUID(f"GPU-{name}"), f"0:{index}", "T4", Bytes(GIB))
        for index, name in enumerate(names)
    ]
    bonds = [[None if a == b else Bond(Level.PIX) for b in found] for a in found]
    return topology(found, bonds)


def answers(*given: Topology | NvmlError) -> Callable[[], Topology]:
    left = list(given)

    def answer() -> Topology:
        one = left.pop(0)
        if isinstance(one, NvmlError):
            raise one
        return one

    return answer


async def test_it_looks_until_there_is_a_gpu_and_says_each_reason_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    missing = NvmlError("opening NVML: install the NVIDIA driver")
    search = DeviceDiscovery(NvmlService(), answers(missing, missing, NONE, NONE, gpus("a")))

    found = await asyncio.wait_for(search.first(pause=0), BOUND)

    assert found == gpus("a")
    assert caplog.text.count("install the NVIDIA driver") == 1
    assert caplog.text.count("the driver lists no GPU") == 1


async def test_a_look_that_hangs_is_an_error_after_its_bound_and_is_waited_for_by_the_next() -> (
    None
):
    go, looks = threading.Event(), []

    def hang() -> Topology:
        looks.append(1)
        go.wait()
        return gpus("a")

    search = DeviceDiscovery(NvmlService(), hang, answer_seconds=0.01)
    for _ in range(2):
        with pytest.raises(NvmlError, match="does not answer"):
            await search.look()
    go.set()

    assert await asyncio.wait_for(search.first(pause=0.01), BOUND) == gpus("a")
    assert len(looks) == 1


def test_a_gpu_that_is_missing_stays_known_behind_those_that_are_there() -> None:
    known, found = gpus("a", "b", "c"), gpus("b", "d")

    both = joined(known, found)

    assert [(gpu.uuid, gpu.index) for gpu in both.gpus] == [
        ("GPU-b", 0),
        ("GPU-d", 1),
        ("GPU-a", 2),
        ("GPU-c", 3),
    ]
    assert both.bond(0, 1) == Bond(Level.PIX)
    assert both.bond(1, 2) == both.bond(2, 3) == Bond(Level.SYS)


def test_a_gpu_that_comes_back_has_its_place_and_its_bonds_again() -> None:
    found = gpus("a", "b")

    assert joined(joined(found, gpus("b")), found) == found
