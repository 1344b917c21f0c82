"""Memory pools of the simulated driver: what they hold, reuse, give back, and share."""

import ctypes
import subprocess
import sys
from typing import Any

from tests.native.programs.pool_client import *
from tests.native.sim_box import SimBox

MACHINE = {"cuda_version": 13040}
CHUNK, WHOLE = 32 * MIB, 16 * 1024 * MIB

pools = Pools()
driver, default = pools.driver, pools.default()


def test_a_pool_takes_whole_chunks_and_keeps_them_until_a_synchronisation(box: SimBox) -> None:
    first = pools.had(MIB)
    assert pools.held(default) == [CHUNK, MIB]
    second = pools.had(40 * MIB)
    assert pools.held(default) == [3 * CHUNK, 41 * MIB]
    pools.free(first)
    pools.free(second)
    assert pools.held(default) == [3 * CHUNK, 0]
    pools.sync()
    assert pools.held(default) == [0, 0]
    assert box.account().bytes_peak == 3 * CHUNK


def test_what_is_held_above_the_release_threshold_goes_at_a_synchronisation() -> None:
    event = ctypes.c_void_p()
    assert driver.cuEventCreate(ctypes.byref(event), 0) == 0
    pools.put(default, THRESHOLD, CHUNK)
    for wait, where in (
        (driver.cuStreamSynchronize, None),
        (driver.cuStreamSynchronize_ptsz, None),
        (driver.cuCtxSynchronize_v2, None),
        (driver.cuEventSynchronize, event),
        (lambda _: driver.cuCtxSynchronize(), None),
    ):
        for address in [pools.had(CHUNK) for _ in range(3)]:
            pools.free(address)
        assert pools.held(default)[0] == 3 * CHUNK
        assert driver.cuEventRecord(event, None) == 0
        assert wait(where) == 0
        assert pools.held(default)[0] == pools.get(default, THRESHOLD) == CHUNK


def test_freed_memory_is_taken_again_by_its_stream_at_once_and_by_others_when_it_is_done() -> None:
    pools.put(default, THRESHOLD, 1 << 40)
    one, other = pools.stream(), pools.stream()
    first = pools.had(32 * MIB, one)
    pools.spin(one, 50_000_000)
    pools.free(first, one)
    assert pools.had(32 * MIB, other) != first
    assert pools.had(32 * MIB, one) == first
    pools.free(first, one)
    pools.sync(one)
    assert pools.had(32 * MIB, other) == first
    assert pools.held(default)[0] == 2 * CHUNK


def test_memory_whose_free_is_not_done_does_not_go_back() -> None:
    address = pools.had(MIB)
    pools.spin(None, 50_000_000)
    pools.free(address)
    pools.trim(default)
    assert pools.held(default)[0] == CHUNK
    pools.sync()
    assert pools.held(default)[0] == 0


def test_trimming_leaves_what_is_in_use_and_what_is_to_be_kept() -> None:
    addresses = [pools.had(CHUNK) for _ in range(4)]
    for address in addresses[1:]:
        pools.free(address)
    for keep, left in ((1 << 60, 4 * CHUNK), (2 * CHUNK, 2 * CHUNK), (0, CHUNK)):
        pools.trim(default, keep)
        assert pools.held(default) == [left, CHUNK]


def test_high_marks_stay_until_they_are_set_to_zero_and_nothing_else() -> None:
    def high() -> list[int]:
        return [pools.get(default, RESERVED_HIGH), pools.get(default, USED_HIGH)]

    pools.free(pools.had(MIB))
    pools.sync()
    assert high() == [CHUNK, MIB]
    assert [pools.put(default, RESERVED_HIGH, 1), pools.put(default, USED, 0)] == [1, 1]
    assert [pools.put(default, RESERVED_HIGH, 0), pools.put(default, USED_HIGH, 0)] == [0, 0]
    assert high() == [0, 0]


def test_the_reuse_policies_are_kept() -> None:
    def policies() -> list[int]:
        values = [ctypes.c_int(-1) for _ in range(3)]
        for which, value in enumerate(values, 1):
            assert driver.cuMemPoolGetAttribute(default, which, ctypes.byref(value)) == 0
        return [value.value for value in values]

    assert policies() == [1, 1, 1]
    assert driver.cuMemPoolSetAttribute(default, 2, ctypes.byref(ctypes.c_int(0))) == 0
    assert policies() == [1, 0, 1]


def test_a_pool_is_made_used_set_as_current_and_ends_with_its_last_allocation() -> None:
    pool = pools.made()
    assert driver.cuDeviceSetMemPool(0, pool) == 0
    address = pools.had(MIB)
    assert (pools.held(pool), pools.current().value) == ([CHUNK, MIB], pool.value)
    assert [pools.destroy(one) for one in (pool, pool, default)] == [0, 1, 1]
    assert (pools.current().value, WHOLE - pools.left()) == (default.value, CHUNK)
    assert pools.free(address) == 0
    pools.sync()
    assert (WHOLE - pools.left(), pools.alloc(MIB, None, pool)[0]) == (0, 1)


def test_a_pool_is_made_only_where_there_can_be_one() -> None:
    assert [pools.make(ordinal=device)[0] for device in (0, 1, 2)] == [0, 0, 101]
    assert [pools.make(place=place)[0] for place in (ON_HOST, 9)] == [0, 1]
    assert [pools.make(handles=handles)[0] for handles in (1, 8)] == [0, 801]


def test_a_pool_of_bounded_size_refuses_what_is_beyond_it() -> None:
    pool = pools.made(largest=CHUNK + 1)

    assert [pools.alloc(CHUNK, None, pool)[0] for _ in range(3)] == [0, 0, 2]
    assert pools.get(pool, RESERVED) == 2 * CHUNK


def test_memory_of_the_host_is_not_the_gpus() -> None:
    pool = pools.made(place=ON_HOST)
    address = pools.had(MIB, None, pool)

    assert (pools.held(pool), pools.left()) == ([CHUNK, MIB], WHOLE)
    assert pools.free(address) == 0


def test_a_pool_may_be_on_another_device_than_the_stream(box: SimBox) -> None:
    pools.had(MIB, None, pools.made(ordinal=1))

    assert [box.account(gpu).bytes_peak for gpu in (0, 1)] == [0, CHUNK]


def test_either_way_to_free_frees_what_was_allocated_the_other_way() -> None:
    pools.spin(None, 20_000_000)
    assert [pools.free_now(pools.had(MIB)), pools.free(pools.plain(MIB)[1])] == [0, 0]
    assert pools.get(default, USED) == 0
    pools.trim(default)
    assert pools.left() == WHOLE
    assert [pools.free(4096), pools.free(0)] == [1, 0]


def test_what_came_from_a_pool_outlives_its_context() -> None:
    made = ctypes.c_void_p()
    assert driver.cuCtxCreate_v2(ctypes.byref(made), 0, 0) == 0
    address = pools.had(MIB)
    assert driver.cuCtxDestroy_v2(made) == 0
    assert driver.cuCtxSetCurrent(pools.context) == 0

    assert (pools.held(default), pools.free(address)) == ([CHUNK, MIB], 0)


def test_access_is_given_to_other_devices_and_never_taken_from_its_own() -> None:
    def flags(device: int) -> int:
        found, place = ctypes.c_int(-1), (ctypes.c_int * 2)(1, device)
        assert driver.cuMemPoolGetAccess(ctypes.byref(found), default, place) == 0
        return found.value

    def give(device: int, flags: int) -> int:
        access = (ctypes.c_int * 3)(1, device, flags)
        return int(driver.cuMemPoolSetAccess(default, access, ctypes.c_size_t(1)))

    assert [flags(0), flags(1)] == [3, 0]
    assert (give(1, 3), flags(1)) == (0, 3)
    assert [give(0, 0), give(7, 3), give(1, 2)] == [101, 101, 1]


IMPORTER = """
import sys
from tests.native.programs.pool_client import *
pools = Pools()
pool, address = ctypes.c_void_p(), ctypes.c_uint64()
driver, before = pools.driver, pools.left()
shared = driver.cuMemPoolImportFromShareableHandle(
    ctypes.byref(pool), ctypes.c_void_p(int(sys.argv[1])), 1, ctypes.c_uint64(0))
data = bytes.fromhex(sys.argv[2])
pointed = driver.cuMemPoolImportPointer(ctypes.byref(address), pool, data)
text = ctypes.create_string_buffer(5)
assert driver.cuMemcpyDtoH_v2(text, address, ctypes.c_size_t(5)) == 0
refused = [pools.alloc(MIB, None, pool)[0], driver.cuDeviceSetMemPool(0, pool)]
freed = pools.free(address.value)
print([shared, pointed, text.value.decode(), refused, freed, pools.left() == before])
"""


def test_a_pool_is_shared_with_another_process_which_is_charged_nothing() -> None:
    def export(pool: Any, kind: int = 1) -> int:
        to = ctypes.byref(handle), pool, kind, ctypes.c_uint64(0)
        return int(driver.cuMemPoolExportToShareableHandle(*to))

    pool, handle, data = pools.made(handles=1), ctypes.c_int(-1), (ctypes.c_ubyte * 64)()
    pools.had(MIB, None, pool)
    address = ctypes.c_uint64(pools.had(MIB, None, pool))
    assert driver.cuMemcpyHtoD_v2(address, b"hello", ctypes.c_size_t(5)) == 0
    assert [export(pool), driver.cuMemPoolExportPointer(data, address)] == [0, 0]

    other = subprocess.run(
        [sys.executable, "-c", IMPORTER, str(handle.value), bytes(data).hex()],
        pass_fds=[handle.value],
        capture_output=True,
        text=True,
        check=False,
    )

    assert (other.stderr, other.stdout) == ("", "[0, 0, 'hello', [1, 1], 0, True]\n")
    assert [export(default), export(pool, 2)] == [1, 1]
