"""Simulated GPUs, and containers on them in which real clients run, unmodified.

A container with a limit has the shim and an allocation; one without has the simulated driver bare,
so that the same program can be run both ways. What a program prints as `tell(…)` comes back.
"""

import asyncio
import json
import shutil
import sys
import tempfile
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

from driver_libraries import lay_out

from gpumanager.gpu.values import GpuUUID
from gpumanager.ids import AllocationID
from gpumanager.limits.manager import VirtualManager
from gpumanager.limits.turns import Turns
from gpumanager.limits.values import Limit
from gpumanager.names import CONTAINER_TURNS, CONTAINER_VCUDA
from gpumanager.sim.container.process import ContainerProcess, start_container
from gpumanager.sim.container.values import BindMount, ContainerSpec
from gpumanager.sim.gpu import DeviceAccount
from gpumanager.units import Bytes
from tests import ROOT
from tests.native.sim_box import SimBox, machine

SECONDS = 300.0
"""Bound for one client; numba's tests take some 20 s on two idle cores."""

WHOLE: Final = 100
"""Cores: percent of one GPU."""

_NOTHING: Final[Mapping[str, str]] = MappingProxyType({})
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
    """Made by `client_box`, and by the fixture `clients` with one GPU."""

    def __init__(self, box: SimBox, manager: VirtualManager, work: Path) -> None:
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

    async def run(
        self,
        *command: str,
        limit: int | None = None,
        cores: int = WHOLE,
        environment: Mapping[str, str] = _NOTHING,
        directory: Path | None = None,
        seconds: float = SECONDS,
    ) -> Finished:
        """Run it to its end; limit: bytes of each GPU, None for the bare driver; cores: percent."""
        lines: list[str] = []
        process = await self.start(
            *command,
            limit=limit,
            lines=lines,
            cores=cores,
            environment=environment,
            directory=directory,
        )
        try:
            status = await asyncio.wait_for(process.wait(), seconds)
        finally:
            await process.close()
        return Finished(status, tuple(lines))

    async def start(
        self,
        *command: str,
        limit: int | None,
        lines: list[str] | None = None,
        cores: int = WHOLE,
        environment: Mapping[str, str] = _NOTHING,
        directory: Path | None = None,
    ) -> ContainerProcess:
        self._started += 1
        name = f"client-{self._started}"
        driver = self._box.libraries if limit is None else self._shims
        others = environment.get("LD_LIBRARY_PATH")
        spec = ContainerSpec(
            command=command,
            environment={
                "PATH": "/usr/bin:/bin",
                "HOME": str(self._work),
                "PYTHONPATH": str(ROOT),
                "LOGNAME": "client",
                "COLUMNS": "120",
                **environment,
                "LD_LIBRARY_PATH": f"{driver}:{others}" if others else str(driver),
            },
            directory=None if directory is None else str(directory),
            devices=tuple(
                BindMount(str(path), f"/dev/{path.name}")
                for path in sorted(self._box.gpus.device_directory.iterdir())
            ),
            mounts=() if limit is None else await self._mounts(AllocationID(name), limit, cores),
        )
        keep = (lambda _line: None) if lines is None else lines.append
        return await start_container(spec, keep)

    async def _mounts(self, name: AllocationID, limit: int, cores: int) -> tuple[BindMount, ...]:
        gpus = self._box.machine.topology.gpus
        limits = [Limit(gpu.uuid, Bytes(limit), cores, cores) for gpu in gpus]
        directory = await self._manager.open(name, limits)
        places = ((directory, CONTAINER_VCUDA), (self._manager.turns(name), CONTAINER_TURNS))
        return tuple(BindMount(str(one), str(at), read_only=True) for one, at in places if one)


@asynccontextmanager
async def client_box(gpus: int = 1) -> AsyncIterator[ClientBox]:
    """A machine, and the manager that limits its containers."""
    work = Path(tempfile.mkdtemp(prefix="gm", dir="/tmp"))
    manager = VirtualManager(work / "vm", turns=Turns(work / "turns"))
    with SimBox(work / "machine", machine(gpus)) as box:
        yield ClientBox(box, manager, work)
    await manager.stop()
    shutil.rmtree(work, ignore_errors=True)
