"""Virtual memory management of the simulated driver: its documented contract, and the ledger."""

from cuda.bindings import driver as cu

from tests.native.programs.graph_client import done
from tests.native.programs.virtual_client import *
from tests.native.sim_box import SimBox

MACHINE = {"capability": 9}

assert begin() == 0


def mapped(pages: int = 1, of: int = 4) -> tuple[int, int]:
    """An address range, and memory mapped at its begin that nobody may access."""
    at, (code, memory) = reserve(of * PAGE), create(pages * PAGE)
    assert [code, map_at(at, pages * PAGE, memory)] == [0, 0]
    return at, memory


def test_memory_is_charged_to_the_device_of_its_properties_without_any_context(
    box: SimBox,
) -> None:
    assert cuda.cuDevicePrimaryCtxReset_v2(0) == 0
    code, memory = create(3 * PAGE, 1)

    assert (code, box.pages(0), box.pages(1)) == (0, 0, 3)
    assert (release(memory), box.pages(1)) == (0, 0)
    assert (create(PAGE, 0, HOST)[0], box.pages()) == (0, 0)  # the host's is not charged


def test_what_cannot_be_is_refused() -> None:
    for size, device, location, code in (
        (PAGE - 1, 0, DEVICE, 1),
        (0, 0, DEVICE, 1),
        (PAGE, 7, DEVICE, 101),
        (PAGE, 0, 9, 1),
        ((16 << 30) + PAGE, 0, DEVICE, 2),
        (16 << 30, 0, DEVICE, 0),
    ):
        assert create(size, device, location)[0] == code, (size, device, location)
    assert [retain(4096)[0], release(123), unmap(0, 0), take(0)[0]] == [1] * 4


def test_mapped_memory_stays_when_its_handle_is_released(box: SimBox) -> None:
    at = reserve(8 * PAGE)
    assert (segment(at, 2 * PAGE), box.pages()) == (0, 2)
    assert (unmap(at, 2 * PAGE), box.pages()) == (0, 0)


def test_memory_mapped_twice_shows_the_same_bytes_and_goes_with_the_last(box: SimBox) -> None:
    at, memory = mapped(2, of=8)
    again = at + 4 * PAGE
    assert map_at(again, PAGE, memory, PAGE) == 0
    assert [permit(at, 2 * PAGE), permit(again, PAGE)] == [0, 0]
    assert [write(at + PAGE, b"seen twice"), release(memory)] == [0, 0]

    assert read(again, 10) == "seen twice"
    assert (unmap(at, 2 * PAGE), box.pages()) == (0, 2)
    assert (unmap(again, PAGE), box.pages()) == (0, 0)


def test_contents_outlive_their_mapping() -> None:
    at, memory = mapped()
    assert [permit(at, PAGE), write(at, b"still there"), unmap(at, PAGE)] == [0, 0, 0]
    assert write(at, b"x") == 1
    assert [map_at(at + PAGE, PAGE, memory), permit(at + PAGE, PAGE)] == [0, 0]
    assert read(at + PAGE, 11) == "still there"


def test_nothing_is_accessible_before_it_is_permitted_nor_after_it_is_forbidden() -> None:
    at, _ = mapped()
    assert [permitted(at), write(at, b"x")] == [0, 1]
    assert [permit(at, PAGE), permitted(at), write(at, b"x")] == [0, 3, 0]
    assert [permit(at, PAGE, 0, 0), write(at, b"x")] == [0, 1]


def test_a_copy_may_cross_mappings_side_by_side_but_no_gap() -> None:
    at = reserve(4 * PAGE)
    assert [segment(at + page * PAGE, PAGE) for page in (0, 1, 3)] == [0, 0, 0]

    assert write(at + PAGE - 4, b"crossing") == 0
    assert read(at + PAGE - 4, 8) == "crossing"
    assert write(at + 2 * PAGE - 4, b"crossing") == 1


def test_several_mappings_are_unmapped_at_once_but_never_a_part_of_one(box: SimBox) -> None:
    at = reserve(8 * PAGE)
    assert [segment(at + 2 * pair * PAGE, 2 * PAGE) for pair in (0, 1, 3)] == [0, 0, 0]

    for begin_, size in ((0, 1), (1, 2), (0, 8)):
        assert unmap(at + begin_ * PAGE, size * PAGE) == 1
    assert box.pages() == 6
    assert (unmap(at, 4 * PAGE), box.pages()) == (0, 2)


def test_addresses_are_aligned_mapped_once_and_freed_whole() -> None:
    at, memory = reserve(4 * PAGE, 64 << 20), create(PAGE)[1]
    assert at % (64 << 20) == 0
    for where, size, code in (
        (at + 4 * PAGE, PAGE, 1),
        (at + 4096, PAGE, 1),
        (at, 2 * PAGE, 1),
        (at, PAGE, 0),
        (at, PAGE, 1),
    ):
        assert map_at(where, size, memory) == code
    assert [free_address(at, 4 * PAGE), unmap(at, PAGE)] == [1, 0]
    for where, size, code in ((at, PAGE, 1), (at + PAGE, 4 * PAGE, 1), (at, 4 * PAGE, 0)):
        assert free_address(where, size) == code


def test_a_retained_handle_is_the_one_that_was_mapped_and_is_released_again(box: SimBox) -> None:
    at, memory = mapped()
    assert [release(memory), release(memory)] == [0, 1]

    assert retain(at + 100) == [0, memory]
    assert (unmap(at, PAGE), box.pages()) == (0, 1)
    assert ([release(memory), release(memory)], box.pages()) == ([0, 1], 0)


def test_mapped_memory_is_not_freed_as_if_it_were_allocated(box: SimBox) -> None:
    at, _ = mapped()

    assert (cuda.cuMemFree_v2(U64(at)), box.pages()) == (1, 1)


def test_it_outlives_contexts_and_goes_with_the_process(box: SimBox) -> None:
    other = box.client()
    assert other("[init(), vm.segment(vm.reserve(vm.PAGE), vm.PAGE)]") == [0, 0]
    assert other("cuda.cuDevicePrimaryCtxRelease_v2(0)") == 0
    assert box.pages() == 1
    other.kill()
    assert box.pages() == 0


def test_nvidias_own_bindings_work_on_it() -> None:
    for name in (
        "VIRTUAL_MEMORY_MANAGEMENT",
        "HANDLE_TYPE_POSIX_FILE_DESCRIPTOR",
        "MULTICAST",
    ):
        known = getattr(cu.CUdevice_attribute, f"CU_DEVICE_ATTRIBUTE_{name}_SUPPORTED")
        assert done(cu.cuDeviceGetAttribute(known, 0)) == 1
    prop = cu.CUmemAllocationProp()
    prop.type = cu.CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_PINNED
    prop.location.type = cu.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
    prop.location.id = 1
    file = cu.CUmemAllocationHandleType.CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR
    prop.requestedHandleTypes = file
    recommended = cu.CUmemAllocationGranularity_flags.CU_MEM_ALLOC_GRANULARITY_RECOMMENDED
    page = done(cu.cuMemGetAllocationGranularity(prop, recommended))
    handle = done(cu.cuMemCreate(page, prop, 0))
    found = done(cu.cuMemGetAllocationPropertiesFromHandle(handle))
    assert (page, found.location.id, found.requestedHandleTypes) == (PAGE, 1, file)

    address = done(cu.cuMemAddressReserve(page, 0, 0, 0))
    done(cu.cuMemMap(address, page, 0, handle, 0))
    access = cu.CUmemAccessDesc()
    access.location.type, access.location.id = prop.location.type, 1
    access.flags = cu.CUmemAccess_flags.CU_MEM_ACCESS_FLAGS_PROT_READWRITE
    done(cu.cuMemSetAccess(address, page, [access], 1))
    ordinal = cu.CUpointer_attribute.CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL
    assert int(done(cu.cuPointerGetAttribute(ordinal, address))) == 1
    for answer in (
        cu.cuMemUnmap(address, page),
        cu.cuMemAddressFree(address, page),
        cu.cuMemRelease(handle),
    ):
        assert int(answer[0]) == 0
