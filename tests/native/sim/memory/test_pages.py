"""Memory of the simulated GPUs where the driver is as unkind as real ones (struct sim_driver)."""

import ctypes
import os
from typing import Any

import pynvml

from tests.native.programs.sim_client import *
from tests.native.programs.virtual_client import ipc_close, ipc_handle, ipc_open
from tests.native.sim.program import on
from tests.native.sim_box import SimBox

MACHINE = {"count": 1, "page_bytes": 2_097_152, "slab_most_bytes": 1_048_576}
KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30
CONTEXT = 300 * MIB


def told() -> tuple[Any, Any, list[int]]:
    """By NVML: memory in both forms, and what each process holds."""
    pynvml.nvmlInit()
    gpu = pynvml.nvmlDeviceGetHandleByIndex(0)
    processes = pynvml.nvmlDeviceGetComputeRunningProcesses(gpu)
    forms = (
        pynvml.nvmlDeviceGetMemoryInfo(gpu),
        pynvml.nvmlDeviceGetMemoryInfo(gpu, pynvml.nvmlMemory_v2),
    )
    return *forms, sorted(process.usedGpuMemory for process in processes)


def test_memory_is_taken_in_whole_pages(box: SimBox) -> None:
    assert init() == 0
    for size, how, pages in (
        (MIB, (), 1),
        (MIB + 1, (), 1),
        (2 * MIB, (), 1),
        (2 * MIB + 1, (), 2),
        (1152 * KIB, (), 1),
        (1, (), 1),
        (3 * MIB, ("cuMemAlloc",), 2),
        (5000, ("cuMemAlloc",), 1),
        (3 * MIB, ("cuMemAllocManaged", 1), 2),
        (5000, ("cuMemAllocManaged", 1), 1),
    ):
        assert (alloc(size, *how), box.pages()) == (0, pages), (size, how)
        assert (free(), box.pages()) == (0, 0)
    before = 0
    for take, words, more in (
        (alloc, (5000, "cuMemAllocAsync", 0), 16),
        (alloc_rows, (1000, 3000), 2),
        (alloc_rows, (1000, 3), 1),
        (load_variable, (3 * MIB,), 2),
        (load_variable, (8,), 1),
    ):
        assert (take(*words), box.pages()) == (0, before + more)
        before += more


def test_small_allocations_of_one_size_share_a_page(box: SimBox) -> None:
    assert init() == 0
    for size, count, pages in ((600 * KIB, 2, 1), (600 * KIB, 1, 2), (4096, 1, 3), (4000, 511, 3)):
        assert [alloc(size) for _ in range(count)] == [0] * count
        assert box.pages() == pages


def test_a_shared_page_is_given_back_with_the_last_of_it(box: SimBox) -> None:
    assert [init(), *(alloc(512 * KIB) for _ in range(4))] == [0] * 5
    assert len({address >> 21 for address in held}) == 1
    assert ([free(), free(), free()], box.pages()) == ([0, 0, 0], 1)
    assert (alloc(512 * KIB), box.pages()) == (0, 1)
    assert ([free(), free()], box.pages()) == ([0, 0], 0)


def test_small_allocations_keep_their_contents_apart() -> None:
    assert [init(), alloc(8192), alloc(8192)] == [0, 0, 0]
    assert round_trip("first") == "first"
    held.reverse()
    assert round_trip("other") == "other"
    assert [free(), alloc(8192)] == [0, 0]
    assert round_trip("again") == "again"


def test_managed_memory_of_one_page_is_reached_by_the_program(box: SimBox) -> None:
    assert [init(), *(alloc(4096, "cuMemAllocManaged", 1) for _ in range(2))] == [0, 0, 0]
    ctypes.memset(held[0], 7, 4096)
    assert [free(), free(), alloc(4096, "cuMemAllocManaged", 1)] == [0, 0, 0]
    assert ctypes.string_at(held[-1], 1)[0] == 0
    assert box.pages() == 1


def test_a_small_allocation_reaches_another_process(box: SimBox) -> None:
    other = box.client()
    assert [init(), other("init()"), alloc(8192), alloc(8192)] == [0] * 4
    round_trip("shown")
    code, handle = ipc_handle(held[-1])

    assert (code, other(f"keep('o', vm.ipc_open({handle!r}))[0]")) == (0, 0)
    assert other("vm.read(kept['o'][1], 5)") == "shown"


def test_what_a_context_has_in_pages_ends_with_it(box: SimBox) -> None:
    context = ctypes.c_void_p()
    assert [init(), make_context()] == [0, 0]
    assert [alloc(1), alloc(3 * MIB), load_variable(8), box.pages()] == [0, 0, 0, 4]
    assert cuda.cuCtxGetCurrent(ctypes.byref(context)) == 0
    assert (cuda.cuCtxDestroy_v2(context), box.pages()) == (0, 0)


@on(context_bytes=314_572_800, hides_managed=True)
def test_managed_memory_is_missing_from_a_processs_figure() -> None:
    assert [init(), alloc(GIB, "cuMemAllocManaged", 1), alloc(MIB + 1)] == [0, 0, 0]

    _, memory, processes = told()

    assert processes == [CONTEXT + 2 * MIB]
    assert memory.used == CONTEXT + GIB + 2 * MIB


@on(counts_imports=False)
@on(counts_imports=True)
def test_what_another_process_made_can_be_in_the_figure_of_both(box: SimBox) -> None:
    other = box.client()
    assert [init(), other("[init(), alloc(3 << 20)]")] == [0, [0, 0]]
    code, address = ipc_open(other("vm.ipc_handle(held[-1])[1]"))

    _, memory, processes = told()
    assert (code, memory.used) == (0, 4 * MIB)
    assert processes == [4 * MIB if box.machine.driver.counts_imports else 0, 4 * MIB]

    assert (ipc_close(address), told()[2]) == (0, [0, 4 * MIB])


@on(reserved_bytes=536_870_912, page_bytes=0)
def test_memory_that_the_driver_keeps_is_nobodys() -> None:
    free_, reserved = 14 * GIB + 512 * MIB, 512 * MIB
    assert [init(), alloc(GIB)] == [0, 0]

    first, second, _ = told()

    assert (first.total, first.free, first.used) == (16 * GIB, free_, GIB + reserved)
    assert (second.total, second.free, second.used) == (16 * GIB, free_, GIB)
    assert second.reserved == reserved
    assert memory() == [free_, 16 * GIB - reserved]
    assert [alloc(15 << 30), alloc(free_)] == [2, 0]


@on(context_bytes=314_572_800, local_memory=True)
def test_stacks_take_memory_at_the_launch_that_needs_them(box: SimBox) -> None:
    def more() -> int:
        return box.gpus.device_bytes(box.uuid) - before

    stack, stacks = 0, 8192 * 40 * 1024
    assert [init(), launch("any")] == [0, 0]
    before = box.gpus.device_bytes(box.uuid)
    assert (cuda.cuCtxSetLimit(stack, word(9216)), more()) == (0, 0)
    assert (launch("any"), more()) == (0, stacks)
    assert (cuda.cuCtxSetLimit(stack, word(1024)), launch("any"), more()) == (0, 0, stacks)
    assert (cuda.cuDevicePrimaryCtxReset_v2(0), box.gpus.device_bytes(box.uuid)) == (0, 0)


@on(context_bytes=314_572_800)
def test_code_that_is_loaded_lazily_takes_memory_at_its_first_launch(box: SimBox) -> None:
    os.environ["CUDA_MODULE_LOADING"] = "LAZY"
    assert init() == 0
    before = box.pages()

    assert function("any").value
    assert box.pages() == before
    assert (launch("any"), box.pages()) == (0, before + 1)
