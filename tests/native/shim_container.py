"""Run a few lines of Python as a program in a container, behind the shim.

The shim's two libraries lie in one folder beside links to a driver's own, as the volume manager
lays them; the allocation's directory is mounted at /etc/vcuda, served by the real virtual manager.
"""

import asyncio
import json
import secrets
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from driver_libraries import lay_out

from gpumanager.gpu.values import GpuUUID
from gpumanager.ids import AllocationID
from gpumanager.limits.manager import VirtualManager
from gpumanager.limits.values import Limit
from gpumanager.names import CONTAINER_TURNS, CONTAINER_VCUDA
from gpumanager.sim.container.process import ContainerProcess, start_container
from gpumanager.sim.container.values import BindMount, ContainerSpec
from gpumanager.units import MIB, Bytes
from tests import ROOT
from vcuda_shim import build

HERE = ROOT / "tests/native"
INCLUDE = ROOT / "native/include"
GPU = GpuUUID("GPU-00010203-0405-0607-0809-0a0b0c0d0e0f")
"""The one GPU of the stand-in driver and of the simulated machine."""

ALLOCATION = AllocationID("one")
LIMIT = 64 * MIB
SECONDS = 240.0
"""After which a container is stuck; on a busy machine it may take long."""


PAUSE = """
def pause(numbers=iter(range(100))):
    place = f"{place}-{{next(numbers)}}"
    reach(place)
    wait_for(place + "-over")
"""


def build_stand_in(folder: Path, *, symbolic: bool) -> Path:
    """The stand-in driver behind the shim, with the real one's habits of linking."""
    folder.mkdir(parents=True)
    flags = ["gcc", "-std=gnu11", "-O1", "-fPIC", "-shared", f"-I{INCLUDE}"]
    binding = ["-Wl,-Bsymbolic"] if symbolic else []
    cuda, nvml = folder / "libcuda.so.1.0", folder / "libnvidia-ml.so.1.0"
    for target, source, soname, extra in (
        (cuda, "stand_in_cuda.c", "libcuda.so.1", binding),
        (nvml, "stand_in_nvml.c", "libnvidia-ml.so.1", []),
    ):
        output = ["-o", str(target), str(HERE / source)]
        command = [*flags, *extra, f"-Wl,-soname,{soname}", *output]
        subprocess.run(command, check=True, timeout=300)
    return lay_out(folder / "lib", cuda, nvml)


def build_cuda_shim(folder: Path, *flags: str) -> Path:
    """The CUDA shim, compiled with these flags besides, and in half the time of the product's."""
    generated, home, shim = folder / "generated", build.NATIVE / "shim", build.SHIMS[0]
    generated.mkdir()
    build.load(build.NATIVE / "table" / "generate.py").generate(generated)
    target = build.Target("shim", tuple(build.compiler()))
    linked = build.standing_in(shim, target, generated, needed=shim.real, exports="cuda.map")
    files = build.sources(home / "core", home / "runtime", home / "cuda")
    build.shared_library(
        folder / shim.soname,
        [*files, generated / "cuda_hooks.c"],
        ["-O0", f'-DVCUDA_REAL_SONAME="{shim.real}"', *linked, *flags],
    )
    return folder / shim.soname


@dataclass(frozen=True, slots=True)
class Container:
    """Where programs run. libraries: on their library path; allocation: None if not managed.
    turns: the folder of its turns, if it takes any."""

    libraries: Path
    allocation: Path | None
    work: Path
    devices: tuple[BindMount, ...] = ()
    turns: Path | None = None

    def _spec(self, command: Sequence[str], environment: Mapping[str, str]) -> ContainerSpec:
        places = ((self.allocation, CONTAINER_VCUDA), (self.turns, CONTAINER_TURNS))
        return ContainerSpec(
            command=tuple(command),
            environment={
                "PATH": "/usr/bin:/bin",
                "LD_LIBRARY_PATH": str(self.libraries),
                "PYTHONPATH": str(ROOT),  # for tests/native/programs
                **environment,
            },
            devices=self.devices,
            mounts=tuple(
                BindMount(str(path), str(place), read_only=True) for path, place in places if path
            ),
        )

    async def start(
        self, command: Sequence[str], on_line: Callable[[str], None], **environment: str
    ) -> ContainerProcess:
        """Any command; to be closed. Its output goes to `on_line`, line by line."""
        return await start_container(self._spec(command, environment), on_line)

    async def run(self, script: str, **environment: str) -> dict[str, Any]:
        """Run it to its end; returns what it told, all its `tell` lines in one.

        `complaints`: lines of the shim itself, if there were any.
        """
        lines: list[str] = []
        command = (
            sys.executable,
            "-c",
            f"from tests.native.programs.shim_client import *\n{script}",
        )
        process = await self.start(command, lines.append, **environment)
        try:
            status = await asyncio.wait_for(process.wait(), SECONDS)
        finally:
            await process.close()
        assert status == 0, "\n".join(lines)
        told: dict[str, Any] = {}
        for line in lines:
            if line.startswith("vcuda: "):
                told.setdefault("complaints", []).append(line)
            else:
                told |= json.loads(line)
        return told

    def begin(self, script: str, **environment: str) -> "Program":
        """Run it beside the test, which it meets at each `pause()`."""
        return Program(self, script, environment)


class Program:
    """A program of a container that stops at each `pause()` until the test lets it go on."""

    def __init__(self, container: Container, script: str, environment: Mapping[str, str]) -> None:
        self._place = container.work / secrets.token_hex(4)
        self._pauses = 0
        begun = PAUSE.format(place=self._place) + script
        self._running = asyncio.create_task(container.run(begun, **environment))

    async def pauses(self) -> None:
        """It has come to its next pause."""
        self._goes_on()
        await reached(Path(f"{self._place}-{self._pauses}"), self._running)
        self._pauses += 1

    async def ends(self) -> dict[str, Any]:
        """What it told."""
        self._goes_on()
        return await self._running

    def _goes_on(self) -> None:
        if self._pauses:
            Path(f"{self._place}-{self._pauses - 1}-over").touch()


async def allocation(manager: VirtualManager, cores: int = 100, memory: int = LIMIT) -> Path:
    """The directory of an allocation with these limits on the one GPU."""
    return await manager.open(ALLOCATION, [Limit(GPU, Bytes(memory), cores, cores)])


async def reached(path: Path, running: asyncio.Task[Any]) -> None:
    """The program has come to this point, or has ended; it is another process, without events."""
    while not path.exists() and not running.done():  # noqa: ASYNC110, ASYNC240
        await asyncio.sleep(0.005)
