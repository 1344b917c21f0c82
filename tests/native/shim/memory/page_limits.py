"""How well a memory limit holds on a driver that takes pages of 2 MiB and hides managed memory.

    python -m tests.native.shim.memory.page_limits

Prints two tables: a program that fills its limit with pieces of some size, frees all and asks
again; and one that has managed memory beside plain memory. The simulated GPU's own account says
what was really held.
"""

import asyncio
import shutil
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from gpumanager.sim.container.process import namespaces_available
from gpumanager.units import KIB, MIB
from tests.native.measured_node import CONTEXT, MeasuredNode
from tests.native.sim_box import PAGED

MEASURE_SECONDS: Final = 0.2
MEASURED: Final = MEASURE_SECONDS + 0.5
"""After which the manager has measured once more, even on a busy machine."""
UNKIND: Final = replace(PAGED, hides_managed=True)
LIMIT: Final = 3072 * MIB
PIECES: Final = tuple(MIB * sixteenths // 16 for sixteenths in (4, 9, 16, 18, 24, 32, 33, 56))
MANAGED: Final = tuple(MIB * size for size in (0, 512, 1024, 2048))

FILL = """
def fill(size):
    held = []
    while True:
        result, address = allocate(driver, size)
        if result != SUCCESS:
            return held
        held.append(address)

def ask_again(size):
    "Refusals until so much can be had, and the seconds for which it could not."
    refused, begun = 0, time.monotonic()
    while time.monotonic() - begun < 5:
        result, address = allocate(driver, size)
        if result == SUCCESS:
            break
        refused += 1
        time.sleep(0.1)
    return refused, time.monotonic() - begun
"""


@dataclass(frozen=True, slots=True)
class Filled:
    """A program that filled its limit. peak, beyond: bytes, by the GPU's account; refusals: after
    it had freed all."""

    pieces: int
    peak: int
    refusals: int
    seconds: float

    @property
    def beyond(self) -> int:
        return max(0, self.peak - LIMIT)


async def filled(measured: MeasuredNode, size: int) -> Filled:
    told = await measured.run(
        f"""{FILL}
make()
tell(first=memory(driver))
held = fill({size})
time.sleep({MEASURED})
for address in held:
    assert free(driver, address) == SUCCESS
refused, seconds = ask_again({LIMIT} - {CONTEXT} - {32 * MIB})
tell(pieces=len(held), refused=refused, seconds=seconds)
""",
        LIMIT,
    )
    peak = measured.account().bytes_peak
    return Filled(told["pieces"], peak, told["refused"], told["seconds"])


async def beside_managed(measured: MeasuredNode, managed: int) -> int:
    """The most bytes held by a program that has so much managed memory, measured, and then fills
    its limit."""
    await measured.run(
        f"""{FILL}
make()
if {managed}:
    address = ctypes.c_uint64()
    assert driver.cuMemAllocManaged(ctypes.byref(address), ctypes.c_size_t({managed}), 1) == SUCCESS
assert soon(lambda: load(4096) and True)
memory(driver)
time.sleep({MEASURED})
fill({32 * MIB})
time.sleep({MEASURED})
fill({2 * MIB})
""",
        LIMIT,
    )
    return measured.account().bytes_peak


async def _each(work: Path, what: Any, sizes: Sequence[int]) -> list[Any]:
    found = []
    for size in sizes:
        folder = work / str(size)
        folder.mkdir(parents=True)
        measured = MeasuredNode(folder, UNKIND)
        measuring = asyncio.create_task(measured.manager.measure_every(MEASURE_SECONDS))
        try:
            found.append(await what(measured, size))
        finally:
            measuring.cancel()
            await measured.stop()
    return found


def main() -> None:
    if missing := namespaces_available():
        raise SystemExit(missing)
    work = Path(tempfile.mkdtemp(prefix="gm"))
    try:
        pieces = asyncio.run(_each(work / "fill", filled, PIECES))
        beside = asyncio.run(_each(work / "managed", beside_managed, MANAGED))
    finally:
        shutil.rmtree(work, ignore_errors=True)
    say = sys.stdout.write
    say(f"limit {LIMIT // MIB} MiB, of which a context takes {CONTEXT // MIB}\n\n")
    say("   piece  pieces  peak MiB    over  refused  for s\n")
    for size, one in zip(PIECES, pieces, strict=True):
        over, again = f"{one.beyond / LIMIT:+7.1%}", f"{one.refusals:7}  {one.seconds:5.1f}"
        say(f"{size // KIB:4} KiB  {one.pieces:6}  {one.peak / MIB:8.1f} {over}  {again}\n")
    say("\nmanaged  peak MiB    over\n")
    for size, peak in zip(MANAGED, beside, strict=True):
        say(f"{size // MIB:7}  {peak / MIB:8.1f} {max(0, peak - LIMIT) / LIMIT:+7.1%}\n")


if __name__ == "__main__":
    main()
