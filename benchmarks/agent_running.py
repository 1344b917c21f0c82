"""The agent's memory, descriptors and threads: nothing placed, and beside containers that run.

    python benchmarks/agent_running.py [--containers N]

The real agent on a simulated node of four GPUs; in each container a program holds 16 MiB.
"""

import argparse
import asyncio
import os
from pathlib import Path

from machine_line import machine_line

from gpumanager.kube.pod import ContainerKind
from gpumanager.names import VCORE, VMEMORY
from gpumanager.sim.machines import load_machine
from gpumanager.sim.manifest.pods import ContainerManifest, Pod
from gpumanager.sim.node import SimulatedNode

QUIET_SECONDS = 5.0
HOLD = ("cuda-play", "hold", "--memory", "16MiB", "--seconds", "600")


def report(what: str, pid: int) -> None:
    proc = Path(f"/proc/{pid}")
    pages = int((proc / "statm").read_text().split()[1])
    descriptors, threads = (len(os.listdir(proc / name)) for name in ("fd", "task"))  # noqa: PTH208
    mib = pages * os.sysconf("SC_PAGE_SIZE") / (1 << 20)
    print(f"{what:16} {mib:6.1f} MiB  {descriptors:5} descriptors  {threads:3} threads")


async def measure(count: int) -> None:
    print(machine_line())
    async with SimulatedNode(load_machine("t4x4")) as node:
        await asyncio.sleep(QUIET_SECONDS)
        report("nothing placed", node.agent.pid)
        running = []
        for number in range(count):
            asks = {VCORE: 6, VMEMORY: 2}
            main = ContainerManifest("main", ContainerKind.APP, HOLD, asks=asks)
            pod = Pod("default", f"pod-{number}", (main,))
            refused = await node.admit(pod)
            assert refused is None, refused
            running.append(asyncio.create_task(node.run_admitted(pod)))
        while len({one.pid for one in node.gpus.processes()}) < count:  # noqa: ASYNC110
            await asyncio.sleep(0.1)
        await asyncio.sleep(QUIET_SECONDS)
        report(f"{count} containers", node.agent.pid)
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)


def main() -> None:
    arguments = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    arguments.add_argument("--containers", type=int, default=64)
    asyncio.run(measure(arguments.parse_args().containers))


if __name__ == "__main__":
    main()
