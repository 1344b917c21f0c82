"""What a program is told of its memory, by whatever it may ask, after each kind of allocation.

Runs in a container: by plain ctypes on both of its libraries, and on the driver behind the shim.
"""

import ctypes
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tests.native.programs import array_words as aw
from tests.native.programs import nvml_client as nc
from tests.native.programs import pool_client as pc
from tests.native.programs import virtual_client as vm

cuda, real = vm.cuda, ctypes.CDLL("libvcuda-real.so.1")
nvml = ctypes.CDLL("libnvidia-ml.so.1")
PAGE, U64, SIZE, ULONG = vm.PAGE, vm.U64, vm.SIZE, ctypes.c_ulonglong


class Memory(ctypes.Structure):
    """nvmlMemory_t, and in the same order nvmlBAR1Memory_t."""

    _fields_ = (("total", ULONG), ("free", ULONG), ("used", ULONG))


class LongerMemory(ctypes.Structure):
    _fields_ = (
        ("version", ctypes.c_uint),
        ("total", ULONG),
        ("reserved", ULONG),
        ("free", ULONG),
        ("used", ULONG),
    )


@dataclass(frozen=True, slots=True)
class Figures:
    """totals, used: as each says who is asked. truth: what the driver's GPU has given out."""

    truth: int
    totals: dict[str, int]
    used: dict[str, int]
    window: tuple[int, int, int]

    def wrong(self, limit: int) -> dict[str, object]:
        """What does not agree with the truth, or goes beyond the limit."""
        total, free, used = self.window
        sound = total <= limit and used <= self.truth and free + used == total
        wrong: dict[str, object] = {} if sound else {"window": self.window}
        wrong |= {name: of for name, of in self.totals.items() if of != limit}
        return wrong | {
            name: [of, self.truth] for name, of in self.used.items() if of != self.truth
        }


def device() -> ctypes.c_void_p:
    found = ctypes.c_void_p()
    assert nvml.nvmlInit_v2() == nvml.nvmlDeviceGetHandleByIndex_v2(0, ctypes.byref(found)) == 0
    return found


def of_management() -> tuple[dict[str, int], dict[str, int], tuple[int, int, int]]:
    asked, memory, longer, window = device(), Memory(), LongerMemory(40 | 2 << 24), Memory()
    for name, answer in (
        ("MemoryInfo", memory),
        ("MemoryInfo_v2", longer),
        ("BAR1MemoryInfo", window),
    ):
        assert getattr(nvml, f"nvmlDeviceGet{name}")(asked, ctypes.byref(answer)) == 0
    used = {"NVML": memory.used, "NVML v2": longer.used}
    used |= {"NVML not free": memory.total - memory.free}
    used |= {"NVML v2 not free": longer.total - longer.free - longer.reserved}
    for version in nc.VERSIONS:
        listed = nc.processes(nvml, nc.COMPUTE, version, asked)[3]
        used[f"processes{version}"] = sum(held for _, held in listed)
    used["details"] = sum(held for _, held in nc.details(nvml, nc.COMPUTE, asked)[3])
    totals = {"NVML total": memory.total, "NVML v2 total": longer.total}
    return totals, used, (window.total, window.free, window.used)


def of_driver() -> tuple[dict[str, int], dict[str, int]]:
    totals: dict[str, int] = {}
    used: dict[str, int] = {}
    for version, kind in (("", ctypes.c_uint), ("_v2", SIZE)):
        left, total, whole = kind(), kind(), kind()
        ask = getattr(cuda, f"cuMemGetInfo{version}"), getattr(cuda, f"cuDeviceTotalMem{version}")
        assert ask[0](ctypes.byref(left), ctypes.byref(total)) == 0
        assert ask[1](ctypes.byref(whole), 0) == 0
        used[f"CUDA{version}"] = total.value - left.value
        totals |= {f"CUDA{version} total": total.value, f"device{version}": whole.value}
    return totals, used


def look() -> Figures:
    """NVML first: nobody has brought the books up to date for it."""
    totals, used, window = of_management()
    more_totals, more_used = of_driver()
    return Figures(vm.figures(real)[0], totals | more_totals, used | more_used, window)


def had(name: str, *arguments: object) -> int:
    """The address that a function gives."""
    address = U64()
    code = getattr(cuda, name)(ctypes.byref(address), *arguments)
    assert code == 0, (name, code)
    return address.value


def freed(name: str, *more: None) -> Callable[[int], None]:
    kind = ctypes.c_uint if name == "cuMemFree" else U64

    def give(address: int) -> None:
        assert getattr(cuda, name)(kind(address), *more) == 0

    return give


def pooled(name: str, *, own: bool = False) -> int:
    pool = ctypes.c_void_p()
    if own:
        wanted = pc.PoolProps(1, 0, pc.ON_DEVICE, 0, None, 0)
        assert cuda.cuMemPoolCreate(ctypes.byref(pool), ctypes.byref(wanted)) == 0
    else:
        assert cuda.cuDeviceGetMemPool(ctypes.byref(pool), 0) == 0
    address = had(name, SIZE(PAGE + 1), pool, None)
    assert not own or cuda.cuMemPoolDestroy(pool) == 0  # ends with what is in it
    return address


def mapped() -> int:
    at = vm.reserve(3 * PAGE)
    assert vm.segment(at, 3 * PAGE) == 0
    return at


def arrayed(form: str) -> tuple[Callable[[], Any], Callable[[Any], None]]:
    def make() -> Any:
        code, array = aw.create(cuda, 300, 200, form=form, levels=2)
        assert code == 0
        return array

    def destroy(array: Any) -> None:
        assert aw.destroy(cuda, array, form) == 0

    return make, destroy


ROWS, OLD_ROWS = ctypes.byref(SIZE()), ctypes.byref(ctypes.c_uint())
FREE, LATER = freed("cuMemFree_v2"), freed("cuMemFreeAsync", None)
KINDS: dict[str, tuple[Callable[[], Any], Callable[[Any], Any]]] = {
    "plain": (lambda: had("cuMemAlloc_v2", SIZE(3 * PAGE + 1)), FREE),
    "plain, freed in order": (lambda: had("cuMemAlloc_v2", SIZE(5)), LATER),
    "old": (lambda: had("cuMemAlloc", PAGE), freed("cuMemFree")),
    "managed": (lambda: had("cuMemAllocManaged", SIZE(7), 1), FREE),
    "rows": (lambda: had("cuMemAllocPitch_v2", ROWS, SIZE(777), SIZE(33), 4), FREE),
    "old rows": (lambda: had("cuMemAllocPitch", OLD_ROWS, 777, 33, 4), freed("cuMemFree")),
    "in order": (lambda: had("cuMemAllocAsync", SIZE(5), None), LATER),
    "in order, freed at once": (lambda: had("cuMemAllocAsync", SIZE(5), None), FREE),
    "in a thread's order": (
        lambda: had("cuMemAllocAsync_ptsz", SIZE(5), None),
        freed("cuMemFreeAsync_ptsz", None),
    ),
    "of the pool": (lambda: pooled("cuMemAllocFromPoolAsync"), LATER),
    "of an own pool": (lambda: pooled("cuMemAllocFromPoolAsync_ptsz", own=True), LATER),
    "physical": (lambda: vm.create(3 * PAGE)[1], vm.release),
    "mapped": (mapped, lambda at: vm.unmap(at, 3 * PAGE)),
    **{form: arrayed(form) for form in aw.FORMS},
}


def history(limit: int) -> dict[str, object]:
    """Take and give each kind. What was wrong, by kind; the others are {}."""
    wrong: dict[str, object] = {}
    for name, (take, give) in KINDS.items():
        thing = take()
        taken = look()
        give(thing)
        given = look()
        assert cuda.cuCtxSynchronize() == 0
        waited = look()
        wrong[name] = [each.wrong(limit) for each in (taken, given, waited) if each.wrong(limit)]
        assert taken.truth > waited.truth == 0, name
    return wrong
