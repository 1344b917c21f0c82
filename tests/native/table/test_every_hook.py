"""Each hooked function, called: over a driver that only notes, and over the simulated one."""

import re
import subprocess
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from driver_libraries import lay_out

from gpumanager.ids import AllocationID
from gpumanager.limits.manager import VirtualManager
from gpumanager.limits.values import Limit
from gpumanager.sim.container.values import BindMount
from gpumanager.sim.gpu import driver_files
from gpumanager.sim.machine import GpuModel
from gpumanager.units import GIB, Bytes
from tests.native.shim_container import INCLUDE, Container
from tests.native.sim_box import SimBox, machine, sim_box
from tests.native.table.hook_table import TABLE, load

LIBRARIES = ("cuda", "nvml")
RESULTS = {"cuda": "CUresult", "nvml": "nvmlReturn_t"}
SONAMES = {"cuda": "libcuda.so.1", "nvml": "libnvidia-ml.so.1"}
NOT_SUPPORTED = {"cuda": (801, 500), "nvml": (3, 13)}
ABSENT = {
    "cuda": {
        "cuGetProcAddress_v2_ptsz",
        "cuLogicalEndpointBindAddr",
        "cuLogicalEndpointBindMem",
        "cuLogicalEndpointDestroy",
        "cuLogicalEndpointUnbind",
        "cuMemGetDefaultMemPool",
        "cuMemGetMemPool",
    },
    "nvml": set[str](),
}
"""Hooked, but the simulated driver does not export them."""

NOT_SIMULATED = {
    "cuMemMapArrayAsync",
    "cuMemMapArrayAsync_ptsz",
    "cuStreamBeginRecaptureToGraph",
    "cuStreamBeginRecaptureToGraph_ptsz",
    "cuGraphExecBatchMemOpNodeSetParams",
    "cuGraphExecExternalSemaphoresSignalNodeSetParams",
    "cuGraphExecExternalSemaphoresWaitNodeSetParams",
    "nvmlDeviceGetAccountingPids",
    "nvmlDeviceGetAccountingStats",
}
"""Hooked, but the simulated driver may say that it does nothing for them."""

OWN_PLACE = re.compile(r"cuCtxCreate\w*|cuModuleLoad\w*|cuLibraryLoad\w*")
"""Hooks that look at what the driver made before the program does: in a place of their own."""

HOPPER = GpuModel("Simulated", 132, (9, 0), 2048)

both = pytest.mark.parametrize("library", LIBRARIES)


def rows(library: str) -> list[Any]:
    return list(load("generate").parse_table(TABLE / f"{library}.hooks"))


def kinds(row: Any) -> list[tuple[str, str]]:
    """Type and name of each parameter."""
    pairs = zip(row.parameters, row.arguments, strict=True)
    return [(text.removesuffix(name).strip(), name) for text, name in pairs if name]


# A driver that notes: which function was called last, with what, how often any was.

NOTES = """
#include <string.h>
#include "{library}_types.h"
static unsigned long noted[16];
static int calls, last, answer;
unsigned long *noted_arguments(void) {{ return noted; }}
int noted_calls(void) {{ return calls; }}
int noted_last(void) {{ return last; }}
void noted_answer(int result) {{ answer = result; calls = 0; memset(noted, 0, sizeof noted); }}
"""


def compared(row: Any) -> Iterable[tuple[int, tuple[str, str]]]:
    """Parameters that have to arrive as they were given, with their places."""
    every = list(enumerate(kinds(row)))
    return every[1:] if OWN_PLACE.fullmatch(row.symbol) else every


def noting(library: str, table: Iterable[Any]) -> Iterator[str]:
    yield NOTES.format(library=library)
    for number, row in enumerate(table):
        yield f"{RESULTS[library]} {row.symbol}({row.signature})\n{{"
        yield f"    calls++, last = {number};"
        for place, (_, name) in compared(row):
            yield f"    memcpy(&noted[{place}], &{name}, sizeof {name} < 8 ? sizeof {name} : 8);"
        yield f"    return ({RESULTS[library]})answer;\n}}"


CALLS = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>
#include "{library}_types.h"
static unsigned long *(*noted_arguments)(void);
static int (*noted_calls)(void), (*noted_last)(void);
static void (*noted_answer)(int result);
static void find(void)
{{
    noted_arguments = dlsym(RTLD_DEFAULT, "noted_arguments");
    noted_calls = dlsym(RTLD_DEFAULT, "noted_calls");
    noted_last = dlsym(RTLD_DEFAULT, "noted_last");
    noted_answer = dlsym(RTLD_DEFAULT, "noted_answer");
}}
static char buffers[16][8192];
static unsigned long given[16];
static int check(const char *name, int number, int answer, int result)
{{
    int same = memcmp(given, noted_arguments(), sizeof given) == 0;
    if (result != answer || noted_calls() != 1 || noted_last() != number || !same)
        printf("%s: answered %d for %d, calls %d, reached %d for %d, arguments %s\\n", name, result,
               answer, noted_calls(), noted_last(), number, same ? "same" : "changed");
    return 0;
}}
"""


def calling(library: str, table: Iterable[Any]) -> Iterator[str]:
    """A program that calls each and says what did not go straight through."""
    yield CALLS.format(library=library)
    hooked = [(number, row) for number, row in enumerate(table) if row.exported]
    for number, row in hooked:
        yield f"{RESULTS[library]} {row.symbol}({row.signature});"
        yield f"static void call_{row.symbol}(int answer)\n{{\n    memset(given, 0, sizeof given);"
        for place, (kind, name) in enumerate(kinds(row)):
            yield f"    {kind} {name};"
            if kind.endswith("*"):
                yield f"    {name} = ({kind})buffers[{place}];"
            else:
                yield f"    memset((void *)&{name}, {place + 17}, sizeof {name});"
        for place, (_, name) in compared(row):
            size = f"sizeof {name} < 8 ? sizeof {name} : 8"
            yield f"    memcpy(&given[{place}], (void *)&{name}, {size});"
        words = ", ".join(name for _, name in kinds(row))
        yield f'    noted_answer(answer);\n    check("{row.symbol}", {number}, answer,'
        yield f"          {row.symbol}({words}));\n}}"
    yield "int main(void)\n{\n    find();"
    yield from (f"    call_{row.symbol}(0), call_{row.symbol}(999);" for _, row in hooked)
    yield "    return 0;\n}"


def compiled(target: Path, lines: Iterable[str], *flags: str) -> Path:
    source = target.with_suffix(".c")
    source.write_text("\n".join(lines))
    command = ["gcc", "-std=gnu11", f"-I{INCLUDE}", "-o", str(target), str(source), *flags]
    subprocess.run(command, check=True, capture_output=True, text=True, timeout=300)
    return target


@both
def test_in_a_process_that_is_not_managed_each_call_goes_straight_to_its_own_function(
    tmp_path: Path, library: str
) -> None:
    table = rows(library)
    shared = ["-shared", "-fPIC", f"-Wl,-soname,{SONAMES[library]}"]
    driver = compiled(tmp_path / "driver.so", noting(library, table), *shared)
    libraries = lay_out(tmp_path / "lib", driver, driver)
    link = [f"-L{libraries}", f"-l:{SONAMES[library]}", "-ldl"]
    program = compiled(tmp_path / "program", calling(library, table), *link)

    environment = {"LD_LIBRARY_PATH": str(libraries)}
    finished = subprocess.run(
        [program], env=environment, capture_output=True, text=True, check=False, timeout=300
    )

    assert (finished.returncode, finished.stdout, finished.stderr) == (0, "", "")


# The simulated driver, by itself and behind the shim in a container with room for all.


@pytest.fixture
def box() -> Iterator[SimBox]:
    """With GPUs that have all that hooks are about."""
    described = machine(cuda_version=13040)
    models = dict.fromkeys(described.models, HOPPER)
    with sim_box(replace(described, models=models)) as made:
        yield made


@pytest.fixture
async def containers(
    box: SimBox, work: Path, manager: VirtualManager
) -> tuple[Container, Container]:
    """One behind the shim, one with the bare driver."""
    cuda, nvml = driver_files(box.machine.cuda_version)
    nodes = sorted(box.gpus.device_directory.iterdir())
    devices = tuple(BindMount(str(node), f"/dev/{node.name}") for node in nodes)
    limits = [Limit(gpu.uuid, Bytes(8 * GIB), 100, 100) for gpu in box.machine.topology.gpus]
    directory = await manager.open(AllocationID("one"), limits)
    libraries = lay_out(work / "lib", cuda, nvml)
    return (
        Container(libraries, directory, work, devices),
        Container(box.libraries, None, work, devices),
    )


@both
@pytest.mark.namespaces
async def test_each_hook_answers_over_the_simulated_driver_as_the_driver_itself(
    containers: tuple[Container, Container], library: str
) -> None:
    table = [(row.symbol, kinds(row)) for row in rows(library) if row.exported]
    table = [row for row in table if row[0] not in ABSENT[library]]
    script = f"from tests.native.programs.hook_caller import *\ncall_all({table!r}, {library!r})"

    managed, bare = [await container.run(script) for container in containers]

    different = {name: (managed.get(name), code) for name, code in bare.items()}
    assert {name: pair for name, pair in different.items() if pair[0] != pair[1]} == {}
    assert {
        n for n, code in bare.items() if code in NOT_SUPPORTED[library]
    } - NOT_SIMULATED == set()
    assert list(managed) == [name for name, _ in table]
