"""Each condition of a check of `make gpu-check` is one that can fail, and is then named."""

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from gpu_check import judge
from gpu_check.evidence import Evidence
from gpu_check.outcome import Finding, Verdict

MIB, GIB = 1 << 20, 1 << 30
LIMIT = 3072 * MIB


def evidence(**told: Any) -> Evidence:
    return Evidence(
        told={"shim": True, **told},
        limit=LIMIT,
        peak=LIMIT,
        denied=3,
        launches=7,
        charged_ns=500_000_000,
        processes=3,
        degraded=frozenset(),
        driver=LIMIT,
        gpu=LIMIT,
    )


def told(seen: Evidence, /, **other: Any) -> Evidence:
    return replace(seen, told={**seen.told, **other})


VIEWS = {
    "cuMemGetInfo": {"total": LIMIT, "free": LIMIT - 700 * MIB},
    "cuDeviceTotalMem": {"total": LIMIT},
    "nvidia-smi": {"total": LIMIT, "used": 701 * MIB},
}

EXACT = evidence(answers=[2, 2, 2, 2], held=LIMIT, left=0, total=LIMIT)
FILLED = evidence(refused=True, alive=True, held=LIMIT)
SHARED = evidence(refused=True, alive=True, held=[GIB, GIB, GIB])
SEEN = evidence(held=256 * MIB, seen=VIEWS)
GRAPHS = evidence(worst=1e-6, replays=50, busy_s=0.5)
TRITON = evidence(same=True, triton="3", busy_s=0.5)
FORKED = evidence(children=[0, 0], parent=0, after=[0, 0])
ODD = evidence(refused=True, refusals=0, tries=2600, held=LIMIT)
MANAGED = evidence(refused=True, managed=768 * MIB, held=LIMIT)
IMPORTED = evidence(total=1500 * MIB, before=900 * MIB, after=899 * MIB, size=512 * MIB)
WORKS = evidence(busy_s=0.5)
WORKS_BARE: dict[str, Any] = {"busy_s": 0.5}
FREED = evidence(size=GIB, before=3 * GIB, during=GIB, after=3 * GIB, freed_s=0.3, again=True)
FREE = {"context": LIMIT - 400 * MIB, "measured": LIMIT - 410 * MIB}
TAKEN = replace(evidence(total=LIMIT, free=FREE), driver=408 * MIB)
ANSWERS = {"cudaFree": 0, "cudaLaunchKernel": 0, "cudaMalloc": 0}
MET = evidence(results=ANSWERS, held=2 * GIB, refused=2, busy_s=0.5)

Judge = Callable[[Evidence], Finding]


def met(seen: Evidence) -> Finding:
    """In a room with a limit of its time."""
    return judge.cell("99 %", seen.told, seen, None, whole=False)


def works(seen: Evidence) -> Finding:
    """A driver that has it without the shim."""
    return judge.works(WORKS_BARE, seen)


ASYNC = told(FILLED, allocator="cudaMallocAsync")
by_async = judge.filled_by("cudaMallocAsync")

GOOD: list[tuple[Judge, Evidence]] = [
    (met, MET),
    (judge.freed, FREED),
    (judge.charged_for_the_driver, TAKEN),
    (by_async, ASYNC),
    (judge.exact, EXACT),
    (judge.filled, FILLED),
    (judge.shared, SHARED),
    (judge.consistent, SEEN),
    (judge.graphs, GRAPHS),
    (judge.triton, TRITON),
    (judge.forked, FORKED),
    (judge.odd, ODD),
    (judge.managed, MANAGED),
    (judge.imported, IMPORTED),
    (works, WORKS),
]


@pytest.mark.parametrize(("judged", "seen"), GOOD)
def test_what_is_as_it_should_be_passes(judged: Judge, seen: Evidence) -> None:
    assert judged(seen).verdict is Verdict.PASS


@pytest.mark.parametrize(("judged", "seen"), GOOD)
def test_a_program_that_went_around_the_shim_proves_nothing(judged: Judge, seen: Evidence) -> None:
    around = replace(seen, told={**seen.told, "shim": False})
    silent = replace(seen, peak=0, launches=0)

    for bad in (around, silent):
        found = judged(bad)
        assert found.verdict is Verdict.FAIL
        assert "not so: the shim is in the program" in found.said


def views(**fields: int) -> Evidence:
    return told(SEEN, seen={**VIEWS, "NVML": fields})


BAD: list[tuple[Judge, Evidence, str]] = [
    (met, told(MET, worst=0.1), "its results are right"),
    (met, told(MET, held=0), "it had some memory"),
    (met, told(MET, refused=0), "refused as out of memory (2)"),
    (met, told(MET, results=ANSWERS | {"cudaMalloc": 103}), "(cudaMalloc answers 103)"),
    (met, replace(MET, peak=LIMIT + 17 * MIB), "never over the limit"),
    (met, replace(MET, peak=2 * GIB), "could be filled"),
    (met, replace(told(MET, held=GIB + 2), peak=GIB + 1, limit=GIB), "is in the books"),
    (met, replace(MET, charged_ns=1), "is the time that the GPU was busy"),
    (met, replace(MET, charged_ns=GIB), "is the time that the GPU was busy"),
    (met, replace(MET, driver=LIMIT + 17 * MIB), "the driver itself"),
    (judge.freed, told(FREED, freed_s=3.0), "free again within a second"),
    (judge.freed, told(FREED, after=GIB), "free again within a second"),
    (judge.freed, told(FREED, again=False), "can be had again"),
    (judge.freed, told(FREED, during=3 * GIB, after=4 * GIB), "was charged"),
    (judge.charged_for_the_driver, replace(TAKEN, driver=500 * MIB), "driver takes is charged"),
    (judge.charged_for_the_driver, replace(TAKEN, driver=300 * MIB), "no more than that"),
    (judge.exact, told(EXACT, answers=[2, 2, 999, 2]), "CUDA_ERROR_OUT_OF_MEMORY"),
    (judge.exact, told(EXACT, answers=[]), "CUDA_ERROR_OUT_OF_MEMORY"),
    (judge.exact, replace(EXACT, peak=LIMIT + 17 * MIB), "never over the limit"),
    (judge.exact, told(EXACT, left=3 * MIB), "nothing is left"),
    (judge.exact, told(EXACT, answers=[2, 2]), "each kind of piece was refused"),
    (judge.exact, told(EXACT, held=LIMIT + 17 * MIB), "never over the limit"),
    (judge.exact, replace(EXACT, driver=LIMIT + 17 * MIB), "the driver itself"),
    (judge.exact, replace(EXACT, degraded=frozenset({"entry"})), "is not impaired (entry)"),
    (judge.filled, told(FILLED, refused=False), "refused as out of memory"),
    (judge.filled, replace(FILLED, peak=LIMIT + 17 * MIB), "never over the limit"),
    (judge.filled, replace(FILLED, peak=LIMIT // 2), "could be filled"),
    (judge.filled, told(FILLED, alive=False), "lives on"),
    (judge.shared, replace(SHARED, processes=2), "knows all processes"),
    (judge.shared, told(SHARED, refused=False), "refused as out of memory"),
    (judge.consistent, views(total=LIMIT + MIB), "(NVML differ)"),
    (judge.consistent, told(SEEN, held=900 * MIB), "is in all views"),
    (judge.consistent, views(total=LIMIT, used=800 * MIB), "agree"),
    (judge.graphs, told(GRAPHS, worst=0.02), "replay's result"),
    (judge.graphs, told(GRAPHS, worst=math.nan), "replay's result"),
    (judge.graphs, replace(GRAPHS, charged_ns=1), "is the time that the GPU was busy"),
    (judge.triton, told(TRITON, same=False), "sum is right"),
    (judge.triton, replace(TRITON, charged_ns=1), "is the time that the GPU was busy"),
    (judge.forked, told(FORKED, children=[0, 1]), "before CUDA began"),
    (judge.forked, told(FORKED, parent=1), "parent"),
    (judge.forked, told(FORKED, after=[-9, 0]), "end in order"),
    (judge.odd, told(ODD, refused=False), "refused as out of memory"),
    (judge.odd, told(ODD, refusals=5), "can be had again at once"),
    (judge.odd, replace(ODD, driver=LIMIT + 2400 * MIB), "the driver itself"),
    (judge.managed, told(MANAGED, refused=False), "refused as out of memory"),
    (judge.managed, replace(MANAGED, gpu=LIMIT + 500 * MIB), "hides nothing"),
    (judge.imported, told(IMPORTED, after=388 * MIB), "is not charged for it"),
    (judge.imported, told(IMPORTED, total=GIB), "its maker is charged"),
    (works, replace(WORKS, charged_ns=1), "is the time that the GPU was busy"),
    (works, replace(WORKS, charged_ns=GIB), "is the time that the GPU was busy"),
    (judge.consistent, told(SEEN, nvidia_smi_failed="exit status 9"), "nvidia-smi works"),
]


@pytest.mark.parametrize(("judged", "seen", "named"), BAD)
def test_what_is_not_as_it_should_be_fails_and_is_named(
    judged: Judge, seen: Evidence, named: str
) -> None:
    found = judged(seen)

    assert found.verdict is Verdict.FAIL
    assert found.said.count("not so: ") == 1
    assert named in found.said


@pytest.mark.parametrize(
    ("judged", "seen", "said"),
    [
        (judge.exact, replace(EXACT, driver=None), "the driver names no processes here"),
        pytest.param(
            judge.exact,
            replace(EXACT, peak=LIMIT + 9 * MIB, driver=LIMIT + 9 * MIB),
            "",
            id="slabs and page tables",
        ),
        (judge.shared, replace(SHARED, processes=0, driver=None), ""),
    ],
)
def test_what_is_the_drivers_affair_is_no_failure(judged: Judge, seen: Evidence, said: str) -> None:
    found = judged(seen)

    assert found.verdict is Verdict.PASS
    assert said in found.said


def test_what_a_driver_lacks_is_left_out() -> None:
    without = told(WORKS, lacking="no green context here")

    lacking = judge.works(without.told, without)

    assert (lacking.verdict, lacking.said) == (Verdict.ABSENT, "no green context here")
    assert works(without).verdict is Verdict.FAIL


def test_another_allocator_than_the_one_asked_for_proves_nothing() -> None:
    assert by_async(told(FILLED, allocator="native")).verdict is Verdict.LOST


@pytest.mark.parametrize(
    ("name", "changed", "verdict"),
    [
        ("bare", {"shim": False, "refused": 0}, Verdict.PASS),
        ("bare", {"shim": True, "refused": 0}, Verdict.FAIL),
        ("no allocation", {"shim": True, "refused": 0}, Verdict.PASS),
        ("no allocation", {"shim": False, "refused": 0}, Verdict.FAIL),
        ("no allocation", {"shim": True, "refused": 2}, Verdict.FAIL),
        ("bare", {"shim": False, "refused": 0, "results": {"cudaLaunchKernel": -1}}, Verdict.LOST),
    ],
)
def test_a_program_without_a_limit_is_refused_nothing(
    name: str, changed: dict[str, Any], verdict: Verdict
) -> None:
    assert judge.cell(name, {**MET.told, **changed}, None, None, whole=False).verdict is verdict


def test_a_whole_gpu_is_not_paid_for() -> None:
    free = replace(MET, charged_ns=0)

    assert judge.cell("100 %", free.told, free, None, whole=True).verdict is Verdict.PASS


def test_a_program_that_does_not_come_to_its_end_fails_and_is_quoted() -> None:
    found = judge.cell("99 %", {}, None, "runtime: ended by SIGSEGV", whole=False)

    assert (found.verdict, found.said) == (Verdict.FAIL, "runtime: ended by SIGSEGV")
    assert judge.refused_to_run({}, found.said)
    assert judge.refused_to_run({"results": {"cudaFree": 103}}, "")
    assert not judge.refused_to_run({"results": {"cudaFree": 0, "cudaLaunchKernel": -1}}, "x")


def test_on_a_gpu_that_others_use_nothing_can_be_measured() -> None:
    assert judge.idle(0, 2).verdict is Verdict.PASS
    busy = judge.idle(40, 1)
    assert busy.verdict is judge.idle(None, 0).verdict is Verdict.LOST
    assert "40 % busy" in busy.said


def test_bytes_beyond_whole_mib_are_shown() -> None:
    assert judge.mib(3 * MIB) == "3 MiB"
    assert judge.mib(3 * MIB + 5) == "3 MiB + 5 B"
