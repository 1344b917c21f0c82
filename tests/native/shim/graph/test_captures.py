"""Captures of this thread and of others end behind the shim as they do bare."""

from dataclasses import replace

import pytest
from driver_libraries import lay_out

from gpumanager.sim.gpu import driver_files
from gpumanager.units import GIB
from tests.native.gpu_node import GpuNode

pytestmark = pytest.mark.namespaces

CAPTURES = """
import threading
from tests.native.programs.pool_client import *
pools = Pools()
driver, function = pools.driver, begin(cuda())
assert driver.cuCtxSetCurrent(pools.context) == SUCCESS
captured, other, event = pools.stream(), pools.stream(), ctypes.c_void_p()
default, word = pools.default(), ctypes.c_uint64()
assert driver.cuEventCreate(ctypes.byref(event), 0) == SUCCESS
size, block = ctypes.c_size_t(MIB), ctypes.create_string_buffer(4096)
if {pooled}:
    kept = ctypes.c_uint64()
    assert driver.cuMemAllocAsync(ctypes.byref(kept), size, other) == SUCCESS
assert driver.cuStreamSynchronize(other) == SUCCESS

def launches():
    for _ in range(50):
        spin(driver, function, 200_000)
    return driver.cuStreamSynchronize(other)

def event_synchronised():
    return driver.cuEventRecord(event, other) or driver.cuEventSynchronize(event)

ACTIONS = {{
    "nothing": lambda: 0,
    "cuMemAllocAsync": lambda: driver.cuMemAllocAsync(ctypes.byref(word), size, other),
    "cuMemFreeAsync": lambda: driver.cuMemFreeAsync(word, other),
    "cuMemAllocFromPoolAsync": lambda: driver.cuMemAllocFromPoolAsync(
        ctypes.byref(word), size, default, other),
    "cuStreamSynchronize": lambda: driver.cuStreamSynchronize(other),
    "cuEventSynchronize": event_synchronised,
    "launches": launches,
    "cuStreamQuery": lambda: driver.cuStreamQuery(other),
    "cuEventQuery": lambda: driver.cuEventQuery(event),
    "cuMemPoolGetAttribute": lambda: driver.cuMemPoolGetAttribute(default, 5, ctypes.byref(word)),
    "cuMemPoolSetAttribute": lambda: driver.cuMemPoolSetAttribute(default, 4, ctypes.byref(word)),
    "cuMemPoolTrimTo": lambda: driver.cuMemPoolTrimTo(default, ctypes.c_size_t(0)),
    "cuMemAlloc": lambda: driver.cuMemAlloc_v2(ctypes.byref(word), size),
    "cuMemFree": lambda: driver.cuMemFree_v2(ctypes.c_uint64(1)),
    "cuMemHostAlloc": lambda: driver.cuMemHostAlloc(ctypes.byref(ctypes.c_void_p()), size, 0),
    "cuMemHostRegister": lambda: driver.cuMemHostRegister_v2(block, ctypes.c_size_t(4096), 0),
    "cuMemGetInfo": lambda: memory(driver) and 0,
    "cuDeviceGetMemPool": lambda: driver.cuDeviceGetMemPool(ctypes.byref(word), 0),
}}

def act(action, own_mode, answers):
    mode = ctypes.c_int(own_mode)
    driver.cuCtxSetCurrent(pools.context)
    driver.cuThreadExchangeStreamCaptureMode(ctypes.byref(mode))
    answers.append(action())
    driver.cuThreadExchangeStreamCaptureMode(ctypes.byref(mode))
    answers.append(mode.value == own_mode)  # as the program had set it

def capture(action, mode, own_mode, same_thread):
    graph, answers = ctypes.c_void_p(), []
    assert driver.cuStreamBeginCapture_v2(captured, mode) == SUCCESS
    if same_thread:
        act(action, own_mode, answers)
    else:
        thread = threading.Thread(target=act, args=(action, own_mode, answers))
        thread.start()
        thread.join()
    return [*answers, driver.cuStreamEndCapture(captured, ctypes.byref(graph))]

tell(**{{name: capture(action, *how) for name, action in ACTIONS.items() for how in [{how}]}})
"""

GLOBAL, THREAD_LOCAL, RELAXED = range(3)
UNSAFE = {
    *("cuEventQuery", "cuMemPoolGetAttribute", "cuMemPoolSetAttribute", "cuMemPoolTrimTo"),
    *("cuMemAlloc", "cuMemFree", "cuMemHostAlloc", "cuMemHostRegister"),
}


@pytest.mark.parametrize("pooled", [1, 0], ids=["pool", "no pool"])
@pytest.mark.parametrize(
    ("how", "broken"),
    [
        pytest.param((GLOBAL, GLOBAL, False), UNSAFE, id="another thread, global"),
        pytest.param((GLOBAL, THREAD_LOCAL, False), set(), id="another thread that is local"),
        pytest.param((GLOBAL, RELAXED, False), set(), id="another thread that is relaxed"),
        pytest.param((THREAD_LOCAL, GLOBAL, False), set(), id="another thread, local"),
        pytest.param((GLOBAL, GLOBAL, True), UNSAFE, id="this thread, global"),
        pytest.param((THREAD_LOCAL, GLOBAL, True), UNSAFE, id="this thread, local"),
        pytest.param((RELAXED, GLOBAL, True), set(), id="this thread, relaxed"),
    ],
)
async def test_a_capture_is_invalidated_by_the_programs_unsafe_calls_alone(
    one_gpu: GpuNode, pooled: int, how: tuple[int, int, bool], broken: set[str]
) -> None:
    """how: the capture's mode, the mode of the thread that acts, and whether it is the same."""
    container = await one_gpu.container(GIB, 50)
    bare = replace(
        container,
        libraries=lay_out(container.work / "bare", *driver_files(12050), shim=False),
        allocation=None,
    )
    script = CAPTURES.format(pooled=pooled, how=how)

    told = await container.run(script)

    assert {name for name, answers in told.items() if answers[-1] != 0} == broken
    assert all(answers[1] for answers in told.values())
    assert told == await bare.run(script)
