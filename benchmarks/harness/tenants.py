"""All tenants of a stage: their guarantees, their programs, and what they have received.

A tenant is one allocation. Each of its programs has a file system of its own, by which the GPU's
account tells it from the others; what a limit counts is the allocation.
"""

import asyncio
import contextlib
import json
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias

from driver_libraries import lay_out
from virtual_clock import Clock

from gpumanager.ids import AllocationID
from gpumanager.limits.manager import VirtualManager
from gpumanager.limits.values import Limit
from gpumanager.names import CONTAINER_TURNS, CONTAINER_VCUDA
from gpumanager.sim.clock import NS
from gpumanager.sim.container.process import ContainerProcess, start_container
from gpumanager.sim.container.values import BindMount, ContainerSpec
from gpumanager.sim.gpu import SONAMES, SimulatedGpus
from gpumanager.sim.host import NodeDisk
from gpumanager.units import CORES_PER_GPU, Bytes
from harness.values import HarnessFailed, Tenant
from vcuda_shim import PROGRAMS

LimiterKind: TypeAlias = Literal["shim", "none"] | Path
BASELINE_PERCENT: Final = "BASELINE_PERCENT"
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

    async def begin(self, spec: ContainerSpec, clock: Clock) -> None:
        """Start it, and let it come as far as its start; raises HarnessFailed."""
        self._process = await start_container(spec, self._lines.append)
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


class TenantGroup:
    """Programs on the machine's first GPUs, `count` of them; close() ends them all."""

    def __init__(
        self,
        disk: NodeDisk,
        gpus: SimulatedGpus,
        tenants: Sequence[Tenant],
        *,
        manager: VirtualManager,
        limiter: LimiterKind,
        count: int = 1,
    ) -> None:
        self._disk, self._gpus = disk, gpus
        self._manager = manager
        self._shared = gpus.machine.topology.gpus[:count]
        self._tenants = tuple(tenants)
        self._limiter = limiter
        self._programs: dict[str, list[Program]] = {tenant.name: [] for tenant in tenants}

    async def assemble(self, clock: Clock, begin: int) -> None:
        """Start all programs as far as their start lines; the stage's start is at `begin`."""
        cuda, nvml = (self._disk.libraries / name for name in SONAMES.values())
        shim = self._limiter == "shim"
        libraries = lay_out(self._disk.base / "lib", cuda, nvml, shim=shim)
        starts = []
        setups = [await self._program_setup(tenant, libraries) for tenant in self._tenants]
        if shim and any(tenant.cores < CORES_PER_GPU for tenant in self._tenants):
            await clock.line_up_threads()  # the arbiter's
        for tenant, setup in zip(self._tenants, setups, strict=True):
            starts += [
                self._start(tenant, number, setup, clock, begin)
                for number in range(tenant.processes)
            ]
        if clock.one_by_one:
            for start in starts:
                await start
        else:
            await asyncio.gather(*starts)

    async def _program_setup(self, tenant: Tenant, libraries: Path) -> ProgramSetup:
        names = ("nvidiactl", *(f"nvidia{gpu.minor}" for gpu in self._shared), "nvidia-uvm")
        folder = self._gpus.device_directory
        devices = tuple(BindMount(str(folder / name), f"/dev/{name}") for name in names)
        if isinstance(self._limiter, Path):
            percent = {BASELINE_PERCENT: str(tenant.cores)}
            preload = (self._limiter,)
            return ProgramSetup(libraries, devices, preload=preload, environment=percent)
        if self._limiter != "shim":
            return ProgramSetup(libraries, devices)
        allocation = await self.guarantee(tenant)
        name = AllocationID(tenant.container or tenant.name)
        turns = None if tenant.older else self._manager.turns(name)
        return ProgramSetup(libraries, devices, allocation, turns)

    async def guarantee(self, tenant: Tenant) -> Path:
        """Write its limits, for running programs too; return the allocation's directory."""
        ceiling = max(tenant.cores, tenant.ceiling or 0)
        memory = Bytes(self._shared[0].memory // len(self._tenants))
        limits = [Limit(gpu.uuid, memory, tenant.cores, ceiling) for gpu in self._shared]
        allocation = AllocationID(tenant.container or tenant.name)
        return await self._manager.open(allocation, limits)

    async def _start(
        self, tenant: Tenant, number: int, setup: ProgramSetup, clock: Clock, begin: int
    ) -> None:
        start = begin + round(tenant.start * NS)
        words = words_of(tenant.workload, start)
        waits = str(start) in words
        program = Program(f"{tenant.name}-{number}", start if waits else 0)
        self._programs[tenant.name].append(program)
        await program.begin(setup.spec(words, clock), clock)

    def received(self) -> dict[str, int]:
        """Return the nanoseconds of GPU time that each tenant has received until now."""
        accounts = {row.mount_namespace: row for row in self._gpus.tenants()}
        received = dict.fromkeys(self._programs, 0)
        for name, programs in self._programs.items():
            for program in programs:
                account = accounts.get(program.mount_namespace or 0)
                if account is not None:
                    received[name] += sum(account.devices[gpu.uuid].busy_ns for gpu in self._shared)
        return received

    def lost(self) -> int:
        """Return the nanoseconds of GPU time that switches between processes took until now."""
        return sum(self._gpus.lost_ns(gpu.uuid) for gpu in self._shared)

    def _all(self) -> Iterator[Program]:
        for programs in self._programs.values():
            yield from programs

    def check(self) -> None:
        """Raise HarnessFailed if a program has failed."""
        for program in self._all():
            program.check()

    @property
    def ended(self) -> bool:
        return all(program.ended for program in self._all())

    def reports(self) -> dict[str, Mapping[str, Any]]:
        return {
            name: together([told for program in programs if (told := program.report())])
            for name, programs in self._programs.items()
        }

    async def close(self) -> None:
        for program in self._all():
            await program.close()


_SUMS: Final = frozenset({"launches", "kernels", "bytes", "gpu_seconds", "processes"})


def together(told: Sequence[Mapping[str, Any]]) -> Mapping[str, Any]:
    """Merge the reports of several processes into one: see HarnessResult."""
    if len(told) < 2:
        return told[0] if told else {}
    merged: dict[str, Any] = {"each": tuple(told)}
    for key in told[0]:
        values = [report[key] for report in told if isinstance(report.get(key), int | float)]
        if values:
            merged[key] = sum(values) if key in _SUMS else max(values)
    return merged
