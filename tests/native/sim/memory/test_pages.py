"""Memory of the simulated GPUs where the driver is as unkind as real ones (struct sim_driver)."""

import json
from collections.abc import Iterator
from dataclasses import replace

import pytest

from gpumanager.units import GIB, KIB, MIB
from tests.native.sim_box import PAGED, Client, SimBox, machine, sim_box

CONTEXT = 300 * MIB
ALL_IT_SAYS = """
import json
from pynvml import *
nvmlInit()
handle = nvmlDeviceGetHandleByIndex(0)
first, second = nvmlDeviceGetMemoryInfo(handle), nvmlDeviceGetMemoryInfo(handle, nvmlMemory_v2)
processes = nvmlDeviceGetComputeRunningProcesses(handle)
print(json.dumps([[first.total, first.free, first.used],
                  [second.total, second.free, second.used, second.reserved],
                  [process.usedGpuMemory for process in processes]]))
"""


@pytest.fixture
def paged() -> Iterator[SimBox]:
    with sim_box(machine(driver=PAGED)) as box:
        yield box


def begun(box: SimBox, **environment: str) -> Client:
    client = box.client(**environment)
    assert client("init()") == 0
    return client


@pytest.mark.parametrize(
    ("call", "pages"),
    [
        (f"alloc({MIB})", 1),
        (f"alloc({MIB + 1})", 1),
        (f"alloc({2 * MIB})", 1),
        (f"alloc({2 * MIB + 1})", 2),
        (f"alloc({1152 * KIB})", 1),
        ("alloc(1)", 1),
        (f"alloc({3 * MIB}, 'cuMemAlloc')", 2),
        ("alloc(5000, 'cuMemAlloc')", 1),
        (f"alloc({3 * MIB}, 'cuMemAllocManaged', 1)", 2),
        ("alloc(5000, 'cuMemAllocManaged', 1)", 1),
        ("alloc(5000, 'cuMemAllocAsync', 0)", 16),
        ("alloc_rows(1000, 3000)", 2),
        ("alloc_rows(1000, 3)", 1),
        (f"load_variable({3 * MIB})", 2),
        ("load_variable(8)", 1),
    ],
)
def test_memory_is_taken_in_whole_pages(paged: SimBox, call: str, pages: int) -> None:
    client = begun(paged)

    assert client(call) == 0

    assert paged.pages() == pages


def test_small_allocations_of_one_size_share_a_page(paged: SimBox) -> None:
    client = begun(paged)

    assert client(f"[alloc({600 * KIB}) for _ in range(2)]") == [0, 0]
    assert paged.pages() == 1
    assert client(f"alloc({600 * KIB})") == 0
    assert paged.pages() == 2
    assert client("alloc(4096)") == 0
    assert paged.pages() == 3
    assert client("[alloc(4000) for _ in range(511)]") == [0] * 511
    assert paged.pages() == 3


def test_a_shared_page_is_given_back_with_the_last_of_it(paged: SimBox) -> None:
    client = begun(paged)
    client(f"[alloc({512 * KIB}) for _ in range(4)]")
    client("keep('pages', sorted(held))")

    assert client("len({address >> 21 for address in kept['pages']})") == 1
    assert client("[free(), free(), free()]") == [0, 0, 0]
    assert paged.pages() == 1
    assert client(f"alloc({512 * KIB})") == 0
    assert paged.pages() == 1
    assert client("[free(), free()]") == [0, 0]
    assert paged.pages() == 0


def test_small_allocations_keep_their_contents_apart(paged: SimBox) -> None:
    client = begun(paged)

    assert client("[alloc(8192), alloc(8192)]") == [0, 0]
    assert client("round_trip('first')") == "first"
    assert client("held.reverse()") is None
    assert client("round_trip('other')") == "other"
    assert client("[free(), alloc(8192)]") == [0, 0]
    assert client("round_trip('again')") == "again"


def test_managed_memory_of_one_page_is_reached_by_the_program(paged: SimBox) -> None:
    client = begun(paged)

    client("[alloc(4096, 'cuMemAllocManaged', 1) for _ in range(2)]")
    assert client("[ctypes.memset(held[0], 7, 4096) and 0, free(), free()]") == [0, 0, 0]
    assert client("alloc(4096, 'cuMemAllocManaged', 1)") == 0
    assert client("ctypes.string_at(held[-1], 1)[0]") == 0
    assert paged.pages() == 1


def test_a_small_allocation_reaches_another_process(paged: SimBox) -> None:
    client, other = begun(paged), begun(paged)
    client("[alloc(8192), alloc(8192)]")
    client("round_trip('shown')")

    code, handle = client("vm.ipc_handle(held[-1])")
    assert code == 0
    assert other(f"keep('o', vm.ipc_open({handle!r}))[0]") == 0
    assert other("held.append(kept['o'][1])") is None
    target = "t := ctypes.create_string_buffer(5)"
    assert other(f"[{target}, cuda.cuMemcpyDtoH_v2(t, word(held[-1]), 5), t.raw.decode()][1:]") == [
        0,
        "shown",
    ]


def test_what_a_context_has_in_pages_ends_with_it(paged: SimBox) -> None:
    client = begun(paged)

    assert client("make_context()") == 0
    assert client(f"[alloc(1), alloc({3 * MIB}), load_variable(8)]") == [0, 0, 0]
    assert paged.pages() == 4
    current = "c := ctypes.c_void_p(), cuda.cuCtxGetCurrent(ctypes.byref(c))"
    assert client(f"[{current}, cuda.cuCtxDestroy_v2(c)][1:]") == [0, 0]
    assert paged.pages() == 0


def told(box: SimBox) -> list[list[int]]:
    answers: list[list[int]] = json.loads(box.python(ALL_IT_SAYS))
    return answers


def test_managed_memory_is_missing_from_a_processs_figure() -> None:
    hiding = replace(PAGED, hides_managed=True)
    with sim_box(machine(1, context_bytes=CONTEXT, driver=hiding)) as box:
        client = begun(box)
        assert client(f"[alloc({GIB}, 'cuMemAllocManaged', 1), alloc({MIB + 1})]") == [0, 0]

        _, (_, _, used, _), processes = told(box)

        assert processes == [CONTEXT + 2 * MIB]
        assert used == CONTEXT + GIB + 2 * MIB


def test_what_another_process_made_can_be_in_the_figure_of_both() -> None:
    for counts, seen in ((False, 0), (True, 4 * MIB)):
        driver = replace(PAGED, counts_imports=counts)
        with sim_box(machine(1, driver=driver)) as box:
            client, other = begun(box), begun(box)
            client(f"alloc({3 * MIB})")
            handle = client("vm.ipc_handle(held[-1])")[1]
            assert other(f"keep('o', vm.ipc_open({handle!r}))[0]") == 0

            _, (_, _, used, _), processes = told(box)
            assert sorted(processes) == sorted([4 * MIB, seen])
            assert used == 4 * MIB

            assert other("vm.ipc_close(kept['o'][1])") == 0
            assert sorted(told(box)[2]) == [0, 4 * MIB]


def test_memory_that_the_driver_keeps_is_nobodys() -> None:
    with sim_box(machine(1, reserved_bytes=512 * MIB)) as box:
        client = begun(box)
        assert client(f"alloc({GIB})") == 0

        first, second, _ = told(box)

        assert first == [16 * GIB, 14 * GIB + 512 * MIB, GIB + 512 * MIB]
        assert second == [16 * GIB, 14 * GIB + 512 * MIB, GIB, 512 * MIB]
        assert client("memory()") == [14 * GIB + 512 * MIB, 15 * GIB + 512 * MIB]
        assert client(f"[alloc(15 << 30), alloc({14 * GIB + 512 * MIB})]") == [2, 0]


def test_stacks_take_memory_at_the_launch_that_needs_them() -> None:
    growing = replace(PAGED, local_memory=True)
    with sim_box(machine(1, context_bytes=CONTEXT, driver=growing)) as box:
        client = begun(box)
        assert client("launch('any')") == 0
        before = box.gpus.device_bytes(box.uuid)

        assert client("cuda.cuCtxSetLimit(0, word(9216))") == 0
        assert box.gpus.device_bytes(box.uuid) == before
        assert client("launch('any')") == 0
        assert box.gpus.device_bytes(box.uuid) - before == 8192 * 40 * 1024
        assert client("[cuda.cuCtxSetLimit(0, word(1024)), launch('any')]") == [0, 0]
        assert box.gpus.device_bytes(box.uuid) - before == 8192 * 40 * 1024
        assert client("cuda.cuDevicePrimaryCtxReset_v2(0)") == 0
        assert box.gpus.device_bytes(box.uuid) == 0


def test_code_that_is_loaded_lazily_takes_memory_at_its_first_launch() -> None:
    with sim_box(machine(1, context_bytes=CONTEXT, driver=PAGED)) as box:
        client = begun(box, CUDA_MODULE_LOADING="LAZY")
        before = box.pages()

        assert client("function('any') and 0") == 0
        assert box.pages() == before
        assert client("launch('any')") == 0
        assert box.pages() == before + 1
