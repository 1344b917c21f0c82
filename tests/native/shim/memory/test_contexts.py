"""Contexts, through the shim over the simulated driver: each is in the books with what it took."""

import pytest

from gpumanager.units import MIB
from tests.native.measured_node import CONTEXT, LIMIT, NAME, MeasuredNode

pytestmark = pytest.mark.namespaces


@pytest.mark.parametrize("variant", ["", "_v2", "_v3", "_v4"])
async def test_every_way_to_make_a_context_is_charged_and_given_back(
    measured: MeasuredNode, variant: str
) -> None:
    told = await measured.run(
        f"""
context = create({variant!r})
with_one, first = memory(driver)[0], allocate(driver, {64 * MIB})[0]
loaded = memory(driver)[0]
assert driver.cuCtxDestroy{"" if variant in ("", "_v3") else "_v2"}(context) == SUCCESS
create({variant!r})
tell(with_one=with_one, first=first, loaded=loaded, again=memory(driver)[0])
"""
    )

    free = LIMIT - CONTEXT
    assert told == {"with_one": free, "first": 0, "loaded": free - 64 * MIB, "again": free}


@pytest.mark.parametrize(
    "end",
    [
        "cuDevicePrimaryCtxRelease",
        "cuDevicePrimaryCtxRelease_v2",
        "cuDevicePrimaryCtxReset",
        "cuDevicePrimaryCtxReset_v2",
    ],
)
async def test_a_primary_context_gives_all_back_when_its_last_user_leaves(
    measured: MeasuredNode, end: str
) -> None:
    told = await measured.run(
        f"""
retain(); retain()
assert allocate(driver, {64 * MIB})[0] == SUCCESS
between = memory(driver)[0]
assert driver.{end}(0) == SUCCESS
still = memory(driver)[0] if "Release" in {end!r} else between
if "Release" in {end!r}:
    assert driver.{end}(0) == SUCCESS
retain()
tell(between=between, still=still, again=memory(driver)[0])
"""
    )

    assert told["between"] == told["still"] == LIMIT - CONTEXT - 64 * MIB
    assert told["again"] == LIMIT - CONTEXT


async def test_a_limit_below_the_known_size_of_a_context_refuses_it_untried(
    measured: MeasuredNode,
) -> None:
    await measured.run("make()")

    told = await measured.run(
        "result, context = try_create(); tell(result=result, context=context)",
        memory=CONTEXT - 1,
    )

    assert told == {"result": 2, "context": None}
    assert measured.account().bytes_peak == 0
    assert measured.manager.usage(NAME).devices[0].denied == 1


async def test_a_context_of_unknown_size_beyond_the_limit_is_undone(measured: MeasuredNode) -> None:
    told = await measured.run(
        """
first = try_create()
first_primary = try_retain()
tell(first=first, primary=first_primary)
""",
        memory=CONTEXT - 1,
    )

    assert told == {"first": [2, None], "primary": [2, None]}
    assert measured.account().bytes_now == 0


async def test_two_processes_see_each_others_contexts(measured: MeasuredNode) -> None:
    told = await measured.run(
        """
import subprocess, sys
make()
alone = memory(driver)[0]
words = "make(); print(memory(driver)[0], flush=True); input()"
clients = "from tests.native.programs.shim_client import *\\n"
clients += "from tests.native.programs.overhead_client import *\\n"
child = subprocess.Popen([sys.executable, "-c", clients + words],
                         stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
theirs = int(child.stdout.readline())
ours = memory(driver)[0]
child.communicate("\\n")
soon(lambda: memory(driver)[0] == alone)
tell(alone=alone, theirs=theirs, ours=ours, after=memory(driver)[0])
"""
    )

    both = LIMIT - 2 * CONTEXT
    assert told == {
        "alone": LIMIT - CONTEXT,
        "theirs": both,
        "ours": both,
        "after": LIMIT - CONTEXT,
    }


async def test_a_context_that_comes_with_a_green_one_is_in_the_limit(
    measured: MeasuredNode,
) -> None:
    told = await measured.run(
        """
from cuda.bindings import driver as cu
def done(answer):
    assert answer[0] == cu.CUresult.CUDA_SUCCESS, answer
    return answer[1] if len(answer) == 2 else answer[1:]
done(cu.cuInit(0) + (None,))
SM = cu.CUdevResourceType.CU_DEV_RESOURCE_TYPE_SM
whole = done(cu.cuDeviceGetDevResource(0, SM))
green = done(cu.cuGreenCtxCreate(done(cu.cuDevResourceGenerateDesc([whole], 1)), 0, 1))
done(cu.cuCtxSetCurrent(done(cu.cuCtxFromGreenCtx(green))) + (None,))
count = 0
while cu.cuMemAlloc(64 << 20)[0] == cu.CUresult.CUDA_SUCCESS:
    count += 1
tell(count=count)
"""
    )

    assert told["count"] == (LIMIT - CONTEXT) // (64 << 20)
    assert measured.account().bytes_peak <= LIMIT
