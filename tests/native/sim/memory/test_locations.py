"""Where memory can be, by the driver's version: host, NUMA nodes, domains of a device, anywhere."""

import ctypes
from typing import Any

from tests.native.programs import virtual_client as vm
from tests.native.programs.pool_client import MIB, Pools
from tests.native.sim.program import on
from tests.native.sim_box import SimBox

MACHINE = {"cuda_version": 13040}
"""Two GPUs with one domain each; of capability 10, with two."""
CHUNK, GIB = 32 * MIB, 1024 * MIB
NONE, DEVICE, HOST, NUMA, CURRENT_NUMA, INVISIBLE, DOMAIN = range(7)
PINNED, MANAGED = 1, 2

pools = Pools()
default = pools.default()


def peaks(box: SimBox) -> list[int]:
    """The most that was held of each GPU."""
    return [box.account(gpu).bytes_peak for gpu in (0, 1)]


def attribute(number: int) -> tuple[int, int]:
    """The code, and what device 0 answers."""
    value = ctypes.c_int(-1)
    return pools.driver.cuDeviceGetAttribute(ctypes.byref(value), number, 0), value.value


@on(cuda_version=12050)
@on(cuda_version=13000)
@on(cuda_version=13040)
def test_each_version_refuses_the_types_of_location_that_it_does_not_know(box: SimBox) -> None:
    known = {12050: {DEVICE, NUMA}, 13000: {DEVICE, HOST, NUMA}}
    here = known.get(box.machine.cuda_version, {DEVICE, HOST, NUMA, DOMAIN})
    for place in range(9):
        answers = vm.create(vm.PAGE, 0, place)[0], pools.make(place=place)[0]
        assert answers == (int(place not in here),) * 2


@on(cuda_version=12050)
@on(cuda_version=13000)
def test_managed_pools_came_with_cuda_13(box: SimBox) -> None:
    assert pools.make(kind=MANAGED)[0] == int(box.machine.cuda_version < 13000)


def test_the_only_domain_of_a_device_is_the_device(box: SimBox) -> None:
    pool = pools.made(place=DOMAIN, ordinal=1)

    assert [pools.get(pool, what) for what in (12, 11)] == [DEVICE, 1]
    assert vm.create(vm.PAGE, 1, DOMAIN)[0] == 0
    assert peaks(box) == [0, 2 * MIB]


@on(capability=7)
@on(capability=10)
def test_a_device_has_no_domain_that_it_does_not_count(box: SimBox) -> None:
    """The domain is the second byte of the location's id; 2 is no device."""
    divided = box.machine.models["T4"].compute_capability[0] == 10

    codes = [vm.create(vm.PAGE, number, DOMAIN)[0] for number in (0x000, 0x101, 0x201, 0x002)]

    assert codes == [0, int(not divided), 1, 101]
    assert peaks(box) == [2 * MIB, 2 * MIB if divided else 0]


@on(capability=10)
def test_a_pool_says_of_which_domain_it_is_and_takes_memory_of_its_device(box: SimBox) -> None:
    pool = pools.made(place=DOMAIN, ordinal=0x101)

    assert [pools.get(pool, what) for what in (12, 11, 15)] == [DOMAIN, 1, 1]
    assert pools.get(default, 15) == (1 << 32) - 1
    assert pools.alloc(GIB, None, pool)[0] == 0
    assert peaks(box) == [0, GIB]


@on(cuda_version=12050)
@on(cuda_version=13010)
@on(cuda_version=13020)
@on(cuda_version=13040)
def test_pools_tell_what_they_are_since_cuda_13_2(box: SimBox) -> None:
    version, value = box.machine.cuda_version, ctypes.c_uint64()
    results = [1] * 7 if version < 13020 else [0] * 6 + [int(version < 13040)]
    ask = pools.driver.cuMemPoolGetAttribute

    assert [ask(default, what, ctypes.byref(value)) for what in range(9, 16)] == results
    if version >= 13020:  # by the tenth: the handles that it has for others
        assert [pools.get(one, 10) for one in (default, pools.made(handles=1))] == [0, 1]


def test_the_default_pool_of_the_host_is_host_memory_that_the_program_can_use(box: SimBox) -> None:
    for place, node in ((HOST, 7), (NUMA, 0)):
        pool = ctypes.c_void_p(pools.of(place, node)[1])
        assert pool.value == pools.of(place, node, function="cuMemGetDefaultMemPool")[1]
        address = pools.had(MIB, None, pool)
        ctypes.memset(address, 7, MIB)
        assert (pools.get(pool, 12), pools.held(pool)) == (place, [CHUNK, MIB])
        pools.free(address)
        pools.sync()
        assert (pools.held(pool), pools.destroy(pool)) == ([0, 0], 1)
    assert peaks(box) == [0, 0]
    assert pools.of(DEVICE)[1] == default.value


def test_a_default_pool_is_only_where_the_interface_says() -> None:
    for place, node, kind, result in (
        (DEVICE, 2, PINNED, 101),
        (NONE, 0, PINNED, 1),
        (NONE, 0, MANAGED, 0),
        (NUMA, 5, PINNED, 1),
        (CURRENT_NUMA, 0, PINNED, 1),
        (DOMAIN, 0, MANAGED, 1),
        (HOST, 0, 3, 1),
    ):
        assert pools.of(place, node, kind)[0] == result, (place, node, kind)


def test_a_managed_pool_takes_memory_of_the_device_it_prefers_or_that_uses_it(box: SimBox) -> None:
    def taken(place: int, ordinal: int) -> Any:
        before = [box.account(gpu).bytes_now for gpu in (0, 1)]
        pool = pools.made(place=place, ordinal=ordinal, kind=MANAGED)
        assert ctypes.memset(pools.had(MIB, None, pool), 1, MIB)
        return [box.account(gpu).bytes_now - before[gpu] for gpu in (0, 1)]

    assert taken(DEVICE, 1) == [0, CHUNK]
    assert taken(NONE, 0) == taken(HOST, 0) == [CHUNK, 0]


@on(hides_managed=True)
def test_nvml_is_not_told_of_a_managed_pool_by_a_driver_that_hides_managed_memory(
    box: SimBox,
) -> None:
    pools.had(MIB)
    before = box.gpus.processes()[0]
    pools.had(MIB, None, pools.made(place=NONE, kind=MANAGED))
    after = box.gpus.processes()[0]

    assert after.bytes_now - before.bytes_now == CHUNK
    assert after.bytes_told == before.bytes_told


def test_another_current_pool_is_used_until_it_is_destroyed() -> None:
    pool, location = pools.made(place=HOST), (ctypes.c_int * 2)(HOST, 0)
    before = pools.of(HOST)[1]

    assert pools.driver.cuMemSetMemPool(location, 1, default) == 1
    assert pools.driver.cuMemSetMemPool(location, 1, pool) == 0
    assert pools.of(HOST)[1] == pool.value
    pools.destroy(pool)
    assert pools.of(HOST)[1] == before


def test_memory_of_the_host_cannot_be_exported() -> None:
    assert pools.make(place=HOST, handles=1)[0] == 1
    assert vm.create(vm.PAGE, 0, HOST, shared=True)[0] == 1


def test_a_device_says_what_its_pools_can_do() -> None:
    """By number: file handles of pools, events of other processes, fabrics, the host's memory."""
    told = [attribute(what) for what in (119, 125, 128, 144, 149, 161)]

    assert told == [(0, 1), (0, 1), (0, 0), (0, 1), (0, 1), (0, 0)]
    assert attribute(162)[0] == 1


@on(hmm=False)
@on(hmm=True)
def test_a_driver_with_hmm_says_that_kernels_reach_pageable_memory(box: SimBox) -> None:
    assert attribute(88) == (0, int(box.machine.driver.hmm))


@on(cuda_version=12050)
def test_an_older_driver_does_not_know_newer_attributes() -> None:
    assert [attribute(what)[0] for what in (119, 143, 144)] == [0, 0, 1]
