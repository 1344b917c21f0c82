"""What the simulated driver says of pointers: one attribute, or several at once."""

import ctypes
from typing import Any

from tests.native.programs import virtual_client as vm
from tests.native.programs.pointer_client import ask, flags_of, one, pinned, set_one
from tests.native.programs.sim_client import (
    alloc,
    cuda,
    free,
    held,
    init,
    make_context,
    sync,
    word,
)
from tests.native.sim.program import on
from tests.native.sim_box import SimBox

MACHINE = {"cuda_version": 13040}
CONTEXT, TYPE, DEVICE_POINTER, HOST_POINTER, TOKENS, SYNCHRONOUS, NUMBER, MANAGED = range(1, 9)
ORDINAL, IPC, START, SIZE, MAPPED, HANDLES, RDMA, ACCESS, POOL, MAPPING_SIZE = range(9, 19)
MAPPING_START, BLOCK, DECOMPRESS, DOMAIN = range(19, 23)
HOST, DEVICE = 1, 2

assert init() == 0


def had(size: int = 5000, *how: Any) -> int:
    assert alloc(size, *how) == 0
    return held[-1]


def test_several_attributes_of_device_memory_are_told_at_once() -> None:
    address = had()

    told = ask(address, TYPE, DEVICE_POINTER, MANAGED, ORDINAL, IPC, START, SIZE, MAPPED)

    assert told == [0, DEVICE, address, 0, 0, 1, address, 5000, 1]


def test_an_attribute_that_does_not_hold_is_nothing_and_no_error() -> None:
    address = had()

    assert ask(address, HOST_POINTER, POOL, HANDLES, DOMAIN) == [0, 0, 0, 0, -1]
    assert one(address, HOST_POINTER)[0] == 1


def test_of_what_is_no_pointer_of_the_drivers_all_is_nothing() -> None:
    nothing = {CONTEXT: 0, TYPE: 0, DEVICE_POINTER: 0, HOST_POINTER: 0, NUMBER: 0, MANAGED: 0}
    nothing |= {ORDINAL: -2, SIZE: 0, DOMAIN: -1}

    assert ask(4096, *nothing) == [0, *nothing.values()]
    assert one(4096, TYPE)[0] == 1


def test_pinned_memory_is_the_hosts_and_freed_as_pinned_alone() -> None:
    address = pinned(4096, 4)

    told = ask(address, TYPE, HOST_POINTER, DEVICE_POINTER, MANAGED, ORDINAL, START, SIZE, IPC)

    assert told == [0, HOST, address, address, 0, 0, address, 4096, 0]
    assert flags_of(address) == [0, 4]  # those it was made with
    assert [cuda.cuMemFreeHost(ctypes.c_void_p(address)) for _ in range(2)] == [0, 1]


def test_registered_memory_is_known_until_it_is_the_programs_again() -> None:
    room = ctypes.create_string_buffer(8192)
    there, size = ctypes.addressof(room), ctypes.c_size_t(4096)

    assert [cuda.cuMemHostRegister_v2(room, size, 0) for _ in range(2)] == [0, 712]
    assert ask(there, TYPE) == [0, HOST]
    assert [cuda.cuMemHostUnregister(room) for _ in range(2)] == [0, 713]
    assert ask(there, TYPE) == [0, 0]


def test_pinned_memory_ends_with_its_context() -> None:
    make_context()
    address, context = pinned(4096), ctypes.c_void_p()
    assert cuda.cuCtxPopCurrent_v2(ctypes.byref(context)) == 0
    assert cuda.cuCtxDestroy_v2(context) == 0

    assert ask(address, TYPE) == [0, 0]


def test_pinned_memory_is_used_as_device_memory_is() -> None:
    address = pinned(4096)
    start, size = ctypes.c_uint64(), ctypes.c_size_t()
    extent = ctypes.byref(start), ctypes.byref(size)

    assert cuda.cuMemsetD8_v2(word(address), 65, ctypes.c_size_t(4096)) == 0
    assert cuda.cuMemsetD8_v2(word(address), 66, ctypes.c_size_t(4097)) == 1
    assert [vm.write(address + 1, b"bc"), sync()] == [0, 0]
    assert ctypes.string_at(address, 4) == b"AbcA"
    assert cuda.cuMemGetAddressRange_v2(*extent, word(address + 7)) == 0
    assert (start.value, size.value) == (address, 4096)


def test_managed_memory_is_both_sides() -> None:
    address = had(5000, "cuMemAllocManaged", 1)

    assert ask(address, MANAGED, HOST_POINTER, TYPE) == [0, 1, address, DEVICE]


def test_an_allocation_of_a_pool_names_its_pool() -> None:
    address, pool = had(5000, "cuMemAllocAsync", 0), ctypes.c_void_p()
    assert cuda.cuDeviceGetDefaultMemPool(ctypes.byref(pool), 0) == 0

    assert ask(address, POOL, IPC, CONTEXT) == [0, pool.value, 0, 0]


def test_reserved_addresses_are_known_before_anything_is_mapped_there() -> None:
    start = vm.reserve(4 * vm.PAGE)
    second = start + vm.PAGE
    assert ask(second, START, SIZE, MAPPED, TYPE) == [0, start, 4 * vm.PAGE, 0, 0]

    assert vm.map_at(second, vm.PAGE, vm.create(vm.PAGE, shared=True)[1]) == 0

    told = ask(second, START, SIZE, MAPPED, HANDLES, MAPPING_START, MAPPING_SIZE)
    assert told == [0, start, 4 * vm.PAGE, 1, 1, second, vm.PAGE]


def test_a_current_context_is_needed_to_tell_of_access() -> None:
    address = had()
    assert one(address, ACCESS) == [0, 3]
    cuda.cuCtxSetCurrent(None)
    assert one(address, ACCESS)[0] == 201


def test_every_allocation_has_a_number_of_its_own() -> None:
    first = one(had(), NUMBER)[1]
    free()
    numbers = {first, *(one(address, NUMBER)[1] for address in (had(), pinned(64)))}

    assert len(numbers) == 3


def test_the_one_attribute_that_can_be_set_is_kept() -> None:
    address = had()

    assert [set_one(address, what, 1) for what in (SYNCHRONOUS, MANAGED)] == [0, 1]
    assert ask(address, SYNCHRONOUS) == [0, 1]


def test_what_cannot_be_asked_with_others_is_invalid() -> None:
    assert [ask(had(), TYPE, attribute)[0] for attribute in (0, TOKENS, 23)] == [1, 1, 1]


@on(cuda_version=12050)
@on(cuda_version=12080)
@on(cuda_version=13040)
def test_newer_attributes_are_of_newer_drivers(box: SimBox) -> None:
    results = {12050: [1, 1], 12080: [0, 1], 13040: [0, 0]}[box.machine.cuda_version]

    assert [ask(had(), attribute)[0] for attribute in (DECOMPRESS, DOMAIN)] == results
