"""One simulated GPU, and containers on it in which real clients run, unmodified.

A container with a limit has the shim and an allocation; one without has the simulated driver bare,
so that the same program can be run both ways. What a program prints as `tell(…)` comes back.
"""

import asyncio
import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from shim_container import HERE as NATIVE_TESTS
from sim_box import SimBox

from gpumanager.gpu.values import GpuUUID
from gpumanager.sim.container.process import ContainerProcess, start_container
from gpumanager.sim.container.values import BindMount, ContainerSpec
from gpumanager.sim.gpu import DeviceAccount
from gpumanager.sim.libraries import lay_out
from gpumanager.units import Bytes
from gpumanager.virtual.manager import VirtualSockets
from gpumanager.virtual.values import AllocationID, Limit

SECONDS = 300.0
"""Bound for one client; numba's tests take some 20 s on two idle cores."""

_WORD = "told "
TELL = f"""
import json
def tell(**answers):
    print("\\n{_WORD}" + json.dumps(answers), flush=True)
"""


@dataclass(frozen=True, slots=True)
class Finished:
    """A program that ended. told: all its `tell`s in one; output: every line."""

    status: int
    output: tuple[str, ...]

    @property
    def told(self) -> dict[str, Any]:
        told: dict[str, Any] = {}
        for line in self.output:
            if line.startswith(_WORD):
                told |= json.loads(line.removeprefix(_WORD))
        return told

    @property
    def text(self) -> str:
        return "\n".join(self.output)


class ClientBox:
    """Made by the fixture `clients`."""

    def __init__(self, box: SimBox, manager: VirtualSockets, work: Path) -> None:
        self._box, self._manager, self._work = box, manager, work
        self._started = 0
        cuda, nvml = (
            next(box.libraries.glob(f"{name}.so.*.*")) for name in ("libcuda", "libnvidia-ml")
        )
        self._shims = lay_out(work / "shims", cuda, nvml)

    @property
    def uuid(self) -> GpuUUID:
        return self._box.uuid

    def accounts(self) -> list[DeviceAccount]:
        """What the simulated driver says each container used, in the order they came."""
        return [tenant.devices[self.uuid] for tenant in self._box.gpus.tenants()]

    async def python(self, script: str, *, limit: int | None = None) -> Finished:
        """A program that must end well."""
        finished = await self.run(sys.executable, "-c", TELL + script, limit=limit)
        assert finished.status == 0, finished.text
        return finished

    async def run(self, *command: str, limit: int | None = None) -> Finished:
        """Run it to its end; limit: bytes, None for the bare driver."""
        lines: list[str] = []
        process = await self.start(*command, limit=limit, lines=lines)
        try:
            status = await asyncio.wait_for(process.wait(), SECONDS)
        finally:
            await process.close()
        return Finished(status, tuple(lines))

    async def start(
        self, *command: str, limit: int | None, lines: list[str] | None = None
    ) -> ContainerProcess:
        self._started += 1
        name = f"client-{self._started}"
        spec = ContainerSpec(
            command=command,
            environment={
                "PATH": "/usr/bin:/bin",
                "HOME": str(self._work),
                "LD_LIBRARY_PATH": str(self._box.libraries if limit is None else self._shims),
                "PYTHONPATH": str(NATIVE_TESTS),
                "LOGNAME": "client",
                "COLUMNS": "120",
            },
            devices=tuple(
                BindMount(str(path), f"/dev/{path.name}")
                for path in sorted(self._box.gpus.device_directory.iterdir())
            ),
            mounts=() if limit is None else (await self._allocation(name, limit),),
        )
        keep = (lambda _line: None) if lines is None else lines.append
        return await start_container(spec, self._work / f"{name}.json", keep)

    async def _allocation(self, name: str, limit: int) -> BindMount:
        limits = [Limit(self.uuid, Bytes(limit), 100, 100)]
        directory = await self._manager.open(AllocationID(name), limits)
        return BindMount(str(directory), "/etc/vcuda", read_only=True)
