"""Where memory can be, by the driver's version: host, NUMA nodes, domains of a device, anywhere."""

import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from gpumanager.sim.machine import REAL
from gpumanager.units import GIB, MIB
from tests.native.sim_box import SimBox, machine, sim_box

CHUNK = 32 * MIB
NONE, DEVICE, HOST, NUMA, CURRENT_NUMA, INVISIBLE, DOMAIN = range(7)
PINNED, MANAGED = 1, 2


@pytest.fixture
def box() -> Iterator[SimBox]:
    """Two GPUs with one domain each."""
    with sim_box(machine(cuda_version=13040)) as made:
        yield made


@pytest.fixture
def divided() -> Iterator[SimBox]:
    """Two GPUs of two domains each."""
    with sim_box(machine(capability=10, cuda_version=13040)) as made:
        yield made


def run(box: SimBox, script: str) -> Any:
    """What a program tells that has `pools` and `vm`."""
    begin = "from tests.native.programs import virtual_client as vm\n"
    begin += "from tests.native.programs.pool_client import *\n"
    begin += "from tests.native.programs.shim_client import tell\n"
    lines = box.python(begin + "pools = Pools()\n" + script).splitlines()
    return json.loads(lines[-1])


def told(box: SimBox, expression: str) -> Any:
    return run(box, f"tell(value={expression})")["value"]


def held(box: SimBox) -> list[int]:
    """The most that was held of each GPU."""
    account = box.gpus.tenants()[0]
    return [account.devices[gpu.uuid].bytes_peak for gpu in box.machine.topology.gpus]


KNOWN = {12050: {DEVICE, NUMA}, 13000: {DEVICE, HOST, NUMA}, 13040: {DEVICE, HOST, NUMA, DOMAIN}}


@pytest.mark.parametrize("version", KNOWN)
def test_each_version_refuses_the_types_of_location_that_it_does_not_know(version: int) -> None:
    with sim_box(machine(cuda_version=version)) as made:
        memory = told(made, "[vm.create(vm.PAGE, 0, place)[0] for place in range(9)]")
        pools = told(made, "[pools.make(place=place)[0] for place in range(9)]")

    assert memory == pools == [int(place not in KNOWN[version]) for place in range(9)]


@pytest.mark.parametrize(("version", "result"), [(12050, 1), (13000, 0)])
def test_managed_pools_came_with_cuda_13(version: int, result: int) -> None:
    with sim_box(machine(cuda_version=version)) as made:
        assert told(made, f"pools.make(kind={MANAGED})[0]") == result


def test_the_only_domain_of_a_device_is_the_device(box: SimBox) -> None:
    pool = f"pools.made(place={DOMAIN}, ordinal=1)"

    assert told(box, f"[pools.get({pool}, what) for what in (12, 11)]") == [DEVICE, 1]
    assert told(box, f"vm.create(vm.PAGE, 1, {DOMAIN})[0]") == 0
    assert held(box) == [0, 2 * MIB]


def test_a_device_has_no_domain_that_it_does_not_count(box: SimBox, divided: SimBox) -> None:
    """The domain is the second byte of the location's id; 2 is no device."""
    asked = f"[vm.create(vm.PAGE, id, {DOMAIN})[0] for id in (0x000, 0x101, 0x201, 0x002)]"

    assert told(box, asked) == [0, 1, 1, 101]
    assert told(divided, asked) == [0, 0, 1, 101]
    assert held(divided) == [2 * MIB, 2 * MIB]


def test_a_pool_of_one_domain_of_two_says_which(divided: SimBox) -> None:
    pool = f"pools.made(place={DOMAIN}, ordinal=0x101)"

    assert told(divided, f"[pools.get({pool}, what) for what in (12, 11, 15)]") == [DOMAIN, 1, 1]


def test_a_pool_that_is_of_no_domain_says_so(divided: SimBox) -> None:
    assert told(divided, "pools.get(pools.default(), 15)") == (1 << 32) - 1


@pytest.mark.parametrize(
    ("version", "results"),
    [(12050, [1] * 7), (13010, [1] * 7), (13020, [0] * 6 + [1]), (13040, [0] * 7)],
)
def test_pools_tell_what_they_are_since_cuda_13_2(version: int, results: list[int]) -> None:
    with sim_box(machine(cuda_version=version)) as made:
        asked = told(
            made,
            "[pools.driver.cuMemPoolGetAttribute(pools.default(), what,"
            " ctypes.byref(ctypes.c_uint64())) for what in range(9, 16)]",
        )

    assert asked == results


@pytest.mark.parametrize(("place", "node"), [(HOST, 7), (NUMA, 0)])
def test_the_default_pool_of_the_host_is_host_memory_that_the_program_can_use(
    box: SimBox, place: int, node: int
) -> None:
    answer = run(
        box,
        f"""
pool = ctypes.c_void_p(pools.of({place}, {node})[1])
default = pools.of({place}, {node}, function="cuMemGetDefaultMemPool")[1]
address = pools.had(MIB, None, pool)
ctypes.memset(address, 7, MIB)
kept = pools.held(pool)
pools.free(address), pools.sync()
tell(same=pool.value == default, place=pools.get(pool, 12), kept=kept, left=pools.held(pool),
     destroyed=pools.destroy(pool))
""",
    )

    assert answer == {
        "same": True,
        "place": place,
        "kept": [CHUNK, MIB],
        "left": [0, 0],
        "destroyed": 1,
    }
    assert held(box) == [0, 0]


def test_the_default_pool_of_a_device_is_the_one_it_always_had(box: SimBox) -> None:
    assert told(box, f"pools.of({DEVICE})[1] == pools.default().value")


@pytest.mark.parametrize(
    ("place", "node", "kind", "result"),
    [
        (DEVICE, 2, PINNED, 101),
        (NONE, 0, PINNED, 1),
        (NONE, 0, MANAGED, 0),
        (NUMA, 5, PINNED, 1),
        (CURRENT_NUMA, 0, PINNED, 1),
        (DOMAIN, 0, MANAGED, 1),
        (HOST, 0, 3, 1),
    ],
)
def test_a_default_pool_is_only_where_the_interface_says(
    box: SimBox, place: int, node: int, kind: int, result: int
) -> None:
    assert told(box, f"pools.of({place}, {node}, {kind})[0]") == result


@pytest.mark.parametrize(
    ("place", "ordinal", "peaks"),
    [(DEVICE, 1, [0, CHUNK]), (NONE, 0, [CHUNK, 0]), (HOST, 0, [CHUNK, 0])],
)
def test_a_managed_pool_takes_memory_of_the_device_it_prefers_or_that_uses_it(
    box: SimBox, place: int, ordinal: int, peaks: list[int]
) -> None:
    made = f"pools.had(MIB, None, pools.made(place={place}, ordinal={ordinal}, kind={MANAGED}))"

    assert told(box, f"ctypes.memset({made}, 1, MIB) > 0")
    assert held(box) == peaks


def test_nvml_is_not_told_of_a_managed_pool_by_a_driver_that_hides_managed_memory() -> None:
    with sim_box(machine(driver=REAL, cuda_version=13040)) as made:
        client = made.client()
        client("keep('pools', program('pool_client').Pools()).had(1 << 20)")
        before = made.gpus.processes()[0]
        client("kept['pools'].had(1 << 20, None, kept['pools'].made(place=0, kind=2))")
        after = made.gpus.processes()[0]

    assert after.bytes_now - before.bytes_now == CHUNK
    assert after.bytes_told == before.bytes_told


def test_another_current_pool_is_used_until_it_is_destroyed(box: SimBox) -> None:
    answer = run(
        box,
        f"""
pool, location = pools.made(place={HOST}), (ctypes.c_int * 2)({HOST}, 0)
default = pools.of({HOST})[1]
refused = pools.driver.cuMemSetMemPool(location, 1, pools.default())
made = pools.driver.cuMemSetMemPool(location, 1, pool)
current = pools.of({HOST})[1] == pool.value
pools.destroy(pool)
tell(refused=refused, made=made, current=current, after=pools.of({HOST})[1] == default)
""",
    )

    assert answer == {"refused": 1, "made": 0, "current": True, "after": True}


def test_memory_of_the_host_cannot_be_exported(box: SimBox) -> None:
    assert told(box, f"pools.make(place={HOST}, handles=1)[0]") == 1
    assert told(box, f"vm.create(vm.PAGE, 0, {HOST}, shared=True)[0]") == 1


def test_a_device_says_what_its_pools_can_do(box: SimBox) -> None:
    """By number: file handles of pools, events of other processes, fabrics, the host's memory."""
    ask = (
        "(lambda value: [(pools.driver.cuDeviceGetAttribute(ctypes.byref(value), what, 0),"
        " value.value) for what in (119, 125, 128, 144, 149, 161, 162)])(ctypes.c_int(-1))"
    )

    assert told(box, ask)[:6] == [[0, 1], [0, 1], [0, 0], [0, 1], [0, 1], [0, 0]]
    assert told(box, ask)[6][0] == 1


@pytest.mark.parametrize("hmm", [False, True])
def test_a_driver_with_hmm_says_that_kernels_reach_pageable_memory(hmm: object) -> None:
    with sim_box(machine(driver=replace(REAL, hmm=bool(hmm)))) as made:
        ask = (
            "(lambda value: [pools.driver.cuDeviceGetAttribute(ctypes.byref(value), 88, 0),"
            " value.value])(ctypes.c_int(-1))"
        )
        assert told(made, ask) == [0, int(bool(hmm))]


def test_an_older_driver_does_not_know_newer_attributes() -> None:
    with sim_box() as older:
        ask = "pools.driver.cuDeviceGetAttribute(ctypes.byref(ctypes.c_int()), what, 0)"
        assert told(older, f"[{ask} for what in (119, 143, 144)]") == [0, 0, 1]


def test_a_pool_of_a_domain_takes_memory_of_its_device(divided: SimBox) -> None:
    pool = f"pools.made(place={DOMAIN}, ordinal=0x101)"

    assert told(divided, f"pools.alloc({GIB}, None, {pool})[0]") == 0
    assert held(divided) == [0, GIB]
