"""One simulated GPU on the virtual clock, and containers with a share of it behind the shim.

Their programs and the arbiter live by that clock, so a share is what turns make it, however busy
the machine is. No agent looks at samples.
"""

import asyncio
from pathlib import Path
from typing import Any

from virtual_clock import VirtualClock

from gpumanager.limits.manager import VirtualManager
from gpumanager.limits.turns import Turns
from gpumanager.sim.clock import NS
from gpumanager.sim.gpu import SimulatedGpus
from tests.native.gpu_node import GpuNode, accounts, machine_of
from tests.native.shim_container import Container

STEP = NS // 200


class TimedGpu:
    """To be made under the clock."""

    def __init__(self, work: Path, clock: VirtualClock, **driver: int) -> None:
        self.gpu = SimulatedGpus.create(work, machine_of(memory_bandwidth=10**9))
        self.clock = clock
        self._work = work
        self._manager = VirtualManager(work, turns=Turns(work / "turns", world=clock.world()))
        self._node = GpuNode(work, self._manager, self.gpu)
        self._own = 1

    async def container(self, name: str, cores: int) -> Container:
        container = await self._node.container(cores=cores, name=name)
        if container.turns is not None and self._own == 1:
            await self.clock.line_up_threads()  # the arbiter's
            self._own = 2
        return container

    async def close(self) -> None:
        self.clock.end_world()
        await self._manager.stop()
        self.gpu.close()

    def start(self, container: Container, script: str) -> asyncio.Task[dict[str, Any]]:
        """It runs while somebody lets time pass."""
        return asyncio.create_task(container.run(script, **self.clock.environment()))

    async def run(self, *scripts: tuple[Container, str]) -> list[dict[str, Any]]:
        """Several in containers of their own, which begin together where they `line_up()`; what
        they told."""
        go = self._work / "go"
        line_up = f"""
def line_up():
    reach(f"{self._work}/ready-{{os.getpid()}}")
    wait_for({str(go)!r}, 3600)
"""
        running = [self.start(one, f"import os{line_up}{script}") for one, script in scripts]
        while not all(one.done() for one in running):
            if len(list(self._work.glob("ready-*"))) == len(scripts):
                go.touch()
            await self.passes(STEP)
        return [one.result() for one in running]

    async def passes(self, nanoseconds: int) -> None:
        """Let so much time pass, or none while nobody lives by the clock."""
        if len(self.clock.takers()) == self._own:
            await asyncio.sleep(0.005)
            return
        await self.clock.sleep_until(self.clock.now() + nanoseconds)

    def shares(self) -> list[float]:
        """Percent that each container had between its first launch and the end of its last."""
        return [
            float(100 * one.busy_ns / (one.last_end_ns - one.first_work_ns))
            for one in accounts(self.gpu)
        ]
