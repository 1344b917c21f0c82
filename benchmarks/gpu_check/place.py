"""The rooms in which limited programs run.

A room is a driver directory as containers get it, with copies of the built shims that look for
their allocation at a path of the room instead of /etc/vcuda: one as long, so that the copy differs
in those bytes alone. The path is a link to the allocation of the program that runs there now. So
neither root, nor a mount namespace, nor a compiler is needed. A program without the shim gets this
machine's environment as it is.
"""

import asyncio
import os
import secrets
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import vcuda_shim
from gpu_check.bench import WORKLOADS
from gpu_check.evidence import Evidence, Watch
from gpu_check.machine import Machine, visible
from gpu_check.outcome import CheckFailed
from gpu_check.process import lines_of, told
from gpumanager.gpu.nvml_service import NvmlService
from gpumanager.ids import AllocationID
from gpumanager.limits.manager import TICK_SECONDS, VirtualManager
from gpumanager.limits.turns import Turns
from gpumanager.limits.values import Limit
from gpumanager.units import GIB, Bytes
from gpumanager.volume.driver import Driver
from gpumanager.volume.elf import read_elf
from gpumanager.volume.find import Component
from gpumanager.volume.host import Host
from gpumanager.volume.layout import lay_out
from gpumanager.volume.mirror import mirror
from gpumanager.volume.shims import Shims, put_shims

ROOMS: Final = ("a", "b")
"""As many as programs run limited at the same time."""

ALLOCATION: Final = b"/etc/vcuda"
"""Where a shim looks for its allocation; in its file followed by `/…` or by a zero."""

WHOLE: Final = 100
MEASURE_SECONDS: Final = 1.0
MOST_MEMORY: Final = Bytes(8 * GIB)
FILLED_MEMORY: Final = Bytes(3 * GIB)
"""Limits of programs that compute, and of those that fill their limit."""

UNTHROTTLED: Final = 99
"""Percent: all hooks of GPU time are at work, and hardly hold a program back."""

PART: Final = 0.4
"""Of the GPU's memory at most for one program."""


@dataclass(slots=True)
class Room:
    """libraries: its driver directory. link: where its shims look for their allocation. memory:
    the limit that was asked for.
    """

    name: str
    libraries: Path
    link: Path
    allocation: AllocationID | None = None
    memory: Bytes = Bytes(0)  # noqa: RUF009 - bytes are an int


@dataclass(slots=True)
class Place:
    """Where everything of the check happens; a temporary directory, the manager, the rooms."""

    machine: Machine
    work: Path
    manager: VirtualManager
    rooms: dict[str, Room]
    _programs: int = field(default=0)

    async def limit(self, cores: int, memory: Bytes | None = None, room: str = "a") -> Room:
        """A fresh allocation for the next program of this room."""
        chosen = self.rooms[room]
        self._programs += 1
        allocation = AllocationID(f"{room}-{self._programs}")
        chosen.memory = memory or self.computing()
        directory = await self.manager.open(allocation, self._limits(cores, chosen.memory))
        if (words := self.manager.turns(allocation)) is not None:
            (directory / "turns").rmdir()
            (directory / "turns").symlink_to(words)  # in a container, a mount
        hidden = chosen.link.with_suffix(".new")
        hidden.symlink_to(directory)
        hidden.replace(chosen.link)
        if chosen.allocation is not None:
            await self.manager.close(chosen.allocation)
        chosen.allocation = allocation
        return chosen

    def require_books(self, rooms: Sequence["Room | None"]) -> None:
        """Raises CheckFailed where the programs of a room left nothing in the manager's books."""
        for room in rooms:
            if room is not None and room.allocation is not None:
                (device,) = self.manager.usage(room.allocation).devices
                if device.peak + device.launches + device.charged_ns == 0:
                    raise CheckFailed(f"the programs of room {room.name} are not in the books")

    async def change(self, room: Room, cores: int) -> None:
        """Another share for the programs that run there."""
        if room.allocation is not None:
            await self.manager.open(room.allocation, self._limits(cores, None))

    def computing(self) -> Bytes:
        return self._at_most(MOST_MEMORY)

    def filled(self) -> Bytes:
        return self._at_most(FILLED_MEMORY)

    async def run(
        self, room: Room, name: str, seconds: float, *words: str, **environment: str
    ) -> Evidence:
        """A workload in a room, to its end; raises CheckFailed and Lost."""
        command: list[str | Path] = [self.machine.python, WORKLOADS / name, *words]
        return await self.watch(room, command, self.inside(room) | environment, seconds)

    async def watch(
        self,
        room: Room,
        command: Sequence[str | Path],
        environment: Mapping[str, str],
        seconds: float,
    ) -> Evidence:
        """Any program that uses the allocation of a room; raises CheckFailed and Lost."""
        if room.allocation is None:
            raise CheckFailed(f"room {room.name} has no allocation")
        watch = Watch(self.manager, room.allocation, self.machine.gpu)
        async with watch.watching():
            said = await told(command, environment, self.output(room.name), seconds)
        await asyncio.sleep(2 * TICK_SECONDS)  # until its last turns are in its meters
        return watch.evidence(said, room.memory)

    async def lines(self, room: Room, command: Sequence[str | Path], seconds: float) -> list[str]:
        """What another program prints in a room."""
        name = Path(command[0]).name
        return await lines_of(command, self.inside(room), self.output(name), seconds)

    def inside(self, room: Room) -> dict[str, str]:
        """The environment of a limited program."""
        paths = [str(room.libraries), os.environ.get("LD_LIBRARY_PATH", "")]
        return self.outside() | {"LD_LIBRARY_PATH": ":".join(filter(None, paths))}

    def outside(self) -> dict[str, str]:
        """The environment of a program without the shim."""
        return visible(self.machine.gpu)

    def output(self, name: str) -> Path:
        self._programs += 1
        return self.work / f"{self._programs}-{Path(name).stem}.log"

    def has(self, module: str) -> bool:
        return module in self.machine.modules

    def _limits(self, cores: int, memory: Bytes | None) -> list[Limit]:
        return [Limit(self.machine.gpu, memory or self.computing(), cores, cores)]

    def _at_most(self, wanted: Bytes) -> Bytes:
        mib = min(wanted, int(self.machine.memory * PART)) >> 20
        return Bytes(mib << 20)


@asynccontextmanager
async def furnished(machine: Machine, work: Path) -> AsyncIterator[Place]:
    """The place, with its manager running; `work` has a short name and is the caller's."""
    rooms = {name: furnish(machine, work, name) for name in ROOMS}
    manager = VirtualManager(
        work / "vm",
        nvml=NvmlService(),
        turns=Turns(work / "words"),
    )
    looking = (manager.measure_every(MEASURE_SECONDS), manager.share_every(TICK_SECONDS))
    tasks = [asyncio.ensure_future(one) for one in looking]
    try:
        yield Place(machine, work, manager, rooms)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
        await manager.stop()
        for room in rooms.values():  # some may have been made meanwhile
            room.link.unlink()


def furnish(machine: Machine, work: Path, name: str, folder: str = "shim") -> Room:
    """A room of that name, without an allocation. folder: which of the built shims it has."""
    link, shims = _free_link(work), work / f"shims-{name}"
    shims.mkdir()
    built = vcuda_shim.SHIM_CUDA.parent.with_name(folder)
    for library in ("libcuda.so.1", "libnvidia-ml.so.1", "libcuda.so", "libnvidia-ml.so"):
        redirect(built / library, shims / library, link)
    return Room(name, _lay_out(machine, shims, work / f"driver-{name}") / "lib64", link)


def redirect(source: Path, target: Path, link: Path) -> None:
    """A copy of a shim that looks for its allocation elsewhere; raises CheckFailed."""
    content, there = source.read_bytes(), str(link).encode()
    if len(there) != len(ALLOCATION):
        raise CheckFailed(f"{link} is not as long as {ALLOCATION.decode()}")
    if source.name == "libcuda.so.1" and ALLOCATION + b"\0" not in content:
        raise CheckFailed(f"{source} does not name {ALLOCATION.decode()}")
    target.write_bytes(content.replace(ALLOCATION, there))


def _free_link(work: Path) -> Path:
    """A path of the right length that nothing has; its link leads nowhere yet."""
    while True:
        link = Path(f"/tmp/gc{secrets.token_hex(2)[:3]}")
        with suppress(FileExistsError):
            link.symlink_to(work / "nowhere")
            return link


def _lay_out(machine: Machine, shims: Path, base: Path) -> Path:
    cuda, ml = _component(machine.cuda), _component(machine.ml)
    built = Shims(
        cuda=shims / "libcuda.so.1",
        ml=shims / "libnvidia-ml.so.1",
        cuda_link=shims / "libcuda.so",
        ml_link=shims / "libnvidia-ml.so",
    )
    driver, host = Driver(machine.version, cuda), Host(Path("/"), ())
    plan, _ = put_shims(lay_out((), (cuda, ml)), (cuda, ml), built, driver, host)
    return mirror(plan, base, "nvidia")


def _component(path: Path) -> Component:
    real = path.resolve()
    elf = read_elf(real)
    if elf is None:
        raise CheckFailed(f"{real} is not an ELF file")
    return Component(real.name, real, elf)
