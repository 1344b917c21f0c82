"""What a limit on compute is worth: by the account of a simulated GPU, on the virtual clock."""

from pathlib import Path

import pytest

from gpumanager.sim.clock import NS
from tests.native.gpu_node import accounts
from tests.native.timed_gpu import STEP, TimedGpu

pytestmark = pytest.mark.namespaces

MICROSECOND, MILLISECOND = 1_000, 1_000_000
POINTS = 5


@pytest.mark.parametrize("synchronise", [False, True])
@pytest.mark.parametrize(
    ("cores", "length"),
    [(30, 2 * MILLISECOND), (50, 50 * MICROSECOND), (40, 150 * MILLISECOND)],
)
async def test_one_container_gets_the_share_it_was_promised(
    timed: TimedGpu, cores: int, length: int, *, synchronise: bool
) -> None:
    container = await timed.container("one", cores)

    await timed.run((container, f"spin_for(3, [({length}, 1)], synchronise={synchronise})"))

    assert timed.shares() == pytest.approx([cores], abs=POINTS)


async def test_kernels_of_different_lengths_are_charged_for_what_each_takes(
    timed: TimedGpu,
) -> None:
    container = await timed.container("one", 50)
    kernels = [(3 * MILLISECOND, 1), (200 * MICROSECOND, 2), (10 * MILLISECOND, 3)]

    await timed.run((container, f"spin_for(3, {kernels}, synchronise=False)"))

    assert timed.shares() == pytest.approx([50], abs=POINTS)


async def test_kernels_whose_length_varies_get_the_share(
    timed: TimedGpu,
) -> None:
    container = await timed.container("one", 30)
    kernels = [(MILLISECOND, 1), (9 * MILLISECOND, 1)]

    await timed.run((container, f"spin_for(3, {kernels}, synchronise=False)"))

    assert timed.shares() == pytest.approx([30], abs=POINTS)


async def test_two_containers_each_get_their_share_of_one_gpu(timed: TimedGpu) -> None:
    small, large = await timed.container("small", 30), await timed.container("large", 60)
    script = f"line_up()\nspin_for(5, [({2 * MILLISECOND}, 1)], synchronise=False)"

    await timed.run((small, script), (large, script))

    assert sorted(timed.shares()) == pytest.approx([30, 60], abs=POINTS)


async def test_without_a_compute_limit_nothing_is_held_back(timed: TimedGpu) -> None:
    container = await timed.container("one", 100)

    await timed.run((container, f"spin_for(1, [({2 * MILLISECOND}, 1)], synchronise=False)"))

    assert timed.shares()[0] > 95


async def test_a_share_changed_at_run_time_is_held_within_a_second(
    timed: TimedGpu, work: Path
) -> None:
    stop = work / "stop"
    container = await timed.container("one", 20)
    running = timed.start(
        container,
        f"""
driver = cuda()
function = begin(driver)
while not Path({str(stop)!r}).exists():
    spin(driver, function, {MILLISECOND})
""",
    )
    while not accounts(timed.gpu) and not running.done():
        await timed.passes(STEP)
    await timed.passes(NS)
    await timed.container("one", 80)
    await timed.passes(NS)
    before = accounts(timed.gpu)[0].busy_ns
    await timed.passes(2 * NS)
    after = accounts(timed.gpu)[0].busy_ns
    stop.touch()
    while not running.done():
        await timed.passes(STEP)
    await running

    assert 100 * (after - before) / (2 * NS) == pytest.approx(80, abs=POINTS)


LOOP = """
from tests.native.programs import launch_client as lc
lc.prepare()
begun = time.monotonic()
while time.monotonic() < begun + 2:
    for _ in range(10):
        assert lc.way({name!r}) == 0
assert lc.driver.cuCtxSynchronize() == 0
tell(seconds=time.monotonic() - begun)
"""
LOOPS = (
    "cuLaunchCooperativeKernel",
    "cuLaunchCooperativeKernelMultiDevice",
    "cuLaunchGridAsync",
    "cuGraphLaunch",
    "cuMemsetD32Async",
    "cuMemsetD2D8_v2",
    "cuMemcpyDtoDAsync_v2",
    "cuMemcpy2DAsync_v2_ptsz",
)


@pytest.mark.parametrize("name", LOOPS)
async def test_no_way_escapes_the_limit(timed: TimedGpu, name: str) -> None:
    container = await timed.container("one", 30)

    (told,) = await timed.run((container, LOOP.format(name=name)))

    (account,) = accounts(timed.gpu)
    share = 100 * account.busy_ns / (told["seconds"] * NS)
    assert share == pytest.approx(30, abs=POINTS)


SHORT_THEN_LONG = """
driver = cuda()
function = begin(driver)
memory = allocate(driver, 4096)[1]
end = time.monotonic() + 4
while time.monotonic() < end:
    for _ in range(50):
        spin(driver, function, 20_000)
    spin(driver, function, {long})
    {wait}
"""
WAITS = (
    "driver.cuCtxSynchronize()",
    "driver.cuStreamSynchronize(None)",
    "driver.cuMemcpyDtoH_v2(ctypes.create_string_buffer(64), ctypes.c_uint64(memory), 64)",
    "while driver.cuStreamQuery(None) == 600: time.sleep(0.0001)",
)


@pytest.mark.parametrize("wait", WAITS)
async def test_a_long_kernel_that_is_launched_by_credit_is_charged(
    timed: TimedGpu, wait: str
) -> None:
    container = await timed.container("one", 30)

    script = SHORT_THEN_LONG.format(wait=wait, long=50 * MILLISECOND)
    await timed.run((container, f"import time{script}"))

    assert timed.shares() == pytest.approx([30], abs=POINTS)


async def test_a_context_that_stays_ends_nothing(timed: TimedGpu) -> None:
    """Another part of the program gives back its hold on the primary context."""
    container = await timed.container("one", 30)

    await timed.run(
        (
            container,
            f"""
import time
driver = cuda()
assert driver.cuInit(0) == 0
held, module, function = (ctypes.c_void_p() for _ in range(3))
for _ in range(2):
    assert driver.cuDevicePrimaryCtxRetain(ctypes.byref(held), 0) == 0
assert driver.cuCtxSetCurrent(held) == 0
assert driver.cuModuleLoadData(ctypes.byref(module), SPIN) == 0
assert driver.cuModuleGetFunction(ctypes.byref(function), module, b"spin") == 0
end = time.monotonic() + 4
while time.monotonic() < end:
    spin(driver, function, {2 * MILLISECOND})
    assert driver.cuDevicePrimaryCtxRetain(ctypes.byref(held), 0) == 0
    assert driver.cuDevicePrimaryCtxRelease_v2(0) == 0
""",
        )
    )

    assert timed.shares() == pytest.approx([30], abs=POINTS)
