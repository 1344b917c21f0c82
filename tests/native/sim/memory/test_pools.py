"""Memory pools of the simulated driver: what they hold, reuse, give back, and share."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from gpumanager.units import MIB
from tests.native.sim_box import SimBox, machine, sim_box

CHUNK = 32 * MIB


@pytest.fixture
def box() -> Iterator[SimBox]:
    """Whose driver knows CUDA 13."""
    with sim_box(machine(cuda_version=13040)) as made:
        yield made


def told(box: SimBox, script: str) -> Any:
    """What a program that has `pools` and `default` tells."""
    begin = "from tests.native.programs.pool_client import *\n"
    begin += "from tests.native.programs.shim_client import tell\n"
    begin += "pools = Pools()\ndefault = pools.default()\n"
    lines = box.python(begin + script).splitlines()
    return json.loads(lines[-1])


def test_a_pool_takes_whole_chunks_and_keeps_them_until_a_synchronisation(box: SimBox) -> None:
    answer = told(
        box,
        """
first = pools.had(MIB)
grown = pools.held(default)
second = pools.had(40 * MIB)
more = pools.held(default)
pools.free(first), pools.free(second)
kept = pools.held(default)
pools.sync()
tell(grown=grown, more=more, kept=kept, gone=pools.held(default))
""",
    )

    assert answer["grown"] == [CHUNK, MIB]
    assert answer["more"] == [3 * CHUNK, 41 * MIB]
    assert answer["kept"] == [3 * CHUNK, 0]
    assert answer["gone"] == [0, 0]
    assert box.gpus.tenants()[0].devices[box.uuid].bytes_peak == 3 * CHUNK


@pytest.mark.parametrize(
    "wait",
    [
        "cuStreamSynchronize(None)",
        "cuStreamSynchronize_ptsz(None)",
        "cuCtxSynchronize()",
        "cuCtxSynchronize_v2(None)",
    ],
)
def test_what_is_held_above_the_release_threshold_goes_at_a_synchronisation(
    box: SimBox, wait: str
) -> None:
    answer = told(
        box,
        f"""
pools.put(default, THRESHOLD, {CHUNK})
for address in [pools.had({CHUNK}) for _ in range(3)]:
    pools.free(address)
before = pools.held(default)[0]
assert pools.driver.{wait} == 0
tell(before=before, after=pools.held(default)[0], threshold=pools.get(default, THRESHOLD))
""",
    )

    assert answer == {"before": 3 * CHUNK, "after": CHUNK, "threshold": CHUNK}


def test_waiting_for_an_event_gives_back_what_is_free(box: SimBox) -> None:
    answer = told(
        box,
        """
event = ctypes.c_void_p()
assert pools.driver.cuEventCreate(ctypes.byref(event), 0) == 0
pools.free(pools.had(MIB))
assert pools.driver.cuEventRecord(event, None) == 0
assert pools.driver.cuEventSynchronize(event) == 0
tell(held=pools.held(default))
""",
    )

    assert answer == {"held": [0, 0]}


def test_freed_memory_is_taken_again_by_its_stream_at_once_and_by_others_when_it_is_done(
    box: SimBox,
) -> None:
    answer = told(
        box,
        """
pools.put(default, THRESHOLD, 1 << 40)
one, other = pools.stream(), pools.stream()
first = pools.had(32 * MIB, one)
pools.spin(one, 50_000_000)
pools.free(first, one)
elsewhere = pools.had(32 * MIB, other)
same = pools.had(32 * MIB, one)
pools.free(same, one)
pools.sync(one)
later = pools.had(32 * MIB, other)
tell(elsewhere=elsewhere == first, same=same == first, later=later == first,
     reserved=pools.held(default)[0])
""",
    )

    assert answer == {"elsewhere": False, "same": True, "later": True, "reserved": 2 * CHUNK}


def test_memory_whose_free_is_not_done_does_not_go_back(box: SimBox) -> None:
    answer = told(
        box,
        """
address = pools.had(MIB)
pools.spin(None, 50_000_000)
pools.free(address)
pools.trim(default)
early = pools.held(default)[0]
pools.sync()
tell(early=early, late=pools.held(default)[0])
""",
    )

    assert answer == {"early": CHUNK, "late": 0}


def test_trimming_leaves_what_is_in_use_and_what_is_to_be_kept(box: SimBox) -> None:
    answer = told(
        box,
        f"""
addresses = [pools.had({CHUNK}) for _ in range(4)]
for address in addresses[1:]:
    pools.free(address)
pools.trim(default, 1 << 60)
most = pools.held(default)
pools.trim(default, {2 * CHUNK})
some = pools.held(default)
pools.trim(default)
tell(most=most, some=some, least=pools.held(default))
""",
    )

    assert answer["most"] == [4 * CHUNK, CHUNK]
    assert answer["some"] == [2 * CHUNK, CHUNK]
    assert answer["least"] == [CHUNK, CHUNK]


def test_high_marks_stay_until_they_are_set_to_zero_and_nothing_else(box: SimBox) -> None:
    answer = told(
        box,
        """
pools.free(pools.had(MIB))
pools.sync()
high = [pools.get(default, RESERVED_HIGH), pools.get(default, USED_HIGH)]
other = [pools.put(default, RESERVED_HIGH, 1), pools.put(default, USED, 0)]
reset = [pools.put(default, RESERVED_HIGH, 0), pools.put(default, USED_HIGH, 0)]
tell(high=high, other=other, reset=reset,
     now=[pools.get(default, RESERVED_HIGH), pools.get(default, USED_HIGH)])
""",
    )

    assert answer == {"high": [CHUNK, MIB], "other": [1, 1], "reset": [0, 0], "now": [0, 0]}


def test_the_reuse_policies_are_kept(box: SimBox) -> None:
    answer = told(
        box,
        """
def policy(which):
    value = ctypes.c_int(-1)
    assert pools.driver.cuMemPoolGetAttribute(default, which, ctypes.byref(value)) == 0
    return value.value
before = [policy(which) for which in (1, 2, 3)]
off = ctypes.c_int(0)
assert pools.driver.cuMemPoolSetAttribute(default, 2, ctypes.byref(off)) == 0
tell(before=before, after=[policy(which) for which in (1, 2, 3)])
""",
    )

    assert answer == {"before": [1, 1, 1], "after": [1, 0, 1]}


def test_a_pool_is_made_used_set_as_current_and_ends_with_its_last_allocation(box: SimBox) -> None:
    answer = told(
        box,
        """
pool = pools.made()
assert pools.driver.cuDeviceSetMemPool(0, pool) == 0
address = pools.had(MIB)
held = pools.held(pool)
current = pools.current().value == pool.value
destroyed = [pools.destroy(pool), pools.destroy(pool), pools.destroy(default)]
after = pools.current().value == default.value
still = 16 * 1024 * MIB - pools.left()
freed = pools.free(address)
pools.sync()
tell(held=held, current=current, destroyed=destroyed, after=after, still=still, freed=freed,
     end=16 * 1024 * MIB - pools.left(), gone=pools.alloc(MIB, None, pool)[0])
""",
    )

    assert answer["held"] == [CHUNK, MIB]
    assert (answer["current"], answer["after"]) == (True, True)
    assert answer["destroyed"] == [0, 1, 1]
    assert (answer["still"], answer["freed"], answer["end"]) == (CHUNK, 0, 0)
    assert answer["gone"] == 1


@pytest.mark.parametrize(
    ("wanted", "result"),
    [
        ("ordinal=0", 0),
        ("ordinal=1", 0),
        ("ordinal=2", 101),
        ("place=ON_HOST", 0),
        ("place=9", 1),
        ("handles=1", 0),
        ("handles=8", 801),
    ],
)
def test_a_pool_is_made_only_where_there_can_be_one(box: SimBox, wanted: str, result: int) -> None:
    assert told(box, f"tell(result=pools.make({wanted})[0])") == {"result": result}


def test_a_pool_of_bounded_size_refuses_what_is_beyond_it(box: SimBox) -> None:
    answer = told(
        box,
        f"""
pool = pools.made(largest={CHUNK} + 1)
results = [pools.alloc({CHUNK}, None, pool)[0] for _ in range(3)]
tell(results=results, reserved=pools.get(pool, RESERVED))
""",
    )

    assert answer == {"results": [0, 0, 2], "reserved": 2 * CHUNK}


def test_memory_of_the_host_is_not_the_gpus(box: SimBox) -> None:
    answer = told(
        box,
        """
pool = pools.made(place=ON_HOST)
address = pools.had(MIB, None, pool)
tell(held=pools.held(pool), left=pools.left(), freed=pools.free(address))
""",
    )

    assert answer == {"held": [CHUNK, MIB], "left": 16 * 1024 * MIB, "freed": 0}


def test_a_pool_may_be_on_another_device_than_the_stream(box: SimBox) -> None:
    told(box, "pools.had(MIB, None, pools.made(ordinal=1))\ntell()")

    account = box.gpus.tenants()[0]
    peaks = [account.devices[gpu.uuid].bytes_peak for gpu in box.machine.topology.gpus]
    assert peaks == [0, CHUNK]


def test_either_way_to_free_frees_what_was_allocated_the_other_way(box: SimBox) -> None:
    answer = told(
        box,
        """
pools.spin(None, 20_000_000)
results = [pools.free_now(pools.had(MIB)), pools.free(pools.plain(MIB)[1])]
used = pools.get(default, USED)
pools.trim(default)
tell(results=results, used=used, left=pools.left(), twice=pools.free(4096), nothing=pools.free(0))
""",
    )

    assert answer["results"] == [0, 0]
    assert (answer["used"], answer["left"]) == (0, 16 * 1024 * MIB)
    assert (answer["twice"], answer["nothing"]) == (1, 0)


def test_what_came_from_a_pool_outlives_its_context(box: SimBox) -> None:
    answer = told(
        box,
        """
made = ctypes.c_void_p()
assert pools.driver.cuCtxCreate_v2(ctypes.byref(made), 0, 0) == 0
address = pools.had(MIB)
assert pools.driver.cuCtxDestroy_v2(made) == 0
assert pools.driver.cuCtxSetCurrent(pools.context) == 0
tell(held=pools.held(default), freed=pools.free(address))
""",
    )

    assert answer == {"held": [CHUNK, MIB], "freed": 0}


def test_access_is_given_to_other_devices_and_never_taken_from_its_own(box: SimBox) -> None:
    answer = told(
        box,
        """
def ask(device):
    flags, place = ctypes.c_int(-1), (ctypes.c_int * 2)(1, device)
    result = pools.driver.cuMemPoolGetAccess(ctypes.byref(flags), default, place)
    return [result, flags.value]
def give(device, flags):
    return pools.driver.cuMemPoolSetAccess(default, (ctypes.c_int * 3)(1, device, flags),
                                           ctypes.c_size_t(1))
before = [ask(0), ask(1)]
given = give(1, 3)
tell(before=before, given=given, after=ask(1), own=give(0, 0), unknown=give(7, 3), odd=give(1, 2))
""",
    )

    assert answer["before"] == [[0, 3], [0, 0]]
    assert (answer["given"], answer["after"]) == (0, [0, 3])
    assert (answer["own"], answer["unknown"], answer["odd"]) == (101, 101, 1)


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


def test_a_pool_is_shared_with_another_process_which_is_charged_nothing(box: SimBox) -> None:
    answer = told(
        box,
        f"""
import subprocess, sys
pool = pools.made(handles=1)
pools.had(MIB, None, pool)
address = pools.had(MIB, None, pool)
assert pools.driver.cuMemcpyHtoD_v2(ctypes.c_uint64(address), b"hello", ctypes.c_size_t(5)) == 0
handle, data = ctypes.c_int(-1), (ctypes.c_ubyte * 64)()
export = pools.driver.cuMemPoolExportToShareableHandle
assert export(ctypes.byref(handle), pool, 1, ctypes.c_uint64(0)) == 0
assert pools.driver.cuMemPoolExportPointer(data, ctypes.c_uint64(address)) == 0
other = subprocess.run([sys.executable, "-c", {IMPORTER!r}, str(handle.value), bytes(data).hex()],
                       pass_fds=[handle.value], capture_output=True, text=True)
private = export(ctypes.byref(handle), default, 1, ctypes.c_uint64(0))
tell(other=other.stdout, error=other.stderr, private=private)
""",
    )

    assert answer["error"] == ""
    assert answer["other"].strip() == "[0, 0, 'hello', [1, 1], 0, True]"
    assert answer["private"] == 1
