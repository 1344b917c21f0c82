"""Green contexts on the simulated driver: 40 SMs of compute capability 7.5."""

from typing import Any

from cuda.bindings import driver as cu

from tests.native.programs.graph_client import INVALID, MIB, device, done, refused, stream
from tests.native.programs.stream_client import *
from tests.native.sim.program import on
from tests.native.sim_box import SimBox

MACHINE = {"cuda_version": 12050}
SM = cu.CUdevResourceType.CU_DEV_RESOURCE_TYPE_SM
CONFIGURATION = "CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION"


def whole() -> Any:
    return done(cu.cuDeviceGetDevResource(device, SM))


def split(count: int, least: int, flags: int = 0, of: Any = None) -> Any:
    return cu.cuDevSmResourceSplitByCount(count, of or whole(), flags, least)


def described(*parts: Any) -> Any:
    return cu.cuDevResourceGenerateDesc(list(parts), len(parts))


def green(*parts: Any) -> Any:
    return done(cu.cuGreenCtxCreate(done(described(*parts)), device, 1))


def part(sms: int) -> Any:
    return done(split(1, sms))[0][0]


def in_green(context: Any) -> Any:
    return done(cu.cuGreenCtxStreamCreate(context, 1, 0))


def test_sms_are_split_by_the_steps_of_the_architecture() -> None:
    assert whole().sm.smCount == 40
    for count, least, sizes, left in (
        (9, 0, [2] * 9, 22),
        (1, 3, [4], 36),
        (2, 16, [16, 16], 8),
        (9, 16, [16, 16], 8),
    ):
        groups, made, rest = done(split(count, least))
        assert [group.sm.smCount for group in groups[:made]] == sizes
        assert rest.sm.smCount == left


@on(capability=8)
@on(capability=9)
def test_a_newer_architecture_has_larger_steps(box: SimBox) -> None:
    least = {8: 4, 9: 8}[box.machine.models["T4"].compute_capability[0]]

    groups, _, rest = done(split(1, 3))

    assert (groups[0].sm.smCount, rest.sm.smCount) == (least, 40 - least)


def test_what_cannot_be_split_or_joined_is_refused() -> None:
    assert refused(split(1, 41)) == refused(split(1, 8, 2)) == INVALID
    assert refused(split(1, 2, 0, part(8))) == CONFIGURATION
    one, other = part(8), part(8)
    assert refused(described(one, other)) == CONFIGURATION
    of_one = done(described(one))
    assert refused(cu.cuGreenCtxCreate(of_one, device, 0)) == INVALID
    assert refused(cu.cuGreenCtxCreate(of_one, 1, 1)) == INVALID
    assert refused(cu.cuGreenCtxStreamCreate(green(one), 0, 0)) == INVALID


def test_kernels_of_a_part_have_no_more_sms_than_it() -> None:
    groups, _, rest = done(split(1, 10))
    small, large = in_green(green(groups[0])), in_green(green(rest))
    begin = hold([small, large])
    busy(small, 10, 5)  # fits
    first = mark(small)
    busy(small, 10, 40)  # four times as long
    busy(large, 10, 40)  # 30 SMs, beside the other

    assert since(begin, first, mark(small), mark(large)) == [10, 50, 13.3333]


def test_a_green_context_is_current_and_its_memory_is_the_primary_contexts() -> None:
    primary, context = done(cu.cuCtxGetCurrent()), green(part(10))
    form = done(cu.cuCtxFromGreenCtx(context))
    cu.cuCtxSetCurrent(form)
    assert int(done(cu.cuCtxGetCurrent())) == int(form) != int(primary)
    memory = done(cu.cuMemAlloc(MIB))
    begin = hold([0])
    busy(0, 10, 40)  # the default stream is the green context's
    assert since(begin, mark(0)) == [40]

    made = done(cu.cuStreamCreate(1))
    assert int(done(cu.cuStreamGetGreenCtx(made))) == int(context)
    assert [int(one) for one in done(cu.cuStreamGetCtx_v2(made))] == [int(primary), int(context)]
    assert refused(cu.cuStreamGetCtx(in_green(context))) == "CUDA_ERROR_NOT_SUPPORTED"
    assert done(cu.cuCtxGetDevResource(form, SM)).sm.smCount == 10
    cu.cuGreenCtxDestroy(context)
    assert not int(done(cu.cuCtxGetCurrent()) or 0)
    cu.cuCtxSetCurrent(primary)
    cu.cuMemFree(memory)
    assert refused(cu.cuCtxFromGreenCtx(context)) == "CUDA_ERROR_INVALID_CONTEXT"


def test_events_of_a_context_are_of_all_its_streams() -> None:
    context = green(part(10))
    one, other, apart = in_green(context), in_green(context), new()
    begin = hold([one, other, apart])
    busy(one, 10)
    busy(other, 20)
    busy(apart, 50)
    events = [done(cu.cuEventCreate(0)) for _ in range(2)]
    cu.cuGreenCtxRecordEvent(context, events[0])
    cu.cuCtxRecordEvent(done(cu.cuCtxGetCurrent()), events[1])
    cu.cuGreenCtxWaitEvent(context, mark(apart))
    busy(one, 1)

    assert since(begin, *events, mark(one)) == [20, 50, 51]


@on(cuda_version=13040)
def test_cuda_13_numbers_green_contexts_and_tells_of_streams_what_they_may_use() -> None:
    one, other = green(part(8)), green(part(16))

    assert done(cu.cuGreenCtxGetId(one)) != done(cu.cuGreenCtxGetId(other))
    for where, sms in ((in_green(other), 16), (stream, 40)):
        assert done(cu.cuStreamGetDevResource(where, SM)).sm.smCount == sms
