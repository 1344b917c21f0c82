"""A stage: one simulated GPU, tenants with shares of it, and what each of them got.

    played = await play([Tenant("a", 30, "kernel=2ms for=5s"),
                         Tenant("b", 60, "kernel=10ms pattern=sync for=5s")], seconds=5)
    played.share("a")                       # 0.3, by the simulated GPU's own account

The programs are real processes behind the real shim, served by the real virtual manager in this
process's loop. On the virtual clock a run is repeatable to the nanosecond and takes as long as the
computer needs; on the system's clock it takes as long as it says.

Programs are started one after another, each as far as its start line, before the time of the stage
begins. From then on the stage sleeps, and wakes at the end of each interval to read the account, and
whenever something changes.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias

from gpumanager.errors import GpuManagerError
from gpumanager.sim.clock import Clock, RealClock, virtual_clock
from gpumanager.sim.container.process import namespaces_available
from gpumanager.sim.container.values import BindMount
from gpumanager.sim.gpu import SimulatedGpus
from gpumanager.sim.host import NodeDisk, furnish, make_disk
from gpumanager.sim.machines import load_machine
from gpumanager.sim.stage_programs import Program, StageFailed, Surroundings, command, lay_out
from gpumanager.units import Bytes
from gpumanager.virtual.manager import VirtualSockets
from gpumanager.virtual.values import AllocationID, Limit

MACHINE: Final = "h100"
NS: Final = 1_000_000_000
ASSEMBLY_SECONDS: Final = 1.0
"""Before the stage's start, for programs to load; on the system's clock for each of them."""

CURTAIN_SECONDS: Final = 5.0
"""After the stage's end, for programs to finish what they have queued and to say what they did."""

CURTAIN_STEP: Final = NS // 20

LimiterKind: TypeAlias = Literal["shim", "none"] | Path
Manage: TypeAlias = Callable[[float], None]


@dataclass(frozen=True, slots=True)
class Tenant:
    """One container. workload: text for cuda-work, or the words of another of our programs.

    cores, ceiling: percent of the GPU promised, and at most (None: no more than promised). start:
    seconds after the stage's. changes: promises made later, by the second. burst_us: how much
    unused time may be saved up; 0 for the shim's own choice.
    """

    name: str
    cores: int
    workload: str
    ceiling: int | None = None
    start: float = 0.0
    processes: int = 1
    burst_us: int = 0
    changes: tuple[tuple[float, int], ...] = ()

    def limit(self, memory: int, template: Limit) -> Limit:
        ceiling = self.cores if self.ceiling is None else max(self.ceiling, self.cores)
        return replace(template, memory=Bytes(memory), cores=self.cores, ceiling=ceiling)


@dataclass(frozen=True, slots=True)
class Played:
    """What happened. busy: per tenant, GPU seconds received in each interval. reports: what its
    programs told; of several the sums, and of what is no sum the most."""

    seconds: float
    interval: float
    busy: Mapping[str, tuple[float, ...]]
    reports: Mapping[str, Mapping[str, Any]]

    def share(self, name: str, since: float = 0.0, until: float | None = None) -> float:
        """The part of the GPU's time that a tenant got, of whole intervals between two moments."""
        first = round(since / self.interval)
        last = round((self.seconds if until is None else until) / self.interval)
        return sum(self.busy[name][first:last]) / ((last - first) * self.interval)


async def play(
    tenants: Sequence[Tenant],
    seconds: float,
    *,
    clock: Literal["virtual", "real"] = "virtual",
    interval: float = 0.1,
    slice_ms: float | None = None,
    limiter: LimiterKind = "shim",
    manage: Manage | None = None,
) -> Played:
    """Play it to its end. Raises StageFailed if a program fails, GpuManagerError otherwise.

    slice_ms: for how long a process has the GPU while others want it. limiter: the shim, or "none",
    or a library to preload in its place, which finds its limit in BASELINE_PERCENT. manage: called
    at the end of each interval with the clock's seconds, to hand out idle shares.
    """
    if missing := await asyncio.to_thread(namespaces_available):
        raise GpuManagerError(missing)
    async with _stage(tenants, clock, slice_ms, limiter) as stage:
        return await stage.play(seconds, interval, manage)


@contextlib.asynccontextmanager
async def _stage(
    tenants: Sequence[Tenant], clock: str, slice_ms: float | None, limiter: LimiterKind
) -> AsyncIterator["Stage"]:
    disk = make_disk()
    async with contextlib.AsyncExitStack() as last_first:
        last_first.callback(disk.remove)
        time = last_first.enter_context(_clock(clock, disk))
        machine = load_machine(MACHINE)
        gpus = furnish(disk, machine)
        last_first.callback(gpus.close)
        manager = VirtualSockets(disk.virtual)
        last_first.push_async_callback(manager.stop)
        stage = Stage(disk, time, gpus, manager, tenants, limiter)
        last_first.push_async_callback(stage.close)
        yield stage


def _clock(kind: str, disk: NodeDisk) -> contextlib.AbstractContextManager[Clock]:
    if kind == "virtual":
        return virtual_clock(disk.base / "clock")
    return contextlib.nullcontext(RealClock())


class Stage:
    """What `play` plays on; close() ends every program."""

    def __init__(
        self,
        disk: NodeDisk,
        clock: Clock,
        gpus: SimulatedGpus,
        manager: VirtualSockets,
        tenants: Sequence[Tenant],
        limiter: LimiterKind,
    ) -> None:
        self._disk, self._clock, self._gpus, self._manager = disk, clock, gpus, manager
        self._tenants = {tenant.name: tenant for tenant in tenants}
        self._limiter = limiter
        self._gpu = gpus.machine.topology.gpus[0]
        self._programs: dict[str, list[Program]] = {tenant.name: [] for tenant in tenants}

    async def play(self, seconds: float, interval: float, manage: Manage | None) -> Played:
        begin = await self._assemble()
        marks = [self._busy()]
        for at, change in self._agenda(seconds, interval):
            await self._clock.sleep_until(begin + round(at * NS))
            self._check()
            if change is not None:
                await self._promise(change)
                continue
            marks.append(self._busy())
            if manage is not None:
                manage(self._clock.now() / NS)
        await self._curtain()
        busy = {name: _differences([mark[name] for mark in marks]) for name in self._tenants}
        return Played(seconds, interval, busy, self._reports())

    def _agenda(self, seconds: float, interval: float) -> list[tuple[float, Tenant | None]]:
        """Moments, and the tenant with its new promise; None: an interval ends."""
        marks: list[tuple[float, Tenant | None]] = [
            (step * interval, None) for step in range(1, round(seconds / interval) + 1)
        ]
        changes = [
            (at, replace(tenant, cores=cores))
            for tenant in self._tenants.values()
            for at, cores in tenant.changes
        ]
        return sorted([*marks, *changes], key=lambda row: row[0])

    async def _assemble(self) -> int:
        """Start all programs up to their start lines; returns the clock at the stage's start."""
        libraries = lay_out(
            self._disk.base / "lib", self._disk.libraries, shim=self._limiter == "shim"
        )
        count = sum(tenant.processes for tenant in self._tenants.values())
        begin = self._clock.now() + round(ASSEMBLY_SECONDS * NS) * count
        for tenant in self._tenants.values():
            surroundings = await self._surroundings(tenant, libraries)
            for number in range(tenant.processes):
                await self._start(tenant, number, surroundings, begin)
        await self._clock.sleep_until(begin)
        if self._clock.now() > begin + NS // 10:
            raise StageFailed("the programs were not loaded in time: the machine is busy")
        return begin

    async def _surroundings(self, tenant: Tenant, libraries: Path) -> Surroundings:
        names = ("nvidiactl", f"nvidia{self._gpu.minor}", "nvidia-uvm")
        folder = self._gpus.device_directory
        devices = tuple(BindMount(str(folder / name), f"/dev/{name}") for name in names)
        if isinstance(self._limiter, Path):
            percent = {"BASELINE_PERCENT": str(tenant.cores)}
            return Surroundings(libraries, devices, None, (self._limiter,), percent)
        managed = self._limiter == "shim"
        allocation = await self._promise(tenant) if managed else None
        return Surroundings(libraries, devices, allocation)

    async def _promise(self, tenant: Tenant) -> Path:
        """What the manager writes for it, in running programs too; the allocation's directory."""
        template = Limit(self._gpu.uuid, Bytes(0), 0, 0)
        limit = tenant.limit(self._gpu.memory // len(self._tenants), template)
        return await self._manager.open(AllocationID(tenant.name), [limit])

    async def _start(
        self, tenant: Tenant, number: int, surroundings: Surroundings, begin: int
    ) -> None:
        start = begin + round(tenant.start * NS)
        words = command(tenant.workload, start)
        waits = start if "--start" in words else None
        program = Program(f"{tenant.name}-{number}", waits)
        self._programs[tenant.name].append(program)
        spec = surroundings.spec(words, self._clock)
        await program.begin(spec, self._disk.base / f"{program.name}.json")
        if not isinstance(self._clock, RealClock):
            await program.line_up(self._clock)

    def _busy(self) -> dict[str, int]:
        """Nanoseconds of GPU time that each tenant has received until now."""
        accounts = {row.mount_namespace: row for row in self._gpus.tenants()}
        received = {
            program.process.mount_namespace: name
            for name, programs in self._programs.items()
            for program in programs
        }
        busy = dict.fromkeys(self._tenants, 0)
        for namespace, account in accounts.items():
            if namespace in received:
                busy[received[namespace]] += account.devices[self._gpu.uuid].busy_ns
        return busy

    def _all(self) -> Iterator[Program]:
        for programs in self._programs.values():
            yield from programs

    def _check(self) -> None:
        for program in self._all():
            program.check()

    async def _curtain(self) -> None:
        """Let the programs end by themselves; who does not is ended with the stage."""
        last = self._clock.now() + round(CURTAIN_SECONDS * NS)
        while self._clock.now() < last and not all(program.ended for program in self._all()):
            await self._clock.sleep_until(self._clock.now() + CURTAIN_STEP)
        self._check()

    def _reports(self) -> dict[str, Mapping[str, Any]]:
        return {
            name: _together([told for program in programs if (told := program.report())])
            for name, programs in self._programs.items()
        }

    async def close(self) -> None:
        for program in self._all():
            await program.close()


def _differences(marks: Sequence[int]) -> tuple[float, ...]:
    pairs = zip(marks, marks[1:], strict=False)
    return tuple((after - before) / NS for before, after in pairs)


_SUMS: Final = frozenset({"launches", "gpu_seconds"})


def _together(told: Sequence[Mapping[str, Any]]) -> Mapping[str, Any]:
    """One report of several processes."""
    if len(told) < 2:  # noqa: PLR2004 - none, or one
        return dict(told[0]) if told else {}
    merged: dict[str, Any] = {"processes": list(told)}
    for key, value in told[0].items():
        if isinstance(value, int | float):
            values = [report[key] for report in told if key in report]
            merged[key] = sum(values) if key in _SUMS else max(values)
    return merged
