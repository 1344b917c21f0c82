"""However a program gets at the driver, the limit holds: linked, opened, versioned, preloaded.

C programs in a container of 64 MiB, over a stand-in driver of 1 GiB that counts what reaches it.
"""

import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

from gpumanager.limits.manager import VirtualManager
from gpumanager.units import MIB
from tests.native.shim_container import ALLOCATION, Container

pytestmark = pytest.mark.namespaces

HELD = {"refused": 2, "granted": 0, "reached": 1}
"""Too much is refused without the driver; what fits reaches it once."""


def build(source: str, target: Path, *flags: str) -> Path:
    path = Path(__file__).parent / source
    command = ["gcc", "-std=gnu11", "-O1", "-o", str(target), str(path), *flags]
    subprocess.run(command, check=True, capture_output=True, text=True, timeout=300)
    return target


def link_flags(container: Container) -> list[str]:
    return [f"-L{container.libraries}", "-lcuda"]


@pytest.fixture(scope="session")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build("interposed.c", tmp_path_factory.mktemp("interposed") / "program", "-ldl")


@pytest.fixture(scope="session")
def linked_program(tmp_path_factory: pytest.TempPathFactory, driver: Path) -> Path:
    """Linked inside of the container, with what it finds there."""
    target = tmp_path_factory.mktemp("interposed") / "linked"
    return build("interposed.c", target, "-DLINKED", f"-L{driver}", "-lcuda", "-ldl")


async def run(container: Container, *words: object, **environment: str) -> dict[str, Any]:
    """What the program says, on both outputs."""
    command = [str(word) for word in words]
    return await container.run(
        f"""
import subprocess
done = subprocess.run({command!r}, capture_output=True, text=True)
assert done.returncode == 0, done.stderr
for line in (done.stdout + done.stderr).splitlines():
    tell(**json.loads(line))
""",
        **environment,
    )


@pytest.mark.parametrize("name", ["libcuda.so.1", "libcuda.so"])
@pytest.mark.parametrize("how", ["open", "deepbind", "global", "version"])
async def test_a_program_that_opens_the_library_is_held(
    container: Container, program: Path, how: str, name: str
) -> None:
    assert await run(container, program, how, name) == HELD


@pytest.mark.parametrize("how", ["open", "deepbind", "global", "version"])
async def test_a_driver_that_is_not_symbolic_is_not_charged_for_its_own_calls(
    plain_container: Container, manager: VirtualManager, program: Path, how: str
) -> None:
    assert await run(plain_container, program, how) == HELD
    assert manager.usage(ALLOCATION).devices[0].peak == 2 * MIB


async def test_a_program_linked_in_the_container_is_held_and_reaches_what_is_not_hooked(
    container: Container, linked_program: Path
) -> None:
    assert await run(container, linked_program, "linked") == HELD | {"device": [0, 0]}
    assert await run(container, linked_program, "default") == HELD


async def test_a_program_linked_over_a_driver_that_is_not_symbolic_is_held(
    plain_container: Container, manager: VirtualManager, linked_program: Path
) -> None:
    assert await run(plain_container, linked_program, "linked") == HELD | {"device": [0, 0]}
    assert manager.usage(ALLOCATION).devices[0].peak == 2 * MIB


def test_a_program_linked_in_the_container_needs_the_driver_by_its_soname_alone(
    linked_program: Path,
) -> None:
    listing = subprocess.run(
        ["readelf", "-dVW", str(linked_program)], capture_output=True, text=True, check=True
    ).stdout

    needed = re.findall(r"\(NEEDED\).*\[(.*)\]", listing)
    assert "libcuda.so.1" in needed
    assert all(re.fullmatch(r"libcuda\.so\.1|libc\.so\.6|libdl\.so\.2", name) for name in needed)
    assert "Version: libcuda" not in listing
    assert "File: libcuda" not in listing


async def test_two_copies_of_the_shim_in_one_process_hold_one_limit_together(
    container: Container, manager: VirtualManager, program: Path
) -> None:
    told = await run(container, program, "namespaces")

    assert told == HELD | {"over": 2, "within": 0, "full": 2}
    assert manager.usage(ALLOCATION).devices[0].peak == 64 * MIB


@pytest.mark.parametrize("names", [("libcuda.so", "libcuda.so.1"), ("libcuda.so.1", "libcuda.so")])
async def test_both_names_of_the_library_lead_to_one_shim(
    container: Container, manager: VirtualManager, names: tuple[str, str]
) -> None:
    program = container.begin(
        f"""
first, second = (ctypes.CDLL(name) for name in {names!r})
first.cuInit(0)
tell(half=allocate(first, {32 * MIB})[0], over=allocate(second, {33 * MIB})[0],
     rest=allocate(second, {32 * MIB})[0], full=allocate(first, 1)[0],
     calls=[library.stand_in_calls(b"cuMemAlloc_v2") for library in (first, second)])
pause()
"""
    )
    await program.pauses()
    processes = manager.usage(ALLOCATION).processes

    assert await program.ends() == {"half": 0, "over": 2, "rest": 0, "full": 2, "calls": [2, 2]}
    assert len(processes) == 1


async def test_a_preloaded_tool_that_calls_the_next_function_meets_the_shim(
    container: Container, linked_program: Path, work: Path
) -> None:
    tool = build("interposed_tool.c", work / "tool.so", "-shared", "-fPIC", "-ldl")

    told = await container.run(
        f"""
import os, subprocess
done = subprocess.run([{str(linked_program)!r}, "linked"], capture_output=True, text=True,
                      env=os.environ | {{"LD_PRELOAD": {str(tool)!r}}})
for line in (done.stdout + done.stderr).splitlines():
    tell(**json.loads(line))
"""
    )

    assert told == HELD | {"device": [0, 0], "tool0": 2, "tool1": 0}


async def test_a_program_after_vfork_and_exec_is_held_by_itself(
    container: Container, manager: VirtualManager, program: Path
) -> None:
    assert await run(container, program, "vfork") == HELD
    assert manager.usage(ALLOCATION).devices[0].peak == 4 * MIB


async def test_a_shared_object_linked_with_the_shim_by_file_name_is_held(
    container: Container, driver: Path, work: Path
) -> None:
    source = work / "extension.c"
    source.write_text(
        "int cuMemAlloc_v2(unsigned long long *, unsigned long);\nint cuCtxGetDevice(int *);\n"
        "int ask(unsigned long n) { unsigned long long at; return cuMemAlloc_v2(&at, n); }\n"
        "int where(void) { int device = 7; return cuCtxGetDevice(&device) * 100 + device; }\n"
    )
    module = build(
        str(source), work / "extension.so", "-shared", "-fPIC", f"-L{driver}", "-l:libcuda.so.1"
    )

    told = await container.run(
        f"""
module = ctypes.CDLL({str(module)!r})
cuda().cuInit(0)
tell(over=module.ask({65 * MIB}), within=module.ask({MIB}), where=module.where())
"""
    )

    assert told == {"over": 2, "within": 0, "where": 0}


def test_an_executable_linked_with_the_shims_file_itself_misses_what_it_does_not_hook(
    driver: Path, work: Path
) -> None:
    with pytest.raises(subprocess.CalledProcessError) as caught:
        build("interposed.c", work / "no", "-DLINKED", f"-L{driver}", "-l:libcuda.so.1", "-ldl")

    assert "undefined reference to `cuCtxGetDevice'" in caught.value.stderr
