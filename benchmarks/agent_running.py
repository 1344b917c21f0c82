"""The agent beside containers that run and do nothing: memory, descriptors, threads, CPU time.

    python benchmarks/agent_running.py [--containers N] [--seconds N] [--looks N] [--scrape N]

The real agent with its own defaults on a simulated node of 16 GPUs; in each container a process
holds a context and 16 MiB. CPU time is that of its process, of the arbiter's thread and, within
calls of NVML, of the simulated driver, per hour, in each of some looks of so many seconds.
"""

import argparse
import asyncio
import os
import tempfile
import time
import urllib.request
from pathlib import Path
from typing import Any

from agent import free_port
from allocate import machine
from counted_agent import asks_driver, instead, told
from machine_line import machine_line

from gpumanager.kube.pod import ContainerKind
from gpumanager.names import VCORE, VMEMORY
from gpumanager.sim.manifest.pods import ContainerManifest, Pod
from gpumanager.sim.node import SimulatedNode

QUIET_SECONDS = 30.0
"""The auditor has looked several times, and the reconcilers once."""
HOLD = ("cuda-play", "hold", "--memory", "16MiB", "--seconds", "100000")
ASKS = {VCORE: 5, VMEMORY: 2}


def cpu_seconds(stat: Path) -> float:
    fields = stat.read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def arbiter_seconds(pid: int) -> float:
    tasks = Path(f"/proc/{pid}/task").iterdir()
    threads = [task for task in tasks if (task / "comm").read_text() == "arbiter\n"]
    return sum(cpu_seconds(one / "stat") for one in threads)


async def scrape(port: int, seconds: float) -> None:
    while True:
        await asyncio.sleep(seconds)
        await asyncio.to_thread(urllib.request.urlopen, f"http://localhost:{port}/metrics")


async def report(what: str, pid: int, calls: Path, looks: int, seconds: float) -> None:
    await asyncio.sleep(QUIET_SECONDS)
    proc = Path(f"/proc/{pid}")
    pages = int((proc / "statm").read_text().split()[1])
    descriptors, threads = (len(os.listdir(proc / name)) for name in ("fd", "task"))  # noqa: PTH208
    mib = pages * os.sysconf("SC_PAGE_SIZE") / (1 << 20)
    print(f"{what}: {mib:.1f} MiB, {descriptors} descriptors, {threads} threads", flush=True)
    for _ in range(looks):
        began, whole, arbiter = time.monotonic(), cpu_seconds(proc / "stat"), arbiter_seconds(pid)
        before = len(told(calls))
        await asyncio.sleep(seconds)
        each_hour = 3600 / (time.monotonic() - began)
        whole, arbiter = cpu_seconds(proc / "stat") - whole, arbiter_seconds(pid) - arbiter
        asked = told(calls)[before:]
        driver = sum(taken for _, _, taken in asked) / 1e9
        print(
            f"  CPU: agent {(whole - arbiter - driver) * each_hour:6.1f} s/h, "
            f"arbiter {arbiter * each_hour:5.1f} s/h, within NVML {driver * each_hour:6.1f} s/h, "
            f"{sum(asks_driver(name) for _, name, _ in asked) / seconds:.1f} calls a second",
            flush=True,
        )


async def measure(count: int, looks: int, seconds: float, scraped: float) -> None:
    print(machine_line())
    port = free_port()
    flags = {"query-port": port, "allocation-check-period": 30}
    tasks: list[asyncio.Task[Any]] = []
    with tempfile.TemporaryDirectory() as folder, instead(calls := Path(folder, "calls")):
        async with SimulatedNode(machine(), agent_flags=flags) as node:
            if scraped:
                tasks.append(asyncio.create_task(scrape(port, scraped)))
            await report("nothing placed", node.agent.pid, calls, looks, seconds)
            for number in range(count):
                main = ContainerManifest("main", ContainerKind.APP, HOLD, asks=ASKS)
                pod = Pod("default", f"pod-{number}", (main,))
                refused = await node.admit(pod)
                assert refused is None, refused
                tasks.append(asyncio.create_task(node.runner.run(pod)))
                while len({one.pid for one in node.gpus.processes()}) <= number:  # noqa: ASYNC110
                    await asyncio.sleep(0.05)
            await report(f"{count} containers", node.agent.pid, calls, looks, seconds)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)


def main() -> None:
    arguments = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    arguments.add_argument("--containers", type=int, default=256)
    arguments.add_argument("--seconds", type=float, default=60.0, help="of each look")
    arguments.add_argument("--looks", type=int, default=3)
    arguments.add_argument("--scrape", type=float, default=0.0, help="seconds between two")
    options = arguments.parse_args()
    asyncio.run(measure(options.containers, options.looks, options.seconds, options.scrape))


if __name__ == "__main__":
    main()
