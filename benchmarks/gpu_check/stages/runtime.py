"""Does the CUDA runtime accept the shim? Its error 103 says that it does not believe its driver.

The runtime by itself, and PyTorch, each in a process: without the shim, with it and no allocation,
with all of the GPU, with half of it, and preloaded. If it fails with half of the GPU alone, hooks
are left out by halves of their families, in a build that can, until one family is to blame.
"""

import os
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import vcuda_shim
from gpu_check.bench import WORKLOADS, Bench
from gpu_check.conductor import Check
from gpu_check.outcome import CheckFailed, Finding, Verdict
from gpu_check.place import ROOMS, Place, Room, furnish
from gpu_check.process import lines_of, told
from gpu_check.stages.entries import families

SECONDS: Final = 25.0
HALF: Final = 50

UNHOOKED: Final = "VCUDA_UNHOOKED"
"""Of native/shim/cuda/entry.c, where it is built with that name: families to leave unhooked."""

TEST_BUILD: Final = "shim-unhooked"
"""Folder of that build, beside the product's."""

_FIND: Final = """
import glob, importlib.util, os, sysconfig
folders = [sysconfig.get_path("purelib"), sysconfig.get_path("platlib")]
for name in ("nvidia", "torch", "cupy"):
    found = importlib.util.find_spec(name)
    folders += list(found.submodule_search_locations or ()) if found else []
folders += glob.glob("/usr/local/cuda*/lib64")
for folder in dict.fromkeys(folders):
    for pattern in ("libcudart.so*", "*/lib/libcudart.so*", "lib/libcudart*.so*"):
        for path in sorted(glob.glob(os.path.join(folder, pattern)), reverse=True):
            print("found", os.path.realpath(path))
"""


async def found_runtime(bench: Bench) -> str | None:
    """A libcudart: the one that CUDART names, of the Python's packages, or of the toolkit."""
    if named := os.environ.get("CUDART"):
        return named
    command: list[str | Path] = [bench.python, "-c", _FIND]
    lines = await lines_of(command, os.environ, bench.log("find-cudart"), SECONDS)
    paths = [line.split(maxsplit=1)[1] for line in lines if line.startswith("found ")]
    return paths[0] if paths else None


def cells(place: Place) -> dict[str, Callable[[], Awaitable[dict[str, str]]]]:
    """Each way for a program to meet the driver, and the environment for it."""
    first = place.rooms[ROOMS[0]]

    async def limited(cores: int) -> dict[str, str]:
        return place.inside(await place.limit(cores))

    async def unmanaged() -> dict[str, str]:
        return place.inside(place.rooms[ROOMS[1]])

    async def preloaded() -> dict[str, str]:
        await place.limit(HALF)
        return place.outside() | {"LD_PRELOAD": str(first.libraries / "libcuda.so.1")}

    async def bare() -> dict[str, str]:
        return place.outside()

    return {
        "bare": bare,
        "no allocation": unmanaged,
        "100 %": lambda: limited(100),
        "50 %": lambda: limited(HALF),
        "preloaded, 50 %": preloaded,
    }


async def by_itself(bench: Bench) -> AsyncIterator[Finding]:
    place, runtime = await bench.place(), await found_runtime(bench)
    if runtime is None:
        yield Finding(Verdict.SKIP, f"no libcudart beside {bench.python} or in /usr/local/cuda")
        return
    command: list[str | Path] = [bench.python, WORKLOADS / "runtime.py", runtime]
    refused: dict[str, bool] = {}
    for name, environment in cells(place).items():
        seen = await _tried(command, await environment(), place.output(f"runtime-{name[:4]}"))
        bench.results.fact("runtime", cell=name, cudart=runtime, **seen)
        wrong = complaint(seen, shim=name != "bare")
        refused[name] = wrong is not None
        said = wrong or f"CUDA {seen['version']}: all calls answer 0"
        # A runtime that fails without the shim, too, says nothing of the shim.
        verdict = Verdict.PASS if wrong is None else _verdict(refused)
        yield Finding(verdict, said, seen, name)
    if refused["50 %"] and not refused["bare"]:
        yield await _narrowed(bench, place, command)


def _verdict(refused: Mapping[str, bool]) -> Verdict:
    return Verdict.SKIP if refused["bare"] else Verdict.FAIL


async def _tried(
    command: Sequence[str | Path], environment: Mapping[str, str], output: Path
) -> dict[str, Any]:
    """A run that fails is an answer, too."""
    try:
        return await told(command, environment, output, SECONDS)
    except CheckFailed as failed:
        return {"failed": str(failed)}


def complaint(seen: Mapping[str, Any], *, shim: bool) -> str | None:
    """What is wrong with a run; None if nothing is."""
    if "failed" in seen:
        return str(seen["failed"])
    wrong = {name: number for name, number in seen["results"].items() if number != 0}
    if wrong:
        return ", ".join(f"{name} answers {number}" for name, number in wrong.items())
    return "the shim is not in the program" if shim and not seen["shim"] else None


async def _narrowed(bench: Bench, place: Place, command: Sequence[str | Path]) -> Finding:
    """The family of hooks without which the runtime accepts the shim."""
    if not vcuda_shim.SHIM_CUDA.parent.with_name(TEST_BUILD).exists():
        return Finding(Verdict.SKIP, "no build that leaves hooks out", about="narrow")
    room = test_room(bench, place)
    await place.limit(HALF, room=room.name)

    async def fails(unhooked: Sequence[str]) -> bool:
        environment = place.inside(room) | {UNHOOKED: ",".join(unhooked)}
        seen = await _tried(command, environment, place.output("narrow"))
        bench.results.fact("runtime", cell="narrowing", unhooked=list(unhooked), **seen)
        return complaint(seen, shim=True) is not None

    suspects, runs = await narrow(families(), fails)
    said = f"{len(suspects)} families are to blame after {runs} runs: {', '.join(suspects)}"
    return Finding(Verdict.FAIL, said, {"suspects": suspects, "runs": runs}, "narrow")


def test_room(bench: Bench, place: Place) -> Room:
    """One with the build that can leave hooks out."""
    name = "narrow"
    if name not in place.rooms:
        place.rooms[name] = furnish(place.machine, bench.work, name, TEST_BUILD)
    return place.rooms[name]


async def narrow(
    suspects: Sequence[str], fails: Callable[[Sequence[str]], Awaitable[bool]]
) -> tuple[list[str], int]:
    """The smallest set that halving finds of those that must be left out for a run to succeed, and
    how many runs it took. fails: whether a run with these left out fails. All of them if even that
    does not help.
    """
    left, runs = list(suspects), 1
    if await fails(left):
        return left, runs
    width = len(left) // 2
    while width > 0:
        start = 0
        while start < len(left):
            without = left[:start] + left[start + width :]
            runs += 1
            if await fails(without):
                start += width  # some of these must be left out
            else:
                left = without
        width //= 2
    return left, runs


async def by_pytorch(bench: Bench) -> AsyncIterator[Finding]:
    place = await bench.place()
    command: list[str | Path] = [bench.python, WORKLOADS / "accepts.py"]
    for name, environment in cells(place).items():
        seen = await _tried(command, await environment(), place.output(f"torch-{name[:4]}"))
        bench.results.fact("PyTorch", cell=name, **seen)
        wrong = seen.get("failed")
        if wrong is None and name != "bare" and not seen["shim"]:
            wrong = "the shim is not in the program"
        verdict = Verdict.PASS if wrong is None else Verdict.FAIL
        yield Finding(verdict, wrong or f"computes, error {seen['worst']:.1e}", seen, name)


CHECKS: Final = (
    Check("CUDA runtime", 60, by_itself),
    Check("PyTorch", 90, by_pytorch, ("torch",)),
)
