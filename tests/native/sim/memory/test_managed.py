"""Advice, prefetching and attributes of managed memory on the simulated driver."""

from collections.abc import Sequence
from typing import Any

from cuda.bindings import driver as cu

from tests.native.programs.graph_client import *
from tests.native.programs.stream_client import hold, mark, new, since
from tests.native.sim.program import on

MACHINE = {"cuda_version": 12050}
SIZE = 12_000_000
ATTRIBUTE, ADVICE = cu.CUmem_range_attribute, cu.CUmem_advise

room = int(done(cu.cuMemAllocManaged(SIZE, 1)))


def place(kind: str, number: int = 0) -> Any:
    found = cu.CUmemLocation()
    found.type, found.id = getattr(cu.CUmemLocationType, "CU_MEM_LOCATION_TYPE_" + kind), number
    return found


GPU, OTHER = place("DEVICE"), place("DEVICE", 1)


def told(name: str, size: int = 4, address: Any = room, of: int = SIZE) -> Any:
    attribute = getattr(ATTRIBUTE, "CU_MEM_RANGE_ATTRIBUTE_" + name)
    return done(cu.cuMemRangeGetAttribute(size, attribute, address, of))


def advise(name: str, where: Any = GPU, address: int = room, size: int = SIZE) -> Any:
    return cu.cuMemAdvise(address, size, getattr(ADVICE, "CU_MEM_ADVISE_" + name), where)


def test_advice_is_told_of_the_range() -> None:
    """-1: the host; -2: none, or none that a device's number could tell."""
    for name, nothing in (("READ_MOSTLY", 0), ("PREFERRED_LOCATION", -2)):
        assert told(name) == nothing
    assert told("LAST_PREFETCH_LOCATION") == -2

    advise("SET_READ_MOSTLY", place("DEVICE", 99), size=4096)
    advise("SET_PREFERRED_LOCATION", OTHER)
    advise("SET_ACCESSED_BY", place("HOST"))
    advise("SET_ACCESSED_BY", OTHER)
    assert (told("READ_MOSTLY"), told("PREFERRED_LOCATION")) == (1, 1)
    assert told("ACCESSED_BY", 12) == [1, -1, -2]
    assert (told("PREFERRED_LOCATION_TYPE"), told("PREFERRED_LOCATION_ID")) == (1, 1)

    advise("UNSET_READ_MOSTLY")
    advise("SET_PREFERRED_LOCATION", place("HOST_NUMA"))
    advise("UNSET_ACCESSED_BY", place("HOST"))
    assert (told("READ_MOSTLY"), told("PREFERRED_LOCATION")) == (0, -2)
    assert told("ACCESSED_BY", 8) == [1, -2]
    advise("UNSET_PREFERRED_LOCATION")
    assert told("PREFERRED_LOCATION") == -2


def test_several_attributes_are_told_at_once() -> None:
    advise("SET_READ_MOSTLY")

    names = [
        ATTRIBUTE.CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY,
        ATTRIBUTE.CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION,
    ]
    assert done(cu.cuMemRangeGetAttributes([4, 4], names, 2, room, 4096)) == [1, -2]


def test_only_managed_memory_that_is_there_takes_advice() -> None:
    plain = int(done(cu.cuMemAlloc(4096)))
    for answer in (
        advise("SET_READ_MOSTLY", address=plain, size=4096),
        advise("SET_READ_MOSTLY", size=SIZE + 1),
        advise("SET_READ_MOSTLY", size=0),
        advise("SET_ACCESSED_BY", place("HOST_NUMA")),
        cu.cuMemPrefetchAsync(plain, 4096, GPU, 0, stream),
        cu.cuMemPrefetchAsync(room, 4096, GPU, 1, stream),
    ):
        assert refused(answer) == INVALID
    nowhere = advise("SET_PREFERRED_LOCATION", place("DEVICE", 2))
    assert refused(nowhere) == "CUDA_ERROR_INVALID_DEVICE"


def test_a_prefetch_takes_the_links_time_once_and_is_told() -> None:
    s = new()
    begin = hold([s])
    ends = []
    for where in (GPU, GPU, place("HOST")):
        done(cu.cuMemPrefetchAsync(room, SIZE, where, 0, s))
        ends.append(mark(s))

    assert since(begin, *ends) == [1.002, 1.002, 2.004]
    assert (told("LAST_PREFETCH_LOCATION"), told("LAST_PREFETCH_LOCATION_TYPE")) == (-1, 2)


def test_managed_memory_is_attached_whole_and_to_a_stream_of_the_programs() -> None:
    everybody, the_host, single = 1, 2, 4
    for where, size, how, answer in (
        (stream, 0, single, 0),
        (0, SIZE, the_host, 0),
        (0, 0, single, 1),
        (stream, 4096, everybody, 1),
        (stream, 0, 3, 1),
    ):
        assert int(cu.cuStreamAttachMemAsync(where, room, size, how)[0]) == answer


@on(cuda_version=13040)
def test_batches_prefetch_each_range_to_its_place() -> None:
    several = [cu.CUdeviceptr(room), *(done(cu.cuMemAllocManaged(4096, 1)) for _ in range(3))]
    plain, sizes = done(cu.cuMemAlloc(4096)), [4096] * 4

    def batch(
        call: Any, places: Sequence[Any], starts: list[int], where: Any = stream, last: Any = None
    ) -> int:
        ranges = [*several[:3], last or several[3]]
        return int(call(ranges, sizes, 4, places, starts, len(places), 0, where)[0])

    def last() -> list[int]:
        return [told("LAST_PREFETCH_LOCATION", 4, one, 4096) for one in several]

    prefetch, places = cu.cuMemPrefetchBatchAsync, [place("HOST"), OTHER]
    assert batch(prefetch, places, [0, 3]) == 0
    assert last() == [-1, -1, -1, 1]
    assert batch(cu.cuMemDiscardAndPrefetchBatchAsync, [OTHER], [0]) == 0
    assert last() == [1, 1, 1, 1]
    assert int(cu.cuMemDiscardBatchAsync(several, sizes, 4, 0, stream)[0]) == 0

    assert [batch(prefetch, places, starts) for starts in ([0, 4], [1, 2])] == [1, 1]
    assert batch(prefetch, places, [0, 3], 0) == 1
    assert batch(prefetch, places, [0, 3], stream, plain) == 1
