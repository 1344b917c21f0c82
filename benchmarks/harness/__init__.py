"""A stage: one simulated GPU, tenants with shares of it, and what each of them got.

    played = await play([Tenant("a", 30, "kernel=2ms for=5s"),
                         Tenant("b", 60, "kernel=10ms pattern=sync for=5s")], seconds=5)
    played.share("a")                       # by the simulated GPU's own account

The programs are real processes behind the real shim, served by the real virtual manager in this
process's loop. On the virtual clock a run is repeatable to the nanosecond and takes as long as the
computer needs; on the system's clock it takes as long as it says.

Programs are started one after another, each as far as its start line, before the time of the
stage begins. From then on the stage sleeps, and wakes at the end of each interval to read the
account, and whenever something changes. On the system's clock they load all at once.
"""

import asyncio
import contextlib
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Final, Literal, TypeAlias

from virtual_clock import Clock, SystemClock, virtual_clock

from gpumanager.errors import GpuManagerError
from gpumanager.limits.manager import TICK_SECONDS, VirtualManager
from gpumanager.limits.turns import Turns
from gpumanager.sim.clock import NS
from gpumanager.sim.container.process import namespaces_available
from gpumanager.sim.host import furnish, make_disk
from gpumanager.sim.machine import DriverBehaviour
from gpumanager.sim.machines import load_machine
from harness.tenants import LimiterKind, TenantGroup
from harness.utilization import SimulatedUtilization
from harness.values import HarnessFailed, HarnessResult, Tenant

__all__ = ["HarnessFailed", "HarnessResult", "Tenant", "play"]

MACHINE: Final = "h100"
SEVERAL: Final = "dgx-a100"
"""The machine of a stage with more than one GPU."""

ASSEMBLY_SECONDS: Final = 1.0
EACH_SECONDS: Final = 0.3
"""Before the stage's start, for programs to load: for all of them, and more for each."""

DRAIN_SECONDS: Final = 5.0
"""After the stage's end, for programs to finish what they have queued and to say what they did."""

DRAIN_STEP: Final = NS // 20
LATE_NS: Final = NS // 20

ClockKind: TypeAlias = Literal["virtual", "real"]
Moment: TypeAlias = Tenant | Literal["look", "mark"]


async def play(
    tenants: Sequence[Tenant],
    seconds: float,
    *,
    clock: ClockKind = "virtual",
    interval: float = 0.1,
    driver: DriverBehaviour | None = None,
    gpus: int = 1,
    limiter: LimiterKind = "shim",
    managed: bool = True,
    same_pids: bool = True,
    wake_ns: int | None = None,
) -> HarnessResult:
    """Play it to its end. Raises HarnessFailed if a program fails, or another GpuManagerError.

    driver: how it behaves; None: as the machine has it. gpus: that each tenant has its share of.
    limiter: the shim, or "none", or a library to preload in its place, which finds its limit in
    BASELINE_PERCENT. managed: whether the manager looks at what processes use ten times a second,
    as an agent does; the arbiter of turns runs all the same. same_pids: whether the driver knows
    processes by the numbers that the manager does. wake_ns: how long a woken thread takes to go on,
    on the virtual clock; None: the clock's own.
    """
    if missing := await asyncio.to_thread(namespaces_available):
        raise GpuManagerError(missing)
    async with contextlib.AsyncExitStack() as last_first:
        disk = make_disk()
        last_first.callback(disk.remove)
        time: Clock = SystemClock()
        if clock == "virtual":
            time = virtual = last_first.enter_context(virtual_clock(disk.base / "clock"))
            if wake_ns is not None:
                virtual.set_wake(wake_ns)
        machine = load_machine(MACHINE if gpus == 1 else SEVERAL)
        simulated = furnish(disk, machine if driver is None else replace(machine, driver=driver))
        last_first.callback(simulated.close)
        world = time.world() if limiter == "shim" else 0
        manager = VirtualManager(disk.virtual, turns=Turns(disk.turns, world=world))
        last_first.push_async_callback(manager.stop)
        last_first.callback(time.end_world)
        company = TenantGroup(
            disk, simulated, tenants, manager=manager, limiter=limiter, count=gpus
        )
        last_first.push_async_callback(company.close)
        count = sum(tenant.processes for tenant in tenants)
        begin = time.now() + round((ASSEMBLY_SECONDS + EACH_SECONDS * count) * NS)
        await company.assemble(time, begin)
        await time.sleep_until(begin)
        if time.now() > begin + LATE_NS:
            raise HarnessFailed("not all programs were loaded in time: the machine is busy")
        marks, lost = [company.received()], [company.lost()]
        utilization = SimulatedUtilization(simulated, time.now, same_pids=same_pids)
        for at, moment in agenda(tenants, seconds, interval, managed=managed):
            await time.sleep_until(begin + round(at * NS))
            company.check()
            match moment:
                case Tenant():
                    await company.guarantee(moment)
                case "look":
                    manager.share_now(time.now(), utilization())
                case "mark":
                    marks.append(company.received())
                    lost.append(company.lost())
        # The programs end by themselves; those that do not are ended with the harness.
        last = time.now() + round(DRAIN_SECONDS * NS)
        while time.now() < last and not company.ended:
            await time.sleep_until(time.now() + DRAIN_STEP)
        company.check()
        received = {name: _steps([mark[name] for mark in marks]) for name in marks[0]}
        return HarnessResult(seconds, interval, received, company.reports(), _steps(lost))


def agenda(
    tenants: Sequence[Tenant], seconds: float, interval: float, *, managed: bool = True
) -> Sequence[tuple[float, Moment]]:
    """Return what happens at which second: a tenant's guarantee changes, the manager looks, an
    interval ends."""
    return sorted(
        [
            *_every(interval, seconds, "mark")[1:],
            *(_every(TICK_SECONDS, seconds, "look") if managed else ()),
            *((at, replace(one, cores=cores)) for one in tenants for at, cores in one.changes),
        ],
        key=lambda row: row[0],
    )


def _every(step: float, seconds: float, moment: Moment) -> list[tuple[float, Moment]]:
    return [(number * step, moment) for number in range(round(seconds / step) + 1)]


def _steps(marks: Sequence[int]) -> tuple[float, ...]:
    return tuple((after - before) / NS for before, after in pairwise(marks))
