"""Advice, prefetching and attributes of managed memory on the simulated driver."""

from tests.native.sim.graph.graph_scripts import told
from tests.native.sim_box import SimBox, machine, sim_box

INVALID = "CUDA_ERROR_INVALID_VALUE"
MANAGED = """
memory = int(done(cu.cuMemAllocManaged(1 << 20, 1)))
ATTRIBUTE, ADVICE = cu.CUmem_range_attribute, cu.CUmem_advise
PLACES = cu.CUmemLocationType
def place(kind, number=0):
    found = cu.CUmemLocation()
    found.type, found.id = getattr(PLACES, "CU_MEM_LOCATION_TYPE_" + kind), number
    return found
def told(name, size=4):
    attribute = getattr(ATTRIBUTE, "CU_MEM_RANGE_ATTRIBUTE_" + name)
    return done(cu.cuMemRangeGetAttribute(size, attribute, memory, 1 << 20))
def advise(name, where=None, address=memory, size=1 << 20):
    kind = getattr(ADVICE, "CU_MEM_ADVISE_" + name)
    return cu.cuMemAdvise(address, size, kind, where or place("DEVICE"))
"""


def test_advice_is_told_of_the_range(box: SimBox) -> None:
    out = told(
        box,
        MANAGED
        + """
print(told("READ_MOSTLY"), told("PREFERRED_LOCATION"), told("LAST_PREFETCH_LOCATION"))
cu.cuMemAdvise(memory, 4096, ADVICE.CU_MEM_ADVISE_SET_READ_MOSTLY, place("DEVICE", 99))
advise("SET_PREFERRED_LOCATION", place("DEVICE", 1))
advise("SET_ACCESSED_BY", place("HOST"))
advise("SET_ACCESSED_BY", place("DEVICE", 1))
print(told("READ_MOSTLY"), told("PREFERRED_LOCATION"), told("ACCESSED_BY", 12))
print(told("PREFERRED_LOCATION_TYPE"), told("PREFERRED_LOCATION_ID"))
advise("UNSET_READ_MOSTLY")
advise("SET_PREFERRED_LOCATION", place("HOST_NUMA"))
advise("UNSET_ACCESSED_BY", place("HOST"))
print(told("READ_MOSTLY"), told("PREFERRED_LOCATION"), told("ACCESSED_BY", 8))
advise("UNSET_PREFERRED_LOCATION")
print(told("PREFERRED_LOCATION"))
""",
    )

    # -1: the host; -2: none, or none that a device's number could tell
    assert out == ["0 -2 -2", "1 1 [1, -1, -2]", "1 1", "0 -2 [1, -2]", "-2"]


def test_several_attributes_are_told_at_once(box: SimBox) -> None:
    out = told(
        box,
        MANAGED
        + """
advise("SET_READ_MOSTLY")
names = [ATTRIBUTE.CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY,
         ATTRIBUTE.CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION]
print(done(cu.cuMemRangeGetAttributes([4, 4], names, 2, memory, 4096)))
""",
    )

    assert out == ["[1, -2]"]


def test_only_managed_memory_that_is_there_takes_advice(box: SimBox) -> None:
    out = told(
        box,
        MANAGED
        + """
plain = int(done(cu.cuMemAlloc(4096)))
print(refused(advise("SET_READ_MOSTLY", address=plain, size=4096)))
print(refused(advise("SET_READ_MOSTLY", size=(1 << 20) + 1)))
print(refused(advise("SET_READ_MOSTLY", size=0)))
print(refused(advise("SET_PREFERRED_LOCATION", place("DEVICE", 2))))
print(refused(advise("SET_ACCESSED_BY", place("HOST_NUMA"))))
print(refused(cu.cuMemPrefetchAsync(plain, 4096, place("DEVICE"), 0, stream)))
print(refused(cu.cuMemPrefetchAsync(memory, 4096, place("DEVICE"), 1, stream)))
""",
    )

    assert out == [*[INVALID] * 3, "CUDA_ERROR_INVALID_DEVICE", *[INVALID] * 3]


def test_a_prefetch_takes_the_links_time_once_and_is_told(box: SimBox) -> None:
    out = box.python(
        "from tests.native.programs.stream_client import *\n"
        "from tests.native.programs.graph_client import *\n"
        + MANAGED.replace("1 << 20", "12_000_000")
        + """
s = new()
begin = hold([s])
ends = []
for where in (place("DEVICE"), place("DEVICE"), place("HOST")):
    done(cu.cuMemPrefetchAsync(memory, 12_000_000, where, 0, s))
    ends.append(mark(s))
print(since(begin, *ends))
told = lambda name: done(cu.cuMemRangeGetAttribute(
    4, getattr(ATTRIBUTE, "CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_" + name), memory, 12_000_000))
print(told("LOCATION"), told("LOCATION_TYPE"))
""",
    ).splitlines()

    assert out == ["[1.002, 1.002, 2.004]", "-1 2"]


def test_managed_memory_is_attached_whole_and_to_a_stream_of_the_programs(box: SimBox) -> None:
    out = told(
        box,
        MANAGED
        + """
HOW = cu.CUmemAttach_flags
for where, address, size, flags in (
        (stream, memory, 0, HOW.CU_MEM_ATTACH_SINGLE), (0, memory, 1 << 20, HOW.CU_MEM_ATTACH_HOST),
        (0, memory, 0, HOW.CU_MEM_ATTACH_SINGLE), (stream, memory, 4096, HOW.CU_MEM_ATTACH_GLOBAL),
        (stream, memory, 0, 3)):
    print(int(cu.cuStreamAttachMemAsync(where, address, size, int(flags))[0]))
""",
    )

    assert out == ["0", "0", "1", "1", "1"]


def test_batches_prefetch_each_range_to_its_place() -> None:
    script = """
several = [cu.CUdeviceptr(memory), *(done(cu.cuMemAllocManaged(4096, 1)) for _ in range(3))]
sizes = [4096] * 4
def last(address):
    attribute = ATTRIBUTE.CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION
    return done(cu.cuMemRangeGetAttribute(4, attribute, address, 4096))
def batch(call, places, starts, where=stream, ranges=several):
    return int(call(ranges, sizes, 4, places, starts, len(places), 0, where)[0])
places = [place("HOST"), place("DEVICE", 1)]
print(batch(cu.cuMemPrefetchBatchAsync, places, [0, 3]), [last(one) for one in several])
print(batch(cu.cuMemDiscardAndPrefetchBatchAsync, places[1:], [0]), [last(one) for one in several])
print(int(cu.cuMemDiscardBatchAsync(several, sizes, 4, 0, stream)[0]))
plain = done(cu.cuMemAlloc(4096))
print(batch(cu.cuMemPrefetchBatchAsync, places, [0, 4]), batch(
    cu.cuMemPrefetchBatchAsync, places, [1, 2]), batch(
    cu.cuMemPrefetchBatchAsync, places, [0, 3], 0), batch(
    cu.cuMemPrefetchBatchAsync, places, [0, 3], stream, [*several[:3], plain]))
"""
    with sim_box(machine(cuda_version=13040)) as newer:
        out = told(newer, MANAGED + script)

    assert out == ["0 [-1, -1, -1, 1]", "0 [1, 1, 1, 1]", "0", "1 1 1 1"]
