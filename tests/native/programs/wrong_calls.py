"""Calls that a driver refuses for its own reasons, made of the shim and of the driver behind it.

Runs in a container. Every call is refused before, or for want of, a context; most of them always.
"""

import ctypes
from collections.abc import Callable
from typing import Any

from tests.native.programs import array_words as aw
from tests.native.programs import pool_client as pc
from tests.native.programs import virtual_client as vm

shim, driver = vm.cuda, ctypes.CDLL("libvcuda-real.so.1")

NO_DEVICE, NO_FLAG = 99, 64
NOTHING = ctypes.create_string_buffer(4096)
out, word = ctypes.byref(vm.U64()), vm.U64
wrong = ctypes.byref(NOTHING, 64)
"""A handle of nothing that is there."""

size, SIZE = ctypes.byref(vm.SIZE()), vm.SIZE
PAGE = SIZE(vm.PAGE)
flat = ctypes.byref(aw.FORMS["cuArrayCreate_v2"](0, 8, aw.U8, 1))
deep = ctypes.byref(aw.FORMS["cuArray3DCreate_v2"](8, 8, 0, aw.U8, 9, 0))


def memory_of(device: int) -> Any:
    return ctypes.byref(vm.properties(device))


def pool_of(device: int) -> Any:
    return ctypes.byref(pc.PoolProps(1, 0, pc.ON_DEVICE, device, None, 0))


CALLS: dict[str, Callable[[Any], int]] = {
    "nothing": lambda d: d.cuMemAlloc_v2(out, SIZE(0)),
    "nowhere": lambda d: d.cuMemAlloc_v2(None, PAGE),
    "old": lambda d: d.cuMemAlloc(out, 0),
    "managed nowhere": lambda d: d.cuMemAllocManaged(None, PAGE, 1),
    "rows nowhere": lambda d: d.cuMemAllocPitch_v2(None, size, SIZE(8), SIZE(8), 4),
    "no rows": lambda d: d.cuMemAllocPitch_v2(out, size, SIZE(8), SIZE(0), 4),
    "in order, nowhere": lambda d: d.cuMemAllocAsync(None, PAGE, None),
    "in order, nothing": lambda d: d.cuMemAllocAsync(out, SIZE(0), None),
    "of no pool": lambda d: d.cuMemAllocFromPoolAsync(out, PAGE, None, None),
    "of a wrong pool": lambda d: d.cuMemAllocFromPoolAsync(out, PAGE, wrong, None),
    "of a wrong pool's": lambda d: d.cuMemAllocFromPoolAsync_ptsz(out, PAGE, wrong, None),
    "physical, no device": lambda d: d.cuMemCreate(out, PAGE, memory_of(NO_DEVICE), word(0)),
    "physical, below 0": lambda d: d.cuMemCreate(out, PAGE, memory_of(-1), word(0)),
    "physical, nowhere": lambda d: d.cuMemCreate(None, PAGE, memory_of(0), word(0)),
    "physical, flags": lambda d: d.cuMemCreate(out, PAGE, memory_of(0), word(NO_FLAG)),
    "physical, a byte": lambda d: d.cuMemCreate(out, SIZE(1), memory_of(0), word(0)),
    "physical, of what": lambda d: d.cuMemCreate(out, PAGE, None, word(0)),
    "flat array of nothing": lambda d: d.cuArrayCreate_v2(out, flat),
    "flat array of what": lambda d: d.cuArrayCreate_v2(out, None),
    "array of 9 channels": lambda d: d.cuArray3DCreate_v2(out, deep),
    "mipmaps of 9 channels": lambda d: d.cuMipmappedArrayCreate(out, deep, 2),
    "mipmaps of what": lambda d: d.cuMipmappedArrayCreate(out, None, 2),
    "pool of no device": lambda d: d.cuMemPoolCreate(out, pool_of(NO_DEVICE)),
    "pool nowhere": lambda d: d.cuMemPoolCreate(None, pool_of(0)),
    "pool of what": lambda d: d.cuMemPoolCreate(out, None),
    "no pool to destroy": lambda d: d.cuMemPoolDestroy(None),
    "a wrong pool to destroy": lambda d: d.cuMemPoolDestroy(wrong),
    "a wrong pool to trim": lambda d: d.cuMemPoolTrimTo(wrong, SIZE(0)),
    "no pool to set": lambda d: d.cuMemPoolSetAttribute(None, pc.THRESHOLD, None),
    "pool of no file": lambda d: d.cuMemPoolImportFromShareableHandle(out, None, 1, word(0)),
    "context, no device": lambda d: d.cuCtxCreate_v2(out, 0, NO_DEVICE),
    "context, below 0": lambda d: d.cuCtxCreate_v2(out, 0, -1),
    "context nowhere": lambda d: d.cuCtxCreate_v2(None, 0, 0),
    "primary nowhere": lambda d: d.cuDevicePrimaryCtxRetain(None, 0),
    "primary, no device": lambda d: d.cuDevicePrimaryCtxRetain(out, NO_DEVICE),
    "primary given up": lambda d: d.cuDevicePrimaryCtxRelease_v2(NO_DEVICE),
    "primary reset": lambda d: d.cuDevicePrimaryCtxReset_v2(-3),
    "no context to destroy": lambda d: d.cuCtxDestroy_v2(None),
    "a wrong one to destroy": lambda d: d.cuCtxDestroy_v2(wrong),
    "a wrong limit": lambda d: d.cuCtxSetLimit(77, SIZE(1)),
    "figures nowhere": lambda d: d.cuMemGetInfo_v2(None, None),
    "total, no device": lambda d: d.cuDeviceTotalMem_v2(size, NO_DEVICE),
    "module nowhere": lambda d: d.cuModuleLoadData(None, b"x"),
    "module of what": lambda d: d.cuModuleLoadData(out, None),
    "module of no file": lambda d: d.cuModuleLoad(out, b"/none"),
    "no module to unload": lambda d: d.cuModuleUnload(None),
    "library nowhere": lambda d: d.cuLibraryLoadData(None, b"x", None, None, 0, None, None, 0),
    "no address to free": lambda d: d.cuMemFree_v2(word(0)),
    "a wrong one to free": lambda d: d.cuMemFree_v2(word(5)),
    "a wrong one in order": lambda d: d.cuMemFreeAsync(word(5), None),
    "no array to destroy": lambda d: d.cuArrayDestroy(None),
    "no mipmaps to destroy": lambda d: d.cuMipmappedArrayDestroy(None),
    "nothing to release": lambda d: d.cuMemRelease(word(0)),
    "nothing to map": lambda d: d.cuMemMap(word(0), SIZE(0), SIZE(0), word(0), word(0)),
    "nothing to unmap": lambda d: d.cuMemUnmap(word(0), SIZE(0)),
    "nothing to retain": lambda d: d.cuMemRetainAllocationHandle(out, None),
    "nothing to import": lambda d: d.cuMemImportFromShareableHandle(out, None, 1),
    "nothing to export": lambda d: d.cuMemExportToShareableHandle(None, word(0), 1, word(0)),
    "team of what": lambda d: d.cuMulticastCreate(None, None),
    "no team to leave": lambda d: d.cuMulticastUnbind(word(0), NO_DEVICE, SIZE(0), SIZE(0)),
    "no tiles": lambda d: d.cuMemMapArrayAsync(None, 1, None),
    "no graph to make": lambda d: d.cuGraphInstantiateWithFlags(None, None, word(0)),
    "no graph to make with": lambda d: d.cuGraphInstantiateWithParams(None, None, None),
    "no graph to update": lambda d: d.cuGraphExecUpdate_v2(None, None, None),
    "no graph to launch": lambda d: d.cuGraphLaunch(None, None),
    "no graph to upload": lambda d: d.cuGraphUpload(None, None),
    "no graph to destroy": lambda d: d.cuGraphExecDestroy(None),
    "no device to trim": lambda d: d.cuDeviceGraphMemTrim(NO_DEVICE),
    "a wrong stream": lambda d: d.cuStreamSynchronize(wrong),
    "no event": lambda d: d.cuEventSynchronize(None),
}


def answers(of: Any) -> dict[str, int]:
    return {name: int(call(of)) for name, call in CALLS.items()}


def differences() -> dict[str, list[int]]:
    """The calls that the shim answers otherwise than the driver: both answers."""
    ours, theirs = answers(shim), answers(driver)
    return {name: [ours[name], theirs[name]] for name in CALLS if ours[name] != theirs[name]}
