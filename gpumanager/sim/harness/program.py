"""One process on a stage: how it is started, as far as its start line, and what it says."""

import asyncio
import contextlib
import json
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from gpumanager.names import CONTAINER_TURNS, CONTAINER_VCUDA
from gpumanager.sim.clock import Clock
from gpumanager.sim.container.process import ContainerProcess, start_container
from gpumanager.sim.container.values import BindMount, ContainerSpec
from gpumanager.sim.harness.values import HarnessFailed
from vcuda_shim import PROGRAMS

WORK: Final = "cuda-work"
LINE_UP_SECONDS: Final = 300.0
"""Of real time, for one program to come to its start line; it takes some tenths."""

LAST_WORDS: Final = 20
"""Lines of a program that failed, in the error."""


@dataclass(frozen=True, slots=True)
class ProgramSetup:
    """What a tenant's programs see. allocation: None without a manager. turns: the folder of its
    turns, if it takes any."""

    libraries: Path
    devices: tuple[BindMount, ...]
    allocation: Path | None = None
    turns: Path | None = None
    preload: tuple[Path, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)

    def spec(self, command: tuple[str, ...], clock: Clock) -> ContainerSpec:
        environment = {
            "PATH": f"{PROGRAMS}:/usr/bin:/bin",
            "LD_LIBRARY_PATH": str(self.libraries),
            **self.environment,
            **clock.environment(),
        }
        preload = [*map(str, self.preload), *filter(None, [environment.get("LD_PRELOAD")])]
        environment["LD_PRELOAD"] = ":".join(preload)
        places = ((self.allocation, CONTAINER_VCUDA), (self.turns, CONTAINER_TURNS))
        mounts = tuple(
            BindMount(str(path), str(place), read_only=True)
            for path, place in places
            if path is not None
        )
        return ContainerSpec(command, environment, devices=self.devices, mounts=mounts)


def words_of(workload: str, start: int) -> tuple[str, ...]:
    """Return the command for a workload: of cuda-work, or of another of our programs, if named
    first.

    start: CLOCK_MONOTONIC in ns, for the first launch; only cuda-work waits for it.
    """
    words = tuple(shlex.split(workload))
    if words and words[0] != WORK and (PROGRAMS / words[0]).is_file():
        return words
    return (WORK, "--json", "--start", str(start), workload)


class Program:
    """To be closed. start: of its first launch; 0 if it does not wait for one."""

    def __init__(self, name: str, start: int = 0) -> None:
        self.name = name
        self._start = start
        self._lines: list[str] = []
        self._process: ContainerProcess | None = None
        self._ending: asyncio.Task[int] | None = None

    async def begin(self, spec: ContainerSpec, spec_path: Path, clock: Clock) -> None:
        """Start it, and let it come as far as its start; raises HarnessFailed."""
        self._process = await start_container(spec, spec_path, self._lines.append)
        self._ending = asyncio.create_task(self._process.wait())
        try:
            async with asyncio.timeout(LINE_UP_SECONDS):
                await clock.line_up(self._process.pid, self._start, lambda: self.ended)
        except TimeoutError:
            raise self._failed(f"not at its start after {LINE_UP_SECONDS:.0f} s") from None
        self.check()

    @property
    def mount_namespace(self) -> int | None:
        """Return the namespace by which the GPU's account has it; None before it is started."""
        return None if self._process is None else self._process.mount_namespace

    @property
    def ended(self) -> bool:
        return self._ending is not None and self._ending.done()

    def check(self) -> None:
        """Raise HarnessFailed if it has ended otherwise than well."""
        if self._ending is not None and self._ending.done() and self._ending.result() != 0:
            raise self._failed(f"exit {self._ending.result()}")

    def _failed(self, how: str) -> HarnessFailed:
        return HarnessFailed("\n".join([f"{self.name}: {how}:", *self._lines[-LAST_WORDS:]]))

    def report(self) -> Mapping[str, Any] | None:
        """Return what it printed in JSON, if it did."""
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
