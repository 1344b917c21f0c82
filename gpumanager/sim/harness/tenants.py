"""All tenants of a stage: their guarantees, their programs, and what they have received.

A tenant is one allocation. Each of its programs has a file system of its own, by which the GPU's
account tells it from the others; what a limit counts is the allocation.
"""

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias

from gpumanager.ids import AllocationID
from gpumanager.limits.manager import VirtualManager
from gpumanager.limits.values import Limit
from gpumanager.sim.clock import NS, Clock
from gpumanager.sim.container.values import BindMount
from gpumanager.sim.gpu import SONAMES, SimulatedGpus
from gpumanager.sim.harness.program import Program, ProgramSetup, words_of
from gpumanager.sim.harness.values import Tenant
from gpumanager.sim.host import NodeDisk
from gpumanager.sim.libraries import lay_out
from gpumanager.units import CORES_PER_GPU, Bytes

LimiterKind: TypeAlias = Literal["shim", "none"] | Path
BASELINE_PERCENT: Final = "BASELINE_PERCENT"


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
        spec_path = self._disk.base / f"{program.name}.json"
        await program.begin(setup.spec(words, clock), spec_path, clock)

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
    if len(told) < 2:  # noqa: PLR2004 - none, or one
        return told[0] if told else {}
    merged: dict[str, Any] = {"each": tuple(told)}
    for key in told[0]:
        values = [report[key] for report in told if isinstance(report.get(key), int | float)]
        if values:
            merged[key] = sum(values) if key in _SUMS else max(values)
    return merged
