"""What the driver took and nobody has measured yet: the estimate stands, and is put right."""

import pytest

from gpumanager.limits.overhead import ASSUMED
from gpumanager.units import GIB, MIB
from tests.native.measured_node import CLIENT, CONTEXT, LIMIT, NAME, MeasuredNode
from vcuda_shim._shim import lib

pytestmark = pytest.mark.namespaces


async def test_without_an_answer_the_estimate_stands_and_nothing_hangs(
    measured: MeasuredNode,
) -> None:
    await measured.run("make()")  # so that the size of a context is known
    container = await measured.container()
    script = f"""
driver.cuInit(0)
pause()
begun = time.monotonic()
create()
first = time.monotonic() - begun
before = waits()
for _ in range(200):
    memory(driver)
seen, calls = memory(driver)[0], waits() - before
pause()
create()
def is_exact():
    assert driver.cuModuleUnload(load(0)) == SUCCESS
    return memory(driver)[0] == {LIMIT - CONTEXT - CONTEXT // 4}
tell(first=first, seen=seen, calls=calls, back=soon(is_exact, 2))
"""
    program = container.begin(CLIENT + script)
    await program.pauses()
    await measured.manager.stop()
    await program.pauses()
    measured.manager = measured.new_manager()
    await measured.container()
    told = await program.ends()

    assert told["seen"] == LIMIT - CONTEXT
    assert told["back"]  # once it did something: under an idle program free memory does not grow
    assert told["first"] < 8  # of which it waits one
    assert told["calls"] < 10  # times that one of two hundred waits


async def test_where_the_driver_does_not_tell_the_estimate_stands(measured: MeasuredNode) -> None:
    await measured.run("make()")
    measured.meter.fails = True

    told = await measured.run("make(); tell(free=memory(driver)[0])")

    assert told["free"] == LIMIT - CONTEXT


@pytest.mark.parametrize("way", ["create(); create()", "retain(); create()", "behind_the_shim()"])
async def test_contexts_of_a_process_that_is_never_listed_are_charged_as_assumed(
    measured: MeasuredNode, way: str
) -> None:
    measured.meter.shift = 1 << 22

    told = await measured.run(f"{way}; tell(free=memory(driver)[0])")

    assert told["free"] == LIMIT - way.count("()") * ASSUMED


async def test_the_limit_holds_for_a_process_that_is_never_listed(measured: MeasuredNode) -> None:
    measured.meter.shift = 1 << 22

    told = await measured.run(
        f"""
create()
while allocate(driver, {64 * MIB})[0] == 0:
    pass
tell(free=memory(driver)[0])
""",
        memory=GIB,
    )

    assert told["free"] < 64 * MIB
    assert measured.account().bytes_peak <= GIB


async def test_a_context_that_may_be_too_large_is_refused(measured: MeasuredNode) -> None:
    measured.meter.shift = 1 << 22

    told = await measured.run("tell(result=try_create()[0])", memory=ASSUMED - MIB)

    assert told == {"result": 2}
    assert measured.account().bytes_now == 0


async def test_a_regular_measurement_puts_an_estimate_right(measured: MeasuredNode) -> None:
    await measured.run("make()")
    container = await measured.container()
    measured.meter.fails = True
    program = container.begin(
        CLIENT
        + f"""
create(); create()
seen = memory(driver)[0]
pause()
idle = memory(driver)[0]
def is_exact():
    assert driver.cuModuleUnload(load(0)) == SUCCESS
    return memory(driver)[0] == {LIMIT - CONTEXT - CONTEXT // 4}
tell(seen=seen, idle=idle, exact=soon(is_exact, 2))
"""
    )
    await program.pauses()
    estimated = measured.held()
    (process,) = measured.manager.usage(NAME).processes
    measured.meter.fails = False
    await measured.manager.measure()
    await measured.manager.measure()
    told = await program.ends()

    assert estimated == 2 * CONTEXT
    assert process.degraded == lib.VCUDA_DEGRADED_MEASURE
    assert told["seen"] == LIMIT - 2 * CONTEXT
    assert told["idle"] == told["seen"]  # free memory does not grow under an idle program
    assert told["exact"]  # once it did something


async def test_an_unhooked_context_is_noticed_at_the_first_look_at_the_memory(
    measured: MeasuredNode,
) -> None:
    await measured.run("make()")

    told = await measured.run(
        """
behind_the_shim()
tell(free=memory(driver)[0])
"""
    )

    assert told["free"] == LIMIT - CONTEXT


async def test_an_unhooked_context_is_noticed_at_the_first_allocation(
    measured: MeasuredNode,
) -> None:
    told = await measured.run(
        f"behind_the_shim(); tell(result=allocate(driver, {LIMIT - CONTEXT + 1})[0])"
    )

    assert told == {"result": 2}
    assert measured.account().bytes_peak == CONTEXT
