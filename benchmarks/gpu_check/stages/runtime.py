"""Do programs of the CUDA runtime go through the hooks, and does it believe its driver (error 103)?

The runtime by itself, shared and linked in, and PyTorch, each in a process: without the shim, with
a limit, with all of the GPU, with the shim and no allocation, and preloaded. Each keeps the GPU
busy for a while and then fills its memory: the limit must refuse it, and the books must hold what
it had and took. If a limited runtime fails and a bare one does not, hooks are left out by halves of
their families, in a build that can, until one family is to blame.
"""

import os
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import vcuda_shim
from gpu_check import judge, rates
from gpu_check.bench import PROGRAMS, WORKLOADS, Bench, program
from gpu_check.conductor import Check
from gpu_check.evidence import Evidence
from gpu_check.outcome import CheckFailed, Finding, Lost, Verdict
from gpu_check.place import ROOMS, UNTHROTTLED, WHOLE, Place, Room, furnish
from gpu_check.process import lines_of, told
from gpu_check.stages.entries import families
from gpumanager.units import GIB, Bytes

Command = Sequence[str | Path]

SECONDS: Final = 25.0
LIMIT, TORCH_LIMIT = Bytes(GIB), Bytes(2 * GIB)
"""Of a program of the runtime, and of PyTorch, whose context, modules and workspaces may take most
of 1 GiB.
"""

MOST_MIB, TORCH_MOST_MIB = 2 * LIMIT >> 20, 2 * TORCH_LIMIT >> 20
"""What a program takes that nobody refuses."""

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


@dataclass(frozen=True, slots=True)
class Cell:
    """A way for a program to meet the driver. cores: percent of its allocation; None: it has none.
    environment: of a room.
    """

    name: str
    cores: int | None
    environment: Callable[[Place, Room], dict[str, str]]


def _bare(place: Place, _: Room) -> dict[str, str]:
    return place.outside()


def _preloaded(place: Place, room: Room) -> dict[str, str]:
    return place.outside() | {"LD_PRELOAD": str(room.libraries / "libcuda.so.1")}


BARE: Final = Cell("bare", None, _bare)
LIMITED: Final = Cell(f"{UNTHROTTLED} %", UNTHROTTLED, Place.inside)
OTHER_WAYS: Final = (
    Cell("no allocation", None, Place.inside),
    Cell(f"preloaded, {UNTHROTTLED} %", UNTHROTTLED, _preloaded),
)
CELLS: Final = (BARE, LIMITED, Cell("100 %", WHOLE, Place.inside), *OTHER_WAYS)


@dataclass(frozen=True, slots=True)
class Ran:
    """evidence: of a limited program. failed: it did not come to its end."""

    told: Mapping[str, Any]
    evidence: Evidence | None
    failed: str | None


async def ran(place: Place, cell: Cell, command: Command, limit: Bytes) -> Ran:
    """A program that fails is an answer, too; raises Lost where it does not end."""
    try:
        if cell.cores is None:
            surroundings = cell.environment(place, place.rooms[ROOMS[1]])
            seen = await told(command, surroundings, place.output("cell"), SECONDS)
            return Ran(seen, None, None)
        room = await place.limit(cell.cores, limit)
        evidence = await place.watch(room, command, cell.environment(place, room), SECONDS)
        return Ran(evidence.told, evidence, None)
    except CheckFailed as failed:
        return Ran({}, None, str(failed))


async def met(
    bench: Bench,
    what: str,
    command: Command,
    cells: Sequence[Cell],
    limit: Bytes = LIMIT,
) -> AsyncIterator[Finding]:
    """A finding for each cell. What fails without the shim, too, says nothing of the shim."""
    place, bare_fails = await bench.place(), False
    for cell in cells:
        try:
            seen = await ran(place, cell, command, limit)
        except Lost as lost:
            yield Finding(Verdict.LOST, str(lost), about=cell.name)
            continue
        bench.results.fact(what, cell=cell.name, failed=seen.failed, **seen.told)
        found = judge.cell(
            cell.name, seen.told, seen.evidence, seen.failed, whole=cell.cores == WHOLE
        )
        bare_fails |= cell is BARE and found.verdict is not Verdict.PASS
        if bare_fails and found.verdict is not Verdict.PASS:
            said = f"does not run here without the shim either: {found.said}"
            found = Finding(Verdict.LOST, said, found.figures, cell.name)
        yield found


async def found_runtime(bench: Bench) -> Path:
    """A libcudart: the one that CUDART names, of the Python's packages, or of the toolkit."""
    if named := os.environ.get("CUDART"):
        return Path(named)
    command: list[str | Path] = [bench.python, "-c", _FIND]
    lines = await lines_of(command, os.environ, bench.log("find-cudart"), SECONDS)
    paths = [line.split(maxsplit=1)[1] for line in lines if line.startswith("found ")]
    if not paths:
        raise Lost(f"no libcudart beside {bench.python} or in /usr/local/cuda")
    return Path(paths[0])


async def shared(bench: Bench) -> AsyncIterator[Finding]:
    command: Command = [program("runtime", bench.work), await found_runtime(bench), str(MOST_MIB)]
    found = {}
    async for finding in met(bench, "CUDA runtime", command, CELLS):
        found[finding.about] = finding
        yield finding
    limited = found[LIMITED.name]
    refused = limited.verdict is Verdict.FAIL and judge.refused_to_run(
        limited.figures, limited.said
    )
    if refused and found[BARE.name].verdict is Verdict.PASS:
        yield await _narrowed(bench, await bench.place(), command)


async def linked(bench: Bench) -> AsyncIterator[Finding]:
    """As nvcc makes programs by default."""
    if not (PROGRAMS / "runtime-static").exists():
        raise Lost("the bundle was made without a libcudart_static.a")
    command: Command = [program("runtime-static", bench.work), "-", str(MOST_MIB)]
    async for finding in met(bench, "CUDA runtime, static", command, (BARE, LIMITED)):
        yield finding


def pytorch_meets(cells: Sequence[Cell]) -> Callable[[Bench], AsyncIterator[Finding]]:
    async def run(bench: Bench) -> AsyncIterator[Finding]:
        command: Command = [bench.python, WORKLOADS / "accepts.py", str(TORCH_MOST_MIB)]
        async for finding in met(bench, "PyTorch", command, cells, TORCH_LIMIT):
            yield finding

    return run


async def shares_of_pytorch(bench: Bench) -> AsyncIterator[Finding]:
    """Kernels of hundreds of kinds, and not of one."""
    async for finding in rates.measure(await bench.place(), "torch", rates.TRAINING):
        yield finding


async def _narrowed(bench: Bench, place: Place, command: Command) -> Finding:
    """The family of hooks without which the runtime accepts the shim."""
    if not vcuda_shim.SHIM_CUDA.parent.with_name(TEST_BUILD).exists():
        return Finding(Verdict.LOST, "no build that leaves hooks out", about="narrow")
    room = furnish(place.machine, bench.work, "narrow", TEST_BUILD)
    place.rooms[room.name] = room
    await place.limit(UNTHROTTLED, LIMIT, room=room.name)

    async def fails(unhooked: Sequence[str]) -> bool:
        environment = place.inside(room) | {UNHOOKED: ",".join(unhooked)}
        try:
            seen = await told([*command[:-1], "0"], environment, place.output("narrow"), SECONDS)
        except (CheckFailed, Lost) as failed:
            seen = {"failed": str(failed)}
        bench.results.fact("narrowing", unhooked=list(unhooked), **seen)
        return judge.refused_to_run(seen, seen.get("failed", ""))

    suspects, runs = await narrow(families(), fails)
    said = f"{len(suspects)} families are to blame after {runs} runs: {', '.join(suspects)}"
    if suspects == families():
        said = "no hook is to blame: it fails with all of them left out"
    return Finding(Verdict.FAIL, said, {"suspects": suspects, "runs": runs}, "narrow")


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


CHECKS: Final = (
    Check("CUDA runtime", 50, shared),
    Check("CUDA runtime, static", 20, linked),
    Check("PyTorch", 45, pytorch_meets(CELLS[:3]), ("torch",)),
    Check("PyTorch, 30 and 60 together", 40, shares_of_pytorch, ("torch",)),
)
