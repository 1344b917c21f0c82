"""Green contexts on the simulated driver: 40 SMs of compute capability 7.5."""

from tests.native.sim_box import SimBox, machine, sim_box

GREEN = """
import ctypes
from tests.native.programs.stream_client import *
from tests.native.programs.graph_client import cu, done, refused, device, stream, MIB
SM = cu.CUdevResourceType.CU_DEV_RESOURCE_TYPE_SM
def whole():
    return done(cu.cuDeviceGetDevResource(device, SM))
def split(count, least, flags=0, of=None):
    return cu.cuDevSmResourceSplitByCount(count, of or whole(), flags, least)
def green(*parts):
    described = done(cu.cuDevResourceGenerateDesc(list(parts), len(parts)))
    return done(cu.cuGreenCtxCreate(described, device, 1))
def part(sms):
    return done(split(1, sms))[0][0]
def in_green(context):
    return done(cu.cuGreenCtxStreamCreate(context, 1, 0))
"""


def told(box: SimBox, script: str) -> list[str]:
    return box.python(GREEN + script).splitlines()


def test_sms_are_split_by_the_steps_of_the_architecture(box: SimBox) -> None:
    script = """
print(whole().sm.smCount)
for count, least in ((9, 0), (1, 3), (2, 16), (9, 16)):
    groups, made, rest = done(split(count, least))
    print([group.sm.smCount for group in groups[:made]], rest.sm.smCount)
print(done(cu.cuDevSmResourceSplitByCount(0, whole(), 0, 8))[1])
"""

    assert told(box, script)[:5] == [
        "40",
        str([2] * 9) + " 22",
        "[4] 36",
        "[16, 16] 8",
        "[16, 16] 8",
    ]
    for capability, least in ((8, 4), (9, 8)):
        with sim_box(machine(capability=capability)) as other:
            assert told(other, script)[2] == f"[{least}] {40 - least}"


def test_what_cannot_be_split_or_joined_is_refused(box: SimBox) -> None:
    out = told(
        box,
        """
print(refused(split(1, 41)), refused(split(1, 8, 2)), refused(split(1, 2, 0, part(8))))
one, other = part(8), part(8)
print(refused(cu.cuDevResourceGenerateDesc([one, other], 2)))
described = done(cu.cuDevResourceGenerateDesc([one], 1))
print(refused(cu.cuGreenCtxCreate(described, device, 0)))
print(refused(cu.cuGreenCtxCreate(described, 1, 1)))
print(refused(cu.cuGreenCtxStreamCreate(green(one), 0, 0)))
""",
    )

    invalid = "CUDA_ERROR_INVALID_VALUE"
    assert out == [
        f"{invalid} {invalid} CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION",
        "CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION",
        *[invalid] * 3,
    ]


def test_kernels_of_a_part_have_no_more_sms_than_it(box: SimBox) -> None:
    out = told(
        box,
        """
groups, _, rest = done(split(1, 10))
small, large = in_green(green(groups[0])), in_green(green(rest))
begin = hold([small, large])
busy(small, 10, 5)     # fits
first = mark(small)
busy(small, 10, 40)    # four times as long
busy(large, 10, 40)    # 30 SMs, beside the other
print(since(begin, first, mark(small), mark(large)))
""",
    )

    assert out == ["[10.0, 50.0, 13.3333]"]


def test_a_green_context_is_current_and_its_memory_is_the_primary_contexts(box: SimBox) -> None:
    out = told(
        box,
        """
primary = done(cu.cuCtxGetCurrent())
context = green(part(10))
form = done(cu.cuCtxFromGreenCtx(context))
cu.cuCtxSetCurrent(form)
print(int(done(cu.cuCtxGetCurrent())) == int(form) != int(primary))
memory = done(cu.cuMemAlloc(MIB))
begin = hold([0])
busy(0, 10, 40)  # the default stream is the green context's
end = mark(0)
done(cu.cuCtxSynchronize() + (None,))
print(round(done(cu.cuEventElapsedTime(begin, end)), 4))
made = done(cu.cuStreamCreate(1))
print(int(done(cu.cuStreamGetGreenCtx(made))) == int(context))
both = done(cu.cuStreamGetCtx_v2(made))
print(int(both[0]) == int(primary), int(both[1]) == int(context))
print(refused(cu.cuStreamGetCtx(in_green(context))))
print(done(cu.cuCtxGetDevResource(form, SM)).sm.smCount)
cu.cuGreenCtxDestroy(context)
print(done(cu.cuCtxGetCurrent()) is None or int(done(cu.cuCtxGetCurrent())))
cu.cuCtxSetCurrent(primary)
cu.cuMemFree(memory)
print(refused(cu.cuCtxFromGreenCtx(context)))
""",
    )

    assert out == [
        "True",
        "40.0",
        "True",
        "True True",
        "CUDA_ERROR_NOT_SUPPORTED",
        "10",
        "0",
        "CUDA_ERROR_INVALID_CONTEXT",
    ]


def test_events_of_a_context_are_of_all_its_streams(box: SimBox) -> None:
    out = told(
        box,
        """
context = green(part(10))
one, other, apart = in_green(context), in_green(context), new()
begin = hold([one, other, apart])
busy(one, 10), busy(other, 20), busy(apart, 50)
events = [done(cu.cuEventCreate(0)) for _ in range(2)]
cu.cuGreenCtxRecordEvent(context, events[0])
cu.cuCtxRecordEvent(done(cu.cuCtxGetCurrent()), events[1])
late = new()
cu.cuGreenCtxWaitEvent(context, mark(apart))
busy(one, 1)
print(since(begin, *events, mark(one)))
""",
    )

    assert out == ["[20.0, 50.0, 51.0]"]


def test_cuda_13_numbers_green_contexts_and_tells_of_streams_what_they_may_use() -> None:
    script = """
one, other = green(part(8)), green(part(16))
print(done(cu.cuGreenCtxGetId(one)) != done(cu.cuGreenCtxGetId(other)))
print(done(cu.cuStreamGetDevResource(in_green(other), SM)).sm.smCount)
print(done(cu.cuStreamGetDevResource(stream, SM)).sm.smCount)
"""
    with sim_box(machine(cuda_version=13040)) as newer:
        assert told(newer, script) == ["True", "16", "40"]
