"""What one process takes of a GPU, and what it sees of the device, with the shim and without."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Final

from gpu_check import judge
from gpu_check.bench import WORKLOADS, Bench
from gpu_check.conductor import Check
from gpu_check.outcome import Finding, passed_if
from gpu_check.process import told

SECONDS: Final = 15.0
HALF: Final = 50
PAGEABLE_MEMORY_ACCESS: Final = "88"
"""CU_DEVICE_ATTRIBUTE_: kernels may use what malloc returned, which moves into the GPU's memory
without any call that a limit could refuse."""

LEAST_ANSWERS: Final = 100
"""Attributes that drivers of CUDA 12 and 13 have, and more."""

HMM: Final = Path("/sys/module/nvidia_uvm/parameters/uvm_disable_hmm")


async def attributes(bench: Bench) -> AsyncIterator[Finding]:
    place = await bench.place()
    command: list[str | Path] = [bench.python, WORKLOADS / "attributes.py"]
    bare = await told(command, place.outside(), place.output("attributes"), SECONDS)
    room = await place.limit(HALF)
    behind = (await place.run(room, "attributes.py", SECONDS)).told
    yield alike(bench, bare, behind)


def alike(bench: Bench, bare: dict[str, Any], behind: Any) -> Finding:
    ours, theirs = behind["answers"], bare["answers"]
    names = theirs.keys() | ours.keys()
    other = sorted(name for name in names if theirs.get(name) != ours.get(name))
    hmm = HMM.read_text().strip() if HMM.exists() else None
    bench.results.fact("attributes", uvm_disable_hmm=hmm, **bare)
    conditions = {
        f"the shim does not change {', '.join(other)}": not other,
        "the driver tells most attributes": sum(isinstance(one, int) for one in theirs.values())
        >= LEAST_ANSWERS,
        "it tells of pageable memory access": isinstance(theirs.get(PAGEABLE_MEMORY_ACCESS), int),
        "the shim is in the program": bool(behind["shim"]) and not bare["shim"],
    }
    pageable = theirs.get(PAGEABLE_MEMORY_ACCESS)
    said = f"{len(theirs)} answers; pageable memory access {pageable}, uvm_disable_hmm {hmm}"
    return passed_if(conditions, said, {"pageable": pageable, "uvm_disable_hmm": hmm})


async def taken(bench: Bench) -> AsyncIterator[Finding]:
    place = await bench.place()
    room = await place.limit(HALF)
    evidence = await place.run(room, "taken.py", SECONDS)
    bench.results.fact("memory that the driver takes", driver=evidence.driver, **evidence.told)
    yield judge.charged_for_the_driver(evidence)


CHECKS: Final = (
    Check("device attributes", 20, attributes),
    Check("memory that the driver takes", 20, taken),
)
