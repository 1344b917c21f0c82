"""Virtual memory management of the simulated driver: its documented contract, and the ledger."""

from collections.abc import Iterator

import pytest

from tests.native.sim_box import Client, SimBox, machine, sim_box

PAGE = 2 << 20


@pytest.fixture
def box() -> Iterator[SimBox]:
    with sim_box(machine(capability=9)) as made:
        yield made


def test_memory_is_charged_to_the_device_of_its_properties_without_any_context(
    box: SimBox,
) -> None:
    client = box.client()

    assert client("[cuda.cuInit(0), keep('h', vm.create(3 * vm.PAGE, 1))[0]]") == [0, 0]

    assert (box.pages(0), box.pages(1)) == (0, 3)
    assert client("vm.release(kept['h'][1])") == 0
    assert box.pages(1) == 0


def test_memory_of_the_host_is_not_charged(box: SimBox, client: Client) -> None:
    assert client("vm.create(vm.PAGE, 0, vm.HOST)[0]") == 0

    assert box.pages() == 0


@pytest.mark.parametrize(
    ("call", "code"),
    [
        ("vm.create(vm.PAGE - 1)", 1),
        ("vm.create(0)", 1),
        ("vm.create(vm.PAGE, 7)", 101),
        ("vm.create(vm.PAGE, 0, 9)", 1),
        ("vm.create(16 << 30)", 0),
        ("vm.create((16 << 30) + vm.PAGE)", 2),
        ("vm.retain(4096)", 1),
        ("[vm.release(123)]", 1),
        ("[vm.unmap(0, 0)]", 1),
        ("vm.take(0)", 1),
    ],
)
def test_what_cannot_be_is_refused(client: Client, call: str, code: int) -> None:
    assert client(f"{call}[0]") == code


def test_mapped_memory_stays_when_its_handle_is_released(box: SimBox, client: Client) -> None:
    client("[keep('at', vm.reserve(8 * vm.PAGE)), vm.segment(kept['at'], 2 * vm.PAGE)]")
    assert box.pages() == 2

    assert client("vm.unmap(kept['at'], 2 * vm.PAGE)") == 0

    assert box.pages() == 0


def test_memory_mapped_twice_shows_the_same_bytes_and_goes_with_the_last(
    box: SimBox, client: Client
) -> None:
    client("[keep('at', vm.reserve(8 * vm.PAGE)), keep('h', vm.create(2 * vm.PAGE)[1])]")
    assert (
        client(
            "[vm.map_at(kept['at'], 2 * vm.PAGE, kept['h']),"
            " vm.map_at(kept['at'] + 4 * vm.PAGE, vm.PAGE, kept['h'], vm.PAGE),"
            " vm.permit(kept['at'], 2 * vm.PAGE), vm.permit(kept['at'] + 4 * vm.PAGE, vm.PAGE),"
            " vm.write(kept['at'] + vm.PAGE, b'seen twice'), vm.release(kept['h'])]"
        )
        == [0] * 6
    )

    assert client("vm.read(kept['at'] + 4 * vm.PAGE, 10)") == "seen twice"
    assert client("vm.unmap(kept['at'], 2 * vm.PAGE)") == 0
    assert box.pages() == 2
    assert client("vm.unmap(kept['at'] + 4 * vm.PAGE, vm.PAGE)") == 0
    assert box.pages() == 0


def test_contents_outlive_their_mapping(client: Client) -> None:
    client("[keep('at', vm.reserve(4 * vm.PAGE)), keep('h', vm.create(vm.PAGE)[1])]")
    client(
        "[vm.map_at(kept['at'], vm.PAGE, kept['h']), vm.permit(kept['at'], vm.PAGE),"
        " vm.write(kept['at'], b'still there'), vm.unmap(kept['at'], vm.PAGE)]"
    )

    assert client("vm.write(kept['at'], b'x')") == 1
    client(
        "[vm.map_at(kept['at'] + vm.PAGE, vm.PAGE, kept['h']),"
        " vm.permit(kept['at'] + vm.PAGE, vm.PAGE)]"
    )
    assert client("vm.read(kept['at'] + vm.PAGE, 11)") == "still there"


def test_nothing_is_accessible_before_it_is_permitted_nor_after_it_is_forbidden(
    client: Client,
) -> None:
    client("[keep('at', vm.reserve(vm.PAGE)), keep('h', vm.create(vm.PAGE)[1])]")
    client("vm.map_at(kept['at'], vm.PAGE, kept['h'])")

    assert client("[vm.permitted(kept['at']), vm.write(kept['at'], b'x')]") == [0, 1]
    assert client(
        "[vm.permit(kept['at'], vm.PAGE), vm.permitted(kept['at']), vm.write(kept['at'], b'x')]"
    ) == [0, 3, 0]
    assert client("[vm.permit(kept['at'], vm.PAGE, 0, 0), vm.write(kept['at'], b'x')]") == [0, 1]


def test_a_copy_may_cross_mappings_side_by_side_but_no_gap(client: Client) -> None:
    client("keep('at', vm.reserve(4 * vm.PAGE))")
    client("[vm.segment(kept['at'] + i * vm.PAGE, vm.PAGE) for i in (0, 1, 3)]")

    assert client("vm.write(kept['at'] + vm.PAGE - 4, b'crossing')") == 0
    assert client("vm.read(kept['at'] + vm.PAGE - 4, 8)") == "crossing"
    assert client("vm.write(kept['at'] + 2 * vm.PAGE - 4, b'crossing')") == 1


def test_several_mappings_are_unmapped_at_once_but_never_a_part_of_one(
    box: SimBox, client: Client
) -> None:
    client("keep('at', vm.reserve(8 * vm.PAGE))")
    client("[vm.segment(kept['at'] + 2 * i * vm.PAGE, 2 * vm.PAGE) for i in (0, 1, 3)]")

    assert client(
        "[vm.unmap(kept['at'], vm.PAGE), vm.unmap(kept['at'] + vm.PAGE, 2 * vm.PAGE),"
        " vm.unmap(kept['at'], 8 * vm.PAGE)]"
    ) == [1, 1, 1]
    assert box.pages() == 6
    assert client("vm.unmap(kept['at'], 4 * vm.PAGE)") == 0
    assert box.pages() == 2


def test_addresses_are_aligned_mapped_once_and_freed_whole(client: Client) -> None:
    client("[keep('at', vm.reserve(4 * vm.PAGE, 64 << 20)), keep('h', vm.create(vm.PAGE)[1])]")

    assert client("kept['at'] % (64 << 20)") == 0
    assert client(
        "[vm.map_at(kept['at'] + 4 * vm.PAGE, vm.PAGE, kept['h']),"
        " vm.map_at(kept['at'] + 4096, vm.PAGE, kept['h']),"
        " vm.map_at(kept['at'], 2 * vm.PAGE, kept['h']),"
        " vm.map_at(kept['at'], vm.PAGE, kept['h']), vm.map_at(kept['at'], vm.PAGE, kept['h'])]"
    ) == [1, 1, 1, 0, 1]
    assert client(
        "[vm.free_address(kept['at'], 4 * vm.PAGE), vm.unmap(kept['at'], vm.PAGE),"
        " vm.free_address(kept['at'], vm.PAGE), vm.free_address(kept['at'], 4 * vm.PAGE)]"
    ) == [1, 0, 1, 0]


def test_a_retained_handle_is_the_one_that_was_mapped_and_is_released_again(
    box: SimBox, client: Client
) -> None:
    client("[keep('at', vm.reserve(vm.PAGE)), keep('h', vm.create(vm.PAGE)[1])]")
    client("[vm.map_at(kept['at'], vm.PAGE, kept['h']), vm.release(kept['h'])]")
    assert client("vm.release(kept['h'])") == 1

    assert client("vm.retain(kept['at'] + 100) == [0, kept['h']]")
    assert client("vm.unmap(kept['at'], vm.PAGE)") == 0
    assert box.pages() == 1
    assert client("[vm.release(kept['h']), vm.release(kept['h'])]") == [0, 1]
    assert box.pages() == 0


def test_mapped_memory_is_not_freed_as_if_it_were_allocated(box: SimBox, client: Client) -> None:
    client("[keep('at', vm.reserve(vm.PAGE)), vm.segment(kept['at'], vm.PAGE)]")

    assert client("cuda.cuMemFree_v2(word(kept['at']))") == 1

    assert box.pages() == 1


def test_it_outlives_contexts_and_goes_with_the_process(box: SimBox, client: Client) -> None:
    client("[keep('at', vm.reserve(vm.PAGE)), vm.segment(kept['at'], vm.PAGE)]")
    assert client("cuda.cuDevicePrimaryCtxRelease_v2(0)") == 0
    assert box.pages() == 1

    client.kill()

    assert box.pages() == 0


BINDINGS = """
from cuda.bindings import driver as cu

def done(answer):
    assert answer[0] == cu.CUresult.CUDA_SUCCESS, answer
    return answer[1] if len(answer) == 2 else answer[1:]

done(cu.cuInit(0))
context = done(cu.cuDevicePrimaryCtxRetain(0))
done(cu.cuCtxSetCurrent(context))
attribute = cu.CUdevice_attribute
print([done(cu.cuDeviceGetAttribute(a, 0)) for a in (
    attribute.CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED,
    attribute.CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED,
    attribute.CU_DEVICE_ATTRIBUTE_MULTICAST_SUPPORTED)])
prop = cu.CUmemAllocationProp()
prop.type = cu.CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_PINNED
prop.location.type = cu.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
prop.location.id = 1
prop.requestedHandleTypes = cu.CUmemAllocationHandleType.CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR
page = done(cu.cuMemGetAllocationGranularity(
    prop, cu.CUmemAllocationGranularity_flags.CU_MEM_ALLOC_GRANULARITY_RECOMMENDED))
handle = done(cu.cuMemCreate(page, prop, 0))
found = done(cu.cuMemGetAllocationPropertiesFromHandle(handle))
print(page, found.location.id, found.requestedHandleTypes.name)
address = done(cu.cuMemAddressReserve(page, 0, 0, 0))
done(cu.cuMemMap(address, page, 0, handle, 0))
access = cu.CUmemAccessDesc()
access.location.type, access.location.id = prop.location.type, 1
access.flags = cu.CUmemAccess_flags.CU_MEM_ACCESS_FLAGS_PROT_READWRITE
done(cu.cuMemSetAccess(address, page, [access], 1))
print(int(done(cu.cuPointerGetAttribute(
    cu.CUpointer_attribute.CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, address))))
done(cu.cuMemUnmap(address, page))
done(cu.cuMemAddressFree(address, page))
done(cu.cuMemRelease(handle))
"""


def test_nvidias_own_bindings_work_on_it(box: SimBox) -> None:
    out = box.python(BINDINGS)

    assert out.split("\n") == [
        "[1, 1, 1]",
        f"{PAGE} 1 CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR",
        "1",
        "",
    ]
