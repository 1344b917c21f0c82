"""Can each check of the GPU check fail? `make gpu-bundle-selftest`.

A mutant breaks what a check looks at, while exit status and output stay plausible: a shim that
leaves a hook out, a runtime that goes past the shim, a manager that does not measure, a program
that tells less than it should. The run must then fail, or be lost, by that check's name. All on the
simulated driver, with stand-ins for what only a real GPU runs; without a mutant each check passes.

    python -m tests.gpu_check.selftest [CHECK …]
"""

import importlib
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path

import gpu_bundle
from elftools.elf.elffile import ELFFile
from gpu_check.runner import SECONDS
from gpu_check.stages.entries import VARIANT

import vcuda_shim
from tests.gpu_check.standin_bundle import (
    GPU,
    Bundle,
    Run,
    copy_of,
    make_bundle,
    run,
    run_in,
)
from tests.native.sim_box import SimBox, sim_box

NOT_SEEN = ("LOST", "FAIL")
WIDTH = 60
RUNS_AT_A_TIME = 2
TIMED = "PyTorch, 30 and 60 together"
"""Unbroken, it may fail: how large shares are depends on how fast the machine is."""


@dataclass(frozen=True, slots=True)
class Mutant:
    """broken: what is. unhooked: functions that the shim leaves to the driver. patches: a text of a
    file of the bundle, and what replaces it. filters: what sed makes of a program's output. export:
    a function that the driver has no more. load: another program uses the GPU.
    """

    check: str
    broken: str
    unhooked: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    patches: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    filters: Mapping[str, str] = field(default_factory=dict)
    export: str = ""
    load: bool = False


BYPASS = {"STANDIN_BYPASS": "1"}
LAUNCHES = ("cuLaunchKernel", "cuLaunchKernelEx", "cuGraphLaunch")
CHECK = "benchmarks/gpu_check"


OPENED = '    driver.get(ctypes.c_uint64, "cuIpcOpenMemHandle_v2", handle, LAZY_PEER_ACCESS)\n'
IN_A_CHILD = """
    __import__("os").fork() and time.sleep(600)
    driver = Driver()
    driver.alloc"""


def wrong(what: str) -> dict[str, str]:
    return {"STANDIN_WRONG": what}


def slower(engine: str) -> dict[str, tuple[str, str]]:
    """An engine whose units take longer behind the shim."""
    begins = '    def unit(self):\n        """Launch one; what to wait for."""\n'
    waits = "        __import__('time').sleep(0.2 * __import__('say').shim_loaded())\n"
    return {f"{CHECK}/workloads/engine_{engine}.py": (begins, begins + waits)}


MUTANTS = (
    Mutant("driver libraries", "the driver exports no cuMemAlloc_v2", export="cuMemAlloc_v2"),
    Mutant(
        "entry points of the driver",
        "cuGetProcAddress answers with what is no export",
        export="cuMemAllocPitch_v2",
    ),
    Mutant("entry points behind the shim", "one function keeps no hook", ("cuMemAllocManaged",)),
    Mutant("CUDA runtime", "goes past the shim", environment=BYPASS),
    Mutant(
        "CUDA runtime",
        "the manager gives half as much again",
        patches={
            f"{CHECK}/place.py": ("(cores, chosen.memory)", "(cores, chosen.memory * 3 // 2)")
        },
    ),
    Mutant("CUDA runtime, static", "goes past the shim", environment=BYPASS),
    Mutant("PyTorch", "goes past the shim", environment=BYPASS),
    Mutant("PyTorch, 30 and 60 together", "launches are not hooked", LAUNCHES),
    Mutant(
        "device attributes",
        "one attribute is another behind the shim",
        patches={
            f"{CHECK}/workloads/attributes.py": (
                "= driver.attribute(attribute)",
                "= driver.attribute(attribute) + (attribute == 16 and shim_loaded())",
            )
        },
    ),
    Mutant(
        "device attributes",
        "no attribute is told",
        patches={
            f"{CHECK}/workloads/attributes.py": ("range(1, MOST)", "range(10**6, 10**6 + MOST)")
        },
    ),
    Mutant(
        "memory that the driver takes",
        "the manager does not measure",
        patches={f"{CHECK}/place.py": ("nvml=NvmlService()", "nvml=None")},
    ),
    Mutant("memory limit, driver API", "cuMemAlloc is not hooked", ("cuMemAlloc_v2",)),
    Mutant("pieces of 1.125 MiB", "what is freed stays in the books", ("cuMemFree_v2",)),
    Mutant("managed memory", "managed memory is not charged", ("cuMemAllocManaged",)),
    Mutant(
        "memory of another process",
        "an importer is charged for it",
        patches={f"{CHECK}/workloads/importer.py": (OPENED, "    driver.allocate(SIZE)\n")},
    ),
    Mutant("cuMemAllocAsync", "pools are not hooked", ("cuMemAllocAsync",)),
    Mutant(
        "memory of a killed process",
        "its memory stays with a child",
        patches={
            f"{CHECK}/workloads/killed.py": ("    driver = Driver()\n    driver.alloc", IN_A_CHILD)
        },
    ),
    Mutant("green context", "its launches are not hooked", LAUNCHES),
    Mutant("dependent launches", "they are not hooked", LAUNCHES),
    Mutant(
        "dependent launches",
        "they fail behind the shim",
        patches={
            f"{CHECK}/workloads/dependent.py": (
                "            try:\n",
                "            try:\n                shim_loaded() and driver.library.none\n",
            )
        },
    ),
    Mutant("views of memory", "the driver's own total is told", ("cuDeviceTotalMem_v2",)),
    Mutant("views of memory, PyTorch", "the driver's own free memory", ("cuMemGetInfo_v2",)),
    Mutant("several processes", "cuMemAlloc is not hooked", ("cuMemAlloc_v2",)),
    Mutant("cudaMallocAsync", "pools are not hooked", ("cuMemAllocAsync",)),
    Mutant("expandable segments", "cuMemCreate is not hooked", ("cuMemCreate",)),
    Mutant("PyTorch, other ways to the shim", "goes past the shim", environment=BYPASS),
    Mutant("fork", "a child's sum is wrong", environment=wrong("fork")),
    Mutant("CUDA graph", "a replay leaves its last kernel out", environment=wrong("graph")),
    Mutant("nobody else", "another program uses the GPU", load=True),
    Mutant("share", "launches are not hooked", LAUNCHES),
    *(
        Mutant(check, f"no fact {fact!r} is told", filters={"gpu_facts": f"/{fact}/d"})
        for check, fact in (
            ("time slices of two processes", '"slices"'),
            ("times", "value seen, behind 50 us"),
            ("hand-over", "empty kernel, launch to done"),
            ("captures", "of a relaxed thread"),
            ("copies", "16 MiB copied"),
            ("memory", "memory, module"),
            ("utilisation of two at 100 %", '"utilisation"'),
            ("utilisation of one at 30 %", '"utilisation"'),
            ("pid namespace", '"ready"'),
        )
    ),
    Mutant(
        "captures",
        "a broken capture ends well",
        filters={"gpu_facts": 's/"end":901/"end":0/'},
    ),
    Mutant("JAX", "the driver's own free memory is told", ("cuMemGetInfo_v2",)),
    Mutant("CuPy", "goes past the shim", environment=BYPASS),
    Mutant("nvcc", "its program goes past the shim", environment=BYPASS),
    Mutant("ncu", "sees a kernel less behind the shim", environment=wrong("ncu")),
    Mutant("compute-sanitizer", "cuMemAlloc is not hooked", ("cuMemAlloc_v2",)),
    Mutant("cuda-gdb", "does not stop at the kernel", environment=wrong("cuda-gdb")),
    Mutant("numba-cuda, its own tests", "a test fails behind the shim", environment=wrong("numba")),
    Mutant("Triton", "launches are not hooked", LAUNCHES),
    Mutant("torch.profiler", "sees a kernel less", environment=wrong("profiler")),
    Mutant(
        "launch overhead",
        "a launch takes 9 us longer",
        filters={"launches": r"s/^shim \([0-9]*\)/shim 9\1/"},
    ),
    Mutant("workload overhead, driver API", "each unit waits", patches=slower("driver")),
    Mutant(
        "workload overhead, driver API",
        "its programs run without the shim",
        patches={
            f"{CHECK}/player.py": ("place.outside() if room is None", "place.outside() if True")
        },
    ),
    Mutant("workload overhead, PyTorch", "each unit waits", patches=slower("torch")),
    Mutant(
        "latency",
        "its programs run without the shim",
        patches={
            f"{CHECK}/stages/latency.py": (
                "both.play(row, place.inside(service), place.inside(training))",
                "both.play(row, bare, bare)",
            )
        },
    ),
    Mutant("latency", "training does nothing", filters={"tenants": '/"kernels"/s/:[0-9]*/:0/'}),
    Mutant(
        "latency", "requests are too fast", filters={"tenants": 's/"p50_ms":[0-9.]*/"p50_ms":0.2/'}
    ),
    Mutant(
        "system",
        "there is no /proc",
        patches={
            f"{CHECK}/stages/machine.py": ("return path.read", "return Path('/proc/none').read")
        },
    ),
    Mutant("nvidia-smi", "it answers less than it is asked", environment=wrong("nvidia-smi")),
)


def checks() -> dict[str, str]:
    """The stage of each check of the bundle, in their order."""
    found = {}
    for stage in SECONDS:
        for check in importlib.import_module(f"gpu_check.stages.{stage}").CHECKS:
            found[check.name] = stage
    return found


def mutated(bundle: Bundle, folder: Path, mutant: Mutant) -> Bundle:
    copied = copy_of(bundle, folder, mutant.patches)
    for name, script in mutant.filters.items():
        program = copied.folder / "programs" / name
        program.rename(program.with_suffix(".real"))
        program.write_text(f'#!/bin/sh\n"$0.real" "$@" | sed -u -e {shlex.quote(script)}\n')
        program.chmod(0o755)
    if mutant.unhooked:
        build = copied.folder / "vcuda_shim/lib"
        shutil.rmtree(build / "shim")
        shutil.copytree(build / gpu_bundle.TEST_BUILD, build / "shim")
        hide_exports(build / "shim/libcuda.so.1", mutant.unhooked)
    return copied


def hide_exports(library: Path, names: Sequence[str]) -> None:
    """The library exports them by other names, as one that has no such functions."""
    content = library.read_bytes()
    with library.open("rb") as file:
        section = ELFFile(file).get_section_by_name(".dynstr")
        begin, strings = section["sh_offset"], section.data()
    for name in names:
        old, new = f"\0{name}\0".encode(), f"\0{name[:-1]}_\0".encode()
        assert old in strings, name
        strings = strings.replace(old, new)
    library.unlink()  # it may be a link to the one that others use
    library.write_bytes(content[:begin] + strings + content[begin + len(strings) :])


@contextmanager
def loaded(box: SimBox) -> Iterator[None]:
    """A program that keeps the GPU busy."""
    words = ("launch", "--kernel", "2ms", "--seconds", "600")
    command = [str(vcuda_shim.PROGRAMS / "cuda-play"), *words]
    program = subprocess.Popen(command, env=box.environment(), stdout=subprocess.DEVNULL)
    try:
        yield
    finally:
        program.kill()
        program.wait()


def attack(bundle: Bundle, here: Path, mutant: Mutant, stage: str) -> Run:
    folder = here / re.sub(r"\W+", "-", f"{mutant.check} {mutant.broken}")
    folder.mkdir()
    broken = mutated(bundle, folder / "bundle", mutant)
    environment = dict(mutant.environment)
    if mutant.unhooked:
        families = (VARIANT.sub("", name) for name in mutant.unhooked)
        environment[gpu_bundle.UNHOOKED] = ",".join(families)
    words = (stage, "--check", mutant.check)
    with sim_box(GPU) as box:
        if mutant.export:
            hide_exports((box.libraries / "libcuda.so.1").resolve(), [mutant.export])
        with loaded(box) if mutant.load else nullcontext():
            out = folder / "out"
            return run_in(box, broken, out, words, frameworks=True, **environment)


def row(check: str, broken: str, seen: Run) -> tuple[str, bool]:
    """A line of the table, and whether the mutant was found."""
    rows = [one for one in seen.checks if one["check"] == check]
    found = [one for one in rows if one["verdict"] in NOT_SEEN]
    said = (found or rows or [{"said": "no such check was run"}])[0]["said"]
    verdict = found[0]["verdict"] if found else "SURVIVED"
    caught = bool(found) and seen.status in (1, 3)
    return f"{check:30} {broken:48} {verdict if caught else 'SURVIVED':9} {said[:WIDTH]}", caught


def main(names: Sequence[str]) -> int:
    stages = checks()
    chosen = [one for one in MUTANTS if not names or one.check in names]
    spared = sorted(stages.keys() - {mutant.check for mutant in MUTANTS})
    with tempfile.TemporaryDirectory(prefix="gmself") as folder:
        here = Path(folder)
        bundle = make_bundle(here)
        words = [word for name in names for word in ("--check", name)]
        whole = run(bundle, here / "unbroken", ["all", *words], frameworks=True)
        print(*whole.printed, sep="\n", flush=True)
        with ThreadPoolExecutor(RUNS_AT_A_TIME) as pool:
            runs = [
                pool.submit(attack, bundle, here, mutant, stages[mutant.check]) for mutant in chosen
            ]
            print(f"\n{'check':30} {'what is broken':48} verdict", flush=True)
            caught = []
            for mutant, one in zip(chosen, runs, strict=True):
                line, found = row(mutant.check, mutant.broken, one.result())
                caught.append(found)
                print(line, flush=True)
    if not names and spared:
        print(f"without a mutant: {', '.join(spared)}")
    survived = caught.count(False)
    wrong = {row["check"] for row in whole.checks if row["verdict"] in NOT_SEEN} - {TIMED}
    print(f"{len(chosen)} mutants, {survived} survived; unbroken, wrong: {sorted(wrong) or 'none'}")
    return int(bool(survived or wrong or not whole.checks or (spared and not names)))


if __name__ == "__main__":
    os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")
    sys.exit(main(sys.argv[1:]))
