"""Memory of the simulated GPUs: whose it is, and that it comes back."""

import os
from functools import partial

from tests.native.programs.shim_client import soon
from tests.native.programs.sim_client import *
from tests.native.programs.virtual_client import write
from tests.native.sim.program import on
from tests.native.sim_box import SimBox

MACHINE = {"cuda_version": 12050}
KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30
CONTEXT = 300 * MIB


def taken(box: SimBox) -> int:
    """Bytes on the first GPU."""
    return box.gpus.device_bytes(box.uuid)


def test_processes_see_each_others_memory(box: SimBox) -> None:
    assert [init(), alloc(3 << 30)] == [0, 0]

    assert box.client()("[init(), memory()]") == [0, [13 * GIB, 16 * GIB]]
    assert taken(box) == 3 * GIB


def test_exactly_the_bytes_asked_for_are_charged(box: SimBox) -> None:
    assert [init(), alloc(1), alloc(513), alloc(4097)] == [0] * 4

    assert taken(box) == 1 + 513 + 4097
    assert [address % 512 for address in held] == [0, 0, 0]


def test_memory_is_refused_only_when_the_gpu_is_full(box: SimBox) -> None:
    assert [init(), alloc(16 << 30), alloc(1), free()] == [0, 0, 2, 0]
    assert [alloc((16 << 30) + 1), alloc(0)] == [2, 1]

    account = box.account()
    assert (account.bytes_now, account.bytes_peak, account.refused) == (0, 16 * GIB, 2)


def test_every_kind_of_allocation_is_charged(box: SimBox) -> None:
    assert init() == 0
    for function, more, charged in (
        ("cuMemAllocManaged", (1,), 5000),
        ("cuMemAllocAsync", (0,), 32 * MIB),
        ("cuMemAlloc", (), 5000),
    ):
        before = taken(box)
        assert (alloc(5000, function, *more), taken(box) - before) == (0, charged)
    before = taken(box)
    assert (alloc_rows(1000, 3), taken(box) - before) == (0, 1024 * 3)


def test_memory_of_a_killed_process_comes_back_soon(box: SimBox) -> None:
    victim = box.client()
    victim("[init(), alloc(10 << 30)]")
    assert init() == 0
    victim.begin("churn()")

    victim.kill()

    assert soon(lambda: memory()[0] == 16 * GIB)
    assert box.gpus.processes()[0].pid == os.getpid()


def test_however_processes_are_killed_the_state_stays_whole(box: SimBox) -> None:
    assert init() == 0
    for code in (partial(alloc, 1 << 20), partial(spin, 1000), sync, free):
        crowd = [box.client() for _ in range(4)]
        for client in crowd:
            assert client("init()") == 0
            client.begin("churn()")
        assert code() == 0
        for client in crowd:
            client.kill()

    assert soon(lambda: len(box.gpus.processes()) == 1)
    assert [spin(1000), sync()] == [0, 0]


def test_an_allocation_finds_room_that_a_dead_process_left(box: SimBox) -> None:
    victim = box.client()
    assert victim("[init(), alloc(16 << 30)]") == [0, 0]
    assert [init(), alloc(1)] == [0, 2]

    victim.kill()

    assert alloc(16 << 30) == 0


def test_what_a_dead_process_held_is_no_part_of_its_tenants_peak(box: SimBox) -> None:
    victim = box.client()
    assert victim("[init(), alloc(4 << 30)]") == [0, 0]
    assert init() == 0

    victim.kill()

    assert alloc(5 << 30) == 0
    assert box.account().bytes_peak == 5 * GIB


@on(context_bytes=314_572_800)
def test_ending_a_context_frees_what_was_allocated_and_loaded_in_it(box: SimBox) -> None:
    assert [init(), alloc(1 << 30), alloc(1 << 30), load_variable(5 << 20)] == [0] * 4

    assert (cuda.cuDevicePrimaryCtxRelease_v2(0), taken(box)) == (0, 0)


@on(context_bytes=314_572_800)
def test_a_process_pays_for_its_first_context_and_a_quarter_for_each_further_one(
    box: SimBox,
) -> None:
    assert ([init(), init()], taken(box)) == ([0, 0], CONTEXT)
    assert (box.client()("init()"), taken(box)) == (0, 2 * CONTEXT)
    assert (make_context(), taken(box)) == (0, 2 * CONTEXT + CONTEXT // 4)
    assert (cuda.cuDevicePrimaryCtxReset_v2(0), taken(box)) == (0, 2 * CONTEXT)


@on(context_bytes=314_572_800)
def test_a_module_takes_its_code_and_variables_until_it_is_unloaded(box: SimBox) -> None:
    assert init() == 0
    assert (load_variable(5 << 20), taken(box)) == (0, CONTEXT + 5 * MIB + 64 * KIB)
    assert (unload_last(), taken(box)) == (0, CONTEXT)
    assert [load_variable(17 << 30), load_variable(1)] == [2, 0]  # no GPU has room for it


@on(context_bytes=314_572_800)
def test_a_larger_heap_and_stack_take_memory_and_smaller_ones_give_it_back(box: SimBox) -> None:
    assert init() == 0
    heap, stack, stacks = 2, 0, 1024 * 40 * 1024
    for limit, size, code, more in (
        (heap, 108 << 20, 0, 100 * MIB),
        (stack, 2048, 0, 100 * MIB + stacks),
        (heap, 17 << 30, 2, 100 * MIB + stacks),
        (heap, 1 << 20, 0, stacks),
        (stack, 512, 0, 0),
    ):
        assert cuda.cuCtxSetLimit(limit, word(size)) == code
        assert taken(box) == CONTEXT + more


def test_bytes_copied_to_the_gpu_come_back() -> None:
    assert [init(), alloc(8 << 30)] == [0, 0]

    assert round_trip("what was written") == "what was written"
    assert filled(0xDEADBEEF, 3) == [0xDEADBEEF] * 3


def test_copies_outside_an_allocation_and_freeing_what_is_none_are_refused() -> None:
    assert [init(), alloc(100)] == [0, 0]
    places = ((0, 64), (64, 64), (5000000, 8))

    assert [write(held[0] + shift, b"x" * size) for shift, size in places] == [0, 1, 1]
    addresses = (held[0] + 8, held[0], held[0], 0)
    assert [cuda.cuMemFree_v2(word(address)) for address in addresses] == [1, 0, 1, 0]


def test_a_forked_child_is_not_initialised_and_can_start_anew(box: SimBox) -> None:
    client = box.client()
    client("[init(), alloc(1 << 30)]")

    assert client("in_child('alloc(1)')") == 3
    assert client("in_child('init() or alloc(1 << 20) or (memory()[0] >> 20 != 15359)')") == 0
    assert client("[free(), memory()[0] >> 30]") == [0, 16]


def test_exec_ends_what_the_process_held(box: SimBox) -> None:
    client = box.client()
    client("[init(), alloc(1 << 30)]")

    assert (client("replace_by('init()')"), taken(box)) == (0, 0)


def test_only_gpus_whose_device_node_is_there_are_visible(box: SimBox) -> None:
    second = box.machine.topology.gpus[1]
    shown = box.directory / "shown"
    shown.mkdir()
    for name in ("nvidiactl", f"nvidia{second.minor}"):
        (shown / name).symlink_to(box.gpus.device_directory / name)
    os.environ["GPUSIM_DEV"] = str(shown)

    assert [init(), alloc(1 << 30), init(1)] == [0, 0, 101]
    assert box.gpus.device_bytes(second.uuid) == GIB


def test_cuda_visible_devices_chooses_and_orders(box: SimBox) -> None:
    gpus = box.machine.topology.gpus
    for variable, code, used in (
        ("1,0", 0, [1]),
        (gpus[1].uuid, 0, [1]),
        ("", 100, []),
        ("7", 100, []),
        ("0,7,1", 0, [0]),
    ):
        client = box.client(CUDA_VISIBLE_DEVICES=variable)
        assert client("init() or alloc(1 << 20)") == code, variable
        assert [gpu.index for gpu in gpus if box.gpus.device_bytes(gpu.uuid)] == used
        client.kill()


def test_a_retired_account_starts_anew(box: SimBox) -> None:
    client = box.client()
    client("[init(), alloc(1 << 30)]")
    (tenant,) = box.gpus.tenants()

    retired = box.gpus.retire(tenant.mount_namespace)
    client.kill()

    assert retired is not None
    assert retired.devices[box.uuid].bytes_peak == GIB
    assert box.gpus.retire(tenant.mount_namespace) is None
    assert box.gpus.tenants() == []


CROWD = """[keep('die_with_me', ctypes.CDLL(None).prctl) and 0,
keep('crowd', [child for child in (os.fork() for _ in range(300)) if child or
os._exit(kept['die_with_me'](1, 9) or init() or __import__('signal').pause() or 0)]) and init()][1]
""".replace("\n", " ")


def test_more_than_256_processes_use_a_gpu_at_once(box: SimBox) -> None:
    client = box.client()

    assert client(CROWD) == 0

    assert soon(lambda: len(box.gpus.processes()) == 301, within=60)
    client("[os.kill(child, 9) for child in kept['crowd']]")
    assert soon(lambda: len(box.gpus.processes()) == 1, within=60)
