"""The memory limit on a driver that is as unkind as real ones (page_limits.py has the tables)."""

from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from gpumanager.units import KIB, MIB
from tests.native.measured_node import CLIENT, CONTEXT, Start, measured_each
from tests.native.shim.memory.page_limits import (
    LIMIT,
    MEASURE_SECONDS,
    MEASURED,
    UNKIND,
    beside_managed,
    filled,
)
from tests.native.sim_box import PAGE, PAGED

pytestmark = pytest.mark.namespaces


@pytest.fixture
async def start(work: Path) -> AsyncIterator[Start]:
    async with measured_each(work, MEASURE_SECONDS) as begin:
        yield begin


@pytest.mark.parametrize("size", [576 * KIB, 1152 * KIB, 2112 * KIB])
async def test_a_limit_holds_for_pieces_of_any_size_and_all_of_it_comes_back(
    start: Start, size: int
) -> None:
    found = await filled(start(UNKIND), size)

    assert LIMIT - 2 * PAGE <= found.peak <= LIMIT
    assert found.refusals == 0


@pytest.mark.parametrize("hides", [True, False])
async def test_managed_memory_does_not_hide_the_contexts_own(start: Start, *, hides: bool) -> None:
    measured = start(replace(UNKIND, hides_managed=hides))

    peak = await beside_managed(measured, 1024 * MIB)

    assert LIMIT - 32 * MIB <= peak <= LIMIT


IMPORTER = """
import subprocess, sys
from tests.native.programs import virtual_client as vm
words = '''
import sys
from tests.native.programs import virtual_client as vm
from tests.native.programs.overhead_client import *
from tests.native.programs.shim_client import tell
make()
before = memory(driver)[0]
code, address = vm.ipc_open(sys.argv[1])
assert code == 0
time.sleep({twice})
assert driver.cuModuleUnload(load(0)) == SUCCESS
seen, mine = memory(driver)[0], allocate(driver, {mine})[0]
assert vm.ipc_close(address) == 0
tell(took=before - seen, mine=mine)
'''
make()
result, address = allocate(driver, {shared})
code, handle = vm.ipc_handle(address)
assert (result, code) == (0, 0)
child = subprocess.run([sys.executable, "-c", words, handle], text=True, capture_output=True)
assert child.returncode == 0, child.stderr
print(child.stdout, end="")
"""


@pytest.mark.parametrize("counts", [True, False])
async def test_memory_of_another_process_is_not_charged_twice(
    start: Start, *, counts: bool
) -> None:
    """Whether or not the driver counts it for both."""
    measured = start(replace(PAGED, counts_imports=counts))
    shared = 1024 * MIB
    room = LIMIT - shared - 2 * CONTEXT - 4 * PAGE
    script = IMPORTER.replace("{shared}", str(shared)).replace("{mine}", str(room))
    script = script.replace("{twice}", str(2 * MEASURED))

    told = await (await measured.container(LIMIT)).run(CLIENT + script)

    assert told["mine"] == 0
    assert told["took"] <= PAGE  # where nobody knows, what a module had may seem to be there still


async def test_code_that_is_not_loaded_yet_needs_no_room(start: Start) -> None:
    """Its text is longer than what is left; nothing of it is taken before a launch."""
    measured = start(PAGED)
    await measured.run("make()")
    container = await measured.container(CONTEXT + 64 * MIB)
    script = f"""
make()
text = ptx(0) + b" " * {8 * MIB}
assert allocate(driver, {60 * MIB})[0] == SUCCESS
tell(loaded=try_load_image(text)[0], free=memory(driver)[0])
"""

    lazy = await container.run(CLIENT + script, CUDA_MODULE_LOADING="LAZY")
    eager = await container.run(CLIENT + script)

    assert lazy == {"loaded": 0, "free": 4 * MIB}
    assert eager == {"loaded": 2, "free": 4 * MIB}


async def test_free_memory_does_not_grow_under_a_program_that_does_nothing(start: Start) -> None:
    """What it was told by estimate, while nobody could measure, stands until it does something."""
    measured = start(PAGED)
    await measured.run("make()")  # the size of a context is known
    container = await measured.container()
    places = {name: measured.work / name for name in ("begun", "away", "seen", "back")}
    program = container.begin(
        CLIENT
        + """
create()
pause()
create()
first = memory(driver)[0]
pause()
time.sleep(1.2)
later = [memory(driver)[0] for _ in range(50)]
tell(grew=max(later) > first)
"""
    )
    await program.pauses()
    measured.meter.fails = True
    places["away"].touch()
    await program.pauses()
    held = measured.held()
    measured.meter.fails = False
    await measured.manager.measure()
    await measured.manager.measure()
    places["back"].touch()
    told = await program.ends()

    assert held == 2 * CONTEXT  # the second takes a quarter of that, but nobody had seen it
    assert not told["grew"]
