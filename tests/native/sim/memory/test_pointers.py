"""What the simulated driver says of pointers: one attribute, or several at once."""

from collections.abc import Iterator
from typing import Any

import pytest

from tests.native.sim_box import Client, SimBox, machine, sim_box

(
    CONTEXT,
    TYPE,
    DEVICE_POINTER,
    HOST_POINTER,
    TOKENS,
    SYNCHRONOUS,
    NUMBER,
    MANAGED,
    ORDINAL,
    IPC,
) = range(1, 11)
(START, SIZE, MAPPED, HANDLES, RDMA, ACCESS, POOL, MAPPING_SIZE, MAPPING_START, BLOCK) = range(
    11, 21
)
DECOMPRESS, DOMAIN = 21, 22
HOST, DEVICE = 1, 2


@pytest.fixture
def box() -> Iterator[SimBox]:
    with sim_box(machine(cuda_version=13040)) as made:
        yield made


@pytest.fixture
def client(box: SimBox) -> Client:
    made = box.client()
    begin(made)
    return made


def begin(client: Client) -> None:
    """A context, and `ptr` for what is asked of pointers."""
    assert client("[globals().update(ptr=program('pointer_client')), init()][1]") == 0


def asked(client: Client, *attributes: int, address: str = "held[-1]") -> list[Any]:
    """Of the allocation made last: the code and the values."""
    told: list[Any] = client(f"ptr.ask({address}, *{attributes!r})")
    return told


def test_several_attributes_of_device_memory_are_told_at_once(client: Client) -> None:
    client("alloc(5000)")
    address = client("held[-1]")

    told = asked(client, TYPE, DEVICE_POINTER, MANAGED, ORDINAL, IPC, START, SIZE, MAPPED)

    assert told == [0, DEVICE, address, 0, 0, 1, address, 5000, 1]


def test_an_attribute_that_does_not_hold_is_nothing_and_no_error(client: Client) -> None:
    client("alloc(5000)")

    assert asked(client, HOST_POINTER, POOL, HANDLES, DOMAIN) == [0, 0, 0, 0, -1]
    assert client(f"ptr.one(held[-1], {HOST_POINTER})")[0] == 1


def test_of_what_is_no_pointer_of_the_drivers_all_is_nothing(client: Client) -> None:
    attributes = (
        CONTEXT,
        TYPE,
        DEVICE_POINTER,
        HOST_POINTER,
        NUMBER,
        MANAGED,
        ORDINAL,
        SIZE,
        DOMAIN,
    )

    told = asked(client, *attributes, address="4096")

    assert told == [0, 0, 0, 0, 0, 0, 0, -2, 0, -1]
    assert client(f"ptr.one(4096, {TYPE})")[0] == 1


def test_pinned_memory_is_the_hosts(client: Client) -> None:
    client("held.append(ptr.pinned(4096, 4))")
    address = client("held[-1]")

    told = asked(client, TYPE, HOST_POINTER, DEVICE_POINTER, MANAGED, ORDINAL, START, SIZE, IPC)

    assert told == [0, HOST, address, address, 0, 0, address, 4096, 0]


def test_registered_memory_is_known_until_it_is_the_programs_again(client: Client) -> None:
    client("keep('room', ctypes.create_string_buffer(8192)) and 0")
    register = "cuda.cuMemHostRegister_v2(kept['room'], ctypes.c_size_t(4096), 0)"
    there = "ctypes.addressof(kept['room'])"

    codes = client(f"[{register}, {register}]")
    known = asked(client, TYPE, address=there)
    ended = client("[cuda.cuMemHostUnregister(kept['room']) for _ in range(2)]")

    assert (codes, known, ended) == ([0, 712], [0, HOST], [0, 713])
    assert asked(client, TYPE, address=there) == [0, 0]


def test_memory_is_freed_as_pinned_only_if_it_is(client: Client) -> None:
    client("held.append(ptr.pinned(4096, 4))")
    free = "cuda.cuMemFreeHost(ctypes.c_void_p(held[-1]))"

    assert client(f"[{free}, {free}]") == [0, 1]


def test_the_flags_of_pinned_memory_are_those_it_was_made_with(client: Client) -> None:
    client("held.append(ptr.pinned(4096, 4))")

    assert client("ptr.flags_of(held[-1])") == [0, 4]


def test_pinned_memory_ends_with_its_context(client: Client) -> None:
    client("[make_context(), held.append(ptr.pinned(4096))]")
    client(
        "(lambda context: [cuda.cuCtxPopCurrent_v2(ctypes.byref(context)),"
        " cuda.cuCtxDestroy_v2(context), init()])(ctypes.c_void_p())"
    )

    assert asked(client, TYPE) == [0, 0]


def test_pinned_memory_is_used_as_device_memory_is(client: Client) -> None:
    client("held.append(ptr.pinned(4096))")

    codes = client(
        "[cuda.cuMemsetD8_v2(word(held[-1]), 65, ctypes.c_size_t(4096)),"
        " cuda.cuMemsetD8_v2(word(held[-1]), 66, ctypes.c_size_t(4097)),"
        " cuda.cuMemcpyHtoD_v2(word(held[-1] + 1), b'bc', ctypes.c_size_t(2)), sync()]"
    )
    extent = client(
        "(lambda start, size: [cuda.cuMemGetAddressRange_v2(ctypes.byref(start),"
        " ctypes.byref(size), word(held[-1] + 7)), start.value == held[-1], size.value])"
        "(ctypes.c_uint64(), ctypes.c_size_t())"
    )

    assert codes == [0, 1, 0, 0]
    assert client("ctypes.string_at(held[-1], 4).decode()") == "AbcA"
    assert extent == [0, True, 4096]


def test_managed_memory_is_both_sides(client: Client) -> None:
    client("alloc(5000, 'cuMemAllocManaged', 1)")
    address = client("held[-1]")

    assert asked(client, MANAGED, HOST_POINTER, TYPE) == [0, 1, address, DEVICE]


def test_an_allocation_of_a_pool_names_its_pool(client: Client) -> None:
    client("alloc(5000, 'cuMemAllocAsync', 0)")
    default = client(
        "(lambda pool: [cuda.cuDeviceGetDefaultMemPool(ctypes.byref(pool), 0), pool.value][1])"
        "(ctypes.c_void_p())"
    )

    assert asked(client, POOL, IPC, CONTEXT) == [0, default, 0, 0]


def test_reserved_addresses_are_known_before_anything_is_mapped_there(client: Client) -> None:
    client("keep('at', vm.reserve(4 * vm.PAGE))")
    start = client("kept['at']")
    ask = {"address": "kept['at'] + vm.PAGE"}

    before = asked(client, START, SIZE, MAPPED, TYPE, **ask)
    client(
        "[keep('memory', vm.create(vm.PAGE, shared=True)[1]),"
        " vm.map_at(kept['at'] + vm.PAGE, vm.PAGE, kept['memory'])]"
    )
    after = asked(client, START, SIZE, MAPPED, HANDLES, MAPPING_START, MAPPING_SIZE, **ask)

    assert before == [0, start, 8 << 20, 0, 0]
    assert after == [0, start, 8 << 20, 1, 1, start + (2 << 20), 2 << 20]


def test_a_current_context_is_needed_to_tell_of_access(client: Client) -> None:
    client("alloc(5000)")
    allowed = client(f"ptr.one(held[-1], {ACCESS})")
    client("cuda.cuCtxSetCurrent(None)")

    assert (allowed, client(f"ptr.one(held[-1], {ACCESS})")[0]) == ([0, 3], 201)


def test_every_allocation_has_a_number_of_its_own(client: Client) -> None:
    client(
        "[alloc(5000), keep('first', held[-1]), free(), alloc(5000), held.append(ptr.pinned(64))]"
    )

    numbers = {client(f"ptr.one({at}, {NUMBER})")[1] for at in ("held[-1]", "held[-2]")}

    assert len(numbers) == 2


def test_the_one_attribute_that_can_be_set_is_kept(client: Client) -> None:
    client("alloc(5000)")

    codes = client(f"[ptr.set_one(held[-1], what, 1) for what in ({SYNCHRONOUS}, {MANAGED})]")

    assert codes == [0, 1]
    assert asked(client, SYNCHRONOUS) == [0, 1]


@pytest.mark.parametrize("attribute", [0, TOKENS, 23])
def test_what_cannot_be_asked_with_others_is_invalid(client: Client, attribute: int) -> None:
    client("alloc(5000)")

    assert asked(client, TYPE, attribute)[0] == 1


@pytest.mark.parametrize(
    ("version", "results"), [(12050, [1, 1]), (12080, [0, 1]), (13040, [0, 0])]
)
def test_newer_attributes_are_of_newer_drivers(version: int, results: list[int]) -> None:
    with sim_box(machine(cuda_version=version)) as made:
        client = made.client()
        begin(client)
        client("alloc(5000)")

        codes = [asked(client, attribute)[0] for attribute in (DECOMPRESS, DOMAIN)]

    assert codes == results
