"""Memory of the simulated GPUs: whose it is, and that it comes back."""

from pathlib import Path

import pytest

from gpumanager.units import GIB, KIB, MIB
from tests.native.programs.shim_client import soon
from tests.native.sim_box import SimBox, machine, sim_box


def test_processes_see_each_others_memory(box: SimBox) -> None:
    one, other = box.client(), box.client()
    assert [one("init()"), other("init()"), one("alloc(3 << 30)")] == [0, 0, 0]

    assert other("memory()") == [13 * GIB, 16 * GIB]
    assert box.gpus.device_bytes(box.uuid) == 3 * GIB


def test_exactly_the_bytes_asked_for_are_charged(box: SimBox) -> None:
    client = box.client()
    client("init()")

    assert client("[alloc(1), alloc(513), alloc(4097)]") == [0, 0, 0]

    assert box.gpus.device_bytes(box.uuid) == 1 + 513 + 4097
    assert client("[held[i] % 512 for i in range(3)]") == [0, 0, 0]


def test_memory_is_refused_only_when_the_gpu_is_full(box: SimBox) -> None:
    client = box.client()
    client("init()")

    codes = client("[alloc(16 << 30), alloc(1), free(), alloc((16 << 30) + 1), alloc(0)]")

    assert codes == [0, 2, 0, 2, 1]
    account = box.gpus.tenants()[0].devices[box.uuid]
    assert (account.bytes_now, account.bytes_peak, account.refused) == (0, 16 * GIB, 2)


@pytest.mark.parametrize(
    ("call", "charged"),
    [
        ("alloc(5000, 'cuMemAllocManaged', 1)", 5000),
        ("alloc(5000, 'cuMemAllocAsync', 0)", 32 * MIB),
        ("alloc(5000, 'cuMemAlloc')", 5000),
        ("alloc_rows(1000, 3)", 1024 * 3),
    ],
)
def test_every_kind_of_allocation_is_charged(box: SimBox, call: str, charged: int) -> None:
    client = box.client()
    client("init()")

    assert client(call) == 0

    assert box.gpus.device_bytes(box.uuid) == charged


def test_memory_of_a_killed_process_comes_back_soon(box: SimBox) -> None:
    victim, witness = box.client(), box.client()
    victim("[init(), alloc(10 << 30)]")
    witness("init()")
    victim.begin("churn()")

    victim.kill()

    assert soon(lambda: witness("memory()")[0] == 16 * GIB)
    assert box.gpus.processes()[0].pid == witness.pid


def test_however_processes_are_killed_the_state_stays_whole(box: SimBox) -> None:
    witness = box.client()
    witness("init()")
    for round_ in range(4):
        crowd = [box.client() for _ in range(4)]
        for client in crowd:
            assert client("init()") == 0
            client.begin("churn()")
        assert witness(f"[alloc(1 << 20), spin(1000), sync(), free()][{round_}]") == 0
        for client in crowd:
            client.kill()

    assert soon(lambda: len(box.gpus.processes()) == 1)
    witness("[cuda.cuMemFree_v2(word(a)) for a in held]")
    assert witness("[spin(1000), sync()]") == [0, 0]


def test_an_allocation_finds_room_that_a_dead_process_left(box: SimBox) -> None:
    victim, client = box.client(), box.client()
    victim("[init(), alloc(16 << 30)]")
    assert client("[init(), alloc(1)]") == [0, 2]

    victim.kill()

    assert client("alloc(16 << 30)") == 0


def test_what_a_dead_process_held_is_no_part_of_its_tenants_peak(box: SimBox) -> None:
    victim, client = box.client(), box.client()
    assert victim("[init(), alloc(4 << 30)]") == [0, 0]
    assert client("init()") == 0

    victim.kill()

    assert client("alloc(5 << 30)") == 0
    assert box.gpus.tenants()[0].devices[box.uuid].bytes_peak == 5 * GIB


def test_ending_a_context_frees_what_was_allocated_in_it(box: SimBox) -> None:
    client = box.client()
    client("[init(), alloc(1 << 30), alloc(1 << 30)]")

    assert client("cuda.cuDevicePrimaryCtxRelease_v2(0)") == 0

    assert box.gpus.device_bytes(box.uuid) == 0


def test_a_process_pays_for_its_first_context_and_a_quarter_for_each_further_one() -> None:
    with sim_box(machine(context_bytes=300 * MIB)) as box:
        one, other = box.client(), box.client()

        assert one("[init(), init()]") == [0, 0]
        assert box.gpus.device_bytes(box.uuid) == 300 * MIB
        assert other("init()") == 0
        assert box.gpus.device_bytes(box.uuid) == 600 * MIB
        assert one("make_context()") == 0
        assert box.gpus.device_bytes(box.uuid) == 675 * MIB
        assert one("cuda.cuDevicePrimaryCtxReset_v2(0)") == 0
        assert box.gpus.device_bytes(box.uuid) == 600 * MIB


def test_a_module_takes_its_code_and_variables_until_it_is_unloaded() -> None:
    with sim_box(machine(context_bytes=300 * MIB)) as box:
        client = box.client()
        client("init()")

        assert client("load_variable(5 << 20)") == 0
        assert box.gpus.device_bytes(box.uuid) == 305 * MIB + 64 * KIB
        assert client("unload_last()") == 0
        assert box.gpus.device_bytes(box.uuid) == 300 * MIB


def test_a_module_goes_with_its_context() -> None:
    with sim_box(machine(context_bytes=300 * MIB)) as box:
        client = box.client()
        client("[init(), load_variable(5 << 20)]")

        assert client("cuda.cuDevicePrimaryCtxRelease_v2(0)") == 0

        assert box.gpus.device_bytes(box.uuid) == 0


def test_variables_that_no_gpu_has_room_for_are_refused() -> None:
    with sim_box(machine(context_bytes=300 * MIB)) as box:
        client = box.client()

        assert client("[init(), load_variable(17 << 30), load_variable(1)]") == [0, 2, 0]


def test_a_larger_heap_and_stack_take_memory_and_smaller_ones_give_it_back() -> None:
    with sim_box(machine(context_bytes=300 * MIB)) as box:
        client = box.client()
        client("init()")
        heap, stack, threads = 2, 0, 40 * 1024

        assert client(f"cuda.cuCtxSetLimit({heap}, word(108 << 20))") == 0
        assert box.gpus.device_bytes(box.uuid) == 400 * MIB
        assert client(f"cuda.cuCtxSetLimit({stack}, word(2048))") == 0
        assert box.gpus.device_bytes(box.uuid) == 400 * MIB + threads * 1024
        assert client(f"cuda.cuCtxSetLimit({heap}, word(17 << 30))") == 2
        assert client(f"cuda.cuCtxSetLimit({heap}, word(1 << 20))") == 0
        assert client(f"cuda.cuCtxSetLimit({stack}, word(512))") == 0
        assert box.gpus.device_bytes(box.uuid) == 300 * MIB


def test_bytes_copied_to_the_gpu_come_back(box: SimBox) -> None:
    client = box.client()
    client("[init(), alloc(8 << 30)]")

    assert client("round_trip('what was written')") == "what was written"
    assert client("filled(0xdeadbeef, 3)") == [0xDEADBEEF] * 3


def test_copies_outside_an_allocation_are_refused(box: SimBox) -> None:
    client = box.client()
    client("[init(), alloc(100)]")

    codes = client(
        "[cuda.cuMemcpyHtoD_v2(word(held[0] + shift), b'x' * 64, ctypes.c_size_t(size))"
        " for shift, size in ((0, 64), (64, 64), (5000000, 8))]"
    )

    assert codes == [0, 1, 1]


def test_freeing_what_is_not_allocated_is_refused(box: SimBox) -> None:
    client = box.client()
    client("[init(), alloc(100)]")

    codes = client("[cuda.cuMemFree_v2(word(a)) for a in (held[0] + 8, held[0], held[0], 0)]")

    assert codes == [1, 0, 1, 0]


def test_a_forked_child_is_not_initialised_and_can_start_anew(box: SimBox) -> None:
    client = box.client()
    client("[init(), alloc(1 << 30)]")

    assert client("in_child('alloc(1)')") == 3
    assert client("in_child('init() or alloc(1 << 20) or (memory()[0] >> 20 != 15359)')") == 0
    assert client("[free(), memory()[0] >> 30]") == [0, 16]


def test_exec_ends_what_the_process_held(box: SimBox) -> None:
    client = box.client()
    client("[init(), alloc(1 << 30)]")

    assert client("replace_by('init()')") == 0

    assert box.gpus.device_bytes(box.uuid) == 0


def test_only_gpus_whose_device_node_is_there_are_visible(box: SimBox, tmp_path: Path) -> None:
    second = box.machine.topology.gpus[1]
    for name in ("nvidiactl", f"nvidia{second.minor}"):
        (tmp_path / name).symlink_to(box.gpus.device_directory / name)
    client = box.client(GPUSIM_DEV=str(tmp_path))

    assert client("[init(), alloc(1 << 30), init(1)]") == [0, 0, 101]

    assert box.gpus.device_bytes(second.uuid) == GIB


@pytest.mark.parametrize(
    ("variable", "code", "used"),
    [("1,0", 0, 1), ("{second}", 0, 1), ("", 100, None), ("7", 100, None), ("0,7,1", 0, 0)],
)
def test_cuda_visible_devices_chooses_and_orders(
    box: SimBox, variable: str, code: int, used: int | None
) -> None:
    gpus = box.machine.topology.gpus
    client = box.client(CUDA_VISIBLE_DEVICES=variable.format(second=gpus[1].uuid))

    assert client("init() or alloc(1 << 20)") == code

    held = [gpu.index for gpu in gpus if box.gpus.device_bytes(gpu.uuid)]
    assert held == ([] if used is None else [used])


@pytest.mark.namespaces
def test_a_mount_namespace_is_a_tenant_with_its_own_account(box: SimBox) -> None:
    plain, contained = box.client(), box.client(prefix=["unshare", "--mount"])
    plain("[init(), alloc(1 << 30)]")
    contained("[init(), alloc(2 << 30), free(), alloc(1 << 20)]")
    namespace = Path(f"/proc/{contained.pid}/ns/mnt").stat().st_ino

    first, second = box.gpus.tenants()

    assert first.devices[box.uuid].bytes_peak == GIB
    assert second.mount_namespace == namespace
    assert second.devices[box.uuid].bytes_peak == 2 * GIB
    assert second.devices[box.uuid].bytes_now == MIB


@pytest.mark.namespaces
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
