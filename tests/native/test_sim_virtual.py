"""Virtual memory management of the simulated driver: its documented contract, and the ledger."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from sim_box import Client, SimBox, machine, sim_box

PAGE = 2 << 20


@pytest.fixture
def box() -> Iterator[SimBox]:
    with sim_box(machine(capability=9)) as made:
        yield made


@pytest.fixture
def client(box: SimBox) -> Client:
    made = box.client()
    assert made("init()") == 0
    return made


def used(box: SimBox, gpu: int = 0) -> int:
    """Bytes in the ledger, in pages."""
    found = box.gpus.device_bytes(box.machine.topology.gpus[gpu].uuid)
    assert found % PAGE == 0
    return found // PAGE


def test_memory_is_charged_to_the_device_of_its_properties_without_any_context(
    box: SimBox,
) -> None:
    client = box.client()

    assert client("[cuda.cuInit(0), keep('h', vm.create(3 * vm.PAGE, 1))[0]]") == [0, 0]

    assert (used(box, 0), used(box, 1)) == (0, 3)
    assert client("vm.release(kept['h'][1])") == 0
    assert used(box, 1) == 0


def test_memory_of_the_host_is_not_charged(box: SimBox, client: Client) -> None:
    assert client("vm.create(vm.PAGE, 0, vm.HOST)[0]") == 0

    assert used(box) == 0


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
    assert used(box) == 2

    assert client("vm.unmap(kept['at'], 2 * vm.PAGE)") == 0

    assert used(box) == 0


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
    assert used(box) == 2
    assert client("vm.unmap(kept['at'] + 4 * vm.PAGE, vm.PAGE)") == 0
    assert used(box) == 0


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
    assert used(box) == 6
    assert client("vm.unmap(kept['at'], 4 * vm.PAGE)") == 0
    assert used(box) == 2


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
    assert used(box) == 1
    assert client("[vm.release(kept['h']), vm.release(kept['h'])]") == [0, 1]
    assert used(box) == 0


def test_mapped_memory_is_not_freed_as_if_it_were_allocated(box: SimBox, client: Client) -> None:
    client("[keep('at', vm.reserve(vm.PAGE)), vm.segment(kept['at'], vm.PAGE)]")

    assert client("cuda.cuMemFree_v2(word(kept['at']))") == 1

    assert used(box) == 1


def test_it_outlives_contexts_and_goes_with_the_process(box: SimBox, client: Client) -> None:
    client("[keep('at', vm.reserve(vm.PAGE)), vm.segment(kept['at'], vm.PAGE)]")
    assert client("cuda.cuDevicePrimaryCtxRelease_v2(0)") == 0
    assert used(box) == 1

    client.kill()

    assert used(box) == 0


def shared(box: SimBox, exporter: Client, directory: Path, pages: int = 1) -> Client:
    """Another process that has imported what the exporter made under 'h'."""
    importer = box.client()
    importer("init()")
    path = str(directory / "s")
    importer(f"keep('listener', vm.listen({path!r})) and 0")
    assert exporter(f"keep('h', vm.create({pages} * vm.PAGE, shared=True))[0]") == 0
    exporter(f"vm.send({path!r}, vm.export(kept['h'][1]))")
    assert importer("keep('h', vm.take(vm.receive(kept['listener'])))[0]") == 0
    return importer


def test_an_imported_memory_shows_the_exporters_bytes_and_costs_nothing(
    box: SimBox, client: Client, tmp_path: Path
) -> None:
    importer = shared(box, client, box.directory)
    for each in (client, importer):
        assert each(
            "[keep('at', vm.reserve(vm.PAGE)) * 0, vm.map_at(kept['at'], vm.PAGE, kept['h'][1]),"
            " vm.permit(kept['at'], vm.PAGE)]"
        ) == [0, 0, 0]

    assert client("vm.write(kept['at'], b'from the exporter')") == 0

    assert importer("vm.read(kept['at'], 17)") == "from the exporter"
    assert [process.bytes_now for process in box.gpus.processes()] == [PAGE, 0]
    assert used(box) == 1


@pytest.mark.parametrize("end", ["release", "death"])
def test_when_the_exporter_lets_go_the_importer_pays(box: SimBox, client: Client, end: str) -> None:
    importer = shared(box, client, box.directory, pages=3)

    if end == "release":
        assert client("vm.release(kept['h'][1])") == 0
    else:
        client.kill()

    assert used(box) == 3
    assert importer("vm.release(kept['h'][1])") == 0
    assert used(box) == 0


def test_memory_imported_by_its_own_process_is_charged_once_and_kept_by_either(
    box: SimBox, client: Client
) -> None:
    client("keep('h', vm.create(vm.PAGE, shared=True)[1])")
    assert client("keep('i', vm.take(vm.export(kept['h'])))[0]") == 0
    assert used(box) == 1

    assert client("vm.release(kept['h'])") == 0
    assert used(box) == 1
    assert client("vm.release(kept['i'][1])") == 0
    assert used(box) == 0


def test_only_what_was_made_to_be_shared_can_be_exported(client: Client) -> None:
    assert client("vm.export(vm.create(vm.PAGE)[1])") == -1


def test_memory_that_was_let_go_on_its_way_is_charged_to_who_imports_it(
    box: SimBox, client: Client
) -> None:
    client("keep('h', vm.create(vm.PAGE, shared=True)[1])")
    client("[keep('fd', vm.export(kept['h'])), vm.release(kept['h'])]")
    assert used(box) == 0

    assert client("vm.take(kept['fd'])[0]") == 0

    assert used(box) == 1


def test_a_multicast_object_costs_nothing_and_keeps_what_is_bound(
    box: SimBox, client: Client
) -> None:
    client("[keep('m', vm.multicast(4 * vm.PAGE, 2)[1]), vm.join(kept['m'], 0)]")
    assert used(box) == 0
    client("keep('h', vm.create(vm.PAGE)[1])")

    assert client(
        "[vm.bind(kept['m'], kept['h'], vm.PAGE), vm.bind(kept['m'], kept['h'], vm.PAGE),"
        " vm.bind(kept['m'], kept['h'], vm.PAGE, vm.PAGE), vm.release(kept['h'])]"
    ) == [0, 1, 0, 0]

    assert used(box) == 1
    assert client("vm.unbind(kept['m'], 0, vm.PAGE)") == 0
    assert used(box) == 1
    assert client("vm.release(kept['m'])") == 0
    assert used(box) == 0


def test_only_devices_of_the_team_are_bound_and_mapped_memory_by_its_address(
    box: SimBox, client: Client
) -> None:
    client("[keep('m', vm.multicast(vm.PAGE, 2)[1]), keep('at', vm.reserve(2 * vm.PAGE))]")
    client("vm.segment(kept['at'], vm.PAGE, 1)")

    assert client(
        "[vm.join(kept['m'], 0), vm.bind_at(kept['m'], kept['at'], vm.PAGE),"
        " vm.join(kept['m'], 1), vm.join(kept['m'], 1),"
        " vm.bind_at(kept['m'], kept['at'], vm.PAGE), vm.unmap(kept['at'], vm.PAGE)]"
    ) == [0, 1, 0, 1, 0, 0]

    assert used(box, 1) == 1
    assert client(
        "[vm.unbind(kept['m'], 0, vm.PAGE), vm.unbind(kept['m'], 1, vm.PAGE),"
        " vm.map_at(kept['at'], vm.PAGE, kept['m'])]"
    ) == [1, 0, 0]
    assert used(box, 1) == 0


def test_multicast_needs_a_gpu_that_has_it(box: SimBox) -> None:
    with sim_box(machine(capability=8)) as older:
        client = older.client()
        client("init()")

        assert client("vm.multicast(vm.PAGE)[0]") == 801


def test_memory_of_another_process_is_opened_with_its_contents_and_not_charged(
    box: SimBox, client: Client
) -> None:
    other = box.client()
    other("init()")
    client("[alloc(5000), vm.write(held[0] + 4090, b'across the page')]")
    code, handle = client("vm.ipc_handle(held[0])")

    assert code == 0
    assert other(f"keep('o', vm.ipc_open({handle!r}))[0]") == 0
    assert other("vm.read(kept['o'][1] + 4090, 15)") == "across the page"
    assert other("vm.write(kept['o'][1], b'and back')") == 0
    assert client("vm.read(held[0], 8)") == "and back"
    assert box.gpus.device_bytes(box.uuid) == 5000
    assert client("free()") == 0
    assert box.gpus.device_bytes(box.uuid) == 0


def test_memory_opened_twice_has_one_address_and_is_closed_twice(
    box: SimBox, client: Client
) -> None:
    other = box.client()
    other("init()")
    client("alloc(5000)")
    handle = client("vm.ipc_handle(held[0])")[1]

    first = other(f"vm.ipc_open({handle!r})")
    again = other(f"vm.ipc_open({handle!r}, 'cuIpcOpenMemHandle')")

    assert first == again
    assert other(f"cuda.cuMemFree_v2(word({first[1]}))") == 1
    assert other(f"[vm.ipc_close({first[1]}) for _ in range(3)]") == [0, 0, 1]


def test_a_handle_is_for_other_processes_and_while_the_exporter_lives(
    box: SimBox, client: Client
) -> None:
    other = box.client()
    other("init()")
    client("alloc(5000)")
    handle = client("vm.ipc_handle(held[0])")[1]

    assert client(f"vm.ipc_open({handle!r})[0]") == 201
    assert client("vm.ipc_handle(4096)[0]") == 1
    assert client("[alloc(5000, 'cuMemAllocAsync', 0), vm.ipc_handle(held[-1])[0]]") == [0, 1]
    client.kill()
    assert other(f"vm.ipc_open({handle!r})[0]") == 400
    assert other("vm.ipc_open('00' * 64)[0]") == 400


def test_an_event_of_another_process_happens_when_its_work_is_done(
    box: SimBox, client: Client
) -> None:
    other = box.client()
    other("init()")
    client("keep('e', vm.event()[1])")
    code, handle = client("vm.event_handle(kept['e'])")
    assert (code, other(f"keep('e', vm.event_open({handle!r}))[0]")) == (0, 0)
    assert other("vm.of_event('Query', kept['e'][1])") == 0  # never recorded

    client("[spin(150_000_000), vm.of_event('Record', kept['e'], None)]")

    assert other("vm.of_event('Query', kept['e'][1])") == 600
    assert other("seconds(\"vm.of_event('Synchronize', kept['e'][1])\") > 0.05")
    assert client("vm.of_event('Query', kept['e'])") == 0
    assert other("cuda.cuStreamWaitEvent(None, ctypes.c_void_p(kept['e'][1]), 0)") == 0
    assert client("vm.of_event('Destroy_v2', kept['e'])") == 0
    assert other("vm.of_event('Destroy_v2', kept['e'][1])") == 0


def test_only_events_made_for_it_are_known_to_other_processes(client: Client) -> None:
    assert client("[vm.event(4)[0], vm.event_handle(vm.event(2)[1])[0]]") == [1, 400]
    handle = client("vm.event_handle(vm.event()[1])[1]")
    assert client(f"[vm.event_open({handle!r})[0], vm.event_open('00' * 64)[0]]") == [201, 400]


def test_an_event_of_a_process_that_died_has_happened(box: SimBox, client: Client) -> None:
    other = box.client()
    other("init()")
    client("[keep('e', vm.event()[1]), spin(60_000_000_000)]")
    client("vm.of_event('Record', kept['e'], None)")
    handle = client("vm.event_handle(kept['e'])[1]")
    other(f"keep('e', vm.event_open({handle!r}))")
    assert other("vm.of_event('Query', kept['e'][1])") == 600

    client.kill()

    assert other("vm.of_event('Synchronize', kept['e'][1])") == 0


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
