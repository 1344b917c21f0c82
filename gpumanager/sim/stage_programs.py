"""The programs of a stage: containers that share one simulated GPU, and what they print.

A tenant is one allocation. Each of its processes has a file system of its own, so that the GPU's
account knows it by itself; what the limit counts is the allocation.
"""

import asyncio
import contextlib
import json
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from gpumanager.errors import GpuManagerError
from gpumanager.sim.clock import Clock
from gpumanager.sim.container.process import ContainerProcess, start_container
from gpumanager.sim.container.values import BindMount, ContainerSpec
from vcuda_shim import LINK_CUDA, LINK_NVML, PROGRAMS, SHIM_CUDA, SHIM_NVML

WORK: Final = "cuda-work"
LINE_UP_SECONDS: Final = 30.0
"""Of real time, for one program to come to its first launch."""

LAST_WORDS: Final = 20
"""Lines of a program that failed, in the error."""

_LOOK_SECONDS: Final = 0.002


class StageFailed(GpuManagerError):
    """A program of a stage did not do its part."""


def lay_out(folder: Path, driver: Path, *, shim: bool) -> Path:
    """A folder of libraries for programs: the driver's, behind the shim or as they are.

    Under the names by which a library in front of the driver needs it, it is there in any case.
    """
    folder.mkdir()
    for name in ("libcuda.so.1", "libcuda.so", "libnvidia-ml.so.1", "libnvidia-ml.so"):
        (folder / name).symlink_to(driver / name)
    (folder / "libvcuda-real.so.1").symlink_to(driver / "libcuda.so.1")
    (folder / "libvcuda-real-ml.so.1").symlink_to(driver / "libnvidia-ml.so.1")
    if shim:
        for file in (SHIM_CUDA, SHIM_NVML, LINK_CUDA, LINK_NVML):
            (folder / file.name).unlink()
            (folder / file.name).symlink_to(file)
        (folder / "libvcuda-shim.so.1").symlink_to(SHIM_CUDA)
        (folder / "libvcuda-shim-ml.so.1").symlink_to(SHIM_NVML)
    return folder


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What a tenant's programs see. allocation: None if nobody manages them."""

    libraries: Path
    devices: tuple[BindMount, ...]
    allocation: Path | None
    preload: tuple[Path, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)

    def spec(self, command: Sequence[str], clock: Clock) -> ContainerSpec:
        ours = clock.environment()
        preload = ":".join([*map(str, self.preload), *filter(None, [ours.get("LD_PRELOAD")])])
        environment = {
            "PATH": f"{PROGRAMS}:/usr/bin:/bin",
            "LD_LIBRARY_PATH": str(self.libraries),
            **self.environment,
            **ours,
            **({"LD_PRELOAD": preload} if preload else {}),
        }
        mounts = () if self.allocation is None else (str(self.allocation),)
        return ContainerSpec(
            command=tuple(command),
            environment=environment,
            devices=self.devices,
            mounts=tuple(BindMount(path, "/etc/vcuda", read_only=True) for path in mounts),
        )


def command(workload: str, start: int) -> tuple[str, ...]:
    """The program for a workload: cuda-work, or another of ours if it begins with its name.

    start: CLOCK_MONOTONIC in ns, for the first launch; only cuda-work waits for it.
    """
    words = shlex.split(workload)
    if words and words[0] != WORK and (PROGRAMS / words[0]).is_file():
        return tuple(words)
    return (WORK, "--json", "--start", str(start), workload)


class Program:
    """One process on the stage. Made by `start_program`; closed by `close`."""

    def __init__(self, name: str, start: int | None) -> None:
        self.name = name
        self._start = start
        self._lines: list[str] = []
        self._process: ContainerProcess | None = None
        self._ending: asyncio.Task[int] | None = None

    async def begin(self, spec: ContainerSpec, spec_path: Path) -> None:
        self._process = await start_container(spec, spec_path, self._lines.append)
        self._ending = asyncio.create_task(self._process.wait())

    @property
    def process(self) -> ContainerProcess:
        if self._process is None:
            raise StageFailed(f"{self.name}: not started")
        return self._process

    @property
    def ended(self) -> bool:
        return self._ending is not None and self._ending.done()

    def check(self) -> None:
        """Raises StageFailed if it has ended otherwise than well."""
        if self._ending is None or not self.ended or self._ending.result() == 0:
            return
        words = "\n".join(self._lines[-LAST_WORDS:])
        raise StageFailed(f"{self.name}: exit {self._ending.result()}: {words}")

    async def line_up(self, clock: Clock) -> None:
        """Let it come as far as its start; on the system's clock it waits there by itself."""
        try:
            async with asyncio.timeout(LINE_UP_SECONDS):
                while not self.ended and not await self._lined_up(clock):
                    pass
        except TimeoutError:
            words = "\n".join(self._lines[-LAST_WORDS:])
            raise StageFailed(
                f"{self.name}: not at its start after {LINE_UP_SECONDS:.0f} s: {words}"
            ) from None
        self.check()

    async def _lined_up(self, clock: Clock) -> bool:
        """Whether it is there; one step towards it if not."""
        until = clock.asleep_until(self.process.pid)
        if until is None:
            await asyncio.sleep(_LOOK_SECONDS)
            return False
        now = clock.now()
        if until > now and until >= (self._start or 0):
            return True
        await clock.sleep_until(max(until, now) + 1)  # it goes first, and we after it
        return False

    def report(self) -> dict[str, Any] | None:
        """What it told in JSON, if it did."""
        for line in reversed(self._lines):
            with contextlib.suppress(json.JSONDecodeError):
                told = json.loads(line)
                if isinstance(told, dict):
                    return told
        return None

    async def close(self) -> None:
        if self._process is not None:
            await self._process.close()
        if self._ending is not None:
            await asyncio.wait((self._ending,))
